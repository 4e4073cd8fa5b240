"""Arrays for a program's inputs."""

from __future__ import annotations

import numpy as np

from ..program import Program


def inputs(program: Program, seed: int = 0) -> dict[str, np.ndarray]:
    """An array for every input tensor, of its shape and type: floats from -1 to 1, whole numbers from -8 (or 0) to 8.

    They are small, so that long chains of calls stay finite. The same seed gives the same arrays.
    """
    rng = np.random.default_rng(seed)
    out: dict[str, np.ndarray] = {}
    for t in program.tensors.values():
        if t.kind == "input":
            whole = t.dtype.kind != "float"
            values = rng.integers(-8 if t.dtype.kind == "int" else 0, 9, t.shape) if whole else rng.uniform(-1, 1, t.shape)
            out[t.name] = values.astype(t.dtype.numpy)
    return out
