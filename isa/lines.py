"""The user's line: where in their own file an operand or a call was written."""

from __future__ import annotations

import functools
import sys
from types import CodeType, FrameType

OURS = __name__.rpartition(".isa.")[0] + "."  # nc_sim.
USERS = OURS + "workloads"  # the workloads that ship with the package count as users


@functools.lru_cache(maxsize=4096)
def _is_users(module: str) -> bool:
    return not module.startswith(OURS) or module.startswith(USERS)


@functools.lru_cache(maxsize=4096)
def _place(code: CodeType, line: int) -> str:
    """The same text object for every call from one line: a loop makes many."""
    return f"{code.co_filename.replace(chr(92), '/').rpartition('/')[2]}:{line}"


def user_line() -> str:
    """file.py:41 of the nearest caller outside this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if _is_users(frame.f_globals.get("__name__", "")):
            return _place(frame.f_code, frame.f_lineno)
        frame = frame.f_back
    return ""
