"""A throttle by streaming time, worked out by hand: full rate for 20 ticks of a streak, then half until idle for 3 ticks."""

from __future__ import annotations

import pytest

from engines import outcome
from naive_engine import simulate as naive
from nc_sim import core, fast
from plans import STREAKS, WEIGHTS, Plan, product, streaks

# Weights are in at 3, so the first product streams from 3, two units a tick; its streak is 20 ticks old at 23.
CASES: dict[str, tuple[Plan, list[int], tuple[tuple[int, int], ...]]] = {
    # 40 units in 20 ticks end at 23; the second product begins there, gated: 9 units in 9 ticks, and 5 of latency
    "ends at the limit": (STREAKS["ends at the limit"], [4, 24, 37], ((0, 1), (23, 0), (35, 1))),
    # the last of 41 units takes a tick at half rate: 24, and 5 of gated latency
    "passes the limit by one": (STREAKS["passes the limit by one"], [4, 29, 38], ((0, 1), (23, 0), (36, 1))),
    # 10 units end at 8; the second begins at 10, two ticks idle: the streak goes on, 26 units by 23, 54 more by 77
    "idle for less than a slot": (STREAKS["idle for less than a slot"], [4, 9, 82], ((0, 1), (23, 0), (80, 1))),
    # the second begins at 11, three ticks idle: a streak of its own, 40 units by 31, 40 more by 71
    "idle for a slot": (STREAKS["idle for a slot"], [4, 9, 76], ((0, 1), (31, 0), (74, 1))),
    # 50 units: 40 by 23, gated until 33; full from 36, when the second begins: 40 units by 56, 40 more by 96
    "a slot without use after the limit": (
        STREAKS["a slot without use after the limit"], [4, 38, 101], ((0, 1), (23, 0), (36, 1), (56, 0), (99, 1)),
    ),
    # 36 units end at 21; the limit passes while the array rests; the second begins gated at 25, and only then is the array
    "the limit falls into a pause": (STREAKS["the limit falls into a pause"], [4, 22, 40], ((0, 1), (25, 0), (40, 1))),
    "never": (streaks(WEIGHTS, product(400), limit=1000), [4, 204], ((0, 1),)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("run", [core.run, fast.loop], ids=["simpy", "compiled"])
def test_a_streak_is_gated_from_its_limit_until_the_array_has_been_idle_for_a_slot(name: str, run: object) -> None:
    plan, finishes, levels = CASES[name]
    found = outcome(plan.table(), run)  # type: ignore[arg-type]
    assert found == naive(plan.table())
    assert list(found.finish) == finishes
    assert found.gate == tuple(level for level in levels if level[0] <= max(finishes))
