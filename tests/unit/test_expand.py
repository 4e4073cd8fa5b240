"""Calls become machine instructions: which, in what order, and what is put in between (lowering rules B3 to B6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from nc_sim import Program, ProgramError, Unimplemented, Unsupported, chip
from nc_sim.expand import Expanded, _Sums, expand
from nc_sim.isa import Engine, Step, View
from nc_sim.isa.dma import DmaDirect2d
from nc_sim.isa.scalar import Activate, ReadAccumulator, TableLoad
from nc_sim.isa.tensor import LoadWeights, Matmul

TRN2 = chip.load("trn2")


def expanded(p: Program, **what_if: Any) -> Expanded:
    return expand(p, TRN2.what_if({k.replace("__", "."): v for k, v in what_if.items()}).reader())


def words(p: Program, engine: Engine | None = None, **what_if: Any) -> list[str]:
    """Machine instructions as `mnemonic` with what tells them apart; of one queue, if asked."""
    return [_word(s) for s in expanded(p, **what_if).steps if engine in (None, s.engine)]


def _word(step: Step) -> str:
    i = step.instruction
    if isinstance(i, LoadWeights | Matmul):
        return f"{i.mnemonic} {i.passes}"
    if isinstance(i, Activate):
        return f"activate {i.op}"
    if isinstance(i, TableLoad):
        return f"table {i.function}"
    return i.mnemonic


def operands(p: Program, dtype: str, free: int = 8) -> tuple[View, View, View]:
    """stationary [64, 32], moving [64, free], and their product's place."""
    return p.sbuf((64, 32), dtype, name="w"), p.sbuf((64, free), dtype, name="m"), p.psum((32, free), name="out")


# --- products --------------------------------------------------------------------------------------------------------


def test_an_fp32_product_is_ldweights_and_matmul_low_then_high() -> None:
    p = Program("product")
    w, m, out = operands(p, "float32")
    p.nc_matmul(dst=out, stationary=w, moving=m)
    assert words(p) == ["ldweights low", "matmul low", "ldweights high", "matmul high"]
    steps = expanded(p).steps
    assert [s.instruction.views[0][1] for s in steps] == [w, out, w, out]
    assert [s.instruction.src for s in steps if isinstance(s.instruction, Matmul)] == [m, m]
    assert [s.instruction.columns for s in steps if isinstance(s.instruction, Matmul)] == [32, 32]
    assert [s.call for s in steps] == [0] * 4


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "tfloat32", "float8_e4m3", "float8_e5m2"])
def test_a_product_of_any_other_type_is_one_pair(dtype: str) -> None:
    p = Program("product")
    w, m, out = operands(p, dtype)
    p.nc_matmul(dst=out, stationary=w, moving=m)
    assert words(p) == ["ldweights single", "matmul single"]


@pytest.mark.parametrize("flag", ["is_stationary_onezero", "is_moving_onezero"])
def test_an_fp32_product_with_an_operand_of_zeros_and_ones_is_one_pair(flag: str) -> None:
    p = Program("product")
    w, m, out = operands(p, "float32")
    p.nc_matmul(dst=out, stationary=w, moving=m, **{flag: True})
    assert words(p) == ["ldweights single", "matmul single"]
    assert len(words(p, tensor__fp32_onezero_passes=2)) == 4


def test_the_chip_says_how_many_passes_fp32_takes() -> None:
    p = Program("product")
    w, m, out = operands(p, "float32")
    p.nc_matmul(dst=out, stationary=w, moving=m)
    assert words(p, tensor__fp32_passes=1) == ["ldweights single", "matmul single"]
    with pytest.raises(Unimplemented) as caught:
        expanded(p, tensor__fp32_passes=4)
    assert (
        str(caught.value)
        == f"{p.steps[0].line} nc_matmul: 4 passes for fp32; 1 or 2: LOW and HIGH are the passes known (nki.isa.nc_matmul)"
    )


def test_a_product_of_mixed_narrow_types_is_one_pair() -> None:
    p = Program("mixed")
    w, m, out = p.sbuf((64, 32), "bfloat16"), p.sbuf((64, 8), "float16"), p.psum((32, 8))
    p.nc_matmul(dst=out, stationary=w, moving=m)
    assert words(p) == ["ldweights single", "matmul single"]


def test_double_rows_are_one_pair_of_their_own_mode() -> None:
    p = Program("mode")
    w, m, out = p.sbuf((64, 2, 32), "float8_e4m3"), p.sbuf((64, 2, 8), "float8_e5m2"), p.psum((32, 8))
    p.nc_matmul(dst=out, stationary=w, moving=m, perf_mode="double_row")
    assert words(p) == ["ldweights_mode single", "matmul_mode single"]


# --- accumulation ----------------------------------------------------------------------------------------------------


def flags(p: Program) -> list[bool]:
    """Whether each MATMUL accumulates."""
    return [s.instruction.accumulate for s in expanded(p).steps if isinstance(s.instruction, Matmul)]


def test_the_first_product_into_a_place_overwrites_and_later_ones_accumulate() -> None:
    p = Program("sum")
    w, m, out = operands(p, "bfloat16")
    for _ in range(3):
        p.nc_matmul(dst=out, stationary=w, moving=m)
    assert flags(p) == [False, True, True]


def test_both_passes_of_an_fp32_product_carry_the_flag_of_the_call() -> None:
    p = Program("sum")
    w, m, out = operands(p, "float32")
    for _ in range(2):
        p.nc_matmul(dst=out, stationary=w, moving=m)
    assert flags(p) == [False, False, True, True]


def test_products_into_other_places_do_not_accumulate() -> None:
    p = Program("places")
    w, m, out = operands(p, "bfloat16")
    other = p.psum((32, 8))
    p.nc_matmul(dst=out[:, :4], stationary=w, moving=m[:, :4])
    p.nc_matmul(dst=out[:, 4:], stationary=w, moving=m[:, 4:])
    p.nc_matmul(dst=other, stationary=w, moving=m)
    assert flags(p) == [False, False, False]


def test_a_product_into_a_part_of_what_was_started_accumulates() -> None:
    p = Program("part")
    w, m, out = operands(p, "bfloat16")
    p.nc_matmul(dst=out, stationary=w, moving=m)
    p.nc_matmul(dst=out[:, 2:4], stationary=w, moving=m[:, 2:4])
    assert flags(p) == [False, True]


def test_a_product_into_more_than_was_started_must_say_what_it_does() -> None:
    p = Program("more")
    w, m, out = operands(p, "bfloat16")
    p.nc_matmul(dst=out[:, 2:6], stationary=w, moving=m[:, 2:6])
    p.nc_matmul(dst=out[:, :4], stationary=w, moving=m[:, :4])
    with pytest.raises(ProgramError) as caught:
        expanded(p)
    assert str(caught.value) == (
        f"{p.steps[1].line} nc_matmul: accumulate=None into psum:out+0x0:float32[1][4]@0:32, of which an earlier product started a part; "
        "accumulate=True or False (nki.isa.nc_matmul)"
    )


def test_a_sum_can_be_started_again() -> None:
    p = Program("again")
    w, m, out = operands(p, "bfloat16")
    for accumulate in (None, None, False, None, True):
        p.nc_matmul(dst=out, stationary=w, moving=m, accumulate=accumulate)
    assert flags(p) == [False, True, False, True, True]


def test_a_sum_that_was_read_does_not_go_on_unless_told_to() -> None:
    """Whether a later product of its own accord goes on with the sum or starts anew cannot be told from the calls."""

    def program(*accumulate: bool | None) -> Program:
        p = Program("read")
        w, m, out = operands(p, "bfloat16")
        t = p.sbuf((32, 8), "float32")
        for k, a in enumerate(accumulate):
            p.nc_matmul(dst=out, stationary=w, moving=m, accumulate=a)
            if k == 0:
                p.tensor_copy(dst=t, src=out)
        return p

    p = program(None, None)
    with pytest.raises(ProgramError) as caught:
        expanded(p)
    assert str(caught.value) == (
        f"{p.steps[2].line} nc_matmul: accumulate=None into psum:out+0x0:float32[1][8]@0:32, which was read or written since its last "
        "product; accumulate=True to go on with the sum, or False to start anew (nki.isa.nc_matmul)"
    )
    assert flags(program(None, True)) == [False, True]
    assert flags(program(None, False, None)) == [False, False, True]


def test_a_sum_told_to_go_on_goes_on() -> None:
    p = Program("goes_on")
    w, m, out = operands(p, "bfloat16")
    p.nc_matmul(dst=out, stationary=w, moving=m)
    p.tensor_copy(dst=p.sbuf((32, 8), "float32"), src=out)
    p.nc_matmul(dst=out, stationary=w, moving=m, accumulate=True)
    p.nc_matmul(dst=out, stationary=w, moving=m)
    assert flags(p) == [False, True, True]


def test_starting_one_part_anew_says_nothing_of_another() -> None:
    p = Program("parts")
    w, m, out = operands(p, "bfloat16")
    for part in (out[:, :4], out[:, 4:]):
        p.nc_matmul(dst=part, stationary=w, moving=m[:, :4])
    p.tensor_copy(dst=p.sbuf((32, 8), "float32"), src=out)
    p.nc_matmul(dst=out[:, :4], stationary=w, moving=m[:, :4], accumulate=False)
    p.nc_matmul(dst=out[:, 4:], stationary=w, moving=m[:, :4])
    with pytest.raises(ProgramError):
        expanded(p)


def test_a_product_that_accumulates_into_nothing_started_keeps_its_flag() -> None:
    p = Program("true")
    w, m, out = operands(p, "bfloat16")
    p.nc_matmul(dst=out, stationary=w, moving=m, accumulate=True)
    p.nc_matmul(dst=out, stationary=w, moving=m)  # still the first that may overwrite
    assert flags(p) == [True, False]


def test_a_transpose_starts_no_sum() -> None:
    p = Program("transpose")
    t, out = p.sbuf((32, 32), "float32"), p.psum((32, 32))
    p.nc_transpose(dst=out, data=t)
    p.nc_matmul(dst=out, stationary=t, moving=t)
    p.nc_matmul(dst=out, stationary=t, moving=t)
    assert flags(p) == [False, False, False, True, True]


# --- transposes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_transpose_is_one_pair_with_the_identity_as_moving_operand(dtype: str) -> None:
    p = Program("transpose")
    t, out = p.sbuf((64, 32), dtype, name="t"), p.psum((32, 64), dtype, name="out")
    p.nc_transpose(dst=out, data=t)
    load, weights, product = expanded(p).steps
    assert isinstance(load.instruction, DmaDirect2d)
    identity = load.instruction.dst
    assert identity.shape == (128, 128)
    assert weights.instruction == LoadWeights(src=t, transpose=True, passes="single")
    assert product.instruction == Matmul(dst=out, src=identity[:64, :64], columns=32, transpose=True)


def test_an_identity_is_loaded_once_for_each_type_ahead_of_every_other_dma_of_its_queue() -> None:
    p = Program("identities")
    x = p.input("x", (32, 32), "float32")
    t, narrow = p.sbuf((32, 32), "float32", name="t"), p.sbuf((32, 32), "bfloat16", name="narrow")
    p.dma_copy(dst=t, src=x, engine="sync")
    p.tensor_copy(dst=narrow, src=t)
    for _ in range(2):
        p.nc_transpose(dst=p.psum((32, 32), "bfloat16"), data=narrow)
        p.nc_transpose(dst=p.psum((32, 32), "float32"), data=t)
    e = expanded(p)
    sync = [s for s in e.steps if s.engine is Engine.SYNC]
    assert [str(s.instruction.writes[0]) for s in sync] == [
        "sbuf:$identity_bfloat16+0x0:bfloat16[1][128]@0:128",  # the first used first
        "sbuf:$identity_float32+0x0:float32[1][128]@0:128",
        "sbuf:t+0x0:float32[1][32]@0:32",
    ]
    assert [s.instruction.generation for s in sync if isinstance(s.instruction, DmaDirect2d)] == ["hardware"] * 3
    assert [s.call for s in sync] == [-1, -1, 0]
    source = e.tensors["$identity_float32.hbm"]
    assert source.kind == "constant"
    assert source.data == np.eye(128, dtype=np.float32).tobytes()


def test_a_chip_without_hardware_descriptors_loads_the_identity_by_software() -> None:
    p = Program("software")
    p.nc_transpose(dst=p.psum((32, 32)), data=p.sbuf((32, 32), "float32"))
    load = expanded(p, dma__hardware__available="false").steps[0]
    assert isinstance(load.instruction, DmaDirect2d)
    assert (load.engine, load.instruction.generation) == (Engine.GPSIMD, "software")


def test_a_transpose_on_the_vector_engine_is_one_instruction_and_needs_no_identity() -> None:
    p = Program("vector")
    p.nc_transpose(dst=p.sbuf((32, 16), "float32"), data=p.sbuf((16, 32), "float32"))
    p.nc_transpose(dst=p.psum((32, 16)), data=p.sbuf((16, 32), "float32"), engine="vector")
    assert words(p) == ["transpose", "transpose"]


def test_a_matmul_that_transposes_is_one_pair_even_in_fp32_and_brings_no_identity() -> None:
    p = Program("own_identity")
    t, eye, out = p.sbuf((32, 32), "float32"), p.sbuf((32, 32), "float32"), p.psum((32, 32))
    p.nc_matmul(dst=out, stationary=t, moving=eye, is_transpose=True)
    assert words(p) == ["ldweights single", "matmul single"]
    assert all(s.instruction.transpose for s in expanded(p).steps if isinstance(s.instruction, LoadWeights | Matmul))


def test_a_chip_without_the_transpose_mode_transposes_by_a_product_with_the_identity() -> None:
    p = Program("no_mode")
    t, out = p.sbuf((32, 32), "float32"), p.psum((32, 32))
    p.nc_matmul(dst=out, stationary=t, moving=t, is_transpose=True)
    with pytest.raises(Unsupported) as unsupported:
        expanded(p, tensor__transpose_mode="false")
    assert str(unsupported.value) == (
        f"{p.steps[0].line} nc_matmul: is_transpose=True; a chip with the PE's transpose mode (NeuronCore-v3 and later) (nki.isa.nc_matmul)"
    )
    p = Program("no_mode")
    t, out = p.sbuf((32, 32), "float32"), p.psum((32, 32))
    p.nc_transpose(dst=out, data=t)
    steps = [s.instruction for s in expanded(p, tensor__transpose_mode="false").steps]
    assert [i.passes for i in steps if isinstance(i, Matmul)] == ["low", "high"]  # as any fp32 product
    assert not any(i.transpose for i in steps if isinstance(i, LoadWeights | Matmul))
    assert [i.src.tensor for i in steps if isinstance(i, LoadWeights)] == [t.tensor, t.tensor]
    assert [i.src.tensor for i in steps if isinstance(i, Matmul)] == ["$identity_float32"] * 2
    assert {(i.dst.tensor, i.dst.dtype.name) for i in steps if isinstance(i, Matmul)} == {(out.tensor, "float32")}


# --- activations and their tables ------------------------------------------------------------------------------------


def test_an_activation_that_stores_its_sums_is_two_instructions() -> None:
    p = Program("sums")
    a, total = p.sbuf((32, 8), "float32"), p.sbuf((32, 1), "float32", name="total")
    p.activation(dst=a, op="exp", data=a, reduce_op="add", reduce_res=total)
    activate, read = (s.instruction for s in expanded(p).steps[1:])
    assert isinstance(activate, Activate)
    assert activate.reduce_cmd == "reset_reduce"  # the sums of this instruction alone
    assert read == ReadAccumulator(dst=total)


def test_an_activation_keeps_the_accumulator_command_it_was_given() -> None:
    p = Program("command")
    a, total = p.sbuf((32, 8), "float32"), p.sbuf((32, 1), "float32")
    p.activation(dst=a, op="exp", data=a, reduce_op="add", reduce_cmd="reset_reduce")
    p.activation(dst=a, op="exp", data=a, reduce_op="add", reduce_cmd="reduce", reduce_res=total)
    assert words(p) == ["table exp", "activate exp", "activate exp", "act_read_accumulator"]
    assert [s.instruction.reduce_cmd for s in expanded(p).steps if isinstance(s.instruction, Activate)] == ["reset_reduce", "reduce"]


def activations(*functions: str) -> Program:
    p = Program("activations")
    a = p.sbuf((32, 8), "float32")
    p.memset(dst=a, value=1.0)
    for f in functions:
        p.activation(dst=a, op=f, data=a)
    return p


# the first set needs no load; a function in none has its own
SETS = [["copy", "square"], ["exp"], ["sqrt", "rsqrt"], ["gelu", "gelu_apprx_tanh"]]


@pytest.mark.parametrize(
    ("functions", "wanted"),
    [
        ("exp", "table:exp exp"),
        ("exp exp", "table:exp exp exp"),
        ("exp copy square exp", "table:exp exp copy square exp"),
        ("copy square", "table:copy copy square"),
        ("copy tanh", "table:tanh copy tanh"),  # the one at the head is the first that needs one
        ("tanh exp", "table:tanh tanh table:exp exp"),
        ("tanh exp tanh", "table:tanh tanh table:exp exp table:tanh tanh"),
        ("exp copy tanh square tanh", "table:exp exp copy table:tanh tanh square tanh"),
        ("tanh sqrt rsqrt sqrt", "table:tanh tanh table:sqrt sqrt rsqrt sqrt"),
        ("sqrt rsqrt sqrt", "table:sqrt sqrt rsqrt sqrt"),
        ("gelu_apprx_tanh gelu sqrt", "table:gelu_apprx_tanh gelu_apprx_tanh gelu table:sqrt sqrt"),
        ("tanh sigmoid", "table:tanh tanh table:sigmoid sigmoid"),
    ],
)
def test_tables_are_loaded_at_the_head_and_where_a_function_leaves_the_resident_set(functions: str, wanted: str) -> None:
    got = words(activations(*functions.split()), Engine.SCALAR, scalar__table_sets=SETS)
    assert [w.removeprefix("activate ").replace(" ", ":") for w in got] == wanted.split()


def test_on_trn2_square_and_rsqrt_share_a_set_and_a_copy_needs_none() -> None:
    got = words(activations("square", "copy", "rsqrt", "exp", "copy", "tanh"), Engine.SCALAR)
    assert [w for w in got if w.startswith("table")] == ["table square", "table exp", "table tanh"]


def test_the_first_table_is_loaded_at_the_head_of_scalars_queue_also_ahead_of_a_dma() -> None:
    p = Program("head")
    h, a = p.hbm((32, 8), "float32"), p.sbuf((32, 8), "float32")
    p.memset(dst=a, value=1.0)
    p.dma_copy(dst=h, src=a)  # triggered by ScalarE
    p.activation(dst=a, op="tanh", data=a)
    assert words(p) == ["memset", "table tanh", "dma_direct2d", "activate tanh"]
    table = expanded(p).steps[1]
    assert (table.line, table.call) == (p.steps[1].line, -1)


@pytest.mark.parametrize("call", ["tensor_copy", "tensor_scalar"])
def test_a_copy_or_a_scaling_on_scalar_loads_the_table_of_copies(call: str) -> None:
    p = Program("copies")
    a = p.sbuf((32, 8), "float32")
    if call == "tensor_copy":
        p.tensor_copy(dst=a, src=a, engine="scalar")
    else:
        p.tensor_scalar(dst=a, data=a, op0="multiply", operand0=2.0, engine="scalar")
    assert words(p) == ["table copy", call]


def test_a_program_without_compute_on_scalar_loads_no_table() -> None:
    p = Program("none")
    h, a = p.hbm((32, 8), "float32"), p.sbuf((32, 8), "float32")
    p.tensor_copy(dst=a, src=a)
    p.dma_copy(dst=h, src=a)  # triggered by ScalarE
    p.nop(engine="scalar")
    assert words(p) == ["tensor_copy", "dma_direct2d", "nop"]


# --- DMA -------------------------------------------------------------------------------------------------------------


def copies(dst: str, src: str, **how: str) -> Program:
    p = Program("copies")

    def place(kind: str, name: str) -> View:
        if kind == "sbuf":
            return p.sbuf((32, 8), "float32", name=name)
        if kind == "constant":
            return p.constant(np.zeros((32, 8), np.float32), name=name)
        if kind == "hbm":
            return p.hbm((32, 8), "float32", name=name)
        return p.input(name, (32, 8), "float32") if kind == "input" else p.output(name, (32, 8), "float32")

    p.dma_copy(dst=place(dst, "to"), src=place(src, "from_"), **how)
    return p


def chosen(p: Program, **what_if: Any) -> tuple[str, str]:
    (step,) = expanded(p, **what_if).steps
    assert isinstance(step.instruction, DmaDirect2d)
    return step.engine.name.lower(), step.instruction.generation


@pytest.mark.parametrize(
    ("dst", "src", "wanted"),
    [
        ("sbuf", "input", ("gpsimd", "software")),
        ("output", "sbuf", ("gpsimd", "software")),
        ("hbm", "input", ("gpsimd", "software")),
        ("output", "hbm", ("gpsimd", "software")),
        ("output", "input", ("gpsimd", "software")),
        ("sbuf", "hbm", ("sync", "hardware")),
        ("sbuf", "constant", ("sync", "hardware")),
        ("hbm", "hbm", ("sync", "hardware")),
        ("hbm", "sbuf", ("scalar", "hardware")),
        ("sbuf", "sbuf", ("scalar", "hardware")),
    ],
)
def test_inputs_and_outputs_go_by_software_other_loads_by_sync_and_other_stores_by_scalar(
    dst: str, src: str, wanted: tuple[str, str]
) -> None:
    assert chosen(copies(dst, src)) == wanted


@pytest.mark.parametrize("places", [("sbuf", "input"), ("output", "sbuf"), ("sbuf", "hbm"), ("hbm", "sbuf")])
@pytest.mark.parametrize(
    ("engine", "generation"),
    [("sync", "hardware"), ("scalar", "hardware"), ("gpsimd", "software"), ("vector", "static"), ("tensor", "static")],
)
def test_a_named_engine_makes_descriptors_its_own_way(places: tuple[str, str], engine: str, generation: str) -> None:
    assert chosen(copies(*places, engine=engine)) == (engine, generation)


@pytest.mark.parametrize(
    ("dst", "src", "mode", "wanted"),
    [
        ("sbuf", "hbm", "swdge", ("gpsimd", "software")),
        ("hbm", "sbuf", "swdge", ("gpsimd", "software")),
        ("sbuf", "input", "hwdge", ("sync", "hardware")),
        ("output", "sbuf", "hwdge", ("scalar", "hardware")),
        ("output", "input", "hwdge", ("sync", "hardware")),
        ("sbuf", "input", "none", ("sync", "static")),
        ("output", "sbuf", "none", ("sync", "static")),
        ("hbm", "sbuf", "none", ("sync", "static")),
        ("sbuf", "input", "unknown", ("gpsimd", "software")),
    ],
)
def test_a_named_way_to_make_descriptors_finds_its_engine(dst: str, src: str, mode: str, wanted: tuple[str, str]) -> None:
    assert chosen(copies(dst, src, dge_mode=mode)) == wanted


@pytest.mark.parametrize("engine", ["sync", "scalar", "gpsimd", "vector", "tensor"])
def test_every_engine_takes_static_descriptors(engine: str) -> None:
    assert chosen(copies("sbuf", "input", dge_mode="none", engine=engine)) == (engine, "static")


@pytest.mark.parametrize(
    ("engine", "mode", "rest"),
    [
        ("gpsimd", "hwdge", "dge_mode=hwdge on GpSimd; the hardware block is commanded by Sync or Scalar"),
        ("vector", "hwdge", "dge_mode=hwdge on Vector; the hardware block is commanded by Sync or Scalar"),
        ("tensor", "hwdge", "dge_mode=hwdge on Tensor; the hardware block is commanded by Sync or Scalar"),
        ("sync", "swdge", "dge_mode=swdge on Sync; software descriptors are made by GpSimd"),
        ("scalar", "swdge", "dge_mode=swdge on Scalar; software descriptors are made by GpSimd"),
        ("vector", "swdge", "dge_mode=swdge on Vector; software descriptors are made by GpSimd"),
        ("tensor", "swdge", "dge_mode=swdge on Tensor; software descriptors are made by GpSimd"),
    ],
)
def test_an_engine_that_cannot_make_descriptors_that_way_is_refused(engine: str, mode: str, rest: str) -> None:
    p = copies("sbuf", "input", engine=engine, dge_mode=mode)
    with pytest.raises(ProgramError) as caught:
        expanded(p)
    assert str(caught.value) == f"{p.steps[0].line} dma_copy: {rest} (nki.isa.dma_copy)"


def test_an_unknown_way_to_make_descriptors_is_refused_where_it_is_written() -> None:
    with pytest.raises(ProgramError) as caught:
        copies("sbuf", "input", dge_mode="fast")
    assert str(caught.value).endswith(" gpsimd[0] dma_copy dge_mode: 'fast'; one of unknown, none, swdge, hwdge")


WITHOUT = {"dma__hardware__available": "false"}


@pytest.mark.parametrize(
    ("dst", "src", "how", "wanted"),
    [
        ("sbuf", "input", {}, ("gpsimd", "software")),
        ("sbuf", "hbm", {}, ("gpsimd", "software")),
        ("hbm", "sbuf", {}, ("gpsimd", "software")),
        ("sbuf", "hbm", {"engine": "sync"}, ("sync", "static")),
        ("hbm", "sbuf", {"engine": "scalar"}, ("scalar", "static")),
        ("sbuf", "hbm", {"dge_mode": "none"}, ("sync", "static")),
    ],
)
def test_a_chip_without_hardware_descriptors_makes_them_by_software_or_beforehand(
    dst: str, src: str, how: dict[str, str], wanted: tuple[str, str]
) -> None:
    assert chosen(copies(dst, src, **how), **WITHOUT) == wanted


def test_hardware_descriptors_are_refused_on_a_chip_without_them() -> None:
    p = copies("sbuf", "hbm", dge_mode="hwdge", engine="sync")
    with pytest.raises(Unsupported) as caught:
        expanded(p, **WITHOUT)
    assert str(caught.value) == (
        f"{p.steps[0].line} dma_copy: dge_mode=hwdge; "
        "a chip with hardware descriptor generation (NeuronCore-v3 and later) (nki.isa.dma_copy)"
    )


# --- programs with semaphores of their own ---------------------------------------------------------------------------


def test_nothing_is_inserted_into_a_program_with_semaphores_of_its_own() -> None:
    def program(explicit: bool) -> Program:
        p = Program("explicit")
        s, a = p.semaphore("s"), p.sbuf((32, 8), "float32")
        p.memset(dst=a, value=1.0, update=[s.add(1)] if explicit else [])
        p.activation(dst=a, op="exp", data=a, wait=[s >= 1] if explicit else [])
        p.activation(dst=a, op="tanh", data=a)
        return p

    assert words(program(explicit=True)) == ["memset", "activate exp", "activate tanh"]
    assert words(program(explicit=False)) == ["memset", "table exp", "activate exp", "table tanh", "activate tanh"]


def test_a_call_waits_with_its_first_machine_instruction_and_updates_with_its_last() -> None:
    p = Program("waits")
    s = p.semaphore("s")
    w, m, out = operands(p, "float32")
    p.nc_matmul(dst=out, stationary=w, moving=m, wait=[s >= 2], update=[s.add(1), s.add(1, when="read")])
    steps = expanded(p).steps
    assert [list(step.waits) for step in steps] == [[s >= 2], [], [], []]
    assert [list(step.updates) for step in steps] == [[], [], [], [s.add(1), s.add(1, when="read")]]


def test_a_semaphore_that_is_declared_and_not_used_leaves_the_program_automatic() -> None:
    p = activations("exp")
    p.semaphore("unused")
    assert words(p, Engine.SCALAR) == ["table exp", "activate exp"]


def test_a_transpose_that_would_need_an_identity_is_refused_in_such_a_program() -> None:
    p = Program("explicit")
    s, t, out = p.semaphore("s"), p.sbuf((32, 32), "float32"), p.psum((32, 32))
    p.nc_transpose(dst=out, data=t, update=[s.add(1)])
    with pytest.raises(ProgramError) as caught:
        expanded(p)
    assert str(caught.value) == (
        f"{p.steps[0].line} nc_transpose: nc_transpose on the TensorEngine in a program with semaphores of its own; "
        "nc_matmul(is_transpose=True) with an identity you load and wait for: nothing is inserted here (nki.isa.nc_transpose)"
    )


# --- what every machine instruction carries --------------------------------------------------------------------------


def test_machine_instructions_know_the_line_and_the_number_of_their_call() -> None:
    p = activations("exp")
    p.nc_transpose(dst=p.psum((32, 32)), data=p.sbuf((32, 32), "float32"))
    got = [(s.line, s.call) for s in expanded(p).steps]
    memset, exp, transpose = (s.line for s in p.steps)
    assert got == [("", -1), (memset, 0), (exp, -1), (exp, 1), (transpose, 2), (transpose, 2)]


def test_int32_arithmetic_goes_to_gpsimd_where_no_engine_is_named() -> None:
    p = Program("integers")
    a, b = p.sbuf((32, 8), "int32"), p.sbuf((32, 8), "float32")
    p.tensor_tensor(dst=a, data1=a, data2=a, op="add")
    p.tensor_tensor(dst=b, data1=b, data2=b, op="add")
    p.tensor_tensor(dst=a, data1=a, data2=a, op="add", engine="vector")
    p.tensor_tensor(dst=a, data1=a, data2=a, op="bitwise_and")
    assert [s.engine for s in expanded(p).steps] == [Engine.GPSIMD, Engine.VECTOR, Engine.VECTOR, Engine.VECTOR]


class Counted(list[tuple[View, int]]):
    """A list that counts how many of its entries are looked at."""

    looks = 0

    def __iter__(self) -> Iterator[tuple[View, int]]:
        for entry in super().__iter__():
            self.looks += 1
            yield entry

    def __reversed__(self) -> Iterator[tuple[View, int]]:
        for entry in super().__reversed__():
            self.looks += 1
            yield entry


def test_a_sum_in_a_long_loop_looks_only_at_what_came_since_its_last_product() -> None:
    """One look for each product without a flag: at the latest entry, which is older than the product before."""
    p = Program("loop")
    a, b = (p.sbuf((128, 128), "bfloat16") for _ in range(2))
    out, product = p.sbuf((128, 128), "float32"), p.psum((128, 128))
    for _ in range(100):
        p.nc_matmul(dst=product, stationary=a, moving=b, accumulate=False)
        p.nc_matmul(dst=product, stationary=a, moving=b)
        p.tensor_copy(dst=out, src=product)
    sums, touched = _Sums(), Counted()
    sums.touched[product.tensor] = touched
    decided: list[Any] = [sums.decide(step.instruction, k) for k, step in enumerate(p.steps)]
    assert [call.accumulate for k, call in enumerate(decided) if k % 3 < 2] == [False, True] * 100
    assert len(touched) == 100
    assert touched.looks == 99  # the first sum finds none
