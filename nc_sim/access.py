"""Which earlier accesses a new one conflicts with, over absolute addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from operator import attrgetter

import attrs

from .isa import Memory, Step, View
from .isa.patterns import band
from .plane import Plane
from .program import Tensor

CHUNK = {Memory.HBM: 1 << 16, Memory.SBUF: 1 << 11, Memory.PSUM: 1 << 11}  # bytes of one bucket of the address space
WIDE = 64  # an access of more buckets than this is kept aside and always looked at
PITCHES = 16  # of one address space, that have an index of their own


@attrs.define(slots=True, eq=False)
class Access:
    """One unit's read or write of a view; `source` says who counts the unit's completion."""

    unit: int
    view: View
    base: int
    writes: bool
    source: int
    low: int  # absolute bytes, per partition on chip
    high: int
    order: int = 0
    gone: bool = False

    def same(self, other: Access) -> bool:
        """True if both touch exactly the same bytes in the same way."""
        return self.base == other.base and (self.view is other.view or self.view == other.view)

    def overlaps(self, other: Access) -> bool:
        """True if a byte is common."""
        if self.low >= other.high or other.low >= self.high:
            return False
        return self.same(other) or self.view.overlaps(other.view, self.base, other.base)

    def covers(self, inner: Access) -> bool:
        """True if every byte of `inner` is touched; may say False where that is hard to see."""
        return self.same(inner) or covers(self.view, inner.view, self.base, inner.base)


def covers(outer: View, inner: View, outer_base: int = 0, inner_base: int = 0) -> bool:
    """True if every byte of `inner` is a byte of `outer`; may say False where that is hard to see."""
    if outer.dynamic is not None or inner.dynamic is not None:
        return outer.dynamic is None and covers(outer, inner.region, outer_base, inner_base)
    if outer == inner and outer_base == inner_base:
        return True
    (a0, a1), (b0, b1) = outer.extent, inner.extent
    if a0 + outer_base > b0 + inner_base or b1 + inner_base > a1 + outer_base or not outer.dense:
        return False
    return outer.memory is Memory.HBM or (
        outer.partition <= inner.partition and inner.partition + inner.partitions <= outer.partition + outer.partitions
    )


_order = attrgetter("order")


def unwritten(steps: Iterable[Step], tensors: Mapping[str, Tensor]) -> set[str]:
    """HBM tensors that no instruction writes."""
    written = {v.tensor for s in steps for v in s.instruction.writes}
    return {t.name for t in tensors.values() if t.memory is Memory.HBM and t.name not in written}


Places = tuple[list[list[Access]], list[list[Access]]]  # buckets to keep an access in, and to search


@attrs.define(slots=True, eq=False)
class _Space:
    """The accesses of one address space, in buckets."""

    near: dict[int, list[Access]] = attrs.field(factory=dict)  # by address
    wide: list[Access] = attrs.field(factory=list)
    banded: dict[int, Plane[Access]] = attrs.field(factory=dict)  # by pitch, then by row and column


class History:
    """Accesses of a program so far; accesses that a later write covers are forgotten.

    Forgetting is exact: whoever conflicts with a covered access conflicts with the covering write, which is ordered
    behind it. Accesses are bucketed so that a program's length does not slow the search down: by address, and those
    that take the same few columns of many rows (one tile of an output, a stride) by their rows and columns, since
    their first and last address say little. Buckets hold all that a search needs; what is in them is compared exactly.
    """

    def __init__(self, tensors: Mapping[str, Tensor], addresses: Mapping[str, int], unwritten: Set[str] = frozenset()) -> None:
        self.addresses, self.unwritten = addresses, unwritten  # HBM tensors that nobody writes conflict with nobody
        # Each HBM tensor is a space of its own; a recorded trace names no tensors and shares one per memory.
        self.space: dict[str, object] = {t.name: t.name if t.memory is Memory.HBM else int(t.memory) for t in tensors.values()}
        self.spaces: dict[object, _Space] = {}
        self.spots: dict[View, tuple[int, int, int, Places, int]] = {}  # base, low, high and places of on-chip views, and `made` then
        self.made = 0  # cells on chip: a new one is a further place to search
        self.count = 0

    def conflicts(self, unit: int, source: int, view: View, writes: bool) -> list[Access]:
        """Earlier accesses with a common byte, one of the two a write; then remember this one."""
        if view.tensor in self.unwritten:
            return []
        mine, (keep, search) = self.access(unit, source, view, writes)
        found, gone = [], False
        low, high = mine.low, mine.high
        for a in self.seen(search):
            if a.unit == unit or a.low >= high or low >= a.high:
                continue
            if a.view is view and a.base == mine.base:  # the same bytes: most of what a loop does
                if writes or a.writes:
                    found.append(a)
                if writes or (not a.writes and a.source == source):
                    a.gone = gone = True
                continue
            if (writes or a.writes) and a.overlaps(mine):
                found.append(a)
            # one read per source and view is enough: a source completes in order
            if mine.covers(a) if writes else not a.writes and a.source == source and a.same(mine):
                a.gone = gone = True
        if gone:
            for bucket in search:
                if bucket:
                    bucket[:] = [a for a in bucket if not a.gone]
        for bucket in keep:
            bucket.append(mine)
        return found

    def written(self, view: View, counts: Callable[[str], bool]) -> bool:
        """True if an earlier access wrote a byte of the view, through its own tensor or where one of the two counts."""
        mine, (_, search) = self.access(-1, -1, view, False)
        every = counts(view.tensor)
        return any(
            a.writes and (every or a.view.tensor == view.tensor or counts(a.view.tensor)) and a.overlaps(mine) for a in self.seen(search)
        )

    def access(self, unit: int, source: int, view: View, writes: bool) -> tuple[Access, Places]:
        """The access, and the buckets to keep it in and to search."""
        memory = view.memory
        if (spot := self.spots.get(view)) is None or spot[4] != self.made:
            base, (low, high) = self.addresses.get(view.tensor, 0), view.extent
            places = self.places(view, base + low, base + high)
            spot = base, base + low, base + high, places, self.made
            if memory is not Memory.HBM:  # slices of HBM are others each time, as a rule
                self.spots[view] = spot
        base, low, high, places, _ = spot
        self.count += 1
        return Access(unit, view, base, writes, source, low, high, self.count), places

    def places(self, view: View, low: int, high: int) -> Places:
        """Buckets to keep an access of these bytes in, and buckets to search; wide accesses are kept in one of their own."""
        name, chunk, on_chip = self.space.get(view.tensor, int(view.memory)), CHUNK[view.memory], view.memory is not Memory.HBM
        if (space := self.spaces.get(name)) is None:
            space = self.spaces[name] = _Space()
        near, high = space.near, max(low + 1, high)
        first, last = low // chunk, (high - 1) // chunk
        columns = None if view.dynamic is not None else band(view.strides, view.counts, view.dtype.itemsize)
        if columns is not None and (columns[0] in space.banded or len(space.banded) < PITCHES):
            plane = space.banded.setdefault(columns[0], Plane())
            before = plane.cells
            keep = [cell for x, y in _rectangles(low, high, *columns) for cell in plane.keep(x, y)]
            self.made += (plane.cells - before) * on_chip
        elif last - first < WIDE:
            keep = [near.setdefault(k, []) for k in range(first, last + 1)]
        else:
            keep = [space.wide]
        if on_chip:  # where later ones will be, too: the answer is used again
            search = [near.setdefault(k, []) for k in range(first, last + 1)]
        elif last - first < len(near):
            search = [bucket for k in range(first, last + 1) if (bucket := near.get(k))]
        else:
            search = [bucket for k, bucket in near.items() if first <= k <= last]
        search.append(space.wide)
        for pitch, plane in space.banded.items():
            width = columns[1] if columns is not None and columns[0] == pitch else high - low
            for x, y in _rectangles(low, high, pitch, width):
                search += plane.search(x, y)
        return keep, search

    def seen(self, buckets: Iterable[list[Access]]) -> list[Access]:
        """Remembered accesses that may overlap, in order."""
        lists = [bucket for bucket in buckets if bucket]
        if len(lists) <= 1:
            return lists[0] if lists else []
        return sorted({a.order: a for bucket in lists for a in bucket}.values(), key=_order)


def _rectangles(low: int, high: int, pitch: int, width: int) -> Iterable[tuple[tuple[int, int], tuple[int, int]]]:
    """Rows and columns, of `pitch` bytes, of what takes `width` bytes from `low` on and so on in each row, up to `high`.

    Two rectangles where they go round the end of a row.
    """
    rows, column = (low // pitch, (high - 1) // pitch), low % pitch
    if width >= pitch:
        yield rows, (0, pitch - 1)
    elif column + width <= pitch:
        yield rows, (column, column + width - 1)
    else:
        yield rows, (column, pitch - 1)
        yield rows, (0, column + width - pitch - 1)
