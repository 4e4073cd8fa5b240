"""What compiling and running a program costs grows as the program does, and what repeats itself is worked out once.

Growth is counted in bytecode instructions executed in nc_sim and isa, which no load on the machine changes. Four times the program
may take up to 5 times as many: a cost of n log n does, one of n squared takes 16 times as many.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from nc_sim import Program, ProgramError, chip, fast, isa, numerics, simulate
from nc_sim.allocate import allocate
from nc_sim.analysis import advice
from nc_sim.analysis.advice import explain
from nc_sim.control import check_room
from nc_sim.expand import expand
from nc_sim.isa import Work
from nc_sim.isa.errors import Unsupported
from nc_sim.memory import Memories
from nc_sim.result import Result
from nc_sim.simulate import compile_program
from nc_sim.timing import elementwise

CHIP = chip.load("trn2")
OURS = tuple(str(Path(inspect.getfile(m)).parent) for m in (chip, isa))  # in a clone isa/ stands beside nc_sim/, installed inside


def counted(work: Callable[[], object]) -> int:
    """Bytecode instructions that the call executes in nc_sim and isa."""
    count = 0

    def each(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        count += event == "opcode"
        return each

    def called(frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return each

    before = sys.gettrace()
    sys.settrace(called)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def placing(program: Program) -> Callable[[], object]:
    """The addresses of a program's tensors."""
    reader = CHIP.reader()
    e = expand(program, reader)
    return lambda: allocate(e.steps, e.tensors, reader, e.loops)


def fresh(n: int) -> Callable[[], object]:
    """Two new tiles in each of n rounds, of which SBUF holds a hundred."""
    p = Program("fresh")
    x = p.input("x", (128, 512), "float32")
    for _ in range(n):
        t, u = p.sbuf((128, 512), "float32"), p.sbuf((128, 512), "float32")
        p.dma_copy(dst=t, src=x)
        p.activation(dst=u, op="exp", data=t)
    return placing(p)


def products(n: int) -> Callable[[], object]:
    """A new PSUM tile for each of n writes."""
    p = Program("products")
    for _ in range(n):
        p.memset(dst=p.psum((128, 128)), value=1)
    return placing(p)


def given_apart(n: int) -> Callable[[], object]:
    """Tiles at addresses of their own."""
    return given(n, [0x8000 + 4 * i for i in range(n)])


def given_in_turn(n: int) -> Callable[[], object]:
    """Tiles at one address, one after the other."""
    return given(n, [0x8000] * n)


def given(n: int, addresses: list[int]) -> Callable[[], object]:
    p = Program("given")
    for at in addresses:
        p.memset(dst=p.sbuf((128, 1), "float32", address=at), value=1)
    return placing(p)


def given_and_fresh(n: int) -> Callable[[], object]:
    """Tiles with addresses and others without, which go around them."""
    p = Program("both")
    for i in range(n):
        p.memset(dst=p.sbuf((128, 1), "float32", address=0x4000 + 8 * i), value=1)
        p.memset(dst=p.sbuf((128, 1), "float32"), value=1)
    return placing(p)


def loops(n: int) -> Callable[[], object]:
    """n loops one after another: each has a counter, and all add to one register."""
    p = Program("loops")
    total, t = p.register_alloc(0), p.sbuf((1, 1), "int32")
    for _ in range(n):
        for _ in p.dynamic_range(2):
            p.register_alu(total, total, "add", 1)
    p.register_store(t, total)
    reader = CHIP.reader()
    e = expand(p, reader)
    return lambda: check_room(e.steps, e.loops, reader)


def gathers(n: int) -> Callable[[], object]:
    """Values of n DMAs with addresses read at run time."""
    p = Program("gathers")
    x, ids = p.input("x", (4, 2), "float32"), p.input("ids", (4, 1), "uint32")
    at, t = p.sbuf((4, 1), "uint32"), p.sbuf((4, 2), "float32")
    p.dma_copy(dst=at, src=ids)
    for _ in range(n):
        p.dma_copy(dst=t, src=x.vector_select(0, at))
    c, reader = compile_program(p, CHIP)
    memories = Memories(c.tensors, c.addresses, reader, {"x": np.ones((4, 2), np.float32), "ids": np.zeros((4, 1), np.uint32)})
    return lambda: numerics.interpret(c.steps, memories)


@pytest.mark.parametrize("work", [fresh, products, given_apart, given_in_turn, given_and_fresh, loops, gathers])
def test_four_times_the_program_takes_about_four_times_the_work(work: Callable[[int], Callable[[], object]]) -> None:
    few, many = counted(work(75)), counted(work(300))
    assert 0 < few < many <= 5 * few


def test_the_first_pair_that_collides_is_named_as_tensors_come() -> None:
    """c meets a in bytes 0x8004 to 0x8007, d meets x in all: c comes first."""
    p = Program("given")
    tiles = {n: p.sbuf((128, 8), "uint8", n, address=a) for n, a in (("a", 0x8000), ("x", 0x8010), ("c", 0x8004), ("d", 0x8010))}
    for _ in range(2):
        for t in tiles.values():
            p.memset(dst=t, value=1)
    with pytest.raises(ProgramError, match="tensors a and c: overlap while both are live"):
        placing(p)()


def test_instructions_that_differ_in_a_number_or_a_place_are_costed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """40 memsets of 8 elements with 40 values, in halves of one tile: one kind of work."""
    costed = list[str]()
    original = elementwise.cost

    def cost(work: Work, *rest: Any) -> Any:
        costed.append(work.kind)
        return original(work, *rest)

    monkeypatch.setattr(elementwise, "cost", cost)
    p = Program("memsets")
    t = p.sbuf((128, 16), "float32")
    for i in range(40):
        p.memset(dst=t[:, 8 * (i % 2) : 8 * (i % 2) + 8], value=i, engine="vector")
    simulate(p, values=False)
    assert costed == ["memset"]


def explained(monkeypatch: pytest.MonkeyPatch, least: int) -> tuple[list[Any], list[str]]:
    """The gains of a small run, and the engine asked for each, if a compiled run pays from `least` rows on."""
    engines = list[str]()
    original = advice.again

    def again(result: Result, what_if: Mapping[str, Any], engine: str) -> Result:
        engines.append(engine)
        return original(result, what_if, engine)

    p = Program("small")
    x, t = p.input("x", (4, 4), "float32"), p.sbuf((4, 4), "float32")
    p.dma_copy(dst=t, src=x)
    p.activation(dst=t, op="exp", data=t)
    with monkeypatch.context() as patch:
        patch.setattr(advice, "AUTO_FROM", least)
        patch.setattr(advice, "again", again)
        return list(explain(simulate(p, values=False)).gains), engines


@pytest.mark.skipif(fast.njit is None, reason="the extra `fast` (Numba) is not installed")
def test_many_what_ifs_of_one_run_are_simulated_by_the_compiled_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, engines = explained(monkeypatch, 1 << 60)
    assert set(engines) == {"auto"}
    together, engines = explained(monkeypatch, 1)
    assert set(engines) == {"compiled"}
    assert together == alone


def test_what_ifs_do_without_the_compiled_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, known = explained(monkeypatch, 1 << 60)

    def missing(*_: object) -> None:
        raise Unsupported("engine", "no Numba", "the extra fast")

    monkeypatch.setattr(fast, "run", missing)
    without, engines = explained(monkeypatch, 1)
    assert engines == ["compiled", *known], "one try, and no gain is lost"
    assert without == alone
