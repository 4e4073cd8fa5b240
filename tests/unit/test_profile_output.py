"""What `nc-sim view --output-format` writes, and what it says of input that it cannot use."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import attrs
import msgpack
import pytest
from click.testing import CliRunner, Result

from nc_sim import simulate, workloads
from nc_sim.__main__ import main
from nc_sim.profile import device, measured, source
from nc_sim.profile.schema import fields
from nc_sim.report.study.rmsnorm import rmsnorm_study
from nc_sim.trace import hardware, system

TRIGGER = (
    "semaphore=8 sem_increment=16 src_elem_size=256 dst_elem_size=256 src_pattern=[256,1][128,1] dst_pattern=[262144,1][128,1] "
    "src_addr_imm=0x800000000000 src_shape_reg=0 dst_addr_imm=0x802000010000 dst_shape_reg=0 compute_op=NONE"
)
CSV = f"""timestamp_ns,duration_ns,evt_wait_ns,engine,opcode,fn,pc,ham_k,operands
0,10,0,Tensor,NOP,,1,,$E[3]+@complete cycle=1
100,500,5,Sync,DMA_DIRECT2D,,2,,"{TRIGGER}"
200,1000,0,Vector,EVENT_SEMAPHORE,,1,,S[8] (qSyncDynamicHW)>=16 setter=0
1200,60,0,Vector,EVENT_SEMAPHORE,,2,,S[9] (x)>=0 setter=0
"""
PACKETS = """timestamp_ns,duration_ns,dma_engine,dma_queue,queue_type,bytes,packet_idx
700,20,64,2,hardware_dynamic,256,0
710,20,65,2,hardware_dynamic,256,0
730,5,64,2,hardware_dynamic,4,1
"""


def view(*arguments: Any) -> Result:
    return CliRunner().invoke(main, ["view", *map(str, arguments)])


def shown(*arguments: Any) -> str:
    result = view(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: Any) -> str:
    result = view(*arguments)
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulate(workloads.load("attention").build(), values=False).save(tmp_path_factory.mktemp("saved"))


@pytest.fixture(scope="module")
def system_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return system.save(rmsnorm_study(4, 512).runtimes["naive"], tmp_path_factory.mktemp("system"))


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    (tmp_path / "tiny.instr.csv").write_text(CSV)
    (tmp_path / "tiny.dma.csv").write_text(PACKETS)
    return tmp_path / "tiny.instr.csv"


# ---- summaries


def test_summary_json_is_one_map_by_key_with_every_metric(folder: Path) -> None:
    data = json.loads(shown(folder, "--output-format", "summary-json"))
    ((key, metrics),) = data.items()
    assert key.startswith("n_")
    assert len(key) == 42
    assert list(metrics)[: len(fields("Summary"))] == [f.name for f in fields("Summary")]
    assert metrics == device.metrics(source.read(folder))
    assert set(metrics) - {f.name for f in fields("Summary")} == {"total_bandwidth_available", "useful_read_percent"}


def test_summary_json_goes_to_a_file_when_told(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "made" / "s.json"
    assert shown(folder, "--output-format", "summary-json", "--output-file", place) == f"summary-json: {place}\n"
    assert place.read_text() == shown(folder, "--output-format", "summary-json")


def test_the_key_differs_between_runs_that_differ(tmp_path: Path) -> None:
    program = workloads.load("rmsnorm").build()
    keys = set()
    for k, changed in enumerate(({}, {"dma.row_ns": 5})):
        saved = simulate(program, values=False, what_if=changed).save(tmp_path / str(k))
        keys.add(next(iter(json.loads(shown(saved, "--output-format", "summary-json")))))
    assert len(keys) == 2


def test_summary_text_names_the_run_and_leaves_out_what_is_not_known(folder: Path) -> None:
    lines = shown(folder, "--output-format", "summary-text").splitlines()
    assert lines[0] == "attention on trn2, simulated"
    assert lines[1].startswith("n_")
    told = dict(line.split() for line in lines[2:])
    assert float(told["total_time"]) == pytest.approx(device.metrics(source.read(folder))["total_time"])
    assert "None" not in told.values()


def test_a_system_trace_is_summed_up_with_every_program_that_ran(system_folder: Path) -> None:
    data = json.loads(shown(system_folder, "--output-format", "summary-json"))
    keys = [k[:2] for k in data]
    trace = system.load(system_folder)
    assert (keys.count("s_"), keys.count("n_"), keys[0]) == (1, len({(m.hash, m.core) for m in trace.models if m.executions}), "s_")
    events = next(iter(data.values()))
    assert events["event_count"] == len(trace.events) == sum(events["event_type_count"].values())
    assert events["event_type_count"]["nc_exec_running"] == 6


# ---- Parquet, JSON, text, Perfetto


def test_parquet_files_stand_in_the_folder_that_is_named(folder: Path, tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    place = tmp_path / "tables"
    assert shown(folder, "--output-format", "parquet", "--output-file", place) == f"parquet: {place}\n"
    table = pq.read_table(place / "Instruction.parquet")
    assert table.num_rows == len(hardware.load(folder).instructions)
    assert pq.read_table(place / "Metadata.parquet").column("is_simulation").to_pylist() == [True]


def test_a_system_profile_has_a_folder_for_each_program(system_folder: Path, tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    shown(system_folder, "--output-format", "parquet", "--output-file", tmp_path)
    names = pq.read_table(tmp_path / "DeviceProfileList.parquet").column("device_profile_name").to_pylist()
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == sorted(names)
    for name in names:
        assert (tmp_path / name / "Summary.parquet").is_file()
    assert pq.read_table(tmp_path / "SystemProfileEvents.parquet").num_rows == len(system.load(system_folder).events)


def test_json_has_the_records_of_the_public_profiler(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "p.json"
    shown(folder, "--output-format", "json", "--output-file", place)
    data = json.loads(place.read_text())
    trace = hardware.load(folder)
    assert len(data["instruction"]) == len(trace.instructions)
    product = next(i for i in data["instruction"] if i["opcode"] == "MATMUL")
    # of a public profile: label TensorMatrix, subgroup Tensor, subgraph sg00; queue "Q0-E64" as subgroup of packets
    assert (product["label"], product["subgroup"], product["subgraph"]) == ("TensorMatrix", "Tensor", "sg00")
    packet = data["dma"][0]
    assert packet["subgroup"] == f"Q{packet['dma_queue']}-E{packet['dma_engine']}"
    assert data["metadata"][0]["is_simulation"] is True
    wanted = {k: v for k, v in device.metrics(source.read(folder)).items() if v is not None and k in {f.name for f in fields("Summary")}}
    assert data["summary"] == [wanted]
    assert {"semaphore_update", "pending_dma", "active_time", "ham", "neff_node", "dma_queues_info", "warnings"} <= set(data)


def test_json_of_a_system_trace_is_a_list_of_events(system_folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "s.json"
    shown(system_folder, "--output-format", "json", "--output-file", place)
    data = json.loads(place.read_text())
    assert list(data) == ["trace_event", "mem_usage", "cpu_util", "device_mem_usage", "warnings"]
    assert len(data["trace_event"]) == len(system.load(system_folder).events)
    assert {e["timestamp_unit"] for e in data["trace_event"]} == {"ns"}


@pytest.mark.parametrize("form", ["json", "summary-json", "summary-text", "perfetto", "text"])
def test_the_same_run_gives_the_same_bytes(form: str, folder: Path, tmp_path: Path) -> None:
    if form == "perfetto":
        pytest.importorskip("perfetto")
    for name in "ab":
        shown(folder, "--output-format", form, "--output-file", tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() != b""


def test_text_goes_to_a_file_when_told(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "t.txt"
    assert shown(folder, "--width", 80, "--output-file", place) == f"text: {place}\n"
    assert place.read_text() == shown(folder, "--width", 80)


def test_perfetto_is_what_the_older_option_writes(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("perfetto")
    shown(folder, "--output-format", "perfetto", "--output-file", tmp_path / "new.pftrace")
    shown(folder, "--perfetto", tmp_path / "old.pftrace")
    assert (tmp_path / "new.pftrace").read_bytes() == (tmp_path / "old.pftrace").read_bytes()


# ---- measured profiles in CSV form


def test_a_csv_profile_gives_the_same_metrics_as_a_simulated_one(profile: Path) -> None:
    m = next(iter(json.loads(shown(profile, "--output-format", "summary-json")).values()))
    assert m["sync_engine_active_time"] == 500e-9
    assert m["vector_engine_active_time"] == 0  # it only waits
    assert (m["hbm_read_bytes"], m["sbuf_write_bytes"]) == (128 * 256, 128 * 256)
    assert m["dma_active_time"] == pytest.approx(35e-9)
    assert (m["hardware_dynamic_dma_packet_count"], m["hardware_dynamic_dma_size"]) == (3, 516)
    assert m["total_exec_time"] == pytest.approx(635e-9)  # from the trigger at 100 to the last packet
    assert m["total_time"] == pytest.approx(1260e-9)  # nothing tells the run's own length
    assert m["hfu_estimated_percent"] is None  # nor the chip


def test_profiles_json_beside_a_csv_profile_tells_length_and_chip(profile: Path) -> None:
    meta = {"pe_clock_freq": 2.4, "pe_clock_others": 1.2, "hbm_ddr_bandwidth": 716e9}
    profile.with_name("profiles.json").write_text(json.dumps({"kernels": {"tiny": {"total_time": 2e-6, "metadata": meta}}}))
    m = next(iter(json.loads(shown(profile, "--output-format", "summary-json")).values()))
    assert (m["total_time"], m["neuroncore_cycle_count"]) == (2e-6, 2400)
    assert m["sync_engine_active_time_percent"] == 0.25
    assert m["mbu_estimated_percent"] == pytest.approx(128 * 256 / 2e-6 / 716e9)


@pytest.mark.parametrize(
    "told", ['{"kernels": {"tiny": {"total_time": "x"}}}', '{"kernels": {"tiny": {"total_time": 1e-6, "metadata": [1]}}}', "[]", "{",
             '{"kernels": {"tiny": {"total_time": NaN}}}', '{"kernels": {"tiny": []}}']
)  # fmt: skip
def test_a_profiles_json_of_another_form_tells_nothing(told: str, profile: Path) -> None:
    profile.with_name("profiles.json").write_text(told)
    m = next(iter(json.loads(shown(profile, "--output-format", "summary-json")).values()))
    assert m["total_time"] == pytest.approx(1260e-9)


def test_a_csv_profile_as_parquet_is_no_simulation(profile: Path, tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    shown(profile, "--output-format", "parquet", "--output-file", tmp_path / "t")
    assert pq.read_table(tmp_path / "t" / "Metadata.parquet").column("is_simulation").to_pylist() == [False]
    schema = pq.read_schema(tmp_path / "t" / "Instruction.parquet")
    assert schema.metadata[b"is_simulation"] == b"false"
    assert schema.names == [f.name for f in fields("Instruction")]


@pytest.mark.parametrize(("version", "times"), [("2.28.23.0%x", 2), ("2.31.0", 1)])
def test_flops_of_an_fp32_pass_are_counted_as_the_profilers_version_did(version: str, times: int, tmp_path: Path) -> None:
    row = "{t},100,0,{e},{o},,{pc},,{text}\n"
    text = CSV.splitlines()[0] + "\n"
    text += row.format(
        t=0, e="Tensor", o="LDWEIGHTS", pc=1, text='" fp32_mode=LOW transpose_mode=DISABLED src=fp32@0x4000[-1,0,0][128,1,1] 128*128"'
    )
    moving = (
        '"acc_flags=1 fp32_mode=LOW_HIGH src=fp32@0x6000[1,0,0][512,1,1] dst=0x2000000[1,0,0][512,1,1] 128*128 S[5] (Tensor)++@complete"'
    )
    text += row.format(t=200, e="TensorMatrix", o="MATMUL", pc=2, text=moving)
    (tmp_path / "p.instr.csv").write_text(text)
    (tmp_path / "p.dma.csv").write_text(PACKETS)
    told = {"total_time": 1e-6, "profiler_version": version}
    (tmp_path / "profiles.json").write_text(json.dumps({"kernels": {"p": told}}))
    m = measured.metrics(measured.read(tmp_path / "p.instr.csv"))
    half = 128 * 128 * 512  # a pass has half of 2 x 128 x 128 x 512
    assert (m["hardware_flops"], m["adjusted_hardware_flops"]) == (half * times, 4 * half)


# ---- input that is of no use


def test_a_folder_without_a_trace_is_named(tmp_path: Path) -> None:
    assert "no trace" in refused(tmp_path, "--output-format", "summary-json")
    assert "No such file" in refused(tmp_path / "nowhere", "--output-format", "summary-json")


def test_half_a_pair_names_the_half_that_is_missing(folder: Path, tmp_path: Path) -> None:
    trace, program = (next(folder.glob(p)) for p in ("*.ntff.msgpack", "*.neff.msgpack"))
    (tmp_path / program.name).write_bytes(program.read_bytes())
    assert f"{program.name} without a trace" in refused(tmp_path, "--output-format", "summary-json")
    assert "a program, not a trace" in refused(tmp_path / program.name, "--output-format", "summary-json")
    (tmp_path / program.name).rename(tmp_path / "kept")
    (tmp_path / trace.name).write_bytes(trace.read_bytes())
    message = refused(tmp_path, "--output-format", "summary-json")
    assert program.name in message
    assert f"the program of {trace.name}" in message


def test_a_program_of_another_run_is_told_by_its_sum(folder: Path, tmp_path: Path) -> None:
    trace, program = (next(folder.glob(p)) for p in ("*.ntff.msgpack", "*.neff.msgpack"))
    other = simulate(workloads.load("rmsnorm").build(), values=False).save(tmp_path / "other")
    (tmp_path / trace.name).write_bytes(trace.read_bytes())
    (tmp_path / program.name).write_bytes(next(other.glob("*.neff.msgpack")).read_bytes())
    assert "SHA-256" in refused(tmp_path / trace.name, "--output-format", "parquet", "--output-file", tmp_path / "t")
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("which", ["*.ntff.msgpack", "*.neff.msgpack"])
def test_a_file_that_is_cut_off_is_named(which: str, folder: Path, tmp_path: Path) -> None:
    for path in folder.glob("*.msgpack"):
        data = path.read_bytes()
        (tmp_path / path.name).write_bytes(data[: len(data) // 2] if path.match(which) else data)
    assert next(tmp_path.glob(which)).name in refused(tmp_path, "--output-format", "summary-json")


def _repacked(folder: Path, to: Path, change: dict[str, Any]) -> None:
    """The pair with keys of the program file changed, and its sum in the trace made right."""
    trace, program = hardware.load(folder), next(folder.glob("*.neff.msgpack"))
    data = msgpack.packb({**msgpack.unpackb(program.read_bytes()), **change})
    (to / program.name).write_bytes(data)
    (to / trace.path.name).write_bytes(hardware.pack(attrs.evolve(trace, program_sha256=hashlib.sha256(data).hexdigest())))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"version": 9}, "version: 9"),
        ({"format": "other"}, "format: 'other'"),
        ({"machine": b"\x93\x01"}, "0 instructions"),
        ({"machine": msgpack.packb([1, 2])}, "unreadable"),
        ({"machine": b""}, "0 instructions"),
        ({"addresses": b"\x01"}, "unreadable"),
        ({"addresses": msgpack.packb({"q": 0})}, "no address of tensor"),
        ({"chip": {"name": "trn2"}}, "unreadable"),
        ({"program": b"\x01"}, "program"),
    ],
)
def test_a_damaged_program_file_is_one_error(change: dict[str, Any], told: str, folder: Path, tmp_path: Path) -> None:
    _repacked(folder, tmp_path, change)
    message = refused(tmp_path, "--output-format", "summary-json")
    assert next(folder.glob("*.neff.msgpack")).name in message
    assert told in message


def test_a_trace_of_another_version_is_refused(folder: Path, tmp_path: Path) -> None:
    trace = next(folder.glob("*.ntff.msgpack"))
    (tmp_path / trace.name).write_bytes(msgpack.packb({**msgpack.unpackb(trace.read_bytes()), "version": 2}))
    assert "version: 2" in refused(tmp_path, "--output-format", "json", "--output-file", tmp_path / "x")


@pytest.mark.parametrize("name", ["x.ntff", "x.neff", "ntrace.pb", "Instruction.parquet", "x.pftrace"])
def test_files_of_other_tools_are_called_what_they_are(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"{}")
    message = refused(tmp_path / name, "--output-format", "summary-text")
    assert any(word in message for word in ("binary trace", "compiled program", "runtime trace", "table", "Perfetto"))
    assert "NAME.instr.csv" in message


def test_any_other_file_is_no_trace(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello")
    assert "nc-sim hardware trace" in refused(tmp_path / "x", "--output-format", "summary-text")


def test_a_broken_csv_profile_names_file_and_line(profile: Path) -> None:
    packets = profile.with_name("tiny.dma.csv")
    packets.write_text(PACKETS.replace("710,20", "710,twenty"))
    assert "tiny.dma.csv:3" in refused(profile, "--output-format", "summary-text")
    packets.write_text(PACKETS.replace("hardware_dynamic,4", "other,4"))
    assert "queue_type is 'other'" in refused(profile, "--output-format", "summary-text")
    packets.write_text("a,b\n1,2\n")
    assert "no column 'timestamp_ns'" in refused(profile, "--output-format", "summary-text")
    packets.unlink()
    assert "tiny.dma.csv" in refused(profile, "--output-format", "summary-text")


@pytest.mark.parametrize("form", ["json", "perfetto"])
def test_what_a_csv_profile_does_not_hold_is_refused(form: str, profile: Path, tmp_path: Path) -> None:
    assert "a profile of hardware" in refused(profile, "--output-format", form, "--output-file", tmp_path / "x")


@pytest.mark.parametrize("form", ["parquet", "json", "perfetto"])
def test_a_format_that_is_not_printed_needs_a_place(form: str, folder: Path) -> None:
    assert "--output-file" in refused(folder, "--output-format", form)


def test_options_that_do_not_go_together_are_refused(folder: Path, system_folder: Path, tmp_path: Path) -> None:
    assert "--output-format text" in refused(folder, "--output-format", "summary-json", "--perfetto", tmp_path / "x")
    assert "no text to write" in refused(system_folder, "--perfetto", tmp_path / "x", "--output-file", tmp_path / "y")


def test_a_place_that_cannot_be_written_is_found_first(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "not a folder" in refused(folder, "--output-format", "json", "--output-file", tmp_path / "file" / "x")
    assert "a folder" in refused(folder, "--output-format", "summary-json", "--output-file", tmp_path)
    pytest.importorskip("pyarrow")
    assert "cannot be written" in refused(folder, "--output-format", "parquet", "--output-file", tmp_path / "file")


def test_a_missing_package_names_the_extra(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.split(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    message = refused(folder, "--output-format", "parquet", "--output-file", tmp_path / "t")
    assert "pip install '.[parquet]' in the clone of nc-sim" in message
    assert not (tmp_path / "t").exists()
