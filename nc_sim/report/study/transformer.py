"""A transformer block as ATen operations, as fused kernels and as one compiled graph, in steady state."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from ... import chip as chips
from ...chip import Chip
from ...isa.errors import ProgramError
from ...progress import Tell, told
from ...runtime import HostProfile, Runtime
from ...runtime.api import Step
from ...runtime.events import FRAMEWORK
from ...runtime.framework import Array, Framework
from ...workloads import aten, rmsnorm, transformer
from ..text import extrapolated, table
from .measurement import PREDICTED, Study, measure, operator_tables, require_room
from .rmsnorm import ITEM, naive

DTYPE = "bfloat16"
# One forward of ESM-2 650M on trn2, two physical cores to a dispatch, eager and compiled
PUBLISHED = {
    "source": "public AWS workshop on TorchNeuron eager against compile, ESM-2 650M",
    "dispatches": {"eager": 1050, "compiled": 1},
    "milliseconds": {"eager": 124.5, "compiled": 15.6},
    "events": {
        "nrt_model_submit": {"eager": 1050, "compiled": 1},
        "nc_exec_running": {"eager": 2100, "compiled": 2},
        "nc_model_switch": {"eager": 1968, "compiled": 0},
        "dmem_buf_copyin": {"eager": 13785, "compiled": 14},
        "nrt_dma_mem_alloc": {"eager": 5196, "compiled": 6},
        "all": {"eager": 58707, "compiled": 531},
    },
}
TITLES = {
    "eager": "eager: every ATen operation is a program",
    "fused": "fused: one kernel for each part of a block",
    "compiled": "torch.compile: one compiled graph",
}
ROUNDED = {"eager": transformer.EAGER, "fused": transformer.FUSED, "compiled": transformer.FUSED}
# Size of the difference over size of the result, by layer. A sum that falls on the other side of a bf16 rounding changes
# every later one a little, so that two right computations differ by as much as their roundings do.
TOLERANCE = 2.0**-7
PARTS = ("norm 1", "qkv", "attention", "projection", "norm 2", "mlp")
WHOLE = "whole"


@attrs.frozen
class Sizes:
    """S rows of width D, heads that divide D, the width of the MLP, and how often the block is repeated."""

    s: int
    d: int
    heads: int
    ff: int
    layers: int


@attrs.define
class Pass:
    """Where a pass began and ended, and which dispatches belong to which part of a block."""

    first_dispatch: int = 0
    first_event: int = 0
    end_event: int = 0
    parts: list[str] = attrs.field(factory=list)  # of each dispatch

    def mark(self, f: Framework, part: str) -> None:
        """What was dispatched since the last mark is `part`."""
        self.parts += [part] * (len(f.dispatches) - self.first_dispatch - len(self.parts))


def transformer_study(
    s: int = 128, d: int = 256, heads: int = 4, ff: int = 512, layers: int = 1, *, chip: str | Path | Chip = "trn2",
    host_profile: str | Path | HostProfile = "blog", in_flight: int = 1, lnc: int = 1, seed: int = 0, progress: Tell | None = None,
) -> Study:  # fmt: skip
    """One pass of the blocks over x [S, D] by every variant, after a warm-up pass; values are checked against numpy.

    `progress` is told variants done and variants in all.

    ProgramError for sizes that no program here can hold, or if values differ. The caches of two variants are apart.
    """
    sizes = Sizes(s, d, heads, ff, layers)
    transformer.shapes(d, heads, ff)
    chip = chips.load(chip)
    # weights of every layer; x and the result; the scores, which the eager variant keeps in HBM
    elements = layers * (4 * d * d + 3 * d * ff + 2 * d) + 2 * s * d + heads * s * s
    require_room(f"study transformer [{s}, {d}], heads {heads}, MLP {ff}, layers {layers}", chip, ITEM * elements)
    given = transformer.inputs(transformer.build(s, d, heads, ff, layers), seed)
    variants: dict[str, dict[str, Any]] = {}
    runtimes: dict[str, Runtime] = {}
    for name, body in told((("eager", eager), ("fused", fused), ("compiled", compiled)), progress, 1):
        rt = Runtime(host_profile, chip, lnc=lnc)
        rt.nrt_init()
        f, measured = Framework(rt, in_flight=in_flight), Pass()
        (got,) = rt.run(partial(_thread, f, body, sizes, given, measured))
        _compare(name, got, given, layers)
        variants[name], runtimes[name] = _measure(f, measured), rt
    facts = {"shape": [s, d], "heads": heads, "ff": ff, "layers": layers, "in_flight": in_flight, "lnc": lnc, "forms": _forms(variants)}
    return Study(facts, variants, runtimes, PUBLISHED, {**PREDICTED, "dispatches": "dispatch", "events": "dispatch"})


Layers = Sequence[Mapping[str, Array]]
Body = Callable[[Framework, Sizes, Array, Layers, Pass], Step]


def _thread(f: Framework, body: Body, sizes: Sizes, given: Mapping[str, np.ndarray], measured: Pass, thread: int) -> Step:
    """The host: weights and x to the device, a pass that fills the caches, the measured pass, and the result back."""
    f.thread = thread
    x = yield from f.put(given["x"], DTYPE)
    weights: list[dict[str, Array]] = []
    for k in range(sizes.layers):
        weights.append({})
        for name in transformer.WEIGHTS:
            w = given[f"{name}{k}"]
            weights[k][name] = yield from f.put(w.reshape(w.shape[0], -1), DTYPE)
    yield from body(f, sizes, x, weights, Pass())
    yield from f.synchronise()
    measured.first_dispatch, measured.first_event = len(f.dispatches), f.rt.trace.next_id
    out = yield from body(f, sizes, x, weights, measured)
    yield from f.synchronise()
    measured.end_event = f.rt.trace.next_id
    return (yield from f.get(out))


def eager(f: Framework, sizes: Sizes, x: Array, weights: Layers, done: Pass) -> Step:
    """28 operations a layer. Splitting and joining heads, and transposing keys, are views, but for one copy."""
    s, d, h, dtype = sizes.s, sizes.d, sizes.heads, x.dtype
    width = d // h

    def mm(a: Array, b: Array) -> Step:
        one, two = (a.shape[0], a.shape[1]), (b.shape[0], b.shape[1])
        return (yield from f.op("aten::mm", lambda: aten.mm(one, two, dtype), [a, b], f.array((one[0], two[1]), dtype)))

    def bmm(a: Array, b: Array, shapes: tuple[aten.Batch, aten.Batch], strides: tuple[aten.Batch, aten.Batch]) -> Step:
        views = [Array(t.tensor, n, dtype, m) for t, n, m in zip((a, b), shapes, strides, strict=True)]
        out = f.array((h * s, shapes[1][2]), dtype)
        return (yield from f.op("aten::bmm", lambda: aten.bmm(*shapes, *strides, dtype), views, out))

    def add(a: Array, b: Array) -> Step:
        return (yield from f.op("aten::add", lambda: aten.add_tensor((s, d), dtype), [a, b], f.array((s, d), dtype)))

    heads, turned = (h, s, width), (h, width, s)
    by_head, by_key = (width, d, 1), (width, 1, d)  # strides in a buffer [S, D]
    rows, by_row = (s, h, width), (width, s * width, 1)  # in a buffer [heads, S, D / heads]
    square, wide = (h * s, s), (s, sizes.ff)
    for w in weights:
        n = yield from naive(f, x, w["norm1"])
        done.mark(f, "norm 1")
        q = yield from mm(n, w["wq"])
        k = yield from mm(n, w["wk"])
        v = yield from mm(n, w["wv"])
        done.mark(f, "qkv")
        scores = yield from bmm(q, k, (heads, turned), (by_head, by_key))
        scaled = yield from f.op(
            "aten::mul", lambda: aten.scale(square, dtype), [scores], f.array(square, dtype), scalar=1 / math.sqrt(width)
        )
        share = yield from f.op("aten::_softmax", lambda: aten.softmax(square, dtype), [scaled], f.array(square, dtype))
        seen = yield from bmm(share, v, ((h, s, s), heads), ((s * s, s, 1), by_head))
        joined = yield from f.op(
            "aten::copy_", lambda: aten.copy(rows, by_row, dtype), [Array(seen.tensor, rows, dtype, by_row)], f.array((s, d), dtype)
        )
        done.mark(f, "attention")
        projected = yield from mm(joined, w["wo"])
        x = yield from add(x, projected)
        done.mark(f, "projection")
        n = yield from naive(f, x, w["norm2"])
        done.mark(f, "norm 2")
        gate = yield from mm(n, w["wg"])
        up = yield from mm(n, w["wu"])
        open_ = yield from f.op("aten::silu", lambda: aten.silu(wide, dtype), [gate], f.array(wide, dtype))
        hidden = yield from f.op("aten::mul", lambda: aten.mul(wide, wide, dtype), [open_, up], f.array(wide, dtype))
        x = yield from add(x, (yield from mm(hidden, w["wd"])))
        done.mark(f, "mlp")
    return x


def fused(f: Framework, sizes: Sizes, x: Array, weights: Layers, done: Pass) -> Step:
    """Six kernels a layer; what passes between two of them goes through HBM, in the order that suits the second."""
    s, d, h, ff, dtype = sizes.s, sizes.d, sizes.heads, sizes.ff, x.dtype

    def norm(a: Array, w: Array) -> Step:
        return (
            yield from f.op(
                "aten::_fused_rms_norm", lambda: rmsnorm.build(s, d, dtype, names=("a", "b", "out")), [a, w], f.array((s, d), dtype)
            )
        )

    for w in weights:
        n = yield from norm(x, w["norm1"])
        done.mark(f, "norm 1")
        qkv = yield from f.op(
            "nki::qkv", lambda: transformer.qkv_program(s, d, h, dtype), [n, w["wq"], w["wk"], w["wv"]], f.array((3, s * d), dtype)
        )
        done.mark(f, "qkv")
        seen = yield from f.op("nki::attention", lambda: transformer.attention_program(s, d, h, dtype), [qkv], f.array((d, s), dtype))
        done.mark(f, "attention")
        x = yield from f.op(
            "nki::projection", lambda: transformer.projection_program(s, d, dtype), [seen, w["wo"], x], f.array((s, d), dtype)
        )
        done.mark(f, "projection")
        n = yield from norm(x, w["norm2"])
        done.mark(f, "norm 2")
        x = yield from f.op(
            "nki::mlp", lambda: transformer.mlp_program(s, d, ff, dtype), [n, w["wg"], w["wu"], w["wd"], x], f.array((s, d), dtype)
        )
        done.mark(f, "mlp")
    return x


def compiled(f: Framework, sizes: Sizes, x: Array, weights: Layers, done: Pass) -> Step:
    """All layers in one program."""
    operands = [x, *(w[name] for w in weights for name in transformer.WEIGHTS)]
    out = yield from f.op(
        "Torch-Compiled Region: 0/0",
        lambda: transformer.build(sizes.s, sizes.d, sizes.heads, sizes.ff, sizes.layers, x.dtype, output="out"),
        operands,
        f.array(x.shape, x.dtype),
    )
    done.mark(f, WHOLE)
    return out


def _measure(f: Framework, measured: Pass) -> dict[str, Any]:
    """As `measure`, with the counts of the pass's events by name and its times by part."""
    events: dict[str, int] = {}
    for e in f.rt.trace.events:
        if measured.first_event <= e.id < measured.end_event and e.source != FRAMEWORK:
            events[e.name] = events.get(e.name, 0) + 1
    parts: dict[str, dict[str, float]] = {}
    for name, d in zip(measured.parts, f.dispatches[measured.first_dispatch :], strict=True):
        assert d.model is not None
        row = parts.setdefault(name, {"dispatches": 0, "device_us": 0.0, "self_neuron_us": 0.0})
        row["dispatches"] += 1
        row["device_us"] += d.model.neff.total_ns / 1000
        row["self_neuron_us"] += d.self_neuron_ns / 1000
    return {
        **measure(f, measured.first_dispatch, measured.first_event),
        "events": {"all": sum(events.values()), **dict(sorted(events.items()))},
        "parts": {part: {k: round(v, 3) for k, v in row.items()} for part, row in parts.items()},
    }


def _forms(variants: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Events to one eager dispatch, simulated and published: what can be compared between models of different sizes."""
    events, dispatches = variants["eager"]["events"], variants["eager"]["dispatches"]
    known: Mapping[str, Mapping[str, int]] = PUBLISHED["events"]  # type: ignore[assignment]
    out: dict[str, dict[str, float | None]] = {}
    for name in [*events, *(n for n in known if n not in events)]:
        published = round(known[name]["eager"] / known["nrt_model_submit"]["eager"], 3) if name in known else None
        out[name] = {"simulated": round(events.get(name, 0) / dispatches, 3), "published": published}
    return out


def _compare(name: str, got: np.ndarray, given: Mapping[str, np.ndarray], layers: int) -> None:
    """The formula in float64 with the roundings of the variant, as a whole."""
    wanted = transformer.reference(given, ROUNDED[name])["y"]
    error = float(np.linalg.norm(got.astype(np.float64) - wanted) / np.linalg.norm(wanted))
    if not error <= TOLERANCE * layers:
        raise ProgramError(f"study {name}", f"differs from its reference by {error:.3g} of its size", f"at most {TOLERANCE * layers:.3g}")


def text(study: Study) -> str:
    """A table by operator for each variant, the variants side by side, and their events."""
    s = study.summary()
    lines = [
        f"Transformer block on [{s['shape'][0]}, {s['shape'][1]}] bf16, {s['heads']} heads, MLP {s['ff']}, layers: {s['layers']},"
        f" {s['chip']}, host profile {s['host_profile']}, in flight: {s['in_flight']}; steady state, after a warm-up pass",
        *extrapolated(s["extrapolated"]),
    ]
    lines += operator_tables(study.variants, TITLES)
    side = [
        (
            name,
            f"{v['self_neuron_us']:.1f}",
            f"{v['device_us']:.1f}",
            f"{v['self_neuron_us'] - v['device_us']:.1f}",
            str(v["dispatches"]),
            str(v["hbm_read_bytes"]),
            str(v["hbm_write_bytes"]),
            " ".join(f"{e}:{n}" for e, n in v["instructions"].items()),
        )
        for name, v in study.variants.items()
    ]
    head = ("variant", "Self NEURON us", "device us", "rest us", "dispatches", "HBM read B", "HBM write B", "instructions")
    known: Mapping[str, Mapping[str, int]] = PUBLISHED["events"]  # type: ignore[assignment]
    events = []
    for name, form in s["forms"].items():
        row = [str(v["events"].get(name, 0)) for v in study.variants.values()]
        there = [str(known[name][v]) if name in known else "-" for v in ("eager", "compiled")]
        per = ["-" if form[k] is None else f"{form[k]:.2f}" for k in ("simulated", "published")]
        events.append((name, *row, *there, *per))
    lines += ["", *table(head, side), "", "Events of the runtime and the cores in one pass; published: one forward of ESM-2 650M on trn2"]
    lines += table(
        ("event", *study.variants, "published eager", "published compiled", "per eager dispatch", "published"), events, indent="  "
    )
    lines += [
        "",
        "device us, bytes and instructions are predicted by the core model. Dispatches and events follow from how a variant cuts",
        "the block into programs and from the runtime's rules. The rest of Self NEURON, and Self CPU, are set by the host profile,",
        "which is taken from published accounts and not predicted. The published run has two physical cores to a dispatch and",
        "another model: compare events by dispatch, not their number. Copies and allocations of the runtime itself are counts it",
        "is given, not predictions; an event at 0 beside a published count is not modelled.",
    ]
    return "\n".join(lines)
