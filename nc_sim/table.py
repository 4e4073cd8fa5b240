"""The contract between lowering and the engines: flat integer columns, no instruction, no chip, no cost model.

Times are ticks. Rows 0 … n-1 belong to streams and are grouped by stream, in order; rows n … n+m-1 are transfers, one
per DMA engine that a trigger reaches. A row's index is therefore its (stream, row) order, the tie-break of the rule of
time: in each tick first everything that ends, then everything that begins, both in row order; an update fired by a
beginning is seen from the next tick.

What an engine may rely on: every issue interval, latency, START delay and STREAM work is at least 1. Rows of the array
(LOAD, STREAM) share one stream, which is not ordered; a STREAM waits for every earlier LOAD and STREAM; their issue
interval and START delays are the same in all states. A ring belongs to one stream. Updates of transfers count from
FINISH.

The bucket is what all DMA engines share: every packet puts its units in when it begins, and they drain in that order. So a
transfer with no burst moves at the bucket's rate, one with a burst runs ahead of it by so much, and one that settles is
complete only when its units have drained.

A port is what streams exclude each other from. A row that uses ports asks for them when its waits are met, and its waits are
not looked at again; it begins when no other stream holds one of them and none that asked before still wants one. It holds
them until its finish. Rows of one stream share what the stream holds. Rows of the array use none.
"""

from __future__ import annotations

import enum
from fractions import Fraction

import attrs
import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class Rule(enum.IntEnum):
    """How a row picks its cost state when it starts."""

    ALWAYS = 0  # state 0
    FOLLOW = 1  # 1 if the last row of this rule on the stream finished less than `follow_window` ago
    LOAD = 2  # loads weights for `cost_load` ticks, by the throttle's level; state 2 x (gated when in) + (array busy at start)
    STREAM = 3  # occupies the throttled array for `work`; state 2 x (gated at the end)


class When(enum.IntEnum):
    """The moment an update's delay counts from."""

    START = 0
    STREAMED = 1  # the array is done with the row (LOAD, STREAM); its latency counts from here
    FINISH = 2


class Op(enum.IntEnum):
    ADD = 0
    SUB = 1
    SET = 2


class Role(enum.IntEnum):
    """What a row stands for in its instruction."""

    SEQUENCE = 0  # the sequencer waits and hands over
    CONTROL = 1  # the sequencer executes it
    EXECUTE = 2  # an engine executes it
    HANDED = 3  # a MATMUL enters the array's queue
    STREAM = 4  # and streams
    ACCEPT = 5  # a trigger that may stall on its ring
    TRIGGER = 6  # descriptors are generated; transfers start counting
    TRANSFER = 7  # one DMA engine's share


STATES = 4
MOST_PORTS = 4
MAX_UPDATES = 15  # per row; leaves room for an order within the row


@attrs.frozen
class Throttle:
    """How the array's rate depends on its recent use. Work is counted in units: `full` per tick at full rate, `gated` below.

    Windows run freely, and each is full or gated by what streamed in the one before. A streak begins with a product that
    finds the array idle for `idle` ticks or more; `limit` ticks later whatever streams is gated, until the array has been
    idle for `idle` ticks. One kind at a time; with neither the array is never throttled.
    """

    window: int  # ticks; 0: no windows
    phase: int  # ticks from time zero to an edge
    full: int
    gated: int
    threshold: int  # units streamed in a window that keep or make the next one full
    starts_gated: bool
    limit: int = 0  # ticks of a streak at full rate, at least 1; 0: no streaks
    idle: int = 0  # ticks, at least 1

    @property
    def changes(self) -> bool:
        """True if the rate is not always full."""
        return self.window > 0 or self.limit > 0


@attrs.frozen(eq=False)
class Table:
    """A lowered program. See the module docstring for the order of rows."""

    stream_names: tuple[str, ...]
    stream_start: Ints  # [S]
    stream_ptr: Ints  # [S + 1]: rows of stream s
    stream_ordered: Ints  # [S]: 1: a row finishes no earlier than the rows before it; STREAM rows never overtake each other
    # every row, transfers included [n + m]
    step: Ints
    role: Ints
    # rows of streams [n]
    cost: Ints  # index into cost_issue, cost_latency
    rule: Ints
    work: Ints  # units of the throttle, for Rule.STREAM
    ports: Ints  # bit p: it uses port p
    fan_ptr: Ints  # [n + 1]: transfers (0 … m-1) a row's start sets off
    wait_ptr: Ints  # [n + 1]
    wait_semaphore: Ints
    wait_value: Ints
    update_ptr: Ints  # [n + m + 1]
    update_semaphore: Ints
    update_op: Ints
    update_value: Ints
    update_when: Ints
    update_delay: Ints  # index into delays
    cost_issue: Ints  # [C, STATES]
    cost_latency: Ints  # [C, STATES]
    cost_load: Ints  # [C, STATES], for Rule.LOAD
    delays: Ints  # [D, STATES]
    # transfers [m]
    server: Ints  # DMA engine; -1: none, the transfer takes `packet` ticks after its arrival
    ring: Ints
    arrival: Ints  # ticks after the trigger's start
    packets: Ints
    packet: Ints
    first: Ints  # added to the first packet
    last: Ints  # the semaphore packet
    load: Ints  # 1: loads meet the busy rule
    busy_delay: Ints
    busy_stall: Ints
    units: Ints  # of the bucket, that one packet puts in
    burst: Ints  # units in the bucket with which a packet may end; with more it ends when they have drained
    settle: Ints  # ticks from its packets drained to the end of its semaphore packet, at least; -1: that waits for no bucket
    # scalars
    drain: int  # units that leave the bucket in a tick; 0: there is none
    servers: int
    rings: int
    semaphores: int
    semaphore_names: tuple[str, ...]
    follow_window: int
    recent: int
    queued: int  # a profile shows a software trigger so many ticks longer for each unfinished transfer of its ring
    packet_shown: int  # and a packet so many ticks longer than the time to the next one
    throttle: Throttle
    ticks_per_ns: Fraction
    # of each step [steps]
    wait_row: Ints
    start_row: Ints
    finish_row: Ints

    @property
    def rows(self) -> int:
        """Rows of streams."""
        return len(self.cost)

    @property
    def transfers(self) -> int:
        """Rows of DMA engines."""
        return len(self.server)

    @property
    def size(self) -> int:
        """Rows plus DMA packets: the measure of simulation speed."""
        return self.rows + self.transfers + int(self.packets.sum())

    def stream_of(self, row: int) -> int:
        """The stream a row belongs to."""
        return int(np.searchsorted(self.stream_ptr, row, side="right")) - 1
