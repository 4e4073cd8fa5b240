"""Semaphores of automatic programs by hand (lowering rules B14 to B16), and that each wait is needed.

Numbers: ScalarE 4, TensorE 5, VectorE 6, GpSimd 7, each raised by 1 at a completion. DMA queues own 16 from 8 up, in
the order in which they first issue; a DMA raises one by 16.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import assume, event, example, given, settings
from hypothesis import strategies as st

from nc_sim import Program, ProgramError, Race, chip, core, race
from nc_sim.isa import Engine, Step, Update, UpdateOp, View, Wait, When
from nc_sim.isa.control import EventSemaphore, Nop
from nc_sim.isa.dma import Dma
from nc_sim.isa.registers import RegisterLoad, RegisterStore
from nc_sim.lower import lower, queue_name
from nc_sim.simulate import Compiled, compile_program
from nc_sim.testing import programs

TRN2 = chip.load("trn2")
SCALAR, TENSOR, VECTOR, GPSIMD = 4, 5, 6, 7  # semaphores
OWN = {Engine.SCALAR: SCALAR, Engine.TENSOR: TENSOR, Engine.VECTOR: VECTOR, Engine.GPSIMD: GPSIMD}


def compiled(p: Program, **what_if: Any) -> Compiled:
    return compile_program(p, TRN2.what_if({k.replace("__", "."): v for k, v in what_if.items()}))[0]


def steps(p: Program) -> list[Step]:
    """Machine instructions, without what opens ScalarE's queue."""
    return [s for s in compiled(p).steps if s.instruction.mnemonic != "act_table_load"]


def waits(p: Program) -> list[dict[int, int]]:
    """The waits of each instruction in program order."""
    return [waited(s) for s in steps(p)]


def waited(step: Step) -> dict[int, int]:
    assert len(step.waits) == len({w.semaphore for w in step.waits})
    return {w.semaphore: w.value for w in step.waits}


def raised(step: Step) -> dict[int, int]:
    assert all(u.op is UpdateOp.ADD and u.when is When.COMPLETE for u in step.updates)
    return {u.semaphore: u.value for u in step.updates}


def tile(p: Program, name: str = "", free: int = 4, partitions: int = 4, dtype: str = "float32") -> View:
    return p.sbuf((partitions, free), dtype, name=name)


# --- whom an instruction waits for -----------------------------------------------------------------------------------


def test_a_reader_waits_for_the_writer_on_another_engine() -> None:
    p = Program("raw")
    a = tile(p)
    p.memset(dst=a, value=1.0)
    p.tensor_copy(dst=tile(p), src=a, engine="scalar")
    assert waits(p) == [{}, {VECTOR: 1}]


def test_an_overwriter_waits_for_the_readers_on_other_engines() -> None:
    p = Program("war")
    a = tile(p)
    p.memset(dst=a, value=1.0)
    p.tensor_copy(dst=tile(p), src=a, engine="scalar")
    p.tensor_copy(dst=tile(p), src=a, engine="gpsimd")
    p.memset(dst=a, value=2.0)
    # the lowest semaphore on the instruction; its own first result is known from what the readers waited for
    assert waits(p) == [{}, {VECTOR: 1}, {VECTOR: 1}, {GPSIMD: 1}, {SCALAR: 1}]
    assert isinstance(steps(p)[3].instruction, EventSemaphore)


def test_an_overwriter_waits_for_the_writer_on_another_engine() -> None:
    p = Program("waw")
    a = tile(p)
    p.memset(dst=a, value=1.0)
    p.memset(dst=a, value=2.0, engine="gpsimd")
    assert waits(p) == [{}, {VECTOR: 1}]


@pytest.mark.parametrize("engine", ["vector", "scalar", "gpsimd"])
def test_an_engine_waits_for_its_own_results_its_own_reads_and_its_own_writes(engine: str) -> None:
    own = {"vector": VECTOR, "scalar": SCALAR, "gpsimd": GPSIMD}[engine]
    p = Program("own")
    x, a, b, c = p.input("x", (4, 4), "float32"), tile(p), tile(p), tile(p)
    p.dma_copy(dst=a, src=x, engine="sync")
    p.tensor_copy(dst=b, src=a, engine=engine)
    p.tensor_copy(dst=c, src=b, engine=engine)  # reads what the first writes
    p.tensor_copy(dst=b, src=a, engine=engine)  # overwrites what the second reads
    p.tensor_copy(dst=b, src=a, engine=engine)  # overwrites what the third writes
    assert waits(p) == [{}, {8: 16}, {own: 1}, {own: 2}, {own: 3}]


def test_the_tensor_engine_never_waits_for_itself() -> None:
    p = Program("products")
    w, m, out = tile(p, "w", 32, 32, "bfloat16"), tile(p, "m", 8, 32, "bfloat16"), p.psum((32, 8))
    p.memset(dst=w, value=1.0)
    p.memset(dst=m, value=1.0)
    for _ in range(3):
        p.nc_matmul(dst=out, stationary=w, moving=m)
    p.nc_matmul(dst=out, stationary=w, moving=m, accumulate=False)
    assert waits(p) == [{}, {}, {VECTOR: 2}, *[{}] * 7]


def test_two_readers_do_not_wait_for_each_other() -> None:
    p = Program("rar")
    a = tile(p)
    p.memset(dst=a, value=1.0)
    p.tensor_copy(dst=tile(p), src=a)
    p.tensor_copy(dst=tile(p), src=a, engine="scalar")
    p.tensor_copy(dst=tile(p), src=a, engine="gpsimd")
    assert waits(p) == [{}, {VECTOR: 1}, {VECTOR: 1}, {VECTOR: 1}]


@pytest.mark.parametrize(
    ("first", "second", "value"),
    [
        (slice(0, 2), slice(2, 4), {}),
        (slice(0, 3), slice(2, 4), {VECTOR: 1}),
        (slice(0, None, 2), slice(1, None, 2), {}),
        (slice(0, None, 2), slice(2, 3), {VECTOR: 1}),
    ],
)
def test_only_a_common_byte_makes_a_wait(first: slice, second: slice, value: dict[int, int]) -> None:
    p = Program("slices")
    a = tile(p)
    p.memset(dst=a[:, first], value=1.0)
    p.memset(dst=a[:, second], value=1.0, engine="gpsimd")
    assert waits(p) == [{}, value]


def test_two_writers_of_one_tensor_are_both_waited_for_where_both_parts_are_read() -> None:
    p = Program("halves")
    a = tile(p)
    p.memset(dst=a[:, :2], value=1.0)
    p.memset(dst=a[:, 2:], value=1.0, engine="gpsimd")
    p.tensor_copy(dst=tile(p, free=2), src=a[:, :2], engine="scalar")
    p.tensor_copy(dst=tile(p), src=a, engine="scalar")
    assert waits(p) == [{}, {}, {VECTOR: 1}, {GPSIMD: 1}]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (np.s_[:, 1:3], np.s_[:, ::3]),  # around it
        (np.s_[32:64], np.s_[0:32]),  # the same bytes of other partitions
        (np.s_[0:32, 2:4], np.s_[32:64]),
    ],
)
def test_a_write_that_surrounds_another_without_touching_it_does_not_hide_it(first: Any, second: Any) -> None:
    p = Program("around")
    a = tile(p, partitions=64)
    p.memset(dst=a[first], value=1.0)
    p.memset(dst=a[second], value=1.0, engine="gpsimd")
    p.tensor_copy(dst=tile(p, partitions=64), src=a, engine="scalar")
    assert waits(p) == [{}, {}, {GPSIMD: 1}, {VECTOR: 1}]


def test_a_buffer_taken_over_from_a_dead_tensor_is_waited_for() -> None:
    p = Program("reuse")
    a, b = tile(p), tile(p)
    p.memset(dst=a, value=1.0)
    p.tensor_copy(dst=a, src=a, engine="scalar")
    p.memset(dst=b, value=1.0, engine="gpsimd")
    room = {"memory__sbuf_partition_bytes": 16384 + 8 + 16}
    assert [waited(s) for s in compiled(p, **room).steps if s.engine is Engine.GPSIMD] == [{SCALAR: 1}]
    assert waits(p)[2] == {}


def test_a_slice_of_a_large_hbm_tensor_waits_for_the_dma_that_wrote_all_of_it() -> None:
    """8 MiB are more than 64 buckets of 64 KiB: such an access is found by another way."""
    p = Program("wide")
    big, part, other = p.hbm((1024, 2048), "float32"), tile(p, free=512), p.hbm((1024, 2048), "float32")
    x = p.input("x", (1024, 2048), "float32")
    p.dma_copy(dst=big, src=x, engine="sync")
    p.dma_copy(dst=part, src=big[1000:1004, 512:1024], engine="scalar")
    p.dma_copy(dst=other, src=x, engine="scalar")
    p.dma_copy(dst=big, src=other, engine="gpsimd")
    # the last waits for whom it reads from, and for the reader of what it overwrites: the first two of one ring
    assert waits(p) == [{}, {8: 16}, {}, {25: 16}]


# --- DMA -------------------------------------------------------------------------------------------------------------


def test_a_dma_raises_one_of_its_queues_sixteen_semaphores_by_sixteen() -> None:
    p = Program("loads")
    x = p.input("x", (4, 4), "float32")
    for engine in ("sync", "gpsimd", "sync", "scalar", "gpsimd"):
        p.dma_copy(dst=tile(p), src=x, engine=engine)
    assert [raised(s) for s in steps(p)] == [{8: 16}, {24: 16}, {9: 16}, {40: 16}, {25: 16}]


def test_a_queue_has_semaphores_of_its_own_for_every_way_to_make_descriptors() -> None:
    p = Program("ways")
    x = p.input("x", (4, 4), "float32")
    for mode in ("none", "hwdge", "none"):
        p.dma_copy(dst=tile(p), src=x, engine="sync", dge_mode=mode)
    c = compiled(p)
    assert [raised(s) for s in c.steps] == [{8: 16}, {24: 16}, {9: 16}]
    assert [c.semaphores[s] for s in (8, 23)] == ["S[8] (qSyncIO0)", "S[23] (qSyncIO0)"]
    assert [c.semaphores[s] for s in (24, 39)] == ["S[24] (qSyncDynamicHW)", "S[39] (qSyncDynamicHW)"]
    assert [c.semaphores[s] for s in (4, 5, 6, 7)] == ["S[4] (Scalar)", "S[5] (Tensor)", "S[6] (Vector)", "S[7] (GpSimd)"]
    assert 40 not in c.semaphores


def test_whoever_reads_what_a_dma_loads_waits_for_sixteen() -> None:
    p = Program("load")
    x, a, b = p.input("x", (4, 4), "float32"), tile(p), tile(p)
    p.dma_copy(dst=a, src=x)
    p.dma_copy(dst=b, src=x)
    p.tensor_copy(dst=tile(p), src=b)
    p.tensor_copy(dst=tile(p), src=a, engine="scalar")
    assert waits(p) == [{}, {}, {9: 16}, {8: 16}]


def test_a_store_waits_for_the_writer_and_is_waited_for_by_the_overwriter() -> None:
    p = Program("store")
    h, a = p.hbm((4, 4), "float32"), tile(p)
    p.memset(dst=a, value=1.0)
    p.dma_copy(dst=h, src=a)
    p.memset(dst=a, value=2.0)
    assert waits(p) == [{}, {VECTOR: 1}, {8: 16}]


def test_a_trigger_waits_for_the_results_of_its_own_queues_engine() -> None:
    p = Program("own_trigger")
    h, a, b = p.hbm((4, 4), "float32"), tile(p), tile(p)
    p.memset(dst=a, value=1.0)
    p.tensor_copy(dst=b, src=a, engine="scalar")
    p.dma_copy(dst=h, src=b)  # on ScalarE
    assert waits(p) == [{}, {VECTOR: 1}, {SCALAR: 1}]


def test_a_dma_waits_for_one_of_its_own_ring() -> None:
    p = Program("ring")
    x, h, a = p.input("x", (4, 4), "float32"), p.hbm((4, 4), "float32"), tile(p)
    p.dma_copy(dst=a, src=x, engine="sync")
    p.dma_copy(dst=a, src=x, engine="sync")  # overwrites
    p.dma_copy(dst=h, src=a, engine="sync")  # reads
    assert waits(p) == [{}, {8: 16}, {9: 16}]


def many_loads(count: int) -> tuple[Program, list[View]]:
    p = Program("many")
    x, tiles = p.input("x", (4, 4), "float32"), []
    for _ in range(count):
        tiles.append(tile(p))
        p.dma_copy(dst=tiles[-1], src=x, engine="sync")
    return p, tiles


def test_the_seventeenth_dma_of_a_queue_reuses_the_first_semaphore_and_waits_for_it() -> None:
    p, _ = many_loads(34)
    # its own first use, then the next ones; the 33rd is the third use of the first
    assert waits(p) == [{}] * 16 + [{8 + k: 16} for k in range(16)] + [{8: 32}, {9: 32}]
    assert [raised(s) for s in steps(p)] == [{8 + k % 16: 16} for k in range(34)]


def test_a_reader_waits_for_thirty_two_where_a_semaphore_is_used_again() -> None:
    p, tiles = many_loads(17)
    p.tensor_copy(dst=tile(p), src=tiles[0], engine="scalar")
    p.tensor_copy(dst=tile(p), src=tiles[16], engine="vector")
    p.tensor_copy(dst=tile(p), src=tiles[15], engine="gpsimd")
    assert waits(p)[17:] == [{8: 16}, {8: 32}, {23: 16}]


def test_the_seventeenth_dma_waits_only_for_the_first_of_its_own_queue() -> None:
    p = Program("two_queues")
    x = p.input("x", (4, 4), "float32")
    for k in range(32):
        p.dma_copy(dst=tile(p), src=x, engine="sync" if k % 2 else "scalar")
    assert waits(p) == [{}] * 32
    p.dma_copy(dst=tile(p), src=x, engine="sync")
    assert waits(p) == [{}] * 32 + [{24: 16}]


def test_without_its_wait_the_seventeenth_dma_races_with_whoever_waits_for_the_first() -> None:
    p, tiles = many_loads(17)
    p.tensor_copy(dst=tile(p), src=tiles[0], engine="scalar")
    c = compiled(p)
    assert not races(c, c.steps)
    for left in (0, 15):
        assert races(c, without(c, 16, Wait(8, 16), left))


def test_a_seventeenth_dma_that_waited_for_a_later_one_does_not_wait_for_the_first_again() -> None:
    p, tiles = many_loads(16)
    p.dma_copy(dst=p.hbm((4, 4), "float32"), src=tiles[3], engine="sync")
    assert waits(p)[16] == {11: 16}  # the fourth is behind the first in the ring


# --- one wait on an instruction --------------------------------------------------------------------------------------


def gathering(sources: int, reader: str = "vector") -> list[Step]:
    """The last step reads what ScalarE (4), GpSimd (7) and the DMA queues 8, 24 and 40 wrote, as many as asked."""
    p = Program("gathering")
    x, ones, t = p.input("x", (4, 4), "float32"), tile(p), tile(p, "t", 20)
    p.memset(dst=ones, value=1.0)
    p.dma_copy(dst=t[:, 8:12], src=x, engine="sync")
    p.dma_copy(dst=t[:, 12:16], src=x, engine="gpsimd")
    p.dma_copy(dst=t[:, 16:20], src=x, engine="vector")
    p.iota(dst=t[:, 4:8], pattern=[[1, 4]])
    p.tensor_copy(dst=t[:, 0:4], src=ones, engine="scalar")
    p.tensor_copy(dst=tile(p, free=20)[:, : 4 * sources], src=t[:, : 4 * sources], engine=reader)
    return steps(p)


@pytest.mark.parametrize(
    ("sources", "wanted"),
    [
        (1, [{4: 1}]),
        (2, [{7: 1}, {4: 1}]),
        (3, [{7: 1, 8: 16}, {4: 1}]),
        (4, [{7: 1, 8: 16}, {24: 16}, {4: 1}]),
        (5, [{7: 1, 8: 16}, {24: 16, 40: 16}, {4: 1}]),
    ],
)
def test_an_instruction_keeps_the_wait_of_the_lowest_semaphore_behind_event_semaphores_of_two(
    sources: int, wanted: list[dict[int, int]]
) -> None:
    made = gathering(sources)[6:]
    assert [waited(s) for s in made] == wanted
    assert [s.instruction.mnemonic for s in made] == ["event_semaphore"] * (len(wanted) - 1) + ["tensor_copy"]
    assert {s.engine for s in made} == {Engine.VECTOR}
    assert [raised(s) for s in made] == [{}] * (len(wanted) - 1) + [{VECTOR: 1}]
    assert len({s.line for s in made}) == 1  # an EVENT_SEMAPHORE stands at the line it waits for


# --- waits that others imply -----------------------------------------------------------------------------------------


def test_a_wait_is_dropped_where_the_awaited_instruction_waited_for_the_same() -> None:
    p = Program("implied")
    x, a, b = p.input("x", (4, 4), "float32"), tile(p), tile(p)
    p.dma_copy(dst=a, src=x)
    p.tensor_copy(dst=b, src=a, engine="scalar")
    p.tensor_tensor(dst=tile(p), data1=a, data2=b, op="add")
    assert waits(p) == [{}, {8: 16}, {SCALAR: 1}]


def test_a_wait_is_kept_where_the_awaited_instruction_waited_for_less() -> None:
    p = Program("not_implied")
    x, a, b, c = p.input("x", (4, 4), "float32"), tile(p), tile(p), tile(p)
    p.dma_copy(dst=a, src=x)
    p.dma_copy(dst=c, src=x)
    p.tensor_copy(dst=b, src=a, engine="scalar")  # knows of the first load only
    p.tensor_tensor(dst=tile(p), data1=c, data2=b, op="add")
    assert waits(p) == [{}, {}, {8: 16}, {9: 16}, {SCALAR: 1}]


def test_a_wait_is_dropped_where_the_awaited_instruction_waited_for_a_later_one_of_the_same_source() -> None:
    p = Program("later")
    x, a, b, c = p.input("x", (4, 4), "float32"), tile(p), tile(p), tile(p)
    p.dma_copy(dst=c, src=x)
    p.dma_copy(dst=a, src=x)
    p.tensor_copy(dst=b, src=a, engine="scalar")
    p.tensor_tensor(dst=tile(p), data1=c, data2=b, op="add")
    assert waits(p) == [{}, {}, {9: 16}, {SCALAR: 1}]


def test_a_wait_is_dropped_over_several_hops() -> None:
    p = Program("hops")
    x, a, b, c = p.input("x", (4, 4), "float32"), tile(p), tile(p), tile(p)
    p.dma_copy(dst=a, src=x)
    p.tensor_copy(dst=b, src=a, engine="scalar")
    p.tensor_copy(dst=c, src=b, engine="gpsimd")
    p.tensor_tensor(dst=tile(p), data1=a, data2=c, op="add")
    assert waits(p) == [{}, {8: 16}, {SCALAR: 1}, {GPSIMD: 1}]


def test_what_a_queue_waited_for_is_not_waited_for_again() -> None:
    p = Program("again")
    x, a = p.input("x", (4, 4), "float32"), tile(p)
    p.dma_copy(dst=a, src=x)
    p.tensor_copy(dst=tile(p), src=a)
    p.tensor_copy(dst=tile(p), src=a)
    assert waits(p) == [{}, {8: 16}, {}]


def test_what_one_queue_waited_for_says_nothing_to_another() -> None:
    p = Program("another")
    x, a = p.input("x", (4, 4), "float32"), tile(p)
    p.dma_copy(dst=a, src=x)
    p.tensor_copy(dst=tile(p), src=a)
    p.tensor_copy(dst=tile(p), src=a, engine="scalar")
    assert waits(p) == [{}, {8: 16}, {8: 16}]


def test_what_an_awaited_queue_learnt_after_the_awaited_instruction_does_not_count() -> None:
    p = Program("too_late")
    x, a, b = p.input("x", (4, 4), "float32"), tile(p), tile(p)
    p.dma_copy(dst=a, src=x)
    p.iota(dst=b, pattern=[[1, 4]])
    p.tensor_copy(dst=tile(p), src=a, engine="gpsimd")
    p.tensor_tensor(dst=tile(p), data1=a, data2=b, op="add")  # GpSimd's first result, before it waited for the load
    assert waits(p) == [{}, {}, {8: 16}, {8: 16}, {GPSIMD: 1}]


# --- the TensorEngine ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "pairs"), [("float32", 2), ("bfloat16", 1)])
def test_a_product_waits_at_its_first_weight_load_and_signals_with_its_last_pass(dtype: str, pairs: int) -> None:
    p = Program("product")
    w, m, out = tile(p, "w", 32, 32, dtype), tile(p, "m", 8, 32, dtype), p.psum((32, 8))
    p.memset(dst=w, value=1.0)
    p.memset(dst=m, value=1.0)
    p.nc_matmul(dst=out, stationary=w, moving=m)
    p.tensor_copy(dst=tile(p, "", 8, 32), src=out, engine="scalar")
    made = steps(p)[2:]
    assert [s.instruction.mnemonic for s in made] == ["ldweights", "matmul"] * pairs + ["tensor_copy"]
    assert [waited(s) for s in made] == [{VECTOR: 2}] + [{}] * (2 * pairs - 1) + [{TENSOR: 1}]
    assert [raised(s) for s in made] == [{}] * (2 * pairs - 1) + [{TENSOR: 1}, {SCALAR: 1}]


def test_further_waits_of_a_product_stand_before_its_weight_load() -> None:
    p = Program("product")
    x = p.input("x", (32, 32), "bfloat16")
    w, m, out = tile(p, "w", 32, 32, "bfloat16"), tile(p, "m", 8, 32, "bfloat16"), p.psum((32, 8))
    p.memset(dst=m, value=1.0)
    p.dma_copy(dst=w, src=x)
    p.nc_matmul(dst=out, stationary=w, moving=m)
    made = steps(p)[2:]
    assert [s.instruction.mnemonic for s in made] == ["event_semaphore", "ldweights", "matmul"]
    assert [waited(s) for s in made] == [{8: 16}, {VECTOR: 1}, {}]


def test_whoever_overwrites_the_weights_waits_for_the_product_that_used_them() -> None:
    p = Program("weights")
    w, m, out = tile(p, "w", 32, 32), tile(p, "m", 8, 32), p.psum((32, 8))
    p.memset(dst=w, value=1.0)
    p.memset(dst=m, value=1.0)
    p.nc_matmul(dst=out, stationary=w, moving=m)
    p.memset(dst=w, value=2.0)
    assert waits(p) == [{}, {}, {VECTOR: 2}, {}, {}, {}, {TENSOR: 1}]


def test_a_transpose_waits_for_its_identity_and_its_data_at_the_weight_load() -> None:
    p = Program("transpose")
    t, out = tile(p, "t", 32, 32, "bfloat16"), p.psum((32, 32), "bfloat16")
    p.memset(dst=t, value=1.0)
    p.nc_transpose(dst=out, data=t)
    p.nc_transpose(dst=out, data=t)
    assert [(s.instruction.mnemonic, waited(s), raised(s)) for s in steps(p)] == [
        ("dma_direct2d", {}, {8: 16}),
        ("memset", {}, {VECTOR: 1}),
        ("event_semaphore", {8: 16}, {}),
        ("ldweights", {VECTOR: 1}, {}),
        ("matmul", {}, {TENSOR: 1}),
        ("ldweights", {}, {}),
        ("matmul", {}, {TENSOR: 1}),
    ]


def test_a_dma_triggered_by_the_tensor_engine_waits_and_is_waited_for_like_any_other() -> None:
    p = Program("tensor_dma")
    x, w, m, out = p.input("x", (32, 32), "bfloat16"), tile(p, "w", 32, 32, "bfloat16"), tile(p, "m", 8, 32, "bfloat16"), p.psum((32, 8))
    p.memset(dst=m, value=1.0)
    p.dma_copy(dst=w, src=x, engine="tensor")
    p.nc_matmul(dst=out, stationary=w, moving=m)
    p.dma_copy(dst=w, src=x, engine="tensor")
    assert waits(p) == [{}, {}, {8: 16}, {VECTOR: 1}, {}, {TENSOR: 1}]


# --- the others that signal nothing, and the end ---------------------------------------------------------------------


def test_a_table_load_neither_waits_nor_signals() -> None:
    p = Program("tables")
    a, b = tile(p), tile(p)
    p.memset(dst=a, value=1.0)
    p.activation(dst=b, op="exp", data=a)
    p.activation(dst=b, op="tanh", data=b)
    assert [(s.instruction.mnemonic, waited(s), raised(s)) for s in compiled(p).steps] == [
        ("memset", {}, {VECTOR: 1}),
        ("act_table_load", {}, {}),
        ("activate", {VECTOR: 1}, {SCALAR: 1}),
        ("act_table_load", {}, {}),
        ("activate", {SCALAR: 1}, {SCALAR: 1}),
    ]


def test_weights_without_a_product_behind_them_are_refused_where_semaphores_are_inserted() -> None:
    """A weight load ends before the product it runs behind: its completion could be taken for the product's."""
    p = Program("lone_weights")
    w = tile(p, "w", 32, 32, "bfloat16")
    p.memset(dst=w, value=1.0)
    p.ldweights(src=w)
    p.memset(dst=w, value=2.0)
    with pytest.raises(
        ProgramError, match="ldweights: no product follows it on the TensorEngine; its matmul next, nc_matmul, or semaphores"
    ):
        compiled(p)


def test_a_weight_load_and_the_product_behind_it_wait_and_signal_as_one() -> None:
    p = Program("lone_pair")
    w, m, out = tile(p, "w", 128, 128, "bfloat16"), tile(p, "m", 512, 128, "bfloat16"), p.psum((128, 512), name="out")
    for t in (w, m):
        p.memset(dst=t, value=1.0)
    p.ldweights(src=w)
    p.matmul(dst=out, src=m, columns=128)
    assert [(waited(s), raised(s)) for s in compiled(p).steps[2:]] == [({VECTOR: 2}, {}), ({}, {TENSOR: 1})]


def test_a_program_ends_with_a_gpsimd_nop_that_waits_for_its_output() -> None:
    p = Program("one")
    y, a = p.output("y", (4, 4), "float32"), tile(p)
    p.memset(dst=a, value=1.0)
    p.dma_copy(dst=y, src=a)
    last = steps(p)[-1]
    assert (type(last.instruction), last.engine, waited(last), raised(last)) == (Nop, Engine.GPSIMD, {8: 16}, {})


def test_the_last_nop_waits_for_the_last_output_of_each_queue_and_for_no_other_store() -> None:
    p = Program("three")
    h, a = p.hbm((4, 4), "float32"), tile(p)
    p.memset(dst=a, value=1.0)
    for k, engine in enumerate(("sync", "scalar", "gpsimd", "sync", "scalar")):
        p.dma_copy(dst=p.output(f"y{k}", (4, 4), "float32"), src=a, engine=engine)
    p.dma_copy(dst=h, src=a, engine="scalar")
    made = [s for s in steps(p) if isinstance(s.instruction, Nop)]
    # Sync 8 and 9, Scalar 24, 25 and 26 (to h), GpSimd 40
    assert [(s.instruction.mnemonic, waited(s)) for s in made] == [("event_semaphore", {25: 16, 40: 16}), ("nop", {9: 16})]


def test_the_last_nop_does_not_wait_for_an_output_that_gpsimd_has_waited_for() -> None:
    p = Program("known")
    y, a = p.output("y", (4, 4), "float32"), tile(p)
    p.memset(dst=a, value=1.0)
    p.dma_copy(dst=y, src=a)
    p.memset(dst=a, value=2.0, engine="gpsimd")
    assert waits(p) == [{}, {VECTOR: 1}, {8: 16}, {}]


def test_a_program_without_outputs_has_no_nop() -> None:
    p = Program("none")
    a = tile(p)
    p.memset(dst=a, value=1.0)
    p.dma_copy(dst=p.hbm((4, 4), "float32"), src=a)
    assert [s.instruction.mnemonic for s in steps(p)] == ["memset", "dma_direct2d"]


# --- every wait is needed, and none is missing -----------------------------------------------------------------------


def races(c: Compiled, steps: Sequence[Step]) -> bool:
    table, _ = lower(steps, c.chip)
    try:
        race.check(steps, c.tensors, c.addresses, table, core.run(table), c.semaphores)
    except Race:
        return True
    return False


def weakened(c: Compiled) -> list[tuple[int, Wait, int]]:
    """Every wait, taken away or lowered by one: its step, what it was, and the value that is left."""
    return [(k, w, left) for k, s in enumerate(c.steps) for w in s.waits for left in dict.fromkeys((0, w.value - 1))]


def without(c: Compiled, k: int, wait: Wait, left: int) -> list[Step]:
    step = c.steps[k]
    kept = tuple(Wait(w.semaphore, left) if w == wait else w for w in step.waits if w != wait or left)
    return [*c.steps[:k], attrs.evolve(step, waits=kept), *c.steps[k + 1 :]]


def ends_program(c: Compiled, k: int) -> bool:
    """True for the last NOP and its EVENT_SEMAPHOREs, which order nothing but the end."""
    return all(isinstance(s.instruction, Nop) for s in c.steps[k:])


def ended(steps: Sequence[Step], k: int) -> set[int]:
    """Steps that have ended when step `k` issues: by its queue's waits, and by what the awaited had waited for."""
    sources = [queue_name(s.engine, i.generation) if isinstance(i := s.instruction, Dma) else s.engine for s in steps]
    done: set[int] = set()
    todo = [w for s in steps[: k + 1] if s.engine is steps[k].engine for w in s.waits if w.value]
    while todo:
        wait = todo.pop()
        sums = itertools.accumulate(sum(u.value for u in s.updates if u.semaphore == wait.semaphore) for s in steps)
        last = next(j for j, reached in enumerate(sums) if reached >= wait.value)
        if last not in done:
            done |= {j for j in range(last + 1) if sources[j] == sources[last]}
            todo += [w for s in steps[: last + 1] if s.engine is steps[last].engine for w in s.waits if w.value]
    return done


def reads_its_own(c: Compiled, k: int, wait: Wait, left: int) -> bool:
    """True if the engine then reads a result of its own that may not be there, in this instruction or a later one."""
    weak, engine = without(c, k, wait, left), c.steps[k].engine
    own = [j for j, s in enumerate(c.steps) if s.engine is engine and not isinstance(s.instruction, Dma)]
    return any(
        r.overlaps(w, c.addresses[r.tensor], c.addresses[w.tensor])
        for target in own
        if target >= k and (over := ended(weak, target)) is not None
        for j in own
        if j < target and j not in over
        for w in c.steps[j].instruction.writes
        for r in c.steps[target].instruction.reads
    )


def is_own(c: Compiled, k: int, wait: Wait) -> bool:
    """True if the wait is for the instruction's own engine, and the instruction runs there (a DMA trigger does not)."""
    target = next(s for s in c.steps[k:] if s.engine is c.steps[k].engine and type(s.instruction) is not EventSemaphore)
    return OWN.get(target.engine) == wait.semaphore and not isinstance(target.instruction, Dma)


def reuses(c: Compiled, k: int, wait: Wait) -> bool:
    """True if a DMA waits for the last use of the semaphore it raises itself."""
    return any(u.semaphore == wait.semaphore for u in c.steps[k].updates) and isinstance(c.steps[k].instruction, Dma)


ROOMS: tuple[Mapping[str, int], ...] = (
    {},
    {"memory__sbuf_partition_bytes": 16384 + 8 + 1600},
    {"memory__psum_partition_bytes": 3 * 2048, "memory__sbuf_partition_bytes": 16384 + 8 + 2600},
)


def crowded() -> Program:
    """Twenty loads of one queue through two buffers."""
    p = Program("crowded")
    x, y, a, b = p.input("x", (4, 4), "float32"), p.output("y", (4, 4), "float32"), tile(p), tile(p)
    for _ in range(10):
        for t, engine in ((a, "vector"), (b, "scalar")):
            p.dma_copy(dst=t, src=x, engine="sync")
            p.tensor_copy(dst=t, src=t, engine=engine)
    p.tensor_tensor(dst=a, data1=a, data2=b, op="add")
    p.dma_copy(dst=y, src=a)
    return p


@settings(max_examples=60)
@given(programs(), st.sampled_from(ROOMS))
@example(crowded(), {})
@example(many_loads(20)[0], {})
def test_every_wait_is_needed_but_for_the_end_and_for_writes_that_one_engine_makes_in_order(
    program: Program, room: Mapping[str, int]
) -> None:
    """A weaker wait is a race. Not the last ones, which order nothing but the end; not those of an instruction for its own
    engine where it only overwrites (rule B15 has them; engines start and commit in order, so no race arises); and those
    of a seventeenth DMA only where somebody still waits for the first."""
    try:
        c = compiled(program, **room)
    except ProgramError:
        assume(False)
    for k, wait, left in weakened(c):
        if ends_program(c, k):
            event("end")
        elif is_own(c, k, wait) and not reads_its_own(c, k, wait, left):
            event("own engine overwrites")
        elif reuses(c, k, wait):
            event("seventeenth")
            waiters = [i for i, s in enumerate(c.steps) if i != k and any(w == wait for w in s.waits)]
            assert races(c, without(c, k, wait, left)) == bool(waiters)
        else:
            event("needed")
            assert races(c, without(c, k, wait, left)), (k, wait, left)


@settings(max_examples=60)
@given(programs(), st.sampled_from(ROOMS))
@example(crowded(), {})
@example(many_loads(40)[0], {})
def test_no_wait_is_missing_also_where_buffers_are_reused(program: Program, room: Mapping[str, int]) -> None:
    try:
        c = compiled(program, **room)
    except ProgramError:
        assume(False)
    assert not races(c, c.steps)


@settings(max_examples=60)
@given(programs(), st.sampled_from(ROOMS))
def test_every_instruction_has_one_wait_at_most_and_every_engine_counts_its_completions(program: Program, room: Mapping[str, int]) -> None:
    try:
        c = compiled(program, **room)
    except ProgramError:
        assume(False)
    for s in c.steps:
        event_semaphore = isinstance(s.instruction, EventSemaphore)
        assert (1 if event_semaphore else 0) <= len(s.waits) <= (2 if event_semaphore else 1)
        if isinstance(s.instruction, Dma):
            assert [(u.op, u.value, u.when) for u in s.updates] == [(UpdateOp.ADD, 16, When.COMPLETE)]
        elif isinstance(s.instruction, RegisterLoad | RegisterStore):
            assert [(u.op, u.value, u.when) for u in s.updates] == [(UpdateOp.ADD, 1, When.COMPLETE)]
            assert s.updates[0].semaphore not in OWN.values()
        else:
            control = ("register_move", "register_alu", "compare_branch", "event_semaphore", "nop", "act_table_load", "ldweights")
            silent = s.instruction.mnemonic in control or (s.instruction.mnemonic == "matmul" and "passes=low" in str(s.instruction))
            assert s.updates == (() if silent else (Update(OWN[s.engine], UpdateOp.ADD, 1),))


@pytest.mark.parametrize("signal", [lambda s: {"update": [s.add(1)]}, lambda s: {"wait": s >= 1}, lambda s: {"update": s.set(2)}])
def test_a_semaphore_of_another_program_is_refused_though_one_of_this_has_its_number(signal: Callable[[Any], Mapping[str, Any]]) -> None:
    other, mine = Program("other"), Program("mine")
    theirs, own = other.semaphore("theirs"), mine.semaphore("own")
    t = mine.sbuf((128, 8), "float32")
    assert theirs.id == own.id
    with pytest.raises(ProgramError, match=r"memset: an? (wait|update) with a semaphore of another program; one of mine, from p.semaphore"):
        mine.memset(dst=t, value=1.0, **signal(theirs))
    mine.memset(dst=t, value=1.0, **signal(own))
    step = mine.steps[0]
    assert all(s.owner is None for s in (*step.waits, *step.updates))  # programs are kept apart and can be pickled
