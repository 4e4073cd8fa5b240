"""What an instruction is: operands, meaning and work. Nothing here knows a chip or a time."""

from . import (  # noqa: F401  (registers the instructions)
    accumulator,
    control,
    cores,
    dma,
    dma_compute,
    dma_transpose,
    gpsimd,
    groups,
    mx,
    randomness,
    registers,
    scalar,
    search,
    selection,
    statistics,
    tensor,
    vector,
)
from .dtypes import DTYPES, DType, dtype
from .instruction import (
    COMPUTE,
    REGISTRY,
    Engine,
    Instruction,
    Step,
    Update,
    UpdateOp,
    Wait,
    When,
    Work,
    fields_of,
    instruction,
)
from .view import Memory, View, whole
from .view_text import parse_view

__all__ = [
    "COMPUTE",
    "DTYPES",
    "REGISTRY",
    "DType",
    "Engine",
    "Instruction",
    "Memory",
    "Step",
    "Update",
    "UpdateOp",
    "View",
    "Wait",
    "When",
    "Work",
    "dtype",
    "fields_of",
    "instruction",
    "parse_view",
    "whole",
]
