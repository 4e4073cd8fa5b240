"""Every workload agrees with its own reference, and its times are as reviewed.

`python tests/golden/test_workloads.py` writes the times anew.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nc_sim import Unsupported, chip, simulate, workloads

GOLDEN = Path(__file__).parent
SIZES: dict[str, list[dict[str, Any]]] = {
    "rmsnorm": [{}, {"rows": 1, "cols": 1}, {"rows": 127}, {"rows": 129, "cols": 513}, {"rows": 4, "cols": 512, "dtype": "float32"}],
    "softmax": [{}, {"rows": 1, "cols": 1}, {"rows": 129, "cols": 511}],
    "matmul": [{}, {"k": 1, "m": 1, "n": 1}, {"k": 129, "m": 127, "n": 513}, {"dtype": "float32"}],
    "attention": [{}, {"s": 128, "d": 64}, {"s": 257, "d": 128}],
    "transformer": [
        {},
        {"s": 1, "d": 14, "heads": 7, "ff": 1},
        {"s": 127, "d": 96, "heads": 3, "ff": 130},
        {"s": 129, "d": 130, "heads": 2, "ff": 257, "layers": 2},
        {"s": 513, "d": 64, "heads": 1, "ff": 513},
    ],
    "pipeline": [{}, {"tiles": 1, "width": 1}],
}
CASES = [(name, size) for name, sizes in SIZES.items() for size in sizes]


def line(on: str, name: str, size: dict[str, Any]) -> str:
    """Instructions, length of the body, and a digest of every start and finish; or why a chip cannot run it."""
    words = " ".join(f"{k}={v}" for k, v in size.items())
    try:
        r = simulate(workloads.load(name).build(**size), on, values=False)
    except Unsupported as e:
        return f"{name} {words}: Unsupported, {e}".replace(" :", ":")
    digest = hashlib.sha256(r.timeline.start.tobytes() + r.timeline.finish.tobytes()).hexdigest()[:16]
    return f"{name} {words}: {len(r.steps)} instructions, {r.duration_ns:.3f} ns, {digest}".replace(" :", ":")


def runs(on: str, name: str) -> bool:
    """Whether a chip has what a workload asks for by name: pipeline asks for descriptors made in hardware."""
    return name != "pipeline" or chip.load(on).reader().has("dma.hardware.available")


def test_the_sizes_cover_every_workload() -> None:
    assert set(SIZES) == set(workloads.NAMES)


@pytest.mark.parametrize(("name", "size"), CASES)
def test_a_workload_agrees_with_its_reference(name: str, size: dict[str, Any]) -> None:
    module = workloads.load(name)
    program = module.build(**size)
    given = module.inputs(program)
    outputs = simulate(program, inputs=given).outputs
    for output, wanted in module.reference(given).items():
        error = np.abs(outputs[output].astype(np.float64) - wanted) / np.maximum(np.abs(wanted), 1)
        assert error.max() <= module.TOLERANCE


@pytest.mark.parametrize(("on", "name"), [(c, n) for c in chip.names() if c != "trn2" for n in workloads.NAMES if runs(c, n)])
def test_a_workload_agrees_with_its_reference_on_every_chip_that_has_what_it_asks_for(on: str, name: str) -> None:
    module = workloads.load(name)
    program = module.build()
    given = module.inputs(program)
    outputs = simulate(program, on, inputs=given).outputs
    for output, wanted in module.reference(given).items():
        error = np.abs(outputs[output].astype(np.float64) - wanted) / np.maximum(np.abs(wanted), 1)
        assert error.max() <= module.TOLERANCE


@pytest.mark.parametrize(("on", "name", "size"), [(c, *case) for c in chip.names() for case in CASES])
def test_a_workload_takes_the_reviewed_time_or_is_refused_with_the_reason(on: str, name: str, size: dict[str, Any]) -> None:
    found = line(on, name, size)
    assert found in (GOLDEN / f"workloads_{on}.txt").read_text().splitlines()
    assert runs(on, name) == ("Unsupported" not in found)


if __name__ == "__main__":
    for on in chip.names():
        (GOLDEN / f"workloads_{on}.txt").write_text("".join(line(on, *case) + "\n" for case in CASES))
