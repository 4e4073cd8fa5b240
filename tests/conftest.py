"""Settings shared by all tests: random tests are seeded, and slow machines do not fail them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("nc-sim", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("nc-sim")

REPOSITORY = Path(__file__).parents[1]
TRACES = REPOSITORY.parent / "shared" / "measurements" / "traces"


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of measured hardware traces, which are not part of the repository."""
    if not TRACES.is_dir():
        pytest.skip(f"measured traces are not at {TRACES.relative_to(REPOSITORY.parent)}: nothing to compare with")
    return TRACES
