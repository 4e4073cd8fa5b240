"""Mechanisms of the timing model by name, each with the overrides that switch it off."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from .arguments import listed
from .isa.errors import ProgramError
from .schema import SCHEMA

SHOWN = 3  # overrides that a head names


@attrs.frozen
class Mechanism:
    """One modelled detail: what it is, and the chip numbers that make it vanish."""

    doc: str
    off: Mapping[str, Any]


def _all(ending: str, value: Any, start: str = "") -> dict[str, Any]:
    keys = [k for k in SCHEMA if k.endswith(ending) and k.startswith(start)]
    assert keys, (start, ending)
    return dict.fromkeys(keys, value)


REGISTER_TIMES = ("move", "alu_op", "tensor_load", "tensor_store", "compare_branch")
SLOWER = ("vector.copy_predicated.", "vector.select_reduce.")  # their rates in SBUF are lower than with PSUM: no fast mode
_COMPLETION = {k: 0 for k in SCHEMA if k.startswith("dma.") and k.endswith(("load_done_ns", "store_done_ns", "_last_ns", "settle_ns"))}
_BUSY = {**_all("busy_delay_ns", 0, "dma."), **_all("busy_stall_ratio", 0, "dma."), **_all("busy_stall_ns", 0, "dma.")}
MECHANISMS: dict[str, Mechanism] = {
    "clock-gate": Mechanism("PE rate by its recent use: free-running windows, or streaming time", {"tensor.gate.kind": "none"}),
    "dma-start-latency": Mechanism(
        "time from a trigger to its first packets",
        {k: 0 for k in SCHEMA if k.startswith("dma.") and ("_first_ns" in k or "_stagger_ns" in k)},
    ),
    "dma-completion-latency": Mechanism("time from the last packet to the semaphore", _COMPLETION),
    "dma-load-stalls": Mechanism("stalls at the first packet of loads", {**_all("load_stall_ns", 0, "dma."), **_BUSY}),
    "dma-busy-penalty": Mechanism("extra stall of loads that meet a busy engine", _BUSY),
    "dma-row-overhead": Mechanism(
        "fixed time per descriptor row", {"dma.row_ns": 0, "dma.small_load_row_ns": 0, "dma.small_store_row_ns": 0}
    ),
    "dma-core-limit": Mechanism(
        "what all DMA engines of a core move together", {"dma.core_load_bytes_per_ns": 0, "dma.core_store_bytes_per_ns": 0}
    ),
    "dma-store-ring-limit": Mechanism("triggers that stall behind unfinished stores", {"dma.store_ring_limit": 0}),
    "hardware-descriptor-generation": Mechanism(
        "sequencer time of hardware triggers",
        {f"dma.hardware.{k}": 0 for k in ("trigger_ns", "trigger_row_ns", "follow_ns", "gap_ns", "gap_scalar_ns")},
    ),
    "software-descriptor-generation": Mechanism(
        "GpSimd time of software triggers",
        {
            "dma.software.latency_ns": 0,
            "dma.software.interval_ns": 40,
            "dma.software.interval_row_ns": 0,
            "dma.software.further_row_ns": 0,
        },
    ),
    "run-time-addresses": Mechanism(
        "added time of instructions whose addresses come from tensors or registers",
        {
            **dict.fromkeys((f"dma.software.{k}" for k in ("dynamic_ns", "indirect_ns")), 0),
            "dma.hardware.dynamic_ns": 0,
            "sequencer.dynamic_cycles": 0,
            "sequencer.register_address_ns": 0,
        },
    ),
    "dma-transpose-rate": Mechanism(
        "transposes by DMA slower than copies",
        {"dma.transpose.hbm_ratio": 1, "dma.transpose.sbuf_ratio": 1, "dma.transpose.full_row_elements": 0},
    ),
    "dma-sum-rate": Mechanism("sums by DMA slower than copies", {"dma.compute.pair_ratio": 1, "dma.compute.further_ratio": 0}),
    "semaphore-latency": Mechanism("time from a completion to the waiter", {"semaphore.latency_ns": 0}),
    "event-semaphore": Mechanism(
        "time of EVENT_SEMAPHORE and NOP",
        {**_all("event_semaphore_ns", 0), **_all("event_semaphore_gap_ns", 0)},
    ),
    "register-instructions": Mechanism(
        "time of register instructions and branches",
        {f"sequencer.{e}.{op}_ns": 0 for e in ("tensor", "vector", "scalar", "gpsimd", "sync") for op in REGISTER_TIMES},
    ),
    "issue-gap": Mechanism(
        "gap between instructions of one engine",
        {
            **_all("_gap_ns", 0, "scalar."),
            "vector.gap_ns": 0,
            "vector.two_cycle_gap_ns": 0,
            "tensor.stream_gap_full_ns": 0,
            "tensor.stream_gap_gated_ns": 0,
        },
    ),
    "fixed-latency": Mechanism(
        "latency over streaming of Vector and Scalar", {**_all("_fixed_ns", 0, "scalar."), **_all("_fixed_ns", 0, "vector.")}
    ),
    "pe-result-latency": Mechanism(
        "from the end of streaming to the result in PSUM",
        {"tensor.result_latency_full_ns": 0, "tensor.result_latency_gated_ns": 0},
    ),
    "weight-load": Mechanism("time to load stationary operands", {k: 0 for k in SCHEMA if ".load_idle" in k or ".load_behind" in k}),
    "table-load": Mechanism("loading activation tables", {"scalar.table_load_ns": 0}),
    "vector-fast-modes": Mechanism(
        "two-fold and four-fold rates of VectorE, two-fold of ScalarE",
        {k: 1 for k in SCHEMA if k.startswith(("vector.", "scalar.")) and k.endswith("_ratio") and not k.startswith(SLOWER)},
    ),
    "pointer-operand": Mechanism(
        "added time of [P, 1] operands", {"vector.pointer_ns": 0, "scalar.function_pointer_ns": 0, "scalar.identity_pointer_ns": 0}
    ),
    "shared-packets": Mechanism("rows of software DMAs that share packets", {"dma.software.shared_packet_bytes": 0}),
    "narrowing": Mechanism("added time of ScalarE activations out of PSUM to a narrower type", {"scalar.identity.psum_narrowing_ns": 0}),
    "ports": Mechanism(
        "engines that exclude each other from SBUF or PSUM",
        {"ports.vector_gpsimd_sbuf": "shared", "ports.vector_scalar_psum": "shared"},
    ),
    "descriptor-packets": Mechanism("rows that join to packets", {"dma.software.packet_bytes": 0}),
    "run-ahead": Mechanism("sequencers that run ahead of their engine", _all("queue_depth", 1)),
    "minimum-interval": Mechanism("least time between two products", {"tensor.min_interval_cycles": 0}),
}


def without(names: Iterable[str]) -> dict[str, Any]:
    """The overrides that switch the named mechanisms off."""
    out: dict[str, Any] = {}
    if isinstance(names, str):
        raise ProgramError("without", f"the text {names!r}", f"a list of names, [{names!r}]")
    for name in listed(names, "without", f"a list of names out of {', '.join(MECHANISMS)}"):
        if not isinstance(name, str) or name not in MECHANISMS:
            raise ProgramError("without", f"{name!r}", f"one of {', '.join(MECHANISMS)}")
        out.update(MECHANISMS[name].off)
    return out


def own(what_if: Mapping[str, Any], off: Iterable[str]) -> dict[str, Any]:
    """Overrides but those that switch these mechanisms off."""
    theirs = without([name for name in off if name in MECHANISMS])
    return {k: v for k, v in what_if.items() if k not in theirs}


def found_off(what_if: Mapping[str, Any]) -> list[str]:
    """Mechanisms whose overrides are all among these."""
    given = {k: str(v) for k, v in what_if.items()}
    return [name for name, m in MECHANISMS.items() if m.off and all(given.get(k) == str(v) for k, v in m.off.items())]


def changes(what_if: Mapping[str, Any], off: Iterable[str]) -> str:
    """How a run's chip differs from its file, for the head of a report: overrides, and mechanisms switched off; else empty."""
    off = [name for name in off if name in MECHANISMS]
    parts = [f"{k}={v}" for k, v in sorted(own(what_if, off).items())]
    more = f" and {len(parts) - SHOWN} more" if len(parts) > SHOWN else ""
    told = [f"with {', '.join(parts[:SHOWN])}{more}"] if parts else []
    return ", ".join([*told, *([f"without {', '.join(off)}"] if off else [])])
