"""Pictures: how they are drawn and written, and that of a sweep. Needs the extra `plot`."""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..isa.errors import ProgramError, missing_extra
from ..trace.stored import whole

SUFFIXES = (".svg", ".png")
COLOURS = {"device": "#1f4e79", "rest": "#c8d3de"}
OVER = {"textcoords": "offset points", "ha": "center", "fontsize": 7}  # a number over a bar
PANELS = {"naive_over_rms_norm": "Self NEURON", "device_naive_over_rms_norm": "device time"}
POINTS_PER_INCH = 72
PIXELS_PER_INCH = 150
FONT = "DejaVu Sans"  # comes with matplotlib
ARROW = "#30506e"
DIGEST = "nc-sim drawing sha256:"  # in the picture's description, before the hash of what it shows


def require(path: str | Path, suffixes: Sequence[str] = SUFFIXES) -> None:
    """Before long work: ProgramError unless the name ends in .svg or .png, Unsupported without matplotlib."""
    if Path(path).suffix not in suffixes:
        raise ProgramError(
            str(path), f"a picture {Path(path).suffix or 'without a suffix'}", f"a name that ends in {' or '.join(suffixes)}"
        )
    _module("matplotlib")


def sweep(points: Sequence[Mapping[str, Any]], path: str | Path) -> Path:
    """Six operations over the fused kernel, by columns, a line for each number of rows; returns the path.

    `points` are those of `study.sweep`. The same points give the same bytes. Errors as `require`.
    """
    require(path)
    drawn = sorted([p["rows"], p["cols"], *(round(p[key], 9) for key in PANELS)] for p in points)
    with own_settings():
        # a Figure of its own: pyplot keeps state for the whole process
        figure = _module("matplotlib.figure").Figure(figsize=(9, 3.8), layout="constrained")
        for axes, (key, title) in zip(figure.subplots(1, 2, sharex=True), PANELS.items(), strict=True):
            for rows in sorted({p["rows"] for p in points}):
                line = sorted((p["cols"], p[key]) for p in points if p["rows"] == rows)
                axes.plot([x for x, _ in line], [y for _, y in line], marker="o", label=f"{rows} rows")
            columns = sorted({p["cols"] for p in points})
            axes.set_xscale("log", base=2)
            axes.set_xticks(columns, [str(c) for c in columns])
            axes.set_ylim(0, 1.1 * max(p[key] for p in points))
            axes.axhline(1, color="grey", linewidth=0.8, linestyle=":")
            axes.set(title=title, xlabel="columns", ylabel="six operations / fused")
            axes.legend()
        more = ", extrapolated" if any("extrapolated" in p for p in points) else ""
        figure.suptitle(f"RMSNorm, bf16: what fusion gains (simulated{more})")
        return save(figure, Path(path), drawn)


def parts(summary: Mapping[str, Any], path: str | Path) -> Path:
    """Self NEURON of every part of a transformer block, by variant: device time, and on it the rest; returns the path.

    `summary` is that of a transformer study. The right panel shows device time alone, on a scale of its own.
    The same numbers give the same bytes. Errors as `require`.
    """
    require(path)
    drawn = {k: summary[k] for k in ("shape", "heads", "ff", "layers", "in_flight")} | {
        n: v["parts"] for n, v in summary["variants"].items()
    }
    names = [*dict.fromkeys(part for v in summary["variants"].values() for part in v["parts"])]
    with own_settings():
        figure = _module("matplotlib.figure").Figure(figsize=(10, 4.2), layout="constrained")
        for axes, whole_time in zip(figure.subplots(1, 2), (True, False), strict=True):
            at, ticks, labels, top = 0.0, [], [], 0.0
            for variant, v in summary["variants"].items():
                shown = [(n, v["parts"][n]) for n in names if n in v["parts"]]
                first = at
                for n, row in shown:
                    device, rest = row["device_us"], row["self_neuron_us"] - row["device_us"]
                    height = device + rest if whole_time else device
                    axes.bar(at, device, color=COLOURS["device"], width=0.8)
                    if whole_time:
                        axes.bar(at, rest, bottom=device, color=COLOURS["rest"], width=0.8)
                    axes.annotate(f"{row['dispatches']:.0f}" if whole_time else f"{device:.0f}", (at, height), (0, 2), **OVER)
                    ticks.append(at)
                    labels.append(n)
                    top, at = max(top, height), at + 1
                total = v["self_neuron_us"] if whole_time else v["device_us"]
                axes.text((first + at - 1) / 2, 1.03, f"{variant}\n{total:,.0f} us", transform=axes.get_xaxis_transform(), ha="center")
                at += 1
            axes.set_xticks(ticks, labels, rotation=60, ha="right", rotation_mode="anchor", fontsize=8)
            axes.set_ylim(0, 1.1 * top)
            for side in ("top", "right"):
                axes.spines[side].set_visible(False)
            axes.set_ylabel("Self NEURON, us (above: dispatches)" if whole_time else "device time, us")
        patch = _module("matplotlib.patches").Patch
        legend = {"device": "device time (core model)", "rest": "rest of Self NEURON (host profile)"}
        figure.legend(
            handles=[patch(color=COLOURS[k], label=t) for k, t in legend.items()], loc="outside lower center", ncols=2, frameon=False
        )
        size = ", ".join(map(str, summary["shape"]))
        figure.suptitle(
            f"Transformer block, [{size}] bf16, {summary['heads']} heads, MLP {summary['ff']}, layers: {summary['layers']},"
            f" in flight: {summary['in_flight']} (simulated{', extrapolated' if summary.get('extrapolated') else ''})"
        )
        return save(figure, Path(path), drawn)


def save(figure: Any, path: Path, shown: Any) -> Path:
    """Write a Figure as its name says, with the hash of what it shows, given as JSON can hold it, in its description."""
    kind = path.suffix[1:]
    description = DIGEST + hashlib.sha256(json.dumps(shown).encode()).hexdigest()
    # no date: the same bytes on every day
    metadata = {"pdf": {"Subject": description, "CreationDate": None}, "svg": {"Description": description, "Date": None}}
    with own_settings(), whole(path) as file:
        figure.savefig(file, format=kind, dpi=PIXELS_PER_INCH, metadata=metadata.get(kind, {"Description": description}))
    return path


def figure(width: float, height: float) -> Any:
    """An empty Figure of so many inches, of no global state."""
    return _module("matplotlib.figure").Figure(figsize=(width, height), facecolor="white")


@contextmanager
def own_settings() -> Iterator[None]:
    """matplotlib as it comes, whatever the user's settings, and ids from a fixed salt."""
    matplotlib = _module("matplotlib")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams["svg.hashsalt"] = "nc-sim"
        yield


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise missing_extra("picture", "the package matplotlib is not installed", "plot") from None


# --- a page ------------------------------------------------------------------------------------------------------


@functools.lru_cache(1 << 16)
def text_width(text: str, size: float) -> float:
    """In points."""
    font = _module("matplotlib.font_manager").FontProperties(family=FONT, size=size)
    width, _, _ = _module("matplotlib.textpath").text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return float(width)


class Canvas:
    """A page to draw on, in points from its top left."""

    def __init__(self, width: float, height: float) -> None:
        with own_settings():
            size = width / POINTS_PER_INCH, height / POINTS_PER_INCH
            self.figure = _module("matplotlib.figure").Figure(figsize=size, facecolor="white")
            self.axes = self.figure.add_axes((0, 0, 1, 1))
            self.axes.set(xlim=(0, width), ylim=(height, 0))
            self.axes.set_axis_off()
        self.patches, self.paths = _module("matplotlib.patches"), _module("matplotlib.path")

    def milestone(self, reached: Callable[[], None]) -> None:
        """Call back when the boxes so far are drawn into the file: matplotlib itself does not say how far it is."""

        class Milestone(_module("matplotlib.artist").Artist):  # type: ignore[misc]  # the class is found at run time
            def draw(self, renderer: Any) -> None:
                reached()

        one = Milestone()
        one.set_zorder(2)  # of boxes
        self.axes.add_artist(one)

    def box(self, left: float, top: float, right: float, bottom: float, fill: str, edge: bool = False) -> None:
        line = {"linewidth": 0.4, "edgecolor": "white"} if edge else {"linewidth": 0}
        self.axes.add_artist(self.patches.Rectangle((left, top), right - left, bottom - top, facecolor=fill, zorder=2, **line))

    def area(self, points: Sequence[tuple[float, float]], fill: str) -> None:
        self.axes.add_artist(self.patches.Polygon(points, facecolor=fill, linewidth=0, zorder=2))

    def line(self, points: Sequence[tuple[float, float]], colour: str, width: float, behind: bool = False) -> None:
        path = self.paths.Path(points)
        order = 1 if behind else 3
        self.axes.add_artist(self.patches.PathPatch(path, facecolor="none", edgecolor=colour, linewidth=width, zorder=order))

    def mark(self, x: float, y: float, size: float, fill: str) -> None:
        """A moment."""
        corners = [(x, y - size), (x + 0.6 * size, y + size), (x - 0.6 * size, y + size)]
        self.axes.add_artist(self.patches.Polygon(corners, facecolor=fill, edgecolor="#3c4650", linewidth=0.4, zorder=4))

    def arrow(self, source: tuple[float, float], target: tuple[float, float], down: bool = False) -> None:
        """To a target from its left, or straight to its edge."""
        (a, b), (c, d) = source, target
        if down:
            back = -4 if d > b else 4
            self._arrow([(a, b), (c, b), (c, b), (c, d + back / 2)], [(c, d), (c - 2, d + back), (c + 2, d + back)])
        else:
            bend = (c - a) / 2
            self._arrow([(a, b), (a + bend, b), (c - bend, d), (c - 3, d)], [(c, d), (c - 4, d - 2), (c - 4, d + 2)])

    def bow(self, source: tuple[float, float], target: tuple[float, float], half: float) -> None:
        """Over the slices between two of a row, half a slice high."""
        (a, b), (c, _) = source, target
        top, bend = b - half, min(8.0, (c - a) / 2)
        self._arrow(
            [(a, top), (a + bend, top - half), (c - bend, top - half), (c, top)], [(c, top + 1), (c - 3.6, top - 1), (c - 1, top - 3.6)]
        )

    def _arrow(self, curve: Sequence[tuple[float, float]], head: Sequence[tuple[float, float]]) -> None:
        path = self.paths.Path(curve, [1, 4, 4, 4])
        line = {"edgecolor": ARROW, "linewidth": 0.8, "alpha": 0.75}
        self.axes.add_artist(self.patches.PathPatch(path, facecolor="none", zorder=5, **line))
        self.axes.add_artist(self.patches.Polygon(head, facecolor=ARROW, linewidth=0, zorder=5))

    def text(self, x: float, y: float, text: str, size: float, colour: str, align: str = "left") -> None:
        if text:
            style = {"family": FONT, "fontsize": size, "color": colour, "ha": align, "va": "center_baseline", "zorder": 6}
            self.axes.text(x, y, text, parse_math=False, **style)
