"""Operand text of hardware profiles as machine instructions. The grammar is in docs/traces.md."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from ..isa import DTYPES, Engine, Instruction, Memory, View
from ..isa.control import EventSemaphore, Nop
from ..isa.dma import DmaDirect2d
from ..isa.errors import ProgramError, Unimplemented
from ..isa.ops import ACT_FNS, ALU_OPS
from ..isa.scalar import Activate, ReadAccumulator, TableLoad
from ..isa.tensor import LoadWeights, Matmul
from ..isa.vector import Reciprocal, TensorCopy, TensorReduce, TensorScalar

ENGINES = {"TensorMatrix": Engine.TENSOR, **{e.label: e for e in Engine}}
PSUM_BASE = 0x2000000
PARTITION_STRIDE = 0x40000
SBUF_APERTURE = 0x802000000000

_TYPES = {t.trace_name: t for t in DTYPES.values()}
_ALU = {op.trace_name: name for name, op in ALU_OPS.items()}
_ACT = {fn.trace_name: name for name, fn in ACT_FNS.items()}
_OPERAND = re.compile(r"(?<![\w])(\w+)=(?:(\w+)@)?0x([0-9a-f]+)(?:\[(-?\d+(?:,-?\d+)*)\]\[(\d+(?:,\d+)*)\])?(?=\s|$)", re.IGNORECASE)
_SHAPE = re.compile(r"(?<![\w*])(\d+)\*(\d+)(?![\w*])")


def word(text: str, name: str, where: str = "") -> int:
    m = re.search(rf"(?<!\w){name}=(0x[0-9a-f]+|-?\d+)(?!\w)", text, re.IGNORECASE)
    if m is None:
        raise ProgramError(where, f"no {name}= in {text!r}", "a DMA trigger's operands")
    return int(m[1], 0)


class Operands:
    """The operand text of one row, by name."""

    def __init__(self, text: str, row: Mapping[str, str]) -> None:
        self.text, self.row = text, row
        self.found = {m[1]: m for m in _OPERAND.finditer(text)}
        channels = re.search(r"channels=(\d+)", text)
        shape = _SHAPE.search(text)
        self.channels = int(channels[1]) if channels else int(shape[1]) if shape else 0
        self.columns = int(shape[2]) if shape else 0

    def view(self, name: str, partitions: int = 0, dtype: str = "") -> View:
        """A tensor operand dtype@0xADDRESS[strides][counts], innermost dimension first in the text."""
        m = self.found.get(name)
        if m is None:
            raise ProgramError("", f"no operand {name} in {self.text!r}", f"{name}=dtype@0xADDRESS[strides][counts]")
        kind = m[2] or dtype
        if kind not in _TYPES:
            raise ProgramError("", f"element type {kind!r} of {name}", f"one of {', '.join(_TYPES)}")
        strides, counts = (tuple(int(x) for x in reversed(g.split(","))) if g else () for g in (m[4], m[5]))
        if len(strides) != len(counts):
            raise ProgramError("", f"{name} has {len(strides)} strides and {len(counts)} counts", "as many of each")
        address = int(m[3], 16)
        memory = Memory.PSUM if address >= PSUM_BASE else Memory.SBUF
        partition, offset = divmod(address - (PSUM_BASE if memory is Memory.PSUM else 0), PARTITION_STRIDE)
        return View("", memory, _TYPES[kind], partition, partitions or self.channels, offset, strides, counts)

    def flag(self, word: str) -> bool:
        return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", self.text) is not None

    def passes(self) -> str:
        """LOW and HIGH of an fp32 product; a transpose takes one pass though it says LOW."""
        if self.flag("fp32_mode=HIGH"):
            return "high"
        return "low" if self.flag("fp32_mode=LOW") and not self.flag("transpose_mode=ENABLED") else "single"

    def immediate(self, position: int) -> View | float:
        """imm=A,B with imm_src=PTR,INSTRUCTION: a [P, 1] vector by address, or a number."""
        kinds = re.search(r"imm_src=(\w+),(\w+)", self.text)
        values = re.search(r"(?<!\w)imm=([^\s,]+),([^\s,]+)", self.text)
        if kinds is None or values is None:
            raise ProgramError("", f"no imm and imm_src in {self.text!r}", "imm=A,B imm_src=KIND,KIND")
        kind, value = kinds[position + 1], values[position + 1]
        if kind != "PTR":
            return int(value, 16) if value.startswith("0x") else int(value) if value.lstrip("-").isdecimal() else float(value)
        partition, offset = divmod(int(value, 16), PARTITION_STRIDE)
        return View("", Memory.SBUF, _TYPES["fp32"], partition, self.channels, offset, (1,), (1,))


def _weights(o: Operands) -> Instruction:
    return LoadWeights(src=o.view("src"), passes=o.passes(), transpose=o.flag("transpose_mode=ENABLED"))


def matmul(o: Operands, loaded: LoadWeights | None = None) -> Instruction:
    """A product; its pass and whether it transposes are those of the weights in the array."""
    if loaded is None:
        raise ProgramError("", "a MATMUL before any LDWEIGHTS", "weights in the array")
    flags = word(o.text, "acc_flags")
    return Matmul(
        dst=o.view("dst", partitions=o.columns, dtype="fp32"), src=o.view("src"), columns=o.columns,
        accumulate=not flags & 1, ends=bool(flags & 2), passes=loaded.passes, transpose=loaded.transpose,
    )  # fmt: skip


def _activate(o: Operands) -> Instruction:
    function = o.row.get("fn") or next((w for w in o.text.split() if w in _ACT), "")
    if function not in _ACT:
        raise ProgramError("", f"activation function {function!r}", f"one of {', '.join(_ACT)}")
    m = o.found.get("bias_ptr")
    bias = None
    if m is not None:
        partition, offset = divmod(int(m[3], 16), PARTITION_STRIDE)
        bias = View("", Memory.SBUF, _TYPES[m[2] or "fp32"], partition, o.channels, offset, (1,), (1,))
    scale = re.search(r"(?<!\w)scale=([-+.\deE]+)", o.text)
    command = re.search(r"accumulator_cmd=(\w+)", o.text)
    return Activate(
        dst=o.view("dst"), op=_ACT[function], data=o.view("src"), bias=bias, scale=float(scale[1]) if scale else 1.0,
        reduce_cmd=command[1].lower() if command else "idle",
    )  # fmt: skip


def _read_accumulator(o: Operands) -> Instruction:
    return ReadAccumulator(dst=o.view("dst"))  # in the form that nc-sim writes: no published trace has one


def _copy(o: Operands) -> Instruction:
    return TensorCopy(dst=o.view("dst"), src=o.view("src"))


def _reduce(o: Operands) -> Instruction:
    m = re.search(r"op=(\w+) dim=([XYZW]+)", o.text)
    if m is None or m[1] not in _ALU:
        raise ProgramError("", f"reduction {o.text!r}", f"op= one of {', '.join(_ALU)} and dim=")
    data = o.view("src")
    rank = len(data.shape)
    return TensorReduce(dst=o.view("dst"), op=_ALU[m[1]], data=data, axis=tuple(range(rank - len(m[2]), rank)), negate=o.flag("negated=1"))


def _tensor_scalar(o: Operands) -> Instruction:
    m = re.search(r"ops=(\w+),(\w+)", o.text)
    if m is None or any(name not in _ALU for name in m.groups() if name != "BYPASS"):
        raise ProgramError("", f"operators {o.text!r}", f"ops= of {', '.join(_ALU)}")
    second = m[2] != "BYPASS"
    return TensorScalar(
        dst=o.view("dst"), data=o.view("src"), op0=_ALU[m[1]], operand0=o.immediate(0),
        op1=_ALU[m[2]] if second else None, operand1=o.immediate(1) if second else None,
    )  # fmt: skip


def _reciprocal(o: Operands) -> Instruction:
    return Reciprocal(dst=o.view("dst"), data=o.view("src"))


def _table_load(o: Operands) -> Instruction:
    return TableLoad(function="copy")  # a trace names a table number only; the cost is the same for all


def _dma(o: Operands) -> Instruction:
    """src_pattern=[strides][counts] in bytes, innermost first, of elements of src_elem_size bytes."""
    patterns, sizes = [_pattern(o, side) for side in ("src", "dst")], [word(o.text, f"{side}_elem_size") for side in ("src", "dst")]
    dims = _aligned(*patterns)
    quarters = [4 * size // max(sizes) for size in sizes]
    kinds = _CASTS.get((quarters[0], quarters[1]))
    if dims is None or kinds is None:
        raise Unimplemented("", f"patterns {patterns} with elements of {sizes} bytes", "patterns that factor alike, sizes 1, 2 or 4 to 1")
    places = [_address(o, side) for side in ("src", "dst")]
    on_chip = next((k for k, place in enumerate(places) if place[0] is Memory.SBUF), None)
    across = [d for d in dims if on_chip is not None and d[1 + on_chip] and d[1 + on_chip] % PARTITION_STRIDE == 0]
    inside = [d for d in dims if d not in across]
    partitions = math.prod(d[0] for d in across)
    steps = [d[1 + on_chip] // PARTITION_STRIDE for d in across] if on_chip is not None else []
    if any(step != math.prod(d[0] for d in across[:k]) for k, step in enumerate(steps)):
        raise Unimplemented("", f"partitions in steps of {steps}", "consecutive partitions")
    views = []
    for k, (memory, tensor, offset) in enumerate(places):
        kind = DTYPES[kinds[k]]
        ordered = [*reversed(across), *reversed(inside)] if memory is Memory.HBM else [*reversed(inside)]
        if any(d[1 + k] % kind.itemsize for d in ordered):
            raise Unimplemented("", f"strides of {[d[1 + k] for d in ordered]} bytes", f"multiples of an element of {kind.itemsize} bytes")
        strides = (*(d[1 + k] // kind.itemsize for d in ordered), 1)
        counts = (*(d[0] for d in ordered), sizes[k] // kind.itemsize)
        partition, within = (0, offset) if memory is Memory.HBM else divmod(offset, PARTITION_STRIDE)
        views.append(View(tensor, memory, kind, partition, 0 if memory is Memory.HBM else partitions, within, strides, counts))
    generation = "software" if ENGINES[o.row["engine"]] is Engine.GPSIMD else "hardware"
    return DmaDirect2d(dst=views[1], src=views[0], generation=generation, row=views[0].counts[-1])


# element types that stand for a conversion by the DMA: quarters of the wider element on each side
_CASTS = {
    (4, 4): ("uint8", "uint8"),
    (4, 2): ("uint32", "uint16"),
    (4, 1): ("uint32", "uint8"),
    (2, 4): ("uint16", "uint32"),
    (1, 4): ("uint8", "uint32"),
}


def _pattern(o: Operands, side: str) -> list[tuple[int, int]]:
    """(count, stride in bytes), innermost first."""
    m = re.search(rf"{side}_pattern=\[(-?\d+(?:,-?\d+)*)\]\[(\d+(?:,\d+)*)\]", o.text)
    strides, counts = ([int(x) for x in g.split(",") if x] for g in m.groups()) if m else ([], [])
    if not counts or len(strides) != len(counts):
        raise ProgramError("", f"no {side}_pattern in {o.text!r}", f"{side}_pattern=[strides][counts], as many of each")
    return list(zip(counts, strides, strict=True))


def _aligned(src: list[tuple[int, int]], dst: list[tuple[int, int]]) -> list[tuple[int, int, int]] | None:
    """Both patterns over common counts: (count, source stride, destination stride), or None if they do not factor alike."""
    src, dst, out = list(src), list(dst), []
    while src and dst:
        (m, a), (n, b) = src.pop(0), dst.pop(0)
        common = min(m, n)
        if m % common or n % common:
            return None
        out.append((common, a, b))
        if m > common:
            src.insert(0, (m // common, a * common))
        if n > common:
            dst.insert(0, (n // common, b * common))
    rest = [n for n, _ in (*src, *dst)]
    return None if any(n != 1 for n in rest) else [d for d in out if d[0] != 1] or [(1, PARTITION_STRIDE, PARTITION_STRIDE)]


def _address(o: Operands, side: str) -> tuple[Memory, str, int]:
    m = re.search(rf"{side}_addr_imm=0x([0-9a-f]+)", o.text, re.IGNORECASE)
    if m is not None:
        address = int(m[1], 16)
        if address & ~0xFFFFFFFFF == SBUF_APERTURE:
            return Memory.SBUF, "", address - SBUF_APERTURE
        return Memory.HBM, "", address
    return Memory.HBM, f"table{word(o.text, f'{side}_table_index')}", word(o.text, f"{side}_table_offset_imm")


BUILD: dict[str, Callable[[Operands], Instruction]] = {
    "LDWEIGHTS": _weights,
    "MATMUL": matmul,
    "ACTIVATE": _activate,
    "ACT_TABLE_LOAD": _table_load,
    "ACT_READ_ACCUMULATOR": _read_accumulator,
    "COPY": _copy,
    "CAST": _copy,
    "TENSOR_REDUCE": _reduce,
    "TENSOR_SCALAR": _tensor_scalar,
    "RECIPROCAL": _reciprocal,
    "DMA_DIRECT2D": _dma,
    "EVENT_SEMAPHORE": lambda _: EventSemaphore(),
    "NOP": lambda _: Nop(),
}
