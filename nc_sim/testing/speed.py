"""More speed is never slower, but for the anomalies of docs/limits.md."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from ..isa.errors import ProgramError
from ..result import Result
from ..schema import SCHEMA
from ..simulate import simulate
from ..table import Ints, Rule, Table

ROUNDING_NS = 1e-6
HIGHER = (
    "_mhz",
    "bytes_per_ns",
    "queue_depth",
    "gate.ratio",
    "gate.full_cycles",
    "_burst_bytes",
)  # ends of names of numbers that are faster when higher
LOWER = ("_ns", "_kib", "_ratio", "cycles_per_element", "cycles_per_row", "min_interval_cycles", "activity_throttle", "gate.threshold")
FASTEST = {"tensor.gate.kind": "none"}
MAY_GROW = ("array streamed", "store ")  # hidden semaphores whose delay fills what a shorter time leaves of an interval


def check_not_slower(result: Result, what_if: Mapping[str, Any]) -> None:
    """The result's program is no slower with the overrides, but for the anomalies.

    ProgramError for an override that is not known to be a higher clock, bandwidth or depth, or a shorter time. What the
    schedule's anomalies may cost is `anomalies_ns`; without any of them the body must not grow at all.
    """
    for key, value in what_if.items():
        require_faster(key, result.chip.numbers[key].value, SCHEMA[key].convert(value, f"what-if {key}"))
    after = simulate(
        result.program, result.chip, values=False, what_if=what_if, gate_phase_ns=result.gate_phase_ns, races="ignore",
    )  # fmt: skip
    slower, allowed = after.duration_ns - result.duration_ns, anomalies_ns(result, after)
    assert slower <= allowed + ROUNDING_NS, (
        f"with {dict(what_if)} the body is {after.duration_ns:.1f} ns, {slower:.1f} ns longer; anomalies explain {allowed:.1f} ns"
    )


def require_faster(key: str, before: Any, after: Any) -> None:
    """Raise ProgramError unless the number's new value is known to be no slower."""
    if key in FASTEST:
        known = after in (before, FASTEST[key])
    elif key.startswith("dma.core_") and key.endswith("bytes_per_ns"):
        known = after == 0 or 0 < before <= after  # 0 is no limit
    elif key.endswith(HIGHER):
        known = after >= before
    elif key.endswith(LOWER):
        known = after <= before
    else:
        known = False
    if not known:
        raise ProgramError(f"what-if {key}", f"{after} instead of {before}", "a value that is known to be faster")


def anomalies_ns(before: Result, after: Result) -> float:
    """What anomalies may add to the body of the faster of two runs of one program, in ns: 0 where none is possible.

    A run is no longer than its longest path with every state at its worst. So what may be added is the difference between
    the worst and the best state of each row, what other rings put between the packets of a transfer, the stalls and
    returns of loads that meet a busy engine, the rest of an interval that a shorter time leaves (a store's wait for its
    ring, the least time between products), and a tick for each time that is rounded anew.

    AssertionError where a single time of the faster run is longer for no such reason.
    """
    table = after.table
    ticks = _worst_less_best(table) + _contention(table)
    return float(after.chip.ns(ticks)) + float(_longer_ns(before.table, table))


def _worst_less_best(table: Table) -> int:
    cost, rule = table.cost, table.rule
    spread = np.maximum(*((c.max(axis=1) - c.min(axis=1)) for c in (table.cost_issue, table.cost_latency)))[cost]
    load = (table.cost_load.max(axis=1) - table.cost_load.min(axis=1))[cost] * (rule == Rule.LOAD)
    total = int((spread * (rule != Rule.ALWAYS)).sum() + load.sum())
    total += int((table.delays.max(axis=1) - table.delays.min(axis=1))[table.update_delay].sum())
    if table.throttle.changes:
        work = table.work[rule == Rule.STREAM]
        total += int((-(-work // max(1, table.throttle.gated)) - work // table.throttle.full).sum())
    return total


def _contention(table: Table) -> int:
    """What transfers may lose to others on their DMA engine: the stalls of loads, and all work of engines with several rings."""
    stalls = (table.busy_stall + table.busy_delay + 1) * (table.load > 0)
    loads: dict[int, int] = {}  # the shares of one load stall beside each other
    for step, stall in zip(table.step[table.rows :].tolist(), stalls.tolist(), strict=True):
        loads[step] = max(loads.get(step, 0), stall)
    worst = sorted(loads.values())
    total = sum(worst) - (min(worst) if len(set(table.step[table.rows :].tolist())) == 1 else 0)
    for server in range(table.servers):
        mine = table.server == server
        if len(set(table.ring[mine].tolist())) > 1:
            total += int((table.packets * table.packet + table.first + table.busy_stall + table.last)[mine].sum())
    if table.drain:  # engines take turns in another order
        total += int((table.packets * table.units).sum()) // table.drain + int(table.packets.sum())
    return total


def _longer_ns(before: Table, after: Table) -> Fraction:
    """By how much single times of the faster run are longer, all of them together."""
    total = Fraction(0)
    tick = 1 / before.ticks_per_ns + 1 / after.ticks_per_ns  # what two roundings of one time may differ by
    for (what, old, roundings), (_, new, _) in zip(_times(before), _times(after), strict=True):
        if len(old) != len(new):
            raise ProgramError("what-if", f"{len(new)} {what}s instead of {len(old)}", "overrides that leave the table's rows alone")
        for k, (x, y, n) in enumerate(zip(old.tolist(), new.tolist(), roundings.tolist(), strict=True)):
            grown = Fraction(y) / after.ticks_per_ns - Fraction(x) / before.ticks_per_ns
            filling = what == "delay" and after.semaphore_names[after.update_semaphore[k]].startswith(MAY_GROW)
            assert grown <= n * tick or filling, f"{what} {k} of the table is {float(grown):.2f} ns longer in the run that should be faster"
            total += max(Fraction(0), grown)
    return total


def _times(table: Table) -> list[tuple[str, Ints, Ints]]:
    """Every time of a table that a path may hold: what it is, ticks in the order of its rows or transfers, roundings in each."""

    def times(what: str, ticks: Ints, roundings: Ints | None = None) -> tuple[str, Ints, Ints]:
        return what, ticks, np.ones_like(ticks) if roundings is None else roundings

    until_done = table.cost_latency + table.cost_load  # a weight load's latency is what a trace shows beyond it
    return [
        times("release", table.stream_start),
        times("issue interval of row", table.cost_issue.min(axis=1)[table.cost]),
        times("latency of row", until_done.min(axis=1)[table.cost], np.full(table.rows, 2, np.int64)),
        times("work of row", -(-table.work // table.throttle.full)),
        times("delay", table.delays[table.update_delay].min(axis=1)),
        times("arrival of transfer", table.arrival),
        times("work of transfer", table.packets * table.packet + table.first + table.last, table.packets + 2),
    ]
