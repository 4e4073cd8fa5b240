"""Tensors: allocating, freeing and copying them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .copies import bytes_of, copy_ns, direction, hold, move
from .events import RUNTIME
from .objects import DeviceTensor, Request, Ret
from .status import NrtStatus, XuType
from .units import Step, enqueue, note

if TYPE_CHECKING:
    from .api import Runtime


def nrt_tensor_allocate(rt: Runtime, placement: str, vnc: int, size: int, name: str = "") -> tuple[NrtStatus, DeviceTensor | None]:
    """A buffer on a core ("device") or on the host; RESOURCE when the core's HBM has no room."""
    if (bad := rt.usable()) is not NrtStatus.SUCCESS:
        return bad, None
    if placement not in ("device", "host") or size < 1 or (placement == "device" and not 0 <= vnc < rt.cores):
        return NrtStatus.INVALID, None
    core = vnc if placement == "device" else -1
    if core >= 0 and rt.hbm_used[core] + size > rt.hbm_bytes:
        return NrtStatus.RESOURCE, None
    tensor = DeviceTensor(rt.tensor_ids, name, core, np.zeros(size, np.uint8))
    rt.tensor_ids += 1
    if core >= 0:
        rt.hbm_used[core] += size
    note(rt, "nrt_tensor_allocate", core, {"tensor_id": tensor.id, "size": size})
    return NrtStatus.SUCCESS, tensor


def nrt_tensor_free(rt: Runtime, tensor: DeviceTensor) -> NrtStatus:
    """INVALID_HANDLE if freed before; INVALID while a request uses it: it must live until that completes."""
    if (bad := rt.usable()) is not NrtStatus.SUCCESS:
        return bad
    if tensor.freed:
        return NrtStatus.INVALID_HANDLE
    if tensor.in_flight:
        return NrtStatus.INVALID
    if tensor.core >= 0:
        rt.hbm_used[tensor.core] -= tensor.size
    note(rt, "nrt_tensor_free", tensor.core, {"tensor_id": tensor.id, "size": tensor.size})
    tensor.freed, tensor.data = True, np.empty(0, np.uint8)
    return NrtStatus.SUCCESS


def nrt_tensor_write(rt: Runtime, tensor: DeviceTensor, data: np.ndarray, offset: int = 0, *, thread: int = 0) -> Step:
    """Host to device, synchronous; returns the status."""
    return (yield from _copy_now(rt, "nrt_tensor_write", bytes_of(data), 0, tensor, offset, data.nbytes, thread))


def nrt_tensor_read(rt: Runtime, tensor: DeviceTensor, into: np.ndarray, offset: int = 0, *, thread: int = 0) -> Step:
    """Device to host, synchronous: what the tensor holds at that moment, whoever is about to write it."""
    return (yield from _copy_now(rt, "nrt_tensor_read", tensor, offset, bytes_of(into), 0, into.nbytes, thread))


def nrt_tensor_copy(
    rt: Runtime, src: DeviceTensor, src_offset: int, dst: DeviceTensor, dst_offset: int, size: int, *, thread: int = 0
) -> Step:
    """Between two tensors, synchronous; INVALID for tensors of two cores. Returns the status."""
    return (yield from _copy_now(rt, "nrt_tensor_copy", src, src_offset, dst, dst_offset, size, thread))


def nrta_tensor_write(rt: Runtime, tensor: DeviceTensor, data: np.ndarray, offset: int, queue: int, ret: Ret, *, thread: int = 0) -> Step:
    """Enqueue a copy to the device. Zero copy: the host buffer is read when the copy runs."""
    return (yield from _enqueue_copy(rt, "nrta_tensor_write", bytes_of(data), 0, tensor, offset, data.nbytes, queue, ret, thread))


def nrta_tensor_read(rt: Runtime, into: np.ndarray, tensor: DeviceTensor, offset: int, queue: int, ret: Ret, *, thread: int = 0) -> Step:
    """Enqueue a copy to the host."""
    return (yield from _enqueue_copy(rt, "nrta_tensor_read", tensor, offset, bytes_of(into), 0, into.nbytes, queue, ret, thread))


def nrta_tensor_copy(
    rt: Runtime, src: DeviceTensor, src_offset: int, dst: DeviceTensor, dst_offset: int, size: int, queue: int, ret: Ret, *, thread: int = 0
) -> Step:
    """Enqueue a copy between two tensors of one core."""
    return (yield from _enqueue_copy(rt, "nrta_tensor_copy", src, src_offset, dst, dst_offset, size, queue, ret, thread))


def _copy_now(rt: Runtime, name: str, src: Any, at: int, dst: Any, to: int, size: int, thread: int) -> Step:
    if (bad := _copy_status(rt, src, at, dst, to, size)) is not NrtStatus.SUCCESS:
        return bad
    start = rt.now
    tensors = [x for x in (src, dst) if isinstance(x, DeviceTensor)]
    core = max(t.core for t in tensors)
    rt.calls += 1
    hold(tensors, 1)
    try:
        yield rt.spend(copy_ns(rt, size))
        move(src, at, dst, to, size)
    finally:
        rt.calls -= 1
        hold(tensors, -1)
    outer = rt.trace.add(name, RUNTIME, start, rt.now, core=core, thread=thread, attributes={"size": size})
    if inner := direction(src, dst):
        rt.trace.add(inner, RUNTIME, start, rt.now, core=core, thread=thread, parent=outer, attributes={"size": size})
    return NrtStatus.SUCCESS


def _enqueue_copy(rt: Runtime, name: str, src: Any, at: int, dst: Any, to: int, size: int, queue: int, ret: Ret, thread: int) -> Step:
    if (bad := _copy_status(rt, src, at, dst, to, size)) is not NrtStatus.SUCCESS:
        return bad, 0
    if not 0 <= queue < XuType.TENSOR_OP.queues:
        return NrtStatus.INVALID, 0
    core = max(x.core for x in (src, dst) if isinstance(x, DeviceTensor))
    if core < 0:
        return NrtStatus.INVALID, 0
    request = Request(0, XuType.TENSOR_OP, core, queue, ret, thread, copy=(src, at, dst, to, size), label=name)
    return (yield from enqueue(rt, request, name))


def _copy_status(rt: Runtime, src: Any, at: int, dst: Any, to: int, size: int) -> NrtStatus:
    if (bad := rt.usable()) is not NrtStatus.SUCCESS:
        return bad
    tensors = [x for x in (src, dst) if isinstance(x, DeviceTensor)]
    if any(t.freed for t in tensors):
        return NrtStatus.INVALID_HANDLE
    ends = ((src, at), (dst, to))
    if size < 1 or any(o < 0 or o + size > (x.size if isinstance(x, DeviceTensor) else x.nbytes) for x, o in ends):
        return NrtStatus.INVALID
    if len({t.core for t in tensors if t.core >= 0}) > 1:
        return NrtStatus.INVALID  # device to device asks for one core
    return NrtStatus.SUCCESS
