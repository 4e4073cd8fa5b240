"""Instructions that the sequencers execute themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .instruction import Engine, Instruction, Work, instruction

ALL = (Engine.SYNC, Engine.GPSIMD, Engine.SCALAR, Engine.VECTOR, Engine.TENSOR)


@instruction(*ALL, source="trn2 hardware traces, NOP")
class Nop(Instruction):
    """Do nothing; holds waits and updates."""

    def work(self) -> Work:
        return Work(kind="control")

    def signals(self) -> bool:
        return False

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        return {}


@instruction(*ALL, source="trn2 hardware traces, EVENT_SEMAPHORE", mnemonic="event_semaphore")
class EventSemaphore(Nop):
    """Wait for semaphores ahead of an instruction that has no room for the wait, or update them."""
