"""The system trace of a run: what the host, the runtime and the cores did, and when, in integer ns from zero."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import attrs

HARDWARE, RUNTIME, FRAMEWORK = "neuron_hw", "neuron_rt", "framework"
GROUPS = {
    "hardware": {"nc_exec_running", "nc_model_switch", "timestamp_sync_point"},
    "software": {
        "nrt_execute", "nrta_execute_schedule", "nrt_model_submit", "nrt_profile_add_node_info", "nrt_dma_mem_alloc", "kmgr_exec_core",
        "kbl_exec_pre", "kbl_exec_core", "kbl_exec_wait", "kbl_exec_post", "notification_consume_errors", "exec_consume_gpsimd_stdio",
        "nrt_load", "nrt_unload", "nrt_tensor_allocate", "nrt_tensor_free", "nrt_tensor_write", "nrt_tensor_read", "nrt_tensor_copy",
        "nrt_tensor_write_batch", "nrt_tensor_read_batch", "nrt_tensor_memset", "nrta_tensor_write", "nrta_tensor_read",
        "nrta_tensor_copy", "dmem_buf_copyin", "dmem_buf_copyout",
    },
}  # fmt: skip
TYPES = {"nc_model_switch": "nrt_model_switch"}  # event types that are not called as their events are
NAMES = {v: k for k, v in TYPES.items()}


@attrs.define(slots=True)
class Event:
    """One interval. `parent` is the id of the event it lies inside, `flow` joins the steps of one dispatch."""

    id: int
    name: str
    source: str
    start_ns: int
    end_ns: int
    core: int = -1
    thread: int = -1
    stream: int = -1
    parent: int = -1
    flow: tuple[int, ...] = ()
    attributes: dict[str, Any] = attrs.field(factory=dict)

    @property
    def duration_ns(self) -> int:
        """From start to end."""
        return self.end_ns - self.start_ns


def physical_core(event: Event) -> int:
    """The number of a hardware event's physical core: that of its logical core where it tells no other."""
    told = event.attributes.get("device_core_idx")
    return told if type(told) is int and told >= 0 else event.core


@attrs.define
class Recorder:
    """Keeps the latest events of the chosen cores and names, a ring for each core; ids count from zero.

    While `unfetched` is there, events are kept in it too, a ring for each core, until somebody takes them.

    Events without a core, which are -1 of the counts, have a ring too. The filters are those of the runtime: events of a
    framework, which has its own profiler, pass them.
    """

    cores: frozenset[int] | None = None
    names: frozenset[str] | None = None
    limit_per_core: int = 1_000_000  # the real ring's default
    dropped: dict[int, int] = attrs.field(factory=dict)  # by core: events that later ones overwrote
    next_id: int = 0
    _rings: dict[int, deque[Event]] = attrs.field(factory=dict, init=False, repr=False)
    unfetched: dict[int, deque[Event]] | None = attrs.field(default=None, init=False, repr=False)
    _sorted: list[Event] | None = attrs.field(default=None, init=False, repr=False, eq=False)

    @property
    def events(self) -> list[Event]:
        """What is kept, by id: parents before their children."""
        if self._sorted is None:
            self._sorted = sorted(chain.from_iterable(self._rings.values()), key=attrgetter("id"))
        return self._sorted

    def reserve(self) -> int:
        """An id for an event that is recorded at its end, when its children are there."""
        self.next_id += 1
        return self.next_id - 1

    def add(self, name: str, source: str, start_ns: int, end_ns: int, *, id: int | None = None, core: int = -1, **fields: Any) -> int:
        """Record one event, under an id of its own or a reserved one; the id is returned whether it is kept or not."""
        number = self.reserve() if id is None else id
        if source != FRAMEWORK:
            if self.names is not None and name not in self.names:
                return number
            if self.cores is not None and core >= 0 and core not in self.cores:
                return number
        ring = self._rings.setdefault(core, deque())
        if len(ring) >= self.limit_per_core:
            self.dropped[core] = self.dropped.get(core, 0) + 1
            if not ring:
                return number
            ring.popleft()
        event = Event(number, name, source, start_ns, end_ns, core, **fields)
        ring.append(event)
        self._sorted = None
        if self.unfetched is not None and source != FRAMEWORK:
            waiting = self.unfetched.setdefault(core, deque())
            waiting.append(event)
            if len(waiting) > self.limit_per_core:  # so the ring has dropped it, and counted that
                waiting.popleft()
        return number

    def limit(self, per_core: int) -> None:
        """Keep at most so many events of each core, from those there are on."""
        self.limit_per_core = per_core
        for core, ring in self._rings.items():
            if excess := max(0, len(ring) - per_core):
                self.dropped[core] = self.dropped.get(core, 0) + excess
        for ring in chain(self._rings.values(), (self.unfetched or {}).values()):
            while len(ring) > per_core:
                ring.popleft()
        self._sorted = None


def chosen(words: Sequence[str]) -> frozenset[str]:
    """Event names of a filter: names and groups (hardware, software), then less those with a ^; the order does not matter."""
    every = frozenset().union(*GROUPS.values())
    named = [w for w in words if not w.startswith("^")]
    left_out = [w[1:] for w in words if w.startswith("^")]
    return (_names(named) if named else every) - _names(left_out)


def unknown(words: Iterable[str]) -> list[str]:
    """Words of a filter that name no event and no group."""
    every = set(GROUPS).union(NAMES, *GROUPS.values())
    return [w for w in words if not isinstance(w, str) or w.removeprefix("^") not in every]


def event_type(name: str) -> str:
    """The event type of an event's name, which differs for one."""
    return TYPES.get(name, name)


def event_types() -> list[str]:
    """All event types of the runtime."""
    return sorted(event_type(n) for n in frozenset().union(*GROUPS.values()))


def _names(words: Iterable[str]) -> frozenset[str]:
    return frozenset().union(*(GROUPS.get(w, {NAMES.get(w, w)}) for w in words))
