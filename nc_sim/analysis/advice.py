"""What bounds a run, in plain sentences, and which changes promise most: each a what-if, simulated.

A what-if takes a cost away altogether, or doubles a rate, and leaves the rest as it is. No change of the program gains
more through that cost; what a change costs elsewhere is not in it. So each gain is an upper bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import attrs

from ..arguments import listed, require_tell, said
from ..chip import Chip
from ..isa import Engine
from ..isa.errors import NcSimError, ProgramError, Unsupported
from ..mechanisms import MECHANISMS
from ..mechanisms import changes as changes_of
from ..notebook import Records, Shown
from ..progress import Tell, told, weighted
from ..result import Result
from ..schema import SCHEMA
from ..simulate import AUTO_FROM
from .again import again
from .history import history
from .lines import BUSY, SEMAPHORE, SIGNAL, START, THROTTLE, Part, stalls
from .path import ARRIVES, COMPLETES, CONTENDS, EXECUTES, HAND, ISSUES, MOVES, RELEASE, RESULT, Segment, Share, critical_path, shares
from .roofs import points

PROMISES = 3  # changes that are told
LEAST = 0.002  # of the body: a change that gains less promises nothing
DMA_KINDS = (ARRIVES, CONTENDS, MOVES, COMPLETES)


@attrs.frozen
class Change:
    """A what-if that stands for a change of the program."""

    name: str
    says: str  # what the what-if does
    hint: str  # what in a program comes near it
    overrides: Callable[[Chip], Mapping[str, Any]]


@attrs.frozen
class Gain:
    """What a change would gain at most, as the what-if simulates it."""

    change: str
    says: str
    hint: str
    body_ns: float
    gain_ns: float
    gain: float  # of the body
    what_if: Mapping[str, str]


@attrs.frozen
class Explanation(Shown):
    """What bounds a run, and what promises to change it."""

    program: str
    chip: str
    extrapolated: str | None  # why results on this chip are
    changes: str  # what about the chip is not as in its file
    body_ns: float
    bounds: Records[Share]  # the critical path by what it is spent on, the largest first
    lines: Records[Share]  # and by source line
    sentences: tuple[str, ...]
    gains: Records[Gain]  # every change, the largest gain first

    @property
    def promising(self) -> Records[Gain]:
        """The changes that are told."""
        return Records(g for g in self.gains if g.gain >= LEAST)[:PROMISES]

    def text(self) -> str:
        """Sentences, then the changes."""
        out = [f"{self.program} on {self.chip}: {_us(self.body_ns)}"]
        out += [f"  {self.changes}"] if self.changes else []
        out += [f"  extrapolated: {self.extrapolated}"] if self.extrapolated else []
        out += [f"  {s}" for s in self.sentences]
        if self.promising:
            out.append("Changes that promise most. Each is an upper bound: the cost is gone, or the rate doubled, and all else stays.")
        for k, g in enumerate(self.promising, 1):
            out += [f"  {k}. {g.says}: {_us(g.body_ns)}, {100 * g.gain:.1f} % less at most", f"     {g.hint}"]
        return "\n".join(out) if self.promising else "\n".join([*out, "No single change of a cost promises anything."])

    def record(self) -> dict[str, Any]:
        """As plain values."""
        return {**attrs.asdict(self), "gains": [attrs.asdict(g) | {"upper_bound": True} for g in self.gains]}


def _off(mechanism: str) -> Callable[[Chip], Mapping[str, Any]]:
    return lambda chip: MECHANISMS[mechanism].off


def _scaled(factor: Fraction, start: str, ending: str) -> Callable[[Chip], Mapping[str, Any]]:
    keys = [k for k in SCHEMA if k.startswith(start) and k.endswith(ending)]
    return lambda chip: {k: chip.numbers[k].value * factor for k in keys if chip.numbers[k].value is not None}


HALF, TWICE = Fraction(1, 2), Fraction(2)
CHANGES: tuple[Change, ...] = (
    Change("dma-start", "no time from a DMA's trigger to its first packet", "Trigger loads earlier, before what they wait behind; "
           "more buffers; fewer and larger DMAs.", _off("dma-start-latency")),
    Change("dma-rate", "DMA engines of twice the rate", "Move fewer bytes: keep in SBUF what is read again, or use a narrower type.",
           _scaled(TWICE, "dma.", "_bytes_per_ns")),
    Change("dma-core", "no limit of what all DMA engines of a core move together", "Move fewer bytes, or spread DMA over the time of the "
           "kernel.", _off("dma-core-limit")),
    Change("dma-rows", "no fixed time per DMA row", "Longer contiguous rows on both sides of a DMA.", _off("dma-row-overhead")),
    Change("dma-stalls", "no stalls at the first packets of loads", "Fewer and larger loads, and not many at once.",
           _off("dma-load-stalls")),
    Change("dma-completion", "no time from a DMA's last packet to its semaphore", "More buffers, so that other tiles are worked on "
           "meanwhile; fewer and larger DMAs.", _off("dma-completion-latency")),
    Change("software-descriptors", "software descriptors that cost GpSimd next to nothing", "Trigger by hardware where the chip can "
           "(dge_mode='hwdge', on Sync or ScalarE), or fewer DMAs.", _off("software-descriptor-generation")),
    Change("hardware-descriptors", "hardware triggers that cost their sequencer nothing", "Fewer and larger DMAs, spread over the queues "
           "that have time.", _off("hardware-descriptor-generation")),
    Change("run-time-addresses", "addresses that are known before the run", "Gather more rows with each DMA, or take static addresses.",
           _off("run-time-addresses")),
    Change("dma-transpose", "transposes by DMA as fast as copies", "Keep the tensor transposed in HBM, or transpose on the TensorEngine.",
           _off("dma-transpose-rate")),
    Change("dma-sum", "sums by DMA as fast as copies", "Add on VectorE what is in SBUF anyway.", _off("dma-sum-rate")),
    Change("store-ring", "no limit of unfinished stores in a ring", "Spread stores over several queues.", _off("dma-store-ring-limit")),
    Change("clock-gate", "the TensorEngine always at full rate", "Keep products close together, so that the array is busy in every window.",
           _off("clock-gate")),
    Change("tensor-rate", "products that stream twice as fast", "A narrower type, or fewer products: larger tiles, no transposes by the "
           "array.", _scaled(HALF, "tensor.", ".cycles_per_row")),
    Change("weight-load", "weights that load at once", "Stream more columns for each set of weights.", _off("weight-load")),
    Change("tensor-latency", "products whose result shows at once", "Work on several PSUM banks in turn.", _off("pe-result-latency")),
    Change("vector-rate", "VectorE streaming twice as fast", "16-bit operands in SBUF run faster; move work to an engine that waits.",
           _scaled(HALF, "vector.", ".cycles_per_element")),
    Change("scalar-rate", "ScalarE streaming twice as fast", "Move work to an engine that waits, or fuse instructions.",
           _scaled(HALF, "scalar.", "cycles_per_element")),
    Change("gpsimd-rate", "GpSimd streaming twice as fast", "Move work to an engine that waits.",
           _scaled(HALF, "gpsimd.", ".cycles_per_element")),
    Change("fixed-latency", "no latency of Vector and Scalar beyond streaming", "Fewer and longer instructions; work on several tiles "
           "in turn.", _off("fixed-latency")),
    Change("narrowing", "ScalarE writing narrower types out of PSUM at no cost", "Let VectorE copy those, or write float32.",
           _off("narrowing")),
    Change("registers", "register instructions and branches that take no time", "Unroll loops whose trip count is known.",
           _off("register-instructions")),
    Change("ports", "engines that never exclude each other from SBUF or PSUM", "Keep VectorE's and GpSimd's work on SBUF apart, and "
           "VectorE's and ScalarE's on PSUM.", _off("ports")),
    Change("issue-gap", "no gaps between instructions of one engine", "Fewer and longer instructions.", _off("issue-gap")),
    Change("table-load", "activation tables that need no load", "Use functions of one table together.", _off("table-load")),
    Change("semaphores", "semaphores that need no time", "Fewer turns between engines: fuse, or keep a chain on one engine.",
           _off("semaphore-latency")),
)  # fmt: skip


def explain(result: Result, changes: Sequence[Change | str] = CHANGES, engine: str = "auto", progress: Tell | None = None) -> Explanation:
    """What bounds a run, and what each change would gain at most: one more simulation for each that could.

    `changes` are those to try, by themselves or by name; `progress` is told how far that is.
    """
    if not isinstance(result, Result):
        raise ProgramError("explain", said(result), "a Result")
    require_tell(progress, "explain")
    chosen = [_change(c) for c in listed(changes, "explain changes", "a list of changes, or of their names")]
    first, then = weighted(progress, 2, len(chosen))
    facts = history(result.table, result.timeline)
    segments, parts = critical_path(result, facts, first), stalls(result, facts)
    body = result.duration_ns
    spent = _spent(result, segments)
    lines = shares(result, segments, "line")
    sentences = _sentences(result, spent, lines, parts)
    gains = sorted(_gains(result, told(chosen, then, 1), engine), key=lambda g: -g.gain_ns)
    chip = result.chip
    return Explanation(
        result.program.name,
        chip.name,
        chip.extrapolated or None,
        changes_of(chip.overrides, result.without),
        body,
        spent,
        lines,
        tuple(sentences),
        Records(gains),
    )


def _change(given: Change | str) -> Change:
    known = {c.name: c for c in CHANGES}
    if isinstance(given, Change):
        return given
    if given not in known:
        raise ProgramError("explain changes", said(given), f"one of {', '.join(known)}")
    return known[given]


def _gains(result: Result, changes: Iterable[Change], engine: str) -> Iterable[Gain]:
    body, used = result.duration_ns, set(result.used)
    together = engine == "auto" and result.table.size * len(CHANGES) >= AUTO_FROM
    for c in changes:
        numbers = result.chip.numbers
        what_if = {k: v for k, v in c.overrides(result.chip).items() if k in used and numbers[k].value is not None}
        if all(SCHEMA[k].convert(v, k) == numbers[k].value for k, v in what_if.items()):
            continue  # the run does not rest on it
        try:
            if together:  # so many runs pay for loading the compiled engine before one of them does
                try:
                    then = again(result, what_if, "compiled").duration_ns
                except Unsupported:  # no Numba, or too large for 64 bits; if it is the chip, the next try says so
                    together = False
            if not together:
                then = again(result, what_if, engine).duration_ns
        except NcSimError:  # a chip that cannot do without
            continue
        share = (body - then) / body if body else 0.0
        yield Gain(c.name, c.says, c.hint, then, body - then, share, {k: str(v) for k, v in what_if.items()})


def _spent(result: Result, segments: Iterable[Segment]) -> Records[Share]:
    """The critical path by what it is spent on."""
    return shares(result, (attrs.evolve(s, kind=_group(s)) for s in segments), "kind")


def _group(s: Segment) -> str:
    if s.kind in DMA_KINDS:
        return {ARRIVES: "DMA from trigger to DMA engine", CONTENDS: "DMA behind other DMA", MOVES: "DMA moving data"}.get(
            s.kind, "DMA from last packet to semaphore"
        )
    if s.kind in (EXECUTES, RESULT, HAND):
        return f"instructions of {s.where}"
    if s.kind == ISSUES:
        return (
            f"triggers, descriptors and control of {s.where}" if s.opcode.startswith(("DMA", "EVENT", "NOP")) else f"dispatch of {s.where}"
        )
    return "the release of the first queue" if s.kind == RELEASE else "semaphores on their way"


def _sentences(result: Result, spent: tuple[Share, ...], lines: tuple[Share, ...], parts: tuple[Part, ...]) -> Iterable[str]:
    if not spent:
        yield "It does nothing."
        return
    dma = sum(s.share for s in spent if s.name.startswith("DMA"))
    first = ", ".join(f"{s.name} {_percent(s.share)}" for s in spent[:4])
    yield f"The critical path is spent on {first}." + (f" DMA in all {_percent(dma)}." if 0 < dma < 1 else "")
    work: dict[str, float] = {}
    for p in parts:
        work[p.engine] = work.get(p.engine, 0.0) + (p.share if p.cause in (BUSY, THROTTLE) else 0.0)
    if any(work.values()):
        busiest = max(work, key=lambda e: work[e])
        mine = [p for p in parts if p.engine == busiest]
        slow = sum(p.share for p in mine if p.cause == THROTTLE)
        gate = f", {_percent(slow)} of it only because its clock is throttled" if slow else ""
        waits: dict[str, float] = {}
        for p in mine:
            if p.on and p.cause not in (SIGNAL, START):
                name = f"{'instructions of ' if p.cause == SEMAPHORE else ''}{p.on}"
                waits[name] = waits.get(name, 0.0) + p.share
        longest = sorted((n for n in waits if waits[n] >= LEAST), key=lambda n: (-waits[n], n))[:2]
        told = ", ".join(f"{_percent(waits[n])} {'for ' if n not in ('dispatch', 'DMA trigger', 'control') else 'in '}{n}" for n in longest)
        yield f"The busiest engine is {busiest}: it executes for {_percent(work[busiest])} of the body{gate}" + (
            f"; it waits {told}." if told else "."
        )
    nearest = max(points(result, engines=[e for e in Engine if e is not Engine.SYNC]), key=lambda p: p.of_roof, default=None)
    if nearest is not None:
        roof = f"{nearest.engine}'s {nearest.bound}" if nearest.bound in ("compute", "SBUF") else nearest.bound
        yield f"The nearest roof is that of {roof}: the run reaches {_percent(nearest.of_roof)} of it."
    told = ", ".join(f"{s.name} {_percent(s.share)}" for s in lines[:3])
    yield f"The lines it hangs on: {told}."


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _us(ns: float) -> str:
    return f"{ns / 1000:.3f} us"
