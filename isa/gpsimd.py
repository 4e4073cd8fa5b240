"""GpSimdEngine: patterns and selections by position."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from .dtypes import cast
from .fields import READ, WRITE, Choice, Integer, Pattern, Real, of
from .instruction import Engine, Work, instruction
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
