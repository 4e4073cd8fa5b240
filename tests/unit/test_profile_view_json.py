"""`nc-sim view` of JSON exports: tables and summary as of the same records in CSV, ratios as published, own exports given back."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from test_perfetto import needs_perfetto
from test_profile_json import KERNEL, RUNTIME, export, instruction, packets, written

from nc_sim import Program, replay, simulate, workloads
from nc_sim.__main__ import main
from nc_sim.profile import device, measured, output, source
from nc_sim.profile.schema import fields
from nc_sim.report import replayed
from nc_sim.trace import pftrace

CHIP = {"pe_clock_freq": 2.4, "pe_clock_others": 1.2, "hbm_ddr_bandwidth": 716e9, "num_physical_cores": 2, "data_version": 8}
# `summary` of the two exports whose records the CSV files are: profiling/artifacts/NAME/json_reports of
# allenkchau/trainium-kernel-fusion@d709ddf (MIT)
PUBLISHED = {
    "fused_fp32_s512": {
        "total_time": 3.8091607e-05, "hfu_estimated_percent": 0.05880560369407623, "mbu_estimated_percent": 0.04084948021144698,
        "mm_arithmetic_intensity": 240.94117647058823, "mfu_max_achievable_estimated_percent": 1,
    },
    "baseline_bf16_s512": {
        "total_time": 5.4276582e-05, "hfu_estimated_percent": 0.03340912825097387, "mbu_estimated_percent": 0.12394863736792174,
        "mm_arithmetic_intensity": 41.795918367346935, "mfu_max_achievable_estimated_percent": 0.19026360544217685,
    },
}  # fmt: skip


def shown(*words: Any) -> str:
    done = CliRunner().invoke(main, ["view", *map(str, words)])
    assert done.exit_code == 0, done.output
    return done.stdout


def of_csv(traces: Path, name: str) -> dict[str, Any]:
    """The records of a CSV pair as the export has them that they were taken from."""
    rows = list(csv.DictReader((traces / f"{name}.instr.csv").open(newline="")))
    moved = list(csv.DictReader((traces / f"{name}.dma.csv").open(newline="")))
    keys = {"timestamp": "timestamp_ns", "duration": "duration_ns", "pc": "pc"}
    told = json.loads((traces / "profiles.json").read_text())["kernels"][name]
    return {
        "metadata": [CHIP],
        "instruction": [
            {k: int(r[c]) for k, c in keys.items()}
            | {"label": r["engine"], "opcode": r["opcode"], "operands": r["operands"], "activation_fn": r["fn"], "subgraph": "sg00"}
            for r in rows
        ],
        "dma": [
            {"timestamp": int(p["timestamp_ns"]), "duration": int(p["duration_ns"]), "dma_engine": p["dma_engine"], "subgraph": "sg00",
             "dma_queue": p["dma_queue"], "queue_type": p["queue_type"], "transfer_size": int(p["bytes"]),
             "packet_idx": int(p["packet_idx"])} for p in moved
        ],
        "profile_info": [{"profiler_version": told["profiler_version"]}],
        "summary": [{"total_time": told["total_time"], "model_flops": told["model_flops"]}],
    }  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_hfu_mbu_and_intensity_of_an_export_are_the_published_ones(traces: Path, tmp_path: Path, name: str) -> None:
    ours = next(iter(json.loads(shown(written(tmp_path, of_csv(traces, name)), "--output-format", "summary-json")).values()))
    for metric, value in PUBLISHED[name].items():
        assert ours[metric] == pytest.approx(value, rel=1e-7), metric  # of HFU the profiler's own time has more digits


@pytest.mark.parametrize("name", PUBLISHED)
def test_an_export_has_the_metrics_and_the_tables_of_the_csv_pair_with_the_same_records(traces: Path, tmp_path: Path, name: str) -> None:
    one, two = measured.read(written(tmp_path, of_csv(traces, name))), measured.read(traces / f"{name}.instr.csv")
    assert measured.metrics(one) == measured.metrics(two)
    for table in ("instructions", "packets"):
        a, b = ({k: v for k, v in getattr(p, table).columns().items() if k != "evt_wait_time_ns"} for p in (one, two))  # left out above
        assert a == b


def test_both_cores_of_an_export_count_and_records_stay_in_the_file_s_order(tmp_path: Path) -> None:
    profile = measured.read(written(tmp_path, export("sg01")))
    columns = profile.instructions.columns()
    assert columns["start_ts"] == [r[0] for r in (*RUNTIME, *KERNEL, *RUNTIME)]  # sg01's first, as in the file
    m = measured.metrics(profile)
    assert (m["tensor_engine_instruction_count"], m["hbm_read_bytes"], m["hbm_write_bytes"]) == (2, 128 * 2048, 128 * 2048)
    assert m["total_time"] == 1e-5  # of its summary
    assert m["software_dynamic_dma_packet_count"] == 2 * 16 * 5


def test_an_export_without_a_summary_is_as_long_as_its_metadata_says(tmp_path: Path) -> None:
    data = export(summary=[], metadata={"data_version": 8, "first_hw_timestamp": 1000, "last_hw_timestamp": 21_000})
    assert measured.metrics(measured.read(written(tmp_path, data)))["total_time"] == 20e-6


def test_an_export_s_own_wait_times_functions_and_lines_reach_the_table(tmp_path: Path) -> None:
    data = export()
    data["instruction"][4] |= {"evt_wait_time": 77, "activation_fn": "EXP", "nki_source_location": "/home/someone/kernel.py:12"}
    columns = measured.read(written(tmp_path, data)).instructions.columns()
    assert columns["evt_wait_time_ns"][4] == 77
    assert columns["scalar_activation_fn"][4] == "EXP"
    assert columns["nki_source_location"][4] == "/home/someone/kernel.py:12"


@pytest.mark.parametrize("name", ["attention", "softmax", "transformer"])
def test_a_run_s_own_export_tells_what_the_run_tells_or_nothing(tmp_path: Path, name: str) -> None:
    folder = simulate(workloads.load(name).build(), values=False).save(tmp_path / "run")
    path = Path(shown(folder, "--output-format", "json", "--output-file", tmp_path / "own.json").split(": ", 1)[1].strip())
    profile, run = measured.read(path), device.metrics(source.read(folder))
    assert profile.simulated
    found = {k: v for k, v in measured.metrics(profile).items() if v is not None}
    assert {k: pytest.approx(run[k], rel=1e-12) for k in found} == found
    assert len(found) > 80
    assert {"hfu_estimated_percent", "mbu_estimated_percent", "mm_arithmetic_intensity", "hbm_read_bytes"} <= set(found)


def test_what_rests_on_an_opcode_that_is_not_read_is_null_and_the_rest_is_not(tmp_path: Path) -> None:
    data = export(metadata=[CHIP])
    known = measured.metrics(measured.read(written(tmp_path, data)))
    data["instruction"][4]["opcode"] = "FROBNICATE"
    m = measured.metrics(measured.read(written(tmp_path, data)))
    assert {k for k in m if m[k] is None} - {k for k in m if known[k] is None} == {
        "sbuf_read_bytes", "sbuf_write_bytes", "psum_read_bytes", "psum_write_bytes", "psum_read_sbuf_write_bytes",
        "psum_read_sbuf_write_count",
    }  # fmt: skip
    data["instruction"][3]["opcode"] = "DMA_OTHER"
    m = measured.metrics(measured.read(written(tmp_path, data)))
    assert m["hbm_read_bytes"] is m["mbu_estimated_percent"] is None
    assert m["hfu_estimated_percent"] == 0.0
    data["instruction"][2]["opcode"] = "MATMUL_OTHER"
    assert measured.metrics(measured.read(written(tmp_path, data)))["hfu_estimated_percent"] is None


def test_an_export_as_parquet_is_marked_as_measured_or_simulated(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    for simulated in (False, True):
        data = export(metadata=[{**CHIP, "is_simulation": simulated}])
        place = tmp_path / str(simulated)
        shown(written(tmp_path, data), "--output-format", "parquet", "--output-file", place)
        table = pq.read_table(place / "Instruction.parquet")
        assert table.schema.names == [f.name for f in fields("Instruction")]
        assert table.num_rows == len(data["instruction"])
        assert pq.read_table(place / "Metadata.parquet").column("is_simulation").to_pylist() == [simulated]
        assert table.schema.metadata[b"is_simulation"] == str(simulated).lower().encode()


def test_packets_beside_the_kernel_s_triggers_are_of_another_run(tmp_path: Path) -> None:
    for shift, told in ((-2000, "before the first trigger at 2290"), (3000, "after the kernel at 8617")):
        data = export(dma=[{**p, "timestamp": p["timestamp"] + shift} for p in packets("sg00")])
        done = CliRunner().invoke(main, ["view", str(written(tmp_path, data)), "--output-format", "summary-json"])
        assert done.exit_code == 1
        assert told in done.stderr
    only_first = [p for p in packets("sg00") if p["packet_idx"] < 5]
    done = CliRunner().invoke(main, ["view", str(written(tmp_path, export(dma=only_first))), "--output-format", "summary-json"])
    assert "before the last trigger at 6500" in done.stderr
    assert measured.read(written(tmp_path, export(dma=[]))).packets.rows == 0


def test_an_id_twice_on_a_core_is_refused_by_its_places(tmp_path: Path) -> None:
    data = export()
    data["instruction"][5]["id"] = data["instruction"][2]["id"]
    with pytest.raises(measured.ProgramError, match=r"instruction\[5\]: id 9 again, as in instruction\[2\]; an id for each record"):
        output.read(written(tmp_path, data))
    data = export(dma=[{**p, "id": 4} for p in packets("sg00")])
    with pytest.raises(measured.ProgramError, match=r"dma\[1\]: id 4 again, as in dma\[0\]"):
        output.read(written(tmp_path, data))


def test_a_row_of_the_instruction_helper_is_a_record_of_the_documented_form() -> None:
    assert {"timestamp", "duration", "label", "opcode", "operands", "pc", "subgraph"} <= set(instruction(0, KERNEL[0], "sg00"))


def test_a_replay_calls_an_exported_simulation_one_and_a_profile_measured(tmp_path: Path) -> None:
    folder = simulate(workloads.load("softmax").build(), values=False).save(tmp_path / "run")
    shown(folder, "--output-format", "json", "--output-file", tmp_path / "own.json")
    own, real = (CliRunner().invoke(main, ["replay", str(p)]).stdout for p in (tmp_path / "own.json", written(tmp_path, export())))
    assert re.search(r"^  body         simulated .* us   as exported \(a simulation\) .* us ", own, re.MULTILINE)
    assert "exported ns" in own
    assert "measured" not in own
    assert re.search(r"^  body         simulated .* us   measured .* us ", real, re.MULTILINE)
    assert "exported" not in real
    keys = [json.loads(CliRunner().invoke(main, ["replay", str(tmp_path / p), "--json"]).stdout) for p in ("own.json", "kernel.json")]
    assert keys[0].keys() == keys[1].keys() >= {"total_measured_ns"}


@needs_perfetto
def test_the_viewer_s_file_of_a_replayed_export_names_both_sides_simulations(tmp_path: Path) -> None:
    folder = simulate(workloads.load("softmax").build(), values=False).save(tmp_path / "run")
    shown(folder, "--output-format", "json", "--output-file", tmp_path / "own.json")
    tracks = pftrace.load(replayed.save(replay(tmp_path / "own.json"), tmp_path / "both.pftrace"))
    assert [t.name for t in tracks if t.level == 1] == ["as exported (a simulation)", "simulated"]


def test_a_replay_of_an_exported_simulation_takes_as_long_as_the_run_did(tmp_path: Path) -> None:
    """No instruction on Sync, and GpSimd's first later than its release. An export has whole ns: starts and body may be 1 ns off."""
    p = Program("copy")
    x, y, t = p.input("x", (128, 8), "float32"), p.output("y", (128, 8), "float32"), p.sbuf((128, 8), "float32")
    p.dma_copy(dst=t, src=x)
    p.dma_copy(dst=y, src=t)
    result = simulate(p, values=False)
    assert {s.engine.label for s in result.steps} == {"GpSimd"}
    shown(result.save(tmp_path / "run"), "--output-format", "json", "--output-file", tmp_path / "own.json")
    r = replay(tmp_path / "own.json")
    assert abs(r.total_measured_ns - result.duration_ns) <= 1
    assert r.start_errors.max() <= 1
