"""The tables of a system profile: what host, runtime and cores did, and which device profiles belong to it."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..runtime.events import FRAMEWORK, HARDWARE, Event, physical_core
from ..trace.system import DEVICE_EVENT, INSTANCE, PID, Loaded, SystemTrace
from .device import schema_fields
from .source import Device, with_program
from .table import NO_TEXT, Array, Some, Table, Words, from_rows, of, words


def tables(trace: SystemTrace) -> dict[str, Table]:
    """The system tables that have a meaning in a simulation, by name."""
    ends = [(e.start_ns, e.end_ns) for e in trace.events]
    first, last = min((a for a, _ in ends), default=0), max((b for _, b in ends), default=0)
    times = {"first_ts": _unix(first), "last_ts": _unix(last), "first_ts_ns": str(first), "last_ts_ns": str(last)}
    return {
        "DeviceProfileList": from_rows("DeviceProfileList", list(_device_profiles(trace))),
        "SchemaFields": schema_fields(),
        "SystemProfileEvents": _events(trace.events),
        "SystemProfileMetadata": from_rows("SystemProfileMetadata", [times]),
    }


def devices(trace: SystemTrace) -> Iterator[tuple[str, Device]]:
    """Name and source of the device profile of every program that ran, on each core."""
    for model in _ran(trace):
        yield profile_name(model), with_program(trace.device(model.id), physical_cores(trace, model.core))


def profile_name(model: Loaded) -> str:
    """Of a device profile, as its Perfetto file would be called."""
    return f"device_profile_model_{model.id}"


def physical_cores(trace: SystemTrace, core: int) -> int:
    """How many physical cores a logical core has, by the executions seen on it."""
    return max(1, len({physical_core(e) for e in trace.events if e.name == DEVICE_EVENT and e.core == core}))


def _ran(trace: SystemTrace) -> Iterator[Loaded]:
    return (m for m in trace.models if m.executions)


def _device_profiles(trace: SystemTrace) -> Iterator[dict[str, Any]]:
    for m in _ran(trace):
        yield {"device_profile_name": profile_name(m), "instance_id": INSTANCE, "process_id": PID, "nc_id": m.core, "model_id": m.id}


def _events(events: tuple[Event, ...]) -> Table:
    numbers = {k: np.array([getattr(e, k) for e in events], np.int64) for k in ("id", "start_ns", "end_ns", "core", "thread", "stream")}
    start, end, core = numbers["start_ns"], numbers["end_ns"], numbers["core"]
    hardware = np.array([e.source == HARDWARE for e in events], bool)
    physical = np.array([physical_core(e) for e in events], np.int64)
    streams = words([str(e.stream) if e.source == FRAMEWORK and e.stream >= 0 else "" for e in events])
    return of("SystemProfileEvents", {
        "id": numbers["id"], "name": words([e.name for e in events]), "start_ts": start, "end_ts": end, "duration_ns": end - start,
        "trace_event_source": words([e.source for e in events]), "instance_id": Words((INSTANCE,), np.zeros(len(events), np.int64)),
        "process_id": np.full(len(events), PID, np.int64), "thread_id": _known(numbers["thread"]), "nc_idx": _known(core),
        "pcore_idx": Some(physical, hardware & (physical >= 0)), "worker_gid": _known(core),
        "flow_id": [[str(f) for f in e.flow] or None for e in events], "framework_stream_id": streams,
        "extra_attributes_json": words([_extra(e) for e in events]),
    })  # fmt: skip


def _known(numbers: Array) -> Some:
    """-1 is no number."""
    return Some(numbers, numbers >= 0)


def _extra(event: Event) -> str:
    """What has no column of its own; the event that it lies inside, too."""
    extra = {**event.attributes, **({"parent_id": event.parent} if event.parent >= 0 else {})}
    return json.dumps(extra, sort_keys=True) if extra else ""


def _unix(ns: int) -> str:
    """As the schema shows it. The system trace counts from zero."""
    days, rest = divmod(ns, 86_400 * 10**9)
    seconds, part = divmod(rest, 10**9)
    date = np.datetime64("1970-01-01") + np.timedelta64(days, "D")
    return f"{date} {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{part:09} +0000 UTC"


def metrics(trace: SystemTrace) -> dict[str, Any]:
    """A summary of the events: how many of each name, and how long they last together, in seconds."""
    count = Counter(e.name for e in trace.events)
    total = Counter[str]()
    for e in trace.events:
        total[e.name] += e.duration_ns
    span = max((e.end_ns for e in trace.events), default=0) - min((e.start_ns for e in trace.events), default=0)
    return {
        "event_count": len(trace.events), "total_time": span / 1e9, "event_type_count": dict(sorted(count.items())),
        "event_type_time": {k: v / 1e9 for k, v in sorted(total.items())},
    }  # fmt: skip


def key(trace: SystemTrace) -> str:
    """The key of this profile in a summary as JSON: s_ and forty hexadecimal digits."""
    told = json.dumps([trace.metadata, [m.hash for m in trace.models], len(trace.events)], sort_keys=True)
    return f"s_{hashlib.sha1(told.encode(), usedforsecurity=False).hexdigest()}"


def trace_events(trace: SystemTrace) -> Iterator[dict[str, Any]]:
    """Events in the form of the profiler's system_profile.json."""
    for e in trace.events:
        group = f"framework-{e.thread}" if e.source == FRAMEWORK else f"nrt-nc-{e.core:03}" if e.core >= 0 else f"nrt-{e.thread}"
        row = {
            "name": e.name, "timestamp": e.start_ns, "duration": e.duration_ns, "timestamp_unit": "ns", "group": group, "id": e.id,
            "parent_id": e.parent, "instance_id": INSTANCE, "process_id": str(PID), "trace_event_source": e.source,
            "flow_id": [str(f) for f in e.flow],
        }  # fmt: skip
        for name, value in (("thread_id", e.thread), ("lnc_idx", e.core), ("nc_idx", physical_core(e)), ("framework_stream_id", e.stream)):
            row |= {name: value} if value != NO_TEXT else {}
        yield {**e.attributes, **row}
