"""An automatic program with its semaphores written out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs

from .. import chip as chips
from ..chip import Chip
from ..isa import Step, Update, View, Wait, fields_of
from ..isa.dynamic import Register
from ..program import NAME, Program, Semaphore
from ..simulate import compile_program
from .drawn import DrawnProgram


def explicit(program: Program, chip: str | Path | Chip = "trn2") -> Program:
    """The same program with semaphores of its own: those that nc-sim would insert for this chip.

    Its calls are machine instructions, with the waits and updates, the waiting instructions, table loads and identities
    that an automatic program gets. On that chip it has the automatic program's timeline and values, and no race.
    """
    compiled, _ = compile_program(program, chips.load(chip))
    out = DrawnProgram(program.name)
    names = {t: _free(t.lstrip("$"), set(compiled.tensors)) if t.startswith("$") else t for t in compiled.tensors}
    for tensor in compiled.tensors.values():
        out.tensors[names[tensor.name]] = attrs.evolve(tensor, name=names[tensor.name])
    used = sorted({s for step in compiled.steps for s in (*(w.semaphore for w in step.waits), *(u.semaphore for u in step.updates))})
    own: dict[int, Semaphore] = {s: out.semaphore(_semaphore_name(compiled.semaphores.get(s, ""), s)) for s in used}
    registers = _registers(compiled.steps, program)
    for name in registers.values():
        out.register_alloc(name=name)
        out.steps[-1].line = ""
    for step in compiled.steps:
        instruction = step.instruction
        out.append(
            type(instruction), (), {name: _renamed(getattr(instruction, name), names, registers) for name in fields_of(type(instruction))},
            step.engine, [Wait(own[w.semaphore].id, w.value) for w in step.waits],
            [Update(own[u.semaphore].id, u.op, u.value, u.when) for u in step.updates],
        )  # fmt: skip
        out.steps[-1].line = step.line
    return out


def _registers(steps: Iterable[Step], program: Program) -> dict[str, str]:
    """Names that a program may use for the registers of its machine instructions."""
    used = {v.name: None for s in steps for n in fields_of(type(s.instruction)) if isinstance(v := getattr(s.instruction, n), Register)}
    return {name: _free(name.lstrip("$"), set(program.registers)) if name.startswith("$") else name for name in used}


def _renamed(value: Any, names: dict[str, str], registers: dict[str, str]) -> Any:
    if isinstance(value, Register):
        return Register(registers[value.name])
    return attrs.evolve(value, tensor=names[value.tensor]) if isinstance(value, View) else value


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _semaphore_name(shown: str, number: int) -> str:
    """S[4] (Vector) as a name a program may use: S4.Vector."""
    return shown if NAME.fullmatch(shown) else re.sub(r"\W+", ".", shown.replace("[", "", 1)).strip(".") or f"S{number}"
