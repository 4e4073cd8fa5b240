"""Arrays drawn for a program's inputs: what is no bound or no seed is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nc_sim import Program, ProgramError
from nc_sim.testing import inputs


def typed() -> Program:
    p = Program("typed")
    p.input("i", (64, 64), "int32")
    p.input("x", (4, 4), "float32")
    return p


def refused(**how: Any) -> str:
    with pytest.raises(ProgramError) as caught:
        inputs(typed(), **how)
    return str(caught.value)


PAIR = "two whole numbers, the lower and the higher, both included"
SEED = "a whole number of at least 0"


@pytest.mark.parametrize(
    ("bounds", "found"),
    [
        ((0.5, 3), "bounds (0.5, 3)"),
        ((0, np.float32(3)), "bounds (0, np.float32(3.0))"),
        ((False, True), "bounds (False, True)"),
        ((np.False_, 3), "bounds (np.False_, 3)"),
        (("0", "5"), "bounds ('0', '5')"),
        ((None, 3), "bounds (None, 3)"),
        ((1, 2, 3), "bounds (1, 2, 3)"),
        ((1,), "bounds (1,)"),
        ([[1], [2, 3]], "bounds [[1], [2, 3]]"),
        (np.array(7), "bounds array(7)"),
        (np.eye(2, dtype=int), "bounds array([[1, 0], [0, 1]])"),
        (7, "bounds 7"),
        (None, "bounds None"),
        ("05", "bounds '05'"),
        (range(0, 50), "bounds range(0, 50)"),
        (range(0, 2), "bounds range(0, 2)"),  # not 0 and 1
        ({0, 5}, "bounds {0, 5}"),  # in no order
        ({0: 1, 5: 2}, "bounds {0: 1, 5: 2}"),
    ],
)
def test_bounds_of_another_kind_are_refused(bounds: Any, found: str) -> None:
    assert refused(between={"i": bounds}) == f"inputs between i: {found}; {PAIR}"


@pytest.mark.parametrize("between", [None, [("i", (0, 3))], "i", 7, (0, 3)])
def test_bounds_without_names_are_refused(between: Any) -> None:
    found = refused(between=between)
    assert found == f"inputs between: {between!r}; bounds by input: {{'ids': (0, 999)}}"


@pytest.mark.parametrize("seed", [-1, 1.5, "0", None, True, [1, 2], np.float64(3)])
def test_what_is_no_seed_is_refused(seed: Any) -> None:
    assert refused(seed=seed) == f"inputs: seed {seed!r}; {SEED}"


def test_bounds_and_seeds_may_be_numbers_of_numpy_and_pairs_lists() -> None:
    drawn = inputs(typed(), seed=3, between={"i": (2, 4)})["i"]
    assert set(drawn.flat) == {2, 3, 4}
    for bounds in ((np.int64(2), np.uint8(4)), [2, 4], np.array([2, 4])):
        again = inputs(typed(), seed=np.int32(3), between={"i": bounds})["i"]  # type: ignore[dict-item,arg-type]
        assert (again == drawn).all()


def test_a_name_that_is_no_input_is_answered_with_the_inputs() -> None:
    assert refused(between={7: (0, 1)}) == "inputs between 7: no such input; one of i, x"
