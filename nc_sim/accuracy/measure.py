"""One entry: build its program, simulate it as any other, and read the measured quantity off the timeline.

    duration   from the start of the instruction (or of the call's first) to the end of it (of its last)
    interval   from one start to the next, of calls that do not depend on each other
    delay      between two events of one call, its DMA engines, or of what waits for it
    packet     what one more packet adds to a DMA engine's part of a transfer, or the semaphore packet alone; a record of
               either is shown longer than that

Operands are filled by VectorE before, so that a first call finds everything idle. Of several calls the first is left out
and the median of the others taken, as the sources do, unless the entry counts the first. No cost function is asked.
"""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..chip import Chip
from ..isa import REGISTRY, View, fields_of
from ..isa.errors import NcSimError, ProgramError
from ..isa.fields import Maybe, Operand
from ..program import Program
from ..result import Result
from ..simulate import simulate
from ..timeline import step_ends
from .entries import Entry

REGISTER = "REGISTER"  # an argument: a register
TENSOR = re.compile(r"(SBUF|PSUM|HBM) (\w+) (\d+(?:x\d+)*)(?: in rows of (\d+))?")  # rows: apart from each other, HBM only
SAME = "=dst"  # an argument of `then`: what the measured call writes
WARM = 20  # bf16 products of 512 columns: more than two windows of the clock gate
ROWS = (2, 4)  # per partition, of the two transfers that a packet is taken from
SERVED = 8  # partitions of one DMA engine: a transfer of these leaves the other engines their semaphore packet


class LevelMissed(ProgramError):
    """The clock gate of this chip does not stay as an entry needs it."""


def measure(entry: Entry, chip: Chip) -> tuple[float, Result]:
    """The entry's quantity as simulated, in ns, and the run it was read from."""
    try:
        if entry.kind == "packet":
            return _packet(entry, chip)
        result, calls = _run(entry, chip, entry.count)
        if entry.kind == "delay":
            return _delay(entry, result, calls[0]), result
        spans = [_span(entry, result, call) for call in calls]
        if entry.kind == "interval":
            starts = sorted(s for span in spans for s in span[2])
            values = [b - a for a, b in itertools.pairwise(starts)]
        else:
            values = [end - start for start, end, _ in spans]
        if entry.gate:
            _require_level(entry, result, spans)
        counted = values if entry.with_first else values[1:] or values
        return statistics.median(counted) / float(chip.ticks_per_ns), result
    except NcSimError as e:
        raise e.at(f"entry {entry.id}") from None


def _run(entry: Entry, chip: Chip, count: int, **overrides: str) -> tuple[Result, list[int]]:
    """The program of an entry, and which of its calls are measured."""
    p = Program("measured")
    if entry.gate == "full":
        _warm(p)
    follow = _prepared(p, entry.then)  # filled first, so that it waits for the measured call alone
    shared: dict[str, Any] = {}
    written = _written(entry.call)
    args = {**entry.args, **overrides}
    shared.update({key: p.register_alloc() for key, text in args.items() if text == REGISTER})
    for key, text in args.items():  # operands that are read are the same for all calls, and filled before the first
        if _is_tensor(text) and key not in written:
            shared[key] = _tensor(p, text, read=True)
    calls, last = [], None
    for _ in range(count):
        for key in written & args.keys():
            if not (entry.call == "nc_matmul" and key in shared and not args.get("is_transpose")):  # products of one sum
                shared[key] = _tensor(p, args[key], read=entry.keeps)
        last = shared.get("dst")
        calls.append(len(p.steps))
        getattr(p, entry.call)(**{k: shared.get(k, v) for k, v in args.items()}, engine=entry.engine or None)
    if follow is not None:
        call, args, engine = follow
        getattr(p, call)(**{k: last if v == SAME else v for k, v in args.items()}, engine=engine)
    return simulate(p, chip, values=False, engine="simpy"), calls


def _prepared(p: Program, then: Mapping[str, Any]) -> tuple[str, dict[str, Any], Any] | None:
    """The call behind the measured one, its operands filled; what is `SAME` is the measured call's destination."""
    if not then:
        return None
    call = str(then.get("call", ""))
    written = _written(call)
    args: dict[str, Any] = dict(then.get("args", {}))
    for key, text in args.items():
        if text != SAME and _is_tensor(text):
            args[key] = _tensor(p, text, read=key not in written)
    return call, args, then.get("engine")


def _warm(p: Program) -> None:
    """Keep the array busy until the clock gate is open, on operands of its own."""
    weights, moving = p.sbuf((128, 128), "bfloat16"), p.sbuf((128, 512), "bfloat16")
    p.memset(dst=weights, value=0.0)
    p.memset(dst=moving, value=0.0)
    sums = p.psum((128, 512))
    for _ in range(WARM):
        p.nc_matmul(dst=sums, stationary=weights, moving=moving)


def _written(call: str) -> set[str]:
    if call not in REGISTRY:
        raise ProgramError("", f"call {call!r}", "an instruction of docs/isa.md")
    kinds = {name: kind.kind if isinstance(kind, Maybe) else kind for name, kind in fields_of(REGISTRY[call]).items()}
    return {name for name, kind in kinds.items() if isinstance(kind, Operand) and kind.writes}


def _is_tensor(text: Any) -> bool:
    return isinstance(text, str) and TENSOR.fullmatch(text) is not None


def _tensor(p: Program, text: str, *, read: bool) -> View:
    match = TENSOR.fullmatch(text)
    if match is None:
        raise ProgramError("", f"{text!r:.80}", "a tensor such as 'SBUF float32 128x512'")
    memory, dtype, shape = match[1], match[2], tuple(int(n) for n in match[3].split("x"))
    if memory == "HBM":
        name, row = f"hbm{len(p.tensors)}", int(match[4] or 0)
        whole = (*shape[:-1], shape[-1] // row, 2 * row) if row else shape
        tensor = p.input(name, whole, dtype) if read else p.output(name, whole, dtype)
        return tensor[..., :row] if row else tensor
    view = p.sbuf(shape, dtype) if memory == "SBUF" else p.psum(shape, dtype)
    if read:
        p.memset(dst=view, value=0)
    return view


# ---- reading the timeline


def _span(entry: Entry, result: Result, call: int) -> tuple[int, int, list[int]]:
    """Ticks from the first start to the last end of the instructions of a call that count, and the starts of intervals."""
    table, timeline = result.table, result.timeline
    mine = [k for k, s in enumerate(result.steps) if s.call == call and _counts(entry, s.instruction)]
    if not mine:
        raise ProgramError("", f"no {entry.opcode} in the program of {entry.call}", "an opcode that the call becomes")
    starts = timeline.start[table.start_row[mine]].tolist()
    ends = step_ends(table, timeline)[mine].tolist()
    if not entry.opcode:
        return min(starts), max(ends), [min(starts)]
    k = len(mine) - 1  # an fp32 product is two of them alike
    return starts[k], ends[k], starts


def _counts(entry: Entry, instruction: Any) -> bool:
    return entry.opcode in ("", instruction.opcode) and entry.passes in ("", getattr(instruction, "passes", ""))


def _require_level(entry: Entry, result: Result, spans: list[tuple[int, int, list[int]]]) -> None:
    """The clock gate was all the time as the entry says; else the program measures something else."""
    first, last = spans[min(1, len(spans) - 1)][0], spans[-1][1]
    wanted = int(entry.gate == "full")
    levels = [(tick, level) for tick, level in result.timeline.gate if tick < last]
    inside = {level for tick, level in levels if tick > first} | {[level for tick, level in levels if tick <= first][-1]}
    if inside != {wanted}:
        raise LevelMissed("", "the clock gate changes during the measurement, or has another level", f"{entry.gate} throughout")


def _delay(entry: Entry, result: Result, call: int) -> float:
    return (_event(entry.end, entry, result, call) - _event(entry.start, entry, result, call)) / float(result.chip.ticks_per_ns)


def _event(name: str, entry: Entry, result: Result, call: int) -> int:
    """When an event of a delay happens, in ticks."""
    table, timeline = result.table, result.timeline
    begin, end, _ = _span(entry, result, call)
    if name == "begin":
        return begin
    if name == "end":
        return end
    if name in ("then", "then ends"):
        steps = [k for k, s in enumerate(result.steps) if s.call == len(result.program.steps) - 1]
        ends = name == "then ends"
        return int(timeline.finish[table.finish_row[steps]].max() if ends else timeline.start[table.start_row[steps]].min())
    step = next(k for k, s in enumerate(result.steps) if s.call == call)
    rows = table.rows + np.flatnonzero(table.step[table.rows :] == step)
    if not rows.size:
        raise ProgramError("", f"{name!r} of {entry.call}", "a DMA")
    share = rows - table.rows
    start, finish, data = timeline.start[rows], timeline.finish[rows], table.packets[share] > 0
    ticks = {
        "last data": (finish - table.last[share])[data].max(),
        "first activity": start.min(), "first data": start[data].min(), "last activity": finish.max(),
        "engine begins": start[data][0], "engine ends": finish[data][0],
        "data ends": finish[data][0] - table.last[rows - table.rows][data][0] + table.packet_shown,  # as its record says
    }  # fmt: skip
    return int(ticks[name])


def _packet(entry: Entry, chip: Chip) -> tuple[float, Result]:
    """From transfers that differ in their packets alone."""
    side = next(key for key in ("dst", "src") if str(entry.args[key]).startswith("SBUF"))
    other = "src" if side == "dst" else "dst"
    dtypes, elements = {key: str(entry.args[key]).split()[1] for key in (side, other)}, int(entry.args["row"])
    lengths, packets = [], []
    what, _, record = entry.packet.partition(" ")
    partitions, more = SERVED if what == "semaphore" else 128, 0
    if what == "row" and not chip.numbers["dma.partitions_per_engine"].value:
        partitions = 1  # rows spread evenly there, and engines share a limit: so one engine
    for rows in ROWS:
        shape = f"{partitions}x{rows * elements}"
        result, _ = _run(entry, chip, 1, **{side: f"SBUF {dtypes[side]} {shape}", other: f"HBM {dtypes[other]} {shape}"})
        table, timeline = result.table, result.timeline
        more = table.packet_shown if record else 0
        length = timeline.finish[table.rows :] - timeline.start[table.rows :]
        if what == "semaphore":
            return (float(np.median(length[table.packets == 0])) + more) / float(chip.ticks_per_ns), result
        lengths.append(int(length[0]))
        packets.append(rows * partitions // int((table.packets > 0).sum()))
    return ((lengths[1] - lengths[0]) / (packets[1] - packets[0]) + more) / float(chip.ticks_per_ns), result
