"""The text timeline and the list of instructions: what they show, how large they are, and that no name breaks them."""

from __future__ import annotations

import time
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nc_sim import Program, Result, simulate
from nc_sim.isa.errors import ProgramError
from nc_sim.testing import programs
from nc_sim.trace.hardware import Ints, Texts, Times, Trace, trace_of
from nc_sim.trace.text import LABEL, escape, shorten, table, timeline
from nc_sim.trace.text import _merged as merged
from nc_sim.trace.text import _overlap as overlap


def run(p: Program, **options: Any) -> Result:
    return simulate(p, values=False, **options)


def handshake() -> Program:
    """Sync runs from 0 to 18 ns; Vector waits from 40 to 52 and runs to 75 (test_hardware_trace.py)."""
    p = Program("handshake")
    s = p.semaphore("s")
    p.nop(engine="sync", update=[s.add(1)])
    p.nop(engine="vector", wait=[s >= 1])
    return p


def moving() -> Program:
    p = Program("moving")
    x, y, h = p.input("x", (128, 512), "float32"), p.output("y", (128, 512), "float32"), p.hbm((128, 512), "float32")
    t = p.sbuf((128, 512), "float32")
    p.dma_copy(dst=t, src=x, dge_mode="hwdge")
    p.activation(dst=t, op="exp", data=t)
    p.tensor_scalar(dst=t, data=t, op0="add", operand0=1.0)
    p.dma_copy(dst=y, src=t)
    p.dma_copy(dst=h, src=y, engine="sync", dge_mode="hwdge")
    return p


def rows(text: str) -> dict[str, str]:
    """The glyphs of each row, by its name."""
    lines = text.split("\n")
    body = lines[5 : lines.index("", 4)]
    return {line[:LABEL].strip(): line[LABEL : line.rindex(" ") if line.endswith("100%") else len(line) - 5] for line in body}


def many(count: int, name: str = "many") -> Trace:
    """A trace of `count` activations of 50 ns, 100 ns apart, made of another's parts."""
    t = trace_of(run(Program(name)))
    start = np.arange(count, dtype=np.int64) * 100

    def times(ns: Ints) -> Times:
        return Times(ns * 5, ns)

    none = np.zeros(count, np.int64)
    values: dict[str, Any] = {
        "engine": Texts(("Scalar",), none), "opcode": Texts(("ACTIVATE",), none), "semaphores": Texts(("",), none),
        "work": Texts(("EXP",), none), "line": Texts(("k.py:1",), none), "pc": np.arange(count),
        "ready": times(start), "wait": times(none), "start": times(start), "end": times(start + 50),
    }  # fmt: skip
    numbers: dict[str, Any] = {a.name: none for a in attrs.fields(type(t.instructions)) if a.name not in values}
    return attrs.evolve(t, instructions=type(t.instructions)(**values, **numbers))


# ---- what the timeline shows


def test_a_small_program_is_drawn_column_by_column() -> None:
    # 62 - 17 - 5 = 40 columns of 75 / 40 = 1.875 ns. Sync ends at 18 = 9.6 columns; Vector's wait begins in column 21 (40 =
    # 21.3) and ends in column 27 (52 = 27.7), which is busy for 0.27. Labels need 10 columns, so 20 ns apart: 10.7 columns.
    assert timeline(run(handshake()), 62) == "\n".join(
        [
            "handshake on trn2: body 75 ns, total 15,375 ns, simulated",
            "2 instructions, 0 DMA transfers of 0 bytes; a column is 1.88 …",
            "",
            "              µs 0         0.02       0.04       0.06     busy",
            "                 +---------+----------+----------+-------",
            f"Tensor           {'':40}   0%",
            f"Vector           {'':21}......sSSSSSSSSSSSS  31%",
            f"Scalar           {'':40}   0%",
            f"GpSimd           {'':40}   0%",
            f"Sync             SSSSSSSSSS{'':30}  24%",
            f"PE clock full    {'-' * 40}   0%",
            "",
            "S semaphore, NOP; capital: busy for at least half of the",
            "column; . waiting for a semaphore; - PE clock gated",
        ]
    )


def test_a_saved_run_and_its_trace_look_the_same() -> None:
    r = run(moving())
    assert timeline(r) == timeline(trace_of(r))
    assert table(r) == table(trace_of(r))


def test_queues_show_which_way_bytes_move_and_engines_how_many_are_busy() -> None:
    drawn = rows(timeline(run(moving()), 120))
    assert set(drawn["qSyncDynamicHW"]) <= set(" iIxX")
    assert "I" in drawn["qSyncDynamicHW"]
    assert "X" in drawn["qSyncDynamicHW"]
    assert "E" in drawn["qGpSimdDynamic"]
    assert set(drawn["qGpSimdDynamic"]) <= set(" eE")
    assert "#" in drawn["DMA engines"]
    assert "A" in drawn["Scalar"]
    assert "V" in drawn["Vector"]
    assert "D" in drawn["Sync"].upper()


def test_the_clock_gate_shows_full_and_gated() -> None:
    p = Program("busy")
    a, out = p.sbuf((128, 512), "bfloat16"), p.psum((128, 512))
    p.dma_copy(dst=a, src=p.input("x", (128, 512), "bfloat16"))
    for _ in range(60):
        p.nc_matmul(dst=out, stationary=a[:, 0:128], moving=a)
    text = timeline(run(p))
    gate = rows(text)["PE clock full"]
    assert gate.startswith("-")
    assert "=" in gate
    assert "= PE clock at full rate" in text.replace("\n", " ")
    assert rows(timeline(run(p, without=["clock-gate"])))["PE clock full"] == "=" * len(gate)


def test_a_column_shows_the_kind_that_takes_most_of_it() -> None:
    t = many(4)
    i = attrs.evolve(t.instructions, opcode=Texts(("ACTIVATE", "COPY"), np.array([0, 1, 1, 0])))
    drawn = rows(timeline(attrs.evolve(t, instructions=i), 40))["Scalar"]
    # 350 ns in 18 columns of 19.4 ns: 0 to 50 ns fills columns 0 and 1 and 0.57 of column 2, 100 to 150 ns 0.86 of column 5, …
    assert drawn == "AAA  CCC  CCC  AAA"


def test_the_largest_programs_fit_on_the_screen_and_take_no_time() -> None:
    t = many(100_000)
    began = time.perf_counter()
    text = timeline(t, 100)
    assert time.perf_counter() - began < 5
    assert len(text.split("\n")) < 20
    assert rows(text)["Scalar"].upper() == "A" * 78  # half busy everywhere
    assert "50%" in next(line for line in text.split("\n") if line.startswith("Scalar"))
    assert "100,000 instructions" in text


@pytest.mark.parametrize("width", [40, 80, 100, 120, 200])
@settings(max_examples=10)
@given(p=programs(most=6))
def test_no_line_is_wider_than_asked(width: int, p: Program) -> None:
    r = run(p)
    assert max(map(len, timeline(r, width).split("\n"))) <= width
    assert max(map(len, table(r, 20, width).split("\n"))) <= width


@settings(max_examples=20)
@given(p=programs(most=6))
def test_a_row_is_blank_exactly_where_nothing_runs_or_waits(p: Program) -> None:
    t = trace_of(run(p))
    i = t.instructions
    drawn = rows(timeline(t, 100))
    columns, end = (
        78,
        max(int((i.start.ns + 1).max()), int(i.end.ns.max()), int(t.transfers.end.ns.max(initial=0)), int(t.gate.end.ns.max())),
    )
    for name in ("Tensor", "Vector", "Scalar", "GpSimd", "Sync"):
        expected = [False] * columns
        for k, engine in enumerate(i.engine):
            for a, b in ((i.start.ns[k], max(i.end.ns[k], i.start.ns[k] + 1)), (i.ready.ns[k], i.ready.ns[k] + i.wait.ns[k])):
                for c in range(columns) if engine == name else ():
                    expected[c] |= bool(a * columns < (c + 1) * end and b * columns > c * end and a < b)
        assert [g != " " for g in drawn[name]] == expected


def test_one_instruction_fills_its_row() -> None:
    p = Program("one")
    p.nop(engine="sync")
    text = timeline(run(p), 100)
    assert rows(text)["Sync"] == "S" * 78
    assert text.startswith("one on trn2: body 18 ns, total 15,318 ns, simulated\n1 instruction, 0 DMA transfers of 0 bytes; ")


def test_an_instruction_that_rounds_to_no_time_still_shows() -> None:
    drawn = rows(timeline(run(handshake(), what_if={"sequencer.vector.event_semaphore_ns": 0})))  # at least one tick, 0.2 ns
    assert drawn["Vector"].strip(" .").upper() in ("S", "SS")


def test_an_empty_program_is_drawn_empty() -> None:
    text = timeline(run(Program("empty")))
    assert set("".join(rows(text).values())) == {" "}
    assert table(run(Program("empty"))) == "start  duration  wait  engine  opcode  line  operands"


# ---- the list


def test_the_list_shows_times_engine_opcode_line_and_operands_in_order_of_start() -> None:
    lines = table(run(handshake())).split("\n")
    assert lines[0].split() == ["start", "duration", "wait", "engine", "opcode", "line", "operands"]
    assert lines[1].split()[:5] == ["0", "18", "0", "Sync", "NOP"]
    assert lines[1].endswith("S[0] (s)++@complete cycle=0")
    assert lines[2].split()[:5] == ["52", "23", "12", "Vector", "NOP"]
    assert "test_text_timeline.py:" in lines[2]
    assert len(lines) == 3


def test_the_list_stops_at_its_limit_and_counts_the_rest() -> None:
    lines = table(many(1000), 10, 80).split("\n")
    assert len(lines) == 12
    assert lines[-1] == "and 990 more"
    assert table(many(3), 0).split("\n")[1:] == ["and 3 more"]


def test_operands_that_do_not_fit_end_in_an_ellipsis() -> None:
    lines = table(run(moving()), 50, 80).split("\n")
    assert any(len(line) == 80 and line.endswith("…") for line in lines)


# ---- names, widths


@given(st.text(max_size=40), st.integers(2, 40))
def test_no_name_moves_the_cursor_or_grows_past_its_place(name: str, longest: int) -> None:
    shown = escape(name, longest)
    assert shown.isprintable()
    assert len(shown) <= longest


def test_control_characters_print_as_escapes() -> None:
    assert escape("a\x1b[31m\nb\u202e", 40) == r"a\x1b[31m\nb\u202e"
    assert shorten("abcdef", 4) == "abc…"
    t = many(2)
    hostile = attrs.evolve(
        t, metadata={**t.metadata, "program": "\x1b]0;x\x07" + "p" * 500},
        instructions=attrs.evolve(t.instructions, line=Texts(("\x1b[2J\n",), t.instructions.line.index)),
    )  # fmt: skip
    for text in (timeline(hostile), table(hostile)):
        assert text.replace("\n", "").isprintable()
        assert max(map(len, text.split("\n"))) <= 120


def test_many_queues_are_counted_not_drawn() -> None:
    t = trace_of(run(moving()))
    d = t.transfers
    names = tuple(f"q{k:03}" for k in range(100))
    pick = np.arange(100) % len(d)

    def picked(c: Any) -> Any:
        if isinstance(c, Times):
            return Times(c.ticks[pick], c.ns[pick])
        return Texts(c.values, c.index[pick]) if isinstance(c, Texts) else c[pick]

    columns = {a.name: picked(getattr(d, a.name)) for a in attrs.fields(type(d))}
    text = timeline(attrs.evolve(t, transfers=type(d)(**columns | {"queue": Texts(names, np.arange(100))})))
    assert "and 84 more DMA queues" in text
    assert len(text.split("\n")) < 40


@pytest.mark.parametrize("width", [39, 10_001, 0, -1, 80.0, True, "80"])
def test_a_width_that_no_terminal_has_is_refused(width: Any) -> None:
    with pytest.raises(ProgramError) as e:
        timeline(run(handshake()), width)
    assert str(e.value) == f"timeline: width={width!r}; a whole number from 40 to 10000"


def test_a_limit_that_is_no_count_is_refused() -> None:
    with pytest.raises(ProgramError, match="table: limit=-1; a whole number from 0"):
        table(run(handshake()), -1)


# ---- arithmetic


INTERVALS = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 80)), max_size=12)


@given(INTERVALS, st.integers(1, 20), st.integers(1, 400))
def test_overlaps_count_every_nanosecond_once_per_interval_and_once_per_union(pairs: list[tuple[int, int]], columns: int, end: int) -> None:
    start = np.array([a for a, _ in pairs], np.int64)
    stop = start + np.array([n for _, n in pairs], np.int64)
    edges = np.arange(columns + 1, dtype=np.int64) * end
    # in units of 1 / columns ns: a ns is `columns` units, a column is `end`
    cover = np.zeros(400 * columns, np.int64)
    for a, b in zip(start * columns, stop * columns, strict=True):
        cover[a:b] += 1
    total = np.append(cover, np.zeros(columns * end, np.int64))[: columns * end].reshape(columns, end)
    assert overlap(start * columns, stop * columns, edges).tolist() == total.sum(axis=1).tolist()
    assert overlap(*merged(start, stop, edges), edges).tolist() == (total > 0).sum(axis=1).tolist()


def test_groups_are_united_apart() -> None:
    start, stop, group = (np.array(c, np.int64) for c in ([0, 5, 0, 3], [10, 20, 4, 6], [0, 0, 1, 1]))
    edges = np.array([0, 20], np.int64)
    assert overlap(*merged(start, stop, edges, group), edges).tolist() == [26]  # 20 of the first, 6 of the second
