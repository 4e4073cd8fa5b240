"""What repeats is checked, expanded and placed once; that must not change what any single call means."""

from __future__ import annotations

import gc
from collections import Counter

import numpy as np
import pytest

from nc_sim import Program, ProgramError, simulate
from nc_sim.isa import View
from nc_sim.trace import operands


def tile(p: Program) -> View:
    return p.sbuf((4, 8), "float32")


def test_equal_numbers_of_other_kinds_are_not_the_same_call() -> None:
    """0.0 and -0.0, 1 and 1.0 and True are equal to Python."""
    p = Program()
    a, b, y = tile(p), tile(p), p.output("y", (4, 16), "float32")
    p.memset(dst=a, value=0.0)
    p.memset(dst=b, value=0.0)
    p.memset(dst=b, value=-0.0)
    p.dma_copy(dst=y[:, :8], src=a)
    p.dma_copy(dst=y[:, 8:], src=b)
    signs = np.signbit(simulate(p).outputs["y"])
    assert not signs[:, :8].any()
    assert signs[:, 8:].all()


@pytest.mark.parametrize("values", [(0.0, -0.0), (-0.0, 0.0), (1, 1.0), (1.0, 1)])
def test_equal_numbers_of_other_kinds_print_as_they_were_written(values: tuple[float, ...]) -> None:
    p = Program("numbers")
    t = p.sbuf((128, 8), "float32")
    for value in values:
        p.memset(dst=t, value=value)
    r = simulate(p)
    assert [i.text.rpartition("value=")[2] for i in r.instructions] == [str(v) for v in values]
    printer = operands.Printer(r.compiled.addresses, r.compiled.semaphores)
    shown = [f" value={v} dst=" for v in values]
    texts = [operands.listing(r.compiled), *(printer.text(s) for s in r.steps)]
    assert all(s in texts[0] for s in shown)
    assert all(s in t for s, t in zip(shown, texts[1:], strict=True))


def test_a_call_that_was_legal_does_not_make_an_equal_one_legal() -> None:
    p = Program()
    w, x, out = p.sbuf((128, 128), "bfloat16"), p.sbuf((128, 64), "bfloat16"), p.psum((128, 64))
    p.nc_matmul(dst=out, stationary=w, moving=x, accumulate=False)
    with pytest.raises(ProgramError, match="accumulate: 0; True or False"):
        p.nc_matmul(dst=out, stationary=w, moving=x, accumulate=0)


def test_a_position_for_a_keyword_is_another_call() -> None:
    p = Program()
    a, b = tile(p), tile(p)
    p.tensor_copy(dst=a, src=b)
    p.tensor_copy(b, a)
    assert [s.instruction.writes[0].tensor for s in p.steps] == [a.tensor, b.tensor]


def test_a_repeated_call_is_named_at_its_own_line_and_place() -> None:
    p = Program()
    a, s = tile(p), p.semaphore("s")
    for _ in range(3):
        p.memset(dst=a, value=1.0)
    p.tensor_copy(dst=a, src=a, engine="scalar", wait=[s >= 1])
    with pytest.raises(ProgramError) as caught:
        simulate(p)
    line = p.steps[3].line
    assert line in str(caught.value)
    assert len({step.line for step in p.steps}) == 2
    assert all(step.instruction is p.steps[0].instruction for step in p.steps[:3])


def test_more_calls_than_are_remembered_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nc_sim.program.MAX_KNOWN", 4)
    p = Program()
    a = tile(p)
    for k in range(20):
        p.memset(dst=a, value=float(k % 7))
    assert [s.instruction.value for s in p.steps] == [float(k % 7) for k in range(20)]


def test_a_read_that_found_a_part_written_does_not_stand_for_a_write_of_the_whole() -> None:
    """The left half is written, all is read, all is written: then the right half alone may be read."""
    p = Program()
    a, b, y = tile(p), tile(p), p.output("y", (4, 8), "float32")
    p.memset(dst=a[:, :4], value=1.0)
    p.tensor_copy(dst=b, src=a)
    p.memset(dst=a, value=2.0)
    p.tensor_copy(dst=b[:, 4:], src=a[:, 4:])
    p.dma_copy(dst=y, src=b)
    assert (simulate(p).outputs["y"][:, 4:] == 2).all()


def test_a_read_of_what_nobody_wrote_is_found_behind_repeated_ones() -> None:
    p = Program()
    a, b, c = tile(p), tile(p), tile(p)
    p.memset(dst=a, value=1.0)
    for _ in range(3):
        p.tensor_copy(dst=b, src=a)
    p.tensor_copy(dst=b, src=c)
    with pytest.raises(ProgramError, match="is read before anything writes it"):
        simulate(p)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_search_for_cycles_is_left_as_it_was_found(enabled: bool) -> None:
    p = Program()
    a, b = tile(p), tile(p)
    p.tensor_copy(dst=b, src=a)  # refused: nothing writes a
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(ProgramError):
            simulate(p)
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()


def test_a_dma_call_leaves_three_objects_that_the_search_for_cycles_looks_at() -> None:
    p = Program()
    x, t = p.input("x", (2000, 128, 16), "float32"), p.sbuf((128, 16), "float32")
    p.dma_copy(dst=t, src=x[0])
    gc.collect()
    before = Counter(type(o) for o in gc.get_objects())
    for k in range(1, 1001):
        p.dma_copy(dst=t, src=x[k])
    gc.collect()
    more = Counter(type(o) for o in gc.get_objects()) - before
    # the slice, the instruction and the step; tuples of numbers are not looked at
    assert {kind.__name__: n for kind, n in more.items() if n >= 500} == {"View": 1000, "DmaCopy": 1000, "Step": 1000}
