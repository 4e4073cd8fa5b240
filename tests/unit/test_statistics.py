"""bn_stats and bn_aggr against the mean and the variance of numpy, in float64."""

from __future__ import annotations

import numpy as np
import pytest

from nc_sim import Program, ProgramError, simulate
from tiles import Tiles, computed, tile


def rows(partitions: int, n: int) -> np.ndarray:
    return np.random.default_rng(n).uniform(-3, 9, (partitions, n)).astype(np.float32)


def close(got: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=2**-18, atol=2**-18)


@pytest.mark.parametrize("memory", [(), ("x", "r")])
@pytest.mark.parametrize(("partitions", "n"), [(128, 2), (1, 127), (127, 128), (128, 511), (128, 512)])
def test_bn_stats_holds_count_mean_and_scatter_of_even_and_odd_elements(partitions: int, n: int, memory: tuple[str, ...]) -> None:
    x = rows(partitions, n)
    got = computed(lambda p, t: p.bn_stats(dst=t["r"], data=t["x"]), {"x": (x, "float32")}, {"r": ((partitions, 6), "float32")}, memory)[
        "r"
    ]
    for k in (0, 1):
        part = x[:, k::2].astype(np.float64)
        assert got[:, 3 * k].tolist() == [part.shape[1]] * partitions
        close(got[:, 3 * k + 1], part.mean(axis=1))
        close(got[:, 3 * k + 2], part.var(axis=1) * part.shape[1])


def test_one_element_is_even_and_of_the_odd_ones_there_are_none() -> None:
    x = rows(128, 1)
    got = computed(lambda p, t: p.bn_stats(dst=t["r"], data=t["x"]), {"x": (x, "float32")}, {"r": ((128, 6), "float32")})["r"]
    assert np.array_equal(got, np.concatenate([np.ones_like(x), x, np.zeros((128, 4), np.float32)], axis=1))


def test_even_and_odd_go_on_over_free_dimensions() -> None:
    x = rows(4, 15)
    got = computed(lambda p, t: p.bn_stats(dst=t["r"], data=t["x"].reshape(4, 5, 3)), {"x": (x, "float32")}, {"r": ((4, 6), "float32")})[
        "r"
    ]
    close(got[:, 1], x[:, 0::2].astype(np.float64).mean(axis=1))
    close(got[:, 4], x[:, 1::2].astype(np.float64).mean(axis=1))


@pytest.mark.parametrize(("partitions", "n"), [(128, 1), (1, 127), (127, 128), (128, 512), (128, 513), (128, 2048)])
def test_bn_aggr_of_any_number_of_bn_stats_is_mean_and_variance_of_all(partitions: int, n: int) -> None:
    x = rows(partitions, n)
    starts = range(0, n, 512)

    def build(p: Program, t: Tiles) -> None:
        stats = p.sbuf((partitions, 6 * len(starts)), "float32")
        for k, at in enumerate(starts):
            p.bn_stats(dst=stats[:, 6 * k : 6 * k + 6], data=t["x"][:, at : min(at + 512, n)])
        p.bn_aggr(dst=t["r"], data=stats)

    got = computed(build, {"x": (x, "float32")}, {"r": ((partitions, 2), "float32")})["r"]
    wide = x.astype(np.float64)
    close(got, np.stack([wide.mean(axis=1), wide.var(axis=1)], axis=1))


def test_bn_aggr_weighs_its_triples_by_their_counts() -> None:
    # 1 element 10; 3 elements with mean 2 and scatter 6: mean (10 + 6) / 4 = 4; variance (6 + 36 + 3 x 4) / 4 = 13.5
    x = np.array([[1, 10, 0, 3, 2, 6]], np.float32)
    got = computed(lambda p, t: p.bn_aggr(dst=t["r"], data=t["x"]), {"x": (x, "float32")}, {"r": ((1, 2), "float32")})["r"]
    assert got.tolist() == [[4, 13.5]]


def test_bn_stats_computes_in_float32_of_bfloat16() -> None:
    x = np.array([[256, 0, 257, 0]], np.float32)  # bfloat16 rounds 257 to 256
    got = computed(lambda p, t: p.bn_stats(dst=t["r"], data=t["x"]), {"x": (x, "bfloat16")}, {"r": ((1, 6), "float32")})["r"]
    assert got.tolist() == [[2, 256, 0, 2, 0, 0]]


@pytest.mark.parametrize(
    ("call", "dst", "data", "message"),
    [
        ("bn_stats", (4, 6), (4, 513), r"data has 513 elements per partition; at most 512 \(nki\.isa\.bn_stats\)"),
        ("bn_stats", (4, 5), (4, 8), r"dst has 5 elements per partition; 6"),
        ("bn_stats", (3, 6), (4, 8), r"dst has 3 partitions, data has 4; they must match"),
        ("bn_stats", (4, 1, 2, 3), (4, 8), r"dst is \[4, 1, 2, 3\]; at most 2 free dimensions"),
        ("bn_stats", (4, 6), (4, 2, 2, 2, 2, 2), r"data is \[4, 2, 2, 2, 2, 2\]; at most 4 free dimensions"),
        ("bn_aggr", (4, 2), (4, 8), r"data has 8 elements per partition; a multiple of 3 \(nki\.isa\.bn_aggr\)"),
        ("bn_aggr", (4, 3), (4, 6), r"dst has 3 elements per partition; 2"),
        ("bn_aggr", (5, 2), (4, 6), r"dst has 5 partitions, data has 4; they must match"),
    ],
)
def test_statistics_refuse(call: str, dst: tuple[int, ...], data: tuple[int, ...], message: str) -> None:
    p = Program()
    with pytest.raises(ProgramError, match=message):
        getattr(p, call)(
            dst=p.sbuf((dst[0], int(np.prod(dst[1:]))), "float32").reshape(*dst),
            data=p.sbuf((data[0], int(np.prod(data[1:]))), "float32").reshape(*data),
        )


def test_statistics_run_on_the_vector_engine_and_in_no_hbm() -> None:
    p = Program()
    x, t = p.input("x", (4, 8), "float32"), p.sbuf((4, 6), "float32")
    for call, width in (("bn_stats", 6), ("bn_aggr", 2)):
        with pytest.raises(ProgramError, match="engine gpsimd; one of vector"):
            getattr(p, call)(dst=t[:, :width], data=t, engine="gpsimd")
        with pytest.raises(ProgramError, match="data is in HBM"):
            getattr(p, call)(dst=t[:, :width], data=x)


@pytest.mark.parametrize(("n", "cycles"), [(1, 6), (128, 128), (512, 512)])
def test_bn_stats_streams_a_cycle_an_element_and_bn_aggr_thirteen_a_triple(n: int, cycles: int) -> None:
    # SDK 2.26, nki.isa: N and 13 N / 3 cycles; 152 ns of latency as other VectorE instructions, assumed. Of the longest operand.
    p = Program()
    x, stats, r = tile(p, (128, n)), tile(p, (128, 6)), p.sbuf((128, 2), "float32")
    p.bn_stats(dst=stats, data=x)
    p.bn_aggr(dst=r, data=stats)
    p.dma_copy(dst=p.output("y", (128, 2), "float32"), src=r)
    result = simulate(p, values=False)
    took = {i.opcode: i.duration_ns for i in result.instructions}
    assert took["BN_STATS"] == pytest.approx(152 + cycles / 0.96, abs=0.25)
    assert took["BN_AGGR"] == pytest.approx(152 + 26 / 0.96, abs=0.25)
    assert "vector.bn_stats.sbuf_fixed_ns" in result.assumed
    assert "vector.bn_aggr.cycles_per_element" in result.assumed
