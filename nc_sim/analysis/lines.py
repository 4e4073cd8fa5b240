"""Where the body's time went on each engine: what it did, or what it waited for.

An engine and the sequencer in front of it are one line of time. In each tick the engine executes, or its next instruction
stands before it, or nothing was handed over: then the sequencer's own state tells why. The parts of a line are whole
ticks and sum to the body.
"""

from __future__ import annotations

import attrs
import numpy as np

from ..isa import COMPUTE, Engine
from ..isa.dma import Dma
from ..lower import queue_name
from ..notebook import Records
from ..result import Result, body_ticks
from ..table import Ints, Role, Rule, Table
from .history import NONE, History, history

BUSY, THROTTLE, INTERLOCK, SEMAPHORE, SIGNAL = "busy", "throttle", "interlock", "semaphore", "signal"
NOT_TRIGGERED, STARTS, CONTENTION, MOVES, COMPLETES = (
    "DMA not triggered", "DMA start", "DMA contention", "DMA transfer", "DMA completion",
)  # fmt: skip
FULL, ISSUE, START, END = "queue full", "issue", "before release", "after its last"
CAUSES = {
    BUSY: "executes",
    THROTTLE: "executes, beyond the time at full rate",
    INTERLOCK: "has its next instruction, which the one before holds up: weights, or the gap after a product",
    SEMAPHORE: "waits for a semaphore that an instruction of an engine has yet to raise",
    SIGNAL: "waits for a semaphore on its way",
    NOT_TRIGGERED: "waits for a DMA that nobody has triggered yet",
    STARTS: "waits for a DMA between its trigger and its arrival at the DMA engine",
    CONTENTION: "waits for a DMA whose DMA engine works on others, or stalls as it met them",
    MOVES: "waits for a DMA that moves data",
    COMPLETES: "waits for a DMA whose data have arrived",
    FULL: "its sequencer holds an instruction back: the queue behind it is full",
    ISSUE: "its sequencer works: dispatch, DMA triggers, control instructions",
    START: "not released",
    END: "nothing left to do",
}
DISPATCH, TRIGGERS, CONTROL = "dispatch", "DMA trigger", "control"
ISSUES = {Role.SEQUENCE: DISPATCH, Role.CONTROL: CONTROL, Role.ACCEPT: TRIGGERS, Role.TRIGGER: TRIGGERS}
PHASES = (NOT_TRIGGERED, STARTS, CONTENTION, MOVES, COMPLETES)
Code = tuple[str, str]  # cause, and on what


@attrs.frozen
class Part:
    """So long an engine did, or waited for, one thing."""

    engine: str
    cause: str  # of CAUSES
    on: str  # the engine or DMA queue waited for, or what the sequencer issues; empty where the cause says it all
    ticks: int
    ns: float
    share: float  # of the body


def stalls(result: Result, facts: History | None = None) -> Records[Part]:
    """The body by engine, cause and what is waited for, of the engines that did anything. Each engine's ticks sum to the body's."""
    lines = Lines(result, facts or history(result.table, result.timeline))
    out: list[Part] = []
    for e in Engine:
        total: dict[Code, int] = {}
        for code, ticks in zip(*lines.parts(e), strict=True):
            total[lines.codes[code]] = total.get(lines.codes[code], 0) + ticks
        order = sorted(total, key=lambda c: (list(CAUSES).index(c[0]), c[1]))
        out += [_part(result, e.label, *c, total[c], lines.total) for c in order]
    return Records(out)


def _part(result: Result, engine: str, cause: str, on: str, ticks: int, total: int) -> Part:
    return Part(engine, cause, on, ticks, result.chip.ns(ticks), ticks / total if total else 0.0)


class Lines:
    """Each engine's line of time as intervals with codes."""

    def __init__(self, result: Result, facts: History) -> None:
        self.table, self.timeline, self.facts = result.table, result.timeline, facts
        self.total = body_ticks(result.table, result.timeline)
        self.number: dict[Code, int] = {}
        self.codes: list[Code] = []
        self.queue = queues(result)
        self.architectural = architectural(result)
        # what a wait on each row's updates is called: by engine, or by DMA queue and phase
        names = [n.removesuffix(" engine") for n in self.table.stream_names]
        self.semaphore = np.array([self.code(SEMAPHORE, n) for n in names], np.int64)
        self.signal = np.array([self.code(SIGNAL, n) for n in names], np.int64)
        self.phase = np.array([[self.code(p, q) for p in PHASES] for q in self.queue], np.int64).reshape(-1, len(PHASES))

    def code(self, cause: str, on: str = "") -> int:
        if (cause, on) not in self.number:
            self.number[cause, on] = len(self.codes)
            self.codes.append((cause, on))
        return self.number[cause, on]

    def parts(self, engine: Engine) -> tuple[list[int], list[int]]:
        """Codes and ticks of an engine; none where it has nothing to do."""
        edges, codes = self.sequencer(engine)
        behind, over = self.behind(engine)
        if len(edges) == 0 and len(behind) == 0:
            return [], []
        if len(edges) == 0:
            edges, codes = np.array([0, self.total]), np.array([self.code(END)])
        every = np.unique(np.concatenate([edges, behind, [0, self.total]]))
        every = every[every <= self.total]
        label = codes[np.searchsorted(edges, every[:-1], side="right") - 1]
        if len(behind):
            at = np.searchsorted(behind, every[:-1], side="right") - 1
            own = np.where((at >= 0) & (at < len(over)), np.append(over, NONE)[np.maximum(at, 0)], NONE)
            label = np.where(own >= 0, own, label)
        ticks = np.bincount(label, np.diff(every), len(self.codes)).astype(np.int64)
        present = np.flatnonzero(ticks)
        return present.tolist(), ticks[present].tolist()

    def rows(self, stream: int) -> tuple[int, int]:
        return int(self.table.stream_ptr[stream]), int(self.table.stream_ptr[stream + 1])

    def sequencer(self, engine: Engine) -> tuple[Ints, Ints]:
        """Edges and codes of a sequencer from 0 to the end of the body: each row's wait by phases, then its issue."""
        t, f, start, ready = self.table, self.facts, self.timeline.start, self.timeline.ready
        a, b = self.rows(engine)
        if a == b:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        row = np.arange(a, b)
        edges = np.repeat(ready[a:b, None], len(PHASES) + 1, axis=1)  # of the phases of the wait; then the start
        codes = np.full((b - a, len(PHASES)), self.code(FULL, engine.label), np.int64)
        edges[:, -1] = start[a:b]
        waited = np.flatnonzero(f.binding[a:b] >= 0)
        wait = f.binding[row[waited]]
        update = f.met_by[wait]
        setter = f.update_row[update]
        hidden = t.wait_semaphore[wait] >= self.architectural
        by_dma = setter >= t.rows
        mine = waited[~by_dma & ~hidden]  # an engine's instruction, then its signal
        who = f.stream[setter[~by_dma & ~hidden]]
        edges[mine, 1] = f.update_base[update[~by_dma & ~hidden]]
        codes[mine, 0], codes[mine, 1] = self.semaphore[who], self.signal[who]
        edges[mine, 2:-1] = start[a:b][mine, None]
        dma, transfer = waited[by_dma], setter[by_dma] - t.rows
        edges[dma, 1:-1] = np.stack(phases(t, self.timeline, f, transfer), axis=1)
        codes[dma] = self.phase[t.ring[transfer]]
        ring = waited[by_dma & hidden]  # a store behind others in its ring
        for k, r in zip(ring.tolist(), t.ring[setter[by_dma & hidden] - t.rows].tolist(), strict=True):
            codes[k] = self.code(FULL, self.queue[r])
        edges = np.clip(edges, edges[:, :1], edges[:, -1:])
        edges = np.maximum.accumulate(edges, axis=1)
        issue = np.array([self.code(ISSUE, ISSUES.get(Role(r), DISPATCH)) for r in range(len(Role))])[t.role[a:b]]
        last = min(self.total, int(start[b - 1] + f.issue[b - 1]))
        flat = np.concatenate([[0], edges.reshape(-1), [last, self.total]])
        labels = np.concatenate([codes, issue[:, None]], axis=1).reshape(-1)
        return _whole(np.minimum(flat, self.total), np.concatenate([[self.code(START)], labels, [self.code(END)]]))

    def behind(self, engine: Engine) -> tuple[Ints, Ints]:
        """Edges and codes of the engine behind a sequencer: between handing over and its last tick; NONE where nothing is in it."""
        if engine not in COMPUTE:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        t, f, start = self.table, self.facts, self.timeline.start
        a, b = self.rows(len(Engine) + COMPUTE.index(engine))
        rule = t.rule[a:b]
        array = (rule == Rule.LOAD) | (rule == Rule.STREAM)
        begin = start[a:b]
        end = np.where(array, f.streamed[a:b], begin + f.issue[a:b])
        beyond = end - begin - self.full_rate(a, b)
        beyond[~array] = 0
        handing, handed = self.handing_over(a, b)
        reach = np.maximum.accumulate(np.append(0, end))[:-1]  # where the rows before have ended
        points = np.stack([handing, handed, begin, end], axis=1)
        points = np.maximum.accumulate(np.maximum(points, reach[:, None]), axis=1)
        slow = np.maximum(points[:, 3] - np.maximum(beyond, 0), points[:, 2])
        edges = np.concatenate([points[:, :3], slow[:, None], points[:, 3:]], axis=1)
        codes = np.array([self.code(ISSUE, DISPATCH), self.code(INTERLOCK), self.code(BUSY), self.code(THROTTLE), NONE])
        return _whole(np.minimum(edges.reshape(-1), self.total), np.tile(codes, b - a)[:-1])

    def full_rate(self, a: int, b: int) -> Ints:
        """Ticks that loads and products would take at full rate."""
        t, out = self.table, np.zeros(b - a, np.int64)
        products, loads = np.flatnonzero(t.rule[a:b] == Rule.STREAM), np.flatnonzero(t.rule[a:b] == Rule.LOAD)
        out[products] = -(-t.work[a + products] // t.throttle.full)
        out[loads] = t.cost_load[t.cost[a + loads], self.facts.state[a + loads] % 2]
        return out

    def handing_over(self, a: int, b: int) -> tuple[Ints, Ints]:
        """When each row of an engine was dispatched, and when it was handed over; its readiness where no sequencer hands it over."""
        t, f = self.table, self.facts
        sent, got = self.timeline.ready[a:b].copy(), self.timeline.ready[a:b].copy()
        waits = np.arange(t.wait_ptr[a], t.wait_ptr[b])
        row = np.repeat(np.arange(a, b), np.diff(t.wait_ptr[a : b + 1]))
        update = f.met_by[waits]
        setter = np.where(update >= 0, f.update_row[update], t.rows)
        known = setter < t.rows
        outside = known & (np.append(f.stream, NONE)[np.minimum(setter, t.rows)] < len(Engine))
        got[row[outside] - a] = f.update_time[update[outside]]
        sent[row[outside] - a] = self.timeline.start[setter[outside]]
        return sent, got


def phases(table: Table, timeline: object, facts: History, transfer: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Of transfers: their triggers' starts, arrivals at the DMA engines, begins of their own work, and ends. Between arrival
    and begin the engine works on others, between the packets too: that counts as before."""
    start, ready, finish = (getattr(timeline, c) for c in ("start", "ready", "finish"))
    row = table.rows + transfer
    own = own_work(table, transfer)
    return start[facts.trigger[transfer]], ready[row], np.maximum(finish[row] - own, ready[row]), finish[row]


def own_work(table: Table, transfer: Ints) -> Ints:
    """Ticks that transfers take alone on an idle DMA engine."""
    packets = table.packets[transfer]
    alone = packets * table.packet[transfer] + table.first[transfer] * (packets > 0) + table.last[transfer]
    return np.where(table.server[transfer] < 0, table.packet[transfer], alone)


def queues(result: Result) -> tuple[str, ...]:
    """The name of each ring."""
    table = result.table
    ring, first = np.unique(table.ring, return_index=True)
    out = [""] * table.rings
    for r, k in zip(ring.tolist(), first.tolist(), strict=True):
        step = result.steps[int(table.step[table.rows + k])]
        assert isinstance(step.instruction, Dma)
        out[r] = queue_name(step.engine, step.instruction.generation)
    return tuple(out)


def architectural(result: Result) -> int:
    """How many of the table's semaphores a program names: lowering numbers these first, its hidden ones behind them."""
    return len({w.semaphore for s in result.steps for w in s.waits} | {u.semaphore for s in result.steps for u in s.updates})


def _whole(edges: Ints, codes: Ints) -> tuple[Ints, Ints]:
    """Without intervals of no length; the last edge stays."""
    keep = np.flatnonzero(np.diff(edges) > 0)
    return np.append(edges[keep], edges[-1:]), codes[keep]
