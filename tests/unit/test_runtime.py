"""The runtime layer by its contracts: statuses, order, time and events, worked out by hand from a profile's numbers.

Most tests use a profile and a chip made for sums in the head. An empty program's body takes 0 ns, so that one execution of
it lasts what the chip says for prologue and epilogue:

    schedule 10,000 + process 7,000 + switch 5,000 + device 20,000 + completion 30,000 = 72,000 ns submit to complete
"""

from __future__ import annotations

import gc
import hashlib
import math
import os
import subprocess
import sys
import tracemalloc
import weakref
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from conftest import REPOSITORY
from nc_sim import Program, ProgramError, Race, chip, simulate
from nc_sim.runtime import HostProfile, NrtError, NrtStatus, Ret, Runtime, XuType, py
from nc_sim.runtime.events import FRAMEWORK, GROUPS, HARDWARE, RUNTIME, Event, Recorder, chosen
from nc_sim.runtime.objects import DeviceTensor, Model, TensorSet
from nc_sim.trace import system
from nc_sim.workloads import rmsnorm

Step = Generator[Any, Any, Any]
Sets = tuple[dict[str, DeviceTensor], dict[str, DeviceTensor]]
S = NrtStatus

HAND = HostProfile(
    name="hand", framework_ns=1_000, schedule_ns=10_000, process_ns=7_000, switch_ns=5_000, completion_ns=30_000, copy_ns=2_000,
    copy_bytes_per_us=1_000,
)  # fmt: skip
TRN2 = chip.load("trn2")
FLAT = TRN2.what_if({"program.prologue_ns": 20_000, "program.epilogue_ns": 0})
SHAPE, BYTES = (4, 8), 128
X = np.arange(32, dtype=np.float32).reshape(SHAPE)
OLD = np.full(SHAPE, -7, np.float32)


def empty(name: str = "empty") -> Program:
    """No calls: its body takes no time."""
    return Program(name)


def scale(factor: float = 2.0, name: str = "double", constant: int = 0) -> Program:
    """y = factor * x, with some bytes of constants."""
    p = Program(name)
    x, y = p.input("x", SHAPE, "float32"), p.output("y", SHAPE, "float32")
    t = p.sbuf(SHAPE, "float32", name="t")
    if constant:
        p.dma_copy(dst=p.sbuf((1, constant), "uint8", name="c"), src=p.constant(np.zeros((1, constant), np.uint8), name="k"))
    p.dma_copy(dst=t, src=x)
    p.tensor_scalar(dst=t, data=t, op0="multiply", operand0=factor)
    p.dma_copy(dst=y, src=t)
    return p


BODY = math.ceil(simulate(scale(), FLAT, values=False).duration_ns)  # the core's own time, which is not under test here


def started(**options: Any) -> Runtime:
    rt = Runtime(**{"profile": HAND, "chip": FLAT, **options})
    assert rt.nrt_init() is S.SUCCESS
    return rt


def loaded(rt: Runtime, program: Program | None = None, core: int = 0) -> Model:
    status, model = rt.nrt_load(scale() if program is None else program, core)
    assert status is S.SUCCESS
    assert model is not None
    return model


def buffer(rt: Runtime, core: int = 0, fill: np.ndarray | None = None, size: int = BYTES) -> DeviceTensor:
    """A tensor on a core; its bytes are put there without host time."""
    status, tensor = rt.nrt_tensor_allocate("device", core, size)
    assert status is S.SUCCESS
    assert tensor is not None
    if fill is not None:
        tensor.data[:] = np.ascontiguousarray(fill).reshape(-1).view(np.uint8)
    return tensor


def sets(rt: Runtime, core: int = 0, x: np.ndarray = X) -> Sets:
    return {"x": buffer(rt, core, x)}, {"y": buffer(rt, core, OLD)}


def held(tensor: DeviceTensor) -> np.ndarray:
    return tensor.data.view(np.float32).reshape(SHAPE)


def drain(rt: Runtime) -> None:
    """Until nothing more happens."""
    rt.env.run()


def named(rt: Runtime, name: str) -> list[Event]:
    return [e for e in rt.trace.events if e.name == name]


def when_done(rt: Runtime, seq: int, log: list[tuple[int, int]]) -> None:
    """Append (sequence id, time) at completion."""
    status, done = rt.nrta_event_register_seq_id_completion(seq)
    assert status is S.SUCCESS
    done.callbacks.append(lambda _: log.append((seq, rt.now)))


def wait(rt: Runtime, seq: int) -> Step:
    """Until a request is done."""
    status, done = rt.nrta_event_register_seq_id_completion(seq)
    assert status is S.SUCCESS
    assert (yield done) == seq


def submit(rt: Runtime, model: Model, given: Sets, n: int, log: list[tuple[int, int]] | None = None, thread: int = 0) -> Step:
    """Schedule n executions as fast as calls return; (sequence ids, where their statuses will be)."""
    seqs, rets = [], []
    for _ in range(n):
        ret = Ret()
        status, seq = yield from rt.nrta_execute_schedule(model, *given, 0, ret, thread=thread)
        assert status is S.SUCCESS
        if log is not None:
            when_done(rt, seq, log)
        seqs.append(seq)
        rets.append(ret)
    return seqs, rets


def one(rt: Runtime, step: Step) -> Any:
    """What a call returns, from a host thread of its own."""
    return rt.run(lambda _: step)[0]


# --- lifecycle -------------------------------------------------------------------------------------------------------


def test_statuses_have_the_documented_numbers() -> None:
    """neuron-runtime/api/nrt_status.rst and the developer guide's table of return codes."""
    documented = {
        "SUCCESS": 0, "FAILURE": 1, "INVALID": 2, "INVALID_HANDLE": 3, "RESOURCE": 4, "TIMEOUT": 5, "HW_ERROR": 6, "QUEUE_FULL": 7,
        "LOAD_NOT_ENOUGH_NC": 9, "UNSUPPORTED_NEFF_VERSION": 10, "FAIL_HOST_MEM_ALLOC": 11, "UNINITIALIZED": 13, "CLOSED": 14,
        "QUEUE_EMPTY": 15, "EXEC_UNIT_UNRECOVERABLE": 101, "EXEC_BAD_INPUT": 1002, "EXEC_COMPLETED_WITH_NUM_ERR": 1003,
        "EXEC_NC_BUSY": 1005, "EXEC_OOB": 1006, "COLL_PENDING": 1100,
    }  # fmt: skip
    assert {s.name: int(s) for s in NrtStatus} == documented


Call = Callable[[Runtime, Model, Sets], Any]
STATUS_CALLS: dict[str, Call] = {
    "nrt_close": lambda rt, m, t: rt.nrt_close(),
    "nrt_get_vnc_memory_stats": lambda rt, m, t: rt.nrt_get_vnc_memory_stats(0)[0],
    "nrt_get_instance_info": lambda rt, m, t: rt.nrt_get_instance_info()[0],
    "nrt_get_model_tensor_info": lambda rt, m, t: rt.nrt_get_model_tensor_info(m)[0],
    "nrt_load": lambda rt, m, t: rt.nrt_load(empty())[0],
    "nrt_unload": lambda rt, m, t: rt.nrt_unload(m),
    "nrt_tensor_allocate": lambda rt, m, t: rt.nrt_tensor_allocate("device", 0, 8)[0],
    "nrt_tensor_allocate_empty": lambda rt, m, t: rt.nrt_tensor_allocate_empty()[0],
    "nrt_tensor_allocate_slice": lambda rt, m, t: rt.nrt_tensor_allocate_slice(t[0]["x"], 0, 8)[0],
    "nrt_tensor_attach_buffer": lambda rt, m, t: rt.nrt_tensor_attach_buffer(t[0]["x"], X.copy()),
    "nrt_allocate_tensor_set": lambda rt, m, t: rt.nrt_allocate_tensor_set()[0],
    "nrt_add_tensor_to_tensor_set": lambda rt, m, t: rt.nrt_add_tensor_to_tensor_set(TensorSet(), "x", t[0]["x"]),
    "nrt_get_tensor_from_tensor_set": lambda rt, m, t: rt.nrt_get_tensor_from_tensor_set(TensorSet(t[0]), "x")[0],
    "nrt_destroy_tensor_set": lambda rt, m, t: rt.nrt_destroy_tensor_set(TensorSet()),
    "nrt_tensor_write_batch": lambda rt, m, t: one(rt, rt.nrt_tensor_write_batch([(t[0]["x"], [(0, X)])])),
    "nrt_tensor_read_batch": lambda rt, m, t: one(rt, rt.nrt_tensor_read_batch([(t[1]["y"], [(0, X.copy())])])),
    "nrt_tensor_memset": lambda rt, m, t: one(rt, rt.nrt_tensor_memset(t[0]["x"], 0, 0, 8)),
    "nrt_tensor_check_output_completion": lambda rt, m, t: one(rt, rt.nrt_tensor_check_output_completion(t[1]["y"], 0, 0)),
    "nrt_tensor_reset_output_completion": lambda rt, m, t: rt.nrt_tensor_reset_output_completion(t[1]["y"]),
    "nrt_execute_repeat": lambda rt, m, t: one(rt, rt.nrt_execute_repeat(m, *t, 2)),
    "nrt_tensor_free": lambda rt, m, t: rt.nrt_tensor_free(t[0]["x"]),
    "nrt_tensor_write": lambda rt, m, t: one(rt, rt.nrt_tensor_write(t[0]["x"], X)),
    "nrt_tensor_read": lambda rt, m, t: one(rt, rt.nrt_tensor_read(t[1]["y"], X.copy())),
    "nrt_execute": lambda rt, m, t: one(rt, rt.nrt_execute(m, *t)),
    "nrta_execute_schedule": lambda rt, m, t: one(rt, rt.nrta_execute_schedule(m, *t, 0, Ret()))[0],
    "nrta_tensor_write": lambda rt, m, t: one(rt, rt.nrta_tensor_write(t[0]["x"], X, 0, 0, Ret()))[0],
    "nrta_tensor_read": lambda rt, m, t: one(rt, rt.nrta_tensor_read(X.copy(), t[1]["y"], 0, 0, Ret()))[0],
    "nrta_tensor_copy": lambda rt, m, t: one(rt, rt.nrta_tensor_copy(t[0]["x"], 0, t[1]["y"], 0, 8, 0, Ret()))[0],
    "nrt_tensor_copy": lambda rt, m, t: one(rt, rt.nrt_tensor_copy(t[0]["x"], 0, t[1]["y"], 0, 8)),
    "nrt_sys_trace_start": lambda rt, m, t: rt.nrt_sys_trace_start(),
    "nrt_sys_trace_stop": lambda rt, m, t: rt.nrt_sys_trace_stop(),
    "nrt_sys_trace_fetch_events": lambda rt, m, t: rt.nrt_sys_trace_fetch_events()[0],
    "nrta_is_completed": lambda rt, m, t: rt.nrta_is_completed(1 << 48 | 1)[0],
    "nrta_event_register_seq_id_completion": lambda rt, m, t: rt.nrta_event_register_seq_id_completion(1 << 48 | 1)[0],
    "nrta_event_register_xu_completion": lambda rt, m, t: rt.nrta_event_register_xu_completion(0, XuType.COMPUTE, 0)[0],
    "nrta_get_sequence": lambda rt, m, t: rt.nrta_get_sequence(0, XuType.COMPUTE, 0)[0],
}  # fmt: skip


@pytest.mark.parametrize("name", STATUS_CALLS)
def test_before_init_a_call_is_uninitialized(name: str) -> None:
    other = started()
    model, tensors = loaded(other), sets(other)
    rt = Runtime(HAND, FLAT)
    assert STATUS_CALLS[name](rt, model, tensors) is S.UNINITIALIZED
    assert rt.now == 0
    assert rt.trace.events == []


@pytest.mark.parametrize("name", STATUS_CALLS)
def test_after_close_a_call_is_closed(name: str) -> None:
    rt = started()
    model, tensors = loaded(rt), sets(rt)
    assert rt.nrt_close() is S.SUCCESS
    events = len(rt.trace.events)
    assert STATUS_CALLS[name](rt, model, tensors) is S.CLOSED
    assert (rt.now, len(rt.trace.events)) == (0, events)


def test_a_second_init_is_invalid_and_changes_nothing() -> None:
    rt = started()
    assert rt.nrt_init() is S.INVALID
    assert one(rt, rt.nrt_execute(loaded(rt, empty()), {}, {})) is S.SUCCESS
    assert rt.now == 10_000 + 7_000 + 5_000 + 20_000 + 30_000  # one server per unit, not two


def test_a_closed_runtime_stays_closed() -> None:
    rt = started()
    assert rt.nrt_close() is S.SUCCESS
    assert rt.nrt_init() is S.CLOSED


def test_close_with_an_execution_in_flight_is_busy_and_the_execution_completes_with_its_values() -> None:
    rt = started()
    model, (ins, outs) = loaded(rt), sets(rt)

    def host(_: int) -> Step:
        (seq,), (ret,) = yield from submit(rt, model, (ins, outs), 1)
        assert rt.nrt_close() is S.EXEC_NC_BUSY
        assert ret.value is None
        yield from wait(rt, seq)
        return ret.value, rt.nrt_close()

    assert rt.run(host) == [(S.SUCCESS, S.SUCCESS)]
    assert np.array_equal(held(outs["y"]), 2 * X)


def test_close_with_a_copy_in_flight_is_busy_and_the_copy_completes() -> None:
    rt = started()
    x = buffer(rt, 0, OLD)
    ret = Ret()
    assert one(rt, rt.nrta_tensor_write(x, X, 0, 1, ret))[0] is S.SUCCESS
    assert rt.nrt_close() is S.EXEC_NC_BUSY
    drain(rt)
    assert ret.value is S.SUCCESS
    assert np.array_equal(held(x), X)
    assert rt.nrt_close() is S.SUCCESS


def test_close_during_another_threads_synchronous_copy_is_busy() -> None:
    rt = started()
    x = buffer(rt, 0, OLD)

    def other(_: int) -> Step:
        yield rt.spend(1_000)
        return rt.nrt_close()

    assert rt.run(lambda _: rt.nrt_tensor_write(x, X), other) == [S.SUCCESS, S.EXEC_NC_BUSY]


def test_close_during_another_threads_synchronous_execution_is_busy() -> None:
    rt = started()
    model = loaded(rt, empty())

    def other(_: int) -> Step:
        got = []
        for _k in range(9):  # at 9,000 to 81,000; the execution returns at 72,000
            yield rt.spend(9_000)
            got.append(rt.nrt_close())
        return got

    execution, got = rt.run(lambda _: rt.nrt_execute(model, {}, {}), other)
    assert execution is S.SUCCESS
    assert got[:7] == [S.EXEC_NC_BUSY] * 7
    assert got[8] is not S.EXEC_NC_BUSY


def test_the_cores_can_be_counted_at_any_time() -> None:
    """nrt.h: nrt_get_total_vnc_count and nrt_get_visible_vnc_count can be called before nrt_init."""
    rt = Runtime(HAND, FLAT, cores=4, visible_cores=[1, 2, 3])
    for change in (rt.nrt_init, rt.nrt_close, rt.nrt_close):
        assert (rt.nrt_get_total_vnc_count(), rt.nrt_get_visible_vnc_count()) == ((S.SUCCESS, 4), (S.SUCCESS, 3))
        change()


def test_a_process_numbers_its_visible_cores_from_zero() -> None:
    rt = started(cores=4, visible_cores=range(2, 4))
    assert [loaded(rt, empty(f"p{k}"), -1).core for k in range(3)] == [0, 1, 0]
    assert rt.nrt_load(empty(), 2) == (S.LOAD_NOT_ENOUGH_NC, None)
    assert rt.nrt_tensor_allocate("device", 2, 8) == (S.INVALID, None)


@pytest.mark.parametrize("visible", [[], [0, 2], [2, 1], [-1, 0], [3, 4], [1, 1]])
def test_visible_cores_are_consecutive_numbers_of_the_instances(visible: list[int]) -> None:
    with pytest.raises(ProgramError, match=r"visible_cores=.*; consecutive numbers of the instance's 4 cores"):
        Runtime(HAND, FLAT, cores=4, visible_cores=visible)


# --- programs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("core", [2, 9, -2])
def test_loading_on_a_core_that_is_not_there_is_not_enough_nc(core: int) -> None:
    rt = started(cores=2)
    assert rt.nrt_load(scale(), core) == (S.LOAD_NOT_ENOUGH_NC, None)
    assert rt.hbm_used == [0, 0]


def test_core_minus_one_takes_the_core_with_the_fewest_loaded_programs() -> None:
    rt = started(cores=3)
    models = [loaded(rt, empty(f"p{k}"), -1) for k in range(4)]
    assert [m.core for m in models] == [0, 1, 2, 0]
    assert rt.nrt_unload(models[1]) is S.SUCCESS
    assert loaded(rt, empty("p4"), -1).core == 1


def test_an_unloaded_model_is_an_invalid_handle() -> None:
    rt = started()
    model, given = loaded(rt), sets(rt)
    assert rt.nrt_unload(model) is S.SUCCESS
    assert rt.nrt_unload(model) is S.INVALID_HANDLE
    assert one(rt, rt.nrt_execute(model, *given)) is S.INVALID_HANDLE
    assert one(rt, rt.nrta_execute_schedule(model, *given, 0, Ret())) == (S.INVALID_HANDLE, 0)


def test_unloading_a_model_that_executes_is_busy_and_nothing_is_lost() -> None:
    rt = started()
    model, (ins, outs) = loaded(rt), sets(rt)
    _, rets = one(rt, submit(rt, model, (ins, outs), 2))
    assert rt.nrt_unload(model) is S.EXEC_NC_BUSY
    drain(rt)
    assert [r.value for r in rets] == [S.SUCCESS] * 2
    assert np.array_equal(held(outs["y"]), 2 * X)
    assert rt.nrt_unload(model) is S.SUCCESS


def test_a_loaded_model_keeps_the_hbm_of_its_constants_until_it_is_unloaded() -> None:
    rt = started(cores=2)
    one_, two = loaded(rt, scale(constant=512), 1), loaded(rt, scale(constant=512), 1)
    assert rt.hbm_used == [0, 1024]
    assert loaded(rt, scale(), 1).neff.hash != one_.neff.hash  # inputs and outputs are the caller's tensors: 0 bytes
    assert rt.hbm_used == [0, 1024]
    assert rt.nrt_unload(one_) is S.SUCCESS
    assert rt.hbm_used == [0, 512]
    assert rt.nrt_unload(two) is S.SUCCESS
    assert rt.hbm_used == [0, 0]


def test_device_memory_runs_out_with_resource_and_free_gives_it_back() -> None:
    rt = started(cores=2, chip=FLAT.what_if({"memory.hbm_bytes": 1000}))
    first = buffer(rt, 0, size=600)
    assert rt.nrt_tensor_allocate("device", 0, 401) == (S.RESOURCE, None)
    second = buffer(rt, 0, size=400)  # to the last byte
    assert rt.nrt_tensor_allocate("device", 0, 1) == (S.RESOURCE, None)
    assert rt.hbm_used == [1000, 0]
    buffer(rt, 1, size=1000)  # cores have room of their own
    assert rt.nrt_tensor_allocate("host", 0, 5000)[0] is S.SUCCESS  # and the host's memory is not theirs
    assert rt.nrt_tensor_free(first) is S.SUCCESS
    assert rt.hbm_used == [400, 1000]
    buffer(rt, 0, size=600)
    assert rt.nrt_tensor_free(second) is S.SUCCESS
    assert rt.hbm_used == [600, 1000]


def test_a_program_without_room_for_its_constants_is_resource() -> None:
    rt = started(chip=FLAT.what_if({"memory.hbm_bytes": 1000}))
    tensor = buffer(rt, 0, size=600)
    assert rt.nrt_load(scale(constant=512)) == (S.RESOURCE, None)
    assert rt.hbm_used == [600]
    assert rt.nrt_tensor_free(tensor) is S.SUCCESS
    loaded(rt, scale(constant=512))
    assert rt.hbm_used == [512]


def test_a_program_with_a_race_is_refused_as_simulate_refuses_it() -> None:
    p = Program("raw")
    s, a, b = p.semaphore("s"), p.sbuf(SHAPE, "float32", name="a"), p.sbuf(SHAPE, "float32", name="b")
    p.memset(dst=a, value=1.0, update=[s.add(1)])
    p.tensor_copy(dst=b, src=a, engine="scalar")
    with pytest.raises(Race):
        simulate(p, FLAT, values=False)
    rt = started()
    with pytest.raises(Race):
        rt.nrt_load(p)
    assert (rt.models, rt.neffs, rt.hbm_used, rt.trace.events) == ([], {}, [0], [])


def test_models_are_those_loaded_and_those_that_ran_with_ids_of_their_own() -> None:
    rt = started()
    first, second = loaded(rt, empty("a")), loaded(rt, empty("b"))
    assert one(rt, rt.nrt_execute(second, {}, {})) is S.SUCCESS
    assert (rt.nrt_unload(first), rt.nrt_unload(second)) == (S.SUCCESS, S.SUCCESS)
    third = loaded(rt, empty("a"))
    assert [m.id for m in (first, second, third)] == [0, 1, 2]
    assert rt.models == [second, third]
    assert (second.executions, second.running_ns) == (1, 20_000)


def test_a_model_of_another_runtime_is_an_invalid_handle() -> None:
    rt, other = started(), started()
    mine, theirs = loaded(rt, empty()), loaded(other, empty())
    assert rt.nrt_unload(theirs) is S.INVALID_HANDLE
    assert one(rt, rt.nrt_execute(theirs, {}, {})) is S.INVALID_HANDLE
    assert rt.models == [mine]


# --- tensors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("placement", "core", "size"), [("device", 2, 8), ("device", -1, 8), ("device", 0, 0), ("host", 0, 0), ("virtual", 0, 8)]
)
def test_a_tensor_without_size_core_or_placement_is_invalid(placement: str, core: int, size: int) -> None:
    assert started(cores=2).nrt_tensor_allocate(placement, core, size) == (S.INVALID, None)


def test_freeing_twice_is_an_invalid_handle_and_gives_memory_back_once() -> None:
    rt = started()
    tensor, _ = buffer(rt), buffer(rt)
    assert rt.nrt_tensor_free(tensor) is S.SUCCESS
    assert rt.nrt_tensor_free(tensor) is S.INVALID_HANDLE
    assert rt.hbm_used == [BYTES]


def test_a_freed_tensor_is_an_invalid_handle_to_every_call() -> None:
    rt = started()
    model, (ins, outs) = loaded(rt), sets(rt)
    gone = ins["x"]
    assert rt.nrt_tensor_free(gone) is S.SUCCESS
    assert one(rt, rt.nrt_tensor_write(gone, X)) is S.INVALID_HANDLE
    assert one(rt, rt.nrt_tensor_read(gone, X.copy())) is S.INVALID_HANDLE
    assert one(rt, rt.nrta_tensor_write(gone, X, 0, 0, Ret())) == (S.INVALID_HANDLE, 0)
    assert one(rt, rt.nrta_tensor_read(X.copy(), gone, 0, 0, Ret())) == (S.INVALID_HANDLE, 0)
    assert one(rt, rt.nrta_tensor_copy(outs["y"], 0, gone, 0, 8, 0, Ret())) == (S.INVALID_HANDLE, 0)
    assert one(rt, rt.nrt_execute(model, ins, outs)) is S.INVALID_HANDLE
    assert np.array_equal(held(outs["y"]), OLD)


@pytest.mark.parametrize("which", ["x", "y"])
def test_freeing_a_tensor_of_an_execution_in_flight_is_invalid_and_nothing_is_lost(which: str) -> None:
    rt = started()
    model, (ins, outs) = loaded(rt), sets(rt)
    tensor = {**ins, **outs}[which]
    _, rets = one(rt, submit(rt, model, (ins, outs), 2))
    assert rt.nrt_tensor_free(tensor) is S.INVALID
    drain(rt)
    assert [r.value for r in rets] == [S.SUCCESS] * 2
    assert np.array_equal(held(outs["y"]), 2 * X)
    assert rt.nrt_tensor_free(tensor) is S.SUCCESS


def test_freeing_a_tensor_of_a_copy_in_flight_is_invalid_and_nothing_is_lost() -> None:
    rt = started()
    a, b = buffer(rt, 0, X), buffer(rt, 0, OLD)
    ret = Ret()
    assert one(rt, rt.nrta_tensor_copy(a, 0, b, 0, BYTES, 0, ret))[0] is S.SUCCESS
    assert (rt.nrt_tensor_free(a), rt.nrt_tensor_free(b)) == (S.INVALID, S.INVALID)
    drain(rt)
    assert ret.value is S.SUCCESS
    assert np.array_equal(held(b), X)
    assert (rt.nrt_tensor_free(a), rt.nrt_tensor_free(b)) == (S.SUCCESS, S.SUCCESS)


def test_freeing_a_tensor_under_another_threads_synchronous_copy_is_invalid() -> None:
    rt = started()
    x = buffer(rt, 0, OLD)

    def other(_: int) -> Step:
        yield rt.spend(1_000)
        return rt.nrt_tensor_free(x)

    assert rt.run(lambda _: rt.nrt_tensor_write(x, X), other) == [S.SUCCESS, S.INVALID]


def test_a_freed_tensor_gives_the_hosts_memory_back_too() -> None:
    rt = started()
    tensor = buffer(rt)
    bytes_ = weakref.ref(tensor.data)
    assert rt.nrt_tensor_free(tensor) is S.SUCCESS
    del tensor
    gc.collect()
    assert bytes_() is None


def test_a_tensor_that_is_freed_holds_no_bytes_even_for_who_keeps_the_handle() -> None:
    rt = started()
    tensor = buffer(rt)
    bytes_ = weakref.ref(tensor.data)
    assert rt.nrt_tensor_free(tensor) is S.SUCCESS
    assert bytes_() is None


def test_what_is_written_is_read_back_at_every_offset() -> None:
    rt = started()
    t = buffer(rt, size=64)
    data = np.arange(1, 17, dtype=np.uint8)
    into = np.zeros(4, np.uint8)
    assert one(rt, rt.nrt_tensor_write(t, data, 48)) is S.SUCCESS  # to the last byte
    assert t.data.tolist() == [0] * 48 + list(range(1, 17))
    assert one(rt, rt.nrt_tensor_read(t, into, 46)) is S.SUCCESS
    assert into.tolist() == [0, 0, 1, 2]
    assert (one(rt, rt.nrta_tensor_write(t, data[:2], 1, 0, Ret()))[0], one(rt, rt.nrta_tensor_copy(t, 60, t, 8, 4, 0, Ret()))[0]) == (0, 0)
    drain(rt)
    assert t.data[:13].tolist() == [0, 1, 2, 0, 0, 0, 0, 0, 13, 14, 15, 16, 0]


@pytest.mark.parametrize(("offset", "size"), [(-1, 8), (57, 8), (64, 1), (0, 65), (0, 0)])
def test_a_copy_beyond_a_tensor_is_invalid_and_moves_nothing(offset: int, size: int) -> None:
    rt = started()
    t, other = buffer(rt, size=64), buffer(rt, size=128)
    data = np.ones(size, np.uint8)
    assert one(rt, rt.nrt_tensor_write(t, data, offset)) is S.INVALID
    assert one(rt, rt.nrt_tensor_read(t, data, offset)) is S.INVALID
    assert one(rt, rt.nrta_tensor_write(t, data, offset, 0, Ret())) == (S.INVALID, 0)
    assert one(rt, rt.nrta_tensor_read(data, t, offset, 0, Ret())) == (S.INVALID, 0)
    assert one(rt, rt.nrta_tensor_copy(t, offset, other, 0, size, 0, Ret())) == (S.INVALID, 0)
    assert one(rt, rt.nrta_tensor_copy(other, 0, t, offset, size, 0, Ret())) == (S.INVALID, 0)
    assert (rt.now, int(t.data.sum()), int(data.sum())) == (0, 0, size)


def test_a_copy_between_cores_is_invalid() -> None:
    rt = started(cores=2)
    a, b = buffer(rt, 0, X), buffer(rt, 1, OLD)
    assert one(rt, rt.nrta_tensor_copy(a, 0, b, 0, BYTES, 0, Ret())) == (S.INVALID, 0)
    assert one(rt, rt.nrt_tensor_copy(a, 0, b, 0, BYTES)) is S.INVALID
    drain(rt)
    assert np.array_equal(held(b), OLD)


def test_a_copy_between_a_core_and_a_host_tensor_works_both_ways() -> None:
    rt = started(cores=2)
    a, b = buffer(rt, 1, X), buffer(rt, 1, OLD)
    status, host = rt.nrt_tensor_allocate("host", 0, BYTES)
    assert status is S.SUCCESS
    assert host is not None
    for src, dst in ((a, host), (host, b)):
        ret = Ret()
        assert one(rt, rt.nrta_tensor_copy(src, 0, dst, 0, BYTES, 0, ret))[0] is S.SUCCESS
        drain(rt)
        assert ret.value is S.SUCCESS
    assert np.array_equal(held(b), X)


def test_a_synchronous_copy_takes_the_time_of_its_bytes_and_holds_both_tensors() -> None:
    rt = started()
    a, b = buffer(rt, 0, X), buffer(rt, 0, OLD)

    def other(_: int) -> Step:
        yield rt.spend(1_000)
        return rt.nrt_tensor_free(a), rt.nrt_tensor_free(b), rt.nrt_close()

    assert rt.run(lambda _: rt.nrt_tensor_copy(a, 4, b, 8, 100), other) == [S.SUCCESS, (S.INVALID, S.INVALID, S.EXEC_NC_BUSY)]
    assert rt.now == 2_000 + 100
    assert np.array_equal(b.data[8:108], X.reshape(-1).view(np.uint8)[4:104])
    assert np.array_equal(b.data[108:], OLD.reshape(-1).view(np.uint8)[108:])
    assert one(rt, rt.nrt_tensor_copy(a, 4, b, 29, 100)) is S.INVALID
    assert (rt.nrt_tensor_free(a), rt.nrt_tensor_free(b)) == (S.SUCCESS, S.SUCCESS)


def test_an_execution_reads_its_operands_when_it_begins_and_writes_its_results_when_it_ends() -> None:
    rt = started()
    model, (ins, outs) = loaded(rt), sets(rt)
    end = 22_000 + 20_000 + BODY
    seen = {}

    def host(_: int) -> Step:
        yield from submit(rt, model, (ins, outs), 1)  # runs from 22,000
        yield rt.spend(11_999)
        ins["x"].data[:] = (X + 1).reshape(-1).view(np.uint8)  # before: it is what is read
        yield rt.spend(2)
        ins["x"].data[:] = 0
        for t in (end - 1, end + 1):  # the host knows 30,000 later
            yield rt.spend(t - rt.now)
            seen[t - end] = held(outs["y"]).copy()

    rt.run(host)
    assert np.array_equal(seen[-1], OLD)
    assert np.array_equal(seen[1], 2 * (X + 1))


def test_a_read_of_an_output_in_use_gives_the_old_bytes_and_after_completion_the_new() -> None:
    rt = started()
    model, (ins, outs) = loaded(rt), sets(rt)
    during, after = np.zeros_like(X), np.zeros_like(X)

    def host(_: int) -> Step:
        (seq,), _ = yield from submit(rt, model, (ins, outs), 1)  # returns at 10,000; runs from 22,000 for 20,000 and a body
        yield rt.spend(15_000)
        assert (yield from rt.nrt_tensor_read(outs["y"], during)) is S.SUCCESS
        assert rt.now == 25_000 + 2_000 + 128
        assert rt.nrta_is_completed(seq) == (S.SUCCESS, False)
        yield from wait(rt, seq)
        assert (yield from rt.nrt_tensor_read(outs["y"], after)) is S.SUCCESS

    rt.run(host)
    assert np.array_equal(during, OLD)
    assert np.array_equal(after, 2 * X)


def test_an_asynchronous_write_reads_the_host_buffer_when_the_copy_runs() -> None:
    rt = started()
    x, data = buffer(rt, 0, OLD), X.copy()
    assert one(rt, rt.nrta_tensor_write(x, data, 0, 0, Ret()))[0] is S.SUCCESS
    data[:] = 5  # zero copy: a host that does not wait sees this
    drain(rt)
    assert np.array_equal(held(x), np.full(SHAPE, 5, np.float32))


# --- asynchronous calls ----------------------------------------------------------------------------------------------


def test_a_status_stays_none_until_the_run_completes() -> None:
    rt = started()
    (_,), (ret,) = one(rt, submit(rt, loaded(rt, empty()), ({}, {}), 1))
    rt.env.run(until=71_999)
    assert ret.value is None
    rt.env.run(until=72_001)
    assert ret.value is S.SUCCESS


def test_a_schedule_call_returns_after_its_own_time_only() -> None:
    rt = started()
    one(rt, submit(rt, loaded(rt, empty()), ({}, {}), 3))
    assert rt.now == 3 * 10_000


def test_when_a_completion_is_told_status_values_and_sequence_are_there() -> None:
    rt = started()
    model, (ins, outs) = loaded(rt), sets(rt)
    seen: list[Any] = []

    def host(_: int) -> Step:
        (seq,), (ret,) = yield from submit(rt, model, (ins, outs), 1)
        yield from wait(rt, seq)
        seen.extend((ret.value, rt.nrta_is_completed(seq), rt.nrta_get_sequence(0, XuType.COMPUTE, 0)[1] - seq, held(outs["y"])[3, 7]))
        assert rt.nrt_tensor_free(outs["y"]) is S.SUCCESS
        start = rt.now
        yield from wait(rt, seq)  # of a request already done: at once
        assert rt.now == start

    rt.run(host)
    assert seen == [S.SUCCESS, (S.SUCCESS, True), 0, 62.0]


def test_several_waiters_for_one_request_all_go_on() -> None:
    rt = started()
    (seq,), _ = one(rt, submit(rt, loaded(rt, empty()), ({}, {}), 1))

    def waiter(_: int) -> Step:
        yield from wait(rt, seq)
        return rt.now

    assert rt.run(waiter, waiter, waiter) == [72_000] * 3


def test_requests_of_a_unit_complete_in_order_of_submission() -> None:
    """A long program before short ones, and large copies before small."""
    rt = started()
    models = [loaded(rt, empty(f"p{k}")) for k in range(3)]
    log: list[tuple[int, int]] = []
    copies: list[tuple[int, int]] = []
    t = buffer(rt, size=50_000)

    def host(_: int) -> Step:
        for k in (0, 1, 2, 1, 0):
            yield from submit(rt, models[k], ({}, {}), 1, log)
        for size in (50_000, 1, 20_000, 2):
            status, seq = yield from rt.nrta_tensor_write(t, np.zeros(size, np.uint8), 0, 0, Ret())
            assert status is S.SUCCESS
            when_done(rt, seq, copies)

    rt.run(host)
    drain(rt)
    for got, n in ((log, 5), (copies, 4)):
        assert [s & 0xFFFF_FFFF_FFFF for s, _ in got] == list(range(1, n + 1))
        assert [t for _, t in got] == sorted(t for _, t in got)


def test_units_do_not_wait_for_one_another() -> None:
    """A small copy on queue 1 passes a large one on queue 0, and both pass the execution submitted before them."""
    rt = started()
    t = buffer(rt, size=20_000)
    model = loaded(rt, empty())
    log: list[tuple[int, int]] = []

    def host(_: int) -> Step:
        (execution,), _ = yield from submit(rt, model, ({}, {}), 1, log)
        status, large = yield from rt.nrta_tensor_write(t, np.zeros(20_000, np.uint8), 0, 0, Ret())
        assert status is S.SUCCESS
        when_done(rt, large, log)
        status, small = yield from rt.nrta_tensor_write(t, np.zeros(100, np.uint8), 0, 1, Ret())
        assert status is S.SUCCESS
        when_done(rt, small, log)
        return execution, large, small

    ((execution, large, small),) = rt.run(host)
    drain(rt)
    # small: submitted by 30,000, then 2,000 + 100 x 1; large: by 20,000, then 2,000 + 20,000 x 1; execution: see the top
    assert log == [(small, 32_100), (large, 42_000), (execution, 72_000)]


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
def test_a_full_queue_refuses_at_once_and_takes_one_more_after_one_completion(depth: int) -> None:
    rt = started(queue_depth=depth)
    model = loaded(rt, empty())
    log: list[tuple[int, int]] = []

    def host(_: int) -> Step:
        seqs, rets = yield from submit(rt, model, ({}, {}), depth, log)
        start, events, ret = rt.now, len(rt.trace.events), Ret()
        assert (yield from rt.nrta_execute_schedule(model, {}, {}, 0, ret)) == (S.QUEUE_FULL, 0)
        assert (rt.now, len(rt.trace.events), ret.value) == (start, events, None)  # nothing happened
        yield from wait(rt, seqs[0])
        assert rt.now == 72_000
        (seq,), _ = yield from submit(rt, model, ({}, {}), 1, log)
        assert seq == seqs[-1] + 1  # the refused call used no number
        yield from wait(rt, seq)
        return [r.value for r in rets]

    assert rt.run(host) == [[S.SUCCESS] * depth]
    assert len(log) == depth + 1


def test_a_full_copy_queue_refuses_and_the_other_queue_takes_it() -> None:
    rt = started(queue_depth=2)
    t, data = buffer(rt, size=30_000), np.zeros(30_000, np.uint8)

    def host(_: int) -> Step:
        got = []
        for queue in (0, 0, 0, 1):
            status, _ = yield from rt.nrta_tensor_write(t, data, 0, queue, Ret())
            got.append(status)
        return got

    assert rt.run(host) == [[S.SUCCESS, S.SUCCESS, S.QUEUE_FULL, S.SUCCESS]]


def test_sequence_ids_name_the_unit_in_the_top_16_bits_and_count_from_one_below() -> None:
    rt = started(cores=2)
    models = [loaded(rt, empty(), c) for c in (0, 1)]
    tensors = [buffer(rt, c) for c in (0, 1)]
    seen: dict[tuple[int, str, int], list[int]] = {}

    def host(_: int) -> Step:
        for _round in range(3):
            for core in (0, 1):
                for queue in (0, 1):
                    status, seq = yield from rt.nrta_tensor_write(tensors[core], X, 0, queue, Ret())
                    assert status is S.SUCCESS
                    seen.setdefault((core, "copy", queue), []).append(seq)
                (seq,), _ = yield from submit(rt, models[core], ({}, {}), 1)
                seen.setdefault((core, "compute", 0), []).append(seq)

    rt.run(host)
    units = set()
    for seqs in seen.values():
        (unit,) = {s >> 48 for s in seqs}
        assert 0 < unit < 1 << 16
        assert [s & ((1 << 48) - 1) for s in seqs] == [1, 2, 3]
        units.add(unit)
    assert len(units) == len(seen) == 6


def test_every_queue_of_every_kind_has_a_unit_of_its_own() -> None:
    rt = started(cores=2)
    ids = [u.id for u in rt.units.values()]
    assert [k.queues for k in (XuType.TENSOR_OP, XuType.COMPUTE, XuType.COLLECTIVES)] == [2, 1, 3]
    assert len(set(ids)) == len(ids) == 2 * 6


def test_a_sequence_id_that_no_request_had_is_invalid() -> None:
    rt = started()
    (seq,), _ = one(rt, submit(rt, loaded(rt, empty()), ({}, {}), 1))
    unit = seq >> 48
    assert rt.nrta_is_completed(seq) == (S.SUCCESS, False)
    idle = next(u.id for u in rt.units.values() if u.id != unit)
    for bad in (0, -1, 1, seq + 1, unit << 48, idle << 48 | 1, 0xFFFF << 48 | 1, 1 << 64 | seq, (1 << 64) - 1):
        assert rt.nrta_is_completed(bad) == (S.INVALID, False), hex(bad)
        status, event = rt.nrta_event_register_seq_id_completion(bad)
        assert (status, event.triggered) == (S.INVALID, True), hex(bad)  # nobody hangs on it
    drain(rt)
    assert rt.nrta_is_completed(seq) == (S.SUCCESS, True)
    assert rt.nrta_is_completed(seq + 1) == (S.INVALID, False)


def test_the_completions_of_a_unit_are_told_one_by_one() -> None:
    rt = started(cores=2)
    model = loaded(rt, empty(), 1)

    def watcher(_: int) -> Step:
        got = []
        for _k in range(3):
            status, event = rt.nrta_event_register_xu_completion(1, XuType.COMPUTE, 0)
            assert status is S.SUCCESS
            got.append(((yield event), rt.now))
        return got

    seqs, got = rt.run(lambda _: submit(rt, model, ({}, {}), 3), watcher)
    assert got == [(seq, t) for seq, t in zip(seqs[0], (72_000, 92_000, 112_000), strict=True)]
    _, later = rt.nrta_event_register_xu_completion(1, XuType.COMPUTE, 0)
    assert not later.triggered
    for unit in ((2, XuType.COMPUTE, 0), (0, XuType.COMPUTE, 1), (0, XuType.TENSOR_OP, -1)):
        status, event = rt.nrta_event_register_xu_completion(*unit)
        assert (status, event.triggered) == (S.INVALID, True)


def test_get_sequence_is_the_last_completed_id_of_a_unit() -> None:
    rt = started(cores=2)
    seqs, _ = one(rt, submit(rt, loaded(rt, empty()), ({}, {}), 3))
    assert rt.nrta_get_sequence(0, XuType.COMPUTE, 0) == (S.QUEUE_EMPTY, 0)
    got = []
    for until in (72_001, 92_001, 112_001):  # the device takes 20,000 each
        rt.env.run(until=until)
        got.append(rt.nrta_get_sequence(0, XuType.COMPUTE, 0))
    assert got == [(S.SUCCESS, s) for s in seqs]
    assert rt.nrta_get_sequence(1, XuType.COMPUTE, 0) == (S.QUEUE_EMPTY, 0)
    for unit in (
        (2, XuType.COMPUTE, 0),
        (-1, XuType.COMPUTE, 0),
        (0, XuType.COMPUTE, 1),
        (0, XuType.TENSOR_OP, 2),
        (0, XuType.COLLECTIVES, 3),
    ):
        assert rt.nrta_get_sequence(*unit) == (S.INVALID, 0)


@pytest.mark.parametrize("queue", [1, -1, 63])
def test_the_compute_unit_has_queue_0_only(queue: int) -> None:
    rt = started()
    assert one(rt, rt.nrta_execute_schedule(loaded(rt, empty()), {}, {}, queue, Ret())) == (S.INVALID, 0)


@pytest.mark.parametrize("queue", [2, -1])
def test_the_copy_units_have_queues_0_and_1(queue: int) -> None:
    rt = started()
    a, b = buffer(rt), buffer(rt)
    assert one(rt, rt.nrta_tensor_write(a, X, 0, queue, Ret())) == (S.INVALID, 0)
    assert one(rt, rt.nrta_tensor_read(X.copy(), a, 0, queue, Ret())) == (S.INVALID, 0)
    assert one(rt, rt.nrta_tensor_copy(a, 0, b, 0, 8, queue, Ret())) == (S.INVALID, 0)


# --- bad inputs and errors of a run ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "what", ["no input", "another input", "a wrong name", "a small input", "a large output", "no output", "another output"]
)
def test_tensor_sets_that_do_not_fit_the_program_are_bad_input(what: str) -> None:
    rt = started()
    model, (ins, outs) = loaded(rt), sets(rt)
    spare = buffer(rt)
    given: dict[str, Sets] = {
        "no input": ({}, outs),
        "another input": ({**ins, "z": spare}, outs),
        "a wrong name": ({"X": ins["x"]}, outs),
        "a small input": ({"x": buffer(rt, size=BYTES - 4)}, outs),
        "a large output": (ins, {"y": buffer(rt, size=BYTES + 4)}),
        "no output": (ins, {}),
        "another output": (ins, {**outs, "z": spare}),
    }
    assert one(rt, rt.nrt_execute(model, *given[what])) is S.EXEC_BAD_INPUT
    assert one(rt, rt.nrta_execute_schedule(model, *given[what], 0, Ret())) == (S.EXEC_BAD_INPUT, 0)
    assert (rt.now, rt.executions) == (0, 0)
    assert one(rt, rt.nrt_execute(model, ins, outs)) is S.SUCCESS  # and the unit is none the worse


def test_tensors_of_another_core_or_of_the_host_are_invalid() -> None:
    rt = started(cores=2)
    model, (ins, outs) = loaded(rt), sets(rt)
    elsewhere, host = buffer(rt, 1), rt.nrt_tensor_allocate("host", 0, BYTES)[1]
    assert host is not None
    for given in (({"x": elsewhere}, outs), (ins, {"y": elsewhere}), ({"x": host}, outs)):
        assert one(rt, rt.nrt_execute(model, *given)) is S.INVALID


def test_nan_in_an_output_completes_with_num_err_and_the_output_is_written() -> None:
    rt = started()
    x = X.copy()
    x[1, 2] = np.nan
    model, (ins, outs) = loaded(rt), sets(rt, 0, x)
    assert one(rt, rt.nrt_execute(model, ins, outs)) is S.EXEC_COMPLETED_WITH_NUM_ERR
    assert np.array_equal(held(outs["y"]), 2 * x, equal_nan=True)
    (_,), (ret,) = one(rt, submit(rt, model, (ins, outs), 1))
    drain(rt)
    assert ret.value is S.EXEC_COMPLETED_WITH_NUM_ERR
    assert one(rt, rt.nrt_execute(model, *sets(rt))) is S.SUCCESS  # the unit goes on


def test_infinity_in_an_output_is_no_num_err() -> None:
    rt = started()
    assert one(rt, rt.nrt_execute(loaded(rt), *sets(rt, 0, np.full(SHAPE, np.inf, np.float32)))) is S.SUCCESS


def test_without_values_outputs_keep_their_bytes_and_time_is_the_same() -> None:
    ends = []
    for values in (True, False):
        rt = started(values=values)
        ins, outs = sets(rt)
        assert one(rt, rt.nrt_execute(loaded(rt), ins, outs)) is S.SUCCESS
        assert np.array_equal(held(outs["y"]), 2 * X if values else OLD)
        ends.append(rt.now)
    assert ends == [72_000 + BODY] * 2


def timed_out() -> tuple[Runtime, Model, Model, Sets]:
    """A runtime whose limit an empty program meets exactly (20,000) and `scale` exceeds by its body."""
    rt = started(cores=2, exec_timeout_ns=20_000)
    return rt, loaded(rt, empty()), loaded(rt), sets(rt)


def test_a_run_of_exactly_the_timeout_succeeds() -> None:
    rt, short, _, _ = timed_out()
    assert one(rt, rt.nrt_execute(short, {}, {})) is S.SUCCESS


def test_a_run_beyond_the_timeout_times_out_and_breaks_its_unit_only() -> None:
    rt, short, long, (ins, outs) = timed_out()
    assert one(rt, rt.nrt_execute(long, ins, outs)) is S.TIMEOUT
    assert rt.now == 10_000 + 7_000 + 5_000 + 20_000 + 30_000  # stopped at the limit
    assert np.array_equal(held(outs["y"]), OLD)
    for model, given in ((long, (ins, outs)), (short, ({}, {}))):
        start = rt.now
        assert one(rt, rt.nrt_execute(model, *given)) is S.EXEC_UNIT_UNRECOVERABLE
        assert one(rt, rt.nrta_execute_schedule(model, *given, 0, Ret())) == (S.EXEC_UNIT_UNRECOVERABLE, 0)
        assert rt.now == start
    assert one(rt, rt.nrt_execute(loaded(rt, empty(), 1), {}, {})) is S.SUCCESS  # the other core
    ret = Ret()
    assert one(rt, rt.nrta_tensor_write(outs["y"], X, 0, 0, ret))[0] is S.SUCCESS  # the same core's copies
    drain(rt)
    assert ret.value is S.SUCCESS
    assert np.array_equal(held(outs["y"]), X)
    assert rt.nrt_tensor_free(ins["x"]) is S.SUCCESS
    assert rt.nrt_unload(long) is S.SUCCESS
    assert rt.nrt_close() is S.SUCCESS


def test_requests_around_a_timeout_all_get_a_status_and_release_their_tensors() -> None:
    rt, short, long, (ins, outs) = timed_out()

    def host(_: int) -> Step:
        rets = []
        for model, given in ((short, ({}, {})), (long, (ins, outs)), (long, (ins, outs)), (short, ({}, {}))):
            rets += (yield from submit(rt, model, given, 1))[1]
        return rets

    (rets,) = rt.run(host)
    drain(rt)
    assert [r.value for r in rets[:2]] == [S.SUCCESS, S.TIMEOUT]
    assert None not in [r.value for r in rets]
    assert (rt.nrt_tensor_free(ins["x"]), rt.nrt_unload(short), rt.nrt_unload(long), rt.nrt_close()) == (S.SUCCESS,) * 4


def test_requests_queued_behind_a_timeout_are_unrecoverable_and_do_not_run() -> None:
    rt, short, long, (ins, outs) = timed_out()

    def host(_: int) -> Step:
        rets = []
        for model, given in ((long, (ins, outs)), (short, ({}, {})), (long, (ins, outs))):
            rets += (yield from submit(rt, model, given, 1))[1]
        return rets

    (rets,) = rt.run(host)
    drain(rt)
    assert [r.value for r in rets] == [S.TIMEOUT, S.EXEC_UNIT_UNRECOVERABLE, S.EXEC_UNIT_UNRECOVERABLE]
    assert len(named(rt, "nc_exec_running")) == 1
    assert len(named(rt, "nc_model_switch")) == 1
    assert rt.executions == 1
    assert np.array_equal(held(outs["y"]), OLD)
    assert rt.now == 10_000 + 7_000 + 5_000 + 20_000 + 30_000  # in order, with the one that timed out
    assert (rt.nrt_tensor_free(ins["x"]), rt.nrt_unload(short), rt.nrt_unload(long), rt.nrt_close()) == (S.SUCCESS,) * 4


# --- time: the profile's numbers, summed by hand ---------------------------------------------------------------------


def test_an_isolated_dispatch_takes_the_sum_of_its_parts() -> None:
    rt = started()
    model = loaded(rt, empty())
    ends = []
    for _ in range(3):
        assert one(rt, rt.nrt_execute(model, {}, {})) is S.SUCCESS
        ends.append(rt.now)
    # schedule + process + switch, the first time + device + completion
    assert ends == [72_000, 72_000 + 67_000, 72_000 + 2 * 67_000]


def test_an_isolated_rmsnorm_dispatch_of_the_blog_takes_about_390_us() -> None:
    p = rmsnorm.build()
    body = math.ceil(simulate(p, values=False).duration_ns)
    rt = started(profile="blog", chip="trn2")
    model = loaded(rt, p)
    given: Sets = ({"x": buffer(rt, size=4 * 512 * 2), "weight": buffer(rt, size=512 * 2)}, {"y": buffer(rt, size=4 * 512 * 2)})
    (seq,), (ret,) = one(rt, submit(rt, model, given, 1))
    log: list[tuple[int, int]] = []
    when_done(rt, seq, log)
    drain(rt)
    took = log[0][1]
    # schedule + process + switch + (prologue + body + epilogue) + completion
    assert took == 113_000 + 56_000 + 20_000 + (13_600 + body + 1_700) + 175_000
    assert took == pytest.approx(390_000, rel=0.02)
    assert 340_000 < took < 435_000  # the published range
    assert ret.value is S.SUCCESS


def pipelined(rt: Runtime, count: int) -> list[int]:
    """When each of `count` dispatches of one program is known to be complete; the host does not wait between them."""
    model = loaded(rt, empty())
    log: list[tuple[int, int]] = []

    def host(_: int) -> Step:
        for _dispatch in range(count):
            yield rt.spend(rt.profile.framework_ns)
            yield from submit(rt, model, ({}, {}), 1, log)

    rt.run(host)
    drain(rt)
    return [t for _, t in log]


def test_pipelined_dispatch_of_the_blog_takes_about_119_us_each() -> None:
    """The published run: 1050 dispatches in 124.5 ms. Host time bounds it: framework 6 + schedule 113 = 119 us."""
    rt = started(profile="blog", chip="trn2", queue_depth=64)
    times = pipelined(rt, 1050)
    assert times[0] == 6_000 + 113_000 + 56_000 + 20_000 + 15_300 + 175_000
    assert times[1] - times[0] == 119_000 - 20_000  # the first was late by the switch
    assert {b - a for a, b in pairwise(times[1:])} == {6_000 + 113_000}
    assert times[-1] - times[0] == pytest.approx(124_500_000, rel=0.005)


@pytest.mark.parametrize(
    ("process", "device", "period"),
    [
        (7_000, 300, 11_000),  # the host: framework 1,000 + schedule 10,000
        (16_000, 300, 16_000),  # the core's runtime thread
        (7_000, 20_000, 20_000),  # the device
        (16_000, 20_000, 20_000),  # stages overlap: the slowest alone counts
    ],
)
def test_the_pipelined_period_is_the_slowest_stage(process: int, device: int, period: int) -> None:
    """Completion, 30,000, bounds nothing."""
    rt = started(profile=attrs.evolve(HAND, process_ns=process), chip=FLAT.what_if({"program.prologue_ns": device}))
    times = pipelined(rt, 30)
    assert times[0] == 1_000 + 10_000 + process + 5_000 + device + 30_000
    assert {b - a for a, b in pairwise(times[5:])} == {period}


def test_a_switch_costs_only_when_the_program_changes() -> None:
    rt = started()
    a, again, b = loaded(rt, empty("a")), loaded(rt, empty("a")), loaded(rt, empty("b"))
    lengths = []
    for model in (a, a, again, b, b, a):
        start = rt.now
        assert one(rt, rt.nrt_execute(model, {}, {})) is S.SUCCESS
        lengths.append(rt.now - start)
    # a second load of the same program is the same program
    assert lengths == [72_000, 67_000, 67_000, 72_000, 67_000, 72_000]
    switches = named(rt, "nc_model_switch")
    assert [(e.duration_ns, e.attributes["model_id"]) for e in switches] == [(5_000, a.id), (5_000, b.id), (5_000, a.id)]


def test_each_core_remembers_its_own_program() -> None:
    rt = started(cores=2)
    models = [loaded(rt, empty("a"), 0), loaded(rt, empty("b"), 1)]
    for model in (*models, *models):
        assert one(rt, rt.nrt_execute(model, {}, {})) is S.SUCCESS
    assert rt.now == 2 * 72_000 + 2 * 67_000


def overlaps(events: Iterable[Event]) -> list[tuple[Event, Event]]:
    ordered = sorted(events, key=lambda e: (e.start_ns, e.end_ns))
    return [(a, b) for a, b in pairwise(ordered) if b.start_ns < a.end_ns]


def test_a_core_executes_one_program_at_a_time() -> None:
    rt = started()
    models = [loaded(rt, empty(f"p{k}")) for k in range(3)]
    rt.run(*[lambda n, m=m: submit(rt, m, ({}, {}), 4, thread=n) for m in models])
    drain(rt)
    device = [e for e in rt.trace.events if e.name in ("nc_exec_running", "nc_model_switch")]
    assert len(named(rt, "nc_exec_running")) == 12
    assert overlaps(device) == []


def test_two_cores_run_in_parallel() -> None:
    rt = started(cores=2)
    models = [loaded(rt, empty(), c) for c in (0, 1)]
    assert rt.run(*[lambda n, m=m: rt.nrt_execute(m, {}, {}, thread=n) for m in models]) == [S.SUCCESS] * 2
    assert rt.now == 72_000  # no longer than one alone
    running = named(rt, "nc_exec_running")
    assert [(e.core, e.start_ns, e.end_ns) for e in running] == [(0, 22_000, 42_000), (1, 22_000, 42_000)]


def test_threads_that_share_a_core_take_turns_in_the_order_they_started() -> None:
    rt = started()
    model = loaded(rt, empty())

    def host(n: int) -> Step:
        assert (yield from rt.nrt_execute(model, {}, {}, thread=n)) is S.SUCCESS
        return rt.now

    # schedule side by side to 10,000; process in turn to 17, 24, 31; switch to 22; run to 42, 62, 82; 30 more to be told
    assert rt.run(host, host, host) == [72_000, 92_000, 112_000]
    assert [(e.thread, e.end_ns) for e in named(rt, "kbl_exec_pre")] == [(0, 17_000), (1, 24_000), (2, 31_000)]
    assert [e.thread for e in named(rt, "kbl_exec_wait")] == [0, 1, 2]


def test_two_threads_fill_a_core_beyond_one_threads_rate() -> None:
    """One thread submits every 11,000; two together keep the core's thread busy, 7,000 each."""
    rt = started(chip=FLAT.what_if({"program.prologue_ns": 300}))
    model = loaded(rt, empty())
    log: list[tuple[int, int]] = []

    def host(n: int) -> Step:
        for _dispatch in range(20):
            yield rt.spend(rt.profile.framework_ns)
            yield from submit(rt, model, ({}, {}), 1, log, thread=n)

    rt.run(host, host)
    drain(rt)
    times = [t for _, t in log]
    assert {b - a for a, b in pairwise(times[4:])} == {7_000}


@pytest.mark.parametrize(
    ("profile", "size", "ns"),
    [
        (HAND, 1, 2_000 + 1),
        (HAND, 1_000, 2_000 + 1_000),
        (HAND, 1 << 20, 2_000 + (1 << 20)),
        ("blog", 4096, 45_000 + 845),  # 4096 / 4850 us is 844.5 ns: a part of a ns is a ns
        ("blog", 4850, 45_000 + 1_000),
    ],
)
def test_a_transfer_takes_a_fixed_time_and_its_bytes_at_the_rate(profile: str | HostProfile, size: int, ns: int) -> None:
    rt = started(profile=profile)
    t, data = buffer(rt, size=size), np.zeros(size, np.uint8)
    for call in (rt.nrt_tensor_write, rt.nrt_tensor_read):
        start = rt.now
        assert one(rt, call(t, data)) is S.SUCCESS
        assert rt.now - start == ns
    start = rt.now
    (_, seq) = one(rt, rt.nrta_tensor_write(t, data, 0, 0, Ret()))
    log: list[tuple[int, int]] = []
    when_done(rt, seq, log)
    drain(rt)
    assert log[0][1] - start == rt.profile.schedule_ns + ns


def test_a_refused_call_takes_no_time() -> None:
    rt = started()
    ins, outs = sets(rt)
    model = loaded(rt)
    for step in (
        rt.nrt_execute(model, {}, outs),
        rt.nrta_execute_schedule(model, ins, outs, 4, Ret()),
        rt.nrt_tensor_write(ins["x"], X, 4),
        rt.nrta_tensor_read(X.copy(), outs["y"], -4, 0, Ret()),
    ):
        one(rt, step)
    assert rt.now == 0


# --- events ----------------------------------------------------------------------------------------------------------

PER_DISPATCH = (
    "nrta_execute_schedule", "nrt_model_submit", "kbl_exec_pre", "kbl_exec_wait", "kbl_exec_post", "nc_exec_running",
    "notification_consume_errors", "exec_consume_gpsimd_stdio",
)  # fmt: skip


IN_KMGR = (
    "kbl_exec_pre", "kbl_exec_core", "kbl_exec_wait", "notification_consume_errors", "exec_consume_gpsimd_stdio", "kbl_exec_post",
)  # fmt: skip


def mixed(rt: Runtime) -> None:
    """Two threads, two cores, copies and executions of two programs, synchronous and not."""
    models = [(loaded(rt, scale(), c), loaded(rt, scale(3.0, "triple"), c)) for c in (0, 1)]
    given = [sets(rt, c) for c in (0, 1)]

    def host(n: int) -> Step:
        ins, outs = given[n]
        into = np.zeros_like(X)
        assert (yield from rt.nrt_tensor_write(ins["x"], X, thread=n)) is S.SUCCESS
        for k in range(4):
            yield from submit(rt, models[n][k % 2], (ins, outs), 2, thread=n)
            status, seq = yield from rt.nrta_tensor_read(into, outs["y"], 0, k % 2, Ret(), thread=n)
            assert status is S.SUCCESS
            yield from wait(rt, seq)
        assert (yield from rt.nrt_execute(models[n][0], ins, outs, thread=n)) is S.SUCCESS
        assert (yield from rt.nrt_tensor_read(outs["y"], into, thread=n)) is S.SUCCESS
        assert np.array_equal(into, 2 * X)

    rt.run(host, host)
    drain(rt)


@pytest.fixture(scope="module")
def trace() -> list[Event]:
    rt = started(cores=2)
    mixed(rt)
    return rt.trace.events


def test_a_dispatch_leaves_one_event_of_each_kind(trace: list[Event]) -> None:
    count = Counter((e.core, e.name) for e in trace)
    for core in (0, 1):
        assert {name: count[core, name] for name in PER_DISPATCH} == dict.fromkeys(PER_DISPATCH, 9)  # 4 x 2 + 1
        assert count[core, "timestamp_sync_point"] == 9
        assert count[core, "nrt_execute"] == 1
        assert count[core, "nrt_load"] == 2
        assert count[core, "nrta_tensor_read"] == 4
        assert count[core, "nrt_tensor_write"] == count[core, "nrt_tensor_read"] == 1
        assert count[core, "dmem_buf_copyin"] == 1
        assert count[core, "dmem_buf_copyout"] == 4 + 1
        assert count[core, "nc_model_switch"] == 5  # a a, b b, a a, b b, a


def test_ids_are_unique_and_count_from_zero(trace: list[Event]) -> None:
    assert [e.id for e in trace] == list(range(len(trace)))


def test_a_child_lies_inside_its_parent(trace: list[Event]) -> None:
    by_id = {e.id: e for e in trace}
    children = [e for e in trace if e.parent >= 0]
    for child in children:
        parent = by_id[child.parent]
        assert parent.start_ns <= child.start_ns <= child.end_ns <= parent.end_ns
        assert parent.core == child.core
    assert Counter((by_id[e.parent].name, e.name) for e in children) == {
        ("nrta_execute_schedule", "nrt_model_submit"): 18,
        ("kbl_exec_wait", "timestamp_sync_point"): 18,
        ("nrt_tensor_write", "dmem_buf_copyin"): 2,
        ("nrt_tensor_read", "dmem_buf_copyout"): 2,
        ("nrt_execute", "nrta_execute_schedule"): 2,
        ("nrt_execute", "kmgr_exec_core"): 2,
        **{("kmgr_exec_core", step): 2 for step in IN_KMGR},
    }


def test_hardware_and_runtime_events_name_their_source(trace: list[Event]) -> None:
    assert {e.name for e in trace if e.source == HARDWARE} == {"nc_exec_running", "nc_model_switch", "timestamp_sync_point"}
    assert {e.source for e in trace} == {HARDWARE, RUNTIME}


def test_flow_ids_chain_the_schedule_call_to_the_execution(trace: list[Event]) -> None:
    def flows(name: str) -> list[tuple[int, ...]]:
        return [e.flow for e in trace if e.name == name]

    scheduled = flows("nrta_execute_schedule")
    assert all(len(f) == 1 and f[0] >> 48 for f in scheduled)
    assert len(set(scheduled)) == len(scheduled) == 18
    waits = {e.flow[0]: e for e in trace if e.name == "kbl_exec_wait"}
    running = {e.flow[0]: e for e in trace if e.name == "nc_exec_running"}
    assert len(waits) == len(running) == 18
    for (seq,) in scheduled:
        wait = waits[seq]
        assert len(wait.flow) == 2  # [seq, exec_id]
        run = running[wait.flow[1]]
        assert run.flow == (run.attributes["exec_id"],)
        assert run.core == wait.core
        assert wait.start_ns <= run.start_ns <= run.end_ns <= wait.end_ns
    for name in ("nrt_model_submit", "kbl_exec_pre", "kbl_exec_post"):
        assert sorted(flows(name)) == sorted(scheduled)
    assert sorted(f[0] for f in flows("nc_exec_running")) == list(range(18))  # small whole numbers, each once


def test_the_steps_of_a_dispatch_follow_one_another() -> None:
    rt = started()
    assert one(rt, rt.nrt_execute(loaded(rt, empty()), {}, {}, thread=5)) is S.SUCCESS
    times = {e.name: (e.start_ns, e.end_ns) for e in rt.trace.events}
    assert times == {
        "nrt_load": (0, 0),
        "nrt_execute": (0, 72_000),
        "nrta_execute_schedule": (0, 10_000),
        "nrt_model_submit": (0, 10_000),
        "kmgr_exec_core": (10_000, 72_000),
        "kbl_exec_pre": (10_000, 17_000),
        "kbl_exec_core": (17_000, 17_000),
        "notification_consume_errors": (72_000, 72_000),
        "exec_consume_gpsimd_stdio": (72_000, 72_000),
        "kbl_exec_wait": (17_000, 72_000),
        "nc_model_switch": (17_000, 22_000),
        "nc_exec_running": (22_000, 42_000),
        "timestamp_sync_point": (22_000, 22_000),
        "kbl_exec_post": (72_000, 72_000),
    }
    host = [e for e in rt.trace.events if e.source == RUNTIME and e.name != "nrt_load"]
    assert {e.thread for e in host} == {5}


def test_the_fields_of_the_device_rows_are_those_of_the_tables() -> None:
    rt = started(cores=2)
    model = loaded(rt, empty("named"), 1)
    assert one(rt, rt.nrt_execute(model, {}, {})) is S.SUCCESS
    (running,), (sync,) = named(rt, "nc_exec_running"), named(rt, "timestamp_sync_point")
    assert running.attributes == {"exec_id": 0, "model_id": model.id, "model_name": "named", "device_core_idx": 1}
    assert sync.attributes == {"cpu_timestamp_ns": 22_000, "nc_timestamp_ns": 22_000, "exec_id": 0}
    assert sync.duration_ns == 0


def test_a_synchronous_execution_is_the_parent_of_its_steps() -> None:
    """Published nesting: nrt_execute holds kmgr_exec_core, which holds kbl_exec_pre, _core, _wait and _post."""
    rt = started()
    assert one(rt, rt.nrt_execute(loaded(rt, empty()), {}, {})) is S.SUCCESS
    (outer,), (inner,) = named(rt, "nrt_execute"), named(rt, "kmgr_exec_core")
    parents = {e.name: e.parent for e in rt.trace.events}
    assert {parents[n] for n in ("nrta_execute_schedule", "kmgr_exec_core")} == {outer.id}
    assert {parents[n] for n in IN_KMGR} == {inner.id}


def test_an_asynchronous_execution_has_none_of_the_synchronous_steps() -> None:
    rt = started()
    one(rt, submit(rt, loaded(rt, empty()), ({}, {}), 2))
    drain(rt)
    assert not {"nrt_execute", "kmgr_exec_core", "kbl_exec_core"} & {e.name for e in rt.trace.events}
    assert {e.parent for e in rt.trace.events if e.name in IN_KMGR} == {-1}


@pytest.mark.parametrize(("placement", "expected"), [("host", "dmem_buf_copyout"), ("device", None)])
def test_a_copy_that_brings_nothing_to_the_device_is_no_copyin(placement: str, expected: str | None) -> None:
    rt = started()
    a, b = buffer(rt), rt.nrt_tensor_allocate(placement, 0, BYTES)[1]
    assert b is not None
    assert one(rt, rt.nrta_tensor_copy(a, 0, b, 0, BYTES, 0, Ret()))[0] is S.SUCCESS
    drain(rt)
    names = [e.name for e in rt.trace.events]
    assert "dmem_buf_copyin" not in names
    assert expected is None or expected in names


@pytest.mark.parametrize("name", ["nrt_tensor_allocate", "nrt_tensor_free", "nrt_unload"])
def test_allocations_and_unloads_leave_an_event(name: str) -> None:
    rt = started()
    model, tensor = loaded(rt, empty()), buffer(rt)
    assert (rt.nrt_tensor_free(tensor), rt.nrt_unload(model)) == (S.SUCCESS, S.SUCCESS)
    assert name in GROUPS["software"]
    (event,) = named(rt, name)
    assert (event.core, event.duration_ns) == (0, 0)
    wanted = {"model_id": 0, "model_name": "empty"} if name == "nrt_unload" else {"tensor_id": 0, "size": BYTES}
    assert event.attributes == wanted


def test_a_synchronous_copy_leaves_its_event_and_that_of_its_direction() -> None:
    rt = started()
    a, b = buffer(rt), buffer(rt)
    _, host = rt.nrt_tensor_allocate("host", 0, BYTES)
    assert host is not None
    names = []
    for src, dst in ((a, b), (a, host), (host, a), (host, host)):
        before = len(rt.trace.events)
        assert one(rt, rt.nrt_tensor_copy(src, 0, dst, 0, BYTES)) is S.SUCCESS
        names.append([e.name for e in rt.trace.events[before:]])
    inner: list[list[str]] = [[], ["dmem_buf_copyout"], ["dmem_buf_copyin"], []]
    assert names == [["nrt_tensor_copy", *i] for i in inner]
    before = len(rt.trace.events)
    assert one(rt, rt.nrt_tensor_write(host, X)) is S.SUCCESS
    assert [(e.name, e.core) for e in rt.trace.events[before:]] == [("nrt_tensor_write", -1)]


# --- filters and limits ----------------------------------------------------------------------------------------------


def captured(cores: Iterable[int] | None = None, types: Iterable[str] | None = None, **limits: Any) -> tuple[Runtime, Counter[str]]:
    rt = started(cores=2, trace=Recorder(**limits))
    assert rt.nrt_sys_trace_config_set_capture_enabled(cores, types) is S.SUCCESS
    for core in (0, 1):
        assert one(rt, rt.nrt_execute(loaded(rt, empty(), core), {}, {})) is S.SUCCESS
    return rt, Counter(e.name for e in rt.trace.events)


def test_the_core_filter_keeps_the_events_of_its_cores() -> None:
    rt, count = captured(cores=[1])
    assert {e.core for e in rt.trace.events} == {1}
    assert {n: count[n] for n in PER_DISPATCH} == dict.fromkeys(PER_DISPATCH, 1)


def test_the_type_filter_keeps_its_names() -> None:
    assert captured(types=["kbl_exec_wait", "nc_exec_running"])[1] == {"kbl_exec_wait": 2, "nc_exec_running": 2}


def test_the_group_hardware_keeps_what_the_device_does() -> None:
    assert captured(types=["hardware"])[1] == {"nc_exec_running": 2, "nc_model_switch": 2, "timestamp_sync_point": 2}


def test_the_group_software_keeps_what_the_host_does() -> None:
    names = set(captured(types=["software"])[1])
    assert names == {"nrt_load", "nrt_execute", "kmgr_exec_core", "kbl_exec_core", *PER_DISPATCH} - {"nc_exec_running"}


def test_a_caret_leaves_a_name_or_a_group_out() -> None:
    everything = set(captured()[1])
    assert set(captured(types=["^kbl_exec_wait"])[1]) == everything - {"kbl_exec_wait"}
    assert set(captured(types=["^software"])[1]) == {"nc_exec_running", "nc_model_switch", "timestamp_sync_point"}
    assert set(captured(types=["hardware", "^nc_model_switch"])[1]) == {"nc_exec_running", "timestamp_sync_point"}


def test_the_order_of_the_words_of_a_filter_does_not_matter() -> None:
    assert chosen(["^nc_model_switch", "hardware"]) == chosen(["hardware", "^nc_model_switch"])
    assert chosen(["^hardware", "nc_exec_running", "kbl_exec_wait"]) == {"kbl_exec_wait"}


@pytest.mark.parametrize(
    "types", [["nc_exec_runing"], ["^nothing"], ["hardware", ""], ["^"], ["^^hardware"], ["aten::mul"], "hardware", [3]]
)
def test_a_filter_with_an_unknown_type_is_invalid_and_changes_nothing(types: Any) -> None:
    rt = started()
    assert rt.nrt_sys_trace_config_set_capture_enabled([0], ["hardware"]) is S.SUCCESS
    assert rt.nrt_sys_trace_config_set_capture_enabled(None, types) is S.INVALID
    assert (rt.trace.cores, rt.trace.names) == ({0}, GROUPS["hardware"])


@pytest.mark.parametrize("cores", [[2], [0, -1], ["0"]])
def test_a_filter_with_a_core_that_is_not_there_is_invalid_and_changes_nothing(cores: Any) -> None:
    rt = started(cores=2)
    assert rt.nrt_sys_trace_config_set_capture_enabled(cores, ["hardware"]) is S.INVALID
    assert (rt.trace.cores, rt.trace.names) == (None, None)


@pytest.mark.parametrize("types", [["^kbl_exec_wait"], ["hardware"]])
def test_events_of_a_framework_pass_the_filters_of_the_runtime(types: list[str]) -> None:
    rt = started()
    assert rt.nrt_sys_trace_config_set_capture_enabled([0], types) is S.SUCCESS
    rt.trace.add("aten::mul", FRAMEWORK, 0, 1, thread=0)
    assert [e.name for e in rt.trace.events] == ["aten::mul"]


def test_core_and_type_filters_both_apply_and_none_lifts_them() -> None:
    rt, count = captured(cores=[0], types=["nc_exec_running"])
    assert count == {"nc_exec_running": 1}
    assert rt.nrt_sys_trace_config_set_capture_enabled() is S.SUCCESS
    assert one(rt, rt.nrt_execute(loaded(rt, empty(), 1), {}, {})) is S.SUCCESS
    # a load, and a synchronous execution: itself, kmgr, kbl_exec_core, the eight of a dispatch and a sync point, without a switch
    assert len(rt.trace.events) == 1 + 1 + 12


def test_filters_change_neither_time_nor_ids() -> None:
    every, few = captured()[0], captured(types=["kbl_exec_wait"])[0]
    assert every.now == few.now
    assert [e for e in every.trace.events if e.name == "kbl_exec_wait"] == few.trace.events


def test_the_latest_events_of_a_core_overwrite_its_oldest() -> None:
    every = captured()[0].trace.events
    rt, _ = captured(limit_per_core=3)
    assert rt.trace.dropped == {0: 11, 1: 11}
    # these two are recorded when they end, under ids from their beginnings
    last = ("nrt_execute", "kmgr_exec_core", "kbl_exec_post")
    assert rt.trace.events == [e for e in every if e.name in last]


def test_events_without_a_core_have_a_ring_of_their_own() -> None:
    trace = Recorder(limit_per_core=2)
    for k in range(5):
        trace.add("aten::mul", FRAMEWORK, k, k + 1, thread=0)
        trace.add("kbl_exec_post", RUNTIME, k, k, core=1)
    assert [(e.core, e.start_ns) for e in trace.events] == [(-1, 3), (1, 3), (-1, 4), (1, 4)]
    assert trace.dropped == {-1: 3, 1: 3}


def test_events_beyond_the_limit_are_counted_core_by_core() -> None:
    """A load and an execution make 14 events on each core.

    Load, schedule, submit, pre, core, switch, running, wait, sync, errors, stdio, post, kmgr, execute.
    """
    rt, _ = captured(limit_per_core=11)
    assert Counter(e.core for e in rt.trace.events) == {0: 11, 1: 11}
    assert rt.trace.dropped == {0: 3, 1: 3}
    assert captured(limit_per_core=14)[0].trace.dropped == {}
    assert captured(limit_per_core=0)[0].trace.dropped == {0: 14, 1: 14}


def test_the_default_limit_is_the_real_rings() -> None:
    assert Recorder().limit_per_core == 1_000_000


def test_filtered_events_do_not_count_as_dropped() -> None:
    assert captured(types=["nc_exec_running"], limit_per_core=1)[0].trace.dropped == {}


# --- determinism and scale -------------------------------------------------------------------------------------------


def flood(n: int, **options: Any) -> Runtime:
    """n dispatches from four host threads on two cores, against full queues, without values."""
    rt = started(cores=2, values=False, **options)
    models = [(loaded(rt, scale(), c), loaded(rt, scale(3.0, "triple"), c)) for c in (0, 1)]
    given = [sets(rt, c) for c in (0, 1)]

    def host(thread: int) -> Step:
        core = thread % 2
        mine: list[int] = []
        rets: list[Ret] = []
        while len(mine) < n // 4:
            yield rt.spend(rt.profile.framework_ns)
            ret = Ret()
            model = models[core][len(mine) // 10 % 2]
            status, seq = yield from rt.nrta_execute_schedule(model, *given[core], 0, ret, thread=thread)
            if status is S.QUEUE_FULL:
                oldest = next(s for s in mine[-64:] if not rt.nrta_is_completed(s)[1])
                yield from wait(rt, oldest)
                continue
            assert status is S.SUCCESS
            mine.append(seq)
            rets.append(ret)
        yield from wait(rt, mine[-1])
        assert {r.value for r in rets} == {S.SUCCESS}
        return len(mine)

    assert rt.run(host, host, host, host) == [n // 4] * 4
    assert rt.nrt_close() is S.SUCCESS
    return rt


def digest() -> str:
    """All fields of all events of a mixed and of a crowded run."""
    rt = started(cores=2)
    mixed(rt)
    return hashlib.sha256(repr([rt.trace.events, flood(200).trace.events]).encode()).hexdigest()


def test_two_runs_give_the_same_events(trace: list[Event]) -> None:
    rt = started(cores=2)
    mixed(rt)
    assert rt.trace.events == trace


def test_the_hash_seed_changes_no_event() -> None:
    command = [sys.executable, "-B", "-c", "import test_runtime; print(test_runtime.digest())"]
    got = set()
    for seed in ("0", "1", "4711"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path])}
        got.add(subprocess.run(command, cwd=Path(__file__).parent, env=env, capture_output=True, text=True, check=True).stdout.strip())
    assert got == {digest()}


def test_ten_thousand_dispatches_are_deterministic_and_none_is_lost() -> None:
    first, second = flood(10_000), flood(10_000)
    assert system.pack(system.trace_of(first, devices=False)) == system.pack(system.trace_of(second, devices=False))
    count = Counter(e.name for e in first.trace.events)
    assert {n: count[n] for n in PER_DISPATCH} == dict.fromkeys(PER_DISPATCH, 10_000)
    assert first.trace.dropped == {}
    for core in (0, 1):
        mine = [e for e in first.trace.events if e.core == core]
        assert overlaps(e for e in mine if e.name in ("nc_exec_running", "nc_model_switch")) == []
        told = [(e.end_ns, e.flow[0]) for e in mine if e.name == "kbl_exec_wait"]
        assert told == sorted(told)


def test_work_grows_with_the_number_of_dispatches_and_no_faster() -> None:
    """Counted in calls of Python functions, which other work on the machine does not change; seconds are in the benchmarks."""

    def calls(n: int) -> int:
        count = 0

        def counted(frame: object, event: str, argument: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(counted)
        try:
            flood(n)
        finally:
            sys.setprofile(None)
        return count

    calls(20)  # imports and caches
    assert calls(1_200) / calls(300) == pytest.approx(4, rel=0.1)


def peak(n: int, types: Iterable[str] | None = None) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        flood(n, trace=Recorder(names=None if types is None else frozenset(types)))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_grows_with_the_number_of_dispatches_and_no_faster() -> None:
    assert peak(10_000) / peak(2_500) < 6


def test_without_events_what_a_dispatch_leaves_behind_is_small() -> None:
    """The test keeps a status and an id of each, some 200 bytes; the runtime nothing."""
    assert (peak(4_000, ()) - peak(1_000, ())) / 3_000 < 400


# --- the Pythonic layer ----------------------------------------------------------------------------------------------


def python_model(program: Program | None = None, **options: Any) -> py.Model:
    return py.Model.load(Runtime(**{"profile": HAND, "chip": FLAT, **options}), scale() if program is None else program)


def test_a_model_is_a_function_of_arrays() -> None:
    model = python_model()
    for factor in (1, 3):
        outputs = model(inputs={"x": factor * X})
        assert list(outputs) == ["y"]
        assert outputs["y"].dtype == np.float32
        assert np.array_equal(outputs["y"], 2 * factor * X)
    assert python_model(empty())() == {}


def test_a_model_tells_its_tensors() -> None:
    model = python_model()
    assert model.input_tensors_info == {"x": py.TensorInfo(SHAPE, "float32", BYTES)}
    assert model.output_tensors_info == {"y": py.TensorInfo(SHAPE, "float32", BYTES)}


def test_a_call_agrees_with_simulate_in_values_and_types() -> None:
    p = rmsnorm.build()
    given = rmsnorm.inputs(p)
    wanted = simulate(p, FLAT, given).outputs
    got = python_model(p)(given)
    assert {n: (a.dtype, a.tobytes()) for n, a in got.items()} == {n: (a.dtype, a.tobytes()) for n, a in wanted.items()}
    as_double = python_model(p)({n: a.astype(np.float64) for n, a in given.items()})  # converted as simulate does it
    assert {n: a.tobytes() for n, a in as_double.items()} == {n: a.tobytes() for n, a in wanted.items()}


def test_a_call_takes_the_time_of_its_copies_and_its_execution_and_leaves_no_tensor() -> None:
    model = python_model()
    model({"x": X})
    rt = model.runtime
    assert rt.now == 2 * (2_000 + BYTES) + 72_000 + BODY
    assert rt.hbm_used == [0]
    assert {e.thread for e in rt.trace.events} == {0, -1}
    assert rt.nrt_close() is S.SUCCESS


def test_a_benchmark_on_the_device_is_the_time_of_nc_exec_running() -> None:
    model = python_model()
    got = model.benchmark({"x": X}, warmup_iter=2, benchmark_iter=3)
    ms = (20_000 + BODY) / 1e6
    assert got == py.BenchmarkResult(ms, ms, ms, 0.0, 3, 2, [ms] * 3)
    assert {e.duration_ns for e in named(model.runtime, "nc_exec_running")} == {20_000 + BODY}
    assert len(named(model.runtime, "nc_exec_running")) == 5
    assert len(named(model.runtime, "nrt_tensor_write")) == 1
    assert model.runtime.hbm_used == [0]


def test_a_benchmark_on_the_host_is_the_time_of_nrt_execute() -> None:
    got = python_model().benchmark({"x": X}, warmup_iter=0, benchmark_iter=2, mode="host")
    first, second = 72_000 + BODY, 67_000 + BODY  # the first switches
    assert got.durations_ms == [first / 1e6, second / 1e6]
    assert (got.min_ms, got.max_ms, got.iterations, got.warmup_iterations) == (second / 1e6, first / 1e6, 2, 0)
    assert got.mean_ms == pytest.approx((first + second) / 2e6, rel=1e-12)
    assert got.std_dev_ms == pytest.approx(0.0025, rel=1e-12)  # of the population: half of 5,000 ns
    default = python_model().benchmark({"x": X}, mode="host")
    assert (default.iterations, default.warmup_iterations, default.durations_ms) == (5, 5, [second / 1e6] * 5)


@pytest.mark.parametrize("options", [{"values": False}, {"trace": Recorder(names=frozenset())}])
def test_a_benchmark_needs_neither_values_nor_events(options: dict[str, Any]) -> None:
    assert python_model(**options).benchmark({"x": X}).mean_ms == (20_000 + BODY) / 1e6


def test_a_call_without_values_is_refused() -> None:
    with pytest.raises(ProgramError, match="double: a runtime without values"):
        python_model(values=False)({"x": X})


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, "double, inputs []: NRT_EXEC_BAD_INPUT (1002); exactly ['x'] (neuron-runtime API)"),
        ({"x": X, "z": X}, "double, inputs ['x', 'z']: NRT_EXEC_BAD_INPUT (1002); exactly ['x'] (neuron-runtime API)"),
        ({"x": X[:2]}, "double, input x of shape [2, 8]: NRT_EXEC_BAD_INPUT (1002); shape [4, 8] (neuron-runtime API)"),
        (
            {"x": X.astype(complex)},
            "double, input x of type complex128: NRT_EXEC_BAD_INPUT (1002); numbers that convert to float32 (neuron-runtime API)",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_bad_input(inputs: dict[str, np.ndarray], words: str) -> None:
    model = python_model()
    for call in (model, model.benchmark):
        with pytest.raises(NrtError) as caught:
            call(inputs)
        assert (caught.value.status, str(caught.value)) == (S.EXEC_BAD_INPUT, words)
    assert (model.runtime.now, model.runtime.hbm_used) == (0, [0])


@pytest.mark.parametrize(
    "options", [{"mode": "wall"}, {"benchmark_iter": 0}, {"warmup_iter": -1}, {"benchmark_iter": 2.5}], ids=lambda o: next(iter(o))
)
def test_a_benchmark_without_iterations_or_mode_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ProgramError, match=f"benchmark: {next(iter(options))}="):
        python_model().benchmark({"x": X}, **options)


def test_a_status_other_than_success_is_an_error_that_has_it() -> None:
    found = []
    wrong = X.copy()
    wrong[0, 0] = np.nan
    small = started(chip=FLAT.what_if({"memory.hbm_bytes": 1000}))
    fits = py.Model.load(small, scale())
    buffer(small, size=1000 - BYTES)  # room for the input and not for the output
    unloaded, closed, broken = python_model(), python_model(), python_model(exec_timeout_ns=20_000)
    unloaded.unload()
    closed.runtime.nrt_close()
    for act in (
        lambda: py.Model.load(started(), scale(), 1),
        lambda: py.Model.load(small, scale(constant=512)),
        lambda: fits({"x": X}),
        lambda: python_model()({"x": wrong}),
        lambda: unloaded({"x": X}),
        unloaded.unload,
        lambda: closed({"x": X}),
        lambda: broken({"x": X}),
        lambda: broken({"x": X}),
    ):
        with pytest.raises(NrtError) as caught:
            act()
        found.append(caught.value.status)
    assert found == [
        S.LOAD_NOT_ENOUGH_NC, S.RESOURCE, S.RESOURCE, S.EXEC_COMPLETED_WITH_NUM_ERR, S.INVALID_HANDLE, S.INVALID_HANDLE, S.CLOSED,
        S.TIMEOUT, S.EXEC_UNIT_UNRECOVERABLE,
    ]  # fmt: skip
    assert (unloaded.runtime.hbm_used, broken.runtime.hbm_used, small.hbm_used) == ([0], [0], [1000 - BYTES])


def test_an_error_keeps_its_status_when_it_is_placed() -> None:
    placed = NrtError("read", S.TIMEOUT).at("line 3")
    assert (placed.status, str(placed)) == (S.TIMEOUT, "line 3 read: NRT_TIMEOUT (5); NRT_SUCCESS (neuron-runtime API)")


def test_models_share_a_runtime() -> None:
    rt = started(cores=2)
    double, triple = py.Model.load(rt, scale(), 1), py.Model.load(rt, scale(3.0, "triple"), -1)
    assert (double.handle.core, triple.handle.core) == (1, 0)
    assert np.array_equal(triple({"x": double({"x": X})["y"]})["y"], 6 * X)


def test_a_call_inside_a_host_thread_is_refused() -> None:
    model = python_model()

    def host(_: int) -> Step:
        yield model.runtime.spend(1)
        with pytest.raises(ProgramError, match="a call inside a host thread"):
            model({"x": X})

    model.runtime.run(host)
