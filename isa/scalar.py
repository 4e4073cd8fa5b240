"""ScalarEngine: activation functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .accumulator import RESET
from .errors import ProgramError
from .fields import ACT, READ, WRITE, Choice, Maybe, Scalar, of, one_of
from .instruction import Engine, Instruction, Target, Work, instruction
from .ops import act_fn, alu_op
from .vector import _Elementwise, per_partition, streamed
from .view import View


def _sum(value: Any) -> str:
    """`add` in any of its spellings, np.add and nl.add included."""
    if alu_op(value).name != "add":
        raise ProgramError("", f"{value!r}", "one of add")
    return "add"


SUM = Choice(("add",), _sum)
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


def check_sums(i: Activation | ActivationReduce) -> None:
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

    dst: View = of(WRITE)
    op: str = of(ACT)
    data: View = of(READ)
    bias: Any = of(Maybe(Scalar()), default=None)
    scale: Any = of(Scalar(), default=1.0)
    reduce_cmd: str = of(REDUCE_CMDS, default="idle")

    def check(self) -> None:
        check_operands(self)

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
        bias = per_partition(operands.get("bias", 0.0 if self.bias is None else self.bias), x.ndim)
        with np.errstate(all="ignore"):
            out = act_fn(self.op).function(x * np.asarray(scale, np.float32) + np.asarray(bias, np.float32))
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

    `scale` and `bias` are numbers or [P, 1] views; arithmetic is float32. Reading the sums out is a second instruction.
    """

    dst: View = of(WRITE)
    op: str = of(ACT)
    data: View = of(READ)
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

    dst: View = of(WRITE)
    op: str = of(ACT)
    data: View = of(READ)
    reduce_op: str = of(SUM)
    reduce_res: View | None = of(Maybe(WRITE))
    bias: Any = of(Maybe(Scalar()), default=None)
    scale: Any = of(Scalar(), default=1.0)

    def check(self) -> None:
        check_operands(self)
        check_sums(self)

    def expand(self, target: Target, engine: Engine) -> Iterable[Instruction]:
        yield Activate(dst=self.dst, op=self.op, data=self.data, bias=self.bias, scale=self.scale, reduce_cmd="reset_reduce")
        if self.reduce_res is not None:
            yield ReadAccumulator(dst=self.reduce_res)
