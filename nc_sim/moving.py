"""What a DMA moves once its addresses are known: indices are read when the descriptors are made, data by each DMA engine.

Elements are counted in the order of the destination.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np

from .isa import Memory, View
from .isa.dma import Dma, DmaCompute2d
from .isa.dynamic import Dynamic
from .isa.errors import InternalError, ProgramError
from .isa.patterns import reach
from .memory import Memories

SOURCE = "nki.isa access patterns"
Places = np.ndarray  # element numbers in an HBM tensor, -1 where an address is out of bounds and skipped


@attrs.frozen(eq=False)
class Side:
    """One end of a DMA: a view as it stands, its dimensions permuted, or places of its own for every element."""

    view: View
    axes: tuple[int, ...] | None = None
    places: Places | None = None


@attrs.frozen(eq=False)
class Move:
    """A DMA whose addresses are known."""

    dma: Dma
    dst: Side
    sources: tuple[Side, ...]


def found(dma: Dma, memories: Memories, where: Callable[[], str]) -> Move | None:
    """The DMA with its indices read; None if its one address is out of bounds and skipped.

    Raises ProgramError for an address out of bounds, and for rows that are added to twice; `where`, which counts all that
    stands before the DMA, is only asked then.
    """
    dst = _side(dma.dst, None, dma, memories, where)
    sources = [_side(v, dma.axes, dma, memories, where) for v in dma.sources]
    if dst is None or None in sources:
        return None
    return Move(dma, dst, tuple(s for s in sources if s is not None))


def number_of(view: View, memories: Memories) -> int:
    """The number that moves a view whose start is dynamic: of the instruction, where a register gave it, or in SBUF now."""
    assert view.dynamic is not None
    index = view.dynamic.index
    if isinstance(index, View):
        return int(memories.read(index).reshape(-1)[0])
    if isinstance(index, int):
        return index
    raise InternalError("moving", f"register {index.name} in {view}", "its number, once the instruction executes")


def resolved(view: View, memories: Memories, where: Callable[[], str], source: str = SOURCE) -> View:
    """The view where it lies now, if its start is dynamic; ProgramError if that is out of bounds."""
    return view if view.dynamic is None else in_bounds(view, number_of(view, memories), where, source)


def in_bounds(view: View, number: int, where: Callable[[], str], source: str = SOURCE, register: str = "") -> View:
    """A view whose start is dynamic where `number`, of `register` if that is known, moves it; ProgramError if that is out of bounds."""
    if (at := view.moved_to(number)) is not None:
        return at
    moved = view.dynamic
    assert moved is not None
    index = f"register {register}" if register else f"the number in {moved.index.tensor}" if isinstance(moved.index, View) else "the index"
    low, high = (e + number * moved.step * view.dtype.itemsize for e in _unmoved(view, view.strides, view.counts))
    unit, size = ("elements", n) if not any(e % (n := view.dtype.itemsize) for e in (low, high, moved.low, moved.high)) else ("bytes", 1)
    found = f"{index} is {number}, which reaches {unit} {low // size} to {high // size} of {view.tensor or view.memory.name}"
    each = "" if view.memory is Memory.HBM else " of each partition"
    fits = _numbers(view, moved, view.strides, view.counts)
    raise ProgramError(where(), found, f"{fits}, within {unit} {moved.low // size} to {moved.high // size}{each}", source)


def _unmoved(view: View, strides: tuple[int, ...], counts: tuple[int, ...]) -> tuple[int, int]:
    """First byte of a pattern at a dynamic view's own offset, and one past the last."""
    low, high = reach(strides, counts)
    return view.offset + low * view.dtype.itemsize, view.offset + (high + 1) * view.dtype.itemsize


def _numbers(view: View, moved: Dynamic, strides: tuple[int, ...], counts: tuple[int, ...]) -> str:
    """The numbers that leave a pattern in bounds, in words."""
    (low, high), by = _unmoved(view, strides, counts), moved.step * view.dtype.itemsize
    ends = (moved.low - low, moved.high - high)  # bytes it may go down (negative), and up
    if not by or ends[0] > ends[1]:
        return "no number fits"
    least, most = -(-ends[by < 0] // by), ends[by > 0] // by
    return f"{least} to {most}" if least < most else f"{least} only" if least == most else "no number fits"


def _side(view: View, axes: tuple[int, ...] | None, dma: Dma, memories: Memories, where: Callable[[], str]) -> Side | None:
    if (moved := view.dynamic) is None:
        return Side(view, axes)
    if not moved.vector:
        if dma.skips and view.moved_to(number_of(view, memories)) is None:
            return None
        return Side(resolved(view, memories, where, dma.source), axes)
    assert isinstance(moved.index, View)
    numbers = memories.read(moved.index).astype(np.int64).T.reshape(-1)  # column by column (nki.isa.dma_transpose)
    places = _places(view, moved, numbers[: view.counts[0]], dma, where)
    return Side(view, None, (places if axes is None else places.transpose(axes)).reshape(-1))


def _places(view: View, moved: Dynamic, numbers: np.ndarray, dma: Dma, where: Callable[[], str]) -> Places:
    """Element numbers [rows, ...] of a view with an index for each row."""
    size, strides, counts = view.dtype.itemsize, view.strides[1:], view.counts[1:]
    low, high = reach(strides, counts)
    start = view.offset // size + numbers * moved.step
    inside = ((start + low) * size >= moved.low) & ((start + high + 1) * size <= moved.high)
    if not inside.all() and not dma.skips:
        row = int(np.flatnonzero(~inside)[0])
        bounds = f"{_numbers(view, moved, strides, counts)} of {view.tensor or 'HBM'}, or oob_mode=skip"
        raise ProgramError(where(), f"index {numbers[row]} of row {row}", bounds, dma.source)
    if isinstance(dma, DmaCompute2d) and view is dma.dst:
        _unique(numbers, inside, where, dma)
    out = start.reshape(-1, *(1,) * len(counts))
    for axis, (stride, count) in enumerate(zip(strides, counts, strict=True), 1):
        out = out + (np.arange(count, dtype=np.int64) * stride).reshape(-1, *(1,) * (len(counts) - axis))
    return np.where(inside.reshape(-1, *(1,) * len(counts)), out, -1)


def _unique(numbers: np.ndarray, inside: np.ndarray, where: Callable[[], str], dma: Dma) -> None:
    """Rows that are added to may not repeat: nothing says what the hardware then leaves."""
    known: dict[int, int] = {}
    for row in np.flatnonzero(inside).tolist():
        if (before := known.setdefault(int(numbers[row]), row)) != row:
            raise ProgramError(where(), f"index {numbers[row]} in rows {before} and {row}", "indices that do not repeat", dma.source)


def read(move: Move, first: int, last: int, memories: Memories) -> tuple[np.ndarray, np.ndarray | None]:
    """Elements `first` to `last`, unrounded, and which of them are moved (None: all)."""
    parts, kept = [], None
    for side in (move.dst, *move.sources):
        if side.places is not None:
            mine = side.places[first:last] >= 0
            kept = mine if kept is None else kept & mine
    for side in move.sources:
        if side.places is None:
            parts.append(memories.read_part(side.view, first, last, side.axes))
        else:
            parts.append(memories.elements(side.view)[np.maximum(side.places[first:last], 0)])
    return move.dma.combine(parts), None if kept is None or kept.all() else kept


def write(move: Move, first: int, values: np.ndarray, kept: np.ndarray | None, memories: Memories) -> None:
    """Round and store what `read` gave."""
    if move.dst.places is not None:
        at = move.dst.places[first : first + len(values)]
        at, values = (at, values) if kept is None else (at[kept], values[kept])
        memories.elements(move.dst.view)[at] = memories.rounded(move.dst.view, values)
    elif kept is None:
        memories.write_part(move.dst.view, first, values)
    else:
        memories.array(move.dst.view).flat[first + np.flatnonzero(kept)] = memories.rounded(move.dst.view, values[kept])
