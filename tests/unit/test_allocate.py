"""Addresses: where tensors without one are put (lowering rules B12, B13), and what must hold of those that are given.

trn2's SBUF partition: 16384 bytes at the bottom and 8 at the top of 229376 are reserved. PSUM: 8 banks of 2048 bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from nc_sim import Program, ProgramError, chip
from nc_sim.allocate import allocate
from nc_sim.expand import expand
from nc_sim.isa import DTYPES, Engine, Memory, Step, View
from nc_sim.isa.control import Nop
from nc_sim.isa.dma import Dma, DmaDirect2d
from nc_sim.isa.vector import Memset, TensorCopy
from nc_sim.program import Tensor

TRN2 = chip.load("trn2")
LOW, HIGH = 16384, 229376 - 8
BANK = 2048


def addresses(p: Program, **what_if: Any) -> dict[str, int]:
    reader = TRN2.what_if({k.replace("__", "."): v for k, v in what_if.items()}).reader()
    e = expand(p, reader)
    return allocate(e.steps, e.tensors, reader)


def room(size: int) -> dict[str, int]:
    """An override that leaves so many bytes of SBUF."""
    return {"memory__sbuf_partition_bytes": LOW + size + 8}


def refused(p: Program, **what_if: Any) -> str:
    with pytest.raises(ProgramError) as caught:
        addresses(p, **what_if)
    return str(caught.value)


def fill(p: Program, *views: View) -> None:
    """Each is written by VectorE, one after another."""
    for v in views:
        p.memset(dst=v, value=1.0)


def touch(p: Program, *views: View) -> None:
    """Each is read and written by VectorE."""
    for v in views:
        p.tensor_copy(dst=v, src=v)


# --- SBUF ------------------------------------------------------------------------------------------------------------


def test_tensors_that_engines_write_grow_up_from_the_reserved_bottom_without_gaps() -> None:
    p = Program("up")
    fill(p, p.sbuf((128, 3), "float32", name="a"), p.sbuf((1, 100), "bfloat16", name="b"), p.sbuf((128, 1), "float32", name="c"))
    assert addresses(p) == {"a": LOW, "b": LOW + 12, "c": LOW + 12 + 200}


def test_tensors_that_dma_writes_grow_down_from_the_reserved_top_without_gaps() -> None:
    p = Program("down")
    x = p.input("x", (128, 64), "float32")
    for name, free in (("a", 64), ("b", 1), ("c", 16)):
        p.dma_copy(dst=p.sbuf((128, free), "float32", name=name), src=x[:, :free])
    assert addresses(p) == {"x": 0, "a": HIGH - 256, "b": HIGH - 260, "c": HIGH - 324}


def test_both_ends_are_filled_at_once() -> None:
    p = Program("both")
    x = p.input("x", (128, 2), "float32")
    loaded, made = p.sbuf((128, 2), "float32", name="loaded"), p.sbuf((128, 2), "float32", name="made")
    p.dma_copy(dst=loaded, src=x)
    p.tensor_copy(dst=made, src=loaded)
    assert addresses(p) == {"x": 0, "loaded": HIGH - 8, "made": LOW}


def test_a_tensor_that_dma_writes_once_counts_as_written_by_dma() -> None:
    p = Program("mixed")
    x, t = p.input("x", (128, 2), "float32"), p.sbuf((128, 2), "float32", name="t")
    fill(p, t)
    p.dma_copy(dst=t, src=x)
    assert addresses(p)["t"] == HIGH - 8


def test_a_tensor_that_dma_only_reads_grows_up() -> None:
    p = Program("stored")
    y, t = p.output("y", (128, 2), "float32"), p.sbuf((128, 2), "float32", name="t")
    fill(p, t)
    p.dma_copy(dst=y, src=t)
    assert addresses(p)["t"] == LOW


def test_tensors_are_placed_in_the_order_of_their_first_use() -> None:
    p = Program("order")
    a, b = p.sbuf((128, 1), "float32", name="a"), p.sbuf((128, 1), "float32", name="b")
    fill(p, b, a)
    assert addresses(p) == {"b": LOW, "a": LOW + 4}


@pytest.mark.parametrize(("elements", "taken"), [(1, 4), (2, 4), (3, 8), (4, 8)])
def test_a_tensor_takes_whole_words_of_four_bytes(elements: int, taken: int) -> None:
    p = Program("grain")
    fill(p, p.sbuf((128, elements), "bfloat16", name="a"), p.sbuf((128, 1), "float32", name="b"))
    assert addresses(p) == {"a": LOW, "b": LOW + taken}


def test_dead_tensors_keep_their_place_while_there_is_room() -> None:
    p = Program("dead")
    fill(p, *(p.sbuf((128, 2), "float32", name=n) for n in "abc"))
    assert addresses(p, **room(24)) == {"a": LOW, "b": LOW + 8, "c": LOW + 16}


def test_a_dead_tensors_place_is_taken_where_there_is_no_room_otherwise() -> None:
    p = Program("reuse")
    a, b, c = (p.sbuf((128, 2), "float32", name=n) for n in "abc")
    fill(p, a, b)  # a is dead when b begins
    fill(p, c)
    touch(p, b)  # b lives on
    assert addresses(p, **room(20)) == {"a": LOW, "b": LOW, "c": LOW + 8}


def test_a_tensor_is_live_from_its_first_step_to_its_last() -> None:
    p = Program("life")
    a, b = (p.sbuf((128, 2), "float32", name=n) for n in "ab")
    fill(p, a)
    p.tensor_copy(dst=b, src=a)  # both
    assert refused(p, **room(8)) == (f"{p.tensors['b'].line} tensor b: 8 bytes per partition beside 8 live; 8 bytes of SBUF in all (trn2)")
    q = Program("after")
    fill(q, *(q.sbuf((128, 2), "float32", name=n) for n in "ab"))
    assert addresses(q, **room(8)) == {"a": LOW, "b": LOW}


def test_a_tensor_goes_into_the_lowest_gap_that_is_free_for_its_whole_life() -> None:
    p = Program("gaps")
    a, b, c, d, e = (p.sbuf((128, n), "float32", name=t) for t, n in (("a", 1), ("b", 3), ("c", 1), ("d", 4), ("e", 2)))
    fill(p, a, b, c)
    touch(p, b)
    fill(p, d, e)  # b is dead and leaves 12 bytes: too few for d, enough for e
    touch(p, a, c, d)
    assert addresses(p, **room(40)) == {"a": LOW, "b": LOW + 4, "c": LOW + 16, "d": LOW + 20, "e": LOW + 4}


def test_a_tensor_that_nothing_touches_takes_no_room() -> None:
    p = Program("unused")
    p.sbuf((128, 1000), "float32", name="unused")
    fill(p, p.sbuf((128, 2), "float32", name="a"))
    assert addresses(p, **room(4096))["a"] == LOW


# --- PSUM ------------------------------------------------------------------------------------------------------------


def test_every_psum_tensor_owns_its_banks() -> None:
    p = Program("banks")
    sizes = {"a": 1, "b": 512, "c": 513, "d": 1}
    fill(p, *(p.psum((128, n), name=t) for t, n in sizes.items()))
    assert addresses(p) == {"a": 0, "b": BANK, "c": 2 * BANK, "d": 4 * BANK}


def banks(order: Sequence[int], more: int) -> Program:
    """Eight tensors a0 to a7, used a last time in an order; then as many more, one by one."""
    p = Program("lru")
    tensors = [p.psum((128, 4), name=f"a{k}") for k in range(8)]
    fill(p, *tensors)
    touch(p, *(tensors[k] for k in order))
    fill(p, *(p.psum((128, 4), name=f"b{k}") for k in range(more)))
    return p


def test_a_bank_that_was_never_used_goes_before_one_whose_tensor_is_dead() -> None:
    p = Program("fresh")
    fill(p, *(p.psum((128, 4), name=t) for t in "abcdefgh"))
    assert addresses(p) == {t: k * BANK for k, t in enumerate("abcdefgh")}


def test_the_bank_of_the_tensor_that_died_first_is_taken_first() -> None:
    order = (3, 5, 0, 7, 1, 2, 6, 4)
    got = addresses(banks(order, 8))
    assert [got[f"b{k}"] // BANK for k in range(8)] == list(order)


def test_a_bank_that_was_taken_again_counts_from_its_new_tensor() -> None:
    got = addresses(banks((3, 5, 0, 7, 1, 2, 6, 4), 10))
    assert [got[f"b{k}"] // BANK for k in (8, 9)] == [3, 5]  # b0 died before b1


def test_a_tensor_of_two_banks_takes_neighbours_whose_later_use_is_oldest() -> None:
    p = banks((0, 2, 4, 1, 3, 6, 5, 7), 0)
    fill(p, p.psum((128, 1024), name="wide"))
    # last uses: bank 0 first, 1 fourth, 2 second, 3 fifth, 4 third, 5 seventh, ...; 0 and 1 and 1 and 2 tie: the lower
    assert addresses(p)["wide"] == 0


def test_more_live_tensors_than_banks_share_a_bank() -> None:
    p = Program("share")
    tensors = [p.psum((128, 4), name=f"a{k}") for k in range(10)]
    fill(p, *tensors)
    touch(p, *tensors)
    got = addresses(p)
    assert [got[f"a{k}"] for k in range(10)] == [*(k * BANK for k in range(8)), 16, 32]


def test_a_tensor_that_shares_stays_inside_one_bank() -> None:
    p = Program("inside")
    tensors = [p.psum((128, 300), name=f"a{k}") for k in range(8)]
    small = [p.psum((128, n), name=f"b{k}") for k, n in enumerate((200, 30))]  # 848 bytes are left in each bank
    fill(p, *tensors, *small)
    touch(p, *tensors, *small)
    got = addresses(p)
    assert (got["b0"], got["b1"]) == (1200, BANK + 1200)


def test_a_tensor_that_fits_only_across_two_banks_is_refused() -> None:
    """512 bytes in the middle of every bank leave 1024 below and 512 above, and 1536 across the border."""

    def program(elements: int) -> Program:
        p = Program("across")
        middle = [p.psum((128, 128), name=f"a{k}", address=k * BANK + 1024) for k in range(8)]
        fill(p, *middle, p.psum((128, elements), name="b"))
        touch(p, *middle)
        return p

    assert addresses(program(256))["b"] == 0
    p = program(257)
    assert refused(p) == (
        f"{p.tensors['b'].line} tensor b: 1028 bytes per partition beside 4096 live; 16384 bytes of PSUM in all, banks of 2048 (trn2)"
    )


def test_too_many_live_psum_tensors_are_refused() -> None:
    p = Program("full")
    tensors = [p.psum((128, 512), name=f"a{k}") for k in range(9)]
    fill(p, *tensors)
    touch(p, *tensors)
    assert refused(p) == (
        f"{p.tensors['a8'].line} tensor a8: 2048 bytes per partition beside 16384 live; 16384 bytes of PSUM in all, banks of 2048 (trn2)"
    )


# --- given addresses -------------------------------------------------------------------------------------------------


def test_given_addresses_are_kept() -> None:
    p = Program("given")
    fill(p, p.sbuf((128, 4), "float32", name="a", address=100000), p.psum((128, 4), name="b", address=6148))
    assert addresses(p) == {"a": 100000, "b": 6148}


def test_given_tensors_may_overlap_one_after_the_other_and_side_by_side_in_partitions() -> None:
    def program(second: int, partition: int, both_live: bool) -> Program:
        p = Program("overlap")
        a = p.sbuf((32, 4), "float32", name="a", address=20000)
        b = p.sbuf((32, 4), "float32", name="b", address=second, partition=partition)
        fill(p, a, b)
        if both_live:
            touch(p, a)
        return p

    assert addresses(program(20000, 0, both_live=False)) == {"a": 20000, "b": 20000}
    assert addresses(program(20000, 32, both_live=True)) == {"a": 20000, "b": 20000}
    assert addresses(program(20016, 0, both_live=True)) == {"a": 20000, "b": 20016}
    for second in (20012, 19988, 20000):
        p = program(second, 0, both_live=True)
        assert refused(p) == (
            f"{p.tensors['b'].line} tensors a and b: overlap while both are live; addresses that do not, or lives one after the other"
        )


@pytest.mark.parametrize("memory", ["psum", "sbuf"])
def test_a_given_address_must_lie_inside_the_memory(memory: str) -> None:
    size = {"psum": 16384, "sbuf": 229376}[memory]

    def program(address: int) -> Program:
        p = Program("outside")
        fill(p, getattr(p, memory)((128, 4), "float32", name="a", address=address))
        return p

    assert addresses(program(size - 16)) == {"a": size - 16}
    p = program(size - 12)
    assert refused(p) == (
        f"{p.tensors['a'].line} tensor a: bytes {size - 12} to {size + 4}; the {size} bytes of a {memory.upper()} partition (trn2)"
    )


def test_automatic_tensors_go_around_given_ones_from_both_ends() -> None:
    p = Program("around")
    x = p.input("x", (128, 4), "float32")
    bottom = p.sbuf((128, 4), "float32", name="bottom", address=LOW + 8)
    top = p.sbuf((128, 4), "float32", name="top", address=HIGH - 20)
    fill(p, bottom, top, p.sbuf((128, 2), "float32", name="a"), p.sbuf((128, 2), "float32", name="b"))
    for name, free in (("c", 1), ("d", 4)):
        p.dma_copy(dst=p.sbuf((128, free), "float32", name=name), src=x[:, :free])
    got = addresses(p)
    assert (got["a"], got["b"]) == (LOW, LOW + 24)
    assert (got["c"], got["d"]) == (HIGH - 4, HIGH - 20 - 16)


def test_an_automatic_tensor_does_not_take_the_place_of_a_given_one_that_is_dead_or_unused() -> None:
    p = Program("dead")
    dead, unused = (p.sbuf((128, 2), "float32", name=n, address=LOW + at) for n, at in (("dead", 0), ("unused", 8)))
    a = p.sbuf((128, 2), "float32", name="a")
    fill(p, dead, a)
    assert unused.tensor not in {v.tensor for s in p.steps for _, v, _ in s.instruction.views}
    assert addresses(p, **room(24))["a"] == LOW + 16
    assert refused(p, **room(16)) == (
        f"{p.tensors['a'].line} tensor a: 8 bytes per partition beside 16 live; 16 bytes of SBUF in all (trn2)"
    )


def test_a_gap_that_is_one_byte_too_small_before_a_given_tensor_is_not_taken() -> None:
    p = Program("byte")
    fill(p, p.sbuf((128, 1), "uint8", name="given", address=LOW + 7), *(p.sbuf((128, 8), "uint8", name=n) for n in "ab"))
    assert addresses(p, **room(16)) == {"given": LOW + 7, "a": LOW + 8, "b": LOW + 8}
    q = Program("fits")
    fill(q, q.sbuf((128, 1), "uint8", name="given", address=LOW + 8), *(q.sbuf((128, 8), "uint8", name=n) for n in "ab"))
    assert addresses(q, **room(16)) == {"given": LOW + 8, "a": LOW, "b": LOW}


def test_dead_automatic_tensors_keep_their_place_beside_a_given_one() -> None:
    p = Program("beside")
    fill(p, p.sbuf((128, 2), "float32", name="given", address=LOW), *(p.sbuf((128, 2), "float32", name=n) for n in "ab"))
    assert addresses(p, **room(24)) == {"given": LOW, "a": LOW + 8, "b": LOW + 16}


def test_an_automatic_psum_tensor_takes_no_bank_of_a_given_one() -> None:
    p = Program("bank")
    given_ = p.psum((128, 4), name="given", address=2 * BANK + 64)
    fill(p, given_, *(p.psum((128, 4), name=f"a{k}") for k in range(8)))
    assert [addresses(p)[f"a{k}"] // BANK for k in range(8)] == [0, 1, 3, 4, 5, 6, 7, 0]


def test_an_automatic_psum_tensor_that_shares_a_bank_does_not_overlap_a_given_one_that_is_dead() -> None:
    p = Program("shares")
    fill(p, p.psum((128, 4), name="given", address=0))
    tensors = [p.psum((128, 4), name=f"a{k}") for k in range(8)]
    fill(p, *tensors)
    touch(p, *tensors)  # eight live at once, and seven banks beside the given one's
    assert [addresses(p)[f"a{k}"] for k in range(8)] == [*(k * BANK for k in range(1, 8)), 16]


# --- capacity and partitions -----------------------------------------------------------------------------------------


def test_a_tensor_larger_than_sbuf_is_refused() -> None:
    p = Program("large")
    fill(p, p.sbuf((1, HIGH - LOW), "uint8", name="fits"))
    assert addresses(p) == {"fits": LOW}
    p.sbuf((1, HIGH - LOW + 1), "uint8", name="large")
    assert refused(p) == f"{p.tensors['large'].line} tensor large: 212985 bytes per partition; at most 212984 of SBUF (trn2)"


def test_a_tensor_larger_than_psum_is_refused() -> None:
    p = Program("large")
    fill(p, p.psum((1, 16384), "uint8", name="fits"))
    assert addresses(p) == {"fits": 0}
    p.psum((1, 16385), "uint8", name="large")
    assert refused(p) == f"{p.tensors['large'].line} tensor large: 16385 bytes per partition; at most 16384 of PSUM (trn2)"


def test_hbm_tensors_lie_one_behind_another_and_must_fit() -> None:
    p = Program("hbm")
    p.input("a", (3, 5), "float32")
    p.output("b", (1, 1), "float32")
    p.hbm((64,), "uint8", name="c")
    assert addresses(p) == {"a": 0, "b": 64, "c": 128}
    p.hbm((24, 1 << 30), "uint8", name="d")  # all 24 GiB
    assert refused(p) == "allocate: HBM tensors take 25769803968 bytes; at most 25769803776 (trn2)"


@pytest.mark.parametrize("memory", ["psum", "sbuf"])
def test_a_tensor_must_lie_inside_the_partitions(memory: str) -> None:
    def program(partitions: int, first: int) -> Program:
        p = Program("partitions")
        fill(p, getattr(p, memory)((partitions, 4), "float32", name="a", partition=first))
        return p

    assert addresses(program(128, 0)) == {"a": {"psum": 0, "sbuf": LOW}[memory]}
    for partitions, first in ((129, 0), (97, 32)):
        p = program(partitions, first)
        assert refused(p) == f"{p.tensors['a'].line} tensor a: partitions {first} to 129; at most 128 partitions (trn2)"


def test_a_tensor_that_nothing_touches_must_fit_all_the_same() -> None:
    p = Program("unused")
    p.sbuf((128, HIGH), "uint8", name="a")
    assert refused(p) == f"{p.tensors['a'].line} tensor a: 229368 bytes per partition; at most 212984 of SBUF (trn2)"


# --- for all programs ------------------------------------------------------------------------------------------------

SMALL = {"memory__sbuf_partition_bytes": LOW + 96 + 8, "memory__psum_partition_bytes": 64, "memory__psum_bank_bytes": 16}
UINT8 = DTYPES["uint8"]


@attrs.frozen
class Case:
    steps: tuple[Step, ...]
    tensors: Mapping[str, Tensor]


@st.composite
def cases(draw: Any) -> Case:
    """Tensors of up to 40 bytes, some at given addresses, and steps that write one or copy one to another."""
    tensors: dict[str, Tensor] = {}
    for k in range(draw(st.integers(1, 9))):
        memory = draw(st.sampled_from([Memory.SBUF, Memory.PSUM]))
        shape = (draw(st.sampled_from([1, 32, 128])), draw(st.integers(1, 40)))
        address, partition = None, 0
        if draw(st.integers(0, 4)) == 0:
            address = draw(st.integers(LOW, LOW + 56)) if memory is Memory.SBUF else draw(st.integers(0, 24))
            partition = draw(st.sampled_from([0, 96])) if shape[0] <= 32 else 0
        tensors[f"t{k}"] = Tensor(f"t{k}", memory, shape, UINT8, address=address, partition=partition)
    hbm = Tensor("h", Memory.HBM, (128, 40), UINT8, "input")
    steps: list[Step] = []
    for _ in range(draw(st.integers(1, 14))):
        a, b = (tensors[draw(st.sampled_from(sorted(tensors)))] for _ in range(2))
        kind = draw(st.sampled_from(["memset", "load", "copy", "nop"]))
        if kind == "nop":
            steps.append(Step(Nop(), Engine.SYNC))
        elif kind == "load" and a.memory is Memory.SBUF:
            source = hbm.view()[: a.shape[0], : a.shape[1]]
            steps.append(Step(DmaDirect2d(dst=a.view(), src=source, generation="hardware"), Engine.SYNC))
        elif kind == "copy":
            p, f = min(a.shape[0], b.shape[0]), min(a.shape[1], b.shape[1])
            steps.append(Step(TensorCopy(dst=a.view()[:p, :f], src=b.view()[:p, :f]), Engine.VECTOR))
        else:
            steps.append(Step(Memset(dst=a.view(), value=1), Engine.VECTOR))
    return Case(tuple(steps), {**tensors, "h": hbm})


def live_together(case: Case) -> list[tuple[Tensor, Tensor]]:
    """Pairs of tensors of one memory for which some step lies within the first and last use of both."""
    spans: dict[str, list[int]] = {}
    for k, s in enumerate(case.steps):
        for _, v, _ in s.instruction.views:
            spans.setdefault(v.tensor, []).append(k)
    used = [t for n, t in case.tensors.items() if n in spans and t.memory is not Memory.HBM]
    return [
        (a, b)
        for a, b in itertools.combinations(used, 2)
        if a.memory is b.memory
        and set(range(spans[a.name][0], spans[a.name][-1] + 1)) & set(range(spans[b.name][0], spans[b.name][-1] + 1))
    ]


def cells(t: Tensor, at: int) -> set[tuple[int, int]]:
    """The (partition, byte) pairs of a tensor, of each group of 32 partitions the first."""
    return {(p, at + b) for p in range(t.partition, t.partition + t.shape[0], 32) for b in range(t.partition_bytes)}


@settings(max_examples=400)
@given(cases())
def test_no_two_tensors_that_live_at_once_share_a_byte_and_all_lie_inside_their_memory(case: Case) -> None:
    reader = TRN2.what_if({k.replace("__", "."): v for k, v in SMALL.items()}).reader()
    together = live_together(case)
    collide = [(a, b) for a, b in together if a.address is not None and b.address is not None and cells(a, a.address) & cells(b, b.address)]
    if collide:
        event("given ones collide")
        with pytest.raises(ProgramError, match="overlap while both are live"):
            allocate(case.steps, case.tensors, reader)
        return
    try:
        got = allocate(case.steps, case.tensors, reader)
    except ProgramError:
        event("refused")
        return
    event("placed")
    for a, b in together:
        assert not cells(a, got[a.name]) & cells(b, got[b.name]), (a, b)
    used = {v.tensor for s in case.steps for _, v, _ in s.instruction.views}
    for name, t in case.tensors.items():
        if t.memory is Memory.HBM or name not in used:
            continue
        if t.address is not None:
            assert got[name] == t.address
            continue
        low, high = (LOW, LOW + 96) if t.memory is Memory.SBUF else (0, 64)
        assert low <= got[name] <= high - t.partition_bytes
        assert got[name] % 4 == 0
        for other in case.tensors.values():
            if other.address is not None and other.memory is t.memory is Memory.SBUF:
                assert not cells(t, got[name]) & cells(attrs.evolve(other, partition=0, shape=(128, *other.shape[1:])), other.address)


@settings(max_examples=200)
@given(cases())
def test_a_place_is_shared_only_where_not_everything_fits_side_by_side(case: Case) -> None:
    """With room for all: every automatic SBUF tensor has bytes of its own, those that DMA writes above the others."""
    got = allocate(case.steps, {n: attrs.evolve(t, address=None) for n, t in case.tensors.items()}, TRN2.reader())
    used = {v.tensor for s in case.steps for _, v, _ in s.instruction.views}
    loaded = {s.instruction.dst.tensor for s in case.steps if isinstance(s.instruction, Dma)}
    sbuf = [t for n, t in case.tensors.items() if t.memory is Memory.SBUF and n in used]
    for a, b in itertools.combinations(sbuf, 2):
        assert not set(range(got[a.name], got[a.name] + a.partition_bytes)) & set(range(got[b.name], got[b.name] + b.partition_bytes))
    size: Callable[[Tensor], int] = lambda t: -(-t.partition_bytes // 4) * 4  # noqa: E731
    assert sum(size(t) for t in sbuf if t.name not in loaded) == max(
        (got[t.name] + size(t) - LOW for t in sbuf if t.name not in loaded), default=0
    )
    assert sum(size(t) for t in sbuf if t.name in loaded) == max((HIGH - got[t.name] for t in sbuf if t.name in loaded), default=0)
