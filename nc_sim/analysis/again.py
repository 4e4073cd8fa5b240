"""A run once more: with other chip numbers, or from the folder it was saved in."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from ..chip import Chip, Number
from ..costs import Options, with_costs
from ..execution import DependsOnData
from ..isa.errors import ChipError, ProgramError, Unsupported
from ..lower import lower_with_costs
from ..progress import Tell
from ..result import Result
from ..schema import SCHEMA
from ..simulate import run, simulate
from ..trace import hardware
from ..trace.stored import map_of


def again(result: Result, what_if: Mapping[str, Any], engine: str = "auto") -> Result:
    """The run with chip numbers replaced, timing only. Errors as those of `simulate`.

    Where the compiled program does not rest on one of them, only costs are looked up anew: the steps, their addresses and
    semaphores stay, the rows of the table too where they do not rest on it, and so does the result but for its times.
    """
    chip = result.chip.what_if(what_if)
    lacking = any(result.chip.numbers[k].value is None for k in what_if)
    if lacking or result.compiled.used & set(what_if):
        found = simulate(
            result.program, chip, values=False, gate_phase_ns=result.gate_phase_ns, races="ignore", engine=engine,
            max_iterations=_iterations(len(result.steps)),
        )  # fmt: skip
        return attrs.evolve(found, without=result.without)
    compiled = attrs.evolve(result.compiled, chip=chip)
    options, costs = Options(Fraction(result.gate_phase_ns)), result.costs
    if (changed := with_costs(result.table, costs, chip, options)) is not None:
        table, reader = changed
    else:
        table, reader, costs = lower_with_costs(compiled.steps, chip, options, compiled.semaphores)
    timeline = run(table, compiled.steps, engine=engine)
    used = tuple(sorted(compiled.used | reader.used))
    return attrs.evolve(result, compiled=compiled, table=table, costs=costs, timeline=timeline, outputs={}, used=used, phase_range_ns=None)


def saved(folder: str | Path, engine: str = "auto", progress: Tell | None = None) -> Result:
    """The run that `Result.save` wrote into a folder, simulated once more, timing only, on the chip numbers kept beside it.

    `progress` is told how much of the program is read, then as `simulate` tells. ProgramError if the run does not give the
    saved times: another version of nc-sim made them.
    """
    trace = hardware.load(folder)
    program = trace.program(progress)
    assert trace.path is not None
    where = trace.path.parent / f"neff_{trace.hash}{hardware.PROGRAM_SUFFIX}"
    meta = trace.metadata
    raw = map_of(where.read_bytes(), str(where), hardware.PROGRAM_FORMAT, hardware.PROGRAM_VERSION).get("chip")
    chip = attrs.evolve(_chip(raw, str(where)), extrapolated=meta.get("extrapolated", ""))
    try:
        found = simulate(
            program, chip, values=False, gate_phase_ns=meta["gate_phase_ns"], races="ignore", engine=engine, progress=progress,
            max_iterations=_iterations(len(trace.instructions)),
        )  # fmt: skip
    except DependsOnData as e:
        found_there = f"{e.found}, and a saved run keeps no inputs"
        raise Unsupported(
            e.where, found_there, "the Result of simulate(program, inputs=...): explain(result) and the rest take it"
        ) from None
    start, kept = found.timeline.start[found.table.start_row], trace.instructions.start.ticks
    if not np.array_equal(start, kept):
        version = f"{meta['tool']} {meta['tool_version']}"
        raise ProgramError(
            str(trace.path), f"other times than this nc-sim finds, by {version}", "a run that this version made: run it again"
        )
    return attrs.evolve(found, without=tuple(meta["without"]))


def _iterations(instructions: int) -> int:
    """As many as a run that has ended can have made: each executes a branch at least."""
    return max(1, instructions)


def _chip(raw: Any, where: str) -> Chip:
    """The chip as a program file keeps it: every number, overrides applied. Whether it is extrapolated, the trace says."""
    got = raw if isinstance(raw, dict) else {}
    numbers, overrides = got.get("numbers"), got.get("overrides")
    if not isinstance(numbers, dict) or not isinstance(overrides, dict) or not isinstance(got.get("sources"), dict):
        raise ProgramError(f"{where} chip", f"{raw!r:.80}", "name, core, sources, numbers and overrides")
    if set(numbers) != set(SCHEMA):
        other = sorted(set(numbers) ^ set(SCHEMA))
        raise ChipError(f"{where} chip", f"{other[0]!r} on one side only", "the chip numbers of this version: run it again")
    out = {}
    for key, number in numbers.items():
        if not isinstance(number, list) or len(number) != 3:
            raise ChipError(f"{where} chip {key}", f"{number!r:.80}", "value, status and source")
        value, status, source = number
        out[key] = Number(None if value is None else SCHEMA[key].convert(value, f"{where} chip {key}"), str(status), str(source))
    return Chip(str(got.get("name")), str(got.get("core")), out, got["sources"], overrides)
