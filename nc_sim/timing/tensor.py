"""TensorEngine: weight loads hidden behind or exposed before a product, streaming at the throttled rate.

    LDWEIGHTS start = max(dispatch + handover, start of the previous stream + next_load)
    MATMUL start    = max(dispatch + handover, its LDWEIGHTS start + load_to_matmul, end of the previous stream + gap)
    stream start    = max(MATMUL start, weights loaded + loaded_to_stream); the stream integrates the throttled rate
    MATMUL end      = end of the stream + result latency

Source: replay of trn2 instruction streams (docs/timing.md, TensorEngine).
"""

from __future__ import annotations

import math
from fractions import Fraction

from ..chip import Reader
from ..isa import Engine, Work
from ..table import Throttle
from .cost import Cost

FULL_COLUMNS = 128  # the measured weight loads are of 128 columns; fewer load in proportion (documented: M / 4 cycles)
RATES = ("full", "gated")

States = tuple[int, int, int, int]


def weights(work: Work, chip: Reader) -> Cost:
    """LDWEIGHTS: loading by state (gated, behind), and what a profile shows beyond it."""
    c, kind = chip.chip, f"tensor.{work.kind}"
    share = Fraction(work.columns, FULL_COLUMNS)
    loads, beyond = [], []
    for rate in RATES:
        shown = chip(f"{kind}.load_shown_{rate}_ns")
        for load in (chip(f"{kind}.load_idle_{rate}_ns"), chip(f"{kind}.load_behind_{rate}_ns")):
            loads.append(max(1, c.ticks(load * share)))
            beyond.append(max(1, c.ticks(shown - min(load, shown))))
    issue = max(1, c.ticks(chip("tensor.load_to_matmul_ns")))
    return Cost((issue,) * 4, _four(beyond), _four(loads))


def stream(work: Work, chip: Reader) -> tuple[Cost, int, States]:
    """MATMUL: its cost (issue until the next weight load), throttle units, delay from stream end to the next MATMUL."""
    c = chip.chip
    cycles = work.elements * chip(f"tensor.{work.kind}.cycles_per_row")
    if work.tiled:
        cycles *= chip("tensor.tile_ratio")
    if (slowed := c.numbers["tensor.activity_throttle"].value) != 1:  # off counts as unused
        cycles *= slowed
        chip("tensor.activity_throttle")
    cycle = chip.cycle_ticks(Engine.TENSOR)
    units = math.ceil(cycles * cycle * throttle_scale(chip))
    # Rule of thumb of the public cost tables: products start at least `min_interval` cycles apart.
    missing = max(Fraction(0), chip("tensor.min_interval_cycles") - cycles) * cycle / c.ticks_per_ns
    latency, gap = [], []
    for rate, slow in (("full", Fraction(1)), ("gated", 1 / _ratio(chip))):
        latency += [max(1, c.ticks(chip(f"tensor.result_latency_{rate}_ns")))] * 2
        gap += [c.ticks(max(chip(f"tensor.stream_gap_{rate}_ns"), missing * slow))] * 2
    issue = max(1, c.ticks(chip("tensor.next_load_ns")))
    return Cost((issue,) * 4, _four(latency)), units, _four(gap)


def throttle(chip: Reader, phase_ns: Fraction) -> Throttle:
    """The clock gate as the table carries it, with its windows at a phase against time zero."""
    if chip("tensor.gate.kind") == "none":
        return Throttle(0, 0, 1, 1, 0, False)
    scale = throttle_scale(chip)
    if chip("tensor.gate.kind") == "streaks":
        limit, idle = (chip(f"tensor.gate.{k}_cycles") * chip.cycle_ticks(Engine.SYNC) for k in ("full", "idle"))
        return Throttle(0, 0, scale, int(_ratio(chip) * scale), 0, False, limit, idle)
    starts_gated = chip("tensor.gate.initial") == "gated"
    window = chip("tensor.gate.window_cycles") * chip.cycle_ticks(Engine.SYNC)
    threshold = math.ceil(chip("tensor.gate.threshold") * window * scale)
    gated = _ratio(chip) * scale
    return Throttle(window, chip.chip.ticks(phase_ns) % window, scale, int(gated), threshold, starts_gated)


def throttle_scale(chip: Reader) -> int:
    """Units per tick at full rate: the smallest that makes the gated rate whole too."""
    return _ratio(chip).denominator


def _ratio(chip: Reader) -> Fraction:
    ratio: Fraction = Fraction(1) if chip("tensor.gate.kind") == "none" else chip("tensor.gate.ratio")
    return ratio


def _four(values: list[int]) -> States:
    a, b, c, d = values
    return a, b, c, d
