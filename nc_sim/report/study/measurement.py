"""What the studies share: the variants' records, what a profile of their dispatches says, tables, and saving."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from ...chip import Chip
from ...isa import Engine
from ...isa.errors import ProgramError
from ...notebook import Shown, frame
from ...progress import Tell, told
from ...runtime import Runtime
from ...runtime.events import HARDWARE
from ...runtime.framework import Dispatch, Framework
from ...trace import system
from ..text import table

PREDICTED = {
    "device_us": "core model",
    "hbm_read_bytes": "core model",
    "hbm_write_bytes": "core model",
    "nc_exec_running": "dispatch",
}
SET_BY_HOST_PROFILE = ["self_neuron_us less device_us", "self_cpu_us"]


@attrs.frozen(eq=False)
class Study(Shown):
    """Results by variant, and the runtime of each, whose trace can be saved. `facts` are the study's own, first in `summary`."""

    facts: Mapping[str, Any]
    variants: dict[str, dict[str, Any]]
    runtimes: dict[str, Runtime]
    published: Mapping[str, Any] | None = None
    predicted: Mapping[str, str] = attrs.field(factory=lambda: PREDICTED)

    def summary(self) -> dict[str, Any]:
        """Plain numbers, for `--json`."""
        rt = next(iter(self.runtimes.values()))
        return {
            **self.facts,
            "chip": rt.chip.name,
            "extrapolated": rt.chip.extrapolated or None,
            "host_profile": rt.profile.name,
            "variants": self.variants,
            "published": self.published,
            "predicted": dict(self.predicted),
            "set_by_host_profile": SET_BY_HOST_PROFILE,
        }

    def frame(self) -> Any:
        """A row for each variant as a pandas data frame; Unsupported without pandas."""
        return frame({"variant": k, **{n: x for n, x in v.items() if not isinstance(x, dict)}} for k, v in self.variants.items())

    def save(self, folder: Path, progress: Tell | None = None) -> dict[str, Path]:
        """The system trace of every variant, in a folder of its own; the folders by variant."""
        return {variant: system.save(rt, folder / variant) for variant, rt in told(list(self.runtimes.items()), progress, 1)}


def measure(f: Framework, first_dispatch: int = 0, first_event: int = 0) -> dict[str, Any]:
    """What a profile of the dispatches from `first_dispatch` on, and of the events with ids from `first_event` on, says."""
    rt, dispatches = f.rt, f.dispatches[first_dispatch:]
    running = [e for e in rt.trace.events if e.id >= first_event and e.name == "nc_exec_running"]
    # a physical core that a logical one does not use may say so
    busy = [e for e in running if e.source == HARDWARE and not e.attributes.get("idle")]
    instructions: dict[str, int] = {}
    read = written = 0
    for d in dispatches:
        assert d.model is not None
        for step in d.model.neff.compiled.steps:
            label = Engine(step.engine).label
            instructions[label] = instructions.get(label, 0) + 1
            for _, view, writes in step.instruction.views:
                if view.memory.name == "HBM":
                    read, written = (read, written + view.nbytes) if writes else (read + view.nbytes, written)
    return {
        "self_neuron_us": round(sum(d.self_neuron_ns for d in dispatches) / 1000, 3),
        "self_cpu_us": round(sum(d.cpu_ns for d in dispatches) / 1000, 3),
        "device_us": round(sum(e.duration_ns for e in busy) / 1000, 3),
        "dispatches": len(dispatches),
        "nc_exec_running": len(running),
        "hbm_read_bytes": read,
        "hbm_write_bytes": written,
        "instructions": dict(sorted(instructions.items())),
        "operators": _operators(dispatches),
    }


def _operators(dispatches: list[Dispatch]) -> dict[str, dict[str, float]]:
    out: dict[str, dict[str, float]] = {}
    total = sum(d.self_neuron_ns for d in dispatches)
    for d in dispatches:
        row = out.setdefault(d.name, {"calls": 0, "self_cpu_us": 0.0, "self_neuron_us": 0.0, "neuron_percent": 0.0})
        row["calls"] += 1
        row["self_cpu_us"] += d.cpu_ns / 1000
        row["self_neuron_us"] += d.self_neuron_ns / 1000
        row["neuron_percent"] = 100 * row["self_neuron_us"] * 1000 / total
    return {k: {n: round(v, 3) for n, v in row.items()} for k, row in sorted(out.items(), key=lambda r: -r[1]["self_neuron_us"])}


def operator_tables(variants: Mapping[str, Mapping[str, Any]], titles: Mapping[str, str]) -> list[str]:
    """A table by operator for each variant, as a profiler prints it."""
    lines: list[str] = []
    for name, v in variants.items():
        rows = [
            (op, f"{r['calls']:.0f}", f"{r['self_cpu_us']:.1f}", f"{r['self_neuron_us']:.1f}", f"{r['neuron_percent']:.1f} %")
            for op, r in v["operators"].items()
        ]
        lines += ["", titles[name], *table(("Name", "# Calls", "Self CPU us", "Self NEURON us", "% NEURON"), rows, indent="  ")]
    return lines


def require_room(where: str, chip: Chip, needed: int) -> None:
    """Before long work: ProgramError unless so many bytes fit into the HBM of a core."""
    room: int = chip.reader()("memory.hbm_bytes")
    if needed > room:
        raise ProgramError(where, f"tensors of at least {needed} bytes", f"at most {room}, the HBM of a core of {chip.name}")


def require_close(where: str, got: np.ndarray, wanted: np.ndarray, tolerance: float, floor: float) -> None:
    """ProgramError unless every element is within `tolerance` of the size of the wanted one, which is at least `floor`."""
    error = float((np.abs(got.astype(np.float64) - wanted) / np.maximum(np.abs(wanted), floor)).max())
    if not error <= tolerance:
        raise ProgramError(where, f"differs from its reference by {error:.3g} of its size", f"at most {tolerance:.3g}")
