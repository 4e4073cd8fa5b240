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
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nc_sim import Program, progress, simulate, track, workloads
from nc_sim.analysis.advice import CHANGES, explain
from nc_sim.analysis.again import saved
from nc_sim.forms import load_program, save_program
from nc_sim.profile import output, source
from nc_sim.progress import FINE, shown
from nc_sim.report import viewer, where
from nc_sim.report.study import rmsnorm, transformer
from nc_sim.simulate import SHARES
from nc_sim.trace import hardware, perfetto


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


LARGE = workloads.load("pipeline").build(tiles=3000, width=128)  # 12,001 calls, 15,003 instructions: several pieces of 4,096


def rises_to_the_end(calls: list[tuple[int, int]], least: int) -> None:
    done = [d for d, _ in calls]
    assert len(calls) >= least
    assert len({total for _, total in calls}) == 1
    assert done == sorted(done)
    assert done[-1] == calls[-1][1]


@pytest.mark.parametrize(("form", "of", "of_all"), [(".ncasm", 3, 1 + 10 + 12_001 + 3), (".msgpack", 3, None)])
def test_reading_a_program_tells_of_its_lines_or_bytes(tmp_path: Path, form: str, of: int, of_all: int | None) -> None:
    # lines: the name, ten tensors, the calls, three empty ones
    save_program(LARGE, path := tmp_path / f"large{form}")
    calls = heard(lambda tell: load_program(path, tell))
    rises_to_the_end(calls, of)
    assert calls[-1][1] == (of_all or path.stat().st_size)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulate(LARGE, values=False).save(tmp_path_factory.mktemp("large"))


READERS: dict[str, tuple[Callable[[Path, Callable[[int, int], None]], object], int]] = {
    "a trace": (hardware.load, 20),  # of five kinds of records, some forty columns
    "the program of a trace": (lambda folder, tell: hardware.load(folder).program(tell), 3),
    "a profile": (lambda folder, tell: source.read(folder, progress=tell), 20),
    "summary": (lambda folder, tell: output.write(folder, "summary-json", None, tell), 20),
}


@pytest.mark.parametrize("what", READERS)
def test_reading_a_saved_run_tells_how_far_it_is(large: Path, what: str) -> None:
    read, least = READERS[what]
    calls = heard(lambda tell: read(large, tell))
    if what == "summary":
        calls.append((calls[-1][1],) * 2)  # what comes after reading needs no time
    rises_to_the_end(calls, least)


def test_tables_of_a_profile_are_read_then_written(tmp_path: Path) -> None:
    folder = simulate(workloads.load("pipeline").build(tiles=100, width=128), values=False).save(tmp_path)
    rises_to_the_end(heard(lambda tell: output.write(folder, "json", tmp_path / "x.json", tell)), 50)


def test_a_saved_run_is_read_then_simulated(large: Path) -> None:
    read, compiled, *_ = [p for p in parts(heard(lambda tell: saved(large, progress=tell))) if len(p) > 1]
    rises_to_the_end(read, 3)
    rises_to_the_end(compiled, 10)
    assert compiled[-1] == (1000, 1000)


def test_explaining_tells_of_the_critical_path_and_of_every_change() -> None:
    result = simulate(workloads.load("pipeline").build(tiles=20), values=False)
    rises_to_the_end(heard(lambda tell: explain(result, progress=tell)), 50 + len(CHANGES))


def test_looking_back_tells_of_the_critical_path_and_of_slack() -> None:
    result = simulate(workloads.load("pipeline").build(tiles=100), values=False)
    rises_to_the_end(heard(lambda tell: where.text(result, progress=tell)), 50)
    assert heard(lambda tell: where.record(result, tell))[-1] == heard(lambda tell: where.text(result, progress=tell))[-1]


def test_drawing_tells_of_reading_tracks_and_writing(tmp_path: Path) -> None:
    pytest.importorskip("perfetto")
    pytest.importorskip("matplotlib")
    result = simulate(workloads.load("pipeline").build(tiles=4), values=False)
    calls = heard(lambda tell: viewer.draw(result, tmp_path / "x.svg", progress=tell))
    rises_to_the_end(calls, 60)
    thirds = [sum(a < done <= b for done, _ in calls) for a, b in ((0, 5 * FINE), (5 * FINE, 9 * FINE), (9 * FINE, 12 * FINE))]
    assert min(thirds) >= 2  # made and read, laid out, written


def test_a_tracked_loop_of_a_build_gives_the_bar_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with shown("building", after=0.01):
        assert list(track(slow(), 8)) == list(range(8))
    assert re.search(r"building.*left \x1b\[36m0:00:0", sys.stderr.getvalue())  # type: ignore[attr-defined]


def slow() -> Iterator[int]:
    for k in range(8):
        time.sleep(0.1)
        yield k


def test_a_tracked_loop_tells_a_bounded_number_of_times_and_only_the_bar_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []
    before = progress._HEARD.set(lambda done, total: calls.append((done, total)))
    try:
        assert sum(track(range(100_000))) == sum(range(100_000))
        assert list(track(iter("abc"))) == ["a", "b", "c"]  # how many there are is not known: nothing to tell
        assert list(track(iter("abc"), 2)) == ["a", "b", "c"]
    finally:
        progress._HEARD.reset(before)
    rises_to_the_end(calls[:-2], 200)
    assert len(calls) == 202
    assert calls[-2:] == [(1, 2), (2, 2)]
    assert list(track(range(3))) == [0, 1, 2]
    assert len(calls) == 202


@pytest.mark.parametrize("name", ["pipeline", "matmul", "softmax", "rmsnorm"])
def test_a_shipped_workload_tells_how_far_building_is(name: str) -> None:
    calls: list[tuple[int, int]] = []
    before = progress._HEARD.set(lambda done, total: calls.append((done, total)))
    try:
        workloads.load(name).build()
    finally:
        progress._HEARD.reset(before)
    rises_to_the_end(calls, 1)


def test_the_check_for_races_tells_of_its_steps() -> None:
    p = Program("explicit")
    t, written = p.sbuf((128, 8), "float32"), p.semaphore("written")
    for k in range(4200):
        p.memset(dst=t, value=float(k), update=[written.add(1)] if k == 4199 else [])
    p.tensor_copy(dst=p.sbuf((128, 8), "float32"), src=t, engine="scalar", wait=[written >= 1])
    races = parts(heard(lambda tell: simulate(p, values=False, progress=tell)))[-1]
    assert races == [(4096, 4201), (4201, 4201)]


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
