"""activate2 against loops over elements in float64; its accumulator, who is refused, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from newer import newer

from nc_sim import Program, ProgramError, Unsupported, simulate
from tiles import Tiles, computed, tile

SIZES = [(128, 1), (1, 127), (127, 128), (2, 8192)]
PAIRS = [
    ("multiply", "add"), ("multiply", "subtract"), ("multiply", "bypass"), ("add", "bypass"), ("subtract", "bypass"), ("bypass", "bypass"),
]  # fmt: skip
DO: dict[str, Callable[[float, float], float]] = {
    "multiply": lambda a, b: a * b, "add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "bypass": lambda a, b: a,
}  # fmt: skip


def rows(partitions: int, n: int) -> np.ndarray:
    return np.random.default_rng(n).uniform(-2, 2, (partitions, n)).astype(np.float32)


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("partitions", "n"), SIZES)
def test_two_operators_then_a_function(partitions: int, n: int, reverse: bool, pair: tuple[str, str]) -> None:
    x = rows(partitions, n)
    turned = [reverse and op != "bypass" for op in pair]

    def build(p: Program, t: Tiles) -> None:
        p.activate2(
            dst=t["r"], op="tanh", data=t["x"], imm0=1.5, imm1=t["v"], op0=pair[0], op1=pair[1], reverse0=turned[0], reverse1=turned[1]
        )  # fmt: skip

    got = computed(build, {"x": (x, "float32"), "v": (x[:, :1], "float32")}, {"r": (x.shape, "float32")}, chip=newer())["r"]
    for k in range(0, partitions, 31):
        for j in range(0, n, 13):
            first = DO[pair[0]](1.5, float(x[k, j])) if turned[0] else DO[pair[0]](float(x[k, j]), 1.5)
            second = DO[pair[1]](float(x[k, 0]), first) if turned[1] else DO[pair[1]](first, float(x[k, 0]))
            assert got[k, j] == pytest.approx(math.tanh(second), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    ("op", "wanted"),
    [
        ("add", math.fsum),
        ("maximum", max),
        ("minimum", min),
        ("abs_max", lambda v: max(v, key=abs)),
        ("abs_min", lambda v: min(v, key=abs)),
    ],
)
@pytest.mark.parametrize(("partitions", "n"), SIZES)
def test_five_reductions_go_on_from_instruction_to_instruction(
    partitions: int, n: int, op: str, wanted: Callable[[list[float]], float]
) -> None:
    x = rows(partitions, n)

    def build(p: Program, t: Tiles) -> None:
        for cmd, result, data in (("reset_reduce", None, "x"), ("reduce", t["m"], "y"), ("reset", None, "x"), ("reduce", t["n"], "y")):
            p.activate2(
                dst=t["r"], op="copy", data=t[data], imm0=1.0, imm1=0.0, op0="bypass", op1="bypass",
                reduce_op=op, reduce_cmd=cmd, reduce_res=result,
            )  # fmt: skip

    inputs = {"x": (x, "float32"), "y": (x / 3, "float32")}
    got = computed(
        build, inputs, {"r": (x.shape, "float32"), "m": ((partitions, 1), "float32"), "n": ((partitions, 1), "float32")}, chip=newer()
    )
    y = (x / 3).astype(np.float32)
    for k in range(0, partitions, 31):
        assert got["m"][k, 0] == pytest.approx(wanted([*x[k].tolist(), *y[k].tolist()]), rel=1e-4, abs=1e-3 if op == "add" else 1e-6)
        assert got["n"][k, 0] == pytest.approx(wanted(y[k].tolist()), rel=1e-4, abs=1e-3 if op == "add" else 1e-6)


def test_prelu_reads_its_parameter_of_each_partition() -> None:
    x = np.array([[-2, 3], [-4, 5]], np.float32)
    got = computed(
        lambda p, t: p.activate2(dst=t["r"], op="prelu", data=t["x"], imm0=0.0, imm1=0.0, op0="bypass", op1="bypass", relu_param=t["a"]),
        {"x": (x, "float32"), "a": (np.array([[0.5], [0.25]]), "float32")},
        {"r": ((2, 2), "float32")},
        chip=newer(),
    )
    assert got["r"].tolist() == [[-1, 3], [-1, 5]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": (4, 7)}, r"data has 7 elements per partition, dst has 8.*\(nki\.isa\.activate2\)"),
        ({"data": (3, 8)}, "data has 3 partitions, dst has 4"),
        ({"op0": "add", "op1": "add"}, r"\(op0, op1\)=\(add, add\); one of \(multiply, add\)"),
        ({"op0": "bypass", "op1": "add"}, r"\(op0, op1\)=\(bypass, add\); one of"),
        ({"op0": "divide"}, "op0: 'divide'; one of multiply, add, subtract, bypass"),
        ({"op1": "bypass", "reverse1": True}, "reverse1 with op1=bypass; an operator op1"),
        ({"op0": "bypass", "op1": "bypass", "reverse0": True}, "reverse0 with op0=bypass; an operator op0"),
        ({"imm0": (3, 1)}, "imm0 has 3 partitions, data has 4"),
        ({"imm1": (4, 2)}, r"imm1: a view of shape \[4, 2\]"),
        ({"relu_param": (2, 1)}, "relu_param has 2 partitions, data has 4"),
        ({"imm0": (4, 1), "imm1": (4, 1, "bfloat16")}, "imm0 is float32, imm1 is bfloat16; one type"),
        ({"reduce_cmd": "reduce"}, "a reduction without reduce_op; one of add, maximum, minimum, abs_max, abs_min"),
        ({"reduce_op": "multiply"}, "reduce_op: 'multiply'; one of add, maximum, minimum, abs_max, abs_min"),
        ({"reduce_op": "add", "reduce_res": (4, 2)}, r"reduce_res is \[4, 2\]; \[4, 1\]"),
        ({"reduce_cmd": "load_reduce"}, "reduce_cmd: 'load_reduce'; one of idle, reset, reduce, reset_reduce"),
        ({"engine": "vector"}, "engine vector; one of scalar"),
    ],
)
def test_activate2_refuses(changes: dict[str, Any], message: str) -> None:
    p = Program()
    usual = {"dst": (4, 8), "op": "exp", "data": (4, 8), "imm0": 1.0, "imm1": 0.0, "op0": "multiply", "op1": "add"}
    given = {n: p.sbuf(v[:2], v[2] if len(v) > 2 else "float32") if isinstance(v, tuple) else v for n, v in {**usual, **changes}.items()}
    with pytest.raises(ProgramError, match=message):
        p.activate2(**given)


def test_activate2_is_for_newer_chips_loads_its_table_and_costs_as_an_activation() -> None:
    p = Program()
    x, one = tile(p, (128, 512)), tile(p, (128, 1))
    p.activate2(
        dst=x,
        op="exp",
        data=x,
        imm0=2.0,
        imm1=0.5,
        op0="multiply",
        op1="add",
        reduce_op="maximum",
        reduce_cmd="reset_reduce",
        reduce_res=one,
    )
    p.activation(dst=x, op="exp", data=x, scale=2.0, bias=0.5)
    with pytest.raises(Unsupported, match="activate2 on Scalar of this chip; NeuronCore-v4 or newer"):
        simulate(p, values=False)
    result = simulate(p, newer(), values=False)
    scalar = [(i.opcode, i.duration_ns) for i in result.instructions if i.engine == "Scalar"]
    assert [o for o, _ in scalar] == ["ACT_TABLE_LOAD", "ACTIVATE_TENSOR_SCALAR", "ACT_READ_ACCUMULATOR", "ACTIVATE"]
    assert scalar[1][1] == scalar[3][1]


def test_an_accumulator_that_was_not_reset_is_not_read() -> None:
    p = Program()
    x, one = tile(p, (128, 512)), tile(p, (128, 1))
    p.activate2(dst=x, op="exp", data=x, imm0=2.0, imm1=0.5, op0="multiply", op1="add", reduce_op="add", reduce_res=one)
    with pytest.raises(ProgramError, match="sums of 128 partitions; a reset or reset_reduce of as many partitions before"):
        simulate(p, newer())
