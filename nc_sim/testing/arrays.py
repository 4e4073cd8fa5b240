"""Arrays for a program's inputs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..isa.errors import ProgramError
from ..program import Program, Tensor

EMPTY: Mapping[str, tuple[int, int]] = {}


def inputs(program: Program, seed: int = 0, *, between: Mapping[str, tuple[int, int]] = EMPTY) -> dict[str, np.ndarray]:
    """An array for every input tensor, of its shape and type: floats from -1 to 1, whole numbers from -8 (or 0) to 8.

    They are small, so that long chains of calls stay finite. `between` has other bounds, both included, for input tensors
    of whole numbers by name: indices of a table of 1000 rows are `between={"ids": (0, 999)}`. The same seed gives the same
    arrays; ProgramError for a name or bounds that do not fit.
    """
    given = {t.name: t for t in program.tensors.values() if t.kind == "input"}
    for name, bounds in between.items():
        _check(name, given, bounds)
    rng = np.random.default_rng(seed)
    out: dict[str, np.ndarray] = {}
    for name, t in given.items():
        low, high = between.get(name, (-8 if t.dtype.kind == "int" else 0, 8))
        whole = t.dtype.kind != "float"
        values = rng.integers(low, high + 1, t.shape) if whole else rng.uniform(-1, 1, t.shape)
        out[name] = values.astype(t.dtype.numpy)
    return out


def _check(name: str, given: Mapping[str, Tensor], bounds: tuple[int, int]) -> None:
    where = f"inputs between {name}"
    if name not in given:
        raise ProgramError(where, "no such input", f"one of {', '.join(given)}")
    if (dtype := given[name].dtype).kind == "float":
        raise ProgramError(where, f"a tensor of {dtype.name}", "one of whole numbers")
    least, most = np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max
    low, high = bounds
    if not least <= low <= high <= most:
        raise ProgramError(where, f"bounds {low} and {high}", f"the lower, then the higher, of {least} to {most}")
