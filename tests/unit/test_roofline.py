"""Rooflines: no point above its roof, ceilings by hand, and a picture that is the same bytes and keeps its labels apart."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings

import nc_sim
from nc_sim import Program, ProgramError, Result, Unsupported, simulate, workloads
from nc_sim.analysis.roofs import ceilings, points
from nc_sim.chip import load
from nc_sim.isa import COMPUTE
from nc_sim.notebook import frame
from nc_sim.report.roofline import Roofline, roofline
from nc_sim.testing import programs
from nc_sim.testing.bounds import HBM, rooflines

ROUNDING = 1 + 1e-9


def run(name: str, **sizes: Any) -> Result:
    return simulate(workloads.load(name).build(**sizes), values=False)


def below_its_roofs(result: Result) -> None:
    for p in points(result, engines=COMPUTE):
        for name, roof in p.roofs.items():
            if name != "HBM" or p.hbm_bounds:
                assert p.achieved <= roof * ROUNDING, f"{p} is above {name}: {p.achieved} of {roof}"


@settings(max_examples=60)
@given(programs())
def test_no_point_of_any_program_is_above_its_roof(program: Program) -> None:
    below_its_roofs(simulate(program, values=False))


@pytest.mark.parametrize("name", workloads.NAMES)
def test_no_point_of_a_workload_is_above_its_roof(name: str) -> None:
    below_its_roofs(run(name))


def test_a_point_a_hundred_times_faster_is_above_its_roof() -> None:
    """The property can fail."""
    (p,) = points(run("matmul"))
    quick = attrs.evolve(p, time_ns=p.time_ns / 100)
    assert quick.of_roof > 1


def test_a_program_that_only_loads_comes_near_the_roof_of_the_dma_engines() -> None:
    """Twelve loads of 2 MiB in long rows, of which VectorE looks at a little: the engines are at work but for start and end."""
    p = Program("move")
    x = p.input("x", (12, 128, 4096), "float32")
    for k in range(12):
        tile = p.sbuf((128, 4096), "float32")
        p.dma_copy(dst=tile, src=x[k], engine="sync", dge_mode="hwdge")
        p.tensor_copy(dst=p.sbuf((128, 8), "float32"), src=tile[:, :8])
    (point,) = points(simulate(p, values=False))
    assert point.bound == "DMA"
    assert 0.8 < point.of_roof <= 1


def test_the_ceilings_of_trn2_are_those_worked_out_by_hand() -> None:
    """2 x 128 x 128 flops a cycle at 2.4 GHz; fp32 takes two passes of two cycles. 128 lanes at 0.96 and 1.2 GHz."""
    found = {c.name: c.rate for c in ceilings(load("trn2"), [e.label for e in COMPUTE])}
    assert found["Tensor, 16 and 8 bits"] == pytest.approx(2 * 128 * 128 * 2.4)
    assert found["Tensor, fp32"] == pytest.approx(2 * 128 * 128 * 2.4 / 4)
    assert found["Vector, PSUM"] == pytest.approx(128 * 0.96)
    assert found["Scalar"] == pytest.approx(128 * 1.2)
    assert found["HBM"] == 716
    assert found["16 DMA engines"] == pytest.approx(16 * 27.2)
    assert found["SBUF, Tensor"] == pytest.approx(128 * 2 * 2.4)


def test_intensities_of_a_matmul_are_those_worked_out_by_hand() -> None:
    """K = 256, M = 256, N = 1024 in bf16, fp32 out: each byte moves once, so both intensities are equal."""
    (p,) = points(run("matmul"))
    moved = 2 * (256 * 256 + 256 * 1024) + 4 * 256 * 1024
    assert (p.work, p.hbm_bytes, p.least_bytes) == (2 * 256 * 256 * 1024, moved, moved)
    assert p.intensity == p.algorithmic_intensity == pytest.approx(2 * 256 * 256 * 1024 / moved)


def test_what_is_read_twice_lowers_the_achieved_intensity_alone() -> None:
    p = Program("twice")
    x, y = p.input("x", (128, 512), "float32"), p.output("y", (128, 512), "float32")
    a, b = p.sbuf((128, 512), "float32"), p.sbuf((128, 512), "float32")
    p.dma_copy(dst=a, src=x)
    p.dma_copy(dst=b, src=x)
    p.tensor_tensor(dst=a, data1=a, data2=b, op="add")
    p.dma_copy(dst=y, src=a)
    (point,) = points(simulate(p, values=False))
    assert point.intensity == pytest.approx(128 * 512 / (3 * 128 * 512 * 4))
    assert point.algorithmic_intensity == pytest.approx(128 * 512 / (2 * 128 * 512 * 4))


def test_roofs_are_the_terms_of_the_invariants_where_both_say_the_same() -> None:
    """`nc_sim.testing.rooflines` says the least ns by another way: HBM's, and the streams of VectorE, which fill all lanes here."""
    result = run("softmax")
    terms = rooflines(result)
    for p in points(result, engines=COMPUTE):
        assert p.work / p.roofs["HBM"] == pytest.approx(terms[HBM])
        assert p.work / p.roofs["compute"] == pytest.approx(terms[p.engine], rel=0.02)  # rows are rounded to ticks there


def test_transposes_are_no_work_and_a_mix_of_types_has_a_roof_between() -> None:
    """Attention in fp32 transposes with the array: 134,217,728 flops of products are counted, and the roof is that of fp32."""
    (p,) = points(run("attention"))
    assert p.work == 134_217_728
    assert p.compute_roof == pytest.approx(2 * 128 * 128 * 2.4 / 4)


def test_the_table_and_the_records_say_the_same() -> None:
    study = nc_sim.roofline([run("matmul"), run("softmax")])
    assert [r["engine"] for r in study.records()] == ["Tensor", "Vector", "Scalar"]
    text = study.text()
    for r in study.records():
        assert r["name"] in text
        assert f"{100 * r['of_roof']:.1f} %" in text
        assert r["achieved"] == r["work"] / r["time_ns"]
    assert "716.0 GB/s" in text


def test_runs_of_one_name_get_numbers_and_a_wrong_argument_is_refused() -> None:
    assert [p.name for p in roofline([run("matmul"), run("matmul", m=128)]).points] == ["matmul #1", "matmul #2"]
    with pytest.raises(ProgramError, match="results, cases of a sweep, or points"):
        roofline([7])  # type: ignore[list-item]
    with pytest.raises(ProgramError, match="one of Tensor, Vector, Scalar, GpSimd"):
        roofline(run("matmul"), engines=["PE"])
    assert [p.engine for p in roofline(run("matmul"), engines=["Vector"]).points] == ["Vector"]


def test_a_data_frame_needs_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(Unsupported, match="pandas is not installed"):
        frame([{"a": 1}])


def test_a_data_frame_has_a_row_for_each_point() -> None:
    pandas = pytest.importorskip("pandas", reason="the extra frame is not installed")
    study = roofline([run("matmul"), run("softmax")])
    found = study.frame()
    assert isinstance(found, pandas.DataFrame)
    assert found.to_dict("records") == study.records()


# --- the picture -------------------------------------------------------------------------------------------------


def many() -> Roofline:
    other = attrs.evolve(load("trn2"), name="other").what_if({"clock.tensor_mhz": 2800, "memory.hbm_bytes_per_ns": 400})
    runs = [run(name) for name in ("matmul", "attention", "transformer", "pipeline")]
    return roofline([*runs, *(simulate(r.program, other, values=False) for r in runs)])


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_a_picture_is_the_same_bytes_each_time(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    study = roofline(run("matmul"))
    one, two = study.save(tmp_path / f"a{suffix}"), study.save(tmp_path / f"b{suffix}")
    assert one.read_bytes() == two.read_bytes()
    assert len(one.read_bytes()) > 10_000


def test_texts_of_a_picture_do_not_overlap_and_none_is_cut(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from nc_sim.report import picture

    figures: list[Any] = []
    save = picture.save
    monkeypatch.setattr(picture, "save", lambda figure, *rest: (figures.append(figure), save(figure, *rest))[1])
    many().save(tmp_path / "a.svg")
    (figure,) = figures
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    (axes,), (legend,) = figure.axes, figure.legends
    texts = [*legend.get_texts(), *(t for t in axes.texts if t.get_text()), axes.xaxis.label, axes.yaxis.label]
    boxes = [(t.get_text(), _extent(t, renderer)) for t in texts]
    assert len(boxes) > 20
    page = figure.bbox
    for name, box in boxes:
        assert box.x0 >= page.x0, name
        assert box.x1 <= page.x1, name
        assert box.y0 >= page.y0, name
        assert box.y1 <= page.y1, name
    for (a, p), (b, q) in itertools.combinations(boxes, 2):
        assert not (p.x0 < q.x1 and q.x0 < p.x1 and p.y0 < q.y1 and q.y0 < p.y1), f"{a!r} over {b!r}"


def test_numbers_at_the_axes_do_not_overlap_where_points_are_close(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from nc_sim.report import picture

    figures: list[Any] = []
    save = picture.save
    monkeypatch.setattr(picture, "save", lambda figure, *rest: (figures.append(figure), save(figure, *rest))[1])
    roofline(run("rmsnorm", rows=1024, cols=2048), engines=["Vector"]).save(tmp_path / "a.svg")  # a decade and a half of intensity
    (figure,) = figures
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    (axes,) = figure.axes
    labels = [t for t in axes.get_xticklabels(which="both") if t.get_text()]
    assert [t.get_text() for t in labels] == ["0.1", "0.2", "0.5", "1", "2"]
    boxes = sorted((t.get_window_extent(canvas.get_renderer()) for t in labels), key=lambda b: b.x0)
    assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes))


def _extent(text: Any, renderer: Any) -> Any:
    """The box of the letters alone, without the line to what they name."""
    from matplotlib.text import Text

    return Text.get_window_extent(text, renderer)


def test_a_picture_needs_a_point_and_a_known_suffix(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(ProgramError, match="no point to draw"):
        Roofline((), ()).save(tmp_path / "a.svg")
    with pytest.raises(ProgramError, match=r"\.svg or \.png or \.pdf"):
        roofline(run("matmul")).save(tmp_path / "a.gif")


def test_a_run_without_hbm_has_no_place_on_the_picture_but_one_in_the_table(tmp_path: Path) -> None:
    p = Program("inside")
    p.memset(dst=p.sbuf((128, 64), "float32"), value=0.0, engine="vector")
    study = roofline(simulate(p, values=False))
    assert [math.isinf(q.intensity) for q in study.points] == [True]
    assert "inside" in study.text()
    assert study.points[0].bound in ("compute", "SBUF")


def test_bytes_of_transposes_belong_to_no_roof() -> None:
    """Fifty bf16 products of N = 512 alone, and with four hundred transposes beside: the time is longer, the roof is the same."""

    def products(transposes: int) -> nc_sim.Program:
        p = nc_sim.Program("products")
        s, m = p.sbuf((128, 128), "bfloat16"), p.sbuf((128, 512), "bfloat16")
        c, t = p.psum((128, 512)), p.psum((128, 128), "bfloat16")
        p.memset(dst=s, value=1.0)
        p.memset(dst=m, value=1.0)
        for _ in range(50):
            p.nc_matmul(dst=c, stationary=s, moving=m, accumulate=False)
        for _ in range(transposes):
            p.nc_transpose(dst=t, data=s)
        return p

    (alone,), (beside,) = (points(nc_sim.simulate(products(n), values=False)) for n in (0, 400))
    assert alone.bound == beside.bound == "compute"
    assert beside.roofs["SBUF"] == alone.roofs["SBUF"] == pytest.approx(2 * 128 * 128 * 2.4)
    assert beside.of_roof < 0.5 * alone.of_roof
