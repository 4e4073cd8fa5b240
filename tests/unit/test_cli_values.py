"""What `nc-sim run` says of values, sizes and earlier runs; and commands that are given what another takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import nc_sim
import nc_sim.workloads
from nc_sim import ProgramError
from nc_sim.__main__ import main

BUILD = """
import numpy as np
import nc_sim

TOLERANCE = 1e-6


def build(rows=4):
    p = nc_sim.Program("mine")
    x, y, z = p.input("x", (rows, 8), "float32"), p.output("y", (rows, 8), "float32"), p.output("z", (rows, 8), "float32")
    t = p.sbuf((rows, 8), "float32")
    p.dma_copy(dst=t, src=x)
    p.dma_copy(dst=y, src=t)
    p.tensor_scalar(dst=t, data=t, op0="multiply", operand0=2.0)
    p.dma_copy(dst=z, src=t)
    return p


def inputs(program, seed):
    return {"x": np.arange(32, dtype=np.float32).reshape(4, 8)}


def reference(given):
    x = given["x"].copy()
"""


def cli(*words: str) -> Result:
    return CliRunner().invoke(main, list(words), prog_name="nc-sim")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(reference: str, *words: str, build: str = BUILD) -> Result:
    Path("mine.py").write_text(f"{build}    {reference}\n")
    return cli("run", "mine.py", *words)


def test_a_wrong_value_is_placed_and_counted_and_loses_nothing_of_the_run() -> None:
    done = run("x[1, 3], x[2, 0] = 7, 99; return {'y': x, 'z': 2 * given['x']}", "--json")
    assert done.exit_code == 1
    # x[1, 3] is 11 and should be 7: 4 / 7; x[2, 0] is 16 and should be 99: 83 / 99
    told = "error: mine output y: differs from its reference by 0.838 at [2, 0]: 16, and 2 values of 32 by more than allowed"
    assert done.stderr == f"{told}; at most 1e-06; there 99\n"
    out = json.loads(done.stdout)
    assert out["duration_ns"] > 0
    assert Path(out["trace"]).is_dir()


def test_an_output_without_a_reference_is_said_to_be_unchecked() -> None:
    done = run("return {'y': x}")
    assert done.exit_code == 0, done.output
    assert "values     y agrees with its reference: largest error 0\n" in done.output
    assert "values     z is not in reference(): not checked\n" in done.output
    assert json.loads(run("return {'y': x}", "--json").stdout)["values"] == {"y": 0.0, "z": None}


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("return x", "mine.py reference(): returned ndarray; a mapping of output names to arrays"),
        ("return None", "mine.py reference(): returned NoneType; a mapping of output names to arrays"),
        ("return {'y': x[:, :5]}", "mine.py reference() y: shape [4, 5]; [4, 8], as the output has"),
        ("return {'w': x}", "mine.py reference(): an output 'w'; outputs: y, z"),
        ("return {'y': 'text'}", "ValueError: could not convert string to float: 'text'"),
        ("return {'y': 1 / 0}", "mine.py:25: ZeroDivisionError: division by zero"),
    ],
)
def test_a_reference_that_is_none_gets_one_line(reference: str, message: str) -> None:
    done = run(reference)
    assert done.exit_code == 1
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_nan_agrees_with_nan_alone_and_infinity_with_itself() -> None:
    build = BUILD.replace("np.arange(32, dtype=np.float32).reshape(4, 8)", "np.full((4, 8), np.nan, np.float32)")
    assert run("return {'y': x, 'z': x}", build=build).exit_code == 0
    assert "differs from its reference by inf at [0, 0]: nan" in run("return {'y': 0 * np.isnan(x)}", build=build).stderr
    build = BUILD.replace("np.arange(32, dtype=np.float32).reshape(4, 8)", "np.full((4, 8), np.inf, np.float32)")
    assert run("return {'y': x, 'z': x}", build=build).exit_code == 0
    assert "differs from its reference by inf" in run("return {'y': -x}", build=build).stderr


@pytest.mark.parametrize("tolerance", ["", "TOLERANCE = 'small'", "TOLERANCE = -1.0", "TOLERANCE = float('nan')"])
def test_a_reference_needs_a_tolerance(tolerance: str) -> None:
    done = run("return {'y': x}", build=BUILD.replace("TOLERANCE = 1e-6", tolerance))
    assert done.exit_code == 1
    assert "TOLERANCE: " in done.stderr
    assert "a number of at least 0, as there is a reference()" in done.stderr


def test_a_size_or_an_override_that_is_given_twice_is_refused() -> None:
    assert cli("run", "softmax", "--size", "rows=1", "--size", "rows=2").stderr == "error: --size: rows twice: 1 and 2; each name once\n"
    twice = ("--what-if", "dma.row_ns=1", "--what-if", "dma.row_ns=2")
    assert cli("run", "softmax", *twice).stderr == "error: --what-if: dma.row_ns twice: 1 and 2; each name once\n"


def test_sizes_of_a_sweep_may_be_listed_or_repeated() -> None:
    listed = cli("sweep", "softmax", "--size", "rows=128,256", "--workers", "1", "--json")
    repeated = cli("sweep", "softmax", "--size", "rows=128", "--size", "rows=256", "--workers", "1", "--json")
    assert len(json.loads(listed.stdout)) == 2
    assert listed.stdout == repeated.stdout


@pytest.mark.parametrize("command", ["sweep", "roofline"])
def test_a_study_of_which_nothing_ran_ends_with_one(command: str) -> None:
    some = cli(command, "pipeline", "--chip", "trn2", "--chip", "trn1", "--workers", "1")
    assert (some.exit_code, "hwdge" in some.output) == (0, True), some.output
    none = cli(command, "pipeline", "--chip", "trn1", "--workers", "1")
    assert (none.exit_code, "hwdge" in none.output) == (1, True)


def test_a_program_that_was_changed_is_run_and_explained_again_without_its_earlier_run() -> None:
    for rows in (128, 256):
        assert cli("run", "softmax", "--size", f"rows={rows}").exit_code == 0
        assert cli("explain", "out/softmax").exit_code == 0
    for rows in (128, 256):
        assert cli("run", "softmax", "--size", f"rows={rows}", "--out", "kept").exit_code == 0
    assert "2 traces" in cli("explain", "kept").stderr


def test_the_name_of_a_program_where_a_run_is_wanted_says_how_to_come_by_one() -> None:
    wanted = "error: attention: a program, not a run; the folder of a run: nc-sim run attention, then out/attention\n"
    for command in ("explain", "stalls", "view"):
        assert cli(command, "attention").stderr == wanted


def test_reports_name_what_about_the_chip_was_changed() -> None:
    words = ("--what-if", "clock.vector_mhz=480", "--without", "semaphore-latency", "--timing-only")
    assert "    clock.vector_mhz (assumed: what-if)\n" in cli("run", "softmax", *words).stdout
    for command in ("explain", "stalls", "view"):
        assert "with clock.vector_mhz=480, without semaphore-latency" in cli(command, "out/softmax").stdout.splitlines()[1]
    assert cli("run", "softmax", "--timing-only").exit_code == 0
    assert "with" not in cli("explain", "out/softmax").stdout.splitlines()[1][:6]


def test_a_loop_that_depends_on_data_says_why_its_saved_run_cannot_be_explained() -> None:
    Path("loop.py").write_text(
        "import numpy as np\nimport nc_sim\n\n\ndef build():\n    p = nc_sim.Program('loop')\n    n, s = p.input('n', (1, 1), 'int32'),"
        " p.sbuf((128, 8), 'float32')\n    t = p.sbuf((1, 1), 'int32')\n    p.dma_copy(dst=t, src=n)\n    r = p.register_alloc()\n"
        "    p.register_load(r, t)\n    for i in p.dynamic_range(0, r):\n        p.memset(dst=s, value=1.0)\n    return p\n\n\n"
        "def inputs(p, seed):\n    return {'n': np.array([[3]], np.int32)}\n"
    )
    assert cli("run", "loop.py").exit_code == 0
    told = cli("explain", "out/loop")
    assert (told.exit_code, told.stderr.count("\n")) == (1, 1)
    assert "from tensor data, and a saved run keeps no inputs; the Result of simulate(program, inputs=...)" in told.stderr


def test_a_prefix_that_no_number_has_is_refused_with_those_that_they_have() -> None:
    assert cli("chips", "trn2", "--prefix", "zzz").stderr.startswith("error: chips --prefix: 'zzz'; how names begin: clock., memory.")


def test_a_summary_lists_some_assumed_numbers_and_counts_the_rest() -> None:
    lines = cli("run", "softmax", "--chip", "trn3", "--timing-only").stdout.splitlines()
    head = next(k for k, line in enumerate(lines) if "rests on" in line)
    count = int(lines[head].split()[2])
    assert count == len(json.loads(cli("run", "softmax", "--chip", "trn3", "--timing-only", "--json").stdout)["assumed"])
    assert lines[head + 13] == f"    and {count - 12} more, which --json lists"
    assert cli("run", "rmsnorm", "--timing-only").stdout.count("rests on 1 number that") <= 1


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = f"{sys.executable} -m nc_sim chips trn2 --json | head -c 10"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], env=env, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ('{\n  "name"', "", 0)


def test_values_that_are_not_checked_are_said_to_be_so() -> None:
    build = BUILD.replace("def inputs(", "def other(")
    done = run("return {'y': x}", build=build)
    assert done.exit_code == 0
    assert "  values     reference() was not asked: there is no inputs()\n" in done.stdout
    none = run("return {'y': x}", build=BUILD.replace('return {"x": np', '{"x": np'))
    assert (none.exit_code, none.stderr) == (1, "error: mine.py inputs(): returned NoneType; a mapping of input names to arrays\n")


def test_a_program_without_inputs_is_checked_against_its_reference_all_the_same() -> None:
    build = (
        "import numpy as np\nimport nc_sim\nTOLERANCE = 0\n\n\ndef build():\n    p = nc_sim.Program('ones')\n"
        "    y = p.output('y', (4, 8), 'float32')\n"
        "    t = p.sbuf((4, 8), 'float32')\n    p.memset(dst=t, value=1.0)\n    p.dma_copy(dst=y, src=t)\n    return p\n\n\n"
        "def reference(given):\n    assert given == {}\n"
    )
    assert "values     y agrees" in run("return {'y': np.ones((4, 8))}", build=build).stdout
    assert "differs from its reference by 0.5 at [0, 0]: 1" in run("return {'y': np.full((4, 8), 2.0)}", build=build).stderr


@pytest.mark.parametrize(
    ("reference", "required"),
    [
        ("return {'y': 1 / 0}", "reference(inputs), which returns arrays by the names of outputs"),
        ("return {'y': x + 1j}", "an array of numbers for y"),
        ("return {'y': 'text'}", "an array of numbers for y"),
    ],
)
def test_what_is_wrong_with_a_reference_is_told_of_the_reference(reference: str, required: str) -> None:
    done = run(reference)
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.endswith(f"; {required}\n")


def test_a_size_of_a_saved_program_and_a_misspelt_what_if_of_a_sweep_are_refused_before_anything_runs() -> None:
    Path("p.ncasm").write_text(cli("disasm", "softmax").stdout)
    told = "error: p.ncasm --size: rows; no size: a saved program is as it was built\n"
    for command in ("run", "sweep", "roofline"):
        assert (found := cli(command, "p.ncasm", "--size", "rows=3")).stderr == told, found.output
    assert "x.y" in (none := cli("sweep", "softmax", "--what-if", "x.y=1")).stderr
    assert (none.exit_code, none.stdout) == (1, "")


def test_a_place_that_cannot_be_written_is_refused_before_the_run() -> None:
    Path("plain").write_text("mine")
    done = cli("run", "softmax", "--out", "plain")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "plain" in done.stderr
    assert Path("plain").read_text() == "mine"


def test_mechanisms_that_are_off_are_named_and_not_their_numbers() -> None:
    words = ("--without", "issue-gap", "--without", "fixed-latency", "--what-if", "dma.row_ns=5")
    lines = cli("run", "softmax", "--timing-only", *words).stdout.splitlines()
    assert "  what if: dma.row_ns=5" in lines
    assert "  without: issue-gap, fixed-latency" in lines
    assert cli("compare", "out/softmax", "out/softmax").stdout.startswith(
        "A: softmax on trn2 with dma.row_ns=5, without issue-gap, fixed-latency (out/softmax): body "
    )
    kernels = cli("accuracy", "kernels", "--kernel", "trn2-vector-add-128x200", *words[:2], *words[4:]).stdout.splitlines()
    assert kernels[0].startswith("1 measured kernel, ")
    assert [k for k in kernels if "what if" in k or "without: " in k] == ["  what if: dma.row_ns=5", "  without: issue-gap"]


def test_a_folder_of_a_study_names_its_variants_to_whoever_wants_a_run() -> None:
    assert cli("study", "rmsnorm", "--out", "st").exit_code == 0
    for command in ("explain", "stalls", "roofline"):
        assert "no trace of its own; the path of a folder in it that has one: " in cli(command, "st/naive").stderr


def test_runs_of_one_program_are_told_apart_on_a_roofline_by_what_was_changed() -> None:
    cli("run", "softmax", "--timing-only", "--out", "a")
    cli("run", "softmax", "--timing-only", "--out", "b", "--what-if", "dma.row_ns=5")
    names = [p["name"] for p in json.loads(cli("roofline", "a", "b", "--engine", "Vector", "--json").stdout)]
    assert names == ["softmax", "softmax with dma.row_ns=5"]


def test_an_empty_place_of_a_result_and_shapes_that_are_one_mapping_are_refused() -> None:
    result = nc_sim.simulate(nc_sim.workloads.load("softmax").build(), values=False)
    with pytest.raises(ProgramError, match=r"save: an empty text; a path; the current folder is \."):
        result.save("")
    with pytest.raises(ProgramError, match=r"sweep shapes: dict .* a list of shapes"):
        nc_sim.sweep(lambda rows: result.program, shapes={"rows": 128})  # type: ignore[arg-type]
