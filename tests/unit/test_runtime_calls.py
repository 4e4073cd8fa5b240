"""Calls beside loading, copying and executing: slices, buffers, sets, batches, completion counters, what a runtime tells.

Contracts: aws-neuron-sdk, src/libnrt/include/nrt/nrt.h and the developer guide's list of the LIBNRT API.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator
from typing import Any

import attrs
import numpy as np
import pytest

from nc_sim import Program
from nc_sim.runtime import NRTA_SEQ_GET_SEQ_NUM, NRTA_SEQ_GET_XU_ID, Ret, XuType
from nc_sim.runtime.events import FRAMEWORK
from nc_sim.runtime.objects import DeviceTensor, InstanceInfo, MemoryStats, ModelTensorInfo, TensorSet, Usage
from nc_sim.runtime.status import InstanceFamily
from test_runtime import BODY, BYTES, FLAT, OLD, SHAPE, S, X, buffer, drain, empty, held, loaded, named, one, scale, sets, started, submit

Step = Generator[Any, Any, Any]


def slice_of(rt: Any, tensor: DeviceTensor, offset: int, size: int) -> DeviceTensor:
    status, made = rt.nrt_tensor_allocate_slice(tensor, offset, size)
    assert status is S.SUCCESS
    assert made is not None
    return made  # type: ignore[no-any-return]


def empty_tensor(rt: Any, data: np.ndarray | None = None) -> DeviceTensor:
    """A tensor without storage, or with the array attached."""
    status, made = rt.nrt_tensor_allocate_empty("e")
    assert status is S.SUCCESS
    assert made is not None
    if data is not None:
        assert rt.nrt_tensor_attach_buffer(made, data) is S.SUCCESS
    return made  # type: ignore[no-any-return]


def set_of(rt: Any, tensors: dict[str, DeviceTensor]) -> TensorSet:
    status, made = rt.nrt_allocate_tensor_set()
    assert status is S.SUCCESS
    assert made is not None
    for name, tensor in tensors.items():
        assert rt.nrt_add_tensor_to_tensor_set(made, name, tensor) is S.SUCCESS
    return made  # type: ignore[no-any-return]


# --- slices and buffers ----------------------------------------------------------------------------------------------


def test_what_is_written_through_a_slice_or_its_source_is_seen_in_both() -> None:
    rt = started()
    base = buffer(rt, size=16)
    part = slice_of(rt, base, 4, 8)
    inner = slice_of(rt, part, 2, 4)  # bytes 6 to 9 of the base
    assert one(rt, rt.nrt_tensor_write(inner, np.arange(1, 5, dtype=np.uint8))) is S.SUCCESS
    assert base.data.tolist() == [0] * 6 + [1, 2, 3, 4] + [0] * 6
    assert one(rt, rt.nrt_tensor_write(base, np.full(2, 9, np.uint8), 8)) is S.SUCCESS
    assert part.data.tolist() == [0, 0, 1, 2, 9, 9, 0, 0]
    assert [rt.nrt_tensor_get_size(t) for t in (base, part, inner)] == [16, 8, 4]


@pytest.mark.parametrize("last", ["base", "slice"])
def test_storage_lives_until_the_last_tensor_that_uses_it_is_freed(last: str) -> None:
    """Developer guide: the shared backing storage is reference counted."""
    rt = started()
    base = buffer(rt, 0, X)
    part = slice_of(rt, base, 64, 64)
    assert rt.hbm_used == [BYTES]  # a slice takes none of its own
    first, second = (part, base) if last == "base" else (base, part)
    assert rt.nrt_tensor_free(first) is S.SUCCESS
    assert rt.hbm_used == [BYTES]
    into = np.zeros(64, np.uint8)
    assert one(rt, rt.nrt_tensor_read(second, into, 64 if last == "base" else 0)) is S.SUCCESS
    assert np.array_equal(into, X.reshape(-1).view(np.uint8)[64:])
    assert rt.nrt_tensor_free(first) is S.INVALID_HANDLE
    assert rt.nrt_tensor_allocate_slice(first, 0, 8) == (S.INVALID_HANDLE, None)
    assert rt.nrt_tensor_free(second) is S.SUCCESS
    assert rt.hbm_used == [0]


@pytest.mark.parametrize(("offset", "size"), [(-1, 8), (0, 0), (0, 17), (16, 1), (9, 8)])
def test_a_slice_beyond_its_source_is_invalid(offset: int, size: int) -> None:
    rt = started()
    assert rt.nrt_tensor_allocate_slice(buffer(rt, size=16), offset, size) == (S.INVALID, None)


def test_slices_are_the_inputs_and_outputs_of_an_execution() -> None:
    rt = started()
    both = buffer(rt, size=2 * BYTES)
    x, y = slice_of(rt, both, 0, BYTES), slice_of(rt, both, BYTES, BYTES)
    assert one(rt, rt.nrt_tensor_write(x, X)) is S.SUCCESS
    ret = Ret()
    assert one(rt, rt.nrta_execute_schedule(loaded(rt), {"x": x}, {"y": y}, 0, ret))[0] is S.SUCCESS
    assert (rt.nrt_tensor_free(x), rt.nrt_tensor_free(both)) == (S.INVALID, S.SUCCESS)  # the slices keep the storage
    drain(rt)
    assert ret.value is S.SUCCESS
    assert np.array_equal(held(y), 2 * X)


def test_an_empty_tensor_has_no_bytes_until_a_buffer_is_attached() -> None:
    rt = started()
    tensor = empty_tensor(rt)
    assert (rt.nrt_tensor_get_size(tensor), tensor.core) == (0, -1)
    assert one(rt, rt.nrt_tensor_write(tensor, X)) is S.INVALID
    mine = np.zeros(SHAPE, np.float32)
    assert rt.nrt_tensor_attach_buffer(tensor, mine) is S.SUCCESS
    assert rt.nrt_tensor_get_size(tensor) == BYTES
    assert one(rt, rt.nrt_tensor_copy(buffer(rt, 0, X), 0, tensor, 0, BYTES)) is S.SUCCESS
    assert np.array_equal(mine, X)  # the caller's own memory


def test_attaching_a_buffer_gives_the_old_storage_back_and_makes_a_tensor_of_the_host() -> None:
    rt = started()
    tensor, mine = buffer(rt, 0, OLD), X.copy()
    part = slice_of(rt, tensor, 0, 8)
    assert rt.nrt_tensor_attach_buffer(tensor, mine) is S.SUCCESS
    assert (rt.hbm_used, tensor.core) == ([BYTES], -1)  # the slice still uses it
    assert rt.nrt_tensor_free(part) is S.SUCCESS
    assert rt.hbm_used == [0]
    assert one(rt, rt.nrt_execute(loaded(rt), {"x": tensor}, {"y": buffer(rt)})) is S.INVALID  # not on the core
    assert rt.nrt_tensor_free(tensor) is S.SUCCESS
    assert np.array_equal(mine, X)  # never freed
    assert rt.nrt_tensor_attach_buffer(tensor, mine) is S.INVALID_HANDLE


def test_a_buffer_that_cannot_be_written_or_replaces_one_in_use_is_invalid() -> None:
    rt = started()
    (ins, outs), fixed = sets(rt), X.copy()
    fixed.flags.writeable = False
    assert rt.nrt_tensor_attach_buffer(outs["y"], fixed) is S.INVALID
    assert rt.nrt_tensor_attach_buffer(outs["y"], np.empty(0, np.uint8)) is S.INVALID
    one(rt, submit(rt, loaded(rt), (ins, outs), 1))
    assert rt.nrt_tensor_attach_buffer(outs["y"], X.copy()) is S.INVALID
    drain(rt)
    assert np.array_equal(held(outs["y"]), 2 * X)


# --- sets ------------------------------------------------------------------------------------------------------------


def test_executions_take_sets_of_tensors() -> None:
    rt = started()
    model, (ins, outs) = loaded(rt), sets(rt)
    inputs, outputs = set_of(rt, ins), set_of(rt, outs)
    assert one(rt, rt.nrt_execute(model, inputs, outputs)) is S.SUCCESS
    assert np.array_equal(held(outs["y"]), 2 * X)
    assert one(rt, rt.nrta_execute_schedule(model, inputs, outs, 0, Ret()))[0] is S.SUCCESS  # a set and a mapping
    drain(rt)
    assert one(rt, rt.nrt_execute(model, set_of(rt, {}), outputs)) is S.EXEC_BAD_INPUT


def test_a_set_gives_what_was_added_last_under_a_name_and_failure_for_no_name() -> None:
    """Developer guide: NRT_FAILURE if the tensor is not found."""
    rt = started()
    first, second = buffer(rt), buffer(rt)
    made = set_of(rt, {"x": first})
    assert rt.nrt_get_tensor_from_tensor_set(made, "x") == (S.SUCCESS, first)
    assert rt.nrt_add_tensor_to_tensor_set(made, "x", second) is S.SUCCESS
    assert rt.nrt_get_tensor_from_tensor_set(made, "x") == (S.SUCCESS, second)
    assert rt.nrt_get_tensor_from_tensor_set(made, "y") == (S.FAILURE, None)
    assert rt.nrt_tensor_free(first) is S.SUCCESS
    assert rt.nrt_add_tensor_to_tensor_set(made, "y", first) is S.INVALID_HANDLE


def test_a_set_lives_until_the_requests_that_use_it_are_done_and_its_tensors_live_on() -> None:
    rt = started()
    model, (ins, outs) = loaded(rt), sets(rt)
    inputs, outputs = set_of(rt, ins), set_of(rt, outs)
    ret = Ret()
    assert one(rt, rt.nrta_execute_schedule(model, inputs, outputs, 0, ret))[0] is S.SUCCESS
    assert (rt.nrt_destroy_tensor_set(inputs), rt.nrt_destroy_tensor_set(outputs)) == (S.INVALID, S.INVALID)
    assert rt.nrt_add_tensor_to_tensor_set(outputs, "y", buffer(rt)) is S.SUCCESS  # for the next request
    drain(rt)
    assert ret.value is S.SUCCESS
    assert np.array_equal(held(outs["y"]), 2 * X)
    assert (rt.nrt_destroy_tensor_set(inputs), rt.nrt_destroy_tensor_set(inputs)) == (S.SUCCESS, S.INVALID_HANDLE)
    assert one(rt, rt.nrt_execute(model, inputs, outputs)) is S.INVALID_HANDLE
    assert rt.nrt_add_tensor_to_tensor_set(inputs, "x", ins["x"]) is S.INVALID_HANDLE
    assert rt.nrt_get_tensor_from_tensor_set(inputs, "x") == (S.INVALID_HANDLE, None)
    assert one(rt, rt.nrt_execute(model, ins, outs)) is S.SUCCESS


# --- repeated executions ---------------------------------------------------------------------------------------------


def test_a_repeated_execution_runs_as_often_as_asked_and_takes_that_time() -> None:
    rt = started()
    model, (ins, outs) = loaded(rt), sets(rt)
    assert one(rt, rt.nrt_execute_repeat(model, ins, outs, 3)) is S.SUCCESS
    assert np.array_equal(held(outs["y"]), 2 * X)
    assert rt.now == 3 * (67_000 + BODY) + 5_000  # the first switches
    assert (model.executions, len(named(rt, "nrt_execute"))) == (3, 3)


def test_a_tensor_that_is_input_and_output_feeds_each_run_to_the_next() -> None:
    rt = started()
    tensor = buffer(rt, 0, X)
    assert one(rt, rt.nrt_execute_repeat(loaded(rt), {"x": tensor}, {"y": tensor}, 3)) is S.SUCCESS
    assert np.array_equal(held(tensor), 8 * X)


@pytest.mark.parametrize("count", [0, -1])
def test_repeating_less_than_once_is_invalid(count: int) -> None:
    rt = started()
    assert one(rt, rt.nrt_execute_repeat(loaded(rt), *sets(rt), count)) is S.INVALID
    assert rt.now == 0


def test_a_repeated_execution_stops_at_the_first_status_other_than_success() -> None:
    rt = started()
    wrong = X.copy()
    wrong[0, 0] = np.nan
    model = loaded(rt)
    assert one(rt, rt.nrt_execute_repeat(model, *sets(rt, 0, wrong), 3)) is S.EXEC_COMPLETED_WITH_NUM_ERR
    assert model.executions == 1


# --- batches and memset ----------------------------------------------------------------------------------------------


def test_a_batch_moves_all_its_pieces_in_order_and_takes_the_time_of_each() -> None:
    rt = started()
    a, b = buffer(rt, size=8), buffer(rt, size=8)
    byte = [np.full(n, n, np.uint8) for n in range(6)]
    assert one(rt, rt.nrt_tensor_write_batch([(a, [(0, byte[4]), (2, byte[3])]), (b, [(5, byte[1])])])) is S.SUCCESS
    assert (a.data.tolist(), b.data.tolist()) == ([4, 4, 3, 3, 3, 0, 0, 0], [0, 0, 0, 0, 0, 1, 0, 0])
    assert rt.now == 3 * 2_000 + 4 + 3 + 1
    into = [np.zeros(2, np.uint8), np.zeros(3, np.uint8)]
    assert one(rt, rt.nrt_tensor_read_batch([(b, [(4, into[0])]), (a, [(1, into[1])])])) is S.SUCCESS
    assert [i.tolist() for i in into] == [[0, 1], [4, 3, 3]]
    (outer,) = named(rt, "nrt_tensor_write_batch")
    inner = [e for e in rt.trace.events if e.parent == outer.id]
    assert [(e.name, e.duration_ns, e.attributes["size"]) for e in inner] == [("dmem_buf_copyin", 2_000 + n, n) for n in (4, 3, 1)]
    assert (outer.duration_ns, outer.attributes["size"], outer.core) == (6_008, 8, 0)
    assert Counter(e.name for e in rt.trace.events)["dmem_buf_copyout"] == 2


def test_a_batch_with_one_piece_that_does_not_fit_moves_nothing() -> None:
    rt = started()
    a, b = buffer(rt, size=8), buffer(rt, size=8)
    data = np.ones(4, np.uint8)
    assert one(rt, rt.nrt_tensor_write_batch([(a, [(0, data)]), (b, [(5, data)])])) is S.INVALID
    assert rt.nrt_tensor_free(b) is S.SUCCESS
    assert one(rt, rt.nrt_tensor_read_batch([(a, [(0, data)]), (b, [(0, data)])])) is S.INVALID_HANDLE
    assert one(rt, rt.nrt_tensor_write_batch([])) is S.INVALID
    assert (rt.now, int(a.data.sum())) == (0, 0)


def test_a_batch_holds_its_tensors_and_may_span_cores() -> None:
    rt = started(cores=2)
    a, b = buffer(rt, 0, size=8), buffer(rt, 1, size=8)
    data = np.ones(8, np.uint8)

    def other(_: int) -> Step:
        yield rt.spend(1_000)
        return rt.nrt_tensor_free(b), rt.nrt_close()

    assert rt.run(lambda _: rt.nrt_tensor_write_batch([(a, [(0, data)]), (b, [(0, data)])]), other) == [
        S.SUCCESS,
        (S.INVALID, S.EXEC_NC_BUSY),
    ]
    assert (int(a.data.sum()), int(b.data.sum())) == (8, 8)
    assert [(e.core, e.start_ns) for e in named(rt, "dmem_buf_copyin")] == [(0, 0), (1, 2_008)]
    assert [e.core for e in named(rt, "nrt_tensor_write_batch")] == [-1]


def test_memset_sets_bytes_and_takes_the_time_of_a_copy() -> None:
    rt = started()
    t = buffer(rt, size=8)
    assert one(rt, rt.nrt_tensor_memset(t, 2, 0x1FF, 4)) is S.SUCCESS
    assert t.data.tolist() == [0, 0, 255, 255, 255, 255, 0, 0]
    assert rt.now == 2_004
    for offset, size in ((-1, 4), (5, 4), (0, 0), (0, -1)):
        assert one(rt, rt.nrt_tensor_memset(t, offset, 1, size)) is S.INVALID
    assert [e.name for e in rt.trace.events] == ["nrt_tensor_allocate", "nrt_tensor_memset"]


# --- completion counters ---------------------------------------------------------------------------------------------


def test_an_outputs_counter_counts_the_executions_that_wrote_it_once_the_host_knows() -> None:
    rt = started()
    (ins, outs) = sets(rt)
    model = loaded(rt)

    def host(_: int) -> Step:
        yield from submit(rt, model, (ins, outs), 2)  # complete at 72,000 and 92,000, each with its bodies
        got = []
        for timeout_us, expected in ((0, 1), (20, 1), (-1, 1), (0, 1), (0, 2), (1_000, 2)):
            got.append(((yield from rt.nrt_tensor_check_output_completion(outs["y"], timeout_us, expected)), rt.now))
        return got

    first, second = 72_000 + BODY, 92_000 + 2 * BODY
    assert rt.run(host) == [
        [(S.TIMEOUT, 20_000), (S.TIMEOUT, 40_000), (S.SUCCESS, first), (S.SUCCESS, first), (S.TIMEOUT, first), (S.SUCCESS, second)]
    ]
    assert ins["x"].completions == 0


def test_a_reset_counts_from_zero_again() -> None:
    rt = started()
    model, (ins, outs) = loaded(rt), sets(rt)
    assert one(rt, rt.nrt_execute(model, ins, outs)) is S.SUCCESS
    assert rt.nrt_tensor_reset_output_completion(outs["y"]) is S.SUCCESS
    assert one(rt, rt.nrt_tensor_check_output_completion(outs["y"], 0, 1)) is S.TIMEOUT
    assert one(rt, rt.nrt_execute(model, ins, outs)) is S.SUCCESS
    assert one(rt, rt.nrt_tensor_check_output_completion(outs["y"], 0, 1)) is S.SUCCESS


def test_an_execution_that_wrote_nothing_does_not_count_and_one_with_nan_does() -> None:
    rt = started(exec_timeout_ns=20_000)
    ins, outs = sets(rt)
    assert one(rt, rt.nrt_execute(loaded(rt), ins, outs)) is S.TIMEOUT
    assert one(rt, rt.nrt_tensor_check_output_completion(outs["y"], 0, 1)) is S.TIMEOUT
    rt = started()
    ins, outs = sets(rt, 0, np.full(SHAPE, np.nan, np.float32))
    assert one(rt, rt.nrt_execute(loaded(rt), ins, outs)) is S.EXEC_COMPLETED_WITH_NUM_ERR
    assert one(rt, rt.nrt_tensor_check_output_completion(outs["y"], 0, 1)) is S.SUCCESS


def test_a_counter_of_no_tensor_is_invalid_and_of_a_freed_one_an_invalid_handle() -> None:
    """nrt.h: NRT_INVALID if the tensor is NULL."""
    rt = started()
    assert one(rt, rt.nrt_tensor_check_output_completion(None, 0, 0)) is S.INVALID
    assert rt.nrt_tensor_reset_output_completion(None) is S.INVALID
    tensor = buffer(rt)
    assert rt.nrt_tensor_free(tensor) is S.SUCCESS
    assert one(rt, rt.nrt_tensor_check_output_completion(tensor, 0, 0)) is S.INVALID_HANDLE
    assert rt.nrt_tensor_reset_output_completion(tensor) is S.INVALID_HANDLE


def test_a_tensor_that_is_waited_for_lives() -> None:
    rt = started()
    tensor = buffer(rt)

    def other(_: int) -> Step:
        yield rt.spend(5_000)
        return rt.nrt_tensor_free(tensor), rt.nrt_close()

    assert rt.run(lambda _: rt.nrt_tensor_check_output_completion(tensor, 10, 1), other) == [S.TIMEOUT, (S.INVALID, S.EXEC_NC_BUSY)]
    assert rt.now == 10_000
    assert rt.nrt_tensor_free(tensor) is S.SUCCESS


def test_a_sequence_id_is_its_unit_and_its_number() -> None:
    """Two ids of published traces: (1 << 48) | 29 and (3 << 48) | 12."""
    for seq, unit, number in ((281474976710685, 1, 29), (844424930131980, 3, 12)):
        assert (NRTA_SEQ_GET_XU_ID(seq), NRTA_SEQ_GET_SEQ_NUM(seq)) == (unit, number)
    rt = started()
    seqs, _ = one(rt, submit(rt, loaded(rt, empty()), ({}, {}), 2))
    assert {NRTA_SEQ_GET_XU_ID(s) for s in seqs} == {rt.units[0, XuType.COMPUTE, 0].id}
    assert [NRTA_SEQ_GET_SEQ_NUM(s) for s in seqs] == [1, 2]


# --- what a runtime tells --------------------------------------------------------------------------------------------


def test_a_model_tells_its_inputs_then_its_outputs() -> None:
    rt = started()
    p = Program("two")
    for name, shape, dtype in (("a", (4, 8), "bfloat16"), ("b", (2, 3), "int32")):
        p.input(name, shape, dtype)
    out = p.output("c", (4, 8), "float32")
    t = p.sbuf((4, 8), "float32", name="t")
    p.memset(dst=t, value=0.0)
    p.dma_copy(dst=out, src=t)
    model = loaded(rt, p)
    assert rt.nrt_get_model_tensor_info(model) == (
        S.SUCCESS,
        [
            ModelTensorInfo("a", Usage.INPUT, 64, "bfloat16", (4, 8)),
            ModelTensorInfo("b", Usage.INPUT, 24, "int32", (2, 3)),
            ModelTensorInfo("c", Usage.OUTPUT, 128, "float32", (4, 8)),
        ],
    )
    assert (int(Usage.INPUT), int(Usage.OUTPUT)) == (0, 1)
    assert rt.nrt_unload(model) is S.SUCCESS
    assert rt.nrt_get_model_tensor_info(model) == (S.INVALID_HANDLE, [])


def test_memory_stats_count_tensors_and_what_programs_keep() -> None:
    rt = started(cores=2, chip=FLAT.what_if({"memory.hbm_bytes": 10_000}))
    buffer(rt, 1, size=100)
    loaded(rt, scale(constant=512), 1)
    assert rt.nrt_get_vnc_memory_stats(0) == (S.SUCCESS, MemoryStats(0, 10_000))
    assert rt.nrt_get_vnc_memory_stats(1) == (S.SUCCESS, MemoryStats(612, 10_000))
    for core in (-1, 2):
        assert rt.nrt_get_vnc_memory_stats(core) == (S.INVALID, None)


def test_instance_info_names_the_chip_and_does_not_make_up_the_machine() -> None:
    """nrt.h: NRT_INSTANCE_TRN2 = 5, NRT_INSTANCE_SIZE_UNKNOWN is the tenth size."""
    rt = started()
    assert rt.nrt_get_instance_info() == (S.SUCCESS, InstanceInfo(InstanceFamily.TRN2, 9, "NeuronCore-v3", ""))
    assert int(InstanceFamily.TRN2) == 5
    other = started(chip=attrs.evolve(FLAT, name="mine")).nrt_get_instance_info()[1]
    assert other is not None
    assert other.family is InstanceFamily.UNKNOWN


# --- trace control ---------------------------------------------------------------------------------------------------


def fetched(rt: Any, **options: Any) -> list[dict[str, Any]]:
    status, text = rt.nrt_sys_trace_fetch_events(**options)
    assert status is S.SUCCESS
    found = json.loads(text)
    assert (sorted(found), found["data_version"]) == (["data_version", "events"], 2)
    return found["events"]  # type: ignore[no-any-return]


def test_a_fetch_gives_starts_and_stops_of_the_published_form_joined_by_tracking_id() -> None:
    rt = started()
    model = loaded(rt, empty())
    assert rt.nrt_sys_trace_start() is S.SUCCESS
    assert one(rt, rt.nrt_execute(model, {}, {}, thread=3)) is S.SUCCESS
    got = fetched(rt)
    assert {frozenset(e) for e in got} == {frozenset(("event_type", "phase", "tracking_id", "nc_idx", "timestamp_ns", "data"))}
    running = [e for e in got if e["event_type"] == "nc_exec_running"]
    (recorded,) = named(rt, "nc_exec_running")
    assert [(e["phase"], e["timestamp_ns"], e["data"]["nc_timestamp_ns"], e["nc_idx"]) for e in running] == [
        ("start", 22_000, 22_000, 0),
        ("stop", 42_000, 42_000, 0),
    ]
    assert {e["tracking_id"] for e in running} == {recorded.id}
    assert [(e["data"]["exec_id"], e["data"]["device_core_idx"], e["data"]["flow_id"]) for e in running] == [(0, 0, ["0"])] * 2
    times = [e["timestamp_ns"] for e in got]
    assert times == sorted(times)
    pairs: dict[int, list[str]] = {}
    for e in got:
        pairs.setdefault(e["tracking_id"], []).append(e["phase"])
    assert set(map(tuple, pairs.values())) == {("start", "stop")}
    assert len(pairs) == len(rt.trace.events) - 1  # the load was before
    call = next(e for e in got if e["event_type"] == "nrta_execute_schedule")
    assert (call["data"]["thread_id"], call["data"]["flow_id"]) == (3, [str(named(rt, "nrta_execute_schedule")[0].flow[0])])


def test_a_fetch_consumes_what_it_gives_and_the_trace_keeps_it() -> None:
    rt = started()
    model = loaded(rt, empty())
    assert rt.nrt_sys_trace_start() is S.SUCCESS
    one(rt, submit(rt, model, ({}, {}), 1))
    before = fetched(rt)  # the execution goes on: its events are not there yet
    assert {e["event_type"] for e in before} == {"nrta_execute_schedule", "nrt_model_submit"}
    assert fetched(rt) == []
    drain(rt)
    after = fetched(rt)
    assert not {e["tracking_id"] for e in before} & {e["tracking_id"] for e in after}
    assert {e["tracking_id"] for e in before + after} == {e.id for e in rt.trace.events if e.name != "nrt_load"}


def test_a_fetch_takes_the_oldest_of_each_core_or_of_one() -> None:
    rt = started(cores=2)
    assert rt.nrt_sys_trace_start() is S.SUCCESS
    for core in (0, 1):
        for k in range(3):
            loaded(rt, empty(f"p{k}"), core)
    ids = [e.id for e in rt.trace.events]
    assert [e["tracking_id"] for e in fetched(rt, max_events_per_nc=1)] == [ids[0], ids[0], ids[3], ids[3]]
    assert [e["tracking_id"] for e in fetched(rt, nc_idx=1)] == [ids[4], ids[4], ids[5], ids[5]]
    assert [e["tracking_id"] for e in fetched(rt, nc_idx=0, max_events_per_nc=1)] == [ids[1], ids[1]]
    assert [e["tracking_id"] for e in fetched(rt)] == [ids[2], ids[2]]
    assert fetched(rt) == []


def test_events_can_be_fetched_between_start_and_stop() -> None:
    rt = started()
    assert (rt.nrt_sys_trace_stop(), rt.nrt_sys_trace_fetch_events()) == (S.INVALID, (S.INVALID, ""))
    assert (rt.nrt_sys_trace_start(), rt.nrt_sys_trace_start()) == (S.SUCCESS, S.INVALID)
    loaded(rt, empty())
    assert (rt.nrt_sys_trace_stop(), rt.nrt_sys_trace_fetch_events()) == (S.SUCCESS, (S.INVALID, ""))
    assert rt.nrt_sys_trace_start() is S.SUCCESS
    rt.trace.add("aten::mul", FRAMEWORK, 0, 1, thread=0)  # a framework has its own profiler
    assert fetched(rt) == []  # gone with the stop
    for options in ({"nc_idx": 1}, {"nc_idx": -1}, {"max_events_per_nc": -1}):
        assert rt.nrt_sys_trace_fetch_events(**options) == (S.INVALID, "")


def test_a_switch_is_fetched_and_filtered_under_its_event_type() -> None:
    """Published: the event nc_model_switch has the event type nrt_model_switch."""
    rt = started()
    status, types = rt.nrt_sys_trace_get_event_types()
    assert status is S.SUCCESS
    assert ("nrt_model_switch" in types, "nc_model_switch" in types) == (True, False)
    assert types == sorted(types)
    for word in types:
        assert rt.nrt_sys_trace_config_set_capture_enabled(None, [word]) is S.SUCCESS
    assert rt.nrt_sys_trace_config_set_capture_enabled(None, ["nrt_model_switch"]) is S.SUCCESS
    assert rt.nrt_sys_trace_start() is S.SUCCESS
    one(rt, rt.nrt_execute(loaded(rt, empty()), {}, {}))
    assert [e["event_type"] for e in fetched(rt)] == ["nrt_model_switch"] * 2
    assert [e.name for e in rt.trace.events] == ["nc_model_switch"]


def test_every_event_of_a_run_has_a_type_that_a_filter_takes() -> None:
    rt = started(precache_node_info=False, profile="blog", lnc=2)
    model, (ins, outs) = loaded(rt), sets(rt)
    one(rt, rt.nrt_execute(model, ins, outs))
    one(rt, rt.nrt_tensor_memset(ins["x"], 0, 0, 8))
    one(rt, rt.nrt_tensor_write_batch([(ins["x"], [(0, X)])]))
    one(rt, rt.nrta_tensor_read(X.copy(), outs["y"], 0, 0, Ret()))
    drain(rt)
    names = {"nrt_model_switch" if e.name == "nc_model_switch" else e.name for e in rt.trace.events}
    assert names <= set(rt.nrt_sys_trace_get_event_types()[1])


def test_the_number_of_events_of_a_core_can_be_limited_at_any_time() -> None:
    rt = started(cores=2)
    assert rt.nrt_sys_trace_start() is S.SUCCESS
    models = [loaded(rt, empty(f"p{k}"), 0) for k in range(5)]
    loaded(rt, empty(), 1)
    assert rt.nrt_sys_trace_config_set_max_events_per_nc(-1) is S.INVALID
    assert rt.nrt_sys_trace_config_set_max_events_per_nc(2) is S.SUCCESS
    assert [e.attributes["model_id"] for e in rt.trace.events] == [3, 4, 5]
    assert rt.trace.dropped == {0: 3}
    assert rt.nrt_unload(models[0]) is S.SUCCESS
    assert [e.name for e in rt.trace.events if e.core == 0] == ["nrt_load", "nrt_unload"]
    assert rt.trace.dropped == {0: 4}
    assert len(fetched(rt)) == 2 * 3
