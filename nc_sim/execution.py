"""Which instructions of a program with registers execute, in order: loops are run, and become the rows of their rounds.

Control is decided before time begins, in program order. An automatic program computes the same values in time as in
program order, so its decisions are those of the run. An explicit program may load other values in time: then `simulate`
decides again with the values that the run loaded, until both agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from .control import Code, Loop
from .isa import Engine, Instruction, Memory, Step, View
from .isa.dma import Dma
from .isa.dynamic import Register, wrapped
from .isa.errors import ProgramError, Unsupported
from .isa.registers import CompareBranch, RegisterLoad, RegisterStore, Sequenced, registers_of
from .memory import Memories
from .moving import in_bounds
from .numerics import execute, perform, write
from .program import Tensor

MAX_ITERATIONS = 100_000  # of all loops of a run together, unless the caller says otherwise


@attrs.frozen
class Executed:
    """Instructions in the order in which a program executes them."""

    steps: tuple[Step, ...]
    loads: Mapping[int, int]  # step that loads a register -> the value taken, if it was known


@attrs.frozen
class _Unknown:
    """The value of a register that comes from tensor data, in a run without values."""

    line: str


class DependsOnData(Unsupported):
    """Control depends on values, and there are none."""


class _NeedsValues(Exception):
    """Control depends on tensor data."""

    def __init__(self, where: str, register: str, line: str) -> None:
        self.where, self.register, self.line = where, register, line


def executed(
    code: Code, tensors: Mapping[str, Tensor], most: int, memories: Callable[[], Memories] | None = None,
    observed: Mapping[Engine, Sequence[int]] | None = None,
) -> Executed:  # fmt: skip
    """Run the control of a program. `memories` makes those in which values are computed where control depends on them.

    `observed` gives the values that register loads of each engine found in an earlier run, as far as they go. Raises
    Unsupported at the user's line where control needs values and there are none, ProgramError for registers that have no
    value, for engines that disagree about a loop, and after `most` iterations.
    """
    try:
        if not observed:
            return _Execution(tensors, most, None, {}, wanted=memories is not None).run(code)
    except _NeedsValues as e:
        if memories is None:
            found = f"register {e.register}, which {e.line or 'a register_load'} loads from tensor data"
            raise DependsOnData(e.where, found, "a run with values, to know it") from None
    assert memories is not None  # they were there when something was observed
    return _Execution(tensors, most, memories(), observed or {}).run(code)


class _Execution:
    def __init__(
        self, tensors: Mapping[str, Tensor], most: int, memories: Memories | None, observed: Mapping[Engine, Sequence[int]],
        wanted: bool = True,
    ) -> None:  # fmt: skip
        """`wanted`: addresses are; time does not depend on them."""
        self.tensors, self.most, self.memories, self.observed, self.wanted = tensors, most, memories, observed, wanted
        self.state: dict[Engine, dict[str, Any]] = {e: {"engine": e} for e in Engine}
        self.steps: list[Step] = []
        self.loads: dict[int, int] = {}
        self.loaded = dict.fromkeys(Engine, 0)
        self.written: set[str] = set()  # HBM tensors
        self.iterations = 0

    def run(self, code: Code) -> Executed:
        self.code(code)
        return Executed(tuple(self.steps), self.loads)

    def code(self, code: Code) -> None:
        for item in code:
            if isinstance(item, Loop):
                self.loop(item)
            else:
                self.step(item)

    def loop(self, loop: Loop) -> None:
        for step in loop.enter:
            self.step(step)
        while self.goes_on(loop):
            self.iterations += 1
            if self.iterations > self.most:
                raise self.endless(loop)
            self.code(loop.body)
            for step in loop.again:
                self.step(step)

    def endless(self, loop: Loop) -> ProgramError:
        """The error of a loop that goes on and on; of one that polls memory, why no write that stands behind it can end it."""
        found, required = f"more than {self.most} iterations of loops", "an end, or a larger max_iterations"
        tested = loop.branch[0].instruction.registers
        for step in loop.body:
            if isinstance(step, Step) and isinstance(i := step.instruction, RegisterLoad) and i.dst in tested:
                found += f", while register {i.dst.name} is {registers_of(self.state[step.engine])[i.dst.name]}: {_where(step)} loads it"
                required += f"; rounds are decided in program order, so what writes {i.src.tensor} behind the loop comes too late"
                break
        return ProgramError(f"{loop.line} loop".strip(), found, required)

    def goes_on(self, loop: Loop) -> bool:
        """True if the loop has another round; every engine of it says the same."""
        found: dict[Engine, int] = {}
        for step in loop.branch:
            self.step(step)
            branch = step.instruction
            assert isinstance(branch, CompareBranch)
            for r in branch.registers:
                if isinstance(unknown := self.state[step.engine]["registers"][r.name], _Unknown):
                    raise _NeedsValues(f"{loop.line} loop".strip(), r.name, unknown.line)
            found[step.engine] = self.value(step, branch)
        if len(set(found.values())) > 1:
            on, off = (next(e.label for e, v in found.items() if v == goes) for goes in (1, 0))
            registers = ", ".join(r.name for r in loop.branch[0].instruction.registers)
            raise ProgramError(
                f"{loop.line} loop".strip(), f"{on} goes on and {off} does not", f"{registers} with one value on all engines of the loop"
            )
        return bool(next(iter(found.values())))

    def value(self, step: Step, instruction: Sequenced) -> int:
        registers = registers_of(self.state[step.engine])
        return instruction.compute(lambda x: wrapped(x) if isinstance(x, int) else int(registers[x.name]))

    def step(self, step: Step) -> None:
        """Execute one instruction, and note it."""
        instruction = step.instruction
        state = self.state[step.engine]
        registers = registers_of(state)  # may hold _Unknown here
        for r in instruction.registers:
            if r.name not in registers:
                raise self.unset(step, r.name)
        unknown = next((v for r in instruction.registers if isinstance(v := registers[r.name], _Unknown)), None)
        if not isinstance(instruction, Sequenced):
            if instruction.registers:
                if unknown is not None and self.wanted:
                    register = next(r.name for r in instruction.registers if registers[r.name] is unknown)
                    raise _NeedsValues(_where(step), register, unknown.line)
                asked, instruction = instruction, instruction.bound(lambda r: r if isinstance(v := registers[r.name], _Unknown) else int(v))
                check_bounds(asked, instruction, _where(step))
            self.written.update(v.tensor for v in instruction.writes if v.memory is Memory.HBM)
            if self.memories is not None:
                perform(attrs.evolve(step, instruction=instruction), self.memories, state, lambda: _where(step))
        elif isinstance(instruction, RegisterLoad):
            registers[instruction.dst.name] = self.load(step, instruction, state)
        elif isinstance(instruction, RegisterStore):
            self.written.add(instruction.dst.tensor)
            if self.memories is not None:
                write(execute(step, self.memories, state), self.memories)
        elif instruction.sets:
            registers[instruction.sets[0].name] = unknown if unknown is not None else self.value(step, instruction)
        self.steps.append(Step(instruction, step.engine, step.waits, step.updates, step.line, step.call))

    def load(self, step: Step, instruction: RegisterLoad, state: dict[str, Any]) -> int | _Unknown:
        """The value of a register load: what an earlier run saw, what memory holds, or what a constant says."""
        if self.memories is None:
            value = self.constant(instruction.src)
            if value is None:
                return _Unknown(step.line)
            self.loads[len(self.steps)] = value
            return value
        execute(step, self.memories, state)
        seen, number = self.observed.get(step.engine, ()), self.loaded[step.engine]
        self.loaded[step.engine] += 1
        value = seen[number] if number < len(seen) else registers_of(state)[instruction.dst.name]
        self.loads[len(self.steps)] = value
        return value

    def constant(self, view: View) -> int | None:
        """An element of a constant that nothing has overwritten."""
        tensor = self.tensors[view.tensor]
        if tensor.data is None or view.tensor in self.written:
            return None
        return wrapped(int(np.frombuffer(tensor.data, view.dtype.numpy, 1, view.offset)[0]))

    def unset(self, step: Step, register: str) -> ProgramError:
        where = _where(step)
        others = [e.label for e in Engine if register in self.state[e].get("registers", {})]
        if others:
            found = f"register {register} on {step.engine.label}'s sequencer, where nothing set it: {', '.join(others)} has a value"
            return ProgramError(where, found, "a register of this engine: set it without engine=, or on this engine too")
        return ProgramError(where, f"register {register} is read before anything sets it", "register_move or register_load before")


def check_bounds(asked: Instruction, instruction: Instruction, where: str) -> None:
    """Raise ProgramError where a number that a register of `asked` gave moves an operand out of bounds, unless a DMA skips that."""
    if isinstance(instruction, Dma) and instruction.skips:
        return
    for (_, view, _), (_, before, _) in zip(instruction.views, asked.views, strict=True):
        if view.dynamic is not None and isinstance(number := view.dynamic.index, int):
            assert before.dynamic is not None
            register = before.dynamic.index
            in_bounds(view, number, lambda: where, register=register.name if isinstance(register, Register) else "")


def _where(step: Step) -> str:
    return f"{step.line} {step.engine.name.lower()} {step.instruction.mnemonic}".strip()
