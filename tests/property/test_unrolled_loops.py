"""Loops and what they are unrolled: the same values, and the same time but for what the sequencers execute."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nc_sim import Program, simulate
from nc_sim.forms import program_from_msgpack, program_from_text, program_to_msgpack, program_to_text
from nc_sim.isa import Engine, View
from nc_sim.isa.control import Control
from nc_sim.result import Result
from nc_sim.testing import check_all, explicit, inputs, programs

SHAPE = (32, 16)
# Calls over tiles a, b, c, and the engine of each; what a program does with them is for the tests to draw.
CALLS: dict[str, tuple[Engine, Callable[[Program, View, View], None]]] = {
    "double": (Engine.VECTOR, lambda p, a, b: p.tensor_scalar(dst=a, data=b, op0="multiply", operand0=2.0)),
    "sum": (Engine.VECTOR, lambda p, a, b: p.tensor_tensor(dst=a, data1=a, data2=b, op="add")),
    "tanh": (Engine.SCALAR, lambda p, a, b: p.activation(dst=a, op="tanh", data=b)),
    "copy": (Engine.GPSIMD, lambda p, a, b: p.tensor_copy(dst=a, src=b, engine="gpsimd")),
    "fill": (Engine.GPSIMD, lambda p, a, b: p.memset(dst=a, value=0.5, engine="gpsimd")),
}
BODIES = st.lists(st.tuples(st.sampled_from(sorted(CALLS)), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=5)
Body = list[tuple[str, int, int]]


def built(body: Body, rounds: int, how: str) -> Program:
    """The same calls in a loop, unrolled by hand with the loop's control instructions, or unrolled without."""
    p = Program("rounds")
    x, y = p.input("x", (3, *SHAPE), "float32"), p.output("y", (3, *SHAPE), "float32")
    tiles = [p.sbuf(SHAPE, "float32") for _ in range(3)]
    for k, t in enumerate(tiles):
        p.dma_copy(dst=t, src=x[k])

    def once() -> None:
        for name, a, b in body:
            CALLS[name][1](p, tiles[a], tiles[b])

    if how == "loop":
        for _ in p.dynamic_range(rounds):
            once()
    elif how == "by hand":
        engines = [e.name.lower() for e in sorted({CALLS[name][0] for name, _, _ in body})]
        i = p.register_alloc()
        for e in engines:
            p.register_move(i, 0, engine=e)
        for e in engines:
            p.compare_branch(i, "less", rounds, engine=e)
        for _ in range(rounds):
            once()
            for e in engines:
                p.register_alu(i, i, "add", 1, engine=e)
            for e in engines:
                p.compare_branch(i, "less", rounds, engine=e)
    else:
        for _ in range(rounds):
            once()
    for k, t in enumerate(tiles):
        p.dma_copy(dst=y[k], src=t)
    return p


def ran(p: Program, **options: object) -> Result:
    x = np.linspace(-1, 1, 3 * SHAPE[0] * SHAPE[1], dtype=np.float32).reshape(3, *SHAPE)
    return simulate(p, inputs={"x": x}, **options)  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(body=BODIES, rounds=st.integers(1, 4))
@example(body=[("tanh", 0, 1), ("double", 1, 0)], rounds=2)
def test_a_loop_of_constant_trip_count_is_its_unrolled_program(body: Body, rounds: int) -> None:
    # without a round the loop's table load would stay, which its unrolled program has not
    loop, by_hand, plain = (ran(built(body, rounds, how)) for how in ("loop", "by hand", "plain"))
    assert [(s.engine, s.instruction, s.waits, s.updates) for s in loop.steps] == [
        (s.engine, s.instruction, s.waits, s.updates) for s in by_hand.steps
    ]
    assert loop.timeline == by_hand.timeline
    assert loop.outputs["y"].tobytes() == by_hand.outputs["y"].tobytes() == plain.outputs["y"].tobytes()


@settings(max_examples=60, deadline=None)
@given(body=BODIES, rounds=st.integers(1, 4))
@example(body=[("sum", 0, 1)], rounds=4)
def test_a_loop_takes_at_most_the_time_of_its_control_instructions_longer(body: Body, rounds: int) -> None:
    """Compute instructions only: nothing contends, so a delay of a queue delays the end by no more than itself."""
    loop, plain = ran(built(body, rounds, "loop")), ran(built(body, rounds, "plain"))
    table = loop.table
    others = ("NOP", "EVENT_SEMAPHORE")
    control = [k for k, s in enumerate(loop.steps) if isinstance(s.instruction, Control) and s.instruction.opcode not in others]
    cost = sum(int(table.cost_issue[table.cost[table.start_row[k]]][0]) for k in control)
    computed = [[i for i in r.instructions if "DMA" not in i.opcode and i.opcode != "NOP"] for r in (loop, plain)]
    ends = [max(round(i.end_ns * 4.8) for i in made) for made in computed]
    engines = len({CALLS[name][0] for name, _, _ in body})
    assert len(control) == engines * (2 + 2 * rounds)
    assert 0 <= ends[0] - ends[1] <= cost


@settings(max_examples=40, deadline=None)
@given(programs(6, loop=True))
def test_drawn_programs_with_loops_hold_every_invariant_and_survive_every_form(program: Program) -> None:
    arrays = inputs(program, 0)
    r = simulate(program, inputs=arrays)
    check_all(r, arrays)
    assert simulate(program, inputs=arrays).timeline == r.timeline
    assert simulate(program, inputs=arrays, engine="compiled").timeline == r.timeline
    text, data = program_to_text(program), program_to_msgpack(program)
    assert program_to_text(program_from_msgpack(data)) == text
    assert program_to_msgpack(program_from_text(text)) == data
    written = simulate(explicit(program), inputs=arrays)
    assert (written.timeline.start[written.table.start_row] == r.timeline.start[r.table.start_row]).all()
    assert all(written.outputs[k].tobytes() == v.tobytes() for k, v in r.outputs.items())


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=4), st.integers(0, 3))
def test_nested_while_and_for_loops_count_as_python_does(values: list[int], times: int) -> None:
    """For each number its distance from 0, counted down or up in a while loop, `times` over; all data come as inputs."""
    p = Program("distance")
    x, y = p.input("x", (1, len(values)), "int32"), p.output("y", (1, 1), "int32")
    t, total, sign = p.sbuf((1, len(values)), "int32"), p.sbuf((1, 1), "int32"), p.sbuf((1, 1), "int32")
    p.dma_copy(dst=t, src=x)
    count, r, s = p.register_alloc(0), p.register_alloc(), p.register_alloc()
    for _ in p.dynamic_range(times):
        for k in range(len(values)):
            p.register_load(r, t[:, k : k + 1])
            p.register_alu(s, r, "greater", 0)  # 1 or 0
            p.register_alu(s, s, "multiply", 2)
            p.register_alu(s, s, "subtract", 1)  # 1 or -1
            with p.repeat_while(r):
                p.register_alu(r, r, "subtract", s)
                p.register_alu(count, count, "add", 1)
    p.register_store(total, count)
    p.register_store(sign, count)
    p.dma_copy(dst=y, src=total)
    out = simulate(p, inputs={"x": np.array([values])}).outputs["y"][0, 0]
    assert out == times * sum(map(abs, values))
