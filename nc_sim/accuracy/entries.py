"""The data: one published measurement an entry, with its source and the small program that measures the same quantity.

A file holds `chip`, a table `sources` and a list `entry`. What is measured is one call of a program: `call`, `engine`
and `args`, where an argument such as "SBUF float32 128x512" is a tensor of its own, "REGISTER" a register; a tensor in HBM
may be "in rows of 128", which lie apart. nc_sim/accuracy/measure.py says how each kind is taken from the simulated timeline.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import attrs

from ..files import regular
from ..isa import REGISTRY
from ..isa.errors import ProgramError

KINDS = ("duration", "interval", "delay", "packet")
CLASSES = ("single instruction", "delay", "packet", "opcode mean", "pixel reading")
JUDGED = CLASSES[:3]  # the target holds for these; the others are weaker measurements and reported apart
ROLES = ("fitted", "check")
GATES = ("", "full", "gated")
PACKETS = ("", "row", "semaphore", "row record", "semaphore record")  # to the next packet, or as long as its record
EVENTS = (
    "begin", "end", "first activity", "first data", "last data", "last activity", "engine begins", "data ends", "engine ends", "then",
    "then ends",
)  # fmt: skip
MOST_CALLS = 64
KERNELS = "kernels.toml"  # not of one chip (kernels.py)


@attrs.frozen(kw_only=True)
class Entry:
    """One measurement; times are ns.

    Without `excluded_because` it has a program. One with both waits for its instruction, or for an operand of it: it is simulated
    as soon as the program can be built.
    """

    id: str
    chip: str
    what: str  # the measured thing in words
    group: str = attrs.field(metadata={"key": "class"})
    kind: str
    value: float | None = None  # None only where the source gives no single number; then it is excluded
    unit: str = "ns"
    stat: str = ""  # of how many, and how far apart
    source: str
    place: str  # in the source
    role: str = "check"  # fitted: numbers of the chip file were taken from this measurement, so agreement is consistency
    explained: str = ""
    excluded_because: str = ""
    call: str = ""
    engine: str = ""
    args: Mapping[str, Any] = attrs.field(factory=dict)
    opcode: str = ""  # of the instruction that is looked at; empty: the whole call
    passes: str = ""  # of an fp32 product: low or high
    count: int = 1  # calls one after another
    with_first: bool = False  # the first of several counts too
    keeps: bool = False  # parts of what it writes stay, so that is filled before, too
    gate: str = ""  # level of the clock gate during the measurement
    then: Mapping[str, Any] = attrs.field(factory=dict)  # call, engine and args of what waits for the measured call
    start: str = ""  # of a delay: one of EVENTS
    end: str = ""
    packet: str = ""

    @property
    def runs(self) -> bool:
        """Whether a simulation is tried; one that is excluded stays so where its program cannot be built."""
        return not self.excluded_because or self.call in REGISTRY


@attrs.frozen
class Data:
    """The measurements of one chip."""

    chip: str
    sources: Mapping[str, str]
    entries: tuple[Entry, ...]


FIELDS = {a.metadata.get("key", a.name): a for a in attrs.fields(Entry)}
REQUIRED = tuple(key for key, a in FIELDS.items() if a.default is attrs.NOTHING and key != "chip")
WORDS = {"kind": KINDS, "class": CLASSES, "role": ROLES, "gate": GATES, "packet": PACKETS, "start": ("", *EVENTS), "end": ("", *EVENTS)}


def names() -> list[str]:
    """Chips with measurements in the project."""
    return sorted(p.name.removesuffix(".toml") for p in _folder().iterdir() if p.name.endswith(".toml") and p.name != KERNELS)


def load(chip: str) -> Data:
    """The measurements that ship with nc-sim for a chip, by its name."""
    if chip not in names():
        raise ProgramError("accuracy", f"no measurements of {chip!r}", f"one of {', '.join(names())}")
    return parse((_folder() / f"{chip}.toml").read_text(encoding="utf-8"), f"accuracy/{chip}.toml")


def parse(text: str, where: str) -> Data:
    """Measurements from the text of a file; the first fault is one error that names the entry."""
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as e:
        raise ProgramError(where, f"not TOML: {e}", "a file of measurements") from None
    if set(data) != {"chip", "sources", "entry"}:
        raise ProgramError(where, f"keys {', '.join(sorted(data)) or 'none'}", "chip, sources and entry")
    chip, sources, raw = data["chip"], data["sources"], data["entry"]
    if not isinstance(chip, str) or not chip:
        raise ProgramError(f"{where}: chip", f"{chip!r:.80}", "a chip's name")
    if not isinstance(sources, dict) or not all(isinstance(s, str) and s.strip() for s in sources.values()):
        raise ProgramError(f"{where}: sources", f"{sources!r:.80}", "a table of texts by code")
    if not isinstance(raw, list) or not raw or not all(isinstance(e, dict) for e in raw):
        raise ProgramError(f"{where}: entry", f"{raw!r:.80}", "at least one [[entry]]")
    entries = tuple(_entry(e, chip, sources, f"{where}: entry {k + 1}") for k, e in enumerate(raw))
    seen: set[str] = set()
    for entry in entries:
        if entry.id in seen:
            raise ProgramError(f"{where}: {entry.id}", "the id is there twice", "an id of its own")
        seen.add(entry.id)
    return Data(chip, sources, entries)


def _entry(raw: Mapping[str, Any], chip: str, sources: Mapping[str, str], where: str) -> Entry:
    name = raw.get("id")
    if not isinstance(name, str) or not name.strip():
        raise ProgramError(where, "no id", "id = ...")
    where = f"{where} ({name})"
    for key in raw:
        if key not in FIELDS:
            raise ProgramError(where, f"unknown key {key!r}", f"one of {', '.join(FIELDS)}")
    for key in REQUIRED:
        if key not in raw:
            raise ProgramError(where, f"no {key!r}", f"{', '.join(REQUIRED)} are required")
    for key, value in raw.items():
        _check(key, value, where)
    if raw["source"] not in sources:
        raise ProgramError(where, f"source {raw['source']!r}", f"a code of [sources]: {', '.join(sources)}")
    entry = Entry(**{FIELDS[key].name: value for key, value in {"chip": chip, **raw}.items()})
    _complete(entry, chip, where)
    return entry


def _check(key: str, value: Any, where: str) -> None:
    if key == "value":
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
            raise ProgramError(f"{where}: value", f"{value!r:.80}", "a number above 0")
    elif key == "count":
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_CALLS:
            raise ProgramError(f"{where}: count", f"{value!r:.80}", f"a whole number, 1 to {MOST_CALLS}")
    elif key in ("keeps", "with_first"):
        if not isinstance(value, bool):
            raise ProgramError(f"{where}: keeps", f"{value!r:.80}", "true or false")
    elif key in ("args", "then"):
        if not isinstance(value, dict):
            raise ProgramError(f"{where}: {key}", f"{value!r:.80}", "a table")
    elif not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ProgramError(f"{where}: {key}", f"{value!r:.80}", "one line of text")
    elif key in WORDS and value not in WORDS[key]:
        raise ProgramError(f"{where}: {key}", f"{value!r}", f"one of {', '.join(w for w in WORDS[key] if w)}")


def _complete(entry: Entry, chip: str, where: str) -> None:
    """What an entry that is simulated needs, and what one that is not must not claim."""
    if entry.excluded_because and not entry.call:
        return
    if entry.value is None or entry.unit != "ns":
        raise ProgramError(where, "no value in ns", "value = ..., or excluded_because = ...")
    if entry.chip != chip:
        raise ProgramError(where, f"chip {entry.chip!r}", f"{chip!r}, or excluded_because = ...")
    if not entry.call:
        raise ProgramError(where, "no call", "call = ..., or excluded_because = ...")
    if (entry.kind == "delay") != bool(entry.start and entry.end) or bool(entry.start) != bool(entry.end):
        raise ProgramError(
            where, f"kind {entry.kind!r} with start {entry.start!r} and end {entry.end!r}", "a delay has both, no other has them"
        )
    if (entry.kind == "packet") != bool(entry.packet):
        raise ProgramError(where, f"kind {entry.kind!r} with packet {entry.packet!r}", "a packet says which, no other does")
    if entry.kind == "interval" and entry.count < 2:
        raise ProgramError(where, f"an interval between {entry.count} calls", "count of at least 2")
    if (entry.start.startswith("then") or entry.end.startswith("then")) != bool(entry.then):
        raise ProgramError(where, "`then` as a call or as an event alone", "both or neither")


def _folder() -> resources.abc.Traversable:
    return resources.files("nc_sim") / "accuracy"


def read(path: Path) -> Data:
    """Measurements from a file of the same form."""
    try:
        text = regular(path).read_text(encoding="utf-8")
    except OSError as e:
        raise ProgramError(str(path), f"cannot be read: {e.strerror}", "a file of measurements") from None
    except ValueError:
        raise ProgramError(str(path), "not UTF-8 text", "a file of measurements") from None
    return parse(text, str(path))
