"""Semaphores for an automatic program, as the compiler sets them (lowering rules B14 to B16).

Every compute engine raises its own semaphore at each completion; every DMA raises one of its queue's sixteen by 16. An
instruction waits for whom it reads from or overwrites, its own engine included (never PE for PE), unless earlier waits
of its queue, or what the awaited instruction had waited for itself, imply it. One wait sits on the instruction, the rest
on EVENT_SEMAPHOREs before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from operator import attrgetter

import attrs

from .access import History, unwritten
from .isa import Engine, Step, Update, UpdateOp, Wait
from .isa.control import EventSemaphore, Nop
from .isa.dma import Dma
from .isa.errors import ProgramError
from .isa.registers import RegisterLoad, RegisterStore
from .isa.tensor import LoadWeights, Matmul
from .lower import queue_name
from .program import Tensor
from .progress import Tell, told

ENGINE_SEMAPHORE: dict[int, int] = {Engine.SCALAR: 4, Engine.TENSOR: 5, Engine.VECTOR: 6, Engine.GPSIMD: 7}
FIRST_DMA_SEMAPHORE = 8
ENGINES = len(Engine)  # sources from here on are DMA queues
PER_QUEUE = 16  # semaphores of one DMA queue; the next use of one waits for the last
PER_DMA = 16  # what one DMA adds
WAITS_PER_EVENT_SEMAPHORE = 2
ARRAY = (LoadWeights, Matmul)
EVENT_SEMAPHORE = EventSemaphore()  # one object for all: they differ in their waits, which are the step's
REGISTERS = "registers"  # in place of a way of making descriptors: the source of a sequencer's loads and stores


@attrs.frozen
class Synchronised:
    """Steps with waits and updates, and the names of the semaphores they use."""

    steps: tuple[Step, ...]
    names: dict[int, str]


@attrs.define(slots=True)
class _Unit:
    """Instructions of one call in one queue that wait and signal as one."""

    source: int  # who counts its completion: a compute engine, or a DMA queue
    position: int  # completions of the source once this one is done
    knows: list[int]  # completions, by source, known when it issued


def synchronise(
    steps: Sequence[Step], tensors: Mapping[str, Tensor], addresses: Mapping[str, int], progress: Tell | None = None
) -> Synchronised:  # fmt: skip
    """Insert every wait and update an automatic program needs, and no other; the steps themselves are completed.

    `progress` is told steps done and steps in all.
    """
    work = _Sync(tensors, addresses, unwritten(steps, tensors))
    for unit in _grouped(told(steps, progress)):
        work.add(unit)
    work.wait_for_outputs()
    return Synchronised(tuple(work.out), work.names())


def _grouped(steps: Iterable[Step]) -> Iterator[Sequence[Step]]:
    """The TensorEngine's weight loads stay with the product behind them, and LOW passes with their HIGH; others are alone."""
    group: list[Step] = []
    open_behind = False  # the last one is of the array and goes with the next of the array
    for step in steps:
        array = isinstance(step.instruction, ARRAY)
        if group and not (array and open_behind):
            yield group
            group = []
        group.append(step)
        open_behind = array and not step.instruction.signals()
    if group:
        yield group


_semaphore = attrgetter("semaphore")


class _Sync:
    def __init__(self, tensors: Mapping[str, Tensor], addresses: Mapping[str, int], never: Set[str]) -> None:
        self.history = History(tensors, addresses, never)
        self.outputs = {t.name for t in tensors.values() if t.kind == "output"}
        self.queues: list[str] = []  # DMA queues in the order in which they first issue
        self.sources: dict[tuple[Engine, str], int] = {}
        self.sequencers: set[int] = set()  # sources that are sequencers: loads and stores of registers
        self.made: dict[tuple[int, int], Update] = {}  # updates by semaphore and value: there are few
        self.units: list[_Unit] = []
        self.done: list[list[int]] = [[] for _ in Engine]  # by source: its units in order of completion
        self.known: dict[Engine, list[int]] = {e: [] for e in Engine}
        self.last_store: dict[int, int] = {}  # DMA queue source -> position of its last store to an output
        self.out: list[Step] = []

    def add(self, group: Sequence[Step]) -> None:
        """Order one unit behind whom it conflicts with, and append its steps."""
        queue, number = group[0].engine, len(self.units)
        source = self.source(group[0])
        needed: dict[int, int] = {}
        conflicts, units, array = self.history.conflicts, self.units, source == Engine.TENSOR
        for step in group:
            for views, writes in ((step.instruction.reads, False), (step.instruction.writes, True)):
                for view in views:
                    for access in conflicts(number, source, view, writes):
                        before = units[access.unit]
                        if array and before.source == source:
                            continue  # the array's results land in order
                        if before.position > needed.get(before.source, 0):
                            needed[before.source] = before.position
        position = len(self.done[source]) + 1
        if source >= ENGINES and position > PER_QUEUE and source not in self.sequencers:
            needed[source] = max(needed.get(source, 0), position - PER_QUEUE)
        waits = self.reduce(queue, needed) if needed else []
        self.units.append(_Unit(source, position, list(self.known[queue])))
        if source in self.sequencers:  # it is done when its queue goes on
            known = self.known[queue]
            known.extend([0] * (len(self.done) - len(known)))
            known[source] = position
        signalling = [k for k, step in enumerate(group) if step.instruction.signals()]
        if not signalling and source == Engine.TENSOR and any(step.instruction.views for step in group):
            raise ProgramError(
                f"{group[-1].line} {group[-1].instruction.mnemonic}".strip(),
                "no product follows it on the TensorEngine",
                "its matmul next, nc_matmul, or semaphores of your own",
            )
        if source >= ENGINES or signalling:
            self.done[source].append(number)
        update = self.update(source, position)
        if source >= ENGINES:
            signalling = [0]
            if any(v.tensor in self.outputs for v in group[0].instruction.writes):
                self.last_store[source] = position
        first = self.waiting(queue, waits, group[0].line) if waits else ()
        for k, step in enumerate(group):
            step.waits = first if k == 0 else ()
            step.updates = (update,) if signalling and k == signalling[-1] else ()
            self.out.append(step)

    def source(self, step: Step) -> int:
        """Who counts a step's completion."""
        if isinstance(step.instruction, Dma):
            key = (step.engine, step.instruction.generation)
        elif isinstance(step.instruction, RegisterLoad | RegisterStore):
            key = (step.engine, REGISTERS)
        else:
            return int(step.engine)
        if (source := self.sources.get(key)) is None:
            name = queue_name(*key) if key[1] != REGISTERS else f"{step.engine.label} {REGISTERS}"
            if name not in self.queues:
                self.queues.append(name)
                self.done.append([])
            source = self.sources[key] = ENGINES + self.queues.index(name)
            if key[1] == REGISTERS:
                self.sequencers.add(source)
        return source

    def reduce(self, queue: Engine, needed: Mapping[int, int]) -> list[Wait]:
        """Waits that nothing implies, latest issued first, and what the queue then knows."""
        known = self.known[queue]
        known.extend([0] * (len(self.done) - len(known)))
        waits = []
        order = needed.items() if len(needed) == 1 else sorted(needed.items(), key=lambda n: -self.done[n[0]][n[1] - 1])
        for source, position in order:
            if known[source] >= position:
                continue
            waits.append(self.wait(source, position))
            unit = self.units[self.done[source][position - 1]]
            for other, reached in enumerate(unit.knows):
                if reached > known[other]:
                    known[other] = reached
            known[source] = position
        return waits

    def waiting(self, queue: Engine, waits: Sequence[Wait], line: str) -> tuple[Wait, ...]:
        """The wait the instruction keeps, of the lowest semaphore; EVENT_SEMAPHOREs take the rest."""
        if len(waits) == 1:
            return (waits[0],)
        kept = sorted(waits, key=_semaphore)
        for k in range(1, len(kept), WAITS_PER_EVENT_SEMAPHORE):
            self.out.append(Step(EVENT_SEMAPHORE, queue, tuple(kept[k : k + WAITS_PER_EVENT_SEMAPHORE]), (), line))
        return tuple(kept[:1])

    def wait_for_outputs(self) -> None:
        """The last instruction: GpSimd waits for every store to an output (rule B16)."""
        waits = self.reduce(Engine.GPSIMD, self.last_store)
        if self.last_store:
            self.out.append(Step(Nop(), Engine.GPSIMD, self.waiting(Engine.GPSIMD, waits, ""), ()))

    def wait(self, source: int, position: int) -> Wait:
        if source < ENGINES:
            return Wait(ENGINE_SEMAPHORE[source], position)
        if source in self.sequencers:
            return Wait(self.dma_semaphore(source, 1), position)
        return Wait(self.dma_semaphore(source, position), PER_DMA * ((position - 1) // PER_QUEUE + 1))

    def update(self, source: int, position: int) -> Update:
        if source < ENGINES:
            what = (ENGINE_SEMAPHORE.get(source, 0), 1)
        elif source in self.sequencers:
            what = (self.dma_semaphore(source, 1), 1)
        else:
            what = (self.dma_semaphore(source, position), PER_DMA)
        if (update := self.made.get(what)) is None:
            update = self.made[what] = Update(what[0], UpdateOp.ADD, what[1])
        return update

    def dma_semaphore(self, source: int, position: int) -> int:
        return FIRST_DMA_SEMAPHORE + PER_QUEUE * (source - ENGINES) + (position - 1) % PER_QUEUE

    def names(self) -> dict[int, str]:
        """As real traces print them."""
        out = {s: f"S[{s}] ({Engine(e).label})" for e, s in ENGINE_SEMAPHORE.items()}
        for k, name in enumerate(self.queues):
            for j in range(1 if ENGINES + k in self.sequencers else PER_QUEUE):
                s = FIRST_DMA_SEMAPHORE + PER_QUEUE * k + j
                out[s] = f"S[{s}] ({name})"
        return out
