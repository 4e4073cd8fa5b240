"""Operand text of machine instructions, in the grammar of real traces (docs/traces.md, Operands).

    S[6] (Vector)>=7 S[4] (Scalar)++@complete EXP bias_ptr=fp32@0x6010 src=fp32@0x4020[1,1,1][512,1,1] dst=… channels=128 …

What instruction and semaphores do comes first, then what it works on; `profile_csv` reads the result back. Opcodes that
no public trace shows print by the same rules, with nki's names of their fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..alike import exactly, kind_of
from ..isa import Engine, Instruction, Memory, Step, Update, UpdateOp, View, When, fields_of
from ..isa.control import Control, EventSemaphore, Nop
from ..isa.dma import Dma, DmaCompute2d, DmaDirect2d
from ..isa.dynamic import Register
from ..isa.fields import Maybe, Scalar
from ..isa.scalar import Activate
from ..isa.tensor import LoadWeights, Matmul
from ..table import Ints
from .profile_operands import PARTITION_STRIDE, PSUM_BASE, SBUF_APERTURE

if TYPE_CHECKING:
    from ..simulate import Compiled


MARK = "\0"  # around the number of an address in the text of a kind of instruction; no text has one
HBM_APERTURE = 0x800000000000  # where traces show tensors of the program's own in HBM

# Free dimensions that traces print, and the stride of those that pad a shorter pattern.
_PADDED = {"LDWEIGHTS": (3, 0), "MATMUL": (3, 0), "ACTIVATE": (3, 1), "TENSOR_SCALAR": (3, 1)}
_PADDED_ELSE = (4, 1)
_NAMES = {"data": "src", "data1": "src0", "data2": "src1", "on_true_tile": "src"}
_LAST = ("scale", "imm", "accumulator_cmd", "compute_op")  # words that follow the tensors


class Printer:
    """Prints steps; remembers what instructions have in common, since programs repeat themselves.

    Instructions of one kind differ only in their addresses, so the first of a kind leaves its text as pieces between them.
    """

    def __init__(self, addresses: Mapping[str, int], names: Mapping[int, str]) -> None:
        self.addresses, self.names = addresses, names
        self._seen: dict[object, str] = {}
        self._known: dict[int, str] = {}  # names of semaphores
        self._updates: dict[tuple[int, int, int, int], str] = {}
        self._kinds: dict[object, tuple[list[str], list[tuple[str, int]]]] = {}  # pieces; between them a field's address plus a base
        self._slots: list[tuple[str, int]] = []

    def text(self, step: Step) -> str:
        """The whole operand text."""
        return " ".join(w for w in (self.semaphores(step), self.body(step.instruction)) if w)

    def semaphores(self, step: Step) -> str:
        """Waits and updates; a DMA names the last semaphore it raises as traces do."""
        waits, updates = step.waits, step.updates
        if not updates and len(waits) <= 1:  # without lists for most of what a loop makes
            return f"{self.name(waits[0].semaphore)}>={waits[0].value}" if waits else ""
        if len(updates) == 1 and len(waits) <= 1 and not isinstance(step.instruction, Dma):
            raised = self.update(updates[0])
            return f"{self.name(waits[0].semaphore)}>={waits[0].value} {raised}" if waits else raised
        words = [f"{self.name(w.semaphore)}>={w.value}" for w in waits]
        if isinstance(step.instruction, Dma):
            words.extend(map(self.update, updates[:-1]))
            words.extend(f"semaphore={u.semaphore} sem_increment={u.value}" for u in updates[-1:])
        else:
            words.extend(map(self.update, updates))
        return " ".join(words)

    def name(self, semaphore: int) -> str:
        """S[6] (Vector): the number, and who owns it or what the program calls it."""
        if (known := self._known.get(semaphore)) is None:
            name = self.names.get(semaphore, "")
            known = name if name.startswith("S[") else f"S[{semaphore}] ({name})" if name else f"S[{semaphore}]"
            self._known[semaphore] = known
        return known

    def update(self, u: Update) -> str:
        """S[4] (Scalar)++@complete."""
        key = u.semaphore, u.op, u.value, u.when
        if (known := self._updates.get(key)) is None:
            sign = {UpdateOp.ADD: "+", UpdateOp.SUB: "-"}.get(u.op, "")
            change = sign * 2 if sign and u.value == 1 else f"{sign}={u.value}"
            known = f"{self.name(u.semaphore)}{change}@{'read' if u.when is When.READ else 'complete'}"
            self._updates[key] = known
        return known

    def body(self, instruction: Instruction) -> str:
        """Everything but the semaphores."""
        key = exactly(instruction)
        if (known := self._seen.get(key)) is None:
            known = self._seen[key] = self.body_of(instruction, kind_of(instruction))
        return known

    def body_of(self, i: Instruction, kind: object) -> str:
        """The same for an instruction that comes once, whose kind is known."""
        # a view of no tensor of the program prints in a way of its own
        addresses = self.addresses
        placed = tuple([None if v.tensor in addresses else v.tensor for _, v, _ in i.views])
        key = kind, placed
        if (known := self._kinds.get(key)) is None:
            self._slots = []
            pieces = " ".join(self._words(i)).split(MARK)
            known = self._kinds[key] = pieces[::2], [self._slots[int(k)] for k in pieces[1::2]]
        pieces, slots = known
        text = pieces[0]
        for (name, base), piece in zip(slots, pieces[1:], strict=True):
            text += f"{base + self._address(getattr(i, name, None) or _named(i, name)):#x}{piece}"
        return text

    def _slot(self, name: str, base: int = 0) -> str:
        """The place of a field's address."""
        self._slots.append((name, base))
        return f"{MARK}{len(self._slots) - 1}{MARK}"

    def _words(self, i: Instruction) -> list[str]:
        if isinstance(i, Dma):
            return self._dma(i)
        if isinstance(i, EventSemaphore):
            return ["setter=0"]
        if isinstance(i, Nop):
            return ["cycle=0"]
        words = i.attributes().split()
        first = [w for w in words if w.partition("=")[0] not in _LAST]
        last = [w for w in words if w not in first]
        if isinstance(i, Activate):
            last.insert(1, f"imm={0.0 if i.bias is None or isinstance(i.bias, View) else float(i.bias):f}")
        vectors = [n for n in ("bias", "scale") if isinstance(getattr(i, n, None), View)]
        first.extend(f"{n}_ptr={getattr(i, n).dtype.trace_name}@{self._slot(n)}" for n in vectors)
        if "operand0" in fields_of(type(i)):
            first[1:1] = self._immediates(i)
        skipped = {*vectors, *(n for n in _immediate_names(i) if isinstance(getattr(i, n), View))}
        views = [(n, v) for n, v, _ in sorted(i.views, key=lambda x: x[2]) if n not in skipped and not n.endswith(".index")]
        tensors = [self._tensor(i, n, v) for n, v in views]
        indices = [self._index(n, _NAMES.get(n, n), v, base=0) for n, v, _ in i.views if v.dynamic is not None]
        return [*first, *tensors, *indices, *_size(i), *last]

    def _immediates(self, i: Instruction) -> list[str]:
        """imm=A,B and where each comes from: PTR reads one fp32 per partition at an address."""
        names = "operand0", "operand1"
        values = [getattr(i, n) if n in _immediate_names(i) else None for n in names]
        pairs = zip(names, values, strict=True)
        shown = [self._slot(n) if isinstance(v, View) else "0" if v is None else repr(float(v)) for n, v in pairs]
        words = [f"imm={','.join(shown)}"]
        if "imm_src=" not in i.attributes():
            words.append("imm_src=" + ",".join("PTR" if isinstance(v, View) else "INSTRUCTION" for v in values))
        return words

    def _address(self, v: View) -> int:
        """As engines see it: partitions PARTITION_STRIDE apart, PSUM behind SBUF."""
        base = PSUM_BASE if v.memory is Memory.PSUM else 0
        return base + v.partition * PARTITION_STRIDE + self.addresses.get(v.tensor, 0) + v.offset

    def _tensor(self, i: Instruction, name: str, v: View) -> str:
        """src=bfloat16@0x37600[1,0,0][512,1,1], the innermost dimension first."""
        size, stride = _PADDED.get(i.opcode, _PADDED_ELSE)
        missing = max(0, size - len(v.counts))
        strides = [*reversed(v.strides), *(stride,) * missing]
        counts = [*reversed(v.counts), *(1,) * missing]
        dtype = "" if isinstance(i, Matmul) and name == "dst" and v.dtype.name == "float32" else f"{v.dtype.trace_name}@"
        return f"{_NAMES.get(name, name)}={dtype}{self._slot(name)}{_listed(strides)}{_listed(counts)}"

    # ---- DMA

    def _dma(self, i: Dma) -> list[str]:
        if isinstance(i, DmaDirect2d):
            sides, rows = {"src": i.src, "dst": i.dst}, dict.fromkeys(("src", "dst"), i.row_elements)
            patterns = dict(zip(sides, patterns_of(i), strict=True))
        else:
            sides = {n: v for n, v, _ in sorted(i.views, key=lambda x: x[2]) if not n.endswith(".index")}
            rows = {n: 1 if i.axes is not None and n == "dst" else i.row_elements for n in sides}
            patterns = {n: _padded(_rows(v, rows[n]) or [(1, 1)]) for n, v in sides.items()}
        shown = {n: n.replace("srcs[", "src").rstrip("]") for n in sides}
        return [
            *(f"{shown[n]}_elem_size={rows[n] * v.dtype.itemsize}" for n, v in sides.items()),
            *(f"{shown[n]}_pattern={_listed([s for s, _ in p])}{_listed([c for _, c in p])}" for n, p in patterns.items()),
            *(word for n, v in sides.items() for word in (self._place(n, shown[n], v), f"{shown[n]}_shape_reg=0")),
            *(self._index(n, shown[n], v) for n, v in sides.items() if v.dynamic is not None),
            *([f"axes={_listed(i.axes)}"] if i.axes is not None else []),
            f"compute_op={'ADD' if isinstance(i, DmaCompute2d) else 'NONE'}",
            *(["oob=SKIP"] if i.skips else []),
        ]

    def _index(self, name: str, shown: str, v: View, base: int = SBUF_APERTURE) -> str:
        """src_index=uint32@0x37600[128,1]*512: where the numbers are, or src_index=3*512, and the elements that one of them moves."""
        assert v.dynamic is not None
        index = v.dynamic.index
        if not isinstance(index, View):
            return f"{shown}_index={index.name if isinstance(index, Register) else index}*{v.dynamic.step}"
        return f"{shown}_index={index.dtype.trace_name}@{self._slot(f'{name}.index', base)}{_listed(index.shape)}*{v.dynamic.step}"

    def _place(self, name: str, side: str, v: View) -> str:
        """An address, or an offset into a tensor that the runtime binds when the program is loaded."""
        if v.memory is not Memory.HBM:
            return f"{side}_addr_imm={self._slot(name, SBUF_APERTURE)}"
        table = v.tensor.removeprefix("table")
        if v.tensor not in self.addresses and table != v.tensor and table.isdecimal():
            return f"{side}_table_offset_imm={self._slot(name)} {side}_table_index={table}"
        base = HBM_APERTURE if v.tensor else 0  # a view without a tensor carries the address of a trace
        return f"{side}_addr_imm={self._slot(name, base)}"


def listing(compiled: Compiled) -> str:
    """The machine instructions of a compiled program, queue by queue: position, opcode, operands and the user's line."""
    printer, lines = Printer(compiled.addresses, compiled.semaphores), list[str]()
    for engine in Engine:
        queue = [s for s in compiled.steps if s.engine is engine]
        width = max((len(s.instruction.opcode) for s in queue), default=0)
        lines += [f"{engine.label}: {len(queue)} instruction{'s' * (len(queue) != 1)}"] if queue else []
        for position, step in enumerate(queue):
            text = f"{position:6}  {step.instruction.opcode:<{width}}  {printer.text(step)}".rstrip()
            lines.append(f"{text}  # {step.line}" if step.line else text)
    return "".join(f"{line}\n" for line in lines)


def operands(step: Step, addresses: Mapping[str, int], names: Mapping[int, str]) -> str:
    """The operand text of one step. `addresses` by tensor, semaphore `names` by number, as in `simulate.Compiled`."""
    return Printer(addresses, names).text(step)


def function(instruction: Instruction) -> str:
    """The activation function, as the `fn` column of a profile shows it; empty for any other instruction."""
    return instruction.attributes().partition(" ")[0] if isinstance(instruction, Activate) else ""


def track(instruction: Instruction) -> str:
    """The row of a profile's timeline that differs from the engine: MATMUL has one of its own."""
    return "TensorMatrix" if isinstance(instruction, Matmul) else ""


def moved(instruction: Instruction) -> tuple[int, ...]:
    """Bytes read and written in HBM, SBUF and PSUM, over all partitions; flops, and those that only transpose.

    An accumulating product counts the write of its destination only: PSUM adds by itself. Loads and stores of registers
    count nothing, as in `Result.bytes_moved`, which is what DMA moves.
    """
    out = [0] * 6
    for _, view, written in () if isinstance(instruction, Control) else instruction.views:
        out[2 * view.memory + written] += view.nbytes
    work = instruction.work()
    return (*out, work.flops, work.flops if work.transpose else 0)


def place(memory: Memory, tensor: str) -> str:
    """One end of a transfer: SBUF:t, HBM:x."""
    return f"{memory.name}:{tensor}"


def packet_bytes(before: Ints, packets: Ints, pieces: Ints, row_bytes: Ints) -> Ints:
    """Bytes in `packets` packets that follow `before` others, where each row is cut into `pieces`, the longer ones first."""

    def reached(packet: Ints) -> Ints:
        row, rest = np.divmod(packet, pieces)
        return np.asarray(row * row_bytes + rest * (row_bytes // pieces) + np.minimum(rest, row_bytes % pieces), np.int64)

    return np.asarray(reached(before + packets) - reached(before), np.int64)


def patterns_of(dma: DmaDirect2d) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(stride in bytes, count) of the rows on each side, source first, innermost first; the same counts where possible."""
    a, b = (_rows(v, dma.row_elements) for v in (dma.src, dma.dst))
    common = _aligned(a, b)
    a, b = ([(s, n) for n, s, _ in common], [(d, n) for n, _, d in common]) if common is not None else (a, b)
    return _padded(a), _padded(b)


def _padded(pattern: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """At least two dimensions."""
    return [*pattern, *[(1, 1)] * (2 - len(pattern))]


def _named(i: Instruction, name: str) -> View:
    """A view that is no field of its own."""
    return next(v for n, v, _ in i.views if n == name)


def _rows(v: View, row: int) -> list[tuple[int, int]]:
    """(stride in bytes, count) of a view's dimensions outside a row of `row` contiguous elements, innermost first."""
    merged: list[tuple[int, int]] = []
    for stride, count in zip(reversed(v.strides), reversed(v.counts), strict=True):
        if count == 1:
            continue
        if merged and stride == merged[-1][0] * merged[-1][1]:
            merged[-1] = (merged[-1][0], merged[-1][1] * count)
        else:
            merged.append((stride, count))
    size = v.dtype.itemsize
    out = []
    for k, (stride, count) in enumerate(merged):
        if k == 0 and stride == 1:
            stride, count = row, count // row
        if count > 1:
            out.append((stride * size, count))
    if v.memory is not Memory.HBM and v.partitions > 1:
        out.append((PARTITION_STRIDE, v.partitions))
    return out


def _aligned(a: Sequence[tuple[int, int]], b: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]] | None:
    """(count, stride of a, stride of b), dimensions split until both sides have the same counts; None if they cannot."""
    first, second = list(reversed(a)), list(reversed(b))
    out = []
    while first and second:
        (s, m), (d, n) = first.pop(), second.pop()
        count = min(m, n)
        if max(m, n) % count:
            return None
        out.append((count, s, d))
        if m > count:
            first.append((s * count, m // count))
        if n > count:
            second.append((d * count, n // count))
    return None if first or second else out


def _immediate_names(i: Instruction) -> list[str]:
    """Fields that hold a number or a [P, 1] vector."""
    if "operand0" not in fields_of(type(i)):
        return []
    return [n for n, k in fields_of(type(i)).items() if n.startswith("operand") and _is_scalar(k)]


def _is_scalar(kind: Any) -> bool:
    return isinstance(kind.kind if isinstance(kind, Maybe) else kind, Scalar)


def _size(i: Instruction) -> list[str]:
    """Rows times columns of the array; partitions of every other engine."""
    if isinstance(i, LoadWeights):
        return [f"{i.src.partitions}*{i.columns}"]
    if isinstance(i, Matmul):
        return [f"{i.src.partitions}*{i.columns}"]
    partitions = [v.partitions for n, v, w in sorted(i.views, key=lambda x: x[2]) if not n.endswith(".index")]
    return [f"channels={partitions[0]}"] if partitions else []


def _listed(numbers: Sequence[int]) -> str:
    return f"[{','.join(map(str, numbers))}]"
