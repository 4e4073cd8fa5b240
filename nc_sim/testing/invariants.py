"""What holds of every Result. Each function returns None, or raises AssertionError that names the row or instruction."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import numpy as np

from .. import core, fast
from ..chip import Reader
from ..isa import Memory
from ..isa.dma import Dma, DmaDirect2d
from ..isa.errors import Unsupported
from ..memory import Memories
from ..numerics import interpret
from ..probe import Probe
from ..result import Result, body_ticks
from ..simulate import run, simulate
from ..table import Role, Rule, Table
from ..timing.dma import MEASURED_ROW_BYTES
from .accounts import check_accounts
from .bounds import HBM, hbm_may_be_passed, rooflines, serial_sum_ns, stream_ticks
from .dependencies import first_too_early

Arrays = Mapping[str, np.ndarray]
ROUNDING_NS = 1e-6  # of ticks as floating-point ns
SUMMARY_NS = 0.001  # a summary rounds its times to this


def check_all(result: Result, inputs: Arrays | None = None) -> None:
    """Every invariant of this module and of `accounts`; those of values only with the inputs of the run."""
    check_times(result)
    check_engine_times(result)
    check_utilisation(result)
    check_bytes(result)
    check_dependencies(result)
    check_rooflines(result)
    check_serial_sum(result)
    check_engines_agree(result)
    check_probes_change_nothing(result, inputs)
    check_accounts(result)
    if inputs is not None:
        check_values(result, inputs)


def check_times(result: Result) -> None:
    """No time is negative, nothing ends before it starts, and a stream's rows start one after another."""
    table, timeline = result.table, result.timeline
    for row in range(table.rows + table.transfers):
        ready, start, finish = (int(c[row]) for c in (timeline.ready, timeline.start, timeline.finish))
        _require(0 <= ready <= start < finish, result, row, f"is ready at tick {ready}, starts at {start}, ends at {finish}")
    for first, last in _streams(table):
        for row in range(first + 1, last):
            before, start = int(timeline.start[row - 1]), int(timeline.start[row])
            _require(before < start, result, row, f"starts at tick {start}, the row before it in its stream at {before}")
    at = [tick for tick, _ in timeline.gate]
    assert at == sorted(set(at)), f"the clock gate changes at ticks {at}: not one after another"
    assert all(tick >= 0 for tick in at), f"the clock gate changes at ticks {at}: before time zero"


def check_engine_times(result: Result) -> None:
    """For each stream, busy + stall + idle time is the body, and none of them is negative."""
    table, timeline = result.table, result.timeline
    total = body_ticks(table, timeline)
    for first, last in _streams(table):
        if first < last:
            begin, ready = int(table.stream_start[table.stream_of(first)]), int(timeline.ready[first])
            _require(ready == begin, result, first, f"is the first of its stream, released at tick {begin}, and ready at {ready}")
        for row in range(first, last - 1):
            states, taken = table.cost_issue[table.cost[row]], int(timeline.ready[row + 1] - timeline.start[row])
            _require(taken in states, result, row, f"keeps its stream busy for {taken} ticks, and may for {sorted(set(states.tolist()))}")
    for name, parts in stream_ticks(result).items():
        named = dict(zip(("busy", "stall", "idle"), parts, strict=True))
        assert min(parts) >= 0, f"{name}: {named} ticks of {total}: one is negative"
        assert sum(parts) == total, f"{name}: {named} ticks sum to {sum(parts)}, the body is {total}"


def check_utilisation(result: Result) -> None:
    """No engine is busy for longer than the body, and no DMA engine or array for longer than it had work."""
    for name, e in result.summary()["engines"].items():
        body = result.duration_ns
        assert 0 < e["busy_ns"] <= body + SUMMARY_NS, f"{name} is busy for {e['busy_ns']} ns of {body} ns"
    table, timeline = result.table, result.timeline
    for server in range(table.servers):
        mine = table.rows + np.flatnonzero(table.server == server)
        work, begin, reach = 0, 0, -1
        for row in sorted(mine.tolist(), key=lambda r: (int(timeline.start[r]), int(r))):
            if timeline.start[row] >= reach:  # it was idle before
                work, begin = 0, int(timeline.start[row])
            k, reach = row - table.rows, max(reach, int(timeline.finish[row]))
            work += int(table.packets[k] * table.packet[k] + table.last[k])
            if timeline.finish[row] == reach:
                _require(work <= reach - begin, result, row, f"ends {work} ticks of DMA engine {server}'s work in {reach - begin}")
    streams = np.flatnonzero(table.rule == Rule.STREAM)
    work = int(-(-table.work[streams] // max(1, table.throttle.full)).sum())
    body = body_ticks(table, timeline)
    assert work <= body, f"the array streams for {work} ticks at full rate, the body is {body}"


def check_bytes(result: Result) -> None:
    """Every DMA moves each of its elements once: its descriptor rows are all on DMA engines, and HBM bytes are those of its sides."""
    table = result.table
    read = written = 0
    by_step: dict[int, list[int]] = {}
    for k, step in enumerate(table.step[table.rows :].tolist()):
        by_step.setdefault(step, []).append(k)
    reader = result.chip.reader()
    for index, step in enumerate(result.steps):
        dma, mine = step.instruction, by_step.pop(index, [])
        if not isinstance(dma, Dma):
            assert not mine, f"{_step(result, index)} is no DMA and has {len(mine)} transfers"
            continue
        found, engines = sorted(table.server[mine].tolist()), int(reader("dma.engines"))
        assert found == list(range(engines)), f"{_step(result, index)} is on DMA engines {found}, not once on each of {engines}"
        assert (table.role[table.rows + np.array(mine)] == Role.TRANSFER).all(), f"{_step(result, index)} has rows that are no transfers"
        rows, packets = dma.dst.size // dma.row_elements, int(table.packets[mine].sum())
        least, most = _packets(dma, rows, reader)
        moved = f"{_step(result, index)} moves {packets} packets for {rows} rows of {dma.row_bytes} bytes"
        assert least <= packets <= most, moved
        read += rows * dma.row_elements * sum(v.dtype.itemsize for v in dma.sources if v.memory is Memory.HBM)
        written += rows * dma.row_elements * dma.dst.dtype.itemsize if dma.dst.memory is Memory.HBM else 0
    assert not by_step, f"transfers of steps {sorted(by_step)}, which the program has not"
    counted, moved_bytes = {"hbm_read_bytes": read, "hbm_write_bytes": written}, result.bytes_moved
    assert moved_bytes == counted, f"the result says {moved_bytes}, its descriptor rows hold {counted}"


def _packets(dma: Dma, rows: int, reader: Reader) -> tuple[int, int]:
    """How many packets so many rows are at least and at most."""
    pieces = -(-dma.row_bytes // int(reader("dma.max_row_bytes"))) if dma.row_bytes > MEASURED_ROW_BYTES else 1  # a long row is several
    size, together = -(-dma.row_bytes // pieces), 1
    if isinstance(dma, DmaDirect2d) and dma.generation == "software" and dma.src.dtype == dma.dst.dtype:
        together = max(1, -(-int(reader("dma.software.packet_bytes")) // size))  # rows join, on NeuronCore-v2
    sent, engines = rows * pieces, int(reader("dma.engines"))
    return -(-sent // together), sent if together == 1 else min(sent, sent // together + engines)  # each engine has a last one


def check_dependencies(result: Result) -> None:
    """Every row starts and ends no earlier than its stream, its waits and its cost allow.

    So the body is at least the longest dependency path (`longest_path`).
    """
    if found := first_too_early(result.table, result.timeline):
        row, which, tick, least = found
        raise AssertionError(f"{_row(result, row)} {which} at tick {tick}, and may at {least} at the earliest")


def check_rooflines(result: Result) -> None:
    """The body is at least every term of `rooflines`; HBM's only where the DMA engines cannot pass it (docs/limits.md)."""
    for resource, least in rooflines(result).items():
        if resource == HBM and hbm_may_be_passed(result):
            continue
        body = result.duration_ns
        assert body >= least - ROUNDING_NS, f"the body is {body:.1f} ns, and {resource} needs {least:.1f} ns for its work"


def check_serial_sum(result: Result) -> None:
    """The body is at most the time of doing one thing after another."""
    body, most = result.duration_ns, serial_sum_ns(result)
    assert body <= most + ROUNDING_NS, f"the body is {body:.1f} ns, and everything one after another {most:.1f} ns"


def check_engines_agree(result: Result) -> None:
    """Both engines give the result's timeline; the compiled one where 64 bits suffice, as plain Python where Numba is not installed."""
    timelines = {"simpy": core.run(result.table)}
    with suppress(Unsupported):
        timelines["compiled"] = fast.loop(result.table)
    for name, timeline in timelines.items():
        for what in ("ready", "start", "finish"):
            ours, theirs = getattr(result.timeline, what), getattr(timeline, what)
            if (different := np.flatnonzero(ours != theirs)).size:
                row = int(different[0])
                raise AssertionError(f"{_row(result, row)}: {what} is tick {ours[row]} in the result, {theirs[row]} by engine={name!r}")
        gate = result.timeline.gate
        assert gate == timeline.gate, f"the clock gate's levels are {gate} in the result, {timeline.gate} by engine={name!r}"


def check_probes_change_nothing(result: Result, inputs: Arrays | None = None) -> None:
    """A run with probes has the same timeline and the probe sees it; with inputs, outputs are the same to the byte."""
    diary = _Diary()
    with_probe = run(result.table, result.steps, [diary])
    assert with_probe == result.timeline, "a run with a probe has another timeline than the result"
    for what, seen, timeline in (("started", diary.starts, with_probe.start), ("finished", diary.finishes, with_probe.finish)):
        for row, tick in enumerate(timeline.tolist()):
            found = seen.pop(row, [])
            _require(found == [tick], result, row, f"{what} at tick {tick}, and a probe was told {found}")
    if inputs is not None:
        for name, values in _outputs(result, inputs, [_Diary()]).items():
            assert values.tobytes() == result.outputs[name].tobytes(), f"output {name} differs with a probe"


def check_values(result: Result, inputs: Arrays) -> None:
    """An automatic program's outputs are those of its instructions one after another, to the byte; they are the result's.

    The same for an explicit program, unless it means something else: it has no race.
    """
    compiled = result.compiled
    memories = Memories(compiled.tensors, compiled.addresses, result.chip.reader(), inputs)
    interpret(result.steps, memories)
    for t in compiled.tensors.values():
        if t.kind == "output":
            assert t.name in result.outputs, f"output {t.name} has no values: run with the inputs"
            ours, wanted = result.outputs[t.name].reshape(-1), memories.tensor(t).reshape(-1)
            if ours.tobytes() != wanted.tobytes():
                size = t.dtype.itemsize
                a, b = (np.frombuffer(v.tobytes(), np.uint8).reshape(-1, size) for v in (ours, wanted))
                k = int(np.flatnonzero((a != b).any(axis=1))[0])
                raise AssertionError(f"output {t.name}, element {k}: {ours[k]} in the run, {wanted[k]} in program order")


class _Diary(Probe):
    """A probe that writes down every call."""

    def __init__(self) -> None:
        self.starts: dict[int, list[int]] = {}
        self.finishes: dict[int, list[int]] = {}

    def started(self, row: int, tick: int) -> None:
        self.starts.setdefault(row, []).append(tick)

    def finished(self, row: int, tick: int) -> None:
        self.finishes.setdefault(row, []).append(tick)


def _outputs(result: Result, inputs: Arrays, probes: list[Probe]) -> Mapping[str, np.ndarray]:
    again = simulate(
        result.program, result.chip, inputs, probes=probes, gate_phase_ns=result.gate_phase_ns, races="ignore",
        max_iterations=max(1, len(result.steps)),
    )  # fmt: skip
    return again.outputs


def _streams(table: Table) -> list[tuple[int, int]]:
    return [(int(a), int(b)) for a, b in zip(table.stream_ptr[:-1], table.stream_ptr[1:], strict=True)]


def _require(holds: bool, result: Result, row: int, otherwise: str) -> None:
    if not holds:
        raise AssertionError(f"{_row(result, row)} {otherwise}")


def _row(result: Result, row: int) -> str:
    """A row as a reader finds it: where, and which instruction."""
    table = result.table
    if row < table.rows:
        where = f"row {row} of {table.stream_names[table.stream_of(row)]}"
    else:
        where = f"row {row}, a transfer on DMA engine {table.server[row - table.rows]},"
    return f"{where} ({_step(result, int(table.step[row]))})"


def _step(result: Result, index: int) -> str:
    step = result.steps[index]
    return f"{step.line} instruction {index}, {step.engine.label}'s {step.instruction.mnemonic}".strip()
