"""GpSimdEngine: what works across partitions. Each of its eight processors has 16 consecutive partitions, a group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from .errors import ProgramError
from .fields import READ, WRITE, Choice, Integer, Maybe, of
from .gpsimd import INT32
from .instruction import Engine, Work, instruction
from .ops import alu_op, reduce
from .vector import _Elementwise, integers_for_bits, streamed
from .view import Memory, View

GROUP = 16
MOST_INDICES = 4096  # of one group in local_gather
WIDTHS = (1, 2, 4, 8, 16, 32)
ACROSS = ("add", "average", "maximum", "bitwise_or", "bitwise_and")


def _across(value: Any) -> str:
    """A reduction across partitions, in any spelling; `average` is no ALU operator."""
    name = value if isinstance(value, str) else getattr(value, "__name__", getattr(value, "name", ""))
    if name.removeprefix("nki.language.").removeprefix("nl.").removeprefix("np.") == "average":
        return "average"
    op = alu_op(value).name
    if op not in ACROSS:
        raise ProgramError("", f"{value!r}", f"one of {', '.join(ACROSS)}")
    return op


class _Grouped(_Elementwise):
    """Shared rules: SBUF only, and whole groups of partitions where groups count."""

    def in_sbuf(self) -> None:
        self.on_chip()
        for name, v, _ in self.views:
            self.require(v.memory is Memory.SBUF, f"{name} is in {v.memory.name}", "SBUF: the GpSimdEngine does not reach PSUM")

    def check_groups(self, name: str) -> None:
        p = getattr(self, name).partitions
        self.require(p % GROUP == 0, f"{name} has {p} partitions", f"a multiple of {GROUP}")

    def check_type(self, name: str, *types: str) -> None:
        v = getattr(self, name)
        self.require(v.dtype.name in types, f"{name} is {v.dtype.name}", " or ".join(types))


@instruction(Engine.GPSIMD, source="nki.isa.tensor_partition_reduce")
class TensorPartitionReduce(_Grouped):
    """dst[1, ...] = the reduction of data over its partitions."""

    dst: View = of(WRITE)
    op: str = of(Choice(ACROSS, _across))
    data: View = of(READ)

    def check(self) -> None:
        self.in_sbuf()
        self.require(self.dst.partitions == 1, f"dst has {self.dst.partitions} partitions", "1")
        self.same_shape("dst", "data", free_only=True)
        if self.op != "average":
            integers_for_bits(self, self.op, self.dst, self.data)

    def work(self) -> Work:
        return streamed("partition_reduce", self.dst, self.data, flops=self.data.size)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        data = operands["data"].reshape(self.data.partitions, -1)
        if self.op == "average":
            out = reduce("add", data, (0,)) / np.float32(self.data.partitions)
        else:
            out = reduce(self.op, data, (0,))
        return {"dst": out.reshape(self.dst.shape)}

    def attributes(self) -> str:
        return f"op={'AVERAGE' if self.op == 'average' else alu_op(self.op).trace_name}"


@instruction(Engine.GPSIMD, source="nki.isa.sequence_bounds")
class SequenceBounds(_Grouped):
    """dst[1, 0, i] = where the run of equal segment_ids that element i is in starts, dst[1, 1, i] = where it ends, one past.

    Elements with ID 0 are padding: they start at the number of elements and end at -1.
    """

    dst: View = of(WRITE)
    segment_ids: View = of(READ)

    def check(self) -> None:
        self.in_sbuf()
        for name, v in (("dst", self.dst), ("segment_ids", self.segment_ids)):
            self.require(v.partitions == 1, f"{name} has {v.partitions} partitions", "1")
            self.check_type(name, "float32", "int32")
        n = self.segment_ids.elements
        self.require(self.dst.elements == 2 * n, f"dst has {self.dst.elements} elements", f"{2 * n}, a start and an end for each ID")

    def work(self) -> Work:
        return Work(kind="sequence_bounds", elements=self.segment_ids.elements, flops=self.dst.size)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        ids = operands["segment_ids"].reshape(-1)
        self.require(
            bool((ids >= 0).all() and (ids == np.floor(ids)).all()), "an ID that is negative or not whole", "whole numbers from 0 on"
        )
        n = len(ids)
        edges = np.flatnonzero(np.diff(ids)) + 1
        starts, ends = np.concatenate([[0], edges]), np.concatenate([edges, [n]])
        run = np.searchsorted(edges, np.arange(n), side="right")
        bounds = np.where(ids == 0, np.array([[n], [-1]]), np.stack([starts[run], ends[run]]))
        return {"dst": bounds.reshape(self.dst.shape)}


@instruction(Engine.GPSIMD, source="nki.isa.local_gather")
class LocalGather(_Grouped):
    """dst[p, e k + j] = src_buffer[p, i + j] for the k-th index i of p's group and j below e = num_elem_per_idx.

    The indices of a group are those of its 16 partitions of `index`, partition by partition in each column, the first
    `num_valid_indices` of them. Free dimensions are flattened.
    """

    dst: View = of(WRITE)
    src_buffer: View = of(READ)
    index: View = of(READ)
    num_elem_per_idx: int = of(Integer(1, WIDTHS[-1]), default=1)
    num_valid_indices: int | None = of(Maybe(Integer(1, MOST_INDICES)), default=None)

    @property
    def valid(self) -> int:
        """Indices of a group that count."""
        return self.num_valid_indices or GROUP * self.index.elements

    def check(self) -> None:
        self.in_sbuf()
        p = self.src_buffer.partitions
        self.check_groups("src_buffer")
        for name in ("dst", "index"):
            q = getattr(self, name).partitions
            self.require(q == p, f"{name} has {q} partitions, src_buffer has {p}", "they must match")
        self.check_type("index", "uint16")
        kinds = self.src_buffer.dtype.name, self.dst.dtype.name
        self.require(kinds[0] == kinds[1], f"src_buffer is {kinds[0]}, dst is {kinds[1]}", "they must match")
        self.require(self.num_elem_per_idx in WIDTHS, f"num_elem_per_idx={self.num_elem_per_idx}", f"one of {', '.join(map(str, WIDTHS))}")
        self.require(self.valid <= MOST_INDICES, f"{self.valid} indices in a group", f"at most {MOST_INDICES}")
        there = GROUP * self.index.elements
        self.require(self.valid <= there, f"num_valid_indices={self.valid}", f"at most {there}, those of a group in index")
        wanted = self.valid * self.num_elem_per_idx
        self.require(self.dst.elements == wanted, f"dst has {self.dst.elements} elements per partition", f"{wanted}")

    def work(self) -> Work:
        # SDK 2.26: 150 + n e C cycles, C = (28 + 4 e) / (4 e) / min(4 / itemsize, e), read as n (e + 7) / min(4 / itemsize, e)
        beside = min(4 // self.src_buffer.dtype.itemsize, self.num_elem_per_idx)
        elements = -(-self.dst.elements // beside)
        return Work(kind="local_gather", elements=elements, indices=-(-self.valid // beside), flops=self.dst.size)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        data, index = (operands[n].reshape(self.dst.partitions, -1) for n in ("src_buffer", "index"))
        out = np.empty((self.dst.partitions, self.dst.elements), data.dtype)
        for first in range(0, self.dst.partitions, GROUP):
            mine = slice(first, first + GROUP)
            places = index[mine].T.reshape(-1)[: self.valid].astype(np.int64)
            places = (places[:, None] + np.arange(self.num_elem_per_idx)).reshape(-1)
            self.require(int(places.max()) < data.shape[1], f"an index that reaches {places.max()}", f"0 to {data.shape[1] - 1}")
            out[mine] = data[mine][:, places]
        return {"dst": out.reshape(self.dst.shape)}


@instruction(Engine.GPSIMD, source="nki.isa.nonzero_with_count")
class NonzeroWithCount(_Grouped):
    """dst[p] = where src[p] is not 0, plus index_offset; then padding_val; the last of T + 1 elements counts them.

    For the first partition of each group of 16; the others of dst keep their values. NeuronCore-v3 and newer.
    """

    since: ClassVar[Mapping[Engine, int]] = {Engine.GPSIMD: 3}
    dst: View = of(WRITE)
    src: View = of(READ)
    index_offset: int = of(INT32, default=0)
    padding_val: int = of(INT32, default=-1)

    def spares(self) -> bool:
        return True

    def check(self) -> None:
        self.in_sbuf()
        p, q = self.dst.partitions, self.src.partitions
        self.require(p == q, f"dst has {p} partitions, src has {q}", "they must match")
        self.check_type("src", "float32", "int32")
        self.check_type("dst", "int32")
        n = self.src.elements
        self.require(self.dst.elements == n + 1, f"dst has {self.dst.elements} elements per partition", f"{n + 1}, one more than src")

    def work(self) -> Work:
        return Work(kind="nonzero_with_count", elements=self.src.elements, flops=self.dst.size)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        src, out = (operands[n].reshape(self.src.partitions, -1) for n in ("src", "dst"))
        for p in range(0, self.src.partitions, GROUP):
            places = np.flatnonzero(src[p])
            out[p, :-1] = self.padding_val
            # as int32 adds: around
            out[p, : len(places)] = (places + self.index_offset).astype(np.uint32).view(np.int32)
            out[p, -1] = len(places)
        return {"dst": out.reshape(self.dst.shape)}


@instruction(Engine.GPSIMD, source="nki.isa.topk")
class Topk(_Grouped):
    """The K largest of each group's first n elements, in ascending order, and where they stand among them.

    Element i of a group is in its partition i % 16, column i // 16, and so is result i: columns 0 to ceil(K / 16) - 1 of
    val_dst and idx_dst are written, up to the K-th result. K is the free size of val_dst. Of equal values the first count.
    """

    val_dst: View = of(WRITE)
    idx_dst: View = of(WRITE)
    src: View = of(READ)
    n: int = of(Integer(8, (1 << 16) - 1))

    def spares(self) -> bool:
        return True

    def check(self) -> None:
        self.in_sbuf()
        self.check_groups("src")
        self.check_type("src", "bfloat16")
        self.check_type("val_dst", "bfloat16")
        self.check_type("idx_dst", "uint32")
        self.same_shape("val_dst", "idx_dst")
        p, q = self.val_dst.partitions, self.src.partitions
        self.require(p == q, f"val_dst has {p} partitions, src has {q}", "they must match")
        k, there, columns = self.val_dst.elements, self.src.elements, -(-self.n // GROUP)
        self.require(k < 1 << 15, f"K={k}, the elements of val_dst per partition", f"at most {(1 << 15) - 1}")
        self.require(k <= self.n, f"K={k}, the elements of val_dst per partition", f"at most n={self.n}")
        self.require(self.src.elements >= columns, f"src has {there} elements per partition", f"at least {columns} for n={self.n}")

    def work(self) -> Work:
        return Work(kind="topk", elements=self.n, indices=self.val_dst.elements, flops=self.src.size)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        k = self.val_dst.elements
        src, values, indices = (operands[n].reshape(self.src.partitions, -1) for n in ("src", "val_dst", "idx_dst"))
        partition, column = np.arange(k) % GROUP, np.arange(k) // GROUP
        for first in range(0, self.src.partitions, GROUP):
            flat = src[first : first + GROUP].T.reshape(-1)[: self.n].astype(np.float32)
            self.specified(not bool(np.isnan(flat).any()), "NaN in src", "numbers: where NaN stands in the order is not said")
            best = np.lexsort((-np.arange(self.n), flat))[-k:]
            values[first + partition, column] = flat[best].astype(values.dtype)
            indices[first + partition, column] = best
        return {"val_dst": values.reshape(self.val_dst.shape), "idx_dst": indices.reshape(self.idx_dst.shape)}
