"""`compare` of two versions of a script: which lines, and so which instructions, belong together."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_compare import script

from nc_sim import compare
from nc_sim.analysis.source_lines import corresponding

COPIES = """from nc_sim import Program
def build():
    p = Program("copies")
    x, y = p.input("x", (4, 128, 8), "float32"), p.output("y", (4, 128, 8), "float32")
    t = [p.sbuf((128, 8), "float32") for _ in range(4)]
    for i in range(4): p.dma_copy(dst=t[i], src=x[i])
    for i in range(4): p.dma_copy(dst=y[i], src=t[i])
    return p
"""
LOAD_MORE = COPIES.replace(
    "    for i in range(4): p.dma_copy(dst=y",
    "    p.dma_copy(dst=p.sbuf((128, 8), 'float32'), src=x[0])\n    for i in range(4): p.dma_copy(dst=y",
)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_comment_above_a_kernel_parts_nothing(tmp_path: Path, swapped: bool) -> None:
    a, b = script(tmp_path, COPIES), script(tmp_path, "# a comment\n" + COPIES)
    assert {s.line for s in a.steps} & {s.line for s in b.steps} == {"", "kernel.py:7"}  # stores of A, loads of B
    d = compare(*((b, a) if swapped else (a, b))).differences
    assert (d.pairs, d.moved, d.by) == ([(k, k) for k in range(len(a.steps))], 8, "source line and opcode")
    assert {e.change for e in (d.body, *d.engines, *d.lines, *d.causes, *d.path)} == {0}
    arrows = {f"kernel.py:{k} -> kernel.py:{k + 1}" for k in (6, 7)}
    turned = {f"kernel.py:{k + 1} -> kernel.py:{k}" for k in (6, 7)}
    assert {e.line for e in d.lines if e.opcode == "DMA_DIRECT2D"} == (turned if swapped else arrows)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_load_put_in_above_the_stores_is_the_one_that_only_its_side_has(tmp_path: Path, swapped: bool) -> None:
    a, b = script(tmp_path, COPIES), script(tmp_path, LOAD_MORE)
    d = compare(*((b, a) if swapped else (a, b))).differences
    (alone,) = d.unmatched
    assert (alone.side, alone.line, len(alone.instructions)) == ("A" if swapped else "B", "kernel.py:7", 1)
    assert {e.line for e in d.lines if e.matched == 4} == {
        "kernel.py:6", "kernel.py:8 -> kernel.py:7" if swapped else "kernel.py:7 -> kernel.py:8",
    }  # fmt: skip


def test_lines_of_one_file_keep_their_numbers_where_a_shift_would_pair_no_more() -> None:
    same = {"f.py:5": ["x"], "f.py:6": ["x"], "f.py:7": ["x"], "f.py:9": ["x"]}
    fewer = {k: same[k] for k in ("f.py:5", "f.py:7", "f.py:9")}
    assert corresponding(same, fewer) == {k: k for k in fewer}
    assert corresponding(fewer, same) == {k: k for k in fewer}


def test_lines_belong_together_in_order_within_their_file_by_what_stands_on_them() -> None:
    a = {"f.py:9": ["load"], "f.py:10": ["store"], "g.py:10": ["copy"], "": ["wait"]}
    b = {"f.py:10": ["load"], "f.py:11": ["store"], "g.py:10": ["copy"], "": ["wait", "nop"]}
    assert corresponding(a, b) == {"f.py:9": "f.py:10", "f.py:10": "f.py:11", "g.py:10": "g.py:10", "": ""}
    # an edited line between two that agree: with its one counterpart; of two, with none but the one of its number
    assert corresponding({"f:1": ["a"], "f:2": ["b"], "f:3": ["c"]}, {"f:1": ["a"], "f:3": ["b", "d"], "f:4": ["c"]})["f:2"] == "f:3"
    assert (
        corresponding({"f:1": ["a"], "f:2": ["b"], "f:3": ["c"]}, {"f:1": ["a"], "f:2": ["d"], "f:3": ["d"], "f:4": ["c"]})["f:2"] == "f:2"
    )
    assert "f:2" not in corresponding({"f:1": ["a"], "f:2": ["b"], "f:3": ["c"]}, {"f:1": ["a"], "f:4": ["d"], "f:5": ["d"], "f:6": ["c"]})


LINES = st.dictionaries(st.integers(1, 12).map("f.py:{}".format), st.sets(st.sampled_from("abc"), min_size=1, max_size=2), max_size=8)


@settings(max_examples=200, deadline=None)
@given(LINES, LINES)
def test_lines_belong_together_the_same_from_either_side_and_never_cross(a: dict[str, set[str]], b: dict[str, set[str]]) -> None:
    found = corresponding(a, b)
    assert corresponding(b, a) == {y: x for x, y in found.items()}
    assert len(set(found.values())) == len(found)
    numbers = sorted((int(x[5:]), int(y[5:])) for x, y in found.items())
    assert [y for _, y in numbers] == sorted(y for _, y in numbers)
    assert corresponding(a, a) == {k: k for k in a}
