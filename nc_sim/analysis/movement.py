"""How engines overlap, and what the DMA engines make of rows of each length."""

from __future__ import annotations

import attrs
import numpy as np

from ..isa import Engine, Instruction
from ..isa.dma import Dma
from ..notebook import Records
from ..result import Result, body_ticks
from ..table import Ints
from ..timeline import step_ends
from .lines import own_work

DMA = "DMA"


@attrs.frozen
class Overlap:
    """How long two engines both work; of one with itself, how long it works. DMA: any DMA engine moves something."""

    engine: str
    other: str
    ticks: int
    ns: float
    share: float  # of the body


@attrs.frozen
class Rows:
    """All DMA rows of one length in one direction."""

    direction: str  # load or store
    row_bytes: int  # of the wider element type
    dmas: int
    packets: int
    bytes: int
    packets_ns: float  # the sum over the DMA engines of the time of their packets
    engines_ns: float  # the same with stalls, semaphore packets and other rings' turns: from first packet to the end
    bytes_per_ns: float  # of one engine while it sends packets
    effective_bytes_per_ns: float  # the same from first packet to the end
    peak_bytes_per_ns: float  # of one engine, with rows of no fixed time

    @property
    def efficiency(self) -> float:
        """Rate from first packet to the end, over the peak."""
        return self.effective_bytes_per_ns / self.peak_bytes_per_ns


def overlap(result: Result) -> Records[Overlap]:
    """Every pair of engines that did anything, and the DMA engines as one: instructions from start to visible result."""
    lines = working(result)
    total = body_ticks(result.table, result.timeline)
    names = list(lines)
    edges = np.unique(np.concatenate([e.reshape(-1) for e in lines.values()])) if lines else np.zeros(0, np.int64)
    inside = np.zeros((len(names), max(0, len(edges) - 1)), np.int64)
    for k, name in enumerate(names):
        begin, end = lines[name].T
        inside[k] = (np.searchsorted(begin, edges[:-1], side="right") - np.searchsorted(end, edges[:-1], side="right")) > 0
    both = (inside * np.diff(edges)) @ inside.T
    return Records(
        Overlap(a, b, int(both[i, k]), result.chip.ns(int(both[i, k])), int(both[i, k]) / total if total else 0.0)
        for i, a in enumerate(names)
        for k, b in enumerate(names)
        if i <= k
    )


def working(result: Result) -> dict[str, Ints]:
    """Disjoint intervals [n, 2] in which each engine has an instruction between start and visible result; and the DMA engines."""
    table, timeline = result.table, result.timeline
    engine = np.fromiter((s.engine for s in result.steps), np.int64, len(result.steps))
    start, end = timeline.start[table.start_row], step_ends(table, timeline)
    out = {e.label: _union(start[engine == e], end[engine == e]) for e in Engine if (engine == e).any()}
    if table.transfers:
        total = body_ticks(table, timeline)
        moving = [np.minimum(c[table.rows :], total) for c in (timeline.start, timeline.finish)]
        out[DMA] = _union(*moving)
    return out


def _union(start: Ints, end: Ints) -> Ints:
    """Intervals that may overlap as disjoint ones, in order."""
    order = np.argsort(start, kind="stable")
    begin, reach = start[order], np.maximum.accumulate(end[order])
    fresh = np.append(True, begin[1:] > reach[:-1])
    last = np.append(fresh[1:], True)
    return np.stack([begin[fresh], reach[last]], axis=1)


def dma_rows(result: Result) -> Records[Rows]:
    """DMA by direction and length of rows, loads first, short rows first. What meets no DMA engine is left out."""
    table, timeline, reader = result.table, result.timeline, result.chip.reader()
    step = table.step[table.rows :]
    served = np.flatnonzero(table.server >= 0)
    kinds, of_kind = result.alike.kinds, result.alike.kind[result.alike.row]
    groups: dict[tuple[int, int], list[int]] = {}
    for k, i in enumerate(kinds):
        if isinstance(i, Dma):
            groups.setdefault((int(not i.load), i.row_bytes), []).append(k)
    alone = own_work(table, np.arange(table.transfers)) - table.last - table.first * (table.packets > 0)
    spent = timeline.finish[table.rows :] - timeline.start[table.rows :]
    size = np.array([_bytes(i) for i in kinds], np.int64)
    out = []
    for (store, row_bytes), members in sorted(groups.items()):
        mine = served[np.isin(of_kind[step[served]], members)]
        if not len(mine):
            continue
        dmas = np.unique(step[mine])
        moved = int(size[of_kind[dmas]].sum())
        sending, engines = result.chip.ns(int(alone[mine].sum())), result.chip.ns(int(spent[mine].sum()))
        peak = float(reader("dma.store_bytes_per_ns" if store else "dma.load_bytes_per_ns"))
        out.append(
            Rows(
                direction="store" if store else "load", row_bytes=row_bytes, dmas=len(dmas), packets=int(table.packets[mine].sum()),
                bytes=moved, packets_ns=sending, engines_ns=engines, bytes_per_ns=moved / sending if sending else 0.0,
                effective_bytes_per_ns=moved / engines if engines else 0.0, peak_bytes_per_ns=peak,
            )
        )  # fmt: skip
    return Records(out)


def _bytes(i: Instruction) -> int:
    """What a DMA moves, of the wider element type; 0 for another instruction."""
    return i.dst.size // i.row_elements * i.row_bytes if isinstance(i, Dma) else 0
