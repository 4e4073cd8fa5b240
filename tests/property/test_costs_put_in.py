"""Other chip numbers put into a lowered table: the same table as lowering the program again on that chip."""

from __future__ import annotations

import pickle
from fractions import Fraction
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import event, given, reject, settings
from hypothesis import strategies as st

from nc_sim import Program, chip, costs, lower, simulate, workloads
from nc_sim.analysis.again import again
from nc_sim.chip import Chip
from nc_sim.costs import Options, with_costs
from nc_sim.isa.errors import NcSimError
from nc_sim.lower import lower_with_costs
from nc_sim.mechanisms import MECHANISMS
from nc_sim.simulate import compile_program
from nc_sim.table import Table
from nc_sim.testing import programs, what_ifs

STRUCTURAL = {"run-ahead"}  # mechanisms that other rows stand for; no store of these workloads goes through a ring with a limit


def same(a: Table, b: Table) -> None:
    for field in attrs.fields(Table):
        x, y = getattr(a, field.name), getattr(b, field.name)
        assert np.array_equal(x, y) and x.dtype == y.dtype if isinstance(x, np.ndarray) else x == y, field.name


def put_in(program: Program, before: Chip, after: Chip, phase: Fraction = Fraction(0)) -> bool:
    """Whether the costs can be put in; the table and the numbers used are then those of lowering again."""
    steps = compile_program(program, before)[0].steps
    table, _, found = lower_with_costs(steps, before)
    found = pickle.loads(pickle.dumps(found))
    changed = with_costs(table, found, after, Options(phase))
    try:
        again_, reader, _ = lower_with_costs(steps, after, Options(phase))
    except NcSimError:
        assert changed is None
        return False
    if changed is None:
        return False
    same(changed[0], again_)
    assert changed[1].used == reader.used
    return True


@settings(max_examples=80)
@given(programs(), st.data())
def test_costs_put_in_are_those_of_lowering_again(program: Program, data: st.DataObject) -> None:
    before = chip.load("trn2")
    try:
        after = before.what_if(data.draw(what_ifs(before)))
        event("put in" if put_in(program, before, after, Fraction(data.draw(st.integers(0, 4000)))) else "other rows")
    except NcSimError:
        reject()


@pytest.mark.parametrize("on", ["trn1", "trn2"])
@pytest.mark.parametrize("name", ["attention", "softmax"])
def test_every_mechanism_but_those_with_rows_is_switched_off_in_the_costs_alone(on: str, name: str) -> None:
    before, program = chip.load(on), workloads.load(name).build()
    for mechanism, m in MECHANISMS.items():
        off = {k: v for k, v in m.off.items() if before.numbers[k].value is not None}
        assert put_in(program, before, before.what_if(off)) == (mechanism not in STRUCTURAL), mechanism


def test_a_number_that_decides_which_rows_there_are_is_left_to_lowering() -> None:
    before, program = chip.load("trn2"), workloads.load("pipeline").build(tiles=40)
    for key, value in (("dma.engines", 8), ("dma.store_ring_limit", 2), ("sequencer.tensor.queue_depth", 4)):
        assert not put_in(program, before, before.what_if({key: value})), key
    # of another number of engines with rows, only the number of transfers tells
    assert put_in(program, before, before.what_if({"dma.software.latency_ns": 1}))


def test_a_what_if_of_costs_lowers_no_step_and_gives_what_a_run_of_its_own_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    program = workloads.load("pipeline").build(tiles=6)
    changes: list[dict[str, Any]] = [{"dma.software.latency_ns": 0}, {"clock.vector_mhz": 480}, {"tensor.gate.kind": "none"}]
    wanted = [simulate(program, values=False, what_if=w) for w in changes]
    ranged = simulate(program, values=False, phase_range=True, engine="simpy").phase_range_ns
    result = simulate(program, values=False)

    def refuse(*_: Any) -> None:
        raise AssertionError("a step is lowered")

    with monkeypatch.context() as m:
        m.setattr(lower._Lowering, "add", refuse)
        for what_if, own in zip(changes, wanted, strict=True):
            then = again(again(result, {"dma.row_ns": 50}), {**what_if, "dma.row_ns": result.chip.numbers["dma.row_ns"].value})
            same(then.table, own.table)
            assert then.duration_ns == own.duration_ns
            assert set(own.used) <= set(then.used)
        spread = [with_costs(result.table, result.costs, result.chip, Options(Fraction(k * 3_413_333, 16_000))) for k in range(16)]
    assert all(s is not None for s in spread)
    assert ranged is not None


def test_each_kind_of_cost_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand tiles have the kinds of ten: what is put in does not grow with the program."""
    kinds = []
    for tiles in (10, 1000):
        steps = compile_program(workloads.load("pipeline").build(tiles=tiles), chip.load("trn2"))[0].steps
        found = lower_with_costs(steps, chip.load("trn2"))[2]
        kinds.append((len(found.cost), len(found.delay), len(found.block), len(found.units), len(found.ports)))
    assert kinds[0] == kinds[1]
    assert costs.__doc__
