"""Elementwise and reducing instructions: VectorEngine first, some of them on ScalarEngine or GpSimdEngine too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from .fields import ALU, INDIRECT, READ, WRITE, WRITE_INDIRECT, Axes, Flag, Maybe, Scalar, of
from .instruction import REGISTRY, Engine, Instruction, Target, Work, instruction
from .ops import alu_op, apply, reduce
from .view import Memory, View

HALVES = ("bfloat16", "float16")


def streamed(kind: str, *views: View, vectors: int = 0, flops: int = 0) -> Work:
    """The Work of an instruction that streams these views (destination first) through an engine."""
    dst, *sources = views
    return Work(
        kind=kind,
        elements=max(v.elements for v in views),
        psum_read=any(v.memory is Memory.PSUM for v in sources),
        psum_write=dst.memory is Memory.PSUM,
        sixteen_bit=all(v.dtype.itemsize == 2 for v in views),
        half=all(v.dtype.name in HALVES for v in views),
        small=all(v.dtype.kind == "float" and v.dtype.itemsize <= 2 for v in views),
        widening=any(v.dtype.itemsize < dst.dtype.itemsize for v in sources),
        narrowing=any(v.dtype.itemsize > dst.dtype.itemsize for v in sources),
        streams=len(sources),
        contiguous=all(v.contiguous for v in views),
        vectors=vectors,
        flops=flops or dst.size,
    )


def per_partition(value: np.ndarray | float, rank: int) -> np.ndarray | float:
    """A [P, 1] operand shaped to broadcast over `rank` dimensions; numbers stay numbers."""
    return value.reshape(-1, *(1,) * (rank - 1)) if isinstance(value, np.ndarray) else value


class _Elementwise(Instruction):
    """Shared rules: on-chip operands only, and no packed type where numbers are wanted."""

    packed: ClassVar[bool] = False  # True: it moves or takes apart packed elements

    def on_chip(self) -> None:
        for name, v, _ in self.views:
            self.require(self.packed or v.dtype.kind != "packed", f"{name} is {v.dtype.name}", "a type of single numbers")
            self.require(v.memory is not Memory.HBM, f"{name} is in HBM", "compute engines read and write SBUF and PSUM; use dma_copy")
            self.require(v.size > 0, f"{name} has shape {list(v.shape)}", "at least one element")


@instruction(Engine.VECTOR, Engine.GPSIMD, source="nki.isa.tensor_tensor")
class TensorTensor(_Elementwise):
    """dst = data1 <op> data2, elementwise.

    GpSimd does int32 and uint32 arithmetic, exactly, and power, which no other engine does.
    """

    dst: View = of(WRITE_INDIRECT)
    data1: View = of(INDIRECT)
    data2: View = of(READ)
    op: str = of(ALU)

    def check(self) -> None:
        self.on_chip()
        self.same_shape("dst", "data1")
        self.same_shape("dst", "data2")
        both = self.data1.memory is self.data2.memory is Memory.PSUM
        self.require(not both, "data1 and data2 are both in PSUM", "at most one input may be in PSUM")
        self.require(not alu_op(self.op).unary, f"op {self.op}", "a binary operator")
        integers_for_bits(self, self.op, self.dst, self.data1, self.data2)

    def native(self) -> bool:
        """True for int32 and uint32 arithmetic, which GpSimd does exactly (nki.isa.tensor_tensor)."""
        kinds = {v.dtype.name for v in (self.dst, self.data1, self.data2)}
        return kinds in ({"int32"}, {"uint32"}) and alu_op(self.op).integer and not alu_op(self.op).bitvec

    def default_engine(self, target: Target) -> Engine:
        psum = any(v.memory is Memory.PSUM for v in (self.dst, self.data1, self.data2))
        return Engine.GPSIMD if self.op == "power" or (self.native() and not psum) else Engine.VECTOR

    def expand(self, target: Target, engine: Engine) -> Iterable[Instruction]:
        found = f"{self.op} of {self.data1.dtype.name} on {engine.label}"
        if engine is Engine.GPSIMD:
            legal = self.native() or self.op == "power"
            self.require(legal, found, "int32 or uint32 arithmetic, or power; VectorE does the rest")
        else:
            self.require(self.op != "power", found, "GpSimd for power")
        return (self,)

    def work(self) -> Work:
        return streamed("tensor_tensor", self.dst, self.data1, self.data2)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        a, b = operands["data1"], operands["data2"]
        exact = state.get("engine") is Engine.GPSIMD and self.native()
        return {"dst": apply(self.op, a, b.reshape(a.shape), integer=exact).reshape(self.dst.shape)}

    def attributes(self) -> str:
        return f"op={alu_op(self.op).trace_name}"


@instruction(Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD, source="nki.isa.tensor_scalar")
class TensorScalar(_Elementwise):
    """dst = (data <op0> operand0) <op1> operand1; operands are numbers or [P, 1] views.

    GpSimd does rsqrt alone; ScalarE, from NeuronCore-v3 on, multiply then add, multiply, or add, on v4 all arithmetic operators.
    """

    dst: View = of(WRITE_INDIRECT)
    data: View = of(INDIRECT)
    op0: str = of(ALU)
    operand0: Any = of(Maybe(Scalar()), default=None)
    reverse0: bool = of(Flag(), default=False)
    op1: str | None = of(Maybe(ALU), default=None)
    operand1: Any = of(Maybe(Scalar()), default=None)
    reverse1: bool = of(Flag(), default=False)

    def check(self) -> None:
        self.on_chip()
        self.same_shape("dst", "data")
        check_operand(self, "operand0", self.op0, self.operand0, self.data)
        self.require(self.op1 is not None or self.operand1 is None, "operand1 without op1", "op1 and operand1 go together")
        if self.op1 is not None:
            check_operand(self, "operand1", self.op1, self.operand1, self.data)
            kinds = [alu_op(op).bitvec for op in (self.op0, self.op1)]
            self.require(kinds[0] == kinds[1], f"op0={self.op0}, op1={self.op1}", "both bitvec or both arithmetic operators")
        integers_for_bits(self, self.op0, self.dst, self.data)

    def default_engine(self, target: Target) -> Engine:
        psum = any(v.memory is Memory.PSUM for _, v, _ in self.views)
        return Engine.GPSIMD if "rsqrt" in (self.op0, self.op1) and not psum else Engine.VECTOR

    def expand(self, target: Target, engine: Engine) -> Iterable[Instruction]:
        pair = (self.op0, self.op1)
        self.require(
            engine is Engine.VECTOR or not alu_op(self.op0).bitvec, f"{self.op0} on {engine.label}", "VectorE for bitvec operators"
        )
        if engine is Engine.GPSIMD:
            self.require("rsqrt" in pair, f"{self.op0}, {self.op1 or 'none'} on {engine.label}", "rsqrt; VectorE does the rest")
        if engine is Engine.SCALAR and not target.feature("scalar.tensor_scalar.any_operators"):
            self.require(
                pair in (("multiply", "add"), ("multiply", None), ("add", None)),
                f"{self.op0}, {self.op1 or 'none'} on Scalar",
                "multiply then add, multiply, or add",
            )
        return (self,)

    def work(self) -> Work:
        vectors = sum(isinstance(v, View) for v in (self.operand0, self.operand1))
        return streamed("tensor_scalar", self.dst, self.data, vectors=min(vectors, 1), flops=self.dst.size * (1 + (self.op1 is not None)))

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        x = operands["data"]
        out = scalar_step(x, self.op0, operands.get("operand0", self.operand0), self.reverse0)
        if self.op1 is not None:
            out = scalar_step(out, self.op1, operands.get("operand1", self.operand1), self.reverse1)
        return {"dst": out.reshape(self.dst.shape)}

    def attributes(self) -> str:
        names = [alu_op(op).trace_name if op else "BYPASS" for op in (self.op0, self.op1)]
        kinds = ["PTR" if isinstance(v, View) else "INSTRUCTION" for v in (self.operand0, self.operand1)]
        return f"ops={','.join(names)} imm_src={','.join(kinds)}"


@instruction(Engine.VECTOR, source="nki.isa.scalar_tensor_tensor")
class ScalarTensorTensor(_Elementwise):
    """dst = (data <op0> operand0) <op1> operand1; operand0 is a number or [P, 1], operand1 a tensor."""

    dst: View = of(WRITE)
    data: View = of(READ)
    op0: str = of(ALU)
    operand0: Any = of(Scalar())
    op1: str = of(ALU)
    operand1: View = of(READ)
    reverse0: bool = of(Flag(), default=False)
    reverse1: bool = of(Flag(), default=False)

    def check(self) -> None:
        self.on_chip()
        self.same_shape("dst", "data")
        self.same_shape("dst", "operand1")
        both = self.data.memory is self.operand1.memory is Memory.PSUM
        self.require(not both, "data and operand1 are both in PSUM", "at most one of them may be in PSUM")
        for name, op in (("op0", self.op0), ("op1", self.op1)):
            self.require(not alu_op(op).bitvec, f"{name}={op}", "an arithmetic operator")
        check_operand(self, "operand0", self.op0, self.operand0, self.data)

    def work(self) -> Work:
        vectors = int(isinstance(self.operand0, View))
        return streamed("scalar_tensor_tensor", self.dst, self.data, self.operand1, vectors=vectors, flops=2 * self.dst.size)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        x, y = operands["data"], operands["operand1"]
        first = scalar_step(x, self.op0, operands.get("operand0", self.operand0), self.reverse0)
        y = y.reshape(first.shape)
        a, b = (y, first) if self.reverse1 else (first, y)
        return {"dst": apply(self.op1, a, b).reshape(self.dst.shape)}

    def attributes(self) -> str:
        return f"ops={alu_op(self.op0).trace_name},{alu_op(self.op1).trace_name}"


@instruction(Engine.VECTOR, source="nki.isa.tensor_tensor_scan")
class TensorTensorScan(_Elementwise):
    """dst[:, i] = (data0[:, i] <op0> dst[:, i - 1]) <op1> data1[:, i], in float32; before the first element stands `initial`.

    What is carried from element to element is the float32 result, not what it is rounded to in dst.
    """

    dst: View = of(WRITE)
    data0: View = of(READ)
    data1: View = of(READ)
    initial: Any = of(Scalar())
    op0: str = of(ALU)
    op1: str = of(ALU)
    reverse0: bool = of(Flag(), default=False)
    reverse1: bool = of(Flag(), default=False)

    def check(self) -> None:
        self.on_chip()
        self.same_shape("dst", "data0")
        self.same_shape("dst", "data1")
        both = self.data0.memory is self.data1.memory is Memory.PSUM
        self.require(not both, "data0 and data1 are both in PSUM", "at most one of them may be in PSUM")
        for name, op in (("op0", self.op0), ("op1", self.op1)):
            row = alu_op(op)
            self.require(not row.bitvec and not row.unary, f"{name}={op}", "a binary arithmetic operator")
        if isinstance(self.initial, View):
            self.require(
                self.initial.partitions == self.data0.partitions,
                f"initial has {self.initial.partitions} partitions, data0 has {self.data0.partitions}",
                "they must match",
            )
        for name, v in (("dst", self.dst), ("data0", self.data0), ("data1", self.data1)):
            self.specified(len(v.shape) == 2, f"{name} is {list(v.shape)}", "[P, N]: the order of more dimensions is not said")

    def work(self) -> Work:
        vectors = int(isinstance(self.initial, View))
        return streamed("tensor_tensor_scan", self.dst, self.data0, self.data1, vectors=vectors, flops=2 * self.dst.size)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        x, y = (operands[n].astype(np.float32) for n in ("data0", "data1"))
        last = np.broadcast_to(np.asarray(operands.get("initial", self.initial), np.float32).reshape(-1), x.shape[:1])
        out = np.empty_like(x)
        for k in range(x.shape[1]):
            first = apply(self.op0, last, x[:, k], integer=False) if self.reverse0 else apply(self.op0, x[:, k], last, integer=False)
            a, b = (y[:, k], first) if self.reverse1 else (first, y[:, k])
            last = out[:, k] = apply(self.op1, a, b, integer=False)
        return {"dst": out}

    def attributes(self) -> str:
        return f"ops={alu_op(self.op0).trace_name},{alu_op(self.op1).trace_name}"


@instruction(Engine.VECTOR, source="nki.isa.tensor_reduce", mnemonic="tensor_reduce")
class TensorReduce(_Elementwise):
    """dst = the reduction of data over its last free axes; `axis` counts as in data.shape."""

    dst: View = of(WRITE_INDIRECT)
    op: str = of(ALU)
    data: View = of(INDIRECT)
    axis: tuple[int, ...] = of(Axes())
    negate: bool = of(Flag(), default=False)
    keepdims: bool = of(Flag(), default=False)  # the reduced axes stay in dst with size 1

    def check(self) -> None:
        self.on_chip()
        op, rank = alu_op(self.op), len(self.data.shape)
        self.require(op.reduces, f"op {self.op}", "an operator that reduces")
        axes = self.axis
        self.require(
            bool(axes) and axes == tuple(range(axes[0], rank)) and axes[0] >= 1,
            f"axis {list(axes)} of shape {list(self.data.shape)}",
            "the last free axes, in order; axis 0 is the partition",
        )
        kept = int(np.prod(self.data.shape[1 : axes[0]], dtype=np.int64))
        self.require(
            self.dst.partitions == self.data.partitions,
            f"dst has {self.dst.partitions} partitions, data has {self.data.partitions}",
            "they must match",
        )
        self.require(
            self.dst.elements == kept,
            f"dst has {self.dst.elements} elements per partition",
            f"{kept} remain after reducing axes {list(axes)}",
        )
        if self.keepdims:
            shape = [1 if k in axes else n for k, n in enumerate(self.data.shape)]
            self.require(list(self.dst.shape) == shape, f"dst is {list(self.dst.shape)} with keepdims", f"{shape}")
        self.require(not (self.negate and op.bitvec), f"negate with {self.op}", "an arithmetic operator")
        integers_for_bits(self, self.op, self.dst, self.data)

    def work(self) -> Work:
        return streamed("tensor_reduce", self.dst, self.data, flops=self.data.size)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        out = reduce(self.op, operands["data"], self.axis)
        return {"dst": (-out if self.negate else out).reshape(self.dst.shape)}

    def attributes(self) -> str:
        return f"op={alu_op(self.op).trace_name} dim={'XYZW'[: len(self.axis)]}" + (" negated=1" if self.negate else "")


@instruction(Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD, source="nki.isa.tensor_copy")
class TensorCopy(_Elementwise):
    """dst = src, converted to dst's type. A trace shows COPY where the types agree, CAST where they differ.

    On ScalarE of NeuronCore-v2 it is an activation that copies, through float32.
    """

    packed: ClassVar[bool] = True
    dst: View = of(WRITE_INDIRECT)
    src: View = of(INDIRECT)

    @property
    def opcode(self) -> str:
        return "COPY" if self.dst.dtype == self.src.dtype else "CAST"

    def check(self) -> None:
        self.on_chip()
        self.same_shape("dst", "src")
        packed_alike(self, self.dst, self.src)

    def expand(self, target: Target, engine: Engine) -> Iterable[Instruction]:
        if engine is Engine.SCALAR and not target.feature("scalar.tensor_copy.available"):
            made = REGISTRY["activate"](dst=self.dst, op="copy", data=self.src)  # type: ignore[call-arg]
            made.check()
            return (made,)
        return (self,)

    def work(self) -> Work:
        return streamed("copy", self.dst, self.src)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        return {"dst": operands["src"].reshape(self.dst.shape)}


@instruction(Engine.VECTOR, source="nki.isa.reciprocal")
class Reciprocal(_Elementwise):
    """dst = 1 / data."""

    dst: View = of(WRITE)
    data: View = of(READ)

    def check(self) -> None:
        self.on_chip()
        self.same_shape("dst", "data")

    def work(self) -> Work:
        return streamed("reciprocal", self.dst, self.data)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        with np.errstate(all="ignore"):
            return {"dst": (np.float32(1) / operands["data"].astype(np.float32)).reshape(self.dst.shape)}


@instruction(Engine.VECTOR, Engine.GPSIMD, source="nki.isa.memset")
class Memset(_Elementwise):
    """dst = value everywhere."""

    packed: ClassVar[bool] = True
    dst: View = of(WRITE)
    value: Any = of(Scalar())

    def check(self) -> None:
        self.on_chip()
        self.require(not isinstance(self.value, View), "value is a view", "a number")
        self.require(
            self.dst.dtype.kind != "packed" or self.value == 0, f"value={self.value} in {self.dst.dtype.name}", "0 in a packed type"
        )

    def work(self) -> Work:
        return streamed("memset", self.dst)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        if self.dst.dtype.kind == "packed":
            return {"dst": np.zeros(self.dst.shape, self.dst.dtype.numpy)}
        return {"dst": np.full(self.dst.shape, self.value, np.int64 if isinstance(self.value, int) else np.float64)}


def packed_alike(i: Instruction, dst: View, src: View) -> None:
    """A packed type is copied as it is, never converted."""
    if "packed" in (dst.dtype.kind, src.dtype.kind):
        i.require(
            dst.dtype == src.dtype, f"src is {src.dtype.name}, dst is {dst.dtype.name}", "one packed type: nothing converts to or from it"
        )


def integers_for_bits(i: Instruction, op: str, *views: View) -> None:
    """Bitvec operators see bit patterns: every operand is an integer of one width."""
    if alu_op(op).bitvec:
        kinds = sorted({v.dtype.name for v in views})
        integers = all(v.dtype.kind in ("int", "uint") for v in views) and len({v.dtype.itemsize for v in views}) == 1
        i.require(integers, f"{op} of {', '.join(kinds)}", "integer types of one width for a bitvec operator")


def check_operand(i: Instruction, name: str, op: str, operand: Any, data: View) -> None:
    unary = alu_op(op).unary
    i.require(not unary or operand is None or operand == 0, f"{name}={operand} with unary {op}", "None or 0")
    i.require(unary or operand is not None, f"no {name} for {op}", "a number or a [P, 1] view")
    if not unary:
        _check_bits(i, name, op, operand, data)
    if isinstance(operand, View):
        if not alu_op(op).bitvec:
            i.require(operand.dtype.name == "float32", f"{name} is {operand.dtype.name}", "a float32 vector for an arithmetic operator")
        i.require(
            operand.partitions == data.partitions,
            f"{name} has {operand.partitions} partitions, data has {data.partitions}",
            "they must match",
        )


def _check_bits(i: Instruction, name: str, op: str, operand: Any, data: View) -> None:
    """A number that a bitvec operator takes as a pattern fits the data's width."""
    if alu_op(op).bitvec and operand is not None and not isinstance(operand, View):
        bits = 8 * data.dtype.itemsize
        fits = isinstance(operand, int) and -(1 << (bits - 1)) <= operand < 1 << bits
        i.require(fits, f"{name}={operand} for {op} of {data.dtype.name}", f"a whole number of {bits} bits")


def scalar_step(x: np.ndarray, op: str, operand: Any, reverse: bool) -> np.ndarray:
    if alu_op(op).unary:
        return apply(op, x, None)
    y = per_partition(operand, x.ndim)
    return apply(op, y, x) if reverse else apply(op, x, y)
