"""nc_matmul's other modes: fp8 double rows, tiles of the array, results in bfloat16, the OCP fp8 type."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from newer import newer

from nc_sim import Program, ProgramError, Unsupported, chip, simulate
from nc_sim.isa import View
from tiles import tile

HOST = {
    "float8_e4m3": ml_dtypes.float8_e4m3, "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2,
    "bfloat16": ml_dtypes.bfloat16, "float32": np.float32,
}  # fmt: skip


def product(
    s: np.ndarray, m: np.ndarray, kinds: tuple[str, str], shape: tuple[int, int], on: Any = "trn2", result: str = "float32", **how: Any
) -> np.ndarray:
    p = Program()
    tiles: list[View] = []
    for name, array, dtype in (("s", s, kinds[0]), ("m", m, kinds[1])):
        tiles.append(p.sbuf(array.shape, dtype))
        p.dma_copy(dst=tiles[-1], src=p.input(name, array.shape, dtype))
    d, out = p.psum(shape, result), p.sbuf(shape, result)
    p.nc_matmul(dst=d, stationary=tiles[0], moving=tiles[1], **how)
    p.tensor_copy(dst=out, src=d)
    p.dma_copy(dst=p.output("d", shape, result), src=out)
    return simulate(p, on, inputs={"s": s, "m": m}).outputs["d"]


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.random.default_rng(shape[-1]).integers(-8, 9, shape).astype(HOST[dtype])


@pytest.mark.parametrize("kinds", [("float8_e4m3", "float8_e4m3"), ("float8_e5m2", "float8_e4m3")])
@pytest.mark.parametrize(("k", "m", "n"), [(1, 1, 1), (127, 127, 127), (128, 128, 128), (128, 128, 512)])
def test_double_rows_contract_over_partitions_and_the_first_free_dimension(k: int, m: int, n: int, kinds: tuple[str, str]) -> None:
    s, x = numbers((k, 2, m), kinds[0]), numbers((k, 2, n), kinds[1])
    got = product(s, x, kinds, (m, n), perf_mode="double_row")
    wanted = np.einsum("kri,krj->ij", s.astype(float), x.astype(float))
    assert got.tolist() == wanted.tolist()


def test_double_rows_take_no_longer_than_half_the_work_in_bfloat16() -> None:
    # trainium2_arch.rst, Double FP8: the same time as LoadStationary and MultiplyMoving over half the contraction
    p = Program()
    x, y = tile(p, (128, 1024), "float8_e4m3").reshape(128, 2, 512), tile(p, (128, 512), "bfloat16")
    p.nc_matmul(dst=p.psum((128, 512)), stationary=x[:, :, :128], moving=x, perf_mode="double_row")
    p.nc_matmul(dst=p.psum((128, 512)), stationary=y[:, :128], moving=y)
    result = simulate(p, values=False)
    assert [i.opcode for i in result.instructions if i.engine == "Tensor"] == ["LDWEIGHTS", "MATMUL"] * 2
    double, single = (i for i in result.steps if i.instruction.opcode == "MATMUL")
    assert double.instruction.work().macs == 2 * single.instruction.work().macs
    work = result.table.work[result.table.work > 0].tolist()
    assert work[0] == work[1]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize(
    ("position", "size", "k", "m"),
    [((0, 0), (32, 32), 32, 32), ((96, 64), (32, 64), 7, 63), ((64, 0), (64, 128), 64, 128), ((0, 96), (128, 32), 128, 1)],
)
def test_a_tile_of_the_array_changes_no_value(position: tuple[int, int], size: tuple[int, int], k: int, m: int, dtype: str) -> None:
    s, x = numbers((k, m), dtype), numbers((k, 100), dtype)
    got = product(s, x, (dtype, dtype), (m, 100), tile_position=position, tile_size=size)
    assert got.tolist() == (s.astype(float).T @ x.astype(float)).tolist()


def test_tiles_follow_each_other_unless_a_what_if_says_otherwise() -> None:
    p = Program()
    x = tile(p, (64, 512), "bfloat16")
    for row in (0, 64):
        p.nc_matmul(dst=p.psum((128, 512)), stationary=x[:, :128], moving=x, tile_position=(row, 0), tile_size=(64, 128))
    result = simulate(p, values=False)
    assert "tensor.tile_ratio" in result.assumed
    halved = simulate(p, values=False, what_if={"tensor.tile_ratio": "1/2"})
    assert (2 * halved.table.work).tolist() == result.table.work.tolist()


@pytest.mark.parametrize(("k", "m", "n"), [(128, 128, 512), (3, 1, 127)])
def test_newer_chips_write_results_as_bfloat16(k: int, m: int, n: int) -> None:
    s, x = numbers((k, m), "bfloat16"), numbers((k, n), "bfloat16")
    got = product(s, x, ("bfloat16", "bfloat16"), (m, n), newer(), "bfloat16").astype(float)
    wanted = (s.astype(float).T @ x.astype(float)).astype(ml_dtypes.bfloat16).astype(float)
    assert got.tolist() == wanted.tolist()


@pytest.mark.parametrize("n", [513, 4096])
def test_newer_chips_fill_several_banks(n: int) -> None:
    s, x = numbers((4, 8), "bfloat16"), numbers((4, n), "bfloat16")
    got = product(s, x, ("bfloat16", "bfloat16"), (8, n), newer())
    assert got.tolist() == (s.astype(float).T @ x.astype(float)).tolist()
    with pytest.raises(ProgramError, match="one bank of 2048 bytes per partition"):
        product(s, x, ("bfloat16", "bfloat16"), (8, n))


def test_newer_chips_multiply_the_ocp_type() -> None:
    s, x = numbers((4, 8), "float8_e4m3fn"), numbers((4, 9), "float8_e4m3fn")
    got = product(s, x, ("float8_e4m3fn", "float8_e4m3fn"), (8, 9), newer())
    assert got.tolist() == (s.astype(float).T @ x.astype(float)).tolist()
    with pytest.raises(Unsupported, match="dst is float8_e4m3fn on trn2; a chip that has it: NeuronCore-v4 and later"):
        product(s, x, ("float8_e4m3fn", "float8_e4m3fn"), (8, 9))
    with pytest.raises(ProgramError, match="float8_e4m3 and float8_e4m3fn; one of the two formats in one product"):
        product(s.astype(ml_dtypes.float8_e4m3), x, ("float8_e4m3", "float8_e4m3fn"), (8, 9), newer())
    with pytest.raises(Unsupported, match="a bfloat16 result; float32, or NeuronCore-v4 or newer"):
        product(numbers((4, 8), "bfloat16"), numbers((4, 9), "bfloat16"), ("bfloat16", "bfloat16"), (8, 9), result="bfloat16")


ROW = {"perf_mode": "double_row"}


@pytest.mark.parametrize(
    ("stationary", "moving", "dst", "how", "message"),
    [
        ((4, 2, 8), (4, 16), (8, 8), ROW, r"moving is \[4, 16\] with perf_mode=double_row; \[K, 2, \.\.\.\]"),
        ((4, 8, 2), (4, 2, 8), (8, 8), ROW, r"stationary is \[4, 8, 2\] with perf_mode=double_row"),
        ((4, 2, 8), (4, 2, 8), (8, 16), ROW, "dst has 16 elements per partition; 8, half of moving's"),
        ((4, 2, 8), (4, 2, 8), (16, 8), ROW, "dst has 16 partitions; 8, one per stationary column"),
        ((4, 2, 8), (4, 2, 8), (8, 8), {**ROW, "is_transpose": True}, "is_transpose with perf_mode=double_row; one of the two"),
        ((4, 2, 8), (4, 2, 8), (8, 8), {**ROW, "tile_position": (0, 0), "tile_size": (128, 64)}, "it does not go with column tiles"),
        ((4, 8), (4, 8), (8, 8), {"perf_mode": "double_pixel"}, "perf_mode: 'double_pixel'; one of none, double_row"),
        ((4, 8), (4, 8), (8, 8), {"tile_size": (32, 32)}, r"tile_position=\(\), tile_size=\(32, 32\); both, or neither"),
        ((4, 8), (4, 8), (8, 8), {"tile_position": (0, 0), "tile_size": (16, 32)}, "a row size of 16; 32, 64 or 128"),
        ((4, 8), (4, 8), (8, 8), {"tile_position": (16, 0), "tile_size": (32, 32)}, "a start row of 16 with tiles of 32; a multiple of 32"),
        ((4, 8), (4, 8), (8, 8), {"tile_position": (0, 128), "tile_size": (32, 64)}, "a start column of 128 with tiles of 64"),
        ((33, 8), (33, 8), (8, 8), {"tile_position": (0, 0), "tile_size": (32, 32)}, "33 rows of the stationary operand; at most 32"),
        ((4, 33), (4, 8), (33, 8), {"tile_position": (0, 0), "tile_size": (32, 32)}, "33 columns of the stationary operand; at most 32"),
        ((4, 8), (4, 8), (8, 8), {"tile_position": 3, "tile_size": (32, 32)}, r"tile_position: 3; \(rows, columns\), whole numbers"),
        ((4, 8), (4, 8), (8, 8), {"tile_position": (1, 2, 3)}, r"tile_position: \(1, 2, 3\); \(rows, columns\), or \(\) for none"),
    ],
)
def test_refused(stationary: tuple[int, ...], moving: tuple[int, ...], dst: tuple[int, int], how: dict[str, Any], message: str) -> None:
    p = Program()
    with pytest.raises(ProgramError, match=message):
        p.nc_matmul(dst=p.psum(dst), stationary=p.sbuf(stationary, "float8_e4m3"), moving=p.sbuf(moving, "float8_e4m3"), **how)


def test_double_rows_are_of_fp8() -> None:
    p = Program()
    x = p.sbuf((4, 2, 8), "bfloat16")
    with pytest.raises(ProgramError, match="stationary is bfloat16 with perf_mode=double_row; one of float8_e4m3"):
        p.nc_matmul(dst=p.psum((8, 8)), stationary=x, moving=x, perf_mode="double_row")


@pytest.mark.parametrize(
    ("what_if", "how", "message"),
    [
        ({"tensor.double_row": False}, ROW, "perf_mode=double_row; NeuronCore-v3 or newer"),
        ({"tensor.smallest_tile": 64}, {"tile_position": (0, 0), "tile_size": (32, 64)}, "a tile of 32x64; at least 64 rows and columns"),
    ],
)
def test_what_an_older_array_lacks(what_if: dict[str, Any], how: dict[str, Any], message: str) -> None:
    p = Program()
    x = tile(p, (4, 16), "float8_e4m3").reshape(4, 2, 8)
    x = x if how is ROW else x[:, 0]
    p.nc_matmul(dst=p.psum((8, 8)), stationary=x, moving=x, **how)
    simulate(p)
    with pytest.raises(Unsupported, match=message):
        simulate(p, chip.load("trn2", what_if))
