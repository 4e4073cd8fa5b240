"""ALU operators and activation functions, one row each.

Sources, all from the public Neuron documentation (SDK 2.32 unless a version is named):
[ops] nki/api/nki.api.shared.rst, Supported Math Operators · [2.26] the same table in SDK 2.26, which had logical_not
[act] nki/api/nki.api.shared.rst, Supported Activation Functions · [nl] the page of that name in nki.language
[tt] nki.isa.tensor_tensor · [ts] nki.isa.tensor_scalar · [act2] nki.isa.activate2 · [trace] published device profiles
"""

from __future__ import annotations

import difflib
import functools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from .errors import ProgramError

Array = npt.NDArray[Any]
Scalar = int | float | np.generic
_MODULES = ("nki.language.", "nl.", "numpy.", "np.")


# --- ALU operators -----------------------------------------------------------------------------------------------


@attrs.frozen
class AluOp:
    """One ALU operator.

    `function` takes one (`unary`) or two float32 arrays and returns float32; with `bitvec`, and in native arithmetic if
    `integer`, it takes integer arrays of one type and returns that type. Truth values are 1 and 0.
    `reduces`: a legal reduction operator, whose empty reduction is `identity` (None: it has none).
    `trace_name` is how device profiles print it: ADD, MULTIPLY, MAX and BYPASS are seen [trace], the rest assumed.
    `since`: the first NeuronCore version that has it.
    """

    name: str
    trace_name: str
    function: Callable[..., Array]
    unary: bool = False
    bitvec: bool = False
    integer: bool = False
    reduces: bool = False
    identity: float | None = None
    aliases: tuple[str, ...] = ()
    source: str = "ops"
    since: int = 2


def _truth(predicate: Callable[..., Array]) -> Callable[..., Array]:
    """`predicate` with its answer as 1 and 0 in the type of its first operand."""

    def truth(a: Array, *b: Array) -> Array:
        return np.asarray(predicate(a, *b)).astype(a.dtype)

    return truth


def _shift(ufunc: np.ufunc) -> Callable[[Array, Array], Array]:
    """A logical shift: the bits count, whatever the sign of the type. By the width or more: 0 (assumed)."""

    def shift(a: Array, b: Array) -> Array:
        unsigned = np.dtype(f"u{a.dtype.itemsize}")
        bits, count = np.asarray(a).view(unsigned), np.asarray(b).view(unsigned)
        width = 8 * unsigned.itemsize
        moved: Array = ufunc(bits, np.minimum(count, width - 1))
        return np.asarray(np.where(count < width, moved, 0), dtype=unsigned).view(a.dtype)

    return shift


def _by_magnitude(wins: np.ufunc) -> Callable[[Array, Array], Array]:
    """The first operand where its magnitude `wins` against that of the second, else the second."""
    return lambda a, b: np.where(wins(np.abs(a), np.abs(b)), a, b)


_ALU_ROWS = (
    # Bitvec: bit patterns of integers, no conversion. There is no arithmetic right shift: "Not supported" [ops].
    AluOp("invert", "INVERT", np.invert, unary=True, bitvec=True, aliases=("bitwise_not",)),
    AluOp("bitwise_and", "BITWISE_AND", np.bitwise_and, bitvec=True, reduces=True, identity=-1),
    AluOp("bitwise_or", "BITWISE_OR", np.bitwise_or, bitvec=True, reduces=True, identity=0),
    AluOp("bitwise_xor", "BITWISE_XOR", np.bitwise_xor, bitvec=True, reduces=True, identity=0),
    AluOp("left_shift", "LOGICAL_SHIFT_LEFT", _shift(np.left_shift), bitvec=True),
    AluOp("right_shift", "LOGICAL_SHIFT_RIGHT", _shift(np.right_shift), bitvec=True),
    # Arithmetic. max and min let a NaN through, as numpy does (assumed).
    AluOp("add", "ADD", np.add, integer=True, reduces=True, identity=0, aliases=("sum",)),
    # Legal as a reduction [ops]; assumed to subtract the other elements from the first, so it has no identity.
    AluOp("subtract", "SUBTRACT", np.subtract, integer=True, reduces=True),
    AluOp("multiply", "MULTIPLY", np.multiply, integer=True, reduces=True, identity=1, aliases=("prod",)),
    AluOp("maximum", "MAX", np.maximum, integer=True, reduces=True, identity=-math.inf, aliases=("max", "amax")),
    AluOp("minimum", "MIN", np.minimum, integer=True, reduces=True, identity=math.inf, aliases=("min", "amin")),
    AluOp("equal", "IS_EQUAL", _truth(np.equal), integer=True),
    AluOp("not_equal", "IS_NOT_EQUAL", _truth(np.not_equal), integer=True),
    AluOp("greater_equal", "IS_GREATER_EQUAL", _truth(np.greater_equal), integer=True),
    AluOp("greater", "IS_GREATER", _truth(np.greater), integer=True),
    AluOp("less_equal", "IS_LESS_EQUAL", _truth(np.less_equal), integer=True),
    AluOp("less", "IS_LESS", _truth(np.less), integer=True),
    AluOp("logical_and", "LOGICAL_AND", _truth(np.logical_and), integer=True, reduces=True, identity=1, aliases=("all",)),
    AluOp("logical_or", "LOGICAL_OR", _truth(np.logical_or), integer=True, reduces=True, identity=0),
    AluOp("logical_xor", "LOGICAL_XOR", _truth(np.logical_xor), integer=True, reduces=True, identity=0),
    # Meant for 0 and 1 only [nl]; any other number counts as true (assumed).
    AluOp("logical_not", "LOGICAL_NOT", _truth(np.logical_not), unary=True, integer=True, source="2.26"),
    AluOp("power", "POWER", np.power, aliases=("pow",)),
    # The operand of larger (smaller) magnitude, sign kept; the second on a tie [nl]. Reduction: [act2] allows it, [ops]
    # does not list it. NeuronCore-v4 only [nl].
    AluOp("abs_max", "ABS_MAX", _by_magnitude(np.greater), reduces=True, identity=0, since=4),
    AluOp("abs_min", "ABS_MIN", _by_magnitude(np.less), reduces=True, identity=math.inf, since=4),
    AluOp("abs", "ABS", np.abs, unary=True, integer=True, aliases=("absolute",)),
    AluOp("square", "SQUARE", np.square, unary=True, integer=True),
    AluOp("relu", "RELU", lambda a: np.maximum(a, a.dtype.type(0)), unary=True, integer=True),
    AluOp("rsqrt", "RSQRT", lambda a: np.float32(1) / np.sqrt(a), unary=True),
    AluOp("reciprocal", "RECIPROCAL", lambda a: np.float32(1) / a, unary=True),
    # Passes data on unchanged, in its own type [nl].
    AluOp("bypass", "BYPASS", lambda a: a, unary=True, bitvec=True, integer=True, source="nl"),
    # In nki.language, not in the operator table. mod takes the sign of the divisor, fmod that of the dividend.
    AluOp("divide", "DIVIDE", np.divide, aliases=("true_divide",), source="nl"),
    AluOp("mod", "MOD", np.mod, aliases=("remainder",), source="nl"),
    AluOp("fmod", "FMOD", np.fmod, source="nl"),
)

ALU_OPS: dict[str, AluOp] = {row.name: row for row in _ALU_ROWS}
_ALU_SPELLINGS = {s: row for row in _ALU_ROWS for s in (row.name, *row.aliases)}


def alu_op(of: str | AluOp | Callable[..., Any], among: tuple[str, ...] = ()) -> AluOp:
    """The row for an NKI name (`add`, `nl.add`), a numpy function (`np.add`, `np.max`) or one of nki.language.

    `among` are the rows that the caller takes, if not all: the error of an unknown name lists no others.
    """
    if isinstance(of, AluOp):
        return of
    name = _spelling(of)
    if name not in _ALU_SPELLINGS:
        spellings = [s for s, row in _ALU_SPELLINGS.items() if not among or row.name in among]
        raise _unknown("ALU operator", of, name, among or ALU_OPS, spellings, "nki.api.shared, Supported Math Operators")
    return _ALU_SPELLINGS[name]


def apply(op: str | AluOp, a: Array | Scalar, b: Array | Scalar | None = None, *, integer: bool | None = None) -> Array:
    """`a op b`, elementwise with numpy broadcasting; a unary op ignores `b` (tensor_scalar passes 0.0 to rsqrt [ops]).

    - bitvec: integers of one width, as bit patterns; a Python number becomes the bits of that width. Result: the type
      of the first array [ops, ts].
    - arithmetic: both operands to float32, float32 out; the caller rounds to the destination [ops, tt, ts].
    - arithmetic with `integer`: GpSimd's native arithmetic, for int32 or uint32 in and out ("exact results for all
      32-bit integer values") [tt]; it wraps modulo 2**32 (assumed; public Philox kernels rely on it). None, the
      default, means what tensor_tensor does when no engine is named: native for two arrays of int32 or of uint32. Pass
      False for the Vector Engine (named, or an operand in PSUM), which computes in float32 all the same.

    `ProgramError` if the types do not fit.
    """
    row = alu_op(op)
    operands = (a,) if row.unary else (a, b)
    if operands[-1] is None:
        raise ProgramError("", f"{row.name} with one operand", "two operands", "nki.api.shared")
    if row.name == "bypass":
        return np.array(a)
    if integer is None:
        integer = not row.unary and row.integer and _native(operands)
    with np.errstate(all="ignore"):
        if row.bitvec or integer:
            return np.asarray(row.function(*_integers(row, operands)))
        return np.asarray(row.function(*(np.asarray(x).astype(np.float32) for x in operands)), dtype=np.float32)


def reduce(op: str | AluOp, data: Array, axes: Sequence[int]) -> Array:
    """`data` reduced over `axes`, which vanish: float32, or the integer type of `data` for a bitvec op.

    Elements are taken in row-major order; float32 sums use numpy's pairwise order, because no source gives the order
    of the engine. An empty reduction is the identity.
    """
    row = alu_op(op)
    if not row.reduces:
        legal = ", ".join(name for name, other in ALU_OPS.items() if other.reduces)
        raise ProgramError("", f"a reduction with {row.name}", f"one of {legal}", "nki.api.shared, Legal Reduction op")
    with np.errstate(all="ignore"):
        values = _integers(row, (data,))[0] if row.bitvec else data.astype(np.float32)
    # One contiguous axis: the order of summation then depends on the values alone, not on the layout in memory.
    kept = [axis for axis in range(values.ndim) if axis not in {int(i) % values.ndim for i in axes}]
    order = kept + [axis for axis in range(values.ndim) if axis not in kept]
    shape = tuple(values.shape[axis] for axis in kept)
    count = math.prod(values.shape[axis] for axis in order[len(kept) :])
    flat = np.ascontiguousarray(values.transpose(order)).reshape(*shape, count)
    if count == 0:
        if row.identity is None:
            raise ProgramError("", f"a reduction of no elements with {row.name}", "at least one element")
        return np.full(shape, row.identity, dtype=np.int64 if row.bitvec else np.float32).astype(values.dtype)
    with np.errstate(all="ignore"):
        if isinstance(row.function, np.ufunc):
            return np.asarray(row.function.reduce(flat, axis=-1), dtype=values.dtype)
        return functools.reduce(row.function, (flat[..., i] for i in range(1, count)), flat[..., 0])


def _native(operands: Sequence[Array | Scalar | None]) -> bool:
    """Whether all operands are arrays of int32, or all of uint32."""
    kinds = {x.dtype if isinstance(x, np.ndarray) else None for x in operands}
    return kinds in ({np.dtype(np.int32)}, {np.dtype(np.uint32)})


def _integers(op: AluOp, operands: Sequence[Array | Scalar | None]) -> list[Array]:
    """The operands as integer arrays of the type of the first array among them."""
    arrays = [x for x in operands if isinstance(x, np.ndarray)]
    names = " and ".join(x.dtype.name for x in arrays) or "no array"
    if op.bitvec:
        if not arrays or any(x.dtype.kind not in "iu" or x.itemsize != arrays[0].itemsize for x in arrays):
            required = "integers of one width, which bitvec operators do not convert"
            raise ProgramError("", f"{op.name} of {names}", required, "nki.isa.tensor_tensor")
    elif not op.integer:
        raise ProgramError("", f"{op.name} in native integers", "float32 arithmetic", "nki.isa.tensor_tensor")
    elif not _native(arrays):
        required = "operands all int32 or all uint32"
        raise ProgramError("", f"{op.name} of {names} in native integers", required, "nki.isa.tensor_tensor")
    kind = arrays[0].dtype
    return [x.view(kind) if isinstance(x, np.ndarray) else _bits(op, x, kind) for x in operands]


def _bits(op: AluOp, number: Any, kind: np.dtype[Any]) -> Array:
    """A Python number as one integer of type `kind`: any value that the width holds, signed or not."""
    width = 8 * kind.itemsize
    try:
        value = operator.index(number)
    except TypeError:
        value = int(number) if isinstance(number, float) and number.is_integer() else 1 << width
    if not -(1 << width - 1) <= value < 1 << width:
        raise ProgramError("", f"{op.name} of {kind.name} with {number!r}", f"an integer of {width} bits")
    return np.array(value % (1 << width), dtype=f"u{kind.itemsize}").view(kind)


# --- activation functions ----------------------------------------------------------------------------------------


@attrs.frozen
class ActFn:
    """One activation function of the Scalar Engine, which computes it by piecewise polynomials nobody publishes.

    `formula` is the ideal function in float64; `function` rounds it once to float32, so a value is the float32 nearest
    to the ideal, but for rare near-ties.
    `low`, `high`: the valid input range [act], of |x| with `by_magnitude`; outside, the hardware's result is invalid
    and ours is the ideal, except for sin. `table` is the name under which chip files group functions into
    table sets, or none for copy, which evaluates no polynomial.
    `trace_name` is how device profiles print it: EXP is seen [trace], the rest assumed.
    """

    name: str
    formula: Callable[..., Array]
    low: float = -math.inf
    high: float = math.inf
    by_magnitude: bool = False
    parametric: bool = False
    aliases: tuple[str, ...] = ()
    table: str = attrs.field(default=attrs.Factory(lambda self: self.name, takes_self=True))
    trace_name: str = attrs.field(default=attrs.Factory(lambda self: self.name.upper(), takes_self=True))

    def function(self, x: Array | Scalar, relu_param: Array | Scalar = 0.0) -> npt.NDArray[np.float32]:
        """f(x) in float32, elementwise; `x` is first rounded to float32. Only prelu reads `relu_param` [act2]."""
        with np.errstate(all="ignore"):
            wide = [np.asarray(v).astype(np.float32).astype(np.float64) for v in (x, relu_param)]
            return np.asarray(self.formula(*wide[: 1 + self.parametric]), dtype=np.float64).astype(np.float32)

    def accepts(self, x: Array | Scalar) -> npt.NDArray[np.bool_]:
        """Where `x` lies in the valid input range of the hardware; NaN does not."""
        value = np.abs(x) if self.by_magnitude else np.asarray(x)
        return np.asarray((self.low <= value) & (value <= self.high))


def _erf_small(x: Array) -> Array:
    """erf for |x| < 2: 2/sqrt(pi) exp(-x^2) x sum (2x^2)^n / (2n+1)!!, of positive terms, so without cancellation."""
    series = np.ones_like(x)
    for n in range(40, 0, -1):
        series = 1 + series * (2 * x * x / (2 * n + 1))
    return np.asarray(2 / math.sqrt(math.pi) * np.exp(-x * x) * x * series)


def _erfc_large(x: Array) -> Array:
    """erfc for x >= 2: exp(-x^2)/sqrt(pi) / (x + (1/2)/(x + (2/2)/(x + (3/2)/(x + ...)))), Laplace's fraction."""
    tail = x
    for n in range(60, 0, -1):
        tail = x + n / 2 / tail
    return np.asarray(np.exp(-x * x) / (math.sqrt(math.pi) * tail))


def _erf(x: Array) -> Array:
    magnitude = np.abs(x)
    large = np.copysign(1 - _erfc_large(np.maximum(magnitude, 2)), x)
    return np.where(magnitude < 2, _erf_small(np.clip(x, -2, 2)), large)


def _erfc(x: Array) -> Array:
    tail = _erfc_large(np.maximum(np.abs(x), 2))
    return np.where(np.abs(x) < 2, 1 - _erf_small(np.clip(x, -2, 2)), np.where(x > 0, tail, 2 - tail))


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _normal(x: Array) -> Array:
    """P(Z <= x) of the standard normal distribution."""
    return np.asarray(_erfc(-x / math.sqrt(2)) / 2)


def _softplus(x: Array) -> Array:
    return np.asarray(np.logaddexp(0, x))


def _floored(x: Array) -> Array:
    """x from -1000 up: there x g(x) with a vanishing g is 0 in float64, while at -inf it would be -inf * 0 = NaN."""
    return np.maximum(x, -1000)


def _bounded(x: Array) -> Array:
    return np.clip(x, -1000, 1000)


def _gelu_tanh(x: Array) -> Array:
    # (1 + tanh z) / 2 = sigmoid(2z), which keeps its relative accuracy for negative z.
    return np.asarray(x * _sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _sigmoid_gate_dx(x: Array, slope: float) -> Array:
    """d/dx of x sigmoid(slope x)."""
    gate = _sigmoid(slope * x)
    return np.asarray(gate + slope * x * gate * (1 - gate))


def _sin(x: Array) -> Array:
    """sin within [-pi, pi]; outside, the cubic about the nearer bound.

    The engine does no range reduction: it "extrapolates a cubic outside [-PI, PI] and sin(9.0) returns ~27.65" [act].
    The third-order expansion about pi, -(x-pi) + (x-pi)^3/6, gives 27.65 at 9.0: derived from that one value.
    """
    beyond = np.abs(x) - math.pi
    return np.where(beyond <= 0, np.sin(x), np.copysign(1, x) * (beyond**3 / 6 - beyond))


_ACT_ROWS = (
    ActFn("copy", lambda x: x, aliases=("identity",), table="none"),
    ActFn("square", np.square),
    ActFn("sigmoid", _sigmoid),
    ActFn("relu", lambda x: np.maximum(x, 0)),
    ActFn("prelu", lambda x, slope: np.where(x < 0, slope * x, x), parametric=True),
    ActFn("gelu", lambda x: _floored(x) * _normal(_floored(x))),
    ActFn("gelu_dx", lambda x: _normal(x) + _bounded(x) * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)),
    ActFn("gelu_apprx_tanh", lambda x: _gelu_tanh(_floored(x))),
    ActFn("gelu_apprx_sigmoid", lambda x: _floored(x) * _sigmoid(1.702 * _floored(x))),
    ActFn("gelu_apprx_sigmoid_dx", lambda x: _sigmoid_gate_dx(_bounded(x), 1.702)),
    ActFn("silu", lambda x: _floored(x) * _sigmoid(_floored(x)), aliases=("swish",)),
    ActFn("silu_dx", lambda x: _sigmoid_gate_dx(_bounded(x), 1.0)),
    ActFn("tanh", np.tanh),
    ActFn("softplus", _softplus),
    ActFn("mish", lambda x: _floored(x) * np.tanh(_softplus(_floored(x)))),
    ActFn("erf", _erf),
    ActFn("erf_dx", lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x)),
    ActFn("exp", np.exp),
    ActFn("log", np.log, 2.0**-64, 2.0**64, aliases=("ln",)),
    ActFn("sin", _sin, -math.pi, math.pi),
    ActFn("arctan", np.arctan, -math.pi / 2, math.pi / 2),
    ActFn("sqrt", np.sqrt, 2.0**-116, 2.0**118),
    ActFn("rsqrt", lambda x: 1 / np.sqrt(x), 2.0**-87, 2.0**97),
    ActFn("reciprocal", lambda x: 1 / x, 2.0**-42, 2.0**42, by_magnitude=True),
    ActFn("sign", np.sign),
    ActFn("abs", np.abs, aliases=("absolute",)),
)

ACT_FNS: dict[str, ActFn] = {row.name: row for row in _ACT_ROWS}
_ACT_SPELLINGS = {s: row for row in _ACT_ROWS for s in (row.name, *row.aliases)}


def act_fn(of: str | ActFn | Callable[..., Any]) -> ActFn:
    """The row for an NKI name (`exp`, `nl.exp`), a numpy function (`np.exp`) or one of nki.language."""
    if isinstance(of, ActFn):
        return of
    name = _spelling(of)
    if name not in _ACT_SPELLINGS:
        source = "nki.api.shared, Supported Activation Functions"
        raise _unknown("activation function", of, name, ACT_FNS, _ACT_SPELLINGS, source)
    return _ACT_SPELLINGS[name]


def _spelling(of: object) -> str:
    """The bare name in a string or of a function of numpy or nki.language; empty for any other object."""
    if isinstance(of, str):
        return of.removeprefix(next((m for m in _MODULES if of.startswith(m)), ""))
    module = str(getattr(of, "__module__", ""))
    known = isinstance(of, np.ufunc) or module.split(".")[0] == "numpy" or module.endswith("nki.language")
    return str(getattr(of, "__name__", "")) if known and callable(of) else ""


def _unknown(what: str, of: object, name: str, rows: Iterable[str], spellings: Iterable[str], source: str) -> ProgramError:
    short = name.lower()
    begun = [s for s in spellings if short and s.startswith(short)]  # `mul` is not close to multiply, `sub` closer to sum
    near = list(dict.fromkeys([*begun, *difflib.get_close_matches(short, spellings, n=3)]))[:3]
    hint = f" (near: {', '.join(near)})" if near else ""
    return ProgramError("", f"{what} {of!r}{hint}", f"one of {', '.join(rows)}", source)
