"""What a call must compute, as data: operands, the call, and results from a formula written from nki.isa's definition.

A `Sample` is one call on one size. `run` puts many into one program, so that a chip is asked once for all sizes of a call.
Formulas are numpy in float64, or plain integers where bits count; nothing here comes from the code under test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import ml_dtypes
import numpy as np

from nc_sim import Program, simulate
from nc_sim.isa import View

HOST = {
    "float32": np.dtype(np.float32), "float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "int8": np.dtype(np.int8), "int16": np.dtype(np.int16), "int32": np.dtype(np.int32),
    "uint8": np.dtype(np.uint8), "uint16": np.dtype(np.uint16), "uint32": np.dtype(np.uint32),
    "float8_e4m3": np.dtype(ml_dtypes.float8_e4m3), "float8_e4m3fn_x4": np.dtype(np.uint32), "float8_e5m2_x4": np.dtype(np.uint32),
}  # fmt: skip
F32, BF16, I32, U32, U16 = "float32", "bfloat16", "int32", "uint32", "uint16"
Tiles = dict[str, View]
PARTITIONS = 128
MOST = 4096  # elements of one operand in PSUM


@attrs.frozen
class Sample:
    """One call: tiles by name and what they hold, and what must stand in some of them after it.

    `call` gets the program and the tiles, and the inputs in HBM as `name.hbm`; those of more rows than partitions are there
    alone. `results` are in float64 or integers and are rounded to the tile's type here. `error` is the largest difference
    allowed, relative to the result and to 1.
    """

    call: Callable[[Program, Tiles], Any]
    inputs: Mapping[str, tuple[np.ndarray, str]]
    results: Mapping[str, tuple[np.ndarray, str]]
    psum: tuple[str, ...] = ()
    error: float = 0.0


@attrs.frozen
class Window:
    """Where in a wider tile an operand is: so many elements from one to the next, the first after so many, in this order or backwards."""

    gap: int = 1
    before: int = 0
    backwards: bool = False

    def tile(self, p: Program, shape: tuple[int, ...], dtype: str, psum: bool) -> View:
        """A new operand; of more than two dimensions it is a tile of its own."""
        make = p.psum if psum else p.sbuf
        if self == Window() or len(shape) != 2:
            return make(shape, dtype)
        wide = make((shape[0], self.before + self.gap * shape[1]), dtype)[:, self.before :: self.gap]
        return wide[:, ::-1] if self.backwards else wide


def run(samples: Sequence[Sample], chip: Any, window: Window = Window()) -> None:
    """All samples in one program on a chip; AssertionError names the first whose result is another."""
    p, inputs = Program("samples"), dict[str, np.ndarray]()
    for k, sample in enumerate(samples):
        tiles: Tiles = {}
        for name, (array, dtype) in sample.inputs.items():
            inputs[f"i{k}_{name}"] = np.asarray(array).astype(HOST[dtype])
            tiles[f"{name}.hbm"] = source = p.input(f"i{k}_{name}", np.shape(array), dtype)
            if len(array) > PARTITIONS:
                continue
            tiles[name] = window.tile(p, np.shape(array), dtype, psum=False)
            p.dma_copy(dst=tiles[name], src=source)
            if name in sample.psum:
                there = window.tile(p, np.shape(array), dtype, psum=True)
                p.tensor_copy(dst=there, src=tiles[name])
                tiles[name] = there
        for name, (wanted, dtype) in sample.results.items():
            if name not in tiles:
                tiles[name] = window.tile(p, wanted.shape, dtype, psum=name in sample.psum)
        sample.call(p, tiles)
        for name, (wanted, dtype) in sample.results.items():
            found = tiles[name]
            if name in sample.psum:
                found = p.sbuf(wanted.shape, dtype)
                for first in range(0, wanted.shape[1], MOST):
                    part = slice(first, min(first + MOST, wanted.shape[1]))
                    p.tensor_copy(dst=found[:, part], src=tiles[name][:, part])
            p.dma_copy(dst=p.output(f"o{k}_{name}", wanted.shape, dtype), src=found)
    outputs = simulate(p, chip, inputs=inputs).outputs
    for k, sample in enumerate(samples):
        for name, (wanted, dtype) in sample.results.items():
            _compare(outputs[f"o{k}_{name}"], wanted, dtype, sample.error, f"sample {k}, {name} {list(wanted.shape)}")


def _compare(got: np.ndarray, wanted: np.ndarray, dtype: str, error: float, where: str) -> None:
    with np.errstate(over="ignore"):
        exact = wanted.astype(HOST[dtype])
    if error == 0:
        assert got.tobytes() == exact.tobytes(), f"{where}: {np.argwhere(got != exact)[:3].tolist()} {got.ravel()[:4]} {exact.ravel()[:4]}"
    else:
        np.testing.assert_allclose(got.astype(np.float64), exact.astype(np.float64), rtol=error, atol=error, err_msg=where)


# --- numbers ---------------------------------------------------------------------------------------------------------


def reals(rng: np.random.Generator, *shape: int, dtype: str = "float32") -> np.ndarray:
    """Numbers from -3 to 3 that the type holds, in float64."""
    return rng.uniform(-3, 3, shape).astype(HOST[dtype]).astype(np.float64)


def wholes(rng: np.random.Generator, *shape: int, most: int = 8) -> np.ndarray:
    """Small whole numbers, of which sums and products are exact in float32."""
    return rng.integers(-most, most + 1, shape).astype(np.float64)


# --- random numbers, in plain integers ---------------------------------------------------------------------------------

MASK = (1 << 32) - 1


def splitmix(seed: int, count: int) -> list[int]:
    """Upper halves of the first outputs of SplitMix64 (Steele, Lea and Flood, 2014)."""
    out, z = [], seed
    for _ in range(count):
        z = (z + 0x9E3779B97F4A7C15) & ((1 << 64) - 1)
        y = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & ((1 << 64) - 1)
        y = ((y ^ (y >> 27)) * 0x94D049BB133111EB) & ((1 << 64) - 1)
        out.append((y ^ (y >> 31)) >> 32)
    return out


def xorwow(words: Sequence[int], count: int) -> tuple[list[int], list[int]]:
    """Marsaglia, Xorshift RNGs (2003), section 3.1: so many numbers, and the six words after them."""
    x, y, z, w, v, d = words
    out = []
    for _ in range(count):
        t = x ^ (x >> 2)
        x, y, z, w = y, z, w, v
        v = ((v ^ (v << 4)) ^ (t ^ (t << 1))) & MASK
        d = (d + 362437) & MASK
        out.append((d + v) & MASK)
    return out, [x, y, z, w, v, d]


def in_turn(words: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of each lane [lanes, count] from generators [lanes, 6 ways], which take turns, and the words after them."""
    lanes, ways = len(words), words.shape[1] // 6
    out, after = np.zeros((lanes, count), np.uint64), np.zeros(words.shape, np.uint64)
    for lane in range(lanes):
        for way in range(ways):
            mine = slice(6 * way, 6 * way + 6)
            out[lane, way::ways], after[lane, mine] = xorwow(words[lane, mine].tolist(), len(range(way, count, ways)))
    return out.astype(np.uint32), after.astype(np.uint32)


def seeded(seed: int, lanes: int) -> np.ndarray:
    """VectorE's four generators of the first lanes, [lanes, 24], as docs/limits.md says that a seed makes them."""
    return np.array(splitmix(seed, 24 * lanes), np.uint32).reshape(lanes, 24)
