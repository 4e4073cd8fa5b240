"""Addresses for tensors that have none, and the check of those that have.

As the compiler does it on the traces (lowering rules B12, B13): SBUF tensors that engines write grow up from the
reserved bottom, those that DMA writes grow down from the top; each PSUM tensor owns its banks, least recently used first.
Buffers of dead tensors are reused only when there is no room otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from .chip import Reader
from .isa import Memory, Step
from .isa.dma import Dma
from .isa.errors import ProgramError
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
    for k, a in enumerate(fixed):
        for b in fixed[:k]:
            if a.name in live and b.name in live and live[a.name].meets(live[b.name]) and _collide(a, b, a.address or 0, b.address or 0):
                raise ProgramError(
                    f"{a.line} tensors {b.name} and {a.name}".strip(),
                    "overlap while both are live",
                    "addresses that do not, or lives one after the other",
                )


def _collide(a: Tensor, b: Tensor, at: int, bt: int) -> bool:
    apart = a.partition >= b.partition + b.shape[0] or b.partition >= a.partition + a.shape[0]
    return not apart and at < bt + b.partition_bytes and bt < at + a.partition_bytes


class _Sbuf:
    def __init__(self, chip: Reader, by_dma: set[str]) -> None:
        self.chip, self.by_dma = chip, by_dma

    def place(
        self, free: Sequence[Tensor], tensors: Mapping[str, Tensor], fixed: Mapping[str, int], live: Mapping[str, Life]
    ) -> dict[str, int]:
        """Everything side by side if it fits; else over dead tensors, lowest address that is free for the whole life."""
        low, high = _limits(Memory.SBUF, self.chip)
        taken = sorted((at, at + tensors[name].partition_bytes) for name, at in fixed.items())
        if (placed := self.bump(free, low, high, taken)) is not None:
            return {**fixed, **placed}
        out = dict(fixed)
        for t in free:
            near = [(out[n], out[n] + tensors[n].partition_bytes) for n in out if n in fixed or live[n].meets(live[t.name])]
            at = _first_fit(sorted(near), -(-t.partition_bytes // ALIGN) * ALIGN, low, high)
            if at is None:
                held = sum(b - a for a, b in near)
                raise ProgramError(
                    f"{t.line} tensor {t.name}".strip(),
                    f"{t.partition_bytes} bytes per partition beside {held} live",
                    f"{high - low} bytes of SBUF in all",
                    self.chip.chip.name,
                )
            out[t.name] = at
        return out

    def bump(self, free: Sequence[Tensor], low: int, high: int, taken: Sequence[tuple[int, int]]) -> dict[str, int] | None:
        """From both ends towards the middle, around given addresses; None if they meet."""
        out = {}
        for t in free:
            size = -(-t.partition_bytes // ALIGN) * ALIGN
            if t.name in self.by_dma:
                for start, end in reversed(taken):
                    high = min(high, start) // ALIGN * ALIGN if start < high and end > high - size else high
                high -= size
                out[t.name] = high
            else:
                for start, end in taken:
                    low = -(-max(low, end) // ALIGN) * ALIGN if start < low + size and end > low else low
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
        for t in free:
            banks, life = -(-t.partition_bytes // bank), live[t.name]
            held = [(out[n] // bank, -(-(out[n] + tensors[n].partition_bytes) // bank)) for n in out if n in fixed or live[n].meets(life)]
            choices = [b for b in range(len(last_use) - banks + 1) if all(b + banks <= lo or b >= hi for lo, hi in held)]
            if choices:
                best = min(choices, key=lambda b: (max(last_use[b : b + banks]), b))
                out[t.name] = best * bank
            else:
                out[t.name] = self.share(t, out, fixed, tensors, live, bank, size)
            for b in range(out[t.name] // bank, -(-(out[t.name] + t.partition_bytes) // bank)):
                last_use[b] = max(last_use[b], life.last)
        return out

    def share(
        self,
        t: Tensor,
        out: Mapping[str, int],
        fixed: Mapping[str, int],
        tensors: Mapping[str, Tensor],
        live: Mapping[str, Life],
        bank: int,
        size: int,
    ) -> int:
        near = sorted((out[n], out[n] + tensors[n].partition_bytes) for n in out if n in fixed or live[n].meets(live[t.name]))
        length = -(-t.partition_bytes // ALIGN) * ALIGN
        for start in range(0, size, bank):
            end = min(size, start + bank) if length <= bank else size
            if (at := _first_fit(near, length, start, end)) is not None:
                return at
        held = sum(b - a for a, b in near)
        raise ProgramError(
            f"{t.line} tensor {t.name}".strip(),
            f"{t.partition_bytes} bytes per partition beside {held} live",
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
