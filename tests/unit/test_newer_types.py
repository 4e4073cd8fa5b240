"""Operands of types that only a newer generation has: OCP fp8 and what MX brings."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from nc_sim import Program, ProgramError, Unsupported, chip, simulate
from nc_sim.isa import View

OLDER = ("inf2", "trn1", "trn2")
NEWER = ("float8_e4m3fn", "float8_e8m0fnu", "float8_e4m3fn_x4", "float8_e5m2_x4", "float4_e2m1fn_x4")
HAS = "a chip that has it: NeuronCore-v4 and later"


def made(dtype: str, use: Callable[[Program, View, View], object]) -> Program:
    """A program that fills an SBUF tensor with what a type of one, two or four bytes holds, and uses it as `dtype`."""
    p = Program("types")
    t, f = p.sbuf((32, 8), dtype), p.sbuf((32, 8), "float32")
    p.memset(dst=f, value=0)
    p.memset(dst=t.ap([[t.nbytes // 32, 32], [1, t.nbytes // 32]], dtype="uint8"), value=0)
    use(p, t, f)
    return p


@pytest.mark.parametrize("name", OLDER)
@pytest.mark.parametrize("dtype", NEWER)
def test_no_instruction_and_no_dma_takes_a_type_that_the_generation_lacks(name: str, dtype: str) -> None:
    calls: list[tuple[Callable[[Program, View, View], object], str]] = [
        (lambda p, t, f: p.tensor_copy(dst=t, src=t), f"tensor_copy: dst is {dtype} on {name}; {HAS}"),
        (lambda p, t, f: p.memset(dst=t, value=0, engine="gpsimd"), f"memset: dst is {dtype} on {name}; {HAS}"),
        (lambda p, t, f: p.dma_copy(dst=p.hbm((32, 8), dtype), src=t), f"dma_direct2d: dst is {dtype} on {name}; {HAS}"),
    ]
    if not dtype.endswith("_x4"):
        calls += [
            (lambda p, t, f: p.tensor_scalar(dst=f, data=t, op0="add", operand0=1.0), f"data is {dtype} on {name}; {HAS}"),
            (lambda p, t, f: p.activation(dst=t, op="exp", data=f), f"activate: dst is {dtype} on {name}; {HAS}"),
            (lambda p, t, f: p.tensor_tensor(dst=f, data1=f, data2=t, op="power", engine="gpsimd"), f"data2 is {dtype} on {name}; {HAS}"),
            (lambda p, t, f: p.dma_copy(dst=p.hbm((32, 8), "float32"), src=t), f"src is {dtype} on {name}; {HAS}"),  # a cast
            (lambda p, t, f: p.dma_copy(dst=p.hbm((32, 8), dtype), src=f), f"dst is {dtype} on {name}; {HAS}"),
        ]
    if dtype == "float8_e4m3fn":
        calls.append(
            (lambda p, t, f: p.nc_matmul(dst=p.psum((8, 8)), stationary=t, moving=t), f"ldweights: src is {dtype} on {name}; {HAS}")
        )
    for use, found in calls:
        with pytest.raises(Unsupported) as caught:
            simulate(made(dtype, use), name, values=False)
        assert found in str(caught.value)
        assert "test_newer_types.py:" in str(caught.value)
        simulate(made(dtype, use), "trn3", values=False)


def test_a_dma_between_places_that_were_seen_with_other_types_is_looked_at() -> None:
    """HBM's side counts too, though where in it a DMA reaches does not."""
    p = Program("seen")
    t = p.sbuf((32, 8), "float32")
    p.dma_copy(dst=t, src=p.input("x", (32, 8), "bfloat16"))
    p.dma_copy(dst=t, src=p.input("z", (32, 8), "float8_e4m3fn"))
    with pytest.raises(Unsupported, match="src is float8_e4m3fn on trn2"):
        simulate(p, values=False)


@pytest.mark.parametrize("name", chip.names())
@pytest.mark.parametrize("dtype", ["float8_e4m3", "float8_e5m2", "float8_e3m4"])
def test_every_generation_has_the_three_older_formats(name: str, dtype: str) -> None:
    """cFP8 of NeuronCore-v2: e5m2, e4m3 and e3m4 (aws-neuron-sdk, about-neuron/arch/neuron-features/data-types)."""
    p = Program("older")
    x, y, t, u = p.input("x", (8, 4), "float32"), p.output("y", (8, 4), dtype), p.sbuf((8, 4), dtype), p.sbuf((8, 4), dtype)
    p.dma_copy(dst=t, src=x)
    p.tensor_scalar(dst=u, data=t, op0="multiply", operand0=2.0)
    p.dma_copy(dst=y, src=u)
    values = np.arange(32).reshape(8, 4) % 7
    assert (simulate(p, name, inputs={"x": values}).outputs["y"].astype(float) == 2.0 * values).all()


def test_the_ocp_format_rounds_as_itself_where_it_is() -> None:
    p = Program("ocp")
    x, y, t = p.input("x", (4, 4), "float32"), p.output("y", (4, 4), "float8_e4m3fn"), p.sbuf((4, 4), "float8_e4m3fn")
    p.dma_copy(dst=t, src=x)
    p.dma_copy(dst=y, src=t)
    values = np.linspace(-448, 448, 16, dtype=np.float32).reshape(4, 4)
    assert simulate(p, "trn3", inputs={"x": values}).outputs["y"].tolist() == values.astype(ml_dtypes.float8_e4m3fn).tolist()


def test_types_switched_off_are_refused_and_types_switched_on_are_taken() -> None:
    p = made("float8_e4m3fn", lambda p, t, f: p.tensor_copy(dst=t, src=t))
    simulate(p, values=False, what_if={"types.float8_e4m3fn": True})
    with pytest.raises(Unsupported, match="a chip that has it"):
        simulate(p, "trn3", values=False, what_if={"types.float8_e4m3fn": False})
    with pytest.raises(ProgramError, match="one of the two formats"):
        p.nc_matmul(dst=p.psum((8, 8)), stationary=p.sbuf((32, 8), "float8_e4m3"), moving=p.sbuf((32, 8), "float8_e4m3fn"))
