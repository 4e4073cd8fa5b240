"""TensorEngine: matrix multiplication and transposes.

A call `nc_matmul` becomes a weight load (LDWEIGHTS) and a pass of the moving operand (MATMUL); fp32 takes two of each,
LOW and HIGH (trn2 traces, lowering rule B3). The product is computed once, on the last pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import attrs
import numpy as np

from .dtypes import DTYPES
from .errors import Unimplemented, Unsupported
from .fields import READ, WRITE, Flag, Integer, Maybe, of, one_of
from .instruction import Engine, Instruction, Target, Work, instruction
from .vector import streamed
from .view import Memory, View

MAX_CONTRACTION = 128  # rows of the array (NeuronCore architecture guides)
MAX_COLUMNS = 128  # columns of the array
PASSES = one_of(("single", "low", "high"))
PERF_MODES = one_of(("none", "double_row", "double_column", "double_pixel"))


def _rate(dtype: str) -> str:
    """The row of the chip's PE tables: the array knows fp32 and everything narrower (tf32 runs at the 16-bit rate)."""
    return "fp32" if dtype == "float32" else "bf16"


@instruction(Engine.TENSOR, source="trn2 hardware traces, LDWEIGHTS", mnemonic="ldweights")
class LoadWeights(Instruction):
    """Load the stationary operand into the array."""

    src: View = of(READ)
    passes: str = of(PASSES, default="single")
    transpose: bool = of(Flag(), default=False)

    def check(self) -> None:
        self.require(self.src.memory is Memory.SBUF, f"src is in {self.src.memory.name}", "the stationary operand is read from SBUF")
        self.require(self.src.elements <= MAX_COLUMNS, f"{self.src.elements} stationary columns", f"at most {MAX_COLUMNS}")

    def work(self) -> Work:
        kind = _rate(self.src.dtype.name) + ("_transpose" if self.transpose else "")
        return Work(kind=kind, elements=self.src.elements, columns=self.src.elements, transpose=self.transpose)

    def signals(self) -> bool:
        return False

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        state["weights"] = operands["src"].reshape(self.src.partitions, -1)
        return {}

    def attributes(self) -> str:
        mode = "" if self.passes == "single" else f"fp32_mode={self.passes.upper()} "
        return f"{mode}transpose_mode={'ENABLED' if self.transpose else 'DISABLED'}"


@instruction(Engine.TENSOR, source="trn2 hardware traces, MATMUL", mnemonic="matmul")
class Matmul(Instruction):
    """Stream the moving operand through the array: dst (+)= weights.T @ src."""

    dst: View = of(WRITE)
    src: View = of(READ)
    columns: int = of(Integer(1, MAX_COLUMNS))
    accumulate: bool = of(Flag(), default=False)
    passes: str = of(PASSES, default="single")
    transpose: bool = of(Flag(), default=False)
    ends: bool = of(Flag(), default=True)  # the last of its sum, as the compiler marks it; changes neither value nor time

    def accumulates(self) -> bool:
        return self.accumulate

    def check(self) -> None:
        self.require(self.dst.memory is Memory.PSUM, f"dst is in {self.dst.memory.name}", "matmul writes PSUM")
        self.require(self.src.memory is Memory.SBUF, f"src is in {self.src.memory.name}", "the moving operand is read from SBUF")
        self.require(
            self.dst.partitions == self.columns, f"dst has {self.dst.partitions} partitions", f"{self.columns}, one per stationary column"
        )
        self.same_shape("src", "dst", free_only=True)

    def work(self) -> Work:
        kind = _rate(self.src.dtype.name) + ("_transpose" if self.transpose else "")
        macs = self.src.partitions * self.columns * self.src.elements
        half = 1 if self.passes == "single" else 2  # an fp32 product is two passes of half the flops each
        return Work(
            kind=kind, elements=self.src.elements, columns=self.columns, macs=macs // half, flops=2 * macs // half,
            psum_write=True, transpose=self.transpose,
        )  # fmt: skip

    def signals(self) -> bool:
        return self.passes != "low"

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        if self.passes == "low":
            return {}
        weights = state["weights"]
        moving = operands["src"].reshape(self.src.partitions, -1)
        if self.transpose:  # bit exact: the stationary data passes through, the identity only routes it
            return {"dst": weights.T.reshape(self.dst.shape)}
        with np.errstate(all="ignore"):
            product = weights.astype(np.float32).T @ moving.astype(np.float32)
        return {"dst": product.reshape(self.dst.shape)}

    def attributes(self) -> str:
        # Bit 0 starts a sum, bit 1 ends it. A HIGH pass adds to what its LOW wrote (trn2 traces, 36 of 36).
        flags = int(not self.accumulate and self.passes != "high") | (2 if self.ends and self.passes != "low" else 0)
        return f"acc_flags={flags}" + ("" if self.passes == "single" else " fp32_mode=LOW_HIGH")


@instruction(Engine.TENSOR, source="nki.isa.nc_matmul", machine=False)
class NcMatmul(Instruction):
    """dst[M, N] (+)= stationary[K, M].T @ moving[K, N]; K runs along partitions, dst is in PSUM.

    `accumulate=None`: the first write to the destination overwrites, later ones accumulate. The `onezero` flags say
    that an operand holds only 0 and 1, which saves fp32 a pass.
    """

    only: ClassVar[Mapping[str, Any]] = {"tile_position": (), "tile_size": ()}

    dst: View = of(WRITE)
    stationary: View = of(READ)
    moving: View = of(READ)
    is_stationary_onezero: bool = of(Flag(), default=False)
    is_moving_onezero: bool = of(Flag(), default=False)
    is_transpose: bool = of(Flag(), default=False)
    accumulate: bool | None = of(Maybe(Flag()), default=None)
    perf_mode: str = of(PERF_MODES, default="none")

    def accumulates(self) -> bool:
        return self.accumulate is True

    def check(self) -> None:
        s, m, d = self.stationary, self.moving, self.dst
        for name, v in (("stationary", s), ("moving", m)):
            self.require(v.memory is Memory.SBUF, f"{name} is in {v.memory.name}", "both operands are read from SBUF")
        self.require(d.memory is Memory.PSUM, f"dst is in {d.memory.name}", "the result is written to PSUM")
        self.require(
            s.partitions == m.partitions,
            f"stationary has {s.partitions} partitions, moving has {m.partitions}",
            "they must match: the contraction runs along partitions",
        )
        self.require(s.partitions <= MAX_CONTRACTION, f"{s.partitions} partitions", f"at most {MAX_CONTRACTION} rows of the array")
        self.require(s.elements <= MAX_COLUMNS, f"{s.elements} stationary columns", f"at most {MAX_COLUMNS} columns of the array")
        self.require(d.partitions == s.elements, f"dst has {d.partitions} partitions", f"{s.elements}, one per stationary column")
        self.require(d.elements == m.elements, f"dst has {d.elements} elements per partition", f"{m.elements}, as moving")
        wide = {v.dtype.name in ("float32", "tfloat32") for v in (s, m)}
        self.require(
            len(wide) == 1, f"stationary is {s.dtype.name}, moving is {m.dtype.name}", "fp32 and tf32 do not mix with narrower types"
        )
        for name, v in (("stationary", s), ("moving", m)):
            self.require(v.dtype.kind == "float", f"{name} is {v.dtype.name}", "a floating-point type")
        if self.is_transpose:
            self.require(d.dtype == s.dtype, f"dst is {d.dtype.name}, stationary is {s.dtype.name}", "a transpose keeps the type")
        else:
            self.require(d.dtype.name == "float32", f"dst is {d.dtype.name}", "PSUM accumulates in float32 on this instruction")

    def expand(self, target: Target, engine: Engine) -> Iterable[Instruction]:
        if self.perf_mode != "none":
            raise Unimplemented(self.mnemonic, f"perf_mode={self.perf_mode}", "only perf_mode=none is modelled so far", self.source)
        if self.is_transpose and not target.feature("tensor.transpose_mode"):
            raise Unsupported(
                self.mnemonic, "is_transpose=True", "a chip with the PE's transpose mode (NeuronCore-v3 and later)", self.source
            )
        names: tuple[str, ...] = ("single",)
        if self.moving.dtype.name == "float32" and not self.is_transpose:
            zero_one = self.is_stationary_onezero or self.is_moving_onezero
            passes = target.feature("tensor.fp32_onezero_passes" if zero_one else "tensor.fp32_passes")
            if passes not in (1, 2):
                raise Unimplemented(self.mnemonic, f"{passes} passes for fp32", "1 or 2: LOW and HIGH are the passes known", self.source)
            names = ("single",) if passes == 1 else ("low", "high")
        for name in names:
            yield LoadWeights(src=self.stationary, passes=name, transpose=self.is_transpose)
            yield Matmul(
                dst=self.dst, src=self.moving, columns=self.stationary.elements, passes=name,
                accumulate=bool(self.accumulate), transpose=self.is_transpose,
            )  # fmt: skip


@instruction(Engine.TENSOR, Engine.VECTOR, source="nki.isa.nc_transpose", machine=False)
class NcTranspose(Instruction):
    """dst[F, P] = data[P, F].T: on the TensorEngine up to [128, 128] into PSUM, on the VectorEngine up to [32, 32]."""

    dst: View = of(WRITE)
    data: View = of(READ)

    def check(self) -> None:
        s, d = self.data, self.dst
        self.require(
            d.partitions == s.elements and d.elements == s.partitions,
            f"dst is [{d.partitions}, {d.elements}], data is [{s.partitions}, {s.elements}]",
            "dst must be data transposed",
        )
        self.require(s.elements <= 128, f"data has {s.elements} elements per partition", "at most 128")
        self.require(d.dtype == s.dtype, f"dst is {d.dtype.name}, data is {s.dtype.name}", "a transpose keeps the type")

    def default_engine(self, target: Target) -> Engine:
        return Engine.TENSOR if self.dst.memory is Memory.PSUM and self.data.memory is Memory.SBUF else Engine.VECTOR

    def expand(self, target: Target, engine: Engine) -> Iterable[Instruction]:
        if engine is Engine.VECTOR:
            return [TransposeVector(dst=self.dst, src=self.data)]
        self.require(self.dst.memory is Memory.PSUM, f"dst is in {self.dst.memory.name}", "the TensorEngine writes PSUM")
        self.require(self.data.memory is Memory.SBUF, f"data is in {self.data.memory.name}", "the TensorEngine reads SBUF")
        self.require(
            not target.explicit,
            "nc_transpose on the TensorEngine in a program with semaphores of its own",
            "nc_matmul(is_transpose=True) with an identity you load and wait for: nothing is inserted here",
        )
        identity = target.identity(self.data.dtype)
        k = self.data.partitions
        if not target.feature("tensor.transpose_mode"):  # a product with the identity, which is exact for finite numbers
            product = NcMatmul(dst=attrs.evolve(self.dst, dtype=DTYPES["float32"]), stationary=self.data, moving=identity[:k, :k])
            return [attrs.evolve(i, dst=self.dst) if isinstance(i, Matmul) else i for i in product.expand(target, engine)]
        return [
            LoadWeights(src=self.data, transpose=True, passes="single"),
            Matmul(dst=self.dst, src=identity[:k, :k], columns=self.data.elements, transpose=True),
        ]


@instruction(Engine.VECTOR, source="nki.isa.nc_transpose on the VectorEngine", mnemonic="transpose")
class TransposeVector(Instruction):
    """dst = src.T for one block of up to [32, 32]."""

    dst: View = of(WRITE)
    src: View = of(READ)

    def check(self) -> None:
        self.require(
            self.src.partitions <= 32 and self.src.elements <= 32,
            f"src is [{self.src.partitions}, {self.src.elements}]",
            "at most [32, 32] on the VectorEngine",
        )
        self.require(
            self.dst.shape[0] == self.src.elements and self.dst.elements == self.src.partitions,
            f"dst is {list(self.dst.shape)}",
            "src transposed",
        )

    def work(self) -> Work:
        return streamed("transpose", self.dst, self.src)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        return {"dst": operands["src"].reshape(self.src.partitions, -1).T.reshape(self.dst.shape)}
