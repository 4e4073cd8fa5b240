"""Which earlier accesses a new one conflicts with: exactly those with a common byte, and found without looking at the rest."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nc_sim import access
from nc_sim.access import Access, History
from nc_sim.isa import DTYPES, Memory, View
from nc_sim.isa.patterns import reach
from nc_sim.isa.view import whole

SMALL = {Memory.HBM: 32, Memory.SBUF: 16, Memory.PSUM: 16}  # bytes of a bucket, so that small views lie in several
BASES = {"h": 0, "g": 0, "s": 12, "r": 40, "p": 0}  # s and r share bytes of SBUF; HBM tensors have spaces of their own
MEMORIES = {"h": Memory.HBM, "g": Memory.HBM, "s": Memory.SBUF, "r": Memory.SBUF, "p": Memory.PSUM}


def places(view: View, base: int) -> set[tuple[object, int, int]]:
    """Space, partition and address of every byte, one by one."""
    space = view.tensor if view.memory is Memory.HBM else view.memory
    at = [
        base + view.offset + view.dtype.itemsize * sum(i * s for i, s in zip(index, view.strides, strict=True)) + byte
        for index in itertools.product(*map(range, view.counts))
        for byte in range(view.dtype.itemsize)
    ]
    partitions = [0] if view.memory is Memory.HBM else range(view.partition, view.partition + view.partitions)
    return {(space, p, a) for p in partitions for a in at}


class Plain:
    """The same history without any search: every access is compared with every earlier one, byte by byte."""

    def __init__(self) -> None:
        self.kept: list[Access] = []

    def conflicts(self, unit: int, source: int, view: View, writes: bool) -> list[int]:
        base = BASES[view.tensor]
        mine = Access(unit, view, base, writes, source, base + view.extent[0], base + view.extent[1])
        found, left = [], []
        for a in self.kept:
            if a.unit != unit and (writes or a.writes) and places(a.view, a.base) & places(view, base):
                found.append(a.unit)
            over = mine.covers(a) if writes else not a.writes and a.source == source and a.same(mine)
            if a.unit == unit or not over or not places(a.view, a.base) & places(view, base):
                left.append(a)
        self.kept = [*left, mine]
        return found


@st.composite
def views(draw: st.DrawFn) -> View:
    """Tiles of a small matrix, and any pattern at all."""
    tensor = draw(st.sampled_from(sorted(MEMORIES)))
    memory, dtype = MEMORIES[tensor], DTYPES[draw(st.sampled_from(["float32", "bfloat16", "uint8"]))]
    first = draw(st.integers(0, 2))
    if draw(st.booleans()):
        shape = draw(st.sampled_from([(4, 6), (6, 8), (3, 4, 5)]))
        outer = () if memory is Memory.HBM else (4,)
        cut = []
        for size in shape:
            low = draw(st.integers(0, size - 1))
            cut.append(slice(low, draw(st.integers(low + 1, size)), draw(st.sampled_from([1, 1, 1, 2]))))
        return whole(tensor, memory, (*outer, *shape), dtype)[(slice(first, first + 2),) * len(outer) + tuple(cut)]
    counts = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    strides = tuple(draw(st.integers(-20, 20)) for _ in counts)
    offset = (draw(st.integers(0, 9)) - reach(strides, counts)[0]) * dtype.itemsize
    rows = (0, 0) if memory is Memory.HBM else (first, draw(st.integers(1, 2)))
    return View(tensor, memory, dtype, *rows, offset, strides, counts)


@settings(max_examples=400, deadline=None)
@given(views(), views())
def test_two_views_overlap_where_a_byte_is_common(a: View, b: View) -> None:
    common = bool(places(a, BASES[a.tensor]) & places(b, BASES[b.tensor]))
    if a.tensor == b.tensor or Memory.HBM not in (a.memory, b.memory):
        assert a.overlaps(b, BASES[a.tensor], BASES[b.tensor]) == common


@settings(max_examples=300, deadline=None)
@given(st.lists(views(), min_size=1, max_size=6), st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=30))
def test_conflicts_are_those_of_every_access_with_every_earlier_one(pool: list[View], calls: list[tuple[int, bool]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(access, "CHUNK", SMALL)
        patch.setattr(access, "WIDE", 4)
        patch.setattr(access, "PITCHES", 2)
        history, plain = History({}, BASES), Plain()
        history.space = {t: t if m is Memory.HBM else int(m) for t, m in MEMORIES.items()}
        for unit, (which, writes) in enumerate(calls):
            view = pool[which % len(pool)]
            quick = [a.unit for a in history.conflicts(unit, unit % 3, view, writes)]
            assert quick == plain.conflicts(unit, unit % 3, view, writes)


# --- how many are looked at


def columns(n: int, memory: Memory) -> Iterator[View]:
    tensor = whole("t", memory, (128, 8 * n) if memory is Memory.HBM else (128, 16, 8 * n), DTYPES["float32"])
    return (tensor[..., 8 * i : 8 * i + 8] for i in range(n))


def strides(n: int, memory: Memory) -> Iterator[View]:
    tensor = whole("t", memory, (16 * n,) if memory is Memory.HBM else (128, 16 * n), DTYPES["float32"])
    return (tensor[..., i::n] for i in range(n))


def blocks(n: int, memory: Memory) -> Iterator[View]:
    side = math.isqrt(n)
    tensor = whole("t", memory, (16 * side, 4 * side) if memory is Memory.HBM else (128, 16 * side, 4 * side), DTYPES["bfloat16"])
    return (tensor[..., 16 * i : 16 * i + 16, 4 * j : 4 * j + 4] for i in range(side) for j in range(side))


def looked_at(kind: object, n: int, memory: Memory) -> int:
    """Accesses and full buckets that n writes of parts of one tensor look at, and n reads of the same parts after them."""
    history, out = History({}, {}), 0
    for writes in (True, False):
        for unit, view in enumerate(kind(n, memory)):  # type: ignore[operator]
            search = history.access(unit, 0, view, writes)[1][1]
            out += sum(map(bool, search)) + len(history.seen(search))
            found = history.conflicts(unit + n * (not writes), 0, view, writes)
            assert [a.unit for a in found] == ([] if writes else [unit])
    return out


@pytest.mark.parametrize("memory", [Memory.HBM, Memory.SBUF])
@pytest.mark.parametrize("kind", [columns, strides, blocks])
def test_parts_of_a_tensor_are_found_without_looking_at_all_others(kind: object, memory: Memory) -> None:
    few, many = looked_at(kind, 64, memory), looked_at(kind, 256, memory)
    assert many <= 6 * few, "four times the parts take four times the work, not sixteen"


def test_a_comb_of_any_pitch_is_compared_without_listing_its_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """[rows, 8] at columns 0 and 8 of 16: listing runs would take memory for every row of every view."""

    def listed(view: View) -> tuple[np.ndarray, int]:
        raise AssertionError(f"runs of {view}")

    monkeypatch.setattr(View, "runs", property(listed))
    t = whole("t", Memory.HBM, (4096, 16), DTYPES["float32"])
    assert not t[:, :8].overlaps(t[:, 8:])
    assert t[:, :9].overlaps(t[:, 8:])
    assert not t[:2000, :9].overlaps(t[2000:, 8:])
    assert t[:2000, :9].overlaps(t[1999:, 8:])
    assert t[5].overlaps(t[:, 8:])
    assert not t[5, :8].overlaps(t[:, 8:])
