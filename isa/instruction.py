"""The Instruction base class, what an instruction asks of the hardware, and the registry every other module reads."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeVar, dataclass_transform

import attrs
import numpy as np

from .dtypes import DType
from .dynamic import Register
from .errors import ProgramError, Unspecified
from .fields import of
from .view import View

C = TypeVar("C", bound="type[Instruction]")


class Engine(enum.IntEnum):
    """A NeuronCore instruction queue. The order is the architectural tie-break."""

    TENSOR = 0
    VECTOR = 1
    SCALAR = 2
    GPSIMD = 3
    SYNC = 4

    __hash__ = int.__hash__  # an enumeration's own hashes the name, in Python: a key of many dictionaries

    @property
    def label(self) -> str:
        """As real traces print it."""
        return ("Tensor", "Vector", "Scalar", "GpSimd", "Sync")[self]


COMPUTE = (Engine.TENSOR, Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD)


@attrs.frozen(slots=True, cache_hash=True)
class Work:
    """What one instruction asks of the hardware, in units that no chip changes.

    `kind` names the row of the engine's cost table in the chip file. `elements` is counted per partition, of the
    longest operand streamed.
    """

    kind: str
    elements: int = 0
    psum_read: bool = False
    psum_write: bool = False
    sixteen_bit: bool = False  # every streamed operand has 16 bits
    half: bool = False  # every one is bfloat16 or float16 (the condition of the fast modes of moves)
    small: bool = False  # every one is bfloat16, float16 or fp8
    widening: bool = False  # the destination's elements are wider than a source's
    narrowing: bool = False  # or narrower
    streams: int = 0  # operands read element by element (elementwise engines)
    contiguous: bool = True  # every streamed operand is contiguous in the partition
    vectors: int = 0  # [P, 1] operands fetched through a pointer
    reduces: bool = False  # also reduces what it streams, into [P, 1] (VectorEngine)
    indices: int = 0  # places looked up, or written beside the stream (GpSimdEngine)
    columns: int = 0  # stationary columns (TensorEngine)
    macs: int = 0
    flops: int = 0
    transpose: bool = False
    tiled: bool = False  # on a tile of the array (TensorEngine)


class Target(Protocol):
    """What `expand` may ask of the chip and the program it expands for."""

    explicit: bool  # the program carries its own semaphores: nothing may be inserted

    def feature(self, name: str) -> Any:
        """The chip's value for a dotted name."""

    def identity(self, dtype: DType) -> View:
        """An SBUF view [128, 128] of the identity matrix, loaded once per program."""

    def hbm_kind(self, tensor: str) -> str:
        """ "input", "output", "constant" or "internal"."""


@attrs.frozen(kw_only=True)
class Instruction:
    """Base of every instruction and call: subclasses declare operands, meaning and work; nothing else is generic code."""

    mnemonic: ClassVar[str]
    engines: ClassVar[tuple[Engine, ...]]  # where it may run; the first is the default
    source: ClassVar[str]
    machine: ClassVar[bool] = True  # False: a call that `expand` must turn into machine instructions
    since: ClassVar[Mapping[Engine, int]] = {}  # the first NeuronCore version that has it on an engine, where not all have
    only: ClassVar[Mapping[str, Any]] = {}  # keywords of nki.isa that are taken with this value and refused with another

    @property
    def opcode(self) -> str:
        """The name a hardware trace shows."""
        return self.mnemonic.upper()

    @cached_property
    def views(self) -> tuple[tuple[str, View, bool], ...]:
        """(field name, view, is written) of every tensor operand, in field order.

        Members of a list are `name[0]`, `name[1]` and so on. The tensor that a dynamic view's index is in is `name.index`, and
        is read.
        """
        out: list[tuple[str, View, bool]] = []
        for name, writes in _OPERANDS[type(self)]:
            value = getattr(self, name)
            several = isinstance(value, tuple)
            for k, view in enumerate(value if several else (value,)):
                if isinstance(view, View):
                    called = f"{name}[{k}]" if several else name
                    out.append((called, view, writes))
                    if view.dynamic is not None and isinstance(view.dynamic.index, View):
                        out.append((f"{called}.index", view.dynamic.index, False))
        return tuple(out)

    @cached_property
    def reads(self) -> tuple[View, ...]:
        """Views whose bytes the result depends on, a destination that is added to or partly kept included.

        A dynamic view counts as all that it may touch.
        """
        return tuple([v.region for _, v, w in self.views if not w]) + (self.writes if self.accumulates() or self.keeps() else ())

    @cached_property
    def writes(self) -> tuple[View, ...]:
        """Views whose bytes the instruction writes, or may write."""
        return tuple([v.region for _, v, w in self.views if w])

    @property
    def registers(self) -> tuple[Register, ...]:
        """Registers of its sequencer whose values it takes when it starts: those that give an address."""
        found = (v.dynamic.index for _, v, _ in self.views if v.dynamic is not None)
        return tuple(dict.fromkeys(r for r in found if isinstance(r, Register)))

    def bound(self, value: Callable[[Register], Register | int]) -> Instruction:
        """The instruction with the values of its registers in their place; itself if it has none."""
        if not self.registers:
            return self
        changed: dict[str, Any] = {}
        for name, _ in _OPERANDS[type(self)]:
            operand = getattr(self, name)
            if isinstance(operand, tuple):
                changed[name] = tuple(_bound(v, value) for v in operand)
            elif isinstance(operand, View):
                changed[name] = _bound(operand, value)
        return attrs.evolve(self, **changed)

    def accumulates(self) -> bool:
        """True if the destination is added to instead of overwritten."""
        return False

    def keeps(self) -> bool:
        """True if elements of the destination may keep their values: `execute` gets them, by the destination's name."""
        return False

    def spares(self) -> bool:
        """True if it never touches some elements of a destination: `execute` gets them, by its name; they do not count as read."""
        return False

    def accumulator(self) -> tuple[str, int]:
        """What becomes of its engine's accumulator: "" nothing, "sets", "adds", "reads" or "loses"; and of how many partitions."""
        return "", 0

    def check(self) -> None:
        """Raise ProgramError where operands do not fit together on any chip, Unspecified where no source says what they do."""

    def expand(self, target: Target, engine: Engine) -> Iterable[Instruction]:
        """The machine instructions of a call on the chosen engine, in queue order; itself if it is one."""
        return (self,)

    def default_engine(self, target: Target) -> Engine:
        """The queue chosen when the user names none."""
        return self.engines[0]

    def work(self) -> Work:
        """What it asks of the hardware."""
        raise NotImplementedError(type(self).__name__)

    def table(self) -> str | None:
        """The activation function whose table must be resident, if any (ScalarEngine)."""
        return None

    def signals(self) -> bool:
        """True if automatic programs raise the engine's semaphore when it completes (lowering rule B14)."""
        return True

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        """Results by name of the written field, unrounded, from operands by name of the read field.

        Arrays have the shape of their view, [partitions, free...]. `state` holds the engine's registers between
        instructions. An accumulating instruction returns the addend: the caller adds it to the destination.
        """
        raise NotImplementedError(type(self).__name__)

    def require(self, holds: bool, found: str, required: str) -> None:
        """Raise ProgramError naming this instruction unless `holds`."""
        if not holds:
            raise ProgramError(self.mnemonic, found, required, self.source)

    def check_destinations(self) -> None:
        """No result is written over by another of the same instruction: no source says which would stay, or that they add up."""
        for name, v, written in self.views:
            if written and v.repeats:
                found = f"{name} visits an element twice: shape {list(v.shape)} with strides {list(v.strides)}"
                self.require(False, found, "a destination of which each element is written once")

    def specified(self, holds: bool, found: str, required: str) -> None:
        """Raise Unspecified naming this instruction unless `holds`: no public source says what the hardware does then."""
        if not holds:
            raise Unspecified(self.mnemonic, found, required, self.source)

    def same_shape(self, first: str, second: str, free_only: bool = False) -> None:
        """Require two operands to have the same partitions and the same number of free elements."""
        a, b = getattr(self, first), getattr(self, second)
        if not free_only:
            self.require(
                a.partitions == b.partitions,
                f"{second} has {b.partitions} partitions, {first} has {a.partitions}",
                "they must match",
            )
        self.require(
            a.elements == b.elements,
            f"{second} has {b.elements} elements per partition, {first} has {a.elements}",
            "they must match",
        )

    def attributes(self) -> str:
        """Opcode-specific words of the operand text of a hardware trace, before the tensors: by default, field=value."""
        values = ((n, k, getattr(self, n)) for n, k in fields_of(type(self)).items())
        return " ".join(f"{n}={k.text(v)}" for n, k, v in values if not isinstance(v, View))

    def __str__(self) -> str:
        parts = (f"{n}={k.text(getattr(self, n))}" for n, k in fields_of(type(self)).items())
        return " ".join((self.mnemonic, *parts))


def has(i: Instruction, engine: Engine) -> str:
    """Which chips have an instruction, for the message on one that lacks it."""
    return f"NeuronCore-v{i.since[engine]} or newer" if engine in i.since else "a chip that has it"


def _bound(view: Any, value: Callable[[Register], Register | int]) -> Any:
    """A view whose index is a register with the number that this holds."""
    if not isinstance(view, View) or view.dynamic is None or not isinstance(register := view.dynamic.index, Register):
        return view
    return attrs.evolve(view, dynamic=attrs.evolve(view.dynamic, index=value(register)))


REGISTRY: dict[str, type[Instruction]] = {}
_FIELDS: dict[type[Instruction], dict[str, Any]] = {}
_OPERANDS: dict[type[Instruction], tuple[tuple[str, bool], ...]] = {}  # fields, and whether a view there is written


def fields_of(cls: type[Instruction]) -> dict[str, Any]:
    """The declared fields of an instruction class: name to kind, in order."""
    return _FIELDS[cls]


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(of,))
def instruction(*engines: Engine, source: str, machine: bool = True, mnemonic: str = "") -> Callable[[C], C]:
    """Register a class as an instruction. The one decorator a new instruction needs."""

    def register(cls: C) -> C:
        name = mnemonic or re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
        if name in REGISTRY:
            raise ValueError(f"mnemonic {name} of {cls.__name__} is taken by {REGISTRY[name].__name__}")
        made: C = attrs.frozen(kw_only=True, slots=True, cache_hash=True, repr=False, str=False, field_transformer=_checked)(cls)
        made.mnemonic, made.engines, made.source, made.machine = name, engines, source, machine
        _FIELDS[made] = {a.name: a.metadata["kind"] for a in attrs.fields(made)}
        _OPERANDS[made] = tuple((n, bool(getattr(k, "writes", False))) for n, k in _FIELDS[made].items())
        REGISTRY[name] = made
        return made

    return register


def _checked(cls: type, fields: list[Any]) -> list[Any]:
    """Give every field its kind's check as converter, with the name of the field in the error."""
    return [f.evolve(converter=_Check(f.name, f.metadata["kind"].check)) for f in fields]


@attrs.frozen
class _Check:
    name: str
    check: Callable[[Any], Any]

    def __call__(self, value: Any) -> Any:
        try:
            return self.check(value)
        except ProgramError as e:
            raise e.at(self.name) from None


@attrs.frozen(slots=True)
class Wait:
    """Do not issue before the semaphore reaches the value."""

    semaphore: int
    value: int
    owner: object = attrs.field(default=None, eq=False, repr=False)  # the program of the Semaphore it was written with


class When(enum.IntEnum):
    """The moment an update fires: inputs begin to be read, or the result is complete."""

    READ = 0
    COMPLETE = 1

    __hash__ = int.__hash__


class UpdateOp(enum.IntEnum):
    ADD = 0
    SUB = 1
    SET = 2

    __hash__ = int.__hash__


@attrs.frozen(slots=True)
class Update:
    """What an instruction does to a semaphore, and when."""

    semaphore: int
    op: UpdateOp
    value: int
    when: When = When.COMPLETE
    owner: object = attrs.field(default=None, eq=False, repr=False)  # as of a Wait


@attrs.define(slots=True)
class Step:
    """An instruction in a queue, with its synchronisation and the user's line it came from."""

    instruction: Instruction
    engine: Engine
    waits: tuple[Wait, ...] = ()
    updates: tuple[Update, ...] = ()
    line: str = ""  # "file.py:41"
    call: int = -1  # index of the call it was expanded from; -1: inserted by nc-sim or read from a trace
    chosen: bool = True  # False: the engine is the default, and the chip may choose another
