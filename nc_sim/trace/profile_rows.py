"""Rows of a hardware profile's CSV files, checked as they are read: whole rows, whole numbers of a size that can be."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..files import regular
from ..isa.errors import ProgramError
from . import foreign
from .stored import LIMIT

WHOLE = "a whole number of at least 0"
DIGITS = len(str(LIMIT))


def read(path: Path, columns: Sequence[str], numbers: Sequence[str], wanted: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Every row with its file and line; `wanted` says what the file should be. ProgramError names what cannot be used."""
    try:
        text = regular(path).read_text(encoding="utf-8-sig")
    except OSError as e:
        what = "a folder" if path.is_dir() else f"cannot be read: {e.strerror}"
        raise ProgramError(str(path), what, wanted) from None
    except UnicodeDecodeError:
        raise ProgramError(str(path), foreign.told_of(path) or "not UTF-8 text", wanted) from None
    reader = csv.DictReader(text.splitlines())
    try:
        missing = [c for c in columns if c not in (reader.fieldnames or ())]
        if missing:
            what = foreign.told(text[: foreign.HEAD].encode(), path.name).replace("a hardware profile in CSV form", "")
            raise ProgramError(
                str(path) if what else f"{path}:1", what or f"no column {missing[0]!r}", f"{wanted}, with columns {', '.join(columns)}"
            )
        for row in reader:
            where = f"{path}:{reader.line_num}"
            for column in columns:
                if row[column] is None:
                    raise ProgramError(where, f"no value for {column!r}", "a complete row; is the file cut off?")
            for column in numbers:
                row[column] = row[column].strip().removesuffix(".0")  # some exports write every number as a float
                require_whole(row[column], where, column)
            yield f"{path.name}:{reader.line_num}", row
    except csv.Error as e:
        raise ProgramError(f"{path}:{reader.line_num}", f"not CSV: {e}", wanted) from None


def require_whole(text: str, where: str, name: str) -> None:
    """ProgramError unless a text is a whole number that times, sizes and counts of a profile can be."""
    if not (text.isascii() and text.isdecimal()):
        raise ProgramError(where, f"{name} is {text!r:.40}", WHOLE)
    if len(text) > DIGITS or int(text) >= LIMIT:
        raise ProgramError(where, f"{name} is {text!r:.40}", f"a whole number below {LIMIT}")
