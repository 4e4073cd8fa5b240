"""The reference timing model: SimPy processes for the streams, servers for the DMA engines. It is the specification.

The rule of time: in each tick, first everything that ends, then everything that begins, both in (stream, row) order; an
update fired by a beginning is seen from the next tick. SimPy's event priorities carry that order in full, so results
depend neither on insertion order nor on event ids:

    END + row, update    a row finishes, an update reaches its semaphore
    BEGIN + stream       a stream looks at its next row
    BEGIN + transfer     a transfer arrives at its DMA engine
    BEGIN + server       a DMA engine picks its next packet, after every arrival of the tick
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any

import simpy

from .probe import Probe, hooks
from .table import MOST_PORTS, Op, Rule, Table, Throttle, When
from .timeline import Timeline, check_complete, column

END = 2  # SimPy keeps 0 and 1 for its own process events
BEGIN = 1 << 60
EVENTS_PER_REPORT = 20_000
ROW = 16  # priorities per row: its finish, then its updates
FOLLOW, LOAD, STREAM = int(Rule.FOLLOW), int(Rule.LOAD), int(Rule.STREAM)
AT_START, AT_STREAMED = int(When.START), int(When.STREAMED)
ADD, SUB = int(Op.ADD), int(Op.SUB)


def run(
    table: Table,
    probes: Sequence[Probe] = (),
    env: simpy.Environment | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Timeline:
    """Run a lowered program to completion; Deadlock if it cannot. `progress` is told rows done and rows in all."""
    return _Run(table, tuple(probes), env or simpy.Environment()).run(progress)


class _Event(simpy.Event):
    """A scheduled call; `done` carries its argument."""

    def __init__(self, env: simpy.Environment, action: Callable[[Any], None] | None, argument: Any) -> None:
        self.env = env
        self.callbacks = [] if action is None else [action]
        self._ok = True
        self._value = argument


class _Run:
    def __init__(self, table: Table, probes: tuple[Probe, ...], env: simpy.Environment) -> None:
        self.table, self.env = table, env
        self.on_start, self.on_finish = hooks(probes, "started"), hooks(probes, "finished")
        total = table.rows + table.transfers
        self.ready, self.start, self.finish = ([-1] * total for _ in range(3))
        self.value = [0] * table.semaphores
        self.waiting: list[list[tuple[int, int, _Event]]] = [[] for _ in range(table.semaphores)]
        self.at_row = table.stream_ptr[:-1].tolist()  # the row each stream has come to
        self.gate = gate(table.throttle)
        # plain lists: indexing them is several times faster than indexing arrays
        self.wait_ptr, self.update_ptr = table.wait_ptr.tolist(), table.update_ptr.tolist()
        self.waits = list(zip(table.wait_semaphore.tolist(), table.wait_value.tolist(), strict=True))
        self.updates = list(
            zip(
                *(c.tolist() for c in (table.update_semaphore, table.update_op, table.update_value, table.update_when)),
                [table.delays[d].tolist() for d in table.update_delay.tolist()] if table.update_delay.size else [],
                strict=True,
            )
        )
        self.servers = [_Server(self, k) for k in range(table.servers)]
        self.latest: dict[tuple[int, int], int] = {}  # (server, ring) -> last nominal arrival: rings stay in order
        self.transfer = list(zip(table.server.tolist(), table.ring.tolist(), table.arrival.tolist(), strict=True))
        self.packets, self.packet, self.first, self.last, self.load, self.ring = (
            c.tolist() for c in (table.packets, table.packet, table.first, table.last, table.load, table.ring)
        )
        self.bucket = Bucket(table)
        self.ports = Ports(self)
        self.rows = table.rows
        self.first_transfer_priority = BEGIN + len(table.stream_names)
        self.server_priority = self.first_transfer_priority + total

    # ---- the event list

    @property
    def now(self) -> int:
        """SimPy types its time as a float too; ticks are whole, since every delay is."""
        return self.env.now  # type: ignore[return-value]

    def at(self, delay: int, priority: int, action: Callable[[Any], None] | None, argument: Any = None) -> _Event:
        """Schedule a call `delay` ticks from now; with no action, an event for a process to yield."""
        event = _Event(self.env, action, argument)
        self.env.schedule(event, priority, delay)  # type: ignore[arg-type]
        return event

    def run(self, progress: Callable[[int, int], None] | None = None) -> Timeline:
        for s in range(len(self.table.stream_names)):
            if self.table.stream_ptr[s] < self.table.stream_ptr[s + 1]:
                self.env.process(self.stream(s))
        if progress is None:
            self.env.run()
        else:
            self.run_in_parts(progress)
        ready, start, finish = map(column, (self.ready, self.start, self.finish))
        check_complete(self.table, self.at_row, self.value, finish)
        end = max(self.finish, default=0)
        return Timeline(ready, start, finish, self.gate.history(end))

    def run_in_parts(self, progress: Callable[[int, int], None]) -> None:
        base = sum(self.at_row)
        while self.env.peek() != float("inf"):
            progress(sum(self.at_row) - base, self.table.rows)
            for _ in range(EVENTS_PER_REPORT):
                if self.env.peek() == float("inf"):
                    break
                self.env.step()
        progress(self.table.rows, self.table.rows)

    # ---- streams

    def lacking(self, row: int) -> tuple[int, int] | None:
        """The first wait of a row that is not met, if any."""
        for k in range(self.wait_ptr[row], self.wait_ptr[row + 1]):
            semaphore, wanted = self.waits[k]
            if self.value[semaphore] < wanted:
                return semaphore, wanted
        return None

    def stream(self, s: int) -> Generator[simpy.Event, Any, None]:
        """One queue: in order, each row waiting for its semaphores, the next after the issue interval."""
        table, env, priority = self.table, self.env, BEGIN + s
        first, last = int(table.stream_ptr[s]), int(table.stream_ptr[s + 1])
        columns = (table.cost, table.rule, table.work, table.ports, table.fan_ptr)
        cost, rule, work, ports, fan = (c[first : last + 1].tolist() for c in columns)
        issues, latencies, loads = (c.tolist() for c in (table.cost_issue, table.cost_latency, table.cost_load))
        followed = -(1 << 62)  # finish of the last row that another may follow
        in_order, visible = bool(table.stream_ordered[s]), 0  # latest finish so far: results become visible in order
        yield self.at(int(table.stream_start[s]), priority, None)
        for k, row in enumerate(range(first, last)):
            self.at_row[s] = row
            self.ready[row] = now = self.now
            while (lacking := self.lacking(row)) is not None:
                semaphore, wanted = lacking
                event = _Event(env, None, None)
                self.waiting[semaphore].append((s, wanted, event))
                yield event
                now = self.now
            if ports[k]:
                self.ports.ask(s, ports[k])
                while not self.ports.free(s):
                    yield self.ports.sleep(s)
                now = self.now
            self.start[row] = now
            for hook in self.on_start:
                hook(row, now)
            state, streamed = 0, now
            if rule[k] == FOLLOW:
                state = int(now - followed < table.follow_window)
            elif rule[k] == LOAD:
                behind = int(now < self.gate.busy_until)
                full, slow = loads[cost[k]][behind], loads[cost[k]][2 + behind]
                streamed, gated = self.gate.load(now, full, slow)
                state = 2 * gated + behind
            elif rule[k] == STREAM:
                streamed, gated = self.gate.stream(now, work[k])
                state = 2 * gated
            finish = streamed + latencies[cost[k]][state]
            if in_order or rule[k] == STREAM:
                finish = visible = max(finish, visible)
            if rule[k] == FOLLOW:
                followed = finish
            if ports[k]:
                self.ports.hold(s, finish)
            if self.on_finish:
                self.at(finish - now, END + row * ROW, self.finished, row)
            self.fire(row, now, streamed, finish, state)
            for t in range(fan[k], fan[k + 1]):
                self.submit(t)
            self.at_row[s] = row + 1
            yield self.at(issues[cost[k]][state], priority, None)

    def fire(self, row: int, now: int, streamed: int, finish: int, state: int) -> None:
        """Record a row's finish, and schedule its updates."""
        self.finish[row] = finish
        for k in range(self.update_ptr[row], self.update_ptr[row + 1]):
            update = self.updates[k]
            when = update[3]
            base = now if when == AT_START else streamed if when == AT_STREAMED else finish
            self.at(base + update[4][state] - now, END + row * ROW + 1 + k - self.update_ptr[row], self.update, update)

    def finished(self, event: Any) -> None:
        for hook in self.on_finish:
            hook(event._value, self.now)

    def update(self, event: Any) -> None:
        """Apply an update, and wake the streams whose wait it meets; they look again when the tick's ends are done."""
        semaphore, op, amount = event._value[:3]
        if op == ADD:
            self.value[semaphore] += amount
        elif op == SUB:
            self.value[semaphore] -= amount
        else:
            self.value[semaphore] = amount
        if waiting := self.waiting[semaphore]:
            reached = self.value[semaphore]
            for s, wanted, wake in waiting:
                if reached >= wanted:
                    self.env.schedule(wake, BEGIN + s)
            self.waiting[semaphore] = [w for w in waiting if reached < w[1]]

    # ---- transfers

    def submit(self, t: int) -> None:
        """A trigger started: its transfer reaches the DMA engine later, in the order of the ring."""
        server, ring, delay = self.transfer[t]
        row = self.table.rows + t
        arrival = self.now + delay
        if server < 0:
            self.at(delay, self.first_transfer_priority + row, self.pass_freely, t)
            return
        arrival = max(arrival, self.latest.get((server, ring), 0))
        self.latest[server, ring] = arrival
        self.at(arrival - self.now, self.first_transfer_priority + row, self.servers[server].arrive, t)

    def pass_freely(self, event: Any) -> None:
        """A transfer of given length that meets no DMA engine (its time comes from a measurement)."""
        t, now = event._value, self.now
        row = self.table.rows + t
        self.ready[row] = self.start[row] = now
        for hook in self.on_start:
            hook(row, now)
        finish = now + int(self.table.packet[t])
        if self.on_finish:
            self.at(finish - now, END + row * ROW, self.finished, row)
        self.fire(row, now, finish, finish, 0)


class _Server:
    """One DMA engine: one packet at a time, in-order rings, round robin between them packet by packet.

    While only one ring has work, its packets are passed in one event ("lump"); a transfer that arrives on another ring
    meanwhile breaks the lump at the packet boundary, so that the result is the same as packet by packet. With a bucket the
    packets of the other engines decide too, so there every packet is an event.
    """

    def __init__(self, run: _Run, index: int) -> None:
        self.run, self.table, self.index = run, run.table, index
        self.queue: list[deque[int]] = [deque() for _ in range(run.table.rings)]
        self.sent: dict[int, int] = {}  # packets of a queued transfer that were started
        self.extra: dict[int, int] = {}  # stall added to a queued transfer's first packet
        self.held: dict[int, int] = {}  # ring -> tick until which a delayed transfer keeps its successors back
        self.last_load: dict[int, int] = {}  # ring -> finish of its last load
        self.turn = 0  # the ring to look at first
        self.active = False  # a packet is under way, or the next pick is scheduled
        self.lump: tuple[int, int, int] | None = None  # (transfer, start, packets sent before)
        self.round = 0  # invalidates the scheduled end of a broken lump

    def arrive(self, event: Any) -> None:
        """A transfer's descriptors are here. A load that meets a busy engine, or a ring just used, comes again later."""
        t, now, table = event._value, self.run.now, self.table
        ring, row = self.run.ring[t], self.run.rows + t
        again = self.run.ready[row] >= 0
        if not again:
            self.run.ready[row] = now
            self.extra[t] = self.run.first[t]
            held = self.held.get(ring, -1)
            if held > now:
                self.postpone(t, ring, held + 1)
                return
            if self.run.load[t] and not any(self.sent[other] == 0 for other in self.queue[ring]):
                recent = now - self.last_load.get(ring, -(1 << 62)) < table.recent
                if recent or any(self.queue):
                    self.extra[t] += int(table.busy_stall[t])
                    if table.busy_delay[t]:
                        self.postpone(t, ring, now + int(table.busy_delay[t]))
                        return
        self.queue[ring].append(t)
        self.sent[t] = 0
        if not self.active:
            self.active = True
            self.pick_in(0)
        elif self.lump is not None and self.run.ring[self.lump[0]] != ring:
            self.break_lump(now)

    def postpone(self, t: int, ring: int, tick: int) -> None:
        self.held[ring] = tick
        priority = self.run.first_transfer_priority + self.run.rows + t
        self.run.at(tick - self.run.now, priority, self.arrive, t)

    def pick_in(self, delay: int) -> None:
        self.run.at(delay, self.run.server_priority + self.index, self.pick)

    def pick(self, _: Any) -> None:
        """Send the next packet of the next ring that has one."""
        rings, now = self.table.rings, self.run.now
        ring = next(r % rings for r in range(self.turn, self.turn + rings) if self.queue[r % rings])
        self.turn = (ring + 1) % rings
        t = self.queue[ring][0]
        sent, packets = self.sent[t], self.run.packets[t]
        if sent == 0 and self.run.start[self.run.rows + t] < 0:
            self.run.start[self.run.rows + t] = now
            for hook in self.run.on_start:
                hook(self.run.rows + t, now)
        if not self.table.drain and sum(map(bool, self.queue)) == 1:
            self.lump = (t, now, sent)
            self.sent[t] = packets if packets else 1
            length = (packets - sent) * self.run.packet[t] + (self.extra[t] if sent == 0 else 0) * bool(packets)
            self.finish_in(length + self.run.last[t], t)
        elif sent < packets:
            self.sent[t] = sent + 1
            self.pick_in(self.run.bucket.packet(t, now, self.run.packet[t] + (self.extra[t] if sent == 0 else 0)))
        else:
            self.sent[t] = max(sent, 1)
            self.finish_in(self.run.bucket.last(t, now, self.run.last[t]), t)

    def finish_in(self, delay: int, t: int) -> None:
        self.round += 1
        self.run.at(delay, END + (self.run.rows + t) * ROW, self.complete, (t, self.round))

    def break_lump(self, now: int) -> None:
        """Go back to packet by packet: the current packet ends, then the rings take turns."""
        assert self.lump is not None
        t, began, before = self.lump
        packets, packet = self.run.packets[t], self.run.packet[t]
        first_end = began + packet + (self.extra[t] if before == 0 else 0)
        gone = max(0, -((first_end - now) // packet))  # whole packets after the first that end by now, rounded up
        end = first_end + gone * packet
        if before + 1 + gone > packets:
            return  # the semaphore packet is under way
        self.lump = None
        self.round += 1
        self.sent[t] = before + 1 + gone
        self.pick_in(end - now)

    def complete(self, event: Any) -> None:
        """The semaphore packet is out."""
        t, valid = event._value
        if valid != self.round:
            return
        row, ring, now = self.run.rows + t, self.run.ring[t], self.run.now
        self.lump = None
        self.queue[ring].popleft()
        del self.sent[t], self.extra[t]
        if self.run.load[t]:
            self.last_load[ring] = now
        for hook in self.run.on_finish:
            hook(row, now)
        self.run.fire(row, now, now, now, 0)
        if any(self.queue):
            self.pick_in(0)
        else:
            self.active = False


class Ports:
    """What streams exclude each other from: first come, first served."""

    def __init__(self, run: _Run) -> None:
        self.run = run
        self.asking: dict[int, int] = {}  # stream -> its ports, in the order in which they asked
        self.held: dict[tuple[int, int], int] = {}  # (port, stream) -> tick until which it holds the port
        self.asleep: dict[int, _Event] = {}

    def ask(self, s: int, ports: int) -> None:
        self.asking[s] = ports

    def free(self, s: int) -> bool:
        """Whether the stream may have its ports now; if others hold them it looks again when they are done."""
        wanted, now = self.asking[s], self.run.now
        until = max((tick for (port, other), tick in self.held.items() if other != s and wanted >> port & 1), default=0)
        if until > now:
            self.look(s, until)
        before = itertools.takewhile(lambda other: other != s, self.asking)
        return until <= now and not any(self.asking[other] & wanted for other in before)

    def hold(self, s: int, finish: int) -> None:
        """The stream has its ports; those that want one of them look again when it is done."""
        mine = self.asking.pop(s)
        for port in range(MOST_PORTS):
            if mine >> port & 1:
                self.held[port, s] = finish
        for other, wanted in self.asking.items():
            if wanted & mine:
                self.look(other, finish)

    def sleep(self, s: int) -> _Event:
        event = self.asleep[s] = _Event(self.run.env, None, None)
        return event

    def look(self, s: int, tick: int) -> None:
        self.run.at(tick - self.run.now, BEGIN + s, self.wake, s)

    def wake(self, event: Any) -> None:
        if (sleeper := self.asleep.pop(event._value, None)) is not None:
            self.run.env.schedule(sleeper, BEGIN + event._value)


class Bucket:
    """What all DMA engines move together: packets put units in, which drain at one rate in the order they came."""

    def __init__(self, table: Table) -> None:
        self.drain = table.drain
        columns: tuple[list[int], ...] = tuple(c.tolist() for c in (table.units, table.burst, table.settle))
        self.units, self.burst, self.settle = columns
        self.level, self.at = 0, 0  # units at a tick
        self.drained: dict[int, int] = {}  # transfer -> tick at which its packets so far have drained

    def packet(self, t: int, now: int, length: int) -> int:
        """How long a packet takes that begins now and would take `length` alone."""
        if not self.drain:
            return length
        self.level = max(0, self.level - self.drain * (now - self.at)) + self.units[t]
        self.at = now
        self.drained[t] = now - (-self.level // self.drain)
        return max(length, -((self.burst[t] - self.level) // self.drain))

    def last(self, t: int, now: int, length: int) -> int:
        """How long the semaphore packet takes: until the packets before it have settled, where it waits for that."""
        if self.settle[t] < 0 or t not in self.drained:
            return length
        return max(length, self.drained[t] + self.settle[t] - now)


class Gate:
    """The array's throttle. A kind of it decides about one edge after another; what is decided stands in `changes`.

    This base is the array that is never throttled: it has no edge.
    """

    def __init__(self, throttle: Throttle) -> None:
        self.t = throttle
        self.is_gated = False
        self.edge: int | None = None  # the next tick at which the level may change, as far as is known
        self.busy_until = 0
        self.changes: list[tuple[int, bool]] = [(0, False)]

    def change(self, tick: int, gated: bool) -> None:
        self.is_gated = gated
        self.changes.append((tick, gated))

    def pass_edge(self) -> None:
        """Decide about the next edge."""

    def advance(self, now: int) -> None:
        """Pass every edge up to `now`."""
        while self.edge is not None and self.edge <= now:
            self.pass_edge()

    def gated(self, now: int) -> bool:
        """The level at a beginning: an edge at `now` has been passed."""
        self.advance(now)
        if self.changes[-1][0] <= now:
            return self.changes[-1][1]
        return next(level for tick, level in reversed(self.changes) if tick <= now)

    def stream(self, now: int, work: int) -> tuple[int, bool]:
        """Stream `work` units from `now`: the tick at which the last is in, and the level then."""
        self.busy_until = now - (-work // self.t.full)
        return self.busy_until, False

    def load(self, now: int, full: int, gated: int) -> tuple[int, bool]:
        """Load weights, which takes `full` or `gated` ticks by level: the tick when they are in, and the level then.

        A load that meets a change of level goes on in proportion. Loads do not count as use of the array, and no
        product starts before they are in, so an edge that they cross can be decided ahead of time.
        """
        level = self.gated(now)
        end = now + (gated if level else full)
        while True:
            change = next((c for c in self.changes if now < c[0] < end), None) if self.changes[-1][0] > now else None
            if change is None and self.edge is not None and self.edge < end:
                self.pass_edge()  # one at a time: a change may move the end before the next
                continue
            if change is None:
                return end, level
            now, new = change
            before, after = (gated, full) if level else (full, gated)
            end, level = now - (-(end - now) * after // before), new

    def history(self, end: int) -> tuple[tuple[int, int], ...]:
        """Level changes up to `end`: (tick, 1 full | 0 gated)."""
        self.advance(end)
        return tuple((tick, int(not gated)) for tick, gated in self.changes)


class Windows(Gate):
    """Free-running windows, each full or gated by what streamed in the one before."""

    edge: int  # of the window

    def __init__(self, throttle: Throttle) -> None:
        super().__init__(throttle)
        self.is_gated = throttle.starts_gated
        self.changes = [(0, self.is_gated)]
        self.edge = throttle.phase if throttle.phase > 0 else throttle.window
        self.units = 0  # streamed since the last edge

    def pass_edge(self) -> None:
        gated = self.units < self.t.threshold
        if gated != self.is_gated:
            self.change(self.edge, gated)
        self.units, self.edge = 0, self.edge + self.t.window

    def advance(self, now: int) -> None:
        if self.edge <= now:
            self.pass_edge()
        if self.edge <= now:  # nothing streamed since: every further window decides alike
            self.pass_edge()
        if self.edge <= now:
            self.edge += ((now - self.edge) // self.t.window + 1) * self.t.window

    def stream(self, now: int, work: int) -> tuple[int, bool]:
        self.advance(now)
        while True:
            rate = self.t.gated if self.is_gated else self.t.full
            room = (self.edge - now) * rate
            if work <= room:
                self.units += work
                self.busy_until = now - (-work // rate)
                return self.busy_until, self.is_gated
            self.units += room
            work -= room
            now = self.edge
            self.pass_edge()


class Streaks(Gate):
    """Full rate for a while from the start of a streak, then gated until the array has been idle for a while."""

    def __init__(self, throttle: Throttle) -> None:
        super().__init__(throttle)
        self.limit_at = 0  # tick from which what streams in this streak is gated
        self.idle_at = 0  # tick at which the streak ends if nothing streams before

    def pass_edge(self) -> None:
        """The array has been idle for long enough."""
        self.change(self.idle_at, False)
        self.edge = None

    def stream(self, now: int, work: int) -> tuple[int, bool]:
        self.advance(now)
        if now >= self.idle_at:
            self.limit_at = now + self.t.limit
        room = max(0, self.limit_at - now) * self.t.full
        if work <= room:
            self.busy_until = now - (-work // self.t.full)
        else:
            begins = max(now, self.limit_at)
            if not self.is_gated:
                self.change(begins, True)
            self.busy_until = begins - (-(work - room) // self.t.gated)
        self.idle_at = self.busy_until + self.t.idle
        self.edge = self.idle_at if self.is_gated else None
        return self.busy_until, self.is_gated


def gate(throttle: Throttle) -> Gate:
    """The array's throttle by its kind."""
    return Windows(throttle) if throttle.window else Streaks(throttle) if throttle.limit else Gate(throttle)
