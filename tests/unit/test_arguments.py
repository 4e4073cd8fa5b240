"""Arguments of a wrong kind get one clear error of nc-sim where they enter, never one of Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nc_sim
from nc_sim import NcSimError, Program, Result, compare, replay, roofline, simulate, sweep
from nc_sim.analysis.advice import explain

ARRAY = np.array([1, 2])
WORDS = np.array(["a", "b"])
WRONG = [3, "x", ARRAY, WORDS, [ARRAY], [[1]], {"a": 1}, 1.5, b"x", object(), float("nan"), None]


@cache
def program() -> Program:
    p = Program("p")
    p.memset(dst=p.sbuf((128, 4), "float32"), value=1)
    return p


@cache
def result() -> Result:
    return simulate(program())


def product(**given: Any) -> None:
    p = Program("q")
    a, c = p.sbuf((128, 128), "float32"), p.psum((128, 128))
    p.memset(dst=a, value=1)
    p.nc_matmul(dst=c, stationary=a, moving=a, **given)


def copied(**given: Any) -> None:
    p = Program("q")
    p.dma_copy(dst=p.sbuf((128, 4), "float32"), src=p.input("x", (128, 4), "float32"), **given)


def activated(**given: Any) -> None:
    p = Program("q")
    a = p.sbuf((128, 4), "float32")
    p.memset(dst=a, value=1)
    p.activation(**{"dst": a, "op": "exp", "data": a, **given})


ENTRIES: dict[str, Callable[[Any], Any]] = {
    **{
        f"simulate {k}": (lambda v, k=k: simulate(program(), **{k: v}))
        for k in ("chip", "inputs", "engine", "values", "what_if", "without", "gate_phase_ns", "phase_range", "races", "probes",
                  "max_iterations", "progress")
    },
    **{
        f"sweep {k}": (lambda v, k=k: sweep(program(), **{"workers": 1, k: v}))
        for k in ("chips", "what_if", "executor", "progress", "keep", "shapes", "workers", "engine")
    },
    **{
        f"replay {k}": (lambda v, k=k: replay("none.instr.csv", **{k: v}))
        for k in ("chip", "dma_from_trace", "without", "what_if", "gate_phase_ns", "engine", "core", "progress")
    },
    "sweep shapes of a function": lambda v: sweep(lambda n: program(), shapes=v, workers=1),
    "roofline": roofline,
    "roofline engines": lambda v: roofline(result(), v),
    "replay": replay,
    "compare": lambda v: compare(v, result()),
    "compare core": lambda v: compare(result(), result(), core=v),
    "explain": explain,
    "save": lambda v: result().save(v),
    "save progress": lambda v: result().save("made", v),
    "fori_loop": lambda v: Program("q").fori_loop(0, 2, v),
    "fori_loop bound": lambda v: Program("q").fori_loop(v, 2, lambda i: None),
    "while_loop": lambda v: (p := Program("q")).while_loop(p.register_alloc(1), v),
    "when": lambda v: Program("q").semaphore("s").add(1, when=v),
    "semaphore": lambda v: Program("q").semaphore(v),
    "register name": lambda v: Program("q").register_alloc(name=v),
    "program name": lambda v: Program(v),
    "tensor name": lambda v: Program("q").sbuf((1, 1), "float32", name=v),
    "tensor shape": lambda v: Program("q").sbuf(v, "float32"),
    "tensor type": lambda v: Program("q").sbuf((1, 1), v),
    "tensor partition": lambda v: Program("q").sbuf((1, 1), "float32", partition=v),
    "dge_mode": lambda v: copied(dge_mode=v),
    "oob_mode": lambda v: copied(oob_mode=v),
    "tile_position": lambda v: product(tile_position=v, tile_size=(32, 32)),
    "tile_size": lambda v: product(tile_position=(0, 0), tile_size=v),
    "perf_mode": lambda v: product(perf_mode=v),
    "accumulate": lambda v: product(accumulate=v),
    "reduce_cmd": lambda v: activated(reduce_cmd=v),
    "op": lambda v: activated(op=v),
    "bias": lambda v: activated(bias=v),
    "engine": lambda v: Program("q").nop(engine=v),
    "wait": lambda v: Program("q").nop(wait=v),
    "update": lambda v: Program("q").nop(update=v),
}  # fmt: skip


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_value_of_a_wrong_kind_is_taken_or_refused_by_an_error_of_ours(
    entry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = 0
    for value in WRONG:
        try:
            ENTRIES[entry](value)
        except NcSimError:
            refused += 1
    assert refused >= 6


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: simulate(program(), without=3), "without: int 3; a list of names out of "),  # type: ignore[arg-type]
        (lambda: simulate(program(), without=[[1]]), "without: [1]; one of "),  # type: ignore[list-item]
        (lambda: simulate(program(), probes="x"), "simulate probes: str 'x'; a list of probes"),  # type: ignore[arg-type]
        (lambda: simulate(program(), probes=[3]), "simulate probes: int 3; a list of probes"),  # type: ignore[list-item]
        (lambda: simulate(program(), progress=3), "simulate progress: int 3; a function of work done"),  # type: ignore[arg-type]
        (lambda: simulate(program(), values=ARRAY), "simulate values: ndarray array([1, 2]); True or False, or None"),  # type: ignore[arg-type]
        (lambda: simulate(program(), what_if=ARRAY), "what-if: ndarray array([1, 2]); a mapping"),  # type: ignore[arg-type]
        (lambda: sweep(program(), keep=3), "sweep keep: int 3; a path"),  # type: ignore[arg-type]
        (lambda: sweep(program(), chips=None), "sweep chips: NoneType None; a list of chips"),  # type: ignore[arg-type]
        (lambda: sweep(program(), executor="x"), "sweep executor: str 'x'; one of concurrent.futures"),  # type: ignore[arg-type]
        (lambda: roofline(3), "roofline: int 3; results, cases of a sweep, or points"),  # type: ignore[arg-type]
        (lambda: replay(None), "replay: NoneType None; a path"),  # type: ignore[arg-type]
        (lambda: result().save(None), "save: NoneType None; a path"),  # type: ignore[arg-type]
        (lambda: explain(3), "explain: int 3; a Result"),  # type: ignore[arg-type]
    ],
)
def test_what_was_given_and_what_is_wanted_are_told(call: Callable[[], Any], told: str) -> None:
    with pytest.raises(NcSimError) as e:
        call()
    assert str(e.value).startswith(told)


def test_a_body_that_is_no_function_is_refused_before_the_loop_begins() -> None:
    p = Program("q")
    with pytest.raises(nc_sim.ProgramError, match=r"^test_arguments.py:\d+ fori_loop: body_fun None; a function of the loop's register$"):
        p.fori_loop(0, 2, None)  # type: ignore[arg-type]
    assert len(p) == 0


def test_what_iterates_is_taken_as_a_list() -> None:
    assert simulate(program(), without=iter(["clock-gate"])).without == ("clock-gate",)
    assert len(sweep(lambda n: program(), shapes=range(2), workers=1)) == 2
