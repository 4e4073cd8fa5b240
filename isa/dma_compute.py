"""dma_compute: sums of tensors on their way through the DMA engines."""

from __future__ import annotations

from collections.abc import Iterable

from .dma import MOST_SOURCES, OOB_MODES, SUM, check_indices, check_sides, summed
from .fields import WRITE_ANYWHERE, Flag, Maybe, Operands, Reals, of
from .instruction import Engine, Instruction, Target, instruction
from .view import Memory, View


@instruction(Engine.SYNC, Engine.GPSIMD, Engine.SCALAR, Engine.VECTOR, Engine.TENSOR, source="nki.isa.dma_compute", machine=False)
class DmaCompute(Instruction):
    """dst = srcs[0] * scales[0] + srcs[1] * scales[1] + …, in float32; scales are 1.

    Where a source or dst has a `vector_offset`, it adds in place: `dst[rows] += src` with dst in HBM and srcs its rows
    and an SBUF tensor (indices may not repeat), or `dst += src[rows]` with dst in SBUF and srcs it and rows of HBM.
    """

    dst: View = of(WRITE_ANYWHERE)
    srcs: tuple[View, ...] = of(Operands(MOST_SOURCES))
    reduce_op: str = of(SUM)
    scales: tuple[float, ...] | None = of(Maybe(Reals()), default=None)
    unique_indices: bool = of(Flag(), default=True)
    oob_mode: str = of(OOB_MODES, default="error")

    def check(self) -> None:
        for src in self.srcs:
            check_sides(self, self.dst, src)
        if self.scales is not None:
            self.require(len(self.scales) == len(self.srcs), f"{len(self.scales)} scales for {len(self.srcs)} sources", "one for each")
            self.require(all(s == 1 for s in self.scales), f"scales {list(self.scales)}", "1.0 each: no other is supported")
        self.specified(
            len(self.srcs) > 1,
            "one source",
            "two or more: of one the API page says that it is copied, the migration guide that it is added to dst",
        )
        moved = [v.dynamic for v in (self.dst, *self.srcs) if v.dynamic is not None]
        self.require(all(d.vector for d in moved), "a scalar_offset", "addresses known when the program is built, or a vector_offset")
        if moved:
            self.check_indirect()
        else:
            self.require(self.oob_mode == "error", "oob_mode=skip without a vector_offset", "an offset that may be out of bounds")

    def check_indirect(self) -> None:
        self.require(len(self.srcs) == 2, f"{len(self.srcs)} sources with a vector_offset", "two")
        self.require(self.unique_indices, "unique_indices=False", "True: indices that repeat are not supported")
        check_indices(self, self.dst, *self.srcs)
        self.require(self.dst in self.srcs, "a vector_offset, and no source is dst", "one source that is dst itself: it is added to")
        other = self.srcs[1] if self.srcs[0] == self.dst else self.srcs[0]
        here, there = (other, self.dst) if self.dst.dynamic is not None else (self.dst, other)
        self.require(
            here.memory is Memory.SBUF and here.dynamic is None and there.dynamic is not None,
            f"{self.dst} with {other}",
            "rows of HBM found by the offset on one side, a tensor in SBUF on the other",
        )

    def default_engine(self, target: Target) -> Engine:
        return Engine.GPSIMD if any(v.dynamic is not None for v in (self.dst, *self.srcs)) else Engine.SYNC

    def expand(self, target: Target, engine: Engine) -> Iterable[Instruction]:
        yield summed(self, self.dst, self.srcs, engine, self.oob_mode == "skip")
