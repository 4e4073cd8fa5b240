"""The compiled engine: one loop over the table's columns and an event heap, the same timeline as the SimPy model bit for bit.

`core` is the specification; what is said there about the rule of time, lumps and the gate holds here. An event is
(tick, priority, argument) with the priorities of `core`, so both engines handle the same events in the same order. The
functions marked `compiled` are plain Python over arrays, which Numba compiles (extra `fast`) and keeps on disk.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from traceback import walk_tb
from typing import Any, NamedTuple, TypeVar

import numpy as np

from .isa.errors import InternalError, Unsupported, missing_extra
from .table import Ints, Table
from .timeline import Timeline, check_complete

NO_NUMBA = "the package numba is not installed"
try:
    njit: Any = importlib.import_module("numba").njit
except ModuleNotFoundError:
    njit = None
except (ImportError, AttributeError, OSError, SystemError) as e:  # one that does not fit this Python or this NumPy
    njit, NO_NUMBA = None, f"the package numba does not load: {e}"

F = TypeVar("F", bound=Callable[..., Any])

# The table's numbers once more: Numba keeps its code until this file changes, and does not see a change of another.
END, BEGIN, ROW = 2, 1 << 60, 16
NEVER, FAR = -(1 << 62), 1 << 62
FOLLOW, LOAD, STREAM = 1, 2, 3
AT_START, AT_STREAMED = 0, 1
ADD, SUB = 0, 1
MOST_PORTS = 4
EVENTS_PER_CALL = 1 << 19  # between two looks at progress and at Ctrl-C; a fraction of a second
CHANGES_PER_EVENT = 16  # room for the gate's edges that one event may pass and find changed
CACHE = "numba.core.caching"  # what reads and writes the machine code on disk
LIMIT = 1 << 61  # of times and values: sums of two stay inside 64 bits

# scalars of a run, in `State.scalar`
EVENTS, BEGUN, EDGE, UNITS, BUSY_UNTIL, GATED, CHANGES, STARTED, FULL, LIMIT_AT, IDLE_AT, LEVEL, LEVEL_AT, ASKED = range(14)
SCALARS = 14
DONE, PAUSED, GROW = range(3)
COME, LOOK = range(2)  # why a stream looks at its row: it has come to it or was woken; a port may be free


def compiled(function: F, *, entry: bool = False) -> F:
    """By Numba where it is installed; as it is otherwise, which only tests can wait for. Python may call only an entry.

    Nothing here allocates, so Numba's counting of references is left out: it would take five sixths of the time.
    """
    if njit is None:
        return function
    made: F
    try:
        made = njit(cache=True, _nrt=False, no_cpython_wrapper=not entry)(function)
    except RuntimeError:  # nowhere to keep it, neither beside this file nor in a home directory
        made = njit(_nrt=False, no_cpython_wrapper=not entry)(function)
    return made


class Columns(NamedTuple):
    """The table's columns that the loop reads; see `Table`."""

    stream_start: Ints
    stream_ptr: Ints
    stream_ordered: Ints
    cost: Ints
    rule: Ints
    work: Ints
    ports: Ints
    fan_ptr: Ints
    wait_ptr: Ints
    wait_semaphore: Ints
    wait_value: Ints
    update_ptr: Ints
    update_semaphore: Ints
    update_op: Ints
    update_value: Ints
    update_when: Ints
    update_delay: Ints
    cost_issue: Ints
    cost_latency: Ints
    cost_load: Ints
    delays: Ints
    server: Ints
    ring: Ints
    arrival: Ints
    packets: Ints
    packet: Ints
    first: Ints
    last: Ints
    load: Ints
    busy_delay: Ints
    busy_stall: Ints
    units: Ints
    burst: Ints
    settle: Ints
    fixed: Ints  # rows, rings, streams, follow_window, recent, throttle: window, full, gated, threshold, limit, idle; drain


ROWS, RINGS, STREAMS, FOLLOW_WINDOW, RECENT, WINDOW, FULL_RATE, GATED_RATE, THRESHOLD, STREAK, IDLE, DRAIN = range(12)


class State(NamedTuple):
    """Everything that changes. The heap and the gate's changes are replaced by larger ones when they fill."""

    heap: Ints  # [capacity, 3]: tick, priority, argument
    changes: Ints  # [capacity, 2]: tick, level (1 gated)
    scalar: Ints
    ready: Ints
    start: Ints
    finish: Ints
    value: Ints  # of each semaphore
    waiters: Ints  # streams that wait for each semaphore
    # of each stream
    at_row: Ints
    fresh: Ints  # 1: comes to its row, 0: looks at its waits again
    waits_for: Ints  # semaphore; -1: none
    wanted: Ints
    followed: Ints
    visible: Ints
    asked: Ints  # for the ports of its row, in this order; -1: it has not
    holds: Ints  # [stream x MOST_PORTS]: tick until which it holds the port
    # of each transfer
    sent: Ints  # packets started; -1: not queued
    extra: Ints
    behind: Ints  # the next in its ring
    drained: Ints  # tick at which its packets so far have left the bucket; -1: it put nothing in
    # of each ring of each DMA engine
    head: Ints
    tail: Ints
    latest: Ints
    held: Ints
    last_load: Ints
    # of each DMA engine
    busy_rings: Ints
    turn: Ints
    active: Ints
    lump: Ints  # transfer; -1: none
    lump_start: Ints
    lump_sent: Ints
    round: Ints


@compiled
def insert(heap: Ints, k: int, tick: int, priority: int, argument: int) -> None:
    """An event into a heap of k."""
    while k > 0:
        up = (k - 1) >> 1
        if heap[up, 0] < tick or (heap[up, 0] == tick and heap[up, 1] <= priority):
            break
        heap[k, 0], heap[k, 1], heap[k, 2] = heap[up, 0], heap[up, 1], heap[up, 2]
        k = up
    heap[k, 0], heap[k, 1], heap[k, 2] = tick, priority, argument


@compiled
def push(st: State, tick: int, priority: int, argument: int) -> None:
    """Schedule an event."""
    insert(st.heap, st.scalar[EVENTS], tick, priority, argument)
    st.scalar[EVENTS] += 1


@compiled
def drop_first(heap: Ints, n: int) -> None:
    """The first event out of a heap, of which n are left."""
    tick, priority, argument = heap[n, 0], heap[n, 1], heap[n, 2]
    k = 0
    while True:
        down = 2 * k + 1
        if down >= n:
            break
        other = down + 1
        if other < n and (heap[other, 0] < heap[down, 0] or (heap[other, 0] == heap[down, 0] and heap[other, 1] < heap[down, 1])):
            down = other
        if tick < heap[down, 0] or (tick == heap[down, 0] and priority <= heap[down, 1]):
            break
        heap[k, 0], heap[k, 1], heap[k, 2] = heap[down, 0], heap[down, 1], heap[down, 2]
        k = down
    heap[k, 0], heap[k, 1], heap[k, 2] = tick, priority, argument


# ---- the array's throttle


@compiled
def change(st: State, tick: int, gated: int) -> None:
    """The level from a tick on."""
    s = st.scalar
    s[GATED] = gated
    if s[CHANGES] == len(st.changes):
        s[FULL] = 1
    else:
        st.changes[s[CHANGES], 0], st.changes[s[CHANGES], 1] = tick, gated
        s[CHANGES] += 1


@compiled
def pass_edge(c: Columns, st: State) -> None:
    """A window ends, or the array has been idle long enough to end a streak."""
    s = st.scalar
    if c.fixed[STREAK]:
        change(st, s[EDGE], 0)
        s[EDGE] = FAR
        return
    gated = 1 if s[UNITS] < c.fixed[THRESHOLD] else 0
    if gated != s[GATED]:
        change(st, s[EDGE], gated)
    s[UNITS] = 0
    s[EDGE] += c.fixed[WINDOW]


@compiled
def advance(c: Columns, st: State, now: int) -> None:
    """Pass every edge up to `now`."""
    window, s = c.fixed[WINDOW], st.scalar
    if s[EDGE] <= now:
        pass_edge(c, st)
    if s[EDGE] <= now:
        pass_edge(c, st)
    if s[EDGE] <= now:
        s[EDGE] += ((now - s[EDGE]) // window + 1) * window


@compiled
def stream_work(c: Columns, st: State, now: int, work: int) -> int:
    """The tick at which the last of `work` units is in; the level is then `GATED`."""
    advance(c, st, now)
    s = st.scalar
    if c.fixed[STREAK]:
        return stream_in_streak(c, st, now, work)
    while True:
        rate = c.fixed[GATED_RATE] if s[GATED] else c.fixed[FULL_RATE]
        room = (s[EDGE] - now) * rate if c.fixed[WINDOW] else work
        if work <= room:
            s[UNITS] += work
            end: int = now - (-work // rate)
            s[BUSY_UNTIL] = end
            return end
        s[UNITS] += room
        work -= room
        now = s[EDGE]
        pass_edge(c, st)


@compiled
def stream_in_streak(c: Columns, st: State, now: int, work: int) -> int:
    """The same where the array runs at full rate until a streak is `STREAK` ticks long."""
    s, full, gated = st.scalar, c.fixed[FULL_RATE], c.fixed[GATED_RATE]
    if now >= s[IDLE_AT]:
        s[LIMIT_AT] = now + c.fixed[STREAK]
    room = max(0, s[LIMIT_AT] - now) * full
    if work <= room:
        end: int = now - (-work // full)
    else:
        begins = max(now, s[LIMIT_AT])
        if not s[GATED]:
            change(st, begins, 1)
        end = begins - (-(work - room) // gated)
    s[BUSY_UNTIL] = end
    s[IDLE_AT] = end + c.fixed[IDLE]
    s[EDGE] = s[IDLE_AT] if s[GATED] else FAR
    return end


@compiled
def load_weights(c: Columns, st: State, now: int, full: int, gated: int) -> tuple[int, int]:
    """The tick when the weights are in, and the level then."""
    advance(c, st, now)
    s, changes = st.scalar, st.changes
    k = s[CHANGES] - 1
    while changes[k, 0] > now:
        k -= 1
    level = changes[k, 1]
    end = now + (gated if level else full)
    while True:
        k = s[CHANGES]
        while k > 0 and changes[k - 1, 0] > now:
            k -= 1
        meets = k < s[CHANGES] and changes[k, 0] < end
        if not meets and s[EDGE] < end:
            pass_edge(c, st)
            continue
        if not meets:
            return end, level
        before, after = (gated, full) if level else (full, gated)
        now, level = changes[k, 0], changes[k, 1]
        end = now - (-(end - now) * after // before)


# ---- streams


@compiled
def fire(c: Columns, st: State, row: int, now: int, streamed: int, finish: int, state: int) -> None:
    """Record a row's finish, and schedule its updates."""
    st.finish[row] = finish
    first = c.update_ptr[row]
    for k in range(first, c.update_ptr[row + 1]):
        when = c.update_when[k]
        base = now if when == AT_START else streamed if when == AT_STREAMED else finish
        push(st, base + c.delays[c.update_delay[k], state], END + row * ROW + 1 + k - first, k)


@compiled
def update(c: Columns, st: State, k: int, now: int) -> None:
    """Apply an update, and wake the streams whose wait it meets."""
    semaphore, op = c.update_semaphore[k], c.update_op[k]
    if op == ADD:
        st.value[semaphore] += c.update_value[k]
    elif op == SUB:
        st.value[semaphore] -= c.update_value[k]
    else:
        st.value[semaphore] = c.update_value[k]
    if st.waiters[semaphore]:
        reached = st.value[semaphore]
        for s in range(c.fixed[STREAMS]):
            if st.waits_for[s] == semaphore and reached >= st.wanted[s]:
                st.waits_for[s] = -1
                st.waiters[semaphore] -= 1
                push(st, now, BEGIN + s, 0)


@compiled
def free(c: Columns, st: State, s: int, row: int, now: int) -> bool:
    """Whether a stream may have its row's ports; it asks for them the first time, and looks again when others are done."""
    wanted, until, before = c.ports[row], 0, False
    if st.asked[s] < 0:
        st.asked[s] = st.scalar[ASKED]
        st.scalar[ASKED] += 1
    for other in range(c.fixed[STREAMS]):
        if other == s:
            continue
        for port in range(MOST_PORTS):
            if wanted >> port & 1:
                until = max(until, st.holds[other * MOST_PORTS + port])
        if 0 <= st.asked[other] < st.asked[s] and c.ports[st.at_row[other]] & wanted:
            before = True
    if until > now:
        push(st, until, BEGIN + s, LOOK)
    return until <= now and not before


@compiled
def hold(c: Columns, st: State, s: int, row: int, finish: int) -> None:
    """A stream has its row's ports; those that want one of them look again when it is done."""
    mine = c.ports[row]
    st.asked[s] = -1
    for port in range(MOST_PORTS):
        if mine >> port & 1:
            st.holds[s * MOST_PORTS + port] = finish
    for other in range(c.fixed[STREAMS]):
        if st.asked[other] >= 0 and c.ports[st.at_row[other]] & mine:
            push(st, finish, BEGIN + other, LOOK)


@compiled
def stream(c: Columns, st: State, s: int, now: int, why: int) -> None:
    """A stream looks at its row: it waits on, or begins."""
    row = st.at_row[s]
    if row == c.stream_ptr[s + 1] or (why == LOOK and st.asked[s] < 0):
        return
    if st.fresh[s]:
        st.fresh[s] = 0
        st.ready[row] = now
    if st.asked[s] < 0:
        for k in range(c.wait_ptr[row], c.wait_ptr[row + 1]):
            semaphore = c.wait_semaphore[k]
            if st.value[semaphore] < c.wait_value[k]:
                st.waits_for[s] = semaphore
                st.wanted[s] = c.wait_value[k]
                st.waiters[semaphore] += 1
                return
    if c.ports[row] and not free(c, st, s, row, now):
        return
    st.start[row] = now
    rule, cost, state, streamed = c.rule[row], c.cost[row], 0, now
    if rule == FOLLOW:
        state = 1 if now - st.followed[s] < c.fixed[FOLLOW_WINDOW] else 0
    elif rule == LOAD:
        behind = 1 if now < st.scalar[BUSY_UNTIL] else 0
        streamed, gated = load_weights(c, st, now, c.cost_load[cost, behind], c.cost_load[cost, 2 + behind])
        state = 2 * gated + behind
    elif rule == STREAM:
        streamed = stream_work(c, st, now, c.work[row])
        state = 2 * st.scalar[GATED]
    finish = streamed + c.cost_latency[cost, state]
    if c.stream_ordered[s] or rule == STREAM:
        finish = max(finish, st.visible[s])
        st.visible[s] = finish
    if rule == FOLLOW:
        st.followed[s] = finish
    if c.ports[row]:
        hold(c, st, s, row, finish)
    fire(c, st, row, now, streamed, finish, state)
    for t in range(c.fan_ptr[row], c.fan_ptr[row + 1]):
        submit(c, st, t, now)
    st.at_row[s] = row + 1
    st.fresh[s] = 1
    st.scalar[STARTED] += 1
    push(st, now + c.cost_issue[cost, state], BEGIN + s, 0)


# ---- transfers


@compiled
def submit(c: Columns, st: State, t: int, now: int) -> None:
    """A trigger started: its transfer reaches the DMA engine later, in the order of the ring."""
    arrival = now + c.arrival[t]
    if c.server[t] >= 0:
        at = c.server[t] * c.fixed[RINGS] + c.ring[t]
        arrival = max(arrival, st.latest[at])
        st.latest[at] = arrival
    push(st, arrival, BEGIN + c.fixed[STREAMS] + c.fixed[ROWS] + t, t)


@compiled
def arrive(c: Columns, st: State, t: int, now: int) -> None:
    """A transfer's descriptors are here. A load that meets a busy engine, or a ring just used, comes again later."""
    row, d = c.fixed[ROWS] + t, c.server[t]
    if d < 0:
        st.ready[row] = st.start[row] = now
        finish = now + c.packet[t]
        fire(c, st, row, now, finish, finish, 0)
        return
    at = d * c.fixed[RINGS] + c.ring[t]
    if st.ready[row] < 0:
        st.ready[row] = now
        st.extra[t] = c.first[t]
        if st.held[at] > now:
            postpone(c, st, t, at, st.held[at] + 1)
            return
        unstarted = st.head[at] >= 0 and st.sent[st.tail[at]] == 0
        if c.load[t] and not unstarted and (now - st.last_load[at] < c.fixed[RECENT] or st.busy_rings[d] > 0):
            st.extra[t] += c.busy_stall[t]
            if c.busy_delay[t]:
                postpone(c, st, t, at, now + c.busy_delay[t])
                return
    st.behind[t] = -1
    if st.head[at] < 0:
        st.head[at] = t
        st.busy_rings[d] += 1
    else:
        st.behind[st.tail[at]] = t
    st.tail[at] = t
    st.sent[t] = 0
    if not st.active[d]:
        st.active[d] = 1
        pick_at(c, st, d, now)
    elif st.lump[d] >= 0 and c.ring[st.lump[d]] != c.ring[t]:
        break_lump(c, st, d, now)


@compiled
def postpone(c: Columns, st: State, t: int, at: int, tick: int) -> None:
    st.held[at] = tick
    push(st, tick, BEGIN + c.fixed[STREAMS] + c.fixed[ROWS] + t, t)


@compiled
def pick_at(c: Columns, st: State, d: int, tick: int) -> None:
    push(st, tick, BEGIN + c.fixed[STREAMS] + len(st.ready) + d, d)


@compiled
def fill(c: Columns, st: State, t: int, now: int, length: int) -> int:
    """How long a packet takes that begins now and would take `length` alone: the bucket may hold it up."""
    drain, s = c.fixed[DRAIN], st.scalar
    if drain == 0:
        return length
    s[LEVEL] = max(0, s[LEVEL] - drain * (now - s[LEVEL_AT])) + c.units[t]
    s[LEVEL_AT] = now
    st.drained[t] = now - (-s[LEVEL] // drain)
    over: int = -((c.burst[t] - s[LEVEL]) // drain)
    return max(length, over)


@compiled
def settled(c: Columns, st: State, t: int, now: int) -> int:
    """The end of a semaphore packet that begins now."""
    end: int = now + c.last[t]
    if c.settle[t] >= 0 and st.drained[t] >= 0:
        end = max(end, st.drained[t] + c.settle[t])
    return end


@compiled
def pick(c: Columns, st: State, d: int, now: int) -> None:
    """Send the next packet of the next ring that has one; all packets while no other ring has any."""
    rings = c.fixed[RINGS]
    ring = st.turn[d]
    for _ in range(rings):
        if st.head[d * rings + ring] >= 0:
            break
        ring = (ring + 1) % rings
    st.turn[d] = (ring + 1) % rings
    t = st.head[d * rings + ring]
    row, sent, packets = c.fixed[ROWS] + t, st.sent[t], c.packets[t]
    if sent == 0 and st.start[row] < 0:
        st.start[row] = now
    first = st.extra[t] if sent == 0 else 0
    if st.busy_rings[d] == 1 and c.fixed[DRAIN] == 0:
        st.lump[d], st.lump_start[d], st.lump_sent[d] = t, now, sent
        st.sent[t] = packets if packets else 1
        length = (packets - sent) * c.packet[t] + first if packets else 0
        finish_at(c, st, d, t, now + length + c.last[t])
    elif sent < packets:
        st.sent[t] = sent + 1
        pick_at(c, st, d, now + fill(c, st, t, now, c.packet[t] + first))
    else:
        st.sent[t] = max(sent, 1)
        finish_at(c, st, d, t, settled(c, st, t, now))


@compiled
def finish_at(c: Columns, st: State, d: int, t: int, tick: int) -> None:
    st.round[d] += 1
    push(st, tick, END + (c.fixed[ROWS] + t) * ROW, st.round[d])


@compiled
def break_lump(c: Columns, st: State, d: int, now: int) -> None:
    """Go back to packet by packet: the current packet ends, then the rings take turns."""
    t, before = st.lump[d], st.lump_sent[d]
    packet = c.packet[t]
    first_end = st.lump_start[d] + packet + (st.extra[t] if before == 0 else 0)
    gone = max(0, -((first_end - now) // packet))  # whole packets after the first that end by now, rounded up
    if before + 1 + gone > c.packets[t]:
        return  # the semaphore packet is under way
    st.lump[d] = -1
    st.round[d] += 1
    st.sent[t] = before + 1 + gone
    pick_at(c, st, d, first_end + gone * packet)


@compiled
def complete(c: Columns, st: State, t: int, valid: int, now: int) -> None:
    """The semaphore packet is out."""
    d = c.server[t]
    if valid != st.round[d]:
        return
    row, at = c.fixed[ROWS] + t, d * c.fixed[RINGS] + c.ring[t]
    st.lump[d] = -1
    st.head[at] = st.behind[t]
    if st.head[at] < 0:
        st.busy_rings[d] -= 1
    if c.load[t]:
        st.last_load[at] = now
    fire(c, st, row, now, now, now, 0)
    if st.busy_rings[d]:
        pick_at(c, st, d, now)
    else:
        st.active[d] = 0


# ---- the loop


def _events(c: Columns, st: State, most: int, room: int) -> int:
    """Handle up to `most` events: DONE, PAUSED, or GROW when the next might find less than `room` places."""
    s, rows, streams, total = st.scalar, c.fixed[ROWS], c.fixed[STREAMS], len(st.ready)
    if s[BEGUN] == 0:
        s[BEGUN] = 1
        for k in range(streams):
            if c.stream_ptr[k] < c.stream_ptr[k + 1]:
                push(st, c.stream_start[k], BEGIN + k, 0)
    for _ in range(most):
        if s[EVENTS] == 0:
            end = 0
            for row in range(total):
                end = max(end, st.finish[row])
            advance(c, st, end)
            return DONE
        if s[EVENTS] + room > len(st.heap) or s[CHANGES] + CHANGES_PER_EVENT > len(st.changes):
            return GROW
        now, priority, argument = st.heap[0, 0], st.heap[0, 1], st.heap[0, 2]
        s[EVENTS] -= 1
        drop_first(st.heap, s[EVENTS])
        if priority < BEGIN:
            if (priority - END) % ROW:
                update(c, st, argument, now)
            else:
                complete(c, st, (priority - END) // ROW - rows, argument, now)
        elif priority < BEGIN + streams:
            stream(c, st, priority - BEGIN, now, argument)
        elif priority < BEGIN + streams + total:
            arrive(c, st, argument, now)
        else:
            pick(c, st, argument, now)
    return PAUSED


events = compiled(_events, entry=True)


# ---- what Python does


def run(table: Table, progress: Callable[[int, int], None] | None = None) -> Timeline:
    """Run a lowered program to completion; Deadlock if it cannot. `progress` is told rows done and rows in all.

    Unsupported without Numba, and for times or semaphore values that might leave 64 bits.
    """
    if njit is None:
        raise missing_extra("engine='compiled'", NO_NUMBA, "fast", ", or engine='simpy'")
    return loop(table, progress)


def loop(table: Table, progress: Callable[[int, int], None] | None = None, most: int = EVENTS_PER_CALL) -> Timeline:
    """As `run`, with or without Numba, `most` events at a time."""
    check_range(table)
    c, st, room = columns(table), state(table), room_needed(table)
    while True:
        try:
            found = events(c, st, most, room)
        except Exception as e:
            if not any(frame.f_globals.get("__name__") == CACHE for frame, _ in walk_tb(e.__traceback__)):
                raise  # a signal's handler, perhaps
            keep_nothing()
            found = events(c, st, most, room)
        if st.scalar[FULL]:
            raise InternalError("fast", "the gate changed more often in one event than there was room for", f"at most {CHANGES_PER_EVENT}")
        if found == DONE:
            break
        if found == GROW:
            st = st._replace(
                heap=_larger(st.heap, st.scalar[EVENTS] + room), changes=_larger(st.changes, st.scalar[CHANGES] + CHANGES_PER_EVENT)
            )
        if progress is not None:
            progress(int(st.scalar[STARTED]), table.rows)
    if progress is not None:
        progress(table.rows, table.rows)
    check_complete(table, st.at_row.tolist(), st.value.tolist(), st.finish)
    changes = st.changes[: st.scalar[CHANGES]].tolist()
    return Timeline(st.ready, st.start, st.finish, tuple((tick, int(not gated)) for tick, gated in changes))


def keep_nothing() -> None:
    """Have every function compiled anew, beside whatever is on disk."""
    if njit is None:
        return
    for name, function in list(globals().items()):
        if plain := getattr(function, "py_func", None):
            globals()[name] = njit(_nrt=False, no_cpython_wrapper=plain is not _events)(plain)


def check_range(table: Table) -> None:
    """Python's integers have no end, these have 64 bits. Unsupported if a time or a semaphore's value might not fit."""
    whole = (table.stream_start, table.arrival, table.busy_delay, table.busy_stall, table.first, table.last, table.work, table.settle)
    longest = [c.astype(np.float64).max(axis=1, initial=0) for c in (table.cost_issue, table.cost_latency, table.cost_load, table.delays)]
    issue, latency, load, delay = longest
    t = table.throttle
    rates = (t.window, t.full, t.threshold, t.phase, t.gated, t.limit, t.idle, table.follow_window, table.recent)
    window, full, threshold, *others = map(float, rates)
    time = sum(c.astype(np.float64).sum() for c in whole) + (table.packets.astype(np.float64) * table.packet).sum()
    time += (issue + latency + load)[table.cost].sum() + delay[table.update_delay].sum()
    put_in = (table.packets.astype(np.float64) * table.units).sum()
    time += put_in / max(1, table.drain)
    value = max(np.abs(table.update_value.astype(np.float64)).sum(), put_in, time * table.drain, table.burst.max(initial=0))
    # a window's or a streak's work, and the product by which a load goes on at another rate
    if max(time + 2 * window, value, max(window, float(t.limit)) * full, threshold, *others, load.max(initial=0) ** 2) >= LIMIT:
        raise Unsupported("engine='compiled'", "times or semaphore values beyond 64 bits", "engine='simpy'")


def columns(table: Table) -> Columns:
    """The table as the loop reads it."""
    t = table.throttle
    fixed = (
        table.rows, table.rings, len(table.stream_names), table.follow_window, table.recent, t.window, t.full, t.gated, t.threshold,
        t.limit, t.idle, table.drain,
    )  # fmt: skip
    named = {name: np.ascontiguousarray(getattr(table, name)) for name in Columns._fields if name != "fixed"}
    return Columns(**named, fixed=np.array(fixed, np.int64))


def state(table: Table) -> State:
    """Before the first event: every stream that has rows comes to its first."""
    streams, rings, servers, t = len(table.stream_names), table.servers * table.rings, table.servers, table.throttle
    total, gated = table.rows + table.transfers, int(t.starts_gated and t.window > 0)

    def full(size: int, value: int = 0) -> Ints:
        return np.full(size, value, np.int64)

    st = State(
        heap=np.zeros((1024, 3), np.int64), changes=np.zeros((64, 2), np.int64), scalar=full(SCALARS),
        ready=full(total, -1), start=full(total, -1), finish=full(total, -1),
        value=full(table.semaphores), waiters=full(table.semaphores),
        at_row=table.stream_ptr[:-1].copy(), fresh=full(streams, 1), waits_for=full(streams, -1), wanted=full(streams),
        followed=full(streams, NEVER), visible=full(streams),
        asked=full(streams, -1), holds=full(streams * MOST_PORTS),
        sent=full(table.transfers, -1), extra=full(table.transfers), behind=full(table.transfers, -1),
        drained=full(table.transfers, -1),
        head=full(rings, -1), tail=full(rings, -1), latest=full(rings), held=full(rings, -1), last_load=full(rings, NEVER),
        busy_rings=full(servers), turn=full(servers), active=full(servers), lump=full(servers, -1), lump_start=full(servers),
        lump_sent=full(servers), round=full(servers),
    )  # fmt: skip
    st.scalar[EDGE] = (t.phase if t.phase > 0 else t.window) if t.window else FAR
    st.scalar[GATED] = st.changes[0, 1] = gated
    st.scalar[CHANGES] = 1
    return st


def room_needed(table: Table) -> int:
    """Events that one event may schedule: a row's updates, its transfers, itself again, and every stream woken."""
    most = int(np.diff(table.update_ptr).max(initial=0)) + int(np.diff(table.fan_ptr).max(initial=0))
    return most + 2 * len(table.stream_names) + 2


def _larger(array: Ints, needed: int) -> Ints:
    """The same with room for twice as much, if it has not enough."""
    if needed <= len(array):
        return array
    out = np.zeros((2 * needed, array.shape[1]), np.int64)
    out[: len(array)] = array
    return out
