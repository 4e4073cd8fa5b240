"""Streams that exclude each other from a port, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from engines import outcome
from naive_engine import simulate as naive
from nc_sim import core, fast
from plans import PORTS

CASES: dict[str, list[int]] = {  # starts of all rows
    # both ask at 0; the second stream's row waits for the first's finish
    "one after the other": [0, 10],
    "a stream shares with itself": [0, 1, 0],
    # the second stream asks at 2, before the first stream comes to its second row at 4: from 10 it goes first, until 15
    "first come, first served": [0, 15, 16, 10],
    "free at the tick of the end": [0, 10],
    # it wants both at 1, and has them at 10; the third wants one of them at 2, which is free, but it asked later: 14
    "both ports or none": [0, 10, 14],
    "another port is free": [0, 10, 2],
    "who asked first begins first": [0, 11, 9],
    # the wait of the second is met at 2; it asks, and is not sent back when the semaphore falls to 0 at 4
    "another's wait is over meanwhile": [1, 11, 0],
    # its second row ends no earlier than its first, at 20, and holds port 1 until then
    "in order, so it holds for longer": [0, 1, 20],
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("run", [core.run, fast.loop], ids=["simpy", "compiled"])
def test_a_row_begins_when_no_other_stream_holds_its_ports_and_none_asked_before(name: str, run: Any) -> None:
    found = outcome(PORTS[name].table(), run)
    assert found == naive(PORTS[name].table())
    assert list(found.start) == CASES[name]
