"""VectorEngine: the eight largest values of each partition, where they stand, and other values put there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .fields import READ, WRITE, Maybe, Scalar, of
from .instruction import Engine, Work, instruction
from .vector import _Elementwise, streamed
from .view import View

EIGHT = 8
MOST = 16384
INDEX_TYPES = ("uint16", "uint32")


class _Search(_Elementwise):
    """Shared rules of the searches in rows."""

    def check_rows(self, name: str, least: int) -> None:
        """A searched operand: [P, ...] with at most two free dimensions."""
        v = getattr(self, name)
        self.require(len(v.shape) <= 3, f"{name} is {list(v.shape)}", "at most two free dimensions")
        self.require(least <= v.elements <= MOST, f"{name} has {v.elements} elements per partition", f"{least} to {MOST}")

    def check_eight(self, name: str, rows: str) -> None:
        """An operand that holds eight elements for each partition of `rows`."""
        v, n = getattr(self, name), getattr(self, rows).partitions
        self.require(v.partitions == n, f"{name} has {v.partitions} partitions, {rows} has {n}", "they must match")
        self.require(v.elements == EIGHT, f"{name} has {v.elements} elements per partition", f"{EIGHT}")

    def check_index(self, name: str, rows: str) -> None:
        v = getattr(self, name)
        self.check_eight(name, rows)
        self.require(v.dtype.name in INDEX_TYPES, f"{name} is {v.dtype.name}", " or ".join(INDEX_TYPES))

    def check_compared(self, *names: str) -> None:
        for name in names:
            v = getattr(self, name)
            exact = v.dtype.kind == "float" or v.dtype.itemsize <= 2
            self.specified(exact, f"{name} is {v.dtype.name}", "a type that float32 holds: how 32-bit integers are compared is not said")


@instruction(Engine.VECTOR, source="nki.isa.max8")
class Max8(_Search):
    """dst[P, 8] = the eight largest values of each partition of src, in descending order, as float32."""

    dst: View = of(WRITE)
    src: View = of(READ)

    def check(self) -> None:
        self.on_chip()
        self.check_rows("src", EIGHT)
        self.check_eight("dst", "src")
        self.require(len(self.dst.shape) == 2, f"dst is {list(self.dst.shape)}", f"[P, {EIGHT}]")

    def work(self) -> Work:
        return streamed("max8", self.dst, self.src, flops=self.src.size)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        flat = operands["src"].astype(np.float32).reshape(self.src.partitions, -1)
        return {"dst": np.sort(flat, axis=1)[:, : -EIGHT - 1 : -1]}


@instruction(Engine.VECTOR, source="nki.isa.nc_find_index8")
class NcFindIndex8(_Search):
    """dst[P, 8] = where in its partition of data each of the eight vals first stands, from 0; all ones if nowhere.

    Of a value that vals holds several times, the first column gets the first place, the next the second.
    """

    dst: View = of(WRITE)
    data: View = of(READ)
    vals: View = of(READ)

    def check(self) -> None:
        self.on_chip()
        self.check_rows("data", EIGHT)
        self.check_eight("vals", "data")
        self.require(len(self.vals.shape) <= 3, f"vals is {list(self.vals.shape)}", "at most two free dimensions")
        self.check_index("dst", "data")
        self.require(len(self.dst.shape) == 2, f"dst is {list(self.dst.shape)}", f"[P, {EIGHT}]")
        self.check_compared("data", "vals")

    def work(self) -> Work:
        return streamed("nc_find_index8", self.dst, self.data, flops=EIGHT * self.data.size)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        data, vals = _compared(operands)
        out = np.full(vals.shape, (1 << 8 * self.dst.dtype.itemsize) - 1, np.int64)
        for column, hit in _matches(data, vals, range(EIGHT)):
            found = hit.any(axis=1)
            present = (data == vals[:, column, None]).any(axis=1)
            self.specified(not (present & ~found).any(), "vals holds a value more often than data does", "a place for each of them")
            out[found, column] = hit.argmax(axis=1)[found]
        return {"dst": out}


@instruction(Engine.VECTOR, source="nki.isa.nc_match_replace8")
class NcMatchReplace8(_Search):
    """dst = data with imm where a partition first holds each of its eight vals; dst_idx[P, 8] = those places, from 0.

    A value that vals holds several times takes as many places: the last column gets the first place, the one before the second.
    """

    dst: View = of(WRITE)
    data: View = of(READ)
    vals: View = of(READ)
    imm: Any = of(Scalar())
    dst_idx: View | None = of(Maybe(WRITE), default=None)

    def check(self) -> None:
        self.on_chip()
        self.same_shape("dst", "data")
        self.require(self.data.elements <= MOST, f"data has {self.data.elements} elements per partition", f"at most {MOST}")
        self.check_eight("vals", "data")
        self.require(not isinstance(self.imm, View), "imm is a view", "a number")
        self.check_compared("data", "vals")
        if self.dst_idx is not None:
            self.check_index("dst_idx", "data")

    def work(self) -> Work:
        return streamed("nc_match_replace8", self.dst, self.data, flops=EIGHT * self.data.size)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        data, vals = _compared(operands)
        replaced, places = np.zeros(data.shape, bool), np.zeros(vals.shape, np.int64)
        for column, hit in _matches(data, vals, range(EIGHT - 1, -1, -1)):
            missing = self.dst_idx is not None and not hit.any(axis=1).all()
            self.specified(not missing, "dst_idx for a value of vals that data does not hold, or not as often", "a place for each of them")
            replaced |= hit
            places[:, column] = hit.argmax(axis=1)
        with np.errstate(over="ignore"):
            out = {"dst": np.where(replaced, np.float32(self.imm), data).reshape(self.dst.shape)}
        return out if self.dst_idx is None else {**out, "dst_idx": places.reshape(self.dst_idx.shape)}


def _compared(operands: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """data and vals as float32, [P, N] and [P, 8]."""
    data, vals = (operands[n].astype(np.float32) for n in ("data", "vals"))
    return data.reshape(data.shape[0], -1), vals.reshape(vals.shape[0], -1)


def _matches(data: np.ndarray, vals: np.ndarray, order: range) -> list[tuple[int, np.ndarray]]:
    """(column of vals, where it matches: at most one place a partition), in `order`; equal values take places in that order."""
    taken, out = np.zeros(data.shape, bool), []
    for column in order:
        free = (data == vals[:, column, None]) & ~taken
        hit = free & (np.cumsum(free, axis=1) == 1)
        taken |= hit
        out.append((column, hit))
    return out
