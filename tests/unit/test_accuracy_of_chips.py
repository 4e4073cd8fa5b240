"""What nc-sim says of measured single instructions, packets and delays on chips other than trn2."""

from __future__ import annotations

import pytest

from nc_sim import chip
from nc_sim.accuracy import compare, entries
from nc_sim.isa import REGISTRY

OTHERS = [name for name in entries.names() if name != "trn2"]


@pytest.mark.parametrize("name", OTHERS)
def test_an_entry_says_what_was_measured_and_where_and_is_simulated_or_excluded_with_the_reason(name: str) -> None:
    data = entries.load(name)
    for e in data.entries:
        assert data.sources[e.source].strip()
        assert e.what
        assert e.place
        assert e.runs == (e.call in REGISTRY), (e.id, e.excluded_because)
        assert e.value is not None or not e.runs


@pytest.mark.parametrize("name", ["inf2", "trn1"])
def test_single_instructions_packets_and_delays_of_neuroncore_v2_are_within_5_percent_in_the_mean_and_every_larger_miss_is_explained(
    name: str,
) -> None:
    compared = compare.compare(entries.load(name), chip.load(name))
    whole = compare.figures(compare.judged(compared))
    assert whole is not None
    assert whole.mape <= 5
    assert compare.unexplained(compared) == []


def test_what_is_known_of_trn3_is_means_alone_and_reported_apart() -> None:
    compared = compare.compare(entries.load("trn3"), chip.load("trn3"))
    assert compare.judged(compared) == []
    assert compare.summary(compared, chip.load("trn3"))["mape_percent"] is None
    assert compare.unexplained(compared) == []
