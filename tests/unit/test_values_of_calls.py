"""Every call of nki.isa on every chip that has it, against a formula of its own, at sizes 1, 127, 128 and the largest.

`CALLS` has an entry for each. Sizes are (partitions, elements per partition) unless an entry says otherwise; the
formulas are written from the definitions in nki.isa (SDK 2.32) and share nothing with the code under test.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from nc_sim import Program, Unsupported, simulate
from nc_sim.isa import REGISTRY
from samples import HOST, Sample, Tiles, in_turn, reals, run, seeded, wholes, xorwow

CHIPS = {"trn1": 2, "inf2": 2, "trn2": 3, "trn3": 4}  # NeuronCore version
SIZES = ((1, 1), (127, 1), (1, 127), (127, 127), (128, 128), (128, 1), (1, 128), (127, 128))
F32, BF16, I32, U32, U16 = "float32", "bfloat16", "int32", "uint32", "uint16"
TWO, THREE = (1, 20_000), (1, 14_000)  # what two and three fp32 tiles may have in the smallest SBUF
Make = Callable[[int, int, int, np.random.Generator], Sample]


@attrs.frozen
class Call:
    """How samples of a call are made: by (partitions, elements, how many before, random numbers); `since` is a NeuronCore version."""

    make: Make
    sizes: Sequence[tuple[int, int]] = SIZES
    largest: Sequence[tuple[int, int]] = ()
    since: int = 2


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
            dst=t["r"], predicate=t["m"], on_true=t["a"], on_false=t["v"], reduce_res=t["s"], reduce_cmd="reset_reduce", reverse_pred=reverse
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
    return Sample(lambda c, t: c.max8(dst=t["r"], src=t["a"]), {"a": (a, F32)}, {"r": (np.array([sorted(row)[::-1][:8] for row in a]), F32)})


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


# --- GpSimd ----------------------------------------------------------------------------------------------------------


def iota(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    wanted = np.array([[7 + 100 * lane - 3 * i for i in range(n)] for lane in range(p)])
    return Sample(lambda c, t: c.iota(dst=t["r"], pattern=[[-3, n]], offset=7, channel_multiplier=100), {}, {"r": (wanted, I32)})


def affine_select(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    a = reals(rng, p, n)
    lane, i = np.indices((p, n))
    return Sample(
        lambda c, t: c.affine_select(
            dst=t["r"], pattern=[[-1, n]], channel_multiplier=1, on_true_tile=t["a"], on_false_value=-9.0, cmp_op="greater_equal", offset=1
        ),
        {"a": (a, F32)}, {"r": (np.where(1 + lane - i >= 0, a, -9.0), F32)},
    )  # fmt: skip


def nc_n_gather(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    a, at = reals(rng, p, 2 * n), rng.integers(0, 2 * n, (p, n))
    wanted = np.array([[row[i] for i in places] for row, places in zip(a, at, strict=True)])
    return Sample(
        lambda c, t: c.nc_n_gather(dst=t["r"], data=t["a"], indices=t["i"]), {"a": (a, F32), "i": (at, U32)}, {"r": (wanted, F32)}
    )


def local_gather(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    """n indices of each group of 16 partitions, in its first columns."""
    columns, each = -(-n // 16), (1, 2, 32)[k % 3]
    a, at = wholes(rng, p, 64), rng.integers(0, 64 - each + 1, (p, columns))
    wanted = np.empty((p, n * each))
    for lane in range(p):
        first = lane - lane % 16
        for m in range(n):
            i = at[first + m % 16, m // 16]
            wanted[lane, m * each : (m + 1) * each] = a[lane, i : i + each]
    return Sample(
        lambda c, t: c.local_gather(dst=t["r"], src_buffer=t["a"], index=t["i"], num_elem_per_idx=each, num_valid_indices=n),
        {"a": (a, BF16), "i": (at, U16)}, {"r": (wanted, BF16)},
    )  # fmt: skip


def tensor_partition_reduce(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    a = wholes(rng, p, n)
    op, f = (("add", np.sum), ("max", np.max), ("average", np.mean))[k % 3]
    return Sample(
        lambda c, t: c.tensor_partition_reduce(dst=t["r"], op=op, data=t["a"]),
        {"a": (a, F32)}, {"r": (f(a, axis=0, keepdims=True), F32)}, error=2**-22,
    )  # fmt: skip


def sequence_bounds(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    ids = np.repeat(rng.integers(0, 4, n), 3)[:n]
    wanted = np.empty((1, 2, n))
    for i in range(n):
        low = next(j for j in range(i, -1, -1) if j == 0 or ids[j - 1] != ids[i])
        high = next(j for j in range(i, n) if j == n - 1 or ids[j + 1] != ids[i]) + 1
        wanted[0, :, i] = (n, -1) if ids[i] == 0 else (low, high)
    return Sample(lambda c, t: c.sequence_bounds(dst=t["r"], segment_ids=t["a"]), {"a": (ids[None], F32)}, {"r": (wanted, I32)})


def nonzero_with_count(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    a, old = rng.integers(0, 2, (p, n)), np.full((p, n + 1), 99)
    wanted = old.copy()
    for lane in range(0, p, 16):
        places = [i + 10 for i in range(n) if a[lane, i] != 0]
        wanted[lane] = [*places, *[-7] * (n - len(places)), len(places)]
    return Sample(
        lambda c, t: c.nonzero_with_count(dst=t["r"], src=t["a"], index_offset=10, padding_val=-7),
        {"a": (a, F32), "r": (old, I32)}, {"r": (wanted, I32)},
    )  # fmt: skip


def topk(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    """n numbers of each group of 16 partitions, which all differ where bfloat16 tells them apart, and the larger half of them."""
    columns, kept = -(-n // 16), n // 2
    a, values, places = np.zeros((p, columns)), np.full((p, kept), -1.0), np.full((p, kept), 5)
    for first in range(0, p, 16):
        flat = [float(x) for x in rng.integers(-128, 128, n)]
        for i, x in enumerate(flat):
            a[first + i % 16, i // 16] = x
        best = sorted(range(n), key=lambda i: (-flat[i], i))[:kept]  # of equal numbers the first count
        for j, i in enumerate(sorted(best, key=lambda i: (flat[i], -i))):
            values[first + j % 16, j // 16], places[first + j % 16, j // 16] = flat[i], i
    old = {"v": (np.full((p, kept), -1.0), BF16), "i": (np.full((p, kept), 5), U32)}
    return Sample(
        lambda c, t: c.topk(val_dst=t["v"], idx_dst=t["i"], src=t["a"], n=n), {"a": (a, BF16), **old}, {"v": (values, BF16), "i": (places, U32)}
    )


# --- random numbers --------------------------------------------------------------------------------------------------


def rng(p: int, n: int, k: int, random: np.random.Generator) -> Sample:
    def call(c: Program, t: Tiles) -> None:
        c.set_rng_seed(src_seeds=t["s"])
        c.rng(dst=t["r"])

    kind = (U32, "int16", "uint8")[k % 3]
    drawn = in_turn(seeded(k, p), n)[0]
    return Sample(call, {"s": (np.array([[k]]), U32)}, {"r": (drawn.astype(f"u{HOST[kind].itemsize}").view(HOST[kind]), kind)})


def dropout(p: int, n: int, k: int, random: np.random.Generator) -> Sample:
    def call(c: Program, t: Tiles) -> None:
        c.set_rng_seed(src_seeds=t["s"])
        c.dropout(dst=t["r"], data=t["a"], prob=t["v"] if k % 2 else 0.25)

    a, prob = reals(random, p, n), random.uniform(0, 1, (p, 1))
    share = (in_turn(seeded(k, p), n)[0] >> 8) * 2.0**-24
    kept = share >= (prob.astype(np.float32) if k % 2 else 0.25)
    return Sample(call, {"s": (np.array([[k]]), U32), "a": (a, F32), "v": (prob, F32)}, {"r": (np.where(kept, a, 0), F32)})


def gpsimd_state(p: int, n: int, k: int, random: np.random.Generator) -> Sample:
    def call(c: Program, t: Tiles) -> None:
        c.rand_set_state(src_seeds=t["s"])
        c.rng(dst=t["r"], engine="gpsimd")
        c.rand_get_state(dst=t["after"])

    words = random.integers(0, 2**32, (p, 6))
    numbers, after = zip(*(xorwow(row.tolist(), n) for row in words), strict=True)
    return Sample(call, {"s": (words, U32)}, {"r": (np.array(numbers), U32), "after": (np.array(after), U32)})


def rand2(p: int, n: int, k: int, random: np.random.Generator) -> Sample:
    def call(c: Program, t: Tiles) -> None:
        c.rand_set_state(src_seeds=t["s"], engine="vector")
        c.rand2(dst=t["r"], min=-2.0, max=t["v"])
        c.rand_get_state(dst=t["after"], engine="vector")

    words, high = random.integers(0, 2**32, (p, 24)), random.uniform(0, 4, (p, 1))
    numbers, after = in_turn(words, n)
    share = (numbers >> 8) * 2.0**-24
    return Sample(
        call, {"s": (words, U32), "v": (high, F32)}, {"r": (-2 + share * (high + 2), F32), "after": (after, U32)}, error=2**-20
    )


# --- TensorEngine: (rows of the array, columns of the result), as many stationary columns as rows ------------------------


def nc_matmul(p: int, n: int, k: int, rng: np.random.Generator, dtype: str = "") -> Sample:
    kind = dtype or (F32, BF16, "float16", "float8_e4m3")[k % 4]
    s, m = wholes(rng, p, p), wholes(rng, p, n)
    to = BF16 if dtype else F32
    return Sample(
        lambda c, t: c.nc_matmul(dst=t["r"], stationary=t["s"], moving=t["m"]), {"s": (s, kind), "m": (m, kind)}, {"r": (s.T @ m, to)}, psum=("r",)
    )


def sums_of_products(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    s, m = wholes(rng, p, p), wholes(rng, p, n)

    def call(c: Program, t: Tiles) -> None:
        for accumulate in (False, True, True):
            c.nc_matmul(dst=t["r"], stationary=t["s"], moving=t["m"], accumulate=accumulate)

    return Sample(call, {"s": (s, BF16), "m": (m, BF16)}, {"r": (3 * (s.T @ m), F32)}, psum=("r",))


def nc_matmul_mx(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    """Rows of 32; every packed element holds the four codes of one byte value, so that the product is a sum by hand."""
    columns = 2 if n == 1 else 128
    kinds = "float8_e4m3fn_x4", HOST["float8_e4m3"]
    codes = np.array([0x00, 0x38, 0x40, 0xB8], np.uint8)  # 0, 1, 2, -1 in float8_e4m3fn
    numbers = np.array([0.0, 1.0, 2.0, -1.0])
    left, right = rng.integers(0, 4, (p, columns, 4)), rng.integers(0, 4, (p, n, 4))
    groups = p // 8
    up, down = rng.integers(126, 129, (groups, columns)), rng.integers(126, 129, (groups, n))

    def packed(index: np.ndarray) -> np.ndarray:
        return (codes[index].astype(np.uint64) << (8 * np.arange(4, dtype=np.uint64))).sum(axis=2)

    def spread(scales: np.ndarray) -> np.ndarray:
        out = np.full((p, scales.shape[1]), 127)
        for g in range(groups):
            out[32 * (g // 4) + g % 4] = scales[g]
        return out

    a = numbers[left] * 2.0 ** (np.repeat(up, 8, axis=0) - 127)[..., None]
    b = numbers[right] * 2.0 ** (np.repeat(down, 8, axis=0) - 127)[..., None]
    return Sample(
        lambda c, t: c.nc_matmul_mx(dst=t["r"], stationary=t["s"], moving=t["m"], stationary_scale=t["x"], moving_scale=t["y"]),
        {"s": (packed(left), kinds[0]), "m": (packed(right), kinds[0]), "x": (spread(up), "uint8"), "y": (spread(down), "uint8")},
        {"r": (np.einsum("kml,knl->mn", a, b), F32)}, psum=("r",),
    )  # fmt: skip


def quantize_mx(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    """Powers of two, of which a group's largest becomes 2^(E - 1) and the others keep their ratio to it."""
    power = rng.integers(-3, 4, (p, n))
    power.reshape(p // 8, 8, n // 4, 4)[:, 0, :, 0] = 4  # the largest of each group
    code = (np.clip(power - 4 + 7, -6, 8) + 7) << 3  # float8_e4m3fn: exponent bias 7, largest exponent 8, no mantissa
    packed = (code.reshape(p, n // 4, 4).astype(np.uint64) << (8 * np.arange(4, dtype=np.uint64))).sum(axis=2)
    scales = np.full((p, n // 4), 99)
    for g in range(p // 8):
        scales[32 * (g // 4) + g % 4] = 4 - 7 + 127
    return Sample(
        lambda c, t: c.quantize_mx(dst=t["r"], src=t["a"], dst_scale=t["x"]),
        {"a": (2.0**power, BF16), "x": (np.full((p, n // 4), 99), "uint8")}, {"r": (packed, "float8_e4m3fn_x4"), "x": (scales, "uint8")},
    )  # fmt: skip


def nc_transpose(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    a, kind = reals(rng, p, n, dtype=BF16), (F32, BF16)[k % 2]
    vector = p <= 32 and n <= 32 and k % 2 == 1
    return Sample(
        lambda c, t: c.nc_transpose(dst=t["r"], data=t["a"], engine="vector" if vector else "tensor"),
        {"a": (a, kind)}, {"r": (a.T, kind)}, psum=() if vector else ("r",),
    )  # fmt: skip


# --- DMA and registers -------------------------------------------------------------------------------------------------


def dma_copy(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    a, to = reals(rng, p, n), (F32, BF16, "float16")[k % 3]
    return Sample(lambda c, t: c.dma_copy(dst=t["r"], src=t["a.hbm"]), {"a": (a, F32)}, {"r": (a, to)})


def rows_found(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    a, at = reals(rng, 2 * p, n), rng.integers(0, 2 * p, (p, 1))
    wanted = np.array([a[i] for i in at[:, 0]])

    def call(c: Program, t: Tiles) -> None:
        c.dma_copy(dst=t["r"], src=t["a.hbm"].ap([[n, p], [1, n]], vector_offset=t["i"]))

    return Sample(call, {"a": (a, F32), "i": (at, U32)}, {"r": (wanted, F32)})


def dma_compute(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    a, b = wholes(rng, p, n), wholes(rng, p, n)
    many = (1, 15)[k % 2]
    return Sample(
        lambda c, t: c.dma_compute(dst=t["r"], srcs=[t["a.hbm"]] * many + [t["b"]], reduce_op="add"),
        {"a": (a, F32), "b": (b, F32)}, {"r": (many * a + b, F32)},
    )  # fmt: skip


def dma_transpose(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    a, kind = wholes(rng, p, n), (F32, BF16)[k % 2]
    return Sample(lambda c, t: c.dma_transpose(dst=t["r"], src=t["a.hbm"]), {"a": (a, kind)}, {"r": (a.T, kind)})


def registers(p: int, n: int, k: int, rng: np.random.Generator) -> Sample:
    number = (1, 127, 128, 2**31 - 1)[k % 4]

    def call(c: Program, t: Tiles) -> None:
        loaded, moved = c.register_alloc(), c.register_alloc(0)
        c.register_load(loaded, t["a"])
        c.register_move(moved, loaded)
        c.register_store(t["r"], moved)

    return Sample(call, {"a": (np.array([[number]]), I32)}, {"r": (np.array([[number]]), I32)})


# --- the table -------------------------------------------------------------------------------------------------------

GROUPS = ((16, 1), (112, 127), (128, 128), (16, 128))  # whole groups of GpSimd's 16 partitions
MX_ROWS = ((32, 1), (32, 127), (64, 128), (128, 128), (96, 127))
ONE = ((1, 1), (1, 127), (1, 128))
PLANES = ((1, 1), (127, 127), (128, 128), (1, 127), (127, 1), (128, 127))

CALLS: dict[str, list[Call]] = {
    "tensor_tensor": [Call(tensor_tensor, largest=[THREE]), Call(integers_on_gpsimd, largest=[THREE])],
    "tensor_scalar": [Call(tensor_scalar, largest=[TWO]), Call(bits_of_tensor_scalar, largest=[TWO])],
    "scalar_tensor_tensor": [Call(scalar_tensor_tensor, largest=[THREE])],
    "tensor_tensor_scan": [Call(tensor_tensor_scan, largest=[(1, 8192)])],
    "tensor_reduce": [Call(tensor_reduce, largest=[(1, 40_000)])],
    "tensor_copy": [Call(tensor_copy, largest=[TWO])],
    "reciprocal": [Call(reciprocal, largest=[TWO])],
    "memset": [Call(memset, largest=[(1, 40_000)])],
    "tensor_scalar_reduce": [Call(tensor_scalar_reduce, largest=[TWO])],
    "tensor_scalar_cumulative": [Call(tensor_scalar_cumulative, largest=[(1, 8192)])],
    "exponential": [Call(exponential, largest=[TWO], since=4)],
    "activation": [Call(activation, largest=[TWO])],
    "activation_reduce": [Call(lambda *a: activation(*a, call="activation_reduce"), largest=[TWO])],
    "activate2": [Call(activate2, largest=[TWO], since=4)],
    "tensor_copy_predicated": [Call(tensor_copy_predicated, largest=[(1, 10_000)])],
    "range_select": [Call(range_select, largest=[TWO], since=3)],
    "select_reduce": [Call(select_reduce, largest=[THREE])],
    "nc_stream_shuffle": [Call(nc_stream_shuffle, largest=[TWO])],
    "max8": [Call(max8, sizes=((1, 8), (127, 127), (128, 128), (128, 9)), largest=[(2, 16_384)])],
    "nc_find_index8": [Call(nc_find_index8, sizes=((1, 8), (127, 127), (128, 128), (128, 9)), largest=[(2, 16_384)])],
    "nc_match_replace8": [Call(nc_match_replace8, sizes=((1, 8), (127, 127), (128, 128), (128, 9)), largest=[(2, 16_384)])],
    "bn_stats": [Call(bn_stats, largest=[(128, 512), (1, 511)])],
    "bn_aggr": [Call(bn_aggr, largest=[(1, 5_000)])],
    "iota": [Call(iota, largest=[(1, 40_000)])],
    "affine_select": [Call(affine_select, largest=[TWO])],
    "nc_n_gather": [Call(nc_n_gather, largest=[(2, 513), (1, 10_000)])],
    "local_gather": [Call(local_gather, sizes=GROUPS, largest=[(16, 2400)])],
    "tensor_partition_reduce": [Call(tensor_partition_reduce, largest=[TWO])],
    "sequence_bounds": [Call(sequence_bounds, sizes=ONE, largest=[(1, 4_000)])],
    "nonzero_with_count": [Call(nonzero_with_count, largest=[TWO], since=3)],
    "topk": [Call(topk, sizes=((16, 8), (112, 127), (128, 128)), largest=[(16, 8_000)])],
    "rng": [Call(rng, largest=[(1, 16_384)])],
    "set_rng_seed": [Call(rng, sizes=ONE)],
    "dropout": [Call(dropout, largest=[(1, 16_384)])],
    "rand_set_state": [Call(gpsimd_state, largest=[(1, 16_384)], since=3)],
    "rand_get_state": [Call(gpsimd_state, sizes=ONE, since=3)],
    "rand2": [Call(rand2, largest=[(1, 16_384)], since=4)],
    "nc_matmul": [
        Call(nc_matmul, sizes=(*PLANES, (128, 512), (127, 511), (128, 1), (1, 512))),
        Call(sums_of_products, sizes=((1, 1), (127, 127), (128, 512))),
        Call(nc_matmul, sizes=(), largest=[(128, 4096)], since=4),
        Call(lambda *a: nc_matmul(*a, dtype=BF16), sizes=((127, 127),), largest=[(128, 8192)], since=4),
    ],
    "nc_matmul_mx": [Call(nc_matmul_mx, sizes=MX_ROWS, largest=[(128, 4096)], since=4)],
    "quantize_mx": [Call(quantize_mx, sizes=((32, 4), (96, 128), (128, 512)), largest=[(32, 20_000)], since=4)],
    "nc_transpose": [Call(nc_transpose, sizes=(*PLANES, (32, 32), (1, 1), (31, 32), (32, 1)))],
    "dma_copy": [Call(dma_copy, largest=[(1, 40_000)]), Call(rows_found, sizes=((1, 1), (127, 127), (128, 128)), largest=[(1, 20_000)])],
    "dma_compute": [Call(dma_compute, largest=[(1, 10_000)])],
    "dma_transpose": [Call(dma_transpose, sizes=((1, 1), (127, 127), (128, 128), (1, 128), (128, 1), (127, 1)), largest=[(2_000, 1)])],
    "register_alloc": [Call(registers, sizes=((1, 1),) * 4)],
    "register_load": [Call(registers, sizes=((1, 1),))],
    "register_move": [Call(registers, sizes=((1, 1),))],
    "register_store": [Call(registers, sizes=((1, 1),))],
}
# what is no call with values of its own: the test that has it, and a word of it
ELSEWHERE = {
    "core_barrier": ("test_signatures.py", "core_barrier"), "sendrecv": ("test_signatures.py", "sendrecv"),  # two cores do not run yet
    "loop_for": ("test_loops.py", "dynamic_range"), "loop_while": ("test_loops.py", "while_loop"), "loop_end": ("test_loops.py", "for "),
    "register_alu": ("test_registers.py", "register_alu"), "compare_branch": ("test_registers.py", "compare_branch"),
}  # fmt: skip
MADE_BY = {  # machine instructions, and a call that becomes them
    "activate": "activation", "act_read_accumulator": "activation", "act_table_load": "activation", "activate_tensor_scalar": "activate2",
    "gather": "nc_n_gather", "ldweights": "nc_matmul", "matmul": "nc_matmul", "ldweights_mode": "nc_matmul_mx",
    "matmul_mode": "nc_matmul_mx", "transpose": "nc_transpose", "dma_direct2d": "dma_copy", "dma_indirect": "dma_copy",
    "dma_compute2d": "dma_compute", "dma_transpose2d": "dma_transpose",
}  # fmt: skip
WITHOUT_VALUES = {"nop", "event_semaphore"}


def test_every_registered_instruction_has_an_entry() -> None:
    assert set(REGISTRY) == {*CALLS, *ELSEWHERE, *MADE_BY, *WITHOUT_VALUES}
    assert set(MADE_BY.values()) <= set(CALLS)
    for file, word in ELSEWHERE.values():
        assert word in (Path(__file__).parent / file).read_text()


@pytest.mark.parametrize("call", CALLS)
def test_sizes_1_127_128_are_among_those_of_each_call(call: str) -> None:
    sizes = [s for c in CALLS[call] for s in c.sizes]
    if not call.startswith("register"):
        assert any(128 in s for s in sizes)
        assert any(127 in s for s in sizes) or call == "quantize_mx"  # whose sizes are multiples of 32 and 4
        assert min(min(s) for s in sizes) in (1, 8, 32, 4)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_computes_its_formula(call: str, chip: str) -> None:
    samples: list[Sample] = []
    for entry in CALLS[call]:
        if CHIPS[chip] < entry.since:
            continue
        seed = np.random.default_rng(zlib.crc32(call.encode()))
        samples += [entry.make(p, n, k, seed) for k, (p, n) in enumerate((*entry.sizes, *entry.largest))]
    if samples:
        run(samples, chip)
        return
    entry = CALLS[call][0]
    with pytest.raises(Unsupported, match=f"NeuronCore-v{entry.since}"):
        run([entry.make(*entry.sizes[0], 0, np.random.default_rng(0))], chip)
