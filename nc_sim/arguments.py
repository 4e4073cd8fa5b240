"""What a caller of the package gave: of the kind that was asked for, or one clear error where it enters."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from .isa.errors import ProgramError


def said(value: Any) -> str:
    """A value in the words of an error, on one line."""
    return f"{type(value).__name__} {' '.join(repr(value).split())}"[:80]


def path_of(value: Any, where: str) -> Path:
    """A path, from a text or what stands for a path."""
    if not isinstance(value, str | Path) and not (isinstance(value, os.PathLike) and isinstance(os.fspath(value), str)):
        raise ProgramError(where, said(value), "a path")
    if os.fspath(value) == "":
        raise ProgramError(where, "an empty text", "a path; the current folder is .")
    return Path(value)


def listed(value: Any, where: str, required: str) -> list[Any]:
    """What is iterable, as a list; a text is none."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable) or (isinstance(value, np.ndarray) and not value.ndim):
        raise ProgramError(where, said(value), required)
    return list(value)


def require_flag(value: Any, where: str, *, maybe: bool = False) -> None:
    """ProgramError unless the value is True or False, or None where that may be."""
    if not isinstance(value, bool | np.bool_) and not (maybe and value is None):
        raise ProgramError(where, said(value), "True or False" + (", or None" if maybe else ""))


def require_tell(value: Any, where: str) -> None:
    """ProgramError unless the value can be told of progress, or is None."""
    if value is not None and not callable(value):
        raise ProgramError(f"{where} progress", said(value), "a function of work done and work in all, or None")
