"""What the tables of a device profile are made from: a hardware trace, and of its program the chip, the tensors and who uses them."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import attrs
import msgpack
import numpy as np

from ..alike import kind_of
from ..chip import Chip, Number
from ..files import regular
from ..forms import decode_step, program_tensors
from ..isa import Memory, View, fields_of
from ..isa.errors import NcSimError, ProgramError
from ..isa.fields import Maybe, Operand
from ..isa.text import instruction_class
from ..program import Tensor
from ..progress import AT_ONCE, Tell, weighted
from ..result import Result
from ..schema import SCHEMA
from ..table import Ints
from ..timing import dma as dma_timing
from ..timing.dma import Share
from ..trace import hardware
from ..trace.hardware import PROGRAM_FORMAT, PROGRAM_SUFFIX, PROGRAM_VERSION, Trace
from ..trace.stored import map_of, require


@attrs.frozen(eq=False)
class Touches:
    """Which instruction uses which tensor: one entry for each operand."""

    names: tuple[str, ...]
    tensor: Ints  # index into names
    step: Ints  # row of the trace's instructions
    written: Ints  # 1: the operand is written


@attrs.frozen(eq=False)
class Device:
    """One execution on one core."""

    trace: Trace
    chip: Chip
    tensors: Mapping[str, Tensor]
    addresses: Mapping[str, int]
    touches: Touches
    call: Ints  # of each instruction: the user's call it was made from, or -1
    kinds: tuple[tuple[Share, ...], ...]  # of DMA: what the timing model says of each engine's part
    kind: Ints  # of each transfer
    physical_cores: int = 1  # of the logical core

    @property
    def name(self) -> str:
        """Of the program."""
        return str(self.trace.metadata["program"])

    @property
    def shift_ns(self) -> int:
        """Profiles count from the start of the execution; traces from the start of the body, a prologue later."""
        return int(self.trace.metadata["prologue_ns"])

    @property
    def total_ns(self) -> int:
        """The whole execution: prologue, body, epilogue."""
        m = self.trace.metadata
        return int(m["prologue_ns"] + m["duration_ns"] + m["epilogue_ns"])

    @property
    def core(self) -> int:
        """The number of the logical core."""
        return int(self.trace.metadata["vnc"])

    def number(self, name: str) -> Any:
        """A number of the chip; None where the chip has none."""
        found = self.chip.numbers.get(name)
        return None if found is None else found.value


def of_result(result: Result) -> Device:
    """The source of a finished run's tables."""
    made = result.compiled
    touches = _Touches()
    for row, step in enumerate(made.steps):
        for _, view, written in step.instruction.views:
            touches.add(view.tensor, row, written)
    call = np.fromiter((s.call for s in made.steps), np.int64, len(made.steps))
    trace = hardware.trace_of(result)
    dmas = _Dmas(made.chip)
    for row in trace.transfers.instruction.tolist():
        instruction = made.steps[row].instruction
        dmas.add(row, kind_of(instruction), partial(_given, instruction))
    return Device(trace, made.chip, made.tensors, made.addresses, touches.done(), call, *dmas.done(trace))


def read(path: str | Path, physical_cores: int = 1, progress: Tell | None = None) -> Device:
    """The source of a saved run's tables: a trace file or its folder, with the program beside it.

    `progress` is told how far it is. ProgramError for a folder that holds no pair, one without its other half, and a file
    that is not of nc-sim.
    """
    where = Path(path)
    if where.is_dir() and not list(where.glob(f"*{hardware.TRACE_SUFFIX}")) and (programs := sorted(where.glob(f"*{PROGRAM_SUFFIX}"))):
        raise ProgramError(
            str(where), f"{programs[0].name} without a trace", f"the pair that Result.save wrote: *{hardware.TRACE_SUFFIX} too"
        )
    first, then = weighted(progress, 1, 4)
    return with_program(hardware.load(where, first), physical_cores, then)


def with_program(trace: Trace, physical_cores: int = 1, progress: Tell | None = None) -> Device:
    """A trace that lies in a folder, and what the program file beside it says."""
    assert trace.path is not None
    path = trace.path.parent / f"neff_{trace.hash}{PROGRAM_SUFFIX}"
    try:
        data = regular(path).read_bytes()
    except OSError as e:
        raise ProgramError(
            str(path), f"cannot be read: {e.strerror}", f"the program of {trace.path.name}, which Result.save wrote"
        ) from None
    found, wanted = hashlib.sha256(data).hexdigest(), trace.program_sha256
    require(
        found == wanted, str(path), f"SHA-256 {found[:12]}…", f"{wanted[:12]}…, of the program that {trace.path.name} was recorded with"
    )
    raw = map_of(data, str(path), PROGRAM_FORMAT, PROGRAM_VERSION)
    try:
        addresses = {str(k): int(v) for k, v in msgpack.unpackb(raw["addresses"]).items()}
        tensors = {t.name: t for t in program_tensors(raw["program"], str(path))}
        chip = attrs.evolve(_chip(raw["chip"]), extrapolated=trace.metadata.get("extrapolated", ""))
        dmas = _Dmas(chip)
        touches, call, others = _steps(raw["machine"], tensors, trace, dmas, progress)
    except NcSimError as e:
        raise e.at(str(path)) from None
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, msgpack.UnpackException) as e:
        raise ProgramError(str(path), f"unreadable: {e}", "a program that Result.save wrote") from None
    lost = next((n for n in touches.names if n not in addresses), None)
    require(lost is None, str(path), f"no address of tensor {lost}", "one for every tensor that an instruction uses")
    require(len(call) == len(trace.instructions), str(path), f"{len(call)} instructions", f"{len(trace.instructions)}, as in its trace")
    return Device(trace, chip, {**tensors, **others}, addresses, touches, call, *dmas.done(trace), physical_cores)


def _steps(
    packed: bytes, known: Mapping[str, Tensor], trace: Trace, dmas: _Dmas, progress: Tell | None = None
) -> tuple[Touches, Ints, dict[str, Tensor]]:
    """Machine instructions as they are stored: operands, calls, and tensors that nc-sim added, which its first operand shows whole."""
    operands: dict[str, list[tuple[str, bool]]] = {}
    touches, call, others = _Touches(), array("q"), dict[str, Tensor]()
    triggers = set(trace.transfers.instruction.tolist())
    for row, step in enumerate(msgpack.Unpacker(BytesIO(packed), max_buffer_size=0)):
        mnemonic, values = step[2], step[3]
        if mnemonic not in operands:
            operands[mnemonic] = list(_operands(mnemonic))
        for name, written in operands[mnemonic]:
            value = values[name]
            if type(value) is list:
                tensor = value[0]
                touches.add(tensor, row, written)
                if tensor not in known and tensor not in others:
                    others[tensor] = _whole(Operand().decode(value))
        call.append(step[6])
        if row in triggers:
            dmas.add(row, _stored_kind(step), partial(_decoded, step))
        if progress is not None and (row + 1 == len(trace.instructions) or row % AT_ONCE == AT_ONCE - 1):
            progress(row + 1, len(trace.instructions))
    return touches.done(), np.frombuffer(call, np.int64), others


def _operands(mnemonic: str) -> Iterator[tuple[str, bool]]:
    """Fields that hold a tensor, or may, and whether it is written."""
    for name, kind in fields_of(instruction_class(mnemonic)).items():
        inner = kind.kind if isinstance(kind, Maybe) else kind
        if (written := getattr(inner, "writes", None)) is not None:
            yield name, bool(written)


def _whole(view: View) -> Tensor:
    return Tensor(view.tensor, view.memory, view.shape, view.dtype, "constant" if view.memory is Memory.HBM else "internal")


class _Touches:
    """Collects who uses what."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.columns = array("q"), array("q"), array("q")

    def add(self, tensor: str, row: int, written: bool) -> None:
        for column, value in zip(self.columns, (self.names.setdefault(tensor, len(self.names)), row, int(written)), strict=True):
            column.append(value)

    def done(self) -> Touches:
        return Touches(tuple(self.names), *(np.frombuffer(c, np.int64) if c else np.zeros(0, np.int64) for c in self.columns))


class _Dmas:
    """The timing model's parts of each DMA, in order of the triggers; those of one kind are worked out once."""

    def __init__(self, chip: Chip) -> None:
        self.reader = chip.reader()
        self.known: dict[object, int] = {}
        self.kinds: list[tuple[Share, ...]] = []
        self.kind: dict[int, int] = {}  # by row of the trigger

    def add(self, row: int, key: object, instruction: Callable[[], Any]) -> None:
        """A trigger. Which places in memory it names makes no difference."""
        if (number := self.known.get(key)) is None:
            number = self.known[key] = len(self.kinds)
            self.kinds.append(tuple(dma_timing.shares(instruction(), self.reader)))
        self.kind[row] = number

    def done(self, trace: Trace) -> tuple[tuple[tuple[Share, ...], ...], Ints]:
        """The kinds, and the kind of each transfer."""
        rows = trace.transfers.instruction.tolist()
        return tuple(self.kinds), np.fromiter((self.kind[r] for r in rows), np.int64, len(rows))


def _given(instruction: Any) -> Any:
    return instruction


def _decoded(step: list[Any]) -> Any:
    return decode_step(step).instruction


def _stored_kind(step: list[Any]) -> object:
    """A stored trigger without the names of its tensors and the offsets in them."""
    fields = ((k, str([v[1:5], v[6:]]) if type(v) is list else v) for k, v in step[3].items())
    return step[2], *fields


def _chip(raw: Mapping[str, Any]) -> Chip:
    """The chip whose numbers stand in a program file; those that this nc-sim does not know are left out."""
    numbers = {
        k: Number(None if value is None else SCHEMA[k].convert(value, k), status, source)
        for k, (value, status, source) in raw["numbers"].items()
        if k in SCHEMA
    }
    return Chip(raw["name"], raw["core"], numbers, raw["sources"], raw["overrides"])


def tensors_of(device: Device, kinds: Iterable[str]) -> list[Tensor]:
    """Tensors in HBM of these kinds: input, output, constant, internal."""
    return [t for t in device.tensors.values() if t.memory is Memory.HBM and t.kind in kinds]
