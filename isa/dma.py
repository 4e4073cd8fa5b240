"""DMA: triggered from any queue, carried out by the DMA engines. Here what all share, and copies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .dynamic import Register
from .errors import ProgramError, Unsupported
from .fields import ANYWHERE, FIXED, WRITE_ANYWHERE, WRITE_FIXED, Choice, Flag, Integer, Maybe, Operands, of, one_of
from .instruction import Engine, Instruction, Target, Work, instruction
from .ops import alu_op
from .view import Memory, View

DGE_MODES = one_of(("unknown", "none", "swdge", "hwdge"))
GENERATION = one_of(("static", "software", "hardware"))
OOB_MODES = one_of(("error", "skip"))
PRIORITY = Maybe(Integer(0, 3))  # "level 0-3 where lower is higher priority (NeuronCore-v4+ only)" (nki.isa.dma_copy)
ENGINES = (Engine.SYNC, Engine.SCALAR, Engine.GPSIMD, Engine.VECTOR, Engine.TENSOR)
MOST_SOURCES = 16  # of one sum (nki.isa.dma_compute)


def _only_add(value: Any) -> str:
    if (name := alu_op(value).name) != "add":
        raise ProgramError("", f"{name!r}", "add: DMA engines combine by no other operator")
    return name


SUM = Choice(("add",), _only_add)  # "currently, only nl.add is supported" (nki.isa.dma_compute)


class Dma(Instruction):
    """What every DMA in a queue is: its descriptors are made in one of three ways, and 16 DMA engines carry it out."""

    if TYPE_CHECKING:
        dst: View
        src: View
        generation: str

    @property
    def sources(self) -> tuple[View, ...]:
        """What is moved, in order; the tensors of indices are not among them. A sum has several."""
        return (self.src,)

    @property
    def skips(self) -> bool:
        """True if rows whose address is out of bounds are left out; else they are an error."""
        return False

    @property
    def axes(self) -> tuple[int, ...] | None:
        """How the dimensions of the source are permuted, if they are."""
        return None

    @property
    def load(self) -> bool:
        """True if data flows out of HBM (loads stall where stores do not)."""
        return any(v.memory is Memory.HBM for v in self.sources)

    @property
    def row_elements(self) -> int:
        """Elements of one descriptor: the longest run contiguous on every side."""
        return math.gcd(self.dst.run(), *(v.run() for v in self.sources))

    @property
    def row_bytes(self) -> int:
        """Bytes of one descriptor, counted on the wider side (a casting DMA reads one type and writes another)."""
        return self.row_elements * max(v.dtype.itemsize for v in (self.dst, *self.sources))

    @property
    def addressing(self) -> str:
        """How addresses are found: "static", "register", "dynamic" (a number in SBUF) or "indirect" (one for each row).

        Of two sides with addresses of different kinds the one that comes last here.
        """
        moved = [v.dynamic for v in (self.dst, *self.sources) if v.dynamic is not None]
        if any(d.vector for d in moved):
            return "indirect"
        return "dynamic" if any(isinstance(d.index, View) for d in moved) else "register" if moved else "static"

    def work(self) -> Work:
        return Work(kind="dma", elements=self.dst.size)

    def signals(self) -> bool:
        return False  # the transfer signals, not the trigger

    def check_generation(self) -> None:
        """Which way of making descriptors can find the addresses."""
        addressing, made = self.addressing, f"{self.generation} descriptors"
        if addressing == "indirect":
            self.require(self.generation == "software", f"{made} for an index in each row", "software descriptors")
        elif addressing != "static":
            required = "software or hardware descriptors: static ones are made before the run"
            self.require(self.generation != "static", f"{made} with a dynamic address", required)

    def combine(self, parts: list[np.ndarray]) -> np.ndarray:
        """The elements to write, unrounded, from the same elements of each source."""
        return parts[0]


def check_sides(i: Instruction, dst: View, src: View) -> None:
    """What holds for both ends of every DMA."""
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


def check_indices(i: Instruction, *views: View) -> None:
    """One index for each row, in a partition of its own."""
    for v in views:
        if (d := v.dynamic) is not None and d.vector:
            shape, rows = list(d.tensor.shape), v.counts[0]
            i.require(d.tensor.elements == 1 and d.tensor.partitions == rows, f"indices of shape {shape} for {rows} rows", f"[{rows}, 1]")


@instruction(*ENGINES, source="trn2 hardware traces, DMA_DIRECT2D", mnemonic="dma_direct2d")
class DmaDirect2d(Dma):
    """Copy src to dst with descriptors made by the runtime (static), by the GpSimdEngine or by a hardware block."""

    dst: View = of(WRITE_FIXED)
    src: View = of(FIXED)
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

    @property
    def registers(self) -> tuple[Register, ...]:
        return ()

    def check(self) -> None:
        check_sides(self, self.dst, self.src)
        if self.row is not None:
            self.require(self.dst.size % self.row == 0, f"{self.dst.size} elements in rows of {self.row}", "whole rows")

    @property
    def load(self) -> bool:
        return self.src.memory is Memory.HBM

    @property
    def row_elements(self) -> int:
        return self.row or math.gcd(self.src.run(), self.dst.run())

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        return {"dst": operands["src"].reshape(self.dst.shape)}

    def attributes(self) -> str:
        sizes = self.row_elements * self.src.dtype.itemsize, self.row_elements * self.dst.dtype.itemsize
        return f"sem_increment=16 src_elem_size={sizes[0]} dst_elem_size={sizes[1]} compute_op=NONE"


@instruction(*ENGINES, source="nki.isa.dma_copy", mnemonic="dma_indirect")
class DmaIndirect(Dma):
    """Copy src to dst, of which one or both are found by indices in SBUF, read when the descriptors are made.

    An address out of bounds is an error; with `skip` its row is left out.
    """

    dst: View = of(WRITE_ANYWHERE)
    src: View = of(ANYWHERE)
    generation: str = of(GENERATION)
    skip: bool = of(Flag(), default=False)

    @property
    def skips(self) -> bool:
        return self.skip

    def check(self) -> None:
        check_sides(self, self.dst, self.src)
        check_indices(self, self.dst, self.src)
        self.require(self.addressing != "static", "no dynamic offset", "one in dst or src; dma_direct2d copies without")
        self.check_generation()


@instruction(*ENGINES, source="nki.isa.dma_compute", mnemonic="dma_compute2d")
class DmaCompute2d(Dma):
    """dst = the sum of srcs, in float32, by the compute logic of the DMA engines.

    With indices, read when the descriptors are made, it adds two: rows found in HBM and a tensor in SBUF.
    """

    dst: View = of(WRITE_ANYWHERE)
    srcs: tuple[View, ...] = of(Operands(MOST_SOURCES))
    generation: str = of(GENERATION)
    skip: bool = of(Flag(), default=False)

    @property
    def sources(self) -> tuple[View, ...]:
        return self.srcs

    @property
    def skips(self) -> bool:
        return self.skip

    def check(self) -> None:
        for src in self.srcs:
            check_sides(self, self.dst, src)
        check_indices(self, self.dst, *self.srcs)
        if self.addressing == "indirect":
            self.require(len(self.srcs) == 2, f"{len(self.srcs)} sources with a vector_offset", "two")
        else:
            self.require(self.addressing == "static", "a scalar_offset", "addresses known when the program is built, or a vector_offset")
        self.check_generation()

    def combine(self, parts: list[np.ndarray]) -> np.ndarray:
        total = parts[0].astype(np.float32)
        with np.errstate(all="ignore"):
            for part in parts[1:]:
                total = total + part.astype(np.float32)
        return total


def summed(call: Instruction, dst: View, srcs: tuple[View, ...], engine: Engine, skip: bool = False) -> DmaCompute2d:
    """The sum that a call asks for: with indices GpSimd makes its descriptors, without they are static."""
    indirect = any(v.dynamic is not None for v in (dst, *srcs))
    if indirect:
        call.require(engine is Engine.GPSIMD, f"indices on {engine.label}", "GpSimd, which makes the descriptors")
    return DmaCompute2d(dst=dst, srcs=srcs, generation="software" if indirect else "static", skip=skip)


@instruction(Engine.GPSIMD, Engine.SYNC, Engine.SCALAR, Engine.VECTOR, Engine.TENSOR, source="nki.isa.dma_copy", machine=False)
class DmaCopy(Instruction):
    """dst = src between HBM and SBUF, or inside either; types are converted through float32.

    `dge_mode` chooses who makes the descriptors; "unknown" lets nc-sim choose as the compiler does (lowering rule B6):
    kernel inputs and outputs by software on GpSimd, the rest by hardware: loads on Sync, stores on Scalar. Hardware
    descriptors convert no types. An address that a tensor or a register gives (`ap` with `vector_offset` or `scalar_offset`) may be
    out of bounds: `oob_mode` makes that an error, or skips it. `priority`, of NeuronCore-v4, changes nothing here: how its
    classes share the DMA engines is not published. `dst_rmw_op="add"`, which later versions of the API leave to
    dma_compute, adds to dst.
    """

    dst: View = of(WRITE_ANYWHERE)
    src: View = of(ANYWHERE)
    priority: int | None = of(PRIORITY, default=None)
    oob_mode: str = of(OOB_MODES, default="error")
    dge_mode: str = of(DGE_MODES, default="unknown")
    dst_rmw_op: str | None = of(Maybe(SUM), default=None)
    unique_indices: bool = of(Flag(), default=True)

    # as in DmaDirect2d
    @property
    def views(self) -> tuple[tuple[str, View, bool], ...]:
        return (("dst", self.dst, True), ("src", self.src, False))

    @property
    def reads(self) -> tuple[View, ...]:
        return (self.src,)

    @property
    def writes(self) -> tuple[View, ...]:
        return (self.dst,)

    @property
    def registers(self) -> tuple[Register, ...]:
        return () if self.dst.dynamic is None and self.src.dynamic is None else super().registers

    def check(self) -> None:
        check_sides(self, self.dst, self.src)
        if self.dst.dynamic is not None or self.src.dynamic is not None:
            self.check_dynamic()
        else:
            self.require(self.oob_mode == "error", "oob_mode=skip without a dynamic offset", "an offset that may be out of bounds")
        if self.dge_mode == "hwdge":
            types = f"{self.src.dtype.name} to {self.dst.dtype.name} with dge_mode=hwdge"
            self.require(self.src.dtype == self.dst.dtype, types, "one type: hardware descriptors convert none")
        if self.dst_rmw_op is not None:
            self.check_sum()

    def check_dynamic(self) -> None:
        check_indices(self, self.dst, self.src)
        vector = any(v.dynamic is not None and v.dynamic.vector for v in (self.dst, self.src))
        if vector:
            self.require(self.dge_mode in ("unknown", "swdge"), f"dge_mode={self.dge_mode} with a vector_offset", "unknown or swdge")
        self.require(
            self.dge_mode != "none", "dge_mode=none with a dynamic offset", "swdge or hwdge: static descriptors are made before the run"
        )

    def check_sum(self) -> None:
        """dst_rmw_op, as nki.isa 0.2 had it."""
        self.require(self.oob_mode == "error", "oob_mode=skip with dst_rmw_op", "oob_mode=error")
        self.require(self.unique_indices, "unique_indices=False", "True: indices that repeat are not supported")
        self.require(self.dge_mode != "hwdge", "dge_mode=hwdge with dst_rmw_op", "static or software descriptors")
        if not self._indirect():
            required = "addresses known when the program is built, or a vector_offset"
            self.require(self.dst.dynamic is None and self.src.dynamic is None, "a scalar_offset with dst_rmw_op", required)
            self.require(
                self.dge_mode != "swdge", "dge_mode=swdge with dst_rmw_op", "unknown or none: only sums with indices are made by software"
            )

    def default_engine(self, target: Target) -> Engine:
        if self.dst_rmw_op is not None:
            return Engine.GPSIMD if self._indirect() else Engine.SYNC
        software = not target.feature("dma.hardware.available") or self.dge_mode == "swdge" or self._indirect()
        # nothing else converts types
        software = software or (self.dge_mode == "unknown" and (self.src.dtype != self.dst.dtype or self._kernel_io(target)))
        if software:
            return Engine.GPSIMD if self.dge_mode != "none" else Engine.SYNC
        return Engine.SYNC if self.dge_mode == "none" or self.src.memory is Memory.HBM else Engine.SCALAR

    def _kernel_io(self, target: Target) -> bool:
        kinds = {target.hbm_kind(v.tensor) for v in (self.dst, self.src) if v.memory is Memory.HBM}
        return bool(kinds & {"input", "output"})

    def _indirect(self) -> bool:
        return any(v.dynamic is not None and v.dynamic.vector for v in (self.dst, self.src))

    def expand(self, target: Target, engine: Engine) -> Iterable[Instruction]:
        check_priority(self, self.priority, target)
        if self.dst_rmw_op is not None:
            yield summed(self, self.dst, (self.dst, self.src), engine)
            return
        generation = self.generation(target, engine)
        if self.dst.dynamic is None and self.src.dynamic is None:
            yield DmaDirect2d(dst=self.dst, src=self.src, generation=generation)
        else:
            yield DmaIndirect(dst=self.dst, src=self.src, generation=generation, skip=self.oob_mode == "skip")

    def generation(self, target: Target, engine: Engine) -> str:
        """Who makes the descriptors on the chosen engine."""
        moved, cast = self.dst.dynamic is not None or self.src.dynamic is not None, self.src.dtype != self.dst.dtype
        return generation(self, self.dge_mode, target, engine, hardware=not cast and not self._indirect(), static=not moved)


def check_priority(call: Instruction, priority: int | None, target: Target) -> None:
    """A chip has classes of priority, or the call names none."""
    if priority is not None and not target.feature("dma.priority"):
        raise Unsupported(call.mnemonic, f"priority={priority}", "a chip with classes of DMA (NeuronCore-v4 and later)", call.source)


def generation(call: Instruction, mode: str, target: Target, engine: Engine, hardware: bool, static: bool) -> str:
    """The way of making descriptors that a call's dge_mode and queue mean; `hardware` and `static` say which may be chosen for it."""
    available = target.feature("dma.hardware.available")
    if mode == "unknown":
        by_hardware = available and hardware and engine in (Engine.SYNC, Engine.SCALAR)
        mode = "swdge" if engine is Engine.GPSIMD else "hwdge" if by_hardware else "none"
        if mode == "none" and not static:
            what = f"an address known at run time on {engine.label}"
            required = "GpSimd, or Sync and Scalar where hardware makes descriptors"
            if hardware and engine in (Engine.SYNC, Engine.SCALAR):
                raise Unsupported(call.mnemonic, what, f"{required} (NeuronCore-v3 and later)", call.source)
            call.require(False, what, required)
    if mode == "hwdge" and not available:
        raise Unsupported(
            call.mnemonic, "dge_mode=hwdge", "a chip with hardware descriptor generation (NeuronCore-v3 and later)", call.source
        )
    if mode == "hwdge" and engine not in (Engine.SYNC, Engine.SCALAR):
        call.require(False, f"dge_mode=hwdge on {engine.label}", "the hardware block is commanded by Sync or Scalar")
    if mode == "swdge" and engine is not Engine.GPSIMD:
        call.require(False, f"dge_mode=swdge on {engine.label}", "software descriptors are made by GpSimd")
    return {"none": "static", "swdge": "software", "hwdge": "hardware"}[mode]
