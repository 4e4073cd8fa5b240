"""Events of any run of the runtime: whole chains, legal nesting, times inside the parent's, nothing lost.

Runs are drawn: programs, threads that execute, copy and wait in any order, one or two cores of one or two physical cores,
shallow queues, a time-out that some programs exceed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nc_sim import Program, chip
from nc_sim.runtime import HostProfile, NrtStatus, Ret, Runtime
from nc_sim.runtime.events import HARDWARE, RUNTIME, Event, physical_core
from nc_sim.runtime.host import Count
from nc_sim.trace import system
from nc_sim.trace.system import arrows, rows

Step = Generator[Any, Any, Any]
S = NrtStatus
FLAT = chip.load("trn2").what_if({"program.prologue_ns": 2_000, "program.epilogue_ns": 0})
LIMIT = 4_000  # the empty program takes 2,000, the long one more than this
# What an event may lie inside. None: nothing.
LEGAL: dict[str, set[str | None]] = {
    "nrt_execute": {None},
    "kmgr_exec_core": {"nrt_execute"},
    "nrta_execute_schedule": {"nrt_execute", None},
    "nrt_model_submit": {"nrta_execute_schedule"},
    "nrt_profile_add_node_info": {"nrta_execute_schedule"},
    "nrt_dma_mem_alloc": {"nrt_model_submit"},
    "kbl_exec_core": {"kmgr_exec_core"},
    **{
        name: {"kmgr_exec_core", None}
        for name in ("kbl_exec_pre", "kbl_exec_wait", "kbl_exec_post", "notification_consume_errors", "exec_consume_gpsimd_stdio")
    },
    "timestamp_sync_point": {"kbl_exec_wait"},
    "nc_exec_running": {None},
    "nc_model_switch": {None},
    "dmem_buf_copyin": {"nrt_model_submit", "nrt_tensor_write", "nrt_tensor_write_batch", "nrt_tensor_copy", None},
    "dmem_buf_copyout": {"nrt_tensor_read", "nrt_tensor_read_batch", "nrt_tensor_copy", None},
    **{
        name: {None}
        for name in (
            "nrt_load", "nrt_unload", "nrt_tensor_allocate", "nrt_tensor_free", "nrt_tensor_write", "nrt_tensor_read", "nrt_tensor_copy",
            "nrt_tensor_write_batch", "nrt_tensor_read_batch", "nrt_tensor_memset", "nrta_tensor_write", "nrta_tensor_read",
            "nrta_tensor_copy",
        )
    },
}  # fmt: skip


def long() -> Program:
    """Two transfers and a copy: more than LIMIT."""
    p = Program("long")
    x, y = p.input("x", (4, 8), "float32"), p.output("y", (4, 8), "float32")
    t = p.sbuf((4, 8), "float32", name="t")
    p.dma_copy(dst=t, src=x)
    p.dma_copy(dst=y, src=t)
    return p


ACTIONS = st.sampled_from(
    ["short", "other", "long", "wait", "write", "read", "async write", "async read", "batch", "memset", "execute", "pause"]
)


@st.composite
def runs(draw: st.DrawFn) -> dict[str, Any]:
    cost = st.integers(0, 3_000)
    profile = HostProfile(
        "drawn", draw(cost), draw(cost), draw(cost), draw(cost), draw(cost), draw(cost), draw(st.integers(1, 1_000)),
        {name: Count(draw(st.integers(0, 3)), "assumed", "drawn") for name in ("dmem_buf_copyin", "nrt_dma_mem_alloc")},
    )  # fmt: skip
    options = {
        "profile": profile, "cores": draw(st.integers(1, 2)), "lnc": draw(st.integers(1, 2)), "queue_depth": draw(st.integers(1, 4)),
        "exec_timeout_ns": draw(st.sampled_from([LIMIT, LIMIT, 1_000_000])), "precache_node_info": draw(st.booleans()),
    }  # fmt: skip
    threads = st.lists(
        st.tuples(st.integers(0, 1), st.lists(ACTIONS, min_size=draw(st.sampled_from([0, 5, 12])), max_size=16)), min_size=1, max_size=3
    )
    return {"options": options, "threads": draw(threads)}


def run(options: dict[str, Any], threads: list[tuple[int, list[str]]]) -> tuple[Runtime, list[tuple[int, Ret]], int]:
    """The runtime after all threads and all requests have ended, every accepted execution, and those of nrt_execute."""
    rt = Runtime(chip=FLAT, values=False, **options)
    assert rt.nrt_init() is S.SUCCESS
    assert rt.nrt_sys_trace_start() is S.SUCCESS
    programs = {"short": Program("short"), "other": Program("other"), "long": long()}
    accepted: list[tuple[int, Ret]] = []
    returned: list[NrtStatus] = []
    on: list[dict[str, Any]] = []
    for core in range(rt.cores):
        made: dict[str, Any] = {name: rt.nrt_load(p, core)[1] for name, p in programs.items()}
        made |= {name: rt.nrt_tensor_allocate("device", core, 128)[1] for name in "xy"}
        on.append(made)

    def host(thread: int) -> Step:
        core, actions = threads[thread]
        here, data = on[core % rt.cores], np.zeros(128, np.uint8)
        for action in actions:
            match action:
                case "short" | "other" | "long":
                    ret = Ret()
                    given = ({"x": here["x"]}, {"y": here["y"]}) if action == "long" else ({}, {})
                    status, seq = yield from rt.nrta_execute_schedule(here[action], *given, 0, ret, thread=thread)
                    if status is S.SUCCESS:
                        accepted.append((seq, ret))
                case "execute":
                    returned.append((yield from rt.nrt_execute(here["short"], {}, {}, thread=thread)))
                case "wait" if accepted:
                    yield rt.nrta_event_register_seq_id_completion(accepted[-1][0])[1]
                case "write":
                    yield from rt.nrt_tensor_write(here["x"], data, thread=thread)
                case "read":
                    yield from rt.nrt_tensor_read(here["y"], data, thread=thread)
                case "async write":
                    yield from rt.nrta_tensor_write(here["x"], data, 0, 0, Ret(), thread=thread)
                case "async read":
                    yield from rt.nrta_tensor_read(data, here["y"], 0, 1, Ret(), thread=thread)
                case "batch":
                    yield from rt.nrt_tensor_write_batch([(here["x"], [(0, data[:64]), (64, data[64:])])], thread=thread)
                case "memset":
                    yield from rt.nrt_tensor_memset(here["x"], 0, 1, 8, thread=thread)
                case _:
                    yield rt.spend(700)

    rt.run(*[host] * len(threads))
    rt.env.run()
    return rt, accepted, len([s for s in returned if s not in (S.QUEUE_FULL, S.EXEC_UNIT_UNRECOVERABLE)])


def check(rt: Runtime, accepted: list[tuple[int, Ret]], executed: int) -> None:
    events = rt.trace.events
    by_id = {e.id: e for e in events}
    assert len(by_id) == len(events)
    named: dict[str, list[Event]] = {}
    for e in events:
        named.setdefault(e.name, []).append(e)
        parent = by_id.get(e.parent)
        assert (parent.name if parent else None) in LEGAL[e.name], e
        if parent is not None:
            assert parent.id < e.id
            assert parent.start_ns <= e.start_ns <= e.end_ns <= parent.end_ns, (parent, e)
            assert parent.core == e.core
    # every accepted request has a status, and every one that ran a whole chain
    assert all(ret.value is not None for _, ret in accepted)
    waits = {e.flow[0]: e for e in named.get("kbl_exec_wait", [])}
    ran = {seq for seq, ret in accepted if ret.value is not S.EXEC_UNIT_UNRECOVERABLE}
    calls = [e for e in named.get("nrta_execute_schedule", []) if e.parent < 0]
    assert sorted(e.flow[0] for e in calls) == sorted(seq for seq, _ in accepted)
    assert ran <= set(waits)
    edges: dict[int, set[int]] = {}
    for a, b in arrows(events):
        edges.setdefault(a, set()).add(b)
    running: dict[int, list[Event]] = {}
    for e in named.get("nc_exec_running", []):
        running.setdefault(e.flow[0], []).append(e)
    for e in named.get("nrta_execute_schedule", []):
        if e.flow[0] in waits:
            wait = waits[e.flow[0]]
            assert edges[e.id] == {wait.id}
            mine = running.pop(wait.flow[1])
            assert edges[wait.id] == {r.id for r in mine}
            assert [physical_core(r) for r in mine] == list(rt.physical_cores(e.core))
            assert all(e.end_ns <= wait.start_ns <= r.start_ns <= r.end_ns <= wait.end_ns for r in mine)
    assert running == {}
    times = [at for _, at in sorted(rt.completed_at.items())]  # by unit and number
    units = [seq >> 48 for seq in sorted(rt.completed_at)]
    assert all(a <= b for (u, a), (v, b) in pairwise(zip(units, times, strict=True)) if u == v)
    # so many of each as there were executions, and physical cores
    count = Counter(e.name for e in events)
    n = count["kbl_exec_wait"]
    assert (count["kbl_exec_pre"] >= n, count["kbl_exec_post"]) == (True, n)
    per_core = ("nc_exec_running", "timestamp_sync_point", "notification_consume_errors", "exec_consume_gpsimd_stdio")
    assert {name: count[name] for name in per_core} == dict.fromkeys(per_core, rt.lnc * n)
    submitted = count["nrt_model_submit"]
    assert submitted == count["nrta_execute_schedule"] == len(accepted) + count["nrt_execute"]
    assert count["nrt_dma_mem_alloc"] == submitted * rt.profile.events["nrt_dma_mem_alloc"].value
    assert executed <= count["kmgr_exec_core"] == count["kbl_exec_core"] <= count["nrt_execute"]
    # a physical core does one thing at a time
    device: dict[tuple[int, int], list[Event]] = {}
    for e in events:
        if e.source == HARDWARE and e.name != "timestamp_sync_point":
            device.setdefault((e.core, physical_core(e)), []).append(e)
    for mine in device.values():
        ordered = sorted(mine, key=lambda e: (e.start_ns, e.end_ns))
        assert all(a.end_ns <= b.start_ns for a, b in pairwise(ordered))
    # what is drawn: every event once, inside what it stands in
    drawn = [e.id for r in rows(events) for e in r.events]
    assert sorted(drawn) == sorted(by_id)
    for r in rows(events):
        for e, up in zip(r.events, r.up, strict=True):
            assert up < 0 or r.events[up].start_ns <= e.start_ns <= e.end_ns <= r.events[up].end_ns
    # what is fetched: every event of the runtime's once, and what is saved comes back
    entries = json.loads(rt.nrt_sys_trace_fetch_events()[1])["events"]
    found = Counter((e["tracking_id"], e["phase"]) for e in entries)
    assert found == Counter((e.id, phase) for e in events if e.source in (HARDWARE, RUNTIME) for phase in ("start", "stop"))
    trace = system.trace_of(rt, devices=False)
    assert system.unpack(system.pack(trace)) == trace
    assert rt.nrt_close() is S.SUCCESS


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(runs())
def test_the_events_of_any_run_are_whole_chains_that_nest_and_none_is_lost(drawn: dict[str, Any]) -> None:
    check(*run(**drawn))


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(runs())
def test_any_run_gives_the_same_events_twice(drawn: dict[str, Any]) -> None:
    first, second = run(**drawn)[0], run(**drawn)[0]
    assert first.trace.events == second.trace.events
