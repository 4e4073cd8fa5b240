"""Rows of software DMA that join to packets (NeuronCore-v2) move every byte once, and `check_bytes` says so of every chip."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from nc_sim import Program, Result, simulate
from nc_sim.testing import check_all, check_bytes


def stored(rows: int, columns: int, dtype: str = "float32") -> Program:
    p = Program("stored")
    x, y = p.input("x", (rows, columns), dtype), p.output("y", (rows, columns), dtype)
    t = p.sbuf((rows, columns), dtype)
    p.dma_copy(dst=t, src=x)
    p.dma_copy(dst=y, src=t)
    return p


@pytest.mark.parametrize("chip", ["trn1", "inf2", "trn2", "trn3"])
@pytest.mark.parametrize(("rows", "columns"), [(32, 1), (33, 1), (128, 3), (5, 7), (17, 100), (128, 2000)])
def test_every_invariant_holds_of_narrow_and_wide_rows(chip: str, rows: int, columns: int) -> None:
    check_all(simulate(stored(rows, columns), chip, values=False))


@pytest.mark.parametrize(
    "what_if",
    [
        {"dma.software.packet_bytes": 4096}, {"dma.software.packet_bytes": 1_000_000}, {"dma.max_row_bytes": 100}, {"dma.engines": 8},
        {"dma.partitions_per_engine": 0}, {"dma.software.packet_bytes": 1_000_000, "dma.max_row_bytes": 100},
    ],
)  # fmt: skip
@pytest.mark.parametrize("chip", ["trn1", "trn2"])
def test_bytes_are_those_of_the_rows_whatever_the_dma_numbers(chip: str, what_if: dict[str, Any]) -> None:
    for rows, columns in ((33, 1), (128, 2000)):
        check_bytes(simulate(stored(rows, columns), chip, values=False, what_if=what_if))


def with_packets(result: Result, count: int) -> Result:
    """The result whose first transfer has so many packets."""
    packets = result.table.packets.copy()
    packets[0] = count
    return attrs.evolve(result, table=attrs.evolve(result.table, packets=packets))


def test_packets_that_no_joining_gives_are_told() -> None:
    """32 rows of 4 bytes join to one packet on each of 16 engines, 512 bytes being 128 rows: 1 at least, 16 at most."""
    result = simulate(stored(32, 1), "trn1", values=False)
    assert int(result.table.packets[:16].sum()) == 16
    with pytest.raises(AssertionError, match="moves 17 packets for 32 rows of 4 bytes"):
        check_bytes(with_packets(result, 2))
    wide = simulate(stored(128, 2000), "trn1", values=False)  # of two rows each, nothing joins
    with pytest.raises(AssertionError, match="packets for 128 rows of 8000 bytes"):
        check_bytes(with_packets(wide, int(wide.table.packets[0]) - 1))
