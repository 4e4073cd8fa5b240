"""Rooflines: what a run achieved, and the ceilings of its chip. Rates are per ns: flop/ns is Gflop/s, bytes/ns is GB/s.

The TensorEngine's work is the flops of its products; transposes are left out, with the bytes they stream. That
of the other engines is elements: one for each element that an instruction streams, whatever it does with it. Time is the
body.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import attrs
import numpy as np

from ..chip import Chip, Reader
from ..isa import COMPUTE, Engine, Instruction, Memory
from ..isa.control import Control
from ..isa.dma import Dma
from ..isa.tensor import Matmul
from ..result import Result, body_ticks
from ..timing import elementwise
from ..timing.tensor import FULL_COLUMNS

FLOP, ELEMENT = "flop", "element"
HBM, DMA, SBUF = "HBM", "DMA", "SBUF"


@attrs.frozen
class Ceiling:
    """A rate that a chip cannot pass. Of an engine: work per ns. Of a memory: bytes per ns."""

    chip: str
    name: str
    kind: str  # compute or memory
    engine: str  # of which work it limits; of a memory, the engine whose work its bytes are set against, or empty for all
    rate: float
    unit: str


@attrs.frozen
class Point:
    """What a run achieved on one engine."""

    name: str
    chip: str
    engine: str
    unit: str  # flop or element
    work: int
    time_ns: float
    hbm_bytes: int  # read and written by DMA within the body
    least_bytes: int  # of inputs and outputs, each once
    sbuf_bytes: int  # that the engine's streams read or write in SBUF: of each instruction its longest operand there
    compute_roof: float  # work per ns, of this mix of types and modes
    hbm_rate: float  # bytes per ns
    dma_rate: float  # HBM bytes per ns that the DMA engines move at most, of this mix of directions
    sbuf_rate: float  # bytes per ns
    hbm_bounds: bool  # the DMA engines are no faster than HBM: else the model may pass HBM's rate (docs/limits.md)

    @property
    def achieved(self) -> float:
        """Work per ns."""
        return self.work / self.time_ns

    @property
    def intensity(self) -> float:
        """Work per HBM byte that was moved; infinite where none was."""
        return self.work / self.hbm_bytes if self.hbm_bytes else float("inf")

    @property
    def algorithmic_intensity(self) -> float:
        """Work per byte that had to be moved: each input read and each output written once."""
        return self.work / self.least_bytes if self.least_bytes else float("inf")

    @property
    def sbuf_intensity(self) -> float:
        """Work per SBUF byte streamed."""
        return self.work / self.sbuf_bytes if self.sbuf_bytes else float("inf")

    @property
    def roofs(self) -> dict[str, float]:
        """What each ceiling allows at this point, work per ns."""
        memory = {HBM: self.hbm_rate * self.intensity, DMA: self.dma_rate * self.intensity, SBUF: self.sbuf_rate * self.sbuf_intensity}
        return {"compute": self.compute_roof, **memory}

    @property
    def bound(self) -> str:
        """The lowest ceiling here."""
        return min(self.roofs, key=lambda k: self.roofs[k])

    @property
    def of_roof(self) -> float:
        """Achieved over the lowest ceiling."""
        return self.achieved / self.roofs[self.bound]

    def record(self) -> dict[str, str | int | float | None]:
        """As plain values, properties among them; None where one is infinite, as nothing was moved."""
        more = ("achieved", "intensity", "algorithmic_intensity", "sbuf_intensity", "bound", "of_roof")
        return {k: _finite(v) for k, v in {**attrs.asdict(self), **{k: getattr(self, k) for k in more}}.items()}

    def kept(self) -> dict[str, str | int | float | None]:
        """As plain values, for `read_point`."""
        return {k: _finite(v) for k, v in attrs.asdict(self).items()}


def _finite(value: Any) -> Any:
    """The value, or None for what JSON cannot say."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_point(kept: Mapping[str, Any]) -> Point:
    """The point whose `kept` this is. TypeError for anything else."""
    values: dict[str, Any] = {k: math.inf if v is None else v for k, v in kept.items()}
    return Point(**values)


def points(result: Result, name: str | None = None, engines: Iterable[Engine] | None = None) -> tuple[Point, ...]:
    """A point for each engine asked for that did work; else the TensorEngine's, or where it did none those of the others."""
    reader, ns = result.chip.reader(), result.duration_ns
    moved, least_ns, mixed = _movement(result, reader)
    hbm = float(reader("memory.hbm_bytes_per_ns"))
    by_engine = _engines(result)
    out = []
    for e in COMPUTE if engines is None else engines:
        work, time, sbuf, sbuf_time = 0, Fraction(0), 0, Fraction(0)
        for k, i in enumerate(result.alike.kinds):
            for engine, times in by_engine[k].items():
                if engine is e:
                    done, least, streamed, streaming = _work(i, engine, reader)
                    work, time = work + times * done, time + times * least
                    sbuf, sbuf_time = sbuf + times * streamed, sbuf_time + times * streaming
        if work and ns:
            out.append(
                Point(
                    name=result.program.name if name is None else name, chip=result.chip.name, engine=e.label,
                    unit=FLOP if e is Engine.TENSOR else ELEMENT, work=work, time_ns=ns, hbm_bytes=moved, least_bytes=_least(result),
                    sbuf_bytes=sbuf, compute_roof=float(work / time), hbm_rate=hbm,
                    dma_rate=float(moved / least_ns) if least_ns else float("inf"),
                    sbuf_rate=float(sbuf / sbuf_time) if sbuf_time else float("inf"), hbm_bounds=not mixed,
                )
            )  # fmt: skip
    if engines is None and any(p.engine == Engine.TENSOR.label for p in out):
        return tuple(p for p in out if p.engine == Engine.TENSOR.label)
    return tuple(out)


def ceilings(chip: Chip, engines: Iterable[str]) -> tuple[Ceiling, ...]:
    """The chip's ceilings for the work of these engines, and those of HBM, the DMA engines and SBUF."""
    reader, out = chip.reader(), []
    wanted = set(engines)
    for e in COMPUTE:
        if e.label in wanted:
            out += [Ceiling(chip.name, name, "compute", e.label, rate, "work/ns") for name, rate in _peaks(e, reader)]
    out.append(Ceiling(chip.name, HBM, "memory", "", float(reader("memory.hbm_bytes_per_ns")), "bytes/ns"))
    out.append(
        Ceiling(chip.name, f"{reader('dma.engines')} DMA engines", "memory", "", float(max(_dma_rates(reader).values())), "bytes/ns")
    )
    for e in COMPUTE:
        if e.label in wanted:
            out.append(Ceiling(chip.name, f"SBUF, {e.label}", "memory", e.label, _sbuf_peak(e, reader), "bytes/ns"))
    return tuple(out)


def _peaks(engine: Engine, reader: Reader) -> list[tuple[str, float]]:
    """Names and rates of an engine's compute ceilings, the highest first."""
    lanes, clock = Fraction(reader("memory.partitions")), _clock(engine, reader)
    if engine is Engine.TENSOR:
        passes = {"bf16": 1, "fp32": reader("tensor.fp32_passes")}
        names = {"bf16": "Tensor, 16 and 8 bits", "fp32": "Tensor, fp32"}
        flops = 2 * lanes * FULL_COLUMNS * clock
        return [(names[k], float(flops / (reader(f"tensor.{k}.cycles_per_row") * n))) for k, n in passes.items()]
    if engine is Engine.SCALAR:
        return [("Scalar", float(lanes * clock / Fraction(reader("scalar.cycles_per_element"))))]
    kind = f"{engine.name.lower()}.copy"
    base = Fraction(reader(f"{kind}.cycles_per_element"))
    if engine is Engine.GPSIMD:
        return [("GpSimd", float(lanes * clock / base))] if base else []
    ratios = {"PSUM": Fraction(1), "SBUF": reader(f"{kind}.sbuf_ratio"), "SBUF, 16 bits": reader(f"{kind}.sixteen_bit_ratio")}
    return sorted(((f"Vector, {m}", float(lanes * clock / (base * r))) for m, r in ratios.items()), key=lambda p: -p[1])


def _sbuf_peak(engine: Engine, reader: Reader) -> float:
    """Bytes per ns of one stream of an engine at full rate: 4-byte elements, of the array 2-byte rows of one cycle."""
    lanes, clock = Fraction(reader("memory.partitions")), _clock(engine, reader)
    if engine is Engine.TENSOR:
        return float(max(lanes * clock * size / reader(f"tensor.{k}.cycles_per_row") for k, size in (("bf16", 2), ("fp32", 4))))
    if engine is Engine.VECTOR:
        base = Fraction(reader("vector.copy.cycles_per_element"))
        rates = (4 / (base * reader("vector.copy.sbuf_ratio")), 2 / (base * reader("vector.copy.sixteen_bit_ratio")))
        return float(lanes * clock * max(rates))
    key = "scalar" if engine is Engine.SCALAR else "gpsimd.copy"
    return float(lanes * clock * 4 / Fraction(reader(f"{key}.cycles_per_element")))


def _clock(engine: Engine, reader: Reader) -> Fraction:
    """Cycles per ns."""
    return Fraction(reader(f"clock.{engine.name.lower()}_mhz"), 1000)


def _engines(result: Result) -> list[dict[Engine, int]]:
    """Of each kind of instruction, how often it runs on each engine."""
    kind = result.alike.kind[result.alike.row]
    engine = np.fromiter((s.engine for s in result.steps), np.int64, len(result.steps))
    out: list[dict[Engine, int]] = [{} for _ in result.alike.kinds]
    pairs, times = np.unique(np.stack([kind, engine]), axis=1, return_counts=True)
    for (k, e), n in zip(pairs.T.tolist(), times.tolist(), strict=True):
        out[k][Engine(e)] = n
    return out


def _work(i: Instruction, engine: Engine, reader: Reader) -> tuple[int, Fraction, int, Fraction]:
    """Work of an instruction and the least ns for it; bytes of its longest operand in SBUF and the least ns for those.

    The least is what an engine takes for so much where every instruction fills all its lanes.
    """
    work, lanes = i.work(), int(reader("memory.partitions"))
    if isinstance(i, Matmul):
        if work.transpose:  # no work, so its bytes belong to none: they would lower the roof of those that work
            return 0, Fraction(0), 0, Fraction(0)
        sbuf = i.src.nbytes
        streaming = _stream_ns(i, engine, reader) * i.src.partitions / lanes
        half = 1 if i.passes == "single" else 2
        rate = 2 * lanes * FULL_COLUMNS * _clock(engine, reader) / Fraction(reader(f"tensor.{work.kind}.cycles_per_row")) / half
        return work.flops, work.flops / rate, sbuf, streaming
    if isinstance(i, Dma | Control) or engine is Engine.TENSOR or not i.views or work.kind in elementwise.UNSTREAMED:
        return 0, Fraction(0), 0, Fraction(0)
    on_chip = [v for _, v, _ in i.views if v.memory is not Memory.HBM]
    partitions = max((v.partitions for v in on_chip), default=0)
    longest = max((v for v in on_chip if v.memory is Memory.SBUF), key=lambda v: v.nbytes, default=None)
    ns = _stream_ns(i, engine, reader)
    sbuf, used = (0, 0) if longest is None else (longest.nbytes, longest.partitions)
    return work.elements * partitions, ns * partitions / lanes, sbuf, ns * used / lanes


def _stream_ns(i: Instruction, engine: Engine, reader: Reader) -> Fraction:
    """How long an instruction's elements stream at full rate, ns."""
    work = i.work()
    if isinstance(i, Matmul):
        return work.elements * Fraction(reader(f"tensor.{work.kind}.cycles_per_row")) / _clock(engine, reader)
    return Fraction(work.elements) * elementwise.cycles_per_element(work, engine, reader) / _clock(engine, reader)


def _movement(result: Result, reader: Reader) -> tuple[int, Fraction, bool]:
    """HBM bytes moved within the body, the least ns all DMA engines together need for them, and whether those may pass HBM's rate."""
    table, timeline = result.table, result.timeline
    body = body_ticks(table, timeline)
    step = table.step[table.rows :]
    done = timeline.finish[table.rows :] <= body
    moved, time, sides = Fraction(0), Fraction(0), 1
    kinds, kind = result.alike.kinds, result.alike.kind[result.alike.row]
    # packets within the body and in all, of each kind of DMA
    whole = np.bincount(kind[step], table.packets, len(kinds)).astype(np.int64).tolist()
    inside = np.bincount(kind[step], table.packets * done, len(kinds)).astype(np.int64).tolist()
    count = np.bincount(kind, minlength=len(kinds)).tolist()
    rates = _dma_rates(reader)
    for i, packets, ended, n in zip(kinds, whole, inside, count, strict=True):
        if not isinstance(i, Dma) or not packets:
            continue
        share = Fraction(ended * n, packets)
        hbm = sum(v.nbytes for v in (i.dst, *i.sources) if v.memory is Memory.HBM)
        size = i.dst.size // i.row_elements * i.row_bytes
        moved, time = moved + share * hbm, time + share * size / rates["load" if i.load else "store"]
        sides = max(sides, sum(v.memory is Memory.HBM for v in (i.dst, *i.sources)))
    return (
        int(moved),
        time if moved else Fraction(0),
        max(rates.values()) * sides > reader("memory.hbm_bytes_per_ns"),
    )


def _dma_rates(reader: Reader) -> dict[str, Fraction]:
    """Bytes a ns of all DMA engines, loads and stores: the faster kind of row, and at most what the core moves together."""
    out = {}
    for verb in ("load", "store"):
        rates = [Fraction(reader(f"dma.{verb}_bytes_per_ns"))]
        if verb == "store" and reader("dma.small_row_bytes"):
            rates.append(Fraction(reader("dma.small_store_bytes_per_ns")))
        engines, limit = max(rates) * reader("dma.engines"), Fraction(reader(f"dma.core_{verb}_bytes_per_ns"))
        out[verb] = min(engines, limit) if limit else engines
    return out


def _least(result: Result) -> int:
    """Bytes of the program's inputs and outputs."""
    return sum(t.view().nbytes for t in result.program.tensors.values() if t.kind in ("input", "output"))
