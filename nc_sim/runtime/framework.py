"""Operators of a framework onto the runtime: one program per operator and shapes, cached as the real NEFF cache is."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from ..isa.dtypes import DTYPES, storage
from ..program import Program
from .api import Ret, Runtime, Step
from .events import FRAMEWORK
from .objects import DeviceTensor, Model
from .status import NrtStatus, check

SHORT = {"bfloat16": "BFloat16", "float32": "Float", "float16": "Half"}


@attrs.frozen(eq=False)
class Array:
    """A framework tensor on a core, or a view of one: the same buffer with another shape and strides."""

    tensor: DeviceTensor
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None  # in elements; None: contiguous


@attrs.define(slots=True)
class Dispatch:
    """One dispatched operator: host time, and its interval on the framework's stream."""

    name: str
    cpu_ns: int
    submitted_ns: int
    completed_ns: int = -1
    self_neuron_ns: int = 0
    model: Model | None = None


class Framework:
    """Dispatches operators from one host thread. At most `in_flight` are outstanding; 1 waits for each."""

    def __init__(self, rt: Runtime, core: int = 0, in_flight: int = 1, thread: int = 0) -> None:
        self.rt, self.core, self.in_flight, self.thread = rt, core, in_flight, thread
        self.cache: dict[tuple[Any, ...], Model] = {}
        self.dispatches: list[Dispatch] = []
        self.pending: deque[tuple[Dispatch, int, Ret, int]] = deque()
        self.stream_end = 0

    def array(self, shape: tuple[int, ...], dtype: str, name: str = "") -> Array:
        """An uninitialised tensor on the device."""
        size = math.prod(shape) * _item(self.rt, dtype).itemsize
        return Array(_ok("allocate", *self.rt.nrt_tensor_allocate("device", self.core, size, name)), shape, dtype)

    def put(self, values: np.ndarray, dtype: str) -> Step:
        """A host array on the device."""
        data = np.ascontiguousarray(values).astype(_item(self.rt, dtype))
        made = self.array(data.shape, dtype)
        status = yield from self.rt.nrt_tensor_write(made.tensor, data, thread=self.thread)
        check("write", status)
        return made

    def get(self, a: Array) -> Step:
        """A device tensor on the host, after everything dispatched so far."""
        yield from self.synchronise()
        out = np.empty(a.shape, _item(self.rt, a.dtype))
        check("read", (yield from self.rt.nrt_tensor_read(a.tensor, out, thread=self.thread)))
        return out

    def op(self, name: str, build: Callable[[], Program], inputs: Sequence[Array], out: Array, scalar: float | None = None) -> Step:
        """Dispatch one operator: host work, a copy for a host scalar, then the schedule call; returns `out`.

        The program takes `inputs`, then the scalar, in the order in which it declares its own.
        """
        rt = self.rt
        began = rt.now
        yield rt.spend(rt.profile.framework_ns)
        key = self.key(name, inputs)
        program = key, out.shape, out.dtype, scalar is not None  # one operator may have results of two types
        if program not in self.cache:
            self.cache[program] = _ok("load", *rt.nrt_load(build(), self.core))
        model = self.cache[program]
        tensors = [a.tensor for a in inputs]
        if scalar is not None:
            holder = self.array((1, 1), "float32")
            check("write", (yield from rt.nrt_tensor_write(holder.tensor, np.full((1, 1), scalar, np.float32), thread=self.thread)))
            tensors.append(holder.tensor)
        given = dict(zip(model.neff.inputs, tensors, strict=True))
        submitted = began + rt.profile.framework_ns
        ret = Ret()
        while True:
            status, seq = yield from rt.nrta_execute_schedule(model, given, {"out": out.tensor}, 0, ret, thread=self.thread, label=key)
            if status is not NrtStatus.QUEUE_FULL:
                break
            yield from self.wait_for_oldest()
        check(name, status)
        dispatch = Dispatch(name, rt.now - began, submitted, model=model)
        self.dispatches.append(dispatch)
        outer = rt.trace.add(name, FRAMEWORK, began, rt.now, thread=self.thread, flow=(seq,), attributes={"neff_cache_key": key})
        self.pending.append((dispatch, seq, ret, outer))
        while len(self.pending) >= self.in_flight:
            yield from self.wait_for_oldest()
        return out

    def key(self, name: str, inputs: Sequence[Array]) -> str:
        """Operator and shapes: mul--_[4,512]:BFloat16_[4,1]:BFloat16; a view that is not contiguous also shows its strides."""
        return f"{name}--" + "".join(
            f"_[{_list(a.shape)}]:{SHORT.get(a.dtype, a.dtype)}" + (f":S({_list(a.strides)})" if a.strides else "") for a in inputs
        )

    def wait_for_oldest(self) -> Step:
        """Wait for the oldest outstanding dispatch, and give it its time on the stream."""
        dispatch, seq, ret, outer = self.pending.popleft()
        status, done = self.rt.nrta_event_register_seq_id_completion(seq)
        check(dispatch.name, status)
        yield done
        check(dispatch.name, ret.value)
        dispatch.completed_ns = self.rt.completed_at[seq]
        start = max(dispatch.submitted_ns, self.stream_end)
        dispatch.self_neuron_ns = dispatch.completed_ns - start
        self.stream_end = dispatch.completed_ns
        self.rt.trace.add(
            dispatch.name,
            FRAMEWORK,
            start,
            dispatch.completed_ns,
            stream=0,
            flow=(seq,),
            attributes={"nrt_sequence_id": seq, "external_id": outer},
        )

    def synchronise(self) -> Step:
        """Wait for everything outstanding."""
        while self.pending:
            yield from self.wait_for_oldest()


def _item(rt: Runtime, dtype: str) -> np.dtype[Any]:
    return storage(DTYPES[dtype], rt.chip.reader()("types.e4m3_max"))


def _list(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


def _ok(what: str, status: NrtStatus, made: Any) -> Any:
    check(what, status)
    return made
