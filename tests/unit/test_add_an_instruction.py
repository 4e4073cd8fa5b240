"""docs/add-an-instruction.md: the one class it adds is all that is needed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from conftest import REPOSITORY
from nc_sim import Program, ProgramError, chip, simulate
from nc_sim.forms import program_from_msgpack, program_from_text, program_to_msgpack, program_to_text
from nc_sim.isa import REGISTRY, Instruction, fields
from nc_sim.isa.text import parse_step, step_to_text
from nc_sim.schema import SCHEMA

DOCUMENT = REPOSITORY / "docs" / "add-an-instruction.md"
NAME = "top8"


@pytest.fixture
def cls() -> Iterator[type[Instruction]]:
    """The class of the page's first block, registered for one test."""
    before = dict(REGISTRY)
    REGISTRY.pop(NAME, None)
    block = re.search(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert block is not None
    namespace: dict[str, Any] = {"__name__": "document"}
    exec(compile(block[1], str(DOCUMENT), "exec"), namespace)
    added = [n for n in REGISTRY if n not in before or n == NAME]
    assert added == [NAME]
    yield REGISTRY[NAME]
    REGISTRY.clear()
    REGISTRY.update(before)


def program(width: int = 512, dtype: str = "float32", engine: str | None = None) -> Program:
    p = Program("top8")
    x, y = p.input("x", (128, width), dtype), p.output("y", (128, 8), dtype)
    tile, best = p.sbuf((128, width), dtype), p.sbuf((128, 8), dtype)
    p.dma_copy(dst=tile, src=x)
    p.top8(dst=best, src=tile, **({} if engine is None else {"engine": engine}))
    p.dma_copy(dst=y, src=best)
    return p


@pytest.mark.parametrize("width", [8, 9, 512])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_its_values_are_numpy_s(cls: type[Instruction], width: int, dtype: str) -> None:
    p = program(width, dtype)
    x = np.random.default_rng(1).standard_normal((128, width)).astype(p.tensors["x"].dtype.numpy)
    got = simulate(p, inputs={"x": x}).outputs["y"]
    assert got.dtype == x.dtype
    assert np.array_equal(got.astype(np.float32), -np.sort(-x.astype(np.float32), axis=1)[:, :8])


@pytest.mark.parametrize("width", [8, 512])
def test_it_takes_the_fixed_latency_and_a_cycle_an_element(cls: type[Instruction], width: int) -> None:
    result = simulate(program(width), values=False)
    (made,) = [i for i in result.instructions if i.opcode == "TOP8"]
    assert made.engine == "Vector"
    # trn2.toml vector.tensor_reduce: 152 ns from SBUF, one cycle of 0.96 GHz an element; a tick is 1/4.8 ns
    assert made.duration_ns == pytest.approx(152 + width / 0.96, abs=1 / 4.8)


def test_a_program_with_it_round_trips_as_text_and_msgpack(cls: type[Instruction]) -> None:
    p = program()
    assert program_to_msgpack(program_from_msgpack(program_to_msgpack(p))) == program_to_msgpack(p)
    text = program_to_text(p)
    assert f" {NAME} dst=sbuf:" in text
    assert [s.instruction for s in program_from_text(text)] == [s.instruction for s in p]
    step = p.steps[1]
    assert parse_step(step_to_text(step, str), int).instruction == step.instruction


def test_its_operands_are_checked_with_its_source(cls: type[Instruction]) -> None:
    p = Program()
    narrow, wide = p.sbuf((128, 8), "float32"), p.sbuf((128, 16), "float32")
    with pytest.raises(ProgramError, match=r"dst has 16 elements per partition; 8 \(nki\.isa\.max8\)"):
        p.top8(dst=wide, src=wide)
    with pytest.raises(ProgramError, match="src has 4 elements per partition; 8 to 16384"):
        p.top8(dst=narrow, src=narrow[:, :4])
    with pytest.raises(ProgramError, match=r"engine scalar; one of vector"):
        p.top8(dst=narrow, src=wide, engine="scalar")
    with pytest.raises(ProgramError, match="no src"):
        p.top8(dst=narrow)


def test_the_cost_row_it_names_is_in_every_chip_file(cls: type[Instruction]) -> None:
    kind = program().steps[1].instruction.work().kind
    for name in chip.names():
        assert f"vector.{kind}.cycles_per_element" in chip.load(name).numbers


def test_the_page_names_the_kinds_and_keys_that_exist() -> None:
    page = DOCUMENT.read_text()
    listed = re.search(r"`isa/fields.py`: (.*)\. A field", page)
    assert listed is not None
    for name in re.findall(r"`(\w+)(?:\(\w+\))?`", listed[1]):
        assert hasattr(fields, name), name
    keys = re.search(r"its five keys: (.*)\.\n", page)
    assert keys is not None
    named = set(re.findall(r"`(\w+)`", keys[1]))
    assert named == {k.rsplit(".", 1)[1] for k in SCHEMA if k.startswith("vector.tensor_reduce.")}
