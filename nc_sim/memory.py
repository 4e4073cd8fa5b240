"""Memories as plain bytes. On-chip memories start full of 0xFF: NaN in every floating-point type, -1 in integers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .chip import Reader
from .isa import Memory, View
from .isa.dtypes import cast, storage
from .isa.errors import ProgramError
from .program import Tensor

UNWRITTEN = 0xFF


class Memories:
    """SBUF, PSUM and one buffer per HBM tensor; views become numpy arrays that alias them."""

    def __init__(self, tensors: Mapping[str, Tensor], addresses: Mapping[str, int], chip: Reader, inputs: Mapping[str, np.ndarray]) -> None:
        self.addresses = addresses
        self.e4m3_max: int = chip("types.e4m3_max")
        partitions = chip("memory.partitions")
        self.banks = {
            Memory.SBUF: np.full((partitions, chip("memory.sbuf_partition_bytes")), UNWRITTEN, np.uint8),
            Memory.PSUM: np.full((partitions, chip("memory.psum_partition_bytes")), UNWRITTEN, np.uint8),
        }
        self.hbm: dict[str, np.ndarray] = {}
        for t in tensors.values():
            if t.memory is Memory.HBM:
                self.hbm[t.name] = self.buffer(t, inputs.get(t.name))

    def buffer(self, t: Tensor, given: np.ndarray | None) -> np.ndarray:
        """The bytes of an HBM tensor at the start."""
        if t.data is not None:
            return np.frombuffer(t.data, np.uint8).copy()
        if given is None:
            return np.full(t.partition_bytes, UNWRITTEN, np.uint8)
        array = np.asarray(given)
        if array.shape != t.shape:
            raise ProgramError(f"{t.line} input {t.name}".strip(), f"shape {list(array.shape)}", f"{list(t.shape)}")
        try:
            converted = cast(array, t.dtype, e4m3_max=self.e4m3_max)
        except ProgramError as e:
            raise ProgramError(f"{t.line} input {t.name}".strip(), f"type {array.dtype}", f"numbers that convert to {t.dtype.name}") from e
        return np.ascontiguousarray(converted).reshape(-1).view(np.uint8).copy()

    def array(self, view: View) -> np.ndarray:
        """An array of the view's shape that aliases memory."""
        kind = storage(view.dtype, self.e4m3_max)
        size = view.dtype.itemsize
        strides = tuple(s * size for s in view.strides)
        if view.memory is Memory.HBM:
            flat, offset = self.hbm[view.tensor], view.offset
        else:
            bank = self.banks[view.memory]
            row = bank.shape[1]
            flat, strides = bank.reshape(-1), (row, *strides)
            offset = view.partition * row + self.addresses.get(view.tensor, 0) + view.offset
        # Striding unsigned integers and renaming the type afterwards also works for types numpy cannot describe by name.
        first = flat[offset : offset + size].view(f"u{size}")
        return np.lib.stride_tricks.as_strided(first, view.shape, strides).view(kind)

    def read(self, view: View) -> np.ndarray:
        """A copy of the view's values."""
        return self.array(view).copy()

    def write(self, view: View, values: np.ndarray) -> None:
        """Round values to the view's type and store them."""
        self.array(view)[...] = cast(values.reshape(view.shape), view.dtype, e4m3_max=self.e4m3_max)

    def read_part(self, view: View, first: int, last: int, axes: tuple[int, ...] | None = None) -> np.ndarray:
        """A copy of the view's elements `first` to `last`, counted in order, of its dimensions permuted by `axes`."""
        array = self.array(view) if axes is None else self.array(view).transpose(axes)
        rows = _rows(array, first, last)
        return array.flat[first:last] if rows is None else array[rows].reshape(-1).copy()

    def write_part(self, view: View, first: int, values: np.ndarray) -> None:
        """Round values to the view's type and store them from element `first` on."""
        array, values = self.array(view), self.rounded(view, values)
        rows = _rows(array, first, first + len(values))
        if rows is None:
            array.flat[first : first + len(values)] = values
        else:
            array[rows] = values.reshape(array[rows].shape)

    def elements(self, view: View) -> np.ndarray:
        """All of an HBM tensor as elements of the view's type, which aliases memory; a part of one at the end is left out."""
        flat, size = self.hbm[view.tensor], view.dtype.itemsize
        return flat[: len(flat) // size * size].view(f"u{size}").view(storage(view.dtype, self.e4m3_max))

    def rounded(self, view: View, values: np.ndarray) -> np.ndarray:
        """Values in the view's type, by way of float32 from another (nki.isa.dma_copy)."""
        return cast(values, view.dtype, e4m3_max=self.e4m3_max)

    def tensor(self, t: Tensor) -> np.ndarray:
        """A copy of a whole HBM tensor, in its own element type."""
        return self.hbm[t.name].view(storage(t.dtype, self.e4m3_max)).reshape(t.shape).copy()


def _rows(array: np.ndarray, first: int, last: int) -> slice | None:
    """The elements as whole rows of the first dimension, if they are: numpy copies those much faster than single ones."""
    size = array.size // array.shape[0] if array.ndim else 1
    return slice(first // size, last // size) if array.ndim and first % size == 0 == last % size else None
