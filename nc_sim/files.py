"""Files that are whole or not there, and what is no file at all: a pipe, a device, a socket.

What is no file is never read, as it may have no end, and never replaced. A link is written through to where it leads.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import attrs

from .isa.errors import ProgramError

PARTIAL = ".{}.partial"
FILE = "a file, or a name that is free"
KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}
PLACE = "a place in a folder that can be made and written to"


@attrs.frozen
class Unnamed:
    """A file being written that has no name yet, because its name follows from what is in it."""

    path: Path
    file: IO[bytes]

    def become(self, path: Path) -> None:
        """It is whole: it takes a name in the same folder. Where that is a link, what it leads to is replaced."""
        self.file.close()
        if (target := _target(path)) == path:
            os.replace(self.path, path)
            return
        with replacing(target) as partial:  # maybe on another disk
            shutil.copyfile(self.path, partial)


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
        folder = _target(path).parent
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


def regular(path: Path) -> Path:
    """The path, to be read. OSError, as reading would raise, where it is neither a file nor a folder nor missing."""
    if what := _no_file(path):
        raise OSError(errno.EINVAL, f"{what}, not a file", str(path))
    return path


def _no_file(path: Path) -> str:
    """What is there, links followed, if it is neither a file nor a folder; empty where it is one, or nothing is there."""
    try:
        return KINDS.get(stat.S_IFMT(path.stat().st_mode), "")
    except (OSError, ValueError):  # opening it says why
        return ""


def _target(path: Path) -> Path:
    """Where writing to a path ends up, links followed. ProgramError where something is there that is no file."""
    if what := _no_file(path):
        raise ProgramError(str(path), f"cannot be written: {what}", FILE)
    if not path.is_symlink():
        return path
    target = Path(os.path.realpath(path))
    if target.is_symlink():  # it is where links in a circle end
        raise ProgramError(str(path), "cannot be written: a link that leads nowhere but to itself", FILE)
    return target


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to; it takes the name when the block ends, and nothing is left where the block fails.

    It lies beside `path`, or beside what `path` as a link leads to. ProgramError where something is there that is no file.
    """
    path = _target(path)
    partial = path.with_name(PARTIAL.format(secrets.token_hex(8)))  # short: the name itself may be as long as a name can be
    try:
        yield partial
        os.replace(partial, path)
    finally:
        with suppress(OSError):
            partial.unlink()
