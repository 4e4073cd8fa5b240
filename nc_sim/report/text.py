"""Summaries and comparisons as plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import mechanisms
from ..chip import Chip, Number
from ..replay import Replay
from ..result import Result


def summary(result: Result) -> str:
    """The run in a few lines: time, work, engines, and what the numbers rest on."""
    s = result.summary()
    body = s["duration_ns"]
    lines = [
        f"{s['program']} on {s['chip']} ({result.chip.core})",
        *extrapolated(result.chip.extrapolated, "  "),
        f"  body       {us(body)}   profile total {us(s['total_time_ns'])}   benchmark {us(s['benchmark_ns'])}",
    ]
    if s["phase_range_ns"]:
        low, high = s["phase_range_ns"]
        windows = result.chip.numbers["tensor.gate.kind"].value == "windows"
        found = (
            f"{us(low)} to {us(high)} over {16} phases of the clock gate" if windows else "none: the throttle has no free-running windows"
        )
        lines.append(f"  gate phase {found}")
    lines.append(
        f"  work       {s['instructions']} instructions, {size(s['hbm_read_bytes'])} read, {size(s['hbm_write_bytes'])} written,"
        f" {s['flops'] / 1e6:.2f} Mflop on the TensorEngine"
    )
    rows = [
        (name, f"{e['instructions']:.0f}", us(e["busy_ns"]), f"{100 * e['busy_ns'] / body:.1f} %" if body else "-")
        for name, e in s["engines"].items()
    ]
    lines += table(("engine", "instructions", "busy", "of body"), rows, indent="  ")
    s = {**s, "what_if": mechanisms.own(s["what_if"], s["without"])}
    for what in ("what_if", "without", "races", "observed_semaphores"):
        if s[what]:
            shown = [f"{k}={v}" for k, v in s[what].items()] if isinstance(s[what], dict) else s[what]
            lines.append(f"  {what.replace('_', ' ')}: {', '.join(shown)}")
    lines += rests_on(s["assumed"])
    return "\n".join(lines)


SHOWN = 12  # assumed numbers that a summary lists


def rests_on(assumed: Mapping[str, str]) -> list[str]:
    """What a summary says of numbers without a source for the chip: their number, and the first; --json has them all."""
    count = len(assumed)
    if not count:
        return []
    own = sum("what-if" in why for why in assumed.values())
    yours = f", {'all' if own == count else own} of them overridden here" if own else ""
    lines = [f"  rests on {count} number{'s' * (count > 1)} that no source gives for this chip{yours}:"]
    # overrides of the user's first: they asked for them
    order = sorted(assumed.items(), key=lambda item: "what-if" not in item[1])
    lines += [f"    {name} ({why})" for name, why in order[: SHOWN if count > SHOWN + 1 else count]]
    return lines + ([f"    and {count - SHOWN} more, which --json lists"] if count > SHOWN + 1 else [])


def comparison(replay: Replay) -> str:
    """Simulated against measured, or against what another simulation gave."""
    s, source = replay.summary(), replay.profile.source
    lines = [
        f"{s['trace']} on {s['chip']}: {s['instructions']} instructions of the kernel body",
        *extrapolated(replay.chip.extrapolated, "  "),
        f"  body         simulated {us(s['total_simulated_ns'])}   {source} {us(s['total_measured_ns'])}"
        f"   {s['total_error_percent']:+.2f} %",
        f"  start times  median error {s['median_start_error_ns']:.0f} ns ({s['median_start_error_percent']:.2f} % of the body),"
        f" p95 {s['p95_start_error_ns']:.0f} ns ({s['p95_start_error_percent']:.2f} %)",
        f"  clock gate   phase from {s['gate_phase']}",
        f"  DMA          {'latencies taken from the trace' if s['dma_from_trace'] else 'simulated'}",
    ]
    rows = [
        (
            opcode, f"{v['count']:.0f}", f"{v['measured_median_ns']:.0f}", f"{v['simulated_median_ns']:.1f}",
            f"{v['median_duration_error_ns']:.1f}", f"{v['median_duration_error_percent']:.1f} %", f"{v['median_start_error_ns']:.0f}",
        )
        for opcode, v in s["by_opcode"].items()
    ]  # fmt: skip
    head = (
        "opcode",
        "count",
        "exported ns" if replay.profile.simulated else "measured ns",
        "simulated ns",
        "|error| ns",
        "|error|",
        "start |error| ns",
    )
    return "\n".join([*lines, "  durations, medians by opcode:", *table(head, rows, indent="  ")])


def chip(data: Chip, prefix: str = "") -> str:
    """Every number of a chip with its provenance."""
    rows = [
        (key, "-" if n.value is None else value(n.value), n.status, n.source)
        for key, n in sorted(data.numbers.items())
        if key.startswith(prefix)
    ]
    lines = [
        f"{data.name}: {data.core}, {len(data.numbers)} numbers, one tick = {float(1 / data.ticks_per_ns):.6g} ns",
        *extrapolated(data.extrapolated),
        *table(("name", "value", "status", "source"), rows),
    ]
    used = {r[3].split(":")[0].split(",")[0] for r in rows}
    return "\n".join([*lines, "", "sources:", *(f"  {code}: {text}" for code, text in data.sources.items() if code in used)])


def extrapolated(why: str | None, before: str = "") -> list[str]:
    """The line that every report about an extrapolated chip has, with what stands before it; none for other chips."""
    return [f"{before}extrapolated: {why}"] if why else []


def differences(a: Chip, b: Chip, prefix: str = "") -> dict[str, Any]:
    """Numbers in which two chips differ, as plain values for `--json`."""

    def plain(n: Number) -> dict[str, Any]:
        return {"value": None if n.value is None else value(n.value), "status": n.status, "source": n.source}

    keys = [k for k in sorted(a.numbers) if k.startswith(prefix) and _known(a.numbers[k]) != _known(b.numbers[k])]
    return {
        "chips": [a.name, b.name],
        "same": sum(k.startswith(prefix) for k in a.numbers) - len(keys),
        "numbers": {k: [plain(a.numbers[k]), plain(b.numbers[k])] for k in keys},
    }


def changed(what_if: Mapping[str, Any]) -> list[str]:
    """Lines of a report on many runs: overrides, and mechanisms that are off by them."""
    off = mechanisms.found_off(what_if)
    return [*(f"  what if: {k}={v}" for k, v in mechanisms.own(what_if, off).items()), *(f"  without: {name}" for name in off)]


def difference(a: Chip, b: Chip, prefix: str = "") -> str:
    """Numbers in which two chips differ: what both have, what only one has, and what is known in another way, apart."""
    keys = [k for k in sorted(a.numbers) if k.startswith(prefix)]
    pairs = {k: (a.numbers[k], b.numbers[k]) for k in keys if _known(a.numbers[k]) != _known(b.numbers[k])}
    if not pairs:
        return f"{a.name} and {b.name} do not differ" + (f" in {prefix}" if prefix else "")
    groups = (
        ("other values", [k for k, (x, y) in pairs.items() if None not in (x.value, y.value) and x.value != y.value]),
        (f"only {a.name}", [k for k, (x, y) in pairs.items() if x.value is not None and y.value is None]),
        (f"only {b.name}", [k for k, (x, y) in pairs.items() if x.value is None and y.value is not None]),
        ("the same, known in another way", [k for k, (x, y) in pairs.items() if x.value == y.value]),
    )
    lines = [
        f"{a.name} ({a.core}) and {b.name} ({b.core}): {len(pairs)} of {len(keys)} numbers differ",
        *(line for c in (a, b) for line in extrapolated(c.extrapolated, f"  {c.name} is ")),
    ]
    for title, mine in groups:
        if mine:
            rows = [(k, *(("-" if n.value is None else value(n.value)) + f" ({n.status})" for n in pairs[k])) for k in mine]
            lines += ["", f"{title}: {len(mine)}", *table(("name", a.name, b.name), rows, indent="  ")]
    return "\n".join(lines)


def _known(n: Number) -> tuple[Any, str]:
    return n.value, n.status


def value(v: Any) -> str:
    """A chip number as its file would write it."""
    if isinstance(v, tuple):
        return " ".join("{" + ",".join(s) + "}" for s in v)
    if hasattr(v, "denominator") and v.denominator != 1:
        return f"{float(v):g}" if float(f"{float(v):g}") == float(v) else f"{v.numerator}/{v.denominator}"
    return str(v)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "") -> list[str]:
    """Columns aligned: text left, numbers right."""
    if not rows:
        return []
    widths = [max(len(str(r[k])) for r in (head, *rows)) for k in range(len(head))]
    numeric = [all(r[k][:1].isdigit() or r[k][:1] in "+-" for r in rows) for k in range(len(head))]
    out = []
    for row in (head, *rows):
        cells = (str(c).rjust(w) if right else str(c).ljust(w) for c, w, right in zip(row, widths, numeric, strict=True))
        out.append(indent + "  ".join(cells).rstrip())
    return out


def us(ns: float) -> str:
    """A time in microseconds."""
    return f"{ns / 1000:.3f} us"


def size(count: int) -> str:
    """Bytes with a binary unit."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"
