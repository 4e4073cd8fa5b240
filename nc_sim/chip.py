"""One chip generation as data: every number with how it is known and where from, loaded from chips/*.toml."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

import attrs

from .arguments import said
from .files import regular
from .isa import Engine
from .isa.errors import ChipError, Unspecified, Unsupported
from .notebook import Shown
from .schema import SCHEMA, Entry

STATUSES = ("measured", "documented", "derived", "carried-over", "assumed", "fitted", "unsupported", "unspecified")
CORE = re.compile(r"NeuronCore-v[1-9][0-9]?")
UNCERTAIN = ("carried-over", "assumed")  # reports show results that rest on these


@attrs.frozen
class Number:
    """A hardware value with its provenance. `value` is None where the chip lacks the thing or no source says."""

    value: Any
    status: str
    source: str
    has: str = ""  # of what is unsupported: the generation that has it


@attrs.frozen(eq=False, repr=False)
class Chip(Shown):
    """The data of one chip generation. Use `reader()` to look numbers up and learn which were used."""

    name: str
    core: str
    numbers: Mapping[str, Number]
    sources: Mapping[str, str]
    overrides: Mapping[str, Any] = attrs.field(factory=dict)
    extrapolated: str = ""  # why results on this chip are an extrapolation; every report says so

    @cached_property
    def ticks_per_ns(self) -> Fraction:
        """Simulated time counts ticks: the longest unit that divides every engine's clock period."""
        mhz = [int(self.numbers[f"clock.{e.name.lower()}_mhz"].value) for e in Engine]
        return Fraction(math.lcm(*mhz), 1000)

    def ticks(self, ns: Fraction) -> int:
        """A time in ticks, rounded half up: the one place where a constant is rounded."""
        return math.floor(ns * self.ticks_per_ns + Fraction(1, 2))

    def ns(self, ticks: int) -> float:
        """A tick count as nanoseconds."""
        return float(ticks / self.ticks_per_ns)

    def cycle_ticks(self, engine: Engine) -> int:
        """Ticks of one cycle of an engine's clock; exact by construction of the tick."""
        return int(self.ticks_per_ns * 1000 / int(self.numbers[f"clock.{engine.name.lower()}_mhz"].value))

    def reader(self) -> Reader:
        """A look-up that remembers which numbers were used."""
        return Reader(self)

    def __repr__(self) -> str:
        changed = "".join(f", {k}={v}" for k, v in self.overrides.items())
        return f"<Chip {self.name}: {self.core}, {len(self.numbers)} numbers{changed}>"

    def what_if(self, overrides: Mapping[str, Any]) -> Chip:
        """The chip with numbers replaced by dotted name; an unknown name or an unfit value is refused."""
        if not isinstance(overrides, Mapping):
            raise ChipError("what-if", said(overrides), "a mapping of names to values")
        if not overrides:
            return self
        numbers = dict(self.numbers)
        for key, raw in overrides.items():
            entry = _entry(f"what-if {key}", key)
            numbers[key] = Number(entry.convert(raw, f"what-if {key}"), "assumed", "what-if")
        return attrs.evolve(self, numbers=numbers, overrides={**self.overrides, **{k: str(v) for k, v in overrides.items()}})


@attrs.frozen(eq=False)
class Reader:
    """Looks numbers up for one lowering and keeps the names it was asked for."""

    chip: Chip
    used: set[str] = attrs.field(factory=set)

    def __call__(self, key: str) -> Any:
        """The value of a dotted name; Unsupported or Unspecified where the chip has none."""
        try:
            number = self.chip.numbers[key]
        except KeyError:
            raise ChipError(self.chip.name, f"no number {key!r}", "a key of the chip schema") from None
        self.used.add(key)
        if number.value is None:
            if number.status == "unsupported":
                raise Unsupported(self.chip.name, f"{key} is unsupported", who_has(number), number.source)
            raise Unspecified(self.chip.name, f"{key} has no published value", "a source, or an override by --what-if", number.source)
        return number.value

    def cycle_ticks(self, engine: Engine) -> int:
        """Ticks of one cycle of an engine's clock."""
        self.used.add(f"clock.{engine.name.lower()}_mhz")
        return self.chip.cycle_ticks(engine)

    def has(self, key: str) -> bool:
        """False where the chip file says `unsupported`."""
        self.used.add(key)
        return self.chip.numbers[key].status != "unsupported"

    def uncertain(self) -> list[str]:
        """Names used so far whose value is carried over or assumed, sorted."""
        return sorted(k for k in self.used if self.chip.numbers[k].status in UNCERTAIN)


def who_has(number: Number) -> str:
    """What an error about an unsupported number requires."""
    return "a chip that has it" + (f": {number.has}" if number.has else "")


def names() -> list[str]:
    """Chips that ship with nc-sim."""
    return sorted(p.name.removesuffix(".toml") for p in _folder().iterdir() if p.name.endswith(".toml"))


def load(chip: str | Path | Chip, what_if: Mapping[str, Any] | None = None) -> Chip:
    """A chip by name or from a file of the same form, with overrides applied."""
    if isinstance(chip, Chip):
        return chip.what_if({} if what_if is None else what_if)
    text_name = str(chip)
    if text_name in names():
        text = (_folder() / f"{text_name}.toml").read_text()
    elif text_name.endswith(".toml"):
        try:
            text = regular(Path(text_name)).read_text()
        except (OSError, ValueError) as e:  # ValueError: not UTF-8, or a NUL in the name
            raise ChipError(text_name, f"cannot be read: {getattr(e, 'strerror', None) or 'not text'}", "a chip file") from None
    else:
        raise ChipError("chip", f"{text_name!r}", f"one of {', '.join(names())}, or the path of a .toml file")
    return parse(text, text_name).what_if({} if what_if is None else what_if)


def parse(text: str, where: str) -> Chip:
    """A chip from the text of its file; every key of the schema must be there, and no other."""
    try:
        data = tomllib.loads(text, parse_float=Decimal)
    except (ValueError, ArithmeticError, RecursionError) as e:  # beside what is not TOML: numbers and nesting without end
        raise ChipError(where, f"not TOML: {e or type(e).__name__}", "a chip file") from None
    for key in ("name", "core", "sources"):
        if key not in data:
            raise ChipError(where, f"no {key!r}", "name, core and [sources]")
    sources, name, core, extrapolated = data.pop("sources"), data.pop("name"), data.pop("core"), data.pop("extrapolated", None)
    if not isinstance(sources, dict) or not all(isinstance(s, str) for s in sources.values()):
        raise ChipError(f"{where}: sources", f"{sources!r:.80}", "a table of texts by code")
    for key, text_of in (("name", name), ("core", core), ("extrapolated", extrapolated)):
        if key == "extrapolated" and text_of is None:
            continue
        if not isinstance(text_of, str) or not text_of.strip() or not text_of.isprintable():
            raise ChipError(f"{where}: {key}", f"{text_of!r:.80}", "one line of text")
    if not CORE.fullmatch(core):
        raise ChipError(f"{where}: core", f"{core!r:.80}", "a generation, such as NeuronCore-v3")
    numbers: dict[str, Number] = {}
    for key, raw in _flatten(data):
        numbers[key] = _number(f"{where}: {key}", _entry(where, key), raw, sources)
    missing = [k for k in SCHEMA if k not in numbers]
    if missing:
        raise ChipError(
            where,
            f"no {missing[0]!r}" + (f" and {len(missing) - 1} more" if len(missing) > 1 else ""),
            f"every key of the schema: {SCHEMA[missing[0]].doc}",
        )
    return Chip(name, core, numbers, sources, extrapolated=extrapolated or "")


def _folder() -> Any:
    return resources.files("nc_sim") / "chips"


def _entry(where: str, key: str) -> Entry:
    if key not in SCHEMA:
        key = str(key)
        near = difflib.get_close_matches(key, SCHEMA, 1)
        raise ChipError(where, f"unknown key {key!r}", "a key of the chip schema" + (f"; did you mean {near[0]!r}?" if near else ""))
    return SCHEMA[key]


DEEPEST = 8  # tables in tables, which is more than the schema has


def _flatten(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, Mapping) and "status" not in value and prefix.count(".") < DEEPEST:
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _number(where: str, entry: Entry, raw: Any, sources: Iterable[str]) -> Number:
    if not isinstance(raw, Mapping) or set(raw) - {"value", "status", "source", "has"} or "source" not in raw:
        raise ChipError(where, f"{raw!r}", "{ value = ..., status = ..., source = ... }")
    if raw["status"] not in STATUSES:
        raise ChipError(where, f"status {raw['status']!r}", f"one of {', '.join(STATUSES)}")
    code = str(raw["source"]).split(":")[0].split(",")[0].strip()
    if code not in sources:
        raise ChipError(where, f"source {raw['source']!r}", f"a code of [sources] ({', '.join(sources)}), then `: place`")
    lacking = raw["status"] in ("unsupported", "unspecified")
    if lacking == ("value" in raw):
        raise ChipError(where, "a value" if lacking else "no value", f"{'no' if lacking else 'a'} value with status {raw['status']!r}")
    if "has" in raw and (raw["status"] != "unsupported" or not isinstance(raw["has"], str) or not raw["has"].isprintable()):
        raise ChipError(where, f"has = {raw['has']!r:.80}", "the generation that has it, beside status 'unsupported' only")
    value = None if lacking else entry.convert(raw["value"], where)
    return Number(value, str(raw["status"]), str(raw["source"]), str(raw.get("has", "")))
