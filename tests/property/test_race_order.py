"""The quick race check knows exactly what its definition says, and grows with the program and no faster."""

from __future__ import annotations

import random
import sys
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nc_sim import Program, chip, core, simulate
from nc_sim.isa import Step, Wait
from nc_sim.isa.errors import NcSimError
from nc_sim.lower import lower
from nc_sim.simulate import compile_program
from nc_sim.testing import programs
from plain_order import PlainOrder

CHIP = chip.load("trn2")
RACE: Any = sys.modules["nc_sim.race"]


def disturbed(program: Program, seed: int) -> list[Step]:
    """The program's instructions with waits dropped or lowered, semaphores shared by several sources, and updates twice."""
    rng, shared = random.Random(seed), {}
    again = rng.choice([0, 0.2])
    few = rng.choice([0, 0, 3, 6])  # 0: every semaphore its own

    def semaphore(s: int) -> int:
        return shared.setdefault(s, rng.randrange(few)) if few else s

    out = []
    for step in compile_program(program, CHIP)[0].steps:
        kept = [w for w in step.waits if rng.random() > 0.1]
        values = [w.value if rng.random() < 0.8 else max(1, w.value - rng.randrange(20)) for w in kept]
        waits = tuple(Wait(semaphore(w.semaphore), v) for w, v in zip(kept, values, strict=True))
        updates = [attrs.evolve(u, semaphore=semaphore(u.semaphore)) for u in step.updates for _ in range(1 + (rng.random() < again))]
        out.append(attrs.evolve(step, waits=waits, updates=tuple(updates)))
    return out


@settings(max_examples=150, deadline=None)
@given(programs(20), st.integers(0, 1 << 30))
def test_every_clock_is_that_of_the_definition(program: Program, seed: int) -> None:
    steps = disturbed(program, seed)
    try:
        table, _ = lower(steps, CHIP)
        timeline = core.run(table)
    except NcSimError:
        return  # it deadlocks now
    plain, quick = PlainOrder(steps, table, timeline), RACE._Order(steps, table, timeline)
    plain.settle()
    quick.settle()
    assert np.array(quick.clock).tolist() == plain.clock.tolist()


@pytest.mark.parametrize("value", [17, 30, 31, 32])
def test_two_updates_of_one_dma_arrive_part_by_part(value: int) -> None:
    """16 parts of 1 + 1: fifteen of them make 30, so only from 31 on does a wait order the read behind all of the write."""
    p = Program("twice")
    t, done, stored = p.sbuf((128, 64), "float32"), p.semaphore("done"), p.semaphore("stored")
    x, y = p.input("x", (128, 64), "float32"), p.output("y", (128, 64), "float32")
    p.dma_copy(dst=t, src=x, engine="sync", dge_mode="hwdge", update=[done.add(16), done.add(16)])
    p.dma_copy(dst=y, src=t, engine="scalar", dge_mode="hwdge", wait=[done >= value], update=[stored.add(16)])
    assert bool(simulate(p, values=False, races="report").races) == (value <= 30)
    steps = compile_program(p, CHIP)[0].steps
    table, _ = lower(steps, CHIP)
    plain = PlainOrder(steps, table, core.run(table))
    plain.settle()
    chain, position = plain.done_at[0]
    assert bool(plain.clock[1, chain] >= position) == (value > 30)


def explicit(tiles: int) -> Program:
    """Load, product, activation, store, two buffers deep; loads and stores count on two semaphores each."""
    p = Program("explicit")
    x, y = p.input("x", (tiles, 128, 128), "bfloat16"), p.output("y", (tiles, 128, 128), "float32")
    weights, moving = p.sbuf((128, 128), "bfloat16"), [p.sbuf((128, 128), "bfloat16") for _ in range(2)]
    out, product = [p.sbuf((128, 128), "float32") for _ in range(2)], [p.psum((128, 128)) for _ in range(2)]
    ready, multiplied, activated = p.semaphore("ready"), p.semaphore("multiplied"), p.semaphore("activated")
    loaded, stored = ([p.semaphore(f"{name}{b}") for b in range(2)] for name in ("loaded", "stored"))
    p.dma_copy(dst=weights, src=p.input("w", (128, 128), "bfloat16"), engine="sync", dge_mode="hwdge", update=[ready.add(16)])
    for i in range(tiles):
        b, n, again = i % 2, i // 2, i > 1
        p.dma_copy(
            dst=moving[b], src=x[i], engine="sync", dge_mode="hwdge",
            wait=[multiplied >= i - 1] if again else [], update=[loaded[b].add(16)],
        )  # fmt: skip
        p.nc_matmul(
            dst=product[b], stationary=weights, moving=moving[b], accumulate=False,
            wait=[ready >= 16, loaded[b] >= 16 * (n + 1), *([activated >= i - 1] if again else [])], update=[multiplied.add(1)],
        )  # fmt: skip
        p.activation(
            dst=out[b], op="tanh", data=product[b],
            wait=[multiplied >= i + 1, *([stored[b] >= 16 * n] if again else [])], update=[activated.add(1)],
        )  # fmt: skip
        p.dma_copy(dst=y[i], src=out[b], engine="scalar", dge_mode="hwdge", wait=[activated >= i + 1], update=[stored[b].add(16)])
    return p


def test_the_work_of_the_check_grows_as_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in looks at what a step knows: n (log n)^2 of them, 7.4 times as many for four times the program, not 16."""
    looks = [0]
    original = RACE._Order.reached

    def counted(self: Any, step: int, chain: int) -> int:
        looks[0] += 1
        return int(original(self, step, chain))

    monkeypatch.setattr(RACE._Order, "reached", counted)
    found = []
    for tiles in (50, 200):
        looks[0] = 0
        simulate(explicit(tiles), values=False)
        found.append(looks[0])
    assert 0 < found[1] < 10 * found[0]
