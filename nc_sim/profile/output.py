"""What `nc-sim view --output-format` writes of a saved run, of a system trace, or of a hardware profile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..files import require_place
from ..isa.errors import ProgramError, Unsupported
from ..progress import Tell, weighted
from ..trace import foreign, hardware, perfetto, profile_json
from ..trace import system as system_trace
from ..trace.system import SystemTrace
from . import device, export, measured, parquet, source, system
from .source import Device

TO_SCREEN = ("text", "summary-json", "summary-text")  # without --output-file these are printed
READS = "the folder of a saved run or a system trace, one of its traces, or a profile: NAME.instr.csv or a JSON export"
Opened = Device | SystemTrace | measured.Profile


def write(path: Path, form: str, place: Path | None, progress: Tell | None = None) -> str:
    """Write a profile in one of the package's FORMATS but text; returns what to print.

    ProgramError for what is no profile, half of a pair, a file that is cut off, of an unknown version or of another tool;
    Unsupported where an extra is missing.
    """
    if place is None and form not in TO_SCREEN:
        raise ProgramError(
            "--output-file", f"none, with --output-format {form}", f"the path of a {'folder' if form == 'parquet' else 'file'}"
        )
    if form == "parquet":
        parquet.require()
    if place is not None:
        require_place(place / "Instruction" if form == "parquet" else place)
    first, then = weighted(progress, 1, 9 if form == "parquet" else 4)
    opened = read(path, first)
    if form in ("summary-json", "summary-text"):
        found, names = summaries(opened)
        text = export.summary_json(found) if form == "summary-json" else export.summary_text(found, names)
        return text.rstrip("\n") if place is None else f"{form}: {export.save_text(text, place)}"
    assert place is not None
    return f"{form}: {WRITERS[form](opened, place, then)}"


def read(path: Path, progress: Tell | None = None) -> Opened:
    """A device profile's source, a system trace, or a measured profile; one clear error for anything else."""
    if not path.is_dir():
        if not path.exists():
            raise ProgramError(str(path), "cannot be read: No such file or directory", READS)
        if (what := foreign.named(path.name)) is not None:
            raise ProgramError(str(path), what, READS)
        if path.name.endswith(measured.SUFFIX) or profile_json.is_json(path):
            return measured.read(path)
        if (what := foreign.told_of(path)) and not path.name.endswith((hardware.TRACE_SUFFIX, hardware.PROGRAM_SUFFIX)):
            raise ProgramError(str(path), what, READS)
        if path.name.endswith(hardware.PROGRAM_SUFFIX):
            raise ProgramError(
                str(path), "a program, not a trace", f"the path of the *{hardware.TRACE_SUFFIX} beside it, or of their folder"
            )
    if system_trace.is_saved(path):
        return system_trace.load(path)
    return source.read(path, progress=progress)


def summaries(opened: Opened) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Metrics by key, and the name of what each key stands for."""
    if isinstance(opened, measured.Profile):
        key = f"n_{opened.name}"
        how = "simulated" if opened.simulated else "measured"
        return {key: dict(measured.metrics(opened))}, {key: f"{opened.name}, {how}"}
    if isinstance(opened, Device):
        key = device.key(opened)
        return {key: dict(device.metrics(opened))}, {key: f"{opened.name} on {opened.chip.name}, simulated{_more(opened)}"}
    key = system.key(opened)
    found: dict[str, dict[str, Any]] = {key: system.metrics(opened)}
    names = {key: "system profile, simulated"}
    for _, one in system.devices(opened):
        found[device.key(one)] = dict(device.metrics(one))
        names[device.key(one)] = f"{one.name} on {one.chip.name}, NC{one.core}, simulated{_more(one)}"
    return found, names


def _more(device: Device) -> str:
    return ", extrapolated" if device.chip.extrapolated else ""


def _parquet(opened: Opened, place: Path, progress: Tell | None) -> Path:
    if isinstance(opened, measured.Profile):
        parquet.save(measured.tables(opened), place, progress, simulated=opened.simulated)
    elif isinstance(opened, Device):
        parquet.save(device.tables(opened), place, progress)
    else:
        parquet.save(system.tables(opened), place, progress)
        for name, one in system.devices(opened):
            parquet.save(device.tables(one), place / name, progress)
    return place


def _json(opened: Opened, place: Path, progress: Tell | None) -> Path:
    if isinstance(opened, measured.Profile):
        raise Unsupported("json", "a profile of hardware", "parquet, summary-json or summary-text: its tables lack what a JSON profile has")
    if isinstance(opened, Device):
        made = device.tables(opened)
        return export.save_json(made, {k: v[0] for k, v in made["Summary"].columns().items()}, place, progress)
    nothing: dict[str, Any] = dict.fromkeys(("mem_usage", "cpu_util", "device_mem_usage", "warnings"), ())
    return export.save_lists({"trace_event": system.trace_events(opened), **nothing}, place, len(opened.events), progress)


def _perfetto(opened: Opened, place: Path, progress: Tell | None) -> Path:
    if isinstance(opened, measured.Profile):
        raise Unsupported("perfetto", "a profile of hardware", "a trace that nc-sim wrote, or `nc-sim replay --perfetto`")
    return perfetto.save(opened if isinstance(opened, SystemTrace) else opened.trace, place, progress=progress)


WRITERS: dict[str, Callable[[Opened, Path, Tell | None], Path]] = {"parquet": _parquet, "json": _json, "perfetto": _perfetto}
