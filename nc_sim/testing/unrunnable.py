"""Programs that build and need not run: for what reads, writes and shows programs."""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs
import numpy as np
from hypothesis import strategies as st

from ..isa import REGISTRY, Instruction, Memory, Update, View, fields_of
from ..isa.dynamic import Register
from ..isa.registers import RegisterAlloc, Sequenced
from ..program import Program, Semaphore
from .drawn import DrawnProgram
from .operands import LINES, NAMES, instructions, with_views


@st.composite
def drafts(draw: st.DrawFn, most: int = 5) -> Program:
    """Programs of up to `most` calls of any kind that build without an error. Most would not run: no value flows between calls.

    Tensors have given addresses or none, calls have semaphores or none, and lines, names and engines are random.
    """
    p = DrawnProgram(draw(NAMES))
    names = draw(st.lists(NAMES, max_size=3, unique=True))
    semaphores = [p.semaphore(name) for name in names]
    some = st.lists(st.sampled_from(semaphores), max_size=2) if semaphores else st.just([])
    for k, cls in enumerate(draw(st.lists(st.sampled_from(list(REGISTRY.values())), max_size=most))):
        made = draw(instructions(cls))
        fields = {name: getattr(made, name) for name in fields_of(cls)}
        fields |= with_views(made, partial(_place, draw, p, f"{k}"))
        waits = [s >= draw(st.integers(0, 99)) for s in draw(some)]
        updates = [draw(_changes(s)) for s in draw(some)]
        if issubclass(cls, Sequenced):
            fields = {name: _allocated(p, value, cls) for name, value in fields.items()}
            if not p.registers:
                p.register_alloc()  # without one no loop can be open
        p.append(cls, (), fields, draw(st.sampled_from([None, *(e.name for e in cls.engines)])), waits, updates)
        p.steps[-1].line = draw(LINES)
    for name, tensor in p.tensors.items():
        p.tensors[name] = attrs.evolve(tensor, line=draw(LINES))
    return p


@st.composite
def _changes(draw: st.DrawFn, s: Semaphore) -> Update:
    change = draw(st.sampled_from([s.add, s.sub, s.set]))
    return change(draw(st.integers(0, 99)), when=draw(st.sampled_from(["read", "complete"])))


def _place(draw: st.DrawFn, p: Program, suffix: str, name: str, view: View) -> View:
    return draw(_placed(p, view, name + suffix))


@st.composite
def _placed(draw: st.DrawFn, p: Program, view: View, name: str) -> View:
    """The view in a tensor declared for it, moved to where that begins; the same for the index of a dynamic one."""
    moved = view.dynamic
    if moved is not None and isinstance(moved.index, View):
        moved = attrs.evolve(moved, index=draw(_placed(p, moved.index, f"{name}.index")))
    elif moved is not None and isinstance(moved.index, Register):
        moved = attrs.evolve(moved, index=_allocated(p, moved.index, Instruction))
    tensor = draw(_declared(p, view, name))
    return attrs.evolve(view, tensor=tensor, partition=view.partition + p.tensors[tensor].partition, dynamic=moved)


def _allocated(p: Program, value: Any, cls: type[Instruction]) -> Any:
    """A register of the program; one that is to be allocated gets a name of its own."""
    if isinstance(value, Register):
        if cls is RegisterAlloc:
            while value.name in p.registers:
                value = Register(f"{value.name}_")
        elif value.name not in p.registers:
            p.register_alloc(name=value.name)
            p.steps[-1].line = ""
    return value


@st.composite
def _declared(draw: st.DrawFn, p: Program, view: View, name: str) -> str:
    """Declare a tensor that holds the view; its name."""
    elements = -(-view.extent[1] // view.dtype.itemsize) + draw(st.integers(0, 2))
    if view.memory is Memory.HBM:
        kind = draw(st.sampled_from(["input", "output", "hbm", "constant"]))
        if kind == "constant":
            p.constant((np.arange(elements) % 7).astype(view.dtype.numpy), view.dtype, name)
        elif kind == "hbm":
            p.hbm((elements,), view.dtype, name)
        else:
            getattr(p, kind)(name, (elements,), view.dtype)
        return name
    shape = (view.partition + view.partitions, elements)
    address = draw(st.none() | st.integers(0, 2**16))
    getattr(p, view.memory.name.lower())(shape, view.dtype, name, address, draw(st.integers(0, 96)))
    return name
