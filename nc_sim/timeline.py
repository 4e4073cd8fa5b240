"""What every run returns: when each row was ready, started and finished, and when the array's rate changed."""

from __future__ import annotations

import attrs
import numpy as np

from .table import Ints


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
