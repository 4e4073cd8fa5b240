"""Where the time goes, as text and as plain values: stalls, critical path, slack, overlap and DMA rows of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from .. import mechanisms
from ..analysis import Segment, Slack, critical_path, dma_rows, overlap, shares, slack, stalls
from ..analysis.history import History, history
from ..analysis.movement import Overlap
from ..progress import Tell, weighted
from ..result import Result
from .text import extrapolated, table, us


def record(result: Result, progress: Tell | None = None) -> dict[str, Any]:
    """Everything of this module as plain values; times in ns and ticks."""
    facts, path, spare = _facts(result, progress)
    return {
        "program": result.program.name,
        "chip": result.chip.name,
        "extrapolated": result.chip.extrapolated or None,
        "duration_ns": result.duration_ns,
        "stalls": [attrs.asdict(p) for p in stalls(result, facts)],
        "critical_path": [attrs.asdict(s) for s in path],
        "critical_path_by_kind": [attrs.asdict(s) for s in shares(result, path, "where,kind")],
        "critical_path_by_line": [attrs.asdict(s) for s in shares(result, path, "line")],
        "slack_ns": spare.ns.tolist(),
        "slack_exact": spare.exact,
        "slack_bounds": list(spare.bounds),
        "overlap": [attrs.asdict(o) for o in overlap(result)],
        "dma_rows": [attrs.asdict(r) | {"efficiency": r.efficiency} for r in dma_rows(result)],
    }


def text(result: Result, segments: int = 0, loosest: int = 5, progress: Tell | None = None) -> str:
    """All of it; `segments` of the critical path from its end, and the `loosest` instructions by slack."""
    facts, path, spare = _facts(result, progress)
    out = [f"{result.program.name} on {result.chip.name}: body {us(result.duration_ns)}", *changed(result)]
    out += ["", "each engine's time:"]
    rows: list[tuple[str, ...]] = [(p.engine, p.cause, p.on or "-", us(p.ns), _percent(p.share)) for p in stalls(result, facts)]
    out += table(("engine", "cause", "of", "time", "of body"), rows, indent="  ")
    for title, by in (("the critical path by what it is spent on:", "where,kind"), ("and by source line:", "line")):
        rows = [(s.name, us(s.ns), _percent(s.share), str(s.segments)) for s in shares(result, path, by)]
        out += ["", title, *table(("what", "time", "of body", "pieces"), rows, indent="  ")]
    if segments:
        last = path[-segments:]
        rows = [(us(s.start_ns), us(s.end_ns - s.start_ns), s.where, s.opcode, s.kind, s.line or "(inserted)") for s in last]
        out += ["", "its last pieces:", *table(("from", "for", "where", "opcode", "what", "line"), rows, indent="  ")]
    out += ["", *_slack(result, spare.ns, spare.bounds, loosest)]
    out += ["", "working at the same time, of the body (from start to visible result):", *_matrix(overlap(result))]
    if moved := dma_rows(result):
        rows = [
            (r.direction, str(r.row_bytes), str(r.dmas), str(r.packets), f"{r.bytes_per_ns:.2f}", f"{r.effective_bytes_per_ns:.2f}",
             f"{r.peak_bytes_per_ns:.2f}", _percent(r.efficiency))
            for r in moved
        ]  # fmt: skip
        head = ("DMA", "row bytes", "DMAs", "packets", "B/ns sending", "B/ns in all", "peak", "of peak")
        out += ["", "one DMA engine, by length of rows:", *table(head, rows, indent="  ")]
    return "\n".join(out)


def _facts(result: Result, progress: Tell | None) -> tuple[History, tuple[Segment, ...], Slack]:
    first, second = weighted(progress, 2, 3)
    facts = history(result.table, result.timeline)
    return facts, critical_path(result, facts, first), slack(result, facts, second)


def changed(result: Result) -> list[str]:
    """Lines under a head: what about the chip is not as in its file, and that it is extrapolated."""
    changes = mechanisms.changes(result.chip.overrides, result.without)
    return [*([f"  {changes}"] if changes else []), *extrapolated(result.chip.extrapolated, "  ")]


def _slack(result: Result, ns: Any, bounds: Sequence[str], loosest: int) -> list[str]:
    tight = int(np.count_nonzero(ns == 0))
    how = "exact" if not bounds else f"an estimate: {'; '.join(bounds)}"
    out = [f"slack ({how}): {tight} of {len(ns)} instructions have none; the most have"]
    order = np.argsort(-ns, kind="stable")[:loosest].tolist()
    rows = [(us(float(ns[k])), result.steps[k].engine.label, result.steps[k].instruction.opcode, result.steps[k].line) for k in order]
    return out + table(("slack", "engine", "opcode", "line"), rows, indent="  ")


def _matrix(pairs: Sequence[Overlap]) -> list[str]:
    names = list(dict.fromkeys(o.engine for o in pairs))
    at = {(o.engine, o.other): o.share for o in pairs}
    rows = [(a, *(_percent(at[a, b]) if (a, b) in at else "" for b in names)) for a in names]
    return table(("", *names), rows, indent="  ")


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
