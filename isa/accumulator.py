"""VectorEngine: reductions beside an elementwise result, and the accumulator that carries them from instruction to instruction.

One float32 register a partition. nki.isa.tensor_scalar_reduce, range_select, select_reduce, tensor_scalar_cumulative and
exponential share it. ScalarEngine has one of its own (isa/scalar.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import attrs
import numpy as np

from .errors import Unsupported
from .fields import ALU, INDIRECT, WRITE, WRITE_INDIRECT, Choice, Flag, Maybe, Scalar, of, one_of
from .instruction import Engine, Instruction, Target, Work, instruction
from .ops import act_fn, alu_op, apply, reduce
from .vector import _Elementwise, check_operand, per_partition, scalar_step, streamed
from .view import View

RESET = "a reset or reset_reduce of as many partitions before"
COMMANDS = ("idle", "reset", "reduce", "reset_reduce", "load_reduce")
REDUCTIONS = Choice(("add", "multiply", "maximum", "minimum"), lambda v: alu_op(v).name)
CUMULATIVE = ("add", "subtract", "multiply", "maximum", "minimum")
SMALL = ("float32", "bfloat16", "float16", "float8_e4m3", "float8_e4m3fn", "float8_e5m2", "float8_e3m4", "uint8", "uint16", "int8", "int16")
EXP_WRITES = (
    "float8_e4m3", "float8_e5m2", "float16", "bfloat16", "float32", "tfloat32", "int8", "int16", "int32", "uint8", "uint16",
)  # fmt: skip
EXP_READS = (*(t for t in EXP_WRITES if t != "tfloat32"), "uint32")
EXP_SUMS = ("float8_e4m3", "float8_e5m2", "float16", "bfloat16", "float32", "tfloat32")


def effect(command: str) -> str:
    """What a reduce_cmd does to VectorE's accumulator (Instruction.accumulator)."""
    # "Even when reduce_cmd is set to idle, the accumulator state may still be modified" (nki.isa.select_reduce)
    return {"idle": "loses", "reduce": "adds"}.get(command, "sets")


def accumulate(i: Instruction, state: dict[str, Any], command: str, op: str, values: np.ndarray, initial: Any = None) -> np.ndarray:
    """The accumulator, [P], after `values` [P, ...] were reduced with `op` as `command` says.

    "reset" and "reset_reduce" start from the operator's identity, "load_reduce" from `initial`, a number or [P, 1].
    """
    partitions = values.shape[0]
    if command == "idle":
        state.pop("accumulator", None)
        return np.full(partitions, np.nan, np.float32)
    if command == "load_reduce":
        with np.errstate(over="ignore"):
            held = np.broadcast_to(np.asarray(initial, np.float32).reshape(-1), (partitions,))
    elif command == "reduce":
        i.require(len(state.get("accumulator", ())) == partitions, "the accumulator was not reset for these partitions", RESET)
        held = state["accumulator"]
    else:
        held = np.full(partitions, alu_op(op).identity, np.float32)
    if command != "reset":
        flat = np.asarray(values, np.float32).reshape(partitions, -1)
        held = apply(op, held, reduce(op, flat, (1,)), integer=False)
    state["accumulator"] = held
    return held


def check_accumulated(i: Instruction, command: str, result: View | None, data: View, commands: tuple[str, ...]) -> None:
    """The command is one of the instruction's, and there is a place for the result where one is wanted."""
    i.require(command in commands, f"reduce_cmd={command}", f"one of {', '.join(commands)}")
    if result is not None:
        fits = result.partitions == data.partitions and result.elements == 1
        i.require(fits, f"reduce_res is {list(result.shape)}", f"[{data.partitions}, 1]")
        i.specified(command != "idle", "reduce_res with reduce_cmd=idle", "another reduce_cmd: the accumulator is unknown then")


def check_initial(i: Instruction, name: str, initial: Any, command: str, data: View) -> None:
    """A start value, which load_reduce needs and nothing else takes."""
    if command == "load_reduce":
        i.require(initial is not None, f"reduce_cmd=load_reduce without {name}", "a number or a [P, 1] view")
    else:
        i.require(isinstance(initial, int | float | None) and not initial, f"{name} with reduce_cmd={command}", "reduce_cmd=load_reduce")
    vector32(i, name, initial, data)


def vector32(i: Instruction, name: str, operand: Any, data: View) -> None:
    """A [P, 1] operand holds one float32 number for each partition of data."""
    if isinstance(operand, View):
        i.require(operand.dtype.name == "float32", f"{name} is {operand.dtype.name}", "float32")
        p, q = operand.partitions, data.partitions
        i.require(p == q, f"{name} has {p} partitions, the data has {q}", "they must match")


def check_types(i: Instruction, name: str, view: View | None, types: tuple[str, ...]) -> None:
    """An operand's type is one of those documented."""
    if view is not None:
        i.require(view.dtype.name in types, f"{name} is {view.dtype.name}", f"one of {', '.join(types)}")


@instruction(Engine.VECTOR, source="nki.isa.tensor_scalar_reduce")
class TensorScalarReduce(_Elementwise):
    """dst = data <op0> operand0; reduce_res[P, 1] = the accumulator after its reduction over all free axes, before dst rounds.

    `reduce_cmd`: start the accumulator anew (reset_reduce), go on with it (reduce) or start from `reduce_init` (load_reduce).
    """

    dst: View = of(WRITE_INDIRECT)
    data: View = of(INDIRECT)
    op0: str = of(ALU)
    operand0: Any = of(Maybe(Scalar()))
    reduce_op: str = of(REDUCTIONS)
    reduce_res: View | None = of(Maybe(WRITE), default=None)
    reverse0: bool = of(Flag(), default=False)
    reduce_cmd: str = of(one_of(COMMANDS), default="reset_reduce")
    reduce_init: Any = of(Maybe(Scalar()), default=None)
    reduce_res_negate: bool = of(Flag(), default=False)

    def check(self) -> None:
        self.on_chip()
        self.same_shape("dst", "data")
        self.require(not alu_op(self.op0).bitvec, f"op0={self.op0}", "an arithmetic operator")
        check_operand(self, "operand0", self.op0, self.operand0, self.data)
        self.require(self.reduce_op in REDUCTIONS.names, f"reduce_op={self.reduce_op}", f"one of {', '.join(REDUCTIONS.names)}")
        check_accumulated(self, self.reduce_cmd, self.reduce_res, self.data, ("reset_reduce", "reduce", "load_reduce"))
        check_initial(self, "reduce_init", self.reduce_init, self.reduce_cmd, self.data)

    def expand(self, target: Target, engine: Engine) -> Iterable[Instruction]:
        if self.reverse0:
            raise Unsupported(self.mnemonic, "reverse0=True", "False: nki.isa has the keyword and does not support it yet", self.source)
        return (self,)

    def accumulator(self) -> tuple[str, int]:
        return effect(self.reduce_cmd), self.data.partitions

    def work(self) -> Work:
        vectors = int(isinstance(self.operand0, View) or isinstance(self.reduce_init, View))
        work = streamed("tensor_scalar_reduce", self.dst, self.data, vectors=vectors, flops=2 * self.dst.size)
        return attrs.evolve(work, reduces=True)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        x = operands["data"].astype(np.float32)
        out = scalar_step(x, self.op0, operands.get("operand0", self.operand0), reverse=False)
        total = accumulate(self, state, self.reduce_cmd, self.reduce_op, out, operands.get("reduce_init", self.reduce_init))
        return with_result(self, out, -total if self.reduce_res_negate else total)


@instruction(Engine.VECTOR, source="nki.isa.tensor_scalar_cumulative")
class TensorScalarCumulative(_Elementwise):
    """dst[:, i] = acc = (src[:, i] <op0> imm0) <op1> acc, in float32: a running reduction of what op0 gives.

    `reduce_cmd` says where acc starts: op1's identity, the accumulator as an earlier instruction left it, or `imm1`.
    """

    dst: View = of(WRITE_INDIRECT)
    src: View = of(INDIRECT)
    op0: str = of(ALU)
    op1: str = of(ALU)
    imm0: Any = of(Scalar())
    imm1: Any = of(Maybe(Scalar()), default=None)
    reduce_cmd: str = of(one_of(COMMANDS), default="reset_reduce")

    def check(self) -> None:
        self.on_chip()
        self.same_shape("dst", "src")
        op = alu_op(self.op0)
        self.require(not op.bitvec and not op.unary, f"op0={self.op0}", "a binary arithmetic operator")
        self.require(self.op1 in CUMULATIVE, f"op1={self.op1}", f"one of {', '.join(CUMULATIVE)}")
        for name, v in (("dst", self.dst), ("src", self.src)):
            check_types(self, name, v, SMALL)
            self.specified(len(v.shape) == 2, f"{name} is {list(v.shape)}", "[P, N]: the order of more dimensions is not said")
        vector32(self, "imm0", self.imm0, self.src)
        check_accumulated(self, self.reduce_cmd, None, self.src, ("reset_reduce", "reduce", "load_reduce"))
        check_initial(self, "imm1", self.imm1, self.reduce_cmd, self.src)

    def accumulator(self) -> tuple[str, int]:
        return effect(self.reduce_cmd), self.src.partitions

    def work(self) -> Work:
        vectors = int(isinstance(self.imm0, View) or isinstance(self.imm1, View))
        return streamed("tensor_scalar_cumulative", self.dst, self.src, vectors=vectors, flops=2 * self.dst.size)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        x = operands["src"].astype(np.float32)
        first = scalar_step(x, self.op0, operands.get("imm0", self.imm0), reverse=False)
        # subtract starts from 0, as add; as a reduction it has no identity
        op = "add" if self.op1 == "subtract" else self.op1
        command = "reset" if self.reduce_cmd == "reset_reduce" else self.reduce_cmd
        nothing = first[:, :0]
        last = accumulate(self, state, command, op, nothing, operands.get("imm1", self.imm1))
        out = np.empty_like(first)
        for k in range(first.shape[1]):
            last = out[:, k] = apply(self.op1, first[:, k], last, integer=False)
        state["accumulator"] = last
        return {"dst": out}

    def attributes(self) -> str:
        return f"ops={alu_op(self.op0).trace_name},{alu_op(self.op1).trace_name} accumulator_cmd={self.reduce_cmd.upper()}"


@instruction(Engine.VECTOR, source="nki.isa.exponential")
class Exponential(_Elementwise):
    """dst = exp(src - max_value); reduce_res[P, 1] = the accumulator after its sum over all free axes. NeuronCore-v4 and newer."""

    since: ClassVar[Mapping[Engine, int]] = {Engine.VECTOR: 4}
    dst: View = of(WRITE_INDIRECT)
    src: View = of(INDIRECT)
    max_value: Any = of(Scalar(), default=0.0)
    reduce_res: View | None = of(Maybe(WRITE), default=None)
    reduce_cmd: str = of(one_of(COMMANDS), default="idle")
    reduce_init: Any = of(Scalar(), default=0.0)

    def check(self) -> None:
        self.on_chip()
        self.same_shape("dst", "src")
        check_types(self, "dst", self.dst, EXP_WRITES)
        check_types(self, "src", self.src, EXP_READS)
        check_types(self, "reduce_res", self.reduce_res, EXP_SUMS)
        for name, v in (("dst", self.dst), ("src", self.src)):
            self.require(len(v.shape) <= 4, f"{name} is {list(v.shape)}", "at most 4 dimensions")
        vector32(self, "max_value", self.max_value, self.src)
        check_accumulated(self, self.reduce_cmd, self.reduce_res, self.src, ("idle", "reset_reduce", "reduce", "load_reduce"))
        check_initial(self, "reduce_init", self.reduce_init, self.reduce_cmd, self.src)

    def accumulator(self) -> tuple[str, int]:
        return effect(self.reduce_cmd), self.src.partitions

    def work(self) -> Work:
        vectors = int(isinstance(self.max_value, View) or isinstance(self.reduce_init, View))
        work = streamed("exponential", self.dst, self.src, vectors=vectors, flops=2 * self.dst.size)
        return attrs.evolve(work, reduces=self.reduce_res is not None)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        x = operands["src"].astype(np.float32)
        with np.errstate(all="ignore"):
            out = act_fn("exp").function(x - np.float32(per_partition(operands.get("max_value", self.max_value), x.ndim)))
        total = accumulate(self, state, self.reduce_cmd, "add", out, operands.get("reduce_init", self.reduce_init))
        return with_result(self, out, total)


def with_result(i: Any, out: np.ndarray, total: np.ndarray) -> dict[str, np.ndarray]:
    """The results of an instruction with `dst` and, where asked for, `reduce_res`."""
    results = {"dst": out.reshape(i.dst.shape)}
    return results if i.reduce_res is None else {**results, "reduce_res": total.reshape(i.reduce_res.shape)}
