"""A table of a profile as columns, in parts: a large one is never in memory as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from ..isa.errors import InternalError
from ..notebook import Shown, frame
from ..table import Ints
from ..trace.hardware import Texts
from .schema import fields

GROUP = 1 << 17  # rows of a part, which is a row group of a Parquet file
NO_TEXT = -1  # as an index: no value

Array = npt.NDArray[Any]


@attrs.frozen(eq=False)
class Words:
    """A column of texts that repeat: distinct values, and an index for each row; -1 is null."""

    values: tuple[str, ...]
    index: Ints

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, rows: Any) -> Words:
        return Words(self.values, self.index[rows])

    def tolist(self) -> list[str | None]:
        """One text or None for each row."""
        values = (*self.values, None)
        return [values[k] for k in self.index.tolist()]


@attrs.frozen(eq=False)
class Some:
    """A column of numbers that some rows lack."""

    values: Array
    valid: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> Some:
        return Some(self.values[rows], self.valid[rows])

    def tolist(self) -> list[Any]:
        """A number or None for each row."""
        return [v if ok else None for v, ok in zip(self.values.tolist(), self.valid.tolist(), strict=True)]


Column = Array | Words | Some | list[Any]  # a list holds texts, lists of texts, or None
Columns = Mapping[str, Column]  # of equal length; a column that is not there is null


@attrs.frozen(eq=False)
class Table(Shown):
    """A published table. `parts` gives its rows, in order, any number of times."""

    name: str
    parts: Callable[[], Iterator[Columns]]
    rows: int

    def columns(self) -> dict[str, list[Any]]:
        """Every column as plain values, null ones as None: for small tables and tests."""
        out: dict[str, list[Any]] = {f.name: [] for f in fields(self.name)}
        for part in self.parts():
            count = length(part)
            for name, column in out.items():
                column += plain(part[name]) if name in part else [None] * count
        return out

    def frame(self) -> Any:
        """Every column as a pandas data frame, null ones too; Unsupported without pandas."""
        return frame(self.columns())


def of(name: str, columns: Columns) -> Table:
    """A table whose columns are in memory; parts are slices of them."""
    unknown = set(columns) - {f.name for f in fields(name)}
    if unknown:
        raise InternalError(f"profile table {name}", f"columns {', '.join(sorted(unknown))}", "columns of the published schema")
    count = length(columns)
    if any(len(c) != count for c in columns.values()):
        raise InternalError(f"profile table {name}", "columns of different lengths", "one length")
    return Table(name, lambda: ({k: c[a : a + GROUP] for k, c in columns.items()} for a in range(0, count, GROUP)), count)


def later(name: str, rows: int, make: Callable[[], Columns]) -> Table:
    """A table of so many rows whose columns are made when they are asked for, and not kept."""

    def parts() -> Iterator[Columns]:
        made = of(name, make())
        if made.rows != rows:
            raise InternalError(f"profile table {name}", f"{made.rows} rows", f"{rows}")
        return made.parts()

    return Table(name, parts, rows)


def from_rows(name: str, rows: Iterable[Mapping[str, Any]]) -> Table:
    """A small table from one mapping for each row; what none of them names is null."""
    given = list(rows)
    return of(name, {f.name: [r.get(f.name) for r in given] for f in fields(name) if any(f.name in r for r in given)})


def length(columns: Columns) -> int:
    """The rows of a part."""
    return next((len(c) for c in columns.values()), 0)


def plain(column: Column) -> list[Any]:
    """A column as Python values."""
    return column if isinstance(column, list) else list(column.tolist())


def words(texts: Texts | Sequence[str], empty_is_null: bool = True) -> Words:
    """A text column of a trace, or texts; by default an empty text is no value."""
    if not isinstance(texts, Texts):
        known: dict[str, int] = {}
        index = np.fromiter((known.setdefault(t, len(known)) for t in texts), np.int64, len(texts))
        texts = Texts(tuple(known), index)
    if not empty_is_null or "" not in texts.values:
        return Words(texts.values, texts.index)
    return Words(texts.values, np.where(texts.index == texts.values.index(""), NO_TEXT, texts.index))


def picked(values: Iterable[str | None], index: Ints) -> Words:
    """For each row the value that its index names; several may be equal, or None."""
    known: dict[str, int] = {}
    of_value = np.array([NO_TEXT if v is None else known.setdefault(v, len(known)) for v in values], np.int64)
    return Words(tuple(known), of_value[index] if len(of_value) else np.full(len(index), NO_TEXT, np.int64))


def constant(value: str, count: int) -> Words:
    """One text in every row."""
    return Words((value,), np.zeros(count, np.int64))


def rounded_ns(ticks: Ints, ticks_per_ns: tuple[int, int]) -> Ints:
    """Whole ns, rounded half up, as the times of a trace."""
    numerator, denominator = ticks_per_ns
    whole, rest = np.divmod(ticks, numerator)
    return np.asarray(whole * denominator + (2 * rest * denominator + numerator) // (2 * numerator), np.int64)


def distinct(column: Ints) -> Ints:
    """The distinct numbers of a column, sorted; numpy's own way is many times slower for regular times."""
    column = np.sort(column)
    return np.asarray(column[np.append(True, column[1:] != column[:-1])[: len(column)]], np.int64)


def merged(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Intervals in order of start, those that meet or overlap made one."""
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order]) if len(end) else end
    first = np.flatnonzero(np.append(True, start[1:] > reach[:-1])[: len(start)])
    last = np.append(first[1:], len(start))[: len(first)] - 1
    return start[first], reach[last]
