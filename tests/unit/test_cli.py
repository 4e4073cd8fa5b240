"""The command line as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nc_sim import workloads
from nc_sim.__main__ import main
from nc_sim.trace import hardware


def cli(*words: str) -> Result:
    return CliRunner().invoke(main, list(words), prog_name="nc-sim")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_run_checks_values_prints_a_timeline_and_names_the_trace_it_wrote() -> None:
    done = cli("run", "rmsnorm")
    assert done.exit_code == 0, done.output
    assert "values     y agrees with its reference" in done.output
    assert "GpSimd" in done.output
    assert done.output.rstrip().endswith("trace: out/rmsnorm")
    assert hardware.load(Path("out/rmsnorm")).metadata["chip"] == "trn2"


def test_run_json_holds_the_times_and_the_trace() -> None:
    out = json.loads(cli("run", "softmax", "--size", "rows=128", "--json", "--out", "here").output)
    assert out["program"] == "softmax"
    assert out["trace"] == "here"
    assert out["total_time_ns"] - out["duration_ns"] == pytest.approx(13600 + 1700)
    assert out["benchmark_ns"] - out["duration_ns"] == pytest.approx(8200)


def test_timing_only_gives_the_same_time_without_values() -> None:
    whole, timed = (json.loads(cli("run", "matmul", "--json", *extra).output) for extra in ((), ("--timing-only",)))
    assert whole["duration_ns"] == timed["duration_ns"]
    assert whole["values"]
    assert timed["values"] == {}


def test_wrong_values_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from nc_sim.workloads import softmax

    monkeypatch.setattr(softmax, "TOLERANCE", 0.0)
    done = cli("run", "softmax")
    assert done.exit_code == 1
    assert "error: softmax output y: differs from its reference by" in done.output


def test_a_file_with_build_runs_and_its_lines_are_named() -> None:
    Path("mine.py").write_text(
        "import nc_sim\n\n\ndef build(rows=4):\n    p = nc_sim.Program('mine')\n    y = p.output('y', (rows, 8), 'float32')\n"
        "    t = p.sbuf((rows, 8), 'float32')\n    p.memset(dst=t, value=2.0)\n    p.dma_copy(dst=y, src=t)\n    return p\n"
    )
    assert cli("run", "mine.py", "--size", "rows=16").exit_code == 0
    assert "# mine.py:8" in cli("disasm", "mine.py").output
    assert cli("run", "mine.py", "--size", "columns=3").output.startswith("error: mine.py --size: 'columns'; one of rows")


def test_what_disasm_prints_runs_again_with_the_same_time() -> None:
    Path("again.ncasm").write_text(cli("disasm", "attention").output)
    first, second = (json.loads(cli("run", p, "--json", "--timing-only").output) for p in ("attention", "again.ncasm"))
    assert first["duration_ns"] == second["duration_ns"]


def test_disasm_machine_lists_every_queue_with_semaphores() -> None:
    out = cli("disasm", "pipeline", "--machine").output
    assert "Tensor: " in out
    assert "S[5] (Tensor)++@complete" in out


def test_check_says_how_the_program_is_synchronised() -> None:
    assert cli("check", "softmax").output == "softmax: 16 instructions on trn2, semaphores inserted; no error, no race, no deadlock\n"
    assert json.loads(cli("check", "softmax", "--json").output)["explicit"] is False


def test_chips_lists_numbers_with_their_provenance_and_differences() -> None:
    listed = [line.split()[:2] for line in cli("chips").output.splitlines()[1:]]
    assert listed == [["inf2", "NeuronCore-v2"], ["trn1", "NeuronCore-v2"], ["trn2", "NeuronCore-v3"], ["trn3", "NeuronCore-v4"]]
    assert cli("chips").output.splitlines()[-1].endswith("; extrapolated")
    out = cli("chips", "trn2", "--prefix", "tensor.gate").output
    assert "tensor.gate.threshold" in out
    assert "measured" in out
    assert "github allenkchau/trainium-kernel-fusion" in out
    assert json.loads(cli("chips", "trn2", "--json").output)["numbers"]["tensor.gate.threshold"]["value"] == "0.37"
    assert cli("chips", "--diff", "trn2", "trn2").output == "trn2 and trn2 do not differ\n"


def test_view_shows_a_saved_trace_without_its_program() -> None:
    cli("run", "rmsnorm")
    for program in Path("out/rmsnorm").glob("neff_*"):
        program.unlink()
    done = cli("view", "out/rmsnorm", "--instructions", "3", "--width", "80")
    assert done.exit_code == 0, done.output
    assert "ACT_TABLE_LOAD" in done.output
    assert max(map(len, done.output.splitlines())) <= 120


def test_replay_prints_simulated_against_measured(traces: Path) -> None:
    path = str(traces / "fused_fp32_s512.instr.csv")
    assert "measured 23.119 us" in cli("replay", path).output
    out = json.loads(cli("replay", path, "--json", "--dma-from-trace").output)
    keys = ("total_measured_ns", "total_simulated_ns", "median_start_error_ns", "p95_start_error_ns", "by_opcode")
    assert all(k in out for k in keys)
    assert out["by_opcode"]["MATMUL"]["count"] == 60


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "nothing"), f"error: program: 'nothing'; one of {', '.join(workloads.NAMES)}, or a .py, .ncasm or .msgpack file"),
        (("run", "none.py"), "error: none.py: cannot be read; a Python file with build()"),
        (("run", "rmsnorm", "--what-if", "vector.gap"), "error: --what-if: 'vector.gap'; NAME=VALUE"),
        (("run", "rmsnorm", "--chip", "trn9"), "error: chip: 'trn9'; one of inf2, trn1, trn2, trn3, or the path of a .toml file"),
        (("view", "none"), "error: none: cannot be read: No such file or directory; a trace that Result.save wrote"),
        (("replay", "none.csv"), "error: none.csv: cannot be read: No such file or directory; a profile: NAME.instr.csv or a JSON export"),
    ],
)  # fmt: skip
def test_bad_words_get_one_line_and_exit_one(words: tuple[str, ...], message: str) -> None:
    done = cli(*words)
    assert done.exit_code == 1
    assert done.output == message + "\n"
