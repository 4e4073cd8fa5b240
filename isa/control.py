"""Instructions that the sequencers execute themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from .instruction import Engine, Instruction, Work, instruction

ALL = (Engine.SYNC, Engine.GPSIMD, Engine.SCALAR, Engine.VECTOR, Engine.TENSOR)


class Control(Instruction):
    """What a sequencer executes itself, in order; it goes on when the instruction is done."""

    timing: ClassVar[str] = "event_semaphore"  # the row of the sequencer's costs in the chip file

    def work(self) -> Work:
        return Work(kind="control")

    def signals(self) -> bool:
        return False

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        return {}


@instruction(*ALL, source="trn2 hardware traces, NOP")
class Nop(Control):
    """Do nothing; holds waits and updates."""


@instruction(*ALL, source="trn2 hardware traces, EVENT_SEMAPHORE", mnemonic="event_semaphore")
class EventSemaphore(Nop):
    """Wait for semaphores ahead of an instruction that has no room for the wait, or update them."""
