"""VectorEngine: elements chosen by a mask or by their position, and partitions chosen by a mask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import attrs
import numpy as np

from .accumulator import COMMANDS, accumulate, check_accumulated, effect, with_result
from .dtypes import cast
from .fields import (
    INDIRECT,
    KEEP,
    QUADRANT,
    READ,
    WRITE,
    WRITE_INDIRECT,
    Choice,
    Flag,
    Integer,
    Mask,
    Maybe,
    Real,
    Scalar,
    Value,
    of,
    one_of,
)
from .instruction import Engine, Work, instruction
from .ops import alu_op, apply
from .vector import _Elementwise, per_partition, streamed
from .view import Memory, View

FP32_MIN = float(np.finfo(np.float32).min)
PREDICATES = ("uint8", "uint16", "uint32")
EXACT = 1 << 24  # float32 holds every whole number up to here
RANGES = Choice(("equal", "less", "less_equal", "greater", "greater_equal"), lambda v: alu_op(v).name)
MAXIMUM = Choice(("maximum",), lambda v: alu_op(v).name)


@instruction(Engine.VECTOR, source="nki.isa.tensor_copy_predicated")
class TensorCopyPredicated(_Elementwise):
    """dst = src, a tensor or a number, where predicate is not 0 (with `reverse_pred`: is 0); elsewhere dst keeps its values."""

    dst: View = of(WRITE_INDIRECT)
    src: Any = of(Value())
    predicate: View = of(INDIRECT)
    reverse_pred: bool = of(Flag(), default=False)

    def keeps(self) -> bool:
        return True

    def check(self) -> None:
        self.on_chip()
        self.same_shape("dst", "predicate")
        self.require(
            self.predicate.dtype.name in PREDICATES, f"predicate is {self.predicate.dtype.name}", f"one of {', '.join(PREDICATES)}"
        )
        if isinstance(self.src, View):
            self.same_shape("dst", "src")
            both = self.src.memory is self.predicate.memory is Memory.PSUM
            self.require(not both, "src and predicate are both in PSUM", "at most one of them may be in PSUM")
            self.require(self.src.dtype == self.dst.dtype, f"src is {self.src.dtype.name}, dst is {self.dst.dtype.name}", "they must match")
        for name, v, _ in self.views:
            self.require(len(v.counts) <= 3, f"{name} is {list(v.shape)}", "at most 3 free dimensions")

    def work(self) -> Work:
        # The printed cycles depend on where src and predicate are, not dst.
        sources = (self.src, self.predicate) if isinstance(self.src, View) else (self.predicate,)
        return attrs.evolve(streamed("copy_predicated", self.dst, *sources), psum_write=False)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        old = operands["dst"]
        chosen = (operands["predicate"].reshape(old.shape) != 0) ^ self.reverse_pred
        if isinstance(self.src, View):
            return {"dst": np.where(chosen, operands["src"].reshape(old.shape), old)}
        number = np.full(1, self.src, np.int64 if isinstance(self.src, int) else np.float64)
        if self.dst.dtype.kind == "float":
            with np.errstate(over="ignore"):
                return {"dst": np.where(chosen, number.astype(np.float32), old.astype(np.float32))}
        return {"dst": np.where(chosen, cast(number, self.dst.dtype), old)}


@instruction(Engine.VECTOR, source="nki.isa.range_select")
class RangeSelect(_Elementwise):
    """dst[:, i] = on_true_tile[:, i] where range_start + i compares true with bound0 and with bound1, else FP32_MIN.

    reduce_res[P, 1] is the accumulator after the largest value of each partition, before it is rounded to dst's type, was put
    to it as `reduce_cmd` says. NeuronCore-v3 and newer.
    """

    since: ClassVar[Mapping[Engine, int]] = {Engine.VECTOR: 3}
    dst: View = of(WRITE)
    on_true_tile: View = of(READ)
    comp_op0: str = of(RANGES)
    comp_op1: str = of(RANGES)
    bound0: View = of(READ)
    bound1: View = of(READ)
    reduce_cmd: str = of(one_of(COMMANDS), default="reset_reduce")
    reduce_res: View | None = of(Maybe(WRITE), default=None)
    reduce_op: str = of(MAXIMUM, default="maximum")
    range_start: int = of(Integer(-EXACT, EXACT), default=0)
    on_false_value: float = of(Real(), default=FP32_MIN)

    def check(self) -> None:
        self.on_chip()
        self.same_shape("dst", "on_true_tile")
        for name, op in (("comp_op0", self.comp_op0), ("comp_op1", self.comp_op1)):
            self.require(op in RANGES.names, f"{name}={op}", f"one of {', '.join(RANGES.names)}")
        self.require(self.reduce_op in MAXIMUM.names, f"reduce_op={self.reduce_op}", "maximum")
        self.require(self.on_true_tile.dtype.kind == "float", f"on_true_tile is {self.on_true_tile.dtype.name}", "a floating-point type")
        for name, v in (("bound0", self.bound0), ("bound1", self.bound1)):
            fits = v.partitions == self.on_true_tile.partitions and v.elements == 1
            self.require(fits, f"{name} is {list(v.shape)}", f"[{self.on_true_tile.partitions}, 1]")
        check_accumulated(self, self.reduce_cmd, self.reduce_res, self.on_true_tile, ("idle", "reset", "reduce", "reset_reduce"))
        for name, v in (("bound0", self.bound0), ("bound1", self.bound1)):
            self.require(v.dtype.name == "float32", f"{name} is {v.dtype.name}", "float32")
        with np.errstate(over="ignore"):
            same = bool(np.float32(self.on_false_value) == np.float32(FP32_MIN))
        self.require(same, f"on_false_value={self.on_false_value!r}", f"{FP32_MIN!r}, the least float32")
        last = self.range_start + self.on_true_tile.elements - 1
        self.require(last <= EXACT, f"positions up to {last}", f"at most {EXACT}, which float32 counts to")
        two = len(self.on_true_tile.shape) == 2
        self.specified(two, f"on_true_tile is {list(self.on_true_tile.shape)}", "[P, N]: the position among more dimensions is not said")

    def accumulator(self) -> tuple[str, int]:
        return effect(self.reduce_cmd), self.on_true_tile.partitions

    def work(self) -> Work:
        return streamed("range_select", self.dst, self.on_true_tile, vectors=1, flops=3 * self.dst.size)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        data = operands["on_true_tile"].astype(np.float32)
        position = (self.range_start + np.arange(data.shape[1])).astype(np.float32)[None]
        ways = ((self.comp_op0, "bound0"), (self.comp_op1, "bound1"))
        inside = [apply(op, position, operands[name].reshape(-1, 1)).astype(bool) for op, name in ways]
        out = np.where(inside[0] & inside[1], data, np.float32(FP32_MIN))
        return with_result(self, out, accumulate(self, state, self.reduce_cmd, "maximum", out))


@instruction(Engine.VECTOR, source="nki.isa.select_reduce")
class SelectReduce(_Elementwise):
    """dst = on_true where predicate is not 0 (with `reverse_pred`: is 0), else on_false, a number or [P, 1].

    reduce_res[P, 1] is the accumulator after the largest value of each partition, before it is rounded to dst's type, was put
    to it as `reduce_cmd` says.
    """

    dst: View = of(WRITE)
    predicate: View = of(READ)
    on_true: View = of(READ)
    on_false: Any = of(Scalar())
    reduce_res: View | None = of(Maybe(WRITE), default=None)
    reduce_cmd: str = of(one_of(COMMANDS), default="idle")
    reduce_op: str = of(MAXIMUM, default="maximum")
    reverse_pred: bool = of(Flag(), default=False)

    def check(self) -> None:
        self.on_chip()
        self.same_shape("dst", "on_true")
        self.same_shape("dst", "predicate")
        both = self.on_true.memory is self.predicate.memory is Memory.PSUM
        self.require(not both, "on_true and predicate are both in PSUM", "at most one of them may be in PSUM")
        wide = ("tfloat32", "int32", "uint32")
        self.require(self.on_true.dtype.name not in wide, f"on_true is {self.on_true.dtype.name}", f"any type but {', '.join(wide)}")
        small = ("int8", "uint8", "int16", "uint16")
        self.require(self.predicate.dtype.name in small, f"predicate is {self.predicate.dtype.name}", f"one of {', '.join(small)}")
        if isinstance(self.on_false, View):
            p, q = self.on_false.partitions, self.on_true.partitions
            self.require(p == q, f"on_false has {p} partitions, on_true has {q}", "they must match")
        self.require(self.reduce_op in MAXIMUM.names, f"reduce_op={self.reduce_op}", "maximum")
        check_accumulated(self, self.reduce_cmd, self.reduce_res, self.on_true, ("idle", "reduce", "reset_reduce"))
        if self.reduce_res is not None:
            self.require(self.reduce_res.dtype.kind == "float", f"reduce_res is {self.reduce_res.dtype.name}", "a floating-point type")

    def accumulator(self) -> tuple[str, int]:
        return effect(self.reduce_cmd), self.on_true.partitions

    def work(self) -> Work:
        vectors = int(isinstance(self.on_false, View))
        work = streamed("select_reduce", self.dst, self.on_true, self.predicate, vectors=vectors, flops=self.dst.size)
        # assumed as tensor_copy_predicated: what counts is where the sources are
        return attrs.evolve(work, psum_write=False, reduces=self.reduce_res is not None)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        data = operands["on_true"].astype(np.float32)
        chosen = (operands["predicate"].reshape(data.shape) != 0) ^ self.reverse_pred
        with np.errstate(over="ignore"):
            other = np.asarray(per_partition(operands.get("on_false", self.on_false), data.ndim)).astype(np.float32)
        out = np.where(chosen, data, other)
        return with_result(self, out, accumulate(self, state, self.reduce_cmd, "maximum", out))


@instruction(Engine.VECTOR, source="nki.isa.nc_stream_shuffle")
class NcStreamShuffle(_Elementwise):
    """dst[32 q + i] = src[32 q + shuffle_mask[i]] in each quadrant q of partitions; with 255, dst[32 q + i] keeps its values."""

    dst: View = of(WRITE)
    src: View = of(READ)
    shuffle_mask: tuple[int, ...] = of(Mask())

    def keeps(self) -> bool:
        return KEEP in self.shuffle_mask

    def sources(self) -> list[int]:
        """The partition of src for each partition of dst, -1 for none."""
        mask = self.shuffle_mask
        return [-1 if mask[k % QUADRANT] == KEEP else k - k % QUADRANT + mask[k % QUADRANT] for k in range(self.dst.partitions)]

    def check(self) -> None:
        self.on_chip()
        self.same_shape("dst", "src", free_only=True)
        self.require(self.src.dtype == self.dst.dtype, f"src is {self.src.dtype.name}, dst is {self.dst.dtype.name}", "they must match")
        last = max(self.sources(), default=-1)
        self.specified(
            last < self.src.partitions, f"shuffle_mask reads partition {last} of src", f"one of the {self.src.partitions} it has"
        )

    def work(self) -> Work:
        return streamed("nc_stream_shuffle", self.dst, self.src)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        places = np.array(self.sources())
        out = operands["src"].reshape(self.src.partitions, *self.dst.shape[1:])[np.maximum(places, 0)]
        if self.keeps():
            out[places < 0] = operands["dst"][places < 0]
        return {"dst": out}
