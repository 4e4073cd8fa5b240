"""tensor_copy_predicated and range_select against loops over elements; who keeps a value, who is refused."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest

from nc_sim import Program, ProgramError, Unspecified, simulate
from nc_sim.isa import View
from tiles import Tiles, computed, tile

SIZES = [(128, 1), (1, 127), (127, 128), (128, 513), (2, 16384)]
FP32_MIN = -(2 - 2**-23) * 2.0**127
COMPARE = {"equal": operator.eq, "less": operator.lt, "less_equal": operator.le, "greater": operator.gt, "greater_equal": operator.ge}


def rows(partitions: int, n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(n + seed).uniform(-9, 9, (partitions, n)).astype(np.float32)


# --- tensor_copy_predicated ------------------------------------------------------------------------------------------


def over_old(p: Program, t: Tiles) -> None:
    p.tensor_copy(dst=t["r"], src=t["old"])
    p.tensor_copy_predicated(dst=t["r"], src=t["src"], predicate=t["m"])


@pytest.mark.parametrize("kind", ["uint8", "uint16", "uint32"])
@pytest.mark.parametrize(("partitions", "n"), [*SIZES[:-1], (2, 8192)])  # four tiles of 16384 do not fit
def test_a_predicated_copy_writes_where_the_predicate_is_not_zero(partitions: int, n: int, kind: str) -> None:
    old, src = rows(partitions, n), rows(partitions, n, 1)
    predicate = np.random.default_rng(n).integers(0, 3, (partitions, n))
    got = computed(
        over_old,
        {"old": (old, "float32"), "src": (src, "float32"), "m": (predicate, kind)},
        {"r": ((partitions, n), "float32")},
    )["r"]
    wanted = [[s if m else o for o, s, m in zip(*three, strict=True)] for three in zip(old, src, predicate, strict=True)]
    assert np.array_equal(got, np.array(wanted, np.float32))


@pytest.mark.parametrize("there", [("src",), ("m",), ("r",), ("src", "r")])
def test_a_predicated_copy_reaches_psum_and_moves_bits(there: tuple[str, ...]) -> None:
    old = np.array([[2**24 + 1, -(2**31), 7]], np.int32)
    src = np.array([[2**30 + 1, 5, 2**31 - 1]], np.int32)
    got = computed(
        over_old,
        {"old": (old, "int32"), "src": (src, "int32"), "m": (np.array([[0, 1, 200]]), "uint8")},
        {"r": ((1, 3), "int32")},
        there,
    )["r"]
    assert got.tolist() == [[2**24 + 1, 5, 2**31 - 1]]


def test_what_a_predicated_copy_keeps_counts_as_read() -> None:
    p = Program()
    src, mask, dst = tile(p, (4, 8)), tile(p, (4, 8), "uint8"), p.sbuf((4, 8), "float32")
    p.tensor_copy_predicated(dst=dst, src=src, predicate=mask)
    p.dma_copy(dst=p.output("y", (4, 8), "float32"), src=dst)
    with pytest.raises(ProgramError, match="is read before anything writes it"):
        simulate(p)


PREDICATED = {"dst": ((4, 8), "float32"), "src": ((4, 8), "float32"), "predicate": ((4, 8), "uint8")}


def made(p: Program, shape: tuple[int, ...], dtype: str, psum: bool = False) -> View:
    return (p.psum if psum else p.sbuf)((shape[0], math.prod(shape[1:])), dtype).reshape(*shape)


@pytest.mark.parametrize(
    ("operands", "message"),
    [
        ({"src": ((4, 7), "float32")}, r"src has 7 elements per partition, dst has 8; .*\(nki\.isa\.tensor_copy_predicated\)"),
        ({"src": ((3, 8), "float32")}, "src has 3 partitions, dst has 4; they must match"),
        ({"predicate": ((4, 7), "uint8")}, "predicate has 7 elements per partition, dst has 8"),
        ({"predicate": ((5, 8), "uint8")}, "predicate has 5 partitions, dst has 4; they must match"),
        ({"predicate": ((4, 8), "int8")}, "predicate is int8; one of uint8, uint16, uint32"),
        ({"src": ((4, 8), "bfloat16")}, "src is bfloat16, dst is float32; they must match"),
        ({"src": ((4, 1, 2, 2, 2), "float32")}, r"src is \[4, 1, 2, 2, 2\]; at most 3 free dimensions"),
    ],
)
def test_a_predicated_copy_refuses(operands: dict[str, tuple[tuple[int, ...], str]], message: str) -> None:
    p = Program()
    with pytest.raises(ProgramError, match=message):
        p.tensor_copy_predicated(**{n: made(p, *o) for n, o in {**PREDICATED, **operands}.items()})


@pytest.mark.parametrize(("kind", "number"), [("float32", 2.5), ("bfloat16", 1 / 3), ("int32", 2**31 - 1), ("uint8", 300), ("int8", 2.5)])
@pytest.mark.parametrize(("partitions", "n"), [*SIZES[:-1], (2, 8192)])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_number_is_put_where_the_predicate_says(partitions: int, n: int, kind: str, number: float, reverse: bool) -> None:
    old = np.random.default_rng(n).integers(0, 100, (partitions, n))
    predicate = np.random.default_rng(n + 1).integers(0, 3, (partitions, n))

    def build(p: Program, t: Tiles) -> None:
        p.tensor_copy(dst=t["r"], src=t["old"])
        p.tensor_copy_predicated(dst=t["r"], src=number, predicate=t["m"], reverse_pred=reverse)

    got = computed(build, {"old": (old, kind), "m": (predicate, "uint16")}, {"r": ((partitions, n), kind)})["r"]
    put = {"float32": 2.5, "bfloat16": 0.333984375, "int32": 2**31 - 1, "uint8": 255, "int8": 2}[kind]  # nearest even, saturated
    wanted = [[put if bool(m) != reverse else o for o, m in zip(*two, strict=True)] for two in zip(old.tolist(), predicate, strict=True)]
    assert got.astype(np.float64).tolist() == wanted


def test_a_reversed_predicate_moves_where_it_is_zero() -> None:
    def build(p: Program, t: Tiles) -> None:
        p.tensor_copy(dst=t["r"], src=t["old"])
        p.tensor_copy_predicated(dst=t["r"], src=t["src"], predicate=t["m"], reverse_pred=True)

    inputs = {"old": (np.array([[1, 2, 3]]), "float32"), "src": (np.array([[4, 5, 6]]), "float32"), "m": (np.array([[0, 1, 9]]), "uint8")}
    assert computed(build, inputs, {"r": ((1, 3), "float32")})["r"].tolist() == [[4, 2, 3]]


def test_a_predicated_copy_has_one_source_in_psum() -> None:
    p = Program()
    dst, src, mask = (made(p, *PREDICATED[n], psum=n != "dst") for n in PREDICATED)
    with pytest.raises(ProgramError, match="src and predicate are both in PSUM; at most one of them may be in PSUM"):
        p.tensor_copy_predicated(dst=dst, src=src, predicate=mask)
    p.tensor_copy_predicated(dst=dst, src=1.0, predicate=mask)
    for wrong in ("1", True, None):
        with pytest.raises(ProgramError, match=r"src.*a number or a view of a tensor"):
            p.tensor_copy_predicated(dst=dst, src=wrong, predicate=mask)


@pytest.mark.parametrize(("there", "cycles"), [("sbuf", 1024), ("psum", 512)])
def test_a_predicated_copy_takes_two_cycles_an_element_out_of_sbuf_and_one_with_psum(there: str, cycles: int) -> None:
    # SDK 2.26, nki.isa: 2 N with src and predicate in SBUF, N with one in PSUM; latency as other VectorE instructions, assumed
    p = Program()
    src, mask, dst = tile(p, (128, 512), memory=there), tile(p, (128, 512), "uint8"), tile(p, (128, 512))
    p.tensor_copy_predicated(dst=dst, src=src, predicate=mask)
    for off in ([], ["vector-fast-modes"]):  # it has none to lose
        (took,) = [i.duration_ns for i in simulate(p, values=False, without=off).instructions if i.opcode == "TENSOR_COPY_PREDICATED"]
        assert took == pytest.approx({"sbuf": 152, "psum": 157}[there] + cycles / 0.96, abs=0.25)


def test_a_destination_in_psum_does_not_make_a_predicated_copy_faster() -> None:
    p = Program()
    src, mask, dst = tile(p, (128, 512)), tile(p, (128, 512), "uint8"), tile(p, (128, 512), memory="psum")
    p.tensor_copy_predicated(dst=dst, src=src, predicate=mask)
    (took,) = [i.duration_ns for i in simulate(p, values=False).instructions if i.opcode == "TENSOR_COPY_PREDICATED"]
    assert took == pytest.approx(152 + 1024 / 0.96, abs=0.25)


# --- range_select ----------------------------------------------------------------------------------------------------


def selected(
    x: np.ndarray, low: np.ndarray, high: np.ndarray, ops: tuple[str, str], dtype: str = "float32", start: int = 0
) -> dict[str, np.ndarray]:
    def build(p: Program, t: Tiles) -> None:
        p.range_select(
            dst=t["r"], on_true_tile=t["x"], comp_op0=ops[0], comp_op1=ops[1], bound0=t["low"], bound1=t["high"],
            reduce_res=t["m"], range_start=start,
        )  # fmt: skip

    inputs = {"x": (x, "float32"), "low": (low, "float32"), "high": (high, "float32")}
    return computed(build, inputs, {"r": (x.shape, dtype), "m": ((x.shape[0], 1), "float32")})


@pytest.mark.parametrize("ops", [("greater_equal", "less"), ("greater", "less_equal"), ("equal", "less_equal")])
@pytest.mark.parametrize("start", [0, -3, 1000])
@pytest.mark.parametrize(("partitions", "n"), SIZES)
def test_range_select_keeps_positions_inside_its_bounds(partitions: int, n: int, start: int, ops: tuple[str, str]) -> None:
    x = rows(partitions, n)
    rng = np.random.default_rng(partitions)
    low = start + rng.integers(0, n, (partitions, 1))
    high = low + rng.integers(0, n, (partitions, 1))
    got = selected(x, low, high, ops, start=start)
    wanted = np.array(
        [
            [v if COMPARE[ops[0]](start + k, a) and COMPARE[ops[1]](start + k, b) else FP32_MIN for k, v in enumerate(row)]
            for row, a, b in zip(x.tolist(), low[:, 0].tolist(), high[:, 0].tolist(), strict=True)
        ],
        np.float32,
    )
    assert np.array_equal(got["r"], wanted)
    assert got["m"][:, 0].tolist() == [max(row) for row in wanted.tolist()]


def test_a_row_without_a_position_is_minus_infinity_in_bfloat16_and_its_maximum_the_least_float32() -> None:
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    got = selected(x, np.array([[9], [1]]), np.array([[99], [2]]), ("greater_equal", "less"), dtype="bfloat16")
    assert got["r"].astype(np.float32).tolist() == [[-math.inf] * 3, [-math.inf, 5, -math.inf]]
    assert got["m"].tolist() == [[FP32_MIN], [5]]


def test_range_select_reduces_before_it_rounds() -> None:
    x = np.array([[1, 1 + 2**-10]], np.float32)
    got = selected(x, np.array([[0]]), np.array([[9]]), ("greater_equal", "less"), dtype="bfloat16")
    assert got["r"].astype(np.float32).tolist() == [[1, 1]]
    assert got["m"].tolist() == [[1 + 2**-10]]


def ranged(p: Program, **changes: object) -> dict[str, object]:
    x, one = p.sbuf((4, 8), "float32"), p.sbuf((4, 1), "float32")
    usual = {"dst": x, "on_true_tile": x, "comp_op0": "greater", "comp_op1": "less", "bound0": one, "bound1": one}
    return {**usual, **{n: made(p, *c) if isinstance(c, tuple) else c for n, c in changes.items()}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dst": ((4, 7), "float32")}, r"on_true_tile has 8 elements per partition, dst has 7.*\(nki\.isa\.range_select\)"),
        ({"dst": ((3, 8), "float32")}, "on_true_tile has 4 partitions, dst has 3"),
        ({"on_true_tile": ((4, 8), "int16")}, "on_true_tile is int16; a floating-point type"),
        ({"comp_op0": "not_equal"}, "comp_op0=not_equal; one of equal, less, less_equal, greater, greater_equal"),
        ({"comp_op1": "add"}, "comp_op1=add; one of equal"),
        ({"bound0": ((3, 1), "float32")}, r"bound0 is \[3, 1\]; \[4, 1\]"),
        ({"bound1": ((4, 2), "float32")}, r"bound1 is \[4, 2\]; \[4, 1\]"),
        ({"bound0": ((4, 1), "bfloat16")}, "bound0 is bfloat16; float32"),
        ({"bound1": ((4, 1), "int32")}, "bound1 is int32; float32"),
        ({"reduce_res": ((4, 8), "float32")}, r"reduce_res is \[4, 8\]; \[4, 1\]"),
        ({"reduce_op": "add"}, "reduce_op=add; maximum"),
        ({"on_false_value": 0.0}, r"on_false_value=0\.0; -3\.40282346\d+e\+38, the least float32"),
        ({"on_false_value": -1e300}, "on_false_value=-1e.300; "),
        ({"range_start": 2**24 - 6}, "positions up to 16777217; at most 16777216"),
        ({"range_start": -(2**24) - 1}, "range_start: -16777217; -16777216 to 16777216"),
    ],
)
def test_range_select_refuses(changes: dict[str, object], message: str) -> None:
    p = Program()
    with pytest.raises(ProgramError, match=message):
        p.range_select(**ranged(p, **changes))


def test_range_select_takes_what_nki_writes() -> None:
    p = Program()
    p.range_select(**ranged(p, on_false_value=-3.4028235e38, reduce_op=np.max, reduce_cmd="reset_reduce", range_start=2**24 - 7))
    with pytest.raises(Unspecified, match=r"on_true_tile is \[4, 2, 4\]; \[P, N\]: the position among more dimensions is not said"):
        p.range_select(**ranged(p, on_true_tile=((4, 2, 4), "float32")))


def test_selections_run_on_the_vector_engine_and_in_no_hbm() -> None:
    p = Program()
    x = p.input("x", (4, 8), "float32")
    copy = {n: made(p, *o) for n, o in PREDICATED.items()}
    with pytest.raises(ProgramError, match="engine scalar; one of vector"):
        p.tensor_copy_predicated(**copy, engine="scalar")
    with pytest.raises(ProgramError, match="src is in HBM"):
        p.tensor_copy_predicated(**{**copy, "src": x})
    with pytest.raises(ProgramError, match="engine gpsimd; one of vector"):
        p.range_select(**ranged(p), engine="gpsimd")
    with pytest.raises(ProgramError, match="on_true_tile is in HBM"):
        p.range_select(**ranged(p, on_true_tile=x))


def test_range_select_takes_a_cycle_an_element() -> None:
    # SDK 2.26, nki.isa: N cycles, for NeuronCore-v3 and newer; 152 ns assumed, 60 ns for [P, 1] operands as tensor_scalar's
    p = Program()
    x, one = tile(p, (128, 512)), tile(p, (128, 1))
    p.range_select(dst=x, on_true_tile=x, comp_op0="greater", comp_op1="less", bound0=one, bound1=one)
    result = simulate(p, values=False)
    (took,) = [i.duration_ns for i in result.instructions if i.opcode == "RANGE_SELECT"]
    assert took == pytest.approx(152 + 60 + 512 / 0.96, abs=0.25)
    assert "vector.range_select.sbuf_fixed_ns" in result.assumed
