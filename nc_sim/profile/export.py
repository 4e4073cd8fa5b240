"""A profile as JSON in the form of the public profiler's `--output-format json`, and its summary as JSON and as text.

Records and keys are those of public profiles of version 2.28; what a simulation does not know is left out. The file is
written as it is made.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..trace.stored import whole
from .table import Table, length, plain

SUBGRAPH = "sg00"
# Keys of a record, and the columns they come from.
INSTRUCTION = {
    "id": "id", "timestamp": "start_ts", "duration": "duration_ns", "label": "timeline_track", "subgroup": "engine", "opcode": "opcode",
    "operands": "operands", "pc": "pc", "evt_wait_time": "evt_wait_time_ns", "activation_fn": "scalar_activation_fn",
    "instruction_type": "tensor_instruction_type", "nki_source_location": "nki_source_location", "hbm_read_bytes": "hbm_read_bytes",
    "hbm_write_bytes": "hbm_write_bytes", "sbuf_read_bytes": "sbuf_read_bytes", "sbuf_write_bytes": "sbuf_write_bytes",
    "psum_read_bytes": "psum_read_bytes", "psum_write_bytes": "psum_write_bytes",
    "psum_read_sbuf_write_bytes": "psum_read_sbuf_write_bytes",
}  # fmt: skip
PACKET = {
    "id": "id", "timestamp": "start_ts", "duration": "duration_ns", "dma_engine": "engine_idx", "dma_queue": "queue_idx",
    "queue_type": "queue_type", "transfer_size": "transfer_bytes", "read_size": "read_bytes", "write_size": "write_bytes",
    "transfer_rate": "throughput", "packet_idx": "packet_idx", "packet_aggregation_id": "packet_aggregation_id", "variable": "variable",
}  # fmt: skip
SEMAPHORE = {"id": "id", "value": "value", "timestamp": "timestamp"}
PENDING = {"value": "value", "timestamp": "timestamp"}
ACTIVE = {k: k for k in ("start_ts", "end_ts", "duration_ns", "engine", "pcore_idx")}
GATE = {"timestamp": "timestamp", "duration": "duration", "k": "k", "n": "n"}
TENSOR = {"variable_name": "variable_name", "type": "type", "shape": "shape", "size": "size"}
QUEUE = {"q_name": "name", "q_idx": "idx", "q_eng_idx": "engine_idx"}
META = {
    "first_hw_timestamp": "first_hw_timestamp", "last_hw_timestamp": "last_hw_timestamp", "first_ts": "first_ts", "last_ts": "last_ts",
    "is_simulation": "is_simulation", "num_physical_cores": "num_physical_cores", "vnc_enabled": "vnc_enabled",
    "hbm_ddr_bandwidth": "hbm_ddr_bandwidth", "dma_ddr_bandwidth": "dma_ddr_bandwidth", "pe_num_rows": "tensor_engine_num_rows",
    "pe_num_cols": "tensor_engine_num_cols", "pe_clock_freq": "tensor_engine_clock_freq", "pe_clock_others": "neuroncore_clock_freq",
}  # fmt: skip
# Top-level keys in order: the table, the keys of its records.
LISTS: dict[str, tuple[str, Mapping[str, str]]] = {
    "metadata": ("Metadata", META), "neff_node": ("TensorInfo", TENSOR), "dma_queues_info": ("DmaQueuesInfo", QUEUE),
    "instruction": ("Instruction", INSTRUCTION), "dma": ("DmaPacket", PACKET), "semaphore_update": ("SemaphoreUpdate", SEMAPHORE),
    "pending_dma": ("PendingDma", PENDING), "active_time": ("ActiveTime", ACTIVE), "ham": ("Throttle", GATE),
}  # fmt: skip
LABELS = {"tensor": "Tensor", "vector": "Vector", "scalar": "Scalar", "gpsimd": "GpSimd", "sync": "Sync"}
WITHOUT_SUBGRAPH = ("metadata", "neff_node")
DATA_VERSION = 8  # of the public profiles whose form this is


def save_json(
    tables: Mapping[str, Table], summary: Mapping[str, Any], path: Path, progress: Callable[[int, int], None] | None = None
) -> Path:
    """Write a device profile; whole or not there."""
    lists = {key: _records(key, tables[table], names) for key, (table, names) in LISTS.items()}
    warnings = (
        {"message": m, "category": c} for m, c in zip(*(tables["Warning"].columns()[k] for k in ("message", "category")), strict=True)
    )
    total = sum(tables[table].rows for table, _ in LISTS.values())
    return save_lists(
        {**lists, "summary": iter([{k: v for k, v in summary.items() if v is not None}]), "warnings": warnings}, path, total, progress
    )


def save_lists(
    lists: Mapping[str, Iterable[Mapping[str, Any]]], path: Path, total: int, progress: Callable[[int, int], None] | None = None
) -> Path:
    """Write a map of lists of records, one record a line."""
    encode, done = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode, 0
    with whole(path) as file:
        for n, (key, records) in enumerate(lists.items()):
            file.write((",\n" if n else "{\n").encode() + f"{encode(key)}: [".encode())
            for k, record in enumerate(records):
                file.write((",\n" if k else "\n").encode() + encode(record).encode(errors="surrogatepass"))
                done += 1
                if progress is not None and done % 4096 == 0:
                    progress(min(done, total), total)
            file.write(b"\n]")
        file.write(b"\n}\n")
    if progress is not None:
        progress(total, total)
    return path


def _records(key: str, table: Table, names: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for part in table.parts():
        columns = [plain(part[c]) if c in part else [None] * length(part) for c in names.values()]
        for row in zip(*columns, strict=True):
            made = {k: v for k, v in zip(names, row, strict=True) if v is not None}
            if key not in WITHOUT_SUBGRAPH:
                made["subgraph"] = SUBGRAPH
            yield _as_profiled(key, made)


def _as_profiled(key: str, row: dict[str, Any]) -> dict[str, Any]:
    """Where the older form differs from the table's value."""
    if key == "instruction":
        row["subgroup"] = LABELS.get(row["subgroup"], row["subgroup"])
    elif key == "dma":
        row["subgroup"] = f"Q{row['dma_queue']}" + (f"-E{row['dma_engine']}" if "dma_engine" in row else "")
        row |= {k: str(row[k]) for k in ("dma_engine", "dma_queue") if k in row}
        row |= {"aggregated": "no", "duplicate": "no"}
    elif key == "ham":
        row["type"] = 0
    elif key == "metadata":
        row["data_version"] = DATA_VERSION
    return row


def summary_json(summaries: Mapping[str, Mapping[str, Any]]) -> str:
    """`{"n_<hash>": {metric: value}}`."""
    return json.dumps(summaries, indent=2, allow_nan=False) + "\n"


def summary_text(summaries: Mapping[str, Mapping[str, Any]], names: Mapping[str, str]) -> str:
    """A block for each profile: its name, its key and its metrics, one a line, those of unknown value left out."""
    blocks = []
    for key, summary in summaries.items():
        flat = dict(_flat(summary))
        width = max((len(k) for k in flat), default=0)
        blocks.append("\n".join([names[key], key, *(f"  {k:<{width}}  {_value(v)}" for k, v in flat.items())]))
    return "\n\n".join(blocks) + "\n"


def _flat(summary: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for k, v in summary.items():
        if isinstance(v, Mapping):
            yield from _flat(v, f"{before}{k}.")
        elif v is not None:
            yield f"{before}{k}", v


def _value(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def save_text(text: str, path: str | os.PathLike[str]) -> Path:
    """Write a text file; whole or not there."""
    with whole(Path(path)) as file:
        file.write(text.encode(errors="surrogatepass"))
    return Path(path)
