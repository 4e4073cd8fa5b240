"""Slack: how much later an instruction could come without moving the end of the body.

The graph of max and plus backwards: what starts when nothing contends and every row keeps its length. Each wait hangs on
every update that its semaphore had counted by then, so a later update that could stand in is not seen: where semaphores
count in one order the slack is exact, else it is a lower bound. Reasons why it may be too large are told beside it.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from ..notebook import Shown
from ..progress import Tell, told
from ..result import Result, body_ticks
from ..table import Ints, Rule, Table, When
from ..timeline import Timeline
from .history import History, history

NEVER = np.iinfo(np.int64).max // 4
SHARED = "DMA engines are shared, and who comes later meets others"
BUCKET = "all DMA engines share a limit, and who comes later meets others"
PORTS = "engines exclude each other from a memory, and who asks later may wait for others"
GATED = "the array's clock gate decides by when products stream"
FOLLOWS = "a DMA trigger takes longer right behind another"
FALLS = "semaphores are subtracted from or set: only the observed order counts"
COUNTS = "semaphores count updates of several queues, which could stand in for one another"


@attrs.frozen(eq=False)
class Slack(Shown):
    """Of each instruction in program order."""

    ticks: Ints
    ns: Any  # the same in ns
    exact: bool  # so much later, and not a tick more, and the end stays
    bounds: tuple[str, ...]  # why not: these make it an estimate


def slack(result: Result, facts: History | None = None, progress: Tell | None = None) -> Slack:
    """How much later each instruction could start, and so finish, without moving the end of the body.

    Of an instruction with several rows, dispatch and transfers among them, the tightest counts. `progress` is told of rows and
    updates done.
    """
    table, timeline = result.table, result.timeline
    f = facts or history(table, timeline)
    latest = latest_starts(table, timeline, f, progress)
    spare = np.full(len(table.finish_row), NEVER)
    np.minimum.at(spare, table.step, latest - timeline.start)  # the tightest of its rows
    reasons = tuple(_reasons(table, timeline, f))
    return Slack(spare, spare / float(table.ticks_per_ns), not reasons, reasons)


def _reasons(table: Table, timeline: Timeline, f: History) -> list[str]:
    out = []
    served = table.server >= 0
    if served.any() and len(np.unique(table.step[table.rows :][served])) > 1:
        out.append(SHARED)
    if table.drain and served.any():
        out.append(BUCKET)
    if table.ports.any():
        out.append(PORTS)
    if len(timeline.gate) > 1 or (len(timeline.gate) and not timeline.gate[0][1] and (table.rule == Rule.STREAM).any()):
        out.append(GATED)
    follow = table.cost[table.rule == Rule.FOLLOW]
    if len(follow) > 1 and (table.cost_issue[follow, 0] != table.cost_issue[follow, 1]).any():
        out.append(FOLLOWS)
    if f.falls.any():
        out.append(FALLS)
    queue = np.append(f.stream, len(table.stream_names) + table.ring)[f.update_row]
    pairs = np.unique(np.stack([table.update_semaphore, queue]), axis=1)[0]
    if (np.bincount(pairs, minlength=1) > 1).any():
        out.append(COUNTS)
    return out


def latest_starts(table: Table, timeline: Timeline, f: History, progress: Tell | None = None) -> Ints:
    """The latest start of each row that leaves the end where it is, ticks; NEVER where nothing at all hangs on it."""
    n, total = table.rows, body_ticks(table, timeline)
    # an update, in the order in which its semaphore saw it, allows what the next one allows: waits hang on a count
    order = np.lexsort((f.update_time, table.update_semaphore))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    semaphore = table.update_semaphore[order]
    same = np.append(np.diff(semaphore) == 0, False)[: len(order)] & (f.falls[semaphore] == 0)
    ends = np.full(n, NEVER)
    ends[table.finish_row] = total
    after = _next_in_ring(table)
    start, own, ready = (c.tolist() for c in (timeline.start, f.own, timeline.ready))
    streamed, issue, ends_at = f.streamed.tolist(), f.issue.tolist(), ends.tolist()
    last = np.zeros(n, np.bool_)
    last[table.stream_ptr[1:][np.diff(table.stream_ptr) > 0] - 1] = True
    is_last, commits = last.tolist(), _next_to_commit(table, f).tolist()
    wait_ptr, update_ptr, fan_ptr = table.wait_ptr.tolist(), table.update_ptr.tolist(), table.fan_ptr.tolist()
    met = [int(place[u]) if u >= 0 else -1 for u in f.met_by.tolist()]
    places, delay, when = place.tolist(), (f.update_time - f.update_base).tolist(), table.update_when.tolist()
    follows, allowed = same.tolist(), [NEVER] * len(order)  # of each update, by its place
    latest, latest_finish, latest_ready = [NEVER] * (n + table.transfers), [NEVER] * (n + table.transfers), [NEVER] * table.transfers
    arrival = table.arrival.tolist()
    at_start, at_streamed = int(When.START), int(When.STREAMED)
    # rows by their start and updates by their time, backwards: everything that hangs on one comes before it here
    moments = np.concatenate([timeline.start, f.update_time[order]])
    kinds = np.concatenate([np.ones(len(start), np.int64), np.zeros(len(order), np.int64)])  # in a tick updates precede rows
    for item in told(np.lexsort((np.arange(len(moments)), kinds, moments))[::-1].tolist(), progress):
        if item >= len(start):
            p = item - len(start)
            if follows[p] and allowed[p + 1] < allowed[p]:
                allowed[p] = allowed[p + 1]
            continue
        end, done, begin = NEVER, NEVER, NEVER
        for u in range(update_ptr[item], update_ptr[item + 1]):
            moment = allowed[places[u]] - delay[u]
            if when[u] == at_start:
                begin = min(begin, moment)
            elif when[u] == at_streamed:
                done = min(done, moment)
            else:
                end = min(end, moment)
        if item < n:
            end = min(end, ends_at[item])
            if commits[item] >= 0:
                end = min(end, latest_finish[commits[item]])
            latest_finish[item] = end
            begin = min(begin, end - (own[item] - start[item]), done - (streamed[item] - start[item]))
            if not is_last[item]:
                begin = min(begin, latest[item + 1] - issue[item])
            for t in range(fan_ptr[item], fan_ptr[item + 1]):
                begin = min(begin, latest_ready[t] - arrival[t])
            latest[item] = begin
            for w in range(wait_ptr[item], wait_ptr[item + 1]):
                p = met[w]
                if p >= 0 and begin < allowed[p]:
                    allowed[p] = begin
        else:
            t = item - n
            if after[t] >= 0:
                end = min(end, latest[n + after[t]])
            latest[item] = min(end - (own[item] - start[item]), NEVER)
            ring = latest_ready[after[t]] if after[t] >= 0 else NEVER
            latest_ready[t] = min(latest[item] - (start[item] - ready[item]), ring)
    return np.array(latest, np.int64)


def _next_to_commit(table: Table, f: History) -> Ints:
    """Of each row of a stream, the row whose finish is no earlier than its own; -1 where there is none."""
    out = np.full(table.rows, -1)
    for in_order in (np.flatnonzero(table.stream_ordered[f.stream] == 1), np.flatnonzero(table.rule == Rule.STREAM)):
        if len(in_order):
            before, after = in_order[:-1], in_order[1:]
            beside = f.stream[before] == f.stream[after]
            out[before[beside]] = after[beside]
    return out


def _next_in_ring(table: Table) -> Ints:
    """Of each transfer, the next of its ring on its DMA engine; -1 where there is none."""
    out = np.full(table.transfers, -1)
    order = np.lexsort((np.arange(table.transfers), table.ring, table.server))
    before, after = order[:-1], order[1:]
    same = (table.ring[before] == table.ring[after]) & (table.server[before] == table.server[after]) & (table.server[before] >= 0)
    out[before[same]] = after[same]
    return out
