"""Progress: on a terminal only, after two seconds only, and never in the output."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nc_sim import simulate, workloads
from nc_sim.progress import shown
from nc_sim.report.study import rmsnorm, transformer
from nc_sim.simulate import SHARES
from nc_sim.trace import perfetto


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(monkeypatch: pytest.MonkeyPatch, to: io.StringIO, after: float, told: tuple[tuple[int, int], ...] = ()) -> str:
    monkeypatch.setattr(sys, "stderr", to)
    monkeypatch.setenv("TERM", "xterm")
    with shown("compiling", "simulating", after) as tell:
        time.sleep(0.3)
        for done, total in told:
            tell(done, total)
            time.sleep(0.15)
    return to.getvalue()


COMPILING = tuple((done, 10) for done in range(1, 11, 2))


def test_a_terminal_shows_the_work_and_what_is_left_then_the_next_work(monkeypatch: pytest.MonkeyPatch) -> None:
    out = drawn(monkeypatch, Terminal(), 0.01, (*COMPILING, (1, 10), (3, 10)))
    first, second = out.split("simulating", 1)
    assert re.search(r"compiling.*left \x1b\[36m0:00:0", first)
    assert "compiling" not in second


def test_another_total_begins_the_next_work_though_more_of_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "simulating" in drawn(monkeypatch, Terminal(), 0.01, (*COMPILING, (500, 1000)))


def test_work_that_goes_on_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "simulating" not in drawn(monkeypatch, Terminal(), 0.01, COMPILING)


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
    assert len(parts(calls)) == 3  # compiling; rows of the engine; then starts and ends of every row and transfer


def parts(calls: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Calls of one total and of growing work, as the bar takes them."""
    out: list[list[tuple[int, int]]] = []
    for call in calls:
        if not out or call[1] != out[-1][-1][1] or call[0] < out[-1][-1][0]:
            out.append([])
        out[-1].append(call)
    return out


def test_compiling_a_large_program_tells_of_every_stage_up_to_the_end() -> None:
    program = workloads.load("pipeline").build(tiles=3000, width=128)
    compiling = parts(heard(lambda tell: simulate(program, values=False, progress=tell)))[0]
    assert {total for _, total in compiling} == {1000}
    done = [d for d, _ in compiling]
    assert done[-1] == 1000
    ends = [sum(list(SHARES.values())[:k]) for k in range(len(SHARES) + 1)]
    told = {n: sum(a < d <= b for d in done) for n, a, b in zip(SHARES, ends, ends[1:], strict=False)}
    # 12,001 calls are three pieces of 4,096; 15,003 machine instructions before the waits are four, 21,000 with them are six
    assert told == {"expand": 3, "allocate": 0, "synchronise": 4, "validate": 6, "lower": 6, "table": 1}


def test_a_phase_range_of_a_chip_whose_throttle_has_no_phase_is_one_run() -> None:
    program = workloads.load("softmax").build()
    told = parts(heard(lambda tell: simulate(program, "trn1", values=False, phase_range=True, engine="simpy", progress=tell)))[-1]
    assert told == [(1, 1)]


def test_a_phase_range_tells_of_its_sixteen_runs() -> None:
    program = workloads.load("pipeline").build(tiles=2)
    phases = parts(heard(lambda tell: simulate(program, values=False, phase_range=True, engine="simpy", progress=tell)))[-1]
    assert phases == [(k, 16) for k in range(1, 17)]


@pytest.mark.parametrize("study", [rmsnorm.rmsnorm_study, transformer.transformer_study])
def test_a_study_tells_of_its_three_variants(study: Callable[..., object]) -> None:
    assert heard(lambda tell: study(progress=tell)) == [(1, 3), (2, 3), (3, 3)]


def test_a_sweep_tells_of_its_elements_up_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rmsnorm, "SWEEP_ROWS", (4,))
    monkeypatch.setattr(rmsnorm, "SWEEP_COLS", (300, 600))
    total = 4 * 900
    assert heard(rmsnorm.sweep) == [(d, total) for d in (400, 800, 1200, 2000, 2800, 3600)]


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
