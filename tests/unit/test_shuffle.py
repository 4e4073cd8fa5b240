"""nc_stream_shuffle against a loop over partitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nc_sim import Program, ProgramError, Unspecified, simulate
from tiles import Tiles, computed, tile

IDENTITY = list(range(32))
TURNED = [31 - k for k in range(32)]


def rows(partitions: int, n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + n).uniform(-9, 9, (partitions, n)).astype(np.float32)


def shuffled(src: np.ndarray, mask: list[int], old: np.ndarray, dtype: str = "float32", psum: tuple[str, ...] = ()) -> np.ndarray:
    def build(p: Program, t: Tiles) -> None:
        p.tensor_copy(dst=t["r"], src=t["old"])
        p.nc_stream_shuffle(dst=t["r"], src=t["src"], shuffle_mask=mask)

    return computed(build, {"src": (src, dtype), "old": (old, dtype)}, {"r": (old.shape, dtype)}, psum)["r"]


def by_hand(src: np.ndarray, mask: list[int], old: np.ndarray) -> np.ndarray:
    out = old.copy()
    for quadrant in range(0, len(out), 32):
        for i in range(min(32, len(out) - quadrant)):
            if mask[i] != 255:
                out[quadrant + i] = src[quadrant + mask[i]]
    return out


@pytest.mark.parametrize("psum", [(), ("src", "r")])
@pytest.mark.parametrize("mask", [TURNED, [7] * 32, [*range(1, 32), 0], [255 if k % 3 else 31 - k for k in range(32)], [255] * 32])
@pytest.mark.parametrize(("partitions", "n"), [(32, 1), (32, 127), (64, 128), (128, 1024)])
def test_a_shuffle_moves_partitions_within_their_quadrant(partitions: int, n: int, mask: list[int], psum: tuple[str, ...]) -> None:
    src, old = rows(partitions, n), rows(partitions, n, 1)
    assert np.array_equal(shuffled(src, mask, old, psum=psum), by_hand(src, mask, old))


def test_a_shuffle_moves_the_longest_rows_that_fit() -> None:
    src, old = rows(128, 16384), np.zeros((128, 16384), np.float32)
    assert np.array_equal(shuffled(src, TURNED, old), by_hand(src, TURNED, old))


@pytest.mark.parametrize(("sources", "targets"), [(1, 127), (1, 1), (128, 33), (97, 127)])
def test_a_shuffle_needs_as_many_partitions_as_it_reads(sources: int, targets: int) -> None:
    src, old = rows(sources, 5), rows(targets, 5, 1)
    quadrants = -(-targets // 32)
    fits = 32 * (quadrants - 1) < sources
    if fits:
        assert np.array_equal(shuffled(src, [0] * 32, old), by_hand(src, [0] * 32, old))
    else:
        with pytest.raises(
            Unspecified, match=r"shuffle_mask reads partition 96 of src; one of the 1 it has \(nki\.isa\.nc_stream_shuffle\)"
        ):
            shuffled(src, [0] * 32, old)


def test_a_shuffle_in_place_reads_before_it_writes_and_moves_bits() -> None:
    x = np.arange(32 * 2, dtype=np.int32).reshape(32, 2) + 2**24 + 1

    def build(p: Program, t: Tiles) -> None:
        p.nc_stream_shuffle(dst=t["x"], src=t["x"], shuffle_mask=TURNED)
        p.tensor_copy(dst=t["r"], src=t["x"])

    assert np.array_equal(computed(build, {"x": (x, "int32")}, {"r": (x.shape, "int32")})["r"], x[::-1])


def test_only_a_mask_that_keeps_partitions_reads_its_destination() -> None:
    for mask, initialised in ((TURNED, True), ([255, *TURNED[1:]], False)):
        p = Program()
        src, dst = tile(p, (32, 4)), p.sbuf((32, 4), "float32")
        p.nc_stream_shuffle(dst=dst, src=src, shuffle_mask=mask)
        p.dma_copy(dst=p.output("y", (32, 4), "float32"), src=dst)
        if initialised:
            assert simulate(p).outputs["y"].tolist() == [[1] * 4] * 32
        else:
            with pytest.raises(ProgramError, match="is read before anything writes it"):
                simulate(p)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shuffle_mask": TURNED[1:]}, "shuffle_mask: 31 elements; 32"),
        ({"shuffle_mask": [32, *TURNED[1:]]}, "shuffle_mask: 32; 0 to 31, or 255 for a partition that keeps its values"),
        ({"shuffle_mask": [-1, *TURNED[1:]]}, "shuffle_mask: -1; 0 to 31, or 255"),
        ({"shuffle_mask": 5}, "shuffle_mask: 5; a list of whole numbers"),
        ({"shuffle_mask": [0.5] * 32}, "a list of whole numbers"),
        ({"src": ((32, 7), "float32")}, r"src has 7 elements per partition, dst has 8.*\(nki\.isa\.nc_stream_shuffle\)"),
        ({"src": ((32, 8), "int32")}, "src is int32, dst is float32; they must match"),
    ],
)
def test_a_shuffle_refuses(changes: dict[str, Any], message: str) -> None:
    p = Program()
    fields = {"dst": ((32, 8), "float32"), "src": ((32, 8), "float32"), "shuffle_mask": TURNED, **changes}
    with pytest.raises(ProgramError, match=message):
        p.nc_stream_shuffle(**{n: p.sbuf(*v) if isinstance(v, tuple) else v for n, v in fields.items()})


@pytest.mark.parametrize(
    ("src", "dst", "message"),
    [
        ((0, 32), (96, 128), None),
        ((32, 64), (64, 96), None),
        ((0, 64), (64, 128), None),
        ((64, 96), (64, 128), None),
        ((16, 32), (0, 16), "src starts at partition 16 with 16; a multiple of 32"),
        ((0, 64), (32, 64), "dst starts at partition 32 with 64; a multiple of 64"),
        ((32, 64), (0, 64), "src starts at partition 32 with 64; a multiple of 64"),
        ((0, 96), (32, 128), "dst starts at partition 32 with 96; a multiple of 128"),
    ],
)
def test_a_shuffle_starts_where_its_active_partitions_may(src: tuple[int, int], dst: tuple[int, int], message: str | None) -> None:
    p = Program()
    t, r = tile(p, (128, 8)), tile(p, (128, 8))
    mask = [k if k < 32 - (src[0] % 32) else 255 for k in IDENTITY]
    mask = mask if dst[1] - dst[0] <= src[1] - src[0] else [255] * 32
    p.nc_stream_shuffle(dst=r[dst[0] : dst[1]], src=t[src[0] : src[1]], shuffle_mask=mask)
    if message is None:
        simulate(p)
    else:
        with pytest.raises(ProgramError, match=message):
            simulate(p)


def test_a_shuffle_runs_on_the_vector_engine_in_no_hbm_at_a_cycle_an_element() -> None:
    p = Program()
    x, t, r = p.input("x", (32, 8), "float32"), tile(p, (128, 512)), p.sbuf((128, 512), "float32")
    with pytest.raises(ProgramError, match="src is in HBM"):
        p.nc_stream_shuffle(dst=r[:32, :8], src=x, shuffle_mask=TURNED)
    with pytest.raises(ProgramError, match="engine gpsimd; one of vector"):
        p.nc_stream_shuffle(dst=r, src=t, shuffle_mask=TURNED, engine="gpsimd")
    p.nc_stream_shuffle(dst=r, src=t, shuffle_mask=TURNED)
    result = simulate(p, values=False)
    (took,) = [i.duration_ns for i in result.instructions if i.opcode == "NC_STREAM_SHUFFLE"]
    # SDK 2.26, nki.isa: N cycles, carried over; 152 ns as other VectorE instructions, assumed
    assert took == pytest.approx(152 + 512 / 0.96, abs=0.25)
    assert "vector.nc_stream_shuffle.cycles_per_element" in result.assumed
