"""Instructions that a sequencer executes itself."""

from __future__ import annotations

from ..chip import Reader
from ..isa import Engine
from .cost import Cost, same

GAPS = ("event_semaphore",)  # whose measured gap to the next instruction is a number of its own


def cost(timing: str, engine: Engine, chip: Reader) -> Cost:
    """What a control instruction takes; the next one follows when it is done, and after the gap where one is known."""
    ticks, name = chip.chip.ticks, f"sequencer.{engine.name.lower()}.{timing}"
    shown = ticks(chip(f"{name}_ns"))
    if timing in GAPS:
        return same(shown + ticks(chip(f"{name}_gap_ns")), shown)
    return same(shown, shown)
