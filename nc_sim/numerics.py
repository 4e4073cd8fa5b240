"""Values as a probe: operands are read when a row starts, results are written when it finishes.

A missing semaphore therefore gives wrong data, as on hardware. An accumulating destination is read at its finish; the
stationary operand is captured when its weight load starts; each DMA engine moves its own share in its own time. Indices
are read when the queue takes the instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache, lru_cache, partial
from typing import Any

import attrs
import numpy as np
from threadpoolctl import ThreadpoolController

from . import moving
from .explain import place
from .isa import Engine, Instruction, Memory, Step, View, indirection
from .isa.dma import Dma, DmaDirect2d
from .isa.errors import ProgramError, Unspecified
from .isa.registers import RegisterLoad, Sequenced, registers_of
from .memory import Memories
from .probe import Probe
from .table import Role, Table
from .timeline import Timeline

EXECUTES = (int(Role.EXECUTE), int(Role.STREAM))
CONTROL, TRANSFER = int(Role.CONTROL), int(Role.TRANSFER)
TAKEN = (int(Role.ACCEPT), int(Role.TRIGGER))
SEQUENCE = int(Role.SEQUENCE)
EVENTS_PER_LOOK = 1024  # between two calls of `progress`

Operands = Sequence[tuple[str, "View | Columns", bool]]  # (field, where it lies, is written), as `Instruction.views`


@attrs.frozen(eq=False)
class Columns:
    """An operand whose columns offsets chose: all that it could have had, and which it has, [P, elements]."""

    table: View
    places: np.ndarray


@cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()  # looks through all loaded libraries: once


def one_thread() -> AbstractContextManager[Any]:
    """BLAS on one thread: products are small, and several threads take three times as long for them."""
    found: AbstractContextManager[Any] = _threads().limit(limits=1, user_api="blas")
    return found


class Numerics(Probe):
    """Executes a program's values along a run, or along a finished timeline (`replay`)."""

    def __init__(self, steps: Sequence[Step], table: Table, memories: Memories, served: int) -> None:
        self.steps, self.table, self.memories, self.served = steps, table, memories, served
        self.step, self.role = table.step.tolist(), table.role.tolist()
        self.state: dict[Engine, dict[str, Any]] = {e: {"engine": e} for e in Engine}
        self.pending: dict[int, Results] = {}
        self.loads: dict[int, int] = {}  # step that loads a register -> what it found
        self.moving: dict[int, Callable[[], None]] = {}  # what puts a share where it goes
        self.found: dict[int, moving.Move | None] = {}  # DMAs whose addresses are known, by step
        self.left: dict[int, int] = {}  # and how many of their shares have not begun
        self.located: dict[int, Operands] = {}  # of compute instructions with an address known at run time, by step

    def started(self, row: int, tick: int) -> None:
        role = self.role[row]
        if role in EXECUTES:
            k = self.step[row]
            step = self.steps[k]
            self.pending[row] = execute(step, self.memories, self.state[step.engine], self.located.pop(k, None))
        elif role == SEQUENCE:
            k = self.step[row]
            if moves(self.steps[k].instruction):
                self.located[k] = located(self.steps[k].instruction, self.memories, partial(place, self.steps, k))
        elif role == TRANSFER:
            self.read_share(row)
        elif role == CONTROL:
            self.control(row)
        elif role in TAKEN:
            self.find(self.step[row])

    def finished(self, row: int, tick: int) -> None:
        if (results := self.pending.pop(row, None)) is not None:
            write(results, self.memories)
        elif (put := self.moving.pop(row, None)) is not None:
            put()

    def find(self, k: int) -> None:
        """Read the indices of a DMA that has some."""
        dma = self.steps[k].instruction
        if isinstance(dma, DmaDirect2d) or not isinstance(dma, Dma) or k in self.left:
            return
        self.found[k] = moving.found(dma, self.memories, partial(place, self.steps, k))
        self.left[k] = self.table.servers

    def control(self, row: int) -> None:
        """A sequencer's registers have their values when the instruction begins; the sequencer goes on when it is done."""
        index = self.step[row]
        step = self.steps[index]
        if isinstance(step.instruction, Sequenced):
            state = self.state[step.engine]
            self.pending[row] = execute(step, self.memories, state)
            if isinstance(step.instruction, RegisterLoad):
                self.loads[index] = registers_of(state)[step.instruction.dst.name]

    def read_share(self, row: int) -> None:
        """What one DMA engine moves: its partitions of the SBUF side, or its rows between two HBM tensors."""
        k, t = self.step[row], row - self.table.rows
        dma = self.steps[k].instruction
        assert isinstance(dma, Dma)
        server, plain = int(self.table.server[t]), isinstance(dma, DmaDirect2d)
        move = None if plain else self.next_share(k)
        if server >= 0 and not self.table.packets[t]:
            return
        side = next((v for v in (dma.dst, *dma.sources) if v.memory is Memory.SBUF), None)
        if server < 0:
            first, last = 0, dma.dst.size
        elif side is None or not self.served or dma.axes is not None:
            first, last = self.elements(row, dma)
        else:
            first, last = self.partitions(server, side)
        if plain:
            self.moving[row] = partial(self.memories.write_part, dma.dst, first, self.memories.read_part(dma.sources[0], first, last))
        elif move is not None:
            values, kept = moving.read(move, first, last, self.memories)
            self.moving[row] = partial(moving.write, move, first, values, kept, self.memories)

    def next_share(self, k: int) -> moving.Move | None:
        """The DMA of a step, of which one more share begins; forgotten with the last."""
        self.left[k] -= 1
        return self.found[k] if self.left[k] else self.found.pop(k)

    def partitions(self, server: int, side: View) -> tuple[int, int]:
        """The elements, in order, of the partitions a DMA engine serves."""
        first, last = served(side.partition, side.partitions, server, self.served, self.table.servers)
        return first * side.elements, last * side.elements

    def elements(self, row: int, dma: Dma) -> tuple[int, int]:
        """Rows in order, as they were spread over the engines."""
        t = row - self.table.rows
        first = t - int(self.table.server[t])
        counts = self.table.packets[first : first + self.table.servers]
        total, size = int(counts.sum()), dma.dst.size
        before = int(counts[: t - first].sum())
        return before * size // total, (before + int(counts[t - first])) * size // total


Results = list[tuple["View | Columns", np.ndarray, bool]]  # where each goes, values, whether they are added


def moves(instruction: Instruction) -> bool:
    """True if an operand's address is known at run time only."""
    return any(view.dynamic is not None for _, view, _ in instruction.views)


def located(instruction: Instruction, memories: Memories, where: Callable[[], str]) -> Operands:
    """The operands where they lie now; ProgramError if one is out of bounds."""
    return [(name, _located(view, written, memories, where), written) for name, view, written in instruction.views]


def _located(view: View, written: bool, memories: Memories, where: Callable[[], str]) -> View | Columns:
    if view.dynamic is None or view.dynamic.kind != "columns":
        return moving.resolved(view, memories, where)
    try:
        return Columns(indirection.table(view), indirection.places(view, memories.read(view.dynamic.tensor), written))
    except (ProgramError, Unspecified) as e:
        raise e.at(where()) from None


def _read(view: View | Columns, memories: Memories) -> np.ndarray:
    return memories.read(view) if isinstance(view, View) else np.take_along_axis(memories.read(view.table), view.places, 1)


@lru_cache(1 << 12)
def served(first: int, count: int, server: int, each: int, servers: int) -> tuple[int, int]:
    """Of `count` partitions from `first` on, counted from there: the first and one past the last that a DMA engine serves."""
    mine = [p for p in range(count) if min((first + p) // each, servers - 1) == server]
    return mine[0], mine[-1] + 1


def execute(
    step: Step, memories: Memories, state: dict[str, Any], views: Operands | None = None
) -> Results:  # fmt: skip
    """Read a step's operands and compute: (view, values, is added to the view) for each result.

    `views` are the operands of an instruction with an address known at run time, where they lie.
    """
    instruction = step.instruction
    keeps, views = instruction.keeps() or instruction.spares(), instruction.views if views is None else views
    operands = {name: _read(view, memories) for name, view, written in views if keeps or not written}
    results = instruction.execute(operands, state)
    adds = instruction.accumulates()
    return [(view, results[name], adds) for name, view, _ in views if name in results]


def perform(step: Step, memories: Memories, state: dict[str, Any], where: Callable[[], str]) -> None:
    """Execute one step whole, without time. `where` gives the place that an error names."""
    i = step.instruction
    if isinstance(i, Dma) and not isinstance(i, DmaDirect2d):
        if (move := moving.found(i, memories, where)) is not None:
            moving.write(move, 0, *moving.read(move, 0, i.dst.size, memories), memories)
    else:
        write(execute(step, memories, state, located(i, memories, where) if moves(i) else None), memories)


def write(results: Results, memories: Memories) -> None:
    """Store results; accumulation reads the destination now, in engine order."""
    for view, values, adds in results:
        if adds:
            with np.errstate(all="ignore"):
                values = _read(view, memories).astype(np.float32) + values
        if isinstance(view, View):
            memories.write(view, values)
        else:
            np.put_along_axis(memories.array(view.table), view.places, memories.rounded(view.table, values.reshape(view.places.shape)), 1)


def replay(table: Table, timeline: Timeline, probe: Probe, progress: Callable[[int, int], None] | None = None) -> None:
    """Drive a probe along a finished timeline, in the order the SimPy engine would: ends before beginnings, by row.

    DMA engines begin their transfers last, engine by engine. `progress` is called now and then with events done and in all.
    """
    finish, start = timeline.finish, timeline.start
    rows = np.arange(len(start))
    tick = np.concatenate([finish, start])
    begins = np.concatenate([np.zeros(len(rows), np.int64), np.ones(len(rows), np.int64)])
    both = np.concatenate([rows, rows])
    picked = np.where(table.server < 0, rows[table.rows :], len(rows) + table.server)
    order = np.concatenate([rows, rows[: table.rows], picked])
    for done, k in enumerate(np.lexsort((order, begins, tick)).tolist()):
        if progress is not None and done % EVENTS_PER_LOOK == 0:
            progress(done, len(both))
        (probe.started if begins[k] else probe.finished)(int(both[k]), int(tick[k]))


def interpret(steps: Sequence[Step], memories: Memories) -> None:
    """Execute a program one instruction after another, without time: the reference for automatic programs."""
    state: dict[Engine, dict[str, Any]] = {e: {"engine": e} for e in Engine}
    for k, step in enumerate(steps):
        perform(step, memories, state[step.engine], partial(place, steps, k))
