"""What a simulation returns: values, the timeline, and views of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from .alike import Alike, alike
from .arguments import path_of, require_tell
from .collection import without_collection
from .costs import Costs
from .isa import Engine, Memory, Step
from .isa.dma import Dma
from .isa.errors import ProgramError
from .notebook import Shown, frame
from .program import Program
from .table import Ints, Table
from .timeline import Timeline, step_ends

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


class Outputs(dict[str, np.ndarray]):
    """Arrays by the names of output tensors."""

    def __missing__(self, name: str) -> np.ndarray:
        found = f"no output {name!r}" if self else f"no values: {name!r} was not computed"
        raise ProgramError("outputs", found, f"one of {', '.join(self)}" if self else "inputs, or values=True, of simulate")


@attrs.frozen(eq=False, kw_only=True, repr=False)
class Result(Shown):
    """A finished run."""

    program: Program
    compiled: Compiled
    table: Table
    costs: Costs = attrs.field(repr=False)  # how the table's costs were found: other chip numbers are put in by them
    timeline: Timeline  # ticks per table row; `chip.ns` converts
    outputs: Mapping[str, np.ndarray] = attrs.field(converter=Outputs)
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
        """Machine instructions in program order, as executed: those of a loop once for each round."""
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
    def alike(self) -> Alike:
        """What the machine instructions have in common."""
        with without_collection():
            return alike(self.steps)

    @cached_property
    def instructions(self) -> tuple[Executed, ...]:
        """Every executed instruction in order of its start: one object each, which `summary` and `save` do without."""
        ns = float(1 / self.table.ticks_per_ns)
        ready, begun = (c[self.table.wait_row] * ns for c in (self.timeline.ready, self.timeline.start))
        start, end = self.timeline.start[self.table.start_row] * ns, step_ends(self.table, self.timeline) * ns
        texts, row = [str(i) for i in self.alike.distinct], self.alike.row
        columns = (c.tolist() for c in (ready, start, end, begun - ready, row))
        out = [
            Executed(k, s.engine.label, s.instruction.opcode, s.line, r, a, b, w, texts[d])
            for k, (s, r, a, b, w, d) in enumerate(zip(self.steps, *columns, strict=True))
        ]
        return tuple(out[k] for k in np.argsort(start, kind="stable").tolist())

    def __repr__(self) -> str:
        said = ", extrapolated" if self.chip.extrapolated else ""
        return f"<Result {self.program.name} on {self.chip.name}: {len(self.steps)} instructions, {self.duration_ns:.1f} ns{said}>"

    def frame(self) -> Any:
        """The executed instructions as a pandas data frame, in order of their start; Unsupported without pandas."""
        names = [a.name for a in attrs.fields(Executed)]
        columns = [*names[:-1], "duration_ns", names[-1]]
        return frame(({k: getattr(i, k) for k in columns} for i in self.instructions), columns)

    def summary(self) -> dict[str, Any]:
        """Plain numbers: times in ns, bytes, flops, instructions and busy time by engine."""
        engine = np.fromiter((s.engine for s in self.steps), np.int64, len(self.steps))
        start, end = self.timeline.start[self.table.start_row], step_ends(self.table, self.timeline)
        engines: dict[str, dict[str, float]] = {}
        for e in Engine:
            mine = engine == e
            if count := int(np.count_nonzero(mine)):
                busy = float(self.chip.ns(_union(start[mine], end[mine])))
                engines[e.label] = {"instructions": count, "busy_ns": round(busy, 3)}
        return {
            "program": self.program.name,
            "chip": self.chip.name,
            "extrapolated": self.chip.extrapolated or None,
            "duration_ns": round(self.duration_ns, 3),
            "total_time_ns": round(self.total_time_ns, 3),
            "benchmark_ns": round(self.benchmark_ns, 3),
            "phase_range_ns": None if self.phase_range_ns is None else [round(x, 3) for x in self.phase_range_ns],
            "instructions": len(self.steps),
            "flops": self._totals[0],
            **self.bytes_moved,
            "engines": engines,
            "what_if": dict(self.chip.overrides),
            "without": list(self.without),
            "assumed": self.assumed,
            "races": list(self.races),
            "observed_semaphores": list(self.observed_semaphores),
        }

    @property
    def bytes_moved(self) -> dict[str, int]:
        """HBM bytes read and written by DMA."""
        return {"hbm_read_bytes": self._totals[1], "hbm_write_bytes": self._totals[2]}

    @cached_property
    def _totals(self) -> tuple[int, int, int]:
        """Flops of products, HBM bytes read and written by DMA: of each kind of instruction, times how many there are."""
        count = np.bincount(self.alike.kind[self.alike.row], minlength=len(self.alike.kinds)).tolist()
        flops = read = written = 0
        for times, i in zip(count, self.alike.kinds, strict=True):
            work = i.work()
            flops += times * work.flops if work.macs else 0
            if isinstance(i, Dma):
                read += times * sum(v.nbytes for v in i.sources if v.memory is Memory.HBM)
                written += times * i.dst.nbytes if i.dst.memory is Memory.HBM else 0
        return flops, read, written

    def save(self, folder: str | Path, progress: Callable[[int, int], None] | None = None) -> Path:
        """Write the program and the hardware trace into a folder; returns it. `progress` is told work done and work in all."""
        from .trace.hardware import save

        place = path_of(folder, "save")
        require_tell(progress, "save")
        with without_collection():
            return save(self, place, progress)


def body_ticks(table: Table, timeline: Timeline) -> int:
    """From time zero to the end of the last instruction."""
    return int(step_ends(table, timeline).max(initial=0))


def _union(start: Ints, end: Ints) -> int:
    """How long at least one of the intervals lasts."""
    order = np.argsort(start, kind="stable")
    begin, reach = start[order], np.maximum.accumulate(end[order])
    return int(np.maximum(0, reach - np.maximum(begin, np.append(begin[:1], reach[:-1]))).sum())
