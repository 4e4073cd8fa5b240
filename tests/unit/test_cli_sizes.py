"""What `--size` may name, by the kinds of build()'s parameters; and what a user's file may do when it is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nc_sim.__main__ import main

BODY = """
    p = nc_sim.Program("made")
    t = p.sbuf((128, n), "float32")
    p.memset(dst=t, value=1)
    return p
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def cli(*words: str) -> Result:
    return CliRunner().invoke(main, list(words), prog_name="nc-sim")


def run(head: str, *sizes: str) -> Result:
    Path("k.py").write_text(f"import nc_sim\n{head}{BODY}")
    return cli("run", "k.py", "--timing-only", *(w for s in sizes for w in ("--size", s)))


@pytest.mark.parametrize(
    "head",
    [
        "def build(n=4):", "def build(*, n=4):", "def build(**sizes):\n    n = sizes['n']", "def build(m=2, **sizes):\n    n = sizes['n']",
        "def build(m=1, /, **more):\n    n = more['n']", "def build(*more, n=4):\n    assert more == ()",
    ],
)  # fmt: skip
def test_a_size_reaches_build_by_its_name(head: str) -> None:
    for n in (8, 16):
        done = run(head, f"n={n}")
        assert done.exit_code == 0, done.output
        assert cli("disasm", "k.py").exit_code in (0, 1)
    assert cli("sweep", "k.py", "--size", "n=8,16").output.count("trn2") == 2


@pytest.mark.parametrize(
    ("head", "size", "known"),
    [
        ("def build(n=4):", "sizes", "n"), ("def build(*sizes):\n    n = 4", "sizes", "none"),
        ("def build(m=4, /, n=4):", "m", "n"), ("def build():\n    n = 4", "n", "none"),
    ],
)  # fmt: skip
def test_a_name_that_build_cannot_take_is_refused_with_those_that_it_can(head: str, size: str, known: str) -> None:
    done = run(head, f"{size}=8")
    assert (done.exit_code, done.output) == (1, f"error: k.py --size: '{size}'; one of {known}\n")


def test_a_build_that_takes_any_size_is_not_given_one_called_as_its_own_mapping() -> None:
    done = run("def build(**sizes):\n    n = sizes['n']", "sizes=8")
    assert done.exit_code == 1
    assert "k.py:3: KeyError: 'n'" in done.output
