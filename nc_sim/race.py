"""Races: two instructions touch the same bytes, one writes, and no semaphore orders them.

Independent of timing. An update happens before a wait if the wait cannot be met without it, counting every other update
that could come first. Semaphores that are subtracted from or set have no such order; for them the observed run counts,
and their names are returned.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from .access import History
from .explain import place
from .isa import Engine, Step, UpdateOp, When
from .isa.control import Nop
from .isa.dma import DmaDirect2d
from .isa.errors import Race
from .isa.tensor import LoadWeights
from .lower import queue_name
from .program import Tensor
from .table import Table
from .timeline import Timeline

SHARES = 16  # a DMA's update arrives in as many parts, one per DMA engine


@attrs.define(slots=True)
class _Update:
    """One update of a semaphore: who makes it, and what is known once it is seen."""

    step: int
    chain: int  # an in-order source of updates
    position: int  # 1, 2, … in the chain
    amount: int
    parts: int  # 1, or SHARES


def check(
    steps: Sequence[Step], tensors: Mapping[str, Tensor], addresses: Mapping[str, int], table: Table, timeline: Timeline,
    names: Mapping[int, str],
) -> list[str]:  # fmt: skip
    """Raise Race for the first unordered pair; return the semaphores whose order was only observed."""
    order = _Order(steps, table, timeline)
    order.settle()
    history = History(tensors, addresses)
    by_start = sorted(range(len(steps)), key=lambda k: (int(timeline.start[table.start_row[k]]), k))
    for k in by_start:
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
        self.by_semaphore: dict[int, list[_Update]] = {}
        self.queue_position = [0] * len(steps)
        self.issue_chain = [self.chain("issue", s.engine) for s in steps]
        self.done_at: list[tuple[int, int]] = []  # chain and position of each step's completion
        self.began_at: list[tuple[int, int]] = []
        self.observed: set[int] = set()
        for k, step in enumerate(steps):
            self.register(k, step)
        self.clock = np.zeros((len(steps), len(self.chains)), np.int64)

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
        if isinstance(dma, DmaDirect2d):
            done = self.chain("ring", queue_name(step.engine, dma.generation))
        elif isinstance(dma, Nop):
            done = self.chain("control", step.engine)
        elif isinstance(dma, LoadWeights):
            done = self.chain("weights", step.engine)  # ends before the product it runs behind
        else:
            done = self.chain("engine", step.engine)
        began = self.chain("began", step.engine) if not isinstance(dma, DmaDirect2d | Nop) else done
        self.counts[done] += 1
        self.done_at.append((done, self.counts[done]))
        if began != done:
            self.counts[began] += 1
        self.began_at.append((began, self.counts[began]))
        for u in step.updates:
            chain, position = self.began_at[k] if u.when is When.READ else self.done_at[k]
            parts = SHARES if isinstance(dma, DmaDirect2d) else 1
            if u.op is not UpdateOp.ADD:
                self.observed.add(u.semaphore)
            self.by_semaphore.setdefault(u.semaphore, []).append(_Update(k, chain, position, u.value, parts))

    def settle(self) -> None:
        """Iterate until no step learns anything new."""
        waited = {w.semaphore for s in self.steps for w in s.waits}
        self.observed &= waited
        order = sorted(range(len(self.steps)), key=lambda k: (int(self.timeline.start[self.table.wait_row[k]]), k))
        changed = True
        while changed:
            changed = False
            last: dict[Engine, np.ndarray] = {}
            for k in order:
                before = self.clock[k].copy()
                step = self.steps[k]
                if step.engine in last:
                    np.maximum(self.clock[k], last[step.engine], out=self.clock[k])
                for w in step.waits:
                    for u in self.needed(w.semaphore, w.value, k):
                        np.maximum(self.clock[k], self.knowledge(u), out=self.clock[k])
                    for other in self.triggered(w.semaphore, w.value, k):
                        np.maximum(self.clock[k], self.clock[other], out=self.clock[k])
                self.clock[k, self.issue_chain[k]] = self.queue_position[k]
                last[step.engine] = self.clock[k]
                changed |= bool((self.clock[k] != before).any())

    def knowledge(self, u: _Update) -> np.ndarray:
        """What whoever sees an update knows."""
        clock: np.ndarray = self.clock[u.step].copy()
        clock[u.chain] = max(clock[u.chain], u.position)
        began, position = self.began_at[u.step]
        clock[began] = max(clock[began], position)
        return clock

    def needed(self, semaphore: int, value: int, waiter: int) -> list[_Update]:
        """Updates without which the wait cannot be met."""
        updates = self.by_semaphore.get(semaphore, [])
        if semaphore in self.observed:
            seen = int(self.timeline.start[self.table.wait_row[waiter]])
            return [u for u in updates if int(self.timeline.finish[self.table.finish_row[u.step]]) < seen]
        if len({u.chain for u in updates}) == 1 and all(u.parts == 1 for u in updates):
            reached = np.cumsum([u.amount for u in updates]).tolist()
            enough = bisect.bisect_left(reached, value)
            return [updates[enough]] if value > 0 and enough < len(updates) else []
        possible = self.possible(semaphore, waiter)
        return [u for u in possible if self.without(u, possible) < value]

    def possible(self, semaphore: int, waiter: int) -> list[_Update]:
        """Updates that may come before a wait: not those of steps behind it."""
        updates = self.by_semaphore.get(semaphore, [])
        return [u for u in updates if self.clock[u.step, self.issue_chain[waiter]] < self.queue_position[waiter]]

    def triggered(self, semaphore: int, value: int, waiter: int) -> list[int]:
        """DMAs of which the wait needs some part, so that their trigger has passed its own waits."""
        if semaphore in self.observed:
            return []
        possible = self.possible(semaphore, waiter)
        return [u.step for u in possible if u.parts > 1 and self.without(u, possible, begun=False) < value]

    def without(self, u: _Update, possible: Sequence[_Update], begun: bool = True) -> int:
        """The most a semaphore can reach before the last part of `u` arrives; before its first, unless `begun`."""
        total = u.amount - u.amount // u.parts if begun else 0
        for other in possible:
            if other is u or self.clock[other.step, u.chain] >= u.position:
                continue  # its instruction issues only behind `u`
            if other.chain == u.chain and other.position > u.position:
                # behind it in the chain; a later DMA may still be done on the DMA engines where this one is
                total += other.amount - other.amount // other.parts if begun else 0
            elif self.knowledge(other)[u.chain] < u.position:
                total += other.amount
        return total

    def hint(self, first: int) -> str:
        """What is often behind a race with a DMA that does raise a semaphore."""
        step = self.steps[first]
        if not isinstance(step.instruction, DmaDirect2d) or not any(len(self.by_semaphore[u.semaphore]) > 1 for u in step.updates):
            return ""
        return "; a count over several DMAs in flight orders none of them, since each adds in 16 parts: give each its own semaphore"

    def before(self, first: int, second: int, first_writes: bool, second_writes: bool) -> bool:
        """True if the first step's access is over when the second's begins."""
        chain, position = self.done_at[first]
        if self.clock[second, chain] >= position:
            return True
        began, begun = self.began_at[first]
        if not first_writes and began != chain and self.clock[second, began] >= begun:
            return True  # operands are read when an instruction starts
        same_engine = chain == self.done_at[second][0] and chain in self.engine_chains
        # An engine starts and commits in order: only a read of its own unfinished result is a hazard.
        return same_engine and (second_writes or self.steps[second].engine is Engine.TENSOR)

    @property
    def engine_chains(self) -> set[int]:
        return {c for (kind, _), c in self.chains.items() if kind == "engine"}
