"""Many runs of one program, or of a function of a shape: chips, what-ifs and shapes, over processes, and resumable.

Programs are built here, one shape after another, and go to the workers as bytes: so any function will do, one that only
lives in a notebook too, and a case is known by what it is: its program, its chip's numbers and its overrides.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Protocol

import attrs

from .. import chip as chips_of
from ..arguments import listed, path_of, require_tell, said
from ..chip import Chip
from ..files import regular, replacing, require_place
from ..forms import program_from_msgpack, program_to_msgpack
from ..isa.errors import NcSimError, ProgramError
from ..notebook import Shown, frame
from ..program import Program
from ..result import Result
from ..simulate import require_engine, simulate
from .again import again
from .roofs import Ceiling, Point, ceilings, points, read_point

FORM = 1  # of a kept case
Shape = Mapping[str, Any] | Sequence[Any] | int
Progress = Callable[[int, int], None]


class Submits(Protocol):
    """What a sweep needs of an executor: that of concurrent.futures, or one with its interface."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Call later, maybe elsewhere."""


@attrs.frozen
class Case:
    """One run of a sweep: what was asked, and its numbers or its error."""

    shape: str  # as text; empty where a program was given
    chip: str
    what_if: str  # its name; empty for the chip as it is
    overrides: Mapping[str, str]
    summary: Mapping[str, Any]  # `Result.summary`; empty where it failed
    points: tuple[Point, ...]  # of the roofline, by engine
    ceilings: tuple[Ceiling, ...]
    error: str  # empty where it ran
    sizes: Mapping[str, Any]  # of the shape, by name

    @property
    def label(self) -> str:
        """What tells it from the other cases of its sweep."""
        return ", ".join(x for x in (self.shape, self.chip, self.what_if) if x)

    def record(self) -> dict[str, Any]:
        """One flat row."""
        s = self.summary
        numbers = ("duration_ns", "total_time_ns", "benchmark_ns", "instructions", "flops", "hbm_read_bytes", "hbm_write_bytes")
        busy = {f"{k.lower()}_busy_ns": v["busy_ns"] for k, v in s.get("engines", {}).items()}
        asked = {"shape": self.shape, **self.sizes, "chip": self.chip, "what_if": self.what_if}
        said = {"extrapolated": s.get("extrapolated")}
        return {"program": s.get("program", ""), **asked, **said, **{k: s.get(k) for k in numbers}, **busy, "error": self.error}


@attrs.frozen
class Sweep(Shown):
    """Cases in the order asked for: shapes, then chips, then what-ifs."""

    cases: tuple[Case, ...]

    def __iter__(self) -> Iterator[Case]:
        return iter(self.cases)

    def __len__(self) -> int:
        return len(self.cases)

    @property
    def failed(self) -> tuple[Case, ...]:
        """Those with an error."""
        return tuple(c for c in self.cases if c.error)

    def records(self) -> list[dict[str, Any]]:
        """One row for each case; every row has every key."""
        rows = [c.record() for c in self.cases]
        keys = dict.fromkeys(k for r in rows for k in r)
        return [{k: r.get(k) for k in keys} for r in rows]

    def frame(self) -> Any:
        """The records as a pandas data frame; Unsupported without pandas."""
        return frame(self.records())


def sweep(
    program: Program | Callable[..., Program],
    *,
    chips: Iterable[str | Path | Chip] = ("trn2",),
    what_if: Mapping[str, Mapping[str, Any]] | Iterable[Mapping[str, Any]] = ({},),
    shapes: Iterable[Shape] | None = None,
    executor: Executor | Submits | None = None,
    workers: int | None = None,
    keep: str | Path | None = None,
    engine: str = "auto",
    progress: Progress | None = None,
) -> Sweep:
    """Run every combination, timing only; a case that fails is kept with its error.

    `program` is one, or a function that is called with each of `shapes`: a mapping as keywords, a sequence as arguments.
    `what_if` is a list of overrides, or a mapping of names to them; {} is the chip as it is. Cases of one program and chip
    run together, so that what-ifs of costs alone do not compile it again.

    `executor` is any with the interface of concurrent.futures; without one, `workers` processes of this machine, by
    default one for each processor; 1 runs all here. With `keep`, a folder, each finished case is written there, and a
    later sweep with the same programs, chips and overrides takes it from there instead of running it.
    """
    require_engine(engine, "sweep")
    if isinstance(shapes, Mapping):
        raise ProgramError("sweep shapes", said(shapes), "a list of shapes, each a mapping or a sequence")
    require_tell(progress, "sweep")
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise ProgramError("sweep executor", said(executor), "one of concurrent.futures, or with its submit()")
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise ProgramError("sweep workers", said(workers), "a whole number of at least 1")
    asked = [(name, dict(given)) for name, given in _named(what_if)]
    on = [chips_of.load(c) for c in listed(chips, "sweep chips", "a list of chips")]
    folder = None if keep is None else path_of(keep, "sweep keep")
    if folder is not None:
        require_place(folder / "case.json")
    groups = _groups(program, shapes, on, asked, folder)
    total = sum(len(g.cases) for g in groups)
    todo = [g for g in groups if None in g.cases]
    done = total - sum(g.cases.count(None) for g in todo)
    tell = progress or (lambda done, total: None)
    tell(done, total)
    alone = executor is None and (workers == 1 or len(todo) < 2)
    if alone:
        for g in todo:
            done = _take(g, _simulated(g.program, g.chip, g.lacking(), engine), folder, done)
            tell(done, total)
        return Sweep(tuple(c for g in groups for c in g.finished()))
    with nullcontext(executor) if executor is not None else ProcessPoolExecutor(workers) as pool:
        futures = {pool.submit(_simulated, g.program, g.chip, g.lacking(), engine): g for g in todo}
        for future in as_completed(futures):
            done = _take(futures[future], _result_of(future, futures[future]), folder, done)
            tell(done, total)
    return Sweep(tuple(c for g in groups for c in g.finished()))


Numbers = tuple[Mapping[str, Any], tuple[Point, ...], tuple[Ceiling, ...], str, bool]  # the last: the same on every run


@attrs.define(eq=False)
class _Group:
    """The what-ifs of one program on one chip."""

    shape: str
    sizes: Mapping[str, Any]
    chip: Chip
    program: bytes
    asked: list[tuple[str, dict[str, Any]]]
    keys: list[str]
    cases: list[Case | None]

    def lacking(self) -> list[dict[str, Any]]:
        return [o for (_, o), c in zip(self.asked, self.cases, strict=True) if c is None]

    def case(self, k: int, numbers: Numbers) -> Case:
        name, overrides = self.asked[k]
        summary, at, tops, error, _ = numbers
        label = ", ".join(x for x in (self.shape, name) if x)
        at = tuple(attrs.evolve(p, name=f"{p.name} {label}".strip()) for p in at)
        return Case(
            self.shape, self.chip.name, name, {k: str(v) for k, v in overrides.items()}, summary, at, tops, error, self.sizes
        )  # fmt: skip

    def finished(self) -> list[Case]:
        assert None not in self.cases
        return [c for c in self.cases if c is not None]


def _groups(
    program: Program | Callable[..., Program], shapes: Iterable[Shape] | None, on: Sequence[Chip], asked: list[tuple[str, dict[str, Any]]],
    folder: Path | None,
) -> list[_Group]:  # fmt: skip
    """Every program on every chip, with what is known already: kept cases, and errors of building."""
    if isinstance(program, Program):
        if shapes is not None:
            raise ProgramError("sweep", "shapes beside a Program", "a function of a shape, or a Program without shapes")
        built: Iterable[tuple[str, Mapping[str, Any], bytes | str]] = [("", {}, program_to_msgpack(program))]
    elif callable(program):
        if shapes is None:
            raise ProgramError("sweep", "a function and no shapes", "shapes=[...] to call it with")
        built = (_build(program, s) for s in listed(shapes, "sweep shapes", "a list of shapes"))
    else:
        raise ProgramError("sweep", f"{type(program).__name__} {program!r}"[:80], "a Program, or a function that returns one")
    out = []
    for shape, sizes, data in built:
        for chip in on:
            group = _Group(shape, sizes, chip, b"", asked, [""] * len(asked), [None] * len(asked))
            if isinstance(data, str):
                group.cases = [group.case(k, ({}, (), (), data, True)) for k in range(len(asked))]
            else:
                group.program = data
                group.keys = [_key(data, chip, o) for _, o in asked]
                kept = [None if folder is None else _kept(folder, key) for key in group.keys]
                group.cases = [None if n is None else group.case(k, n) for k, n in enumerate(kept)]
            out.append(group)
    return out


def _build(function: Callable[..., Program], shape: Shape) -> tuple[str, Mapping[str, Any], bytes | str]:
    """The shape as text and by name, and the program as bytes, or the error of building it."""
    if isinstance(shape, Mapping):
        sizes: Mapping[str, Any] = dict(shape)
        text = ", ".join(f"{k}={v}" for k, v in sizes.items())
    else:
        several = tuple(shape) if isinstance(shape, Sequence) and not isinstance(shape, str) else (shape,)
        sizes = {f"shape{k}": v for k, v in enumerate(several)}
        text = "x".join(map(str, several))
    try:
        made = function(**sizes) if isinstance(shape, Mapping) else function(*sizes.values())
        if not isinstance(made, Program):
            raise ProgramError("sweep", f"the function returned {type(made).__name__}", "a Program")
        return text, sizes, program_to_msgpack(made)
    except Exception as e:  # the user's own code: a shape that it refuses is a case that failed
        return text, sizes, _told(e)


def _named(what_if: Mapping[str, Mapping[str, Any]] | Iterable[Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    """What-ifs with their names; those without one are named by what they override."""
    if isinstance(what_if, Mapping):
        pairs = [(str(k), v) for k, v in what_if.items()]
    else:
        given = listed(what_if, "sweep what_if", "a list of mappings, or names with mappings, of chip numbers to values")
        pairs = [(", ".join(f"{k}={v}" for k, v in w.items()) if isinstance(w, Mapping) else "", w) for w in given]
    for name, overrides in pairs:
        if not isinstance(overrides, Mapping):
            raise ProgramError(
                "sweep what_if", f"{name or overrides!r}", "a list of mappings, or names with mappings, of chip numbers to values"
            )
    return pairs


def _simulated(program: bytes, chip: Chip, what_ifs: Sequence[Mapping[str, Any]], engine: str) -> list[Numbers]:
    """In a worker: one program on one chip, with each of the overrides. The first to run compiles it."""
    out: list[Numbers] = []
    base: Result | None = None
    for overrides in what_ifs:
        try:
            if base is None:
                base = simulate(program_from_msgpack(program), chip, values=False, engine=engine)
            r = again(base, overrides, engine) if overrides else base
            at = points(r, engines=None)
            out.append((r.summary(), at, ceilings(r.chip, {p.engine for p in at}), "", True))
        except Exception as e:
            out.append(({}, (), (), _told(e), isinstance(e, NcSimError)))
    return out


def _result_of(future: Future[list[Numbers]], group: _Group) -> list[Numbers]:
    """What a worker found; an error for all of its cases where it was lost."""
    try:
        return future.result()
    except Exception as e:
        return [({}, (), (), f"worker lost: {_told(e)}", False)] * len(group.lacking())


def _take(group: _Group, numbers: Sequence[Numbers], folder: Path | None, done: int) -> int:
    """Put what a worker found in its place, and keep it."""
    places = [k for k, c in enumerate(group.cases) if c is None]
    for k, n in zip(places, numbers, strict=True):
        group.cases[k] = group.case(k, n)
        if folder is not None and n[-1]:
            _write(folder, group.keys[k], n)
    return done + len(places)


def _told(e: BaseException) -> str:
    return str(e) if isinstance(e, NcSimError) else f"{type(e).__name__}: {e}"


# --- kept cases --------------------------------------------------------------------------------------------------


def _key(program: bytes, chip: Chip, overrides: Mapping[str, Any]) -> str:
    """What a case is: this nc-sim, its program, every number of its chip, its overrides."""
    from .. import __version__

    numbers = {k: str(n.value) for k, n in sorted(chip.numbers.items())}
    changed = {k: str(v) for k, v in sorted(overrides.items())}
    what = [FORM, __version__, hashlib.sha256(program).hexdigest(), chip.name, numbers, changed]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:32]


def _write(folder: Path, key: str, numbers: Numbers) -> None:
    summary, at, tops, error, _ = numbers
    data = {
        "form": FORM,
        "summary": summary,
        "points": [p.kept() for p in at],
        "ceilings": [attrs.asdict(c) for c in tops],
        "error": error,
    }
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / f"{key}.json") as partial:
        partial.write_text(json.dumps(data, allow_nan=False))


def _kept(folder: Path, key: str) -> Numbers | None:
    """A kept case; None where there is none. ProgramError where the file is something else."""
    path = folder / f"{key}.json"
    try:
        data = json.loads(regular(path).read_text())
        if data["form"] != FORM:
            raise ValueError("another form")
        at, tops = tuple(map(read_point, data["points"])), tuple(Ceiling(**c) for c in data["ceilings"])
        return data["summary"], at, tops, data["error"], True
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise ProgramError(str(path), f"cannot be read: {e}", "a case that a sweep kept: remove it to run it again") from None
