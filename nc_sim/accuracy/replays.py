"""Replayed streams: the part of the accuracy page that needs traces which are not in the project.

`replays.json` keeps what they gave, with the hash of every input and the commit whose code gave it: each stream, what it
gives without each mechanism, and over the phases of the clock gate.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from .. import chip as chips
from ..chip import Chip
from ..files import replacing
from ..isa.errors import ProgramError
from ..mechanisms import MECHANISMS
from ..replay import Replay, replay
from ..schema import SCHEMA
from .compare import STEP

PHASES = 16
STREAM, PACKETS = ".instr.csv", ".dma.csv"
KEPT = Path(__file__).with_name("replays.json")


def kept() -> dict[str, Any]:
    """What the last replays gave: `commit`, and `runs`."""
    data: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    return data


def measured(folder: Path, chip: str | Chip) -> list[dict[str, Any]]:
    """Every stream of a folder replayed, with DMA simulated and with its latencies from the trace."""
    streams = sorted(folder.glob(f"*{STREAM}"))
    if not streams:
        raise ProgramError(str(folder), "no traces", f"at least one NAME{STREAM}")
    return [_run(path, chips.load(chip), given) for path in streams for given in (False, True)]


def _run(path: Path, chip: Chip, dma_from_trace: bool) -> dict[str, Any]:
    result = replay(path, chip, dma_from_trace=dma_from_trace)
    s = result.summary()
    names = [k for k in s["assumed"] if SCHEMA[k].kind in ("number", "positive", "share")]
    out = {
        "trace": s["trace"].removesuffix(STREAM),
        "chip": chip.name,
        "dma": "from the trace" if dma_from_trace else "simulated",
        "instructions": s["instructions"],
        "measured_ns": s["total_measured_ns"],
        "simulated_ns": s["total_simulated_ns"],
        "error_percent": s["total_error_percent"],
        "median_start_error_percent": s["median_start_error_percent"],
        "p95_start_error_percent": s["p95_start_error_percent"],
        "gate_phase": s["gate_phase"],
        "assumed": names,
        "assumed_percent": round(100 * _share(path, chip, dma_from_trace, names, result), 3),
        "inputs": {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in _inputs(path)},
    }
    if not dma_from_trace:
        out["without_ns"] = {m: round(replay(path, chip, without=[m]).total_simulated_ns, 3) for m in MECHANISMS}
        out["phases_ns"] = _phases(path, chip)
    else:
        out["opcodes"] = {
            opcode: {k: v[k] for k in ("count", "measured_median_ns", "simulated_median_ns", "median_duration_error_percent")}
            for opcode, v in s["by_opcode"].items()
        }
    return out


def _phases(path: Path, chip: Chip) -> list[float]:
    """The shortest and the longest body over the clock gate's phases."""
    window = float(chip.numbers["tensor.gate.window_cycles"].value * 1000 / chip.numbers["clock.sync_mhz"].value)
    bodies = [replay(path, chip, gate_phase_ns=k * window / PHASES).total_simulated_ns for k in range(PHASES)]
    return [round(min(bodies), 3), round(max(bodies), 3)]


def _share(path: Path, chip: Chip, dma_from_trace: bool, names: list[str], result: Replay) -> float:
    """What the body moves by when the assumed numbers are lowered, in proportion."""
    if not names:
        return 0.0
    lowered: Mapping[str, Fraction] = {k: chip.numbers[k].value * (1 - STEP) for k in names}
    other = replay(path, chip, dma_from_trace=dma_from_trace, what_if=lowered)
    moved = abs(result.total_simulated_ns - other.total_simulated_ns)
    return min(1.0, moved / result.total_simulated_ns / float(STEP))


def _inputs(path: Path) -> list[Path]:
    stem = path.name.removesuffix(STREAM)
    return [p for p in (path, path.with_name(stem + PACKETS), path.with_name("profiles.json")) if p.is_file()]


def keep(folder: Path, chip: str | Chip = "trn2", place: Path = KEPT) -> Path:
    """Replay a folder and write what it gave; the commit stays where nothing changed."""
    before = json.loads(place.read_text()) if place.is_file() else {}
    runs = measured(folder, chip)
    data = before if before.get("runs") == runs else {"commit": _commit(), "runs": runs}
    with replacing(place) as partial:
        partial.write_bytes((json.dumps(data, indent=1) + "\n").encode())
    return place


def _commit() -> str:
    """The commit that the working copy is at."""
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise ProgramError("replays", "no commit", "a git working copy, to say what code gave the numbers") from None
    return found.stdout.strip()
