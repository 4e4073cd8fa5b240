"""Races: two instructions touch the same bytes, one writes, and no semaphore orders them.

Independent of timing. An update happens before a wait if the wait cannot be met without it, counting every other update
that could come first. Semaphores that are subtracted from or set have no such order; for them the observed run counts,
and their names are returned.

What makes it quick: along one in-order source, whoever sees an update knows at least what one knows who sees an earlier
update of that source. So the updates that a wait needs are the first ones of each source, and the last of them says all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

import attrs

from .access import History, unwritten
from .explain import place
from .isa import Engine, Step, UpdateOp, When
from .isa.control import Control
from .isa.dma import Dma
from .isa.errors import Race
from .isa.tensor import LoadWeights
from .lower import queue_name
from .program import Tensor
from .progress import Tell, told
from .table import Table
from .timeline import Timeline

SHARES = 16  # a DMA's update arrives in as many parts, one per DMA engine


@attrs.define(slots=True)
class _Source:
    """The updates of one semaphore by one chain, an in-order source of completions or beginnings."""

    chain: int
    engine: Engine
    parts: int  # of each update: 1, or SHARES
    steps: list[int] = attrs.field(factory=list)
    positions: list[int] = attrs.field(factory=list)  # 1, 2, … in the chain
    amounts: list[int] = attrs.field(factory=list)
    whole: list[int] = attrs.field(factory=list)  # sum of the amounts before each, and of all
    short: list[int] = attrs.field(factory=list)  # the same, of each without its last part
    finish: list[int] = attrs.field(factory=list)  # ticks, sorted; for semaphores whose observed run counts
    latest: list[int] = attrs.field(factory=list)  # the last update among those up to each of `finish`

    def add(self, step: int, position: int, amount: int) -> None:
        """One update more; two of one step arrive together."""
        if self.positions and self.positions[-1] == position:
            self.amounts[-1] += amount
        else:
            self.steps.append(step)
            self.positions.append(position)
            self.amounts.append(amount)

    def sum(self) -> None:
        self.whole = [0, *accumulate(self.amounts)]
        self.short = [0, *accumulate(a - a // self.parts for a in self.amounts)]


def check(
    steps: Sequence[Step], tensors: Mapping[str, Tensor], addresses: Mapping[str, int], table: Table, timeline: Timeline,
    names: Mapping[int, str], progress: Tell | None = None,
) -> list[str]:  # fmt: skip
    """Raise Race for the first unordered pair; return the semaphores whose order was only observed.

    `progress` is told of steps looked at.
    """
    order = _Order(steps, table, timeline)
    order.settle()
    history = History(tensors, addresses, unwritten(steps, tensors))
    by_start = sorted(range(len(steps)), key=lambda k: (int(timeline.start[table.start_row[k]]), k))
    for k in told(by_start, progress):
        instruction = steps[k].instruction
        accesses = [(v, False) for v in instruction.reads] + [(v, True) for v in instruction.writes]
        for view, writes in accesses:
            for other in history.conflicts(k, order.chain_of(k), view, writes):
                if not order.before(other.unit, k, other.writes, writes):
                    verbs = ["writes" if w else "reads" for w in (other.writes, writes)]
                    raise Race(
                        "race",
                        f"{place(steps, other.unit)} {verbs[0]} {other.view}, {place(steps, k)} {verbs[1]} {view}",
                        "a semaphore that orders the two" + order.hint(other.unit),
                    )
    return sorted(names.get(s, f"S[{s}]") for s in order.observed)


class _Order:
    """Vector clocks: for every step, how far each chain is known to have come when the step issues."""

    def __init__(self, steps: Sequence[Step], table: Table, timeline: Timeline) -> None:
        self.steps, self.table, self.timeline = steps, table, timeline
        self.chains: dict[tuple[str, object], int] = {}
        self.counts: list[int] = []
        self.by_semaphore: dict[int, dict[int, _Source]] = {}
        self.queue_position = [0] * len(steps)
        self.issue_chain = [self.chain("issue", s.engine) for s in steps]
        self.done_at: list[tuple[int, int]] = []  # chain and position of each step's completion
        self.began_at: list[tuple[int, int]] = []
        self.observed: set[int] = set()
        for k, step in enumerate(steps):
            self.register(k, step)
        for sources in self.by_semaphore.values():
            for source in sources.values():
                source.sum()
        self.engine_chains = {c for (kind, _), c in self.chains.items() if kind == "engine"}
        self.clock = [[0] * len(self.counts) for _ in steps]
        self.last: dict[Engine, list[int]] = {}  # clock of the step of each queue that was looked at last in this round
        self.passed: dict[Engine, int] = {}  # its position in the queue: steps behind it know as much at least

    def chain(self, kind: str, what: object) -> int:
        key = (kind, what)
        if key not in self.chains:
            self.chains[key] = len(self.counts)
            self.counts.append(0)
        return self.chains[key]

    def chain_of(self, k: int) -> int:
        return self.done_at[k][0]

    def register(self, k: int, step: Step) -> None:
        self.counts[self.issue_chain[k]] += 1
        self.queue_position[k] = self.counts[self.issue_chain[k]]
        dma = step.instruction
        if isinstance(dma, Dma):
            done = self.chain("ring", queue_name(step.engine, dma.generation))
        elif isinstance(dma, Control):
            done = self.chain("control", step.engine)
        elif isinstance(dma, LoadWeights):
            done = self.chain("weights", step.engine)  # ends before the product it runs behind
        else:
            done = self.chain("engine", step.engine)
        began = done
        if isinstance(dma, Control):
            began = self.chain("control began", step.engine) if dma.views else done  # ahead of what the engine still has to do
        elif not isinstance(dma, Dma):
            began = self.chain("began", step.engine)
        self.counts[done] += 1
        self.done_at.append((done, self.counts[done]))
        if began != done:
            self.counts[began] += 1
        self.began_at.append((began, self.counts[began]))
        for u in step.updates:
            chain, position = self.began_at[k] if u.when is When.READ else self.done_at[k]
            if u.op is not UpdateOp.ADD:
                self.observed.add(u.semaphore)
            sources = self.by_semaphore.setdefault(u.semaphore, {})
            if chain not in sources:
                sources[chain] = _Source(chain, step.engine, SHARES if isinstance(dma, Dma) else 1)
            sources[chain].add(k, position, u.value)

    def settle(self) -> None:
        """Iterate until no step learns anything new."""
        waited = {w.semaphore for s in self.steps for w in s.waits}
        self.observed &= waited
        for semaphore in self.observed:
            for source in self.by_semaphore[semaphore].values():
                self.observe(source)
        order = sorted(range(len(self.steps)), key=lambda k: (int(self.timeline.start[self.table.wait_row[k]]), k))
        changed = True
        while changed:
            changed = False
            self.last, self.passed = {}, {}
            for k in order:
                changed |= self.look(k)

    def look(self, k: int) -> bool:
        """What a step knows when it issues: what its queue knew, and what its waits tell. True if that is new."""
        step, before = self.steps[k], self.clock[k]
        clock = before
        if step.engine in self.last:
            clock = _most(clock, self.last[step.engine])
        for w in step.waits:
            for known in self.told(w.semaphore, w.value, k):
                clock = _most(clock, known)
        if clock[self.issue_chain[k]] != self.queue_position[k]:
            clock = list(clock)
            clock[self.issue_chain[k]] = self.queue_position[k]
        self.clock[k] = self.last[step.engine] = clock
        self.passed[step.engine] = self.queue_position[k]
        return clock != before

    def issued(self, step: int) -> list[int]:
        """What is known when a step issues, so far: as much as at any step before it in its queue."""
        engine = self.steps[step].engine
        if self.queue_position[step] > self.passed.get(engine, 1 << 62):
            return _most(self.clock[step], self.last[engine])
        return self.clock[step]

    def knowledge(self, source: _Source, at: int) -> list[int]:
        """What whoever sees an update knows."""
        clock = list(self.issued(source.steps[at]))
        clock[source.chain] = max(clock[source.chain], source.positions[at])
        began, position = self.began_at[source.steps[at]]
        clock[began] = max(clock[began], position)
        return clock

    def told(self, semaphore: int, value: int, waiter: int) -> list[list[int]]:
        """What a met wait tells, by source: its last update without which the wait cannot be met says all.

        A DMA of which any part is needed has been triggered, and its trigger has passed its own waits.
        """
        sources = self.by_semaphore.get(semaphore, {})
        if semaphore in self.observed:
            seen = int(self.timeline.start[self.table.wait_row[waiter]])
            before = ((s, bisect_left(s.finish, seen)) for s in sources.values())
            return [self.knowledge(s, s.latest[n - 1]) for s, n in before if n]
        # updates that may come before the wait: not those of steps behind it
        issue, position = self.issue_chain[waiter], self.queue_position[waiter]
        possible = {c: self.first(s, self.reached, issue, position, len(s.steps)) for c, s in sources.items()}
        out = []
        for source in sources.values():
            if count := self.needed(source, value, sources, possible, begun=True):
                out.append(self.knowledge(source, count - 1))
            if source.parts > 1 and (count := self.needed(source, value, sources, possible, begun=False)):
                out.append(self.issued(source.steps[count - 1]))
        return out

    def needed(self, source: _Source, value: int, sources: Mapping[int, _Source], possible: Mapping[int, int], begun: bool) -> int:
        """How many updates of a source, its first ones, a wait cannot be met without."""
        low, high = 0, possible[source.chain]
        while low < high:
            middle = (low + high) // 2
            if self.without(source, middle, sources, possible, begun) < value:
                low = middle + 1
            else:
                high = middle
        return low

    def without(self, source: _Source, at: int, sources: Mapping[int, _Source], possible: Mapping[int, int], begun: bool) -> int:
        """The most a semaphore can reach before the last part of an update arrives; before its first, unless `begun`."""
        chain, position = source.chain, source.positions[at]
        total = source.whole[at]
        if begun:
            # a later DMA may be done on the DMA engines where this one is, unless it issues only behind this one
            later = self.first(source, self.reached, chain, position, possible[chain], at + 1)
            total += source.short[later] - source.short[at]
        for other in sources.values():
            if other is not source:
                total += other.whole[self.first(other, self.seen, chain, position, possible[other.chain])]
        return total

    def first(
        self, source: _Source, known: Callable[[int, int], int], chain: int, position: int, stop: int, start: int = 0
    ) -> int:  # fmt: skip
        """The first update of a source from `start` on with which a chain is `known` to have come to a position, or `stop`."""
        low, high = start, max(start, stop)
        while low < high:
            middle = (low + high) // 2
            if known(source.steps[middle], chain) >= position:
                high = middle
            else:
                low = middle + 1
        return low

    def reached(self, step: int, chain: int) -> int:
        """How far a chain is known to have come when a step issues, so far."""
        own, engine = self.clock[step][chain], self.steps[step].engine
        if self.queue_position[step] > self.passed.get(engine, 1 << 62):
            return max(own, self.last[engine][chain])
        return own

    def seen(self, step: int, chain: int) -> int:
        """The same for whoever sees an update of the step, whose beginning is then past."""
        began, position = self.began_at[step]
        return max(self.reached(step, chain), position) if began == chain else self.reached(step, chain)

    def observe(self, source: _Source) -> None:
        """Sort the updates by when they were seen to be over."""
        over = sorted((int(self.timeline.finish[self.table.finish_row[k]]), at) for at, k in enumerate(source.steps))
        source.finish = [tick for tick, _ in over]
        source.latest = list(accumulate((at for _, at in over), max))

    def hint(self, first: int) -> str:
        """What is often behind a race with a DMA that does raise a semaphore."""
        step = self.steps[first]
        if not isinstance(step.instruction, Dma) or not any(self.shared(u.semaphore) for u in step.updates):
            return ""
        return "; a count over several DMAs in flight orders none of them, since each adds in 16 parts: give each its own semaphore"

    def before(self, first: int, second: int, first_writes: bool, second_writes: bool) -> bool:
        """True if the first step's access is over when the second's begins."""
        chain, position = self.done_at[first]
        if self.clock[second][chain] >= position:
            return True
        if isinstance(self.steps[first].instruction, Control) and self.clock[second][self.issue_chain[first]] > self.queue_position[first]:
            return True  # its queue went on, which it does when a control instruction is done
        began, begun = self.began_at[first]
        if not first_writes and began != chain and self.clock[second][began] >= begun:
            return True  # operands are read when an instruction starts
        same_engine = chain == self.done_at[second][0] and chain in self.engine_chains
        # An engine starts and commits in order: only a read of its own unfinished result is a hazard.
        return same_engine and (second_writes or self.steps[second].engine is Engine.TENSOR)

    def shared(self, semaphore: int) -> bool:
        """True if more than one update counts on it."""
        return sum(len(source.steps) for source in self.by_semaphore[semaphore].values()) > 1


def _most(a: list[int], b: list[int]) -> list[int]:
    """The larger of each two; the first itself if it is nowhere less."""
    out = [x if x > y else y for x, y in zip(a, b, strict=True)]
    return a if out == a else out
