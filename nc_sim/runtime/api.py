"""The nrt_* and nrta_* calls. Those that take host time are SimPy generators: `status = yield from rt.nrt_execute(...)`.

Source: aws-neuron-sdk v2.32.0, neuron-runtime/api (nrt, nrt_async, the 3.0 form). Statuses are values, never exceptions,
as in the C interface; only misuse of Python itself raises.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import simpy

from .. import chip as chips
from ..chip import Chip
from ..forms import canonical_hash
from ..memory import Memories
from ..numerics import interpret
from ..program import Program
from ..simulate import simulate
from . import host
from .events import HARDWARE, RUNTIME, Recorder, chosen, unknown
from .objects import DeviceTensor, Model, Neff, Request, Ret, TensorSet
from .status import NrtStatus, XuType

Step = Generator[simpy.Event, Any, Any]
XU_BITS = 48  # of a sequence id that count requests; the rest name the execution unit
SEQUENCE_MASK = (1 << XU_BITS) - 1


class _Unit:
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


class Runtime:
    """One process of the simulated host, its cores and their queues. Time is integer ns in `env.now`."""

    def __init__(
        self, profile: str | Path | host.HostProfile = "blog", chip: str | Path | Chip = "trn2", *, cores: int = 1,
        queue_depth: int = 64, exec_timeout_ns: int = 30_000_000_000, values: bool = True, trace: Recorder | None = None,
    ) -> None:  # fmt: skip
        self.profile, self.chip = host.load(profile), chips.load(chip)
        self.env = simpy.Environment()
        self.cores, self.queue_depth, self.exec_timeout_ns, self.values = cores, queue_depth, exec_timeout_ns, values
        self.trace = trace or Recorder()
        self.state = NrtStatus.UNINITIALIZED
        self.hbm_bytes: int = self.chip.reader()("memory.hbm_bytes")
        self.hbm_used = [0] * cores
        self.resident: list[str] = [""] * cores  # hash of the program a core executed last
        self.device = [simpy.Resource(self.env, 1) for _ in range(cores)]  # one program at a time
        self.units = {(c, k, q): _Unit(self, c, k, q) for c in range(cores) for k in XuType for q in range(k.queues)}
        self.by_id = {u.id: u for u in self.units.values()}
        self.neffs: dict[str, Neff] = {}
        self.calls = 0  # synchronous calls that have not returned
        self._models: dict[int, Model] = {}  # loaded, or unloaded after it ran: its events name it
        self._loaded = [0] * cores
        self._model_ids = self._tensor_ids = 0
        self.watchers: dict[int, list[simpy.Event]] = {}  # sequence -> events to fire at its completion
        self.completed_at: dict[int, int] = {}  # sequence -> when the host knew
        self.executions = 0
        self.threads = 0

    # ---- running

    def thread(self, body: Callable[[int], Step]) -> simpy.Process:
        """A host thread: `body(thread number)` is a generator that calls the runtime."""
        number = self.threads
        self.threads += 1
        return self.env.process(body(number))

    def run(self, *bodies: Callable[[int], Step]) -> list[Any]:
        """Start host threads together and run until all end; their return values."""
        threads = [self.thread(b) for b in bodies]
        done = self.env.all_of(threads)
        self.env.run(until=done)
        return [t.value for t in threads]

    def usable(self) -> NrtStatus:
        """SUCCESS between nrt_init and nrt_close."""
        return self.state

    def spend(self, ns: int) -> simpy.Event:
        """Host or device time."""
        return self.env.timeout(ns)

    @property
    def now(self) -> int:
        return self.env.now  # type: ignore[return-value]

    @property
    def models(self) -> list[Model]:
        """Models that are loaded or have run, in order of loading."""
        return list(self._models.values())

    # ---- process

    def nrt_init(self, framework: str = "nc-sim", version: str = "", fal: str = "") -> NrtStatus:
        """Once per process; before it every call gives UNINITIALIZED."""
        if self.state is not NrtStatus.UNINITIALIZED:
            return NrtStatus.INVALID if self.state is NrtStatus.SUCCESS else NrtStatus.CLOSED
        self.state = NrtStatus.SUCCESS
        for unit in self.units.values():
            self.env.process(self._serve(unit))
        return NrtStatus.SUCCESS

    def nrt_close(self) -> NrtStatus:
        """Ends the process's use of the device. Work in flight keeps it open: EXEC_NC_BUSY, and nothing is lost."""
        if (bad := self.usable()) is not NrtStatus.SUCCESS:
            return bad
        if self.calls or any(u.outstanding for u in self.units.values()):
            return NrtStatus.EXEC_NC_BUSY
        self.state = NrtStatus.CLOSED
        return NrtStatus.SUCCESS

    def nrt_get_visible_vnc_count(self) -> tuple[NrtStatus, int]:
        """Logical cores of this process."""
        return self.usable(), self.cores

    # ---- programs

    def nrt_load(self, program: Program, vnc: int = -1) -> tuple[NrtStatus, Model | None]:
        """Load a program on a core; -1 takes the core with the fewest loaded programs.

        A program that `simulate` refuses is not loaded: its error is raised.
        """
        if (bad := self.usable()) is not NrtStatus.SUCCESS:
            return bad, None
        if vnc >= self.cores or vnc < -1:
            return NrtStatus.LOAD_NOT_ENOUGH_NC, None
        core = vnc if vnc >= 0 else self._loaded.index(min(self._loaded))
        neff = self.neff(program)
        if self.hbm_used[core] + _own_bytes(neff) > self.hbm_bytes:
            return NrtStatus.RESOURCE, None
        self.hbm_used[core] += _own_bytes(neff)
        model = Model(self._model_ids, neff, core)
        self._model_ids += 1
        self._models[model.id] = model
        self._loaded[core] += 1
        self._note("nrt_load", core, {"model_id": model.id, "model_name": program.name})
        return NrtStatus.SUCCESS, model

    def nrt_unload(self, model: Model) -> NrtStatus:
        """Free a model; INVALID_HANDLE if it is not loaded, EXEC_NC_BUSY while it executes."""
        if (bad := self.usable()) is not NrtStatus.SUCCESS:
            return bad
        if not model.loaded or self._models.get(model.id) is not model:
            return NrtStatus.INVALID_HANDLE
        if model.in_flight:
            return NrtStatus.EXEC_NC_BUSY
        model.loaded = False
        if not model.executions:
            del self._models[model.id]
        self._loaded[model.core] -= 1
        self.hbm_used[model.core] -= _own_bytes(model.neff)
        self._note("nrt_unload", model.core, {"model_id": model.id, "model_name": model.neff.program.name})
        return NrtStatus.SUCCESS

    def neff(self, program: Program) -> Neff:
        """The compiled form of a program, and the time its core takes; computed once per program.

        What `simulate` raises for a program is raised here: ProgramError (Race and Deadlock among them) and the others.
        """
        key = canonical_hash(program)
        if key not in self.neffs:
            result = simulate(program, self.chip, values=False)
            reader = self.chip.reader()
            fixed = float(reader("program.prologue_ns") + reader("program.epilogue_ns"))
            self.neffs[key] = Neff(result, key, math.ceil(result.duration_ns + fixed))
        return self.neffs[key]

    # ---- tensors

    def nrt_tensor_allocate(self, placement: str, vnc: int, size: int, name: str = "") -> tuple[NrtStatus, DeviceTensor | None]:
        """A buffer on a core ("device") or on the host; RESOURCE when the core's HBM has no room."""
        if (bad := self.usable()) is not NrtStatus.SUCCESS:
            return bad, None
        if placement not in ("device", "host") or size < 1 or (placement == "device" and not 0 <= vnc < self.cores):
            return NrtStatus.INVALID, None
        core = vnc if placement == "device" else -1
        if core >= 0 and self.hbm_used[core] + size > self.hbm_bytes:
            return NrtStatus.RESOURCE, None
        tensor = DeviceTensor(self._tensor_ids, name, core, np.zeros(size, np.uint8))
        self._tensor_ids += 1
        if core >= 0:
            self.hbm_used[core] += size
        self._note("nrt_tensor_allocate", core, {"tensor_id": tensor.id, "size": size})
        return NrtStatus.SUCCESS, tensor

    def nrt_tensor_free(self, tensor: DeviceTensor) -> NrtStatus:
        """INVALID_HANDLE if freed before; INVALID while a request uses it: it must live until that completes."""
        if (bad := self.usable()) is not NrtStatus.SUCCESS:
            return bad
        if tensor.freed:
            return NrtStatus.INVALID_HANDLE
        if tensor.in_flight:
            return NrtStatus.INVALID
        if tensor.core >= 0:
            self.hbm_used[tensor.core] -= tensor.size
        self._note("nrt_tensor_free", tensor.core, {"tensor_id": tensor.id, "size": tensor.size})
        tensor.freed, tensor.data = True, np.empty(0, np.uint8)
        return NrtStatus.SUCCESS

    def nrt_tensor_write(self, tensor: DeviceTensor, data: np.ndarray, offset: int = 0, *, thread: int = 0) -> Step:
        """Host to device, synchronous; returns the status."""
        return (yield from self._copy_now("nrt_tensor_write", _bytes(data), 0, tensor, offset, data.nbytes, thread))

    def nrt_tensor_read(self, tensor: DeviceTensor, into: np.ndarray, offset: int = 0, *, thread: int = 0) -> Step:
        """Device to host, synchronous: what the tensor holds at that moment, whoever is about to write it."""
        return (yield from self._copy_now("nrt_tensor_read", tensor, offset, _bytes(into), 0, into.nbytes, thread))

    def nrt_tensor_copy(
        self, src: DeviceTensor, src_offset: int, dst: DeviceTensor, dst_offset: int, size: int, *, thread: int = 0
    ) -> Step:
        """Between two tensors, synchronous; INVALID for tensors of two cores. Returns the status."""
        return (yield from self._copy_now("nrt_tensor_copy", src, src_offset, dst, dst_offset, size, thread))

    def _copy_now(self, name: str, src: Any, at: int, dst: Any, to: int, size: int, thread: int) -> Step:
        if (bad := self._copy_status(src, at, dst, to, size)) is not NrtStatus.SUCCESS:
            return bad
        start = self.now
        tensors = [x for x in (src, dst) if isinstance(x, DeviceTensor)]
        core = max(t.core for t in tensors)
        self.calls += 1
        _hold(tensors, 1)
        try:
            yield self.spend(self._copy_ns(size))
            _move(src, at, dst, to, size)
        finally:
            self.calls -= 1
            _hold(tensors, -1)
        outer = self.trace.add(name, RUNTIME, start, self.now, core=core, thread=thread, attributes={"size": size})
        if inner := _direction(src, dst):
            self.trace.add(inner, RUNTIME, start, self.now, core=core, thread=thread, parent=outer, attributes={"size": size})
        return NrtStatus.SUCCESS

    def _copy_status(self, src: Any, at: int, dst: Any, to: int, size: int) -> NrtStatus:
        if (bad := self.usable()) is not NrtStatus.SUCCESS:
            return bad
        tensors = [x for x in (src, dst) if isinstance(x, DeviceTensor)]
        if any(t.freed for t in tensors):
            return NrtStatus.INVALID_HANDLE
        ends = ((src, at), (dst, to))
        if size < 1 or any(o < 0 or o + size > (x.size if isinstance(x, DeviceTensor) else x.nbytes) for x, o in ends):
            return NrtStatus.INVALID
        if len({t.core for t in tensors if t.core >= 0}) > 1:
            return NrtStatus.INVALID  # device to device asks for one core
        return NrtStatus.SUCCESS

    def _copy_ns(self, size: int) -> int:
        return self.profile.copy_ns + -(-size * 1000 // self.profile.copy_bytes_per_us)

    # ---- execution

    def nrt_execute(
        self, model: Model, inputs: Mapping[str, DeviceTensor], outputs: Mapping[str, DeviceTensor], *, thread: int = 0
    ) -> Step:
        """Execute and wait; returns the status."""
        if (bad := self._schedule_status(model, inputs, outputs, 0)) is not NrtStatus.SUCCESS:
            return bad
        ret, start = Ret(), self.now
        request = Request(0, XuType.COMPUTE, model.core, 0, ret, thread, model, dict(inputs), dict(outputs), synchronous=True)
        self.calls += 1
        try:
            status, seq = yield from self._enqueue(request, "nrta_execute_schedule")
            if status is not NrtStatus.SUCCESS:
                return status
            _, done = self.nrta_event_register_seq_id_completion(seq)
            yield done
        finally:
            self.calls -= 1
        self.trace.add(
            "nrt_execute",
            RUNTIME,
            start,
            self.now,
            id=request.parent,
            core=model.core,
            thread=thread,
            flow=(seq,),
            attributes={"model_name": model.neff.program.name},
        )
        return ret.value

    def nrta_execute_schedule(
        self, model: Model, inputs: Mapping[str, DeviceTensor], outputs: Mapping[str, DeviceTensor], queue: int, ret: Ret,
        *, thread: int = 0, label: str = "",
    ) -> Step:  # fmt: skip
        """Enqueue and return (status, sequence id) at once; `ret` is written when the run completes."""
        if (bad := self._schedule_status(model, inputs, outputs, queue)) is not NrtStatus.SUCCESS:
            return bad, 0
        request = Request(0, XuType.COMPUTE, model.core, queue, ret, thread, model, dict(inputs), dict(outputs), label=label)
        return (yield from self._enqueue(request, "nrta_execute_schedule"))

    def nrta_tensor_write(self, tensor: DeviceTensor, data: np.ndarray, offset: int, queue: int, ret: Ret, *, thread: int = 0) -> Step:
        """Enqueue a copy to the device. Zero copy: the host buffer is read when the copy runs."""
        return (yield from self._enqueue_copy("nrta_tensor_write", _bytes(data), 0, tensor, offset, data.nbytes, queue, ret, thread))

    def nrta_tensor_read(self, into: np.ndarray, tensor: DeviceTensor, offset: int, queue: int, ret: Ret, *, thread: int = 0) -> Step:
        """Enqueue a copy to the host."""
        return (yield from self._enqueue_copy("nrta_tensor_read", tensor, offset, _bytes(into), 0, into.nbytes, queue, ret, thread))

    def nrta_tensor_copy(
        self, src: DeviceTensor, src_offset: int, dst: DeviceTensor, dst_offset: int, size: int, queue: int, ret: Ret, *, thread: int = 0
    ) -> Step:
        """Enqueue a copy between two tensors of one core."""
        return (yield from self._enqueue_copy("nrta_tensor_copy", src, src_offset, dst, dst_offset, size, queue, ret, thread))

    def _enqueue_copy(self, name: str, src: Any, at: int, dst: Any, to: int, size: int, queue: int, ret: Ret, thread: int) -> Step:
        if (bad := self._copy_status(src, at, dst, to, size)) is not NrtStatus.SUCCESS:
            return bad, 0
        if not 0 <= queue < XuType.TENSOR_OP.queues:
            return NrtStatus.INVALID, 0
        core = max(x.core for x in (src, dst) if isinstance(x, DeviceTensor))
        if core < 0:
            return NrtStatus.INVALID, 0
        request = Request(0, XuType.TENSOR_OP, core, queue, ret, thread, copy=(src, at, dst, to, size), label=name)
        return (yield from self._enqueue(request, name))

    def _enqueue(self, request: Request, name: str) -> Step:
        unit = self.units[request.core, request.kind, request.queue]
        if unit.broken:
            return NrtStatus.EXEC_UNIT_UNRECOVERABLE, 0
        if unit.outstanding >= self.queue_depth:
            return NrtStatus.QUEUE_FULL, 0
        unit.issued += 1
        request.seq = unit.id << XU_BITS | unit.issued
        _hold(request.holds(), 1)
        if request.model is not None:
            request.model.in_flight += 1
        if request.synchronous:
            request.parent = self.trace.reserve()
        start = self.now
        yield self.spend(self.profile.schedule_ns)
        outer = self._step(name, request, start, (request.seq,), {"label": request.label})
        if request.model is not None:
            self._step("nrt_model_submit", request, start, (request.seq,), parent=outer)
        unit.waiting.append(request)
        if not unit.work.triggered:
            unit.work.succeed()
        return NrtStatus.SUCCESS, request.seq

    def _schedule_status(
        self, model: Model, inputs: Mapping[str, DeviceTensor], outputs: Mapping[str, DeviceTensor], queue: int
    ) -> NrtStatus:
        if (bad := self.usable()) is not NrtStatus.SUCCESS:
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

    # ---- completion

    def nrta_is_completed(self, seq: int) -> tuple[NrtStatus, bool]:
        """INVALID for a sequence id that no request had."""
        if (bad := self.usable()) is not NrtStatus.SUCCESS:
            return bad, False
        unit = self.by_id.get(seq >> XU_BITS)
        number = seq & SEQUENCE_MASK
        if unit is None or not 1 <= number <= unit.issued:
            return NrtStatus.INVALID, False
        return NrtStatus.SUCCESS, number <= unit.completed

    def nrta_get_sequence(self, lnc: int, kind: XuType, queue: int) -> tuple[NrtStatus, int]:
        """The last completed sequence id of a unit; QUEUE_EMPTY if nothing has completed."""
        if (bad := self.usable()) is not NrtStatus.SUCCESS:
            return bad, 0
        unit = self.units.get((lnc, kind, queue))
        if unit is None:
            return NrtStatus.INVALID, 0
        if unit.completed == 0:
            return NrtStatus.QUEUE_EMPTY, 0
        return NrtStatus.SUCCESS, unit.id << XU_BITS | unit.completed

    def nrta_event_register_seq_id_completion(self, seq: int) -> tuple[NrtStatus, simpy.Event]:
        """An event that fires when a request is done, at once if it is; its value is the sequence id.

        INVALID for a sequence id that no request had. The event of a call that fails fires at once, so that nobody hangs.
        """
        event = self.env.event()
        status, done = self.nrta_is_completed(seq)
        if done or status is not NrtStatus.SUCCESS:
            event.succeed(seq)
        else:
            self.watchers.setdefault(seq, []).append(event)
        return status, event

    def nrta_event_register_xu_completion(self, lnc: int, kind: XuType, queue: int) -> tuple[NrtStatus, simpy.Event]:
        """An event that fires when a unit next completes a request; its value is the sequence id. INVALID for no unit."""
        event = self.env.event()
        unit = self.units.get((lnc, kind, queue))
        status = self.usable()
        if status is NrtStatus.SUCCESS and unit is None:
            status = NrtStatus.INVALID
        if status is not NrtStatus.SUCCESS or unit is None:
            event.succeed()
        else:
            unit.watchers.append(event)
        return status, event

    # ---- the units

    def _serve(self, unit: _Unit) -> Step:
        """One unit: requests in order. A compute unit hands to the device and goes on; completions stay in order."""
        before: simpy.Event = self.env.event().succeed()
        while True:
            while not unit.waiting:
                unit.work = self.env.event()
                yield unit.work
            request = unit.waiting.popleft()
            if request.kind is XuType.COMPUTE:
                if not unit.broken:
                    start = self.now
                    yield self.spend(self.profile.process_ns)
                    self._step("kbl_exec_pre", request, start, (request.seq,))
                after = self.env.event()
                self.env.process(self._execute(unit, request, before, after))
                before = after
            else:
                yield from self._transfer(request)
                self._finish(unit, request)

    def _transfer(self, request: Request) -> Step:
        assert request.copy is not None
        src, at, dst, to, size = request.copy
        start = self.now
        yield self.spend(self._copy_ns(size))
        _move(src, at, dst, to, size)
        if inner := _direction(src, dst):
            self._step(inner, request, start, (request.seq,), {"size": size})

    def _execute(self, unit: _Unit, request: Request, before: simpy.Event, after: simpy.Event) -> Step:
        """The device's part, then the way back to the host. What a broken unit still holds does not run."""
        waited = self.now
        with self.device[unit.core].request() as turn:
            yield turn
            runs = not unit.broken
            if runs:
                start = yield from self._run(unit, request)
        if runs:
            yield self.spend(self.profile.completion_ns)
        else:
            request.status = NrtStatus.EXEC_UNIT_UNRECOVERABLE
        yield before  # completions of one unit come in order
        if runs:
            wait = self._step("kbl_exec_wait", request, waited, (request.seq, request.exec_id))
            sync = {"cpu_timestamp_ns": start, "nc_timestamp_ns": start, "exec_id": request.exec_id}
            self.trace.add(
                "timestamp_sync_point", HARDWARE, start, start, core=unit.core, parent=wait, flow=(request.exec_id,), attributes=sync
            )
            self._step("kbl_exec_post", request, self.now, (request.seq,))
        self._finish(unit, request)
        after.succeed()

    def _run(self, unit: _Unit, request: Request) -> Step:
        """One execution on the core: operands are read at its beginning, results written at its end. Returns when it began."""
        model, core = request.model, unit.core
        assert model is not None
        request.exec_id = self.executions
        self.executions += 1
        if self.resident[core] != model.neff.hash:
            start = self.now
            yield self.spend(self.profile.switch_ns)
            self.trace.add(
                "nc_model_switch", HARDWARE, start, self.now, core=core, flow=(request.exec_id,), attributes={"model_id": model.id}
            )
            self.resident[core] = model.neff.hash
        start = self.now
        length = min(model.neff.total_ns, self.exec_timeout_ns)
        in_time = length == model.neff.total_ns
        results: dict[str, np.ndarray] = {}
        if not in_time:
            request.status = NrtStatus.TIMEOUT
        elif self.values:
            request.status, results = self._compute(model, request)
        yield self.spend(length)
        for name, data in results.items():
            request.outputs[name].data[:] = data
        unit.broken = not in_time
        model.executions += 1
        model.running_ns += length
        running = {"exec_id": request.exec_id, "model_id": model.id, "model_name": model.neff.program.name, "device_core_idx": core}
        self.trace.add("nc_exec_running", HARDWARE, start, self.now, core=core, flow=(request.exec_id,), attributes=running)
        return start

    def _finish(self, unit: _Unit, request: Request) -> None:
        unit.completed += 1
        self.completed_at[request.seq] = self.now
        _hold(request.holds(), -1)
        if request.model is not None:
            request.model.in_flight -= 1
        request.ret.value = request.status
        watching, unit.watchers = self.watchers.pop(request.seq, []) + unit.watchers, []
        for event in watching:
            event.succeed(request.seq)

    def _compute(self, model: Model, request: Request) -> tuple[NrtStatus, dict[str, np.ndarray]]:
        """What the program makes of the request's inputs, as bytes; NaN in an output is reported, as the hardware counts it."""
        compiled = model.neff.compiled
        memories = Memories(compiled.tensors, compiled.addresses, self.chip.reader(), {})
        for name, tensor in request.inputs.items():
            memories.hbm[name] = tensor.data.copy()
        interpret(compiled.steps, memories)
        status = NrtStatus.SUCCESS
        for name in request.outputs:
            found = memories.tensor(compiled.tensors[name])
            if compiled.tensors[name].dtype.kind == "float" and np.isnan(found.astype(np.float32)).any():
                status = NrtStatus.EXEC_COMPLETED_WITH_NUM_ERR
        return status, {name: memories.hbm[name] for name in request.outputs}

    # ---- events

    def _note(self, name: str, core: int, attributes: dict[str, Any]) -> None:
        """The event of a call that takes no time."""
        self.trace.add(name, RUNTIME, self.now, self.now, core=core, attributes=attributes)

    def _step(
        self,
        name: str,
        request: Request,
        start: int,
        flow: tuple[int, ...],
        attributes: dict[str, Any] | None = None,
        parent: int | None = None,
    ) -> int:
        """The event of a step of a request, ending now; inside the request's own event unless `parent` says otherwise."""
        return self.trace.add(
            name,
            RUNTIME,
            start,
            self.now,
            core=request.core,
            thread=request.thread,
            parent=request.parent if parent is None else parent,
            flow=flow,
            attributes=attributes or {},
        )

    # ---- trace control

    def nrt_sys_trace_config_set_capture_enabled(self, cores: Iterable[int] | None = None, types: Iterable[str] | None = None) -> NrtStatus:
        """Which cores and event types are captured; None for all. Types are names and the groups `hardware` and `software`.

        A word with a `^` leaves its name or group out of what the others choose, or of everything. INVALID, and nothing
        changes, if there is no such core or type.
        """
        wanted, words = list(cores or ()), list(types or ())
        if unknown(words) or any(c not in range(self.cores) for c in wanted):
            return NrtStatus.INVALID
        self.trace.cores = None if cores is None else frozenset(wanted)
        self.trace.names = None if types is None else chosen(words)
        return NrtStatus.SUCCESS


def _own_bytes(neff: Neff) -> int:
    """HBM a loaded program keeps for itself: constants and intermediates."""
    return sum(t.partition_bytes for t in neff.compiled.tensors.values() if t.memory.name == "HBM" and t.kind in ("constant", "internal"))


def _bytes(array: np.ndarray) -> np.ndarray:
    """The array's own memory as bytes."""
    if not array.flags.c_contiguous:
        raise ValueError("a host buffer must be contiguous")
    view: np.ndarray = array.reshape(-1).view(np.uint8)
    return view


def _hold(tensors: Iterable[DeviceTensor], by: int) -> None:
    """Count a use of tensors, which must live until it ends."""
    for tensor in tensors:
        tensor.in_flight += by


def _direction(src: Any, dst: Any) -> str:
    """The event of a copy's bytes between host and device; none for a copy within either."""
    leaves, enters = (isinstance(x, DeviceTensor) and x.core >= 0 for x in (src, dst))
    return "" if leaves == enters else "dmem_buf_copyout" if leaves else "dmem_buf_copyin"


def _move(src: Any, at: int, dst: Any, to: int, size: int) -> None:
    data = src.data if isinstance(src, DeviceTensor) else src
    into = dst.data if isinstance(dst, DeviceTensor) else dst
    into[to : to + size] = data[at : at + size]


__all__ = ["Ret", "Runtime", "TensorSet"]
