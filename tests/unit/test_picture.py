"""The picture of a sweep, and what asks for it."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from nc_sim.__main__ import main
from nc_sim.isa.errors import ProgramError, Unsupported
from nc_sim.report import picture

POINTS = [
    {"rows": r, "cols": c, "naive_over_rms_norm": 6.0 - r * c / 1000, "device_naive_over_rms_norm": 2.0 + c / 1000}
    for r in (4, 16)
    for c in (64, 128)
]
has_matplotlib = find_spec("matplotlib") is not None
needs_matplotlib = pytest.mark.skipif(not has_matplotlib, reason="the extra plot is not installed")


@needs_matplotlib
def test_a_line_for_each_number_of_rows_in_both_panels_and_the_same_bytes(tmp_path: Path) -> None:
    one, two = (picture.sweep(points, tmp_path / name) for points, name in ((POINTS, "a/one.svg"), (POINTS[::-1], "two.svg")))
    text = one.read_text()
    assert text == two.read_text()
    for word in ("Self NEURON", "device time", "4 rows", "16 rows", "columns"):
        assert f"<!-- {word} -->" in text, word
    # two panels, each two lines of two points, as the axes have one line more
    lines = re.findall(r'd="M [\d. ]+\nL [\d. ]+\n" clip-path="url[^"]+" style="fill: none; stroke: #(?:1f77b4|ff7f0e)', text)
    assert len(lines) == 4
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["two.svg"]


@needs_matplotlib
def test_png(tmp_path: Path) -> None:
    assert picture.sweep(POINTS, tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")


PARTS = {
    "shape": [4, 8], "heads": 2, "ff": 16, "layers": 1, "in_flight": 1,
    "variants": {
        "eager": {"self_neuron_us": 50.0, "device_us": 12.0, "parts": {
            "norm 1": {"dispatches": 6, "device_us": 5.0, "self_neuron_us": 30.0},
            "mlp": {"dispatches": 5, "device_us": 7.0, "self_neuron_us": 20.0},
        }},
        "compiled": {"self_neuron_us": 9.0, "device_us": 3.0, "parts": {
            "whole": {"dispatches": 1, "device_us": 3.0, "self_neuron_us": 9.0},
        }},
    },
}  # fmt: skip


@needs_matplotlib
def test_a_bar_for_each_part_with_device_time_below_the_rest_and_the_same_bytes(tmp_path: Path) -> None:
    one, two = (picture.parts(PARTS, tmp_path / name).read_text() for name in ("one.svg", "two.svg"))
    assert one == two
    for word in ("norm 1", "mlp", "whole", "device time (core model)", "rest of Self NEURON (host profile)"):
        assert f"<!-- {word} -->" in one, word
    # three bars and the legend: device time in both panels, the rest in one
    assert len(re.findall("fill: #1f4e79", one)) == 3 + 3 + 1
    assert len(re.findall("fill: #c8d3de", one)) == 3 + 1
    # a bar of the rest begins where that of the device ends; both in one scale: 30 - 5 to 5 in the first
    drawn = re.findall(
        r'd="M ([\d.]+) ([\d.]+) \nL [\d.]+ [\d.]+ \nL [\d.]+ ([\d.]+) \n[^z]*z\n" clip-path[^/]*fill: #(1f4e79|c8d3de)', one
    )
    bars = {(x, colour): (float(bottom), float(top)) for x, bottom, top, colour in drawn}
    rests = [(x, *ends) for (x, colour), ends in bars.items() if colour == "c8d3de"]
    assert [bars[x, "1f4e79"][1] for x, _, _ in rests] == [bottom for _, bottom, _ in rests]
    (x, bottom, top), *_ = rests
    assert (bottom - top) / (bars[x, "1f4e79"][0] - bottom) == pytest.approx((30 - 5) / 5, rel=1e-3)
    assert picture.parts(PARTS, tmp_path / "one.png").read_bytes() == picture.parts(PARTS, tmp_path / "two.png").read_bytes()


@pytest.mark.skipif(has_matplotlib, reason="the extra plot is installed")
def test_without_the_extra_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"the package matplotlib is not installed; pip install '\.\[plot\]' in the clone of nc-sim"):
        picture.sweep(POINTS, tmp_path / "one.svg")


@pytest.mark.parametrize(("name", "found"), [("one", "without a suffix"), ("one.pdf", ".pdf")])
def test_other_kinds_are_refused(name: str, found: str) -> None:
    with pytest.raises(ProgramError) as e:
        picture.sweep(POINTS, name)
    assert str(e.value) == f"{name}: a picture {found}; a name that ends in .svg or .png"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--picture", "a.svg"), "error: --picture: one shape; --sweep"),
        (("--sweep", "--picture", "a.pdf"), "error: a.pdf: a picture .pdf; a name that ends in .svg or .png"),
        (("--sweep", "--out", "a"), "error: --out: --sweep beside it; one shape, as a sweep keeps no traces"),
    ],
)
def test_options_that_do_not_go_together(words: tuple[str, ...], message: str) -> None:
    done = CliRunner().invoke(main, ["study", "rmsnorm", *words])
    assert (done.exit_code, done.output) == (1, message + "\n")
