"""Whole kernels: the programs compute what was measured, and the comparison says what it should."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from click.testing import CliRunner

from nc_sim import ProgramError, chip, simulate
from nc_sim.__main__ import main
from nc_sim.accuracy import kernels
from nc_sim.accuracy.bodies import BODIES
from nc_sim.accuracy.kernels import Kernel, Predicted
from nc_sim.report.kernels import comparison

DATA = kernels.load()
KERNELS = {k.id: k for k in DATA.kernels}
TRN2 = chip.load("trn2")


@pytest.fixture(scope="module")
def predicted() -> tuple[Predicted, ...]:
    return kernels.predict(DATA.kernels, "trn2")


def inputs(program: Any) -> dict[str, np.ndarray]:
    random = np.random.default_rng(5)
    kinds = {name: t for name, t in program.tensors.items() if t.kind == "input"}
    return {name: random.standard_normal(t.shape).astype(t.dtype.numpy) for name, t in kinds.items()}


def attention(x: dict[str, np.ndarray]) -> np.ndarray:
    q, k, v = (x[n].astype(np.float64) for n in "qkv")
    e = np.exp((s := q.T @ k) - s.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True) @ v.T


def halves(x: dict[str, np.ndarray]) -> np.ndarray:
    top, bottom, c, s = x["x"][:64], x["x"][64:], x["cos"], x["sin"]
    return np.concatenate([top * c - bottom * s, bottom * c + top * s])


CASES: list[tuple[str, dict[str, Any], str, Any]] = [
    ("vector_add_rows", {"n": 384, "rows": 128}, "c", lambda x: x["a"] + x["b"]),
    ("vector_add_rows", {"n": 8, "rows": 1, "sink": 2}, "c", lambda x: x["a"] + x["b"]),
    ("vector_add_columns", {"n": 128 * 9, "columns": 3, "sink": 2}, "c", lambda x: x["a"] + x["b"]),
    ("memory_read", {"tiles": 5, "columns": 64}, "out", lambda x: x["x"].astype(float).reshape(5, 128, 64).sum(axis=(0, 2))[:, None]),
    (
        "memory_read",
        {"tiles": 5, "columns": 64, "apart": True},
        "out",
        lambda x: x["x"].astype(float).reshape(5, 128, 64).sum(axis=(0, 2))[:, None],
    ),
    ("memory_write", {"tiles": 3, "columns": 64}, "out", lambda x: np.tile(x["x"], (3, 1))),
    ("rope", {"tiles": 3}, "out", halves),
    ("rope", {"tiles": 3, "sink": 1, "descriptors": "none"}, "out", halves),
    ("silu", {"tiles": 3, "descriptors": "none"}, "out", lambda x: x["x"] / (1 + np.exp(-x["x"].astype(float)))),
    ("transpose_matmul", {"blocks": 2, "k": 256, "evict": "both"}, "out", lambda x: product(x)),
    ("attention_fused", {"s": 512, "dtype": "float32"}, "out", attention),
    ("attention_fused", {"s": 512, "dtype": "float32", "order": "together", "in_place": True, "grouped": True}, "out", attention),
    ("attention_baseline", {"s": 512, "dtype": "bfloat16", "order": "together", "evict": "both", "loads": "vqk"}, "out", attention),
]


def product(x: dict[str, np.ndarray]) -> np.ndarray:
    a, b = (x[n].astype(np.float64).transpose(1, 0, 2).reshape(256, -1) for n in "ab")
    return (a.T @ b).reshape(8, 128, -1)


@pytest.mark.parametrize(("name", "sizes", "result", "reference"), CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_a_program_computes_what_the_measured_kernel_computes(name: str, sizes: dict[str, Any], result: str, reference: Any) -> None:
    program = BODIES[name](**sizes)
    given = inputs(program)
    got = np.asarray(simulate(program, inputs=given).outputs[result], np.float64)
    wanted = reference(given)
    assert np.abs(got - wanted).max() <= (0.02 if "bfloat16" in sizes.values() else 2e-4) * max(1.0, np.abs(wanted).max())


def test_every_body_is_of_some_kernel_and_has_a_test_of_its_values() -> None:
    assert {k.build for k in DATA.kernels if not k.excluded_because} == set(BODIES) == {name for name, *_ in CASES}


def test_the_measured_values_are_those_of_the_shared_file(traces: Path) -> None:
    shared = json.loads((traces.parent / "kernels.json").read_text())["entries"]
    theirs = sorted((e["device"], e["value"], e["unit"]) for e in shared)
    assert sorted((k.chip, k.value, k.unit) for k in DATA.kernels) == theirs


def test_a_kernel_far_off_is_explained_by_a_variant_that_is_not_or_said_to_be_unexplained(predicted: tuple[Predicted, ...]) -> None:
    assert kernels.unexplained(predicted) == []
    for p in predicted:
        if p.off > 10 and not p.kernel.explained.startswith(kernels.UNEXPLAINED):
            assert min(abs(v / p.kernel.value - 1) for v in p.variants.values()) <= 0.1, p.kernel.id


def test_every_variant_says_something_else_than_its_kernel(predicted: tuple[Predicted, ...]) -> None:
    for p in predicted:
        assert len({p.simulated, *p.variants.values()}) == 1 + len(p.kernel.variants), p.kernel.id


def test_a_kernel_of_a_chip_without_a_file_waits_for_it() -> None:
    (only,) = kernels.predict([attrs.evolve(KERNELS["trn1-silu"], chip="trn9")])
    assert (only.simulated, only.excluded_because) == (None, "waits for a chip file of trn9")


@pytest.mark.parametrize("kernel", [k for k in DATA.kernels if k.chip != "trn2" and not k.excluded_because], ids=lambda k: k.id)
def test_the_program_of_a_kernel_of_another_chip_can_be_built_and_runs(kernel: Kernel) -> None:
    sizes = {**kernel.sizes, **({kernel.grow["size"]: kernel.grow["low"]} if kernel.grow else {})}
    assert simulate(BODIES[kernel.build](**sizes), values=False).duration_ns > 0


def test_a_long_kernel_is_a_line_through_two_short_ones() -> None:
    long = attrs.evolve(
        KERNELS["trn1-memory-write"], chip="trn2", grow={"size": "tiles", "low": 32, "high": 64, "full": 256}, bytes=1 << 27
    )
    (line,) = kernels.predict([long])
    whole = simulate(BODIES["memory_write"](tiles=256, columns=2048, descriptors="none"), values=False)
    assert line.simulated == pytest.approx((1 << 27) / whole.duration_ns, rel=0.01)


def test_what_is_compared_is_the_body_with_what_the_measurement_adds(predicted: tuple[Predicted, ...]) -> None:
    p = next(p for p in predicted if p.kernel.id == "trn2-vector-add-128x200")
    body = simulate(BODIES["vector_add_columns"](n=25600, columns=200), values=False).duration_ns
    assert p.simulated == pytest.approx((body + 8200) / 1000)  # the harness: docs/chips.md, program.benchmark_ns
    (whole,) = kernels.predict([attrs.evolve(p.kernel, quantity="total")])
    assert whole.simulated == pytest.approx((body + 13600 + 1700) / 1000)
    (bare,) = kernels.predict([attrs.evolve(p.kernel, quantity="body", unit="ns")])
    assert bare.simulated == pytest.approx(body)


def test_kernels_with_products_have_a_range_over_the_gates_phases_around_their_prediction(predicted: tuple[Predicted, ...]) -> None:
    for p in predicted:
        assert (p.low is not None) == p.kernel.build.startswith("attention")
        if p.low is not None and p.high is not None and p.simulated is not None:
            assert p.low <= p.simulated <= p.high
            assert p.low < p.high


def test_the_part_on_assumed_numbers_is_what_they_move(predicted: tuple[Predicted, ...]) -> None:
    static = attrs.evolve(KERNELS["trn1-vector-add-128x200"], chip="trn2", quantity="body", unit="ns")
    (p,) = kernels.predict([static])  # on trn2 most numbers of static descriptors are assumed
    assert "dma.static.store_first_ns" in p.assumed
    body = simulate(BODIES[static.build](**static.sizes), values=False).duration_ns
    off = {k: TRN2.numbers[k].value * 7 / 8 for k in p.assumed}
    less = simulate(BODIES[static.build](**static.sizes), TRN2.what_if(off), values=False).duration_ns
    assert p.assumed_share == pytest.approx((body - less) / body * 8, abs=1e-6)
    assert 0.1 < p.assumed_share < 0.9


def test_the_command_prints_every_kernel_as_json_and_as_text() -> None:
    run = CliRunner().invoke(main, ["accuracy", "kernels", "--chip", "trn1", "--json"])
    got = json.loads(run.stdout)
    assert [e["id"] for e in got["entries"]] == [k.id for k in DATA.kernels if k.chip == "trn1"]
    off = [abs(e["error_percent"]) for e in got["entries"] if e["error_percent"] is not None]
    assert len(off) > 3
    assert got["mape_percent"] == pytest.approx(sum(off) / len(off), abs=1e-3)
    text = CliRunner().invoke(main, ["accuracy", "kernels", "--chip", "trn1"]).stdout
    assert all(e["id"] in text for e in got["entries"])


def test_the_command_simulates_the_kernels_it_is_asked_for_and_names_those_it_knows() -> None:
    run = CliRunner().invoke(main, ["accuracy", "kernels", "--kernel", "trn2-vector-add-128x200", "--json"])
    assert [e["id"] for e in json.loads(run.stdout)["entries"]] == ["trn2-vector-add-128x200"]
    other = CliRunner().invoke(main, ["accuracy", "kernels", "--chip", "trn1", "--kernel", "trn2-vector-add-128x200"])
    known = ", ".join(k.id for k in DATA.kernels if k.chip == "trn1")
    assert (other.exit_code, other.stderr) == (1, f"error: accuracy --kernel: 'trn2-vector-add-128x200'; one of {known}\n")


def test_a_what_if_changes_the_prediction_and_is_named() -> None:
    what_if = ["--what-if", "dma.software.interval_ns=1166"]
    got = json.loads(CliRunner().invoke(main, ["accuracy", "kernels", "--kernel", "trn2-vector-add-128", "--json", *what_if]).stdout)
    assert got["what_if"] == {"dma.software.interval_ns": "1166"}
    vector = next(e for e in got["entries"] if e["id"] == "trn2-vector-add-128")
    sunk = next(v for v in vector["variants"] if v["name"] == "stores called two pieces later")
    assert sunk["simulated"] > 600  # three triggers of 1166 ns in each of 200 pieces


def test_kernels_of_an_unknown_chip_are_refused() -> None:
    run = CliRunner().invoke(main, ["accuracy", "kernels", "--chip", "trn9"])
    assert (run.exit_code, run.stderr) == (1, "error: accuracy: no kernels of 'trn9'; one of trn1, trn2\n")


def test_the_text_names_a_kernel_that_is_off_and_not_explained() -> None:
    (p,) = kernels.predict([attrs.evolve(KERNELS["trn2-vector-add-128x200"], value=30.0)])
    assert "not explained: trn2-vector-add-128x200 -50.4 %" in comparison([p], {}).splitlines()


def off_by(*percent: float) -> list[Predicted]:
    """Kernels of 100 us that are off by so much."""
    kernel = attrs.evolve(KERNELS["trn2-vector-add-128x200"], value=100.0, explained="why")
    return [Predicted(kernel, simulated=100.0 + p) for p in percent]


def test_the_text_sums_up_the_errors_by_hand() -> None:
    text = comparison(off_by(-4.0, 5.0, 9.0, 102.0), {}).splitlines()
    assert text[1] == "  |error| as described: mean 30.0 %, median 7.0 %; 2 of 4 within 5 %, 3 within 10 %"
    got = kernels.summary(off_by(-4.0, 5.0, 9.0, 102.0, 1.0), {})
    assert (got["mape_percent"], got["median_percent"], got["within_5"], got["within_10"]) == (24.2, 5.0, 3, 4)
    assert not any("as described" in line for line in comparison([], {}).splitlines())


def test_times_print_in_one_form_without_an_exponent() -> None:
    (p,) = off_by(0.0)
    for measured, simulated, wanted in (
        (37318.0, 97984.04, ("37,318 us", "97,984 us")),
        (9.61031, 10.1299, ("9.61031 us", "10.13 us")),
        (1_234_567.0, 999.96, ("1,234,567 us", "1,000 us")),
        (543.7, 1000.4, ("543.7 us", "1,000 us")),
    ):
        row = comparison([attrs.evolve(p, kernel=attrs.evolve(p.kernel, value=measured), simulated=simulated)], {}).splitlines()[3]
        assert tuple(cell.strip() for cell in row.split("  ") if cell.strip())[2:4] == wanted


def toml(**changes: Any) -> str:
    kernel = {"id": "one", "chip": "trn2", "what": "w", "value": 1.0, "unit": "us", "source": "s", "place": "p", "build": "silu"} | changes
    lines = [f"{k} = {json.dumps(v)}" for k, v in kernel.items() if v is not None]
    return "\n".join(['[sources]\ns = "somewhere"', "[[kernel]]", *lines])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not toml", "not TOML"),
        ("[sources]", "keys sources; a table sources and a list kernel"),
        (toml(value=None), "missing 1 required keyword-only argument: 'value'"),
        (toml(other=1), "unexpected keyword argument 'other'"),
        (toml(source="t"), "source 't'; a code of"),
        (toml(unit="s"), "unit 's'; one of ns, us, ms, GB/s"),
        (toml(quantity="speed"), "quantity 'speed'; one of"),
        (toml(value=0), "value 0; a number above 0"),
        (toml(build="gelu"), "build 'gelu'; one of"),
        (toml(quantity="bandwidth"), "bandwidth of 0 bytes"),
        (toml() + "\n" + toml().split("\n", 2)[2], "the id is there twice"),
    ],
)
def test_a_faulty_file_of_kernels_is_one_error(text: str, message: str) -> None:
    with pytest.raises(ProgramError, match=r"^f") as e:
        kernels.parse(text, "f")
    assert message in str(e.value)
