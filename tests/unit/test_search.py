"""max8, nc_find_index8 and nc_match_replace8 against sorting and searching one row at a time in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nc_sim import Program, ProgramError, Unspecified, simulate
from nc_sim.isa import View
from tiles import Tiles, computed, tile

SIZES = [(128, 8), (1, 127), (127, 128), (128, 513), (2, 16384)]


def rows(partitions: int, n: int, values: int = 10**6) -> np.ndarray:
    """Whole numbers that float32 holds; few `values` repeat themselves."""
    return np.random.default_rng(n).integers(-values, values, (partitions, n)).astype(np.float32)


def largest(x: np.ndarray) -> np.ndarray:
    return np.array([sorted(row, reverse=True)[:8] for row in x.tolist()], np.float32)


@pytest.mark.parametrize(("partitions", "n"), SIZES)
def test_max8_is_the_head_of_the_descending_row(partitions: int, n: int) -> None:
    x = rows(partitions, n, values=50)
    got = computed(lambda p, t: p.max8(dst=t["r"], src=t["x"]), {"x": (x, "float32")}, {"r": ((partitions, 8), "float32")})["r"]
    assert np.array_equal(got, largest(x))


def test_max8_of_two_free_dimensions_and_of_bfloat16_in_psum() -> None:
    x = rows(16, 24)
    got = computed(
        lambda p, t: p.max8(dst=t["r"], src=t["x"].reshape(16, 4, 6)), {"x": (x, "bfloat16")}, {"r": ((16, 8), "float32")}, ("x", "r")
    )["r"]
    rounded = np.array(x, dtype=got.dtype)
    assert not np.array_equal(got, largest(rounded))
    bits = x.view(np.uint32)
    nearest = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)  # bfloat16, by its bits
    assert np.array_equal(got, largest(nearest))


def index_by_hand(x: np.ndarray, vals: np.ndarray) -> list[list[int]]:
    """The k-th column with a value gets its k-th place, all ones without a place."""
    out = []
    for row, wanted in zip(x.tolist(), vals.tolist(), strict=True):
        places = {v: [k for k, other in enumerate(row) if other == v] for v in wanted}
        out.append([places[v][wanted[:c].count(v)] if places[v] else 0xFFFFFFFF for c, v in enumerate(wanted)])
    return out


@pytest.mark.parametrize("values", [5, 10**6])
@pytest.mark.parametrize(("partitions", "n"), SIZES)
def test_nc_find_index8_finds_what_max8_found(partitions: int, n: int, values: int) -> None:
    x = rows(partitions, n, values)

    def build(p: Program, t: Tiles) -> None:
        best = p.sbuf((partitions, 8), "float32")
        p.max8(dst=best, src=t["x"])
        p.nc_find_index8(dst=t["r"], data=t["x"], vals=best)

    got = computed(build, {"x": (x, "float32")}, {"r": ((partitions, 8), "uint32")})["r"]
    assert got.tolist() == index_by_hand(x, largest(x))


@pytest.mark.parametrize(("dtype", "none"), [("uint32", 0xFFFFFFFF), ("uint16", 0xFFFF)])
def test_nc_find_index8_puts_all_ones_for_a_value_that_is_not_there(dtype: str, none: int) -> None:
    x = np.array([[1, 2, 3, 2, 5, 6, 7, 8, 9]], np.float32)
    vals = np.array([[2, 2, 4, 9, 1, 8, 0, 3]], np.float32)
    got = computed(
        lambda p, t: p.nc_find_index8(dst=t["r"], data=t["x"], vals=t["v"]),
        {"x": (x, "float32"), "v": (vals, "float32")},
        {"r": ((1, 8), dtype)},
    )["r"]
    assert got.tolist() == [[1, 3, none, 8, 0, 7, none, 2]]


def test_nc_find_index8_of_more_copies_than_there_are_is_not_specified() -> None:
    x, vals = np.arange(8, dtype=np.float32)[None], np.full((1, 8), 3, np.float32)
    with pytest.raises(Unspecified, match=r"vals holds a value more often than data does; .* \(nki\.isa\.nc_find_index8\)"):
        computed(
            lambda p, t: p.nc_find_index8(dst=t["r"], data=t["x"], vals=t["v"]),
            {"x": (x, "float32"), "v": (vals, "float32")},
            {"r": ((1, 8), "uint32")},
        )


def replaced_by_hand(x: np.ndarray, vals: np.ndarray, imm: float) -> tuple[np.ndarray, list[list[int]]]:
    """The last column takes the first place of its value, the next to last the first that is left, and so on."""
    out, places = x.copy(), []
    for k, wanted in enumerate(vals.tolist()):
        row, mine = x[k].tolist(), [0] * 8
        for column in reversed(range(8)):
            at = next((i for i, v in enumerate(row) if v == wanted[column]), None)
            if at is not None:
                row[at], mine[column], out[k, at] = None, at, imm
        places.append(mine)
    return out, places


@pytest.mark.parametrize("values", [5, 10**6])
@pytest.mark.parametrize(("partitions", "n"), SIZES)
@pytest.mark.parametrize("imm", [0.5, -math.inf])
def test_nc_match_replace8_takes_the_largest_eight_out(partitions: int, n: int, values: int, imm: float) -> None:
    x = rows(partitions, n, values)

    def build(p: Program, t: Tiles) -> None:
        best = p.sbuf((partitions, 8), "float32")
        p.max8(dst=best, src=t["x"])
        p.nc_match_replace8(dst=t["r"], data=t["x"], vals=best, imm=imm, dst_idx=t["i"])

    got = computed(build, {"x": (x, "float32")}, {"r": (x.shape, "float32"), "i": ((partitions, 8), "uint32")})
    wanted, places = replaced_by_hand(x, largest(x), imm)
    assert np.array_equal(got["r"], wanted)
    assert got["i"].tolist() == places


def test_nc_match_replace8_numbers_equal_values_as_the_documented_example() -> None:
    # nki.isa.nc_match_replace8: these data and vals give these indices
    x = np.array([[1, 2, 3, 4, 8, 8, 8, 8, 8, 8, 8]], np.float32)
    vals = np.array([[3, 8, 8, 8, 8, 8, 8, 8]], np.float32)
    got = computed(
        lambda p, t: p.nc_match_replace8(dst=t["r"], data=t["x"], vals=t["v"], imm=-1.0, dst_idx=t["i"]),
        {"x": (x, "float32"), "v": (vals, "float32")},
        {"r": (x.shape, "float32"), "i": ((1, 8), "uint32")},
    )
    assert got["i"].tolist() == [[2, 10, 9, 8, 7, 6, 5, 4]]
    assert got["r"].tolist() == [[1, 2, -1, 4, -1, -1, -1, -1, -1, -1, -1]]


def without_a_match(with_index: bool) -> np.ndarray:
    x, vals = np.arange(9, dtype=np.float32)[None], np.array([[2, 2, 7, 50, 51, 52, 53, 54]], np.float32)

    def build(p: Program, t: Tiles) -> None:
        p.nc_match_replace8(dst=t["r"], data=t["x"], vals=t["v"], imm=9, **({"dst_idx": t["i"]} if with_index else {}))
        if not with_index:
            p.memset(dst=t["i"], value=0)

    inputs = {"x": (x, "float32"), "v": (vals, "float32")}
    return computed(build, inputs, {"r": (x.shape, "float32"), "i": ((1, 8), "uint32")})["r"]


def test_nc_match_replace8_leaves_data_without_a_match_and_has_no_index_for_it() -> None:
    assert without_a_match(with_index=False).tolist() == [[0, 1, 9, 3, 4, 5, 6, 9, 8]]
    with pytest.raises(Unspecified, match="dst_idx for a value of vals that data does not hold"):
        without_a_match(with_index=True)


def view(p: Program, shape: tuple[int, ...], dtype: str = "float32") -> View:
    return p.sbuf((shape[0], math.prod(shape[1:])), dtype).reshape(*shape)


MAX8 = {"dst": (4, 8), "src": (4, 16)}
FIND = {"dst": (4, 8), "data": (4, 16), "vals": (4, 8)}
REPLACE = {"dst": (4, 16), "data": (4, 16), "vals": (4, 8), "dst_idx": (4, 8)}


@pytest.mark.parametrize(
    ("call", "shapes", "message"),
    [
        ("max8", {"src": (4, 7)}, r"src has 7 elements per partition; 8 to 16384 \(nki\.isa\.max8\)"),
        ("max8", {"src": (4, 16385)}, "src has 16385 elements per partition; 8 to 16384"),
        ("max8", {"src": (4, 2, 2, 4)}, r"src is \[4, 2, 2, 4\]; at most two free dimensions"),
        ("max8", {"dst": (4, 7)}, "dst has 7 elements per partition; 8"),
        ("max8", {"dst": (3, 8)}, "dst has 3 partitions, src has 4; they must match"),
        ("max8", {"dst": (4, 2, 4)}, r"dst is \[4, 2, 4\]; \[P, 8\]"),
        ("nc_find_index8", {"data": (4, 7)}, r"data has 7 elements per partition; 8 to 16384 \(nki\.isa\.nc_find_index8\)"),
        ("nc_find_index8", {"data": (4, 16385)}, "data has 16385 elements per partition; 8 to 16384"),
        ("nc_find_index8", {"data": (4, 2, 2, 4)}, r"data is \[4, 2, 2, 4\]; at most two free dimensions"),
        ("nc_find_index8", {"vals": (4, 9)}, "vals has 9 elements per partition; 8"),
        ("nc_find_index8", {"vals": (5, 8)}, "vals has 5 partitions, data has 4; they must match"),
        ("nc_find_index8", {"vals": (4, 2, 2, 2)}, r"vals is \[4, 2, 2, 2\]; at most two free dimensions"),
        ("nc_find_index8", {"dst": (4, 9)}, "dst has 9 elements per partition; 8"),
        ("nc_find_index8", {"dst": (4, 4, 2)}, r"dst is \[4, 4, 2\]; \[P, 8\]"),
        ("nc_match_replace8", {"dst": (4, 15)}, r"data has 16 elements per partition, dst has 15.*nki\.isa\.nc_match_replace8"),
        ("nc_match_replace8", {"dst": (3, 16)}, "data has 4 partitions, dst has 3; they must match"),
        ("nc_match_replace8", {"dst": (4, 16385), "data": (4, 16385)}, "data has 16385 elements per partition; at most 16384"),
        ("nc_match_replace8", {"vals": (4, 9)}, "vals has 9 elements per partition; 8"),
        ("nc_match_replace8", {"dst_idx": (4, 9)}, "dst_idx has 9 elements per partition; 8"),
    ],
)
def test_shapes_that_are_refused(call: str, shapes: dict[str, tuple[int, ...]], message: str) -> None:
    p = Program()
    usual = {"max8": MAX8, "nc_find_index8": FIND, "nc_match_replace8": REPLACE}[call]
    index = {"nc_find_index8": "dst", "nc_match_replace8": "dst_idx"}.get(call)
    views = {n: view(p, s, "uint32" if n == index else "float32") for n, s in {**usual, **shapes}.items()}
    with pytest.raises(ProgramError, match=message):
        getattr(p, call)(**views, **({"imm": 0.0} if call == "nc_match_replace8" else {}))


def test_indices_are_uint16_or_uint32() -> None:
    p = Program()
    x, v, wrong = p.sbuf((4, 16), "float32"), p.sbuf((4, 8), "float32"), p.sbuf((4, 8), "int32")
    with pytest.raises(ProgramError, match="dst is int32; uint16 or uint32"):
        p.nc_find_index8(dst=wrong, data=x, vals=v)
    with pytest.raises(ProgramError, match="dst_idx is int32; uint16 or uint32"):
        p.nc_match_replace8(dst=x, data=x, vals=v, imm=0, dst_idx=wrong)


def test_imm_is_a_number() -> None:
    p = Program()
    x, v = p.sbuf((4, 16), "float32"), p.sbuf((4, 8), "float32")
    with pytest.raises(ProgramError, match="imm is a view; a number"):
        p.nc_match_replace8(dst=x, data=x, vals=v, imm=v[:, :1])


def test_how_32_bit_integers_are_compared_is_not_specified() -> None:
    p = Program()
    x, v, i = p.sbuf((4, 16), "int32"), p.sbuf((4, 8), "float32"), p.sbuf((4, 8), "uint32")
    with pytest.raises(Unspecified, match=r"data is int32; a type that float32 holds.*\(nki\.isa\.nc_find_index8\)"):
        p.nc_find_index8(dst=i, data=x, vals=v)
    with pytest.raises(Unspecified, match="vals is uint32; a type that float32 holds"):
        p.nc_match_replace8(dst=x, data=p.sbuf((4, 16), "uint16"), vals=i, imm=0)


def test_searches_run_on_the_vector_engine_and_in_no_hbm() -> None:
    p = Program()
    x, t, v, i = p.input("x", (4, 16), "float32"), p.sbuf((4, 16), "float32"), p.sbuf((4, 8), "float32"), p.sbuf((4, 8), "uint32")
    calls = (("max8", "src", {"dst": v}), ("nc_find_index8", "data", {"dst": i, "vals": v}))
    for call, name, others in (*calls, ("nc_match_replace8", "data", {"dst": t, "vals": v, "imm": 0.0})):
        with pytest.raises(ProgramError, match="engine gpsimd; one of vector"):
            getattr(p, call)(**others, **{name: t}, engine="gpsimd")
        with pytest.raises(ProgramError, match=f"{name} is in HBM"):
            getattr(p, call)(**others, **{name: x})


@pytest.mark.parametrize("n", [8, 512, 16384])
def test_a_search_takes_a_cycle_an_element_and_144(n: int) -> None:
    # SDK 2.26, nki.isa: N cycles; the vendor's kernel library plans with N + 144 of 0.96 GHz
    p = Program()
    x, v, i = tile(p, (128, n)), p.sbuf((128, 8), "float32"), p.sbuf((128, 8), "uint32")
    p.max8(dst=v, src=x)
    p.nc_find_index8(dst=i, data=x, vals=v)
    p.nc_match_replace8(dst=x, data=x, vals=v, imm=0)
    result = simulate(p, values=False)
    for opcode in ("MAX8", "NC_FIND_INDEX8", "NC_MATCH_REPLACE8"):
        (made,) = [k for k in result.instructions if k.opcode == opcode]
        assert made.duration_ns == pytest.approx((n + 144) / 0.96, abs=0.25)
    assert {"vector.nc_find_index8.sbuf_fixed_ns", "vector.max8.sbuf_ratio"} <= set(result.assumed)
