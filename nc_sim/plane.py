"""Rectangles in a plane, found again by a rectangle that may meet them, however many there are."""

from __future__ import annotations

from typing import Generic, TypeVar

import attrs

Kept = TypeVar("Kept")
Span = tuple[int, int]  # first and last, both included


def _level(span: Span) -> int:
    """The size of cell, as a power of two, of which the span touches at most two."""
    return (span[1] - span[0]).bit_length()


@attrs.define(slots=True, eq=False)
class Plane(Generic[Kept]):
    """Cells of every size that occurs. A rectangle lies in at most four cells of its own size in each direction.

    So rectangles that do not meet share few cells, whatever their shape, and a search looks at few that it does not meet.
    """

    levels: dict[tuple[int, int], dict[tuple[int, int], list[Kept]]] = attrs.field(factory=dict)
    cells: int = 0

    def keep(self, x: Span, y: Span) -> list[list[Kept]]:
        """The cells in which to put what has this rectangle."""
        wide, high = _level(x), _level(y)
        level = self.levels.setdefault((wide, high), {})
        before = len(level)
        out = [
            level.setdefault((i, j), []) for i in range(x[0] >> wide, (x[1] >> wide) + 1) for j in range(y[0] >> high, (y[1] >> high) + 1)
        ]
        self.cells += len(level) - before
        return out

    def search(self, x: Span, y: Span) -> list[list[Kept]]:
        """The cells, empty ones too, that hold everything this rectangle meets, and other things."""
        out = []
        for (wide, high), level in self.levels.items():
            left, right, bottom, top = x[0] >> wide, x[1] >> wide, y[0] >> high, y[1] >> high
            if (right - left + 1) * (top - bottom + 1) < len(level):
                places = ((i, j) for i in range(left, right + 1) for j in range(bottom, top + 1))
                out += [cell for p in places if (cell := level.get(p)) is not None]
            else:
                out += [cell for (i, j), cell in level.items() if left <= i <= right and bottom <= j <= top]
        return out
