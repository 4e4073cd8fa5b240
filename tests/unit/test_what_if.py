"""An accepted knob changes something, or it is refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from nc_sim import ChipError, Program, ProgramError, Unimplemented, Unspecified, Unsupported, chip, simulate, workloads
from nc_sim.chip import Chip
from nc_sim.lower import lower
from nc_sim.mechanisms import MECHANISMS, without
from nc_sim.schema import SCHEMA
from nc_sim.simulate import compile_program

CHIPS = {name: chip.load(name) for name in chip.names()}


def everything(on: Chip) -> Program:
    """Every kind of instruction, operand and DMA that a chip has."""
    p, has = Program("everything"), on.reader().has
    x, y = p.input("x", (128, 1024), "float32"), p.output("y", (128, 1024), "float32")
    long = p.input("long", (2, 30000), "float32")
    t, u, v = (p.sbuf((128, 1024), "float32") for _ in range(3))
    far = p.sbuf((2, 30000), "float32")
    h, g = (p.sbuf((128, 1024), "bfloat16") for _ in range(2))
    one, many = p.sbuf((128, 1), "float32"), p.sbuf((128, 128), "int32")
    small = p.sbuf((32, 32), "float32")
    p.dma_copy(dst=t, src=x)
    p.dma_copy(dst=u, src=x, engine="sync")
    p.dma_copy(dst=v, src=x, engine="sync")
    p.dma_copy(dst=far, src=long, dge_mode="none")
    p.dma_copy(dst=u[:, :4], src=x[:, :4], engine="scalar")
    p.memset(dst=one, value=1.0)
    p.memset(dst=v, value=0.0, engine="gpsimd")
    p.iota(dst=many, pattern=[[1, 128]])
    p.affine_select(dst=v[:, :128], pattern=[[1, 128]], channel_multiplier=1, on_true_tile=t[:, :128], on_false_value=0.0)
    for src, dst in ((t, u), (h, g)):
        if src is h:
            p.tensor_copy(dst=h, src=t)
        p.tensor_copy(dst=dst, src=src)
        p.tensor_scalar(dst=dst, data=src, op0="multiply", operand0=one)
        p.tensor_tensor(dst=dst, data1=src, data2=src, op="add")
        p.scalar_tensor_tensor(dst=dst, data=src, op0="multiply", operand0=2.0, op1="add", operand1=src)
        p.reciprocal(dst=dst, data=src)
    p.tensor_reduce(dst=g[:, :1], op="max", data=h, axis=1)
    p.tensor_reduce(dst=one, op="add", data=t, axis=1)
    p.memset(dst=g, value=0)
    p.nc_transpose(dst=small, data=t[:32, :32], engine="vector")
    p.tensor_copy(dst=g, src=h, engine="gpsimd")
    p.tensor_scalar(dst=g, data=h, op0="rsqrt", engine="gpsimd")
    p.tensor_tensor(dst=many, data1=many, data2=many, op="add")
    p.activation(dst=u, op="exp", data=t, scale=one, bias=one, reduce_op="add", reduce_res=one)
    p.activation(dst=u, op="copy", data=t)
    p.tensor_copy(dst=u, src=t, engine="scalar")
    if has("scalar.tensor_scalar.available"):
        p.tensor_scalar(dst=u, data=t, op0="multiply", operand0=2.0, engine="scalar")
    p.activation(dst=u, op="rsqrt", data=t)
    p.dma_copy(dst=g, src=x)
    wide, narrow = p.psum((128, 512)), p.psum((128, 32))
    turned, half = p.psum((128, 128), "float32"), p.psum((128, 128), "bfloat16")
    for _ in range(3):
        p.nc_matmul(dst=wide, stationary=t[:, :128], moving=t[:, :512], accumulate=False)
        p.nc_matmul(dst=wide, stationary=t[:, :128], moving=t[:, :512], accumulate=True, is_moving_onezero=True)
        p.nc_matmul(dst=narrow, stationary=h[:, :128], moving=h[:, :32], accumulate=False)
        p.nc_transpose(dst=turned, data=t[:, :128])
        p.nc_transpose(dst=half, data=h[:, :128])
    for _ in range(20):
        p.nc_matmul(dst=narrow, stationary=h[:, :128], moving=h[:, :32], accumulate=True)
    p.tensor_copy(dst=h[:, :128], src=half)
    p.tensor_scalar(dst=h[:, :128], data=half, op0="add", operand0=1.0)
    p.tensor_copy(dst=g, src=h, engine="scalar")
    eight = p.sbuf((128, 64), "float8_e4m3")
    p.memset(dst=eight, value=1)
    p.tensor_copy(dst=eight, src=eight)
    if on.numbers["scalar.number_bias"].value:
        p.activation(dst=u, op="exp", data=t, bias=0.5)
    if on.numbers["scalar.tensor_scalar.any_operators"].value:
        p.tensor_scalar(dst=u, data=t, op0="subtract", operand0=2.0, engine="scalar")
    if on.numbers["tensor.sums_anywhere"].value:
        p.memset(dst=narrow, value=1.0)
        p.nc_matmul(dst=narrow, stationary=h[:, :128], moving=h[:, :32], accumulate=True)
    p.activation(dst=u[:, :512], op="exp", data=wide)
    p.activation(dst=u[:, :512], op="copy", data=wide)
    p.activation(dst=h[:, :512], op="copy", data=wide)
    p.tensor_copy(dst=u[:, :512], src=wide, engine="scalar")
    for src, width in ((wide, 512), (turned, 128)):
        p.tensor_copy(dst=v[:, :width], src=src)
        p.tensor_scalar(dst=v[:, :width], data=src, op0="add", operand0=1.0)
        p.tensor_tensor(dst=v[:, :width], data1=src, data2=t[:, :width], op="add")
        p.scalar_tensor_tensor(dst=v[:, :width], data=src, op0="add", operand0=1.0, op1="add", operand1=t[:, :width])
        p.reciprocal(dst=v[:, :width], data=src)
        p.tensor_reduce(dst=one, op="add", data=src, axis=1)
    p.nc_transpose(dst=small, data=turned[:32, :32], engine="vector")
    p.memset(dst=wide, value=0.0)
    for k in range(5):
        p.dma_copy(dst=y[:, k * 128 : k * 128 + 128], src=v[:, :128], engine="scalar")
    p.dma_copy(dst=y[:, 640:], src=v[:, 640:], engine="sync")
    p.dma_copy(dst=y[:, 640:], src=u[:, 640:], dge_mode="none")
    p.dma_copy(dst=p.hbm((128, 4), "float32"), src=u[:, :4], engine="scalar")
    p.dma_copy(dst=p.hbm((128, 1024), "float32"), src=v)
    p.dma_copy(dst=y, src=v)
    p.dma_copy(dst=u, src=x, engine="scalar", dge_mode="none")
    p.nc_transpose(dst=h[:32, :32], data=g[:32, :32], engine="vector")
    p.tensor_copy(dst=t[32:64], src=u[32:64])
    for dtype, index, memory in (("float32", "uint32", "sbuf"), ("bfloat16", "uint16", "sbuf"), ("float32", "uint32", "psum")):
        rows_of_one_value(p, dtype, index, memory, has)
        accumulated_and_random(p, dtype, memory)
    other_dma(p, on.numbers["dma.transpose.indirect_available"].value)
    across_partitions(p, on)
    if has("tensor.mx.cycles_per_row"):
        newest(p)
    p.nop(engine="tensor")
    p.activation(dst=u, op="copy", data=t, bias=one)
    p.tensor_copy(dst=t, src=h)
    kept, count, other = p.hbm((1,), "int32"), p.register_alloc(), p.register_alloc(1)
    for e in ("tensor", "vector", "scalar", "gpsimd", "sync"):
        p.register_move(count, 1, engine=e)
        p.register_alu(count, count, "add", 1, engine=e)
        p.register_store(kept, count, engine=e)
        p.register_load(count, kept, engine=e)
        p.compare_branch(count, "less", 1, engine=e)
    p.register_alu(count, count, "add", other)
    p.dma_copy(dst=u[:, :512], src=p.input("apart", (128, 2, 512), "float32")[:, :, :256])  # 256 rows
    p.dma_copy(dst=p.output("tiny", (128, 8), "float32"), src=u[:, :8])  # neighbours in HBM
    return p


def rows_of_one_value(p: Program, dtype: str, index: str, memory: str, has: Callable[[str], bool]) -> None:
    """Scan, searches, statistics, selections, shuffle and gather of one type, with sources in one memory."""
    a = p.psum((128, 64), dtype) if memory == "psum" else p.sbuf((128, 64), dtype)
    d, one, eight, six = p.sbuf((128, 64), dtype), p.sbuf((128, 1), "float32"), p.sbuf((128, 8), dtype), p.sbuf((128, 6), dtype)
    where, mask, places = p.sbuf((128, 8), index), p.sbuf((128, 64), index), p.sbuf((128, 64), "uint32")
    for written in (a, d, one, mask, places):
        p.memset(dst=written, value=1)
    p.tensor_scalar_reduce(dst=d, data=a, op0="add", operand0=1.0, reduce_op="add", reduce_res=one)
    p.tensor_tensor_scan(dst=d, data0=a, data1=d, initial=0.0, op0="multiply", op1="add")
    p.max8(dst=eight, src=a)
    p.nc_find_index8(dst=where, data=a, vals=eight)
    p.nc_match_replace8(dst=d, data=a, vals=eight, imm=0.0)
    p.bn_stats(dst=six, data=a)
    p.bn_aggr(dst=d[:, :2], data=a[:, :6])
    p.tensor_copy_predicated(dst=d, src=a, predicate=mask)
    if has("vector.range_select.cycles_per_element"):
        p.range_select(dst=d, on_true_tile=a, comp_op0="greater", comp_op1="less", bound0=one, bound1=one)
    p.nc_stream_shuffle(dst=d, src=a, shuffle_mask=[0] * 32)
    p.nc_n_gather(dst=d, data=d, indices=places)


def other_dma(p: Program, gathered: bool) -> None:
    """Transposes, sums, and addresses from tensors and a register; transposes of `gathered` rows too."""
    x, at, one = p.hbm((512, 64), "bfloat16"), p.sbuf((128, 4), "uint32"), p.sbuf((1, 1), "uint32")
    t, u = p.sbuf((128, 64), "bfloat16"), p.sbuf((64, 512), "bfloat16")
    for written in (t, at, one):
        p.memset(dst=written, value=0)
    for k in range(4):
        p.dma_copy(dst=x[128 * k : 128 * k + 128], src=t)
    p.dma_transpose(dst=u, src=x)
    p.dma_transpose(dst=u[:, :128], src=t)
    if gathered:
        p.dma_transpose(dst=u, src=x.ap([[64, 512], [1, 64]], vector_offset=at))
    rows = p.sbuf((128, 1), "uint32")
    p.memset(dst=rows, value=0)
    p.dma_copy(dst=t, src=x.ap([[64, 128], [1, 64]], vector_offset=rows))
    p.dma_copy(dst=t, src=x.ap([[64, 128], [1, 64]], scalar_offset=one))
    p.dma_copy(dst=t, src=x.ap([[64, 128], [1, 64]], scalar_offset=one), engine="gpsimd")
    p.dma_copy(dst=t, src=x.ap([[64, 128], [1, 64]], scalar_offset=p.register_alloc(1)))
    p.dma_compute(dst=t, srcs=[t, x[:128], x[:128]], reduce_op="add")
    p.tensor_copy(dst=t, src=t)
    for k in range(2):
        p.tensor_copy(dst=t[:, k], src=t.select(1, one))
        p.tensor_copy(dst=t[:, k], src=t.select(1, p.register_alloc(k)))


def accumulated_and_random(p: Program, dtype: str, memory: str) -> None:
    """What uses VectorE's accumulator or makes random numbers, with sources in one memory."""
    make = p.psum if memory == "psum" else p.sbuf
    a, d, one, mask = make((128, 64), dtype), p.sbuf((128, 64), dtype), p.sbuf((128, 1), "float32"), p.sbuf((128, 64), "uint16")
    bits, seed = make((128, 64), "uint16" if dtype == "bfloat16" else "uint32"), make((1, 1), "uint32")
    for written in (a, one, mask, seed):
        p.memset(dst=written, value=1)
    p.tensor_scalar_cumulative(dst=d, src=a, op0="add", op1="add", imm0=1.0)
    p.select_reduce(dst=d, predicate=mask, on_true=a, on_false=0.0, reduce_res=one, reduce_cmd="reset_reduce")
    p.dropout(dst=d, data=a, prob=0.5)
    p.rng(dst=bits)
    p.set_rng_seed(src_seeds=seed)


def across_partitions(p: Program, on: Chip) -> None:
    """What GpSimd does across partitions, and the array's tiles, as far as a chip has it."""
    has = on.reader().has
    x, numbers, bits = p.sbuf((128, 64), "float32"), p.sbuf((128, 64), "int32"), p.sbuf((128, 64), "uint32")
    small, index = p.sbuf((128, 64), "bfloat16"), p.sbuf((128, 4), "uint16")
    for written in (x, numbers, bits, small, index):
        p.memset(dst=written, value=1)
    p.tensor_partition_reduce(dst=x[:1], op="add", data=x)
    p.sequence_bounds(dst=numbers[:1], segment_ids=numbers[:1, :32])
    p.local_gather(dst=x, src_buffer=x, index=index)
    if has("gpsimd.nonzero_with_count.cycles_per_element"):
        p.nonzero_with_count(dst=numbers, src=numbers[:, :63])
    p.topk(val_dst=small[:, :8], idx_dst=bits[:, :8], src=small, n=100)
    if has("gpsimd.rng.cycles_per_element"):
        p.rng(dst=bits, engine="gpsimd")
        p.rand_set_state(src_seeds=bits[:, :6])
        p.rand_get_state(dst=bits[:, :6])
    least = on.numbers["tensor.smallest_tile"].value
    p.nc_matmul(dst=p.psum((32, 64)), stationary=small[:64, :32], moving=small[:64], tile_position=(0, 0), tile_size=(64, least))
    if not on.numbers["tensor.double_row"].value:
        return
    two = p.sbuf((128, 128), "float8_e4m3")
    p.memset(dst=two, value=1)
    two = two.reshape(128, 2, 64)
    p.nc_matmul(dst=p.psum((64, 64)), stationary=two, moving=two, perf_mode="double_row")


def newest(p: Program) -> None:
    """Every call that NeuronCore-v3 lacks."""
    for dtype, memory in (("float32", "sbuf"), ("bfloat16", "sbuf"), ("float32", "psum")):
        make = p.psum if memory == "psum" else p.sbuf
        a, d = make((128, 64), dtype), p.sbuf((128, 64), dtype)
        p.memset(dst=a, value=1)
        p.exponential(dst=d, src=a)
        p.rand2(dst=a, min=0.0, max=1.0)
        p.tensor_tensor(dst=d, data1=a, data2=d, op="abs_max")
        p.activate2(dst=d, op="exp", data=a, imm0=1.0, imm1=0.0, op0="add", op1="bypass")
    state, there = p.sbuf((128, 24), "uint32"), p.psum((128, 24), "uint32")
    p.rand_get_state(dst=state, engine="vector")
    p.rand_get_state(dst=there, engine="vector")
    p.dma_copy(dst=p.hbm((1, 1), "uint32"), src=p.constant(np.array([[1]]), "uint32"), priority=3)
    chosen = p.sbuf((128, 4), "uint16")
    p.memset(dst=chosen, value=0)
    p.tensor_copy(dst=d, src=a.indirect(chosen, 64))
    q, scales, source = p.sbuf((128, 512), "float8_e4m3fn_x4"), p.sbuf((128, 512), "uint8"), p.sbuf((128, 2048), "bfloat16")
    p.memset(dst=source, value=1)
    p.quantize_mx(dst=q, src=source, dst_scale=scales)
    for _ in range(3):
        p.nc_matmul_mx(dst=p.psum((128, 512)), stationary=q[:, :128], moving=q, stationary_scale=scales[:, :128], moving_scale=scales)
    p.nc_matmul(dst=p.psum((64, 1024)), stationary=source[:, :64], moving=source[:, :1024])
    p.nc_matmul(dst=p.psum((64, 64), "bfloat16"), stationary=source[:, :64], moving=source[:, :64])
    eight = p.sbuf((128, 64), "float8_e4m3fn")
    p.memset(dst=eight, value=1)
    p.nc_matmul(dst=p.psum((64, 64)), stationary=eight, moving=eight)


PROGRAMS = {name: everything(c) for name, c in CHIPS.items()}
PROGRAM = PROGRAMS["trn2"]


def fingerprint(name: str, what_if: dict[str, Any]) -> Any:
    """Everything a run can depend on: the table and the fixed parts."""
    data = CHIPS[name].what_if(what_if)
    compiled, reader = compile_program(PROGRAMS[name], data)
    table, _ = lower(compiled.steps, data)
    columns = [getattr(table, column) for column in type(table).__slots__ if column != "__weakref__"]
    fixed = [data.reader()(f"program.{k}_ns") for k in ("prologue", "epilogue", "benchmark")]
    roof = data.reader()("memory.hbm_bytes_per_ns")
    return (
        [c.tobytes() if isinstance(c, np.ndarray) else c for c in columns],
        fixed,
        roof,
        reader("types.e4m3_max"),
        sorted(compiled.addresses.items()),
    )


PLAIN = {name: fingerprint(name, {}) for name in CHIPS}


def other(name: str, key: str) -> Any:
    """A value that differs from the chip's and is legal."""
    number, entry = CHIPS[name].numbers[key].value, SCHEMA[key]
    if entry.kind == "flag":
        return not number
    if entry.kind == "sets":
        return [[], ["exp", "rsqrt"]]
    if entry.kind.startswith("word:"):
        return next(w for w in entry.kind.removeprefix("word:").split("|") if w != number)
    special = {
        "types.e4m3_max": 448,
        "tensor.fp32_onezero_passes": 2,
        "dma.small_row_bytes": 100,
        "dma.software.packet_bytes": 8192,
        "memory.partitions": 64,
        "dma.max_row_bytes": 8192,
        "tensor.gate.ratio": Fraction(1, 3),
        "dma.transpose.hbm_ratio": Fraction(1, 3),
        "dma.transpose.sbuf_ratio": Fraction(1, 3),
        "dma.compute.pair_ratio": Fraction(1, 3),
        "tensor.activity_throttle": 1.69,
        "tensor.result_banks": 1,
    }
    special |= {f"sequencer.{e}.queue_depth": 1 for e in ("tensor", "vector", "scalar", "gpsimd")}
    special |= {"sequencer.registers": 1}
    special |= {"memory.sbuf_partition_bytes": 212000, "memory.psum_partition_bytes": 4096, "memory.sbuf_reserved_low_bytes": 16388}
    special |= {
        "memory.sbuf_max_elements": 100,
        "memory.psum_max_elements": 100,
        "memory.hbm_bytes": 1000,
        "memory.partition_quadrant": 48,
        "memory.psum_bank_bytes": 1024,
    }
    return special.get(key, number * 2 + 7)


FLAGS = (
    "tensor.double_row", "tensor.bf16_results", "scalar.activate2", "vector.magnitude_operators",
    "dma.transpose.indirect_available", "scalar.number_bias", "scalar.tensor_scalar.any_operators", "tensor.sums_anywhere",
)  # fmt: skip


def idle(on: Chip) -> set[str]:
    """Numbers that say nothing where another is 0 or none, and what a chip would have if it had the calls."""
    value = {k: n.value for k, n in on.numbers.items()}
    limit = {k for k in SCHEMA if k.startswith("dma.core_") and "bytes_per_ns" not in k and not value["dma.core_load_bytes_per_ns"]}
    rows = {"dma.software.interval_rows"} if not value["dma.software.further_row_ns"] else set()
    banks = {"tensor.result_banks"} if value["tensor.result_banks"] == 1 else set()
    moves = set() if value["scalar.tensor_copy.available"] else {"scalar.sixteen_bit_ratio"}  # no instruction of its own
    one_rate = {"types.fp8_fast"} if value["vector.copy.sixteen_bit_ratio"] == value["vector.copy.sbuf_ratio"] else set()
    return limit | rows | banks | moves | one_rate | {k for k in FLAGS if not value[k]}


IDLE = {name: idle(c) for name, c in CHIPS.items()}


@pytest.mark.parametrize(("name", "key"), [(n, k) for n, c in CHIPS.items() for k in sorted(SCHEMA) if c.numbers[k].value is not None])
def test_every_chip_number_changes_a_run_or_is_refused(name: str, key: str) -> None:
    changed: Any = "refused"
    with contextlib.suppress(ProgramError, Unsupported, Unspecified, Unimplemented):  # but not ChipError: the value is a legal one
        changed = fingerprint(name, {key: other(name, key)})
    assert (changed != PLAIN[name]) == (key not in IDLE[name])


@pytest.mark.parametrize("key", sorted(SCHEMA))
def test_some_chip_has_each_number(key: str) -> None:
    assert any(c.numbers[key].value is not None and key not in IDLE[name] for name, c in CHIPS.items())


# chips without a mechanism: what it overrides has these values anyway, or the chip lacks the thing
NEWER = {"hardware-descriptor-generation", "dma-store-ring-limit", "shared-packets", "narrowing"}
V2 = {"dma-core-limit", "ports", "descriptor-packets"}
LACKING = {"trn1": NEWER, "inf2": NEWER, "trn2": V2, "trn3": V2}


@pytest.mark.parametrize(("name", "mechanism"), [(n, m) for n in CHIPS for m in MECHANISMS])
def test_every_mechanism_changes_a_run_when_switched_off_where_the_chip_has_it(name: str, mechanism: str) -> None:
    assert (fingerprint(name, without([mechanism])) != PLAIN[name]) == (mechanism not in LACKING[name])


@pytest.mark.parametrize(("name", "mechanism"), [(n, m) for n in CHIPS for m in MECHANISMS if m not in LACKING[n]])
def test_every_mechanism_changes_time_when_switched_off(name: str, mechanism: str) -> None:
    program = PROGRAMS[name]
    assert simulate(program, name, values=False, without=[mechanism]).timeline != simulate(program, name, values=False).timeline


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("vector.gap", 3, "what-if vector.gap: unknown key 'vector.gap'; a key of the chip schema; did you mean 'vector.gap_ns'?"),
        ("vector.gap_ns", -3, "what-if vector.gap_ns: -3; a number of at least 0"),
        ("vector.gap_ns", "fast", "what-if vector.gap_ns: 'fast'; a number of at least 0"),
        ("vector.gap_ns", "1/0", "what-if vector.gap_ns: '1/0'; a number of at least 0"),
        ("vector.gap_ns", float("nan"), "what-if vector.gap_ns: nan; a number of at least 0"),
        ("dma.engines", 1.5, "what-if dma.engines: 1.5; a whole number of at least 1"),
        ("tensor.transpose_mode", "maybe", "what-if tensor.transpose_mode: 'maybe'; true or false"),
        ("scalar.table_sets", [], "what-if scalar.table_sets: []; a list of lists of names, at least one"),
        ("tensor.gate.kind", "token", "what-if tensor.gate.kind: 'token'; one of windows, streaks, none"),
    ],
)
def test_an_unfit_override_is_refused_with_its_name(key: str, value: Any, message: str) -> None:
    with pytest.raises(ChipError) as e:
        simulate(PROGRAM, values=False, what_if={key: value})
    assert str(e.value) == message


def test_an_override_is_listed_with_the_result_and_counts_as_assumed() -> None:
    r = simulate(PROGRAM, values=False, what_if={"vector.gap_ns": 100})
    assert r.summary()["what_if"] == {"vector.gap_ns": "100"}
    assert r.assumed["vector.gap_ns"] == "assumed: what-if"


def test_a_result_names_the_assumed_numbers_it_rests_on_and_no_others() -> None:
    p = Program("store")
    y, t = p.output("y", (128, 16), "float32"), p.sbuf((128, 16), "float32")
    p.memset(dst=t, value=1.0)
    p.dma_copy(dst=y, src=t)
    assert set(simulate(p).assumed) == {"sequencer.gpsimd.event_semaphore_gap_ns"}


def test_a_clock_is_among_the_numbers_that_a_run_on_its_engine_rests_on() -> None:
    softmax = workloads.load("softmax").build()
    r = simulate(softmax, values=False, what_if={"clock.vector_mhz": 480})
    assert r.assumed["clock.vector_mhz"] == "assumed: what-if"
    assert "clock.tensor_mhz" not in r.used


def test_a_program_without_products_rests_on_no_clock_gate_and_one_without_dma_on_no_dma_engine() -> None:
    softmax = simulate(workloads.load("softmax").build(), values=False, without=["clock-gate"])
    assert not [k for k in softmax.used if k.startswith("tensor.gate.")]
    assert not [k for k in softmax.assumed if k.startswith("tensor.gate.")]
    p = Program("fill")
    p.memset(dst=p.sbuf((128, 8), "float32"), value=1.0)
    assert {k for k in simulate(p).used if k.startswith("dma.")} <= {"dma.partitions_per_engine"}


def test_a_text_where_a_list_of_mechanisms_is_wanted_is_refused_whole() -> None:
    with pytest.raises(ProgramError, match=r"without: the text 'clock-gate'; a list of names, \['clock-gate'\]"):
        simulate(workloads.load("softmax").build(), values=False, without="clock-gate")


def test_an_output_that_was_not_computed_says_so() -> None:
    r = simulate(workloads.load("softmax").build())
    assert dict(r.outputs) == {}
    with pytest.raises(ProgramError, match="no values: 'y' was not computed; inputs, or values=True, of simulate"):
        r.outputs["y"]
