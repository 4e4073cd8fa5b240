"""DMA packets of a hardware profile: of NAME.dma.csv beside NAME.instr.csv, or of a JSON export (docs/traces.md)."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from ..isa import Engine, Step
from ..isa.dma import DmaDirect2d
from ..isa.errors import ProgramError
from . import profile_rows
from .profile_csv import Measured, Profile

NEEDED = ("timestamp_ns", "duration_ns", "dma_engine", "dma_queue", "queue_type", "bytes", "packet_idx")
NUMBERS = tuple(c for c in NEEDED if c != "queue_type")
SEMAPHORE_BYTES = 4
ENGINES = 16  # DMA engines of a core; each has a semaphore packet of every DMA
STALLED_NS = 620  # from a hardware trigger's start of its descriptors to its own end

Placed = tuple[str, Mapping[str, str]]  # where a row stands, and its columns


@attrs.frozen
class Packet:
    """One packet of a DMA engine, in ns of the profile."""

    start_ns: int
    end_ns: int
    engine: int
    queue: int
    queue_type: str
    bytes: int
    index: int


@attrs.frozen
class Part:
    """What a DMA engine has of one transfer: the packets of a queue up to that of its semaphore."""

    engine: int
    queue: int
    packets: tuple[Packet, ...]

    @property
    def start_ns(self) -> int:
        return min(p.start_ns for p in self.packets)

    @property
    def end_ns(self) -> int:
        return max(p.end_ns for p in self.packets)

    @property
    def bytes(self) -> int:
        return sum(p.bytes for p in self.packets)


def beside(path: Path) -> Path:
    """Where the packets of `NAME.instr.csv` are."""
    return path.with_name(path.name.removesuffix(".csv").removesuffix(".instr") + ".dma.csv")


def rows(path: Path) -> Iterator[Placed]:
    """Every row of NAME.dma.csv with its file and line, checked."""
    return profile_rows.read(path, NEEDED, NUMBERS, "the DMA packets beside the instructions, NAME.dma.csv")


def place_of(path: Path, profile: Profile) -> Path:
    """The file that has the packets of a profile."""
    return beside(path) if profile.packets is None else path


def rows_of(path: Path, profile: Profile) -> Iterable[Placed]:
    """The rows of a profile's packets: its own, or those of the file beside it."""
    return rows(beside(path)) if profile.packets is None else profile.packets


def packets_of(path: Path, profile: Profile) -> list[Packet]:
    """The DMA packets of a profile. ProgramError for a row of no use, or packets of another run."""
    found = [packet(r) for _, r in rows_of(path, profile)]
    require_same_run(place_of(path, profile), profile.measured, found)
    return found


def packet(r: Mapping[str, str]) -> Packet:
    """One row."""
    start = int(r["timestamp_ns"])
    end = start + int(r["duration_ns"])
    return Packet(start, end, int(r["dma_engine"]), int(r["dma_queue"]), r["queue_type"], int(r["bytes"]), int(r["packet_idx"]))


def require_same_run(where: Path, measured: Sequence[Measured], packets: Iterable[Packet]) -> None:
    """ProgramError where packets cannot be those of the kernel's DMAs: sent before the first trigger, over before the last
    begins, or under way when the kernel has ended. A profile without such packets or triggers says nothing."""
    moved = [p for p in packets if "dynamic" in p.queue_type]
    begun = [m.start_ns for m in measured if m.opcode.startswith("DMA")]
    if not moved or not begun:
        return
    first, last = min(p.start_ns for p in moved), max(p.end_ns for p in moved)
    end = max(m.start_ns + m.duration_ns for m in measured)
    wrong = None
    if first < min(begun):
        wrong = f"a packet at {first} ns, before the first trigger at {min(begun)}"
    elif last < max(begun):
        wrong = f"the last packet ends at {last} ns, before the last trigger at {max(begun)}"
    elif last > end:
        wrong = f"a packet ends at {last} ns, after the kernel at {end}"
    if wrong is not None:
        raise ProgramError(str(where), wrong, "packets and instructions of one run, both whole")


def kind_of(step: Step) -> str:
    """The type of a DMA's queue."""
    return "software_dynamic" if step.engine is Engine.GPSIMD else "hardware_dynamic"


def parts(packets: Iterable[Packet]) -> list[Part]:
    """The kernel's packets by DMA engine, queue and transfer; the runtime's own, which are static, are left out."""
    of: dict[tuple[int, str, int], list[Packet]] = {}
    for p in sorted(packets, key=lambda p: (p.start_ns, p.index)):  # indices count on from transfer to transfer, or start again
        if "dynamic" in p.queue_type:
            of.setdefault((p.engine % ENGINES, p.queue_type, p.queue), []).append(p)
    out = []
    for (engine, _, queue), mine in sorted(of.items()):
        last = [k + 1 for k, p in enumerate(mine) if p.bytes == SEMAPHORE_BYTES]
        ends = [*last, len(mine)]
        out += [Part(engine, queue, tuple(mine[a:b])) for a, b in zip([0, *last], ends, strict=True) if a < b]
    return out


def measured_dma(path: Path, profile: Profile) -> dict[int, float]:
    """Measured latency of every DMA, step index to ns from its trigger to the end of its last packet."""
    queues: dict[tuple[str, int], list[tuple[int, int, int]]] = collections.defaultdict(list)
    for p in packets_of(path, profile):
        if "dynamic" in p.queue_type and p.bytes == SEMAPHORE_BYTES:
            queues[p.queue_type, p.queue].append((p.index, p.engine, p.end_ns))
    out: dict[int, float] = {}
    for engine in (Engine.GPSIMD, Engine.SYNC, Engine.SCALAR):
        mine = [k for k, s in enumerate(profile.steps) if s.engine is engine and isinstance(s.instruction, DmaDirect2d)]
        if not mine:
            continue
        kind = kind_of(profile.steps[mine[0]])
        begun = [_begun(profile.measured[k], kind) for k in mine]
        fitting = [k for k in queues if k[0] == kind and len(queues[k]) == ENGINES * len(mine) and _follows(queues[k], begun)]
        key = min(fitting, key=lambda k: (max(end for _, _, end in queues[k]), k), default=None)
        if key is None:
            raise ProgramError(
                str(place_of(path, profile)),
                f"no {kind} queue with {ENGINES * len(mine)} semaphore packets",
                f"one for the {len(mine)} DMAs of {engine.label}",
            )
        ends: dict[int, list[int]] = collections.defaultdict(list)
        for _, dma_engine, end in sorted(queues.pop(key)):
            ends[dma_engine].append(end)
        for n, k in enumerate(mine):
            out[k] = max(e[n] for e in ends.values()) - begun[n]
    return out


def _begun(m: Measured, kind: str) -> int:
    """When a DMA starts: a hardware trigger that stalled starts it when the stall ends, about 620 ns before its own end."""
    return m.start_ns if kind == "software_dynamic" else max(m.start_ns, m.start_ns + m.duration_ns - STALLED_NS)


def _follows(packets: Sequence[tuple[int, int, int]], begun: Sequence[int]) -> bool:
    """True if every DMA engine's n-th semaphore packet ends after the n-th DMA began: the queue may be this engine's."""
    ends: dict[int, list[int]] = collections.defaultdict(list)
    for _, dma_engine, end in sorted(packets):
        ends[dma_engine].append(end)
    return all(len(e) == len(begun) and all(end > start for end, start in zip(e, begun, strict=True)) for e in ends.values())
