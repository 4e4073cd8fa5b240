"""Every call, with operands of any legal size, place and pattern, computes its formula on each chip that has it."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calls import CALLS, CHIPS, numbers
from samples import Window, run

FEW = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), max_examples=2)
WINDOWS = st.builds(Window, st.integers(1, 3), st.integers(0, 5), st.booleans())


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("call", CALLS)
@FEW
@given(data=st.data())
def test_a_call_with_legal_operands_computes_its_formula(call: str, chip: str, data: st.DataObject) -> None:
    entries = [e for e in CALLS[call] if e.since <= CHIPS[chip] and e.sizes]
    if not entries:
        return  # tests/unit/test_values_of_calls.py has its refusal
    entry = data.draw(st.sampled_from(entries))
    size = entry.legal(data.draw(st.integers(1, 128)), data.draw(st.integers(1, 48)))
    k, seed = data.draw(st.integers(0, 11)), data.draw(st.integers(0, 99))
    run([entry.make(*size, k, numbers(call, seed))], chip, data.draw(WINDOWS))
