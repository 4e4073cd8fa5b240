"""A hardware trace as text: a timeline by engine, and a list of instructions (docs/traces.md, Text)."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import attrs
import numpy as np

from ..isa import Engine
from ..isa.errors import ProgramError
from ..mechanisms import changes
from ..result import Result
from ..table import Ints
from .hardware import Trace, trace_of

NARROWEST, WIDEST = 40, 10_000  # characters
LABEL = 17  # characters of a row's name
SPACING = 10  # columns from one label of the axis to the next, at least
QUEUES = 16  # rows for DMA queues, at most; the rest is counted

# Kinds of instruction: a letter, what it stands for, and the opcodes.
KINDS = (
    ("L", "weight load", ("LDWEIGHTS",)),
    ("M", "matmul", ("MATMUL",)),
    ("A", "activation", ("ACTIVATE", "ACT_READ_ACCUMULATOR")),
    ("T", "table load", ("ACT_TABLE_LOAD",)),
    ("C", "copy, cast", ("COPY", "CAST")),
    ("R", "reduce", ("TENSOR_REDUCE",)),
    ("V", "elementwise", ("TENSOR_TENSOR", "TENSOR_SCALAR", "SCALAR_TENSOR_TENSOR", "RECIPROCAL", "MEMSET")),
    ("D", "DMA trigger", ("DMA_DIRECT2D", "DMA_INDIRECT", "DMA_TRANSPOSE2D", "DMA_COMPUTE2D")),
    ("S", "semaphore, NOP", ("EVENT_SEMAPHORE", "NOP")),
    ("B", "registers, branch", ("MOVE", "ALU_OP", "TENSOR_LOAD", "TENSOR_STORE", "COMPARE_BRANCH")),
)
OTHER = ("O", "other")
MOVES = {"I": "DMA in from HBM", "E": "DMA out to HBM", "X": "DMA inside one memory"}
WAIT, FULL, GATED, MIXED = ".", "=", "-", "~"
TENTHS = "123456789#"
_LETTERS = {opcode: letter for letter, _, opcodes in KINDS for opcode in opcodes}
_MEANING = {**{letter: name for letter, name, _ in KINDS}, OTHER[0]: OTHER[1], **MOVES}


@attrs.frozen
class _Row:
    """One line of the timeline: its name, one glyph per column, and how much of the time it is busy."""

    label: str
    cells: str
    busy: float


def timeline(of: Trace | Result, width: int = 100) -> str:
    """Engines, DMA queues and the PE's clock gate over time, at most `width` characters wide.

    A column shows what takes most of its time: a capital where the row is busy for at least half of it, a small letter
    where it is busy for less. The size does not grow with the program.
    """
    _check("timeline", "width", width, NARROWEST, WIDEST)
    trace = trace_of(of) if isinstance(of, Result) else of
    i, t = trace.instructions, trace.transfers
    last = (i.start.ns + 1, i.end.ns, i.ready.ns + i.wait.ns, t.start.ns + 1, t.end.ns, trace.gate.end.ns)
    end = max(1, *(int(c.max(initial=0)) for c in last))
    columns = width - LABEL - len(" 100%")
    edges = np.arange(columns + 1, dtype=np.int64) * end  # ns x columns: every edge of a column is exact
    rows = [*_engines(trace, edges), *_queues(trace, edges), *_dma_engines(trace, edges), _gate(trace, edges)]
    queues = len(set(t.queue.values)) - QUEUES
    lines = [*_title(trace, end / columns, width), "", *_axis(end, columns)]
    lines += [f"{r.label:<{LABEL}}{r.cells} {100 * r.busy:3.0f}%" for r in rows]
    lines += [f"and {queues:,} more DMA queues"] if queues > 0 else []
    return "\n".join([*lines, "", *_legend(rows, width)])


def table(of: Trace | Result, limit: int = 50, width: int = 120) -> str:
    """The first `limit` instructions in order of start, one a line; times in ns."""
    _check("table", "limit", limit, 0, 1 << 62)
    _check("table", "width", width, NARROWEST, WIDEST)
    trace = trace_of(of) if isinstance(of, Result) else of
    i = trace.instructions
    order = np.argsort(i.start.ticks, kind="stable")[:limit].tolist()
    head = ("start", "duration", "wait", "engine", "opcode", "line", "operands")
    rows = [list(head)]
    for k in order:
        times = i.start.ns[k], i.end.ns[k] - i.start.ns[k], i.wait.ns[k]
        names = (escape(c[k], 24) for c in (i.engine, i.opcode, i.line))
        rows.append([*(f"{int(ns):,}" for ns in times), *names, escape(i.operands(k), width)])
    sizes = [max(len(r[c]) for r in rows) for c in range(6)]
    lines = []
    for r in rows:
        cells = [f"{r[c]:>{sizes[c]}}" if c < 3 else f"{r[c]:<{sizes[c]}}" for c in range(6)]
        lines.append(shorten("  ".join([*cells, r[6]]).rstrip(), width))
    if (left := len(i) - len(order)) > 0:
        lines.append(f"and {left:,} more")
    return "\n".join(lines)


def escape(name: str, longest: int = LABEL - 1) -> str:
    """A name that cannot disturb a terminal: printable characters only, at most `longest`."""
    shown = (c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in name[: longest + 1])
    return shorten("".join(shown), longest)


def shorten(text: str, longest: int) -> str:
    """The text, the end replaced by … where it is too long."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _check(where: str, name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ProgramError(where, f"{name}={value!r}", f"a whole number from {low} to {high}")


# --- rows --------------------------------------------------------------------------------------------------------


def _engines(trace: Trace, edges: Ints) -> Iterator[_Row]:
    """The five queues; waiting for semaphores shows where nothing runs."""
    i = trace.instructions
    letters = np.array([ord(_LETTERS.get(opcode, OTHER[0])) for opcode in (*i.opcode.values, "")], np.int64)[i.opcode.index]
    for engine in Engine:
        mine = np.isin(i.engine.index, [k for k, name in enumerate(i.engine.values) if name == engine.label])
        waiting = _overlap(*_merged(i.ready.ns[mine], (i.ready.ns + i.wait.ns)[mine], edges), edges)
        yield _activity(engine.label, i.start.ns[mine], i.end.ns[mine], letters[mine], edges, waiting)


def _queues(trace: Trace, edges: Ints) -> Iterator[_Row]:
    """Each DMA queue, from a transfer's first packet to its last."""
    t = trace.transfers
    inward, outward = (np.array([_in_hbm(places) for places in (*c.values, "")])[c.index] for c in (t.source, t.destination))
    letters = np.where(inward & ~outward, ord("I"), np.where(outward & ~inward, ord("E"), ord("X")))
    for name in sorted(set(t.queue.values))[:QUEUES]:
        mine = t.queue.index == t.queue.values.index(name)
        yield _activity(escape(name), t.start.ns[mine], t.end.ns[mine], letters[mine], edges)


def _in_hbm(places: str) -> bool:
    """True if one of the places is in HBM: a sum has several sources."""
    return any(place.startswith("HBM:") for place in places.split("+"))


def _dma_engines(trace: Trace, edges: Ints) -> Iterator[_Row]:
    """How many of the DMA engines have work."""
    s = trace.shares
    engines, rank = np.unique(s.engine, return_inverse=True)
    if len(engines):
        share = _overlap(*_merged(s.start.ns, s.end.ns, edges, rank), edges) / (edges[1] * len(engines))
        cells = "".join(" " if x <= 0 else TENTHS[min(9, int(np.ceil(10 * x)) - 1)] for x in share.tolist())
        yield _Row("DMA engines", cells, float(share.mean()))


def _gate(trace: Trace, edges: Ints) -> _Row:
    g = trace.gate
    full, known = (_overlap(*_merged(g.start.ns[m], g.end.ns[m], edges), edges) for m in (g.k == g.n, g.k >= 0))
    pairs = zip(full.tolist(), known.tolist(), strict=True)
    cells = "".join(" " if not b else FULL if a == b else GATED if not a else MIXED for a, b in pairs)
    return _Row("PE clock full", cells, float(full.sum() / max(1, known.sum())))


def _activity(label: str, start: Ints, end: Ints, kind: Ints, edges: Ints, waiting: Ints | None = None) -> _Row:
    """A row of letters: the kind that takes most of a column, a capital from half of the column on."""
    end = np.maximum(end, start + 1)  # what rounds to 0 ns still shows
    busy, columns = _overlap(*_merged(start, end, edges), edges), len(edges) - 1
    kinds = np.unique(kind)
    parts = [_overlap(start[kind == k] * columns, end[kind == k] * columns, edges) for k in kinds]
    most = np.array(parts, np.int64).reshape(len(kinds), columns)
    cells = []
    for column, used in enumerate(busy.tolist()):
        if used > 0:
            letter = chr(kinds[most[:, column].argmax()])
            cells.append(letter if 2 * used >= edges[1] else letter.lower())
        else:
            cells.append(WAIT if waiting is not None and waiting[column] > 0 else " ")
    return _Row(label, "".join(cells), float(busy.sum() / edges[-1]))


def _merged(start: Ints, end: Ints, edges: Ints, group: Ints | None = None) -> tuple[Ints, Ints]:
    """The union of intervals in ns, within each group: starts and ends that do not overlap, in ns x columns."""
    start, end = start * (len(edges) - 1), end * (len(edges) - 1)
    offset = (np.zeros_like(start) if group is None else group) * (int(end.max(initial=0)) + 1)
    order = np.argsort(start + offset, kind="stable")
    first = (start + offset)[order]
    reach = np.maximum.accumulate((np.maximum(start, end) + offset)[order])
    fresh = np.flatnonzero(np.append(True, first[1:] > reach[:-1])[: len(first)])
    last = np.append(fresh[1:] - 1, len(first) - 1)[: len(fresh)]
    return first[fresh] - offset[order][fresh], reach[last] - offset[order][fresh]


def _overlap(start: Ints, end: Ints, edges: Ints) -> Ints:
    """How much of the intervals lies in each column, added up."""

    def before(times: Ints) -> Ints:
        """Sum over `times` of the time since, at each edge."""
        ordered = np.sort(times)
        count = np.searchsorted(ordered, edges)
        return np.asarray(count * edges - np.append(0, np.cumsum(ordered))[count], np.int64)

    return np.diff(before(start) - before(end))


# --- around the rows ---------------------------------------------------------------------------------------------


def _title(trace: Trace, column_ns: float, width: int) -> list[str]:
    m, i, t = trace.metadata, trace.instructions, trace.transfers
    total = m["prologue_ns"] + m["duration_ns"] + m["epilogue_ns"]
    moved, column = sum(t.bytes.tolist()), f"{column_ns:,.0f}" if column_ns >= 100 else f"{column_ns:.3g}"
    first = f"{escape(m['program'], width)} on {escape(m['chip'])}: body {m['duration_ns']:,} ns, total {total:,} ns, simulated"
    first += ", extrapolated" if m.get("extrapolated") else ""
    counts = f"{_count(len(i), 'instruction')}, {_count(len(t), 'DMA transfer')} of {moved:,} bytes"
    changed = changes(m["what_if"], m["without"])
    lines = [first, *([escape(changed, width)] if changed else []), f"{counts}; a column is {column} ns"]
    return [shorten(line, width) for line in lines]


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _axis(end: int, columns: int) -> list[str]:
    """Labels in µs at round times, and a ruler with a mark at each."""
    step = next(s * 10**k for k in range(20) for s in (1, 2, 5) if s * 10**k * columns >= SPACING * end)
    labels, ruler = [" "] * columns, ["-"] * columns
    for ns in range(0, end, step):
        at, text = ns * columns // end, f"{ns // 1000}{f'.{ns % 1000:03}'.rstrip('0').rstrip('.')}"
        ruler[at] = "+"
        if at + len(text) <= columns:
            labels[at : at + len(text)] = text
    return [f"{'µs':>{LABEL - 1}} {''.join(labels)} busy", f"{'':{LABEL}}{''.join(ruler)}"]


def _legend(rows: list[_Row], width: int) -> list[str]:
    """What the glyphs that were used mean."""
    used = set("".join(r.cells for r in rows[:-1]).upper())
    notes = [f"{letter} {meaning}" for letter, meaning in _MEANING.items() if letter in used]
    notes += ["capital: busy for at least half of the column"] if notes else []
    notes += [f"{WAIT} waiting for a semaphore"] if WAIT in used else []
    notes += ["1-9 tenths of the DMA engines have work, # all"] if used & set(TENTHS) else []
    gate = {FULL: "at full rate", GATED: "gated", MIXED: "partly gated"}
    notes += [f"{glyph} PE clock {meaning}" for glyph, meaning in gate.items() if glyph in rows[-1].cells]
    return textwrap.wrap("; ".join(notes), width)
