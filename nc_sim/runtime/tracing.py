"""Trace control: what is recorded, and taking events out while a run goes on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .events import HARDWARE, Event, chosen, event_type, event_types, unknown
from .status import NrtStatus

if TYPE_CHECKING:
    from .api import Runtime

DATA_VERSION = 2  # of the text of a fetch


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


def nrt_sys_trace_config_set_max_events_per_nc(rt: Runtime, max_events_per_nc: int) -> NrtStatus:
    """How many events of each core are kept; the oldest go, and are counted. INVALID below 0."""
    if max_events_per_nc < 0:
        return NrtStatus.INVALID
    rt.trace.limit(max_events_per_nc)
    return NrtStatus.SUCCESS


def nrt_sys_trace_get_event_types(rt: Runtime) -> tuple[NrtStatus, list[str]]:
    """The types that a filter takes."""
    return NrtStatus.SUCCESS, event_types()


def nrt_sys_trace_start(rt: Runtime) -> NrtStatus:
    """From now on events can be fetched; INVALID if that has begun. The trace that can be saved is recorded in any case."""
    if (bad := rt.usable()) is not NrtStatus.SUCCESS:
        return bad
    if rt.trace.unfetched is not None:
        return NrtStatus.INVALID
    rt.trace.unfetched = {}
    return NrtStatus.SUCCESS


def nrt_sys_trace_stop(rt: Runtime) -> NrtStatus:
    """The end of it: what was not fetched can no longer be. INVALID if it has not begun."""
    if (bad := rt.usable()) is not NrtStatus.SUCCESS:
        return bad
    if rt.trace.unfetched is None:
        return NrtStatus.INVALID
    rt.trace.unfetched = None
    return NrtStatus.SUCCESS


def nrt_sys_trace_fetch_events(rt: Runtime, max_events_per_nc: int | None = None, nc_idx: int | None = None) -> tuple[NrtStatus, str]:
    """Events as JSON, each once: the oldest of every core, or of one. INVALID before the start, and for no such core.

    An interval is there when it has ended. It counts as one event and is two entries, its start and its stop, which share a
    tracking_id. Entries are in order of time.
    """
    if (bad := rt.usable()) is not NrtStatus.SUCCESS:
        return bad, ""
    waiting = rt.trace.unfetched
    if waiting is None or (nc_idx is not None and not 0 <= nc_idx < rt.cores) or (max_events_per_nc is not None and max_events_per_nc < 0):
        return NrtStatus.INVALID, ""
    entries: list[tuple[int, int, int, dict[str, Any]]] = []
    for core in sorted(waiting) if nc_idx is None else [nc_idx]:
        ring = waiting.get(core) or ()
        for _ in range(len(ring) if max_events_per_nc is None else min(len(ring), max_events_per_nc)):
            event = waiting[core].popleft()
            for k, (phase, at) in enumerate((("start", event.start_ns), ("stop", event.end_ns))):
                entries.append((at, event.id, k, _entry(event, phase, at)))
    entries.sort(key=lambda e: e[:3])
    return NrtStatus.SUCCESS, json.dumps({"events": [e for *_, e in entries], "data_version": DATA_VERSION}, allow_nan=False)


def _entry(event: Event, phase: str, at: int) -> dict[str, Any]:
    data = dict(event.attributes)
    if event.source == HARDWARE:
        data["nc_timestamp_ns"] = at  # one clock
    if event.thread >= 0:
        data["thread_id"] = event.thread
    if event.flow:
        data["flow_id"] = [str(f) for f in event.flow]
    return {
        "event_type": event_type(event.name), "phase": phase, "tracking_id": event.id, "nc_idx": event.core, "timestamp_ns": at,
        "data": data,
    }  # fmt: skip
