"""What is done: asking, and being told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import simpy

from .copies import hold
from .objects import DeviceTensor
from .status import NrtStatus, XuType
from .units import SEQUENCE_MASK, XU_BITS, Step

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


def nrt_tensor_check_output_completion(rt: Runtime, tensor: DeviceTensor | None, timeout_us: int, expected: int) -> Step:
    """Wait until executions have written a tensor `expected` times since its last reset; returns the status.

    TIMEOUT after `timeout_us`, which is without limit if negative; INVALID without a tensor. Only executions that wrote the
    tensor count, once the host knows of them.
    """
    if (bad := _output_status(rt, tensor)) is not NrtStatus.SUCCESS or tensor is None:
        return bad
    if tensor.completions >= expected or timeout_us == 0:
        return NrtStatus.SUCCESS if tensor.completions >= expected else NrtStatus.TIMEOUT
    limit = rt.spend(timeout_us * 1000) if timeout_us > 0 else None
    hold([tensor], 1)
    rt.calls += 1
    try:
        while tensor.completions < expected:
            told = rt.env.event()
            tensor.waiting.append(told)
            yield told if limit is None else told | limit
            if not told.triggered:
                tensor.waiting.remove(told)
                return NrtStatus.TIMEOUT
    finally:
        rt.calls -= 1
        hold([tensor], -1)
    return NrtStatus.SUCCESS


def nrt_tensor_reset_output_completion(rt: Runtime, tensor: DeviceTensor | None) -> NrtStatus:
    """Count from zero again; INVALID without a tensor."""
    if (bad := _output_status(rt, tensor)) is not NrtStatus.SUCCESS or tensor is None:
        return bad
    tensor.completions = 0
    return NrtStatus.SUCCESS


def _output_status(rt: Runtime, tensor: DeviceTensor | None) -> NrtStatus:
    if (bad := rt.usable()) is not NrtStatus.SUCCESS:
        return bad
    if tensor is None:
        return NrtStatus.INVALID
    return NrtStatus.INVALID_HANDLE if tensor.freed else NrtStatus.SUCCESS


def nrta_seq_get_xu_id(seq: int) -> int:
    """The execution unit of a sequence id (NRTA_SEQ_GET_XU_ID); what the number means is not published."""
    return seq >> XU_BITS


def nrta_seq_get_seq_num(seq: int) -> int:
    """The number of a sequence id among the requests of its unit, from 1 (NRTA_SEQ_GET_SEQ_NUM)."""
    return seq & SEQUENCE_MASK


NRTA_SEQ_GET_XU_ID, NRTA_SEQ_GET_SEQ_NUM = nrta_seq_get_xu_id, nrta_seq_get_seq_num
