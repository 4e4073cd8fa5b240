"""Register instructions: values, where they stand, what is refused, what they cost."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from nc_sim import Program, ProgramError, Race, Unspecified, Unsupported, simulate
from nc_sim.forms import program_from_msgpack, program_from_text, program_to_msgpack, program_to_text
from nc_sim.isa import Step, View
from nc_sim.isa.registers import Register, RegisterAlu, RegisterMove, wrapped
from nc_sim.result import Result
from nc_sim.trace.hardware import load

NS = 4.8  # ticks


def stored(build: Callable[[Program], Register], dtype: str = "int32") -> int:
    """What a register holds, stored to a tensor of one element."""
    p = Program("case")
    y, t = p.output("y", (1, 1), dtype), p.sbuf((1, 1), dtype)
    p.register_store(t, build(p))
    p.dma_copy(dst=y, src=t)
    return int(simulate(p).outputs["y"][0, 0])


def ran(r: Result, *opcodes: str) -> list[tuple[str, str]]:
    """Engine and opcode of what was executed, in program order; all register instructions unless named."""
    wanted = opcodes or ("MOVE", "ALU_OP", "TENSOR_LOAD", "TENSOR_STORE", "COMPARE_BRANCH")
    return [(s.engine.label, s.instruction.opcode) for s in r.steps if s.instruction.opcode in wanted]


def refusal(build: Callable[[Program], object]) -> str:
    """What a program is refused with, by its calls or by simulate."""
    p = Program("case")

    def run() -> None:
        build(p)
        simulate(p, values=False)

    with pytest.raises(ProgramError) as caught:
        run()
    return str(caught.value)


# --- values ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, 1, -1, 127, 128, 2**31 - 1, -(2**31)])
def test_a_register_holds_the_32_bits_it_was_given(value: int) -> None:
    assert stored(lambda p: p.register_alloc(value)) == value


def test_the_largest_unsigned_number_is_minus_one_and_comes_back_unsigned() -> None:
    assert stored(lambda p: p.register_alloc(2**32 - 1)) == -1
    assert stored(lambda p: p.register_alloc(2**32 - 1), "uint32") == 2**32 - 1


def test_a_move_copies_the_value_of_the_time() -> None:
    def build(p: Program) -> Register:
        a, b = p.register_alloc(5), p.register_alloc()
        p.register_move(b, a)
        p.register_move(dst=a, src=6)
        return b

    assert stored(build) == 5


@pytest.mark.parametrize(
    ("op", "a", "b", "wanted"),
    [
        ("add", 2**31 - 1, 1, -(2**31)),  # 32 bits
        ("subtract", 3, 5, -2),
        ("multiply", -7, 6, -42),
        ("maximum", -3, 2, 2),
        ("min", -3, 2, -3),
        ("bitwise_and", 12, 10, 8),
        ("bitwise_or", 12, 10, 14),
        ("bitwise_xor", 12, 10, 6),
        ("left_shift", 3, 4, 48),
        ("right_shift", -1, 28, 15),  # logical
        ("less", -1, 0, 1),  # signed
        ("greater_equal", -1, 0, 0),
        ("not_equal", 4, 4, 0),
        ("nl.equal", 4, 4, 1),
    ],
)
def test_arithmetic_is_that_of_32_signed_bits(op: str, a: int, b: int, wanted: int) -> None:
    def build(p: Program) -> Register:
        x, y = p.register_alloc(a), p.register_alloc()
        p.register_alu(y, x, op, b)
        return y

    assert stored(build) == wanted


@pytest.mark.parametrize("memory", ["hbm", "sbuf"])
@pytest.mark.parametrize(("dtype", "value"), [("int32", -5), ("uint32", 2**32 - 2), ("int16", -300), ("uint8", 200), ("int8", -3)])
def test_a_load_takes_the_number_of_its_element_type(dtype: str, value: int, memory: str) -> None:
    p = Program("case")
    x, y, t = p.input("x", (1, 1), dtype), p.output("y", (1,), "int32"), p.sbuf((1, 1), dtype)
    p.dma_copy(dst=t, src=x)
    r = p.register_alloc()
    p.register_load(r, t if memory == "sbuf" else x)
    p.register_store(y, r)
    assert simulate(p, inputs={"x": np.array([[value]], dtype)}).outputs["y"][0] == wrapped(value)


def test_a_store_into_a_narrow_type_keeps_the_low_bits() -> None:
    assert stored(lambda p: p.register_alloc(0x1234), "uint8") == 0x34
    assert stored(lambda p: p.register_alloc(0xFFFF), "int16") == -1


def test_a_register_store_to_an_output_is_waited_for_at_the_end() -> None:
    p = Program("case")
    y = p.output("y", (1,), "int32")
    p.register_store(y, p.register_alloc(3))
    r = simulate(p)
    store = next(i for i in r.instructions if i.opcode == "TENSOR_STORE")
    last = r.instructions[-1]
    assert (r.outputs["y"][0], last.opcode) == (3, "NOP")
    assert last.start_ns >= store.end_ns


# --- where they stand --------------------------------------------------------------------------------------------


def test_a_register_that_nothing_needs_is_on_sync() -> None:
    p = Program("case")
    p.register_alloc(1)
    assert ran(simulate(p)) == [("Sync", "MOVE")]


def test_an_allocation_without_a_value_executes_nothing() -> None:
    p = Program("case")
    p.register_alloc()
    assert simulate(p).steps == ()


def test_what_a_needed_register_is_computed_from_stands_on_the_same_engines() -> None:
    p = Program("case")
    t, u = p.sbuf((4, 4), "float32"), p.sbuf((4, 4), "float32")
    a, b, c, d, e = p.register_alloc(3), *(p.register_alloc() for _ in range(4))
    for into, of in ((b, a), (c, b), (d, c), (e, d)):
        p.register_alu(into, of, "subtract", 1)
    for _ in p.dynamic_range(e):
        p.memset(dst=t, value=0)
        p.memset(dst=u, value=0, engine="gpsimd")
    r = simulate(p)
    before = ran(r)[: ran(r).index(("Vector", "COMPARE_BRANCH"))]
    assert before == [(e, o) for o in ("MOVE", *["ALU_OP"] * 4, "MOVE") for e in ("Vector", "GpSimd")]


def test_a_named_engine_has_a_register_of_its_own() -> None:
    p = Program("case")
    y = p.output("y", (2,), "int32")
    r = p.register_alloc()
    p.register_move(r, 1, engine="vector")
    p.register_move(r, 2, engine="scalar")
    p.register_store(y[0:1], r, engine="vector")
    p.register_store(y[1:2], r, engine="scalar")
    assert simulate(p).outputs["y"].tolist() == [1, 2]


# --- time and order ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["tensor", "vector", "scalar", "gpsimd", "sync"])
def test_register_instructions_take_the_times_of_the_chip_one_after_another(engine: str) -> None:
    """MOVE 68 ns [probes]; ALU_OP 44.3 [trn3]; TENSOR_LOAD 297 [newer]; TENSOR_STORE 95 and COMPARE_BRANCH [inf2], in ticks of 1/4.8 ns."""
    p = Program("case")
    c, h = p.constant(np.array([1]), "int32"), p.hbm((1,), "int32")
    r = p.register_alloc()
    p.register_move(r, 1, engine=engine)
    p.register_alu(r, r, "add", 1, engine=engine)
    p.register_load(r, c, engine=engine)
    p.register_store(h, r, engine=engine)
    p.compare_branch(r, "less", 3, engine=engine)
    made = simulate(p).instructions
    branch = {"tensor": 230, "vector": 254, "scalar": 226, "gpsimd": 324, "sync": 202}[engine]  # 48, 53, 47, 67.5, 42 ns
    assert [i.opcode for i in made] == ["MOVE", "ALU_OP", "TENSOR_LOAD", "TENSOR_STORE", "COMPARE_BRANCH"]
    assert [round(i.duration_ns * NS) for i in made] == [326, 213, 1426, 456, branch]
    assert all(abs(b.start_ns - a.end_ns) < 1e-6 for a, b in pairwise(made))


def test_a_load_waits_for_who_wrote_its_tensor_and_a_writer_for_the_load() -> None:
    p = Program("case")
    y, t = p.output("y", (1,), "int32"), p.sbuf((1, 1), "int32")
    r = p.register_alloc()
    p.memset(dst=t, value=7)
    p.register_load(r, t)
    p.memset(dst=t, value=9)
    p.register_store(y, r)
    made = simulate(p)
    first, second = (i for i in made.instructions if i.opcode == "MEMSET")
    load = next(i for i in made.instructions if i.opcode == "TENSOR_LOAD")
    assert made.outputs["y"][0] == 7
    assert first.end_ns + 34 <= load.start_ns + 0.3  # the semaphore's 34 ns, to a tick
    assert load.end_ns + 34 <= second.start_ns + 0.3


def test_register_times_are_a_mechanism() -> None:
    p = Program("case")
    for _ in range(10):
        p.register_alloc(1)
    assert simulate(p).duration_ns == pytest.approx(10 * 326 / NS)
    assert simulate(p, without=["register-instructions"]).duration_ns == pytest.approx(10 / NS)


# --- explicit programs -------------------------------------------------------------------------------------------


def load_of_a_tile(synchronised: bool, engine: str = "gpsimd") -> Program:
    p = Program("case")
    t, s = p.sbuf((1, 1), "int32"), p.semaphore("s")
    r = p.register_alloc()
    p.memset(dst=t, value=7, update=s.add(1))
    p.register_load(r, t, engine=engine, wait=[s >= 1] if synchronised else [])
    return p


def test_a_register_load_without_a_semaphore_is_a_race() -> None:
    simulate(load_of_a_tile(True))
    with pytest.raises(Race, match=r"memset writes .* register_load reads"):
        simulate(load_of_a_tile(False))


def test_a_load_of_what_the_own_engine_wrote_needs_a_semaphore_too() -> None:
    simulate(load_of_a_tile(True, "vector"))
    with pytest.raises(Race, match=r"vector\[1\] register_load reads"):
        simulate(load_of_a_tile(False, "vector"))


@pytest.mark.parametrize("overwritten_by", ["the own engine", "another engine"])
def test_a_sequencer_goes_on_when_a_register_load_is_done(overwritten_by: str) -> None:
    """So who comes later in its queue, and whoever such an instruction tells, may overwrite what was loaded."""
    p = Program("case")
    t, u, s = p.sbuf((1, 1), "int32"), p.sbuf((1, 1), "int32"), p.semaphore("s")
    r, told = p.register_alloc(), p.semaphore("told")
    p.memset(dst=t, value=7, update=s.add(1))
    p.register_load(r, t, engine="vector", wait=s >= 1)
    if overwritten_by == "the own engine":
        p.memset(dst=t, value=1)
    else:
        p.memset(dst=u, value=1, update=told.add(1, when="read"))
        p.memset(dst=t, value=1, engine="gpsimd", wait=told >= 1)
    simulate(p)


@pytest.mark.parametrize(("call", "when", "races"), [("load", "read", False), ("store", "complete", False), ("store", "read", True)])
def test_an_update_on_read_says_that_a_load_has_read_and_not_that_a_store_has_written(call: str, when: str, races: bool) -> None:
    p = Program("case")
    t, s, told = p.sbuf((1, 1), "int32"), p.semaphore("s"), p.semaphore("told")
    r = p.register_alloc(1)
    p.memset(dst=t, value=7, update=s.add(1))
    how = {"engine": "sync", "wait": s >= 1, "update": told.add(1, when=when)}
    p.register_load(r, t, **how) if call == "load" else p.register_store(t, r, **how)
    p.memset(dst=t, value=1, engine="gpsimd", wait=told >= 1)
    if races:
        with pytest.raises(Race, match=r"register_store writes .* memset writes"):
            simulate(p)
    else:
        simulate(p)


def test_another_engine_may_not_overwrite_what_a_register_load_reads() -> None:
    p = Program("case")
    t, s = p.sbuf((1, 1), "int32"), p.semaphore("s")
    r = p.register_alloc()
    p.memset(dst=t, value=7, update=s.add(1))
    p.register_load(r, t, engine="vector", wait=s >= 1)
    p.memset(dst=t, value=1, engine="gpsimd", wait=s >= 1)
    with pytest.raises(Race, match=r"register_load reads .* memset writes"):
        simulate(p)


# --- forms -------------------------------------------------------------------------------------------------------


def every_call() -> Program:
    p = Program("case")
    y, t = p.output("y", (1,), "int32"), p.sbuf((4, 4), "float32")
    n = p.register_alloc(2, name="n")
    p.register_load(n, p.constant(np.array([2]), "int32"))
    p.register_alu(dst=n, data0=n, op="add", data1=-1)
    for _ in p.dynamic_range(0, n, 2):
        p.memset(dst=t, value=0)
    with p.repeat_while(n):
        p.memset(dst=t, value=0)
        p.register_move(n, 0)
    p.compare_branch(n, "less", 1, engine="vector")
    p.register_store(y, n)
    return p


def test_programs_with_registers_are_the_same_as_text_and_as_bytes() -> None:
    p = every_call()
    text, data = program_to_text(p), program_to_msgpack(p)
    again = program_from_text(text), program_from_msgpack(data)
    assert [program_to_text(q) for q in again] == [text, text]
    assert [program_to_msgpack(q) for q in again] == [data, data]
    assert {simulate(q).duration_ns for q in (p, *again)} == {simulate(p).duration_ns}
    assert "sync? loop_for counter=r1 lower=0 upper=n step=2 #" in text


def test_text_with_an_unknown_register_is_refused() -> None:
    text = "program x\nsync? register_alloc dst=count src=none\nsync? register_move dst=coumt src=1\n"
    with pytest.raises(ProgramError, match=r":3 sync register_move: register 'coumt' \(near: count\)"):
        program_from_text(text)


def test_a_saved_run_has_the_opcodes_of_real_traces(tmp_path: Path) -> None:
    trace = load(simulate(every_call()).save(tmp_path))
    assert {"MOVE", "ALU_OP", "TENSOR_LOAD", "TENSOR_STORE", "COMPARE_BRANCH"} <= set(trace.instructions.opcode.values)


# --- refusals ----------------------------------------------------------------------------------------------------


def view(p: Program, dtype: str = "int32", shape: tuple[int, ...] = (1, 1)) -> View:
    t = p.sbuf(shape, dtype)
    p.memset(dst=t, value=0)
    return t


def many(count: int) -> Callable[[Program], None]:
    def build(p: Program) -> None:
        made = [p.register_alloc(k) for k in range(count)]
        total = p.register_alloc(0)
        for r in made:
            p.register_alu(total, total, "add", r)

    return build


def unset_elsewhere(p: Program) -> None:
    r = p.register_alloc()
    p.register_move(r, 1, engine="scalar")
    p.register_store(view(p), r, engine="vector")


REFUSED: dict[str, tuple[Callable[[Program], object], str]] = {
    "unset": (lambda p: p.register_store(view(p), p.register_alloc()), "register r0 is read before anything sets it; register_move or"),
    "another engine's": (
        unset_elsewhere,
        "register r0 on Vector's sequencer, where nothing set it: Scalar has a value; a register of this",
    ),
    "too many": (many(64), "65 registers live on Sync; at most 64 (trn2)"),
    "taken": (lambda p: [p.register_alloc(1, "a"), p.register_alloc(1, "a")], "register a: the name is taken"),
    "unfit": (lambda p: p.register_alloc(1, "a b"), "name 'a b'; a letter or _, then letters"),
    "of no program": (lambda p: p.register_move(Register("zz"), 1), "register 'zz'; a register of this program"),
    "no register": (lambda p: p.register_move(3, 1), "dst: 3; a register, from p.register_alloc()"),
    "a fraction": (lambda p: p.register_alloc(1.5), "src: 1.5; a whole number"),
    "33 bits": (lambda p: p.register_alloc(2**32), "src: 4294967296; -2147483648 to 4294967295"),
    "two elements": (
        lambda p: p.register_load(p.register_alloc(), view(p, shape=(1, 2))),
        "src has shape [1, 2]; one element: [1] or [1, 1]",
    ),
    "two partitions": (lambda p: p.register_load(p.register_alloc(), view(p, shape=(2, 1))), "src has shape [2, 1]; one element"),
    "PSUM": (lambda p: p.register_load(p.register_alloc(), p.psum((1, 1), "int32")), "src is in PSUM; HBM or SBUF"),
    "an operator": (lambda p: p.register_alu(p.register_alloc(), 1, "divide", 1), "op: operator divide; one of"),
    "an unknown operator": (
        lambda p: p.register_alu(p.register_alloc(), 1, "foo", 1),
        "op: ALU operator 'foo'; one of bitwise_and, bitwise_or, bitwise_xor, left_shift, right_shift, add, subtract, multiply, maximum, "
        "minimum, equal, not_equal, greater_equal, greater, less_equal, less, logical_and, logical_or, logical_xor (nki",
    ),
    "a cut operator": (lambda p: p.register_alu(p.register_alloc(), 1, "mul", 1), "op: ALU operator 'mul' (near: multiply); one of"),
    "near ones not taken": (lambda p: p.register_alu(p.register_alloc(), 1, "div", 1), "op: ALU operator 'div'; one of bitwise_and"),
    "an unknown comparison": (
        lambda p: p.compare_branch(1, "lessequal", 1),
        "op: ALU operator 'lessequal' (near: less_equal, equal, less); one of less, less_equal, greater, greater_equal, equal, "
        "not_equal (nki",
    ),
    "a comparison": (lambda p: p.compare_branch(1, "add", 1), "op: operator add; one of less, less_equal"),
    "truth": (lambda p: bool(p.register_alloc(1)), "the truth of register r0 while the program is built; p.while_loop"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_register_program_is_refused_with_one_clear_error(what: str) -> None:
    build, wanted = REFUSED[what]
    assert wanted in refusal(build)


def test_64_registers_may_live_at_once() -> None:
    p = Program("case")
    many(63)(p)
    simulate(p)


def test_registers_that_live_one_after_another_share_the_64() -> None:
    p = Program("case")
    for k in range(200):
        p.register_alloc(k)
    simulate(p)


def test_an_update_of_several_engines_at_once_is_refused() -> None:
    p = Program("case")
    t, u, s = p.sbuf((4, 4), "float32"), p.sbuf((4, 4), "float32"), p.semaphore("s")
    n = p.register_alloc()
    p.register_move(n, 1, update=s.add(1))
    for _ in p.dynamic_range(n):
        p.memset(dst=t, value=0)
        p.memset(dst=u, value=0, engine="gpsimd")
    with pytest.raises(ProgramError, match="register_move: an update, on 2 engines: Vector, GpSimd; engine=, one call for each"):
        simulate(p)


@pytest.mark.parametrize("call", ["load", "store"])
def test_floating_point_elements_are_unspecified(call: str) -> None:
    p = Program("case")
    t, r = view(p, "float32"), p.register_alloc(1)
    with pytest.raises(Unspecified, match="float32 elements; whole numbers"):
        p.register_load(r, t) if call == "load" else p.register_store(t, r)


def test_a_register_is_no_number() -> None:
    p = Program("case")
    r = p.register_alloc(4)
    with pytest.raises(ProgramError, match=r"register r0 as a number while the program is built; .*p.dynamic_range\(r0\)"):
        range(r)
    with pytest.raises(ProgramError, match="whole numbers"):
        p.sbuf((4, r), "float32")  # type: ignore[list-item]


# --- the seam for addresses --------------------------------------------------------------------------------------


def test_an_instruction_is_bound_to_the_values_that_its_registers_have_when_it_executes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a dynamic address will use: `registers` names what it reads, `bound` puts the values in their place."""
    from nc_sim.isa.vector import Memset

    p = Program("case")
    y, t = p.output("y", (1, 3), "float32"), p.sbuf((1, 3), "float32")
    for _ in p.dynamic_range(1):
        for k in range(3):
            p.memset(dst=t[:, k : k + 1], value=k + 100)
    counter = Register("r0")
    p.dma_copy(dst=y, src=t)
    monkeypatch.setattr(Memset, "registers", property(lambda self: (counter,)))
    monkeypatch.setattr(Memset, "bound", lambda self, value: Memset(dst=self.dst, value=self.value + value(counter)))
    assert simulate(p).outputs["y"].tolist() == [[100, 101, 102]]
    for step in p.steps:  # the counter begins at 7
        if step.instruction.mnemonic == "loop_for":
            step.instruction = type(step.instruction)(counter=counter, lower=7, upper=8)
    assert simulate(p).outputs["y"].tolist() == [[107, 108, 109]]


def test_steps_compare_by_what_they_are() -> None:
    a, b = Register("a"), Register("a")
    assert RegisterMove(dst=a, src=1) == RegisterMove(dst=b, src=1)
    assert RegisterAlu(dst=a, data0=a, op="add", data1=1) != RegisterAlu(dst=a, data0=a, op="add", data1=2)
    assert isinstance(every_call().steps[0], Step)


def test_values_false_knows_constants_and_nothing_else() -> None:
    def build(overwritten: bool) -> Program:
        p = Program("case")
        c, t = p.constant(np.array([2]), "int32"), p.sbuf((1, 1), "int32")
        p.memset(dst=t, value=5)
        if overwritten:
            p.dma_copy(dst=c, src=t)
        r = p.register_alloc()
        p.register_load(r, c)
        for _ in p.dynamic_range(r):
            p.memset(dst=t, value=1)
        return p

    assert ran(simulate(build(False), values=False), "MEMSET") == [("Vector", "MEMSET")] * 3
    with pytest.raises(
        Unsupported, match=r"test_registers.py:\d+ loop: register r0, which test_registers.py:\d+ loads from tensor data; a run w"
    ):
        simulate(build(True), values=False)
    assert ran(simulate(build(True)), "MEMSET") == [("Vector", "MEMSET")] * 6


@pytest.mark.parametrize(
    "compare",
    [
        lambda r: r == 0,
        lambda r: r != 5,
        lambda r: r in (1, 2),
        lambda r: r < 3,
        lambda r: r >= 3,
        lambda r: r == np.int32(1),
    ],
)
def test_a_register_compared_while_the_program_is_built_is_refused_as_its_value_comes_later(compare: Callable[[Register], bool]) -> None:
    p = Program("p")
    for r in p.dynamic_range(4):
        with pytest.raises(
            ProgramError, match=r"register \w+ compared with .* while the program is built; a register instruction or a loop"
        ):
            compare(r)
    assert r == Register(r.name)
    assert r != Register("other")
    assert len({r, Register(r.name)}) == 1
