"""Samples of calls on VectorE and ScalarE: one function a call, of (partitions, elements, how many before, random numbers)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nc_sim import Program
from samples import BF16, F32, HOST, I32, U16, U32, Sample, Tiles, reals, wholes

ALU: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b,
    "maximum": np.maximum, "minimum": np.minimum, "greater": lambda a, b: a > b, "less_equal": lambda a, b: a <= b,
}  # fmt: skip
PICK = tuple(ALU)


def chosen(k: int) -> tuple[str, Callable[[Any, Any], Any]]:
    return PICK[k % len(PICK)], ALU[PICK[k % len(PICK)]]


# --- elementwise -----------------------------------------------------------------------------------------------------


def tensor_tensor(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    op, f = chosen(k)
    a, b = reals(rng, p, n), reals(rng, p, n)
    return Sample(
        lambda c, t: c.tensor_tensor(dst=t["r"], data1=t["a"], data2=t["b"], op=op),
        {"a": (a, F32), "b": (b, F32)}, {"r": (f(a, b), F32)}, psum=((), ("a",), ("b",), ("r",))[k % 4] if n < 1000 else (),
    )  # fmt: skip


def integers_on_gpsimd(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    a, b = (rng.integers(-(2**31), 2**31, (p, n)) for _ in range(2))
    wrapped = (a * b + 2**31) % 2**32 - 2**31 if k % 2 else (a + b + 2**31) % 2**32 - 2**31
    op = "multiply" if k % 2 else "add"
    return Sample(
        lambda c, t: c.tensor_tensor(dst=t["r"], data1=t["a"], data2=t["b"], op=op), {"a": (a, I32), "b": (b, I32)}, {"r": (wrapped, I32)}
    )


def tensor_scalar(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    a, v = wholes(rng, p, n), wholes(rng, p, 1)
    vector, reverse = k % 2 == 1, k % 3 == 0
    first = (v if vector else 2.5) - a if reverse else a - (v if vector else 2.5)
    return Sample(
        lambda c, t: c.tensor_scalar(
            dst=t["r"], data=t["a"], op0="subtract", operand0=t["v"] if vector else 2.5, reverse0=reverse, op1="multiply", operand1=3.0
        ),
        {"a": (a, F32), "v": (v, F32)}, {"r": (first * 3, F32)}, psum=("a",) if k % 4 == 1 and n < 1000 else (),
    )  # fmt: skip


def bits_of_tensor_scalar(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    a = rng.integers(0, 2**32, (p, n))
    return Sample(
        lambda c, t: c.tensor_scalar(dst=t["r"], data=t["a"], op0="right_shift", operand0=5, op1="bitwise_and", operand1=0xFFFF),
        {"a": (a, U32)}, {"r": ((a >> 5) & 0xFFFF, U32)},
    )  # fmt: skip


def scalar_tensor_tensor(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    a, b, v = wholes(rng, p, n), wholes(rng, p, n), wholes(rng, p, 1)
    op, f = chosen(k)
    first = a * v
    return Sample(
        lambda c, t: c.scalar_tensor_tensor(
            dst=t["r"], data=t["a"], op0="multiply", operand0=t["v"], op1=op, operand1=t["b"], reverse1=k % 2 == 1
        ),
        {"a": (a, F32), "b": (b, F32), "v": (v, F32)}, {"r": (f(b, first) if k % 2 else f(first, b), F32)},
        psum=((), ("a",), ("b",), ("v",))[k % 4] if n < 1000 else (),
    )  # fmt: skip


def tensor_tensor_scan(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    a, b, first = rng.integers(-1, 2, (p, n)).astype(float), wholes(rng, p, n), wholes(rng, p, 1)
    out, before = np.empty((p, n)), first[:, 0]
    for i in range(n):
        before = out[:, i] = a[:, i] * before + b[:, i]
    return Sample(
        lambda c, t: c.tensor_tensor_scan(dst=t["r"], data0=t["a"], data1=t["b"], initial=t["v"], op0="multiply", op1="add"),
        {"a": (a, F32), "b": (b, F32), "v": (first, F32)}, {"r": (out, F32)}, psum=((), ("a",), ("b",))[k % 3] if n < 1000 else (),
    )  # fmt: skip


def tensor_reduce(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    a = wholes(rng, p, n)
    op, f = (("add", np.sum), ("max", np.max), ("min", np.min))[k % 3]
    wanted = f(a, axis=1, keepdims=True)
    return Sample(
        lambda c, t: c.tensor_reduce(dst=t["r"], op=op, data=t["a"], axis=1, negate=k % 2 == 1),
        {"a": (a, F32)}, {"r": (-wanted if k % 2 else wanted, F32)}, psum=("a",) if k % 4 == 2 and n < 1000 else (),
    )  # fmt: skip


def tensor_copy(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    to = (F32, BF16, "float16", I32)[k % 4]
    a = reals(rng, p, n)
    return Sample(
        lambda c, t: c.tensor_copy(dst=t["r"], src=t["a"], engine=("vector", "gpsimd")[k // 4 % 2]),
        {"a": (a, F32)}, {"r": (np.rint(a) if to == I32 else a, to)},
    )  # fmt: skip


def reciprocal(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    a = reals(rng, p, n)
    return Sample(lambda c, t: c.reciprocal(dst=t["r"], data=t["a"]), {"a": (a, F32)}, {"r": (1 / a, F32)})


def memset(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    kind = tuple(t for t in HOST if "_x" not in t)[k % 10]
    number = -1.5 if kind.startswith(("f", "b")) else 100
    return Sample(
        lambda c, t: c.memset(dst=t["r"], value=number, engine=("vector", "gpsimd")[k % 2]), {}, {"r": (np.full((p, n), number), kind)}
    )


# --- accumulators ----------------------------------------------------------------------------------------------------


def tensor_scalar_reduce(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    a, v = wholes(rng, p, n), wholes(rng, p, 1)

    def call(c: Program, t: Tiles) -> None:
        c.tensor_scalar_reduce(dst=t["r"], data=t["a"], op0="add", operand0=1.0, reduce_op="add")
        c.tensor_scalar_reduce(
            dst=t["r"], data=t["a"], op0="multiply", operand0=t["v"], reduce_op="add", reduce_cmd="reduce", reduce_res=t["s"],
            reduce_res_negate=k % 2 == 1,
        )  # fmt: skip

    total = (a + 1).sum(axis=1, keepdims=True) + (a * v).sum(axis=1, keepdims=True)
    return Sample(call, {"a": (a, F32), "v": (v, F32)}, {"r": (a * v, F32), "s": (-total if k % 2 else total, F32)})


def tensor_scalar_cumulative(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    a, first = wholes(rng, p, n), wholes(rng, p, 1)
    op, f = ((("add", np.add), ("maximum", np.maximum), ("minimum", np.minimum)))[k % 3]
    return Sample(
        lambda c, t: c.tensor_scalar_cumulative(
            dst=t["r"], src=t["a"], op0="multiply", op1=op, imm0=2.0, imm1=t["v"], reduce_cmd="load_reduce"
        ),
        {"a": (a, F32), "v": (first, F32)}, {"r": (f.accumulate(np.hstack([first, 2 * a]), axis=1)[:, 1:], F32)},
    )  # fmt: skip


def exponential(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    a = reals(rng, p, n)
    peak = a.max(axis=1, keepdims=True)
    wanted = np.exp((a - peak).astype(np.float32).astype(float))
    return Sample(
        lambda c, t: c.exponential(dst=t["r"], src=t["a"], max_value=t["v"], reduce_res=t["s"], reduce_cmd="reset_reduce"),
        {"a": (a, F32), "v": (peak, F32)}, {"r": (wanted, F32), "s": (wanted.sum(axis=1, keepdims=True), F32)},
        psum=("a",) if k % 2 and n < 1000 else (), error=2**-18,
    )  # fmt: skip


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp, "tanh": np.tanh, "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "square": lambda x: x * x, "copy": lambda x: x,
    "silu": lambda x: x / (1 + np.exp(-x)), "relu": lambda x: np.where(x > 0, x, 0), "softplus": lambda x: np.log(1 + np.exp(x)),
}  # fmt: skip


def activation(p: int, n: int, k: int, rng: np.random.Generator, call: str = "activation") -> Sample:
    a, v = reals(rng, p, n), reals(rng, p, 1)
    name = tuple(FUNCTIONS)[k % len(FUNCTIONS)]
    wanted = FUNCTIONS[name](a * 0.5 + v)
    return Sample(
        lambda c, t: getattr(c, call)(dst=t["r"], op=name, data=t["a"], scale=0.5, bias=t["v"], reduce_op="add", reduce_res=t["s"]),
        {"a": (a, F32), "v": (v, F32)}, {"r": (wanted, F32), "s": (wanted.sum(axis=1, keepdims=True), F32)},
        psum=((), ("a",), ("r",), ("v",))[k % 4] if n < 1000 else (), error=2**-16,
    )  # fmt: skip


def activate2(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    a, v = reals(rng, p, n), reals(rng, p, 1)
    name = tuple(FUNCTIONS)[k % len(FUNCTIONS)]
    wanted = FUNCTIONS[name](v - a * 0.5)
    op, f = (("add", np.sum), ("maximum", np.max), ("minimum", np.min))[k % 3]
    return Sample(
        lambda c, t: c.activate2(
            dst=t["r"], op=name, data=t["a"], imm0=0.5, imm1=t["v"], op0="multiply", op1="subtract", reverse1=True,
            reduce_op=op, reduce_res=t["s"], reduce_cmd="reset_reduce",
        ),
        {"a": (a, F32), "v": (v, F32)}, {"r": (wanted, F32), "s": (f(wanted, axis=1, keepdims=True), F32)}, error=2**-16,
    )  # fmt: skip


# --- selections, searches, statistics --------------------------------------------------------------------------------


def tensor_copy_predicated(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    a, old, mask = reals(rng, p, n), reals(rng, p, n), rng.integers(0, 3, (p, n))
    reverse, kind = k % 2 == 1, ("uint8", U16, U32)[k % 3]
    return Sample(
        lambda c, t: c.tensor_copy_predicated(dst=t["r"], src=t["a"], predicate=t["m"], reverse_pred=reverse),
        {"a": (a, F32), "m": (mask, kind), "r": (old, F32)}, {"r": (np.where((mask == 0) if reverse else (mask > 0), a, old), F32)},
    )  # fmt: skip


def range_select(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    a, low, high = reals(rng, p, n), rng.integers(-2, n + 2, (p, 1)), rng.integers(0, n + 3, (p, 1))
    index = 1 + np.arange(n)[None]
    wanted = np.where((index >= low) & (index < high), a, np.finfo(np.float32).min)
    return Sample(
        lambda c, t: c.range_select(
            dst=t["r"], on_true_tile=t["a"], comp_op0="greater_equal", comp_op1="less", bound0=t["l"], bound1=t["h"], range_start=1,
            reduce_res=t["s"],
        ),
        {"a": (a, F32), "l": (low, F32), "h": (high, F32)}, {"r": (wanted, F32), "s": (wanted.max(axis=1, keepdims=True), F32)},
    )  # fmt: skip


def select_reduce(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    a, other, mask = reals(rng, p, n), reals(rng, p, 1), rng.integers(-1, 2, (p, n))
    reverse = k % 2 == 1
    wanted = np.where((mask == 0) if reverse else (mask != 0), a, other)
    return Sample(
        lambda c, t: c.select_reduce(
            dst=t["r"], predicate=t["m"], on_true=t["a"], on_false=t["v"], reduce_res=t["s"], reduce_cmd="reset_reduce",
            reverse_pred=reverse,
        ),
        {"a": (a, F32), "v": (other, F32), "m": (mask, "int8")}, {"r": (wanted, F32), "s": (wanted.max(axis=1, keepdims=True), F32)},
    )  # fmt: skip


def nc_stream_shuffle(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    a, old = reals(rng, p, n), reals(rng, p, n)
    there = min(32, p % 32 or 32)  # every quadrant has so many partitions
    mask = [int(m) for m in rng.integers(0, there, 32)]
    mask[0] = 255
    wanted = np.array([old[i] if mask[i % 32] == 255 else a[i - i % 32 + mask[i % 32]] for i in range(p)])
    return Sample(
        lambda c, t: c.nc_stream_shuffle(dst=t["r"], src=t["a"], shuffle_mask=mask), {"a": (a, F32), "r": (old, F32)}, {"r": (wanted, F32)}
    )


def max8(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    a = wholes(rng, p, n, most=1000)
    return Sample(
        lambda c, t: c.max8(dst=t["r"], src=t["a"]), {"a": (a, F32)}, {"r": (np.array([sorted(row)[::-1][:8] for row in a]), F32)}
    )


def found(p: int, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of different numbers, eight places in each, and what stands there."""
    a = np.array([rng.permutation(n) for _ in range(p)]).astype(float)
    at = np.array([rng.permutation(n)[:8] for _ in range(p)])
    return a, at, np.take_along_axis(a, at, 1)


def nc_find_index8(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    a, at, vals = found(p, n, rng)
    vals[:, 7], at[:, 7] = -1, 2**32 - 1 if k % 2 else 2**16 - 1  # not there
    return Sample(
        lambda c, t: c.nc_find_index8(dst=t["r"], data=t["a"], vals=t["v"]),
        {"a": (a, F32), "v": (vals, F32)}, {"r": (at, U32 if k % 2 else U16)},
    )  # fmt: skip


def nc_match_replace8(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    a, at, vals = found(p, n, rng)
    wanted = a.copy()
    np.put_along_axis(wanted, at, -5.0, 1)
    return Sample(
        lambda c, t: c.nc_match_replace8(dst=t["r"], data=t["a"], vals=t["v"], imm=-5.0, dst_idx=t["s"]),
        {"a": (a, F32), "v": (vals, F32)}, {"r": (wanted, F32), "s": (at, U32)},
    )  # fmt: skip


def bn_stats(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    a = reals(rng, p, n)
    wanted = np.zeros((p, 6))
    for first in (0, 1):
        part = a[:, first::2]
        if part.shape[1]:
            wanted[:, 3 * first : 3 * first + 3] = np.stack([np.full(p, part.shape[1]), part.mean(1), part.var(1) * part.shape[1]], 1)
    return Sample(lambda c, t: c.bn_stats(dst=t["r"], data=t["a"]), {"a": (a, F32)}, {"r": (wanted, F32)}, error=2**-15)


def bn_aggr(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    """n groups of different sizes, of which mean and variance are taken over all numbers at once."""
    groups = [reals(rng, p, 1 + g % 3) for g in range(n)]
    data = np.stack([np.stack([np.full(p, g.shape[1]), g.mean(1), g.var(1) * g.shape[1]], 1) for g in groups], 1).reshape(p, 3 * n)
    every = np.hstack(groups)
    wanted = np.stack([every.mean(1), every.var(1)], 1)
    return Sample(lambda c, t: c.bn_aggr(dst=t["r"], data=t["a"]), {"a": (data, F32)}, {"r": (wanted, F32)}, error=2**-15)
