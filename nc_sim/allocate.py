"""Addresses for tensors that have none, and the check of those that have.

As the compiler does it on the traces (lowering rules B12, B13): SBUF tensors that engines write grow up from the
reserved bottom, those that DMA writes grow down from the top; each PSUM tensor owns its banks, least recently used first.
Buffers of dead tensors are reused only when there is no room otherwise.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence

import attrs

from .chip import Reader
from .isa import Memory, Step
from .isa.dma import Dma
from .isa.errors import ProgramError
from .plane import Plane
from .program import Tensor

ALIGN = 4  # bytes; traces pack tensors without gaps at this grain
HBM_ALIGN = 64


@attrs.frozen
class Life:
    """First and last step that touches a tensor."""

    first: int
    last: int

    def meets(self, other: Life) -> bool:
        """True if both are live at some step."""
        return self.first <= other.last and other.first <= self.last


def lives(steps: Sequence[Step], loops: Iterable[tuple[int, int]] = ()) -> dict[str, Life]:
    """When each tensor is live, in program order; what a loop touches is live throughout it."""
    out: dict[str, Life] = {}
    for k, step in enumerate(steps):
        for _, view, _ in step.instruction.views:
            before = out.get(view.tensor)
            out[view.tensor] = Life(before.first if before else k, k)
    for first, last in loops:
        for name in dict.fromkeys(v.tensor for step in steps[first : last + 1] for _, v, _ in step.instruction.views):
            out[name] = Life(min(out[name].first, first), max(out[name].last, last))
    return out


def allocate(
    steps: Sequence[Step], tensors: Mapping[str, Tensor], chip: Reader, loops: Iterable[tuple[int, int]] = ()
) -> dict[str, int]:  # fmt: skip
    """The address of every tensor, by name; ProgramError if they do not fit or given ones collide.

    `loops` are first and last step of each loop, inner ones first.
    """
    live = lives(steps, loops)
    by_dma = {s.instruction.dst.tensor for s in steps if isinstance(s.instruction, Dma)}
    out = _hbm(tensors.values(), chip)
    for memory in (Memory.SBUF, Memory.PSUM):
        mine = [t for t in tensors.values() if t.memory is memory]
        for t in mine:
            _check_shape(t, chip)
        fixed = [t for t in mine if t.address is not None]
        _check_fixed(fixed, live, chip)
        free = [t for t in mine if t.address is None and t.name in live]
        free.sort(key=lambda t: live[t.name].first)
        placed = {t.name: t.address for t in fixed if t.address is not None}
        placer = _Sbuf(chip, by_dma) if memory is Memory.SBUF else _Psum(chip)
        out |= placer.place(free, {t.name: t for t in mine}, placed, live)
        out |= {t.name: 0 for t in mine if t.name not in out}  # never touched
    return out


def _hbm(tensors: Iterable[Tensor], chip: Reader) -> dict[str, int]:
    out, at = {}, 0
    for t in tensors:
        if t.memory is Memory.HBM:
            out[t.name] = at
            at += -(-t.partition_bytes // HBM_ALIGN) * HBM_ALIGN
    if at > chip("memory.hbm_bytes"):
        raise ProgramError("allocate", f"HBM tensors take {at} bytes", f"at most {chip('memory.hbm_bytes')}", chip.chip.name)
    return out


def _limits(memory: Memory, chip: Reader) -> tuple[int, int]:
    if memory is Memory.PSUM:
        return 0, chip("memory.psum_partition_bytes")
    return chip("memory.sbuf_reserved_low_bytes"), chip("memory.sbuf_partition_bytes") - chip("memory.sbuf_reserved_high_bytes")


def _check_shape(t: Tensor, chip: Reader) -> None:
    partitions = chip("memory.partitions")
    if t.partition + t.shape[0] > partitions:
        raise ProgramError(
            f"{t.line} tensor {t.name}".strip(),
            f"partitions {t.partition} to {t.partition + t.shape[0]}",
            f"at most {partitions} partitions",
            chip.chip.name,
        )
    low, high = _limits(t.memory, chip)
    if t.partition_bytes > high - low:
        raise ProgramError(
            f"{t.line} tensor {t.name}".strip(),
            f"{t.partition_bytes} bytes per partition",
            f"at most {high - low} of {t.memory.name}",
            chip.chip.name,
        )


def _check_fixed(fixed: Sequence[Tensor], live: Mapping[str, Life], chip: Reader) -> None:
    """Given addresses stay inside the memory, and may overlap only when not live together."""
    for t in fixed:
        size = chip("memory.psum_partition_bytes" if t.memory is Memory.PSUM else "memory.sbuf_partition_bytes")
        assert t.address is not None
        if t.address + t.partition_bytes > size:
            raise ProgramError(
                f"{t.line} tensor {t.name}".strip(),
                f"bytes {t.address} to {t.address + t.partition_bytes}",
                f"the {size} bytes of a {t.memory.name} partition",
                chip.chip.name,
            )
    before: Plane[int] = Plane()  # by life and bytes
    for k, a in enumerate(fixed):
        if a.name not in live:
            continue
        assert a.address is not None
        box = (live[a.name].first, live[a.name].last), (a.address, a.address + a.partition_bytes - 1)
        near = {j for cell in before.search(*box) for j in cell}
        for b in (fixed[j] for j in sorted(near)):
            if live[a.name].meets(live[b.name]) and _collide(a, b, a.address, b.address or 0):
                raise ProgramError(
                    f"{a.line} tensors {b.name} and {a.name}".strip(),
                    "overlap while both are live",
                    "addresses that do not, or lives one after the other",
                )
        for cell in before.keep(*box):
            cell.append(k)


def _collide(a: Tensor, b: Tensor, at: int, bt: int) -> bool:
    apart = a.partition >= b.partition + b.shape[0] or b.partition >= a.partition + a.shape[0]
    return not apart and at < bt + b.partition_bytes and bt < at + a.partition_bytes


class _Live:
    """What is placed and still live, by address, as tensors come in order of their first step."""

    def __init__(self, fixed: Iterable[tuple[int, int]]) -> None:
        self.fixed = sorted(fixed)  # never reused
        self.places = _joined(self.fixed)  # sorted first byte and byte after the last
        self.ends: list[tuple[int, tuple[int, int]]] = []  # a heap: last step, place

    def add(self, place: tuple[int, int], last: int) -> None:
        """A tensor here, live up to a step."""
        insort(self.places, place)
        heapq.heappush(self.ends, (last, place))

    def at(self, step: int) -> list[tuple[int, int]]:
        """Places that are not free at a step, at which all that were added have begun."""
        while self.ends and self.ends[0][0] < step:
            del self.places[bisect_left(self.places, heapq.heappop(self.ends)[1])]
        return self.places

    def held(self) -> int:
        """Bytes of all of them, those that several share counted for each."""
        return sum(b - a for a, b in self.fixed) + sum(b - a for _, (a, b) in self.ends)


def _joined(places: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted places, those that share bytes as one."""
    out: list[tuple[int, int]] = []
    for start, end in places:
        if out and start < out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return out


class _Sbuf:
    def __init__(self, chip: Reader, by_dma: set[str]) -> None:
        self.chip, self.by_dma = chip, by_dma

    def place(
        self, free: Sequence[Tensor], tensors: Mapping[str, Tensor], fixed: Mapping[str, int], live: Mapping[str, Life]
    ) -> dict[str, int]:
        """Everything side by side if it fits; else over dead tensors, lowest address that is free for the whole life."""
        low, high = _limits(Memory.SBUF, self.chip)
        taken = [(at, at + tensors[name].partition_bytes) for name, at in fixed.items()]
        if (placed := self.bump(free, low, high, _joined(sorted(taken)))) is not None:
            return {**fixed, **placed}
        out, near = dict(fixed), _Live(taken)
        for t in free:
            at = _first_fit(near.at(live[t.name].first), -(-t.partition_bytes // ALIGN) * ALIGN, low, high)
            if at is None:
                raise ProgramError(
                    f"{t.line} tensor {t.name}".strip(),
                    f"{t.partition_bytes} bytes per partition beside {near.held()} live",
                    f"{high - low} bytes of SBUF in all",
                    self.chip.chip.name,
                )
            out[t.name] = at
            near.add((at, at + t.partition_bytes), live[t.name].last)
        return out

    def bump(self, free: Sequence[Tensor], low: int, high: int, taken: Sequence[tuple[int, int]]) -> dict[str, int] | None:
        """From both ends towards the middle, around given addresses, sorted and apart; None if they meet."""
        out = {}
        above, below = 0, len(taken)  # those that `low` has not passed, and `high` has not
        for t in free:
            size = -(-t.partition_bytes // ALIGN) * ALIGN
            if t.name in self.by_dma:
                while below:
                    start, end = taken[below - 1]
                    if start < high and end <= high - size:
                        break
                    high = start // ALIGN * ALIGN if start < high else high
                    below -= 1
                high -= size
                out[t.name] = high
            else:
                while above < len(taken):
                    start, end = taken[above]
                    if start >= low + size and end > low:
                        break
                    low = -(-end // ALIGN) * ALIGN if end > low else low
                    above += 1
                out[t.name] = low
                low += size
            if low > high:
                return None
        return out


class _Psum:
    def __init__(self, chip: Reader) -> None:
        self.chip = chip

    def place(
        self, free: Sequence[Tensor], tensors: Mapping[str, Tensor], fixed: Mapping[str, int], live: Mapping[str, Life]
    ) -> dict[str, int]:
        """Whole banks, the least recently used that are free; shared banks only when there are too few."""
        bank, size = self.chip("memory.psum_bank_bytes"), self.chip("memory.psum_partition_bytes")
        out = dict(fixed)
        last_use = [-1] * (size // bank)
        for name, at in fixed.items():
            for b in range(at // bank, -(-(at + tensors[name].partition_bytes) // bank)):
                last_use[b] = max(last_use[b], live[name].last if name in live else -1)
        near = _Live((at, at + tensors[name].partition_bytes) for name, at in fixed.items())
        for t in free:
            banks, life = -(-t.partition_bytes // bank), live[t.name]
            held = {(start // bank, -(-end // bank)) for start, end in near.at(life.first)}
            choices = [b for b in range(len(last_use) - banks + 1) if all(b + banks <= lo or b >= hi for lo, hi in held)]
            if choices:
                best = min(choices, key=lambda b: (max(last_use[b : b + banks]), b))
                out[t.name] = best * bank
            else:
                out[t.name] = self.share(t, near, bank, size)
            near.add((out[t.name], out[t.name] + t.partition_bytes), life.last)
            for b in range(out[t.name] // bank, -(-(out[t.name] + t.partition_bytes) // bank)):
                last_use[b] = max(last_use[b], life.last)
        return out

    def share(self, t: Tensor, near: _Live, bank: int, size: int) -> int:
        """A place beside what is live, in one bank if it is that small."""
        length = -(-t.partition_bytes // ALIGN) * ALIGN
        for start in range(0, size, bank):
            end = min(size, start + bank) if length <= bank else size
            if (at := _first_fit(near.places, length, start, end)) is not None:
                return at
        raise ProgramError(
            f"{t.line} tensor {t.name}".strip(),
            f"{t.partition_bytes} bytes per partition beside {near.held()} live",
            f"{size} bytes of PSUM in all, banks of {bank}",
            self.chip.chip.name,
        )


def _first_fit(near: Sequence[tuple[int, int]], length: int, low: int, high: int) -> int | None:
    at = low
    for start, end in near:
        if start - at >= length:
            break
        at = max(at, -(-end // ALIGN) * ALIGN)
    return at if at + length <= high else None
