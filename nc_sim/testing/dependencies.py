"""The longest path through a table in the algebra of max and plus: an oracle that knows no event list.

Nothing contends here: every row begins as soon as its stream and its waits let it, a wait is met as soon as any updates
could meet it, and every transfer has its DMA engine to itself but for its own ring's order. States cost their least, the
array runs at full rate. So each time is at most the engines', and equal where nothing contends and one state is possible.
The times are the least solution of t = max(of sums), found by iteration from below; a program that deadlocks has none.

A timeline that no sum exceeds is no earlier than that solution, in any row: `first_too_early` tells it without iterating.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

import numpy as np

from ..table import Ints, Op, Rule, Table, When
from ..timeline import Timeline

SWEEPS = 10_000


def longest_path(table: Table) -> tuple[Ints, Ints]:
    """Earliest start and finish of every row, ticks."""
    path = _Path(table)
    path.solve()
    return path.start, path.finish


def first_too_early(table: Table, timeline: Timeline) -> tuple[int, str, int, int] | None:
    """The first row whose start or finish is earlier than what it depends on lets it: (row, which, tick, earliest tick)."""
    path = _Path(table)
    path.start, path.finish = timeline.start.copy(), timeline.finish.copy()
    for _ in range(2):  # the first finds when streams end, which a timeline does not say
        path.sweep()
    for row in range(len(path.start)):
        for which, found, least in (("starts", timeline.start, path.start), ("ends", timeline.finish, path.finish)):
            if found[row] < least[row]:
                return row, which, int(found[row]), int(least[row])
    return None


class _Path:
    """Times so far, which only grow: a sweep raises each to what it depends on."""

    def __init__(self, table: Table) -> None:
        self.t = table
        total = table.rows + table.transfers
        self.start, self.streamed, self.finish = (np.zeros(total, np.int64) for _ in range(3))
        self.raised: list[list[tuple[int, int]]] = [[] for _ in range(table.semaphores)]  # row, update
        for row in range(total):
            for k in range(int(table.update_ptr[row]), int(table.update_ptr[row + 1])):
                if table.update_op[k] != Op.SUB:  # without them a value is only higher
                    self.raised[table.update_semaphore[k]].append((row, k))
        self.trigger = np.zeros(table.transfers, np.int64)
        for row in range(table.rows):
            self.trigger[table.fan_ptr[row] : table.fan_ptr[row + 1]] = row
        self.reaching: dict[int, tuple[list[int], list[int]]] = {}  # semaphore -> ticks of its updates, and its values from then on

    def solve(self) -> None:
        for _ in range(SWEEPS):
            before = self.start.copy(), self.streamed.copy(), self.finish.copy()
            self.sweep()
            if all(np.array_equal(a, b) for a, b in zip(before, (self.start, self.streamed, self.finish), strict=True)):
                return
        raise AssertionError("no solution: the program deadlocks, or is too deep for this oracle")

    def sweep(self) -> None:
        self.reaching.clear()
        self.sweep_streams()
        self.sweep_transfers()

    def raise_to(self, row: int, start: int, streamed: int, finish: int) -> None:
        self.start[row] = max(start, int(self.start[row]))
        self.streamed[row] = max(streamed, int(self.streamed[row]))
        self.finish[row] = max(finish, int(self.finish[row]))

    def sweep_streams(self) -> None:
        t = self.t
        for s in range(len(t.stream_names)):
            ready, visible = int(t.stream_start[s]), 0
            for row in range(int(t.stream_ptr[s]), int(t.stream_ptr[s + 1])):
                waits = range(int(t.wait_ptr[row]), int(t.wait_ptr[row + 1]))
                start = max([ready, *(self.reached(int(t.wait_semaphore[k]), int(t.wait_value[k])) for k in waits)])
                cost, rule, streamed = t.cost[row], t.rule[row], start
                if rule == Rule.LOAD:
                    # edges crossed on the way may change the rate, but never below the quickest state
                    streamed = start + int(t.cost_load[cost].min())
                elif rule == Rule.STREAM:
                    streamed = start + -(-int(t.work[row]) // max(t.throttle.full, t.throttle.gated if t.throttle.changes else 1))
                finish = streamed + int(t.cost_latency[cost].min())
                in_order = bool(t.stream_ordered[s]) or rule == Rule.STREAM
                self.raise_to(row, start, streamed, max(finish, visible) if in_order else finish)
                if in_order:
                    visible = max(visible, int(self.finish[row]))
                ready = int(self.start[row]) + int(t.cost_issue[cost].min())

    def sweep_transfers(self) -> None:
        t = self.t
        free: dict[tuple[int, int], int] = {}
        arrived: dict[tuple[int, int], int] = {}
        order = sorted(range(t.transfers), key=lambda k: (int(self.start[self.trigger[k]]), k))
        for k in order:
            row, key = t.rows + k, (int(t.server[k]), int(t.ring[k]))
            arrival = int(self.start[self.trigger[k]] + t.arrival[k])
            if key[0] < 0:
                self.raise_to(row, arrival, arrival, arrival + int(t.packet[k]))
                continue
            arrived[key] = arrival = max(arrival, arrived.get(key, 0))
            packets = int(t.packets[k])
            length = packets * int(t.packet[k]) + (int(t.first[k]) if packets else 0) + int(t.last[k])
            start = max(arrival, free.get(key, 0))
            self.raise_to(row, start, start, max(start, int(self.start[row])) + length)
            free[key] = int(self.finish[row])

    def reached(self, semaphore: int, wanted: int) -> int:
        """The earliest time at which updates could bring a semaphore to a value, as times stood in this sweep."""
        if wanted <= 0 or not self.raised[semaphore]:
            return 0
        if semaphore not in self.reaching:
            t, fired = self.t, []
            for row, k in self.raised[semaphore]:
                base = {When.START: self.start, When.STREAMED: self.streamed, When.FINISH: self.finish}[When(int(t.update_when[k]))][row]
                fired.append((int(base + t.delays[t.update_delay[k]].min()), int(t.update_value[k])))
            fired.sort()
            self.reaching[semaphore] = [tick for tick, _ in fired], list(accumulate(amount for _, amount in fired))
        ticks, values = self.reaching[semaphore]
        return ticks[min(bisect_left(values, wanted), len(ticks) - 1)]
