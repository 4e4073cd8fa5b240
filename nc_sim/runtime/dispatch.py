"""Executing a loaded program, and waiting for it or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .events import RUNTIME
from .objects import DeviceTensor, Model, Request, Ret
from .status import NrtStatus, XuType
from .units import Step, enqueue

if TYPE_CHECKING:
    from .api import Runtime


def nrt_execute(
    rt: Runtime, model: Model, inputs: Mapping[str, DeviceTensor], outputs: Mapping[str, DeviceTensor], *, thread: int = 0
) -> Step:
    """Execute and wait; returns the status."""
    if (bad := _schedule_status(rt, model, inputs, outputs, 0)) is not NrtStatus.SUCCESS:
        return bad
    ret, start = Ret(), rt.now
    request = Request(0, XuType.COMPUTE, model.core, 0, ret, thread, model, dict(inputs), dict(outputs), synchronous=True)
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
        id=request.parent,
        core=model.core,
        thread=thread,
        flow=(seq,),
        attributes={"model_name": model.neff.program.name},
    )
    return ret.value


def nrta_execute_schedule(
    rt: Runtime, model: Model, inputs: Mapping[str, DeviceTensor], outputs: Mapping[str, DeviceTensor], queue: int, ret: Ret,
    *, thread: int = 0, label: str = "",
) -> Step:  # fmt: skip
    """Enqueue and return (status, sequence id) at once; `ret` is written when the run completes."""
    if (bad := _schedule_status(rt, model, inputs, outputs, queue)) is not NrtStatus.SUCCESS:
        return bad, 0
    request = Request(0, XuType.COMPUTE, model.core, queue, ret, thread, model, dict(inputs), dict(outputs), label=label)
    return (yield from enqueue(rt, request, "nrta_execute_schedule"))


def _schedule_status(
    rt: Runtime, model: Model, inputs: Mapping[str, DeviceTensor], outputs: Mapping[str, DeviceTensor], queue: int
) -> NrtStatus:
    if (bad := rt.usable()) is not NrtStatus.SUCCESS:
        return bad
    if not model.loaded:
        return NrtStatus.INVALID_HANDLE
    if queue != 0:
        return NrtStatus.INVALID
    for needed, given in ((model.neff.inputs, inputs), (model.neff.outputs, outputs)):
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
