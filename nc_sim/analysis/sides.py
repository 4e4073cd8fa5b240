"""What `compare` sets beside each other: a run or a profile of hardware, as engines, opcodes, lines and times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cached_property

import attrs
import numpy as np

from ..isa import Engine, Step
from ..isa.dma import Dma
from ..lower import queue_name
from ..mechanisms import changes
from ..result import Result, body_ticks
from ..table import Ints
from ..timeline import step_ends
from ..trace.profile_stream import Stream, named
from .history import History, history
from .lines import stalls

WAITING = "EVENT_SEMAPHORE"  # no activity: it is a wait (published active times do not count it either)
EXECUTES, WAITS, GAP, END, NOTHING = (
    "executes",
    "before one that waits",
    "before one that waits for nothing",
    "after its last",
    "no instruction",
)
GAPS = {
    EXECUTES: "has an instruction under way, from its start to its visible result",
    WAITS: "has none under way, and its next instruction waits for semaphores of whom is named",
    GAP: "has none under way, and its next instruction waits for no semaphore",
    END: "nothing left to do",
    NOTHING: "has nothing to do in the whole body",
}  # fmt: skip
Parts = dict[tuple[str, str, str], int]  # engine, cause, on -> ticks


@attrs.frozen(eq=False)
class Side:
    """One of the two. Instructions are in program order of each queue; times are ticks from the release of Sync."""

    name: str
    of: Result | Stream
    ticks_per_ns: Fraction
    body: int
    engine: tuple[str, ...]
    opcode: tuple[str, ...]
    line: tuple[str, ...]
    start: Ints
    end: Ints
    dma: tuple[Ints, Ints] | None  # from when to when DMA engines are at a transfer; None: not known
    place: str = ""  # the path it was read from

    @cached_property
    def facts(self) -> History:
        """Of a run: what its analyses rest on."""
        assert isinstance(self.of, Result)
        return history(self.of.table, self.of.timeline)

    @property
    def profile(self) -> bool:
        """Whether it is a profile, which keeps starts and ends alone."""
        return isinstance(self.of, Stream)

    def queue(self, engine: str) -> Ints:
        """The instructions of an engine, in order."""
        return np.flatnonzero(np.array([e == engine for e in self.engine], np.bool_))

    def kinds_by_line(self, directions: bool) -> dict[str, set[str]]:
        """The opcodes on each line; of DMAs, which all have one, also whether they read HBM, which a run alone tells."""
        out: dict[str, set[str]] = {}
        for line, opcode in zip(self.line, self.opcode, strict=True):
            out.setdefault(line, set()).add(opcode)
        if directions and isinstance(self.of, Result):
            for s in self.of.steps:
                if isinstance(s.instruction, Dma):
                    out[s.line].add("load" if s.instruction.load else "store")
        return out

    def waits(self) -> Sequence[str]:
        """Of each instruction: whom it waits for."""
        return self.of.waits if isinstance(self.of, Stream) else waits_of(self.of.steps)

    def active(self, engine: str) -> int:
        """Ticks in which at least one instruction that is no wait is under way."""
        mine = np.array([k for k in self.queue(engine).tolist() if self.opcode[k] != WAITING], np.int64)
        return union(self.start[mine], self.end[mine])


def side_of(of: Result | Stream) -> Side:
    """A run or a profile as one of two sides."""
    if isinstance(of, Result):
        table, rows = of.table, of.table.rows
        name = f"{of.program.name} on {of.chip.name} {changes(of.chip.overrides, of.without)}".rstrip()
        return Side(
            name, of, Fraction(table.ticks_per_ns), body_ticks(table, of.timeline), tuple(s.engine.label for s in of.steps),
            tuple(s.instruction.opcode for s in of.steps), tuple(s.line for s in of.steps), of.timeline.start[table.start_row],
            step_ends(table, of.timeline), (of.timeline.start[rows:], of.timeline.finish[rows:]),
        )  # fmt: skip
    start = np.array([m.start_ns for m in of.measured], np.int64) - of.origin_ns
    moved = None if of.parts is None else np.array([(p.start_ns, p.end_ns) for p in of.parts], np.int64).reshape(-1, 2).T - of.origin_ns
    end = start + np.array([m.duration_ns for m in of.measured], np.int64)
    return Side(
        f"{of.name}, {'an exported simulation' if of.simulated else 'measured'}", of, Fraction(1), of.body_ns,
        tuple(e.label for e in of.engines), tuple(m.opcode for m in of.measured), tuple(m.line for m in of.measured), start, end,
        None if moved is None else (moved[0], moved[1]),
    )  # fmt: skip


def waits_of(steps: Iterable[Step]) -> list[str]:
    """For each step who raises the semaphores it waits for: engines, and DMA queues."""
    raised: dict[int, set[str]] = {}
    steps = tuple(steps)
    for s in steps:
        if s.updates:
            who = queue_name(s.engine, s.instruction.generation) if isinstance(s.instruction, Dma) else s.engine.label
            for u in s.updates:
                raised.setdefault(u.semaphore, set()).add(who)
    return [named({who for w in s.waits for who in raised.get(w.semaphore, ())}) for s in steps]


def causes(side: Side, engines: Iterable[str], by_gaps: bool) -> Parts:
    """Each engine's time by cause: a run's stalls, or what starts and ends alone tell. Each engine's ticks sum to the body."""
    out: Parts = {}
    if by_gaps or not isinstance(side.of, Result):
        out = gaps(side)
    else:
        out = {(p.engine, p.cause, p.on): p.ticks for p in stalls(side.of, side.facts)}
    here = {engine for engine, *_ in out}
    return out | {(e, NOTHING, ""): side.body for e in engines if e not in here and side.body}


def gaps(side: Side) -> Parts:
    """Each engine's time by what starts and ends tell: under way, or none is, and whom the next instruction waits for.

    A wait that is an instruction of its own, EVENT_SEMAPHORE, counts as waiting.
    """
    waits, out = side.waits(), Parts()
    for engine in dict.fromkeys(side.engine):
        mine = side.queue(engine)
        idle = np.array([side.opcode[k] == WAITING for k in mine.tolist()], np.bool_)
        end = np.clip(side.end[mine], 0, side.body)
        start = np.where(idle, end, np.clip(side.start[mine], 0, side.body))
        order = np.lexsort((end, start))
        start, end = start[order], end[order]
        reach = np.maximum.accumulate(np.append(0, end))
        gap = np.maximum(start - reach[:-1], 0)
        for k, ticks in zip(mine[order].tolist(), gap.tolist(), strict=True):
            if ticks:
                key = (engine, WAITS, waits[k]) if waits[k] else (engine, GAP, "")
                out[key] = out.get(key, 0) + ticks
        for cause, ticks in ((EXECUTES, int(reach[-1] - gap.sum())), (END, int(side.body - reach[-1]))):
            if ticks:
                out[engine, cause, ""] = ticks
    return out


def union(start: Ints, end: Ints) -> int:
    """How long at least one of the intervals lasts."""
    if not len(start):
        return 0
    order = np.argsort(start, kind="stable")
    begin, reach = start[order], np.maximum.accumulate(end[order])
    return int((reach[0] - begin[0]) + np.maximum(0, reach[1:] - np.maximum(begin[1:], reach[:-1])).sum())


def engines_of(*sides: Side) -> list[str]:
    """Engines with instructions on any side, in the order of the hardware's."""
    here = {e for s in sides for e in s.engine}
    return [e.label for e in Engine if e.label in here]
