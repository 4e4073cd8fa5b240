"""The comparison with published measurements, as text and as docs/accuracy.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import chip as chips
from ..accuracy import compare, entries, replays
from ..accuracy.compare import Compared, Figures
from ..accuracy.entries import CLASSES, JUDGED, ROLES
from ..chip import Chip
from ..mechanisms import MECHANISMS
from . import kernels, markdown, text

TARGETS = {"trn2": 3}  # percent, by chip
TARGET_PERCENT = 5  # of the others
WORST = 10


def comparison(compared: Sequence[Compared], chip: Chip, worst: int) -> str:
    """By class, then the entries furthest off."""
    rows = [_figures(name, of) for name, of in _rows(compared)]
    left_out = compare.excluded(compared)
    lines = [
        f"{chip.name}: {len(compared)} published measurements, {len(compared) - len(left_out)} simulated, {len(left_out)} excluded",
        *text.extrapolated(chip.extrapolated, "  "),
        *text.table(HEAD, rows, indent="  "),
    ]
    lines += text.changed(chip.overrides)
    if worst:
        shown = [(*_numbers(c), c.entry.group, c.entry.id, c.entry.explained) for c in compare.worst(compared, worst)]
        lines += [
            "",
            f"the worst {len(shown)}:",
            *text.table(("error", "measured", "simulated", "class", "entry", "why"), shown, indent="  "),
        ]
    for c in compare.unexplained(compared):
        lines.append(f"not explained: {c.entry.id} {c.error_percent:+.1f} %")
    return "\n".join(lines)


HEAD = ("class", "entries", "mean |error|", "median", "within 5 %", "within 10 %", "on assumed numbers")


def _rows(compared: Sequence[Compared]) -> list[tuple[str, Sequence[Compared]]]:
    return [*compare.by_class(compared).items(), (", ".join(JUDGED), compare.judged(compared))]


def _figures(name: str, of: Sequence[Compared]) -> tuple[str, ...]:
    f: Figures | None = compare.figures(of)
    if f is None:
        return (name, "0", *("-",) * 5)
    return name, str(f.count), f"{f.mape:.2f} %", f"{f.median:.2f} %", f"{f.within_5:.0f} %", f"{f.within_10:.0f} %", f"{f.assumed:.2f} %"


def _numbers(c: Compared) -> tuple[str, str, str]:
    return f"{c.error_percent:+.1f} %", f"{c.entry.value:g}", f"{c.simulated:.1f}"


# ---- the page


def page() -> str:
    """docs/accuracy.md: the data in the project simulated anew, and the replays as they were kept."""
    lines = ["# Accuracy", "", markdown.HEAD, ""]
    lines += [
        "What others measured on hardware and published, beside what nc-sim says of the same thing. Two parts: single",
        "measurements and whole kernels, whose data is in the project and which are simulated anew whenever this page is made,",
        "and replayed streams, whose traces are not.",
    ]
    for name in entries.names():
        chip = chips.load(name)
        lines += _measurements(compare.compare(entries.load(name), chip), chip)
    return "\n".join([*lines, *kernels.section(), *_replays(replays.kept())]) + "\n"


def _measurements(compared: Sequence[Compared], chip: Chip) -> list[str]:
    data, left_out = entries.load(chip.name), compare.excluded(compared)
    whole = compare.figures(compare.judged(compared))
    lines = ["", f"## {chip.name}: single measurements", ""]
    lines += [f"**Extrapolated:** {chip.extrapolated}.", ""] if chip.extrapolated else []
    lines += [
        f"`nc-sim accuracy instructions --chip {chip.name}` simulates one small program for every entry of",
        f"`nc_sim/accuracy/{chip.name}.toml` and takes the quantity from its timeline, as it was taken from the hardware's.",
        "Error: (simulated - measured) / measured. A linear fit of probes stands here by its two ends.",
        "",
        "**What these numbers are not.** An entry marked `fitted` comes from the measurements that the chip file's numbers were",
        "taken from: it shows that file, formulas and engine are consistent, and predicts nothing. An entry marked `check` was",
        "not used for a number it rests on, but most are the same few instructions measured again by others, so they show little",
        "more than that two measurements agree. No number is taken from a whole kernel, and none was changed for this page.",
        "",
        f"{len(compared)} entries, {len(compared) - len(left_out)} simulated, {len(left_out)} excluded (listed below).",
        "",
    ]
    lines += markdown.table(HEAD, [_figures(name, of) for name, of in _rows(compared)])
    if whole is not None and not chip.extrapolated:
        target = TARGETS.get(chip.name, TARGET_PERCENT)
        met = "met" if whole.mape <= target else "missed"
        lines += ["", f"Target for the last row: a mean of at most {target} %. It is {met}: {whole.mape:.2f} %.", *_weight(compared)]
    lines += ["", "On assumed numbers: the part of a prediction that is proportional to numbers no source gives for this chip, found by"]
    lines += ["lowering them by an eighth."]
    lines += ["", f"### {chip.name}: by source and role", ""]
    ran = [c for c in compared if c.simulated is not None]
    groups = [(f"{s}, {r}", [c for c in ran if c.entry.source == s and c.entry.role == r]) for s in data.sources for r in ROLES]
    lines += markdown.table(("source, role", *HEAD[1:]), [_figures(name, of) for name, of in groups if of])
    lines += ["", f"### {chip.name}: the worst {WORST}", ""]
    worst_rows = [(f"`{c.entry.id}`", c.entry.group, *_numbers(c), c.entry.explained) for c in compare.worst(compared, WORST)]
    lines += markdown.table(("entry", "class", "error", "measured ns", "simulated ns", "why"), worst_rows)
    lines += ["", f"### {chip.name}: ranks", ""]
    lines += ["Rank correlation (Spearman) within entries of one call on one engine, where there are three or more: whether what is"]
    lines += ["slower on hardware is slower here.", ""]
    found = compare.families(compared)
    lines += markdown.table(("family", "entries", "correlation"), [(name, str(n), f"{r:.3f}") for name, (n, r) in found.items()])
    if whole is not None:
        lines += _mechanisms(compared, chip, whole.mape)
    for group in CLASSES:
        lines += ["", f"### {chip.name}: {group}", ""]
        lines += markdown.table(
            ("entry", "what", "kind", "measured ns", "simulated ns", "error", "source", "role", "assumed"),
            [_entry(c) for c in compared if c.entry.group == group and c.simulated is not None],
        )
    explained = [c for c in ran if c.entry.explained]
    lines += ["", f"### {chip.name}: explanations", "", f"Every entry off by more than {compare.LIMIT_PERCENT} % has one.", ""]
    lines += markdown.table(("entry", "error", "why"), [(f"`{c.entry.id}`", _numbers(c)[0], c.entry.explained) for c in explained])
    lines += ["", f"### {chip.name}: excluded", ""]
    reasons = list(dict.fromkeys(c.entry.excluded_because for c in left_out))
    counts = [(str(sum(c.entry.excluded_because == why for c in left_out)), why) for why in reasons]
    lines += markdown.table(("entries", "why"), counts)
    lines += [""]
    lines += markdown.table(
        ("entry", "what", "class", "measured", "source"),
        [(f"`{c.entry.id}`", c.entry.what, c.entry.group, _value(c), c.entry.source) for c in left_out],
    )
    lines += ["", f"### {chip.name}: sources", ""]
    return lines + markdown.table(("code", "what it is"), [(f"`{code}`", what) for code, what in data.sources.items()])


def _mechanisms(compared: Sequence[Compared], chip: Chip, mape: float) -> list[str]:
    lines = ["", f"### {chip.name}: without each mechanism", ""]
    lines += ["Single instructions, delays and packets with one mechanism switched off (`nc-sim accuracy instructions --without NAME`):"]
    lines += ["how many predictions move, how many cannot be made then, and the mean of the rest.", ""]
    return lines + markdown.table(
        ("mechanism", "what it is", "moved", "lost", "mean |error|", "change"),
        [
            (f"`{name}`", MECHANISMS[name].doc, str(a.moved), str(a.lost), f"{a.mape:.2f} %", f"{a.mape - mape:+.2f}")
            for name, a in compare.ablation(compared, chip).items()
        ],
    )


def _weight(compared: Sequence[Compared]) -> list[str]:
    """How much of the mean the two entries furthest off are."""
    two = compare.worst(compare.judged(compared), 2)
    rest = compare.figures([c for c in compare.judged(compared) if c not in two])
    if rest is None:
        return []
    names = " and ".join(f"`{c.entry.id}` ({c.error_percent:+.0f} %)" for c in two)
    return [f"Without {names} it would be {rest.mape:.2f} %; they are counted."]


def _entry(c: Compared) -> tuple[str, ...]:
    e, (error, value, simulated) = c.entry, _numbers(c)
    assumed = f"{100 * c.assumed_share:.1f} %: {markdown.code(c.assumed)}" if c.assumed else ""
    place = f"{e.source}: {e.place}" + (f", {e.stat}" if e.stat else "")
    return f"`{e.id}`", e.what, e.kind, value, simulated, error, place, e.role, assumed


def _value(c: Compared) -> str:
    return "" if c.entry.value is None else f"{c.entry.value:g} {c.entry.unit}"


def _replays(data: dict[str, Any]) -> list[str]:
    runs = data["runs"]
    lines = ["", "## Replayed streams", ""]
    lines += [
        "Kernel bodies of public trn2 profiles, simulated instruction by instruction (`nc-sim replay`, docs/timing.md). The traces",
        "are not in the project: `python -m nc_sim.report.docs --traces FOLDER docs` replays them anew, otherwise this part stays",
        f"as it was given by commit `{data['commit']}`.",
        "",
        "Most constants were fitted on these very streams, so this too shows consistency. The clock gate's phase is read from the",
        "profile. With DMA from the trace, stretches that wait for DMA are right by construction. The same program profiled twice",
        "on hardware differs by about 2 %.",
        "",
    ]
    lines += markdown.table(
        ("trace", "DMA", "instructions", "measured ns", "simulated ns", "body", "starts, median", "starts, p95", "on assumed numbers"),
        [
            (
                r["trace"], r["dma"], f"{r['instructions']}", f"{r['measured_ns']}", f"{r['simulated_ns']:.0f}",
                f"{r['error_percent']:+.2f} %",
                f"{r['median_start_error_percent']:.2f} %", f"{r['p95_start_error_percent']:.2f} %", f"{r['assumed_percent']:.2f} %",
            )
            for r in runs
        ],
    )  # fmt: skip
    for dma in dict.fromkeys(r["dma"] for r in runs):
        off = [abs(r["error_percent"]) for r in runs if r["dma"] == dma]
        shares = [f"{sum(x <= limit for x in off)} of {len(off)} within {limit} %" for limit in (5, 10)]
        lines += ["", f"Bodies, DMA {dma}: mean |error| {sum(off) / len(off):.2f} %, {', '.join(shares)}."]
    lines += _ablation([r for r in runs if "without_ns" in r])
    lines += ["", "### Durations by opcode, DMA from the trace", ""]
    lines += markdown.table(
        ("trace", "opcode", "count", "measured ns, median", "simulated ns, median", "|error|, median"),
        [
            (
                r["trace"], opcode, f"{v['count']}", f"{v['measured_median_ns']:g}", f"{v['simulated_median_ns']:.1f}",
                f"{v['median_duration_error_percent']:.1f} %",
            )
            for r in runs for opcode, v in r.get("opcodes", {}).items()
        ],
    )  # fmt: skip
    lines += ["", "### Inputs", ""]
    inputs = dict(sorted({name: digest for r in runs for name, digest in r["inputs"].items()}.items()))
    return lines + markdown.table(("file", "SHA-256"), [(f"`{name}`", f"`{digest}`") for name, digest in inputs.items()])


def _ablation(runs: list[dict[str, Any]]) -> list[str]:
    """Bodies without each mechanism, and over the phases of the clock gate."""
    lines = ["", "### Bodies over the clock gate's phases", ""]
    lines += ["The phase is random on hardware and read from the profile above. Body against measured, 16 phases, DMA simulated:", ""]
    lines += markdown.table(
        ("trace", "shortest", "longest"), [(r["trace"], *(f"{_against(r, ns):+.2f} %" for ns in r["phases_ns"])) for r in runs]
    )
    lines += ["", "### Bodies without each mechanism", ""]
    lines += ["One mechanism switched off (`nc-sim replay ... --without NAME`), DMA simulated: error of the body, and the change in ns."]
    lines += ["Read a small row with care: the clock gate decides in windows, and a shift of 100 ns may flip one. A zero says that the"]
    lines += ["streams do not exercise the mechanism, not that it is nothing: the table load is hidden in both.", ""]
    rows = [("none off", "", *(cell for r in runs for cell in (f"{r['error_percent']:+.2f} %", "")))]
    for name in runs[0]["without_ns"] if runs else ():
        cells = [(f"{_against(r, off):+.2f} %", f"{off - r['simulated_ns']:+.0f}") for r in runs for off in (r["without_ns"][name],)]
        rows.append((f"`{name}`", MECHANISMS[name].doc, *(cell for pair in cells for cell in pair)))
    return lines + markdown.table(("mechanism", "what it is", *(h for r in runs for h in (r["trace"], "ns"))), rows)


def _against(run: dict[str, Any], ns: float) -> float:
    return 100 * (ns / float(run["measured_ns"]) - 1)
