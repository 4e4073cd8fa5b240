"""Instructions that a sequencer executes itself."""

from __future__ import annotations

from fractions import Fraction

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


def dynamic_ns(engine: Engine, chip: Reader) -> Fraction:
    """From taking a compute instruction whose address is a number in SBUF to handing it over, and to taking the next one."""
    c = chip.chip
    return Fraction(chip("sequencer.dynamic_cycles") * c.cycle_ticks(engine)) / c.ticks_per_ns
