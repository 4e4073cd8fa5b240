"""What holds for every legal automatic program."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction
from typing import Any

import pytest
import simpy
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nc_sim import Program, chip, core, numerics, race, simulate
from nc_sim.isa import Engine, Memory
from nc_sim.lower import lower
from nc_sim.memory import Memories
from nc_sim.simulate import Compiled, compile_program
from nc_sim.testing import check_all, inputs, programs

CHIP = chip.load("trn2")


class ShuffledEnvironment(simpy.Environment):
    """Breaks SimPy's first-come order of simultaneous events."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        rng = random.Random(seed)
        self._eid = ((rng.random(), k) for k in itertools.count())  # type: ignore[assignment]


def compiled(program: Program, **what_if: Any) -> Compiled:
    return compile_program(program, CHIP.what_if(what_if))[0]


def two_stores_one_ring() -> Program:
    p = Program("two_stores")
    x = p.input("x", (128, 16), "float32")
    t = p.sbuf((128, 16), "float32")
    p.dma_copy(dst=t, src=x)
    for k in range(2):
        p.dma_copy(dst=p.output(f"y{k}", (128, 16), "float32"), src=t)
    return p


def overwritten_after_reading() -> Program:
    """Write after read, write after write and read after write on one buffer, by four engines."""
    p = Program("overwritten")
    x, y = p.input("x", (128, 64), "float32"), p.output("y", (128, 64), "float32")
    a, b = p.sbuf((128, 64), "float32"), p.sbuf((128, 64), "float32")
    p.dma_copy(dst=a, src=x)
    p.activation(dst=b, op="tanh", data=a)
    p.dma_copy(dst=a, src=x, engine="sync")
    p.tensor_scalar(dst=a, data=a, op0="add", operand0=1.0)
    p.memset(dst=a[:, :32], value=3.0, engine="gpsimd")
    p.tensor_tensor(dst=b, data1=a, data2=b, op="add")
    p.dma_copy(dst=y, src=b)
    return p


@pytest.mark.parametrize("program", [overwritten_after_reading(), two_stores_one_ring()], ids=lambda p: p.name)
def test_every_invariant_holds_where_buffers_are_overwritten_and_stores_share_a_ring(program: Program) -> None:
    arrays = inputs(program)
    check_all(simulate(program, inputs=arrays), arrays)


@settings(max_examples=30)
@given(programs())
@example(overwritten_after_reading())
def test_replaying_a_finished_timeline_gives_the_same_values(program: Program) -> None:
    given_inputs = inputs(program)
    r = simulate(program, "trn2", given_inputs)
    memories = Memories(r.compiled.tensors, r.compiled.addresses, CHIP.reader(), given_inputs)
    numerics.replay(r.table, r.timeline, numerics.Numerics(r.steps, r.table, memories, CHIP.reader()("dma.partitions_per_engine")))
    for t in r.compiled.tensors.values():
        if t.memory is Memory.HBM:
            assert t.kind != "output" or r.outputs[t.name].tobytes() == memories.tensor(t).tobytes(), t.name


@settings(max_examples=40)
@given(programs())
@example(overwritten_after_reading())
@example(two_stores_one_ring())
def test_an_automatic_program_has_no_race(program: Program) -> None:
    c = compiled(program)
    table, _ = lower(c.steps, CHIP)
    race.check(c.steps, c.tensors, c.addresses, table, core.run(table), c.semaphores)


@settings(max_examples=30)
@given(programs(), st.integers(0, 5))
@example(two_stores_one_ring(), 0)
@example(two_stores_one_ring(), 1)
def test_shuffled_event_ids_change_nothing(program: Program, seed: int) -> None:
    table, _ = lower(compiled(program).steps, CHIP)
    assert core.run(table) == core.run(table, env=ShuffledEnvironment(seed))


@settings(max_examples=15)
@given(programs())
def test_the_program_ends_when_its_last_output_is_stored(program: Program) -> None:
    r = simulate(program, "trn2", values=False)
    assert r.steps[-1].engine is Engine.GPSIMD
    stores = [k for k, s in enumerate(r.steps) if any(r.compiled.tensors[v.tensor].kind == "output" for v in s.instruction.writes)]
    landed = max(int(r.timeline.finish[r.table.rows :][r.table.step[r.table.rows :] == k].max()) for k in stores)
    assert r.duration_ns > CHIP.ns(landed)


def test_a_gate_phase_shifts_only_programs_that_the_gate_touches() -> None:
    p = two_stores_one_ring()
    assert simulate(p, values=False).timeline.finish.tolist() == simulate(p, values=False, gate_phase_ns=1000).timeline.finish.tolist()


class TestSeededFaults:
    """Each fault, put into the simulator on purpose, is seen."""

    def test_a_dropped_wait_is_a_race_and_gives_other_values(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import attrs

        program = overwritten_after_reading()
        c = compiled(program)
        dropped = next(k for k, s in enumerate(c.steps) if s.engine is Engine.SCALAR and s.waits)
        steps = tuple(attrs.evolve(s, waits=()) if k == dropped else s for k, s in enumerate(c.steps))
        table, _ = lower(steps, CHIP)
        timeline = core.run(table)
        with pytest.raises(race.Race, match="a semaphore that orders the two"):
            race.check(steps, c.tensors, c.addresses, table, timeline, c.semaphores)
        right, wrong = (Memories(c.tensors, c.addresses, CHIP.reader(), inputs(program)) for _ in range(2))
        numerics.interpret(c.steps, right)
        numerics.replay(table, timeline, numerics.Numerics(steps, table, wrong, 8))
        assert right.tensor(c.tensors["y"]).tobytes() != wrong.tensor(c.tensors["y"]).tobytes()

    def test_a_lost_dma_latency_breaks_the_hand_computed_store(self) -> None:
        p = two_stores_one_ring()
        lost = simulate(p, values=False, what_if={"dma.store_done_ns": 0})
        assert simulate(p, values=False).duration_ns - lost.duration_ns == pytest.approx(360, abs=0.5)

    def test_first_come_instead_of_round_robin_is_seen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        p = Program("two_rings")
        x = p.input("x", (128, 512), "float32")
        for engine in ("sync", "scalar"):
            p.dma_copy(dst=p.sbuf((128, 512), "float32"), src=x, engine=engine)
        table, _ = lower(compiled(p).steps, CHIP.what_if({"dma.hardware.busy_delay_ns": 0}))
        fair = core.run(table)

        def first_come(server: core._Server, event: Any) -> None:
            for ring, queue in enumerate(server.queue):
                if queue and server.sent[queue[0]] > 0:
                    server.turn = ring  # stay with the transfer that began
            original(server, event)

        original = core._Server.pick
        monkeypatch.setattr(core._Server, "pick", first_come)
        assert core.run(table) != fair


def test_a_phase_range_contains_the_nominal_body() -> None:
    from nc_sim import workloads

    p = workloads.load("attention").build()
    r = simulate(p, values=False, phase_range=True)
    assert r.phase_range_ns is not None
    low, high = r.phase_range_ns
    assert low <= r.duration_ns <= high
    assert Fraction(high - low) > 0
