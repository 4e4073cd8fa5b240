"""What bounds a run's body: from below by each resource, from above by one thing at a time; and where its time went."""

from __future__ import annotations

from fractions import Fraction

import attrs

from ..chip import Reader
from ..isa import COMPUTE, Engine, Memory, Step
from ..isa.control import Control
from ..isa.dma import Dma
from ..isa.tensor import Matmul
from ..result import Result, body_ticks
from ..table import Rule, Table
from ..timing import elementwise, tensor
from ..timing.dma import rows_by_engine

HBM, DMA = "HBM", "DMA engines"


@attrs.frozen
class EngineTime:
    """Where the body's time went on one stream of the table (docs/architecture.md): a sequencer, or an engine behind it."""

    busy_ns: float  # its rows, each for its issue interval
    stall_ns: float  # its next row stands at the head and waits: for semaphores, or to be handed over
    idle_ns: float  # before its release, and after its last row


def engine_times(result: Result) -> dict[str, EngineTime]:
    """Busy, stalled and idle time by stream, for streams that did anything. Each sums to the body's length."""
    ns = result.chip.ns
    return {name: EngineTime(*(ns(t) for t in ticks)) for name, ticks in stream_ticks(result).items()}


def stream_ticks(result: Result) -> dict[str, tuple[int, int, int]]:
    """Busy, stall and idle ticks of each stream that has rows: intervals from the costs, waits from the timeline."""
    table, timeline = result.table, result.timeline
    total = body_ticks(table, timeline)
    out = {}
    for s, name in enumerate(table.stream_names):
        first, last = int(table.stream_ptr[s]), int(table.stream_ptr[s + 1]) - 1
        if last < first:
            continue
        busy = sum(issue_ticks(result, row) for row in range(first, last))
        end = min(int(timeline.start[last] + table.cost_issue[table.cost[last]].min()), total)
        stall = int((timeline.start[first : last + 1] - timeline.ready[first : last + 1]).sum())
        out[name] = busy + end - int(timeline.start[last]), stall, int(table.stream_start[s]) + total - end
    return out


def issue_ticks(result: Result, row: int) -> int:
    """The issue interval of a row that is not its stream's last: the state that fits what came next, else the shortest."""
    table, timeline = result.table, result.timeline
    states = table.cost_issue[table.cost[row]]
    taken = int(timeline.ready[row + 1] - timeline.start[row])
    return taken if taken in states else int(states.min())


def rooflines(result: Result) -> dict[str, float]:
    """The least time, in ns, that each resource needs for the run's work, with nothing between and at its full rate.

    "HBM": bytes read and written by DMA, over `memory.hbm_bytes_per_ns`. "DMA engines": bytes of the busiest DMA engine
    over its rate for loads or stores (rows are counted on their wider side). "Tensor": cycles that products stream, array
    never gated. "Vector", "Scalar", "GpSimd": cycles that elements stream. No latency, gap, weight load, table load or
    fixed time of a row is counted.

    Only what ended within the body counts: a load that nothing waits for does not lengthen it (docs/programs.md). So the
    body is at least each of these; but for HBM, whose bandwidth the engines do not model (docs/limits.md), that holds
    where the DMA engines together are no faster.
    """
    chip, reader = result.chip, result.chip.reader()
    ticks = dict.fromkeys(COMPUTE, 0)
    hbm, engines = Fraction(0), [0] * int(reader("dma.engines"))
    transfers = _transfers_by_step(result.table)
    body = body_ticks(result.table, result.timeline)
    for k, step in enumerate(result.steps):
        if isinstance(step.instruction, Dma):
            dma, mine = step.instruction, transfers[k]
            rows, size = rows_by_engine(dma, reader)
            row = chip.ticks(size / _rate(dma, size, reader))
            done = [n if result.timeline.finish[t] <= body else 0 for n, t in zip(rows, mine, strict=True)]
            engines = [e + n * row for e, n in zip(engines, done, strict=True)]
            hbm += sum(v.nbytes for v in (*dma.sources, dma.dst) if v.memory is Memory.HBM) * Fraction(sum(done), max(1, sum(rows)))
        elif step.engine in COMPUTE:
            ticks[step.engine] += stream_ticks_of(step, result)
    return {
        HBM: float(hbm / reader("memory.hbm_bytes_per_ns")),
        DMA: chip.ns(max(engines)),
        **{e.label: chip.ns(n) for e, n in ticks.items()},
    }


def stream_ticks_of(step: Step, result: Result) -> int:
    """Ticks that one instruction's data stream through its engine at full rate; 0 where nothing streams."""
    chip, reader, instruction = result.chip, result.chip.reader(), step.instruction
    if isinstance(instruction, Matmul):
        return int(tensor.stream(instruction.work(), reader)[1] // tensor.throttle_scale(reader))
    if (
        step.engine is Engine.TENSOR
        or isinstance(instruction, Control)
        or not instruction.views
        or instruction.work().kind in elementwise.UNSTREAMED
    ):
        return 0
    return int(chip.ticks(elementwise.stream_ns(instruction.work(), step.engine, reader)))


def _rate(dma: Dma, row_bytes: int, reader: Reader) -> Fraction:
    """Bytes per ns of one DMA engine."""
    if dma.load:
        return Fraction(reader("dma.load_bytes_per_ns"))
    small = row_bytes <= reader("dma.small_row_bytes")
    return Fraction(reader("dma.small_store_bytes_per_ns" if small else "dma.store_bytes_per_ns"))


def hbm_may_be_passed(result: Result) -> bool:
    """True where the DMA engines together can move more than HBM delivers: the engines do not model its limit."""
    reader = result.chip.reader()
    small = ("small_store",) if reader("dma.small_row_bytes") else ()
    rates = [reader(f"dma.{k}_bytes_per_ns") for k in ("load", "store", *small)]
    dmas = [s.instruction for s in result.steps if isinstance(s.instruction, Dma)]
    sides = 2 if any(v.memory is d.dst.memory is Memory.HBM for d in dmas for v in d.sources) else 1
    return bool(reader("dma.engines") * max(rates) * sides > reader("memory.hbm_bytes_per_ns"))


def serial_sum_ns(result: Result) -> float:
    """The time of doing one thing after another, in ns: every row and every transfer in its slowest state, with its delays.

    In every tick of a run something of this goes on, or nothing ever would again: so no body is longer.
    """
    table = result.table
    total = int(table.stream_start.max(initial=0))
    for row in range(table.rows):
        total += _row_at_most(table, row)
    for k in range(table.transfers):
        work = int(table.packets[k] * table.packet[k] + table.last[k])
        stalls = int(table.first[k] + table.busy_stall[k] + table.busy_delay[k]) + 1  # one tick behind one that comes again
        total += int(table.arrival[k]) + (int(table.packet[k]) if table.server[k] < 0 else work + stalls)
        total += _latest_update(table, table.rows + k) + max(0, int(table.settle[k]))
    if table.drain:  # packets held up, each rounded up
        total += int((table.packets * table.units).sum()) // table.drain + int(table.packets.sum()) + table.transfers
    return float(result.chip.ns(total))


def _row_at_most(table: Table, row: int) -> int:
    """From a row's start to the last it causes: its issue, its result, its updates."""
    cost = table.cost[row]
    streaming = 0
    if table.rule[row] == Rule.LOAD:
        streaming = int(table.cost_load[cost].max())
    elif table.rule[row] == Rule.STREAM:
        rates = [table.throttle.full, *([table.throttle.gated] if table.throttle.changes else [])]
        streaming = -(-int(table.work[row]) // max(1, min(rates)))
    done = streaming + int(table.cost_latency[cost].max()) + _latest_update(table, row)
    return max(done, int(table.cost_issue[cost].max()))


def _latest_update(table: Table, row: int) -> int:
    updates = table.update_delay[table.update_ptr[row] : table.update_ptr[row + 1]]
    return int(table.delays[updates].max(initial=0))


def _transfers_by_step(table: Table) -> dict[int, list[int]]:
    """Timeline rows of each DMA's transfers, in the order of its DMA engines."""
    out: dict[int, list[int]] = {}
    for row, step in enumerate(table.step[table.rows :].tolist(), table.rows):
        out.setdefault(step, []).append(row)
    return out
