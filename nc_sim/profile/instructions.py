"""Tables of instructions: Instruction, ActiveTime, OpcodeSummary, SemaphoreUpdate, Flow, and those that lead to source lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..isa import DTYPES
from ..table import Ints, Op
from .packets import generation
from .source import Device
from .summary import WAITING
from .table import GROUP, NO_TEXT, Array, Columns, Some, Table, Words, distinct, from_rows, later, merged, of, picked, words

DMA, INSTRUCTION = "dma_block", "instruction"  # names of tables in Flow
# bf16-equivalent flops by element type; fp8 by generation (schema reference, adjusted_flops).
ADJUSTED = {"float32": 4.0, "tfloat32": 1.0, "bfloat16": 1.0, "float16": 1.0, "uint8": 0.5}
FP8, FP8_FIRST, FIRST_CORE = 0.5, 1.0, "NeuronCore-v2"
TRACE_TYPES = {t.trace_name: t for t in DTYPES.values()}
TYPE = re.compile(r"(?:^| )src=(\w+)@")
UPDATES = re.compile(r"(?<!\$)S\[(\d+)\](?: \([^)]*\))?(?:\+\+|--|\+=\d+|-=\d+|=\d+)@(complete|read)")
WAITS = re.compile(r"(?<!\$)S\[(\d+)\](?: \([^)]*\))?>=(\d+)")
OPERATIONS = {Op.ADD: ("sem_inc", "sem_add_imm"), Op.SUB: ("sem_dec", "sem_sub_imm"), Op.SET: ("sem_wr_imm", "sem_wr_imm")}
NUMBERS = ("hbm_read_bytes", "hbm_write_bytes", "sbuf_read_bytes", "sbuf_write_bytes", "psum_read_bytes", "psum_write_bytes")


def adjustment(work: str, core: str) -> float:
    """What a flop of a product counts in flops of bf16, by the type of its moving operand."""
    found = TYPE.search(work)
    name = TRACE_TYPES[found[1]].name if found and found[1] in TRACE_TYPES else ""
    if name.startswith("float8"):
        return FP8_FIRST if core == FIRST_CORE else FP8
    return ADJUSTED.get(name, 1.0)


def instructions(device: Device) -> Table:
    """The Instruction table, in program order; `id` is the row in the trace."""
    i = device.trace.instructions
    made = _Instructions(device)
    return Table("Instruction", lambda: (made.part(slice(a, min(a + GROUP, len(i)))) for a in range(0, len(i), GROUP)), len(i))


class _Instructions:
    """What all parts of the Instruction table share."""

    def __init__(self, device: Device) -> None:
        i = device.trace.instructions
        self.device = device
        self.products = np.array([v == "MATMUL" for v in i.opcode.values] or [False])
        self.weights = np.array([v == "LDWEIGHTS" for v in i.opcode.values] or [False])
        self.factor = np.array([adjustment(w, device.chip.core) for w in i.work.values] or [1.0])
        self.transposes = np.array(["transpose_mode=ENABLED" in w for w in i.work.values] or [False])
        functions = (w.split(" ", 1)[0] if "=" not in w.split(" ", 1)[0] else None for w in i.work.values)
        self.functions = picked(functions, np.arange(len(i.work.values)))
        self.activates = np.array([v == "ACTIVATE" for v in i.opcode.values] or [False])
        self.transfer = transfer_of(device)
        self.kinds = queue_bytes(device)
        self.frame = {v: k for k, v in enumerate(_lines(i.line.values), 1)}

    def part(self, rows: slice) -> Columns:
        i, device = self.device.trace.instructions, self.device
        numbers = np.arange(rows.start, rows.stop)
        shift, count = device.shift_ns, len(numbers)
        start, end = i.start.ns[rows] + shift, i.end.ns[rows] + shift
        opcode, engine = i.opcode.index[rows], words(i.engine)[rows]
        product = self.products[opcode]
        tensor = product | self.weights[opcode]
        flops, transposed = i.flops[rows], i.transpose_flops[rows]
        factor, work = self.factor[i.work.index[rows]], i.work.index[rows]
        transpose = np.where(self.weights[opcode], self.transposes[work], transposed > 0)
        lines = words(i.line)[rows]
        frames = picked(
            [f"[{self.frame[v]}]" if v in self.frame else None for v in lines.values], np.where(lines.index < 0, 0, lines.index)
        )
        psum, sbuf = i.psum_read_bytes[rows], i.sbuf_write_bytes[rows]
        return {
            "start_ts": start, "end_ts": end, "duration_ns": end - start,
            "engine": Words(tuple(v.lower() for v in engine.values), engine.index),
            "timeline_track": _tracks(engine, product), "pcore_idx": np.zeros(count, np.int64), "opcode": words(i.opcode)[rows],
            "operands": _operands(device, rows), "id": numbers, "pc": i.pc[rows],
            "kernel_instruction_name": [kernel_name(n, c) for n, c in zip(numbers.tolist(), device.call[rows].tolist(), strict=True)],
            "evt_wait_time_ns": i.wait.ns[rows], "nki_source_location": lines,
            "stack_frame_ids": Words(frames.values, np.where(lines.index < 0, NO_TEXT, frames.index)),
            **self.dma(rows, end), **{name: getattr(i, name)[rows] for name in NUMBERS},
            "spill_save_bytes": np.zeros(count, np.int64), "spill_reload_bytes": np.zeros(count, np.int64),
            "psum_read_sbuf_write_bytes": np.where((psum > 0) & (sbuf > 0), sbuf, 0),
            **{f"{kind}_queue_bytes": sizes[rows] for kind, sizes in self.kinds.items()},
            "tensor_instruction_type": Words(("REGULAR", "TRANSPOSE"), np.where(tensor, transpose.astype(np.int64), NO_TEXT)),
            "raw_flops": Some(flops, product), "adjusted_flops": Some((flops * factor).astype(np.int64), product),
            "flops_transpose": Some(transposed, product), "adjusted_flops_transpose": Some((transposed * factor).astype(np.int64), product),
            "scalar_activation_fn": Words(self.functions.values, np.where(self.activates[opcode], self.functions.index[work], NO_TEXT)),
        }  # fmt: skip

    def dma(self, rows: slice, end: Ints) -> Columns:
        """When the DMA that a trigger sets off begins and ends."""
        t, of = self.device.trace.transfers, self.transfer[rows]
        valid = of >= 0
        if not len(t):
            return {}
        begun, ended = (c[np.maximum(of, 0)] + self.device.shift_ns for c in (t.start.ns, t.end.ns))
        return {
            "dma_trigger_start_ts": Some(begun, valid),
            "dma_trigger_end_ts": Some(ended, valid),
            "dma_wait_time_ns": Some(begun - end, valid),
        }


def transfer_of(device: Device) -> Ints:
    """Of each instruction: the transfer that it triggers, or -1."""
    out = np.full(len(device.trace.instructions), -1, np.int64)
    out[device.trace.transfers.instruction] = np.arange(len(device.trace.transfers))
    return out


def _tracks(engine: Words, product: Array) -> Words:
    """Products stand on a track of their own."""
    values = (*engine.values, "TensorMatrix")
    return Words(values, np.where(product, len(engine.values), engine.index))


def _operands(device: Device, rows: slice) -> Words:
    """Both parts of the operand text."""
    i = device.trace.instructions
    size = max(1, len(i.work.values))
    pairs, index = np.unique(i.semaphores.index[rows] * size + i.work.index[rows], return_inverse=True)
    halves = (divmod(k, size) for k in pairs.tolist())
    return Words(tuple(f"{i.semaphores.values[a]} {i.work.values[b]}".strip() for a, b in halves), index.astype(np.int64))


def kernel_name(row: int, call: int) -> str:
    """`instruction:parent` as the schema forms it: the instruction's id, and the user's call it was made from; 0: none."""
    return f"inst.{row}:{call + 1}"


def queue_bytes(device: Device) -> dict[str, Ints]:
    """Bytes that each instruction moves through static input, output and weight queues; dynamic queues are none of these."""
    t = device.trace.transfers
    out = {k: np.zeros(len(device.trace.instructions), np.int64) for k in ("input", "output", "weight")}
    kind = queue_types(device)
    for name, stored in (("input", "input"), ("output", "output"), ("weight", "data")):
        mine = np.array([v == stored for v in (*kind.values, "")])[kind.index]
        out[name][t.instruction[mine]] = t.bytes[mine]
    return out


def queue_types(device: Device) -> Words:
    """The published type of each transfer's queue."""
    t = device.trace.transfers
    kinds = {x.name: x.kind for x in device.tensors.values()}

    def kind(queue: str, source: str, destination: str) -> str:
        made = generation(queue)
        if made != "static":
            return f"{made}_dynamic"
        ends = [kinds.get(v.partition(":")[2]) for v in (source, destination) if v.startswith("HBM:")]
        return "input" if "input" in ends else "output" if "output" in ends else "data"

    rows = np.stack([t.queue.index, t.source.index, t.destination.index]) if len(t) else np.zeros((3, 0), np.int64)
    distinct, index = np.unique(rows, axis=1, return_inverse=True)
    values = (kind(t.queue.values[q], t.source.values[a], t.destination.values[b]) for q, a, b in distinct.T.tolist())
    return picked(values, np.asarray(index, np.int64).reshape(-1))


# --- time of engines ---------------------------------------------------------------------------------------------


def active_time(device: Device) -> Table:
    """When each engine has at least one instruction under way, other than waits for semaphores."""
    i, shift = device.trace.instructions, device.shift_ns
    working = ~_are(i.opcode.values, WAITING)[i.opcode.index] if len(i) else np.zeros(0, bool)
    starts, ends, labels = list[Ints](), list[Ints](), list[Ints]()
    for k in range(len(i.engine.values)):
        mine = working & (i.engine.index == k)
        start, end = merged(i.start.ns[mine] + shift, i.end.ns[mine] + shift)
        starts, ends, labels = [*starts, start], [*ends, end], [*labels, np.full(len(start), k, np.int64)]
    if not starts:
        return of("ActiveTime", {})
    start, end = np.concatenate(starts), np.concatenate(ends)
    engine = Words(tuple(v.lower() for v in i.engine.values), np.concatenate(labels))
    return of(
        "ActiveTime", {"start_ts": start, "end_ts": end, "engine": engine, "pcore_idx": np.zeros_like(start), "duration_ns": end - start}
    )


def opcode_summary(device: Device) -> Table:
    """Number, plain sum and union of the instructions of each engine and opcode."""
    i, rows = device.trace.instructions, []
    both = i.engine.index * max(1, len(i.opcode.values)) + i.opcode.index
    order = np.argsort(both, kind="stable")
    keys, first = np.unique(both[order], return_index=True)
    for key, mine in zip(keys.tolist(), np.split(order, first[1:]), strict=False):
        engine, opcode = divmod(key, len(i.opcode.values))
        start, end = merged(i.start.ns[mine], i.end.ns[mine])
        active = int((end - start).sum())
        rows.append({
            "engine": i.engine.values[engine].lower(), "opcode": i.opcode.values[opcode], "instruction_count": len(mine),
            "instruction_time_ns": int((i.end.ns[mine] - i.start.ns[mine]).sum()), "active_time_ns": active,
            "active_time_percent": active / device.total_ns,
        })  # fmt: skip
    return from_rows("OpcodeSummary", rows)


def _are(values: tuple[str, ...], names: frozenset[str]) -> Array:
    return np.array([v in names for v in (*values, "")])


# --- semaphores --------------------------------------------------------------------------------------------------


def semaphore_updates(device: Device) -> Table:
    """Every change of a hardware semaphore, in order of time."""
    return later("SemaphoreUpdate", len(device.trace.semaphores), lambda: _updates(device))


def _updates(device: Device) -> Columns:
    s, i = device.trace.semaphores, device.trace.instructions
    names = {(op, one): OPERATIONS[Op(op)][0 if one else 1] for op in (0, 1, 2) for one in (True, False)}
    known = s.operation <= max(Op)  # a trace holds any number
    operation = picked([*names.values(), None], np.where(known, s.operation * 2 + (s.amount != 1), len(names)))
    dma = transfer_of(device)[s.instruction] >= 0
    engine = i.engine.index[s.instruction]
    return {
        "timestamp": s.time.ns + device.shift_ns, "id": words(s.name), "value": s.value,
        "update_source": Words((*i.engine.values, "AXI"), np.where(dma, len(i.engine.values), engine)),
        "update_operation_type": operation, "update_trigger_timing": _timing(device, dma), "pcore_idx": np.zeros(len(s), np.int64),
    }  # fmt: skip


def _timing(device: Device, dma: Array) -> Words:
    """When an update counts from, by the operand text; a DMA raises its semaphore when it is done. Null where the text says both."""
    s, i = device.trace.semaphores, device.trace.instructions
    told: dict[tuple[int, int], int] = {}
    for k, text in enumerate(i.semaphores.values):
        for number, when in UPDATES.findall(text):
            at = ("complete", "read").index(when)
            told[k, int(number)] = at if told.get((k, int(number)), at) == at else NO_TEXT
    keys = np.stack([i.semaphores.index[s.instruction], s.id]) if len(s) else np.zeros((2, 0), np.int64)
    distinct, index = np.unique(keys, axis=1, return_inverse=True)
    found = np.array([told.get((a, b), NO_TEXT) for a, b in distinct.T.tolist()], np.int64)
    when = found[np.asarray(index).reshape(-1)] if len(found) else np.zeros(0, np.int64)
    return Words(("complete", "read"), np.where(dma, 0, when))


def flow(device: Device) -> Table:
    """What each instruction waited for: the instruction or DMA whose update met its wait, and the DMAs that triggers set off."""
    i, t = device.trace.instructions, device.trace.transfers
    source, target = _met(device)
    transfer = transfer_of(device)[source]
    dma = transfer >= 0
    ended = np.where(dma, t.end.ns[np.maximum(transfer, 0)], i.end.ns[source]) if len(t) else i.end.ns[source]
    table = Words((INSTRUCTION, DMA), np.concatenate([dma.astype(np.int64), np.zeros(len(t), np.int64)]))
    into = Words((INSTRUCTION, DMA), np.concatenate([np.zeros(len(source), np.int64), np.ones(len(t), np.int64)]))
    return of("Flow", {
        "in_id": np.concatenate([np.where(dma, transfer, source), t.instruction]), "out_id": np.concatenate([target, np.arange(len(t))]),
        "in_table": table, "out_table": into,
        "gap_time": np.concatenate([i.start.ns[target] - ended, t.start.ns - i.end.ns[t.instruction]]),
    })  # fmt: skip


def _met(device: Device) -> tuple[Ints, Ints]:
    """Pairs of instructions: the one whose update met a wait, and the one that waited."""
    s, i = device.trace.semaphores, device.trace.instructions
    waits = [(k, int(n), int(v)) for k, text in enumerate(i.semaphores.values) for n, v in WAITS.findall(text)]
    text, number, value = np.array(waits, np.int64).reshape(-1, 3).T
    order = np.argsort(i.semaphores.index, kind="stable")
    bounds = np.searchsorted(i.semaphores.index[order], np.arange(len(i.semaphores.values) + 1))
    first, count = bounds[text], bounds[text + 1] - bounds[text]
    place = np.repeat(first - (count.cumsum() - count), count) + np.arange(int(count.sum()))  # every row of each text
    rows, number, value = order[place], np.repeat(number, count), np.repeat(value, count)
    ready = i.ready.ticks[rows] + i.wait.ticks[rows]
    sources, targets = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for semaphore in distinct(number).tolist():
        updates, mine = np.flatnonzero(s.id == semaphore), np.flatnonzero((number == semaphore) & (value > 0))
        latest = np.searchsorted(s.time.ticks[updates], ready[mine], side="right") - 1
        found = _rise(s.value[updates], value[mine], latest)
        sources.append(s.instruction[updates[found[found >= 0]]])
        targets.append(rows[mine[found >= 0]])
    source, target = np.concatenate(sources), np.concatenate(targets)
    order = np.lexsort((source, target))
    return source[order], target[order]


def _rise(values: Ints, wanted: Ints, latest: Ints) -> Ints:
    """The update with which the value last came up to what is wanted, at or before the latest seen; -1: none."""
    if not len(values):
        return np.full(len(wanted), -1, np.int64)
    if (np.diff(values) >= 0).all():
        found = np.searchsorted(values, wanted)
        return np.where(found <= latest, found, -1)
    out = np.full(len(wanted), -1, np.int64)
    for value in distinct(wanted).tolist():
        met, mine = values >= value, wanted == value
        rise = np.maximum.accumulate(np.where(met & ~np.append(False, met[:-1]), np.arange(len(met)), -1))
        seen = np.maximum(latest[mine], 0)
        out[mine] = np.where((latest[mine] >= 0) & met[seen], rise[seen], -1)
    return out


# --- source lines ------------------------------------------------------------------------------------------------


def _lines(values: tuple[str, ...]) -> list[str]:
    return sorted(v for v in values if _place(v))


def _place(line: str) -> tuple[str, int] | None:
    """rmsnorm.py:41 as file and number."""
    file, _, number = line.rpartition(":")
    return (file, int(number)) if file and number.isdigit() else None


def kernel_instructions(device: Device) -> Table:
    """The user's file and line of every instruction that has one. A simulated program records no calls and no loops above it."""
    i = device.trace.instructions
    placed = np.array([_place(v) is not None for v in i.line.values] or [False])
    rows = np.flatnonzero(placed[i.line.index]) if len(i) else np.zeros(0, np.int64)
    files = picked([(_place(v) or (None, 0))[0] for v in i.line.values], i.line.index)
    numbers = np.array([(_place(v) or ("", 0))[1] for v in i.line.values] or [0], np.int64)

    def parts() -> Iterator[Columns]:
        for a in range(0, len(rows), GROUP):
            some = rows[a : a + GROUP]
            names = [kernel_name(n, c) for n, c in zip(some.tolist(), device.call[some].tolist(), strict=True)]
            yield {
                "kernel_instruction_name": names, "pcore_idx": np.zeros(len(some), np.int64), "file_path": files[some],
                "line_number": numbers[i.line.index[some]],
            }  # fmt: skip

    return Table("KernelInstructions", parts, len(rows))


def stack_frames(device: Device) -> dict[str, Table]:
    """A frame for each of the user's lines. Which function it stands in is not recorded."""
    found = [(line, _place(line) or ("", 0)) for line in _lines(device.trace.instructions.line.values)]
    files = {name: k for k, name in enumerate(sorted({p[0] for _, p in found}), 1)}
    frames: list[Mapping[str, Any]] = [{"id": str(k), "file_location_id": k, "parent_frame_id": "0"} for k in range(1, len(found) + 1)]
    places: list[Mapping[str, Any]] = [
        {"id": str(k), "file_name_id": files[file], "line_number": line} for k, (_, (file, line)) in enumerate(found, 1)
    ]
    names: list[Mapping[str, Any]] = [{"id": str(k), "name": name} for name, k in files.items()]
    return {
        "StackFrame": from_rows("StackFrame", frames),
        "StackFrameFileLocation": from_rows("StackFrameFileLocation", places),
        "StackFrameFileName": from_rows("StackFrameFileName", names),
        **{name: of(name, {}) for name in ("StackFrameFunctionName", "KernelStackFrames", "KernelIterationVariables")},
    }
