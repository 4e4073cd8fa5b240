"""DMA: what a trigger costs its queue, and how its rows pass through the DMA engines.

    first packet on engine k = trigger + first + k x stagger     (both grow with the KiB an engine moves, hardware loads)
    row                      = row_ns + bytes / rate             one packet each; rows up to 512 B have their own numbers
    completion               = end of the semaphore packet + done + semaphore latency

Source: replay of trn2 instruction streams (docs/timing.md, DMA).
"""

from __future__ import annotations

import math
from fractions import Fraction

import attrs

from ..chip import Reader
from ..isa import Engine, Memory
from ..isa.dma import DmaDirect2d
from .cost import Cost

MEASURED_ROW_BYTES = 4096  # rows up to this size are replayed; only longer ones rest on `dma.max_row_bytes`


@attrs.frozen(slots=True)
class Share:
    """One DMA engine's part of a transfer, in ticks and packets."""

    engine: int
    arrival: int
    packets: int
    packet: int
    first: int
    last: int
    load: bool
    busy_delay: int
    busy_stall: int
    units: int
    burst: int
    settle: int


@attrs.frozen
class CoreLimit:
    """What all DMA engines move together, as the table's bucket counts it: `drain` units a tick, so many units a byte."""

    drain: int = 0
    load_units: Fraction = Fraction(0)
    store_units: Fraction = Fraction(0)

    def units(self, load: bool, count: int | Fraction) -> int:
        """Units of so many bytes; what is less than one is left out."""
        return int(count * (self.load_units if load else self.store_units))


def core_limit(chip: Reader) -> CoreLimit:
    """The smallest units in which both directions are whole. A direction without a limit puts none in."""
    load, store = (chip(f"dma.core_{verb}_bytes_per_ns") / chip.chip.ticks_per_ns for verb in ("load", "store"))  # bytes a tick
    drain = math.lcm(*(rate.numerator for rate in (load, store) if rate))
    if not load and not store:
        return CoreLimit()
    return CoreLimit(drain, drain / load if load else Fraction(0), drain / store if store else Fraction(0))


def trigger(dma: DmaDirect2d, engine: Engine, rows: int, chip: Reader) -> Cost:
    """A hardware or static trigger on its queue; state 1: it follows another trigger."""
    c, mode = chip.chip, f"dma.{dma.generation}"
    busy = chip(f"{mode}.trigger_ns") + chip(f"{mode}.trigger_row_ns") * rows
    gap = chip(f"{mode}.gap_scalar_ns" if engine is Engine.SCALAR else f"{mode}.gap_ns")
    alone, following = c.ticks(busy), c.ticks(busy + chip(f"{mode}.follow_ns"))
    gaps = c.ticks(gap)
    latency = (max(alone, 1), max(following, 1)) * 2
    issue = (max(alone + gaps, 1), max(following + gaps, 1)) * 2
    return Cost(issue, latency)


def rows_by_engine(dma: DmaDirect2d, chip: Reader) -> tuple[list[int], int]:
    """Descriptor rows on each DMA engine, and the bytes of one row."""
    engines, served = chip("dma.engines"), chip("dma.partitions_per_engine")
    size = dma.row_bytes
    pieces = -(-size // chip("dma.max_row_bytes")) if size > MEASURED_ROW_BYTES else 1
    rows = dma.dst.size // dma.row_elements * pieces
    side = next((v for v in (dma.dst, dma.src) if v.memory is Memory.SBUF), None)
    if side is None or not served:
        spread = engines if side is None else min(engines, side.partitions)
        counts = [rows // spread + (k < rows % spread) if k < spread else 0 for k in range(engines)]
    else:
        counts = [0] * engines
        for p in range(side.partition, side.partition + side.partitions):
            counts[min(p // served, engines - 1)] += 1
        counts = [n * (rows // side.partitions) for n in counts]
    return counts, -(-size // pieces)


def shares(dma: DmaDirect2d, chip: Reader) -> list[Share]:
    """Every DMA engine's part; engines without rows still send their semaphore packet."""
    c, mode, load = chip.chip, f"dma.{dma.generation}", dma.load
    counts, size = rows_by_engine(dma, chip)
    verb = "load" if load else "store"
    casts = dma.src.dtype != dma.dst.dtype
    together = 1 if casts or dma.generation != "software" else -(-chip("dma.software.packet_bytes") // size)
    less = chip("dma.cast_row_less_ns") if casts else Fraction(0)
    first, stagger = chip(f"{mode}.{verb}_first_ns"), chip(f"{mode}.{verb}_stagger_ns")
    stall = c.ticks(chip(f"{mode}.load_stall_ns")) if load else 0
    last = max(1, c.ticks(chip("dma.semaphore_packet_ns")))
    limit = core_limit(chip)
    burst, settle = 0, -1
    if limit.drain:
        burst = limit.units(load, chip(f"dma.core_{verb}_burst_bytes"))
        settle = c.ticks(chip("dma.core_store_settle_ns")) if not load else -1
    out = []
    for k, n in enumerate(counts):
        kib = Fraction(n * size, 1024)
        start, step = first, stagger
        if load:
            start += chip(f"{mode}.load_first_ns_per_kib") * kib
            step += chip(f"{mode}.load_stagger_ns_per_kib") * kib
        busy = chip(f"{mode}.busy_stall_ratio") if load else Fraction(0)
        packets = -(-n // max(1, together))  # of equal size, where rows join
        packet_bytes = Fraction(n * size, packets) if n else Fraction(size)
        packet = row_ticks(packet_bytes, load, chip, less)
        out.append(
            Share(
                engine=k,
                arrival=max(1, c.ticks(start + k * step)),
                packets=packets,
                packet=packet,
                first=stall if n else 0,
                last=last + (c.ticks(chip(f"dma.{verb}_last_ns")) if n else 0),
                load=load,
                busy_delay=c.ticks(chip(f"{mode}.busy_delay_ns")) if load else 0,
                busy_stall=int(busy * packets * packet + Fraction(1, 2)) + c.ticks(chip(f"{mode}.busy_stall_ns")) if load else 0,
                units=limit.units(load, packet_bytes),
                burst=burst,
                settle=settle,
            )
        )
    return out


def row_ticks(size: int | Fraction, load: bool, chip: Reader, less: Fraction = Fraction(0)) -> int:
    """One packet on an engine, whose fixed time is `less` shorter than that of others."""
    small = size <= chip("dma.small_row_bytes")
    if load:
        fixed, rate = chip("dma.small_load_row_ns" if small else "dma.row_ns"), chip("dma.load_bytes_per_ns")
    elif small:
        fixed, rate = chip("dma.small_store_row_ns"), chip("dma.small_store_bytes_per_ns")
    else:
        fixed, rate = chip("dma.row_ns"), chip("dma.store_bytes_per_ns")
    return max(1, chip.chip.ticks(max(Fraction(0), fixed - less) + Fraction(size) / rate))


def generation_ns(rows: int, chip: Reader) -> tuple[Fraction, Fraction]:
    """GpSimd's time for the descriptors of a DMA by software, and from its dispatch to the visible trigger."""
    least = chip("dma.software.interval_ns")
    interval = max(least, chip("dma.software.interval_row_ns") * rows)
    return interval, chip("dma.software.latency_ns") + interval - least


def done_ticks(dma: DmaDirect2d, chip: Reader) -> int:
    """From an engine's semaphore packet to the waiting sequencer's dispatch."""
    done = chip("dma.load_done_ns" if dma.load else "dma.store_done_ns")
    return chip.chip.ticks(done + chip("semaphore.latency_ns"))
