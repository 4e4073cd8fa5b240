"""Random overrides of chip numbers."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from .. import chip as chips
from ..chip import Chip
from ..schema import SCHEMA

FACTORS: tuple[int | Fraction, ...] = (2, Fraction(1, 2), 4, Fraction(1, 4), Fraction(3, 2), Fraction(3, 4), 0)
LEAST_WINDOW = 64  # cycles of the clock gate: shorter ones mean many edges and nothing else
# Numbers of which only some values mean something, or keep a run short
SOME: dict[str, tuple[Any, ...]] = {
    "dma.engines": (1, 2, 4, 8, 16),  # a DMA adds 16, in equal shares
    "dma.max_row_bytes": (512, 4096, 8192, 65536),
    "memory.partitions": (128, 64, 32),
    "memory.partition_quadrant": (32, 16, 64),
    "tensor.fp32_onezero_passes": (1, 2),
    "tensor.fp32_passes": (2, 1),
    "tensor.gate.ratio": (Fraction(1, 2), Fraction(1, 3), Fraction(3, 4), 1),
    "types.e4m3_max": (240, 448),
}
SETS = ([["copy"]], [["copy", "identity"], ["exp", "tanh"]], [["exp"], ["square"]])


@st.composite
def what_ifs(draw: st.DrawFn, chip: str | Path | Chip = "trn2", names: Iterable[str] | None = None, most: int = 3) -> dict[str, Any]:
    """Overrides for `what_if=`: up to `most` chip numbers by name, of all in the schema or of `names`.

    Values are of the schema's kind, whole numbers or fractions around the chip's own: times and rates from nothing (where
    the schema allows it) to four times, clocks in steps of 100 MHz, words, flags and table sets of those there are. Every
    one is taken by `Chip.what_if`. A run with them ends, or is refused with a documented error (ProgramError, Unsupported,
    Unimplemented, Unspecified) where the program does not fit the chip that they make. Shrinks to no override.
    """
    data = chips.load(chip)
    known = sorted(SCHEMA if names is None else set(names))
    keys = draw(st.lists(st.sampled_from(known), max_size=most, unique=True)) if known else []
    return {key: draw(_values(key, data.numbers[key].value)) for key in keys}


def _values(key: str, own: Any) -> st.SearchStrategy[Any]:
    """Values of one number, around the chip's own (None where it has none)."""
    kind = SCHEMA[key].kind
    if key in SOME:
        return st.sampled_from(SOME[key])
    if kind == "flag":
        return st.booleans()
    if kind == "sets":
        return st.sampled_from(SETS)
    if kind.startswith("word:"):
        return st.sampled_from(kind.removeprefix("word:").split("|"))
    if key.startswith("clock."):
        return st.integers(2, 40).map(lambda n: 100 * n)  # odd clocks make a tick so short that times leave 64 bits
    base = Fraction(own or 100)
    if kind in ("count", "natural"):
        least = LEAST_WINDOW if key == "tensor.gate.window_cycles" else int(kind == "natural")
        scaled = st.sampled_from(FACTORS).map(lambda f: max(least, int(base * f)))
        return scaled if base > 64 else scaled | st.integers(least, 2 * int(base) + 8)
    least_part = 0 if kind == "number" else 1
    parts = st.integers(least_part, 16 if kind == "share" else 400)
    drawn = st.sampled_from([f for f in FACTORS if f or kind == "number"]).map(lambda f: base * f)
    if kind == "share":
        return parts.map(lambda n: _plain(Fraction(n, 16)))
    return (drawn | parts.map(lambda n: base * Fraction(n, 100))).map(_plain)


def _plain(value: Fraction) -> int | Fraction:
    return int(value) if value.denominator == 1 else value
