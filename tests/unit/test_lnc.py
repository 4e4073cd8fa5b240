"""Events per dispatch as on real traces, and a logical core of two physical cores, with the hand-made profile of test_runtime."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nc_sim import ProgramError
from nc_sim.report.study.measurement import measure
from nc_sim.runtime import Ret, Runtime
from nc_sim.runtime.events import HARDWARE, Event
from nc_sim.runtime.framework import Framework
from nc_sim.trace import perfetto, system
from nc_sim.trace.system import lane, rows
from nc_sim.workloads import aten
from test_runtime import BODY, FLAT, HAND, OLD, S, Step, X, drain, empty, held, loaded, named, one, scale, sets, started, submit


def twenty(lnc: int, **options: Any) -> Counter[str]:
    """Names of the events of 20 dispatches, each of another program."""
    rt = started(profile="blog", lnc=lnc, values=False, **options)
    models = [loaded(rt, empty(f"p{k}")) for k in range(20)]
    for model in models:
        one(rt, submit(rt, model, ({}, {}), 1))
    drain(rt)
    return Counter(e.name for e in rt.trace.events if e.name != "nrt_load")


# --- counts ----------------------------------------------------------------------------------------------------------


def test_twenty_dispatches_on_two_physical_cores_leave_the_published_numbers_of_events() -> None:
    """A summary of 20 dispatches at LNC 2: 20 of each host step and of nrt_profile_add_node_info, 40 of what each core has.

    Left out of it: 20 cc_exec_barrier and 720 cc_running, which are of collectives. ESM-2 at LNC 2: about 13 dmem_buf_copyin and
    5 nrt_dma_mem_alloc to a dispatch. The rest is of the model: each program switches both cores, and each core has a sync point.
    """
    assert twenty(2, precache_node_info=False) == {
        **dict.fromkeys(("nrta_execute_schedule", "nrt_model_submit", "kbl_exec_pre", "kbl_exec_wait", "kbl_exec_post"), 20),
        "nrt_profile_add_node_info": 20,
        **dict.fromkeys(("nc_exec_running", "notification_consume_errors", "exec_consume_gpsimd_stdio"), 40),
        "dmem_buf_copyin": 260,
        "nrt_dma_mem_alloc": 100,
        "nc_model_switch": 40,
        "timestamp_sync_point": 40,
    }


def test_event_counts_of_a_model_of_the_published_size_are_within_two_percent_of_the_published() -> None:
    """One ESM-2 forward, eager: 1,050 dispatches, of which 984 change the program (1,968 nc_model_switch on two cores).

    Published for it: nrt_model_submit 1,050, nc_exec_running 2,100, dmem_buf_copyin 13,785, nrt_dma_mem_alloc 5,196. Compiled, with
    the program there already: 1, 2, 14, 6 and no switch.
    """
    rt = started(profile="blog", lnc=2, values=False)
    a, b = loaded(rt, empty("a")), loaded(rt, empty("b"))
    for k in range(1_050):
        one(rt, submit(rt, a if k >= 984 or k % 2 else b, ({}, {}), 1))
    drain(rt)
    eager = Counter(e.name for e in rt.trace.events)
    published = {
        "nrt_model_submit": 1_050,
        "nc_exec_running": 2_100,
        "dmem_buf_copyin": 13_785,
        "nrt_dma_mem_alloc": 5_196,
        "nc_model_switch": 1_968,
    }
    assert {name: eager[name] for name in published} == pytest.approx(published, rel=0.02)
    one(rt, submit(rt, a, ({}, {}), 1))
    drain(rt)
    compiled = Counter(e.name for e in rt.trace.events)
    compiled.subtract(eager)
    assert [compiled[name] for name in published] == [1, 2, 13, 5, 0]


def test_on_one_physical_core_there_is_one_of_everything() -> None:
    got = twenty(1)
    assert (got.pop("dmem_buf_copyin"), got.pop("nrt_dma_mem_alloc")) == (260, 100)
    assert set(got.values()) == {20}
    assert "nrt_profile_add_node_info" not in got


def test_only_the_first_run_of_a_program_notes_its_nodes_inside_its_schedule_call() -> None:
    rt = started(precache_node_info=False)
    a, again, b = loaded(rt, empty("a")), loaded(rt, empty("a")), loaded(rt, empty("b"))
    for model in (a, a, again, b):
        one(rt, submit(rt, model, ({}, {}), 1))
    drain(rt)
    calls = {e.id: e for e in named(rt, "nrta_execute_schedule")}
    noted = named(rt, "nrt_profile_add_node_info")
    assert [(calls[e.parent].start_ns, e.start_ns, e.duration_ns) for e in noted] == [(0, 0, 0), (30_000, 30_000, 0)]
    assert named(Runtime(), "nrt_profile_add_node_info") == []


def test_counted_events_lie_inside_nrt_model_submit_and_take_no_time() -> None:
    rt = started(profile="blog")
    one(rt, rt.nrt_execute(loaded(rt, empty()), {}, {}))
    assert rt.now == 113_000 + 56_000 + 20_000 + 20_000 + 175_000  # as without them
    (submit_,) = named(rt, "nrt_model_submit")
    for name, count in (("dmem_buf_copyin", 13), ("nrt_dma_mem_alloc", 5)):
        assert [(e.parent, e.start_ns, e.end_ns, e.attributes) for e in named(rt, name)] == [(submit_.id, 0, 0, {})] * count


def test_counted_events_stand_in_the_runtimes_lane_and_copies_in_the_transfers() -> None:
    rt = started(profile="blog")
    model, (ins, outs) = loaded(rt), sets(rt)
    one(rt, rt.nrt_tensor_write(ins["x"], X))
    one(rt, rt.nrt_execute(model, ins, outs))
    lanes = Counter(lane(e) for e in named(rt, "dmem_buf_copyin"))
    assert lanes == {"i-ncsim/NC:0/host_to_device_transfers": 1, "i-ncsim/PID:1/neuron_rt/NC:0": 13}


def test_counted_events_are_drawn_inside_their_call() -> None:
    rt = started(profile="blog")
    model = loaded(rt, empty())
    one(rt, submit(rt, model, ({}, {}), 2))
    drain(rt)
    (row,) = [r for r in rows(rt.trace.events) if "dmem_buf_copyin" in {e.name for e in r.events}]
    for e, depth, up in zip(row.events, row.depth, row.up, strict=True):
        if e.name in ("dmem_buf_copyin", "nrt_dma_mem_alloc"):
            assert (depth, row.events[up].name, row.events[up].id) == (2, "nrt_model_submit", e.parent)


# --- two physical cores ----------------------------------------------------------------------------------------------


def test_a_dispatch_runs_its_program_on_the_first_physical_core_and_an_empty_one_on_the_second() -> None:
    rt = started(cores=2, lnc=2)
    model, (ins, outs) = loaded(rt, core=1), sets(rt, 1)
    assert one(rt, rt.nrt_execute(model, ins, outs)) is S.SUCCESS
    assert np.array_equal(held(outs["y"]), 2 * X)
    first, second = named(rt, "nc_exec_running")
    assert [(e.core, e.attributes["device_core_idx"], e.start_ns, e.end_ns, e.flow) for e in (first, second)] == [
        (1, 2, 22_000, 42_000 + BODY, (0,)),
        (1, 3, 22_000, 42_000, (0,)),
    ]
    assert ("idle" in first.attributes, second.attributes["idle"]) == (False, True)
    assert [lane(e) for e in (first, second)] == [f"i-ncsim/PID:1/neuron_hw/NC1:{p}" for p in (2, 3)]
    assert [(e.start_ns, e.end_ns, lane(e)[-5:]) for e in named(rt, "nc_model_switch")] == [(17_000, 22_000, f"NC1:{p}") for p in (2, 3)]
    (wait,) = named(rt, "kbl_exec_wait")
    assert [(e.parent, e.start_ns, lane(e)[-5:]) for e in named(rt, "timestamp_sync_point")] == [
        (wait.id, 22_000, f"NC1:{p}") for p in (2, 3)
    ]


def test_a_second_physical_core_changes_no_time_and_no_value() -> None:
    ends = []
    for lnc in (1, 2):
        rt = started(lnc=lnc)
        model, (ins, outs) = loaded(rt), sets(rt)
        assert one(rt, rt.nrt_execute(model, ins, outs)) is S.SUCCESS
        ends.append((rt.now, held(outs["y"]).tolist(), model.running_ns, rt.hbm_used))
    assert ends[0] == ends[1]


def test_with_one_physical_core_no_event_tells_of_two() -> None:
    rt = started(cores=2)
    one(rt, rt.nrt_execute(loaded(rt, empty(), 1), {}, {}))
    told = {(e.name, e.attributes["device_core_idx"]) for e in rt.trace.events if "device_core_idx" in e.attributes}
    assert told == {("nc_exec_running", 1)}


def test_visible_cores_have_the_physical_numbers_of_the_instance() -> None:
    """Published: lanes NC0:4 and NC0:5, of the third logical core of two."""
    rt = started(cores=4, visible_cores=[2, 3], lnc=2)
    one(rt, rt.nrt_execute(loaded(rt, empty(), 0), {}, {}))
    assert {lane(e).split("/")[-1] for e in rt.trace.events if e.source == HARDWARE} == {"NC0:4", "NC0:5"}


def test_a_time_out_ends_both_windows() -> None:
    rt = started(lnc=2, exec_timeout_ns=15_000)
    ins, outs = sets(rt)
    assert one(rt, rt.nrt_execute(loaded(rt), ins, outs)) is S.TIMEOUT
    assert [e.duration_ns for e in named(rt, "nc_exec_running")] == [15_000, 15_000]
    assert np.array_equal(held(outs["y"]), OLD)


@pytest.mark.parametrize("lnc", [0, 3, 4])
def test_a_logical_core_is_one_or_two_physical_ones(lnc: int) -> None:
    with pytest.raises(ProgramError, match=f"lnc={lnc}; 1 or 2"):
        Runtime(lnc=lnc)


def test_the_two_physical_cores_stand_on_threads_of_their_own() -> None:
    rt = started(lnc=2)
    model, (ins, outs) = loaded(rt), sets(rt)
    one(rt, rt.nrt_execute(model, ins, outs))
    hardware = {r.name: [e.name for e in r.events] for r in rows(rt.trace.events) if r.name.endswith("neuron_hw")}
    steps = ["nc_model_switch", "nc_exec_running", "timestamp_sync_point"]
    assert hardware == {"gid0-nc0-neuron_hw": steps, "gid0-nc0:1-neuron_hw": steps}


def test_the_wait_leads_to_the_execution_on_both_physical_cores() -> None:
    rt = started(lnc=2)
    one(rt, rt.nrt_execute(loaded(rt, empty()), {}, {}))
    (wait,), running = named(rt, "kbl_exec_wait"), named(rt, "nc_exec_running")
    assert {(a, b) for a, b in system.arrows(rt.trace.events) if a == wait.id} == {(wait.id, e.id) for e in running}


def test_a_saved_trace_of_two_physical_cores_comes_back(tmp_path: Path) -> None:
    rt = started(lnc=2, cores=2)
    one(rt, rt.nrt_execute(loaded(rt, empty(), 1), {}, {}))
    trace = system.load(system.save(rt, tmp_path))
    assert trace == system.trace_of(rt)
    assert [name for name in trace.lanes() if "neuron_hw" in name] == [f"i-ncsim/PID:1/neuron_hw/NC1:{p}" for p in (2, 3)]


def test_a_wrong_number_of_a_physical_core_is_that_of_the_logical_one() -> None:
    for told in (-1, "2", True, 1.5, None):
        assert lane(Event(0, "nc_exec_running", HARDWARE, 0, 1, core=1, attributes={"device_core_idx": told})).endswith("NC1:1")


def test_instructions_are_drawn_once_on_the_first_physical_core(tmp_path: Path) -> None:
    messages = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")

    def drawn(lnc: int) -> tuple[Counter[str], list[str]]:
        rt = started(cores=2, lnc=lnc, visible_cores=[1])
        model, (ins, outs) = loaded(rt), sets(rt)
        one(rt, rt.nrt_execute(model, ins, outs))
        trace = messages.Trace()
        trace.ParseFromString(perfetto.save(rt, tmp_path / f"{lnc}.pftrace").read_bytes())
        tracks = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")}
        names = {u: d.name or d.thread.thread_name or d.process.process_name for u, d in tracks.items()}
        begun = Counter(names[p.track_event.track_uuid] for p in trace.packet if p.HasField("track_event") and p.track_event.type == 1)
        return begun, sorted(n for n in names.values() if n.startswith(("NC", "DMA")))

    (one_, one_names), (two, two_names) = drawn(1), drawn(2)
    engines = {n: c for n, c in one_.items() if "Engine" in n and "DMA" not in n}
    assert engines
    assert {n: c for n, c in two.items() if "Engine" in n and "DMA" not in n} == engines
    assert one_names[-1] == "NC0:1"
    assert two_names[-1] == "NC0:2"
    # sixteen DMA engines to a physical core: those of core 1 from 16, those of core 2 from 32
    assert {int(n.split()[2]) // 16 for n in one_names if n.startswith("DMA")} == {1}
    assert {int(n.split()[2]) // 16 for n in two_names if n.startswith("DMA")} == {2}


def test_a_study_counts_both_windows_and_times_the_one_that_works() -> None:
    found = []
    for lnc in (1, 2):
        rt = started(lnc=lnc, profile=HAND, chip=FLAT)
        framework = Framework(rt)

        def host(thread: int, f: Framework = framework) -> Step:
            a = yield from f.put(np.ones((4, 8)), "bfloat16")
            yield from f.op("aten::mul", lambda: aten.mul((4, 8), (4, 8), "bfloat16"), [a, a], f.array((4, 8), "bfloat16"))

        rt.run(host)
        found.append(measure(framework))
    assert (found[0].pop("nc_exec_running"), found[1].pop("nc_exec_running")) == (1, 2)
    assert found[0] == found[1]


def test_unlike_programs_switch_both_physical_cores_and_like_ones_neither() -> None:
    rt = started(lnc=2)
    a, b = loaded(rt, empty("a")), loaded(rt, scale())
    given = sets(rt)
    for model, sets_ in ((a, ({}, {})), (a, ({}, {})), (b, given), (a, ({}, {}))):
        ret = Ret()
        one(rt, rt.nrta_execute_schedule(model, *sets_, 0, ret))
        drain(rt)
        assert ret.value is S.SUCCESS
    assert Counter(e.attributes["device_core_idx"] for e in named(rt, "nc_model_switch")) == {0: 3, 1: 3}
