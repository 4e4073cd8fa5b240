"""How two runs differ, or a run and a profile of hardware: instructions set beside each other, and time by engine, line and cause.

Everything is counted in whole parts of a ns that both sides' ticks are multiples of, so that differences sum exactly and
turn their sign when the sides change places.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs
import numpy as np

from ..isa.errors import Unsupported
from ..result import Result
from ..table import Ints
from .alignment import Pairs, aligned
from .path import spent
from .sides import Side, causes, engines_of, union
from .source_lines import corresponding

Scale = Callable[[int, int], tuple[int, int, int]]
DMA_ENGINES = "DMA engines"
MOST = 1 << 62
BY_LINE, BY_OPCODE = "source line and opcode", "opcode"


@attrs.frozen
class Both:
    """The same on both sides, in parts of a ns."""

    a: int
    b: int
    per_ns: int

    @property
    def a_ns(self) -> float:
        return self.a / self.per_ns

    @property
    def b_ns(self) -> float:
        return self.b / self.per_ns

    @property
    def change(self) -> int:
        """B less A."""
        return self.b - self.a

    @property
    def change_ns(self) -> float:
        return self.change / self.per_ns

    def record(self) -> dict[str, Any]:
        """Plain values; times in ns."""
        named = {k: v for k, v in attrs.asdict(self, recurse=False).items() if k not in ("a", "b", "per_ns")}
        return {**named, "a_ns": self.a_ns, "b_ns": self.b_ns, "difference_ns": self.change_ns}


@attrs.frozen
class Activity(Both):
    """How long an engine is active: at least one instruction other than EVENT_SEMAPHORE is under way."""

    engine: str
    a_count: int  # instructions; of DMA engines their parts of transfers
    b_count: int


@attrs.frozen
class Line(Both):
    """Instructions of one source line and opcode on an engine: the sum of their times, from start to visible result."""

    line: str  # file.py:41; with an arrow where it is another line in B; empty where nobody knows
    engine: str
    opcode: str
    a_count: int
    b_count: int
    matched: int  # instructions that both sides have


@attrs.frozen
class Cause(Both):
    """So long an engine did, or waited for, one thing."""

    engine: str
    cause: str
    on: str


@attrs.frozen
class OnPath(Both):
    """What the critical path is spent on."""

    where: str  # engine or DMA queue
    kind: str


@attrs.frozen
class Unmatched:
    """Instructions that one side alone has, of one line and opcode."""

    side: str  # A or B
    line: str
    engine: str
    opcode: str
    instructions: tuple[int, ...]  # their numbers on that side
    ns: float

    def record(self) -> dict[str, Any]:
        return {**attrs.asdict(self, recurse=False), "instructions": list(self.instructions)}


@attrs.frozen(eq=False)
class Differences:
    """All of it."""

    a: Side
    b: Side
    body: Both
    pairs: Pairs  # numbers of instructions that belong together, in A and in B
    moved: int  # pairs on different lines, where they are aligned by line
    by: str  # BY_LINE or BY_OPCODE
    why: str  # why not by line; empty where it is
    by_gaps: bool  # causes are those that starts and ends alone tell
    engines: tuple[Activity, ...]
    lines: tuple[Line, ...]  # the largest difference first
    causes: tuple[Cause, ...]  # by engine, then the largest difference first; an engine's sum to the difference of the body
    path: tuple[OnPath, ...]  # of two runs; sums to the difference of the body
    unmatched: tuple[Unmatched, ...]


def differences(a: Side, b: Side) -> Differences:
    """What differs between two sides."""
    per_ns = math.lcm(a.ticks_per_ns.numerator, b.ticks_per_ns.numerator)
    one, two = (per_ns // s.ticks_per_ns.numerator * s.ticks_per_ns.denominator for s in (a, b))
    if max(_farthest(a) * one, _farthest(b) * two) >= MOST:
        raise Unsupported("compare", "times beyond 62 bits in parts of a ns that both chips' ticks are multiples of", "shorter runs")

    def both(x: int, y: int) -> tuple[int, int, int]:
        return x * one, y * two, per_ns

    by, why = _how(a, b)
    pairs, moved = _paired(a, b, by)
    engines = engines_of(a, b)
    count = [{e: s.engine.count(e) for e in engines} for s in (a, b)]
    activity = [Activity(*both(a.active(e), b.active(e)), e, count[0][e], count[1][e]) for e in engines]
    if a.dma is not None and b.dma is not None and len(a.dma[0]) + len(b.dma[0]):
        activity.append(Activity(*both(union(*a.dma), union(*b.dma)), DMA_ENGINES, len(a.dma[0]), len(b.dma[0])))
    by_gaps = a.profile or b.profile
    mine, other = (causes(s, engines, by_gaps) for s in (a, b))
    found = [Cause(*both(mine.get(k, 0), other.get(k, 0)), *k) for k in sorted({*mine, *other})]
    order = {e: k for k, e in enumerate(engines)}
    return Differences(
        a, b, Both(*both(a.body, b.body)), pairs, moved, by, why, by_gaps, tuple(activity), _lines(a, b, pairs, both),
        tuple(sorted(found, key=lambda c: (order[c.engine], -abs(c.change), c.cause, c.on))), _path(a, b, both),
        (*_unmatched(a, "A", {i for i, _ in pairs}), *_unmatched(b, "B", {j for _, j in pairs})),
    )  # fmt: skip


def _farthest(s: Side) -> int:
    return max(s.body, int(np.abs(s.end).max(initial=0)), int((s.end - s.start).sum()), 1)


# --- which instructions belong together --------------------------------------------------------------------------


def _how(a: Side, b: Side) -> tuple[str, str]:
    """By source line where both sides have some in common; else why not."""
    for s, name in ((a, "A"), (b, "B")):
        if not any(s.line):
            return BY_OPCODE, f"{name} has no source lines"
    if not {*a.line} & {*b.line} - {""}:
        return BY_OPCODE, "no source line is on both sides"
    return BY_LINE, ""


def _paired(a: Side, b: Side, by: str) -> tuple[Pairs, int]:
    """Queue by queue: by line and opcode first, then what is left between two such pairs by opcode alone."""
    out = Pairs()
    names = _names(a, b) if by == BY_LINE else ({}, {})
    for engine in engines_of(a, b):
        mine, other = a.queue(engine).tolist(), b.queue(engine).tolist()
        fixed: Pairs = []
        if by == BY_LINE:
            known = [[i for i, k in enumerate(queue) if s.line[k] in n] for s, n, queue in zip((a, b), names, (mine, other), strict=True)]
            one = [(a.opcode[mine[i]], *names[0][a.line[mine[i]]]) for i in known[0]]
            two = [(b.opcode[other[j]], *names[1][b.line[other[j]]]) for j in known[1]]
            fixed = [(known[0][i], known[1][j]) for i, j in aligned(one, two)]
        between = _between(fixed, len(mine), len(other))
        free = [
            (i + x, j + y)
            for i, until, j, end in between
            for x, y in aligned([a.opcode[k] for k in mine[i:until]], [b.opcode[k] for k in other[j:end]])
        ]
        out += [(mine[i], other[j]) for i, j in (*fixed, *free)]
    return sorted(out), sum(a.line[i] != b.line[j] for i, j in out) if by == BY_LINE else 0


def _names(a: Side, b: Side) -> tuple[dict[str, tuple[str, str]], dict[str, tuple[str, str]]]:
    """For each side's lines that have one on the other: a name that both share, the same when the sides change places."""
    both_runs = not (a.profile or b.profile)
    pairs = corresponding(*(s.kinds_by_line(both_runs) for s in (a, b)))
    shared = {x: (min(x, y), max(x, y)) for x, y in pairs.items()}
    return shared, {y: shared[x] for x, y in pairs.items()}


def _between(fixed: Pairs, m: int, n: int) -> list[tuple[int, int, int, int]]:
    """What lies between pairs on both sides: from and to in A, from and to in B."""
    edges = [(-1, -1), *fixed, (m, n)]
    return [(i + 1, p, j + 1, q) for (i, j), (p, q) in itertools.pairwise(edges) if p > i + 1 and q > j + 1]


# --- sums --------------------------------------------------------------------------------------------------------


def _lines(a: Side, b: Side, pairs: Pairs, both: Scale) -> tuple[Line, ...]:
    lengths = [(s.end - s.start).tolist() for s in (a, b)]
    to_b, to_a = dict(pairs), {j: i for i, j in pairs}
    sums: dict[tuple[str, str, str], list[int]] = {}

    def add(key: tuple[str, str, str], column: int, amount: int) -> None:
        sums.setdefault(key, [0] * 5)[column] += amount

    for k, ticks in enumerate(lengths[0]):
        line = _line(a.line[k], b.line[to_b[k]]) if k in to_b else a.line[k]
        key = line, a.engine[k], a.opcode[k]
        add(key, 0, ticks)
        add(key, 2, 1)
        add(key, 4, k in to_b)
    for k, ticks in enumerate(lengths[1]):
        line = _line(a.line[to_a[k]], b.line[k]) if k in to_a else b.line[k]
        key = line, b.engine[k], b.opcode[k]
        add(key, 1, ticks)
        add(key, 3, 1)
    found = [Line(*both(x, y), *key, m, n, matched) for key, (x, y, m, n, matched) in sums.items()]
    return tuple(sorted(found, key=lambda e: (-abs(e.change), e.line, e.engine, e.opcode)))


def _line(a: str, b: str) -> str:
    return a if a == b or not b else f"{a} -> {b}" if a else b


def _unmatched(s: Side, name: str, matched: Iterable[int]) -> list[Unmatched]:
    known = set(matched)
    groups: dict[tuple[str, str, str], list[int]] = {}
    for k in range(len(s.engine)):
        if k not in known:
            groups.setdefault((s.line[k], s.engine[k], s.opcode[k]), []).append(k)
    ticks = {key: int((s.end[mine] - s.start[mine]).sum()) for key, mine in groups.items()}
    order = sorted(groups, key=lambda key: (-ticks[key], key))
    return [Unmatched(name, *key, tuple(groups[key]), float(ticks[key] / s.ticks_per_ns)) for key in order]


def _path(a: Side, b: Side, both: Scale) -> tuple[OnPath, ...]:
    if not isinstance(a.of, Result) or not isinstance(b.of, Result):
        return ()
    mine, other = (spent(r, s.facts) for r, s in ((a.of, a), (b.of, b)))
    found = [OnPath(*both(mine.get(k, 0), other.get(k, 0)), *k) for k in sorted({*mine, *other})]
    return tuple(sorted(found, key=lambda e: (-abs(e.change), e.where, e.kind)))


def later(d: Differences) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
    """For each instruction of A, then of B: the number of the other side's, -1 where there is none, and how many ns later it starts."""
    out = []
    starts = [_whole_ns(s) for s in (d.a, d.b)]
    turned: Sequence[tuple[int, int]] = [(j, i) for i, j in d.pairs]
    for pairs, (mine, other) in ((d.pairs, starts), (turned, starts[::-1])):
        number, wait = np.full(len(mine), -1, np.int64), np.zeros(len(mine), np.int64)
        if pairs:
            at, there = np.array(pairs, np.int64).T
            number[at], wait[at] = there, other[there] - mine[at]
        out.append((number, wait))
    return out[0], out[1]


def _whole_ns(s: Side) -> Ints:
    """Starts in whole ns, rounded half up as a trace rounds them."""
    ticks, ns = s.ticks_per_ns.as_integer_ratio()
    return np.asarray((2 * s.start * ns + ticks) // (2 * ticks), np.int64)
