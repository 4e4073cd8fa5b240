"""What a notebook shows: every object as HTML, escaped and of bounded size, with pictures where matplotlib is; data frames."""

from __future__ import annotations

import base64
import linecache
import re
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

import nc_sim
from nc_sim import Program, Result, Unsupported, simulate, sweep, workloads
from nc_sim.analysis import critical_path, dma_rows, overlap, shares, slack, stalls
from nc_sim.analysis.advice import CHANGES, explain
from nc_sim.chip import load
from nc_sim.notebook import Records, Shown, frame
from nc_sim.profile import device, source
from nc_sim.report import notebook
from nc_sim.report.study.rmsnorm import rmsnorm_study
from nc_sim.workloads import matmul

needs_matplotlib = pytest.mark.skipif(find_spec("matplotlib") is None, reason="the extra plot is not installed")
VOID = {"img", "br"}


class Page(HTMLParser):
    """What a page says, table by table; it refuses tags that do not close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.said: list[str] = []
        self.tags: set[str] = set()
        self.images: list[dict[str, str | None]] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        elif tag == "img":
            self.images.append(dict(attributes))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.said.append(data)
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data


@pytest.fixture(scope="module")
def result() -> Result:
    return simulate(workloads.load("softmax").build(), values=False)


def page(of: Any) -> Page:
    assert isinstance(of, Shown)
    return Page(of._repr_html_())


def text_of(of: Any) -> str:
    """As IPython's printer would be told."""
    told: list[str] = []
    of._repr_pretty_(type("Printer", (), {"text": lambda self, t: told.append(t)})(), False)
    return "".join(told)


OBJECTS: dict[str, Callable[[Result], Any]] = {
    "result": lambda r: r,
    "program": lambda r: r.program,
    "chip": lambda r: r.chip,
    "stalls": stalls,
    "critical path": critical_path,
    "shares": lambda r: shares(r, critical_path(r), "line"),
    "slack": slack,
    "overlap": overlap,
    "DMA rows": dma_rows,
    "explain": lambda r: explain(r, CHANGES[:2]),
    "roofline": nc_sim.roofline,
    "sweep": lambda r: sweep(r.program, workers=1),
    "study": lambda r: rmsnorm_study(),
    "profile table": lambda r: device.tables(source.of_result(r))["Instruction"],
}


@pytest.mark.parametrize("name", OBJECTS)
def test_every_object_shows_itself_as_html_and_as_text_that_ipython_finds(name: str, result: Result) -> None:
    of = OBJECTS[name](result)
    shown = page(of)
    assert shown.said
    assert shown.tags <= {"p", "b", "i", "table", "thead", "tbody", "tr", "td", "th", "details", "summary", "img", "ul", "li", "div"}
    assert "_repr_pretty_" in vars(type(of))  # IPython takes the first class that has this or a __repr__
    assert 0 < len(text_of(of)) < 10_000


def test_a_result_shows_its_times_the_active_share_of_engines_and_what_it_rests_on(result: Result) -> None:
    shown = page(result)
    times, engines, assumed = shown.tables
    told, summary = dict(zip(*times, strict=True)), result.summary()
    assert told["body"] == f"{result.duration_ns / 1000:.3f} us"
    assert told["profile total"] == f"{result.total_time_ns / 1000:.3f} us"
    assert told["benchmark"] == f"{result.benchmark_ns / 1000:.3f} us"
    assert (told["instructions"], told["HBM read"], told["products"]) == ("16", "512.0 KiB", "0.00 Mflop")  # 2 tiles of 128 x 512 float32
    assert {row[0]: row[3] for row in engines[1:]} == {
        k: f"{100 * e['busy_ns'] / result.duration_ns:.1f} %" for k, e in summary["engines"].items()
    }
    assert [row[0] for row in assumed[1:]] == list(result.assumed)
    assert f"rests on {len(result.assumed)} numbers that no source gives for this chip" in shown.said


def test_an_extrapolated_chip_is_said_in_every_report(result: Result) -> None:
    on = simulate(result.program, "trn3", values=False)
    for of in (on, on.chip, explain(on, ()), nc_sim.roofline(on), sweep(result.program, chips=["trn3"], workers=1)):
        assert any("extrapolated: no profile" in s for s in page(of).said), type(of)
        assert "extrapolated" not in result._repr_html_()


def test_texts_of_a_user_are_escaped(result: Result) -> None:
    evil = "<script>alert(1)</script>&\"'"
    cases = sweep(result.program, what_if={evil: {"no.such": 1}}, workers=1)
    told = attrs.evolve(explain(result, ()), program=evil, sentences=(evil,))
    study = nc_sim.roofline(result)
    named = attrs.evolve(study, points=[attrs.evolve(study.points[0], name=evil)])
    for of in (cases, told, named, Records(attrs.evolve(p, on=evil) for p in stalls(result)[:1])):
        assert "<script" not in of._repr_html_()
        assert evil in "".join(page(of).said)


def test_what_is_shown_of_a_large_run_is_small() -> None:
    calls, most = 2_500, 40_000  # bytes: 16 for each call
    p = Program("many")
    t = p.sbuf((128, 4), "float32")
    for _ in range(calls):
        p.memset(dst=t, value=0.0, engine="vector")
    result = simulate(p, values=False)
    path = critical_path(result)
    table = device.tables(source.of_result(result))["Instruction"]
    assert (len(result.steps), table.rows) == (calls, calls)
    assert len(path) > calls
    for of in (result, p, path, slack(result), table, sweep(p, what_if=[{"semaphore.latency_ns": k} for k in range(2)], workers=1)):
        assert len(of._repr_html_()) < most, type(of)
        assert len(text_of(of)) < most, type(of)
    assert not page(result).images
    assert "more than 2,000 instructions" in "".join(page(result).said)
    assert f"{calls - 20:,} more calls" in "".join(page(p).said)
    assert len(page(p).tables[1]) == 21
    assert text_of(path).splitlines()[-1].strip() == f"… and {len(path) - 50:,} more"
    assert f"… and {len(path) - 50:,} more rows" in page(path).said


def test_failed_cases_come_first_where_not_all_are_shown() -> None:
    cases = sweep(matmul.build, shapes=[*({"m": 1 + k} for k in range(24)), {"dtype": "float7"}], workers=1)
    assert [row[0] for row in page(cases).tables[0][1:3]] == ["dtype=float7", "m=1"]
    assert "25 cases, 1 failed" in page(cases).said
    few = sweep(matmul.build, shapes=[{"m": 1}, {"dtype": "float7"}], workers=1)
    assert [row[0] for row in page(few).tables[0][1:]] == ["m=1", "dtype=float7"]


@needs_matplotlib
def test_a_result_and_a_roofline_bring_a_picture_of_their_own(result: Result) -> None:
    for of, word in ((result, "ACTIVATE"), (nc_sim.roofline(result), "16 DMA engines, 435 GB/s")):
        (image,) = page(of).images
        start = "data:image/svg+xml;base64,"
        assert (image["src"] or "").startswith(start)
        svg = base64.b64decode((image["src"] or "")[len(start) :]).decode()
        assert f"<!-- {word} -->" in svg
        assert len(svg) < notebook.LARGEST
        assert of._repr_html_() == of._repr_html_()


def test_without_matplotlib_the_tables_alone_are_shown(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    real = find_spec
    with_picture = result._repr_html_()
    monkeypatch.setattr(notebook, "find_spec", lambda name: None if name == "matplotlib" else real(name))
    alone = result._repr_html_()
    assert alone == re.sub(r"<img [^>]*>", "", with_picture)
    assert not page(nc_sim.roofline(result)).images


def test_what_is_too_large_or_cannot_be_drawn_is_left_out(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not page(nc_sim.roofline([])).images  # no point
    assert not page(simulate(Program("nothing"), values=False)).images
    monkeypatch.setattr(notebook, "LARGEST", 100)
    assert not page(result).images


def test_a_program_shows_its_calls_with_lines_and_semaphores() -> None:
    p = Program("explicit")
    t, done = p.sbuf((128, 4), "float32"), p.semaphore("done")
    p.memset(dst=t, value=0.0, engine="vector", update=[done.add(1)])
    p.nop(engine="sync", wait=[done >= 1])
    tensors, calls = page(p).tables
    assert tensors[1] == ["sbuf0", "internal", "SBUF", "[128, 4]", "float32"]
    assert [(row[1], row[4]) for row in calls[1:]] == [("Vector", "add 1 to done"), ("Sync", "wait done >= 1")]
    assert all(row[3].startswith("test_notebook.py:") for row in calls[1:])


def test_a_chip_shows_how_its_numbers_are_known_and_what_is_overridden() -> None:
    trn2 = load("trn2")
    known, unsure = page(trn2).tables
    assert sum(int(row[1]) for row in known[1:]) == len(trn2.numbers)
    assert len(unsure) == 21
    changed = trn2.what_if({"semaphore.latency_ns": 1})
    assert ["semaphore.latency_ns", "1"] in page(changed).tables[1]
    assert repr(changed) == f"<Chip trn2: NeuronCore-v3, {len(trn2.numbers)} numbers, semaphore.latency_ns=1>"


def test_records_stay_the_tuples_they_are(result: Result) -> None:
    parts = stalls(result)
    assert parts == tuple(parts)
    assert isinstance(parts[:2], Records)
    assert parts[:2] == tuple(parts)[:2]
    assert parts[-1] is tuple(parts)[-1]
    assert dma_rows(result).records()[0]["efficiency"] == dma_rows(result)[0].efficiency
    assert page(parts[:0]).said == ["nothing"]


def test_lines_of_cells_are_told_by_the_number_of_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jupyter compiles a cell as a file in a folder of its own; `format_code_name` of its compiler tells the number."""
    cell = "/tmp/ipykernel_7/3185498722.py"
    source = "p = Program('cell')\nt = p.sbuf((128, 4), 'float32')\np.memset(dst=t, value=0.0)\np.tensor_copy(dst=t, src=t)\n"
    names: dict[str, Any] = {"Program": Program, "__name__": "__main__"}
    exec(compile(source, cell, "exec"), names)
    p = names["p"]
    assert "3185498722.py:3" in p._repr_html_()
    shell = SimpleNamespace(compile=SimpleNamespace(format_code_name=lambda name: ("Cell", "In[4]") if name == cell else None))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(linecache.cache, cell, (0, None, [], cell))
    result = simulate(p, values=False)
    for of in (p, stalls(result), critical_path(result), explain(result, ())):
        assert "3185498722" not in of._repr_html_() + text_of(of)
    assert [row[3] for row in page(p).tables[1][1:]] == ["In[4]:3", "In[4]:4"]
    assert "In[4]:4" in text_of(explain(result, ()))
    assert p.steps[0].line == "3185498722.py:3"  # what is kept does not depend on when the cell ran
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert "3185498722.py:3" in p._repr_html_()


def test_a_notebook_that_jupyter_executes_holds_tables_and_pictures_and_stays_small() -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: no notebook is executed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: no notebook is executed")
    nbformat = pytest.importorskip("nbformat")
    cells = (
        "import nc_sim; from nc_sim import workloads; r = nc_sim.simulate(workloads.load('softmax').build(), values=False)\nr",
        "from nc_sim.analysis import stalls; stalls(r)",
        "nc_sim.roofline(r)",
        "r.chip",
        "p = nc_sim.Program('cell')\np.memset(dst=p.sbuf((128, 4), 'float32'), value=0.0)\np",
    )
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    nbclient.NotebookClient(book, timeout=120, kernel_name="python3").execute()
    outputs = [cell.outputs[-1]["data"] for cell in book.cells]
    assert ["<table>" in o["text/html"] for o in outputs] == [True] * 5
    assert "In[5]:2" in outputs[4]["text/html"]
    assert ["<img" in o["text/html"] for o in outputs] == [find_spec("matplotlib") is not None and k in (0, 2) for k in range(5)]
    assert outputs[0]["text/plain"].startswith("softmax on trn2 (NeuronCore-v3)")
    assert len(outputs[1]["text/plain"].splitlines()) == 1 + len(stalls(simulate(workloads.load("softmax").build(), values=False)))
    assert sum(len(text) for o in outputs for text in o.values()) < 500_000


# --- data frames -------------------------------------------------------------------------------------------------


def test_without_pandas_the_error_names_the_extra(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    for make in (result.frame, stalls(result).frame, nc_sim.roofline(result).frame, sweep(result.program, workers=1).frame):
        with pytest.raises(Unsupported, match=r"pandas is not installed; pip install '\.\[frame\]' in the clone of nc-sim, or the records"):
            make()


def test_frames_hold_what_the_records_say(result: Result) -> None:
    pandas = pytest.importorskip("pandas", reason="the extra frame is not installed")
    cases = sweep(result.program, what_if=[{}, {"no.such": 1}], workers=1)
    table = device.tables(source.of_result(result))["Instruction"]
    for made, rows in (
        (stalls(result).frame(), stalls(result).records()),
        (critical_path(result).frame(), critical_path(result).records()),
        (dma_rows(result).frame(), dma_rows(result).records()),
        (nc_sim.roofline(result).frame(), nc_sim.roofline(result).records()),
        (explain(result, CHANGES[:2]).gains.frame(), [attrs.asdict(g) for g in explain(result, CHANGES[:2]).gains]),
    ):
        assert isinstance(made, pandas.DataFrame)
        assert made.to_dict("records") == rows
    assert list(cases.frame()["error"].astype(bool)) == [False, True]
    assert cases.frame()["duration_ns"][0] == round(result.duration_ns, 3)
    assert list(table.frame().columns) == list(table.columns())
    assert len(table.frame()) == len(result.steps)
    made = result.frame()
    assert list(made["opcode"]) == [i.opcode for i in result.instructions]
    assert ((made["end_ns"] - made["start_ns"]) == made["duration_ns"]).all()
    assert list(simulate(Program("nothing"), values=False).frame().columns) == list(made.columns)
    assert list(rmsnorm_study().frame()["variant"]) == ["naive", "rms_norm", "compiled"]
    assert list(frame({"a": [1, 2]})["a"]) == [1, 2]
