"""Which earlier accesses a new one conflicts with, over absolute addresses."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from .isa import Memory, View
from .program import Tensor


@attrs.define(slots=True)
class Access:
    """One unit's read or write of a view; `source` says who counts the unit's completion."""

    unit: int
    view: View
    base: int
    writes: bool
    source: int


class History:
    """Accesses of a program so far, by memory region; accesses that a later write covers are forgotten.

    Forgetting is exact: whoever conflicts with a covered access conflicts with the covering write, which is ordered
    behind it.
    """

    def __init__(self, tensors: Mapping[str, Tensor], addresses: Mapping[str, int]) -> None:
        self.addresses = addresses
        self.region = _regions(tensors, addresses)
        self.seen: dict[int, list[Access]] = {}

    def conflicts(self, unit: int, source: int, view: View, writes: bool) -> list[Access]:
        """Earlier accesses with a common byte, one of the two a write; then remember this one."""
        base = self.addresses.get(view.tensor, 0)
        seen = self.at(view)
        found = [a for a in seen if (writes or a.writes) and a.unit != unit and (_same(a, view, base) or a.view.overlaps(view, a.base, base))]
        if writes:
            seen[:] = [a for a in seen if a.unit == unit or not covers(view, base, a.view, a.base)]
        else:  # one read per source and view is enough: a source completes in order
            seen[:] = [a for a in seen if a.writes or a.source != source or not _same(a, view, base)]
        seen.append(Access(unit, view, base, writes, source))
        return found


    def written(self, view: View) -> bool:
        """True if an earlier access wrote a byte of the view."""
        base = self.addresses.get(view.tensor, 0)
        return any(a.writes and (_same(a, view, base) or a.view.overlaps(view, a.base, base)) for a in self.at(view))

    def at(self, view: View) -> list[Access]:
        """Remembered accesses of the view's region."""
        return self.seen.setdefault(self.region.get(view.tensor, -1 - int(view.memory)), [])


def _same(a: Access, view: View, base: int) -> bool:
    return a.base == base and a.view == view


def covers(outer: View, outer_base: int, inner: View, inner_base: int) -> bool:
    """True if every byte of `inner` is a byte of `outer`; may say False where that is hard to see."""
    if outer == inner and outer_base == inner_base:
        return True
    if not outer.dense:
        return False
    if outer.memory is not Memory.HBM and not (
        outer.partition <= inner.partition and inner.partition + inner.partitions <= outer.partition + outer.partitions
    ):
        return False
    (a0, a1), (b0, b1) = outer.extent, inner.extent
    return a0 + outer_base <= b0 + inner_base and b1 + inner_base <= a1 + outer_base


def _regions(tensors: Mapping[str, Tensor], addresses: Mapping[str, int]) -> dict[str, int]:
    """Tensors that share bytes share a region number."""
    out: dict[str, int] = {}
    number = 0
    for memory in Memory:
        mine = sorted((t for t in tensors.values() if t.memory is memory), key=lambda t: (addresses.get(t.name, 0), t.name))
        reach = -1
        for t in mine:
            start = addresses.get(t.name, 0)
            if start >= reach:
                number += 1
            out[t.name] = number
            reach = max(reach, start + t.partition_bytes)
    return out
