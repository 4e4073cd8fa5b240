"""The published Summary metrics, computed from an Instruction table, a DmaPacket table and a few facts about the chip.

The tables may come from a simulation, from a CSV profile or from any other reader: they are mappings of column names to
columns (arrays, lists, `Words`, `Some`), whole or in parts. Percent metrics are fractions from 0 to 1, times are in
seconds. A metric that the tables and facts do not tell is None. Definitions: the profile schema reference 7.4.0 and, where
it is silent, ten public profiles whose published metrics these formulas give back (docs/profiles.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

import attrs
import numpy as np

from ..table import Ints
from .schema import fields
from .table import Array, Some, Words, length, merged

ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync")
# Setup and teardown: not part of total_exec_time (schema reference, total_exec_time).
SETUP = frozenset({
    "NOP", "SET_ORDERING_MODE", "EVENT_SEMAPHORE", "EVENT_SEMAPHORE_RANGE_CLEAR", "NOTIFY", "COMPARE_BRANCH", "DRAIN", "WRITE",
    "TENSOR_LOAD", "MODIFY_POOL_CONFIG",
})  # fmt: skip
WAITING = frozenset({"EVENT_SEMAPHORE"})  # a wait for a semaphore is not activity (active times of ten public profiles)
ACTIVATES = frozenset({"ACTIVATE", "ACTIVATE_QUANTIZE"})
BYTES = (
    "hbm_read_bytes", "hbm_write_bytes", "sbuf_read_bytes", "sbuf_write_bytes", "spill_save_bytes", "spill_reload_bytes",
    "psum_read_bytes", "psum_write_bytes", "psum_read_sbuf_write_bytes", "input_queue_bytes", "output_queue_bytes", "weight_queue_bytes",
)  # fmt: skip
FLOPS = {
    "hardware_flops": "raw_flops", "transpose_flops": "flops_transpose", "adjusted_hardware_flops": "adjusted_flops",
    "adjusted_transpose_flops": "adjusted_flops_transpose",
}  # fmt: skip
DYNAMIC = ("software_dynamic", "hardware_dynamic")
STATIC = "static"

Parts = Mapping[str, Any] | Iterable[Mapping[str, Any]]
Metrics = dict[str, int | float | None]


@attrs.frozen(kw_only=True)
class Facts:
    """What the tables do not tell. None: not known, and every metric that needs it is None."""

    total_time_ns: float  # the whole execution
    physical_cores: int = 1  # of the logical core
    array_rows: int = 128
    array_columns: int = 128
    tensor_ghz: float | None = None
    core_ghz: float | None = None  # of the NeuronCore's base clock
    hbm_bytes_per_s: float | None = None  # of one stack, whatever the number of cores
    model_flops: int = 0  # of the model's own products; 0 for a kernel without one
    input_bytes: int | None = None
    output_bytes: int | None = None
    weight_bytes: int | None = None
    dma_queues: int | None = None
    events: int | None = None  # notifications of semaphores and the like
    rows: int | None = None  # of all tables


def summary(instructions: Parts, packets: Parts, facts: Facts) -> Metrics:
    """Every metric of the Summary table, in published order."""
    engines, moved = Engines(), Packets()
    for part in _parts(instructions):
        engines.add(part)
    for part in _parts(packets):
        moved.add(part)
    return metrics(engines, moved, facts)


def metrics(engines: Engines, packets: Packets, facts: Facts) -> Metrics:
    """The same from tables that were added up part by part."""
    out = {**_overall(engines, packets, facts), **_engine_metrics(engines, facts), **_dma(packets, facts), **_ratios(engines, facts)}
    return {f.name: out[f.name] for f in fields("Summary")}


def beyond(metrics: Metrics, facts: Facts) -> Metrics:
    """What a summary as JSON has beside the table's columns."""
    read, seconds = metrics["hbm_read_bytes"], facts.total_time_ns / 1e9
    reloaded = metrics["spill_reload_bytes"] or 0
    return {
        "total_bandwidth_available": None if facts.hbm_bytes_per_s is None else facts.hbm_bytes_per_s * seconds,
        "useful_read_percent": _over(read - reloaded if read is not None else None, read),
    }


# --- reading -----------------------------------------------------------------------------------------------------


def _parts(given: Parts) -> Iterator[Mapping[str, Any]]:
    yield from (given,) if isinstance(given, Mapping) else given


def _numbers(part: Mapping[str, Any], name: str) -> Ints:
    """A column of whole numbers; null counts as 0."""
    column = part.get(name)
    if column is None:
        return np.zeros(length(part), np.int64)
    if isinstance(column, Some):
        return np.where(column.valid, column.values, 0)
    if isinstance(column, np.ndarray):
        return column
    return np.array([0 if v is None else v for v in column], np.int64).reshape(-1)


def _texts(part: Mapping[str, Any], name: str) -> Words:
    """A column of texts; null and what is not there count as empty."""
    column = part.get(name)
    if isinstance(column, Words):
        return Words((*column.values, ""), np.where(column.index < 0, len(column.values), column.index))
    if column is None:
        return Words(("",), np.zeros(length(part), np.int64))
    values, index = np.unique(np.array([str(v or "") for v in column], dtype=object).astype(str), return_inverse=True)
    return Words(tuple(values.tolist()), index.astype(np.int64))


def _one_of(texts: Words, names: Iterable[str]) -> Array:
    """Rows whose text is one of these."""
    wanted = set(names)
    return np.array([v in wanted for v in texts.values], bool)[texts.index]


@attrs.define
class _Busy:
    """Count, plain sum and union of intervals, fed in parts."""

    count: int = 0
    total: int = 0
    intervals: list[tuple[Ints, Ints]] = attrs.field(factory=list)

    def add(self, start: Ints, end: Ints, counted: int | None = None) -> None:
        self.count += len(start) if counted is None else counted
        self.total += int((end - start).sum())
        if len(start):
            self.intervals.append(merged(start, end))

    def union(self, *others: _Busy) -> int:
        """How long at least one interval of this or of the others lasts."""
        parts = [i for busy in (self, *others) for i in busy.intervals]
        if not parts:
            return 0
        start, end = merged(*(np.concatenate(c) for c in zip(*parts, strict=True)))
        return int((end - start).sum())


@attrs.define
class Engines:
    """What the instructions say, added up part by part."""

    busy: dict[str, _Busy] = attrs.field(factory=lambda: {e: _Busy() for e in ENGINES})
    activates: _Busy = attrs.field(factory=_Busy)
    matmuls: int = 0
    moves: int = 0  # from PSUM to SBUF
    count: int = 0
    sums: dict[str, int] = attrs.field(factory=lambda: dict.fromkeys((*BYTES, *FLOPS.values()), 0))
    span: tuple[int, int] | None = None  # first start and last end, without setup

    def add(self, part: Mapping[str, Any]) -> None:
        """Some rows of an Instruction table."""
        start, end = (_numbers(part, n) for n in ("start_ts", "end_ts"))
        engine, opcode = _texts(part, "engine"), _texts(part, "opcode")
        working = ~_one_of(opcode, WAITING)
        engine = Words(tuple(v.lower() for v in engine.values), engine.index)
        for name, busy in self.busy.items():
            mine = _one_of(engine, [name])
            active = mine & working
            busy.add(start[active], end[active], int(np.count_nonzero(mine)))
        activates = _one_of(opcode, ACTIVATES)
        self.activates.add(start[activates], end[activates])
        self.matmuls += int(np.count_nonzero(_one_of(opcode, ["MATMUL"])))
        self.moves += int(np.count_nonzero(_numbers(part, "psum_read_sbuf_write_bytes")))
        self.count += len(start)
        for name in self.sums:
            self.sums[name] += int(_numbers(part, name).sum())
        real = ~_one_of(opcode, SETUP)
        self.span = _spanned(self.span, start[real], end[real])


@attrs.define
class Packets:
    """What the DMA packets say, added up part by part: by how their descriptors are made, and by transfer."""

    busy: dict[str, _Busy] = attrs.field(factory=lambda: {k: _Busy() for k in (STATIC, *DYNAMIC)})
    bytes: dict[str, int] = attrs.field(factory=lambda: dict.fromkeys((STATIC, *DYNAMIC), 0))
    transfers: list[tuple[Ints, Ints, Ints]] | None = attrs.field(factory=list)  # id, first start, last end; None: not known
    span: tuple[int, int] | None = None

    def add(self, part: Mapping[str, Any]) -> None:
        """Some rows of a DmaPacket table."""
        if not length(part):
            return
        start, end, size = (_numbers(part, n) for n in ("start_ts", "end_ts", "transfer_bytes"))
        kind = _texts(part, "queue_type")
        dynamic = np.zeros(len(start), bool)
        for name in DYNAMIC:
            mine = _one_of(kind, [name])
            dynamic |= mine
            self.busy[name].add(start[mine], end[mine])
            self.bytes[name] += int(size[mine].sum())
        self.busy[STATIC].add(start[~dynamic], end[~dynamic])
        self.bytes[STATIC] += int(size[~dynamic].sum())
        self.span = _spanned(self.span, start, end)
        if "packet_aggregation_id" not in part or self.transfers is None:
            self.transfers = None
        else:
            self.transfers.append(_grouped(_numbers(part, "packet_aggregation_id"), start, end))

    @property
    def all(self) -> tuple[_Busy, ...]:
        """Of every kind."""
        return tuple(self.busy.values())


def _spanned(before: tuple[int, int] | None, start: Ints, end: Ints) -> tuple[int, int] | None:
    """From the first start to the last end, of these and of those before."""
    if not len(start):
        return before
    span = int(start.min()), int(end.max())
    return span if before is None else (min(span[0], before[0]), max(span[1], before[1]))


def _grouped(number: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """First start and last end by number."""
    order = np.argsort(number, kind="stable")
    number, start, end = number[order], start[order], end[order]
    first = np.flatnonzero(np.append(True, number[1:] != number[:-1])[: len(number)])
    if not len(first):
        return number, start, end
    return number[first], np.minimum.reduceat(start, first), np.maximum.reduceat(end, first)


# --- metrics -----------------------------------------------------------------------------------------------------


def _over(a: float | int | None, b: float | int | None) -> float | None:
    """a / b, and None where either is not known or b is 0."""
    return None if a is None or not b else a / b


def _overall(engines: Engines, moved: Packets, facts: Facts) -> Metrics:
    ns = facts.total_time_ns
    packets = sum(b.count for b in moved.all)
    spans = [v for v in (engines.span, moved.span) if v is not None]
    span = max(b for _, b in spans) - min(a for a, _ in spans) if spans else 0
    active = _Busy().union(*engines.busy.values(), *moved.all)
    nothing = dict.fromkeys(  # collectives are not simulated, and a profile of one core without them has none
        ("cc_op_time", "cc_op_active_time", "cc_op_active_time_percent", "cc_cores_instruction_time",
         "cc_cores_instruction_active_time", "cc_cores_instruction_active_time_percent"), 0.0)  # fmt: skip
    return {
        "total_time": ns / 1e9, "neuroncore_cycle_count": _cycles(ns, facts),
        "trace_count": None if facts.events is None else engines.count + packets + facts.events, "event_count": facts.events,
        "total_row_count": facts.rows, "cc_op_count": 0, "cc_cores_instruction_count": 0, **nothing,
        "total_exec_time": span / 1e9, "total_active_time": active / 1e9, "total_active_time_percent": _over(active, ns),
    }  # fmt: skip


def _cycles(ns: float, facts: Facts) -> int | None:
    """Whole cycles of the base clock, cut off: 54276.582 ns at 1.2 GHz are 65131."""
    return None if facts.core_ghz is None else math.floor(Fraction(str(ns)) * Fraction(str(facts.core_ghz)))


def _engine_metrics(engines: Engines, facts: Facts) -> Metrics:
    out: Metrics = {}
    for name, busy in engines.busy.items():
        active = busy.union()
        out |= {
            f"{name}_engine_instruction_time": busy.total / 1e9, f"{name}_engine_active_time": active / 1e9,
            f"{name}_engine_active_time_percent": _over(active, facts.total_time_ns), f"{name}_engine_instruction_count": busy.count,
        }  # fmt: skip
    activates = engines.activates
    return out | {
        "matmul_instruction_count": engines.matmuls, "activate_instruction_time": activates.total / 1e9,
        "activate_instruction_count": activates.count, "psum_read_sbuf_write_count": engines.moves,
        **{k: engines.sums[k] for k in BYTES}, **{k: engines.sums[v] for k, v in FLOPS.items()}, "model_flops": facts.model_flops,
    }  # fmt: skip


def _dma(moved: Packets, facts: Facts) -> Metrics:
    active = _Busy().union(*moved.all)
    count, size = sum(b.count for b in moved.all), sum(moved.bytes.values())
    transfers, lasting = _transfers(moved)
    out: Metrics = {
        "dma_active_cycles": _cycles(active, facts), "dma_active_time": active / 1e9,
        "dma_active_time_percent": _over(active, facts.total_time_ns), "dma_packet_time": sum(b.total for b in moved.all) / 1e9,
        "dma_transfer_count": transfers, "dma_transfer_time": None if lasting is None else lasting / 1e9,
        "dma_transfer_total_bytes": None if transfers is None else size, "dma_transfer_average_bytes": _over(size, transfers),
        "dma_queue_count": facts.dma_queues,
    }  # fmt: skip
    for name, busy in moved.busy.items():
        out |= {
            f"{name}_dma_active_time": busy.union() / 1e9, f"{name}_dma_active_time_percent": _over(busy.union(), active),
            f"{name}_dma_packet_count": busy.count, f"{name}_dma_size": moved.bytes[name],
            f"{name}_dma_packet_percent": _over(busy.count, count), f"{name}_dma_size_percent": _over(moved.bytes[name], size),
        }  # fmt: skip
    dynamic = [moved.busy[name] for name in DYNAMIC]
    out |= {
        "dynamic_dma_active_time_percent": _over(dynamic[0].union(*dynamic[1:]), active),
        "dynamic_dma_packet_percent": _over(sum(b.count for b in dynamic), count),
        "dynamic_dma_size_percent": _over(sum(moved.bytes[name] for name in DYNAMIC), size),
    }  # fmt: skip
    return out


def _transfers(moved: Packets) -> tuple[int | None, int | None]:
    """Number of transfers, and the sum of their lengths from first packet to last."""
    if moved.transfers is None:
        return None, None
    if not moved.transfers:
        return 0, 0
    number, start, end = _grouped(*(np.concatenate(c) for c in zip(*moved.transfers, strict=True)))
    return len(number), int((end - start).sum())


def _ratios(engines: Engines, facts: Facts) -> Metrics:
    sums, seconds, cores, bandwidth = engines.sums, facts.total_time_ns / 1e9, facts.physical_cores, facts.hbm_bytes_per_s
    peak = None if facts.tensor_ghz is None else 2 * facts.array_rows * facts.array_columns * facts.tensor_ghz * 1e9  # of one core
    hbm = sums["hbm_read_bytes"] + sums["hbm_write_bytes"]
    flops, model = sums["raw_flops"] - sums["flops_transpose"], facts.model_flops
    whole = None if peak is None else cores * peak * seconds
    ridge = None if peak is None or not bandwidth else cores * peak / bandwidth  # of all cores; the published ratio is of one

    def reachable(work: int) -> float | None:
        """At the HBM's bandwidth, with the bytes this program moved; the profiler's never exceeds 1."""
        share = _over(_over(work, hbm), ridge)
        return None if share is None else min(1.0, share)

    mfu = {"inst": _over(flops, whole), "hlo": _over(model, whole)}
    most = {"inst": reachable(flops), "hlo": reachable(model)}
    chosen = "hlo" if model else "inst"  # without a model the profiler shows the instructions' values
    inputs, outputs, weights = facts.input_bytes, facts.output_bytes, facts.weight_bytes
    needed = None if inputs is None or weights is None else inputs + weights
    return {
        "mm_arithmetic_intensity": _over(flops, hbm), "peak_flops_bandwidth_ratio": _over(peak, bandwidth),
        "hfu_estimated_percent": _over(sums["raw_flops"], whole),
        "mfu_estimated_percent": mfu[chosen], "mfu_max_achievable_estimated_percent": most[chosen],
        **{f"mfu_{k}_estimated_percent": v for k, v in mfu.items()},
        **{f"mfu_{k}_max_achievable_estimated_percent": v for k, v in most.items()},
        "mbu_estimated_percent": _over(_over(hbm, seconds), bandwidth),
        "mbu_min_read_util_percent": _over(_over(needed, seconds), bandwidth),
        "weight_size_bytes": weights, "inputs_and_weights_size_bytes": needed,
        "inputs_outputs_weights_size_bytes": None if needed is None or outputs is None else needed + outputs,
    }  # fmt: skip
