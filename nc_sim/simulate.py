"""One program on one chip: build, check, lower, run, and keep the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from . import chip as chips
from . import core, race
from .allocate import allocate
from .arguments import listed, require_flag, require_tell, said
from .chip import Chip, Reader
from .collection import without_collection
from .control import check_room
from .costs import Costs, Options, with_costs
from .execution import MAX_ITERATIONS, executed
from .expand import Expanded, expand
from .explain import deadlock
from .isa import Engine, Step
from .isa.errors import Deadlock, InternalError, ProgramError, Race, Unsupported
from .lower import lower_with_costs
from .mechanisms import without as overrides_without
from .memory import Memories
from .numerics import Numerics, one_thread, replay
from .probe import Probe
from .program import Program, Tensor
from .progress import Tell, part
from .result import Result, body_ticks
from .sync import synchronise
from .table import Table
from .timeline import Timeline
from .validate import validate

PHASES = 16  # of the clock gate's window, for `phase_range`
ENGINES = ("auto", "simpy", "compiled")
# Thousandths of compiling, measured on the pipeline of docs/performance.md; the last is the table, made of what was lowered.
SHARES = {"expand": 130, "allocate": 30, "synchronise": 340, "validate": 80, "lower": 250, "table": 170}
MAX_DECISIONS = 1000  # runs until the control of an explicit program is that of its run; each settles one register load at least
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
    used: frozenset[str]  # chip numbers that this rests on: others change no more than costs
    loads: Mapping[int, int] = attrs.field(factory=dict)  # step that loads a register -> the value that control was decided with


@attrs.frozen(kw_only=True)
class Control:
    """What decides the control of a program with registers: values, and when to give up."""

    inputs: Mapping[str, np.ndarray] | None = None  # None: there are no values
    observed: Mapping[Engine, Sequence[int]] = attrs.field(factory=dict)  # what the register loads of each engine found in a run
    max_iterations: int = MAX_ITERATIONS


def compile_program(
    program: Program, chip: Chip, progress: Tell | None = None, control: Control | None = None
) -> tuple[Compiled, Reader]:  # fmt: skip
    """Expand, allocate, synchronise and validate; the reader knows which numbers of the chip this used.

    Of a program with registers the steps are those that it executes, in order: loops are run. `progress` is told
    thousandths of compiling: the stages by the share of time that each takes of a large program.
    """
    reader = chip.reader()
    expanded = expand(program, reader, _stage("expand", progress))
    addresses = allocate(expanded.steps, expanded.tensors, reader, expanded.loops)
    steps, names = expanded.steps, dict(program.semaphores)
    loads: Mapping[int, int] = {}
    if expanded.code:
        steps, loads = _run_control(expanded, addresses, reader, control or Control())
    if not expanded.explicit:
        synchronised = synchronise(steps, expanded.tensors, addresses, _stage("synchronise", progress))
        steps, names = synchronised.steps, synchronised.names
    validate(steps, expanded.tensors, addresses, reader, _stage("validate", progress))
    used = frozenset(reader.used)
    return Compiled(program.name, chip, steps, expanded.tensors, addresses, names, expanded.explicit, used, loads), reader


def _run_control(
    expanded: Expanded, addresses: Mapping[str, int], reader: Reader, control: Control
) -> tuple[tuple[Step, ...], Mapping[int, int]]:  # fmt: skip
    """The steps that a program with registers executes, and the register loads that decided so."""
    validate(expanded.steps, expanded.tensors, addresses, reader)
    check_room(expanded.steps, expanded.loops, reader)
    inputs = control.inputs
    memories = None if inputs is None else lambda: Memories(expanded.tensors, addresses, reader, inputs)
    ran = executed(expanded.code, expanded.tensors, control.max_iterations, memories, control.observed)
    return ran.steps, ran.loads


def _stage(name: str, progress: Tell | None) -> Tell | None:
    names = list(SHARES)
    begin = sum(SHARES[n] for n in names[: names.index(name)])
    return part(progress, begin, begin + SHARES[name], sum(SHARES.values()))


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
    max_iterations: int = MAX_ITERATIONS,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Run a program on a chip: values and time.

    `inputs` gives an array for every input tensor; without inputs and `values`, only time is computed. `what_if`
    overrides chip numbers by dotted name, `without` switches mechanisms off by name. `phase_range` also runs 16 phases
    of the clock gate. `races` is "error", "report" (kept in the result) or "ignore". `max_iterations` is how often the
    bodies of all loops together may run. `progress` is called now and then with work done and work in all: of compiling,
    in thousandths; of the engine; of each probe that sees a compiled run; of the check for races; and of the
    16 phases. A total that changes, or work done that falls, begins the next of them.

    `engine` is "simpy", "compiled" (needs Numba) or "auto": compiled for large programs where Numba is installed. Results
    are the same. Probes see a compiled run after it has ended, in the order in which they would see one of SimPy.

    Raises ProgramError (Race and Deadlock among them), ChipError, Unsupported or Unspecified, each naming the line.
    """
    require_engine(engine, "simulate")
    require_flag(values, "simulate values", maybe=True)
    require_flag(phase_range, "simulate phase_range")
    require_tell(progress, "simulate")
    probes = listed(probes, "simulate probes", "a list of probes")
    for probe in probes:
        if not all(callable(getattr(type(probe), hook, None)) for hook in ("started", "finished")):
            raise ProgramError("simulate probes", said(probe), "a list of probes")
    if not isinstance(races, str) or races not in ("error", "report", "ignore"):
        raise ProgramError("simulate", f"races={races!r}", "'error', 'report' or 'ignore'")
    if not isinstance(program, Program):
        raise ProgramError("simulate", f"{type(program).__name__} {program!r}"[:80], "a Program")
    phase = finite(gate_phase_ns, "gate_phase_ns")
    off = without if isinstance(without, str) or not isinstance(without, Iterable) else tuple(without)  # an iterator ends
    off = () if off is None else off
    data = chips.load(chip).what_if(overrides_without(off)).what_if({} if what_if is None else what_if)
    if inputs is not None and not isinstance(inputs, Mapping):
        raise ProgramError("simulate", f"inputs of type {type(inputs).__name__}", "a mapping of names to arrays")
    if isinstance(max_iterations, bool) or not isinstance(max_iterations, int) or max_iterations < 1:
        raise ProgramError("simulate", f"max_iterations={max_iterations!r}", "a whole number of at least 1")
    given = dict(inputs or {})
    wanted = _check_inputs(program.tensors, given, values)
    control = Control(inputs=given if wanted else None, max_iterations=max_iterations)
    compiled, used, table, costs, timeline, memories = _decided(program, data, control, Options(phase), probes, progress, engine)
    found: list[str] = []
    observed: list[str] = []
    if compiled.explicit and races != "ignore":
        try:
            observed = race.check(compiled.steps, compiled.tensors, compiled.addresses, table, timeline, compiled.semaphores, progress)
        except Race as e:
            if races == "error":
                raise
            found.append(str(e))
    spread = _phase_range(compiled, table, costs, engine, progress) if phase_range else None
    outputs = {} if memories is None else {t.name: memories.tensor(t) for t in compiled.tensors.values() if t.kind == "output"}
    return Result(
        program=program, compiled=compiled, table=table, costs=costs, timeline=timeline, outputs=outputs, used=tuple(sorted(used.used)),
        races=tuple(found), observed_semaphores=tuple(observed), phase_range_ns=spread, without=tuple(off),
        gate_phase_ns=float(gate_phase_ns),
    )  # fmt: skip


def _decided(
    program: Program, chip: Chip, control: Control, options: Options, probes: Sequence[Probe],
    progress: Tell | None, engine: str,
) -> tuple[Compiled, Reader, Table, Costs, Timeline, Memories | None]:  # fmt: skip
    """Compile and run a program, again if an explicit one loads registers with other values in time than control was decided with."""
    for _ in range(MAX_DECISIONS):
        with without_collection():
            compiled, used = compile_program(program, chip, progress, control)
            table, lowered, costs = lower_with_costs(compiled.steps, chip, options, compiled.semaphores, _stage("lower", progress))
            if progress is not None:
                progress(sum(SHARES.values()), sum(SHARES.values()))
        used.used.update(lowered.used)
        if control.inputs is None:
            return compiled, used, table, costs, run(table, compiled.steps, probes, progress, engine), None
        memories = Memories(compiled.tensors, compiled.addresses, used, control.inputs)
        values = Numerics(compiled.steps, table, memories, used("dma.partitions_per_engine"))
        at_once = not compiled.loads or not compiled.explicit  # else probes see only the run that counts
        try:
            with one_thread():
                timeline = run(table, compiled.steps, [*probes, values] if at_once else [values], progress, engine)
        except Deadlock:  # with other decisions the program may go on
            if (seen := _seen(compiled, _stuck(compiled, table, used, control.inputs))) is None:
                raise
        else:
            if (seen := _seen(compiled, values.loads)) is None:
                for probe in () if at_once else probes:
                    replay(table, timeline, probe, progress)
                return compiled, used, table, costs, timeline, memories
        control = attrs.evolve(control, observed=seen)
    raise Unsupported(program.name, f"control that is still another after {MAX_DECISIONS} runs", "loads whose order is certain")


def _seen(compiled: Compiled, loads: Mapping[int, int]) -> dict[Engine, list[int]] | None:
    """What the register loads of each engine found in a run, in the order of its queue; None if control was decided so."""
    if all(loads.get(k, value) == value for k, value in compiled.loads.items()):
        return None
    if not compiled.explicit:
        raise InternalError("simulate", "an automatic program loads other values in time than in program order", "the same")
    out: dict[Engine, list[int]] = {}
    for k in sorted(loads):
        out.setdefault(compiled.steps[k].engine, []).append(loads[k])
    return out


def _stuck(compiled: Compiled, table: Table, used: Reader, inputs: Mapping[str, np.ndarray]) -> Mapping[int, int]:
    """The register loads of a run that deadlocks."""
    memories = Memories(compiled.tensors, compiled.addresses, used, inputs)
    values = Numerics(compiled.steps, table, memories, used("dma.partitions_per_engine"))
    with suppress(Deadlock):
        core.run(table, [values])
    return values.loads


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


def require_engine(engine: str, where: str) -> None:
    """ProgramError unless the engine is one of ENGINES."""
    if not isinstance(engine, str) or engine not in ENGINES:
        raise ProgramError(where, f"engine={engine!r}", f"one of {', '.join(ENGINES)}")


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


def _phase_range(compiled: Compiled, table: Table, costs: Costs, engine: str, progress: Tell | None = None) -> tuple[float, float]:
    """Shortest and longest body over the phases of the clock gate's window, ns."""
    chip = costs.chip
    reader = chip.reader()
    windows = reader("tensor.gate.kind") == "windows"  # nothing else has a phase
    window = Fraction(reader("tensor.gate.window_cycles") * 1000, reader("clock.sync_mhz")) if windows else Fraction(0)
    lengths = []
    phases = PHASES if windows else 1
    for k in range(phases):
        shifted = with_costs(table, costs, chip, Options(window * k / PHASES))
        assert shifted is not None  # the chip is the same
        lengths.append(chip.ns(body_ticks(shifted[0], run(shifted[0], compiled.steps, engine=engine))))
        if progress is not None:
            progress(k + 1, phases)
    return min(lengths), max(lengths)
