"""Runs as lanes: what is drawn is what engines are busy with, and how many DMA engines move data."""

from __future__ import annotations

import itertools
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from nc_sim import Program, ProgramError, Result, simulate, workloads
from nc_sim.analysis import overlap, stalls
from nc_sim.isa import Engine
from nc_sim.report import lanes, picture
from nc_sim.testing import programs

needs_matplotlib = pytest.mark.skipif(find_spec("matplotlib") is None, reason="the extra plot is not installed")


def run(name: str, **sizes: Any) -> Result:
    return simulate(workloads.load(name).build(**sizes), values=False)


def boxes_are_busy(result: Result) -> None:
    drawn = {lane.name: lane for lane in lanes.lanes(result).engines}
    for engine in (Engine.VECTOR.label, Engine.SCALAR.label, Engine.GPSIMD.label):
        busy = sum(p.ns for p in stalls(result) if p.engine == engine and p.cause == "busy")
        if engine not in drawn:
            assert busy == 0
            continue
        lane = drawn[engine]
        assert float((lane.end - lane.start)[~lane.low].sum()) == pytest.approx(busy)
        start, end = lane.start[~lane.low], lane.end[~lane.low]
        assert (start[1:] >= end[:-1]).all()


@pytest.mark.parametrize("name", ["attention", "softmax", "transformer"])
def test_the_boxes_of_an_engine_are_as_long_as_stalls_calls_it_busy(name: str) -> None:
    """Not of the array: weights that load behind a product overlap with it."""
    boxes_are_busy(run(name))


@settings(max_examples=40)
@given(programs())
def test_the_boxes_of_any_program_are_as_long_as_stalls_calls_it_busy(program: Program) -> None:
    boxes_are_busy(simulate(program, values=False))


def test_boxes_worked_out_by_hand() -> None:
    """Memsets on VectorE of 960 and 1920 elements a partition: 0.8 cycles each at 0.96 GHz, and the same gap behind both.

    The last box ends with the body, where a result is visible before the engine could have taken another.
    """
    p = Program("fills")
    a, b = p.sbuf((128, 960), "float32"), p.sbuf((128, 1920), "float32")
    p.memset(dst=a, value=0.0, engine="vector")
    p.memset(dst=b, value=0.0, engine="vector")
    p.memset(dst=a, value=0.0, engine="vector")
    result = simulate(p, values=False)
    shown = lanes.lanes(result, "two")
    (lane,) = (e for e in shown.engines if e.name == "Vector")
    assert (shown.name, shown.body, lane.opcode) == ("two", result.duration_ns, ("MEMSET",) * 3)
    first, second, _ = (lane.end - lane.start).tolist()
    assert second - first == pytest.approx(800)
    assert lane.start[1:].tolist() == pytest.approx(lane.end[:-1].tolist())
    assert lane.end[-1] == pytest.approx(result.duration_ns)
    assert shown.moving[0].size == 0


def test_the_time_in_which_any_dma_engine_moves_is_that_of_the_overlap_report() -> None:
    result = run("matmul")
    begin, end = lanes.lanes(result).moving
    edges = np.concatenate([begin, end])
    order = np.argsort(edges, kind="stable")
    count = np.cumsum(np.concatenate([np.ones(len(begin)), -np.ones(len(end))])[order])
    at = edges[order]
    assert count.max() == 16
    any_of_them = float(np.diff(at)[count[:-1] > 0].sum())
    (wanted,) = (o.ns for o in overlap(result) if (o.engine, o.other) == ("DMA", "DMA"))
    assert any_of_them == pytest.approx(wanted, rel=0.01)  # that one has transfers of nothing too


def test_time_until_an_edge_by_hand() -> None:
    starts, ends = np.array([1.0, 2.0]), np.array([3.0, 6.0])
    edges = np.array([0.0, 2.0, 4.0, 8.0])
    assert (lanes._until(ends, edges) - lanes._until(starts, edges)).tolist() == [0, 1, 4, 6]


@needs_matplotlib
@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_a_picture_is_the_same_bytes_each_time(suffix: str, tmp_path: Path) -> None:
    runs = [run("softmax"), run("matmul")]
    one, two = (lanes.draw(runs, tmp_path / f"{n}{suffix}") for n in "ab")
    assert one.read_bytes() == two.read_bytes()


@needs_matplotlib
def test_a_picture_names_runs_engines_and_opcodes(tmp_path: Path) -> None:
    text = lanes.draw([run("softmax"), run("matmul")], tmp_path / "a.svg", names=["one <b>", "two"]).read_text()
    words = re.findall("<!-- (.*?) -->", text)
    for word in ("one &lt;b&gt;: 14.961 us", "two: 12.377 us", "Tensor", "Vector", "GpSimd", "MATMUL", "ACTIVATE"):
        assert word in words, word


@needs_matplotlib
def test_thousands_of_thin_boxes_share_the_places_of_the_page(tmp_path: Path) -> None:
    p = Program("many")
    t = p.sbuf((128, 4), "float32")
    for _ in range(3000):
        p.memset(dst=t, value=0.0, engine="vector")
    result = simulate(p, values=False)
    path = lanes.draw(result, tmp_path / "a.svg")
    assert path.stat().st_size < 200_000
    page = lanes._Page([lanes.lanes(result)], 0.0, result.duration_ns)
    (lane,) = (e for e in page.runs[0].engines if e.name == "Vector")
    boxes = page._boxes(lane)
    assert len(boxes) <= 2  # one kind, side by side
    covered = sum(right - left for _, left, right in boxes)
    assert covered > 0.9 * (page.right - page.left)


@needs_matplotlib
def test_texts_of_a_picture_do_not_overlap_and_none_is_cut(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figures: list[Any] = []
    save = picture.save
    monkeypatch.setattr(picture, "save", lambda figure, *rest: (figures.append(figure), save(figure, *rest))[1])
    lanes.draw([run(n) for n in ("attention", "transformer", "rmsnorm")], tmp_path / "a.svg")
    (figure,) = figures
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    boxes = [(t.get_text(), t.get_window_extent(canvas.get_renderer())) for t in figure.axes[0].texts]
    assert len(boxes) > 30
    for name, box in boxes:
        assert box.x0 >= 0, name
        assert box.x1 <= figure.bbox.x1, name
        assert box.y0 >= 0, name
    for (a, p), (b, q) in itertools.combinations(boxes, 2):
        assert not (p.x0 < q.x1 and q.x0 < p.x1 and p.y0 < q.y1 and q.y0 < p.y1), f"{a!r} over {b!r}"


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = run("softmax")
    for call, found in (
        (lambda: lanes.draw([], tmp_path / "a.svg"), "at least one run"),
        (lambda: lanes.draw(result, tmp_path / "a.svg", names=["a", "b"]), "a name for each"),
        (lambda: lanes.draw(result, tmp_path / "a.svg", from_us=3, to_us=3), "one with a length"),
        (lambda: lanes.draw(result, tmp_path / "a.svg", to_us=float("nan")), "one with a length"),
        (lambda: lanes.draw(result, tmp_path / "a.gif"), r"\.svg or \.png or \.pdf"),
    ):
        with pytest.raises(ProgramError, match=found):
            call()
    assert not list(tmp_path.iterdir())
