"""The hardware trace of a run: its records, its file, and the file of the program it belongs to (docs/traces.md).

A trace is a view of table and timeline, made after the run. Records are columns; every time is kept twice, in ticks and
in whole ns rounded half up, both from time zero. A file holds only integers and text: reading one executes nothing.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from io import BytesIO
from itertools import chain
from operator import attrgetter, eq
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import attrs
import numpy as np

from ..chip import Chip
from ..files import regular, unnamed
from ..forms import STEPS_AT_ONCE, name_of, program_from_msgpack, program_parts
from ..isa import Engine, Instruction, Memory, Step
from ..isa.dma import Dma
from ..isa.errors import InternalError, ProgramError
from ..lower import queue_name
from ..packing import StepPacker
from ..program import Program
from ..progress import Tell, told, weighted
from ..result import Result, body_ticks
from ..table import Ints, Op, Table, When
from ..timeline import Timeline, step_ends
from . import foreign
from .operands import Printer, moved, packet_bytes, place
from .stored import (
    LIMIT,
    map_header,
    map_of,
    packed,
    read_columns,
    read_ints,
    read_metadata,
    require,
    said_of,
    sha256_of,
    stored_ints,
    write_binary,
)

T = TypeVar("T")
FORMAT, VERSION = "nc-sim hardware trace", 1
PROGRAM_FORMAT, PROGRAM_VERSION = "nc-sim compiled program", 1
TRACE_SUFFIX, PROGRAM_SUFFIX = ".ntff.msgpack", ".neff.msgpack"
OURS = foreign.OURS[FORMAT.encode()]  # what a trace says it is
GATE_STEPS = 8  # a throttle record allows k of n; real ones say 4 and 8 of 8
FARTHEST = 2.0**62  # sums of semaphore updates stay below
SIGNED = ("engine", "value")  # no DMA engine; a semaphore may be subtracted below zero
# Every key of the metadata with a sample of its form.
METADATA: dict[str, Any] = {
    "program": "", "chip": "", "core": "", "is_simulation": True, "instance": 0, "vnc": 0, "tool": "", "tool_version": "",
    "ticks_per_ns": [0], "duration_ticks": 0, "duration_ns": 0, "prologue_ns": 0, "epilogue_ns": 0, "benchmark_ns": 0,
    "gate_phase_ns": 0.0, "phase_range_ns": [0.0], "what_if": {}, "without": [""], "assumed": {}, "races": [""],
    "observed_semaphores": [""],
}  # fmt: skip


@attrs.frozen(eq=False)
class Times:
    """A column of times."""

    ticks: Ints
    ns: Ints


@attrs.frozen(eq=False)
class Texts:
    """A column of texts that repeat: distinct values, and one index per row."""

    values: tuple[str, ...]
    index: Ints

    def __getitem__(self, row: int) -> str:
        return self.values[int(self.index[row])]

    def __iter__(self) -> Iterator[str]:
        return (self.values[k] for k in self.index.tolist())


Column = Times | Texts | Ints


@attrs.frozen(eq=False)
class _Records:
    """Columns of one length; equal if they are stored as the same bytes."""

    def stored(self) -> Iterator[tuple[str, list[Any]]]:
        """Columns as they are stored, one at a time."""
        for a in attrs.fields(type(self)):
            yield from _stored(a.name, getattr(self, a.name))

    def __len__(self) -> int:
        return len(getattr(self, attrs.fields(type(self))[-1].name))  # a column of numbers in every record

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, _Records) and all(map(eq, self.stored(), other.stored()))


@attrs.frozen(eq=False)
class Instructions(_Records):
    """Machine instructions in program order."""

    engine: Texts
    opcode: Texts
    semaphores: Texts  # operand text, first part: waits and updates
    work: Texts  # operand text, second part
    pc: Ints  # position in the engine's queue
    line: Texts  # file.py:41; empty where nc-sim inserted the instruction
    ready: Times  # reached the head of its queue
    wait: Times  # a length: how long it then waited for semaphores
    start: Times
    end: Times  # result visible
    hbm_read_bytes: Ints  # over all partitions, as every byte count here
    hbm_write_bytes: Ints
    sbuf_read_bytes: Ints
    sbuf_write_bytes: Ints
    psum_read_bytes: Ints
    psum_write_bytes: Ints
    flops: Ints
    transpose_flops: Ints  # part of flops that only moves data through the array

    def operands(self, row: int) -> str:
        """The operand text of a real trace."""
        return f"{self.semaphores[row]} {self.work[row]}".strip()


@attrs.frozen(eq=False)
class Transfers(_Records):
    """DMA transfers, in program order of their triggers. rows x row_bytes = bytes."""

    queue: Texts
    source: Texts  # memory:tensor
    destination: Texts
    start: Times  # first packet begins
    end: Times  # last semaphore packet is out
    instruction: Ints  # row of the trigger
    bytes: Ints  # of the wider element type, where a DMA converts
    rows: Ints
    row_bytes: Ints
    read_bytes: Ints
    write_bytes: Ints


@attrs.frozen(eq=False)
class Shares(_Records):
    """What each DMA engine moves of each transfer."""

    arrival: Times  # descriptors reach the engine
    start: Times
    end: Times
    transfer: Ints
    engine: Ints  # 0 to 15; -1: the transfer's time comes from a measurement
    packets: Ints
    bytes: Ints


@attrs.frozen(eq=False)
class SemaphoreUpdates(_Records):
    """Changes of the architectural semaphores in order of time, then of the rule of time."""

    time: Times
    id: Ints
    name: Texts
    value: Ints  # after the update
    operation: Ints  # 0 add, 1 subtract, 2 set
    amount: Ints
    instruction: Ints


@attrs.frozen(eq=False)
class GateStates(_Records):
    """What the PE's clock gate allows, k of n, from start to end."""

    start: Times
    end: Times
    k: Ints
    n: Ints


@attrs.frozen
class Trace:
    """A hardware trace. Traces are equal if their contents are, wherever they lie."""

    metadata: dict[str, Any]
    instructions: Instructions
    transfers: Transfers
    shares: Shares
    semaphores: SemaphoreUpdates
    gate: GateStates
    hash: str = attrs.field(default="", eq=False)  # of the program: twenty digits, in both file names
    program_sha256: str = attrs.field(default="", eq=False)  # of the program file
    path: Path | None = attrs.field(default=None, eq=False)

    def program(self, progress: Tell | None = None) -> Program:
        """The program that lies beside the trace. `progress` is told how much of it is read."""
        if self.path is None:
            raise ProgramError("trace", "a trace that lies in no folder", "one that Result.save wrote: its program lies beside it")
        return _read_program(self.path.parent / f"neff_{self.hash}{PROGRAM_SUFFIX}", self, progress)


RECORDS: dict[str, type[_Records]] = {
    "instructions": Instructions, "transfers": Transfers, "shares": Shares, "semaphores": SemaphoreUpdates, "gate": GateStates,
}  # fmt: skip
LINKS = (("transfers", "instruction", "instructions"), ("shares", "transfer", "transfers"), ("semaphores", "instruction", "instructions"))


def trace_of(result: Result) -> Trace:
    """The trace of a run, in memory."""
    parts: dict[str, Any] = dict(_records(result))
    return Trace(_metadata(result), **parts)


def _records(result: Result) -> Iterator[tuple[str, _Records]]:
    """Every kind of record in the order of RECORDS, made one after the other."""
    table, timeline, steps = result.table, result.timeline, result.steps
    printer = Printer(result.compiled.addresses, result.compiled.semaphores)
    yield "instructions", _instructions(result, printer)
    transfers, shares = _transfers(result)
    yield "transfers", transfers
    del transfers
    yield "shares", shares
    del shares
    yield "semaphores", _semaphores(steps, table, timeline, printer)
    yield "gate", _gate(table, timeline)


def _times(ticks: Ints, per_ns: Fraction) -> Times:
    return Times(ticks, _ns(ticks, *per_ns.as_integer_ratio()))


def _ns(ticks: Any, numerator: int, denominator: int) -> Ints:
    """Whole ns, rounded half up, exact while numerator x denominator fits into 61 bits."""
    whole, rest = np.divmod(ticks, numerator)
    return np.asarray(whole * denominator + (2 * rest * denominator + numerator) // (2 * numerator), np.int64)


def _texts(column: Iterable[str], row: Ints | None = None) -> Texts:
    """A column of texts, or the rows that pick from it."""
    known: dict[str, int] = {}
    index = np.fromiter((known.setdefault(v, len(known)) for v in column), np.int64)
    return Texts(tuple(known), index if row is None else index[row])


def _texts_of(keys: Iterable[tuple[Any, ...]], text: Callable[..., str]) -> Texts:
    """A column of texts made of keys; different keys have different texts."""
    known: dict[tuple[Any, ...], int] = {}
    index = np.fromiter((known.setdefault(k, len(known)) for k in keys), np.int64)
    return Texts(tuple(text(*k) for k in known), index)


def _instructions(result: Result, printer: Printer) -> Instructions:
    table, timeline, steps, alike = result.table, result.timeline, result.steps, result.alike
    engine = np.fromiter((s.engine for s in steps), np.int64, len(steps))
    order, pc = np.argsort(engine, kind="stable"), np.zeros(len(steps), np.int64)
    pc[order] = np.arange(len(steps)) - np.searchsorted(engine[order], engine[order])
    ready, begun = timeline.ready[table.wait_row], timeline.start[table.wait_row]
    times = ready, begun - ready, timeline.start[table.start_row], step_ends(table, timeline)
    counts = alike.pick(map(moved, alike.kinds), 8)
    columns: list[Any] = [*(_times(c, table.ticks_per_ns) for c in times), *counts]
    return Instructions(
        _texts((e.label for e in Engine), engine), _texts((i.opcode for i in alike.distinct), alike.row),
        _texts(map(printer.semaphores, steps)), _texts(map(printer.body_of, alike.distinct, alike.kind.tolist()), alike.row), pc,
        _texts(s.line for s in steps), *columns,
    )  # fmt: skip


def _places(*sources: tuple[Memory, str]) -> str:
    return "+".join(place(*s) for s in sources)


def _sizes(i: Instruction) -> tuple[int, ...]:
    """1 for a DMA, its rows, the bytes of one, bytes read and written; zeros for another instruction."""
    if not isinstance(i, Dma):
        return (0,) * 5
    return 1, i.dst.size // i.row_elements, i.row_bytes, sum(v.nbytes for v in i.sources), i.dst.nbytes


def _transfers(result: Result) -> tuple[Transfers, Shares]:
    """Every transfer and its parts; an engine's bytes are those of the packets it sends, so nothing is lost to rounding."""
    table, timeline, steps, alike = result.table, result.timeline, result.steps, result.alike
    order = np.argsort(table.step[table.rows :], kind="stable")
    row = table.rows + order
    trigger = table.step[row]  # sorted
    first = np.flatnonzero(np.append(True, trigger[1:] != trigger[:-1])[: len(row)])
    triggers, of = trigger[first], np.repeat(np.arange(len(first)), np.diff(np.append(first, len(row))))
    sizes = alike.pick(map(_sizes, alike.kinds), 5)
    if not np.array_equal(triggers, np.flatnonzero(sizes[0])):
        raise InternalError("trace", "a transfer without a DMA, or the reverse", "transfers for every DMA")
    dmas = [cast(Dma, steps[k].instruction) for k in triggers.tolist()]
    _, rows, size, read, written = sizes[:, triggers]
    packets, server, per_ns = table.packets[order], table.server[order], table.ticks_per_ns
    start, end, total = (f.reduceat(c, first) if len(dmas) else rows for f, c in (
        (np.minimum, timeline.start[row]), (np.maximum, timeline.finish[row]), (np.add, packets)
    ))  # fmt: skip
    before = packets.cumsum() - packets
    pieces = np.maximum(1, total // np.maximum(1, rows))  # long rows are cut into packets
    carried = np.where(server < 0, (rows * size)[of], packet_bytes(before - before[first][of], packets, pieces[of], size[of]))
    transfers = Transfers(
        _texts_of(((steps[k].engine, d.generation) for k, d in zip(triggers.tolist(), dmas, strict=True)), queue_name),
        _texts_of((tuple((v.memory, v.tensor) for v in d.sources) for d in dmas), _places),
        _texts_of(((d.dst.memory, d.dst.tensor) for d in dmas), place),
        _times(start, per_ns), _times(end, per_ns),
        triggers, rows * size, rows, size, read, written,
    )  # fmt: skip
    ready, begin, finish = (_times(c[row], per_ns) for c in (timeline.ready, timeline.start, timeline.finish))
    return transfers, Shares(ready, begin, finish, of.astype(np.int64), server, packets, carried)


_waits, _updates, _semaphore = map(attrgetter, ("waits", "updates", "semaphore"))


def _semaphores(steps: Sequence[Step], table: Table, timeline: Timeline, printer: Printer) -> SemaphoreUpdates:
    """Recomputed from the table: lowering numbers the architectural semaphores first, in order, then its hidden ones."""
    signals = chain.from_iterable(chain(map(_waits, steps), map(_updates, steps)))
    ids = np.array(sorted(set(map(_semaphore, signals))), np.int64)
    keep = np.flatnonzero(table.update_semaphore < len(ids))
    row = np.repeat(np.arange(table.rows + table.transfers), np.diff(table.update_ptr))[keep]
    semaphore, op, amount, when = (c[keep] for c in (table.update_semaphore, table.update_op, table.update_value, table.update_when))
    if np.any(when == When.STREAMED):
        raise InternalError("trace", "an architectural semaphore updated when the array has streamed", "at start or finish")
    base = np.where(when == When.START, timeline.start[row], timeline.finish[row])
    time = base + table.delays[table.update_delay[keep], 0]  # the same in every state, as only hidden updates differ
    order = np.argsort(time, kind="stable")  # row order within a tick
    semaphore, op, amount, row = semaphore[order], op[order], amount[order], row[order]
    names = _texts(map(printer.name, ids.tolist()), semaphore)
    return SemaphoreUpdates(
        _times(time[order], table.ticks_per_ns), ids[semaphore], names, _values(semaphore, op, amount), op, amount, table.step[row]
    )


def _values(semaphore: Ints, op: Ints, amount: Ints) -> Ints:
    """The value after each update: a running sum for each semaphore, which begins anew where it is set."""
    if float(np.abs(amount, dtype=np.float64).sum()) >= FARTHEST:
        raise ProgramError("trace", "semaphore values beyond 62 bits", "values that a trace holds")
    order = np.argsort(semaphore, kind="stable")
    semaphore, op, amount = semaphore[order], op[order], amount[order]
    change = np.where(op == Op.ADD, amount, np.where(op == Op.SUB, -amount, 0))
    total = change.cumsum()
    fresh = np.append(True, semaphore[1:] != semaphore[:-1])[: len(order)]
    before = np.where(op == Op.SET, amount - total, change - total)  # what to add to the sum from a fresh or set row on
    begun = np.maximum.accumulate(np.where(fresh | (op == Op.SET), np.arange(len(order)), 0))
    value = np.empty_like(total)
    value[order] = total + before[begun]
    return value


def _gate(table: Table, timeline: Timeline) -> GateStates:
    ratio = Fraction(table.throttle.gated, table.throttle.full) if table.throttle.changes else Fraction(1)
    n = GATE_STEPS if GATE_STEPS % ratio.denominator == 0 else ratio.denominator
    end = int(timeline.finish.max(initial=0))
    ticks = [t for t, _ in timeline.gate] + [end]
    states = [(a, b, n if full else int(ratio * n)) for a, b, (_, full) in zip(ticks, ticks[1:], timeline.gate, strict=False) if a < b]
    start, stop, k = np.array(states, np.int64).reshape(-1, 3).T
    return GateStates(_times(start, table.ticks_per_ns), _times(stop, table.ticks_per_ns), k, np.full(len(states), n, np.int64))


def _metadata(result: Result) -> dict[str, Any]:
    from .. import __version__

    chip: Chip = result.chip
    ratio = chip.ticks_per_ns.as_integer_ratio()
    fixed = {f"{p}_ns": math.floor(chip.reader()(f"program.{p}_ns") + Fraction(1, 2)) for p in ("prologue", "epilogue", "benchmark")}
    ticks = body_ticks(result.table, result.timeline)
    return {
        "program": result.program.name, "chip": chip.name, "core": chip.core, "is_simulation": True, "instance": 0, "vnc": 0,
        "tool": "nc-sim", "tool_version": __version__, "ticks_per_ns": list(ratio),
        "duration_ticks": ticks, "duration_ns": int(_ns(np.int64(ticks), *ratio)), **fixed,
        "gate_phase_ns": float(result.gate_phase_ns), "phase_range_ns": [float(x) for x in result.phase_range_ns or ()],
        "what_if": {k: str(v) for k, v in sorted(chip.overrides.items())}, "without": list(result.without),
        "assumed": dict(sorted(result.assumed.items())), "races": list(result.races),
        "observed_semaphores": list(result.observed_semaphores), **said_of(chip),
    }  # fmt: skip


def save(result: Result, folder: str | Path, progress: Callable[[int, int], None] | None = None) -> Path:
    """Write the program and the trace of a run into a folder, made if needed; each file whole or not at all.

    Files are written as they are made, so memory stays that of one column. `progress` is called now and then with work
    done and work in all.
    """
    _save(result, Path(folder), progress)
    return Path(folder)


def _save(result: Result, folder: Path, progress: Callable[[int, int], None] | None) -> str:
    """The program's digits."""
    told = _Told(progress, 2 * len(result.steps) + len(result.program.steps))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with unnamed(folder) as program, unnamed(folder) as trace:
            number, sha = write_program(result, program.file, told)
            head = _head(number, sha, _metadata(result))
            trace.file.writelines(_chunks(head, told.after(_records(result), len(result.steps) // len(RECORDS))))
            program.become(folder / f"neff_{number}{PROGRAM_SUFFIX}")
            trace.become(folder / f"{number}_instid_0_vnc_0{TRACE_SUFFIX}")
    except OSError as e:
        raise ProgramError(str(folder), f"cannot be written: {e.strerror}", "a folder that can be made and written to") from None
    told.end()
    return number


def save_alone(result: Result, folder: str | Path, progress: Callable[[int, int], None] | None = None) -> Path:
    """As `save`; then runs that were saved there before, of other programs, are removed: the folder is that of the last run."""
    folder = Path(folder)
    number = _save(result, folder, progress)
    for path in (*folder.glob(f"*{TRACE_SUFFIX}"), *folder.glob(f"neff_*{PROGRAM_SUFFIX}")):
        if re.fullmatch(r"(\d{20})_instid_\d+_vnc_\d+|neff_(\d{20})", path.name.split(".")[0]) and number not in path.name:
            path.unlink(missing_ok=True)
    return folder


def pack_program(result: Result) -> bytes:
    """The bytes of the file that `write_program` writes."""
    write_program(result, file := BytesIO())
    return file.getvalue()


def write_program(result: Result, file: IO[bytes], told: _Told | None = None) -> tuple[str, str]:
    """Write the program as built, and as compiled for the chip, with every number of the chip; returns its digits and its SHA-256."""
    chip, made, told = result.chip, result.compiled, told or _Told(None, 0)
    plain = {k: str(n.value) if type(n.value) in (int, Fraction) else n.value for k, n in sorted(chip.numbers.items())}
    digest, packer = hashlib.sha256(), StepPacker()

    def built() -> Iterator[bytes]:
        for written, bare in told.after(program_parts(result.program), STEPS_AT_ONCE):
            digest.update(bare)
            yield written

    def machine() -> Iterator[bytes]:
        for first in told.after(range(0, len(made.steps), STEPS_AT_ONCE), STEPS_AT_ONCE):
            yield b"".join(
                part for s in made.steps[first : first + STEPS_AT_ONCE] for part in (packer.body(s, s.call), packer.line(s.line))
            )

    values = {
        "format": PROGRAM_FORMAT, "version": PROGRAM_VERSION, "program": built(),
        "chip": {
            "name": chip.name, "core": chip.core, "sources": dict(sorted(chip.sources.items())),
            "numbers": {k: [value, chip.numbers[k].status, chip.numbers[k].source] for k, value in plain.items()},
            "overrides": {k: str(v) for k, v in sorted(chip.overrides.items())},
        },
        "addresses": packed(dict(sorted(made.addresses.items()))), "semaphores": [[k, v] for k, v in sorted(made.semaphores.items())],
        "explicit": made.explicit, "steps": len(made.steps), "machine": machine(),
    }  # fmt: skip
    file.write(map_header(len(values)))
    for key, value in values.items():
        file.write(packed(key))
        if isinstance(value, Iterator):
            write_binary(file, value)
        else:
            file.write(packed(value))
    return name_of(digest.digest()), sha256_of(file)


def pack(trace: Trace) -> bytes:
    """The bytes of a trace file."""
    return b"".join(_chunks(_head(trace.hash, trace.program_sha256, trace.metadata), ((n, getattr(trace, n)) for n in RECORDS)))


def _head(number: str, sha: str, metadata: dict[str, Any]) -> dict[str, Any]:
    return {"format": FORMAT, "version": VERSION, "hash": number, "program_sha256": sha, "metadata": metadata}


def _chunks(head: dict[str, Any], parts: Iterable[tuple[str, _Records]]) -> Iterator[bytes]:
    """A trace file, column by column."""
    yield map_header(len(head) + len(RECORDS))
    for key, value in head.items():
        yield packed(key) + packed(value)
    for name, records in parts:
        names = [k for a in attrs.fields(type(records)) for k in _stored_names(a)]
        yield packed(name) + map_header(2) + packed("count") + packed(len(records)) + packed("columns") + map_header(len(names))
        for column, stored in records.stored():
            yield packed(column)
            yield packed(stored)
        del records  # or they stay in memory beside the next


class _Told:
    """Tells of work done, in steps."""

    def __init__(self, progress: Callable[[int, int], None] | None, total: int) -> None:
        self.progress, self.total, self.done = progress or (lambda done, total: None), total, 0

    def after(self, parts: Iterable[T], work: int) -> Iterator[T]:
        """The parts; each counts for so much work when the next is asked for."""
        for part in parts:
            yield part
            del part  # or it stays in memory beside the next
            self.done += work
            self.progress(min(self.done, self.total - 1), self.total)

    def end(self) -> None:
        self.progress(self.total, self.total)


def _stored_names(field: Any) -> list[str]:
    return [f"{field.name}_ns", f"{field.name}_ticks"] if field.type == "Times" else [field.name]


def _stored(name: str, column: Column) -> Iterator[tuple[str, list[Any]]]:
    if isinstance(column, Times):
        yield f"{name}_ns", stored_ints(column.ns)
        yield f"{name}_ticks", stored_ints(column.ticks)
    elif isinstance(column, Texts):
        yield name, [*stored_ints(column.index), "\0".join(column.values).encode()]
    else:
        yield name, stored_ints(column)


def load(path: str | Path, progress: Tell | None = None) -> Trace:
    """The trace of a file, or the only one of a folder; the program is not needed. `progress` is told of records read."""
    where = Path(path)
    if where.is_dir():
        found = sorted(p.name for p in where.glob(f"*{TRACE_SUFFIX}") if not p.name.startswith("."))
        if len(found) != 1:
            what = f"{len(found)} traces: {', '.join(found[:4])}{', …' * (len(found) > 4)}" if found else "no trace"
            newest = max(found, key=lambda n: (where / n).stat().st_mtime_ns, default="")
            told = f"the path of one of them; the newest is {newest}" if found else f"one *{TRACE_SUFFIX}, or the path of a file"
            raise ProgramError(str(where), what, told)
        where /= found[0]
    data = _read(where, "a trace")
    if (what := foreign.told(data[: foreign.HEAD], where.name)) not in ("", OURS):
        raise ProgramError(str(where), what, f"the folder of a saved run, or the *{TRACE_SUFFIX} in it")
    return attrs.evolve(unpack(data, str(where), progress), path=where)


def _read(path: Path, what: str) -> bytes:
    try:
        return regular(path).read_bytes()
    except OSError as e:
        raise ProgramError(str(path), f"cannot be read: {e.strerror}", f"{what} that Result.save wrote") from None


def _read_program(path: Path, trace: Trace, progress: Tell | None = None) -> Program:
    data = _read(path, "the trace's program,")
    found, wanted = hashlib.sha256(data).hexdigest(), trace.program_sha256
    if found != wanted:
        raise ProgramError(str(path), f"SHA-256 {found[:12]}…", f"{wanted[:12]}…, of the program that the trace was recorded with")
    return _program_of(data, path, progress)


def load_saved_program(path: str | Path, progress: Tell | None = None) -> Program:
    """The program of a saved `neff_<hash>.neff.msgpack`, to run again. `progress` is told how much of it is read."""
    return _program_of(_read(Path(path), "a program"), Path(path), progress)


def _program_of(data: bytes, path: Path, progress: Tell | None = None) -> Program:
    payload = map_of(data, str(path), PROGRAM_FORMAT, PROGRAM_VERSION).get("program")
    require(isinstance(payload, bytes), f"{path} program", payload, "the bytes of a program")
    return program_from_msgpack(payload, str(path), progress)  # type: ignore[arg-type]


def unpack(data: bytes, where: str = "trace", progress: Tell | None = None) -> Trace:
    """The trace of a file's bytes; ProgramError names the file and the field that is wrong."""
    raw = map_of(data, where, FORMAT, VERSION)
    for name, form, wanted in (("hash", r"(\d{20})?", "twenty digits"), ("program_sha256", r"([0-9a-f]{64})?", "64 hexadecimal digits")):
        require(re.fullmatch(form, str(raw.get(name)), re.ASCII) is not None, f"{where} {name}", raw.get(name), wanted)
    got = read_metadata(raw.get("metadata"), METADATA, where, 1 - LIMIT)
    tick = got["ticks_per_ns"]
    require(len(tick) == 2 and min(tick) > 0 and math.prod(tick) < 1 << 61, f"{where} metadata ticks_per_ns", tick, "a fraction above 0")
    parts: dict[str, Any] = {}
    for name, tell in zip(RECORDS, weighted(progress, *(_count(raw.get(name)) for name in RECORDS)), strict=True):
        parts[name] = _read_records(raw.get(name), RECORDS[name], tick, f"{where} {name}", tell)
    for name, column, target in LINKS:
        last = int(getattr(parts[name], column).max(initial=-1))
        require(last < len(parts[target]), f"{where} {name} {column}", last, f"below {len(parts[target])}, the number of {target}")
    return Trace(got, **parts, hash=raw["hash"], program_sha256=raw["program_sha256"])


def _count(raw: Any) -> int:
    """How many records there are said to be, of what may be anything."""
    count = raw.get("count") if isinstance(raw, dict) else 0
    return count if type(count) is int and 0 < count < LIMIT else 1


def _read_records(raw: Any, kind: type[_Records], ticks_per_ns: list[int], where: str, progress: Tell | None = None) -> _Records:
    columns, count = read_columns(raw, where)
    out: dict[str, Column] = {}
    names = set[str]()
    for field in told(attrs.fields(kind), progress, 1):
        stored = _stored_names(field)
        names.update(stored)
        low = -LIMIT if field.type == "Ints" and field.name in SIGNED else 0
        got = [read_ints(columns.get(name), count, f"{where} {name}", low) for name in stored]
        if field.type == "Times":
            same = np.array_equal(got[0], _ns(got[1], *ticks_per_ns))
            require(same, f"{where} {stored[0]}", got[0][:4].tolist(), f"{stored[1]} in ns, rounded half up")
            out[field.name] = Times(got[1], got[0])
        elif field.type == "Texts":
            out[field.name] = _read_texts(columns[field.name], got[0], f"{where} {field.name}")
        else:
            out[field.name] = got[0]
    require(set(columns) == names, f"{where} columns", sorted(map(str, set(columns) - names)), "no other column")
    return kind(**out)


def _read_texts(raw: list[Any], index: Ints, where: str) -> Texts:
    try:
        values = tuple(raw[2].decode().split("\0")) if raw[2] or len(index) else ()
    except (IndexError, AttributeError, UnicodeDecodeError):
        raise ProgramError(where, "no text", "UTF-8 texts, separated by zero bytes") from None
    require(index.max(initial=-1) < len(values), where, int(index.max(initial=0)), f"an index below {len(values)}")
    return Texts(values, index)
