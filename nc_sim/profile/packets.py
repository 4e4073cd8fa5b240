"""Every DMA packet of a trace. A trace keeps what each DMA engine has of each transfer; the packets follow from it.

A DMA engine sends one packet at a time, and takes turns between its rings packet by packet. Where one ring alone has work,
packets follow each other from the recorded start; where several have, they are passed again in turns, guided by the
recorded starts. What this gives must end where the trace says. A share for which it does not is spread evenly over its
recorded time and counted in `spread`: the profile then carries a warning.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from ..table import Ints
from ..trace.hardware import Trace
from ..trace.operands import packet_bytes
from ..trace.perfetto import DMA_ENGINES
from .source import Device
from .table import distinct

SEMAPHORE_BYTES = 4  # of the packet that raises the semaphore (traces: 16 packets of 4 bytes end every DMA)
AT_ONCE = 1 << 16  # packets of a part, about
TRIES = 1000  # packets passed beyond four times those there are, before turns are given up


@attrs.frozen(eq=False)
class Packets:
    """Some packets, in order of transfer, DMA engine and time. Times are ticks."""

    share: Ints  # row of the trace's shares
    place: Ints  # 0, 1, … within its share; the semaphore packet is the last
    start: Ints
    end: Ints
    bytes: Ints  # in the wider of the two element types
    read_bytes: Ints
    write_bytes: Ints


@attrs.frozen(eq=False)
class Turns:
    """When the packets of shares that took turns begin and end, in ticks after the first; equal ones are kept once."""

    place: Ints  # of each share: where its packets begin below; -1: it had its engine for itself
    start: Ints
    end: Ints


@attrs.frozen(eq=False)
class Shares:
    """What is known of each share's packets, in ticks."""

    trace: Trace
    packets: Ints  # with data
    packet: Ints  # one of them
    lead: Ints  # the first lasts so much longer
    last: Ints  # the semaphore packet
    turns: Turns
    even: npt.NDArray[np.bool_]  # spread evenly
    before: Ints  # packets of the same transfer that other engines send first
    pieces: Ints  # into which a row of the transfer is cut

    @property
    def count(self) -> int:
        """Packets in all, those of semaphores too. A share without an engine is one packet."""
        return int(self.rows.sum())

    @property
    def rows(self) -> Ints:
        """Packets of each share."""
        return np.where(self.trace.shares.engine < 0, 1, self.packets + 1)

    @property
    def spread(self) -> int:
        """Shares whose packets are not known one by one."""
        return int(np.count_nonzero(self.even))


def shares(device: Device) -> Shares:
    """How each share of the trace divides into packets, whose length the timing model says of the DMA."""
    trace = device.trace
    s, t = trace.shares, trace.transfers
    of = s.transfer
    total = np.bincount(of, s.packets, len(t)).astype(np.int64)
    pieces = np.maximum(1, total // np.maximum(1, t.rows))
    engines = s.engine >= 0
    modelled = _modelled(device)
    cells = [c[device.kind[of], np.clip(s.engine, 0, c.shape[1] - 1)] if len(t) else of for c in modelled]
    count, packet, first_lead, busy, last = (np.where(engines, c, 0) for c in cells)
    lead = np.where(engines & (s.packets > 0), s.end.ticks - s.start.ticks - last - s.packets * packet, 0)
    wrong = (s.packets > 0) & (lead != first_lead) & (lead != first_lead + busy) | (count != s.packets)
    turns, unexplained = _turns(device, modelled)
    first = np.searchsorted(of, np.arange(len(t)))
    before = s.packets.cumsum() - s.packets
    even = engines & (wrong & (turns.place < 0) | unexplained)
    return Shares(
        trace, s.packets, packet, lead, last, turns, even, before - before[first][of] if len(s) else of, pieces[of] if len(t) else of
    )


def packets(given: Shares, at_once: int = AT_ONCE) -> Iterator[Packets]:
    """All packets, some at a time."""
    rows = given.rows
    ends = rows.cumsum()
    a = 0
    while a < len(rows):
        b = max(a + 1, int(np.searchsorted(ends, (ends[a - 1] if a else 0) + at_once, side="right")))
        yield _some(given, np.arange(a, b), rows[a:b])
        a = b


def _some(given: Shares, which: Ints, rows: Ints) -> Packets:
    s, t = given.trace.shares, given.trace.transfers
    share = np.repeat(which, rows)
    place = np.arange(len(share)) - np.repeat(rows.cumsum() - rows, rows)
    packet, count, lead = given.packet[share], given.packets[share], given.lead[share]
    begun, ended, last = s.start.ticks[share], s.end.ticks[share], given.last[share]
    start = begun + place * packet + (place > 0) * lead
    end = start + packet + (place == 0) * lead
    final = place == count
    even = given.even[share]
    if even.any():
        span = ended - last - begun
        n = np.maximum(1, count)
        start = np.where(even, begun + span * place // n, start)
        end = np.where(even, begun + span * (place + 1) // n, end)
    turned = np.flatnonzero((given.turns.place[share] >= 0) & ~final)
    at = given.turns.place[share[turned]] + place[turned]
    start[turned], end[turned] = begun[turned] + given.turns.start[at], begun[turned] + given.turns.end[at]
    start, end = np.where(final, ended - last, start), np.where(final, ended, end)
    free = s.engine[share] < 0
    start, end = np.where(free, begun, start), np.where(free, ended, end)
    of = s.transfer[share]
    data = packet_bytes(given.before[share] + place, np.where(final, 0, 1), given.pieces[share], t.row_bytes[of])
    data = np.where(free, s.bytes[share], data)
    read, write = (on_side(data, t.bytes[of], side[of]) for side in (t.read_bytes, t.write_bytes))
    raises = final & ~free
    return Packets(
        share, place, start, end, *(np.where(raises, SEMAPHORE_BYTES, c) for c in (data, read, write))
    )  # fmt: skip


# --- turns -------------------------------------------------------------------------------------------------------


@attrs.frozen
class _Share:
    """A share that overlaps another on its DMA engine."""

    row: int  # in its group
    ring: int
    start: int
    end: int
    packets: int
    packet: int
    first: int  # how much longer its first packet lasts
    busy: int  # and how much more, where a load meets a busy engine
    last: int  # the semaphore packet

    @property
    def leads(self) -> tuple[int, ...]:
        """What its first packet may take longer."""
        return (self.first, self.first + self.busy) if self.busy else (self.first,)


def _modelled(device: Device) -> tuple[Ints, ...]:
    """By kind of DMA and engine: packets, one of them, what the first takes longer, what more on a busy engine, the last."""
    engines = max((len(k) for k in device.kinds), default=1)
    out = np.zeros((5, max(1, len(device.kinds)), max(engines, DMA_ENGINES)), np.int64)
    for k, parts in enumerate(device.kinds):
        for e, part in enumerate(parts):
            out[:, k, e] = part.packets, part.packet, part.first, part.busy_stall, part.last
    return tuple(out)


def _turns(device: Device, modelled: tuple[Ints, ...]) -> tuple[Turns, npt.NDArray[np.bool_]]:
    """Packets of shares that overlap another on their engine, and the shares whose packets turns do not explain."""
    s, t = device.trace.shares, device.trace.transfers
    place, unexplained = np.full(len(s), -1, np.int64), np.zeros(len(s), bool)
    known: dict[tuple[tuple[int, ...], ...], list[int] | None] = {}  # many groups are alike: where their packets are in start and end
    start, end = array("q"), array("q")
    for engine in distinct(s.engine[s.engine >= 0]).tolist():
        mine = np.flatnonzero(s.engine == engine)
        mine = mine[np.argsort(s.start.ticks[mine], kind="stable")]
        begun, ended, of = s.start.ticks[mine], s.end.ticks[mine], s.transfer[mine]
        first = np.flatnonzero(np.append(True, begun[1:] >= np.maximum.accumulate(ended)[:-1]))
        count = np.diff(first, append=len(mine))
        zero = np.repeat(begun[first], count)
        if engine >= modelled[0].shape[1]:  # none that the model knows
            unexplained[mine] = True
            continue
        told = [c.tolist() for c in (t.queue.index[of], begun - zero, ended - zero, *(c[device.kind[of], engine] for c in modelled))]
        for a, n in zip(first[count > 1].tolist(), count[count > 1].tolist(), strict=True):
            key = tuple(zip(*(c[a : a + n] for c in told), strict=True))
            if key not in known:
                known[key] = _kept(key, len(t.queue.values), start, end)
            found = known[key]
            if found is None:
                unexplained[mine[a : a + n]] = True
            else:
                place[mine[a : a + n]] = found
    starts, ends = (np.frombuffer(c, np.int64) if c else np.zeros(0, np.int64) for c in (start, end))
    return Turns(place, starts, ends), unexplained


def _kept(key: tuple[tuple[int, ...], ...], rings: int, start: array[int], end: array[int]) -> list[int] | None:
    """Pass a group of shares and append its packets' times; returns where those of each share begin."""
    together = [_Share(k, *told) for k, told in enumerate(key)]
    passed = _pass(together, rings)
    if passed is None:
        return None
    places = []
    for share in together:
        places.append(len(start))
        start.extend(x - share.start for x in passed[share.row][::2])
        end.extend(x - share.start for x in passed[share.row][1::2])
    return places


Edges = tuple[Any, int, int, int] | None  # the packets before; row, start and end of one


@attrs.frozen
class _State:
    """A DMA engine between two packets."""

    now: int
    turn: int  # the ring to look at first
    at: tuple[int, ...]  # by ring: the share that is its first
    sent: tuple[int, ...]  # and the packets of it that have begun
    edges: Edges


def _pass(together: list[_Share], rings: int) -> dict[int, list[int]] | None:
    """Pass the packets of shares in turns; each begins and ends as recorded, or there is no answer.

    What the first packet of a load adds has two possible values; the recorded times decide.
    """
    queues = [[c for c in together if c.ring == r] for r in range(rings)]
    states = [_State(together[0].start, together[0].ring, (0,) * rings, (0,) * rings, None)]
    for _ in range(TRIES + 4 * sum(c.packets + 1 for c in together)):
        if not states:
            return None
        state = states.pop()
        now, heads = state.now, [q[k] if k < len(q) else None for q, k in zip(queues, state.at, strict=True)]
        if not any(heads):
            return _edges(state.edges, together)
        begun = [c is not None and c.start <= now for c in heads]
        ring = next((r % rings for r in range(state.turn, state.turn + rings) if begun[r % rings]), -1)
        if ring < 0 or any(c and c.start < now and not k for c, k in zip(heads, state.sent, strict=True)):
            continue
        share, sent = heads[ring], state.sent[ring]
        assert share is not None
        if not sent and share.start != now:
            continue
        if sent < share.packets:
            for lead in share.leads if not sent else (0,):
                end = now + share.packet + lead
                states.append(_State(end, ring + 1, state.at, _with(state.sent, ring, sent + 1), (state.edges, share.row, now, end)))
        elif now + share.last == share.end:
            states.append(_State(share.end, ring + 1, _with(state.at, ring, state.at[ring] + 1), _with(state.sent, ring, 0), state.edges))
    return None


def _with(values: tuple[int, ...], place: int, value: int) -> tuple[int, ...]:
    return (*values[:place], value, *values[place + 1 :])


def _edges(edges: Edges, together: list[_Share]) -> dict[int, list[int]]:
    """By row: start and end of each packet, in order."""
    out: dict[int, list[int]] = {c.row: [] for c in together}
    while edges:
        edges, row, start, end = edges
        out[row] += end, start
    return {row: times[::-1] for row, times in out.items()}


def on_side(size: Ints, whole: Ints, side: Ints) -> Ints:
    """Bytes of a part of a DMA on one side, of which the whole moves `side`, where the widest element type counts `size` of `whole`.

    A sum reads more than one of it.
    """
    common = np.gcd(whole, side)  # keeps the product in 64 bits
    return size * (side // np.maximum(1, common)) // np.maximum(1, whole // np.maximum(1, common))


def generation(queue: str) -> str:
    """Who makes the descriptors of a queue, by its name: hardware, software or static."""
    return "hardware" if queue.endswith("DynamicHW") else "software" if queue.endswith("Dynamic") else "static"
