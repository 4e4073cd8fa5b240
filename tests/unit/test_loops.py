"""Loops with a dynamic trip count: rounds, values, times worked out by hand, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nc_sim import Deadlock, Program, ProgramError, Unsupported, simulate
from nc_sim.isa import Engine, View
from nc_sim.isa.registers import Register
from nc_sim.probe import Probe
from nc_sim.result import Result

ENGINES = ["simpy", "compiled"]


def number(p: Program, value: int | None = None, name: str = "") -> View:
    """A whole number in SBUF: given, or the input of that name."""
    t = p.sbuf((1, 1), "int32")
    if value is None:
        p.dma_copy(dst=t, src=p.input(name, (1, 1), "int32"))
    else:
        p.memset(dst=t, value=value)
    return t


def returned(p: Program, t: View, name: str = "y") -> None:
    p.dma_copy(dst=p.output(name, t.shape, t.dtype.name), src=t)


def rounds(r: Result, opcode: str = "MEMSET") -> int:
    return sum(s.instruction.opcode == opcode for s in r.steps)


def queue(r: Result, engine: Engine) -> list[str]:
    return [s.instruction.opcode for s in r.steps if s.engine is engine]


def counted(bounds: Callable[[Program], tuple[object, ...]], step: int = 1) -> list[int]:
    """What the counter of a loop was in each round, by adding up its powers of 100."""
    p = Program("counted")
    y, t = p.output("y", (16,), "int32"), p.sbuf((1, 1), "int32")
    place = p.register_alloc(0)
    p.register_store(y[0:1], place)
    values: list[int] = []
    for i in p.dynamic_range(*bounds(p), step=step):
        p.register_store(t, i)
    returned(p, t, "last")
    r = simulate(p)
    registers: dict[str, int] = {}
    for s in r.steps:  # MOVE and ALU_OP of the counter, by hand
        i = s.instruction
        if i.opcode == "MOVE":
            registers[i.dst.name] = registers[i.src.name] if isinstance(i.src, Register) else i.src  # type: ignore[attr-defined]
        elif i.opcode == "ALU_OP":
            registers[i.dst.name] += i.data1  # type: ignore[attr-defined]
        elif i.opcode == "TENSOR_STORE" and i.dst.tensor == t.tensor:  # type: ignore[attr-defined]
            values.append(registers[i.src.name])  # type: ignore[attr-defined]
    assert r.outputs["last"][0, 0] == values[-1]
    return values


# --- rounds and values -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "step"),
    [((3,), 1), ((2, 5), 1), ((0, 7), 3), ((-4, 3), 2), ((5, 6), 100)],
)
def test_a_dynamic_range_counts_as_range_does(bounds: tuple[int, ...], step: int) -> None:
    wanted = list(range(*(bounds if len(bounds) == 2 else (0, *bounds)), step))
    assert counted(lambda p: bounds, step) == wanted
    assert counted(lambda p: tuple(map(p.register_alloc, bounds)), step) == wanted


@pytest.mark.parametrize("bounds", [(0,), (-3,), (4, 4), (5, 2)])
def test_a_loop_may_have_no_round(bounds: tuple[int, ...]) -> None:
    p = Program("none")
    t = number(p, 7)
    for _ in p.dynamic_range(*bounds):
        p.memset(dst=t, value=9)
    returned(p, t)
    assert simulate(p).outputs["y"][0, 0] == 7


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_a_trip_count_may_come_from_a_tensor(n: int, engine: str) -> None:
    """x + n by adding 1 on Vector and copying on Scalar, n times."""
    p = Program("added")
    x, y, t = p.input("x", (128, 64), "float32"), p.output("y", (128, 64), "float32"), p.sbuf((128, 64), "float32")
    p.dma_copy(dst=t, src=x)
    bound = p.register_alloc()
    p.register_load(bound, number(p, name="n"))

    def body(i: Register) -> None:
        p.tensor_scalar(dst=t, data=t, op0="add", operand0=1.0)
        p.activation(dst=t, op="copy", data=t)

    p.fori_loop(0, bound, body)
    p.dma_copy(dst=y, src=t)
    a = np.arange(128 * 64, dtype=np.float32).reshape(128, 64)
    assert (simulate(p, inputs={"x": a, "n": np.array([[n]])}, engine=engine).outputs["y"] == a + n).all()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("n", [0, 1, 6])
def test_a_while_loop_runs_while_its_register_is_not_zero(n: int, engine: str) -> None:
    """n + (n - 1) + … + 1, the count kept in SBUF as in the example of nki.language.while_loop."""
    p = Program("summed")
    count, one, total = number(p, name="n"), number(p, 1), number(p, 0)
    r = p.register_alloc()
    p.register_load(r, count)

    def body(r: Register) -> Register:
        p.tensor_tensor(dst=total, data1=total, data2=count, op="add")
        p.tensor_tensor(dst=count, data1=count, data2=one, op="subtract")
        p.register_load(r, count)
        return r

    p.while_loop(r, body)
    returned(p, total)
    assert simulate(p, inputs={"n": np.array([[n]])}, engine=engine).outputs["y"][0, 0] == n * (n + 1) // 2


def test_a_while_loop_goes_on_with_the_register_that_its_body_returns() -> None:
    p = Program("returned")
    total, one = number(p, 0), number(p, 1)
    init = p.register_alloc(3)

    def body(r: Register) -> Register:
        p.tensor_tensor(dst=total, data1=total, data2=one, op="add")
        after = p.register_alloc()
        p.register_alu(after, r, "subtract", 1)
        return after

    p.while_loop(init, body)
    left = p.sbuf((1, 1), "int32")
    p.register_store(left, init)  # by value: the caller's register is as it was
    returned(p, total)
    returned(p, left, "init")
    out = simulate(p).outputs
    assert (out["y"][0, 0], out["init"][0, 0]) == (3, 3)


def test_inner_bounds_may_be_outer_counters() -> None:
    """0 + 1 + … + 5 rounds."""
    p = Program("triangle")
    total, one = number(p, 0), number(p, 1)
    for i in p.dynamic_range(6):
        for _ in p.dynamic_range(i):
            p.tensor_tensor(dst=total, data1=total, data2=one, op="add")
    returned(p, total)
    assert simulate(p).outputs["y"][0, 0] == 15


def test_setting_the_counter_makes_no_difference_to_the_loop() -> None:
    p = Program("set")
    total, t = number(p, 0), p.sbuf((1, 1), "int32")
    for i in p.dynamic_range(4):
        p.register_alu(i, i, "multiply", 10)
        p.register_store(t, i)
        p.tensor_tensor(dst=total, data1=total, data2=t, op="add")
    returned(p, total)
    r = simulate(p)
    assert r.outputs["y"][0, 0] == 0 + 10 + 20 + 30


def test_a_bound_is_read_anew_each_round() -> None:
    p = Program("moving")
    t, n = p.sbuf((1, 1), "float32"), p.register_alloc(10)
    for i in p.dynamic_range(n):
        p.memset(dst=t, value=0)
        p.register_alu(n, n, "subtract", 1)
        del i
    assert rounds(simulate(p)) == 5  # 0 < 10, 1 < 9, 2 < 8, 3 < 7, 4 < 6, 5 = 5


def test_products_add_up_over_the_rounds() -> None:
    p = Program("products")
    a, b = p.sbuf((128, 128), "bfloat16"), p.sbuf((128, 128), "bfloat16")
    c, o = p.psum((128, 128)), p.sbuf((128, 128), "float32")
    p.memset(dst=a, value=1)
    p.memset(dst=b, value=2)
    p.nc_matmul(dst=c, stationary=a, moving=b, accumulate=False)
    for _ in p.dynamic_range(3):
        p.nc_matmul(dst=c, stationary=a, moving=b, accumulate=True)
    p.tensor_copy(dst=o, src=c)
    returned(p, o)
    assert (simulate(p).outputs["y"] == 4 * 256).all()


@pytest.mark.parametrize(("op", "again"), [(("exp",), 1), (("exp", "sin"), 6), (("exp", "copy"), 1)])
def test_a_table_is_loaded_in_each_round_if_another_function_may_have_replaced_it(op: tuple[str, ...], again: int) -> None:
    """exp and sin are in different sets (scalar.table_sets): each of 3 rounds loads both; copy needs no table."""
    p = Program("tables")
    t = p.sbuf((4, 4), "float32")
    p.memset(dst=t, value=0)
    for _ in p.dynamic_range(3):
        for name in op:
            p.activation(dst=t, op=name, data=t)
    r = simulate(p)
    assert rounds(r, "ACT_TABLE_LOAD") == again + (again > 1)  # and the one at the head of the queue
    assert queue(r, Engine.SCALAR)[0] == "ACT_TABLE_LOAD"


def test_after_a_loop_any_of_its_tables_may_be_resident() -> None:
    """exp is loaded at the head of the queue; without a round the loop loads nothing, so sin is loaded behind it."""
    p = Program("tables")
    t = p.sbuf((4, 4), "float32")
    p.memset(dst=t, value=0)
    for _ in p.dynamic_range(0):
        p.activation(dst=t, op="exp", data=t)
        p.activation(dst=t, op="sin", data=t)
    p.activation(dst=t, op="sin", data=t)
    assert queue(simulate(p), Engine.SCALAR) == ["ACT_TABLE_LOAD", "MOVE", "COMPARE_BRANCH", "ACT_TABLE_LOAD", "ACTIVATE"]


# --- what the engines execute ------------------------------------------------------------------------------------


def test_every_engine_of_a_loop_and_no_other_branches_for_itself() -> None:
    p = Program("two")
    t, u, v = (p.sbuf((4, 4), "float32") for _ in range(3))
    p.memset(dst=v, value=1, engine="gpsimd")
    for _ in p.dynamic_range(2):
        p.memset(dst=t, value=0)
        p.activation(dst=u, op="exp", data=v)
    r = simulate(p)
    round_ = ["ALU_OP", "COMPARE_BRANCH"]
    assert queue(r, Engine.VECTOR) == ["MOVE", "COMPARE_BRANCH", *(["MEMSET", *round_] * 2)]
    assert queue(r, Engine.SCALAR) == ["ACT_TABLE_LOAD", "MOVE", "COMPARE_BRANCH", *(["ACTIVATE", *round_] * 2)]
    assert (queue(r, Engine.GPSIMD), queue(r, Engine.SYNC)) == (["MEMSET"], [])


def test_a_while_loop_has_one_branch_more_than_rounds_and_no_counter() -> None:
    p = Program("while")
    t, r = p.sbuf((4, 4), "float32"), p.register_alloc(2)
    with p.repeat_while(r):
        p.memset(dst=t, value=0)
        p.register_alu(r, r, "subtract", 1)
    assert queue(simulate(p), Engine.VECTOR) == ["MOVE", "COMPARE_BRANCH", *(["MEMSET", "ALU_OP", "COMPARE_BRANCH"] * 2)]


def test_an_instruction_of_a_loop_has_a_row_for_each_round_and_one_call() -> None:
    p = Program("rows")
    t = p.sbuf((4, 4), "float32")
    for _ in p.dynamic_range(5):
        p.memset(dst=t, value=0)
    r = simulate(p)
    mine = [k for k, s in enumerate(r.steps) if s.instruction.opcode == "MEMSET"]
    starts = r.timeline.start[r.table.start_row[mine]].tolist()
    assert {r.steps[k].call for k in mine} == {2}  # after the allocation of the counter and the loop's own line
    assert len(starts) == 5
    assert starts == sorted(set(starts))


# --- times, by hand ----------------------------------------------------------------------------------------------


def test_rounds_of_one_engine_take_the_times_of_the_sequencer() -> None:
    """Ticks of 1/4.8 ns. Vector is released at 40 ns (192); MOVE 68 ns (326), COMPARE_BRANCH 53 (254), ALU_OP 44.3 (213).

    A round hands MEMSET over in 2 ns (10), then steps and branches: 477. The engine begins a tick after the handing over.
    """
    p = Program("alone")
    t = p.sbuf((1, 1), "float32")
    for _ in p.dynamic_range(3):
        p.memset(dst=t, value=0)
    r = simulate(p)
    at = {o: [round(i.start_ns * 4.8) for i in r.instructions if i.opcode == o] for o in ("MOVE", "COMPARE_BRANCH", "MEMSET", "ALU_OP")}
    first = 192 + 326
    assert at["MOVE"] == [192]
    assert at["COMPARE_BRANCH"] == [first, first + 477, first + 954, first + 1431]
    assert at["MEMSET"] == [first + 254 + 1, first + 254 + 478, first + 254 + 955]
    assert at["ALU_OP"] == [first + 264, first + 741, first + 1218]
    assert round(r.duration_ns * 4.8) == first + 1431 + 254


def test_engines_of_a_loop_run_apart_where_nothing_joins_them() -> None:
    """GpSimd: released at 129 ns (619), COMPARE_BRANCH 67.5 (324). Its MEMSET, 150 cycles and one of 1.2 GHz (604 ticks), is waited for
    by the next, which it tells in 34 ns (163): the second round begins at 619 + 326 + 324 + 1 + 604 + 163 = 2037. Vector's is done in time.
    """
    p = Program("apart")
    t, u = p.sbuf((1, 1), "float32"), p.sbuf((1, 1), "float32")
    for _ in p.dynamic_range(2):
        p.memset(dst=t, value=0)
        p.memset(dst=u, value=0, engine="gpsimd")
    r = simulate(p)
    last = {
        e: max(round(i.end_ns * 4.8) for i in r.instructions if i.engine == e and i.opcode == "COMPARE_BRANCH")
        for e in ("Vector", "GpSimd")
    }
    assert last == {"Vector": 192 + 326 + 254 + 2 * 477, "GpSimd": 2037 + 10 + 213 + 324}


def test_a_loop_without_rounds_costs_its_entry() -> None:
    p = Program("none")
    t = p.sbuf((1, 1), "float32")
    for _ in p.dynamic_range(0):
        p.memset(dst=t, value=0)
    assert round(simulate(p).duration_ns * 4.8) == 192 + 326 + 254


def test_the_time_of_a_data_dependent_loop_is_that_of_a_constant_one_and_its_load() -> None:
    def built(loaded: bool) -> Result:
        p = Program("loaded")
        t, c = p.sbuf((1, 1), "float32"), p.hbm((1, 1), "int32")
        n = p.register_alloc()
        p.register_store(c, p.register_alloc(2), engine="vector")
        (p.register_load if loaded else p.register_move)(n, c if loaded else 2)
        for _ in p.dynamic_range(n):
            p.memset(dst=t, value=0)
        return simulate(p)

    assert round((built(True).duration_ns - built(False).duration_ns) * 4.8) == 1426 - 326  # TENSOR_LOAD 297 ns for MOVE 68


# --- decided in time ---------------------------------------------------------------------------------------------


def decided_in_time() -> Program:
    """Four rounds: the second write stands behind the load in the program, and comes before it in time."""
    p = Program("later")
    c, t = p.sbuf((1, 1), "int32"), p.sbuf((1, 1), "float32")
    written = p.semaphore("written")
    n = p.register_alloc()
    p.memset(dst=c, value=1)
    p.register_load(n, c, engine="gpsimd", wait=written >= 1)
    for _ in p.dynamic_range(n):
        p.memset(dst=t, value=0, engine="gpsimd")
    p.memset(dst=c, value=4, update=written.add(1))
    return p


@pytest.mark.parametrize("engine", ENGINES)
def test_an_explicit_program_decides_by_what_it_loads_in_time(engine: str) -> None:
    r = simulate(decided_in_time(), engine=engine)
    assert sum(s.engine is Engine.GPSIMD and s.instruction.opcode == "MEMSET" for s in r.steps) == 4


def test_an_explicit_program_loads_a_constant_that_is_overwritten_first() -> None:
    """Program order would load 2; another load before it is of data that decide nothing."""
    p = Program("constant")
    c, t, u = p.constant(np.array([[2]]), "int32"), p.sbuf((1, 1), "int32"), p.sbuf((1, 1), "float32")
    ready, stored = p.semaphore("ready"), p.semaphore("stored")
    n, other = p.register_alloc(), p.register_alloc()
    p.memset(dst=t, value=5, update=ready.add(1))
    p.register_load(other, t, engine="gpsimd", wait=ready >= 1)
    p.register_load(n, c, engine="gpsimd", wait=stored >= 16)
    for _ in p.dynamic_range(n):
        p.memset(dst=u, value=0, engine="gpsimd")
    p.dma_copy(dst=c, src=t, engine="sync", wait=ready >= 1, update=stored.add(16))
    r = simulate(p)
    assert sum(s.engine is Engine.GPSIMD and s.instruction.opcode == "MEMSET" for s in r.steps) == 5


def test_an_explicit_program_settles_one_load_after_the_other() -> None:
    """Each round loads what the other engine wrote last, which program order puts later: 3, then 2, then 1, then 0."""
    p = Program("chain")
    c, t = p.sbuf((1, 1), "int32"), p.sbuf((1, 1), "float32")
    ready, taken = p.semaphore("ready"), p.semaphore("taken")
    r = p.register_alloc(1)
    p.memset(dst=c, value=0)
    with p.repeat_while(r):
        p.memset(dst=t, value=0, engine="gpsimd")
        p.register_load(r, c, engine="gpsimd", wait=ready >= 1, update=[ready.sub(1, when="read"), taken.add(1)])
    for value in (3, 2, 1, 0):
        p.memset(dst=c, value=value, wait=taken >= 3 - value, update=ready.add(1))
    made = simulate(p, races="report")
    assert sum(s.engine is Engine.GPSIMD and s.instruction.opcode == "MEMSET" for s in made.steps) == 4


@pytest.mark.parametrize("engine", ENGINES)
def test_probes_see_the_run_that_counts_and_no_other(engine: str) -> None:
    class Diary(Probe):
        def __init__(self) -> None:
            self.seen: list[int] = []

        def started(self, row: int, tick: int) -> None:
            self.seen.append(row)

    diary = Diary()
    r = simulate(decided_in_time(), engine=engine, probes=[diary])
    assert sorted(diary.seen) == list(range(r.table.rows))


def test_a_deadlock_of_the_decisions_that_count_is_told() -> None:
    p = decided_in_time()
    p.nop(engine="sync", wait=p.semaphore("never") >= 1)
    with pytest.raises(Deadlock, match=r"sync\[0\] nop waits for never >= 1"):
        simulate(p)


def test_two_runs_give_the_same_bytes() -> None:
    from nc_sim.trace.hardware import trace_of

    def built() -> Result:
        p = Program("same")
        t = p.sbuf((4, 4), "float32")
        n = p.register_alloc()
        p.register_load(n, number(p, name="n"))
        for _ in p.dynamic_range(n):
            p.memset(dst=t, value=0)
            p.memset(dst=t, value=0, engine="gpsimd")
        return simulate(p, inputs={"n": np.array([[3]])})

    a, b = built(), built()
    assert a.timeline == b.timeline
    assert list(trace_of(a).instructions.opcode) == list(trace_of(b).instructions.opcode)


# --- values=False ------------------------------------------------------------------------------------------------


def test_without_values_constants_decide_and_tensor_data_is_unsupported_at_the_users_line() -> None:
    p = Program("timed")
    t, c, n = p.sbuf((1, 1), "float32"), number(p, name="n"), p.register_alloc(3)
    for _ in p.dynamic_range(n):
        p.memset(dst=t, value=0)
    assert rounds(simulate(p, values=False)) == 3
    p.register_load(n, c)
    loaded = p.steps[-1].line
    doubled = p.register_alloc()
    p.register_alu(doubled, n, "left_shift", 1)
    for _ in p.dynamic_range(doubled):
        p.memset(dst=t, value=0)
    line = p.steps[-2].line
    for engine in ("auto", *ENGINES):
        with pytest.raises(Unsupported) as caught:
            simulate(p, values=False, engine=engine)
        assert str(caught.value).startswith(f"{line.rpartition(':')[0]}:"), caught.value
        assert f"loop: register {doubled.name}, which {loaded} loads from tensor data; a run with values" in str(caught.value)
    assert rounds(simulate(p, inputs={"n": np.array([[1]])})) == 5


def test_a_loaded_register_that_decides_nothing_needs_no_values() -> None:
    p = Program("kept")
    n = p.register_alloc()
    p.register_load(n, number(p, name="n"))
    p.register_store(p.output("y", (1,), "int32"), n)
    assert rounds(simulate(p, values=False), "TENSOR_LOAD") == 1
    assert simulate(p, inputs={"n": np.array([[41]])}).outputs["y"][0] == 41


# --- the end -----------------------------------------------------------------------------------------------------


def endless(p: Program) -> None:
    t, r = p.sbuf((1, 1), "float32"), p.register_alloc(1)
    with p.repeat_while(r):
        p.memset(dst=t, value=0)


def test_an_endless_loop_is_stopped_at_a_cap_that_the_caller_may_raise() -> None:
    p = Program("endless")
    endless(p)
    line = next(s.line for s in p.steps if s.instruction.mnemonic == "loop_while")
    with pytest.raises(ProgramError) as caught:
        simulate(p, max_iterations=10)
    assert str(caught.value) == f"{line} loop: more than 10 iterations of loops; an end, or a larger max_iterations"
    with pytest.raises(ProgramError, match="more than 100000 iterations"):
        simulate(p)
    q = Program("twelve")
    for _ in q.dynamic_range(3):
        for _ in q.dynamic_range(3):
            q.memset(dst=q.sbuf((1, 1), "float32"), value=0)
    assert rounds(simulate(q, max_iterations=12)) == 9  # 3 outer and 9 inner iterations
    with pytest.raises(ProgramError, match="more than 11 iterations"):
        simulate(q, max_iterations=11)


def test_a_loop_that_polls_for_what_stands_behind_it_says_what_it_waits_for() -> None:
    p = Program("polls")
    flag, t, ready, set_ = p.hbm((1, 1), "int32", "flag"), p.sbuf((1, 1), "int32"), p.semaphore("ready"), p.semaphore("set")
    p.memset(dst=t, value=1, engine="vector", update=ready.add(1))
    p.dma_copy(dst=flag, src=t, engine="sync", wait=ready >= 1, update=set_.add(16))
    r = p.register_alloc()
    p.register_load(r, flag, engine="scalar")
    with p.repeat_while(r):
        p.register_load(r, flag, engine="scalar")
    p.memset(dst=t, value=0, engine="vector", wait=set_ >= 16, update=ready.add(1))
    p.dma_copy(dst=flag, src=t, engine="sync", wait=ready >= 2)
    with pytest.raises(ProgramError) as caught:
        simulate(p, max_iterations=7)
    lines = [s.line for s in p.steps if s.instruction.mnemonic in ("loop_while", "register_load")]
    assert str(caught.value) == (
        f"{lines[1]} loop: more than 7 iterations of loops, while register r0 is 1: {lines[2]} scalar register_load loads it; an end, or a "
        "larger max_iterations; rounds are decided in program order, so what writes flag behind the loop comes too late"
    )


@pytest.mark.parametrize("cap", [0, -1, 1.5, True, "10"])
def test_the_cap_is_a_whole_number(cap: object) -> None:
    with pytest.raises(ProgramError, match="a whole number of at least 1"):
        simulate(Program("x"), max_iterations=cap)  # type: ignore[arg-type]


# --- refusals ----------------------------------------------------------------------------------------------------


def left_by_break(p: Program) -> None:
    for _ in p.dynamic_range(3):
        p.memset(dst=p.sbuf((1, 1), "float32"), value=0)
        break


def apart(p: Program) -> None:
    t, u, n = p.sbuf((1, 1), "float32"), p.sbuf((1, 1), "float32"), p.register_alloc()
    p.register_move(n, 1, engine="vector")
    p.register_move(n, 2, engine="gpsimd")
    for _ in p.dynamic_range(n):
        p.memset(dst=t, value=0)
        p.memset(dst=u, value=0, engine="gpsimd")


def after_no_round(p: Program) -> None:
    t, u = p.sbuf((1, 1), "float32"), p.sbuf((1, 1), "float32")
    for _ in p.dynamic_range(0):
        p.memset(dst=t, value=0)
    p.tensor_copy(dst=u, src=t)


def carried(p: Program) -> None:
    t, u = p.sbuf((1, 1), "float32"), p.sbuf((1, 1), "float32")
    for _ in p.dynamic_range(2):
        p.tensor_copy(dst=u, src=t)
        p.memset(dst=t, value=0)


def product(p: Program, *where: str) -> None:
    a, c = p.sbuf((32, 32), "bfloat16"), p.psum((32, 32))
    p.memset(dst=a, value=1)
    if "before" in where:
        p.nc_matmul(dst=c, stationary=a, moving=a)
    if "inside" in where:
        for _ in p.dynamic_range(2):
            p.nc_matmul(dst=c, stationary=a, moving=a, accumulate=False if "after" in where else None)
    if "after" in where:
        p.nc_matmul(dst=c, stationary=a, moving=a)


def wrong_return(p: Program) -> None:
    p.while_loop(p.register_alloc(0), lambda r: 1)  # type: ignore[arg-type, return-value]


def misplaced(p: Program) -> None:
    """Starts at a partition that no engine takes, in a loop that has no round."""
    t = p.sbuf((64, 4), "float32")
    for _ in p.dynamic_range(0):
        p.memset(dst=t[16:48], value=0)


def an_end_too_many(p: Program) -> None:
    p.register_alloc()
    p.loop_end()


def _built(p: Program, *bounds: object) -> None:
    for _ in p.dynamic_range(*bounds):  # type: ignore[arg-type]
        p.memset(dst=p.sbuf((1, 1), "float32"), value=0)


def empty(p: Program) -> None:
    for _ in p.dynamic_range(3):
        pass


def with_engine(p: Program) -> None:
    p.loop_for(counter=p.register_alloc(), upper=3, engine="vector")


def with_wait(p: Program) -> None:
    p.loop_for(counter=p.register_alloc(), upper=3, wait=p.semaphore("s") >= 1)


LOOSE = "accumulate=None, where rounds of a loop are not alike"
REFUSED: dict[str, tuple[Callable[[Program], None], str]] = {
    "left by break": (left_by_break, "loop_for: the loop does not end; loop_end: was its body left by break"),
    "an end alone": (lambda p: p.loop_end(), "no open loop; loop_for or loop_while before it"),
    "an end too many": (an_end_too_many, "no open loop"),
    "empty": (empty, "loop_for: an empty loop; an instruction in it"),
    "an engine": (with_engine, "loop_for: an engine; none: a loop runs on the engines of its body"),
    "a wait": (with_wait, "loop_for: a wait; none"),
    "engines disagree": (apart, "GpSimd goes on and Vector does not"),
    "read after no round": (after_no_round, "is read before anything writes it"),
    "read before the round writes it": (carried, "is read before anything writes it"),
    "a first product inside": (lambda p: product(p, "inside"), LOOSE),
    "a product inside after one before": (lambda p: product(p, "before", "inside"), LOOSE),
    "a product after one inside": (lambda p: product(p, "inside", "after"), LOOSE),
    "no register returned": (wrong_return, "while_loop: 1 returned; the register to test next"),
    "a bad place in a loop without rounds": (misplaced, "dst starts at partition 16 with 32"),
    "a step of 0": (lambda p: _built(p, 0, 3, 0), "step: 0; 1 to 2147483647"),
    "a float bound": (lambda p: _built(p, 2.5), "upper: 2.5; a whole number"),
    "a number as condition": (lambda p: p.repeat_while(1).__enter__(), "condition: 1; a register"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_loop_is_refused_with_one_clear_error(what: str) -> None:
    build, wanted = REFUSED[what]
    p = Program("case")

    def run() -> None:
        build(p)
        simulate(p)

    with pytest.raises(ProgramError) as caught:
        run()
    assert wanted in str(caught.value)
    assert str(caught.value).startswith(("test_loops.py:", "case ")), caught.value


def test_a_product_before_and_after_a_loop_without_products_adds_up() -> None:
    p = Program("around")
    a, c, o = p.sbuf((32, 32), "bfloat16"), p.psum((32, 32)), p.sbuf((32, 32), "float32")
    p.memset(dst=a, value=1)
    p.nc_matmul(dst=c, stationary=a, moving=a)
    for _ in p.dynamic_range(2):
        p.memset(dst=o, value=0)
    p.nc_matmul(dst=c, stationary=a, moving=a)
    p.tensor_copy(dst=o, src=c)
    returned(p, o)
    assert (simulate(p).outputs["y"] == 64).all()


def test_registers_of_a_loop_live_throughout_it_if_they_come_from_outside() -> None:
    """62 from outside that the body reads first, the counter, and one more that it sets and reads then: 64."""

    def built(outside: int) -> Program:
        p = Program("live")
        t = p.sbuf((1, 1), "float32")
        kept = [p.register_alloc(k) for k in range(outside)]
        for _ in p.dynamic_range(2):
            for r in kept:
                p.register_store(t.with_dtype("int32"), r)
            last = p.register_alloc(1)
            p.register_store(t.with_dtype("int32"), last)
        return p

    simulate(built(62))
    with pytest.raises(ProgramError, match="65 registers live on Sync; at most 64"):
        simulate(built(63))


def test_a_buffer_of_a_loop_is_kept_until_its_next_round() -> None:
    """A partition of 212,984 bytes has 25 buffers of 8,192. The 13 that a round reads first are not free for the 13 it writes then."""

    def built(rounds: int) -> Program:
        p = Program("full")
        keep, other = ([p.sbuf((1, 2048), "float32") for _ in range(13)] for _ in range(2))
        small = p.sbuf((1, 1), "float32")
        for t in keep:
            p.memset(dst=t, value=1)
        for _ in p.dynamic_range(rounds) if rounds else [0]:
            for t in keep:
                p.tensor_copy(dst=small, src=t[:, :1])
            for t in other:
                p.memset(dst=t, value=2)
        returned(p, small)
        return p

    assert simulate(built(0)).outputs["y"][0, 0] == 1  # no loop: the second 13 stand where the first stood
    with pytest.raises(ProgramError, match="8192 bytes per partition beside 204800 live"):
        simulate(built(2))


def test_the_lines_of_a_loop_are_the_users() -> None:
    p = Program("lines")

    def body(r: Register) -> Register:
        p.memset(dst=p.sbuf((1, 1), "float32"), value=0)
        return r

    endless(p)
    p.fori_loop(0, 3, body)
    p.while_loop(p.register_alloc(0), body)
    assert {s.line.partition(":")[0] for s in p.steps} == {"test_loops.py"}
