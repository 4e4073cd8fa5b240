"""Tensor indirection: columns that offsets in SBUF choose, group of 16 partitions by group, on NeuronCore-v4."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nc_sim import NcSimError, Program, ProgramError, Unspecified, Unsupported, simulate
from nc_sim.forms import program_from_msgpack, program_from_text, program_to_msgpack, program_to_text
from nc_sim.isa import View

P, F, N = 64, 40, 24
X = np.random.default_rng(3).integers(-50, 50, (P, F)).astype(np.float32)
OFFSETS = np.stack([np.random.default_rng(k).permutation(F)[:N] for k in range(P // 16)])  # of each group
EACH = np.repeat(OFFSETS, 16, axis=0)  # of each partition


def snake(offsets: np.ndarray) -> np.ndarray:
    """[groups, n] as the engines read them: offset i of a group is index[i % 16, i // 16]."""
    columns = -(-offsets.shape[1] // 16)
    out = np.zeros((len(offsets) * 16, columns), np.uint16)
    for group, own in enumerate(offsets):
        for i, offset in enumerate(own):
            out[16 * group + i % 16, i // 16] = offset
    return out


def refused(act: Callable[[], object], error: type[NcSimError] = ProgramError) -> str:
    with pytest.raises(error) as caught:
        act()
    return str(caught.value)


Build = Callable[[Program, View, View, View], object]


def run(build: Build, offsets: np.ndarray = OFFSETS, name: str = "trn3", wide: int = N, **how: Any) -> np.ndarray:
    """What `build` makes of y [P, wide], full of -1, from X in SBUF and the index."""
    p = Program("indirect")
    x, i, y = p.input("x", (P, F), "float32"), p.input("i", snake(offsets).shape, "uint16"), p.output("y", (P, wide), "float32")
    t, at, u = p.sbuf((P, F), "float32", "t"), p.sbuf(snake(offsets).shape, "uint16", "at"), p.sbuf((P, wide), "float32", "u")
    p.dma_copy(dst=t, src=x)
    p.dma_copy(dst=at, src=i)
    p.memset(dst=u, value=-1)
    build(p, t, at, u)
    p.dma_copy(dst=y, src=u)
    return simulate(p, name, inputs={"x": X, "i": snake(offsets)}, **how).outputs["y"]


GATHERED = np.take_along_axis(X, EACH, 1)


@pytest.mark.parametrize("engine", ["vector", "scalar"])
def test_a_copy_gathers_columns_by_group(engine: str) -> None:
    for how in ({}, {"engine": "compiled"}):
        got = run(lambda p, t, at, u: p.tensor_copy(dst=u, src=t.indirect(at, num_elem=N), engine=engine), **how)
        assert (got == GATHERED).all()


@pytest.mark.parametrize("engine", ["vector", "scalar"])
def test_a_copy_scatters_columns_by_group_and_leaves_the_others(engine: str) -> None:
    got = run(lambda p, t, at, u: p.tensor_copy(dst=u.indirect(at, N), src=t[:, :N], engine=engine), wide=F)
    wanted = np.full((P, F), -1, np.float32)
    np.put_along_axis(wanted, EACH, X[:, :N], 1)
    assert (got == wanted).all()


def test_one_index_serves_every_group_if_it_says_the_same_in_each() -> None:
    """output = data[:, index] (aws-neuron-sdk, tutorial of tensor indirection)."""
    same = np.broadcast_to(np.arange(F)[::-2], (P // 16, F // 2))
    got = run(lambda p, t, at, u: p.tensor_copy(dst=u, src=t.indirect(at, num_elem=F // 2)), same, wide=F // 2)
    assert (got == X[:, ::-1][:, ::2]).all()


def test_offsets_count_strides_of_the_view_they_move() -> None:
    build: Build = lambda p, t, at, u: p.tensor_copy(dst=u, src=t[:, 1::2].indirect(at, num_elem=N))  # noqa: E731
    assert (run(build, OFFSETS // 2) == np.take_along_axis(X[:, 1::2], EACH // 2, 1)).all()


CALLS: list[tuple[str, Build, np.ndarray]] = [
    ("tensor_tensor", lambda p, t, at, u: p.tensor_tensor(dst=u, data1=t.indirect(at, N), data2=t[:, :N], op="add"), GATHERED + X[:, :N]),
    ("tensor_scalar", lambda p, t, at, u: p.tensor_scalar(dst=u, data=t.indirect(at, N), op0="multiply", operand0=3.0), 3 * GATHERED),
    (
        "tensor_scalar on scalar",
        lambda p, t, at, u: p.tensor_scalar(dst=u, data=t.indirect(at, N), op0="multiply", operand0=3.0, engine="scalar"),
        3 * GATHERED,
    ),
    ("activation", lambda p, t, at, u: p.activation(dst=u, op="square", data=t.indirect(at, N)), GATHERED**2),
    (
        "activation_reduce",
        lambda p, t, at, u: p.activation_reduce(
            dst=u, op="copy", data=t.indirect(at, N), reduce_op="add", reduce_res=p.sbuf((P, 1), "float32")
        ),
        GATHERED,
    ),
    (
        "activate2",
        lambda p, t, at, u: p.activate2(dst=u, op="copy", data=t.indirect(at, N), imm0=2.0, imm1=1.0, op0="multiply", op1="add"),
        2 * GATHERED + 1,
    ),
    (
        "tensor_reduce",
        lambda p, t, at, u: p.tensor_reduce(dst=u[:, :1], op="add", data=t.indirect(at, N), axis=1),
        np.hstack([GATHERED.sum(1, keepdims=True), np.full((P, N - 1), -1)]),
    ),
    (
        "tensor_scalar_reduce",
        lambda p, t, at, u: p.tensor_scalar_reduce(
            dst=u, data=t.indirect(at, N), op0="add", operand0=1.0, reduce_op="max", reduce_res=p.sbuf((P, 1), "float32")
        ),
        GATHERED + 1,
    ),
    (
        "tensor_scalar_cumulative",
        lambda p, t, at, u: p.tensor_scalar_cumulative(dst=u, src=t.indirect(at, N), op0="add", op1="add", imm0=0.0),
        GATHERED.cumsum(1),
    ),
    ("exponential", lambda p, t, at, u: p.exponential(dst=u, src=t.indirect(at, N), max_value=60.0), np.exp(GATHERED - 60)),
]


@pytest.mark.parametrize(("build", "wanted"), [c[1:] for c in CALLS], ids=[c[0] for c in CALLS])
def test_each_call_that_the_documents_name_gathers(build: Build, wanted: np.ndarray) -> None:
    assert np.allclose(run(build), wanted, rtol=1e-6)


def test_a_predicate_may_be_gathered() -> None:
    def build(p: Program, t: View, at: View, u: View) -> None:
        mask = p.sbuf((P, F), "uint8", "mask")
        p.tensor_scalar(dst=mask, data=t, op0="greater", operand0=0.0)
        p.tensor_copy_predicated(dst=u, src=5.0, predicate=mask.indirect(at, N))

    assert (run(build) == np.where(GATHERED > 0, 5, -1)).all()


# ---- time, conflicts, forms


def test_a_gather_takes_the_time_of_a_strided_copy_and_the_result_says_that_this_is_assumed() -> None:
    def ns(source: Callable[[View, View], View]) -> tuple[float, bool]:
        p = Program("time")
        t, at, u = p.sbuf((128, 1024), "bfloat16"), p.sbuf((128, 32), "uint16"), p.sbuf((128, 512), "bfloat16")
        p.memset(dst=t, value=0)
        p.memset(dst=at, value=0)
        p.tensor_copy(dst=u, src=source(t, at))
        r = simulate(p, "trn3", values=False)
        return next(i.duration_ns for i in r.instructions if i.opcode == "COPY"), "memory.tensor_indirection" in r.assumed

    strided, gathered = ns(lambda t, at: t[:, ::2]), ns(lambda t, at: t.indirect(at, 512))
    assert gathered == (pytest.approx(strided[0]), True)
    assert not strided[1]
    assert ns(lambda t, at: t[:, :512])[0] < strided[0]


def test_a_gather_conflicts_with_all_columns_and_with_its_index() -> None:
    p = Program("order")
    t, at, u = p.sbuf((16, 40), "float32"), p.sbuf((16, 1), "uint16"), p.sbuf((16, 16), "float32")
    p.memset(dst=t, value=0)
    p.memset(dst=at, value=0)
    p.tensor_copy(dst=u, src=t.indirect(at))
    i = p.steps[-1].instruction
    assert [(v.tensor, v.extent) for v in i.reads] == [(t.tensor, (0, 160)), (at.tensor, (0, 2))]
    assert (u.indirect(at).shape, t.indirect(at).run()) == ((16, 16), 1)
    for again in (program_from_text(program_to_text(p)), program_from_msgpack(program_to_msgpack(p))):
        assert [s.instruction for s in again.steps] == [s.instruction for s in p.steps]
    assert "src=sbuf:sbuf0+0x0:float32[1][16]@0:16~columns*1[0x0,0xa0]sbuf:sbuf1+0x0:uint16[1][1]@0:16" in program_to_text(p)


# ---- rules


@pytest.mark.parametrize("name", ["inf2", "trn1", "trn2"])
def test_older_generations_have_no_such_operands(name: str) -> None:
    found = refused(lambda: run(lambda p, t, at, u: p.tensor_copy(dst=u, src=t.indirect(at, N)), name=name), Unsupported)
    assert f"tensor_copy: src with .indirect() on {name}; a chip that has it: NeuronCore-v4 and later" in found


RULES: list[tuple[Build, str, type[NcSimError]]] = [
    (
        lambda p, t, at, u: p.tensor_copy(dst=u, src=t.indirect(at, N), engine="gpsimd"),
        "src with .indirect() on GpSimd; Vector, Scalar",
        ProgramError,
    ),
    (
        lambda p, t, at, u: p.tensor_tensor(dst=u, data1=t[:, :N], data2=t.indirect(at, N), op="add"),
        "an operand without .indirect()",
        ProgramError,
    ),
    (lambda p, t, at, u: p.dma_copy(dst=u, src=t.indirect(at, N)), "an operand without .indirect()", ProgramError),
    (lambda p, t, at, u: p.tensor_copy(dst=u, src=t.indirect(u, N)), "an SBUF tensor of uint16", ProgramError),
    (lambda p, t, at, u: t[:32].indirect(at), "offsets in 64 partitions; 32, as the data", ProgramError),
    (lambda p, t, at, u: t.indirect(at, 0), "num_elem=0; at least 1", ProgramError),
    (lambda p, t, at, u: t.reshape(P, 2, 20).indirect(at), "a tensor [P, F] in SBUF or PSUM", ProgramError),
    (lambda p, t, at, u: t.indirect(at, N)[:, :3], "slice of a view with a dynamic offset", ProgramError),
    (
        lambda p, t, at, u: p.tensor_copy(dst=p.sbuf((P, 33), "float32"), src=t.indirect(at, 33)),
        "src with 33 columns; at most 32, 16 for each column of the index",
        ProgramError,
    ),
    (
        lambda p, t, at, u: p.tensor_copy(dst=u[:8], src=t[:8].indirect(at[:8], N)),
        "src with .indirect() of 8 partitions; a multiple of 16",
        Unspecified,
    ),
    (
        lambda p, t, at, u: p.tensor_copy(dst=u[:32], src=t[32:].indirect(at[:32], N)),
        "src starts at partition 32; 0, as its index",
        ProgramError,
    ),
    (
        lambda p, t, at, u: p.tensor_copy(dst=u[32:].indirect(at[32:], N), src=t[:32, :N]),
        "dst.index starts at partition 32; 0, as the source or its index",
        ProgramError,
    ),
    (
        lambda p, t, at, u: p.activation(dst=p.psum((P, F)).indirect(at, N), op="copy", data=t[:, :N]),
        "dst with .indirect() in PSUM; SBUF",
        ProgramError,
    ),
]


@pytest.mark.parametrize(("build", "found", "error"), RULES)
def test_what_breaks_a_rule_is_refused(build: Build, found: str, error: type[NcSimError]) -> None:
    assert found in refused(lambda: run(build), error)


def test_offsets_are_checked_where_they_are_read() -> None:
    far, twice = OFFSETS.copy(), OFFSETS.copy()
    far[2, 5], twice[1, 3] = F, twice[1, 4]
    gather: Build = lambda p, t, at, u: p.tensor_copy(dst=u, src=t.indirect(at, N))  # noqa: E731
    scatter: Build = lambda p, t, at, u: p.tensor_copy(dst=u.indirect(at, N), src=t[:, :N])  # noqa: E731
    found = refused(lambda: run(gather, far))
    assert "tensor_copy: offset 40 of column 5, partitions 32 on; 0 to 39" in found
    assert "test_indirection.py:" in found
    run(gather, twice)
    assert f"offset {twice[1, 3]} twice, partitions 16 on; offsets that do not repeat" in refused(
        lambda: run(scatter, twice, wide=F), Unspecified
    )
