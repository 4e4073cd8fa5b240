"""Hardware profiles in CSV form as machine instructions with their measured times.

The kernel body is what the user's program contributed; the rest is the runtime's preamble and postamble, or the other
physical core. Grammar and rules: docs/traces.md, Reading hardware profiles.
"""

from __future__ import annotations

import collections
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from ..files import regular
from ..isa import Engine, Step, Update, UpdateOp, Wait, When
from ..isa.dma import DmaDirect2d
from ..isa.errors import NcSimError, ProgramError, Unimplemented
from ..isa.tensor import LoadWeights, Matmul
from ..program import HARDWARE_SEMAPHORES, MAX_VALUE
from . import profile_json, profile_rows
from .profile_operands import BUILD, ENGINES, Operands, matmul, word

RUNTIME = {
    "SET_ORDERING_MODE", "EVENT_SEMAPHORE", "EVENT_SEMAPHORE_RANGE_CLEAR", "NOTIFY", "COMPARE_BRANCH", "DRAIN", "WRITE",
    "NOP", "TENSOR_LOAD", "TENSOR_STORE", "MODIFY_POOL_CONFIG", "MOVE", "ALU_OP",
}  # fmt: skip
SIMULATION = "as exported (a simulation)"
COLUMNS = ("timestamp_ns", "duration_ns", "engine", "opcode", "operands", "pc")
NUMBERS = ("timestamp_ns", "duration_ns", "pc")

_WAIT = re.compile(r"(?<!\$)S\[(\d+)\](?: \(([^)]*)\))?>=(\d+)")
_UPDATE = re.compile(r"(?<!\$)S\[(\d+)\](?: \(([^)]*)\))?(\+\+|--|\+=\d+|-=\d+|=\d+)@(complete|read)")
_SEMAPHORE = re.compile(r"(?<!\$)S\[(\d+)\]")
_NAMED = re.compile(r"(?<!\$)S\[\d+\]|\bsemaphore=\d")  # a DMA's trigger names the one it raises in another way


@attrs.frozen
class Measured:
    """What the profile says of one instruction, in ns of the profile."""

    start_ns: int
    duration_ns: int
    opcode: str
    operands: str
    pc: int
    line: str = ""  # of the user's script, where the profile tells


@attrs.frozen
class Profile:
    """A kernel body as a program, beside its measurement."""

    name: str
    steps: tuple[Step, ...]
    measured: tuple[Measured, ...]  # one per step
    semaphore_names: Mapping[int, str]
    origin_ns: int  # release of Sync: time zero
    gate_phase_ns: float | None  # of an edge against time zero, where the profile tells
    gate_source: str
    core: int | None = None  # where a file has several
    packets: Sequence[profile_json.Placed] | None = None  # DMA packets, where the file itself has them
    simulated: bool = False  # an export of a simulation: its times are not measured

    @property
    def source(self) -> str:
        """What its times are, as reports call it."""
        return SIMULATION if self.simulated else "measured"


def read(
    path: Path, release_ns: Mapping[Engine, float] | None = None, core: int | None = None,
    document: profile_json.Document | None = None, unknown: set[str] | None = None,
) -> Profile:  # fmt: skip
    """The kernel body of `NAME.instr.csv`, or of a JSON export; ProgramError names file and line of anything it cannot use.

    `release_ns`, when each engine's queue is released after Sync's, places time zero where Sync has no instruction.
    `core` is one of a JSON export's; without it the one that runs a kernel. `document` is the export, where it is read already.
    With `unknown`, instructions of opcodes that nc-sim does not read are left out, and their opcodes collected there.
    """
    release_ns = release_ns or {}
    if document is None and profile_json.is_json(path):
        document = profile_json.load(path)
    export = None if document is None else profile_json.read(document, in_body, core)
    if export is None and core is not None:
        raise ProgramError(str(path), f"core {core} of a CSV", "a JSON export, which tells the cores apart")
    found = list(rows(path)) if export is None else known(export.rows)
    body = _readable(path, kernel(found), unknown)
    names: dict[int, str] = {}
    steps, measured = [], []
    low: Matmul | None = None
    loaded: LoadWeights | None = None  # what the array holds: a MATMUL's own text tells neither pass nor transpose
    for engine, where, r in in_order(body):
        step, m = _step(where, engine, r, names, loaded)
        if isinstance(step.instruction, LoadWeights):
            loaded = step.instruction
        elif isinstance(step.instruction, Matmul):
            if step.instruction.passes == "high" and low is not None:  # the sum was started, or not, by its LOW pass
                step.instruction = attrs.evolve(step.instruction, accumulate=low.accumulate)
            low = step.instruction if step.instruction.passes == "low" else None
        steps.append(step)
        measured.append(m)
    begin = None if export is None else export.begin_ns
    starts = ((s.engine, m.start_ns) for s, m in zip(steps, measured, strict=True))
    origin = origin_of(path, starts, release_ns) if begin is None else begin
    name = path.name.removesuffix(".csv").removesuffix(".instr").removesuffix(".json")
    phase, source = _gate_phase(path, name, origin, [r for _, r in found])
    if export is not None and export.rise_ns is not None:
        phase, source = export.rise_ns - origin, "the profile's windows: first rise to full rate"
    core, packets = (export.core, export.packets) if export is not None else (None, None)
    simulated = document is not None and document.told["is_simulation"]
    return Profile(name, tuple(steps), tuple(measured), names, origin, phase, source, core, packets, simulated)


def _readable(path: Path, body: list[tuple[str, dict[str, str]]], unknown: set[str] | None) -> list[tuple[str, dict[str, str]]]:
    """Those of the kernel's rows whose operands can be read."""
    others = [(where, r["opcode"]) for where, r in body if r["opcode"] not in BUILD]
    if others and unknown is None:
        raise Unimplemented(others[0][0], f"opcode {others[0][1]}", f"one of {', '.join(sorted({*BUILD, *RUNTIME}))}")
    if unknown is not None:
        unknown.update(opcode for _, opcode in others)
    require_kernel(path, body)
    return [(where, r) for where, r in body if r["opcode"] in BUILD]


def require_kernel(path: Path, body: Sequence[object]) -> None:
    """ProgramError if there is nothing in it."""
    if not body:
        raise ProgramError(str(path), "no kernel body", "instructions with semaphores or data operands")


def origin_of(path: Path, starts: Iterable[tuple[Engine, int]], release_ns: Mapping[Engine, float]) -> int:
    """The release of Sync: its first instruction, else the first of another engine less that engine's release.

    `starts` are engines and starts in order of the queues.
    """
    first: dict[Engine, int] = {}
    for engine, start in starts:
        first.setdefault(engine, start)
    if Engine.SYNC in first:
        return first[Engine.SYNC]
    # Only a start that waited for nothing shows a release; the earliest is the best there is.
    known = [start - round(release_ns[e]) for e, start in first.items() if e in release_ns]
    if not known:
        raise ProgramError(str(path), "no instruction on Sync", "one, or the releases of the other engines: time zero is Sync's release")
    return max(0, min(known))


def _known(where: str, row: dict[str, str]) -> dict[str, str]:
    if row["engine"] not in ENGINES:
        raise ProgramError(where, f"engine {row['engine']!r:.40}", f"one of {', '.join(ENGINES)}")
    return row


def known(rows: Iterable[tuple[str, dict[str, str]]]) -> list[tuple[str, dict[str, str]]]:
    """The rows, if each is on an engine that there is."""
    return [(where, _known(where, row)) for where, row in rows]


def measured_of(row: Mapping[str, str]) -> Measured:
    """What a row says of its instruction."""
    line = (row.get("line") or "").rsplit("/", 1)[-1]  # without folders, as the builder records it
    return Measured(int(row["timestamp_ns"]), int(row["duration_ns"]), row["opcode"], row["operands"].strip(), int(row["pc"]), line)


def rows(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Every row of `NAME.instr.csv` with its file and line, checked; those of the runtime too."""
    for where, row in profile_rows.read(path, COLUMNS, NUMBERS, "a profile: NAME.instr.csv or a JSON export"):
        yield where, _known(where, row)


def kernel(
    rows: Sequence[tuple[str, dict[str, str]]], known: Callable[[Mapping[str, str]], bool] | None = None
) -> list[tuple[str, dict[str, str]]]:
    """Rows of the user's program, which are those `known` to be. An opcode nobody knows is between them, or names a semaphore."""
    known = known or in_body
    body = [r for _, r in rows if known(r)]
    span: dict[Engine, tuple[int, int]] = {}
    for r in body:
        pc, engine = int(r["pc"]), ENGINES[r["engine"]]
        low, high = span.get(engine, (pc, pc))
        span[engine] = min(low, pc), max(high, pc)

    def inside(r: Mapping[str, str]) -> bool:
        low, high = span.get(ENGINES[r["engine"]], (1, 0))
        return low <= int(r["pc"]) <= high or _NAMED.search(r["operands"]) is not None

    return [(where, r) for where, r in rows if known(r) or (r["opcode"] not in BUILD and r["opcode"] not in RUNTIME and inside(r))]


def in_body(row: Mapping[str, str]) -> bool:
    """Whether an instruction is a kernel's, not the runtime's."""
    opcode = row["opcode"]
    if opcode in ("EVENT_SEMAPHORE", "NOP"):
        return _SEMAPHORE.search(row["operands"]) is not None
    return opcode in BUILD and opcode not in RUNTIME


def in_order(body: Iterable[tuple[str, dict[str, str]]]) -> Iterator[tuple[Engine, str, dict[str, str]]]:
    """Every queue in program order, interleaved by measured start for reading."""
    queues: dict[Engine, list[tuple[str, dict[str, str]]]] = collections.defaultdict(list)
    for where, r in body:
        queues[ENGINES[r["engine"]]].append((where, r))
    for queue in queues.values():
        once = len({r["pc"] for _, r in queue}) == len(queue)
        queue.sort(
            key=lambda x: int(x[1]["pc" if once else "timestamp_ns"])
        )  # time order is not program order, but a loop's is best known by it
    at = dict.fromkeys(sorted(queues), 0)
    while at:
        engine = min(at, key=lambda e: (int(queues[e][at[e]][1]["timestamp_ns"]), e))
        where, row = queues[engine][at[engine]]
        yield engine, where, row
        at[engine] += 1
        if at[engine] == len(queues[engine]):
            del at[engine]


def _step(where: str, engine: Engine, row: Mapping[str, str], names: dict[int, str], loaded: LoadWeights | None) -> tuple[Step, Measured]:
    text, opcode = row["operands"], row["opcode"]
    waits = tuple(Wait(int(s), int(v)) for s, _, v in _WAIT.findall(text))
    updates = tuple(_update(*m) for m in _UPDATE.findall(text))
    if len(_SEMAPHORE.findall(text)) != len(waits) + len(updates):
        raise ProgramError(where, f"semaphore operands in {text!r}", "S[n]>=v, or S[n]++@complete and its kind")
    for semaphore, value in [(w.semaphore, w.value) for w in waits] + [(u.semaphore, u.value) for u in updates]:
        if semaphore >= HARDWARE_SEMAPHORES or value > MAX_VALUE:
            raise ProgramError(where, f"semaphore {semaphore}, value {value}", f"below {HARDWARE_SEMAPHORES}, at most {MAX_VALUE}")
    for s, owner, _ in _WAIT.findall(text):
        _name(names, int(s), owner)
    for s, owner, *_ in _UPDATE.findall(text):
        _name(names, int(s), owner)
    try:
        operands = Operands(text, row)
        instruction = matmul(operands, loaded) if opcode == "MATMUL" else BUILD[opcode](operands)
        instruction.check()
    except NcSimError as e:
        raise e.at(f"{where} {opcode}") from None
    if isinstance(instruction, DmaDirect2d):
        semaphore, count = (word(text, w, where) for w in ("semaphore", "sem_increment"))
        updates = (*updates, Update(semaphore, UpdateOp.ADD, count))
        _name(names, semaphore, "")
    return Step(instruction, engine, waits, updates, where), measured_of(row)


def _name(names: dict[int, str], semaphore: int, owner: str) -> None:
    """S[5] (Tensor); a DMA trigger's text tells no owner, a wait for it does."""
    if owner or semaphore not in names:
        names[semaphore] = f"S[{semaphore}] ({owner})" if owner else f"S[{semaphore}]"


def _update(semaphore: str, _owner: str, op: str, when: str) -> Update:
    kinds = {"++": (UpdateOp.ADD, 1), "--": (UpdateOp.SUB, 1)}
    kind, value = kinds.get(op, (UpdateOp.SET, 0))
    if op[:2] in ("+=", "-="):
        kind, value = (UpdateOp.ADD if op[0] == "+" else UpdateOp.SUB), int(op[2:])
    elif op[0] == "=":
        value = int(op[1:])
    return Update(int(semaphore), kind, value, When.READ if when == "read" else When.COMPLETE)


# ---- the clock gate's phase


def _gate_phase(path: Path, name: str, origin: int, rows: list[dict[str, str]]) -> tuple[float | None, str]:
    """From profiles.json beside the trace; else bracketed from the trace's clock column; else unknown."""
    listed = path.with_name("profiles.json")
    if (start := _listed_rise(listed, name)) is not None:
        return start - origin, f"{listed.name}: first rise to full rate"
    clock = sorted((int(r["timestamp_ns"]), r["ham_k"]) for r in rows if r.get("ham_k") is not None)
    changes = [(after - before, before, after) for (before, a), (after, b) in itertools.pairwise(clock) if (a == "8") != (b == "8")]
    if changes:  # every change is at an edge of the same free-running windows: the narrowest bracket says most
        _, before, after = min(changes)
        return (before + after) / 2 - origin, f"clock column: a transition between {before} and {after} ns"
    return None, "nominal: the trace does not tell"


def _listed_rise(listed: Path, name: str) -> float | None:
    """When the clock first rises, from a list of windows beside the trace; None if there is no such list."""
    try:
        windows = json.loads(regular(listed).read_text(encoding="utf-8-sig"))["kernels"][name]["ham"]
        rises = [float(w["start_ns"]) for w in windows if w["k"] == 8 and float(w["start_ns"]) > 0]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return next((r for r in rises if math.isfinite(r)), None)


def body_length(profile: Profile) -> int:
    """Measured length of the kernel body, ns."""
    return max(m.start_ns + m.duration_ns for m in profile.measured) - profile.origin_ns
