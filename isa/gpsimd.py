"""GpSimdEngine: patterns, selections by position and gathers by index."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .dtypes import cast
from .fields import READ, WRITE, Choice, Integer, Pattern, Real, of
from .instruction import Engine, Instruction, Target, Work, instruction
from .ops import alu_op, apply
from .vector import _Elementwise, streamed
from .view import Memory, View

INT32 = Integer(-(1 << 31), (1 << 31) - 1)
COMPARISONS = Choice(("equal", "not_equal", "greater", "greater_equal", "less", "less_equal"), lambda v: alu_op(v).name)


def affine(i: Any, partitions: int) -> np.ndarray:
    """offset + partition * channel_multiplier + the pattern's steps, in 32-bit integer arithmetic: [P, elements]."""
    value = np.full(1, i.offset, np.int64)
    for step, count in i.pattern:
        value = (value[:, None] + np.arange(count, dtype=np.int64) * step).reshape(-1)
    value = np.arange(partitions, dtype=np.int64)[:, None] * i.channel_multiplier + value
    wrapped: np.ndarray = value.astype(np.uint32).view(np.int32)
    return wrapped


class _Affine(_Elementwise):
    """Shared rule: the pattern names every element of dst."""

    def check_pattern(self, pattern: tuple[tuple[int, int], ...], dst: View) -> None:
        self.on_chip()
        count = math.prod(c for _, c in pattern)
        self.require(len(pattern) <= 4, f"a pattern of {len(pattern)} dimensions", "at most 4")
        self.require(count == dst.elements, f"the pattern has {count} elements, dst has {dst.elements} per partition", "they must match")
        for name, v, _ in self.views:
            self.require(v.memory is Memory.SBUF, f"{name} is in {v.memory.name}", "SBUF: the GpSimdEngine does not reach PSUM")


@instruction(Engine.GPSIMD, source="nki.isa.iota")
class Iota(_Affine):
    """dst[p, ...] = offset + p * channel_multiplier + the pattern's steps."""

    dst: View = of(WRITE)
    pattern: tuple[tuple[int, int], ...] = of(Pattern())
    offset: int = of(INT32, default=0)
    channel_multiplier: int = of(INT32, default=0)

    def check(self) -> None:
        self.check_pattern(self.pattern, self.dst)

    def work(self) -> Work:
        return streamed("iota", self.dst)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        return {"dst": affine(self, self.dst.partitions).reshape(self.dst.shape)}


@instruction(Engine.GPSIMD, source="nki.isa.affine_select")
class AffineSelect(_Affine):
    """dst = on_true_tile where the affine value compares true with 0, else on_false_value."""

    dst: View = of(WRITE)
    pattern: tuple[tuple[int, int], ...] = of(Pattern())
    channel_multiplier: int = of(INT32)
    on_true_tile: View = of(READ)
    on_false_value: float = of(Real())
    cmp_op: str = of(COMPARISONS, default="equal")
    offset: int = of(INT32, default=0)

    def check(self) -> None:
        self.check_pattern(self.pattern, self.dst)
        self.same_shape("dst", "on_true_tile")
        self.require(self.cmp_op in COMPARISONS.names, f"cmp_op {self.cmp_op}", f"one of {', '.join(COMPARISONS.names)}")

    def work(self) -> Work:
        return streamed("affine_select", self.dst, self.on_true_tile)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        # Comparing in float64 is exact for every int32; the engines' float32 would not be.
        value = affine(self, self.dst.partitions).reshape(self.dst.shape).astype(np.float64)
        chosen = np.asarray(apply(self.cmp_op, value, np.float64(0))).astype(bool)
        data = operands["on_true_tile"].reshape(self.dst.shape)
        if self.dst.dtype == self.on_true_tile.dtype and data.dtype.kind in "iu":  # selected elements stay as they are
            other = cast(np.full(1, self.on_false_value, np.float32), self.dst.dtype)[0]
            return {"dst": np.where(chosen, data, other)}
        with np.errstate(over="ignore"):
            return {"dst": np.where(chosen, data.astype(np.float32), np.float32(self.on_false_value))}


GROUP = 512  # indices of one machine instruction of a gather


def check_gather(i: Gather | NcNGather) -> None:
    """What holds for dst, data and indices of every gather."""
    i.on_chip()
    i.same_shape("dst", "indices")
    p, q = i.dst.partitions, i.data.partitions
    i.require(p == q, f"data has {q} partitions, dst has {p}", "they must match")
    i.require(i.data.dtype == i.dst.dtype, f"data is {i.data.dtype.name}, dst is {i.dst.dtype.name}", "they must match")
    i.require(i.indices.dtype.name == "uint32", f"indices is {i.indices.dtype.name}", "uint32")
    for name, v, _ in i.views:
        i.require(v.memory is Memory.SBUF, f"{name} is in {v.memory.name}", "SBUF: the GpSimdEngine does not reach PSUM")


@instruction(Engine.GPSIMD, source="nki.isa.nc_n_gather: one of its ceil(N / 512) groups")
class Gather(_Elementwise):
    """dst[p, i] = data[p, indices[p, i]] for at most 512 indices a partition; data is flattened."""

    dst: View = of(WRITE)
    data: View = of(READ)
    indices: View = of(READ)

    def check(self) -> None:
        check_gather(self)
        self.require(self.indices.elements <= GROUP, f"indices has {self.indices.elements} elements per partition", f"at most {GROUP}")

    def work(self) -> Work:
        return Work(kind="gather", elements=self.indices.elements, flops=self.dst.size)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        data, indices = (operands[n].reshape(self.dst.partitions, -1) for n in ("data", "indices"))
        most = int(indices.max())
        self.require(most < data.shape[1], f"an index {most}", f"0 to {data.shape[1] - 1}")
        return {"dst": np.take_along_axis(data, indices.astype(np.int64), axis=1).reshape(self.dst.shape)}


@instruction(Engine.GPSIMD, source="nki.isa.nc_n_gather", machine=False)
class NcNGather(_Elementwise):
    """dst[p, i] = data[p, indices[p, i]], with the free dimensions of data flattened: 512 indices an instruction."""

    dst: View = of(WRITE)
    data: View = of(READ)
    indices: View = of(READ)

    def check(self) -> None:
        check_gather(self)

    def expand(self, target: Target, engine: Engine) -> Iterable[Instruction]:
        if self.indices.elements <= GROUP:
            yield Gather(dst=self.dst, data=self.data, indices=self.indices)
            return
        dst, indices = (v.reshape(v.partitions, v.elements) for v in (self.dst, self.indices))
        for first in range(0, self.indices.elements, GROUP):
            part = slice(first, min(first + GROUP, self.indices.elements))
            yield Gather(dst=dst[:, part], data=self.data, indices=indices[:, part])
