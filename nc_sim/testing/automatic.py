"""Random automatic programs that run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ..isa import View
from ..isa.dynamic import Register, ds
from ..program import Program
from .drawn import DrawnProgram, number_lines

TYPES = ("float32", "bfloat16", "float16")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum")


class _Builder:
    """Draws calls over a small pool of tensors, reading only what was written."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw, self.p = draw, DrawnProgram("random")
        self.partitions = draw(st.sampled_from([1, 4, 32, 127, 128]))
        self.free = draw(st.sampled_from([1, 2, 16, 65, 128]))
        self.ready: list[View] = []
        self.hbm: list[View] = []
        self.outputs = 0
        # open ones: the condition of a while loop, and what was written before
        self.loops: list[tuple[Any, list[View], list[View]]] = []
        self.input()

    def input(self) -> None:
        """Declare an input and load it."""
        x = self.p.input(f"x{len(self.hbm)}", (self.partitions, self.free), self.draw(st.sampled_from(TYPES)))
        self.hbm.append(x)
        t = self.fresh(x.dtype.name)
        self.p.dma_copy(dst=t, src=x)
        self.ready.append(t)

    def kinds(self) -> list[Callable[[], None]]:
        """Plain ones first: examples shrink towards them."""
        return [
            self.copy,
            self.scalar,
            self.elementwise,
            self.activate,
            self.reduce,
            self.load,
            self.store,
            self.spill,
            self.pattern,
            self.open,
            self.close,
            self.other,
            self.product,
        ]

    def fresh(self, dtype: str = "float32", psum: bool = False) -> View:
        make = self.p.psum if psum else self.p.sbuf
        return make((self.partitions, self.free), dtype)

    def any(self, *, sbuf: bool = False) -> View:
        pool = [v for v in self.ready if not sbuf or v.memory.name == "SBUF"]
        return self.draw(st.sampled_from(pool))

    def target(self) -> View:
        """A new tensor or one to overwrite."""
        if self.draw(st.booleans()):
            return self.any()
        t = self.fresh(self.draw(st.sampled_from(TYPES)), psum=self.draw(st.integers(0, 5)) == 5 and self.psum_left())
        return t

    def psum_left(self) -> bool:
        return sum(t.memory.name == "PSUM" for t in self.p.tensors.values()) < 6

    def wrote(self, view: View) -> None:
        if view not in self.ready:
            self.ready.append(view)

    def part(self, dst: View, *sources: View) -> tuple[View, ...]:
        """The operands, or the same slice of each."""
        if self.free > 1 and self.draw(st.integers(0, 2)) == 2:
            cut = self.draw(st.integers(1, self.free - 1))
            window = slice(cut, None) if self.draw(st.booleans()) else slice(0, cut)
            if dst in self.ready:
                return tuple(v[:, window] for v in (dst, *sources))
        return (dst, *sources)

    def elementwise(self) -> None:
        a, dst = self.any(), self.target()
        b = self.any(sbuf=a.memory.name == "PSUM")
        d, x, y = self.part(dst, a, b)
        self.p.tensor_tensor(dst=d, data1=x, data2=y, op=self.draw(st.sampled_from(BINARY)))
        self.wrote(dst)

    def scalar(self) -> None:
        a, dst = self.any(), self.target()
        d, x = self.part(dst, a)
        self.p.tensor_scalar(dst=d, data=x, op0="multiply", operand0=0.5, op1="add", operand1=1.0)
        self.wrote(dst)

    def activate(self) -> None:
        a, dst = self.any(), self.target()
        d, x = self.part(dst, a)
        op = self.draw(st.sampled_from(["tanh", "exp", "copy", "square"]))
        if self.draw(st.booleans()):
            total = self.p.sbuf((self.partitions, 1), "float32")
            self.p.activation(dst=d, op=op, data=x, scale=0.25, reduce_op="add", reduce_res=total)
            self.p.tensor_scalar(dst=d, data=d, op0="add", operand0=total)
        else:
            self.p.activation(dst=d, op=op, data=x, scale=0.25)
        self.wrote(dst)

    def moved(self) -> None:
        """Some columns into others, of which one or both are where a register or a number in SBUF says."""
        a, dst = self.any(), self.any()
        width = self.draw(st.integers(1, self.free))
        first = [self.draw(st.integers(0, self.free - width)) for _ in range(2)]
        places = [self.place(v, k, width) for v, k in zip((a, dst), first, strict=True)]
        self.p.tensor_scalar(dst=places[1], data=places[0], op0="multiply", operand0=-1.0)

    def place(self, view: View, first: int, width: int) -> View:
        """Columns of a view, from a number, a register or a number in SBUF on."""
        kind = self.draw(st.sampled_from(["number", "register", "tensor"]))
        if kind == "number":
            return view[:, first : first + width]
        if kind == "register":
            return view[:, ds(self.p.register_alloc(first), width)]
        one = self.p.sbuf((1, 1), "int32")
        self.p.memset(dst=one, value=first)
        return view.ap([[self.free, self.partitions], [1, width]], scalar_offset=one, indirect_dim=1)

    def reduce(self) -> None:
        total, a, dst = self.p.sbuf((self.partitions, 1), "float32"), self.any(), self.target()
        self.p.tensor_reduce(dst=total, op=self.draw(st.sampled_from(["add", "max"])), data=a, axis=1)
        self.p.tensor_scalar(dst=dst, data=a, op0="subtract", operand0=total)
        self.wrote(dst)

    def copy(self) -> None:
        a, dst = self.any(), self.target()
        psum = "PSUM" in (a.memory.name, dst.memory.name)
        engine = self.draw(st.sampled_from(["vector", "scalar"] + ([] if psum else ["gpsimd"])))
        self.p.tensor_copy(dst=dst, src=a, engine=engine)
        self.wrote(dst)

    def load(self) -> None:
        x, dst = self.draw(st.sampled_from(self.hbm)), self.fresh()
        self.p.dma_copy(dst=dst, src=x, **self.way())
        self.wrote(dst)

    def store(self) -> None:
        """To an output, unless a loop is open: it may have no round."""
        if self.loops:
            self.copy()
            return
        y = self.p.output(f"y{self.outputs}", (self.partitions, self.free), "float32")
        self.outputs += 1
        self.p.dma_copy(dst=y, src=self.any(sbuf=True), **self.way())

    def spill(self) -> None:
        """Through HBM and back."""
        a = self.any(sbuf=True)
        h, back = self.p.hbm((self.partitions, self.free), a.dtype.name), self.fresh(a.dtype.name)
        self.p.dma_copy(dst=h, src=a, **self.way())
        self.p.dma_copy(dst=back, src=h, **self.way())
        self.hbm.append(h)
        self.wrote(back)

    def way(self) -> dict[str, str]:
        return self.draw(
            st.sampled_from(
                [
                    {},
                    {"engine": "sync"},
                    {"engine": "scalar"},
                    {"engine": "gpsimd"},
                    {"dge_mode": "none"},
                    {"engine": "vector", "dge_mode": "none"},
                ]
            )
        )

    def product(self) -> None:
        """Round to bf16 or stay fp32, multiply, and come back through PSUM."""
        if not self.psum_left() or self.free != self.partitions:
            self.copy()
            return
        a, b = self.any(sbuf=True), self.any(sbuf=True)
        dtype = self.draw(st.sampled_from(["float32", "bfloat16"]))
        s, m = self.fresh(dtype), self.fresh(dtype)
        self.p.tensor_copy(dst=s, src=a)
        self.p.tensor_copy(dst=m, src=b)
        out = self.p.psum((self.free, self.free), "float32")
        for k in range(self.draw(st.integers(1, 3))):
            self.p.nc_matmul(dst=out, stationary=s, moving=m, accumulate=k > 0)
        if self.draw(st.booleans()):
            turned = self.p.psum((self.free, self.partitions), dtype)
            self.p.nc_transpose(dst=turned, data=s)
            self.wrote(turned)
        self.wrote(out)

    def other(self) -> None:
        """DMA that does more than copy whole tensors, and operands that are moved."""
        self.draw(st.sampled_from([self.gather, self.scatter, self.turn, self.sum, self.moved]))()

    def indices(self, rows: int, most: int, distinct: bool = False) -> View:
        """Row numbers in SBUF."""
        rng = np.random.default_rng(self.draw(st.integers(0, 99)))  # a list of 128 drawn numbers is slow
        numbers = rng.permutation(most)[:rows] if distinct else rng.integers(0, most, rows)
        at = self.p.sbuf((rows, 1), "uint32")
        self.p.dma_copy(dst=at, src=self.p.constant(numbers.reshape(-1, 1), "uint32"))
        return at

    def gather(self) -> None:
        """Rows of HBM that indices name, or from one that a number names on."""
        x, dst = self.draw(st.sampled_from(self.hbm)), self.fresh()
        if self.draw(st.booleans()):
            self.p.dma_copy(dst=dst, src=x.vector_select(0, self.indices(self.partitions, self.partitions)))
            self.wrote(dst)
            return
        rows = self.draw(st.integers(1, self.partitions))
        one = self.indices(1, self.partitions - rows + 1)
        src = x.ap([[self.free, rows], [1, self.free]], scalar_offset=one)
        self.p.dma_copy(dst=dst, src=x)
        self.p.dma_copy(dst=dst[:rows], src=src, **self.draw(st.sampled_from([{}, {"engine": "gpsimd"}, {"dge_mode": "swdge"}])))
        self.wrote(dst)

    def scatter(self) -> None:
        """Rows of HBM written or added to, and read back."""
        a = self.any(sbuf=True)
        h, back = self.p.hbm((self.partitions, self.free), a.dtype.name), self.fresh(a.dtype.name)
        self.p.dma_copy(dst=h, src=a, **self.way())
        found = h.vector_select(0, self.indices(self.partitions, self.partitions, distinct=True))
        if self.draw(st.booleans()):
            self.p.dma_copy(dst=found, src=self.any(sbuf=True))
        else:
            self.p.dma_compute(dst=found, srcs=[found, self.any(sbuf=True)], reduce_op="add")
        self.p.dma_copy(dst=back, src=h, **self.way())
        self.hbm.append(h)
        self.wrote(back)

    def turn(self) -> None:
        """A transpose by DMA and another one back."""
        sources = [*self.hbm, *(v for v in self.ready if v.memory.name == "SBUF")]
        x = self.draw(st.sampled_from(sources))
        there, back = self.p.sbuf((self.free, self.partitions), x.dtype.name), self.fresh(x.dtype.name)
        self.p.dma_transpose(dst=there, src=x)
        self.p.dma_transpose(dst=back, src=there)
        self.wrote(back)

    def sum(self) -> None:
        sources = [self.any(sbuf=True), *self.draw(st.lists(st.sampled_from(self.hbm), min_size=1, max_size=3))]
        dst = self.draw(st.sampled_from([self.fresh(), sources[0]]))
        self.p.dma_compute(dst=dst, srcs=sources, reduce_op="add")
        self.wrote(dst)

    def pattern(self) -> None:
        dst = self.fresh("float32")
        self.p.iota(dst=dst, pattern=[[1, self.free]], offset=self.draw(st.integers(-5, 5)), channel_multiplier=2)
        if self.draw(st.booleans()):
            self.p.affine_select(
                dst=dst, pattern=[[-1, self.free]], channel_multiplier=1, on_true_tile=dst, on_false_value=0.5, cmp_op="greater_equal"
            )
        self.wrote(dst)

    def open(self) -> None:
        """Begin a loop of 0 to 3 rounds, whose bound is a number, a register or loaded from a constant."""
        if len(self.loops) == 2:
            self.copy()
            return
        p, rounds, ready = self.p, self.draw(st.integers(0, 3)), (list(self.ready), list(self.hbm))
        kind = self.draw(st.sampled_from(["number", "register", "loaded", "while"]))
        bound: int | Register = rounds
        if kind != "number":
            bound = p.register_alloc(None if kind == "loaded" else rounds)
        if kind == "loaded":
            p.register_load(bound, p.constant(np.array([rounds]), "int32"))
        if kind == "while":
            p.loop_while(bound)
        else:
            start = self.draw(st.integers(-2, 2))
            if isinstance(bound, int):
                bound += start
            else:
                p.register_alu(bound, bound, "add", start)
            p.loop_for(p.register_alloc(), start, bound)
        self.loops.append((bound if kind == "while" else None, *ready))

    def close(self) -> None:
        """End a loop, if one is open. What it wrote for the first time is forgotten: it may have had no round."""
        if not self.loops:
            self.copy()
            return
        p = self.p
        condition, self.ready, self.hbm = self.loops.pop()
        if condition is None:
            p.register_store(p.sbuf((1, 1), "int32"), p.register_alloc(7))  # lest the body is empty
        else:
            p.register_alu(condition, condition, "subtract", 1)
        p.loop_end()


@st.composite
def _maybe_another_input(draw: st.DrawFn, builder: _Builder) -> None:
    if draw(st.booleans()):
        builder.input()


@st.composite
def _one_call(draw: st.DrawFn, builder: _Builder) -> bool:
    """Append a call and what it needs, or nothing: then the program ends. A strategy of its own, so that shrinking drops it whole."""
    kind = draw(st.sampled_from([None, *builder.kinds()]))
    if kind is not None:
        kind()
    return kind is not None


@st.composite
def programs(draw: st.DrawFn, most: int = 12, loop: bool = False) -> Program:
    """Automatic programs that run without an error, with values and for time only.

    One or two inputs are loaded, up to `most` calls follow (elementwise, activations, reductions,
    products, transposes, patterns, moved operands, loads, stores, spills, gathers, scatters, transposes and sums by every kind
    of DMA, whole tensors or slices, loops of up to 3 rounds in each other), and a store to an output ends it. With `loop`,
    the calls begin with a loop.
    All tensors of a program have one shape: 1 to 128 partitions, 1 to 128 elements. Reads are of what was written, and
    tensors are overwritten while others still read them, so every kind of conflict occurs. `inputs` makes its arrays;
    what is computed of them is finite or not, as the calls happen to be. Shrinks to a load and a store of one element.
    """
    builder = _Builder(draw)
    draw(_maybe_another_input(builder))
    if loop:
        builder.open()
    for _ in range(most):
        if not draw(_one_call(builder)):
            break
    while builder.loops:
        builder.close()
    builder.store()
    number_lines(builder.p)
    return builder.p
