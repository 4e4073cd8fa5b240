"""The command line: run, replay, accuracy, chips, disasm, view, check, study; those of `report/commands.py`."""

from __future__ import annotations

if __name__ == "__main__":  # python -m nc_sim: this module once more, by its name, with Ctrl-C looked after while it is read
    import sys

    from .entry import main as start

    start()
    sys.exit()

import importlib.util
import inspect
import json
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import click
import numpy as np

from . import __version__, chip, workloads
from .entry import INTERRUPTED, leave
from .execution import MAX_ITERATIONS
from .files import require_place
from .isa.errors import NcSimError, ProgramError
from .mechanisms import MECHANISMS
from .mechanisms import without as overrides_without
from .profile import FORMATS
from .program import Program
from .progress import shown
from .replay import replay as run_replay
from .report import commands, text
from .result import Result
from .simulate import ENGINES, simulate

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class _Group(click.Group):
    """One clear error instead of a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _interruptible():
                return super().invoke(ctx)
        except NcSimError as e:
            click.secho(f"error: {e}", fg="red", err=True)
            ctx.exit(1)
        except BrokenPipeError:  # whoever read the output has enough of it
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # for Python's own flush at its end
            ctx.exit(0)
        except OSError as e:
            click.secho(f"error: {e.filename or 'output'}: {e.strerror}", fg="red", err=True)
            ctx.exit(1)
        except MemoryError:
            click.secho("error: memory: this machine has not enough of it; smaller sizes, or a larger machine", fg="red", err=True)
            ctx.exit(1)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C ends the command; pressed again within a second it does not break the removal of unfinished files."""
    last = float("-inf")

    def interrupt(number: int, frame: Any) -> None:
        nonlocal last
        if time.monotonic() - last > 1:
            last = time.monotonic()
            raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before not in (signal.default_int_handler, leave):
        yield
        return
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="nc-sim")
def main() -> None:
    """A cycle-approximate NeuronCore simulator: values, time and traces."""


def _tried(write: Callable[[], T]) -> tuple[T | None, Exception | None]:
    """What was written, or why not: a full disk is an error only after what was computed is printed."""
    try:
        return write(), None
    except (NcSimError, OSError) as e:
        return None, e


def _width() -> int:
    """Columns of a timeline: the terminal's, within what can be read."""
    from rich.console import Console

    return max(40, min(Console().width, 120))


def _shared(f: F) -> F:
    """Options of every command that simulates."""
    for option in (
        click.option("--chip", "chip_name", default="trn2", show_default=True, help="a chip's name, or the path of a chip file"),
        click.option("--what-if", multiple=True, metavar="NAME=VALUE", help="override a chip number; may be repeated"),
        click.option("--without", multiple=True, metavar="MECHANISM", help=f"switch a mechanism off: {', '.join(MECHANISMS)}"),
        click.option("--json", "as_json", is_flag=True, help="print JSON"),
    ):
        f = option(f)
    return f


@main.command()
@click.argument("program")
@_shared
@click.option("--size", "sizes", multiple=True, metavar="NAME=VALUE", help="a size of the workload; may be repeated")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="of the workload's inputs")
@click.option("--out", type=commands.FOLDER, help="folder for the trace  [default: out/NAME, of the last run alone]")
@click.option("--timing-only", is_flag=True, help="no values")
@click.option("--phase-range", is_flag=True, help="also run 16 phases of the clock gate")
@click.option("--races", type=click.Choice(["error", "report", "ignore"]), default="error", show_default=True)
@click.option("--engine", type=click.Choice(ENGINES), default="auto", show_default=True, help="results are the same")
@click.option("--max-iterations", default=MAX_ITERATIONS, show_default=True, type=click.IntRange(1), help="of all loops together")
@click.option("--width", type=click.IntRange(40), help="columns of the timeline  [default: the terminal's]")
def run(
    program: str, chip_name: str, what_if: tuple[str, ...], without: tuple[str, ...], as_json: bool, sizes: tuple[str, ...],
    seed: int, out: Path | None, timing_only: bool, phase_range: bool, races: str, engine: str, max_iterations: int, width: int | None,
) -> None:  # fmt: skip
    """Run a workload by name, a Python file with build(), or a saved program.

    Values are checked against the workload's own reference; the trace is written and named.
    """
    from .trace import hardware

    source, built = _built(program, _pairs(sizes, "--size"))
    place = out or Path("out") / built.name
    require_place(place / "trace")
    inputs = None
    if not timing_only and source is not None and hasattr(source, "inputs"):
        with _user_code(Path(program), "inputs(program, seed)"):
            inputs = source.inputs(built, seed)
        if not isinstance(inputs, Mapping):
            raise ProgramError(f"{program} inputs()", f"returned {type(inputs).__name__}", "a mapping of input names to arrays")
    with shown("compiling", "simulating") as tell:
        result = simulate(
            built, chip_name, inputs, values=False if timing_only or (inputs is None and source is None) else None,
            what_if=_overrides(what_if), without=without, phase_range=phase_range, races=races, engine=engine,
            max_iterations=max_iterations, progress=tell,
        )  # fmt: skip
    # a program without inputs has values all the same
    computed = inputs is not None or bool(result.outputs)
    checked, wrong = _tried(lambda: _check_values(source, inputs or {}, result)) if computed and not timing_only else ({}, None)
    unchecked = not computed and not timing_only and hasattr(source, "reference")
    with shown("saving") as tell:
        # the default folder is that of the last run of this name; a folder of the user's keeps what is in it
        save = hardware.save if out is not None else hardware.save_alone
        folder, failed = _tried(lambda: save(result, place, tell))
    if as_json:
        found = {**result.summary(), "values": checked, "trace": None if folder is None else str(folder)}
        click.echo(json.dumps(found, indent=2))
    else:
        from .trace.text import timeline

        click.echo(text.summary(result))
        for name, error in (checked or {}).items():
            said = "is not in reference(): not checked" if error is None else f"agrees with its reference: largest error {error:.3g}"
            click.echo(f"  values     {name} {said}")
        if unchecked:
            click.echo("  values     reference() was not asked: there is no inputs()")
        click.echo("")
        click.echo(timeline(result, width=width or _width()))
        if folder is not None:
            click.echo(f"\ntrace: {folder}")
    for problem in (wrong, failed):
        if problem is not None:
            raise problem


@main.command()
@click.argument("trace", type=commands.PATH)
@_shared
@click.option("--dma-from-trace", is_flag=True, help="take every DMA's latency from the packets beside the trace")
@click.option("--gate-phase", type=float, metavar="NS", help="a clock-gate edge, from the release of Sync")
@click.option("--engine", type=click.Choice(ENGINES), default="auto", show_default=True, help="results are the same")
@click.option("--core", type=click.IntRange(0), help="of a JSON export in which several cores run a kernel")
@click.option("--perfetto", "pftrace", type=commands.PATH, metavar="FILE", help="also write both timelines for the viewer")
@click.option("--picture", type=commands.PATH, metavar="FILE", help="also draw them, as .svg or .png")
@click.option("--from-us", type=float, metavar="T", help="where the picture begins  [default: with the body]")
@click.option("--to-us", type=float, metavar="T", help="where the picture ends  [default: with the body]")
def replay(
    trace: Path, chip_name: str, what_if: tuple[str, ...], without: tuple[str, ...], as_json: bool, dma_from_trace: bool,
    gate_phase: float | None, engine: str, core: int | None, pftrace: Path | None, picture: Path | None,
    from_us: float | None, to_us: float | None,
) -> None:  # fmt: skip
    """Simulate the instruction stream of a hardware profile; compare with its measurement.

    TRACE is NAME.instr.csv, or what the public profiler writes with --output-format json.
    """
    from .report import picture as pictures
    from .report import replayed

    if picture is not None:
        pictures.require(picture)
    elif from_us is not None or to_us is not None:
        raise ProgramError("--from-us, --to-us", "no picture", "--picture FILE")
    with shown("replaying") as tell:
        result = run_replay(
            trace, chip_name, dma_from_trace=dma_from_trace, without=without, what_if=_overrides(what_if), gate_phase_ns=gate_phase,
            engine=engine, core=core, progress=tell,
        )  # fmt: skip
    made = {}
    if pftrace is not None:
        with shown("writing") as tell:
            made["perfetto"] = str(replayed.save(result, pftrace, progress=tell))
    if picture is not None:
        with shown("drawing") as tell:
            made["picture"] = str(replayed.draw(result, picture, from_us=from_us, to_us=to_us, progress=tell))
    if as_json:
        click.echo(json.dumps({**result.summary(), **made}, indent=2))
    else:
        click.echo("\n".join([text.comparison(result), *(f"{what}: {path}" for what, path in made.items())]))


@main.group()
def accuracy() -> None:
    """Compare with published measurements."""


@accuracy.command()
@_shared
@click.option("--worst", default=10, show_default=True, type=click.IntRange(0), metavar="N", help="also list the N entries furthest off")
@click.option("--data", type=commands.PATH, metavar="FILE", help="measurements  [default: those that ship for the chip]")
def instructions(chip_name: str, what_if: tuple[str, ...], without: tuple[str, ...], as_json: bool, worst: int, data: Path | None) -> None:
    """Simulate every published single instruction, packet and delay; compare with its measurement."""
    from .accuracy import compare, entries
    from .report.accuracy import comparison

    loaded = chip.load(chip_name)
    measurements = entries.load(loaded.name) if data is None else entries.read(data)
    changed = loaded.what_if(overrides_without(without)).what_if(_overrides(what_if))
    with shown("comparing") as tell:
        compared = compare.compare(measurements, changed, tell)
    click.echo(json.dumps(compare.summary(compared, changed), indent=2) if as_json else comparison(compared, changed, worst))


@accuracy.command()
@click.option("--chip", "chip_name", help="kernels of one chip  [default: of all]")
@click.option("--kernel", "only", multiple=True, metavar="ID", help="one kernel; may be repeated  [default: all]")
@click.option("--what-if", multiple=True, metavar="NAME=VALUE", help="override a chip number; may be repeated")
@click.option("--without", multiple=True, metavar="MECHANISM", help="switch a mechanism off")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def kernels(chip_name: str | None, only: tuple[str, ...], what_if: tuple[str, ...], without: tuple[str, ...], as_json: bool) -> None:
    """Simulate whole kernels that others measured, from their description; compare, with what makes the difference."""
    from .accuracy import kernels as measured
    from .report.kernels import comparison

    data = measured.load()
    known = sorted({k.chip for k in data.kernels})
    if chip_name is not None and chip_name not in known:
        raise ProgramError("accuracy", f"no kernels of {chip_name!r}", f"one of {', '.join(known)}")
    chosen = [k for k in data.kernels if chip_name in (None, k.chip)]
    for wanted in only:
        if wanted not in [k.id for k in chosen]:
            raise ProgramError("accuracy --kernel", repr(wanted), f"one of {', '.join(k.id for k in chosen)}")
    changes = {**overrides_without(without), **_overrides(what_if)}
    with shown("simulating") as tell:
        predicted = measured.predict([k for k in chosen if not only or k.id in only], None, changes, tell)
    click.echo(json.dumps(measured.summary(predicted, changes), indent=2) if as_json else comparison(predicted, changes))


@main.command()
@click.argument("name", required=False)
@click.option("--diff", nargs=2, metavar="A B", help="numbers in which two chips differ")
@click.option("--prefix", default="", help="only names that start so, for instance dma.")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def chips(name: str | None, diff: tuple[str, str] | None, prefix: str, as_json: bool) -> None:
    """List the chips, or one chip's numbers with how each is known and where from."""
    if diff:
        commands.refuse("NAME", name is not None, "--diff beside it", "one of them")
        a, b = map(chip.load, diff)
        click.echo(json.dumps(text.differences(a, b, prefix), indent=2) if as_json else text.difference(a, b, prefix))
        return
    if name is None:
        commands.refuse("--prefix", bool(prefix), "no chip", "NAME, or --diff A B")
        rows = [
            (c.name, c.core, str(len(c.numbers)), _statuses(c) + ("; extrapolated" if c.extrapolated else ""))
            for c in map(chip.load, chip.names())
        ]
        click.echo(json.dumps([r[0] for r in rows]) if as_json else "\n".join(text.table(("chip", "core", "numbers", "of which"), rows)))
        return
    data = chip.load(name)
    if not any(k.startswith(prefix) for k in data.numbers):
        groups = dict.fromkeys(k.split(".")[0] + "." for k in data.numbers)
        raise ProgramError("chips --prefix", repr(prefix), f"how names begin: {', '.join(groups)}")
    if as_json:
        numbers = {
            k: {"value": None if n.value is None else text.value(n.value), "status": n.status, "source": n.source}
            for k, n in data.numbers.items()
            if k.startswith(prefix)
        }
        click.echo(
            json.dumps(
                {
                    "name": data.name,
                    "core": data.core,
                    "extrapolated": data.extrapolated or None,
                    "sources": dict(data.sources),
                    "numbers": numbers,
                },
                indent=2,
            )
        )
    else:
        click.echo(text.chip(data, prefix))


def _statuses(data: chip.Chip) -> str:
    counts = {s: sum(n.status == s for n in data.numbers.values()) for s in chip.STATUSES}
    return ", ".join(f"{n} {s}" for s, n in counts.items() if n)


@main.command()
@click.argument("program")
@click.option("--chip", "chip_name", default="trn2", show_default=True)
@click.option("--machine", is_flag=True, help="machine instructions with semaphores and addresses, by queue")
def disasm(program: str, chip_name: str, machine: bool) -> None:
    """Print a workload, a Python file's program or a saved one as text; the text can be run again."""
    from .forms import program_to_text
    from .simulate import compile_program

    commands.refuse("--chip", commands.given("chip_name") and not machine, "calls, which are of no chip", "--machine")
    _, built = _built(program, {})
    if not machine:
        click.echo(program_to_text(built), nl=False)
        return
    from .trace.operands import listing

    with shown("compiling") as tell:
        compiled, _ = compile_program(built, chip.load(chip_name), tell)
    click.echo(listing(compiled), nl=False)


@main.command()
@click.argument("trace", type=commands.PATH)
@click.option("--instructions", default=0, metavar="N", type=click.IntRange(0), help="also list the first N instructions")
@click.option("--width", type=click.IntRange(40), help="columns of the timeline  [default: the terminal's]")
@click.option("--output-format", "form", type=click.Choice(FORMATS), default="text", show_default=True, help="what to show or write")
@click.option("--output-file", "place", type=commands.PATH, metavar="PATH", help="where to; a folder for parquet")
@click.option("--perfetto", "pftrace", type=commands.PATH, metavar="FILE", help="also write a file for the Perfetto viewer")
@click.option("--picture", type=commands.PATH, metavar="FILE", help="also draw what the viewer would show, as .svg or .png")
@click.option("--from-us", type=float, metavar="T", help="where the picture begins  [default: with the trace]")
@click.option("--to-us", type=float, metavar="T", help="where the picture ends  [default: with the trace]")
def view(
    trace: Path,
    instructions: int,
    width: int | None,
    form: str,
    place: Path | None,
    pftrace: Path | None,
    picture: Path | None,
    from_us: float | None,
    to_us: float | None,
) -> None:
    """Show a saved hardware trace as a text timeline, or write it in a published form.

    A system trace needs another --output-format than text, --perfetto or --picture; a .pftrace file --picture. The tables and
    the summaries are also those of a hardware profile: NAME.instr.csv, or a JSON export of the public profiler.
    """
    from .profile import export, output
    from .report import picture as pictures
    from .report import viewer
    from .report.compare import is_profile
    from .trace import foreign, hardware, perfetto, system
    from .trace import text as trace_text
    from .trace.pftrace import SUFFIX

    commands.no_workload(trace)
    if form != "text":
        if instructions or pftrace is not None or picture is not None:
            raise ProgramError("--instructions, --perfetto, --picture", f"--output-format {form} beside it", "--output-format text")
        shape = width is not None or from_us is not None or to_us is not None
        commands.refuse("--width, --from-us, --to-us", shape, f"--output-format {form} beside it", "--output-format text")
        with shown("writing") as tell:
            written = output.write(trace, form, place, tell)
        click.echo(written)
        return
    if picture is not None:
        pictures.require(picture)
    elif from_us is not None or to_us is not None:
        raise ProgramError("--from-us, --to-us", "no picture", "--picture FILE")
    loaded: Any
    lines: list[str] = []
    if trace.suffix == SUFFIX and not trace.is_dir():
        if picture is None or pftrace is not None:
            raise ProgramError(str(trace), "a Perfetto file", "--picture FILE, without --perfetto")
        loaded = trace
    elif system.is_saved(trace) and (pftrace is not None or picture is not None):
        loaded = system.load(trace)
    elif system.is_saved(trace) and not any(trace.glob("*.ntff.msgpack")):
        raise ProgramError(str(trace), "a system trace", "--perfetto FILE, --picture FILE, or the path of a hardware trace beside it")
    else:
        commands.of_run(trace)
        if trace.is_file() and is_profile(trace):
            other = "a saved run, or for a profile of hardware --output-format parquet, summary-json or summary-text"
            raise ProgramError(str(trace), foreign.told_of(trace) or "a CSV file", other)
        with shown("reading") as tell:
            loaded = hardware.load(trace, tell)
        lines = [trace_text.timeline(loaded, width=width or _width())]
        lines += ["", trace_text.table(loaded, instructions)] if instructions else []
    made = []
    if pftrace is not None:
        with shown("writing") as tell:
            made.append(f"perfetto: {perfetto.save(loaded, pftrace, progress=tell)}")
    if picture is not None:
        with shown("drawing") as tell:
            made.append(f"picture: {viewer.draw(pftrace or loaded, picture, from_us=from_us, to_us=to_us, progress=tell)}")
    if place is not None and not lines:
        raise ProgramError("--output-file", "no text to write", "a hardware trace, or another --output-format")
    if place is not None:
        lines, made = [], [f"text: {export.save_text(chr(10).join([*lines, '']), place)}", *made]
    click.echo("\n".join([*lines, *([""] if lines and made else []), *made]))


@main.command()
@click.argument("program")
@_shared
def check(program: str, chip_name: str, what_if: tuple[str, ...], without: tuple[str, ...], as_json: bool) -> None:
    """Check a program without keeping anything: operands, capacity, initialised reads, deadlocks, races."""
    _, built = _built(program, {})
    with shown("compiling", "checking") as tell:
        result = simulate(built, chip_name, values=False, what_if=_overrides(what_if), without=without, progress=tell)
    report = {
        "program": built.name,
        "chip": result.chip.name,
        "extrapolated": result.chip.extrapolated or None,
        "explicit": built.explicit,
        "instructions": len(result.steps),
        "observed_semaphores": list(result.observed_semaphores),
    }
    if as_json:
        click.echo(json.dumps(report, indent=2))
        return
    how = "semaphores given" if built.explicit else "semaphores inserted"
    click.echo(f"{built.name}: {len(result.steps)} instructions on {result.chip.name}, {how}; no error, no race, no deadlock")
    for line in text.extrapolated(result.chip.extrapolated, "  "):
        click.echo(line)
    for name in result.observed_semaphores:
        click.echo(f"  order by {name} holds for the observed run only: it is subtracted from or set")


@main.command()
@click.argument("name", type=click.Choice(["rmsnorm", "transformer"]))
@click.option("--shape", metavar="ROWS,COLS", help="of the activations  [default: 4,512; of a transformer 128,256]")
@click.option("--heads", type=click.IntRange(1), help="of a transformer  [default: 4]")
@click.option("--ff", type=click.IntRange(1), help="width of a transformer's MLP  [default: twice the columns]")
@click.option("--layers", type=click.IntRange(1), help="of a transformer  [default: 1]")
@click.option("--chip", "chip_name", default="trn2", show_default=True)
@click.option("--host-profile", default="blog", show_default=True, help="a profile's name, or the path of a profile file")
@click.option("--in-flight", default=1, show_default=True, type=click.IntRange(1), help="dispatches outstanding at most")
@click.option("--lnc", default="1", show_default=True, type=click.Choice(["1", "2"]), help="physical cores of a logical one")
@click.option("--sweep", is_flag=True, help="rmsnorm over rows and columns instead of one shape")
@click.option("--out", type=commands.FOLDER, help="folder for the system trace of each variant")
@click.option("--picture", type=commands.PATH, metavar="FILE", help="also draw the sweep, or a transformer, as .svg or .png")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def study(
    name: str, shape: str | None, heads: int | None, ff: int | None, layers: int | None, chip_name: str, host_profile: str,
    in_flight: int, lnc: str, sweep: bool, out: Path | None, picture: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Compare eager, fused and compiled dispatch of one computation, beside published measurements."""
    from .report import picture as pictures
    from .report.study import rmsnorm, transformer

    options: dict[str, Any] = {"chip": chip_name, "host_profile": host_profile, "in_flight": in_flight, "lnc": int(lnc)}
    block = name == "transformer"
    for option, given in {"--heads": heads, "--ff": ff, "--layers": layers}.items():
        if given is not None and not block:
            raise ProgramError(option, "study rmsnorm", "study transformer")
    if sweep and block:
        raise ProgramError("--sweep", "study transformer", "study rmsnorm")
    if sweep and shape is not None:
        raise ProgramError("--shape", "--sweep beside it", "one of them, as a sweep has shapes of its own")
    if sweep and out is not None:
        raise ProgramError("--out", "--sweep beside it", "one shape, as a sweep keeps no traces")
    if picture is not None and not (sweep or block):
        raise ProgramError("--picture", "one shape", "--sweep")
    rows, cols = _shape(("128,256" if block else "4,512") if shape is None else shape)
    if picture is not None:
        pictures.require(picture)
        require_place(picture)
    if out is not None:
        require_place(out / "trace")
    if sweep:
        with shown("studying") as tell:
            points = rmsnorm.sweep(tell, **options)
        drawn, failed = _tried(lambda: picture and pictures.sweep(points, picture))
        click.echo(json.dumps(points, indent=2) if as_json else rmsnorm.sweep_text(points))
        if failed is not None:
            raise failed
        if drawn is not None and not as_json:
            click.echo(f"\npicture: {picture}")
        return
    with shown("studying") as tell:
        if block:
            result = transformer.transformer_study(rows, cols, heads or 4, ff or 2 * cols, layers or 1, progress=tell, **options)
        else:
            result = rmsnorm.rmsnorm_study(rows, cols, progress=tell, **options)
    drawn, failed = _tried(lambda: picture and pictures.parts(result.summary(), picture))
    saved: dict[str, Path] | None = {}
    if failed is None and out is not None:
        with shown("saving") as tell:
            saved, failed = _tried(lambda: result.save(out, tell))
    traces = {variant: str(folder) for variant, folder in (saved or {}).items()}
    if as_json:
        click.echo(json.dumps({**result.summary(), "traces": traces}, indent=2))
    else:
        click.echo((transformer if block else rmsnorm).text(result))
        for variant, folder in traces.items():
            click.echo(f"trace of {variant}: {folder}")
        if drawn is not None:
            click.echo(f"picture: {picture}")
    if failed is not None:
        raise failed


def _shape(given: str) -> tuple[int, int]:
    sizes = given.split(",")
    if len(sizes) != 2 or not all(re.fullmatch(r"\s*0*[1-9][0-9]{0,11}\s*", s) for s in sizes):  # int() would take any script's digits
        raise ProgramError("--shape", f"{given!r:.80}", "ROWS,COLS, each at least 1 and of at most twelve digits")
    return int(sizes[0]), int(sizes[1])


def _built(name: str, sizes: Mapping[str, Any]) -> tuple[ModuleType | None, Program]:
    """The program of a workload, a Python file or a saved program; and the module, if one built it."""
    path = Path(name)
    if name in workloads.NAMES:
        module = workloads.load(name)
    elif path.suffix == ".py":
        module = _module(path)
    elif path.suffix in (".msgpack", ".ncasm"):
        from .forms import load_program
        from .trace.hardware import load_saved_program

        if sizes:
            raise ProgramError(f"{name} --size", next(iter(sizes)), "no size: a saved program is as it was built")
        with shown("reading") as tell:
            return None, (load_saved_program if path.name.endswith(".neff.msgpack") else load_program)(path, tell)
    else:
        from .trace import foreign

        what = foreign.told_of(path)
        raise ProgramError(
            "program", f"{name!r}{what and f', {what}'}", f"one of {', '.join(workloads.NAMES)}, or a .py, .ncasm or .msgpack file"
        )
    known = _sizes_of(module.build)
    for size in sizes:
        if known is not None and size not in known:
            raise ProgramError(f"{name} --size", f"{size!r}", f"one of {', '.join(known) or 'none'}")
    with shown("building"), _user_code(path):
        program = module.build(**sizes)
    if not isinstance(program, Program):
        raise ProgramError(name, f"build() returned {type(program).__name__}", "a Program")
    return module, program


def _sizes_of(build: Callable[..., Any]) -> list[str] | None:
    """Names of the sizes that a build() takes; None where it takes any: build(**sizes), or a callable that does not tell."""
    try:
        parameters = inspect.signature(build).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]


def _module(path: Path) -> ModuleType:
    """A user's own file, executed as Python does; only ever one named on the command line."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise ProgramError(str(path), "cannot be read", "a Python file with build()")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    with _user_code(path):
        spec.loader.exec_module(module)
    if not callable(getattr(module, "build", None)):
        raise ProgramError(str(path), "no build()", "a function build() that returns a Program")
    return module


@contextmanager
def _user_code(path: Path, required: str = "build(**sizes) and, for values, inputs(program, seed)") -> Iterator[None]:
    """The user's own code runs: what it raises is told with its line in their file, not with ours."""
    try:
        yield
    except (NcSimError, OSError):
        raise
    except SyntaxError as e:
        line = "" if e.lineno is None else f":{e.lineno}"
        raise ProgramError(f"{path}{line}", f"{type(e).__name__}: {e.msg}", "Python that runs") from None
    except (Exception, SystemExit) as e:  # sys.exit() would end the command without a word
        frames = [f for f in traceback.extract_tb(e.__traceback__) if Path(f.filename).name == path.name]
        line = f":{frames[-1].lineno}" if frames else ""
        raise ProgramError(f"{path}{line}", f"{type(e).__name__}: {e}", required) from None


def _pair(text_pair: str, option: str) -> tuple[str, Any]:
    name, equals, value = text_pair.partition("=")
    if not equals or not name or not value:
        raise ProgramError(option, f"{text_pair!r}", "NAME=VALUE")
    return name, commands.size(value)


def _pairs(given: tuple[str, ...], option: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for one in given:
        name, value = _pair(one, option)
        if name in out:
            raise ProgramError(option, f"{name} twice: {out[name]} and {value}", "each name once")
        out[name] = value
    return out


def _overrides(pairs: tuple[str, ...]) -> dict[str, Any]:
    return {name: str(value) for name, value in _pairs(pairs, "--what-if").items()}


def _check_values(source: ModuleType | None, inputs: Mapping[str, np.ndarray] | None, result: Result) -> dict[str, float | None]:
    """Largest error of each output against the workload's reference, None where it has none; an error if rounding cannot explain it."""
    if source is None or not hasattr(source, "reference"):
        return {}
    where = str(source.__file__)
    if not isinstance(tolerance := getattr(source, "TOLERANCE", None), int | float) or not tolerance >= 0:
        raise ProgramError(f"{where} TOLERANCE", repr(tolerance), "a number of at least 0, as there is a reference()")
    with _user_code(Path(where), "reference(inputs), which returns arrays by the names of outputs"):
        reference = source.reference(inputs)
    if not isinstance(reference, Mapping):
        raise ProgramError(f"{where} reference()", f"returned {type(reference).__name__}", "a mapping of output names to arrays")
    if other := [name for name in reference if name not in result.outputs]:
        raise ProgramError(f"{where} reference()", f"an output {other[0]!r}", f"outputs: {', '.join(result.outputs)}")
    out: dict[str, float | None] = dict.fromkeys(result.outputs)
    for name, given in reference.items():
        got = result.outputs[name].astype(np.float64)
        with _user_code(Path(where), f"an array of numbers for {name}"):
            if np.iscomplexobj(given):
                raise ValueError("complex numbers")
            wanted = np.asarray(given, np.float64)
        if wanted.shape != got.shape:
            raise ProgramError(f"{where} reference() {name}", f"shape {list(wanted.shape)}", f"{list(got.shape)}, as the output has")
        with np.errstate(invalid="ignore"):
            error = np.abs(got - wanted) / np.maximum(np.abs(wanted), 1)
        same = np.isnan(got) & np.isnan(wanted) | (got == wanted)  # infinities
        error = np.where(same, 0, np.where(np.isnan(error), np.inf, error))
        out[name] = worst = float(error.max(initial=0.0))
        if worst > tolerance:
            at = np.unravel_index(int(error.argmax()), error.shape)
            place = f"[{', '.join(map(str, map(int, at)))}]"
            raise ProgramError(
                f"{result.program.name} output {name}",
                f"differs from its reference by {worst:.3g} at {place}: {got[at]:.6g}, and {int((error > tolerance).sum())} values of"
                f" {error.size} by more than allowed",
                f"at most {tolerance:.3g}; there {wanted[at]:.6g}",
            )
    return out


commands.add(main, lambda name, sizes: _built(name, sizes)[1])
