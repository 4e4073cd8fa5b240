"""Addresses that are known only at run time: registers of the sequencers, and the offsets of views.

A `Register` is virtual, as in nki.isa: a name. Its values are 32 bits wide and signed: the width is documented
(nki.isa.register_alloc), the sign is assumed.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import attrs
import numpy as np

from .errors import ProgramError
from .lines import user_line

if TYPE_CHECKING:
    from .view import View

BITS = 32
NAME = re.compile(r"[A-Za-z_$][\w.$-]*")  # of a register
INDEX_TYPES = ("int32", "uint32")
COLUMN_TYPES = ("uint16",)  # of the offsets of columns (aws-neuron-sdk, tutorial of tensor indirection)
Kind: TypeAlias = Literal["start", "rows", "columns"]


def _built(register: Register, tried: str, call: str = "") -> ProgramError:
    """The error of arithmetic with a register while the program is built; `call` computes the same at run time."""
    computes = "p.register_alu computes while the program runs" + f": {call}" * bool(call)
    name = register.name
    required = f"{computes}; ds({name}, n) and select(dim, {name}) take entries from a register's value on"
    return ProgramError(user_line(), f"{tried} while the program is built", required)


def _no(symbol: str, alu: str = "") -> tuple[Callable[[Register, Any], Any], Callable[[Register, Any], Any]]:
    """An operator of Python, and itself the other way round, that refuse; `alu` is the ALU operator that does it at run time."""

    def refuse(self: Register, other: Any, reflected: bool = False) -> Any:
        fits = isinstance(other, Register | int | np.integer) and not isinstance(other, bool)
        names = [self.name, other.name if isinstance(other, Register) else f"{other!s:.80}"]
        a, b = names[::-1] if reflected else names
        raise _built(self, f"{a} {symbol} {b}", f'register_alu(dst, {a}, "{alu}", {b})' if fits and alu else "")

    return refuse, lambda self, other: refuse(self, other, True)


@attrs.frozen(slots=True, eq=False)
class Register:
    """A virtual register of the sequencers. Its value exists when the program runs, not while it is built."""

    name: str

    def __bool__(self) -> bool:
        where, what = user_line(), f"the truth of register {self.name} while the program is built"
        raise ProgramError(where, what, "p.while_loop, or with p.repeat_while(register): its value exists when the program runs")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int | float | np.number):  # an `if` on it would be decided while the program is built
            where, what = user_line(), f"register {self.name} compared with {other} while the program is built"
            raise ProgramError(where, what, "a register instruction or a loop: its value exists when the program runs")
        return isinstance(other, Register) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def _ordered(self, other: object) -> bool:
        where, what = user_line(), f"register {self.name} compared with {other!r:.80} while the program is built"
        raise ProgramError(where, what, "a register instruction or a loop: its value exists when the program runs")

    __lt__ = __le__ = __gt__ = __ge__ = _ordered

    def __index__(self) -> int:
        works = f"t[:, {self.name}], ds({self.name}, n), select(dim, {self.name}) and p.dynamic_range({self.name})"
        where, what = user_line(), f"register {self.name} as a number while the program is built"
        raise ProgramError(where, what, f"whole numbers: its value exists when the program runs, for {works}")

    __array_ufunc__ = None  # numbers of numpy leave their operators to these
    __add__, __radd__ = _no("+", "add")
    __sub__, __rsub__ = _no("-", "subtract")
    __mul__, __rmul__ = _no("*", "multiply")
    __lshift__, __rlshift__ = _no("<<", "left_shift")
    __rshift__, __rrshift__ = _no(">>")  # the shift of the ALU is a logical one
    __and__, __rand__ = _no("&", "bitwise_and")
    __or__, __ror__ = _no("|", "bitwise_or")
    __xor__, __rxor__ = _no("^", "bitwise_xor")
    __truediv__, __rtruediv__ = _no("/")
    __floordiv__, __rfloordiv__ = _no("//")
    __mod__, __rmod__ = _no("%")
    __pow__, __rpow__ = _no("**")

    def __neg__(self) -> int:
        raise _built(self, f"-{self.name}", f'register_alu(dst, 0, "subtract", {self.name})')

    def __invert__(self) -> int:
        raise _built(self, f"~{self.name}", f'register_alu(dst, {self.name}, "bitwise_xor", -1)')


def wrapped(value: int) -> int:
    """A whole number as the 32 bits of a register hold it, signed."""
    return (value + (1 << (BITS - 1))) % (1 << BITS) - (1 << (BITS - 1))


@attrs.frozen(slots=True)
class DynamicSlice:
    """`size` entries of a dimension from a register's value on: a key of a view. See `ds`."""

    start: Register
    size: int


def ds(start: Any, size: int) -> slice | DynamicSlice:
    """`size` entries from `start` on, a number or a register, as nki.language.ds: `t[:, ds(i, 512)]`."""
    count = _index(size)
    if count is None or count < 1:
        raise ProgramError(f"{user_line()} ds".strip(), f"a size of {size!r}", "a whole number of at least 1")
    if isinstance(start, Register):
        return DynamicSlice(start, count)
    first = _index(start)
    if first is None or first < 0:
        raise ProgramError(f"{user_line()} ds".strip(), f"a start of {start!r}", "a register, or a whole number of at least 0")
    return slice(first, first + count)


def _index(value: Any) -> int | None:
    """A whole number of Python or numpy as an int; None for anything else, bools among it."""
    if isinstance(value, bool | Register):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


@attrs.frozen(slots=True, cache_hash=True, repr=False)
class Dynamic:
    """Where a view's address comes from when it is known only at run time, as nki's `scalar_offset` and `vector_offset`.

    `step` elements times the index are added to the view's offset. The index is a tensor of whole numbers in SBUF, which
    holds one number for the whole view ("start"), one for each entry of the first dimension, whose own stride then says
    nothing ("rows"), or one for each column, in the order of isa/indirection.py ("columns"); or it is a register, and
    where the instruction executes the number that this held. Bytes `low` to `high` of the tensor (within each partition
    on chip) are in bounds.
    """

    index: View | Register | int
    kind: Kind
    step: int
    low: int
    high: int

    @property
    def vector(self) -> bool:
        """True if each row has an index of its own."""
        return self.kind == "rows"

    @property
    def tensor(self) -> View:
        """The tensor in SBUF that holds the index."""
        assert not isinstance(self.index, Register | int), self.index
        return self.index

    def __str__(self) -> str:
        index = self.index.name if isinstance(self.index, Register) else self.index
        return f"~{self.kind}*{self.step}[{self.low:#x},{self.high:#x}]{index}"


def fixed(index: View, where: str) -> None:
    """Raise ProgramError for an index in SBUF whose own address is known at run time only."""
    if index.dynamic is not None:
        shape = [index.partitions, index.elements]
        works = f"tensor_copy(dst=one, src={index.tensor}...) into an SBUF tensor of shape {shape}, and one as the index"
        raise ProgramError(where, f"an index in {index} whose own address is known at run time", works, "nki.isa access patterns")
