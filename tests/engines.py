"""What tests of the engines share: outcomes, a DMA engine packet by packet, mutants."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Sequence
from typing import Any

from naive_engine import Outcome
from nc_sim import core
from nc_sim.isa.errors import Deadlock, InternalError
from nc_sim.table import Table
from plans import Move, Plan, Row


def outcome(table: Table, run: Callable[..., Any] = core.run, **options: Any) -> Outcome:
    """What an engine makes of a table: all of its times, or all that blocks it."""
    try:
        timeline = run(table, **options)
    except Deadlock as e:
        return Outcome(blocked=e.blocked)
    ready, start, finish = (tuple(c.tolist()) for c in (timeline.ready, timeline.start, timeline.finish))
    return Outcome(ready, start, finish, timeline.gate)


def packet_by_packet(moves: Sequence[Move], recent: int) -> list[tuple[int, int, int]]:
    """(arrived, first packet, end of the semaphore packet) of transfers of one trigger on one DMA engine."""
    count = range(len(moves))
    nominal = [max(m.arrival for m in moves[: k + 1] if m.ring == moves[k].ring) for k in count]
    arrivals = [(nominal[k], k, False) for k in count]  # tick, transfer, whether it comes again
    queue: list[list[int]] = [[] for _ in range(1 + max(m.ring for m in moves))]
    sent, first, end, stall = [0 for _ in count], [-1 for _ in count], [-1 for _ in count], [m.first for m in moves]
    again_at: dict[int, int] = {}
    load_end: dict[int, int] = {}
    busy_with, until, turn = -1, -1, 0
    while arrivals or busy_with >= 0:
        now = min([a[0] for a in arrivals] + [until] * (busy_with >= 0))
        if busy_with >= 0 and now == until:
            m = moves[busy_with]
            if sent[busy_with] > m.packets:
                end[busy_with] = now
                queue[m.ring].remove(busy_with)
                if m.load:
                    load_end[m.ring] = now
            busy_with = -1
        for tick, k, again in sorted(a for a in arrivals if a[0] == now):
            arrivals.remove((tick, k, again))
            m = moves[k]
            comes_again = 0
            if not again:
                penalised = any(queue) or now - load_end.get(m.ring, -recent) < recent
                if again_at.get(m.ring, now) > now:
                    comes_again = again_at[m.ring] + 1
                elif m.load and penalised and all(sent[j] for j in queue[m.ring]):
                    stall[k] += m.busy_stall
                    comes_again = now + m.busy_delay if m.busy_delay else 0
            if comes_again:
                again_at[m.ring] = comes_again
                arrivals.append((comes_again, k, True))
            else:
                queue[m.ring].append(k)
        if busy_with < 0 and any(queue):
            while not queue[turn]:
                turn = (turn + 1) % len(queue)
            busy_with = queue[turn][0]
            turn = (turn + 1) % len(queue)
            m = moves[busy_with]
            if sent[busy_with] == 0:
                first[busy_with] = now
            until = now + (m.last if sent[busy_with] == m.packets else m.packet + (0 if sent[busy_with] else stall[busy_with]))
            sent[busy_with] += 1
    return list(zip(nominal, first, end, strict=True))


def one_engine(moves: Sequence[Move], recent: int, run: Callable[..., Any] = core.run) -> list[tuple[int, int, int]]:
    """The same three times, by the engine."""
    table = Plan(((Row(moves=tuple(moves)),),), rings=1 + max(m.ring for m in moves), recent=recent).table()
    timeline = run(table)
    return list(zip(*(c[1:].tolist() for c in (timeline.ready, timeline.start, timeline.finish)), strict=True))


def mutant(engine: types.ModuleType, entry: str, old: str | re.Pattern[str], new: str) -> Callable[..., Any]:
    """A function of an engine's module with one place of its source changed; not compiled."""
    pattern = old if isinstance(old, re.Pattern) else re.compile(re.escape(old))
    source = inspect.getsource(engine)
    found = len(pattern.findall(source))
    assert found == 1, f"{pattern.pattern!r} stands {found} times in the engine: write the mutant anew"
    module = types.ModuleType("nc_sim.mutant")
    module.__package__ = engine.__package__
    source = pattern.sub(new, source).replace('importlib.import_module("numba").njit', "None")
    exec(compile(source, "mutant", "exec"), module.__dict__)
    run: Callable[..., Any] = module.__dict__[entry]
    return run


def caught(run: Callable[[], Any], expected: Any) -> bool:
    """Whether a mutant gives another result, or breaks down."""
    try:
        return bool(run() != expected)
    except (InternalError, LookupError, RuntimeError, StopIteration):
        return True


BOUNDARY_MOVES = [
    [Move(packets=3, first=first), Move(ring=1, arrival=tick, packets=2, packet=4), Move(ring=2, arrival=25)]
    for first in (0, 4)
    for tick in (1, 2, 10, 11, 12, 15, 21, 30, 31, 32, 33)
]
