"""Speed of what comes after a run. Outside the default run: `pytest tests/benchmarks --benchmark-only`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from nc_sim import Result, simulate, workloads
from nc_sim.profile import device, parquet, source
from nc_sim.trace import hardware, perfetto, text

TILES = 10_000  # 70,000 instructions


@pytest.fixture(scope="module")
def result() -> Result:
    return simulate(workloads.load("pipeline").build(tiles=TILES), values=False)


@pytest.fixture(scope="module")
def folder(result: Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return result.save(tmp_path_factory.mktemp("saved"))


def fresh(result: Result) -> Result:
    """The same run, with nothing computed from it yet."""
    return attrs.evolve(result)


def told(benchmark: Any, result: Result) -> None:
    benchmark.extra_info["instructions_per_second"] = round(len(result.steps) / benchmark.stats["min"])


def test_summary(benchmark: Any, result: Result) -> None:
    benchmark(lambda: fresh(result).summary())
    told(benchmark, result)


def test_saving(benchmark: Any, result: Result, tmp_path: Path) -> None:
    benchmark(lambda: fresh(result).save(tmp_path))
    told(benchmark, result)


def test_loading(benchmark: Any, result: Result, folder: Path) -> None:
    benchmark(hardware.load, folder)
    told(benchmark, result)


def test_text_timeline(benchmark: Any, result: Result, folder: Path) -> None:
    benchmark(text.timeline, hardware.load(folder))
    told(benchmark, result)


@pytest.mark.parametrize("slices", [10_000_000, 100_000])
def test_perfetto(benchmark: Any, folder: Path, tmp_path: Path, slices: int) -> None:
    """All slices and counter values, and merged to a sixth."""
    trace = hardware.load(folder)
    path = benchmark(perfetto.save, trace, tmp_path / "x", slices=slices)
    benchmark.extra_info["bytes"] = path.stat().st_size
    benchmark.extra_info["records_per_second"] = round(
        (len(trace.instructions) + len(trace.shares) + len(trace.transfers)) / benchmark.stats["min"]
    )


def test_profile_tables_as_parquet(benchmark: Any, folder: Path, tmp_path: Path) -> None:
    """Every published table, 2.9 million DMA packets among them."""
    pytest.importorskip("pyarrow")
    benchmark.pedantic(lambda: parquet.save(device.tables(source.read(folder)), tmp_path), rounds=1)
    benchmark.extra_info["bytes"] = sum(p.stat().st_size for p in tmp_path.iterdir())
