"""What is done: asking, and being told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import simpy

from .status import NrtStatus, XuType
from .units import SEQUENCE_MASK, XU_BITS

if TYPE_CHECKING:
    from .api import Runtime


def nrta_is_completed(rt: Runtime, seq: int) -> tuple[NrtStatus, bool]:
    """INVALID for a sequence id that no request had."""
    if (bad := rt.usable()) is not NrtStatus.SUCCESS:
        return bad, False
    unit = rt.by_id.get(seq >> XU_BITS)
    number = seq & SEQUENCE_MASK
    if unit is None or not 1 <= number <= unit.issued:
        return NrtStatus.INVALID, False
    return NrtStatus.SUCCESS, number <= unit.completed


def nrta_get_sequence(rt: Runtime, lnc: int, kind: XuType, queue: int) -> tuple[NrtStatus, int]:
    """The last completed sequence id of a unit; QUEUE_EMPTY if nothing has completed."""
    if (bad := rt.usable()) is not NrtStatus.SUCCESS:
        return bad, 0
    unit = rt.units.get((lnc, kind, queue))
    if unit is None:
        return NrtStatus.INVALID, 0
    if unit.completed == 0:
        return NrtStatus.QUEUE_EMPTY, 0
    return NrtStatus.SUCCESS, unit.id << XU_BITS | unit.completed


def nrta_event_register_seq_id_completion(rt: Runtime, seq: int) -> tuple[NrtStatus, simpy.Event]:
    """An event that fires when a request is done, at once if it is; its value is the sequence id.

    INVALID for a sequence id that no request had. The event of a call that fails fires at once, so that nobody hangs.
    """
    event = rt.env.event()
    status, done = rt.nrta_is_completed(seq)
    if done or status is not NrtStatus.SUCCESS:
        event.succeed(seq)
    else:
        rt.watchers.setdefault(seq, []).append(event)
    return status, event


def nrta_event_register_xu_completion(rt: Runtime, lnc: int, kind: XuType, queue: int) -> tuple[NrtStatus, simpy.Event]:
    """An event that fires when a unit next completes a request; its value is the sequence id. INVALID for no unit."""
    event = rt.env.event()
    unit = rt.units.get((lnc, kind, queue))
    status = rt.usable()
    if status is NrtStatus.SUCCESS and unit is None:
        status = NrtStatus.INVALID
    if status is not NrtStatus.SUCCESS or unit is None:
        event.succeed()
    else:
        unit.watchers.append(event)
    return status, event
