"""Perfetto files read and drawn: what stands where, what a window shows, and what is refused."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from test_perfetto import product, system_of
from test_system_trace import dispatched, scaled

from conftest import REPOSITORY
from nc_sim import simulate
from nc_sim.__main__ import main
from nc_sim.isa.errors import ProgramError, Unsupported
from nc_sim.report import viewer
from nc_sim.runtime import Runtime
from nc_sim.runtime.events import FRAMEWORK, HARDWARE, RUNTIME, Event
from nc_sim.trace import perfetto, pftrace, system
from nc_sim.trace.pftrace import Slice, Track

has_extras = find_spec("perfetto") is not None and find_spec("matplotlib") is not None
needs_extras = pytest.mark.skipif(not has_extras, reason="the extras perfetto and plot are not installed")

CHAIN = (
    Event(0, "aten::mul", FRAMEWORK, 0, 40_000, thread=0, flow=(9,)),
    Event(1, "aten::mul", FRAMEWORK, 10_000, 100_000, stream=0, flow=(9,)),
    Event(2, "nrta_execute_schedule", RUNTIME, 10_000, 40_000, core=0, thread=0, flow=(9,)),
    Event(3, "nrt_model_submit", RUNTIME, 10_000, 40_000, core=0, thread=0, parent=2, flow=(9,)),
    Event(4, "kbl_exec_wait", RUNTIME, 50_000, 100_000, core=0, thread=0, flow=(9, 1)),
    Event(5, "nc_exec_running", HARDWARE, 60_000, 80_000, core=0, flow=(1,)),
)


@pytest.fixture(scope="module")
def rt() -> Runtime:
    return dispatched(cores=2)


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    return perfetto.save(system_of(*CHAIN), tmp_path / "chain.pftrace")


def texts(path: Path) -> list[str]:
    """The words of an SVG, which matplotlib also writes as comments."""
    return re.findall(r"<!-- (.*?) -->", path.read_text())


def page(tracks: list[Track], start: int, end: int) -> viewer._Page:
    return viewer._Page((start, end), tracks)


def line(*slices: tuple[int, int], name: str = "a", depth: int = 0) -> Track:
    return Track("t", 0, False, "", (), [Slice(name, a, b, depth, (), ()) for a, b in slices])


def counted(*samples: tuple[int, float]) -> Track:
    return Track("c", 0, True, "", (), [], list(samples))


# --- reading


@needs_extras
def test_tracks_are_read_in_the_order_and_at_the_level_at_which_they_stand(rt: Runtime, tmp_path: Path) -> None:
    tracks = pftrace.load(perfetto.save(rt, tmp_path / "a"))
    seen = [(t.level, t.name) for t in tracks]
    assert seen[:6] == [
        (0, "i-ncsim-pid1"), (1, "tid0-framework"), (1, "tid1-framework"), (1, "stream0-framework"), (1, "stream1-framework"),
        (1, "gid0-nc0-neuron_rt"),
    ]  # fmt: skip
    cores = [k for k, (level, name) in enumerate(seen) if level == 1 and name.startswith("NC")]
    assert [seen[k][1] for k in cores] == ["NC0:0", "NC1:1"]
    assert seen[cores[0] - 1][1] == "gid1-nc1-neuron_hw"
    own = [name for _, name in seen[cores[0] + 1 : cores[1]]]
    engines = [f"DMA Engine {k}" for k in range(16)]
    assert own == [
        "Scalar Engine", "GpSimd Engine", *engines, "qGpSimdDynamic", "Throttling", "Pending DMA Count",
        "Semaphores", "S[4] (Scalar)", "S[8] (qGpSimdDynamic)", "S[9] (qGpSimdDynamic)",
    ]  # fmt: skip
    assert [level for level, _ in seen[cores[0] + 1 : cores[1]]] == [2] * (len(own) - 3) + [3] * 3
    assert tracks[0].labels == ("simulated",)
    assert [(t.unit, t.counter) for t in tracks if t.name == "Throttling"] == [("%", True)] * 2


@needs_extras
def test_slices_instants_and_arrows_are_read_as_they_were_recorded(rt: Runtime, tmp_path: Path) -> None:
    tracks = pftrace.load(perfetto.save(rt, tmp_path / "a", devices=False))
    drawn = sorted((s.name, s.start, s.end) for t in tracks for s in t.slices)
    assert drawn == sorted((e.name, e.start_ns, e.end_ns) for e in rt.trace.events)
    for t in tracks:
        for s in t.slices:
            around = [o for o in t.slices if o.depth < s.depth and o.start <= s.start and s.end <= o.end]
            assert len({o.depth for o in around}) == s.depth
    leaves, reaches = ([n for t in tracks for s in t.slices for n in getattr(s, way)] for way in ("leaves", "reaches"))
    assert sorted(leaves) == sorted(reaches) == sorted(set(leaves))
    assert len(leaves) == 2 * (4 * 4 + 2)  # a core: four dispatches of a framework, and nrt_execute, which has no framework events


@needs_extras
@pytest.mark.parametrize(
    ("data", "found"),
    [(b"", "no track"), (b"not a trace, but a text\n", "not a Perfetto file"), (b"\x89PNG\r\n\x1a\n", "not a Perfetto file")],
)
def test_what_is_no_perfetto_file_is_named(data: bytes, found: str, tmp_path: Path) -> None:
    (tmp_path / "a.pftrace").write_bytes(data)
    with pytest.raises(ProgramError, match=rf"a\.pftrace: {found}"):
        viewer.draw(tmp_path / "a.pftrace", tmp_path / "a.svg")
    with pytest.raises(ProgramError, match=r"b\.pftrace: cannot be read"):
        viewer.draw(tmp_path / "b.pftrace", tmp_path / "a.svg")
    assert [p.name for p in tmp_path.iterdir()] == ["a.pftrace"]


@needs_extras
def test_a_damaged_file_gives_one_error_or_tracks(chain: Path) -> None:
    good, dice, refused = chain.read_bytes(), random.Random(7), 0
    for k in range(600):
        bad = bytearray(good)
        if k % 3 == 0:
            del bad[dice.randrange(len(bad)) :]
        else:
            for _ in range(k % 3):
                bad[dice.randrange(len(bad))] = dice.randrange(256)
        chain.write_bytes(bytes(bad))
        try:
            tracks = pftrace.load(chain)
        except ProgramError as e:
            assert str(e).startswith(str(chain))  # noqa: PT017
            refused += 1
        else:
            assert all(s.start <= s.end for t in tracks for s in t.slices)
    assert 200 < refused < 600


@needs_extras
@pytest.mark.parametrize(
    ("what", "found"),
    [("track", "an event on track 7"), ("order", "time runs back on 't'"), ("end", "an end without a beginning on 't'"),
     ("open", "a slice without an end on 't'"), ("name", "name 5 on 't'"), ("circle", "a track that stands in itself"),
     ("cleared", "name 5 on 't'"), ("value", "a value of nan on 't'")],
)  # fmt: skip
def test_what_a_viewer_could_not_draw_is_refused(what: str, found: str, tmp_path: Path) -> None:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    trace = Trace()
    trace.packet.add().track_descriptor.MergeFrom(_descriptor(1))
    if what == "circle":
        for a, b in ((2, 3), (3, 2)):
            trace.packet.add().track_descriptor.MergeFrom(_descriptor(a, b))

    def event(kind: int, time: int, track: int = 1, **fields: Any) -> None:
        p = trace.packet.add(timestamp=time)
        p.track_event.type, p.track_event.track_uuid = kind, track
        for key, value in fields.items():
            setattr(p.track_event, key, value)

    if what == "track":
        event(pftrace.INSTANT, 1, 7)
    elif what == "order":
        event(pftrace.INSTANT, 2)
        event(pftrace.INSTANT, 1)
    elif what == "end":
        event(pftrace.END, 2)
    elif what == "open":
        event(pftrace.BEGIN, 2)
    elif what == "name":
        event(pftrace.INSTANT, 2, name_iid=5)
    elif what == "cleared":
        trace.packet.add().interned_data.event_names.add(iid=5, name="a")
        event(pftrace.INSTANT, 1, name_iid=5)
        trace.packet.add(sequence_flags=pftrace.CLEARED)
        event(pftrace.INSTANT, 2, name_iid=5)
    elif what == "value":
        event(pftrace.COUNTER, 2, double_counter_value=float("nan"))
    (tmp_path / "a.pftrace").write_bytes(trace.SerializeToString())
    with pytest.raises(ProgramError, match=re.escape(found)):
        pftrace.load(tmp_path / "a.pftrace")


def _descriptor(uuid: int, parent: int = 0) -> Any:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackDescriptor

    return TrackDescriptor(uuid=uuid, name="t", **({"parent_uuid": parent} if parent else {}))


# --- what a window shows


def test_a_window_shows_what_reaches_into_it_and_leaves_out_empty_tracks() -> None:
    tracks = [
        Track("process", 0, False, "", ()), Track("group", 1, False, "", ()), line((0, 10), (10, 20), (30, 40), (25, 25)),
        Track("empty", 1, False, "", ()), line((40, 50)),
    ]  # fmt: skip
    tracks[2].level = tracks[4].level = 2
    shown = viewer._shown(tracks, (10, 30))
    assert [t.name for t in shown] == ["process", "group", "t"]
    assert [(s.start, s.end) for s in shown[2].slices] == [(10, 20), (30, 40), (25, 25)]
    assert viewer._shown(tracks, (51, 60)) == []


def test_a_counter_enters_a_window_with_the_value_that_it_held_and_not_without_a_change() -> None:
    samples = [(5, 1.0), (8, 2.0), (20, 3.0)]
    assert viewer._held(samples, (10, 30)) == [(10, 2.0), (20, 3.0)]
    assert viewer._held(samples, (0, 9)) == [(5, 1.0), (8, 2.0)]
    assert viewer._held(samples, (9, 19)) == []


def test_an_arrow_leads_from_a_slice_to_the_next_with_its_number() -> None:
    first, second = line((0, 10)), line((20, 30), (5, 9))
    first.slices[0].leaves, second.slices[0].reaches, second.slices[1].reaches = (1, 2), (1,), (2,)
    got = [((i, a.start), (j, b.start)) for (i, a), (j, b) in viewer._arrows([first, second])]
    assert got == [((0, 0), (1, 20)), ((0, 0), (1, 5))]


@needs_extras
def test_arrows_follow_the_dependency_chain(chain: Path) -> None:
    shown = viewer._shown(pftrace.load(chain), (0, 100_000))
    got = [((shown[i].name, a.name), (shown[j].name, b.name)) for (i, a), (j, b) in viewer._arrows(shown)]
    runtime = "gid0-nc0-tid0-neuron_rt"
    assert sorted(got) == [
        (("gid0-nc0-tid0-neuron_rt", "kbl_exec_wait"), ("gid0-nc0-neuron_hw", "nc_exec_running")),
        ((runtime, "nrta_execute_schedule"), (runtime, "kbl_exec_wait")),
        (("stream0-framework", "aten::mul"), (runtime, "nrta_execute_schedule")),
        (("tid0-framework", "aten::mul"), ("stream0-framework", "aten::mul")),
    ]


# --- where it stands


@needs_extras
def test_time_runs_evenly_from_the_labels_to_the_right_edge_and_a_slice_is_cut_at_the_window() -> None:
    p = page([line((0, 1000), (1000, 1500), (1500, 9000))], 500, 2500)
    assert p.x(500) == p.left
    assert p.x(2500) == p.right == viewer.WIDTH - viewer.MARGIN
    quarter = (p.right - p.left) / 4
    wanted = [(p.left + k * quarter, p.left + n * quarter) for k, n in ((0, 1), (1, 2), (2, 4))]
    assert [(a, b) for _, a, b in p.boxes(p.shown[0])] == [pytest.approx(w, abs=0.01) for w in wanted]


@needs_extras
def test_slices_thinner_than_a_line_are_drawn_once_a_place_the_longest_of_them() -> None:
    dots = line(*((k, k + 1) for k in range(0, 100_000, 2)), (100_000, 100_900), (100_900, 100_999))
    p = page([dots], 0, 2_000_000)
    boxes = p.boxes(dots)
    assert all(b - a == pytest.approx(viewer.FINEST) for _, a, b in boxes)
    assert 0 < len(boxes) < 3 + 0.05 * (p.right - p.left) / viewer.FINEST
    assert (100_000, 100_900) in {(s.start, s.end) for s, _, _ in boxes}
    assert (100_900, 100_999) not in {(s.start, s.end) for s, _, _ in boxes}


@needs_extras
def test_nothing_overlaps_neither_tracks_nor_labels_nor_slices_of_a_line_nor_their_names(rt: Runtime, tmp_path: Path) -> None:
    for of in (rt, simulate(product(), values=False)):
        tracks = pftrace.load(perfetto.save(of, tmp_path / "a"))
        window = viewer._window(tracks, None, None, "")
        p = viewer._Page(window, viewer._shown(tracks, window))
        floors = [top + (viewer.COUNTER if t.samples else viewer.BAR * (1 + max((s.depth for s in t.slices), default=0)))
                  for t, top in zip(p.shown, p.tops, strict=True)]  # fmt: skip
        assert all(floor < top for floor, top in zip(floors, [*p.tops[1:], p.height], strict=True))
        for t in p.shown:
            assert p.indent(t) + viewer.text_width(p.label(t), viewer.LABEL_SIZE) < p.left
            boxes = sorted((s.depth, a, b) for s, a, b in p.boxes(t) if s.end - s.start > 2 * (window[1] - window[0]) / 900)
            assert all(one[0] < two[0] or one[2] <= two[1] + viewer.FINEST for one, two in pairwise(boxes))


@needs_extras
def test_a_name_is_cut_to_the_room_there_is() -> None:
    full = viewer.text_width("kbl_exec_wait", viewer.SLICE_SIZE)
    assert viewer.fitting("kbl_exec_wait", full) == "kbl_exec_wait"
    short = viewer.fitting("kbl_exec_wait", full - 1)
    assert short.endswith("…")
    assert "kbl_exec_wait".startswith(short[:-1])
    assert viewer.text_width(short, viewer.SLICE_SIZE) <= full - 1
    assert viewer.fitting("kbl_exec_wait", 8) == ""


@pytest.mark.parametrize(
    ("start", "end", "ticks"),
    [
        (0, 1, [0, 1]),
        (0, 12, list(range(13))),
        (0, 13, [0, 2, 4, 6, 8, 10, 12]),
        (95, 211, [100, 110, 120, 130, 140, 150, 160, 170, 180, 190, 200, 210]),
        (0, 2_529_745, [0, 500_000, 1_000_000, 1_500_000, 2_000_000, 2_500_000]),
        (299_000, 308_500, list(range(299_000, 309_000, 1000))),
    ],
)
def test_ticks_are_round_and_few(start: int, end: int, ticks: list[int]) -> None:
    assert list(viewer.ticks(start, end)) == ticks


def test_of_many_samples_in_a_column_the_extremes_stay() -> None:
    column = [(0, 3.0), (1, 5.0), (2, 9.0), (3, 0.0), (4, 5.0), (5, 4.0)]
    assert viewer._outline(column) == [(0, 3.0), (2, 9.0), (3, 0.0), (5, 4.0)]
    assert viewer._outline(column[:4]) == column[:4]


def test_a_colour_goes_by_name_without_its_numbers() -> None:
    names = ["MATMUL", "LDWEIGHTS", "aten::mul", "aten::mean", "aten::add", "kbl_exec_pre", "kbl_exec_wait"]
    assert len({viewer.colour(n) for n in names}) == len(names)
    assert viewer.colour("HBM:v -> SBUF:sbuf6") == viewer.colour("HBM:v -> SBUF:sbuf12")
    assert all(min(int(viewer.colour(n)[k : k + 2], 16) for k in (1, 3, 5)) > 0x70 for n in names)  # dark letters can be read on it


# --- pictures


@needs_extras
def test_a_picture_names_tracks_slices_counters_and_microseconds(chain: Path, tmp_path: Path) -> None:
    words = texts(viewer.draw(chain, tmp_path / "a.svg"))
    for word in ("i-ncsim-pid1 · simulated", "tid0-framework", "aten::mul", "kbl_exec_wait", "nc_exec_running", "us", "0", "50", "100"):
        assert word in words, word
    alone = texts(viewer.draw(simulate(product(), values=False), tmp_path / "b.svg"))
    for word in ("NC0:0", "TensorMatrix Engine - Row 1", "Throttling", "50 %", "Pending DMA Count", "Semaphores", "0–16"):
        assert word in alone, word


@needs_extras
def test_the_same_trace_draws_the_same_bytes_whatever_the_process_and_its_settings(chain: Path, tmp_path: Path) -> None:
    code = "import sys, matplotlib; matplotlib.rcParams.update({'savefig.bbox': 'tight', 'svg.fonttype': 'none'})\n"
    code += "from nc_sim.report import viewer; [viewer.draw(sys.argv[1], t) for t in sys.argv[2:]]"
    for seed in ("1", "2"):
        names = [str(tmp_path / f"{seed}.{kind}") for kind in ("svg", "png")]
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(REPOSITORY)}
        subprocess.run([sys.executable, "-c", code, str(chain), *names], env=env, check=True)
    for kind in ("svg", "png"):
        one = (tmp_path / f"1.{kind}").read_bytes()
        assert one == (tmp_path / f"2.{kind}").read_bytes() == viewer.draw(chain, tmp_path / f"3.{kind}").read_bytes()
    assert one.startswith(b"\x89PNG")


@needs_extras
def test_a_window_draws_less_and_a_trace_draws_as_its_file(chain: Path, tmp_path: Path) -> None:
    words = texts(viewer.draw(chain, tmp_path / "a.svg", from_us=45, to_us=90))
    assert "aten::mul" in words  # of the stream
    assert "nc_exec_running" in words
    assert "tid0-framework" not in words
    assert "nrta_execute_schedule" not in words
    viewer.draw(system_of(*CHAIN), tmp_path / "b.svg", from_us=45, to_us=90)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@needs_extras
def test_names_of_any_kind_are_drawn_as_they_are(tmp_path: Path) -> None:
    names = ("$a$ and $\\frac{$", "$\\frac{$", "two\nlines", "a" * 5000, "<b>&amp;", "-->", "")
    events = [Event(k, name, FRAMEWORK, 10_000 * k, 10_000 * k + 9000, thread=0) for k, name in enumerate(names)]
    words = texts(viewer.draw(system_of(*events), tmp_path / "a.svg"))
    ElementTree.parse(tmp_path / "a.svg")
    assert "$\\frac{$" in words
    assert "two\\nlines" in words


@needs_extras
@pytest.mark.parametrize(
    ("window", "found"),
    [((5, 5), "an empty window, 5 to 5 us"), ((7, 5), "an empty window, 7 to 5 us"), ((100.1, None), "an empty window, 100.1 to 100 us"),
     ((1000, 2000), "nothing from 1000 to 2000 us; a window inside 0 to 100 us"), ((float("nan"), None), "a window of nan us"),
     ((None, float("inf")), "a window of inf us")],
)  # fmt: skip
def test_a_window_with_nothing_in_it_is_refused(window: tuple[float | None, float | None], found: str, chain: Path) -> None:
    target = chain.with_name("a.svg")
    target.write_text("kept")
    with pytest.raises(ProgramError, match=rf"chain\.pftrace: {found}"):
        viewer.draw(chain, target, from_us=window[0], to_us=window[1])
    assert target.read_text() == "kept"


@needs_extras
def test_a_trace_without_events_has_nothing_to_draw(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="picture: a trace of nothing; a run that executes an instruction"):
        viewer.draw(system_of(), tmp_path / "a.svg")


@needs_extras
def test_a_trace_of_one_moment_is_drawn(tmp_path: Path) -> None:
    assert "0.007" in texts(viewer.draw(system_of(Event(0, "nrt_init", RUNTIME, 7, 7, thread=0)), tmp_path / "a.svg"))


@needs_extras
def test_too_many_tracks_are_refused(tmp_path: Path) -> None:
    events = [Event(k, "a", FRAMEWORK, 0, 10, thread=k) for k in range(1500)]
    with pytest.raises(ProgramError, match="1501 tracks, too many for a picture"):
        viewer.draw(system_of(*events), tmp_path / "a.svg")


def test_without_the_perfetto_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(pftrace.importlib, "import_module", fail)
    with pytest.raises(Unsupported, match=r"perfetto is not installed; pip install '\.\[perfetto\]' in the clone of nc-sim"):
        pftrace.load(tmp_path / "a.pftrace")


@pytest.mark.skipif(has_extras, reason="the extras perfetto and plot are installed")
def test_without_the_extras_they_are_named(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"pip install '\.\[(plot|perfetto)\]' in the clone of nc-sim"):
        viewer.draw(system_of(*CHAIN), tmp_path / "a.svg")
    assert not list(tmp_path.iterdir())


# --- the command line --------------------------------------------------------------------------------------------


@needs_extras
def test_view_draws_a_system_trace_a_hardware_trace_and_a_perfetto_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runtime, result = dispatched(), simulate(scaled("half", 0.5), "trn2", values=False)
    system.save(runtime, "sys")
    result.save("hard")
    window = ("--from-us", "200", "--to-us", "400")
    done = CliRunner().invoke(main, ["view", "sys", "--picture", "made/a.svg", "--perfetto", "a.pftrace", *window])
    assert (done.exit_code, done.output) == (0, "perfetto: a.pftrace\npicture: made/a.svg\n")
    done = CliRunner().invoke(main, ["view", "a.pftrace", "--picture", "b.svg", *window])
    assert (done.exit_code, done.output) == (0, "picture: b.svg\n")
    wanted = viewer.draw(runtime, "c.svg", from_us=200, to_us=400).read_bytes()
    assert Path("made/a.svg").read_bytes() == Path("b.svg").read_bytes() == wanted
    done = CliRunner().invoke(main, ["view", "hard", "--picture", "d.png"])
    assert done.output.endswith("\n\npicture: d.png\n")
    assert "µs" in done.output
    assert Path("d.png").read_bytes() == viewer.draw(result, "e.png").read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("a.pftrace", "--picture", "a.pdf"), "a.pdf: a picture .pdf; a name that ends in .svg or .png"),
        (("a.pftrace",), "a.pftrace: a Perfetto file; --picture FILE, without --perfetto"),
        (("a.pftrace", "--picture", "a.svg", "--perfetto", "b"), "a.pftrace: a Perfetto file; --picture FILE, without --perfetto"),
        (("out", "--from-us", "1"), "--from-us, --to-us: no picture; --picture FILE"),
        (("out", "--to-us", "1"), "--from-us, --to-us: no picture; --picture FILE"),
    ],
)
def test_options_of_view_that_do_not_go_together(words: tuple[str, ...], message: str) -> None:
    if not has_extras and "a.svg" in words:
        pytest.skip("the extras perfetto and plot are not installed")
    done = CliRunner().invoke(main, ["view", *words])
    assert (done.exit_code, done.output) == (1, f"error: {message}\n")
