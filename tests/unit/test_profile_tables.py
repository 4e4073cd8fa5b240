"""The tables of a profile: every one against the published schema, and what they say against the trace they come from."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from test_profile_packets import crowd

from nc_sim import Program, Result, simulate, workloads
from nc_sim.isa.errors import InternalError
from nc_sim.profile import device, parquet, source, system
from nc_sim.profile.schema import Field, fields, load
from nc_sim.profile.table import Some, Table, Words, from_rows, merged, of, rounded_ns
from nc_sim.report import profile_tables
from nc_sim.report.study.rmsnorm import rmsnorm_study
from nc_sim.runtime import Runtime
from nc_sim.trace import system as system_trace

DATA = profile_tables.written()
PYTHON = {"int64": int, "int32": int, "double": float, "bool": bool, "string": str, "list<string>": list, "list<int64>": list}


def scale() -> Program:
    p = Program("scale_exp")
    x, y = p.input("x", (128, 512), "float32"), p.output("y", (128, 512), "float32")
    t = p.sbuf((128, 512), "float32")
    p.dma_copy(dst=t, src=x)
    p.activation(dst=t, op="exp", data=t, scale=0.5)
    p.dma_copy(dst=y, src=t)
    return p


def own_semaphores() -> Program:
    """A program with semaphores of its own, one of which is set back, and one update on read."""
    p = Program("own")
    x, y = p.input("x", (128, 64), "float32"), p.output("y", (128, 64), "float32")
    t, u = p.sbuf((128, 64), "float32"), p.sbuf((128, 64), "float32")
    loaded, done = p.semaphore("loaded"), p.semaphore("done")
    p.dma_copy(dst=t, src=x, engine="sync", dge_mode="hwdge", update=[loaded.add(16)])
    p.tensor_copy(dst=u, src=t, engine="vector", wait=[loaded >= 16], update=[loaded.set(0, when="read"), done.add(3)])
    p.tensor_copy(dst=u, src=u, engine="vector", wait=[done >= 3], update=[done.sub(1)])
    p.dma_copy(dst=y, src=u, engine="sync", dge_mode="hwdge", wait=[done >= 2], update=[loaded.add(16)])
    return p


def run(program: Program) -> Result:
    return simulate(program, values=False, races="ignore")


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Table]]:
    """Device profiles of many programs, and a system profile."""
    programs = [*(workloads.load(n).build() for n in workloads.NAMES), crowd(8), own_semaphores(), Program("empty")]
    out = {p.name: device.tables(source.of_result(run(p))) for p in programs}
    folder = run(scale()).save(tmp_path_factory.mktemp("saved"))
    out["saved"] = device.tables(source.read(folder))
    out["system"] = system.tables(system_trace.trace_of(_runtime(), devices=False))
    return out


def _runtime() -> Runtime:
    return rmsnorm_study(4, 512).runtimes["naive"]


@pytest.fixture(scope="module")
def one() -> tuple[source.Device, dict[str, dict[str, list[Any]]]]:
    made = source.of_result(run(scale()))
    return made, {name: t.columns() for name, t in device.tables(made).items()}


# ---- against the schema


def every(profiles: dict[str, dict[str, Table]]) -> Iterator[tuple[str, Table, Field, list[Any]]]:
    for profile, tables in profiles.items():
        for name, table in tables.items():
            columns = table.columns()
            for f in fields(name):
                yield f"{profile}.{name}.{f.name}", table, f, columns[f.name]


def test_every_value_of_every_table_has_the_published_type(profiles: dict[str, dict[str, Table]]) -> None:
    for where, _, f, column in every(profiles):
        wrong = [v for v in column if v is not None and type(v) is not PYTHON[f.stored]]
        assert not wrong, f"{where}: {wrong[0]!r} is no {f.type}"
        if f.stored == "int32":
            assert all(v is None or -(2**31) <= v < 2**31 for v in column), where
        if f.allowed and f.stored == "string":
            assert {v for v in column if v is not None} <= set(f.allowed), where


def test_every_table_has_exactly_the_published_columns_and_one_length(profiles: dict[str, dict[str, Table]]) -> None:
    for tables in profiles.values():
        for name, table in tables.items():
            columns = table.columns()
            assert list(columns) == [f.name for f in fields(name)]
            assert {len(c) for c in columns.values()} == {table.rows}


def test_percent_columns_are_fractions(profiles: dict[str, dict[str, Table]]) -> None:
    for where, _, f, column in every(profiles):
        if f.unit == "percent" or f.name.endswith("_percent"):
            assert all(v is None or 0 <= v <= 1 for v in column), where


def test_nothing_ends_before_it_starts_and_nothing_happens_outside_the_profile(profiles: dict[str, dict[str, Table]]) -> None:
    for profile, tables in profiles.items():
        if profile == "system":
            continue
        end = tables["Metadata"].columns()["last_hw_timestamp"][0]
        for name, table in tables.items():
            c = table.columns()
            for a, b, d in zip(c.get("start_ts", ()), c.get("end_ts", ()), c.get("duration_ns", itertools.repeat(None)), strict=False):
                assert 0 <= a <= b <= end, f"{profile}.{name}"
                assert d in (None, b - a), f"{profile}.{name}"


def test_the_documented_columns_are_null_and_no_others_are(profiles: dict[str, dict[str, Table]]) -> None:
    """Over all profiles together: what the generated page says is what the tables hold."""
    filled: dict[str, set[str]] = {}
    rows: dict[str, int] = {}
    for tables in profiles.values():
        for name, table in tables.items():
            rows[name] = rows.get(name, 0) + table.rows
            filled.setdefault(name, set()).update(k for k, c in table.columns().items() if any(v is not None for v in c))
    assert set(filled) == set(DATA["rows"])
    for name, seen in filled.items():
        if rows[name]:
            missing = {f.name for f in fields(name)} - seen
            assert missing == set(profile_tables.null_columns(name)), name
    assert {n for n, count in rows.items() if not count} == {
        "KernelIterationVariables", "KernelStackFrames", "StackFrameFunctionName", "Warning",
    }  # fmt: skip


def test_every_published_table_is_written_or_said_not_to_be() -> None:
    absent = [n for names, _ in DATA["absent"] for n in names]
    assert sorted([*DATA["rows"], *absent]) == sorted(load().tables)


def test_the_schema_has_the_known_numbers_of_tables_and_columns() -> None:
    # profile schema reference 7.4.0: 52 tables, 656 columns
    assert (load().version, len(load().tables), sum(map(len, load().tables.values()))) == ("7.4.0", 52, 656)
    assert fields("Throttle")[1] == Field("k", "integer (int32)", None, True)
    assert fields("DmaPacket")[11].unit == "bytes_per_second"


def test_schema_fields_lists_every_column_with_type_format_and_unit() -> None:
    c = device.schema_fields().columns()
    rows = {
        (t, f): rest
        for t, f, *rest in zip(
            *(c[k] for k in ("table_name", "field_name", "field_type", "field_format", "field_unit", "field_enum_values")), strict=True
        )
    }
    assert len(rows) == 656
    assert rows["Instruction", "start_ts"] == ["integer", "int64", "nanoseconds", None]
    assert rows["Instruction", "performance_mode"] == ["string", None, None, "2x,4x"]
    assert rows["SystemProfileEvents", "flow_id"] == ["array of string", None, None, None]


# ---- what the tables say


def test_times_count_from_the_start_of_the_execution(one: Any) -> None:
    made, tables = one
    trace = made.trace
    assert tables["Instruction"]["start_ts"] == [t + 13_600 for t in trace.instructions.start.ns.tolist()]  # prologue_ns of trn2
    assert tables["Metadata"]["last_hw_timestamp"] == [13_600 + trace.metadata["duration_ns"] + 1_700]
    assert tables["Metadata"]["is_simulation"] == [True]
    assert tables["Metadata"]["first_ts"] == ["1970-01-01 00:00:00.000000000+00:00"]


def test_the_chip_stands_in_the_metadata(one: Any) -> None:
    meta = {k: v[0] for k, v in one[1]["Metadata"].items()}
    # observed in public trn2 profiles: 716e9, 435e9, 128 x 128, 2.4 GHz, base clock 1.2 GHz; nc-sim's DMA moves 16 x 27.2 B/ns
    assert (meta["hbm_ddr_bandwidth"], meta["dma_ddr_bandwidth"]) == (716e9, 435.2e9)
    assert (meta["tensor_engine_num_rows"], meta["tensor_engine_num_cols"], meta["tensor_engine_clock_freq"]) == (128, 128, 2.4)
    assert (meta["neuroncore_clock_freq"], meta["vector_engine_clock_freq"], meta["num_dma_engines_per_neuroncore"]) == (1.2, 0.96, 16)


def test_a_trigger_tells_its_dma_and_the_dma_its_trigger(one: Any) -> None:
    i, d = one[1]["Instruction"], one[1]["DmaPacketAggregated"]
    triggers = [k for k, o in enumerate(i["opcode"]) if o == "DMA_DIRECT2D"]
    assert len(triggers) == 2
    for n, k in enumerate(triggers):
        assert (i["dma_trigger_start_ts"][k], i["dma_trigger_end_ts"][k]) == (d["start_ts"][n], d["end_ts"][n])
        assert i["dma_wait_time_ns"][k] == d["start_ts"][n] - i["end_ts"][k]
        assert (d["trigger"][n], d["completion"][n]) == (i["start_ts"][k], i["end_ts"][k])
    assert all(v is None for k, v in enumerate(i["dma_trigger_start_ts"]) if k not in triggers)


def test_a_dma_names_its_tensor_places_partitions_pattern_and_semaphore(one: Any) -> None:
    d = one[1]["DmaPacketAggregated"]
    assert d["variable"] == ["x", "y"]
    assert (d["source"], d["dest"]) == (["[INPUT]", "[SB]"], ["[SB]", "[OUTPUT]"])
    assert (d["read_sbuf_partitions"], d["write_sbuf_partitions"]) == ([None, "0-127"], ["0-127", None])
    assert (d["read_num_sbuf_partitions"], d["write_num_sbuf_partitions"]) == ([0, 128], [128, 0])
    assert d["read_bytes"] == d["write_bytes"] == d["transfer_bytes"] == [128 * 512 * 4] * 2
    # rows of 2,048 bytes, one to a partition of SBUF, which are 0x40000 apart; contiguous in HBM
    assert (d["read_shape"][0], d["read_steps"][0], d["read_offset"][0]) == ("[2048, 128]", "[1, 2048]", "[0x0]")
    assert (d["write_shape"][0], d["write_steps"][0]) == ("[2048, 128]", "[1, 262144]")
    assert d["queue_type"] == ["software_dynamic"] * 2
    assert all(s.startswith("S[") and "qGpSimdDynamic" in s for s in d["semaphore_id"])
    assert d["block_id"] == [0, 1]


def test_packets_add_up_to_their_dma(one: Any) -> None:
    p, d = one[1]["DmaPacket"], one[1]["DmaPacketAggregated"]
    for n in d["id"]:
        mine = [k for k, a in enumerate(p["packet_aggregation_id"]) if a == n]
        data = [k for k in mine if p["transfer_bytes"][k] != 4]
        assert sum(p["transfer_bytes"][k] for k in data) == d["transfer_bytes"][n]
        assert len(mine) - len(data) == 16  # one semaphore packet on each engine
        assert (min(p["start_ts"][k] for k in mine), max(p["end_ts"][k] for k in mine)) == (d["start_ts"][n], d["end_ts"][n])
        assert sorted(p["packet_idx"][k] for k in mine) == list(range(len(mine)))
    assert set(p["engine_idx"]) == set(range(16))
    assert p["queue_name"][0] == "qGpSimdDynamic-Q0-E0"
    assert p["id"] == list(range(len(p["id"])))


def test_throughput_is_bytes_over_duration(one: Any) -> None:
    for table in ("DmaPacket", "DmaPacketAggregated"):
        c = one[1][table]
        for size, ns, rate in zip(c["transfer_bytes"], c["duration_ns"], c["throughput"], strict=True):
            assert rate == (pytest.approx(size / (ns * 1e-9)) if ns else None)


def test_static_queues_are_input_output_or_data_by_what_they_carry() -> None:
    p = Program("static")
    x, y, c = p.input("x", (128, 64), "float32"), p.output("y", (128, 64), "float32"), p.constant(np.ones((128, 64), np.float32))
    t, u = p.sbuf((128, 64), "float32"), p.sbuf((128, 64), "float32")
    for dst, src in ((t, x), (u, c), (y, t)):
        p.dma_copy(dst=dst, src=src, engine="sync", dge_mode="none")
    tables = device.tables(source.of_result(run(p)))
    assert tables["DmaPacketAggregated"].columns()["queue_type"] == ["input", "data", "output"]
    i, s = tables["Instruction"].columns(), tables["Summary"].columns()
    size = 128 * 64 * 4
    for kind in ("input", "output", "weight"):
        assert sum(i[f"{kind}_queue_bytes"]) == size
        assert s[f"{kind}_queue_bytes"] == [size]
    assert s["static_dma_packet_count"] == [3 * (128 + 16)]


def test_the_rate_of_dma_over_time_moves_every_byte(one: Any) -> None:
    for name in ("DmaUsage", "HbmUsage"):
        c = one[1][name]
        moved = sum(r * (b - a) / 1e9 for r, a, b in zip(c["current_throughput"], c["timestamp"], c["timestamp"][1:], strict=False))
        assert moved == pytest.approx(2 * 128 * 512 * 4)
        assert c["total_transfer_bytes"][-1] == 2 * 128 * 512 * 4
        assert c["total_transfer_bytes"] == sorted(c["total_transfer_bytes"])
        assert c["current_throughput"][-1] == 0


def test_pending_dma_counts_from_trigger_to_completion(one: Any) -> None:
    c, d = one[1]["PendingDma"], one[1]["DmaPacketAggregated"]
    wanted = sorted([(t, 1) for t in d["trigger"]] + [(t, -1) for t in d["end_ts"]])
    assert c["timestamp"] == [t for t, _ in wanted]
    assert c["value"] == list(itertools.accumulate(v for _, v in wanted))


def test_sbuf_holds_a_tensor_from_its_first_byte_to_its_last_use(one: Any) -> None:
    c, d, u = one[1]["SbufAllocation"], one[1]["DmaPacketAggregated"], one[1]["SbufUsage"]
    assert c["partition"] == [0, 32, 64, 96]
    assert set(c["start_ts"]) == {d["start_ts"][0]}
    assert set(c["end_ts"]) == {d["end_ts"][1]}
    assert {b - a + 1 for a, b in zip(c["start_address"], c["end_address"], strict=True)} == {2048}
    assert set(zip(c["op_source_type"], c["queue_name"], c["block_id"], c["tensor_name"], strict=True)) == {
        ("dma", "qGpSimdDynamic-Q0", 0, "sbuf2")
    }
    # 2,048 of 229,376 bytes in every partition
    assert u["avg_util_percent"] == [pytest.approx(2048 / 229376), 0]
    assert u["partition_96_util_percent"] == [pytest.approx(2048 / 229376), 0]


def test_psum_is_full_by_bank_and_partition() -> None:
    p = Program("banks")
    a, b = p.sbuf((128, 64), "bfloat16"), p.sbuf((128, 32), "bfloat16")
    for t in (a, b):
        p.memset(dst=t, value=1.0)
    p.nc_matmul(dst=p.psum((32, 64)), stationary=b, moving=a)
    c = device.tables(source.of_result(run(p)))["PsumUsage"].columns()
    # 32 of 128 partitions, 256 of 2,048 bytes of one bank
    assert max(c["bank_0_util_percent"]) == pytest.approx(32 * 256 / (128 * 2048))
    assert max(c["avg_util_percent"]) == pytest.approx(32 * 256 / (128 * 2048) / 8)
    assert max(c["bank_1_util_percent"]) == 0
    assert c["bank_0_util_percent"][-1] == 0


def test_an_engine_is_active_while_one_of_its_instructions_runs_and_adjacent_stretches_are_one(one: Any) -> None:
    i, a = one[1]["Instruction"], one[1]["ActiveTime"]
    for engine in ("scalar", "gpsimd"):
        stretches = [(x, y) for x, y, e in zip(a["start_ts"], a["end_ts"], a["engine"], strict=True) if e == engine]
        assert all(y < x for (_, y), (x, _) in itertools.pairwise(stretches))
        covered = {t for x, y in stretches for t in range(x, y)}
        mine = zip(i["start_ts"], i["end_ts"], i["engine"], i["opcode"], strict=True)
        assert covered == {t for x, y, e, o in mine if e == engine and o != "EVENT_SEMAPHORE" for t in range(x, y)}


def test_opcodes_are_counted_by_engine(one: Any) -> None:
    i, o = one[1]["Instruction"], one[1]["OpcodeSummary"]
    assert sum(o["instruction_count"]) == len(i["id"])
    k = o["opcode"].index("ACTIVATE")
    (row,) = [n for n, v in enumerate(i["opcode"]) if v == "ACTIVATE"]
    total = one[1]["Metadata"]["last_hw_timestamp"][0]
    assert (o["engine"][k], o["instruction_count"][k], o["instruction_time_ns"][k]) == ("scalar", 1, i["duration_ns"][row])
    assert o["active_time_percent"][k] == pytest.approx(i["duration_ns"][row] / total)


def test_instructions_carry_track_function_type_and_line() -> None:
    tables = device.tables(source.of_result(run(workloads.load("attention").build())))
    i = tables["Instruction"].columns()
    for k, opcode in enumerate(i["opcode"]):
        assert i["timeline_track"][k].lower() == ("tensormatrix" if opcode == "MATMUL" else i["engine"][k])
        assert (i["raw_flops"][k] is not None) == (opcode == "MATMUL")
        assert (i["scalar_activation_fn"][k] is not None) == (opcode == "ACTIVATE")
        assert (i["tensor_instruction_type"][k] is not None) == (opcode in ("MATMUL", "LDWEIGHTS"))
    assert set(i["tensor_instruction_type"]) == {None, "REGULAR", "TRANSPOSE"}
    weights = [k for k, o in enumerate(i["opcode"]) if o == "LDWEIGHTS"]
    for k in weights:  # a weight load is of the kind of the product behind it
        assert i["tensor_instruction_type"][k] == i["tensor_instruction_type"][k + 1]
    assert "EXP" in i["scalar_activation_fn"]
    frames, places = tables["StackFrame"].columns(), tables["StackFrameFileLocation"].columns()
    names = tables["StackFrameFileName"].columns()
    for line, frame in zip(i["nki_source_location"], i["stack_frame_ids"], strict=True):
        assert (line is None) == (frame is None)
        if line is not None:
            place = frames["file_location_id"][frames["id"].index(frame.strip("[]"))] - 1
            file = names["name"][places["file_name_id"][place] - 1]
            assert line == f"{file}:{places['line_number'][place]}"
    kernel = tables["KernelInstructions"].columns()
    by_name = dict(zip(i["kernel_instruction_name"], i["nki_source_location"], strict=True))
    assert len(by_name) == len(i["id"])
    told = zip(kernel["kernel_instruction_name"], kernel["file_path"], kernel["line_number"], strict=True)
    assert all(by_name[n] == f"{file}:{line}" for n, file, line in told)


def test_tensors_tell_what_they_are_and_how_often_they_were_loaded() -> None:
    p = Program("twice")
    x, y = p.input("x", (128, 64), "bfloat16"), p.output("y", (128, 64), "bfloat16")
    for _ in range(2):
        t = p.sbuf((128, 64), "bfloat16")
        p.dma_copy(dst=t, src=x)
    p.dma_copy(dst=y, src=t)
    c = device.tables(source.of_result(run(p)))["TensorInfo"].columns()
    assert (c["variable_name"], c["type"], c["shape"], c["size"]) == (["x", "y"], ["IN", "OUT"], ["[128 64]"] * 2, [16384] * 2)
    assert (c["load_to_sbuf_dma_count"], c["load_to_sbuf_repeat_factor"]) == ([2, 0], [2.0, 0.0])
    assert (c["load_to_sbuf_total_size_bytes"], c["load_to_sbuf_avg_size_bytes"]) == ([32768, 0], [16384, None])


# ---- semaphores and flow


def test_updates_tell_their_operation_moment_and_source() -> None:
    c = device.tables(source.of_result(run(own_semaphores())))["SemaphoreUpdate"].columns()
    told = set(zip(c["id"], c["update_operation_type"], c["update_trigger_timing"], c["update_source"], strict=True))
    assert told == {
        ("S[0] (loaded)", "sem_inc", "complete", "AXI"),
        ("S[0] (loaded)", "sem_wr_imm", "read", "Vector"),
        ("S[1] (done)", "sem_add_imm", "complete", "Vector"),
        ("S[1] (done)", "sem_dec", "complete", "Vector"),
    }


def test_an_operation_that_no_schema_knows_is_null() -> None:
    made = source.of_result(run(own_semaphores()))
    semaphores = attrs.evolve(made.trace.semaphores, operation=made.trace.semaphores.operation + 100)
    c = device.tables(attrs.evolve(made, trace=attrs.evolve(made.trace, semaphores=semaphores)))["SemaphoreUpdate"].columns()
    assert set(c["update_operation_type"]) == {None}


def test_a_wait_leads_to_the_update_that_met_it_also_where_a_semaphore_is_set_back() -> None:
    f = device.tables(source.of_result(run(own_semaphores())))["Flow"].columns()
    edges = set(zip(f["in_table"], f["in_id"], f["out_table"], f["out_id"], strict=True))
    assert edges == {
        ("instruction", 0, "dma_block", 0),
        ("dma_block", 0, "instruction", 1),
        ("instruction", 1, "instruction", 2),
        ("instruction", 1, "instruction", 3),  # 3, then 2: at least 2 since the first
        ("instruction", 3, "dma_block", 1),
    }


def test_what_met_a_wait_ended_before_the_wait_did(profiles: dict[str, dict[str, Table]]) -> None:
    for profile, tables in profiles.items():
        if profile == "system":
            continue
        i, d, f = (tables[n].columns() for n in ("Instruction", "DmaPacketAggregated", "Flow"))
        ends = {"instruction": i["end_ts"], "dma_block": d["end_ts"]}
        for kind, number, out, target, gap in zip(*(f[k] for k in ("in_table", "in_id", "out_table", "out_id", "gap_time")), strict=True):
            if out == "instruction":
                assert gap == i["start_ts"][target] - ends[kind][number]
                if profile != "own":
                    assert gap >= 0, profile


# ---- throttle


def test_the_clock_gate_is_a_throttle_and_its_summary_weighs_by_time() -> None:
    p = Program("hot")
    a, b = p.sbuf((128, 512), "bfloat16"), p.sbuf((128, 128), "bfloat16")
    for t in (a, b):
        p.memset(dst=t, value=1.0)
    out = p.psum((128, 512))
    for k in range(40):
        p.nc_matmul(dst=out, stationary=b, moving=a, accumulate=k > 0)
    tables = device.tables(source.of_result(run(p)))
    c, s = tables["Throttle"].columns(), {k: v[0] for k, v in tables["ThrottleSummary"].columns().items()}
    assert set(zip(c["k"], c["n"], strict=True)) == {(4, 8), (8, 8)}
    active = sum(d for d, k in zip(c["duration"], c["k"], strict=True) if k == 4)
    assert s["throttle_active_time_ns"] == active
    mean = sum(d * k / 8 for d, k in zip(c["duration"], c["k"], strict=True)) / sum(c["duration"])
    assert s["max_achievable_util_with_throttling_percent"] == pytest.approx(mean)


# ---- where they come from


@pytest.mark.parametrize("program", [scale(), own_semaphores(), workloads.load("attention").build(), crowd(4)], ids=lambda p: p.name)
def test_a_saved_run_gives_the_tables_of_the_run(program: Program, tmp_path: Path) -> None:
    result = run(program)
    saved, fresh = device.tables(source.read(result.save(tmp_path))), device.tables(source.of_result(result))
    assert list(saved) == list(fresh)
    for name in set(saved) - {"ExecutionInfo"}:
        assert saved[name].columns() == fresh[name].columns(), name
    assert saved["ExecutionInfo"].columns()["neff_name"][0] == next(p.name for p in tmp_path.glob("*.neff.msgpack"))


def test_a_changed_chip_number_reaches_the_profile(tmp_path: Path) -> None:
    result = simulate(scale(), values=False, what_if={"memory.hbm_bytes_per_ns": "1000", "dma.row_ns": "50"})
    tables = device.tables(source.read(result.save(tmp_path)))
    assert tables["Metadata"].columns()["hbm_ddr_bandwidth"] == [1000e9]
    assert tables["Warning"].rows == 0  # packets of 50 ns more are known one by one too


def test_large_tables_come_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    made = source.of_result(run(workloads.load("attention").build()))
    whole = {name: t.columns() for name, t in device.tables(made).items()}
    for module in ("table", "instructions"):
        monkeypatch.setattr(f"nc_sim.profile.{module}.GROUP", 7)
    parts = device.tables(made)
    assert max(len(next(iter(p.values()))) for p in parts["Instruction"].parts()) == 7
    for name in whole:
        assert parts[name].columns() == whole[name], name


# ---- system profile


def test_system_events_are_those_of_the_trace() -> None:
    trace = system_trace.trace_of(_runtime(), devices=False)
    c = system.tables(trace)["SystemProfileEvents"].columns()
    assert c["id"] == [e.id for e in trace.events]
    assert c["name"] == [e.name for e in trace.events]
    assert c["flow_id"] == [[str(f) for f in e.flow] or None for e in trace.events]
    assert set(c["trace_event_source"]) == {"framework", "neuron_rt", "neuron_hw"}
    for k, e in enumerate(trace.events):
        assert c["nc_idx"][k] == c["worker_gid"][k] == (None if e.core < 0 else e.core)
        assert (c["pcore_idx"][k] is not None) == (e.source == "neuron_hw")
        assert (c["framework_stream_id"][k] is not None) == (e.source == "framework" and e.stream >= 0)


@pytest.mark.parametrize("lnc", [1, 2])
def test_a_system_profile_lists_its_device_profiles_and_their_physical_cores(lnc: int, tmp_path: Path) -> None:
    trace = system_trace.load(system_trace.save(rmsnorm_study(4, 512, lnc=lnc).runtimes["rms_norm"], tmp_path))
    ((name, made),) = list(system.devices(trace))
    listed = {k: v[0] for k, v in system.tables(trace)["DeviceProfileList"].columns().items()}
    assert (listed["device_profile_name"], listed["nc_id"], listed["model_id"]) == (name, 0, trace.models[0].id)
    meta = device.tables(made)["Metadata"].columns()
    assert (meta["num_physical_cores"], meta["vnc_enabled"]) == ([lnc], [lnc == 2])


def test_two_physical_cores_halve_utilisation_and_leave_the_ratio() -> None:
    one = source.of_result(run(workloads.load("attention").build()))
    m, both = device.metrics(one), device.metrics(attrs.evolve(one, physical_cores=2))
    assert both["hfu_estimated_percent"] == pytest.approx(m["hfu_estimated_percent"] / 2)
    assert both["peak_flops_bandwidth_ratio"] == m["peak_flops_bandwidth_ratio"] == pytest.approx(109.84, abs=0.01)


# ---- columns


def test_a_table_with_a_column_that_is_not_published_is_a_bug() -> None:
    with pytest.raises(InternalError, match="columns speed"):
        of("ActiveTime", {"speed": np.zeros(1, np.int64)})
    with pytest.raises(InternalError, match="different lengths"):
        of("ActiveTime", {"start_ts": np.zeros(1, np.int64), "end_ts": np.zeros(2, np.int64)})


def test_null_is_kept_in_every_kind_of_column() -> None:
    columns = {
        "k": np.arange(3), "type": Words(("a", "b"), np.array([1, -1, 0])), "n": Some(np.arange(3), np.array([True, False, True])),
        "duration": [None, 5, None],
    }  # fmt: skip
    c = of("Throttle", columns).columns()
    assert (c["k"], c["type"], c["n"], c["duration"], c["pcore_idx"]) == (
        [0, 1, 2],
        ["b", None, "a"],
        [0, None, 2],
        [None, 5, None],
        [None] * 3,
    )


def test_intervals_that_overlap_or_meet_are_merged() -> None:
    start, end = merged(np.array([5, 0, 10, 2, 20]), np.array([6, 3, 12, 5, 21]))
    assert (start.tolist(), end.tolist()) == ([0, 10, 20], [6, 12, 21])
    assert [len(c) for c in merged(np.zeros(0, np.int64), np.zeros(0, np.int64))] == [0, 0]


def test_times_are_rounded_as_in_the_trace(one: Any) -> None:
    made, _ = one
    i = made.trace.instructions
    assert np.array_equal(rounded_ns(i.start.ticks, tuple(made.trace.metadata["ticks_per_ns"])), i.start.ns)


# ---- Parquet


def test_parquet_has_the_published_names_types_and_units(profiles: dict[str, dict[str, Table]], tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    for profile, tables in profiles.items():
        paths = parquet.save(tables, tmp_path / profile)
        assert [p.stem for p in paths] == list(tables)
        for path in paths:
            table = pq.read_table(path)
            assert table.column_names == [f.name for f in fields(path.stem)]
            for f, column in zip(fields(path.stem), table.schema, strict=True):
                assert str(column.type).replace("list<element: ", "list<").replace("list<item: ", "list<") == f.stored, (
                    f"{path.stem}.{f.name}"
                )
                assert (column.metadata or {}).get(b"unit", b"").decode() == (f.unit or "")
            assert table.to_pydict() == tables[path.stem].columns()


def test_parquet_of_the_same_run_is_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    made = []
    for name in ("a", "b"):
        folder = run(workloads.load("attention").build()).save(tmp_path / name)
        paths = parquet.save(device.tables(source.read(folder)), tmp_path / f"{name}.parquet")
        made.append([p.read_bytes() for p in paths])
    assert made[0] == made[1]


def test_tables_of_an_earlier_profile_do_not_stay_in_the_folder(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "CcOp.parquet").write_text("old")
    (tmp_path / "mine.parquet").write_text("kept")
    parquet.save({"Warning": from_rows("Warning", [])}, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["Warning.parquet", "mine.parquet"]


def test_a_row_group_is_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("nc_sim.profile.instructions.GROUP", 50)
    table = device.tables(source.of_result(run(workloads.load("attention").build())))["Instruction"]
    (path,) = parquet.save({"Instruction": table}, tmp_path)
    assert pq.ParquetFile(path).num_row_groups == -(-table.rows // 50)


def test_a_profile_whose_packets_are_not_known_says_so() -> None:
    made = source.of_result(run(crowd()))
    shares = made.trace.shares
    end = shares.end.ticks.copy()
    end[shares.packets > 0] = shares.start.ticks[shares.packets > 0] + 1
    short = attrs.evolve(made, trace=attrs.evolve(made.trace, shares=attrs.evolve(shares, end=attrs.evolve(shares.end, ticks=end))))
    c = device.tables(short)["Warning"].columns()
    assert c["category"] == ["Missing Data"]
    assert "spread evenly" in c["message"][0]
