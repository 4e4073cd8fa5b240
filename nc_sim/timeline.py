"""What every run returns: when each row was ready, started and finished, and when the array's rate changed."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from .isa.errors import Deadlock, InternalError, Unsupported
from .table import Ints, Role, Table


@attrs.frozen(eq=False)
class Timeline:
    """Ticks per row of the table; -1 where a row never got that far."""

    ready: Ints  # reached the head of its stream; for a transfer: arrived at its DMA engine
    start: Ints  # waits satisfied, began
    finish: Ints  # result visible
    gate: tuple[tuple[int, int], ...]  # (tick, 1 full | 0 gated): the throttle's level from that tick on

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Timeline)
            and self.gate == other.gate
            and all(np.array_equal(getattr(self, f), getattr(other, f)) for f in ("ready", "start", "finish"))
        )

    __hash__ = None  # type: ignore[assignment]


def step_ends(table: Table, timeline: Timeline) -> Ints:
    """When a profile shows each step to end, in ticks.

    That is its finish; but a software trigger, for whose end nothing waits, is shown longer the more is in its ring.
    """
    ends = timeline.finish[table.finish_row]
    first, last = table.stream_ptr[-2:].tolist()  # the stream of descriptors that GpSimd makes
    triggers = first + np.flatnonzero(table.role[first:last] == Role.TRIGGER)
    if not table.queued or not triggers.size:
        return ends
    fan = table.fan_ptr[triggers]
    done = np.maximum.reduceat(timeline.finish[table.rows :], fan)  # grows: a ring is in order on every DMA engine
    over = np.searchsorted(np.maximum.accumulate(done), timeline.start[triggers], "right")
    before = np.arange(len(triggers))
    ends[table.step[triggers]] += table.queued * (before - np.minimum(before, over))
    return ends


def column(ticks: Sequence[int]) -> Ints:
    """Ticks as the timeline holds them; Unsupported beyond 64 bits."""
    try:
        return np.array(ticks, np.int64)
    except OverflowError:
        raise Unsupported("engine", "a time beyond 64 bits", "clocks with a smaller common multiple, or shorter times") from None


def check_complete(table: Table, at_row: Sequence[int], value: Sequence[int], finish: Ints) -> None:
    """Deadlock when nothing happens any more and streams have rows left.

    `at_row` is the row each stream has come to, `value` that of each semaphore. InternalError for what no engine may leave.
    """
    stuck = [s for s, row in enumerate(at_row) if row < table.stream_ptr[s + 1]]
    if not stuck:
        if finish.min(initial=0) < 0:
            raise InternalError("engine", "a row never finished though every stream ended", "all rows finish")
        return
    blocked = []
    for s in stuck:
        waits = range(int(table.wait_ptr[at_row[s]]), int(table.wait_ptr[at_row[s] + 1]))
        lacking = next((k for k in waits if value[table.wait_semaphore[k]] < table.wait_value[k]), None)
        if lacking is None:
            raise InternalError("engine", f"stream {s} stopped at row {at_row[s]} with its waits met", "only waits block")
        semaphore = int(table.wait_semaphore[lacking])
        blocked.append((s, at_row[s], semaphore, int(table.wait_value[lacking]), value[semaphore]))
    rows = int(sum(table.stream_ptr[s + 1] - at_row[s] for s in stuck))
    raise Deadlock("", f"deadlock: {rows} rows cannot run", "every wait must be reached", blocked=blocked)
