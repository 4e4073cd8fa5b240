"""What is no file is neither read nor replaced, and a link is written through."""

from __future__ import annotations

import os
import signal
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import nc_sim
from nc_sim import chip
from nc_sim.__main__ import main
from nc_sim.forms import load_program, save_program
from nc_sim.isa.errors import NcSimError
from nc_sim.runtime import host


def cli(*words: object) -> Result:
    return CliRunner().invoke(main, list(map(str, words)), prog_name="nc-sim")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    nc_sim.simulate(nc_sim.workloads.load("pipeline").build(), values=False).save(folder)
    return folder


@pytest.fixture(autouse=True)
def _in_time() -> Iterator[None]:
    """Reading a pipe waits for ever: then the test fails."""

    def late(*_: object) -> None:
        pytest.fail("it waits for a pipe")  # no OSError, which a command would tell

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


OUTPUTS: list[tuple[str, ...]] = [
    ("view", "RUN", "--output-format", "json", "--output-file"),
    ("view", "RUN", "--output-format", "perfetto", "--output-file"),
    ("view", "RUN", "--output-format", "summary-json", "--output-file"),
    ("view", "RUN", "--output-file"),
    ("view", "RUN", "--perfetto"),
    ("compare", "RUN", "RUN", "--perfetto"),
]


def given(words: tuple[str, ...], run: Path) -> list[str]:
    return [str(run) if w == "RUN" else w for w in words]


@pytest.mark.parametrize("words", OUTPUTS)
def test_a_pipe_is_refused_as_an_output_and_stays(words: tuple[str, ...], saved: Path, pipe: Path) -> None:
    done = cli(*given(words, saved), pipe)
    assert done.exit_code == 1
    assert done.output == f"error: {pipe}: cannot be written: a pipe; a file, or a name that is free\n"
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert [p.name for p in pipe.parent.iterdir()] == ["pipe"]


def test_a_link_to_a_pipe_and_a_socket_are_refused_and_stay(saved: Path, pipe: Path) -> None:
    link, plug = pipe.parent / "link", pipe.parent / "plug"
    link.symlink_to(pipe)
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(os.path.relpath(plug))  # its path may not be long
        assert "a socket; a file" in cli("view", saved, "--perfetto", plug).output
    assert "a pipe; a file" in cli("view", saved, "--perfetto", link).output
    assert link.is_symlink()
    assert plug.is_socket()


@pytest.mark.parametrize("words", OUTPUTS)
@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_written_through(words: tuple[str, ...], there: bool, saved: Path, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    link, file = tmp_path / "link", tmp_path / "far" / "file"
    if there:
        file.write_text("before")
    link.symlink_to(Path("far") / "file")
    assert cli(*given(words, saved), link).exit_code == 0
    assert link.is_symlink()
    assert os.readlink(link) == "far/file"
    assert file.stat().st_size > 100
    assert [p.name for p in file.parent.iterdir()] == ["file"]


def test_links_in_a_circle_are_refused(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    done = cli("view", saved, "--perfetto", tmp_path / "a")
    assert done.exit_code == 1
    assert "cannot be written: a link that leads nowhere but to itself" in done.output


def test_the_files_of_a_run_and_of_a_program_go_through_links_and_never_over_pipes(tmp_path: Path) -> None:
    result = nc_sim.simulate(nc_sim.workloads.load("pipeline").build(), values=False)
    result.save(tmp_path / "run")
    (program,) = (tmp_path / "run").glob("*.neff.msgpack")
    whole = program.read_bytes()
    program.rename(tmp_path / "moved")
    (tmp_path / "moved").write_bytes(b"before")
    program.symlink_to(tmp_path / "moved")
    result.save(tmp_path / "run")
    assert program.is_symlink()
    assert (tmp_path / "moved").read_bytes() == whole
    program.unlink()
    os.mkfifo(program)
    with pytest.raises(NcSimError, match="cannot be written: a pipe"):
        result.save(tmp_path / "run")
    assert program.is_fifo()

    os.mkfifo(tmp_path / "x.ncasm")
    with pytest.raises(NcSimError, match="cannot be written: a pipe"):
        save_program(result.program, tmp_path / "x.ncasm")
    assert (tmp_path / "x.ncasm").is_fifo()


def test_a_folder_of_tables_is_refused_before_work_where_a_pipe_has_its_name(saved: Path, pipe: Path) -> None:
    done = cli("view", saved, "--output-format", "parquet", "--output-file", pipe)
    assert done.exit_code == 1
    assert "is not a folder" in done.output
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    "words", [("view",), ("replay",), ("explain",), ("stalls",), ("run",), ("view", "--output-format", "summary-json")]
)
@pytest.mark.parametrize(
    "name", ["x", "x.json", "x.instr.csv", "x.ntff.msgpack", "x.neff.msgpack", "x.ncasm", "x.msgpack", "x.pftrace", "x.py"]
)
def test_no_command_reads_a_pipe(words: tuple[str, ...], name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    done = cli(words[0], tmp_path / name, *words[1:])  # reading it would wait for ever
    assert done.exit_code == 1
    assert done.output.startswith("error: ")
    assert done.output.count("\n") == 1


@pytest.mark.parametrize("name", ["x", "x.json", "x.instr.csv", "x.ntff.msgpack"])
def test_no_comparison_reads_a_pipe(name: str, saved: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    for sides in ((tmp_path / name, saved), (saved, tmp_path / name)):
        done = cli("compare", *sides)
        assert done.exit_code == 1
        assert done.output.startswith("error: ")
        assert done.output.count("\n") == 1


def test_pipes_inside_a_folder_are_not_read(tmp_path: Path) -> None:
    for name in ("x.ntff.msgpack", "nc-sim_system.trace.msgpack"):
        (tmp_path / name[0]).mkdir()
        os.mkfifo(tmp_path / name[0] / name)
        assert cli("view", tmp_path / name[0]).exit_code == 1


@pytest.mark.parametrize("read", [chip.load, host.load, lambda p: load_program(p.with_suffix(".ncasm"))])
def test_no_function_reads_a_pipe(read: Callable[[Path], object], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.toml")
    os.mkfifo(tmp_path / "x.ncasm")
    with pytest.raises(NcSimError, match="a pipe, not a file"):
        read(tmp_path / "x.toml")
