"""What the host costs: a few numbers with their provenance, apart from chips and never keyed by operator or variant."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import attrs

from ..isa.errors import ChipError

STATUSES = ("measured", "documented", "derived", "fitted", "assumed")
FORM = "{ value = ..., status = ..., source = ... }"


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
    provenance: Mapping[str, tuple[str, str]] = attrs.field(factory=dict, repr=False)  # name -> (status, source)


NUMBERS = tuple(a.name for a in attrs.fields(HostProfile) if a.name not in ("name", "provenance"))


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
        text = Path(name).read_text(encoding="utf-8")
    except OSError as e:
        raise ChipError(name, f"cannot be read: {e.strerror}", "a host profile") from None
    except UnicodeDecodeError:
        raise ChipError(name, "not UTF-8 text", "a host profile") from None
    return parse(text, name)


def parse(text: str, where: str) -> HostProfile:
    """A host profile from the text of its file: every number, with status and source, and no other."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise ChipError(where, f"not TOML: {e}", "a host profile") from None
    name = data.pop("name", None)
    if not isinstance(name, str):
        raise ChipError(where, "no name", "name = ...")
    for key in data:
        if key not in NUMBERS:
            raise ChipError(where, f"unknown key {key!r}", f"one of {', '.join(NUMBERS)}")
    values, provenance = {}, {}
    for key in NUMBERS:
        if key not in data:
            raise ChipError(where, f"no {key!r}", FORM)
        raw = data[key]
        if not isinstance(raw, dict) or set(raw) != {"value", "status", "source"}:
            raise ChipError(f"{where}: {key}", f"{raw!r}", FORM)
        if not isinstance(raw["value"], int) or isinstance(raw["value"], bool) or raw["value"] < 0:
            raise ChipError(f"{where}: {key}", f"{raw['value']!r}", "a whole number of at least 0")
        if raw["status"] not in STATUSES:
            raise ChipError(f"{where}: {key}", f"status {raw['status']!r}", f"one of {', '.join(STATUSES)}")
        if not isinstance(raw["source"], str) or not raw["source"].strip():
            raise ChipError(f"{where}: {key}", f"source {raw['source']!r}", "text that says where the number is from")
        values[key], provenance[key] = raw["value"], (raw["status"], raw["source"])
    if values["copy_bytes_per_us"] == 0:
        raise ChipError(f"{where}: copy_bytes_per_us", "0", "at least 1")
    return HostProfile(name=name, provenance=provenance, **values)


def _folder() -> resources.abc.Traversable:
    return resources.files("nc_sim") / "runtime" / "host_profiles"
