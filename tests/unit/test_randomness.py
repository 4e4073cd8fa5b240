"""Random numbers: the documented generator in plain integers, uniform, the same again from the same seed; who is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from newer import newer

from nc_sim import Program, ProgramError, Unsupported, simulate
from samples import xorwow
from tiles import Tiles, computed, tile


def states(lanes: int, words: int) -> np.ndarray:
    return np.random.default_rng(words).integers(0, 2**32, (lanes, words), dtype=np.uint32)


# --- state -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("partitions", "n"), [(128, 1), (1, 127), (127, 128), (2, 16384)])
@pytest.mark.parametrize("dtype", ["uint32", "int32", "uint16", "int16", "uint8", "int8"])
def test_gpsimd_draws_from_the_state_it_was_given(partitions: int, n: int, dtype: str) -> None:
    given = states(partitions, 6)

    def build(p: Program, t: Tiles) -> None:
        p.rand_set_state(src_seeds=t["s"])
        p.rng(dst=t["r"], engine="gpsimd")
        p.rand_get_state(dst=t["after"])

    got = computed(build, {"s": (given, "uint32")}, {"r": ((partitions, n), dtype), "after": ((partitions, 6), "uint32")})
    size = 8 * got["r"].dtype.itemsize
    for lane in range(0, partitions, 42):
        numbers, after = xorwow(given[lane].tolist(), n)
        lowest = got["r"][lane].view(f"u{got['r'].dtype.itemsize}").tolist()
        assert lowest == [k & ((1 << size) - 1) for k in numbers]
        assert got["after"][lane].tolist() == after


def test_vector_engines_of_newer_chips_have_four_generators_in_turn() -> None:
    given = states(4, 24)

    def build(p: Program, t: Tiles) -> None:
        p.rand_set_state(src_seeds=t["s"], engine="vector")
        p.rng(dst=t["r"])
        p.rand_get_state(dst=t["after"], engine="vector")

    got = computed(build, {"s": (given, "uint32")}, {"r": ((4, 10), "uint32"), "after": ((4, 24), "uint32")}, chip=newer())
    for lane in range(4):
        ways = [xorwow(given[lane, 6 * k : 6 * k + 6].tolist(), len(range(k, 10, 4))) for k in range(4)]
        wanted = [0] * 10
        for k, (numbers, after) in enumerate(ways):
            wanted[k::4] = numbers
            assert got["after"][lane, 6 * k : 6 * k + 6].tolist() == after
        assert got["r"][lane].tolist() == wanted


def numbers(seed: int, calls: int = 1, shape: tuple[int, int] = (128, 64)) -> list[np.ndarray]:
    def build(p: Program, t: Tiles) -> None:
        p.set_rng_seed(src_seeds=t["s"])
        for k in range(calls):
            p.rng(dst=t[f"r{k}"])

    got = computed(build, {"s": (np.array([[seed]], np.uint32), "uint32")}, {f"r{k}": (shape, "uint32") for k in range(calls)})
    return [got[f"r{k}"] for k in range(calls)]


def test_a_seed_gives_the_same_numbers_again_and_another_seed_others() -> None:
    assert np.array_equal(numbers(7)[0], numbers(7)[0])
    assert not np.array_equal(numbers(7)[0], numbers(8)[0])
    first, second = numbers(7, calls=2)
    assert not np.array_equal(first, second)


def test_numbers_are_uniform_and_lanes_differ() -> None:
    drawn = numbers(2**32 - 1, shape=(128, 512))[0]
    bits = (drawn[..., None] >> np.arange(32, dtype=np.uint32)) & 1
    # each bit of 65536 numbers is set half the time: 5 standard deviations are 640
    assert (np.abs(bits.sum(axis=(0, 1), dtype=np.int64) - 32768) < 640).all()
    counts = np.bincount((drawn >> np.uint32(26)).ravel(), minlength=64)  # 64 classes of 1024: chi-square with 63 degrees of freedom
    assert 25 < ((counts - 1024) ** 2 / 1024).sum() < 130
    assert len(np.unique(drawn)) > 65536 - 20  # 0.5 of 65536^2 / 2^32 pairs coincide on average
    assert np.abs(np.corrcoef(drawn.astype(np.float64))[~np.eye(128, dtype=bool)]).max() < 0.25


def test_without_a_seed_runs_are_the_same_too_and_the_seed_is_zero() -> None:
    def build(p: Program, t: Tiles) -> None:
        p.rng(dst=t["r"])

    unseeded = computed(build, {}, {"r": ((4, 64), "uint32")})["r"]
    assert np.array_equal(unseeded, numbers(0, shape=(4, 64))[0])


def test_the_first_seeded_number_is_that_of_splitmix64_and_xorwow() -> None:
    words, z = [], 42
    for _ in range(6):
        z = (z + 0x9E3779B97F4A7C15) & (2**64 - 1)
        y = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
        y = ((y ^ (y >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
        words.append((y ^ (y >> 31)) >> 32)
    assert int(numbers(42)[0][0, 0]) == xorwow(words, 1)[0][0]


# --- dropout ---------------------------------------------------------------------------------------------------------


def dropped(x: np.ndarray, prob: Any, dtype: str = "float32", kind: str = "float32") -> np.ndarray:
    vector = isinstance(prob, np.ndarray)

    def build(p: Program, t: Tiles) -> None:
        p.dropout(dst=t["r"], data=t["x"], prob=t["p"] if vector else prob)

    inputs = {"x": (x, dtype), **({"p": (prob, kind)} if vector else {})}
    return computed(build, inputs, {"r": (x.shape, dtype)})["r"]


@pytest.mark.parametrize(("partitions", "n"), [(128, 1), (1, 127), (127, 128), (2, 16384)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "uint8"])
def test_probability_1_drops_all_and_0_none(partitions: int, n: int, dtype: str) -> None:
    x = np.random.default_rng(n).integers(1, 100, (partitions, n))
    assert not dropped(x, 1.0, dtype).astype(np.float64).any()
    assert np.array_equal(dropped(x, 0, dtype).astype(np.int64), x)
    both = dropped(x, np.arange(partitions)[:, None] % 2, dtype).astype(np.int64)
    assert not both[1::2].any()
    assert np.array_equal(both[::2], x[::2])


def test_probability_0_keeps_an_element_whose_number_is_0() -> None:
    words = np.array([[0, 0, 0, 0, 0, 2**32 - 362437] * 4], np.uint32)  # the first number of each generator is 0

    def build(p: Program, t: Tiles) -> None:
        for name, prob in (("none", 0.0), ("some", 2.0**-24)):
            p.rand_set_state(src_seeds=t["s"], engine="vector")
            p.dropout(dst=t[name], data=t["x"], prob=prob)

    inputs = {"s": (words, "uint32"), "x": (np.ones((1, 4)), "float32")}
    got = computed(build, inputs, {"none": ((1, 4), "float32"), "some": ((1, 4), "float32")}, chip=newer())
    assert got["none"].tolist() == [[1] * 4]
    assert got["some"].tolist() == [[0] * 4]


def test_so_many_are_dropped_and_the_rest_is_not_scaled() -> None:
    x = np.full((128, 512), 2**30 + 1, np.int32)
    r = dropped(x, 0.25, "int32")
    assert set(np.unique(r).tolist()) == {0, 2**30 + 1}
    assert abs((r == 0).mean() - 0.25) < 5 * (0.25 * 0.75 / 65536) ** 0.5


# --- rand2 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("partitions", "n"), [(128, 1), (1, 127), (127, 128), (128, 2048)])
def test_rand2_lies_between_its_bounds_as_the_generator_says(partitions: int, n: int) -> None:
    given = states(partitions, 24)

    def build(p: Program, t: Tiles) -> None:
        p.rand_set_state(src_seeds=t["s"], engine="vector")
        p.rand2(dst=t["r"], min=-2.0, max=t["high"])

    high = np.arange(partitions, dtype=np.float32)[:, None] + 1
    got = computed(build, {"s": (given, "uint32"), "high": (high, "float32")}, {"r": ((partitions, n), "float32")}, chip=newer())["r"]
    for lane in range(0, partitions, 50):
        first = xorwow(given[lane, :6].tolist(), 1)[0][0]
        share = (first >> 8) * 2.0**-24
        assert got[lane, 0] == pytest.approx(-2 + share * (high[lane, 0] + 2), rel=1e-6)
    assert (got >= -2).all()
    assert (got <= high).all()
    if n > 2000:
        middle = ((got + 2) / (high + 2)).mean()
        assert abs(middle - 0.5) < 5 * (1 / 12 / got.size) ** 0.5


WHOLE = {"dst": ((4, 8), "int8"), "data": ((4, 8), "int8")}
REAL = {"dst": ((4, 8), "float32"), "data": ((4, 8), "float32")}


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "operands", "message"),
    [
        ("rng", {"dst": ((4, 8), "float32")}, "dst is float32; one of int8, int16, int32, uint8, uint16, uint32"),
        ("rng", {"dst": ((4, 8), "uint32"), "engine": "scalar"}, "engine scalar; one of vector, gpsimd"),
        ("set_rng_seed", {"src_seeds": ((2, 1), "uint32")}, r"src_seeds is \[2, 1\]; \[1, 1\]"),
        ("set_rng_seed", {"src_seeds": ((1, 2), "uint32")}, r"src_seeds is \[1, 2\]; \[1, 1\]"),
        ("set_rng_seed", {"src_seeds": ((1, 1), "uint16")}, "src_seeds is uint16; a type of 32 bits"),
        ("rand_set_state", {"src_seeds": ((4, 6), "int32")}, "src_seeds is int32; uint32"),
        ("rand_set_state", {"src_seeds": ((4, 7), "uint32")}, "src_seeds has 7 elements per partition; 6 on GpSimd, 24 on Vector"),
        ("rand_set_state", {"src_seeds": ((4, 2, 3), "uint32")}, r"src_seeds is \[4, 2, 3\]; two dimensions"),
        ("rand_get_state", {"dst": ((4, 7), "uint32")}, "dst has 7 elements per partition; 6 on GpSimd, 24 on Vector"),
        ("rand_get_state", {"dst": ((4, 6), "float32")}, "dst is float32; uint32"),
        ("rand2", {"dst": ((4, 8), "float8_e4m3fn"), "min": 0.0, "max": 1.0}, "dst is float8_e4m3fn; one of float8_e4m3"),
        ("rand2", {"dst": ((4, 8), "float32"), "min": 1.0, "max": 1.0}, r"min=1\.0, max=1\.0; min below max"),
        ("rand2", {"dst": ((4, 8), "float32"), "min": 1.0, "max": ((3, 1), "float32")}, "max has 3 partitions, the data has 4"),
        ("rand2", {"dst": ((4, 8), "float32"), "min": ((4, 1), "bfloat16"), "max": 1.0}, "min is bfloat16; float32"),
        ("dropout", {"dst": ((4, 7), "float32"), "data": ((4, 8), "float32"), "prob": 0.5}, "data has 8 elements per partition, dst has 7"),
        ("dropout", {"dst": ((4, 8), "int8"), "data": ((4, 8), "float32"), "prob": 0.5}, "data is float32, dst is int8; they must match"),
        ("dropout", {"dst": ((4, 8), "int8"), "data": ((4, 8), "int8"), "prob": 1.5}, r"prob=1\.5; 0 to 1"),
        ("dropout", {**WHOLE, "prob": ((4, 1), "bfloat16")}, "prob is bfloat16; float32 for data"),
        ("dropout", {**REAL, "prob": ((4, 1), "int8")}, "prob is int8; a floating-point"),
        ("dropout", {**REAL, "prob": ((3, 1), "float32")}, "prob has 3 partitions, data has 4"),
    ],
)  # fmt: skip
def test_refused(call: str, operands: dict[str, Any], message: str) -> None:
    p = Program()
    with pytest.raises(ProgramError, match=message):
        getattr(p, call)(**{n: p.sbuf(*v) if isinstance(v, tuple) else v for n, v in operands.items()})


def test_what_a_place_or_an_engine_does_not_have() -> None:
    p, q = Program(), Program()
    q.rng(dst=q.psum((4, 8), "uint32"), engine="gpsimd")
    with pytest.raises(ProgramError, match="dst is in PSUM; SBUF: GpSimd does not reach PSUM"):
        simulate(q)
    with pytest.raises(ProgramError, match="src_seeds is in PSUM; SBUF"):
        p.rand_set_state(src_seeds=p.psum((4, 6), "uint32"))
    p.rand_set_state(src_seeds=tile(p, (4, 24), "uint32"))
    with pytest.raises(ProgramError, match="src_seeds has 24 elements per partition on GpSimd; 6"):
        simulate(p)


@pytest.mark.parametrize("call", ["rand2", "rand_set_state", "rand_get_state"])
def test_older_vector_engines_lack_the_newer_calls(call: str) -> None:
    p = Program()
    t = tile(p, (4, 24), "uint32")
    how = {"rand2": {"dst": t, "min": 0.0, "max": 1.0}, "rand_set_state": {"src_seeds": t}, "rand_get_state": {"dst": t}}[call]
    getattr(p, call)(**how, engine="vector")
    with pytest.raises(Unsupported, match=f"{call} on Vector of trn2; NeuronCore-v4 or newer"):
        simulate(p, values=False)


def test_costs_of_random_numbers() -> None:
    # dropout: SDK 2.26, max(64, N); rng a number a cycle, GpSimd 150 cycles more: assumed; rand2 four a cycle (trainium3_arch.rst)
    p = Program()
    x, u, s, seeds = tile(p, (128, 512)), tile(p, (128, 512), "uint32"), tile(p, (1, 1), "uint32"), tile(p, (128, 6), "uint32")
    p.dropout(dst=x, data=x, prob=0.5)
    p.rng(dst=u)
    p.rng(dst=u, engine="gpsimd")
    p.set_rng_seed(src_seeds=s)
    p.rand_set_state(src_seeds=seeds)
    p.rand_get_state(dst=seeds)
    result = simulate(p, values=False)
    took = [i.duration_ns for i in result.instructions if i.opcode != "MEMSET"]
    n = 512 / 0.96
    assert sorted(took) == pytest.approx(sorted([152 + n, 152 + n, 125 + 512 / 1.2, 152 + 1 / 0.96, 130, 130]), abs=0.25)
    p.rand2(dst=x, min=0.0, max=1.0)
    (rand2,) = [i.duration_ns for i in simulate(p, newer(), values=False).instructions if i.opcode == "RAND2"]
    assert rand2 == pytest.approx(125 + 128 / 0.96, abs=0.25)
