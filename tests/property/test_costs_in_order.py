"""Costs of what nobody measured lie between what was: more is never faster, rates are even, smaller types are never slower."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from nc_sim import Program, Result, chip, simulate
from nc_sim.isa import View
from tiles import tile

FEW = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), max_examples=2, phases=[Phase.generate])
CHIPS = chip.names()
OLD = ("trn1", "inf2")  # NeuronCore-v2: no hardware descriptors, ScalarE without tensor_scalar
PLACES = [("sbuf", "sbuf"), ("psum", "sbuf"), ("sbuf", "psum"), ("psum", "psum")]
Form = Callable[[Program, View, View, View], Any]  # destination, a source, another source in SBUF

FORMS: dict[str, tuple[str, Form]] = {
    "copy": ("vector", lambda p, d, a, b: p.tensor_copy(dst=d, src=a)),
    "copy on scalar": ("scalar", lambda p, d, a, b: p.tensor_copy(dst=d, src=a, engine="scalar")),
    "tensor_scalar": ("vector", lambda p, d, a, b: p.tensor_scalar(dst=d, data=a, op0="multiply", operand0=2.0)),
    "tensor_tensor": ("vector", lambda p, d, a, b: p.tensor_tensor(dst=d, data1=a, data2=b, op="add")),
    "scalar_tensor_tensor": (
        "vector", lambda p, d, a, b: p.scalar_tensor_tensor(dst=d, data=a, op0="multiply", operand0=2.0, op1="add", operand1=b),
    ),
    "tensor_reduce": ("vector", lambda p, d, a, b: p.tensor_reduce(dst=d[:, :1], op="add", data=a, axis=1)),
    "reciprocal": ("vector", lambda p, d, a, b: p.reciprocal(dst=d, data=a)),
    "scan": ("vector", lambda p, d, a, b: p.tensor_tensor_scan(dst=d, data0=a, data1=b, initial=0.0, op0="multiply", op1="add")),
    "exp": ("scalar", lambda p, d, a, b: p.activation(dst=d, op="exp", data=a)),
    "activation copy": ("scalar", lambda p, d, a, b: p.activation(dst=d, op="copy", data=a)),
    "affine_select": (
        "gpsimd",
        lambda p, d, a, b: p.affine_select(
            dst=d, pattern=[[1, d.elements]], channel_multiplier=1, on_true_tile=b, on_false_value=0.0, cmp_op="greater"
        ),
    ),
    "copy on gpsimd": ("gpsimd", lambda p, d, a, b: p.tensor_copy(dst=d, src=b, engine="gpsimd")),
}  # fmt: skip


def took(on: str, form: str, n: int, dtype: str, places: tuple[str, str]) -> float:
    """Nanoseconds of one instruction over n elements a partition."""
    engine, call = FORMS[form]
    p = Program("form")
    a, b = tile(p, (128, n), dtype, places[0]), tile(p, (128, n), dtype)
    call(p, tile(p, (128, n), dtype, places[1]), a, b)
    found = [i for i in simulate(p, on, values=False).instructions if i.engine.lower() == engine and i.opcode != "ACT_TABLE_LOAD"]
    return float(found[-1].duration_ns)


@pytest.mark.parametrize("on", CHIPS)
@pytest.mark.parametrize("form", FORMS)
@FEW
@given(data=st.data())
def test_elements_take_time_evenly_and_16_bits_never_more_than_32(form: str, on: str, data: st.DataObject) -> None:
    places = ("sbuf", "sbuf") if FORMS[form][0] == "gpsimd" else data.draw(st.sampled_from(PLACES))
    few, more = data.draw(st.integers(1, 1000)), data.draw(st.integers(8, 500))  # two operands of the largest fill PSUM
    sizes = (few, few + more, few + 2 * more)
    times = {dtype: [took(on, form, n, dtype, places) for n in sizes] for dtype in ("float32", "bfloat16")}
    tick = 1 / float(chip.load(on).ticks_per_ns)
    for first, second, third in times.values():
        assert first <= second <= third
        assert third - second == pytest.approx(second - first, abs=2 * tick)
    assert all(small <= large + tick for small, large in zip(times["bfloat16"], times["float32"], strict=True))


def product(on: str, n: int, columns: int, dtype: str) -> float:
    """From the start of the first weight load to the end of the product, the array idle before."""
    p = Program("product")
    p.nc_matmul(dst=p.psum((columns, n)), stationary=tile(p, (128, columns), dtype), moving=tile(p, (128, n), dtype))
    mine = [i for i in simulate(p, on, values=False, what_if={"tensor.gate.kind": "none"}).instructions if i.engine == "Tensor"]
    return float(max(i.start_ns + i.duration_ns for i in mine) - min(i.start_ns for i in mine if i.opcode == "LDWEIGHTS"))


@pytest.mark.parametrize("on", CHIPS)
@FEW
@given(n=st.integers(1, 511), columns=st.integers(1, 127))
def test_products_take_longer_with_more_rows_and_columns_and_in_fp32(on: str, n: int, columns: int) -> None:
    for dtype in ("float32", "bfloat16"):
        here = product(on, n, columns, dtype)
        assert here <= product(on, n + 1, columns, dtype)
        assert here <= product(on, n, columns + 1, dtype)
    assert product(on, n, columns, "float32") >= product(on, n, columns, "bfloat16")
    assert product(on, n, columns, "float16") == product(on, n, columns, "bfloat16")


WAYS: dict[str, dict[str, Any]] = {
    "software": {"engine": "gpsimd"}, "static": {"engine": "sync", "dge_mode": "none"}, "hardware": {"engine": "sync", "dge_mode": "hwdge"},
}  # fmt: skip


def moved(on: str, way: str, load: bool, partitions: int, n: int, dtype: str = "float32") -> float:
    """From the trigger to the end of the last DMA engine, ns."""
    p = Program("moved")
    if load:
        p.dma_copy(dst=p.sbuf((partitions, n), dtype), src=p.input("x", (partitions, n), dtype), **WAYS[way])
    else:
        p.dma_copy(dst=p.output("y", (partitions, n), dtype), src=tile(p, (partitions, n), dtype), **WAYS[way])
    r: Result = simulate(p, on, values=False)
    trigger = next(i for i in reversed(r.instructions) if i.opcode.startswith("DMA"))
    return float(r.timeline.finish[r.table.rows :].max()) / float(r.chip.ticks_per_ns) - trigger.start_ns


@pytest.mark.parametrize(("on", "way"), [(on, way) for on in CHIPS for way in WAYS if way != "hardware" or on not in OLD])
@pytest.mark.parametrize("load", [True, False])
@FEW
@given(data=st.data())
def test_a_dma_of_more_bytes_or_rows_is_not_faster(on: str, way: str, load: bool, data: st.DataObject) -> None:
    n, partitions = (
        data.draw(st.sampled_from([1, 127, 128, 140, 255, 256, 1023, 1024]) | st.integers(1, 2048)),
        data.draw(st.integers(1, 127)),
    )
    more = data.draw(st.sampled_from([1, 8, 64, 1024]))
    here, step = moved(on, way, load, partitions, n), 1.0
    if not load and on not in OLD and n <= 128 < n + more < 147:  # two laws meet: a row of 516 B takes 2.8 ns less than one of 512
        step += 8 * 2.8
    assert here <= moved(on, way, load, partitions, n + more) + step
    assert here <= moved(on, way, load, partitions + 1, n) + 1
    assert moved(on, way, load, partitions, n, "bfloat16") <= here + 1


def test_a_stored_row_of_513_to_588_bytes_is_faster_than_one_of_512_because_two_laws_meet_there() -> None:
    """Rows up to 512 B take 8.5 + B / 27.2 ns, longer ones 4.7 + B / 26: eight of an engine's partitions, one row each."""
    times = [moved("trn2", "hardware", False, 128, n) for n in (128, 129, 147)]
    assert times[1] - times[0] == pytest.approx(8 * (4.7 + 516 / 26 - 8.5 - 512 / 27.2), abs=1)
    assert times[2] == pytest.approx(times[0], abs=1)
