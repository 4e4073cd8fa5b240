"""DMA: what a trigger costs its queue, and how its rows pass through the DMA engines.

    first packet on engine k = trigger + first + k x stagger     (both grow with the KiB an engine moves, hardware loads)
    row                      = row_ns + bytes / rate             one packet each; rows up to 512 B have their own numbers
    completion               = end of the semaphore packet + done + semaphore latency

A transposing or summing DMA takes longer for its rows (`packet_ns`), one with indices longer for its descriptors
(`software`, `trigger`).

Source: replay of trn2 instruction streams (docs/timing.md, DMA).
"""

from __future__ import annotations

import math
from fractions import Fraction

import attrs

from ..chip import Reader
from ..isa import Engine, Memory
from ..isa.dma import Dma, DmaCompute2d
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


def trigger(dma: Dma, engine: Engine, rows: int, chip: Reader) -> Cost:
    """A hardware or static trigger on its queue; state 1: it follows another trigger."""
    c, mode = chip.chip, f"dma.{dma.generation}"
    busy = chip(f"{mode}.trigger_ns") + chip(f"{mode}.trigger_row_ns") * rows
    if dma.addressing != "static":
        busy += chip("dma.hardware.dynamic_ns")
    gap = chip(f"{mode}.gap_scalar_ns" if engine is Engine.SCALAR else f"{mode}.gap_ns")
    alone, following = c.ticks(busy), c.ticks(busy + chip(f"{mode}.follow_ns"))
    gaps = c.ticks(gap)
    latency = (max(alone, 1), max(following, 1)) * 2
    issue = (max(alone + gaps, 1), max(following + gaps, 1)) * 2
    return Cost(issue, latency)


def software(dma: Dma, rows: int, chip: Reader) -> tuple[int, int, int]:
    """GpSimd's ticks for the descriptors of one DMA, the ticks to its visible trigger, and how long that shows."""
    interval, latency = chip("dma.software.interval_ns"), chip("dma.software.latency_ns")
    addressing, added = dma.addressing, Fraction(0)
    if addressing != "static":
        added += chip(f"dma.software.{addressing}_ns")
    if addressing == "indirect" and rows > chip("dma.software.indirect_rows"):
        added += (rows - chip("dma.software.indirect_rows")) * chip("dma.software.indirect_row_ns")
    ticks = chip.chip.ticks
    return ticks(interval + added), ticks(latency + added), ticks(chip("dma.software.shown_ns"))


def transposed_rows(dma: Dma, chip: Reader) -> list[int]:
    """Source rows of a transpose on each DMA engine: the engines take one row each and write a group of columns together."""
    engines, first = chip("dma.engines"), dma.sources[0].shape[0]
    groups = dma.dst.size // dma.row_elements // first
    return [groups * (first // engines + (k < first % engines)) for k in range(engines)]


def rows_by_engine(dma: Dma, chip: Reader) -> tuple[list[int], int]:
    """Descriptor rows on each DMA engine, and the bytes of one row."""
    if dma.axes is not None:
        return transposed_rows(dma, chip), dma.row_bytes
    engines, served = chip("dma.engines"), chip("dma.partitions_per_engine")
    size = dma.row_bytes
    pieces = -(-size // chip("dma.max_row_bytes")) if size > MEASURED_ROW_BYTES else 1
    rows = dma.dst.size // dma.row_elements * pieces
    side = next((v for v in (dma.dst, *dma.sources) if v.memory is Memory.SBUF), None)
    if side is None or not served:
        spread = engines if side is None else min(engines, side.partitions)
        counts = [rows // spread + (k < rows % spread) if k < spread else 0 for k in range(engines)]
    else:
        counts = [0] * engines
        for p in range(side.partition, side.partition + side.partitions):
            counts[min(p // served, engines - 1)] += 1
        counts = [n * (rows // side.partitions) for n in counts]
    return counts, -(-size // pieces)


def shares(dma: Dma, chip: Reader) -> list[Share]:
    """Every DMA engine's part; engines without rows still send their semaphore packet."""
    c, mode, load = chip.chip, f"dma.{dma.generation}", dma.load
    counts, size = rows_by_engine(dma, chip)
    packet = max(1, c.ticks(packet_ns(dma, size, chip)))
    verb = "load" if load else "store"
    first, stagger = chip(f"{mode}.{verb}_first_ns"), chip(f"{mode}.{verb}_stagger_ns")
    stall = c.ticks(chip(f"{mode}.load_stall_ns")) if load else 0
    last = max(1, c.ticks(chip("dma.semaphore_packet_ns")))
    out = []
    for k, n in enumerate(counts):
        kib = Fraction(n * size, 1024)
        start, step = first, stagger
        if load:
            start += chip(f"{mode}.load_first_ns_per_kib") * kib
            step += chip(f"{mode}.load_stagger_ns_per_kib") * kib
        busy = chip(f"{mode}.busy_stall_ratio") if load else Fraction(0)
        out.append(
            Share(
                engine=k,
                arrival=max(1, c.ticks(start + k * step)),
                packets=n,
                packet=packet,
                first=stall if n else 0,
                last=last,
                load=load,
                busy_delay=c.ticks(chip(f"{mode}.busy_delay_ns")) if load else 0,
                busy_stall=int(busy * n * packet + Fraction(1, 2)) if load else 0,
            )
        )
    return out


def packet_ns(dma: Dma, size: int, chip: Reader) -> Fraction:
    """One descriptor row of `size` bytes on an engine."""
    if dma.axes is not None:
        return transposed_row_ns(dma, size, chip)
    copied = row_ns(size, dma.load, chip)
    if not isinstance(dma, DmaCompute2d) or len(dma.srcs) == 1:
        return copied
    further = (len(dma.srcs) - 2) * chip("dma.compute.further_ratio") if len(dma.srcs) > 2 else Fraction(0)
    return copied * (1 / Fraction(chip("dma.compute.pair_ratio")) + further)


def transposed_row_ns(dma: Dma, size: int, chip: Reader) -> Fraction:
    """A source row: a share of the rate at which 4 KiB rows are copied. A narrow row takes as long as a wide one.

    Rows that are not contiguous in the source are read in pieces, each for what copying it takes, if that is longer.
    """
    src = dma.sources[0]
    ratio = chip("dma.transpose.hbm_ratio" if src.memory is Memory.HBM else "dma.transpose.sbuf_ratio")
    wide = max(size, chip("dma.transpose.full_row_elements") * src.dtype.itemsize)
    whole = row_ns(MEASURED_ROW_BYTES, dma.load, chip) * wide / MEASURED_ROW_BYTES
    piece = math.gcd(src.run(), dma.row_elements)
    pieces = row_ns(piece * src.dtype.itemsize, dma.load, chip) * (dma.row_elements // piece) if piece < dma.row_elements else Fraction(0)
    return Fraction(max(whole, pieces) / ratio)


def row_ns(size: int, load: bool, chip: Reader) -> Fraction:
    """One descriptor row of a copy on an engine."""
    small = size <= chip("dma.small_row_bytes")
    if load:
        fixed, rate = chip("dma.small_load_row_ns" if small else "dma.row_ns"), chip("dma.load_bytes_per_ns")
    elif small:
        fixed, rate = chip("dma.small_store_row_ns"), chip("dma.small_store_bytes_per_ns")
    else:
        fixed, rate = chip("dma.row_ns"), chip("dma.store_bytes_per_ns")
    return Fraction(fixed + Fraction(size) / rate)


def done_ticks(dma: Dma, chip: Reader) -> int:
    """From an engine's semaphore packet to the waiting sequencer's dispatch."""
    done = chip("dma.load_done_ns" if dma.load else "dma.store_done_ns")
    return chip.chip.ticks(done + chip("semaphore.latency_ns"))
