"""The public profiler's `--output-format json`: one file with instructions, DMA packets and clock-gate windows of both cores.

Read into the rows that NAME.instr.csv and NAME.dma.csv have, of one core: docs/traces.md, Reading hardware profiles.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from ..isa.errors import ProgramError

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
    ("timestamp_ns", "timestamp", True), ("duration_ns", "duration", True), ("dma_engine", "dma_engine", False),
    ("dma_queue", "dma_queue", False), ("queue_type", "queue_type", False), ("bytes", "transfer_size", True),
    ("packet_idx", "packet_idx", True),
)  # fmt: skip


@attrs.frozen(eq=False)
class Export:
    """One core of a profile."""

    core: int
    rows: Sequence[tuple[str, dict[str, str]]]  # where a row stands, and its columns
    packets: Sequence[dict[str, str]]
    rise_ns: float | None  # the clock gate's first rise to full rate


def is_json(path: Path) -> bool:
    """Whether a file is JSON rather than CSV, by its first character."""
    try:
        with path.open("rb") as f:
            start = f.read(64)
    except OSError:
        return path.suffix == ".json"
    return start.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[") or path.suffix == ".json"


def read(path: Path, in_body: Callable[[Row], bool], core: int | None = None) -> Export:
    """The core that runs a kernel, or the named one; ProgramError says what else the file is.

    `in_body` tells a kernel's instruction from the runtime's.
    """
    data = _profile(path)
    by_core: dict[str, list[tuple[str, dict[str, str]]]] = {}
    for k, record in enumerate(_records(path, data, "instruction")):
        where = f"{path.name}: instruction[{k}]"
        row = _row(record, INSTRUCTION, where)
        row["fn"] = str(record.get("activation_fn") or "")
        by_core.setdefault(_core(record, where), []).append((where, row))
    names = sorted(by_core)
    kernels = {name: sum(in_body(row) for _, row in by_core[name]) for name in names}
    name = _chosen(path, names, kernels, core)
    packets = (p for p in _records(path, data, "dma") if p.get("subgraph") == name and p.get("aggregated") != "yes")
    rows = [_row(p, PACKET, f"{path.name}: dma[{k}]") for k, p in enumerate(packets) if p.get("duplicate") != "yes"]
    return Export(names.index(name), by_core[name], rows, _rise(path, data, name))


def _profile(path: Path) -> dict[str, Any]:
    """The file's content, if it is a device profile of a known version."""
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as e:
        raise ProgramError(str(path), f"cannot be read: {e.strerror}", WANTED) from None
    except UnicodeDecodeError:
        raise ProgramError(str(path), "not UTF-8 text", WANTED) from None
    except json.JSONDecodeError as e:
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


def _row(record: Mapping[str, Any], fields: Sequence[tuple[str, str, bool]], where: str) -> dict[str, str]:
    row = {}
    for name, key, number in fields:
        value = record.get(key)
        if value is None:
            raise ProgramError(where, f"no {key!r}", f"a record with {', '.join(k for _, k, _ in fields)}")
        whole = (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, str) and value.isdecimal())
        if number and (not whole or int(value) < 0):
            raise ProgramError(where, f"{key} is {value!r:.40}", "a whole number of at least 0")
        row[name] = str(value)
    return row


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


def _rise(path: Path, data: Mapping[str, Any], core: str) -> float | None:
    """When the clock gate first opens on a core."""
    windows = [w for w in _records(path, data, "ham") if w.get("subgraph", core) == core and w.get("k") == FULL]
    rises = [w["timestamp"] for w in windows if isinstance(w.get("timestamp"), int) and w["timestamp"] > 0]
    return min(rises, default=None)
