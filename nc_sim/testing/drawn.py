"""A program that a strategy drew."""

from __future__ import annotations

import attrs

from ..forms import program_to_text
from ..program import Program


class DrawnProgram(Program):
    """A Program that shows itself as text, so that a failing example can be read and kept (docs/programs.md, text form)."""

    def __repr__(self) -> str:
        return program_to_text(self).rstrip()


def number_lines(program: Program) -> None:
    """Name the calls of a drawn program by their place: no user wrote them."""
    for k, step in enumerate(program.steps):
        step.line = f"drawn:{k}"
    for name, tensor in program.tensors.items():
        program.tensors[name] = attrs.evolve(tensor, line="drawn")
