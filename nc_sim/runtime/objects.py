"""What the runtime's handles stand for: loaded programs, tensors, sets of tensors, requests."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

import attrs
import numpy as np
import simpy

from ..program import Program, Tensor
from ..result import Result
from ..simulate import Compiled
from .status import InstanceFamily, NrtStatus, XuType


@attrs.define(eq=False)
class Neff:
    """A program compiled for a chip, with the time one execution takes; shared by every load of it."""

    result: Result  # of a timing-only run
    hash: str  # 20 decimal digits
    total_ns: int  # prologue, body and epilogue: what nc_exec_running lasts
    fixed_ns: int  # prologue and epilogue alone
    noted: bool = False  # nrt_profile_add_node_info was seen

    @property
    def program(self) -> Program:
        """As it was built."""
        return self.result.program

    @property
    def compiled(self) -> Compiled:
        """As it runs on the chip."""
        return self.result.compiled

    @property
    def inputs(self) -> dict[str, Tensor]:
        """Input tensors by name."""
        return {t.name: t for t in self.compiled.tensors.values() if t.kind == "input"}

    @property
    def outputs(self) -> dict[str, Tensor]:
        """Output tensors by name."""
        return {t.name: t for t in self.compiled.tensors.values() if t.kind == "output"}


@attrs.define(eq=False)
class Model:
    """A loaded program (nrt_model_t)."""

    id: int
    neff: Neff
    core: int
    loaded: bool = True
    in_flight: int = 0
    executions: int = 0
    running_ns: int = 0  # all of its nc_exec_running


@attrs.define(eq=False)
class Storage:
    """Bytes that tensors share; they are given back when the last of these is freed."""

    core: int  # -1: on the host
    size: int  # that it takes of the core's HBM
    users: int = 1


@attrs.define(eq=False)
class DeviceTensor:
    """A buffer (nrt_tensor_t) on a core's HBM, or on the host: all of a storage, or a slice of it."""

    id: int
    name: str
    storage: Storage
    data: np.ndarray  # uint8; empty without storage and once freed
    freed: bool = False
    in_flight: int = 0
    completions: int = 0  # executions that wrote it as an output, since the last reset
    waiting: list[simpy.Event] = attrs.field(factory=list)  # to fire at the next of them

    @property
    def core(self) -> int:
        """Of its storage; -1 on the host."""
        return self.storage.core

    @property
    def size(self) -> int:
        """Bytes."""
        return self.data.nbytes


@attrs.define(eq=False)
class TensorSet:
    """Tensors by the names they have in a program (nrt_tensor_set_t)."""

    tensors: dict[str, DeviceTensor] = attrs.field(factory=dict)
    destroyed: bool = False
    in_flight: int = 0


Tensors = Mapping[str, DeviceTensor]
Batch = tuple[DeviceTensor, Sequence[tuple[int, np.ndarray]]]  # a tensor, and the offset and the host buffer of each copy


class Usage(enum.IntEnum):
    """What a program uses a tensor for (nrt_tensor_usage_t)."""

    INPUT = 0
    OUTPUT = 1


@attrs.frozen
class ModelTensorInfo:
    """What a program says of one of its tensors (nrt_tensor_info_t); `size` in bytes."""

    name: str
    usage: Usage
    size: int
    dtype: str
    shape: tuple[int, ...]


@attrs.frozen
class MemoryStats:
    """Of a logical core's HBM, in bytes (nrt_vnc_memory_stats_t)."""

    bytes_used: int
    bytes_limit: int


@attrs.frozen
class InstanceInfo:
    """nrt_instance_info_t. The size and the revision of a simulated machine are not known, and said to be so."""

    family: InstanceFamily
    size: int
    arch_name: str
    device_revision: str


@attrs.define(eq=False)
class Ret:
    """Where an asynchronous call writes its status: None until the work is done."""

    value: NrtStatus | None = None


@attrs.define(eq=False)
class Request:
    """One enqueued piece of work."""

    seq: int
    kind: XuType
    core: int
    queue: int
    ret: Ret
    thread: int
    model: Model | None = None
    inputs: Tensors = attrs.field(factory=dict)
    outputs: Tensors = attrs.field(factory=dict)
    sets: tuple[TensorSet, ...] = ()  # that these came from
    copy: tuple[DeviceTensor | np.ndarray, int, DeviceTensor | np.ndarray, int, int] | None = None  # src, at, dst, at, bytes
    label: str = ""
    synchronous: bool = False  # of nrt_execute
    call: int = -1  # the event of nrt_execute
    parent: int = -1  # the event around the steps
    began: int = -1  # when kbl_exec_pre of a synchronous one did
    exec_id: int = 0
    status: NrtStatus = NrtStatus.SUCCESS

    def holds(self) -> list[DeviceTensor | TensorSet]:
        """Tensors and sets that must live until the request is done."""
        ends = [] if self.copy is None else [x for x in (self.copy[0], self.copy[2]) if isinstance(x, DeviceTensor)]
        return [*self.inputs.values(), *self.outputs.values(), *self.sets, *ends]
