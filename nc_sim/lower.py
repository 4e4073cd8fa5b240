"""Steps x chip -> Table: the only place where a cost is looked up.

Each engine has two streams. Its sequencer waits for semaphores in order, hands the instruction over and runs ahead, as
deep as the engine's queue allows; control instructions and DMA triggers execute in the sequencer. Hidden semaphores
carry the hand-over, the queue's depth, background weight loads and the store ring, so the engines know no special case.

Rows are written once, as integers, into flat arrays, and what instructions of one shape share is looked up once. The
sixteen shares of a DMA are one block of numbers; numpy lays the blocks out as transfers at the end.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import TypeVar, cast

import attrs
import numpy as np

from .chip import Chip, Reader
from .isa import COMPUTE, Engine, Memory, Step, UpdateOp
from .isa import When as StepWhen
from .isa.control import Control
from .isa.dma import Dma, DmaDirect2d
from .isa.errors import InternalError, ProgramError, Unimplemented, Unspecified, Unsupported
from .isa.tensor import LoadWeights, Matmul
from .progress import Tell, told
from .table import MAX_UPDATES, STATES, Ints, Op, Role, Rule, Table, When
from .timing import control, elementwise, tensor
from .timing import dma as dma_timing
from .timing.cost import Cost, same

T = TypeVar("T")
DGE = "GpSimd descriptors"
HARDWARE_SEMAPHORES = 256
# plain integers: these go into arrays a million times
SEQUENCE, CONTROL, EXECUTE, HANDED, STREAM, ACCEPT, TRIGGER = map(
    int, (Role.SEQUENCE, Role.CONTROL, Role.EXECUTE, Role.HANDED, Role.STREAM, Role.ACCEPT, Role.TRIGGER)
)
ALWAYS, FOLLOW, LOADS, STREAMS = map(int, (Rule.ALWAYS, Rule.FOLLOW, Rule.LOAD, Rule.STREAM))
ADD, AT_START, AT_STREAMED, AT_FINISH = map(int, (Op.ADD, When.START, When.STREAMED, When.FINISH))
PER_ROW, PER_WAIT, PER_UPDATE, PER_DMA, PER_SIGNAL = 8, 2, 5, 5, 3  # integers of one record
NONE: tuple[int, ...] = ()


@attrs.frozen
class Options:
    """Choices of one run that are not the chip's."""

    gate_phase_ns: Fraction = Fraction(0)
    # step -> ns from a trigger to the end of its last packet, where a measurement replaces the DMA model
    dma_latency_ns: Mapping[int, Fraction] = attrs.field(factory=dict)


def lower(
    steps: Sequence[Step], chip: Chip, options: Options | None = None, names: Mapping[int, str] | None = None,
    progress: Tell | None = None,
) -> tuple[Table, Reader]:  # fmt: skip
    """The table of a program's machine instructions, and the reader that knows which numbers it used.

    `progress` is told steps done and steps in all.
    """
    try:
        work = _Lowering(chip.reader(), options or Options(), names or {})
        for index, step in enumerate(told(steps, progress)):
            work.add(index, step)
        return work.table(len(steps)), work.chip
    except OverflowError:
        found = f"a time beyond 64 bits, in ticks of 1/{float(chip.ticks_per_ns):g} ns"
        raise Unsupported(f"chip {chip.name}", found, "clocks with a smaller common multiple, or shorter times") from None


@attrs.define(slots=True)
class _Stream:
    """Rows of one stream: (step, role, cost, rule, work, waits, updates, DMA or -1), and their waits and updates in order."""

    rows: array[int] = attrs.field(factory=lambda: array("q"))
    ports: array[int] = attrs.field(factory=lambda: array("q"))  # of each row
    waits: array[int] = attrs.field(factory=lambda: array("q"))  # (semaphore, value)
    updates: array[int] = attrs.field(factory=lambda: array("q"))  # (semaphore, op, value, when, delay index)

    def add(
        self, step: int, role: int, cost: int, rule: int = ALWAYS, work: int = 0, waits: tuple[int, ...] = NONE,
        updates: tuple[int, ...] = NONE, dma: int = -1, ports: int = 0,
    ) -> None:  # fmt: skip
        """Append a row; `waits` and `updates` are flat."""
        self.rows.extend((step, role, cost, rule, work, len(waits) // PER_WAIT, len(updates) // PER_UPDATE, dma))
        self.ports.append(ports)
        if waits:
            self.waits.extend(waits)
        if updates:
            self.updates.extend(updates)


@attrs.frozen(slots=True)
class _Shape:
    """What DMAs of one shape share."""

    block: int  # its shares
    transfers: int
    trigger: int  # index of its trigger's cost
    shown: int  # ticks of that cost
    done: int  # index of the delay of its semaphores
    accept: int  # index of the cost of making its descriptors in software
    made: int  # index of the delay until they are made


class _Lowering:
    def __init__(self, chip: Reader, options: Options, names: Mapping[int, str]) -> None:
        self.chip, self.options, self.names = chip, options, names
        self.streams = [_Stream() for _ in range(len(Engine) + len(COMPUTE) + 1)]
        self.dge = len(self.streams) - 1
        self.hidden_names: list[str] = []
        self.costs: dict[Cost, int] = {}
        self.delays: dict[tuple[int, int, int, int], int] = {}
        self.rings: dict[str, int] = {}
        self.ring_of: dict[tuple[Engine, str], int] = {}
        self.blocks: list[Ints] = []  # [shares, columns of a transfer]
        self.dmas = array("q")  # (step, ring, block, semaphore raised when it is done for a store behind it or -1, its delay)
        self.signals = array("q")  # (semaphore, value, delay index) that every transfer of a DMA adds
        self.signal_counts = array("q")  # of each DMA
        self.stores: dict[int, list[int]] = {}  # ring -> its stores' DMAs
        self.shapes: dict[object, _Shape] = {}
        self.control: dict[tuple[Engine, str], int] = {}
        self.seen: dict[object, object] = {}  # instruction, or its shape -> what was computed for it
        ticks = chip.chip.ticks
        self.hop = max(1, ticks(chip("semaphore.latency_ns")))
        self.dispatch = self.cost(same(ticks(chip("sequencer.dispatch_ns")), ticks(chip("sequencer.dispatch_ns"))))
        self.one = self.cost(same(1, 1))
        self.handed = {e: self.hidden(f"{e.label} handed over") for e in COMPUTE}
        self.began = {e: self.hidden(f"{e.label} began") for e in COMPUTE}
        self.behind = {e: self.streams[len(Engine) + k] for k, e in enumerate(COMPUTE)}  # the engines' own streams
        self.count = dict.fromkeys(COMPUTE, 0)
        # Looked at without counting as used: only a program that fills a queue rests on its depth.
        self.depth = {e: int(chip.chip.numbers[f"sequencer.{e.name.lower()}.queue_depth"].value) for e in COMPUTE}
        self.handover = {e: self.delay(max(1, ticks(chip(f"sequencer.{e.name.lower()}.handover_ns")))) for e in COMPUTE}
        self.loaded, self.streamed = self.hidden("weights loaded"), self.hidden("array streamed")
        self.loaded_delay = self.delay(ticks(chip("tensor.loaded_to_stream_ns")))
        self.loads = self.products = 0
        self.generated, self.described = self.hidden("descriptors generated"), 0
        self.hop_delay = self.tick_delay = -1  # used first where a row needs them

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

    def once(self, key: object, compute: Callable[[], T]) -> T:
        """Memoise: programs repeat themselves."""
        if (known := self.seen.get(key)) is None:
            known = self.seen[key] = compute()
        return cast(T, known)

    # ---- steps

    def add(self, index: int, step: Step) -> None:
        """Append the rows of one machine instruction."""
        instruction = step.instruction
        if not instruction.machine:
            raise InternalError("lower", f"{instruction.mnemonic} is a call", "machine instructions only: expand first")
        if isinstance(instruction, Dma):
            self.add_dma(index, step, instruction)
        elif isinstance(instruction, Control):
            self.add_control(index, step, instruction.timing)
        else:
            self.add_compute(index, step)

    def add_control(self, index: int, step: Step, timing: str) -> None:
        if (cost := self.control.get((step.engine, timing))) is None:
            cost = self.control[step.engine, timing] = self.cost(control.cost(timing, step.engine, self.chip))
        self.streams[step.engine].add(index, CONTROL, cost, waits=_waits(step), updates=self.updates(step, 0))

    def add_compute(self, index: int, step: Step) -> None:
        """The sequencer hands it over, as deep as the queue is; the engine begins it."""
        engine = step.engine
        if (position := self.count.get(engine)) is None:
            raise ProgramError(step.line, f"{step.instruction.mnemonic} on {engine.label}", "a compute engine: Sync has no data path")
        self.count[engine] = position + 1
        waits = _waits(step)
        if position >= self.depth[engine]:
            if position == self.depth[engine]:
                self.chip(f"sequencer.{engine.name.lower()}.queue_depth")  # now the program rests on it
            waits = (self.began[engine], position - self.depth[engine] + 1, *waits)
        self.streams[engine].add(
            index, SEQUENCE, self.dispatch, waits=waits, updates=(self.handed[engine], ADD, 1, AT_START, self.handover[engine])
        )
        if self.tick_delay < 0:
            self.tick_delay = self.delay(1)
        self.execute(index, step, (self.handed[engine], position + 1), (self.began[engine], ADD, 1, AT_START, self.tick_delay))

    def execute(self, index: int, step: Step, handed: tuple[int, ...], began: tuple[int, ...]) -> None:
        """The rows on the engine's own stream: the first waits to be handed over, the last raises the step's semaphores."""
        instruction, engine = step.instruction, step.engine
        stream = self.behind[engine]
        if isinstance(instruction, LoadWeights):
            cost = self.once(instruction, lambda: self.cost(tensor.weights(instruction.work(), self.chip)))
            first = (self.loaded, ADD, 1, AT_STREAMED, self.loaded_delay, *began)
            stream.add(index, EXECUTE, cost, LOADS, waits=handed, updates=(*first, *self.updates(step, 2)))
            self.loads += 1
        elif isinstance(instruction, Matmul):
            cost, units, gap = self.once(instruction, lambda: self.product(instruction))
            if not self.loads:
                raise ProgramError(step.line, "matmul before any ldweights", "weights in the array")
            before = (self.streamed, self.products, *handed) if self.products else handed
            stream.add(index, HANDED, self.one, waits=before, updates=began)
            updates = (self.streamed, ADD, 1, AT_STREAMED, gap, *self.updates(step, 1))  # it reads its operand when it streams
            stream.add(index, STREAM, cost, STREAMS, units, (self.loaded, self.loads), updates)
            self.products += 1
        else:
            key = (instruction, engine)
            cost, ports = self.once(key, lambda: self.elementwise(step))
            stream.add(index, EXECUTE, cost, waits=handed, updates=(*began, *self.updates(step, 1)), ports=ports)

    def elementwise(self, step: Step) -> tuple[int, int]:
        """Cost and ports of an instruction on VectorE, ScalarE or GpSimdE."""
        instruction, engine = step.instruction, step.engine
        work, memories = instruction.work(), {v.memory for _, v, _ in instruction.views}
        sbuf, psum = Memory.SBUF in memories, Memory.PSUM in memories
        try:  # what differs in a number or a place alone is the same work
            cost = self.once((work, engine), lambda: self.cost(elementwise.cost(work, engine, self.chip)))
            return cost, self.once((work, engine, sbuf, psum), lambda: elementwise.ports(work, engine, sbuf, psum, self.chip))
        except (Unsupported, Unspecified) as e:
            raise e.at(f"{step.line} {engine.name.lower()} {instruction.mnemonic}".strip()) from None

    def product(self, instruction: Matmul) -> tuple[int, int, int]:
        cost, units, gap = tensor.stream(instruction.work(), self.chip)
        return self.cost(cost), units, self.delays_by_state(gap)

    def updates(self, step: Step, beside: int) -> tuple[int, ...]:
        """The step's own updates of a row that has `beside` hidden ones: on read at its start, on completion at its finish."""
        if not step.updates:
            return NONE
        if self.hop_delay < 0:
            self.hop_delay = self.delay(self.hop)
        if beside + len(step.updates) > MAX_UPDATES:
            raise Unimplemented(step.line, f"{len(step.updates)} updates on one instruction", f"at most {MAX_UPDATES - beside}")
        if len(step.updates) == 1:
            (u,) = step.updates
            return u.semaphore, int(u.op), u.value, AT_START if u.when is StepWhen.READ else AT_FINISH, self.hop_delay
        out: list[int] = []
        for u in step.updates:
            out += (u.semaphore, int(u.op), u.value, AT_START if u.when is StepWhen.READ else AT_FINISH, self.hop_delay)
        return tuple(out)

    # ---- DMA

    def add_dma(self, index: int, step: Step, dma: Dma) -> None:
        """A trigger, which may stall on its ring or be made by GpSimd, and what it sets off."""
        engine, ring = step.engine, self.ring(step.engine, dma)
        shape = self.shape(index, engine, dma)
        number, waits = len(self.dmas) // PER_DMA, _waits(step)
        if dma.generation == "software":
            self.software_trigger(index, step, waits, number, shape)
        elif dma.generation == "hardware" and not dma.load and self.ring_limit:
            # a trace shows a store's trigger from its acceptance
            self.streams[engine].add(index, ACCEPT, self.one, waits=waits)
            self.streams[engine].add(index, TRIGGER, shape.trigger, FOLLOW, waits=self.room(ring, shape), dma=number)
        else:
            self.streams[engine].add(index, TRIGGER, shape.trigger, FOLLOW, waits=waits, dma=number)
        if dma.generation == "hardware" and not dma.load:
            self.stores.setdefault(ring, []).append(number)
        self.dmas.extend((index, ring, shape.block, -1, 0))
        self.raise_semaphores(step, shape)

    @cached_property
    def ring_limit(self) -> int:
        """Unfinished stores of a ring at which the next one stalls; 0: never."""
        return int(self.chip("dma.store_ring_limit"))

    @cached_property
    def engines(self) -> int:
        return int(self.chip("dma.engines"))

    def shape(self, index: int, engine: Engine, dma: Dma) -> _Shape:
        """What the DMA's shape decides; where in HBM it reads or writes makes no difference."""
        latency = self.options.dma_latency_ns.get(index)
        key: object = (engine, dma, latency)
        if isinstance(dma, DmaDirect2d):
            s, d = dma.src, dma.dst
            key = (
                engine, dma.generation, dma.row, d.memory, d.partition, d.partitions, d.strides, d.counts, d.dtype.itemsize,
                s.memory, s.partition, s.partitions, s.strides, s.counts, s.dtype.itemsize, s.dtype != d.dtype, latency,
            )  # fmt: skip
        if (shape := self.shapes.get(key)) is None:
            shape = self.shapes[key] = self.new_shape(index, engine, dma)
        return shape

    def new_shape(self, index: int, engine: Engine, dma: Dma) -> _Shape:
        ticks, latency = self.chip.chip.ticks, self.options.dma_latency_ns.get(index)
        if latency is None:
            shares = dma_timing.shares(dma, self.chip)
        else:  # it meets no DMA engine
            shares = [dma_timing.Share(-1, 1, 0, max(1, ticks(latency) - 1), 0, 0, False, 0, 0, 0, 0, -1)]
        rows = sum(dma_timing.rows_by_engine(dma, self.chip)[0])
        shown, accept = 0, (-1, -1)
        if dma.generation == "software":
            interval, latency_ticks, shows = dma_timing.software(dma, rows, self.chip)
            accept = self.cost(same(interval, latency_ticks)), self.delay(max(1, latency_ticks))
            trigger = self.cost(same(1, shows))
        else:
            cost = dma_timing.trigger(dma, engine, rows, self.chip)
            trigger, shown = self.cost(cost), cost.latency[0]
        self.blocks.append(np.array([attrs.astuple(s) for s in shares], np.int64).reshape(-1, len(SHARE)))
        return _Shape(len(self.blocks) - 1, len(shares), trigger, shown, self.delay(dma_timing.done_ticks(dma, self.chip)), *accept)

    def software_trigger(self, index: int, step: Step, waits: tuple[int, ...], dma: int, shape: _Shape) -> None:
        """GpSimd builds the descriptors; a trace shows the trigger when they are done."""
        if step.engine is not Engine.GPSIMD:
            raise ProgramError(step.line, f"software descriptors on {step.engine.label}", "GpSimd makes them")
        made = (self.generated, ADD, 1, AT_START, shape.made)
        self.streams[step.engine].add(index, ACCEPT, shape.accept, waits=waits, updates=made)
        self.described += 1
        self.streams[self.dge].add(index, TRIGGER, shape.trigger, waits=(self.generated, self.described), dma=dma)

    def room(self, ring: int, shape: _Shape) -> tuple[int, ...]:
        """A store behind `limit` unfinished ones in its ring: the trigger lasts until the oldest completes, and a gap."""
        limit, before = self.ring_limit, self.stores.get(ring, [])
        if len(before) < limit:
            return NONE
        done = self.hidden(f"store {len(before) - limit} of ring {ring}")
        at = before[-limit] * PER_DMA
        self.dmas[at + 3], self.dmas[at + 4] = done, self.once(("gap", shape.shown), lambda: self.store_gap(shape))
        return done, len(self.blocks[self.dmas[at + 2]])

    def store_gap(self, shape: _Shape) -> int:
        return self.delay(max(0, self.chip.chip.ticks(self.chip("dma.store_ring_gap_ns")) - shape.shown))

    def ring(self, engine: Engine, dma: Dma) -> int:
        """One in-order ring per issuing queue and way of making descriptors."""
        if (ring := self.ring_of.get((engine, dma.generation))) is None:
            name = queue_name(engine, dma.generation)
            ring = self.ring_of[engine, dma.generation] = self.rings.setdefault(name, len(self.rings))
        return ring

    def raise_semaphores(self, step: Step, shape: _Shape) -> None:
        """Every DMA engine adds its part of the 16 when its semaphore packet is out."""
        engines = self.engines
        for u in step.updates:
            if u.op is not UpdateOp.ADD or u.when is not StepWhen.COMPLETE or u.value % engines:
                raise ProgramError(
                    f"{step.line} {step.instruction.mnemonic}".strip(),
                    f"update {u.op.name.lower()} {u.value} on {u.when.name.lower()}",
                    f"add({engines}) on completion: each of the {engines} DMA engines adds its share",
                )
            self.signals.extend((u.semaphore, u.value // shape.transfers, shape.done))
        if len(step.updates) >= MAX_UPDATES:
            raise Unimplemented(step.line, f"{len(step.updates)} updates on one DMA", f"at most {MAX_UPDATES - 1}")
        self.signal_counts.append(len(step.updates))

    # ---- the table

    def table(self, steps: int) -> Table:
        """Number the rows, fan the DMAs out, and pack the columns."""
        rows = [records(s.rows, PER_ROW) for s in self.streams]
        step, role, cost, rule, work, waits, updates, dma = (joined(rows, k) for k in range(PER_ROW))
        triggers = np.flatnonzero(dma >= 0)
        dmas = records(self.dmas, PER_DMA)[dma[triggers]]
        sizes = ints(len(b) for b in self.blocks)
        fan = sizes[dmas[:, 2]]
        fans = np.zeros(len(step), np.int64)
        fans[triggers] = fan
        # column by column: a large program has millions of transfers
        shares = np.concatenate([*self.blocks, np.zeros((0, len(SHARE)), np.int64)]).T.copy()
        place = spread((np.cumsum(sizes) - sizes)[dmas[:, 2]], fan)
        columns = {name: column[place] for name, column in zip(SHARE, shares, strict=True)}
        by_dma, place, count_by_transfer = self.transfer_updates(dma[triggers], fan)
        raised = [records(s.updates, PER_UPDATE) for s in self.streams]
        semaphore, *others = (picked_behind(joined(raised, k), by_dma[k], place) for k in range(PER_UPDATE))
        columns |= dict(zip(("update_op", "update_value", "update_when", "update_delay"), others, strict=True))
        wait = [records(s.waits, PER_WAIT) for s in self.streams]
        waited = joined(wait, 0)
        present = np.zeros(HARDWARE_SEMAPHORES + len(self.hidden_names), np.bool_)
        present[waited] = present[semaphore] = True
        number = np.cumsum(present) - 1  # of each semaphore among those that are used
        wait_row, start_row, finish_row = shown_rows(steps, step, role, updates)
        ticks, reader = self.chip.chip.ticks, self.chip
        unheard = reader.chip.reader()  # a table has a throttle and servers also where nothing uses them: no result rests on those
        of_dma = reader if len(dmas) else unheard
        return Table(
            stream_names=(*(e.label for e in Engine), *(f"{e.label} engine" for e in COMPUTE), DGE),
            stream_start=ints([*(ticks(reader(f"sequencer.{e.name.lower()}.release_ns")) for e in Engine), *(0,) * (len(COMPUTE) + 1)]),
            stream_ptr=pointer(ints(len(s.rows) // PER_ROW for s in self.streams)),
            # Elementwise engines are pipelines: a short instruction does not overtake a long one (assumed; the
            # replayed streams never come near). Weight loads do end before the product that runs ahead of them.
            stream_ordered=ints([*(0,) * len(Engine), *(int(e is not Engine.TENSOR) for e in COMPUTE), 0]),
            step=np.concatenate([step, np.repeat(dmas[:, 0], fan)]),
            role=np.append(role, np.broadcast_to(np.int64(Role.TRANSFER), int(fan.sum()))),
            cost=cost,
            rule=rule,
            work=work,
            ports=np.concatenate([np.frombuffer(s.ports, np.int64) if s.ports else np.zeros(0, np.int64) for s in self.streams]),
            fan_ptr=pointer(fans),
            wait_ptr=pointer(waits),
            wait_semaphore=number[waited],
            wait_value=joined(wait, 1),
            update_ptr=pointer(np.concatenate([updates, count_by_transfer])),
            update_semaphore=number[semaphore],
            cost_issue=np.array([c.issue for c in self.costs], np.int64).reshape(-1, STATES),
            cost_latency=np.array([c.latency for c in self.costs], np.int64).reshape(-1, STATES),
            cost_load=np.array([c.load for c in self.costs], np.int64).reshape(-1, STATES),
            delays=np.array(list(self.delays), np.int64).reshape(-1, STATES),
            ring=np.repeat(dmas[:, 1], fan),
            **columns,
            drain=dma_timing.core_limit(of_dma).drain,
            servers=of_dma("dma.engines"),
            rings=max(1, len(self.rings)),
            semaphores=int(present.sum()),
            semaphore_names=tuple(self.semaphore_name(s) for s in np.flatnonzero(present).tolist()),
            follow_window=ticks(of_dma("dma.follow_window_ns")),
            recent=ticks(of_dma("dma.recent_load_ns")),
            queued=ticks(reader("dma.software.shown_queued_ns")) if self.described else 0,
            packet_shown=ticks(self.chip.chip.numbers["dma.packet_shown_ns"].value),  # no time rests on it
            throttle=tensor.throttle(reader if work.any() else unheard, self.options.gate_phase_ns),
            ticks_per_ns=self.chip.chip.ticks_per_ns,
            wait_row=wait_row,
            start_row=start_row,
            finish_row=finish_row,
        )

    def transfer_updates(self, order: Ints, fan: Ints) -> tuple[Ints, Ints, Ints]:
        """The updates of every DMA, their index for those of every transfer, and how many each transfer has.

        First its DMA's signals, then what a store behind it waits for.
        """
        signals, counts = records(self.signals, PER_SIGNAL), records(self.signal_counts, 1)[:, 0]
        done, delay = records(self.dmas, PER_DMA)[:, 3:].T
        both = counts + (done >= 0)
        at = pointer(both)
        every = np.zeros((PER_UPDATE, int(at[-1])), np.int64)
        every[1], every[2], every[3] = ADD, 1, AT_FINISH
        own = spread(at[:-1], counts)
        every[0, own], every[2, own], every[4, own] = signals.T
        last = at[1:][done >= 0] - 1
        every[0, last], every[4, last] = done[done >= 0], delay[done >= 0]
        per_transfer = np.repeat(both[order], fan)
        return every, spread(np.repeat(at[:-1][order], fan), per_transfer), per_transfer

    def semaphore_name(self, semaphore: int) -> str:
        if semaphore >= HARDWARE_SEMAPHORES:
            return self.hidden_names[semaphore - HARDWARE_SEMAPHORES]
        return self.names.get(semaphore, f"S[{semaphore}]")


# a transfer's columns of the table, by the field of its share
SHARE = (
    "server", "arrival", "packets", "packet", "first", "last", "load", "busy_delay", "busy_stall", "units", "burst", "settle",
)  # fmt: skip


def _waits(step: Step) -> tuple[int, ...]:
    """The step's own waits, flat."""
    if not step.waits:
        return NONE
    if len(step.waits) == 1:
        return (step.waits[0].semaphore, step.waits[0].value)
    return tuple(n for w in step.waits for n in (w.semaphore, w.value))


def shown_rows(steps: int, step: Ints, role: Ints, updates: Ints) -> tuple[Ints, Ints, Ints]:
    """Of each step, the row that waits, the row a trace shows from, and the row it shows to.

    A trace shows a store's trigger from its dispatch, a software trigger only when its descriptors are made: the one
    acceptance raises nothing, the other says that descriptors are asked for.
    """
    wait_row, start_row, finish_row = (np.full(steps, -1, np.int64) for _ in range(3))
    at = np.arange(len(step))
    accepted, trigger = role == ACCEPT, at[role == TRIGGER]
    for out, first in (
        (wait_row, at[np.isin(role, (SEQUENCE, CONTROL)) | accepted]),
        (start_row, at[np.isin(role, (CONTROL, EXECUTE, HANDED)) | (accepted & (updates == 0))]),
        (finish_row, at[np.isin(role, (CONTROL, EXECUTE, STREAM, TRIGGER))]),
    ):
        out[step[first]] = first
        alone = trigger[out[step[trigger]] < 0]
        out[step[alone]] = alone
    return wait_row, start_row, finish_row


def records(flat: array[int], size: int) -> Ints:
    """A flat array as rows of `size` integers; no copy, so the array may not grow any more."""
    return np.frombuffer(flat, np.int64).reshape(-1, size) if flat else np.zeros((0, size), np.int64)


def joined(parts: Sequence[Ints], column: int) -> Ints:
    """One column of several lists of records."""
    return np.concatenate([p[:, column] for p in parts])


def spread(starts: Ints, counts: Ints) -> Ints:
    """Indices of ragged pieces one after another: starts[0], starts[0] + 1, … counts[0] of them, then the next piece."""
    before = np.cumsum(counts) - counts
    out = np.repeat(starts - before, counts)
    out += np.arange(len(out))
    return out


def picked_behind(first: Ints, values: Ints, place: Ints) -> Ints:
    """`first`, then the values at the places, without an array of these between."""
    out = np.empty(len(first) + len(place), np.int64)
    out[: len(first)] = first
    np.take(values, place, out=out[len(first) :], mode="clip")  # every place is inside; other modes make a copy
    return out


def ints(values: Iterable[int]) -> Ints:
    """A column."""
    return np.fromiter(values, np.int64)


def pointer(counts: Ints) -> Ints:
    """Where each of several lists begins in their concatenation, and where the last ends."""
    out = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=out[1:])
    return out


def queue_name(engine: Engine, generation: str) -> str:
    """The ring's name as real traces print it: qSyncDynamicHW, qGpSimdDynamic, qSyncIO0."""
    return f"q{engine.label}" + {"hardware": "DynamicHW", "software": "Dynamic", "static": "IO0"}[generation]
