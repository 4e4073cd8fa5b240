"""dma_transpose: values against numpy, rules, and times worked out by hand."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nc_sim import Program, Result, simulate
from nc_sim.isa.errors import NcSimError, ProgramError, Unsupported

RNG = np.random.default_rng(6)
AXES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
TYPES = {"float32": np.uint32, "bfloat16": np.uint16, "int32": np.uint32, "float16": np.uint16}


def turned(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(shape[a] for a in AXES[len(shape)])


def bits(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Random bytes: a transpose moves bits, whatever number they are."""
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    return RNG.integers(0, 2**16 if TYPES[dtype] is np.uint16 else 2**32, shape).astype(TYPES[dtype]).view(kind)


def transposed(x: np.ndarray, dtype: str, place: str, **how: object) -> Result:
    """A run that transposes x out of HBM or SBUF into SBUF, and stores that."""
    p = Program("transpose")
    src, y = p.input("x", x.shape, dtype), p.output("y", turned(x.shape), dtype)
    if place == "sbuf":
        t = p.sbuf(x.shape, dtype)
        p.dma_copy(dst=t, src=src)
        src = t
    out = p.sbuf(turned(x.shape), dtype)
    p.dma_transpose(dst=out, src=src, **how)
    p.dma_copy(dst=y, src=out)
    return simulate(p, inputs={"x": x})


@pytest.mark.parametrize("place", ["hbm", "sbuf"])
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((1, 1), "float32"), ((127, 1), "bfloat16"), ((1, 127), "float32"), ((127, 127), "bfloat16"), ((128, 128), "float32"),
     ((16, 128), "bfloat16"), ((3, 5, 7), "float32"), ((128, 2, 128), "bfloat16"), ((16, 3, 4, 100), "float16"), ((5, 2, 3, 128), "int32")],
)  # fmt: skip
def test_the_dimensions_change_places_and_no_bit_changes(shape: tuple[int, ...], dtype: str, place: str) -> None:
    x = bits(shape, dtype)
    y = transposed(x, dtype, place).outputs["y"]
    assert (y.view(TYPES[dtype]) == x.transpose(AXES[len(shape)]).view(TYPES[dtype])).all()


def test_the_longest_transpose_fills_the_partitions() -> None:
    x = bits((57_000, 128), "bfloat16")
    assert (transposed(x, "bfloat16", "hbm").outputs["y"].view(np.uint16) == x.T.view(np.uint16)).all()


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_window_transposes_as_numpy_does(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=2, max_size=4)))
    whole = tuple(n + data.draw(st.integers(0, 3)) for n in shape)
    window = tuple(slice(w - n, None) for n, w in zip(shape, whole, strict=True))
    dtype, place = data.draw(st.sampled_from(sorted(TYPES))), data.draw(st.sampled_from(["hbm", "sbuf"]))
    axes, x = AXES[len(shape)], bits(whole, dtype)
    p = Program("window")
    src, y, out = p.input("x", whole, dtype), p.output("y", turned(shape), dtype), p.sbuf(turned(shape), dtype)
    if place == "sbuf":
        t = p.sbuf(whole, dtype)
        p.dma_copy(dst=t, src=src)
        src = t
    p.dma_transpose(dst=out, src=src[window], axes=axes if data.draw(st.booleans()) else None)
    p.dma_copy(dst=y, src=out)
    y_ = simulate(p, inputs={"x": x}).outputs["y"]
    assert (np.ascontiguousarray(y_).view(TYPES[dtype]) == np.ascontiguousarray(x[window].transpose(axes)).view(TYPES[dtype])).all()


@pytest.mark.parametrize(
    ("shape", "columns"), [((128, 128), 1), ((256, 64), 2), ((16, 128), 1), ((32, 2, 1, 16), 1), ((256, 1, 3, 128), 2)]
)
@pytest.mark.parametrize("engine", ["simpy", "compiled"])
def test_gathered_rows_are_those_of_the_indices_column_by_column(shape: tuple[int, ...], columns: int, engine: str) -> None:
    """flat = indices.T.flatten()[:rows]; dst = src[flat].T (nki.isa.dma_transpose)."""
    partitions = 128 if columns > 1 else max(16, shape[0])
    x, i = bits((500, *shape[1:]), "bfloat16"), RNG.integers(0, 500, (partitions, columns)).astype(np.uint32)
    p = Program("gather")
    a, k, y = p.input("x", x.shape, "bfloat16"), p.input("i", i.shape, "uint32"), p.output("y", turned(shape), "bfloat16")
    at, out = p.sbuf(i.shape, "uint32"), p.sbuf(turned(shape), "bfloat16")
    p.dma_copy(dst=at, src=k)
    pattern = [[int(np.prod(shape[d + 1 :])), n] for d, n in enumerate(shape)]
    p.dma_transpose(dst=out, src=a.ap(pattern, vector_offset=at))
    p.dma_copy(dst=y, src=out)
    got = simulate(p, inputs={"x": x, "i": i}, engine=engine).outputs["y"]
    flat = i.T.flatten()[: shape[0]]
    assert (got.view(np.uint16) == x[flat].transpose(AXES[len(shape)]).view(np.uint16)).all()


@pytest.mark.parametrize("skips", [False, True])
def test_a_gathered_row_out_of_bounds_is_an_error_or_keeps_its_column(skips: bool) -> None:
    x, i = bits((40, 8), "bfloat16"), np.arange(16, dtype=np.uint32).reshape(-1, 1)
    i[3] = 40
    p = Program("gather")
    a, k, y = p.input("x", x.shape, "bfloat16"), p.input("i", i.shape, "uint32"), p.output("y", (8, 16), "bfloat16")
    at, out = p.sbuf(i.shape, "uint32"), p.sbuf((8, 16), "bfloat16")
    p.memset(dst=out, value=2.0)
    p.dma_copy(dst=at, src=k)
    p.dma_transpose(dst=out, src=a.vector_select(0, at), oob_mode="skip" if skips else "error")
    p.dma_copy(dst=y, src=out)
    if not skips:
        with pytest.raises(ProgramError, match=r"dma_transpose2d: index 40 of row 3; 0 to 39 of x, or oob_mode=skip"):
            simulate(p, inputs={"x": x, "i": i})
        return
    y_ = simulate(p, inputs={"x": x, "i": i}).outputs["y"]
    assert (y_[:, 3] == 2).all()
    assert (np.delete(y_, 3, 1).view(np.uint16) == np.delete(x[:16].T, 3, 1).view(np.uint16)).all()


@pytest.mark.parametrize(("dge_mode", "generation"), [("unknown", "hardware"), ("hwdge", "hardware"), ("swdge", "software")])
def test_a_number_moves_what_is_transposed(dge_mode: str, generation: str) -> None:
    x = bits((48, 100), "float16")
    p = Program("scalar")
    a, k, y = p.input("x", x.shape, "float16"), p.input("i", (1, 1), "int32"), p.output("y", (100, 16), "float16")
    one, out = p.sbuf((1, 1), "int32"), p.sbuf((100, 16), "float16")
    p.dma_copy(dst=one, src=k)
    p.dma_transpose(dst=out, src=a.ap([[100, 16], [1, 100]], scalar_offset=one), dge_mode=dge_mode)
    p.dma_copy(dst=y, src=out)
    r = simulate(p, inputs={"x": x, "i": np.array([[32]])})
    assert (r.outputs["y"].view(np.uint16) == x[32:].T.view(np.uint16)).all()
    assert next(s.instruction.generation for s in r.steps if s.instruction.mnemonic == "dma_transpose2d") == generation


# ---- rules


def call(src: tuple[tuple[int, ...], str], dst: tuple[tuple[int, ...], str], place: str = "hbm", **how: object) -> Program:
    p = Program("rules")
    x = p.input("x", *src) if place == "hbm" else p.sbuf(*src)
    p.dma_transpose(dst=p.sbuf(*dst), src=x, **how)
    return p


B16, F32 = "bfloat16", "float32"


@pytest.mark.parametrize(
    ("src", "dst", "how", "found"),
    [
        (((4, 8), F32), ((4, 8), F32), {}, "dst is [4, 8]; [8, 4], src [4, 8] transposed"),
        (((4, 1, 8), F32), ((8, 4), F32), {}, "dst is [8, 4]; [8, 1, 4], src [4, 1, 8] transposed"),
        (((4, 8), F32), ((8, 4), "int32"), {}, "float32 into int32; one type: a transpose converts none"),
        (((4, 8), "int8"), ((8, 4), "int8"), {}, "int8; types of 2 or 4 bytes"),
        (((8,), F32), ((8, 1), F32), {}, "src has 1 dimensions; 2, 3 or 4"),
        (((2, 2, 2, 2, 2), F32), ((2, 2, 2, 2, 2), F32), {}, "src has 5 dimensions; 2, 3 or 4"),
        (((4, 8), F32), ((8, 4), F32), {"axes": (0, 1)}, "axes [0, 1] of 2 dimensions; [1, 0]"),
        (((4, 2, 8), F32), ((4, 8, 2), F32), {"axes": (0, 2, 1)}, "axes [0, 2, 1] of 3 dimensions; [2, 1, 0]"),
        (((16, 8), B16), ((8, 16), B16), {"dge_mode": "swdge"}, "dge_mode=swdge without a dynamic offset; unknown, hwdge or none"),
        (((16, 8), B16), ((8, 16), B16), {"oob_mode": "skip"}, "oob_mode=skip without a dynamic offset"),
        (((16, 8), F32), ((8, 16), F32), {"dge_mode": "hwdge"}, "float32; a type of 2 bytes"),
        (((32, 8), B16), ((8, 32), B16), {"dge_mode": "hwdge"}, "src is [32, 8]; 16 in its first dimension"),
        (((3, 16, 8), B16), ((8, 16, 3), B16), {"dge_mode": "hwdge"}, "src is [3, 16, 8]; 1, 2, 4, 8 or 16 in its first dimension"),
        (((4, 3, 8), B16), ((8, 3, 4), B16), {"dge_mode": "hwdge"}, "times the last but one a multiple of 16"),
        (((16, 129), B16), ((129, 16), B16), {"dge_mode": "hwdge"}, "src is [16, 129]; at most 128 in its last dimension"),
    ],
)  # fmt: skip
def test_what_a_transpose_does_not_take_is_refused(src: tuple, dst: tuple, how: dict, found: str) -> None:
    with pytest.raises(NcSimError) as caught:
        call(src, dst, **how)
    assert found in str(caught.value)


def test_a_transpose_goes_into_sbuf() -> None:
    p = Program("rules")
    with pytest.raises(ProgramError, match="dst is in HBM; SBUF"):
        p.dma_transpose(dst=p.hbm((8, 4), F32), src=p.input("x", (4, 8), F32))
    with pytest.raises(ProgramError, match="dst is in PSUM; DMA reaches HBM and SBUF"):
        p.dma_transpose(dst=p.psum((8, 4), F32), src=p.input("x2", (4, 8), F32))


@pytest.mark.parametrize(
    ("shape", "index", "dtype", "how", "found"),
    [
        ((32, 8), (32, 1), F32, {}, "float32 with a vector_offset; a type of 2 bytes"),
        ((24, 8), (32, 1), B16, {}, "24 rows; a multiple of 16"),
        ((16, 2, 2, 8), (16, 1), B16, {}, "src is [16, 2, 2, 8]; 1 in one of the two middle dimensions of four"),
        ((16, 8), (8, 2), B16, {}, "indices of shape [8, 2]; 16 to 128 partitions, a multiple of 16"),
        ((16, 8), (24, 1), B16, {}, "indices of shape [24, 1]; 16 to 128 partitions, a multiple of 16"),
        ((16, 8), (64, 2), B16, {}, "indices of shape [64, 2]; 128 partitions for more than one column"),
        ((32, 8), (16, 1), B16, {}, "indices of shape [16, 1] for 32 rows; one index or more for each row"),
        ((16, 8), (16, 1), B16, {"dge_mode": "hwdge"}, "dge_mode=hwdge with a vector_offset; unknown or swdge"),
        ((16, 8), (16, 1), B16, {"dge_mode": "none"}, "dge_mode=none with a vector_offset; unknown or swdge"),
    ],
)  # fmt: skip
def test_what_a_transpose_of_gathered_rows_does_not_take_is_refused(shape: tuple, index: tuple, dtype: str, how: dict, found: str) -> None:
    p = Program("rules")
    x, at, out = p.input("x", (100, *shape[1:]), dtype), p.sbuf(index, "uint32"), p.sbuf(turned(shape), dtype)
    pattern = [[int(np.prod(shape[d + 1 :])), n] for d, n in enumerate(shape)]
    with pytest.raises(ProgramError) as caught:
        p.dma_transpose(dst=out, src=x.ap(pattern, vector_offset=at), **how)
    assert found in str(caught.value)


def test_indices_of_a_transpose_are_unsigned() -> None:
    p = Program("rules")
    x, at, out = p.input("x", (100, 8), B16), p.sbuf((16, 1), "int32"), p.sbuf((8, 16), B16)
    with pytest.raises(ProgramError, match="indices of int32; uint32"):
        p.dma_transpose(dst=out, src=x.vector_select(0, at))


def test_a_chip_without_it_names_the_generation_that_transposes_gathered_rows() -> None:
    p = Program("rules")
    x, at, out = p.input("x", (100, 8), B16), p.sbuf((16, 1), "uint32"), p.sbuf((8, 16), B16)
    p.memset(dst=at, value=0)
    p.dma_transpose(dst=out, src=x.vector_select(0, at))
    with pytest.raises(Unsupported, match="a vector_offset; a chip that transposes gathered rows \\(NeuronCore-v3 and later\\)"):
        simulate(p, values=False, what_if={"dma.transpose.indirect_available": False})
    with pytest.raises(Unsupported, match="dge_mode=hwdge; a chip with hardware descriptor generation"):
        simulate(call(((16, 8), B16), ((8, 16), B16), dge_mode="hwdge"), values=False, what_if={"dma.hardware.available": False})


@pytest.mark.parametrize(
    ("shape", "dtype", "hardware", "generation"),
    [((16, 64), B16, True, "hardware"), ((4, 8, 64), B16, True, "hardware"), ((16, 64), F32, True, "static"),
     ((64, 64), B16, True, "static"), ((16, 64), B16, False, "static")],
)  # fmt: skip
def test_hardware_makes_the_descriptors_where_its_rules_allow(shape: tuple, dtype: str, hardware: bool, generation: str) -> None:
    r = simulate(call((shape, dtype), (turned(shape), dtype)), values=False, what_if={"dma.hardware.available": hardware})
    assert [(s.engine.name, s.instruction.generation) for s in r.steps] == [("SYNC", generation)]


# ---- time


def half_up(x: Fraction) -> int:
    return floor(x + Fraction(1, 2))


COPIED = (Fraction("4.7") + 4096 / Fraction("27.2")) / 4096  # ns per byte of a 4 KiB row out of HBM: 0.0379
STORED = (Fraction("4.7") + 4096 / Fraction(26)) / 4096  # the same from SBUF


@pytest.mark.parametrize(
    ("shape", "dtype", "place", "rows", "ns"),
    [
        ((512, 128), B16, "hbm", 32, COPIED * 256 / Fraction("0.9")),  # 10.78: 90 % of the rate of a copy
        ((512, 128), F32, "hbm", 32, COPIED * 512 / Fraction("0.9")),
        ((128, 128), B16, "sbuf", 8, STORED * 256 / Fraction("0.5")),  # 50 %
        ((512, 32), B16, "hbm", 32, COPIED * 256 / Fraction("0.9")),  # a narrow row takes as long as one of 128
        ((20, 2, 128), B16, "hbm", 4, COPIED * 256 / Fraction("0.9")),  # 16 and 4 rows of each of two groups
    ],
)
def test_a_transpose_takes_its_share_of_the_rate_of_a_copy(shape: tuple, dtype: str, place: str, rows: int, ns: Fraction) -> None:
    r = simulate(call((shape, dtype), (turned(shape), dtype), place), values=False, what_if={}) if place == "hbm" else None
    if r is None:
        p = Program("sbuf")
        t, out = p.sbuf(shape, dtype), p.sbuf(turned(shape), dtype)
        p.memset(dst=t, value=0.0)
        p.dma_transpose(dst=out, src=t)
        r = simulate(p, values=False)
    mine = [k for k, row in enumerate(r.table.step[r.table.rows :]) if r.steps[row].instruction.mnemonic == "dma_transpose2d"]
    assert r.table.packets[mine[0]] == rows
    assert r.table.packets[mine].sum() == np.prod(shape[:-1])
    assert set(r.table.packet[mine].tolist()) == {half_up(ns * Fraction("4.8"))}


def test_a_transpose_of_512_by_128_takes_the_time_worked_out_by_hand() -> None:
    """trn2: engine 15's first packet 773 + 8 KiB x 233 / 32 + 15 x 9.23 ns behind the trigger, a stall of 91, 32 rows of 10.784 ns, 6.

    In ticks of 1/4.8 ns: 4655, 437, 32 x 52 and 29.
    """
    r = simulate(call(((512, 128), B16), ((128, 512), B16)), values=False)
    finish = r.timeline.finish[r.table.rows :].max() - r.timeline.start[r.table.wait_row[0]]
    assert finish == 4655 + 437 + 32 * 52 + 29


def test_rows_with_gaps_are_read_element_by_element() -> None:
    """Every other element of 128: 128 pieces of 2 bytes, each 6 ns, the least that a packet takes, at 90 %."""
    p = Program("gaps")
    p.dma_transpose(dst=p.sbuf((128, 16), B16), src=p.input("x", (16, 256), B16)[:, ::2], dge_mode="none")
    r = simulate(p, values=False)
    assert r.table.packet[0] == half_up(128 * 6 / Fraction("0.9") * Fraction("4.8")) == 4096


def test_inf2_s_measured_ratio_gives_its_measured_rate() -> None:
    """114.6 against 198.2 GB/s at 4 KiB: with 0.578 a transpose takes 1.73 times what a copy of the same bytes takes."""
    p = Program("ratio")
    x, t, out = p.input("x", (1024, 128), F32), p.sbuf((128, 1024), F32), p.sbuf((128, 1024), F32)
    p.dma_copy(dst=t, src=x.reshape(128, 1024), engine="sync", dge_mode="none")
    p.dma_transpose(dst=out, src=x)
    r = simulate(p, values=False, what_if={"dma.transpose.hbm_ratio": "1146/1982"})
    busy = [int(r.table.packets[k] * r.table.packet[k]) for k in (0, 16)]
    assert busy[1] / busy[0] == pytest.approx(198.2 / 114.6, rel=0.01)


def test_where_all_engines_have_a_limit_together_a_transpose_has_its_share_of_it() -> None:
    """inf2: 114.6 GB/s where a copy has 198.2; the limit is 273 B/ns for copies."""

    def active(mib: int) -> float:
        p = Program("long")
        n = mib * 2048
        p.dma_transpose(dst=p.sbuf((128, n), "float32"), src=p.input("x", (n, 128), "float32"))
        r = simulate(p, "inf2", values=False)
        finish = r.timeline.finish[r.table.rows :]
        return (float(finish.max()) - float(r.timeline.start[r.table.rows :].min())) / float(r.chip.ticks_per_ns)

    assert (active(8) - active(4)) / (4 << 20) == pytest.approx(1 / (273 * 114.6 / 198.2), rel=0.002)
