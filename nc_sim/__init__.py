"""nc-sim: a cycle-approximate simulator of AWS NeuronCores, with values, time and traces."""

from pathlib import Path as _Path

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

__version__ = "0.1.0"

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
    "simulate",
]
