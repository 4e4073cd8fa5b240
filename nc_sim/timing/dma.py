"""DMA: what a trigger costs its queue, and how its rows pass through the DMA engines.

    first packet on engine k = trigger + first + k x stagger     (both grow with the KiB an engine moves, hardware loads)
    row                      = row_ns + bytes / rate             one packet each; rows up to 512 B have their own numbers
                               software: rows that are neighbours in HBM share the fixed time of a packet of up to 4 KiB,
                               or join to one packet (NeuronCore-v2)
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
from ..isa.dma import Dma, DmaCompute2d, DmaDirect2d
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


def trigger(dma: Dma, engine: Engine, rows: int, chip: Reader) -> Cost:
    """A hardware or static trigger on its queue; state 1: it follows another trigger."""
    c, mode = chip.chip, f"dma.{dma.generation}"
    busy = chip(f"{mode}.trigger_ns") + chip(f"{mode}.trigger_row_ns") * rows
    if dma.addressing != "static":
        busy += chip("sequencer.register_address_ns" if dma.addressing == "register" else "dma.hardware.dynamic_ns")
    gap = chip(f"{mode}.gap_scalar_ns" if engine is Engine.SCALAR else f"{mode}.gap_ns")
    alone, following = c.ticks(busy), c.ticks(busy + chip(f"{mode}.follow_ns"))
    gaps = c.ticks(gap)
    latency = (max(alone, 1), max(following, 1)) * 2
    issue = (max(alone + gaps, 1), max(following + gaps, 1)) * 2
    return Cost(issue, latency)


def software(dma: Dma, rows: int, chip: Reader) -> tuple[int, int, int]:
    """GpSimd's ticks for the descriptors of one DMA, the ticks to its visible trigger, and how long that shows."""
    interval, latency = generation_ns(rows, chip)
    if dma.addressing in ("dynamic", "indirect"):
        added = Fraction(chip(f"dma.software.{dma.addressing}_ns"))
    else:
        added = Fraction(chip("sequencer.register_address_ns")) if dma.addressing == "register" else Fraction(0)
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
    row, shared = max(1, c.ticks(packet_ns(dma, size, chip))), shared_packet_bytes(dma, chip)
    verb = "load" if load else "store"
    together = joined_rows(dma, size, chip)
    first, stagger = chip(f"{mode}.{verb}_first_ns"), chip(f"{mode}.{verb}_stagger_ns")
    stall = c.ticks(chip(f"{mode}.load_stall_ns")) if load else 0
    last = max(1, c.ticks(chip("dma.semaphore_packet_ns")))
    limit, weight = core_limit(chip), limited_weight(dma, size, chip)
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
        packets, packet, first_stall, wait = n, row, stall, Fraction(0)
        if together > 1 and n:  # packets of equal size
            packets = -(-n // together)
            packet = max(1, c.ticks(row_ns(Fraction(n * size, packets), load, chip)))
        elif shared and n:
            filled = -(-n * size // shared)
            packet = max(1, c.ticks(shared_ns(n * size, filled, load, chip) / n))
            if filled == 1:  # the figure: no packet is stalled, and the last engine ends as late as if it were
                first_stall, wait = 0, Fraction(chip(f"{mode}.load_stall_ns") if load else 0) * k / max(1, len(counts) - 1)
        out.append(
            Share(
                engine=k,
                arrival=max(1, c.ticks(start + k * step + wait)),
                packets=packets,
                packet=packet,
                first=first_stall if n else 0,
                last=last + (c.ticks(chip(f"dma.{verb}_last_ns")) if n else 0),
                load=load,
                busy_delay=c.ticks(chip(f"{mode}.busy_delay_ns")) if load else 0,
                busy_stall=int(busy * packets * packet + Fraction(1, 2)) + c.ticks(chip(f"{mode}.busy_stall_ns")) if load else 0,
                units=limit.units(load, (Fraction(n * size, packets) if n else size) * weight),
                burst=burst,
                settle=settle,
            )
        )
    return out


def packet_ns(dma: Dma, size: int, chip: Reader) -> Fraction:
    """One descriptor row of `size` bytes on an engine."""
    if dma.axes is not None:
        return transposed_row_ns(dma, size, chip)
    copied = row_ns(size, dma.load, chip, Fraction(chip("dma.cast_row_less_ns")) if casts(dma) else Fraction(0))
    if not isinstance(dma, DmaCompute2d) or len(dma.srcs) == 1:
        return copied
    further = (len(dma.srcs) - 2) * chip("dma.compute.further_ratio") if len(dma.srcs) > 2 else Fraction(0)
    return copied * (1 / Fraction(chip("dma.compute.pair_ratio")) + further)


def limited_weight(dma: Dma, size: int, chip: Reader) -> Fraction:
    """How many times a byte of a transpose or a sum counts against what all DMA engines move together: as often as it is slower."""
    if dma.axes is not None:
        return packet_ns(dma, size, chip) / (row_ns(MEASURED_ROW_BYTES, dma.load, chip) * size / MEASURED_ROW_BYTES)
    if isinstance(dma, DmaCompute2d) and len(dma.srcs) > 1:
        return packet_ns(dma, size, chip) / row_ns(size, dma.load, chip)
    return Fraction(1)


def casts(dma: Dma) -> bool:
    """Whether it copies into another type."""
    return isinstance(dma, DmaDirect2d) and dma.src.dtype != dma.dst.dtype


def joined_rows(dma: Dma, size: int, chip: Reader) -> int:
    """Rows of `size` bytes that join to one packet: software descriptors of a copy that does not convert."""
    if not isinstance(dma, DmaDirect2d) or dma.generation != "software" or casts(dma):
        return 1
    return max(1, -(-int(chip("dma.software.packet_bytes")) // size))


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


def row_ns(size: int | Fraction, load: bool, chip: Reader, less: Fraction = Fraction(0)) -> Fraction:
    """One packet of a copy on an engine, whose fixed time is `less` shorter than that of others."""
    small = size <= chip("dma.small_row_bytes")
    if load:
        fixed, rate = chip("dma.small_load_row_ns" if small else "dma.row_ns"), chip("dma.load_bytes_per_ns")
    elif small:
        fixed, rate = chip("dma.small_store_row_ns"), chip("dma.small_store_bytes_per_ns")
    else:
        fixed, rate = chip("dma.row_ns"), chip("dma.store_bytes_per_ns")
    return max(Fraction(chip("dma.least_row_ns")), Fraction(max(Fraction(0), fixed - less) + Fraction(size) / rate))


def shared_packet_bytes(dma: Dma, chip: Reader) -> int:
    """The size up to which rows share a packet, or 0: software descriptors, a copy, no conversion, one run of bytes in HBM."""
    if not isinstance(dma, DmaDirect2d) or dma.generation != "software" or casts(dma):
        return 0
    hbm = [v for v in (dma.src, dma.dst) if v.memory is Memory.HBM]
    return int(chip("dma.software.shared_packet_bytes")) if len(hbm) == 1 and hbm[0].contiguous else 0


def shared_ns(size: int, packets: int, load: bool, chip: Reader) -> Fraction:
    """`size` bytes on an engine in as many packets."""
    rate = Fraction(chip("dma.load_bytes_per_ns" if load else "dma.store_bytes_per_ns"))
    return max(packets * Fraction(chip("dma.least_row_ns")), packets * Fraction(chip("dma.row_ns")) + Fraction(size) / rate)


def generation_ns(rows: int, chip: Reader) -> tuple[Fraction, Fraction]:
    """GpSimd's time for the descriptors of one software DMA, and from its dispatch to the visible trigger.

    The trigger is not visible before they are made; where the least DMA's is, by no more than there.
    """
    least, latency = Fraction(chip("dma.software.interval_ns")), Fraction(chip("dma.software.latency_ns"))
    usual = max(least, Fraction(chip("dma.software.interval_row_ns")) * rows)
    interval = usual + max(0, rows - int(chip("dma.software.interval_rows"))) * Fraction(chip("dma.software.further_row_ns"))
    return interval, max(latency + usual - least, interval - max(Fraction(0), least - latency))


def done_ticks(dma: Dma, chip: Reader) -> int:
    """From an engine's semaphore packet to the waiting sequencer's dispatch."""
    done = chip("dma.load_done_ns" if dma.load else "dma.store_done_ns")
    return chip.chip.ticks(done + chip("semaphore.latency_ns"))
