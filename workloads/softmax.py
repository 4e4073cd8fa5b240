"""Softmax over rows, as a kernel computes it: subtract the maximum, exponentiate with the row sum, scale."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nc_sim.program import Program
from nc_sim.progress import track

from .rmsnorm import inputs

TOLERANCE = 1e-5
PARTITIONS = 128

__all__ = ["TOLERANCE", "build", "inputs", "reference"]


def build(rows: int = 256, cols: int = 512) -> Program:
    """x [rows, cols] float32 in HBM, 128 rows at a time."""
    p = Program("softmax")
    x = p.input("x", (rows, cols), "float32")
    y = p.output("y", (rows, cols), "float32")
    for first in track(range(0, rows, PARTITIONS)):
        n = min(PARTITIONS, rows - first)
        t, e = p.sbuf((n, cols), "float32"), p.sbuf((n, cols), "float32")
        peak, total, share = (p.sbuf((n, 1), "float32") for _ in range(3))
        p.dma_copy(dst=t, src=x[first : first + n])
        p.tensor_reduce(dst=peak, op="max", data=t, axis=1, negate=True)
        p.activation(dst=e, op="exp", data=t, bias=peak, reduce_op="add", reduce_res=total)
        p.reciprocal(dst=share, data=total)
        p.tensor_scalar(dst=e, data=e, op0="multiply", operand0=share)
        p.dma_copy(dst=y[first : first + n], src=e)
    return p


def reference(given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The formula in float64."""
    x = given["x"].astype(np.float64)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return {"y": e / e.sum(axis=1, keepdims=True)}
