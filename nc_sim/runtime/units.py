"""Execution units: queues of requests, the threads that serve them, and one execution on a core."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import numpy as np
import simpy

from ..memory import Memories
from ..numerics import interpret
from .copies import copy_ns, direction, hold, move
from .events import HARDWARE, RUNTIME
from .objects import Model, Request
from .status import NrtStatus, XuType

if TYPE_CHECKING:
    from .api import Runtime

Step = Generator[simpy.Event, Any, Any]
XU_BITS = 48  # of a sequence id that count requests; the rest name the execution unit
SEQUENCE_MASK = (1 << XU_BITS) - 1
WROTE = (NrtStatus.SUCCESS, NrtStatus.EXEC_COMPLETED_WITH_NUM_ERR)  # of an execution whose outputs are there


class Unit:
    """One execution unit: a FIFO of requests on one core."""

    def __init__(self, rt: Runtime, core: int, kind: XuType, queue: int) -> None:
        self.core, self.kind, self.queue = core, kind, queue
        self.id = 1 + core * sum(k.queues for k in XuType) + sum(k.queues for k in XuType if k < kind) + queue
        self.waiting: deque[Request] = deque()
        self.issued = self.completed = 0
        self.broken = False
        self.work = rt.env.event()  # fires when something is enqueued
        self.watchers: list[simpy.Event] = []  # to fire at the next completion

    @property
    def outstanding(self) -> int:
        return self.issued - self.completed


def enqueue(rt: Runtime, request: Request, name: str) -> Step:
    """Give a request its number and put it into its queue, which takes the time of a call; (status, sequence id)."""
    unit = rt.units[request.core, request.kind, request.queue]
    if unit.broken:
        return NrtStatus.EXEC_UNIT_UNRECOVERABLE, 0
    if unit.outstanding >= rt.queue_depth:
        return NrtStatus.QUEUE_FULL, 0
    unit.issued += 1
    request.seq = unit.id << XU_BITS | unit.issued
    hold(request.holds(), 1)
    if request.model is not None:
        request.model.in_flight += 1
    if request.synchronous:
        request.parent = request.call = rt.trace.reserve()
    start = rt.now
    yield rt.spend(rt.profile.schedule_ns)
    outer = step(rt, name, request, start, (request.seq,), {"label": request.label})
    if request.model is not None:
        _note_submission(rt, request, start, outer)
    if request.synchronous:
        request.parent = rt.trace.reserve()  # kmgr_exec_core: the steps that follow
    unit.waiting.append(request)
    if not unit.work.triggered:
        unit.work.succeed()
    return NrtStatus.SUCCESS, request.seq


def _note_submission(rt: Runtime, request: Request, start: int, outer: int) -> None:
    """What a schedule call of an execution does. When the smaller steps happen is not known: they stand at its beginning."""
    assert request.model is not None
    flow, core, thread = (request.seq,), request.core, request.thread
    if not rt.precache_node_info and not request.model.neff.noted:
        request.model.neff.noted = True
        rt.trace.add("nrt_profile_add_node_info", RUNTIME, start, start, core=core, thread=thread, parent=outer, flow=flow)
    submit = step(rt, "nrt_model_submit", request, start, flow, parent=outer)
    for name, count in rt.profile.events.items():
        for _ in range(count.value):
            rt.trace.add(name, RUNTIME, start, start, core=core, thread=thread, parent=submit, flow=flow)


def serve(rt: Runtime, unit: Unit) -> Step:
    """One unit: requests in order. A compute unit hands to the device and goes on; completions stay in order."""
    before: simpy.Event = rt.env.event().succeed()
    while True:
        while not unit.waiting:
            unit.work = rt.env.event()
            yield unit.work
        request = unit.waiting.popleft()
        if request.kind is XuType.COMPUTE:
            if not unit.broken:
                start = rt.now
                yield rt.spend(rt.profile.process_ns)
                step(rt, "kbl_exec_pre", request, start, (request.seq,))
                if request.synchronous:
                    request.began = start
                    step(rt, "kbl_exec_core", request, rt.now, (request.seq,))  # how long it takes is not known
            after = rt.env.event()
            rt.env.process(_execute(rt, unit, request, before, after))
            before = after
        else:
            yield from _transfer(rt, request)
            _finish(rt, unit, request)


def _transfer(rt: Runtime, request: Request) -> Step:
    assert request.copy is not None
    src, at, dst, to, size = request.copy
    start = rt.now
    yield rt.spend(copy_ns(rt, size))
    move(src, at, dst, to, size)
    if inner := direction(src, dst):
        step(rt, inner, request, start, (request.seq,), {"size": size})


def _execute(rt: Runtime, unit: Unit, request: Request, before: simpy.Event, after: simpy.Event) -> Step:
    """The device's part, then the way back to the host. What a broken unit still holds does not run."""
    waited = rt.now
    with rt.device[unit.core].request() as turn:
        yield turn
        runs = not unit.broken
        if runs:
            start = yield from _run(rt, unit, request)
    if runs:
        yield rt.spend(rt.profile.completion_ns)
    else:
        request.status = NrtStatus.EXEC_UNIT_UNRECOVERABLE
    yield before  # completions of one unit come in order
    if runs:
        _note_completion(rt, request, waited, start)
    if request.began >= 0:  # of nrt_execute, whether it ran or found its unit broken
        step(rt, "kmgr_exec_core", request, request.began, (request.seq,), parent=request.call, id=request.parent)
    _finish(rt, unit, request)
    after.succeed()


def _note_completion(rt: Runtime, request: Request, waited: int, start: int) -> None:
    """The wait, with the clocks' meeting on each physical core, and what follows it; these take no time that is known."""
    wait = step(rt, "kbl_exec_wait", request, waited, (request.seq, request.exec_id))
    for physical in rt.physical_cores(request.core):
        sync = {"cpu_timestamp_ns": start, "nc_timestamp_ns": start, "exec_id": request.exec_id, **rt.numbered(physical)}
        rt.trace.add(
            "timestamp_sync_point", HARDWARE, start, start, core=request.core, parent=wait, flow=(request.exec_id,), attributes=sync
        )
    for physical in rt.physical_cores(request.core):
        for name in ("notification_consume_errors", "exec_consume_gpsimd_stdio"):
            step(rt, name, request, rt.now, (request.seq,), rt.numbered(physical))
    step(rt, "kbl_exec_post", request, rt.now, (request.seq,))


def _run(rt: Runtime, unit: Unit, request: Request) -> Step:
    """One execution on a logical core; returns when it began. Operands are read at its beginning, results written at its end.

    The program runs on the first physical core.
    """
    model, core = request.model, unit.core
    assert model is not None
    request.exec_id = rt.executions
    rt.executions += 1
    if rt.resident[core] != model.neff.hash:
        start = rt.now
        yield rt.spend(rt.profile.switch_ns)
        for physical in rt.physical_cores(core):
            switched = {"model_id": model.id, **rt.numbered(physical)}
            rt.trace.add("nc_model_switch", HARDWARE, start, rt.now, core=core, flow=(request.exec_id,), attributes=switched)
        rt.resident[core] = model.neff.hash
    start = rt.now
    length = min(model.neff.total_ns, rt.exec_timeout_ns)
    in_time = length == model.neff.total_ns
    results: dict[str, np.ndarray] = {}
    if not in_time:
        request.status = NrtStatus.TIMEOUT
    elif rt.values:
        request.status, results = _compute(rt, model, request)
    yield rt.spend(length)
    for name, data in results.items():
        request.outputs[name].data[:] = data
    unit.broken = not in_time
    model.executions += 1
    model.running_ns += length
    for physical in rt.physical_cores(core):
        running = {"exec_id": request.exec_id, "model_id": model.id, "model_name": model.neff.program.name, "device_core_idx": physical}
        end = rt.now
        if physical != rt.physical_cores(core)[0]:  # an empty program: prologue and epilogue
            running["idle"], end = True, start + min(model.neff.fixed_ns, length)
        rt.trace.add("nc_exec_running", HARDWARE, start, end, core=core, flow=(request.exec_id,), attributes=running)
    return start


def _finish(rt: Runtime, unit: Unit, request: Request) -> None:
    unit.completed += 1
    rt.completed_at[request.seq] = rt.now
    hold(request.holds(), -1)
    if request.model is not None:
        request.model.in_flight -= 1
    request.ret.value = request.status
    if request.status in WROTE:
        for tensor in dict.fromkeys(request.outputs.values()):
            tensor.completions += 1
            told, tensor.waiting = tensor.waiting, []
            for event in told:
                event.succeed()
    watching, unit.watchers = rt.watchers.pop(request.seq, []) + unit.watchers, []
    for event in watching:
        event.succeed(request.seq)


def _compute(rt: Runtime, model: Model, request: Request) -> tuple[NrtStatus, dict[str, np.ndarray]]:
    """What the program makes of the request's inputs, as bytes; NaN in an output is reported, as the hardware counts it."""
    compiled = model.neff.compiled
    memories = Memories(compiled.tensors, compiled.addresses, rt.chip.reader(), {})
    for name, tensor in request.inputs.items():
        memories.hbm[name] = tensor.data.copy()
    for name, tensor in request.outputs.items():
        memories.hbm[name] = tensor.data.copy()  # what the program does not write stays
    interpret(compiled.steps, memories)
    status = NrtStatus.SUCCESS
    for name in request.outputs:
        found = memories.tensor(compiled.tensors[name])
        if compiled.tensors[name].dtype.kind == "float" and np.isnan(found.astype(np.float32)).any():
            status = NrtStatus.EXEC_COMPLETED_WITH_NUM_ERR
    return status, {name: memories.hbm[name] for name in request.outputs}


def note(rt: Runtime, name: str, core: int, attributes: dict[str, Any]) -> None:
    """The event of a call that takes no time."""
    rt.trace.add(name, RUNTIME, rt.now, rt.now, core=core, attributes=attributes)


def step(
    rt: Runtime,
    name: str,
    request: Request,
    start: int,
    flow: tuple[int, ...],
    attributes: dict[str, Any] | None = None,
    parent: int | None = None,
    id: int | None = None,
) -> int:
    """The event of a step of a request, ending now; inside the request's own event unless `parent` says otherwise."""
    return rt.trace.add(
        name,
        RUNTIME,
        start,
        rt.now,
        id=id,
        core=request.core,
        thread=request.thread,
        parent=request.parent if parent is None else parent,
        flow=flow,
        attributes=attributes or {},
    )
