"""The compiled engine against the SimPy model and two plainer oracles; the mutants it must not survive.

Where Numba is not installed the same functions run as plain Python, so these tests run everywhere.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from engines import BOUNDARY_MOVES, caught, mutant, one_engine, outcome, packet_by_packet
from naive_engine import simulate as naive
from nc_sim import Program, chip, core, fast, simulate, workloads
from nc_sim.isa.errors import Deadlock, ProgramError, Unsupported
from nc_sim.lower import lower
from nc_sim.numerics import replay
from nc_sim.probe import Probe
from nc_sim.simulate import compile_program
from nc_sim.table import Op, Rule, Table, Throttle
from nc_sim.testing import longest_path, programs
from plans import DIRECTED, RANDOM, Move, Plan, Row, Up, array_plans, one_engine_moves, plans

CHIP = chip.load("trn2")
SIMULATE: Any = sys.modules["nc_sim.simulate"]  # the package's attribute of that name is the function
compiled = pytest.mark.skipif(fast.njit is None, reason="the extra `fast` (Numba) is not installed")


def table_of(program: Program, **what_if: Any) -> Table:
    data = CHIP.what_if(what_if)
    return lower(compile_program(program, data)[0].steps, data)[0]


# --- equal, bit for bit ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DIRECTED)
def test_a_directed_tie_has_the_outcome_of_both_other_engines(name: str) -> None:
    table = DIRECTED[name].table()
    assert outcome(table, fast.loop) == outcome(table) == naive(table)


@settings(RANDOM, max_examples=600)
@given(plans())
def test_any_table_has_the_outcome_of_the_simpy_engine(plan: Plan) -> None:
    table = plan.table()
    assert outcome(table, fast.loop) == outcome(table)


@settings(RANDOM, max_examples=300)
@given(array_plans())
def test_any_use_of_the_array_has_the_outcome_of_the_simpy_engine(plan: Plan) -> None:
    table = plan.table()
    assert outcome(table, fast.loop) == outcome(table)


@settings(RANDOM, max_examples=300)
@given(one_engine_moves(), st.sampled_from((0, 1, 7, 50)))
def test_packets_passed_in_one_event_end_as_if_passed_one_by_one(moves: list[Move], recent: int) -> None:
    assert one_engine(moves, recent, fast.loop) == packet_by_packet(moves, recent)


@settings(max_examples=60, deadline=None)
@given(programs(), st.sampled_from([{}, {"dma.hardware.busy_delay_ns": 0}, {"tensor.gate.kind": "none"}]))
def test_any_program_has_the_timeline_of_the_simpy_engine(program: Program, what_if: dict[str, Any]) -> None:
    table = table_of(program, **what_if)
    assert fast.loop(table) == core.run(table)


@settings(max_examples=60, deadline=None)
@given(programs(), st.sampled_from([{}, {"dma.core_load_bytes_per_ns": 20}, {"tensor.gate.full_cycles": 40}]))
def test_any_program_has_one_timeline_on_trn1_too_or_asks_for_what_it_lacks(program: Program, what_if: dict[str, Any]) -> None:
    data = chip.load("trn1").what_if(what_if)
    try:
        steps = compile_program(program, data)[0].steps
        table = lower(steps, data)[0]
    except (Unsupported, ProgramError):  # what only newer chips have, or more than fits into 192 KiB
        reject()
    assert fast.loop(table) == core.run(table)


@pytest.mark.parametrize("on", chip.names())
@pytest.mark.parametrize("name", workloads.NAMES)
def test_every_workload_has_the_timeline_of_the_simpy_engine(name: str, on: str) -> None:
    data = chip.load(on)
    if name == "pipeline" and not data.reader().has("dma.hardware.available"):
        return  # it asks for descriptors made in hardware, and is refused: tests/golden
    table = lower(compile_program(workloads.load(name).build(), data)[0].steps, data)[0]
    assert fast.loop(table) == core.run(table)


@settings(RANDOM, max_examples=100)
@given(plans(), st.integers(1, 7))
def test_stopping_and_going_on_changes_nothing(plan: Plan, most: int) -> None:
    table = plan.table()
    assert outcome(table, fast.loop, most=most) == outcome(table, fast.loop)


def test_progress_grows_to_the_number_of_rows() -> None:
    told: list[tuple[int, int]] = []
    table = table_of(workloads.load("rmsnorm").build())
    fast.loop(table, lambda done, rows: told.append((done, rows)), most=50)
    assert len(told) > 3
    assert [d for d, _ in told] == sorted(d for d, _ in told)
    assert told[-1] == (table.rows, table.rows)


def test_a_heap_and_a_history_of_the_gate_that_outgrow_their_first_size_go_on() -> None:
    """One trigger of 3,000 transfers; and loads at every second window, each between a full and a gated one."""
    wide = Plan(((Row(moves=tuple(Move(arrival=k % 7, ring=k % 4) for k in range(3000))),),)).table()
    assert fast.loop(wide) == core.run(wide)
    product = DIRECTED["rises in the middle"].streams[0]
    rows = [attrs.evolve(r, issue=77) for r in product for _ in range(60)]
    rows = [attrs.evolve(r, waits=(), updates=()) for r in rows]
    long = attrs.evolve(DIRECTED["rises in the middle"], streams=(tuple(rows),)).table()
    timeline = fast.loop(long)
    assert len(timeline.gate) > 64
    assert timeline == core.run(long)


def test_no_rows_at_all_is_a_timeline_without_rows() -> None:
    table = Plan(((),)).table()
    assert fast.loop(table) == core.run(table)


# --- errors ----------------------------------------------------------------------------------------------------------


def test_a_deadlock_is_told_in_the_same_words() -> None:
    p = Program("stuck")
    t = p.sbuf((128, 8), "float32")
    s = p.semaphore("never")
    p.memset(dst=t, value=0.0, update=[s.add(1)])
    p.tensor_copy(dst=t, src=t, engine="scalar", wait=[s >= 2])
    table = table_of(p)
    with pytest.raises(Deadlock) as a:
        core.run(table)
    with pytest.raises(Deadlock) as b:
        fast.loop(table)
    assert (str(a.value), a.value.blocked) == (str(b.value), b.value.blocked)


def test_times_and_values_beyond_64_bits_are_refused() -> None:
    slow = Plan(((Row(latency=1 << 61),),)).table()
    high = Plan(((Row(updates=(Up(0, value=1 << 61),)),),)).table()
    for table in (slow, high):
        core.run(table)
        with pytest.raises(Unsupported, match="beyond 64 bits; engine='simpy'"):
            fast.loop(table)


LONG_LOAD = Plan(((Row(rule=Rule.LOAD, load=(3 << 30, 3 << 30, 3 << 31, 3 << 31)),),), throttle=Throttle(1 << 30, 0, 2, 1, 1, False))
BEYOND = {
    "a load goes on at another rate": LONG_LOAD,
    "a window": attrs.evolve(LONG_LOAD, streams=((Row(),),), throttle=Throttle(1 << 62, 0, 2, 1, 1, False)),
    "a window's work": attrs.evolve(LONG_LOAD, streams=((Row(),),), throttle=Throttle(1 << 58, 0, 16, 1, 1, False)),
    "a threshold": attrs.evolve(LONG_LOAD, streams=((Row(),),), throttle=Throttle(8, 0, 2, 1, 1 << 70, False)),
    "a window to follow in": Plan(((Row(),),), follow_window=1 << 64),
    "a recent load": Plan(((Row(),),), recent=1 << 64),
}


@pytest.mark.parametrize("name", BEYOND)
def test_every_number_that_the_loop_computes_with_is_looked_at(name: str) -> None:
    table = BEYOND[name].table()
    core.run(table)
    with pytest.raises(Unsupported, match="beyond 64 bits; engine='simpy'"):
        fast.loop(table)


def test_a_load_just_inside_64_bits_goes_on_at_another_rate() -> None:
    """3 x 2^27 ticks of load; after the first window of 2^27 it is gated, so the other two take twice as long: 5 x 2^27."""
    row = Row(rule=Rule.LOAD, load=(3 << 27, 3 << 27, 3 << 28, 3 << 28))
    plan = attrs.evolve(LONG_LOAD, streams=((row,),), throttle=Throttle(1 << 27, 0, 2, 1, 1, False))
    for run in (core.run, fast.loop):
        assert run(plan.table()).finish.tolist() == [(5 << 27) + 1]


def test_auto_leaves_to_simpy_what_is_beyond_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """These clocks have a common multiple of 4.8e15 Hz, so a weight load takes more than 2^31 ticks."""
    program, what_if = workloads.load("matmul").build(), {"clock.tensor_mhz": 999_999_937}
    monkeypatch.setattr(SIMULATE, "AUTO_FROM", 0)
    with pytest.raises(Unsupported, match="engine='compiled'"):
        simulate(program, values=False, engine="compiled", what_if=what_if)
    assert (
        simulate(program, values=False, what_if=what_if).timeline
        == simulate(program, values=False, engine="simpy", what_if=what_if).timeline
    )


@pytest.mark.parametrize("engine", ["simpy", "auto"])
@pytest.mark.parametrize(
    ("clocks", "where"),
    [((99_991, 99_989, 99_971), "engine"), ((999_983, 999_979, 999_961), "chip trn2")],
    ids=["in the run", "while lowering"],
)
def test_times_that_no_engine_can_count_are_one_clear_error(engine: str, clocks: tuple[int, ...], where: str) -> None:
    what_if = dict(zip(("clock.tensor_mhz", "clock.vector_mhz", "clock.scalar_mhz"), clocks, strict=True))
    with pytest.raises(Unsupported, match=f"^{where}: a time beyond 64 bits.*; clocks with a smaller common multiple, or shorter times"):
        simulate(workloads.load("matmul").build(), values=False, engine=engine, what_if=what_if)


def test_without_numba_the_compiled_engine_is_refused_and_auto_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast, "njit", None)
    monkeypatch.setattr(SIMULATE, "AUTO_FROM", 0)
    monkeypatch.setattr(fast, "NO_NUMBA", "the package numba is not installed")
    program = workloads.load("rmsnorm").build()
    with pytest.raises(Unsupported, match=r"numba is not installed; pip install '\.\[fast\]' in the clone of nc-sim"):
        simulate(program, values=False, engine="compiled")
    assert simulate(program, values=False).timeline == simulate(program, values=False, engine="simpy").timeline


def test_auto_does_without_a_numba_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is installed, and does not go with this NumPy, say."""
    monkeypatch.setattr(fast, "njit", None)
    monkeypatch.setattr(SIMULATE, "AUTO_FROM", 0)
    program = workloads.load("rmsnorm").build()
    assert simulate(program, values=False).timeline == simulate(program, values=False, engine="simpy").timeline


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ProgramError, match="simulate: engine='fast'; one of auto, simpy, compiled"):
        simulate(workloads.load("rmsnorm").build(), values=False, engine="fast")


# --- through simulate ------------------------------------------------------------------------------------------------


@compiled
@pytest.mark.parametrize("name", workloads.NAMES)
def test_both_engines_give_the_same_values_and_the_same_files(name: str, tmp_path: Any) -> None:
    module = workloads.load(name)
    program = module.build()
    inputs = module.inputs(program)
    results = {e: simulate(program, inputs=inputs, engine=e) for e in ("simpy", "compiled")}
    for y, value in results["simpy"].outputs.items():
        assert value.tobytes() == results["compiled"].outputs[y].tobytes()
    files = [{f.name: f.read_bytes() for f in r.save(tmp_path / e).iterdir()} for e, r in results.items()]
    assert files[0] == files[1]


class Seen(Probe):
    """What a probe is told, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int, int]] = []

    def started(self, row: int, tick: int) -> None:
        self.events.append(("started", row, tick))

    def finished(self, row: int, tick: int) -> None:
        self.events.append(("finished", row, tick))


@settings(RANDOM, max_examples=300)
@given(plans())
def test_a_probe_sees_the_same_events_in_the_same_order(plan: Plan) -> None:
    table, during, after = plan.table(), Seen(), Seen()
    try:
        timeline = core.run(table, [during])
    except Deadlock:
        return
    replay(table, timeline, after)
    assert after.events == during.events


def test_two_rings_that_begin_on_two_dma_engines_at_once_are_seen_engine_by_engine() -> None:
    """Rows 2 and 3 are the transfers; that of the second trigger is on the first DMA engine, whose pick comes first."""
    table = Plan(((Row(moves=(Move(server=1),)),), (Row(moves=(Move(ring=1),)),)), servers=2).table()
    during, after = Seen(), Seen()
    replay(table, core.run(table, [during]), after)
    assert after.events == during.events
    assert [(row, tick) for what, row, tick in after.events if what == "started" and row > 1] == [(3, 1), (2, 1)]


@compiled
def test_auto_takes_the_compiled_engine_from_its_size_on(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []
    original = fast.run
    monkeypatch.setattr(fast, "run", lambda *a: taken.append("compiled") or original(*a))
    program = workloads.load("rmsnorm").build()
    size = simulate(program, values=False).table.size
    monkeypatch.setattr(SIMULATE, "AUTO_FROM", size + 1)
    simulate(program, values=False)
    assert taken == []
    monkeypatch.setattr(SIMULATE, "AUTO_FROM", size)
    simulate(program, values=False)
    assert taken == ["compiled"]


# --- a third oracle --------------------------------------------------------------------------------------------------


def uncontended(plan: Plan) -> Plan:
    """The same where nothing contends: one state, no throttle, every transfer a DMA engine of its own, no set or sub."""

    def plain(r: Row) -> Row:
        least = {n: v if isinstance(v, int) else min(v) for n, v in (("issue", r.issue), ("latency", r.latency), ("load", r.load))}
        ups = tuple(attrs.evolve(u, delay=u.delay if isinstance(u.delay, int) else min(u.delay)) for u in r.updates)
        return attrs.evolve(r, **least, ports=0, updates=tuple(attrs.evolve(u, op=Op.ADD) for u in ups), moves=moves(r.moves))

    def moves(found: tuple[Move, ...]) -> tuple[Move, ...]:
        out = []
        for m in found:
            ups = tuple(
                attrs.evolve(u, op=Op.ADD, delay=u.delay if isinstance(u.delay, int) else min(u.delay)) for u in m.updates
            )  # fmt: skip
            out.append(attrs.evolve(m, load=False, busy_delay=0, busy_stall=0, settle=-1, server=next(servers), updates=ups))
        return tuple(out)

    servers = iter(range(1000))
    streams = tuple(tuple(map(plain, s)) for s in plan.streams)
    never = attrs.evolve(plan.throttle, window=0, limit=0, gated=plan.throttle.full)
    return attrs.evolve(plan, streams=streams, throttle=never, servers=max(1, next(servers)), drain=0)


@settings(RANDOM, max_examples=200)
@given(plans())
def test_where_nothing_contends_every_time_is_that_of_the_longest_path(plan: Plan) -> None:
    table = uncontended(plan).table()
    found = outcome(table, fast.loop)
    if found.blocked:
        return
    start, finish = longest_path(table)
    assert (found.start, found.finish) == (tuple(start.tolist()), tuple(finish.tolist()))


@settings(RANDOM, max_examples=200)
@given(plans())
def test_no_time_is_earlier_than_the_longest_path(plan: Plan) -> None:
    table = plan.table()
    found = outcome(table, fast.loop)
    if found.blocked:
        return
    start, finish = longest_path(table)
    assert (np.array(found.start) >= start).all()
    assert (np.array(found.finish) >= finish).all()


@pytest.mark.parametrize("name", workloads.NAMES)
def test_no_workload_is_quicker_than_its_longest_path(name: str) -> None:
    sizes = {"attention": {"s": 128}}.get(name, {})
    table = table_of(workloads.load(name).build(**sizes))
    timeline = fast.loop(table)
    start, finish = longest_path(table)
    assert (timeline.start >= start).all()
    assert (timeline.finish >= finish).all()
    assert finish.max() > 0.3 * timeline.finish.max()  # and it is no empty bound


# --- mutants ---------------------------------------------------------------------------------------------------------

LUMP_MUTANTS: dict[str, tuple[str | re.Pattern[str], str]] = {
    "arbitration is skipped": ("st.turn[d] = (ring + 1) % rings", "st.turn[d] = ring"),
    "round robin starts over": ("st.turn[d] = (ring + 1) % rings", "st.turn[d] = 0"),
    "a lump is never broken": ("        break_lump(c, st, d, now)\n", "        pass\n"),
    "a lump breaks a packet late at a boundary": ("-((first_end - now) // packet)", "-((first_end - now - 1) // packet)"),
    "a lump of one packet is broken too late": ("before + 1 + gone > c.packets[t]", "before + 1 + gone >= c.packets[t]"),
    "a broken lump still ends": ("st.round[d] += 1\n    st.sent[t] = before", "st.sent[t] = before"),
    "a broken lump forgets its stall": ("packet + (st.extra[t] if before == 0 else 0)", "packet"),
}
MUTANTS: dict[str, tuple[str | re.Pattern[str], str]] = {
    **LUMP_MUTANTS,
    "ties are reversed": ("heap[up, 1] <= priority", "heap[up, 1] >= priority"),
    "ends come in reverse row order": ("END + row * ROW + 1", "END - row * ROW + 1"),
    "a row's updates come in reverse": ("1 + k - first, k)", "15 - k + first, k)"),
    "an update is seen one tick early": ("c.update_delay[k], state],", "c.update_delay[k], state] - (when == AT_START),"),
    "a woken stream does not look again": ("(c.wait_ptr[row],", "(c.wait_ptr[row + (st.wanted[s] > 0)],"),
    "the last wait is dropped": ("c.wait_ptr[row + 1])", "c.wait_ptr[row + 1] - 1)"),
    "DMA latency is lost": ("arrival = now + c.arrival[t]", "arrival = now"),
    "off by one in a ring": ("c.ring[t]\n    if st.ready", "(c.ring[t] + 1) % c.fixed[RINGS]\n    if st.ready"),
    "a ring's transfers overtake": ("arrival = max(arrival, st.latest[at])", "pass"),
    "a ring forgets the transfer behind the first": ("st.behind[st.tail[at]] = t", "pass"),
    "a DMA engine picks before the tick's arrivals": ("BEGIN + c.fixed[STREAMS] + len(st.ready) + d, d)", "BEGIN - 1, d)"),
    "a load behind a delayed one does not wait": ("if st.held[at] > now", "if False"),
    "work under way does not make an engine busy": (" or st.busy_rings[d] > 0)", ")"),
    "a deep queue does not excuse a load": ("c.load[t] and not unstarted and", "c.load[t] and"),
    "recent includes its limit": ("st.last_load[at] < c.fixed[RECENT]", "st.last_load[at] <= c.fixed[RECENT]"),
    "a store counts as a recent load": ("    if c.load[t]:\n        st.last_load", "    if True:\n        st.last_load"),
    "following includes its limit": ("st.followed[s] < c.fixed[FOLLOW_WINDOW]", "st.followed[s] <= c.fixed[FOLLOW_WINDOW]"),
    "results of an ordered stream overtake": ("finish = max(finish, st.visible[s])", "pass"),
    "a load that begins as a product ends is behind it": ("1 if now < st.scalar[BUSY_UNTIL]", "1 if now <= st.scalar[BUSY_UNTIL]"),
    "an edge at a beginning is not passed": ("c.fixed[WINDOW], st.scalar\n", "c.fixed[WINDOW], st.scalar\n    now -= 1\n"),
    "an edge at a product's end is passed": ("<= room:\n            s[UNITS]", "< room or c.fixed[WINDOW] == 0:\n            s[UNITS]"),
    "a wrong window edge": ("t.phase if t.phase > 0", "t.phase if t.phase >= 0"),
    "a change at a load's end counts": ("changes[k, 0] < end", "changes[k, 0] <= end"),
    "a load looks back one tick short": ("while changes[k, 0] > now:", "while changes[k, 0] >= now and k > 0:"),
    "a load keeps its rate over an edge": ("end = now - (-(end - now) * after // before)", "pass"),
    "just enough is not enough": ("s[UNITS] < c.fixed[THRESHOLD]", "s[UNITS] <= c.fixed[THRESHOLD]"),
    "windows keep what streamed before": ("    s[UNITS] = 0\n", ""),
    "quiet windows shift the next edge": ("s[EDGE] += ((now - s[EDGE]) // window + 1) * window", "s[EDGE] = now + window"),
    "a product's last tick rounds down": ("now - (-work // rate)", "now + max(1, work // rate)"),
    "a port is no port": ("return until <= now and not before", "return True"),
    "a port is held for a tick too long": ("* MOST_PORTS + port] = finish", "* MOST_PORTS + port] = finish + 1"),
    "who asked first is forgotten": ("return until <= now and not before", "return until <= now"),
    "who asked last goes first": ("0 <= st.asked[other] < st.asked[s]", "st.asked[other] > st.asked[s]"),
    "a stream does not share with itself": ("if other == s:\n            continue", "if other < 0:\n            continue"),
    "all ports are one": ("if wanted >> port & 1:", "if True:"),
    "an asker blocks every other": ("< st.asked[s] and c.ports[st.at_row[other]] & wanted:", "< st.asked[s]:"),
    "a row that asks looks at its waits again": ("if st.asked[s] < 0:\n        for k", "if True:\n        for k"),
    "a stale look is taken for a row's beginning": ("or (why == LOOK and st.asked[s] < 0)", ""),
    "the bucket refills a tick too much": ("drain * (now - s[LEVEL_AT])", "drain * (now - s[LEVEL_AT] + 1)"),
    "the bucket never drains": ("drain * (now - s[LEVEL_AT])", "0"),
    "every engine has its own bucket": ("s[LEVEL_AT] = now", "s[LEVEL_AT] = now + 10**6"),
    "the bucket rounds down": ("-((c.burst[t] - s[LEVEL]) // drain)", "(s[LEVEL] - c.burst[t]) // drain"),
    "a burst is refused": ("-((c.burst[t] - s[LEVEL]) // drain)", "-(-s[LEVEL] // drain)"),
    "every transfer has a burst": ("-((c.burst[t] - s[LEVEL])", "-((max(c.burst) - s[LEVEL])"),
    "nothing settles": ("if c.settle[t] >= 0 and", "if False and"),
    "everything settles": ("if c.settle[t] >= 0 and", "if"),
    "it settles with the whole bucket": ("st.drained[t] + c.settle[t])", "now - (-st.scalar[LEVEL] // c.fixed[DRAIN]) + c.settle[t])"),
    "a settled packet is free": ("end = max(end, st.drained[t]", "end = max(now + 1, st.drained[t]"),
    "a slot without use does not end a streak": ("if now >= s[IDLE_AT]:", "if now > s[IDLE_AT]:"),
    "a streak never ends": ("if now >= s[IDLE_AT]:", "if s[IDLE_AT] == 0:"),
    "every product is a streak": ("if now >= s[IDLE_AT]:", "if True:"),
    "the limit of a streak is a tick late": ("s[LIMIT_AT] = now + c.fixed[STREAK]", "s[LIMIT_AT] = now + c.fixed[STREAK] + 1"),
    "a product that ends at the limit is gated": ("if work <= room:\n        end", "if work < room:\n        end"),
    "what streamed before the limit streams again": ("begins - (-(work - room) // gated)", "begins - (-work // gated)"),
    "a gated product behind the limit starts at it": ("begins = max(now, s[LIMIT_AT])", "begins = s[LIMIT_AT]"),
    "a streak's limit outlasts it": ("s[EDGE] = s[IDLE_AT] if s[GATED] else FAR", "s[EDGE] = FAR"),
    "an idle array is full at once": ("s[IDLE_AT] = end + c.fixed[IDLE]", "s[IDLE_AT] = end"),
}  # fmt: skip


def run_of(change: tuple[str | re.Pattern[str], str]) -> Callable[..., Any]:
    """A mutant's loop, stopped when it does not end."""
    loop = mutant(fast, "loop", *change)

    def run(table: Table) -> Any:
        calls = itertools.count()

        def patience(done: int, rows: int) -> None:
            if next(calls) > 100:
                raise RuntimeError("does not end")

        return loop(table, patience, 100)

    return run


@pytest.mark.parametrize("name", MUTANTS)
def test_the_simpy_engine_tells_a_mutant_from_the_compiled_engine(name: str) -> None:
    run = run_of(MUTANTS[name])
    tables = [plan.table() for plan in DIRECTED.values()]
    assert any(caught(partial(outcome, t, run), outcome(t)) for t in tables)


@pytest.mark.parametrize("name", LUMP_MUTANTS)
def test_passing_packets_one_by_one_tells_a_mutant_of_lumping(name: str) -> None:
    run = run_of(LUMP_MUTANTS[name])
    assert any(caught(partial(one_engine, m, 0, run), packet_by_packet(m, 0)) for m in BOUNDARY_MOVES)
