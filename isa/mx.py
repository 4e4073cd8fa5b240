"""MX formats: groups of 32 numbers that share a scale, as NeuronCore-v4 quantises and multiplies them.

A group is 8 partitions of one packed element, that is of four numbers. Its scale is a power of two, stored as the exponent
plus 127 in one byte. The scales of a quadrant of 32 partitions stand in 4 consecutive partitions of the same quadrant, the
first of them partition 0, 4, 8 or 12 of it (nki/deep-dives/mxfp-matmul.rst).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from .dtypes import LANES, DType, pack, unpack
from .fields import QUADRANT, READ, WRITE, of
from .instruction import Engine, Instruction, Work, instruction
from .vector import _Elementwise, streamed
from .view import Memory, View

PACKED = ("float8_e5m2_x4", "float8_e4m3fn_x4", "float4_e2m1fn_x4")
QUANTISED = ("float8_e5m2_x4", "float8_e4m3fn_x4")
SCALES = ("float8_e8m0fnu", "uint8")
ROWS = 8  # partitions of one group
STARTS = (0, 4, 8, 12)  # of the scales in their quadrant
BIAS = 127
EXPONENTS = {"float8_e4m3fn_x4": 8, "float8_e5m2_x4": 15}  # largest unbiased exponent (nki.isa.quantize_mx)


def check_scales(i: Instruction, name: str, scales: View, data: str, rows: View, columns: int) -> None:
    """The scales of `rows`, an operand called `data`, with so many columns: types, place and size."""
    i.require(scales.dtype.name in SCALES, f"{name} is {scales.dtype.name}", " or ".join(SCALES))
    i.require(scales.memory is Memory.SBUF, f"{name} is in {scales.memory.name}", "SBUF")
    i.require(scales.elements == columns, f"{name} has {scales.elements} elements per partition", f"{columns}, one for each of {data}'s")
    quadrants = -(-rows.partitions // QUADRANT)
    least = QUADRANT * (quadrants - 1) + QUADRANT // ROWS
    held = f"{name} has {scales.partitions} partitions"
    i.require(least <= scales.partitions <= rows.partitions, held, f"{least} to {rows.partitions} for {data}'s {rows.partitions}")


def scale_rows(partitions: int) -> np.ndarray:
    """Where the scales of groups of 8 partitions stand, in order, counted from the first."""
    groups = np.arange(partitions // ROWS)
    per = QUADRANT // ROWS
    rows: np.ndarray = groups // per * QUADRANT + groups % per
    return rows


def dequantised(data: np.ndarray, dtype: DType, scales: np.ndarray) -> np.ndarray:
    """[4 P, F] numbers in float64 from packed [P, F] and the bytes of its scales; the four of an element P apart."""
    lanes = unpack(data, dtype).astype(np.float64)
    exponents = scales.view(np.uint8)[scale_rows(len(data))].astype(np.float64) - BIAS
    factor = np.repeat(np.where(exponents > BIAS, np.nan, np.exp2(exponents)), ROWS, axis=0)
    scaled: np.ndarray = (lanes * factor[..., None]).transpose(2, 0, 1).reshape(LANES * data.shape[0], -1)
    return scaled


@instruction(Engine.VECTOR, source="nki.isa.quantize_mx")
class QuantizeMx(_Elementwise):
    """dst = src over its group's scale in packed fp8, dst_scale = the scales: 2^(floor(log2(largest magnitude)) - e).

    e is 7 for float8_e4m3fn and 14 for float8_e5m2, one less than the largest exponent, so nothing saturates. A group of
    zeros has 2^-127. Of dst_scale only the partitions with scales are written. NeuronCore-v4 and newer.
    """

    since: ClassVar[Mapping[Engine, int]] = {Engine.VECTOR: 4}
    packed: ClassVar[bool] = True
    dst: View = of(WRITE)
    src: View = of(READ)
    dst_scale: View = of(WRITE)

    def spares(self) -> bool:
        return True

    def check(self) -> None:
        self.on_chip()
        for name, v in (("dst", self.dst), ("src", self.src)):
            self.require(v.memory is Memory.SBUF, f"{name} is in {v.memory.name}", "SBUF")
        self.require(self.src.dtype.name in ("float16", "bfloat16"), f"src is {self.src.dtype.name}", "float16 or bfloat16")
        self.require(self.dst.dtype.name in QUANTISED, f"dst is {self.dst.dtype.name}", " or ".join(QUANTISED))
        p, n = self.src.partitions, self.src.elements
        self.require(p % QUADRANT == 0, f"src has {p} partitions", f"a multiple of {QUADRANT}")
        self.require(n % LANES == 0, f"src has {n} elements per partition", f"a multiple of {LANES}")
        self.require(self.dst.partitions == p, f"dst has {self.dst.partitions} partitions, src has {p}", "they must match")
        self.require(self.dst.elements == n // LANES, f"dst has {self.dst.elements} elements per partition", f"{n // LANES}")
        check_scales(self, "dst_scale", self.dst_scale, "dst", self.src, n // LANES)

    def work(self) -> Work:
        return streamed("quantize_mx", self.dst, self.src, flops=2 * self.src.size)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        p = self.src.partitions
        x = operands["src"].astype(np.float64).reshape(p // ROWS, ROWS, -1, LANES)
        self.specified(bool(np.isfinite(x).all()), "inf or NaN in src", "finite numbers: their scale is not said")
        most = np.abs(x).max(axis=(1, 3))
        exponent = np.frexp(most)[1] - 1 - (EXPONENTS[self.dst.dtype.name] - 1)
        code = np.where(most == 0, 0, np.clip(exponent + BIAS, 0, 2 * BIAS)).astype(np.uint8)
        factor = np.exp2(code.astype(np.float64) - BIAS)[:, None, :, None]
        scale = operands["dst_scale"].reshape(self.dst_scale.partitions, -1)
        scale.view(np.uint8)[scale_rows(p)] = code
        packed = pack((x / factor).reshape(p, -1, LANES), self.dst.dtype)
        return {"dst": packed.reshape(self.dst.shape), "dst_scale": scale.reshape(self.dst_scale.shape)}
