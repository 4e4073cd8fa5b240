"""Two runs beside each other, or a run and a profile of hardware: as text, as plain values, as one Perfetto file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs

from ..analysis.again import saved
from ..analysis.differences import BY_LINE, Both, Differences, differences, later
from ..analysis.sides import Side, side_of
from ..arguments import said
from ..isa import Engine
from ..isa.errors import ProgramError
from ..notebook import Shown, frame
from ..result import Result
from ..table import Ints
from ..trace import foreign, hardware, perfetto, profile_json, profile_stream, system
from ..trace.perfetto import Device
from ..trace.profile_stream import Stream
from .replayed import instruction_rows, measured_dma
from .text import extrapolated, table, us

T = TypeVar("T")
READS = "the folder of a saved run, its trace, or a profile of hardware: NAME.instr.csv or a JSON export"
TOP = 10  # rows of a table


@attrs.frozen(eq=False)
class Comparison(Shown):
    """How A and B differ. Differences are B less A."""

    differences: Differences

    def text(self, top: int = TOP) -> str:
        """All of it as tables, of the longer ones the `top` largest rows; 0: every row."""
        return _text(self.differences, top)

    def record(self) -> dict[str, Any]:
        """All of it as plain values; times in ns."""
        d = self.differences
        return {
            "a": _told(d, "A"), "b": _told(d, "B"), "body": d.body.record(), "aligned_by": d.by, "not_by_line_because": d.why or None,
            "matched": len(d.pairs), "matched_on_other_lines": d.moved, "causes_are": "gaps" if d.by_gaps else "stalls",
            **{name: [e.record() for e in getattr(d, name)] for name in ("engines", "lines", "causes", "path", "unmatched")},
        }  # fmt: skip

    def records(self) -> list[dict[str, Any]]:
        """One row for each source line, engine and opcode, the largest difference first."""
        return [e.record() for e in self.differences.lines]

    def frame(self) -> Any:
        """The records as a pandas data frame; Unsupported without pandas."""
        return frame(self.records())

    def save(self, path: str | Path, progress: Callable[[int, int], None] | None = None) -> Path:
        """Write both timelines for the Perfetto viewer, A above B, from one time zero; returns the path. Whole or not there.

        An instruction says which of the other side's it belongs to (`other_side_instruction`, -1: none), and how much later that
        starts. Raises Unsupported without the package perfetto.
        """
        d = self.differences
        names = [f"{name}: {side.name}{', extrapolated' * bool(_extrapolated(side))}" for name, side in (("A", d.a), ("B", d.b))]
        first = min(0, *(int(s.start.min(initial=0) // s.ticks_per_ns) for s in (d.a, d.b)), *(_first_packet(s) for s in (d.a, d.b)))
        devices = [_device(s, *other, -first) for s, other in zip((d.a, d.b), later(d), strict=True)]
        return perfetto.save_side_by_side(dict(zip(names, devices, strict=True)), path, progress=progress)


def compare(a: Result | str | Path, b: Result | str | Path, *, core: int | None = None) -> Comparison:
    """Set two runs beside each other, or a run and a profile of hardware.

    Either is a result, the folder of a saved run, or a profile: NAME.instr.csv or a JSON export of the public profiler, of
    which `core` names a core where several run a kernel. Instructions are aligned by source line and opcode in each queue,
    by opcode alone where the sides have no lines in common. ProgramError says what a path is that is none of these.
    """
    for of in (a, b):
        if not isinstance(of, Result | str | Path):
            raise ProgramError("compare", f"{of!r:.60}", f"a result, or {READS}")
    if core is not None and (isinstance(core, bool) or not isinstance(core, int) or core < 0):
        raise ProgramError("compare core", said(core), "a whole number of at least 0")
    opened: list[Result | Stream | None] = [of if isinstance(of, Result) else None for of in (a, b)]
    for k, of in enumerate((a, b)):  # runs first: the release of queues, which only a chip tells, sets a profile's time zero
        if not isinstance(of, Result) and not is_profile(Path(of)):
            opened[k] = _saved(Path(of))
    runs = [of for of in opened if isinstance(of, Result)]
    if core is not None and len(runs) == 2:
        raise ProgramError("compare", f"core {core} of two runs", "a profile of hardware on one side")
    releases = dict.fromkeys(Engine, 0.0)
    if runs:
        look = runs[0].chip.reader()
        releases = {e: float(look(f"sequencer.{e.name.lower()}.release_ns")) for e in Engine}
    profiles = {k: Path(of) for k, of in enumerate((a, b)) if opened[k] is None and not isinstance(of, Result)}
    exports = [k for k, path in profiles.items() if profile_json.is_json(path)]
    for k, path in profiles.items():
        opened[k] = profile_stream.read(path, releases, core if k in exports or not exports else None)
    places = ["" if isinstance(of, Result) else str(of) for of in (a, b)]
    one, two = (attrs.evolve(side_of(of), place=place) for of, place in zip(opened, places, strict=True) if of is not None)
    return Comparison(differences(one, two))


def is_profile(path: Path) -> bool:
    """Whether a path names a profile of hardware, by its name and first bytes."""
    if path.is_dir() or path.name.endswith(hardware.TRACE_SUFFIX):
        return False
    return path.name.endswith(".csv") or (foreign.named(path.name) is None and profile_json.is_json(path))


def _saved(path: Path) -> Result:
    if not path.exists():
        raise ProgramError(str(path), "cannot be read: No such file or directory", READS)
    if path.is_dir() and system.is_saved(path) and not any(path.glob(f"*{hardware.TRACE_SUFFIX}")):
        raise ProgramError(str(path), "a system trace", READS)
    if path.is_file() and (what := foreign.told_of(path)) not in ("", hardware.OURS):
        raise ProgramError(str(path), what, READS)
    return saved(path)


# --- text and plain values ---------------------------------------------------------------------------------------


def _told(d: Differences, side: str) -> dict[str, Any]:
    s = d.a if side == "A" else d.b
    told: dict[str, Any] = {"name": s.name, "path": s.place or None, "profile": s.profile, "instructions": len(s.engine)}
    if isinstance(s.of, Result):
        return {**told, "chip": s.of.chip.name, "extrapolated": s.of.chip.extrapolated or None, "what_if": dict(s.of.summary()["what_if"])}
    return {**told, "is_simulation": s.of.simulated, "core": s.of.core, "time_zero": _time_zero(d, side) or None}


def _time_zero(d: Differences, side: str) -> str:
    """Of a profile that does not tell when Sync is released: what is taken for it."""
    (s, other), name = ((d.a, d.b), "B") if side == "A" else ((d.b, d.a), "A")
    if not isinstance(s.of, Stream) or s.of.zero_known:
        return ""
    told = "no instruction on Sync: time zero is the earliest first instruction of an engine"
    return f"{told} less its release on {name}'s chip, {other.of.chip.name}" if isinstance(other.of, Result) else told


def _text(d: Differences, top: int) -> str:
    percent = f"  {_signed(100 * d.body.change / d.body.a, 1)} %" if d.body.a else ""
    out = []
    for name, s, ns in (("A", d.a, d.body.a_ns), ("B", d.b, d.body.b_ns)):
        zero = _time_zero(d, name)
        out += [f"{name}: {_titled(s)}: body {us(ns)}", *_extrapolated(s), *([f"  {zero}"] if zero else [])]
    out += [f"B - A: {_change(d.body)}{percent}", *_aligned(d), "", "active time:"]
    rows: list[tuple[str, ...]] = [(e.engine, str(e.a_count), str(e.b_count), *_times(e)) for e in d.engines]
    out += table(("engine", "n of A", "n of B", *TIMES), rows, indent="  ")
    if d.path:
        out += ["", "the critical path, which is the body:"]
        out += _table(("where", "what", *TIMES), [(e, (e.where, e.kind)) for e in d.path], top)
    out += ["", "each engine's body by cause:" if not d.by_gaps else "each engine's body, as starts and ends tell:"]
    out += _table(("engine", "cause", "of", *TIMES), [(c, (c.engine, c.cause, c.on or "-")) for c in d.causes], 2 * top)
    title = "by source line and opcode" if d.by == BY_LINE else "by opcode, with the line where one is known"
    out += ["", f"{title}, from start to visible result:"]
    named = [(e, (e.line or "-", e.engine, e.opcode, str(e.a_count), str(e.b_count))) for e in d.lines]
    out += _table(("line", "engine", "opcode", "n of A", "n of B", *TIMES), named, top)
    for side in "AB":
        alone = [u for u in d.unmatched if u.side == side]
        if alone:
            out += ["", f"only in {side}:"]
            found = [
                (u.line or "-", u.engine, u.opcode, str(len(u.instructions)), us(u.ns), _numbers(u.instructions))
                for u in _first(alone, top)
            ]
            out += table(("line", "engine", "opcode", "n", "time", "instructions"), found, indent="  ") + _more(alone, top)
    return "\n".join(out)


TIMES = ("A", "B", "B - A")


def _aligned(d: Differences) -> list[str]:
    how = f"aligned queue by queue by {d.by}" + (f": {d.why}" if d.why else "")
    moved = f", {d.moved} of them on different lines" if d.moved else ""
    left = [len(s.engine) - len(d.pairs) for s in (d.a, d.b)]
    return [f"{how}; {len(d.pairs)} instructions on both sides{moved}, {left[0]} only in A, {left[1]} only in B"]


def _titled(s: Side) -> str:
    return f"{s.name} ({s.place})" if s.place else s.name


def _extrapolated(s: Side) -> list[str]:
    return extrapolated(s.of.chip.extrapolated, "  ") if isinstance(s.of, Result) else []


def _times(e: Both) -> tuple[str, str, str]:
    return us(e.a_ns), us(e.b_ns), _change(e)


def _change(e: Both) -> str:
    return f"{_signed(e.change_ns / 1000, 3)} us"


def _signed(value: float, digits: int) -> str:
    """With its sign, unless nothing is left of it at so many digits."""
    return f"{value:+.{digits}f}" if float(f"{value:.{digits}f}") else f"{0:.{digits}f}"


def _table(head: Sequence[str], rows: Sequence[tuple[Both, tuple[str, ...]]], top: int) -> list[str]:
    """The rows that differ, the first `top` of them, and how many are not shown."""
    apart = [(e, names) for e, names in rows if e.change]
    same = len(rows) - len(apart)
    out = table(head, [(*names, *_times(e)) for e, names in _first(apart, top)], indent="  ") + _more(apart, top)
    return [*out, *([f"  {same} without a difference"] if same else [])]


def _first(rows: Sequence[T], top: int) -> Sequence[T]:
    return rows[:top] if top else rows


def _more(rows: Sequence[Any], top: int) -> list[str]:
    return [f"  and {len(rows) - top} more"] if top and len(rows) > top else []


def _numbers(found: tuple[int, ...], most: int = 5) -> str:
    return ", ".join(map(str, found[:most])) + (", ..." if len(found) > most else "")


# --- Perfetto ----------------------------------------------------------------------------------------------------


def _first_packet(s: Side) -> int:
    return 0 if s.dma is None else int(s.dma[0].min(initial=0) // s.ticks_per_ns)


def _device(s: Side, other: Ints, wait: Ints, shift: int) -> Device:
    """What the viewer shows of a side, moved by `shift` ns."""
    numbers = {"other_side_instruction": other, "other_side_later_ns": wait}
    if isinstance(s.of, Result):
        trace = hardware.trace_of(s.of)
        return perfetto.shifted(perfetto.device_of(trace, trace.metadata["vnc"], numbers), shift)
    start = s.start
    rows = instruction_rows(s.engine, s.of.measured, start + shift, s.end + shift, numbers)
    moved = measured_dma(s.of.parts or (), s.of.origin_ns - shift)
    return Device((*rows, *moved), (), 0)
