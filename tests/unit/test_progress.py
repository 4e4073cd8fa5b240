"""Progress: on a terminal only, after two seconds only, and never in the output."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nc_sim import simulate, workloads
from nc_sim.progress import shown
from nc_sim.trace import perfetto


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(monkeypatch: pytest.MonkeyPatch, to: io.StringIO, after: float) -> str:
    monkeypatch.setattr(sys, "stderr", to)
    monkeypatch.setenv("TERM", "xterm")
    with shown("compiling", "simulating", after) as tell:
        time.sleep(0.3)
        for done in range(1, 5):
            tell(done, 10)
            time.sleep(0.15)
    return to.getvalue()


def test_a_terminal_shows_the_work_then_how_far_it_is_and_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    out = drawn(monkeypatch, Terminal(), 0.01)
    assert out.index("compiling") < out.index("simulating")
    assert "left" in out


def test_work_that_ends_sooner_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, Terminal(), 60).strip() == ""


def test_a_file_or_a_pipe_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, io.StringIO(), 0) == ""


def heard(run: Callable[[Callable[[int, int], None]], object]) -> list[tuple[int, int]]:
    calls: list[tuple[int, int]] = []
    run(lambda done, total: calls.append((done, total)))
    return calls


@pytest.mark.parametrize("what", ["save", "perfetto"])
def test_saving_tells_how_far_it_is_up_to_the_end(tmp_path: Path, what: str) -> None:
    result = simulate(workloads.load("pipeline").build(tiles=300), values=False)
    if what == "perfetto":
        pytest.importorskip("perfetto")
        calls = heard(lambda tell: perfetto.save(result, tmp_path / "x", progress=tell))
    else:
        calls = heard(lambda tell: result.save(tmp_path, tell))
    done = [d for d, _ in calls]
    assert len(calls) >= 4
    assert done == sorted(done)
    assert len({total for _, total in calls}) == 1
    assert done[-1] <= calls[-1][1] <= 1.2 * done[-1]


def test_values_of_a_compiled_run_tell_how_far_they_are() -> None:
    pytest.importorskip("numba")
    module = workloads.load("pipeline")
    program = module.build(tiles=20)
    calls = heard(lambda tell: simulate(program, inputs=module.inputs(program, 0), engine="compiled", progress=tell))
    totals = [t for _, t in calls]
    assert len(set(totals)) == 2  # rows of the engine; then starts and ends of every row and transfer


def test_json_on_a_terminal_is_json_alone(tmp_path: Path) -> None:
    main, other = pty.openpty()  # standard error is a terminal, standard output a pipe
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "TERM": "xterm"}
    at_once = "import nc_sim.progress as p; p.shown.__wrapped__.__defaults__ = ('', 0.0); "
    code = at_once + "from nc_sim.__main__ import main; main(prog_name='nc-sim')"
    words = ["run", "pipeline", "--size", "tiles=200", "--timing-only", "--json"]
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=other, check=True)
    os.close(other)
    told = b""
    try:
        while part := os.read(main, 1 << 16):
            told += part
    except OSError:  # the end of a terminal
        pass
    os.close(main)
    assert json.loads(done.stdout)["instructions"] == 1400
    assert b"saving" in told
