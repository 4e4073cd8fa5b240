"""The published profile schema: tables, columns, types and units, as data (schema.json). Descriptions are not carried over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources

import attrs

FILE = "schema.json"
# How a published type is stored. An enumeration is stored as its text.
STORED = {
    "integer (int64)": "int64", "integer (int32)": "int32", "number (float)": "double", "number (double)": "double",
    "string": "string", "boolean": "bool", "array of integer (int64)": "list<int64>", "array of string": "list<string>",
}  # fmt: skip


@attrs.frozen
class Field:
    """One column of a published table."""

    name: str
    type: str  # as published: "integer (int64)", "string (DmaQueueType)"
    unit: str | None
    required: bool

    @property
    def stored(self) -> str:
        """int64, int32, double, bool, string, list<int64> or list<string>."""
        return STORED.get(self.type, "string")

    @property
    def kind(self) -> tuple[str, str | None]:
        """Type and format as the SchemaFields table has them."""
        kind, _, rest = self.type.partition(" (")
        return kind, rest.rstrip(")") if self.type in STORED and rest else None

    @property
    def allowed(self) -> tuple[str, ...]:
        """The values of an enumeration; empty for other types."""
        name = self.type.partition("(")[2].rstrip(")") or self.type
        return load().enums.get(name, ())


@attrs.frozen
class Schema:
    """All tables of one version."""

    version: str
    source: str
    tables: Mapping[str, tuple[Field, ...]]
    enums: Mapping[str, tuple[str, ...]]


@cache
def load() -> Schema:
    """The schema that nc-sim writes."""
    raw = json.loads(resources.files(__package__).joinpath(FILE).read_text())
    tables = {name: tuple(Field(*row) for row in rows) for name, rows in raw["tables"].items()}
    return Schema(raw["version"], raw["source"], tables, {k: tuple(v) for k, v in raw["enums"].items()})


def fields(table: str) -> tuple[Field, ...]:
    """The columns of a table, in published order."""
    return load().tables[table]
