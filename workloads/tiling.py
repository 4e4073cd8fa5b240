"""How kernels here cut matrices: tiles of 128 rows in SBUF, sums of one PSUM bank."""

from __future__ import annotations

from collections.abc import Sequence

from nc_sim.isa import View
from nc_sim.program import Program

ROWS = 128  # partitions
COLUMNS = 512  # float32 in each partition of a PSUM bank


def blocks(total: int, size: int = ROWS) -> list[tuple[int, int]]:
    """First index and length of every block."""
    return [(first, min(size, total - first)) for first in range(0, total, size)]


def load(p: Program, x: View) -> list[View]:
    """A matrix in HBM, [rows, cols], as tiles of 128 rows."""
    tiles = []
    for first, n in blocks(x.shape[0]):
        tiles.append(p.sbuf((n, x.shape[1]), x.dtype))
        p.dma_copy(dst=tiles[-1], src=x[first : first + n])
    return tiles


def store(p: Program, y: View, tiles: Sequence[View]) -> None:
    """Tiles, one below the other, to a matrix in HBM."""
    first = 0
    for t in tiles:
        p.dma_copy(dst=y[first : first + t.shape[0]], src=t)
        first += t.shape[0]


def turned(p: Program, tiles: Sequence[View]) -> list[View]:
    """The transpose of a matrix in tiles of rows, in tiles of 128 of its columns: what a product contracts over."""
    rows = sum(t.shape[0] for t in tiles)
    out = []
    for at, k in blocks(tiles[0].shape[1]):
        out.append(p.sbuf((k, rows), tiles[0].dtype))
        first = 0
        for t in tiles:
            n = t.shape[0]
            across = p.psum((k, n), t.dtype)
            p.nc_transpose(dst=across, data=t[:, at : at + k])
            p.tensor_copy(dst=out[-1][:, first : first + n], src=across)
            first += n
    return out


def product(p: Program, stationary: Sequence[View], moving: Sequence[View]) -> View:
    """The sum over tiles of stationary.T @ moving, float32 in one PSUM bank."""
    out = p.psum((stationary[0].shape[1], moving[0].shape[1]), "float32")
    for k, (s, m) in enumerate(zip(stationary, moving, strict=True)):
        p.nc_matmul(dst=out, stationary=s, moving=m, accumulate=k > 0)
    return out
