"""DMA: triggered from any queue, carried out by the DMA engines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from .errors import Unsupported
from .fields import READ, WRITE, Integer, Maybe, of, one_of
from .instruction import Engine, Instruction, Target, Work, instruction
from .view import Memory, View

DGE_MODES = one_of(("unknown", "none", "swdge", "hwdge"))
GENERATION = one_of(("static", "software", "hardware"))


def check_sides(i: Instruction, dst: View, src: View) -> None:
    """What holds for both ends of every copy by DMA."""
    into, out = dst.size, src.size
    # asked before texts are made: a large program has many DMAs, and no two alike
    if dst.memory is Memory.PSUM or src.memory is Memory.PSUM or not into or into != out:
        for name, v in (("dst", dst), ("src", src)):
            i.require(v.memory is not Memory.PSUM, f"{name} is in PSUM", "DMA reaches HBM and SBUF; copy PSUM with an engine first")
            i.require(v.size > 0, f"{name} has shape {list(v.shape)}", "at least one element")
        i.require(into == out, f"dst has {into} elements, src has {out}", "they must match")
    if dst.dtype != src.dtype and "packed" in (dst.dtype.kind, src.dtype.kind):
        found = f"src is {src.dtype.name}, dst is {dst.dtype.name}"
        i.require(False, found, "one packed type: nothing converts to or from it")
    if dst.memory is src.memory is Memory.SBUF:
        i.require(dst.shape == src.shape, f"dst is {list(dst.shape)}, src is {list(src.shape)}", "equal shapes between two SBUF tensors")


@instruction(
    Engine.SYNC, Engine.SCALAR, Engine.GPSIMD, Engine.VECTOR, Engine.TENSOR,
    source="trn2 hardware traces, DMA_DIRECT2D", mnemonic="dma_direct2d",
)  # fmt: skip
class DmaDirect2d(Instruction):
    """Copy src to dst with descriptors made by the runtime (static), by the GpSimdEngine or by a hardware block."""

    dst: View = of(WRITE)
    src: View = of(READ)
    generation: str = of(GENERATION)
    row: int | None = of(Maybe(Integer(1, 1 << 32)), default=None)  # elements of one descriptor, where a trace says

    # as every instruction has them, but found at once: a large program has many DMAs, and no two alike
    @property
    def views(self) -> tuple[tuple[str, View, bool], ...]:
        return (("dst", self.dst, True), ("src", self.src, False))

    @property
    def reads(self) -> tuple[View, ...]:
        return (self.src,)

    @property
    def writes(self) -> tuple[View, ...]:
        return (self.dst,)

    def check(self) -> None:
        check_sides(self, self.dst, self.src)
        if self.row is not None:
            self.require(self.dst.size % self.row == 0, f"{self.dst.size} elements in rows of {self.row}", "whole rows")

    def work(self) -> Work:
        return Work(kind="dma", elements=self.dst.size)

    def signals(self) -> bool:
        return False  # the transfer signals, not the trigger

    @property
    def load(self) -> bool:
        """True if data flows out of HBM (loads stall where stores do not)."""
        return self.src.memory is Memory.HBM

    @property
    def row_elements(self) -> int:
        """Elements of one descriptor: the longest run contiguous on both sides."""
        return self.row or math.gcd(self.src.run(), self.dst.run())

    @property
    def row_bytes(self) -> int:
        """Bytes of one descriptor, counted on the wider side (a casting DMA reads one type and writes another)."""
        return self.row_elements * max(self.src.dtype.itemsize, self.dst.dtype.itemsize)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        return {"dst": operands["src"].reshape(self.dst.shape)}

    def attributes(self) -> str:
        sizes = self.row_elements * self.src.dtype.itemsize, self.row_elements * self.dst.dtype.itemsize
        return f"sem_increment=16 src_elem_size={sizes[0]} dst_elem_size={sizes[1]} compute_op=NONE"


@instruction(Engine.GPSIMD, Engine.SYNC, Engine.SCALAR, Engine.VECTOR, Engine.TENSOR, source="nki.isa.dma_copy", machine=False)
class DmaCopy(Instruction):
    """dst = src between HBM and SBUF, or inside either; types are converted through float32.

    `dge_mode` chooses who makes the descriptors; "unknown" lets nc-sim choose as the compiler does (lowering rule B6):
    kernel inputs and outputs by software on GpSimd, the rest by hardware: loads on Sync, stores on Scalar.
    """

    only: ClassVar[Mapping[str, Any]] = {"priority": None, "oob_mode": "error"}

    dst: View = of(WRITE)
    src: View = of(READ)
    dge_mode: str = of(DGE_MODES, default="unknown")

    def check(self) -> None:
        check_sides(self, self.dst, self.src)

    def default_engine(self, target: Target) -> Engine:
        software = not target.feature("dma.hardware.available") or self.dge_mode == "swdge"
        if software or (self.dge_mode == "unknown" and self._kernel_io(target)):
            return Engine.GPSIMD if self.dge_mode != "none" else Engine.SYNC
        return Engine.SYNC if self.dge_mode == "none" or self.src.memory is Memory.HBM else Engine.SCALAR

    def _kernel_io(self, target: Target) -> bool:
        kinds = {target.hbm_kind(v.tensor) for v in (self.dst, self.src) if v.memory is Memory.HBM}
        return bool(kinds & {"input", "output"})

    def expand(self, target: Target, engine: Engine) -> Iterable[Instruction]:
        hardware = target.feature("dma.hardware.available")
        mode = self.dge_mode
        if mode == "unknown":
            mode = "swdge" if engine is Engine.GPSIMD else "hwdge" if hardware and engine in (Engine.SYNC, Engine.SCALAR) else "none"
        if mode == "hwdge" and not hardware:
            raise Unsupported(
                self.mnemonic, "dge_mode=hwdge", "a chip with hardware descriptor generation (NeuronCore-v3 and later)", self.source
            )
        if mode == "hwdge" and engine not in (Engine.SYNC, Engine.SCALAR):
            self.require(False, f"dge_mode=hwdge on {engine.label}", "the hardware block is commanded by Sync or Scalar")
        if mode == "swdge" and engine is not Engine.GPSIMD:
            self.require(False, f"dge_mode=swdge on {engine.label}", "software descriptors are made by GpSimd")
        generation = {"none": "static", "swdge": "software", "hwdge": "hardware"}[mode]
        yield DmaDirect2d(dst=self.dst, src=self.src, generation=generation)
