"""`compare`: what two runs, or a run and a profile, have in common and how their time differs, worked out by hand."""

from __future__ import annotations

import csv
import importlib.util
import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner
from test_perfetto import needs_perfetto, read
from test_profile_json import KERNEL, RUNTIME, export, instruction, written
from test_where_time_goes import two_engines

from conftest import REPOSITORY
from nc_sim import Program, ProgramError, Result, Unsupported, compare, simulate, workloads
from nc_sim.__main__ import main
from nc_sim.analysis.again import again
from nc_sim.analysis.differences import Differences, differences
from nc_sim.analysis.sides import side_of
from nc_sim.profile import output
from nc_sim.result import body_ticks
from nc_sim.trace import pftrace


def run(name: str, **options: Any) -> Result:
    return simulate(workloads.load(name).build(), values=False, **options)


def script(folder: Path, text: str) -> Result:
    """A program whose instructions are on the lines of a file, as a user's are."""
    (folder / "kernel.py").write_text(text)
    spec = importlib.util.spec_from_file_location("kernel", folder / "kernel.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return simulate(module.build(), values=False)


FILLS = """from nc_sim import Program
def build():
    p = Program("fills")
    a, b = p.sbuf((128, 512), "float32"), p.sbuf((128, 512), "float32")
    p.memset(dst=a, value=0.0, engine="vector")
    p.tensor_copy(dst=b, src=a, engine="vector")
    p.tensor_scalar(dst=a, data=b, op0="add", operand0=1.0, engine="vector")
    return p
"""
# a line more before the copy, and a loop of two copies instead of one
CHANGED = FILLS.replace("    p.tensor_copy(", "    c = p.sbuf((128, 8), 'float32')\n    for _ in range(2): p.tensor_copy(")


def different() -> list[tuple[Any, Any]]:
    base = run("attention")
    return [
        (base, again(base, {"tensor.gate.kind": "none"})),
        (base, run("softmax")),
        (base, run("attention", chip="trn3")),
        (run("matmul"), simulate(workloads.load("matmul").build(m=256), values=False)),
        (two_engines(), simulate(Program("none"), values=False)),
    ]


def sums(d: Differences) -> dict[str, tuple[int, int]]:
    found: dict[str, list[int]] = {}
    for c in d.causes:
        entry = found.setdefault(c.engine, [0, 0])
        entry[0] += c.a
        entry[1] += c.b
    return {k: (a, b) for k, (a, b) in found.items()}


# --- what must hold of any two -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["attention", "transformer", "pipeline"])
def test_a_run_does_not_differ_from_itself(name: str) -> None:
    result = run(name)
    d = compare(result, result).differences
    assert d.pairs == [(k, k) for k in range(len(result.steps))]
    assert {e.change for e in (d.body, *d.engines, *d.lines, *d.causes, *d.path)} == {0}
    assert (d.unmatched, d.moved, d.by) == ((), 0, "source line and opcode")


@pytest.mark.parametrize("k", range(5))
def test_the_other_way_round_every_difference_turns_its_sign(k: int) -> None:
    a, b = different()[k]
    one, two = compare(a, b).differences, compare(b, a).differences
    assert [(j, i) for i, j in two.pairs] == sorted(one.pairs, key=lambda p: p[1])
    assert two.body.change == -one.body.change
    for name, key in (("engines", ("engine",)), ("causes", ("engine", "cause", "on")), ("path", ("where", "kind"))):
        mine, other = ({tuple(getattr(e, f) for f in key): (e.a, e.b, e.change) for e in getattr(d, name)} for d in (one, two))
        assert other == {key: (b, a, -change) for key, (a, b, change) in mine.items()}
    lines = [{(e.line, e.engine, e.opcode): (e.a_count, e.b_count, e.matched, e.change_ns) for e in d.lines} for d in (one, two)]
    turned = {(" -> ".join(line.split(" -> ")[::-1]), *rest): (n, m, both, -ns) for (line, *rest), (m, n, both, ns) in lines[1].items()}
    assert lines[0] == turned
    swapped = {"A": "B", "B": "A"}
    assert {attrs.evolve(u, side=swapped[u.side]) for u in two.unmatched} == set(one.unmatched)


@pytest.mark.parametrize("k", range(5))
def test_an_engine_s_causes_and_the_critical_path_sum_to_the_body_of_each_side(k: int) -> None:
    a, b = different()[k]
    d = compare(a, b).differences
    bodies = tuple(Fraction(body_ticks(r.table, r.timeline)) / r.table.ticks_per_ns * d.body.per_ns for r in (a, b))
    assert (d.body.a, d.body.b) == bodies
    assert set(sums(d).values()) == {bodies}
    assert (sum(e.a for e in d.path), sum(e.b for e in d.path)) == bodies


@pytest.mark.parametrize("k", range(5))
def test_lines_and_unmatched_account_for_every_instruction_of_both_sides(k: int) -> None:
    a, b = different()[k]
    d = compare(a, b).differences
    for side, result, counted in (("A", a, [e.a_count for e in d.lines]), ("B", b, [e.b_count for e in d.lines])):
        alone = [k for u in d.unmatched if u.side == side for k in u.instructions]
        assert sum(counted) == len(result.steps) == len(d.pairs) + len(alone)
        assert sorted(alone + [p[side == "B"] for p in d.pairs]) == list(range(len(result.steps)))
    assert sum(e.matched for e in d.lines) == len(d.pairs)
    assert all(a.steps[i].instruction.opcode == b.steps[j].instruction.opcode for i, j in d.pairs)
    assert all(a.steps[i].engine == b.steps[j].engine for i, j in d.pairs)


# --- by hand -----------------------------------------------------------------------------------------------------


def test_a_signal_that_takes_100_ns_longer_is_100_ns_of_signal_and_of_body() -> None:
    """34 ns are 163 ticks of 1/4.8 ns, 134 ns are 643: 480 ticks, which are 100 ns."""
    a = two_engines()
    d = compare(a, again(a, {"semaphore.latency_ns": 134})).differences
    assert d.body.change_ns == 100.0
    assert {(c.engine, c.cause, c.on): c.change_ns for c in d.causes if c.change} == {
        ("GpSimd", "signal", "Vector"): 100.0, ("Vector", "after its last", ""): 100.0,
    }  # fmt: skip
    assert [(e.where, e.kind, e.change_ns) for e in d.path if e.change] == [("Vector", "signal", 100.0)]
    assert not any(e.change for e in (*d.lines, *d.engines))


def test_the_clock_gate_of_attention_is_the_array_s_throttle_and_shorter_products() -> None:
    a = run("attention")
    d = compare(a, again(a, {"tensor.gate.kind": "none"})).differences
    first = d.causes[0]
    assert (first.engine, first.cause, first.b) == ("Tensor", "throttle", 0)
    assert {e.opcode for e in d.lines if e.change} == {"MATMUL", "LDWEIGHTS"}


def test_a_line_put_in_moves_those_below_and_leaves_them_together(tmp_path: Path) -> None:
    a, b = script(tmp_path, FILLS), script(tmp_path, CHANGED)
    d = compare(a, b).differences
    assert [s.line for s in a.steps] == ["kernel.py:5", "kernel.py:6", "kernel.py:7"]
    assert [s.line for s in b.steps] == ["kernel.py:5", "kernel.py:7", "kernel.py:7", "kernel.py:8"]
    found = {(e.line, e.opcode): (e.a_count, e.b_count, e.matched) for e in d.lines}
    assert found == {
        ("kernel.py:5", "MEMSET"): (1, 1, 1),
        ("kernel.py:6 -> kernel.py:7", "COPY"): (1, 1, 1),
        ("kernel.py:7", "COPY"): (0, 1, 0),
        ("kernel.py:7 -> kernel.py:8", "TENSOR_SCALAR"): (1, 1, 1),
    }
    assert (d.by, d.moved) == ("source line and opcode", 2)
    (alone,) = d.unmatched
    assert (alone.side, alone.line, alone.opcode, len(alone.instructions)) == ("B", "kernel.py:7", "COPY", 1)


def test_scripts_without_a_line_in_common_are_aligned_by_opcode_and_it_says_so(tmp_path: Path) -> None:
    b = script(tmp_path, "\n" * 9 + FILLS)
    d = compare(script(tmp_path, FILLS), b).differences
    assert (d.by, d.why) == ("opcode", "no source line is on both sides")
    assert len(d.pairs) == 3
    assert {e.line for e in d.lines} == {f"kernel.py:{k} -> kernel.py:{k + 9}" for k in (5, 6, 7)}


def test_chips_with_other_ticks_differ_by_the_exact_difference_of_their_times() -> None:
    a, b = run("softmax"), run("softmax", what_if={"clock.vector_mhz": 977})
    assert a.table.ticks_per_ns != b.table.ticks_per_ns
    d = compare(a, b).differences
    exact = [Fraction(body_ticks(r.table, r.timeline)) / r.table.ticks_per_ns for r in (a, b)]
    assert Fraction(d.body.change, d.body.per_ns) == exact[1] - exact[0]


def test_ticks_without_a_measure_in_64_bits_are_refused() -> None:
    one, two = (attrs.evolve(side_of(run("rmsnorm")), ticks_per_ns=Fraction(n)) for n in (10**15 + 1, 10**15 - 1))
    with pytest.raises(Unsupported, match="times beyond 62 bits"):
        differences(one, two)


# --- a profile on one side ---------------------------------------------------------------------------------------


def test_starts_and_ends_of_a_profile_tell_what_each_engine_waits_for(tmp_path: Path) -> None:
    """Of the kernel in test_profile_json: Sync is released at 1000, the last instruction ends at 8617."""
    d = compare(written(tmp_path, export()), written(tmp_path, export())).differences
    assert d.by_gaps
    assert d.body.a_ns == 7617
    assert {(c.engine, c.cause, c.on): c.a_ns for c in d.causes} == {
        ("Scalar", "before one that waits", "qGpSimdDynamic"): 3700, ("Scalar", "executes", ""): 586,
        ("Scalar", "after its last", ""): 7617 - 3700 - 586,
        ("GpSimd", "before one that waits for nothing", ""): 1290, ("GpSimd", "executes", ""): 31 + 37 + 17,
        ("GpSimd", "before one that waits", "Scalar"): 6500 - 2321, ("GpSimd", "before one that waits", "qGpSimdDynamic"): 8600 - 6537,
        ("Sync", "executes", ""): 13, ("Sync", "after its last", ""): 7604,
    }  # fmt: skip
    assert {(e.engine, e.a_count, e.a_ns) for e in d.engines} == {
        ("Scalar", 1, 586), ("GpSimd", 3, 85), ("Sync", 1, 13),
        ("DMA engines", 32, (3050 + 150 + 633 - 3050) + (7200 + 150 + 633 - 7200)),
    }  # fmt: skip


def test_a_wait_that_is_an_instruction_counts_as_waiting(tmp_path: Path) -> None:
    rows = [*KERNEL[:2], (4000, 600, "Scalar", "EVENT_SEMAPHORE", "S[8] (qGpSimdDynamic)>=16 setter=0"), *KERNEL[2:]]
    data = export(instruction=[instruction(k, r, "sg00") for k, r in enumerate([*RUNTIME, *rows])])  # type: ignore[arg-type]
    path = written(tmp_path, data)
    d = compare(path, path).differences
    scalar = {c.cause: c.a_ns for c in d.causes if c.engine == "Scalar" and c.on == "qGpSimdDynamic"}
    assert scalar == {"before one that waits": 4700 - 1000}  # to the end of the wait at 4600, then to the copy, which waits too
    assert {e.engine: e.a_ns for e in d.engines}["Scalar"] == 586


def test_a_run_and_a_profile_are_set_beside_each_other_by_what_both_tell(tmp_path: Path) -> None:
    result = run("rmsnorm")
    d = compare(result, written(tmp_path, export())).differences
    assert (d.by, d.why, d.path) == ("opcode", "B has no source lines", ())
    assert set(sums(d).values()) == {(d.body.a, d.body.b)}
    assert {c.cause for c in d.causes} <= {
        "executes", "before one that waits", "before one that waits for nothing", "after its last", "no instruction",
    }  # fmt: skip
    other = compare(written(tmp_path, export()), result).differences
    assert (other.why, other.body.change) == ("A has no source lines", -d.body.change)


def test_an_export_of_a_run_has_its_lines_and_differs_from_it_by_whole_nanoseconds(tmp_path: Path) -> None:
    result = run("attention")
    folder = result.save(tmp_path / "run")
    output.write(folder, "json", tmp_path / "own.json")
    found = compare(folder, tmp_path / "own.json")
    d = found.differences
    assert d.by == "source line and opcode"
    assert d.pairs == [(k, k) for k in range(len(result.steps))] or len(d.pairs) == len(result.steps)
    assert abs(d.body.change_ns) <= 1
    assert all(abs(e.change_ns) <= e.a_count for e in d.lines)
    assert all(abs(c.change_ns) <= 2 * len(result.steps) for c in d.causes)
    (moved,) = (e for e in d.engines if e.engine == "DMA engines")
    assert abs(moved.change_ns) <= 2 * moved.a_count / 16  # whole ns at both ends of each transfer
    assert "an exported simulation" in found.text()


LOOP = """from nc_sim import Program
def build():
    p = Program("loop")
    x, a = p.input("x", (128, 8), "float32"), p.sbuf((128, 8), "float32")
    p.dma_copy(dst=a, src=x)
    for i in p.dynamic_range(3): p.tensor_scalar(dst=a, data=a, op0="add", operand0=1.0)
    return p
"""


def exported(folder: Path, result: Result) -> Path:
    output.write(result.save(folder / "run"), "json", folder / "own.json")
    return folder / "own.json"


def test_an_export_of_a_run_with_a_loop_has_the_loop_s_own_instructions(tmp_path: Path) -> None:
    """MOVE once, COMPARE_BRANCH ahead of the first round, and ALU_OP and COMPARE_BRANCH after each of three (docs/programs.md)."""
    result = script(tmp_path, LOOP)
    d = compare(exported(tmp_path, result), result).differences
    assert (d.unmatched, len(d.pairs)) == ((), len(result.steps))
    counts = {e.opcode: (e.a_count, e.b_count) for e in d.lines}
    assert {k: counts[k] for k in ("MOVE", "COMPARE_BRANCH", "ALU_OP")} == {"MOVE": (1, 1), "COMPARE_BRANCH": (4, 4), "ALU_OP": (3, 3)}
    assert abs(d.body.change_ns) <= 1


def test_an_opcode_of_the_runtime_s_with_a_source_line_is_the_kernel_s(tmp_path: Path) -> None:
    """Of the runtime's two instructions one is given a line; the other stays outside."""
    data = export()
    data["instruction"].append(
        instruction(99, (3000, 48, "Scalar", "COMPARE_BRANCH", "data0=r0"), "sg00") | {"nki_source_location": "k.py:7"}
    )
    data["instruction"].append(instruction(98, (3100, 48, "Scalar", "COMPARE_BRANCH", "data0=r0"), "sg00"))
    d = compare(written(tmp_path, data), written(tmp_path, data)).differences
    assert [(e.line, e.a_count) for e in d.lines if e.opcode == "COMPARE_BRANCH"] == [("k.py:7", 1)]


def test_the_body_of_an_export_of_ours_is_the_run_s_whatever_stands_beside_it(tmp_path: Path) -> None:
    """Neither has an instruction on Sync; releases of the other side's chip are not asked."""
    result = run("rmsnorm")
    path = exported(tmp_path, result)
    assert not [s for s in result.steps if s.engine.label == "Sync"]
    releases = {f"sequencer.{e}.release_ns": 0 for e in ("tensor", "vector", "scalar", "gpsimd")}
    sides = [compare(path, other) for other in (result, path, run("softmax", chip="trn3"), run("rmsnorm", what_if=releases))]
    assert {round(float(body_ticks(result.table, result.timeline) / result.table.ticks_per_ns)) - found.differences.body.a_ns
            for found in sides} <= {-1, 0, 1}  # fmt: skip
    assert len({found.differences.body.a_ns for found in sides}) == 1
    assert not any("time zero" in found.text() for found in sides)
    assert {found.record()["a"]["time_zero"] for found in sides} == {None}


def test_a_profile_without_an_instruction_on_sync_says_where_time_zero_is_from(tmp_path: Path) -> None:
    """GpSimd is released 129 ns after Sync (sequencer.gpsimd.release_ns of trn2) and starts first, at 2290; the last end is at 8617."""
    data = export()
    data["instruction"] = [r for r in data["instruction"] if r["label"] != "Sync"]
    path = written(tmp_path, data)
    assert min(r["timestamp"] for r in data["instruction"] if r["label"] == "GpSimd" and r["opcode"] == "DMA_DIRECT2D") == 2290
    beside, alone = compare(run("softmax"), path), compare(path, path)
    assert beside.differences.body.b_ns == 8617 - (2290 - 129)
    assert alone.differences.body.a_ns == 8617 - 2290
    told = "no instruction on Sync: time zero is the earliest first instruction of an engine less its release"
    assert f"  {told} on A's chip, trn2" in beside.text().splitlines()
    assert alone.text().splitlines()[1] == "  no instruction on Sync: time zero is the earliest first instruction of an engine"
    assert beside.record()["b"]["time_zero"] == f"{told} on A's chip, trn2"
    assert compare(run("softmax"), written(tmp_path, export())).record()["b"]["time_zero"] is None


def test_the_two_forms_of_a_real_profile_do_not_differ(traces: Path, tmp_path: Path) -> None:
    source = traces / "fused_fp32_s512.instr.csv"
    rows = list(csv.DictReader(source.open(newline="")))
    moved = list(csv.DictReader((traces / "fused_fp32_s512.dma.csv").open(newline="")))
    data = {
        "metadata": [{"data_version": 8}],
        "instruction": [
            {"timestamp": int(r["timestamp_ns"]), "duration": int(r["duration_ns"]), "label": r["engine"], "opcode": r["opcode"],
             "operands": r["operands"], "pc": int(r["pc"]), "subgraph": "sg00"} for r in rows
        ],
        "dma": [
            {"timestamp": int(p["timestamp_ns"]), "duration": int(p["duration_ns"]), "dma_engine": p["dma_engine"], "subgraph": "sg00",
             "dma_queue": p["dma_queue"], "queue_type": p["queue_type"], "transfer_size": int(p["bytes"]),
             "packet_idx": int(p["packet_idx"])} for p in moved
        ],
    }  # fmt: skip
    d = compare(source, written(tmp_path, data)).differences
    assert len(d.pairs) == 154  # instructions of the kernel (docs/timing.md)
    assert d.body.a_ns == 23119
    assert {e.change for e in (*d.lines, *d.engines, *d.causes)} == {0}


# --- text, JSON, Perfetto, the command ---------------------------------------------------------------------------


def nc_sim(*words: Any) -> str:
    done = CliRunner().invoke(main, ["compare", *map(str, words)], prog_name="nc-sim")
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_says_what_the_function_finds_of_saved_runs(tmp_path: Path) -> None:
    a, b = run("softmax"), run("softmax", what_if={"semaphore.latency_ns": 0})
    one, two = a.save(tmp_path / "a"), b.save(tmp_path / "b")
    found = compare(one, two)
    assert nc_sim(one, two) == found.text() + "\n"
    assert nc_sim(one, two, "--top", 1) == found.text(1) + "\n"
    assert json.loads(nc_sim(one, two, "--json")) == json.loads(json.dumps(found.record()))
    assert found.text().splitlines()[1].startswith(f"B: softmax on trn2 with semaphore.latency_ns=0 ({two}): body ")
    for same in (compare(a, b), compare(next(one.glob("*.ntff.msgpack")), b)):
        assert same.text().splitlines()[2:] == found.text().splitlines()[2:]
        assert {k: v for k, v in same.record().items() if k not in "ab"} == {k: v for k, v in found.record().items() if k not in "ab"}


def test_a_difference_that_rounds_to_nothing_has_no_sign(tmp_path: Path) -> None:
    """A body of thirds of a ns and its export in whole ns: less than half a ns apart, on either side of zero."""
    result = run("attention")
    path = exported(tmp_path, result)
    for found in (compare(result, path), compare(path, result), compare(result, result)):
        text = found.text(0)
        assert not re.findall(r"[+-]0\.000 us|[+-]0\.0 %", text)
        assert "B - A: 0.000 us  0.0 %" in text.splitlines()
    assert compare(result, path).differences.body.change  # there is one
    longer = compare(result, again(result, {"tensor.gate.kind": "none"}))
    assert re.search(r"^B - A: -\d+\.\d{3} us  -\d+\.\d %$", longer.text(), re.MULTILINE)


@pytest.mark.parametrize(("words", "name"), [(("", "x"), "A"), (("x", ""), "B")])
def test_an_empty_path_is_named_as_the_help_names_it(words: tuple[str, str], name: str) -> None:
    done = CliRunner().invoke(main, ["compare", *words])
    assert done.output == f"error: {name}: an empty text; a path; of the current folder it is .\n"


def test_a_table_shows_the_largest_rows_and_says_how_many_more_there_are() -> None:
    found = compare(run("attention"), run("softmax"))
    few, every = found.text(2), found.text(0)
    assert few.count("only in A:") == 1
    rows = len({(u.line, u.opcode) for u in found.differences.unmatched if u.side == "A"})
    assert f"  and {rows - 2} more" in few
    assert "more" not in every
    assert len(every.splitlines()) > len(few.splitlines()) + rows


def test_records_are_the_lines_and_a_frame_of_them() -> None:
    found = compare(run("attention"), run("attention", without=["clock-gate"]))
    records = found.records()
    assert [abs(r["difference_ns"]) for r in records] == sorted((abs(r["difference_ns"]) for r in records), reverse=True)
    assert set(records[0]) == {"line", "engine", "opcode", "a_count", "b_count", "matched", "a_ns", "b_ns", "difference_ns"}


def test_an_extrapolated_chip_is_said_to_be_one() -> None:
    found = compare(run("softmax"), run("softmax", chip="trn3"))
    assert "extrapolated" in found.text()
    assert found.record()["b"]["extrapolated"]
    assert found.record()["a"]["extrapolated"] is None


@needs_perfetto
def test_both_timelines_stand_in_one_file_a_above_b_and_name_their_runs(tmp_path: Path) -> None:
    a = run("attention")
    found = compare(a, again(a, {"tensor.gate.kind": "none"}))
    path = found.save(tmp_path / "both.pftrace")
    assert [t.name for t in pftrace.load(path) if t.level == 1] == [
        "A: attention on trn2", "B: attention on trn2 with tensor.gate.kind=none",
    ]  # fmt: skip
    seen = read(path)
    mine, other = (
        {s.arguments["pc"]: s for s in seen.slices if s.track.startswith(f"{side}:") and "Tensor" in s.track and s.name == "MATMUL"}
        for side in "AB"
    )
    assert len(mine) == len(other) == 56
    for pc, s in mine.items():
        assert s.arguments["other_side_later_ns"] == other[pc].start - s.start
        assert other[pc].arguments["other_side_later_ns"] == s.start - other[pc].start
    assert path.read_bytes() == found.save(tmp_path / "again.pftrace").read_bytes()


@needs_perfetto
def test_a_profile_is_drawn_with_its_packets_and_what_only_one_side_has_says_so(tmp_path: Path) -> None:
    result = run("rmsnorm")
    seen = read(compare(result, written(tmp_path, export())).save(tmp_path / "both.pftrace"))
    copy = next(s for s in seen.slices if s.track == "B: kernel, measured/Scalar Engine")
    assert (copy.start, copy.end, copy.name) == (3700, 4286, "COPY")
    assert copy.arguments["other_side_instruction"] == -1
    assert seen.on("B: kernel, measured/DMA Engine 3")[0].start == 3080 - 1000
    assert seen.on("A: rmsnorm on trn2/Sync Engine") or seen.on("A: rmsnorm on trn2/GpSimd Engine")


@needs_perfetto
def test_what_is_measured_before_time_zero_moves_both_sides_alike(tmp_path: Path) -> None:
    data = export()
    data["instruction"][3]["timestamp"] = 700  # a trigger 300 ns before Sync's first instruction
    result = run("rmsnorm")
    seen = read(compare(result, written(tmp_path, data)).save(tmp_path / "both.pftrace"))
    plain = read(compare(result, result).save(tmp_path / "plain.pftrace"))
    assert seen.on("B: kernel, measured/Sync Engine")[0].start == 300
    assert seen.on("B: kernel, measured/DMA Engine 3")[0].start == 3080 - 1000 + 300
    for track in ("GpSimd Engine", "DMA Engine 3"):
        name = f"A: rmsnorm on trn2/{track}"
        assert [s.start for s in seen.on(name)] == [s.start + 300 for s in plain.on(name)] != []


@needs_perfetto
def test_the_command_writes_the_file_and_names_it(tmp_path: Path) -> None:
    folder, place = run("rmsnorm").save(tmp_path / "a"), tmp_path / "x.pftrace"
    assert nc_sim(folder, folder, "--perfetto", place).splitlines()[-1] == f"perfetto: {place}"
    assert json.loads(nc_sim(folder, folder, "--perfetto", place, "--json"))["perfetto"] == str(place)


def test_a_core_of_an_export_can_be_named_and_of_two_runs_cannot(tmp_path: Path) -> None:
    later = [(start + 77, *rest) for start, *rest in KERNEL]
    rows = [instruction(k, r, c) for c, of in (("sg00", KERNEL), ("sg01", later)) for k, r in enumerate(of)]  # type: ignore[arg-type]
    path = written(tmp_path, export(instruction=rows))
    result = run("rmsnorm")
    with pytest.raises(ProgramError, match="2 cores with a kernel"):
        compare(result, path)
    assert compare(result, path, core=1).record()["b"]["core"] == 1
    with pytest.raises(ProgramError, match="core 1 of two runs; a profile of hardware on one side"):
        compare(result, result, core=1)
    (tmp_path / "k.instr.csv").write_text("timestamp_ns\n")
    with pytest.raises(ProgramError, match="core 1 of a CSV; a JSON export"):
        compare(result, tmp_path / "k.instr.csv", core=1)


def test_what_is_neither_a_result_nor_a_path_is_refused() -> None:
    with pytest.raises(ProgramError, match=r"compare: None; a result, or the folder of a saved run"):
        compare(run("rmsnorm"), None)  # type: ignore[arg-type]


def test_the_page_shows_what_the_command_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (REPOSITORY / "docs" / "where-the-time-goes.md").read_text()
    command, shown = re.search(r"^\$ nc-sim (compare out/attention .*)\n((?:.*\n)*?)```", page, re.MULTILINE).groups()  # type: ignore[union-attr]
    monkeypatch.chdir(tmp_path)
    run("attention").save("out/attention")
    run("attention", without=["clock-gate"]).save("out/full-rate")
    assert nc_sim(*command.split()[1:]) == shown
