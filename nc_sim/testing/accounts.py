"""What holds of where the time went: every tick of the body is accounted for once."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ..analysis.history import history
from ..analysis.lines import BUSY, END, ISSUE, START, THROTTLE, stalls
from ..analysis.movement import DMA, overlap
from ..analysis.path import critical_path
from ..analysis.spare import NEVER, latest_starts, slack
from ..isa import Engine
from ..result import Result, body_ticks
from ..table import Rule
from .bounds import stream_ticks

SUMMARY_NS = 0.001  # a summary rounds its times to this


def check_accounts(result: Result) -> None:
    """Every invariant of this module: stall parts sum to the body, the critical path covers it, slack and overlap fit."""
    check_history(result)
    check_stalls(result)
    check_critical_path(result)
    check_slack(result)
    check_overlap(result)


def check_history(result: Result) -> None:
    """States, ends of streaming and finishes found from table and timeline are those that the engine used."""
    table, timeline = result.table, result.timeline
    facts = history(table, timeline)
    for s, name in enumerate(table.stream_names):
        a, b = int(table.stream_ptr[s]), int(table.stream_ptr[s + 1])
        gone_on = (timeline.start[: table.rows] + facts.issue)[a : max(a, b - 1)]
        assert np.array_equal(timeline.ready[a + 1 : b], gone_on), f"{name} goes on at other ticks than the states found say"
        visible = 0
        for row in range(a, b):
            own, finish = int(facts.own[row]), int(timeline.finish[row])
            in_order = bool(table.stream_ordered[s]) or table.rule[row] == Rule.STREAM
            visible = max(visible, own) if in_order else visible
            assert finish == (visible if in_order else own), (
                f"row {row} of {name} ends at tick {finish}, found {own} and in order {visible}"
            )


def check_stalls(result: Result) -> None:
    """The parts of each engine are above zero and sum to the body, to the tick; issue and busy time are those of its rows."""
    total, parts = body_ticks(result.table, result.timeline), stalls(result)
    streams = stream_ticks(result)
    for e in Engine:
        mine = {(p.cause, p.on): p.ticks for p in parts if p.engine == e.label}
        if not mine:
            assert e.label not in streams, f"{e.label} has rows and no parts"
            continue
        assert min(mine.values()) > 0, f"{e.label}: {mine}: a part is not above zero"
        assert sum(mine.values()) == total, f"{e.label}: {mine} ticks sum to {sum(mine.values())}, the body is {total}"
        engine = f"{e.label} engine"
        if engine not in streams:  # a sequencer alone: its rows' issue is its own
            busy, stall, _ = streams[e.label]
            issue, ends = (sum(t for (c, _), t in mine.items() if c in causes) for causes in ((ISSUE,), (START, END)))
            waits = total - issue - ends
            # the bounds take the shortest state of the last row, which nothing follows
            assert (waits, issue >= busy) == (stall, True), f"{e.label} waits {waits} and issues {issue} ticks; its rows {stall} and {busy}"
        elif e is not Engine.TENSOR:
            assert mine.get((BUSY, ""), 0) == streams[engine][0], (
                f"{e.label} is busy {mine.get((BUSY, ''), 0)}, its rows {streams[engine][0]}"
            )
        if e is not Engine.TENSOR:
            assert (THROTTLE, "") not in mine, f"{e.label} has no throttle"


def check_critical_path(result: Result) -> None:
    """The segments follow one another from zero to the end of the body, and no instruction on it has slack."""
    total, segments = body_ticks(result.table, result.timeline), critical_path(result)
    at = 0
    for s in segments:
        assert s.start_ticks == at < s.end_ticks, f"the critical path is at tick {at}, and goes on with {s}"
        at = s.end_ticks
    assert at == total, f"the critical path ends at tick {at}, the body at {total}"
    for a, b in pairwise(segments):
        assert a.end_ticks == b.start_ticks


def check_slack(result: Result) -> None:
    """No row has less than none; what is on the critical path has none, but for what meets others on a DMA engine."""
    table, timeline = result.table, result.timeline
    facts = history(table, timeline)
    spare = latest_starts(table, timeline, facts) - timeline.start
    assert (spare >= 0).all(), f"row {int(np.argmin(spare))} could come {int(spare.min())} ticks later"
    found = slack(result, facts)
    assert (found.ticks < NEVER // 2).all(), "an instruction could come at any time"
    if found.exact:
        for s in critical_path(result, facts):
            assert found.ticks[s.step] == 0, f"{s} is on the critical path, with a slack of {found.ticks[s.step]} ticks"


def check_overlap(result: Result) -> None:
    """Each engine works as long as the summary says; two work together no longer than each."""
    alone = {o.engine: o.ticks for o in overlap(result) if o.engine == o.other}
    for name, e in result.summary()["engines"].items():
        found = result.chip.ns(alone[name])
        assert abs(found - e["busy_ns"]) <= SUMMARY_NS, f"{name} works for {found} ns, the summary says {e['busy_ns']}"
    total = body_ticks(result.table, result.timeline)
    for o in overlap(result):
        a, b = alone[o.engine], alone[o.other]
        least = max(0, a + b - total)
        assert least <= o.ticks <= min(a, b), f"{o.engine} and {o.other} work together for {o.ticks} ticks, alone {a} and {b} of {total}"
    assert DMA not in alone or alone[DMA] <= total
