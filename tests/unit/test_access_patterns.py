"""Access patterns: explicit, selected, and with offsets known at run time, against numpy's own indexing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nc_sim import Program, simulate
from nc_sim.forms import program_from_msgpack, program_from_text, program_to_msgpack, program_to_text
from nc_sim.isa import View, parse_view
from nc_sim.isa.errors import NcSimError, ProgramError
from nc_sim.isa.fields import ANYWHERE

X = np.arange(12 * 20, dtype=np.float32).reshape(12, 20)


def refused(act: Callable[[], object], error: type[NcSimError] = ProgramError) -> str:
    with pytest.raises(error) as caught:
        act()
    return str(caught.value)


def through(shape: tuple[int, ...], source: Callable[[View], View], values: np.ndarray = X) -> np.ndarray:
    """What a copy of a pattern of x gives."""
    p = Program("pattern")
    x, y = p.input("x", values.shape, str(values.dtype)), p.output("y", shape, str(values.dtype))
    p.dma_copy(dst=y, src=source(x))
    return simulate(p, inputs={"x": values}).outputs["y"]


# ---- static patterns


@st.composite
def patterns(draw: st.DrawFn) -> tuple[list[list[int]], int]:
    """Up to four dimensions and an offset that stay inside 240 elements."""
    dims = draw(st.lists(st.tuples(st.integers(-25, 25), st.integers(1, 5)), min_size=1, max_size=4))
    low = sum(min(0, s * (n - 1)) for s, n in dims)
    high = sum(max(0, s * (n - 1)) for s, n in dims)
    if high - low >= X.size:
        dims, low, high = [(1, 5)], 0, 4
    return [list(d) for d in dims], draw(st.integers(-low, X.size - 1 - high))


def by_hand(pattern: list[list[int]], offset: int) -> np.ndarray:
    """The elements as the documents' loop visits them."""
    out = []
    for where in np.ndindex(*(n for _, n in pattern)):
        out.append(X.reshape(-1)[offset + sum(k * s for k, (s, _) in zip(where, pattern, strict=True))])
    return np.array(out)


@settings(max_examples=40, deadline=None)
@given(patterns())
def test_a_pattern_of_hbm_visits_the_elements_that_a_loop_over_it_does(drawn: tuple[list[list[int]], int]) -> None:
    pattern, offset = drawn
    shape = tuple(n for _, n in pattern)
    assert (through(shape, lambda x: x.ap(pattern, offset)).reshape(-1) == by_hand(pattern, offset)).all()


def test_a_pattern_is_a_destination_too() -> None:
    p = Program("destination")
    x, y = p.input("x", (4, 5), "float32"), p.output("y", (12, 20), "float32")
    p.dma_copy(dst=y, src=p.constant(np.zeros((12, 20), np.float32)))
    p.dma_copy(dst=y.ap([[-40, 4], [3, 5]], offset=121), src=x)
    wanted = np.zeros(240, np.float32)
    for a in range(4):
        for b in range(5):
            wanted[121 - 40 * a + 3 * b] = X[a, b]
    assert (simulate(p, inputs={"x": X[:4, :5]}).outputs["y"].reshape(-1) == wanted).all()


def test_an_on_chip_pattern_counts_its_offset_through_the_partitions() -> None:
    p = Program("on_chip")
    x, y, t = p.input("x", (12, 20), "float32"), p.output("y", (4, 6), "float32"), p.sbuf((12, 20), "float32")
    p.dma_copy(dst=t, src=x)
    part = t.ap([[20, 4], [2, 3], [7, 2]], offset=5 * 20 + 1)  # from partition 5, element 1
    assert (part.partition, part.partitions, part.offset, part.shape) == (5, 4, 4, (4, 3, 2))
    p.dma_copy(dst=y, src=part)
    wanted = np.array([[X[5 + q, 1 + 2 * a + 7 * b] for a in range(3) for b in range(2)] for q in range(4)])
    assert (simulate(p, inputs={"x": X}).outputs["y"] == wanted).all()


def test_a_pattern_of_a_slice_addresses_the_tensor_behind_it() -> None:
    t = Program("storage").sbuf((64, 256), "float32")
    # "the pattern and offset are interpreted against storage" (NKI access patterns); the start stays where the slice begins
    assert t[8:16, 32:64].ap([[256, 4], [2, 8]]) == t[8:12, 32:48:2]
    assert t.ap([[256, 64], [2, 128]]).ap([[256, 64], [1, 64]]) == t[:, :64]
    found = refused(lambda: t[:, :64].ap([[64, 4], [1, 8]]))
    assert found.endswith("a partition stride of 64; 256, the elements of a partition: partitions are consecutive")


def test_a_pattern_may_read_the_bytes_as_another_type() -> None:
    x = np.arange(64, dtype=np.int32).reshape(4, 16) * 65537
    p = Program("types")
    a, y, t = p.input("x", (4, 16), "int32"), p.output("y", (4, 8), "uint16"), p.sbuf((4, 16), "int32")
    p.dma_copy(dst=t, src=a)
    p.dma_copy(dst=y, src=t.ap([[32, 4], [2, 8]], offset=1, dtype="uint16"))
    assert (simulate(p, inputs={"x": x}).outputs["y"] == x.view(np.uint16)[:, 1:17:2]).all()


def test_a_compute_engine_takes_a_pattern() -> None:
    p = Program("compute")
    x, y, t, r = (
        p.input("x", (12, 20), "float32"),
        p.output("y", (12, 20), "float32"),
        p.sbuf((12, 20), "float32"),
        p.sbuf((12, 20), "float32"),
    )
    p.dma_copy(dst=t, src=x)
    turned = [[20, 12], [1, 5], [5, 4]]  # [4, 5] of each partition, the other way round
    p.tensor_scalar(dst=r.ap([[20, 12], [4, 5], [1, 4]]), data=t.ap(turned), op0="multiply", operand0=2.0)
    p.dma_copy(dst=y, src=r)
    assert (simulate(p, inputs={"x": X}).outputs["y"] == 2 * X.reshape(12, 4, 5).transpose(0, 2, 1).reshape(12, 20)).all()


@pytest.mark.parametrize(("here", "there"), [((128, 64), (64, 128)), ((1, 127), (127, 1)), ((12, 20), (8, 30)), ((127, 3), (127, 3))])
def test_a_copy_inside_sbuf_pairs_elements_in_order_whatever_the_shapes(here: tuple[int, int], there: tuple[int, int]) -> None:
    """The total number of data elements in src must match that of dst (nki.isa.dma_copy)."""
    values = np.arange(here[0] * here[1], dtype=np.float32).reshape(here)
    p = Program("shapes")
    x, y, a, b = p.input("x", here, "float32"), p.output("y", there, "float32"), p.sbuf(here, "float32"), p.sbuf(there, "float32")
    p.dma_copy(dst=a, src=x)
    p.dma_copy(dst=b, src=a)
    p.dma_copy(dst=y, src=b)
    assert (simulate(p, inputs={"x": values}).outputs["y"] == values.reshape(there)).all()


# ---- dynamic offsets


def moved() -> tuple[Program, View, View, View]:
    p = Program("dynamic")
    return p, p.input("x", (12, 20), "float32"), p.sbuf((1, 1), "int32", name="one"), p.sbuf((4, 1), "uint32", name="four")


def test_select_says_the_same_as_the_pattern_it_makes() -> None:
    _, x, one, four = moved()
    assert x.select(0, one) == x.ap([[1, 20]], scalar_offset=one, indirect_dim=0)
    assert x.select(1, one) == x.ap([[20, 12]], scalar_offset=one, indirect_dim=1)
    assert x.select(1, 3) == x[:, 3]
    assert x.vector_select(0, four) == x.ap([[20, 4], [1, 20]], vector_offset=four)
    t = Program("on_chip").sbuf((8, 4, 5), "float32")
    assert t.select(1, one) == t.ap([[20, 8], [1, 5]], scalar_offset=one, indirect_dim=1)


def test_a_dynamic_view_may_touch_all_that_is_in_bounds() -> None:
    _, x, one, _four = moved()
    row = x[3].ap([[1, 20]], scalar_offset=one, indirect_dim=0)
    assert (row.offset, row.extent) == (3 * 20 * 4, (0, 960))
    assert row.region == x.reshape(240)
    assert row.overlaps(x[11:])
    assert not x[:1].overlaps(x[11:])
    t = Program("on_chip").sbuf((8, 40), "float32")
    assert t[2:4, :5].select(1, one).region == t[2:4]


def test_rows_found_by_an_index_are_descriptors_of_their_own() -> None:
    _, x, one, four = moved()
    assert x.ap([[20, 4], [1, 20]], scalar_offset=one).run() == 80
    assert x.ap([[20, 4], [1, 20]], vector_offset=four).run() == 20


def test_an_index_counts_strides_of_the_tensor_whatever_the_pattern_says() -> None:
    """The stride of the pattern's first dimension "is currently ignored" (NKI access patterns, vector dynamic access)."""
    values = np.arange(240, dtype=np.float32).reshape(12, 20)
    p, x, one, four = moved()
    y, z = p.output("y", (4, 6), "float32"), p.output("z", (6,), "float32")
    p.dma_copy(dst=four, src=p.constant(np.array([[3], [0], [11], [3]]), "uint32"))
    p.dma_copy(dst=one, src=p.constant(np.array([[7]]), "int32"))
    p.dma_copy(dst=y, src=x.ap([[3, 4], [1, 6]], offset=2, vector_offset=four))
    p.dma_copy(dst=z, src=x.ap([[2, 6]], scalar_offset=one, indirect_dim=1))
    outputs = simulate(p, inputs={"x": values}).outputs
    assert (outputs["y"] == values[[3, 0, 11, 3], 2:8]).all()
    assert (outputs["z"] == values[0, 7:19:2]).all()


def test_a_dynamic_view_prints_and_reads_back() -> None:
    _, x, one, four = moved()
    rows = x.ap([[20, 4], [1, 20]], vector_offset=four)
    assert str(rows) == "hbm:x+0x0:float32[20,1][4,20]~rows*20[0x0,0x3c0]sbuf:four+0x0:uint32[1][1]@0:4"
    for view in (rows, x.ap([[20, 4], [1, 20]], offset=7, scalar_offset=one, indirect_dim=1)):
        assert parse_view(str(view)) == ANYWHERE.decode(ANYWHERE.encode(view)) == view


def test_a_program_with_dynamic_views_is_the_same_from_text_and_from_msgpack() -> None:
    p, x, one, four = moved()
    t = p.sbuf((4, 20), "float32")
    p.dma_copy(dst=t, src=x.vector_select(0, four), oob_mode="skip")
    p.dma_copy(dst=x.ap([[20, 4], [1, 20]], scalar_offset=one), src=t, dge_mode="swdge")
    p.dma_compute(dst=t, srcs=[x.vector_select(0, four), t], reduce_op="add", scales=[1.0, 1.0])
    for again in (program_from_text(program_to_text(p)), program_from_msgpack(program_to_msgpack(p))):
        assert [s.instruction for s in again.steps] == [s.instruction for s in p.steps]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "hbm:x+0x0:float32[1][4]~rows*1[0x0,0x10]hbm:i+0x0:int32[1][1]",
            "an offset in hbm:i+0x0:int32[1][1]; an SBUF tensor of int32 or uint32",
        ),
        ("hbm:x+0x0:float32[1][4]~start*1[0x0,0x10]sbuf:i+0x0:int32[1][2]@0:1", "an SBUF tensor of int32 or uint32, one number"),
        ("hbm:x+0x0:float32[1][4]~start*1[0x10,0x0]sbuf:i+0x0:int32[1][1]@0:1", "bounds 16 to 0; the first byte, then the last"),
        ("hbm:x+0x0:float32[1][4]~start*1", "offset 'start*1'; rows, start or columns, then *STEP[0xLOW,0xHIGH] and the view of the index"),
        ("sbuf:x+0x0:float32[1][4]@0:4~rows*1[0x0,0x10]sbuf:i+0x0:int32[1][1]@0:4", "with an index for each row; a pattern in HBM"),
    ],
)
def test_a_dynamic_view_that_ap_would_not_make_is_refused_from_text(text: str, found: str) -> None:
    assert found in refused(lambda: parse_view(text))


Act = Callable[[View, View, View, View], View]
NOT_INT = "an SBUF tensor of int32 or uint32"
REFUSED: list[tuple[Act, str]] = [
    (
        lambda x, t, one, four: x.ap([[1, 4]], scalar_offset=one, vector_offset=four),
        "scalar_offset and vector_offset; at most one of the two",
    ),
    (lambda x, t, one, four: x.ap([[1, 4]], scalar_offset=3), f"an offset in 3; {NOT_INT} or a register"),  # type: ignore[arg-type]
    (lambda x, t, one, four: x.ap([[1, 4]], scalar_offset=t[:1, :1]), NOT_INT),
    (lambda x, t, one, four: x.ap([[1, 4]], scalar_offset=four), "a scalar_offset of shape [4, 1]; one number, [1, 1]"),
    (lambda x, t, one, four: x.ap([[1, 4]], scalar_offset=one, indirect_dim=2), "indirect_dim 2; 0 to 1"),
    (lambda x, t, one, four: t.ap([[20, 4], [1, 4]], scalar_offset=one), "indirect_dim 0; 1 to 1 (not the partition)"),
    (lambda x, t, one, four: t.ap([[20, 4], [1, 4]], vector_offset=four, indirect_dim=1), "a vector_offset in SBUF on dimension 1"),
    (
        lambda x, t, one, four: x.ap([[1, 4]], vector_offset=four, indirect_dim=1),
        "in HBM on dimension 1; a pattern in HBM, and indirect_dim 0",
    ),
    (lambda x, t, one, four: x.vector_select(1, four), "dimension 0, and an SBUF tensor [P, 1]"),
    (lambda x, t, one, four: t.select(0, one), "select of dimension 0; 1 to 1 (not the partition)"),
    (lambda x, t, one, four: x.select(0, one)[:2], "slice of a view with a dynamic offset; the wanted pattern in the call of ap"),
    (lambda x, t, one, four: x.select(0, one).reshape(4, 5), "reshape of a view with a dynamic offset"),
    (lambda x, t, one, four: x.select(0, one).permute(0), "permute of a view with a dynamic offset"),
    (lambda x, t, one, four: x.select(0, one).ap([[1, 4]]), "ap of a view with a dynamic offset"),
]


@pytest.mark.parametrize(("act", "found"), REFUSED)
def test_an_offset_that_the_documents_do_not_allow_is_refused(act: Act, found: str) -> None:
    p, x, one, four = moved()
    t = p.sbuf((8, 20), "float32")
    assert found in refused(lambda: act(x, t, one, four))


def test_vector_select_names_indices_that_are_not_one_for_each_row_in_sbuf() -> None:
    p, x, _one, _four = moved()
    in_hbm, pairs = p.input("ids", (4, 1), "int32"), p.sbuf((4, 2), "int32", "pairs")
    required = "; one index for each row: [P, 1] in SBUF (nki.isa access patterns)"
    assert refused(lambda: x.vector_select(0, in_hbm)).endswith("vector_select by ids, int32 of shape [4, 1] in HBM" + required)
    assert refused(lambda: x.vector_select(0, pairs)).endswith("vector_select by pairs, int32 of shape [4, 2] in SBUF" + required)
    assert x.vector_select(0, pairs[:, 1:]).shape == (4, 20)


def test_only_dma_takes_an_offset_for_each_row() -> None:
    p, x, _one, four = moved()
    t = p.sbuf((4, 20), "float32")
    found = refused(lambda: p.tensor_copy(dst=t, src=x.vector_select(0, four)))
    assert found.endswith("one offset for the whole: only DMA takes one for each row (nki.isa.dma_copy)")
