"""The public profiler's `--output-format json`: one file with instructions, DMA packets and clock-gate windows of both cores.

Read into the rows that NAME.instr.csv and NAME.dma.csv have, of one core or of all: docs/traces.md, Reading hardware profiles.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from ..files import regular
from ..isa.errors import ProgramError
from . import foreign
from .profile_rows import WHOLE, require_whole

WANTED = "a device profile, as the profiler's view --output-format json writes it"
VERSIONS = (8,)  # of `metadata.data_version`: the only one seen in public profiles
FULL = 8
Row = Mapping[str, str]
# a row's name here, the record's there, and whether it is a whole number
INSTRUCTION = (
    ("timestamp_ns", "timestamp", True), ("duration_ns", "duration", True), ("engine", "label", False), ("opcode", "opcode", False),
    ("operands", "operands", False), ("pc", "pc", True),
)  # fmt: skip
PACKET = (
    ("timestamp_ns", "timestamp", True), ("duration_ns", "duration", True), ("dma_engine", "dma_engine", True),
    ("dma_queue", "dma_queue", True), ("queue_type", "queue_type", False), ("bytes", "transfer_size", True),
    ("packet_idx", "packet_idx", True),
)  # fmt: skip


# what may be missing, and the record's name of it
OPTIONAL = {"fn": "activation_fn", "evt_wait_ns": "evt_wait_time", "line": "nki_source_location"}
CHIP = ("pe_clock_freq", "pe_clock_others", "hbm_ddr_bandwidth", "pe_num_rows", "pe_num_cols")  # of the metadata

Placed = tuple[str, dict[str, str]]  # where a row stands, and its columns


@attrs.frozen(eq=False)
class Document:
    """A whole profile: rows and packets of every core, by its name."""

    path: Path
    rows: Mapping[str, Sequence[Placed]]
    packets: Mapping[str, Sequence[Placed]]
    windows: Sequence[Mapping[str, Any]]
    told: Mapping[str, Any]  # total_time in s, model_flops, profiler_version, metadata of the chip, physical_cores, is_simulation

    @property
    def names(self) -> list[str]:
        """Of the cores, in order."""
        return sorted(self.rows)


@attrs.frozen(eq=False)
class Export:
    """One core of a profile."""

    core: int
    rows: Sequence[Placed]
    packets: Sequence[Placed]
    rise_ns: float | None  # the clock gate's first rise to full rate
    begin_ns: int | None  # of a simulation: when the body begins, a prologue later than the execution


def is_json(path: Path) -> bool:
    """Whether a file is JSON rather than CSV, by its first character."""
    try:
        with regular(path).open("rb") as f:
            start = f.read(64)
    except OSError:
        return path.suffix == ".json"
    return start.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[") or path.suffix == ".json"


def load(path: Path) -> Document:
    """Everything of a profile that nc-sim reads; ProgramError says what else the file is, or which record is wrong."""
    data = _profile(path)
    rows: dict[str, list[Placed]] = {}
    for where, core, record in _placed(path, data, "instruction", lambda r: True):
        row = _row(record, INSTRUCTION, where)
        row |= {name: _cell(record.get(key)) for name, key in OPTIONAL.items()}
        rows.setdefault(core, []).append((where, row))
    packets: dict[str, list[Placed]] = {}
    for where, core, record in _placed(path, data, "dma", lambda r: r.get("aggregated") != "yes" and r.get("duplicate") != "yes"):
        packets.setdefault(core, []).append((where, _row(record, PACKET, where)))
    return Document(path, rows, packets, _records(path, data, "ham"), _told(data))


def read(document: Document, in_body: Callable[[Row], bool], core: int | None = None) -> Export:
    """The core that runs a kernel, or the named one. `in_body` tells a kernel's instruction from the runtime's."""
    names = document.names
    kernels = {name: sum(in_body(row) for _, row in document.rows[name]) for name in names}
    name = _chosen(document.path, names, kernels, core)
    begin = _begin(document.windows, name) if document.told["is_simulation"] else None
    return Export(names.index(name), document.rows[name], document.packets.get(name, ()), _rise(document.windows, name), begin)


def _profile(path: Path) -> dict[str, Any]:
    """The file's content, if it is a device profile of a known version."""
    try:
        data = json.loads(regular(path).read_text(encoding="utf-8-sig"))
    except OSError as e:
        raise ProgramError(str(path), f"cannot be read: {e.strerror}", WANTED) from None
    except UnicodeDecodeError:
        raise ProgramError(str(path), foreign.told_of(path) or "not UTF-8 text", WANTED) from None
    except json.JSONDecodeError as e:
        if not e.doc.strip():
            raise ProgramError(str(path), "an empty file", WANTED) from None
        ended = e.pos >= len(e.doc.rstrip()) - 1 or e.msg.startswith("Unterminated") or e.doc.rstrip()[-1:] not in ("}", "]")
        cut = "; is the file cut off?" if ended else ""
        raise ProgramError(f"{path}:{e.lineno}", f"not JSON at column {e.colno}: {e.msg}", f"{WANTED}{cut}") from None
    except (RecursionError, ValueError):
        raise ProgramError(str(path), "JSON nested too deeply, or with a number too long", WANTED) from None
    if not isinstance(data, dict) or "instruction" not in data:
        raise ProgramError(str(path), _other(data), WANTED)
    metadata = data.get("metadata")
    metadata = metadata[0] if isinstance(metadata, list) and metadata else metadata
    version = metadata.get("data_version") if isinstance(metadata, dict) else None
    if version not in VERSIONS or isinstance(version, bool):
        found = "no metadata.data_version" if version is None else f"data version {version!r:.40}"
        raise ProgramError(str(path), found, f"a profile of data version {', '.join(map(str, VERSIONS))}")
    return data


def _other(data: Any) -> str:
    """What a file without instructions is."""
    if isinstance(data, dict):
        if "traceEvents" in data:
            return "a Chrome trace"
        if "trace_event" in data:
            return "a system profile"
        if data and all(isinstance(v, dict) for v in data.values()) and all(k.startswith(("n_", "s_")) for k in data):
            return "a summary, which has no instructions"
        return f"JSON without a table 'instruction' (it has {', '.join(sorted(map(repr, data))[:4]) or 'nothing'})"
    if isinstance(data, list) and data and isinstance(data[0], dict) and "ph" in data[0]:
        return "a Chrome trace"
    return f"JSON that is {'a list' if isinstance(data, list) else f'{data!r:.40}'}"


def _records(path: Path, data: Mapping[str, Any], table: str) -> list[Mapping[str, Any]]:
    records = data.get(table, [])
    if not isinstance(records, list) or not all(isinstance(r, dict) for r in records):
        raise ProgramError(f"{path.name}: {table}", f"{records!r:.60}", "a list of records")
    return records


def _placed(
    path: Path, data: Mapping[str, Any], table: str, wanted: Callable[[Mapping[str, Any]], bool]
) -> list[tuple[str, str, Mapping[str, Any]]]:
    """The wanted records of a table, each with its place and its core; two of a core with one id are an error."""
    out, known = [], dict[tuple[str, Any], int]()
    for k, record in enumerate(_records(path, data, table)):
        if not wanted(record):
            continue
        where = f"{path.name}: {table}[{k}]"
        core = _core(record, where)
        number = record.get("id")
        if isinstance(number, int | str) and known.setdefault((core, number), k) != k:
            raise ProgramError(where, f"id {number!r:.40} again, as in {table}[{known[core, number]}]", "an id for each record")
        out.append((where, core, record))
    return out


def _row(record: Mapping[str, Any], fields: Sequence[tuple[str, str, bool]], where: str) -> dict[str, str]:
    row = {}
    for name, key, number in fields:
        value = record.get(key)
        if value is None:
            raise ProgramError(where, f"no {key!r}", f"a record with {', '.join(k for _, k, _ in fields)}")
        if number:
            if isinstance(value, bool) or not isinstance(value, int | str) or (isinstance(value, int) and value < 0):
                raise ProgramError(where, f"{key} is {value!r:.40}", WHOLE)
            require_whole(str(value), where, key)
        row[name] = str(value)
    return row


def _cell(value: Any) -> str:
    """A value that may be missing, as text; of a list the first."""
    value = value[0] if isinstance(value, list) and value else value
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _core(record: Mapping[str, Any], where: str) -> str:
    name = record.get("subgraph")
    if not isinstance(name, str) or not name:
        raise ProgramError(where, f"subgraph {name!r:.40}", "the core's: sg00, sg01 ...")
    return name


def _chosen(path: Path, names: Sequence[str], kernels: Mapping[str, int], core: int | None) -> str:
    """The core asked for, or the only one with a kernel's instructions."""
    if core is not None:
        if not 0 <= core < len(names):
            raise ProgramError(str(path), f"core {core}", f"one of the {len(names)} in the file: {', '.join(map(str, range(len(names))))}")
        return names[core]
    active = [name for name in names if kernels[name]]
    if not active:
        idle = ", ".join(names) or "none"
        raise ProgramError(str(path), f"every core is idle ({idle}): no instruction of a kernel", "a kernel body on one of them")
    if len(active) > 1:
        found = ", ".join(f"{kernels[name]} on core {names.index(name)}" for name in active)
        raise ProgramError(
            str(path), f"{len(active)} cores with a kernel: {found} instructions", "one of them by its number: core=, --core"
        )
    return active[0]


def _rise(windows: Sequence[Mapping[str, Any]], core: str) -> float | None:
    """When the clock gate first opens on a core."""
    rises = [w["timestamp"] for w in _windows(windows, core) if w.get("k") == FULL and w["timestamp"] > 0]
    return min(rises, default=None)


def _begin(windows: Sequence[Mapping[str, Any]], core: str) -> int | None:
    """When the first window begins: the clock gate of a simulation is there from the start of the body, not of the prologue."""
    return min((w["timestamp"] for w in _windows(windows, core) if w["timestamp"] >= 0), default=None)


def _windows(windows: Sequence[Mapping[str, Any]], core: str) -> list[Mapping[str, Any]]:
    return [w for w in windows if w.get("subgraph", core) == core and isinstance(w.get("timestamp"), int)]


def _told(data: Mapping[str, Any]) -> dict[str, Any]:
    """What the file says of the run as a whole; what is not there, or of another form, tells nothing."""
    summary, meta, info = (_first(data.get(table)) for table in ("summary", "metadata", "profile_info"))
    out: dict[str, Any] = {"metadata": {k: v for k in CHIP if (v := _number(meta.get(k))) is not None}}
    first, last = (_number(meta.get(f"{k}_hw_timestamp")) for k in ("first", "last"))
    total = _number(summary.get("total_time"))
    if total is None and last is not None:
        total = (last - (first or 0)) / 1e9
    if total is not None:
        out["total_time"] = total
    out["model_flops"] = int(_number(summary.get("model_flops")) or 0)
    out["profiler_version"] = str(info.get("profiler_version", ""))
    cores = _number(meta.get("num_physical_cores"))
    if cores:
        out["physical_cores"] = int(cores)
    return out | {"is_simulation": meta.get("is_simulation") is True}


def _first(table: Any) -> Mapping[str, Any]:
    record = table[0] if isinstance(table, list) and table else table
    return record if isinstance(record, dict) else {}


def _number(value: Any) -> float | None:
    ok = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and 0 <= value < 1e18
    return float(value) if ok else None
