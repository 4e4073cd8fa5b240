"""The system trace of a run: what the host, the runtime and the cores did, and when, in integer ns from zero."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

HARDWARE, RUNTIME, FRAMEWORK = "neuron_hw", "neuron_rt", "framework"
GROUPS = {
    "hardware": {"nc_exec_running", "nc_model_switch", "timestamp_sync_point"},
    "software": {
        "nrt_execute", "nrta_execute_schedule", "nrt_model_submit", "kbl_exec_pre", "kbl_exec_wait", "kbl_exec_post", "nrt_load",
        "nrt_unload", "nrt_tensor_allocate", "nrt_tensor_free", "nrt_tensor_write", "nrt_tensor_read", "nrt_tensor_copy",
        "nrta_tensor_write", "nrta_tensor_read", "nrta_tensor_copy", "dmem_buf_copyin", "dmem_buf_copyout",
    },
}  # fmt: skip


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


@attrs.define
class Recorder:
    """Keeps events of the chosen cores and names; ids count from zero in order of recording."""

    cores: frozenset[int] | None = None
    names: frozenset[str] | None = None
    limit_per_core: int = 1_000_000  # the real ring's default; the oldest are overwritten there, and counted here
    events: list[Event] = attrs.field(factory=list)
    dropped: dict[int, int] = attrs.field(factory=dict)
    kept: dict[int, int] = attrs.field(factory=dict)
    next_id: int = 0

    def add(self, name: str, source: str, start_ns: int, end_ns: int, **fields: Any) -> int:
        """Record one event; its id is returned whether it is kept or not."""
        number = self.next_id
        self.next_id += 1
        core = fields.get("core", -1)
        if (self.cores is not None and core >= 0 and core not in self.cores) or (self.names is not None and name not in self.names):
            return number
        if self.kept.get(core, 0) >= self.limit_per_core:
            self.dropped[core] = self.dropped.get(core, 0) + 1
            return number
        self.kept[core] = self.kept.get(core, 0) + 1
        self.events.append(Event(number, name, source, start_ns, end_ns, **fields))
        return number


def chosen(words: Iterable[str]) -> frozenset[str]:
    """Event names of a filter: names, groups (hardware, software), and ^name to leave one out."""
    keep: set[str] = set()
    every = set().union(*GROUPS.values())
    items = list(words)
    if all(w.startswith("^") for w in items):
        keep = set(every)
    for w in items:
        if w.startswith("^"):
            keep -= GROUPS.get(w[1:], {w[1:]})
        else:
            keep |= GROUPS.get(w, {w})
    return frozenset(keep)
