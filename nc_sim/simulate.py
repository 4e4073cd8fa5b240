"""One program on one chip: build, check, lower, run, and keep the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from . import chip as chips
from . import core, race
from .allocate import allocate
from .chip import Chip, Reader
from .collection import without_collection
from .expand import expand
from .explain import deadlock
from .isa import Step
from .isa.errors import Deadlock, ProgramError, Race, Unsupported
from .lower import Options, lower
from .mechanisms import without as overrides_without
from .memory import Memories
from .numerics import Numerics, replay
from .probe import Probe
from .program import Program, Tensor
from .result import Result, body_ticks
from .sync import synchronise
from .table import Table
from .timeline import Timeline
from .validate import validate

PHASES = 16  # of the clock gate's window, for `phase_range`
ENGINES = ("auto", "simpy", "compiled")
AUTO_FROM = 200_000  # rows plus packets from which loading the compiled engine (about 0.3 s) pays


@attrs.frozen(eq=False)
class Compiled:
    """A program made ready for one chip."""

    name: str
    chip: Chip
    steps: tuple[Step, ...]
    tensors: Mapping[str, Tensor]
    addresses: Mapping[str, int]
    semaphores: Mapping[int, str]
    explicit: bool


def compile_program(program: Program, chip: Chip) -> tuple[Compiled, Reader]:
    """Expand, allocate, synchronise and validate; the reader knows which numbers of the chip this used."""
    reader = chip.reader()
    expanded = expand(program, reader)
    addresses = allocate(expanded.steps, expanded.tensors, reader)
    steps, names = expanded.steps, dict(program.semaphores)
    if not expanded.explicit:
        synchronised = synchronise(steps, expanded.tensors, addresses)
        steps, names = synchronised.steps, synchronised.names
    validate(steps, expanded.tensors, addresses, reader)
    return Compiled(program.name, chip, steps, expanded.tensors, addresses, names, expanded.explicit), reader


def simulate(
    program: Program,
    chip: str | Path | Chip = "trn2",
    inputs: Mapping[str, np.ndarray] | None = None,
    *,
    engine: str = "auto",
    values: bool | None = None,
    what_if: Mapping[str, Any] | None = None,
    without: Iterable[str] | None = (),
    gate_phase_ns: float = 0,
    phase_range: bool = False,
    races: str = "error",
    probes: Sequence[Probe] = (),
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Run a program on a chip: values and time.

    `inputs` gives an array for every input tensor; without inputs and `values`, only time is computed. `what_if`
    overrides chip numbers by dotted name, `without` switches mechanisms off by name. `phase_range` also runs 16 phases
    of the clock gate. `races` is "error", "report" (kept in the result) or "ignore". `progress` is called now and then
    with work done and work in all, first of the engine, then of each probe that sees a compiled run.

    `engine` is "simpy", "compiled" (needs Numba) or "auto": compiled for large programs where Numba is installed. Results
    are the same. Probes see a compiled run after it has ended, in the order in which they would see one of SimPy.

    Raises ProgramError (Race and Deadlock among them), ChipError, Unsupported or Unspecified, each naming the line.
    """
    if engine not in ENGINES:
        raise ProgramError("simulate", f"engine={engine!r}", f"one of {', '.join(ENGINES)}")
    if races not in ("error", "report", "ignore"):
        raise ProgramError("simulate", f"races={races!r}", "'error', 'report' or 'ignore'")
    if not isinstance(program, Program):
        raise ProgramError("simulate", f"{type(program).__name__} {program!r}"[:80], "a Program")
    phase = finite(gate_phase_ns, "gate_phase_ns")
    data = chips.load(chip).what_if(overrides_without(without or ())).what_if(what_if or {})
    if inputs is not None and not isinstance(inputs, Mapping):
        raise ProgramError("simulate", f"inputs of type {type(inputs).__name__}", "a mapping of names to arrays")
    given = dict(inputs or {})
    with without_collection():
        compiled, used = compile_program(program, data)
        wanted = _check_inputs(compiled.tensors, given, values)
        table, lowered = lower(compiled.steps, data, Options(phase), compiled.semaphores)
    used.used.update(lowered.used)
    memories = Memories(compiled.tensors, compiled.addresses, used, given) if wanted else None
    watching = list(probes)
    if memories is not None:
        watching.append(Numerics(compiled.steps, table, memories, used("dma.partitions_per_engine")))
    timeline = run(table, compiled.steps, watching, progress, engine)
    found: list[str] = []
    observed: list[str] = []
    if compiled.explicit and races != "ignore":
        try:
            observed = race.check(compiled.steps, compiled.tensors, compiled.addresses, table, timeline, compiled.semaphores)
        except Race as e:
            if races == "error":
                raise
            found.append(str(e))
    spread = _phase_range(compiled, data, engine) if phase_range else None
    outputs = {} if memories is None else {t.name: memories.tensor(t) for t in compiled.tensors.values() if t.kind == "output"}
    return Result(
        program=program, compiled=compiled, table=table, timeline=timeline, outputs=outputs, used=tuple(sorted(used.used)),
        races=tuple(found), observed_semaphores=tuple(observed), phase_range_ns=spread, without=tuple(without or ()),
        gate_phase_ns=float(gate_phase_ns),
    )  # fmt: skip


def run(
    table: Table, steps: Sequence[Step], probes: Sequence[Probe] = (), progress: Callable[[int, int], None] | None = None,
    engine: str = "auto",
) -> Timeline:  # fmt: skip
    """Run a table on an engine; a deadlock is told in the program's words."""
    timeline = None
    try:
        if engine == "compiled" or (engine == "auto" and table.size >= AUTO_FROM):
            from . import fast  # loads Numba

            try:
                with without_collection():
                    timeline = fast.run(table, progress)
            except Unsupported:  # no Numba, or too large for 64 bits
                if engine == "compiled":
                    raise
        if timeline is None:
            return core.run(table, probes, progress=progress)
    except Deadlock as e:
        raise deadlock(e, table, steps) from None
    for probe in probes:
        replay(table, timeline, probe, progress)
    return timeline


def finite(value: float | Fraction, name: str) -> Fraction:
    """A time in ns that a user gave, exact."""
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction | np.number) or not math.isfinite(value):
        raise ProgramError("simulate", f"{name}={value!r}", "a finite number of ns")
    return value if isinstance(value, Fraction) else Fraction(float(value))


def _check_inputs(tensors: Mapping[str, Tensor], given: Mapping[str, np.ndarray], values: bool | None) -> bool:
    needed = [t.name for t in tensors.values() if t.kind == "input"]
    for name in given:
        if name not in needed:
            raise ProgramError("simulate", f"an input {name!r}", f"one of {', '.join(needed) or 'none: the program has no inputs'}")
    wanted = values if values is not None else bool(given) or not needed
    if wanted:
        for name in needed:
            if given.get(name) is None:
                raise ProgramError("simulate", f"no array for input {name!r}", "one for every input, or values=False for time only")
    return wanted


def _phase_range(compiled: Compiled, chip: Chip, engine: str) -> tuple[float, float]:
    """Shortest and longest body over the phases of the clock gate's window, ns."""
    reader = chip.reader()
    windows = reader("tensor.gate.kind") == "windows"  # nothing else has a phase
    window = Fraction(reader("tensor.gate.window_cycles") * 1000, reader("clock.sync_mhz")) if windows else Fraction(0)
    lengths = []
    for k in range(PHASES if windows else 1):
        table, _ = lower(compiled.steps, chip, Options(window * k / PHASES), compiled.semaphores)
        lengths.append(chip.ns(body_ticks(table, run(table, compiled.steps, engine=engine))))
    return min(lengths), max(lengths)
