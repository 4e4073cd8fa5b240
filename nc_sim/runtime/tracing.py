"""Trace control: what is recorded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .events import chosen, unknown
from .status import NrtStatus

if TYPE_CHECKING:
    from .api import Runtime


def nrt_sys_trace_config_set_capture_enabled(
    rt: Runtime, cores: Iterable[int] | None = None, types: Iterable[str] | None = None
) -> NrtStatus:
    """Which cores and event types are captured; None for all. Types are names and the groups `hardware` and `software`.

    A word with a `^` leaves its name or group out of what the others choose, or of everything. INVALID, and nothing
    changes, if there is no such core or type.
    """
    wanted, words = list(cores or ()), list(types or ())
    if unknown(words) or any(c not in range(rt.cores) for c in wanted):
        return NrtStatus.INVALID
    rt.trace.cores = None if cores is None else frozenset(wanted)
    rt.trace.names = None if types is None else chosen(words)
    return NrtStatus.SUCCESS
