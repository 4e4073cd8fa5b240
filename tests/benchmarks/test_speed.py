"""Speed of each stage. Outside the default run: `pytest tests/benchmarks --benchmark-only`."""

from __future__ import annotations

from typing import Any

import pytest

from nc_sim import chip, core, workloads
from nc_sim.lower import lower
from nc_sim.simulate import compile_program

TILES = 200


@pytest.fixture(scope="module")
def pipeline() -> Any:
    return workloads.load("pipeline").build(tiles=TILES)


@pytest.fixture(scope="module")
def table(pipeline: Any) -> Any:
    compiled, _ = compile_program(pipeline, chip.load("trn2"))
    return lower(compiled.steps, compiled.chip)[0]


def test_simpy_engine_on_the_pipeline(benchmark: Any, table: Any) -> None:
    benchmark(core.run, table)
    benchmark.extra_info["rows_plus_packets"] = table.size
    benchmark.extra_info["per_second"] = round(table.size / benchmark.stats["min"])


def test_building_the_pipeline(benchmark: Any) -> None:
    program = benchmark(workloads.load("pipeline").build, tiles=TILES)
    benchmark.extra_info["calls_per_second"] = round(len(program) / benchmark.stats["min"])


def test_compiling_the_pipeline(benchmark: Any, pipeline: Any) -> None:
    compiled, _ = benchmark(compile_program, pipeline, chip.load("trn2"))
    benchmark.extra_info["instructions_per_second"] = round(len(compiled.steps) / benchmark.stats["min"])


def test_lowering_the_pipeline(benchmark: Any, pipeline: Any) -> None:
    compiled, _ = compile_program(pipeline, chip.load("trn2"))
    table, _ = benchmark(lower, compiled.steps, compiled.chip)
    benchmark.extra_info["rows_plus_packets_per_second"] = round(table.size / benchmark.stats["min"])
