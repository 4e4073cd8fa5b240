"""The keys every chip file has: one row each, with its unit and what it means. Names end in their unit."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import attrs

from .isa.errors import ChipError
from .isa.ops import ACT_FNS


@attrs.frozen
class Entry:
    """One key: the kind of its value, and what it says."""

    # "number" (exact, >= 0), "positive" (> 0), "share" (> 0, <= 1), "count" (whole, >= 0), "natural" (whole, >= 1), "flag",
    # "word:a|b|c", "sets"
    kind: str
    doc: str
    most: int | None = None  # of a "count" or "natural" of which something is made or gone through

    def convert(self, raw: Any, where: str) -> Any:
        """The value in exact form, or ChipError."""
        if self.kind in ("number", "positive", "share"):
            required = "a number of at least 0" if self.kind == "number" else "a number above 0" + ", at most 1" * (self.kind == "share")
            value = _fraction(raw, where, required)
            if self.kind != "number" and (value == 0 or (self.kind == "share" and value > 1)):
                raise ChipError(where, f"{raw}", required)
            return value
        if self.kind in ("count", "natural"):
            required = f"a whole number of at least {int(self.kind == 'natural')}"
            value = _fraction(raw, where, required)
            if value.denominator != 1 or (self.kind == "natural" and value == 0):
                raise ChipError(where, f"{raw}", required)
            if self.most is not None and value > self.most:
                raise ChipError(where, f"{raw}", f"{required}, at most {self.most}")
            return int(value)
        if self.kind == "flag":
            text = str(raw).lower()
            if text not in ("true", "false"):
                raise ChipError(where, f"{raw!r}", "true or false")
            return text == "true"
        if self.kind == "sets":
            if not isinstance(raw, list) or not raw or not all(isinstance(s, list) and all(isinstance(n, str) for n in s) for s in raw):
                raise ChipError(where, f"{raw!r}", "a list of lists of names, at least one")
            for name in itertools.chain(*raw):
                if name not in TABLES:
                    near = difflib.get_close_matches(name, TABLES, 1)
                    hint = f" (near: {near[0]})" if near else ""
                    raise ChipError(where, f"activation function {name!r}{hint}", f"one of {', '.join(TABLES)}")
            return tuple(tuple(s) for s in raw)
        words = self.kind.removeprefix("word:").split("|")
        if raw not in words:
            raise ChipError(where, f"{raw!r}", f"one of {', '.join(words)}")
        return str(raw)


LARGEST = Fraction(10**12)  # far beyond any hardware number; keeps every sum of ticks in 64 bits


TABLES = (*ACT_FNS, "identity")

# What Fraction() takes beyond this is no number that was meant: digits of other scripts, 1_000, an exponent without end.
NUMBER = re.compile(r"[+-]?([0-9]+/[0-9]+|([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?)")


def _fraction(raw: Any, where: str, required: str) -> Fraction:
    if isinstance(raw, bool) or not isinstance(raw, int | float | str | Decimal | Fraction):
        raise ChipError(where, f"{raw!r}", required)
    try:
        text = str(raw)
        value = Fraction(text) if NUMBER.fullmatch(text.strip(" ")) else None
    except (ValueError, ZeroDivisionError):
        value = None
    if value is None:
        raise ChipError(where, f"{raw!r:.80}", required)
    if value < 0:
        raise ChipError(where, f"{raw}", required)
    if value > LARGEST or 0 < value < 1 / LARGEST:
        raise ChipError(where, f"{raw}", f"0, or a number from 1e-12 to {float(LARGEST):.0e}")
    return value


VECTOR_KINDS = (
    "copy",
    "tensor_scalar",
    "tensor_scalar_reduce",
    "tensor_tensor",
    "scalar_tensor_tensor",
    "tensor_tensor_scan",
    "tensor_reduce",
    "reciprocal",
    "memset",
    "transpose",
    "bn_stats",
    "bn_aggr",
    "max8",
    "nc_find_index8",
    "nc_match_replace8",
    "copy_predicated",
    "range_select",
    "nc_stream_shuffle",
    "select_reduce",
    "tensor_scalar_cumulative",
    "exponential",
    "quantize_mx",
    "rng",
    "rand2",
    "dropout",
    "rng_seed",
    "rand_state",
)
# operands in SBUF alone, or of 32 bits alone
VECTOR_LACKS = {
    "quantize_mx": ("sixteen_bit_ratio", "psum_fixed_ns"),
    "rand_state": ("sixteen_bit_ratio",),
    "rng_seed": ("sixteen_bit_ratio",),
}
GPSIMD_KINDS = (
    "iota",
    "affine_select",
    "copy",
    "tensor_scalar",
    "tensor_tensor",
    "memset",
    "gather",
    "partition_reduce",
    "sequence_bounds",
    "local_gather",
    "nonzero_with_count",
    "topk",
    "rng",
    "rand_state",
)


def _rows() -> Iterator[tuple[str, str, str]]:
    engines = ("tensor", "vector", "scalar", "gpsimd", "sync")
    for e in engines:
        yield f"clock.{e}_mhz", "natural", f"clock of the {e} engine; sync is the core's base clock"
    yield "memory.partitions", "natural", "partitions of SBUF and PSUM"
    yield "memory.partition_quadrant", "natural", "operands start on a multiple of this partition"
    yield "memory.sbuf_partition_bytes", "natural", "SBUF bytes in one partition"
    yield "memory.sbuf_reserved_low_bytes", "count", "bytes at the bottom of each SBUF partition kept for descriptor generation"
    yield "memory.sbuf_reserved_high_bytes", "count", "bytes at the top of each SBUF partition kept by the runtime"
    yield "memory.psum_partition_bytes", "natural", "PSUM bytes in one partition"
    yield "memory.psum_bank_bytes", "natural", "bytes of one PSUM bank in a partition: the largest matmul destination"
    yield "memory.hbm_bytes", "natural", "HBM bytes a core can address"
    yield "memory.hbm_bytes_per_ns", "positive", "bandwidth of the HBM stack a core uses"
    yield "memory.sbuf_max_elements", "natural", "most elements per partition of one SBUF operand"
    yield "memory.psum_max_elements", "natural", "most elements per partition of one PSUM operand"
    yield (
        "memory.tensor_indirection",
        "flag",
        "operands may have columns that offsets find; they take the time of those that are not contiguous",
    )
    yield "types.e4m3_max", "natural", "largest finite float8_e4m3: 240 or 448"
    yield "types.float8_e4m3fn", "flag", "any operand, of DMA too, may be float8_e4m3fn, the OCP format without infinities"
    yield "types.mx", "flag", "any operand may be of an MX type: packed fp8 and fp4, and their scales float8_e8m0fnu"
    yield "types.fp8_fast", "flag", "fp8 is as fast as 16-bit floats on VectorE and ScalarE"
    for e in engines:
        yield f"sequencer.{e}.release_ns", "number", "when the engine's queue is released, after Sync"
        yield f"sequencer.{e}.event_semaphore_ns", "number", "duration of EVENT_SEMAPHORE and NOP"
        yield f"sequencer.{e}.event_semaphore_gap_ns", "number", "from their end to the next instruction"
        yield f"sequencer.{e}.move_ns", "number", "MOVE: a register from a number or another register"
        yield f"sequencer.{e}.alu_op_ns", "number", "ALU_OP: arithmetic of registers"
        yield f"sequencer.{e}.tensor_load_ns", "number", "TENSOR_LOAD: a register from SBUF or HBM"
        yield f"sequencer.{e}.tensor_store_ns", "number", "TENSOR_STORE: a register to SBUF or HBM"
        yield f"sequencer.{e}.compare_branch_ns", "number", "COMPARE_BRANCH, taken or not"
    for e in engines[:4]:
        yield f"sequencer.{e}.queue_depth", "natural", "instructions handed over and not started, at most"
        yield f"sequencer.{e}.handover_ns", "number", "from dispatch to the earliest start on the engine"
    yield "sequencer.registers", "natural", "registers of one sequencer"
    yield "sequencer.dynamic_cycles", "number", "least cycles of its engine between compute instructions whose address is a number in SBUF"
    yield (
        "sequencer.register_address_ns",
        "number",
        "added to handing over an instruction, or triggering a DMA, whose address a register gives",
    )
    yield "sequencer.dispatch_ns", "number", "from handing one instruction over to looking at the next"
    yield "semaphore.latency_ns", "number", "from a completion to a waiting sequencer's dispatch"

    yield "tensor.transpose_mode", "flag", "the array has a bit-exact transpose mode"
    yield "tensor.fp32_passes", "natural", "LDWEIGHTS/MATMUL pairs of one fp32 product"
    yield "tensor.fp32_onezero_passes", "natural", "the same when an operand is declared to hold only 0 and 1"
    yield "tensor.min_interval_cycles", "count", "cycles between the starts of two products, at least"
    yield "tensor.next_load_ns", "number", "from the start of streaming to the next weight load"
    yield "tensor.load_to_matmul_ns", "number", "from a weight load's start to its MATMUL's earliest start"
    yield "tensor.loaded_to_stream_ns", "number", "from weights loaded to streaming"
    yield "tensor.double_row", "flag", "fp8 products over twice the rows in the time of one (perf_mode=double_row)"
    yield "tensor.bf16_results", "flag", "products are written to PSUM, and added there, as bfloat16 too"
    yield "tensor.sums_anywhere", "flag", "products add to what other instructions wrote to PSUM"
    yield "tensor.result_banks", "natural", "PSUM banks that one product may fill"
    yield "tensor.smallest_tile", "natural", "least rows or columns of a tile of the array"
    yield (
        "tensor.tile_ratio",
        "positive",
        "time of a product on a tile of the array, over that on the whole; below 1 stands for tiles that run at the same time",
    )
    for kind in ("bf16", "fp32", "bf16_transpose", "fp32_transpose", "mx"):
        yield f"tensor.{kind}.cycles_per_row", "number", "cycles to stream one moving row in one pass"
        for rate in ("full", "gated"):
            yield f"tensor.{kind}.load_idle_{rate}_ns", "number", "loading 128 columns, array idle"
            yield f"tensor.{kind}.load_behind_{rate}_ns", "number", "loading 128 columns behind a running product"
            yield f"tensor.{kind}.load_shown_{rate}_ns", "number", "duration a profile shows for LDWEIGHTS of 128 columns"
    for rate in ("full", "gated"):
        yield f"tensor.result_latency_{rate}_ns", "number", "from the end of streaming to the result in PSUM"
        yield f"tensor.stream_gap_{rate}_ns", "number", "from the end of one product's streaming to the next MATMUL"
    yield "tensor.activity_throttle", "positive", "streaming takes this many times as long while the activity throttle holds; 1 is off"
    yield "tensor.gate.kind", "word:windows|streaks|none", "how the PE's rate depends on its recent use"
    yield "tensor.gate.ratio", "share", "gated rate over the full rate"
    yield "tensor.gate.window_cycles", "natural", "windows: length of one, in cycles of the base clock"
    yield "tensor.gate.threshold", "number", "windows: share of one's full-rate cycles that must stream to run the next at full rate"
    yield "tensor.gate.initial", "word:gated|full", "windows: state before the first edge"
    yield "tensor.gate.full_cycles", "natural", "streaks: cycles of the base clock at full rate from the first product after idling"
    yield "tensor.gate.idle_cycles", "natural", "streaks: cycles of the base clock without a product that end one"

    yield "scalar.activate2", "flag", "activations take two operators before the function and reduce with more than add"
    yield "scalar.number_bias", "flag", "the bias of an activation may be a number, and reciprocal has one"
    yield "scalar.cycles_per_element", "number", "cycles to stream one element"
    yield (
        "scalar.sixteen_bit_ratio",
        "number",
        "time per element of copies and tensor_scalar of 16-bit floats in SBUF, over that of other types",
    )
    for kind in ("function", "identity", "copy"):
        for memory in ("psum", "sbuf"):
            yield f"scalar.{kind}.{memory}_fixed_ns", "number", f"latency over streaming, {memory.upper()} source"
            yield f"scalar.{kind}.{memory}_gap_ns", "number", f"issue gap over streaming, {memory.upper()} source"
    yield "scalar.read_accumulator_ns", "number", "reading the accumulator out"
    yield "scalar.function_pointer_ns", "number", "added to latency and gap of a function for a [P, 1] scale or bias"
    yield "scalar.identity_pointer_ns", "number", "the same for an activation that only scales and shifts"
    yield (
        "scalar.identity.psum_narrowing_ns",
        "number",
        "added to latency of an activation that only scales and shifts, PSUM to a narrower type",
    )
    yield "scalar.table_load_ns", "number", "loading an activation table"
    yield (
        "scalar.table_sets",
        "sets",
        "functions whose tables are resident together; the first set needs no load, a function in no set has its own",
    )

    yield "scalar.tensor_copy.available", "flag", "ScalarE has tensor_copy as an instruction of its own; else it is an activation"
    yield "scalar.tensor_scalar.available", "flag", "ScalarE has tensor_scalar as an instruction of its own"
    yield "scalar.tensor_scalar.any_operators", "flag", "it takes all arithmetic operators; else multiply and add"

    yield (
        "ports.vector_gpsimd_sbuf",
        "word:exclusive|fast|shared",
        "VectorE and GpSimdE in SBUF: one at a time, so only in fast modes, or not",
    )
    yield "ports.vector_scalar_psum", "word:exclusive|shared", "VectorE and ScalarE in PSUM: one at a time, or not"

    yield "vector.gap_ns", "number", "issue gap over streaming"
    yield "vector.two_cycle_gap_ns", "number", "the same for instructions of two cycles an element or more"
    yield "vector.pointer_ns", "number", "added to latency and gap for a [P, 1] operand"
    yield "vector.reduce_ns", "number", "added to latency and gap for a reduction beside the elementwise result"
    for kind in VECTOR_KINDS:
        for ending, doc in (
            ("cycles_per_element", "cycles to stream one element at the base rate"),
            ("sbuf_ratio", "time per element when all operands are in SBUF, over the base"),
            (
                "sixteen_bit_ratio",
                "the same when they also have 16 bits (moves and tensor_tensor: 16-bit floats) and are contiguous (but for tensor_tensor)",
            ),
            ("sbuf_fixed_ns", "latency over streaming, all operands in SBUF"),
            ("psum_fixed_ns", "latency over streaming, a PSUM operand"),
        ):
            if ending not in VECTOR_LACKS.get(kind, ()):
                yield f"vector.{kind}.{ending}", "number", doc

    for kind in ("copy", "tensor_scalar"):
        yield f"vector.{kind}.psum_sixteen_bit_ratio", "number", "time per element of contiguous 16-bit floats, one of two operands in PSUM"
    yield "vector.copy.widening_ratio", "number", "time per element of a copy in SBUF to a wider type, over the base"

    yield "vector.magnitude_operators", "flag", "the ALU operators abs_max and abs_min exist"

    for kind in GPSIMD_KINDS:
        yield f"gpsimd.{kind}.cycles_per_element", "number", "cycles per element"
        yield f"gpsimd.{kind}.fixed_ns", "number", "latency over streaming; the next instruction starts after it"
    for kind in ("local_gather", "topk"):
        yield f"gpsimd.{kind}.cycles_per_index", "number", "cycles for each place looked up, or written beside the stream"

    yield "dma.engines", "natural", "DMA engines a core uses"
    yield "dma.partitions_per_engine", "count", "SBUF partitions one engine serves; 0 spreads rows evenly"
    yield "dma.row_ns", "number", "fixed time of one descriptor row on an engine"
    yield "dma.load_bytes_per_ns", "positive", "rate of one engine, loads"
    yield "dma.store_bytes_per_ns", "positive", "rate of one engine, stores above the small size"
    yield "dma.small_row_bytes", "count", "rows up to this size use the small-row numbers; 0: one law for all sizes"
    yield "dma.small_load_row_ns", "number", "fixed time of a small row, loads"
    yield "dma.small_store_row_ns", "number", "fixed time of a small row, stores"
    yield "dma.small_store_bytes_per_ns", "positive", "rate of small rows, stores"
    yield "dma.least_row_ns", "number", "what a row or a packet of rows takes at least; 0 where the law of rows holds for all sizes"
    yield "dma.max_row_bytes", "natural", "a longer row is cut into descriptors of this size"
    yield "dma.cast_row_less_ns", "number", "by which the fixed time of a row is less if its type is converted"
    yield "dma.semaphore_packet_ns", "number", "the packet that raises the semaphore"
    yield "dma.packet_shown_ns", "number", "how much longer a profile shows a packet than the time to the next one"
    yield "dma.load_last_ns", "number", "from an engine's last row to its semaphore packet, loads"
    yield "dma.store_last_ns", "number", "the same, stores"
    yield "dma.load_done_ns", "number", "from an engine's last packet to its semaphore increment, loads"
    yield "dma.store_done_ns", "number", "the same, stores"
    yield "dma.store_ring_limit", "count", "unfinished stores in a hardware ring that stall the next trigger; 0 is no limit"
    yield "dma.store_ring_gap_ns", "number", "from the oldest store's completion to the end of a stalled trigger"
    yield "dma.recent_load_ns", "number", "a load that arrives this soon after its ring's last load meets a busy ring"
    for verb in ("load", "store"):
        yield f"dma.core_{verb}_bytes_per_ns", "number", f"rate of all engines of a core together, {verb}s; 0 is no limit"
        yield f"dma.core_{verb}_burst_bytes", "count", f"by which {verb}s may be ahead of that rate"
    yield "dma.core_store_settle_ns", "number", "from a store's bytes through that limit to its semaphore packet's end, at least"
    yield "dma.hardware.available", "flag", "descriptors can be generated by hardware blocks"
    yield "dma.priority", "flag", "a DMA may name a class of priority, 0 to 3; nothing of its time depends on that here"
    yield "dma.software.interval_ns", "number", "GpSimd time per software-generated DMA, at least"
    yield "dma.software.interval_row_ns", "number", "GpSimd time per descriptor row, where that is more in all"
    yield "dma.software.interval_rows", "count", "descriptor rows that these two cover"
    yield "dma.software.further_row_ns", "number", "added GpSimd time of each further row"
    yield "dma.software.packet_bytes", "count", "rows that are not converted join until a packet has so many bytes; 0: a row is a packet"
    yield (
        "dma.software.shared_packet_bytes",
        "count",
        "rows that are neighbours in HBM share the fixed time of a packet of up to this size; 0: they do not",
    )
    yield "dma.software.latency_ns", "number", "from dispatch to the visible trigger, and what is above the least interval"
    yield (
        "dma.software.dynamic_ns",
        "number",
        "added to interval and latency of a software-generated DMA whose address is a run-time number",
    )
    yield "dma.software.indirect_ns", "number", "the same of one with an index for each row"
    yield "dma.hardware.dynamic_ns", "number", "added to a hardware trigger whose address is a run-time number"
    yield "dma.transpose.hbm_ratio", "share", "rate of a transpose from HBM over that of copying 4 KiB rows"
    yield "dma.transpose.sbuf_ratio", "share", "the same from SBUF"
    yield "dma.transpose.full_row_elements", "count", "a row of fewer elements takes as long to transpose as one of this many"
    yield "dma.transpose.indirect_available", "flag", "rows that indices name can be transposed"
    yield "dma.compute.pair_ratio", "share", "rate of adding two sources over that of copying one"
    yield "dma.compute.further_ratio", "number", "time of each source beyond two, over that of copying it"
    yield "dma.software.shown_ns", "number", "duration a profile shows for the visible trigger, nothing unfinished in its ring"
    yield "dma.software.shown_queued_ns", "number", "added for each unfinished transfer in its ring"
    for mode in ("hardware", "static"):
        yield f"dma.{mode}.trigger_ns", "number", "sequencer time of a trigger"
        yield f"dma.{mode}.trigger_row_ns", "number", "added per descriptor row"
        yield f"dma.{mode}.follow_ns", "number", "added when it closely follows another trigger"
        yield f"dma.{mode}.gap_ns", "number", "from a trigger's end to the next instruction, queues other than ScalarEngine's"
        yield f"dma.{mode}.gap_scalar_ns", "number", "the same, ScalarEngine's queue"
    yield "dma.follow_window_ns", "number", "how soon after another trigger's end counts as following it"
    for mode in ("hardware", "software", "static"):
        yield f"dma.{mode}.load_first_ns", "number", "from the trigger to the first engine's first packet, loads"
        yield f"dma.{mode}.load_first_ns_per_kib", "number", "added per KiB on an engine"
        yield f"dma.{mode}.load_stagger_ns", "number", "between engines' first packets, loads"
        yield f"dma.{mode}.load_stagger_ns_per_kib", "number", "added per KiB on an engine"
        yield f"dma.{mode}.store_first_ns", "number", "from the trigger to the first engine's first packet, stores"
        yield f"dma.{mode}.store_stagger_ns", "number", "between engines' first packets, stores"
        yield f"dma.{mode}.load_stall_ns", "number", "added to the first packet of every load"
        yield f"dma.{mode}.busy_delay_ns", "number", "a load that arrives at a busy engine comes again so much later"
        yield f"dma.{mode}.busy_stall_ratio", "number", "and its first packet takes this share of its transfer time longer"
        yield f"dma.{mode}.busy_stall_ns", "number", "and so much more"

    yield "program.prologue_ns", "number", "what a profile counts before the body"
    yield "program.epilogue_ns", "number", "what a profile counts after the body"
    yield "program.benchmark_ns", "number", "what the benchmark harness adds to the body"


# Far beyond any hardware, and what this simulator can still hold: memories are arrays, a transfer has a row for each engine.
MOST = {
    "memory.partitions": 1 << 10,
    "memory.sbuf_partition_bytes": 1 << 22,
    "memory.psum_partition_bytes": 1 << 20,
    "dma.engines": 1 << 10,
}

SCHEMA: dict[str, Entry] = {key: Entry(kind, doc, MOST.get(key)) for key, kind, doc in _rows()}
