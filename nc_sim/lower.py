"""Steps x chip -> Table: the only place where a cost is looked up.

Each engine has two streams. Its sequencer waits for semaphores in order, hands the instruction over and runs ahead, as
deep as the engine's queue allows; control instructions and DMA triggers execute in the sequencer. Hidden semaphores
carry the hand-over, the queue's depth, background weight loads and the store ring, so the engines know no special case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TypeVar, cast

import attrs
import numpy as np

from .chip import Chip, Reader
from .isa import COMPUTE, Engine, Step, UpdateOp
from .isa import When as StepWhen
from .isa.control import Nop
from .isa.dma import DmaDirect2d
from .isa.errors import InternalError, ProgramError, Unimplemented
from .isa.tensor import LoadWeights, Matmul
from .table import MAX_UPDATES, STATES, Ints, Op, Role, Rule, Table, When
from .timing import dma as dma_timing
from .timing import elementwise, tensor
from .timing.cost import Cost, same

T = TypeVar("T")
DGE = "GpSimd descriptors"
HARDWARE_SEMAPHORES = 256


@attrs.frozen
class Options:
    """Choices of one run that are not the chip's."""

    gate_phase_ns: Fraction = Fraction(0)
    # step -> ns from a trigger to the end of its last packet, where a measurement replaces the DMA model
    dma_latency_ns: Mapping[int, Fraction] = attrs.field(factory=dict)


def lower(
    steps: Sequence[Step], chip: Chip, options: Options | None = None, names: Mapping[int, str] | None = None
) -> tuple[Table, Reader]:
    """The table of a program's machine instructions, and the reader that knows which numbers it used."""
    work = _Lowering(chip.reader(), options or Options(), names or {})
    for index, step in enumerate(steps):
        work.add(index, step)
    return work.table(len(steps)), work.chip


@attrs.define(slots=True)
class _Row:
    step: int
    role: Role
    cost: int
    rule: Rule
    work: int
    waits: list[tuple[int, int]]
    updates: list[tuple[int, int, int, int, int]]  # semaphore, op, value, when, delay index
    fan: list[_Transfer]


@attrs.define(slots=True)
class _Transfer:
    step: int
    ring: int
    share: dma_timing.Share
    updates: list[tuple[int, int, int, int, int]]


class _Lowering:
    def __init__(self, chip: Reader, options: Options, names: Mapping[int, str]) -> None:
        self.chip, self.options, self.names = chip, options, names
        self.streams: list[list[_Row]] = [[] for _ in range(len(Engine) + len(COMPUTE) + 1)]
        self.dge = len(self.streams) - 1
        self.hidden_names: list[str] = []
        self.costs: dict[Cost, int] = {}
        self.delays: dict[tuple[int, int, int, int], int] = {}
        self.rings: dict[str, int] = {}
        self.stores: dict[int, list[list[_Transfer]]] = {}  # ring -> transfers of each store
        self.seen: dict[object, object] = {}  # instruction -> what was computed for it
        ticks = chip.chip.ticks
        self.hop = max(1, ticks(chip("semaphore.latency_ns")))
        self.dispatch = self.cost(same(ticks(chip("sequencer.dispatch_ns")), ticks(chip("sequencer.dispatch_ns"))))
        self.one = self.cost(same(1, 1))
        self.handed = {e: self.hidden(f"{e.label} handed over") for e in COMPUTE}
        self.began = {e: self.hidden(f"{e.label} began") for e in COMPUTE}
        self.count = dict.fromkeys(COMPUTE, 0)
        # Looked at without counting as used: only a program that fills a queue rests on its depth.
        self.depth = {e: int(chip.chip.numbers[f"sequencer.{e.name.lower()}.queue_depth"].value) for e in COMPUTE}
        self.handover = {e: self.delay(max(1, ticks(chip(f"sequencer.{e.name.lower()}.handover_ns")))) for e in COMPUTE}
        self.loaded, self.streamed = self.hidden("weights loaded"), self.hidden("array streamed")
        self.loaded_delay = self.delay(ticks(chip("tensor.loaded_to_stream_ns")))
        self.loads = self.products = 0
        self.generated, self.described = self.hidden("descriptors generated"), 0

    # ---- small tables

    def hidden(self, name: str) -> int:
        self.hidden_names.append(name)
        return HARDWARE_SEMAPHORES + len(self.hidden_names) - 1

    def cost(self, cost: Cost) -> int:
        return self.costs.setdefault(cost, len(self.costs))

    def delay(self, ticks: int) -> int:
        return self.delays_by_state((ticks, ticks, ticks, ticks))

    def delays_by_state(self, ticks: tuple[int, int, int, int]) -> int:
        return self.delays.setdefault(ticks, len(self.delays))

    def row(self, stream: int, step: int, role: Role, cost: int, rule: Rule = Rule.ALWAYS, work: int = 0) -> _Row:
        row = _Row(step, role, cost, rule, work, [], [], [])
        self.streams[stream].append(row)
        return row

    # ---- steps

    def add(self, index: int, step: Step) -> None:
        """Append the rows of one machine instruction."""
        instruction = step.instruction
        if not instruction.machine:
            raise InternalError("lower", f"{instruction.mnemonic} is a call", "machine instructions only: expand first")
        if isinstance(instruction, DmaDirect2d):
            self.add_dma(index, step, instruction)
        elif isinstance(instruction, Nop):
            self.add_control(index, step)
        else:
            self.add_compute(index, step)

    def add_control(self, index: int, step: Step) -> None:
        ticks, name = self.chip.chip.ticks, step.engine.name.lower()
        shown = ticks(self.chip(f"sequencer.{name}.event_semaphore_ns"))
        gap = ticks(self.chip(f"sequencer.{name}.event_semaphore_gap_ns"))
        row = self.row(step.engine, index, Role.CONTROL, self.cost(same(shown + gap, shown)))
        self.synchronise(row, step, row, row)

    def add_compute(self, index: int, step: Step) -> None:
        engine = step.engine
        if engine not in COMPUTE:
            raise ProgramError(step.line, f"{step.instruction.mnemonic} on {engine.label}", "a compute engine: Sync has no data path")
        sequence = self.row(engine, index, Role.SEQUENCE, self.dispatch)
        position = self.count[engine]
        self.count[engine] = position + 1
        if position >= self.depth[engine]:
            self.chip(f"sequencer.{engine.name.lower()}.queue_depth")
            sequence.waits.append((self.began[engine], position - self.depth[engine] + 1))
        sequence.updates.append((self.handed[engine], Op.ADD, 1, When.START, self.handover[engine]))
        stream = len(Engine) + COMPUTE.index(engine)
        rows = self.execute(stream, index, step)
        rows[0].waits.append((self.handed[engine], position + 1))
        rows[0].updates.append((self.began[engine], Op.ADD, 1, When.START, self.delay(1)))
        self.synchronise(sequence, step, rows[-1], rows[-1])  # a product reads its operand when it streams

    def execute(self, stream: int, index: int, step: Step) -> list[_Row]:
        """The rows on the engine's own stream."""
        instruction = step.instruction
        if isinstance(instruction, LoadWeights):
            cost = self.once(instruction, lambda: tensor.weights(instruction.work(), self.chip))
            row = self.row(stream, index, Role.EXECUTE, self.cost(cost), Rule.LOAD)
            row.updates.append((self.loaded, Op.ADD, 1, When.STREAMED, self.loaded_delay))
            self.loads += 1
            return [row]
        if isinstance(instruction, Matmul):
            cost, units, gap = self.once(instruction, lambda: tensor.stream(instruction.work(), self.chip))
            if not self.loads:
                raise ProgramError(step.line, "matmul before any ldweights", "weights in the array")
            handed = self.row(stream, index, Role.HANDED, self.one)
            if self.products:
                handed.waits.append((self.streamed, self.products))
            row = self.row(stream, index, Role.STREAM, self.cost(cost), Rule.STREAM, units)
            row.waits.append((self.loaded, self.loads))
            row.updates.append((self.streamed, Op.ADD, 1, When.STREAMED, self.delays_by_state(gap)))
            self.products += 1
            return [handed, row]
        cost = self.once((instruction, step.engine), lambda: elementwise.cost(instruction.work(), step.engine, self.chip))
        return [self.row(stream, index, Role.EXECUTE, self.cost(cost))]

    def add_dma(self, index: int, step: Step, dma: DmaDirect2d) -> None:
        engine, ring = step.engine, self.ring(step.engine, dma)
        transfers = self.transfers(index, dma, ring)
        rows = self.once((dma, "rows"), lambda: sum(dma_timing.rows_by_engine(dma, self.chip)[0]))
        if dma.generation == "software":
            accept, trigger = self.software_trigger(index, step)
        else:
            cost = self.once((dma, engine, rows), lambda: dma_timing.trigger(dma, engine, rows, self.chip))
            accept = trigger = self.row(engine, index, Role.TRIGGER, self.cost(cost), Rule.FOLLOW)
            if dma.generation == "hardware" and not dma.load and self.chip("dma.store_ring_limit"):
                accept = self.stall_on_ring(trigger, cost, ring)
        if dma.generation == "hardware" and not dma.load:
            self.stores.setdefault(ring, []).append(transfers)
        trigger.fan = transfers
        self.synchronise(accept, attrs.evolve(step, updates=()), accept, trigger)
        self.raise_semaphores(step, dma, transfers)

    def software_trigger(self, index: int, step: Step) -> tuple[_Row, _Row]:
        """GpSimd builds the descriptors; a trace shows the trigger when they are done."""
        ticks = self.chip.chip.ticks
        if step.engine is not Engine.GPSIMD:
            raise ProgramError(step.line, f"software descriptors on {step.engine.label}", "GpSimd makes them")
        interval, latency = ticks(self.chip("dma.software.interval_ns")), ticks(self.chip("dma.software.latency_ns"))
        accept = self.row(step.engine, index, Role.ACCEPT, self.cost(same(interval, latency)))
        accept.updates.append((self.generated, Op.ADD, 1, When.START, self.delay(max(1, latency))))
        trigger = self.row(self.dge, index, Role.TRIGGER, self.cost(same(1, ticks(self.chip("dma.software.shown_ns")))))
        self.described += 1
        trigger.waits.append((self.generated, self.described))
        return accept, trigger

    def stall_on_ring(self, trigger: _Row, cost: Cost, ring: int) -> _Row:
        """A store behind `limit` unfinished ones in its ring: the trigger lasts until the oldest completes, and a gap."""
        limit, before = self.chip("dma.store_ring_limit"), self.stores.get(ring, [])
        stream = next(s for s in self.streams if s and s[-1] is trigger)
        accept = _Row(trigger.step, Role.ACCEPT, self.one, Rule.ALWAYS, 0, [], [], [])
        stream.insert(len(stream) - 1, accept)
        if len(before) >= limit:
            oldest = before[-limit]
            done = self.hidden(f"store {len(before) - limit} of ring {ring}")
            wait = max(0, self.chip.chip.ticks(self.chip("dma.store_ring_gap_ns")) - cost.latency[0])
            for t in oldest:
                t.updates.append((done, Op.ADD, 1, When.FINISH, self.delay(wait)))
            trigger.waits.append((done, len(oldest)))
        return accept

    def ring(self, engine: Engine, dma: DmaDirect2d) -> int:
        """One in-order ring per issuing queue and way of making descriptors."""
        return self.rings.setdefault(queue_name(engine, dma.generation), len(self.rings))

    def transfers(self, index: int, dma: DmaDirect2d, ring: int) -> list[_Transfer]:
        if (latency := self.options.dma_latency_ns.get(index)) is not None:
            ticks = max(1, self.chip.chip.ticks(latency) - 1)
            share = dma_timing.Share(-1, 1, 0, ticks, 0, 0, False, 0, 0)
            return [_Transfer(index, ring, share, [])]
        shares = self.once((dma, "shares"), lambda: dma_timing.shares(dma, self.chip))
        return [_Transfer(index, ring, share, []) for share in shares]

    def raise_semaphores(self, step: Step, dma: DmaDirect2d, transfers: list[_Transfer]) -> None:
        """Every DMA engine adds its part of the 16 when its semaphore packet is out."""
        delay = self.delay(dma_timing.done_ticks(dma, self.chip))
        engines = self.chip("dma.engines")
        for u in step.updates:
            if u.op is not UpdateOp.ADD or u.when is not StepWhen.COMPLETE or u.value % engines:
                raise ProgramError(
                    f"{step.line} {step.instruction.mnemonic}".strip(),
                    f"update {u.op.name.lower()} {u.value} on {u.when.name.lower()}",
                    f"add({engines}) on completion: each of the {engines} DMA engines adds its share",
                )
            for t in transfers:
                t.updates.append((u.semaphore, Op.ADD, u.value // len(transfers), When.FINISH, delay))
        if max(len(t.updates) for t in transfers) >= MAX_UPDATES:
            raise Unimplemented(step.line, f"{len(step.updates)} updates on one DMA", f"at most {MAX_UPDATES - 2}")

    def synchronise(self, waiting: _Row, step: Step, first: _Row, last: _Row) -> None:
        """Attach the step's own waits and updates."""
        waiting.waits.extend((w.semaphore, w.value) for w in step.waits)
        for u in step.updates:
            row, when = (first, When.START) if u.when is StepWhen.READ else (last, When.FINISH)
            row.updates.append((u.semaphore, Op(int(u.op)), u.value, when, self.delay(self.hop)))
        if max(len(first.updates), len(last.updates)) > MAX_UPDATES:
            raise Unimplemented(step.line, f"{len(step.updates)} updates on one instruction", f"at most {MAX_UPDATES - 2}")

    def once(self, key: object, compute: Callable[[], T]) -> T:
        """Memoise by instruction: programs repeat themselves."""
        if key not in self.seen:
            self.seen[key] = compute()
        return cast(T, self.seen[key])

    # ---- the table

    def table(self, steps: int) -> Table:
        """Number the rows, drop nothing, and pack the columns."""
        rows = [r for s in self.streams for r in s]
        transfers = [t for r in rows for t in r.fan]
        everything: list[_Row | _Transfer] = [*rows, *transfers]
        ids = sorted({s for r in rows for s, _ in r.waits} | {u[0] for r in everything for u in r.updates})
        compact = {s: k for k, s in enumerate(ids)}
        updates = [u for r in everything for u in r.updates]
        wait_row, start_row, finish_row = (np.full(steps, -1, np.int64) for _ in range(3))
        for k, r in enumerate(rows):
            if r.role in (Role.SEQUENCE, Role.CONTROL, Role.ACCEPT) or (r.role is Role.TRIGGER and wait_row[r.step] < 0):
                wait_row[r.step] = k
            if r.role in (Role.CONTROL, Role.EXECUTE, Role.HANDED) or (r.role is Role.ACCEPT and self.shown_when_accepted(r)):
                start_row[r.step] = k
            if r.role is Role.TRIGGER and (start_row[r.step] < 0):
                start_row[r.step] = k
            if r.role in (Role.CONTROL, Role.EXECUTE, Role.STREAM, Role.TRIGGER):
                finish_row[r.step] = k
        ticks, reader = self.chip.chip.ticks, self.chip
        share = [t.share for t in transfers]
        return Table(
            stream_names=(*(e.label for e in Engine), *(f"{e.label} engine" for e in COMPUTE), DGE),
            stream_start=ints([*(ticks(reader(f"sequencer.{e.name.lower()}.release_ns")) for e in Engine), *(0,) * (len(COMPUTE) + 1)]),
            stream_ptr=pointer(len(s) for s in self.streams),
            # Elementwise engines are pipelines: a short instruction does not overtake a long one (assumed; the
            # replayed streams never come near). Weight loads do end before the product that runs ahead of them.
            stream_ordered=ints([*(0,) * len(Engine), *(int(e is not Engine.TENSOR) for e in COMPUTE), 0]),
            step=ints(r.step for r in everything),
            role=ints([*(int(r.role) for r in rows), *(int(Role.TRANSFER),) * len(transfers)]),
            cost=ints(r.cost for r in rows),
            rule=ints(int(r.rule) for r in rows),
            work=ints(r.work for r in rows),
            fan_ptr=pointer(len(r.fan) for r in rows),
            wait_ptr=pointer(len(r.waits) for r in rows),
            wait_semaphore=ints(compact[s] for r in rows for s, _ in r.waits),
            wait_value=ints(v for r in rows for _, v in r.waits),
            update_ptr=pointer(len(r.updates) for r in everything),
            update_semaphore=ints(compact[u[0]] for u in updates),
            update_op=ints(int(u[1]) for u in updates),
            update_value=ints(u[2] for u in updates),
            update_when=ints(int(u[3]) for u in updates),
            update_delay=ints(u[4] for u in updates),
            cost_issue=np.array([c.issue for c in self.costs], np.int64).reshape(-1, STATES),
            cost_latency=np.array([c.latency for c in self.costs], np.int64).reshape(-1, STATES),
            cost_load=np.array([c.load for c in self.costs], np.int64).reshape(-1, STATES),
            delays=np.array(list(self.delays), np.int64).reshape(-1, STATES),
            server=ints(s.engine for s in share),
            ring=ints(t.ring for t in transfers),
            arrival=ints(s.arrival for s in share),
            packets=ints(s.packets for s in share),
            packet=ints(s.packet for s in share),
            first=ints(s.first for s in share),
            last=ints(s.last for s in share),
            load=ints(int(s.load) for s in share),
            busy_delay=ints(s.busy_delay for s in share),
            busy_stall=ints(s.busy_stall for s in share),
            servers=reader("dma.engines"),
            rings=max(1, len(self.rings)),
            semaphores=len(ids),
            semaphore_names=tuple(self.semaphore_name(s) for s in ids),
            follow_window=ticks(reader("dma.follow_window_ns")),
            recent=ticks(reader("dma.recent_load_ns")),
            throttle=tensor.throttle(reader, self.options.gate_phase_ns),
            ticks_per_ns=self.chip.chip.ticks_per_ns,
            wait_row=wait_row,
            start_row=start_row,
            finish_row=finish_row,
        )

    def shown_when_accepted(self, row: _Row) -> bool:
        """A trace shows a store's trigger from its dispatch, a software trigger only when its descriptors are made."""
        return row.updates == [] or all(u[0] != self.generated for u in row.updates)

    def semaphore_name(self, semaphore: int) -> str:
        if semaphore >= HARDWARE_SEMAPHORES:
            return self.hidden_names[semaphore - HARDWARE_SEMAPHORES]
        return self.names.get(semaphore, f"S[{semaphore}]")


def ints(values: Iterable[int]) -> Ints:
    """A column."""
    return np.fromiter(values, np.int64)


def pointer(counts: Iterable[int]) -> Ints:
    """Where each of several lists begins in their concatenation, and where the last ends."""
    return np.concatenate([[0], np.cumsum(ints(counts))]).astype(np.int64)


def queue_name(engine: Engine, generation: str) -> str:
    """The ring's name as real traces print it: qSyncDynamicHW, qGpSimdDynamic, qSyncIO0."""
    return f"q{engine.label}" + {"hardware": "DynamicHW", "software": "Dynamic", "static": "IO0"}[generation]
