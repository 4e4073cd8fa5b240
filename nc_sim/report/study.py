"""Eager, fused and compiled dispatch of one computation, side by side with published measurements."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from ..chip import Chip
from ..isa import Engine
from ..isa.errors import ProgramError
from ..runtime import HostProfile, Runtime
from ..runtime.api import Step
from ..runtime.events import HARDWARE
from ..runtime.framework import Array, Dispatch, Framework
from ..workloads import aten, rmsnorm
from .text import table

# Self NEURON, us, on trn2: huggingface.co/blog/amazon/profiling-torchneuron-part-1, RMSNorm on [4, 512] bf16
PUBLISHED = {
    "source": "huggingface.co/blog/amazon/profiling-torchneuron-part-1",
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
TOLERANCE = {"naive": 2.0**-5, "rms_norm": rmsnorm.TOLERANCE, "compiled": rmsnorm.TOLERANCE}  # six roundings to bf16, or one


@attrs.frozen(eq=False)
class Study:
    """Results by variant, and the runtime of each, whose trace can be saved."""

    shape: tuple[int, int]
    variants: dict[str, dict[str, Any]]
    runtimes: dict[str, Runtime]

    def summary(self) -> dict[str, Any]:
        """Plain numbers, for `--json`."""
        rt = next(iter(self.runtimes.values()))
        return {
            "shape": list(self.shape),
            "chip": rt.chip.name,
            "host_profile": rt.profile.name,
            "variants": self.variants,
            "published": PUBLISHED if list(self.shape) == PUBLISHED["shape"] else None,
            "predicted": {
                "device_us": "core model",
                "hbm_read_bytes": "core model",
                "hbm_write_bytes": "core model",
                "nc_exec_running": "dispatch",
            },
            "set_by_host_profile": ["self_neuron_us less device_us", "self_cpu_us"],
        }


def rmsnorm_study(
    rows: int = 4, cols: int = 512, *, chip: str | Path | Chip = "trn2", host_profile: str | Path | HostProfile = "blog",
    in_flight: int = 1, seed: int = 0,
) -> Study:  # fmt: skip
    """RMSNorm on [rows, cols] bf16 by six dispatches, by one fused kernel and by one compiled graph.

    Every variant's values are checked against numpy. `in_flight` is how many dispatches may be outstanding.
    """
    rng = np.random.default_rng(seed)
    x, w = rng.standard_normal((rows, cols)), rng.standard_normal((1, cols))
    variants, runtimes = {}, {}
    for name, body in (("naive", naive), ("rms_norm", fused), ("compiled", compiled)):
        rt = Runtime(host_profile, chip)
        rt.nrt_init()
        framework = Framework(rt, in_flight=in_flight)
        (got,) = rt.run(partial(_thread, framework, body, x, w))
        _compare(name, got, x, w)
        variants[name], runtimes[name] = measure(framework), rt
    return Study((rows, cols), variants, runtimes)


SWEEP_ROWS = (4, 128, 1024)
SWEEP_COLS = (512, 2048, 8192)


def sweep(**options: Any) -> list[dict[str, Any]]:
    """Self NEURON of every variant over rows and columns: where the six dispatches stop mattering, fusion pays by bytes only."""
    out = []
    for rows in SWEEP_ROWS:
        for cols in SWEEP_COLS:
            found = rmsnorm_study(rows, cols, **options).variants
            point: dict[str, Any] = {"rows": rows, "cols": cols}
            for name, v in found.items():
                point[name] = {"self_neuron_us": v["self_neuron_us"], "device_us": v["device_us"]}
            point["naive_over_rms_norm"] = round(found["naive"]["self_neuron_us"] / found["rms_norm"]["self_neuron_us"], 3)
            point["device_naive_over_rms_norm"] = round(found["naive"]["device_us"] / found["rms_norm"]["device_us"], 3)
            out.append(point)
    return out


def sweep_text(points: list[dict[str, Any]]) -> str:
    """The sweep as a table."""
    rows = []
    for p in points:
        times = [f"{p[v][kind]:.1f}" for kind in ("self_neuron_us", "device_us") for v in TITLES]
        ratios = [f"{p[k]:.2f}" for k in ("naive_over_rms_norm", "device_naive_over_rms_norm")]
        rows.append((str(p["rows"]), str(p["cols"]), *times, *ratios))
    head = ("rows", "cols", *(f"{v} us" for v in TITLES), *(f"{v} device" for v in TITLES), "naive/rms_norm", "of device time")
    return "\n".join(table(head, rows))


def _thread(f: Framework, body: Callable[[Framework, Array, Array], Step], x: np.ndarray, w: np.ndarray, thread: int) -> Step:
    f.thread = thread
    a = yield from f.put(x, "bfloat16")
    weight = yield from f.put(w, "bfloat16")
    out = yield from body(f, a, weight)
    return (yield from f.get(out))


def naive(f: Framework, x: Array, w: Array) -> Step:
    """x * rsqrt(mean(x * x) + eps) * w, one program per operation; eps is a host scalar."""
    shape, column = x.shape, (x.shape[0], 1)
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
            "aten::rms_norm", lambda: rmsnorm.build(*x.shape, x.dtype, names=("a", "b", "out")), [x, w], f.array(x.shape, x.dtype)
        )
    )


def compiled(f: Framework, x: Array, w: Array) -> Step:
    """The six operations in one program, as a graph compiler would leave them."""
    return (yield from f.op("CompiledGraph", lambda: aten.rms_norm_graph(x.shape, x.dtype, rmsnorm.EPS), [x, w], f.array(x.shape, x.dtype)))


def measure(f: Framework) -> dict[str, Any]:
    """What a profile of these dispatches would say."""
    rt, dispatches = f.rt, f.dispatches
    running = [e for e in rt.trace.events if e.name == "nc_exec_running"]
    instructions: dict[str, int] = {}
    read = written = 0
    for d in dispatches:
        assert d.model is not None
        for step in d.model.neff.compiled.steps:
            label = Engine(step.engine).label
            instructions[label] = instructions.get(label, 0) + 1
            for _, view, writes in step.instruction.views:
                if view.memory.name == "HBM":
                    read, written = (read, written + view.nbytes) if writes else (read + view.nbytes, written)
    return {
        "self_neuron_us": round(sum(d.self_neuron_ns for d in dispatches) / 1000, 3),
        "self_cpu_us": round(sum(d.cpu_ns for d in dispatches) / 1000, 3),
        "device_us": round(sum(e.duration_ns for e in running if e.source == HARDWARE and not e.attributes.get("idle")) / 1000, 3),
        "dispatches": len(dispatches),
        "nc_exec_running": len(running),
        "hbm_read_bytes": read,
        "hbm_write_bytes": written,
        "instructions": dict(sorted(instructions.items())),
        "operators": _operators(dispatches),
    }


def _operators(dispatches: list[Dispatch]) -> dict[str, dict[str, float]]:
    out: dict[str, dict[str, float]] = {}
    total = sum(d.self_neuron_ns for d in dispatches)
    for d in dispatches:
        row = out.setdefault(d.name, {"calls": 0, "self_cpu_us": 0.0, "self_neuron_us": 0.0, "neuron_percent": 0.0})
        row["calls"] += 1
        row["self_cpu_us"] += d.cpu_ns / 1000
        row["self_neuron_us"] += d.self_neuron_ns / 1000
        row["neuron_percent"] = 100 * row["self_neuron_us"] * 1000 / total
    return {k: {n: round(v, 3) for n, v in row.items()} for k, row in sorted(out.items(), key=lambda r: -r[1]["self_neuron_us"])}


def _compare(name: str, got: np.ndarray, x: np.ndarray, w: np.ndarray) -> None:
    """bf16 inputs, the formula in float64, and the roundings of the variant."""
    a, weight = (v.astype(got.dtype).astype(np.float64) for v in (x, w))
    wanted = rmsnorm.reference({"x": a, "weight": weight})["y"]
    error = float((np.abs(got.astype(np.float64) - wanted) / np.maximum(np.abs(wanted), 2.0**-6)).max())
    if not error <= TOLERANCE[name]:
        raise ProgramError(f"study {name}", f"differs from its reference by {error:.3g} of its size", f"at most {TOLERANCE[name]:.3g}")


def text(study: Study) -> str:
    """A table by operator for each variant, then the variants side by side."""
    s = study.summary()
    lines = [f"RMSNorm on [{study.shape[0]}, {study.shape[1]}] bf16, {s['chip']}, host profile {s['host_profile']}"]
    for name, v in study.variants.items():
        rows = [
            (op, f"{r['calls']:.0f}", f"{r['self_cpu_us']:.1f}", f"{r['self_neuron_us']:.1f}", f"{r['neuron_percent']:.1f} %")
            for op, r in v["operators"].items()
        ]
        lines += ["", TITLES[name], *table(("Name", "# Calls", "Self CPU us", "Self NEURON us", "% NEURON"), rows, indent="  ")]
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
