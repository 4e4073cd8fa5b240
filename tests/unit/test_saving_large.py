"""Saving large programs: the same bytes as the plain form, linear work, bounded memory, without watching the clock."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings

from nc_sim import Program, Result, packing, simulate, workloads
from nc_sim.alike import alike, kind_of
from nc_sim.forms import canonical_hash, encode_step, program_from_msgpack, program_parts, program_to_msgpack
from nc_sim.isa import View
from nc_sim.isa.dma import DmaDirect2d
from nc_sim.packing import StepPacker
from nc_sim.result import _union
from nc_sim.table import Op
from nc_sim.testing import programs
from nc_sim.trace import hardware, perfetto
from nc_sim.trace.operands import Printer
from nc_sim.trace.stored import write_binary

FEW = settings(max_examples=25)


def pipeline(tiles: int) -> Result:
    return simulate(workloads.load("pipeline").build(tiles=tiles), values=False)


# ---- the same as the plain way


@FEW
@given(programs())
def test_a_packer_gives_the_bytes_of_the_plain_lists_also_where_its_caches_overflow(p: Program) -> None:
    before = packing.REMEMBERED
    packing.REMEMBERED = 2
    try:
        packer = StepPacker()
        for s in (*p.steps, *simulate(p, values=False, races="ignore").steps):
            assert packer.body(s, s.call) + packer.line(s.line) == msgpack.packb(encode_step(s))
    finally:
        packing.REMEMBERED = before


@FEW
@given(programs())
def test_operand_text_by_kind_is_the_text_of_each_alone(p: Program) -> None:
    made = simulate(p, values=False, races="ignore").compiled
    shared = Printer(made.addresses, made.semaphores)
    for s in made.steps:
        assert shared.text(s) == Printer(made.addresses, made.semaphores).text(s)


def test_instructions_of_a_kind_differ_in_address_only() -> None:
    p = Program("kinds")
    a, b, c = (p.sbuf((128, 8), "float32") for _ in range(3))
    for x in (a, b, c):
        p.memset(x, 0.0)
    p.activation(dst=a, op="exp", data=b, scale=1.0)
    p.activation(dst=b, op="exp", data=c, scale=1.0)  # elsewhere
    p.activation(dst=a, op="exp", data=b, scale=2.0)  # another number
    p.activation(dst=a[:, 0:4], op="exp", data=b[:, 0:4], scale=1.0)  # another shape
    p.activation(dst=a[:, 0:8:2], op="exp", data=b[:, 0:4], scale=1.0)  # another stride
    p.activation(dst=a[0:64], op="exp", data=b[0:64], scale=1.0)  # fewer partitions
    one, elsewhere, number, *others = (kind_of(s.instruction) for s in p.steps[3:])
    assert one == elsewhere
    assert len({one, number, *others}) == 5
    found = alike([*p.steps, p.steps[3]])
    assert len(found.distinct) == 9
    assert found.row.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 3]
    assert found.kind.tolist() == [0, 0, 0, 1, 1, 2, 3, 4, 5]


def test_numbers_that_print_differently_are_of_different_kinds() -> None:
    p = Program("numbers")
    t = p.sbuf((128, 8), "float32")
    for value in (0.0, -0.0, 1, 1.0):
        p.tensor_scalar(dst=t, data=t, op0="add", operand0=value)
    assert len({kind_of(s.instruction) for s in p.steps}) == 4


def test_the_busy_time_of_an_engine_is_the_union_of_its_instructions() -> None:
    start, end = np.array([20, 0, 5, 30]), np.array([25, 10, 12, 30])
    assert _union(start, end) == 12 + 5
    assert _union(start[:1], end[:1]) == 5


def test_the_value_of_a_semaphore_is_counted_from_its_last_set() -> None:
    updates = [(0, Op.ADD, 5), (1, Op.SET, 9), (0, Op.SUB, 7), (0, Op.SET, 3), (1, Op.ADD, 1), (0, Op.ADD, 2), (2, Op.SUB, 4)]
    semaphore, op, amount = (np.array(c, np.int64) for c in zip(*updates, strict=True))
    assert hardware._values(semaphore, op, amount).tolist() == [5, 9, -2, 3, 10, 5, -4]


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65535, 65536, 200_000])
def test_a_binary_written_in_parts_is_the_binary_written_at_once(size: int) -> None:
    data = bytes(k % 251 for k in range(size))
    file = BytesIO()
    file.write(b"before")
    write_binary(file, (data[k : k + 999] for k in range(0, size, 999)))
    assert file.getvalue() == b"before" + msgpack.packb(data)


def test_the_hash_is_over_the_program_without_its_lines() -> None:
    with_lines = workloads.load("pipeline").build(tiles=3)
    bare = program_from_msgpack(b"".join(part for _, part in program_parts(with_lines)))
    assert {s.line for s in bare.steps} == {""}
    assert [s.instruction for s in bare.steps] == [s.instruction for s in with_lines.steps]
    assert canonical_hash(bare) == canonical_hash(with_lines)
    assert program_to_msgpack(bare) != program_to_msgpack(with_lines)


# ---- linear, counted


def counted(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> list[int]:
    """How often a function is called from here on."""
    inner, calls = getattr(owner, name), [0]

    def outer(*args: object, **options: object) -> object:
        calls[0] += 1
        return inner(*args, **options)

    monkeypatch.setattr(owner, name, outer)
    return calls


def test_work_and_text_are_computed_for_each_kind_not_for_each_instruction(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    work, words = counted(monkeypatch, DmaDirect2d, "work"), counted(monkeypatch, Printer, "_words")
    seen = []
    for tiles in (20, 200):
        result = pipeline(tiles)
        work[0] = words[0] = 0
        result.summary()
        result.save(tmp_path / str(tiles))
        seen.append((work[0], words[0]))
    assert seen[0] == seen[1]
    assert seen[0][1] > 0


def test_a_summary_makes_no_object_for_each_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    prints = counted(monkeypatch, View, "__str__")
    pipeline(50).summary()
    assert prints == [0]


def peak(of: Callable[[], object]) -> int:
    """Bytes at the highest beyond those before, numpy's among them."""
    tracemalloc.start()
    try:
        of()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_for_saving_grows_no_faster_than_the_program_and_is_near_the_size_of_the_files(tmp_path: Path) -> None:
    peaks, sizes = [], []
    for tiles in (500, 2000):
        result = pipeline(tiles)
        folder = tmp_path / str(tiles)
        peaks.append(peak(lambda: result.save(folder)))  # noqa: B023
        sizes.append(sum(f.stat().st_size for f in folder.iterdir()))
    assert peaks[1] < 4.4 * peaks[0]
    assert peaks[1] < 2.2 * sizes[1]  # whole files and all columns beside each other would be 3.5 times as much


def test_a_perfetto_file_is_written_by_the_chunk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("perfetto")
    held: list[int] = []
    flush = perfetto._Writer.flush
    monkeypatch.setattr(perfetto._Writer, "flush", lambda w: (held.append(w.held), flush(w))[1])
    perfetto.save(pipeline(600), tmp_path / "x")
    assert max(held) == perfetto.CHUNK
    assert sum(held) > 15 * perfetto.CHUNK
