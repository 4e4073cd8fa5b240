"""Where the time goes: a program worked out by hand, the sentences of `explain`, and a run once more from its folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgpack
import pytest
from click.testing import CliRunner

from conftest import REPOSITORY
from nc_sim import ChipError, Program, ProgramError, Result, simulate, workloads
from nc_sim.__main__ import main
from nc_sim.analysis import critical_path, dma_rows, overlap, shares, slack, stalls
from nc_sim.analysis.advice import CHANGES, explain
from nc_sim.analysis.again import again, saved
from nc_sim.analysis.sweeps import sweep
from nc_sim.chip import load
from nc_sim.mechanisms import MECHANISMS
from nc_sim.report import where
from nc_sim.report.roofline import roofline
from nc_sim.result import body_ticks
from nc_sim.trace.hardware import PROGRAM_SUFFIX


def run(name: str, **options: Any) -> Result:
    return simulate(workloads.load(name).build(), values=False, **options)


def two_engines() -> Result:
    """Two instructions in a row, on two engines: VectorE fills 128 x 512 fp32 in SBUF, GpSimd copies it."""
    p = Program("two")
    a, b = p.sbuf((128, 512), "float32"), p.sbuf((128, 512), "float32")
    p.memset(dst=a, value=0.0, engine="vector")
    p.tensor_copy(dst=b, src=a, engine="gpsimd")
    return simulate(p, values=False)


def by_cause(result: Result, engine: str) -> dict[tuple[str, str], int]:
    return {(p.cause, p.on): p.ticks for p in stalls(result) if p.engine == engine}


def test_the_parts_of_two_instructions_are_those_worked_out_by_hand() -> None:
    """In ticks of 1/4.8 ns: VectorE is released at 40 ns (192), a hand-over takes a tick, a signal 34 ns (163).

    The fill's interval and end are the two that `nc_sim.lower` gives the instruction on its own: begin 193.
    """
    result = two_engines()
    table = result.table
    issue, latency = (int(c[table.cost[table.start_row[0]], 0]) for c in (table.cost_issue, table.cost_latency))
    begin, end = 192 + 1, 192 + 1 + latency
    body = body_ticks(table, result.timeline)
    assert by_cause(result, "Vector") == {
        ("before release", ""): 192,
        ("issue", "dispatch"): 1,
        ("busy", ""): issue,
        ("after its last", ""): body - begin - issue,
    }
    copy = int(table.cost_latency[table.cost[table.start_row[-1]], 0])
    starts = end + 163 + 1  # dispatched when the signal is there, begun a tick later
    assert body == starts + copy
    assert by_cause(result, "GpSimd") == {
        ("before release", ""): 619,  # 129 ns
        ("semaphore", "Vector"): end - 619,
        ("signal", "Vector"): 163,
        ("issue", "dispatch"): 1,
        ("busy", ""): copy,  # GpSimd's instructions do not overlap: the interval is the latency
    }


def test_the_critical_path_of_two_instructions_goes_through_both() -> None:
    result = two_engines()
    path = critical_path(result)
    pieces = [(s.where, s.kind) for s in path]
    assert pieces == [
        ("Vector", "release"), ("Vector", "handed over"), ("Vector", "executes"), ("Vector", "signal"),
        ("GpSimd", "handed over"), ("GpSimd", "executes"),
    ]  # fmt: skip
    assert {s.line.split(":")[0] for s in path if s.line} == {"test_where_time_goes.py"}
    assert sum(s.ticks for s in path) == body_ticks(result.table, result.timeline)


def test_what_a_result_takes_beyond_the_engine_s_interval_is_its_latency() -> None:
    """tensor_tensor in SBUF shows its result 160.5 ns after streaming, and lets the next one in after a gap."""
    p = Program("latency")
    a, b = p.sbuf((128, 512), "float32"), p.sbuf((128, 512), "float32")
    p.memset(dst=a, value=0.0, engine="vector")
    p.tensor_tensor(dst=a, data1=a, data2=a, op="add", engine="vector")
    p.tensor_copy(dst=b, src=a, engine="gpsimd")
    result = simulate(p, values=False)
    gap = load("trn2").reader()("vector.gap_ns")
    (latency,) = (s for s in critical_path(result) if s.kind == "result latency")
    assert (latency.opcode, latency.ticks) == ("TENSOR_TENSOR", pytest.approx(float(160.5 - gap) * 4.8, abs=1))


def test_a_result_that_commits_behind_another_hangs_on_that_one() -> None:
    """A copy without latency begins while a tensor_tensor before it is under way, and commits with it: only its signal is on the path."""
    p = Program("commit")
    a, b, c, d = (p.sbuf((128, 1), "float32") for _ in range(4))
    p.memset(dst=a, value=0.0, engine="vector")
    p.memset(dst=b, value=0.0, engine="vector")
    p.tensor_tensor(dst=c, data1=a, data2=a, op="add", engine="vector")
    p.tensor_copy(dst=d, src=b, engine="vector")
    p.tensor_copy(dst=p.sbuf((128, 1), "float32"), src=d, engine="gpsimd")
    result = simulate(p, values=False, what_if={"vector.copy.sbuf_fixed_ns": 0, "vector.tensor_tensor.sbuf_fixed_ns": 500})
    path = critical_path(result)
    assert ("TENSOR_TENSOR", "result latency") in {(s.opcode, s.kind) for s in path}
    assert {s.kind for s in path if (s.where, s.opcode) == ("Vector", "COPY")} == {"signal"}


def test_a_load_that_another_ring_holds_up_shows_contention_before_its_first_packet() -> None:
    """A long transfer of GpSimd's ring is under way when Sync's load arrives: it waits for a packet's end, and takes turns."""
    result = run("pipeline")
    path = critical_path(result)
    held = [s for s in path if s.kind == "DMA contention"]
    rows = result.table.rows
    starts = {int(t): int(r) for t, r in zip(result.timeline.start[rows:], result.timeline.ready[rows:], strict=True) if r < t}
    assert any(s.end_ticks in starts and starts[s.end_ticks] == s.start_ticks for s in held)


def test_the_slack_of_what_nothing_waits_for_is_the_rest_of_the_body() -> None:
    """Two fills that nothing hangs on: the shorter, on VectorE, may end with the longer, on GpSimd."""
    p = Program("fills")
    p.memset(dst=p.sbuf((128, 512), "float32"), value=0.0, engine="vector")
    p.memset(dst=p.sbuf((128, 4096), "float32"), value=0.0, engine="gpsimd")
    result = simulate(p, values=False)
    spare = slack(result)
    assert spare.exact
    assert spare.bounds == ()
    first, last = (int(result.timeline.finish[row]) for row in result.table.finish_row)
    assert last == body_ticks(result.table, result.timeline)
    assert spare.ticks.tolist() == [last - first, 0]


def test_slack_says_where_it_is_an_estimate() -> None:
    bounds = slack(run("pipeline")).bounds
    assert [b.split()[0] for b in bounds] == ["DMA", "the", "a"]
    assert "clock gate" in bounds[1]
    assert not slack(run("pipeline")).exact


def test_the_array_s_throttle_is_a_part_of_its_own_and_goes_with_the_gate() -> None:
    assert by_cause(run("attention"), "Tensor")["throttle", ""] > 0
    assert ("throttle", "") not in by_cause(run("attention", without=["clock-gate"]), "Tensor")


def test_a_full_store_ring_is_named() -> None:
    p = Program("full")
    a = p.sbuf((128, 4096), "float32")
    y = p.output("y", (8, 128, 4096), "float32")
    p.memset(dst=a, value=0.0, engine="vector")
    for k in range(8):
        p.dma_copy(dst=y[k], src=a, engine="scalar", dge_mode="hwdge")
    assert by_cause(simulate(p, values=False), "Scalar")["queue full", "qScalarDynamicHW"] > 0


def test_both_engines_give_the_same_account() -> None:
    pytest.importorskip("numba")
    one, two = (where.record(run("attention", engine=e)) for e in ("simpy", "compiled"))
    assert json.dumps(one) == json.dumps(two)


def test_rows_of_a_dma_have_the_rate_of_the_rules() -> None:
    """trn2: two rows of 2 KiB, neighbours in HBM, share a packet: 4.7 ns and their bytes at 27.2 B/ns, 155.3 ns, 26.4 B/ns."""
    (rows,) = (r for r in dma_rows(run("softmax")) if r.direction == "load")
    chip = load("trn2").reader()
    row_ns = float(chip("dma.row_ns") + 4096 / chip("dma.load_bytes_per_ns")) / 2
    assert (rows.row_bytes, rows.packets, rows.bytes) == (2048, 256, 524288)
    assert rows.bytes_per_ns == pytest.approx(2048 / row_ns, rel=0.002)  # a tick is 0.2 ns
    assert rows.effective_bytes_per_ns < rows.bytes_per_ns < rows.peak_bytes_per_ns == 27.2


def test_overlap_of_an_engine_with_itself_is_its_busy_time() -> None:
    result = run("attention")
    alone = {o.engine: o.ns for o in overlap(result) if o.engine == o.other}
    for name, e in result.summary()["engines"].items():
        assert alone[name] == pytest.approx(e["busy_ns"], abs=0.001)
    together = {(o.engine, o.other): o.ticks for o in overlap(two_engines())}
    assert together["Vector", "GpSimd"] == 0  # one waits for the other


# --- explain -----------------------------------------------------------------------------------------------------


def test_explain_tells_of_every_gain_what_a_run_with_the_what_if_gives() -> None:
    result = run("attention")
    told = explain(result)
    assert len(told.gains) > 10
    for g in told.gains:
        assert simulate(result.program, values=False, what_if=g.what_if).duration_ns == g.body_ns
        assert g.gain_ns == result.duration_ns - g.body_ns
    assert [g.gain_ns for g in told.gains] == sorted((g.gain_ns for g in told.gains), reverse=True)
    assert [g.change for g in told.promising] == [g.change for g in told.gains[:3]]


def test_explain_names_the_gate_for_attention_and_descriptors_for_a_tiny_kernel() -> None:
    assert explain(run("attention")).promising[0].change == "clock-gate"
    assert explain(run("rmsnorm")).promising[0].change == "software-descriptors"


def test_explain_marks_gains_as_upper_bounds_and_says_it_in_sentences() -> None:
    told = explain(run("matmul"))
    text = told.text()
    assert "upper bound" in text
    assert "The critical path is spent on instructions of Tensor" in text
    assert "less at most" in text
    assert all(g["upper_bound"] is True for g in told.record()["gains"])


def test_explain_of_a_program_of_one_instruction_promises_little_and_does_not_break() -> None:
    p = Program("one")
    p.memset(dst=p.sbuf((128, 1), "float32"), value=0.0, engine="vector")
    told = explain(simulate(p, values=False))
    assert told.sentences
    assert explain(simulate(Program("none"), values=False)).text().startswith("none on trn2: 0.000 us")


def test_every_mechanism_that_costs_time_is_a_change() -> None:
    """The others make a run slower when switched off, or are no cost by themselves."""
    off = [dict(c.overrides(load("trn2"))) for c in CHANGES]
    missing = {name for name, m in MECHANISMS.items() if dict(m.off) not in off}
    slower = {"vector-fast-modes", "shared-packets", "descriptor-packets", "run-ahead"}
    assert missing == {"dma-busy-penalty", "event-semaphore", "pointer-operand", "minimum-interval", *slower}


# --- a run once more ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", workloads.NAMES)
def test_a_saved_run_is_the_run_it_was(name: str, tmp_path: Path) -> None:
    result = run(name, what_if={"semaphore.latency_ns": 50}, without=["table-load"], gate_phase_ns=100.3)
    result.save(tmp_path)
    found = saved(tmp_path)
    assert found.timeline == result.timeline
    assert found.summary() == result.summary()


def test_a_saved_run_with_other_times_is_refused(tmp_path: Path) -> None:
    run("rmsnorm").save(tmp_path)
    (path,) = tmp_path.glob(f"*{PROGRAM_SUFFIX}")
    raw = msgpack.unpackb(path.read_bytes())
    raw["chip"]["numbers"]["semaphore.latency_ns"][0] = "35"
    path.write_bytes(msgpack.packb(raw))
    with pytest.raises(ProgramError, match="SHA-256"):
        saved(tmp_path)


def test_a_saved_chip_of_another_version_is_refused() -> None:
    from nc_sim.analysis.again import _chip

    with pytest.raises(ChipError, match="on one side only"):
        _chip({"name": "x", "core": "y", "sources": {}, "numbers": {"a.b": [1, "assumed", "s"]}, "overrides": {}}, "file")
    with pytest.raises(ProgramError, match="name, core, sources"):
        _chip(None, "file")


@pytest.mark.parametrize("what_if", [
    {"semaphore.latency_ns": 0}, {"dma.load_bytes_per_ns": 50}, {"tensor.fp32_passes": 1}, {"tensor.gate.kind": "none"},
    {"clock.tensor_mhz": 2800}, {"scalar.table_sets": [["exp"], ["copy"]]},
])  # fmt: skip
def test_a_run_again_is_a_run_anew(what_if: dict[str, Any]) -> None:
    base = run("attention", gate_phase_ns=7)
    a, b = again(base, what_if), run("attention", gate_phase_ns=7, what_if=what_if)
    assert a.timeline == b.timeline
    assert (a.used, a.summary()) == (b.used, b.summary())


def test_costs_alone_do_not_compile_again(monkeypatch: pytest.MonkeyPatch) -> None:
    base = run("attention")
    monkeypatch.setattr(sys.modules["nc_sim.simulate"], "expand", None)
    assert again(base, {"semaphore.latency_ns": 0}).duration_ns < base.duration_ns
    with pytest.raises(TypeError):
        again(base, {"tensor.fp32_passes": 1})


# --- the command line --------------------------------------------------------------------------------------------


def nc_sim(*words: str) -> str:
    done = CliRunner().invoke(main, list(words), prog_name="nc-sim")
    assert done.exit_code == 0, done.output
    return done.output


def test_the_commands_tell_of_a_saved_run(tmp_path: Path) -> None:
    result = run("softmax")
    result.save(tmp_path)
    told = json.loads(nc_sim("explain", str(tmp_path), "--json"))
    assert told["body_ns"] == result.duration_ns
    assert nc_sim("explain", str(tmp_path)) == explain(result).text() + "\n"
    found = json.loads(nc_sim("stalls", str(tmp_path), "--json"))
    assert found == json.loads(json.dumps(where.record(result)))
    assert len(found["slack_ns"]) == len(result.steps)
    text = nc_sim("stalls", str(tmp_path), "--path", "3", "--slack", "2")
    assert "its last pieces:" in text
    assert text.count("DMA_DIRECT2D") >= 2


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["explain", str(tmp_path)], prog_name="nc-sim")
    assert done.exit_code == 1
    assert "no trace" in done.output


def test_shares_of_the_path_sum_to_the_body() -> None:
    result = run("transformer")
    path = critical_path(result)
    for by in ("kind", "where,kind", "line"):
        found = shares(result, path, by)
        assert sum(s.ticks for s in found) == body_ticks(result.table, result.timeline)
        assert [s.ticks for s in found] == sorted((s.ticks for s in found), reverse=True)


# --- a chip that is extrapolated ---------------------------------------------------------------------------------


@pytest.mark.parametrize("chip", ["trn2", "trn3"])
def test_every_analysis_of_an_extrapolated_chip_says_so_and_of_no_other(chip: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result, why = run("softmax", chip=chip), load(chip).extrapolated
    assert bool(why) == (chip == "trn3")
    told, study = explain(result), roofline(result)
    swept = roofline(sweep(workloads.load("softmax").build(), chips=[chip], workers=1))
    for text in (told.text(), where.text(result), study.text(), swept.text()):
        assert ("extrapolated" in text, str(why) in text) == (bool(why), True)
    for record in (told.record(), where.record(result), *study.records(), *swept.records()):
        assert record["extrapolated"] == (why or None)
    study.save(tmp_path / "drawn.svg")
    drawn = (tmp_path / "drawn.svg").read_text()
    assert (f"({chip}, Vector, extrapolated)" in drawn) == bool(why)
    words = CliRunner().invoke(main, ["sweep", "softmax", "--chip", chip, "--workers", "1"]).output
    assert (f"{chip} is extrapolated: {why}" in words) == bool(why)


def test_changes_are_tried_by_name_and_the_page_lists_their_names() -> None:
    page = (REPOSITORY / "docs" / "where-the-time-goes.md").read_text("utf-8")
    assert f"The names: {', '.join(f'`{c.name}`' for c in CHANGES)}." in page
    result = simulate(workloads.load("softmax").build(), values=False)
    assert explain(result, ["dma-rate"]).gains == explain(result, [c for c in CHANGES if c.name == "dma-rate"]).gains
    with pytest.raises(ProgramError, match=r"explain changes: str 'dma-rte'; one of dma-start, dma-rate"):
        explain(result, ["dma-rte"])
