"""Executing a loaded program, and waiting for it or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .events import RUNTIME
from .objects import Model, Request, Ret, Tensors, TensorSet
from .status import NrtStatus, XuType
from .units import Step, enqueue

if TYPE_CHECKING:
    from .api import Runtime


def nrt_execute(rt: Runtime, model: Model, inputs: Tensors | TensorSet, outputs: Tensors | TensorSet, *, thread: int = 0) -> Step:
    """Execute and wait; returns the status."""
    if (bad := _schedule_status(rt, model, inputs, outputs, 0)) is not NrtStatus.SUCCESS:
        return bad
    ret, start = Ret(), rt.now
    request = _request(model, inputs, outputs, 0, ret, thread)
    request.synchronous = True
    rt.calls += 1
    try:
        status, seq = yield from enqueue(rt, request, "nrta_execute_schedule")
        if status is not NrtStatus.SUCCESS:
            return status
        _, done = rt.nrta_event_register_seq_id_completion(seq)
        yield done
    finally:
        rt.calls -= 1
    rt.trace.add(
        "nrt_execute",
        RUNTIME,
        start,
        rt.now,
        id=request.call,
        core=model.core,
        thread=thread,
        flow=(seq,),
        attributes={"model_name": model.neff.program.name},
    )
    return ret.value


def nrt_execute_repeat(
    rt: Runtime, model: Model, inputs: Tensors | TensorSet, outputs: Tensors | TensorSet, repeat_count: int, *, thread: int = 0
) -> Step:
    """Execute again and again on the same tensors; returns the first status other than SUCCESS, or SUCCESS.

    A tensor given as input and as output feeds each run's result to the next. INVALID for a count below 1.
    """
    if (bad := _schedule_status(rt, model, inputs, outputs, 0)) is not NrtStatus.SUCCESS:
        return bad
    if repeat_count < 1:
        return NrtStatus.INVALID
    for _ in range(repeat_count):
        status = yield from nrt_execute(rt, model, inputs, outputs, thread=thread)
        if status is not NrtStatus.SUCCESS:
            break
    return status


def nrta_execute_schedule(
    rt: Runtime, model: Model, inputs: Tensors | TensorSet, outputs: Tensors | TensorSet, queue: int, ret: Ret,
    *, thread: int = 0, label: str = "",
) -> Step:  # fmt: skip
    """Enqueue and return (status, sequence id) at once; `ret` is written when the run completes."""
    if (bad := _schedule_status(rt, model, inputs, outputs, queue)) is not NrtStatus.SUCCESS:
        return bad, 0
    request = _request(model, inputs, outputs, queue, ret, thread)
    request.label = label
    return (yield from enqueue(rt, request, "nrta_execute_schedule"))


def _request(model: Model, inputs: Tensors | TensorSet, outputs: Tensors | TensorSet, queue: int, ret: Ret, thread: int) -> Request:
    sets = tuple(s for s in (inputs, outputs) if isinstance(s, TensorSet))
    ins, outs = dict(_tensors(inputs)), dict(_tensors(outputs))
    return Request(0, XuType.COMPUTE, model.core, queue, ret, thread, model, ins, outs, sets)


def _tensors(given: Tensors | TensorSet) -> Tensors:
    return given.tensors if isinstance(given, TensorSet) else given


def _schedule_status(rt: Runtime, model: Model, inputs: Tensors | TensorSet, outputs: Tensors | TensorSet, queue: int) -> NrtStatus:
    if (bad := rt.usable()) is not NrtStatus.SUCCESS:
        return bad
    if not rt.has(model) or any(isinstance(s, TensorSet) and s.destroyed for s in (inputs, outputs)):
        return NrtStatus.INVALID_HANDLE
    if queue != 0:
        return NrtStatus.INVALID
    for needed, given in ((model.neff.inputs, _tensors(inputs)), (model.neff.outputs, _tensors(outputs))):
        if set(needed) != set(given):
            return NrtStatus.EXEC_BAD_INPUT
        for name, tensor in needed.items():
            if given[name].freed:
                return NrtStatus.INVALID_HANDLE
            if given[name].core != model.core:
                return NrtStatus.INVALID
            if given[name].size != tensor.partition_bytes:
                return NrtStatus.EXEC_BAD_INPUT
    return NrtStatus.SUCCESS
