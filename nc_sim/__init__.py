"""nc-sim: a cycle-approximate simulator of AWS NeuronCores, with values, time and traces."""

import importlib as _importlib
import sys as _sys
from pathlib import Path as _Path
from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING, Any

# A clone keeps isa/ and workloads/ beside this package; an installed copy holds them inside (docs/decisions/0001).
if not (_Path(__file__).parent / "isa").is_dir():
    __path__.append(str(_Path(__file__).parent.parent))

if TYPE_CHECKING:
    from .analysis.sweeps import sweep
    from .isa.dynamic import ds
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
    from .progress import track
    from .replay import Replay, replay
    from .report.compare import compare
    from .report.roofline import roofline
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
    "compare",
    "ds",
    "replay",
    "roofline",
    "simulate",
    "sweep",
    "track",
]

# Where each name is. It is read when it is first asked for, so that the command line can look after Ctrl-C before that,
# and `import nc_sim` alone costs nothing.
_ERRORS = ("ChipError", "Deadlock", "InternalError", "NcSimError", "ProgramError", "Race", "Unimplemented", "Unspecified", "Unsupported")
_PLACES = {
    **dict.fromkeys(_ERRORS, "isa.errors"), "Program": "program", "Semaphore": "program", "Replay": "replay", "replay": "replay",
    "Result": "result", "simulate": "simulate", "roofline": "report.roofline", "sweep": "analysis.sweeps",
    "track": "progress",
    "compare": "report.compare", "ds": "isa.dynamic",
}  # fmt: skip


class _Package(_ModuleType):
    """This package. Two of its functions have the names of their modules, and stay functions when these are imported."""

    def __getattr__(self, name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(_importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
        setattr(self, name, found)
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _PLACES and isinstance(value, _ModuleType):
            return  # what an import does with the module of a function
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


_sys.modules[__name__].__class__ = _Package
