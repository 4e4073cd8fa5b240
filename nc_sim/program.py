"""Programs: what a user builds. Methods carry the names and keywords of nki.isa."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import attrs
import numpy as np

from .isa import REGISTRY, Engine, Instruction, Memory, Step, Update, UpdateOp, View, Wait, When, fields_of, whole
from .isa import dtype as as_dtype
from .isa.dtypes import DType, cast
from .isa.dynamic import Register
from .isa.errors import NcSimError, ProgramError, Unimplemented
from .isa.lines import user_line
from .isa.registers import LoopEnd, LoopFor, LoopWhile, RegisterAlloc, RegisterMove, Sequenced
from .notebook import Shown

NAME = re.compile(r"[A-Za-z_][\w.$-]*")
HARDWARE_SEMAPHORES = 256
MAX_VALUE = (1 << 31) - 1  # of a semaphore; the hardware's width is not published
MAX_ELEMENTS = 1 << 40  # of a tensor: beyond any HBM
NONE: tuple[Any, ...] = ()  # neither waits nor updates
MAX_KNOWN = 1 << 16  # calls remembered
E4M3_ANY = 240  # constants are converted before a chip is known; only float8_e4m3's top binade depends on it


@attrs.frozen(slots=True)
class Tensor:
    """A named buffer. `address` is None until `allocate` chooses one (bytes; within each partition on chip)."""

    name: str
    memory: Memory
    shape: tuple[int, ...]  # [partitions, free...] on chip
    dtype: DType
    kind: str = "internal"  # input, output, constant or internal
    address: int | None = None
    partition: int = 0
    data: bytes | None = attrs.field(default=None, repr=False)  # of a constant, row-major
    line: str = attrs.field(default="", eq=False)  # the user's

    @cached_property
    def partition_bytes(self) -> int:
        """Bytes in each partition; of the whole tensor in HBM."""
        free = self.shape if self.memory is Memory.HBM else self.shape[1:]
        return math.prod(free) * self.dtype.itemsize

    def view(self) -> View:
        """The whole tensor as an operand."""
        return whole(self.name, self.memory, self.shape, self.dtype, self.partition)


@attrs.frozen(slots=True, eq=False)
class Semaphore:
    """A hardware semaphore of an explicitly synchronised program: `wait=[s >= 16]`, `update=[s.add(1)]`."""

    id: int
    name: str
    program: object = attrs.field(default=None, repr=False)

    def __ge__(self, value: int) -> Wait:
        return Wait(self.id, self._whole(value), self.program)

    def __gt__(self, value: int) -> Wait:
        return Wait(self.id, self._whole(value) + 1, self.program)

    def add(self, value: int, when: str = "complete") -> Update:
        """Add when the instruction completes, or when it begins to read (`when="read"`)."""
        return self._update(UpdateOp.ADD, value, when)

    def sub(self, value: int, when: str = "complete") -> Update:
        """Subtract."""
        return self._update(UpdateOp.SUB, value, when)

    def set(self, value: int, when: str = "complete") -> Update:
        """Set to a value."""
        return self._update(UpdateOp.SET, value, when)

    def _update(self, op: UpdateOp, value: int, when: str) -> Update:
        if not isinstance(when, str) or when not in ("read", "complete"):
            raise ProgramError(f"semaphore {self.name}", f"when={when!r}", "'read' or 'complete'")
        return Update(self.id, op, self._whole(value), When[when.upper()], self.program)

    def _whole(self, value: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value <= MAX_VALUE:
            raise ProgramError(f"{user_line()} semaphore {self.name}".strip(), f"value {value!r}", f"a whole number, 0 to {MAX_VALUE}")
        return int(value)


class Program(Shown):
    """A sequence of calls over named tensors.

    Every instruction of nki.isa that nc-sim knows is a method: `p.activation(dst=t, op="exp", data=t, scale=0.5)`. Any
    call takes `engine=`, `wait=` and `update=` beside its own keywords. Without `wait=` and `update=` anywhere the
    program is automatic: semaphores, addresses, engines and DMA queues are chosen as a compiler would.
    """

    def __init__(self, name: str = "program") -> None:
        if not _is_name(name):
            raise ProgramError("program", f"name {name!r}", "a letter or _, then letters, digits and _ . $ -")
        self.name = name
        self.tensors: dict[str, Tensor] = {}
        self.semaphores: dict[int, str] = {}
        self.registers: dict[str, Register] = {}
        self.steps: list[Step] = []
        self._positions = dict.fromkeys(Engine, 0)
        self._known: dict[object, Instruction] = {}  # calls that were checked, by what was written: programs repeat themselves
        self._views: set[View] = set()  # and their on-chip operands

    # ---- tensors

    def input(self, name: str, shape: Iterable[int], dtype: Any) -> View:
        """An HBM tensor whose values the caller gives."""
        return self._tensor(name, Memory.HBM, shape, dtype, "input")

    def output(self, name: str, shape: Iterable[int], dtype: Any) -> View:
        """An HBM tensor whose values the run returns."""
        return self._tensor(name, Memory.HBM, shape, dtype, "output")

    def hbm(self, shape: Iterable[int], dtype: Any, name: str = "") -> View:
        """An internal HBM tensor."""
        return self._tensor(self._named(name, "hbm"), Memory.HBM, shape, dtype, "internal")

    def constant(self, array: np.ndarray, dtype: Any = None, name: str = "") -> View:
        """An HBM tensor with given values."""
        where = f"{user_line()} constant {name}".strip()
        try:
            values = np.asarray(array)
            to = as_dtype(values.dtype if dtype is None else dtype)
            data = np.ascontiguousarray(cast(values, to, e4m3_max=E4M3_ANY)).tobytes()
        except ValueError:
            raise ProgramError(where, "a ragged list", "an array of numbers") from None
        except NcSimError as e:
            raise e.at(where) from None
        return self._tensor(self._named(name, "constant"), Memory.HBM, values.shape, to, "constant", data=data)

    def sbuf(self, shape: Iterable[int], dtype: Any, name: str = "", address: int | None = None, partition: int = 0) -> View:
        """An SBUF tensor [partitions, free...], at a byte address in each partition if given."""
        return self._tensor(self._named(name, "sbuf"), Memory.SBUF, shape, dtype, "internal", address, partition)

    def psum(self, shape: Iterable[int], dtype: Any = "float32", name: str = "", address: int | None = None, partition: int = 0) -> View:
        """A PSUM tensor [partitions, free...], at a byte address in each partition if given."""
        return self._tensor(self._named(name, "psum"), Memory.PSUM, shape, dtype, "internal", address, partition)

    def _named(self, name: str, prefix: str) -> str:
        return self._fresh(prefix) if name is None or (isinstance(name, str) and not name) else name

    def _fresh(self, prefix: str) -> str:
        return next(n for k in range(len(self.tensors), 2 * len(self.tensors) + 2) if (n := f"{prefix}{k}") not in self.tensors)

    def _tensor(
        self, name: str, memory: Memory, shape: Iterable[int], dtype: Any, kind: str,
        address: int | None = None, partition: int = 0, data: bytes | None = None,
    ) -> View:  # fmt: skip
        line = user_line()
        where = f"{line} tensor {name}".strip()
        if not _is_name(name):
            raise ProgramError(where, f"name {name!r}", "a letter or _, then letters, digits and _ . $ -")
        if name in self.tensors:
            raise ProgramError(where, "the name is taken", "a name of its own")
        try:
            sizes = tuple(shape)
            if any(isinstance(d, bool) for d in sizes):
                raise TypeError
            sizes = tuple(int(d.__index__()) for d in sizes)
        except (TypeError, AttributeError):
            raise ProgramError(where, f"shape {shape!r}", "whole numbers") from None
        if any(d < 1 for d in sizes) or not sizes or math.prod(sizes) > MAX_ELEMENTS:
            raise ProgramError(where, f"shape {list(sizes)}", f"at least one dimension, each at least 1, at most {MAX_ELEMENTS} elements")
        if memory is not Memory.HBM and len(sizes) < 2:
            raise ProgramError(where, f"shape {list(sizes)}", "[partitions, free...] for an on-chip tensor")
        for what, number in (("address", address), ("partition", partition)):
            if (number is not None or what == "partition") and (
                isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 0
            ):
                raise ProgramError(where, f"{what} {number!r}", "a whole number of at least 0")
        try:
            element = as_dtype(dtype)
        except NcSimError as e:
            raise e.at(where) from None
        tensor = Tensor(name, memory, sizes, element, kind, None if address is None else int(address), int(partition), data, line)
        self.tensors[name] = tensor
        return tensor.view()

    # ---- synchronisation

    def semaphore(self, name: str) -> Semaphore:
        """A semaphore to wait for and to update. Using one makes the whole program explicit: nothing is inserted."""
        if not _is_name(name) or name in self.semaphores.values():
            raise ProgramError(f"{user_line()} semaphore {name}", "the name is taken or unfit", "a name of its own")
        number = len(self.semaphores)
        if number >= HARDWARE_SEMAPHORES:
            raise ProgramError(f"{user_line()} semaphore {name}", f"{number} semaphores before it", f"at most {HARDWARE_SEMAPHORES}")
        self.semaphores[number] = name
        return Semaphore(number, name, self)

    @property
    def explicit(self) -> bool:
        """True if any call waits for or updates a semaphore."""
        return any(s.waits or s.updates for s in self.steps)

    # ---- registers and loops

    def register_alloc(self, x: int | None = None, name: str = "") -> Register:
        """A register, with the value `x` if given. It takes more from `register_move`, `register_load` and `register_alu`."""
        if not _is_name(name) and not (isinstance(name, str) and not name):
            raise ProgramError(f"{user_line()} register", f"name {name!r:.60}", "a letter or _, then letters, digits and _ . $ -")
        count = len(self.registers)
        free = next(n for k in range(count, 2 * count + 2) if (n := f"r{k}") not in self.registers)
        register = Register(name or free)
        self.append(RegisterAlloc, (), {"dst": register, "src": x}, None, NONE, NONE)
        return register

    def dynamic_range(self, start: Any, stop: Any = None, step: int = 1) -> Iterator[Register]:
        """A loop on the device: `for i in p.dynamic_range(n)`. The body is built once; `i` is the register that counts.

        `start` and `stop` are numbers or registers, `step` a whole number of at least 1. Bounds are read anew each round.
        """
        lower, upper = (0, start) if stop is None else (start, stop)
        counter = self.register_alloc()
        self.append(LoopFor, (), {"counter": counter, "lower": lower, "upper": upper, "step": step}, None, NONE, NONE)
        yield counter
        self.append(LoopEnd, (), {}, None, NONE, NONE)

    def fori_loop(self, lower: Any, upper: Any, body_fun: Callable[[Register], Any], step: int = 1) -> None:
        """`body_fun(i)` on the device for i from `lower` up to `upper`, which is not reached; called once, to build the body."""
        _require_body("fori_loop", body_fun)
        for counter in self.dynamic_range(lower, upper, step):
            body_fun(counter)

    def repeat_while(self, condition: Register) -> AbstractContextManager[None]:
        """A loop on the device, while the register is not 0: `with p.repeat_while(r):`. The body is built once, and sets `r`."""
        return _While(self, condition)

    def while_loop(self, init: Register, body_fun: Callable[[Register], Register]) -> None:
        """`r = init`, then `r = body_fun(r)` on the device while r is not 0; called once, to build the body."""
        _require_body("while_loop", body_fun)
        r = self.register_alloc()
        self.append(RegisterMove, (), {"dst": r, "src": init}, None, NONE, NONE)
        with self.repeat_while(r):
            after = body_fun(r)
            if not isinstance(after, Register):
                raise ProgramError(f"{user_line()} while_loop", f"{after!r} returned", "the register to test next")
            if after != r:
                self.append(RegisterMove, (), {"dst": r, "src": after}, None, NONE, NONE)

    # ---- calls

    def __getattr__(self, mnemonic: str) -> Callable[..., None]:
        try:
            cls = REGISTRY[mnemonic]
        except KeyError:
            near = difflib.get_close_matches(mnemonic, REGISTRY, 1)
            if not near:
                raise AttributeError(f"Program has no attribute or instruction {mnemonic!r}") from None
            hint = f"Program has no attribute or instruction {mnemonic!r}; did you mean {near[0]!r}?"
            raise AttributeError(hint, name=mnemonic, obj=None) from None  # no object: Python would add a hint of its own

        def call(*operands: Any, engine: Any = None, wait: Iterable[Wait] = NONE, update: Iterable[Update] = NONE, **fields: Any) -> None:
            self.append(cls, operands, fields, engine, wait, update)

        call.__name__, call.__doc__ = mnemonic, cls.__doc__
        return call

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *REGISTRY})

    def append(
        self, cls: type[Instruction], operands: tuple[Any, ...], fields: dict[str, Any], engine: Any,
        wait: Iterable[Wait], update: Iterable[Update],
    ) -> None:  # fmt: skip
        """Add one call; every error names the caller's line, the queue and the position in it."""
        line = user_line()
        queue = None if engine is None else _engine(engine, cls, line)
        shown = cls.engines[0] if queue is None else queue
        where = _Where(line, shown, self._positions[shown], cls)
        fields.pop("name", None)  # nki.isa's label of an instruction; lines serve here
        key = _key(cls, operands, fields)
        instruction = None if key is None else self._known.get(key)
        if instruction is None:
            instruction = self._checked(cls, operands, fields, where)
            if key is not None:
                if len(self._known) >= MAX_KNOWN:
                    self._known.clear()
                self._known[key] = instruction
        waits, updates = (NONE, NONE) if wait is NONE and update is NONE else self._signals(where, wait, update)
        self.steps.append(Step(instruction, shown, waits, updates, line, len(self.steps), queue is not None))
        self._positions[shown] += 1

    def _checked(self, cls: type[Instruction], operands: tuple[Any, ...], fields: dict[str, Any], where: _Where) -> Instruction:
        """The instruction of a call, after every check of it."""
        names = fields_of(cls)
        if operands:
            fields.update(_positional(str(where), list(names), operands, fields))
        for given, only in cls.only.items():
            if given in fields and getattr(value := fields.pop(given), "name", value) != only:
                raise Unimplemented(str(where), f"{given}={value!r}", f"only {only!r} is modelled so far", cls.source)
        for given in fields:
            if given not in names:
                near = difflib.get_close_matches(given, [*names, "engine", "wait", "update"], 1)
                raise ProgramError(
                    str(where),
                    f"unknown keyword {given!r}",
                    f"one of {', '.join(names)}" + (f"; did you mean {near[0]!r}?" if near else ""),
                    cls.source,
                )
        for name in _required(cls) if len(fields) < len(names) else NONE:
            if name not in fields:
                raise ProgramError(str(where), f"no {name}", f"{', '.join(_required(cls))} are required", cls.source)
        try:
            instruction = cls(**fields)
            instruction.check()
            if instruction.registers or isinstance(instruction, Sequenced):
                self.check_registers(instruction)
            instruction.check_destinations()
            for _, view, _ in instruction.views:
                if view.memory is Memory.HBM:
                    self.check_view(view)
                elif view not in self._views:
                    self.check_view(view)
                    self._views.add(view)
        except NcSimError as e:
            place = str(where)
            prefix = place.removesuffix(cls.mnemonic).rstrip() if e.where.startswith(cls.mnemonic) else place
            raise e.at(prefix) from None
        return instruction

    def _signals(self, where: _Where, wait: Any, update: Any) -> tuple[tuple[Wait, ...], tuple[Update, ...]]:
        """A call's own waits and updates."""
        waits, updates = _several(wait, Wait), _several(update, Update)
        for what, items, kind in (("wait", waits, Wait), ("update", updates, Update)):
            for item in items:
                if not isinstance(item, kind) or item.semaphore not in self.semaphores:
                    raise ProgramError(
                        str(where), f"{what}={item!r}", "[s >= value]" if kind is Wait else "[s.add(value)], s from p.semaphore(name)"
                    )
                if item.owner not in (None, self):
                    raise ProgramError(
                        str(where),
                        f"a {what} with a semaphore of another program",
                        f"one of {self.name}, from p.semaphore",
                    )
        # without their owner: a step holds no program
        return tuple(attrs.evolve(w, owner=None) for w in waits), tuple(attrs.evolve(u, owner=None) for u in updates)

    def check_registers(self, instruction: Instruction) -> None:
        """Raise ProgramError unless the program has the registers of an instruction; one that allocates adds its own."""
        if isinstance(instruction, LoopEnd) and not self.registers:
            raise ProgramError("", "no open loop", "loop_for or loop_while before it")
        sets = instruction.sets if isinstance(instruction, Sequenced) else ()
        if isinstance(instruction, RegisterAlloc):
            if sets[0].name in self.registers:
                raise ProgramError("", f"register {sets[0].name}: the name is taken", "a name of its own")
            self.registers[sets[0].name] = sets[0]
        for register in (*instruction.registers, *sets):
            if register.name not in self.registers:
                close = difflib.get_close_matches(register.name, self.registers, 1)
                found = f"register {register.name!r}" + (f" (near: {close[0]})" if close else "")
                raise ProgramError("", found, "a register of this program: p.register_alloc()")

    def check_view(self, view: View) -> None:
        """Raise ProgramError unless the view could have been sliced from a tensor of this program."""
        if (tensor := self.tensors.get(view.tensor)) is None:
            close = difflib.get_close_matches(view.tensor, self.tensors, 1)
            raise ProgramError(
                "", f"tensor {view.tensor!r}" + (f" (near: {close[0]})" if close else ""), "a tensor that the program declares"
            )
        if view.memory is not tensor.memory:
            raise ProgramError("", f"{view} is in {view.memory.name}", f"{tensor.memory.name}, where tensor {tensor.name} is")
        if view.offset % view.dtype.itemsize:
            raise ProgramError("", f"{view} starts at byte {view.offset}", f"a multiple of {view.dtype.itemsize}")
        low, high = view.extent
        if view.size and (low < 0 or high > tensor.partition_bytes):
            raise ProgramError("", f"{view} reaches bytes {low} to {high}", f"0 to {tensor.partition_bytes} of tensor {view.tensor}")
        if tensor.memory is not Memory.HBM and not (
            tensor.partition <= view.partition and view.partition + view.partitions <= tensor.partition + tensor.shape[0]
        ):
            raise ProgramError(
                "",
                f"{view} reaches partitions {view.partition} to {view.partition + view.partitions}",
                f"the {tensor.shape[0]} of tensor {view.tensor}",
            )

    # ---- forms

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def __repr__(self) -> str:
        return f"<Program {self.name}: {len(self.steps)} calls, {len(self.tensors)} tensors>"


@attrs.frozen(slots=True)
class _While(AbstractContextManager[None]):
    """The body of a loop. One that an exception left stays open, so that the program does not run without its rest."""

    program: Program
    condition: Register

    def __enter__(self) -> None:
        self.program.append(LoopWhile, (), {"condition": self.condition}, None, NONE, NONE)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.program.append(LoopEnd, (), {}, None, NONE, NONE)


@attrs.frozen(slots=True)
class _Where:
    """Where a call stands; its text is wanted only for an error."""

    line: str
    queue: Engine
    position: int
    cls: type[Instruction]

    def __str__(self) -> str:
        return f"{self.line} {self.queue.name.lower()}[{self.position}] {self.cls.mnemonic}".strip()


_REQUIRED: dict[type[Instruction], tuple[str, ...]] = {}


def _required(cls: type[Instruction]) -> tuple[str, ...]:
    """Fields that a call has to give."""
    if cls not in _REQUIRED:
        _REQUIRED[cls] = tuple(a.name for a in attrs.fields(cls) if a.default is attrs.NOTHING)
    return _REQUIRED[cls]


PLAIN = frozenset((View, str, bool, int, type(None)))  # equal values of one of these types mean the same


def _key(cls: type[Instruction], operands: tuple[Any, ...], fields: dict[str, Any]) -> object:
    """What was written, if the same again makes the same instruction; None where that is in doubt.

    Types count, for 1, 1.0 and True are equal; floats by their text, for 0.0 and -0.0 are.
    """
    out: list[Any] = [cls, len(operands), *fields]
    for value in (*operands, *fields.values()):
        kind = type(value)
        if kind is float:
            value = repr(value)
        elif kind not in PLAIN or (kind is View and value.memory is Memory.HBM):
            return None  # slices of HBM are others each time, as a rule
        out += (kind, value)
    return tuple(out)


def _require_body(call: str, body_fun: Any) -> None:
    if not callable(body_fun):
        raise ProgramError(f"{user_line()} {call}".strip(), f"body_fun {body_fun!r:.60}", "a function of the loop's register")


def _is_name(name: object) -> bool:
    return isinstance(name, str) and NAME.fullmatch(name) is not None


def _several(items: Any, kind: type) -> tuple[Any, ...]:
    """One wait or update, a list of them, or nothing."""
    if items is None:
        return ()
    if isinstance(items, kind):
        return (items,)
    try:
        return tuple(items)
    except TypeError:
        return (items,)


def _engine(engine: Any, cls: type[Instruction], line: str) -> Engine | None:
    if engine is None or (isinstance(engine, str) and engine == "unknown"):
        return None
    name = getattr(engine, "name", engine)
    try:
        queue = Engine[str(name).upper()]
    except KeyError:
        raise ProgramError(f"{line} {cls.mnemonic}", f"engine {engine!r}", f"one of {', '.join(e.name.lower() for e in Engine)}") from None
    if queue not in cls.engines:
        raise ProgramError(
            f"{line} {cls.mnemonic}", f"engine {queue.name.lower()}", f"one of {', '.join(e.name.lower() for e in cls.engines)}", cls.source
        )
    return queue


def _positional(where: str, names: list[str], operands: tuple[Any, ...], fields: Mapping[str, Any]) -> dict[str, Any]:
    if len(operands) > len(names):
        raise ProgramError(where, f"{len(operands)} operands", f"at most {len(names)}: {', '.join(names)}")
    out = dict(zip(names, operands, strict=False))
    for name in out:
        if name in fields:
            raise ProgramError(where, f"{name} is given twice", "once, by position or by name")
    return out
