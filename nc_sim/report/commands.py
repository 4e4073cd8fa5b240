"""The commands that tell where the time goes: explain, stalls, compare, roofline, sweep. `add` puts them on the command line."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from .. import workloads
from ..analysis.advice import explain as explain_run
from ..analysis.again import saved
from ..analysis.sweeps import Case, sweep
from ..chip import load
from ..files import require_place
from ..isa.errors import ProgramError
from ..program import Program
from ..progress import shown
from ..result import Result
from ..trace import system
from ..trace.hardware import TRACE_SUFFIX
from . import picture as pictures
from . import where
from .compare import TOP, compare
from .roofline import roofline
from .text import extrapolated, table, us


class Place(click.Path):
    """The path of a file or a folder. No text at all is the path of nothing, and would be taken for the current folder."""

    def __init__(self, required: str) -> None:
        super().__init__(path_type=Path)
        self.required = required

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            name = "path" if param is None else param.human_readable_name if isinstance(param, click.Argument) else param.opts[0]
            raise ProgramError(name, "an empty text", self.required)
        return super().convert(value, param, ctx)


NUMBER = click.IntRange(0)
PATH, FOLDER = Place("a path; of the current folder it is ."), Place("the path of a folder; the current one is .")

Build = Callable[[str, Mapping[str, Any]], Program]  # a program by name and sizes

JSON = click.option("--json", "as_json", is_flag=True, help="print JSON")
CHIPS = click.option("--chip", "chips", multiple=True, default=("trn2",), show_default=True, help="may be repeated")
SIZES = click.option("--size", "sizes", multiple=True, metavar="NAME=V,V", help="sizes of the program; every combination runs")
WHAT_IF = click.option("--what-if", multiple=True, metavar="NAME=V,NAME=V", help="beside the chip as it is; may be repeated")
WORKERS = click.option("--workers", type=click.IntRange(1), help="processes  [default: one for each processor]")
ONLY_PROGRAMS = {"chips": "--chip", "sizes": "--size", "what_if": "--what-if", "workers": "--workers", "keep": "--keep"}
KEEP = click.option("--keep", type=FOLDER, metavar="FOLDER", help="keep finished cases here, and take them from here")


def add(main: click.Group, build: Build) -> None:
    """Put the commands on the command line; `build` makes a program from what a user names."""

    @main.command()
    @click.argument("folder", type=PATH)
    @JSON
    def explain(folder: Path, as_json: bool) -> None:
        """Say what bounds a saved run, and which changes promise most: each simulated, an upper bound."""
        with shown("reading", "simulating") as tell:
            told = explain_run(saved(of_run(folder), progress=tell), progress=tell)
        click.echo(json.dumps(told.record(), indent=2) if as_json else told.text())

    @main.command()
    @click.argument("folder", type=PATH)
    @click.option("--path", "segments", default=0, metavar="N", type=NUMBER, help="also list the last N pieces of the critical path")
    @click.option(
        "--slack", "loosest", default=5, show_default=True, metavar="N", type=NUMBER, help="list the N instructions with most slack"
    )
    @JSON
    def stalls(folder: Path, segments: int, loosest: int, as_json: bool) -> None:
        """Show where a saved run's time goes: stalls by cause, the critical path, slack, overlap, DMA rows."""
        refuse("--path, --slack", as_json and (given("segments") or given("loosest")), "--json beside it, which has all", "one of them")
        with shown("reading", "simulating") as tell:
            result = saved(of_run(folder), progress=tell)
        with shown("looking back") as tell:
            found = json.dumps(where.record(result, tell), indent=2) if as_json else where.text(result, segments, loosest, tell)
        click.echo(found)

    @main.command(name="compare")
    @click.argument("a", type=PATH)
    @click.argument("b", type=PATH)
    @click.option("--top", default=TOP, show_default=True, type=click.IntRange(0), metavar="N", help="rows of each table; 0: all")
    @click.option("--core", type=click.IntRange(0), help="of a JSON export in which several cores run a kernel")
    @click.option("--perfetto", "pftrace", type=PATH, metavar="FILE", help="also write both timelines for the viewer")
    @JSON
    def compare_command(a: Path, b: Path, top: int, core: int | None, pftrace: Path | None, as_json: bool) -> None:
        """Set two saved runs beside each other, or a run and a profile of hardware: what differs, where, and why.

        A and B are folders of saved runs, NAME.instr.csv, or what the public profiler writes with --output-format json.
        """
        if pftrace is not None:
            require_place(pftrace)
        with shown("comparing"):
            found = compare(a, b, core=core)
        if pftrace is not None:
            with shown("writing") as tell:
                found.save(pftrace, tell)
        if as_json:
            click.echo(json.dumps(found.record() | ({} if pftrace is None else {"perfetto": str(pftrace)}), indent=2))
        else:
            click.echo("\n".join([found.text(top), *([] if pftrace is None else ["", f"perfetto: {pftrace}"])]))

    @main.command(name="roofline")
    @click.argument("runs", nargs=-1, required=True)
    @CHIPS
    @SIZES
    @WHAT_IF
    @WORKERS
    @KEEP
    @click.option("--engine", "engines", multiple=True, help="whose work counts; may be repeated  [default: Tensor, if it has work]")
    @click.option("--picture", type=PATH, metavar="FILE", help="also draw it, as .svg, .png or .pdf")
    @JSON
    def roofline_command(
        runs: tuple[str, ...], chips: tuple[str, ...], sizes: tuple[str, ...], what_if: tuple[str, ...], workers: int | None,
        keep: Path | None, engines: tuple[str, ...], picture: Path | None, as_json: bool,
    ) -> None:  # fmt: skip
        """Set runs on their rooflines: folders of saved runs, or programs, which run on every chip, size and what-if."""
        if picture is not None:
            pictures.require(picture, (*pictures.SUFFIXES, ".pdf"))
            require_place(picture)
        found: list[Result | Case] = []
        saved_runs = [run for run in runs if run and (Path(run).is_dir() or run.endswith(TRACE_SUFFIX))]
        for name, option in ONLY_PROGRAMS.items():
            refuse(option, len(saved_runs) == len(runs) and given(name), "saved runs alone", "a program, to be run so")
        for run in runs:
            if run in saved_runs:
                with shown("reading", "simulating") as tell:
                    found.append(saved(of_run(Path(run)), progress=tell))
            else:
                found += _cases(build, run, chips, sizes, what_if, workers, keep)
        for c in found:
            if isinstance(c, Case) and c.error:
                click.echo(f"{c.label}: {c.error}", err=True)
        _require_one(found)
        study = roofline(found, engines or None)
        if picture is not None:
            study.save(picture)
        click.echo(json.dumps(study.records(), indent=2) if as_json else study.text())
        if picture is not None and not as_json:
            click.echo(f"\npicture: {picture}")

    @main.command(name="sweep")
    @click.argument("program")
    @CHIPS
    @SIZES
    @WHAT_IF
    @WORKERS
    @KEEP
    @JSON
    def sweep_command(
        program: str, chips: tuple[str, ...], sizes: tuple[str, ...], what_if: tuple[str, ...], workers: int | None, keep: Path | None,
        as_json: bool,
    ) -> None:  # fmt: skip
        """Run a program on every chip, size and what-if; a case that fails is shown with its error."""
        cases = _cases(build, program, chips, sizes, what_if, workers, keep)
        if as_json:
            click.echo(json.dumps([c.record() for c in cases], indent=2))
            _require_one(cases)
            return
        rows = [(c.shape or "-", c.chip, c.what_if or "-", us(c.summary["duration_ns"]) if not c.error else "-", c.error) for c in cases]
        said = dict.fromkeys(line for c in cases for line in extrapolated(c.summary.get("extrapolated"), f"{c.chip} is "))
        click.echo("\n".join([*said, *table(("sizes", "chip", "what if", "body", "error"), rows)]))
        _require_one(cases)


def no_workload(path: Path) -> Path:
    """The path, unless it is that of no file and the name of a workload: who writes it has not run it yet."""
    if not path.exists() and str(path) in workloads.NAMES:
        raise ProgramError(str(path), "a program, not a run", f"the folder of a run: nc-sim run {path}, then out/{path}")
    return path


def of_run(path: Path) -> Path:
    """The path of a run, and not of a folder in which there are some."""
    if no_workload(path).is_dir() and not any(path.glob(f"*{TRACE_SUFFIX}")) and (inside := system.folders_with_traces(path)):
        raise ProgramError(str(path), "no trace of its own", f"the path of a folder in it that has one: {', '.join(inside)}")
    return path


def given(name: str) -> bool:
    """Whether a parameter of the command that runs was written, and is not its default."""
    return click.get_current_context().get_parameter_source(name) is not click.core.ParameterSource.DEFAULT


def refuse(option: str, when: bool, found: str, required: str) -> None:
    """ProgramError for an option that would be without effect."""
    if when:
        raise ProgramError(option, found, required)


def _require_one(found: Sequence[Result | Case]) -> None:
    """Exit 1 where nothing ran."""
    if found and all(isinstance(c, Case) and c.error for c in found):
        raise SystemExit(1)


def _cases(
    build: Build, program: str, chips: tuple[str, ...], sizes: tuple[str, ...], what_if: tuple[str, ...], workers: int | None,
    keep: Path | None,
) -> list[Case]:  # fmt: skip
    lists: dict[str, str] = {}
    for name, values in (_pair(s, "--size") for s in sizes):
        lists[name] = f"{lists[name]},{values}" if name in lists else values  # --size m=1 --size m=2 as --size m=1,2
    shapes = [
        dict(zip(lists, values, strict=True)) for values in itertools.product(*([size(v) for v in x.split(",")] for x in lists.values()))
    ]
    overrides: dict[str, dict[str, str]] = {"": {}}
    for w in what_if:
        overrides[w] = dict(_pair(p, "--what-if") for p in w.split(","))
    for chip in chips:  # an unknown name, size or number is refused at once
        for given in overrides.values():
            load(chip).what_if(given)
    build(program, shapes[0])
    with shown("sweeping", "sweeping") as tell:
        found = sweep(
            lambda **size: build(program, size), chips=chips, what_if=overrides, shapes=shapes, workers=workers, keep=keep, progress=tell
        )
    return list(found)


def _pair(given: str, option: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not (name and equals and value):
        raise ProgramError(option, f"{given!r}", "NAME=VALUE")
    return name, value


def size(text: str) -> int | str:
    """A whole number if it is one in plain digits, else the text."""
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,18}", text.strip()) else text.strip()
