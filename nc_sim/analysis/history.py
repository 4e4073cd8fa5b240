"""What a timeline leaves unsaid and its table decides: states of rows, ends of streaming, updates, and what met each wait.

All of it follows from table and timeline, whichever engine made it. Times are ticks. Columns are those of the table.
"""

from __future__ import annotations

import attrs
import numpy as np

from ..isa.errors import InternalError, ProgramError
from ..table import STATES, Ints, Op, Rule, Table, When
from ..timeline import Timeline

FARTHEST = 2.0**62  # sums of semaphore updates stay below
NONE = -1


@attrs.frozen(eq=False)
class History:
    """Facts of a finished run. Rows are numbered as in the table, transfers behind the rows of streams."""

    stream: Ints  # of each row of a stream
    trigger: Ints  # of each transfer: the row that set it off
    state: Ints  # of each row of a stream: the cost state it took
    issue: Ints  # of each row of a stream: ticks until its stream goes on
    streamed: Ints  # of each row, transfers included: the array is done with it; else its start
    own: Ints  # of each row: its finish, had it not to wait for the rows before it to commit
    update_row: Ints  # of each update
    update_base: Ints  # the moment its delay counts from
    update_time: Ints
    met_by: Ints  # of each wait: the update that brought the semaphore there; NONE: met from the start, or not known
    binding: Ints  # of each row of a stream: the wait that was met last, where the row had to wait; else NONE
    held_by: Ints  # of each row of a stream: the row whose end gave it its ports, where it had to wait for them; else NONE
    falls: Ints  # of each semaphore: 1 if it is subtracted from or set, so that a wait may be met more than once


def history(table: Table, timeline: Timeline) -> History:
    """The facts of a run. InternalError if table and timeline do not belong together."""
    n = table.rows
    stream = np.repeat(np.arange(len(table.stream_names)), np.diff(table.stream_ptr))
    state, streamed = _states(table, timeline, stream)
    own = timeline.finish.copy()
    own[:n] = streamed[:n] + table.cost_latency[table.cost, state]
    row = np.repeat(np.arange(n + table.transfers), np.diff(table.update_ptr))
    when = table.update_when
    base = np.where(when == When.START, timeline.start[row], np.where(when == When.STREAMED, streamed[row], timeline.finish[row]))
    states = np.concatenate([state, np.zeros(table.transfers, np.int64)])
    time = base + table.delays.reshape(-1, STATES)[table.update_delay, states[row]]
    met_by, falls = _met(table, timeline, time)
    binding = _binding(table, timeline, time, met_by)
    return History(
        stream=stream,
        trigger=np.repeat(np.arange(n), np.diff(table.fan_ptr)),
        state=state,
        issue=table.cost_issue[table.cost, state] if n else np.zeros(0, np.int64),
        streamed=streamed,
        own=own,
        update_row=row,
        update_base=base,
        update_time=time,
        met_by=met_by,
        binding=binding,
        held_by=_held(table, timeline, stream, binding),
        falls=falls,
    )


# --- states ------------------------------------------------------------------------------------------------------


def _states(table: Table, timeline: Timeline, stream: Ints) -> tuple[Ints, Ints]:
    """The state of each row of a stream, and when the array is done with each row."""
    n = table.rows
    state, streamed = np.zeros(n, np.int64), timeline.start.copy()
    follow = np.flatnonzero(table.rule == Rule.FOLLOW)
    if len(follow) > 1:
        before, this = follow[:-1], follow[1:]
        near = timeline.start[this] - timeline.finish[before] < table.follow_window
        state[this] = near & (stream[this] == stream[before])
    edges = np.array([t for t, _ in timeline.gate], np.int64)
    gated = np.array([1 - full for _, full in timeline.gate], np.int64)
    products = np.flatnonzero(table.rule == Rule.STREAM)
    if len(products):
        rate = np.where(gated == 1, table.throttle.gated, table.throttle.full)
        done = np.concatenate([[0], np.cumsum(np.diff(edges) * rate[:-1])])  # units that fit before each edge
        start = timeline.start[products]
        begun = np.searchsorted(edges, start, side="right") - 1
        target = done[begun] + (start - edges[begun]) * rate[begun] + table.work[products]
        last = np.searchsorted(done, target) - 1
        streamed[products] = edges[last] - (-(target - done[last]) // rate[last])
        state[products] = 2 * gated[last]
    loads = np.flatnonzero(table.rule == Rule.LOAD)
    if len(loads):
        start = timeline.start[loads]
        earlier = np.searchsorted(products, loads) - 1  # the product before each load
        same = (earlier >= 0) & (stream[products[np.maximum(earlier, 0)]] == stream[loads]) if len(products) else earlier >= 0
        busy_until = np.where(same, streamed[products[np.maximum(earlier, 0)]], 0) if len(products) else np.zeros(len(loads), np.int64)
        behind = (start < busy_until).astype(np.int64)
        full, slow = table.cost_load[table.cost[loads], behind], table.cost_load[table.cost[loads], 2 + behind]
        at = np.searchsorted(edges, start, side="right") - 1
        level = gated[at]
        end = start + np.where(level == 1, slow, full)
        following = np.append(edges, np.iinfo(np.int64).max)[at + 1]
        for k in np.flatnonzero(following < end).tolist():  # the few that meet an edge go on in proportion
            end[k], level[k] = _across(
                edges.tolist(), gated.tolist(), int(at[k]) + 1, int(end[k]), int(level[k]), int(full[k]), int(slow[k])
            )
        streamed[loads], state[loads] = end, 2 * level + behind
    return state, streamed


def _across(edges: list[int], gated: list[int], k: int, end: int, level: int, full: int, slow: int) -> tuple[int, int]:
    """The end of a weight load that meets edge `k` and maybe more, and the level then: as the engine's gate does it."""
    while k < len(edges) and edges[k] < end:
        before, after = (slow, full) if level else (full, slow)
        end, level = edges[k] - (-(end - edges[k]) * after // before), gated[k]
        k += 1
    return end, level


# --- waits -------------------------------------------------------------------------------------------------------


def _met(table: Table, timeline: Timeline, time: Ints) -> tuple[Ints, Ints]:
    """The update that met each wait, and which semaphores do not only count up.

    A semaphore that is subtracted from or set tells only of waits that a row stood at: others may have been met often.
    """
    semaphore, amount = table.update_semaphore, table.update_value
    if float(np.abs(amount, dtype=np.float64).sum()) >= FARTHEST:
        raise ProgramError("analysis", "semaphore values beyond 62 bits", "values that can be summed")
    order = np.lexsort((time, semaphore))  # stable: within a tick in order of rows and updates, which is the engine's
    falls = np.zeros(table.semaphores, np.bool_)
    falls[semaphore[(table.update_op != Op.ADD) | (amount < 0)]] = True
    total = np.cumsum(amount[order])
    first = np.searchsorted(semaphore[order], np.arange(table.semaphores))
    before = np.append(0, total)[first]
    value = total - before[semaphore[order]]
    # every wait among the values of its semaphore; the next update behind it is the first that reaches it
    count = len(order)
    where = np.lexsort(
        (
            np.concatenate([np.ones(count, np.int64), np.zeros(len(table.wait_value), np.int64)]),
            np.concatenate([value, table.wait_value]),
            np.concatenate([semaphore[order], table.wait_semaphore]),
        )
    )
    places = np.where(where < count, np.arange(len(where)), len(where))
    places = np.minimum.accumulate(places[::-1])[::-1]
    following = np.append(where, len(where))[places]
    met = np.full(len(table.wait_value), NONE, np.int64)
    is_wait = where >= count
    found = following[is_wait]
    wait = where[is_wait] - count
    reached = found < count  # but for the number that stands for no update
    met[wait[reached]] = order[found[reached]]
    ok = (met >= 0) & (table.wait_value > 0)
    ok[ok] = semaphore[met[ok]] == table.wait_semaphore[ok]
    met[~ok] = NONE
    missing = ~ok & (table.wait_value > 0) & ~falls[table.wait_semaphore]
    if missing.any():
        raise InternalError("analysis", f"wait {int(np.flatnonzero(missing)[0])} that no update meets", "the timeline of this table")
    met[falls[table.wait_semaphore]] = NONE
    if falls.any():
        _met_where_it_falls(table, timeline, time, order, falls, met)
    return met, falls.astype(np.int64)


def _met_where_it_falls(table: Table, timeline: Timeline, time: Ints, order: Ints, falls: np.ndarray, met: Ints) -> None:
    """For semaphores that fall too: the update that let a row begin, where the row had to wait."""
    after: dict[tuple[int, int], list[tuple[int, int, int]]] = {}  # (semaphore, tick) -> (value before, after, update)
    value = [0] * table.semaphores
    for k in order[falls[table.update_semaphore[order]]].tolist():
        s, op, amount = int(table.update_semaphore[k]), table.update_op[k], int(table.update_value[k])
        old = value[s]
        value[s] = old + amount if op == Op.ADD else old - amount if op == Op.SUB else amount
        after.setdefault((s, int(time[k])), []).append((old, value[s], k))
    waiting = timeline.start[: table.rows] > timeline.ready[: table.rows]
    rows = np.repeat(np.arange(table.rows), np.diff(table.wait_ptr))
    for w in np.flatnonzero(falls[table.wait_semaphore] & waiting[rows]).tolist():
        wanted = int(table.wait_value[w])
        for old, new, k in after.get((int(table.wait_semaphore[w]), int(timeline.start[rows[w]])), []):
            if old < wanted <= new:
                met[w] = k


def _binding(table: Table, timeline: Timeline, time: Ints, met_by: Ints) -> Ints:
    """The first wait of each row that was met in the tick in which the row began; NONE where it did not have to wait."""
    n = table.rows
    out = np.full(n, NONE, np.int64)
    waited = timeline.start[:n] > timeline.ready[:n]
    rows = np.repeat(np.arange(n), np.diff(table.wait_ptr))
    at = np.full(len(met_by), NONE, np.int64)
    at[met_by >= 0] = time[met_by[met_by >= 0]]
    last = np.flatnonzero(waited[rows] & (at == timeline.start[rows]))[::-1]
    out[rows[last]] = last  # the first of a row is written last
    return out


def _held(table: Table, timeline: Timeline, stream: Ints, binding: Ints) -> Ints:
    """Of rows that waited for no semaphore last: a row of another stream that shares a port and ended in the tick in which they began."""
    n = table.rows
    out = np.full(n, NONE, np.int64)
    ends: dict[int, list[int]] = {}
    for k in np.flatnonzero(table.ports).tolist():
        ends.setdefault(int(timeline.finish[k]), []).append(k)
    for row in np.flatnonzero((timeline.start[:n] > timeline.ready[:n]) & (binding < 0)).tolist():
        mine = int(table.ports[row])
        out[row] = next((k for k in ends.get(int(timeline.start[row]), []) if table.ports[k] & mine and stream[k] != stream[row]), NONE)
        if out[row] == NONE:
            raise InternalError("analysis", f"row {row} waited for nothing that the table has", "the timeline of this table")
    return out
