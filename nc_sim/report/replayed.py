"""A replayed profile as one Perfetto file or picture: measured above simulated, from one time zero."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from ..isa.dma import DmaDirect2d
from ..lower import queue_name
from ..progress import Tell, weighted
from ..replay import Replay
from ..table import Ints
from ..trace import perfetto
from ..trace.hardware import Texts
from ..trace.perfetto import ENGINES, Counter, Device, Row, lanes_of
from ..trace.profile_csv import Measured
from ..trace.profile_packets import Packet, Part, packets_of, parts
from . import viewer

SIDES = ("measured", "simulated")


def save(replay: Replay, path: str | Path, progress: Callable[[int, int], None] | None = None) -> Path:
    """Write both timelines and return the path; whole or not there.

    A folder for each side has the engines' instructions, which say where the other side has them, and the DMA engines: the
    packets where the profile has them, and each engine's share of a transfer as simulated. Raises Unsupported without the
    package perfetto.
    """
    names = replay.profile.source, f"{SIDES[1]}, extrapolated" if replay.chip.extrapolated else SIDES[1]
    return perfetto.save_side_by_side(dict(zip(names, devices(replay), strict=True)), path, progress=progress)


def draw(
    replay: Replay, path: str | Path, *, from_us: float | None = None, to_us: float | None = None, progress: Tell | None = None,
) -> Path:  # fmt: skip
    """Draw what the viewer would show of both; errors as of `nc-sim view --picture`."""
    first, then = weighted(progress, 1, 5)
    with TemporaryDirectory() as folder:
        return viewer.draw(save(replay, Path(folder) / "replayed.pftrace", first), path, from_us=from_us, to_us=to_us, progress=then)


def devices(replay: Replay) -> tuple[Device, Device]:
    """What was measured and what is simulated, in whole ns from the release of Sync."""
    measured = np.round(replay.measured_starts).astype(np.int64), np.round(replay.measured_durations).astype(np.int64)
    simulated = np.round(replay.starts).astype(np.int64), np.round(replay.durations).astype(np.int64)
    moved = parts(_packets(replay))
    begin = min([0, int(measured[0].min()), *(p.start_ns - replay.profile.origin_ns for p in moved)])  # time zero, or what is before it
    made = []
    for (start, length), (there, _), dma in (
        (measured, simulated, measured_dma(moved, replay.profile.origin_ns + begin)), (simulated, measured, _simulated_dma(replay, begin)),
    ):  # fmt: skip
        made.append([*_engines(replay, start - begin, length, there - start), *dma])
    gate = [(0, 0), *((round(float(replay.chip.ns(tick))), full) for tick, full in replay.timeline.gate)]
    ratio = 100 * float(replay.chip.numbers["tensor.gate.ratio"].value)
    times, levels = np.array([t - begin for t, _ in gate], np.int64), np.array([100.0 if full else ratio for _, full in gate])
    clock = Counter(0, "Throttling", "", "%", ratio, times[1:], levels[1:])
    return Device(tuple(made[0]), (), 0), Device(tuple(made[1]), (clock,), 0)


def _engines(replay: Replay, start: Ints, length: Ints, later: Ints) -> Iterator[Row]:
    """Instructions by engine; `later` is how much later the other side starts them."""
    engines = [s.engine.label for s in replay.profile.steps]
    return instruction_rows(engines, replay.profile.measured, start, start + length, {"other_side_later_ns": later})


def instruction_rows(
    engines: Sequence[str], measured: Sequence[Measured], start: Ints, end: Ints, numbers: Mapping[str, Ints]
) -> Iterator[Row]:
    """The rows of the engines for a profile's instructions, each with its number, place and operands, and what else is given."""
    opcodes, operands = texts([m.opcode for m in measured]), texts([m.operands for m in measured])
    counts = {"pc": np.array([m.pc for m in measured], np.int64), "instruction": np.arange(len(measured)), **numbers}
    track = np.array([_track(e, m.opcode) for e, m in zip(engines, measured, strict=True)])
    for rank, name in enumerate(ENGINES):
        yield from lanes_of(rank, f"{name} Engine", np.flatnonzero(track == name), start, end, opcodes, {"operands": operands}, counts)


def _track(engine: str, opcode: str) -> str:
    return "TensorMatrix" if opcode == "MATMUL" else engine


def _packets(replay: Replay) -> list[Packet]:
    """The kernel's DMA packets, if the profile has them beside it."""
    if replay.profile.packets is None and not replay.packets_path.is_file():
        return []
    return packets_of(replay.path, replay.profile)


def measured_dma(of: Sequence[Part], origin_ns: int) -> Iterator[Row]:
    """What each DMA engine has of each transfer, as rows from `origin_ns` on."""
    columns = [(p.start_ns - origin_ns, p.end_ns - origin_ns, p.bytes, len(p.packets), p.engine) for p in of]
    start, end, sizes, counts, engines = np.array(columns, np.int64).reshape(-1, 5).T
    names, numbers = texts([f"queue {p.queue}" for p in of]), {"bytes": sizes, "packets": counts}
    for engine in np.unique(engines).tolist():
        mine = np.flatnonzero(engines == engine)
        yield from lanes_of(100 + engine, f"DMA Engine {engine}", mine, start, end, names, {}, numbers)


def _simulated_dma(replay: Replay, begin: int) -> Iterator[Row]:
    table, timeline = replay.table, replay.timeline
    ns = float(1 / table.ticks_per_ns)
    start, end = (np.round(c[table.rows :] * ns).astype(np.int64) - begin for c in (timeline.start, timeline.finish))
    steps = table.step[table.rows :]
    dmas = {k: (s.engine, s.instruction) for k, s in enumerate(replay.profile.steps) if isinstance(s.instruction, DmaDirect2d)}
    names = texts([queue_name(dmas[k][0], dmas[k][1].generation) for k in steps.tolist()])
    sizes = {k: dma.row_bytes for k, (_, dma) in dmas.items()}
    moved = {"bytes": table.packets * np.array([sizes[k] for k in steps.tolist()], np.int64), "instruction": steps}
    for engine in np.unique(table.server).tolist():
        name = f"DMA Engine {engine}" if engine >= 0 else "DMA Engines (from the trace)"
        yield from lanes_of(100 + engine, name, np.flatnonzero(table.server == engine), start, end, names, {}, moved)


def texts(values: Sequence[str]) -> Texts:
    known: dict[str, int] = {}
    index = np.array([known.setdefault(v, len(known)) for v in values], np.int64)
    return Texts(tuple(known), index)
