"""Field kinds: one declaration gives an operand its range check, its msgpack form and its text form."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import attrs
import numpy as np

from .dtypes import DTYPES, DType
from .dtypes import dtype as as_dtype
from .dynamic import Register
from .errors import ProgramError
from .ops import ACT_FNS, ALU_OPS, act_fn, alu_op
from .view import Memory, View
from .view_text import dynamic, parse_index, parse_view

WORD = 1 << 63
WORD32 = 1 << 31
LARGEST = sys.float_info.max
MAX_AXIS = 31  # far above any view's dimensions; checks of instructions count up to the number they are given


class Kind(Protocol):
    """How one kind of field is checked, stored and printed. `text` has no spaces, so that a line splits at them."""

    def check(self, value: Any) -> Any: ...
    def encode(self, value: Any) -> Any: ...
    def decode(self, raw: Any) -> Any: ...
    def text(self, value: Any) -> str: ...
    def parse(self, text: str) -> Any: ...


def _encode_view(v: View) -> list[Any]:
    static = [v.tensor, int(v.memory), v.dtype.name, v.partition, v.partitions, v.offset, list(v.strides), list(v.counts)]
    if (d := v.dynamic) is None:
        return static
    index = d.index.name if isinstance(d.index, Register) else d.index if isinstance(d.index, int) else _encode_view(d.index)
    return [*static, [index, d.kind if d.kind == "columns" else d.vector, d.step, d.low, d.high]]


def _decode_view(raw: Any) -> View:
    if not isinstance(raw, list | tuple) or len(raw) not in (8, 9):
        raise ProgramError("", f"view {raw!r}"[:200], "eight values, and a ninth for a dynamic offset")
    tensor, memory, dtype, partition, partitions, offset, strides, counts = raw[:8]
    numbers = [memory, partition, partitions, offset, *strides, *counts]
    if not all(type(n) is int for n in numbers) or not isinstance(tensor, str) or not isinstance(dtype, str) or memory not in (0, 1, 2):
        raise ProgramError("", f"view {raw!r}"[:200], "names and whole numbers")
    # The text parser holds the one validation of views; untrusted bytes pass through it.
    place = "" if memory == 0 else f"@{partition}:{partition + partitions}"
    shape = f"[{','.join(map(str, strides))}][{','.join(map(str, counts))}]"
    text = f"{('hbm', 'sbuf', 'psum')[memory]}:{tensor}+{offset:#x}:{dtype}{shape}{place}"
    return parse_view(text if len(raw) == 8 else f"{text}{_decode_dynamic(raw[8])}")


def _decode_dynamic(raw: Any) -> str:
    """The text of a dynamic offset."""
    if not isinstance(raw, list | tuple) or len(raw) != 5 or not all(type(n) is int for n in raw[2:]):
        raise ProgramError("", f"offset {raw!r}"[:200], "an index, what it moves and three whole numbers")
    if type(raw[1]) is not bool and raw[1] != "columns":
        raise ProgramError("", f"offset {raw!r}"[:200], "true for rows, false for the start, or columns")
    index, kind = raw[0], raw[1] if raw[1] == "columns" else "rows" if raw[1] else "start"
    if type(index) is int or isinstance(index, str):
        return str(dynamic(parse_index(str(index)), kind, *raw[2:]))
    if not isinstance(index, list | tuple) or len(index) != 8:
        raise ProgramError("", f"index {index!r}"[:200], "eight values, a number or the name of a register")
    return str(dynamic(_decode_view(index), kind, *raw[2:]))


@attrs.frozen
class Operand:
    """A tensor operand. `writes` marks destinations.

    `dynamic` operands take an address that is known at run time only: one number for the whole, with `rows` also one for
    each row, with `columns` also one for each column.
    """

    writes: bool = False
    dynamic: bool = True
    rows: bool = False
    columns: bool = False

    def check(self, value: Any) -> View:
        if not isinstance(value, View):
            raise ProgramError("", f"{value!r}", "a view of a tensor")
        if (moved := value.dynamic) is not None:
            if not self.dynamic:
                copy = "dma_copy" if value.memory is Memory.HBM else "tensor_copy"
                read = f"{copy}(dst=one, src=...) of it into a tensor of its own, and that here"
                works = f"a tensor of its own here, and {copy}(dst=..., src=one) of that to it" if self.writes else read
                raise ProgramError("", f"{value}", f"an address known when the program is built: {works}")
            if moved.vector and not self.rows:
                raise ProgramError("", f"{value}", "one offset for the whole: only DMA takes one for each row", "nki.isa.dma_copy")
            if moved.kind == "columns" and not self.columns:
                raise ProgramError("", f"{value}", "an operand without .indirect()", "nki.isa, tensor indirection")
        return value

    encode = staticmethod(_encode_view)
    text = staticmethod(str)

    def decode(self, raw: Any) -> View:
        return self.check(_decode_view(raw))

    def parse(self, text: str) -> View:
        return self.check(parse_view(text))


@attrs.frozen
class Operands:
    """One to `most` tensor operands that are read, of which any address may come from a tensor at run time."""

    most: int

    def check(self, value: Any) -> tuple[View, ...]:
        if isinstance(value, View) or not isinstance(value, list | tuple):
            raise ProgramError("", f"{value!r}"[:200], "a list of views")
        if not 1 <= len(value) <= self.most:
            raise ProgramError("", f"{len(value)} views", f"1 to {self.most}")
        return tuple(ANYWHERE.check(v) for v in value)

    def encode(self, value: tuple[View, ...]) -> list[Any]:
        return [_encode_view(v) for v in value]

    def decode(self, raw: Any) -> tuple[View, ...]:
        return self.check([_decode_view(v) for v in raw] if isinstance(raw, list | tuple) else raw)

    def text(self, value: tuple[View, ...]) -> str:
        return "|".join(map(str, value))

    def parse(self, text: str) -> tuple[View, ...]:
        return self.check([parse_view(v) for v in text.split("|")])


@attrs.frozen
class Scalar:
    """A number, or a [P, 1] view that holds one number per partition."""

    writes: bool = False

    def check(self, value: Any) -> View | float | int:
        if isinstance(value, View):
            if value.elements != 1:
                raise ProgramError("", f"a view of shape {list(value.shape)}", "a number or a [P, 1] view")
            return READ.check(value)
        if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number):
            raise ProgramError("", f"{value!r}", "a number or a [P, 1] view")
        if isinstance(value, int | np.integer):
            if abs(int(value)) >= WORD:
                raise ProgramError("", f"a number of {int(value).bit_length()} bits", "whole numbers of at most 63 bits and a sign")
            return int(value)
        return float(value)

    def encode(self, value: Any) -> Any:
        return _encode_view(value) if isinstance(value, View) else value

    def decode(self, raw: Any) -> Any:
        return READ.decode(raw) if isinstance(raw, list | tuple) else self.check(raw)

    def text(self, value: Any) -> str:
        return str(value) if isinstance(value, View) else repr(value)

    def parse(self, text: str) -> Any:
        return READ.parse(text) if ":" in text else _number(text)


NUMBER = Scalar()


@attrs.frozen
class Value:
    """A number, or a tensor."""

    def check(self, value: Any) -> View | float | int:
        if not isinstance(value, View) and (isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number)):
            raise ProgramError("", f"{value!r}", "a number or a view of a tensor")
        return READ.check(value) if isinstance(value, View) else NUMBER.check(value)

    def decode(self, raw: Any) -> Any:
        return READ.decode(raw) if isinstance(raw, list | tuple) else self.check(raw)

    encode = staticmethod(NUMBER.encode)
    text = staticmethod(NUMBER.text)
    parse = staticmethod(NUMBER.parse)


@attrs.frozen
class Choice:
    """One name out of a table; `look_up` turns any accepted spelling into the table's row, `names` lists the rows."""

    names: tuple[str, ...]
    look_up: Callable[[Any], str]

    def check(self, value: Any) -> str:
        return self.look_up(value)

    def encode(self, value: str) -> str:
        return value

    decode = check
    text = encode
    parse = check


@attrs.frozen
class ElementType:
    """An element type, named as in the table of types."""

    def check(self, value: Any) -> DType:
        return as_dtype(value)

    def encode(self, value: DType) -> str:
        return value.name

    def decode(self, raw: Any) -> DType:
        return as_dtype(raw)

    def text(self, value: DType) -> str:
        return value.name

    def parse(self, text: str) -> DType:
        return DTYPES[text] if text in DTYPES else as_dtype(text)


@attrs.frozen
class Flag:
    """True or false."""

    def check(self, value: Any) -> bool:
        if not isinstance(value, bool | np.bool_):
            raise ProgramError("", f"{value!r}", "True or False")
        return bool(value)

    encode = check
    decode = check

    def text(self, value: bool) -> str:
        return "1" if value else "0"

    def parse(self, text: str) -> bool:
        if text not in ("0", "1"):
            raise ProgramError("", f"{text!r}", "0 or 1")
        return text == "1"


@attrs.frozen
class Integer:
    """A whole number between `low` and `high`, both included."""

    low: int
    high: int

    def check(self, value: Any) -> int:
        if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
            raise ProgramError("", f"{value!r}", "a whole number")
        if not self.low <= value <= self.high:
            raise ProgramError("", f"{value}", f"{self.low} to {self.high}")
        return int(value)

    def encode(self, value: int) -> int:
        return value

    decode = check
    text = staticmethod(str)

    def parse(self, text: str) -> int:
        return self.check(_number(text))


@attrs.frozen
class Real:
    """A finite number."""

    def check(self, value: Any) -> float:
        real = isinstance(value, int | float | np.number) and not isinstance(value, bool | np.bool_)
        if not real or abs(value) > LARGEST or not math.isfinite(value):
            raise ProgramError("", f"{value!r}", "a finite number")
        return float(value)

    def encode(self, value: float) -> float:
        return value

    decode = check
    text = staticmethod(repr)

    def parse(self, text: str) -> float:
        return self.check(_number(text))


@attrs.frozen
class Reals:
    """Finite numbers, at least one."""

    def check(self, value: Any) -> tuple[float, ...]:
        if not isinstance(value, list | tuple) or not value:
            raise ProgramError("", f"{value!r}"[:200], "a list of numbers")
        return tuple(map(Real().check, value))

    def encode(self, value: tuple[float, ...]) -> list[float]:
        return list(value)

    decode = check

    def text(self, value: tuple[float, ...]) -> str:
        return ",".join(map(repr, value))

    def parse(self, text: str) -> tuple[float, ...]:
        return self.check([_number(n) for n in text.split(",")])


@attrs.frozen
class Pattern:
    """Pairs [step, count], outermost first."""

    def check(self, value: Any) -> tuple[tuple[int, int], ...]:
        try:
            pairs = tuple((int(s.__index__()), int(c.__index__())) for s, c in value)
        except (TypeError, ValueError, AttributeError):
            raise ProgramError("", f"{value!r}", "pairs [step, count]") from None
        if any(not 1 <= c < WORD32 or abs(s) >= WORD32 for s, c in pairs):
            raise ProgramError("", f"{[list(p) for p in pairs]}", "32-bit steps, and counts of at least 1")
        return pairs

    def encode(self, value: tuple[tuple[int, int], ...]) -> list[list[int]]:
        return [list(p) for p in value]

    decode = check

    def text(self, value: tuple[tuple[int, int], ...]) -> str:
        return "[" + ";".join(f"{s},{c}" for s, c in value) + "]"

    def parse(self, text: str) -> tuple[tuple[int, int], ...]:
        if not re.fullmatch(r"\[(-?\d+,\d+(;-?\d+,\d+)*)?\]", text):
            raise ProgramError("", f"{text!r}", "[step,count;step,count]")
        return self.check([tuple(map(int, p.split(","))) for p in text[1:-1].split(";") if p])


class _Numbers:
    """How a list of whole numbers is stored and printed; a kind says which lists it takes."""

    def check(self, value: Any) -> tuple[int, ...]:
        raise NotImplementedError(type(self).__name__)

    def encode(self, value: tuple[int, ...]) -> list[int]:
        return list(value)

    def text(self, value: tuple[int, ...]) -> str:
        return ",".join(map(str, value))

    def parse(self, text: str) -> tuple[int, ...]:
        return self.check([_number(n) for n in text.split(",")])


@attrs.frozen
class Axes(_Numbers):
    """Axis numbers: one, or several."""

    def check(self, value: Any) -> tuple[int, ...]:
        try:
            axes = (int(value.__index__()),) if hasattr(value, "__index__") else tuple(int(a.__index__()) for a in value)
        except (TypeError, AttributeError):
            raise ProgramError("", f"{value!r}", "an axis or a list of axes") from None
        if not axes:
            raise ProgramError("", "no axes", "at least one")
        if any(abs(a) > MAX_AXIS for a in axes):
            raise ProgramError("", f"axes {list(axes)}", f"-{MAX_AXIS} to {MAX_AXIS}")
        return axes

    decode = check


QUADRANT = 32  # partitions that a shuffle moves among
KEEP = 255  # in a shuffle's mask: the partition keeps its values


@attrs.frozen
class Mask(_Numbers):
    """32 partitions of a quadrant, 0 to 31 each, or 255 for none."""

    def check(self, value: Any) -> tuple[int, ...]:
        try:
            mask = tuple(int(m.__index__()) for m in value)
        except (TypeError, AttributeError):
            raise ProgramError("", f"{value!r}", "a list of whole numbers") from None
        if len(mask) != QUADRANT:
            raise ProgramError("", f"{len(mask)} elements", f"{QUADRANT}")
        for m in mask:
            if not 0 <= m < QUADRANT and m != KEEP:
                raise ProgramError("", f"{m}", f"0 to {QUADRANT - 1}, or {KEEP} for a partition that keeps its values")
        return mask

    decode = check


@attrs.frozen
class Pair(_Numbers):
    """Two whole numbers, (rows, columns), or () for none."""

    def check(self, value: Any) -> tuple[int, ...]:
        try:
            numbers = tuple(int(n.__index__()) for n in (() if value is None else value))
        except (TypeError, AttributeError):
            raise ProgramError("", f"{value!r}", "(rows, columns), whole numbers") from None
        if len(numbers) not in (0, 2) or any(not 0 <= n < WORD32 for n in numbers):
            raise ProgramError("", f"{numbers}", "(rows, columns), or () for none")
        return numbers

    decode = check

    def text(self, value: tuple[int, ...]) -> str:
        return ",".join(map(str, value)) or "none"

    def parse(self, text: str) -> tuple[int, ...]:
        return () if text == "none" else super().parse(text)


@attrs.frozen
class Maybe:
    """Another kind, or nothing."""

    kind: Any

    @property
    def writes(self) -> bool:
        return bool(getattr(self.kind, "writes", False))

    def check(self, value: Any) -> Any:
        return None if value is None else self.kind.check(value)

    def encode(self, value: Any) -> Any:
        return None if value is None else self.kind.encode(value)

    def decode(self, raw: Any) -> Any:
        return None if raw is None else self.kind.decode(raw)

    def text(self, value: Any) -> str:
        return "none" if value is None else self.kind.text(value)

    def parse(self, text: str) -> Any:
        return None if text == "none" else self.kind.parse(text)


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        raise ProgramError("", f"{text!r}", "a number") from None
    if math.isinf(number) and "inf" not in text.lower():
        raise ProgramError("", f"{text!r}", "a number that float64 can hold; write inf for infinity")
    return number


def one_of(table: Mapping[str, Any] | tuple[str, ...]) -> Choice:
    """A Choice between plain names."""
    names = tuple(table)

    def look_up(value: Any) -> str:
        name = getattr(value, "name", value)
        if not isinstance(name, str) or name not in names:
            raise ProgramError("", f"{value!r}", f"one of {', '.join(names)}")
        return str(name)

    return Choice(names, look_up)


def alu_of(*names: str) -> Choice:
    """A Choice between some ALU operators, in any spelling."""

    def look_up(value: Any) -> str:
        name = alu_op(value, names).name
        if name not in names:
            raise ProgramError("", f"{value!r}", f"one of {', '.join(names)}")
        return name

    return Choice(names, look_up)


ALU = Choice(tuple(ALU_OPS), lambda v: alu_op(v).name)
ACT = Choice(tuple(ACT_FNS), lambda v: act_fn(v).name)
READ, WRITE = Operand(), Operand(writes=True)
INDIRECT, WRITE_INDIRECT = Operand(columns=True), Operand(writes=True, columns=True)
FIXED, WRITE_FIXED = Operand(dynamic=False), Operand(writes=True, dynamic=False)
ANYWHERE, WRITE_ANYWHERE = Operand(rows=True), Operand(writes=True, rows=True)


def of(kind: Any, *, default: Any = attrs.NOTHING) -> Any:
    """Declare an instruction field of a kind; `default` makes it optional."""
    return attrs.field(default=default, metadata={"kind": kind})
