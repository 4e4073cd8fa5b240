"""nc_n_gather against a loop over indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nc_sim import Program, ProgramError, simulate
from tiles import Tiles, computed, tile


def gathered(data: np.ndarray, indices: np.ndarray, dtype: str = "float32", shape: tuple[int, ...] | None = None) -> np.ndarray:
    def build(p: Program, t: Tiles) -> None:
        p.nc_n_gather(dst=t["r"], data=t["d"].reshape(*(shape or data.shape)), indices=t["i"])

    return computed(build, {"d": (data, dtype), "i": (indices, "uint32")}, {"r": (indices.shape, dtype)})["r"]


def by_hand(data: np.ndarray, indices: np.ndarray) -> list[list[Any]]:
    return [[row[k] for k in places] for row, places in zip(data.tolist(), indices.tolist(), strict=True)]


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
@pytest.mark.parametrize(
    ("partitions", "n", "m"), [(128, 1, 1), (1, 127, 128), (127, 128, 127), (128, 600, 512), (128, 100, 513), (2, 16384, 8192)]
)
def test_a_gather_takes_elements_of_its_own_partition(partitions: int, n: int, m: int, dtype: str) -> None:
    rng = np.random.default_rng(n + m)
    data = rng.integers(0, 200, (partitions, n)).astype({"float32": np.float32, "int32": np.int32, "uint8": np.uint8}[dtype])
    indices = rng.integers(0, n, (partitions, m))
    assert gathered(data, indices, dtype).tolist() == by_hand(data, indices)


def test_the_free_dimensions_of_data_count_as_one_and_bits_stay() -> None:
    data = np.arange(4 * 30, dtype=np.int32).reshape(4, 30) + 2**24 + 1
    indices = np.array([[29, 0], [7, 7], [1, 28], [13, 14]])
    assert gathered(data, indices, "int32", (4, 2, 15)).tolist() == by_hand(data, indices)


def test_an_index_outside_data_is_refused() -> None:
    data = np.zeros((2, 5), np.float32)
    with pytest.raises(ProgramError, match=r"gather: an index 5; 0 to 4"):
        gathered(data, np.array([[0], [5]]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"indices": ((4, 7), "uint32")}, r"indices has 7 elements per partition, dst has 8; they must match \(nki\.isa\.nc_n_gather\)"),
        ({"indices": ((3, 8), "uint32")}, "indices has 3 partitions, dst has 4"),
        ({"data": ((5, 9), "float32")}, "data has 5 partitions, dst has 4; they must match"),
        ({"data": ((4, 9), "bfloat16")}, "data is bfloat16, dst is float32; they must match"),
        ({"indices": ((4, 8), "int32")}, "indices is int32; uint32"),
    ],
)
def test_a_gather_refuses(changes: dict[str, tuple[tuple[int, ...], str]], message: str) -> None:
    p = Program()
    fields = {"dst": ((4, 8), "float32"), "data": ((4, 9), "float32"), "indices": ((4, 8), "uint32"), **changes}
    with pytest.raises(ProgramError, match=message):
        p.nc_n_gather(**{n: p.sbuf(*v) for n, v in fields.items()})


def test_a_gather_is_gpsimds_and_in_sbuf() -> None:
    p = Program()
    t, i, u, x = p.sbuf((4, 8), "float32"), p.sbuf((4, 8), "uint32"), p.psum((4, 8)), p.input("x", (4, 8), "float32")
    with pytest.raises(ProgramError, match="data is in PSUM; SBUF: the GpSimdEngine does not reach PSUM"):
        p.nc_n_gather(dst=t, data=u, indices=i)
    with pytest.raises(ProgramError, match="data is in HBM"):
        p.nc_n_gather(dst=t, data=x, indices=i)
    with pytest.raises(ProgramError, match="engine vector; one of gpsimd"):
        p.nc_n_gather(dst=t, data=t, indices=i, engine="vector")


@pytest.mark.parametrize(("n", "groups"), [(1, [1]), (512, [512]), (513, [512, 1]), (1300, [512, 512, 276])])
def test_a_gather_is_an_instruction_for_every_512_indices_of_8_cycles_each(n: int, groups: list[int]) -> None:
    # nki.isa.nc_n_gather: ceil(N / 512) groups of instructions. No cost is published: that of local_gather for single fp32
    # elements in SDK 2.26, 150 cycles and 8 an element of 1.2 GHz here, assumed
    p = Program()
    data, index, dst = tile(p, (128, 64)), tile(p, (128, n), "uint32"), p.sbuf((128, n), "float32")
    p.nc_n_gather(dst=dst, data=data, indices=index)
    result = simulate(p, values=False)
    took = [i.duration_ns for i in result.instructions if i.opcode == "GATHER"]
    assert took == pytest.approx([(150 + 8 * g) / 1.2 for g in groups], abs=0.25)
    assert {"gpsimd.gather.cycles_per_element", "gpsimd.gather.fixed_ns"} <= set(result.assumed)


def test_a_machine_gather_has_at_most_512_indices() -> None:
    p = Program()
    t, i = p.sbuf((4, 513), "float32"), p.sbuf((4, 513), "uint32")
    with pytest.raises(ProgramError, match="indices has 513 elements per partition; at most 512"):
        p.gather(dst=t, data=t, indices=i)
