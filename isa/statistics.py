"""VectorEngine: mean and variance of each partition, in two steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .fields import READ, WRITE, of
from .instruction import Engine, Work, instruction
from .vector import _Elementwise, streamed
from .view import View

MOST = 512  # nl.tile_size.bn_stats_fmax
GROUP = 3  # count, mean, variance * count


@instruction(Engine.VECTOR, source="nki.isa.bn_stats")
class BnStats(_Elementwise):
    """dst[P, 6] = count, mean and variance * count of the even elements of each partition, then of the odd ones.

    The first element is even. No element has mean 0.
    """

    dst: View = of(WRITE)
    data: View = of(READ)

    def check(self) -> None:
        self.on_chip()
        _check_rows(self, 2 * GROUP)
        self.require(self.data.elements <= MOST, f"data has {self.data.elements} elements per partition", f"at most {MOST}")

    def work(self) -> Work:
        return streamed("bn_stats", self.dst, self.data, flops=3 * self.data.size)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        x = operands["data"].astype(np.float32).reshape(self.data.partitions, -1)
        out = np.zeros((x.shape[0], 2, GROUP), np.float32)
        with np.errstate(all="ignore"):
            for k, part in enumerate((x[:, 0::2], x[:, 1::2])):
                if part.shape[1]:
                    mean = part.mean(axis=1, dtype=np.float32)
                    out[:, k, 0], out[:, k, 1] = part.shape[1], mean
                    out[:, k, 2] = np.square(part - mean[:, None]).sum(axis=1, dtype=np.float32)
        return {"dst": out.reshape(self.dst.shape)}


@instruction(Engine.VECTOR, source="nki.isa.bn_aggr")
class BnAggr(_Elementwise):
    """dst[P, 2] = mean and variance of the elements that triples (count, mean, variance * count) in data stand for."""

    dst: View = of(WRITE)
    data: View = of(READ)

    def check(self) -> None:
        self.on_chip()
        _check_rows(self, 2)
        self.require(self.data.elements % GROUP == 0, f"data has {self.data.elements} elements per partition", f"a multiple of {GROUP}")

    def work(self) -> Work:
        return streamed("bn_aggr", self.dst, self.data, flops=3 * self.data.size)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        groups = operands["data"].astype(np.float32).reshape(self.data.partitions, -1, GROUP)
        count, mean, scatter = (groups[:, :, k] for k in range(GROUP))
        with np.errstate(all="ignore"):
            total = count.sum(axis=1, dtype=np.float32)
            whole = (count * mean).sum(axis=1, dtype=np.float32) / total
            between = count * np.square(mean - whole[:, None])
            variance = (scatter + between).sum(axis=1, dtype=np.float32) / total
        return {"dst": np.stack([whole, variance], axis=1).reshape(self.dst.shape)}


def _check_rows(i: BnStats | BnAggr, results: int) -> None:
    """dst has the partitions of data, and so many elements for each."""
    a, b = i.dst.partitions, i.data.partitions
    i.require(a == b, f"dst has {a} partitions, data has {b}", "they must match")
    i.require(i.dst.elements == results, f"dst has {i.dst.elements} elements per partition", f"{results}")
    for name, v, most in (("data", i.data, 4), ("dst", i.dst, 2)):
        i.require(len(v.counts) <= most, f"{name} is {list(v.shape)}", f"at most {most} free dimensions")
