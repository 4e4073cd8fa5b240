"""Tensors and sets of them: allocating, freeing and copying them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .copies import bytes_of, copy_ns, direction, hold, move
from .events import RUNTIME
from .objects import Batch, DeviceTensor, Request, Ret, Storage, TensorSet
from .status import NrtStatus, XuType
from .units import Step, enqueue, note

if TYPE_CHECKING:
    from .api import Runtime

Copy = tuple[Any, int, Any, int, int]  # source, offset, destination, offset, bytes


def nrt_tensor_allocate(rt: Runtime, placement: str, vnc: int, size: int, name: str = "") -> tuple[NrtStatus, DeviceTensor | None]:
    """A buffer on a core ("device") or on the host; RESOURCE when the core's HBM has no room.

    FAIL_HOST_MEM_ALLOC when the machine that simulates has no room for its bytes.
    """
    if (bad := rt.usable()) is not NrtStatus.SUCCESS:
        return bad, None
    if placement not in ("device", "host") or size < 1 or (placement == "device" and not 0 <= vnc < rt.cores):
        return NrtStatus.INVALID, None
    core = vnc if placement == "device" else -1
    if core >= 0 and rt.hbm_used[core] + size > rt.hbm_bytes:
        return NrtStatus.RESOURCE, None
    try:
        data = np.zeros(size, np.uint8)
    except (MemoryError, ValueError):  # ValueError: more than numpy can name
        return NrtStatus.FAIL_HOST_MEM_ALLOC, None
    if core >= 0:
        rt.hbm_used[core] += size
    return NrtStatus.SUCCESS, _made(rt, name, Storage(core, size), data)


def nrt_tensor_allocate_empty(rt: Runtime, name: str = "") -> tuple[NrtStatus, DeviceTensor | None]:
    """A tensor without storage: 0 bytes, on the host, until a buffer is attached."""
    if (bad := rt.usable()) is not NrtStatus.SUCCESS:
        return bad, None
    return NrtStatus.SUCCESS, _made(rt, name, Storage(-1, 0), np.empty(0, np.uint8))


def nrt_tensor_allocate_slice(
    rt: Runtime, source: DeviceTensor, offset: int, size: int, name: str = ""
) -> tuple[NrtStatus, DeviceTensor | None]:
    """A tensor that is part of another's storage, without a copy. Both share the storage, which lives as long as either.

    INVALID for bytes that the source has not.
    """
    if (bad := rt.usable()) is not NrtStatus.SUCCESS:
        return bad, None
    if source.freed:
        return NrtStatus.INVALID_HANDLE, None
    if offset < 0 or size < 1 or offset + size > source.size:
        return NrtStatus.INVALID, None
    source.storage.users += 1
    return NrtStatus.SUCCESS, _made(rt, name, source.storage, source.data[offset : offset + size])


def nrt_tensor_attach_buffer(rt: Runtime, tensor: DeviceTensor, buffer: np.ndarray) -> NrtStatus:
    """Make a host array the tensor's storage, whatever it had before: it is then a tensor of the host.

    INVALID while a request uses the tensor, and for an array that cannot be written. The array must be contiguous.
    """
    if (bad := rt.usable()) is not NrtStatus.SUCCESS:
        return bad
    if tensor.freed:
        return NrtStatus.INVALID_HANDLE
    if tensor.in_flight or not buffer.flags.writeable or buffer.nbytes < 1:
        return NrtStatus.INVALID
    data = bytes_of(buffer)
    _release(rt, tensor)
    tensor.storage, tensor.data = Storage(-1, 0), data
    return NrtStatus.SUCCESS


def nrt_tensor_get_size(rt: Runtime, tensor: DeviceTensor) -> int:
    """Bytes; 0 without storage and once freed. Not a status, as in the C interface."""
    return tensor.size


def nrt_tensor_free(rt: Runtime, tensor: DeviceTensor) -> NrtStatus:
    """INVALID_HANDLE if freed before; INVALID while a request uses it: it must live until that completes."""
    if (bad := rt.usable()) is not NrtStatus.SUCCESS:
        return bad
    if tensor.freed:
        return NrtStatus.INVALID_HANDLE
    if tensor.in_flight:
        return NrtStatus.INVALID
    note(rt, "nrt_tensor_free", tensor.core, {"tensor_id": tensor.id, "size": tensor.size})
    _release(rt, tensor)
    tensor.freed = True
    return NrtStatus.SUCCESS


def _made(rt: Runtime, name: str, storage: Storage, data: np.ndarray) -> DeviceTensor:
    tensor = DeviceTensor(rt.tensor_ids, name, storage, data)
    rt.tensor_ids += 1
    note(rt, "nrt_tensor_allocate", storage.core, {"tensor_id": tensor.id, "size": data.nbytes})
    return tensor


def _release(rt: Runtime, tensor: DeviceTensor) -> None:
    """The tensor no longer uses its storage; the last one gives it back."""
    storage = tensor.storage
    storage.users -= 1
    if storage.users == 0 and storage.core >= 0:
        rt.hbm_used[storage.core] -= storage.size
    tensor.data = np.empty(0, np.uint8)


# --- sets --------------------------------------------------------------------------------------------------------


def nrt_allocate_tensor_set(rt: Runtime) -> tuple[NrtStatus, TensorSet | None]:
    """An empty set."""
    if (bad := rt.usable()) is not NrtStatus.SUCCESS:
        return bad, None
    return NrtStatus.SUCCESS, TensorSet()


def nrt_add_tensor_to_tensor_set(rt: Runtime, tensors: TensorSet, name: str, tensor: DeviceTensor) -> NrtStatus:
    """Add a tensor, or replace that of the same name; requests that are in flight keep the one they had."""
    if (bad := rt.usable()) is not NrtStatus.SUCCESS:
        return bad
    if tensors.destroyed or tensor.freed:
        return NrtStatus.INVALID_HANDLE
    tensors.tensors[name] = tensor
    return NrtStatus.SUCCESS


def nrt_get_tensor_from_tensor_set(rt: Runtime, tensors: TensorSet, name: str) -> tuple[NrtStatus, DeviceTensor | None]:
    """The tensor of a name; FAILURE if there is none."""
    if (bad := rt.usable()) is not NrtStatus.SUCCESS:
        return bad, None
    if tensors.destroyed:
        return NrtStatus.INVALID_HANDLE, None
    found = tensors.tensors.get(name)
    return (NrtStatus.FAILURE if found is None else NrtStatus.SUCCESS), found


def nrt_destroy_tensor_set(rt: Runtime, tensors: TensorSet) -> NrtStatus:
    """INVALID_HANDLE if destroyed before; INVALID while a request uses it. Its tensors live on."""
    if (bad := rt.usable()) is not NrtStatus.SUCCESS:
        return bad
    if tensors.destroyed:
        return NrtStatus.INVALID_HANDLE
    if tensors.in_flight:
        return NrtStatus.INVALID
    tensors.destroyed, tensors.tensors = True, {}
    return NrtStatus.SUCCESS


# --- copies ------------------------------------------------------------------------------------------------------


def nrt_tensor_write(rt: Runtime, tensor: DeviceTensor, data: np.ndarray, offset: int = 0, *, thread: int = 0) -> Step:
    """Host to device, synchronous; returns the status."""
    return (yield from _copies_now(rt, "nrt_tensor_write", [(bytes_of(data), 0, tensor, offset, data.nbytes)], thread))


def nrt_tensor_read(rt: Runtime, tensor: DeviceTensor, into: np.ndarray, offset: int = 0, *, thread: int = 0) -> Step:
    """Device to host, synchronous: what the tensor holds at that moment, whoever is about to write it."""
    return (yield from _copies_now(rt, "nrt_tensor_read", [(tensor, offset, bytes_of(into), 0, into.nbytes)], thread))


def nrt_tensor_copy(
    rt: Runtime, src: DeviceTensor, src_offset: int, dst: DeviceTensor, dst_offset: int, size: int, *, thread: int = 0
) -> Step:
    """Between two tensors, synchronous; INVALID for tensors of two cores. Returns the status."""
    return (yield from _copies_now(rt, "nrt_tensor_copy", [(src, src_offset, dst, dst_offset, size)], thread))


def nrt_tensor_write_batch(rt: Runtime, batches: Sequence[Batch], *, thread: int = 0) -> Step:
    """Several writes in one call, each (tensor, [(offset, data), ...]), one after the other; returns the status.

    The first status other than SUCCESS is returned before anything moves; INVALID for nothing to do.
    """
    copies = [(bytes_of(data), 0, t, offset, data.nbytes) for t, ops in batches for offset, data in ops]
    return (yield from _copies_now(rt, "nrt_tensor_write_batch", copies, thread))


def nrt_tensor_read_batch(rt: Runtime, batches: Sequence[Batch], *, thread: int = 0) -> Step:
    """Several reads in one call, as `nrt_tensor_write_batch`."""
    copies = [(t, offset, bytes_of(into), 0, into.nbytes) for t, ops in batches for offset, into in ops]
    return (yield from _copies_now(rt, "nrt_tensor_read_batch", copies, thread))


def nrt_tensor_memset(rt: Runtime, tensor: DeviceTensor, offset: int, value: int, size: int, *, thread: int = 0) -> Step:
    """Set bytes to the low byte of `value`, synchronous; returns the status. It takes the time of a copy of as many bytes."""
    filled = np.broadcast_to(np.uint8(value & 0xFF), (max(0, size),))
    return (yield from _copies_now(rt, "nrt_tensor_memset", [(filled, 0, tensor, offset, size)], thread, inner=False))


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


def _copies_now(rt: Runtime, name: str, copies: Sequence[Copy], thread: int, *, inner: bool = True) -> Step:
    """Copies one after the other in one call. Its event has no core if they have several."""
    for copy in copies:
        if (bad := _copy_status(rt, *copy)) is not NrtStatus.SUCCESS:
            return bad
    if not copies:
        return NrtStatus.INVALID if rt.usable() is NrtStatus.SUCCESS else rt.usable()
    start, ends = rt.now, []
    tensors = [x for src, _, dst, _, _ in copies for x in (src, dst) if isinstance(x, DeviceTensor)]
    rt.calls += 1
    hold(tensors, 1)
    try:
        for copy in copies:
            yield rt.spend(copy_ns(rt, copy[4]))
            move(*copy)
            ends.append(rt.now)
    finally:
        rt.calls -= 1
        hold(tensors, -1)
    cores = [_core(copy) for copy in copies]
    core = cores[0] if len(set(cores)) == 1 else -1
    outer = rt.trace.add(name, RUNTIME, start, rt.now, core=core, thread=thread, attributes={"size": sum(c[4] for c in copies)})
    for copy, on, begun, end in zip(copies, cores, [start, *ends], ends, strict=False):
        if inner and (step := direction(copy[0], copy[2])):
            rt.trace.add(step, RUNTIME, begun, end, core=on, thread=thread, parent=outer, attributes={"size": copy[4]})
    return NrtStatus.SUCCESS


def _core(copy: Copy) -> int:
    return max(x.core for x in (copy[0], copy[2]) if isinstance(x, DeviceTensor))


def _enqueue_copy(rt: Runtime, name: str, src: Any, at: int, dst: Any, to: int, size: int, queue: int, ret: Ret, thread: int) -> Step:
    if (bad := _copy_status(rt, src, at, dst, to, size)) is not NrtStatus.SUCCESS:
        return bad, 0
    if not 0 <= queue < XuType.TENSOR_OP.queues:
        return NrtStatus.INVALID, 0
    core = _core((src, at, dst, to, size))
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
    if isinstance(dst, np.ndarray) and not dst.flags.writeable:
        return NrtStatus.INVALID
    if len({t.core for t in tensors if t.core >= 0}) > 1:
        return NrtStatus.INVALID  # device to device asks for one core
    return NrtStatus.SUCCESS
