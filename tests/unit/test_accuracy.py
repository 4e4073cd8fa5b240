"""Published measurements: the data, the programs that measure the same, and what is said of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner, Result

from conftest import REPOSITORY
from nc_sim import Program, ProgramError, chip
from nc_sim.__main__ import main
from nc_sim.accuracy import compare, entries, replays
from nc_sim.accuracy.compare import Compared
from nc_sim.accuracy.entries import Entry
from nc_sim.accuracy.measure import measure
from nc_sim.isa import REGISTRY, Engine, Work
from nc_sim.mechanisms import MECHANISMS
from nc_sim.timing.elementwise import cycles_per_element

TRN2 = chip.load("trn2")
DATA = entries.load("trn2")
ENTRIES = {e.id: e for e in DATA.entries}
RUN = [e.id for e in DATA.entries if not e.excluded_because]
TICK = 5 / 24  # ns; a prediction is a difference of rounded times


@pytest.fixture(scope="module")
def compared() -> tuple[Compared, ...]:
    return compare.compare(DATA, TRN2)


def command(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["accuracy", "instructions", *arguments])


# ---- the data


@pytest.mark.parametrize("entry", DATA.entries, ids=lambda e: e.id)
def test_an_entry_says_what_was_measured_and_where_it_stands(entry: Entry) -> None:
    assert DATA.sources[entry.source].strip()
    assert entry.what
    assert entry.place
    assert entry.call or entry.excluded_because
    assert entry.runs == (entry.call in REGISTRY), entry.excluded_because
    assert entry.value is not None or not entry.runs


def test_entries_of_other_chips_are_excluded() -> None:
    others = [e for e in DATA.entries if e.chip != "trn2"]
    assert {e.chip for e in others} == {"trn1", "trn3"}
    assert all(f"measured on {e.chip}: accuracy" in e.excluded_because for e in others)


def test_every_entry_far_off_is_explained(compared: tuple[Compared, ...]) -> None:
    assert [c.entry.id for c in compare.unexplained(compared)] == []


@pytest.mark.parametrize(
    ("entry", "ns"),
    [
        ("trace-activate-exp-sbuf-512", 512 / 1.2 + 293),  # docs/timing.md: ScalarE streams 1.2 elements a ns; 293 fixed
        ("trace-activate-exp-psum-512-interval", 512 / 1.2 + 147),
        ("trace-tensor-scalar-sbuf-512", 512 / 0.96 / 2 + 152 + 60),  # VectorE, two elements a cycle, a [P, 1] operand
        ("trace-tensor-scalar-sbuf-512-interval", 512 / 0.96 / 2 + 66 + 60),
        ("trace-reduce-max-psum-512", 512 / 0.96 + 157),
        ("trace-act-table-load", 1283),
        ("trace-matmul-bf16-512-full", 512 / 2.4 + 165),
        ("trace-matmul-bf16-512-start", 512 / 1.2 + 207),
        ("trace-matmul-fp32-512-full-interval", 1024 / 2.4 + 2.3),
        ("trace-ldweights-fp32-low-full", 191),
        ("trace-ldweights-fp32-high-gated", 333),
        ("trace-sync-trigger-load-2048", 470 + 0.38 * 256),
        ("trace-scalar-trigger-store-4096-interval", 470 + 0.38 * 128 + 14),
        ("trace-dma-software-interval", 583),
        ("trace-dma-hardware-store-first-packet", 1240),
        ("trace-dma-hardware-load-first-packet", 1300 + 11.25 * 4),  # 8 rows of 512 B on an engine
        ("trace-packet-interval-hardware-2048", 4.7 + 2048 / 27.2),
        ("trace-packet-interval-semaphore", 6),
        ("doc-dma-128x128-queue", 15 * 9.23 + 227 + 4.7 + 2048 / 27.2 + 6),  # the last engine begins last
        ("doc-dma-128x128-engine", 4.7 + 2048 / 27.2 + 3),  # eight rows in one packet, as its record shows it
        ("trace-packet-hardware-512", 4.7 + 512 / 27.2 + 3),
        ("trace-packet-software-semaphore", 6 + 3),
        ("trace-packet-software-store-256", 8.5 + 512 / 27.2 + 3),  # a conversion counts its wider side
        ("trace-gpsimd-trigger-load-2048", 31 + 20),  # the median of 31, 51 and 71
        ("trace-dma-software-store-256KiB", 635 + 15 * 10.5 + 32 * (8.5 + 512 / 27.2) + 6 + 360 + 34),  # rows apart in HBM
        ("mean-software-trigger-512", 583 + 427),
        ("mean-packet-4-a", 6 + 3),  # no packet is faster than the semaphore's
        ("doc-dma-4x4096-trigger-to-first-data", 773 + 233),
        ("probe-act-copy-fp32-bf16-psum-512", 512 / 1.2 + 161.76 + 101),
        ("doc-sync-act-to-pool", 34),
        ("probe-copy-vector-bf16-sbuf-512", 512 / 0.96 / 4 + 152),
    ],
)
def test_what_is_read_off_the_timeline_is_what_the_laws_of_timing_say(entry: str, ns: float) -> None:
    got, _ = measure(ENTRIES[entry], TRN2)
    # packets are rounded to ticks one by one, and the last entry has eight
    assert got == pytest.approx(ns, abs=9 * TICK if "128x128" in entry or "256KiB" in entry else 3 * TICK)


# ---- comparing


@pytest.mark.parametrize(
    ("what_if", "moved", "unmoved"),
    [
        ({"vector.gap_ns": 132}, "trace-tensor-scalar-sbuf-512-interval", "trace-tensor-scalar-sbuf-512"),
        ({"scalar.function.sbuf_fixed_ns": 586}, "trace-activate-exp-sbuf-512", "trace-activate-exp-psum-512"),
        ({"tensor.gate.ratio": "2/5"}, "trace-matmul-bf16-512-start", "trace-matmul-bf16-512-full"),
        ({"tensor.fp32.load_shown_full_ns": 382}, "trace-ldweights-fp32-low-full", "trace-ldweights-bf16-full"),
        ({"dma.row_ns": 9.4}, "trace-packet-interval-hardware-2048", "trace-packet-interval-semaphore"),
        ({"dma.semaphore_packet_ns": 12}, "trace-packet-interval-semaphore", "trace-packet-interval-hardware-2048"),
        ({"dma.store_done_ns": 720}, "trace-dma-store-completion", "trace-dma-software-store-first-packet"),
        ({"dma.hardware.trigger_ns": 940}, "trace-sync-trigger-load-4096", "trace-dma-hardware-load-first-packet"),
        ({"semaphore.latency_ns": 68}, "doc-sync-act-to-pool", "doc-act-exp-128"),
    ],
    ids=lambda v: next(iter(v)) if isinstance(v, dict) else "",
)
def test_a_broken_number_moves_what_rests_on_it_and_nothing_else(what_if: dict[str, Any], moved: str, unmoved: str) -> None:
    broken = TRN2.what_if(what_if)
    assert measure(ENTRIES[moved], broken)[0] != measure(ENTRIES[moved], TRN2)[0]
    assert measure(ENTRIES[unmoved], broken)[0] == measure(ENTRIES[unmoved], TRN2)[0]


def test_the_mean_is_that_of_single_instructions_delays_and_packets() -> None:
    def one(group: str, measured: float, simulated: float | None) -> Compared:
        why = {} if simulated is not None else {"excluded_because": "for a test"}
        entry = Entry(id="x", chip="trn2", what="w", group=group, kind="duration", value=measured, source="s", place="p", **why)
        return Compared(entry, simulated)

    of = [
        one("single instruction", 100, 101), one("delay", 100, 93), one("packet", 10, 11), one("packet", 10, None),
        one("opcode mean", 10, 20), one("pixel reading", 10, 30),
    ]  # fmt: skip
    s = compare.summary(of, TRN2)
    assert s["mape_percent"] == pytest.approx((1 + 7 + 10) / 3)
    assert s["judged"]["within_5"] == pytest.approx(100 / 3, abs=1e-3)
    assert s["judged"]["within_10"] == 100  # the packet is off by 10 %, which is within
    assert s["judged"]["median"] == pytest.approx(7)
    assert s["classes"]["opcode mean"]["mape"] == pytest.approx(100)
    assert s["excluded"] == 1
    assert s["unexplained"] == ["x", "x"]  # the mean and the reading
    assert [round(c.off) for c in compare.worst(of, 4)] == [200, 100, 10, 7]


def test_the_part_that_rests_on_assumed_numbers_is_what_is_proportional_to_them(compared: tuple[Compared, ...]) -> None:
    by_id = {c.entry.id: c for c in compared}
    # chips/trn2.toml: the transposes' fixed 200 ns and their ratio are assumed, so all of 32 / 0.96 + 200 is
    assert by_id["probe-transpose-vector-32"].assumed_share == pytest.approx(1, abs=0.01)
    # and of 32 / 0.96 + 66 start to start, the stream
    interval = by_id["probe-transpose-vector-32-interval"]
    assert interval.assumed == ("vector.transpose.sbuf_ratio",)
    assert interval.assumed_share == pytest.approx(32 / 0.96 / (32 / 0.96 + 66), abs=0.01)
    assert by_id["trace-activate-exp-sbuf-512"].assumed == ()


def test_an_assumed_number_that_moves_the_gate_does_not_stop_the_comparison() -> None:
    slow = TRN2.what_if({"tensor.gate.ratio": "1/4"})  # a quarter of the array's cycles never opens the gate
    (only,) = compare.compare(entries.Data("trn2", {}, (ENTRIES["trace-matmul-bf16-512-full"],)), slow)
    assert only.simulated is None
    assert only.entry.excluded_because.endswith(": full throughout is needed")
    (only,) = compare.compare(
        entries.Data("trn2", {}, (ENTRIES["trace-matmul-bf16-512-full"],)), TRN2.what_if({"tensor.gate.ratio": "2/5"})
    )
    assert only.assumed_share == 1  # an eighth less of the override, and the gate stays shut


def test_an_entry_that_waits_for_an_operand_is_excluded_and_one_that_does_not_wait_is_an_error() -> None:
    args = {"dst": "SBUF float32 128x64", "op": "no such function", "data": "SBUF float32 128x64"}
    waiting = attrs.evolve(ENTRIES["trace-activate-exp-sbuf-512"], args=args, excluded_because="no such function yet")
    (only,) = compare.compare(entries.Data("trn2", {}, (waiting,)), TRN2)
    assert (only.simulated, only.entry.excluded_because) == (None, "no such function yet")
    with pytest.raises(ProgramError, match="no such function"):
        compare.compare(entries.Data("trn2", {}, (attrs.evolve(waiting, excluded_because=""),)), TRN2)


def test_a_stream_in_which_the_clock_gate_changes_is_refused() -> None:
    longer = attrs.evolve(ENTRIES["trace-matmul-fp32-512-start"], count=20)  # 20 x 1707 ns: the gate opens on the way
    with pytest.raises(ProgramError, match=r"^entry trace-matmul-fp32-512-start: the clock gate changes"):
        measure(longer, TRN2)


def test_an_opcode_that_the_call_does_not_become_is_refused() -> None:
    wrong = attrs.evolve(ENTRIES["trace-act-table-load"], opcode="MATMUL")
    with pytest.raises(ProgramError, match=r"^entry trace-act-table-load: no MATMUL in the program of act_table_load"):
        measure(wrong, TRN2)


# ---- files


def text(**changes: Any) -> str:
    """A file of one sound entry, with keys replaced, or left out where None."""
    entry: dict[str, Any] = {
        "id": "one", "what": "a table load", "class": "single instruction", "kind": "duration", "value": 1283, "source": "s",
        "place": "p", "call": "act_table_load", "engine": "scalar", "args": {"function": "exp"},
    }  # fmt: skip
    entry |= changes
    lines = [f"{k} = {toml(v)}" for k, v in entry.items() if v is not None]
    return "\n".join(['chip = "trn2"', '[sources]\ns = "somewhere"', "[[entry]]", *lines])


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {toml(v)}" for k, v in value.items()) + " }"
    return json.dumps(value)


def test_a_sound_file_is_taken() -> None:
    assert [e.id for e in entries.parse(text(), "f").entries] == ["one"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": None}, "f: entry 1: no id; id = ..."),
        ({"source": None}, "f: entry 1 (one): no 'source'; id, what, class, kind, source, place are required"),
        ({"source": "t"}, "f: entry 1 (one): source 't'; a code of [sources]: s"),
        ({"value": -3}, "f: entry 1 (one): value: -3; a number above 0"),
        ({"value": True}, "f: entry 1 (one): value: True; a number above 0"),
        ({"value": None}, "f: entry 1 (one): no value in ns; value = ..., or excluded_because = ..."),
        ({"kind": "length"}, "f: entry 1 (one): kind: 'length'; one of duration, interval, delay, packet"),
        ({"call": None}, "f: entry 1 (one): no call; call = ..., or excluded_because = ..."),
        ({"chip": "trn1"}, "f: entry 1 (one): chip 'trn1'; 'trn2', or excluded_because = ..."),
        ({"kind": "interval"}, "f: entry 1 (one): an interval between 1 calls; count of at least 2"),
        ({"count": 0}, "f: entry 1 (one): count: 0; a whole number, 1 to 64"),
        ({"place": "a\nb"}, "f: entry 1 (one): place: 'a\\nb'; one line of text"),
        ({"keeps": 1}, "f: entry 1 (one): keeps: 1; true or false"),
        ({"args": "none"}, "f: entry 1 (one): args: 'none'; a table"),
        ({"kind": "delay"}, "f: entry 1 (one): kind 'delay' with start '' and end ''; a delay has both, no other has them"),
        ({"end": "begin"}, "f: entry 1 (one): kind 'duration' with start '' and end 'begin'; a delay has both, no other has them"),
        ({"kind": "packet"}, "f: entry 1 (one): kind 'packet' with packet ''; a packet says which, no other does"),
        (
            {"kind": "delay", "start": "begin", "end": "then"},
            "f: entry 1 (one): `then` as a call or as an event alone; both or neither",
        ),
    ],
    ids=str,
)
def test_a_bad_entry_is_one_error_that_names_it(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ProgramError) as error:
        entries.parse(text(**changes), "f")
    assert str(error.value) == message


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(ProgramError, match=r"^f: entry 1 \(one\): unknown key 'sauce'; one of id, chip, what"):
        entries.parse(text(sauce="s"), "f")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("chip = ", "f: not TOML"),
        ('chip = "trn2"', "f: keys chip; chip, sources and entry"),
        ('chip = 3\nentry = []\n[sources]\n', "f: chip: 3; a chip's name"),
        ('chip = "trn2"\nentry = []\n[sources]\n', "f: entry: []; at least one [[entry]]"),
        ('chip = "trn2"\nsources = 1\nentry = []', "f: sources: 1; a table of texts by code"),
    ],
)  # fmt: skip
def test_what_is_no_file_of_measurements_is_refused(content: str, message: str) -> None:
    with pytest.raises(ProgramError) as error:
        entries.parse(content, "f")
    assert str(error.value).startswith(message)


def test_an_id_given_twice_is_refused() -> None:
    twice = text() + text().split('[sources]\ns = "somewhere"')[1]
    with pytest.raises(ProgramError, match="f: one: the id is there twice; an id of its own"):
        entries.parse(twice, "f")


def test_an_entry_that_waits_for_its_instruction_runs_when_there_is_one() -> None:
    waiting, there = (
        entries.parse(text(call=call, excluded_because="no such instruction yet"), "f").entries[0]
        for call in ("unheard_of", "act_table_load")
    )
    assert (waiting.runs, there.runs) == (False, True)
    first, second = compare.compare(entries.Data("trn2", {}, (waiting, there)), TRN2)
    assert first.record()["excluded_because"] == "no such instruction yet"
    assert (second.record()["simulated"], second.record()["excluded_because"]) == (pytest.approx(1283, abs=TICK), None)


# ---- the command


def test_the_command_prints_every_entry_as_json(compared: tuple[Compared, ...]) -> None:
    got = json.loads(command("--json").stdout)
    assert [e["id"] for e in got["entries"]] == list(ENTRIES)
    ran = [e for e in got["entries"] if e["excluded_because"] is None]
    assert [e["id"] for e in ran] == [c.entry.id for c in compared if c.simulated is not None]
    assert set(RUN) <= {e["id"] for e in ran}  # others wait for their instruction, or for an operand of it
    for e in ran:
        assert e["error_percent"] == pytest.approx(100 * (e["simulated"] / e["measured"] - 1), abs=0.02)
        assert e["unit"] == "ns"
    judged = [e for e in ran if e["class"] in ("single instruction", "delay", "packet")]
    assert got["mape_percent"] == pytest.approx(sum(abs(e["error_percent"]) for e in judged) / len(judged), abs=0.01)
    assert got["excluded"] == len(got["entries"]) - len(ran)
    assert {"id", "chip", "measured", "simulated", "unit", "error_percent", "assumed", "excluded_because"} <= set(ran[0])


def test_the_command_prints_the_same_on_every_run() -> None:
    first, second = command("--json").stdout, command("--json").stdout
    assert first == second
    assert command().stdout == command().stdout


def test_the_command_lists_as_many_of_the_worst_as_asked(compared: tuple[Compared, ...]) -> None:
    lines = command("--worst", "3").stdout.splitlines()
    at = lines.index("the worst 3:")
    assert [c.entry.id for c in compare.worst(compared, 3)] == [next(w for w in line.split() if w in ENTRIES) for line in lines[at + 2 :]]
    assert "the worst" not in command("--worst", "0").stdout


def test_a_broken_number_shows_as_not_explained() -> None:
    out = command("--what-if", "vector.gap_ns=200").stdout
    assert "what if: vector.gap_ns=200" in out
    assert "not explained: trace-tensor-scalar-sbuf-512-interval +33" in out


def test_without_a_clock_gate_what_needs_a_gated_array_is_excluded(compared: tuple[Compared, ...]) -> None:
    got = {e["id"]: e for e in json.loads(command("--without", "clock-gate", "--json").stdout)["entries"]}
    gated = [e.id for e in DATA.entries if e.id in RUN and e.gate == "gated"]
    assert [i for i in RUN if got[i]["excluded_because"]] == gated
    assert got[gated[0]]["excluded_because"].endswith(": gated throughout is needed")
    assert all(c.simulated is not None for c in compared if c.entry.id in RUN)


def test_a_chip_without_measurements_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    source = Path(chip.__file__).parent / "chips" / "trn2.toml"
    other.write_text(source.read_text().replace('name = "trn2"', 'name = "other"'))
    refused = command("--chip", str(other))
    assert refused.exit_code == 1
    assert refused.stderr == "error: accuracy: no measurements of 'other'; one of inf2, trn1, trn2, trn3\n"


def test_measurements_of_ones_own_are_compared(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(text(value=2566))
    got = json.loads(command("--data", str(file), "--json").stdout)
    assert got["mape_percent"] == pytest.approx(50, abs=0.01)
    refused = command("--data", str(tmp_path / "none.toml"))
    assert (refused.exit_code, refused.stderr) == (
        1,
        f"error: {tmp_path / 'none.toml'}: cannot be read: No such file or directory; a file of measurements\n",
    )


# ---- the page


PAGE = (REPOSITORY / "docs" / "accuracy.md").read_text("utf-8")  # test_generated_docs shows that it is what the code writes


def test_the_page_has_every_entry(compared: tuple[Compared, ...]) -> None:
    for c in compared:
        assert f"| `{c.entry.id}` |" in PAGE, c.entry.id
        if c.simulated is None:
            assert f" | {c.entry.excluded_because} |" in PAGE
        elif c.entry.explained:
            assert f" | {c.entry.explained} |" in PAGE


def test_the_page_says_whether_the_target_is_met(compared: tuple[Compared, ...]) -> None:
    mean = compare.summary(compared, TRN2)["mape_percent"]
    assert f"It is {'met' if mean <= 3 else 'missed'}: {mean:.2f} %." in PAGE


def test_the_readme_says_the_mean_errors_of_the_page() -> None:
    readme = (REPOSITORY / "README.md").read_text("utf-8")
    for name, digits in (("trn2", 2), ("trn1", 1), ("inf2", 1)):
        section = PAGE.split(f"## {name}: single measurements\n")[1]
        mean = re.search(r"Target for the last row: .* It is met: (\d+\.\d+) %\.", section)
        assert mean is not None, name
        assert f"{name} {float(mean[1]):.{digits}f} %" in readme.split("mean error over instructions")[1].split(")")[0].replace("\n", " ")


def test_the_page_names_commit_and_inputs_of_the_replays() -> None:
    data = replays.kept()
    assert len(data["commit"]) == 40
    assert f"commit `{data['commit']}`" in PAGE
    for run in data["runs"]:
        for name, digest in run["inputs"].items():
            assert f"| `{name}` | `{digest}` |" in PAGE


def test_a_folder_without_traces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=r"no traces; at least one NAME\.instr\.csv"):
        replays.measured(tmp_path, "trn2")


# ---- ranks and ablations


@pytest.mark.parametrize(
    ("a", "b", "rho"),
    [
        ([1, 2, 3], [10, 20, 30], 1),
        ([1, 2, 3], [3, 2, 1], -1),
        ([1, 2, 3], [1, 3, 2], 0.5),
        ([5, 5, 7], [1, 2, 3], 3**0.5 / 2),  # ranks 1.5, 1.5, 3 against 1, 2, 3: 1.5 / sqrt(1.5 x 2)
        ([1, 2, 3], [4, 4, 4], 1),
    ],
)
def test_ranks_are_correlated_as_spearman_does(a: list[float], b: list[float], rho: float) -> None:
    assert compare.correlation(a, b) == pytest.approx(rho)


def test_a_family_is_three_entries_of_one_call_engine_and_kind(compared: tuple[Compared, ...]) -> None:
    found = compare.families(compared)
    members = [c for c in compared if c.simulated is not None and (c.entry.call, c.entry.engine) == ("tensor_reduce", "vector")]
    durations = [c for c in members if c.entry.kind == "duration"]
    assert found["tensor_reduce on vector, duration"][0] == len(durations)
    assert min(n for n, _ in found.values()) == 3
    assert all(-1 <= rho <= 1 for _, rho in found.values())


def test_switching_a_mechanism_off_moves_what_rests_on_it(compared: tuple[Compared, ...]) -> None:
    found = compare.ablation(compared, TRN2)
    assert list(found) == list(MECHANISMS)
    whole = compare.figures(compare.judged(compared))
    assert whole is not None
    for name in ("narrowing", "shared-packets", "pe-result-latency", "clock-gate"):
        again = compare.compare(DATA, TRN2.what_if(MECHANISMS[name].off))
        before = {c.entry.id: c.simulated for c in compare.judged(compared)}
        after = {c.entry.id: c.simulated for c in compare.judged(again)}
        moved = [i for i in after if after[i] != pytest.approx(before[i], rel=1e-6)]
        figures = compare.figures(compare.judged(again))
        assert figures is not None
        assert (found[name].moved, found[name].lost) == (len(moved), len(before) - len(after)), name
        assert found[name].mape == pytest.approx(figures.mape), name
    assert found["narrowing"].moved == 2  # the two ends of one fit
    assert found["table-load"].mape > whole.mape


def test_the_page_has_a_row_for_every_mechanism_and_family(compared: tuple[Compared, ...]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "accuracy.md").read_text().splitlines()
    for name, (n, rho) in compare.families(compared).items():
        assert f"| {name} | {n} | {rho:.3f} |" in page


@pytest.mark.parametrize(("streams", "cycles"), [(1, 1), (2, 2)])  # chips/trn2.toml: N, and 2 N with src and predicate in SBUF
def test_a_predicated_copy_of_a_number_has_one_operand_to_read(streams: int, cycles: int) -> None:
    work = Work(kind="copy_predicated", elements=64, streams=streams)
    assert cycles_per_element(work, Engine.VECTOR, TRN2.reader()) == cycles


def test_a_call_streams_the_tensors_it_reads() -> None:
    p = Program("streams")
    x, y, mask = p.sbuf((128, 64), "float32"), p.sbuf((128, 64), "float32"), p.sbuf((128, 64), "uint32")
    p.tensor_copy(dst=y, src=x)
    p.tensor_copy_predicated(dst=y, src=x, predicate=mask)
    assert [s.instruction.work().streams for s in p.steps] == [1, 2]
