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
HIGHER = ("_mhz", "bytes_per_ns", "queue_depth", "gate.ratio")  # ends of names of numbers that are faster when higher
LOWER = ("_ns", "_kib", "_ratio", "cycles_per_element", "cycles_per_row", "min_interval_cycles", "activity_throttle", "gate.threshold")
FASTEST = {"tensor.gate.kind": "none", "dma.store_ring_limit": 0}


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
    returns of loads that meet a busy engine, and whatever is longer in the faster run: a rounded time, or a store's
    wait for its ring that a shorter trigger moves behind.
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
    if table.throttle.window:
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
    return total


def _longer_ns(before: Table, after: Table) -> Fraction:
    """By how much single times of the faster run are longer, all of them together."""
    total = Fraction(0)
    for a, b in zip(_times(before), _times(after), strict=True):
        if len(a) != len(b):
            raise ProgramError("what-if", f"{len(b)} rows or transfers instead of {len(a)}", "overrides that leave the table's rows alone")
        grown = [Fraction(y) / after.ticks_per_ns - Fraction(x) / before.ticks_per_ns for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        total += sum((g for g in grown if g > 0), Fraction(0))
    return total


def _times(table: Table) -> list[Ints]:
    """Every time of a table that a path may hold, in the order of its rows and transfers; work as ticks at full rate."""
    own = table.update_delay
    return [
        table.stream_start,
        table.cost_issue.min(axis=1)[table.cost],
        table.cost_latency.min(axis=1)[table.cost],
        table.cost_load.min(axis=1)[table.cost],
        -(-table.work // table.throttle.full),
        table.delays.min(axis=1)[own] if len(own) else own,
        table.arrival,
        table.packets * table.packet + table.first + table.last,
    ]
