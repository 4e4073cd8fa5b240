"""quantize_mx and nc_matmul_mx against loops over groups in plain Python; layout of scales, who is refused, and what they cost."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from newer import newer

from nc_sim import Program, ProgramError, Unspecified, Unsupported, simulate
from nc_sim.isa import View
from tiles import tile

LANES = {
    "float8_e4m3fn_x4": ml_dtypes.float8_e4m3fn, "float8_e5m2_x4": ml_dtypes.float8_e5m2, "float4_e2m1fn_x4": ml_dtypes.float4_e2m1fn,
}  # fmt: skip
LARGEST = {"float8_e4m3fn_x4": 8, "float8_e5m2_x4": 15}  # exponent, nki.isa.quantize_mx
E4, E5, FP4 = LANES


def lanes_of(word: int, dtype: str) -> list[float]:
    """The four numbers of a packed element, the first in the lowest bits."""
    bits = 4 if dtype == FP4 else 8
    codes = np.array([(word >> (bits * k)) & ((1 << bits) - 1) for k in range(4)], np.uint8)
    return codes.view(LANES[dtype]).astype(float).tolist()


def quantised(x: np.ndarray, dtype: str, source: str = "bfloat16", scale: str = "uint8", start: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Packed elements and scales; the scales' tile holds 99 before."""
    p = Program()
    partitions, n = x.shape
    t, d, s = p.sbuf(x.shape, source), p.sbuf((partitions, n // 4), dtype), p.sbuf((128, n // 4), scale)
    p.dma_copy(dst=t, src=p.input("x", x.shape, source))
    p.memset(dst=s.with_dtype("uint8"), value=99)
    p.quantize_mx(dst=d, src=t, dst_scale=s[start : start + max(4, partitions - start)])
    p.dma_copy(dst=p.output("d", d.shape, dtype), src=d)
    p.dma_copy(dst=p.output("s", s.shape, scale), src=s)
    out = simulate(p, newer(), inputs={"x": x}).outputs
    return out["d"], out["s"].view(np.uint8)


@pytest.mark.parametrize("dtype", [E4, E5])
@pytest.mark.parametrize("source", ["bfloat16", "float16"])
@pytest.mark.parametrize(("partitions", "n"), [(32, 4), (32, 508), (64, 512), (128, 2048)])
def test_groups_of_32_share_a_power_of_two(partitions: int, n: int, source: str, dtype: str) -> None:
    rng = np.random.default_rng(n)
    host = np.dtype(ml_dtypes.bfloat16) if source == "bfloat16" else np.dtype(np.float16)
    x = (rng.uniform(-1, 1, (partitions, n)) * 2.0 ** rng.integers(-10, 10, (partitions, 1))).astype(host)
    x[:8, :4] = 0
    data, scales = quantised(x, dtype, source)
    assert data.shape == (partitions, n // 4)
    for group in range(0, partitions // 8, 3):
        for column in range(0, n // 4, 50):
            part = x[8 * group : 8 * group + 8, 4 * column : 4 * column + 4].astype(float)
            most = np.abs(part).max()
            exponent = math.floor(math.log2(most)) - (LARGEST[dtype] - 1) if most else -127
            assert scales[group // 4 * 32 + group % 4, column] == exponent + 127
            wanted = (part / 2.0**exponent).astype(np.float32).astype(LANES[dtype]).astype(float)
            got = [lanes_of(int(data[8 * group + r, column]), dtype) for r in range(8)]
            assert got == wanted.tolist()
            assert np.abs(wanted).max() <= 2.0 ** LARGEST[dtype]  # the largest number of the type is 1.75 times that


def test_scales_stand_where_they_are_asked_to_and_the_rest_of_the_tile_stays() -> None:
    x = np.ones((128, 8), ml_dtypes.bfloat16)
    for start in (0, 4, 8, 12):
        _, scales = quantised(x, E4, start=start)
        rows = [32 * q + start + k for q in range(4) for k in range(4)]
        assert (scales[rows] == 127 - 7).all()  # 2^(0 - (8 - 1))
        assert (np.delete(scales, rows, axis=0) == 99).all()


def test_the_two_types_of_scales_hold_the_same_bytes_and_extremes_stay_in_their_range() -> None:
    x = np.full((32, 8), 2.0**127, ml_dtypes.bfloat16)
    x[:, 4:] = 2.0**-133
    assert np.array_equal(quantised(x, E5, scale="uint8")[1], quantised(x, E5, scale="float8_e8m0fnu")[1])
    _, scales = quantised(x, E5)
    assert scales[0].tolist() == [127 + 127 - 14, 0]


def test_a_tile_of_scales_need_not_have_been_written() -> None:
    p = Program()
    d, s = p.sbuf((64, 2), E4), p.sbuf((64, 2), "uint8")
    p.quantize_mx(dst=d, src=tile(p, (64, 8), "bfloat16"), dst_scale=s)
    p.dma_copy(dst=p.output("s", (64, 2), "uint8"), src=s)
    assert simulate(p, newer()).outputs["s"][32].tolist() == [120, 120]


def test_the_scale_of_inf_is_not_said() -> None:
    x = np.full((32, 4), math.inf, ml_dtypes.bfloat16)
    with pytest.raises(Unspecified, match="inf or NaN in src; finite numbers: their scale is not said"):
        quantised(x, E4)


# --- nc_matmul_mx ----------------------------------------------------------------------------------------------------


def packed(rng: np.random.Generator, shape: tuple[int, int], dtype: str) -> np.ndarray:
    """Random packed bits without NaN and inf."""
    words = np.zeros(shape, np.uint64)
    for k in range(4):
        codes = rng.uniform(-3, 3, shape).astype(LANES[dtype]).view(np.uint8).astype(np.uint64)
        words |= codes << np.uint64(k * (4 if dtype == FP4 else 8))
    return words.astype(np.uint16 if dtype == FP4 else np.uint32)


def product(
    s: np.ndarray, m: np.ndarray, ss: np.ndarray, ms: np.ndarray, kinds: tuple[str, str], result: str = "float32", twice: bool = False,
    **how: Any,
) -> np.ndarray:  # fmt: skip
    p = Program()
    tiles: dict[str, View] = {}
    for name, array, dtype in (("s", s, kinds[0]), ("m", m, kinds[1]), ("ss", ss, "uint8"), ("ms", ms, "uint8")):
        tiles[name] = p.sbuf(array.shape, dtype)
        p.dma_copy(dst=tiles[name], src=p.input(name, array.shape, dtype))
    shape = (s.shape[1], m.shape[1])
    d, out = p.psum(shape, result), p.sbuf(shape, result)
    for _ in range(1 + twice):
        p.nc_matmul_mx(
            dst=d, stationary=tiles["s"], moving=tiles["m"], stationary_scale=tiles["ss"], moving_scale=tiles["ms"], **how
        )  # fmt: skip
    for half in (slice(0, -(-shape[1] // 2)), slice(-(-shape[1] // 2), None)) if shape[1] > 1 else (slice(None),):  # at most 4096 elements
        p.tensor_copy(dst=out[:, half], src=d[:, half])
    p.dma_copy(dst=p.output("d", shape, result), src=out)
    return simulate(p, newer(), inputs={"s": s, "m": m, "ss": ss, "ms": ms}).outputs["d"]


@pytest.mark.parametrize("kinds", [(E4, E4), (E5, E4), (FP4, E5), (FP4, FP4)])
@pytest.mark.parametrize(("partitions", "m", "n"), [(32, 2, 1), (64, 126, 127), (128, 128, 128), (128, 128, 512)])
def test_a_product_of_scaled_numbers(partitions: int, m: int, n: int, kinds: tuple[str, str]) -> None:
    rng = np.random.default_rng(n)
    s, x = packed(rng, (partitions, m), kinds[0]), packed(rng, (partitions, n), kinds[1])
    small = partitions == 32
    ss, xs = (rng.integers(124, 131, (partitions // 8 if small else partitions, k)).astype(np.uint8) for k in (m, n))
    got = product(s, x, ss, xs, kinds)
    for i, j in [(0, 0), (m - 1, n - 1), (m // 2, n // 3)]:
        total = 0.0
        for p in range(partitions):
            group = p // 8 % 4 + p // 32 * 32
            scale = 2.0 ** (int(ss[group, i]) - 127) * 2.0 ** (int(xs[group, j]) - 127)
            a, b = lanes_of(int(s[p, i]), kinds[0]), lanes_of(int(x[p, j]), kinds[1])
            total += sum(u * v for u, v in zip(a, b, strict=True)) * scale
        assert got[i, j] == pytest.approx(total, rel=1e-5, abs=1e-4)


def test_quantised_matrices_multiply_back_to_the_product_of_what_they_hold() -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-4, 5, (128, 4 * k)).astype(ml_dtypes.bfloat16) for k in (16, 64))  # exact in fp8
    p = Program()
    both = []
    for name, x in (("a", a), ("b", b)):
        t, d, s = p.sbuf(x.shape, "bfloat16"), p.sbuf((128, x.shape[1] // 4), E4), p.sbuf((128, x.shape[1] // 4), "float8_e8m0fnu")
        p.dma_copy(dst=t, src=p.input(name, x.shape, "bfloat16"))
        p.quantize_mx(dst=d, src=t, dst_scale=s)
        both.append((d, s))
    r, out = p.psum((16, 64), "bfloat16"), p.sbuf((16, 64), "bfloat16")
    p.nc_matmul_mx(dst=r, stationary=both[0][0], stationary_scale=both[0][1], moving=both[1][0], moving_scale=both[1][1])
    p.tensor_copy(dst=out, src=r)
    p.dma_copy(dst=p.output("d", (16, 64), "bfloat16"), src=out)
    got = simulate(p, newer(), inputs={"a": a, "b": b}).outputs["d"].astype(float)
    wanted = np.einsum("kiq,kjq->ij", a.astype(float).reshape(128, 16, 4), b.astype(float).reshape(128, 64, 4))
    assert got.tolist() == wanted.astype(ml_dtypes.bfloat16).astype(float).tolist()


@pytest.mark.parametrize(("result", "n"), [("float32", 4096), ("bfloat16", 8192)])
def test_the_longest_rows_fill_all_of_psum_and_add_up(result: str, n: int) -> None:
    rng = np.random.default_rng(n)
    s, x = packed(rng, (32, 2), FP4), packed(rng, (32, n), FP4)
    scales = np.full((4, 2), 127, np.uint8), np.full((4, n), 127, np.uint8)
    once = product(s, x, *scales, (FP4, FP4), result).astype(float)
    assert product(s, x, *scales, (FP4, FP4), result, twice=True).astype(float).tolist() == (2 * once).tolist()


def test_tiles_of_rows_change_no_value() -> None:
    rng = np.random.default_rng(1)
    s, x = packed(rng, (64, 8), E4), packed(rng, (64, 8), E4)
    scales = np.full((64, 8), 127, np.uint8)
    plain = product(s, x, scales, scales, (E4, E4))
    assert np.array_equal(plain, product(s, x, scales, scales, (E4, E4), tile_position=(64, 0), tile_size=(64, 128)))


# --- refusals and costs ----------------------------------------------------------------------------------------------

QUANTISE: dict[str, Any] = {"dst": ((64, 8), E4), "src": ((64, 32), "bfloat16"), "dst_scale": ((64, 8), "uint8")}
MULTIPLY: dict[str, Any] = {
    "dst": ((16, 8), "float32"), "stationary": ((64, 16), E4), "moving": ((64, 8), FP4), "stationary_scale": ((64, 16), "uint8"),
    "moving_scale": ((64, 8), "uint8"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("call", "changes", "message"),
    [
        ("quantize_mx", {"src": ((64, 32), "float32")}, r"src is float32; float16 or bfloat16 \(nki\.isa\.quantize_mx\)"),
        ("quantize_mx", {"dst": ((64, 8), FP4)}, "dst is float4_e2m1fn_x4; float8_e5m2_x4 or float8_e4m3fn_x4"),
        ("quantize_mx", {"src": ((48, 32), "bfloat16")}, "src has 48 partitions; a multiple of 32"),
        ("quantize_mx", {"src": ((64, 30), "bfloat16")}, "src has 30 elements per partition; a multiple of 4"),
        ("quantize_mx", {"dst": ((32, 8), E4)}, "dst has 32 partitions, src has 64"),
        ("quantize_mx", {"dst": ((64, 7), E4)}, "dst has 7 elements per partition; 8"),
        ("quantize_mx", {"dst_scale": ((64, 7), "uint8")}, "dst_scale has 7 elements per partition; 8, one for each of dst's"),
        ("quantize_mx", {"dst_scale": ((64, 8), "int8")}, "dst_scale is int8; float8_e8m0fnu or uint8"),
        ("quantize_mx", {"dst_scale": ((35, 8), "uint8")}, "dst_scale has 35 partitions; 36 to 64 for dst's 64"),
        ("quantize_mx", {"dst_scale": ((96, 8), "uint8")}, "dst_scale has 96 partitions; 36 to 64"),
        ("nc_matmul_mx", {"stationary": ((64, 16), "uint32")}, "stationary is uint32; one of float8_e5m2_x4"),
        ("nc_matmul_mx", {"moving": ((64, 8), "bfloat16")}, "moving is bfloat16; one of float8_e5m2_x4"),
        ("nc_matmul_mx", {"moving": ((32, 8), FP4)}, "stationary has 64 partitions, moving has 32; they must match"),
        ("nc_matmul_mx", {"stationary": ((48, 16), E4), "moving": ((48, 8), E4)}, "stationary has 48 partitions; a multiple of 32"),
        ("nc_matmul_mx", {"stationary": ((64, 15), E4)}, "15 stationary columns; an even number, at most 128"),
        ("nc_matmul_mx", {"stationary": ((64, 130), E4)}, "130 stationary columns; an even number, at most 128"),
        ("nc_matmul_mx", {"dst": ((8, 8), "float32")}, "dst has 8 partitions; 16, one per stationary column"),
        ("nc_matmul_mx", {"dst": ((16, 9), "float32")}, "dst has 9 elements per partition; 8, as moving"),
        ("nc_matmul_mx", {"dst": ((16, 8), "float16")}, "dst is float16; float32, or bfloat16 on NeuronCore-v4"),
        ("nc_matmul_mx", {"moving_scale": ((64, 9), "uint8")}, "moving_scale has 9 elements per partition; 8"),
        ("nc_matmul_mx", {"stationary_scale": ((8, 16), "uint8")}, "stationary_scale has 8 partitions; 36 to 64"),
        ("nc_matmul_mx", {"tile_position": (0, 0)}, r"tile_position=\(0, 0\), tile_size=\(\); both, or neither"),
        ("nc_matmul_mx", {"tile_position": (0, 64), "tile_size": (64, 64)}, "tiles of rows, with all 128 columns"),
        ("nc_matmul_mx", {"tile_position": (32, 0), "tile_size": (32, 128)}, "64 rows of the stationary operand; at most 32"),
    ],
)
def test_refused(call: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        made(Program(), call, changes)


def made(p: Program, call: str, changes: dict[str, Any]) -> None:
    usual = QUANTISE if call == "quantize_mx" else MULTIPLY
    tiles = {}
    for name, v in {**usual, **changes}.items():
        psum = name == "dst" and call == "nc_matmul_mx"
        tiles[name] = ((p.psum if psum else p.sbuf)(*v)) if isinstance(v[-1], str) else v
    getattr(p, call)(**tiles)


def test_everything_but_the_result_is_in_sbuf() -> None:
    p = Program()
    psum = p.psum((64, 8), "uint8")
    with pytest.raises(ProgramError, match="dst_scale is in PSUM; SBUF"):
        p.quantize_mx(dst=p.sbuf((64, 8), E4), src=p.sbuf((64, 32), "bfloat16"), dst_scale=psum)
    with pytest.raises(ProgramError, match="src is in PSUM; SBUF"):
        p.quantize_mx(dst=p.sbuf((64, 8), E4), src=p.psum((64, 32), "bfloat16"), dst_scale=p.sbuf((64, 8), "uint8"))
    scales, low = p.sbuf((128, 8), "uint8"), p.sbuf((128, 8), E4)
    with pytest.raises(ProgramError, match="dst is in SBUF; the result is written to PSUM"):
        p.nc_matmul_mx(dst=p.sbuf((8, 8), "float32"), stationary=low, moving=low, stationary_scale=scales, moving_scale=scales)


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (2, "dst_scale starts at partition 2; one of 0, 4, 8, 12 of a quadrant"),
        (32, "dst_scale starts at partition 32; the quadrant in which"),
    ],
)
def test_scales_start_where_their_quadrant_lets_them(first: int, message: str) -> None:
    p = Program()
    scales, data = p.sbuf((128, 8), "uint8"), tile(p, (32, 32), "bfloat16")
    p.quantize_mx(dst=p.sbuf((32, 8), E4), src=data, dst_scale=scales[first : first + 4])
    with pytest.raises(ProgramError, match=message):
        simulate(p, newer())


def test_older_chips_have_no_mx() -> None:
    p = Program()
    made(p, "quantize_mx", {"src": ((64, 32), "bfloat16")})
    q = Program()
    made(q, "nc_matmul_mx", {})
    for program, match in ((p, "quantize_mx on Vector of trn2; NeuronCore-v4"), (q, "MX products on this chip; NeuronCore-v4 or newer")):
        with pytest.raises(Unsupported, match=match):
            simulate(program, values=False)


def test_mx_costs() -> None:
    # quantize_mx: 4 elements a cycle (trainium3_arch.rst); a product over 4 K numbers streams as long as one over K in bf16 (the same)
    p = Program()
    d, s = p.sbuf((128, 512), E4), p.sbuf((128, 512), "uint8")
    p.quantize_mx(dst=d, src=tile(p, (128, 2048), "bfloat16"), dst_scale=s)
    p.nc_matmul_mx(dst=p.psum((128, 512)), stationary=d[:, :128], stationary_scale=s[:, :128], moving=d, moving_scale=s)
    x = tile(p, (128, 512), "bfloat16")
    p.nc_matmul(dst=p.psum((128, 512)), stationary=x[:, :128], moving=x)
    result = simulate(p, newer(), values=False)
    (quantising,) = [i.duration_ns for i in result.instructions if i.opcode == "QUANTIZE_MX"]
    assert quantising == pytest.approx(125 + 512 / 0.96, abs=0.25)
    mx, plain = (s.instruction.work() for s in result.steps if s.instruction.opcode == "MATMUL")
    assert (mx.elements, mx.macs) == (plain.elements, 4 * plain.macs)
    work = result.table.work[result.table.work > 0].tolist()
    assert work[0] == work[1]
