"""Operand text: the grammar of real traces, printed and read back."""

from __future__ import annotations

import csv
import math
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nc_sim import Program, chip
from nc_sim.isa import DTYPES, REGISTRY, Engine, Instruction, Memory, Step, Update, UpdateOp, View, Wait, When
from nc_sim.isa.dma import DmaDirect2d
from nc_sim.isa.scalar import Activate
from nc_sim.isa.tensor import LoadWeights, Matmul
from nc_sim.isa.vector import Reciprocal, TensorCopy, TensorReduce, TensorScalar
from nc_sim.program import Tensor
from nc_sim.simulate import compile_program
from nc_sim.testing import instructions
from nc_sim.testing.operands import with_views
from nc_sim.trace import profile_csv
from nc_sim.trace.operands import Printer, function, listing, operands, packet_bytes, patterns_of, track

RANDOM = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), max_examples=30)

UPDATES = st.builds(Update, st.integers(0, 255), st.sampled_from(UpdateOp), st.integers(0, 999), st.sampled_from(When))

# Lines of the public profiles of allenkchau/trainium-kernel-fusion (MIT): engine, opcode, fn, operands.
REAL = [
    (
        "Sync", "DMA_DIRECT2D", "",
        "semaphore=8 sem_increment=16 src_elem_size=512 dst_elem_size=512 src_pattern=[512,1][128,1] "
        "dst_pattern=[262144,1][128,1] src_addr_imm=0x8005c03b0000 src_shape_reg=0 dst_addr_imm=0x802000036500 dst_shape_reg=0 "
        "compute_op=NONE",
    ),
    (
        "Sync", "DMA_DIRECT2D", "",
        "S[41] (qScalarDynamicHW)>=16 semaphore=27 sem_increment=16 src_elem_size=2048 dst_elem_size=2048 "
        "src_pattern=[262144,2048][2,128] dst_pattern=[2048,262144][2,128] src_addr_imm=0x800001080000 src_shape_reg=0 "
        "dst_addr_imm=0x802000035200 dst_shape_reg=0 compute_op=NONE",
    ),
    (
        "GpSimd", "DMA_DIRECT2D", "",
        "S[6] (Vector)>=16 semaphore=27 sem_increment=16 src_elem_size=512 dst_elem_size=512 src_pattern=[512,262144][4,128] "
        "dst_pattern=[65536,512][4,128] src_addr_imm=0x802000008850 src_shape_reg=0 dst_table_offset_imm=0x0 dst_table_index=3 "
        "dst_shape_reg=0 compute_op=NONE",
    ),
    (
        "Tensor", "LDWEIGHTS", "",
        "fp32_mode=LOW transpose_mode=DISABLED src=fp32@0x6c4c[-1,0,0][128,1,1] 128*128",
    ),
    (
        "Tensor", "LDWEIGHTS", "",
        "S[8] (qGpSimdDynamic)>=16 transpose_mode=DISABLED src=bfloat16@0x37afe[-1,0,-32][32,1,4] 128*128",
    ),
    (
        "TensorMatrix", "MATMUL", "",
        "acc_flags=0 fp32_mode=LOW_HIGH src=fp32@0x4200[1,0,0][128,1,1] dst=0x2002000[1,0,0][128,1,1] 128*128",
    ),
    (
        "TensorMatrix", "MATMUL", "",
        "S[5] (Tensor)++@complete acc_flags=2 fp32_mode=LOW_HIGH src=fp32@0x4200[1,0,0][128,1,1] dst=0x2002000[1,0,0][128,1,1] "
        "128*128",
    ),
    (
        "Scalar", "ACTIVATE", "EXP",
        "S[4] (Scalar)++@complete EXP bias_ptr=fp32@0x481c src=fp32@0x2001800[1,1,1][512,1,1] dst=fp32@0x6020[1,1,1][512,1,1] "
        "channels=128 scale=1.000000 imm=0.000000 accumulator_cmd=IDLE",
    ),
    (
        "Scalar", "COPY", "",
        "S[5] (Tensor)>=16 S[4] (Scalar)++@complete src=fp32@0x2002800[1,1,1,1][512,1,1,1] dst=fp32@0xb050[1,1,1,1][512,1,1,1] "
        "channels=128",
    ),
    (
        "Vector", "CAST", "",
        "S[5] (Tensor)>=32 S[6] (Vector)++@complete src=fp32@0x2000800[1,1,1,1][128,1,1,1] "
        "dst=bfloat16@0xc950[1,1,1,1][128,1,1,1] channels=128",
    ),
    (
        "Vector", "TENSOR_REDUCE", "",
        "S[4] (Scalar)>=4 S[6] (Vector)++@complete op=ADD dim=X src=fp32@0x6020[1,1,1,1][512,1,1,1] "
        "dst=fp32@0x8020[1,1,1,1][1,1,1,1] channels=128",
    ),
    (
        "Vector", "TENSOR_SCALAR", "",
        "S[6] (Vector)++@complete ops=MULTIPLY,BYPASS imm=0x8048,0 imm_src=PTR,INSTRUCTION src=fp32@0x7020[1,1,1][512,1,1] "
        "dst=fp32@0x9050[1,1,1][512,1,1] channels=128",
    ),
    (
        "Vector", "RECIPROCAL", "",
        "S[6] (Vector)>=12 S[6] (Vector)++@complete src=fp32@0x8030[1,1,1,1][4,1,1,1] dst=fp32@0x8040[1,1,1,1][4,1,1,1] "
        "channels=128",
    ),
    (
        "Vector", "EVENT_SEMAPHORE", "",
        "S[6] (Vector)>=12 setter=0",
    ),
    (
        "GpSimd", "NOP", "",
        "S[27] (qGpSimdDynamic)>=16 cycle=0",
    ),
]  # fmt: skip
# what the array holds before a MATMUL, by (fp32, a single pass): a product's own text tells neither pass nor transpose
WEIGHTS = {
    (False, True): ("Tensor", "LDWEIGHTS", "", "transpose_mode=DISABLED src=bfloat16@0x37afe[1,0,0][128,1,1] 128*128"),
    (True, True): ("Tensor", "LDWEIGHTS", "", "fp32_mode=LOW transpose_mode=ENABLED src=fp32@0x379f4[1,0,0][128,1,1] 128*128"),
    (True, False): ("Tensor", "LDWEIGHTS", "", "fp32_mode=HIGH transpose_mode=DISABLED src=fp32@0x379f4[1,0,0][128,1,1] 128*128"),
}
ANCHOR = ("Sync", "NOP", "", "S[0]>=0 cycle=0")  # the reader takes time zero from Sync


def read_rows(folder: Path, rows: list[tuple[str, str, str, str]]) -> profile_csv.Profile:
    """Rows of (engine, opcode, fn, operands) through a CSV file, in order."""
    path = folder / "kernel.instr.csv"
    with path.open("w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(("timestamp_ns", "duration_ns", "engine", "opcode", "fn", "pc", "operands"))
        for k, (engine, opcode, fn, text) in enumerate(rows):
            writer.writerow((k, 1, engine, opcode, fn, k, text))
    return profile_csv.read(path)


def row_of(step: Step, printer: Printer) -> tuple[str, str, str, str]:
    i = step.instruction
    return track(i) or step.engine.label, i.opcode, function(i), printer.text(step)


def back(folder: Path, step: Step, addresses: dict[str, int] | None = None) -> Step:
    """One step, printed and read."""
    printer = Printer(addresses or {}, {})
    return read_rows(folder, [ANCHOR, row_of(step, printer)]).steps[1]


def absolute(v: View, addresses: dict[str, int]) -> tuple[Any, ...]:
    """A view as a trace can show it: dimensions of one element print like none."""
    dims = tuple((s, c) for s, c in zip(v.strides, v.counts, strict=True) if c != 1)
    return v.memory, v.dtype.name, v.partition, v.partitions, v.offset + addresses.get(v.tensor, 0), dims


def touched(v: View, base: int = 0) -> list[int]:
    """Addresses of every byte, in one partition or in HBM, in the order of the elements."""
    at = np.array([base + v.offset])
    for stride, count in zip(v.strides, v.counts, strict=True):
        at = (at[:, None] + np.arange(count) * stride * v.dtype.itemsize).reshape(-1)
    return list((at[:, None] + np.arange(v.dtype.itemsize)).reshape(-1).tolist())


def tensors(i: Instruction) -> list[tuple[str, View]]:
    """The operands that print as tensors, not as pointers."""
    return [(n, v) for n, v, _ in i.views if not n.startswith("operand") and n not in ("bias", "scale")]


def sbuf(offset: int, *counts: int, dtype: str = "float32", partitions: int = 128, partition: int = 0) -> View:
    strides = tuple(math.prod(counts[k + 1 :]) for k in range(len(counts)))
    return View("", Memory.SBUF, DTYPES[dtype], partition, partitions, offset, strides, counts)


def psum(offset: int, *counts: int, dtype: str = "float32", partitions: int = 128) -> View:
    return attrs.evolve(sbuf(offset, *counts, dtype=dtype, partitions=partitions), memory=Memory.PSUM)


# ---- real lines


@pytest.mark.parametrize("line", REAL, ids=lambda line: f"{line[0]} {line[1]}")
def test_a_line_of_a_real_trace_comes_back_letter_for_letter(line: tuple[str, str, str, str], tmp_path: Path) -> None:
    before = [ANCHOR, WEIGHTS[("fp32_mode" in line[3], "acc_flags=3" in line[3])]] if line[1] == "MATMUL" else [ANCHOR]
    profile = read_rows(tmp_path, [*before, line])
    assert row_of(profile.steps[-1], Printer({}, profile.semaphore_names)) == line


def test_a_whole_trace_comes_back_but_for_what_the_reader_drops(traces: Path) -> None:
    for path in sorted(traces.glob("*.instr.csv")):
        profile = profile_csv.read(path)
        printer = Printer({}, {})
        for step, measured in zip(profile.steps, profile.measured, strict=True):
            real = re.sub(r"(S\[\d+\]) \(\w+\)", r"\1", re.sub(" +", " ", measured.operands))
            if measured.opcode == "ACT_TABLE_LOAD":
                continue  # the number of a table set
            if measured.opcode in ("LDWEIGHTS", "MATMUL") and "fp32_mode" not in printer.text(step):
                real = re.sub(r"fp32_mode=\w+ ", "", real)  # of a transpose, which takes one pass
            assert printer.text(step) == real, f"{path.name} pc {measured.pc}"


# ---- exact text


def test_waits_and_updates_print_with_their_owner_operation_and_moment() -> None:
    updates = (
        Update(4, UpdateOp.ADD, 1), Update(4, UpdateOp.ADD, 3), Update(0, UpdateOp.SUB, 1, When.READ), Update(0, UpdateOp.SUB, 2),
        Update(9, UpdateOp.SET, 7),
    )  # fmt: skip
    step = Step(TensorCopy(dst=sbuf(0, 8), src=sbuf(64, 8)), Engine.VECTOR, (Wait(6, 7),), updates)
    text = Printer({}, {6: "S[6] (Vector)", 4: "S[4] (Scalar)", 0: "mine"}).semaphores(step)
    assert text == (
        "S[6] (Vector)>=7 S[4] (Scalar)++@complete S[4] (Scalar)+=3@complete S[0] (mine)--@read S[0] (mine)-=2@complete S[9]=7@complete"
    )


def test_addresses_are_the_allocated_ones_and_psum_starts_at_0x2000000() -> None:
    a = View("a", Memory.SBUF, DTYPES["bfloat16"], 32, 32, 6, (1,), (8,))
    b = View("b", Memory.PSUM, DTYPES["float32"], 32, 32, 4, (1,), (8,))
    step = Step(TensorCopy(dst=b, src=a), Engine.VECTOR)
    # 32 x 0x40000 = 0x800000; a: + 0x4000 + 6; b: + 0x2000000 + 0x800 + 4
    expected = "src=bfloat16@0x804006[1,1,1,1][8,1,1,1] dst=fp32@0x2800804[1,1,1,1][8,1,1,1] channels=32"
    assert operands(step, {"a": 0x4000, "b": 0x800}, {}) == expected


def test_patterns_print_the_innermost_dimension_first() -> None:
    v = View("", Memory.SBUF, DTYPES["float32"], 0, 4, 0, (100, 1), (3, 8))
    assert "src=fp32@0x0[1,100,1,1][8,3,1,1]" in operands(Step(TensorCopy(dst=sbuf(0, 24, partitions=4), src=v), Engine.VECTOR), {}, {})


def test_the_array_prints_rows_times_columns() -> None:
    load = LoadWeights(src=sbuf(0, 96, partitions=64, dtype="bfloat16"))
    product = Matmul(dst=psum(0, 512, partitions=96), src=sbuf(256, 512, partitions=64, dtype="bfloat16"), columns=96)
    assert operands(Step(load, Engine.TENSOR), {}, {}).endswith(" 64*96")
    assert operands(Step(product, Engine.TENSOR), {}, {}).endswith(" 64*96")


@pytest.mark.parametrize(
    ("passes", "accumulate", "flags"),
    [("low", False, 1), ("low", True, 0), ("high", False, 2), ("high", True, 2), ("single", False, 3), ("single", True, 2)],
)
def test_acc_flags_start_on_the_low_pass_and_stop_on_the_high_one(passes: str, accumulate: bool, flags: int) -> None:
    product = Matmul(dst=psum(0, 8), src=sbuf(0, 8), columns=128, passes=passes, accumulate=accumulate)
    assert f"acc_flags={flags} " in operands(Step(product, Engine.TENSOR), {}, {})


def test_a_number_and_a_vector_operand_print_as_immediates() -> None:
    i = TensorScalar(dst=sbuf(0, 8), data=sbuf(64, 8), op0="add", operand0=0.5, op1="multiply", operand1=sbuf(0x8048, 1))
    assert "ops=ADD,MULTIPLY imm=0.5,0x8048 imm_src=INSTRUCTION,PTR src=" in operands(Step(i, Engine.VECTOR), {}, {})


def test_a_dma_between_tensors_prints_rows_both_sides_agree_on() -> None:
    # x[128, 512] fp32, columns 256 to 512, into t: rows of 256 x 4 = 1024 bytes, 2048 bytes apart in HBM
    x = View("x", Memory.HBM, DTYPES["float32"], 0, 0, 1024, (512, 1), (128, 256))
    dma = DmaDirect2d(dst=attrs.evolve(sbuf(0, 256), tensor="t"), src=x, generation="hardware")
    text = operands(Step(dma, Engine.SYNC, (), (Update(24, UpdateOp.ADD, 16),)), {"x": 0x100000, "t": 0x37BF8}, {})
    assert text == (
        "semaphore=24 sem_increment=16 src_elem_size=1024 dst_elem_size=1024 src_pattern=[2048,1][128,1] dst_pattern=[262144,1][128,1] "
        "src_addr_imm=0x800000100400 src_shape_reg=0 dst_addr_imm=0x802000037bf8 dst_shape_reg=0 compute_op=NONE"
    )


def test_dimensions_are_split_until_both_sides_of_a_dma_count_alike() -> None:
    # 6 rows in one run of stride 40 bytes against 2 x 3 with a gap: innermost 3, then 2
    a = View("a", Memory.HBM, DTYPES["uint8"], 0, 0, 0, (40, 1), (6, 10))
    b = View("b", Memory.HBM, DTYPES["uint8"], 0, 0, 0, (100, 20, 1), (2, 3, 10))
    assert patterns_of(DmaDirect2d(dst=b, src=a, generation="static")) == ([(40, 3), (120, 2)], [(20, 3), (100, 2)])


def test_a_side_without_gaps_is_cut_into_the_rows_of_the_other() -> None:
    # 4 x 6 bytes in one run of 24 against 3 rows of 8
    a = View("a", Memory.HBM, DTYPES["uint8"], 0, 0, 0, (6, 1), (4, 6))
    b = View("b", Memory.HBM, DTYPES["uint8"], 0, 0, 0, (100, 1), (3, 8))
    assert patterns_of(DmaDirect2d(dst=b, src=a, generation="static")) == ([(8, 3), (1, 1)], [(100, 3), (1, 1)])


def test_a_converting_dma_prints_both_element_sizes() -> None:
    src = View("x", Memory.HBM, DTYPES["float32"], 0, 0, 0, (8, 1), (4, 8))
    dma = DmaDirect2d(dst=sbuf(0, 8, dtype="bfloat16", partitions=4), src=src, generation="software")
    text = operands(Step(dma, Engine.GPSIMD), {}, {})
    assert text.startswith("src_elem_size=32 dst_elem_size=16 src_pattern=[32,1][4,1] ")


def test_packets_of_a_cut_row_share_its_bytes_exactly() -> None:
    before, packets, pieces, row = (np.array(c, np.int64) for c in (range(6), [1] * 6, [3] * 6, [100] * 6))
    assert packet_bytes(before, packets, pieces, row).tolist() == [34, 33, 33, 34, 33, 33]


def test_the_listing_shows_every_queue_in_order() -> None:
    p = Program("two")
    s = p.semaphore("s")
    p.nop(engine="sync", update=[s.add(1)])
    p.nop(engine="vector", wait=[s >= 1])
    p.nop(engine="sync")
    compiled, _ = compile_program(p, chip.load("trn2"))
    shown = re.sub(r"\.py:\d+", ".py:N", listing(compiled))
    assert shown == (
        "Vector: 1 instruction\n"
        "     0  NOP  S[0] (s)>=1 cycle=0  # test_operand_text.py:N\n"
        "Sync: 2 instructions\n"
        "     0  NOP  S[0] (s)++@complete cycle=0  # test_operand_text.py:N\n"
        "     1  NOP  cycle=0  # test_operand_text.py:N\n"
    )


# ---- round trips


def every_opcode() -> Program:
    """A program that compiles to every opcode that the reader of profiles knows."""
    p = Program("every")
    x, y = p.input("x", (128, 512), "float32"), p.output("y", (128, 512), "float32")
    a, b, c = (p.sbuf((128, 512), "float32") for _ in range(3))
    w, low = p.sbuf((128, 128), "float32"), p.sbuf((128, 512), "bfloat16")
    row, out = p.sbuf((128, 4), "float32"), p.psum((128, 512))
    p.dma_copy(dst=a, src=x, dge_mode="hwdge")
    p.dma_copy(dst=w, src=x[:, 128:256])
    p.nc_matmul(dst=out, stationary=w, moving=a)
    p.nc_matmul(dst=out, stationary=w, moving=a)
    p.tensor_reduce(dst=row[:, 0:1], op="add", data=a, axis=1)
    p.tensor_reduce(dst=row[:, 2:4], op="maximum", data=a.reshape(128, 2, 256), axis=2, negate=True)
    p.reciprocal(dst=row[:, 1:2], data=row[:, 0:1])
    p.activation(dst=b, op="exp", data=out, bias=row[:, 1:2], scale=0.5)
    p.tensor_scalar(dst=c, data=b, op0="multiply", operand0=row[:, 1:2], op1="add", operand1=2.0)
    p.tensor_copy(dst=low[:, 0:512:2], src=c[:, 0:256])
    p.tensor_copy(dst=b[:, 0:64], src=c[:, 64:128], engine="scalar")
    p.dma_copy(dst=y, src=c)
    return p


def test_a_compiled_program_reads_back_as_the_same_work_operands_waits_and_updates(tmp_path: Path) -> None:
    compiled, _ = compile_program(every_opcode(), chip.load("trn2"))
    addresses, printer = dict(compiled.addresses), Printer(compiled.addresses, compiled.semaphores)
    rows = [row_of(s, printer) for s in compiled.steps]
    profile = read_rows(tmp_path, rows)
    assert {r[1] for r in rows} == {*(r[1] for r in REAL), "ACT_TABLE_LOAD"}
    ours: dict[Engine, list[Step]] = defaultdict(list)
    theirs: dict[Engine, list[Step]] = defaultdict(list)
    for mine, into in ((compiled.steps, ours), (profile.steps, theirs)):
        for step in mine:
            into[step.engine].append(step)
    assert {e: len(q) for e, q in ours.items()} == {e: len(q) for e, q in theirs.items()}
    for engine, queue in ours.items():
        for a, b in zip(queue, theirs[engine], strict=True):
            assert (a.waits, a.updates) == (b.waits, b.updates)
            same_instruction(a.instruction, b.instruction, addresses)
    for number, name in profile.semaphore_names.items():
        assert compiled.semaphores[number].startswith(name)


def same_instruction(a: Instruction, b: Instruction, addresses: dict[str, int]) -> None:
    if isinstance(a, DmaDirect2d):
        assert isinstance(b, DmaDirect2d)
        assert (a.row_bytes, a.dst.nbytes, a.load) == (b.row_bytes, b.dst.nbytes, b.load)
        for mine, theirs in ((a.src, b.src), (a.dst, b.dst)):
            base = addresses[mine.tensor] + (0x800000000000 if mine.memory is Memory.HBM else 0)
            assert (mine.memory, mine.partition, mine.partitions) == (theirs.memory, theirs.partition, theirs.partitions)
            assert touched(mine, base) == touched(theirs)
        return
    assert type(a) is type(b)
    assert a.work() == b.work()
    assert [(n, absolute(v, addresses)) for n, v in tensors(a)] == [(n, absolute(v, {})) for n, v in tensors(b)]


@pytest.mark.parametrize("cls", [LoadWeights, Activate, TensorCopy, TensorReduce, TensorScalar, Reciprocal], ids=lambda c: c.mnemonic)
@RANDOM
@given(data=st.data())
def test_random_operands_read_back_as_the_same_work(
    cls: type[Instruction], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    i = data.draw(instructions(cls))
    i = attrs.evolve(i, **with_views(i, lambda _, v: attrs.evolve(v, dynamic=None)))  # a trace shows where operands lie
    if isinstance(i, Activate) and isinstance(i.scale, View):
        i = attrs.evolve(i, scale=1.0)  # the reader knows no pointer to a scale
    if any(v.memory is Memory.HBM for _, v, _ in i.views):
        return  # no operand of a compute engine
    waits = tuple(Wait(s, n) for s, n in data.draw(st.lists(st.tuples(st.integers(0, 255), st.integers(0, 999)), max_size=2)))
    step = Step(i, cls.engines[0], waits, data.draw(st.lists(UPDATES, max_size=3).map(tuple)))
    addresses = {v.tensor: 64 * k for k, (_, v, _) in enumerate(i.views)}
    read = back(tmp_path_factory.mktemp("csv"), step, addresses)
    assert (read.waits, read.updates) == (step.waits, step.updates)
    same_instruction(i, read.instruction, addresses)


@pytest.mark.parametrize("mnemonic", sorted(n for n, c in REGISTRY.items() if c.machine))
@RANDOM
@given(data=st.data())
def test_every_machine_instruction_prints_on_one_line(mnemonic: str, data: st.DataObject) -> None:
    i = data.draw(instructions(REGISTRY[mnemonic]))
    text = Printer({}, {}).text(Step(i, i.engines[0], (Wait(1, 2),)))
    assert text.isprintable()
    assert text == " ".join(text.split())
    assert text.startswith("S[1]>=2 ")


def test_a_tensor_of_the_runtime_prints_its_table_and_one_of_the_program_its_address() -> None:
    v = View("table2", Memory.HBM, DTYPES["float32"], 0, 0, 64, (8, 1), (4, 8))
    step = Step(DmaDirect2d(dst=sbuf(0, 8, partitions=4), src=v, generation="hardware"), Engine.SYNC)
    assert "src_table_offset_imm=0x40 src_table_index=2 src_shape_reg=0" in operands(step, {}, {})
    assert "src_addr_imm=0x800000001040 " in operands(step, {Tensor("table2", Memory.HBM, (4, 8), DTYPES["float32"]).name: 0x1000}, {})
