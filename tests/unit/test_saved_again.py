"""Saved runs told again: what their chip is, those of nothing, those of many rounds, and JSON that is JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import nc_sim
from nc_sim import Program
from nc_sim.__main__ import main
from nc_sim.analysis.advice import explain
from nc_sim.analysis.again import again, saved
from nc_sim.analysis.sweeps import sweep
from nc_sim.isa.scalar import Activate
from nc_sim.profile import source
from nc_sim.testing import invariants

EMPTY = "import nc_sim\ndef build():\n    return nc_sim.Program('x')\n"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def cli(words: str) -> str:
    done = CliRunner().invoke(main, words.split(), prog_name="nc-sim")
    assert done.exit_code == 0, (words, done.output, done.exception)
    return done.stdout


def strict(text: str) -> Any:
    """JSON without what only Python reads."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_every_report_of_a_saved_run_says_that_its_chip_is_extrapolated() -> None:
    cli("run pipeline --timing-only --chip trn3 --out made")
    for command in ("explain", "stalls", "roofline", "compare made"):
        assert "extrapolated: " in cli(f"{command} made"), command
    told = json.loads(cli("explain made --json"))["extrapolated"], json.loads(cli("stalls made --json"))["extrapolated"]
    told += (json.loads(cli("roofline made --json"))[0]["extrapolated"], saved("made").summary()["extrapolated"])
    assert set(told) == {nc_sim.chip.load("trn3").extrapolated}
    assert source.read("made").chip.extrapolated == told[0]
    assert again(saved("made"), {"dma.row_ns": 100}).chip.extrapolated == told[0]


def test_a_saved_run_of_a_chip_that_is_not_extrapolated_does_not_say_so() -> None:
    cli("run pipeline --timing-only --out made")
    assert "extrapolated" not in cli("explain made") + cli("stalls made") + cli("roofline made")


@pytest.mark.parametrize("chip", ["trn1", "trn2", "trn3"])
def test_a_run_of_nothing_can_be_shown_told_and_compared(chip: str) -> None:
    Path("e.py").write_text(EMPTY)
    cli(f"run e.py --chip {chip} --out made --json --phase-range")
    for words in (
        "view made --instructions 3", "view made --perfetto a.pftrace", "view made --output-format perfetto --output-file b.pftrace",
        "view made --output-format json --output-file b.json", "view made --output-format parquet --output-file tables",
        "view made --output-format summary-json", "view made --output-format summary-text", "explain made", "explain made --json",
        "stalls made", "stalls made --json", "roofline made", "roofline made --json", "compare made made --perfetto c.pftrace",
        "compare made made --json", "check e.py", "disasm e.py", "disasm e.py --machine",
        "sweep e.py --keep kept", "sweep e.py --keep kept",
    ):  # fmt: skip
        cli(words)
    assert Path("a.pftrace").read_bytes() == Path("b.pftrace").read_bytes() != b""


@pytest.mark.parametrize("words", ["view made --picture a.svg", "view a.pftrace --picture a.svg"])
def test_a_picture_of_nothing_is_refused_in_one_line(words: str) -> None:
    Path("e.py").write_text(EMPTY)
    cli("run e.py --out made")
    cli("view made --perfetto a.pftrace")
    done = CliRunner().invoke(main, words.split(), prog_name="nc-sim")
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert "a trace of nothing; a run that executes an instruction" in done.stderr
    assert not Path("a.svg").exists()


def unmoved() -> Program:
    """Work, and no byte of HBM."""
    p = Program("unmoved")
    x = p.sbuf((128, 64), "float32")
    p.memset(x, 1.0)
    p.tensor_copy(dst=p.sbuf((128, 64), "float32"), src=x)
    return p


def test_an_intensity_without_bytes_is_null_in_json_and_infinite_again_where_it_was_kept() -> None:
    Path("u.py").write_text(
        "import nc_sim\ndef build():\n    p = nc_sim.Program('u')\n    x = p.sbuf((128, 64), 'float32')\n"
        "    p.memset(x, 1.0)\n    p.tensor_copy(dst=p.sbuf((128, 64), 'float32'), src=x)\n    return p\n"
    )
    rows = strict(cli("roofline u.py --json"))
    assert [r["intensity"] for r in rows] == [None] * len(rows) != []
    assert rows[0]["dma_rate"] is None
    first = sweep(unmoved(), keep="kept").cases[0]
    (kept,) = Path("kept").iterdir()
    assert strict(kept.read_text())["points"][0]["dma_rate"] is None
    second = sweep(unmoved(), keep="kept").cases[0]
    assert second.points == first.points
    assert math.isinf(second.points[0].intensity)


def rounds(n: int) -> Program:
    p = Program("rounds")
    x = p.sbuf((1, 1), "float32")
    for _ in p.dynamic_range(n):
        p.memset(x, 1.0)
    return p


def test_a_run_of_more_rounds_than_usual_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nc_sim.simulate, "__kwdefaults__", {**nc_sim.simulate.__kwdefaults__, "max_iterations": 10})
    with pytest.raises(nc_sim.ProgramError, match="more than 10 iterations"):
        nc_sim.simulate(rounds(30))
    result = nc_sim.simulate(rounds(30), max_iterations=30)
    result.save("made")
    told = saved("made")
    assert told.duration_ns == result.duration_ns
    assert explain(told).body_ns == explain(result).body_ns == result.duration_ns
    assert again(result, {"memory.partitions": 128}).duration_ns == result.duration_ns
    invariants.check_all(result)


def test_the_export_of_a_run_with_sums_beside_activations_is_replayed_to_its_own_times() -> None:
    """Every start is where the run had it, to the whole ns that an export holds; so ACT_READ_ACCUMULATOR and its ACTIVATE are read."""
    cli("run attention --timing-only --out made")
    cli("view made --output-format json --output-file at.json")
    found = nc_sim.replay("at.json")
    assert found.by_opcode()["ACT_READ_ACCUMULATOR"]["count"] == 4
    assert found.start_errors.max() < 1
    commands = [s.instruction.reduce_cmd for s in found.profile.steps if isinstance(s.instruction, Activate)]
    assert commands == ["reset_reduce"] * 4


def test_an_unknown_command_of_the_accumulator_is_refused_with_its_record() -> None:
    cli("run attention --timing-only --out made")
    cli("view made --output-format json --output-file at.json")
    Path("at.json").write_text(Path("at.json").read_text().replace("accumulator_cmd=RESET_REDUCE", "accumulator_cmd=GUESS"))
    with pytest.raises(nc_sim.ProgramError, match=r"at.json: instruction\[\d+\] ACTIVATE.*'guess'"):
        nc_sim.replay("at.json")
