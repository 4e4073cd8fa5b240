"""Hardware profiles as the published tables, so that one summary serves measured and simulated profiles.

Of a pair of CSV files NAME.instr.csv gives Instruction, NAME.dma.csv beside it DmaPacket, and profiles.json beside both the
length of the run and the chip. A JSON export of the public profiler has all of it in one file (docs/traces.md, Reading
hardware profiles). Columns that the files do not tell are null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from ..files import regular
from ..isa import Engine, Instruction
from ..isa.errors import ProgramError
from ..isa.tensor import LoadWeights, Matmul
from ..trace import profile_csv, profile_json, profile_packets
from ..trace.operands import moved
from .device import schema_fields
from .instructions import adjustment
from .schema import load
from .summary import FLOPS, Facts, Metrics, summary
from .table import Table, from_rows

SUFFIX = ".instr.csv"
CHIP = ("pe_clock_freq", "pe_clock_others", "hbm_ddr_bandwidth")  # of the metadata of profiles.json
WHOLE_PASSES = "2.28."  # profiler versions known to count each pass of an fp32 product as a whole one
BYTES = ("hbm_read_bytes", "hbm_write_bytes", "sbuf_read_bytes", "sbuf_write_bytes", "psum_read_bytes", "psum_write_bytes")


@attrs.frozen(eq=False)
class Profile:
    """A measured profile's tables, and what else the summary needs."""

    name: str
    instructions: Table
    packets: Table
    facts: Facts
    simulated: bool = False  # an export of a simulation
    unread: frozenset[str] = frozenset()  # opcodes of the kernel whose operands nc-sim does not read


def read(path: str | Path, *, physical_cores: int = 2, core: str = "NeuronCore-v3") -> Profile:
    """The profile of `NAME.instr.csv` or of a JSON export; ProgramError names file and line, or record, of what it cannot use.

    The public traces are of logical cores with two physical ones; an export says how many. `core` decides what an fp8 flop
    counts in bf16. Flops of an fp32 product are counted as the profiler did that wrote the profile: version 2.28 counts both
    passes whole, schema 7.4.0 each half.
    """
    path = Path(path)
    releases = dict.fromkeys(Engine, 0.0)  # where time zero is does not matter here
    unknown = set[str]()
    rows: Iterable[tuple[str, Mapping[str, str]]]
    packets: Iterable[tuple[str, Mapping[str, str]]]
    if profile_json.is_json(path):
        document = profile_json.load(path)
        running = [k for k, name in enumerate(document.names) if any(profile_csv.in_body(row) for _, row in document.rows[name])]
        cores_of: list[int | None] = [*running] or [None]  # None: it says that none runs a kernel
        bodies = [profile_csv.read(path, releases, k, document, unknown) for k in cores_of]
        rows, packets = (_in_file_order(by_core.values()) for by_core in (document.rows, document.packets))
        name, told, cores = path.name.removesuffix(".json"), document.told, document.told.get("physical_cores", physical_cores)
    else:
        name = path.name.removesuffix(".csv").removesuffix(".instr")
        bodies, rows = [profile_csv.read(path, releases, unknown=unknown)], profile_csv.rows(path)
        packets, cores = profile_packets.rows_of(path, bodies[0]), physical_cores
        told = _told(path.with_name("profiles.json"), name)
    for body in [] if any(opcode.startswith("DMA") for opcode in unknown) else bodies:
        moved = [profile_packets.packet(r) for _, r in profile_packets.rows_of(path, body)]
        profile_packets.require_same_run(profile_packets.place_of(path, body), body.measured, moved)
    body_of = {s.line: s.instruction for body in bodies for s in body.steps}
    return attrs.evolve(profile_of(name, rows, body_of, packets, told, physical_cores=cores, core=core), unread=frozenset(unknown))


def _in_file_order(by_core: Iterable[Sequence[profile_json.Placed]]) -> list[profile_json.Placed]:
    """Records of all cores as the file has them: their places end with their number."""
    return sorted((r for rows in by_core for r in rows), key=lambda r: int(r[0].rsplit("[", 1)[1].rstrip("]")))


def profile_of(
    name: str, rows: Iterable[tuple[str, Mapping[str, str]]], body: Mapping[str, Instruction],
    packets: Iterable[tuple[str, Mapping[str, str]]], told: Mapping[str, Any], *, physical_cores: int, core: str,
) -> Profile:  # fmt: skip
    """A profile from rows with the columns of the CSV files, each with its place, whatever file they come from.

    `body` has the instructions of the kernel by the place of their row. `told` may have total_time in seconds, model_flops,
    profiler_version, and metadata with the chip's clocks and bandwidth.
    """
    whole = 2 if str(told.get("profiler_version", "")).startswith(WHOLE_PASSES) else 1
    instructions = from_rows("Instruction", list(_instructions(rows, body, core, whole)))
    moved_in = from_rows("DmaPacket", list(_packets(packets)))
    ends = [max(t.columns()["end_ts"], default=0) for t in (instructions, moved_in)]
    meta = told.get("metadata", {})
    facts = Facts(
        total_time_ns=round(told["total_time"] * 1e9, 3) if "total_time" in told else float(max(ends)), physical_cores=physical_cores,
        tensor_ghz=meta.get("pe_clock_freq"), core_ghz=meta.get("pe_clock_others"), hbm_bytes_per_s=meta.get("hbm_ddr_bandwidth"),
        model_flops=told.get("model_flops", 0), array_rows=int(meta.get("pe_num_rows", 128)),
        array_columns=int(meta.get("pe_num_cols", 128)),
    )  # fmt: skip
    return Profile(name, instructions, moved_in, facts, told.get("is_simulation", False))


def _instructions(
    rows: Iterable[tuple[str, Mapping[str, str]]], body: Mapping[str, Instruction], core: str, whole: int
) -> Iterator[dict[str, Any]]:
    """Rows in the order of the file. Bytes and flops are those of the kernel body; setup and teardown move nothing of it."""
    for number, (where, row) in enumerate(rows):
        start, duration, track = int(row["timestamp_ns"]), int(row["duration_ns"]), row["engine"]
        engine = track.removesuffix("Matrix")
        out: dict[str, Any] = {
            "start_ts": start, "end_ts": start + duration, "duration_ns": duration, "engine": engine.lower(), "timeline_track": track,
            "opcode": row["opcode"], "operands": row["operands"].strip(), "id": number, "pc": int(row["pc"]),
            "evt_wait_time_ns": int(row["evt_wait_ns"]) if (row.get("evt_wait_ns") or "").isdigit() else None,
            "scalar_activation_fn": row.get("fn") or None, "nki_source_location": row.get("line") or None,
        }  # fmt: skip
        if (instruction := body.get(where)) is not None:
            counts = moved(instruction)
            out |= dict(zip(BYTES, counts, strict=False))
            out["psum_read_sbuf_write_bytes"] = counts[3] if counts[3] and counts[4] else 0
            if isinstance(instruction, LoadWeights | Matmul):
                out["tensor_instruction_type"] = "TRANSPOSE" if instruction.transpose else "REGULAR"
            if isinstance(instruction, Matmul):
                flops, transposed = counts[6:]
                times = 1 if instruction.passes == "single" else whole
                factor = adjustment(row["operands"].strip(), core)
                out |= {"raw_flops": flops * times, "flops_transpose": transposed * times}
                out |= {"adjusted_flops": int(flops * factor), "adjusted_flops_transpose": int(transposed * factor)}
        yield out


def tables(profile: Profile) -> dict[str, Table]:
    """The tables that a measured profile fills, with the summary over them."""
    facts = profile.facts
    meta = {
        "profile_schema_version": load().version, "num_physical_cores": facts.physical_cores, "vnc_enabled": facts.physical_cores > 1,
        "first_hw_timestamp": 0, "last_hw_timestamp": int(facts.total_time_ns), "hbm_ddr_bandwidth": facts.hbm_bytes_per_s,
        "tensor_engine_clock_freq": facts.tensor_ghz, "neuroncore_clock_freq": facts.core_ghz, "profile_name": profile.name,
        "is_simulation": profile.simulated,
    }  # fmt: skip
    return {
        "DmaPacket": profile.packets, "Instruction": profile.instructions, "Metadata": from_rows("Metadata", [meta]),
        "SchemaFields": schema_fields(), "Summary": from_rows("Summary", [metrics(profile)]),
    }  # fmt: skip


def metrics(profile: Profile) -> Metrics:
    """Every Summary metric that the files tell; what rests on an instruction that nc-sim does not read is null."""
    found = summary(profile.instructions.parts(), profile.packets.parts(), profile.facts)
    return found | dict.fromkeys(_lacking(profile.unread))


def _lacking(unread: Iterable[str]) -> Iterator[str]:
    for opcode in unread:
        yield from ("sbuf_read_bytes", "sbuf_write_bytes", "psum_read_bytes", "psum_write_bytes")
        yield from ("psum_read_sbuf_write_bytes", "psum_read_sbuf_write_count")
        if opcode.startswith("DMA"):
            yield from ("hbm_read_bytes", "hbm_write_bytes", "mbu_estimated_percent", "mm_arithmetic_intensity")
            yield from (f"mfu{k}_max_achievable_estimated_percent" for k in ("", "_inst", "_hlo"))
        if "MATMUL" in opcode:
            yield from FLOPS
            yield from ("mm_arithmetic_intensity", "hfu_estimated_percent", "mfu_estimated_percent", "mfu_inst_estimated_percent")
            yield from (f"mfu{k}_max_achievable_estimated_percent" for k in ("", "_inst"))


def _packets(rows: Iterable[tuple[str, Mapping[str, str]]]) -> Iterator[dict[str, Any]]:
    kinds = load().enums["DmaQueueType"]
    for number, (where, row) in enumerate(rows):
        kind = row["queue_type"].strip()
        if kind not in kinds:
            raise ProgramError(where, f"queue_type is {row['queue_type']!r}", f"one of {', '.join(kinds)}")
        start, duration, size = (int(row[c]) for c in ("timestamp_ns", "duration_ns", "bytes"))
        yield {
            "start_ts": start, "end_ts": start + duration, "duration_ns": duration, "id": number, "packet_idx": int(row["packet_idx"]),
            "engine_idx": int(row["dma_engine"]), "transfer_bytes": size, "queue_type": kind,
            "throughput": size * 1e9 / duration if duration else None, "queue_idx": int(row["dma_queue"]),
        }  # fmt: skip


def _told(listed: Path, name: str) -> dict[str, Any]:
    """What profiles.json says of the profile; nothing where there is none, or one of another form."""
    try:
        found = json.loads(regular(listed).read_text(encoding="utf-8-sig"))["kernels"][name]
        meta = {k: float(v) for k, v in found.get("metadata", {}).items() if k in CHIP}
        numbers = [float(found["total_time"]), float(found.get("model_flops", 0)), *meta.values()]
        if not all(math.isfinite(n) and n >= 0 for n in numbers):
            return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    told = {"total_time": numbers[0], "model_flops": int(numbers[1]), "metadata": meta}
    return told | {"profiler_version": found.get("profiler_version", "")}
