"""JSON exports of the public profiler: read as the CSV of the same records is, or refused with one clear error."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nc_sim import ProgramError, replay
from nc_sim.__main__ import main
from nc_sim.isa import Engine
from nc_sim.isa.errors import Unimplemented
from nc_sim.trace import profile_csv, profile_packets

# a kernel of four instructions: a software load, a copy of it, its store, and the wait for that
KERNEL = [
    (1000, 13, "Sync", "NOP", "S[0]>=0 cycle=0"),
    (
        2290, 31, "GpSimd", "DMA_DIRECT2D",
        "semaphore=8 sem_increment=16 src_elem_size=2048 dst_elem_size=2048 src_pattern=[2048,1][128,1] dst_pattern=[262144,1][128,1] "
        "src_table_offset_imm=0x0 src_table_index=0 dst_addr_imm=0x802000004000 compute_op=NONE",
    ),
    (
        4700, 586, "Scalar", "COPY",
        "S[8] (qGpSimdDynamic)>=16 S[4] (Scalar)++@complete src=fp32@0x4000[1,1,1,1][512,1,1,1] "
        "dst=fp32@0x8000[1,1,1,1][512,1,1,1] channels=128",
    ),
    (
        6500, 37, "GpSimd", "DMA_DIRECT2D",
        "S[4] (Scalar)>=1 semaphore=9 sem_increment=16 src_elem_size=2048 dst_elem_size=2048 src_pattern=[262144,1][128,1] "
        "dst_pattern=[2048,1][128,1] src_addr_imm=0x802000008000 dst_table_offset_imm=0x0 dst_table_index=1 compute_op=NONE",
    ),
    (8600, 17, "GpSimd", "NOP", "S[9] (qGpSimdDynamic)>=16 cycle=0"),
]  # fmt: skip
RUNTIME = [(84, 70, "Tensor", "WRITE", "data=0x2 size=4"), (400, 20, "Vector", "EVENT_SEMAPHORE", "$S[2]>=1")]


def instruction(k: int, row: tuple[int, int, str, str, str], core: str) -> dict[str, Any]:
    start, length, engine, opcode, operands = row
    return {
        "timestamp": start, "duration": length, "label": engine, "subgroup": engine, "opcode": opcode, "operands": f" {operands} ",
        "pc": k, "subgraph": core, "activation_fn": "", "id": 7 + k,
    }  # fmt: skip


def packets(core: str) -> list[dict[str, Any]]:
    out = []
    for n, first in enumerate((3050, 7200)):
        for engine in range(16):
            for k, size in enumerate((4096, 4096, 4096, 4096, 4)):
                out.append(
                    {
                        "timestamp": first + 10 * engine + 156 * k, "duration": 158 if size > 4 else 9, "dma_engine": str(64 + engine),
                        "dma_queue": "0", "queue_type": "software_dynamic", "transfer_size": size, "packet_idx": 5 * n + k,
                        "subgraph": core, "aggregated": "no", "duplicate": "no",
                    }
                )  # fmt: skip
    return out


def export(active: str = "sg00", **changes: Any) -> dict[str, Any]:
    """A profile of two cores, one of them idle."""
    idle = {"sg00": "sg01", "sg01": "sg00"}[active]
    rows = [instruction(k, r, active) for k, r in enumerate([*RUNTIME, *KERNEL])]
    rows += [instruction(k, r, idle) for k, r in enumerate(RUNTIME)]
    data = {
        "metadata": {"data_version": 8, "ntff_version": 6, "num_physical_cores": 2},
        "instruction": rows,
        "dma": packets(active),
        "ham": [{"timestamp": 5400, "duration": 900, "k": 8, "n": 8, "subgraph": active}],
        "summary": {"total_time": 1e-5},
    }
    return {**data, **changes}


def written(folder: Path, data: Any) -> Path:
    path = folder / "kernel.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


@pytest.mark.parametrize(("active", "core"), [("sg00", 0), ("sg01", 1)])
def test_the_core_that_runs_a_kernel_is_chosen(tmp_path: Path, active: str, core: int) -> None:
    profile = profile_csv.read(written(tmp_path, export(active)))
    assert (profile.core, profile.name) == (core, "kernel")
    assert [(s.engine, m.opcode, m.start_ns) for s, m in zip(profile.steps, profile.measured, strict=True)] == [
        (Engine.SYNC, "NOP", 1000), (Engine.GPSIMD, "DMA_DIRECT2D", 2290), (Engine.SCALAR, "COPY", 4700),
        (Engine.GPSIMD, "DMA_DIRECT2D", 6500), (Engine.GPSIMD, "NOP", 8600),
    ]  # fmt: skip
    assert profile.packets is not None
    assert len(profile.packets) == 2 * 16 * 5


def test_the_gate_opens_where_the_windows_of_that_core_say(tmp_path: Path) -> None:
    other = {"timestamp": 2000, "duration": 100, "k": 8, "n": 8, "subgraph": "sg01"}
    slow = {"timestamp": 300, "duration": 100, "k": 4, "n": 8, "subgraph": "sg00"}
    profile = profile_csv.read(written(tmp_path, export(ham=[other, slow, *export()["ham"]])))
    assert (profile.gate_phase_ns, profile.gate_source) == (5400 - 1000, "the profile's windows: first rise to full rate")
    assert profile_csv.read(written(tmp_path, export(ham=[]))).gate_source == "nominal: the trace does not tell"


def test_dma_latencies_are_those_of_the_packets_in_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, export())
    profile = profile_csv.read(path)
    # the last engine's semaphore packet: 3050 + 150 + 4 x 156 + 9 is 3833, 1543 after its trigger
    assert profile_packets.measured_dma(path, profile) == {1: 3833 - 2290, 3: 7200 + 150 + 624 + 9 - 6500}
    r = replay(path, dma_from_trace=True)
    assert r.starts[2] - r.starts[1] == pytest.approx(1543 + 315 + 34, abs=0.5)  # load_done_ns and the hop


def test_packets_that_stand_for_others_do_not_count(tmp_path: Path) -> None:
    again = [{**p, "duplicate": "yes"} for p in packets("sg00")] + [{**p, "aggregated": "yes"} for p in packets("sg00")]
    profile = profile_csv.read(written(tmp_path, export(dma=[*packets("sg00"), *again, *packets("sg01")])))
    assert profile.packets is not None
    assert len(profile.packets) == 2 * 16 * 5


def test_an_export_replays_as_the_csv_of_its_records(tmp_path: Path) -> None:
    with (tmp_path / "kernel.instr.csv").open("w", newline="") as f:
        w = csv.writer(f)
        w.writerow(("timestamp_ns", "duration_ns", "engine", "opcode", "operands", "pc"))
        w.writerows([(s, d, e, o, t, k) for k, (s, d, e, o, t) in enumerate([*RUNTIME, *KERNEL])])
    one = replay(written(tmp_path, export()), gate_phase_ns=0)
    two = replay(tmp_path / "kernel.instr.csv", gate_phase_ns=0)
    assert one.timeline == two.timeline
    assert one.summary() == {**two.summary(), "trace": "kernel"}
    assert one.total_measured_ns == 8617 - 1000


def test_real_records_replay_alike_from_both_forms(traces: Path, tmp_path: Path) -> None:
    for name in ("fused_fp32_s512", "baseline_bf16_s512"):
        with (traces / f"{name}.instr.csv").open(newline="") as f:
            rows = list(csv.DictReader(f))
        with (traces / f"{name}.dma.csv").open(newline="") as f:
            moved = list(csv.DictReader(f))
        data = export()
        keys = (("timestamp", "timestamp_ns"), ("duration", "duration_ns"), ("label", "engine"), ("pc", "pc"))
        data["instruction"] = [
            {**{k: int(r[c]) if r[c].isdigit() else r[c] for k, c in keys}, "opcode": r["opcode"], "operands": r["operands"],
             "activation_fn": r["fn"], "subgraph": "sg00"} for r in rows
        ]  # fmt: skip
        data["dma"] = [
            {"timestamp": int(p["timestamp_ns"]), "duration": int(p["duration_ns"]), "dma_engine": p["dma_engine"], "subgraph": "sg00",
             "dma_queue": p["dma_queue"], "queue_type": p["queue_type"], "transfer_size": int(p["bytes"]),
             "packet_idx": int(p["packet_idx"])} for p in moved
        ]  # fmt: skip
        given = profile_csv.read(traces / f"{name}.instr.csv")
        data["ham"] = [{"timestamp": int((given.gate_phase_ns or 0) + given.origin_ns), "k": 8, "n": 8, "subgraph": "sg00"}]
        path = written(tmp_path, data)
        for measured in (False, True):
            one, two = (replay(p, dma_from_trace=measured) for p in (path, traces / f"{name}.instr.csv"))
            assert one.timeline == two.timeline


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{", "kernel.json:1: not JSON at column 2"),
        (json.dumps(export())[:2000], "is the file cut off?"),
        ('{"a": 1} x', "not JSON at column 10: Extra data"),
        ("[" * 100_000, "JSON nested too deeply"),
        ({"traceEvents": []}, "a Chrome trace; a device profile"),
        ([{"ph": "X", "ts": 1}], "a Chrome trace; a device profile"),
        ({"trace_event": [], "mem_usage": []}, "a system profile; a device profile"),
        ({"n_12ab": {"total_time": 1}}, "a summary, which has no instructions; a device profile"),
        ({"a": 1}, "JSON without a table 'instruction' (it has 'a')"),
        ({}, "JSON without a table 'instruction' (it has nothing)"),
        ([1, 2], "JSON that is a list"),
        (export(metadata={"data_version": 9}), "data version 9; a profile of data version 8"),
        (export(metadata={}), "no metadata.data_version; a profile of data version 8"),
        (export(metadata=[]), "no metadata.data_version; a profile of data version 8"),
        (export(instruction={}), "kernel.json: instruction: {}; a list of records"),
        (export(dma=[1]), "kernel.json: dma: [1]; a list of records"),
        (export(instruction=[]), "every core is idle (none): no instruction of a kernel; a kernel body on one of them"),
        (
            export(instruction=[instruction(k, r, c) for c in ("sg00", "sg01") for k, r in enumerate(RUNTIME)]),
            "every core is idle (sg00, sg01): no instruction of a kernel; a kernel body on one of them",
        ),
        (
            export(instruction=[instruction(k, r, c) for c in ("sg00", "sg01") for k, r in enumerate(KERNEL)]),
            "2 cores with a kernel: 5 on core 0, 5 on core 1 instructions; one of them by its number: core=, --core",
        ),
    ],
)
def test_a_file_that_is_no_usable_profile_is_one_error_that_says_what_it_is(tmp_path: Path, data: Any, message: str) -> None:
    path = written(tmp_path, data)
    with pytest.raises(ProgramError) as e:
        replay(path)
    assert message in str(e.value)
    run = CliRunner().invoke(main, ["replay", str(path)])
    assert run.exit_code == 1
    assert run.stderr == f"error: {e.value}\n"
    assert run.stdout == ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"timestamp": None}, "kernel.json: instruction[3]: no 'timestamp'; a record with timestamp, duration"),
        ({"timestamp": -5}, "kernel.json: instruction[3]: timestamp is -5; a whole number of at least 0"),
        ({"duration": 1.5}, "kernel.json: instruction[3]: duration is 1.5; a whole number of at least 0"),
        ({"pc": True}, "kernel.json: instruction[3]: pc is True; a whole number of at least 0"),
        ({"label": "Pool"}, "kernel.json: instruction[3]: engine 'Pool'; one of Tensor"),
        ({"subgraph": ""}, "kernel.json: instruction[3]: subgraph ''; the core's: sg00, sg01 ..."),
        ({"operands": "semaphore=8"}, "kernel.json: instruction[3] DMA_DIRECT2D: "),
    ],
)
def test_a_faulty_record_is_named_by_its_place(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    data = export()
    data["instruction"][3].update(change)
    with pytest.raises(ProgramError) as e:
        profile_csv.read(written(tmp_path, data))
    assert message in str(e.value)


def test_an_opcode_nobody_knows_is_named_by_its_place(tmp_path: Path) -> None:
    data = export()
    data["instruction"][4]["opcode"] = "FROBNICATE"
    with pytest.raises(Unimplemented, match=r"^kernel.json: instruction\[4\]: opcode FROBNICATE; one of"):
        profile_csv.read(written(tmp_path, data))


def test_a_core_can_be_named_where_both_run_a_kernel(tmp_path: Path) -> None:
    later = [(start + 77, *rest) for start, *rest in KERNEL]
    rows = [instruction(k, r, c) for c, of in (("sg00", KERNEL), ("sg01", later)) for k, r in enumerate(of)]  # type: ignore[arg-type]
    path = written(tmp_path, export(instruction=rows))
    assert [profile_csv.read(path, core=c).origin_ns for c in (0, 1)] == [1000, 1077]
    assert json.loads(CliRunner().invoke(main, ["replay", str(path), "--core", "1", "--json"]).stdout)["total_measured_ns"] == 7617
    with pytest.raises(ProgramError, match="core 2; one of the 2 in the file: 0, 1"):
        profile_csv.read(path, core=2)


def test_a_named_core_without_a_kernel_has_no_body(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="no kernel body"):
        profile_csv.read(written(tmp_path, export()), core=1)


def test_a_csv_has_no_cores_to_choose_from(tmp_path: Path) -> None:
    (tmp_path / "kernel.instr.csv").write_text("timestamp_ns\n")
    with pytest.raises(ProgramError, match="core 0 of a CSV; a JSON export"):
        profile_csv.read(tmp_path / "kernel.instr.csv", core=0)


def test_a_queue_is_in_order_of_its_places_and_of_time_where_they_repeat(tmp_path: Path) -> None:
    copies = [(4700 + 900 * k, 586, "Scalar", "COPY", KERNEL[2][4]) for k in range(4)]
    for places, starts in (([3, 2, 5, 4], [5600, 4700, 7400, 6500]), ([2, 3, 2, 3], [4700, 5600, 6500, 7400])):
        rows = [instruction(k, r, "sg00") for k, r in enumerate(KERNEL[:2])]
        rows += [{**instruction(0, r, "sg00"), "pc": pc, "id": f"copy {k}"} for k, (r, pc) in enumerate(zip(copies, places, strict=True))]
        profile = profile_csv.read(written(tmp_path, export(instruction=rows, dma=[])))
        assert [m.start_ns for m in profile.measured if m.opcode == "COPY"] == starts


def test_a_missing_export_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=r"none.json: cannot be read: No such file"):
        replay(tmp_path / "none.json")
