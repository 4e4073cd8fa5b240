"""What needs two cores of a logical NeuronCore. Operands are checked; running it is not modelled yet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from .control import ALL
from .errors import ProgramError, Unimplemented
from .fields import FIXED, WRITE_FIXED, Choice, Integer, of, one_of
from .instruction import Engine, Instruction, Target, instruction
from .view import Memory, View

RANK = Integer(0, 1)
PIPES = Integer(0, (1 << 31) - 1)
DMA_ENGINES = one_of(("dma", "gpsimd_dma"))
MOST = {4: 1024, 2: 512, 1: 256}  # bytes per partition that GpSimd's own DMA moves, by element size


def _both(value: Any) -> str:
    """(0, 1), the only cores there are."""
    numbers = "".join(str(n) for n in value) if isinstance(value, list | tuple) else str(value)
    if numbers != "01":
        raise ProgramError("", f"{value!r}", "(0, 1)")
    return numbers


CORES = Choice(("01",), _both)


class _TwoCores(Instruction):
    """Shared rule: there is one core."""

    def expand(self, target: Target, engine: Engine) -> Iterable[Instruction]:
        raise Unimplemented(self.mnemonic, f"{self.mnemonic} on one core", "two cores, which nc-sim does not run together yet", self.source)


@instruction(Engine.GPSIMD, *(e for e in ALL if e is not Engine.GPSIMD), source="nki.isa.core_barrier", machine=False)
class CoreBarrier(_TwoCores):
    """Wait until both cores of a logical one are here. `data` is what they share, in HBM. NeuronCore-v3 and newer."""

    since: ClassVar[dict[Engine, int]] = dict.fromkeys(ALL, 3)
    data: View = of(FIXED)
    cores: str = of(CORES)

    def check(self) -> None:
        self.require(self.data.memory is Memory.HBM, f"data is in {self.data.memory.name}", "HBM, where both cores see it")


@instruction(Engine.GPSIMD, *(e for e in ALL if e is not Engine.GPSIMD), source="nki.isa.sendrecv", machine=False)
class Sendrecv(_TwoCores):
    """Send src to the dst of one core and receive dst from another, by DMA. NeuronCore-v3 and newer."""

    since: ClassVar[dict[Engine, int]] = dict.fromkeys(ALL, 3)
    src: View = of(FIXED)
    dst: View = of(WRITE_FIXED)
    send_to_rank: int = of(RANK)
    recv_from_rank: int = of(RANK)
    pipe_id: int = of(PIPES)
    dma_engine: str = of(DMA_ENGINES, default="dma")

    def check(self) -> None:
        for name, v in (("src", self.src), ("dst", self.dst)):
            self.require(v.memory is Memory.SBUF, f"{name} is in {v.memory.name}", "SBUF")
        self.require(self.src.dtype == self.dst.dtype, f"src is {self.src.dtype.name}, dst is {self.dst.dtype.name}", "they must match")
        self.require(self.src.shape == self.dst.shape, f"src is {list(self.src.shape)}, dst is {list(self.dst.shape)}", "they must match")
        if self.dma_engine == "gpsimd_dma":
            size = self.src.dtype.itemsize
            held = self.src.elements * size
            self.require(held <= MOST[size], f"{held} bytes per partition by gpsimd_dma", f"at most {MOST[size]} of {8 * size}-bit types")
