"""The rule of time on random small tables: the SimPy engine against plainer ones, and mutants it must not survive."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import simpy
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engines import BOUNDARY_MOVES, caught, mutant, one_engine, outcome, packet_by_packet
from naive_engine import simulate
from nc_sim import core
from nc_sim.table import Rule, Table
from plans import (
    ADD_THEN_SET,
    AT_A_BOUNDARY,
    DIRECTED,
    RANDOM,
    SEEN_FROM_THE_NEXT_TICK,
    SET_THEN_ADD,
    Move,
    Plan,
    Row,
    Up,
    array,
    array_plans,
    one_engine_moves,
    plans,
    product,
)


class ShuffledEnvironment(simpy.Environment):
    """Breaks SimPy's first-come tie order, so tests can show nothing depends on it."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        rng = random.Random(seed)
        self._eid = ((rng.random(), k) for k in itertools.count())  # type: ignore[assignment]


# --- the engine against plainer ones ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DIRECTED)
def test_a_directed_tie_has_the_outcome_of_the_naive_engine(name: str) -> None:
    table = DIRECTED[name].table()
    assert outcome(table) == simulate(table)


def test_a_load_that_a_rising_edge_shortens_leaves_the_next_edge_to_the_product_behind_it() -> None:
    """A gated load of 60 ticks from 17 meets full rate at 20: 57 gated ticks become 12. The product streams 16 units until 40."""
    warm, load = Row(rule=Rule.LOAD, load=1), Row(rule=Rule.LOAD, load=(12, 12, 60, 60))
    plan = array(warm, product(15, issue=16), load, product(30), threshold=10)
    assert outcome(plan.table()).start[3] == 32
    assert outcome(plan.table()).gate == ((0, 0), (20, 1))


@settings(RANDOM, max_examples=1000)
@given(plans())
def test_any_table_has_the_outcome_of_the_naive_engine(plan: Plan) -> None:
    table = plan.table()
    assert outcome(table) == simulate(table)


@settings(RANDOM, max_examples=500)
@given(array_plans())
def test_any_use_of_the_array_has_the_outcome_of_the_naive_engine(plan: Plan) -> None:
    table = plan.table()
    assert outcome(table) == simulate(table)


def test_updates_of_one_tick_apply_in_row_order_and_a_stream_looks_when_all_are_done() -> None:
    assert outcome(SET_THEN_ADD.table()).start == (0, 0, 10)
    assert outcome(ADD_THEN_SET.table()).blocked == ((2, 2, 0, 1, 0),)  # stream, row, semaphore, wanted, reached


def test_an_update_fired_by_a_beginning_is_seen_from_the_next_tick() -> None:
    assert outcome(SEEN_FROM_THE_NEXT_TICK.table()).start == (0, 1)


def test_what_arrives_at_the_end_of_a_packet_is_next_and_a_tick_later_waits_for_another() -> None:
    """Ring 0 sends packets of 10 ticks from tick 1."""
    assert [outcome(AT_A_BOUNDARY[tick].table()).start[4] for tick in (10, 11, 12, 21)] == [11, 11, 21, 21]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", DIRECTED)
def test_a_directed_tie_does_not_depend_on_the_order_of_simultaneous_events(name: str, seed: int) -> None:
    table = DIRECTED[name].table()
    assert outcome(table, env=ShuffledEnvironment(seed)) == outcome(table)


@settings(RANDOM, max_examples=300)
@given(plans(), st.integers(0, 1 << 16))
def test_no_outcome_depends_on_the_order_of_simultaneous_events(plan: Plan, seed: int) -> None:
    table = plan.table()
    assert outcome(table, env=ShuffledEnvironment(seed)) == outcome(table)


@settings(RANDOM, max_examples=600)
@given(one_engine_moves(), st.sampled_from((0, 1, 7, 50)))
@example([Move(packets=3), Move(ring=1, arrival=21, packets=2)], 0)
@example([Move(packets=3), Move(ring=1, arrival=31, packets=2)], 0)
@example([Move(ring=2), Move(ring=0), Move(ring=1)], 0)
@example([Move(load=True), Move(arrival=12, load=True, busy_delay=5), Move(arrival=14, load=True, busy_delay=5)], 1)
def test_packets_passed_in_one_event_end_as_if_passed_one_by_one(moves: list[Move], recent: int) -> None:
    assert one_engine(moves, recent) == packet_by_packet(moves, recent)


# --- what probes see -------------------------------------------------------------------------------------------------


class Diary:
    """A probe that writes down every call."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, int]] = []  # tick, 0 finished | 1 started, row

    def started(self, row: int, tick: int) -> None:
        self.entries.append((tick, 1, row))

    def finished(self, row: int, tick: int) -> None:
        self.entries.append((tick, 0, row))


def diary(table: Table, run: Callable[..., Any] = core.run, **options: Any) -> tuple[Any, list[tuple[int, int, int]]]:
    probe = Diary()
    return run(table, [probe], **options), probe.entries


def in_order(entries: Sequence[tuple[int, int, int]], rows: int) -> bool:
    """By tick, ends before beginnings, each in row order; which DMA engine picks first is the engines' own order."""
    return [e for e in entries if e[1] == 0 or e[2] < rows] == sorted(e for e in entries if e[1] == 0 or e[2] < rows)


TWO_STREAMS_WAKE = Plan(((Row(latency=9, updates=(Up(1), Up(0))),), (Row(waits=((0, 1),)),), (Row(waits=((1, 1),)),)))


@settings(RANDOM, max_examples=200)
@given(plans(), st.integers(0, 1 << 16))
@example(TWO_STREAMS_WAKE, 0)
def test_a_probe_sees_every_row_once_in_the_order_of_the_rule_of_time_and_changes_nothing(plan: Plan, seed: int) -> None:
    table = plan.table()
    if simulate(table).blocked:
        return
    timeline, entries = diary(table, env=ShuffledEnvironment(seed))
    assert timeline == core.run(table)
    expected = [(t, 1, r) for r, t in enumerate(timeline.start.tolist())] + [(t, 0, r) for r, t in enumerate(timeline.finish.tolist())]
    assert sorted(entries) == sorted(expected)
    assert in_order(entries, table.rows)


# --- mutants ---------------------------------------------------------------------------------------------------------


LUMP_MUTANTS: dict[str, tuple[str | re.Pattern[str], str]] = {
    "round robin is first come": ("self.turn = (ring + 1) % rings", "self.turn = ring"),
    "round robin starts over": ("self.turn = (ring + 1) % rings", "self.turn = 0"),
    "a lump is never broken": ("            self.break_lump(now)\n", "            pass\n"),
    "a lump breaks a packet late at a boundary": ("-((first_end - now) // packet)", "-((first_end - now - 1) // packet)"),
    "a lump breaks a packet early": ("-((first_end - now) // packet)", "-((first_end - now) // packet) - 1"),
    "a lump of one packet is broken too late": ("before + 1 + gone > packets", "before + 1 + gone >= packets"),
    "a broken lump still ends": ("self.round += 1\n        self.sent[t] = before", "self.sent[t] = before"),
    "a broken lump forgets its stall": ("first_end = began + packet + (self.extra[t] if before == 0 else 0)", "first_end = began + packet"),
}
MUTANTS: dict[str, tuple[str | re.Pattern[str], str]] = {
    **LUMP_MUTANTS,
    "ends come in reverse row order": ("ROW = 16  #", "ROW = -16  #"),
    "a row's updates come in reverse": ("+ 1 + k - self.update_ptr[row], self.update", "+ 15 - k + self.update_ptr[row], self.update"),
    "updates of beginnings are seen in the same tick": (
        "base + update[4][state] - now, END",
        "base + update[4][state] - now - (when == AT_START), END",
    ),
    "a stream starts as soon as a wait is met": ("self.env.schedule(wake, BEGIN + s)", "self.env.schedule(wake, 0)"),
    "a woken stream does not look again": (
        "while (lacking := self.lacking(row)) is not None",
        "if (lacking := self.lacking(row)) is not None",
    ),
    "the last wait is dropped": ("self.wait_ptr[row + 1])", "self.wait_ptr[row + 1] - 1)"),
    "DMA latency is lost": ("arrival = self.now + delay", "arrival = self.now"),
    "a ring's transfers overtake": ("max(arrival, self.latest.get((server, ring), 0))", "arrival"),
    "a DMA engine picks before the tick's arrivals": (
        "self.server_priority = self.first_transfer_priority + total",
        "self.server_priority = END",
    ),
    "a load behind a delayed one does not wait": ("if held > now", "if False"),
    "work under way does not make an engine busy": ("if recent or any(self.queue)", "if recent"),
    "a deep queue does not excuse a load": (" and not any(self.sent[other] == 0 for other in self.queue[ring])", ""),
    "recent includes its limit": ("-(1 << 62)) < table.recent", "-(1 << 62)) <= table.recent"),
    "a store counts as a recent load": (re.compile(r"if \S+\.load\[t\]:(\s+self\.last_load)"), r"if True:\1"),
    "following includes its limit": ("now - followed < table.follow_window", "now - followed <= table.follow_window"),
    "results of an ordered stream overtake": ("finish = visible = max(finish, visible)", "visible = max(finish, visible)"),
    "a load that begins as a product ends is behind it": ("int(now < self.gate.busy_until)", "int(now <= self.gate.busy_until)"),
    "an edge at a beginning is not passed": (
        "None:\n        if self.edge <= now:\n",
        "None:\n        now -= 1\n        if self.edge <= now:\n",
    ),
    "an edge at a product's end is passed": ("if work <= room:\n                self.units", "if work < room:\n                self.units"),
    "an edge at a load's end is passed": ("if now < c[0] < end)", "if now < c[0] <= end)"),
    "a load looks back one tick short": ("if tick <= now)", "if tick < now)"),
    "a load keeps its rate over an edge": ("end, level = now - (-(end - now) * after // before), new", "level = new"),
    "a product keeps its rate over an edge": ("rate = self.t.gated if self.is_gated", "rate = self.t.gated if self.changes[0][1]"),
    "just enough is not enough": ("self.units < self.t.threshold", "self.units <= self.t.threshold"),
    "windows keep what streamed before": ("self.units, self.edge = 0, self.edge", "self.edge = self.edge"),
    "quiet windows shift the next edge": (
        "self.edge += ((now - self.edge) // self.t.window + 1) * self.t.window",
        "self.edge = now + self.t.window",
    ),
    "a port is no port": ("return until <= now and not any", "return True or not any"),
    "a port is held for a tick too long": ("self.held[port, s] = finish", "self.held[port, s] = finish + 1"),
    "who asks first does not begin first": ("return until <= now and not any(", "return until <= now or any("),
    "a stream does not share with itself": ("if other != s and wanted >> port & 1", "if wanted >> port & 1"),
    "all ports are one": ("and wanted >> port & 1)", ")"),
    "an asker blocks every other": ("any(self.asking[other] & wanted for", "any(self.asking[other] for"),
    "who asked first is forgotten": ("not any(self.asking[other] & wanted for other in before)", "True"),
    "the bucket refills a tick too much": ("self.drain * (now - self.at)", "self.drain * (now - self.at + 1)"),
    "the bucket never drains": ("self.drain * (now - self.at)", "0"),
    "every engine has its own bucket": ("+ self.units[t]\n        self.at = now", "+ self.units[t]\n        self.at = now + 10**6"),
    "the bucket rounds down": ("-((self.burst[t] - self.level) // self.drain)", "(self.level - self.burst[t]) // self.drain"),
    "a burst is refused": ("max(length, -((self.burst[t] - self.level) // self.drain))", "max(length, -(-self.level // self.drain))"),
    "every transfer has a burst": ("-((self.burst[t] - self.level)", "-((max(self.burst) - self.level)"),
    "nothing settles": ("if self.settle[t] < 0 or", "if True or"),
    "everything settles": ("if self.settle[t] < 0 or", "if"),
    "it settles with the whole bucket": ("self.drained[t] + self.settle[t] - now", "-(-self.level // self.drain) + self.settle[t]"),
    "a settled packet is free": ("return max(length, self.drained[t]", "return max(1, self.drained[t]"),
    "a slot without use does not end a streak": ("if now >= self.idle_at:", "if now > self.idle_at:"),
    "a streak never ends": ("if now >= self.idle_at:", "if self.idle_at == 0:"),
    "every product is a streak": ("if now >= self.idle_at:", "if True:"),
    "the limit of a streak is a tick late": ("self.limit_at = now + self.t.limit", "self.limit_at = now + self.t.limit + 1"),
    "a product that ends at the limit is gated": ("if work <= room:\n            self.busy", "if work < room:\n            self.busy"),
    "what streamed before the limit streams again": ("begins - (-(work - room) // self.t.gated)", "begins - (-work // self.t.gated)"),
    "a gated product behind the limit starts at it": ("begins = max(now, self.limit_at)", "begins = self.limit_at"),
    "a streak's limit outlasts it": ("self.edge = self.idle_at if self.is_gated else None", "self.edge = None"),
    "an idle array is full at once": ("self.idle_at = self.busy_until + self.t.idle", "self.idle_at = self.busy_until"),
    "a product's last tick rounds down": ("self.busy_until = now - (-work // rate)", "self.busy_until = now + max(1, work // rate)"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_naive_engine_tells_a_mutant_from_the_engine(name: str) -> None:
    run = mutant(core, "run", *MUTANTS[name])
    tables = [plan.table() for plan in DIRECTED.values()]
    assert any(caught(partial(outcome, t, run), simulate(t)) for t in tables)


@pytest.mark.parametrize("name", LUMP_MUTANTS)
def test_passing_packets_one_by_one_tells_a_mutant_of_lumping(name: str) -> None:
    run = mutant(core, "run", *LUMP_MUTANTS[name])
    assert any(caught(partial(one_engine, m, 0, run), packet_by_packet(m, 0)) for m in BOUNDARY_MOVES)


@pytest.mark.parametrize("ties", ["min(priority, END)", "min(priority, BEGIN)"])
def test_shuffling_tells_an_engine_that_leaves_ties_to_the_order_of_scheduling(ties: str) -> None:
    run = mutant(core, "run", "self.env.schedule(event, priority, delay)", f"self.env.schedule(event, {ties}, delay)")
    tables = [plan.table() for plan in DIRECTED.values()]
    assert any(outcome(t, run, env=ShuffledEnvironment(seed)) != simulate(t) for t in tables for seed in range(3))


def test_the_diary_tells_an_engine_that_wakes_streams_in_the_order_of_updates() -> None:
    table = TWO_STREAMS_WAKE.table()
    assert in_order(diary(table)[1], table.rows)
    assert not in_order(
        diary(table, mutant(core, "run", "self.env.schedule(wake, BEGIN + s)", "self.env.schedule(wake, BEGIN)"))[1], table.rows
    )
