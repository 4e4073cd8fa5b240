"""The generated documents: every chip number, every instruction, and how near measurements are.

python -m nc_sim.report.docs docs                    writes docs/chips.md, docs/isa.md and docs/accuracy.md
python -m nc_sim.report.docs --check docs            exits 1 and names the first file that is missing or stale
python -m nc_sim.report.docs --traces FOLDER docs    replays the traces of a folder before, and keeps what they give
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import click

from .. import chip as chips
from ..accuracy import replays
from ..chip import STATUSES, UNCERTAIN, Chip
from ..isa import REGISTRY, Instruction, fields_of
from ..isa.fields import ACT, ALU, Choice, Integer, Maybe, Operand, Scalar
from ..isa.ops import ACT_FNS, ALU_OPS
from ..schema import SCHEMA
from . import accuracy, profile_tables, text
from .markdown import HEAD, code, table

UNITS = (
    ("_bytes_per_ns", "B/ns"),
    ("_ns_per_kib", "ns/KiB"),
    ("cycles_per_element", "cycles"),
    ("cycles_per_row", "cycles"),
    ("cycles_per_index", "cycles"),
    ("_cycles", "cycles"),
    ("_bytes", "B"),
    ("_mhz", "MHz"),
    ("_ns", "ns"),
)
SPELLINGS = 'Also taken are the names under "also", with `nl.` or `np.` in front, and the functions of numpy themselves.'
STATUS_MEANS = {
    "measured": "read off hardware",
    "documented": "printed by the vendor",
    "derived": "computed from published numbers or figures",
    "carried-over": "known for another generation only",
    "assumed": "no source; a choice that keeps programs running",
    "fitted": "chosen so that replayed traces agree, without a mechanism behind it",
    "unsupported": "the chip lacks the thing",
    "unspecified": "no source, and no value: an error where it is needed",
}


# ---- chips


def chip_numbers() -> str:
    """docs/chips.md: every key with its meaning, and for every chip its value, how it is known and where from."""
    loaded = [chips.load(name) for name in chips.names()]
    lines = [
        "# Chip numbers",
        "",
        HEAD,
        "",
        "A chip is a file in `nc_sim/chips/` (docs/add-a-chip.md). Its keys are those of `nc_sim/schema.py`.",
    ]
    lines += ["", "## How the numbers are known", ""]
    lines += table(
        ("status", "meaning", *(c.name for c in loaded)),
        [(f"`{s}`", STATUS_MEANS[s], *(str(_count(c, s)) for c in loaded)) for s in STATUSES]
        + [("", "all", *(str(len(c.numbers)) for c in loaded))],
    )
    for data in loaded:
        lines += ["", f"## {data.name} ({data.core})", ""]
        lines += [f"Extrapolated: {data.extrapolated}. Reports on it say so.", ""] if data.extrapolated else []
        lines += [f"One tick of simulated time is {float(1 / data.ticks_per_ns):.6g} ns."]
        lines += ["", f"### {data.name}: numbers no source gives for this chip", ""]
        lines += table(("number", "value", "status", "why"), [_uncertain(data, k) for k in SCHEMA if data.numbers[k].status in UNCERTAIN])
        for group in dict.fromkeys(key.split(".")[0] for key in SCHEMA):
            lines += ["", f"### {data.name}: {group}", ""]
            rows = [_number(data, k) for k in SCHEMA if k.split(".")[0] == group]
            lines += table(("number", "value", "unit", "status", "source", "meaning"), rows)
        lines += ["", f"### {data.name}: sources", ""]
        lines += table(("code", "what it is"), [(f"`{code}`", what) for code, what in data.sources.items()])
    return "\n".join(lines) + "\n"


def _count(data: Chip, status: str) -> int:
    return sum(n.status == status for n in data.numbers.values())


def _uncertain(data: Chip, key: str) -> tuple[str, str, str, str]:
    n = data.numbers[key]
    return f"`{key}`", text.value(n.value), n.status, n.source


def _number(data: Chip, key: str) -> tuple[str, ...]:
    n = data.numbers[key]
    return f"`{key}`", "" if n.value is None else text.value(n.value), unit(key), n.status, n.source, SCHEMA[key].doc


def unit(key: str) -> str:
    """The unit that a key's name ends in; empty for counts, ratios, flags and words."""
    kind = SCHEMA[key].kind
    if kind.partition(":")[0] in ("flag", "word", "sets"):
        return kind.partition(":")[0]
    return next((u for ending, u in UNITS if key.endswith(ending)), "")


# ---- instructions


def instructions() -> str:
    """docs/isa.md: every registered call and machine instruction with its fields."""
    calls = [c for c in REGISTRY.values() if not c.machine]
    machine = [c for c in REGISTRY.values() if c.machine]
    lines = ["# Instructions", "", HEAD, ""]
    lines += [
        "Every instruction is a method of `Program` and takes `engine=`, `wait=` and `update=` beside its own fields.",
        "A call becomes machine instructions before it is timed; a machine instruction is timed as it is.",
        "The first engine is the default, unless the instruction chooses by its operands.",
        "",
    ]
    everything = sorted(REGISTRY.values(), key=lambda c: c.mnemonic)
    lines += table(
        ("instruction", "kind", "engines", "source"),
        [(f"`{c.mnemonic}`", "machine" if c.machine else "call", _engines(c), c.source) for c in everything],
    )
    for title, group in (("Calls", calls), ("Machine instructions", machine)):
        lines += ["", f"## {title}"]
        for cls in sorted(group, key=lambda c: c.mnemonic):
            lines += ["", *_instruction(cls)]
    lines += ["", "## ALU operators", "", f"{SPELLINGS} Reductions take those marked so; bitvec operators take integers.", ""]
    lines += table(
        ("operator", "also", "operands", "kind", "reduces", "since"),
        [
            (
                f"`{o.name}`",
                code(o.aliases),
                "1" if o.unary else "2",
                "bitvec" if o.bitvec else "arithmetic",
                "yes" if o.reduces else "",
                f"NeuronCore-v{o.since}",
            )
            for o in ALU_OPS.values()
        ],
    )
    lines += ["", "## Activation functions", "", SPELLINGS]
    lines += ["Outside its range the hardware's result is invalid; nc-sim computes the formula.", ""]
    lines += table(
        ("function", "also", "valid from", "to"),
        [(f"`{f.name}`", code(f.aliases), f"{f.low:g}", f"{f.high:g}") for f in ACT_FNS.values()],
    )
    return "\n".join(lines) + "\n"


def _instruction(cls: type[Instruction]) -> list[str]:
    since = "".join(f" NeuronCore-v{v} and newer on {e.label}." for e, v in cls.since.items())
    lines = [f"### `{cls.mnemonic}`", "", f"On {_engines(cls)}.{since} Source: {cls.source}.", ""]
    lines += [*_paragraphs(cls.__doc__ or ""), ""]
    defaults = {a.name: a.default for a in attrs.fields(cls)}
    rows = [(f"`{name}`", kind_text(kind), _default(kind, defaults[name])) for name, kind in fields_of(cls).items()]
    return lines + (table(("field", "takes", "default"), rows) if rows else ["It has no fields."])


def _engines(cls: type[Instruction]) -> str:
    return ", ".join(e.label for e in cls.engines)


def _default(kind: Any, default: Any) -> str:
    return "required" if default is attrs.NOTHING else f"`{kind.text(default)}`"


def kind_text(kind: Any) -> str:
    """What a field takes, in words."""
    if kind is ALU:
        return "an [ALU operator](#alu-operators)"
    if kind is ACT:
        return "an [activation function](#activation-functions)"
    words: dict[type, Callable[[Any], str]] = {
        Maybe: lambda k: f"{kind_text(k.kind)}; or none",
        Operand: lambda k: "a tensor, written" if k.writes else "a tensor",
        Choice: lambda k: "one of " + code(k.names),
        Integer: lambda k: f"a whole number, {k.low} to {k.high}",
        Scalar: lambda k: "a number, or a [P, 1] tensor",
    }
    if type(kind) in words:
        return words[type(kind)](kind)
    first = (type(kind).__doc__ or type(kind).__name__).strip().split("\n")[0].rstrip(".")
    return first[0].lower() + first[1:]


def _paragraphs(doc: str) -> list[str]:
    return [line.strip().replace("<", "\\<") for line in doc.strip().split("\n")]


FILES: dict[str, Callable[[], str]] = {
    "chips.md": chip_numbers,
    "isa.md": instructions,
    "accuracy.md": accuracy.page,
    "profile-tables.md": profile_tables.page,
}


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--check", is_flag=True, help="write nothing; exit 1 naming the first stale file")
@click.option("--traces", type=click.Path(path_type=Path), help="folder of hardware traces to replay; without it that part stays as kept")
def main(folder: Path, check: bool, traces: Path | None) -> None:
    """Write the generated documents into FOLDER, or check that they are as the code says."""
    if traces is not None and not check:
        replays.keep(traces)
    for name, make in FILES.items():
        path, wanted = folder / name, make().encode()
        if not check:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(wanted)
        elif not path.is_file() or path.read_bytes() != wanted:
            click.echo(f"{path} is stale; run: python -m nc_sim.report.docs {folder}", err=True)
            raise SystemExit(1)


if __name__ == "__main__":
    main()
