"""Tables of memory: what is in SBUF and PSUM and when, and the tensors in HBM. A tensor is there from its first use to its last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import numpy as np

from ..isa import Memory
from ..program import Tensor
from ..table import Ints
from .instructions import transfer_of
from .movement import queue_name
from .source import Device, tensors_of
from .table import Array, Table, distinct, from_rows, of

SHOWN = (0, 32, 64, 96)  # partitions of SBUF that the tables show
BANKS = 8  # of PSUM that the tables show
KINDS = {"input": "IN", "output": "OUT", "constant": "WEIGHT"}


@attrs.frozen
class Life:
    """When a tensor on chip is there, in ns of the profile, and the instruction that writes it first."""

    tensor: Tensor
    address: int
    start: int
    end: int
    writer: int | None

    @property
    def partitions(self) -> range:
        """Those that it has bytes in."""
        return range(self.tensor.partition, self.tensor.partition + self.tensor.shape[0])


def lives(device: Device, memory: Memory) -> list[Life]:
    """Every tensor of a memory that is used, in order of the program's first use."""
    touched, i, t = device.touches, device.trace.instructions, device.trace.transfers
    start, end = i.start.ns.copy(), i.end.ns.copy()
    start[t.instruction], end[t.instruction] = t.start.ns, t.end.ns  # a DMA touches when its data move, not when it is triggered
    order = np.argsort(touched.tensor, kind="stable")
    bounds = np.searchsorted(touched.tensor[order], np.arange(len(touched.names) + 1))
    out = []
    for k, name in enumerate(touched.names):
        tensor = device.tensors[name]
        if tensor.memory is not memory:
            continue
        mine = order[bounds[k] : bounds[k + 1]]
        steps, writes = touched.step[mine], touched.step[mine][touched.written[mine] > 0]
        writer = int(writes[np.argmin(start[writes])]) if len(writes) else None
        first, last = int(start[steps].min()) + device.shift_ns, int(end[steps].max()) + device.shift_ns
        out.append(Life(tensor, device.addresses[name], first, last, writer))
    return out


def sbuf_usage(device: Device) -> Table:
    """How full SBUF is, over all partitions and in four of them, as fractions."""
    size, partitions = device.number("memory.sbuf_partition_bytes"), device.number("memory.partitions")
    found = lives(device, Memory.SBUF)
    shares = {"avg_util_percent": [len(v.partitions) * v.tensor.partition_bytes / (size * partitions) for v in found]}
    for p in SHOWN:
        shares[f"partition_{p}_util_percent"] = [v.tensor.partition_bytes / size if p in v.partitions else 0.0 for v in found]
    return _usage("SbufUsage", found, shares)


def psum_usage(device: Device) -> Table:
    """How full PSUM is, over all banks and in each of the eight, as fractions."""
    size, partitions = device.number("memory.psum_bank_bytes"), device.number("memory.partitions")
    found = lives(device, Memory.PSUM)

    def share(v: Life, bank: int) -> float:
        first, last = max(v.address, bank * size), min(v.address + v.tensor.partition_bytes, (bank + 1) * size)
        return float(max(0, last - first) * len(v.partitions) / (size * partitions))

    banks = {f"bank_{b}_util_percent": [share(v, b) for v in found] for b in range(BANKS)}
    mean = [sum(values) / BANKS for values in zip(*banks.values(), strict=True)]
    return _usage("PsumUsage", found, {"avg_util_percent": mean, **banks})


def _usage(name: str, found: list[Life], shares: Mapping[str, list[float]]) -> Table:
    """Values over time: a column is the sum of the shares of what is there. Sums begin anew at each moment, so that empty is 0."""
    start, end = (np.array([getattr(v, k) for v in found], np.int64) for k in ("start", "end"))
    time = distinct(np.concatenate([start, end]))
    columns: dict[str, Array] = {"timestamp": time}
    for column, values in shares.items():
        columns[column] = _levels(time, start, end, np.array(values, np.float64))
    return of(name, {**columns, "pcore_idx": np.zeros_like(time)})


def _levels(time: Ints, start: Ints, end: Ints, height: Array) -> Array:
    """The sum of the heights of what is there at each moment, from it on; a count of parts in 2^40 keeps it exact."""
    whole = np.round(height * (1 << 40)).astype(np.int64)
    change = np.zeros(len(time) + 1, np.int64)
    np.add.at(change, np.searchsorted(time, start), whole)
    np.subtract.at(change, np.searchsorted(time, end), whole)
    return np.asarray(change[:-1].cumsum() / (1 << 40))


def sbuf_allocation(device: Device) -> Table:
    """The addresses of every tensor of SBUF in four partitions, with what writes it first."""
    return from_rows("SbufAllocation", _allocations(device))


def _allocations(device: Device) -> Iterator[dict[str, Any]]:
    i, t = device.trace.instructions, device.trace.transfers
    transfer = transfer_of(device)
    ranks: dict[int, int] = {}
    seen: dict[int, int] = {}
    for n, queue in enumerate(t.queue.index.tolist()):
        ranks[n] = seen[queue] = seen.get(queue, -1) + 1
    for v in lives(device, Memory.SBUF):
        row: dict[str, Any] = {
            "start_ts": v.start, "end_ts": v.end, "start_address": v.address, "end_address": v.address + v.tensor.partition_bytes - 1,
            "tensor_name": v.tensor.name, "pcore_idx": 0,
        }  # fmt: skip
        if v.writer is not None and (n := int(transfer[v.writer])) >= 0:
            row |= {"op_source_type": "dma", "queue_name": queue_name(t.queue[n], int(t.queue.index[n]), -1), "block_id": ranks[n]}
        elif v.writer is not None:
            row |= {"op_source_type": "instruction", "opcode": i.opcode[v.writer], "operands": i.operands(v.writer)}
        for p in SHOWN:
            if p in v.partitions and v.tensor.partition_bytes:
                yield {**row, "partition": p}


def tensor_info(device: Device) -> Table:
    """Inputs, outputs and constants in HBM, and how often they were loaded into SBUF."""
    t = device.trace.transfers
    loads: dict[str, tuple[int, int]] = {}
    into = np.array([v.startswith("SBUF:") for v in (*t.destination.values, "")])[t.destination.index]
    for k, source in enumerate(t.source.values):
        mine = into & (t.source.index == k)
        if source.startswith("HBM:"):
            loads[source.removeprefix("HBM:")] = int(np.count_nonzero(mine)), int(t.read_bytes[mine].sum())
    rows = []
    for tensor in tensors_of(device, KINDS):
        count, total = loads.get(tensor.name, (0, 0))
        size = tensor.partition_bytes
        rows.append({
            "variable_name": tensor.name, "type": KINDS[tensor.kind], "shape": f"[{' '.join(map(str, tensor.shape))}]", "size": size,
            "pcore_idx": 0, "load_to_sbuf_avg_size_bytes": total // count if count else None, "load_to_sbuf_total_size_bytes": total,
            "load_to_sbuf_dma_count": count, "load_to_sbuf_repeat_factor": total / size if size else None,
        })  # fmt: skip
    return from_rows("TensorInfo", rows)
