"""What DMA engines move together, worked out by hand: a bucket that drains 2 units a tick."""

from __future__ import annotations

from typing import Any

import pytest

from engines import outcome
from naive_engine import simulate as naive
from nc_sim import core, fast
from plans import BUCKETS, Plan

# name -> start and finish of every transfer. A transfer arrives a tick after its trigger; a semaphore packet takes 1 tick.
CASES: dict[str, list[tuple[int, int]]] = {
    # 30 units drain in 15 ticks, longer than a packet's 10: 1, 16, 31, and the semaphore packet from 46
    "one engine": [(1, 47)],
    # 20 units drain in 10 ticks
    "no limit reached": [(1, 32)],
    # first packets of both at 1 and 4: the second's 30 units have drained at 31, the first engine's next begins at 16
    # behind them: 46, and so in turns: 61, 76
    "two engines": [(1, 77), (4, 62)],
    # Packets begin at 1, 11, 21, 31 and 41 with 30, 40, 50, 60 and 70 units in all; each may end with 40, so the fifth takes
    # 15, and so does the sixth from 56
    "with a burst": [(1, 72)],
    # the same, and the last 40 units need 20 ticks beyond 71: 91, and 4 to settle
    "a burst that settles": [(1, 95)],
    # all is drained at 16, while the packet lasts until 41; the semaphore packet takes its own 3
    "settles at once": [(1, 44)],
    "nothing to settle": [(1, 2)],
    # 4 packets take 10 each (levels 30, 40, 50, 60: at most 20 units over 40), also again from an empty bucket
    "a pause refills": [(1, 42), (101, 142)],
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("run", [core.run, fast.loop], ids=["simpy", "compiled"])
def test_a_transfer_moves_at_the_bucket_s_rate_but_for_its_burst(name: str, run: Any) -> None:
    plan = BUCKETS[name]
    found = outcome(plan.table(), run)
    assert found == naive(plan.table())
    rows = sum(len(s) for s in plan.streams)
    assert list(zip(found.start[rows:], found.finish[rows:], strict=True)) == CASES[name]


@pytest.mark.parametrize("run", [core.run, fast.loop], ids=["simpy", "compiled"])
def test_sixteen_engines_move_what_the_bucket_lets_through_in_the_long_run(run: Any) -> None:
    """Sixteen engines, each 100 packets of 30 units: 48,000 units at 2 a tick are 24,000 ticks, and nobody waits for nothing."""
    from plans import Move, Row

    fan = tuple(Move(packets=100, units=30, server=k, ring=0) for k in range(16))
    table = Plan(((Row(moves=fan),),), servers=16, drain=2).table()
    finish = run(table).finish.max()
    assert finish == 1 + 24_000 + 1
