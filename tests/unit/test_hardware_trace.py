"""Hardware traces: what they record, how they are kept, and what a damaged file says."""

from __future__ import annotations

import hashlib
import io
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import msgpack
import numpy as np
import pytest
from hypothesis import given, settings

from conftest import REPOSITORY
from nc_sim import Program, Result, forms, simulate, workloads
from nc_sim.isa import Engine, Memory
from nc_sim.isa.dma import Dma
from nc_sim.isa.errors import ProgramError
from nc_sim.testing import programs
from nc_sim.trace import hardware
from nc_sim.trace.hardware import Times, Trace, load, pack, trace_of, unpack
from nc_sim.trace.stored import packed

RANDOM = settings(max_examples=40)


def handshake() -> Program:
    """Sync signals, Vector waits; then subtracts when it begins and sets when it ends."""
    p = Program("handshake")
    s = p.semaphore("s")
    p.nop(engine="sync", update=[s.add(1)])
    p.nop(engine="vector", wait=[s >= 1], update=[s.sub(1, when="read"), s.set(7)])
    return p


def scale_exp() -> Program:
    p = Program("scale_exp")
    x, y = p.input("x", (128, 512), "float32"), p.output("y", (128, 512), "float32")
    t = p.sbuf((128, 512), "float32", name="t")
    p.dma_copy(dst=t, src=x)
    p.activation(dst=t, op="exp", data=t, scale=0.5)
    p.dma_copy(dst=y, src=t)
    return p


def product() -> Program:
    """One bf16 product, weights [64, 96] and moving [64, 512], and a transpose of [64, 32]."""
    p = Program("product")
    x = p.input("x", (64, 512), "bfloat16")
    a, out, turned = p.sbuf((64, 512), "bfloat16"), p.psum((96, 512)), p.psum((32, 64), "bfloat16")
    p.dma_copy(dst=a, src=x)
    p.nc_matmul(dst=out, stationary=a[:, 0:96], moving=a)
    p.nc_transpose(dst=turned, data=a[:, 0:32])
    return p


def run(p: Program, **options: Any) -> Result:
    return simulate(p, values=False, **options)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one saved run."""
    return run(scale_exp()).save(tmp_path_factory.mktemp("saved"))


def file_of(folder: Path, suffix: str = ".ntff.msgpack") -> Path:
    (found,) = folder.glob(f"*{suffix}")
    return found


def numbers(column: Times) -> list[tuple[int, int]]:
    return list(zip(column.ticks.tolist(), column.ns.tolist(), strict=True))


# ---- what a trace records


def test_times_are_exact_ticks_and_ns_rounded_half_up() -> None:
    # trn2 has 24/5 ticks per ns. NOP: 18 ns on Sync = 86.4 ticks, 23 ns on Vector = 110.4; a semaphore takes 34 ns = 163.2;
    # Vector is released after 40 ns = 192. So Sync runs 0 to 86, Vector is ready at 192 and starts at 86 + 163 = 249.
    i = trace_of(run(handshake())).instructions
    assert list(i.engine) == ["Sync", "Vector"]
    assert numbers(i.ready) == [(0, 0), (192, 40)]
    assert numbers(i.wait) == [(0, 0), (57, 12)]  # 249 - 192; 11.9 ns
    assert numbers(i.start) == [(0, 0), (249, 52)]  # 51.9 ns
    assert numbers(i.end) == [(86, 18), (359, 75)]  # 17.9 and 74.8 ns
    assert hardware._ns(np.array([12, 36, 11]), 24, 5).tolist() == [3, 8, 2]  # 2.5, 7.5 and 2.29 ns


def test_semaphore_updates_are_in_order_of_time_with_the_value_after() -> None:
    t = trace_of(run(handshake()))
    u = t.semaphores
    # Sync's at 86 + 163; Vector's at its start 249 + 163 and at its end 359 + 163
    assert numbers(u.time) == [(249, 52), (412, 86), (522, 109)]
    assert list(zip(u.id.tolist(), u.name, u.value.tolist(), strict=True)) == [(0, "S[0] (s)", 1), (0, "S[0] (s)", 0), (0, "S[0] (s)", 7)]
    assert [u.operation.tolist(), u.amount.tolist(), u.instruction.tolist()] == [[0, 1, 2], [1, 1, 7], [0, 1, 1]]
    assert len(t.metadata["observed_semaphores"]) == 1  # it is subtracted from and set


def test_the_metadata_say_what_ran_where_and_what_it_rests_on() -> None:
    m = trace_of(run(handshake(), what_if={"program.prologue_ns": "100.5"}, without=["clock-gate"])).metadata
    assert (m["program"], m["chip"], m["core"], m["is_simulation"]) == ("handshake", "trn2", "NeuronCore-v3", True)
    assert (m["duration_ticks"], m["duration_ns"], m["ticks_per_ns"]) == (359, 75, [24, 5])
    assert (m["prologue_ns"], m["epilogue_ns"], m["benchmark_ns"]) == (101, 1700, 8200)
    assert m["what_if"] == {"program.prologue_ns": "100.5", "tensor.gate.kind": "none"}
    assert m["without"] == ["clock-gate"]
    assert all(why.startswith(("assumed: ", "carried-over: ")) for why in m["assumed"].values())


def test_a_gated_clock_shows_as_4_of_8_and_a_program_without_gate_as_8_of_8() -> None:
    g = trace_of(run(handshake())).gate
    assert (numbers(g.start), numbers(g.end), g.k.tolist(), g.n.tolist()) == ([(0, 0)], [(359, 75)], [4], [8])
    g = trace_of(run(handshake(), without=["clock-gate"])).gate
    assert (g.k.tolist(), g.n.tolist()) == ([8], [8])
    g = trace_of(run(handshake(), what_if={"tensor.gate.ratio": "1/3"})).gate
    assert (g.k.tolist(), g.n.tolist()) == ([1], [3])


def test_gate_states_follow_each_other_without_a_gap() -> None:
    p = Program("busy")
    x = p.input("x", (128, 512), "bfloat16")
    a, out = p.sbuf((128, 512), "bfloat16"), p.psum((128, 512))
    p.dma_copy(dst=a, src=x)
    for _ in range(40):
        p.nc_matmul(dst=out, stationary=a[:, 0:128], moving=a)
    r = run(p)
    g = trace_of(r).gate
    assert g.k.tolist() == [4, 8, 4][: len(g)]
    assert len(g) >= 2
    assert g.start.ticks.tolist() == [tick for tick, _ in r.timeline.gate][: len(g)]
    assert g.end.ticks.tolist()[:-1] == g.start.ticks.tolist()[1:]


def test_a_transfer_has_its_queue_ends_rows_and_bytes_by_engine() -> None:
    # 128 rows of 512 x 4 = 2048 bytes; each of the 16 engines serves 8 partitions: 8 packets, 16,384 bytes
    t = trace_of(run(scale_exp()))
    d, s = t.transfers, t.shares
    assert list(d.queue) == ["qGpSimdDynamic"] * 2
    assert list(zip(d.source, d.destination, strict=True)) == [("HBM:x", "SBUF:t"), ("SBUF:t", "HBM:y")]
    assert [d.rows.tolist(), d.row_bytes.tolist(), d.bytes.tolist()] == [[128] * 2, [2048] * 2, [262144] * 2]
    assert [t.instructions.opcode[k] for k in d.instruction] == ["DMA_DIRECT2D"] * 2
    assert s.transfer.tolist() == [0] * 16 + [1] * 16
    assert s.engine.tolist() == [*range(16)] * 2
    assert (s.packets.tolist(), s.bytes.tolist()) == ([8] * 32, [16384] * 32)
    for k in range(2):
        mine = s.transfer == k
        assert (d.start.ticks[k], d.end.ticks[k]) == (s.start.ticks[mine].min(), s.end.ticks[mine].max())


def test_a_row_cut_into_packets_loses_no_byte() -> None:
    # one row each, packets of at most 65,536 bytes: 140,003 = 46,668 + 46,668 + 46,667 and 70,001 = 35,001 + 35,000
    p = Program("cut")
    for k, size in enumerate((140003, 70001)):
        p.dma_copy(dst=p.output(f"y{k}", (size,), "uint8"), src=p.input(f"x{k}", (size,), "uint8"))
    t = trace_of(run(p))
    assert [c.tolist() for c in (t.transfers.rows, t.transfers.row_bytes, t.transfers.bytes)] == [[1, 1], [140003, 70001], [140003, 70001]]
    assert t.shares.packets.tolist() == [1, 1, 1] + [0] * 13 + [1, 1] + [0] * 14
    assert t.shares.bytes.tolist() == [46668, 46668, 46667] + [0] * 13 + [35001, 35000] + [0] * 14


def test_a_converting_transfer_counts_both_sides_and_the_wider_type() -> None:
    p = Program("convert")
    p.dma_copy(dst=p.sbuf((4, 8), "bfloat16"), src=p.input("x", (4, 8), "float32"))
    d = trace_of(run(p)).transfers
    assert (d.bytes.tolist(), d.read_bytes.tolist(), d.write_bytes.tolist()) == ([128], [128], [64])


def test_instructions_count_bytes_over_all_partitions_and_flops() -> None:
    t = trace_of(run(product()))
    i = t.instructions
    rows = [k for k, op in enumerate(i.opcode) if op in ("LDWEIGHTS", "MATMUL")]
    # 64 x 96 and 64 x 512 of 2 bytes; [96, 512] of 4; then the transpose: 64 x 32, the identity [64, 64], [32, 64] of 2
    assert i.sbuf_read_bytes[rows].tolist() == [12288, 65536, 4096, 8192]
    assert i.psum_write_bytes[rows].tolist() == [0, 196608, 0, 4096]
    # 2 x 64 x 96 x 512, and 2 x 64 x 32 x 64 that only transpose
    assert i.flops[rows].tolist() == [0, 6291456, 0, 262144]
    assert i.transpose_flops[rows].tolist() == [0, 0, 0, 262144]
    loads = [k for k, source in zip(t.transfers.instruction.tolist(), t.transfers.source, strict=True) if source == "HBM:x"]
    assert (i.hbm_read_bytes[loads].tolist(), i.sbuf_write_bytes[loads].tolist()) == ([65536], [65536])


def test_pc_counts_within_each_queue_in_program_order() -> None:
    r = run(product())
    i = trace_of(r).instructions
    for engine in Engine:
        mine = [k for k, name in enumerate(i.engine) if name == engine.label]
        assert i.pc[mine].tolist() == list(range(len(mine)))
    assert list(i.line) == [s.line for s in r.steps]


@RANDOM
@given(p=programs(most=6) | programs(most=6, loop=True))
def test_bytes_are_conserved_from_shares_to_transfers_to_the_summary(p: Program) -> None:
    r = run(p)
    t = trace_of(r)
    for k in range(len(t.transfers)):
        assert t.shares.bytes[t.shares.transfer == k].sum() == t.transfers.bytes[k]
    assert (t.transfers.rows * t.transfers.row_bytes == t.transfers.bytes).all()
    dmas = [s.instruction for s in r.steps if isinstance(s.instruction, Dma)]
    assert list(t.transfers.source) == ["+".join(f"{v.memory.name}:{v.tensor}" for v in d.sources) for d in dmas]
    assert t.transfers.read_bytes.tolist() == [sum(v.nbytes for v in d.sources) for d in dmas]
    from_hbm = sum(v.nbytes for d in dmas for v in d.sources if v.memory is Memory.HBM)
    to_hbm = np.array([s.startswith("HBM:") for s in t.transfers.destination], bool)
    moved = r.summary()
    assert from_hbm == t.instructions.hbm_read_bytes.sum() == moved["hbm_read_bytes"]
    assert t.transfers.write_bytes[to_hbm].sum() == t.instructions.hbm_write_bytes.sum() == moved["hbm_write_bytes"]
    assert len(t.transfers) == sum(isinstance(s.instruction, Dma) for s in r.steps)


@RANDOM
@given(p=programs(most=6))
def test_every_wait_ends_when_the_recorded_updates_first_meet_it(p: Program) -> None:
    r = run(p)
    t = trace_of(r)
    i, u = t.instructions, t.semaphores
    for k, step in enumerate(r.steps):
        met = 0
        for w in step.waits:
            mine = u.id == w.semaphore
            met = max(met, int(u.time.ticks[mine][np.flatnonzero(u.value[mine] >= w.value)[0]]))
        assert i.ready.ticks[k] + i.wait.ticks[k] == max(i.ready.ticks[k], met)


@RANDOM
@given(p=programs(most=4))
def test_a_trace_comes_back_equal_from_its_bytes(p: Program) -> None:
    t = trace_of(run(p))
    again = unpack(pack(t))
    assert again == t
    assert pack(again) == pack(t)


def test_traces_of_different_runs_differ() -> None:
    assert trace_of(run(scale_exp())) == trace_of(run(scale_exp()))
    assert trace_of(run(scale_exp())) != trace_of(run(scale_exp(), what_if={"clock.scalar_mhz": 600}))


def test_an_empty_program_has_an_empty_trace() -> None:
    t = trace_of(run(Program("empty")))
    assert [len(getattr(t, name)) for name in hardware.RECORDS] == [0] * 5
    assert unpack(pack(t)) == t


# ---- files


def test_saving_writes_a_pair_named_by_the_programs_hash(saved: Path) -> None:
    name = forms.canonical_hash(scale_exp())
    assert sorted(p.name for p in saved.iterdir()) == [f"{name}_instid_0_vnc_0.ntff.msgpack", f"neff_{name}.neff.msgpack"]


def test_a_saved_trace_loads_equal_by_file_and_by_folder_without_the_program(saved: Path, tmp_path: Path) -> None:
    t = trace_of(run(scale_exp()))
    assert load(saved) == t
    assert load(str(file_of(saved))) == t
    alone = tmp_path / "renamed.ntff.msgpack"
    alone.write_bytes(file_of(saved).read_bytes())
    assert load(alone) == t
    assert load(tmp_path) == t


def test_the_paired_program_is_the_one_that_ran(saved: Path) -> None:
    assert forms.program_to_msgpack(load(saved).program()) == forms.program_to_msgpack(scale_exp())


def test_the_program_file_holds_machine_steps_addresses_and_every_chip_number_with_its_source(tmp_path: Path) -> None:
    r = run(scale_exp(), what_if={"dma.row_ns": "7/2"})
    raw = msgpack.unpackb(file_of(r.save(tmp_path), ".neff.msgpack").read_bytes())
    assert (raw["format"], raw["version"], raw["explicit"]) == ("nc-sim compiled program", 1, False)
    steps = list(msgpack.Unpacker(io.BytesIO(raw["machine"])))
    assert len(steps) == raw["steps"] == len(r.steps)
    assert [forms.decode_step(s) for s in steps] == list(r.steps)
    assert msgpack.unpackb(raw["addresses"]) == dict(r.compiled.addresses)
    assert raw["semaphores"] == [[k, v] for k, v in sorted(r.compiled.semaphores.items())]
    chip = raw["chip"]
    assert (chip["name"], chip["overrides"]) == ("trn2", {"dma.row_ns": "7/2"})
    assert set(chip["numbers"]) == set(r.chip.numbers)
    assert chip["numbers"]["dma.row_ns"] == ["7/2", "assumed", "what-if"]
    assert chip["numbers"]["dma.engines"][:2] == ["16", r.chip.numbers["dma.engines"].status]


PROCESS = """
import sys
from nc_sim import Program, simulate
p = Program("same")
x, y = p.input("x", (128, 512), "bfloat16"), p.output("y", (128, 512), "float32")
a, o, t = p.sbuf((128, 512), "bfloat16"), p.psum((128, 512)), p.sbuf((128, 512), "float32")
p.dma_copy(dst=a, src=x)
p.nc_matmul(dst=o, stationary=a[:, 0:128], moving=a)
p.activation(dst=t, op="exp", data=o)
p.dma_copy(dst=y, src=t, dge_mode="hwdge")
simulate(p, values=False, what_if={"dma.row_ns": 5, "clock.vector_mhz": 1200}).save(sys.argv[1])
"""


def test_two_processes_write_the_same_bytes_whatever_the_hash_seed(tmp_path: Path) -> None:
    for seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(REPOSITORY)}
        subprocess.run([sys.executable, "-c", PROCESS, str(tmp_path / seed)], env=environment, check=True, cwd=tmp_path)
    first, second = ({p.name: p.read_bytes() for p in (tmp_path / seed).iterdir()} for seed in ("0", "1"))
    assert len(first) == 2
    assert first == second


def test_saving_changes_no_time(tmp_path: Path) -> None:
    plain, traced = run(scale_exp()), run(scale_exp())
    before = traced.timeline
    traced.save(tmp_path)
    assert traced.timeline == before == plain.timeline
    assert traced.summary() == plain.summary()


def test_saving_makes_the_folder_and_its_parents(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    assert run(handshake()).save(folder) == folder
    assert load(folder).metadata["program"] == "handshake"


def test_a_failing_write_leaves_no_half_file_and_the_old_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(handshake()).save(tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(ProgramError) as e:
        run(handshake(), what_if={"semaphore.latency_ns": 50}).save(tmp_path)
    assert str(e.value) == f"{tmp_path}: cannot be written: No space left on device; a folder that can be made and written to"
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_a_write_that_stops_halfway_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []

    def half(value: Any) -> bytes:
        written.extend(p.stat().st_size for p in tmp_path.iterdir())
        if value == "semaphores":  # the program file is written, and some columns of the trace
            raise OSError(28, "No space left on device")
        return packed(value)

    monkeypatch.setattr(hardware, "packed", half)
    result = run(workloads.load("pipeline").build(tiles=300))
    with pytest.raises(ProgramError):
        result.save(tmp_path)
    assert max(written) > 100_000
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ProgramError) as e:
        run(handshake()).save(tmp_path / "file" / "folder")
    assert str(e.value) == f"{tmp_path}/file/folder: cannot be written: Not a directory; a folder that can be made and written to"


# ---- bad inputs


def message(path: Path) -> str:
    """What loading says, without the folder's name."""
    with pytest.raises(ProgramError) as e:
        load(path)
    return str(e.value).replace(f"{path}", "PATH")


def changed(saved: Path, to: Path, **keys: Any) -> Path:
    """The saved trace with other top-level keys."""
    raw = msgpack.unpackb(file_of(saved).read_bytes()) | keys
    path = to / "changed.ntff.msgpack"
    path.write_bytes(msgpack.packb(raw))
    return path


def test_what_is_no_trace_says_so(saved: Path, tmp_path: Path) -> None:
    assert message(tmp_path / "missing") == "PATH: cannot be read: No such file or directory; a trace that Result.save wrote"
    assert message(tmp_path) == "PATH: no trace; one *.ntff.msgpack, or the path of a file"
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    assert message(text) == "PATH: unreadable data; the msgpack of a whole 'nc-sim hardware trace'"
    text.write_bytes(b"")
    assert message(text) == "PATH: an empty file; the folder of a saved run, or the *.ntff.msgpack in it"
    text.write_bytes(msgpack.packb([1, 2]))
    assert message(text) == "PATH format: None; 'nc-sim hardware trace'"
    program = file_of(saved, ".neff.msgpack")
    assert message(program) == "PATH: a program, not a trace; the folder of a saved run, or the *.ntff.msgpack in it"


def test_a_folder_of_the_last_run_alone_loses_earlier_runs_and_nothing_else(tmp_path: Path) -> None:
    hardware.save_alone(run(handshake()), tmp_path)
    mine = [tmp_path / n for n in ("notes.ntff.msgpack", "neff_1.neff.msgpack", "x.txt")]
    for path in mine:
        path.write_bytes(b"mine")
    hardware.save_alone(run(scale_exp()), tmp_path)
    run(scale_exp()).save(tmp_path / "other")
    kept = sorted(p.name for p in (tmp_path / "other").iterdir())
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == sorted([*kept, *(p.name for p in mine)])


def test_two_traces_in_a_folder_are_refused_by_name(tmp_path: Path) -> None:
    names = [file_of(run(p).save(tmp_path / p.name)) for p in (handshake(), scale_exp())]
    for path in names:
        path.rename(tmp_path / path.name)
    first, second = sorted(p.name for p in names)
    for path, second_of in ((tmp_path / first, 2_000), (tmp_path / second, 1_000)):
        os.utime(path, (second_of, second_of))
    assert message(tmp_path) == f"PATH: 2 traces: {first}, {second}; the path of one of them; the newest is {first}"


def test_another_format_and_an_unknown_version_are_refused(saved: Path, tmp_path: Path) -> None:
    assert message(changed(saved, tmp_path, format="other")) == "PATH format: 'other'; 'nc-sim hardware trace'"
    assert message(changed(saved, tmp_path, version=2)) == "PATH version: 2; 1, the only one that this nc-sim reads"
    assert message(changed(saved, tmp_path, version=True)) == "PATH version: True; 1, the only one that this nc-sim reads"


def test_a_truncated_file_says_where_it_ends(saved: Path, tmp_path: Path) -> None:
    data = file_of(saved).read_bytes()
    path = tmp_path / "cut.ntff.msgpack"
    path.write_bytes(data[:1000])
    assert message(path) == "PATH: cut off after 1000 bytes; the msgpack of a whole 'nc-sim hardware trace'"


def test_a_wrong_column_is_named(saved: Path, tmp_path: Path) -> None:
    raw = msgpack.unpackb(file_of(saved).read_bytes())

    def told(record: str, **columns: Any) -> str:
        table = raw[record]
        return message(changed(saved, tmp_path, **{record: {**table, "columns": {**table["columns"], **columns}}}))

    assert told("gate", k=None) == "PATH gate k: no such column; [type, bytes] of 1 numbers"
    assert told("gate", k=["<f8", b"12345678"]) == "PATH gate k: a column of another form; [type, bytes] of 1 numbers"
    assert told("gate", k=["<i2", b"1"]) == "PATH gate k: a column of another form; [type, bytes] of 1 numbers"
    assert told("gate", k=["<i1", b"\xff"]) == "PATH gate k: -1; 0 to 281474976710655"
    assert told("gate", end_ns=["<i1", b"\x01"]) == "PATH gate end_ns: [1]; end_ticks in ns, rounded half up"
    assert told("gate", more=["<i1", b"\x01"]) == "PATH gate columns: ['more']; no other column"
    assert told("transfers", queue=["<i1", b"\x00\x05", b"q"]) == "PATH transfers queue: 5; an index below 1"
    assert told("transfers", queue=["<i1", b"\x00\x00", b"\xff"]) == "PATH transfers queue: no text; UTF-8 texts, separated by zero bytes"
    assert told("transfers", instruction=["<i1", b"\x00\x09"]) == "PATH transfers instruction: 9; below 5, the number of instructions"
    assert message(changed(saved, tmp_path, gate=[])) == "PATH gate: no columns; count and columns"
    assert message(changed(saved, tmp_path, hash="12")) == "PATH hash: '12'; twenty digits"


def test_wrong_metadata_are_named(saved: Path, tmp_path: Path) -> None:
    m = msgpack.unpackb(file_of(saved).read_bytes())["metadata"]
    assert message(changed(saved, tmp_path, metadata={**m, "chip": 3})) == "PATH metadata chip: 3; of the form ''"
    assert message(changed(saved, tmp_path, metadata={**m, "races": [1]})) == "PATH metadata races: [1]; of the form ['']"
    tick = changed(saved, tmp_path, metadata={**m, "ticks_per_ns": [0, 5]})
    assert message(tick) == "PATH metadata ticks_per_ns: [0, 5]; a fraction above 0"
    assert message(changed(saved, tmp_path, metadata=None)).startswith("PATH metadata: []; exactly program, chip, core, ")


def test_a_missing_and_a_foreign_program_are_named(saved: Path, tmp_path: Path) -> None:
    trace = tmp_path / file_of(saved).name
    trace.write_bytes(file_of(saved).read_bytes())
    name = file_of(saved, ".neff.msgpack").name
    with pytest.raises(ProgramError) as e:
        load(tmp_path).program()
    assert str(e.value) == f"{tmp_path / name}: cannot be read: No such file or directory; the trace's program, that Result.save wrote"
    foreign = file_of(run(handshake()).save(tmp_path / "other"), ".neff.msgpack").read_bytes()
    (tmp_path / name).write_bytes(foreign)
    with pytest.raises(ProgramError) as e:
        load(tmp_path).program()
    found, wanted = (hashlib.sha256(b).hexdigest()[:12] for b in (foreign, file_of(saved, ".neff.msgpack").read_bytes()))
    assert str(e.value) == f"{tmp_path / name}: SHA-256 {found}…; {wanted}…, of the program that the trace was recorded with"
    with pytest.raises(ProgramError) as e:
        trace_of(run(handshake())).program()
    assert str(e.value) == "trace: a trace that lies in no folder; one that Result.save wrote: its program lies beside it"


def test_a_program_saved_again_for_another_chip_does_not_pass_for_the_first(saved: Path, tmp_path: Path) -> None:
    run(scale_exp(), what_if={"dma.row_ns": 9}).save(tmp_path)
    file_of(tmp_path).write_bytes(file_of(saved).read_bytes())
    with pytest.raises(ProgramError, match="of the program that the trace was recorded with"):
        load(tmp_path).program()


def test_damaged_bytes_give_a_program_error_or_a_valid_trace_and_nothing_else(saved: Path) -> None:
    data, rng, refused = file_of(saved).read_bytes(), random.Random(0), 0
    for _ in range(4000):
        damaged = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 2, 8))):
            damaged[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.1:
            del damaged[rng.randrange(len(data)) :]
        try:
            t = unpack(bytes(damaged))
        except ProgramError:
            refused += 1
        else:
            assert isinstance(t, Trace)
            assert unpack(pack(t)) == t
    assert refused > 2000


def test_lengths_that_a_file_claims_are_not_believed() -> None:
    for head in (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\x91" * 100_000):
        with pytest.raises(ProgramError):
            unpack(head)


def test_extension_types_are_refused() -> None:
    with pytest.raises(ProgramError):
        unpack(msgpack.packb({"format": msgpack.ExtType(5, b"x")}))


def test_a_trace_is_frozen() -> None:
    t = trace_of(run(handshake()))
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        t.metadata = {}  # type: ignore[misc]
