"""Probes observe a run. They never change its timing."""

from __future__ import annotations

from collections.abc import Callable


class Probe:
    """Override what you need; hooks left alone cost nothing."""

    def started(self, row: int, tick: int) -> None:
        """A row began: operands are read now."""

    def finished(self, row: int, tick: int) -> None:
        """A row ended: results are written now."""


def hooks(probes: tuple[Probe, ...], name: str) -> list[Callable[[int, int], None]]:
    """The bound methods of probes that override a hook."""
    return [getattr(p, name) for p in probes if getattr(type(p), name) is not getattr(Probe, name)]
