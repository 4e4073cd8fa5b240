"""dma_transpose: a tensor changes its layout on the way into SBUF."""

from __future__ import annotations

from collections.abc import Iterable

from .dma import DGE_MODES, ENGINES, GENERATION, OOB_MODES, PRIORITY, Dma, check_priority, check_sides, generation
from .errors import Unsupported
from .fields import ANYWHERE, WRITE_FIXED, Axes, Flag, Maybe, of
from .instruction import Engine, Instruction, Target, instruction
from .view import Memory, View

PERMUTATIONS = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}  # by rank of the source
WIDEST = 128  # elements of a source row: they become partitions
GROUP = 16  # rows that the DMA engines transpose together


def check_transpose(i: Instruction, dst: View, src: View, axes: tuple[int, ...]) -> None:
    """What holds for every transpose by DMA."""
    check_sides(i, dst, src)
    i.require(dst.memory is Memory.SBUF, f"dst is in {dst.memory.name}", "SBUF")
    i.require(dst.dtype == src.dtype, f"{src.dtype.name} into {dst.dtype.name}", "one type: a transpose converts none")
    bits = "types of 2 or 4 bytes"
    i.require(src.dtype.itemsize in (2, 4), f"{src.dtype.name}", bits)
    rank = len(src.shape)
    i.require(rank in PERMUTATIONS, f"src has {rank} dimensions", "2, 3 or 4")
    i.require(axes == PERMUTATIONS[rank], f"axes {list(axes)} of {rank} dimensions", f"{list(PERMUTATIONS[rank])}")
    wanted = tuple(src.shape[a] for a in axes)
    i.require(dst.shape == wanted, f"dst is {list(dst.shape)}", f"{list(wanted)}, src {list(src.shape)} transposed")


def check_gather(i: Instruction, src: View) -> None:
    """Rules of a transpose of rows that indices name: row k is number `indices.T.flatten()[k]`."""
    assert src.dynamic is not None
    index, rows, shape = src.dynamic.tensor, src.shape[0], list(src.shape)
    i.require(src.dtype.itemsize == 2, f"{src.dtype.name} with a vector_offset", "a type of 2 bytes")
    i.require(src.shape[-1] <= WIDEST, f"src is {shape}", f"at most {WIDEST} in its last dimension")
    i.require(rows % GROUP == 0, f"{rows} rows", f"a multiple of {GROUP}")
    i.require(len(shape) != 4 or 1 in shape[1:3], f"src is {shape}", "1 in one of the two middle dimensions of four")
    i.require(index.dtype.name == "uint32", f"indices of {index.dtype.name}", "uint32")
    found = f"indices of shape {list(index.shape)}"
    i.require(len(index.shape) == 2, found, "two dimensions")
    i.require(index.partitions in range(GROUP, WIDEST + 1, GROUP), found, f"{GROUP} to {WIDEST} partitions, a multiple of {GROUP}")
    i.require(index.elements == 1 or index.partitions == WIDEST, found, f"{WIDEST} partitions for more than one column")
    i.require(index.size >= rows, f"{found} for {rows} rows", "one index or more for each row")


def by_hardware(src: View) -> str | None:
    """What keeps hardware from making the descriptors of a transpose, if anything does."""
    first, shape = src.shape[0], list(src.shape)
    if src.dtype.itemsize != 2:
        return f"{src.dtype.name}: a type of 2 bytes"
    if src.shape[-1] > WIDEST:
        return f"src is {shape}: at most {WIDEST} in its last dimension"
    if len(shape) == 2 and first != GROUP:
        return f"src is {shape}: {GROUP} in its first dimension"
    if len(shape) > 2 and (first not in (1, 2, 4, 8, 16) or first * shape[-2] % GROUP):
        return f"src is {shape}: 1, 2, 4, 8 or 16 in its first dimension, and times the last but one a multiple of {GROUP}"
    return None


@instruction(*ENGINES, source="nki.isa.dma_transpose", mnemonic="dma_transpose2d")
class DmaTranspose2d(Dma):
    """dst = src with its dimensions permuted by `axes`; a dynamic offset of src is read when the descriptors are made."""

    dst: View = of(WRITE_FIXED)
    src: View = of(ANYWHERE)
    generation: str = of(GENERATION)
    axes: tuple[int, ...] = of(Axes())
    skip: bool = of(Flag(), default=False)

    @property
    def skips(self) -> bool:
        return self.skip

    @property
    def row_elements(self) -> int:
        """Elements of the last dimension of the source, which become partitions."""
        return self.src.shape[-1]

    def check(self) -> None:
        check_transpose(self, self.dst, self.src, self.axes)
        if self.src.dynamic is not None and self.src.dynamic.vector:
            check_gather(self, self.src)
        self.check_generation()


@instruction(Engine.SYNC, Engine.SCALAR, Engine.GPSIMD, Engine.VECTOR, Engine.TENSOR, source="nki.isa.dma_transpose", machine=False)
class DmaTranspose(Instruction):
    """dst = src with its dimensions permuted: [1, 0] of two, [2, 1, 0] of three, [3, 1, 2, 0] of four.

    src is in HBM or SBUF, dst in SBUF, both of one type of 2 or 4 bytes. `dge_mode` "unknown" lets hardware make the
    descriptors where its rules allow (2 bytes; 16 rows, or 1, 2, 4, 8 or 16 of three or four dimensions), and takes
    static ones otherwise. With a `vector_offset` the rows of src are those that its indices name, column by column, and
    GpSimd makes the descriptors (NeuronCore-v3 and later).
    """

    dst: View = of(WRITE_FIXED)
    src: View = of(ANYWHERE)
    axes: tuple[int, ...] | None = of(Maybe(Axes()), default=None)
    priority: int | None = of(PRIORITY, default=None)
    dge_mode: str = of(DGE_MODES, default="unknown")
    oob_mode: str = of(OOB_MODES, default="error")

    def permutation(self) -> tuple[int, ...]:
        """The axes, given or by the number of dimensions."""
        return self.axes if self.axes is not None else PERMUTATIONS.get(len(self.src.shape), ())

    def gathers(self) -> bool:
        """True if indices name the rows."""
        return self.src.dynamic is not None and self.src.dynamic.vector

    def check(self) -> None:
        check_transpose(self, self.dst, self.src, self.permutation())
        if self.gathers():
            check_gather(self, self.src)
            self.require(self.dge_mode in ("unknown", "swdge"), f"dge_mode={self.dge_mode} with a vector_offset", "unknown or swdge")
        if self.src.dynamic is None:
            self.require(self.oob_mode == "error", "oob_mode=skip without a dynamic offset", "an offset that may be out of bounds")
            self.require(self.dge_mode != "swdge", "dge_mode=swdge without a dynamic offset", "unknown, hwdge or none")
        else:
            static = "dge_mode=none with a dynamic offset"
            self.require(self.dge_mode != "none", static, "swdge or hwdge: static descriptors are made before the run")
        if self.dge_mode == "hwdge" and (why := by_hardware(self.src)) is not None:
            self.require(False, *why.split(": ", 1))

    def default_engine(self, target: Target) -> Engine:
        hardware = self.dge_mode == "hwdge" or (target.feature("dma.hardware.available") and by_hardware(self.src) is None)
        software = self.gathers() or self.dge_mode == "swdge" or (self.src.dynamic is not None and not hardware)
        return Engine.GPSIMD if software else Engine.SYNC

    def expand(self, target: Target, engine: Engine) -> Iterable[Instruction]:
        check_priority(self, self.priority, target)
        if self.gathers() and not target.feature("dma.transpose.indirect_available"):
            raise Unsupported(
                self.mnemonic, "a vector_offset", "a chip that transposes gathered rows (NeuronCore-v3 and later)", self.source
            )
        hardware = by_hardware(self.src) is None and not self.gathers()
        mode = self.dge_mode
        if mode == "unknown" and engine is Engine.GPSIMD and self.src.dynamic is None:
            mode = "none"  # software makes no descriptors of a transpose whose address is known
        made = generation(self, mode, target, engine, hardware=hardware, static=self.src.dynamic is None)
        skip = self.oob_mode == "skip"
        yield DmaTranspose2d(dst=self.dst, src=self.src, generation=made, axes=self.permutation(), skip=skip)
