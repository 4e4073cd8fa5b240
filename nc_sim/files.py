"""Files that are whole or not there."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import attrs

PARTIAL = ".{}.partial"


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
