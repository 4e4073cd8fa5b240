"""Pictures of studies. Needs the extra `plot`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..isa.errors import ProgramError, Unsupported
from ..trace.stored import whole

SUFFIXES = (".svg", ".png")
COLOURS = {"device": "#1f4e79", "rest": "#c8d3de"}
OVER = {"textcoords": "offset points", "ha": "center", "fontsize": 7}  # a number over a bar
PANELS = {"naive_over_rms_norm": "Self NEURON", "device_naive_over_rms_norm": "device time"}


def require(path: str | Path) -> None:
    """Before long work: ProgramError unless the name ends in .svg or .png, Unsupported without matplotlib."""
    if Path(path).suffix not in SUFFIXES:
        raise ProgramError(
            str(path), f"a picture {Path(path).suffix or 'without a suffix'}", f"a name that ends in {' or '.join(SUFFIXES)}"
        )
    _module("matplotlib")


def sweep(points: Sequence[Mapping[str, Any]], path: str | Path) -> Path:
    """Six operations over the fused kernel, by columns, a line for each number of rows; returns the path.

    `points` are those of `study.sweep`. The same points give the same bytes. Errors as `require`.
    """
    require(path)
    path = Path(path)
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
    figure.suptitle("RMSNorm, bf16: what fusion gains (simulated)")
    return _save(figure, path)


def parts(summary: Mapping[str, Any], path: str | Path) -> Path:
    """Self NEURON of every part of a transformer block, by variant: device time, and on it the rest; returns the path.

    `summary` is that of a transformer study. The right panel shows device time alone, on a scale of its own.
    The same numbers give the same bytes. Errors as `require`.
    """
    require(path)
    path = Path(path)
    names = [*dict.fromkeys(part for v in summary["variants"].values() for part in v["parts"])]
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
    figure.legend(handles=[patch(color=COLOURS[k], label=t) for k, t in legend.items()], loc="outside lower center", ncols=2, frameon=False)
    size = "x".join(map(str, summary["shape"]))
    figure.suptitle(
        f"Transformer block, [{size}] bf16, {summary['heads']} heads, MLP {summary['ff']}, layers: {summary['layers']},"
        f" in flight: {summary['in_flight']} (simulated)"
    )
    return _save(figure, path)


def _save(figure: Any, path: Path) -> Path:
    kind = path.suffix[1:]
    # ids from a fixed salt, and no date
    with _module("matplotlib").rc_context({"svg.hashsalt": "nc-sim"}), whole(path) as file:
        figure.savefig(file, format=kind, metadata={"Date": None} if kind == "svg" else {"Software": None}, dpi=150)
    return path


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise Unsupported("picture", "the package matplotlib is not installed", "pip install nc-sim[plot]") from None
