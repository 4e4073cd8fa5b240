"""What a notebook shows: small HTML tables, and pictures where matplotlib is there. Bounded in size, whatever the run's.

Every text is escaped. A table has at most `MOST` rows, or `RECORDS`, and tells how many more there are; a picture is drawn of runs up to
`DRAWN` instructions.
"""

from __future__ import annotations

import base64
import functools
import linecache
import math
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from ..analysis.advice import Explanation
from ..analysis.spare import Slack
from ..analysis.sweeps import Sweep
from ..chip import STATUSES, UNCERTAIN, Chip
from ..isa.errors import NcSimError
from ..notebook import Records
from ..profile.schema import fields
from ..profile.table import Table, plain
from ..program import Program
from ..replay import Replay
from ..result import Result
from . import lanes, text
from .roofline import Roofline, draw
from .study.measurement import Study

MOST, RECORDS = 20, 50  # rows of a table, and of one of a report's records
LONGEST = 160  # letters of a cell
LINES, WIDEST = 60, 300  # of plain text
DRAWN = 2_000  # instructions of a run with a picture
LARGEST = 300_000  # bytes of a picture
CUT = "…"


@functools.singledispatch
def html(of: Any) -> str:
    """An object as HTML; one that nothing here knows, as its plain text."""
    return _part("pre", plain_text(of))


def plain_text(of: Any) -> str:
    """An object where there is no HTML: its `text()` or repr, cut to `LINES` lines."""
    if isinstance(of, Result):
        lines = text.summary(of).splitlines()
    elif isinstance(of, Replay):
        lines = text.comparison(of).splitlines()
    elif isinstance(of, Records) and of:
        lines = text.table(*_records(of))
    elif isinstance(of, Sweep):
        lines = [_counted(of), *text.table(OF_CASE, _cases(of))]
    elif isinstance(of, Study):
        lines = text.table(OF_VARIANT, _variants(of))
    elif isinstance(of, Slack):
        lines = [_slack(of)]
    else:
        lines = str(of.text() if callable(getattr(of, "text", None)) else repr(of)).splitlines()
    more = [f"{CUT} and {len(lines) - LINES:,} more lines"] if len(lines) > LINES else []
    return "\n".join([*(line if len(line) <= WIDEST else line[:WIDEST] + CUT for line in lines[:LINES]), *more])


def with_cells(told: str) -> str:
    """Lines of cells by the cell's number, `In[3]:5`: to Jupyter a cell is a file that is named by a hash of its text."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    named: Any = getattr(getattr(shell, "compile", None), "format_code_name", None)
    if named is None:
        return told
    names: dict[str, str] = {Path(file).name: found[1] for file in list(linecache.cache) if (found := named(file))}
    return CELL.sub(lambda m: f"{names.get(m[1], m[1])}:", told)


CELL = re.compile(r"\b(\d+\.py):(?=\d)")


# --- pieces ------------------------------------------------------------------------------------------------------


def _cell(value: Any) -> str:
    told = "" if value is None else f"{value:,.4g}" if isinstance(value, float) else str(value)
    return escape(told if len(told) <= LONGEST else told[:LONGEST] + CUT)


def _part(tag: str, content: str) -> str:
    return f"<{tag}>{escape(content)}</{tag}>"


def _title(name: str, said: str = "", extrapolated: str | None = "") -> list[str]:
    out = [f"<p><b>{_cell(name)}</b> {escape(said)}</p>"]
    return out + ([f"<p><i>extrapolated: {escape(extrapolated)}</i></p>"] if extrapolated else [])


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]], count: int, what: str = "rows", most: int = MOST) -> str:
    """The first of `count` rows; numbers stand right."""
    shown = [list(row) for row in islice(rows, most)]
    aligned = ["right" if _numeric([r[k] for r in shown]) else "left" for k in range(len(head))]
    body, heads = (
        ["".join(f'<{tag} style="text-align: {a}">{_cell(v)}</{tag}>' for v, a in zip(row, aligned, strict=True)) for row in part]
        for tag, part in (("td", shown), ("th", [head]))
    )
    more = _part("p", f"{CUT} and {count - most:,} more {what}") if count > most else ""
    rows_of = "".join(f"<tr>{row}</tr>" for row in body)
    return f"<table><thead><tr>{heads[0]}</tr></thead><tbody>{rows_of}</tbody></table>{more}"


def _numeric(column: Sequence[Any]) -> bool:
    """Numbers, maybe with units behind them; a dash stands for none."""
    told = [str(v).split(" ")[0].replace(",", "").replace(".", "", 1).lstrip("+-") for v in column if v not in ("-", None)]
    return bool(told) and all(t.isdigit() for t in told)


def _folded(summary: str, content: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def _image(draw_into: Callable[[Path], object], alt: str) -> str:
    """A picture as an image of its own, so that it brings no style into the page; empty without matplotlib, or if too large."""
    if find_spec("matplotlib") is None:
        return ""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "picture.svg"
        try:
            draw_into(path)
        except NcSimError:  # nothing to draw
            return ""
        data = path.read_bytes()
    if len(data) > LARGEST:
        return ""
    return f'<img alt="{escape(alt)}" style="max-width: 100%" src="data:image/svg+xml;base64,{base64.b64encode(data).decode()}">'


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


# --- runs and programs -------------------------------------------------------------------------------------------


@html.register
def _(r: Result) -> str:
    s, body = r.summary(), r.duration_ns
    out = _title(s["program"], f"on {s['chip']} ({r.chip.core})", r.chip.extrapolated)
    times = [text.us(s[k]) for k in ("duration_ns", "total_time_ns", "benchmark_ns")]
    work = [f"{s['instructions']:,}", text.size(s["hbm_read_bytes"]), text.size(s["hbm_write_bytes"]), f"{s['flops'] / 1e6:,.2f} Mflop"]
    out.append(_table(("body", "profile total", "benchmark", "instructions", "HBM read", "written", "products"), [(*times, *work)], 1))
    engines = [(k, f"{e['instructions']:,.0f}", text.us(e["busy_ns"]), _share(e["busy_ns"], body)) for k, e in s["engines"].items()]
    out.append(_table(("engine", "instructions", "active", "of body"), engines, len(engines)))
    if s["phase_range_ns"]:
        low, high = s["phase_range_ns"]
        out.append(_part("p", f"over the phases of the clock gate: {text.us(low)} to {text.us(high)}"))
    for what in ("what_if", "without", "races", "observed_semaphores"):
        said = [f"{k}={v}" for k, v in s[what].items()] if isinstance(s[what], dict) else s[what]
        if said:
            more = f" {CUT} and {len(said) - MOST:,} more" if len(said) > MOST else ""
            out.append(f"<p>{escape(what.replace('_', ' '))}: {', '.join(map(_cell, said[:MOST]))}{more}</p>")
    if s["assumed"]:
        told = f"rests on {len(s['assumed'])} numbers that no source gives for this chip"
        out.append(_folded(told, _table(("number", "status and source"), s["assumed"].items(), len(s["assumed"]))))
    if len(r.steps) > DRAWN:
        out.append(_part("p", f"more than {DRAWN:,} instructions: nc_sim.report.lanes.draw makes a picture of any run"))
    elif r.steps:
        out.append(_image(lambda path: lanes.draw(r, path), "timeline by engine"))
    return "".join(out)


@html.register
def _(p: Program) -> str:
    how = "semaphores of its own" if p.explicit else "semaphores are inserted; an engine in brackets is the default"
    out = _title(p.name, f"{len(p.steps):,} calls, {len(p.tensors):,} tensors; {how}")
    tensors = ((t.name, t.kind, t.memory.name, list(t.shape), t.dtype.name) for t in p.tensors.values())
    out.append(_folded("tensors", _table(("tensor", "kind", "memory", "shape", "type"), tensors, len(p.tensors), "tensors")))
    calls = (
        (k, s.engine.label if s.chosen else f"({s.engine.label})", s.instruction, s.line, _signals(p, s))
        for k, s in enumerate(p.steps)
    )  # fmt: skip
    head = ["", "engine", "call", "line", "semaphores"][: 5 if p.explicit else 4]
    out.append(_table(head, (row[: len(head)] for row in calls), len(p.steps), "calls"))
    return "".join(out)


def _signals(p: Program, step: Any) -> str:
    name = p.semaphores
    waits = [f"wait {name.get(w.semaphore, w.semaphore)} >= {w.value}" for w in step.waits]
    updates = [f"{u.op.name.lower()} {u.value} to {name.get(u.semaphore, u.semaphore)}" for u in step.updates]
    return ", ".join(waits + updates)


@html.register
def _(c: Chip) -> str:
    out = _title(c.name, f"{c.core}: {len(c.numbers)} numbers, one tick = {float(1 / c.ticks_per_ns):.6g} ns", c.extrapolated)
    count = {s: sum(n.status == s for n in c.numbers.values()) for s in STATUSES}
    out.append(_table(("how known", "numbers"), [(s, n) for s, n in count.items() if n], len(STATUSES)))
    if c.overrides:
        out.append(_table(("what if", "value"), c.overrides.items(), len(c.overrides), "overrides"))
    unsure = [(k, text.value(n.value), n.status, n.source) for k, n in sorted(c.numbers.items()) if n.status in UNCERTAIN]
    head = ("number", "value", "status", "source")
    out.append(_folded(f"{len(unsure)} numbers that no source gives for this chip", _table(head, unsure, len(unsure), "numbers")))
    return "".join(out)


@html.register
def _(r: Replay) -> str:
    s = r.summary()
    out = _title(s["trace"], f"replayed on {s['chip']}: {s['instructions']:,} instructions", r.chip.extrapolated)
    body = (text.us(s["total_simulated_ns"]), text.us(s["total_measured_ns"]), f"{s['total_error_percent']:+.2f} %")
    starts = tuple(f"{s[k]:.2f} %" for k in ("median_start_error_percent", "p95_start_error_percent"))
    out.append(_table(("body, simulated", "measured", "off", "starts off, median", "p95"), [body + starts], 1))
    rows = [(k, *(v[n] for n in OF_OPCODE)) for k, v in s["by_opcode"].items()]
    out.append(_table(("opcode", *(n.replace("_", " ") for n in OF_OPCODE)), rows, len(rows), "opcodes"))
    return "".join(out)


OF_OPCODE = ("count", "measured_median_ns", "simulated_median_ns", "median_duration_error_percent")


# --- reports -----------------------------------------------------------------------------------------------------


@html.register
def _(of: Records) -> str:  # type: ignore[type-arg]
    return _table(*_records(of[:RECORDS]), len(of), most=RECORDS) if of else _part("p", "nothing")


def _records(of: Records[Any]) -> tuple[list[str], list[list[str]]]:
    """Names of fields, and the first rows."""
    names = [a.name for a in attrs.fields(type(of[0]))]
    rows = [[str(_plain(n, getattr(r, n))) for n in names] for r in of[:RECORDS]]
    more = [[f"{CUT} and {len(of) - RECORDS:,} more", *[""] * (len(names) - 1)]] if len(of) > RECORDS else []
    return [n.replace("_", " ") for n in names], rows + more


def _plain(name: str, value: Any) -> Any:
    """Shares in percent, times with one decimal."""
    if isinstance(value, float) and name in ("share", "gain"):
        return f"{100 * value:.1f} %"
    if isinstance(value, float) and name.endswith("ns"):
        return f"{value:,.1f}"
    return ", ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, Mapping) else value


@html.register
def _(of: Slack) -> str:
    return _part("p", _slack(of))


def _slack(of: Slack) -> str:
    how = "exact" if of.exact else f"an estimate: {'; '.join(of.bounds)}"
    ns, count = np.asarray(of.ns), len(of.ticks)
    most = f", the most has {text.us(float(ns.max()))}" if count else ""
    return f"slack ({how}): {int(np.count_nonzero(ns == 0)):,} of {count:,} instructions have none{most}"


@html.register
def _(of: Explanation) -> str:
    out = _title(of.program, f"on {of.chip}: {text.us(of.body_ns)}", of.extrapolated)
    out.append(f"<ul>{''.join(_part('li', s) for s in of.sentences)}</ul>")
    if not of.promising:
        return "".join([*out, _part("p", "No single change of a cost promises anything.")])
    rows = [(g.says, text.us(g.body_ns), f"{100 * g.gain:.1f} %", g.hint) for g in of.promising]
    out.append(_table(("if there were", "body", "less, at most", "what comes near it"), rows, len(rows)))
    return "".join([*out, _part("p", "Each is an upper bound: the cost is gone, or the rate doubled, and all else stays.")])


@html.register
def _(of: Roofline) -> str:
    said = [_part("p", f"{chip} is extrapolated: {why}") for chip, why in of.extrapolated.items()]
    rows = [
        (p.name, p.chip, p.engine, _rate(p.achieved, p.unit), _finite(p.intensity), _finite(p.algorithmic_intensity), p.bound,
         f"{100 * p.of_roof:.1f} %")
        for p in of.points
    ]  # fmt: skip
    head = ("run", "chip", "engine", "achieved", "per HBM byte", "algorithmic", "bound", "of roof")
    picture = _image(lambda path: draw(of, path), "roofline") if len(of.points) <= MOST else ""
    return "".join([*said, _table(head, rows, len(rows), "points"), picture])


def _rate(per_ns: float, unit: str) -> str:
    """Work per second."""
    return f"{per_ns:,.1f} G{unit}/s"


def _finite(x: float) -> str:
    return f"{x:,.2f}" if math.isfinite(x) else "-"


@html.register
def _(of: Sweep) -> str:
    said = dict.fromkeys((c.chip, c.summary["extrapolated"]) for c in of if c.summary.get("extrapolated"))
    out = [_part("p", _counted(of))]
    out += [_part("p", f"{chip} is extrapolated: {why}") for chip, why in said]
    return "".join([*out, _table(OF_CASE, _cases(of), len(of.cases), "cases")])


OF_CASE = ("sizes", "chip", "what if", "body", "error")


def _counted(of: Sweep) -> str:
    return f"{len(of.cases):,} cases" + (f", {len(of.failed):,} failed" if of.failed else "")


def _cases(of: Sweep) -> list[tuple[str, ...]]:
    """The first rows; where there are more, those that failed come first, not to be lost behind many that did not."""
    first = sorted(of.cases, key=lambda c: not c.error) if len(of.cases) > MOST else of.cases
    return [
        (c.shape or "-", c.chip, c.what_if or "-", "-" if c.error else text.us(c.summary["duration_ns"]), c.error) for c in first[:MOST]
    ]


@html.register
def _(of: Study) -> str:
    s = of.summary()
    facts = ", ".join(f"{k}: {v}" for k, v in of.facts.items() if isinstance(v, int | str | list))
    out = _title("study", f"{facts}, on {s['chip']}, host profile {s['host_profile']}", s["extrapolated"])
    out.append(_table(OF_VARIANT, _variants(of), len(of.variants)))
    return "".join([*out, _part("p", "device us, dispatches and bytes are simulated; the rest of Self NEURON is set by the host profile")])


OF_VARIANT = ("variant", "Self NEURON us", "device us", "dispatches", "HBM read B", "HBM write B")


def _variants(of: Study) -> list[tuple[str, ...]]:
    keys = ("self_neuron_us", "device_us", "dispatches", "hbm_read_bytes", "hbm_write_bytes")
    return [(k, *(f"{v[n]:,}" for n in keys)) for k, v in of.variants.items()]


@html.register
def _(of: Table) -> str:
    part = next(iter(of.parts()), {})
    names = [f.name for f in fields(of.name) if f.name in part]
    rows = zip(*(plain(part[n][:MOST]) for n in names), strict=True)
    empty = len(fields(of.name)) - len(names)
    out = _title(of.name, f"{of.rows:,} rows" + (f", {empty} columns are null" if empty else ""))
    return "".join([*out, f'<div style="overflow-x: auto">{_table(names, rows, of.rows)}</div>'])
