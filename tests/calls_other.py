"""Samples of calls on GpSimd, TensorE, by DMA, of random numbers and of registers, as in calls_vector."""

from __future__ import annotations

import numpy as np

from nc_sim import Program
from samples import BF16, F32, HOST, I32, U16, U32, Sample, Tiles, in_turn, reals, seeded, wholes, xorwow

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
    columns, kept = -(-n // 16), min(n // 2, 20_000)
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
        lambda c, t: c.topk(val_dst=t["v"], idx_dst=t["i"], src=t["a"], n=n),
        {"a": (a, BF16), **old},
        {"v": (values, BF16), "i": (places, U32)},
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
    return Sample(call, {"s": (words, U32), "v": (high, F32)}, {"r": (-2 + share * (high + 2), F32), "after": (after, U32)}, error=2**-20)


# --- TensorEngine: (rows of the array, columns of the result), as many stationary columns as rows ------------------------


def nc_matmul(p: int, n: int, k: int, rng: np.random.Generator, dtype: str = "") -> Sample:
    kind = dtype or (F32, BF16, "float16", "float8_e4m3")[k % 4]
    s, m = wholes(rng, p, p), wholes(rng, p, n)
    to = BF16 if dtype else F32
    return Sample(
        lambda c, t: c.nc_matmul(dst=t["r"], stationary=t["s"], moving=t["m"]),
        {"s": (s, kind), "m": (m, kind)},
        {"r": (s.T @ m, to)},
        psum=("r",),
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
