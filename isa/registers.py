"""Registers, register instructions, branches and loops: what the sequencers execute themselves.

A `Register` is virtual, as in nki.isa: a name. Each engine's sequencer has registers of its own, so a register that two
engines need stands on both, and its instructions run on both (nc_sim/control.py places them). Values are 32 bits wide
and signed: the width is documented (nki.isa.register_alloc), the sign is assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import attrs
import numpy as np

from .control import ALL, Control
from .dynamic import BITS, NAME, Register, wrapped
from .errors import ProgramError
from .fields import FIXED, WRITE_FIXED, Choice, Integer, Maybe, of
from .instruction import Instruction, Work, fields_of, instruction
from .ops import ALU_OPS, alu_op
from .view import Memory, View


def _some(names: tuple[str, ...]) -> Choice:
    """A Choice of ALU operators, in any of their spellings."""

    def look_up(value: Any) -> str:
        if (name := alu_op(value, names).name) not in names:
            raise ProgramError("", f"operator {name}", f"one of {', '.join(names)}")
        return name

    return Choice(names, look_up)


COMPARISONS = _some(("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"))
# Which operators the sequencers' ALU has is not published: assumed to be the two-operand integer ones of the engines.
ALU = _some(tuple(n for n, op in ALU_OPS.items() if (op.integer or op.bitvec) and not op.unary))


@attrs.frozen
class RegisterOperand:
    """A register."""

    sets: bool = False  # the instruction gives it its value

    def check(self, value: Any) -> Register:
        if not isinstance(value, Register):
            raise ProgramError("", f"{value!r}", "a register, from p.register_alloc()")
        if NAME.fullmatch(value.name) is None:
            raise ProgramError("", f"register {value.name!r}", "a letter or _, then letters, digits and _ . $ -")
        return value

    def encode(self, value: Register) -> str:
        return value.name

    def decode(self, raw: Any) -> Register:
        return self.parse(raw)

    def text(self, value: Register) -> str:
        return value.name

    def parse(self, text: str) -> Register:
        if not isinstance(text, str):
            raise ProgramError("", f"{text!r}", "the name of a register")
        return self.check(Register(text))


@attrs.frozen
class RegisterOrNumber:
    """A register, or a whole number of 32 bits."""

    number = Integer(-(1 << (BITS - 1)), (1 << BITS) - 1)
    register = RegisterOperand()

    def check(self, value: Any) -> Register | int:
        return value if isinstance(value, Register) else self.number.check(value)

    def encode(self, value: Register | int) -> str | int:
        return value.name if isinstance(value, Register) else value

    def decode(self, raw: Any) -> Register | int:
        return self.register.parse(raw) if isinstance(raw, str) else self.number.check(raw)

    def text(self, value: Register | int) -> str:
        return value.name if isinstance(value, Register) else str(value)

    def parse(self, text: str) -> Register | int:
        return self.register.parse(text) if NAME.fullmatch(text) else self.number.parse(text)


SET, REGISTER, SOURCE = RegisterOperand(sets=True), RegisterOperand(), RegisterOrNumber()


class Sequenced(Control):
    """A control instruction over registers. `compute` is its meaning; `execute` the same over an engine's state."""

    @property
    def registers(self) -> tuple[Register, ...]:
        """Registers it reads, in field order."""
        return self._of(sets=False)

    @property
    def sets(self) -> tuple[Register, ...]:
        """Registers it gives a value."""
        return self._of(sets=True)

    def _of(self, sets: bool) -> tuple[Register, ...]:
        kinds = fields_of(type(self)).items()
        return tuple(v for n, k in kinds if isinstance(v := getattr(self, n), Register) and getattr(k, "sets", False) is sets)

    def work(self) -> Work:
        return Work(kind=self.timing)

    def compute(self, value: Callable[[Register | int], int]) -> int:
        """The value it gives its register; of a branch, 1 if the comparison holds."""
        raise NotImplementedError(type(self).__name__)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        values = registers_of(state)
        result = self.compute(lambda x: values[x.name] if isinstance(x, Register) else wrapped(x))
        for register in self.sets:
            values[register.name] = result
        return {}


def registers_of(state: dict[str, Any]) -> MutableMapping[str, Any]:
    """The registers of an engine's sequencer, by name, in the state that its instructions share."""
    values: MutableMapping[str, Any] = state.setdefault("registers", {})
    return values


@instruction(*ALL, source="nki.isa.register_alloc", machine=False)
class RegisterAlloc(Sequenced):
    """Allocate a register, with a value if `src` is given. `p.register_alloc(5)` returns the register."""

    dst: Register = of(SET)
    src: int | None = of(Maybe(Integer(-(1 << (BITS - 1)), (1 << BITS) - 1)), default=None)


@instruction(*ALL, source="nki.isa.register_move")
class RegisterMove(Sequenced):
    """dst = src, a register or a whole number. Without `engine=` on every engine that needs dst."""

    timing = "move"

    dst: Register = of(SET)
    src: Register | int = of(SOURCE)

    @property
    def opcode(self) -> str:
        return "MOVE"

    def compute(self, value: Callable[[Register | int], int]) -> int:
        return value(self.src)


@instruction(*ALL, source="trn3 hardware traces, ALU_OP")
class RegisterAlu(Sequenced):
    """dst = data0 op data1, in 32 bits. Comparisons give 1 or 0. Without `engine=` on every engine that needs dst.

    nki.isa has no call for it; traces show the opcode.
    """

    timing = "alu_op"

    dst: Register = of(SET)
    data0: Register | int = of(SOURCE)
    op: str = of(ALU)
    data1: Register | int = of(SOURCE)

    @property
    def opcode(self) -> str:
        return "ALU_OP"

    def compute(self, value: Callable[[Register | int], int]) -> int:
        return _alu(self.op, value(self.data0), value(self.data1))


@instruction(*ALL, source="nki.isa.register_load")
class RegisterLoad(Sequenced):
    """dst = the one element of src, in HBM or SBUF. Without `engine=` on every engine that needs dst."""

    timing = "tensor_load"

    dst: Register = of(SET)
    src: View = of(FIXED)

    @property
    def opcode(self) -> str:
        return "TENSOR_LOAD"

    def check(self) -> None:
        _one_element(self, "src", self.src)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        registers_of(state)[self.dst.name] = wrapped(int(operands["src"].reshape(-1)[0]))
        return {}


@instruction(*ALL, source="nki.isa.register_store")
class RegisterStore(Sequenced):
    """dst, one element in HBM or SBUF, = src; of a narrower type its low bits. Without `engine=` on Sync."""

    timing = "tensor_store"

    dst: View = of(WRITE_FIXED)
    src: Register = of(REGISTER)

    @property
    def opcode(self) -> str:
        return "TENSOR_STORE"

    def check(self) -> None:
        _one_element(self, "dst", self.dst)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        bits = np.array([registers_of(state)[self.src.name]], np.int32).view(np.uint32)
        narrow = bits.astype(f"u{self.dst.dtype.itemsize}").view(self.dst.dtype.numpy)
        return {"dst": narrow.reshape(self.dst.shape)}


@instruction(*ALL, source="inf2 hardware traces, COMPARE_BRANCH")
class CompareBranch(Sequenced):
    """Compare, and branch. A loop has one ahead of its first round and one after each; alone it takes its time and goes on."""

    timing = "compare_branch"

    data0: Register | int = of(SOURCE)
    op: str = of(COMPARISONS)
    data1: Register | int = of(SOURCE)

    def compute(self, value: Callable[[Register | int], int]) -> int:
        return _alu(self.op, value(self.data0), value(self.data1))


@instruction(*ALL, source="nki.language.dynamic_range", machine=False)
class LoopFor(Sequenced):
    """The instructions up to loop_end, for counter = lower, lower + step, … below upper. See p.dynamic_range and p.fori_loop."""

    counter: Register = of(SET)
    lower: Register | int = of(SOURCE, default=0)
    upper: Register | int = of(SOURCE)
    step: int = of(Integer(1, (1 << (BITS - 1)) - 1), default=1)


@instruction(*ALL, source="nki.language.while_loop", machine=False)
class LoopWhile(Sequenced):
    """The instructions up to loop_end, again and again while the register is not 0. See p.while_loop and p.repeat_while."""

    condition: Register = of(REGISTER)


@instruction(*ALL, source="nki.language.dynamic_range", machine=False)
class LoopEnd(Sequenced):
    """The end of the innermost open loop."""


def _one_element(i: Instruction, name: str, v: View) -> None:
    i.require(v.memory is not Memory.PSUM, f"{name} is in PSUM", "HBM or SBUF")
    i.require(v.size == 1, f"{name} has shape {list(v.shape)}", "one element: [1] or [1, 1]")
    i.specified(v.dtype.kind != "float", f"{name} has {v.dtype.name} elements", "whole numbers: no source says what others become")


def _alu(op: str, a: int, b: int) -> int:
    with np.errstate(all="ignore"):
        return int(ALU_OPS[op].function(np.array([a], np.int32), np.array([b], np.int32))[0])
