"""Random programs with semaphores of their own."""

from __future__ import annotations

from hypothesis import strategies as st

from ..program import Program
from .automatic import programs
from .drawn import number_lines
from .written_out import explicit


@st.composite
def explicit_programs(draw: st.DrawFn, most: int = 12) -> Program:
    """Programs with semaphores of their own that run on trn2 without a race and without a deadlock.

    Each is one of `programs(most)` with the synchronisation that nc-sim would insert written out (`explicit`): machine
    instructions in five queues, one semaphore for each compute engine and sixteen for each DMA queue. Every wait and
    update that is left out, or moved, may be missed. All updates add, on completion. Shrinks as `programs` does.
    """
    program = explicit(draw(programs(most)))
    number_lines(program)
    return program
