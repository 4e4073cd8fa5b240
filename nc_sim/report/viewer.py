"""A Perfetto file as a picture, laid out as a trace viewer does. Needs the extras `perfetto` and `plot`.

All lengths are points; the page has its origin at the top left. Times are ns, but for the axis and the window.
"""

from __future__ import annotations

import colorsys
import functools
import hashlib
import itertools
import math
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from ..isa.errors import ProgramError
from ..progress import Tell, told, weighted
from ..result import Result
from ..runtime import Runtime
from ..trace import perfetto, pftrace
from ..trace.hardware import Trace
from ..trace.pftrace import Slice, Track
from ..trace.system import SystemTrace
from . import picture
from .picture import Canvas, text_width

WIDTH, MARGIN, AXIS = 900.0, 12.0, 20.0
INDENT, LABEL_SIZE, SLICE_SIZE = 9.0, 7.0, 6.3
BAR, COUNTER, GAP = 11.0, 17.0, 3.0  # heights: a slice, a counter, what is free below a track
FINEST = 0.75  # what is thinner is drawn so wide, and once
STEEP = 24.0  # an arrow over less falls straight
TALLEST = 20_000.0  # of a page; image formats end soon after
LONGEST, DEEPEST = 300.0, 12  # of labels: length and level
LEAST = 3  # letters of a name that is cut short
GREY, DARK, INK = "#e4e7ea", "#3c4650", "#1c2126"


def draw(
    of: str | Path | SystemTrace | Runtime | Trace | Result, target: str | Path, *, from_us: float | None = None,
    to_us: float | None = None, progress: Tell | None = None,
) -> Path:  # fmt: skip
    """Draw a Perfetto file, or what `perfetto.save` makes of a trace, as .svg or .png; returns that path. Same input, same bytes.

    The window is the whole trace, or what lies between `from_us` and `to_us`; a track that has nothing in it is left out.
    `progress` is told how far it is.
    Raises ProgramError for another suffix, a window with nothing in it or a file that is not Perfetto's, Unsupported
    without the extras. Nothing is written then.
    """
    picture.require(target)
    where = str(of) if isinstance(of, str | Path) else "picture"
    first, then, last = weighted(progress, 5, 4, 3)
    tracks = pftrace.load(of, first) if isinstance(of, str | Path) else _made(of, first)
    window = _window(tracks, from_us, to_us, where)
    shown = _shown(tracks, window)
    if not shown:
        low, high = _extent(tracks)
        if low == high:
            raise ProgramError(where, "a trace of nothing", "a run that executes an instruction")
        raise ProgramError(where, f"nothing from {_us(window[0])} to {_us(window[1])} us", f"a window inside {_us(low)} to {_us(high)} us")
    page = _Page(window, shown)
    if page.height > TALLEST:
        raise ProgramError(where, f"{len(shown)} tracks, too many for a picture", "a window with fewer")
    return picture.save(page.figure(then, last), Path(target), [window, [_content(t) for t in shown]])


def _made(of: SystemTrace | Runtime | Trace | Result, progress: Tell | None) -> list[Track]:
    first, then = weighted(progress, 1, 2)
    with tempfile.TemporaryDirectory() as folder:
        return pftrace.load(perfetto.save(of, Path(folder) / "picture.pftrace", progress=first), then)


def _content(t: Track) -> list[Any]:
    """All that is drawn of a track."""
    return [t.name, t.level, t.unit, t.labels, [[s.name, s.start, s.end, s.depth, s.leaves, s.reaches] for s in t.slices], t.samples]


def _us(ns: float) -> str:
    return f"{ns / 1000:.3f}".rstrip("0").rstrip(".")


# --- what is shown -----------------------------------------------------------------------------------------------


def _extent(tracks: Sequence[Track]) -> tuple[int, int]:
    """First and last moment."""
    times = [t for k in tracks for s in k.slices for t in (s.start, s.end)] + [t for k in tracks for t, _ in k.samples]
    return min(times, default=0), max(times, default=0)


def _window(tracks: Sequence[Track], from_us: float | None, to_us: float | None, where: str) -> tuple[int, int]:
    low, high = _extent(tracks)
    given = [v for v in (from_us, to_us) if v is not None]
    if not all(map(math.isfinite, given)):
        raise ProgramError(where, f"a window of {' to '.join(map(str, given))} us", "finite times")
    start = low if from_us is None else round(from_us * 1000)
    end = max(high, low + 1) if to_us is None else round(to_us * 1000)
    if start >= end:
        raise ProgramError(where, f"an empty window, {_us(start)} to {_us(end)} us", f"a window inside {_us(low)} to {_us(high)} us")
    return start, end


def _shown(tracks: Sequence[Track], window: tuple[int, int]) -> list[Track]:
    """What the window shows of the tracks: those with something in it, and those that they stand in."""
    out: list[Track] = []
    below = -1  # the level of the nearest shown track beneath
    for t in reversed(tracks):
        cut = attrs.evolve(t, slices=[s for s in t.slices if _inside(s, window)], samples=_held(t.samples, window))
        if cut.slices or cut.samples or below > t.level:
            out.append(cut)
            below = t.level
    return out[::-1]


def _inside(s: Slice, window: tuple[int, int]) -> bool:
    start, end = window
    return s.start <= end and (s.end > start or s.start >= start)


def _held(samples: Sequence[tuple[int, float]], window: tuple[int, int]) -> list[tuple[int, float]]:
    """Samples of the window, and at its start the value held from before; nothing if there is none in it."""
    start, end = window
    before = [v for t, v in samples if t < start]
    inside = [s for s in samples if start <= s[0] <= end]
    return [*([(start, before[-1])] if before and inside else []), *inside]


def _arrows(shown: Sequence[Track]) -> list[tuple[tuple[int, Slice], tuple[int, Slice]]]:
    """Pairs of a track's index and a slice: from each slice of an arrow's number to the next in time."""
    ends: dict[int, list[tuple[int, int, int, Slice]]] = {}
    for k, t in enumerate(shown):
        for s in t.slices:
            for step, numbers in enumerate((s.leaves, s.reaches)):
                for number in numbers:
                    ends.setdefault(number, []).append((s.start, step, k, s))
    chains = [sorted(ends[n], key=lambda v: v[:3]) for n in sorted(ends)]
    return [((a[2], a[3]), (b[2], b[3])) for chain in chains for a, b in itertools.pairwise(chain)]


def colour(name: str) -> str:
    """Of slices by name; numbers in it do not count, so that neighbours of a kind look alike."""
    number = hashlib.sha512(re.sub(r"\d+", "", name).encode("utf-8", "backslashreplace")).digest()[:4]
    red, green, blue = (round(255 * v) for v in colorsys.hls_to_rgb(int.from_bytes(number) % 360 / 360, 0.74, 0.58))
    return f"#{red:02x}{green:02x}{blue:02x}"


# --- where it stands ---------------------------------------------------------------------------------------------


class _Page:
    """Tracks laid out below each other."""

    def __init__(self, window: tuple[int, int], shown: Sequence[Track]) -> None:
        self.window, self.shown = window, shown
        lines = [t for t in shown if t.slices or t.samples]
        ranges = max([text_width(_range(t), SLICE_SIZE) + 8 for t in lines if t.samples], default=0.0)
        labels = [self.indent(t) + text_width(self.label(t), LABEL_SIZE) + (ranges if t.samples else 0) for t in lines]
        self.left = 12 + math.ceil(max(labels))
        self.right = WIDTH - MARGIN
        self.tops: list[float] = []
        y = MARGIN + AXIS
        for t in shown:
            self.tops.append(y)
            y += COUNTER + GAP if t.samples else BAR * (1 + max((s.depth for s in t.slices), default=0)) + GAP
        self.height = y + MARGIN

    def indent(self, t: Track) -> float:
        return MARGIN + INDENT * min(t.level, DEEPEST)

    def label(self, t: Track) -> str:
        text = " · ".join((t.name, *t.labels))
        return fitting(_plain(text), LONGEST, LABEL_SIZE)

    def x(self, ns: float) -> float:
        """A moment on the page, where the window ends if it lies outside."""
        start, end = self.window
        return round(self.left + (self.right - self.left) * (min(max(ns, start), end) - start) / (end - start), 2)

    def middle(self, track: int, s: Slice) -> float:
        return self.tops[track] + BAR * (s.depth + 0.5) - 0.5

    def boxes(self, t: Track) -> list[tuple[Slice, float, float]]:
        """Slices of a track with left and right; of those too thin to tell apart the longest."""
        thin: dict[tuple[int, int], Slice] = {}
        wide: list[Slice] = []
        for s in t.slices:
            if s.end == s.start:
                continue
            if self.x(s.end) - self.x(s.start) >= FINEST:
                wide.append(s)
                continue
            place = s.depth, int(self.x(s.start) / FINEST)
            if place not in thin or s.end - s.start > thin[place].end - thin[place].start:
                thin[place] = s
        return [(s, self.x(s.start), max(self.x(s.end), self.x(s.start) + FINEST)) for s in (*thin.values(), *wide)]

    def figure(self, progress: Tell | None = None, later: Tell | None = None) -> Any:
        """The drawing, as a matplotlib Figure; `later` is told of tracks when it is written."""
        canvas = picture.Canvas(WIDTH, self.height)
        self._grounds(canvas)
        self._axis(canvas)
        for k, t in enumerate(told(self.shown, progress, 1)):
            if t.samples:
                self._counter(canvas, t, self.tops[k])
            self._slices(canvas, k, t)
            if later is not None:
                canvas.milestone(functools.partial(later, k + 1, len(self.shown)))
        self._arrows(canvas)
        return canvas.figure

    def _grounds(self, c: Canvas) -> None:
        """Labels, and the bars of tracks that only hold others."""
        for t, top in zip(self.shown, self.tops, strict=True):
            x = self.indent(t)
            if t.slices or t.samples:
                height = COUNTER if t.samples else BAR
                c.line([(x, top - GAP / 2), (self.right, top - GAP / 2)], "#eef0f2", 0.4, behind=True)
                c.text(x, top + height / 2, self.label(t), LABEL_SIZE, DARK)
                if t.samples:
                    c.text(self.left - 6, top + height / 2, _range(t), SLICE_SIZE, "#7a8794", "right")
            else:
                fill, ink = (DARK, "white") if t.level == 0 else (GREY, DARK)
                c.box(x - 4, top, self.right, top + BAR, fill)
                c.text(x, top + BAR / 2, self.label(t), LABEL_SIZE, ink)

    def _axis(self, c: Canvas) -> None:
        y, bottom = MARGIN + AXIS - 6, self.height - MARGIN
        c.line([(self.left, y), (self.right, y)], DARK, 0.6)
        for ns in ticks(*self.window):
            x, label = self.x(ns), _us(ns)
            c.line([(x, y - 3), (x, y)], DARK, 0.6)
            c.line([(x, MARGIN + AXIS), (x, bottom)], "#dfe3e6", 0.4, behind=True)
            half = text_width(label, LABEL_SIZE) / 2
            c.text(min(x, WIDTH - 2 - half), y - 8, label, LABEL_SIZE, DARK, "center")
        c.text(MARGIN, y - 8, "us", LABEL_SIZE, DARK)

    def _counter(self, c: Canvas, t: Track, top: float) -> None:
        low, high = min(0.0, *(v for _, v in t.samples)), max(0.0, *(v for _, v in t.samples))
        base = top + COUNTER - 1

        def y(value: float) -> float:
            return round(base - (COUNTER - 3) * (value - low) / ((high - low) or 1), 2)

        points: list[tuple[float, float]] = []
        for _, column in itertools.groupby(t.samples, lambda s: int(2 * self.x(s[0]))):
            for at, value in _outline(list(column)):
                points += [(self.x(at), points[-1][1])] if points else []
                points.append((self.x(at), y(value)))
        points.append((self.right, points[-1][1]))
        c.area([(points[0][0], y(0)), *points, (self.right, y(0))], "#c9daea")
        c.line(points, "#4d7ba6", 0.7)

    def _slices(self, c: Canvas, k: int, t: Track) -> None:
        for s, left, right in self.boxes(t):
            top = self.tops[k] + BAR * s.depth
            c.box(left, top, right, top + BAR - 1, colour(s.name), edge=right - left > 3)
            c.text(round((left + right) / 2, 2), self.middle(k, s), fitting(_plain(s.name), right - left - 3), SLICE_SIZE, INK, "center")
        free: dict[int, float] = {}  # at each depth, where the next slice begins
        for s in reversed(t.slices):
            x = self.x(s.start)
            if s.end == s.start:
                c.mark(x, self.middle(k, s), BAR / 2 - 1, colour(s.name))
                c.text(x + 5, self.middle(k, s), fitting(_plain(s.name), free.get(s.depth, self.right) - x - 10), SLICE_SIZE, INK)
            free[s.depth] = x

    def _arrows(self, c: Canvas) -> None:
        start, end = self.window
        for (i, a), (j, b) in _arrows(self.shown):
            if not start <= b.start <= end:
                continue
            source, target = (self.x(min(a.end, b.start)), self.middle(i, a)), (self.x(b.start), self.middle(j, b))
            half = BAR / 2 if source[1] < target[1] else -BAR / 2
            if source[1] == target[1]:
                c.bow(source, target, BAR / 2)
            elif target[0] - source[0] < STEEP:
                c.arrow(source, (target[0], target[1] - half), down=True)
            else:
                c.arrow(source, target)


def _outline(column: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """What can be seen of samples that share a column of the picture: first, lowest, highest and last."""
    if len(column) <= 4:
        return column
    order = sorted(range(len(column)), key=lambda k: column[k][1])
    return [column[k] for k in sorted({0, order[0], order[-1], len(column) - 1})]


def fitting(name: str, room: float, size: float = SLICE_SIZE) -> str:
    """The name, or as much of it as there is room for; empty for less than a few letters."""
    if room < LEAST * 2:
        return ""
    if text_width(name, size) <= room:
        return name
    cuts = (name[:n] + "…" for n in range(min(len(name) - 1, int(room)), LEAST - 1, -1))  # a letter is wider than a point
    return next((cut for cut in cuts if text_width(cut, size) <= room), "")


def ticks(start: int, end: int, most: int = 12) -> range:
    """Round times in ns."""
    step = 10 ** max(0, len(str((end - start) // most)) - 1)
    step = next(step * k for k in (1, 2, 5, 10, 20) if (end - start) / (step * k) <= most)
    return range(-(-start // step) * step, end + 1, step)


def _range(t: Track) -> str:
    low, high = (f(v for _, v in t.samples) for f in (min, max))
    unit = f" {t.unit}" if t.unit else ""
    return f"{low:g}{unit}" if low == high else f"{low:g}–{high:g}{unit}"


def _plain(text: str) -> str:
    """One line that can be printed."""
    return text if text.isprintable() else repr(text)[1:-1]
