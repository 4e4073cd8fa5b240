"""The bytes of a copy: which, how long, and between what."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from .objects import DeviceTensor, TensorSet

if TYPE_CHECKING:
    from .api import Runtime


def copy_ns(rt: Runtime, size: int) -> int:
    return rt.profile.copy_ns + -(-size * 1000 // rt.profile.copy_bytes_per_us)


def bytes_of(array: np.ndarray) -> np.ndarray:
    """The array's own memory as bytes. ValueError for what is no contiguous array."""
    if not isinstance(array, np.ndarray):
        raise ValueError(f"a host buffer must be a numpy array, not {type(array).__name__}")
    if not array.flags.c_contiguous:
        raise ValueError("a host buffer must be contiguous")
    view: np.ndarray = array.reshape(-1).view(np.uint8)
    return view


def hold(used: Iterable[DeviceTensor | TensorSet], by: int) -> None:
    """Count a use of tensors and sets, which must live until it ends."""
    for one in used:
        one.in_flight += by


def direction(src: Any, dst: Any) -> str:
    """The event of a copy's bytes between host and device; none for a copy within either."""
    leaves, enters = (isinstance(x, DeviceTensor) and x.core >= 0 for x in (src, dst))
    return "" if leaves == enters else "dmem_buf_copyout" if leaves else "dmem_buf_copyin"


def move(src: Any, at: int, dst: Any, to: int, size: int) -> None:
    data = src.data if isinstance(src, DeviceTensor) else src
    into = dst.data if isinstance(dst, DeviceTensor) else dst
    into[to : to + size] = data[at : at + size]
