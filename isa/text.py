"""Steps as text, one line each, printed and parsed by the kinds of their fields.

    step    = engine ["?"] mnemonic {field "=" value} ["call=" number] ["wait=" wait {"," wait}]
              ["update=" update {"," update}] ["#" line]
    wait    = semaphore ">=" number
    update  = semaphore ("+" | "-" | "=") number "@" ("read" | "complete")

Spaces separate words and stand in none. `?` says that the user named no engine, so the chip may choose another. `line`
is the user's own, `rmsnorm.py:41`. Fields come in any order; those with a default may be left out. `call=` numbers the
call that a machine instruction was expanded from.

    vector tensor_copy dst=sbuf:t+0x0:float32[1][8]@0:128 src=psum:u+0x0:float32[1][8]@0:128 wait=s>=16 # rmsnorm.py:41
"""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs

from .errors import NcSimError, ProgramError
from .instruction import REGISTRY, Engine, Instruction, Step, Update, UpdateOp, Wait, When, fields_of
from .patterns import reach
from .view import Memory, View

ENGINES = {e.name.lower(): e for e in Engine}
SIGNS = {UpdateOp.ADD: "+", UpdateOp.SUB: "-", UpdateOp.SET: "="}
RESERVED = ("call", "wait", "update")  # no instruction may have a field of these names
WHOLE = (1 << 63) - 1  # a table's columns are int64
MAX_TEXT = 1024  # UTF-8 bytes of a name or a user's line
MAX_ITEMS = 1024  # entries of one list in an operand
SHAPE_OF_A_STEP = "engine mnemonic field=value ..."

_OPS = {sign: op for op, sign in SIGNS.items()}
_WHENS = {w.name.lower(): w for w in When}
_SEMAPHORE = re.compile(r"[^\s,#]+")
_COMMENT = re.compile(r"(?:^|\s)#")
_SHOWN = reprlib.Repr()
_SHOWN.maxlevel, _SHOWN.maxstring, _SHOWN.maxother, _SHOWN.maxlist, _SHOWN.maxdict = 3, 80, 80, 8, 8
_LONGEST = 400  # characters of what a message quotes
# What the kinds raise at untrusted input besides ProgramError: a field that cannot be read, whatever the reason.
_UNREADABLE = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, RecursionError)


# --- print -------------------------------------------------------------------------------------------------------


def step_to_text(step: Step, semaphore_name: Callable[[int], str]) -> str:
    """The step as one line; `parse_step` reads it back. ProgramError where a name or a line does not fit on one."""
    words = [step.engine.name.lower() + ("" if step.chosen else "?"), str(step.instruction)]
    if step.call >= 0:
        words.append(f"call={step.call}")
    if step.waits:
        words.append("wait=" + ",".join(f"{_name(w.semaphore, semaphore_name)}>={w.value}" for w in step.waits))
    if step.updates:
        words.append("update=" + ",".join(_update_text(u, semaphore_name) for u in step.updates))
    if step.line:
        words.append(f"# {check_line(step.line)}")
    return " ".join(words)


def _update_text(u: Update, semaphore_name: Callable[[int], str]) -> str:
    return f"{_name(u.semaphore, semaphore_name)}{SIGNS[u.op]}{u.value}@{u.when.name.lower()}"


def _name(semaphore: int, semaphore_name: Callable[[int], str]) -> str:
    try:
        name = semaphore_name(semaphore)
    except LookupError:
        raise ProgramError(f"semaphore {semaphore}", "no name", "a semaphore of the program") from None
    if not _SEMAPHORE.fullmatch(name):
        raise ProgramError(f"semaphore {semaphore}", f"name {shown(name)}", "a word without spaces, commas and #")
    return name


# --- parse -------------------------------------------------------------------------------------------------------


def parse_step(line: str, semaphore_id: Callable[[str], int]) -> Step:
    """The step that `step_to_text` printed, or that a user wrote; `semaphore_id` raises LookupError for unknown names.

    ProgramError if the line cannot be read or an operand is malformed. Whether operands fit together is for
    `instruction.check()`.
    """
    body, comment = split_comment(line)
    words = body.split()
    if len(words) < 2:
        raise ProgramError("", shown(body.strip()), SHAPE_OF_A_STEP)
    first, mnemonic, *rest = words
    name = first.removesuffix("?")
    if name not in ENGINES:
        raise ProgramError("", f"engine {shown(name)}{near(name, ENGINES)}", f"one of {', '.join(ENGINES)}")
    cls = instruction_class(mnemonic)
    with placed(f"{name} {mnemonic}"):
        check_engine(cls, ENGINES[name])
        given = _assignments(cls, rest)
        call = whole_number(given.pop("call"), "call") if "call" in given else -1
        waits = tuple(_wait(w, semaphore_id) for w in given.pop("wait").split(",")) if "wait" in given else ()
        updates = tuple(_update(u, semaphore_id) for u in given.pop("update").split(",")) if "update" in given else ()
        kinds = fields_of(cls)
        instruction = build(cls, {field: read_field(field, kinds[field].parse, text) for field, text in given.items()})
        return Step(instruction, ENGINES[name], waits, updates, check_line(comment), call, chosen=name == first)


def split_comment(line: str) -> tuple[str, str]:
    """What stands before a word that begins with #, and what follows the #, without the spaces around it."""
    m = _COMMENT.search(line)
    return (line, "") if m is None else (line[: m.start()], line[m.end() :].strip())


def _assignments(cls: type[Instruction], words: Iterable[str]) -> dict[str, str]:
    names, given = [*fields_of(cls), *RESERVED], dict[str, str]()
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise ProgramError("", shown(word), "field=value")
        if name in given:
            raise ProgramError("", f"{name} is given twice", "each field once")
        if name not in names:
            raise ProgramError("", f"field {shown(name)}{near(name, names)}", f"one of {', '.join(names)}", cls.source)
        given[name] = value
    return given


def _wait(text: str, semaphore_id: Callable[[str], int]) -> Wait:
    name, at_least, value = text.rpartition(">=")
    if not at_least or not name:
        raise ProgramError("wait", shown(text), "semaphore>=number")
    return Wait(_id(name, semaphore_id, "wait"), whole_number(value, "wait"))


def _update(text: str, semaphore_id: Callable[[str], int]) -> Update:
    change, at, when = text.rpartition("@")
    m = re.fullmatch(r"(.+)([-+=])([^-+=]*)", change)
    if not at or when not in _WHENS or m is None:
        raise ProgramError("update", shown(text), "semaphore+number@complete; also - and =, and @read")
    return Update(_id(m[1], semaphore_id, "update"), _OPS[m[2]], whole_number(m[3], "update"), _WHENS[when])


def _id(name: str, semaphore_id: Callable[[str], int], where: str) -> int:
    try:
        return semaphore_id(name)
    except LookupError:
        raise ProgramError(where, f"semaphore {shown(name)}", "a semaphore of the program") from None


def whole_number(text: str, where: str = "") -> int:
    """A whole number from 0 that fits an int64, in decimal or 0x form."""
    m = re.fullmatch(r"(0x[0-9a-f]{1,16})|[0-9]{1,19}", text)
    value = WHOLE + 1 if m is None else int(text, 16 if m[1] else 10)
    if value > WHOLE:
        raise ProgramError(where, f"number {shown(text)}", f"a whole number from 0 to {WHOLE}")
    return value


# --- what every form of an instruction must hold -----------------------------------------------------------------


def instruction_class(mnemonic: str) -> type[Instruction]:
    """The class of a mnemonic."""
    if mnemonic not in REGISTRY:
        raise ProgramError("", f"instruction {shown(mnemonic)}{near(mnemonic, REGISTRY)}", "an instruction that nc-sim knows")
    return REGISTRY[mnemonic]


def check_engine(cls: type[Instruction], engine: Engine) -> None:
    """Raise ProgramError unless the instruction runs on the engine."""
    if engine not in cls.engines:
        raise ProgramError("", f"engine {engine.name.lower()}", f"one of {', '.join(e.name.lower() for e in cls.engines)}", cls.source)


def check_line(line: str) -> str:
    """The user's line, if it can stand behind a # and come back equal."""
    if not line.isprintable() or line != line.strip():
        raise ProgramError("", f"the user's line {shown(line)}", "printable characters, no space at either end")
    check_length(line)
    return line


def check_length(text: str, where: str = "") -> None:
    """Raise ProgramError for text that a file does not hold."""
    if len(text) * 4 > MAX_TEXT < (size := len(text.encode(errors="surrogatepass"))):
        raise ProgramError(where, f"{shown(text)} of {size} bytes", f"text of at most {MAX_TEXT}")


def read_field(name: str, read: Callable[[Any], Any], raw: Any) -> Any:
    """`read(raw)`, a kind's parse or decode; whatever it raises becomes a ProgramError that names the field."""
    try:
        value = read(raw)
    except ProgramError as e:
        found = e.found if len(e.found) <= _LONGEST else f"{e.found[:_LONGEST]}..."
        raise ProgramError(f"{name} {e.where}".strip(), found, e.required, e.source) from None
    except _UNREADABLE:
        raise ProgramError(name, shown(raw), f"a value of {name}") from None
    check_numbers(value, name)
    return value


def check_numbers(value: Any, where: str = "") -> None:
    """Raise ProgramError unless every whole number in it, or in a tuple of bearable length, fits an int64."""
    if isinstance(value, tuple):
        if len(value) > MAX_ITEMS:
            raise ProgramError(where, f"{len(value)} entries", f"at most {MAX_ITEMS}")
        for v in value:
            if type(v) is not int or not -WHOLE - 1 <= v <= WHOLE:  # without a call for most
                check_numbers(v, where)
    elif isinstance(value, int) and not -WHOLE - 1 <= value <= WHOLE:
        raise ProgramError(where, f"a number of {value.bit_length()} bits", "whole numbers of at most 63 bits and a sign")


def build(cls: type[Instruction], values: Mapping[str, Any]) -> Instruction:
    """The instruction of these field values: every required one there, every operand well formed."""
    required = [a.name for a in attrs.fields(cls) if a.default is attrs.NOTHING]
    for name in required:
        if name not in values:
            raise ProgramError("", f"no {name}", f"{', '.join(required)} are required", cls.source)
    made = cls(**values)
    for name, view, _ in made.views:
        check_view(view, name)
    return made


def check_view(view: View, where: str = "") -> None:
    """Raise ProgramError unless the view's numbers make a pattern, which every view that was sliced from a tensor does."""
    if len(view.strides) != len(view.counts):
        raise ProgramError(where, f"{len(view.strides)} strides and {len(view.counts)} counts", "one stride for each count")
    if view.partitions < 0 or (view.memory is Memory.HBM and (view.partition or view.partitions)):
        last = view.partition + view.partitions
        raise ProgramError(where, f"partitions {view.partition} to {last}", "the first up to the last; none in HBM")
    (low, high), moved = view.extent, () if view.dynamic is None else (view.dynamic.step, *reach(view.strides, view.counts))
    check_numbers((view.offset, view.partition, view.partitions, view.strides, view.counts, view.size, low, high, *moved), where)


@contextmanager
def placed(where: str) -> Iterator[None]:
    """Put `where` in front of the place that an error inside names."""
    try:
        yield
    except NcSimError as e:
        raise e.at(where) from None


def near(name: str, names: Iterable[str]) -> str:
    """A hint: the names that look alike, or nothing."""
    found = difflib.get_close_matches(name, names, 3) if len(name) <= _LONGEST else []
    return f" (near: {', '.join(found)})" if found else ""


def shown(value: Any) -> str:
    """A repr short enough for a message."""
    return _SHOWN.repr(value)
