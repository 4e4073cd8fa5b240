"""The result of every timing function."""

from __future__ import annotations

import attrs


@attrs.frozen(slots=True)
class Cost:
    """Ticks by state. `issue`: until the queue goes on. `latency`: until the result can be seen."""

    issue: tuple[int, int, int, int]
    latency: tuple[int, int, int, int]
    load: tuple[int, int, int, int] = (0, 0, 0, 0)  # weight loads: ticks the array loads, the latency counts from its end


def same(issue: int, latency: int) -> Cost:
    """A cost that does not depend on state; every duration is at least one tick."""
    i, lat = max(issue, 1), max(latency, 1)
    return Cost((i, i, i, i), (lat, lat, lat, lat))
