"""Packets that follow from a trace's shares, against an engine that passes every packet by itself."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction

import attrs
import numpy as np
import pytest
from hypothesis import given, settings

from naive_engine import Naive
from nc_sim import Program, Result, core, simulate, workloads
from nc_sim.costs import Options
from nc_sim.lower import lower
from nc_sim.profile import packets, source
from nc_sim.testing import programs


class Recording(Naive):
    """The naive engine, with every packet it sends: transfer, start, end."""

    def __init__(self, table):
        super().__init__(table)
        self.sent: list[tuple[int, int, int]] = []

    def pick(self, engine):
        super().pick(engine)
        before = engine.turn - 1 if engine.turn else self.t.rings - 1
        self.sent.append((engine.queues[before][0], self.tick, engine.packet_end))


def crowd(loads: int = 3, conversion: bool = False) -> Program:
    """Loads and stores of several queues that meet on the DMA engines."""
    p = Program("crowd")
    x = p.input("x", (loads, 128, 256), "float32")
    y = p.output("y", (loads, 128, 256), "bfloat16" if conversion else "float32")
    tiles = [p.sbuf((128, 256), "float32") for _ in range(loads)]
    engines = (("sync", "hwdge"), ("gpsimd", "swdge"), ("scalar", "hwdge"), ("sync", "none"))
    for k, t in enumerate(tiles):
        engine, mode = engines[k % 4]
        p.dma_copy(dst=t, src=x[k], engine=engine, dge_mode=mode)
    for k, t in enumerate(tiles):
        engine, mode = engines[(k + 1) % 4]
        if conversion and mode == "hwdge":  # hardware descriptors convert no types
            engine, mode = engines[1 + k % 2 * 2]
        p.dma_copy(dst=y[k], src=t, engine=engine, dge_mode=mode)
    return p


def every(result: Result, at_once: int = packets.AT_ONCE) -> tuple[packets.Shares, packets.Packets]:
    known = packets.shares(source.of_result(result))
    parts = list(packets.packets(known, at_once))
    names = [a.name for a in attrs.fields(packets.Packets)]
    empty = np.zeros(0, np.int64)
    return known, packets.Packets(*(np.concatenate([empty, *(getattr(p, n) for p in parts)]) for n in names))


def sent(result: Result) -> list[tuple[int, int, int]]:
    """Share, start and end of every packet that the naive engine sends, in the order of the trace's shares."""
    engine = Recording(result.table)
    engine.run()
    rank = np.argsort(np.argsort(result.table.step[result.table.rows :], kind="stable"), kind="stable")
    return sorted((int(rank[t]), a, b) for t, a, b in engine.sent)


@pytest.mark.parametrize(
    "program", [crowd(), crowd(8), crowd(6, True), workloads.load("rmsnorm").build()], ids=("three", "eight", "types", "rmsnorm")
)
def test_packets_are_those_that_an_engine_sends_one_by_one(program: Program) -> None:
    result = simulate(program, values=False)
    known, got = every(result)
    assert known.spread == 0
    assert sorted(zip(got.share.tolist(), got.start.tolist(), got.end.tolist(), strict=True)) == sent(result)


def test_the_crowd_does_take_turns() -> None:
    known, _ = every(simulate(crowd(8), values=False))
    assert np.count_nonzero(known.turns.place >= 0) >= 16


@settings(max_examples=25)
@given(programs())
def test_the_packets_of_any_program_are_known_one_by_one_and_carry_its_bytes(program: Program) -> None:
    result = simulate(program, values=False)
    known, got = every(result, 7)
    shares, transfers = known.trace.shares, known.trace.transfers
    assert known.spread == 0
    assert len(got.share) == known.count == int(shares.packets.sum()) + len(shares)
    data = got.place < shares.packets[got.share]
    assert np.array_equal(np.bincount(got.share[data], got.bytes[data], len(shares)), shares.bytes)
    assert np.array_equal(np.bincount(shares.transfer[got.share[data]], got.read_bytes[data], len(transfers)), transfers.read_bytes)
    assert np.array_equal(np.bincount(shares.transfer[got.share[data]], got.write_bytes[data], len(transfers)), transfers.write_bytes)
    assert (got.bytes[~data] == 4).all()
    for engine in range(16):
        mine = shares.engine[got.share] == engine
        order = np.argsort(got.start[mine], kind="stable")
        assert (got.start[mine][order][1:] >= got.end[mine][order][:-1]).all()


def test_a_part_holds_no_more_packets_than_asked_for_but_for_one_share() -> None:
    known, _ = every(simulate(crowd(), values=False))
    for part in packets.packets(known, 20):
        assert len(part.share) <= 20 or len(set(part.share.tolist())) == 1


def test_a_share_that_turns_do_not_explain_is_spread_evenly_and_counted() -> None:
    device = source.of_result(simulate(crowd(), values=False))
    shares = device.trace.shares
    row = int(np.flatnonzero(shares.packets == shares.packets.max())[0])
    end = shares.end.ticks.copy()
    end[row] = shares.start.ticks[row] + 10 * int(shares.packets[row]) + 1  # too short for its packets
    short = attrs.evolve(shares, end=attrs.evolve(shares.end, ticks=end))
    known = packets.shares(attrs.evolve(device, trace=attrs.evolve(device.trace, shares=short)))
    assert known.spread >= 1
    assert known.even[row]
    part = next(packets.packets(known, 1 << 20))
    mine = part.share == row
    assert part.start[mine][0] == shares.start.ticks[row]
    assert part.end[mine][-1] == end[row]
    assert (np.diff(part.start[mine]) >= 0).all()


def test_an_engine_that_the_model_does_not_know_is_spread_evenly() -> None:
    device = source.of_result(simulate(crowd(), values=False))
    shares = device.trace.shares
    known = packets.shares(attrs.evolve(device, trace=attrs.evolve(device.trace, shares=attrs.evolve(shares, engine=shares.engine + 500))))
    assert known.spread == len(shares)


def test_a_dma_whose_time_was_measured_is_one_packet_on_no_engine() -> None:
    run = simulate(crowd(), values=False)
    dma = next(k for k, step in enumerate(run.steps) if step.instruction.mnemonic == "dma_direct2d")
    table, _ = lower(run.steps, run.chip, Options(Fraction(0), {dma: Fraction(1500)}), run.compiled.semaphores)
    known, got = every(attrs.evolve(run, table=table, timeline=core.run(table)))
    (row,) = np.flatnonzero(known.trace.shares.engine < 0).tolist()
    (packet,) = np.flatnonzero(got.share == row).tolist()
    assert got.bytes[packet] == 128 * 256 * 4
    assert (got.start[packet], got.end[packet]) == (known.trace.shares.start.ticks[row], known.trace.shares.end.ticks[row])


def test_the_memory_of_a_part_does_not_grow_with_the_program() -> None:
    def peak(tiles: int) -> int:
        known = packets.shares(source.of_result(simulate(workloads.load("pipeline").build(tiles=tiles), values=False)))
        tracemalloc.start()
        for part in packets.packets(known, 5000):
            del part
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(200) < 1.5 * peak(50)  # 57,600 packets, 14,400 packets
