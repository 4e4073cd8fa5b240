"""Values of every call against formulas of their own, written here with numpy and ml_dtypes in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from nc_sim import Program, ProgramError, simulate, workloads
from nc_sim.isa import View
from nc_sim.probe import Probe

SIZES = (1, 127, 128, 511, 512, 513)
NUMPY = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "int32": np.int32, "uint8": np.uint8}


def run(
    build: Callable[[Program, View, View], None], x: np.ndarray, out: tuple[tuple[int, ...], str], dtype: str = "float32"
) -> np.ndarray:
    """x loaded to SBUF, `build` fills the result tile, which is stored and returned."""
    p = Program("case")
    source, target = p.input("x", x.shape, dtype), p.output("y", *out)
    t, r = p.sbuf(x.shape, dtype), p.sbuf(*out)
    p.dma_copy(dst=t, src=source)
    build(p, t, r)
    p.dma_copy(dst=target, src=r)
    return simulate(p, inputs={"x": x}).outputs["y"]


def values(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-3, 3, shape).astype(NUMPY[dtype])


def close(got: np.ndarray, wanted: np.ndarray, ulp: float = 2**-22) -> None:
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=ulp, atol=ulp)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("partitions", [1, 127, 128])
def test_tensor_tensor_adds(n: int, partitions: int) -> None:
    x = values((partitions, n))
    got = run(lambda p, t, r: p.tensor_tensor(dst=r, data1=t, data2=t, op="add"), x, ((partitions, n), "float32"))
    assert np.array_equal(got, x + x)


@pytest.mark.parametrize(
    ("op", "formula"),
    [
        ("subtract", lambda a, b: a - b),
        ("multiply", lambda a, b: a * b),
        ("maximum", np.maximum),
        ("minimum", np.minimum),
        ("greater", lambda a, b: (a > b).astype(np.float32)),
        ("divide", lambda a, b: a / b),
    ],
)
def test_tensor_tensor_operators(op: str, formula: Any) -> None:
    x = values((128, 64))

    def build(p: Program, t: View, r: View) -> None:
        p.tensor_tensor(dst=r, data1=t[:, :32], data2=t[:, 32:], op=op)

    close(run(build, x, ((128, 32), "float32")), formula(x[:, :32].astype(np.float64), x[:, 32:].astype(np.float64)))


def test_int32_addition_on_gpsimd_is_exact_where_float32_is_not() -> None:
    x = np.array([[2**24 + 1, 5], [-(2**30) - 1, 2**30]], np.int32)
    got = run(lambda p, t, r: p.tensor_tensor(dst=r, data1=t, data2=t, op="add"), x, ((2, 2), "int32"), "int32")
    assert got.tolist() == [[2**25 + 2, 10], [-(2**31) - 2 + 2**32, -(2**31)]]
    rounded = run(lambda p, t, r: p.tensor_tensor(dst=r, data1=t, data2=t, op="add", engine="vector"), x, ((2, 2), "int32"), "int32")
    assert rounded[0].tolist() == [2**25, 10]


@pytest.mark.parametrize(("reverse0", "wanted"), [(False, lambda x: (x - 2.0) * 3), (True, lambda x: (2.0 - x) * 3)])
def test_tensor_scalar_with_two_operators(reverse0: bool, wanted: Any) -> None:
    x = values((64, 100))
    got = run(
        lambda p, t, r: p.tensor_scalar(dst=r, data=t, op0="subtract", operand0=2.0, reverse0=reverse0, op1="multiply", operand1=3.0),
        x, ((64, 100), "float32"),
    )  # fmt: skip
    close(got, wanted(x.astype(np.float64)), 2**-21)


def test_tensor_scalar_reads_one_number_per_partition() -> None:
    x = values((128, 16))
    got = run(lambda p, t, r: p.tensor_scalar(dst=r, data=t, op0="multiply", operand0=t[:, 3:4]), x, ((128, 16), "float32"))
    close(got, x.astype(np.float64) * x[:, 3:4])


def test_bitwise_operators_see_bit_patterns() -> None:
    x = np.array([[0b1100, 0x7FFFFFFF, -1]], np.int32)
    got = run(lambda p, t, r: p.tensor_scalar(dst=r, data=t, op0="bitwise_and", operand0=0b1010), x, ((1, 3), "int32"), "int32")
    assert got.tolist() == [[0b1000, 0b1010, 0b1010]]


def test_scalar_tensor_tensor_applies_both_operators() -> None:
    x = values((128, 64))
    got = run(
        lambda p, t, r: p.scalar_tensor_tensor(
            dst=r, data=t[:, :32], op0="multiply", operand0=t[:, 0:1], op1="subtract", operand1=t[:, 32:], reverse1=True
        ),
        x, ((128, 32), "float32"),
    )  # fmt: skip
    wide = x.astype(np.float64)
    close(got, wide[:, 32:] - wide[:, :32] * wide[:, 0:1], 2**-20)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("op", "formula"), [("add", np.sum), ("max", np.max), ("min", np.min)])
def test_tensor_reduce_over_the_row(n: int, op: str, formula: Any) -> None:
    x = values((128, n))
    got = run(lambda p, t, r: p.tensor_reduce(dst=r, op=op, data=t, axis=1), x, ((128, 1), "float32"))
    close(got, formula(x.astype(np.float64), axis=1, keepdims=True), 2**-16)


def test_tensor_reduce_over_the_last_of_two_free_axes_negated() -> None:
    x = values((32, 60))
    got = run(lambda p, t, r: p.tensor_reduce(dst=r, op="max", data=t.reshape(32, 12, 5), axis=[2], negate=True), x, ((32, 12), "float32"))
    assert np.array_equal(got, -x.reshape(32, 12, 5).max(axis=2))


@pytest.mark.parametrize("engine", ["vector", "scalar", "gpsimd"])
@pytest.mark.parametrize("to", ["bfloat16", "float16", "float32"])
def test_tensor_copy_rounds_to_nearest_even(engine: str, to: str) -> None:
    x = values((128, 65))
    got = run(lambda p, t, r: p.tensor_copy(dst=r, src=t, engine=engine), x, ((128, 65), to))
    assert got.tobytes() == x.astype(NUMPY[to]).tobytes()


def test_a_transposing_view_copies_in_its_own_order() -> None:
    x = values((16, 12))
    got = run(lambda p, t, r: p.tensor_copy(dst=r, src=t.reshape(16, 3, 4).permute(1, 0)), x, ((16, 12), "float32"))
    assert np.array_equal(got, x.reshape(16, 3, 4).transpose(0, 2, 1).reshape(16, 12))


def test_reciprocal() -> None:
    x = values((128, 64))
    close(run(lambda p, t, r: p.reciprocal(dst=r, data=t), x, ((128, 64), "float32")), 1 / x.astype(np.float64))


@pytest.mark.parametrize(
    ("op", "formula"),
    [
        ("exp", np.exp),
        ("tanh", np.tanh),
        ("square", np.square),
        ("sigmoid", lambda v: 1 / (1 + np.exp(-v))),
        ("relu", lambda v: np.maximum(v, 0)),
        ("silu", lambda v: v / (1 + np.exp(-v))),
        ("copy", lambda v: v),
    ],
)
def test_activation_applies_scale_and_bias_first(op: str, formula: Any) -> None:
    x = values((128, 128))
    got = run(lambda p, t, r: p.activation(dst=r, op=op, data=t, scale=0.5, bias=t[:, 7:8]), x, ((128, 128), "float32"))
    close(got, formula(x.astype(np.float64) * 0.5 + x[:, 7:8]), 2**-20)


@pytest.mark.parametrize("n", SIZES)
def test_activation_sums_its_row_without_rounding_to_the_output(n: int) -> None:
    x = np.abs(values((128, n))) + 1

    def build(p: Program, t: View, r: View) -> None:
        p.activation(dst=p.sbuf((128, n), "bfloat16"), op="square", data=t, reduce_op="add", reduce_res=r)

    close(run(build, x, ((128, 1), "float32")), np.square(x.astype(np.float64)).sum(axis=1, keepdims=True), 2**-18)


@pytest.mark.parametrize(("op", "formula"), [("square", np.square), ("exp", np.exp)])
@pytest.mark.parametrize(("partitions", "n"), [(128, 1), (1, 127), (127, 128), (128, 513), (1, 16384)])
def test_activation_reduce_gives_the_activation_and_its_sums(partitions: int, n: int, op: str, formula: Any) -> None:
    x = values((partitions, n))

    def build(p: Program, t: View, r: View) -> None:
        p.activation_reduce(dst=r[:, :n], op=op, data=t, reduce_op="add", reduce_res=r[:, n:], scale=0.5, bias=0.25)

    got = run(build, x, ((partitions, n + 1), "float32"))
    wanted = formula(x.astype(np.float64) * 0.5 + 0.25)
    close(got[:, :n], wanted, 2**-20)
    close(got[:, n:], wanted.sum(axis=1, keepdims=True), 2**-16)


def test_activation_reduce_is_an_activation_that_resets_and_keeps_its_sums_where_nobody_asks() -> None:
    x = values((4, 6))

    def build(p: Program, t: View, r: View) -> None:
        junk = p.sbuf((4, 6), "float32")
        p.activation_reduce(dst=junk, op="copy", data=t, reduce_op=np.add, reduce_res=None)
        p.activation(dst=junk, op="copy", data=t, reduce_op="add", reduce_cmd="reduce", reduce_res=r)

    close(run(build, x, ((4, 1), "float32")), 2 * x.astype(np.float64).sum(axis=1, keepdims=True), 2**-20)
    p = Program("same")
    t, r = p.sbuf((4, 6), "float32"), p.sbuf((4, 1), "float32")
    p.memset(dst=t, value=1.0)
    p.activation_reduce(dst=t, op="exp", data=t, reduce_op="add", reduce_res=r)
    p.activation(dst=t, op="exp", data=t, reduce_op="add", reduce_res=r, reduce_cmd="reset_reduce")
    made = [str(s.instruction) for s in simulate(p, values=False).steps if s.engine.label == "Scalar"]
    assert len(made) == 5  # one table load, and twice the same two
    assert made[1:3] == made[3:]


def test_activation_reduce_refuses_what_activation_refuses() -> None:
    p = Program("refused")
    t, r, x = p.sbuf((4, 6), "float32"), p.sbuf((4, 1), "float32"), p.input("x", (4, 6), "float32")
    usual = {"dst": t, "op": "exp", "data": t, "reduce_op": "add", "reduce_res": r}
    for changes, message in (
        ({"reduce_res": t}, r"reduce_res is \[4, 6\]; \[4, 1\] \(nki\.isa\.activation_reduce\)"),
        ({"reduce_res": p.sbuf((3, 1), "float32")}, r"reduce_res is \[3, 1\]; \[4, 1\]"),
        ({"reduce_op": "max"}, "reduce_op: 'max'; one of add; activate2 of NeuronCore-v4 has more"),
        ({"data": t[:, :5]}, "data has 5 elements per partition, dst has 6"),
        ({"data": x}, "data is in HBM"),
        ({"bias": p.sbuf((3, 1), "float32")}, "bias has 3 partitions, data has 4"),
        ({"scale": p.sbuf((4, 1), "bfloat16")}, "scale is bfloat16; a float32 vector"),
        ({"engine": "vector"}, "engine vector; one of scalar"),
    ):
        with pytest.raises(ProgramError, match=message):
            p.activation_reduce(**{**usual, **changes})


def test_the_accumulator_goes_on_over_instructions() -> None:
    x = values((8, 30))

    def build(p: Program, t: View, r: View) -> None:
        junk = p.sbuf((8, 10), "float32")
        p.activation(dst=junk, op="copy", data=t[:, :10], reduce_op="add", reduce_cmd="reset_reduce")
        p.activation(dst=junk, op="copy", data=t[:, 10:20], reduce_op="add", reduce_cmd="reduce")
        p.activation(dst=junk, op="copy", data=t[:, 20:], reduce_op="add", reduce_cmd="reduce", reduce_res=r)

    close(run(build, x, ((8, 1), "float32")), x.astype(np.float64).sum(axis=1, keepdims=True), 2**-18)


@pytest.mark.parametrize(("dtype", "ulp"), [("float32", 2**-18), ("bfloat16", 2**-18), ("float16", 2**-18)])
@pytest.mark.parametrize(("k", "m", "n"), [(128, 128, 512), (1, 1, 1), (127, 64, 511), (128, 127, 128)])
def test_matmul_is_stationary_transposed_times_moving(dtype: str, ulp: float, k: int, m: int, n: int) -> None:
    x = values((k, m + n), dtype)

    def build(p: Program, t: View, r: View) -> None:
        out = p.psum((m, n))
        p.nc_matmul(dst=out, stationary=t[:, :m], moving=t[:, m:])
        p.tensor_copy(dst=r, src=out)

    wide = x.astype(np.float64)
    close(run(build, x, ((m, n), "float32"), dtype), wide[:, :m].T @ wide[:, m:], 2**-14)


def test_matmul_accumulates_and_starts_over() -> None:
    x = values((128, 96))

    def build(p: Program, t: View, r: View) -> None:
        out = p.psum((32, 32))
        p.nc_matmul(dst=out, stationary=t[:, :32], moving=t[:, 32:64], accumulate=False)
        p.nc_matmul(dst=out, stationary=t[:, :32], moving=t[:, 64:], accumulate=True)
        p.tensor_copy(dst=r[:, :32], src=out)
        p.nc_matmul(dst=out, stationary=t[:, :32], moving=t[:, 64:], accumulate=False)
        p.tensor_copy(dst=r[:, 32:], src=out)

    wide = x.astype(np.float64)
    first = wide[:, :32].T @ (wide[:, 32:64] + wide[:, 64:])
    second = wide[:, :32].T @ wide[:, 64:]
    close(run(build, x, ((32, 64), "float32")), np.concatenate([first, second], axis=1), 2**-14)


def test_without_the_flag_the_first_product_overwrites_and_later_ones_accumulate() -> None:
    x = values((128, 64))

    def build(p: Program, t: View, r: View) -> None:
        out = p.psum((32, 32))
        for _ in range(3):
            p.nc_matmul(dst=out, stationary=t[:, :32], moving=t[:, 32:])
        p.tensor_copy(dst=r, src=out)

    wide = x.astype(np.float64)
    close(run(build, x, ((32, 32), "float32")), 3 * wide[:, :32].T @ wide[:, 32:], 2**-14)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("rows", "cols"), [(128, 128), (1, 128), (64, 17)])
def test_a_transpose_on_the_tensor_engine_is_bit_exact(dtype: str, rows: int, cols: int) -> None:
    x = values((rows, cols), dtype)

    def build(p: Program, t: View, r: View) -> None:
        out = p.psum((cols, rows), dtype)
        p.nc_transpose(dst=out, data=t)
        p.tensor_copy(dst=r, src=out)

    assert run(build, x, ((cols, rows), dtype), dtype).tobytes() == np.ascontiguousarray(x.T).tobytes()


def test_a_small_transpose_on_the_vector_engine() -> None:
    x = values((32, 32))
    assert np.array_equal(run(lambda p, t, r: p.nc_transpose(dst=r, data=t, engine="vector"), x, ((32, 32), "float32")), x.T)


def test_iota_counts_along_its_pattern() -> None:
    x = values((4, 6))
    got = run(lambda p, t, r: p.iota(dst=r, pattern=[[10, 2], [1, 3]], offset=7, channel_multiplier=100), x, ((4, 6), "int32"))
    assert got.tolist() == [[7 + 100 * p + 10 * i + j for i in range(2) for j in range(3)] for p in range(4)]


def test_affine_select_keeps_the_lower_triangle() -> None:
    x = values((128, 128))
    got = run(
        lambda p, t, r: p.affine_select(
            dst=r, pattern=[[-1, 128]], channel_multiplier=1, on_true_tile=t, on_false_value=-9.0, cmp_op="greater_equal"
        ),
        x, ((128, 128), "float32"),
    )  # fmt: skip
    assert np.array_equal(got, np.where(np.tril(np.ones((128, 128), bool)), x, -9.0))


@pytest.mark.parametrize("value", [0, 1.5, -2])
def test_memset_fills_a_slice_and_nothing_else(value: float) -> None:
    x = values((16, 8))

    def build(p: Program, t: View, r: View) -> None:
        p.tensor_copy(dst=r, src=t)
        p.memset(dst=r[:, 2:5], value=value)

    wanted = x.copy()
    wanted[:, 2:5] = value
    assert np.array_equal(run(build, x, ((16, 8), "float32")), wanted)


@pytest.mark.parametrize("mode", [{}, {"engine": "sync"}, {"engine": "scalar"}, {"dge_mode": "none"}])
def test_dma_copies_between_any_two_places_and_converts(mode: dict[str, str]) -> None:
    x = values((64, 40))
    p = Program("dma")
    source, target = p.input("x", (64, 40), "float32"), p.output("y", (40, 64), "bfloat16")
    middle, across, back = p.hbm((64, 40), "float32"), p.sbuf((64, 40), "float32"), p.sbuf((64, 40), "bfloat16")
    p.dma_copy(dst=middle, src=source, **mode)
    p.dma_copy(dst=across, src=middle, **mode)
    p.dma_copy(dst=back, src=across, **mode)
    p.dma_copy(dst=target.permute(1, 0), src=back, **mode)
    got = simulate(p, inputs={"x": x}).outputs["y"]
    assert got.tobytes() == np.ascontiguousarray(x.astype(ml_dtypes.bfloat16).T).tobytes()


def test_unwritten_memory_reads_as_nan() -> None:
    p = Program("partly")
    y, t = p.output("y", (2, 4), "float32"), p.sbuf((2, 4), "float32")
    p.memset(dst=t[:, :2], value=1.0)
    p.dma_copy(dst=y, src=t)
    got = simulate(p).outputs["y"]
    assert got[:, :2].tolist() == [[1, 1], [1, 1]]
    assert np.isnan(got[:, 2:]).all()


def test_tf32_keeps_ten_bits_of_the_mantissa() -> None:
    x = np.array([[1 + 2**-10, 1 + 2**-11, 1 + 2**-11 + 2**-12, 1 + 3 * 2**-11]], np.float32)
    got = run(lambda p, t, r: p.tensor_copy(dst=r, src=t), x, ((1, 4), "tfloat32"))
    assert got.tolist() == [[1 + 2**-10, 1, 1 + 2**-10, 1 + 2 * 2**-10]]


def test_keywords_of_nki_that_are_not_modelled_are_taken_with_their_default_only() -> None:
    p = Program("keywords")
    x, t = p.input("x", (4, 4), "float32"), p.sbuf((4, 4), "float32")
    p.dma_copy(dst=t, src=x, oob_mode="error", priority=None, name="load")
    with pytest.raises(ProgramError, match=r"gpsimd\[1\] dma_copy priority: 4; 0 to 3"):
        p.dma_copy(dst=t, src=x, priority=4)


def test_keepdims_asks_for_a_destination_that_keeps_the_axes() -> None:
    p = Program("keepdims")
    t, r = p.sbuf((4, 6), "float32"), p.sbuf((4, 1), "float32")
    p.memset(dst=t, value=1.0)
    p.tensor_reduce(dst=r, op="add", data=t, axis=1, keepdims=True)
    with pytest.raises(ProgramError, match=r"dst is \[4, 3\] with keepdims; \[4, 3, 1\]"):
        p.tensor_reduce(dst=p.sbuf((4, 3), "float32"), op="add", data=t.reshape(4, 3, 2), axis=2, keepdims=True)


def test_values_are_computed_on_one_blas_thread_and_the_setting_of_the_process_comes_back() -> None:
    seen: list[int] = []

    class Look(Probe):
        def finished(self, row: int, tick: int) -> None:
            seen.extend(i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas")

    module = workloads.load("rmsnorm")
    program = module.build()
    with threadpool_limits(2, user_api="blas"):
        simulate(program, inputs=module.inputs(program, 0), probes=[Look()])
        after = {i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas"}
    assert set(seen) == {1}
    assert after == {2}
