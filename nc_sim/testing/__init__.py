"""For property-based tests of programs: what to draw, and what must hold of every Result. See docs/testing.md.

Strategies need the package hypothesis (extra `testing`); the invariants, bounds, `inputs` and `explicit` do not.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..isa.errors import missing_extra
from .accounts import check_accounts
from .arrays import inputs
from .bounds import EngineTime, engine_times, rooflines, serial_sum_ns
from .dependencies import longest_path
from .invariants import (
    check_all,
    check_bytes,
    check_dependencies,
    check_engine_times,
    check_engines_agree,
    check_probes_change_nothing,
    check_rooflines,
    check_serial_sum,
    check_times,
    check_utilisation,
    check_values,
)
from .speed import anomalies_ns, check_not_slower
from .written_out import explicit

if TYPE_CHECKING:
    from .automatic import programs
    from .operands import instructions, unchecked_instructions, views
    from .overrides import what_ifs
    from .semaphores import explicit_programs
    from .unrunnable import drafts

STRATEGIES = {  # name to module: loaded when asked for
    "drafts": "unrunnable",
    "explicit_programs": "semaphores",
    "instructions": "operands",
    "programs": "automatic",
    "unchecked_instructions": "operands",
    "views": "operands",
    "what_ifs": "overrides",
}

__all__ = [
    "EngineTime",
    "anomalies_ns",
    "check_accounts",
    "check_all",
    "check_bytes",
    "check_dependencies",
    "check_engine_times",
    "check_engines_agree",
    "check_not_slower",
    "check_probes_change_nothing",
    "check_rooflines",
    "check_serial_sum",
    "check_times",
    "check_utilisation",
    "check_values",
    "drafts",
    "engine_times",
    "explicit",
    "explicit_programs",
    "inputs",
    "instructions",
    "longest_path",
    "programs",
    "rooflines",
    "serial_sum_ns",
    "unchecked_instructions",
    "views",
    "what_ifs",
]


def __getattr__(name: str) -> Any:
    if name not in STRATEGIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f".{STRATEGIES[name]}", __name__)
    except ModuleNotFoundError as e:
        if e.name != "hypothesis":
            raise
        raise missing_extra(f"nc_sim.testing.{name}", "the package hypothesis is not installed", "testing") from None
    found = getattr(module, name)
    globals()[name] = found
    return found
