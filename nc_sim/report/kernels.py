"""Whole kernels beside their measurement, as text and as a part of docs/accuracy.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..accuracy import kernels
from ..accuracy.compare import LIMIT_PERCENT
from ..accuracy.kernels import NEAR_PERCENT, Kernel, Predicted
from . import markdown, text

HEAD = ("kernel", "chip", "measured", "simulated", "error", "gate phases", "on assumed numbers")


def comparison(predicted: Sequence[Predicted], changes: Mapping[str, Any]) -> str:
    """Every kernel, its variants below it, and why it is off or left out."""
    ran = [p for p in predicted if p.simulated is not None]
    lines = [f"{len(predicted)} measured kernel{'s' * (len(predicted) != 1)}, {len(ran)} simulated, {len(predicted) - len(ran)} excluded"]
    lines += [f"  {line}" for line in _errors(predicted)]
    lines += text.changed(changes)
    rows = []
    for p in ran:
        rows.append(_row(p, p.kernel.id))
        rows += [(f"  {name}", "", "", *_variant(p, value), "", "") for name, value in p.variants.items()]
    lines += text.table(HEAD, rows, indent="  ")
    lines += [f"{p.kernel.id}: {p.kernel.explained}" for p in ran if p.kernel.explained]
    lines += [f"not explained: {p.kernel.id} {p.error_percent:+.1f} %" for p in kernels.unexplained(ran)]
    lines += [f"excluded: {p.kernel.id}: {p.excluded_because}" for p in predicted if p.simulated is None]
    return "\n".join(lines)


def _row(p: Predicted, name: str) -> tuple[str, ...]:
    k = p.kernel
    phases = "" if p.low is None or p.high is None else f"{_error(p, p.low)} to {_error(p, p.high)}"
    assert p.simulated is not None
    return name, k.chip, _measured(k), _simulated(p.simulated, k), _error(p, p.simulated), phases, f"{100 * p.assumed_share:.1f} %"


def _variant(p: Predicted, value: float) -> tuple[str, str]:
    return _simulated(value, p.kernel), _error(p, value)


def _measured(kernel: Kernel) -> str:
    """As its source has it, with commas."""
    return f"{kernel.value:,.12g} {kernel.unit}"


def _simulated(value: float, kernel: Kernel) -> str:
    """Four digits; from a thousand on whole, with commas. Never an exponent."""
    return f"{value:,.0f} {kernel.unit}" if value >= 999.95 else f"{value:.4g} {kernel.unit}"


def _error(p: Predicted, value: float) -> str:
    return f"{100 * (value / p.kernel.value - 1):+.1f} %"


def _errors(predicted: Sequence[Predicted]) -> list[str]:
    """The errors of all kernels in a line; none where none ran."""
    s = kernels.summary(predicted, {})
    if not s["simulated"]:
        return []
    within = f"{s['within_5']} of {s['simulated']} within {NEAR_PERCENT:g} %, {s['within_10']} within {LIMIT_PERCENT:g} %"
    return [f"|error| as described: mean {s['mape_percent']:.1f} %, median {s['median_percent']:.1f} %; {within}"]


def section() -> list[str]:
    """The lines of the page."""
    data = kernels.load()
    predicted = kernels.predict(data.kernels)
    ran = [p for p in predicted if p.simulated is not None]
    lines = ["", "## Whole kernels", ""]
    lines += [
        "`nc-sim accuracy kernels` runs programs of our own, built from the published description of kernels that others",
        "measured (`nc_sim/accuracy/kernels.toml`). They are reported, and nothing was fitted to them. Calls stand in the order of",
        "the description; a variant changes one thing more at each line and shows what a difference comes from.",
        "",
        f"{len(predicted)} kernels, {len(ran)} simulated, {len(predicted) - len(ran)} excluded. {_errors(predicted)[0]}.",
        "Of each kernel's variants the last but those that switch something off is the order nearest to the compiler's.",
        "",
    ]
    rows = []
    for p in ran:
        rows.append(_row(p, f"`{p.kernel.id}`: {p.kernel.what}"))
        rows += [(f"… {name}", "", "", *_variant(p, value), "", "") for name, value in p.variants.items()]
    lines += markdown.table(HEAD, rows)
    lines += [
        "",
        "Gate phases: the same over 16 phases of the clock gate, for kernels with products.",
        "",
        "### Whole kernels: explanations",
        "",
    ]
    shown = [(f"`{p.kernel.id}`", _error(p, p.simulated), p.kernel.explained) for p in ran if p.kernel.explained and p.simulated]
    lines += [f"Of kernels off by more than {LIMIT_PERCENT} %: a mechanism that a variant shows, or that none is known.", ""]
    lines += markdown.table(("kernel", "error", "why"), shown)
    if missing := kernels.unexplained(ran):
        lines += ["", f"Not explained yet: {markdown.code(p.kernel.id for p in missing)}."]
    lines += ["", "### Whole kernels: excluded", ""]
    lines += markdown.table(
        ("kernel", "what", "measured", "why"),
        [(f"`{p.kernel.id}`", p.kernel.what, _measured(p.kernel), p.excluded_because) for p in predicted if p not in ran],
    )
    lines += ["", "### Whole kernels: sources and what they leave open", ""]
    lines += markdown.table(("code", "what it is"), [(f"`{code}`", what) for code, what in data.sources.items()])
    lines += [""]
    return lines + markdown.table(
        ("kernel", "source", "the description does not say; here"),
        [(f"`{k.id}`", f"{k.source}: {k.place}" + (f", {k.stat}" if k.stat else ""), k.assumes) for k in data.kernels],
    )
