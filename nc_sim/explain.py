"""Core errors in the user's words: rows become queues, instructions and lines."""

from __future__ import annotations

from collections.abc import Sequence

from .isa import Step
from .isa.errors import Deadlock
from .table import Table


def place(steps: Sequence[Step], index: int) -> str:
    """Where a step stands: the user's line, its queue and position there, its mnemonic."""
    step = steps[index]
    position = sum(s.engine is step.engine for s in steps[:index])
    return f"{step.line} {step.engine.name.lower()}[{position}] {step.instruction.mnemonic}".strip()


def deadlock(error: Deadlock, table: Table, steps: Sequence[Step]) -> Deadlock:
    """A deadlock that names each stuck queue, its instruction, the semaphore, the value waited for and reached."""
    lines = []
    for _, row, semaphore, wanted, reached in error.blocked:
        index = int(table.step[row])
        if table.wait_row[index] != row:
            continue  # an engine behind a stuck sequencer: the sequencer's line says why
        text = str(steps[index].instruction)
        lines.append(f"{place(steps, index)} waits for {table.semaphore_names[semaphore]} >= {wanted}, which reached {reached} [{text}]")
    first = lines[0] if lines else "nothing can run"
    rest = "".join(f"\n  and {line}" for line in lines[1:])
    return Deadlock("deadlock", first + rest, "every wait must be reached", blocked=error.blocked)
