"""Pictures of studies. Needs the extra `plot`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..isa.errors import ProgramError, Unsupported
from ..trace.stored import whole

SUFFIXES = (".svg", ".png")
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
    kind = path.suffix[1:]
    # ids from a fixed salt, and no date
    with _module("matplotlib").rc_context({"svg.hashsalt": "nc-sim"}), whole(path) as file:
        figure.savefig(file, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return path


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise Unsupported("picture", "the package matplotlib is not installed", "pip install nc-sim[plot]") from None
