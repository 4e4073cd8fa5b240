"""The RMSNorm study against its published figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from conftest import REPOSITORY
from nc_sim import ProgramError
from nc_sim import chip as chips
from nc_sim.__main__ import main
from nc_sim.report.study import rmsnorm as study
from nc_sim.report.study.measurement import Study
from nc_sim.trace import system

# Self NEURON, us: huggingface.co/blog/amazon/profiling-torchneuron-part-1
PUBLISHED = {"naive": 2355.0, "rms_norm": 403.3, "compiled": 375.5}
PUBLISHED_OPERATORS = {"aten::mul": (3, 1164.5), "aten::add": (1, 434.6), "aten::rsqrt": (1, 415.0), "aten::mean": (1, 340.8)}
CLOSE = 0.15


@pytest.fixture(scope="module")
def result() -> Study:
    return study.rmsnorm_study()


@pytest.mark.parametrize("variant", PUBLISHED)
def test_self_neuron_is_within_fifteen_percent_of_the_published_total(result: Study, variant: str) -> None:
    assert abs(result.variants[variant]["self_neuron_us"] / PUBLISHED[variant] - 1) <= CLOSE


@pytest.mark.parametrize("operator", PUBLISHED_OPERATORS)
def test_every_operator_is_within_fifteen_percent_of_its_published_time(result: Study, operator: str) -> None:
    calls, published = PUBLISHED_OPERATORS[operator]
    row = result.variants["naive"]["operators"][operator]
    assert row["calls"] == calls
    assert abs(row["self_neuron_us"] / published - 1) <= CLOSE


def test_the_page_shows_the_simulated_totals(result: Study) -> None:
    page = (REPOSITORY / "docs" / "runtime.md").read_text()
    for variant, published in PUBLISHED.items():
        us = result.variants[variant]["self_neuron_us"]
        assert f"| {us:.1f} us | {published} us | {100 * (us / published - 1):+.1f} % |" in page, variant


def test_operators_have_the_published_names(result: Study) -> None:
    assert list(result.variants["rms_norm"]["operators"]) == ["aten::_fused_rms_norm"]
    assert list(result.variants["compiled"]["operators"]) == ["Torch-Compiled Region: 0/0"]
    assert set(result.variants["naive"]["operators"]) == set(PUBLISHED_OPERATORS)


def test_six_dispatches_become_one(result: Study) -> None:
    assert {k: v["nc_exec_running"] for k, v in result.variants.items()} == {"naive": 6, "rms_norm": 1, "compiled": 1}


def test_device_time_is_the_core_model_s_own(result: Study) -> None:
    rt = result.runtimes["rms_norm"]
    (neff,) = rt.neffs.values()
    assert result.variants["rms_norm"]["device_us"] == neff.total_ns / 1000


def test_hbm_bytes_are_those_of_the_tensors(result: Study) -> None:
    x = 4 * 512 * 2
    assert result.variants["rms_norm"]["hbm_write_bytes"] == x
    assert result.variants["rms_norm"]["hbm_read_bytes"] == 2 * x  # x, and the weight once per row
    # mul writes x three times, mean, add and rsqrt a column of bf16 each
    assert result.variants["naive"]["hbm_write_bytes"] == 3 * x + 3 * 4 * 2


def test_dispatches_in_flight_overlap_down_to_the_schedule_call(result: Study) -> None:
    pipelined = study.rmsnorm_study(in_flight=6).variants["naive"]
    assert pipelined["device_us"] == result.variants["naive"]["device_us"]
    # five more dispatches, each 6 + 113 us of host time apart, and the copy of eps before the add
    first = result.variants["rms_norm"]["self_neuron_us"]
    assert pipelined["self_neuron_us"] == pytest.approx(first + 5 * 119 + 45, abs=2)


def test_the_published_ratio_of_naive_to_compiled_holds(result: Study) -> None:
    v = result.variants
    assert v["naive"]["self_neuron_us"] / v["compiled"]["self_neuron_us"] == pytest.approx(2355.0 / 375.5, rel=CLOSE)


def test_json_has_the_documented_keys() -> None:
    out = json.loads(CliRunner().invoke(main, ["study", "rmsnorm", "--json"]).output)
    for v in out["variants"].values():
        assert {
            "self_neuron_us",
            "self_cpu_us",
            "device_us",
            "dispatches",
            "nc_exec_running",
            "hbm_read_bytes",
            "hbm_write_bytes",
            "operators",
        } <= set(v)
    assert out["published"]["naive"]["self_neuron_us"] == 2355.0
    assert json.loads(CliRunner().invoke(main, ["study", "rmsnorm", "--shape", "8,64", "--json"]).output)["published"] is None


def test_the_text_says_what_is_predicted_and_what_the_profile_sets() -> None:
    out = CliRunner().invoke(main, ["study", "rmsnorm"]).output
    assert "aten::mul" in out
    assert "predicted by the core model" in out
    assert "set by the host profile" in out


def test_more_rows_than_partitions_and_odd_widths_keep_their_values() -> None:
    assert set(study.rmsnorm_study(130, 33).variants) == set(PUBLISHED)


def test_fusion_stops_mattering_only_in_device_time_as_tensors_grow() -> None:
    small, large = (study.rmsnorm_study(rows, cols).variants for rows, cols in ((4, 512), (1024, 4096)))
    ratio = lambda v: v["naive"]["self_neuron_us"] / v["rms_norm"]["self_neuron_us"]  # noqa: E731
    assert ratio(large) < ratio(small)


@pytest.mark.parametrize("shape", ["4", "4,0", "a,b", "4,5,6"])
def test_a_shape_that_is_not_two_sizes_is_refused(shape: str) -> None:
    done = CliRunner().invoke(main, ["study", "rmsnorm", "--shape", shape])
    assert done.exit_code == 1
    assert done.output == f"error: --shape: {shape!r}; ROWS,COLS, each at least 1 and of at most twelve digits\n"


def test_values_that_differ_from_numpy_end_the_study(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(study.TOLERANCE, "naive", 0.0)
    with pytest.raises(ProgramError, match="study naive: differs from its reference by"):
        study.rmsnorm_study()


def test_the_system_trace_of_every_variant_is_saved_where_asked(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["study", "rmsnorm", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    for variant, dispatches in {"naive": 6, "rms_norm": 1, "compiled": 1}.items():
        trace = system.load(tmp_path / variant)
        assert sum(e.name == "nc_exec_running" for e in trace.events) == dispatches
        assert f"trace of {variant}: {tmp_path / variant}" in done.output


def test_the_readme_shows_the_table_that_the_command_prints() -> None:
    shown = (REPOSITORY / "README.md").read_text()
    table = [line for line in study.text(study.rmsnorm_study()).splitlines() if line.split(" ")[0] in ("variant", *study.TITLES)]
    assert len(table) == 4
    assert "\n".join(table) in shown


def test_what_was_published_of_trn2_stands_beside_trn2_as_it_is_alone() -> None:
    assert study.rmsnorm_study().published is not None
    assert study.rmsnorm_study(chip="trn1").published is None
    assert study.rmsnorm_study(chip=chips.load("trn2").what_if({"clock.vector_mhz": 480})).published is None
    assert study.rmsnorm_study(8, 512).published is None
