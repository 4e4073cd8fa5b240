"""VectorE's accumulator from instruction to instruction, against loops over elements in float64; who may use it, who is refused."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from newer import newer

from nc_sim import Program, ProgramError, Unspecified, Unsupported, simulate
from tiles import Tiles, computed, tile

SIZES = [(128, 1), (1, 127), (127, 128), (128, 513), (2, 16384)]
START = {"add": 0.0, "subtract": 0.0, "multiply": 1.0, "maximum": -math.inf, "minimum": math.inf}
DO = {"add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b, "maximum": max, "minimum": min}


def rows(partitions: int, n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(n + seed).uniform(0.99, 1.01, (partitions, n)).astype(np.float32)


# --- tensor_scalar_reduce --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["add", "multiply", "maximum", "minimum"])
@pytest.mark.parametrize("first", ["reset_reduce", "number", "vector"])
def test_reduce_goes_on_with_what_the_last_instruction_left(op: str, first: str) -> None:
    a, b = rows(128, 33), rows(128, 65, 1)
    start = {"reset_reduce": START[op], "number": 1.005}.get(first, 0.0)

    def build(p: Program, t: Tiles) -> None:
        ways = {"reset_reduce": {}, "number": {"reduce_init": 1.005}, "vector": {"reduce_init": t["v"]}}
        cmd = "reset_reduce" if first == "reset_reduce" else "load_reduce"
        p.tensor_scalar_reduce(dst=t["a"], data=t["a"], op0="add", operand0=0.0, reduce_op=op, reduce_cmd=cmd, **ways[first])
        p.tensor_scalar_reduce(dst=t["b"], data=t["b"], op0="add", operand0=0.0, reduce_op=op, reduce_cmd="reduce", reduce_res=t["m"])
        p.tensor_scalar_reduce(
            dst=t["b"], data=t["b"], op0="add", operand0=0.0, reduce_op=op, reduce_cmd="reduce", reduce_res=t["n"], reduce_res_negate=True
        )

    inputs = {"a": (a, "float32"), "b": (b, "float32"), "v": (a[:, :1] + 1, "float32")}
    got = computed(build, inputs, {"m": ((128, 1), "float32"), "n": ((128, 1), "float32")})
    for k in range(128):
        begin = float(a[k, 0] + np.float32(1)) if first == "vector" else start
        held = begin
        for x in [*a[k].tolist(), *b[k].tolist()]:
            held = DO[op](held, x)
        assert got["m"][k, 0] == pytest.approx(held, rel=1e-5)
        for x in b[k].tolist():
            held = DO[op](held, x)
        assert got["n"][k, 0] == pytest.approx(-held, rel=1e-5)  # negated on the way out, not in the register


def reducing(p: Program, **changes: Any) -> None:
    usual = {"dst": (4, 8), "data": (4, 8), "op0": "add", "operand0": 1.0, "reduce_op": "add", "reduce_res": (4, 1)}
    p.tensor_scalar_reduce(**{n: tile(p, v) if isinstance(v, tuple) else v for n, v in {**usual, **changes}.items()})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reduce_cmd": "load_reduce"}, "reduce_cmd=load_reduce without reduce_init; a number or a"),
        ({"reduce_init": 1.0}, "reduce_init with reduce_cmd=reset_reduce; reduce_cmd=load_reduce"),
        ({"reduce_init": (4, 1), "reduce_cmd": "reduce"}, "reduce_init with reduce_cmd=reduce; reduce_cmd=load_reduce"),
        ({"reduce_init": (3, 1), "reduce_cmd": "load_reduce"}, "reduce_init has 3 partitions, the data has 4"),
        ({"reduce_cmd": "idle"}, "reduce_cmd=idle; one of reset_reduce, reduce, load_reduce"),
        ({"reduce_cmd": "reset"}, "reduce_cmd=reset; one of reset_reduce, reduce, load_reduce"),
        ({"reduce_cmd": "add"}, "reduce_cmd: 'add'; one of idle, reset, reduce, reset_reduce, load_reduce"),
    ],
)
def test_tensor_scalar_reduce_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        reducing(Program(), **changes)


def test_a_start_value_is_float32_and_operands_are_not_reversed() -> None:
    p, q = Program(), Program()
    with pytest.raises(ProgramError, match="reduce_init is bfloat16; float32"):
        reducing(p, reduce_cmd="load_reduce", reduce_init=tile(p, (4, 1), "bfloat16"))
    reducing(q, reverse0=True)
    with pytest.raises(Unsupported, match=r"reverse0=True; False: nki\.isa has the keyword and does not support it yet"):
        simulate(q)


# --- across instructions ---------------------------------------------------------------------------------------------


def test_instructions_of_all_kinds_share_the_accumulator() -> None:
    x = np.array([[1, 5, 2, 3]], np.float32)

    def build(p: Program, t: Tiles) -> None:
        p.tensor_scalar_reduce(dst=t["y"], data=t["x"], op0="add", operand0=2.0, reduce_op="maximum")  # 7
        p.select_reduce(dst=t["y"], predicate=t["p"], on_true=t["x"], on_false=11.0, reduce_cmd="reduce", reduce_res=t["a"])  # 11
        p.range_select(
            dst=t["y"], on_true_tile=t["x"], comp_op0="less", comp_op1="less", bound0=t["hi"], bound1=t["hi"],
            reduce_cmd="reduce", reduce_res=t["b"],
        )  # fmt: skip
        p.tensor_scalar_cumulative(dst=t["c"], src=t["x"], op0="multiply", op1="add", imm0=2.0, reduce_cmd="reduce")

    inputs = {"x": (x, "float32"), "p": (np.array([[1, 1, 0, 1]]), "uint8"), "hi": (np.array([[99]]), "float32")}
    got = computed(build, inputs, {"y": ((1, 4), "float32"), "a": ((1, 1), "float32"), "b": ((1, 1), "float32"), "c": ((1, 4), "float32")})
    assert got["a"].tolist() == [[11]]
    assert got["b"].tolist() == [[11]]
    assert got["c"].tolist() == [[13, 23, 27, 33]]


@pytest.mark.parametrize("between", ["idle", "other partitions", "nothing before", "scalar engine"])
def test_an_accumulator_that_was_not_reset_is_not_added_to(between: str) -> None:
    p = Program()
    x, mask, one = tile(p, (4, 8)), tile(p, (4, 8), "uint8"), tile(p, (4, 1))
    if between == "scalar engine":
        p.activation(dst=x, op="copy", data=x, reduce_op="add", reduce_cmd="reset_reduce")
    elif between != "nothing before":
        reducing(p)
    if between == "idle":
        p.select_reduce(dst=x, predicate=mask, on_true=x, on_false=0.0)
    elif between == "other partitions":
        p.tensor_scalar_reduce(dst=x[:2], data=x[:2], op0="add", operand0=0.0, reduce_op="add")
    reducing(p, reduce_cmd="reduce", reduce_res=one)
    for values in (True, False):
        with pytest.raises(ProgramError, match="reduce over 4 partitions; a reset or reset_reduce of as many partitions before"):
            simulate(p, values=values)


# --- tensor_scalar_cumulative ----------------------------------------------------------------------------------------


def cumulated(x: np.ndarray, dtype: str = "float32", psum: tuple[str, ...] = (), **how: Any) -> np.ndarray:
    def build(p: Program, t: Tiles) -> None:
        p.tensor_scalar_cumulative(
            dst=t["r"], src=t["x"], **{k: t["v"] if isinstance(v, str) and v == "vector" else v for k, v in how.items()}
        )

    inputs = {"x": (x, dtype), "v": (x[:, :1] * 0 + 1.001, "float32")}
    return computed(build, inputs, {"r": (x.shape, dtype)}, psum)["r"]


@pytest.mark.parametrize(("op0", "op1"), list(itertools.product(["add", "multiply", "subtract"], sorted(START))))
@pytest.mark.parametrize(("partitions", "n"), SIZES)
def test_a_running_reduction(partitions: int, n: int, op0: str, op1: str) -> None:
    x = rows(partitions, n)
    got = cumulated(x, op0=op0, op1=op1, imm0="vector")
    v = float(np.float32(1.001))
    for k in range(0, partitions, 31):
        held = START[op1]
        for j, element in enumerate(x[k].tolist()):
            held = DO[op1](DO[op0](element, v), held)
            if held > 3e38:  # beyond float32
                assert got[k, j] > 3e38
                break
            assert got[k, j] == pytest.approx(held, rel=2e-3 if op1 == "multiply" else 1e-4, abs=1e-2 if op1 == "subtract" else 1e-5)


def test_a_running_reduction_starts_from_a_given_value_and_carries_float32() -> None:
    x = np.full((2, 4), 1.0)
    assert (
        cumulated(x, op0="add", op1="add", imm0=0.0, imm1=256.0, reduce_cmd="load_reduce", dtype="bfloat16").astype(float).tolist()
        == [
            [256, 258, 260, 260]  # 257, 258, 259 and 260 to nearest even of bfloat16's 8 bits
        ]
        * 2
    )
    assert cumulated(x, op0="add", op1="multiply", imm0=1.0, imm1="vector", reduce_cmd="load_reduce")[0].tolist() == pytest.approx(
        [2.002, 4.004, 8.008, 16.016], rel=1e-6
    )


@pytest.mark.parametrize("psum", [("x",), ("r",)])
@pytest.mark.parametrize("dtype", ["float16", "int8", "uint16", "float8_e5m2"])
def test_a_running_reduction_of_small_types_and_in_psum(dtype: str, psum: tuple[str, ...]) -> None:
    x = np.array([[1, 2, 0, 4]])
    assert cumulated(x, op0="add", op1="maximum", imm0=1.0, dtype=dtype, psum=psum).astype(float).tolist() == [[2, 3, 3, 5]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"src": (4, 7)}, r"src has 7 elements per partition, dst has 8.*\(nki\.isa\.tensor_scalar_cumulative\)"),
        ({"src": (3, 8)}, "src has 3 partitions, dst has 4"),
        ({"src": (4, 8, "int32")}, "src is int32; one of float32, bfloat16"),
        ({"dst": (4, 8, "uint32")}, "dst is uint32; one of float32, bfloat16"),
        ({"src": (4, 8, "tfloat32")}, "src is tfloat32; one of float32, bfloat16"),
        ({"op0": "bitwise_and"}, "op0=bitwise_and; a binary arithmetic operator"),
        ({"op0": "abs"}, "op0=abs; a binary arithmetic operator"),
        ({"op1": "logical_or"}, "op1=logical_or; one of add, subtract, multiply, maximum, minimum"),
        ({"imm0": (4, 1, "bfloat16")}, "imm0 is bfloat16; float32"),
        ({"imm0": (3, 1)}, "imm0 has 3 partitions, the data has 4"),
        ({"imm0": None}, "imm0: None; a number or a"),
        ({"imm1": 3.0}, "imm1 with reduce_cmd=reset_reduce; reduce_cmd=load_reduce"),
        ({"reduce_cmd": "load_reduce"}, "reduce_cmd=load_reduce without imm1"),
        ({"imm1": (4, 1, "int32"), "reduce_cmd": "load_reduce"}, "imm1 is int32; float32"),
        ({"reduce_cmd": "idle"}, "reduce_cmd=idle; one of reset_reduce, reduce, load_reduce"),
        ({"engine": "gpsimd"}, "engine gpsimd; one of vector"),
    ],
)
def test_a_running_reduction_refuses(changes: dict[str, Any], message: str) -> None:
    p = Program()
    usual = {"dst": (4, 8), "src": (4, 8), "op0": "add", "op1": "add", "imm0": 1.0}
    given = {n: p.sbuf(v[:2], v[2] if len(v) > 2 else "float32") if isinstance(v, tuple) else v for n, v in {**usual, **changes}.items()}
    with pytest.raises(ProgramError, match=message):
        p.tensor_scalar_cumulative(**given)


def test_the_order_of_more_dimensions_is_not_guessed_and_nothing_is_in_hbm() -> None:
    p = Program()
    t = p.sbuf((4, 8), "float32")
    with pytest.raises(Unspecified, match=r"src is \[4, 2, 4\]; \[P, N\]"):
        p.tensor_scalar_cumulative(dst=t, src=t.reshape(4, 2, 4), op0="add", op1="add", imm0=1.0)
    with pytest.raises(ProgramError, match="src is in HBM"):
        p.tensor_scalar_cumulative(dst=t, src=p.input("x", (4, 8), "float32"), op0="add", op1="add", imm0=1.0)


# --- select_reduce ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("predicate", ["int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("other", [-7.25, "vector"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("partitions", "n"), [*SIZES[:-1], (2, 8192)])
def test_select_reduce_takes_one_or_the_other(partitions: int, n: int, reverse: bool, other: Any, predicate: str) -> None:
    x = rows(partitions, n)
    mask = np.random.default_rng(n).integers(0, 3, (partitions, n))

    def build(p: Program, t: Tiles) -> None:
        p.select_reduce(
            dst=t["r"], predicate=t["m"], on_true=t["x"], on_false=t["v"] if other == "vector" else other,
            reduce_res=t["most"], reduce_cmd="reset_reduce", reverse_pred=reverse,
        )  # fmt: skip

    inputs = {"x": (x, "float32"), "m": (mask, predicate), "v": (x[:, :1] + 1, "float32")}
    got = computed(build, inputs, {"r": (x.shape, "float32"), "most": ((partitions, 1), "float32")})
    wanted = [
        [e if bool(m) != reverse else (float(row[0] + np.float32(1)) if other == "vector" else other) for e, m in zip(row, ms, strict=True)]
        for row, ms in zip(x, mask, strict=True)
    ]
    assert got["r"].tolist() == np.array(wanted, np.float32).tolist()
    assert got["most"][:, 0].tolist() == [max(row) for row in np.array(wanted, np.float32).tolist()]


@pytest.mark.parametrize("psum", [("x",), ("m",), ("r",)])
def test_select_reduce_reaches_psum_and_reduces_before_it_rounds(psum: tuple[str, ...]) -> None:
    x = np.array([[1, 1 + 2**-10, 9]], np.float32)

    def build(p: Program, t: Tiles) -> None:
        p.select_reduce(dst=t["r"], predicate=t["m"], on_true=t["x"], on_false=0.5, reduce_res=t["most"], reduce_cmd="reset_reduce")

    got = computed(
        build, {"x": (x, "float32"), "m": (np.array([[1, 5, 0]]), "uint8")}, {"r": ((1, 3), "bfloat16"), "most": ((1, 1), "float32")}, psum
    )
    assert got["r"].astype(float).tolist() == [[1, 1, 0.5]]
    assert got["most"].tolist() == [[1 + 2**-10]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"on_true": (4, 7)}, r"on_true has 7 elements per partition, dst has 8.*\(nki\.isa\.select_reduce\)"),
        ({"predicate": (4, 7, "uint8")}, "predicate has 7 elements per partition, dst has 8"),
        ({"predicate": (4, 8, "uint32")}, "predicate is uint32; one of int8, uint8, int16, uint16"),
        ({"on_true": (4, 8, "int32")}, "on_true is int32; any type but tfloat32, int32, uint32"),
        ({"on_true": (4, 8, "tfloat32")}, "on_true is tfloat32; any type but"),
        ({"on_false": (3, 1)}, "on_false has 3 partitions, on_true has 4"),
        ({"on_false": (4, 8)}, r"on_false: a view of shape \[4, 8\]; a number or a \[P, 1\] view"),
        ({"reduce_res": (4, 2), "reduce_cmd": "reduce"}, r"reduce_res is \[4, 2\]; \[4, 1\]"),
        ({"reduce_res": (4, 1, "int32"), "reduce_cmd": "reduce"}, "reduce_res is int32; a floating-point type"),
        ({"reduce_op": "add"}, "reduce_op=add; maximum"),
        ({"reduce_cmd": "load_reduce"}, "reduce_cmd=load_reduce; one of idle, reduce, reset_reduce"),
        ({"engine": "scalar"}, "engine scalar; one of vector"),
    ],
)
def test_select_reduce_refuses(changes: dict[str, Any], message: str) -> None:
    p = Program()
    usual = {"dst": (4, 8), "predicate": (4, 8, "uint8"), "on_true": (4, 8), "on_false": 0.0}
    given = {n: p.sbuf(v[:2], v[2] if len(v) > 2 else "float32") if isinstance(v, tuple) else v for n, v in {**usual, **changes}.items()}
    with pytest.raises(ProgramError, match=message):
        p.select_reduce(**given)


def test_select_reduce_has_one_source_in_psum_and_no_result_of_an_idle_accumulator() -> None:
    p = Program()
    x, mask, one = p.psum((4, 8)), p.psum((4, 8), "uint8"), p.sbuf((4, 1), "float32")
    with pytest.raises(ProgramError, match="on_true and predicate are both in PSUM"):
        p.select_reduce(dst=x, predicate=mask, on_true=x, on_false=0.0)
    with pytest.raises(Unspecified, match="reduce_res with reduce_cmd=idle; another reduce_cmd: the accumulator is unknown then"):
        p.select_reduce(dst=x, predicate=p.sbuf((4, 8), "uint8"), on_true=x, on_false=0.0, reduce_res=one)
    with pytest.raises(ProgramError, match="reduce_cmd=load_reduce; one of idle, reset, reduce, reset_reduce"):
        p.range_select(
            dst=x, on_true_tile=x, comp_op0="less", comp_op1="less", bound0=one, bound1=one, reduce_cmd="load_reduce"
        )  # fmt: skip


# --- exponential -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [0.5, "vector"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("partitions", "n"), SIZES)
def test_exponential_subtracts_and_adds_up(partitions: int, n: int, dtype: str, most: Any) -> None:
    x = np.random.default_rng(n).uniform(-5, 2, (partitions, n)).astype(np.float32)

    def build(p: Program, t: Tiles) -> None:
        p.exponential(
            dst=t["r"], src=t["x"], max_value=t["v"] if most == "vector" else most, reduce_cmd="load_reduce", reduce_init=10.0,
            reduce_res=t["m"],
        )  # fmt: skip
        p.exponential(dst=t["r"], src=t["x"], max_value=0.0, reduce_cmd="reduce", reduce_res=t["n"])
        p.exponential(dst=t["r"], src=t["x"], max_value=t["v"] if most == "vector" else most)

    v = x.max(axis=1, keepdims=True)
    outputs = {"r": (x.shape, dtype), "m": ((partitions, 1), "float32"), "n": ((partitions, 1), "float32")}
    got = computed(build, {"x": (x, "float32"), "v": (v, "float32")}, outputs, chip=newer())
    for k in range(0, partitions, 31):
        less = float(v[k, 0]) if most == "vector" else most
        wanted = [math.exp(e - less) for e in x[k].tolist()]
        assert got["r"][k].astype(float).tolist() == pytest.approx(wanted, rel=2**-8 if dtype == "bfloat16" else 2**-20)
        assert got["m"][k, 0] == pytest.approx(10 + math.fsum(wanted), rel=1e-5)
        assert got["n"][k, 0] == pytest.approx(10 + math.fsum(wanted) + math.fsum(map(math.exp, x[k].tolist())), rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"src": (4, 7)}, r"src has 7 elements per partition, dst has 8.*\(nki\.isa\.exponential\)"),
        ({"src": (3, 8)}, "src has 3 partitions, dst has 4"),
        ({"dst": (4, 8, "uint32")}, "dst is uint32; one of float8_e4m3"),
        ({"src": (4, 8, "tfloat32")}, "src is tfloat32; one of float8_e4m3"),
        ({"max_value": (4, 1, "bfloat16")}, "max_value is bfloat16; float32"),
        ({"max_value": (3, 1)}, "max_value has 3 partitions, the data has 4"),
        ({"reduce_res": (4, 1, "int32"), "reduce_cmd": "reduce"}, "reduce_res is int32; one of float8_e4m3"),
        ({"reduce_res": (4, 2), "reduce_cmd": "reduce"}, r"reduce_res is \[4, 2\]; \[4, 1\]"),
        ({"reduce_init": 1.0, "reduce_cmd": "reduce"}, "reduce_init with reduce_cmd=reduce; reduce_cmd=load_reduce"),
        ({"reduce_cmd": "reset"}, "reduce_cmd=reset; one of idle, reset_reduce, reduce, load_reduce"),
        ({"engine": "scalar"}, "engine scalar; one of vector"),
    ],
)
def test_exponential_refuses(changes: dict[str, Any], message: str) -> None:
    p = Program()
    usual = {"dst": (4, 8), "src": (4, 8)}
    given = {n: p.sbuf(v[:2], v[2] if len(v) > 2 else "float32") if isinstance(v, tuple) else v for n, v in {**usual, **changes}.items()}
    with pytest.raises(ProgramError, match=message):
        p.exponential(**given)


def test_exponential_is_for_newer_chips_and_four_times_as_fast_in_16_bits() -> None:
    # trainium3_arch.rst: four times ScalarE's throughput; half of that in 32 bits is assumed
    took = []
    for dtype in ("float32", "bfloat16"):
        p = Program()
        x = tile(p, (128, 512), dtype)
        p.exponential(dst=x, src=x)
        with pytest.raises(Unsupported, match="exponential on Vector of trn2; NeuronCore-v4 or newer"):
            simulate(p, values=False)
        took += [i.duration_ns for i in simulate(p, newer(), values=False).instructions if i.opcode == "EXPONENTIAL"]
    assert took == pytest.approx([125 + 256 / 0.96, 125 + 128 / 0.96], abs=0.25)


# --- costs -----------------------------------------------------------------------------------------------------------


def test_costs_without_a_source_are_named_as_assumed() -> None:
    # select_reduce as tensor_copy_predicated: 2 N in SBUF, N with PSUM, and 64 cycles for the reduction; a running reduction N
    p = Program()
    x, q, mask, one = tile(p, (128, 512)), tile(p, (128, 512), memory="psum"), tile(p, (128, 512), "uint8"), tile(p, (128, 1))
    p.select_reduce(dst=x, predicate=mask, on_true=x, on_false=0.0)
    p.select_reduce(dst=x, predicate=mask, on_true=q, on_false=0.0)
    p.select_reduce(dst=x, predicate=mask, on_true=x, on_false=one, reduce_res=one, reduce_cmd="reset_reduce")
    p.tensor_scalar_cumulative(dst=x, src=x, op0="add", op1="add", imm0=1.0)
    result = simulate(p, values=False)
    took = [i.duration_ns for i in result.instructions if i.opcode in ("SELECT_REDUCE", "TENSOR_SCALAR_CUMULATIVE")]
    wanted = [152 + 1024 / 0.96, 157 + 512 / 0.96, 152 + 60 + (1024 + 64) / 0.96, 152 + 512 / 0.96]
    assert took == pytest.approx(wanted, abs=0.25)
    assert {f"vector.{k}.cycles_per_element" for k in ("select_reduce", "tensor_scalar_cumulative")} <= set(result.assumed)
