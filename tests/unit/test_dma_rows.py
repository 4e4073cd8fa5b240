"""Rows of DMA: which share a packet, and what the shortest takes."""

from __future__ import annotations

from fractions import Fraction

import pytest

from nc_sim import Program, chip, simulate
from nc_sim.table import Role
from nc_sim.timing.dma import row_ns


def packet_ns(name: str, into: str, what_if: dict[str, float] | None = None) -> float:
    """What one packet of a software load of 128 rows of 256 bfloat16 takes on a DMA engine."""
    p = Program("rows")
    x, t = p.input("x", (128, 256), "bfloat16"), p.sbuf((128, 256), into)
    p.dma_copy(dst=t, src=x, dge_mode="swdge")
    r = simulate(p, name, values=False, what_if=what_if)
    packets = r.table.packet[r.table.role[r.table.rows :] == Role.TRANSFER]
    assert len(set(packets.tolist())) == 1
    return r.chip.ns(int(packets[0]))


def test_rows_that_are_converted_share_no_packet() -> None:
    """8 rows of 512 B share one packet of 4 KiB: 4.7 / 8 + 512 / 27.2 ns each. A row of its own takes 4.7 + 512 / 27.2."""
    assert packet_ns("trn2", "bfloat16") == pytest.approx(4.7 / 8 + 512 / 27.2, abs=0.3)
    assert packet_ns("trn2", "float16") == pytest.approx(4.7 + 512 / 27.2, abs=0.3)


def test_the_least_row_is_a_number_of_its_own() -> None:
    """4 bytes: 4.7 + 4 / 27.2 is below 6, what the shortest packets of trn2's traces take. On NeuronCore-v2 one law holds for all."""
    trn2, inf2 = chip.load("trn2"), chip.load("inf2")
    assert row_ns(4, True, trn2.reader()) == 6
    assert row_ns(4, True, trn2.what_if({"dma.least_row_ns": 9}).reader()) == 9
    assert row_ns(4, True, trn2.what_if({"dma.least_row_ns": 0}).reader()) == Fraction("4.7") + Fraction(4) / Fraction("27.2")
    assert row_ns(4, True, trn2.what_if({"dma.semaphore_packet_ns": 12}).reader()) == 6
    assert row_ns(4, True, inf2.reader()) < 7 == inf2.numbers["dma.semaphore_packet_ns"].value
