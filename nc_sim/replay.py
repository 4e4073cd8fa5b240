"""Real instruction streams through the simulator, compared with their measurement."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from . import chip as chips
from .arguments import path_of, require_flag, require_tell, said
from .chip import Chip
from .costs import Options
from .isa import Engine
from .isa.errors import ProgramError
from .lower import lower
from .mechanisms import without as overrides_without
from .notebook import Shown
from .simulate import finite, require_engine, run
from .table import Table
from .timeline import Timeline, step_ends
from .trace import profile_csv, profile_packets
from .trace.profile_csv import Profile


@attrs.frozen(eq=False)
class Replay(Shown):
    """A replayed profile. Times are ns from the release of Sync."""

    profile: Profile
    chip: Chip
    table: Table
    timeline: Timeline
    starts: np.ndarray  # [steps] simulated
    durations: np.ndarray
    measured_starts: np.ndarray
    measured_durations: np.ndarray
    gate_source: str
    dma_from_trace: bool
    uncertain: tuple[str, ...]
    path: Path

    @property
    def packets_path(self) -> Path:
        """Where the packets of a CSV profile would be."""
        return profile_packets.beside(self.path)

    @property
    def total_measured_ns(self) -> int:
        """Length of the kernel body as measured."""
        return profile_csv.body_length(self.profile)

    @property
    def total_simulated_ns(self) -> float:
        """Length of the kernel body as simulated."""
        return float((self.starts + self.durations).max())

    @property
    def start_errors(self) -> np.ndarray:
        """|simulated - measured| start of every body instruction, ns, sorted."""
        return np.sort(np.abs(self.starts - self.measured_starts))

    def summary(self) -> dict[str, Any]:
        """The comparison as plain numbers, for `--json`."""
        errors = self.start_errors
        return {
            "trace": self.profile.name,
            "chip": self.chip.name,
            "extrapolated": self.chip.extrapolated or None,
            "instructions": len(self.profile.steps),
            "total_measured_ns": self.total_measured_ns,
            "total_simulated_ns": round(self.total_simulated_ns, 3),
            "total_error_percent": round(100 * (self.total_simulated_ns / self.total_measured_ns - 1), 3),
            "median_start_error_ns": round(statistics.median(errors.tolist()), 3),
            "p95_start_error_ns": round(float(errors[int(0.95 * len(errors))]), 3),
            "median_start_error_percent": round(100 * statistics.median(errors.tolist()) / self.total_measured_ns, 3),
            "p95_start_error_percent": round(100 * float(errors[int(0.95 * len(errors))]) / self.total_measured_ns, 3),
            "gate_phase": self.gate_source,
            "dma_from_trace": self.dma_from_trace,
            "by_opcode": self.by_opcode(),
            "assumed": list(self.uncertain),
        }

    def by_opcode(self) -> dict[str, dict[str, float]]:
        """Duration error by opcode: medians of instances."""
        out = {}
        opcodes = np.array([m.opcode for m in self.profile.measured])
        for opcode in sorted(set(opcodes.tolist())):
            mine = opcodes == opcode
            simulated, measured = self.durations[mine], self.measured_durations[mine]
            error = np.abs(simulated - measured)
            out[opcode] = {
                "count": int(mine.sum()),
                "measured_median_ns": float(np.median(measured)),
                "simulated_median_ns": round(float(np.median(simulated)), 3),
                "median_duration_error_ns": round(float(np.median(error)), 3),
                "median_duration_error_percent": round(100 * float(np.median(error / np.maximum(measured, 1))), 3),
                "median_start_error_ns": round(float(np.median(np.abs(self.starts[mine] - self.measured_starts[mine]))), 3),
            }
        return out


def replay(
    path: str | Path,
    chip: str | Path | Chip = "trn2",
    *,
    dma_from_trace: bool = False,
    without: Iterable[str] = (),
    what_if: Mapping[str, Any] | None = None,
    gate_phase_ns: float | None = None,
    engine: str = "auto",
    core: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Replay:
    """Simulate the kernel body of a hardware profile (`NAME.instr.csv`, or a JSON export) and keep both timelines.

    Only the clock gate's phase is taken from the measurement (and DMA latencies, with `dma_from_trace`); `without`
    names mechanisms to switch off. `engine` is that of `simulate`: "simpy", "compiled" or "auto"; the timeline is the same.
    Of a JSON export `core` names one, where several run a kernel. `progress` is called now and then with rows done and rows
    in all.
    """
    require_engine(engine, "replay")
    require_flag(dma_from_trace, "replay dma_from_trace")
    require_tell(progress, "replay")
    if core is not None and (isinstance(core, bool) or not isinstance(core, int) or core < 0):
        raise ProgramError("replay core", said(core), "a whole number of at least 0")
    where = path_of(path, "replay")
    data = chips.load(chip).what_if(overrides_without(without)).what_if({} if what_if is None else what_if)
    look = data.reader()
    profile = profile_csv.read(where, {e: float(look(f"sequencer.{e.name.lower()}.release_ns")) for e in Engine}, core)
    phase, source = (gate_phase_ns, "given") if gate_phase_ns is not None else (profile.gate_phase_ns, profile.gate_source)
    latencies = profile_packets.measured_dma(where, profile) if dma_from_trace else {}
    options = Options(gate_phase_ns=finite(phase or 0, "gate_phase_ns"), dma_latency_ns={k: Fraction(v) for k, v in latencies.items()})
    table, reader = lower(profile.steps, data, options, profile.semaphore_names)
    timeline = run(table, profile.steps, progress=progress, engine=engine)
    ns = float(1 / data.ticks_per_ns)
    starts = timeline.start[table.start_row] * ns
    durations = step_ends(table, timeline) * ns - starts
    measured = np.array([(m.start_ns - profile.origin_ns, m.duration_ns) for m in profile.measured], np.float64)
    return Replay(
        profile, data, table, timeline, starts, durations, measured[:, 0], measured[:, 1], source, dma_from_trace,
        tuple(reader.uncertain()), where,
    )  # fmt: skip
