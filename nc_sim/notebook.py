"""What a notebook is told of an object: HTML of bounded size, and rows as a pandas data frame.

A class that a notebook should show is a `Shown`. What is shown of each is in `report/notebook.py`, which is read when a
notebook asks.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, SupportsIndex, TypeVar, overload

import attrs

from .isa.errors import missing_extra

T = TypeVar("T")


class Shown:
    """What Jupyter and IPython ask an object for."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        # IPython takes the first class that has this or a __repr__, which a record has of its own
        cls._repr_pretty_ = Shown._repr_pretty_  # type: ignore[method-assign]

    def _repr_html_(self) -> str:
        from .report.notebook import html, with_cells

        return with_cells(html(self))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        from .report.notebook import plain_text, with_cells

        printer.text(with_cells(plain_text(self)))


def frame(rows: Mapping[str, Sequence[Any]] | Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None) -> Any:
    """Columns or records as a pandas data frame; `columns` names those of no record. Unsupported without pandas."""
    try:
        pandas: Any = importlib.import_module("pandas")
    except ImportError:
        raise missing_extra("data frame", "the package pandas is not installed", "frame", ", or the records") from None
    if isinstance(rows, Mapping):
        return pandas.DataFrame(rows)
    return pandas.DataFrame.from_records(list(rows), columns=columns)


class Records(tuple[T, ...], Shown):
    """A tuple of records of one kind, which a notebook shows as a table."""

    __slots__ = ()

    def records(self) -> list[dict[str, Any]]:
        """One plain row for each; numbers that a record works out, a property of it, among them."""
        return [_plain(r) for r in self]

    def frame(self) -> Any:
        """The records as a pandas data frame; Unsupported without pandas."""
        return frame(self.records())

    @overload
    def __getitem__(self, place: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> Records[T]: ...
    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        return Records(found) if isinstance(place, slice) else found


def _plain(record: Any) -> dict[str, Any]:
    more = [k for k, v in vars(type(record)).items() if isinstance(v, property)]
    return {**attrs.asdict(record), **{k: getattr(record, k) for k in more}}
