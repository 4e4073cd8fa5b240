"""C = A.T @ B by blocks: A [K, M] and B [K, N] are loaded tile by tile, products accumulate in PSUM over K."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nc_sim.program import Program
from nc_sim.progress import track

from .rmsnorm import inputs

TOLERANCE = 2.0**-7
TILE_K, TILE_M, TILE_N = 128, 128, 512

__all__ = ["TOLERANCE", "build", "inputs", "reference"]


def build(k: int = 256, m: int = 256, n: int = 1024, dtype: str = "bfloat16") -> Program:
    """Both operands stay in SBUF; every C tile is one accumulation group."""
    p = Program("matmul")
    a, b = p.input("a", (k, m), dtype), p.input("b", (k, n), dtype)
    c = p.output("c", (m, n), "float32")
    stationary, moving = [], []
    for first in range(0, k, TILE_K):
        rows = min(TILE_K, k - first)
        stationary.append(p.sbuf((rows, m), dtype))
        moving.append(p.sbuf((rows, n), dtype))
        p.dma_copy(dst=stationary[-1], src=a[first : first + rows])
        p.dma_copy(dst=moving[-1], src=b[first : first + rows])
    for mi in track(range(0, m, TILE_M)):
        columns = min(TILE_M, m - mi)
        for ni in range(0, n, TILE_N):
            width = min(TILE_N, n - ni)
            product = p.psum((columns, width), "float32")
            for ki, (s, v) in enumerate(zip(stationary, moving, strict=True)):
                p.nc_matmul(dst=product, stationary=s[:, mi : mi + columns], moving=v[:, ni : ni + width], accumulate=ki > 0)
            out = p.sbuf((columns, width), "float32")
            p.tensor_copy(dst=out, src=product)
            p.dma_copy(dst=c[mi : mi + columns, ni : ni + width], src=out)
    return p


def reference(given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The product in float64."""
    return {"c": given["a"].astype(np.float64).T @ given["b"].astype(np.float64)}
