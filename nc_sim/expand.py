"""Calls to machine instructions, as the compiler does it: passes, table loads, identities, accumulation flags."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

import attrs
import numpy as np

from .access import covers
from .chip import Reader
from .control import Code, listed, placed
from .isa import Engine, Instruction, Memory, Step, View
from .isa.dma import Dma, DmaDirect2d
from .isa.dtypes import DType, storage
from .isa.errors import NcSimError
from .isa.registers import LoopEnd, LoopFor, LoopWhile, Sequenced
from .isa.scalar import TableLoad
from .isa.tensor import NcMatmul, NcMatmulMx
from .program import Program, Tensor
from .progress import Tell, told

IDENTITY = 128  # rows and columns of the array


@attrs.frozen
class Expanded:
    """Machine instructions in program order, and every tensor they touch."""

    name: str
    steps: tuple[Step, ...]
    tensors: dict[str, Tensor]
    explicit: bool
    code: Code = ()  # of a program with registers: the same as a tree of loops
    loops: tuple[tuple[int, int], ...] = ()  # first and last step of each, inner ones first


def expand(program: Program, chip: Reader, progress: Tell | None = None) -> Expanded:
    """Turn every call into machine instructions for one chip. `progress` is told calls done and calls in all."""
    target = _Target(program, chip)
    body: list[Step] = []
    sums = _Sums()
    # The program's own calls by identity, for 0.0 and -0.0 are equal.
    known: dict[tuple[int, Engine | None], tuple[Engine, tuple[Instruction, ...]]] = {}
    for index, step in enumerate(told(program.steps, progress)):
        if program.registers and isinstance(step.instruction, Sequenced):
            body.append(attrs.evolve(step, call=index))
            sums.pass_by(step.instruction, index)
            continue
        try:
            call = sums.decide(step.instruction, index)
            key = (id(call), step.engine if step.chosen else None)
            if (found := known.get(key)) is None:
                engine = step.engine if step.chosen else call.default_engine(target)
                found = engine, tuple(call.expand(target, engine))
                for machine in found[1]:
                    if machine is not call:
                        machine.check()
                # slices of HBM are others each time, as a rule
                if call is step.instruction and all(v.memory is not Memory.HBM for _, v, _ in call.views):
                    known[key] = found
        except NcSimError as e:
            where = f"{step.line} {step.engine.name.lower()} {step.instruction.mnemonic}".strip()
            raise e.at(step.line if e.where else where) from None
        engine, made = found
        if len(made) == 1:
            body.append(Step(made[0], engine, step.waits, step.updates, step.line, index))
            continue
        for k, machine in enumerate(made):
            waits = step.waits if k == 0 else ()
            updates = step.updates if k == len(made) - 1 else ()
            body.append(Step(machine, engine, waits, updates, step.line, index))
    steps = [*target.first, *body]
    if not target.explicit:
        steps = _load_tables(steps, chip, bool(program.registers))
    if not program.registers:
        return Expanded(program.name, tuple(steps), target.tensors, target.explicit)
    code = placed(steps)
    steps, loops = listed(code)
    return Expanded(program.name, tuple(steps), target.tensors, target.explicit, code, tuple(loops))


class _Sums:
    """accumulate=None: the first product into a place overwrites, later ones accumulate (nki.isa.nc_matmul).

    Once another instruction has touched the place, that reading is in doubt, and the user has to say.
    """

    def __init__(self) -> None:
        self.products: dict[str, list[tuple[View, int]]] = {}  # PSUM tensor -> views started, and their last product
        self.touched: dict[str, list[tuple[View, int]]] = {}  # and what others touched, and when
        self.loops: list[int] = []  # where the open loops began
        self.over: list[tuple[int, int]] = []  # first and last call of the loops behind

    def decide(self, call: Instruction, index: int) -> Instruction:
        """The call with its flag set."""
        if not isinstance(call, NcMatmul | NcMatmulMx) or (isinstance(call, NcMatmul) and call.is_transpose):
            for _, view, _ in call.views:
                if view.tensor in self.products:
                    self.touched.setdefault(view.tensor, []).append((view, index))
            return call
        before = self.products.setdefault(call.dst.tensor, [])
        if call.accumulate is None:
            last = max((k for v, k in before if covers(v, call.dst)), default=-1)
            call.require(
                not self.doubtful(last),
                "accumulate=None, where rounds of a loop are not alike",
                "accumulate=True or False for the first product of a loop's body, and for the first after a loop with products",
            )
            call.require(
                last >= 0 or not any(v.overlaps(call.dst) for v, _ in before),
                f"accumulate=None into {call.dst}, of which an earlier product started a part",
                "accumulate=True or False",
            )
            call.require(
                last < 0 or not any(v.overlaps(call.dst) for v in self.touched_since(call.dst.tensor, last)),
                f"accumulate=None into {call.dst}, which was read or written since its last product",
                "accumulate=True to go on with the sum, or False to start anew",
            )
            call = attrs.evolve(call, accumulate=last >= 0)
        started = not call.accumulate or any(v == call.dst or covers(v, call.dst) for v, _ in before)
        before[:] = [(v, index if covers(call.dst, v) else k) for v, k in before if v != call.dst]
        if started:
            before.append((call.dst, index))
        return call

    def pass_by(self, call: Instruction, index: int) -> None:
        """Note where loops begin and end."""
        if isinstance(call, LoopFor | LoopWhile):
            self.loops.append(index)
        elif isinstance(call, LoopEnd) and self.loops:
            self.over.append((self.loops.pop(), index))

    def doubtful(self, last: int) -> bool:
        """True if rounds of a loop differ in whether the product `last` came before: it stands outside the body, or in a loop behind."""
        return bool(self.loops and last < self.loops[-1]) or any(a < last < b for a, b in self.over)

    def touched_since(self, tensor: str, product: int) -> Iterator[View]:
        """What others touched of a tensor after a product, latest first: a long loop touches it again and again."""
        return (view for view, _ in takewhile(lambda t: t[1] > product, reversed(self.touched.get(tensor, []))))


def _load_tables(steps: list[Step], chip: Reader, loops_too: bool) -> list[Step]:
    """One ACT_TABLE_LOAD at the head of ScalarE's queue, then one before each function outside the resident set."""
    if not any(_function(s) for s in steps):
        return steps
    free, *sets = chip("scalar.table_sets")

    def group(f: str) -> tuple[str, ...]:
        return next((s for s in sets if f in s), (f,))

    first = next((f for s in steps if (f := _function(s)) and f not in free), None)
    resident = group(first) if first else free
    out: list[Step] = []
    loaded = False
    kept: list[bool] = []  # of each open loop: its functions are resident all the time
    inside = _functions_of_loops(steps) if loops_too else {}
    for index, step in enumerate(steps):
        if index in inside:
            kept.append(all(f in free or f in resident for f in inside[index]))
            resident = resident if kept[-1] else free  # in a later round something else may be
        elif kept and isinstance(step.instruction, LoopEnd) and not kept.pop():
            resident = free
        if not loaded and (step.engine is Engine.SCALAR or isinstance(step.instruction, Sequenced)):  # which may come to ScalarE too
            out.append(Step(TableLoad(function=first or "copy"), Engine.SCALAR, line=step.line))
            loaded = True
        function = _function(step)
        if function and function not in free and function not in resident:
            out.append(Step(TableLoad(function=function), Engine.SCALAR, line=step.line))
            resident = group(function)
        out.append(step)
    return out


def _functions_of_loops(steps: Sequence[Step]) -> dict[int, set[str]]:
    """The activation functions in the body of each loop, by the index of its beginning."""
    out: dict[int, set[str]] = {}
    stack: list[int] = []
    for index, step in enumerate(steps):
        if isinstance(step.instruction, LoopFor | LoopWhile):
            out[index] = set()
            stack.append(index)
        elif isinstance(step.instruction, LoopEnd) and stack:
            stack.pop()
        elif stack and (function := _function(step)):
            for begin in stack:
                out[begin].add(function)
    return out


def _function(step: Step) -> str | None:
    if step.engine is not Engine.SCALAR or isinstance(step.instruction, Dma):
        return None
    return step.instruction.table() or ("copy" if step.instruction.mnemonic in ("tensor_copy", "tensor_scalar") else None)


class _Target:
    """What calls may ask while they expand; collects the identities they need."""

    def __init__(self, program: Program, chip: Reader) -> None:
        self.chip, self.tensors = chip, dict(program.tensors)
        self.explicit = program.explicit
        self.first: list[Step] = []

    def feature(self, name: str) -> Any:
        if self.chip.chip.numbers[name].status == "unsupported":
            return False
        return self.chip(name)

    def hbm_kind(self, tensor: str) -> str:
        return self.tensors[tensor].kind

    def identity(self, dtype: DType) -> View:
        """Loaded from a constant in HBM ahead of every other DMA of the queue (lowering rule B4)."""
        name = f"$identity_{dtype.name}"  # no user's tensor has a name that begins so
        if name not in self.tensors:
            data = np.eye(IDENTITY).astype(storage(dtype, self.chip("types.e4m3_max"))).tobytes()
            source = Tensor(f"{name}.hbm", Memory.HBM, (IDENTITY, IDENTITY), dtype, "constant", data=data)
            self.tensors[source.name] = source
            self.tensors[name] = Tensor(name, Memory.SBUF, (IDENTITY, IDENTITY), dtype)
            hardware = self.feature("dma.hardware.available")
            load = DmaDirect2d(dst=self.tensors[name].view(), src=source.view(), generation="hardware" if hardware else "software")
            self.first.append(Step(load, Engine.SYNC if hardware else Engine.GPSIMD))
        return self.tensors[name].view()
