"""The compiled engine on machines where Numba is broken, or may keep nothing; each in a Python of its own."""

from __future__ import annotations

import ast
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import REPOSITORY
from nc_sim import fast, simulate, workloads
from nc_sim.table import MAX_UPDATES, Op, Rule, When

RUN = """
import sys
from nc_sim import NcSimError, simulate, workloads
sys.modules["nc_sim.simulate"].AUTO_FROM = 0
program = workloads.load("rmsnorm").build()
for engine in ("simpy", "auto", "compiled"):
    try:
        print(engine, simulate(program, values=False, engine=engine).duration_ns)
    except NcSimError as e:
        print(engine, e)
"""


def printed(before: str, first: Path | None = None) -> dict[str, str]:
    """What each engine says in a new Python, by engine; `first` comes first on its path."""
    path = os.pathsep.join(map(str, filter(None, (first, REPOSITORY, os.environ.get("PYTHONPATH")))))
    done = subprocess.run(
        [sys.executable, "-c", before + RUN], capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stderr
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


@pytest.mark.parametrize("error", ["ImportError('needs NumPy 2.0 or less')", "AttributeError('no attribute')", "OSError('no library')"])
def test_where_numba_does_not_load_auto_takes_simpy_and_compiled_says_why(error: str, tmp_path: Path) -> None:
    (tmp_path / "numba").mkdir()
    (tmp_path / "numba" / "__init__.py").write_text(f"raise {error}\n")
    told = printed("", tmp_path)
    assert told["auto"] == told["simpy"]
    why = error.split("'")[1]
    assert told["compiled"] == (
        f"engine='compiled': the package numba does not load: {why}; pip install '.[fast]' in the clone of nc-sim, or engine='simpy'"
    )  # fmt: skip


@pytest.mark.skipif(fast.njit is None, reason="the extra `fast` (Numba) is not installed")
def test_an_installation_that_can_keep_nothing_compiles_anew() -> None:
    """Read-only, with no home directory: Numba finds no place for its cache and refuses to decorate."""
    told = printed(
        "import numba.core.caching as c\nc.CodeLibraryCacheImpl._locator_classes = c.CompileResultCacheImpl._locator_classes = []\n"
    )
    assert told["compiled"] == told["auto"] == told["simpy"]


@pytest.mark.skipif(fast.njit is None, reason="the extra `fast` (Numba) is not installed")
def test_a_cache_that_is_cut_off_is_compiled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    right = printed("")
    files = list(tmp_path.rglob("*.nb[ic]"))  # indices and code
    assert files
    for f in files:
        f.write_bytes(f.read_bytes()[:100])
    assert printed("") == right


@pytest.mark.skipif(fast.njit is None, reason="the extra `fast` (Numba) is not installed")
def test_a_full_disk_does_not_stop_a_run() -> None:
    full = "import numba.core.caching as c\ndef save(*a): raise OSError(28, 'No space left on device')\nc.IndexDataCacheFile.save = save\n"
    anew = "import os, tempfile\nos.environ['NUMBA_CACHE_DIR'] = tempfile.mkdtemp()\n"
    told = printed(anew + full)
    assert told["compiled"] == told["auto"] == told["simpy"]


@pytest.mark.skipif(fast.njit is None, reason="the extra `fast` (Numba) is not installed")
def test_an_error_that_a_signal_raises_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    original, calls = fast.events, itertools.count()

    def events(*arguments: object) -> object:
        if next(calls) == 0:
            raise TimeoutError("enough")
        return original(*arguments)

    monkeypatch.setattr(fast, "events", events)
    with pytest.raises(TimeoutError, match="enough"):
        simulate(workloads.load("rmsnorm").build(), values=False, engine="compiled")


def test_what_numba_compiles_names_no_number_of_another_module() -> None:
    """Numba's cache knows the file a function stands in alone: a number imported from another would go stale in it."""
    tree = ast.parse(Path(fast.__file__).read_text())
    known: dict[str, object] = {"range": range}
    for node in tree.body:
        if isinstance(node, ast.Assign) and all(n.id in known for n in ast.walk(node.value) if isinstance(n, ast.Name)):
            exec(compile(ast.Module([node], []), "fast", "exec"), known)
    compiled = [f for f in tree.body if isinstance(f, ast.FunctionDef) and (f.decorator_list or f.name == "_events")]
    functions = {f.name for f in compiled}
    used = {n.id for f in compiled for n in ast.walk(ast.Module(f.body, [])) if isinstance(n, ast.Name)}
    stored = {n.id for f in compiled for n in ast.walk(f) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    arguments = {a.arg for f in compiled for a in f.args.args}
    assert used - stored - arguments - functions - set(known) == {"int", "len", "max"}
    assert {"END", "BEGIN", "ROW", "FOLLOW", "GATED", "PAUSED"} <= used & set(known)


def test_the_numbers_of_the_compiled_engine_are_those_of_the_table() -> None:
    assert (fast.FOLLOW, fast.LOAD, fast.STREAM) == (Rule.FOLLOW, Rule.LOAD, Rule.STREAM)
    assert (fast.AT_START, fast.AT_STREAMED) == (When.START, When.STREAMED)
    assert (fast.ADD, fast.SUB) == (Op.ADD, Op.SUB)
    assert fast.ROW == MAX_UPDATES + 1
