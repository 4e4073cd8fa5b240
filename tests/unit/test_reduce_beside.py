"""tensor_scalar_reduce against numpy in float64: the elementwise result, and its reduction beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nc_sim import Program, ProgramError, simulate
from tiles import Tiles, computed, tile


def rows(partitions: int, n: int) -> np.ndarray:
    return np.random.default_rng(n).uniform(0.99, 1.01, (partitions, n)).astype(np.float32)


def reduced(x: np.ndarray, dtype: str = "float32", psum: tuple[str, ...] = (), **how: Any) -> dict[str, np.ndarray]:
    def build(p: Program, t: Tiles) -> None:
        p.tensor_scalar_reduce(dst=t["r"], data=t["x"], reduce_res=t["m"], **{k: t["v"] if v == "vector" else v for k, v in how.items()})

    inputs = {"x": (x, "float32"), "v": (x[:, :1] + 1, "float32")}
    return computed(build, inputs, {"r": (x.shape, dtype), "m": ((x.shape[0], 1), "float32")}, psum)


@pytest.mark.parametrize(("reduce_op", "formula"), [("add", np.sum), (np.multiply, np.prod), ("max", np.max), (np.min, np.min)])
@pytest.mark.parametrize("psum", [(), ("x",), ("r", "m")])
@pytest.mark.parametrize(("partitions", "n"), [(128, 1), (1, 127), (127, 128), (128, 1000)])
def test_a_reduction_of_the_result_stands_beside_it(partitions: int, n: int, psum: tuple[str, ...], reduce_op: Any, formula: Any) -> None:
    x = rows(partitions, n)
    wide = x.astype(np.float64)
    got = reduced(x, psum=psum, op0="subtract", operand0="vector", reduce_op=reduce_op)
    wanted = wide - (x[:, :1] + np.float32(1)).astype(np.float64)
    np.testing.assert_allclose(got["r"], wanted, rtol=2**-20, atol=2**-20)
    np.testing.assert_allclose(got["m"], formula(wanted, axis=1, keepdims=True), rtol=2**-12, atol=2**-14)


def test_the_longest_rows_that_fit_are_added_and_negated() -> None:
    x = np.ones((2, 16384), np.float32)
    got = reduced(x, op0="multiply", operand0=3.0, reduce_op="add", reduce_res_negate=True)
    assert (got["r"] == 3).all()
    assert got["m"].tolist() == [[-3 * 16384]] * 2


def test_the_reduction_is_of_float32_over_all_free_dimensions_and_unary_operators_count() -> None:
    x = np.array([[-256, -1, -1, -1]], np.float32)

    def build(p: Program, t: Tiles) -> None:
        two = {n: t[n].reshape(1, 2, 2) for n in ("r", "x")}
        p.tensor_scalar_reduce(dst=two["r"], data=two["x"], op0="abs", operand0=None, reduce_op="add", reduce_res=t["m"])

    got = computed(build, {"x": (x, "float32")}, {"r": ((1, 4), "bfloat16"), "m": ((1, 1), "float32")})
    assert got["r"].astype(np.float32).tolist() == [[256, 1, 1, 1]]
    assert got["m"].tolist() == [[259]]


def test_without_a_place_for_it_the_reduction_is_dropped() -> None:
    got = computed(
        lambda p, t: p.tensor_scalar_reduce(dst=t["r"], data=t["x"], op0="add", operand0=1.0, reduce_op="max"),
        {"x": (np.zeros((2, 3), np.float32), "float32")},
        {"r": ((2, 3), "float32")},
    )
    assert got["r"].tolist() == [[1] * 3] * 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dst": (4, 7)}, r"data has 8 elements per partition, dst has 7; they must match \(nki\.isa\.tensor_scalar_reduce\)"),
        ({"dst": (3, 8)}, "data has 4 partitions, dst has 3"),
        ({"op0": "bitwise_and", "operand0": 1}, "op0=bitwise_and; an arithmetic operator"),
        ({"operand0": None}, r"no operand0 for multiply; a number or a \[P, 1\] view"),
        ({"op0": "abs", "operand0": 2.0}, "operand0=2.0 with unary abs; None or 0"),
        ({"operand0": (3, 1)}, "operand0 has 3 partitions, data has 4"),
        ({"reduce_op": "subtract"}, "reduce_op=subtract; one of add, multiply, maximum, minimum"),
        ({"reduce_res": (4, 2)}, r"reduce_res is \[4, 2\]; \[4, 1\]"),
        ({"reduce_res": (3, 1)}, r"reduce_res is \[3, 1\]; \[4, 1\]"),
        ({"engine": "gpsimd"}, "engine gpsimd; one of vector"),
    ],
)
def test_a_reduction_beside_refuses(changes: dict[str, Any], message: str) -> None:
    p = Program()
    usual = {"dst": (4, 8), "data": (4, 8), "op0": "multiply", "operand0": 2.0, "reduce_op": "add", "reduce_res": (4, 1)}
    with pytest.raises(ProgramError, match=message):
        p.tensor_scalar_reduce(**{n: p.sbuf(v, "float32") if isinstance(v, tuple) else v for n, v in {**usual, **changes}.items()})


def test_a_vector_of_operands_is_float32_and_nothing_is_in_hbm() -> None:
    p = Program()
    t, v, x = p.sbuf((4, 8), "float32"), p.sbuf((4, 1), "bfloat16"), p.input("x", (4, 8), "float32")
    with pytest.raises(ProgramError, match="operand0 is bfloat16; a float32 vector"):
        p.tensor_scalar_reduce(dst=t, data=t, op0="add", operand0=v, reduce_op="add")
    with pytest.raises(ProgramError, match="data is in HBM"):
        p.tensor_scalar_reduce(dst=t, data=x, op0="add", operand0=1.0, reduce_op="add")


def test_it_takes_64_cycles_over_one_an_element() -> None:
    # SDK 2.26, nki.isa: max(64, N) + 64 cycles, carried over; 152 ns as tensor_scalar's, assumed; 60 ns for a [P, 1] operand
    p = Program()
    t, one = tile(p, (128, 512)), tile(p, (128, 1))
    for operand in (2.0, one):
        p.tensor_scalar_reduce(dst=t, data=t, op0="add", operand0=operand, reduce_op="add", reduce_res=one)
    result = simulate(p, values=False)
    took = [i.duration_ns for i in result.instructions if i.opcode == "TENSOR_SCALAR_REDUCE"]
    assert took == pytest.approx([152 + (512 + 64) / 0.96, 152 + 60 + (512 + 64) / 0.96], abs=0.25)
    assert "vector.reduce_ns" in result.assumed
