"""Kernels that others measured, as programs of our own from their published description (kernels.toml says of each which).

Calls stand in the order of the description. Where a compiler is known to order otherwise, a size says so: `sink` stores
called later, `order` statements of several tiles taken together, `evict` who copies out of PSUM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..isa import View
from ..program import Program

F32 = "float32"
ROWS, WIDE = 128, 512  # partitions; columns of a PSUM bank in float32
OVER = object()
EVICT = {"vector": ("vector",), "scalar": ("scalar",), "both": ("vector", "scalar")}


# ---- vector addition


def vector_add_rows(n: int, rows: int, sink: int = 0, descriptors: str = "unknown") -> Program:
    """c = a + b in pieces of [rows, 1]: load, load, add, store; each store is called `sink` pieces later."""
    return _vector_add((n, 1), [(slice(k, k + rows), slice(None)) for k in range(0, n, rows)], sink, descriptors)


def vector_add_columns(n: int, columns: int, sink: int = 0, descriptors: str = "unknown") -> Program:
    """The same of [128, n / 128] in pieces of [128, columns]."""
    width = n // ROWS
    return _vector_add((ROWS, width), [(slice(None), slice(k, k + columns)) for k in range(0, width, columns)], sink, descriptors)


def _vector_add(shape: tuple[int, int], pieces: Sequence[tuple[slice, slice]], sink: int, descriptors: str) -> Program:
    p = Program("vector_add")
    a, b, c = p.input("a", shape, F32), p.input("b", shape, F32), p.output("c", shape, F32)
    size = a[pieces[0]].shape
    tiles = [[p.sbuf(size, F32) for _ in range(3)] for _ in range(min(len(pieces), sink + 4))]
    stores = _Stores(p, sink, descriptors)
    for k, piece in enumerate(pieces):
        x, y, z = tiles[k % len(tiles)]
        p.dma_copy(dst=x, src=a[piece], dge_mode=descriptors)
        p.dma_copy(dst=y, src=b[piece], dge_mode=descriptors)
        if size[1] == 1:
            p.tensor_scalar(dst=z, data=x, op0="add", operand0=y)
        else:
            p.tensor_tensor(dst=z, data1=x, data2=y, op="add")
        stores.add(c[piece], z)
    stores.end()
    return p


class _Stores:
    """Stores of a program, each called when `sink` others have been asked for after it, the last ones at the end."""

    def __init__(self, p: Program, sink: int, descriptors: str) -> None:
        self.p, self.sink, self.descriptors = p, sink, descriptors
        self.waiting: list[tuple[View, View]] = []

    def add(self, dst: View, src: View) -> None:
        self.waiting.append((dst, src))
        if len(self.waiting) > self.sink:
            self.call()

    def call(self) -> None:
        dst, src = self.waiting.pop(0)
        self.p.dma_copy(dst=dst, src=src, dge_mode=self.descriptors)

    def end(self) -> None:
        while self.waiting:
            self.call()


# ---- streams


def memory_read(tiles: int, columns: int, buffers: int = 4, descriptors: str = "unknown", apart: bool = False) -> Program:
    """Load bf16 tiles of [128, columns], sum each along its rows in fp32, and add the sums up: each at once, or all at the end."""
    p = Program("memory_read")
    x, out = p.input("x", (tiles * ROWS, columns), "bfloat16"), p.output("out", (ROWS, 1), F32)
    loaded, total = [p.sbuf((ROWS, columns), "bfloat16") for _ in range(buffers)], p.sbuf((ROWS, 1), F32)
    sums = p.sbuf((ROWS, tiles if apart else buffers), F32)
    p.memset(dst=total, value=0.0)
    for k in range(tiles):
        at = k if apart else k % buffers
        tile, part = loaded[k % buffers], sums[:, at : at + 1]
        p.dma_copy(dst=tile, src=x[k * ROWS : (k + 1) * ROWS], dge_mode=descriptors)
        p.tensor_reduce(dst=part, op="add", data=tile, axis=1)
        if not apart:
            p.tensor_tensor(dst=total, data1=total, data2=part, op="add")
    if apart:
        p.tensor_reduce(dst=total, op="add", data=sums, axis=1)
    p.dma_copy(dst=out, src=total, dge_mode=descriptors)
    return p


def memory_write(tiles: int, columns: int, descriptors: str = "unknown") -> Program:
    """Load one bf16 tile of [128, columns] and store it `tiles` times."""
    p = Program("memory_write")
    x, out = p.input("x", (ROWS, columns), "bfloat16"), p.output("out", (tiles * ROWS, columns), "bfloat16")
    tile = p.sbuf((ROWS, columns), "bfloat16")
    p.dma_copy(dst=tile, src=x, dge_mode=descriptors)
    for k in range(tiles):
        p.dma_copy(dst=out[k * ROWS : (k + 1) * ROWS], src=tile, dge_mode=descriptors)
    return p


# ---- elementwise kernels


def rope(tiles: int, buffers: int = 2, sink: int = 0, descriptors: str = "unknown") -> Program:
    """Rotary embedding of fp32 [128, 512 x tiles]: both halves of the partitions times cos and sin, added and subtracted."""
    p, half = Program("rope"), ROWS // 2
    shape = (ROWS, WIDE * tiles)
    x, out = p.input("x", shape, F32), p.output("out", shape, F32)
    cos, sin = (p.input(n, (half, WIDE * tiles), F32) for n in ("cos", "sin"))
    sets = [([p.sbuf((n, WIDE), F32) for n in (ROWS, ROWS)], [p.sbuf((half, WIDE), F32) for _ in range(7)]) for _ in range(buffers + sink)]
    stores = _Stores(p, sink, descriptors)
    for k in range(tiles):
        (tile, result), (c, s, odd, even_cos, odd_cos, even_sin, odd_sin) = sets[k % len(sets)]
        at = slice(k * WIDE, (k + 1) * WIDE)
        p.dma_copy(dst=tile, src=x[:, at], dge_mode=descriptors)
        p.dma_copy(dst=c, src=cos[:, at], dge_mode=descriptors)
        p.dma_copy(dst=s, src=sin[:, at], dge_mode=descriptors)
        even = tile[:half]
        p.tensor_copy(dst=odd, src=tile[half:], engine="scalar")
        for dst, one, other in ((even_cos, even, c), (odd_cos, odd, c), (even_sin, even, s), (odd_sin, odd, s)):
            p.tensor_tensor(dst=dst, data1=one, data2=other, op="multiply")
        p.tensor_tensor(dst=result[:half], data1=even_cos, data2=odd_sin, op="subtract")
        p.tensor_tensor(dst=result[half:], data1=odd_cos, data2=even_sin, op="add")
        stores.add(out[:, at], result)
    stores.end()
    return p


def silu(tiles: int, columns: int = 1024, buffers: int = 2, sink: int = 0, descriptors: str = "unknown") -> Program:
    """x / (1 + exp(-x)) of fp32 tiles of [128, columns]: exp, add, reciprocal and product in halves of 512."""
    p = Program("silu")
    x, out = p.input("x", (ROWS, tiles, columns), F32), p.output("out", (ROWS, tiles, columns), F32)
    zero = p.sbuf((ROWS, 1), F32)
    p.memset(dst=zero, value=0.0)
    sets = [[p.sbuf((ROWS, n), F32) for n in (columns, columns, WIDE, WIDE, WIDE)] for _ in range(buffers + sink)]
    stores = _Stores(p, sink, descriptors)
    for k in range(tiles):
        tile, result, power, more, share = sets[k % len(sets)]
        p.dma_copy(dst=tile, src=x[:, k], dge_mode=descriptors)
        for first in range(0, columns, WIDE):
            part = tile[:, first : first + WIDE]
            p.activation(dst=power, op="exp", data=part, bias=zero, scale=-1.0)
            p.tensor_scalar(dst=more, data=power, op0="add", operand0=1.0)
            p.reciprocal(dst=share, data=more)
            p.tensor_tensor(dst=result[:, first : first + WIDE], data1=part, data2=share, op="multiply")
        stores.add(out[:, k], result)
    stores.end()
    return p


# ---- products


def transpose_matmul(blocks: int, k: int = 2048, descriptors: str = "unknown", evict: str = "scalar") -> Program:
    """fp32 A[k, 1024].T @ B[k, 1024 x blocks]: 8 x 2 sums of k / 128 products a block, copied out of PSUM and stored."""
    p, deep, side = Program("transpose_matmul"), k // ROWS, 1024
    a, b = p.input("a", (ROWS, deep, side), F32), p.input("b", (ROWS, deep, side * blocks), F32)
    out = p.output("out", (side // ROWS, ROWS, side * blocks), F32)
    left, right = ([p.sbuf((ROWS, side), F32) for _ in range(deep)] for _ in range(2))
    results, sums = [p.sbuf((ROWS, side), F32) for _ in range(2)], [p.psum((ROWS, WIDE)) for _ in range(4)]
    copies = 0
    for i in range(deep):
        p.dma_copy(dst=left[i], src=a[:, i], dge_mode=descriptors)
    for block in range(blocks):
        across = slice(block * side, (block + 1) * side)
        for i in range(deep):
            p.dma_copy(dst=right[i], src=b[:, i, across], dge_mode=descriptors)
        for row in range(side // ROWS):
            result = results[row % 2]
            for first in range(0, side, WIDE):
                total, copies = sums[copies % len(sums)], copies + 1
                for i in range(deep):
                    stationary, moving = left[i][:, row * ROWS : (row + 1) * ROWS], right[i][:, first : first + WIDE]
                    p.nc_matmul(dst=total, stationary=stationary, moving=moving, accumulate=i > 0)
                p.tensor_copy(dst=result[:, first : first + WIDE], src=total, engine=EVICT[evict][copies % len(EVICT[evict])])
            p.dma_copy(dst=out[row, :, across], src=result, dge_mode=descriptors)
    return p


class _Attention:
    """softmax(Q^T K) V^T of one head, d = 128: the statements that the fused and the baseline kernel share."""

    def __init__(self, s: int, dtype: str, order: str, evict: str, grouped: bool, loads: str) -> None:
        self.p, self.s, self.order, self.grouped = Program("attention"), s, order, grouped
        self.copiers, self.copies = EVICT[evict], 0
        q, k, v = (self.p.input(n, (ROWS, s), dtype) for n in "qkv")
        self.out = self.p.output("out", (s, ROWS), dtype)
        self.q, self.k, self.v = (self.p.sbuf((ROWS, s), dtype) for _ in range(3))
        pairs = {"q": (self.q, q), "k": (self.k, k), "v": (self.v, v)}
        for name in loads:
            self.p.dma_copy(dst=pairs[name][0], src=pairs[name][1])
        self.turned = self.p.sbuf((ROWS, s), F32)

    def tiles(self, statements: Callable[[int], Iterator[None]]) -> None:
        """Every tile of 128 queries: one after the other, or a statement of all before the next."""
        bodies = [statements(i) for i in range(self.s // ROWS)]
        if self.order == "source":
            for body in bodies:
                for _ in body:
                    pass
            return
        while bodies:
            bodies = [body for body in bodies if next(body, OVER) is not OVER]

    def copy(self, dst: View, src: View) -> None:
        """Out of PSUM."""
        self.copies += 1
        self.p.tensor_copy(dst=dst, src=src, engine=self.copiers[self.copies % len(self.copiers)])

    def turn(self, dst: View, src: View) -> Iterator[None]:
        """Blocks of [128, 128] transposed, each copied out of PSUM alone, or those of a bank together."""
        together = WIDE if self.grouped else ROWS
        for first in range(0, self.s, together):
            across = self.p.psum((ROWS, together), src.dtype.name)
            for at in range(0, together, ROWS):
                self.p.nc_transpose(dst=across[:, at : at + ROWS], data=src[:, first + at : first + at + ROWS])
                yield
            self.copy(dst[:, first : first + together], across)
            yield

    def turn_values(self) -> None:
        for _ in self.turn(self.turned, self.v):
            pass

    def scores(self, i: int, into: View | None = None) -> Iterator[Any]:
        """Tiles of [128, 512], copied out of PSUM; without a place for them the last thing it yields is the first, in PSUM."""
        for first in range(0, self.s, WIDE):
            product = self.p.psum((ROWS, WIDE))
            self.p.nc_matmul(dst=product, stationary=self.q[:, i * ROWS : (i + 1) * ROWS], moving=self.k[:, first : first + WIDE])
            yield product
            if into is None:
                return
            self.copy(into[:, first : first + WIDE], product)
            yield

    def softmax(self, data: View, powers: View) -> Iterator[Any]:
        """exp(data - maximum); the last thing it yields is 1 / sum, [128, 1]."""
        p, chunks = self.p, range(0, self.s, WIDE)
        peaks, sums = p.sbuf((ROWS, len(chunks)), F32), p.sbuf((ROWS, len(chunks)), F32)
        low, total, share = (p.sbuf((ROWS, 1), F32) for _ in range(3))
        for j, first in enumerate(chunks):
            p.tensor_reduce(dst=peaks[:, j : j + 1], op="max", data=data[:, first : first + WIDE], axis=1)
            yield
        p.tensor_reduce(dst=low, op="max", data=peaks, axis=1, negate=True)
        yield
        for j, first in enumerate(chunks):
            part = powers[:, first : first + WIDE]
            p.activation(dst=part, op="exp", data=data[:, first : first + WIDE], bias=low, scale=1.0)
            yield
            p.tensor_reduce(dst=sums[:, j : j + 1], op="add", data=part, axis=1)
            yield
        p.tensor_reduce(dst=total, op="add", data=sums, axis=1)
        yield
        p.reciprocal(dst=share, data=total)
        yield share

    def product(self, weights: View) -> Iterator[Any]:
        """weights @ V^T; the last thing it yields is the sum in PSUM."""
        turned, total = self.p.sbuf((ROWS, self.s), F32), self.p.psum((ROWS, ROWS))
        yield from self.turn(turned, weights)
        for first in range(0, self.s, ROWS):
            stationary, moving = (of[:, first : first + ROWS] for of in (turned, self.turned))
            self.p.nc_matmul(dst=total, stationary=stationary, moving=moving, accumulate=first > 0)
        yield total

    def rows(self, i: int) -> View:
        return self.out[i * ROWS : (i + 1) * ROWS]


def attention_fused(
    s: int, dtype: str, order: str = "source", evict: str = "vector", grouped: bool = False, loads: str = "qkv", in_place: bool = False
) -> Program:
    """Scores, softmax and product of each tile of queries on chip; the division comes last. S = 512 can leave scores in PSUM."""
    a = _Attention(s, dtype, order, evict, grouped, loads)
    a.turn_values()

    def body(i: int) -> Iterator[None]:
        scores, powers, result = (a.p.sbuf((ROWS, n), F32) for n in (s, s, ROWS))
        share: Any = None
        total: Any = None
        if in_place:
            for scores in a.scores(i):  # noqa: B007
                yield
        else:
            yield from a.scores(i, scores)
        for share in a.softmax(scores, powers):  # noqa: B007
            yield
        for total in a.product(powers):  # noqa: B007
            yield
        a.p.tensor_scalar(dst=result, data=total, op0="multiply", operand0=share)
        yield
        a.p.dma_copy(dst=a.rows(i), src=result)

    a.tiles(body)
    return a.p


def attention_baseline(
    s: int, dtype: str, order: str = "source", evict: str = "vector", grouped: bool = False, loads: str = "qkv"
) -> Program:
    """The same in three passes, with scores and weights through HBM between them."""
    a = _Attention(s, dtype, order, evict, grouped, loads)
    through = [a.p.hbm((ROWS, s), F32) for _ in range(s // ROWS)]

    def first(i: int) -> Iterator[None]:
        scores = a.p.sbuf((ROWS, s), F32)
        yield from a.scores(i, scores)
        a.p.dma_copy(dst=through[i], src=scores)

    def second(i: int) -> Iterator[None]:
        scores, powers, weights = (a.p.sbuf((ROWS, s), F32) for _ in range(3))
        share = None
        a.p.dma_copy(dst=scores, src=through[i])
        yield
        for share in a.softmax(scores, powers):  # noqa: B007
            yield
        for j in range(0, s, WIDE):
            a.p.tensor_scalar(dst=weights[:, j : j + WIDE], data=powers[:, j : j + WIDE], op0="multiply", operand0=share)
            yield
        a.p.dma_copy(dst=through[i], src=weights)

    def third(i: int) -> Iterator[None]:
        weights, result = a.p.sbuf((ROWS, s), F32), a.p.sbuf((ROWS, ROWS), F32)
        total: Any = None
        a.p.dma_copy(dst=weights, src=through[i])
        yield
        for total in a.product(weights):  # noqa: B007
            yield
        a.copy(result, total)
        yield
        a.p.dma_copy(dst=a.rows(i), src=result)

    a.tiles(first)
    a.tiles(second)
    a.turn_values()
    a.tiles(third)
    return a.p


BODIES: dict[str, Callable[..., Program]] = {
    f.__name__: f
    for f in (
        vector_add_rows, vector_add_columns, memory_read, memory_write, rope, silu, transpose_matmul, attention_fused, attention_baseline,
    )
}  # fmt: skip
