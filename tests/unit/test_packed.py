"""Packed MX elements move and are set to zero; everything else about them is for MX instructions."""

from __future__ import annotations

import numpy as np
import pytest

from nc_sim import Program, ProgramError, simulate
from nc_sim.testing import inputs

PACKED = ["float8_e4m3fn_x4", "float8_e5m2_x4", "float4_e2m1fn_x4"]


@pytest.mark.parametrize("dtype", PACKED)
@pytest.mark.parametrize("engine", ["vector", "gpsimd", "scalar"])
def test_packed_elements_are_moved_bit_by_bit(dtype: str, engine: str) -> None:
    p = Program()
    x, y, z = (make(n, (8, 6), dtype) for make, n in ((p.input, "x"), (p.output, "y"), (p.output, "z")))
    a, b, zero = (p.sbuf((8, 6), dtype) for _ in range(3))
    p.dma_copy(dst=a, src=x)
    p.tensor_copy(dst=b, src=a, engine=engine)
    p.memset(dst=zero, value=0)
    p.dma_copy(dst=y, src=b)
    p.dma_copy(dst=z, src=zero)
    arrays = inputs(p)
    arrays["x"][0, 0] = np.iinfo(arrays["x"].dtype).max - 1
    got = simulate(p, "trn3", inputs=arrays).outputs
    assert np.array_equal(got["y"], arrays["x"])
    assert not got["z"].any()


@pytest.mark.parametrize("dtype", PACKED)
def test_packed_elements_are_no_numbers(dtype: str) -> None:
    p = Program()
    t, f, x = p.sbuf((8, 6), dtype), p.sbuf((8, 6), "float32"), p.input("x", (8, 6), "float32")
    with pytest.raises(ProgramError, match=f"data1 is {dtype}; a type of single numbers"):
        p.tensor_tensor(dst=f, data1=t, data2=f, op="add")
    with pytest.raises(ProgramError, match=f"src is {dtype}, dst is float32; one packed type: nothing converts to or from it"):
        p.tensor_copy(dst=f, src=t)
    with pytest.raises(ProgramError, match=f"src is float32, dst is {dtype}; one packed type"):
        p.dma_copy(dst=t, src=x)
    with pytest.raises(ProgramError, match=f"value=1 in {dtype}; 0 in a packed type"):
        p.memset(dst=t, value=1)
    with pytest.raises(ProgramError, match=f"stationary is {dtype}; a floating-point type"):
        p.nc_matmul(dst=p.psum((6, 6)), stationary=t, moving=t)
