"""Runs as lanes: when each engine executes what, and how many DMA engines move data, on one time axis. Needs the extra `plot`.

A box is what an engine is busy with, until it can take the next instruction: what `stalls` calls busy. A low box is what
its sequencer works on: DMA triggers, waits, branches. All lengths are points; times are ns.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from ..analysis.history import history
from ..isa import Engine
from ..isa.errors import ProgramError
from ..result import Result, body_ticks
from ..table import Role, Rule
from . import picture
from .picture import Canvas, text_width
from .text import us
from .viewer import AXIS, BAR, DARK, GREY, INK, LABEL_SIZE, MARGIN, SLICE_SIZE, WIDTH, fitting, ticks

LANE, GAP, DMA_LANE = BAR + 1, 4.0, 20.0  # heights: of an engine, below a run, of the DMA engines
LOW = 0.45  # of a lane: how high a sequencer's box is
FINEST = 1.0  # what is thinner shares a box so wide, which has the colour of the longest
SWATCH = 8.0
PALETTE = (
    "#6fa8dc", "#f6b26b", "#93c47d", "#c27ba0", "#ffd966", "#8e7cc3", "#76c7c0", "#e06666", "#b7b7b7", "#a2845e", "#c9c04e", "#5f7f9e",
)  # fmt: skip
DMA = "DMA engines"
Times = npt.NDArray[np.float64]


@attrs.frozen(eq=False)
class Lane:
    """What one engine does: boxes by their start."""

    name: str
    start: Times
    end: Times
    opcode: tuple[str, ...]
    low: npt.NDArray[np.bool_]  # of the sequencer


@attrs.frozen(eq=False)
class Lanes:
    """One run."""

    name: str
    body: float
    engines: tuple[Lane, ...]
    moving: tuple[Times, Times]  # starts and ends of transfers, those of one DMA engine apart
    servers: int  # DMA engines


def lanes(result: Result, name: str | None = None) -> Lanes:
    """The lanes of a run."""
    table, timeline = result.table, result.timeline
    facts, n, ns = history(table, timeline), table.rows, float(1 / table.ticks_per_ns)
    role, start = table.role[:n], timeline.start[:n]
    array = (table.rule == Rule.LOAD) | (table.rule == Rule.STREAM)
    end = np.minimum(np.where(array, facts.streamed[:n], start + facts.issue), body_ticks(table, timeline))
    works = (role == Role.EXECUTE) | (role == Role.STREAM)
    # the last stream is that of software descriptors, whose time GpSimd's sequencer has spent
    low = (role == Role.CONTROL) | (role == Role.ACCEPT) | ((role == Role.TRIGGER) & (np.arange(n) < table.stream_ptr[-2]))
    engine = np.fromiter((s.engine for s in result.steps), np.int64, len(result.steps))[table.step[:n]]
    opcodes = [s.instruction.opcode for s in result.steps]
    out = []
    for e in Engine:
        mine = np.flatnonzero((engine == e) & (works | low) & (end > start))
        # weights load behind a product that streams: below it
        mine = mine[np.lexsort((mine, start[mine], table.rule[mine] != Rule.LOAD))]
        if len(mine):
            names = tuple(opcodes[k] for k in table.step[mine].tolist())
            begin, until = (np.asarray(c[mine] * ns, np.float64) for c in (start, end))
            out.append(Lane(e.label, begin, until, names, low[mine]))
    title = result.program.name if name is None else name
    title += ", extrapolated" if result.chip.extrapolated else ""
    return Lanes(title, result.duration_ns, tuple(out), _moving(result, ns), table.servers)


def _moving(result: Result, ns: float) -> tuple[Times, Times]:
    """When each DMA engine has a transfer, as disjoint intervals of that engine."""
    table, timeline = result.table, result.timeline
    begin, end = [np.zeros(0)], [np.zeros(0)]
    for server in range(table.servers):
        mine = np.flatnonzero((table.server == server) & (table.packets > 0))
        first, last = (c[table.rows :][mine] for c in (timeline.start, timeline.finish))
        order = np.argsort(first, kind="stable")
        first, reach = first[order], np.maximum.accumulate(last[order]) if len(mine) else last
        fresh = np.append(True, first[1:] > reach[:-1])[: len(first)]
        begin.append(first[fresh] * ns)
        end.append(reach[np.append(fresh[1:], True)[: len(first)]] * ns)
    return np.sort(np.concatenate(begin)), np.sort(np.concatenate(end))


def draw(
    runs: Result | Sequence[Result], path: str | Path, *, names: Sequence[str] | None = None, from_us: float | None = None,
    to_us: float | None = None,
) -> Path:  # fmt: skip
    """Draw runs below one another on one time axis, as .svg, .png or .pdf; returns the path. The same runs give the same bytes.

    `names` stand for those of the programs. The window is the longest body, or what lies between `from_us` and `to_us`.
    Errors as `picture.require`, and ProgramError for no run, a window without length or names that do not fit.
    """
    picture.require(path, (*picture.SUFFIXES, ".pdf"))
    given = [runs] if isinstance(runs, Result) else list(runs)
    if not given or (names is not None and len(names) != len(given)):
        raise ProgramError("lanes", f"{len(given)} runs and {len(names or given)} names", "at least one run, and a name for each")
    shown = [lanes(r, None if names is None else names[k]) for k, r in enumerate(given)]
    low, high = (from_us or 0.0) * 1000, max(r.body for r in shown) if to_us is None else to_us * 1000
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ProgramError("lanes", f"a window of {low / 1000:g} to {high / 1000:g} us", "one with a length")
    with picture.own_settings():
        page = _Page(shown, low, high)
        return picture.save(page.figure(), Path(path), [low, high, [_content(r) for r in shown]])


def _content(r: Lanes) -> list[Any]:
    """All that is drawn of a run."""
    engines = [[e.name, e.start.tolist(), e.end.tolist(), e.opcode, e.low.tolist()] for e in r.engines]
    return [r.name, r.body, engines, [t.tolist() for t in r.moving], r.servers]


class _Page:
    """Runs laid out below each other."""

    def __init__(self, runs: Sequence[Lanes], low: float, high: float) -> None:
        self.runs, self.low, self.high = runs, low, high
        labels = [f"{DMA}, 0–{r.servers}" for r in runs] + [e.name for r in runs for e in r.engines]
        self.left = MARGIN + 8 + math.ceil(max(text_width(t, LABEL_SIZE) for t in labels) + 4)
        self.right = WIDTH - MARGIN
        opcodes = dict.fromkeys(o for r in runs for e in r.engines for o in e.opcode)
        self.colours = {o: PALETTE[k % len(PALETTE)] for k, o in enumerate(opcodes)}
        self.legend = self._legend()
        self.top = MARGIN + AXIS
        rows = sum(BAR + GAP + LANE * len(r.engines) + (DMA_LANE if len(r.moving[0]) else 0) + GAP for r in runs)
        self.bottom = self.top + rows
        self.height = self.bottom + (LANE * (self.legend[-1][1] + 1) if self.legend else 0) + MARGIN

    def _legend(self) -> list[tuple[float, int, str, str]]:
        """Places, lines, colours and texts."""
        out, x, line = [], MARGIN, 0
        entries = [(c, o) for o, c in self.colours.items()]
        if any(e.low.any() for r in self.runs for e in r.engines):
            entries.append(("", "low: on the engine's sequencer"))
        for colour, text in entries:
            width = (SWATCH + 4 if colour else 0) + text_width(text, LABEL_SIZE) * 1.05 + 14
            if x + width > WIDTH - MARGIN and x > MARGIN:
                x, line = MARGIN, line + 1
            out.append((x, line, colour, text))
            x += width
        return out

    def x(self, ns: float) -> float:
        """A moment on the page, where the window ends if it lies outside."""
        return round(self.left + (self.right - self.left) * (min(max(ns, self.low), self.high) - self.low) / (self.high - self.low), 2)

    def figure(self) -> Any:
        c = Canvas(WIDTH, self.height)
        self._axis(c)
        y = self.top
        for r in self.runs:
            c.box(MARGIN - 4, y, self.right, y + BAR, GREY)
            c.text(MARGIN, y + BAR / 2, fitting(f"{r.name}: {us(r.body)}", WIDTH - 2 * MARGIN, LABEL_SIZE), LABEL_SIZE, DARK)
            y += BAR + GAP
            for lane in r.engines:
                c.text(MARGIN + 8, y + BAR / 2, lane.name, LABEL_SIZE, DARK)
                self._lane(c, lane, y)
                y += LANE
            if len(r.moving[0]):
                self._moving(c, r, y)
                y += DMA_LANE
            end = self.x(r.body)
            if self.low < r.body < self.high:
                c.line([(end, y - DMA_LANE - LANE * len(r.engines)), (end, y)], DARK, 0.6)
            y += GAP
        for x, line, colour, text in self.legend:
            middle = self.bottom + LANE * (line + 0.5) + 4
            if colour:
                c.box(x, middle - SWATCH / 2, x + SWATCH, middle + SWATCH / 2, colour)
            c.text(x + (SWATCH + 4 if colour else 0), middle, text, LABEL_SIZE, DARK)
        return c.figure

    def _axis(self, c: Canvas) -> None:
        y = MARGIN + AXIS - 6
        c.line([(self.left, y), (self.right, y)], DARK, 0.6)
        for ns in ticks(math.ceil(self.low), math.floor(self.high)):
            x, label = self.x(ns), f"{ns / 1000:g}"
            c.line([(x, y - 3), (x, y)], DARK, 0.6)
            c.line([(x, self.top), (x, self.bottom - GAP)], "#dfe3e6", 0.4, behind=True)
            half = text_width(label, LABEL_SIZE) / 2
            c.text(min(x, WIDTH - 2 - half), y - 8, label, LABEL_SIZE, DARK, "center")
        c.text(MARGIN, y - 8, "us", LABEL_SIZE, DARK)

    def _lane(self, c: Canvas, lane: Lane, top: float) -> None:
        for k, left, right in self._boxes(lane):
            name, low = lane.opcode[k], bool(lane.low[k])
            c.box(left, top + (BAR * (1 - LOW) if low else 0), right, top + BAR - 1, self.colours[name], edge=right - left > 3 and not low)
            if not low:
                c.text((left + right) / 2, top + BAR / 2 - 0.5, fitting(name, right - left - 3), SLICE_SIZE, INK, "center")

    def _boxes(self, lane: Lane) -> list[tuple[int, float, float]]:
        """Indices with left and right, in the order to draw. Thin neighbours of one kind join."""
        inside = np.flatnonzero((lane.end > self.low) & (lane.start < self.high)).tolist()
        thin: dict[tuple[bool, int], tuple[int, float]] = {}
        wide = []
        for k in inside:
            left, right = self.x(lane.start[k]), self.x(lane.end[k])
            length = float(lane.end[k] - lane.start[k])
            if right - left >= FINEST:
                wide.append((k, left, right))
                continue
            place = bool(lane.low[k]), int(left / FINEST)
            if place not in thin or length > thin[place][1]:
                thin[place] = k, length
        joined = []
        kinds = itertools.groupby(enumerate(sorted(thin)), lambda v: (v[1][0], v[1][1] - v[0], lane.opcode[thin[v[1]][0]]))
        for _, group in kinds:
            places = [place for _, place in group]
            joined.append((thin[places[0]][0], places[0][1] * FINEST, (places[-1][1] + 1) * FINEST))
        return [*joined, *wide]

    def _moving(self, c: Canvas, r: Lanes, top: float) -> None:
        """How many DMA engines move data, the mean of each point of the page."""
        c.text(MARGIN + 8, top + DMA_LANE / 2, f"{DMA}, 0–{r.servers}", LABEL_SIZE, DARK)
        edges = np.linspace(self.low, self.high, math.ceil(self.right - self.left) + 1)
        begin, end = r.moving
        count = np.diff(_until(end, edges) - _until(begin, edges)) / np.diff(edges)
        base, height = top + DMA_LANE - 1, DMA_LANE - 4
        heights = [round(base - height * v / r.servers, 1) for v in count.tolist()]
        points: list[tuple[float, float]] = []
        for value, group in itertools.groupby(enumerate(heights), lambda v: v[1]):
            places = [k for k, _ in group]
            points += [(self.left + places[0], value), (min(self.left + places[-1] + 1, self.right), value)]
        c.area([(self.left, base), *points, (self.right, base)], "#c9daea")
        c.line(points, "#4d7ba6", 0.6)


def _until(moments: Times, edges: Times) -> Times:
    """The sum over sorted moments of the smaller of it and the edge: of ends less that of starts, the time spent until then."""
    before = np.searchsorted(moments, edges)
    return np.append(0.0, np.cumsum(moments))[before] + edges * (len(moments) - before)
