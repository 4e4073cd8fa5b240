"""What both trace files are made of: a msgpack map with format and version, metadata of a known form, columns of integers.

What is read is checked before it is believed; ProgramError names the file and the field.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgpack
import numpy as np

from ..chip import Chip
from ..files import PLACE, replacing, require_name
from ..isa.errors import ProgramError
from ..table import Ints

LIMIT = 1 << 48  # of ticks, bytes and counts: sums and products of a few stay inside int64
LONG_BINARY, LONGEST_SHORT = b"\xc6", (1 << 16) - 1  # msgpack: bin 32, and the most that bin 16 holds
KINDS = {"<i1": 1, "<i2": 2, "<i4": 4, "<i8": 8}


# --- writing -----------------------------------------------------------------------------------------------------


@contextmanager
def whole(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that takes its name when all is written, and leaves nothing behind where that fails."""
    require_name(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial, partial.open("wb") as file:
            yield file
    except OSError as e:
        raise ProgramError(str(path), f"cannot be written: {e.strerror}", PLACE) from None


def packed(value: Any) -> bytes:
    """As msgpack."""
    return bytes(msgpack.packb(value))


def map_header(count: int) -> bytes:
    """What stands in front of a map's keys and values."""
    return bytes(msgpack.Packer().pack_map_header(count))


def write_binary(file: IO[bytes], parts: Iterable[bytes]) -> None:
    """Write parts as one binary of msgpack, whose length comes first: a long one's is filled in at the end."""
    parts, held = iter(parts), b""
    while len(held) <= LONGEST_SHORT and (part := next(parts, None)) is not None:
        held += part
    if len(held) <= LONGEST_SHORT:
        file.write(packed(held))
        return
    start = file.tell()
    file.write(LONG_BINARY + bytes(4))
    file.write(held)
    size = len(held)
    for part in parts:
        file.write(part)
        size += len(part)
    if size >= 1 << 32:
        raise ProgramError("saving", f"{size} bytes in one part of a file", "below 4 GiB, which the form can hold")
    end = file.tell()
    file.seek(start + len(LONG_BINARY))
    file.write(size.to_bytes(4, "big"))
    file.seek(end)


def sha256_of(file: IO[bytes]) -> str:
    """Of what was written; the file stays at its end."""
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256")  # type: ignore[arg-type]
    return digest.hexdigest()


def stored_ints(column: Ints) -> list[Any]:
    """The narrowest little-endian type that holds the column, and its bytes."""
    low, high = int(column.min(initial=0)), int(column.max(initial=0))
    kind = next(k for k, size in KINDS.items() if -(1 << 8 * size - 1) <= low and high < 1 << 8 * size - 1)
    return [kind, column.astype(kind).tobytes()]


# --- reading -----------------------------------------------------------------------------------------------------


def require(holds: bool, where: str, found: Any, required: str) -> None:
    """ProgramError unless it holds."""
    if not holds:
        raise ProgramError(where, f"{found!r:.80}", required)


def map_of(data: bytes, where: str, form: str, version: int) -> dict[str, Any]:
    """The map of a file, without believing any length it claims."""
    limits = {"max_array_len": 1 << 12, "max_map_len": 1 << 12, "max_str_len": 1 << 24, "max_ext_len": 0}
    try:
        raw = msgpack.unpackb(data, raw=False, strict_map_key=True, **limits)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as e:
        what = f"cut off after {len(data)} bytes" if "incomplete" in str(e) else "unreadable data"
        raise ProgramError(where, what, f"the msgpack of a whole {form!r}") from None
    got = raw if isinstance(raw, dict) else {}
    require(got.get("format") == form, f"{where} format", got.get("format"), repr(form))
    known = type(got.get("version")) is int and got["version"] == version
    require(known, f"{where} version", got.get("version"), f"{version}, the only one that this nc-sim reads")
    return got


SAID = {"extrapolated": ""}  # metadata that only traces of some chips have


def said_of(chip: Chip) -> dict[str, str]:
    """What the metadata of a trace says of its chip, where there is something to say."""
    return {"extrapolated": chip.extrapolated} if chip.extrapolated else {}


def read_metadata(raw: Any, form: dict[str, Any], where: str, low: int) -> dict[str, Any]:
    """The metadata of a file, exactly the keys of `form` in its order, each of the form of its sample; no integer below `low`."""
    got = raw if isinstance(raw, dict) else {}
    form = {**form, **{k: v for k, v in SAID.items() if k in got}}
    require(set(got) == set(form), f"{where} metadata", sorted(map(str, got)), f"exactly {', '.join(form)}")
    for name, kind in form.items():
        require(_fits(got[name], kind, low), f"{where} metadata {name}", got[name], f"of the form {kind!r}")
    return {k: got[k] for k in form}


def _fits(value: Any, kind: Any, low: int) -> bool:
    """Whether a value has the form of the sample `kind`; "" as a key stands for any, and an empty sample for texts by name."""
    if isinstance(kind, list):
        return isinstance(value, list) and all(_fits(v, kind[0], low) for v in value)
    if isinstance(kind, dict):
        if not isinstance(value, dict) or not all(isinstance(k, str) for k in value):
            return False
        sample = kind or {"": ""}
        if "" in sample:
            return all(_fits(v, sample[""], low) for v in value.values())
        return set(value) == set(sample) and all(_fits(v, sample[k], low) for k, v in value.items())
    return type(value) is type(kind) and (not isinstance(kind, int | float) or low <= value < LIMIT)


def read_columns(raw: Any, where: str) -> tuple[dict[str, Any], int]:
    """The columns of a table, not yet read, and its number of rows."""
    columns, count = (raw.get(name) if isinstance(raw, dict) else None for name in ("columns", "count"))
    if not isinstance(columns, dict) or type(count) is not int or not 0 <= count < LIMIT:
        raise ProgramError(where, "no columns", "count and columns")
    return columns, count


def read_ints(raw: Any, count: int, where: str, low: int = 0, high: int = LIMIT) -> Ints:
    """A column of `count` integers from `low` to below `high`."""
    holds = isinstance(raw, list) and len(raw) >= 2 and isinstance(raw[0], str) and raw[0] in KINDS and isinstance(raw[1], bytes)
    if not holds or len(raw[1]) != count * KINDS[raw[0]]:
        raise ProgramError(where, "no such column" if raw is None else "a column of another form", f"[type, bytes] of {count} numbers")
    column = np.frombuffer(raw[1], raw[0]).astype(np.int64)
    least, most = (int(f) for f in (column.min(initial=low), column.max(initial=low)))
    require(low <= least and most < high, where, least if least < low else most, f"{low} to {high - 1}")
    return column
