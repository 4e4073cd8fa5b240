"""Sweeps: every case in its place whatever runs it, resumed without running again, and failures kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner

import nc_sim
from nc_sim import Program, ProgramError, chip, simulate, sweep
from nc_sim.__main__ import main
from nc_sim.analysis import sweeps
from nc_sim.report.roofline import roofline
from nc_sim.workloads import matmul, softmax

SHAPES = [{"m": 128, "n": 512}, {"m": 256, "n": 512}]
WHAT_IF = {"as it is": {}, "no gate": {"tensor.gate.kind": "none"}}


class Reversed(Executor):
    """Runs nothing until the results are asked for, and the last first."""

    def __init__(self) -> None:
        self.calls: list[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.calls.append((future, fn, args))
        if len(self.calls) == len(SHAPES):
            for later, call, given in reversed(self.calls):
                later.set_result(call(*given))
        return future


class Lost(Executor):
    """Its workers die."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(MemoryError("killed"))
        return future


def plain(cases: nc_sim.analysis.sweeps.Sweep) -> list[Mapping[str, Any]]:
    return [attrs.asdict(c) for c in cases]


def test_cases_come_in_the_order_of_shapes_chips_and_what_ifs_with_the_times_of_simulate() -> None:
    other = attrs.evolve(chip.load("trn2"), name="other").what_if({"clock.vector_mhz": 1200})
    found = sweep(matmul.build, shapes=SHAPES, chips=["trn2", other], what_if=WHAT_IF, workers=1)
    assert [(c.sizes["m"], c.chip, c.what_if) for c in found] == [
        (m, on, w) for m in (128, 256) for on in ("trn2", "other") for w in ("as it is", "no gate")
    ]
    for c in found:
        wanted = simulate(matmul.build(**c.sizes), "trn2" if c.chip == "trn2" else other, values=False, what_if=WHAT_IF[c.what_if])
        assert c.summary == wanted.summary()
        assert not c.error


@pytest.mark.parametrize(
    "make", [Reversed, lambda: ThreadPoolExecutor(2), lambda: ProcessPoolExecutor(2)], ids=["reversed", "threads", "processes"]
)
def test_any_executor_gives_the_same_cases(make: Callable[[], Executor]) -> None:
    alone = sweep(matmul.build, shapes=SHAPES, what_if=WHAT_IF, workers=1)
    with make() as executor:
        assert plain(sweep(matmul.build, shapes=SHAPES, what_if=WHAT_IF, executor=executor)) == plain(alone)


def test_processes_of_its_own_give_the_same_cases_of_a_function_that_no_pickle_takes() -> None:
    alone = sweep(lambda m, n: matmul.build(m=m, n=n), shapes=SHAPES, workers=1)
    assert plain(sweep(lambda m, n: matmul.build(m=m, n=n), shapes=SHAPES, workers=2)) == plain(alone)


def test_a_dask_cluster_gives_the_same_cases() -> None:
    """Those that fail, in the building and in a worker, among them."""
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    shapes, what_if = [*SHAPES, {"m": 128, "n": 0}], {**WHAT_IF, "unknown": {"no.such": 1}}
    with distributed.Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        there = sweep(lambda m, n: matmul.build(m=m, n=n), shapes=shapes, what_if=what_if, executor=client.get_executor())
    assert [bool(c.error) for c in there] == [False, False, True] * 2 + [True] * 3
    assert plain(there) == plain(sweep(matmul.build, shapes=shapes, what_if=what_if, workers=1))


def test_a_failed_case_is_kept_with_its_error_beside_those_that_run(tmp_path: Path) -> None:
    def build(k: int, m: int, n: int) -> Program:
        return matmul.build(k, m, 512 // n)

    shapes = [(128, 128, 1), (128, 120_000, 512), (128, 128, 0)]
    what_if = [{}, {"no.such": 1}]
    found = sweep(build, shapes=shapes, what_if=what_if, keep=tmp_path, workers=1)
    assert [bool(c.error) for c in found] == [False, True, True, True, True, True]
    assert "unknown key 'no.such'" in found.cases[1].error
    assert "at most" in found.cases[2].error  # SBUF
    assert "matmul.py" in found.cases[2].error
    assert found.cases[4].error.startswith("ZeroDivisionError")
    assert found.failed == found.cases[1:]
    assert found.records()[1]["duration_ns"] is None
    assert plain(sweep(build, shapes=shapes, what_if=what_if, keep=tmp_path, workers=1)) == plain(found)


def test_a_lost_worker_is_an_error_of_its_cases_which_run_the_next_time(tmp_path: Path) -> None:
    lost = sweep(matmul.build, shapes=SHAPES, keep=tmp_path, executor=Lost())
    assert [c.error for c in lost] == ["worker lost: MemoryError: killed"] * 2
    assert not any(c.error for c in sweep(matmul.build, shapes=SHAPES, keep=tmp_path, workers=1))


def test_a_sweep_takes_up_what_is_kept_and_runs_only_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = sweep(matmul.build, shapes=SHAPES[:1], what_if=WHAT_IF, keep=tmp_path, workers=1)
    runs: list[int] = []
    real = sweeps._simulated
    monkeypatch.setattr(sweeps, "_simulated", lambda *a: (runs.append(len(a[2])), real(*a))[1])
    told: list[tuple[int, int]] = []
    both = sweep(matmul.build, shapes=SHAPES, what_if=WHAT_IF, keep=tmp_path, workers=1, progress=lambda *t: told.append(t))
    assert runs == [2]
    assert told == [(2, 4), (4, 4)]
    assert plain(both)[:2] == plain(first)
    more = {**WHAT_IF, "slow": {"semaphore.latency_ns": 90}}
    assert len(sweep(matmul.build, shapes=SHAPES, what_if=more, keep=tmp_path, workers=1)) == 6
    assert runs == [2, 1, 1]
    other = attrs.evolve(chip.load("trn2").what_if({"semaphore.latency_ns": 90}))
    sweep(matmul.build, shapes=SHAPES[:1], chips=[other], keep=tmp_path, workers=1)
    assert runs == [2, 1, 1, 1]  # the same name, other numbers
    assert plain(sweep(matmul.build, shapes=SHAPES, what_if=WHAT_IF, keep=tmp_path)) == plain(both)
    assert len(runs) == 4


def test_a_kept_file_that_is_something_else_is_refused(tmp_path: Path) -> None:
    sweep(matmul.build, shapes=SHAPES[:1], keep=tmp_path, workers=1)
    (path,) = tmp_path.iterdir()
    for text in ("{}", "not json", json.dumps({"form": 1, "summary": {}, "points": [{}], "ceilings": [], "error": ""})):
        path.write_text(text)
        with pytest.raises(ProgramError, match="remove it to run it again"):
            sweep(matmul.build, shapes=SHAPES[:1], keep=tmp_path, workers=1)


def test_what_ifs_of_costs_alone_do_not_compile_again(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    compiled: list[str] = []
    module = sys.modules["nc_sim.simulate"]
    real = module.compile_program
    monkeypatch.setattr(module, "compile_program", lambda p, *rest: (compiled.append(p.name), real(p, *rest))[1])
    sweep(softmax.build(), what_if=[{}, {"semaphore.latency_ns": 0}, {"dma.load_bytes_per_ns": 50}], workers=1)
    assert compiled == ["softmax"]


def test_wrong_arguments_are_refused() -> None:
    program = softmax.build()
    for call, found in (
        (lambda: sweep(program, shapes=[1]), "shapes beside a Program"),
        (lambda: sweep(softmax.build), "no shapes"),
        (lambda: sweep(7), "a Program, or a function"),  # type: ignore[arg-type]
        (lambda: sweep(program, what_if=[7]), "a list of mappings"),  # type: ignore[list-item]
        (lambda: sweep(program, chips=["trn9"]), "trn9"),
    ):
        with pytest.raises(nc_sim.NcSimError, match=found):
            call()


def test_shapes_may_be_sequences_or_single_numbers() -> None:
    def build(rows: int, cols: int = 512) -> Program:
        return softmax.build(rows, cols)

    found = sweep(build, shapes=[128, (128, 256), {"rows": 128, "cols": 64}], workers=1)
    assert [(c.shape, c.error) for c in found] == [("128", ""), ("128x256", ""), ("rows=128, cols=64", "")]
    rows = found.records()
    assert {tuple(r) for r in rows} == {tuple(rows[0])}


def test_cases_of_a_sweep_are_points_of_a_roofline_as_results_are() -> None:
    found = sweep(matmul.build, shapes=[*SHAPES, {"dtype": "nope"}], workers=1)
    study = roofline(found)
    results = roofline([simulate(matmul.build(**s), values=False) for s in SHAPES])
    assert [attrs.evolve(p, name="") for p in study.points] == [attrs.evolve(p, name="") for p in results.points]
    assert [p.name for p in study.points] == ["matmul m=128, n=512", "matmul m=256, n=512"]
    assert study.ceilings == results.ceilings


def test_the_commands_sweep_sizes_and_what_ifs(tmp_path: Path) -> None:
    def nc_sim_command(*words: str) -> str:
        done = CliRunner().invoke(main, list(words), prog_name="nc-sim")
        assert done.exit_code == 0, done.output
        return done.output

    words = ("softmax", "--size", "rows=128,256", "--what-if", "semaphore.latency_ns=0", "--workers", "1", "--keep", str(tmp_path))
    rows = json.loads(nc_sim_command("sweep", *words, "--json"))
    assert [(r["rows"], r["what_if"]) for r in rows] == [(n, w) for n in (128, 256) for w in ("", "semaphore.latency_ns=0")]
    assert len(list(tmp_path.iterdir())) == 4
    text = nc_sim_command("sweep", *words)
    assert f"{rows[0]['duration_ns'] / 1000:.3f} us" in text
    points = json.loads(nc_sim_command("roofline", *words, "--engine", "Vector", "--json"))
    assert [p["name"] for p in points][:2] == ["softmax rows=128", "softmax rows=128, semaphore.latency_ns=0"]
    done = CliRunner().invoke(main, ["sweep", "softmax", "--size", "rows"], prog_name="nc-sim")
    assert done.exit_code == 1
    assert "NAME=VALUE" in done.output
