"""What nki.isa says of some NeuronCores only: who may run a call, and how fast moves of small floats are (SDK 2.32)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nc_sim import Program, ProgramError, Result, Unspecified, Unsupported, simulate
from tiles import tile

OLD, NEW = ("trn1", "inf2"), ("trn2", "trn3")


def ran(build: Callable[[Program], Any], chip: str, **inputs: np.ndarray) -> Result:
    p = Program("rule")
    build(p)
    return simulate(p, chip, inputs=inputs or None)


# --- ScalarE ---------------------------------------------------------------------------------------------------------


def copied(p: Program) -> None:
    t, d = p.sbuf((4, 2), "int32"), p.sbuf((4, 2), "int32")
    p.dma_copy(dst=t, src=p.input("x", (4, 2), "int32"))
    p.tensor_copy(dst=d, src=t, engine="scalar")
    p.dma_copy(dst=p.output("y", (4, 2), "int32"), src=d)


@pytest.mark.parametrize("chip", OLD)
def test_a_copy_on_scalar_of_neuroncore_v2_is_an_activation_and_goes_through_float32(chip: str) -> None:
    x = np.full((4, 2), 2**24 + 1, np.int32)
    r = ran(copied, chip, x=x)
    assert r.outputs["y"].tolist() == [[2**24] * 2] * 4
    assert "ACTIVATE" in [i.opcode for i in r.instructions]
    assert "COPY" not in [i.opcode for i in r.instructions]


@pytest.mark.parametrize("chip", NEW)
def test_a_copy_on_scalar_is_bit_accurate_from_neuroncore_v3_on(chip: str) -> None:
    x = np.full((4, 2), 2**24 + 1, np.int32)
    r = ran(copied, chip, x=x)
    assert np.array_equal(r.outputs["y"], x)
    assert "COPY" in [i.opcode for i in r.instructions]


BIASES: dict[str, Callable[[Program], Any]] = {
    "activation": lambda p: p.activation(dst=tile(p, (4, 8)), op="exp", data=tile(p, (4, 8)), bias=0.5),
    "activation_reduce": lambda p: p.activation_reduce(
        dst=tile(p, (4, 8)), op="exp", data=tile(p, (4, 8)), reduce_op="add", reduce_res=None, bias=0.5
    ),
}


@pytest.mark.parametrize("call", BIASES)
def test_a_bias_is_a_vector_on_neuroncore_v2_and_may_be_a_number_later(call: str) -> None:
    for chip in OLD:
        with pytest.raises(Unsupported, match=rf"{call}: bias=0\.5; a \[P, 1\] view, or NeuronCore-v3 or newer \(nki\.isa\.act"):
            ran(BIASES[call], chip)
    for chip in NEW:
        ran(BIASES[call], chip)


@pytest.mark.parametrize("bias", [None, 0, 0.0])
def test_no_bias_is_taken_everywhere(bias: Any) -> None:
    for chip in (*OLD, *NEW):
        ran(lambda p: p.activation(dst=tile(p, (4, 8)), op="exp", data=tile(p, (4, 8)), bias=bias), chip)


def test_reciprocal_has_no_bias_on_neuroncore_v2() -> None:
    def build(p: Program) -> None:
        p.activation(dst=tile(p, (4, 8)), op="reciprocal", data=tile(p, (4, 8)), bias=tile(p, (4, 1)))

    ran(build, "trn2")
    with pytest.raises(Unsupported, match="a bias with op=reciprocal; no bias, or NeuronCore-v3 or newer"):
        ran(build, "inf2")


def test_scalar_has_all_arithmetic_operators_of_tensor_scalar_on_neuroncore_v4_alone() -> None:
    def build(p: Program) -> None:
        p.tensor_scalar(
            dst=tile(p, (4, 8)), data=tile(p, (4, 8)), op0="subtract", operand0=1.0, op1="maximum", operand1=0.0, engine="scalar"
        )

    ran(build, "trn3")
    with pytest.raises(ProgramError, match="subtract, maximum on Scalar; multiply then add, multiply, or add"):
        ran(build, "trn2")


# --- GpSimd and TensorE ----------------------------------------------------------------------------------------------


def test_gpsimd_has_rsqrt_alone_of_tensor_scalar_and_is_the_default_for_it() -> None:
    def build(p: Program, **how: Any) -> None:
        p.tensor_scalar(dst=tile(p, (4, 8)), data=tile(p, (4, 8)), **how)

    with pytest.raises(ProgramError, match="tensor_scalar: multiply, add on GpSimd; rsqrt; VectorE does the rest"):
        ran(lambda p: build(p, op0="multiply", operand0=2.0, op1="add", operand1=1.0, engine="gpsimd"), "trn2")
    for how in ({"op0": "rsqrt"}, {"op0": "rsqrt", "operand0": 0.0, "engine": "gpsimd"}, {"op0": "add", "operand0": 1.0, "op1": "rsqrt"}):
        r = ran(lambda p, how=how: build(p, **how), "trn2")  # type: ignore[misc]
        assert [i.engine for i in r.instructions if i.opcode == "TENSOR_SCALAR"] == ["GpSimd"]


def test_power_of_two_tensors_runs_on_gpsimd_and_so_not_in_psum() -> None:
    def build(p: Program, memory: str = "sbuf", **how: Any) -> None:
        p.tensor_tensor(dst=tile(p, (4, 8)), data1=tile(p, (4, 8), memory=memory), data2=tile(p, (4, 8)), op="power", **how)

    r = ran(build, "trn2")
    assert [i.engine for i in r.instructions if i.opcode == "TENSOR_TENSOR"] == ["GpSimd"]
    with pytest.raises(ProgramError, match="data1 is in PSUM; SBUF: GpSimd does not reach PSUM"):
        ran(lambda p: build(p, "psum"), "trn2")
    with pytest.raises(ProgramError, match="power of float32 on Vector; GpSimd for power"):
        ran(lambda p: build(p, engine="vector"), "trn2")


def added(p: Program) -> None:
    out = p.psum((8, 16))
    p.memset(dst=out, value=1.0)
    p.nc_matmul(dst=out[:, :8], stationary=tile(p, (4, 8)), moving=tile(p, (4, 8)), accumulate=True)


def test_a_product_adds_to_what_another_instruction_wrote_on_neuroncore_v4_alone() -> None:
    ran(added, "trn3")
    for chip in (*OLD, "trn2"):
        with pytest.raises(Unspecified, match=r"a product that adds to psum:.*, which no product wrote; accumulate=False for the first"):
            ran(added, chip)


def test_a_product_may_add_to_a_place_that_products_wrote_since() -> None:
    def build(p: Program) -> None:
        out, s = p.psum((8, 16)), tile(p, (4, 16))
        p.memset(dst=out, value=1.0)
        p.nc_matmul(dst=out, stationary=s[:, :8], moving=s, accumulate=False)
        p.nc_matmul(dst=out[:, 4:8], stationary=s[:, :8], moving=s[:, :4], accumulate=True)

    ran(build, "trn2")


# --- fast modes (NeuronCore-v3 and v4 architecture guides) -----------------------------------------------------------

N = 512


def cycles(chip: str, build: Callable[[Program], Any], engine: str, mhz: float) -> float:
    """Cycles an element between N and 2 N elements."""

    def took(n: int) -> float:
        p = Program("rate")
        build(p, n)  # type: ignore[call-arg]
        last = [i for i in simulate(p, chip, values=False).instructions if i.engine == engine][-1]
        return last.duration_ns

    return (took(2 * N) - took(N)) / N * mhz / 1000


def move(call: str, src: str, dst: str, places: str = "ss", step: int = 1, engine: str = "vector") -> Callable[[Program, int], None]:
    def build(p: Program, n: int) -> None:
        a = tile(p, (128, n * step), src, "psum" if places[0] == "p" else "sbuf")[:, ::step]
        d = tile(p, (128, n * step), dst, "psum" if places[1] == "p" else "sbuf")[:, ::step]
        if call == "tensor_copy":
            p.tensor_copy(dst=d, src=a, engine=engine)
        elif call == "tensor_scalar":
            p.tensor_scalar(dst=d, data=a, op0="multiply", operand0=2.0, engine=engine)
        else:
            p.tensor_tensor(dst=d, data1=a, data2=a if places[0] == "s" else tile(p, (128, n), src), op="add")

    return build


F32, BF16, F16, FP8, I16 = "float32", "bfloat16", "float16", "float8_e5m2", "int16"


@pytest.mark.parametrize(
    ("what", "trn2", "trn3"),
    [
        ((BF16, BF16), 1 / 4, 1 / 4), ((BF16, F16), 1 / 4, 1 / 4), ((F16, BF16, "ss", 2), 1 / 2, 1 / 2),
        ((BF16, BF16, "ps"), 1 / 2, 1 / 2), ((F16, BF16, "sp"), 1 / 2, 1 / 2), ((BF16, BF16, "pp"), 1, 1), ((BF16, BF16, "ps", 2), 1, 1),
        ((F32, BF16, "ps"), 1, 1), ((F32, F32), 1 / 2, 1 / 2), ((I16, I16), 1 / 2, 1 / 2), ((FP8, FP8), 1 / 2, 1 / 4),
    ],
)  # fmt: skip
@pytest.mark.parametrize("call", ["tensor_copy", "tensor_scalar"])
def test_vector_moves_small_floats_at_the_documented_rates(call: str, what: tuple[Any, ...], trn2: float, trn3: float) -> None:
    assert cycles("trn2", move(call, *what), "Vector", 960) == pytest.approx(trn2, abs=0.01)  # type: ignore[arg-type]
    assert cycles("trn3", move(call, *what), "Vector", 1200) == pytest.approx(trn3, abs=0.01)  # type: ignore[arg-type]
    assert cycles("inf2", move(call, *what), "Vector", 1120) == pytest.approx(1, abs=0.01)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("what", "wanted"),
    [((BF16, BF16), 1 / 2), ((F16, BF16, "ss", 2), 1 / 2), ((BF16, BF16, "sp"), 1 / 2), ((BF16, BF16, "ps"), 1), ((I16, I16), 1)],
)
def test_tensor_tensor_is_twice_as_fast_if_its_inputs_are_in_sbuf_and_all_has_16_bit_floats(what: tuple[Any, ...], wanted: float) -> None:
    assert cycles("trn2", move("tensor_tensor", *what), "Vector", 960) == pytest.approx(wanted, abs=0.01)  # type: ignore[arg-type]


@pytest.mark.parametrize(("what", "wanted"), [((BF16, BF16), 1 / 2), ((FP8, BF16), 1 / 2), ((F32, BF16), 1), ((BF16, BF16, "ps"), 1)])
@pytest.mark.parametrize("call", ["tensor_copy", "tensor_scalar"])
def test_scalar_of_neuroncore_v4_moves_small_floats_twice_as_fast(call: str, what: tuple[Any, ...], wanted: float) -> None:
    how = {"places": "ss", "engine": "scalar"} if len(what) == 2 else {"engine": "scalar"}
    assert cycles("trn3", move(call, *what, **how), "Scalar", 1200) == pytest.approx(wanted, abs=0.01)  # type: ignore[arg-type]
    assert cycles("trn2", move(call, *what, **how), "Scalar", 1200) == pytest.approx(1, abs=0.01)  # type: ignore[arg-type]


def test_rsqrt_on_gpsimd_takes_four_times_as_long_an_element_as_on_scalar() -> None:
    def build(p: Program, n: int) -> None:
        p.tensor_scalar(dst=tile(p, (128, n)), data=tile(p, (128, n)), op0="rsqrt")

    assert cycles("trn2", build, "GpSimd", 1200) == pytest.approx(4, abs=0.01)  # type: ignore[arg-type]
