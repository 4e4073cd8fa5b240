"""Tables of data movement: DMA packets, transfers, queues, what is pending, and rates over time."""

from __future__ import annotations

import re
from collections.abc import Iterator

import attrs
import numpy as np

from ..table import Ints
from ..trace.operands import HBM_APERTURE
from ..trace.perfetto import DMA_ENGINES
from ..trace.profile_operands import PARTITION_STRIDE, SBUF_APERTURE
from .instructions import queue_types
from .packets import Packets, Shares, on_side, packets
from .source import Device
from .table import NO_TEXT, Array, Columns, Some, Table, Words, distinct, from_rows, later, of, picked, rounded_ns

PLACES = {"input": "[INPUT]", "output": "[OUTPUT]"}  # of a tensor in HBM, by its kind; SBUF is [SB]
RAISED = re.compile(r"semaphore=(\d+)")
SIZE = {side: re.compile(rf"{side}_elem_size=(\d+)") for side in ("src", "dst")}
SIDE = {side: re.compile(rf"{side}_pattern=\[([\d,]+)\]\[([\d,]+)\].*?{side}_addr_imm=0x([0-9a-f]+)") for side in ("src", "dst")}
SBUF_SPAN = PARTITION_STRIDE * 128  # of the addresses of SBUF in DMA operands


def dma_packets(device: Device, known: Shares) -> Table:
    """Every packet, by transfer, DMA engine and time; the last of an engine's share raises the semaphore."""
    made = _Movement(device)
    return Table("DmaPacket", lambda: made.packets(known), known.count)


class _Movement:
    """What tables of packets and transfers share."""

    def __init__(self, device: Device) -> None:
        t, s = device.trace.transfers, device.trace.shares
        self.device = device
        self.types = queue_types(device)
        self.engine = np.where(s.engine < 0, -1, s.engine + DMA_ENGINES * device.core)
        queue = t.queue.index[s.transfer]
        size = len(t.queue.values)
        pairs, index = np.unique(self.engine * max(1, size) + queue, return_inverse=True)
        self.names = picked(
            [queue_name(t.queue.values[k % size], k % size, k // size) for k in pairs.tolist()], np.asarray(index, np.int64)
        )
        self.variables = _variables(device)

    def packets(self, known: Shares) -> Iterator[Columns]:
        t, s = self.device.trace.transfers, self.device.trace.shares
        per_ns = (int(self.device.trace.metadata["ticks_per_ns"][0]), int(self.device.trace.metadata["ticks_per_ns"][1]))
        first = np.searchsorted(s.transfer, np.arange(len(t)))
        rows = known.rows
        before = rows.cumsum() - rows
        within = before - before[first][s.transfer] if len(s) else before
        number = 0
        for part in packets(known):
            count = len(part.share)
            start, end = (rounded_ns(c, per_ns) + self.device.shift_ns for c in (part.start, part.end))
            transfer, engine = s.transfer[part.share], self.engine[part.share]
            yield {
                "start_ts": start, "end_ts": end, "duration_ns": end - start, "pcore_idx": np.zeros(count, np.int64),
                "id": np.arange(number, number + count), "packet_idx": within[part.share] + part.place, "packet_aggregation_id": transfer,
                "engine_idx": Some(engine, engine >= 0), **_sizes(part), "throughput": throughput(part.bytes, end - start),
                "queue_type": self.types[transfer], "variable": self.variables[transfer], "queue_name": self.names[part.share],
                "queue_idx": t.queue.index[transfer],
            }  # fmt: skip
            number += count


def _sizes(part: Packets) -> Columns:
    return {"read_bytes": part.read_bytes, "write_bytes": part.write_bytes, "transfer_bytes": part.bytes}


def throughput(size: Ints, ns: Ints) -> Some:
    """Bytes per second; null for what has no length."""
    return Some(size * 1e9 / np.maximum(1, ns), ns > 0)


def queue_name(queue: str, index: int, engine: int) -> str:
    """As published: name, queue, DMA engine; without an engine for a transfer that meets none."""
    return f"{queue}-Q{index}" + (f"-E{engine}" if engine >= 0 else "")


def _variables(device: Device) -> Words:
    """Of each transfer: the tensor in HBM that it reads, else the one it writes, else the one it reads."""
    t = device.trace.transfers

    def name(source: str, destination: str) -> str:
        chosen = source if source.startswith("HBM:") or not destination.startswith("HBM:") else destination
        return chosen.partition(":")[2]

    size = max(1, len(t.destination.values))
    pairs, index = np.unique(t.source.index * size + t.destination.index, return_inverse=True)
    values = (name(t.source.values[k // size], t.destination.values[k % size]) for k in pairs.tolist())
    return picked(values, np.asarray(index, np.int64))


def transfers(device: Device) -> Table:
    """Every DMA: from its first packet to its last semaphore packet, over all DMA engines."""
    t, i, shift = device.trace.transfers, device.trace.instructions, device.shift_ns
    made = _Movement(device)
    start, end, count = t.start.ns + shift, t.end.ns + shift, len(t)
    rank = np.zeros(count, np.int64)
    for k in range(len(t.queue.values)):
        mine = np.flatnonzero(t.queue.index == k)
        rank[mine] = np.arange(len(mine))
    work = i.work.index[t.instruction]
    raised = dict(zip(device.trace.semaphores.id.tolist(), device.trace.semaphores.name.index.tolist(), strict=True))
    texts = i.semaphores.values
    ids = [(found := RAISED.search(v)) and raised.get(int(found[1])) for v in texts]
    semaphores = Words(device.trace.semaphores.name.values, np.array([NO_TEXT if k is None else k for k in ids] or [NO_TEXT], np.int64))
    return of("DmaPacketAggregated", {
        "start_ts": start, "end_ts": end, "duration_ns": end - start, "id": np.arange(count), "pcore_idx": np.zeros(count, np.int64),
        "block_id": rank, "queue_idx": t.queue.index,
        "queue_name": picked([queue_name(v, k, -1) for k, v in enumerate(t.queue.values)], t.queue.index),
        "queue_type": made.types, "variable": made.variables, "read_bytes": t.read_bytes, "write_bytes": t.write_bytes,
        "transfer_bytes": t.bytes, "throughput": throughput(t.bytes, end - start), "source": _place(device, "source"),
        "dest": _place(device, "destination"), "semaphore_id": semaphores[i.semaphores.index[t.instruction]],
        **_side(i.work.values, work, "src", "read"), **_side(i.work.values, work, "dst", "write"),
        "is_transpose_mode": np.zeros(count, bool),
        "trigger": i.start.ns[t.instruction] + shift, "completion": i.end.ns[t.instruction] + shift,
    })  # fmt: skip


def _place(device: Device, side: str) -> Words:
    kinds = {t.name: t.kind for t in device.tensors.values()}
    column = getattr(device.trace.transfers, side)
    values = ("[SB]" if v.startswith("SBUF:") else PLACES.get(kinds.get(v.partition(":")[2], ""), "[HBM]") for v in column.values)
    return picked(values, column.index)


@attrs.frozen
class _Pattern:
    """What the operands of a DMA say of one side, as text; None for another instruction, partitions also in HBM."""

    shape: str | None = None
    offset: str | None = None
    steps: str | None = None
    sbuf_partitions: str | None = None
    num_sbuf_partitions: int = 0


def _side(texts: tuple[str, ...], work: Ints, side: str, verb: str) -> Columns:
    """Partitions of SBUF, and the pattern in bytes, innermost dimension first."""
    found = [_pattern(text, side) for text in texts] or [_Pattern()]
    columns: dict[str, Words | Ints] = {
        f"{verb}_{name}": picked([getattr(v, name) for v in found], work) for name in ("shape", "offset", "steps", "sbuf_partitions")
    }
    return {**columns, f"{verb}_num_sbuf_partitions": np.array([v.num_sbuf_partitions for v in found], np.int64)[work]}


def _pattern(text: str, side: str) -> _Pattern:
    found, size = (SIDE[side].search(text), SIZE[side].search(text)) if "_pattern=" in text else (None, None)
    if found is None or size is None:
        return _Pattern()
    dimensions = [(int(s), int(n)) for s, n in zip(found[1].split(","), found[2].split(","), strict=True) if n != "1"]
    address = int(found[3], 16)
    in_sbuf = SBUF_APERTURE <= address < SBUF_APERTURE + SBUF_SPAN
    offset = address - (SBUF_APERTURE if in_sbuf else HBM_APERTURE)
    shape, steps = ([first, *(d[k] for d in dimensions)] for k, first in ((1, int(size[1])), (0, 1)))
    if not in_sbuf:
        return _Pattern(str(shape), f"[{offset:#x}]", str(steps))
    count = next((n for step, n in dimensions if step == PARTITION_STRIDE), 1)
    first = offset // PARTITION_STRIDE
    return _Pattern(str(shape), f"[{offset:#x}]", str(steps), str(first) if count == 1 else f"{first}-{first + count - 1}", count)


def queues(device: Device) -> Table:
    """Every queue on every DMA engine that it reached."""
    t, s = device.trace.transfers, device.trace.shares
    mine = s.engine >= 0
    pairs = distinct(t.queue.index[s.transfer[mine]] * 1024 + s.engine[mine])
    return from_rows("DmaQueuesInfo", [
        {"name": t.queue.values[k // 1024], "pcore_idx": 0, "idx": k // 1024, "engine_idx": k % 1024 + DMA_ENGINES * device.core}
        for k in pairs.tolist()
    ])  # fmt: skip


# --- over time ---------------------------------------------------------------------------------------------------


def pending(device: Device) -> Table:
    """How many DMAs are outstanding: from the start of their trigger to their last semaphore packet."""
    t, i = device.trace.transfers, device.trace.instructions
    time, value = _steps(i.start.ns[t.instruction], t.end.ns, np.ones(len(t), np.int64))
    return of("PendingDma", {"timestamp": time + device.shift_ns, "value": value, "pcore_idx": np.zeros_like(time)})


def dma_usage(device: Device) -> Table:
    """What all DMA engines move: the sum of the mean rates of the shares under way."""
    return _usage(device, "DmaUsage", device.trace.shares.bytes)


def hbm_usage(device: Device) -> Table:
    """What DMA moves to and from HBM, in the same way."""
    t, s = device.trace.transfers, device.trace.shares
    # A sum has several sources, of one shape.
    ends = ([v.split("+") for v in (*c.values, "")] for c in (t.source, t.destination))
    inside = [np.array([(sum(v.startswith("HBM:") for v in e), len(e)) for e in each]) for each in ends]
    places = [each[c.index] for each, c in zip(inside, (t.source, t.destination), strict=True)]
    sides = ((side * p[:, 0] // p[:, 1])[s.transfer] for p, side in zip(places, (t.read_bytes, t.write_bytes), strict=True))
    read, written = (on_side(s.bytes, t.bytes[s.transfer], side) for side in sides)
    return _usage(device, "HbmUsage", read + written)


def _usage(device: Device, name: str, size: Ints) -> Table:
    s = device.trace.shares
    some = (size > 0) & (s.end.ns > s.start.ns)
    start, end, size = s.start.ns[some], s.end.ns[some], size[some]

    def make() -> Columns:
        time, rate = _steps(start, end, size * 1e9 / (end - start))
        _, under_way = _steps(start, end, np.ones(len(start), np.int64))
        order = np.argsort(end, kind="stable")
        total = np.append(0, size[order].cumsum())[np.searchsorted(end[order], time, side="right")]
        return {
            "timestamp": time + device.shift_ns, "current_throughput": np.where(under_way > 0, np.maximum(rate, 0.0), 0.0),
            "total_transfer_bytes": total, "pcore_idx": np.zeros_like(time),
        }  # fmt: skip

    return later(name, len(distinct(np.concatenate([start, end]))), make)


def _steps(start: Ints, end: Ints, height: Array) -> tuple[Ints, Array]:
    """A value over time that is higher by `height` from start to end: moments of change, and the value from there on."""
    time, index = np.unique(np.concatenate([start, end]), return_inverse=True)
    change = np.concatenate([height, -height])
    value = np.zeros(len(time), change.dtype)
    np.add.at(value, np.asarray(index).reshape(-1), change)
    return time, value.cumsum()
