"""Loaded programs as Python functions of numpy arrays, in the spirit of nrtpy: load, call, benchmark.

Source: aws-neuron-sdk v2.32.0, neuron-runtime/nrtpy (model). Here a status other than SUCCESS is an NrtError.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
import numpy as np

from ..isa.dtypes import cast, storage
from ..isa.errors import ProgramError
from ..program import Program, Tensor
from . import objects
from .api import Runtime, Step
from .objects import DeviceTensor, Tensors
from .status import NrtError, NrtStatus, check

MODES = ("device", "host")
THREAD = 0  # of the host, that Python code runs on


@attrs.frozen
class TensorInfo:
    """What a program says of one of its tensors; `size` in bytes."""

    shape: tuple[int, ...]
    dtype: str
    size: int


@attrs.frozen
class BenchmarkResult:
    """Times of the measured iterations; the deviation is that of the population."""

    mean_ms: float
    min_ms: float
    max_ms: float
    std_dev_ms: float
    iterations: int
    warmup_iterations: int
    durations_ms: list[float]


class Model:
    """A program on a core. Its calls run the simulation until they are done, so they have no place in a host thread."""

    def __init__(self, runtime: Runtime, handle: objects.Model) -> None:
        self.runtime, self.handle = runtime, handle
        self.name = handle.neff.program.name
        self._e4m3_max: int = runtime.chip.reader()("types.e4m3_max")

    @classmethod
    def load(cls, runtime: Runtime, program: Program, core: int = 0) -> Model:
        """Load a program, -1 for the core with the fewest; a runtime that was not initialised is."""
        if runtime.usable() is NrtStatus.UNINITIALIZED:
            runtime.nrt_init()
        status, handle = runtime.nrt_load(program, core)
        if handle is None:
            raise NrtError(f"load {program.name}", status)
        return cls(runtime, handle)

    def unload(self) -> None:
        """Give its memory back; calls afterwards fail with INVALID_HANDLE."""
        check(f"unload {self.name}", self.runtime.nrt_unload(self.handle))

    @property
    def input_tensors_info(self) -> dict[str, TensorInfo]:
        """Inputs by name."""
        return {n: _info(t) for n, t in self.handle.neff.inputs.items()}

    @property
    def output_tensors_info(self) -> dict[str, TensorInfo]:
        """Outputs by name."""
        return {n: _info(t) for n, t in self.handle.neff.outputs.items()}

    def __call__(self, inputs: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
        """Write the inputs, execute, read the outputs. Arrays are converted to the program's types as `simulate` does it."""
        if not self.runtime.values:
            raise ProgramError(self.name, "a runtime without values", "Runtime(values=True), or benchmark")

        def body(ins: Tensors, outs: Tensors) -> Step:
            check(f"execute {self.name}", (yield from self.runtime.nrt_execute(self.handle, ins, outs, thread=THREAD)))
            found = {}
            for name, tensor in self.handle.neff.outputs.items():
                found[name] = np.empty(tensor.shape, storage(tensor.dtype, self._e4m3_max))
                check(f"read {name}", (yield from self.runtime.nrt_tensor_read(outs[name], found[name], thread=THREAD)))
            return found

        result: dict[str, np.ndarray] = self._run(inputs or {}, body)
        return result

    def benchmark(
        self, inputs: Mapping[str, np.ndarray] | None = None, warmup_iter: int = 5, benchmark_iter: int = 5, mode: str = "device"
    ) -> BenchmarkResult:
        """Execute again and again on the same tensors, and time it.

        "device" is the time of nc_exec_running, "host" that from the call of nrt_execute to its return.
        """
        if mode not in MODES:
            raise ProgramError("benchmark", f"mode={mode!r}", f"one of {', '.join(MODES)}")
        for name, value, least in (("warmup_iter", warmup_iter, 0), ("benchmark_iter", benchmark_iter, 1)):
            if not isinstance(value, int) or value < least:
                raise ProgramError("benchmark", f"{name}={value!r}", f"a whole number of at least {least}")

        def body(ins: Tensors, outs: Tensors) -> Step:
            times = []
            for _ in range(warmup_iter + benchmark_iter):
                start, device = self.runtime.now, self.handle.running_ns
                check(f"execute {self.name}", (yield from self.runtime.nrt_execute(self.handle, ins, outs, thread=THREAD)))
                times.append(self.handle.running_ns - device if mode == "device" else self.runtime.now - start)
            return times[warmup_iter:]

        ns: list[int] = self._run(inputs or {}, body)
        return BenchmarkResult(
            statistics.fmean(ns) / 1e6, min(ns) / 1e6, max(ns) / 1e6, statistics.pstdev(ns) / 1e6, benchmark_iter, warmup_iter,
            [t / 1e6 for t in ns],
        )  # fmt: skip

    def _run(self, inputs: Mapping[str, np.ndarray], body: Callable[[Tensors, Tensors], Step]) -> Any:
        """What `body` returns on a host thread, with the inputs written to tensors that live as long as it runs."""
        if self.runtime.env.active_process is not None:
            raise ProgramError(self.name, "a call inside a host thread", "`yield from` of the runtime's own calls there")
        data = self._bytes(inputs)

        def host(_: int) -> Step:
            for name, array in data.items():
                check(f"write {name}", (yield from self.runtime.nrt_tensor_write(ins[name], array, thread=THREAD)))
            return (yield from body(ins, outs))

        with self._tensors(self.handle.neff.inputs) as ins, self._tensors(self.handle.neff.outputs) as outs:
            return self.runtime.run(host)[0]

    def _bytes(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The inputs in the program's types."""
        needed = self.handle.neff.inputs
        if set(needed) != set(inputs):
            raise NrtError(f"{self.name}, inputs {sorted(inputs)}", NrtStatus.EXEC_BAD_INPUT, f"exactly {sorted(needed)}")
        out = {}
        for name, tensor in needed.items():
            try:
                array = np.asarray(inputs[name])
            except ValueError as e:  # rows of different lengths
                raise NrtError(f"{self.name}, input {name}", NrtStatus.EXEC_BAD_INPUT, f"an array of shape {list(tensor.shape)}") from e
            if array.shape != tensor.shape:
                where = f"{self.name}, input {name} of shape {list(array.shape)}"
                raise NrtError(where, NrtStatus.EXEC_BAD_INPUT, f"shape {list(tensor.shape)}")
            try:
                out[name] = np.ascontiguousarray(cast(array, tensor.dtype, e4m3_max=self._e4m3_max))
            except ProgramError as e:
                where = f"{self.name}, input {name} of type {array.dtype}"
                raise NrtError(where, NrtStatus.EXEC_BAD_INPUT, f"numbers that convert to {tensor.dtype.name}") from e
        return out

    @contextmanager
    def _tensors(self, wanted: Mapping[str, Tensor]) -> Iterator[Tensors]:
        """Tensors on the model's core, freed at the end."""
        made: dict[str, DeviceTensor] = {}
        try:
            for name, t in wanted.items():
                status, tensor = self.runtime.nrt_tensor_allocate("device", self.handle.core, t.partition_bytes, name)
                if tensor is None:
                    raise NrtError(f"allocate {name}", status)
                made[name] = tensor
            yield made
        finally:
            for tensor in made.values():
                self.runtime.nrt_tensor_free(tensor)


def _info(tensor: Tensor) -> TensorInfo:
    return TensorInfo(tensor.shape, tensor.dtype.name, tensor.partition_bytes)


__all__ = ["BenchmarkResult", "Model", "NrtError", "TensorInfo"]
