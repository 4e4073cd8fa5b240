"""RMSNorm as six operations, as one fused kernel and as one compiled graph, beside the published account."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ... import chip as chips
from ...chip import Chip
from ...progress import Tell, part, told
from ...runtime import HostProfile, Runtime
from ...runtime.api import Step
from ...runtime.framework import Array, Framework
from ...workloads import aten, rmsnorm
from ..text import extrapolated, table
from .measurement import Study, measure, operator_tables, require_close, require_room

# Self NEURON, us, on trn2: huggingface.co/blog/amazon/profiling-torchneuron-part-1, RMSNorm on [4, 512] bf16
PUBLISHED = {
    "source": "huggingface.co/blog/amazon/profiling-torchneuron-part-1",
    "chip": "trn2",
    "shape": [4, 512],
    "naive": {"self_neuron_us": 2355.0, "operators": {"aten::mul": 1164.5, "aten::add": 434.6, "aten::rsqrt": 415.0, "aten::mean": 340.8}},
    "rms_norm": {"self_neuron_us": 403.3},
    "compiled": {"self_neuron_us": 375.5},
}
TITLES = {
    "naive": "naive: six ATen operations",
    "rms_norm": "torch.rms_norm: one fused kernel",
    "compiled": "torch.compile: one compiled graph",
}
ITEM = 2  # bytes of a bf16
TOLERANCE = {"naive": 2.0**-5, "rms_norm": rmsnorm.TOLERANCE, "compiled": rmsnorm.TOLERANCE}  # six roundings to bf16, or one


def rmsnorm_study(
    rows: int = 4, cols: int = 512, *, chip: str | Path | Chip = "trn2", host_profile: str | Path | HostProfile = "blog",
    in_flight: int = 1, lnc: int = 1, seed: int = 0, progress: Tell | None = None,
) -> Study:  # fmt: skip
    """RMSNorm on [rows, cols] bf16 by six dispatches, by one fused kernel and by one compiled graph.

    Every variant's values are checked against numpy. `in_flight` is how many dispatches may be outstanding. `progress` is
    told variants done and variants in all.
    """
    chip = chips.load(chip)
    require_room(f"study rmsnorm [{rows}, {cols}]", chip, ITEM * (2 * rows * cols + cols))  # x, the result and the weight
    rng = np.random.default_rng(seed)
    x, w = rng.standard_normal((rows, cols)), rng.standard_normal((1, cols))
    variants, runtimes = {}, {}
    for name, body in told((("naive", naive), ("rms_norm", fused), ("compiled", compiled)), progress, 1):
        rt = Runtime(host_profile, chip, lnc=lnc)
        rt.nrt_init()
        framework = Framework(rt, in_flight=in_flight)
        (got,) = rt.run(partial(_thread, framework, body, x, w))
        _compare(name, got, x, w)
        variants[name], runtimes[name] = measure(framework), rt
    same = [rows, cols] == PUBLISHED["shape"] and chip.name == PUBLISHED["chip"] and not chip.overrides
    published = PUBLISHED if same else None  # nothing is known of other sizes and chips
    return Study({"shape": [rows, cols]}, variants, runtimes, published)


SWEEP_ROWS = (4, 128, 1024)
SWEEP_COLS = (512, 2048, 8192)


def sweep(progress: Tell | None = None, **options: Any) -> list[dict[str, Any]]:
    """Self NEURON of every variant over rows and columns: where the six dispatches stop mattering, fusion pays by bytes only.

    `progress` is told elements done and elements in all.
    """
    out = []
    shapes = [(rows, cols) for rows in SWEEP_ROWS for cols in SWEEP_COLS]
    done, total = 0, sum(rows * cols for rows, cols in shapes)
    for rows, cols in shapes:
        study = rmsnorm_study(rows, cols, progress=part(progress, done, done + rows * cols, total), **options)
        found, said_of_it = study.variants, study.summary()["extrapolated"]
        point: dict[str, Any] = {"rows": rows, "cols": cols, **({"extrapolated": said_of_it} if said_of_it else {})}
        for name, v in found.items():
            point[name] = {"self_neuron_us": v["self_neuron_us"], "device_us": v["device_us"]}
        point["naive_over_rms_norm"] = round(found["naive"]["self_neuron_us"] / found["rms_norm"]["self_neuron_us"], 3)
        point["device_naive_over_rms_norm"] = round(found["naive"]["device_us"] / found["rms_norm"]["device_us"], 3)
        out.append(point)
        done += rows * cols
    return out


def sweep_text(points: list[dict[str, Any]]) -> str:
    """The sweep as a table."""
    rows = []
    for p in points:
        times = [f"{p[v][kind]:.1f}" for kind in ("self_neuron_us", "device_us") for v in TITLES]
        ratios = [f"{p[k]:.2f}" for k in ("naive_over_rms_norm", "device_naive_over_rms_norm")]
        rows.append((str(p["rows"]), str(p["cols"]), *times, *ratios))
    head = ("rows", "cols", *(f"{v} us" for v in TITLES), *(f"{v} device" for v in TITLES), "naive/rms_norm", "of device time")
    return "\n".join([*extrapolated(next((p["extrapolated"] for p in points if "extrapolated" in p), None)), *table(head, rows)])


def _thread(f: Framework, body: Callable[[Framework, Array, Array], Step], x: np.ndarray, w: np.ndarray, thread: int) -> Step:
    f.thread = thread
    a = yield from f.put(x, "bfloat16")
    weight = yield from f.put(w, "bfloat16")
    out = yield from body(f, a, weight)
    return (yield from f.get(out))


def naive(f: Framework, x: Array, w: Array) -> Step:
    """x * rsqrt(mean(x * x) + eps) * w, one program per operation; eps is a host scalar."""
    shape, column = _matrix(x), (x.shape[0], 1)
    d = x.dtype
    squares = yield from f.op("aten::mul", lambda: aten.mul(shape, shape, d), [x, x], f.array(shape, d))
    mean = yield from f.op("aten::mean", lambda: aten.mean(shape, d), [squares], f.array(column, d))
    shifted = yield from f.op("aten::add", lambda: aten.add(column, d), [mean], f.array(column, d), scalar=rmsnorm.EPS)
    rstd = yield from f.op("aten::rsqrt", lambda: aten.rsqrt(column, d), [shifted], f.array(column, d))
    scaled = yield from f.op("aten::mul", lambda: aten.mul(shape, column, d), [x, rstd], f.array(shape, d))
    return (yield from f.op("aten::mul", lambda: aten.mul(shape, (1, shape[1]), d), [scaled, w], f.array(shape, d)))


def fused(f: Framework, x: Array, w: Array) -> Step:
    """The hand-written kernel of workloads/rmsnorm.py."""
    return (
        yield from f.op(
            "aten::_fused_rms_norm", lambda: rmsnorm.build(*_matrix(x), x.dtype, names=("a", "b", "out")), [x, w], f.array(x.shape, x.dtype)
        )
    )


def compiled(f: Framework, x: Array, w: Array) -> Step:
    """The six operations in one program, as a graph compiler would leave them."""
    return (
        yield from f.op(
            "Torch-Compiled Region: 0/0", lambda: aten.rms_norm_graph(_matrix(x), x.dtype, rmsnorm.EPS), [x, w], f.array(x.shape, x.dtype)
        )
    )


def _matrix(a: Array) -> tuple[int, int]:
    rows, cols = a.shape
    return rows, cols


def _compare(name: str, got: np.ndarray, x: np.ndarray, w: np.ndarray) -> None:
    """bf16 inputs, the formula in float64, and the roundings of the variant."""
    a, weight = (v.astype(got.dtype).astype(np.float64) for v in (x, w))
    wanted = rmsnorm.reference({"x": a, "weight": weight})["y"]
    require_close(f"study {name}", got, wanted, TOLERANCE[name], 2.0**-6)


def text(study: Study) -> str:
    """A table by operator for each variant, then the variants side by side."""
    s = study.summary()
    lines = [
        f"RMSNorm on [{s['shape'][0]}, {s['shape'][1]}] bf16, {s['chip']}, host profile {s['host_profile']}",
        *extrapolated(s["extrapolated"]),
    ]
    lines += operator_tables(study.variants, TITLES)
    side = []
    for name, v in study.variants.items():
        known = (s["published"] or {}).get(name, {}).get("self_neuron_us")
        off = "-" if known is None else f"{100 * (v['self_neuron_us'] / known - 1):+.1f} %"
        side.append(
            (
                name,
                f"{v['self_neuron_us']:.1f}",
                "-" if known is None else f"{known:.1f}",
                off,
                f"{v['device_us']:.1f}",
                str(v["dispatches"]),
                str(v["hbm_read_bytes"]),
                str(v["hbm_write_bytes"]),
                " ".join(f"{e}:{n}" for e, n in v["instructions"].items()),
            )
        )
    head = ("variant", "Self NEURON us", "published", "off", "device us", "dispatches", "HBM read B", "HBM write B", "instructions")
    lines += ["", *table(head, side), ""]
    lines += [
        "device us, bytes and instructions are predicted by the core model; the rest of Self NEURON is set by the host profile,",
        "which is taken from the published account and not predicted.",
    ]
    return "\n".join(lines)
