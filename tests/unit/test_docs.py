"""The documents are true: their Python runs, their commands succeed.

Blocks of one file run in order in one folder and one namespace. A ```python block whose first line is `# NAME.py` is
also saved under that name, so that a later command can use it. An ```output block right behind a ```python block is what
that prints. A ```console block's `$ nc-sim ...` lines run; other commands and all output are ignored. Traces are not part
of the repository: a command or block that names one is skipped where there are none. So is a command that needs an extra
which is not installed. A picture that a command or a ```python block draws into docs/pictures must be the one that is
stored there.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import chdir, nullcontext, redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner

from conftest import REPOSITORY, TRACES
from nc_sim import replay
from nc_sim.__main__ import main
from nc_sim.isa import REGISTRY
from nc_sim.mechanisms import MECHANISMS
from nc_sim.schema import SCHEMA

FILES = sorted(p for p in (REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")) if p.is_file())
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
TRACE = re.compile(r"[\w./-]+\.(?:instr|dma)\.csv")
FILE_HEADER = re.compile(r"# ([\w-]+\.py)\s*")
GROUPS = sorted({key.split(".")[0] for key in SCHEMA})
COMMANDS = (["nc-sim"], ["python", "-m", "nc_sim"])
EXTRAS = {"--perfetto": ["perfetto"], "--picture": ["perfetto", "matplotlib"], "parquet": ["pyarrow"]}  # packages an option needs
PICTURES = REPOSITORY / "docs" / "pictures"
PICTURE = "docs/pictures/*.svg"
LARGEST = 300_000  # bytes of a picture


@attrs.frozen
class Block:
    """One fenced block of a document."""

    file: Path
    language: str
    text: str
    line: int  # of the fence
    prints: str | None = None  # what the document says it prints

    @property
    def name(self) -> str:
        """As pytest shows it."""
        return f"{self.file.name}:{self.line}"


@attrs.define
class Session:
    """What the blocks of one file share."""

    folder: Path
    namespace: dict[str, Any] = attrs.field(factory=lambda: {"__name__": "document"})
    done: int = 0  # blocks run so far


def blocks(file: Path) -> list[Block]:
    text, found = file.read_text(), []
    for m in BLOCK.finditer(text):
        if m[1] == "output":
            assert found[-1].language == "python", f"{file.name}: output of nothing"
            found[-1] = attrs.evolve(found[-1], prints=m[2])
        found.append(Block(file, m[1], m[2], text.count("\n", 0, m.start()) + 1))
    return [b for b in found if b.language in ("python", "console")]


def commands(text: str) -> list[list[str]]:
    """The words of every nc-sim command of a console block, up to a pipe or a redirection."""
    out = []
    for line in re.sub(r"\\\n\s*>?", " ", text).split("\n"):
        if not line.startswith("$ "):
            continue
        lexer = shlex.shlex(line[2:], posix=True, punctuation_chars="|>&;")
        lexer.whitespace_split = True
        words = list(lexer)
        end = next((k for k, w in enumerate(words) if set(w) <= set("|>&;")), len(words))
        for command in COMMANDS:
            if words[: len(command)] == command:
                out.append(words[len(command) : end])
    return out


def located(word: str) -> str:
    """A path of a trace as this machine has it; skips the test where it has none."""
    if not TRACE.fullmatch(word) or Path(word).is_file():
        return word
    for place in (REPOSITORY / word, TRACES / Path(word).name):
        if place.is_file():
            return str(place)
    pytest.skip(f"no trace {Path(word).name}: measured traces are not part of the repository")


def run_python(block: Block, session: Session) -> None:
    if header := FILE_HEADER.match(block.text):
        (session.folder / header[1]).write_text(block.text)
    text = TRACE.sub(lambda m: located(m[0]), block.text)
    before = set(Path().glob(PICTURE))
    printed = StringIO()
    with redirect_stdout(printed) if block.prints is not None else nullcontext():
        # as many empty lines in front as the document has, so that a traceback names its line
        exec(compile("\n" * block.line + text, str(block.file), "exec"), session.namespace)
    if block.prints is not None:
        assert printed.getvalue() == block.prints, f"{block.name} prints something else than the document says"
    for made in sorted(set(Path().glob(PICTURE)) - before):
        assert_stored(made, f"the Python of {block.name}")


def run_console(block: Block) -> None:
    for words in commands(block.text):
        assert words[0] in main.commands, f"{block.name}: no command {words[0]}"
        main.commands[words[0]].make_context("nc-sim", words[1:])  # its options exist, also where the trace does not
        for package in (p for option, packages in EXTRAS.items() if option in words for p in packages):
            if find_spec(package) is None:
                pytest.skip(f"the package {package} of an extra is not installed")
        done = CliRunner().invoke(main, [located(w) for w in words], prog_name="nc-sim")
        problem = done.exception if not isinstance(done.exception, SystemExit | None) else ""
        assert done.exit_code == 0, f"{block.name}: nc-sim {shlex.join(words)}: exit {done.exit_code}\n{done.output}\n{problem!r}"
        if "--picture" in words:
            assert_stored(Path(words[words.index("--picture") + 1]), f"nc-sim {shlex.join(words)}")


def assert_stored(made: Path, command: str) -> None:
    """The picture shows what the stored one shows, and is the same to the byte where the same matplotlib drew both."""
    stored = REPOSITORY / made
    assert stored.parent == PICTURES
    assert stored.is_file(), f"{command} draws {made}, which is not stored"
    stale = f"{made} is stale; draw it again: {command}"
    (shown, drawer), (stored_shown, stored_drawer) = (drawn(p.read_text()) for p in (made, stored))
    assert shown == stored_shown, stale
    assert drawer != stored_drawer or made.read_bytes() == stored.read_bytes(), stale


def drawn(svg: str) -> tuple[str, str]:
    """What a picture says of itself: the hash of what it shows, and what drew it."""
    description, creator = (re.search(f"<dc:{tag}>\\s*(.*?)\\s*</dc:{tag}>", svg, re.DOTALL) for tag in ("description", "creator"))
    assert description
    assert description[1].startswith("nc-sim drawing sha256:")
    drawer = re.search(r"Matplotlib v[\d.]+", creator[1]) if creator else None
    assert drawer
    return description[1], drawer[0]


def run_block(block: Block, session: Session) -> None:
    with chdir(session.folder):
        if block.language == "python":
            run_python(block, session)
        else:
            run_console(block)


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Path, Session]]:
    """One session a file; instructions that a document adds are gone afterwards."""
    before = dict(REGISTRY)
    yield {f: Session(tmp_path_factory.mktemp(f.stem)) for f in FILES}
    REGISTRY.clear()
    REGISTRY.update(before)


@pytest.mark.parametrize("block", [b for f in FILES for b in blocks(f)], ids=lambda b: b.name)
def test_a_block_of_the_documents_runs(block: Block, sessions: dict[Path, Session]) -> None:
    session, mine = sessions[block.file], blocks(block.file)
    at = mine.index(block)
    while session.done < at:  # a block alone is run behind those it builds on; what fails there fails in its own test
        session.done += 1
        try:
            run_block(mine[session.done - 1], session)
        except (Exception, pytest.skip.Exception) as e:
            print(f"{mine[session.done - 1].name}: {e!r}")
    if session.done == at:
        session.done += 1
    run_block(block, session)


def test_there_are_documents_with_blocks() -> None:
    assert {f.name for f in FILES if blocks(f)} >= {"add-an-instruction.md", "add-a-chip.md", "timing.md"}


def test_commands_are_found_with_continuations_comments_and_pipes() -> None:
    text = "$ nc-sim run rmsnorm \\\n    --json | head -1\nbody 7 us\n$ pip install .\n$ python -m nc_sim chips > a  # all\n"
    assert commands(text) == [["run", "rmsnorm", "--json"], ["chips"]]


def test_every_stored_picture_is_small_shown_and_made_by_a_command_or_by_python() -> None:
    stored = {f"pictures/{p.name}" for p in PICTURES.iterdir()}
    every = [b for f in FILES for b in blocks(f)]
    made = {w.removeprefix("docs/") for b in every if b.language == "console" for words in commands(b.text) for w in words}
    drawn_here = [name for b in every if b.language == "python" for name in re.findall(r'"docs/(pictures/[\w-]+\.svg)"', b.text)]
    assert stored
    assert stored <= made | set(drawn_here)
    assert len(drawn_here) == len(set(drawn_here))  # each by one block, which alone is checked
    assert stored <= {m for f in FILES for m in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", f.read_text())}
    assert all(p.stat().st_size < LARGEST for p in PICTURES.iterdir())


def test_what_a_block_prints_and_draws_is_held_against_the_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(6 * 7)\n```\n\n```output\n42\n```\n\n```python\nprint('free')\n```\n")
    right, free = blocks(page)
    assert (right.prints, free.prints) == ("42\n", None)
    session = Session(tmp_path)
    run_block(right, session)
    run_block(free, session)
    with pytest.raises(AssertionError, match=r"page\.md:1 prints something else"):
        run_block(attrs.evolve(right, prints="43\n"), session)
    draws = attrs.evolve(
        free, text="from pathlib import Path\nPath('docs/pictures').mkdir(parents=True)\nPath('docs/pictures/no.svg').touch()\n"
    )
    with pytest.raises(AssertionError, match=r"the Python of page\.md:9 draws docs/pictures/no\.svg, which is not stored"):
        run_block(draws, session)


def every_document() -> list[Path]:
    return [*FILES, *sorted((REPOSITORY / "docs" / "decisions").glob("*.md"))]


@pytest.mark.parametrize("file", every_document(), ids=lambda f: f.name)
def test_links_of_a_document_lead_somewhere(file: Path) -> None:
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", file.read_text()):
        assert (file.parent / target).exists(), f"{file.name} links to {target}"


@pytest.mark.parametrize("file", every_document(), ids=lambda f: f.name)
def test_chip_numbers_a_document_names_exist(file: Path) -> None:
    """Capitals stand for a part of a name: `vector.KIND.*`."""
    for name in re.findall(rf"`((?:{'|'.join(GROUPS)})\.[\w.*{{}}|]+)`", file.read_text()):
        if name.endswith((".py", ".md", ".toml")):
            continue
        pattern = re.sub(r"\b[A-Z]+\b|\\\*", r"[a-z0-9_.]+", re.escape(name))
        assert any(re.match(pattern, key) for key in SCHEMA), f"{file.name}: {name}"


@pytest.mark.parametrize("file", every_document(), ids=lambda f: f.name)
def test_files_of_the_repository_a_document_names_exist(file: Path) -> None:
    for name in re.findall(r"`((?:nc_sim|isa|tests|workloads|docs)/[\w./-]*)`", file.read_text()):
        assert (REPOSITORY / name).exists() or (REPOSITORY / f"{name}.md").exists(), f"{file.name}: {name}"


def test_install_hints_are_quoted_and_name_extras_of_this_project() -> None:
    """nc-sim is on no index, and zsh expands brackets: hints read `'.[extra]'`, in the clone."""
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    sources = [p for folder in ("isa", "nc_sim", "workloads") for p in (REPOSITORY / folder).rglob("*.py")]
    named = set()
    for file in [*every_document(), *sources]:
        text = file.read_text()
        assert "pip install nc-sim" not in text, file.name
        assert "pip install .[" not in text, file.name
        named |= {e for found in re.findall(r"'\.\[([a-z,]+)\]'", text) for e in found.split(",")}
        named |= set(re.findall(r'missing_extra\([^)]*"([a-z]+)"(?:, "[^"]*")?\)', text))
    assert named == set(extras) - {"dev"}


def test_the_architecture_names_every_module() -> None:
    text = (REPOSITORY / "docs" / "architecture.md").read_text()
    for folder in ("isa", "nc_sim"):
        for module in (REPOSITORY / folder).glob("[a-z]*.py"):
            assert f"`{module.name}`" in text or f"`{folder}/{module.name}`" in text, f"{folder}/{module.name}"


def test_both_ablation_tables_have_a_row_for_every_mechanism() -> None:
    page = (REPOSITORY / "docs" / "accuracy.md").read_text()
    for heading in ("### trn2: without each mechanism", "### Bodies without each mechanism"):
        part = page.split(heading, 1)[1].split("\n### ", 1)[0]
        rows = re.findall(r"^\| `([\w-]+)` \| (.*?) \|", part, re.MULTILINE)
        assert dict(rows) == {name: m.doc for name, m in MECHANISMS.items()}, heading


# --- docs/timing.md states what replay says; where the traces are absent, nobody can tell

TIMING = REPOSITORY / "docs" / "timing.md"
STREAMS = ("fused_fp32_s512", "baseline_bf16_s512")


@pytest.mark.parametrize("measured", [False, True], ids=["simulated", "from the trace"])
@pytest.mark.parametrize("name", STREAMS)
def test_the_validation_table_says_what_replay_says(traces: Path, name: str, measured: bool) -> None:
    s = replay(traces / f"{name}.instr.csv", dma_from_trace=measured).summary()
    row = (
        f"| {name} | {s['instructions']} | {'from the trace' if measured else 'simulated'} | {s['total_measured_ns']} | "
        f"{s['total_simulated_ns']:.0f} | {s['total_error_percent']:+.2f} % | {s['median_start_error_percent']:.2f} % | "
        f"{s['p95_start_error_percent']:.2f} % |"
    )
    assert row in TIMING.read_text().splitlines()


@pytest.mark.parametrize("name", STREAMS)
def test_the_phase_table_says_what_replay_says(traces: Path, name: str) -> None:
    window = 4096 / 1.2
    runs = [replay(traces / f"{name}.instr.csv", gate_phase_ns=k * window / 16) for k in range(16)]
    errors = [100 * (r.total_simulated_ns / r.total_measured_ns - 1) for r in runs]
    assert f"| {name} | {min(errors):+.1f} % | {max(errors):+.1f} % |" in TIMING.read_text().splitlines()


@pytest.mark.parametrize("name", STREAMS)
def test_the_table_of_durations_says_what_replay_says(traces: Path, name: str) -> None:
    column = 2 + 3 * STREAMS.index(name)
    rows = [[c.strip() for c in line.split("|")] for line in TIMING.read_text().splitlines() if line.startswith("| ")]
    head = next(k for k, cells in enumerate(rows) if cells[1] == "opcode")
    stated = {cells[1]: cells[column : column + 3] for cells in rows[head + 1 :] if len(cells) == len(rows[head]) and cells[1].isupper()}
    by_opcode = replay(traces / f"{name}.instr.csv", dma_from_trace=True).by_opcode()
    for opcode, v in by_opcode.items():
        wanted = [f"{v['measured_median_ns']:.0f}", f"{v['simulated_median_ns']:.1f}", f"{v['median_duration_error_percent']:.1f} %"]
        assert stated.pop(opcode) == wanted, opcode
    assert all(cells == ["-"] * 3 for cells in stated.values()), stated
