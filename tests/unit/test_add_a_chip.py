"""docs/add-a-chip.md: a chip is one file; a wrong one is refused with its name and key."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from conftest import REPOSITORY
from nc_sim import ChipError, Program, Unspecified, Unsupported, chip, compare, simulate, workloads
from nc_sim.__main__ import main
from nc_sim.profile import device, output, source
from nc_sim.report import lanes, viewer
from nc_sim.report.text import chip as chip_text
from nc_sim.report.text import difference, differences, summary
from nc_sim.runtime import Runtime
from nc_sim.schema import SCHEMA
from nc_sim.trace import hardware, perfetto, pftrace, system
from nc_sim.trace.text import timeline
from nc_sim.workloads import softmax

TEXT = (REPOSITORY / "nc_sim" / "chips" / "trn2.toml").read_text()
ROW = re.compile(r"^(\w+) = \{.*\}$", re.MULTILINE)


def changed(changes: dict[str, str]) -> str:
    """trn2's text with the rows of some keys replaced; every key must be there once."""
    section, out, todo = "", [], dict(changes)
    for line in TEXT.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        m = ROW.match(line)
        key = f"{section}.{m[1]}" if m else ""
        out.append(f"{line.split(' = ')[0]} = {todo.pop(key)}" if key in todo else line)
    assert not todo, f"no such keys: {todo}"
    return "\n".join(out) + "\n"


def without(key: str) -> str:
    """trn2's text without one key."""
    marked = changed({key: "GONE"})
    assert "GONE" in marked
    return "\n".join(line for line in marked.splitlines() if not line.endswith("= GONE")) + "\n"


def number(value: str, status: str = "assumed", source: str = "arch") -> str:
    return f'{{ value = {value}, status = "{status}", source = "{source}" }}'


LACKING = '{ status = "unsupported", source = "arch: an older core" }'
OTHER = {
    "clock.tensor_mhz": number("2800"),
    "clock.vector_mhz": number("1120"),
    "clock.scalar_mhz": number("1400"),
    "clock.gpsimd_mhz": number("1400"),
    "clock.sync_mhz": number("1400"),
    "dma.hardware.available": LACKING,
    "tensor.gate.kind": number('"none"'),
} | {key: LACKING for key in SCHEMA if key.startswith("dma.hardware.") and key != "dma.hardware.available"}


def chip_file(folder: Path, changes: dict[str, str]) -> str:
    path = folder / "other.toml"
    path.write_text(changed(changes).replace('name = "trn2"', 'name = "other"', 1))
    return str(path)


# --- a file of its own


def test_trn2_s_own_text_loads_as_trn2() -> None:
    a, b = chip.load("trn2"), chip.parse(TEXT, "copy")
    assert (a.name, a.core, dict(a.numbers), dict(a.sources)) == (b.name, b.core, dict(b.numbers), dict(b.sources))


def test_a_chip_file_with_other_clocks_and_without_hardware_descriptors_runs_a_program(tmp_path: Path) -> None:
    other = chip.load(chip_file(tmp_path, OTHER))
    # the least common multiple of 2800, 1120 and 1400 MHz is 5600 MHz
    assert (other.name, other.ticks_per_ns) == ("other", Fraction(28, 5))
    program = workloads.load("softmax").build()
    x = np.random.default_rng(0).standard_normal((256, 512)).astype(np.float32)
    result = simulate(program, other, {"x": x})
    assert np.allclose(result.outputs["y"], workloads.load("softmax").reference({"x": x})["y"], atol=1e-5)
    assert result.timeline.gate == ((0, 1),)  # always at full rate
    copies = [s for s in result.steps if s.instruction.mnemonic == "dma_direct2d"]
    assert {s.engine.label for s in copies} == {"GpSimd"}
    with pytest.raises(Unsupported, match="dge_mode=hwdge"):  # pipeline asks for hardware descriptors by name
        simulate(workloads.load("pipeline").build(), other, values=False)


def test_a_stream_takes_its_cycles_at_the_chip_s_own_clock(tmp_path: Path) -> None:
    program = workloads.load("softmax").build()
    path = chip_file(tmp_path, {"clock.vector_mhz": number("480")})
    fast, slow = (next(i for i in simulate(program, c, values=False).instructions if i.opcode == "TENSOR_REDUCE") for c in ("trn2", path))
    # 512 elements: 533.33 ns at 0.96 GHz, 1066.67 at 0.48, and 152 ns either way; a tick is 1/4.8 ns
    assert fast.duration_ns == pytest.approx(685.33, abs=0.21)
    assert slow.duration_ns == pytest.approx(1218.67, abs=0.21)


def test_a_fraction_is_exact(tmp_path: Path) -> None:
    path = chip_file(tmp_path, {"tensor.gate.threshold": number('"1/3"'), "dma.row_ns": number("4.7")})
    numbers = chip.load(path).numbers
    assert (numbers["tensor.gate.threshold"].value, numbers["dma.row_ns"].value) == (Fraction(1, 3), Fraction(47, 10))


def test_a_result_names_the_assumed_numbers_it_rests_on(tmp_path: Path) -> None:
    path = chip_file(tmp_path, {"vector.tensor_reduce.sbuf_fixed_ns": number("100", "assumed", "arch: a guess")})
    result = simulate(workloads.load("softmax").build(), path, values=False)
    assert result.assumed["vector.tensor_reduce.sbuf_fixed_ns"] == "assumed: arch: a guess"
    assert "vector.tensor_reduce.sbuf_fixed_ns" not in simulate(workloads.load("softmax").build(), values=False).assumed


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        ("unsupported", Unsupported, "other: vector.reciprocal.cycles_per_element is unsupported; a chip that has it (arch)"),
        (
            "unspecified",
            Unspecified,
            "other: vector.reciprocal.cycles_per_element has no published value; a source, or an override by --what-if (arch)",
        ),
    ],
)
def test_a_run_that_needs_a_number_the_chip_lacks_stops_and_names_it(
    tmp_path: Path, status: str, error: type[Exception], message: str
) -> None:
    path = chip_file(tmp_path, {"vector.reciprocal.cycles_per_element": f'{{ status = "{status}", source = "arch" }}'})
    with pytest.raises(error) as e:
        simulate(workloads.load("softmax").build(), path, values=False)
    assert message in str(e.value)
    simulate(workloads.load("matmul").build(), path, values=False)  # does without
    given = simulate(workloads.load("softmax").build(), path, values=False, what_if={"vector.reciprocal.cycles_per_element": 6})
    assert given.assumed["vector.reciprocal.cycles_per_element"] == "assumed: what-if"


# --- what is refused


def refused(text: str) -> str:
    with pytest.raises(ChipError) as e:
        chip.parse(text, "mine.toml")
    return str(e.value)


def test_a_missing_key_is_named_with_its_meaning() -> None:
    assert refused(without("semaphore.latency_ns")) == (
        "mine.toml: no 'semaphore.latency_ns'; every key of the schema: from a completion to a waiting sequencer's dispatch"
    )


def test_of_several_missing_keys_the_first_is_named_and_the_rest_counted() -> None:
    text = "\n".join(line for line in TEXT.splitlines() if not line.startswith("release_ns"))
    assert refused(text) == (
        "mine.toml: no 'sequencer.tensor.release_ns' and 4 more; every key of the schema: when the engine's queue is released, after Sync"
    )


def test_an_unknown_key_is_refused_with_the_nearest() -> None:
    text = TEXT.replace("[semaphore]", f"[semaphore]\nlatencyns = {number('3')}", 1)
    assert refused(text) == "mine.toml: unknown key 'semaphore.latencyns'; a key of the chip schema; did you mean 'semaphore.latency_ns'?"


def test_an_unknown_key_near_none_is_refused() -> None:
    text = TEXT.replace("[semaphore]", f"[qqq]\nzzz = {number('3')}\n\n[semaphore]", 1)
    assert refused(text) == "mine.toml: unknown key 'qqq.zzz'; a key of the chip schema"


def test_an_unknown_status_is_refused() -> None:
    assert refused(changed({"dma.row_ns": number("5", "guessed")})) == (
        "mine.toml: dma.row_ns: status 'guessed'; "
        "one of measured, documented, derived, carried-over, assumed, fitted, unsupported, unspecified"
    )


def test_a_source_without_a_code_of_the_file_is_refused() -> None:
    codes = ", ".join(chip.load("trn2").sources)
    assert refused(changed({"dma.row_ns": number("5", "measured", "hearsay: a friend")})) == (
        f"mine.toml: dma.row_ns: source 'hearsay: a friend'; a code of [sources] ({codes}), then `: place`"
    )


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("dma.row_ns", "-1", "-1; a number of at least 0"),
        ("dma.row_ns", '"five"', "'five'; a number of at least 0"),
        ("dma.row_ns", '"1/0"', "'1/0'; a number of at least 0"),
        ("dma.row_ns", "true", "True; a number of at least 0"),
        ("dma.row_ns", "nan", "Decimal('NaN'); a number of at least 0"),
        ("dma.row_ns", "[1]", "[1]; a number of at least 0"),
        ("dma.engines", "15.5", "15.5; a whole number of at least 1"),
        ("tensor.gate.kind", '"sliding"', "'sliding'; one of windows, streaks, none"),
        ("tensor.transpose_mode", "1", "1; true or false"),
        ("scalar.table_sets", '["exp"]', "['exp']; a list of lists of names, at least one"),
    ],
)
def test_a_value_that_does_not_fit_its_key_is_refused(key: str, value: str, message: str) -> None:
    assert refused(changed({key: number(value)})) == f"mine.toml: {key}: {message}"


@pytest.mark.parametrize("status", ["unsupported", "unspecified"])
def test_a_value_beside_a_status_that_has_none_is_refused(status: str) -> None:
    assert refused(changed({"dma.row_ns": number("5", status)})) == f"mine.toml: dma.row_ns: a value; no value with status '{status}'"


def test_a_status_that_needs_a_value_is_refused_without() -> None:
    text = changed({"dma.row_ns": '{ status = "measured", source = "traces" }'})
    assert refused(text) == "mine.toml: dma.row_ns: no value; a value with status 'measured'"


def test_a_row_that_is_not_a_number_with_provenance_is_refused() -> None:
    assert refused(changed({"dma.row_ns": "5"})) == "mine.toml: dma.row_ns: 5; { value = ..., status = ..., source = ... }"


@pytest.mark.parametrize("key", ["name", "core"])
def test_a_file_without_its_heading_is_refused(key: str) -> None:
    assert refused(re.sub(rf"^{key} = .*$", "", TEXT, count=1, flags=re.MULTILINE)) == f"mine.toml: no '{key}'; name, core and [sources]"


def test_a_file_that_is_not_toml_is_refused() -> None:
    assert refused("name = ").startswith("mine.toml: not TOML: ")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ChipError) as e:
        chip.load(tmp_path / "none.toml")
    assert str(e.value) == f"{tmp_path / 'none.toml'}: cannot be read: No such file or directory; a chip file"


def test_a_name_that_is_no_chip_is_refused_with_the_chips_there_are() -> None:
    with pytest.raises(ChipError) as e:
        chip.load("trn9")
    assert str(e.value) == f"chip: 'trn9'; one of {', '.join(chip.names())}, or the path of a .toml file"


# --- comparing


def test_the_difference_lists_the_numbers_that_differ_and_no_other_by_how_they_do(tmp_path: Path) -> None:
    other = chip.load(chip_file(tmp_path, OTHER | {"dma.row_ns": number("4.7", "derived")}))
    first, *groups = difference(chip.load("trn2"), other).split("\n\n")
    assert first == f"trn2 (NeuronCore-v3) and other (NeuronCore-v3): {len(OTHER) + 1} of {len(SCHEMA)} numbers differ"
    tables = {g.splitlines()[0]: [line.split() for line in g.splitlines()[1:]] for g in groups}
    lacking = {k for k in OTHER if k.startswith("dma.hardware.")}
    assert list(tables) == [
        f"other values: {len(OTHER) - len(lacking)}", f"only trn2: {len(lacking)}", "the same, known in another way: 1",
    ]  # fmt: skip
    values, only, same = tables.values()
    assert [row[0] for row in values] == ["name", *sorted(set(OTHER) - lacking)]
    assert values[-1] == ["tensor.gate.kind", "windows", "(measured)", "none", "(assumed)"]
    assert only[0] == ["name", "trn2", "other"]
    assert {row[0] for row in only[1:]} == lacking
    assert only[1] == ["dma.hardware.available", "True", "(documented)", "-", "(unsupported)"]
    assert same[1:] == [["dma.row_ns", "4.7", "(measured)", "4.7", "(derived)"]]


def test_the_difference_can_be_limited_to_names_that_start_alike_and_given_as_plain_values(tmp_path: Path) -> None:
    other = chip.load(chip_file(tmp_path, OTHER))
    assert difference(chip.load("trn2"), other, "memory.") == "trn2 and other do not differ in memory."
    found = differences(chip.load("trn2"), other, "clock.")
    assert (found["chips"], found["same"], len(found["numbers"])) == (["trn2", "other"], 0, 5)
    assert found["numbers"]["clock.vector_mhz"][1] == {"value": "1120", "status": "assumed", "source": "arch"}


def test_a_chip_does_not_differ_from_itself() -> None:
    assert difference(chip.load("trn2"), chip.load("trn2")) == "trn2 and trn2 do not differ"


# --- what lacks, and what is extrapolated


def test_an_error_names_the_generation_that_has_what_a_chip_lacks() -> None:
    p = Program("select")
    a, d, one = p.sbuf((128, 64), "float32"), p.sbuf((128, 64), "float32"), p.sbuf((128, 1), "float32")
    for t in (a, one):
        p.memset(dst=t, value=1.0)
    p.range_select(dst=d, on_true_tile=a, comp_op0="greater", comp_op1="less", bound0=one, bound1=one)
    with pytest.raises(Unsupported) as e:
        simulate(p, "trn1")
    assert str(e.value) == (
        f"{p.steps[-1].line} vector[2] range_select: range_select on Vector of trn1; NeuronCore-v3 or newer (isa26: from NeuronCore-v3)"
    )
    p = Program("shift")
    a, d = p.sbuf((128, 64), "float32"), p.sbuf((128, 64), "float32")
    p.memset(dst=a, value=1.0)
    p.tensor_scalar(dst=d, data=a, op0="add", operand0=1.0, engine="scalar")
    simulate(p, "trn2")
    with pytest.raises(Unsupported, match=r"tensor_scalar on ScalarE of NeuronCore-v2; a chip that has it: NeuronCore-v3 and later"):
        simulate(p, "inf2")


def test_a_generation_is_named_beside_what_is_unsupported_only() -> None:
    row = '{ value = 5, status = "measured", source = "traces", has = "NeuronCore-v4" }'
    assert refused(changed({"dma.row_ns": row})) == (
        "mine.toml: dma.row_ns: has = 'NeuronCore-v4'; the generation that has it, beside status 'unsupported' only"
    )


WHY = "a test says so"


def extrapolated(folder: Path) -> str:
    path = Path(chip_file(folder, {}))
    path.write_text(path.read_text().replace('core = "NeuronCore-v3"', f'core = "NeuronCore-v3"\nextrapolated = "{WHY}"', 1))
    return str(path)


def test_every_report_of_a_result_on_an_extrapolated_chip_says_so(tmp_path: Path) -> None:
    path = extrapolated(tmp_path)
    program = workloads.load("rmsnorm").build()
    result, plain = simulate(program, path, values=False), simulate(program, values=False)
    assert result.timeline == plain.timeline
    assert (result.summary()["extrapolated"], plain.summary()["extrapolated"]) == (WHY, None)
    assert repr(result).endswith("ns, extrapolated>")
    assert f"  extrapolated: {WHY}" in summary(result).splitlines()
    assert "extrapolated" not in summary(plain)
    assert f"extrapolated: {WHY}" in chip_text(chip.load(path)).splitlines()
    assert f"  other is extrapolated: {WHY}" in difference(chip.load("trn1"), chip.load(path)).splitlines()[:2]
    saved = {r: hardware.load(r.save(tmp_path / str(k))) for k, r in enumerate((result, plain))}
    assert [t.metadata.get("extrapolated") for t in saved.values()] == [WHY, None]
    assert "simulated, extrapolated" in timeline(saved[result], width=140).splitlines()[0]
    assert "extrapolated" not in timeline(saved[plain], width=140)


@pytest.mark.parametrize(
    "command", [["run", "rmsnorm"], ["check", "rmsnorm"], ["study", "rmsnorm"], ["chips"], ["accuracy", "instructions"]]
)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_every_command_says_that_trn3_is_extrapolated(command: list[str], form: list[str], tmp_path: Path) -> None:
    options = [] if command == ["chips"] else ["--chip", "trn3"]
    options += ["--out", str(tmp_path / "out")] if command[0] == "run" else []
    names = ["trn3"] if command == ["chips"] else []
    found = CliRunner().invoke(main, [*command, *names, *options, *form], catch_exceptions=False)
    assert found.exit_code == 0
    why = chip.load("trn3").extrapolated
    assert json.loads(found.stdout)["extrapolated"] == why if form else f"extrapolated: {why}" in found.stdout


def test_pictures_perfetto_files_and_profile_tables_say_that_a_chip_is_extrapolated(tmp_path: Path) -> None:
    pytest.importorskip("perfetto")
    pytest.importorskip("matplotlib")
    result, plain = (simulate(softmax.build(), c, values=False) for c in (extrapolated(tmp_path), "trn2"))
    for r, said in ((result, True), (plain, False)):
        file = perfetto.save(r, tmp_path / "a.pftrace")
        assert (pftrace.load(file)[0].labels == ("simulated", "extrapolated")) == said
        folder = r.save(tmp_path / f"run{said}")
        found, names = output.summaries(output.read(folder))
        assert [n.endswith("simulated, extrapolated") for n in names.values()] == [said] * len(found)
        warnings = device.tables(source.read(folder))["Warning"].columns()
        assert (warnings["message"], warnings["category"]) == (
            ([f"times on {r.chip.name} are extrapolated: {WHY}"], ["Extrapolated"]) if said else ([], [])
        )
        assert lanes.lanes(r).name.endswith(", extrapolated") == said
        for draw in (lanes.draw, viewer.draw):
            assert ("extrapolated" in draw(r, tmp_path / "a.svg").read_text()) == said, draw.__module__
        compared = compare(plain, r)
        compared.save(tmp_path / "c.pftrace")
        sides = [t.name for t in pftrace.load(tmp_path / "c.pftrace") if t.level == 1]
        assert [s.endswith(", extrapolated") for s in sides] == [False, said]


def test_a_system_trace_of_an_extrapolated_chip_says_so(tmp_path: Path) -> None:
    saved = system.load(system.save(Runtime(chip=extrapolated(tmp_path)), tmp_path / "sys"))
    assert saved.metadata["extrapolated"] == WHY


def test_an_empty_reason_is_none() -> None:
    text = TEXT.replace('core = "NeuronCore-v3"', 'core = "NeuronCore-v3"\nextrapolated = " "', 1)
    assert refused(text) == "mine.toml: extrapolated: ' '; one line of text"
