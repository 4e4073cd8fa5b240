"""DMA with indices: gather, scatter and dynamic addresses, against numpy's own indexing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nc_sim import Program, simulate
from nc_sim.isa.errors import ProgramError, Race

RNG = np.random.default_rng(5)


def gather(rows: int, table: int, free: int, dtype: str = "float32", index: str = "uint32", **how: object) -> Program:
    """y = x[i], by way of SBUF, where row k stays 7 if it is skipped."""
    p = Program("gather")
    x, i, y = p.input("x", (table, free), dtype), p.input("i", (rows, 1), index), p.output("y", (rows, free), dtype)
    at, t = p.sbuf((rows, 1), index), p.sbuf((rows, free), dtype)
    p.memset(dst=t, value=7)
    p.dma_copy(dst=at, src=i)
    p.dma_copy(dst=t, src=x.ap([[free, rows], [1, free]], vector_offset=at), **how)
    p.dma_copy(dst=y, src=t)
    return p


def numbers(shape: tuple[int, ...]) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("rows", "table", "free"), [(1, 1, 1), (1, 5, 127), (127, 3, 128), (128, 1000, 1), (128, 200, 4096)])
@pytest.mark.parametrize("engine", ["simpy", "compiled"])
def test_a_gather_takes_the_rows_that_its_indices_name(rows: int, table: int, free: int, engine: str) -> None:
    x, i = numbers((table, free)), RNG.integers(0, table, (rows, 1)).astype(np.uint32)
    assert (simulate(gather(rows, table, free), inputs={"x": x, "i": i}, engine=engine).outputs["y"] == x[i[:, 0]]).all()


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_pattern_of_any_rows_is_gathered_and_scattered(data: st.DataObject) -> None:
    rows, table = data.draw(st.integers(1, 128)), data.draw(st.integers(1, 140))
    outer, inner = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
    width = 3 * outer * inner + 4
    start = data.draw(st.integers(0, 3))
    i = np.array(data.draw(st.lists(st.integers(0, table - 1), min_size=rows, max_size=rows)), np.int32).reshape(-1, 1)
    p = Program("patterns")
    x, k = p.input("x", (table, width), "bfloat16"), p.input("i", (rows, 1), "int32")
    y, z = p.output("y", (rows, outer * inner), "float32"), p.output("z", (table, width), "float32")
    at, t = p.sbuf((rows, 1), "int32"), p.sbuf((rows, outer, inner), "float32")
    p.dma_copy(dst=at, src=k)
    pattern = [[width, rows], [3 * inner, outer], [1, inner]]
    p.dma_copy(dst=t, src=x.ap(pattern, offset=start, vector_offset=at))
    p.dma_copy(dst=y, src=t)
    p.dma_copy(dst=z, src=p.constant(np.full((table, width), -1, np.float32)))
    p.dma_copy(dst=z.ap(pattern, offset=start, vector_offset=at), src=t)
    values = np.arange(table * width, dtype=np.float32).reshape(table, width) % 251
    outputs = simulate(p, inputs={"x": values, "i": i}).outputs
    columns = start + (3 * inner * np.arange(outer)[:, None] + np.arange(inner)).reshape(-1)
    assert (outputs["y"] == values[i[:, 0]][:, columns]).all()
    wanted = np.full((table, width), -1, np.float32)
    for row in i[:, 0]:
        wanted[row, columns] = values[row, columns]
    assert (outputs["z"] == wanted).all()


@pytest.mark.parametrize("index", ["uint32", "int32"])
def test_rows_out_of_bounds_are_skipped_and_their_destination_stays(index: str) -> None:
    x = numbers((10, 16))
    i = np.array([0, 9, 10, 3, -1 if index == "int32" else 2**32 - 1, 2**31 - 1], index).reshape(-1, 1)
    y = simulate(gather(6, 10, 16, index=index, oob_mode="skip"), inputs={"x": x, "i": i}).outputs["y"]
    assert (y[[0, 1, 3]] == x[[0, 9, 3]]).all()
    assert (y[[2, 4, 5]] == 7).all()


def test_a_row_out_of_bounds_is_an_error_that_names_index_and_row() -> None:
    i = np.array([0, 9, 10, 3], np.uint32).reshape(-1, 1)
    p = gather(4, 10, 16)
    for engine in ("simpy", "compiled"):
        with pytest.raises(ProgramError) as caught:
            simulate(p, inputs={"x": numbers((10, 16)), "i": i}, engine=engine)
        assert str(caught.value) == (
            f"{p.steps[2].line} gpsimd[2] dma_indirect: index 10 of row 2; 0 to 9 of x, or oob_mode=skip (nki.isa.dma_copy)"
        )
    assert simulate(p, values=False).duration_ns > 0  # the time rests on no value


def test_a_scatter_writes_only_the_rows_that_its_indices_name() -> None:
    src, i = numbers((64, 48)), RNG.permutation(200)[:64].astype(np.uint32).reshape(-1, 1)
    i[5] = 200  # out of bounds
    p = Program("scatter")
    s, k, y = p.input("s", (64, 48), "float32"), p.input("i", (64, 1), "uint32"), p.output("y", (200, 48), "float32")
    at, t = p.sbuf((64, 1), "uint32"), p.sbuf((64, 48), "float32")
    p.dma_copy(dst=at, src=k)
    p.dma_copy(dst=t, src=s)
    p.dma_copy(dst=y, src=p.constant(np.zeros((200, 48), np.float32)))
    p.dma_copy(dst=y.vector_select(0, at), src=t, oob_mode="skip")
    wanted = np.zeros((200, 48), np.float32)
    for row, to in enumerate(i[:, 0].tolist()):
        if to < 200:
            wanted[to] = src[row]
    assert (simulate(p, inputs={"s": src, "i": i}).outputs["y"] == wanted).all()


def test_rows_are_gathered_between_two_tensors_of_hbm() -> None:
    x, i = numbers((40, 8)), RNG.integers(0, 40, (100, 1)).astype(np.uint32)
    p = Program("hbm")
    a, k, y, at = (
        p.input("x", (40, 8), "float32"),
        p.input("i", (100, 1), "uint32"),
        p.output("y", (100, 8), "float32"),
        p.sbuf((100, 1), "uint32"),
    )
    p.dma_copy(dst=at, src=k)
    p.dma_copy(dst=y, src=a.vector_select(0, at))
    assert (simulate(p, inputs={"x": x, "i": i}).outputs["y"] == x[i[:, 0]]).all()


@pytest.mark.parametrize("way", [{"engine": "gpsimd"}, {"engine": "sync"}, {"engine": "scalar", "dge_mode": "hwdge"}, {}])
@pytest.mark.parametrize("number", [0, 3, 8])
def test_one_number_moves_a_whole_pattern(way: dict[str, str], number: int) -> None:
    x = numbers((12, 5, 8))
    p = Program("scalar")
    a, k, y = p.input("x", (12, 5, 8), "float32"), p.input("i", (1, 1), "int32"), p.output("y", (12, 8), "float32")
    one, t = p.sbuf((1, 1), "int32"), p.sbuf((4, 8), "float32")
    p.dma_copy(dst=one, src=k)
    p.dma_copy(dst=y, src=p.constant(np.zeros((12, 8), np.float32)))
    # entries [number : number + 4, 2] of x, the dimension that moves is the first (NKI access patterns, scalar dynamic access)
    p.dma_copy(dst=t, src=a.ap([[40, 4], [1, 8]], offset=2 * 8, scalar_offset=one, indirect_dim=0), **way)
    p.dma_copy(dst=y.ap([[8, 4], [1, 8]], scalar_offset=one), src=t, **way)
    y_ = simulate(p, inputs={"x": x, "i": np.array([[number]], np.int32)}).outputs["y"]
    wanted = np.zeros((12, 8), np.float32)
    wanted[number : number + 4] = x[number : number + 4, 2]
    assert (y_ == wanted).all()


@pytest.mark.parametrize(("number", "skips"), [(9, False), (-1, False), (9, True)])
def test_a_pattern_moved_out_of_bounds_is_an_error_or_skipped_whole(number: int, skips: bool) -> None:
    p = Program("scalar")
    x, k, y = p.input("x", (12, 8), "float32"), p.input("i", (1, 1), "int32"), p.output("y", (4, 8), "float32")
    one, t = p.sbuf((1, 1), "int32"), p.sbuf((4, 8), "float32")
    p.memset(dst=t, value=7.0)
    p.dma_copy(dst=one, src=k)
    p.dma_copy(dst=t, src=x.ap([[8, 4], [1, 8]], scalar_offset=one), oob_mode="skip" if skips else "error")
    p.dma_copy(dst=y, src=t)
    inputs = {"x": numbers((12, 8)), "i": np.array([[number]], np.int32)}
    if skips:
        assert (simulate(p, inputs=inputs).outputs["y"] == 7).all()
    else:
        reached = f"elements {number * 8} to {number * 8 + 32} of x"
        with pytest.raises(ProgramError, match=f"dma_indirect: the number in sbuf3 is {number}, which reaches {reached}; 0 to 8, within"):
            simulate(p, inputs=inputs)


def test_a_number_moves_a_pattern_along_the_free_dimension_of_sbuf() -> None:
    x = numbers((16, 6, 4))
    p = Program("sbuf")
    a, k, y = p.input("x", (16, 6, 4), "float32"), p.input("i", (1, 1), "uint32"), p.output("y", (16, 4), "float32")
    one, t = p.sbuf((1, 1), "uint32"), p.sbuf((16, 6, 4), "float32")
    p.dma_copy(dst=one, src=k)
    p.dma_copy(dst=t, src=a)
    p.dma_copy(dst=y, src=t.select(1, one))
    assert (simulate(p, inputs={"x": x, "i": np.array([[5]])}).outputs["y"] == x[:, 5]).all()


# ---- order


def test_an_automatic_program_waits_for_its_indices_and_for_all_that_they_may_touch() -> None:
    p = Program("order")
    x, y = p.hbm((8, 4), "float32"), p.output("y", (4, 4), "float32")
    at, t, u = p.sbuf((4, 1), "uint32"), p.sbuf((4, 4), "float32"), p.sbuf((4, 4), "float32")
    p.memset(dst=t, value=3.0)
    p.dma_copy(dst=x, src=p.constant(np.zeros((8, 4), np.float32)), engine="sync")
    p.dma_copy(dst=x[4:], src=t, engine="scalar")  # of which the indices name no row, as far as anyone knows
    p.iota(dst=at, pattern=[[1, 1]], offset=3, channel_multiplier=1)
    p.dma_copy(dst=u, src=x.vector_select(0, at))
    p.dma_copy(dst=y, src=u)
    r = simulate(p)
    assert (r.outputs["y"] == np.array([0, 3, 3, 3])[:, None]).all()
    gathers = next(k for k, s in enumerate(r.steps) if s.instruction.mnemonic == "dma_indirect")
    before = [w for s in r.steps[:gathers] if s.engine is r.steps[gathers].engine for w in s.waits]
    names = {r.compiled.semaphores[w.semaphore].split()[-1] for w in (*before, *r.steps[gathers].waits)}
    assert {"(qScalarDynamicHW)", "(GpSimd)"} <= names


@pytest.mark.parametrize("what", ["index", "table"])
def test_a_gather_that_does_not_wait_is_a_race_with_the_writer_of_its_indices_or_of_any_row(what: str) -> None:
    p = Program("race")
    x, rows = p.hbm((8, 4), "uint32"), p.input("rows", (4, 1), "uint32")
    at, t = p.sbuf((4, 1), "uint32", name="at"), p.sbuf((4, 4), "uint32")
    loaded, stored = p.semaphore("loaded"), p.semaphore("stored")
    p.dma_copy(dst=at, src=rows, engine="gpsimd", update=[loaded.add(16)])
    p.dma_copy(dst=x[7:], src=p.constant(np.zeros((1, 4), np.uint32)), engine="sync", update=[stored.add(16)])
    wait = [stored >= 16] if what == "index" else [loaded >= 16]
    p.dma_copy(dst=t, src=x.vector_select(0, at), wait=wait)
    with pytest.raises(Race) as caught:
        simulate(p, values=False)
    assert ("sbuf:at" if what == "index" else "hbm:") in str(caught.value)
    p.steps[-1].waits = (loaded >= 16, stored >= 16)
    assert simulate(p, values=False).races == ()


def test_indices_that_nobody_wrote_are_refused() -> None:
    p = Program("unwritten")
    x, at, t = p.input("x", (8, 4), "float32"), p.sbuf((4, 1), "uint32", name="at"), p.sbuf((4, 4), "float32")
    p.dma_copy(dst=t, src=x.vector_select(0, at))
    with pytest.raises(ProgramError, match=r"sbuf:at\+0x0:uint32\[1\]\[1\]@0:4 is read before anything writes it"):
        simulate(p, values=False)


# ---- rules


def rows_of(p: Program, count: int = 4) -> tuple:
    return p.input("x", (8, 4), "float32"), p.sbuf((count, 1), "uint32"), p.sbuf((4, 4), "float32")


@pytest.mark.parametrize(
    ("how", "found"),
    [
        ({"dge_mode": "hwdge"}, "dge_mode=hwdge with a vector_offset; unknown or swdge"),
        ({"dge_mode": "none"}, "dge_mode=none with a vector_offset; unknown or swdge"),
        ({"oob_mode": "wrap"}, "'wrap'; one of error, skip"),
    ],
)
def test_a_gather_is_refused_where_the_api_has_none(how: dict[str, str], found: str) -> None:
    p = Program("rules")
    x, at, t = rows_of(p)
    with pytest.raises(ProgramError) as caught:
        p.dma_copy(dst=t, src=x.vector_select(0, at), **how)
    assert found in str(caught.value)


def test_there_is_one_index_for_each_row() -> None:
    p = Program("rules")
    x, at, t = rows_of(p, 3)
    with pytest.raises(ProgramError, match=r"indices of shape \[3, 1\] for 4 rows; \[4, 1\]"):
        p.dma_copy(dst=t, src=x.ap([[4, 4], [1, 4]], vector_offset=at))


def test_software_makes_the_descriptors_of_a_gather() -> None:
    p = Program("rules")
    x, at, t = rows_of(p)
    p.memset(dst=at, value=0)
    p.dma_copy(dst=t, src=x.vector_select(0, at), engine="sync")
    with pytest.raises(
        ProgramError, match="an address known at run time on Sync; GpSimd, or Sync and Scalar where hardware makes descriptors"
    ):
        simulate(p, values=False)


def test_static_descriptors_know_no_dynamic_address() -> None:
    p = Program("rules")
    x, t, one = p.input("x", (8, 4), "float32"), p.sbuf((4, 4), "float32"), p.sbuf((1, 1), "int32")
    with pytest.raises(ProgramError, match="dge_mode=none with a dynamic offset; swdge or hwdge"):
        p.dma_copy(dst=t, src=x.ap([[4, 4], [1, 4]], scalar_offset=one), dge_mode="none")


def test_skipping_asks_for_an_offset_that_may_be_out_of_bounds() -> None:
    p = Program("rules")
    x, _at, t = rows_of(p)
    with pytest.raises(ProgramError, match="oob_mode=skip without a dynamic offset"):
        p.dma_copy(dst=t, src=x[:4], oob_mode="skip")


def test_hardware_descriptors_convert_no_types() -> None:
    p = Program("rules")
    x, t = p.input("x", (4, 4), "float32"), p.sbuf((4, 4), "bfloat16")
    with pytest.raises(ProgramError, match="float32 to bfloat16 with dge_mode=hwdge; one type: hardware descriptors convert none"):
        p.dma_copy(dst=t, src=x, dge_mode="hwdge")
    h = p.hbm((4, 4), "float32")
    p.dma_copy(dst=h, src=x)
    p.dma_copy(dst=t, src=h)  # the choice is left to nc-sim
    p.dma_copy(dst=t, src=h, engine="sync")
    r = simulate(p, values=False)
    ways = [(s.engine.name, s.instruction.generation) for s in r.steps if s.instruction.mnemonic == "dma_direct2d"]
    assert ways == [("GPSIMD", "software"), ("GPSIMD", "software"), ("SYNC", "static")]


def test_a_conversion_passes_through_float32() -> None:
    x = np.array([[2**24 + 1, -(2**24) - 3, 5, -7]], np.int32)
    p = Program("convert")
    a, y = p.input("x", (1, 4), "int32"), p.output("y", (1, 4), "uint32")
    p.dma_copy(dst=y, src=a)
    assert simulate(p, inputs={"x": x}).outputs["y"].tolist() == [[2**24, 0, 5, 0]]  # float32, then saturated


# ---- time


def test_a_gather_of_128_rows_takes_the_time_worked_out_by_hand() -> None:
    """trn2: 1613 ns to the visible trigger; engine 15's first packet 760 + 15 x 9.23 ns after it; a stall of 227 ns; 8 rows
    of 2 KiB, each 4.7 + 2048 / 27.2 = 79.994 ns; a semaphore packet of 6 ns."""
    p = Program("time")
    x, i, at, t = (
        p.input("x", (512, 512), "float32"),
        p.input("i", (128, 1), "uint32"),
        p.sbuf((128, 1), "uint32"),
        p.sbuf((128, 512), "float32"),
    )
    p.dma_copy(dst=at, src=i)
    p.dma_copy(dst=t, src=x.vector_select(0, at))
    r = simulate(p, values=False)
    table, timeline = r.table, r.timeline
    k = next(k for k, s in enumerate(r.steps) if s.instruction.mnemonic == "dma_indirect")
    begun = int(timeline.start[table.wait_row[k]])
    last = max(int(timeline.finish[row]) for row in range(table.rows, len(table.step)) if table.step[row] == k)
    ticks = [round(n * 4.8) for n in (1613, 760 + 15 * 9.23)] + [round(227 * 4.8), 8 * round((4.7 + 2048 / 27.2) * 4.8), round(6 * 4.8)]
    assert last - begun == sum(ticks) == 7742 + 4313 + 1090 + 8 * 384 + 29


def test_more_than_128_indices_take_gpsimd_longer() -> None:
    """427/384 ns for each descriptor beyond 128: 384 of them are 427 ns."""
    p = Program("many")
    x, at, t = p.input("x", (900, 128), "bfloat16"), p.sbuf((128, 4), "uint32"), p.sbuf((128, 512), "bfloat16")
    p.memset(dst=at, value=0)
    p.dma_transpose(dst=t, src=x.ap([[128, 512], [1, 128]], vector_offset=at))
    r = simulate(p, values=False)
    k = next(k for k, s in enumerate(r.steps) if s.instruction.mnemonic == "dma_transpose2d")
    row = int(r.table.wait_row[k])
    assert r.table.cost_issue[r.table.cost[row]].tolist() == [round((1035 + 427) * 4.8)] * 4


def test_what_a_gather_rests_on_is_named() -> None:
    r = simulate(gather(4, 10, 16), values=False)
    assert {"dma.software.indirect_ns"} <= set(r.assumed)
