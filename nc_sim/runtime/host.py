"""What the host costs: a few numbers with their provenance, apart from chips and never keyed by operator or variant."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import attrs

from ..files import regular
from ..isa.errors import ChipError

STATUSES = ("measured", "documented", "derived", "fitted", "assumed")
FORM = "{ value = ..., status = ..., source = ... }"


MOST = 10**12  # 1,000 s in ns: many steps of it stay inside the 64 bits of a trace
MOST_EVENTS = 10_000  # a core's ring holds 1,000,000
EVENTS = "events_per_dispatch"
COUNTED = ("dmem_buf_copyin", "nrt_dma_mem_alloc")  # events whose number is known and nothing else


@attrs.frozen
class Count:
    """How many events of a name every dispatch leaves, and how that is known."""

    value: int
    status: str
    source: str


@attrs.frozen
class HostProfile:
    """Host times in ns. See the fields of a profile file for how each is known."""

    name: str
    framework_ns: int  # host time of one framework operation, before it calls the runtime
    schedule_ns: int  # host time of one asynchronous call
    process_ns: int  # a core's runtime thread, per execution: what bounds pipelined dispatch
    switch_ns: int  # device time when a core executes another program than the last
    completion_ns: int  # from the device's end to the host knowing it; overlaps with other executions
    copy_ns: int  # fixed time of a host-device copy
    copy_bytes_per_us: int
    events: Mapping[str, Count] = attrs.field(factory=dict)  # inside nrt_model_submit; they take no time of their own
    provenance: Mapping[str, tuple[str, str]] = attrs.field(factory=dict, repr=False)  # name -> (status, source)


NUMBERS = tuple(a.name for a in attrs.fields(HostProfile) if a.name not in ("name", "events", "provenance"))


def names() -> list[str]:
    """Profiles that ship with nc-sim."""
    return sorted(p.name.removesuffix(".toml") for p in _folder().iterdir() if p.name.endswith(".toml"))


def load(profile: str | Path | HostProfile) -> HostProfile:
    """A host profile by name, or from a file of the same form."""
    if isinstance(profile, HostProfile):
        return profile
    name = str(profile)
    if name in names():
        return parse((_folder() / f"{name}.toml").read_text(encoding="utf-8"), name)
    if not name.endswith(".toml"):
        raise ChipError("host profile", f"{name!r}", f"one of {', '.join(names())}, or the path of a .toml file")
    try:
        text = regular(Path(name)).read_text(encoding="utf-8")
    except OSError as e:
        raise ChipError(name, f"cannot be read: {e.strerror}", "a host profile") from None
    except ValueError:  # or a NUL in the name
        raise ChipError(name, "not UTF-8 text", "a host profile") from None
    return parse(text, name)


def parse(text: str, where: str) -> HostProfile:
    """A host profile from the text of its file: every number, with status and source, and no other."""
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as e:  # ValueError: not TOML, or a number of thousands of digits
        raise ChipError(where, f"not TOML: {e}", "a host profile") from None
    name = data.pop("name", None)
    if not isinstance(name, str):
        raise ChipError(where, "no name", "name = ...")
    if not name.strip() or not name.isprintable():
        raise ChipError(f"{where}: name", f"{name!r:.80}", "one line of text")
    counts = data.pop(EVENTS, {})
    for key in data:
        if key not in NUMBERS:
            raise ChipError(where, f"unknown key {key!r}", f"one of {', '.join(NUMBERS)}, or [{EVENTS}]")
    values, provenance = {}, {}
    for key in NUMBERS:
        if key not in data:
            raise ChipError(where, f"no {key!r}", FORM)
        values[key], *known = _number(data[key], f"{where}: {key}")
        provenance[key] = (known[0], known[1])
    if not isinstance(counts, dict) or not set(counts) <= set(COUNTED):
        raise ChipError(f"{where}: {EVENTS}", f"{counts!r:.80}", f"a table of {', '.join(COUNTED)}")
    events = {name: Count(*_number(counts[name], f"{where}: {EVENTS}.{name}", MOST_EVENTS)) for name in COUNTED if name in counts}
    if values["copy_bytes_per_us"] == 0:
        raise ChipError(f"{where}: copy_bytes_per_us", "0", "at least 1")
    return HostProfile(name=name, events=events, provenance=provenance, **values)


def _number(raw: object, where: str, most: int = MOST) -> tuple[int, str, str]:
    """Value, status and source of one number."""
    if not isinstance(raw, dict) or set(raw) != {"value", "status", "source"}:
        raise ChipError(where, f"{raw!r:.80}", FORM)
    value, status, source = raw["value"], raw["status"], raw["source"]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ChipError(where, f"{value!r:.80}", "a whole number of at least 0")
    if value > most:
        raise ChipError(where, f"{value!r:.80}", f"at most {most}")
    if status not in STATUSES:
        raise ChipError(where, f"status {status!r}", f"one of {', '.join(STATUSES)}")
    if not isinstance(source, str) or not source.strip():
        raise ChipError(where, f"source {source!r}", "text that says where the number is from")
    return value, status, source


def _folder() -> resources.abc.Traversable:
    return resources.files("nc_sim") / "runtime" / "host_profiles"
