"""The tables of a device profile: one execution of a program on one core."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..chip import Chip
from ..isa.tensor import MAX_COLUMNS, MAX_CONTRACTION
from ..trace.system import INSTANCE, PID
from . import instructions, memory, movement
from .packets import shares
from .schema import fields, load
from .source import Device, tensors_of
from .summary import Engines, Facts, Metrics, Packets, beyond
from .summary import metrics as metrics_of
from .table import Columns, Table, constant, from_rows, of

THROTTLE = "activity_0"  # the PE's clock gate
UNKNOWN_PACKETS, EXTRAPOLATED = "Missing Data", "Extrapolated"
SUMMED: dict[str, type[Engines] | type[Packets]] = {"Instruction": Engines, "DmaPacket": Packets}


def tables(device: Device) -> dict[str, Table]:
    """Every table that has a meaning in a simulation, by name and in published order; one without rows is there too."""
    known = shares(device)
    made = {
        "Instruction": instructions.instructions(device),
        "DmaPacket": movement.dma_packets(device, known),
        "DmaPacketAggregated": movement.transfers(device),
        "DmaQueuesInfo": movement.queues(device),
        "SemaphoreUpdate": instructions.semaphore_updates(device),
        "ActiveTime": instructions.active_time(device),
        "PendingDma": movement.pending(device),
        "DmaUsage": movement.dma_usage(device),
        "HbmUsage": movement.hbm_usage(device),
        "SbufUsage": memory.sbuf_usage(device),
        "PsumUsage": memory.psum_usage(device),
        "SbufAllocation": memory.sbuf_allocation(device),
        "Throttle": throttle(device),
        "ThrottleSummary": throttle_summary(device),
        "Flow": instructions.flow(device),
        "OpcodeSummary": instructions.opcode_summary(device),
        "TensorInfo": memory.tensor_info(device),
        "KernelInstructions": instructions.kernel_instructions(device),
        **instructions.stack_frames(device),
        "ExecutionInfo": execution(device),
        "Metadata": metadata(device),
        "Warning": _warnings(known.spread, device.chip),
    }
    made["Summary"] = _summary(made, facts(device, made))
    made["SchemaFields"] = schema_fields()
    return {name: made[name] for name in load().tables if name in made}


def _summary(made: dict[str, Table], counted: Facts) -> Table:
    """The summary, added up while the tables it rests on are written; where they were not, they are made for it."""
    added: dict[str, Any] = {}

    def watched(name: str, kind: type[Engines] | type[Packets]) -> Table:
        table = made[name]

        def parts() -> Iterator[Columns]:
            totals = kind()
            for part in table.parts():
                totals.add(part)
                yield part
            added[name] = totals

        return Table(name, parts, table.rows)

    def rows() -> Iterator[Columns]:
        for name in SUMMED:
            if name not in added:
                deque(made[name].parts(), maxlen=0)
        yield {k: [v] for k, v in metrics_of(added["Instruction"], added["DmaPacket"], counted).items()}

    made |= {name: watched(name, kind) for name, kind in SUMMED.items()}
    return Table("Summary", rows, 1)


def metrics(device: Device) -> Metrics:
    """Every Summary metric, and those that only a summary as JSON has."""
    made = tables(device)
    found = {k: v[0] for k, v in made["Summary"].columns().items()}
    return {**found, **beyond(found, facts(device, made))}


def key(device: Device) -> str:
    """The key of this profile in a summary as JSON: n_ and forty hexadecimal digits that follow from program and run."""
    told = json.dumps([device.trace.hash, device.trace.metadata], sort_keys=True, ensure_ascii=False)
    return f"n_{hashlib.sha1(told.encode(errors='surrogatepass'), usedforsecurity=False).hexdigest()}"


def facts(device: Device, made: dict[str, Table]) -> Facts:
    """What the summary needs beside the tables of instructions and packets."""
    bandwidth = device.number("memory.hbm_bytes_per_ns")
    sizes = {k: sum(t.partition_bytes for t in tensors_of(device, [k])) for k in ("input", "output", "constant")}
    apart = ("Summary", "SchemaFields")
    return Facts(
        total_time_ns=device.total_ns, physical_cores=device.physical_cores, array_rows=MAX_CONTRACTION, array_columns=MAX_COLUMNS,
        tensor_ghz=_ghz(device, "tensor"), core_ghz=_ghz(device, "sync"),
        hbm_bytes_per_s=None if bandwidth is None else float(bandwidth) * 1e9,
        input_bytes=sizes["input"], output_bytes=sizes["output"], weight_bytes=sizes["constant"], dma_queues=made["DmaQueuesInfo"].rows,
        events=made["SemaphoreUpdate"].rows, rows=sum(t.rows for name, t in made.items() if name not in apart),
    )  # fmt: skip


def _ghz(device: Device, engine: str) -> float | None:
    mhz = device.number(f"clock.{engine}_mhz")
    return None if mhz is None else float(mhz) / 1000


def metadata(device: Device) -> Table:
    """One row: the chip and the run. What belongs to an installation, such as versions and instances, is null."""
    n = device.number
    rate, engines, bandwidth = n("dma.load_bytes_per_ns"), n("dma.engines"), n("memory.hbm_bytes_per_ns")
    clocks = {f"{e}_engine_clock_freq": _ghz(device, e) for e in ("tensor", "vector", "scalar", "gpsimd")}
    channels = {f"{e}_engine_num_channels": n("memory.partitions") for e in ("vector", "scalar", "gpsimd")}
    return from_rows("Metadata", [{
        "profile_schema_version": load().version, "num_physical_cores": device.physical_cores, "vnc_enabled": device.physical_cores > 1,
        "first_hw_timestamp": 0, "last_hw_timestamp": device.total_ns, "first_ts": _unix(0), "last_ts": _unix(device.total_ns),
        "dma_ddr_bandwidth": None if rate is None else float(rate * engines) * 1e9, "num_dma_engines_per_neuroncore": engines,
        "hbm_ddr_bandwidth": None if bandwidth is None else float(bandwidth) * 1e9,
        "tensor_engine_num_rows": MAX_CONTRACTION, "tensor_engine_num_cols": MAX_COLUMNS, **clocks, **channels,
        "neuroncore_clock_freq": _ghz(device, "sync"), "neuroncore_idx": device.core, "profile_name": device.name, "is_simulation": True,
    }])  # fmt: skip


def _unix(ns: int) -> str:
    """A time of the profile as the text of a Unix time; a program that runs for a day is not foreseen."""
    seconds, rest = divmod(ns, 10**9)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"1970-01-{1 + hours // 24:02} {hours % 24:02}:{minutes:02}:{seconds:02}.{rest:09}+00:00"


def execution(device: Device) -> Table:
    """The one execution of the profile."""
    name = device.trace.path and f"neff_{device.trace.hash}.neff.msgpack"
    row = {
        "execution_index": 0,
        "neff_name": name,
        "execution_start_ts": 0,
        "execution_end_ts": device.total_ns,
        "num_subgraphs": device.physical_cores,
    }
    return from_rows("ExecutionInfo", [row])


def throttle(device: Device) -> Table:
    """What the PE's clock gate allows: k of n, from one change to the next."""
    g = device.trace.gate
    return of("Throttle", {
        "duration": g.end.ns - g.start.ns, "k": g.k, "n": g.n, "timestamp": g.start.ns + device.shift_ns,
        "type": constant(THROTTLE, len(g)), "pcore_idx": np.zeros(len(g), np.int64),
    })  # fmt: skip


def throttle_summary(device: Device) -> Table:
    """How long the gate allowed less than the full rate, and the mean of what it allowed, by time."""
    g = device.trace.gate
    lasting = g.end.ns - g.start.ns
    active = int(lasting[g.k < g.n].sum())
    row = {
        "nc_idx": device.core, "throttle_active_time_ns": active, "throttle_active_time_percent": active / device.total_ns,
        "max_achievable_util_with_throttling_percent": float((lasting * (g.k / g.n)).sum() / lasting.sum()) if lasting.sum() else None,
    }  # fmt: skip
    return from_rows("ThrottleSummary", [{**row, "throttle_type": kind} for kind in (THROTTLE, "all")])


def _warnings(spread: int, chip: Chip) -> Table:
    why = f"times on {chip.name} are extrapolated: {chip.extrapolated}"
    rows = [{"message": why, "category": EXTRAPOLATED}] if chip.extrapolated else []
    rows += [{
        "message": f"the packets of {spread} DMA engine shares are spread evenly over their recorded time: turns do not explain them",
        "category": UNKNOWN_PACKETS,
    }] if spread else []  # fmt: skip
    return from_rows("Warning", rows)


def schema_fields() -> Table:
    """Every column of every published table. The descriptions are the vendor's, and stay there."""
    return from_rows("SchemaFields", _schema_rows())


def _schema_rows() -> Iterator[dict[str, Any]]:
    for table in load().tables:
        for f in fields(table):
            kind, form = f.kind
            yield {
                "table_name": table, "field_name": f.name, "field_type": kind, "field_required": f.required, "field_format": form,
                "field_unit": f.unit, "field_enum_values": ",".join(f.allowed) or None,
            }  # fmt: skip


def identity(device: Device) -> dict[str, Any]:
    """The row of this profile in a system profile's DeviceProfileList."""
    return {"instance_id": INSTANCE, "process_id": PID, "nc_id": device.core}
