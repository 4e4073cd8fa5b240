"""Races and deadlocks by hand, and the race check against an order of its own: who can begin while another never ends."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from nc_sim import Deadlock, Program, ProgramError, Race, chip, core, race, simulate
from nc_sim.isa import DTYPES, Engine, Instruction, Memory, Step, Update, UpdateOp, View, Wait, When, whole
from nc_sim.isa.control import Nop
from nc_sim.isa.dma import Dma, DmaDirect2d
from nc_sim.isa.tensor import LoadWeights, Matmul
from nc_sim.isa.vector import TensorCopy
from nc_sim.lower import lower, queue_name
from nc_sim.program import Tensor
from nc_sim.simulate import Compiled, compile_program
from nc_sim.testing import programs

TRN2 = chip.load("trn2")
TENSOR, VECTOR, SCALAR, GPSIMD, SYNC = Engine
FP32 = DTYPES["float32"]


def tile(p: Program, name: str, free: int = 4) -> View:
    return p.sbuf((4, free), "float32", name=name)


def ordered(p: Program) -> bool:
    """True if no race is found; any other error is one of the test."""
    return not simulate(p, values=False, races="report").races


def message(p: Program) -> str:
    with pytest.raises(Race) as caught:
        simulate(p, values=False)
    return str(caught.value)


# --- two engines -----------------------------------------------------------------------------------------------------


def producer_and_consumer(wait: bool, when: str = "complete") -> Program:
    """Vector writes a; Scalar reads it."""
    p = Program("raw")
    s, a, b = p.semaphore("s"), tile(p, "a"), tile(p, "b")
    p.memset(dst=a, value=1.0, update=[s.add(1, when)])
    p.tensor_copy(dst=b, src=a, engine="scalar", wait=[s >= 1] if wait else [])
    return p


def test_reading_what_another_engine_writes_is_a_race_without_a_wait() -> None:
    assert ordered(producer_and_consumer(wait=True))
    p = producer_and_consumer(wait=False)
    assert message(p) == (
        f"race: {p.steps[0].line} vector[0] memset writes sbuf:a+0x0:float32[1][4]@0:4, "
        f"{p.steps[1].line} scalar[0] tensor_copy reads sbuf:a+0x0:float32[1][4]@0:4; a semaphore that orders the two"
    )


def test_a_race_names_the_lines_of_both_calls() -> None:
    p = producer_and_consumer(wait=False)
    first = producer_and_consumer.__code__.co_firstlineno
    assert re.findall(r"(\w+\.py):(\d+)", message(p)) == [("test_race.py", str(first + 4)), ("test_race.py", str(first + 5))]


def test_the_start_of_a_writer_does_not_tell_that_its_result_is_there() -> None:
    assert not ordered(producer_and_consumer(wait=True, when="read"))


def reader_and_overwriter(when: str | None) -> Program:
    """Vector reads a; Scalar overwrites it, once the reader has begun or has ended."""
    p = Program("war")
    s, r, a, b = p.semaphore("s"), p.semaphore("r"), tile(p, "a"), tile(p, "b")
    p.memset(dst=a, value=1.0, update=[s.add(1)])
    p.tensor_copy(dst=b, src=a, wait=[s >= 1], update=[r.add(1, when or "read")])
    p.tensor_copy(dst=a, src=a[:, ::-1], engine="scalar", wait=[s >= 1] if when is None else [s >= 1, r >= 1])
    return p


def test_overwriting_what_another_engine_reads_is_a_race_without_a_wait() -> None:
    p = reader_and_overwriter(None)
    assert message(p).startswith(f"race: {p.steps[1].line} vector[1] tensor_copy reads sbuf:a+0x0:float32[1][4]@0:4, ")
    assert ordered(reader_and_overwriter("complete"))


def test_the_start_of_a_reader_is_enough_to_overwrite_what_it_reads() -> None:
    assert ordered(reader_and_overwriter("read"))


def test_the_start_of_a_reader_is_not_enough_to_overwrite_what_it_writes() -> None:
    p = Program("waw")
    s, a, b = p.semaphore("s"), tile(p, "a"), tile(p, "b")
    p.memset(dst=a, value=1.0)
    p.memset(dst=b, value=1.0, update=[s.add(1, when="read")])
    p.tensor_copy(dst=b, src=b, engine="scalar", wait=[s >= 1])
    assert message(p).startswith(f"race: {p.steps[1].line} vector[1] memset writes sbuf:b")


@pytest.mark.parametrize("wait", [True, False])
def test_two_engines_that_write_the_same_bytes_race_without_a_wait(wait: bool) -> None:
    p = Program("waw")
    s, a = p.semaphore("s"), tile(p, "a")
    p.memset(dst=a, value=1.0, update=[s.add(1)])
    p.memset(dst=a, value=2.0, engine="gpsimd", wait=[s >= 1] if wait else [])
    assert ordered(p) == wait


def test_two_engines_that_read_the_same_bytes_do_not_race() -> None:
    p = Program("rar")
    s, a = p.semaphore("s"), tile(p, "a")
    p.memset(dst=a, value=1.0, update=[s.add(1)])
    p.tensor_copy(dst=tile(p, "b"), src=a, engine="scalar", wait=[s >= 1])
    p.tensor_copy(dst=tile(p, "c"), src=a, engine="gpsimd", wait=[s >= 1])
    assert ordered(p)


@pytest.mark.parametrize(
    ("first", "second", "apart"),
    [
        (np.s_[:, 0:2], np.s_[:, 2:4], True),
        (np.s_[:, 0:3], np.s_[:, 2:4], False),
        (np.s_[:, ::2], np.s_[:, 1::2], True),
        (np.s_[:, ::2], np.s_[:, 2:3], False),
        (np.s_[0:32], np.s_[32:64], True),
        (np.s_[0:64], np.s_[32:64], False),
    ],
)
def test_only_a_common_byte_makes_a_race(first: Any, second: Any, apart: bool) -> None:
    p = Program("slices")
    s, a = p.semaphore("s"), p.sbuf((64, 4), "float32")
    p.memset(dst=a[first], value=1.0, update=[s.add(1)])
    p.memset(dst=a[second], value=2.0, engine="gpsimd")
    assert ordered(p) == apart


@pytest.mark.parametrize(("first", "second"), [(np.s_[:, 1:3], np.s_[:, ::3]), (np.s_[32:64], np.s_[0:32])])
def test_a_write_that_surrounds_another_without_touching_it_does_not_hide_it(first: Any, second: Any) -> None:
    p = Program("around")
    s, a = p.semaphore("s"), p.sbuf((64, 4), "float32")
    p.memset(dst=a[first], value=1.0)
    p.memset(dst=a[second], value=1.0, engine="gpsimd", update=[s.add(1)])
    p.tensor_copy(dst=p.sbuf((64, 4), "float32"), src=a, engine="scalar", wait=[s >= 1])
    assert f"{p.steps[0].line} vector[0] memset writes" in message(p)


def test_tensors_given_one_address_race_as_one() -> None:
    def program(address: int) -> Program:
        p = Program("alias")
        s = p.semaphore("s")
        a = p.sbuf((4, 4), "float32", name="a", address=0x5000)
        b = p.sbuf((4, 4), "float32", name="b", address=address)
        p.memset(dst=a, value=1.0, update=[s.add(1)])
        p.memset(dst=b, value=2.0, engine="gpsimd")
        return p

    assert ordered(program(0x5010))
    p = program(0x500C)
    assert message(p) == (
        f"race: {p.steps[0].line} vector[0] memset writes sbuf:a+0x0:float32[1][4]@0:4, "
        f"{p.steps[1].line} gpsimd[0] memset writes sbuf:b+0x0:float32[1][4]@0:4; a semaphore that orders the two"
    )


def test_an_order_through_a_third_engine_counts() -> None:
    def program(last_waits_for: str) -> Program:
        p = Program("relay")
        s, r, a, b = p.semaphore("s"), p.semaphore("r"), tile(p, "a"), tile(p, "b")
        p.memset(dst=a, value=1.0, update=[s.add(1)])
        p.nop(engine="sync", wait=[s >= 1] if last_waits_for == "waiter" else [], update=[r.add(1)])
        p.tensor_copy(dst=b, src=a, engine="scalar", wait=[r >= 1])
        return p

    assert ordered(program("waiter"))
    assert not ordered(program("nobody"))


def test_what_a_queue_waited_for_holds_for_its_later_instructions() -> None:
    p = Program("later")
    s, a, b = p.semaphore("s"), tile(p, "a"), tile(p, "b")
    p.memset(dst=a, value=1.0, update=[s.add(1)])
    p.nop(engine="scalar", wait=[s >= 1])
    p.tensor_copy(dst=b, src=a, engine="scalar")
    assert ordered(p)


def test_a_nop_behind_an_instruction_does_not_tell_that_the_instruction_has_ended() -> None:
    p = Program("runs_ahead")
    s, a, b = p.semaphore("s"), tile(p, "a"), tile(p, "b")
    p.memset(dst=a, value=1.0)
    p.nop(engine="vector", update=[s.add(1)])
    p.tensor_copy(dst=b, src=a, engine="scalar", wait=[s >= 1])
    assert message(p).startswith(f"race: {p.steps[0].line} vector[0] memset writes sbuf:a")


def test_a_later_completion_of_the_same_engine_tells_of_the_earlier_ones() -> None:
    p = Program("in_order")
    s, a, b = p.semaphore("s"), tile(p, "a"), tile(p, "b")
    p.memset(dst=a, value=1.0)
    p.memset(dst=tile(p, "c"), value=1.0, update=[s.add(1)])
    p.tensor_copy(dst=b, src=a, engine="scalar", wait=[s >= 1])
    assert ordered(p)


def test_a_wait_for_the_first_of_two_completions_does_not_order_the_second() -> None:
    def program(value: int) -> Program:
        p = Program("count")
        s, a, b = p.semaphore("s"), tile(p, "a"), tile(p, "b")
        p.memset(dst=tile(p, "c"), value=1.0, update=[s.add(1)])
        p.memset(dst=a, value=1.0, update=[s.add(1)])
        p.tensor_copy(dst=b, src=a, engine="scalar", wait=[s >= value])
        return p

    assert [ordered(program(v)) for v in (0, 1, 2)] == [False, False, True]


# --- one engine ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["vector", "scalar", "gpsimd"])
def test_an_engine_that_reads_its_own_unfinished_result_races_without_a_wait(engine: str) -> None:
    def program(wait: bool) -> Program:
        p = Program("own_raw")
        s, a = p.semaphore("s"), p.sbuf((4, 4), "float32", name="a")
        first = p.sbuf((4, 4), "float32", name="first")
        p.memset(dst=first, value=1.0, engine="gpsimd", update=[s.add(1)])
        p.tensor_copy(dst=a, src=first, engine=engine, wait=[s >= 1], update=[s.add(1)])
        p.tensor_copy(dst=tile(p, "b"), src=a, engine=engine, wait=[s >= 2] if wait else [])
        return p

    assert ordered(program(wait=True))
    p = program(wait=False)
    index = 1 if engine == "gpsimd" else 0
    assert message(p) == (
        f"race: {p.steps[1].line} {engine}[{index}] tensor_copy writes sbuf:a+0x0:float32[1][4]@0:4, "
        f"{p.steps[2].line} {engine}[{index + 1}] tensor_copy reads sbuf:a+0x0:float32[1][4]@0:4; a semaphore that orders the two"
    )


def test_an_engine_may_overwrite_what_it_read_or_wrote_before() -> None:
    p = Program("own_war_waw")
    s, a = p.semaphore("s"), tile(p, "a")
    p.memset(dst=a, value=1.0, update=[s.add(1)])
    p.tensor_copy(dst=tile(p, "b"), src=a, wait=[s >= 1])  # reads a
    p.memset(dst=a, value=2.0)  # overwrites what is being read
    p.memset(dst=a, value=3.0)  # and what is being written
    assert ordered(p)


def test_products_that_accumulate_into_one_place_do_not_race() -> None:
    p = Program("accumulate")
    s, w, m, out = p.semaphore("s"), p.sbuf((32, 32), "bfloat16"), p.sbuf((32, 8), "bfloat16"), p.psum((32, 8), name="out")
    p.memset(dst=w, value=1.0)
    p.memset(dst=m, value=1.0, update=[s.add(1)])
    p.nc_matmul(dst=out, stationary=w, moving=m, wait=[s >= 1])
    p.nc_matmul(dst=out, stationary=w, moving=m)
    assert ordered(p)
    p.tensor_copy(dst=p.sbuf((32, 8), "float32"), src=out)
    assert " tensor[1] matmul writes psum:out" in message(p)  # the first product's write is forgotten: the second covers it


def test_reading_a_sum_needs_a_wait_for_its_last_product() -> None:
    def program(value: int) -> Program:
        p = Program("sum")
        s, d = p.semaphore("s"), p.semaphore("d")
        w, m, out = p.sbuf((32, 32), "float32"), p.sbuf((32, 8), "float32"), p.psum((32, 8))
        p.memset(dst=w, value=1.0)
        p.memset(dst=m, value=1.0, update=[s.add(1)])
        for _ in range(2):
            p.nc_matmul(dst=out, stationary=w, moving=m, wait=[s >= 1], update=[d.add(1)])
        p.tensor_copy(dst=p.sbuf((32, 8), "float32"), src=out, wait=[d >= value])
        return p

    assert [ordered(program(v)) for v in (1, 2)] == [False, True]


def test_a_moving_operand_may_be_overwritten_once_its_product_began_to_read() -> None:
    p = Program("moving")
    s, r, d = p.semaphore("s"), p.semaphore("r"), p.semaphore("d")
    y = p.output("y", (128, 1), "float32")
    w, m = p.sbuf((128, 128), "float32"), p.sbuf((128, 1), "float32")
    out, t = p.psum((128, 1)), p.sbuf((128, 1), "float32")
    p.memset(dst=w, value=1.0)
    p.memset(dst=m, value=1.0, update=[s.add(1)])
    p.nc_matmul(dst=out, stationary=w, moving=m, wait=[s >= 1], update=[r.add(1, when="read"), d.add(1)])
    p.memset(dst=m, value=5.0, wait=[r >= 1])
    p.tensor_copy(dst=t, src=out, engine="scalar", wait=[d >= 1], update=[d.add(1)])
    p.dma_copy(dst=y, src=t, wait=[d >= 2])
    result = simulate(p)
    assert result.races == ()
    assert result.outputs["y"].tolist() == [[128.0]] * 128  # the 1 it held, not the 5


def test_a_weight_load_that_ends_does_not_tell_that_the_product_before_it_has() -> None:
    p = Program("overtakes")
    s, r, d = p.semaphore("s"), p.semaphore("r"), p.semaphore("d")
    y = p.output("y", (128, 512), "float32")
    w, m = p.sbuf((128, 128), "bfloat16"), p.sbuf((128, 512), "bfloat16")
    out, t = p.psum((128, 512)), p.sbuf((128, 512), "float32")
    p.memset(dst=w, value=1.0)
    p.memset(dst=m, value=1.0, update=[s.add(1)])
    p.ldweights(src=w, wait=[s >= 1])
    p.matmul(dst=out, src=m, columns=128)
    p.ldweights(src=w, update=[r.add(1)])
    p.tensor_copy(dst=t, src=out, wait=[r >= 1], update=[d.add(1)])
    p.dma_copy(dst=y, src=t, wait=[d >= 1])
    result = simulate(p, races="report")
    assert " tensor[1] matmul writes psum:" in result.races[0]
    assert not (result.outputs["y"] == 128).all()  # and the copy did read too early


# --- DMA -------------------------------------------------------------------------------------------------------------


def two_loads(first: str, second: str, values: tuple[int, ...], *, engines: tuple[str, str] = ("sync", "sync")) -> Program:
    """Two loads of one queue (or two), and Vector, which reads the first tile once `first` >= values[0], and so on."""
    p = Program("loads")
    x = p.input("x", (4, 4), "float32")
    names = {n: p.semaphore(n) for n in dict.fromkeys((first, second))}
    a, b = tile(p, "a"), tile(p, "b")
    for t, n, engine in zip((a, b), (first, second), engines, strict=True):
        p.dma_copy(dst=t, src=x, engine=engine, update=[names[n].add(16)])
    for t, n, v in zip((a, b), (first, second), values, strict=False):
        p.tensor_copy(dst=tile(p, f"{t.tensor}_copy"), src=t, wait=[names[n] >= v])
    return p


@pytest.mark.parametrize(("value", "right"), [(0, False), (1, False), (15, False), (16, True)])
def test_a_load_is_complete_with_the_last_of_its_sixteen(value: int, right: bool) -> None:
    p = Program("load")
    s, x, a = p.semaphore("s"), p.input("x", (4, 4), "float32"), tile(p, "a")
    p.dma_copy(dst=a, src=x, update=[s.add(16)])
    p.tensor_copy(dst=tile(p, "b"), src=a, wait=[s >= value])
    assert ordered(p) == right


@pytest.mark.parametrize(("engines", "largest"), [(("sync", "sync"), 30), (("sync", "scalar"), 31)])
def test_two_loads_that_share_a_semaphore_tell_of_the_first_only_when_it_cannot_be_short(engines: tuple[str, str], largest: int) -> None:
    """If one DMA engine lacks the first load, it lacks the second of the same ring too: 15 + 15; of another ring, 15 + 16."""
    assert not ordered(two_loads("s", "s", (16,), engines=engines))
    assert not ordered(two_loads("s", "s", (largest,), engines=engines))
    assert ordered(two_loads("s", "s", (largest + 1,), engines=engines))


@pytest.mark.parametrize(("value", "right"), [(16, False), (31, False), (32, True)])
def test_two_loads_that_share_a_semaphore_tell_of_the_second_only_at_the_sum(value: int, right: bool) -> None:
    p = Program("second")
    s, x, b = p.semaphore("s"), p.input("x", (4, 4), "float32"), tile(p, "b")
    p.dma_copy(dst=tile(p, "a"), src=x, engine="sync", update=[s.add(16)])
    p.dma_copy(dst=b, src=x, engine="sync", update=[s.add(16)])
    p.tensor_copy(dst=tile(p, "c"), src=b, wait=[s >= value])
    assert ordered(p) == right


def test_loads_with_a_semaphore_each_can_be_waited_for_one_by_one() -> None:
    assert ordered(two_loads("s", "r", (16, 16)))
    p = two_loads("s", "r", (16, 15))
    assert message(p) == (
        f"race: {p.steps[1].line} sync[1] dma_direct2d writes sbuf:b+0x0:float32[1][4]@0:4, "
        f"{p.steps[3].line} vector[1] tensor_copy reads sbuf:b+0x0:float32[1][4]@0:4; a semaphore that orders the two"
    )


def test_a_shared_semaphore_serves_one_load_after_another() -> None:
    p = Program("reuse")
    s, x, a, b = p.semaphore("s"), p.input("x", (4, 4), "float32"), tile(p, "a"), tile(p, "b")
    p.dma_copy(dst=a, src=x, engine="sync", update=[s.add(16)])
    p.dma_copy(dst=b, src=x, engine="sync", wait=[s >= 16], update=[s.add(16)])
    p.tensor_copy(dst=tile(p, "c"), src=a, wait=[s >= 16])  # the second is not under way before the first is complete
    p.tensor_copy(dst=tile(p, "d"), src=b, wait=[s >= 32])
    assert ordered(p)


def test_a_later_load_of_a_ring_tells_of_the_earlier_and_one_of_another_ring_does_not() -> None:
    def program(engines: tuple[str, str]) -> Program:
        p = Program("rings")
        s, x, a, b = p.semaphore("s"), p.input("x", (4, 4), "float32"), tile(p, "a"), tile(p, "b")
        p.dma_copy(dst=a, src=x, engine=engines[0])
        p.dma_copy(dst=b, src=x, engine=engines[1], update=[s.add(16)])
        p.tensor_copy(dst=tile(p, "c"), src=a, wait=[s >= 16])
        return p

    assert ordered(program(("sync", "sync")))
    assert not ordered(program(("scalar", "sync")))


@pytest.mark.parametrize("wait", [True, False])
def test_two_loads_of_one_ring_into_one_tile_race_without_a_wait(wait: bool) -> None:
    p = Program("ring_waw")
    s, x, a = p.semaphore("s"), p.input("x", (4, 4), "float32"), tile(p, "a")
    for k in range(2):
        p.dma_copy(dst=a, src=x, engine="sync", wait=[s >= 16] if k and wait else [], update=[s.add(16)])
    assert ordered(p) == wait


def test_a_store_reads_until_it_is_complete() -> None:
    def program(value: int) -> Program:
        p = Program("store")
        s, y, a = p.semaphore("s"), p.output("y", (4, 4), "float32"), tile(p, "a")
        p.memset(dst=a, value=1.0, update=[s.add(1)])
        p.dma_copy(dst=y, src=a, wait=[s >= 1], update=[s.add(16)])
        p.memset(dst=a, value=2.0, wait=[s >= value])
        return p

    assert [ordered(program(v)) for v in (1, 16, 17)] == [False, False, True]


def test_a_trigger_that_was_issued_does_not_tell_that_its_data_has_arrived() -> None:
    p = Program("trigger")
    s, x, a = p.semaphore("s"), p.input("x", (4, 4), "float32"), tile(p, "a")
    p.dma_copy(dst=a, src=x, engine="sync")
    p.nop(engine="sync", update=[s.add(1)])
    p.tensor_copy(dst=tile(p, "b"), src=a, wait=[s >= 1])
    assert not ordered(p)


# --- several sources of one semaphore --------------------------------------------------------------------------------


def test_a_semaphore_of_two_engines_orders_both_only_at_the_sum() -> None:
    def program(value: int) -> Program:
        p = Program("sources")
        s, a, b = p.semaphore("s"), tile(p, "a"), tile(p, "b")
        p.memset(dst=a, value=1.0, update=[s.add(2)])
        p.memset(dst=b, value=1.0, engine="gpsimd", update=[s.add(3)])
        p.tensor_tensor(dst=tile(p, "c"), data1=a, data2=b, op="add", wait=[s >= value])
        return p

    # 3 may be GpSimd's alone; 4 and 5 need both
    assert [ordered(program(v)) for v in (2, 3, 4, 5)] == [False, False, True, True]


def test_a_larger_share_can_be_needed_where_the_smaller_is_not() -> None:
    def program(reads: str) -> Program:
        p = Program("shares")
        s, a, b = p.semaphore("s"), tile(p, "a"), tile(p, "b")
        p.memset(dst=a, value=1.0, update=[s.add(2)])
        p.memset(dst=b, value=1.0, engine="gpsimd", update=[s.add(3)])
        p.tensor_copy(dst=tile(p, "c"), src={"a": a, "b": b}[reads], engine="scalar", wait=[s >= 3])
        return p

    assert [ordered(program(t)) for t in "ab"] == [False, True]


def test_an_update_that_itself_waits_for_the_other_cannot_stand_in_for_it() -> None:
    def program(chained: bool) -> Program:
        p = Program("chained")
        s, a, b = p.semaphore("s"), tile(p, "a"), tile(p, "b")
        p.memset(dst=a, value=1.0, update=[s.add(1)])
        p.memset(dst=b, value=1.0, engine="gpsimd", wait=[s >= 1] if chained else [], update=[s.add(1)])
        p.tensor_copy(dst=tile(p, "c"), src=a, engine="scalar", wait=[s >= 1])
        return p

    assert [ordered(program(c)) for c in (True, False)] == [True, False]


def test_an_update_behind_the_waiter_cannot_stand_in() -> None:
    p = Program("behind")
    s, a = p.semaphore("s"), tile(p, "a")
    p.memset(dst=a, value=1.0, update=[s.add(1)])
    p.tensor_copy(dst=tile(p, "b"), src=a, engine="scalar", wait=[s >= 1])
    p.nop(engine="scalar", update=[s.add(1)])  # comes only after the wait
    assert ordered(p)


@pytest.mark.xfail(reason="of two updates either of which meets a wait, neither counts as needed, nor what both stand behind")
def test_what_every_way_to_meet_a_wait_stands_behind_is_ordered() -> None:
    p = Program("either")
    s, r, a = p.semaphore("s"), p.semaphore("r"), tile(p, "a")
    p.memset(dst=a, value=1.0, update=[s.add(1)])
    p.nop(engine="sync", wait=[s >= 1], update=[r.add(1)])
    p.nop(engine="gpsimd", wait=[s >= 1], update=[r.add(1)])
    p.tensor_copy(dst=tile(p, "b"), src=a, engine="scalar", wait=[r >= 1])
    assert ordered(p)


def test_a_part_of_a_load_tells_that_the_load_was_triggered() -> None:
    p = Program("part")
    s, d, x, a = p.semaphore("s"), p.semaphore("d"), p.input("x", (4, 4), "float32"), tile(p, "a")
    p.memset(dst=a, value=1.0, update=[s.add(1)])
    p.dma_copy(dst=tile(p, "b"), src=x, engine="sync", wait=[s >= 1], update=[d.add(16)])
    p.tensor_copy(dst=tile(p, "c"), src=a, engine="scalar", wait=[d >= 1])
    assert ordered(p)


def test_a_completion_cannot_stand_in_for_its_own_start() -> None:
    p = Program("start_and_end")
    s, r, a, b = p.semaphore("s"), p.semaphore("r"), tile(p, "a"), tile(p, "b")
    p.memset(dst=a, value=1.0, update=[s.add(1)])
    p.tensor_copy(dst=b, src=a, wait=[s >= 1], update=[r.add(1, when="read"), r.add(1)])
    p.memset(dst=a, value=2.0, engine="gpsimd", wait=[s >= 1, r >= 1])
    assert ordered(p)


# --- semaphores without an order of their own ------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["sub", "set"])
def test_a_semaphore_that_is_subtracted_from_or_set_orders_only_the_observed_run(how: str) -> None:
    p = Program("observed")
    s, plain, a, b = p.semaphore("counter"), p.semaphore("plain"), tile(p, "a"), tile(p, "b")
    p.memset(dst=a, value=1.0, update=[s.add(2) if how == "sub" else s.set(1)])
    p.tensor_copy(dst=b, src=a, engine="scalar", wait=[s >= 1], update=[plain.add(1)])
    p.nop(engine="sync", wait=[plain >= 1], update=[s.sub(1) if how == "sub" else s.set(0)])
    result = simulate(p, values=False)
    assert result.races == ()
    assert result.observed_semaphores == ("counter",)


def test_a_semaphore_that_only_adds_is_not_reported_as_observed() -> None:
    assert simulate(producer_and_consumer(wait=True), values=False).observed_semaphores == ()


def test_a_set_semaphore_that_nobody_waits_for_is_not_reported() -> None:
    p = Program("unwaited")
    s, a = p.semaphore("s"), tile(p, "a")
    p.memset(dst=a, value=1.0, update=[s.set(1)])
    assert simulate(p, values=False).observed_semaphores == ()


def test_an_observed_order_needs_the_update_to_come_first() -> None:
    """Sync sets the semaphore at once; Vector is released 40 ns later and ends after Scalar's wait was met."""
    p = Program("too_late")
    s, a, b = p.semaphore("s"), tile(p, "a"), tile(p, "b")
    p.nop(engine="sync", update=[s.set(1)])
    p.memset(dst=a, value=1.0)
    p.memset(dst=p.sbuf((4, 4096), "float32", name="long"), value=1.0, update=[s.set(1)])
    p.tensor_copy(dst=b, src=a, engine="scalar", wait=[s >= 1])
    assert message(p).startswith(f"race: {p.steps[1].line} vector[0] memset writes sbuf:a")


# --- what is done with a race ----------------------------------------------------------------------------------------


def test_a_race_is_an_error_a_report_or_nothing_as_asked() -> None:
    p = producer_and_consumer(wait=False)
    with pytest.raises(Race) as caught:
        simulate(p, values=False, races="error")
    reported, ignored = (simulate(p, values=False, races=r) for r in ("report", "ignore"))
    assert reported.races == (str(caught.value),)
    assert ignored.races == ()
    assert reported.timeline == ignored.timeline
    with pytest.raises(ProgramError) as unknown:
        simulate(p, values=False, races="warn")
    assert str(unknown.value) == "simulate: races='warn'; 'error', 'report' or 'ignore'"


def test_the_race_reported_is_the_first_to_happen() -> None:
    p = Program("two_races")
    s, a, b = p.semaphore("s"), tile(p, "a"), tile(p, "b")
    p.memset(dst=a, value=1.0)
    p.memset(dst=b, value=1.0, update=[s.add(1)])
    p.nop(engine="scalar", wait=[s >= 1])
    p.memset(dst=a, value=1.0, update=[s.add(1)])
    p.nop(engine="gpsimd", wait=[s >= 2])
    p.tensor_copy(dst=b, src=a, engine="scalar")  # a is written again meanwhile
    p.memset(dst=b, value=2.0, engine="gpsimd")  # later, and b is just being written
    assert [f"{p.steps[k].line} " in message(p) for k in (3, 5, 6)] == [True, True, False]


# --- deadlocks -------------------------------------------------------------------------------------------------------


def stuck(p: Program) -> tuple[str, Deadlock]:
    with pytest.raises(Deadlock) as caught:
        simulate(p, values=False)
    return str(caught.value), caught.value


def test_a_deadlock_names_queue_instruction_semaphore_and_both_values() -> None:
    p = Program("short")
    s, a = p.semaphore("done"), tile(p, "a")
    p.memset(dst=a, value=1.0, update=[s.add(1)])
    p.tensor_copy(dst=tile(p, "b"), src=a, engine="scalar", wait=[s >= 2])
    text, error = stuck(p)
    assert text == (
        f"deadlock: {p.steps[1].line} scalar[0] tensor_copy waits for done >= 2, which reached 1 "
        "[tensor_copy dst=sbuf:b+0x0:float32[1][4]@0:4 src=sbuf:a+0x0:float32[1][4]@0:4]; every wait must be reached"
    )
    scalar = int(SCALAR)
    assert [b[2:] for b in error.blocked if b[0] == scalar] == [(0, 2, 1)]


def test_a_deadlock_of_several_queues_names_each_in_their_order() -> None:
    p = Program("circle")
    s, r, x, a = p.semaphore("s"), p.semaphore("r"), p.input("x", (4, 4), "float32"), tile(p, "a")
    p.dma_copy(dst=a, src=x, engine="sync", wait=[s >= 1], update=[r.add(16)])
    p.tensor_copy(dst=tile(p, "b"), src=a, engine="scalar", wait=[r >= 16])
    p.memset(dst=tile(p, "c"), value=1.0)  # runs, and counts in the queue
    p.tensor_copy(dst=tile(p, "d"), src=a, wait=[r >= 16], update=[s.add(1)])
    text, _ = stuck(p)
    lines = [s.line for s in p.steps]
    copy = "[tensor_copy dst=sbuf:{}+0x0:float32[1][4]@0:4 src=sbuf:a+0x0:float32[1][4]@0:4]"
    assert text == (
        f"deadlock: {lines[3]} vector[1] tensor_copy waits for r >= 16, which reached 0 {copy.format('d')}\n"
        f"  and {lines[1]} scalar[0] tensor_copy waits for r >= 16, which reached 0 {copy.format('b')}\n"
        f"  and {lines[0]} sync[0] dma_direct2d waits for s >= 1, which reached 0 "
        "[dma_direct2d dst=sbuf:a+0x0:float32[1][4]@0:4 src=hbm:x+0x0:float32[4,1][4,4] generation=hardware row=none]; "
        "every wait must be reached"
    )


def test_a_wait_ahead_of_its_own_update_in_one_queue_is_a_deadlock() -> None:
    p = Program("own")
    s = p.semaphore("s")
    p.nop(engine="sync", wait=[s >= 1])
    p.nop(engine="sync", update=[s.add(1)])
    text, _ = stuck(p)
    assert text == f"deadlock: {p.steps[0].line} sync[0] nop waits for s >= 1, which reached 0 [nop]; every wait must be reached"


def test_of_several_waits_the_first_that_is_not_met_is_named() -> None:
    p = Program("second")
    s, r = p.semaphore("s"), p.semaphore("r")
    p.nop(engine="sync", update=[s.add(1)])
    p.nop(engine="scalar", wait=[s >= 1, r >= 3])
    text, _ = stuck(p)
    assert " scalar[0] nop waits for r >= 3, which reached 0 " in text


def test_a_deadlock_is_found_where_races_are_ignored() -> None:
    p = Program("ignored")
    s = p.semaphore("s")
    p.nop(engine="sync", wait=[s >= 1])
    with pytest.raises(Deadlock):
        simulate(p, values=False, races="ignore")


# --- against an order of its own -------------------------------------------------------------------------------------


class Stuck:
    """What can happen at most when one step never ends, or never begins; engines and rings go on in order.

    No clock and no vector of them: semaphores only grow, so every queue issues what it can until nothing changes.
    """

    def __init__(self, steps: Sequence[Step], culprit: int, begins: bool) -> None:
        self.steps, self.culprit, self.begins = steps, culprit, begins
        self.begun: set[int] = set()
        self.value: dict[int, int] = {}
        self.held: set[object] = set()  # engines and rings behind the culprit
        queues = {e: [k for k, s in enumerate(steps) if s.engine is e] for e in Engine}
        while any([self.issue(q) for q in queues.values()]):  # noqa: C419 (every queue, each round)
            pass

    def issue(self, queue: list[int]) -> bool:
        if not queue or any(self.value.get(w.semaphore, 0) < w.value for w in self.steps[queue[0]].waits):
            return False
        k = queue.pop(0)
        step = self.steps[k]
        if isinstance(step.instruction, Nop):
            self.begun.add(k)
            self.add(step, 1, 1)
            return True
        dma = isinstance(step.instruction, Dma)
        behind = queue_name(step.engine, step.instruction.generation) if isinstance(step.instruction, Dma) else step.engine
        if k == self.culprit:
            self.held.add(behind)
        held = behind in self.held
        if dma:  # one DMA engine is stuck; the other fifteen go on
            self.begun.add(k)
            self.add(step, 15 if held else 16, 16)
        elif not held:
            self.begun.add(k)
            self.add(step, 1, 1)
        elif self.begins:
            self.begun.add(k)
            self.add(attrs.evolve(step, updates=tuple(u for u in step.updates if u.when is When.READ)), 1, 1)
        return True

    def add(self, step: Step, part: int, of: int) -> None:
        for u in step.updates:
            self.value[u.semaphore] = self.value.get(u.semaphore, 0) + u.value * part // of


def touched(view: View, base: int) -> set[tuple[Any, ...]]:
    """Every byte of a view, one by one."""
    places: set[tuple[Any, ...]] = set()
    for index in itertools.product(*(range(c) for c in view.counts)):
        at = base + view.offset + sum(i * s for i, s in zip(index, view.strides, strict=True)) * view.dtype.itemsize
        for b in range(at, at + view.dtype.itemsize):
            if view.memory is Memory.HBM:
                places.add((view.tensor, b))
            else:
                places.update((view.memory, p, b) for p in range(view.partition, view.partition + view.partitions))
    return places


def unordered(steps: Sequence[Step], addresses: dict[str, int]) -> Iterator[tuple[int, int]]:
    """Pairs of steps with a common byte, one of them writing it, that nothing orders."""
    reads, writes = (
        [set().union(*(touched(v, addresses.get(v.tensor, 0)) for v in views)) for views in each]
        for each in ([s.instruction.reads for s in steps], [s.instruction.writes for s in steps])
    )
    never_ends = [Stuck(steps, k, begins=True).begun for k in range(len(steps))]
    never_begins = [Stuck(steps, k, begins=False).begun for k in range(len(steps))]
    for a, b in itertools.combinations(range(len(steps)), 2):
        dma = [isinstance(steps[k].instruction, Dma) for k in (a, b)]
        own = steps[a].engine is steps[b].engine and not any(dma)
        for mine, theirs, a_writes, b_writes in ((writes, writes, 1, 1), (writes, reads, 1, 0), (reads, writes, 0, 1)):
            if not mine[a] & theirs[b]:
                continue
            if own and (b_writes or steps[b].engine is TENSOR):
                continue  # engines begin and commit in order
            a_over = never_ends[a] if a_writes or dma[0] else never_begins[a]
            b_over = never_ends[b] if b_writes or dma[1] else never_begins[b]
            if b in a_over and a in b_over:
                yield a, b


def found(steps: Sequence[Step], tensors: dict[str, Tensor], addresses: dict[str, int]) -> bool:
    """What the race check says of a run on trn2."""
    table, _ = lower(steps, TRN2)
    try:
        race.check(steps, tensors, addresses, table, core.run(table), {})
    except Race:
        return True
    return False


TILES = {n: Tensor(n, Memory.SBUF, (1, 4), FP32, address=0x4000 + 16 * k) for k, n in enumerate("abc")}
BANKS = {"o": Tensor("o", Memory.PSUM, (1, 4), FP32, address=0)}
BUFFERS = {"h": Tensor("h", Memory.HBM, (1, 4), FP32)}
EVERYTHING = TILES | BANKS | BUFFERS
PLACES = {n: t.address or 0 for n, t in EVERYTHING.items()}


@st.composite
def explicit_steps(draw: Any, most: int = 9, shared: bool = True) -> list[Step]:
    """Machine instructions on few bytes, with waits that program order meets.

    Unless `shared`, a semaphore counts one in-order source, or one DMA, for all of which its waits wait.
    """
    steps: list[Step] = []
    reached = [0] * 4
    owner: dict[int, object] = {}

    def view(name: str) -> View:
        t = EVERYTHING[name]
        v = whole(t.name, t.memory, t.shape, t.dtype)
        return v if name == "h" or draw(st.booleans()) else v[:, draw(st.sampled_from([np.s_[:2], np.s_[2:], np.s_[1:3], np.s_[::2]]))]

    def add(instruction: Instruction, engine: Engine, may_signal: bool = True, may_read: bool = True) -> None:
        waits = tuple(
            Wait(s, 16 if isinstance(owner.get(s), int) else draw(st.integers(1, reached[s])))
            for s in range(len(reached))
            if reached[s] and draw(st.integers(0, 2)) == 0
        )
        updates = []
        dma = isinstance(instruction, Dma)
        for s in range(len(reached)):
            if not may_signal or draw(st.integers(0, 2)):
                continue
            read = may_read and not dma and draw(st.booleans())
            source = len(steps) if dma else (engine, isinstance(instruction, Nop), read)
            if not shared and owner.setdefault(s, source) != source:
                continue
            amount = 16 if dma else draw(st.sampled_from([1, 1, 2, 15]))
            updates.append(Update(s, UpdateOp.ADD, amount, When.READ if read else When.COMPLETE))
        steps.append(Step(instruction, engine, waits, tuple(updates)))
        for u in updates:
            reached[u.semaphore] += u.value

    for _ in range(draw(st.integers(2, most))):
        kind = draw(st.sampled_from(["copy", "copy", "copy", "load", "store", "nop", "product"]))
        names = st.sampled_from(list(TILES))
        if kind == "copy":
            engine = draw(st.sampled_from([VECTOR, SCALAR, GPSIMD]))
            dst, src = view(draw(names)), view(draw(names if engine is GPSIMD else st.sampled_from([*TILES, "o"])))
            assume(dst.elements == src.elements)
            add(TensorCopy(dst=dst, src=src), engine)
        elif kind == "nop":
            add(Nop(), draw(st.sampled_from(list(Engine))))
        elif kind == "product":
            full = whole(draw(names), Memory.SBUF, (1, 4), FP32)
            add(LoadWeights(src=full[:, :1]), TENSOR, may_signal=False)
            dst = whole("o", Memory.PSUM, (1, 4), FP32)
            add(Matmul(dst=dst, src=full, columns=1, accumulate=draw(st.booleans())), TENSOR, may_read=False)
        else:
            on_chip, hbm = whole(draw(names), Memory.SBUF, (1, 4), FP32), whole("h", Memory.HBM, (1, 4), FP32)
            dst, src = (on_chip, hbm) if kind == "load" else (hbm, on_chip)
            engine = draw(st.sampled_from([SYNC, SCALAR]))
            add(DmaDirect2d(dst=dst, src=src, generation=draw(st.sampled_from(["hardware", "static"]))), engine)
    return steps


@settings(max_examples=300)
@given(explicit_steps())
def test_no_pair_that_can_happen_in_either_order_escapes_the_check(steps: list[Step]) -> None:
    racing = list(unordered(steps, PLACES))
    event("race" if racing else "ordered")
    if racing:
        assert found(steps, EVERYTHING, PLACES), racing


@settings(max_examples=300)
@given(explicit_steps(shared=False))
def test_with_one_source_for_each_semaphore_the_check_finds_races_and_nothing_else(steps: list[Step]) -> None:
    assert found(steps, EVERYTHING, PLACES) == any(unordered(steps, PLACES))


def small(c: Compiled) -> bool:
    return sum(v.size for s in c.steps for _, v, _ in s.instruction.views) < 4000


@settings(max_examples=60)
@given(programs(8), st.data())
def test_a_wait_taken_from_an_automatic_program_is_missed_by_both_orders_or_by_none(program: Program, data: st.DataObject) -> None:
    c = compile_program(program, TRN2)[0]
    assume(small(c))
    places = [(k, j) for k, s in enumerate(c.steps) for j in range(len(s.waits))]
    steps, addresses, tensors = list(c.steps), dict(c.addresses), dict(c.tensors)
    assert not any(unordered(steps, addresses))
    k, j = data.draw(st.sampled_from(places))
    steps[k] = attrs.evolve(steps[k], waits=tuple(w for i, w in enumerate(steps[k].waits) if i != j))
    assert found(steps, tensors, addresses) == any(unordered(steps, addresses))
