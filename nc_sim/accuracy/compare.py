"""Every entry simulated and compared."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import attrs

from ..chip import UNCERTAIN, Chip
from ..isa.errors import ProgramError
from ..mechanisms import MECHANISMS
from ..schema import SCHEMA
from .entries import CLASSES, JUDGED, Data, Entry
from .measure import LevelMissed, measure

LIMIT_PERCENT = 10  # an entry further off needs a line that explains it
FAMILY = 3  # entries that make a family
STEP = Fraction(1, 8)  # by which assumed numbers are lowered to see how much of a prediction is theirs


@attrs.frozen
class Compared:
    """One entry with its prediction; None where it is excluded."""

    entry: Entry
    simulated: float | None = None
    assumed: tuple[str, ...] = ()  # numbers without a source that the prediction moves with
    assumed_share: float = 0.0  # how much of the prediction, 0 to 1
    used: frozenset[str] = frozenset()  # every chip number that the run looked at

    @property
    def error_percent(self) -> float | None:
        """(simulated - measured) / measured."""
        if self.simulated is None or self.entry.value is None:
            return None
        return 100 * (self.simulated / self.entry.value - 1)

    @property
    def off(self) -> float:
        """The size of the error in percent; 0 where there is none."""
        return round(abs(self.error_percent or 0.0), 9)

    def record(self) -> dict[str, Any]:
        """The comparison as plain values, for `--json`."""
        e = self.entry
        return {
            "id": e.id,
            "chip": e.chip,
            "class": e.group,
            "kind": e.kind,
            "what": e.what,
            "measured": e.value,
            "simulated": None if self.simulated is None else round(self.simulated, 3),
            "unit": e.unit,
            "error_percent": None if self.error_percent is None else round(self.error_percent, 3),
            "assumed": list(self.assumed),
            "assumed_percent": round(100 * self.assumed_share, 3),
            "role": e.role,
            "source": e.source,
            "explained": e.explained or None,
            "excluded_because": e.excluded_because if self.simulated is None else None,
        }


def compare(data: Data, chip: Chip, progress: Callable[[int, int], None] | None = None) -> tuple[Compared, ...]:
    """Simulate every entry that can be run, in the order of the file."""
    out = []
    for k, entry in enumerate(data.entries):
        if progress is not None:
            progress(k, len(data.entries))
        out.append(_compared(entry, chip) if entry.runs else Compared(entry))
    return tuple(out)


def _compared(entry: Entry, chip: Chip) -> Compared:
    try:
        simulated, result = measure(entry, chip)
    except LevelMissed as e:  # only with other numbers than the file's: a test holds the file's to none
        return Compared(attrs.evolve(entry, excluded_because=f"{e.found}: {e.required} is needed"))
    except ProgramError:
        if not entry.excluded_because:
            raise
        return Compared(entry)
    numbers = chip.numbers
    names = [k for k in result.used if numbers[k].status in UNCERTAIN and SCHEMA[k].kind in ("number", "positive", "share")]
    moving = {k: d for k in names if (d := _moved(entry, chip, [k], simulated))}
    share = _moved(entry, chip, list(moving), simulated) if len(moving) > 1 else next(iter(moving.values()), 0.0)
    return Compared(entry, simulated, tuple(moving), min(1.0, max(0.0, share)), frozenset(result.used))


def _moved(entry: Entry, chip: Chip, names: Sequence[str], simulated: float) -> float:
    """The part of the prediction that is proportional to some numbers: what they move it by when all are lowered.

    All of it where the clock gate then takes another level.
    """
    try:
        lowered, _ = measure(entry, chip.what_if({k: chip.numbers[k].value * (1 - STEP) for k in names}))
    except LevelMissed:
        return 1.0
    return (simulated - lowered) / simulated / float(STEP)


@attrs.frozen
class Figures:
    """What a set of entries says together."""

    count: int
    mape: float
    median: float
    within_5: float  # percent of entries
    within_10: float
    assumed: float  # mean percent of a prediction


def figures(compared: Iterable[Compared]) -> Figures | None:
    """None where nothing was run."""
    ran = [c for c in compared if c.simulated is not None]
    if not ran:
        return None
    off, n = sorted(c.off for c in ran), len(ran)
    return Figures(
        count=n,
        mape=sum(off) / n,
        median=(off[(n - 1) // 2] + off[n // 2]) / 2,
        within_5=100 * sum(x <= 5 for x in off) / n,
        within_10=100 * sum(x <= LIMIT_PERCENT for x in off) / n,
        assumed=100 * sum(c.assumed_share for c in ran) / n,
    )


def by_class(compared: Sequence[Compared]) -> dict[str, list[Compared]]:
    """Entries of each class that were run."""
    return {name: [c for c in compared if c.entry.group == name and c.simulated is not None] for name in CLASSES}


def judged(compared: Sequence[Compared]) -> list[Compared]:
    """Single instructions, delays and packets that were run."""
    return [c for c in compared if c.entry.group in JUDGED and c.simulated is not None]


def excluded(compared: Sequence[Compared]) -> list[Compared]:
    """Entries that were not run."""
    return [c for c in compared if c.simulated is None]


def unexplained(compared: Sequence[Compared]) -> list[Compared]:
    """Entries off by more than the limit without a line that says why."""
    return [c for c in compared if c.off > LIMIT_PERCENT and not c.entry.explained]


@attrs.frozen
class Ablated:
    """What the judged entries say without one mechanism."""

    moved: int  # entries whose prediction changes by more than a millionth
    lost: int  # entries that cannot be measured then: the clock gate does not stay as they need it
    mape: float  # of the entries that can


def ablation(compared: Sequence[Compared], chip: Chip) -> dict[str, Ablated]:
    """Every mechanism switched off, one at a time."""
    of, out = judged(compared), {}
    for name, mechanism in MECHANISMS.items():
        other, moved, lost, off = chip.what_if(mechanism.off), 0, 0, []
        for c in of:
            again = c
            if c.used & mechanism.off.keys():
                try:
                    again = attrs.evolve(c, simulated=measure(c.entry, other)[0])
                except LevelMissed:
                    lost += 1
                    continue
            assert again.simulated is not None
            assert c.simulated is not None
            moved += abs(again.simulated - c.simulated) > 1e-6 * c.simulated
            off.append(again.off)
        out[name] = Ablated(moved, lost, sum(off) / max(1, len(off)))
    return out


def families(compared: Sequence[Compared]) -> dict[str, tuple[int, float]]:
    """Entries of one call on one engine with the same kind of value, three or more: how many, and their rank correlation."""
    groups: dict[str, list[Compared]] = {}
    for c in compared:
        if c.simulated is not None:
            groups.setdefault(f"{c.entry.call} on {c.entry.engine or 'its default'}, {c.entry.kind}", []).append(c)
    return {
        name: (len(of), correlation([c.entry.value or 0.0 for c in of], [c.simulated or 0.0 for c in of]))
        for name, of in sorted(groups.items())
        if len(of) >= FAMILY
    }


def correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's: of the ranks, equal values with the mean of theirs; 1 where one side has one value only."""
    x, y = _ranks(a), _ranks(b)
    mean = (len(x) + 1) / 2
    over = sum((i - mean) * (j - mean) for i, j in zip(x, y, strict=True))
    under = math.sqrt(sum((i - mean) ** 2 for i in x) * sum((j - mean) ** 2 for j in y))
    return over / under if under else 1.0


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(round(v, 6) for v in values)
    first, count = {v: ordered.index(v) for v in set(ordered)}, Counter(ordered)
    return [first[round(v, 6)] + (count[round(v, 6)] + 1) / 2 for v in values]


def worst(compared: Sequence[Compared], count: int) -> list[Compared]:
    """The entries furthest off; among equals in the order of the file."""
    ran = [c for c in compared if c.simulated is not None]
    return sorted(ran, key=lambda c: -round(c.off, 6))[:count]


def summary(compared: Sequence[Compared], chip: Chip) -> dict[str, Any]:
    """Everything as plain values, for `--json`."""

    def plain(f: Figures | None) -> dict[str, Any] | None:
        return None if f is None else {k: round(v, 3) if isinstance(v, float) else v for k, v in attrs.asdict(f).items()}

    whole = figures(judged(compared))
    return {
        "chip": chip.name,
        "extrapolated": chip.extrapolated or None,
        "mape_percent": None if whole is None else round(whole.mape, 3),
        "judged": plain(whole),
        "families": {name: {"entries": n, "spearman": round(r, 4)} for name, (n, r) in families(compared).items()},
        "classes": {name: plain(figures(of)) for name, of in by_class(compared).items()},
        "excluded": len(excluded(compared)),
        "unexplained": [c.entry.id for c in unexplained(compared)],
        "what_if": dict(chip.overrides),
        "entries": [c.record() for c in compared],
    }
