"""Registers and loops of a program: which sequencers execute them, and the loops as a tree.

A register is virtual. Its instructions stand on every engine that needs it: one whose instructions take its value, or
which has instructions in a loop that counts or tests it. A loop runs on every engine that has instructions in its body,
and each of them branches for itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import attrs

from .chip import Reader
from .explain import place
from .isa import Engine, Step
from .isa.dynamic import Register
from .isa.errors import ProgramError
from .isa.registers import (
    CompareBranch,
    LoopEnd,
    LoopFor,
    LoopWhile,
    RegisterAlloc,
    RegisterAlu,
    RegisterMove,
    Sequenced,
)


@attrs.frozen
class Loop:
    """A loop on several engines: `enter`, then `branch`, and while it holds `body`, `again` and `branch`."""

    line: str
    enter: tuple[Step, ...]  # sets the counter, on each engine
    branch: tuple[Step, ...]  # one COMPARE_BRANCH on each engine
    body: Code
    again: tuple[Step, ...]  # steps the counter


Code: TypeAlias = tuple[Step | Loop, ...]


@attrs.define
class _Open:
    """A loop as it was written."""

    step: Step
    items: list[Step | _Open] = attrs.field(factory=list)


def placed(steps: Sequence[Step]) -> Code:
    """Machine instructions and loops, from machine instructions and register calls in program order; ProgramError if unbalanced."""
    items = _nested(steps)
    needs: dict[Register, set[Engine]] = {}
    for alone in (False, True):  # then those that no engine needs
        known = -1
        while known != (known := sum(map(len, needs.values()))):  # a register is needed where what is computed from it is
            for item in items:
                _need(item, needs, alone)
    return tuple(_emitted(items, needs))


def _nested(steps: Sequence[Step]) -> list[Step | _Open]:
    top: list[Step | _Open] = []
    stack: list[_Open] = []
    for step in steps:
        i, into = step.instruction, stack[-1].items if stack else top
        if isinstance(i, LoopFor | LoopWhile | LoopEnd):
            for found in ("a wait", step.waits), ("an update", step.updates), ("an engine", step.chosen):
                if found[1]:
                    raise ProgramError(_where(step), found[0], "none: a loop runs on the engines of its body, on each in order")
        if isinstance(i, LoopEnd):
            if not stack:
                raise ProgramError(_where(step), "no open loop", "loop_for or loop_while before it")
            if not stack[-1].items:
                raise ProgramError(_where(stack[-1].step), "an empty loop", "an instruction in it")
            stack.pop()
        elif isinstance(i, LoopFor | LoopWhile):
            stack.append(_Open(step))
            into.append(stack[-1])
        else:
            into.append(step)
    if stack:
        raise ProgramError(_where(stack[-1].step), "the loop does not end", "loop_end: was its body left by break or an exception?")
    return top


def _where(step: Step) -> str:
    return f"{step.line} {step.instruction.mnemonic}".strip()


def _engines(item: Step | _Open, needs: dict[Register, set[Engine]], alone: bool = True) -> set[Engine]:
    """Where an item executes, as far as is known; `alone`, a register that no engine needs has its default one."""
    if isinstance(item, _Open):
        return {e for inner in item.items for e in _engines(inner, needs, alone)}
    i = item.instruction
    if isinstance(i, Sequenced) and not item.chosen and i.sets:
        return needs.get(i.sets[0]) or ({item.engine} if alone else set())
    return {item.engine}


def _need(item: Step | _Open, needs: dict[Register, set[Engine]], alone: bool) -> None:
    """Note where an item needs registers."""
    step = item.step if isinstance(item, _Open) else item
    engines = _engines(item, needs, alone)
    counter = step.instruction.sets if isinstance(item, _Open) and isinstance(step.instruction, Sequenced) else ()
    for register in (*step.instruction.registers, *counter):
        needs.setdefault(register, set()).update(engines)
    if isinstance(item, _Open):
        for inner in item.items:
            _need(inner, needs, alone)


def _emitted(items: Iterable[Step | _Open], needs: dict[Register, set[Engine]]) -> Iterator[Step | Loop]:
    for item in items:
        engines = sorted(_engines(item, needs))
        if isinstance(item, _Open):
            yield _loop(item, engines, needs)
        elif not isinstance(i := item.instruction, Sequenced):
            yield item
        elif not isinstance(i, RegisterAlloc):
            if item.updates and len(engines) > 1:
                found = f"an update, on {len(engines)} engines: {', '.join(e.label for e in engines)}"
                raise ProgramError(_where(item), found, "engine=, one call for each")
            yield from _on(engines, i, item)
        elif i.src is not None:
            yield from _on(engines, RegisterMove(dst=i.dst, src=i.src), item)


def _on(engines: Iterable[Engine], instruction: Sequenced, of: Step) -> Iterator[Step]:
    """The instruction on each of the engines."""
    return (Step(instruction, e, of.waits, of.updates, of.line, of.call) for e in engines)


def _loop(loop: _Open, engines: list[Engine], needs: dict[Register, set[Engine]]) -> Loop:
    step, body = loop.step, tuple(_emitted(loop.items, needs))
    i = step.instruction
    if isinstance(i, LoopWhile):
        branch = CompareBranch(data0=i.condition, op="not_equal", data1=0)
        return Loop(step.line, (), tuple(_on(engines, branch, step)), body, ())
    assert isinstance(i, LoopFor)
    counter, first = i.counter, list[Step]()
    if any(counter in s.instruction.sets for s in _steps(body) if isinstance(s.instruction, Sequenced)):
        # What the body does to its counter makes no difference to the loop (nki.language.fori_loop).
        counter = Register(f"${counter.name}")
        first = list(_on(engines, RegisterMove(dst=i.counter, src=counter), step))
    enter = RegisterMove(dst=counter, src=i.lower)
    again = RegisterAlu(dst=counter, data0=counter, op="add", data1=i.step)
    branch = CompareBranch(data0=counter, op="less", data1=i.upper)
    on_each = [tuple(_on(engines, made, step)) for made in (enter, branch, again)]
    return Loop(step.line, on_each[0], on_each[1], (*first, *body), on_each[2])


# ---- as a list


def _steps(code: Code) -> Iterator[Step]:
    for item in code:
        if isinstance(item, Loop):
            yield from (*item.enter, *item.branch, *_steps(item.body), *item.again)
        else:
            yield item


def listed(code: Code) -> tuple[list[Step], list[tuple[int, int]]]:
    """The instructions once each, in program order, and the first and last index of each loop, inner loops before outer ones."""
    steps: list[Step] = []
    loops: list[tuple[int, int]] = []

    def add(items: Code) -> None:
        for item in items:
            if isinstance(item, Loop):
                steps.extend(item.enter)
                first = len(steps)
                steps.extend(item.branch)
                add(item.body)
                steps.extend(item.again)
                loops.append((first, len(steps) - 1))
            else:
                steps.append(item)

    add(code)
    return steps, loops


def check_room(steps: Sequence[Step], loops: Sequence[tuple[int, int]], chip: Reader) -> None:
    """Raise ProgramError where more registers are live on a sequencer than it has.

    A register is live from its first to its last use; over a whole loop if it is used outside too, or read in it before
    the loop sets it.
    """
    uses: dict[tuple[Engine, Register], list[tuple[int, bool]]] = {}  # index, and whether it is set there
    for k, step in enumerate(steps):
        for register in step.instruction.registers:
            uses.setdefault((step.engine, register), []).append((k, False))
        for register in step.instruction.sets if isinstance(step.instruction, Sequenced) else ():
            uses.setdefault((step.engine, register), []).append((k, True))
    inner, outer = _enclosing(len(steps), loops)
    change = {e: [0] * (len(steps) + 1) for e in Engine}
    for (engine, _), used in uses.items():
        first, last = used[0][0], used[-1][0]
        around: set[int] = set()
        for k, _ in used:
            loop = inner[k]
            while loop >= 0 and loop not in around:
                around.add(loop)
                loop = outer[loop]
        for a, b in (loops[n] for n in sorted(around)):
            set_first = used[bisect_left(used, (a, False))][1]
            if first < a or last > b or not set_first:
                first, last = min(first, a), max(last, b)
        change[engine][first] += 1
        change[engine][last + 1] -= 1
    for engine, steps_of in change.items():
        live = 0
        for k, more in enumerate(steps_of):
            live += more
            if live > (most := chip("sequencer.registers")):
                raise ProgramError(place(steps, k), f"{live} registers live on {engine.label}", f"at most {most}", chip.chip.name)


def _enclosing(steps: int, loops: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """The innermost loop of each step, and the next loop around each loop, by index; -1 for none. Inner loops come first."""
    inner, outer = [-1] * steps, [-1] * len(loops)
    starts: dict[int, list[int]] = {}
    for n in reversed(range(len(loops))):
        starts.setdefault(loops[n][0], []).append(n)
    around: list[int] = []
    for k in range(steps):
        while around and loops[around[-1]][1] < k:
            around.pop()
        for n in starts.get(k, ()):
            outer[n] = around[-1] if around else -1
            around.append(n)
        inner[k] = around[-1] if around else -1
    return inner, outer
