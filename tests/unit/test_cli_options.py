"""Options that would be without effect, empty paths and numbers that are none are refused; so is a user's file that ends the command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from nc_sim import ChipError, Program, ProgramError, chip, simulate
from nc_sim.__main__ import main


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def cli(*words: str) -> Result:
    return CliRunner().invoke(main, list(words), prog_name="nc-sim")


def refused(*words: str) -> str:
    done = cli(*words)
    assert done.exit_code in (1, 2), done.output
    assert done.exit_code == 2 or done.output.count("\n") == 1
    return done.output


@pytest.fixture
def made() -> str:
    simulate(_program(), values=False).save("made")
    return "made"


def _program() -> Program:
    p = Program("p")
    p.memset(dst=p.sbuf((128, 4), "float32"), value=1)
    return p


@pytest.mark.parametrize(
    "words",
    [
        ("view", ""), ("explain", ""), ("stalls", ""), ("roofline", ""), ("replay", ""), ("compare", "", "made"), ("compare", "made", ""),
        ("view", "made", "--output-file", ""), ("view", "made", "--perfetto", ""), ("view", "made", "--picture", ""),
        ("view", "made", "--output-format", "json", "--output-file", ""), ("roofline", "made", "--picture", ""),
        ("sweep", "rmsnorm", "--keep", ""), ("roofline", "rmsnorm", "--keep", ""), ("run", ""), ("accuracy", "instructions", "--data", ""),
        ("compare", "made", "made", "--perfetto", ""),
    ],
)  # fmt: skip
def test_an_empty_text_is_no_path(words: tuple[str, ...], made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate(_program(), values=False).save(".")  # that of an empty text, if it were taken for the current folder
    before = sorted(p.name for p in Path().iterdir())
    told = refused(*words)
    assert "an empty text" in told or "program: ''" in told
    assert sorted(p.name for p in Path().iterdir()) == before


@pytest.mark.parametrize("command", ["sweep", "roofline"])
def test_a_file_is_no_folder_to_keep_cases_in(command: str) -> None:
    Path("a.txt").write_text("x")
    assert "a.txt is not a folder" in refused(command, "rmsnorm", "--keep", "a.txt")


@pytest.mark.parametrize(
    "words",
    [
        ("roofline", "made", "--chip", "foo"), ("roofline", "made", "--size", "n=1"), ("roofline", "made", "--what-if", "a=1"),
        ("roofline", "made", "--workers", "2"), ("roofline", "made", "--keep", "kept"), ("disasm", "rmsnorm", "--chip", "nope"),
        ("chips", "foo", "--diff", "trn1", "trn2"), ("chips", "--prefix", "dma."), ("stalls", "made", "--json", "--path", "3"),
        ("stalls", "made", "--json", "--slack", "3"), ("stalls", "made", "--path", "-1"), ("stalls", "made", "--slack", "-1"),
        ("view", "made", "--instructions", "-1"), ("view", "made", "--output-format", "summary-json", "--width", "80"),
        ("view", "made", "--output-format", "summary-json", "--from-us", "1"),
    ],
)  # fmt: skip
def test_an_option_without_effect_is_refused(words: tuple[str, ...], made: str) -> None:
    option = next(w for w in reversed(words) if w.startswith("--"))
    told = refused(*words)
    assert option in told or "NAME" in told


def test_options_of_programs_hold_beside_saved_runs(made: str) -> None:
    done = cli("roofline", "made", "pipeline", "--chip", "trn1")
    assert done.exit_code == 0
    assert "trn1" in done.output
    assert "trn2" in done.output
    assert cli("disasm", "pipeline", "--machine", "--chip", "trn3").exit_code == 0
    assert cli("roofline", "made").exit_code == 0


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("dma.engines=1000000000000", "dma.engines: 1000000000000; a whole number of at least 1, at most 1024"),
        ("memory.partitions=1000000000000", "memory.partitions: 1000000000000; a whole number of at least 1, at most 1024"),
        ("memory.sbuf_partition_bytes=99999999999", "memory.sbuf_partition_bytes: 99999999999; a whole number of at least 1, at most "),
        ("dma.row_ns=\u0661\u0662", "dma.row_ns: '\u0661\u0662'; a number of at least 0"),
        ("dma.row_ns=1_000", "'1_000'; a number of at least 0"),
        ("dma.engines=1_0", "'1_0'; a whole number of at least 1"), ("dma.engines=-1", "-1; a whole number of at least 1"),
        ("dma.engines=x", "'x'; a whole number of at least 1"), ("dma.load_bytes_per_ns=-1", "-1; a number above 0"),
        ("tensor.gate.ratio=x", "'x'; a number above 0, at most 1"), ("dma.row_ns=1e99999999", "'1e99999999'; a number of at least 0"),
    ],
)  # fmt: skip
def test_an_override_that_is_no_number_of_its_key_is_refused_with_what_is(value: str, told: str) -> None:
    assert told in refused("run", "pipeline", "--timing-only", "--what-if", value)


@pytest.mark.parametrize(("given", "value"), [("12", 12), ("1e3", 1000), ("0.5", 0.5), ("1/4", 0.25), (".5", 0.5), (" 7 ", 7), ("+3", 3)])
def test_numbers_in_plain_digits_are_taken(given: str, value: float) -> None:
    assert float(chip.load("trn2").what_if({"dma.row_ns": given}).numbers["dma.row_ns"].value) == value


def test_every_number_that_ships_fits_its_bounds() -> None:
    for name in chip.names():
        data = chip.load(name)
        plain = {k: n.value for k, n in data.numbers.items() if isinstance(n.value, int) and not isinstance(n.value, bool)}
        assert data.what_if(plain).numbers["dma.engines"].value == data.numbers["dma.engines"].value


def trn2(**replaced: str) -> str:
    text = (Path(chip.__file__).parent / "chips" / "trn2.toml").read_text()
    for old, new in replaced.values():
        assert old in text
        text = text.replace(old, new, 1)
    return text


@pytest.mark.parametrize("core", ["banana", "NeuronCore-v", "NeuronCore-v0", "neuroncore-v3", "NeuronCore-v3 "])
def test_a_chip_file_of_no_generation_is_refused(core: str) -> None:
    with pytest.raises(ChipError, match=r"mine\.toml: core: .*; a generation, such as NeuronCore-v3"):
        chip.parse(trn2(core=('core = "NeuronCore-v3"', f'core = "{core}"')), "mine.toml")  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "near"), [("expp", r" \(near: exp\)"), ("banana", ""), ("swish", ".*")])
def test_a_table_of_an_unknown_function_is_refused(name: str, near: str) -> None:
    with pytest.raises(ChipError, match=rf"scalar.table_sets: activation function '{name}'{near}; one of copy, "):
        chip.parse(trn2(sets=('["exp"]', f'["{name}"]')), "mine.toml")  # type: ignore[arg-type]


def test_a_file_with_zero_bytes_is_one_line_without_a_line_number() -> None:
    Path("bin.py").write_bytes(b"\0\0")
    assert refused("run", "bin.py").startswith("error: bin.py: SyntaxError: ")


@pytest.mark.parametrize(
    ("text", "line"), [("import sys\nsys.exit(3)\n", 2), ("import sys\ndef build():\n    sys.exit(3)\n", 3), ("raise SystemExit(0)\n", 1)]
)
@pytest.mark.parametrize("command", ["run", "check", "disasm", "sweep"])
def test_a_file_that_exits_is_told_with_its_line(command: str, text: str, line: int) -> None:
    Path("k.py").write_text(text)
    assert refused(command, "k.py").startswith(f"error: k.py:{line}: SystemExit: ")


def test_inputs_of_a_wrong_shape_are_told_with_the_line_that_declares_them() -> None:
    p = Program("p")
    x, y = p.input("x", (4, 4), "float32"), p.output("y", (4, 4), "float32")
    p.dma_copy(dst=y, src=x)
    with pytest.raises(ProgramError, match=r"^test_cli_options.py:\d+ input x: shape \[4\]; \[4, 4\]$"):
        simulate(p, inputs={"x": np.ones(4)})


@pytest.mark.parametrize(("bias", "sign"), [(None, True), (0.0, False)])
def test_an_activation_without_bias_keeps_the_sign_of_zero(bias: float | None, sign: bool) -> None:
    p = Program("p")
    x, y = p.input("x", (1, 2), "float32"), p.output("y", (1, 2), "float32")
    t = p.sbuf((1, 2), "float32")
    p.dma_copy(dst=t, src=x)
    p.activation(dst=t, op="copy", data=t, bias=bias)
    p.dma_copy(dst=y, src=t)
    found = simulate(p, inputs={"x": np.array([[-0.0, 1]], np.float32)}).outputs["y"]
    assert np.signbit(found).tolist() == [[sign, False]]
