"""Pseudo-random numbers on VectorEngine and GpSimdEngine.

The hardware's bits are not reproduced (docs/limits.md). Each engine keeps one XORWOW generator a lane, of the 128 lanes
that are partitions (four a lane on VectorEngine), as NeuronCore-v4 documents it (nki.isa.rand2, trainium3_arch.rst). Its
recurrence is Marsaglia's (Xorshift RNGs, 2003, section 3.1): five words, shifts 2, 1 and 4, and a counter that grows by
362437. What no source says is chosen here: the order of the six words (the oldest first, the counter last), the way a
seed spreads over lanes, the state nobody seeded (seed 0), which of four generators makes which number (in turn), and
that the older VectorEngine's shift register, whose polynomial is unpublished, is this generator too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from .accumulator import vector32
from .fields import READ, WRITE, Scalar, of
from .instruction import Engine, Instruction, Target, Work, instruction
from .vector import _Elementwise, per_partition, streamed
from .view import Memory, View

LANES = 128
WORDS = 6  # of one generator
GENERATORS = {Engine.VECTOR: 4, Engine.GPSIMD: 1}  # a lane
WEYL = np.uint32(362437)
INTEGERS = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
UNIFORM = (
    "float8_e4m3", "float8_e5m2", "float16", "bfloat16", "float32", "tfloat32",
    "int8", "int16", "int32", "uint8", "uint16", "uint32",
)  # fmt: skip
BITS = 24  # of a number in [0, 1), which float32 holds exactly


def seeded(seed: int, engine: Engine) -> np.ndarray:
    """The generators of an engine, [lanes, generators, words], from a 32-bit seed.

    Word k of all, in this order, is the k-th output of SplitMix64 (Steele and others, 2014) from the seed, upper half.
    """
    count = LANES * GENERATORS[engine] * WORDS
    z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    z ^= z >> np.uint64(31)
    return (z >> np.uint64(32)).astype(np.uint32).reshape(LANES, GENERATORS[engine], WORDS)


def generators(state: dict[str, Any]) -> np.ndarray:
    """The engine's generators; before any seed, those of seed 0."""
    if "random" not in state:
        state["random"] = seeded(0, state.get("engine", Engine.VECTOR))
    found: np.ndarray = state["random"]
    return found


def draw(state: dict[str, Any], first: int, partitions: int, count: int) -> np.ndarray:
    """The next `count` 32-bit numbers of each lane from `first` on: [partitions, count]. The generators of a lane take turns."""
    mine = generators(state)[first : first + partitions]
    ways = mine.shape[1]
    out = np.empty((partitions, -(-count // ways), ways), np.uint32)
    for k in range(out.shape[1]):
        taken = min(ways, count - k * ways)  # the last turn may be short
        x, v, d = mine[:, :taken, 0], mine[:, :taken, 4], mine[:, :taken, 5]
        t = x ^ (x >> np.uint32(2))
        new = (v ^ (v << np.uint32(4))) ^ (t ^ (t << np.uint32(1)))
        d = d + WEYL
        mine[:, :taken, :4] = mine[:, :taken, 1:5]
        mine[:, :taken, 4], mine[:, :taken, 5] = new, d
        out[:, k, :taken] = new + d
    return out.reshape(partitions, -1)[:, :count]


def unit(bits: np.ndarray) -> np.ndarray:
    """float32 numbers in [0, 1) from the upper bits."""
    return (bits >> np.uint32(32 - BITS)).astype(np.float32) * np.float32(2.0**-BITS)


@instruction(Engine.VECTOR, Engine.GPSIMD, source="nki.isa.rng")
class Rng(_Elementwise):
    """dst = 32 random bits an element, of which an integer type of fewer bits takes the lowest."""

    since: ClassVar[Mapping[Engine, int]] = {Engine.GPSIMD: 3}
    dst: View = of(WRITE)

    def check(self) -> None:
        self.on_chip()
        self.require(self.dst.dtype.name in INTEGERS, f"dst is {self.dst.dtype.name}", f"one of {', '.join(INTEGERS)}")

    def work(self) -> Work:
        return streamed("rng", self.dst)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        bits = draw(state, self.dst.partition, self.dst.partitions, self.dst.elements)
        low = bits.astype(f"u{self.dst.dtype.itemsize}").view(self.dst.dtype.numpy)
        return {"dst": low.reshape(self.dst.shape)}


@instruction(Engine.VECTOR, source="nki.isa.rand2")
class Rand2(_Elementwise):
    """dst = numbers in [min, max), each as likely, computed in float32; the bounds are numbers or [P, 1]. NeuronCore-v4 and newer."""

    since: ClassVar[Mapping[Engine, int]] = {Engine.VECTOR: 4}
    dst: View = of(WRITE)
    min: Any = of(Scalar())
    max: Any = of(Scalar())

    def check(self) -> None:
        self.on_chip()
        self.require(self.dst.dtype.name in UNIFORM, f"dst is {self.dst.dtype.name}", f"one of {', '.join(UNIFORM)}")
        for name, bound in (("min", self.min), ("max", self.max)):
            vector32(self, name, bound, self.dst)
        if not isinstance(self.min, View) and not isinstance(self.max, View):
            self.require(self.min < self.max, f"min={self.min}, max={self.max}", "min below max")

    def work(self) -> Work:
        return streamed("rand2", self.dst, vectors=int(isinstance(self.min, View) or isinstance(self.max, View)))

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        low, high = (np.float32(per_partition(operands.get(n, getattr(self, n)), 2)) for n in ("min", "max"))
        self.require(bool(np.all(low < high)), "a min that is not below its max", "min below max in every partition")
        share = unit(draw(state, self.dst.partition, self.dst.partitions, self.dst.elements))
        with np.errstate(all="ignore"):
            return {"dst": (low + share * (high - low)).reshape(self.dst.shape)}


@instruction(Engine.VECTOR, source="nki.isa.dropout")
class Dropout(_Elementwise):
    """dst = data, but 0 in its place with probability prob, a number or [P, 1]; what stays is not scaled."""

    dst: View = of(WRITE)
    data: View = of(READ)
    prob: Any = of(Scalar())

    def check(self) -> None:
        self.on_chip()
        self.same_shape("dst", "data")
        self.require(self.dst.dtype == self.data.dtype, f"data is {self.data.dtype.name}, dst is {self.dst.dtype.name}", "they must match")
        if isinstance(self.prob, View):
            self.require(
                self.prob.partitions == self.data.partitions,
                f"prob has {self.prob.partitions} partitions, data has {self.data.partitions}",
                "they must match",
            )
            floats = self.data.dtype.kind == "float"
            legal = self.prob.dtype.kind == "float" if floats else self.prob.dtype.name == "float32"
            required = "a floating-point type" if floats else "float32 for data of whole numbers"
            self.require(legal, f"prob is {self.prob.dtype.name}", required)
        else:
            self.require(0 <= self.prob <= 1, f"prob={self.prob}", "0 to 1")

    def work(self) -> Work:
        return streamed("dropout", self.dst, self.data, vectors=int(isinstance(self.prob, View)))

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        data = operands["data"].reshape(self.dst.partitions, -1)
        share = unit(draw(state, self.dst.partition, self.dst.partitions, self.dst.elements))
        prob = np.asarray(per_partition(operands.get("prob", self.prob), 2)).astype(np.float32)
        return {"dst": np.where(share < prob, np.zeros((), data.dtype), data).reshape(self.dst.shape)}


@instruction(Engine.VECTOR, source="nki.isa.set_rng_seed")
class SetRngSeed(_Elementwise):
    """Start VectorEngine's generators anew from the 32 bits in src_seeds [1, 1]."""

    src_seeds: View = of(READ)

    def check(self) -> None:
        self.on_chip()
        one = self.src_seeds.partitions == self.src_seeds.elements == 1
        self.require(one, f"src_seeds is {list(self.src_seeds.shape)}", "[1, 1]")
        self.require(self.src_seeds.dtype.itemsize == 4, f"src_seeds is {self.src_seeds.dtype.name}", "a type of 32 bits")

    def work(self) -> Work:
        return Work(kind="rng_seed", elements=1, psum_read=self.src_seeds.memory is Memory.PSUM)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        state["random"] = seeded(int(operands["src_seeds"].view(np.uint32).item()), Engine.VECTOR)
        return {}


class _State(_Elementwise):
    """Shared rules of reading and writing generators: [lanes, 6] words on GpSimdEngine, [lanes, 24] on VectorEngine."""

    since: ClassVar[Mapping[Engine, int]] = {Engine.GPSIMD: 3, Engine.VECTOR: 4}

    def check_words(self, name: str) -> None:
        self.on_chip()
        v = getattr(self, name)
        self.require(v.dtype.name == "uint32", f"{name} is {v.dtype.name}", "uint32")
        self.require(len(v.shape) == 2, f"{name} is {list(v.shape)}", "two dimensions: lanes and words")
        words = [WORDS * n for n in GENERATORS.values()]
        self.require(v.elements in words, f"{name} has {v.elements} elements per partition", "6 on GpSimd, 24 on Vector")

    def expand(self, target: Target, engine: Engine) -> Iterable[Instruction]:
        ((name, v, _),) = self.views
        words = WORDS * GENERATORS[engine]
        self.require(v.elements == words, f"{name} has {v.elements} elements per partition on {engine.label}", f"{words}")
        return (self,)


@instruction(Engine.GPSIMD, Engine.VECTOR, source="nki.isa.rand_set_state")
class RandSetState(_State):
    """Each lane's generators = the words in its partition of src_seeds, in SBUF."""

    src_seeds: View = of(READ)

    def check(self) -> None:
        self.check_words("src_seeds")
        self.require(self.src_seeds.memory is Memory.SBUF, f"src_seeds is in {self.src_seeds.memory.name}", "SBUF")

    def work(self) -> Work:
        return Work(kind="rand_state", elements=self.src_seeds.elements)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        first, lanes = self.src_seeds.partition, self.src_seeds.partitions
        generators(state)[first : first + lanes] = operands["src_seeds"].reshape(lanes, -1, WORDS)
        return {}


@instruction(Engine.GPSIMD, Engine.VECTOR, source="nki.isa.rand_get_state")
class RandGetState(_State):
    """dst = the words of the generators of its partitions' lanes."""

    dst: View = of(WRITE)

    def check(self) -> None:
        self.check_words("dst")

    def work(self) -> Work:
        return streamed("rand_state", self.dst)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        first, lanes = self.dst.partition, self.dst.partitions
        return {"dst": generators(state)[first : first + lanes].reshape(self.dst.shape).copy()}
