"""Whole kernels measured by others beside programs of our own from their description. Reported, never fitted.

`kernels.toml` holds `sources` and a list `kernel`. A kernel's `build` is a function of bodies.py and `sizes` its
arguments. A kernel too long to simulate has `grow = { size, low, high, full }`: two runs, and a line through them. Its
`variants` are the same kernel with other sizes, other chip numbers or without a mechanism: they show what makes a
difference. A chip without a file leaves its kernels waiting.
"""

from __future__ import annotations

import math
import statistics
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import attrs

from .. import chip as chips
from ..chip import UNCERTAIN, Chip
from ..isa.errors import ProgramError
from ..mechanisms import without
from ..result import Result
from ..schema import SCHEMA
from ..simulate import simulate
from .bodies import BODIES
from .compare import LIMIT_PERCENT, STEP

FILE = Path(__file__).with_name("kernels.toml")
# what is compared: the body alone, what the benchmark says, what a profile calls total_time, or bytes over the body
QUANTITIES = ("body", "benchmark", "total", "bandwidth")
UNITS = {"ns": 1, "us": 1000, "ms": 1_000_000, "GB/s": 1}
NEAR_PERCENT = 5
UNEXPLAINED = "Unexplained"  # how the line of a kernel begins whose difference no variant shows


@attrs.frozen(kw_only=True)
class Variant:
    """The same kernel, one thing changed."""

    name: str
    sizes: Mapping[str, Any] = attrs.field(factory=dict)
    what_if: Mapping[str, Any] = attrs.field(factory=dict)
    without: Sequence[str] = ()


@attrs.frozen(kw_only=True)
class Kernel:
    """One measured kernel."""

    id: str
    chip: str
    what: str
    quantity: str = "body"
    value: float
    unit: str
    stat: str = ""
    source: str
    place: str
    assumes: str = ""  # what the description does not say
    build: str = ""
    sizes: Mapping[str, Any] = attrs.field(factory=dict)
    grow: Mapping[str, Any] = attrs.field(factory=dict)
    bytes: int = 0
    variants: tuple[Variant, ...] = ()
    explained: str = ""
    excluded_because: str = ""


@attrs.frozen
class Kernels:
    """The measured kernels of all chips."""

    sources: Mapping[str, str]
    kernels: tuple[Kernel, ...]


@attrs.frozen
class Predicted:
    """A kernel with its prediction in its own unit; None where it is excluded."""

    kernel: Kernel
    simulated: float | None = None
    low: float | None = None  # over the clock gate's phases, where it matters
    high: float | None = None
    assumed: tuple[str, ...] = ()
    assumed_share: float = 0.0
    variants: Mapping[str, float] = attrs.field(factory=dict)
    excluded_because: str = ""

    @property
    def error_percent(self) -> float | None:
        """(simulated - measured) / measured."""
        return None if self.simulated is None else _error(self.simulated, self.kernel)

    @property
    def off(self) -> float:
        """The size of the error in percent; 0 where there is none."""
        return round(abs(self.error_percent or 0.0), 9)

    def record(self) -> dict[str, Any]:
        """As plain values, for `--json`."""
        k = self.kernel

        def plain(value: float | None, digits: int = 3) -> float | None:
            return None if value is None else round(value, digits)

        return {
            "id": k.id,
            "chip": k.chip,
            "what": k.what,
            "quantity": k.quantity,
            "measured": k.value,
            "simulated": plain(self.simulated),
            "unit": k.unit,
            "error_percent": plain(self.error_percent),
            "phases": None if self.low is None else [plain(self.low), plain(self.high)],
            "assumed": list(self.assumed),
            "assumed_percent": plain(100 * self.assumed_share),
            "variants": [
                {"name": name, "simulated": plain(value), "error_percent": plain(_error(value, k))} for name, value in self.variants.items()
            ],
            "assumes": k.assumes or None,
            "source": k.source,
            "explained": k.explained or None,
            "excluded_because": self.excluded_because or None,
        }


def _error(simulated: float, kernel: Kernel) -> float:
    return 100 * (simulated / kernel.value - 1)


# ---- the data


def load() -> Kernels:
    """The kernels that ship with nc-sim."""
    return parse(FILE.read_text(encoding="utf-8"), f"accuracy/{FILE.name}")


def parse(text: str, where: str) -> Kernels:
    """Kernels from the text of a file; the first fault is one error that names the kernel."""
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as e:
        raise ProgramError(where, f"not TOML: {e}", "a file of kernels") from None
    if set(data) != {"sources", "kernel"} or not isinstance(data["sources"], dict) or not isinstance(data["kernel"], list):
        raise ProgramError(where, f"keys {', '.join(sorted(data)) or 'none'}", "a table sources and a list kernel")
    kernels = tuple(_kernel(raw, data["sources"], f"{where}: kernel {k + 1}") for k, raw in enumerate(data["kernel"]))
    seen: set[str] = set()
    for kernel in kernels:
        if kernel.id in seen:
            raise ProgramError(f"{where}: {kernel.id}", "the id is there twice", "an id of its own")
        seen.add(kernel.id)
    return Kernels(data["sources"], kernels)


def _kernel(raw: Mapping[str, Any], sources: Mapping[str, str], where: str) -> Kernel:
    where = f"{where} ({raw.get('id', 'no id')})"
    changes = raw.get("variants", [])
    try:
        kernel = Kernel(**{**raw, "variants": tuple(Variant(**v) for v in changes)})
    except TypeError as e:
        names = ", ".join(a.name for a in attrs.fields(Kernel))
        raise ProgramError(where, str(e).split(") ")[-1], f"some of {names}") from None
    if kernel.source not in sources:
        raise ProgramError(where, f"source {kernel.source!r}", f"a code of [sources]: {', '.join(sources)}")
    for key, known in (("quantity", QUANTITIES), ("unit", tuple(UNITS))):
        if getattr(kernel, key) not in known:
            raise ProgramError(where, f"{key} {getattr(kernel, key)!r}", f"one of {', '.join(known)}")
    if not isinstance(kernel.value, int | float) or not math.isfinite(kernel.value) or kernel.value <= 0:
        raise ProgramError(where, f"value {kernel.value!r:.80}", "a number above 0")
    if not kernel.excluded_because and kernel.build not in BODIES:
        raise ProgramError(where, f"build {kernel.build!r}", f"one of {', '.join(BODIES)}, or excluded_because = ...")
    if (kernel.quantity == "bandwidth") != bool(kernel.bytes):
        raise ProgramError(where, f"{kernel.quantity} of {kernel.bytes} bytes", "a bandwidth has bytes, no other quantity has")
    if kernel.grow and set(kernel.grow) != {"size", "low", "high", "full"}:
        raise ProgramError(where, f"grow has {', '.join(kernel.grow)}", "size, low, high and full")
    return kernel


# ---- simulating


def predict(
    of: Iterable[Kernel], chip: str | None = None, changes: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Predicted, ...]:  # fmt: skip
    """Simulate every kernel whose chip has a file, in their order; of one chip only, where it is named."""
    chosen = [k for k in of if chip in (None, k.chip)]
    out = []
    for n, kernel in enumerate(chosen):
        if progress is not None:
            progress(n, len(chosen))
        out.append(_predict(kernel, changes or {}))
    return tuple(out)


def _predict(kernel: Kernel, changes: Mapping[str, Any]) -> Predicted:
    if kernel.excluded_because:
        return Predicted(kernel, excluded_because=kernel.excluded_because)
    if kernel.chip not in chips.names():
        return Predicted(kernel, excluded_because=f"waits for a chip file of {kernel.chip}")
    chip = chips.load(kernel.chip).what_if(changes)
    body, result = _body(kernel, chip, {})
    reader = _used(result, chip)
    lowered = {k: chip.numbers[k].value * (1 - STEP) for k in reader}
    share = (body - _body(kernel, chip.what_if(lowered), {})[0]) / body / float(STEP) if lowered else 0.0
    phases = sorted(_body(kernel, chip, {}, phase_range=True)[2]) if result.table.work.any() else []
    ends = sorted(_quantity(kernel, chip, p) for p in phases)
    variants = {
        v.name: _quantity(kernel, other := chip.what_if(without(v.without)).what_if(v.what_if), _body(kernel, other, v.sizes)[0])
        for v in kernel.variants
    }
    low, high = ends or (None, None)
    value, part = _quantity(kernel, chip, body), min(1.0, max(0.0, share))
    return Predicted(kernel, value, low, high, tuple(reader), part, variants)


def _used(result: Result, chip: Chip) -> list[str]:
    """Numbers without a source for this chip that the run rests on."""
    return [k for k in result.used if chip.numbers[k].status in UNCERTAIN and SCHEMA[k].kind in ("number", "positive", "share")]


def _body(kernel: Kernel, chip: Chip, sizes: Mapping[str, Any], phase_range: bool = False) -> Any:
    """Length of the body in ns, the longest run, and with `phase_range` the shortest and the longest body."""
    wanted, grow = {**kernel.sizes, **sizes}, kernel.grow
    runs = [(wanted, None)] if not grow else [({**wanted, grow["size"]: grow[k]}, grow[k]) for k in ("low", "high")]
    results = [simulate(BODIES[kernel.build](**w), chip, values=False, phase_range=phase_range) for w, _ in runs]
    lengths = [r.duration_ns for r in results]
    ranges = [r.phase_range_ns or (r.duration_ns,) * 2 for r in results]
    if not grow:
        return (lengths[0], results[0], ranges[0]) if phase_range else (lengths[0], results[0])
    more = (Fraction(str(grow["full"])) - grow["low"]) / (grow["high"] - grow["low"])

    def line(low: float, high: float) -> float:
        return low + (high - low) * float(more)

    body = line(*lengths)
    # the range of a part says little of the whole: its length against itself, as far as the phase moves the longer run
    spread = [body * end / lengths[1] for end in ranges[1]]
    return (body, results[1], spread) if phase_range else (body, results[1])


def _quantity(kernel: Kernel, chip: Chip, body: float) -> float:
    """The measured quantity in its unit."""
    fixed = {"benchmark": ("benchmark",), "total": ("prologue", "epilogue")}.get(kernel.quantity, ())
    if kernel.quantity == "bandwidth":
        return kernel.bytes / body
    return (body + sum(float(chip.numbers[f"program.{f}_ns"].value) for f in fixed)) / UNITS[kernel.unit]


# ---- what they say together


def unexplained(predicted: Iterable[Predicted]) -> list[Predicted]:
    """Kernels off by more than the limit without a line that says why."""
    return [p for p in predicted if p.off > LIMIT_PERCENT and not p.kernel.explained]


def summary(predicted: Sequence[Predicted], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Everything as plain values, for `--json`."""
    ran = [p for p in predicted if p.simulated is not None]
    return {
        "mape_percent": round(statistics.mean(p.off for p in ran), 3) if ran else None,
        "median_percent": round(statistics.median(p.off for p in ran), 3) if ran else None,
        "within_5": sum(p.off <= NEAR_PERCENT for p in ran),
        "within_10": sum(p.off <= LIMIT_PERCENT for p in ran),
        "simulated": len(ran),
        "excluded": len(predicted) - len(ran),
        "unexplained": [p.kernel.id for p in unexplained(predicted)],
        "what_if": {k: str(v) for k, v in changes.items()},
        "entries": [p.record() for p in predicted],
    }
