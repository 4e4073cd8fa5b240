"""A destination that visits an element twice is refused where it is written down, and in a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nc_sim import Program, ProgramError, simulate
from nc_sim.forms import program_from_text, program_to_text
from nc_sim.isa import Memory, View
from nc_sim.isa.dtypes import DTYPES


class _Given:
    def __init__(self) -> None:
        p = self.p = Program("twice")
        self.x, self.y = p.input("x", (128, 8), "float32"), p.output("y", (128, 1), "float32")
        self.t, self.u = p.sbuf((128, 8), "float32"), p.sbuf((128, 1), "float32")
        self.c = p.psum((128, 1), "float32")
        self.w = p.sbuf((128, 128), "float32")
        p.dma_copy(dst=self.t, src=self.x)
        p.memset(dst=self.w, value=1)


TWICE: dict[str, Callable[[_Given], Any]] = {
    "a sum of products": lambda g: g.p.nc_matmul(dst=g.c.broadcast(1, 2), stationary=g.w, moving=g.t[:, :2], accumulate=True),
    "a copy": lambda g: g.p.tensor_copy(dst=g.u.broadcast(1, 8), src=g.t),
    "an activation": lambda g: g.p.activation(dst=g.u.broadcast(1, 8), op="exp", data=g.t),
    "a memset": lambda g: g.p.memset(dst=g.u.broadcast(1, 8), value=1),
    "overlapping rows": lambda g: g.p.tensor_copy(dst=g.t.ap([[8, 128], [2, 3], [1, 3]]), src=g.w[:, :9].reshape(128, 3, 3)),
    "a store": lambda g: g.p.dma_copy(dst=g.y.broadcast(1, 8), src=g.t),
    "a sum by DMA": lambda g: g.p.dma_compute(dst=g.y.broadcast(1, 8), srcs=[g.x, g.x], reduce_op="add"),
}


@pytest.mark.parametrize("what", TWICE)
def test_a_destination_that_visits_an_element_twice_is_refused_at_its_line(what: str) -> None:
    g = _Given()
    before = len(g.p)
    with pytest.raises(ProgramError, match=r"^test_destinations.py:\d+ .*: dst visits an element twice: shape \[128, .* written once"):
        TWICE[what](g)
    assert len(g.p) == before


def test_a_source_may_visit_an_element_as_often_as_it_likes() -> None:
    g = _Given()
    g.p.tensor_copy(dst=g.w[:, :8], src=g.t[:, :1].broadcast(1, 8))
    g.p.dma_copy(dst=g.y, src=g.w[:, :1])
    found = simulate(g.p, inputs={"x": np.arange(1024, dtype=np.float32).reshape(128, 8)}).outputs["y"]
    assert found[:, 0].tolist() == list(range(0, 1024, 8))


def pattern(*dims: tuple[int, int]) -> View:
    return View("t", Memory.SBUF, DTYPES["float32"], 0, 1, 0, tuple(s for s, _ in dims), tuple(c for _, c in dims))


@pytest.mark.parametrize("seed", range(200))
def test_repeats_is_what_listing_the_elements_finds(seed: int) -> None:
    r = np.random.default_rng(seed)
    dims = [(int(r.integers(-6, 7)), int(r.integers(0, 5))) for _ in range(int(r.integers(1, 5)))]
    visited = [0]
    for stride, count in dims:
        visited = [v + stride * k for v in visited for k in range(count)]
    assert pattern(*dims).repeats == (len(set(visited)) < len(visited))


def test_dimensions_that_run_through_each_other_may_still_visit_each_element_once() -> None:
    assert not pattern((2, 3), (3, 2)).repeats  # 0 3 2 5 4 7
    assert pattern((2, 3), (4, 2)).repeats  # 0 4 2 6 4 8
    assert not pattern((10**9, 0), (0, 10**9)).repeats  # no element at all
    assert pattern((1, 1 << 30), (0, 2)).repeats  # more elements than places: nothing is listed


def test_a_program_file_with_such_a_destination_is_refused() -> None:
    p = Program("f")
    x, t = p.input("x", (128, 8), "float32"), p.sbuf((128, 8), "float32")
    p.dma_copy(dst=t, src=x)
    written = program_to_text(p)
    assert "[1][8]" in written
    program_from_text(written)
    with pytest.raises(ProgramError, match="dst visits an element twice"):
        program_from_text(written.replace("[1][8]", "[0][8]"))
