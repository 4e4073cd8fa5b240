"""What the race check knows, worked out by its definition: slow, and without the shortcuts of nc_sim/race.py."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import attrs
import numpy as np

from nc_sim.isa import Engine, Step, UpdateOp, When
from nc_sim.isa.control import Control
from nc_sim.isa.dma import Dma
from nc_sim.isa.tensor import LoadWeights
from nc_sim.lower import queue_name
from nc_sim.table import Table
from nc_sim.timeline import Timeline

SHARES = 16


@attrs.define(slots=True)
class Raise:
    """One update of a semaphore: who makes it, and what is known once it is seen."""

    step: int
    chain: int  # an in-order source of updates
    position: int  # 1, 2, … in the chain
    amount: int
    parts: int  # 1, or SHARES


class PlainOrder:
    """Vector clocks by the definition: for every wait, every update is tried against every other."""

    def __init__(self, steps: Sequence[Step], table: Table, timeline: Timeline) -> None:
        self.steps, self.table, self.timeline = steps, table, timeline
        self.chains: dict[tuple[str, object], int] = {}
        self.counts: list[int] = []
        self.by_semaphore: dict[int, list[Raise]] = {}
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
            parts = SHARES if isinstance(dma, Dma) else 1
            if u.op is not UpdateOp.ADD:
                self.observed.add(u.semaphore)
            self.by_semaphore.setdefault(u.semaphore, []).append(Raise(k, chain, position, u.value, parts))

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

    def knowledge(self, u: Raise) -> np.ndarray:
        """What whoever sees an update knows."""
        clock: np.ndarray = self.clock[u.step].copy()
        clock[u.chain] = max(clock[u.chain], u.position)
        began, position = self.began_at[u.step]
        clock[began] = max(clock[began], position)
        return clock

    def needed(self, semaphore: int, value: int, waiter: int) -> list[Raise]:
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

    def possible(self, semaphore: int, waiter: int) -> list[Raise]:
        """Updates that may come before a wait: not those of steps behind it."""
        updates = self.by_semaphore.get(semaphore, [])
        return [u for u in updates if self.clock[u.step, self.issue_chain[waiter]] < self.queue_position[waiter]]

    def triggered(self, semaphore: int, value: int, waiter: int) -> list[int]:
        """DMAs of which the wait needs some part, so that their trigger has passed its own waits."""
        if semaphore in self.observed:
            return []
        possible = self.possible(semaphore, waiter)
        return [u.step for u in possible if u.parts > 1 and self.without(u, possible, begun=False) < value]

    def without(self, u: Raise, possible: Sequence[Raise], begun: bool = True) -> int:
        """The most a semaphore can reach before the last part of `u` arrives; before its first, unless `begun`."""
        total = u.amount - u.amount // u.parts if begun else 0
        for other in possible:
            if other is u or self.clock[other.step, u.chain] >= u.position:
                continue  # its instruction issues only behind `u`
            if other.chain == u.chain and other.position >= u.position:
                # of the same instruction, part by part with `u`, or behind it; a later DMA may still be done on the DMA
                # engines where this one is
                total += other.amount - other.amount // other.parts if begun else 0
            elif self.knowledge(other)[u.chain] < u.position:
                total += other.amount
        return total
