"""ATen operations as programs of their own, one kernel each, as an eager framework dispatches them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nc_sim.isa import View
from nc_sim.program import Program

PARTITIONS = 128
Shape = tuple[int, int]


def _tiles(rows: int) -> Iterator[tuple[int, int]]:
    for first in range(0, rows, PARTITIONS):
        yield first, min(PARTITIONS, rows - first)


def _rowwise(p: Program, x: View, y: View, compute: Callable[[View, View, int], None]) -> Program:
    """Load 128 rows of x, compute, store to y, and so on."""
    for first, n in _tiles(x.shape[0]):
        t, out = p.sbuf((n, x.shape[1]), x.dtype), p.sbuf((n, y.shape[1]), y.dtype)
        p.dma_copy(dst=t, src=x[first : first + n])
        compute(t, out, first)
        p.dma_copy(dst=y[first : first + n], src=out)
    return p


def mul(a: Shape, b: Shape, dtype: str) -> Program:
    """out = a * b; b has a's shape, one column, or one row."""
    p = Program("aten.mul")
    x, other, y = p.input("a", a, dtype), p.input("b", b, dtype), p.output("out", a, dtype)

    def compute(t: View, out: View, first: int) -> None:
        n = t.shape[0]
        if b == a:
            second = p.sbuf((n, a[1]), dtype)
            p.dma_copy(dst=second, src=other[first : first + n])
            p.tensor_tensor(dst=out, data1=t, data2=second, op="multiply")
        elif b == (a[0], 1):
            narrow, factor = p.sbuf((n, 1), dtype), p.sbuf((n, 1), "float32")
            p.dma_copy(dst=narrow, src=other[first : first + n])
            p.tensor_copy(dst=factor, src=narrow)
            p.tensor_scalar(dst=out, data=t, op0="multiply", operand0=factor)
        else:
            second = p.sbuf((n, a[1]), dtype)
            p.dma_copy(dst=second, src=other.broadcast(0, n))
            p.tensor_tensor(dst=out, data1=t, data2=second, op="multiply")

    return _rowwise(p, x, y, compute)


def mean(a: Shape, dtype: str) -> Program:
    """out[rows, 1] = the mean of each row."""
    p = Program("aten.mean")
    x, y = p.input("a", a, dtype), p.output("out", (a[0], 1), dtype)

    def compute(t: View, out: View, first: int) -> None:
        total = p.sbuf((t.shape[0], 1), "float32")
        p.tensor_reduce(dst=total, op="add", data=t, axis=1)
        p.tensor_scalar(dst=out, data=total, op0="multiply", operand0=1 / a[1])

    return _rowwise(p, x, y, compute)


def add(a: Shape, dtype: str) -> Program:
    """out = a + b for a host scalar b, which arrives as a tensor of one element."""
    p = Program("aten.add")
    x, scalar, y = p.input("a", a, dtype), p.input("b", (1, 1), "float32"), p.output("out", a, dtype)

    def compute(t: View, out: View, first: int) -> None:
        one = p.sbuf((t.shape[0], 1), "float32")
        p.dma_copy(dst=one, src=scalar.broadcast(0, t.shape[0]))
        p.tensor_scalar(dst=out, data=t, op0="add", operand0=one)

    return _rowwise(p, x, y, compute)


def rsqrt(a: Shape, dtype: str) -> Program:
    """out = 1 / sqrt(a)."""
    p = Program("aten.rsqrt")
    x, y = p.input("a", a, dtype), p.output("out", a, dtype)
    return _rowwise(p, x, y, lambda t, out, first: p.activation(dst=out, op="rsqrt", data=t))


def rms_norm_graph(a: Shape, dtype: str, eps: float) -> Program:
    """The six operations of an RMSNorm as one compiled graph: intermediates stay on chip, in float32."""
    p = Program("graph.rms_norm")
    x, weight, y = p.input("a", a, dtype), p.input("b", (1, a[1]), dtype), p.output("out", a, dtype)
    w = p.sbuf((min(a[0], PARTITIONS), a[1]), dtype)
    p.dma_copy(dst=w, src=weight.broadcast(0, w.shape[0]))

    def compute(t: View, out: View, first: int) -> None:
        n = t.shape[0]
        squares, scaled = p.sbuf((n, a[1]), "float32"), p.sbuf((n, a[1]), "float32")
        total, rstd = p.sbuf((n, 1), "float32"), p.sbuf((n, 1), "float32")
        p.tensor_tensor(dst=squares, data1=t, data2=t, op="multiply")
        p.tensor_reduce(dst=total, op="add", data=squares, axis=1)
        p.tensor_scalar(dst=total, data=total, op0="multiply", operand0=1 / a[1], op1="add", operand1=eps)
        p.activation(dst=rstd, op="rsqrt", data=total)
        p.tensor_scalar(dst=scaled, data=t, op0="multiply", operand0=rstd)
        p.tensor_tensor(dst=out, data1=scaled, data2=w[:n], op="multiply")

    return _rowwise(p, x, y, compute)
