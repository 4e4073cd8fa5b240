"""A pre-norm transformer block in bf16: a program for each of its parts, and the whole of it, any number of layers, as one.

y = x + attention(norm(x)) Wo, out = y + (silu(n Wg) * (n Wu)) Wd with n = norm(y). No mask, no position code, no biases.
Weights are [in, out], so that a row of activations times a weight needs no transpose of it. Intermediates of a program
stay on chip. Q and K are made as [d, S] and hidden values as [ff, S]: the next product contracts over them as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from nc_sim.isa import View
from nc_sim.isa.errors import ProgramError
from nc_sim.program import Program

from .rmsnorm import EPS
from .tiling import COLUMNS, ROWS, blocks, load, product, store, turned

TOLERANCE = 2.0**-5  # of max(|value|, 1): a few bf16 steps, since a sum near a rounding edge falls on either side of it
WEIGHTS = ("norm1", "wq", "wk", "wv", "wo", "norm2", "wg", "wu", "wd")

# What a program rounds to bf16: what leaves it, and the operands of products.
FUSED = frozenset({"norm", "q", "k", "v", "weights", "attention", "residual", "hidden"})
# One program for each operation rounds every result.
EAGER = FUSED | {"square", "mean", "shifted", "rstd", "scaled", "scores", "scaled scores", "projected", "gate", "up", "silu"}


def shapes(d: int, heads: int, ff: int) -> dict[str, tuple[int, ...]]:
    """The weights of one layer; Q, K and V tell how many heads there are. ProgramError if d is no number of heads."""
    if heads < 1 or d % heads or d // heads > ROWS:
        raise ProgramError("transformer heads", f"{heads} for a width of {d}", f"a divisor of {d}, of at most {ROWS} columns a head")
    split = (d, heads, d // heads)
    return dict(zip(WEIGHTS, ((1, d), split, split, split, (d, d), (1, d), (d, ff), (d, ff), (ff, d)), strict=True))


# ---- parts, on chip


def norm(p: Program, x: Sequence[View], weight: View) -> list[View]:
    """RMSNorm of rows, as workloads/rmsnorm.py: the root in float32, one rounding."""
    d = x[0].shape[1]
    w = p.sbuf((x[0].shape[0], d), weight.dtype)
    p.dma_copy(dst=w, src=weight.broadcast(0, w.shape[0]))
    eps = p.sbuf((w.shape[0], 1), "float32")  # a bias is a vector on NeuronCore-v2
    p.memset(dst=eps, value=EPS)
    out = []
    for t in x:
        n = t.shape[0]
        squares, total, rstd = p.sbuf((n, d), "float32"), p.sbuf((n, 1), "float32"), p.sbuf((n, 1), "float32")
        p.activation(dst=squares, op="square", data=t, reduce_op="add", reduce_res=total)
        p.activation(dst=rstd, op="rsqrt", data=total, scale=1 / d, bias=eps[:n])
        out.append(p.sbuf((n, d), t.dtype))
        p.scalar_tensor_tensor(dst=out[-1], data=t, op0="multiply", operand0=rstd, op1="multiply", operand1=w[:n])
    return out


def by_head(p: Program, x: Sequence[View], weight: View, heads: int) -> list[View]:
    """(x W) transposed, [d / heads, S] for each head; x is transposed, in tiles of its columns."""
    d, s = weight.shape
    width = d // heads
    out = []
    for at, columns in blocks(d, COLUMNS // width * width):
        w = load(p, weight[:, at : at + columns])
        for first, n in blocks(columns, width):
            out.append(p.sbuf((n, x[0].shape[1]), weight.dtype))
            for s, m in blocks(x[0].shape[1], COLUMNS):
                made = product(p, [t[:, first : first + n] for t in w], [t[:, s : s + m] for t in x])
                p.tensor_copy(dst=out[-1][:, s : s + m], src=made)
    return out


def by_row(p: Program, x: Sequence[View], weight: View, added: Sequence[View] | None = None) -> list[View]:
    """x W in tiles of rows, plus `added` where given; x is transposed, in tiles that W's rows are cut by."""
    out = [p.sbuf((n, weight.shape[1]), weight.dtype) for _, n in blocks(x[0].shape[1])]
    for at, columns in blocks(weight.shape[1], COLUMNS):
        w, row = [], 0
        for t in x:
            w.append(p.sbuf((t.shape[0], columns), weight.dtype))
            p.dma_copy(dst=w[-1], src=weight[row : row + t.shape[0], at : at + columns])
            row += t.shape[0]
        for k, (first, n) in enumerate(blocks(x[0].shape[1])):
            made, to = product(p, [t[:, first : first + n] for t in x], w), out[k][:, at : at + columns]
            if added is None:
                p.tensor_copy(dst=to, src=made)
            else:
                p.tensor_tensor(dst=to, data1=added[k][:, at : at + columns], data2=made, op="add")
    return out


def attention(p: Program, q: Sequence[View], k: Sequence[View], v: Sequence[View]) -> list[View]:
    """softmax(Q K^T / sqrt(d)) V transposed, [d, S] for each head; so are Q and K, and V is in tiles of rows."""
    d, s = q[0].shape
    out = []
    for head, (queries, keys) in enumerate(zip(q, k, strict=True)):
        out.append(p.sbuf((d, s), queries.dtype))
        for first, n in blocks(s):
            weights = _weights(p, queries[:, first : first + n], keys)
            values = [t[:, head * d : head * d + d] for t in v]
            p.tensor_copy(dst=out[-1][:, first : first + n], src=product(p, values, turned(p, [weights])))
    return out


def _weights(p: Program, queries: View, keys: View) -> View:
    """Softmax of the scores of up to 128 queries, [n, S]; more scores than a PSUM bank holds are kept in SBUF."""
    (d, n), s = queries.shape, keys.shape[1]
    parts = [(at, m, product(p, [queries], [keys[:, at : at + m]])) for at, m in blocks(s, COLUMNS)]
    scores = parts[0][2]
    if len(parts) > 1:
        scores = p.sbuf((n, s), "float32")
        for at, m, part in parts:
            p.tensor_copy(dst=scores[:, at : at + m], src=part)
    peak, total, share = (p.sbuf((n, 1), "float32") for _ in range(3))
    e, weights = p.sbuf((n, s), "float32"), p.sbuf((n, s), queries.dtype)
    p.tensor_reduce(dst=peak, op="max", data=scores, axis=1, negate=True)
    p.tensor_scalar(dst=peak, data=peak, op0="multiply", operand0=1 / math.sqrt(d))
    p.activation(dst=e, op="exp", data=scores, scale=1 / math.sqrt(d), bias=peak, reduce_op="add", reduce_res=total)
    p.reciprocal(dst=share, data=total)
    p.tensor_scalar(dst=weights, data=e, op0="multiply", operand0=share)
    return weights


def hidden(p: Program, x: Sequence[View], gate: View, up: View) -> list[View]:
    """silu(x Wg) * (x Wu) transposed, in tiles of 128 of its columns; so is x."""
    s = x[0].shape[1]
    out = []
    for at, columns in blocks(gate.shape[1], COLUMNS):
        wg, wu = load(p, gate[:, at : at + columns]), load(p, up[:, at : at + columns])
        for first, n in blocks(columns):
            out.append(p.sbuf((n, s), gate.dtype))
            for row, m in blocks(s, COLUMNS):
                rows = [t[:, row : row + m] for t in x]
                g, u = (product(p, [t[:, first : first + n] for t in w], rows) for w in (wg, wu))
                open_ = p.sbuf((n, m), "float32")
                p.activation(dst=open_, op="silu", data=g)
                p.tensor_tensor(dst=out[-1][:, row : row + m], data1=open_, data2=u, op="multiply")
    return out


# ---- programs


def qkv_program(s: int, d: int, heads: int, dtype: str = "bfloat16") -> Program:
    """a, wq, wk, wv to one buffer: Q and K transposed, [d, S] each, then V, [S, d]."""
    p = Program("transformer.qkv")
    a = p.input("a", (s, d), dtype)
    wq, wk, wv = (p.input(n, (d, d), dtype) for n in ("wq", "wk", "wv"))
    out = p.output("out", (3, s * d), dtype)
    x = turned(p, load(p, a))
    for k, w in enumerate((wq, wk)):
        store(p, out[k].reshape(d, s), by_head(p, x, w, heads))
    store(p, out[2].reshape(s, d), by_row(p, x, wv))
    return p


def attention_program(s: int, d: int, heads: int, dtype: str = "bfloat16") -> Program:
    """What `qkv_program` leaves to attention's result, transposed: [d, S]."""
    p = Program("transformer.attention")
    a, out = p.input("a", (3, s * d), dtype), p.output("out", (d, s), dtype)
    q, k = ([p.sbuf((d // heads, s), dtype) for _ in range(heads)] for _ in range(2))
    for which, tiles in enumerate((q, k)):
        whole = a[which].reshape(d, s)
        for head, t in enumerate(tiles):
            p.dma_copy(dst=t, src=whole[head * t.shape[0] : (head + 1) * t.shape[0]])
    store(p, out, attention(p, q, k, load(p, a[2].reshape(s, d))))
    return p


def projection_program(s: int, d: int, dtype: str = "bfloat16") -> Program:
    """Attention's result, transposed, times wo, plus x."""
    p = Program("transformer.projection")
    a, wo, x = p.input("a", (d, s), dtype), p.input("wo", (d, d), dtype), p.input("x", (s, d), dtype)
    out = p.output("out", (s, d), dtype)
    store(p, out, by_row(p, load(p, a), wo, load(p, x)))
    return p


def mlp_program(s: int, d: int, ff: int, dtype: str = "bfloat16") -> Program:
    """(silu(a wg) * (a wu)) wd + x."""
    p = Program("transformer.mlp")
    a, wg, wu = p.input("a", (s, d), dtype), p.input("wg", (d, ff), dtype), p.input("wu", (d, ff), dtype)
    wd, x, out = p.input("wd", (ff, d), dtype), p.input("x", (s, d), dtype), p.output("out", (s, d), dtype)
    store(p, out, by_row(p, hidden(p, turned(p, load(p, a)), wg, wu), wd, load(p, x)))
    return p


def build(
    s: int = 128, d: int = 256, heads: int = 4, ff: int = 512, layers: int = 1, dtype: str = "bfloat16", output: str = "y"
) -> Program:
    """The whole of it: x [S, d] and the weights of every layer, as wq0, to y [S, d]."""
    p = Program("transformer")
    x, y = p.input("x", (s, d), dtype), p.output(output, (s, d), dtype)
    wanted = shapes(d, heads, ff)
    weights = [{n: p.input(f"{n}{k}", shape, dtype) for n, shape in wanted.items()} for k in range(layers)]
    rows = load(p, x)
    for w in weights:
        n = turned(p, norm(p, rows, w["norm1"]))
        q, k = (by_head(p, n, w[name].reshape(d, d), heads) for name in ("wq", "wk"))
        seen = attention(p, q, k, by_row(p, n, w["wv"].reshape(d, d)))
        rows = by_row(p, seen, w["wo"], rows)
        n = turned(p, norm(p, rows, w["norm2"]))
        rows = by_row(p, hidden(p, n, w["wg"], w["wu"]), w["wd"], rows)
    store(p, y, rows)
    return p


# ---- values


def inputs(program: Program, seed: int = 0) -> dict[str, np.ndarray]:
    """Normal values: x of size 1, weights of a size that keeps sums near 1, weights of norms near 1."""
    rng = np.random.default_rng(seed)
    out = {}
    for t in program.tensors.values():
        if t.kind == "input":
            made = rng.standard_normal(t.shape)
            if t.name.startswith("norm"):
                made = 1 + made / 8
            elif t.name != "x":
                made /= math.sqrt(t.shape[0])
            out[t.name] = made.astype(t.dtype.numpy)
    return out


def reference(given: Mapping[str, np.ndarray], rounded: frozenset[str] = FUSED) -> dict[str, np.ndarray]:
    """The formula in float64, with the results named in `rounded` rounded to x's type; none of them gives the plain formula."""
    kind = given["x"].dtype

    def r(point: str, value: np.ndarray) -> np.ndarray:
        return value.astype(np.float32).astype(kind).astype(np.float64) if point in rounded else value

    def normed(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        mean = r("mean", r("square", x * x).mean(axis=1, keepdims=True))
        rstd = r("rstd", 1 / np.sqrt(r("shifted", mean + EPS)))
        return r("norm", r("scaled", x * rstd) * weight)

    x = given["x"].astype(np.float64)
    layer = 0
    while f"wq{layer}" in given:
        w = {n: given[f"{n}{layer}"].astype(np.float64) for n in WEIGHTS}
        n = normed(x, w["norm1"])
        q, k, v = (r(t, np.einsum("sd,dhe->hse", n, w[f"w{t}"])) for t in "qkv")
        scores = r("scaled scores", r("scores", q @ k.transpose(0, 2, 1)) / math.sqrt(q.shape[2]))
        e = np.exp(scores - scores.max(axis=2, keepdims=True))
        seen = r("attention", r("weights", e / e.sum(axis=2, keepdims=True)) @ v)
        x = r("residual", x + r("projected", seen.transpose(1, 0, 2).reshape(x.shape) @ w["wo"]))
        n = normed(x, w["norm2"])
        gate = r("gate", n @ w["wg"])
        open_ = r("silu", gate / (1 + np.exp(-gate)))
        x = r("residual", x + r("projected", r("hidden", open_ * r("up", n @ w["wu"])) @ w["wd"]))
        layer += 1
    return {"y": x}
