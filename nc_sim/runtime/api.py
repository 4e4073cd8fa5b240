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
from ..lower import lower
from ..memory import Memories
from ..numerics import interpret
from ..program import Program
from ..result import body_ticks
from ..simulate import compile_program, run
from . import host
from .events import HARDWARE, RUNTIME, Recorder, chosen
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
        self.models: list[Model] = []
        self.tensors: list[DeviceTensor] = []
        self.neffs: dict[str, Neff] = {}
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
        if any(u.outstanding for u in self.units.values()):
            return NrtStatus.EXEC_NC_BUSY
        self.state = NrtStatus.CLOSED
        return NrtStatus.SUCCESS

    def nrt_get_visible_vnc_count(self) -> tuple[NrtStatus, int]:
        """Logical cores of this process."""
        return self.usable(), self.cores

    # ---- programs

    def nrt_load(self, program: Program, vnc: int = -1) -> tuple[NrtStatus, Model | None]:
        """Load a program on a core; -1 takes the core with the fewest loaded programs."""
        if (bad := self.usable()) is not NrtStatus.SUCCESS:
            return bad, None
        if vnc >= self.cores or vnc < -1:
            return NrtStatus.LOAD_NOT_ENOUGH_NC, None
        loaded = [sum(m.core == c and m.loaded for m in self.models) for c in range(self.cores)]
        core = vnc if vnc >= 0 else loaded.index(min(loaded))
        neff = self.neff(program)
        if self.hbm_used[core] + _own_bytes(neff) > self.hbm_bytes:
            return NrtStatus.RESOURCE, None
        self.hbm_used[core] += _own_bytes(neff)
        model = Model(len(self.models), neff, core)
        self.models.append(model)
        self.trace.add("nrt_load", RUNTIME, self.now, self.now, core=core, attributes={"model_id": model.id, "model_name": program.name})
        return NrtStatus.SUCCESS, model

    def nrt_unload(self, model: Model) -> NrtStatus:
        """Free a model; INVALID_HANDLE if it is not loaded, EXEC_NC_BUSY while it executes."""
        if (bad := self.usable()) is not NrtStatus.SUCCESS:
            return bad
        if not model.loaded:
            return NrtStatus.INVALID_HANDLE
        if model.in_flight:
            return NrtStatus.EXEC_NC_BUSY
        model.loaded = False
        self.hbm_used[model.core] -= _own_bytes(model.neff)
        return NrtStatus.SUCCESS

    def neff(self, program: Program) -> Neff:
        """The compiled form of a program, and the time its core takes; computed once per program."""
        key = canonical_hash(program)
        if key not in self.neffs:
            compiled, reader = compile_program(program, self.chip)
            table, _ = lower(compiled.steps, self.chip, names=compiled.semaphores)
            body = self.chip.ns(body_ticks(table, run(table, compiled.steps)))
            fixed = float(reader("program.prologue_ns") + reader("program.epilogue_ns"))
            self.neffs[key] = Neff(program, compiled, key, math.ceil(body), math.ceil(body + fixed))
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
        tensor = DeviceTensor(len(self.tensors), name, core, np.zeros(size, np.uint8))
        self.tensors.append(tensor)
        if core >= 0:
            self.hbm_used[core] += size
        return NrtStatus.SUCCESS, tensor

    def nrt_tensor_free(self, tensor: DeviceTensor) -> NrtStatus:
        """INVALID_HANDLE if freed before; INVALID while a request uses it: it must live until that completes."""
        if (bad := self.usable()) is not NrtStatus.SUCCESS:
            return bad
        if tensor.freed:
            return NrtStatus.INVALID_HANDLE
        if tensor.in_flight:
            return NrtStatus.INVALID
        tensor.freed = True
        if tensor.core >= 0:
            self.hbm_used[tensor.core] -= tensor.size
        return NrtStatus.SUCCESS

    def nrt_tensor_write(self, tensor: DeviceTensor, data: np.ndarray, offset: int = 0, *, thread: int = 0) -> Step:
        """Host to device, synchronous; returns the status."""
        return (yield from self._copy_now("nrt_tensor_write", "dmem_buf_copyin", _bytes(data), 0, tensor, offset, data.nbytes, thread))

    def nrt_tensor_read(self, tensor: DeviceTensor, into: np.ndarray, offset: int = 0, *, thread: int = 0) -> Step:
        """Device to host, synchronous: what the tensor holds at that moment, whoever is about to write it."""
        return (yield from self._copy_now("nrt_tensor_read", "dmem_buf_copyout", tensor, offset, _bytes(into), 0, into.nbytes, thread))

    def _copy_now(self, name: str, inner: str, src: Any, at: int, dst: Any, to: int, size: int, thread: int) -> Step:
        if (bad := self._copy_status(src, at, dst, to, size)) is not NrtStatus.SUCCESS:
            return bad
        start = self.now
        core = next(x.core for x in (src, dst) if isinstance(x, DeviceTensor))
        yield self.spend(self._copy_ns(size))
        _move(src, at, dst, to, size)
        outer = self.trace.add(name, RUNTIME, start, self.now, core=core, thread=thread, attributes={"size": size})
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
        ret = Ret()
        start = self.now
        status, seq = yield from self.nrta_execute_schedule(model, inputs, outputs, 0, ret, thread=thread)
        if status is not NrtStatus.SUCCESS:
            return status
        yield self.nrta_event_register_seq_id_completion(seq)
        self.trace.add(
            "nrt_execute",
            RUNTIME,
            start,
            self.now,
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
        for tensor in request.holds():
            tensor.in_flight += 1
        if request.model is not None:
            request.model.in_flight += 1
        start = self.now
        yield self.spend(self.profile.schedule_ns)
        outer = self.trace.add(
            name,
            RUNTIME,
            start,
            self.now,
            core=request.core,
            thread=request.thread,
            flow=(request.seq,),
            attributes={"label": request.label},
        )
        if request.model is not None:
            self.trace.add(
                "nrt_model_submit", RUNTIME, start, self.now, core=request.core, thread=request.thread, parent=outer, flow=(request.seq,)
            )
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

    def nrta_event_register_seq_id_completion(self, seq: int) -> simpy.Event:
        """An event that fires when a request is done, at once if it is."""
        event = self.env.event()
        status, done = self.nrta_is_completed(seq)
        if done or status is not NrtStatus.SUCCESS:
            event.succeed()
        else:
            self.watchers.setdefault(seq, []).append(event)
        return event

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
                start = self.now
                yield self.spend(self.profile.process_ns)
                self.trace.add("kbl_exec_pre", RUNTIME, start, self.now, core=unit.core, thread=request.thread, flow=(request.seq,))
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
        if any(t.freed for t in request.holds()):
            request.status = NrtStatus.INVALID_HANDLE
        else:
            _move(src, at, dst, to, size)
        inner = "dmem_buf_copyout" if request.label == "nrta_tensor_read" else "dmem_buf_copyin"
        self.trace.add(
            inner, RUNTIME, start, self.now, core=request.core, thread=request.thread, flow=(request.seq,), attributes={"size": size}
        )

    def _execute(self, unit: _Unit, request: Request, before: simpy.Event, after: simpy.Event) -> Step:
        """The device's part, then the way back to the host."""
        model, core = request.model, unit.core
        assert model is not None
        waited = self.now
        with self.device[core].request() as turn:
            yield turn
            request.exec_id = self.executions
            self.executions += 1
            switched = self.resident[core] != model.neff.hash
            if switched:
                start = self.now
                yield self.spend(self.profile.switch_ns)
                self.trace.add(
                    "nc_model_switch", HARDWARE, start, self.now, core=core, flow=(request.exec_id,), attributes={"model_id": model.id}
                )
                self.resident[core] = model.neff.hash
            start = self.now
            length = min(model.neff.total_ns, self.exec_timeout_ns)
            yield self.spend(length)
            if model.neff.total_ns > self.exec_timeout_ns:
                request.status, unit.broken = NrtStatus.TIMEOUT, True
            elif self.values:
                request.status = self._compute(model, request)
            model.executions += 1
            running = {"exec_id": request.exec_id, "model_id": model.id, "model_name": model.neff.program.name, "device_core_idx": core}
            self.trace.add("nc_exec_running", HARDWARE, start, start + length, core=core, flow=(request.exec_id,), attributes=running)
        yield self.spend(self.profile.completion_ns)
        yield before  # completions of one unit come in order
        wait = self.trace.add(
            "kbl_exec_wait", RUNTIME, waited, self.now, core=core, thread=request.thread, flow=(request.seq, request.exec_id)
        )
        sync = {"cpu_timestamp_ns": start, "nc_timestamp_ns": start, "exec_id": request.exec_id}
        self.trace.add("timestamp_sync_point", HARDWARE, start, start, core=core, parent=wait, flow=(request.exec_id,), attributes=sync)
        self.trace.add("kbl_exec_post", RUNTIME, self.now, self.now, core=core, thread=request.thread, flow=(request.seq,))
        self._finish(unit, request)
        after.succeed()

    def _finish(self, unit: _Unit, request: Request) -> None:
        unit.completed += 1
        self.completed_at[request.seq] = self.now
        for tensor in request.holds():
            tensor.in_flight -= 1
        if request.model is not None:
            request.model.in_flight -= 1
        request.ret.value = request.status
        for event in self.watchers.pop(request.seq, []):
            event.succeed()

    def _compute(self, model: Model, request: Request) -> NrtStatus:
        """The program's values on the tensors of the request; NaN in an output is reported, as the hardware counts it."""
        compiled = model.neff.compiled
        memories = Memories(compiled.tensors, compiled.addresses, self.chip.reader(), {})
        for name, tensor in request.inputs.items():
            memories.hbm[name] = tensor.data.copy()
        interpret(compiled.steps, memories)
        status = NrtStatus.SUCCESS
        for name, tensor in request.outputs.items():
            tensor.data[:] = memories.hbm[name]
            found = memories.tensor(compiled.tensors[name])
            if compiled.tensors[name].dtype.kind == "float" and np.isnan(found.astype(np.float32)).any():
                status = NrtStatus.EXEC_COMPLETED_WITH_NUM_ERR
        return status

    # ---- trace control

    def nrt_sys_trace_config_set_capture_enabled(self, cores: Iterable[int] | None = None, types: Iterable[str] | None = None) -> NrtStatus:
        """Which cores and event types are captured; groups `hardware` and `software`, `^name` leaves one out."""
        self.trace.cores = None if cores is None else frozenset(cores)
        self.trace.names = None if types is None else chosen(types)
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


def _move(src: Any, at: int, dst: Any, to: int, size: int) -> None:
    data = src.data if isinstance(src, DeviceTensor) else src
    into = dst.data if isinstance(dst, DeviceTensor) else dst
    into[to : to + size] = data[at : at + size]


__all__ = ["Ret", "Runtime", "TensorSet"]
