"""The critical path: from the end of the body back over the last thing that each row waited for, to time zero.

Its pieces follow one another without a gap and sum to the body. What is not on it did not decide this run's length; what
is on it decided it in this run, and another path may be nearly as long (`slack` tells).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
import numpy as np

from ..isa.errors import InternalError
from ..notebook import Records
from ..progress import PIECES, Tell
from ..result import Result, body_ticks
from ..table import Role, Rule, When
from .history import NONE, History, history
from .lines import own_work, queues

EXECUTES, RESULT, ISSUES, HAND, SIGNAL, ARRIVES, CONTENDS, MOVES, COMPLETES, RELEASE = (
    "executes", "result latency", "issue", "handed over", "signal", "DMA start", "DMA contention", "DMA transfer", "DMA completion",
    "release",
)  # fmt: skip
KINDS = {
    EXECUTES: "an engine works on it",
    RESULT: "its result is on the way to where it can be read",
    ISSUES: "a queue works on it before it can take the next: dispatch, triggers, descriptors, control",
    HAND: "it is on the way from its sequencer to its engine, or held up by the engine's pipeline",
    SIGNAL: "its semaphore is on the way",
    ARRIVES: "a DMA between its trigger and its arrival at the DMA engine",
    CONTENDS: "a DMA whose DMA engine works on others, or stalls as it met them",
    MOVES: "a DMA that moves data",
    COMPLETES: "a DMA from its last packet to its semaphore",
    RELEASE: "the release of the queue it starts",
}


@attrs.frozen
class Segment:
    """A piece of the critical path: one instruction in one phase."""

    step: int  # of `Result.steps`
    where: str  # engine or DMA queue
    opcode: str
    line: str  # file.py:41; empty where nc-sim inserted the instruction
    kind: str  # of KINDS
    start_ticks: int
    end_ticks: int
    start_ns: float
    end_ns: float

    @property
    def ticks(self) -> int:
        return self.end_ticks - self.start_ticks


@attrs.frozen
class Share:
    """What one group of segments makes up."""

    name: str
    ticks: int
    ns: float
    share: float  # of the body
    segments: int


def critical_path(result: Result, facts: History | None = None, progress: Tell | None = None) -> Records[Segment]:
    """The segments from time zero to the end of the body, in order; together they are the body to the tick.

    `progress` is told of pieces of its time, from the end.
    """
    walk = _Walk(result, facts or history(result.table, result.timeline))
    walk.back(progress)
    chip, steps, queue = result.chip, result.steps, queues(result)
    out = []
    for row, kind, a, b in reversed(walk.pieces):
        step = steps[index := int(result.table.step[row])]
        out.append(Segment(index, _where(result, queue, row), step.instruction.opcode, step.line, kind, a, b, chip.ns(a), chip.ns(b)))
    return Records(out)


def spent(result: Result, facts: History | None = None) -> dict[tuple[str, str], int]:
    """Ticks of the critical path by engine or DMA queue, and by kind: without a segment for each piece."""
    walk = _Walk(result, facts or history(result.table, result.timeline))
    walk.back()
    queue, out = queues(result), dict[tuple[str, str], int]()
    for row, kind, a, b in walk.pieces:
        key = _where(result, queue, row), kind
        out[key] = out.get(key, 0) + b - a
    return out


def _where(result: Result, queue: Sequence[str], row: int) -> str:
    if row >= result.table.rows:
        return queue[int(result.table.ring[row - result.table.rows])]
    return result.steps[int(result.table.step[row])].engine.label


def shares(result: Result, segments: Iterable[Segment], by: str) -> Records[Share]:
    """Segments summed by one of their fields, or two joined by a comma, the largest first."""
    ticks: dict[str, int] = {}
    count: dict[str, int] = {}
    for s in segments:
        name = ", ".join(str(getattr(s, field)) or "(inserted)" for field in by.split(","))
        ticks[name] = ticks.get(name, 0) + s.ticks
        count[name] = count.get(name, 0) + 1
    total = body_ticks(result.table, result.timeline)
    order = sorted(ticks, key=lambda n: (-ticks[n], n))
    return Records(Share(n, ticks[n], result.chip.ns(ticks[n]), ticks[n] / total if total else 0.0, count[n]) for n in order)


class _Walk:
    """Backwards in time; `pieces` are (row, kind, from, to), the last first."""

    def __init__(self, result: Result, facts: History) -> None:
        self.table, self.timeline, self.f = result.table, result.timeline, facts
        self.pieces: list[tuple[int, str, int, int]] = []
        ends = result.timeline.finish[result.table.finish_row]
        self.last = int(result.table.finish_row[int(np.argmax(ends))]) if len(ends) else NONE
        self.transfers = _ByEngine(result, facts)
        self.own_work = own_work(result.table, np.arange(result.table.transfers))

    def piece(self, row: int, kind: str, a: int, b: int) -> None:
        if b > a:
            self.pieces.append((row, kind, a, b))

    def back(self, progress: Tell | None = None) -> None:
        row, tick = self.last, (body := body_ticks(self.table, self.timeline))
        tells = 0
        while row != NONE:
            if progress is not None and PIECES * (body - tick) >= tells * body:
                tells += 1
                progress(body - tick, body)
            if row >= self.table.rows:
                row, tick = self.before_transfer(row, tick)
            else:
                row, tick = self.before_row(row, tick)

    def before_row(self, row: int, tick: int) -> tuple[int, int]:
        """From a moment of a row, its finish, its streaming's end or its start, to the moment it hangs on."""
        t, f = self.table, self.f
        start, streamed = int(self.timeline.start[row]), int(f.streamed[row])
        if tick > max(start, streamed) and int(f.own[row]) < tick:
            row = self.committed(row, tick)
            start, streamed = int(self.timeline.start[row]), int(f.streamed[row])
        if tick > start:
            works = t.role[row] not in (Role.SEQUENCE, Role.ACCEPT, Role.TRIGGER, Role.CONTROL)
            # what an engine is busy with, then what it only takes for the result to show
            until = streamed if t.rule[row] in (Rule.LOAD, Rule.STREAM) else min(tick, start + int(f.issue[row]))
            until = min(tick, until) if works else tick
            self.piece(row, RESULT, until, tick)
            self.piece(row, EXECUTES if works else ISSUES, start, until)
        wait = int(f.binding[row])
        if wait != NONE:
            return self.raised(int(f.met_by[wait]), start)
        if f.held_by[row] != NONE:
            return int(f.held_by[row]), start  # the moment at which that one left the port
        stream = int(f.stream[row])
        if row == t.stream_ptr[stream]:
            self.piece(row, RELEASE, 0, start)
            return NONE, 0
        before = row - 1
        works = t.role[before] in (Role.EXECUTE, Role.HANDED, Role.STREAM)
        self.piece(before, EXECUTES if works else ISSUES, int(self.timeline.start[before]), start)
        return before, int(self.timeline.start[before])

    def raised(self, update: int, tick: int) -> tuple[int, int]:
        """A wait's end hangs on the row that raised the semaphore, and the moment from which it did."""
        t, f = self.table, self.f
        row, base = int(f.update_row[update]), int(f.update_base[update])
        hidden = (row < t.rows and t.role[row] == Role.SEQUENCE) or t.update_when[update] == When.STREAMED
        if row < t.rows and t.role[row] == Role.ACCEPT:
            kind = ISSUES  # descriptors are made
        else:
            kind = COMPLETES if row >= t.rows else HAND if hidden else SIGNAL
        self.piece(row, kind, base, tick)
        return row, base

    def committed(self, row: int, tick: int) -> int:
        """The row whose own finish held the finish of a later one up."""
        stream = int(self.f.stream[row])
        ordered, first = bool(self.table.stream_ordered[stream]), int(self.table.stream_ptr[stream])
        while row > first and (int(self.f.own[row]) != tick or not (ordered or self.table.rule[row] == Rule.STREAM)):
            row -= 1
        return row

    def before_transfer(self, row: int, tick: int) -> tuple[int, int]:
        """From the end of a transfer to its begin, and to what that hangs on: another's end, or its own trigger."""
        t = self.table
        transfer, start, ready = row - t.rows, int(self.timeline.start[row]), int(self.timeline.ready[row])
        if tick > start:
            begin = max(start, tick - int(self.own_work[transfer]))
            self.piece(row, MOVES, begin, tick)
            self.piece(row, CONTENDS, start, begin)
        if start > ready:
            before = self.transfers.ended_at(transfer, start)
            if before != NONE:
                return t.rows + before, start
            self.piece(row, CONTENDS, ready, start)
        trigger = int(self.f.trigger[transfer])
        begun = int(self.timeline.start[trigger])
        if ready > begun + int(t.arrival[transfer]):  # a ring stays in order: it arrived with an earlier one
            trigger = int(self.f.trigger[self.transfers.arrived_with(transfer, ready)])
            begun = int(self.timeline.start[trigger])
        self.piece(row, ARRIVES, begun, ready)
        return trigger, begun


class _ByEngine:
    """Transfers of each DMA engine in order of their ends, and of each ring on it in order."""

    def __init__(self, result: Result, facts: History) -> None:
        self.table, self.timeline, self.facts = result.table, result.timeline, facts
        t = result.table
        self.finish, self.ready = (c[t.rows :] for c in (result.timeline.finish, result.timeline.ready))
        self.order = np.lexsort((np.arange(t.transfers), self.finish, t.server))
        self.first = np.searchsorted(t.server[self.order], np.arange(-1, t.servers + 1))

    def ended_at(self, transfer: int, tick: int) -> int:
        """A transfer of the same DMA engine that ends in a tick; NONE if none does."""
        server = int(self.table.server[transfer])
        mine = self.order[self.first[server + 1] : self.first[server + 2]]
        k = int(np.searchsorted(self.finish[mine], tick))
        return int(mine[k]) if k < len(mine) and self.finish[mine[k]] == tick else NONE

    def arrived_with(self, transfer: int, tick: int) -> int:
        """The earlier transfer of the same ring and DMA engine whose own arrival a later one had to keep behind."""
        t = self.table
        for k in range(transfer - 1, -1, -1):
            mine = t.ring[k] == t.ring[transfer] and t.server[k] == t.server[transfer]
            if mine and int(self.timeline.start[self.facts.trigger[k]] + t.arrival[k]) == tick:
                return k
        raise InternalError("analysis", f"transfer {transfer} arrives at tick {tick} behind none", "the timeline of this table")
