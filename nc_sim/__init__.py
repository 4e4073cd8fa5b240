"""nc-sim: a cycle-approximate simulator of AWS NeuronCores, with values, time and traces."""

import importlib as _importlib
from pathlib import Path as _Path
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

# A clone keeps isa/ and workloads/ beside this package; an installed copy holds them inside (docs/decisions/0001).
if not (_Path(__file__).parent / "isa").is_dir():
    __path__.append(str(_Path(__file__).parent.parent))

from .isa.errors import (
    ChipError,
    Deadlock,
    InternalError,
    NcSimError,
    ProgramError,
    Race,
    Unimplemented,
    Unspecified,
    Unsupported,
)
from .program import Program, Semaphore
from .replay import Replay, replay
from .result import Result
from .simulate import simulate

if _TYPE_CHECKING:
    from .analysis.sweeps import sweep
    from .report.roofline import roofline

__version__ = "0.1.0"

_LATER = {"roofline": "report.roofline", "sweep": "analysis.sweeps"}  # loaded when asked for

__all__ = [
    "ChipError",
    "Deadlock",
    "InternalError",
    "NcSimError",
    "Program",
    "ProgramError",
    "Race",
    "Replay",
    "Result",
    "Semaphore",
    "Unimplemented",
    "Unspecified",
    "Unsupported",
    "__version__",
    "replay",
    "roofline",
    "simulate",
    "sweep",
]


def __getattr__(name: str) -> _Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(_importlib.import_module(f".{_LATER[name]}", __name__), name)
    globals()[name] = found
    return found
