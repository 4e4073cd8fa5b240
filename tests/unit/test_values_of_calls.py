"""Every call of nki.isa on every chip that has it, against a formula of its own (tests/calls.py), at 1, 127, 128 and the largest size."""

from __future__ import annotations

from pathlib import Path

import pytest

from calls import CALLS, CHIPS, ELSEWHERE, MADE_BY, WITHOUT_VALUES, numbers
from nc_sim import Unsupported
from nc_sim.isa import REGISTRY
from samples import Sample, run


def test_every_registered_instruction_has_an_entry() -> None:
    assert set(REGISTRY) == {*CALLS, *ELSEWHERE, *MADE_BY, *WITHOUT_VALUES}
    assert set(MADE_BY.values()) <= set(CALLS)
    for file, word in ELSEWHERE.values():
        assert word in (Path(__file__).parent / file).read_text()


@pytest.mark.parametrize("call", CALLS)
def test_sizes_1_127_128_are_among_those_of_each_call(call: str) -> None:
    sizes = [s for c in CALLS[call] for s in c.sizes]
    if not call.startswith("register"):
        assert any(128 in s for s in sizes)
        assert any(127 in s for s in sizes) or call == "quantize_mx"  # whose sizes are multiples of 32 and 4
        assert min(min(s) for s in sizes) in (1, 8, 32, 4)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_computes_its_formula(call: str, chip: str) -> None:
    samples: list[Sample] = []
    for entry in CALLS[call]:
        if CHIPS[chip] < entry.since:
            continue
        seed = numbers(call)
        samples += [entry.make(p, n, k, seed) for k, (p, n) in enumerate((*entry.sizes, *entry.largest))]
    if samples:
        run(samples, chip)
        return
    entry = CALLS[call][0]
    with pytest.raises(Unsupported, match=f"NeuronCore-v{entry.since}"):
        run([entry.make(*entry.sizes[0], 0, numbers(call))], chip)
