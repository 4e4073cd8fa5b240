"""A hardware profile's kernel as it ran, without its operands: engines, opcodes, times, and who waits for whom.

What `nc-sim compare` needs; so it takes kernels whose operands nc-sim does not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import attrs

from ..isa import Engine
from ..isa.errors import ProgramError
from ..lower import queue_name
from . import profile_csv, profile_json
from .profile_csv import Measured, in_body, in_order, kernel, origin_of, require_kernel
from .profile_packets import Part, beside, packet, parts, require_same_run
from .profile_packets import rows as packet_rows

WAIT = re.compile(r"(?<!\$)S\[(\d+)\](?: \(([^)]*)\))?>=\d+")
UPDATE = re.compile(r"(?<!\$)S\[(\d+)\](?: \([^)]*\))?(?:\+\+|--|\+=|-=|=)")
RAISED = re.compile(r"\bsemaphore=(\d+)")  # by a DMA, as its trigger says


@attrs.frozen(eq=False)
class Stream:
    """A kernel body, in program order of each queue."""

    name: str
    engines: tuple[Engine, ...]
    measured: tuple[Measured, ...]
    waits: tuple[str, ...]  # of each instruction: the engines and DMA queues whose semaphores it waits for; empty: none
    origin_ns: int  # release of Sync: time zero
    parts: tuple[Part, ...] | None  # of DMA engines; None: the profile does not tell
    core: int | None
    simulated: bool = False  # an export of a simulation
    zero_known: bool = True  # False: Sync has no instruction, and time zero follows from the releases given

    @property
    def body_ns(self) -> int:
        """From time zero to the end of the last instruction."""
        return max(m.start_ns + m.duration_ns for m in self.measured) - self.origin_ns


def read(path: Path, release_ns: Mapping[Engine, float] | None = None, core: int | None = None) -> Stream:
    """The kernel body of `NAME.instr.csv`, or of a JSON export; errors as of `profile_csv.read`."""
    name = path.name.removesuffix(".csv").removesuffix(".instr").removesuffix(".json")
    packets: Iterable[tuple[str, Mapping[str, str]]] | None = None
    number, simulated, begin = None, False, None
    if profile_json.is_json(path):
        document = profile_json.load(path)
        simulated = document.told["is_simulation"]
        export = profile_json.read(document, of_simulation if simulated else of_kernel, core)
        begin = export.begin_ns
        found: Sequence[tuple[str, dict[str, str]]] = profile_csv.known(export.rows)
        packets, number = export.packets or None, export.core
    elif core is not None:
        raise ProgramError(str(path), f"core {core} of a CSV", "a JSON export, which tells the cores apart")
    else:
        found = list(profile_csv.rows(path))
        packets = packet_rows(beside(path)) if beside(path).exists() else None
    body = list(in_order(kernel(found, of_simulation if simulated else of_kernel)))
    require_kernel(path, body)
    measured = tuple(profile_csv.measured_of(r) for _, _, r in body)
    engines = tuple(e for e, _, _ in body)
    starts = ((e, m.start_ns) for e, m in zip(engines, measured, strict=True))
    origin = origin_of(path, starts, release_ns or {}) if begin is None else begin
    moved = None if packets is None else [packet(r) for _, r in packets]
    require_same_run(beside(path) if number is None else path, measured, moved or ())
    told = None if moved is None else tuple(parts(moved))
    known = begin is not None or Engine.SYNC in engines
    return Stream(name, engines, measured, _waits(engines, measured), origin, told, number, simulated, known)


def of_kernel(row: Mapping[str, str]) -> bool:
    """Whether an instruction is a kernel's: by what it is, or since a line of the user's script made it, as a loop's branches."""
    return in_body(row) or bool(row.get("line"))


def of_simulation(row: Mapping[str, str]) -> bool:
    """All of a simulation are the kernel's: nc-sim gives the runtime's preamble a time, but no instructions."""
    return True


def _waits(engines: Sequence[Engine], measured: Sequence[Measured]) -> tuple[str, ...]:
    """For each instruction who raises the semaphores it waits for: who does in this kernel, else whom the text names."""
    raised: dict[str, set[str]] = {}
    for engine, m in zip(engines, measured, strict=True):
        for semaphore in UPDATE.findall(m.operands):
            raised.setdefault(semaphore, set()).add(engine.label)
        for semaphore in RAISED.findall(m.operands):
            raised.setdefault(semaphore, set()).add(queue_name(engine, "software" if engine is Engine.GPSIMD else "hardware"))
    return tuple(named({who for s, owner in WAIT.findall(m.operands) for who in raised.get(s, {owner or f"S[{s}]"})}) for m in measured)


def named(who: Iterable[str]) -> str:
    """Several names as one."""
    return ", ".join(sorted(who))
