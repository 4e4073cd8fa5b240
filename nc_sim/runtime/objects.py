"""What the runtime's handles stand for: loaded programs, tensors, sets of tensors, requests."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np

from ..program import Program, Tensor
from ..result import Result
from ..simulate import Compiled
from .status import NrtStatus, XuType


@attrs.define(eq=False)
class Neff:
    """A program compiled for a chip, with the time one execution takes; shared by every load of it."""

    result: Result  # of a timing-only run
    hash: str  # 20 decimal digits
    total_ns: int  # prologue, body and epilogue: what nc_exec_running lasts

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
        return {t.name: t for t in self.program.tensors.values() if t.kind == "input"}

    @property
    def outputs(self) -> dict[str, Tensor]:
        """Output tensors by name."""
        return {t.name: t for t in self.program.tensors.values() if t.kind == "output"}


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
class DeviceTensor:
    """A buffer (nrt_tensor_t) on a core's HBM, or on the host with core -1."""

    id: int
    name: str
    core: int
    data: np.ndarray  # uint8; empty once freed
    freed: bool = False
    in_flight: int = 0

    @property
    def size(self) -> int:
        """Bytes."""
        return self.data.nbytes


TensorSet = dict[str, DeviceTensor]


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
    inputs: Mapping[str, DeviceTensor] = attrs.field(factory=dict)
    outputs: Mapping[str, DeviceTensor] = attrs.field(factory=dict)
    copy: tuple[DeviceTensor | np.ndarray, int, DeviceTensor | np.ndarray, int, int] | None = None  # src, at, dst, at, bytes
    label: str = ""
    synchronous: bool = False  # of nrt_execute
    parent: int = -1  # its event, the parent of the steps
    exec_id: int = 0
    status: NrtStatus = NrtStatus.SUCCESS

    def holds(self) -> list[DeviceTensor]:
        """Tensors that must live until the request is done."""
        ends = [] if self.copy is None else [x for x in (self.copy[0], self.copy[2]) if isinstance(x, DeviceTensor)]
        return [*self.inputs.values(), *self.outputs.values(), *ends]
