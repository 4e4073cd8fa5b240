"""Replayed hardware streams against their measurement. Tolerances are the project's claims; see docs/timing.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nc_sim import core, fast, replay
from nc_sim.accuracy import replays
from nc_sim.isa.errors import ProgramError

NAMES = ("fused_fp32_s512", "baseline_bf16_s512")
# What an independent, earlier prototype of the same rules says of the same traces: body in ns, simulated and with
# DMA latencies taken from the trace.
PROTOTYPE = {"fused_fp32_s512": (23015, 23097), "baseline_bf16_s512": (39357, 39096)}
# Its ablations: change of the body against the measurement, in percent of it.
ABLATIONS = {
    "clock-gate": (-11.0, -3.9),
    "dma-completion-latency": (-2.7, -2.4),
    "dma-load-stalls": (-10.0, -2.2),
    "dma-busy-penalty": (-1.1, -1.4),
    "dma-row-overhead": (-1.9, -0.9),
    "software-descriptor-generation": (-14.6, -3.7),
    "semaphore-latency": (-1.5, -0.4),
    "issue-gap": (-1.9, 0.2),
    "fixed-latency": (-3.7, -1.7),
    "pe-result-latency": (-1.9, -0.4),
    "weight-load": (-1.4, 0.1),
    "run-ahead": (0.5, 1.1),
    "vector-fast-modes": (-0.4, 1.4),
    "event-semaphore": (-0.7, 0.3),
    "pointer-operand": (-0.7, 0.6),
    "hardware-descriptor-generation": (-0.4, 0.7),
}
SAME_SIZE = 0.6  # percent of the body: a shifted clock-gate decision moves the sum of small effects by as much


def trace(traces: Path, name: str) -> Path:
    return traces / f"{name}.instr.csv"


@pytest.mark.parametrize("name", NAMES)
def test_the_simulated_body_is_within_two_percent_of_the_measured_one(traces: Path, name: str) -> None:
    r = replay(trace(traces, name))
    assert abs(r.total_simulated_ns / r.total_measured_ns - 1) <= 0.02


@pytest.mark.parametrize("name", NAMES)
def test_the_median_start_error_is_within_one_and_a_half_percent_of_the_body(traces: Path, name: str) -> None:
    assert replay(trace(traces, name)).summary()["median_start_error_percent"] <= 1.5


@pytest.mark.parametrize("name", NAMES)
def test_the_body_is_within_one_percent_of_the_prototype(traces: Path, name: str) -> None:
    simulated, given = PROTOTYPE[name]
    assert abs(replay(trace(traces, name)).total_simulated_ns / simulated - 1) <= 0.01
    assert abs(replay(trace(traces, name), dma_from_trace=True).total_simulated_ns / given - 1) <= 0.01


@pytest.mark.parametrize("name", NAMES)
def test_with_measured_dma_latencies_the_body_is_within_half_a_percent(traces: Path, name: str) -> None:
    r = replay(trace(traces, name), dma_from_trace=True)
    assert abs(r.total_simulated_ns / r.total_measured_ns - 1) <= 0.005


@pytest.mark.parametrize("name", NAMES)
def test_the_clock_gate_opens_in_the_measured_window(traces: Path, name: str) -> None:
    r = replay(trace(traces, name))
    opened = next(tick for tick, full in r.timeline.gate if full)
    measured = {"fused_fp32_s512": 23822 - 13289, "baseline_bf16_s512": 45839 - 13508}[name]
    assert abs(r.chip.ns(opened) - measured) <= 1


@pytest.mark.parametrize("mechanism", ABLATIONS)
def test_switching_a_mechanism_off_moves_the_body_as_the_prototype_says(traces: Path, mechanism: str) -> None:
    for name, expected in zip(NAMES, ABLATIONS[mechanism], strict=True):
        r = replay(trace(traces, name), without=[mechanism])
        error = 100 * (r.total_simulated_ns / r.total_measured_ns - 1)
        assert error == pytest.approx(expected, abs=max(SAME_SIZE, 0.1 * abs(expected))), name


@pytest.mark.parametrize("name", NAMES)
def test_the_gate_phase_is_bracketed_from_the_clock_column_where_no_profile_lists_it(traces: Path, tmp_path: Path, name: str) -> None:
    alone = tmp_path / f"{name}.instr.csv"
    alone.write_bytes(trace(traces, name).read_bytes())
    r = replay(alone)
    assert r.gate_source.startswith("clock column: a transition between")
    assert abs(r.total_simulated_ns / r.total_measured_ns - 1) <= 0.02


@pytest.mark.parametrize("dma_from_trace", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_both_engines_replay_the_same_timeline(traces: Path, name: str, dma_from_trace: bool) -> None:
    r = replay(trace(traces, name), dma_from_trace=dma_from_trace)
    assert fast.loop(r.table) == core.run(r.table) == r.timeline


def test_the_kept_replays_of_the_accuracy_page_are_what_the_traces_give_now(traces: Path) -> None:
    assert replays.measured(traces, "trn2") == replays.kept()["runs"]


def test_replays_keep_their_commit_until_they_give_something_else(traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "_commit", lambda: "a newer one")
    place = tmp_path / "kept.json"
    place.write_text(json.dumps({"commit": "an older one", "runs": replays.kept()["runs"]}))
    assert json.loads(replays.keep(traces, place=place).read_text())["commit"] == "an older one"
    place.write_text(json.dumps({"commit": "an older one", "runs": replays.kept()["runs"][1:]}))
    assert json.loads(replays.keep(traces, place=place).read_text())["commit"] == "a newer one"
    assert json.loads(place.read_text())["runs"] == replays.kept()["runs"]


def test_an_installed_copy_cannot_say_what_code_gave_new_numbers_and_keeps_the_old(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError("no git")

    monkeypatch.setattr(replays.subprocess, "run", fails)
    place = tmp_path / "kept.json"
    place.write_text(json.dumps({"commit": "an older one", "runs": []}))
    before = place.read_bytes()
    with pytest.raises(ProgramError, match="replays: no commit; a git working copy"):
        replays.keep(traces, place=place)
    assert place.read_bytes() == before


@pytest.mark.parametrize("name", NAMES)
def test_a_replay_has_the_same_timeline_with_every_engine(traces: Path, name: str) -> None:
    pytest.importorskip("numba")
    by_engine = [replay(trace(traces, name), engine=engine) for engine in ("simpy", "compiled", "auto")]
    for column in ("ready", "start", "finish"):
        first, *others = (getattr(r.timeline, column).tobytes() for r in by_engine)
        assert others == [first, first]


def test_a_replay_runs_the_engine_that_is_named(traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    ran = []
    for module in (core, fast):
        monkeypatch.setattr(module, "run", lambda *a, _run=module.run, _name=module.__name__, **k: ran.append(_name) or _run(*a, **k))
    for engine in ("simpy", "compiled"):
        replay(trace(traces, NAMES[0]), engine=engine)
    assert ran == ["nc_sim.core", "nc_sim.fast"]


def test_a_replay_refuses_an_engine_that_does_not_exist(traces: Path) -> None:
    with pytest.raises(ProgramError, match=r"^replay: engine='fast'; one of auto, simpy, compiled$"):
        replay(trace(traces, NAMES[0]), engine="fast")
