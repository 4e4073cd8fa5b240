"""Tables as Parquet files, one for each table, in row groups. Needs the extra `parquet`. The same tables give the same bytes."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..files import PLACE, replacing
from ..isa.errors import ProgramError, missing_extra
from .schema import Field, fields, load
from .table import NO_TEXT, Column, Columns, Some, Table, Words, length

SUFFIX = ".parquet"
COMPRESSION = "zstd"
# Whole numbers that rise from row to row: their differences take an eighth of the room.
RISING = frozenset({
    "id", "in_id", "out_id", "packet_aggregation_id", "pc", "timestamp", "start_ts", "end_ts", "dma_trigger_start_ts",
    "dma_trigger_end_ts", "trigger", "completion", "total_transfer_bytes", "block_id",
})  # fmt: skip


def require() -> Any:
    """The package that writes Parquet; Unsupported names the extra where it is missing."""
    try:
        importlib.import_module("pyarrow.parquet")
        return importlib.import_module("pyarrow")
    except ImportError:
        raise missing_extra("parquet", "the package pyarrow is not installed", "parquet") from None


def save(
    tables: Mapping[str, Table], folder: str | Path, progress: Callable[[int, int], None] | None = None, *, simulated: bool = True
) -> list[Path]:
    """Write `TABLE.parquet` for each table into a folder, made if needed; each file whole or not there. Returns the paths.

    Memory is that of one row group. `progress` is told of rows written and rows in all. Tables of an earlier profile that
    this one does not have are removed.
    """
    arrow, folder = require(), Path(folder)
    total, done, out = max(1, sum(t.rows for t in tables.values())), 0, []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            path = folder / f"{name}{SUFFIX}"
            schema = _schema(arrow, name, simulated)
            with replacing(path) as partial, arrow.parquet.ParquetWriter(partial, schema, **_encoding(name)) as writer:
                for part in table.parts():
                    writer.write_batch(_batch(arrow, schema, name, part))
                    done += length(part)
                    if progress is not None:
                        progress(done, total)
            out.append(path)
        for name in set(load().tables) - set(tables):
            (folder / f"{name}{SUFFIX}").unlink(missing_ok=True)
    except OSError as e:
        raise ProgramError(str(folder), f"cannot be written: {e.strerror or e}", PLACE) from None
    return out


def _encoding(name: str) -> dict[str, Any]:
    """Differences for what rises, a dictionary for other whole numbers and texts, which repeat."""
    whole = {f.name for f in fields(name) if f.stored in ("int64", "int32")}
    texts = {f.name for f in fields(name) if f.stored == "string"}
    rising = sorted(whole & RISING)
    return {
        "compression": COMPRESSION, "use_dictionary": sorted((whole | texts) - set(rising)),
        "column_encoding": dict.fromkeys(rising, "DELTA_BINARY_PACKED"),
    }  # fmt: skip


def _schema(arrow: Any, name: str, simulated: bool) -> Any:
    """Published names and types; the unit of a column stands in its metadata."""
    columns = [arrow.field(f.name, _type(arrow, f), metadata={"unit": f.unit} if f.unit else None) for f in fields(name)]
    return arrow.schema(columns, metadata={"profile_schema_version": load().version, "is_simulation": str(simulated).lower()})


def _type(arrow: Any, field: Field) -> Any:
    simple = {"int64": arrow.int64(), "int32": arrow.int32(), "double": arrow.float64(), "bool": arrow.bool_(), "string": arrow.string()}
    inner = field.stored.removeprefix("list<").removesuffix(">")
    return simple[inner] if inner == field.stored else arrow.list_(simple[inner])


def _batch(arrow: Any, schema: Any, name: str, part: Columns) -> Any:
    count = length(part)
    return arrow.record_batch([_array(arrow, part.get(f.name), schema.field(f.name).type, count) for f in fields(name)], schema=schema)


def _array(arrow: Any, column: Column | None, kind: Any, count: int) -> Any:
    if column is None:
        return arrow.nulls(count, kind)
    if isinstance(column, Words):
        index = arrow.array(np.where(column.index < 0, 0, column.index), mask=column.index == NO_TEXT)
        return arrow.array(list(column.values) or [""], kind).take(index)
    if isinstance(column, Some):
        return arrow.array(column.values, mask=~column.valid).cast(kind)
    if isinstance(column, list):
        return arrow.array(column, kind)
    return arrow.array(column).cast(kind)
