"""RMSNorm in one fused kernel: y = x / sqrt(mean(x^2) + eps) * weight, rows on partitions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nc_sim.program import Program
from nc_sim.progress import track

EPS = 1e-5
TOLERANCE = 2.0**-7  # relative: two bf16 roundings (x * rstd is not rounded in between, the result is)
PARTITIONS = 128


def build(rows: int = 4, cols: int = 512, dtype: str = "bfloat16", names: tuple[str, str, str] = ("x", "weight", "y")) -> Program:
    """x [rows, cols] and weight [1, cols] in HBM, under these names; 128 rows at a time."""
    p = Program("rmsnorm")
    x = p.input(names[0], (rows, cols), dtype)
    weight = p.input(names[1], (1, cols), dtype)
    y = p.output(names[2], (rows, cols), dtype)
    tall = min(rows, PARTITIONS)
    w = p.sbuf((tall, cols), dtype, "w")
    p.dma_copy(dst=w, src=weight.broadcast(0, tall))
    eps = p.sbuf((tall, 1), "float32", "eps")  # a bias is a vector on NeuronCore-v2
    p.memset(dst=eps, value=EPS)
    for first in track(range(0, rows, PARTITIONS)):
        n = min(PARTITIONS, rows - first)
        t = p.sbuf((n, cols), dtype)
        squares, total = p.sbuf((n, cols), "float32"), p.sbuf((n, 1), "float32")
        rstd, out = p.sbuf((n, 1), "float32"), p.sbuf((n, cols), dtype)
        p.dma_copy(dst=t, src=x[first : first + n])
        p.activation(dst=squares, op="square", data=t, reduce_op="add", reduce_res=total)
        p.activation(dst=rstd, op="rsqrt", data=total, scale=1 / cols, bias=eps[:n])
        p.scalar_tensor_tensor(dst=out, data=t, op0="multiply", operand0=rstd, op1="multiply", operand1=w[:n])
        p.dma_copy(dst=y[first : first + n], src=out)
    return p


def inputs(program: Program, seed: int = 0) -> dict[str, np.ndarray]:
    """Normal values in the program's element type."""
    rng = np.random.default_rng(seed)
    return {t.name: rng.standard_normal(t.shape).astype(t.dtype.numpy) for t in program.tensors.values() if t.kind == "input"}


def reference(given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The formula in float64."""
    x, weight = given["x"].astype(np.float64), given["weight"].astype(np.float64)
    return {"y": x / np.sqrt((x * x).mean(axis=1, keepdims=True) + EPS) * weight}
