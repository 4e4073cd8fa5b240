"""Small readable tables: plans of streams and transfers, random ones, and the directed ties that engines must agree on."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import attrs
import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from nc_sim.table import Ints, Op, Role, Rule, Table, Throttle, When

ADD, SUB, SET = Op.ADD, Op.SUB, Op.SET
START, STREAMED, FINISH = When.START, When.STREAMED, When.FINISH
NO_THROTTLE = Throttle(0, 0, 1, 1, 0, False)
RANDOM = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

Four = tuple[int, int, int, int]


@attrs.frozen
class Up:
    """What a row does to a semaphore."""

    semaphore: int
    op: Op = ADD
    value: int = 1
    when: When = FINISH
    delay: Four | int = 1


@attrs.frozen
class Move:
    """A transfer that a row sets off."""

    ring: int = 0
    arrival: int = 1
    packets: int = 1
    packet: int = 10
    first: int = 0
    last: int = 1
    load: bool = False
    busy_delay: int = 0
    busy_stall: int = 0
    server: int = 0
    updates: tuple[Up, ...] = ()
    units: int = 0
    burst: int = 0
    settle: int = -1


@attrs.frozen
class Row:
    """A row of a stream; one number where all states cost the same."""

    issue: Four | int = 1
    latency: Four | int = 1
    rule: Rule = Rule.ALWAYS
    work: int = 0
    ports: int = 0
    load: Four | int = 0
    waits: tuple[tuple[int, int], ...] = ()
    updates: tuple[Up, ...] = ()
    moves: tuple[Move, ...] = ()


def ints(xs: Iterable[int]) -> Ints:
    return np.array(list(xs), np.int64)


def pointer(counts: Iterable[int]) -> Ints:
    return ints([0, *itertools.accumulate(counts)])


def four(costs: Iterable[Four | int]) -> Ints:
    return np.array([x if isinstance(x, tuple) else (x,) * 4 for x in costs], np.int64).reshape(-1, 4)


@attrs.frozen
class Plan:
    """A readable table: its streams, and what holds for the whole run."""

    streams: tuple[tuple[Row, ...], ...]
    starts: tuple[int, ...] = ()
    ordered: tuple[int, ...] = ()
    throttle: Throttle = NO_THROTTLE
    rings: int = 4
    servers: int = 1
    follow_window: int = 0
    recent: int = 0
    drain: int = 0

    def table(self) -> Table:
        rows = [r for s in self.streams for r in s]
        moves = [m for r in rows for m in r.moves]
        updates = [u for r in rows for u in r.updates] + [u for m in moves for u in m.updates]
        semaphores = 1 + max([u.semaphore for u in updates] + [s for r in rows for s, _ in r.waits], default=0)
        every = len(rows) + len(moves)
        return Table(
            stream_names=tuple(f"stream {s}" for s in range(len(self.streams))),
            stream_start=ints(self.starts or [0] * len(self.streams)),
            stream_ptr=pointer(len(s) for s in self.streams),
            stream_ordered=ints(self.ordered or [0] * len(self.streams)),
            step=ints(range(every)),
            role=ints([int(Role.EXECUTE)] * len(rows) + [int(Role.TRANSFER)] * len(moves)),
            cost=ints(range(len(rows))),
            rule=ints(int(r.rule) for r in rows),
            work=ints(r.work for r in rows),
            ports=ints(r.ports for r in rows),
            fan_ptr=pointer(len(r.moves) for r in rows),
            wait_ptr=pointer(len(r.waits) for r in rows),
            wait_semaphore=ints(s for r in rows for s, _ in r.waits),
            wait_value=ints(v for r in rows for _, v in r.waits),
            update_ptr=pointer([len(r.updates) for r in rows] + [len(m.updates) for m in moves]),
            update_semaphore=ints(u.semaphore for u in updates),
            update_op=ints(int(u.op) for u in updates),
            update_value=ints(u.value for u in updates),
            update_when=ints(int(u.when) for u in updates),
            update_delay=ints(range(len(updates))),
            cost_issue=four(r.issue for r in rows),
            cost_latency=four(r.latency for r in rows),
            cost_load=four(r.load for r in rows),
            delays=four(u.delay for u in updates),
            server=ints(m.server for m in moves),
            ring=ints(m.ring for m in moves),
            arrival=ints(m.arrival for m in moves),
            packets=ints(m.packets for m in moves),
            packet=ints(m.packet for m in moves),
            first=ints(m.first for m in moves),
            last=ints(m.last for m in moves),
            load=ints(int(m.load) for m in moves),
            busy_delay=ints(m.busy_delay for m in moves),
            busy_stall=ints(m.busy_stall for m in moves),
            units=ints(m.units for m in moves),
            burst=ints(m.burst for m in moves),
            settle=ints(m.settle for m in moves),
            drain=self.drain,
            servers=self.servers,
            rings=self.rings,
            semaphores=semaphores,
            semaphore_names=tuple(f"s{k}" for k in range(semaphores)),
            follow_window=self.follow_window,
            recent=self.recent,
            queued=0,
            packet_shown=0,
            throttle=self.throttle,
            ticks_per_ns=Fraction(1),
            wait_row=ints(range(every)),
            start_row=ints(range(every)),
            finish_row=ints(range(every)),
        )


# --- random plans ----------------------------------------------------------------------------------------------------

LOADED, STREAMED_COUNT = 0, 1  # semaphores that keep the array's rows in order; the others are shared by all
SHARED = 6
LONGEST_LOAD = 7
TICKS = st.integers(1, 9)


def states(draw: Any, low: int = 1, high: int = 9, uniform: bool = False) -> Four | int:
    if uniform or draw(st.booleans()):
        return int(draw(st.integers(low, high)))
    a, b, c, d = (draw(st.integers(low, high)) for _ in range(4))
    return a, b, c, d


def draw_updates(draw: Any, totals: dict[int, int], moments: Sequence[When], uniform: bool) -> tuple[Up, ...]:
    """Updates of the shared semaphores; `totals` counts what they add up to in program order."""
    out = []
    for _ in range(draw(st.sampled_from((0, 1, 1, 2, 3)))):
        semaphore = draw(st.integers(2, SHARED - 1))
        op = draw(st.sampled_from((ADD, ADD, ADD, ADD, SUB, SET)))
        value, when = draw(st.integers(0 if op is SET else 1, 3)), draw(st.sampled_from(moments))
        delay = states(draw, 1 if when is START else 0, 6, uniform and when is START)
        totals[semaphore] = value if op is SET else totals.get(semaphore, 0) + (value if op is ADD else -value)
        out.append(Up(semaphore, op, value, when, delay))
    return tuple(out)


def draw_waits(draw: Any, totals: dict[int, int]) -> tuple[tuple[int, int], ...]:
    """Mostly waits that earlier updates meet; the rest may deadlock."""
    waits = []
    for semaphore, total in sorted(totals.items()):
        if total > 0 and draw(st.integers(0, 3)) == 0:
            waits.append((semaphore, draw(st.integers(1, total))))
    if draw(st.integers(0, 29)) == 29:
        waits.append((draw(st.integers(2, SHARED - 1)), draw(st.integers(1, 3))))
    return tuple(waits)


@st.composite
def moves(draw: Any, rings: Sequence[int], servers: int, totals: dict[int, int], longest: int = 9) -> Move:
    load = draw(st.booleans())
    return Move(
        ring=draw(st.sampled_from(rings)),
        arrival=draw(st.integers(0, 12)),
        packets=draw(st.sampled_from((0, 1, 1, 2, 3, 5, 8))),
        packet=draw(st.integers(1, longest)),
        first=draw(st.sampled_from((0, 0, 1, 4))),
        last=draw(st.integers(1, 4)),
        load=load,
        busy_delay=draw(st.sampled_from((0, 3, 11))) if load else 0,
        busy_stall=draw(st.sampled_from((0, 2, 7))) if load else 0,
        server=draw(st.integers(-1 if draw(st.integers(0, 7)) == 7 else 0, servers - 1)),
        updates=draw_updates(draw, totals, (FINISH,), False),
        units=draw(st.integers(0, 60)),
        burst=draw(st.sampled_from((0, 0, 7, 50))),
        settle=draw(st.sampled_from((-1, 0, 3, 14))),
    )


@st.composite
def plans(draw: Any) -> Plan:
    """Small legal tables: array rows on stream 0, rings owned by one stream each, everything else anywhere."""
    count, servers = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    streams: list[list[Row]] = [[] for _ in range(count)]
    totals: dict[int, int] = {}
    loads = products = 0
    for _ in range(draw(st.integers(1, 14))):
        s = draw(st.sampled_from((0, *range(count))))
        kind = draw(st.sampled_from(("always", "follow", "trigger", "trigger", "array", "array")))
        waits = draw_waits(draw, totals)
        if kind == "array" and s == 0:
            load = not loads or draw(st.booleans())
            updates = draw_updates(draw, totals, (START, STREAMED, FINISH), True)
            issue, latency = draw(TICKS), states(draw)
            guard = Up(LOADED if load else STREAMED_COUNT, ADD, 1, STREAMED, states(draw, 0, 3))
            row = Row(issue, latency, waits=waits, updates=(guard, *updates))
            if load:
                row, loads = attrs.evolve(row, rule=Rule.LOAD, load=states(draw, 1, LONGEST_LOAD)), loads + 1
            else:
                order = ((LOADED, loads), *([(STREAMED_COUNT, products)] if products else []))
                row = attrs.evolve(row, rule=Rule.STREAM, work=draw(st.integers(1, 60)), waits=(*waits, *order))
                products += 1
        else:
            rule = Rule.FOLLOW if kind in ("follow", "trigger") else Rule.ALWAYS
            updates = draw_updates(draw, totals, (START, FINISH), False)
            ports = draw(st.sampled_from((0, 0, 1, 2, 3)))
            row = Row(states(draw), states(draw), rule, ports=ports, waits=waits, updates=updates)
            if kind == "trigger":
                own = [r for r in range(2 * count) if r % count == s]
                fan = draw(st.lists(moves(own, servers, totals), min_size=1, max_size=3))
                row = attrs.evolve(row, moves=tuple(fan))
        streams[s].append(row)
    full, gated = draw(st.sampled_from(((1, 1), (2, 1), (3, 2), (5, 3))))
    window = draw(st.sampled_from((0, 2, 3, LONGEST_LOAD, 8, 11, 16)))
    phase = draw(st.integers(0, max(0, window - 1)))
    throttle = Throttle(window, phase, full, gated, draw(st.integers(0, max(1, window * full // 2))), draw(st.booleans()))
    if draw(st.integers(0, 3)) == 3:
        throttle = Throttle(0, 0, full, gated, 0, False, draw(st.sampled_from((1, 2, 5, 9, 20))), draw(st.sampled_from((1, 2, 4, 9))))
    return Plan(
        tuple(map(tuple, streams)),
        tuple(draw(st.integers(0, 12)) for _ in range(count)),
        tuple(int(draw(st.booleans()) and not (s == 0 and loads)) for s in range(count)),
        throttle,
        2 * count,
        servers,
        draw(st.integers(0, 12)),
        draw(st.integers(0, 20)),
        draw(st.sampled_from((0, 0, 1, 3, 7))),
    )


# --- directed ties ---------------------------------------------------------------------------------------------------

WAITER = (Row(waits=((0, 1),)),)


def signal(tick: int, op: Op, value: int) -> tuple[Row, ...]:
    """A stream whose only row updates semaphore 0 at this tick."""
    return (Row(latency=tick - 1, updates=(Up(0, op, value),)),)


SET_THEN_ADD = Plan((signal(10, SET, 0), signal(10, ADD, 1), WAITER))
ADD_THEN_SET = Plan((signal(10, ADD, 1), signal(10, SET, 0), WAITER))
SUB_THEN_ADD_TWICE = Plan((signal(10, SUB, 1), signal(10, ADD, 2), WAITER, WAITER))
TWO_UPDATES_OF_ONE_ROW = Plan(((Row(latency=9, updates=(Up(0, ADD, 5), Up(0, SET, 0))),), WAITER))
WAKES_TWO_STREAMS_AND_ONE_TAKES_IT_BACK = Plan(
    (
        (Row(issue=5, waits=((0, 1),), updates=(Up(0, SUB, 1, START),)), Row()),
        (Row(waits=((0, 1),)),),
        signal(10, ADD, 1),
    )
)
SEEN_FROM_THE_NEXT_TICK = Plan(((Row(updates=(Up(0, ADD, 1, START),)),), WAITER))
TWO_WAITS = Plan((signal(10, ADD, 1), (Row(latency=29, updates=(Up(1),)),), (Row(waits=((0, 1), (1, 1))),)))
CIRCLE = Plan(
    (
        (Row(waits=((0, 1),), updates=(Up(1),)), Row()),
        (Row(), Row(waits=((1, 1),), updates=(Up(0),))),
        (Row(updates=(Up(2, SET, 3),)),),
        (Row(waits=((2, 3), (2, 4))),),
    )
)


def triggers(*fans: tuple[int, Move], **whole: Any) -> Plan:
    """Each transfer set off by a stream of its own, at a tick."""
    return Plan(tuple((Row(moves=(m,)),) for _, m in fans), tuple(tick for tick, _ in fans), **whole)


ARRIVALS_AT_ONE_TICK = triggers((0, Move(ring=1, arrival=5)), (2, Move(ring=0, arrival=3, load=True, busy_delay=7, busy_stall=3)))
ARRIVALS_OF_THREE_RINGS = triggers(*((0, Move(ring=r, arrival=5, packets=r + 2, packet=3 + r)) for r in (2, 0, 1)))
# The first ring's packets begin at 1, 11, 21 and 31: another's arrival before, at and after a boundary.
AT_A_BOUNDARY = {
    tick: triggers((0, Move(packets=3)), (tick, Move(ring=1, arrival=0, packets=2, packet=4)), (0, Move(ring=2, arrival=25)))
    for tick in (1, 2, 10, 11, 12, 21, 30, 31, 32, 33)
}
WITH_A_STALL = triggers((0, Move(packets=3, first=4, load=True)), (15, Move(ring=1, arrival=0, packets=4, packet=3)))
ONLY_SEMAPHORE_PACKETS = triggers((0, Move(packets=0, first=3, last=4)), (2, Move(ring=1, packets=0)), (3, Move(ring=1, packets=2)))
# A transfer ends at the tick at which a trigger starts, and its own update starts another.
ENDS_AT_A_TRIGGER = Plan(
    (
        (Row(moves=(Move(packets=1, load=True, updates=(Up(0, delay=0),)),)),),
        (Row(moves=(Move(ring=1, arrival=0, load=True, busy_delay=5, busy_stall=2),)),),
        (Row(waits=((0, 1),), moves=(Move(ring=2, arrival=0, load=True, busy_delay=5, busy_stall=2),)),),
    ),
    (0, 12, 0),
)
# Of ring 0, loads arrive at 1, 5 (engine busy: again at 20), 12 (kept back: 21), 14 (22) and 60.
KEPT_BACK = triggers(
    *((tick, Move(arrival=0, packets=3, load=True, busy_delay=15, busy_stall=6)) for tick in (1, 5, 12, 14, 60)),
    (16, Move(ring=1, arrival=0, packets=9)),
)
# Not delayed, so the third finds the second unstarted and is not stalled.
DEEP = triggers(*((tick, Move(arrival=0, packets=3, load=True, busy_stall=6)) for tick in (1, 5, 12)))
# Loads of 11 ticks: the second arrives 8 after the first's end, the third 7.
RECENT = triggers(*((tick, Move(arrival=0, load=True, busy_stall=6)) for tick in (1, 20, 38)), recent=8)
RECENT_STORE = triggers((1, Move(arrival=0)), (15, Move(arrival=0, load=True, busy_stall=6)), recent=8)
# Loads of ring 0 arrive at 1, 5 (engine busy: again at 16, when it has long been idle), 6 (17), 7 (18), 16 (19) and 40.
KEPT_BACK_ON_AN_IDLE_ENGINE = triggers(
    *((tick, Move(arrival=0, packets=2, packet=3, load=True, busy_delay=11, busy_stall=6)) for tick in (1, 5, 6, 7, 16, 40)),
    (17, Move(ring=1, arrival=0, packets=3, packet=7)),
)
OVERTAKING = Plan(
    (
        (
            Row(moves=(Move(arrival=30),)),
            Row(moves=(Move(arrival=3, packets=2),)),
        ),
    )
)
IN_ORDER = Plan(((Row(latency=20), Row(latency=3, updates=(Up(0),)), Row(latency=25)), WAITER), ordered=(1, 0))
FREE = Plan(((Row(moves=(Move(server=-1, arrival=3, packet=7, updates=(Up(0),)), Move(server=-1, arrival=1, packet=5))),), WAITER))


def using(ports: int, length: int, issue: int = 1, **more: Any) -> Row:
    """A row that holds these ports for `length` ticks."""
    return Row(issue, length, ports=ports, **more)


PORTS = {
    "one after the other": Plan(((using(1, 10),), (using(1, 10),))),
    "a stream shares with itself": Plan(((using(1, 10), using(1, 10)), (using(2, 3),))),
    "first come, first served": Plan(((using(1, 10, 4), using(1, 10), using(1, 10)), (using(1, 5),)), (0, 2)),
    "free at the tick of the end": Plan(((using(1, 10),), (using(1, 5),)), (0, 10)),
    "both ports or none": Plan(((using(1, 10),), (using(3, 4),), (using(2, 6),)), (0, 1, 2)),
    "another port is free": Plan(((using(1, 10),), (using(1, 4),), (using(2, 6),)), (0, 1, 2)),
    "who asked first begins first": Plan(((using(1, 9),), (using(1, 2),), (using(1, 2),)), (0, 4, 3)),
    "another's wait is over meanwhile": Plan(
        ((using(1, 10, updates=(Up(0, SUB, 1, START, 3),)),), (using(1, 5, waits=((0, 1),)),), signal(2, ADD, 1)), (1, 0, 0)
    ),
    "a stale look": Plan(((using(1, 4), using(2, 30)), (using(3, 3, 20), using(1, 3)), (using(2, 8),)), (0, 1, 0)),
    "with a wait behind it": Plan(((using(1, 6),), (using(1, 3), using(1, 3, waits=((0, 1),))), signal(30, ADD, 1))),
    "in order, so it holds for longer": Plan(((using(1, 20), using(2, 3)), (using(2, 3),)), (0, 2), ordered=(1, 0)),
}

# Two DMA engines and a bucket that drains 2 units a tick. Each packet of 10 ticks puts 30 in, so alone it takes 15.
BUCKETS = {
    "one engine": triggers((0, Move(packets=3, units=30)), drain=2),
    "two engines": triggers((0, Move(packets=3, units=30)), (3, Move(packets=2, units=30, ring=1, server=1)), servers=2, drain=2),
    "no limit reached": triggers((0, Move(packets=3, units=20)), drain=2),
    "with a burst": triggers((0, Move(packets=6, units=30, burst=40)), drain=2),
    "a burst that settles": triggers((0, Move(packets=6, units=30, burst=40, settle=4)), drain=2),
    "settles at once": triggers((0, Move(packets=1, packet=40, units=30, settle=4, last=3)), drain=2),
    "nothing to settle": triggers((0, Move(packets=0, units=30, settle=9)), drain=2),
    "a pause refills": triggers((0, Move(packets=4, units=30, burst=40)), (100, Move(packets=4, units=30, burst=40)), drain=2),
    "with a stall": triggers((0, Move(packets=2, units=30, first=4)), (0, Move(packets=2, units=31, first=6, ring=1)), drain=2),
    "both directions": triggers(
        (0, Move(packets=4, units=31, burst=60, settle=3)), (5, Move(packets=4, units=30, ring=1, server=1)), servers=2, drain=2
    ),
    "two engines at once": triggers((0, Move(packets=2, units=30)), (0, Move(packets=2, units=30, ring=1, server=1)), servers=2, drain=2),
    "settles behind others": triggers(
        (0, Move(packets=1, units=30, burst=90, settle=1)), (0, Move(packets=9, units=30, burst=90, ring=1, server=1)), servers=2, drain=2
    ),
}

FOLLOWS = Row(issue=(10, 9, 9, 9), latency=(4, 7, 7, 7), rule=Rule.FOLLOW)
FOLLOWING = {window: Plan(((FOLLOWS, FOLLOWS, Row(), FOLLOWS),), follow_window=window) for window in (5, 6, 7)}


def array(*rows: Row, window: int = 20, phase: int = 0, threshold: int = 8, starts_gated: bool = True, full: int = 2) -> Plan:
    """Rows of the array with the guards that keep them in order."""
    out, loads, products = [], 0, 0
    for r in rows:
        if r.rule == Rule.LOAD:
            r, loads = attrs.evolve(r, updates=(Up(LOADED, ADD, 1, STREAMED, 0),)), loads + 1
        else:
            order = ((LOADED, loads), *([(STREAMED_COUNT, products)] if products else []))
            r, products = attrs.evolve(r, waits=(*r.waits, *order), updates=(Up(STREAMED_COUNT, ADD, 1, STREAMED, 0),)), products + 1
        out.append(r)
    return Plan((tuple(out),), throttle=Throttle(window, phase, full, 1, threshold, starts_gated))


WEIGHTS = Row(rule=Rule.LOAD, load=(3, 2, 6, 5), latency=(1, 2, 3, 4))


def streaks(*rows: Row, limit: int = 20, idle: int = 3, full: int = 2, gated: int = 1) -> Plan:
    """The same with a throttle by streaming time."""
    return attrs.evolve(array(*rows), throttle=Throttle(0, 0, full, gated, 0, False, limit, idle))


def product(work: int, **more: Any) -> Row:
    return Row(rule=Rule.STREAM, work=work, latency=(1, 1, 5, 5), **more)


ARRAYS = {
    "rises in the middle": array(WEIGHTS, product(40), WEIGHTS, product(7)),
    "falls in the middle": array(WEIGHTS, product(40), product(2, waits=((LOADED, 1),)), starts_gated=False, threshold=41),
    "ends at an edge": array(WEIGHTS, product(14), WEIGHTS, product(3)),  # gated: loads 0 to 6, streams 6 to 20
    "begins at an edge": array(attrs.evolve(WEIGHTS, issue=20), product(12), phase=0, threshold=0),
    "loads from an edge": array(WEIGHTS, product(9, issue=14), WEIGHTS, product(5)),  # the second load from 20, the array idle
    "a load meets an edge": array(WEIGHTS, product(11, issue=11), WEIGHTS, product(5)),  # streams 6 to 17, loads from 17
    "a load ends at an edge": array(WEIGHTS, product(8, issue=8), WEIGHTS, product(5)),  # streams 6 to 14, loads 14 to 20
    "just enough": array(WEIGHTS, product(14), WEIGHTS, product(30), threshold=14),
    "not enough": array(WEIGHTS, product(14), WEIGHTS, product(30), threshold=15),
    "a load begins as a product ends": array(WEIGHTS, product(5, issue=5), WEIGHTS, product(5)),
    "a load behind ends at an edge": array(WEIGHTS, product(30, issue=9), WEIGHTS, product(5)),  # streams from 6, loads 15 to 20
    # full to 20, gated to 40: the product passes both edges before the load begins at the first
    "a load looks back": array(
        attrs.evolve(WEIGHTS, issue=15), product(100, issue=5), WEIGHTS, product(5), starts_gated=False, threshold=15
    ),
    "quiet windows": array(WEIGHTS, product(14, issue=90), WEIGHTS, product(40), WEIGHTS, product(50)),
    "rounds up": array(WEIGHTS, product(7), WEIGHTS, product(9), starts_gated=False, threshold=0),
    "no throttle": array(WEIGHTS, product(7), WEIGHTS, product(9), window=0),
}

# WEIGHTS take 3 ticks at full rate, so the first product streams from 3 and is gated from 23.
STREAKS = {
    "ends at the limit": streaks(WEIGHTS, product(40), product(9)),
    "passes the limit by one": streaks(WEIGHTS, product(41), product(9)),
    "ends before the limit": streaks(WEIGHTS, product(37), product(9)),
    "idle for less than a slot": streaks(WEIGHTS, product(10, issue=7), product(80)),  # 3 to 8, then from 10
    "idle for a slot": streaks(WEIGHTS, product(10, issue=8), product(80)),  # 3 to 8, then from 11
    "a slot without use after the limit": streaks(WEIGHTS, product(50, issue=33), product(80)),  # gated 23 to 33, then from 36
    "less than a slot after the limit": streaks(WEIGHTS, product(50, issue=32), product(80)),
    "the limit falls into a pause": streaks(WEIGHTS, product(36, issue=22), product(10), idle=5),  # 3 to 21, then from 25
    "a load behind a gated product": streaks(WEIGHTS, product(60, issue=23), WEIGHTS, product(9)),
    "a load meets the limit": streaks(WEIGHTS, product(60, issue=19), attrs.evolve(WEIGHTS, load=(9, 8, 18, 16)), product(9)),
    "a load outlasts the streak": streaks(
        WEIGHTS, product(50, issue=29), attrs.evolve(WEIGHTS, load=(9, 8, 18, 16)), product(50), limit=20, idle=5
    ),
    "a load ends with the slot": streaks(
        WEIGHTS, product(50, issue=29), attrs.evolve(WEIGHTS, load=(3, 3, 7, 6)), product(50), limit=20, idle=3
    ),
    "rounds up in both": streaks(WEIGHTS, product(65, issue=30), product(7), full=3, gated=2),
}

DIRECTED: dict[str, Plan] = {
    "set then add": SET_THEN_ADD,
    "add then set": ADD_THEN_SET,
    "sub then add": SUB_THEN_ADD_TWICE,
    "two updates of one row": TWO_UPDATES_OF_ONE_ROW,
    "taken back": WAKES_TWO_STREAMS_AND_ONE_TAKES_IT_BACK,
    "seen from the next tick": SEEN_FROM_THE_NEXT_TICK,
    "two waits": TWO_WAITS,
    "circle": CIRCLE,
    "arrivals at one tick": ARRIVALS_AT_ONE_TICK,
    "arrivals of three rings": ARRIVALS_OF_THREE_RINGS,
    **{f"arrival at {tick}": plan for tick, plan in AT_A_BOUNDARY.items()},
    "with a stall": WITH_A_STALL,
    "only semaphore packets": ONLY_SEMAPHORE_PACKETS,
    "ends at a trigger": ENDS_AT_A_TRIGGER,
    "kept back": KEPT_BACK,
    "deep": DEEP,
    "recent": RECENT,
    "recent store": RECENT_STORE,
    "kept back on an idle engine": KEPT_BACK_ON_AN_IDLE_ENGINE,
    "overtaking": OVERTAKING,
    "in order": IN_ORDER,
    "free": FREE,
    **{f"follow window {window}": plan for window, plan in FOLLOWING.items()},
    **ARRAYS,
    **STREAKS,
    **{f"bucket, {name}": plan for name, plan in BUCKETS.items()},
    **{f"ports, {name}": plan for name, plan in PORTS.items()},
}


# --- more random plans


@st.composite
def array_plans(draw: Any) -> Plan:
    """The array alone, dense: loads almost as long as a window, products that cross several, and short pauses."""
    window = draw(st.sampled_from((0, 3, 7, 12, 15, 20)))
    rows = [Row(draw(st.integers(1, 15)), states(draw), Rule.LOAD, load=states(draw, 1, 12))]
    for _ in range(draw(st.integers(1, 12))):
        issue, latency = draw(st.integers(1, 15)), states(draw)
        if draw(st.booleans()):
            rows.append(Row(issue, latency, Rule.LOAD, load=states(draw, 1, 12)))
        else:
            rows.append(Row(issue, latency, Rule.STREAM, work=draw(st.integers(1, 60))))
    full, threshold = draw(st.integers(1, 2)), draw(st.integers(1, 20))
    if draw(st.integers(0, 2)) == 2:
        return streaks(*rows, limit=draw(st.integers(1, 25)), idle=draw(st.integers(1, 9)), full=2 * full, gated=draw(st.integers(1, full)))
    return array(
        *rows,
        window=window,
        phase=draw(st.integers(0, max(0, window - 1))),
        threshold=threshold,
        starts_gated=draw(st.booleans()),
        full=full,
    )


@st.composite
def one_engine_moves(draw: Any) -> list[Move]:
    """Transfers of up to three rings in multiples of one unit, so that boundaries and arrivals often coincide."""
    unit, busy_delay = draw(st.sampled_from((1, 5, 40))), draw(st.sampled_from((0, 3, 20)))
    out = []
    for _ in range(draw(st.integers(1, 9))):
        load = draw(st.booleans())
        out.append(
            Move(
                ring=draw(st.integers(0, 2)),
                arrival=unit * draw(st.integers(0, 60)),
                packets=draw(st.sampled_from((0, 1, 2, 3, 8, 13))),
                packet=unit * draw(st.integers(1, 6)),
                first=unit * draw(st.sampled_from((0, 0, 2))),
                last=unit * draw(st.integers(1, 3)),
                load=load,
                busy_delay=unit * busy_delay * load,
                busy_stall=unit * draw(st.sampled_from((0, 4))) * load,
            )
        )
    return out
