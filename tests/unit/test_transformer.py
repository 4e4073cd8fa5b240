"""The programs of a transformer block: every one agrees with float64 up to the roundings it makes."""

from __future__ import annotations

import numpy as np
import pytest

from nc_sim import ProgramError, simulate
from nc_sim.program import Program
from nc_sim.workloads import aten, transformer

ROWS = [1, 127, 128, 129]
F64 = np.float64


def bf16(p: Program, value: np.ndarray) -> np.ndarray:
    return value.astype(np.float32).astype(next(iter(p.tensors.values())).dtype.numpy)


def given(p: Program, seed: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        t.name: (rng.standard_normal(t.shape) / (t.shape[0] ** 0.5 if t.name.startswith("w") else 1)).astype(t.dtype.numpy)
        for t in p.tensors.values()
        if t.kind == "input"
    }


def agrees(p: Program, inputs: dict[str, np.ndarray], wanted: np.ndarray) -> None:
    """All but one in a hundred elements are the wanted one in bf16, the others its neighbour: sums differ in their last bits."""
    got = simulate(p, inputs=inputs).outputs["out"].astype(F64).reshape(wanted.shape)
    rounded = bf16(p, wanted).astype(F64)
    assert (got != rounded).mean() <= 0.01
    assert (np.abs(got - rounded) <= 2.0**-7 * np.abs(rounded) + 2.0**-10).all()


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


@pytest.mark.parametrize("s", ROWS)
@pytest.mark.parametrize(("d", "heads"), [(64, 1), (258, 3)])
def test_q_and_k_leave_transposed_by_head_and_v_by_row(s: int, d: int, heads: int) -> None:
    p = transformer.qkv_program(s, d, heads)
    g = given(p)
    a, wq, wk, wv = (g[n].astype(F64) for n in ("a", "wq", "wk", "wv"))
    agrees(p, g, np.stack([(a @ wq).T.reshape(-1), (a @ wk).T.reshape(-1), (a @ wv).reshape(-1)]))


@pytest.mark.parametrize(("s", "d", "heads"), [(1, 8, 2), (127, 64, 1), (128, 128, 2), (129, 66, 3), (513, 32, 1)])
def test_attention_is_softmax_of_scaled_scores_times_v_for_each_head(s: int, d: int, heads: int) -> None:
    p = transformer.attention_program(s, d, heads)
    g = given(p)
    q, k, v = (t.astype(F64) for t in g["a"])
    q, k = (t.reshape(heads, d // heads, s).transpose(0, 2, 1) for t in (q, k))
    v = v.reshape(s, heads, d // heads).transpose(1, 0, 2)
    weights = bf16(p, softmax(q @ k.transpose(0, 2, 1) / np.sqrt(d // heads))).astype(F64)
    agrees(p, g, (weights @ v).transpose(0, 2, 1).reshape(d, s))


@pytest.mark.parametrize("s", ROWS)
@pytest.mark.parametrize("d", [96, 513])
def test_the_projection_adds_the_residual_before_it_rounds(s: int, d: int) -> None:
    p = transformer.projection_program(s, d)
    g = given(p)
    agrees(p, g, g["x"].astype(F64) + g["a"].astype(F64).T @ g["wo"].astype(F64))


@pytest.mark.parametrize("s", [*ROWS, 513])
@pytest.mark.parametrize(("d", "ff"), [(64, 1), (130, 513)])
def test_the_mlp_gates_with_silu_and_adds_the_residual(s: int, d: int, ff: int) -> None:
    p = transformer.mlp_program(s, d, ff)
    g = given(p)
    a, wg, wu, wd, x = (g[n].astype(F64) for n in ("a", "wg", "wu", "wd", "x"))
    gate = a @ wg
    agrees(p, g, x + bf16(p, gate / (1 + np.exp(-gate)) * (a @ wu)).astype(F64) @ wd)


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (127, 129, 513), (128, 128, 128), (129, 200, 40)])
def test_mm_is_the_product(m: int, k: int, n: int) -> None:
    p = aten.mm((m, k), (k, n), "bfloat16")
    g = given(p)
    agrees(p, g, g["a"].astype(F64) @ g["b"].astype(F64))


@pytest.mark.parametrize(("s", "width"), [(1, 3), (129, 64), (64, 64)])
def test_bmm_takes_heads_and_transposed_keys_as_views(s: int, width: int) -> None:
    h, d = 3, 3 * width
    p = aten.bmm((h, s, width), (h, width, s), (width, d, 1), (width, 1, d), "bfloat16")
    g = given(p)
    q, k = (g[n].astype(F64).reshape(s, h, width).transpose(1, 0, 2) for n in "ab")
    agrees(p, g, q @ k.transpose(0, 2, 1))


def test_only_what_does_not_lie_as_the_product_contracts_it_is_transposed() -> None:
    # every transpose and every product is one pass through the array
    square, rows, columns = (1, 128, 128), (128 * 128, 128, 1), (128 * 128, 1, 128)
    cases = {(rows, rows): 1, (rows, columns): 2, (columns, rows): 0, (columns, columns): 1}
    for strides, transposes in cases.items():
        r = simulate(aten.bmm(square, square, *strides, "bfloat16"), values=False)
        assert sum(i.opcode == "MATMUL" for i in r.instructions) == transposes + 1, strides


@pytest.mark.parametrize("rows", ROWS)
def test_elementwise_operations_and_softmax(rows: int) -> None:
    a = (rows, 33)
    p = aten.silu(a, "bfloat16")
    g = given(p)
    x = g["a"].astype(F64)
    agrees(p, g, x / (1 + np.exp(-x)))
    agrees(aten.softmax(a, "bfloat16"), g, softmax(x))
    agrees(aten.scale(a, "bfloat16"), {**g, "b": np.float32([[0.125]])}, x / 8)
    p = aten.add_tensor(a, "bfloat16")
    g = given(p)
    agrees(p, g, g["a"].astype(F64) + g["b"].astype(F64))


@pytest.mark.parametrize("s", ROWS)
def test_copy_joins_the_heads_of_a_row(s: int) -> None:
    p = aten.copy((s, 3, 5), (5, s * 5, 1), "bfloat16")
    g = given(p)
    got = simulate(p, inputs=g).outputs["out"]
    assert (got == g["a"].reshape(3, s, 5).transpose(1, 0, 2).reshape(s, 15)).all()


def test_the_reference_without_roundings_is_the_formula() -> None:
    p = transformer.build(3, 4, 2, 5)
    g = transformer.inputs(p)
    w = {n: g[f"{n}0"].astype(F64) for n in transformer.WEIGHTS}
    x = g["x"].astype(F64)
    y = x / np.sqrt((x**2).mean(axis=1)[:, None] + 1e-5) * w["norm1"]
    seen = []
    for head in range(2):
        q, k, v = (y @ w[n][:, head] for n in ("wq", "wk", "wv"))
        seen.append(softmax(q @ k.T / 2**0.5) @ v)
    x = x + np.concatenate(seen, axis=1) @ w["wo"]
    y = x / np.sqrt((x**2).mean(axis=1)[:, None] + 1e-5) * w["norm2"]
    gate = y @ w["wg"]
    assert np.allclose(transformer.reference(g, frozenset())["y"], x + (gate / (1 + np.exp(-gate)) * (y @ w["wu"])) @ w["wd"], rtol=1e-12)


@pytest.mark.parametrize(("d", "heads"), [(256, 3), (256, 1), (8, 16)])
def test_a_width_that_heads_do_not_divide_or_fill_is_refused(d: int, heads: int) -> None:
    with pytest.raises(ProgramError) as e:
        transformer.build(4, d, heads)
    assert str(e.value) == f"transformer heads: {heads} for a width of {d}; a divisor of {d}, of at most 128 columns a head"


def test_what_does_not_fit_on_chip_is_refused_by_the_allocator() -> None:
    with pytest.raises(ProgramError, match="212984 bytes of SBUF in all"):
        simulate(transformer.projection_program(128, 30_000), values=False)
