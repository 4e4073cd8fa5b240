"""Ctrl-C, with real processes: one line, exit code 130, and no half or temporary file, whenever it comes."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from conftest import REPOSITORY
from nc_sim import simulate, workloads

# Runs the command line in a process that sends itself SIGINT at the n-th call of one function; n in the environment.
STOPPER = """
import functools, importlib, os, signal
from nc_sim.entry import main
def watch(place, count):
    module, name = place.rsplit(".", 1)
    holder = importlib.import_module(module.split(":")[0])
    for part in module.split(":")[1:]:
        holder = getattr(holder, part)
    inner, calls = getattr(holder, name), 0
    @functools.wraps(inner)
    def outer(*args, **options):
        nonlocal calls
        calls += 1
        if calls == count:
            os.kill(os.getpid(), signal.SIGINT)
        return inner(*args, **options)
    setattr(holder, name, outer)
for place in os.environ["AT"].split():
    watch(place, int(os.environ["COUNT"]))
main()
"""


def stopped(folder: Path, at: str, count: int, *words: str) -> subprocess.CompletedProcess[str]:
    """A command that gets SIGINT just before the `count`-th call of `module:Class.function`; of each, where there are several."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "AT": at, "COUNT": str(count)}
    return subprocess.run(
        [sys.executable, "-c", STOPPER, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False
    )


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def check(done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n"), done


RUN = ("run", "pipeline", "--size", "tiles=200", "--timing-only")


@pytest.mark.parametrize(
    ("at", "count"),
    [
        ("nc_sim.workloads.pipeline.build", 1),
        ("nc_sim.simulate.lower_with_costs", 1),
        ("nc_sim.core.check_complete", 1),
        ("nc_sim.packing:StepPacker.body", 1),
        ("nc_sim.packing:StepPacker.body", 1500),  # of 801 calls and 1,400 machine instructions
        ("nc_sim.trace.hardware.sha256_of", 1),
        ("nc_sim.trace.hardware._transfers", 1),
        ("nc_sim.trace.hardware.stored_ints", 30),  # of about 60 columns
        ("nc_sim.files:Unnamed.become", 1),
    ],
)
def test_a_run_that_is_stopped_leaves_no_file(tmp_path: Path, at: str, count: int) -> None:
    check(stopped(tmp_path, at, count, *RUN))
    assert files(tmp_path) == []


def test_ctrl_c_pressed_again_at_once_does_not_keep_the_unfinished_file(tmp_path: Path) -> None:
    check(stopped(tmp_path, "nc_sim.trace.hardware.sha256_of pathlib:Path.unlink", 1, *RUN))
    assert files(tmp_path) == []


def test_a_stopped_run_leaves_the_files_of_an_earlier_one_as_they_were(tmp_path: Path) -> None:
    simulate(workloads.load("pipeline").build(tiles=200), values=False).save(tmp_path / "out" / "pipeline")
    before = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}
    check(stopped(tmp_path, "nc_sim.trace.hardware.stored_ints", 30, *RUN, "--what-if", "semaphore.latency_ns=50"))
    assert {name: (tmp_path / name).read_bytes() for name in files(tmp_path)} == before


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulate(workloads.load("pipeline").build(tiles=200), values=False).save(tmp_path_factory.mktemp("trace"))


@pytest.mark.parametrize(
    ("at", "count", "option"),
    [
        ("nc_sim.trace.perfetto:_Writer.put", 5000, "--perfetto"),  # one chunk is in the file
        ("nc_sim.trace.perfetto:_Writer.flush", 1, "--perfetto"),
        ("nc_sim.trace.pftrace.load", 1, "--picture"),
        ("matplotlib.figure:Figure.savefig", 1, "--picture"),
        ("os.replace", 1, "--picture"),
    ],
)
def test_a_view_that_is_stopped_leaves_no_file(tmp_path: Path, trace: Path, at: str, count: int, option: str) -> None:
    pytest.importorskip("perfetto")
    pytest.importorskip("matplotlib")
    check(stopped(tmp_path, at, count, "view", str(trace), option, "made.svg" if option == "--picture" else "made.pftrace"))
    assert files(tmp_path) == []


@pytest.mark.parametrize(("at", "count"), [("nc_sim.trace.hardware.packed", 40), ("nc_sim.trace.system.pack", 1), ("os.replace", 1)])
def test_a_study_that_is_stopped_leaves_no_unfinished_file(tmp_path: Path, at: str, count: int) -> None:
    check(stopped(tmp_path, at, count, "study", "rmsnorm", "--out", "out"))
    assert not [name for name in files(tmp_path) if name.endswith(".partial")]


@pytest.mark.parametrize("words", [("check", "pipeline"), ("disasm", "pipeline"), ("disasm", "pipeline", "--machine")])
def test_a_command_that_writes_nothing_ends_the_same_way(tmp_path: Path, words: tuple[str, ...]) -> None:
    check(stopped(tmp_path, "nc_sim.workloads.pipeline.build", 1, *words))


# Runs the command as a shell does, and sends itself SIGINT when Python looks for a module, or when click reads the words.
STARTER = """
import os, runpy, signal, sys
class Watch:
    def find_spec(name, path=None, target=None):
        if name == os.environ["AT"]:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Watch)
if os.environ["AT"] == "words":
    import click
    inner = click.Group.make_context
    def outer(*args, **options):
        os.kill(os.getpid(), signal.SIGINT)
        return inner(*args, **options)
    click.Group.make_context = outer
sys.argv[0] = "nc-sim"
if os.environ["HOW"] == "module":
    runpy.run_module("nc_sim", run_name="__main__", alter_sys=True)
else:
    from nc_sim.entry import main
    main()
"""


@pytest.mark.parametrize("how", ["module", "script"])
@pytest.mark.parametrize("at", ["click", "numpy", "numpy.linalg", "simpy", "nc_sim.isa.view", "nc_sim.simulate", "words"])
def test_a_command_stopped_while_its_modules_are_read_ends_the_same_way(tmp_path: Path, at: str, how: str) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "AT": at, "HOW": how}
    done = subprocess.run(
        [sys.executable, "-c", STARTER, *RUN], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    check(done)
    assert files(tmp_path) == []


def test_the_installed_command_begins_where_interrupts_are_looked_after() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    assert project["project"]["scripts"] == {"nc-sim": "nc_sim.entry:main"}


def test_the_package_alone_reads_no_other_module_of_it_and_keeps_functions_that_are_named_as_their_modules() -> None:
    code = (
        "import sys, nc_sim; few = [m for m in sys.modules if m.startswith(('nc_sim.', 'numpy', 'simpy', 'click'))]; "
        "import nc_sim.simulate, nc_sim.replay; from nc_sim import simulate, replay; "
        "print(few, simulate.__module__, nc_sim.simulate is simulate, nc_sim.replay is replay, callable(simulate), callable(replay))"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "[] nc_sim.simulate True True True True\n"
