"""Files that are of no use to view, replay, explain, stalls, compare, roofline or sweep: one line that says what they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest
from click.testing import CliRunner
from test_perfetto import needs_perfetto
from test_profile_json import export
from test_profile_output import CSV, PACKETS, _repacked

from nc_sim import simulate, workloads
from nc_sim.__main__ import main
from nc_sim.report.study.rmsnorm import rmsnorm_study
from nc_sim.trace import hardware, perfetto, system

GOOD = "GOOD"  # stands for the folder of a saved run
COMMANDS = {
    "view": ["view", "{}"],
    "tables": ["view", "{}", "--output-format", "summary-json"],
    "replay": ["replay", "{}"],
    "explain": ["explain", "{}"],
    "stalls": ["stalls", "{}"],
    "compare, as A": ["compare", "{}", GOOD],
    "compare, as B": ["compare", GOOD, "{}"],
    "roofline": ["roofline", "{}"],
    "sweep": ["sweep", "{}", "--workers", "1"],
}
RUNS = ("explain", "stalls", "compare, as A", "compare, as B", "roofline")  # take the folder of a saved run
PROFILES = ("tables", "replay", "compare, as A", "compare, as B")  # take a profile of hardware


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulate(workloads.load("rmsnorm").build(), values=False).save(tmp_path_factory.mktemp("good"))


def refused(path: Path, command: str, good: Path) -> str:
    words = [w.replace("{}", str(path)).replace(GOOD, str(good)) for w in COMMANDS[command]]
    done = CliRunner().invoke(main, words, prog_name="nc-sim")
    assert isinstance(done.exception, SystemExit), f"{command}: {done.exception!r}\n{done.output}"
    assert (done.exit_code, done.stdout) == (1, ""), command
    assert done.stderr.startswith("error: "), command
    assert done.stderr.count("\n") == 1, command
    assert path.name in done.stderr or path.name.split(".")[0] in done.stderr, command
    return done.stderr


# --- what no command takes ---------------------------------------------------------------------------------------


def parquet(path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"a": [1]}), path)


OTHERS: dict[str, tuple[str, bytes | Callable[[Path], None], str]] = {
    "an empty file": ("x", b"", "an empty file"),
    "an empty export": ("x.json", b"", "an empty file"),
    "a Parquet table": ("x.bin", parquet, "a Parquet table"),
    "a Parquet table by its name": ("Instruction.parquet", parquet, "a Parquet table"),
    "a Chrome trace": ("x.json", json.dumps({"traceEvents": [{"ph": "X", "ts": 1}]}).encode(), "a Chrome trace"),
    "a compressed file": ("x.gz", b"\x1f\x8b\x08\x00abc", "a file compressed by gzip"),
    "an archive": ("x.zip", b"PK\x03\x04abc", "a zip archive"),
    "a binary trace": ("x.ntff", b"\x01\x02", "the profiler's binary trace"),
    "a page": ("x.html", b"<html>", "XML or HTML"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("what", OTHERS)
def test_a_file_of_another_kind_is_called_what_it_is(what: str, command: str, saved: Path, tmp_path: Path) -> None:
    name, content, told = OTHERS[what]
    path = tmp_path / name
    if callable(content):
        content(path)
    else:
        path.write_bytes(content)
    assert told in refused(path, command, saved)


@needs_perfetto
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["x.pftrace", "x"])
def test_a_perfetto_file_is_called_one(name: str, command: str, saved: Path, tmp_path: Path) -> None:
    perfetto.save(hardware.load(saved), tmp_path / name)
    assert "a Perfetto file" in refused(tmp_path / name, command, saved)


@pytest.mark.parametrize("command", COMMANDS)
def test_bytes_and_words_without_a_meaning_are_refused(command: str, saved: Path, tmp_path: Path) -> None:
    for name, content in (("bytes", bytes(range(1, 256)) * 4), ("words", b"hello\n"), ("x.msgpack", b"\xc1\xc1")):
        (tmp_path / name).write_bytes(content)
        refused(tmp_path / name, command, saved)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["folder", "folder.json", "folder.instr.csv"])
def test_a_folder_without_a_run_is_refused(name: str, command: str, saved: Path, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    message = refused(tmp_path / name, command, saved)
    assert "no trace" in message or "a folder" in message or "Is a directory" in message


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["nothing", "nothing.json", "nothing.instr.csv"])
def test_what_is_not_there_is_refused(name: str, command: str, saved: Path, tmp_path: Path) -> None:
    message = refused(tmp_path / name, command, saved)
    assert "No such file" in message or "one of rmsnorm" in message


@pytest.mark.parametrize("command", [c for c in COMMANDS if c not in ("roofline", "sweep")])
@pytest.mark.parametrize("name", ["run.ntff.msgpack", "profile.json", "profile.instr.csv"])
def test_a_file_that_may_not_be_read_is_refused(
    name: str, command: str, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    path.write_bytes(b"timestamp_ns,duration_ns\n")
    opened = Path.open

    def denied(self: Path, *args: Any, **options: Any) -> Any:
        if self == path:
            raise PermissionError(13, "Permission denied", str(self))
        return opened(self, *args, **options)

    for method in ("open", "read_bytes", "read_text"):  # the administrator may read everything
        monkeypatch.setattr(Path, method, denied if method == "open" else _through(denied, method, getattr(Path, method), path))
    message = refused(path, command, saved)
    assert "Permission denied" in message or command == "view"


def _through(denied: Any, method: str, before: Any, path: Path) -> Any:
    return lambda self, *a, **k: denied(self) if self == path else before(self, *a, **k)


@pytest.mark.parametrize("command", [*RUNS, "view"])
def test_a_system_trace_is_no_run_of_one_program(command: str, saved: Path, tmp_path: Path) -> None:
    message = refused(system.save(rmsnorm_study(4, 64).runtimes["naive"], tmp_path / "system"), command, saved)
    assert "system trace" in message or "traces" in message


# --- saved runs --------------------------------------------------------------------------------------------------


def files(saved: Path) -> tuple[Path, Path]:
    return next(saved.glob(f"*{hardware.TRACE_SUFFIX}")), next(saved.glob(f"*{hardware.PROGRAM_SUFFIX}"))


@pytest.mark.parametrize("command", RUNS)
@pytest.mark.parametrize(
    ("damage", "told"), [("half", "cannot be read"), ("mixed", "SHA-256"), ("cut trace", "cut off"), ("cut program", "SHA-256"),
                         ("version", "version: 2; 1, the only one"), ("two", "2 traces"), ("empty", "an empty file")]
)  # fmt: skip
def test_a_damaged_run_is_refused(damage: str, told: str, command: str, saved: Path, tmp_path: Path) -> None:
    trace, program = files(saved)
    folder = tmp_path / "run"
    folder.mkdir()
    first, second = trace.read_bytes(), program.read_bytes()
    if damage == "mixed":
        second = files(simulate(workloads.load("softmax").build(), values=False).save(tmp_path / "other"))[1].read_bytes()
    elif damage == "version":
        first = msgpack.packb({**msgpack.unpackb(first), "version": 2})
    (folder / trace.name).write_bytes({"cut trace": first[:500], "empty": b""}.get(damage, first))
    if damage != "half":
        (folder / program.name).write_bytes(second[: len(second) // 2] if damage == "cut program" else second)
    if damage == "two":
        (folder / f"x{hardware.TRACE_SUFFIX}").write_bytes(first)
    done = CliRunner().invoke(main, [w.replace("{}", str(folder)).replace(GOOD, str(saved)) for w in COMMANDS[command]])
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert told in done.stderr


@pytest.mark.parametrize("command", RUNS)
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"version": 9}, "version: 9; 1, the only one"),
        ({"format": "other"}, "format: 'other'; 'nc-sim compiled program'"),
        ({"chip": None}, "chip: None; name, core, sources"),
        ({"chip": {"name": "x", "core": "y", "sources": {}, "numbers": {}, "overrides": {}}}, "on one side only; the chip numbers of this"),
        ({"program": b"\x01"}, "unreadable data near byte 0"),
        ({"program": None}, "program: None; the bytes of a program"),
    ],
)
def test_a_program_file_of_another_form_is_refused(change: dict[str, Any], told: str, command: str, saved: Path, tmp_path: Path) -> None:
    _repacked(saved, tmp_path, change)
    done = CliRunner().invoke(main, [w.replace("{}", str(tmp_path)).replace(GOOD, str(saved)) for w in COMMANDS[command]])
    assert isinstance(done.exception, SystemExit), done.exception
    assert files(saved)[1].name in done.stderr
    assert told in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_trace_in_a_folder_stands_for_the_folder(saved: Path) -> None:
    trace, _ = files(saved)
    for command in ("explain", "stalls", "roofline"):
        one, two = (CliRunner().invoke(main, [command, str(path)]) for path in (saved, trace))
        assert one.stdout == two.stdout != ""


# --- profiles of hardware ----------------------------------------------------------------------------------------

EXPORT = json.dumps(export())


def twice() -> str:
    data = export()
    data["instruction"][5]["id"] = data["instruction"][2]["id"]
    return json.dumps(data)


EXPORTS = {
    "cut off": (EXPORT[:3000], "is the file cut off?"),
    "of another version": (json.dumps(export(metadata={"data_version": 9})), "data version 9; a profile of data version 8"),
    "of no version": (json.dumps(export(metadata={})), "no metadata.data_version"),
    "a time that is no number": (EXPORT.replace('"timestamp": 4700', '"timestamp": NaN'), "instruction[4]: timestamp is nan; a whole"),
    "a negative time": (EXPORT.replace('"timestamp": 4700', '"timestamp": -4700'), "instruction[4]: timestamp is -4700; a whole"),
    "a negative length": (EXPORT.replace('"duration": 586', '"duration": -586'), "instruction[4]: duration is -586; a whole"),
    "an endless time": (EXPORT.replace('"timestamp": 4700', '"timestamp": Infinity'), "instruction[4]: timestamp is inf; a whole"),
    "a time beyond all": (EXPORT.replace('"timestamp": 4700', f'"timestamp": {10**30}'), "a whole number below 281474976710656"),
    "other digits": (EXPORT.replace('"timestamp": 4700', '"timestamp": "²"'), "instruction[4]: timestamp is '²'; a whole"),
    "a packet of no size": (EXPORT.replace('"transfer_size": 4096', '"transfer_size": -1', 1), "dma[0]: transfer_size is -1; a whole"),
    "an id twice": (twice(), "instruction[5]: id 9 again, as in instruction[2]"),
    "no instructions": (json.dumps(export(instruction=[])), "no instruction of a kernel"),
}  # fmt: skip


@pytest.mark.parametrize("command", PROFILES)
@pytest.mark.parametrize("what", EXPORTS)
def test_a_faulty_export_is_refused_by_its_place(what: str, command: str, saved: Path, tmp_path: Path) -> None:
    text, told = EXPORTS[what]
    (tmp_path / "p.json").write_text(text)
    assert told in refused(tmp_path / "p.json", command, saved)


PAIRS = {
    "cut off": (CSV[:-30], PACKETS, "p.instr.csv:5: no value for 'operands'; a complete row; is the file cut off?"),
    "a time that is no number": (CSV.replace("100,500", "nan,500"), PACKETS, "p.instr.csv:3: timestamp_ns is 'nan'; a whole"),
    "a negative time": (CSV.replace("100,500", "-100,500"), PACKETS, "p.instr.csv:3: timestamp_ns is '-100'; a whole"),
    "other digits": (CSV.replace("100,500", "²,500"), PACKETS, "p.instr.csv:3: timestamp_ns is '²'; a whole"),
    "a time beyond all": (CSV.replace("100,500", f"{10**30},500"), PACKETS, "below 281474976710656"),
    "other columns": (CSV.replace("opcode", "op"), PACKETS, "no column 'opcode'"),
    "another engine": (CSV.replace("Sync", "Pool"), PACKETS, "engine 'Pool'; one of Tensor"),
    "its packets instead": (PACKETS, PACKETS, "no column 'engine'"),
}
PACKET_FILES = {
    "cut off": (PACKETS[:-20], "p.dma.csv:4: no value for 'bytes'; a complete row; is the file cut off?"),
    "a time that is no number": (PACKETS.replace("710,20", "nan,20"), "p.dma.csv:3: timestamp_ns is 'nan'; a whole"),
    "a negative length": (PACKETS.replace("710,20", "710,-20"), "p.dma.csv:3: duration_ns is '-20'; a whole"),
    "packets of a later run": (PACKETS.replace("730,5", "9730,5"), "p.dma.csv: a packet ends at 9735 ns, after the kernel at 1260"),
    "packets of an earlier run": (PACKETS.replace("700,20", "7,20"), "p.dma.csv: a packet at 7 ns, before the first trigger at 100"),
    "its instructions instead": (CSV, "p.dma.csv:1: no column 'dma_engine'"),
    "an empty file": ("", "p.dma.csv: an empty file"),
}


@pytest.mark.parametrize("command", PROFILES)
@pytest.mark.parametrize("what", PAIRS)
def test_faulty_instructions_are_refused_by_their_line(what: str, command: str, saved: Path, tmp_path: Path) -> None:
    text, packets, told = PAIRS[what]
    (tmp_path / "p.instr.csv").write_text(text)
    (tmp_path / "p.dma.csv").write_text(packets)
    assert told in refused(tmp_path / "p.instr.csv", command, saved)


@pytest.mark.parametrize("command", [*(c for c in PROFILES if c != "replay"), "replay --dma-from-trace", "replay --perfetto"])
@pytest.mark.parametrize("what", PACKET_FILES)
def test_faulty_packets_are_refused_by_their_line(
    what: str, command: str, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packets, told = PACKET_FILES[what]
    (tmp_path / "p.instr.csv").write_text(CSV)
    (tmp_path / "p.dma.csv").write_text(packets)
    if command == "replay --perfetto":
        pytest.importorskip("perfetto")
    option = {"replay --dma-from-trace": ["--dma-from-trace"], "replay --perfetto": ["--perfetto", str(tmp_path / "x.pftrace")]}
    monkeypatch.setitem(COMMANDS, command, [*COMMANDS[command.split(" --")[0]], *option.get(command, [])])
    assert told in refused(tmp_path / "p.instr.csv", command, saved)
    assert not (tmp_path / "x.pftrace").exists()


def test_instructions_without_packets_are_half_of_a_pair_where_packets_are_needed(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "p.instr.csv").write_text(CSV)
    assert "p.dma.csv: cannot be read" in refused(tmp_path / "p.instr.csv", "tables", saved)
    done = CliRunner().invoke(main, ["compare", str(saved), str(tmp_path / "p.instr.csv")])
    assert done.exit_code == 0  # it says nothing of DMA engines then
    assert "DMA engines" not in done.stdout


def test_a_profile_where_a_run_is_wanted_and_a_run_where_a_profile_is_say_so(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "p.instr.csv").write_text(CSV)
    (tmp_path / "p.json").write_text(EXPORT)
    for command in ("explain", "stalls"):
        assert "a hardware profile in CSV form; the folder of a saved run" in refused(tmp_path / "p.instr.csv", command, saved)
        assert "a JSON file; the folder of a saved run" in refused(tmp_path / "p.json", command, saved)
    assert "for a profile of hardware --output-format parquet" in refused(tmp_path / "p.json", "view", saved)
    assert "a folder; a profile" in refused(saved, "replay", saved)
    trace, program = files(saved)
    assert "a hardware trace of nc-sim; a profile" in refused(trace, "replay", saved)
    assert "a program, not a trace" in refused(program, "explain", saved)
    assert "a program, not a trace" in refused(program, "compare, as B", saved)


def test_compare_of_a_file_that_cannot_be_written_says_so_before_it_reads(saved: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["compare", str(saved), str(tmp_path / "none"), "--perfetto", str(tmp_path)])
    assert "cannot be written: a folder" in done.stderr
