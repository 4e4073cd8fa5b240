"""ScalarEngine: activation functions, and the accumulator beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from .accumulator import RESET, accumulate
from .errors import ProgramError, Unsupported
from .fields import ACT, INDIRECT, WRITE, WRITE_INDIRECT, Choice, Flag, Maybe, Scalar, alu_of, of, one_of
from .instruction import Engine, Instruction, Target, Work, has, instruction
from .ops import act_fn, alu_op
from .vector import _Elementwise, per_partition, scalar_step, streamed
from .view import View


def _sum(value: Any) -> str:
    """`add` in any of its spellings, np.add and nl.add included."""
    if alu_op(value).name != "add":
        raise ProgramError("", f"{value!r}", "one of add; activate2 of NeuronCore-v4 has more")
    return "add"


SUM = Choice(("add",), _sum)
OPERATORS = alu_of("multiply", "add", "subtract", "bypass")
PAIRS = (
    ("multiply", "add"), ("multiply", "subtract"), ("multiply", "bypass"), ("add", "bypass"), ("subtract", "bypass"), ("bypass", "bypass"),
)  # fmt: skip
REDUCTIONS = ("add", "maximum", "minimum", "abs_max", "abs_min")
REDUCTION = alu_of(*REDUCTIONS)
REDUCE_CMDS = one_of(("idle", "reset", "reduce", "reset_reduce"))


def check_operands(i: Activate | Activation | ActivationReduce) -> None:
    """What holds for data, scale and bias of every activation."""
    i.on_chip()
    i.same_shape("dst", "data")
    for name, v in (("bias", i.bias), ("scale", i.scale)):
        if isinstance(v, View):
            i.require(
                v.partitions == i.data.partitions, f"{name} has {v.partitions} partitions, data has {i.data.partitions}", "they must match"
            )
    if isinstance(i.scale, View):
        i.require(i.scale.dtype.name == "float32", f"scale is {i.scale.dtype.name}", "a float32 vector")
    if isinstance(i.bias, View):
        i.require(i.bias.dtype.name != "tfloat32", "bias is tfloat32", "any other type")


def check_bias(i: Activate | Activation | ActivationReduce, target: Target) -> None:
    """The chip's activations take such a bias."""
    if i.bias is None or target.feature("scalar.number_bias"):
        return
    if i.op == "reciprocal":
        raise Unsupported(i.mnemonic, "a bias with op=reciprocal", "no bias, or NeuronCore-v3 or newer", i.source)
    if not isinstance(i.bias, View) and i.bias != 0:
        raise Unsupported(i.mnemonic, f"bias={i.bias}", "a [P, 1] view, or NeuronCore-v3 or newer", i.source)


def check_sums(i: Activation | ActivationReduce | Activate2) -> None:
    """The sums fit where they are asked for."""
    if i.reduce_res is not None:
        i.require(
            i.reduce_res.partitions == i.data.partitions and i.reduce_res.elements == 1,
            f"reduce_res is {list(i.reduce_res.shape)}",
            f"[{i.data.partitions}, 1]",
        )


@instruction(Engine.SCALAR, source="trn2 hardware traces, ACTIVATE")
class Activate(_Elementwise):
    """dst = op(data * scale + bias), in float32; may add the row sums to the engine's accumulator."""

    dst: View = of(WRITE_INDIRECT)
    op: str = of(ACT)
    data: View = of(INDIRECT)
    bias: Any = of(Maybe(Scalar()), default=None)
    scale: Any = of(Scalar(), default=1.0)
    reduce_cmd: str = of(REDUCE_CMDS, default="idle")

    def check(self) -> None:
        check_operands(self)

    def expand(self, target: Target, engine: Engine) -> Iterable[Instruction]:
        check_bias(self, target)
        return (self,)

    def accumulator(self) -> tuple[str, int]:
        did = {"reset": "sets", "reset_reduce": "sets", "reduce": "adds"}
        return did.get(self.reduce_cmd, ""), self.data.partitions

    def work(self) -> Work:
        kind = "identity" if self.op in ("copy", "identity") else "function"
        vectors = sum(isinstance(v, View) for v in (self.bias, self.scale))
        return streamed(kind, self.dst, self.data, vectors=vectors, flops=self.dst.size)

    def table(self) -> str | None:
        return self.op

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        x = operands["data"].astype(np.float32)
        scale = per_partition(operands.get("scale", self.scale), x.ndim)
        with np.errstate(all="ignore"):
            scaled = x * np.asarray(scale, np.float32)
            if self.bias is not None:  # adding 0 would make +0 of -0
                scaled = scaled + np.asarray(per_partition(operands.get("bias", self.bias), x.ndim), np.float32)
            out = act_fn(self.op).function(scaled)
            if self.reduce_cmd in ("reset", "reset_reduce"):
                state["accumulator"] = np.zeros(x.shape[0], np.float32)
            if self.reduce_cmd in ("reduce", "reset_reduce"):
                self.require(len(state.get("accumulator", ())) == x.shape[0], "the accumulator was not reset for these partitions", RESET)
                state["accumulator"] = state["accumulator"] + out.reshape(x.shape[0], -1).sum(axis=1, dtype=np.float32)
        return {"dst": out.reshape(self.dst.shape)}

    def attributes(self) -> str:
        scale = "PTR" if isinstance(self.scale, View) else f"{float(self.scale):f}"
        return f"{act_fn(self.op).trace_name} scale={scale} accumulator_cmd={self.reduce_cmd.upper()}"


@instruction(Engine.SCALAR, source="nki.isa.activation: reading reduce_regs is an extra instruction", mnemonic="act_read_accumulator")
class ReadAccumulator(_Elementwise):
    """dst[P, 1] = the row sums in the engine's accumulator."""

    dst: View = of(WRITE)

    def check(self) -> None:
        self.on_chip()
        self.require(self.dst.elements == 1, f"dst is {list(self.dst.shape)}", "[P, 1]")

    def accumulator(self) -> tuple[str, int]:
        return "reads", self.dst.partitions

    def work(self) -> Work:
        return streamed("read_accumulator", self.dst)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        self.require(len(state.get("accumulator", ())) == self.dst.partitions, "the accumulator holds other partitions", RESET)
        return {"dst": state["accumulator"].reshape(self.dst.shape)}


@instruction(Engine.SCALAR, source="trn2 hardware traces, ACT_TABLE_LOAD", mnemonic="act_table_load")
class TableLoad(Instruction):
    """Make the table set of an activation function resident."""

    function: str = of(ACT)

    def work(self) -> Work:
        return Work(kind="table_load")

    def signals(self) -> bool:
        return False

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        return {}

    def attributes(self) -> str:
        return f"function={act_fn(self.function).trace_name}"


@instruction(Engine.SCALAR, source="nki.isa.activation", machine=False)
class Activation(_Elementwise):
    """dst = op(data * scale + bias); with `reduce_op` and `reduce_res`, also the sum over the free axes.

    `scale` and `bias` are numbers or [P, 1] views, on NeuronCore-v2 a bias is a view; arithmetic is float32. Reading the sums
    out is a second instruction.
    """

    dst: View = of(WRITE_INDIRECT)
    op: str = of(ACT)
    data: View = of(INDIRECT)
    bias: Any = of(Maybe(Scalar()), default=None)
    scale: Any = of(Scalar(), default=1.0)
    reduce_op: str | None = of(Maybe(SUM), default=None)
    reduce_res: View | None = of(Maybe(WRITE), default=None)
    reduce_cmd: str = of(REDUCE_CMDS, default="idle")

    def check(self) -> None:
        check_operands(self)
        reducing = self.reduce_cmd in ("reduce", "reset_reduce") or self.reduce_res is not None
        self.require(not reducing or self.reduce_op is not None, "a reduction without reduce_op", "reduce_op=add")
        check_sums(self)

    def expand(self, target: Target, engine: Engine) -> Iterable[Instruction]:
        check_bias(self, target)
        cmd = self.reduce_cmd
        if self.reduce_res is not None and cmd == "idle":
            cmd = "reset_reduce"  # as nki.isa.activation_reduce: the result holds this instruction's sums only
        yield Activate(dst=self.dst, op=self.op, data=self.data, bias=self.bias, scale=self.scale, reduce_cmd=cmd)
        if self.reduce_res is not None:
            yield ReadAccumulator(dst=self.reduce_res)


@instruction(Engine.SCALAR, source="nki.isa.activation_reduce", machine=False)
class ActivationReduce(_Elementwise):
    """dst = op(data * scale + bias), reduce_res = its sums over the free axes: `activation` with reduce_cmd=reset_reduce.

    Without `reduce_res` the sums stay in the engine's accumulator.
    """

    dst: View = of(WRITE_INDIRECT)
    op: str = of(ACT)
    data: View = of(INDIRECT)
    reduce_op: str = of(SUM)
    reduce_res: View | None = of(Maybe(WRITE))
    bias: Any = of(Maybe(Scalar()), default=None)
    scale: Any = of(Scalar(), default=1.0)

    def check(self) -> None:
        check_operands(self)
        check_sums(self)

    def expand(self, target: Target, engine: Engine) -> Iterable[Instruction]:
        check_bias(self, target)
        yield Activate(dst=self.dst, op=self.op, data=self.data, bias=self.bias, scale=self.scale, reduce_cmd="reset_reduce")
        if self.reduce_res is not None:
            yield ReadAccumulator(dst=self.reduce_res)


@instruction(
    Engine.SCALAR, source="nki.isa.activate2: the instruction without the read of the accumulator", mnemonic="activate_tensor_scalar"
)
class ActivateTensorScalar(_Elementwise):
    """dst = op((data <op0> imm0) <op1> imm1), in float32; may reduce the results into the engine's accumulator."""

    since: ClassVar[Mapping[Engine, int]] = {Engine.SCALAR: 4}
    dst: View = of(WRITE_INDIRECT)
    op: str = of(ACT)
    data: View = of(INDIRECT)
    imm0: Any = of(Scalar())
    imm1: Any = of(Scalar())
    op0: str = of(OPERATORS)
    op1: str = of(OPERATORS)
    relu_param: Any = of(Scalar(), default=0.0)
    reverse0: bool = of(Flag(), default=False)
    reverse1: bool = of(Flag(), default=False)
    reduce_op: str | None = of(Maybe(REDUCTION), default=None)
    reduce_cmd: str = of(REDUCE_CMDS, default="idle")

    def check(self) -> None:
        check_pipeline(self)

    def expand(self, target: Target, engine: Engine) -> Iterable[Instruction]:
        check_chip(self, target, engine)
        return (self,)

    def accumulator(self) -> tuple[str, int]:
        did = {"reset": "sets", "reset_reduce": "sets", "reduce": "adds"}
        return did.get(self.reduce_cmd, ""), self.data.partitions

    def work(self) -> Work:
        kind = "identity" if self.op in ("copy", "identity") else "function"
        vectors = sum(isinstance(v, View) for v in (self.imm0, self.imm1, self.relu_param))
        return streamed(kind, self.dst, self.data, vectors=vectors, flops=3 * self.dst.size)

    def table(self) -> str | None:
        return self.op

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        x = operands["data"].astype(np.float32)
        for op, name, reverse in ((self.op0, "imm0", self.reverse0), (self.op1, "imm1", self.reverse1)):
            if op != "bypass":
                x = scalar_step(x, op, operands.get(name, getattr(self, name)), reverse)
        out = act_fn(self.op).function(x, per_partition(operands.get("relu_param", self.relu_param), x.ndim))
        if self.reduce_cmd != "idle":
            accumulate(self, state, self.reduce_cmd, self.reduce_op or "add", out)
        return {"dst": out.reshape(self.dst.shape)}

    def attributes(self) -> str:
        names = ",".join(alu_op(op).trace_name for op in (self.op0, self.op1))
        return f"{act_fn(self.op).trace_name} ops={names} accumulator_cmd={self.reduce_cmd.upper()}"


def check_chip(i: Instruction, target: Target, engine: Engine) -> None:
    """The chip's ScalarE has the two operators and the other reductions."""
    if not target.feature("scalar.activate2"):
        raise Unsupported(i.mnemonic, f"{i.mnemonic} on {engine.label} of this chip", has(i, engine), i.source)


def check_pipeline(i: ActivateTensorScalar | Activate2) -> None:
    """What holds for the two operators, the function and the reduction of activate2."""
    i.on_chip()
    i.same_shape("dst", "data")
    pairs = ", ".join(f"({a}, {b})" for a, b in PAIRS)
    i.require((i.op0, i.op1) in PAIRS, f"(op0, op1)=({i.op0}, {i.op1})", f"one of {pairs}")
    for op, name, reverse in ((i.op0, "0", i.reverse0), (i.op1, "1", i.reverse1)):
        i.require(op != "bypass" or not reverse, f"reverse{name} with op{name}=bypass", f"an operator op{name}")
    for name in ("imm0", "imm1", "relu_param"):
        v = getattr(i, name)
        if isinstance(v, View):
            i.require(
                v.partitions == i.data.partitions, f"{name} has {v.partitions} partitions, data has {i.data.partitions}", "they must match"
            )
    if isinstance(i.imm0, View) and isinstance(i.imm1, View):
        a, b = i.imm0.dtype.name, i.imm1.dtype.name
        i.require(a == b, f"imm0 is {a}, imm1 is {b}", "one type")


@instruction(Engine.SCALAR, source="nki.isa.activate2", machine=False)
class Activate2(_Elementwise):
    """dst = op((data <op0> imm0) <op1> imm1); with `reduce_op` and `reduce_res`, also its reduction over the free axes.

    Arithmetic is float32. Reading the accumulator out is a second instruction. NeuronCore-v4 and newer.
    """

    since: ClassVar[Mapping[Engine, int]] = {Engine.SCALAR: 4}
    dst: View = of(WRITE_INDIRECT)
    op: str = of(ACT)
    data: View = of(INDIRECT)
    imm0: Any = of(Scalar())
    imm1: Any = of(Scalar())
    op0: str = of(OPERATORS)
    op1: str = of(OPERATORS)
    relu_param: Any = of(Scalar(), default=0.0)
    reverse0: bool = of(Flag(), default=False)
    reverse1: bool = of(Flag(), default=False)
    reduce_op: str | None = of(Maybe(REDUCTION), default=None)
    reduce_res: View | None = of(Maybe(WRITE), default=None)
    reduce_cmd: str = of(REDUCE_CMDS, default="idle")

    def check(self) -> None:
        check_pipeline(self)
        check_sums(self)
        reducing = self.reduce_cmd != "idle" or self.reduce_res is not None
        self.require(not reducing or self.reduce_op is not None, "a reduction without reduce_op", f"one of {', '.join(REDUCTIONS)}")

    def expand(self, target: Target, engine: Engine) -> Iterable[Instruction]:
        check_chip(self, target, engine)
        yield ActivateTensorScalar(
            dst=self.dst, op=self.op, data=self.data, imm0=self.imm0, imm1=self.imm1, op0=self.op0, op1=self.op1,
            relu_param=self.relu_param, reverse0=self.reverse0, reverse1=self.reverse1,
            reduce_op=self.reduce_op, reduce_cmd=self.reduce_cmd,
        )  # fmt: skip
        if self.reduce_res is not None:
            yield ReadAccumulator(dst=self.reduce_res)
