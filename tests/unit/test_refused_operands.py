"""One refused example of each rule of operands that no other file has: where it is, what was found, what was required."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest

from nc_sim import NcSimError, Program, ProgramError, Unsupported, simulate
from nc_sim.isa import REGISTRY, View
from nc_sim.isa.registers import Register
from nc_sim.isa.text import check_view
from tiles import tile

Build = Callable[[Program, Callable[..., View]], Any]


def refusal(build: Build, chip: str = "trn2") -> NcSimError:
    """The error of a program of one wrong call; `t(shape, type, memory)` makes a written tile."""
    p = Program("wrong")

    def t(shape: tuple[int, ...], dtype: str = "float32", memory: str = "sbuf") -> View:
        return tile(p, shape, dtype, memory)

    def run() -> None:
        build(p, t)
        simulate(p, chip, values=False)

    with pytest.raises(NcSimError) as caught:
        run()
    return caught.value


def hbm(p: Program, *shape: int, dtype: str = "float32") -> View:
    return p.hbm(shape, dtype)


def rows(p: Program, t: Callable[..., View], n: int = 16, width: int = 64, dtype: str = "bfloat16", index: Any = None) -> View:
    """Rows of HBM that an index in SBUF names."""
    at = index if index is not None else t((n, 1), "uint32")
    return hbm(p, 256, width, dtype=dtype).ap([[width, n], [1, width]], vector_offset=at)


def one(p: Program, t: Callable[..., View]) -> View:
    """A row of HBM at an address that one number gives."""
    return hbm(p, 16, 64).ap([[64, 4], [1, 64]], scalar_offset=t((1, 1), "int32"))


ELEMENTWISE: dict[str, tuple[Build, str]] = {
    "no elements": (lambda p, t: p.tensor_copy(dst=t((4, 8))[:, 8:], src=t((4, 8))[:, 8:]), "dst has shape [4, 0]; at least one element"),
    "tensor_tensor shape": (
        lambda p, t: p.tensor_tensor(dst=t((4, 8)), data1=t((4, 7)), data2=t((4, 8)), op="add"),
        "data1 has 7 elements per partition, dst has 8; they must match",
    ),
    "tensor_tensor partitions": (
        lambda p, t: p.tensor_tensor(dst=t((4, 8)), data1=t((4, 8)), data2=t((3, 8)), op="add"),
        "data2 has 3 partitions, dst has 4; they must match",
    ),
    "tensor_scalar shape": (
        lambda p, t: p.tensor_scalar(dst=t((4, 8)), data=t((4, 7)), op0="add", operand0=1.0),
        "data has 7 elements per partition, dst has 8",
    ),
    "tensor_scalar kinds": (
        lambda p, t: p.tensor_scalar(dst=t((4, 8), "int32"), data=t((4, 8), "int32"), op0="bitwise_and", operand0=1, op1="add", operand1=1),
        "op0=bitwise_and, op1=add; both bitvec or both arithmetic operators",
    ),
    "tensor_scalar bits": (
        lambda p, t: p.tensor_scalar(dst=t((4, 8), "uint8"), data=t((4, 8), "uint8"), op0="bitwise_and", operand0=256),
        "operand0=256 for bitwise_and of uint8; a whole number of 8 bits",
    ),
    "tensor_scalar bits on GpSimd": (
        lambda p, t: p.tensor_scalar(dst=t((4, 8), "int32"), data=t((4, 8), "int32"), op0="invert", engine="gpsimd"),
        "invert on GpSimd; VectorE for bitvec operators",
    ),
    "scalar_tensor_tensor shape": (
        lambda p, t: p.scalar_tensor_tensor(dst=t((4, 8)), data=t((4, 7)), op0="add", operand0=1.0, op1="add", operand1=t((4, 8))),
        "data has 7 elements per partition, dst has 8",
    ),
    "scalar_tensor_tensor operand1": (
        lambda p, t: p.scalar_tensor_tensor(dst=t((4, 8)), data=t((4, 8)), op0="add", operand0=1.0, op1="add", operand1=t((4, 9))),
        "operand1 has 9 elements per partition, dst has 8",
    ),
    "tensor_reduce of bits": (
        lambda p, t: p.tensor_reduce(dst=t((4, 1), "int32"), op="bitwise_or", data=t((4, 8), "float32"), axis=1),
        "bitwise_or of float32, int32; integer types of one width for a bitvec operator",
    ),
    "reciprocal shape": (lambda p, t: p.reciprocal(dst=t((4, 8)), data=t((4, 7))), "data has 7 elements per partition, dst has 8"),
    "bias type": (
        lambda p, t: p.activation(dst=t((4, 8)), op="exp", data=t((4, 8)), bias=t((4, 1), "tfloat32")), "bias is tfloat32; any other type",
    ),
    "activation shape": (
        lambda p, t: p.activation(dst=t((4, 8)), op="exp", data=t((4, 7))), "data has 7 elements per partition, dst has 8",
    ),
    "activation without reduce_op": (
        lambda p, t: p.activation(dst=t((4, 8)), op="exp", data=t((4, 8)), reduce_res=t((4, 1))),
        "a reduction without reduce_op; reduce_op=add",
    ),
    "activation reduce_res": (
        lambda p, t: p.activation(dst=t((4, 8)), op="exp", data=t((4, 8)), reduce_op="add", reduce_res=t((4, 2))),
        "reduce_res is [4, 2]; [4, 1]",
    ),
    "exponential dimensions": (
        lambda p, t: p.exponential(dst=t((2, 1, 1, 1, 8)), src=t((2, 1, 1, 1, 8))), "dst is [2, 1, 1, 1, 8]; at most 4 dimensions",
    ),
    "affine_select shape": (
        lambda p, t: p.affine_select(dst=t((4, 8)), pattern=[[1, 8]], channel_multiplier=1, on_true_tile=t((4, 7)), on_false_value=0.0),
        "on_true_tile has 7 elements per partition, dst has 8",
    ),
    "affine_select operator": (
        lambda p, t: p.affine_select(
            dst=t((4, 8)), pattern=[[1, 8]], channel_multiplier=1, on_true_tile=t((4, 8)), on_false_value=0.0, cmp_op="add"
        ),
        "cmp_op add; one of equal, not_equal",
    ),
}  # fmt: skip

PRODUCTS: dict[str, tuple[Build, str]] = {
    "stationary in PSUM": (
        lambda p, t: p.nc_matmul(dst=p.psum((8, 8)), stationary=t((4, 8), memory="psum"), moving=t((4, 8))),
        "stationary is in PSUM; both operands are read from SBUF",
    ),
    "dst in SBUF": (
        lambda p, t: p.nc_matmul(dst=t((8, 8)), stationary=t((4, 8)), moving=t((4, 8))), "dst is in SBUF; the result is written to PSUM",
    ),
    "contraction": (
        lambda p, t: p.nc_matmul(dst=p.psum((8, 8)), stationary=t((4, 8)), moving=t((5, 8))),
        "stationary has 4 partitions, moving has 5; they must match: the contraction runs along partitions",
    ),
    "mixed types": (
        lambda p, t: p.nc_matmul(dst=p.psum((8, 8)), stationary=t((4, 8)), moving=t((4, 8), "bfloat16")),
        "stationary is float32, moving is bfloat16; fp32 and tf32 do not mix with narrower types",
    ),
    "rows": (
        lambda p, t: p.nc_matmul(dst=p.psum((8, 8)), stationary=p.sbuf((129, 8), "float32"), moving=p.sbuf((129, 8), "float32")),
        "129 partitions; at most 128 rows of the array",
    ),
    "columns": (
        lambda p, t: p.nc_matmul(dst=p.psum((129, 8)), stationary=t((4, 129)), moving=t((4, 8))),
        "129 stationary columns; at most 128 columns of the array",
    ),
    "result columns": (
        lambda p, t: p.nc_matmul(dst=p.psum((8, 7)), stationary=t((4, 8)), moving=t((4, 8))),
        "dst has 7 elements per partition; 8, as moving",
    ),
    "result rows": (
        lambda p, t: p.nc_matmul(dst=p.psum((7, 8)), stationary=t((4, 8)), moving=t((4, 8))), "dst has 7 partitions; 8, one per stationary",
    ),
    "integers": (
        lambda p, t: p.nc_matmul(dst=p.psum((8, 8)), stationary=t((4, 8), "int32"), moving=t((4, 8), "int32")),
        "stationary is int32; a floating-point type",
    ),
    "result type": (
        lambda p, t: p.nc_matmul(dst=p.psum((8, 8), "float16"), stationary=t((4, 8)), moving=t((4, 8))),
        "dst is float16; float32, or bfloat16 on NeuronCore-v4",
    ),
    "transposed type": (
        lambda p, t: p.nc_matmul(
            dst=p.psum((8, 4)), stationary=t((4, 8), "bfloat16"), moving=t((4, 4), "bfloat16"), is_transpose=True
        ),
        "dst is float32, stationary is bfloat16; a transpose keeps the type",
    ),
    "transpose shape": (
        lambda p, t: p.nc_transpose(dst=p.psum((8, 4)), data=t((5, 8))), "dst is [8, 4], data is [5, 8]; dst must be data transposed",
    ),
    "transpose width": (
        lambda p, t: p.nc_transpose(dst=p.psum((129, 4)), data=t((4, 129))), "data has 129 elements per partition; at most 128",
    ),
    "transpose type": (
        lambda p, t: p.nc_transpose(dst=p.psum((8, 4), "bfloat16"), data=t((4, 8))),
        "dst is bfloat16, data is float32; a transpose keeps the type",
    ),
    "transpose into SBUF on the array": (
        lambda p, t: p.nc_transpose(dst=t((8, 4)), data=t((4, 8)), engine="tensor"), "dst is in SBUF; the TensorEngine writes PSUM",
    ),
    "transpose from PSUM on the array": (
        lambda p, t: p.nc_transpose(dst=p.psum((8, 4)), data=t((4, 8), memory="psum"), engine="tensor"),
        "data is in PSUM; the TensorEngine reads SBUF",
    ),
    "weights": (lambda p, t: p.ldweights(src=t((4, 129))), "129 stationary columns; at most 128"),
    "weights of a mode": (
        lambda p, t: p.ldweights_mode(src=t((4, 258), "float8_e4m3"), mode="double_row"), "129 stationary columns; at most 128",
    ),
    "odd double rows": (
        lambda p, t: p.ldweights_mode(src=t((4, 5), "float8_e4m3"), mode="double_row"),
        "src has 5 elements per partition; two rows of them",
    ),
    "weights of MX": (
        lambda p, t: p.ldweights_mode(src=t((32, 8)), mode="mx", scales=t((4, 8), "uint8")), "src is float32; one of float8_e5m2_x4",
    ),
    "rows of MX": (
        lambda p, t: p.ldweights_mode(src=p.sbuf((31, 8), "float8_e5m2_x4"), mode="mx", scales=t((4, 8), "uint8")),
        "src has 31 partitions; a multiple of 32",
    ),
    "scales of MX": (
        lambda p, t: p.ldweights_mode(src=p.sbuf((32, 8), "float8_e5m2_x4"), mode="mx", scales=t((4, 7), "uint8")),
        "scales has 7 elements per partition; 8, one for each of src's",
    ),
    "columns of a pass": (
        lambda p, t: p.matmul(dst=p.psum((8, 7)), src=t((4, 8)), columns=8), "dst has 7 elements per partition, src has 8; they must match",
    ),
    "MX in PSUM": (
        lambda p, t: p.nc_matmul_mx(
            dst=p.psum((8, 8)), stationary=p.psum((32, 8), "float8_e5m2_x4"), moving=p.sbuf((32, 8), "float8_e5m2_x4"),
            stationary_scale=t((4, 8), "uint8"), moving_scale=t((4, 8), "uint8"),
        ),
        "stationary is in PSUM; both operands are read from SBUF",
    ),
}  # fmt: skip

MOVED: dict[str, tuple[Build, str]] = {
    "no elements": (lambda p, t: p.dma_copy(dst=t((4, 8))[:, 8:], src=hbm(p, 4, 8)[:, 8:]), "dst has shape [4, 0]; at least one element"),
    "packed": (
        lambda p, t: p.dma_copy(dst=p.sbuf((4, 8), "float8_e5m2_x4"), src=hbm(p, 4, 8)),
        "src is float32, dst is float8_e5m2_x4; one packed type: nothing converts to or from it",
    ),
    "rows of a trace": (
        lambda p, t: p.dma_direct2d(dst=t((4, 8)), src=hbm(p, 4, 8), generation="static", row=5), "32 elements in rows of 5; whole rows",
    ),
    "sizes": (
        lambda p, t: p.dma_direct2d(dst=t((4, 8)), src=hbm(p, 4, 9), generation="static"),
        "dst has 32 elements, src has 36; they must",
    ),
    "sizes with an index": (
        lambda p, t: p.dma_indirect(dst=t((4, 65)), src=one(p, t), generation="software"),
        "dst has 260 elements, src has 256; they must match",
    ),
    "no index": (
        lambda p, t: p.dma_indirect(dst=t((4, 8)), src=hbm(p, 4, 8), generation="software"), "no dynamic offset; one in dst or src",
    ),
    "too few indices": (
        lambda p, t: p.dma_indirect(dst=t((16, 64), "bfloat16"), src=rows(p, t, index=t((8, 1), "uint32")), generation="software"),
        "indices of shape [8, 1] for 16 rows; [16, 1]",
    ),
    "rows by hardware": (
        lambda p, t: p.dma_indirect(dst=t((16, 64), "bfloat16"), src=rows(p, t), generation="hardware"),
        "hardware descriptors for an index in each row; software descriptors",
    ),
    "a number by static descriptors": (
        lambda p, t: p.dma_indirect(dst=t((4, 64)), src=one(p, t), generation="static"),
        "static descriptors with a dynamic address; software or hardware descriptors: static ones are made before the run",
    ),
    "sum sizes": (
        lambda p, t: p.dma_compute2d(dst=t((4, 8)), srcs=[t((4, 8)), hbm(p, 4, 9)], generation="static"), "dst has 32 elements, src has 36",
    ),
    "sum at a number": (
        lambda p, t: p.dma_compute2d(dst=t((4, 64)), srcs=[t((4, 64)), one(p, t)], generation="software"),
        "a scalar_offset; addresses known when the program is built, or a vector_offset",
    ),
    "three sources with an index": (
        lambda p, t: p.dma_compute2d(
            dst=t((16, 64), "bfloat16"), srcs=[t((16, 64), "bfloat16"), t((16, 64), "bfloat16"), rows(p, t)], generation="software"
        ),
        "3 sources with a vector_offset; two",
    ),
    "indices of a sum": (
        lambda p, t: p.dma_compute2d(
            dst=t((16, 64), "bfloat16"), srcs=[t((16, 64), "bfloat16"), rows(p, t, index=t((8, 1), "uint32"))], generation="software"
        ),
        "indices of shape [8, 1] for 16 rows; [16, 1]",
    ),
    "indices of a call that adds": (
        lambda p, t: p.dma_compute(
            dst=(d := t((16, 64), "bfloat16")), srcs=[d, rows(p, t, index=t((8, 1), "uint32"))], reduce_op="add"
        ),
        "indices of shape [8, 1] for 16 rows; [16, 1]",
    ),
    "a wide gathered row": (
        lambda p, t: p.dma_transpose(dst=t((129, 16), "bfloat16"), src=rows(p, t, width=129)), "src is [16, 129]; at most 128 in its last",
    ),
    "indices of three dimensions": (
        lambda p, t: p.dma_transpose(dst=t((64, 16), "bfloat16"), src=rows(p, t, index=t((16, 1, 1), "uint32"))),
        "indices of shape [16, 1, 1]; two dimensions",
    ),
    "static gather": (
        lambda p, t: p.dma_transpose(
            dst=t((64, 4)), src=hbm(p, 16, 64).ap([[64, 4], [1, 64]], scalar_offset=t((1, 1), "int32")), dge_mode="none"
        ),
        "dge_mode=none with a dynamic offset; swdge or hwdge: static descriptors are made before the run",
    ),
    "axes of a machine instruction": (
        lambda p, t: p.dma_transpose2d(dst=t((8, 4)), src=hbm(p, 4, 8), generation="static", axes=(0, 1)),
        "axes [0, 1] of 2 dimensions; [1, 0]",
    ),
    "gather of a machine instruction": (
        lambda p, t: p.dma_transpose2d(
            dst=t((64, 16)), src=rows(p, t, dtype="float32"), generation="software", axes=(1, 0)
        ),
        "float32 with a vector_offset; a type of 2 bytes",
    ),
}  # fmt: skip

VALUES: dict[str, tuple[Build, str]] = {
    "a flag": (
        lambda p, t: p.tensor_scalar(dst=t((4, 8)), data=t((4, 8)), op0="add", operand0=1.0, reverse0=1), "reverse0: 1; True or False",
    ),
    "not finite": (
        lambda p, t: p.affine_select(
            dst=t((4, 8)), pattern=[[1, 8]], channel_multiplier=1, on_true_tile=t((4, 8)), on_false_value=float("inf")
        ),
        "on_false_value: inf; a finite number",
    ),
    "scales": (
        lambda p, t: p.dma_compute(dst=t((4, 8)), srcs=[t((4, 8))] * 2, reduce_op="add", scales=[]),
        "scales: []; a list of numbers",
    ),
    "a pattern": (
        lambda p, t: p.iota(dst=t((4, 8), "int32"), pattern=[[1, 0]]),
        "pattern: [[1, 0]]; 32-bit steps, and counts of at least 1",
    ),
    "no pattern": (lambda p, t: p.iota(dst=t((4, 8), "int32"), pattern=[1, 8]), "pattern: [1, 8]; pairs [step, count]"),
    "a name": (lambda p, t: p.register_move(Register("1 x"), 1), "register '1 x'; a letter or _, then letters, digits and _ . $ -"),
    "no axes": (lambda p, t: p.tensor_reduce(dst=t((4, 1)), op="add", data=t((4, 8)), axis=[]), "axis: no axes; at least one"),
    "an axis": (lambda p, t: p.tensor_reduce(dst=t((4, 1)), op="add", data=t((4, 8)), axis="x"), "axis: 'x'; an axis or a list of axes"),
}  # fmt: skip

VIEWS: dict[str, tuple[Build, str]] = {
    "two ellipses": (lambda p, t: t((4, 8, 2))[..., 0, ...], "two ellipses in one index; at most one is allowed"),
    "too many indices": (lambda p, t: t((4, 8))[:, 0, 0], "3 indices; a view of shape [4, 8] takes at most 2"),
    "a partition": (lambda p, t: t((4, 8))[2], "an integer index on the partition dimension; write t[2:3] to keep the dimension"),
    "a step of partitions": (lambda p, t: t((4, 8))[::2], "partition step 2; partitions are contiguous: step must be 1"),
    "past the end": (lambda p, t: t((4, 8))[:, :9], "index 9 on axis 1; 0 to 8: a slice past the end is an error here"),
    "an index past the end": (lambda p, t: t((4, 8))[:, 8], "index 8 on axis 1; -8 to 7"),
    "an index": (lambda p, t: t((4, 8))[:, 1.5], "index 1.5 on axis 1; an integer, a slice or ..."),
    "a flag as index": (lambda p, t: t((4, 8))[:, True], "index True on axis 1; an integer, a slice or ..."),
    "bounds": (lambda p, t: t((4, 8))[:, "a":], "integer bounds and a non-zero step"),
    "partitions of a shape": (lambda p, t: t((4, 8)).reshape(8, 4), "reshape to [8, 4]; the partition dimension must stay 4"),
    "elements of a shape": (lambda p, t: t((4, 8)).reshape(4, 9), "reshape to [9]; 8 elements must stay"),
    "strides of a shape": (lambda p, t: t((4, 4, 4))[:, :, :2].reshape(4, 8), "strides of this view do not allow it without a copy"),
    "axes": (lambda p, t: t((4, 8, 2)).permute(0, 0), "axes [0, 0]; a permutation of [0, 1]"),
    "a broadcast": (lambda p, t: t((4, 8)).broadcast(1, 2), "broadcast of axis 1; a free axis of size 1"),
    "a broadcast to none": (lambda p, t: t((4, 1)).broadcast(1, 0), "broadcast to 0; a count of at least 1"),
    "counts of ap": (lambda p, t: t((4, 8)).ap([[8, 4], [1, 0]]), "counts of at least 1, the partition first on chip"),
    "a pattern of ap": (lambda p, t: t((4, 8)).ap([[8, 4], 1]), "pattern [[8, 4], 1]; pairs [stride, count] of whole numbers"),
    "another size": (lambda p, t: t((4, 8)).with_dtype("bfloat16"), "a view as bfloat16; an element of 4 bytes"),
    "a whole number": (lambda p, t: t((4, 8)).reshape(4, 8.0), "8.0; a whole number"),
    "no flag": (lambda p, t: t((4, 1)).broadcast(1, True), "True; a whole number"),
}  # fmt: skip

CASES = {
    f"{group}: {name}": case
    for group, cases in (("elementwise", ELEMENTWISE), ("product", PRODUCTS), ("dma", MOVED), ("value", VALUES), ("view", VIEWS))
    for name, case in cases.items()
}


@pytest.mark.parametrize("case", CASES)
def test_a_refusal_says_where_it_is_what_was_found_and_what_was_required(case: str) -> None:
    build, message = CASES[case]
    error = refusal(build)
    assert message in str(error)
    assert re.match(r"(test_refused_operands|tiles)\.py:\d+", error.where), error.where
    assert error.found
    assert error.required


def test_an_address_known_at_run_time_needs_an_engine_that_makes_descriptors() -> None:
    error = refusal(lambda p, t: p.dma_copy(dst=t((4, 64)), src=one(p, t), engine="sync"), "inf2")
    assert isinstance(error, Unsupported)
    assert "an address known at run time on Sync; GpSimd, or Sync and Scalar where hardware makes descriptors (NeuronCore-v3" in str(error)


def test_sums_that_nobody_began_are_refused_when_values_are_computed_too() -> None:
    """Which a program cannot do: it is validated first."""
    p = Program("state")
    t, s = tile(p, (4, 8)), tile(p, (4, 1))
    made = REGISTRY["activate"](dst=t, op="exp", data=t, reduce_cmd="reduce")  # type: ignore[call-arg]
    with pytest.raises(ProgramError, match="the accumulator was not reset for these partitions"):
        made.execute({"data": np.ones((4, 8), np.float32)}, {})
    with pytest.raises(ProgramError, match="the accumulator holds other partitions"):
        REGISTRY["act_read_accumulator"](dst=s).execute({}, {"accumulator": np.zeros(3, np.float32)})  # type: ignore[call-arg]
    made = REGISTRY["tensor_scalar_reduce"](  # type: ignore[call-arg]
        dst=t, data=t, op0="add", operand0=1.0, reduce_op="add", reduce_cmd="reduce"
    )
    with pytest.raises(ProgramError, match="the accumulator was not reset for these partitions"):
        made.execute({"data": np.ones((4, 8), np.float32)}, {})


def test_a_view_of_another_type_starts_on_its_elements() -> None:
    p = Program("type")
    x, index = p.hbm((8, 3), "bfloat16"), tile(p, (1, 1), "int32")
    with pytest.raises(ProgramError, match="a stride of 6 bytes; whole elements of float32"):
        x.ap([[1, 1]], scalar_offset=index, dtype="float32")
    wrong = attrs.evolve(x, strides=(1,))
    with pytest.raises(ProgramError, match="1 strides and 2 counts; one stride for each count"):
        check_view(wrong)
