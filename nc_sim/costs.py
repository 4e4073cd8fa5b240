"""What each kind of row and transfer of a table costs, apart from which rows there are.

Lowering asks for every cost once for each kind, by a function of the chip's numbers that is kept: other numbers are then
put into the columns of a finished table without lowering the program again, where its rows do not rest on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, TypeVar

import attrs
import numpy as np

from .chip import Chip, Reader
from .isa import COMPUTE, Engine, Work
from .isa.dma import Dma
from .isa.errors import NcSimError, Unsupported
from .table import STATES, Ints, Table
from .timing import control, tensor
from .timing import dma as dma_timing
from .timing.cost import Cost, same

T = TypeVar("T")

# a transfer's columns of the table, by the field of its share
SHARE = (
    "server", "arrival", "packets", "packet", "first", "last", "load", "busy_delay", "busy_stall", "units", "burst", "settle",
)  # fmt: skip


@attrs.frozen
class Options:
    """Choices of one run that are not the chip's."""

    gate_phase_ns: Fraction = Fraction(0)
    # step -> ns from a trigger to the end of its last packet, where a measurement replaces the DMA model
    dma_latency_ns: Mapping[int, Fraction] = attrs.field(factory=dict)


Delay = tuple[int, int, int, int]
Find = Callable[[Reader], T]  # a partial of a function of this module or of `timing`: the record of a run can be pickled


@attrs.define
class Values:
    """The small tables: what rows and transfers of one kind share."""

    costs: list[Cost] = attrs.field(factory=list)
    units: dict[int, int] = attrs.field(factory=dict)  # of a cost of products
    ports: dict[int, int] = attrs.field(factory=dict)  # of a cost of an elementwise engine
    delays: list[Delay] = attrs.field(factory=list)
    blocks: list[Ints] = attrs.field(factory=list)  # [shares, columns of a transfer]


@attrs.define
class Costs:
    """How the small tables of a lowered program were found, and the places of their values."""

    chip: Chip
    values: Values = attrs.field(factory=Values)
    cost: list[Find[Cost]] = attrs.field(factory=list)
    units: dict[int, Find[int]] = attrs.field(factory=dict)
    ports: dict[int, Find[int]] = attrs.field(factory=dict)
    delay: list[Find[Delay]] = attrs.field(factory=list)
    block: list[Find[Ints]] = attrs.field(factory=list)
    structure: frozenset[str] = frozenset()  # numbers that rows, waits and updates rest on
    place: Ints = attrs.field(factory=lambda: np.zeros(0, np.int64))  # of each DMA: its block
    described: bool = False  # some descriptors are made in software
    used: frozenset[str] = frozenset()

    def found(self, reader: Reader) -> Values:
        """The small tables of another chip."""
        return Values(
            [f(reader) for f in self.cost],
            {k: f(reader) for k, f in self.units.items()},
            {k: f(reader) for k, f in self.ports.items()},
            [f(reader) for f in self.delay],
            [f(reader) for f in self.block],
        )

    def columns(self, values: Values, cost: Ints, reader: Reader, options: Options) -> dict[str, Any]:
        """Of a table whose rows have these costs: everything that is a time, a rate or a count of packets."""
        unheard = reader.chip.reader()  # a table has a throttle and servers also where nothing uses them: no result rests on those
        of_dma = reader if len(self.place) else unheard
        ticks = reader.chip.ticks
        sizes = ints(len(b) for b in values.blocks)
        # column by column: a large program has millions of transfers
        shares = np.concatenate([*values.blocks, np.zeros((0, len(SHARE)), np.int64)]).T.copy()
        place = spread((np.cumsum(sizes) - sizes)[self.place], sizes[self.place])
        work = _picked(values.units, len(values.costs), cost)
        return {
            **{name: column[place] for name, column in zip(SHARE, shares, strict=True)},
            "stream_start": ints([*(ticks(reader(f"sequencer.{e.name.lower()}.release_ns")) for e in Engine), *(0,) * (len(COMPUTE) + 1)]),
            "work": work,
            "ports": _picked(values.ports, len(values.costs), cost),
            "cost_issue": np.array([c.issue for c in values.costs], np.int64).reshape(-1, STATES),
            "cost_latency": np.array([c.latency for c in values.costs], np.int64).reshape(-1, STATES),
            "cost_load": np.array([c.load for c in values.costs], np.int64).reshape(-1, STATES),
            "delays": np.array(values.delays, np.int64).reshape(-1, STATES),
            "drain": dma_timing.core_limit(of_dma).drain,
            "servers": of_dma("dma.engines"),
            "follow_window": ticks(of_dma("dma.follow_window_ns")),
            "recent": ticks(of_dma("dma.recent_load_ns")),
            "queued": ticks(reader("dma.software.shown_queued_ns")) if self.described else 0,
            "packet_shown": ticks(reader.chip.numbers["dma.packet_shown_ns"].value),  # no time rests on it
            "throttle": tensor.throttle(reader if work.any() else unheard, options.gate_phase_ns),
            "ticks_per_ns": reader.chip.ticks_per_ns,
        }


def _picked(by_cost: Mapping[int, int], costs: int, cost: Ints) -> Ints:
    """Of each row the number of its cost; 0 where that has none."""
    numbers = np.zeros(max(1, costs), np.int64)
    numbers[list(by_cost)] = list(by_cost.values())
    return numbers[cost]


def with_costs(table: Table, costs: Costs, chip: Chip, options: Options) -> tuple[Table, Reader] | None:
    """The table with the costs of another chip, or another phase, in its columns; None where the chip needs other rows.

    Rows, waits and updates are those of `table`: nothing is lowered but each kind of cost, once.
    """
    reader = chip.reader()
    if any(reader.chip.numbers[k] != costs.chip.numbers[k] for k in costs.structure):
        return None
    with fitting(chip):
        try:
            values = costs.found(reader)
        except NcSimError:
            return None  # it has a line of the program, which the whole way knows
        if [len(b) for b in values.blocks] != [len(b) for b in costs.values.blocks]:
            return None
        reader.used.update(costs.structure & costs.used)
        return attrs.evolve(table, **costs.columns(values, table.cost, reader, options)), reader


@contextmanager
def fitting(chip: Chip) -> Iterator[None]:
    """Unsupported for times that a table cannot hold."""
    try:
        yield
    except OverflowError:
        found = f"a time beyond 64 bits, in ticks of 1/{float(chip.ticks_per_ns):g} ns"
        raise Unsupported(f"chip {chip.name}", found, "clocks with a smaller common multiple, or shorter times") from None


# --- how entries of the small tables are found


def dispatch(chip: Reader) -> Cost:
    ticks = chip.chip.ticks(chip("sequencer.dispatch_ns"))
    return same(ticks, ticks)


def busy_with_address(engine: Engine, loaded: bool, chip: Reader) -> Fraction:
    """How long a sequencer hands an instruction over whose address a register gives, or a number that it loads."""
    usual = Fraction(chip("sequencer.dispatch_ns"))
    return max(usual, control.dynamic_ns(engine, chip)) if loaded else usual + chip("sequencer.register_address_ns")


def addressed(engine: Engine, loaded: bool, chip: Reader) -> Cost:
    ticks = chip.chip.ticks(busy_with_address(engine, loaded, chip))
    return same(ticks, ticks)


def handed_later(engine: Engine, loaded: bool, chip: Reader) -> Delay:
    later = busy_with_address(engine, loaded, chip) - chip("sequencer.dispatch_ns")
    return _always(max(1, chip.chip.ticks(later + chip(f"sequencer.{engine.name.lower()}.handover_ns"))))


def one_tick(chip: Reader) -> Cost:
    return same(1, 1)


def _always(ticks: int) -> Delay:
    return ticks, ticks, ticks, ticks


def tick(chip: Reader) -> Delay:
    return _always(1)


def ticks(key: str, chip: Reader, least: int = 1) -> Delay:
    return _always(max(least, chip.chip.ticks(chip(key))))


def of_stream(part: int, work: Work, chip: Reader) -> Any:
    return tensor.stream(work, chip)[part]


def block(dma: Dma, latency: Fraction | None, chip: Reader) -> Ints:
    if latency is None:
        shares = dma_timing.shares(dma, chip)
    else:  # it meets no DMA engine
        shares = [dma_timing.Share(-1, 1, 0, max(1, chip.chip.ticks(latency) - 1), 0, 0, False, 0, 0, 0, 0, -1)]
    return np.array([attrs.astuple(s) for s in shares], np.int64).reshape(-1, len(SHARE))


def _descriptors(dma: Dma, chip: Reader) -> int:
    return sum(dma_timing.rows_by_engine(dma, chip)[0])


def accepted(dma: Dma, chip: Reader) -> Cost:
    interval, latency, _ = dma_timing.software(dma, _descriptors(dma, chip), chip)
    return same(interval, latency)


def made(dma: Dma, chip: Reader) -> Delay:
    return _always(max(1, dma_timing.software(dma, _descriptors(dma, chip), chip)[1]))


def software_trigger(dma: Dma, chip: Reader) -> Cost:
    return same(1, dma_timing.software(dma, _descriptors(dma, chip), chip)[2])


def trigger(dma: Dma, engine: Engine, chip: Reader) -> Cost:
    return dma_timing.trigger(dma, engine, _descriptors(dma, chip), chip)


def done(dma: Dma, chip: Reader) -> Delay:
    return _always(dma_timing.done_ticks(dma, chip))


def store_gap(shows: Find[Cost] | None, chip: Reader) -> Delay:
    """From the room in a ring to the store's end, of which its trigger shows the last part."""
    shown = 0 if shows is None else shows(chip).latency[0]
    return _always(max(0, chip.chip.ticks(chip("dma.store_ring_gap_ns")) - shown))


# --- columns


def spread(starts: Ints, counts: Ints) -> Ints:
    """Indices of ragged pieces one after another: starts[0], starts[0] + 1, … counts[0] of them, then the next piece."""
    before = np.cumsum(counts) - counts
    out = np.repeat(starts - before, counts)
    out += np.arange(len(out))
    return out


def ints(values: Iterable[int]) -> Ints:
    """A column."""
    return np.fromiter(values, np.int64)
