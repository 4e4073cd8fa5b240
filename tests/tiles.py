"""Tiles through a few calls: inputs loaded to SBUF or PSUM, results stored and returned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nc_sim import Program, simulate
from nc_sim.isa import DTYPES, View

Tiles = dict[str, View]


def tile(p: Program, shape: tuple[int, ...], dtype: str = "float32", memory: str = "sbuf") -> View:
    """A written tile."""
    t = p.sbuf(shape, dtype) if memory == "sbuf" else p.psum(shape, dtype)
    p.memset(dst=t, value=1)
    return t


def computed(
    build: Callable[[Program, Tiles], None],
    inputs: Mapping[str, tuple[np.ndarray, str]],
    outputs: Mapping[str, tuple[tuple[int, ...], str]],
    psum: tuple[str, ...] = (),
    chip: Any = "trn2",
) -> dict[str, np.ndarray]:
    """What `build` leaves in the output tiles; `psum` names the inputs and outputs that are there."""
    p, tiles, loaded = Program("case"), {}, {}
    for name, (array, dtype) in inputs.items():
        loaded[name] = array.astype(DTYPES[dtype].numpy)
        source, tiles[name] = p.input(f"{name}_hbm", array.shape, dtype), p.sbuf(array.shape, dtype)
        p.dma_copy(dst=tiles[name], src=source)
        if name in psum:
            there = p.psum(array.shape, dtype)
            p.tensor_copy(dst=there, src=tiles[name])
            tiles[name] = there
    for name, (shape, dtype) in outputs.items():
        tiles[name] = p.psum(shape, dtype) if name in psum else p.sbuf(shape, dtype)
    build(p, tiles)
    for name, (shape, dtype) in outputs.items():
        result = tiles[name]
        if name in psum:
            result = p.sbuf(shape, dtype)
            p.tensor_copy(dst=result, src=tiles[name])
        p.dma_copy(dst=p.output(name, shape, dtype), src=result)
    found: dict[str, Any] = simulate(p, chip, inputs={f"{n}_hbm": a for n, a in loaded.items()}).outputs
    return found
