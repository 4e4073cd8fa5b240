"""Speed of each stage. Outside the default run: `pytest tests/benchmarks --benchmark-only`."""

from __future__ import annotations

from typing import Any

import pytest

from nc_sim import chip, core, fast, simulate, workloads
from nc_sim.lower import lower
from nc_sim.simulate import compile_program

TILES = 2_000  # 14,000 machine instructions


@pytest.fixture(scope="module")
def pipeline() -> Any:
    return workloads.load("pipeline").build(tiles=TILES)


@pytest.fixture(scope="module")
def table(pipeline: Any) -> Any:
    compiled, _ = compile_program(pipeline, chip.load("trn2"))
    return lower(compiled.steps, compiled.chip)[0]


def test_simpy_engine_on_the_pipeline(benchmark: Any, table: Any) -> None:
    benchmark.pedantic(core.run, (table,), rounds=3)
    benchmark.extra_info["rows_plus_packets_per_second"] = round(table.size / benchmark.stats["min"])


@pytest.mark.skipif(fast.njit is None, reason="the extra `fast` (Numba) is not installed")
def test_compiled_engine_on_the_pipeline(benchmark: Any, table: Any) -> None:
    fast.run(table)  # compiled, or taken from the cache
    benchmark(fast.run, table)
    benchmark.extra_info["rows_plus_packets_per_second"] = round(table.size / benchmark.stats["min"])
    assert fast.run(table) == core.run(table)


def test_building_the_pipeline(benchmark: Any) -> None:
    program = benchmark(workloads.load("pipeline").build, tiles=TILES)
    compiled, _ = compile_program(program, chip.load("trn2"))
    benchmark.extra_info["calls_per_second"] = round(len(program) / benchmark.stats["min"])
    benchmark.extra_info["machine_instructions_per_second"] = round(len(compiled.steps) / benchmark.stats["min"])


def test_compiling_the_pipeline(benchmark: Any, pipeline: Any) -> None:
    compiled, _ = benchmark(compile_program, pipeline, chip.load("trn2"))
    benchmark.extra_info["instructions_per_second"] = round(len(compiled.steps) / benchmark.stats["min"])


def test_lowering_the_pipeline(benchmark: Any, pipeline: Any) -> None:
    compiled, _ = compile_program(pipeline, chip.load("trn2"))
    table, _ = benchmark(lower, compiled.steps, compiled.chip)
    benchmark.extra_info["rows_plus_packets_per_second"] = round(table.size / benchmark.stats["min"])


@pytest.mark.parametrize("engine", ["simpy", pytest.param("compiled", marks=pytest.mark.skipif(fast.njit is None, reason="no Numba"))])
def test_a_2048_cubed_matmul_from_building_to_summary(benchmark: Any, engine: str) -> None:
    def whole() -> dict[str, Any]:
        program = workloads.load("matmul").build(2048, 2048, 2048)
        return simulate(program, values=False, engine=engine).summary()

    whole()
    benchmark(whole)


@pytest.mark.parametrize("tiles", [1_000, 10_000, 100_000])
def test_building_to_summary_grows_with_the_program(benchmark: Any, tiles: int) -> None:
    """Width 128: at 512 the tensors of the largest exceed HBM."""

    def whole() -> int:
        result = simulate(workloads.load("pipeline").build(tiles=tiles, width=128), values=False)
        result.summary()
        return len(result.steps)

    count = benchmark.pedantic(whole, rounds=1, warmup_rounds=int(tiles == 1_000))
    benchmark.extra_info["instructions_per_second"] = round(count / benchmark.stats["min"])
