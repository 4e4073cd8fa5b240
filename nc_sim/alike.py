"""What the instructions of a program have in common: a large one repeats a few, and many differ in addresses only.

What is computed for each kind once is then picked by row, so that views of a finished run cost little for each instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

import attrs
import numpy as np

from .isa import Instruction, Step, View, fields_of
from .table import Ints


@attrs.frozen(eq=False)
class Alike:
    """Instructions that print alike, and those by kind: instructions of one kind differ only in where their operands lie."""

    distinct: tuple[Instruction, ...]  # in order of their first step
    row: Ints  # of each step: its place in `distinct`
    kinds: tuple[Instruction, ...]  # the first of each kind
    kind: Ints  # of each distinct instruction: its place in `kinds`

    def pick(self, values: Iterable[Any], width: int) -> Ints:
        """Columns of `width` numbers given for each kind, as rows [width, steps]."""
        return np.array(list(values), np.int64).reshape(-1, width)[self.kind[self.row]].T


def alike(steps: Sequence[Step]) -> Alike:
    """Steps sorted by equal instructions and by kind."""
    rows: dict[object, int] = {}
    distinct: list[Instruction] = []
    same: dict[int, int] = {}  # by identity: most instructions of a loop are one object
    row = np.empty(len(steps), np.int64)
    for k, step in enumerate(steps):
        if (number := same.get(id(step.instruction))) is None:
            number = same[id(step.instruction)] = rows.setdefault(exactly(step.instruction), len(rows))
            if number == len(distinct):
                distinct.append(step.instruction)
        row[k] = number
    known: dict[object, int] = {}
    kinds: list[Instruction] = []
    kind = np.empty(len(distinct), np.int64)
    for k, i in enumerate(distinct):
        if (number := known.setdefault(kind_of(i), len(known))) == len(kinds):
            kinds.append(i)
        kind[k] = number
    return Alike(tuple(distinct), row, tuple(kinds), kind)


def exactly(i: Instruction) -> tuple[object, ...]:
    """The instruction for a key: 0.0 and -0.0 are equal, so are 1 and 1.0, and print differently."""
    numbers = [v for v in fields_reader(type(i))(i) if type(v) is float or type(v) is int]
    return (i, repr(numbers)) if numbers else (i,)


def kind_of(i: Instruction) -> tuple[object, ...]:
    """Everything about an instruction but where its views lie. Numbers that print differently count as different: 1 and 1.0."""
    key: list[object] = [type(i)]
    for value in fields_reader(type(i))(i):
        if type(value) is View:
            key.append((value.memory, value.dtype.name, value.partitions, value.strides, value.counts, value.dynamic))
        else:
            key.append(repr(value) if type(value) is float else value)
    return tuple(key)


def fields_reader(cls: type[Instruction]) -> Callable[[Instruction], tuple[Any, ...]]:
    """A function that reads all fields of an instruction at once."""
    if (known := _READERS.get(cls)) is None:
        names = tuple(fields_of(cls))
        known = _READERS[cls] = attrgetter(*names) if len(names) > 1 else lambda i: tuple(getattr(i, n) for n in names)
    return known


_READERS: dict[type[Instruction], Callable[[Instruction], tuple[Any, ...]]] = {}
