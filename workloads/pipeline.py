"""DMA -> matmul -> activation -> DMA, repeated: the program that simulation speed is stated for."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nc_sim.program import Program
from nc_sim.progress import track

from .rmsnorm import inputs

TOLERANCE = 2.0**-7

__all__ = ["TOLERANCE", "build", "inputs", "reference"]


def build(tiles: int = 8, width: int = 512) -> Program:
    """y[i] = tanh(w.T @ x[i]) for tiles of [128, width], two buffers deep."""
    p = Program("pipeline")
    x, w = p.input("x", (tiles, 128, width), "bfloat16"), p.input("w", (128, 128), "bfloat16")
    y = p.output("y", (tiles, 128, width), "float32")
    weights = p.sbuf((128, 128), "bfloat16")
    p.dma_copy(dst=weights, src=w)
    moving = [p.sbuf((128, width), "bfloat16") for _ in range(2)]
    out = [p.sbuf((128, width), "float32") for _ in range(2)]
    product = [p.psum((128, width), "float32") for _ in range(2)]
    for i in track(range(tiles)):
        b = i % 2
        p.dma_copy(dst=moving[b], src=x[i], engine="sync", dge_mode="hwdge")
        p.nc_matmul(dst=product[b], stationary=weights, moving=moving[b], accumulate=False)
        p.activation(dst=out[b], op="tanh", data=product[b])
        p.dma_copy(dst=y[i], src=out[b], engine="scalar", dge_mode="hwdge")
    return p


def reference(given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The formula in float64."""
    x, w = given["x"].astype(np.float64), given["w"].astype(np.float64)
    return {"y": np.tanh(np.einsum("km,tkn->tmn", w, x))}
