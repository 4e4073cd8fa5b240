"""Where the time goes: every tick once, on random programs and random tables; slack against runs that come later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from engines import mutant
from nc_sim import Program, core, simulate, workloads
from nc_sim.analysis import history, spare
from nc_sim.isa.errors import Deadlock
from nc_sim.result import body_ticks
from nc_sim.table import Rule, Table, When
from nc_sim.testing import check_accounts, explicit_programs, programs
from nc_sim.timeline import Timeline
from plans import RANDOM, Plan, Row, Up, array_plans, plans


def check(program: Program) -> None:
    check_accounts(simulate(program, values=False))


@settings(max_examples=40)
@given(programs())
def test_every_tick_of_an_automatic_program_is_accounted_for_once(program: Program) -> None:
    check(program)


@settings(max_examples=20)
@given(explicit_programs())
def test_every_tick_of_an_explicit_program_is_accounted_for_once(program: Program) -> None:
    check(program)


@pytest.mark.parametrize("name", workloads.NAMES)
def test_every_tick_of_a_workload_is_accounted_for_once(name: str) -> None:
    check(workloads.load(name).build())


# --- random tables -----------------------------------------------------------------------------------------------


def ran(table: Table) -> Timeline | None:
    try:
        return core.run(table)
    except Deadlock:
        return None


def facts_are_the_engines(table: Table, timeline: Timeline, find: Callable[[Table, Timeline], history.History] = history.history) -> None:
    """What `history` finds explains when streams went on, when rows ended, and the tick in which each wait ended."""
    f = find(table, timeline)
    for s in range(len(table.stream_names)):
        a, b = int(table.stream_ptr[s]), int(table.stream_ptr[s + 1])
        visible = 0
        for row in range(a, b):
            if row + 1 < b:
                assert timeline.ready[row + 1] == timeline.start[row] + f.issue[row]
            in_order = table.stream_ordered[s] or table.rule[row] == Rule.STREAM
            visible = max(visible, int(f.own[row])) if in_order else visible
            assert timeline.finish[row] == (visible if in_order else f.own[row])
            wait = int(f.binding[row])
            held = int(f.held_by[row])
            assert (wait < 0 and held < 0) == (timeline.start[row] == timeline.ready[row])
            if held >= 0:
                assert wait < 0
                assert table.ports[held] & table.ports[row]
                assert f.stream[held] != s
                assert timeline.finish[held] == timeline.start[row]
            if wait >= 0:
                update = int(f.met_by[wait])
                assert table.wait_ptr[row] <= wait < table.wait_ptr[row + 1]
                assert table.update_semaphore[update] == table.wait_semaphore[wait]
                assert f.update_time[update] == timeline.start[row]
    for w, update in enumerate(f.met_by.tolist()):
        if update >= 0 and not f.falls[table.wait_semaphore[w]]:
            assert counted(table, f, update, before=True) < table.wait_value[w] <= counted(table, f, update, before=False)


def counted(table: Table, f: history.History, update: int, before: bool) -> int:
    """A semaphore that only counts up, before or after an update: the updates of earlier ticks, and of earlier rows in the same."""
    mine = [k for k in range(len(table.update_value)) if table.update_semaphore[k] == table.update_semaphore[update]]
    when = [(int(f.update_time[k]), k) for k in mine]
    return sum(int(table.update_value[k]) for t, k in when if (t, k) < (int(f.update_time[update]), update) or (k == update and not before))


@settings(RANDOM, max_examples=250)
@given(plans())
def test_the_history_of_any_table_explains_its_timeline(plan: Plan) -> None:
    if (timeline := ran(plan.table())) is not None:
        facts_are_the_engines(plan.table(), timeline)


@settings(RANDOM, max_examples=250)
@given(array_plans())
def test_the_history_of_any_use_of_the_array_explains_its_timeline(plan: Plan) -> None:
    if (timeline := ran(plan.table())) is not None:
        facts_are_the_engines(plan.table(), timeline)


# --- slack -------------------------------------------------------------------------------------------------------


def later(plan: Plan, row: int, tick: int) -> Plan:
    """The same plan, where a row may not start before a tick: it also waits for a row of a stream of its own."""
    semaphore = plan.table().semaphores
    streams, at = [], 0
    for s in plan.streams:
        streams.append(tuple(attrs.evolve(r, waits=(*r.waits, (semaphore, 1))) if at + k == row else r for k, r in enumerate(s)))
        at += len(s)
    starts = plan.starts or (0,) * len(plan.streams)
    held = Row(updates=(Up(semaphore, when=When.START),))
    return attrs.evolve(plan, streams=(*streams, (held,)), starts=(*starts, tick - 1), ordered=(*(plan.ordered or (0,) * len(starts)), 0))


def end_of(plan: Plan, rows: int) -> int:
    timeline = core.run(plan.table())
    return int(timeline.finish[:rows].max(initial=0))


@st.composite
def counting_plans(draw: st.DrawFn) -> Plan:
    """Streams of rows without DMA and array, whose semaphores only count up: each wait is on an update of an earlier stream."""
    streams: list[tuple[Row, ...]] = []
    for s in range(draw(st.integers(1, 4))):
        rows = []
        for _ in range(draw(st.integers(1, 5))):
            waits = [(w, draw(st.integers(1, len(streams[w])))) for w in range(s) if draw(st.booleans())]
            raised = Up(s, when=draw(st.sampled_from((When.START, When.FINISH))), delay=draw(st.integers(1, 9)))
            rows.append(Row(draw(st.integers(1, 30)), draw(st.integers(1, 60)), waits=tuple(waits), updates=(raised,)))
        streams.append(tuple(rows))
    return Plan(tuple(streams), ordered=tuple(draw(st.integers(0, 1)) for _ in streams))


def slack_holds(plan: Plan, latest_starts: Callable[..., Any] = spare.latest_starts) -> None:
    """Each row, made to wait for its latest start, leaves the end where it is."""
    table = plan.table()
    timeline = core.run(table)
    end = body_ticks(table, timeline)
    latest = latest_starts(table, timeline, history.history(table, timeline))
    for row in range(table.rows):
        assert timeline.start[row] <= latest[row]
        assert end_of(later(plan, row, int(latest[row])), table.rows) == end


def slack_is_exact(plan: Plan, latest_starts: Callable[..., Any] = spare.latest_starts) -> None:
    """Where a semaphore's updates keep their order, a row that waits a tick longer moves the end by a tick."""
    raising_when_read = tuple(
        tuple(attrs.evolve(r, updates=tuple(attrs.evolve(u, when=When.START, delay=3) for u in r.updates)) for r in s) for s in plan.streams
    )
    plan = attrs.evolve(plan, streams=raising_when_read)
    table = plan.table()
    timeline = core.run(table)
    end = body_ticks(table, timeline)
    latest = latest_starts(table, timeline, history.history(table, timeline))
    for row in range(table.rows):
        assert end_of(later(plan, row, int(latest[row]) + 1), table.rows) == end + 1


@settings(RANDOM, max_examples=100)
@given(counting_plans())
def test_a_row_that_comes_later_by_its_slack_leaves_the_end_where_it_is(plan: Plan) -> None:
    slack_holds(plan)


@settings(RANDOM, max_examples=100)
@given(counting_plans())
def test_a_row_that_comes_a_tick_later_than_its_slack_moves_the_end_where_updates_keep_their_order(plan: Plan) -> None:
    slack_is_exact(plan)


# --- mutants -----------------------------------------------------------------------------------------------------

HISTORY_MUTANTS = {
    "following includes its limit": ("< table.follow_window", "<= table.follow_window"),
    "following forgets its stream": ("near & (stream[this] == stream[before])", "near"),
    "a product has the level behind its edge": ("np.searchsorted(done, target) - 1", 'np.searchsorted(done, target, side="right") - 1'),
    "a stream is rounded down": ("(-(target - done[last]) // rate[last])", "(-((target - done[last]) // rate[last]))"),
    "a load is behind a product that has just ended": ("start < busy_until", "start <= busy_until"),
    "a load does not see an edge": ("np.flatnonzero(following < end)", "np.flatnonzero(following < 0)"),
    "a load's share is rounded down": ("(-(end - edges[k]) * after // before)", "(-((end - edges[k]) * after // before))"),
    "delays are those of state 0": ("[table.update_delay, states[row]]", "[table.update_delay, 0]"),
    "latencies are those of state 0": ("table.cost_latency[table.cost, state]", "table.cost_latency[table.cost, 0]"),
    "a wait is met by a later update": ("np.lexsort((time, semaphore))", "np.lexsort((-time, semaphore))"),
    "subtractions add": ("else old - amount if op == Op.SUB", "else old + amount if op == Op.SUB"),
    "the last wait binds": ("[::-1]\n    out[rows[last]] = last", "\n    out[rows[last]] = last * 0 + 0"),
}  # fmt: skip
SLACK_MUTANTS = {
    "an update allows no more than its own waits": ("if follows[p] and allowed[p + 1] < allowed[p]:", "if False:"),
    "the next row of the stream does not count": ("latest[item + 1] - issue[item]", "NEVER"),
    "commits in order do not count": ("if commits[item] >= 0:", "if False:"),
    "delays do not count": ("allowed[places[u]] - delay[u]", "allowed[places[u]]"),
    "every row may end the body": ("ends_at[item])", "ends_at[item] + 5)"),
}


@pytest.mark.parametrize("name", HISTORY_MUTANTS)
def test_a_mutant_of_the_history_is_caught(name: str) -> None:
    broken = mutant(history, "history", *HISTORY_MUTANTS[name])

    @settings(RANDOM, max_examples=1000, database=None, phases=[Phase.generate])
    @given(st.one_of(plans(), array_plans()))
    def holds(plan: Plan) -> None:
        if (timeline := ran(plan.table())) is not None:
            facts_are_the_engines(plan.table(), timeline, broken)

    with pytest.raises(Exception):  # noqa: B017 - a broken one may also break down
        holds()


@pytest.mark.parametrize("name", SLACK_MUTANTS)
def test_a_mutant_of_the_slack_is_caught(name: str) -> None:
    broken = mutant(spare, "latest_starts", *SLACK_MUTANTS[name])

    @settings(RANDOM, max_examples=300, database=None, phases=[Phase.generate])
    @given(counting_plans())
    def holds(plan: Plan) -> None:
        slack_holds(plan, broken)
        slack_is_exact(plan, broken)

    with pytest.raises(AssertionError):
        holds()
