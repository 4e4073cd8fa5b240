"""What a simulation returns: values, the timeline, and views of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from .isa import Engine, Step
from .isa.dma import DmaDirect2d
from .program import Program
from .table import Table
from .timeline import Timeline

if TYPE_CHECKING:
    from .simulate import Compiled


@attrs.frozen
class Executed:
    """One executed instruction, for reading. Times are ns from the release of Sync."""

    index: int
    engine: str
    opcode: str
    line: str
    ready_ns: float  # reached the head of its queue
    start_ns: float
    end_ns: float
    wait_ns: float  # for its semaphores
    text: str

    @property
    def duration_ns(self) -> float:
        """From start to the visible result."""
        return self.end_ns - self.start_ns


@attrs.frozen(eq=False, kw_only=True, repr=False)
class Result:
    """A finished run."""

    program: Program
    compiled: Compiled
    table: Table
    timeline: Timeline  # ticks per table row; `chip.ns` converts
    outputs: Mapping[str, np.ndarray]
    used: tuple[str, ...]  # names of the chip numbers that the run rests on
    races: tuple[str, ...]
    observed_semaphores: tuple[str, ...]  # ordered only as observed: they are subtracted from or set
    phase_range_ns: tuple[float, float] | None
    without: tuple[str, ...]
    gate_phase_ns: float

    @property
    def chip(self) -> Any:
        """The chip the program ran on, overrides applied."""
        return self.compiled.chip

    @property
    def steps(self) -> tuple[Step, ...]:
        """Machine instructions in program order."""
        return self.compiled.steps

    @property
    def duration_ns(self) -> float:
        """The kernel body: from the release of Sync to the end of the last instruction."""
        return float(self.chip.ns(body_ticks(self.table, self.timeline)))

    @property
    def total_time_ns(self) -> float:
        """What a profile calls total_time: prologue, body and epilogue."""
        return self._fixed("prologue") + self.duration_ns + self._fixed("epilogue")

    @property
    def benchmark_ns(self) -> float:
        """What the benchmark harness would measure."""
        return self.duration_ns + self._fixed("benchmark")

    def _fixed(self, name: str) -> float:
        return float(self.chip.reader()(f"program.{name}_ns"))

    @cached_property
    def assumed(self) -> dict[str, str]:
        """Numbers this result rests on that no source gives for this chip: name to why."""
        numbers = self.chip.numbers
        return {k: f"{numbers[k].status}: {numbers[k].source}" for k in self.used if numbers[k].status in ("assumed", "carried-over")}

    @cached_property
    def instructions(self) -> tuple[Executed, ...]:
        """Every executed instruction in order of its start."""
        ns = float(1 / self.table.ticks_per_ns)
        ready, begun = (c[self.table.wait_row] * ns for c in (self.timeline.ready, self.timeline.start))
        start, end = self.timeline.start[self.table.start_row] * ns, self.timeline.finish[self.table.finish_row] * ns
        out = [
            Executed(
                k,
                s.engine.label,
                s.instruction.opcode,
                s.line,
                float(ready[k]),
                float(start[k]),
                float(end[k]),
                float(begun[k] - ready[k]),
                str(s.instruction),
            )
            for k, s in enumerate(self.steps)
        ]
        return tuple(sorted(out, key=lambda i: (i.start_ns, i.index)))

    def __repr__(self) -> str:
        return f"<Result {self.program.name} on {self.chip.name}: {len(self.steps)} instructions, {self.duration_ns:.1f} ns>"

    def summary(self) -> dict[str, Any]:
        """Plain numbers: times in ns, bytes, flops, instructions and busy time by engine."""
        engines: dict[str, dict[str, float]] = {}
        for e in Engine:
            mine = [i for i in self.instructions if i.engine == e.label]
            if mine:
                engines[e.label] = {"instructions": len(mine), "busy_ns": round(_union([(i.start_ns, i.end_ns) for i in mine]), 3)}
        work = [s.instruction.work() for s in self.steps]
        moved = self.bytes_moved
        return {
            "program": self.program.name,
            "chip": self.chip.name,
            "duration_ns": round(self.duration_ns, 3),
            "total_time_ns": round(self.total_time_ns, 3),
            "benchmark_ns": round(self.benchmark_ns, 3),
            "phase_range_ns": None if self.phase_range_ns is None else [round(x, 3) for x in self.phase_range_ns],
            "instructions": len(self.steps),
            "flops": sum(w.flops for w in work if w.macs),
            **moved,
            "engines": engines,
            "what_if": dict(self.chip.overrides),
            "without": list(self.without),
            "assumed": self.assumed,
            "races": list(self.races),
            "observed_semaphores": list(self.observed_semaphores),
        }

    @cached_property
    def bytes_moved(self) -> dict[str, int]:
        """HBM bytes read and written by DMA."""
        read = written = 0
        for s in self.steps:
            if isinstance(s.instruction, DmaDirect2d):
                read += s.instruction.src.nbytes if s.instruction.src.memory.name == "HBM" else 0
                written += s.instruction.dst.nbytes if s.instruction.dst.memory.name == "HBM" else 0
        return {"hbm_read_bytes": read, "hbm_write_bytes": written}

    def save(self, folder: str | Path) -> Path:
        """Write the program and the hardware trace into a folder; returns it."""
        from .trace.hardware import save

        return save(self, Path(folder))


def body_ticks(table: Table, timeline: Timeline) -> int:
    """From time zero to the end of the last instruction."""
    return int(timeline.finish[table.finish_row].max(initial=0))


def _union(intervals: list[tuple[float, float]]) -> float:
    total, reach = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reach))
        reach = max(reach, end)
    return total
