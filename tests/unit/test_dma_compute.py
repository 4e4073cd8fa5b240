"""dma_compute: sums by the DMA engines against numpy, rules, and times worked out by hand."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nc_sim import Program, simulate
from nc_sim.isa.errors import NcSimError, ProgramError, Unspecified

RNG = np.random.default_rng(7)
KINDS = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "int32": np.int32}


def numbers(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    scale = 1e8 if dtype == "int32" else 8  # beyond what float32 holds exactly
    return (RNG.standard_normal(shape) * scale).astype(np.int32 if dtype == "int32" else np.float32).astype(KINDS[dtype])


def total(parts: list[np.ndarray], dtype: str) -> np.ndarray:
    """The sum in float32, one after the other, rounded once."""
    out = parts[0].astype(np.float32)
    for part in parts[1:]:
        out = out + part.astype(np.float32)
    with np.errstate(over="ignore"):
        return (
            np.clip(np.rint(out.astype(np.float64)), -(2**31), 2**31 - 1).astype(np.int32) if dtype == "int32" else out.astype(KINDS[dtype])
        )


@pytest.mark.parametrize("place", ["hbm", "sbuf"])
@pytest.mark.parametrize(("shape", "count"), [((1, 1), 2), ((1, 127), 3), ((127, 128), 2), ((128, 128), 16), ((128, 2048), 4)])
def test_a_sum_is_that_of_float32(shape: tuple[int, int], count: int, place: str) -> None:
    parts = [numbers(shape, "bfloat16" if k % 2 else "float32") for k in range(count)]
    p = Program("sum")
    inputs = [p.input(f"x{k}", shape, "bfloat16" if k % 2 else "float32") for k in range(count)]
    y = p.output("y", shape, "bfloat16")
    sources = []
    for k, x in enumerate(inputs):
        t = p.sbuf(shape, x.dtype) if k == 0 or place == "sbuf" else x
        if t is not x:
            p.dma_copy(dst=t, src=x)
        sources.append(t)
    out = p.sbuf(shape, "bfloat16") if place == "sbuf" else y
    p.dma_compute(dst=out, srcs=sources, reduce_op="add", scales=[1.0] * count)
    if out is not y:
        p.dma_copy(dst=y, src=out)
    for engine in ("simpy", "compiled"):
        got = simulate(p, inputs={f"x{k}": v for k, v in enumerate(parts)}, engine=engine).outputs["y"]
        assert (got == total(parts, "bfloat16")).all()


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_sum_of_any_windows_is_that_of_float32(data: st.DataObject) -> None:
    shape = data.draw(st.tuples(st.integers(1, 128), st.integers(1, 6), st.integers(1, 6)))
    types = data.draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=3, max_size=9))
    values = [numbers((shape[0], 2 * shape[1], shape[2] + 1), t) for t in types[1:]]
    p = Program("windows")
    sources = [p.input(f"x{k}", v.shape, t)[:, ::2, 1:] for k, (v, t) in enumerate(zip(values, types[1:], strict=True))]
    y, out = p.output("y", shape, types[0]), p.sbuf(shape, types[0])
    p.dma_compute(dst=out, srcs=sources, reduce_op="add")
    p.dma_copy(dst=y, src=out)
    got = simulate(p, inputs={f"x{k}": v for k, v in enumerate(values)}).outputs["y"]
    assert (got == total([v[:, ::2, 1:] for v in values], types[0])).all()


def test_a_sum_may_be_added_in_place() -> None:
    a, b = numbers((64, 32)), numbers((64, 32))
    p = Program("place")
    x, z, y, t = (
        p.input("x", (64, 32), "float32"),
        p.input("z", (64, 32), "float32"),
        p.output("y", (64, 32), "float32"),
        p.sbuf((64, 32), "float32"),
    )
    p.dma_copy(dst=t, src=x)
    p.dma_compute(dst=t, srcs=[t, z], reduce_op="add")
    p.dma_copy(dst=t, src=z, dst_rmw_op="add")  # as nki.isa 0.2 wrote it
    p.dma_copy(dst=y, src=t)
    r = simulate(p, inputs={"x": a, "z": b})
    assert (r.outputs["y"] == (a + b) + b).all()
    sums = [s for s in r.steps if s.instruction.mnemonic == "dma_compute2d"]
    assert [(s.engine.name, s.instruction.generation) for s in sums] == [("SYNC", "static")] * 2


def scatter(rows: int, old: bool = False, **how: object) -> Program:
    """y = x, then y[i] += s."""
    p = Program("scatter")
    x, s, i = p.input("x", (200, 24), "float32"), p.input("s", (rows, 24), "bfloat16"), p.input("i", (rows, 1), "uint32")
    y, at, t = p.output("y", (200, 24), "float32"), p.sbuf((rows, 1), "uint32"), p.sbuf((rows, 24), "bfloat16")
    p.dma_copy(dst=y, src=x)
    p.dma_copy(dst=at, src=i)
    p.dma_copy(dst=t, src=s)
    found = y.vector_select(0, at)
    if old:
        p.dma_copy(dst=found, src=t, dst_rmw_op="add", **how)
    else:
        p.dma_compute(dst=found, srcs=[found, t], reduce_op="add", **how)
    return p


@pytest.mark.parametrize("rows", [1, 127, 128])
@pytest.mark.parametrize("old", [False, True])
def test_rows_of_hbm_are_added_to_where_the_indices_say(rows: int, old: bool) -> None:
    x, s, i = numbers((200, 24)), numbers((rows, 24), "bfloat16"), RNG.permutation(200)[:rows].astype(np.uint32).reshape(-1, 1)
    wanted = x.copy()
    np.add.at(wanted, i[:, 0], s.astype(np.float32))
    r = simulate(scatter(rows, old), inputs={"x": x, "s": s, "i": i})
    assert (r.outputs["y"] == wanted).all()
    assert [s.engine.name for s in r.steps if s.instruction.mnemonic == "dma_compute2d"] == ["GPSIMD"]


def test_gathered_rows_are_added_to_a_tensor_in_sbuf_and_may_repeat() -> None:
    x, s, i = numbers((50, 24)), numbers((100, 24)), RNG.integers(0, 50, (100, 1)).astype(np.uint32)
    p = Program("gather")
    a, b, k, y = (
        p.input("x", x.shape, "float32"),
        p.input("s", s.shape, "float32"),
        p.input("i", i.shape, "uint32"),
        p.output("y", s.shape, "float32"),
    )
    at, t = p.sbuf(i.shape, "uint32"), p.sbuf(s.shape, "float32")
    p.dma_copy(dst=at, src=k)
    p.dma_copy(dst=t, src=b)
    p.dma_compute(dst=t, srcs=[a.vector_select(0, at), t], reduce_op="add", unique_indices=True)
    p.dma_copy(dst=y, src=t)
    assert (simulate(p, inputs={"x": x, "s": s, "i": i}).outputs["y"] == x[i[:, 0]] + s).all()


def test_rows_out_of_bounds_are_not_added_to() -> None:
    x, s, i = numbers((200, 24)), numbers((3, 24), "bfloat16"), np.array([[5], [200], [7]], np.uint32)
    wanted = x.copy()
    wanted[[5, 7]] += s[[0, 2]].astype(np.float32)
    inputs = {"x": x, "s": s, "i": i}
    assert (simulate(scatter(3, oob_mode="skip"), inputs=inputs).outputs["y"] == wanted).all()
    with pytest.raises(ProgramError, match=r"dma_compute2d: index 200 of row 1; 0 to 199 of y, or oob_mode=skip"):
        simulate(scatter(3), inputs=inputs)


def test_an_index_that_repeats_in_a_scatter_is_an_error() -> None:
    inputs = {"x": numbers((200, 24)), "s": numbers((3, 24), "bfloat16"), "i": np.array([[5], [6], [5]], np.uint32)}
    with pytest.raises(ProgramError, match=r"dma_compute2d: index 5 in rows 0 and 2; indices that do not repeat"):
        simulate(scatter(3), inputs=inputs)


def test_a_sum_waits_for_every_source() -> None:
    p = Program("order")
    a, b, c, y = (p.sbuf((4, 4), "float32") for _ in range(3)), None, None, p.output("y", (4, 4), "float32")
    a, b, c = a
    p.memset(dst=a, value=1.0)
    p.memset(dst=b, value=2.0, engine="gpsimd")
    p.activation(dst=c, op="copy", data=a)
    p.dma_compute(dst=y, srcs=[a, b, c], reduce_op="add")
    assert (simulate(p).outputs["y"] == 4).all()


# ---- rules


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"reduce_op": "multiply"}, "dma_compute reduce_op: 'multiply'"),
        ({"scales": [1.0]}, "1 scales for 2 sources; one for each"),
        ({"scales": [1.0, 0.5]}, "scales [1.0, 0.5]; 1.0 each: no other is supported"),
        ({"count": 17}, "17 views; 1 to 16"),
        ({"count": 0}, "0 views; 1 to 16"),
        ({"oob_mode": "skip"}, "oob_mode=skip without a vector_offset"),
        ({"srcs": 3}, "3; a list of views"),
    ],
)
def test_what_a_sum_does_not_take_is_refused(change: dict, found: str) -> None:
    p = Program("rules")
    x, t = p.input("x", (4, 4), "float32"), p.sbuf((4, 4), "float32")
    fields = {"srcs": [x] * change.pop("count", 2), "reduce_op": "add", **change}
    with pytest.raises(NcSimError) as caught:
        p.dma_compute(dst=t, **fields)
    assert found in str(caught.value)


def test_sources_have_as_many_elements_as_dst_and_lie_where_dma_reaches() -> None:
    p = Program("rules")
    x, t, q = p.input("x", (4, 4), "float32"), p.sbuf((4, 4), "float32"), p.psum((4, 4))
    with pytest.raises(ProgramError, match="dst has 16 elements, src has 12; they must match"):
        p.dma_compute(dst=t, srcs=[x, x[:3]], reduce_op="add")
    with pytest.raises(ProgramError, match="src is in PSUM; DMA reaches HBM and SBUF"):
        p.dma_compute(dst=t, srcs=[x, q], reduce_op="add")


def test_a_sum_of_one_is_not_guessed() -> None:
    p = Program("rules")
    x, t = p.input("x", (4, 4), "float32"), p.sbuf((4, 4), "float32")
    with pytest.raises(Unspecified, match="one source; two or more: of one the API page says that it is copied"):
        p.dma_compute(dst=t, srcs=[x], reduce_op="add")


def test_indices_add_in_place_between_hbm_and_sbuf() -> None:
    p = Program("rules")
    x, h, at, t = p.input("x", (9, 4), "float32"), p.hbm((4, 4), "float32"), p.sbuf((4, 1), "uint32"), p.sbuf((4, 4), "float32")
    one, u, rows = p.sbuf((1, 1), "int32"), p.sbuf((4, 4), "float32"), x.vector_select(0, at)
    for dst, srcs, how, found in (
        (t, [rows, t, t], {}, "3 sources with a vector_offset; two"),
        (t, [rows, t], {"unique_indices": False}, "unique_indices=False; True: indices that repeat are not supported"),
        (t, [rows, u], {}, "a vector_offset, and no source is dst; one source that is dst itself"),
        (h, [rows, h], {}, "rows of HBM found by the offset on one side, a tensor in SBUF on the other"),
        (rows, [rows, rows], {}, "rows of HBM found by the offset on one side, a tensor in SBUF on the other"),
        (
            t,
            [x.ap([[4, 4], [1, 4]], scalar_offset=one), t],
            {},
            "a scalar_offset; addresses known when the program is built, or a vector_offset",
        ),
    ):
        with pytest.raises(ProgramError) as caught:
            p.dma_compute(dst=dst, srcs=srcs, reduce_op="add", **how)
        assert found in str(caught.value)


@pytest.mark.parametrize(
    ("how", "found"),
    [
        ({"dst_rmw_op": "multiply"}, "dma_copy dst_rmw_op: 'multiply'"),
        ({"dst_rmw_op": "add", "unique_indices": False}, "unique_indices=False; True: indices that repeat are not supported"),
        ({"dst_rmw_op": "add", "dge_mode": "hwdge"}, "dge_mode=hwdge with dst_rmw_op; static or software descriptors"),
        ({"dst_rmw_op": "add", "dge_mode": "swdge"}, "dge_mode=swdge with dst_rmw_op; unknown or none"),
    ],
)
def test_what_adding_to_dst_does_not_take_is_refused(how: dict, found: str) -> None:
    p = Program("rules")
    x, t = p.input("x", (4, 4), "float32"), p.sbuf((4, 4), "float32")
    with pytest.raises(ProgramError) as caught:
        p.dma_copy(dst=t, src=x, **how)
    assert found in str(caught.value)


def test_adding_to_dst_takes_no_single_number_as_address() -> None:
    p = Program("rules")
    x, t, one = p.input("x", (9, 4), "float32"), p.sbuf((4, 4), "float32"), p.sbuf((1, 1), "int32")
    with pytest.raises(
        ProgramError, match="a scalar_offset with dst_rmw_op; addresses known when the program is built, or a vector_offset"
    ):
        p.dma_copy(dst=t, src=x.ap([[4, 4], [1, 4]], scalar_offset=one), dst_rmw_op="add")


def test_adding_to_rows_that_indices_name_skips_none() -> None:
    with pytest.raises(ProgramError, match="oob_mode=skip with dst_rmw_op; oob_mode=error"):
        scatter(4, old=True, oob_mode="skip")


def test_gpsimd_makes_the_descriptors_of_a_sum_with_indices() -> None:
    p = scatter(4, engine="sync")
    with pytest.raises(ProgramError, match="indices on Sync; GpSimd, which makes the descriptors"):
        simulate(p, values=False)


# ---- time


def half_up(x: Fraction) -> int:
    return floor(x + Fraction(1, 2))


@pytest.mark.parametrize(("count", "copies"), [(2, 2), (3, 3), (16, 16)])
def test_a_sum_of_two_runs_at_half_the_rate_of_a_copy_and_each_further_source_takes_one_copy_more(count: int, copies: int) -> None:
    """A row of 2 KiB is copied in 4.7 + 2048 / 27.2 = 79.99 ns; 50 % of that rate before NeuronCore-v4 (documented)."""
    p = Program("time")
    x, t = p.input("x", (128, 512), "float32"), p.sbuf((128, 512), "float32")
    p.dma_compute(dst=t, srcs=[x] * count, reduce_op="add")
    r = simulate(p, values=False)
    assert set(r.table.packets.tolist()) == {8}
    assert set(r.table.packet.tolist()) == {half_up((Fraction("4.7") + 2048 / Fraction("27.2")) * copies * Fraction("4.8"))}
    assert ("dma.compute.further_ratio" in r.assumed) == (count > 2)


def test_a_sum_of_two_takes_the_time_worked_out_by_hand() -> None:
    """Static descriptors: 773 + 16 KiB x 233 / 32 + 15 x 9.23 ns to engine 15's first packet, 91 of stall, 8 rows of 160 ns, 6.

    In ticks of 1/4.8 ns: 4934, 437, 8 x 768 and 29.
    """
    p = Program("time")
    x, t = p.input("x", (128, 512), "float32"), p.sbuf((128, 512), "float32")
    p.dma_compute(dst=t, srcs=[x, x], reduce_op="add")
    r = simulate(p, values=False)
    assert r.timeline.finish[r.table.rows :].max() - r.timeline.start[r.table.wait_row[0]] == 4934 + 437 + 8 * 768 + 29


def test_where_all_engines_have_a_limit_together_a_sum_of_two_has_half_of_it() -> None:
    """inf2: 273 B/ns for copies of all engines; a sum runs at 50 % of a copy (documented)."""

    def active(columns: int) -> float:
        p = Program("long")
        x = p.input("x", (128, columns), "float32")
        p.dma_compute(dst=p.sbuf((128, columns), "float32"), srcs=[x, x], reduce_op="add")
        r = simulate(p, "inf2", values=False)
        finish = r.timeline.finish[r.table.rows :]
        return (float(finish.max()) - float(r.timeline.start[r.table.rows :].min())) / float(r.chip.ticks_per_ns)

    assert (active(16384) - active(8192)) / (8192 * 128 * 4) == pytest.approx(2 / 273, rel=0.002)
