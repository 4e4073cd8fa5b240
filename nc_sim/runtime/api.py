"""The nrt_* and nrta_* calls. Those that take host time are SimPy generators: `status = yield from rt.nrt_execute(...)`.

Source: aws-neuron-sdk v2.32.0, neuron-runtime/api (nrt, nrt_async, the 3.0 form). Statuses are values, never exceptions,
as in the C interface; only misuse of Python itself raises.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import simpy

from .. import chip as chips
from ..chip import Chip
from ..forms import canonical_hash
from ..isa.errors import ProgramError
from ..program import Program
from ..simulate import simulate
from . import completion, dispatch, host, tensors, tracing, units
from .events import Recorder
from .objects import InstanceInfo, MemoryStats, Model, ModelTensorInfo, Neff, Ret, TensorSet, Usage
from .status import INSTANCE_SIZE_UNKNOWN, InstanceFamily, NrtStatus, XuType
from .units import Step, Unit, note


class Runtime:
    """One process of the simulated host, its cores and their queues. Time is integer ns in `env.now`.

    `cores` are the logical cores of the instance, `visible_cores` those of them that the process has, which it numbers from 0.
    `lnc` physical cores, 1 or 2, make a logical one. Without `precache_node_info` the first run of a program notes its nodes.
    """

    def __init__(
        self, profile: str | Path | host.HostProfile = "blog", chip: str | Path | Chip = "trn2", *, cores: int = 1,
        visible_cores: Sequence[int] | None = None, lnc: int = 1, queue_depth: int = 64, exec_timeout_ns: int = 30_000_000_000,
        values: bool = True, precache_node_info: bool = True, trace: Recorder | None = None,
    ) -> None:  # fmt: skip
        counts = (("cores", cores), ("queue_depth", queue_depth), ("exec_timeout_ns", exec_timeout_ns))
        for name, value in counts:
            if type(value) is not int or value < 1:
                raise ProgramError("Runtime", f"{name}={value!r:.80}", "a whole number of at least 1")
        self.profile, self.chip = host.load(profile), chips.load(chip)
        self.env = simpy.Environment()
        visible = list(range(cores) if visible_cores is None else visible_cores)
        if (
            not visible
            or not all(type(v) is int for v in visible)
            or visible[0] < 0
            or visible[-1] >= cores
            or visible != list(range(visible[0], visible[0] + len(visible)))
        ):
            raise ProgramError("Runtime", f"visible_cores={visible}", f"consecutive numbers of the instance's {cores} cores")
        if type(lnc) is not int or lnc not in (1, 2):
            raise ProgramError("Runtime", f"lnc={lnc}", "1 or 2 physical cores in a logical one")
        self.lnc, self.precache_node_info = lnc, precache_node_info
        self.total_cores, self.first_core, cores = cores, visible[0], len(visible)
        self.cores, self.queue_depth, self.exec_timeout_ns, self.values = cores, queue_depth, exec_timeout_ns, values
        self.trace = trace or Recorder()
        self.state = NrtStatus.UNINITIALIZED
        self.hbm_bytes: int = self.chip.reader()("memory.hbm_bytes")
        self.hbm_used = [0] * cores
        self.resident: list[str] = [""] * cores  # hash of the program a core executed last
        self.device = [simpy.Resource(self.env, 1) for _ in range(cores)]  # one program at a time
        self.units = {(c, k, q): Unit(self, c, k, q) for c in range(cores) for k in XuType for q in range(k.queues)}
        self.by_id = {u.id: u for u in self.units.values()}
        self.neffs: dict[str, Neff] = {}
        self.calls = 0  # synchronous calls that have not returned
        self._models: dict[int, Model] = {}  # loaded, or unloaded after it ran: its events name it
        self._loaded = [0] * cores
        self._model_ids = self.tensor_ids = 0
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
        """Start host threads together and run until all end; their return values. What is then in flight goes on in the next run.

        ProgramError if threads wait for what nothing that is left will bring about.
        """
        first = self.threads
        threads = [self.thread(b) for b in bodies]
        done = self.env.all_of(threads)
        try:
            self.env.run(until=done)
        except RuntimeError as e:
            if not isinstance(e.__context__, simpy.core.EmptySchedule):
                raise  # of a thread, or of what it started
            stuck = [first + k for k, t in enumerate(threads) if t.is_alive]
            where = f"Runtime.run at {self.now} ns"
            found = f"host threads {', '.join(map(str, stuck))} wait, and nothing is in flight"
            raise ProgramError(where, found, "events that fire, such as the completion of a request") from None
        return [t.value for t in threads]

    def usable(self) -> NrtStatus:
        """SUCCESS between nrt_init and nrt_close."""
        return self.state

    def spend(self, ns: int) -> simpy.Event:
        """Host or device time."""
        return self.env.timeout(ns)

    def physical_cores(self, core: int) -> range:
        """Numbers in the instance of the physical cores of a logical one; a program runs on the first."""
        first = self.lnc * (self.first_core + core)
        return range(first, first + self.lnc)

    def numbered(self, physical: int) -> dict[str, Any]:
        """The attribute of an event that tells its physical core, unless all have the numbers of their logical cores."""
        return {} if self.lnc == 1 and self.first_core == 0 else {"device_core_idx": physical}

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
            self.env.process(units.serve(self, unit))
        return NrtStatus.SUCCESS

    def nrt_close(self) -> NrtStatus:
        """Ends the process's use of the device. Work in flight keeps it open: EXEC_NC_BUSY, and nothing is lost."""
        if (bad := self.usable()) is not NrtStatus.SUCCESS:
            return bad
        if self.calls or any(u.outstanding for u in self.units.values()):
            return NrtStatus.EXEC_NC_BUSY
        self.state = NrtStatus.CLOSED
        return NrtStatus.SUCCESS

    def nrt_get_total_vnc_count(self) -> tuple[NrtStatus, int]:
        """Logical cores of the instance; can be asked at any time."""
        return NrtStatus.SUCCESS, self.total_cores

    def nrt_get_visible_vnc_count(self) -> tuple[NrtStatus, int]:
        """Logical cores of this process; can be asked at any time."""
        return NrtStatus.SUCCESS, self.cores

    def nrt_get_vnc_memory_stats(self, vnc: int) -> tuple[NrtStatus, MemoryStats | None]:
        """Bytes of HBM that a logical core uses and has; INVALID for no such core."""
        if (bad := self.usable()) is not NrtStatus.SUCCESS:
            return bad, None
        if not 0 <= vnc < self.cores:
            return NrtStatus.INVALID, None
        return NrtStatus.SUCCESS, MemoryStats(self.hbm_used[vnc], self.hbm_bytes)

    def nrt_get_instance_info(self) -> tuple[NrtStatus, InstanceInfo | None]:
        """The chip's family and core; size and revision are unknown."""
        if (bad := self.usable()) is not NrtStatus.SUCCESS:
            return bad, None
        family = InstanceFamily.__members__.get(self.chip.name.upper(), InstanceFamily.UNKNOWN)
        return NrtStatus.SUCCESS, InstanceInfo(family, INSTANCE_SIZE_UNKNOWN, self.chip.core, "")

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
        note(self, "nrt_load", core, {"model_id": model.id, "model_name": program.name})
        return NrtStatus.SUCCESS, model

    def nrt_unload(self, model: Model) -> NrtStatus:
        """Free a model; INVALID_HANDLE if it is not loaded, EXEC_NC_BUSY while it executes."""
        if (bad := self.usable()) is not NrtStatus.SUCCESS:
            return bad
        if not self.has(model):
            return NrtStatus.INVALID_HANDLE
        if model.in_flight:
            return NrtStatus.EXEC_NC_BUSY
        model.loaded = False
        if not model.executions:
            del self._models[model.id]
        self._loaded[model.core] -= 1
        self.hbm_used[model.core] -= _own_bytes(model.neff)
        note(self, "nrt_unload", model.core, {"model_id": model.id, "model_name": model.neff.program.name})
        return NrtStatus.SUCCESS

    def has(self, model: Model) -> bool:
        """Whether a model is loaded, and here."""
        return model.loaded and self._models.get(model.id) is model

    def nrt_get_model_tensor_info(self, model: Model) -> tuple[NrtStatus, list[ModelTensorInfo]]:
        """A loaded program's inputs, then its outputs."""
        if (bad := self.usable()) is not NrtStatus.SUCCESS:
            return bad, []
        if not self.has(model):
            return NrtStatus.INVALID_HANDLE, []
        named = ((Usage.INPUT, model.neff.inputs), (Usage.OUTPUT, model.neff.outputs))
        return NrtStatus.SUCCESS, [
            ModelTensorInfo(name, usage, t.partition_bytes, t.dtype.name, t.shape) for usage, of in named for name, t in of.items()
        ]

    def neff(self, program: Program) -> Neff:
        """The compiled form of a program, and the time its core takes; computed once per program.

        What `simulate` raises for a program is raised here: ProgramError (Race and Deadlock among them) and the others.
        """
        key = canonical_hash(program)
        if key not in self.neffs:
            result = simulate(program, self.chip, values=False)
            reader = self.chip.reader()
            fixed = float(reader("program.prologue_ns") + reader("program.epilogue_ns"))
            self.neffs[key] = Neff(result, key, math.ceil(result.duration_ns + fixed), math.ceil(fixed))
        return self.neffs[key]

    # ---- calls of other modules

    nrt_tensor_allocate = tensors.nrt_tensor_allocate
    nrt_tensor_allocate_empty = tensors.nrt_tensor_allocate_empty
    nrt_tensor_allocate_slice = tensors.nrt_tensor_allocate_slice
    nrt_tensor_attach_buffer = tensors.nrt_tensor_attach_buffer
    nrt_tensor_get_size = tensors.nrt_tensor_get_size
    nrt_tensor_free = tensors.nrt_tensor_free
    nrt_tensor_write = tensors.nrt_tensor_write
    nrt_tensor_read = tensors.nrt_tensor_read
    nrt_tensor_copy = tensors.nrt_tensor_copy
    nrt_tensor_write_batch = tensors.nrt_tensor_write_batch
    nrt_tensor_read_batch = tensors.nrt_tensor_read_batch
    nrt_tensor_memset = tensors.nrt_tensor_memset
    nrta_tensor_write = tensors.nrta_tensor_write
    nrta_tensor_read = tensors.nrta_tensor_read
    nrta_tensor_copy = tensors.nrta_tensor_copy

    nrt_allocate_tensor_set = tensors.nrt_allocate_tensor_set
    nrt_add_tensor_to_tensor_set = tensors.nrt_add_tensor_to_tensor_set
    nrt_get_tensor_from_tensor_set = tensors.nrt_get_tensor_from_tensor_set
    nrt_destroy_tensor_set = tensors.nrt_destroy_tensor_set

    nrt_execute = dispatch.nrt_execute
    nrt_execute_repeat = dispatch.nrt_execute_repeat
    nrta_execute_schedule = dispatch.nrta_execute_schedule

    nrta_is_completed = completion.nrta_is_completed
    nrta_get_sequence = completion.nrta_get_sequence
    nrta_event_register_seq_id_completion = completion.nrta_event_register_seq_id_completion
    nrta_event_register_xu_completion = completion.nrta_event_register_xu_completion
    nrt_tensor_check_output_completion = completion.nrt_tensor_check_output_completion
    nrt_tensor_reset_output_completion = completion.nrt_tensor_reset_output_completion

    nrt_sys_trace_config_set_capture_enabled = tracing.nrt_sys_trace_config_set_capture_enabled
    nrt_sys_trace_config_set_max_events_per_nc = tracing.nrt_sys_trace_config_set_max_events_per_nc
    nrt_sys_trace_get_event_types = tracing.nrt_sys_trace_get_event_types
    nrt_sys_trace_start = tracing.nrt_sys_trace_start
    nrt_sys_trace_stop = tracing.nrt_sys_trace_stop
    nrt_sys_trace_fetch_events = tracing.nrt_sys_trace_fetch_events


def _own_bytes(neff: Neff) -> int:
    """HBM a loaded program keeps for itself: constants and intermediates."""
    return sum(t.partition_bytes for t in neff.compiled.tensors.values() if t.memory.name == "HBM" and t.kind in ("constant", "internal"))


__all__ = ["Ret", "Runtime", "Step", "TensorSet"]
