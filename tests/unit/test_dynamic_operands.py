"""Compute instructions and DMA whose addresses come from registers, or from numbers in SBUF."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest

from nc_sim import NcSimError, Program, ProgramError, Race, Result, chip, ds, simulate
from nc_sim.access import covers
from nc_sim.forms import program_from_msgpack, program_from_text, program_to_msgpack, program_to_text
from nc_sim.isa import DTYPES, REGISTRY, Engine, Instruction, Memory, Step, View, fields_of
from nc_sim.isa.control import Control
from nc_sim.isa.dma import Dma
from nc_sim.isa.dynamic import Dynamic, Register
from nc_sim.isa.registers import RegisterMove
from nc_sim.isa.tensor import Matmul
from nc_sim.memory import Memories
from nc_sim.numerics import perform
from nc_sim.program import Tensor
from nc_sim.testing.operands import PLAIN, _made, template, with_views

X = np.random.default_rng(5).integers(-99, 99, (128, 8, 64)).astype(np.float32)


def refused(act: Callable[[], object], error: type[NcSimError] = ProgramError) -> str:
    with pytest.raises(error) as caught:
        act()
    return str(caught.value)


def copied(source: Callable[[Program, View], View], name: str = "trn2", **how: Any) -> Result:
    """A run of a copy by VectorE from a part of X, at a place that `source` chooses, into [128, 64]."""
    p = Program("copied")
    x, y, t, u = (
        p.input("x", X.shape, "float32"),
        p.output("y", (128, 64), "float32"),
        p.sbuf(X.shape, "float32"),
        p.sbuf((128, 64), "float32"),
    )
    p.dma_copy(dst=t, src=x)
    p.tensor_copy(dst=u, src=source(p, t))
    p.dma_copy(dst=y, src=u)
    return simulate(p, name, inputs={"x": X}, **how)


def in_sbuf(p: Program, number: int) -> View:
    """A tensor [1, 1] with a number."""
    one = p.sbuf((1, 1), "int32", f"number{number}")
    p.memset(dst=one, value=number)
    return one


# ---- values


@pytest.mark.parametrize("name", chip.names())
@pytest.mark.parametrize("engine", ["simpy", "compiled"])
def test_a_register_and_a_number_in_sbuf_say_where_an_operand_lies(name: str, engine: str) -> None:
    for source in (lambda p, t: t.select(1, p.register_alloc(5)), lambda p, t: t.select(1, in_sbuf(p, 5))):
        assert (copied(source, name, engine=engine).outputs["y"] == X[:, 5]).all()


def test_a_loop_counter_is_an_index() -> None:
    """In each of its forms: an entry of a dimension, some from it on, and the offset of a pattern."""
    forms: list[Callable[[View, Register], View]] = [
        lambda v, i: v[:, i],
        lambda v, i: v.select(1, i),
        lambda v, i: v[:, ds(i, 1)],
        lambda v, i: v.ap([[512, 128], [1, 64]], scalar_offset=i, indirect_dim=1),
    ]
    for form in forms:
        p = Program("rounds")
        x, y = p.input("x", X.shape, "float32"), p.output("y", X.shape, "float32")
        t, u = p.sbuf(X.shape, "float32"), p.sbuf(X.shape, "float32")
        p.dma_copy(dst=t, src=x)
        for i in p.dynamic_range(8):
            p.tensor_scalar(dst=form(u, i), data=form(t, i), op0="multiply", operand0=2.0)
        p.dma_copy(dst=y, src=u)
        assert (simulate(p, inputs={"x": X}).outputs["y"] == 2 * X).all()


def test_registers_count_strides_of_the_dimension_they_index() -> None:
    assert (copied(lambda p, t: t.reshape(128, 512)[:, ds(p.register_alloc(70), 64)]).outputs["y"] == X.reshape(128, 512)[:, 70:134]).all()
    assert (copied(lambda p, t: t[:, ::2][:, p.register_alloc(3)]).outputs["y"] == X[:, 6]).all()
    moved = Program("key").sbuf((4, 6, 8), "bfloat16")[:, 1:, ds(Register("r"), 2)]
    assert (moved.shape, moved.offset) == ((4, 5, 2), 16)
    assert moved.dynamic == Dynamic(Register("r"), "start", 1, 0, 96)
    rows = Program("rows").input("x", (10, 6), "float32")[Register("r"), 2:]
    assert (rows.shape, rows.offset, rows.dynamic) == ((4,), 8, Dynamic(Register("r"), "start", 6, 0, 240))
    assert ds(3, 4) == slice(3, 7)


def test_ds_takes_whole_numbers_of_any_kind() -> None:
    view, n = Program("kinds").sbuf((4, 8), "float32"), Register("r")
    assert view[:, ds(n, np.int64(2))] == view[:, ds(n, 2)]  # type: ignore[arg-type]
    assert view[:, ds(np.uint8(255) - np.uint8(252), np.int8(4))] == view[:, 3:7]  # type: ignore[arg-type]
    assert type(ds(n, np.int64(2)).size) is int  # type: ignore[arg-type,union-attr]
    assert ds(np.int8(100), np.int8(100)) == slice(100, 200)  # type: ignore[arg-type]
    for wrong in (True, np.True_, 2.0, np.float32(2), "2", None, n, 0, np.int64(-1)):
        assert re.search(r"ds: a size of .*; a whole number of at least 1$", refused(lambda w=wrong: ds(n, w)))  # type: ignore[misc]
    for wrong in (True, np.True_, 2.0, "2", None, -1):
        assert re.search(r"ds: a start of .*; a register, or a whole", refused(lambda w=wrong: ds(w, 2)))  # type: ignore[misc]


def test_dma_takes_an_address_from_a_register_on_any_queue_that_makes_descriptors() -> None:
    p = Program("rows")
    x, y, z, t = (
        p.input("x", X.shape, "float32"),
        p.output("y", X.shape, "float32"),
        p.output("z", X.shape, "float32"),
        p.sbuf((8, 64), "float32"),
    )
    for i in p.dynamic_range(128):
        p.dma_copy(dst=t, src=x[i], engine="sync")
        p.dma_copy(dst=y[i], src=t, engine="scalar")
        p.dma_copy(dst=z[i], src=t, dge_mode="swdge")
    r = simulate(p, inputs={"x": X})
    assert (r.outputs["y"] == X).all()
    assert (r.outputs["z"] == X).all()
    assert refused(lambda: p.dma_copy(dst=t, src=x[i], dge_mode="none")).endswith(
        "static descriptors are made before the run (nki.isa.dma_copy)"
    )


def test_a_row_that_a_register_puts_out_of_bounds_can_be_skipped() -> None:
    for mode in ("swdge", "hwdge"):
        p = Program("skipped")
        x, y, t = p.input("x", (4, 64), "float32"), p.output("y", (6, 64), "float32"), p.sbuf((1, 64), "float32")
        for i in p.dynamic_range(6):
            p.memset(dst=t, value=-1.0)
            p.dma_copy(dst=t, src=x[ds(i, 1)], oob_mode="skip", dge_mode=mode)
            p.dma_copy(dst=y[ds(i, 1)], src=t)
        assert (simulate(p, inputs={"x": X[0, :4]}).outputs["y"] == np.vstack([X[0, :4], np.full((2, 64), -1.0)])).all()


def test_products_and_activations_take_moved_operands() -> None:
    a, b = (np.random.default_rng(k).integers(-3, 4, (128, 4, 64)).astype(np.float32) for k in (1, 2))
    p = Program("products")
    x, w, y = p.input("x", a.shape, "bfloat16"), p.input("w", b.shape, "bfloat16"), p.output("y", (64, 4, 64), "float32")
    s, m, c, o = p.sbuf(a.shape, "bfloat16"), p.sbuf(b.shape, "bfloat16"), p.psum((64, 4, 64)), p.sbuf((64, 4, 64), "float32")
    p.dma_copy(dst=s, src=x)
    p.dma_copy(dst=m, src=w)
    for i in p.dynamic_range(4):
        p.nc_matmul(dst=c[:, i], stationary=s[:, i], moving=m[:, i], accumulate=False)
        p.activation(dst=o[:, i], op="copy", data=c[:, i], scale=0.5)
    p.dma_copy(dst=y, src=o)
    assert (simulate(p, inputs={"x": a, "w": b}).outputs["y"] == np.einsum("kim,kin->min", a, b) / 2).all()


def test_a_register_loaded_from_data_says_where_an_operand_lies() -> None:
    p = Program("loaded")
    x, n, y = p.input("x", X.shape, "float32"), p.input("n", (1, 1), "int32"), p.output("y", (128, 64), "float32")
    t, u, r = p.sbuf(X.shape, "float32"), p.sbuf((128, 64), "float32"), p.register_alloc()
    p.dma_copy(dst=t, src=x)
    p.register_load(r, n)
    p.tensor_copy(dst=u, src=t[:, r])
    p.dma_copy(dst=y, src=u)
    for k in (0, 7):
        assert (simulate(p, inputs={"x": X, "n": [[k]]}).outputs["y"] == X[:, k]).all()
    assert simulate(p, values=False).duration_ns == simulate(p, inputs={"x": X, "n": [[3]]}).duration_ns  # time needs no numbers
    found = refused(lambda: simulate(p, inputs={"x": X, "n": [[8]]}))
    assert re.match(
        r"test_dynamic_operands.py:\d+ vector tensor_copy: register r0 is 8, which reaches elements 512 to 576 of sbuf3; "
        r"0 to 7, within elements 0 to 512 of each partition \(nki",
        found,
    )


def test_an_index_out_of_bounds_is_answered_with_those_that_fit() -> None:
    """By hand: entry r of 8 rows of 64 elements; entries from r on; every second one; in a part of the tensor; backwards; as bytes."""
    for form, number, found in (
        (lambda v, r: v[:, ds(r, 3)], 6, "elements 384 to 576 of sbuf0; 0 to 5, within elements 0 to 512 of each partition"),
        (lambda v, r: v[:, ds(r, 8)], 1, "elements 64 to 576 of sbuf0; 0 only, within"),
        (lambda v, r: v[:, ::2][:, r], 4, "elements 512 to 576 of sbuf0; 0 to 3, within"),
        (lambda v, r: v[:, 6:][:, r], 2, "elements 512 to 576 of sbuf0; -6 to 1, within"),
        (lambda v, r: v[:, ::-1][:, r], 8, "elements -64 to 0 of sbuf0; 0 to 7, within"),
        (lambda v, r: v[:, 2, r], -129, "elements -1 to 0 of sbuf0; -128 to 383, within"),
        (
            lambda v, r: v.ap([[2048, 128], [1, 3]], scalar_offset=r, indirect_dim=1, dtype="uint8"),
            -1,
            "elements -256 to -253 of sbuf0; 0 to 7,",
        ),
    ):
        p = Program("places")
        t, r = p.sbuf(X.shape, "float32"), p.register_alloc(number)
        p.memset(dst=form(t, r), value=0)
        assert f" gpsimd memset: register r0 is {number}, which reaches {found}" in refused(lambda p=p: simulate(p)).replace(  # type: ignore[misc]
            " vector memset", " gpsimd memset"
        )


def test_an_address_is_that_of_the_execution_and_not_of_a_later_one() -> None:
    """VectorE is busy with a long instruction while its sequencer runs ahead and counts on."""
    p = Program("ahead")
    x, y = p.input("x", X.shape, "float32"), p.output("y", X.shape, "float32")
    t, u, long = p.sbuf(X.shape, "float32"), p.sbuf(X.shape, "float32"), p.sbuf((128, 8192), "float32")
    p.dma_copy(dst=t, src=x)
    p.memset(dst=long, value=0)
    r = p.register_alloc(0)
    for k in range(8):
        p.tensor_copy(dst=u[:, k], src=t[:, r])
        p.register_alu(r, r, "add", 1)
    p.dma_copy(dst=y, src=u)
    assert (simulate(p, inputs={"x": X}).outputs["y"] == X).all()


def test_a_number_in_sbuf_is_read_when_the_queue_takes_the_instruction() -> None:
    """A number that changes while the engine is still busy counts no more, once the sequencer has handed the instruction over."""
    p = Program("taken")
    x, y = p.input("x", X.shape, "float32"), p.output("y", (128, 64), "float32")
    t, u, long, one = p.sbuf(X.shape, "float32"), p.sbuf((128, 64), "float32"), p.sbuf((128, 8192), "float32"), p.sbuf((1, 1), "int32")
    loaded, set_, done, stored = (p.semaphore(n) for n in ("loaded", "set", "done", "stored"))
    p.dma_copy(dst=t, src=x, engine="sync", update=loaded.add(16))
    p.memset(dst=one, value=2, engine="gpsimd", update=set_.add(1))
    p.memset(dst=long, value=0, engine="vector", wait=[loaded >= 16, set_ >= 1])
    p.tensor_copy(dst=u, src=t.select(1, one), engine="vector", update=done.add(1))
    p.iota(dst=one, pattern=[[1, 1]], offset=6, wait=loaded >= 16)  # long before VectorE is done with `long`
    p.dma_copy(dst=y, src=u, engine="sync", wait=done >= 1, update=stored.add(16))
    p.nop(engine="sync", wait=stored >= 16)
    r = simulate(p, inputs={"x": X}, races="report", what_if={"sequencer.dynamic_cycles": 100})
    iota, copy = (next(i for i in r.instructions if i.opcode == name) for name in ("IOTA", "COPY"))
    assert iota.end_ns < copy.start_ns
    assert r.races  # nothing orders the two
    assert (r.outputs["y"] == X[:, 2]).all()


# ---- every compute instruction


COMPUTE = sorted(n for n, c in REGISTRY.items() if c.machine and not issubclass(c, Control | Dma))
ROOM = 16384  # bytes of a partition for each operand
NEWEST = chip.load("trn3")


def elsewhere(i: Instruction, dynamic: Callable[[str], Dynamic | None], by: int) -> Instruction:
    """The instruction with every operand in a tensor of its own, `by` elements further on."""
    return attrs.evolve(
        i, **with_views(i, lambda name, v: attrs.evolve(v, tensor=name, offset=v.offset + by * v.dtype.itemsize, dynamic=dynamic(name)))
    )


def outcome(i: Instruction, operands: dict[str, View]) -> dict[str, bytes]:
    """What is in the places of all operands after an instruction between small numbers; every index is 3."""
    indices = [v for n, v, _ in i.views if n.endswith(".index")]
    names = sorted({*operands.values(), *indices}, key=lambda v: v.tensor)
    tensors = {v.tensor: Tensor(v.tensor, v.memory, (128, ROOM // v.dtype.itemsize), v.dtype) for v in names}
    places = sorted(tensors, key=lambda n: (n.endswith(".at"), n))
    memories = Memories(tensors, {n: ROOM * k for k, n in enumerate(places)}, NEWEST.reader(), {})
    for k, v in enumerate(operands.values()):
        memories.array(v)[...] = (np.arange(k, k + v.size) % 8).reshape(v.shape).astype(memories.array(v).dtype)
    for v in indices:
        memories.write(v, np.full(v.shape, 3))
    state: dict[str, Any] = {"engine": i.engines[0]}
    if isinstance(i, Matmul):
        depth = {"mx": 4, "double_row": 2}.get(getattr(i, "mode", ""), 1)
        state["weights"] = np.ones((i.src.partitions * depth, i.columns), np.float32)
    if i.accumulator()[0] in ("adds", "reads"):
        state["accumulator"] = np.zeros(i.accumulator()[1], np.float32)
    perform(Step(i, i.engines[0]), memories, state, lambda: "here")
    return {name: memories.read(v).tobytes() for name, v in operands.items()}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("mnemonic", COMPUTE)
def test_every_compute_instruction_does_with_a_moved_operand_what_it_does_there(mnemonic: str) -> None:
    i = _made(REGISTRY[mnemonic], template(mnemonic), *PLAIN)

    def at(index: Callable[[str], View | Register | int]) -> Instruction:
        made = elsewhere(i, lambda name: Dynamic(index(name), "start", 2, 0, ROOM), 0)
        made.check()
        return made

    there = elsewhere(i, lambda name: None, 6)
    operands = {n: v for n, v, _ in there.views}
    wanted = outcome(there, operands)
    one = View("", Memory.SBUF, DTYPES["int32"], 0, 1, 0, (1,), (1,))
    assert outcome(at(lambda name: 3), operands) == wanted
    assert outcome(at(lambda name: attrs.evolve(one, tensor=f"{name}.at")), operands) == wanted
    with contextlib.suppress(NcSimError):  # what was never written may be no number at all
        assert outcome(elsewhere(i, lambda name: None, 0), operands) != wanted or not any(w for _, _, w in i.views)
    by_register = at(lambda name: Register("r"))
    assert by_register.registers == ((Register("r"),) if operands else ())
    assert by_register.bound(lambda r: 3) == at(lambda name: 3)
    assert "here: the index is 9999, which reaches" in refused(lambda: outcome(at(lambda name: 9999), operands)) if operands else True


# ---- time


def ns(r: Result, opcode: str) -> list[tuple[float, float]]:
    return [(i.start_ns, i.end_ns) for i in r.instructions if i.opcode == opcode]


def chain(index: Callable[[Program, View], View | int | Register], elements: int, name: str = "trn2", **how: Any) -> float:
    """From the start of one copy to that of the next, of copies by VectorE from places that `index` says."""
    p = Program("chain")
    t, one, u = p.sbuf((128, 4, 2048), "float32"), p.sbuf((1, 1), "int32"), p.sbuf((128, 8, 2048), "float32")
    p.memset(dst=t, value=0)
    p.memset(dst=one, value=1)
    at = index(p, one)
    for k in range(8):
        p.tensor_copy(
            dst=u[:, k, :elements],
            src=t.ap([[8192, 128], [1, elements]], scalar_offset=at, indirect_dim=1) if at is not None else t[:, 1, :elements],
        )
    starts = [a for a, _ in ns(simulate(p, name, values=False, **how), "COPY")]
    gaps = np.diff(starts[2:])
    assert np.allclose(gaps, gaps[0], atol=0.5), gaps
    return float(gaps[0])


def test_copies_from_a_number_in_sbuf_follow_one_another_every_600_cycles_or_as_long_as_they_are() -> None:
    """max(MIN_II_DYNAMIC, N) engine cycles, MIN_II_DYNAMIC roughly 600 (nki.isa.tensor_copy_dynamic_dst, SDK 2.26)."""
    assert chain(lambda p, one: one, 64) == pytest.approx(600 / 0.96, abs=0.5)
    assert chain(lambda p, one: one, 64, "inf2") == pytest.approx(600 / 1.12, abs=0.5)
    assert chain(lambda p, one: one, 2048) == chain(lambda p, one: None, 2048) > 600 / 0.96  # type: ignore[arg-type,return-value]
    assert chain(lambda p, one: one, 64, without=["run-time-addresses"]) == chain(lambda p, one: None, 64)  # type: ignore[arg-type,return-value]


def test_a_register_delays_an_instruction_by_its_address_only() -> None:
    def alone(moved: bool, **how: Any) -> float:
        p = Program("alone")
        t = p.sbuf((128, 4, 64), "float32")
        p.memset(dst=t, value=0)
        r = p.register_alloc()
        p.register_move(r, 2, engine="vector")
        p.nop(engine="vector")
        p.tensor_copy(dst=t[:, 0], src=t.select(1, r if moved else 1))
        return ns(simulate(p, values=False, **how), "COPY")[0][0]

    assert alone(True) - alone(False) == pytest.approx(44.3, abs=0.3)
    assert alone(True, what_if={"sequencer.register_address_ns": 300}) - alone(False) == pytest.approx(300, abs=0.3)


def test_a_trigger_with_an_address_in_a_register_takes_that_long_and_no_longer() -> None:
    def ends(mode: str, index: str, **how: Any) -> float:
        p = Program("trigger")
        x, one, t = p.input("x", (4, 128, 64), "float32"), p.sbuf((1, 1), "int32"), p.sbuf((128, 64), "float32")
        p.memset(dst=one, value=1)
        r = p.register_alloc()
        src = {"static": x[1], "register": x[r], "tensor": x.select(0, one)}[index]
        p.register_move(r, 1, engine="sync" if mode == "hwdge" else "gpsimd")
        p.nop(engine="sync" if mode == "hwdge" else "gpsimd")
        p.dma_copy(dst=t, src=src, dge_mode=mode, engine="sync" if mode == "hwdge" else "gpsimd")
        return next(i for i in simulate(p, values=False, **how).instructions if i.opcode.startswith("DMA")).end_ns

    for mode, added in (("hwdge", "dma.hardware.dynamic_ns"), ("swdge", "dma.software.dynamic_ns")):
        assert ends(mode, "register") - ends(mode, "static") == pytest.approx(44.3, abs=0.3)
        assert ends(mode, "register", what_if={added: 5000}) == ends(mode, "register")
        assert ends(mode, "tensor", what_if={"sequencer.register_address_ns": 5000}) == ends(mode, "tensor")


def test_a_run_that_rests_on_the_time_of_an_address_says_so() -> None:
    r = copied(lambda p, t: t.select(1, p.register_alloc(5)))
    assert "sequencer.register_address_ns" in r.assumed
    assert "sequencer.dynamic_cycles" not in r.used
    r = copied(lambda p, t: t.select(1, in_sbuf(p, 5)))
    assert "sequencer.dynamic_cycles" in r.assumed
    assert "sequencer.register_address_ns" not in r.used


# ---- what waits for what


def test_a_moved_operand_conflicts_with_all_that_it_may_touch() -> None:
    """A copy into t[:, 7] waits for one out of t[:, r], whatever r is; one into another tensor does not."""
    p = Program("order")
    t, u = p.sbuf(X.shape, "float32"), p.sbuf((128, 64), "float32")
    p.memset(dst=t, value=0)
    r = p.register_alloc(2)
    p.tensor_copy(dst=u, src=t[:, r])
    p.memset(dst=t[:, 7], value=1, engine="gpsimd")
    made = simulate(p, values=False)
    assert ns(made, "MEMSET")[1][0] >= ns(made, "COPY")[0][1]
    write = next(s.instruction for s in made.steps if s.instruction.mnemonic == "tensor_copy")
    assert write.reads[0].extent == (0, 2048)
    assert not covers(write.views[1][1], write.views[1][1])  # another time it may lie elsewhere
    assert covers(t, write.views[1][1])


def test_an_explicit_program_needs_a_semaphore_for_all_that_a_moved_operand_may_touch() -> None:
    def build(ordered: bool) -> Program:
        p = Program("explicit")
        t, u, s = p.sbuf(X.shape, "float32"), p.sbuf((128, 64), "float32"), p.semaphore("s")
        p.memset(dst=t, value=0, engine="gpsimd", update=s.add(1))
        r = p.register_alloc(2)
        p.tensor_copy(dst=u, src=t[:, r], engine="vector", wait=s >= 1, update=s.add(1))
        p.memset(dst=t[:, 7], value=1, engine="gpsimd", wait=[s >= 2] if ordered else [s >= 1])
        return p

    simulate(build(True))
    assert "reads sbuf:sbuf0+0x0:float32[1][512]" in refused(lambda: simulate(build(False)), Race)


def test_a_product_may_lie_in_any_bank_that_its_address_can_reach() -> None:
    def build(shape: tuple[int, ...], columns: int) -> Program:
        p = Program("bank")
        s, m, c = p.sbuf((128, 64), "bfloat16"), p.sbuf((128, columns), "bfloat16"), p.psum(shape)
        p.memset(dst=s, value=1)
        p.memset(dst=m, value=1)
        p.nc_matmul(dst=c[:, p.register_alloc(1)], stationary=s, moving=m, accumulate=False)
        return p

    simulate(build((64, 4, 512), 512))
    found = refused(lambda: simulate(build((64, 4, 400), 400)))
    assert "dst spans bytes 1600 to 3200 of PSUM if its offset is 1; one bank of 2048 bytes per partition" in found
    assert "wherever an index may put it: no step of its loop is counted, so entries that each lie in a bank (" in found


def test_blocks_of_a_product_name_the_shape_that_works() -> None:
    """The counter of a loop steps from bank to bank, but the check counts no steps: one block is one entry of a dimension."""

    def build(into: Callable[[View, Register], View], stop: int, step: int, columns: int = 512, address: int = 0) -> Program:
        p = Program("blocks")
        s, m, c = p.sbuf((128, 64), "bfloat16"), p.sbuf((128, columns), "bfloat16"), p.psum((128, 1024), name="ps", address=address)
        p.memset(dst=s, value=1)
        p.memset(dst=m, value=1)
        for i in p.dynamic_range(0, stop, step):
            p.nc_matmul(dst=into(c, i), stationary=s, moving=m, accumulate=False)
        return p

    for columns in (512, 256):
        found = refused(lambda n=columns: simulate(build(lambda c, i: c[:64, ds(i, n)], 1024, n, n), values=False))  # type: ignore[misc]
        works = f"reshape(128, {1024 // columns}, {columns})"
        assert f"wherever an index may put it: no step of its loop is counted, so ps.{works}[:, i] (NeuronCore" in found
        simulate(build(lambda c, i, n=columns: c.reshape(128, 1024 // n, n)[:64, i], 1024 // columns, 1, columns), values=False)  # type: ignore[misc]
    odd = refused(lambda: simulate(build(lambda c, i: c[:64, ds(i, 384)], 640, 384, 384), values=False))
    assert "entries that each lie in a bank (" in odd
    for apart, address in ((lambda c, i: c[:64, ::2][:, ds(i, 256)], 0), (lambda c, i: c[:64, ds(i, 256)], 512)):
        found = refused(lambda a=apart, n=address: simulate(build(a, 512, 256, 256, n), values=False))  # type: ignore[misc]
        assert "entries that each lie in a bank (" in found  # no reshape makes blocks of these


def test_a_sum_into_a_moved_place_says_whether_it_starts() -> None:
    p = Program("sums")
    s, c, o = p.sbuf((128, 64), "bfloat16"), p.psum((64, 4, 64)), p.sbuf((64, 4, 64), "float32")
    y = p.output("y", (64, 4, 64), "float32")
    p.memset(dst=s, value=1)
    r = p.register_alloc(1)
    for accumulate in (False, True):
        p.nc_matmul(dst=c[:, r], stationary=s, moving=s, accumulate=accumulate)
    for k in range(4):
        p.tensor_copy(dst=o[:, k], src=c[:, 1])
    p.dma_copy(dst=y, src=o)
    assert (simulate(p).outputs["y"] == 256).all()
    p.nc_matmul(dst=c[:, r], stationary=s, moving=s)
    assert "accumulate=None" in refused(lambda: simulate(p))


# ---- where registers stand, and forms


def test_a_register_stands_on_each_engine_whose_operands_it_moves() -> None:
    p = Program("engines")
    t, u = p.sbuf(X.shape, "float32"), p.sbuf((128, 64), "float32")
    p.memset(dst=t, value=0)
    r = p.register_alloc(3)
    p.tensor_copy(dst=u, src=t[:, r])
    p.activation(dst=u, op="copy", data=t[:, r])
    p.nc_matmul(dst=p.psum((64, 64)), stationary=t[:, r], moving=t[:, r])
    made = simulate(p, values=False)
    assert [s.engine for s in made.steps if isinstance(s.instruction, RegisterMove)] == [Engine.TENSOR, Engine.VECTOR, Engine.SCALAR]
    assert {str(v.dynamic) for s in made.steps for _, v, _ in s.instruction.views if v.dynamic is not None} == {"~start*64[0x0,0x800]3"}
    q = Program("other")
    with pytest.raises(ProgramError, match="register 'r0'; a register of this program"):
        q.memset(dst=q.sbuf((4, 4), "float32")[:, r], value=0)
    p = Program("unset")
    p.memset(dst=p.sbuf((4, 4), "float32")[:, p.register_alloc()], value=0)
    assert "register r0 is read before anything sets it" in refused(lambda: simulate(p))


def test_a_program_with_moved_operands_is_the_same_from_text_and_from_msgpack() -> None:
    p = Program("forms")
    t, u = p.sbuf((8, 4, 64), "float32"), p.sbuf((8, 64), "float32")
    p.memset(dst=t, value=0)
    for i in p.dynamic_range(4):
        p.tensor_scalar(dst=u, data=t[:, i], op0="add", operand0=t[:, 0, ds(i, 1)])
        p.tensor_copy(dst=u, src=t.select(1, in_sbuf(p, 1) if not any("number1" in n for n in p.tensors) else u))
    for again in (program_from_text(program_to_text(p)), program_from_msgpack(program_to_msgpack(p))):
        assert [s.instruction for s in again.steps] == [s.instruction for s in p.steps]
    assert "data=sbuf:sbuf0+0x0:float32[1][64]@0:8~start*64[0x0,0x400]r0 " in program_to_text(p)
    executed = simulate(p, values=False).steps[-4].instruction
    assert executed == type(executed)(**{n: k.decode(k.encode(getattr(executed, n))) for n, k in fields_of(type(executed)).items()})
    assert executed == type(executed)(**{n: k.parse(k.text(getattr(executed, n))) for n, k in fields_of(type(executed)).items()})


BAD: list[tuple[Callable[[View, Register], object], str]] = [
    (lambda t, r: t[ds(r, 2)], "indirect_dim 0; 1 to 2 (not the partition)"),
    (lambda t, r: t[:, r, r], "registers in 2 dimensions; one at most"),
    (lambda t, r: t[:, ds(r, 9)], "9 entries from register r0 on; at most the 8 of axis 1"),
    (lambda t, r: t[:, r][:, 3], "slice of a view with a dynamic offset"),
    (lambda t, r: t.ap([[512, 128], [1, 4]], vector_offset=r, indirect_dim=1), "an SBUF tensor of int32 or uint32"),
    (lambda t, r: ds(r, 0), "a size of 0; a whole number of at least 1"),
    (lambda t, r: ds(-1, 4), "a start of -1; a register, or a whole number of at least 0"),
]


@pytest.mark.parametrize(("act", "found"), BAD)
def test_a_register_moves_one_dimension_that_is_not_the_partition(act: Callable[[View, Register], object], found: str) -> None:
    p = Program("bad")
    t, r = p.sbuf(X.shape, "float32"), p.register_alloc(1)
    assert found in refused(lambda: act(t, r), (ProgramError, TypeError))  # type: ignore[arg-type]


def test_registers_and_transfers_between_cores_have_fixed_operands() -> None:
    p = Program("fixed")
    t, x, r = p.sbuf((1, 4), "int32"), p.input("x", (4, 1), "int32"), p.register_alloc(1)
    fixed = "; an address known when the program is built: "
    assert refused(lambda: p.register_load(r, t[:, ds(r, 1)])).endswith(
        f"{fixed}tensor_copy(dst=one, src=...) of it into a tensor of its own, and that here"
    )
    assert refused(lambda: p.register_load(r, x[r])).endswith(
        f"{fixed}dma_copy(dst=one, src=...) of it into a tensor of its own, and that here"
    )
    assert refused(lambda: p.register_store(t[:, ds(r, 1)], r)).endswith(
        f"{fixed}a tensor of its own here, and tensor_copy(dst=..., src=one) of that to it"
    )


def test_an_index_whose_own_address_is_dynamic_names_the_copy_that_works() -> None:
    p = Program("table")
    a, k, j = p.sbuf((4, 8, 2), "float32"), p.sbuf((4, 8), "int32"), p.register_alloc(1)
    x, offsets = p.input("x", (9, 2), "float32"), p.sbuf((4, 8), "uint16")
    shown = "whose own address is known at run time; "
    for act, copied in (
        (lambda: a.select(1, k[:1, j]), "(dst=one, src=sbuf1...) into an SBUF tensor of shape [1, 1], and one as the index"),
        (lambda: x.vector_select(0, k[:, ds(j, 1)]), "(dst=one, src=sbuf1...) into an SBUF tensor of shape [4, 1], and one as the index"),
        (lambda: p.sbuf((4, 8), "float32").indirect(offsets[:, ds(j, 1)]), "(dst=one, src=sbuf3...) into an SBUF tensor of shape [4, 1]"),
    ):
        assert f"{shown}tensor_copy{copied}" in refused(act)


def test_a_table_of_indices_is_walked_by_copies_of_its_entries() -> None:
    """Both by select and by a register, as the errors say."""
    chosen = np.array([[5, 0, 7, 2]])
    for by_register in (False, True):
        p = Program("walk")
        x, n, y = p.input("x", X.shape, "float32"), p.input("n", (1, 4), "int32"), p.output("y", (128, 4, 64), "float32")
        t, u = p.sbuf(X.shape, "float32"), p.sbuf((128, 4, 64), "float32")
        k, one, r = p.sbuf((1, 4), "int32"), p.sbuf((1, 1), "int32"), p.register_alloc()
        p.dma_copy(dst=t, src=x)
        p.dma_copy(dst=k, src=n)
        for j in p.dynamic_range(4):
            p.tensor_copy(dst=one, src=k[:, ds(j, 1)])
            if by_register:
                p.register_load(r, one)
            p.tensor_copy(dst=u[:, j], src=t.select(1, r if by_register else one))
        p.dma_copy(dst=y, src=u)
        assert (simulate(p, inputs={"x": X, "n": chosen}).outputs["y"] == X[:, chosen[0]]).all()


ALU_WORDS = "p.register_alu computes while the program runs: register_alu(dst, "
ARITHMETIC: list[tuple[Callable[[Register], object], str]] = [
    (lambda r: r + 1, f'r0 + 1 while the program is built; {ALU_WORDS}r0, "add", 1)'),
    (lambda r: np.int64(1) + r, f'1 + r0 while the program is built; {ALU_WORDS}1, "add", r0)'),
    (lambda r: np.arange(2) + r, "[0 1] + r0 while the program is built; p.register_alu computes while the program runs; ds(r0, n)"),
    (lambda r: r * 2, f'r0 * 2 while the program is built; {ALU_WORDS}r0, "multiply", 2)'),
    (lambda r: 2 * r, f'2 * r0 while the program is built; {ALU_WORDS}2, "multiply", r0)'),
    (lambda r: r - r, f'r0 - r0 while the program is built; {ALU_WORDS}r0, "subtract", r0)'),
    (lambda r: -r, f'-r0 while the program is built; {ALU_WORDS}0, "subtract", r0)'),
    (lambda r: r << 1, f'r0 << 1 while the program is built; {ALU_WORDS}r0, "left_shift", 1)'),
    (lambda r: r // 2, "r0 // 2 while the program is built; p.register_alu computes while the program runs; ds(r0, n)"),
    (lambda r: r % 2.5, "r0 % 2.5 while the program is built; p.register_alu computes while the program runs; ds(r0, n)"),
    (
        lambda r: [1, 2][r],
        "register r0 as a number while the program is built; whole numbers: its value exists when the program runs, for t[:, r0]",
    ),  # type: ignore[call-overload]
    (lambda r: list(range(r)), "select(dim, r0) and p.dynamic_range(r0)"),  # type: ignore[arg-type]
    (lambda r: int(r), "register r0 as a number"),  # type: ignore[call-overload]
]


@pytest.mark.parametrize(("act", "found"), ARITHMETIC)
def test_registers_have_no_arithmetic_of_python_and_say_what_works(act: Callable[[Register], object], found: str) -> None:
    said = refused(lambda: act(Program("sum").register_alloc(1)))
    assert re.match(r"test_dynamic_operands.py:\d+: ", said)
    assert found in said


def test_the_calls_that_errors_of_arithmetic_name_compute_the_same() -> None:
    for act, wanted in ((lambda r: r + 3, 8), (lambda r: 9 - r, 4), (lambda r: -r, -5), (lambda r: ~r, -6), (lambda r: r << 2, 20)):
        p = Program("calls")
        r, y, t = p.register_alloc(5), p.output("y", (1, 1), "int32"), p.sbuf((1, 1), "int32")
        call = re.search(r"register_alu\(dst, (\S+), \"(\w+)\", (\S+)\)", refused(lambda act=act, r=r: act(r)))  # type: ignore[misc]
        assert call is not None
        a, op, b = (r if word == r.name else int(word) if word.lstrip("-").isdigit() else word for word in call.groups())
        p.register_alu(r, a, op, b)
        p.register_store(t, r)
        p.dma_copy(dst=y, src=t)
        assert simulate(p).outputs["y"] == wanted


KEYS: list[tuple[Callable[[View, Register, View], object], str]] = [
    (
        lambda t, r, k: t[:, r:],
        "a slice by register r0 on axis 1; ds(r0, n): n entries from it on, n a number",
    ),
    (lambda t, r, k: t[:, :r], "a slice by register r0 on axis 1; ds(r0, n)"),
    (lambda t, r, k: t[:, 1:7:r], "a slice by register r0 on axis 1; ds(r0, n)"),
    (lambda t, r, k: t[r : Register("r1")], "a slice by register r0 on axis 0; numbers: partitions are known when the program is built"),
    (lambda t, r, k: t[k:], "sbuf1 as an index on axis 0; numbers: partitions are known"),
    (lambda t, r, k: t[:, k], "sbuf1 as an index on axis 1; select(1, index) or ap(pattern, scalar_offset=index, indirect_dim=1)"),
    (lambda t, r, k: t[:, :, k:], "sbuf1 as an index on axis 2; select(2, index) or ap(pattern, scalar_offset=index, indirect_dim=2)"),
]


@pytest.mark.parametrize(("act", "found"), KEYS)
def test_a_key_that_is_no_index_names_the_form_that_is(act: Callable[[View, Register, View], object], found: str) -> None:
    p = Program("keys")
    t, r = p.sbuf(X.shape, "float32"), p.register_alloc(1)
    said = refused(lambda: act(t, r, p.sbuf((1, 1), "int32")))
    assert re.match(r"test_dynamic_operands.py:\d+ sbuf:sbuf0", said)
    assert found in said
