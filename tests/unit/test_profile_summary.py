"""Summary metrics by hand, and once more from the tables by other code.

Definitions: aws-neuron-sdk 81ce03ae, tools/neuron-explorer/profile-schema-reference, table Summary.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from nc_sim import Program, simulate, workloads
from nc_sim.profile import device, source
from nc_sim.profile.schema import fields
from nc_sim.profile.summary import Facts, beyond, summary

# Two engines, 1,000 ns in all. Times in ns.
INSTRUCTIONS: dict[str, Any] = {
    "engine": ["tensor", "Tensor", "tensor", "vector", "scalar", "sync"],
    "opcode": ["LDWEIGHTS", "MATMUL", "EVENT_SEMAPHORE", "TENSOR_TENSOR", "ACTIVATE", "NOP"],
    "start_ts": [100, 150, 300, 200, 400, 0],
    "end_ts": [200, 250, 900, 260, 500, 10],
    "raw_flops": [None, 4000, None, None, None, None],
    "flops_transpose": [None, 1000, None, None, None, None],
    "adjusted_flops": [None, 16000, None, None, None, None],
    "adjusted_flops_transpose": [None, 4000, None, None, None, None],
    "hbm_read_bytes": [0, 0, 0, 0, 0, 60],
    "hbm_write_bytes": [0, 0, 0, 0, 0, 40],
    "psum_read_sbuf_write_bytes": [0, 0, 0, 8, 0, 0],
}
PACKETS: dict[str, Any] = {
    "start_ts": [600, 640, 650, 700],
    "end_ts": [650, 660, 700, 720],
    "transfer_bytes": [100, 50, 30, 20],
    "queue_type": ["hardware_dynamic", "software_dynamic", "hardware_dynamic", "instruction"],
    "packet_aggregation_id": [5, 6, 5, 7],
}
FACTS = Facts(
    total_time_ns=1000, physical_cores=1, array_rows=2, array_columns=5, tensor_ghz=2.0, core_ghz=1.2, hbm_bytes_per_s=2e9,
    input_bytes=30, output_bytes=50, weight_bytes=20, dma_queues=3, events=9, rows=123,
)  # fmt: skip


def metrics(**changes: Any) -> dict[str, Any]:
    return summary(INSTRUCTIONS, PACKETS, attrs.evolve(FACTS, **changes))


def test_the_metrics_are_the_columns_of_the_published_table_in_their_order() -> None:
    assert list(metrics()) == [f.name for f in fields("Summary")]


def test_an_engine_is_active_while_an_instruction_runs_that_is_no_semaphore_wait() -> None:
    m = metrics()
    assert m["tensor_engine_active_time"] == 150e-9  # 100 to 250; the wait from 300 to 900 is none
    assert m["tensor_engine_active_time_percent"] == 0.15
    assert m["tensor_engine_instruction_time"] == pytest.approx(200e-9)  # both in full, where they overlap too
    assert m["tensor_engine_instruction_count"] == 3  # the wait is an instruction
    assert m["vector_engine_active_time"] == pytest.approx(60e-9)
    assert m["gpsimd_engine_active_time"] == 0
    assert m["matmul_instruction_count"] == 1
    assert (m["activate_instruction_count"], m["activate_instruction_time"]) == (1, 100e-9)


def test_execution_counts_from_the_first_to_the_last_that_is_no_setup() -> None:
    # NOP at 0 and EVENT_SEMAPHORE until 900 are setup; LDWEIGHTS begins at 100, the last packet ends at 720
    assert metrics()["total_exec_time"] == pytest.approx(620e-9)


def test_something_is_active_during_the_union_of_all_engines_and_packets() -> None:
    # 0-10, 100-260, 400-500, 600-720
    assert metrics()["total_active_time"] == pytest.approx(390e-9)
    assert metrics()["total_active_time_percent"] == pytest.approx(0.39)


def test_dma_times_are_unions_and_their_shares_are_of_the_active_time() -> None:
    m = metrics()
    assert m["dma_active_time"] == pytest.approx(120e-9)
    assert m["dma_active_time_percent"] == pytest.approx(0.12)
    assert m["dma_active_cycles"] == 144  # 120 ns at 1.2 GHz
    assert m["dma_packet_time"] == pytest.approx(140e-9)
    assert m["hardware_dynamic_dma_active_time"] == pytest.approx(100e-9)
    assert m["hardware_dynamic_dma_active_time_percent"] == pytest.approx(100 / 120)
    assert m["software_dynamic_dma_active_time_percent"] == pytest.approx(20 / 120)
    assert m["dynamic_dma_active_time_percent"] == pytest.approx(100 / 120)  # 640 to 660 lies inside 600 to 700
    assert m["static_dma_active_time"] == pytest.approx(20e-9)


def test_dma_counts_and_sizes_are_by_how_descriptors_are_made() -> None:
    m = metrics()
    assert [m[f"{k}_dma_packet_count"] for k in ("hardware_dynamic", "software_dynamic", "static")] == [2, 1, 1]
    assert [m[f"{k}_dma_size"] for k in ("hardware_dynamic", "software_dynamic", "static")] == [130, 50, 20]
    assert (m["dynamic_dma_packet_percent"], m["static_dma_packet_percent"]) == (0.75, 0.25)
    assert (m["dynamic_dma_size_percent"], m["hardware_dynamic_dma_size_percent"]) == (0.9, 0.65)


def test_a_transfer_lasts_from_its_first_packet_to_its_last() -> None:
    m = metrics()
    assert (m["dma_transfer_count"], m["dma_transfer_total_bytes"]) == (3, 200)
    assert m["dma_transfer_time"] == pytest.approx((100 + 20 + 20) * 1e-9)
    assert m["dma_transfer_average_bytes"] == pytest.approx(200 / 3)


def test_flops_are_sums_over_products_and_intensity_leaves_transposes_out() -> None:
    m = metrics()
    assert (m["hardware_flops"], m["transpose_flops"], m["model_flops"]) == (4000, 1000, 0)
    assert (m["adjusted_hardware_flops"], m["adjusted_transpose_flops"]) == (16000, 4000)
    assert m["mm_arithmetic_intensity"] == 30  # 3000 flops, 100 bytes
    # one core: 2 x 2 x 5 x 2 GHz = 40 flops/ns over 2 bytes/ns
    assert m["peak_flops_bandwidth_ratio"] == 20
    assert m["hfu_estimated_percent"] == 0.1  # 4000 of 40,000
    assert m["mfu_inst_estimated_percent"] == m["mfu_estimated_percent"] == 0.075
    assert m["mfu_inst_max_achievable_estimated_percent"] == 1.0  # 30 / 20, and no more than 1
    assert m["mfu_hlo_estimated_percent"] == 0


def test_with_two_physical_cores_the_ratio_is_of_one_and_utilisation_of_both() -> None:
    m = metrics(physical_cores=2)
    assert m["peak_flops_bandwidth_ratio"] == 20
    assert m["hfu_estimated_percent"] == 0.05
    assert m["mfu_inst_max_achievable_estimated_percent"] == 0.75  # 30 / 40
    assert m["mbu_estimated_percent"] == metrics()["mbu_estimated_percent"]


def test_a_models_flops_take_the_place_of_the_instructions_ones() -> None:
    m = metrics(model_flops=2000)
    assert m["mfu_estimated_percent"] == m["mfu_hlo_estimated_percent"] == 0.05
    assert m["mfu_max_achievable_estimated_percent"] == m["mfu_hlo_max_achievable_estimated_percent"] == 1.0


def test_memory_utilisation_is_of_one_stack_over_the_whole_time() -> None:
    m = metrics()
    assert m["mbu_estimated_percent"] == pytest.approx(0.05)  # 100 bytes in 1,000 ns of 2 bytes/ns
    assert m["mbu_min_read_util_percent"] == pytest.approx(0.025)  # inputs and weights
    assert (m["weight_size_bytes"], m["inputs_and_weights_size_bytes"], m["inputs_outputs_weights_size_bytes"]) == (20, 50, 100)


def test_cycles_are_whole_and_cut_off() -> None:
    # 54276.582 ns at 1.2 GHz are 65131.9; a public profile says 65131
    assert metrics(total_time_ns=54276.582)["neuroncore_cycle_count"] == 65131


def test_counts_of_events_and_rows() -> None:
    m = metrics()
    assert (m["event_count"], m["trace_count"], m["total_row_count"], m["dma_queue_count"]) == (9, 6 + 4 + 9, 123, 3)
    assert m["psum_read_sbuf_write_count"] == 1


def test_what_is_not_known_is_none_and_not_zero() -> None:
    m = summary(INSTRUCTIONS, {k: v for k, v in PACKETS.items() if k != "packet_aggregation_id"}, Facts(total_time_ns=1000))
    unknown = {
        "neuroncore_cycle_count", "dma_active_cycles", "peak_flops_bandwidth_ratio", "hfu_estimated_percent", "mbu_estimated_percent",
        "weight_size_bytes", "event_count", "trace_count", "total_row_count", "dma_queue_count", "dma_transfer_count", "dma_transfer_time",
        "dma_transfer_total_bytes", "dma_transfer_average_bytes",
    }  # fmt: skip
    assert {k for k in unknown if m[k] is not None} == set()


def test_an_empty_profile_has_no_ratios() -> None:
    m = summary({}, {}, FACTS)
    assert m["mm_arithmetic_intensity"] is None
    assert m["dynamic_dma_packet_percent"] is None
    assert m["total_exec_time"] == m["total_active_time"] == 0


def test_a_summary_as_json_also_has_the_bandwidth_and_the_useful_reads() -> None:
    m = metrics()
    assert beyond({**m, "spill_reload_bytes": 15}, FACTS) == {"total_bandwidth_available": 2000.0, "useful_read_percent": 0.75}


def test_parts_add_up_to_the_whole() -> None:
    split = [{k: v[a:b] for k, v in INSTRUCTIONS.items()} for a, b in ((0, 1), (1, 4), (4, 6))]
    packets = [{k: v[a:b] for k, v in PACKETS.items()} for a, b in ((0, 2), (2, 2), (2, 4))]
    assert summary(split, packets, FACTS) == metrics()


# ---- adjusted flops by type


def product(dtype: str, kind: str = "trn2", transpose: bool = False) -> dict[str, Any]:
    p = Program("product")
    x, w = p.input("x", (128, 64), dtype), p.input("w", (128, 32), dtype)
    a, b = p.sbuf((128, 64), dtype), p.sbuf((128, 32), dtype)
    p.dma_copy(dst=a, src=x)
    p.dma_copy(dst=b, src=w)
    p.nc_matmul(dst=p.psum((32, 64)), stationary=b, moving=a)
    if transpose:
        p.nc_transpose(dst=p.psum((64, 128), dtype), data=a)
    return device.metrics(source.of_result(simulate(p, kind, values=False)))


FLOPS = 2 * 128 * 32 * 64


@pytest.mark.parametrize(("dtype", "factor"), [("bfloat16", 1), ("float16", 1), ("float32", 4), ("float8_e4m3", 0.5)])
def test_adjusted_flops_count_a_flop_by_its_type(dtype: str, factor: float) -> None:
    m = product(dtype)
    assert m["hardware_flops"] == FLOPS  # fp32: two passes of half each
    assert m["adjusted_hardware_flops"] == FLOPS * factor


def test_a_transpose_is_part_of_the_flops_and_counted_apart() -> None:
    m = product("float32", transpose=True)
    moved = 2 * 128 * 64 * 128  # the identity [128, 128] against [128, 64]
    assert (m["hardware_flops"], m["transpose_flops"]) == (FLOPS + moved, moved)
    assert m["adjusted_transpose_flops"] == 4 * moved


# ---- once more, from the tables


def union(intervals: list[tuple[int, int]]) -> int:
    """Counted nanosecond by nanosecond."""
    covered: set[int] = set()
    for a, b in intervals:
        covered.update(range(a, b))
    return len(covered)


@pytest.mark.parametrize("name", ["attention", "pipeline", "rmsnorm"])
def test_the_summary_of_a_run_follows_from_its_tables(name: str) -> None:
    run = device.tables(source.of_result(simulate(workloads.load(name).build(), values=False)))
    i, p = (run[t].columns() for t in ("Instruction", "DmaPacket"))
    meta, tensors = (run[t].columns() for t in ("Metadata", "TensorInfo"))
    s = {k: v[0] for k, v in run["Summary"].columns().items()}
    total = meta["last_hw_timestamp"][0] - meta["first_hw_timestamp"][0]
    times = list(zip(i["start_ts"], i["end_ts"], strict=True))
    working = [t for t, o in zip(times, i["opcode"], strict=True) if o != "EVENT_SEMAPHORE"]
    for engine in ("tensor", "vector", "scalar", "gpsimd", "sync"):
        mine = [t for t, e, o in zip(times, i["engine"], i["opcode"], strict=True) if e == engine and o != "EVENT_SEMAPHORE"]
        assert s[f"{engine}_engine_active_time"] * 1e9 == pytest.approx(union(mine))
        assert s[f"{engine}_engine_instruction_time"] * 1e9 == pytest.approx(sum(b - a for a, b in mine))
        assert s[f"{engine}_engine_instruction_count"] == i["engine"].count(engine)
    moving = list(zip(p["start_ts"], p["end_ts"], strict=True))
    assert s["total_time"] * 1e9 == pytest.approx(total)
    assert s["dma_active_time"] * 1e9 == pytest.approx(union(moving))
    assert s["total_active_time"] * 1e9 == pytest.approx(union(working + moving))
    assert s["dma_transfer_total_bytes"] == sum(p["transfer_bytes"])
    assert s["dma_transfer_count"] == len(set(p["packet_aggregation_id"])) == run["DmaPacketAggregated"].rows
    for name in ("hbm_read_bytes", "hbm_write_bytes", "sbuf_read_bytes", "sbuf_write_bytes", "psum_read_bytes", "psum_write_bytes"):
        assert s[name] == sum(i[name])
    flops = sum(v or 0 for v in i["raw_flops"]) - sum(v or 0 for v in i["flops_transpose"])
    peak = 2 * meta["tensor_engine_num_rows"][0] * meta["tensor_engine_num_cols"][0] * meta["tensor_engine_clock_freq"][0] * 1e9
    moved, bandwidth = s["hbm_read_bytes"] + s["hbm_write_bytes"], meta["hbm_ddr_bandwidth"][0]
    assert s["hfu_estimated_percent"] == pytest.approx(sum(v or 0 for v in i["raw_flops"]) / (peak * total / 1e9))
    assert s["mm_arithmetic_intensity"] == pytest.approx(flops / moved)
    assert s["mbu_estimated_percent"] == pytest.approx(moved / (total / 1e9) / bandwidth)
    assert s["peak_flops_bandwidth_ratio"] == pytest.approx(peak / bandwidth)
    by_kind = {k: sum(n for n, t in zip(tensors["size"], tensors["type"], strict=True) if t == k) for k in ("IN", "OUT", "WEIGHT")}
    assert s["weight_size_bytes"] == by_kind["WEIGHT"]
    assert s["inputs_outputs_weights_size_bytes"] == sum(by_kind.values())
    assert s["trace_count"] == run["Instruction"].rows + run["DmaPacket"].rows + run["SemaphoreUpdate"].rows
    assert s["total_row_count"] == sum(t.rows for n, t in run.items() if n not in ("Summary", "SchemaFields"))
    assert all(0 <= v <= 1 for k, v in s.items() if k.endswith("_percent") and v is not None)
    assert np.isfinite([v for v in s.values() if v is not None]).all()


def test_the_summary_does_not_depend_on_whether_its_tables_were_written_before() -> None:
    made = source.of_result(simulate(workloads.load("rmsnorm").build(), values=False))
    first, second = device.tables(made), device.tables(made)
    for name in ("Instruction", "DmaPacket"):
        for _ in range(2):
            list(second[name].parts())
    assert first["Summary"].columns() == second["Summary"].columns()
