"""System traces: what they record, where it lies, how its lanes are called, and what a damaged file says."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import attrs
import msgpack
import numpy as np
import pytest

from nc_sim import Program, simulate
from nc_sim.isa.errors import ProgramError
from nc_sim.runtime import NrtStatus, Ret, Runtime
from nc_sim.runtime.events import FRAMEWORK, HARDWARE, RUNTIME, Event, Recorder
from nc_sim.trace import hardware, system
from nc_sim.trace.system import Loaded, SystemTrace, arrows, lane, load, pack, rows, save, trace_of, unpack


def scaled(name: str, factor: float) -> Program:
    p = Program(name)
    x, y = p.input("x", (128, 64), "float32"), p.output("y", (128, 64), "float32")
    t = p.sbuf((128, 64), "float32")
    p.dma_copy(dst=t, src=x)
    p.activation(dst=t, op="exp", data=t, scale=factor)
    p.dma_copy(dst=y, src=t)
    return p


def dispatched(cores: int = 1, **options: Any) -> Runtime:
    """Each core: a copy in, one synchronous execution, four asynchronous ones of two programs in turn, a copy out."""
    rt = Runtime(cores=cores, **options)
    rt.nrt_init()

    def host(core: int) -> Generator[Any, Any, None]:
        models = [rt.nrt_load(scaled(name, factor), core)[1] for name, factor in (("half", 0.5), ("twice", 2.0))]
        (_, x), (_, y) = (rt.nrt_tensor_allocate("device", core, 128 * 64 * 4, name) for name in "xy")
        yield from rt.nrt_tensor_write(x, np.ones((128, 64), np.float32), thread=core)
        yield from rt.nrt_execute(models[0], {"x": x}, {"y": y}, thread=core)
        for k in range(4):
            began = rt.now
            yield rt.spend(6000)
            _, seq = yield from rt.nrta_execute_schedule(models[k % 2], {"x": x}, {"y": y}, 0, Ret(), thread=core)
            rt.trace.add("aten::mul.Tensor", FRAMEWORK, began, rt.now, thread=core, flow=(seq,))
            rt.trace.add("aten::mul.Tensor", FRAMEWORK, began + 6000, rt.now, stream=core, flow=(seq,), attributes={"nrt_sequence_id": seq})
        while rt.nrta_is_completed(seq) == (NrtStatus.SUCCESS, False):
            yield rt.spend(1000)
        yield from rt.nrt_tensor_read(y, np.empty((128, 64), np.float32), thread=core)

    rt.run(*[host] * cores)
    return rt


@pytest.fixture(scope="module")
def rt() -> Runtime:
    return dispatched()


@pytest.fixture(scope="module")
def data(rt: Runtime) -> bytes:
    return pack(trace_of(rt, devices=False))


# --- contents


def test_a_folder_has_the_published_layout(rt: Runtime, tmp_path: Path) -> None:
    hashes = sorted({m.neff.hash for m in rt.models})
    wanted = ["ntrace.msgpack", *(f for h in hashes for f in (f"{h}_instid_0_vnc_0.ntff.msgpack", f"neff_{h}.neff.msgpack"))]
    assert save(rt, tmp_path / "out") == tmp_path / "out" / "i-ncsim_pid_1"
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()) == sorted(
        f"out/i-ncsim_pid_1/{name}" for name in wanted
    )


def test_a_program_that_never_ran_has_no_files(tmp_path: Path) -> None:
    rt = Runtime()
    rt.nrt_init()
    rt.nrt_load(scaled("half", 0.5))
    assert [p.name for p in save(rt, tmp_path).iterdir()] == ["ntrace.msgpack"]
    assert [m.executions for m in load(tmp_path).models] == [0]


def test_a_loaded_trace_is_the_recorded_one_by_file_folder_and_outer_folder(rt: Runtime, tmp_path: Path) -> None:
    inner = save(rt, tmp_path)
    for path in (tmp_path, inner, inner / "ntrace.msgpack", str(inner)):
        assert load(path) == trace_of(rt)
    assert list(load(tmp_path).events) == rt.trace.events


def test_metadata_says_what_the_run_rests_on(rt: Runtime) -> None:
    m = trace_of(rt, devices=False).metadata
    assert (m["instance"], m["pid"], m["is_simulation"], m["chip"], m["cores"]) == ("i-ncsim", 1, True, "trn2", 1)
    assert m["host_profile"]["name"] == "blog"
    number = m["host_profile"]["numbers"]["schedule_ns"]
    assert (number["value"], number["status"]) == (rt.profile.schedule_ns, "measured")
    assert number["source"]
    assert m["dropped"] == []


def test_dropped_events_are_counted_by_core() -> None:
    rt = dispatched(trace=Recorder(limit_per_core=3))
    trace = trace_of(rt, devices=False)
    assert {"core": 0, "events": rt.trace.dropped[0]} in trace.metadata["dropped"]
    assert sum(e.core == 0 for e in trace.events) == 3
    assert unpack(pack(trace)) == trace


def test_models_tell_what_ran(rt: Runtime) -> None:
    half, twice = rt.models
    assert trace_of(rt).models == (Loaded(0, "half", half.neff.hash, 0, 3), Loaded(1, "twice", twice.neff.hash, 0, 2))


def test_the_device_trace_of_a_model_is_that_of_its_program(rt: Runtime, tmp_path: Path) -> None:
    result = simulate(scaled("twice", 2.0), values=False)
    for trace in (trace_of(rt), load(save(rt, tmp_path))):
        assert trace.device(1) == hardware.trace_of(result)
        assert trace.device(1).hash == rt.models[1].neff.hash
    assert load(tmp_path).device(0).program().name == "half"


def test_the_device_trace_of_another_core_names_that_core(tmp_path: Path) -> None:
    trace = load(save(dispatched(cores=2), tmp_path))
    by_core = {m.core: trace.device(m.id) for m in trace.models if m.name == "half"}
    assert {k: t.metadata["vnc"] for k, t in by_core.items()} == {0: 0, 1: 1}
    assert by_core[0].instructions == by_core[1].instructions


def test_an_execution_lasts_prologue_body_and_epilogue(rt: Runtime) -> None:
    trace = trace_of(rt)
    for e in trace.events:
        if e.name == "nc_exec_running":
            fixed = trace.metadata["prologue_ns"] + trace.metadata["epilogue_ns"]
            body = trace.device(e.attributes["model_id"]).metadata["duration_ns"]
            assert 0 <= e.duration_ns - fixed - body <= 1  # the window is rounded up


def test_every_event_lies_inside_its_parent(rt: Runtime) -> None:
    known = {e.id: e for e in rt.trace.events}
    children = [e for e in rt.trace.events if e.parent >= 0]
    assert {e.name for e in children} >= {"nrt_model_submit", "dmem_buf_copyin", "dmem_buf_copyout", "timestamp_sync_point"}
    for e in children:
        assert known[e.parent].start_ns <= e.start_ns <= e.end_ns <= known[e.parent].end_ns


def test_the_same_run_gives_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    code = "import sys; from test_system_trace import dispatched, save; save(dispatched(cores=2), sys.argv[1])"
    for seed in "12":
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
        subprocess.run([sys.executable, "-c", code, str(tmp_path / seed)], check=True, env=environment)
    first, second = ({p.name: p.read_bytes() for p in (tmp_path / s).rglob("*") if p.is_file()} for s in "12")
    assert first == second
    assert len(first) == 7  # two programs, two traces of each, one system trace


# --- lanes, rows, arrows


def test_lanes_have_the_published_labels() -> None:
    trace = trace_of(dispatched(cores=2), devices=False)
    by_core = [
        [f"i-ncsim/NC:{c}/{d}_transfers" for d in ("host_to_device", "device_to_host")]
        + [f"i-ncsim/PID:1/neuron_hw/NC{c}:{c}", f"i-ncsim/PID:1/neuron_rt/NC:{c}"]
        + [f"i-ncsim/PID:1/framework/Stream:{c}", f"i-ncsim/PID:1/framework/TID:{c}"]
        for c in range(2)
    ]
    assert list(trace.lanes()) == sorted(by_core[0] + by_core[1])
    assert sum(map(len, trace.lanes().values())) == len(trace.events)


def test_an_event_of_no_core_stands_in_the_lane_of_its_thread() -> None:
    assert lane(Event(0, "nrt_init", RUNTIME, 0, 1, thread=3)) == "i-ncsim/PID:1/neuron_rt/TID:3"


def test_rows_nest_what_belongs_together_and_part_what_only_overlaps() -> None:
    call = Event(0, "nrt_execute", RUNTIME, 0, 100, core=0, thread=0, flow=(7,))
    inside = Event(1, "nrta_execute_schedule", RUNTIME, 0, 40, core=0, thread=0, flow=(7,))
    submit = Event(2, "nrt_model_submit", RUNTIME, 0, 40, core=0, thread=0, parent=1, flow=(7,))
    other = Event(3, "kbl_exec_wait", RUNTIME, 10, 30, core=0, thread=0, flow=(6, 1))
    no_call = Event(4, "kbl_exec_pre", RUNTIME, 11, 29, core=0, thread=0, flow=(6,))
    too_long = Event(5, "nrt_model_submit", RUNTIME, 35, 41, core=0, thread=0, parent=2, flow=(8,))
    step = Event(6, "kbl_exec_wait", RUNTIME, 60, 100, core=0, thread=0, parent=0)
    last = Event(7, "kbl_exec_post", RUNTIME, 100, 100, core=0, thread=0, parent=0)
    after = Event(8, "nrta_execute_schedule", RUNTIME, 100, 130, core=0, thread=0, flow=(9,))
    moment = Event(9, "kbl_exec_post", RUNTIME, 100, 100, core=0, thread=0, flow=(6,))
    made = rows([call, inside, submit, other, no_call, too_long, step, last, after, moment])
    assert [(r.name, [(e.id, d) for e, d in zip(r.events, r.depth, strict=True)]) for r in made] == [
        ("gid0-nc0-tid0-neuron_rt - Row 0", [(0, 0), (1, 1), (2, 2), (6, 1), (7, 1), (9, 0), (8, 0)]),
        ("gid0-nc0-tid0-neuron_rt - Row 1", [(3, 0), (5, 0)]),
        ("gid0-nc0-tid0-neuron_rt - Row 2", [(4, 0)]),
    ]


def test_a_moment_where_something_else_begins_needs_no_row_of_its_own() -> None:
    wait = Event(0, "kbl_exec_wait", RUNTIME, 0, 100, core=0, thread=0, flow=(6, 1))
    post = Event(1, "kbl_exec_post", RUNTIME, 100, 100, core=0, thread=0, flow=(6,))
    read = Event(2, "nrt_tensor_read", RUNTIME, 100, 150, core=0, thread=0)
    call = Event(3, "nrt_execute", RUNTIME, 150, 200, core=0, thread=0, flow=(7,))
    step = Event(4, "kbl_exec_pre", RUNTIME, 150, 150, core=0, thread=0, flow=(7,))
    (row,) = rows([wait, post, read, step, call])
    assert row.name == "gid0-nc0-tid0-neuron_rt"
    assert [(e.id, d) for e, d in zip(row.events, row.depth, strict=True)] == [(0, 0), (1, 0), (2, 0), (3, 0), (4, 1)]


def test_the_dependency_chain_of_every_dispatch_is_complete(rt: Runtime) -> None:
    known = {e.id: e for e in rt.trace.events}
    after: dict[int, list[int]] = {}
    for source, target in arrows(rt.trace.events):
        after.setdefault(source, []).append(target)
    operations = [e for e in rt.trace.events if e.source == FRAMEWORK and e.stream < 0]
    assert len(operations) == 4
    for e in operations:
        chain = [e]
        while targets := after.get(chain[-1].id):
            assert len(targets) == 1
            chain.append(known[targets[0]])
        assert [x.name for x in chain[2:]] == ["nrta_execute_schedule", "kbl_exec_wait", "nc_exec_running"]
        assert (chain[1].source, chain[1].stream) == (FRAMEWORK, 0)


def test_a_chain_skips_a_step_that_was_not_captured_and_reaches_both_cores() -> None:
    schedule = Event(1, "nrta_execute_schedule", RUNTIME, 0, 5, core=0, flow=(9,))
    wait = Event(2, "kbl_exec_wait", RUNTIME, 5, 9, core=0, flow=(9, 0))
    running = [Event(k, "nc_exec_running", HARDWARE, 6, 8, core=k - 3, flow=(0,)) for k in (3, 4)]
    operation = Event(0, "aten::mul", FRAMEWORK, 0, 5, thread=0, flow=(9,))
    assert arrows([operation, schedule, wait, *running]) == [(0, 1), (1, 2), (2, 3), (2, 4)]
    assert arrows([operation, wait]) == [(0, 2)]


# --- bad input


def test_a_file_cut_anywhere_is_refused(data: bytes) -> None:
    for size in range(0, len(data), 97):
        with pytest.raises(ProgramError, match="cut off after"):
            unpack(data[:size])


def test_a_damaged_file_gives_one_error_or_a_valid_trace(data: bytes) -> None:
    rng = random.Random(0)
    refused = 0
    for _ in range(1500):
        damaged = bytearray(data)
        for _ in range(rng.choice((1, 2, 8))):
            damaged[rng.randrange(len(data))] = rng.randrange(256)
        try:
            trace = unpack(bytes(damaged))
        except ProgramError:
            refused += 1
        else:
            assert all(0 <= e.start_ns <= e.end_ns for e in trace.events)
            pack(trace)
    assert refused > 500


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("format",), "other", "trace format: 'other'"),
        (("version",), 2, "trace version: 2; 1, the only one"),
        (("more",), 1, "trace: ['more']; no other key"),
        (("metadata", "pid"), "1", "trace metadata pid: '1'"),
        (("metadata", "is_simulation"), False, "trace metadata is_simulation: False; true"),
        (("metadata", "host_profile", "numbers", "copy_ns"), 3, "trace metadata host_profile"),
        (("metadata", "more"), 3, "trace metadata: "),
        (("models", "columns", "hash"), ["<i1", b"\0\0", b'["../up"]'], "trace models hash: '../up'; twenty digits"),
        (("models", "columns", "more"), ["<i1", b""], "trace models columns: ['more']"),
        (("events", "count"), -1, "trace events: no columns"),
        (("events", "columns", "id"), ["<i1", b""], "trace events id: a column of another form"),
        (("events", "columns", "name"), ["<i1", b""], "trace events name: a column of another form"),
        (("events", "columns", "flow"), 7, "trace events flow: a column of another form"),
    ],
    ids=lambda v: ".".join(v) if isinstance(v, tuple) else "",
)  # fmt: skip
def test_a_wrong_field_is_named(data: bytes, path: tuple[str, ...], value: Any, said: str) -> None:
    raw = msgpack.unpackb(data)
    at = raw
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    with pytest.raises(ProgramError) as e:
        unpack(msgpack.packb(raw))
    assert said in str(e.value)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (Event(0, "a", RUNTIME, 5, 4), "events end_ns: 4 in row 0"),
        (Event(0, "a", RUNTIME, -1, 4), "events start_ns: -1; 0 to"),
        (Event(0, "a", RUNTIME, 0, 1 << 70), "events end_ns: a value that is no integer of 64 bits"),
        (Event(0, "a", RUNTIME, 0, 1, parent=0), "events parent: 0 in row 0"),
        (Event(0, "a", "somewhere", 0, 1), "events source: 'somewhere'; one of"),
        (Event(0, "a", RUNTIME, 0, 1, attributes={"x": np.int64(3)}), "event 0 (a) attributes"),
        (Event(0, "a", RUNTIME, 0, 1, attributes={"x": float("nan")}), "event 0 (a) attributes"),
        (Event(0, "a", RUNTIME, 0, 1, attributes={3: 4}), "event 0 (a) attributes"),  # type: ignore[dict-item]
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_an_event_that_no_file_can_hold_is_refused_and_nothing_is_written(
    event: Event, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "trace_of", lambda rt, devices: SystemTrace(trace_of(rt, devices=False).metadata, (), (event,)))
    with pytest.raises(ProgramError) as e:
        save(Runtime(), tmp_path / "out")
    assert said in str(e.value)
    assert not (tmp_path / "out").exists()


def test_names_and_attributes_come_back_whatever_they_hold(rt: Runtime) -> None:
    odd = Event(0, 'a\0"\n\ud800', FRAMEWORK, 0, 1, thread=0, attributes={"k\0": ["µ", 1, 2.5, None, True, {"x": []}]})
    trace = SystemTrace(trace_of(rt, devices=False).metadata, (), (odd,))
    assert unpack(pack(trace)) == trace


def test_a_place_without_a_trace_says_what_it_wants(rt: Runtime, tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=r"no system trace; ntrace\.msgpack, or i-ncsim_pid_1/ntrace\.msgpack"):
        load(tmp_path)
    with pytest.raises(ProgramError, match="cannot be read: No such file"):
        load(tmp_path / "nothing")
    (tmp_path / "file").write_text("")
    with pytest.raises(ProgramError, match="cannot be written"):
        save(rt, tmp_path / "file")


def test_a_device_trace_that_is_not_there_says_so(rt: Runtime, tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="the id of a model that ran"):
        trace_of(rt).device(5)
    with pytest.raises(ProgramError, match="devices=True"):
        trace_of(rt, devices=False).device(0)
    with pytest.raises(ProgramError, match="cannot be read"):
        load(save(rt, tmp_path / "bare", devices=False)).device(0)
    inner = save(rt, tmp_path)
    first, second = (inner / f"{m.neff.hash}_instid_0_vnc_0.ntff.msgpack" for m in rt.models)
    first.write_bytes(second.read_bytes())
    with pytest.raises(ProgramError, match="as its name says"):
        load(tmp_path).device(0)


def test_a_write_that_fails_leaves_the_older_file(rt: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = save(rt, tmp_path)
    before = {p.name: p.read_bytes() for p in inner.iterdir()}

    def fail(source: Any, target: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(ProgramError, match="No space left on device"):
        save(rt, tmp_path)
    assert {p.name: p.read_bytes() for p in inner.iterdir()} == before


def test_traces_are_equal_by_content(rt: Runtime) -> None:
    trace = trace_of(rt)
    assert trace == attrs.evolve(trace, path=Path("elsewhere"), made={})
    assert trace != attrs.evolve(trace, events=trace.events[1:])
