"""What a chip refuses: places, sizes, banks, engines, reads of nothing; each with its message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from newer import newer

from nc_sim import NcSimError, Program, ProgramError, Unsupported, chip, simulate
from nc_sim.isa import DTYPES, Engine, Instruction, Memory, Step, View, whole
from nc_sim.isa.dma import DmaDirect2d
from nc_sim.isa.vector import Memset, TensorCopy, TensorTensor
from nc_sim.program import Tensor
from nc_sim.simulate import compile_program
from nc_sim.validate import validate

TRN2 = chip.load("trn2")
FP32 = DTYPES["float32"]
GUIDE = "(NeuronCore architecture guide)"


def compiles(p: Program, **what_if: Any) -> None:
    compile_program(p, TRN2.what_if({k.replace("__", "."): v for k, v in what_if.items()}))


def refused(p: Program, **what_if: Any) -> str:
    with pytest.raises(ProgramError) as caught:
        compiles(p, **what_if)
    return str(caught.value)


def one(instruction: Instruction, engine: Engine = Engine.VECTOR, base: int = 0x4000) -> None:
    """Validate a single instruction whose tensors stand at an address; what it reads counts as input."""
    tensors = {v.tensor: Tensor(v.tensor, v.memory, (128, 4), FP32, "input") for _, v, _ in instruction.views}
    addresses = {n: 0 if t.memory is Memory.HBM else base for n, t in tensors.items()}
    validate([Step(instruction, engine)], tensors, addresses, TRN2.reader())


def one_refused(instruction: Instruction, engine: Engine = Engine.VECTOR, base: int = 0x4000) -> str:
    with pytest.raises(NcSimError) as caught:
        one(instruction, engine, base)
    return str(caught.value)


def sbuf(partitions: int, free: int = 4, first: int = 0, name: str = "t") -> View:
    return whole(name, Memory.SBUF, (partitions, free), FP32, first)


# --- partitions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "count"),
    [(0, 1), (0, 128), (32, 1), (32, 32), (64, 1), (64, 33), (64, 64), (96, 32), (0, 33), (0, 65)],
)
def test_an_operand_may_start_at_a_multiple_of_its_tile(first: int, count: int) -> None:
    one(Memset(dst=sbuf(count, first=first), value=0))


# tiles of at most 32 partitions start at 0, 32, 64, 96; of at most 64 at 0, 64; larger ones at 0
@pytest.mark.parametrize(
    ("first", "count", "grain"),
    [(1, 1, 32), (16, 16, 32), (31, 1, 32), (33, 32, 32), (32, 33, 64), (32, 64, 64), (16, 33, 64), (32, 65, 128), (63, 65, 128)],
)
def test_an_operand_that_starts_between_is_refused(first: int, count: int, grain: int) -> None:
    got = one_refused(Memset(dst=sbuf(count, first=first), value=0))
    assert got == f"vector[0] memset: dst starts at partition {first} with {count}; a multiple of {grain} {GUIDE}"


def test_the_start_of_every_operand_counts_and_is_named() -> None:
    got = one_refused(TensorCopy(dst=sbuf(16), src=sbuf(16, first=8, name="u")))
    assert got == f"vector[0] tensor_copy: src starts at partition 8 with 16; a multiple of 32 {GUIDE}"


def test_a_slice_starts_where_its_first_partition_is() -> None:
    p = Program("slice")
    t = p.sbuf((128, 4), "float32", name="t")
    p.memset(dst=t[64:128], value=1.0)
    p.memset(dst=t[32:128], value=1.0)
    assert refused(p) == f"{p.steps[1].line} vector[1] memset: dst starts at partition 32 with 96; a multiple of 128 {GUIDE}"


def test_the_quadrant_is_the_chips() -> None:
    p = Program("quadrant")
    p.memset(dst=p.sbuf((16, 4), "float32", partition=16), value=1.0)
    assert refused(p).endswith(f"dst starts at partition 16 with 16; a multiple of 32 {GUIDE}")
    compiles(p, memory__partition_quadrant=16)


def test_dma_starts_at_any_partition() -> None:
    hbm = View("h", Memory.HBM, FP32, 0, 0, 0, (4, 1), (3, 4))
    one(DmaDirect2d(dst=sbuf(3, first=17), src=hbm, generation="static"), Engine.SYNC)


@pytest.mark.parametrize("dma", [True, False])
def test_an_operand_may_not_reach_behind_the_last_partition(dma: bool) -> None:
    if dma:
        hbm = View("h", Memory.HBM, FP32, 0, 0, 0, (4, 1), (2, 4))
        got = one_refused(DmaDirect2d(dst=sbuf(2, first=127), src=hbm, generation="static"), Engine.SYNC)
        assert got == "sync[0] dma_direct2d: dst reaches partition 129; at most 128 (trn2)"
    else:
        assert one_refused(Memset(dst=sbuf(65, first=64), value=0)) == "vector[0] memset: dst reaches partition 129; at most 128 (trn2)"


# --- bytes, banks and sizes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("memory", "size"), [(Memory.SBUF, 229376), (Memory.PSUM, 16384)])
def test_an_operand_stays_inside_its_partitions_bytes(memory: Memory, size: int) -> None:
    view = whole("t", memory, (128, 4), FP32)
    one(Memset(dst=view, value=0), base=size - 16)
    for base, low in ((size - 12, size - 12), (-4, -4)):
        got = one_refused(Memset(dst=view, value=0), base=base)
        assert got == f"vector[0] memset: dst reaches bytes {low} to {low + 16} of its partitions; 0 to {size} of {memory.name} (trn2)"


def product(first: int, columns: int, **place: int) -> Program:
    p = Program("product")
    w, m = p.sbuf((128, 128), "bfloat16", name="w"), p.sbuf((128, columns), "bfloat16", name="m")
    out = p.psum((128, 1024), name="out", **place)
    p.memset(dst=w, value=1.0)
    p.memset(dst=m, value=1.0)
    p.nc_matmul(dst=out[:, first : first + columns], stationary=w, moving=m)
    return p


def test_a_product_fills_one_bank_and_reaches_into_no_other() -> None:
    compiles(product(0, 512))
    compiles(product(512, 512))
    p = product(511, 2)
    assert refused(p) == (
        f"{p.steps[2].line} tensor[1] matmul: dst spans bytes 2044 to 2052 of PSUM; one bank of 2048 bytes per partition {GUIDE}"
    )


def test_the_bank_of_a_product_counts_from_the_bottom_of_psum() -> None:
    compiles(product(0, 512, address=4096))
    p = product(0, 512, address=4100)
    assert refused(p).endswith(f" matmul: dst spans bytes 4100 to 6148 of PSUM; one bank of 2048 bytes per partition {GUIDE}")


def test_other_engines_may_read_and_write_across_banks() -> None:
    p = Program("across")
    t = p.psum((128, 1024))
    p.memset(dst=t, value=1.0)
    p.tensor_copy(dst=t, src=t, engine="scalar")
    compiles(p)


@pytest.mark.parametrize(("memory", "most"), [("psum", 4096), ("sbuf", 65536)])
def test_an_operand_has_a_largest_number_of_elements(memory: str, most: int) -> None:
    def program(count: int) -> Program:
        p = Program("elements")
        p.memset(dst=getattr(p, memory)((128, count), "uint8"), value=1)
        return p

    compiles(program(most))
    p = program(most + 1)
    assert refused(p) == (
        f"{p.steps[0].line} vector[0] memset: dst has {most + 1} elements per partition; at most {most} in {memory.upper()} {GUIDE}"
    )


def test_repeated_elements_count() -> None:
    p = Program("broadcast")
    a, b = p.sbuf((128, 1), "float32"), p.psum((128, 4), "float32")
    p.memset(dst=a, value=1.0)
    p.memset(dst=b, value=1.0)
    p.tensor_reduce(dst=a, op="add", data=b.reshape(128, 4, 1).broadcast(2, 1025), axis=[1, 2])
    assert refused(p) == f"{p.steps[2].line} vector[2] tensor_reduce: data has 4100 elements per partition; at most 4096 in PSUM {GUIDE}"


def test_an_operand_has_four_free_dimensions_at_most_where_those_of_size_one_do_not_count() -> None:
    p = Program("dimensions")
    t, u = p.sbuf((4, 32), "float32"), p.sbuf((4, 32), "float32")
    p.memset(dst=t.reshape(4, 2, 1, 2, 1, 2, 4), value=1.0)
    p.tensor_copy(dst=u, src=t.reshape(4, 2, 2, 2, 2, 2))
    assert refused(p) == f"{p.steps[1].line} vector[1] tensor_copy: src has 5 free dimensions; at most 4 {GUIDE}"


def test_dma_takes_larger_operands_of_more_dimensions() -> None:
    p = Program("dma")
    x, t = p.input("x", (2, 70000), "uint8"), p.sbuf((2, 70000), "uint8")
    p.dma_copy(dst=t.reshape(2, 2, 2, 2, 2, 4375), src=x)
    compiles(p)


# --- engines ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["dst", "src"])
def test_gpsimd_does_not_reach_psum(which: str) -> None:
    p = Program("gpsimd")
    a, b = p.psum((32, 4)), p.sbuf((32, 4), "float32")
    p.memset(dst=a, value=1.0)
    p.memset(dst=b, value=1.0)
    p.tensor_copy(dst=a if which == "dst" else b, src=b if which == "dst" else a, engine="gpsimd")
    assert refused(p) == f"{p.steps[2].line} gpsimd[0] tensor_copy: {which} is in PSUM; SBUF: GpSimd does not reach PSUM {GUIDE}"


def test_an_instruction_on_an_engine_that_lacks_it_is_refused() -> None:
    """A program cannot be built so; recorded steps can."""
    i = TensorTensor(dst=sbuf(4), data1=sbuf(4), data2=sbuf(4), op="add")
    assert one_refused(i, Engine.SCALAR) == "scalar[0] tensor_tensor: it runs on Scalar; one of Vector, GpSimd (nki.isa.tensor_tensor)"


def hardware_dma() -> Program:
    p = Program("hardware")
    x, t = p.input("x", (4, 4), "float32"), p.sbuf((4, 4), "float32")
    p.dma_direct2d(dst=t, src=x, generation="hardware", engine="sync")
    return p


def test_hardware_descriptors_are_unsupported_where_the_chip_file_says_so() -> None:
    text = (Path(chip.__file__).parent / "chips" / "trn2.toml").read_text()
    lines = [
        'available = { status = "unsupported", source = "arch" }' if line.startswith("available = ") else line for line in text.splitlines()
    ]
    without = chip.parse("\n".join(lines), "trn2 without")
    p = hardware_dma()
    compiles(p)
    with pytest.raises(Unsupported) as caught:
        compile_program(p, without)
    assert str(caught.value) == (
        f"{p.steps[0].line} sync[0] dma_direct2d: hardware descriptor generation; a chip that has it; trn2 does not"
    )


def test_hardware_descriptors_are_unsupported_where_the_chip_file_says_false() -> None:
    with pytest.raises(Unsupported):
        compiles(hardware_dma(), dma__hardware__available="false")


# --- reads of what nothing wrote -------------------------------------------------------------------------------------


def test_a_read_of_what_nothing_writes_is_refused() -> None:
    p = Program("nothing")
    a, b = p.sbuf((4, 4), "float32", name="a"), p.sbuf((4, 4), "float32", name="b")
    p.memset(dst=b, value=1.0)
    p.tensor_copy(dst=b, src=a)
    assert refused(p) == (
        f"{p.steps[1].line} vector[1] tensor_copy: sbuf:a+0x0:float32[1][4]@0:4 is read before anything writes it; "
        "a write earlier in the program"
    )


def test_a_write_that_comes_later_does_not_help() -> None:
    p = Program("later")
    a, b = p.sbuf((4, 4), "float32", name="a"), p.sbuf((4, 4), "float32", name="b")
    p.tensor_copy(dst=b, src=a)
    p.memset(dst=a, value=1.0, engine="gpsimd")
    assert f"{p.steps[0].line} vector[0] tensor_copy: sbuf:a" in refused(p)


def test_a_write_beside_what_is_read_does_not_help_and_a_write_of_one_byte_does() -> None:
    def program(written: slice) -> Program:
        p = Program("beside")
        a, b = p.sbuf((4, 8), "float32", name="a"), p.sbuf((4, 4), "float32", name="b")
        p.memset(dst=a[:, written], value=1.0)
        p.tensor_copy(dst=b, src=a[:, :4])
        return p

    compiles(program(slice(3, 5)))
    p = program(slice(4, 8))
    assert refused(p) == (
        f"{p.steps[1].line} vector[1] tensor_copy: sbuf:a+0x0:float32[1][4]@0:4 is read before anything writes it; "
        "a write earlier in the program"
    )


@pytest.mark.parametrize("kind", ["hbm", "output"])
def test_hbm_that_nothing_wrote_cannot_be_loaded(kind: str) -> None:
    p = Program("hbm")
    h = p.hbm((4, 4), "float32", name="h") if kind == "hbm" else p.output("h", (4, 4), "float32")
    t = p.sbuf((4, 4), "float32")
    p.dma_copy(dst=t, src=h, engine="sync")
    p.dma_copy(dst=h, src=t)
    assert refused(p) == (
        f"{p.steps[0].line} sync[0] dma_direct2d: hbm:h+0x0:float32[4,1][4,4] is read before anything writes it; "
        "a write earlier in the program"
    )


def test_inputs_and_constants_are_written_from_the_start() -> None:
    p = Program("given")
    for source in (p.input("x", (4, 4), "float32"), p.constant(np.zeros((4, 4), np.float32))):
        p.dma_copy(dst=p.sbuf((4, 4), "float32"), src=source)
    compiles(p)


def test_a_product_that_accumulates_reads_its_destination() -> None:
    p = Program("accumulate")
    w, out = p.sbuf((32, 32), "bfloat16", name="w"), p.psum((32, 32), name="out")
    p.memset(dst=w, value=1.0)
    p.nc_matmul(dst=out, stationary=w, moving=w, accumulate=True)
    assert refused(p) == (
        f"{p.steps[1].line} tensor[1] matmul: psum:out+0x0:float32[1][32]@0:32 is read before anything writes it; "
        "a write earlier in the program"
    )


def test_a_pointer_operand_must_be_written() -> None:
    p = Program("pointer")
    a, s = p.sbuf((4, 4), "float32", name="a"), p.sbuf((4, 1), "float32", name="s")
    p.memset(dst=a, value=1.0)
    p.tensor_scalar(dst=a, data=a, op0="multiply", operand0=s)
    assert "sbuf:s+0x0:float32[1][1]@0:4 is read before anything writes it" in refused(p)


def test_bytes_written_under_another_name_count_as_written() -> None:
    p = Program("alias")
    a, b = (p.sbuf((4, 4), "float32", name=n, address=0x5000) for n in "ab")
    p.memset(dst=a, value=1.0)
    p.tensor_copy(dst=b, src=b)
    compiles(p)


def test_bytes_of_a_dead_tensor_whose_place_was_taken_do_not_count_as_written() -> None:
    p = Program("taken")
    y, z = p.output("y", (4, 4), "float32"), p.output("z", (4, 4), "float32")
    a, b = p.sbuf((4, 4), "float32", name="a"), p.sbuf((4, 4), "float32", name="b")
    p.memset(dst=a, value=7.0)
    p.dma_copy(dst=y, src=a)
    p.dma_copy(dst=z, src=b)  # nothing wrote b
    assert "sbuf:b+0x0" in refused(p)  # with room for both
    assert "sbuf:b+0x0" in refused(p, memory__sbuf_partition_bytes=16384 + 8 + 16)  # and without


@pytest.mark.parametrize(("dtype", "unwritten"), [("float32", np.nan), ("bfloat16", np.nan), ("int32", -1), ("uint8", 255)])
def test_the_part_of_a_read_that_nothing_wrote_shows(dtype: str, unwritten: float) -> None:
    p = Program("partly")
    y, t = p.output("y", (2, 4), dtype), p.sbuf((2, 4), dtype)
    p.memset(dst=t[:, 1:3], value=5)
    p.dma_copy(dst=y, src=t)
    got = simulate(p).outputs["y"].astype(np.float64)
    np.testing.assert_array_equal(got, [[unwritten, 5, 5, unwritten]] * 2)


def test_an_output_that_nothing_writes_is_refused() -> None:
    p = Program("unwritten")
    p.memset(dst=p.sbuf((4, 4), "float32"), value=1.0)
    p.output("y", (4, 4), "float32")
    assert refused(p) == f"{p.tensors['y'].line} output y: nothing writes it; a dma_copy into it"


# --- the engines' registers ------------------------------------------------------------------------------------------


def test_a_product_fits_the_weights_in_the_array() -> None:
    p = Program("weights")
    w, m, out = p.sbuf((64, 32), "bfloat16"), p.sbuf((32, 8), "bfloat16"), p.psum((32, 8))
    p.memset(dst=w, value=1.0)
    p.memset(dst=m, value=1.0)
    p.ldweights(src=w)
    p.matmul(dst=out, src=m, columns=32)
    assert refused(p) == f"{p.steps[3].line} tensor[1] matmul: weights [64, 32] in the array; [32, 32]: src's partitions, columns"


def test_the_accumulator_is_reset_before_it_is_added_to() -> None:
    p = Program("accumulator")
    a, total = p.sbuf((32, 4), "float32"), p.sbuf((32, 1), "float32")
    p.memset(dst=a, value=1.0)
    p.activation(dst=a, op="copy", data=a, reduce_op="add", reduce_cmd="reduce", reduce_res=total)
    assert refused(p) == (
        f"{p.steps[1].line} scalar[1] activate: reduce over 32 partitions; a reset or reset_reduce of as many partitions before"
    )


# --- bounds, where the call is written -------------------------------------------------------------------------------


def bounds(pattern: list[list[int]], offset: int = 0) -> str:
    p = Program("bounds")
    t = p.sbuf((4, 4), "float32", name="t")
    with pytest.raises(ProgramError) as caught:
        p.memset(dst=t.ap(pattern, offset), value=1.0)
    assert len(p) == 0
    place, _, rest = str(caught.value).partition(" vector[0] memset: ")
    assert place.startswith("test_validate.py:")
    return rest


def test_a_view_stays_inside_its_tensor() -> None:
    assert bounds([[4, 4], [1, 5]]) == "sbuf:t+0x0:float32[1][5]@0:4 reaches bytes 0 to 20; 0 to 16 of tensor t"
    assert bounds([[4, 4], [2, 3]]) == "sbuf:t+0x0:float32[2][3]@0:4 reaches bytes 0 to 20; 0 to 16 of tensor t"
    assert bounds([[4, 4], [1, 4]], 1) == "sbuf:t+0x4:float32[1][4]@0:4 reaches bytes 4 to 20; 0 to 16 of tensor t"
    assert bounds([[4, 4], [-1, 2]]) == "sbuf:t+0x0:float32[-1][2]@0:4 reaches bytes -4 to 4; 0 to 16 of tensor t"
    assert bounds([[4, 5], [1, 4]]) == "sbuf:t+0x0:float32[1][4]@0:5 reaches partitions 0 to 5; the 4 of tensor t"


def test_a_view_backwards_over_its_whole_tensor_is_inside() -> None:
    p = Program("backwards")
    t = p.sbuf((4, 4), "float32", name="t")
    p.memset(dst=t.ap([[4, 4], [-1, 4]], 3), value=1.0)
    compiles(p)


def test_a_view_of_another_program_is_refused() -> None:
    p, q = Program("p"), Program("q")
    p.sbuf((4, 4), "float32", name="tile")
    with pytest.raises(ProgramError) as caught:
        p.memset(dst=q.sbuf((4, 4), "float32", name="tiles"), value=1.0)
    assert str(caught.value).endswith(" vector[0] memset: tensor 'tiles' (near: tile); a tensor that the program declares")


def test_a_view_that_contradicts_its_tensor_is_refused() -> None:
    p = Program("contradiction")
    t = p.sbuf((4, 4), "float32", name="t")
    for changed, found in (
        ({"memory": Memory.PSUM}, "psum:t+0x0:float32[1][4]@0:4 is in PSUM; SBUF, where tensor t is"),
        ({"dtype": DTYPES["bfloat16"], "counts": (9,)}, "sbuf:t+0x0:bfloat16[1][9]@0:4 reaches bytes 0 to 18; 0 to 16 of tensor t"),
        ({"offset": 2, "counts": (3,)}, "sbuf:t+0x2:float32[1][3]@0:4 starts at byte 2; a multiple of 4"),
    ):
        with pytest.raises(ProgramError) as caught:
            p.memset(dst=attrs.evolve(t, **changed), value=1.0)
        assert str(caught.value).endswith(f" vector[0] memset: {found}")


def test_a_slice_past_the_end_is_refused_where_numpy_would_cut_it() -> None:
    t = Program("slices").sbuf((4, 4), "float32", name="t")
    for key, found in (
        (np.s_[:, :5], "index 5 on axis 1; 0 to 4: a slice past the end is an error here"),
        (np.s_[:, 4], "index 4 on axis 1; -4 to 3"),
        (np.s_[:5], "index 5 on axis 0; 0 to 4: a slice past the end is an error here"),
        (np.s_[0], "an integer index on the partition dimension; write t[0:1] to keep the dimension"),
    ):
        with pytest.raises(ProgramError) as caught:
            t[key]
        assert str(caught.value).endswith(f" sbuf:t+0x0:float32[1][4]@0:4: {found}")


@pytest.mark.parametrize("op", ["abs_max", "abs_min"])
def test_operators_by_magnitude_run_on_newer_chips_only(op: str) -> None:
    p = Program()
    x, y = p.sbuf((2, 4), "float32"), p.sbuf((2, 4), "float32")
    p.memset(dst=x, value=-3)
    p.memset(dst=y, value=2)
    p.tensor_tensor(dst=y, data1=x, data2=y, op=op)
    p.dma_copy(dst=p.output("y", (2, 4), "float32"), src=y)
    with pytest.raises(Unsupported, match=f"op={op} on trn2; NeuronCore-v4 or newer"):
        simulate(p)
    assert (simulate(p, newer()).outputs["y"] == {"abs_max": -3, "abs_min": 2}[op]).all()
