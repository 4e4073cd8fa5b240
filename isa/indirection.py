"""Tensor indirection: operands whose columns are found by offsets in SBUF, group of partitions by group (NeuronCore-v4).

Offset i of a group that starts at partition p is index[p + i % G, i // G]: the groups have 16 partitions. The TensorEngine's
have 32; its products do not take such operands here.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .errors import ProgramError, Unspecified
from .instruction import Engine, Instruction
from .view import Memory, View

GROUP = 16
SOURCE = "nki.isa, tensor indirection"
# Where a call with such an operand may run, if not wherever it does.
ENGINES: dict[str, tuple[Engine, ...]] = {"tensor_copy": (Engine.VECTOR, Engine.SCALAR)}


def columns(i: Instruction) -> Iterator[tuple[str, View, bool]]:
    """The operands of an instruction whose columns offsets find."""
    return (o for o in i.views if o[1].dynamic is not None and o[1].dynamic.kind == "columns")


def check(i: Instruction, engine: Engine, quadrant: int) -> None:
    """Raise ProgramError where an operand with columns of its own breaks a rule of the engine or of partitions."""
    found = list(columns(i))
    if not found:
        return
    if engine not in ENGINES.get(i.mnemonic, (engine,)):
        names = ", ".join(e.label for e in ENGINES[i.mnemonic])
        raise ProgramError("", f"{found[0][0]} with .indirect() on {engine.label}", names, SOURCE)
    source = next((v for name, v, written in i.views if not written and not name.endswith(".index")), None)
    for name, v, written in found:
        assert v.dynamic is not None
        index = v.dynamic.tensor
        if v.partitions % GROUP:
            raise Unspecified("", f"{name} with .indirect() of {v.partitions} partitions", f"a multiple of {GROUP}: whole groups", SOURCE)
        if v.elements > GROUP * index.elements:
            raise ProgramError(
                "", f"{name} with {v.elements} columns", f"at most {GROUP * index.elements}, {GROUP} for each column of the index", SOURCE
            )
        if index.partition % quadrant:
            raise ProgramError("", f"{name}.index starts at partition {index.partition}", f"a multiple of {quadrant}", SOURCE)
        if not written and v.partition != index.partition:
            raise ProgramError("", f"{name} starts at partition {v.partition}", f"{index.partition}, as its index", SOURCE)
        if written:
            if engine is Engine.SCALAR and v.memory is Memory.PSUM:
                raise ProgramError("", f"{name} with .indirect() in PSUM", "SBUF: ScalarE scatters into no other memory", SOURCE)
            start = None if source is None else _start(source)
            if start is not None and index.partition != start:
                raise ProgramError(
                    "", f"{name}.index starts at partition {index.partition}", f"{start}, as the source or its index", SOURCE
                )


def _start(source: View) -> int | None:
    """The partition at which the index of a scattered destination starts; None where nothing says."""
    if source.memory is Memory.SBUF:
        return source.partition
    return source.dynamic.tensor.partition if source.dynamic is not None and source.dynamic.kind == "columns" else None


def table(v: View) -> View:
    """All columns that the offsets of a view may name, as a view [P, columns]."""
    moved, size = v.dynamic, v.dtype.itemsize
    assert moved is not None
    count = ((moved.high - v.offset) // size - 1) // moved.step + 1
    return View(v.tensor, v.memory, v.dtype, v.partition, v.partitions, v.offset, (moved.step,), (count,), storage=v.storage)


def places(v: View, offsets: np.ndarray, written: bool) -> np.ndarray:
    """The column of each element of a view [P, elements], from the values of its index.

    ProgramError for one that is not there; Unspecified for two that are written to one place.
    """
    wide = offsets.reshape(v.partitions // GROUP, GROUP, -1).transpose(0, 2, 1).reshape(v.partitions // GROUP, -1)[:, : v.elements]
    most = table(v).elements
    if (wide >= most).any():
        group, at = (int(n) for n in np.argwhere(wide >= most)[0])
        raise ProgramError("", f"offset {wide[group, at]} of column {at}, partitions {GROUP * group} on", f"0 to {most - 1}", SOURCE)
    if written:
        for group, own in enumerate(wide):
            values, counts = np.unique(own, return_counts=True)
            if (counts > 1).any():
                found = f"offset {values[counts > 1][0]} twice, partitions {GROUP * group} on"
                raise Unspecified("", found, "offsets that do not repeat: which column stays is not said", SOURCE)
    return np.repeat(wide, GROUP, axis=0).astype(np.int64)
