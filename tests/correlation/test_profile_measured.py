"""The summary of two public profiles against what the public profiler printed of them (profiles.json)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nc_sim.profile import measured

NAMES = ("fused_fp32_s512", "baseline_bf16_s512")
ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync")
# The CSV has whole ns where the profiler adds up picoseconds.
ACTIVE_WITHIN = 0.005
EXACT = (
    "hbm_read_bytes", "hbm_write_bytes", "hardware_flops", "model_flops", "matmul_instruction_count", "software_dynamic_dma_packet_count",
    "hardware_dynamic_dma_packet_count", "static_dma_packet_count", "neuroncore_cycle_count",
)  # fmt: skip


@pytest.fixture(params=NAMES)
def both(request: pytest.FixtureRequest, traces: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    published = json.loads((traces / "profiles.json").read_text())["kernels"][request.param]
    return dict(measured.metrics(measured.read(traces / f"{request.param}.instr.csv"))), published


@pytest.mark.parametrize("name", [*(f"{e}_engine_active_time" for e in ENGINES), "dma_active_time", "total_active_time"])
def test_active_times_are_within_half_a_percent_of_the_published_ones(name: str, both: Any) -> None:
    ours, published = both
    assert ours[name] == pytest.approx(published[name], rel=ACTIVE_WITHIN)
    assert ours[name] <= published[name]  # cut off, never rounded up


@pytest.mark.parametrize("name", EXACT)
def test_bytes_flops_and_counts_are_the_published_ones(name: str, both: Any) -> None:
    ours, published = both
    assert ours[name] == published[name]


def test_ratios_are_those_of_the_published_numbers(both: Any) -> None:
    ours, published = both
    assert ours["total_time"] == pytest.approx(published["total_time"], rel=1e-9)
    assert ours["peak_flops_bandwidth_ratio"] == published["peak_flops_bandwidth_ratio"]
    peak = 2 * 2 * 128 * 128 * 2.4e9  # two physical cores
    assert ours["hfu_estimated_percent"] == pytest.approx(published["hardware_flops"] / peak / published["total_time"], rel=1e-9)
    moved = published["hbm_read_bytes"] + published["hbm_write_bytes"]
    assert ours["mbu_estimated_percent"] == pytest.approx(moved / published["total_time"] / 716e9, rel=1e-9)
    assert ours["mm_arithmetic_intensity"] == pytest.approx((published["hardware_flops"] - 83_886_080) / moved, rel=1e-12)


def test_two_published_values_of_the_whole_profile_are_given_back(traces: Path) -> None:
    # summary of baseline_exec_2_profile_full.json of baseline_bf16_s512, allenkchau/trainium-kernel-fusion@d709ddf (MIT)
    ours = measured.metrics(measured.read(traces / "baseline_bf16_s512.instr.csv"))
    assert ours["hfu_estimated_percent"] == pytest.approx(0.03340912825097387, rel=1e-7)  # it knows the time to the picosecond
    assert ours["mm_arithmetic_intensity"] == pytest.approx(41.795918367346935, rel=1e-12)
    assert ours["mbu_estimated_percent"] == pytest.approx(0.12394863736792174, rel=1e-7)
    assert ours["mfu_max_achievable_estimated_percent"] == pytest.approx(0.19026360544217685, rel=1e-9)
    assert (ours["dma_active_cycles"] or 0) == pytest.approx(29071, rel=ACTIVE_WITHIN)
    assert ours["static_dma_size_percent"] == pytest.approx(0.03309067905734112, rel=1e-12)
