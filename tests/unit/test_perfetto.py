"""Perfetto files, read back with the package's own classes: tracks, nesting, arrows, windows, merging."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from click.testing import CliRunner
from test_system_trace import dispatched, scaled

from nc_sim import Program, simulate
from nc_sim.__main__ import main
from nc_sim.isa.errors import ProgramError, Unsupported
from nc_sim.runtime import Runtime
from nc_sim.runtime.events import FRAMEWORK, HARDWARE, RUNTIME, Event
from nc_sim.trace import hardware, perfetto, system
from nc_sim.trace.system import SystemTrace, trace_of

try:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackDescriptor, TrackEvent
except ImportError:
    Trace = None

needs_perfetto = pytest.mark.skipif(Trace is None, reason="the extra perfetto is not installed")


@attrs.define
class Slice:
    """A slice or instant as a viewer would build it."""

    name: str
    start: int
    end: int
    track: str
    depth: int
    arguments: dict[str, Any]
    leaves: list[int]
    reaches: list[int]
    outer: Slice | None


@attrs.define
class Seen:
    """A file, read. A track below a core has the core in its name: NC0:0/Scalar Engine."""

    parents: dict[str, str]  # track -> the one it is in
    descriptors: dict[str, Any]
    slices: list[Slice]
    counters: dict[str, list[tuple[int, float]]]

    def on(self, track: str) -> list[Slice]:
        return [s for s in self.slices if s.track == track]


def read(path: Path) -> Seen:
    """Every packet, in file order, as times on a track rise; a slice that begins inside another must end inside it."""
    trace = Trace.FromString(path.read_bytes())
    assert trace.packet[0].sequence_flags == TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    texts: dict[str, dict[int, str]] = {"event_names": {}, "debug_annotation_names": {}, "debug_annotation_string_values": {}}
    names: dict[int, str] = {}
    seen = Seen({}, {}, [], {})
    stacks: dict[int, list[Slice]] = {}
    last: dict[int, int] = {}
    for p in trace.packet:
        for field, known in texts.items():
            for item in getattr(p.interned_data, field):
                assert item.iid not in known
                known[item.iid] = item.name if hasattr(item, "name") else item.str.decode()
        if p.HasField("track_descriptor"):
            d = p.track_descriptor
            name = d.name or d.thread.thread_name or d.process.process_name
            parent = names[d.parent_uuid] if d.HasField("parent_uuid") else ""
            name = f"{parent}/{name}" if seen.parents.get(parent) else name
            assert name not in seen.parents, "a track twice"
            names[d.uuid], seen.descriptors[name], seen.parents[name] = name, d, parent
        if not p.HasField("track_event"):
            continue
        e, track = p.track_event, p.track_event.track_uuid
        assert p.timestamp >= last.get(track, 0), f"time runs back on {names[track]}"
        last[track] = p.timestamp
        stack = stacks.setdefault(track, [])
        if e.type == TrackEvent.TYPE_COUNTER:
            value = e.counter_value if e.HasField("counter_value") else e.double_counter_value
            seen.counters.setdefault(names[track], []).append((p.timestamp, value))
        elif e.type == TrackEvent.TYPE_SLICE_END:
            stack.pop().end = p.timestamp
        else:
            arguments: dict[str, Any] = {}
            for a in e.debug_annotations:
                kind = a.WhichOneof("value")
                value = getattr(a, kind)
                arguments[texts["debug_annotation_names"][a.name_iid]] = (
                    texts["debug_annotation_string_values"][value] if kind == "string_value_iid" else value
                )
            name = texts["event_names"][e.name_iid] if e.HasField("name_iid") else e.name
            outer = stack[-1] if stack else None
            leaves, reaches = list(e.flow_ids), list(e.terminating_flow_ids)
            seen.slices.append(Slice(name, p.timestamp, p.timestamp, names[track], len(stack), arguments, leaves, reaches, outer))
            if e.type == TrackEvent.TYPE_SLICE_BEGIN:
                stack.append(seen.slices[-1])
    assert not any(stacks.values()), "a slice without an end"
    for s in seen.slices:
        assert s.outer is None or s.outer.start <= s.start <= s.end <= s.outer.end
    return seen


def system_of(*events: Event) -> SystemTrace:
    return SystemTrace(trace_of(Runtime(), devices=False).metadata, (), events)


@pytest.fixture(scope="module")
def rt() -> Runtime:
    return dispatched(cores=2)


@pytest.fixture(scope="module")
def seen(rt: Runtime, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    if Trace is None:
        pytest.skip("the extra perfetto is not installed")
    return read(perfetto.save(rt, tmp_path_factory.mktemp("perfetto") / "run.pftrace"))


# --- system traces


def test_tracks_are_named_and_nested_by_instance_process_and_core(seen: Seen) -> None:
    assert seen.parents["i-ncsim-pid1"] == ""
    assert list(seen.descriptors["i-ncsim-pid1"].process.process_labels) == ["simulated"]
    for core in range(2):
        threads = [f"tid{core}-framework", f"stream{core}-framework", f"gid{core}-nc{core}-neuron_rt", f"gid{core}-nc{core}-neuron_hw"]
        for name in (*threads, f"gid{core}-nc{core}-tid{core}-neuron_rt - Row 0", f"NC{core}:{core}"):
            assert seen.parents[name] == "i-ncsim-pid1"
    tids = [d.thread.tid for d in seen.descriptors.values() if d.HasField("thread")]
    assert len(tids) == len(set(tids)) == sum("framework" in n or "neuron_" in n for n in seen.parents)
    assert min(tids) > 1  # the process itself has 1


def test_every_event_is_drawn_once_with_its_times_and_attributes(rt: Runtime, seen: Seen) -> None:
    drawn = {s.arguments["id"]: s for s in seen.slices if "id" in s.arguments}
    assert len(drawn) == len(rt.trace.events)
    for e in rt.trace.events:
        s = drawn[e.id]
        assert (s.name, s.start, s.end) == (e.name, e.start_ns, e.end_ns)
        assert s.arguments.get("flow_id", "").split() == [str(f) for f in e.flow]
        assert e.attributes.items() <= s.arguments.items()


def test_an_event_is_drawn_inside_its_parent_where_they_share_a_thread(rt: Runtime, seen: Seen) -> None:
    drawn = {s.arguments["id"]: s for s in seen.slices if "id" in s.arguments}
    checked = Counter[str]()
    for e in rt.trace.events:
        if e.parent >= 0:
            parent = drawn[e.parent]
            assert parent.start <= drawn[e.id].start <= drawn[e.id].end <= parent.end
            if e.source == RUNTIME:
                assert drawn[e.id].outer == parent
                checked[e.name] += 1
    assert set(checked) >= {"nrt_model_submit", "dmem_buf_copyin", "dmem_buf_copyout"}
    assert [s.outer.name for s in seen.slices if s.name == "timestamp_sync_point" and s.outer] == ["nc_exec_running"] * 10


def test_arrows_follow_every_dispatch_from_the_framework_to_the_device(rt: Runtime, seen: Seen) -> None:
    target = {flow: s for s in seen.slices for flow in s.reaches}
    source = {flow: s for s in seen.slices for flow in s.leaves}
    assert source.keys() == target.keys()
    assert sum(len(s.leaves) for s in seen.slices) == len(source)
    for flow in source:
        assert source[flow].start <= target[flow].start
    operations = [s for s in seen.slices if s.track.startswith("tid")]
    assert len(operations) == 8
    for s in operations:
        names, tracks = [], []
        while s.leaves:
            (flow,) = s.leaves
            s = target[flow]
            names.append(s.name)
            tracks.append(s.track)
        assert names == ["aten::mul.Tensor", "nrta_execute_schedule", "kbl_exec_wait", "nc_exec_running"]
        assert tracks[0].startswith("stream")
        assert tracks[3].endswith("neuron_hw")


@needs_perfetto
def test_a_chain_that_a_late_stream_event_breaks_in_time_keeps_its_arrows(tmp_path: Path) -> None:
    events = (
        Event(0, "aten::mul", FRAMEWORK, 0, 10, thread=0, flow=(9,)),
        Event(1, "nrta_execute_schedule", RUNTIME, 2, 9, core=0, thread=0, flow=(9,)),
        Event(2, "aten::mul", FRAMEWORK, 8, 30, stream=0, flow=(9,)),  # waited for the stream
    )
    got = {s.arguments["id"]: s for s in read(perfetto.save(system_of(*events), tmp_path / "a")).slices}
    assert set(got[0].leaves) == set(got[2].reaches) - set(got[1].leaves)
    assert got[1].leaves
    assert set(got[1].leaves) < set(got[2].reaches)


@needs_perfetto
def test_names_that_utf8_cannot_hold_are_written_escaped(tmp_path: Path) -> None:
    event = Event(0, "a\ud800", FRAMEWORK, 0, 1, thread=0, attributes={"k": [1, {"x": None}], "t\n": True, "f": 0.5, "big": 1 << 80})
    (s,) = read(perfetto.save(system_of(event), tmp_path / "a")).slices
    assert s.name == "a\\ud800"
    assert s.arguments == {"id": 0, "k": '[1, {"x": null}]', "t\n": True, "f": 0.5, "big": str(1 << 80)}


# --- devices


def test_every_device_slice_lies_inside_its_execution(rt: Runtime, seen: Seen) -> None:
    for core in range(2):
        windows = [s for s in seen.on(f"gid{core}-nc{core}-neuron_hw") if s.name == "nc_exec_running"]
        group = {n for n, parent in seen.parents.items() if parent == f"NC{core}:{core}"}
        device = [s for s in seen.slices if s.track in group]
        assert len(windows) == 5
        assert len(device) > 100
        found = Counter[int]()
        for s in device:
            (inside,) = [k for k, w in enumerate(windows) if w.start <= s.start and s.end <= w.end]
            found[inside] += 1
        assert len(found) == 5


def test_a_body_begins_after_the_prologue_of_its_execution(rt: Runtime, seen: Seen) -> None:
    trace = trace_of(rt)
    windows = [e for e in trace.events if e.name == "nc_exec_running" and e.core == 0]
    wanted = []
    for w in windows:
        i = trace.device(w.attributes["model_id"]).instructions
        origin = w.start_ns + trace.metadata["prologue_ns"]
        wanted += [(i.start.ns[k] + origin, i.end.ns[k] + origin, i.opcode[k]) for k in range(len(i)) if i.engine[k] == "Scalar"]
    rows = [s for s in seen.slices if s.track.startswith("NC0:0/Scalar Engine")]
    assert sorted((s.start, s.end, s.name) for s in rows) == sorted(wanted)


@needs_perfetto
def test_an_execution_that_was_cut_short_shows_what_it_reached(tmp_path: Path) -> None:
    rt = dispatched(exec_timeout_ns=16_000)  # 13.6 us of prologue, then 2.4 us
    seen = read(perfetto.save(rt, tmp_path / "a"))
    (window,) = [s for s in seen.slices if s.name == "nc_exec_running"][:1]
    device = [s for s in seen.slices if "pc" in s.arguments]
    assert window.end - window.start == 16_000
    assert {s.name for s in device} == {"DMA_DIRECT2D", "ACT_TABLE_LOAD"}
    assert max(s.end for s in device) <= window.end


@needs_perfetto
def test_devices_can_be_left_out(rt: Runtime, tmp_path: Path) -> None:
    assert not any(n.startswith("NC") for n in read(perfetto.save(rt, tmp_path / "a", devices=False)).parents)


@needs_perfetto
def test_a_saved_trace_draws_as_the_run_itself(rt: Runtime, tmp_path: Path) -> None:
    first = perfetto.save(rt, tmp_path / "a").read_bytes()
    assert perfetto.save(system.load(system.save(rt, tmp_path)), tmp_path / "b").read_bytes() == first
    assert perfetto.save(rt, tmp_path / "c").read_bytes() == first
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b", "c", "i-ncsim_pid_1"]


# --- a hardware trace alone


def product() -> Program:
    p = Program("product")
    x = p.input("x", (128, 512), "bfloat16")
    a, out = p.sbuf((128, 512), "bfloat16"), p.psum((128, 512))
    p.dma_copy(dst=a, src=x)
    for _ in range(4):
        p.nc_matmul(dst=out, stationary=a[:, 0:128], moving=a)
    return p


@needs_perfetto
def test_a_hardware_trace_alone_counts_from_zero(tmp_path: Path) -> None:
    result = simulate(product(), values=False)
    seen = read(perfetto.save(result, tmp_path / "a"))
    assert (tmp_path / "a").read_bytes() == perfetto.save(hardware.trace_of(result), tmp_path / "b").read_bytes()
    i = hardware.trace_of(result).instructions
    drawn = sorted((s.start, s.end, s.name, s.arguments["operands"], s.arguments["pc"]) for s in seen.slices if "pc" in s.arguments)
    assert drawn == sorted((i.start.ns[k], i.end.ns[k], i.opcode[k], i.operands(k), i.pc[k]) for k in range(len(i)))
    assert {s.name for s in seen.slices if s.track.startswith("NC0:0/TensorMatrix Engine")} == {"MATMUL"}
    assert {s.name for s in seen.slices if s.track.startswith("NC0:0/Tensor Engine")} == {"LDWEIGHTS"}


@needs_perfetto
def test_overlapping_slices_stand_on_rows_beside_each_other(tmp_path: Path) -> None:
    seen = read(perfetto.save(simulate(product(), values=False), tmp_path / "a"))
    rows = sorted(n for n in seen.parents if n.startswith("NC0:0/TensorMatrix Engine"))
    assert rows == [f"NC0:0/TensorMatrix Engine - Row {k}" for k in range(len(rows))]
    i = hardware.trace_of(simulate(product(), values=False)).instructions
    spans = [(i.start.ns[k], i.end.ns[k]) for k in range(len(i)) if i.opcode[k] == "MATMUL"]
    assert len(rows) == max(sum(a <= at < b for a, b in spans) for at, _ in spans) > 1
    for name in rows:
        on = seen.on(name)
        assert all(a.end <= b.start for a, b in pairwise(on))


def test_a_slice_takes_the_first_row_that_is_free_when_it_begins() -> None:
    start, end = np.array([0, 2, 5, 6, 6]), np.array([5, 7, 6, 6, 9])
    assert perfetto._lanes(start, end).tolist() == [0, 1, 0, 0, 0]


@needs_perfetto
def test_dma_rows_show_all_engines_and_queues(tmp_path: Path) -> None:
    trace = hardware.trace_of(simulate(scaled("half", 0.5), values=False))
    seen = read(perfetto.save(trace, tmp_path / "a"))
    other = read(perfetto.save(attrs.evolve(trace, metadata={**trace.metadata, "vnc": 4}), tmp_path / "b"))
    assert [n for n in seen.parents if "DMA Engine" in n] == [f"NC0:0/DMA Engine {k}" for k in range(16)]
    assert [n for n in other.parents if "DMA Engine" in n] == [f"NC4:4/DMA Engine {k}" for k in range(64, 80)]
    t = trace.transfers
    ways = [f"{t.source[k]} -> {t.destination[k]}" for k in range(2)]
    assert [s.name for s in seen.on("NC0:0/DMA Engine 3")] == ways
    assert sum(s.arguments["bytes"] for s in seen.slices if "DMA Engine" in s.track) == 2 * 128 * 64 * 4
    queues = [(s.track, s.name, s.start, s.end, s.arguments["bytes"]) for s in seen.slices if "row_bytes" in s.arguments]
    assert queues == [(f"NC0:0/{t.queue[k]}", ways[k], t.start.ns[k], t.end.ns[k], 128 * 64 * 4) for k in range(2)]


@needs_perfetto
def test_counters_show_semaphores_pending_transfers_and_throttling(tmp_path: Path) -> None:
    trace = hardware.trace_of(simulate(scaled("half", 0.5), values=False))
    seen = read(perfetto.save(trace, tmp_path / "a"))
    s = trace.semaphores
    for name in s.name.values:
        mine = [k for k in range(len(s)) if s.name[k] == name]
        assert seen.counters[f"NC0:0/Semaphores/{name}"] == [(0, 0), *((s.time.ns[k], s.value[k]) for k in mine)]
    t, i = trace.transfers, trace.instructions
    begun = [i.start.ns[t.instruction[k]] for k in range(2)]
    assert seen.counters["NC0:0/Pending DMA Count"] == [(0, 0), (begun[0], 1), (t.end.ns[0], 0), (begun[1], 1), (t.end.ns[1], 0)]
    assert seen.counters["NC0:0/Throttling"] == [(0, 50)]
    assert seen.descriptors["NC0:0/Throttling"].counter.unit_name == "%"
    assert seen.descriptors["i-ncsim-pid1"].child_ordering == TrackDescriptor.EXPLICIT


@needs_perfetto
def test_counters_stand_below_the_rows_and_semaphores_last(tmp_path: Path) -> None:
    seen = read(perfetto.save(simulate(scaled("half", 0.5), values=False), tmp_path / "a"))
    ranks = {n: d.sibling_order_rank for n, d in seen.descriptors.items() if seen.parents[n] == "NC0:0"}
    assert len(set(ranks.values())) == len(ranks)
    assert sorted(ranks, key=lambda n: ranks[n])[-4:] == [
        "NC0:0/qGpSimdDynamic", "NC0:0/Throttling", "NC0:0/Pending DMA Count", "NC0:0/Semaphores"
    ]  # fmt: skip


@needs_perfetto
def test_a_counter_has_one_value_at_a_time(rt: Runtime, seen: Seen, tmp_path: Path) -> None:
    alone = read(perfetto.save(simulate(product(), values=False), tmp_path / "a"))
    for samples in (*seen.counters.values(), *alone.counters.values()):
        times = [t for t, _ in samples]
        assert times == sorted(set(times))


def test_of_values_at_the_same_time_the_last_counts() -> None:
    counter = perfetto.Counter(0, "c", "", "", 0, np.array([1, 1, 2, 9, 9]), np.array([5, 6, 7, 8, 4]))
    assert [(counter.merged(p).time.tolist(), counter.merged(p).value.tolist()) for p in (0, 1, 4)] == [
        ([1, 2, 9], [6, 7, 4]), ([1, 2, 9], [6, 7, 4]), ([2, 9], [7, 4])
    ]  # fmt: skip


@needs_perfetto
def test_an_execution_begins_with_all_semaphores_of_its_core_at_zero(tmp_path: Path) -> None:
    """Two programs in turn: S[4] (Scalar) is raised by the first only, and does not reach into the windows of the second."""
    rt = Runtime(values=False)
    rt.nrt_init()
    load = Program("load")
    load.dma_copy(dst=load.sbuf((128, 64), "float32"), src=load.input("x", (128, 64), "float32"))
    (_, half), (_, loading) = rt.nrt_load(scaled("half", 0.5)), rt.nrt_load(load)
    (_, x), (_, y) = (rt.nrt_tensor_allocate("device", 0, 128 * 64 * 4) for _ in "xy")

    def host(thread: int) -> Any:
        for model, outputs in ((half, {"y": y}), (loading, {}), (loading, {}), (half, {"y": y})):
            yield from rt.nrt_execute(model, {"x": x}, outputs, thread=thread)

    rt.run(host)
    seen = read(perfetto.save(rt, tmp_path / "a"))
    windows = [s.start for s in seen.slices if s.name == "nc_exec_running"]
    assert len(windows) == 4
    (scalar,) = (v for name, v in seen.counters.items() if name.endswith("S[4] (Scalar)"))
    raised = [t for t, v in scalar if v == 1]
    assert scalar == [(windows[0], 0), (raised[0], 1), (windows[1], 0), (windows[3], 0), (raised[1], 1)]


# --- size


@needs_perfetto
@pytest.mark.parametrize("limit", [500, 300, 100, 10, 1])
def test_a_trace_above_the_limit_is_merged_until_it_fits(rt: Runtime, tmp_path: Path, limit: int) -> None:
    seen = read(perfetto.save(rt, tmp_path / "a", slices=limit))
    samples = sum(map(len, seen.counters.values()))
    starts = sum(len(s) > 0 for s in seen.counters.values()) * 5  # one more of each counter for each execution
    rows = sum(d.HasField("thread") for d in seen.descriptors.values())
    assert len(seen.slices) + samples <= max(limit, rows) + starts
    (label,) = list(seen.descriptors["i-ncsim-pid1"].process.process_labels)[1:]
    pixel = int(label.removeprefix("slices below ").removesuffix(" ns merged"))
    windows = [s for s in seen.slices if s.name == "nc_exec_running"]
    for s in (s for s in seen.slices if s.track.startswith("NC")):
        assert any(w.start <= s.start and s.end <= w.end for w in windows)
    merged = [s for s in seen.slices if "merged" in s.arguments]
    assert merged
    for s in merged:
        assert s.arguments["merged"] >= 2
        assert s.end - s.start < 2 * pixel
        assert s.name.split()[0] == f"{s.arguments['merged']:,}"


@needs_perfetto
def test_merging_joins_short_neighbours_of_a_pixel_and_leaves_long_slices(tmp_path: Path) -> None:
    """Ten of 1 ns from each multiple of 1024, within 91 ns, and a long one: of 64 ns a pixel holds part, of 128 ns a whole ten."""
    short = [Event(0, "op", HARDWARE, 1024 * a + 10 * b, 1024 * a + 10 * b + 1, core=0) for a in range(10) for b in range(10)]
    long = Event(0, "nc_exec_running", HARDWARE, 20_000, 30_000, core=0, flow=(3,))
    events = [attrs.evolve(e, id=k) for k, e in enumerate([*short, long])]
    seen = read(perfetto.save(system_of(*events), tmp_path / "a", slices=12))
    assert [(s.name, s.start, s.end) for s in seen.slices][-1] == ("nc_exec_running", 20_000, 30_000)
    groups = [s for s in seen.slices if "merged" in s.arguments]
    assert sum(s.arguments["merged"] for s in groups) == 100
    assert len(groups) == 10
    assert [(s.start, s.end) for s in groups] == [(1024 * a, 1024 * a + 91) for a in range(10)]


@needs_perfetto
def test_short_events_merge_neither_with_a_long_one_nor_across_their_parents(tmp_path: Path) -> None:
    """Pixels of 64 ns: [64, 128) holds the last call of the first parent, two of the second, and a long event behind short ones."""
    parents = [Event(0, "call", FRAMEWORK, 0, 100, thread=0), Event(1, "call", FRAMEWORK, 100, 250, thread=0)]
    spans = [*((k, k + 1) for k in range(0, 60, 2)), (90, 91), (101, 102), (105, 106), (110, 240)]
    events = [*parents, *(Event(2 + k, "op", FRAMEWORK, a, b, thread=0) for k, (a, b) in enumerate(spans))]
    seen = read(perfetto.save(system_of(*events), tmp_path / "a", slices=6))
    assert list(seen.descriptors["i-ncsim-pid1"].process.process_labels) == ["simulated", "slices below 64 ns merged"]
    assert [(s.name, s.start, s.end, s.depth) for s in seen.slices] == [
        ("call", 0, 100, 0), ("30 events", 0, 59, 1), ("op", 90, 91, 1),
        ("call", 100, 250, 0), ("2 events", 101, 106, 1), ("op", 110, 240, 1),
    ]  # fmt: skip


@needs_perfetto
def test_an_execution_below_a_pixel_shows_no_instructions(tmp_path: Path) -> None:
    trace = trace_of(dispatched())
    last = [e for e in trace.events if e.name == "nc_exec_running"][-1]
    alone = attrs.evolve(trace, events=(last,))
    assert len(read(perfetto.save(alone, tmp_path / "a")).slices) > 20
    assert [s.name for s in read(perfetto.save(alone, tmp_path / "a", slices=1)).slices] == ["nc_exec_running"]


@needs_perfetto
def test_what_fits_is_not_merged(rt: Runtime, seen: Seen, tmp_path: Path) -> None:
    exact = len(seen.slices) + sum(len(v) for v in seen.counters.values())
    assert len(read(perfetto.save(rt, tmp_path / "a", slices=exact)).slices) == len(seen.slices)


# --- bad input


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(name: str) -> None:
        raise ImportError(name)

    trace = system_of()
    monkeypatch.setattr(perfetto.importlib, "import_module", fail)
    with pytest.raises(Unsupported, match=r"pip install '\.\[perfetto\]' in the clone of nc-sim"):
        perfetto.save(trace, tmp_path / "a")
    assert not list(tmp_path.iterdir())


@needs_perfetto
@pytest.mark.parametrize("slices", [0, -1, 2.5, True, "9"])
def test_a_limit_that_is_no_count_is_refused(slices: Any, tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="slices="):
        perfetto.save(system_of(), tmp_path / "a", slices=slices)


@needs_perfetto
def test_a_place_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ProgramError, match="cannot be written"):
        perfetto.save(system_of(), tmp_path / "file" / "a")
    with pytest.raises(ProgramError, match="cannot be written"):
        perfetto.save(system_of(), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@needs_perfetto
def test_an_empty_trace_is_a_process_without_rows(tmp_path: Path) -> None:
    assert list(read(perfetto.save(system_of(), tmp_path / "a")).parents) == ["i-ncsim-pid1"]


# --- the command line --------------------------------------------------------------------------------------------


@needs_perfetto
def test_view_writes_the_file_of_a_hardware_trace_beside_its_timeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = simulate(scaled("half", 0.5), "trn2", values=False)
    result.save("out")
    done = CliRunner().invoke(main, ["view", "out", "--perfetto", "made/run.pftrace"])
    assert done.exit_code == 0, done.output
    assert done.output.endswith("\n\nperfetto: made/run.pftrace\n")
    assert "µs" in done.output
    assert Path("made/run.pftrace").read_bytes() == perfetto.save(result, "same.pftrace").read_bytes()


@needs_perfetto
@pytest.mark.parametrize("inner", ["", system.FOLDER, f"{system.FOLDER}/{system.FILE}"])
def test_view_writes_the_file_of_a_system_trace(inner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runtime = dispatched()
    system.save(runtime, "out")
    done = CliRunner().invoke(main, ["view", str(Path("out") / inner), "--perfetto", "run.pftrace"])
    assert done.output == "perfetto: run.pftrace\n"
    assert Path("run.pftrace").read_bytes() == perfetto.save(runtime, "same.pftrace").read_bytes()


@pytest.mark.parametrize("path", ["out", f"out/{system.FOLDER}/{system.FILE}"])
def test_view_of_a_system_trace_asks_for_perfetto(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    system.save(dispatched(), "out")
    done = CliRunner().invoke(main, ["view", path])
    found = f"error: {path}: a system trace; --perfetto FILE, --picture FILE, or the path of a hardware trace beside it\n"
    assert (done.exit_code, done.output) == (1, found)


NOT_INSTALLED = "the package perfetto is not installed; pip install '.[perfetto]' in the clone of nc-sim"


@pytest.mark.skipif(Trace is not None, reason="the extra perfetto is installed")
def test_view_names_the_extra_before_it_prints_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    simulate(scaled("half", 0.5), "trn2", values=False).save("out")
    done = CliRunner().invoke(main, ["view", "out", "--perfetto", "run.pftrace"])
    assert (done.exit_code, done.output) == (1, f"error: perfetto: {NOT_INSTALLED}\n")
    assert not Path("run.pftrace").exists()
