"""Arrays for a program's inputs."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

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
    if not isinstance(between, Mapping):
        raise ProgramError("inputs between", f"{_shown(between)}", "bounds by input: {'ids': (0, 999)}")
    within = {name: _checked(name, given, bounds) for name, bounds in between.items()}
    if (start := _whole(seed)) is None or start < 0:
        raise ProgramError("inputs", f"seed {_shown(seed)}", "a whole number of at least 0")
    rng = np.random.default_rng(start)
    out: dict[str, np.ndarray] = {}
    for name, t in given.items():
        low, high = within.get(name, (-8 if t.dtype.kind == "int" else 0, 8))
        whole = t.dtype.kind != "float"
        values = rng.integers(low, high + 1, t.shape) if whole else rng.uniform(-1, 1, t.shape)
        out[name] = values.astype(t.dtype.numpy)
    return out


def _checked(name: str, given: Mapping[str, Tensor], bounds: Any) -> tuple[int, int]:
    """The bounds of an input as ints."""
    where = f"inputs between {name}"
    if name not in given:
        raise ProgramError(where, "no such input", f"one of {', '.join(given)}")
    if (dtype := given[name].dtype).kind == "float":
        raise ProgramError(where, f"a tensor of {dtype.name}", "one of whole numbers")
    least, most = np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max
    ordered = isinstance(bounds, list | tuple) or (isinstance(bounds, np.ndarray) and bounds.ndim == 1)
    pair = [_whole(b) for b in bounds] if ordered else []
    if len(pair) != 2 or (low := pair[0]) is None or (high := pair[1]) is None:
        raise ProgramError(where, f"bounds {_shown(bounds)}", "two whole numbers, the lower and the higher, both included")
    if not least <= low <= high <= most:
        raise ProgramError(where, f"bounds {low} and {high}", f"the lower, then the higher, of {least} to {most}")
    return low, high


def _whole(value: Any) -> int | None:
    """A whole number of Python or numpy as an int; None for anything else, bools among it."""
    try:
        return None if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        return None


def _shown(value: Any) -> str:
    """A value on one line."""
    return " ".join(repr(value).split())[:80]
