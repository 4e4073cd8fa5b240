"""Roofline studies: points and ceilings of several runs as a table, as records, as a data frame and as a picture."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from ..analysis.roofs import DMA, HBM, SBUF, Ceiling, Point, ceilings, points
from ..analysis.sweeps import Case
from ..arguments import listed, said
from ..chip import Chip
from ..isa import COMPUTE, Engine
from ..isa.errors import ProgramError
from ..mechanisms import changes
from ..notebook import Shown, frame
from ..result import Result
from . import picture
from .text import extrapolated, table

MARKERS = "osD^vPXp<>*h"
COLOURS = ("#1f4e79", "#c0504d", "#4f8a3c", "#7a4fa3", "#c77f1a", "#2a8f8f")
GREY = "#5a6570"
SMALL = 7


@attrs.frozen
class Roofline(Shown):
    """Points of runs, and the ceilings of their chips for the engines they lie on."""

    points: tuple[Point, ...]
    ceilings: tuple[Ceiling, ...]
    extrapolated: Mapping[str, str] = attrs.field(factory=dict)  # chip -> why results on it are

    def records(self) -> list[dict[str, Any]]:
        """One row for each point, all numbers of it."""
        return [{**p.record(), "extrapolated": self.extrapolated.get(p.chip)} for p in self.points]

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
        said = [line for chip, why in self.extrapolated.items() for line in extrapolated(why, f"{chip} is ")]
        return "\n".join([*said, *table(head, rows), "", *table(("chip", "ceiling", "rate"), tops)])

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
    wanted = "results, cases of a sweep, or points"
    given = [results] if isinstance(results, Result | Case | Point) else listed(results, "roofline", wanted)
    chosen = None if engines is None else [_engine(e) for e in listed(engines, "roofline engines", "a list of their names")]
    found: list[Point] = []
    chips: dict[str, Chip] = {}
    tops: list[Ceiling] = []
    extrapolations: dict[str, str | None] = {}
    names = [r.program.name for r in given if isinstance(r, Result)]
    for r in given:
        if isinstance(r, Result):
            changed = changes(r.chip.overrides, r.without) if names.count(r.program.name) > 1 else ""
            found += points(r, f"{r.program.name} {changed}" if changed else None, chosen)
            chips.setdefault(r.chip.name, r.chip)
            extrapolations[r.chip.name] = r.chip.extrapolated
        elif isinstance(r, Case):
            found += [p for p in r.points if chosen is None or p.engine in {e.label for e in chosen}]
            tops += r.ceilings
            extrapolations[r.chip] = r.summary.get("extrapolated")
        elif isinstance(r, Point):
            found.append(r)
        else:
            raise ProgramError("roofline", said(r), wanted)
    on = {p.engine for p in found}
    for chip in chips.values():
        tops += ceilings(chip, on)
    tops = [c for c in dict.fromkeys(tops) if not c.engine or c.engine in on]
    return Roofline(_told_apart(found), tuple(tops), {chip: why for chip, why in extrapolations.items() if why})


def _engine(name: str) -> Engine:
    known = {e.label: e for e in COMPUTE}
    if not isinstance(name, str) or name not in known:
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


def _rate(per_ns: float, unit: str) -> str:
    """Work per second."""
    return f"{per_ns / 1000:,.3f} T{unit}/s" if per_ns >= 1000 else f"{per_ns:,.3f} G{unit}/s"


def _number(x: float) -> str:
    return f"{x:,.3f}" if math.isfinite(x) else "-"


# --- the picture -------------------------------------------------------------------------------------------------

INCHES = (4.2, 3.6)  # of the axes
MARGINS = (0.74, 0.52, 0.15)  # left, bottom, and around
FEW = 1.6  # decades of an axis that gets marks between powers of ten
ENTRY = 11.5  # points from one line of the legend to the next
STYLES: dict[str, Any] = {HBM: "-", DMA: (0, (4, 1.5)), SBUF: (0, (1, 1.2))}


def draw(study: Roofline, path: str | Path) -> Path:
    """The picture of a roofline study; returns the path."""
    picture.require(path, (*picture.SUFFIXES, ".pdf"))
    shown = [p for p in study.points if math.isfinite(p.intensity)]
    if not shown:
        raise ProgramError("roofline", "no point to draw", "a run that works and moves bytes of HBM")
    with picture.own_settings():
        slopes = [c for c in study.ceilings if c.kind == "memory"]
        legend = [_slope_label(study, c) for c in slopes] + [_point_label(study, k, p) for k, p in enumerate(shown)]
        left, bottom, around = MARGINS
        xlim, ylim = _limits(study, shown)
        heights = _label_heights(study, ylim)
        names = _inches([_top_label(study, c) for c in study.ceilings if c.kind == "compute"]) + 0.3
        needed = ENTRY * (len(legend) + 0.5) / picture.POINTS_PER_INCH
        room = (min(heights, default=math.inf) - ENTRY) / picture.POINTS_PER_INCH + bottom  # under the names of the engines
        under = needed <= room
        width = left + INCHES[0] + (max(names, _inches(legend) + 0.5) if under else names + _inches(legend) + 0.4) + around
        height = bottom + INCHES[1] + around + (0 if under else max(0, needed - INCHES[1] - bottom))
        figure = picture.figure(width, height)
        axes = figure.add_axes((left / width, (height - around - INCHES[1]) / height, INCHES[0] / width, INCHES[1] / height))
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set(xlim=xlim, ylim=ylim)
        for axis, (low, high) in ((axes.xaxis, xlim), (axes.yaxis, ylim)):
            _few_decades(axis, low, high)
        _finish(axes, shown)
        taken = [
            _box(*_place(axes, x, p.achieved), 6, 6) for p in shown for x in (p.intensity, p.algorithmic_intensity) if math.isfinite(x)
        ]
        _tops(axes, study, heights, taken)
        handles = [*_slopes(axes, study, taken), *_points(axes, study, shown, taken)]
        place = (left + INCHES[0] + (0.1 if under else names)) / width, (room if under else height - around) / height
        figure.legend(
            handles=handles, loc="upper left", bbox_to_anchor=place, fontsize=SMALL, frameon=False, handlelength=1.8, borderaxespad=0
        )
        drawn = [list(map(repr, attrs.astuple(x))) for part in (study.points, study.ceilings) for x in part]
        return picture.save(figure, Path(path), drawn)


Range = tuple[float, float]


def _limits(study: Roofline, shown: Sequence[Point]) -> tuple[Range, Range]:
    """From the decade below every point, to above every ridge and ceiling."""
    xs = [x for p in shown for x in (p.intensity, p.algorithmic_intensity) if math.isfinite(x) and x > 0]
    tops = [c.rate for c in study.ceilings if c.kind == "compute"]
    slopes = [c.rate for c in study.ceilings if c.kind == "memory" and not c.engine]
    xs += [t / s for t in tops for s in slopes]
    ys = [p.achieved for p in shown] + tops
    x, y = ((10.0 ** math.floor(math.log10(min(v) / 1.3)), 2.5 * max(v)) for v in (xs, ys))
    return x, y


def _few_decades(axis: Any, low: float, high: float) -> None:
    """Where matplotlib would put numbers to the marks between two powers of ten, which then overlap: to 1, 2 and 5 alone."""
    axis.set_tick_params(which="minor", labelbottom=False, labelleft=False)
    if math.log10(high / low) < FEW:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        at = [v for v in (float(f"{m}e{e}") for e in powers for m in (1, 2, 5)) if low <= v <= high]
        axis.set_ticks(at, [f"{v:,g}" for v in at])
        axis.set_ticks([], minor=True)


def _label_heights(study: Roofline, ylim: Range) -> list[float]:
    """Where the engines' names stand, highest first, in points over the axes' lower edge: clear of one another."""
    out, above = [], math.inf
    for c in sorted((c for c in study.ceilings if c.kind == "compute"), key=lambda c: -c.rate):
        at = math.log(c.rate / ylim[0]) / math.log(ylim[1] / ylim[0]) * INCHES[1] * picture.POINTS_PER_INCH
        above = min(at, above - SMALL - 2)
        out.append(above)
    return out


def _finish(axes: Any, shown: Sequence[Point]) -> None:
    work = {p.unit for p in shown}
    per = "flop" if work == {"flop"} else "elements" if work == {"element"} else "operations"
    axes.set_xlabel(f"{per} per HBM byte")
    axes.set_ylabel(f"achieved, G{per if per == 'flop' else ' ' + per}/s")
    axes.grid(True, which="major", linewidth=0.4, color="#d8dde2")
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _colour(study: Roofline, chip: str) -> str:
    """Grey, or one for each chip where there are several."""
    chips = list(dict.fromkeys(c.chip for c in study.ceilings))
    return GREY if len(chips) == 1 else COLOURS[chips.index(chip) % len(COLOURS)]


def _named(study: Roofline, ceiling: Ceiling) -> str:
    return ceiling.name if len({c.chip for c in study.ceilings}) == 1 else f"{ceiling.chip}: {ceiling.name}"


def _slope_label(study: Roofline, c: Ceiling) -> str:
    return f"{_named(study, c)}, {c.rate:,.0f} GB/s{' of bytes in SBUF' if c.engine else ''}"


def _slopes(axes: Any, study: Roofline, taken: list[Box]) -> list[Any]:
    """Memories: lines through the origin up to the highest ceiling that they may feed."""
    (x0, x1), (y0, _) = axes.get_xlim(), axes.get_ylim()
    handles = []
    for c in study.ceilings:
        if c.kind != "memory":
            continue
        tops = [d.rate for d in study.ceilings if d.kind == "compute" and d.chip == c.chip and c.engine in ("", d.engine)]
        until, begins = min([x1, *([max(tops) / c.rate] if tops else [])]), max(x0, y0 / c.rate)
        style = STYLES[HBM if c.name == HBM else SBUF if c.engine else DMA]
        xs = [begins, until] if begins < until else []
        (line,) = axes.plot(xs, [x * c.rate for x in xs], color=_colour(study, c.chip), linewidth=1.1, linestyle=style, zorder=2)
        line.set_label(_slope_label(study, c))
        handles.append(line)
        steps = [begins * (until / begins) ** (k / 40) for k in range(41)] if xs else []
        taken += [_box(*_place(axes, x, x * c.rate), 4, 4) for x in steps]
    return handles


def _top_label(study: Roofline, c: Ceiling) -> str:
    return f"{_named(study, c)}: {_rate(c.rate, study.unit(c))}"


def _tops(axes: Any, study: Roofline, heights: Sequence[float], taken: list[Box]) -> None:
    """Engines: flat lines from the steepest slope on, each with its name at its right end."""
    x0, x1 = axes.get_xlim()
    _, lowest = _place(axes, x0, axes.get_ylim()[0])
    tops = sorted((c for c in study.ceilings if c.kind == "compute"), key=lambda c: -c.rate)
    for c, height in zip(tops, heights, strict=True):
        slopes = [d.rate for d in study.ceilings if d.kind == "memory" and not d.engine and d.chip == c.chip]
        begins, colour = max(x0, c.rate / max(slopes)) if slopes else x0, _colour(study, c.chip)
        axes.plot([begins, x1], [c.rate] * 2, color=colour, linewidth=1.3, zorder=2)
        (a, y), (b, _) = _place(axes, begins, c.rate), _place(axes, x1, c.rate)
        taken.append((a, y - 1, b, y + 1))
        at = {"textcoords": "offset points", "fontsize": SMALL, "color": colour, "va": "center_baseline", "parse_math": False}
        line = {"arrowstyle": "-", "color": colour, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0, "relpos": (0, 0.5)}
        axes.annotate(_top_label(study, c), (x1, c.rate), (12, lowest + height - y), arrowprops=line, annotation_clip=False, **at)


def _point_label(study: Roofline, k: int, p: Point) -> str:
    more = "" if p.engine == Engine.TENSOR.label else f", {p.engine}"
    more += ", extrapolated" if p.chip in study.extrapolated else ""
    share = 100 * p.of_roof
    return f"{k + 1}  {p.name} ({p.chip}{more}): {share:.{0 if share >= 1 else 1}f} % of {p.bound}"


def _points(axes: Any, study: Roofline, shown: Sequence[Point], taken: list[Box]) -> list[Any]:
    """Full marks at the achieved intensity, open ones at the algorithmic one, and a number beside each that the legend names."""
    handles = []
    for k, p in enumerate(shown):
        colour, marker = COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)]
        least = p.algorithmic_intensity
        if math.isfinite(least) and abs(math.log10(least / p.intensity)) > 0.01:
            axes.plot([p.intensity, least], [p.achieved] * 2, color=colour, linewidth=0.7, zorder=3)
            axes.plot([least], [p.achieved], marker=marker, color=colour, markerfacecolor="white", markersize=5, linestyle="", zorder=4)
        (mark,) = axes.plot([p.intensity], [p.achieved], marker=marker, color=colour, markersize=5.5, linestyle="", zorder=5)
        mark.set_label(_point_label(study, k, p))
        handles.append(mark)
    for k, p in enumerate(shown):
        x, y = _place(axes, p.intensity, p.achieved)
        width = 4.6 * len(str(k + 1))
        around = [
            (distance * math.cos(a), distance * math.sin(a))
            for distance in (8, 12, 17, 23, 30, 38)
            for a in (math.pi / 4 * n for n in (1, 7, 3, 5, 2, 6, 0, 4))
        ]
        dx, dy = next((d for d in around if not any(_meet(_box(x + d[0], y + d[1], width, SMALL), t) for t in taken)), around[0])
        taken.append(_box(x + dx, y + dy, width, SMALL))
        axes.annotate(
            str(k + 1), (p.intensity, p.achieved), (dx, dy), textcoords="offset points", fontsize=SMALL, ha="center", va="center",
            zorder=6, color=COLOURS[k % len(COLOURS)],
        )  # fmt: skip
    return handles


def _inches(texts: Iterable[str]) -> float:
    """The width of the longest; glyphs come out a little wider than they are laid out."""
    return 1.06 * max((picture.text_width(t, SMALL) for t in texts), default=0.0) / picture.POINTS_PER_INCH


def _place(axes: Any, x: float, y: float) -> tuple[float, float]:
    """Points from the lower left of the picture."""
    a, b = axes.transData.transform((x, y)) * picture.POINTS_PER_INCH / axes.figure.dpi
    return float(a), float(b)


Box = tuple[float, float, float, float]


def _box(x: float, y: float, width: float, height: float) -> Box:
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def _meet(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
