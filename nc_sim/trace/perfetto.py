"""System and hardware traces as one Perfetto file (docs/system-trace.md, Perfetto). Needs the extra `perfetto`.

Rows are columns until they are written; packets are made, serialised and dropped by the thousand. A trace with too many
slices is written with those below a pixel merged, so that a viewer still opens it.
"""

from __future__ import annotations

import importlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import attrs
import numpy as np
import numpy.typing as npt

from ..isa.errors import ProgramError, missing_extra
from ..result import Result
from ..runtime import Runtime
from ..runtime.events import Event, physical_core
from ..table import Ints
from . import system
from .hardware import Texts, Trace, trace_of
from .pftrace import BEGIN, CLEARED, COUNTER, END, EXPLICIT, INSTANT
from .stored import whole
from .system import INSTANCE, PID, SystemTrace

CHUNK = 4096  # packets in memory
SLICES = 1_000_000  # slices and counter values of a file; more are merged
FIRST_PIXELS = 1 << 20  # of the whole trace, where merging begins
SEQUENCE = 1
NEEDS_STATE = 2  # sequence flag: this packet uses interned names
FOREVER = 1 << 62
LAST = 1 << 21  # rank of a core's folder of counters
ENGINES = ("Tensor", "TensorMatrix", "Vector", "Scalar", "GpSimd", "Sync")
DMA_ENGINES = 16  # of a core; the profiler numbers them through all cores


def save(
    of: SystemTrace | Runtime | Trace | Result, path: str | Path, *, slices: int = SLICES, devices: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Path:  # fmt: skip
    """Write a Perfetto file and return its path; whole or not there.

    A system trace, or a runtime, shows host, runtime and cores, and with `devices` every execution's instructions inside
    its nc_exec_running. A hardware trace, or a result, shows one execution from time zero. More than about `slices` slices and
    counter values are merged. `progress` is called now and then with packets done and packets in all, about.
    Raises Unsupported without the package perfetto.
    """
    package = _package()
    if isinstance(slices, bool) or not isinstance(slices, int) or slices < 1:
        raise ProgramError("perfetto", f"slices={slices!r}", "a whole number of at least 1")
    if isinstance(of, Trace | Result):
        trace = trace_of(of) if isinstance(of, Result) else of
        plan = _Plan((), {trace.metadata["vnc"]: {0: device_of(trace, trace.metadata["vnc"])}}, labels=_labels(trace.metadata))
    else:
        plan = _plan(of, devices)
    pixel = plan.pixel(slices)
    path = Path(path)
    with whole(path) as file:
        _write(plan, pixel, _Writer(file, package, progress, 0 if progress is None else plan.count(pixel, 2)))
    return path


def save_side_by_side(
    devices: Mapping[str, Device], path: str | Path, *, slices: int = SLICES, progress: Callable[[int, int], None] | None = None
) -> Path:
    """Write what several devices show from one time zero, a folder each, from top to bottom; otherwise as `save`."""
    package = _package()
    plan = _Plan((), {k: {0: device} for k, device in enumerate(devices.values())}, names=dict(enumerate(devices)), labels=())
    pixel, path = plan.pixel(slices), Path(path)
    with whole(path) as file:
        _write(plan, pixel, _Writer(file, package, progress, 0 if progress is None else plan.count(pixel, 2)))
    return path


def _package() -> Any:
    try:
        return importlib.import_module("perfetto.trace_builder.proto_builder")
    except ImportError:
        raise missing_extra("perfetto", "the package perfetto is not installed", "perfetto") from None


# --- what is drawn -----------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class Row:
    """Slices of one device row in order of start, none overlapping; times from the start of the body."""

    rank: int
    name: str
    lane: int  # overlapping slices stand in lanes beside each other
    start: Ints
    end: Ints
    size: Ints  # how many slices each stands for
    names: Texts
    texts: Mapping[str, Texts]
    numbers: Mapping[str, Ints]

    def firsts(self, pixel: int) -> Ints:
        """Where merging by pixel leaves a slice: neighbours that are shorter and begin in the same pixel become one."""
        return _firsts(self.end - self.start < pixel, self.start // max(1, pixel))

    def merged(self, pixel: int) -> Row:
        first = self.firsts(pixel)
        size = np.diff(first, append=len(self.start))
        end = np.maximum.reduceat(self.end, first) if len(first) else self.end
        names = Texts(self.names.values, self.names.index[first])
        texts = {k: Texts(t.values, t.index[first]) for k, t in self.texts.items()}
        numbers = {k: c[first] for k, c in self.numbers.items()}
        return attrs.evolve(self, start=self.start[first], end=end, size=size, names=names, texts=texts, numbers=numbers)


@attrs.frozen(eq=False)
class Counter:
    """A value over time, from the start of the body; `before` holds until the first."""

    rank: int
    name: str
    group: str
    unit: str
    before: float
    time: Ints
    value: npt.NDArray[Any]

    def merged(self, pixel: int) -> Counter:
        """The last value of each pixel, or of each ns."""
        keep = np.diff(self.time // max(1, pixel), append=-1) != 0
        return attrs.evolve(self, time=self.time[keep], value=self.value[keep])


@attrs.frozen(eq=False)
class Device:
    """What one execution shows."""

    rows: tuple[Row, ...]
    counters: tuple[Counter, ...]
    prologue_ns: int

    @property
    def end(self) -> int:
        ends = [*(r.end for r in self.rows), *(c.time for c in self.counters)]
        return max((int(e.max(initial=0)) for e in ends), default=0)

    def count(self, pixel: int, each: int = 1) -> int:
        """Counter values, and `each` for a slice."""
        return each * sum(len(r.firsts(pixel)) for r in self.rows) + sum(len(c.merged(pixel).time) for c in self.counters)


def _firsts(short: npt.NDArray[np.bool_], *alike: Ints) -> Ints:
    """Where a group begins: it goes on while slices are short and alike."""
    together = short[1:] & short[:-1] & np.logical_and.reduce([c[1:] == c[:-1] for c in alike])
    return np.flatnonzero(np.append(True, ~together)[: len(short)])


def device_of(trace: Trace, core: int, numbers: Mapping[str, Ints] | None = None) -> Device:
    """The published rows and counters of a hardware trace; `numbers` are columns that instructions have beside the published ones."""
    i, t, s = trace.instructions, trace.transfers, trace.shares
    operands = _joined(i.semaphores, i.work, " ")
    opcode = np.array([v == "MATMUL" for v in (*i.opcode.values, "")])[i.opcode.index]
    made: list[Row] = []
    for rank, name in enumerate(ENGINES):
        label = np.array([v == name.removesuffix("Matrix") for v in (*i.engine.values, "")])[i.engine.index]
        mine = np.flatnonzero(label & (opcode == (name == "TensorMatrix")) if name.startswith("Tensor") else label)
        texts = {"operands": operands, "nki_source_location": i.line}
        counts = {"pc": i.pc, "evt_wait_time_ns": i.wait.ns, **(numbers or {})}
        made += lanes_of(rank, f"{name} Engine", mine, i.start.ns, i.end.ns, i.opcode, texts, counts)
    ways = _joined(t.source, t.destination, " -> ")
    for engine in np.unique(s.engine).tolist():
        mine = np.flatnonzero(s.engine == engine)
        name = f"DMA Engine {core * DMA_ENGINES + engine}" if engine >= 0 else "DMA Engines (measured)"
        of = Texts(ways.values, ways.index[s.transfer]), {"queue": Texts(t.queue.values, t.queue.index[s.transfer])}
        made += lanes_of(100 + engine, name, mine, s.start.ns, s.end.ns, *of, {"bytes": s.bytes, "packets": s.packets})
    for k, name in sorted(enumerate(t.queue.values), key=lambda v: v[1]):
        mine = np.flatnonzero(t.queue.index == k)
        made += lanes_of(200, name, mine, t.start.ns, t.end.ns, ways, {}, {"bytes": t.bytes, "rows": t.rows, "row_bytes": t.row_bytes})
    return Device(tuple(made), tuple(_counters(trace)), trace.metadata["prologue_ns"])


def shifted(device: Device, ns: int) -> Device:
    """The same, so much later."""
    rows = tuple(attrs.evolve(r, start=r.start + ns, end=r.end + ns) for r in device.rows)
    return attrs.evolve(device, rows=rows, counters=tuple(attrs.evolve(c, time=c.time + ns) for c in device.counters))


def _joined(a: Texts, b: Texts, between: str) -> Texts:
    pairs, index = np.unique(a.index * max(1, len(b.values)) + b.index, return_inverse=True)
    halves = (divmod(k, max(1, len(b.values))) for k in pairs.tolist())
    return Texts(tuple(f"{a.values[x]}{between}{b.values[y]}".strip() for x, y in halves), np.asarray(index, np.int64))


def lanes_of(
    rank: int, name: str, mine: Ints, start: Ints, end: Ints, names: Texts, texts: Mapping[str, Texts], numbers: Mapping[str, Ints]
) -> Iterator[Row]:
    """The chosen records as a row, or as lanes where they overlap."""
    mine = mine[np.lexsort((end[mine], start[mine]))]
    lane = _lanes(start[mine], end[mine])
    for k in range(int(lane.max(initial=-1)) + 1):
        at = mine[lane == k]
        picked = {key: Texts(v.values, v.index[at]) for key, v in texts.items()}
        counts = {key: v[at] for key, v in numbers.items()}
        yield Row(rank, name, k, start[at], end[at], np.ones(len(at), np.int64), Texts(names.values, names.index[at]), picked, counts)


def _lanes(start: Ints, end: Ints) -> Ints:
    """The first lane that is free, for intervals in order of start."""
    if np.all(start[1:] >= end[:-1]):
        return np.zeros(len(start), np.int64)
    busy: list[int] = []
    out = []
    for begin, stop in zip(start.tolist(), end.tolist(), strict=True):
        lane = next((k for k, until in enumerate(busy) if until <= begin), len(busy))
        busy[lane : lane + 1] = [stop]
        out.append(lane)
    return np.array(out, np.int64)


def _counters(trace: Trace) -> Iterator[Counter]:
    g, t, s = trace.gate, trace.transfers, trace.semaphores
    if len(g):
        value = 100 * g.k / g.n
        yield Counter(0, "Throttling", "", "%", float(value[0]), g.start.ns, value)
    if len(t):
        begun = np.minimum(trace.instructions.start.ns[t.instruction], t.start.ns)
        times, at = np.unique(np.append(begun, t.end.ns), return_inverse=True)
        steps = np.bincount(at, np.repeat((1, -1), len(t)), len(times))
        yield Counter(1, "Pending DMA Count", "", "", 0, times, steps.cumsum().astype(np.int64))
    for number in np.unique(s.id).tolist():
        mine = np.flatnonzero(s.id == number)
        yield Counter(2 + number, s.name[int(mine[0])], "Semaphores", "", 0, s.time.ns[mine], s.value[mine])


@attrs.frozen(eq=False)
class _Plan:
    """Everything to write: rows of system events, and by core and model what an execution shows."""

    rows: tuple[system.Row, ...]
    devices: Mapping[int, Mapping[int, Device]]
    runs: tuple[Event, ...] | None = None  # executions of programs; None: one alone, without a window
    physical: Mapping[int, int] = attrs.field(factory=dict)  # numbers of the physical cores that run them, where they differ
    names: Mapping[int, str] = attrs.field(factory=dict)  # of folders that are no cores
    labels: tuple[str, ...] = ("simulated",)  # of the process

    def pixel(self, limit: int) -> int:
        """0, or the length in ns below which slices are merged so that no more than `limit` remain."""
        ends = [e.end_ns for r in self.rows for e in r.events], [d.end for c in self.devices.values() for d in c.values()]
        end, pixel = max(itertools.chain(*ends), default=0), 0
        while self.count(pixel) > limit and pixel <= end:
            pixel = max(1, 2 * pixel, end // FIRST_PIXELS)
        return pixel

    def count(self, pixel: int, each: int = 1) -> int:
        """Counter values, and `each` for a slice or event."""
        size = {d: d.count(pixel, each) for c in self.devices.values() for d in c.values()}
        shown = sum(size[d] for core in self.devices for d, *_ in self.windows(core, pixel))
        return shown + each * sum(int(np.count_nonzero(_groups(r, pixel)[0])) for r in self.rows)

    def windows(self, core: int, pixel: int) -> Iterator[tuple[Device, int, int, int]]:
        """Device, start of its body, begin and end of its window, for each execution that is not below a pixel."""
        devices = self.devices[core]
        if self.runs is None:
            yield from ((d, 0, 0, FOREVER) for d in devices.values())
        for e in self.runs or ():
            model = e.attributes.get("model_id")
            if e.core == core and isinstance(model, int) and model in devices and e.duration_ns >= pixel:
                yield devices[model], e.start_ns + devices[model].prologue_ns, e.start_ns, e.end_ns


def _plan(of: SystemTrace | Runtime, devices: bool) -> _Plan:
    trace = system.trace_of(of, devices=devices) if isinstance(of, Runtime) else of
    ran = [m for m in trace.models if m.executions and devices]
    every = (e for e in trace.events if e.name == system.DEVICE_EVENT and e.attributes.get("idle") is not True)
    runs = sorted(every, key=lambda e: (e.start_ns, e.id))
    physical = {e.core: physical_core(e) for e in runs}
    loaded = {(m.hash, m.core): m.id for m in ran}
    known = {key: device_of(trace.device(number), physical.get(key[1], key[1])) for key, number in loaded.items()}
    made: dict[int, dict[int, Device]] = {}
    for m in ran:
        made.setdefault(m.core, {})[m.id] = known[m.hash, m.core]
    return _Plan(tuple(system.rows(trace.events)), dict(sorted(made.items())), tuple(runs), physical, labels=_labels(trace.metadata))


def _labels(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Of the process: what its times are."""
    return ("simulated", *(["extrapolated"] if metadata.get("extrapolated") else []))


def _groups(r: system.Row, pixel: int) -> tuple[Ints, Ints]:
    """For each event of a row how many it stands for, 0 where it is not drawn, and its end.

    Neighbours inside the same event are merged as slices of a device are; inside an event below a pixel nothing is drawn.
    """
    start, end = (np.array([getattr(e, k) for e in r.events], np.int64) for k in ("start_ns", "end_ns"))
    size, up, depth = np.ones(len(start), np.int64), np.array(r.up, np.int64), np.array(r.depth, np.int64)
    if pixel == 0:
        return size, end
    short = end - start < pixel
    hidden = np.zeros(len(start), np.bool_)
    for level in range(1, int(depth.max(initial=0)) + 1):
        at = np.flatnonzero(depth == level)
        hidden[at] = hidden[up[at]] | short[up[at]]
    order = np.flatnonzero(~hidden)
    order = order[np.argsort(up[order], kind="stable")]
    first = _firsts(short[order], start[order] // pixel, up[order])
    size[:] = 0
    size[order[first]] = np.diff(first, append=len(order))
    if len(first):
        end[order[first]] = np.maximum.reduceat(end[order], first)
    return size, end


# --- writing -----------------------------------------------------------------------------------------------------


class _Writer:
    """Packets of one sequence, serialised by the chunk; names are interned."""

    def __init__(self, file: IO[bytes], package: Any, progress: Callable[[int, int], None] | None = None, total: int = 0) -> None:
        self.progress, self.done, self.total = progress, 0, total
        self.file, self.make, self.packet = file, package.TraceProtoBuilder, package.TracePacket
        self.known: dict[tuple[str, str], int] = {}
        self.tracks = 0
        self._renew()
        self.put(self.packet(trusted_packet_sequence_id=SEQUENCE, sequence_flags=CLEARED, first_packet_on_sequence=True))

    def _renew(self) -> None:
        self.chunk = self.make()
        self.append, self.held = self.chunk.trace.packet.append, 0

    def put(self, packet: Any) -> None:
        """A copy of the packet goes out."""
        self.append(packet)
        self.held += 1
        if self.held >= CHUNK:
            self.flush()

    def flush(self) -> None:
        self.file.write(self.chunk.serialize())
        self.done += self.held
        if self.progress is not None:
            self.progress(min(self.done, self.total), self.total)
        self._renew()

    def intern(self, field: str, texts: Sequence[str]) -> list[int]:
        """Numbers of texts; new ones go out first."""
        new = self.packet(trusted_packet_sequence_id=SEQUENCE, sequence_flags=NEEDS_STATE)
        into = getattr(new.interned_data, field)
        for text in texts:
            if (field, text) not in self.known:
                number = self.known[field, text] = len(self.known) + 1
                if field == "debug_annotation_string_values":
                    into.add(iid=number, str=_plain(text).encode())
                else:
                    into.add(iid=number, name=_plain(text))
                if len(into) >= CHUNK:
                    self.put(new)
                    del into[:]
        if len(into):
            self.put(new)
        return [self.known[field, text] for text in texts]

    def track(self, name: str, parent: int = 0, rank: int = 0, **fields: Any) -> int:
        """A new track; its id."""
        self.tracks, name = self.tracks + 1, _plain(name)
        packet = self.packet(trusted_packet_sequence_id=SEQUENCE)
        d = packet.track_descriptor
        d.uuid = self.tracks
        if parent:
            d.parent_uuid = parent
        if "thread" in fields:
            d.thread.pid, d.thread.tid, d.thread.thread_name = PID, PID + fields["thread"], name
            d.thread.legacy_sort_index = fields["thread"]
        elif "labels" in fields:
            d.process.pid, d.process.process_name, d.child_ordering = PID, name, EXPLICIT
            d.process.process_labels.extend(fields["labels"])
        else:
            d.name, d.sibling_order_rank, d.child_ordering = name, rank, EXPLICIT
            if "unit" in fields:
                d.counter.unit_name = fields["unit"]
        self.put(packet)
        return self.tracks

    def event(self, kind: int, track: int, timestamp: int = 0) -> Any:
        """A new packet of a track, to fill and put."""
        packet = self.packet(trusted_packet_sequence_id=SEQUENCE, sequence_flags=NEEDS_STATE, timestamp=timestamp)
        packet.track_event.type, packet.track_event.track_uuid = kind, track
        return packet


def _write(plan: _Plan, pixel: int, w: _Writer) -> None:
    labels = [*plan.labels, *([f"slices below {pixel} ns merged"] if pixel else [])]
    process = w.track(f"{INSTANCE}-pid{PID}", labels=labels)
    shapes = [_groups(r, pixel) for r in plan.rows]
    drawn = [e for r, (size, _) in zip(plan.rows, shapes, strict=True) for e, n in zip(r.events, size.tolist(), strict=True) if n == 1]
    start = {e.id: e.start_ns for e in drawn}
    leave: dict[int, list[int]] = {}  # flow ids by event
    reach: dict[int, list[int]] = {}
    for number, (a, b) in enumerate(system.arrows(drawn), 1):
        source, target = (a, b) if start[a] <= start[b] else (b, a)  # a viewer draws forward in time only
        leave.setdefault(source, []).append(number)
        reach.setdefault(target, []).append(number)
    for k, (r, shape) in enumerate(zip(plan.rows, shapes, strict=True), 1):
        _write_thread(r, *shape, w.track(r.name, process, thread=k), (leave, reach), w)
    for core in plan.devices:
        _write_core(plan, core, process, pixel, w)
    w.flush()


def _write_thread(r: system.Row, size: Ints, ends: Ints, track: int, flows: tuple[Mapping[int, list[int]], ...], w: _Writer) -> None:
    """Begin and end of every event, an inner end before an outer one and both before what begins then outside."""
    names = dict(zip(of := sorted({e.name for e in r.events}), w.intern("event_names", of), strict=True))
    keys = sorted({"id", "flow_id", "merged", *(k for e in r.events for k in e.attributes)})
    words = dict(zip(keys, w.intern("debug_annotation_names", keys), strict=True))
    closing = w.event(END, track)
    open_: list[int] = []

    def close(depth: int) -> None:
        while len(open_) > depth:
            closing.timestamp = open_.pop()
            w.put(closing)

    for e, depth, n, end in zip(r.events, r.depth, size.tolist(), ends.tolist(), strict=True):
        if n == 0:
            continue
        close(depth)
        packet = w.event(BEGIN if end > e.start_ns else INSTANT, track, e.start_ns)
        event = packet.track_event
        if n > 1:
            event.name = f"{n:,} events"
            event.debug_annotations.add(name_iid=words["merged"], int_value=n)
        else:
            event.name_iid = names[e.name]
            event.debug_annotations.add(name_iid=words["id"], int_value=e.id)
            if e.flow:
                event.debug_annotations.add(name_iid=words["flow_id"], string_value=" ".join(map(str, e.flow)))
            for key in sorted(e.attributes):
                _annotate(event.debug_annotations.add(name_iid=words[key]), e.attributes[key])
            for ids, of_event in zip((event.flow_ids, event.terminating_flow_ids), flows, strict=True):
                if e.id in of_event:
                    ids.extend(of_event[e.id])
        w.put(packet)
        if end > e.start_ns:
            open_.append(end)
    close(0)


def _annotate(annotation: Any, value: Any) -> None:
    if isinstance(value, bool):
        annotation.bool_value = value
    elif isinstance(value, int) and abs(value) < 1 << 62:
        annotation.int_value = int(value)
    elif isinstance(value, float):
        annotation.double_value = value
    else:
        annotation.string_value = _plain(value if isinstance(value, str) else json.dumps(value))


def _plain(text: str) -> str:
    """Text that UTF-8 can hold."""
    return text.encode("utf-8", "backslashreplace").decode()


def _write_core(plan: _Plan, core: int, process: int, pixel: int, w: _Writer) -> None:
    """One core's rows, shared by all its programs, filled for each execution."""
    name = plan.names.get(core, f"NC{core}:{plan.physical.get(core, core)}")
    group, devices = w.track(name, process, core), dict.fromkeys(plan.devices[core].values())
    lanes: dict[tuple[int, str], int] = {}
    for r in (r for d in devices for r in d.rows):
        lanes[r.rank, r.name] = max(lanes.get((r.rank, r.name), 0), r.lane + 1)
    tracks: dict[tuple[str, int], int] = {}
    for rank, name in sorted(lanes):
        for lane in range(count := lanes[rank, name]):
            tracks[name, lane] = w.track(name + (f" - Row {lane}" if count > 1 else ""), group, len(tracks))
    known = sorted({(c.rank, c.name, c.group, c.unit) for d in devices for c in d.counters})
    folders = {f: w.track(f, group, LAST) for f in sorted({f for *_, f, _ in known if f})}
    counters = {name: w.track(name, folders.get(f, group), LAST - len(known) + k, unit=u) for k, (_, name, f, u) in enumerate(known)}
    ready = {d: [_Slices(r.merged(pixel), tracks[r.name, r.lane], w) for r in d.rows] for d in devices}
    values = {d: {c.name: c.merged(pixel) for c in d.counters} for d in devices}
    last: dict[str, float] = {}  # a value from an earlier execution ends with the next, also where that has no such counter
    first = {c.name: c.before for d in devices for c in d.counters}
    for d, origin, begin, end in plan.windows(core, pixel):
        for slices in ready[d]:
            slices.write(origin, end, w)
        for name, track in counters.items():
            if name in values[d]:
                last[name] = _write_counter(values[d][name], track, origin, begin, end, w)
            elif last.get(name, first[name]) != first[name]:
                last[name] = first[name]
                _write_samples(track, [begin], [first[name]], w)


class _Slices:
    """A device row ready to be written at any time: its packets, and a column for each field that changes."""

    def __init__(self, r: Row, track: int, w: _Writer) -> None:
        self.row, self.begin, self.merged, self.end = r, *(w.event(k, track) for k in (BEGIN, BEGIN, END))
        words = w.intern("debug_annotation_names", [*r.texts, *r.numbers, "merged"])
        self.fields = [self.begin.track_event.debug_annotations.add(name_iid=k) for k in words[:-1]]
        self.count = self.merged.track_event.debug_annotations.add(name_iid=words[-1])
        columns = [("event_names", r.names), *(("debug_annotation_string_values", t) for t in r.texts.values())]
        self.columns = [_interned(field, texts, w) for field, texts in columns] + list(r.numbers.values())

    def write(self, origin: int, stop: int, w: _Writer) -> None:
        """One execution; what one that was cut short did not reach is left out."""
        begin, merged, closing, put, r = self.begin, self.merged, self.end, w.put, self.row
        split = len(r.texts)
        texts, numbers, event = self.fields[:split], self.fields[split:], begin.track_event
        shown = int(np.searchsorted(r.start, stop - origin, "right"))
        for a in range(0, shown, CHUNK):
            block = slice(a, min(a + CHUNK, shown))
            starts, ends = (r.start[block] + origin).tolist(), np.minimum(r.end[block] + origin, stop).tolist()
            columns = (c[block].tolist() for c in (r.size, *self.columns))
            for start, end, many, name, *rest in zip(starts, ends, *columns, strict=True):
                kind = BEGIN if end > start else INSTANT
                if many > 1:
                    merged.timestamp, self.count.int_value = start, many
                    merged.track_event.type, merged.track_event.name = kind, f"{many:,} slices"
                    put(merged)
                else:
                    for field, value in zip(texts, rest, strict=False):
                        field.string_value_iid = value
                    for field, value in zip(numbers, rest[split:], strict=True):
                        field.int_value = value
                    begin.timestamp, event.type, event.name_iid = start, kind, name
                    put(begin)
                if end > start:
                    closing.timestamp = end
                    put(closing)


def _interned(field: str, column: Texts, w: _Writer) -> Ints:
    used, index = np.unique(column.index, return_inverse=True)
    return np.array(w.intern(field, [column.values[k] for k in used.tolist()]), np.int64)[index]


def _write_counter(c: Counter, track: int, origin: int, begin: int, stop: int, w: _Writer) -> float:
    """One execution; returns the value that it leaves."""
    shown = int(np.searchsorted(c.time, stop - origin, "right"))
    times, values = (c.time[:shown] + origin).tolist(), c.value[:shown].tolist()
    if not times or times[0] > begin:
        times, values = [begin, *times], [c.before, *values]
    _write_samples(track, times, values, w)
    return float(values[-1])


def _write_samples(track: int, times: Sequence[int], values: Sequence[float], w: _Writer) -> None:
    packet = w.event(COUNTER, track)
    for packet.timestamp, value in zip(times, values, strict=True):
        if isinstance(value, int):
            packet.track_event.counter_value = value
        else:
            packet.track_event.double_counter_value = value
        w.put(packet)
