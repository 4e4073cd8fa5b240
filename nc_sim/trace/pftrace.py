"""What a Perfetto file shows: tracks inside tracks, slices inside slices, counters and arrows. Needs the extra `perfetto`.

Reads track events with descriptors, as `perfetto.save` writes them; packets of other kinds are passed over.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from ..files import regular
from ..isa.errors import ProgramError, missing_extra
from ..progress import Tell, told

SUFFIX = ".pftrace"
CLEARED = 1  # sequence flag: interned names begin anew
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
EXPLICIT = 3  # child ordering by rank


@attrs.define(eq=False)
class Slice:
    """A slice; an instant where end is start. Times in ns."""

    name: str
    start: int
    end: int
    depth: int  # in how many slices of its track it lies
    leaves: tuple[int, ...]  # numbers of the arrows that begin here
    reaches: tuple[int, ...]  # and of those that end here


@attrs.define(eq=False)
class Track:
    """A line of the viewer, in the order and at the level at which it stands there."""

    name: str
    level: int
    counter: bool
    unit: str
    labels: tuple[str, ...]  # of a process
    slices: list[Slice] = attrs.field(factory=list)
    samples: list[tuple[int, float]] = attrs.field(factory=list)


def load(path: str | Path, progress: Tell | None = None) -> list[Track]:
    """Tracks from top to bottom; `progress` is told of packets read.

    ProgramError names the file where it is none or damaged; Unsupported without the extra.
    """
    classes = _module("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    unreadable = _module("google.protobuf.message").DecodeError
    try:
        data = regular(Path(path)).read_bytes()
    except OSError as e:
        raise ProgramError(str(path), f"cannot be read: {e.strerror}", "a Perfetto file") from None
    try:
        packets = classes.Trace.FromString(data).packet
    except unreadable:
        raise ProgramError(str(path), "not a Perfetto file, or one cut off", "the bytes of a whole one") from None
    if not any(p.HasField("track_descriptor") for p in packets):
        raise ProgramError(str(path), "no track", "a Perfetto file with track descriptors")
    try:
        return _tracks(packets, progress)
    except _Damaged as e:
        raise ProgramError(str(path), e.found, e.required) from None


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise missing_extra("perfetto", "the package perfetto is not installed", "perfetto") from None


class _Damaged(Exception):
    def __init__(self, found: str, required: str) -> None:
        self.found, self.required = found, required


def _tracks(packets: Sequence[Any], progress: Tell | None = None) -> list[Track]:
    descriptors = {p.track_descriptor.uuid: p.track_descriptor for p in packets if p.HasField("track_descriptor")}
    tracks = {d.uuid: track for d, track in _ordered(descriptors)}
    _fill(tracks, told(packets, progress))
    return list(tracks.values())


def _ordered(descriptors: dict[int, Any]) -> Iterator[tuple[Any, Track]]:
    """Every track after the one that it stands in: threads by their sort index, then the others by rank where they have one."""
    inside: dict[int, list[tuple[tuple[int, int], Any]]] = {}
    for d in descriptors.values():
        parent = descriptors.get(d.parent_uuid)
        ranked = parent is not None and parent.child_ordering == EXPLICIT
        key = (0, d.thread.legacy_sort_index) if d.HasField("thread") else (1, d.sibling_order_rank if ranked else 0)
        inside.setdefault(0 if parent is None else parent.uuid, []).append((key, d))
    waiting = [(0, d) for _, d in sorted(inside.pop(0, []), key=lambda v: v[0])]
    while waiting:
        level, d = waiting.pop(0)
        name = d.name or d.thread.thread_name or d.process.process_name
        yield d, Track(name, level, d.HasField("counter"), d.counter.unit_name, tuple(d.process.process_labels))
        waiting[:0] = [(level + 1, child) for _, child in sorted(inside.pop(d.uuid, []), key=lambda v: v[0])]
    if inside:
        raise _Damaged("a track that stands in itself", "tracks inside others")


def _fill(tracks: dict[int, Track], packets: Iterable[Any]) -> None:
    """Slices and samples of every track, in file order."""
    names: dict[int, dict[int, str]] = {}  # event names by sequence
    open_: dict[int, list[Slice]] = {}
    last: dict[int, int] = {}
    for p in packets:
        known = names.setdefault(p.trusted_packet_sequence_id, {})
        if p.sequence_flags & CLEARED:
            known.clear()
        known.update((n.iid, n.name) for n in p.interned_data.event_names)
        if not p.HasField("track_event"):
            continue
        e, uuid = p.track_event, p.track_event.track_uuid
        if uuid not in tracks:
            raise _Damaged(f"an event on track {uuid}", "a track that the file describes")
        track, stack = tracks[uuid], open_.setdefault(uuid, [])
        if p.timestamp < last.get(uuid, 0):
            raise _Damaged(f"time runs back on {track.name!r}", "events of a track in order of time")
        last[uuid] = p.timestamp
        if e.type == COUNTER:
            value = e.counter_value if e.HasField("counter_value") else e.double_counter_value
            if not math.isfinite(value):
                raise _Damaged(f"a value of {value} on {track.name!r}", "finite values")
            track.samples.append((p.timestamp, value))
        elif e.type == END:
            if not stack:
                raise _Damaged(f"an end without a beginning on {track.name!r}", "slices that begin before they end")
            stack.pop().end = p.timestamp
        elif e.type in (BEGIN, INSTANT):
            if e.HasField("name_iid") and e.name_iid not in known:
                raise _Damaged(f"name {e.name_iid} on {track.name!r}", "a name that the file gives")
            name = known[e.name_iid] if e.HasField("name_iid") else e.name
            track.slices.append(Slice(name, p.timestamp, p.timestamp, len(stack), tuple(e.flow_ids), tuple(e.terminating_flow_ids)))
            if e.type == BEGIN:
                stack.append(track.slices[-1])
    if ends := [tracks[k].name for k, stack in open_.items() if stack]:
        raise _Damaged(f"a slice without an end on {ends[0]!r}", "an end for every slice")
