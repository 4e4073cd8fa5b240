"""The system trace of a run of the runtime: its events, its folder, and the hardware traces beside it (docs/system-trace.md).

The folder has the published layout, `<out>/<instance-id>_pid_<pid>/`, with a fixed instance and process and times from
zero, so that the same run gives the same bytes. Reading a file executes nothing.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from ..files import regular
from ..isa.errors import ProgramError
from ..runtime import Runtime
from ..runtime.events import FRAMEWORK, HARDWARE, RUNTIME, Event, physical_core
from ..runtime.host import EVENTS, NUMBERS
from ..runtime.objects import Neff
from ..table import Ints
from . import hardware
from .hardware import PROGRAM_SUFFIX, TRACE_SUFFIX
from .stored import map_of, packed, read_columns, read_ints, read_metadata, require, said_of, stored_ints, whole

FORMAT, VERSION = "nc-sim system trace", 1
INSTANCE, PID = "i-ncsim", 1
FOLDER, FILE = f"{INSTANCE}_pid_{PID}", "ntrace.msgpack"
SOURCES = (FRAMEWORK, RUNTIME, HARDWARE)
FLOW_LIMIT = 1 << 62  # a sequence id has its execution unit above bit 48
TRANSFERS = {"dmem_buf_copyin": "host_to_device_transfers", "dmem_buf_copyout": "device_to_host_transfers"}
CALL_EVENT, DEVICE_EVENT = "nrt_execute", "nc_exec_running"
# Steps of the dependency chain behind the framework's two.
CHAIN = {
    "nrta_execute_schedule": 2, "nrta_tensor_write": 2, "nrta_tensor_read": 2, "nrta_tensor_copy": 2, "kbl_exec_wait": 3, DEVICE_EVENT: 4,
}  # fmt: skip
# Columns of numbers with their lowest value, and columns of text.
EVENT_NUMBERS = {"id": 0, "start_ns": 0, "end_ns": 0, "core": -1, "thread": -1, "stream": -1, "parent": -1}
EVENT_TEXTS = ("name", "source", "attributes")
EVENT_FLOWS = ("flows", "flow")  # how many ids an event has, and the ids of all events
MODEL_NUMBERS = {"id": 0, "core": 0, "executions": 0}
MODEL_TEXTS = ("name", "hash")
# Every key of the metadata with a sample of its form; "" as a key stands for any.
METADATA: dict[str, Any] = {
    "instance": "", "pid": 0, "is_simulation": True, "tool": "", "tool_version": "", "chip": "", "chip_core": "", "cores": 0,
    "what_if": {"": ""}, "prologue_ns": 0, "epilogue_ns": 0,
    "host_profile": {"name": "", "numbers": {"": {"value": 0, "status": "", "source": ""}}},
    "dropped": [{"core": 0, "events": 0}],
}  # fmt: skip


@attrs.frozen
class Loaded:
    """A program loaded on a core, and how often it ran."""

    id: int  # model_id of the events
    name: str
    hash: str  # twenty digits, as in the names of its files
    core: int
    executions: int


@attrs.frozen
class SystemTrace:
    """Events in order of recording, and the hardware traces of what ran. Equal if metadata and events are."""

    metadata: dict[str, Any]
    models: tuple[Loaded, ...]
    events: tuple[Event, ...]
    path: Path | None = attrs.field(default=None, eq=False)
    made: Mapping[tuple[str, int], hardware.Trace] = attrs.field(factory=dict, eq=False, repr=False)  # by program hash and core

    def lanes(self) -> dict[str, tuple[Event, ...]]:
        """Events by their published label, sorted by label and start."""
        out: dict[str, list[Event]] = {}
        for e in self.events:
            out.setdefault(lane(e), []).append(e)
        return {k: tuple(sorted(out[k], key=lambda e: (e.start_ns, -e.end_ns, e.id))) for k in sorted(out)}

    def device(self, model_id: int) -> hardware.Trace:
        """The hardware trace of a loaded program that ran: in memory, or from the file beside this one."""
        model = next((m for m in self.models if m.id == model_id and m.executions), None)
        if model is None:
            raise ProgramError("system trace", f"model {model_id}", "the id of a model that ran")
        key = model.hash, model.core
        if key in self.made:
            return self.made[key]
        if self.path is None:
            raise ProgramError("system trace", f"no hardware trace of {model.name}", "one recorded with devices=True")
        found = hardware.load(self.path.parent / _trace_name(*key))
        require(found.hash == key[0], f"{found.path} hash", found.hash, f"{key[0]}, as its name says")
        return found


def lane(event: Event) -> str:
    """The published label of an event's lane, in the default grouping."""
    process = f"{INSTANCE}/PID:{PID}"
    if event.source == FRAMEWORK:
        return f"{process}/framework/{f'Stream:{event.stream}' if event.stream >= 0 else f'TID:{event.thread}'}"
    if event.name in TRANSFERS and "size" in event.attributes:  # not those of which only the number is known
        return f"{INSTANCE}/NC:{event.core}/{TRANSFERS[event.name]}"
    if event.source == HARDWARE:
        return f"{process}/neuron_hw/NC{event.core}:{physical_core(event)}"
    return f"{process}/neuron_rt/{f'NC:{event.core}' if event.core >= 0 else f'TID:{event.thread}'}"


@attrs.define(eq=False)
class Row:
    """Events of one thread in order of start; `depth`, and `up` (row's index of the enclosing event, or -1), tell how they nest."""

    name: str
    events: list[Event] = attrs.field(factory=list)
    depth: list[int] = attrs.field(factory=list)
    up: list[int] = attrs.field(factory=list)
    open: list[int] = attrs.field(factory=list)  # nested events, some of which may have ended

    def seat(self, e: Event) -> int:
        """How many open events an event lies inside: 0 on a free row, -1 where something else is going on.

        It belongs inside its parent, a step inside its nrt_execute or execution, a call of a framework thread inside another.
        A moment at its parent's end is inside.
        """
        depth = len(self.open)
        while depth:
            top = self.events[self.open[depth - 1]]
            if top.end_ns > e.start_ns or (top.id == e.parent and e.end_ns == top.end_ns):
                return depth if _belongs(e, top) and e.end_ns <= top.end_ns else -1
            depth -= 1
        return 0

    def add(self, e: Event, depth: int) -> None:
        """Inside the first `depth` open events."""
        del self.open[depth:]
        self.up.append(self.open[-1] if depth else -1)
        self.depth.append(depth)
        if e.end_ns > e.start_ns:
            self.open.append(len(self.events))
        self.events.append(e)


def rows(events: Iterable[Event]) -> list[Row]:
    """Events by thread, as the real export groups them; what overlaps without belonging together stands on rows beside."""
    threads: dict[tuple[int, int, int, str], list[Event]] = {}
    for e in events:
        threads.setdefault(_thread(e), []).append(e)
    out = []
    for key in sorted(threads):
        begun = {e.id: e.start_ns for e in threads[key]}
        long: dict[int, list[Event]] = {}
        for e in threads[key]:
            if e.end_ns > e.start_ns:
                long.setdefault(e.start_ns, []).append(e)
        beside: list[Row] = []
        for e in sorted(threads[key], key=lambda e: _order(e, begun, long.get(e.start_ns, []))):
            seats = [r.seat(e) for r in beside]
            depth = max(seats, default=-1)
            if depth < 0:
                beside.append(Row(key[3]))
            beside[seats.index(depth) if depth >= 0 else -1].add(e, max(0, depth))
        for k, r in enumerate(beside):
            r.name += f" - Row {k}" if len(beside) > 1 else ""
        out += beside
    return out


def _order(e: Event, begun: Mapping[int, int], beginning: Sequence[Event]) -> tuple[int, bool, int, int]:
    """By start, the longest first; but a moment comes before what is `beginning` then, unless it belongs inside that."""
    moment = e.end_ns == e.start_ns
    if moment and e.parent in begun:
        moment = begun[e.parent] < e.start_ns
    elif moment:
        moment = not any(_belongs(e, top) for top in beginning)
    return e.start_ns, not moment, -e.end_ns, e.id


def _belongs(e: Event, top: Event) -> bool:
    """Inside its parent, a step inside its nrt_execute or execution, a call of a framework thread inside another."""
    step = top.name in (CALL_EVENT, DEVICE_EVENT) and not set(top.flow).isdisjoint(e.flow)
    return e.parent == top.id or step or (e.source == FRAMEWORK and e.stream < 0)


def _thread(e: Event) -> tuple[int, int, int, str]:
    """Order and name of an event's thread: worker, core, thread and source, as far as it has them."""
    if e.source == FRAMEWORK:
        return (1, e.stream, 0, f"stream{e.stream}-framework") if e.stream >= 0 else (0, e.thread, 0, f"tid{e.thread}-framework")
    core = f"gid{e.core}-nc{e.core}-" if e.core >= 0 else ""
    if e.source == HARDWARE:
        number = physical_core(e)  # physical cores run side by side, so each has a thread
        return 3, e.core, number, f"{f'gid{e.core}-nc{e.core}:{number}-' if number != e.core else core}{HARDWARE}"
    return 2, e.core, e.thread, f"{core}{f'tid{e.thread}-' if e.thread >= 0 else ''}{e.source}"


def arrows(events: Iterable[Event]) -> list[tuple[int, int]]:
    """The dependency chain as pairs of event ids: operation, its stream event, schedule, wait, execution on each core.

    A flow id joins the steps; one that was not captured is skipped.
    """
    steps: dict[int, list[tuple[int, int]]] = {}  # level and event of each flow
    for e in events:
        level = int(e.stream >= 0) if e.source == FRAMEWORK else CHAIN.get(e.name)
        if level is not None:
            for flow in e.flow:
                steps.setdefault(flow, []).append((level, e.id))
    edges: set[tuple[int, int]] = set()
    for found in steps.values():
        levels = [[number for _, number in group] for _, group in itertools.groupby(sorted(found), lambda s: s[0])]
        for sources, targets in itertools.pairwise(levels):
            edges.update(itertools.product(sources, targets))
    return sorted(edges)


# --- writing -----------------------------------------------------------------------------------------------------


def trace_of(runtime: Runtime, *, devices: bool = True) -> SystemTrace:
    """The system trace of a runtime so far, in memory; `devices` also makes the hardware trace of every program that ran."""
    made = {(neff.hash, core): trace for neff, cores in _ran(runtime) for core, trace in device_traces(neff, cores)} if devices else {}
    models = tuple(Loaded(m.id, m.neff.program.name, m.neff.hash, m.core, m.executions) for m in runtime.models)
    return SystemTrace(_metadata(runtime), models, tuple(runtime.trace.events), made=made)


def device_traces(neff: Neff, cores: Iterable[int]) -> list[tuple[int, hardware.Trace]]:
    """The hardware trace of one execution of a loaded program, for each core it ran on."""
    trace, _ = _pair(neff)
    return [(core, _on(trace, core)) for core in cores]


def save(runtime: Runtime, folder: str | Path, *, devices: bool = True) -> Path:
    """Write the trace of a runtime so far into `folder/i-ncsim_pid_1`, made if needed; returns that folder.

    `devices` also writes the program and the hardware trace of everything that ran. Each file is whole or not there, and
    the system trace comes last.
    """
    inner = Path(folder) / FOLDER
    data = pack(trace_of(runtime, devices=False))  # first: what cannot be written leaves no file behind
    for neff, cores in _ran(runtime) if devices else []:
        trace, program = _pair(neff)
        _write(inner / f"neff_{neff.hash}{PROGRAM_SUFFIX}", program)
        for core in cores:
            _write(inner / _trace_name(neff.hash, core), hardware.pack(_on(trace, core)))
    _write(inner / FILE, data)
    return inner


def _trace_name(number: str, core: int) -> str:
    return f"{number}_instid_0_vnc_{core}{TRACE_SUFFIX}"


def _ran(runtime: Runtime) -> list[tuple[Neff, list[int]]]:
    """Programs that were executed, and on which cores."""
    cores: dict[str, set[int]] = {}
    for m in runtime.models:
        if m.executions:
            cores.setdefault(m.neff.hash, set()).add(m.core)
    return [(runtime.neffs[k], sorted(cores[k])) for k in sorted(cores)]


def _pair(neff: Neff) -> tuple[hardware.Trace, bytes]:
    """The trace of a program's execution, and the file of the program."""
    program = hardware.pack_program(neff.result)
    sha = hashlib.sha256(program).hexdigest()
    return attrs.evolve(hardware.trace_of(neff.result), hash=neff.hash, program_sha256=sha), program


def _on(trace: hardware.Trace, core: int) -> hardware.Trace:
    return attrs.evolve(trace, metadata={**trace.metadata, "vnc": core})


def _metadata(runtime: Runtime) -> dict[str, Any]:
    from .. import __version__

    chip, host = runtime.chip, runtime.profile
    fixed = {f"{p}_ns": math.floor(chip.reader()(f"program.{p}_ns") + Fraction(1, 2)) for p in ("prologue", "epilogue")}
    known = dict.fromkeys(NUMBERS, ("assumed", "given in Python")) | dict(host.provenance)
    numbers = {k: {"value": getattr(host, k), "status": known[k][0], "source": known[k][1]} for k in NUMBERS}
    numbers |= {f"{EVENTS}.{k}": attrs.asdict(v) for k, v in host.events.items()}
    return {
        "instance": INSTANCE, "pid": PID, "is_simulation": True, "tool": "nc-sim", "tool_version": __version__,
        "chip": chip.name, "chip_core": chip.core, "cores": runtime.cores,
        "what_if": {k: str(v) for k, v in sorted(chip.overrides.items())}, **said_of(chip), **fixed,
        "host_profile": {"name": host.name, "numbers": numbers},
        "dropped": [{"core": c, "events": n} for c, n in sorted(runtime.trace.dropped.items())],
    }  # fmt: skip


def _write(path: Path, data: bytes) -> None:
    with whole(path) as file:
        file.write(data)


def pack(trace: SystemTrace) -> bytes:
    """The bytes of a trace file; ProgramError for an event that a file cannot hold."""
    events, models = trace.events, trace.models
    columns = {k: _stored([getattr(e, k) for e in events], f"events {k}") for k in EVENT_NUMBERS}
    texts = [e.name for e in events], [e.source for e in events], [_json(e) for e in events]
    columns |= {k: _stored_texts(column) for k, column in zip(EVENT_TEXTS, texts, strict=True)}
    columns["flows"] = _stored([len(e.flow) for e in events], "events flows")
    columns["flow"] = _stored([f for e in events for f in e.flow], "events flow")
    loaded = {k: _stored([getattr(m, k) for m in models], f"models {k}") for k in MODEL_NUMBERS}
    loaded |= {k: _stored_texts([getattr(m, k) for m in models]) for k in MODEL_TEXTS}
    parts = {"models": {"count": len(models), "columns": loaded}, "events": {"count": len(events), "columns": columns}}
    data = packed({"format": FORMAT, "version": VERSION, "metadata": trace.metadata, **parts})
    unpack(data, "system trace")  # nothing is written that cannot be read
    return data


def _stored(values: Sequence[int], where: str) -> list[Any]:
    try:
        return stored_ints(np.array(values, np.int64).reshape(-1))
    except (OverflowError, ValueError, TypeError):
        raise ProgramError(where, "a value that is no integer of 64 bits", "whole numbers") from None


def _stored_texts(column: Sequence[str]) -> list[Any]:
    """One index per row, and the distinct texts as JSON."""
    known: dict[str, int] = {}
    index = [known.setdefault(v, len(known)) for v in column]
    return [*stored_ints(np.array(index, np.int64)), json.dumps(list(known)).encode()]


def _json(event: Event) -> str:
    try:
        if all(type(k) is str for k in event.attributes):
            return json.dumps(event.attributes, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        pass
    raise ProgramError(
        f"event {event.id} ({event.name}) attributes", f"{event.attributes!r:.80}", "texts, finite numbers and lists by name"
    )


# --- reading -----------------------------------------------------------------------------------------------------


def _inside(folder: Path) -> list[Path]:
    return [p for p in (folder / FILE, folder / FOLDER / FILE) if p.is_file()]


def is_saved(path: str | Path) -> bool:
    """Whether `load` would take the path for a system trace, by its name; nothing is read."""
    path = Path(path)
    return path.name == FILE or bool(_inside(path))


def folders_with_traces(folder: Path) -> list[str]:
    """Names of the folders in a folder that hold a trace of either kind, such as the variants of a study."""
    return sorted(p.name for p in folder.iterdir() if p.is_dir() and (is_saved(p) or any(p.glob(f"*{TRACE_SUFFIX}"))))


def load(path: str | Path) -> SystemTrace:
    """The system trace of a file, of its folder, or of the folder that `save` was given."""
    where = Path(path)
    if where.is_dir():
        found = _inside(where)
        if not found:
            raise ProgramError(str(where), "no system trace", f"{FILE}, or {FOLDER}/{FILE}")
        where = found[0]
    try:
        data = regular(where).read_bytes()
    except OSError as e:
        raise ProgramError(str(where), f"cannot be read: {e.strerror}", "a system trace that nc-sim wrote") from None
    return attrs.evolve(unpack(data, str(where)), path=where)


def unpack(data: bytes, where: str = "trace") -> SystemTrace:
    """The trace of a file's bytes; ProgramError names the file and the field that is wrong."""
    raw = map_of(data, where, FORMAT, VERSION)
    got = read_metadata(raw.get("metadata"), METADATA, where, -1)
    require(got["is_simulation"], f"{where} metadata is_simulation", False, "true")
    models, events = _read_models(raw.get("models"), f"{where} models"), _read_events(raw.get("events"), f"{where} events")
    keys = {"format", "version", "metadata", "models", "events"}
    require(set(raw) == keys, where, sorted(map(str, set(raw) - keys)), "no other key")
    return SystemTrace(got, models, events)


def _columns(raw: Any, where: str, names: Iterable[str]) -> tuple[dict[str, Any], int]:
    columns, count = read_columns(raw, where)
    wrong = sorted(map(str, set(columns) ^ set(names)))
    require(not wrong, f"{where} columns", wrong, f"exactly {', '.join(names)}")
    return columns, count


def _read_models(raw: Any, where: str) -> tuple[Loaded, ...]:
    columns, count = _columns(raw, where, (*MODEL_NUMBERS, *MODEL_TEXTS))
    number = {k: read_ints(columns[k], count, f"{where} {k}", low).tolist() for k, low in MODEL_NUMBERS.items()}
    (names, name), (hashes, at) = (_read_texts(columns[k], count, f"{where} {k}") for k in MODEL_TEXTS)
    for h in hashes:
        require(re.fullmatch(r"\d{20}", h, re.ASCII) is not None, f"{where} hash", h, "twenty digits")
    rows = zip(number["id"], name.tolist(), at.tolist(), number["core"], number["executions"], strict=True)
    return tuple(Loaded(i, names[n], hashes[h], core, executions) for i, n, h, core, executions in rows)


def _read_events(raw: Any, where: str) -> tuple[Event, ...]:
    columns, count = _columns(raw, where, (*EVENT_NUMBERS, *EVENT_TEXTS, *EVENT_FLOWS))
    number = {k: read_ints(columns[k], count, f"{where} {k}", low) for k, low in EVENT_NUMBERS.items()}
    flows = read_ints(columns["flows"], count, f"{where} flows", 0, 1 << 20)
    flow = read_ints(columns["flow"], int(flows.sum()), f"{where} flow", 0, FLOW_LIMIT)
    for name, holds, told in (
        ("end_ns", number["end_ns"] >= number["start_ns"], "a time not before start_ns"),
        ("parent", number["parent"] < number["id"], "an event recorded before"),
        ("id", np.diff(number["id"], prepend=-1) > 0, "rising ids"),
    ):
        if not holds.all():
            row = int(np.flatnonzero(~holds)[0])
            raise ProgramError(f"{where} {name}", f"{number[name][row]} in row {row}", told)
    texts = {k: _read_texts(columns[k], count, f"{where} {k}") for k in EVENT_TEXTS}
    names, sources = texts["name"][0], texts["source"][0]
    for source in sources:
        require(source in SOURCES, f"{where} source", source, f"one of {', '.join(SOURCES)}")
    attributes = [_read_attributes(v, f"{where} attributes") for v in texts["attributes"][0]]
    ends, ids = flows.cumsum().tolist(), flow.tolist()
    cells = *(number[k].tolist() for k in EVENT_NUMBERS), *(texts[k][1].tolist() for k in EVENT_TEXTS)
    return tuple(
        Event(i, names[n], sources[s], start, end, core, thread, stream, parent, tuple(ids[a:b]), dict(attributes[at]))
        for i, start, end, core, thread, stream, parent, n, s, at, a, b in zip(*cells, [0, *ends][:-1], ends, strict=True)
    )


def _read_texts(raw: Any, count: int, where: str) -> tuple[list[str], Ints]:
    index = read_ints(raw, count, where)
    values = _parsed(raw[2] if len(raw) == 3 else None, where)
    if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
        raise ProgramError(where, "no texts", "a JSON list of texts")
    require(index.max(initial=-1) < len(values), where, int(index.max(initial=0)), f"an index below {len(values)}")
    return values, index


def _read_attributes(text: str, where: str) -> dict[str, Any]:
    value = _parsed(text.encode("utf-8", "surrogatepass"), where)
    if not isinstance(value, dict):
        raise ProgramError(where, f"{text!r:.80}", "a JSON object")
    return value


def _parsed(data: Any, where: str) -> Any:
    def finite(number: str) -> float:
        value = float(number)
        if not math.isfinite(value):
            raise ValueError(number)
        return value

    try:
        return json.loads(data, parse_float=finite, parse_constant=finite)
    except (ValueError, TypeError, RecursionError):
        raise ProgramError(where, "unreadable data", "JSON") from None
