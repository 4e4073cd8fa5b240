"""Programs to start from: each builds its instructions, makes inputs and knows its own answer.

A workload is a module with `build(**sizes) -> Program`, `inputs(program, seed) -> arrays`, `reference(inputs) -> arrays`
and `TOLERANCE`, the largest error against the reference that rounding explains.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from ..isa.errors import ProgramError

NAMES = ("rmsnorm", "softmax", "matmul", "attention", "transformer", "pipeline")


def load(name: str) -> ModuleType:
    """The workload module of that name."""
    if name not in NAMES:
        raise ProgramError("workload", f"{name!r}", f"one of {', '.join(NAMES)}")
    return importlib.import_module(f"{__name__}.{name}")
