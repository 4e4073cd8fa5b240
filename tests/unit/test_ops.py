"""ALU operators and activation functions: names, meaning, and what is refused."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import attrs
import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nc_sim.isa import ops
from nc_sim.isa.errors import ProgramError

INT32 = st.integers(-(2**31), 2**31 - 1)


@pytest.fixture(autouse=True)
def no_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def f32(*values: float) -> npt.NDArray[np.float32]:
    return np.array(values, np.float32)


def i32(*values: int) -> npt.NDArray[np.int32]:
    return np.array(values, np.int32)


def wrap(value: int) -> int:
    """`value` modulo 2**32, as a signed number."""
    return (value + 2**31) % 2**32 - 2**31


# --- lookup ------------------------------------------------------------------------------------------------------

# nki.api.shared, Supported Math Operators (SDK 2.32), with "Legal Reduction op".
DOCUMENTED = {
    "invert": False, "bitwise_and": True, "bitwise_or": True, "bitwise_xor": True, "left_shift": False,
    "right_shift": False, "add": True, "subtract": True, "multiply": True, "maximum": True, "minimum": True,
    "equal": False, "not_equal": False, "greater_equal": False, "greater": False, "less_equal": False, "less": False,
    "logical_and": True, "logical_or": True, "logical_xor": True, "power": False, "abs": False, "square": False,
    "relu": False, "rsqrt": False, "reciprocal": False,
}  # fmt: skip
BITVEC = {"invert", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "bypass"}
UNARY = {"invert", "logical_not", "abs", "square", "relu", "rsqrt", "reciprocal", "bypass"}

# nki.api.shared, Supported Activation Functions (SDK 2.32).
ACTIVATIONS = [
    "copy", "square", "sigmoid", "relu", "prelu", "gelu", "gelu_dx", "gelu_apprx_tanh", "gelu_apprx_sigmoid",
    "gelu_apprx_sigmoid_dx", "silu", "silu_dx", "tanh", "softplus", "mish", "erf", "erf_dx", "exp", "log", "sin",
    "arctan", "sqrt", "rsqrt", "reciprocal", "sign", "abs",
]  # fmt: skip  # fmt: skip


def test_every_documented_operator_exists_and_reduces_as_documented() -> None:
    assert {name: ops.ALU_OPS[name].reduces for name in DOCUMENTED} == DOCUMENTED


def test_the_operators_beyond_that_table_are_these() -> None:
    beyond = {"logical_not", "abs_max", "abs_min", "bypass", "divide", "mod", "fmod"}
    assert set(ops.ALU_OPS) - set(DOCUMENTED) == beyond


# functions of nki.language that take tiles element by element, or reduce them (public stubs of nki.language, SDK 2.32)
LANGUAGE = [
    "add", "subtract", "multiply", "divide", "maximum", "minimum", "abs_max", "abs_min", "abs", "square", "power", "equal",
    "not_equal", "less", "less_equal", "greater", "greater_equal", "bitwise_and", "bitwise_or", "bitwise_xor", "invert",
    "left_shift", "right_shift", "logical_and", "logical_or", "logical_xor", "logical_not", "exp", "log", "sqrt", "rsqrt",
    "tanh", "sigmoid", "relu", "gelu", "gelu_apprx_sigmoid", "gelu_apprx_tanh", "gelu_dx", "gelu_apprx_sigmoid_dx", "silu",
    "silu_dx", "softplus", "mish", "erf", "erf_dx", "reciprocal", "copy", "sin", "arctan", "sign", "fmod", "mod", "bypass",
    "prelu", "sum", "max", "min", "prod", "all",
]  # fmt: skip
# made of several instructions, and no operator of any: nki.api.shared lists them nowhere
COMPOSED = ["cos", "tan", "ceil", "floor", "trunc", "negative", "mean", "var", "softmax", "rms_norm", "where", "dropout", "average"]


@pytest.mark.parametrize("name", LANGUAGE)
def test_every_elementwise_function_and_reduction_of_nki_language_is_an_operator_or_an_activation(name: str) -> None:
    known = []
    for look_up in (ops.alu_op, ops.act_fn):
        try:
            known.append(look_up(f"nl.{name}"))
        except ProgramError:
            continue
    assert known


@pytest.mark.parametrize("name", COMPOSED)
def test_functions_that_are_no_operator_are_refused(name: str) -> None:
    for look_up in (ops.alu_op, ops.act_fn):
        with pytest.raises(ProgramError):
            look_up(f"nl.{name}")


def test_operators_by_magnitude_are_of_newer_chips() -> None:
    # nki.language.abs_max and abs_min: available only on NeuronCore-v4 (trn3) and newer
    assert {name: op.since for name, op in ops.ALU_OPS.items() if op.since != 2} == {"abs_max": 4, "abs_min": 4}


def test_exactly_these_operators_are_bitvec_and_these_unary() -> None:
    assert {name for name, op in ops.ALU_OPS.items() if op.bitvec} == BITVEC
    assert {name for name, op in ops.ALU_OPS.items() if op.unary} == UNARY


def test_every_documented_activation_function_exists_and_no_other() -> None:
    assert list(ops.ACT_FNS) == ACTIVATIONS


@pytest.mark.parametrize("table", [ops.ALU_OPS, ops.ACT_FNS], ids=["alu", "act"])
def test_no_spelling_and_no_trace_name_is_used_twice(table: dict[str, Any]) -> None:
    spellings = [s for row in table.values() for s in (row.name, *row.aliases)]
    assert len(spellings) == len(set(spellings))
    traces = [row.trace_name for row in table.values()]
    assert len(traces) == len(set(traces))


@pytest.mark.parametrize(("name", "trace"), [("add", "ADD"), ("multiply", "MULTIPLY"), ("maximum", "MAX"), ("bypass", "BYPASS")])
def test_trace_names_of_operators_seen_in_profiles(name: str, trace: str) -> None:
    assert ops.ALU_OPS[name].trace_name == trace


def test_trace_name_and_table_of_a_function() -> None:
    assert (ops.act_fn("exp").trace_name, ops.act_fn("exp").table) == ("EXP", "exp")
    assert (ops.act_fn("copy").trace_name, ops.act_fn("copy").table) == ("COPY", "none")


@pytest.mark.parametrize(
    ("of", "name"),
    [
        ("nl.add", "add"),
        ("nki.language.maximum", "maximum"),
        ("max", "maximum"),
        ("np.min", "minimum"),
        ("np.remainder", "mod"),
        (np.add, "add"),
        (np.subtract, "subtract"),
        (np.multiply, "multiply"),
        (np.maximum, "maximum"),
        (np.max, "maximum"),
        (np.min, "minimum"),
        (np.sum, "add"),
        (np.abs, "abs"),
        (np.invert, "invert"),
        (np.bitwise_and, "bitwise_and"),
        (np.right_shift, "right_shift"),
        (np.greater_equal, "greater_equal"),
        (np.logical_or, "logical_or"),
        (np.power, "power"),
        (np.mod, "mod"),
        (np.divide, "divide"),
    ],
)
def test_alu_op_accepts(of: Any, name: str) -> None:
    assert ops.alu_op(of) is ops.ALU_OPS[name]


@pytest.mark.parametrize(
    ("of", "name"),
    [
        ("nl.exp", "exp"),
        ("identity", "copy"),
        ("ln", "log"),
        (np.exp, "exp"),
        (np.log, "log"),
        (np.sqrt, "sqrt"),
        (np.square, "square"),
        (np.tanh, "tanh"),
        (np.arctan, "arctan"),
        (np.sign, "sign"),
        (np.copy, "copy"),
        (np.abs, "abs"),
    ],
)
def test_act_fn_accepts(of: Any, name: str) -> None:
    assert ops.act_fn(of) is ops.ACT_FNS[name]


def test_a_function_of_nki_language_is_found_by_its_name() -> None:
    def add() -> None: ...

    add.__module__ = "nc_sim.nki.language"
    assert ops.alu_op(add) is ops.ALU_OPS["add"]
    add.__module__ = "elsewhere"
    with pytest.raises(ProgramError):
        ops.alu_op(add)


def test_a_row_is_its_own_name() -> None:
    assert all(ops.alu_op(op) is op and ops.alu_op(op.name) is op for op in ops.ALU_OPS.values())
    assert all(ops.act_fn(fn) is fn and ops.act_fn(fn.name) is fn for fn in ops.ACT_FNS.values())


@pytest.mark.parametrize("of", ["", "nl.", "ADD", "arithmetic_shift_right", np.sin, np.dot, max, abs, None, 3, len])
def test_alu_op_refuses(of: Any) -> None:
    with pytest.raises(ProgramError):
        ops.alu_op(of)


@pytest.mark.parametrize("of", ["", "add", "cos", np.add, np.cos, math.exp, None])
def test_act_fn_refuses(of: Any) -> None:
    with pytest.raises(ProgramError):
        ops.act_fn(of)


def test_an_unknown_operator_is_answered_with_near_names_the_legal_ones_and_the_source() -> None:
    with pytest.raises(ProgramError) as error:
        ops.alu_op("multipy")
    assert str(error.value) == (
        f"ALU operator 'multipy' (near: multiply); one of {', '.join(ops.ALU_OPS)} (nki.api.shared, Supported Math Operators)"
    )


def test_an_unknown_function_is_answered_with_near_names_the_legal_ones_and_the_source() -> None:
    with pytest.raises(ProgramError) as error:
        ops.act_fn("nl.sigmoyd")
    assert str(error.value) == (
        f"activation function 'nl.sigmoyd' (near: sigmoid); one of {', '.join(ACTIVATIONS)} "
        "(nki.api.shared, Supported Activation Functions)"
    )


@pytest.mark.parametrize(
    ("of", "near"),
    [
        ("mult", "multiply"),
        ("mul", "multiply"),
        ("sub", "subtract, sum"),
        ("ADD", "add"),
        ("MAX", "maximum, max, amax"),
        ("Multiply", "multiply"),
    ],
)
def test_near_names_of_operators_look_past_capitals_and_cut_words(of: str, near: str) -> None:
    with pytest.raises(ProgramError) as error:
        ops.alu_op(of)
    assert error.value.found == f"ALU operator {of!r} (near: {near})"


@pytest.mark.parametrize(("of", "near"), [("EXP", "exp"), ("Gelu", "gelu, gelu_dx, gelu_apprx_tanh"), ("recip", "reciprocal")])
def test_near_names_of_functions_look_past_capitals_and_cut_words(of: str, near: str) -> None:
    with pytest.raises(ProgramError) as error:
        ops.act_fn(of)
    assert error.value.found == f"activation function {of!r} (near: {near})"


@pytest.mark.parametrize("of", ["plus", "", "zz"])
def test_where_no_name_is_near_none_is_named(of: str) -> None:
    with pytest.raises(ProgramError) as error:
        ops.alu_op(of)
    assert error.value.found == f"ALU operator {of!r}"


# --- arithmetic --------------------------------------------------------------------------------------------------

A, B = [3.0, -2.0, 0.5, 0.0], [2.0, 3.0, 0.5, -1.0]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("add", [5, 1, 1, -1]),
        ("subtract", [1, -5, 0, 1]),
        ("multiply", [6, -6, 0.25, 0]),
        ("maximum", [3, 3, 0.5, 0]),
        ("minimum", [2, -2, 0.5, -1]),
        ("equal", [0, 0, 1, 0]),
        ("not_equal", [1, 1, 0, 1]),
        ("greater_equal", [1, 0, 1, 1]),
        ("greater", [1, 0, 0, 1]),
        ("less_equal", [0, 1, 1, 0]),
        ("less", [0, 1, 0, 0]),
        ("logical_and", [1, 1, 1, 0]),
        ("logical_or", [1, 1, 1, 1]),
        ("logical_xor", [0, 0, 0, 1]),
        ("power", [9, -8, math.sqrt(0.5), math.inf]),
        ("divide", [1.5, -2 / 3, 1, 0]),
        ("mod", [1, 1, 0, 0]),
        ("fmod", [1, -2, 0, 0]),
    ],
)
def test_binary_operator(name: str, expected: list[float]) -> None:
    out = ops.apply(name, f32(*A), f32(*B))
    assert out.dtype == np.float32
    assert np.array_equal(out, f32(*expected))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("abs", [4, 0.25, 0]),
        ("square", [16, 0.0625, 0]),
        ("relu", [0, 0.25, 0]),
        ("rsqrt", [math.nan, 2, math.inf]),
        ("reciprocal", [-0.25, 4, math.inf]),
        ("logical_not", [0, 0, 1]),
        ("bypass", [-4, 0.25, 0]),
    ],
)
def test_unary_operator_with_and_without_the_operand_it_ignores(name: str, expected: list[float]) -> None:
    for second in (None, 0.0, 7.0):
        out = ops.apply(name, f32(-4, 0.25, 0), second)
        assert np.array_equal(out, f32(*expected), equal_nan=True)


def test_abs_max_and_abs_min_keep_the_sign_and_take_the_second_on_a_tie() -> None:
    # The examples of nki.language.abs_max and abs_min.
    assert ops.apply("abs_max", f32(-5, 1), f32(3, -1)).tolist() == [-5, -1]
    assert ops.apply("abs_min", f32(5, 1, -5), f32(-3, -1, 3)).tolist() == [-3, -1, 3]


def test_arithmetic_converts_both_operands_to_float32_first() -> None:
    big = i32(2**24 + 1)
    assert ops.apply("add", big, f32(0)).tolist() == [2.0**24]
    assert ops.apply("subtract", big, 2.0**24).tolist() == [0]
    assert ops.apply("add", np.array([200], np.uint8), np.array([100], np.uint8)).tolist() == [300]
    assert ops.apply("add", np.array([1], ml_dtypes.bfloat16), 2.0**-20).tolist() == [1 + 2.0**-20]
    # In float64 the sum would be 100000001, and the difference 1.
    assert ops.apply("subtract", ops.apply("add", f32(1e8), 1.0), 1e8).tolist() == [0]


def test_operands_broadcast_and_may_be_numbers_on_either_side() -> None:
    column, row = f32(1, 2).reshape(2, 1), f32(10, 20, 30)
    assert ops.apply("add", column, row).tolist() == [[11, 21, 31], [12, 22, 32]]
    assert ops.apply("subtract", 1, row).tolist() == [-9, -19, -29]
    assert ops.apply("multiply", np.float32(2), np.float64(3)) == 6


def test_overflow_and_nan_follow_ieee_without_a_warning() -> None:
    assert ops.apply("multiply", f32(3e38), 10.0).tolist() == [math.inf]
    assert np.isnan(ops.apply("subtract", f32(math.inf), math.inf)).all()
    assert np.isnan(ops.apply("divide", f32(0), 0.0)).all()
    assert np.isnan(ops.apply("maximum", f32(math.nan, 1), f32(1, math.nan))).all()
    assert ops.apply("not_equal", f32(math.nan), f32(math.nan)).tolist() == [1]


def test_a_signalling_nan_raises_no_warning() -> None:
    for kind, bits in ((ml_dtypes.bfloat16, 0x7F81), (np.float16, 0x7C01)):
        signalling = np.array([bits], np.uint16).view(kind)
        assert np.isnan(ops.apply("add", signalling, 1.0)).all()
        assert np.isnan(ops.reduce("add", signalling, (0,)))
        assert np.isnan(ops.act_fn("exp").function(signalling)).all()


def test_a_float64_beyond_float32_becomes_infinite_without_a_warning() -> None:
    big = np.array([1e300])
    assert ops.apply("add", big, 1.0).tolist() == [math.inf]
    assert ops.reduce("add", big, (0,)) == math.inf
    assert ops.act_fn("copy").function(big).tolist() == [math.inf]


def test_a_binary_operator_with_one_operand_is_refused() -> None:
    with pytest.raises(ProgramError) as error:
        ops.apply("add", f32(1))
    assert str(error.value) == "add with one operand; two operands (nki.api.shared)"


def test_bypass_keeps_the_type_and_copies() -> None:
    x = i32(2**24 + 1)
    out = ops.apply("bypass", x, 0.0)
    assert out.dtype == np.int32
    assert out.tolist() == [2**24 + 1]
    assert not np.shares_memory(out, x)


# --- native integers ---------------------------------------------------------------------------------------------

EXACT: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: wrap(a + b),
    "subtract": lambda a, b: wrap(a - b),
    "multiply": lambda a, b: wrap(a * b),
    "maximum": max,
    "minimum": min,
    "equal": lambda a, b: int(a == b),
    "less": lambda a, b: int(a < b),
    "greater_equal": lambda a, b: int(a >= b),
    "logical_and": lambda a, b: int(a != 0 and b != 0),
}


@given(INT32, INT32, st.sampled_from(list(EXACT)))
def test_two_int32_tiles_compute_exactly_modulo_2_to_the_32(a: int, b: int, name: str) -> None:
    out = ops.apply(name, i32(a), i32(b))
    assert out.dtype == np.int32
    assert out.tolist() == [EXACT[name](a, b)]


def test_uint32_wraps_unsigned() -> None:
    a, b = np.array([0, 0xFFFFFFFF], np.uint32), np.array([1, 0xD251], np.uint32)
    assert ops.apply("subtract", a, b).tolist() == [2**32 - 1, 2**32 - 1 - 0xD251]
    assert ops.apply("multiply", a, b).tolist() == [0, (0xFFFFFFFF * 0xD251) % 2**32]


def test_the_vector_engine_computes_int32_in_float32() -> None:
    out = ops.apply("add", i32(2**24), i32(1), integer=False)
    assert out.dtype == np.float32
    assert out.tolist() == [2.0**24]


def test_other_integer_types_and_mixtures_compute_in_float32_unless_asked() -> None:
    small = np.array([7], np.int16)
    pairs: list[tuple[ops.Array, ops.Array]] = [(i32(7), np.array([3], np.uint32)), (i32(7), f32(3)), (small, small)]
    for a, b in pairs:
        assert ops.apply("multiply", a, b).dtype == np.float32
    assert ops.apply("divide", i32(7), i32(2)).tolist() == [3.5]
    assert ops.apply("abs", i32(-7)).dtype == np.float32


@pytest.mark.parametrize(
    ("name", "b", "message"),
    [
        (
            "add",
            np.array([1], np.uint32),
            "add of int32 and uint32 in native integers; operands all int32 or all uint32",
        ),
        ("add", f32(1), "add of int32 and float32 in native integers; operands all int32 or all uint32"),
        ("divide", i32(1), "divide in native integers; float32 arithmetic"),
    ],
)
def test_native_integers_are_refused_where_no_source_has_them(name: str, b: Any, message: str) -> None:
    with pytest.raises(ProgramError) as error:
        ops.apply(name, i32(1), b, integer=True)
    assert str(error.value) == f"{message} (nki.isa.tensor_tensor)"


def test_a_number_joins_native_integers_as_its_32_bits() -> None:
    assert ops.apply("multiply", i32(3), 0xFFFFFFFF, integer=True).tolist() == [-3]


# --- bitvec ------------------------------------------------------------------------------------------------------


@given(st.integers(0, 255), st.integers(0, 255))
def test_bitwise_operators_act_on_the_bits_of_either_sign(a: int, b: int) -> None:
    for kind in (np.uint8, np.int8):
        x, y = (np.array([v], np.uint8).view(kind) for v in (a, b))
        for name, expected in {"bitwise_and": a & b, "bitwise_or": a | b, "bitwise_xor": a ^ b}.items():
            out = ops.apply(name, x, y)
            assert out.dtype == kind
            assert out.view(np.uint8).tolist() == [expected]
        assert ops.apply("invert", x).view(np.uint8).tolist() == [255 - a]


@given(st.integers(0, 2**32 - 1), st.integers(0, 70))
def test_shifts_are_logical_and_empty_the_register_at_its_width(a: int, count: int) -> None:
    for kind in (np.uint32, np.int32):
        x = np.array([a], np.uint32).view(kind)
        assert ops.apply("left_shift", x, count).view(np.uint32).tolist() == [(a << count) % 2**32]
        assert ops.apply("right_shift", x, count).view(np.uint32).tolist() == [a >> count]


def test_right_shift_of_a_negative_number_brings_in_zeros() -> None:
    out = ops.apply("right_shift", np.array([-128], np.int8), np.array([4], np.int8))
    assert out.dtype == np.int8
    assert out.tolist() == [8]


def test_bitvec_numbers_are_the_bits_of_the_width_signed_or_not() -> None:
    x = np.array([0x1234, 0x8001], np.uint16)
    assert ops.apply("bitwise_and", x, 0xFF).tolist() == [0x34, 1]
    assert ops.apply("bitwise_and", x, -1).tolist() == [0x1234, 0x8001]
    assert ops.apply("bitwise_xor", i32(0), 0xFFFFFFFF).tolist() == [-1]
    assert ops.apply("bitwise_or", i32(1), 2.0).tolist() == [3]
    assert ops.apply("left_shift", 1, np.array([3, 7], np.uint8)).tolist() == [8, 128]


@pytest.mark.parametrize("number", [0x10000, -0x8001, 0.5, math.nan, "1"])
def test_a_number_that_the_width_does_not_hold_is_refused(number: Any) -> None:
    with pytest.raises(ProgramError) as error:
        ops.apply("bitwise_and", np.array([1], np.uint16), number)
    assert str(error.value) == f"bitwise_and of uint16 with {number!r}; an integer of 16 bits"


@pytest.mark.parametrize(
    ("a", "b", "found"),
    [
        (f32(1), f32(1), "float32 and float32"),
        (i32(1), f32(1), "int32 and float32"),
        (i32(1), np.array([1], np.uint8), "int32 and uint8"),
        (1, 2, "no array"),
    ],
)
def test_bitvec_operators_convert_nothing(a: Any, b: Any, found: str) -> None:
    with pytest.raises(ProgramError) as error:
        ops.apply("bitwise_or", a, b)
    required = "integers of one width, which bitvec operators do not convert"
    assert str(error.value) == f"bitwise_or of {found}; {required} (nki.isa.tensor_tensor)"


# --- reductions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("add", [2, -2]),
        ("subtract", [0, -2]),
        ("multiply", [-6, 0]),
        ("maximum", [3, 0]),
        ("minimum", [-2, -2]),
        ("logical_and", [1, 0]),
        ("logical_or", [1, 1]),
        ("logical_xor", [1, 1]),
        ("abs_max", [3, -2]),
        ("abs_min", [1, 0]),
    ],
)
def test_reduction_of_the_last_axis(name: str, expected: list[float]) -> None:
    out = ops.reduce(name, f32(1, 3, -2, -2, 0, 0).reshape(2, 3), (1,))
    assert out.dtype == np.float32
    assert out.tolist() == expected


def test_bitvec_reductions_keep_the_integer_type() -> None:
    x = np.array([[0b1100, 0b1010, 0b1111], [1, 2, 4]], np.uint8)
    for name, expected in {"bitwise_and": [0b1000, 0], "bitwise_or": [0b1111, 7], "bitwise_xor": [0b1001, 7]}.items():
        out = ops.reduce(name, x, (1,))
        assert out.dtype == np.uint8
        assert out.tolist() == expected


def test_reductions_take_several_axes_and_negative_ones() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert ops.reduce("add", x, (1, 2)).tolist() == [66, 210]
    assert ops.reduce("add", x, (-1,)).tolist() == [[6, 22, 38], [54, 70, 86]]
    assert ops.reduce("maximum", x, (1,)).tolist() == [[8, 9, 10, 11], [20, 21, 22, 23]]


def test_a_sum_of_integers_is_in_float32() -> None:
    assert ops.reduce("add", np.full((1, 3), 2**31 - 1, np.int32), (1,)).tolist() == [3 * 2.0**31]


def test_a_reduction_does_not_depend_on_the_layout_in_memory() -> None:
    x = np.random.default_rng(0).normal(size=(7, 33, 65)).astype(np.float32)
    transposed = np.ascontiguousarray(x.transpose(2, 1, 0)).transpose(2, 1, 0)
    for axes in ((1, 2), (2,), (1,)):
        assert np.array_equal(ops.reduce("add", x, axes), ops.reduce("add", transposed, axes))


@pytest.mark.parametrize("name", [n for n, op in ops.ALU_OPS.items() if op.reduces and n != "subtract"])
def test_an_empty_reduction_is_neutral_to_one_more_element(name: str) -> None:
    kind = np.int32 if ops.ALU_OPS[name].bitvec else np.float32
    values = (0, 1) if name.startswith("logical") else (5, -3, 0)
    for value in values:
        x = np.array([value], kind)
        assert ops.apply(name, ops.reduce(name, x[:0], (0,)), x, integer=False).tolist() == [value]


def test_subtract_of_nothing_is_refused() -> None:
    with pytest.raises(ProgramError) as error:
        ops.reduce("subtract", np.zeros((2, 0), np.float32), (1,))
    assert str(error.value) == "a reduction of no elements with subtract; at least one element"


@pytest.mark.parametrize("name", [n for n, op in ops.ALU_OPS.items() if not op.reduces])
def test_a_reduction_with_another_operator_is_refused(name: str) -> None:
    with pytest.raises(ProgramError) as error:
        ops.reduce(name, f32(1, 2), (0,))
    assert str(error.value) == (
        f"a reduction with {name}; one of bitwise_and, bitwise_or, bitwise_xor, add, subtract, multiply, maximum, "
        "minimum, logical_and, logical_or, logical_xor, abs_max, abs_min (nki.api.shared, Legal Reduction op)"
    )


# --- activation functions ----------------------------------------------------------------------------------------


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def normal(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


def derivative(f: Callable[[float], float]) -> Callable[[float], float]:
    """The central difference, good to about 1e-9: another way to the derivative than its formula."""
    return lambda x: (f(x + 1e-5) - f(x - 1e-5)) / 2e-5


def gelu(x: float) -> float:
    return x * normal(x)


def gelu_apprx_sigmoid(x: float) -> float:
    return x * sigmoid(1.702 * x)


def silu(x: float) -> float:
    return x * sigmoid(x)


REFERENCE: dict[str, Callable[[float], float]] = {
    "copy": lambda x: x,
    "square": lambda x: x * x,
    "sigmoid": sigmoid,
    "relu": lambda x: x if x > 0 else 0.0,
    "gelu": gelu,
    "gelu_apprx_tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu_apprx_sigmoid": gelu_apprx_sigmoid,
    "silu": silu,
    "tanh": math.tanh,
    "softplus": lambda x: math.log1p(math.exp(x)),
    "mish": lambda x: x * math.tanh(math.log1p(math.exp(x))),
    "erf": math.erf,
    "exp": math.exp,
    "arctan": math.atan,
    "sign": lambda x: math.copysign(1, x) if x else 0.0,
    "abs": abs,
}
POSITIVE: dict[str, Callable[[float], float]] = {
    "log": math.log,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "reciprocal": lambda x: 1 / x,
}
DERIVATIVES = {
    "gelu_dx": derivative(gelu),
    "gelu_apprx_sigmoid_dx": derivative(gelu_apprx_sigmoid),
    "silu_dx": derivative(silu),
    "erf_dx": derivative(math.erf),
}
GRID = np.linspace(-20, 20, 4001).astype(np.float32)


def ulps(got: npt.NDArray[np.float32], want: list[float]) -> float:
    """The largest distance in units in the last place of float32."""
    exact = np.array(want)
    unit = np.spacing(np.maximum(np.abs(exact), 2.0**-126).astype(np.float32)).astype(np.float64)
    return float(np.max(np.abs(got.astype(np.float64) - exact) / unit))


@pytest.mark.parametrize("name", sorted(set(REFERENCE) - {"gelu_apprx_tanh"}))
def test_function_is_the_float32_nearest_to_the_reference(name: str) -> None:
    out = ops.act_fn(name).function(GRID)
    assert out.dtype == np.float32
    assert ulps(out, [REFERENCE[name](float(x)) for x in GRID]) <= 0.5001


def test_gelu_with_tanh_agrees_with_its_usual_form_where_that_is_accurate() -> None:
    x = GRID[GRID > -1]
    assert ulps(ops.act_fn("gelu_apprx_tanh").function(x), [REFERENCE["gelu_apprx_tanh"](float(v)) for v in x]) <= 0.5001
    low = GRID[GRID <= -1]
    want = [REFERENCE["gelu_apprx_tanh"](float(v)) for v in low]
    assert np.allclose(ops.act_fn("gelu_apprx_tanh").function(low), want, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", POSITIVE)
def test_function_of_a_positive_number_is_the_float32_nearest_to_the_reference(name: str) -> None:
    x = np.geomspace(2.0**-80, 2.0**90, 2001).astype(np.float32)
    assert ulps(ops.act_fn(name).function(x), [POSITIVE[name](float(v)) for v in x]) <= 0.5001


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivative_is_the_slope_of_the_function(name: str) -> None:
    out = ops.act_fn(name).function(GRID)
    assert np.allclose(out, [DERIVATIVES[name](float(x)) for x in GRID], rtol=0, atol=2e-7)
    assert abs(float(ops.act_fn(name).function(f32(0.5))[0]) - DERIVATIVES[name](0.5)) < 1e-7


@given(st.floats(-30, 30))
def test_erf_and_erfc_are_accurate_in_float64(x: float) -> None:
    got = float(ops._erf(np.array(x))), float(ops._erfc(np.array(x)))
    assert got[0] == pytest.approx(math.erf(x), rel=1e-13, abs=1e-300)
    assert got[1] == pytest.approx(math.erfc(x), rel=3e-13, abs=1e-300)


def test_erf_is_odd_and_continuous_where_the_two_expansions_meet() -> None:
    around = np.array([np.nextafter(2, 0), 2, np.nextafter(2, 3)])
    assert np.max(np.abs(np.diff(ops._erf(around)))) < 1e-15
    assert np.array_equal(ops._erf(-around), -ops._erf(around))


@pytest.mark.parametrize(
    ("name", "at_minus_inf", "at_inf"),
    [
        ("copy", -math.inf, math.inf),
        ("square", math.inf, math.inf),
        ("sigmoid", 0, 1),
        ("relu", 0, math.inf),
        ("gelu", 0, math.inf),
        ("gelu_dx", 0, 1),
        ("gelu_apprx_tanh", 0, math.inf),
        ("gelu_apprx_sigmoid", 0, math.inf),
        ("gelu_apprx_sigmoid_dx", 0, 1),
        ("silu", 0, math.inf),
        ("silu_dx", 0, 1),
        ("tanh", -1, 1),
        ("softplus", 0, math.inf),
        ("mish", 0, math.inf),
        ("erf", -1, 1),
        ("erf_dx", 0, 0),
        ("exp", 0, math.inf),
        ("sign", -1, 1),
        ("abs", math.inf, math.inf),
    ],
)
def test_functions_valid_at_infinity_take_their_limits_there(name: str, at_minus_inf: float, at_inf: float) -> None:
    fn = ops.act_fn(name)
    assert fn.function(f32(-math.inf, math.inf)).tolist() == [at_minus_inf, at_inf]
    near = fn.function(f32(-3e38, 3e38)).tolist()
    assert all(value == limit for value, limit in zip(near, (at_minus_inf, at_inf), strict=True) if math.isfinite(limit))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_nan_passes_through_every_function_without_a_warning(name: str) -> None:
    assert np.isnan(ops.act_fn(name).function(f32(math.nan))).all()


def test_invalid_arguments_give_ieee_results_without_a_warning() -> None:
    assert ops.act_fn("log").function(f32(0)).tolist() == [-math.inf]
    assert np.isnan(ops.act_fn("log").function(f32(-1))).all()
    assert np.isnan(ops.act_fn("sqrt").function(f32(-1))).all()
    assert ops.act_fn("rsqrt").function(f32(0)).tolist() == [math.inf]
    assert ops.act_fn("reciprocal").function(f32(0, -0.0)).tolist() == [math.inf, -math.inf]
    assert ops.act_fn("exp").function(f32(89)).tolist() == [math.inf]


def test_sin_is_a_sine_within_pi_and_a_cubic_beyond() -> None:
    inside = np.linspace(-3.1415925, 3.1415925, 1001).astype(np.float32)
    assert ulps(ops.act_fn("sin").function(inside), [math.sin(float(x)) for x in inside]) <= 0.5001
    out = ops.act_fn("sin").function(f32(9, -9))
    assert out[0] == pytest.approx(27.65, abs=0.005)  # nki.api.shared: "sin(9.0) returns ~27.65"
    assert out[1] == -out[0]


def test_prelu_takes_its_slope_as_a_number_or_per_partition() -> None:
    x = f32(-2, 3, -4, 5).reshape(2, 2)
    assert ops.act_fn("prelu").function(x, 0.25).tolist() == [[-0.5, 3], [-1, 5]]
    assert ops.act_fn("prelu").function(x, f32(0.5, 2).reshape(2, 1)).tolist() == [[-1, 3], [-8, 5]]
    assert ops.act_fn("prelu").function(x).tolist() == [[0, 3], [0, 5]]
    assert ops.act_fn("relu").function(x, 0.25).tolist() == [[0, 3], [0, 5]]


def test_arguments_are_rounded_to_float32_before_the_function() -> None:
    assert ops.act_fn("square").function(i32(2**24 + 1)).tolist() == [2.0**48]
    assert ops.act_fn("exp").function(np.array([0.5], ml_dtypes.bfloat16)).tolist() == [float(np.float32(math.exp(0.5)))]
    assert ops.act_fn("copy").function(0.1).tolist() == float(np.float32(0.1))


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(), (0,), (2, 3, 4)])
def test_functions_keep_the_shape(name: str, shape: tuple[int, ...]) -> None:
    out = ops.act_fn(name).function(np.full(shape, 0.5, np.float32))
    assert out.shape == shape
    assert out.dtype == np.float32


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    # nki.api.shared, Valid Input Range.
    [
        ("exp", [-math.inf, 0, math.inf], [math.nan]),
        ("log", [2.0**-64, 2.0**64], [0, -1, 2.0**-65, 2.0**65]),
        ("sin", [-3.14, 3.14], [-3.15, 3.15]),
        ("arctan", [-1.57, 1.57], [-1.58, 1.58]),
        ("sqrt", [2.0**-116, 2.0**118], [0, 2.0**-117, 2.0**119]),
        ("rsqrt", [2.0**-87, 2.0**97], [0, 2.0**-88, 2.0**98]),
        ("reciprocal", [2.0**-42, -(2.0**-42), 2.0**42, -(2.0**42)], [0, 2.0**-43, -(2.0**43)]),
    ],
)
def test_the_valid_input_range_is_the_documented_one(name: str, inside: list[float], outside: list[float]) -> None:
    fn = ops.act_fn(name)
    assert fn.accepts(f32(*inside)).all()
    assert not fn.accepts(f32(*outside)).any()


def test_only_six_functions_have_a_limited_range() -> None:
    limited = [fn.name for fn in ops.ACT_FNS.values() if not fn.accepts(f32(-3e38, 0, 3e38)).all()]
    assert limited == ["log", "sin", "arctan", "sqrt", "rsqrt", "reciprocal"]


@given(
    st.floats(-100, 100, width=32),
    st.floats(-100, 100, width=32),
    st.sampled_from(["sigmoid", "tanh", "erf", "exp", "softplus"]),
)
def test_monotone_functions_stay_monotone_after_rounding(a: float, b: float, name: str) -> None:
    low, high = ops.act_fn(name).function(f32(min(a, b), max(a, b)))
    assert low <= high


def test_rows_are_frozen() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        ops.ALU_OPS["add"].name = "plus"  # type: ignore[misc]
