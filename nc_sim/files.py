"""Files that are whole or not there."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import attrs

from .isa.errors import ProgramError

PARTIAL = ".{}.partial"
PLACE = "a place in a folder that can be made and written to"


@attrs.frozen
class Unnamed:
    """A file being written that has no name yet, because its name follows from what is in it."""

    path: Path
    file: IO[bytes]

    def become(self, path: Path) -> None:
        """It is whole: it takes a name in the same folder."""
        self.file.close()
        os.replace(self.path, path)


@contextmanager
def unnamed(folder: Path) -> Iterator[Unnamed]:
    """A file to write and to read in a folder; it is gone when the block ends, unless it took a name."""
    partial = folder / PARTIAL.format(secrets.token_hex(8))
    try:
        with partial.open("w+b") as file:
            yield Unnamed(partial, file)
    finally:
        with suppress(OSError):
            partial.unlink()


def require_place(path: str | Path) -> None:
    """Before long work: ProgramError where a file of this name could not be written. Nothing is made."""
    path = Path(path)
    require_name(path)
    try:
        if path.is_dir():
            raise ProgramError(str(path), "cannot be written: a folder", PLACE)
        folder = path.parent
        while not os.path.lexists(folder):  # a link to nowhere is no folder that can be made
            folder = folder.parent
        if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
            what = "not writable" if folder.is_dir() else "not a folder"
            raise ProgramError(str(path), f"cannot be written: {folder} is {what}", PLACE)
    except OSError as e:
        raise ProgramError(str(path), f"cannot be written: {e.strerror}", PLACE) from None


def require_name(path: Path) -> None:
    """ProgramError for a path that names no file, such as an empty one."""
    if not path.name or "\0" in str(path):
        raise ProgramError(f"{str(path)!r}", "no name of a file", "the path of a file")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; it takes the name when the block ends, and nothing is left where the block fails."""
    partial = path.with_name(PARTIAL.format(secrets.token_hex(8)))  # short: the name itself may be as long as a name can be
    try:
        yield partial
        os.replace(partial, path)
    finally:
        with suppress(OSError):
            partial.unlink()
