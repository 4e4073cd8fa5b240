"""The meaning of a Table, tick by tick and packet by packet, in the plainest way: slow, short, and to be believed.

It shares nothing with the engines but the Table. Each tick: the array moves on from the tick before; a window's edge or
the length of a streak may change its rate; then everything that ends, in row order; then everything that begins: streams,
transfers that arrive, and last the DMA engines, which pick their next packet knowing all of the tick's arrivals.

Legal tables: an array row (LOAD, STREAM) has the same issue and the same START delays in all states, because its state
is known only at its end; array rows share one stream, which is not ordered; a STREAM waits for every LOAD and STREAM
before it; a START delay is at least one tick, and so is every duration.
"""

from __future__ import annotations

from collections import defaultdict, deque
from fractions import Fraction
from math import ceil

import attrs

from nc_sim.table import Op, Rule, Table, When

LONG_AGO = -(10**9)


@attrs.frozen
class Outcome:
    """A completed run, or the streams that block a deadlocked one."""

    ready: tuple[int, ...] = ()
    start: tuple[int, ...] = ()
    finish: tuple[int, ...] = ()
    gate: tuple[tuple[int, int], ...] = ()
    blocked: tuple[tuple[int, int, int, int, int], ...] = ()


@attrs.define(eq=False)
class Stream:
    row: int
    last: int
    look: int  # the tick at which it comes to its row
    followed: int = LONG_AGO
    visible: int = 0  # latest finish so far


@attrs.define
class Load:
    row: int
    end: int
    ticks: tuple[int, int]  # by level: full, gated
    behind: int


@attrs.define
class Array:
    gated: bool
    edge: int
    units: int = 0
    product: int = -1
    work: int = 0  # left of the product
    streak: int = -1  # the tick at which it began; -1: the array has been idle long enough
    last_busy: int = 0
    visible: int = 0  # latest finish of a product
    loads: list[Load] = attrs.field(factory=list)
    history: list[tuple[int, int]] = attrs.field(factory=list)


@attrs.define
class DmaEngine:
    queues: list[deque[int]]
    sent: dict[int, int] = attrs.field(factory=dict)
    stall: dict[int, int] = attrs.field(factory=dict)
    hold: dict[int, int] = attrs.field(factory=dict)  # ring -> when its delayed transfer comes again
    load_end: dict[int, int] = attrs.field(factory=dict)  # ring -> end of its last load
    turn: int = 0
    packet_end: int = LONG_AGO
    completes: int = -1  # the transfer whose semaphore packet is under way
    needs: int = 0  # units that must have drained before the packet under way ends


def simulate(table: Table) -> Outcome:
    """Run a table to its end, or until nothing can happen any more."""
    return Naive(table).run()


class Naive:
    def __init__(self, table: Table) -> None:
        self.t, self.tick = table, 0
        total = table.rows + table.transfers
        self.ready, self.start, self.finish = [-1] * total, [-1] * total, [-1] * total
        self.value = [0] * table.semaphores
        ends = table.stream_ptr.tolist()
        self.streams = [Stream(*x) for x in zip(ends[:-1], ends[1:], table.stream_start.tolist(), strict=True)]
        throttle = table.throttle
        self.array = Array(throttle.starts_gated and throttle.window > 0, throttle.phase or throttle.window)
        self.array.history.append((0, int(not self.array.gated)))
        self.dma = [DmaEngine([deque() for _ in range(table.rings)]) for _ in range(table.servers)]
        self.due: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))  # tick -> row -> updates
        self.arrivals: dict[int, dict[int, bool]] = defaultdict(dict)  # tick -> transfer -> it comes again
        self.promised: dict[tuple[int, int], int] = {}  # (DMA engine, ring) -> latest nominal arrival

        self.asking: dict[int, int] = {}  # stream -> its ports, in the order in which they asked
        self.holds: dict[tuple[int, int], int] = {}  # (stream, port) -> tick until which
        self.put_in = self.out = 0  # units of the bucket, from the beginning
        self.mark: dict[int, int] = {}  # transfer -> what must drain before its packets so far have
        self.drained: dict[int, int] = {}  # transfer -> the tick at which that was so

    def run(self) -> Outcome:
        while self.pending():
            self.drain()
            self.move_array()
            self.pass_edge()
            self.end_phase()
            self.begin_phase()
            self.tick += 1
        left = [(s, x) for s, x in enumerate(self.streams) if x.row < x.last]
        if left:
            return Outcome(blocked=tuple((s, x.row, *self.lacking(x.row)) for s, x in left))
        end = max(self.finish, default=0)
        history = tuple(change for change in self.array.history if change[0] <= end)
        return Outcome(tuple(self.ready), tuple(self.start), tuple(self.finish), history)

    def pending(self) -> bool:
        """Whether this tick or a later one can still change anything, the throttle's level until the end included."""
        return (
            self.tick <= max(self.finish, default=0)
            or bool(self.due or self.arrivals)
            or any(x.row < x.last and (x.look >= self.tick or not self.lacking(x.row)) for x in self.streams)
            or bool(self.asking)
            or any(engine.packet_end >= self.tick for engine in self.dma)
            or self.array.product >= 0
            or bool(self.array.loads)
        )

    def lacking(self, row: int) -> tuple[int, int, int] | tuple[()]:
        """(semaphore, wanted, reached) of the first wait that is not met."""
        for k in range(self.t.wait_ptr[row], self.t.wait_ptr[row + 1]):
            semaphore, wanted = int(self.t.wait_semaphore[k]), int(self.t.wait_value[k])
            if self.value[semaphore] < wanted:
                return semaphore, wanted, self.value[semaphore]
        return ()

    # ---- the bucket

    def drain(self) -> None:
        """What left the bucket since the last tick; what is held up for it goes on being so."""
        self.out = min(self.put_in, self.out + self.t.drain)
        for t, mark in self.mark.items():
            if self.out >= mark and t not in self.drained:
                self.drained[t] = self.tick
        for engine in self.dma:
            t = engine.completes
            settles = t in self.mark and self.t.settle[t] >= 0
            early = settles and (t not in self.drained or self.tick < self.drained[t] + int(self.t.settle[t]))
            if engine.packet_end == self.tick and (early or self.out < engine.needs):
                engine.packet_end += 1

    # ---- the array

    def move_array(self) -> None:
        """What the array did between the last tick and this one, and what that completed."""
        a = self.array
        if a.product >= 0:
            streamed = min(a.work, self.t.throttle.gated if a.gated else self.t.throttle.full)
            a.units, a.work = a.units + streamed, a.work - streamed
            if a.work == 0:
                row, a.product, a.last_busy = a.product, -1, self.tick
                self.array_done(row, 2 * a.gated)
        for load in [x for x in a.loads if x.end == self.tick]:
            a.loads.remove(load)
            self.array_done(load.row, 2 * a.gated + load.behind)

    def pass_edge(self) -> None:
        a, throttle = self.array, self.t.throttle
        if throttle.limit and a.streak >= 0:
            if a.product < 0 and self.tick - a.last_busy >= throttle.idle:
                a.streak = -1
            self.set_level(a.streak >= 0 and (a.gated or (a.product >= 0 and self.tick - a.streak >= throttle.limit)))
        if throttle.window and self.tick == a.edge:
            gated = a.units < throttle.threshold
            a.units, a.edge = 0, a.edge + throttle.window
            self.set_level(gated)

    def set_level(self, gated: bool) -> None:
        """Loads under way go on at the other rate."""
        a = self.array
        if gated != a.gated:
            for load in a.loads:
                left = Fraction(load.end - self.tick) * load.ticks[gated] / load.ticks[a.gated]
                load.end = self.tick + ceil(left)
            a.gated = gated
            a.history.append((self.tick, int(not gated)))

    def array_done(self, row: int, state: int) -> None:
        self.finish[row] = self.tick + int(self.t.cost_latency[self.t.cost[row], state])
        if self.t.rule[row] == Rule.STREAM:  # products do not overtake each other
            self.finish[row] = self.array.visible = max(self.finish[row], self.array.visible)
        self.schedule(row, When.STREAMED, self.tick, state)
        self.schedule(row, When.FINISH, self.finish[row], state)

    # ---- ends

    def schedule(self, row: int, when: When, base: int, state: int) -> None:
        for k in range(self.t.update_ptr[row], self.t.update_ptr[row + 1]):
            if self.t.update_when[k] == when:
                self.due[base + int(self.t.delays[self.t.update_delay[k], state])][row].append(k)

    def end_phase(self) -> None:
        completing = {self.t.rows + e.completes: e for e in self.dma if e.packet_end == self.tick and e.completes >= 0}
        due = self.due[self.tick]
        for row in sorted({*completing, *due}):
            if row in completing:
                self.complete(completing[row], row)
            for k in sorted(due[row]):
                semaphore, amount = int(self.t.update_semaphore[k]), int(self.t.update_value[k])
                op = self.t.update_op[k]
                old = self.value[semaphore]
                self.value[semaphore] = old + amount if op == Op.ADD else old - amount if op == Op.SUB else amount
        del self.due[self.tick]

    def complete(self, engine: DmaEngine, row: int) -> None:
        """The semaphore packet is out."""
        t = row - self.t.rows
        ring = int(self.t.ring[t])
        engine.queues[ring].popleft()
        engine.completes = -1
        if self.t.load[t]:
            engine.load_end[ring] = self.tick
        self.finish[row] = self.tick
        self.schedule(row, When.FINISH, self.tick, 0)

    # ---- beginnings

    def begin_phase(self) -> None:
        for s, x in enumerate(self.streams):
            if x.row < x.last and x.look <= self.tick:
                self.ready[x.row] = x.look
                if (s in self.asking or not self.lacking(x.row)) and self.may_use_ports(s, int(self.t.ports[x.row])):
                    self.begin_row(x)
        for t, again in sorted(self.arrivals.pop(self.tick, {}).items()):
            self.arrive(t, again)
        for engine in self.dma:
            if engine.packet_end <= self.tick and any(engine.queues):
                self.pick(engine)

    def may_use_ports(self, s: int, ports: int) -> bool:
        if not ports:
            return True
        self.asking.setdefault(s, ports)
        asked = list(self.asking)
        if any(self.asking[other] & ports for other in asked[: asked.index(s)]):
            return False
        if any(other != s and 1 << port & ports and until > self.tick for (other, port), until in self.holds.items()):
            return False
        del self.asking[s]
        return True

    def begin_row(self, x: Stream) -> None:
        t, row, now, a = self.t, x.row, self.tick, self.array
        self.start[row] = now
        cost, rule, state = int(t.cost[row]), t.rule[row], 0
        if rule == Rule.LOAD:
            behind = int(a.product >= 0)
            ticks = int(t.cost_load[cost, behind]), int(t.cost_load[cost, 2 + behind])
            a.loads.append(Load(row, now + ticks[a.gated], ticks, behind))
        elif rule == Rule.STREAM:
            a.product, a.work = row, int(t.work[row])
            if t.throttle.limit:
                a.streak = now if a.streak < 0 else a.streak
                self.set_level(a.gated or now - a.streak >= t.throttle.limit)
        else:
            state = int(rule == Rule.FOLLOW and now - x.followed < t.follow_window)
            finish = now + int(t.cost_latency[cost, state])
            if t.stream_ordered[self.streams.index(x)]:
                finish = x.visible = max(finish, x.visible)
            self.finish[row] = finish
            self.schedule(row, When.FINISH, finish, state)
            for port in range(8):
                if int(t.ports[row]) & 1 << port:
                    self.holds[self.streams.index(x), port] = finish
            if rule == Rule.FOLLOW:
                x.followed = finish
        self.schedule(row, When.START, now, state)
        for k in range(t.fan_ptr[row], t.fan_ptr[row + 1]):
            arrival, place = now + int(t.arrival[k]), (int(t.server[k]), int(t.ring[k]))
            if place[0] >= 0:
                arrival = self.promised[place] = max(arrival, self.promised.get(place, 0))
            self.arrivals[arrival][k] = False
        x.row, x.look = row + 1, now + int(t.cost_issue[cost, state])

    def arrive(self, t: int, again: bool) -> None:
        """A load that meets a busy engine, or a ring just used, comes again later; its ring's next ones come after it."""
        row, now, ring = self.t.rows + t, self.tick, int(self.t.ring[t])
        if not again:
            self.ready[row] = now
        if self.t.server[t] < 0:
            self.start[row], self.finish[row] = now, now + int(self.t.packet[t])
            self.schedule(row, When.FINISH, self.finish[row], 0)
            return
        engine = self.dma[int(self.t.server[t])]
        if not again:
            engine.stall[t] = int(self.t.first[t])
            if engine.hold.get(ring, LONG_AGO) > now:
                engine.hold[ring] += 1
                self.arrivals[engine.hold[ring]][t] = True
                return
            busy = any(engine.queues) or now - engine.load_end.get(ring, LONG_AGO) < self.t.recent
            unstarted = any(self.start[self.t.rows + other] < 0 for other in engine.queues[ring])
            if self.t.load[t] and busy and not unstarted:
                engine.stall[t] += int(self.t.busy_stall[t])
                if self.t.busy_delay[t]:
                    engine.hold[ring] = now + int(self.t.busy_delay[t])
                    self.arrivals[engine.hold[ring]][t] = True
                    return
        engine.queues[ring].append(t)
        engine.sent[t] = 0

    def pick(self, engine: DmaEngine) -> None:
        """The next packet: of the next ring, in turn, that has one; after a transfer's last its semaphore packet."""
        while not engine.queues[engine.turn]:
            engine.turn = (engine.turn + 1) % self.t.rings
        t = engine.queues[engine.turn][0]
        engine.turn = (engine.turn + 1) % self.t.rings
        row = self.t.rows + t
        if self.start[row] < 0:
            self.start[row] = self.tick
        if engine.sent[t] < self.t.packets[t]:
            stall = engine.stall[t] if engine.sent[t] == 0 else 0
            engine.packet_end = self.tick + int(self.t.packet[t]) + stall
            engine.sent[t] += 1
            if self.t.drain:
                self.put_in += int(self.t.units[t])
                self.mark[t] = self.put_in
                self.drained.pop(t, None)
                if self.out >= self.put_in:
                    self.drained[t] = self.tick
                engine.needs = self.put_in - int(self.t.burst[t])
        else:
            engine.packet_end = self.tick + int(self.t.last[t])
            engine.completes = t
