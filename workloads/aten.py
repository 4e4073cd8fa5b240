"""ATen operations as programs of their own, one kernel each, as an eager framework dispatches them."""

from __future__ import annotations

from collections.abc import Callable

from nc_sim.isa import View
from nc_sim.program import Program

from .tiling import COLUMNS, ROWS, blocks, load, product, turned

Shape = tuple[int, int]
Batch = tuple[int, int, int]


def _rowwise(p: Program, x: View, y: View, compute: Callable[[View, View, int], None]) -> Program:
    """Load 128 rows of x, compute, store to y, and so on."""
    for first, n in blocks(x.shape[0]):
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


def scalar(name: str, op: str, a: Shape, dtype: str) -> Program:
    """out = a <op> b for a host scalar b, which arrives as a tensor of one element."""
    p = Program(name)
    x, number, y = p.input("a", a, dtype), p.input("b", (1, 1), "float32"), p.output("out", a, dtype)

    def compute(t: View, out: View, first: int) -> None:
        one = p.sbuf((t.shape[0], 1), "float32")
        p.dma_copy(dst=one, src=number.broadcast(0, t.shape[0]))
        p.tensor_scalar(dst=out, data=t, op0=op, operand0=one)

    return _rowwise(p, x, y, compute)


def add(a: Shape, dtype: str) -> Program:
    """out = a + b for a host scalar b."""
    return scalar("aten.add", "add", a, dtype)


def scale(a: Shape, dtype: str) -> Program:
    """out = a * b for a host scalar b: aten::mul too."""
    return scalar("aten.mul", "multiply", a, dtype)


def add_tensor(a: Shape, dtype: str) -> Program:
    """out = a + b, of one shape."""
    p = Program("aten.add")
    x, other, y = p.input("a", a, dtype), p.input("b", a, dtype), p.output("out", a, dtype)

    def compute(t: View, out: View, first: int) -> None:
        second = p.sbuf(t.shape, dtype)
        p.dma_copy(dst=second, src=other[first : first + t.shape[0]])
        p.tensor_tensor(dst=out, data1=t, data2=second, op="add")

    return _rowwise(p, x, y, compute)


def rsqrt(a: Shape, dtype: str) -> Program:
    """out = 1 / sqrt(a)."""
    p = Program("aten.rsqrt")
    x, y = p.input("a", a, dtype), p.output("out", a, dtype)
    return _rowwise(p, x, y, lambda t, out, first: p.activation(dst=out, op="rsqrt", data=t))


def silu(a: Shape, dtype: str) -> Program:
    """out = a / (1 + exp(-a))."""
    p = Program("aten.silu")
    x, y = p.input("a", a, dtype), p.output("out", a, dtype)
    return _rowwise(p, x, y, lambda t, out, first: p.activation(dst=out, op="silu", data=t))


def softmax(a: Shape, dtype: str) -> Program:
    """out = the softmax of each row, float32 inside."""
    p = Program("aten._softmax")
    x, y = p.input("a", a, dtype), p.output("out", a, dtype)

    def compute(t: View, out: View, first: int) -> None:
        peak, total, share = (p.sbuf((t.shape[0], 1), "float32") for _ in range(3))
        e = p.sbuf(t.shape, "float32")
        p.tensor_reduce(dst=peak, op="max", data=t, axis=1, negate=True)
        p.activation(dst=e, op="exp", data=t, bias=peak, reduce_op="add", reduce_res=total)
        p.reciprocal(dst=share, data=total)
        p.tensor_scalar(dst=out, data=e, op0="multiply", operand0=share)

    return _rowwise(p, x, y, compute)


def mm(a: Shape, b: Shape, dtype: str) -> Program:
    """out = a @ b."""
    p = Program("aten.mm")
    x, y, out = p.input("a", a, dtype), p.input("b", b, dtype), p.output("out", (a[0], b[1]), dtype)
    _product(p, x, y, out)
    return p


def bmm(a: Batch, b: Batch, a_strides: Batch, b_strides: Batch, dtype: str) -> Program:
    """out[k] = a[k] @ b[k], out contiguous. The operands are whole buffers, seen with strides in elements."""
    p = Program("aten.bmm")
    seen = []
    for name, shape, strides in (("a", a, a_strides), ("b", b, b_strides)):
        buffer = p.input(name, (shape[0] * shape[1] * shape[2],), dtype)
        seen.append(buffer.ap([[step, n] for step, n in zip(strides, shape, strict=True)]))
    out = p.output("out", (a[0], a[1], b[2]), dtype)
    for k in range(a[0]):
        _product(p, seen[0][k], seen[1][k], out[k])
    return p


def _product(p: Program, x: View, y: View, out: View) -> None:
    """out = x @ y in HBM: x's transpose stays on chip, y comes in 512 columns at a time."""
    left = _contracted(p, x.permute(1, 0))
    for at, columns in blocks(y.shape[1], COLUMNS):
        right = _contracted(p, y[:, at : at + columns])
        for first, n in blocks(x.shape[0]):
            t = p.sbuf((n, columns), out.dtype)
            p.tensor_copy(dst=t, src=product(p, [v[:, first : first + n] for v in left], right))
            p.dma_copy(dst=out[first : first + n, at : at + columns], src=t)


def _contracted(p: Program, x: View) -> list[View]:
    """x [K, N] in HBM as tiles of 128 of its K rows. If columns are what lies together there, it is transposed on chip."""
    return load(p, x) if x.strides[1] == 1 or x.shape[0] == 1 else turned(p, load(p, x.permute(1, 0)))


def copy(a: Batch, strides: Batch, dtype: str) -> Program:
    """out = a, a whole buffer seen with strides in elements, made contiguous as [a0, a1 * a2]."""
    p = Program("aten.copy_")
    x, out = p.input("a", (a[0] * a[1] * a[2],), dtype), p.output("out", (a[0], a[1] * a[2]), dtype)
    source, to = x.ap([[step, n] for step, n in zip(strides, a, strict=True)]), out.reshape(*a)
    for first, n in blocks(a[0]):
        t = p.sbuf((n, a[1], a[2]), dtype)
        p.dma_copy(dst=t, src=source[first : first + n])
        p.dma_copy(dst=to[first : first + n], src=t)
    return p


def rms_norm_graph(a: Shape, dtype: str, eps: float) -> Program:
    """The six operations of an RMSNorm as one compiled graph: intermediates stay on chip, in float32."""
    p = Program("graph.rms_norm")
    x, weight, y = p.input("a", a, dtype), p.input("b", (1, a[1]), dtype), p.output("out", a, dtype)
    w = p.sbuf((min(a[0], ROWS), a[1]), dtype)
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
