"""docs/profile-tables.md: every published table, what nc-sim writes of it, and why some columns are null."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from ..profile import schema
from .markdown import HEAD, table

DATA = "written.json"


def written() -> dict[str, Any]:
    """What a row of each table is, columns that are null in every simulation, and tables that are not written."""
    data: dict[str, Any] = json.loads(resources.files("nc_sim.profile").joinpath(DATA).read_text())
    return data


def null_columns(name: str) -> dict[str, str]:
    """The columns of a table that are always null, and why."""
    return {column: why for table_name, columns, why in written()["null"] if table_name == name for column in columns}


def page() -> str:
    """The generated page."""
    data, known = written(), schema.load()
    lines = ["# Profile tables", "", HEAD, ""]
    lines += [
        f"Schema {known.version}: {len(known.tables)} tables. `nc-sim view --output-format parquet` writes {len(data['rows'])} of them,",
        "each with all published columns. Names, types and units are from the source below; what a column means is said there.",
        "",
        f"Source: {known.source}.",
        "",
        "## Written",
        "",
    ]
    rows = []
    for name in known.tables:
        if name in data["rows"]:
            null = null_columns(name)
            rows.append((f"`{name}`", str(len(known.tables[name])), str(len(null)), data["rows"][name]))
    lines += table(("table", "columns", "always null", "one row is"), rows)
    lines += [
        "",
        "## Columns that are always null",
        "",
        "A column without a meaning in a simulation is null, also where the schema says it is required.",
        "",
    ]
    lines += table(
        ("table", "columns", "why"), [(f"`{name}`", ", ".join(f"`{c}`" for c in columns), why) for name, columns, why in data["null"]]
    )
    lines += ["", "## Not written", ""]
    lines += table(("tables", "why"), [(", ".join(f"`{n}`" for n in names), why) for names, why in data["absent"]])
    lines += ["", "## Columns", "", "Those that may hold a value, with their unit.", ""]
    for name, fields in known.tables.items():
        if name in data["rows"]:
            null = null_columns(name)
            shown = [f"`{f.name}` {f.stored}" + (f", {f.unit}" if f.unit else "") for f in fields if f.name not in null]
            lines += [f"**{name}**: {'; '.join(shown)}.", ""]
    return "\n".join(lines).rstrip() + "\n"
