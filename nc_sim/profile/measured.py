"""Hardware profiles in CSV form as the published tables, so that one summary serves measured and simulated profiles.

NAME.instr.csv gives Instruction, NAME.dma.csv beside it DmaPacket, and profiles.json beside both the length of the run and
the chip (docs/traces.md, Reading hardware profiles). Columns that the files do not tell are null.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from ..isa import Engine, Instruction
from ..isa.errors import ProgramError
from ..isa.tensor import LoadWeights, Matmul
from ..trace import profile_csv
from ..trace.operands import moved
from .device import schema_fields
from .instructions import adjustment
from .schema import load
from .summary import Facts, Metrics, summary
from .table import Table, from_rows

PACKET_COLUMNS = ("timestamp_ns", "duration_ns", "dma_engine", "dma_queue", "queue_type", "bytes", "packet_idx")
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


def read(path: str | Path, *, physical_cores: int = 2, core: str = "NeuronCore-v3") -> Profile:
    """The profile of `NAME.instr.csv`; ProgramError names file and line of what it cannot use.

    The public traces are of logical cores with two physical ones. `core` decides what an fp8 flop counts in bf16. Flops of
    an fp32 product are counted as the profiler did that wrote the profile: version 2.28 counts both passes whole, schema
    7.4.0 each half.
    """
    path = Path(path)
    name = path.name.removesuffix(".csv").removesuffix(".instr")
    body = profile_csv.read(path, dict.fromkeys(Engine, 0.0)).steps  # where time zero is does not matter here
    return profile_of(
        name, profile_csv.rows(path), {s.line: s.instruction for s in body}, _rows(path.with_name(f"{name}.dma.csv")),
        _told(path.with_name("profiles.json"), name), physical_cores=physical_cores, core=core,
    )  # fmt: skip


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
        model_flops=told.get("model_flops", 0),
    )  # fmt: skip
    return Profile(name, instructions, moved_in, facts)


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
            "scalar_activation_fn": row.get("fn") or None,
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
    """The tables that a CSV profile fills, with the summary over them."""
    facts = profile.facts
    meta = {
        "profile_schema_version": load().version, "num_physical_cores": facts.physical_cores, "vnc_enabled": facts.physical_cores > 1,
        "first_hw_timestamp": 0, "last_hw_timestamp": int(facts.total_time_ns), "hbm_ddr_bandwidth": facts.hbm_bytes_per_s,
        "tensor_engine_clock_freq": facts.tensor_ghz, "neuroncore_clock_freq": facts.core_ghz, "profile_name": profile.name,
        "is_simulation": False,
    }  # fmt: skip
    return {
        "DmaPacket": profile.packets, "Instruction": profile.instructions, "Metadata": from_rows("Metadata", [meta]),
        "SchemaFields": schema_fields(), "Summary": from_rows("Summary", [metrics(profile)]),
    }  # fmt: skip


def metrics(profile: Profile) -> Metrics:
    """Every Summary metric that the files tell."""
    return summary(profile.instructions.parts(), profile.packets.parts(), profile.facts)


def _rows(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Every row of NAME.dma.csv with its place."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        what = getattr(e, "strerror", None) or "not text"
        raise ProgramError(str(path), f"cannot be read: {what}", "the DMA packets of the profile") from None
    reader = csv.DictReader(text.splitlines())
    missing = [c for c in PACKET_COLUMNS if c not in (reader.fieldnames or ())]
    if missing:
        raise ProgramError(f"{path}:1", f"no column {missing[0]!r}", f"columns {', '.join(PACKET_COLUMNS)}")
    for row in reader:
        yield f"{path}:{reader.line_num}", row


def _packets(rows: Iterable[tuple[str, Mapping[str, str]]]) -> Iterator[dict[str, Any]]:
    kinds = load().enums["DmaQueueType"]
    for number, (where, row) in enumerate(rows):
        cells = {c: (row[c] or "").strip().removesuffix(".0") for c in PACKET_COLUMNS}
        wrong = next((c for c in PACKET_COLUMNS if c != "queue_type" and not cells[c].isdigit()), None)
        if wrong is not None:
            raise ProgramError(where, f"{wrong} is {row[wrong]!r}", "a whole number of at least 0")
        if cells["queue_type"] not in kinds:
            raise ProgramError(where, f"queue_type is {row['queue_type']!r}", f"one of {', '.join(kinds)}")
        start, duration, size = (int(cells[c]) for c in ("timestamp_ns", "duration_ns", "bytes"))
        yield {
            "start_ts": start, "end_ts": start + duration, "duration_ns": duration, "id": number, "packet_idx": int(cells["packet_idx"]),
            "engine_idx": int(cells["dma_engine"]), "transfer_bytes": size, "queue_type": cells["queue_type"],
            "throughput": size * 1e9 / duration if duration else None, "queue_idx": int(cells["dma_queue"]),
        }  # fmt: skip


def _told(listed: Path, name: str) -> dict[str, Any]:
    """What profiles.json says of the profile; nothing where there is none, or one of another form."""
    try:
        found = json.loads(listed.read_text(encoding="utf-8-sig"))["kernels"][name]
        meta = {k: float(v) for k, v in found.get("metadata", {}).items() if k in CHIP}
        numbers = [float(found["total_time"]), float(found.get("model_flops", 0)), *meta.values()]
        if not all(math.isfinite(n) and n >= 0 for n in numbers):
            return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    told = {"total_time": numbers[0], "model_flops": int(numbers[1]), "metadata": meta}
    return told | {"profiler_version": found.get("profiler_version", "")}
