"""Roofline studies: points and ceilings of several runs as a table, as records, as a data frame and as a picture."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs

from ..analysis.roofs import DMA, HBM, SBUF, Ceiling, Point, ceilings, points
from ..analysis.sweeps import Case
from ..chip import Chip
from ..isa import COMPUTE, Engine
from ..isa.errors import ProgramError, Unsupported
from ..result import Result
from . import picture
from .text import table

MARKERS = "osD^vPXp<>*h"
COLOURS = ("#1f4e79", "#c0504d", "#4f8a3c", "#7a4fa3", "#c77f1a", "#2a8f8f")
GREY = "#5a6570"
SMALL = 7


@attrs.frozen
class Roofline:
    """Points of runs, and the ceilings of their chips for the engines they lie on."""

    points: tuple[Point, ...]
    ceilings: tuple[Ceiling, ...]

    def records(self) -> list[dict[str, Any]]:
        """One row for each point, all numbers of it."""
        return [p.record() for p in self.points]

    def frame(self) -> Any:
        """The records as a pandas data frame; Unsupported without pandas."""
        return frame(self.records())

    def text(self) -> str:
        """The points and the ceilings as tables."""
        rows = [
            (
                p.name, p.chip, p.engine, _rate(p.achieved, p.unit), _number(p.intensity), _number(p.algorithmic_intensity),
                _rate(p.roofs[p.bound], p.unit), p.bound, f"{100 * p.of_roof:.1f} %",
            )
            for p in self.points
        ]  # fmt: skip
        head = ("run", "chip", "engine", "achieved", "per HBM byte", "algorithmic", "roof", "bound", "of roof")
        tops = [(c.chip, c.name, _rate(c.rate, self.unit(c)) if c.kind == "compute" else f"{c.rate:,.1f} GB/s") for c in self.ceilings]
        return "\n".join([*table(head, rows), "", *table(("chip", "ceiling", "rate"), tops)])

    def unit(self, ceiling: Ceiling) -> str:
        return "flop" if ceiling.engine == Engine.TENSOR.label else "element"

    def save(self, path: str | Path) -> Path:
        """Draw it, as the name says: .svg, .png or .pdf. The same points give the same bytes. Errors as `picture.require`."""
        return draw(self, path)


def roofline(results: Result | Case | Point | Iterable[Result | Case | Point], engines: Iterable[str] | None = None) -> Roofline:
    """Runs on the rooflines of their chips: achieved and algorithmic intensity against the ceilings of engines and memories.

    Takes results, cases of a sweep (failed ones are left out) and points. `engines` names those whose work counts; without
    it, the TensorEngine's where a run has products, else each of the others. Runs of one name are told apart by what
    differs in their cases, else by number.
    """
    given = [results] if isinstance(results, Result | Case | Point) else list(results)
    chosen = None if engines is None else [_engine(e) for e in engines]
    found: list[Point] = []
    chips: dict[str, Chip] = {}
    tops: list[Ceiling] = []
    for r in given:
        if isinstance(r, Result):
            found += points(r, engines=chosen)
            chips.setdefault(r.chip.name, r.chip)
        elif isinstance(r, Case):
            found += [p for p in r.points if chosen is None or p.engine in {e.label for e in chosen}]
            tops += r.ceilings
        elif isinstance(r, Point):
            found.append(r)
        else:
            raise ProgramError("roofline", f"{type(r).__name__} {r!r}"[:80], "results, cases of a sweep, or points")
    on = {p.engine for p in found}
    for chip in chips.values():
        tops += ceilings(chip, on)
    tops = [c for c in dict.fromkeys(tops) if not c.engine or c.engine in on]
    return Roofline(_told_apart(found), tuple(tops))


def _engine(name: str) -> Engine:
    known = {e.label: e for e in COMPUTE}
    if name not in known:
        raise ProgramError("roofline engines", f"{name!r}", f"one of {', '.join(known)}")
    return known[name]


def _told_apart(found: Sequence[Point]) -> tuple[Point, ...]:
    """Points of one name, chip and engine get numbers."""
    seen: dict[tuple[str, str, str], int] = {}
    many = {k for k in ((p.name, p.chip, p.engine) for p in found) if sum((q.name, q.chip, q.engine) == k for q in found) > 1}
    out = []
    for p in found:
        key = (p.name, p.chip, p.engine)
        seen[key] = seen.get(key, 0) + 1
        out.append(attrs.evolve(p, name=f"{p.name} #{seen[key]}") if key in many else p)
    return tuple(out)


def frame(records: Sequence[dict[str, Any]]) -> Any:
    """Records as a pandas data frame; Unsupported without pandas."""
    try:
        pandas: Any = importlib.import_module("pandas")
    except ImportError:
        raise Unsupported("data frame", "the package pandas is not installed", "pip install pandas, or the records") from None
    return pandas.DataFrame.from_records(records)


def _rate(per_ns: float, unit: str) -> str:
    """Work per second."""
    return f"{per_ns / 1000:,.3f} T{unit}/s" if per_ns >= 1000 else f"{per_ns:,.3f} G{unit}/s"


def _number(x: float) -> str:
    return f"{x:,.3f}" if math.isfinite(x) else "-"


# --- the picture -------------------------------------------------------------------------------------------------

WIDTH, HEIGHT = 7.2, 4.2  # inches
AXES = (0.095, 0.125, 0.57, 0.80)  # left, bottom, width, height: the legend stands to the right


def draw(study: Roofline, path: str | Path) -> Path:
    """The picture of a roofline study; returns the path."""
    picture.require(path, (*picture.SUFFIXES, ".pdf"))
    shown = [p for p in study.points if math.isfinite(p.intensity)]
    if not shown:
        raise ProgramError("roofline", "no point to draw", "a run that works and moves bytes of HBM")
    with picture.own_settings():
        figure = picture.figure(WIDTH, HEIGHT)
        axes = figure.add_axes(AXES)
        _frame_of(axes, study, shown)
        handles = _ceilings(axes, study, shown) + _points(axes, shown)
        figure.legend(
            handles=handles, loc="upper left", bbox_to_anchor=(AXES[0] + AXES[2] + 0.01, AXES[1] + AXES[3] + 0.01), fontsize=SMALL,
            frameon=False, handlelength=1.8, borderaxespad=0,
        )  # fmt: skip
        drawn = [list(map(repr, attrs.astuple(x))) for x in (*study.points, *study.ceilings)]
        return picture.save(figure, Path(path), drawn)


def _frame_of(axes: Any, study: Roofline, shown: Sequence[Point]) -> None:
    """Decades that hold every point, every ridge and every ceiling."""
    xs = [x for p in shown for x in (p.intensity, p.algorithmic_intensity) if math.isfinite(x) and x > 0]
    tops = [c.rate for c in study.ceilings if c.kind == "compute"]
    slopes = [c.rate for c in study.ceilings if c.kind == "memory" and not c.engine]
    xs += [t / s for t in tops for s in slopes]
    ys = [p.achieved for p in shown] + tops
    low, high = (10 ** math.floor(math.log10(min(v))) for v in (xs, ys))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, 10 ** math.ceil(math.log10(max(xs) * 1.5)))
    axes.set_ylim(high, 10 ** math.ceil(math.log10(max(ys) * 1.3)))
    work = {p.unit for p in shown}
    per = "flop" if work == {"flop"} else "elements" if work == {"element"} else "operations"
    axes.set_xlabel(f"{per} per HBM byte")
    axes.set_ylabel(f"achieved, G{per if per == 'flop' else ' ' + per}/s")
    axes.grid(True, which="major", linewidth=0.4, color="#d8dde2")
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _ceilings(axes: Any, study: Roofline, shown: Sequence[Point]) -> list[Any]:
    """Lines, each with its entry for the legend: memories by slope, engines by height, chips by colour where there are several."""
    (x0, x1), (y0, y1) = axes.get_xlim(), axes.get_ylim()
    chips = list(dict.fromkeys(c.chip for c in study.ceilings))
    handles = []
    styles = {HBM: "-", DMA: (0, (4, 1.5)), SBUF: (0, (1, 1.2))}
    for c in study.ceilings:
        colour = GREY if len(chips) == 1 else COLOURS[chips.index(c.chip) % len(COLOURS)]
        on = f" ({c.chip})" if len(chips) > 1 else ""
        if c.kind == "compute":
            tops = sorted({d.rate for d in study.ceilings if d.kind == "compute" and d.chip == c.chip}, reverse=True)
            level = tops.index(c.rate)
            slopes = [d.rate for d in study.ceilings if d.kind == "memory" and not d.engine and d.chip == c.chip]
            begins = max(x0, c.rate / max(slopes)) if slopes else x0
            style = ("-", (0, (6, 1.5)), (0, (3, 1)), (0, (2, 1)), (0, (1, 1)))[min(level, 4)]
            (line,) = axes.plot([begins, x1], [c.rate] * 2, color=colour, linewidth=1.4, linestyle=style, zorder=2)
            line.set_label(f"{c.name}{on}: {_rate(c.rate, study.unit(c))}")
        else:
            kind = HBM if c.name == HBM else SBUF if c.engine else DMA
            tops = [d.rate for d in study.ceilings if d.kind == "compute" and d.chip == c.chip and (not c.engine or d.engine == c.engine)]
            until = min(x1, max(tops) / c.rate) if tops else x1
            begins = max(x0, y0 / c.rate)
            if begins >= until:
                continue
            (line,) = axes.plot([begins, until], [begins * c.rate, until * c.rate], color=colour, linewidth=1.1, linestyle=styles[kind], zorder=2)
            beside = ", per byte in SBUF" if c.engine else ""
            line.set_label(f"{c.name}{on}: {c.rate:,.0f} GB/s{beside}")
        handles.append(line)
    return handles


def _points(axes: Any, shown: Sequence[Point]) -> list[Any]:
    """Full marks at the achieved intensity, open ones at the algorithmic one, and a number beside each that the legend names."""
    handles, taken = [], []
    spots = [_place(axes, p.intensity, p.achieved) for p in shown]
    for k, p in enumerate(shown):
        colour, marker = COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)]
        least = p.algorithmic_intensity
        if math.isfinite(least) and abs(math.log10(least / p.intensity)) > 0.01:
            axes.plot([p.intensity, least], [p.achieved] * 2, color=colour, linewidth=0.7, zorder=3)
            axes.plot([least], [p.achieved], marker=marker, color=colour, markerfacecolor="white", markersize=5, linestyle="", zorder=4)
            taken.append(_box(*_place(axes, least, p.achieved), 6, 6))
        (mark,) = axes.plot([p.intensity], [p.achieved], marker=marker, color=colour, markersize=5.5, linestyle="", zorder=5)
        engine = "" if p.engine == Engine.TENSOR.label else f", {p.engine}"
        mark.set_label(f"{k + 1}  {p.name} ({p.chip}{engine}): {100 * p.of_roof:.0f} % of {p.bound}")
        handles.append(mark)
    taken += [_box(x, y, 6, 6) for x, y in spots]
    for k, (x, y) in enumerate(spots):
        width = 4.6 * len(str(k + 1))
        for distance in (8, 12, 17, 23, 30, 38):
            around = [(distance * math.cos(a), distance * math.sin(a)) for a in (math.pi / 4 * n for n in (1, 7, 3, 5, 2, 6, 0, 4))]
            free = next((d for d in around if not any(_meet(_box(x + d[0], y + d[1], width, SMALL), t) for t in taken)), None)
            if free is not None:
                break
        dx, dy = free or (8.0, 8.0)
        taken.append(_box(x + dx, y + dy, width, SMALL))
        axes.annotate(
            str(k + 1), (shown[k].intensity, shown[k].achieved), (dx, dy), textcoords="offset points", fontsize=SMALL, ha="center",
            va="center", zorder=6, color=COLOURS[k % len(COLOURS)],
        )  # fmt: skip
    return handles


def _place(axes: Any, x: float, y: float) -> tuple[float, float]:
    """Points from the lower left of the picture."""
    a, b = axes.transData.transform((x, y)) * picture.POINTS_PER_INCH / axes.figure.dpi
    return float(a), float(b)


Box = tuple[float, float, float, float]


def _box(x: float, y: float, width: float, height: float) -> Box:
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def _meet(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
