"""The transformer study: what is counted by hand, what the published run says by dispatch, and what is refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from conftest import REPOSITORY
from nc_sim import ProgramError
from nc_sim.__main__ import main
from nc_sim.report.study import measurement, transformer
from nc_sim.runtime.framework import Framework
from nc_sim.trace import system

# One layer in eager mode: each norm is mul, mean, add, rsqrt, mul, mul; q, k, v; scores, scale, softmax, weighted sum,
# joining of heads; output projection, residual; gate, up, silu, their product, down, residual.
EAGER = {
    "aten::mul": 3 + 1 + 3 + 1,
    "aten::mm": 3 + 1 + 3,
    "aten::add": 1 + 1 + 1 + 1,
    "aten::bmm": 2,
    "aten::mean": 2,
    "aten::rsqrt": 2,
    "aten::_softmax": 1,
    "aten::silu": 1,
    "aten::copy_": 1,
}
# Three times an operation follows one with the same program: q, k, v and gate, up.
SAME_AS_BEFORE = 3
FUSED = {"aten::_fused_rms_norm": 2, "nki::qkv": 1, "nki::attention": 1, "nki::projection": 1, "nki::mlp": 1}
# of one dispatch, in the order they happen
STEPS = ("nrta_execute_schedule", "nrt_model_submit", "kbl_exec_pre", "kbl_exec_wait", "kbl_exec_post", "nc_exec_running")
S, D, HEADS, FF = 128, 256, 4, 512
ACTIVATIONS = S * D * 2  # bytes


@pytest.fixture(scope="module")
def result() -> measurement.Study:
    return transformer.transformer_study()


@pytest.fixture(scope="module")
def two_layers() -> measurement.Study:
    return transformer.transformer_study(64, 64, 2, 96, 2)


def calls(study: measurement.Study, variant: str) -> dict[str, float]:
    return {name: row["calls"] for name, row in study.variants[variant]["operators"].items()}


def test_eager_is_the_28_operations_counted_by_hand(result: measurement.Study) -> None:
    assert sum(EAGER.values()) == 28
    assert calls(result, "eager") == EAGER
    assert result.variants["eager"]["dispatches"] == 28


def test_fused_is_six_kernels_and_compiled_is_one(result: measurement.Study) -> None:
    assert calls(result, "fused") == FUSED
    assert calls(result, "compiled") == {"Torch-Compiled Region: 0/0": 1}


def test_layers_repeat_eager_and_fused_dispatches_and_compiled_stays_one(two_layers: measurement.Study) -> None:
    assert calls(two_layers, "eager") == {name: 2 * n for name, n in EAGER.items()}
    assert [v["dispatches"] for v in two_layers.variants.values()] == [56, 12, 1]


def test_layers_share_programs_by_shape(two_layers: measurement.Study) -> None:
    # mul: x * x, by a column, by a row, gate * up, by a scalar; mm: [D, D], [D, FF], [FF, D]; add: a scalar, the residual;
    # two bmm; mean, rsqrt, softmax, silu, copy
    assert len(two_layers.runtimes["eager"].models) == 5 + 3 + 2 + 2 + 5
    assert len(two_layers.runtimes["fused"].models) == 5
    assert len(two_layers.runtimes["compiled"].models) == 1


def test_every_step_of_a_dispatch_is_counted_once_in_the_measured_pass_alone(result: measurement.Study) -> None:
    for v in result.variants.values():
        assert {v["events"][name] for name in STEPS} == {v["dispatches"]}
        assert v["events"]["all"] == sum(n for name, n in v["events"].items() if name != "all")


def test_the_result_is_read_after_the_measured_pass(result: measurement.Study) -> None:
    for v in result.variants.values():
        assert not {"nrt_tensor_read", "dmem_buf_copyout", "nrt_load"} & set(v["events"])


def test_host_scalars_are_the_only_writes_of_the_measured_pass(result: measurement.Study) -> None:
    # the epsilon of both norms, and the scale of the scores
    assert [v["events"].get("nrt_tensor_write", 0) for v in result.variants.values()] == [3, 0, 0]


def test_a_compiled_model_in_steady_state_switches_never_and_eager_almost_always(
    result: measurement.Study, two_layers: measurement.Study
) -> None:
    assert [v["events"].get("nc_model_switch", 0) for v in result.variants.values()] == [28 - SAME_AS_BEFORE, 6, 0]
    assert [v["events"].get("nc_model_switch", 0) for v in two_layers.variants.values()] == [2 * (28 - SAME_AS_BEFORE), 12, 0]


def test_self_neuron_follows_the_number_of_dispatches_while_tensors_are_small(result: measurement.Study) -> None:
    neuron = {name: v["self_neuron_us"] for name, v in result.variants.items()}
    assert neuron["eager"] / neuron["compiled"] == pytest.approx(28, rel=0.05)
    assert neuron["eager"] / neuron["fused"] == pytest.approx(28 / 6, rel=0.05)


def test_hbm_writes_are_the_results_of_every_program(result: measurement.Study) -> None:
    norm = 3 * ACTIVATIONS + 3 * S * 2  # three products, three columns
    scores, wide = HEADS * S * S * 2, S * FF * 2
    # q, k, v, weighted sum, its copy, projection, two residuals, down; scores, scaled, weights; gate, up, silu, product
    assert result.variants["eager"]["hbm_write_bytes"] == 2 * norm + 9 * ACTIVATIONS + 3 * scores + 4 * wide
    # two norms, q, k and v, attention, projection, mlp
    assert result.variants["fused"]["hbm_write_bytes"] == 8 * ACTIVATIONS
    assert result.variants["compiled"]["hbm_write_bytes"] == ACTIVATIONS


def test_a_compiled_block_reads_x_once_and_every_weight_once(result: measurement.Study) -> None:
    weights = (4 * D * D + 3 * D * FF) * 2
    norms = 2 * S * D * 2  # a row for each partition
    identity = 128 * 128 * 2  # of the transposes
    assert result.variants["compiled"]["hbm_read_bytes"] == ACTIVATIONS + weights + norms + identity


def test_device_time_is_the_core_model_s_own_and_host_time_changes_nothing_of_it(result: measurement.Study) -> None:
    rt = result.runtimes["compiled"]
    (neff,) = rt.neffs.values()
    assert result.variants["compiled"]["device_us"] == neff.total_ns / 1000
    pipelined = transformer.transformer_study(in_flight=4).variants
    for name, v in pipelined.items():
        assert {k: v[k] for k in ("device_us", "hbm_read_bytes", "instructions")} == {
            k: result.variants[name][k] for k in ("device_us", "hbm_read_bytes", "instructions")
        }
    # 27 more dispatches, each 6 + 113 us of host time apart, and three copies of a scalar, 45 us each
    first = result.variants["compiled"]["self_neuron_us"]
    assert pipelined["eager"]["self_neuron_us"] == pytest.approx(first + 27 * 119 + 3 * 45, rel=0.01)


def test_parts_add_up(two_layers: measurement.Study) -> None:
    for v in two_layers.variants.values():
        for key in ("dispatches", "device_us", "self_neuron_us"):
            assert sum(part[key] for part in v["parts"].values()) == pytest.approx(v[key])
    parts = [{name: part["dispatches"] for name, part in v["parts"].items()} for v in two_layers.variants.values()]
    assert parts[0] == {"norm 1": 12, "qkv": 6, "attention": 10, "projection": 4, "norm 2": 12, "mlp": 12}
    assert parts[1] == dict.fromkeys(parts[0], 2)
    assert parts[2] == {"whole": 1}


def test_forms_are_events_to_one_eager_dispatch(result: measurement.Study) -> None:
    forms = result.summary()["forms"]
    # the published forward: 1050 dispatches, two physical cores to each
    assert forms["nc_exec_running"] == {"simulated": 1.0, "published": 2.0}
    assert forms["nc_model_switch"] == {"simulated": round(25 / 28, 3), "published": round(1968 / 1050, 3)}
    assert forms["dmem_buf_copyin"]["published"] == round(13785 / 1050, 3)
    assert forms["nrt_dma_mem_alloc"]["published"] == round(5196 / 1050, 3)
    assert forms["all"]["published"] == round(58707 / 1050, 3)
    assert forms["kbl_exec_pre"]["published"] is None


def test_views_of_one_shape_and_other_strides_have_programs_of_their_own() -> None:
    # a head as wide as there are rows: keys transposed and values look alike but for their strides
    assert set(transformer.transformer_study(16, 32, 2, 8).variants) == {"eager", "fused", "compiled"}


@pytest.mark.parametrize(("shape", "heads", "ff"), [((1, 7), 7, 1), ((127, 33), 3, 65), ((129, 130), 2, 257)])
def test_odd_sizes_keep_their_values(shape: tuple[int, int], heads: int, ff: int) -> None:
    assert set(transformer.transformer_study(*shape, heads, ff).variants) == {"eager", "fused", "compiled"}


@pytest.mark.parametrize("variant", ["eager", "fused", "compiled"])
def test_a_wrong_value_of_any_variant_ends_the_study(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, variant)
    with pytest.raises(ProgramError, match=f"study {variant}: differs from its reference by"):
        transformer.transformer_study(8, 16, 2, 8)


def spoil(monkeypatch: pytest.MonkeyPatch, variant: str) -> None:
    """The weights of k and v exchanged for one variant."""
    body = getattr(transformer, variant)

    def wrong(f: Framework, sizes: object, x: object, weights: list[dict[str, object]], done: object) -> object:
        return body(f, sizes, x, [{**w, "wk": w["wv"], "wv": w["wk"]} for w in weights], done)

    monkeypatch.setattr(transformer, variant, wrong)


def test_json_has_the_documented_keys() -> None:
    out = json.loads(CliRunner().invoke(main, ["study", "transformer", "--shape", "8,16", "--heads", "2", "--json"]).output)
    assert set(out) == {
        "shape", "heads", "ff", "layers", "in_flight", "lnc", "forms", "chip", "extrapolated", "host_profile", "variants", "published",
        "predicted", "set_by_host_profile", "traces",
    }  # fmt: skip
    assert (out["shape"], out["heads"], out["ff"], out["layers"]) == ([8, 16], 2, 32, 1)
    for v in out["variants"].values():
        assert set(v) == {
            "self_neuron_us", "self_cpu_us", "device_us", "dispatches", "nc_exec_running", "hbm_read_bytes", "hbm_write_bytes",
            "instructions", "operators", "events", "parts",
        }  # fmt: skip
        for row in v["operators"].values():
            assert set(row) == {"calls", "self_cpu_us", "self_neuron_us", "neuron_percent"}
    assert out["published"]["events"]["nc_model_switch"] == {"eager": 1968, "compiled": 0}
    assert out["predicted"]["device_us"] == "core model"
    assert out["predicted"]["events"] == "dispatch"


def test_the_text_says_what_is_predicted_and_what_the_profile_sets() -> None:
    out = CliRunner().invoke(main, ["study", "transformer", "--shape", "8,16", "--heads", "2"]).output
    for words in ("aten::_softmax", "predicted by the core model", "set by the host profile", "compare events by dispatch"):
        assert words in out
    assert re.search(r"^  nc_model_switch +25 +6 +0 +1968 +0 +0\.89 +1\.87$", out, re.MULTILINE)


def test_the_output_and_the_traces_are_the_same_bytes_on_every_run(tmp_path: Path) -> None:
    outputs, traces = set(), []
    for seed in ("0", "1"):
        words = ["study", "transformer", "--shape", "8,16", "--heads", "2", "--layers", "2", "--json", "--out", str(tmp_path / "out")]
        run = subprocess.run(
            [sys.executable, "-m", "nc_sim", *words], capture_output=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed}
        )
        outputs.add(run.stdout)
        traces.append({p.name: p.read_bytes() for p in sorted((tmp_path / "out" / "eager").iterdir()) if p.is_file()})
    assert len(outputs) == 1
    assert traces[0] == traces[1]


def test_the_system_trace_of_every_variant_is_saved_with_its_warm_up(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["study", "transformer", "--shape", "8,16", "--heads", "2", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    for variant, dispatches in {"eager": 28, "fused": 6, "compiled": 1}.items():
        trace = system.load(tmp_path / variant)
        assert sum(e.name == "nc_exec_running" for e in trace.events) == 2 * dispatches
        assert f"trace of {variant}: {tmp_path / variant}" in done.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("transformer", "--shape", "128"), "--shape: '128'; ROWS,COLS, each at least 1"),
        (("transformer", "--heads", "3"), "transformer heads: 3 for a width of 256; a divisor of 256, of at most 128 columns a head"),
        (("transformer", "--sweep"), "--sweep: study transformer; study rmsnorm"),
        (("rmsnorm", "--heads", "4"), "--heads: study rmsnorm; study transformer"),
        (("rmsnorm", "--ff", "4"), "--ff: study rmsnorm; study transformer"),
        (("rmsnorm", "--layers", "1"), "--layers: study rmsnorm; study transformer"),
        (("transformer", "--picture", "a.pdf"), "a.pdf: a picture .pdf; a name that ends in .svg or .png"),
        (("transformer", "--chip", "no"), "chip"),
    ],
)
def test_options_that_do_not_fit_are_one_clear_error(words: tuple[str, ...], message: str) -> None:
    done = CliRunner().invoke(main, ["study", *words])
    assert done.exit_code == 1
    assert done.output.startswith(f"error: {message}")
    assert done.output.count("\n") == 1


def test_the_page_shows_the_simulated_figures(result: measurement.Study) -> None:
    page = (REPOSITORY / "docs" / "runtime.md").read_text()
    for name, v in result.variants.items():
        numbers = (f"{v['self_neuron_us']:,.1f}", f"{v['device_us']:.1f}", v["dispatches"], v["events"].get("nc_model_switch", 0))
        row = f"| {name} | {' | '.join(map(str, numbers))} | {v['hbm_read_bytes']:,} | {v['hbm_write_bytes']:,} |"
        assert row in page, row
    two = transformer.transformer_study(lnc=2)
    counts = {name: v["events"] for name, v in two.variants.items()}
    for name in ("nrt_model_submit", "nc_exec_running", "nc_model_switch", "dmem_buf_copyin", "nrt_dma_mem_alloc", "all"):
        form = two.summary()["forms"][name]
        eager, compiled = (counts[v].get(name, 0) for v in ("eager", "compiled"))
        row = f"| {name} | {eager} | {compiled} | {form['simulated']:.2f} | {form['published']:.2f} |"
        assert row in page, row


def test_at_two_physical_cores_events_of_a_dispatch_are_those_of_the_published_run() -> None:
    """ESM-2 650M over 1,050 eager dispatches: 2100 nc_exec_running, 13,785 dmem_buf_copyin, 5,196 nrt_dma_mem_alloc, 1,968 switches."""
    forms = transformer.transformer_study(64, 128, 2, 256, lnc=2).summary()["forms"]
    simulated = {name: row["simulated"] for name, row in forms.items()}
    assert simulated["nrt_model_submit"] == 1
    assert simulated["nc_exec_running"] == 2100 / 1050
    assert simulated["dmem_buf_copyin"] == pytest.approx(13785 / 1050, rel=0.02)
    assert simulated["nrt_dma_mem_alloc"] == pytest.approx(5196 / 1050, rel=0.02)
    assert simulated["nc_model_switch"] == pytest.approx(1968 / 1050, rel=0.05)  # other programs in another order
