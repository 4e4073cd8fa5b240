"""VectorEngine: elements chosen by a mask or by their position, and partitions chosen by a mask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import attrs
import numpy as np

from .fields import KEEP, QUADRANT, READ, WRITE, Choice, Integer, Mask, Maybe, Real, of
from .instruction import Engine, Work, instruction
from .ops import alu_op, apply
from .vector import _Elementwise, streamed
from .view import Memory, View

FP32_MIN = float(np.finfo(np.float32).min)
PREDICATES = ("uint8", "uint16", "uint32")
EXACT = 1 << 24  # float32 holds every whole number up to here
RANGES = Choice(("equal", "less", "less_equal", "greater", "greater_equal"), lambda v: alu_op(v).name)
MAXIMUM = Choice(("maximum",), lambda v: alu_op(v).name)


@instruction(Engine.VECTOR, source="nki.isa.tensor_copy_predicated")
class TensorCopyPredicated(_Elementwise):
    """dst = src where predicate is not 0; elsewhere dst keeps its values."""

    dst: View = of(WRITE)
    src: View = of(READ)
    predicate: View = of(READ)
    only: ClassVar[Mapping[str, Any]] = {"reverse_pred": False}

    def keeps(self) -> bool:
        return True

    def check(self) -> None:
        self.on_chip()
        self.same_shape("dst", "src")
        self.same_shape("dst", "predicate")
        both = self.src.memory is self.predicate.memory is Memory.PSUM
        self.require(not both, "src and predicate are both in PSUM", "at most one of them may be in PSUM")
        self.require(
            self.predicate.dtype.name in PREDICATES, f"predicate is {self.predicate.dtype.name}", f"one of {', '.join(PREDICATES)}"
        )
        self.require(self.src.dtype == self.dst.dtype, f"src is {self.src.dtype.name}, dst is {self.dst.dtype.name}", "they must match")
        for name, v, _ in self.views:
            self.require(len(v.counts) <= 3, f"{name} is {list(v.shape)}", "at most 3 free dimensions")

    def work(self) -> Work:
        # The printed cycles depend on where src and predicate are, not dst.
        return attrs.evolve(streamed("copy_predicated", self.dst, self.src, self.predicate), psum_write=False)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        chosen, src = (operands[n].reshape(self.dst.shape) for n in ("predicate", "src"))
        return {"dst": np.where(chosen != 0, src, operands["dst"])}


@instruction(Engine.VECTOR, source="nki.isa.range_select")
class RangeSelect(_Elementwise):
    """dst[:, i] = on_true_tile[:, i] where range_start + i compares true with bound0 and with bound1, else FP32_MIN.

    reduce_res[P, 1] is the largest value of each partition, before it is rounded to dst's type. NeuronCore-v3 and newer.
    """

    dst: View = of(WRITE)
    on_true_tile: View = of(READ)
    comp_op0: str = of(RANGES)
    comp_op1: str = of(RANGES)
    bound0: View = of(READ)
    bound1: View = of(READ)
    reduce_res: View | None = of(Maybe(WRITE), default=None)
    reduce_op: str = of(MAXIMUM, default="maximum")
    range_start: int = of(Integer(-EXACT, EXACT), default=0)
    on_false_value: float = of(Real(), default=FP32_MIN)
    only: ClassVar[Mapping[str, Any]] = {"reduce_cmd": "reset_reduce"}

    def check(self) -> None:
        self.on_chip()
        self.same_shape("dst", "on_true_tile")
        for name, op in (("comp_op0", self.comp_op0), ("comp_op1", self.comp_op1)):
            self.require(op in RANGES.names, f"{name}={op}", f"one of {', '.join(RANGES.names)}")
        self.require(self.reduce_op in MAXIMUM.names, f"reduce_op={self.reduce_op}", "maximum")
        self.require(self.on_true_tile.dtype.kind == "float", f"on_true_tile is {self.on_true_tile.dtype.name}", "a floating-point type")
        for name, v in (("bound0", self.bound0), ("bound1", self.bound1), ("reduce_res", self.reduce_res)):
            if v is not None:
                fits = v.partitions == self.on_true_tile.partitions and v.elements == 1
                self.require(fits, f"{name} is {list(v.shape)}", f"[{self.on_true_tile.partitions}, 1]")
        for name, v in (("bound0", self.bound0), ("bound1", self.bound1)):
            self.require(v.dtype.name == "float32", f"{name} is {v.dtype.name}", "float32")
        with np.errstate(over="ignore"):
            same = bool(np.float32(self.on_false_value) == np.float32(FP32_MIN))
        self.require(same, f"on_false_value={self.on_false_value!r}", f"{FP32_MIN!r}, the least float32")
        last = self.range_start + self.on_true_tile.elements - 1
        self.require(last <= EXACT, f"positions up to {last}", f"at most {EXACT}, which float32 counts to")
        two = len(self.on_true_tile.shape) == 2
        self.specified(two, f"on_true_tile is {list(self.on_true_tile.shape)}", "[P, N]: the position among more dimensions is not said")

    def work(self) -> Work:
        return streamed("range_select", self.dst, self.on_true_tile, vectors=1, flops=3 * self.dst.size)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        data = operands["on_true_tile"].astype(np.float32)
        position = (self.range_start + np.arange(data.shape[1])).astype(np.float32)[None]
        ways = ((self.comp_op0, "bound0"), (self.comp_op1, "bound1"))
        inside = [apply(op, position, operands[name].reshape(-1, 1)).astype(bool) for op, name in ways]
        out = np.where(inside[0] & inside[1], data, np.float32(FP32_MIN))
        results = {"dst": out.reshape(self.dst.shape)}
        return results if self.reduce_res is None else {**results, "reduce_res": out.max(axis=1).reshape(self.reduce_res.shape)}


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
