"""docs/chips.md, docs/isa.md, docs/accuracy.md and docs/profile-tables.md say what the code says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from conftest import REPOSITORY
from nc_sim import chip
from nc_sim.chip import UNCERTAIN
from nc_sim.isa import REGISTRY, fields_of
from nc_sim.report import docs
from nc_sim.schema import SCHEMA

PAGES = {name: lambda name=name: f"what the code says of {name}\n" for name in docs.FILES}  # the true ones are long to make


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(docs, "FILES", PAGES)
    assert CliRunner().invoke(docs.main, [str(tmp_path / "docs")]).exit_code == 0
    return tmp_path / "docs"


def test_the_generated_documents_of_the_repository_are_what_the_code_writes_whatever_the_hash_seed(tmp_path: Path) -> None:
    # every session and every check has another seed, and the files in the repository came from yet another
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    subprocess.run([sys.executable, "-m", "nc_sim.report.docs", str(tmp_path)], check=True, env=environment, cwd=REPOSITORY)
    for name in docs.FILES:
        assert (tmp_path / name).read_bytes() == (REPOSITORY / "docs" / name).read_bytes(), name


def test_writing_then_checking_succeeds(folder: Path) -> None:
    assert sorted(p.name for p in folder.iterdir()) == ["accuracy.md", "chips.md", "isa.md", "profile-tables.md"]
    checked = CliRunner().invoke(docs.main, ["--check", str(folder)])
    assert (checked.exit_code, checked.output) == (0, "")


@pytest.mark.parametrize("name", ["chips.md", "isa.md", "accuracy.md", "profile-tables.md"])
def test_a_stale_file_is_named_and_left_alone(folder: Path, name: str) -> None:
    (folder / name).write_text("old\n")
    checked = CliRunner().invoke(docs.main, ["--check", str(folder)])
    assert checked.exit_code == 1
    assert checked.output == f"{folder / name} is stale; run: python -m nc_sim.report.docs {folder}\n"
    assert (folder / name).read_text() == "old\n"


def test_the_first_of_two_stale_files_is_named(folder: Path, tmp_path: Path) -> None:
    checked = CliRunner().invoke(docs.main, ["--check", str(tmp_path)])
    assert checked.exit_code == 1
    assert checked.output.startswith(f"{tmp_path / 'chips.md'} is stale")


@pytest.mark.parametrize("name", chip.names())
def test_every_number_of_a_chip_has_one_row_in_its_tables(name: str) -> None:
    data = chip.load(name)
    section = docs.chip_numbers().split(f"## {data.name} (")[1].split("\n## ")[0]
    tables = section.split(f"### {data.name}: numbers no source gives for this chip")[1]
    uncertain, rest = tables.split(f"### {data.name}: ", 1)
    for key, entry in SCHEMA.items():
        n = data.numbers[key]
        row = f"| {n.status} | {n.source} | {entry.doc} |".replace("<", "\\<")
        assert sum(line.startswith(f"| `{key}` |") and line.endswith(row) for line in rest.splitlines()) == 1, key
        assert (f"| `{key}` |" in uncertain) == (n.status in UNCERTAIN), key


def test_the_counts_by_status_add_up() -> None:
    lines = docs.chip_numbers().splitlines()
    counts = [int(line.split("|")[3]) for line in lines if line.split("|")[1:2] and line.split("|")[1].strip("` ") in docs.STATUS_MEANS]
    assert sum(counts) == len(SCHEMA)


def test_every_instruction_and_field_is_listed() -> None:
    text = docs.instructions()
    for mnemonic, cls in REGISTRY.items():
        section = text.split(f"### `{mnemonic}`\n")[1].split("\n### ")[0]
        assert f"Source: {cls.source}." in section
        for field in fields_of(cls):
            assert f"| `{field}` |" in section, f"{mnemonic} {field}"


def test_a_field_that_takes_an_operator_or_a_function_links_to_the_list_of_the_page() -> None:
    page = docs.instructions()
    headings = {"#" + h.lower().replace(" ", "-") for h in re.findall(r"^## (.*)$", page, re.MULTILINE)}
    assert set(re.findall(r"\]\((#[^)]*)\)", page)) == {"#alu-operators", "#activation-functions"} <= headings
    for plain in ("an ALU operator", "an activation function"):
        assert f"| {plain} |" not in page


def test_a_unit_is_read_off_the_end_of_a_name() -> None:
    wanted = {
        "semaphore.latency_ns": "ns", "dma.load_bytes_per_ns": "B/ns", "dma.hardware.load_first_ns_per_kib": "ns/KiB",
        "clock.sync_mhz": "MHz", "memory.psum_bank_bytes": "B", "tensor.gate.window_cycles": "cycles", "tensor.gate.ratio": "",
        "tensor.transpose_mode": "flag", "tensor.gate.kind": "word",
    }  # fmt: skip
    assert {key: docs.unit(key) for key in wanted} == wanted
