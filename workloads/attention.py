"""One attention head, scores kept on chip: out = softmax(Q K^T / sqrt(d)) V, with Q and K given as [d, S]."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from nc_sim.program import Program

from .rmsnorm import inputs

TOLERANCE = 1e-4
ROWS = 128

__all__ = ["TOLERANCE", "build", "inputs", "reference"]


def build(s: int = 512, d: int = 128) -> Program:
    """float32; S rows of queries, 128 at a time; V is [S, d]. S is at most 512: one PSUM bank of scores."""
    p = Program("attention")
    q, k, v = p.input("q", (d, s), "float32"), p.input("k", (d, s), "float32"), p.input("v", (s, d), "float32")
    out = p.output("out", (s, d), "float32")
    qt, kt = p.sbuf((d, s), "float32"), p.sbuf((d, s), "float32")
    p.dma_copy(dst=qt, src=q)
    p.dma_copy(dst=kt, src=k)
    values = []
    for first in range(0, s, ROWS):
        values.append(p.sbuf((min(ROWS, s - first), d), "float32"))
        p.dma_copy(dst=values[-1], src=v[first : min(first + ROWS, s)])
    for first in range(0, s, ROWS):
        n = min(ROWS, s - first)
        scores = p.psum((n, s), "float32")
        p.nc_matmul(dst=scores, stationary=qt[:, first : first + n], moving=kt)
        peak, total, share = (p.sbuf((n, 1), "float32") for _ in range(3))
        weights, result = p.sbuf((n, s), "float32"), p.psum((n, d), "float32")
        p.tensor_reduce(dst=peak, op="max", data=scores, axis=1, negate=True)
        p.tensor_scalar(dst=peak, data=peak, op0="multiply", operand0=1 / math.sqrt(d))
        p.activation(dst=weights, op="exp", data=scores, scale=1 / math.sqrt(d), bias=peak, reduce_op="add", reduce_res=total)
        p.reciprocal(dst=share, data=total)
        for j, value in enumerate(values):
            rows = value.shape[0]
            turned, across = p.psum((rows, n), "float32"), p.sbuf((rows, n), "float32")
            p.nc_transpose(dst=turned, data=weights[:, j * ROWS : j * ROWS + rows])
            p.tensor_copy(dst=across, src=turned)
            p.nc_matmul(dst=result, stationary=across, moving=value, accumulate=j > 0)
        final = p.sbuf((n, d), "float32")
        p.tensor_scalar(dst=final, data=result, op0="multiply", operand0=share)
        p.dma_copy(dst=out[first : first + n], src=final)
    return p


def reference(given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The formula in float64."""
    q, k, v = (given[n].astype(np.float64) for n in "qkv")
    scores = q.T @ k / math.sqrt(q.shape[0])
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return {"out": e / e.sum(axis=1, keepdims=True) @ v}
