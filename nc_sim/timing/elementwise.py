"""VectorEngine, ScalarEngine and GpSimdEngine: fixed latency plus streaming, and an issue gap.

    duration   = fixed + elements x time per element
    next start >= start + elements x time per element + gap

Source: replay of trn2 instruction streams (docs/timing.md, Elementwise engines).
"""

from __future__ import annotations

from fractions import Fraction

from ..chip import Reader
from ..isa import Engine, Work
from ..isa.errors import Unspecified
from .cost import Cost, same

UNSTREAMED = ("table_load", "read_accumulator")  # of ScalarE
MOVES = ("copy", "tensor_scalar")  # with fast modes of their own: four-fold on VectorE, two-fold on later ScalarEs


def cost(work: Work, engine: Engine, chip: Reader) -> Cost:
    """The cost of one instruction on an elementwise engine."""
    if engine is Engine.VECTOR:
        return vector(work, chip)
    if engine is Engine.SCALAR:
        return scalar(work, chip)
    if engine is Engine.GPSIMD:
        return gpsimd(work, chip)
    raise Unspecified(engine.label, f"no cost for {work.kind!r}", "an elementwise engine, or a TensorEngine instruction with its own rule")


def cycles_per_element(work: Work, engine: Engine, chip: Reader) -> Fraction:
    """Cycles of the engine's clock that one element of the stream takes; 0 for what streams nothing."""
    if engine is Engine.SCALAR:
        return Fraction(0) if work.kind in UNSTREAMED else _scalar_cycles(work, chip)
    kind = _kind(engine.name.lower(), work.kind, chip)
    rate = Fraction(chip(f"{kind}.cycles_per_element"))
    if engine is not Engine.VECTOR:
        return rate
    both, moves = work.kind == "tensor_tensor", work.kind in MOVES  # of the first, inputs alone must be in SBUF, contiguous or not
    if work.psum_read or work.psum_write:
        if moves and work.psum_read != work.psum_write and work.contiguous and _small(work, chip):
            return rate * Fraction(chip(f"{kind}.psum_sixteen_bit_ratio"))
        if not both or work.psum_read or not _small(work, chip):
            return rate
    if work.kind == "copy_predicated" and work.streams == 1:  # a number as source: one operand to read from SBUF, not two
        return rate
    if work.widening and work.kind == "copy":
        return rate * Fraction(chip("vector.copy.widening_ratio"))
    fast = (work.contiguous or both) and (_small(work, chip) if moves or both else work.sixteen_bit)
    return rate * Fraction(chip(f"{kind}.sixteen_bit_ratio") if fast else chip(f"{kind}.sbuf_ratio"))


def _small(work: Work, chip: Reader) -> bool:
    """Whether all it streams is of the types that the fast modes of moves and tensor_tensor take."""
    return work.half or (work.small and chip("types.fp8_fast"))


def _scalar_cycles(work: Work, chip: Reader) -> Fraction:
    """Of ScalarE: one rate, but for moves of small floats in SBUF."""
    rate = Fraction(chip("scalar.cycles_per_element"))
    if work.kind in MOVES and not work.psum_read and not work.psum_write and _small(work, chip):
        return rate * Fraction(chip("scalar.sixteen_bit_ratio"))
    return rate


def vector(work: Work, chip: Reader) -> Cost:
    """Fixed latency by memory; two-fold and four-fold rates apply only when every operand is in SBUF."""
    kind = _kind("vector", work.kind, chip)
    psum = work.psum_read or work.psum_write
    slow = cycles_per_element(work, Engine.VECTOR, chip) >= 2
    fixed, gap = chip(f"{kind}.{'psum' if psum else 'sbuf'}_fixed_ns"), chip("vector.two_cycle_gap_ns" if slow else "vector.gap_ns")
    if work.vectors:
        fixed, gap = fixed + chip("vector.pointer_ns"), gap + chip("vector.pointer_ns")
    if work.reduces:
        fixed, gap = fixed + chip("vector.reduce_ns"), gap + chip("vector.reduce_ns")
    return _streamed(work, Engine.VECTOR, fixed, gap, chip)


def scalar(work: Work, chip: Reader) -> Cost:
    """Activation functions, copies, and the two instructions without a stream."""
    if work.kind == "table_load":
        ticks = chip.chip.ticks(chip("scalar.table_load_ns"))
        return same(ticks, ticks)
    if work.kind == "read_accumulator":
        ticks = chip.chip.ticks(chip("scalar.read_accumulator_ns"))
        return same(ticks, ticks)
    kind = "identity" if work.kind == "tensor_scalar" else work.kind  # scale and shift, as an activation without a function
    memory = "psum" if work.psum_read else "sbuf"
    key = _kind("scalar", kind, chip, f".{memory}_fixed_ns")
    extra = chip(f"scalar.{kind}_pointer_ns") if work.vectors else Fraction(0)
    if kind == "identity" and work.psum_read and work.narrowing:  # either brings it to the latency of a function, so not both
        extra = max(extra, chip("scalar.identity.psum_narrowing_ns"))
    fixed, gap = chip(f"{key}.{memory}_fixed_ns") + extra, chip(f"{key}.{memory}_gap_ns") + extra
    return _streamed(work, Engine.SCALAR, fixed, gap, chip)


def gpsimd(work: Work, chip: Reader) -> Cost:
    """No overlap between instructions is documented, so the next starts when one ends."""
    kind = _kind("gpsimd", work.kind, chip)
    fixed = chip(f"{kind}.fixed_ns")
    return _streamed(work, Engine.GPSIMD, fixed, fixed, chip)


def ports(work: Work, engine: Engine, sbuf: bool, psum: bool, chip: Reader) -> int:
    """The table's ports of an instruction that touches SBUF, PSUM or both: bit 0 VectorE and GpSimdE, bit 1 VectorE and ScalarE."""
    used = 0
    if sbuf and engine in (Engine.VECTOR, Engine.GPSIMD):
        rule = chip("ports.vector_gpsimd_sbuf")
        fast = engine is Engine.GPSIMD or (rule == "fast" and _fast(work, chip))
        used |= int(rule == "exclusive" or (rule == "fast" and fast))
    if psum and engine in (Engine.VECTOR, Engine.SCALAR):
        used |= 2 * int(chip("ports.vector_scalar_psum") == "exclusive")
    return used


def _fast(work: Work, chip: Reader) -> bool:
    """Whether VectorE streams it faster than its base rate."""
    return bool(cycles_per_element(work, Engine.VECTOR, chip) < chip(f"vector.{work.kind}.cycles_per_element"))


def stream_ns(work: Work, engine: Engine, chip: Reader) -> Fraction:
    """How long an instruction's elements stream, without latency and gap."""
    c = chip.chip
    cycles = work.elements * cycles_per_element(work, engine, chip)
    if work.indices:
        cycles += work.indices * Fraction(chip(f"gpsimd.{work.kind}.cycles_per_index"))
    return cycles * chip.cycle_ticks(engine) / c.ticks_per_ns


def _streamed(work: Work, engine: Engine, fixed: Fraction, gap: Fraction, chip: Reader) -> Cost:
    c, stream = chip.chip, stream_ns(work, engine, chip)
    return same(c.ticks(stream + gap), c.ticks(stream + fixed))


def _kind(engine: str, kind: str, chip: Reader, probe: str = ".cycles_per_element") -> str:
    key = f"{engine}.{kind}"
    if f"{key}{probe}" not in chip.chip.numbers:
        raise Unspecified(engine, f"no cost for {kind!r} on {chip.chip.name}", "an instruction the chip file has a cost for")
    return key
