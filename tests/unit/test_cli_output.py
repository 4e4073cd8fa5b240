"""Where the command line writes, and what it says where it cannot or where there is nothing to read."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from nc_sim.__main__ import main


def cli(*words: str) -> Result:
    return CliRunner().invoke(main, list(words), prog_name="nc-sim")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def full(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("words", [("run", "pipeline"), ("study", "rmsnorm")])
def test_an_empty_name_of_a_folder_is_refused_before_anything_is_written(words: tuple[str, ...]) -> None:
    done = cli(*words, "--out", "")
    assert done.exit_code == 1
    assert done.output == "error: --out: an empty text; the path of a folder; the current one is .\n"
    assert list(Path().iterdir()) == []


def test_the_current_folder_may_be_written_to_by_its_name() -> None:
    assert cli("run", "pipeline", "--timing-only", "--out", ".").exit_code == 0
    assert len(list(Path().glob("*.ntff.msgpack"))) == 1


def test_a_folder_of_a_study_is_told_the_variants_that_have_a_trace() -> None:
    assert cli("study", "rmsnorm", "--out", "made").exit_code == 0
    (Path("made") / "notes").mkdir()
    done = cli("view", "made")
    assert done.exit_code == 1
    wanted = "the path of a folder in it that has one: compiled, naive, rms_norm"
    assert done.output == f"error: made: no trace of its own; {wanted}\n"


def test_a_folder_without_any_trace_is_told_as_before() -> None:
    Path("empty").mkdir()
    assert cli("view", "empty").output == "error: empty: no trace; one *.ntff.msgpack, or the path of a file\n"


def test_a_full_disk_does_not_lose_what_a_run_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = cli("run", "rmsnorm", "--width", "80").stdout
    monkeypatch.setattr("nc_sim.trace.hardware.write_program", full)
    done = cli("run", "rmsnorm", "--width", "80")
    assert done.exit_code == 1
    assert done.stdout == printed.removesuffix("\ntrace: out/rmsnorm\n")
    assert done.stderr.startswith("error: out/rmsnorm: cannot be written: No space left on device;")
    assert done.stderr.count("\n") == 1


def test_a_full_disk_leaves_json_whole_and_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nc_sim.trace.hardware.write_program", full)
    done = cli("run", "rmsnorm", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["trace"] is None


@pytest.mark.parametrize("as_json", [False, True])
def test_a_full_disk_does_not_lose_what_a_study_prints(monkeypatch: pytest.MonkeyPatch, as_json: bool) -> None:
    more = ("--json",) if as_json else ()
    printed = cli("study", "rmsnorm", *more).stdout
    monkeypatch.setattr("nc_sim.trace.system.whole", full)
    done = cli("study", "rmsnorm", "--out", "made", *more)
    assert done.exit_code == 1
    assert done.stdout == printed
    assert "No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [("rmsnorm", "--sweep"), ("transformer", "--shape", "128,128")])
def test_a_picture_that_cannot_be_written_does_not_lose_the_table(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    pytest.importorskip("matplotlib")
    printed = cli("study", *words).stdout
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    done = cli("study", *words, "--picture", "made.svg")
    assert done.exit_code == 1
    assert done.stdout == printed
    assert "No space left on device" in done.stderr
