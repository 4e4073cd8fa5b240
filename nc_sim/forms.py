"""Programs as files: text to read and to write by hand (.ncasm), msgpack to keep and to hash (.msgpack).

Both come from the fields that instructions declare (isa/text.py, isa/fields.py). Reading either executes nothing, and
a program that was read satisfies every check that building it does.

Text declares in the words of Program's own methods, before use, and lists the calls (isa/text.py holds their grammar).
What follows a # is the user's own line. Blank lines and lines that begin with # are free.

    program NAME
    input|output|hbm NAME DTYPE [dim,dim]
    constant NAME DTYPE [dim,dim] data=BASE64
    sbuf|psum NAME DTYPE [partitions,dim] [address=BYTES] [partition=FIRST]
    semaphore NAME

msgpack is one map of exactly these keys, in this order: format, version, name, tensors, semaphores, steps. Values are in
the one form that this module writes: a float where the field holds one, no aliases.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
import msgpack

from .collection import without_collection
from .files import regular, replacing
from .isa import DTYPES, Engine, Instruction, Memory, Step, Update, UpdateOp, Wait, When, fields_of
from .isa.errors import NcSimError, ProgramError
from .isa.registers import Sequenced
from .isa.text import (
    MAX_ITEMS,
    MAX_TEXT,
    WHOLE,
    build,
    check_engine,
    check_length,
    check_line,
    check_numbers,
    instruction_class,
    near,
    parse_step,
    placed,
    read_field,
    shown,
    split_comment,
    step_to_text,
    whole_number,
)
from .packing import NO_TEXT, StepPacker, storable, update_row, wait_row
from .program import Program, Tensor
from .progress import AT_ONCE, Tell, told

FORMAT, VERSION = "nc-sim program", 1
KEYS = ("format", "version", "name", "tensors", "semaphores", "steps")
MAX_BYTES = 1 << 30  # of a file
STEPS_AT_ONCE = 1024  # packed in memory
MAX_LISTS = 4096  # lists and maps inside a tensor or a step
LIMITS = f"msgpack, text of at most {MAX_TEXT} bytes, lists of at most {MAX_ITEMS}, {MAX_LISTS} lists, no extension types, no repeated keys"

Whole = int | None
TENSOR = {
    "name": str, "memory": int, "dtype": str, "shape": list, "kind": str, "address": Whole, "partition": int, "data": bytes | None,
    "line": str,
}  # fmt: skip
STEP = {
    "engine": int, "chosen": bool, "mnemonic": str, "fields": dict, "waits": list, "updates": list, "call": int, "line": str,
}  # fmt: skip
WAIT = {"semaphore": int, "value": int}
UPDATE = {"semaphore": int, "op": int, "value": int, "when": int}

# How text names what a tensor is: Program's methods.
DECLARATIONS = {
    "input": (Memory.HBM, "input"),
    "output": (Memory.HBM, "output"),
    "constant": (Memory.HBM, "constant"),
    "hbm": (Memory.HBM, "internal"),
    "sbuf": (Memory.SBUF, "internal"),
    "psum": (Memory.PSUM, "internal"),
}
_WORDS = {place: word for word, place in DECLARATIONS.items()}


# --- files -------------------------------------------------------------------------------------------------------


def save_program(program: Program, path: str | os.PathLike[str]) -> None:
    """Write the program as text (.ncasm) or msgpack (.msgpack), whole or not at all."""
    to = Path(path)
    data = program_to_text(program).encode() if _is_text(to) else program_to_msgpack(program)
    if len(data) > MAX_BYTES:
        raise ProgramError(str(to), f"{len(data)} bytes", f"at most {MAX_BYTES}")
    try:
        with replacing(to) as partial, partial.open("xb") as file:
            file.write(data)
    except OSError as e:
        raise ProgramError(str(to), f"cannot be written: {e.strerror}", "a file in a folder that exists") from None


def load_program(path: str | os.PathLike[str], progress: Tell | None = None) -> Program:
    """The program of a .ncasm or .msgpack file. `progress` is told how much of it is read."""
    of = Path(path)
    text = _is_text(of)
    try:
        with regular(of).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as e:
        raise ProgramError(str(of), f"cannot be read: {e.strerror}", "a program file") from None
    if not text:
        return program_from_msgpack(data, of.name, progress)
    try:
        return program_from_text(data.decode("utf-8-sig"), of.name, progress)
    except UnicodeDecodeError as e:
        line = e.object.count(b"\n", 0, e.start) + 1
        raise ProgramError(f"{of.name}:{line}", f"byte {e.object[e.start]:#04x}", "UTF-8 text") from None


def _is_text(path: Path) -> bool:
    if path.suffix not in (".ncasm", ".msgpack"):
        raise ProgramError(str(path), f"suffix {path.suffix!r}", ".ncasm for text or .msgpack")
    return path.suffix == ".ncasm"


def canonical_hash(program: Program) -> str:
    """Twenty digits that name the program: the first 8 bytes of SHA-256 over its msgpack form without the users' lines."""
    digest = hashlib.sha256()
    for _, part in program_parts(program):
        digest.update(part)
    return name_of(digest.digest())


def name_of(digest: bytes) -> str:
    """The digits of a SHA-256."""
    return f"{int.from_bytes(digest[:8], 'big'):020d}"


# --- text --------------------------------------------------------------------------------------------------------


def program_to_text(program: Program) -> str:
    """The program as text."""
    lines = [f"program {program.name}", "", *map(_tensor_to_text, program.tensors.values())]
    lines += ["", *(f"semaphore {name}" for name in _semaphores(program))] if program.semaphores else []
    lines.append("")
    names = program.semaphores.__getitem__
    for index, step in enumerate(program.steps):
        with placed(f"steps[{index}]"):
            lines.append(step_to_text(attrs.evolve(step, call=-1), names))  # the call is the position
    return "\n".join(lines) + "\n"


def _tensor_to_text(t: Tensor) -> str:
    words = [_WORDS[t.memory, t.kind], t.name, t.dtype.name, f"[{','.join(map(str, t.shape))}]"]
    if t.address is not None:
        words.append(f"address={t.address:#x}")
    if t.partition:
        words.append(f"partition={t.partition}")
    if t.data is not None:
        words.append(f"data={base64.b64encode(t.data).decode()}")
    if t.line:
        words.append(f"# {check_line(t.line)}")
    return " ".join(words)


def program_from_text(text: str, where: str = "", progress: Tell | None = None) -> Program:
    """The program of a text; errors name `where` and the line. `progress` is told of lines read."""
    program: Program | None = None
    ids: dict[str, int] = {}
    with without_collection():
        for number, line in enumerate(told(text.split("\n"), progress), 1):
            body = line.strip()
            if not body or body.startswith("#"):
                continue
            with placed(f"{where or 'program text'}:{number}"):
                program = _read_line(program, ids, body)
    if program is None:
        raise ProgramError(where or "program text", "no program", "program NAME on its first line")
    return program


def _read_line(program: Program | None, ids: dict[str, int], line: str) -> Program:
    keyword = line.split(maxsplit=1)[0]
    if program is None or keyword == "program":
        words = split_comment(line)[0].split()
        if program is not None or keyword != "program" or len(words) != 2:
            raise ProgramError("", shown(line), "program NAME, once, before everything else")
        check_length(words[1])
        return Program(words[1])
    if keyword in DECLARATIONS:
        _declare(program, _tensor_from_text(line))
    elif keyword == "semaphore":
        words = split_comment(line)[0].split()
        if len(words) != 2:
            raise ProgramError("", shown(line), "semaphore NAME")
        ids[words[1]] = _semaphore(program, words[1])
    else:
        step = parse_step(line, _finder(ids))
        if step.call >= 0:
            raise ProgramError("", f"call={step.call}", "no call= in a program: a call is numbered by its place")
        _append(program, step)
    return program


def _finder(ids: dict[str, int]) -> Callable[[str], int]:
    def find(name: str) -> int:
        if name not in ids:
            raise ProgramError("", f"semaphore {shown(name)}{near(name, ids)}", "one that a line above declares: semaphore NAME")
        return ids[name]

    return find


def _tensor_from_text(line: str) -> Tensor:
    body, comment = split_comment(line)
    keyword, *words = body.split()
    memory, kind = DECLARATIONS[keyword]
    allowed = {"constant": ("data",), "sbuf": ("address", "partition"), "psum": ("address", "partition")}.get(keyword, ())
    if len(words) < 3:
        raise ProgramError(keyword, shown(" ".join(words)), "NAME DTYPE [dim,dim]")
    name, dtype, shape, *options = words
    check_length(name, keyword)
    if dtype not in DTYPES:
        raise ProgramError(f"{keyword} {name}", f"element type {shown(dtype)}{near(dtype, DTYPES)}", f"one of {', '.join(DTYPES)}")
    if not re.fullmatch(r"\[[0-9,]*\]", shape):
        raise ProgramError(f"{keyword} {name}", f"shape {shown(shape)}", "[dim,dim] without spaces")
    given: dict[str, Any] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or key not in allowed or key in given:
            forms = " and ".join(f"{a}=" for a in allowed)
            raise ProgramError(f"{keyword} {name}", shown(option), f"{forms}, each once" if forms else "nothing after the shape")
        given[key] = _base64(value) if key == "data" else whole_number(value, f"{keyword} {name} {key}")
    dims = tuple(whole_number(d, f"{keyword} {name} shape") for d in shape[1:-1].split(",")) if shape != "[]" else ()
    return Tensor(name, memory, dims, DTYPES[dtype], kind, **given, line=comment)


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ProgramError("data", shown(text), "base64") from None


# --- msgpack -----------------------------------------------------------------------------------------------------


def program_to_msgpack(program: Program) -> bytes:
    """The program as one msgpack map: the canonical form."""
    return b"".join(part for part, _ in program_parts(program))


def program_parts(program: Program) -> Iterator[tuple[bytes, bytes]]:
    """The same in parts, and beside each the part without the users' lines, which `canonical_hash` is over."""
    packer = StepPacker()
    pack, header = packer.pack, msgpack.Packer()
    head = [header.pack_map_header(len(KEYS))]
    for key, value in (("format", FORMAT), ("version", VERSION), ("name", program.name)):
        head += pack(key), pack(storable(value))
    start = b"".join([*head, pack("tensors"), header.pack_array_header(len(program.tensors))])
    yield start, start
    for t in program.tensors.values():
        with placed(f"tensor {t.name}"):
            rows = _encode_tensor(t), _encode_tensor(attrs.evolve(t, line=""))
        yield pack(rows[0]), pack(rows[1])
    names = [storable(name) for name in _semaphores(program)]
    between = b"".join([pack("semaphores"), pack(names), pack("steps"), header.pack_array_header(len(program.steps))])
    yield between, between
    for first in range(0, len(program.steps), STEPS_AT_ONCE):
        lines, bare = list[bytes](), list[bytes]()
        for index, step in enumerate(program.steps[first : first + STEPS_AT_ONCE], first):
            try:
                body = packer.body(step, index)
                lines += body, packer.line(step.line)
            except NcSimError as e:
                raise e.at(f"steps[{index}]") from None
            bare += body, NO_TEXT
        yield b"".join(lines), b"".join(bare)


def program_from_msgpack(data: bytes, where: str = "", progress: Tell | None = None) -> Program:
    """The program of msgpack bytes; errors name `where` and the part. `progress` is told of bytes read."""
    with placed(where or "program bytes"), without_collection():
        return _Reader(data).program(progress)


def program_tensors(data: bytes, where: str = "") -> tuple[Tensor, ...]:
    """The tensors of msgpack bytes; the steps are not read."""
    with placed(where or "program bytes"):
        return tuple(_Reader(data).head().tensors.values())


def encode_step(step: Step) -> list[Any]:
    """A step as plain lists, numbers and strings, columns as in STEP; also for machine steps in other files."""
    i = step.instruction
    fields = {name: storable(kind.encode(getattr(i, name)), name) for name, kind in fields_of(type(i)).items()}
    waits, updates = list(map(wait_row, step.waits)), list(map(update_row, step.updates))
    line = storable(check_line(step.line), "line")
    return [int(step.engine), step.chosen, i.mnemonic, fields, storable(waits, "waits"), storable(updates, "updates"), step.call, line]


def decode_step(raw: Any) -> Step:
    """The step that `encode_step` gave; ProgramError for anything else. `instruction.check()` is left to the caller."""
    engine, chosen, mnemonic, fields, waits, updates, call, line = _columns(raw, STEP)
    cls = instruction_class(mnemonic)
    with placed(mnemonic):
        queue = _member(Engine, engine, "engine")
        check_engine(cls, queue)
        if not -1 <= call <= WHOLE:
            raise ProgramError("", f"call {call}", "-1 or the number of a call")
        when = tuple(map(_decode_wait, waits)), tuple(map(_decode_update, updates))
        return Step(_decode_fields(cls, fields), queue, *when, check_line(line), call, chosen)


def _decode_fields(cls: type[Instruction], fields: dict[str, Any]) -> Instruction:
    kinds, values = fields_of(cls), dict[str, Any]()
    for name, value in fields.items():
        if name not in kinds:
            raise ProgramError("", f"field {shown(name)}{near(name, kinds)}", f"one of {', '.join(kinds)}", cls.source)
        values[name] = read_field(name, kinds[name].decode, value)
    instruction = build(cls, values)
    for name, value in fields.items():  # the kinds also take what is merely like a value: "5", 5.0, True
        stored = storable(kinds[name].encode(getattr(instruction, name)), name)
        if not _identical(stored, value):
            raise ProgramError(name, shown(value), f"{shown(stored)}, as it is stored")
    return instruction


def _decode_wait(raw: Any) -> Wait:
    semaphore, value = _columns(raw, WAIT, "wait ")
    return Wait(_whole(semaphore, "wait semaphore"), _whole(value, "wait value"))


def _decode_update(raw: Any) -> Update:
    semaphore, op, value, when = _columns(raw, UPDATE, "update ")
    kind, moment = _member(UpdateOp, op, "update op"), _member(When, when, "update when")
    return Update(_whole(semaphore, "update semaphore"), kind, _whole(value, "update value"), moment)


def _encode_tensor(t: Tensor) -> list[Any]:
    row = [t.name, int(t.memory), t.dtype.name, list(t.shape), t.kind, t.address, t.partition, t.data, check_line(t.line)]
    return [storable(value, name) for name, value in zip(TENSOR, row, strict=True)]


def _decode_tensor(raw: Any) -> Tensor:
    name, memory, dtype, shape, kind, address, partition, data, line = _columns(raw, TENSOR)
    if dtype not in DTYPES:
        raise ProgramError(f"tensor {shown(name)}", f"element type {shown(dtype)}{near(dtype, DTYPES)}", f"one of {', '.join(DTYPES)}")
    if any(type(d) is not int for d in shape):
        raise ProgramError(f"tensor {shown(name)}", f"shape {shown(shape)}", "whole numbers")
    return Tensor(name, _member(Memory, memory, "memory"), tuple(shape), DTYPES[dtype], kind, address, partition, data, line)


def _columns(raw: Any, columns: dict[str, Any], what: str = "") -> list[Any]:
    if type(raw) is not list or len(raw) != len(columns):
        raise ProgramError(what.strip(), shown(raw), f"a list of {len(columns)}: {', '.join(columns)}")
    for value, (name, kind) in zip(raw, columns.items(), strict=True):
        # isinstance alone would take True for the whole number 1
        if not isinstance(value, kind) or (type(value) is bool and kind is not bool):
            raise ProgramError(f"{what}{name}", shown(value), f"of type {getattr(kind, '__name__', kind)}")
    return raw


def _text(raw: Any, where: str = "") -> str:
    if type(raw) is not str:
        raise ProgramError(where, shown(raw), "of type str")
    return raw


def _member(enum: Any, value: int, what: str) -> Any:
    try:
        return enum(value)
    except ValueError:
        raise ProgramError("", f"{what} {value}", f"0 to {len(enum) - 1}") from None


def _whole(value: int, what: str) -> int:
    if not 0 <= value <= WHOLE:
        raise ProgramError("", f"{what} {value}", f"a whole number from 0 to {WHOLE}")
    return value


def _identical(a: Any, b: Any) -> bool:
    """Equal in type and bits, for what msgpack can hold: 1, 1.0 and True differ, so do 0.0 and -0.0, and a NaN equals itself."""
    return repr(a) == repr(b)


class _Reader:
    """Reads a program part by part, so that no claimed length is believed before its bytes are there."""

    def __init__(self, data: bytes) -> None:
        if len(data) > MAX_BYTES:
            raise ProgramError("", f"more than {MAX_BYTES} bytes", f"at most {MAX_BYTES}")
        self.size, self.lists = len(data), 0
        self.unpacker = msgpack.Unpacker(
            raw=False, strict_map_key=True, list_hook=self.one_more, object_pairs_hook=self.no_repeats, ext_hook=_no_extension,
            max_buffer_size=MAX_BYTES, max_str_len=MAX_TEXT, max_bin_len=MAX_BYTES, max_array_len=MAX_ITEMS, max_map_len=MAX_ITEMS,
            max_ext_len=0,
        )  # fmt: skip
        self.unpacker.feed(data)

    def head(self) -> Program:
        """The program's name and its tensors, which come first."""
        self.keys = self.take("start", self.unpacker.read_map_header)
        self.constant("format", FORMAT)
        self.constant("version", VERSION)
        self.key("name")
        program = Program(_text(self.take("name", self.unpacker.unpack), "name"))
        for index, raw in self.items("tensors"):
            with placed(f"tensors[{index}]"):
                _declare(program, _decode_tensor(raw))
        return program

    def program(self, progress: Tell | None = None) -> Program:
        """The whole program; nothing may follow it."""
        program = self.head()
        for index, raw in self.items("semaphores"):
            with placed(f"semaphores[{index}]"):
                _semaphore(program, _text(raw))
        for index, raw in self.items("steps"):
            with placed(f"steps[{index}]"):
                _append(program, _numbered(decode_step(raw), index))
            if progress is not None and index % AT_ONCE == AT_ONCE - 1:
                progress(self.unpacker.tell(), self.size)
        if self.keys > len(KEYS):
            raise ProgramError("", f"key {shown(self.take('key', self.unpacker.unpack))}", f"only {', '.join(KEYS)}")
        if self.unpacker.tell() != self.size:
            raise ProgramError("", f"{self.size - self.unpacker.tell()} bytes after the program", "none")
        if progress is not None:
            progress(self.size, self.size)
        return program

    def key(self, name: str) -> None:
        """Take the key that must come next."""
        there = KEYS.index(name) < self.keys
        found = self.take(f"key {name}", self.unpacker.unpack) if there else None
        if found != name:
            raise ProgramError("", f"key {shown(found)}" if there else f"no key {name!r}", f"the keys {', '.join(KEYS)}, in this order")

    def constant(self, key: str, value: str | int) -> None:
        """Take a key and the one value it may have."""
        self.key(key)
        if not _identical(found := self.take(key, self.unpacker.unpack), value):
            raise ProgramError("", f"{key} {shown(found)}", f"{key} {value!r}, the only one that this nc-sim reads")

    def items(self, key: str) -> Iterator[tuple[int, Any]]:
        """The elements of a list, one at a time."""
        self.key(key)
        for index in range(self.take(key, self.list_length)):
            yield index, self.take(f"{key}[{index}]", self.unpacker.unpack)

    def list_length(self) -> int:
        """Length of the list that comes next. By hand: msgpack's Python reader would hold it to the limit of lists inside a step."""
        (first,) = self.exactly(1)
        if first & 0xF0 == 0x90:
            return first & 0x0F
        if first not in (0xDC, 0xDD):
            raise ValueError("not a list")
        return int.from_bytes(self.exactly(2 if first == 0xDC else 4), "big")

    def exactly(self, count: int) -> bytes:
        """So many bytes."""
        found: bytes = self.unpacker.read_bytes(count)
        if len(found) < count:
            raise msgpack.OutOfData
        return found

    def take(self, what: str, read: Callable[[], Any]) -> Any:
        """What `read` finds next, or a ProgramError that says where the file is wrong."""
        self.lists = 0
        try:
            return read()
        except msgpack.OutOfData:
            raise ProgramError(what, f"the data end after {self.size} bytes", "a complete program; is it cut off?") from None
        except (ValueError, msgpack.UnpackException):
            raise ProgramError(what, f"unreadable data near byte {self.unpacker.tell()}", LIMITS) from None

    def one_more(self, made: Any) -> Any:
        """Count a list: a byte of file may ask for a list of its own, which takes 56 of memory."""
        self.lists += 1
        if self.lists > MAX_LISTS:
            raise ValueError("too many lists")
        return made

    def no_repeats(self, pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        """The map of these pairs."""
        self.one_more(pairs)
        made = dict(pairs)
        if len(made) != len(pairs):
            raise ValueError("repeated key")
        return made


def _no_extension(code: int, data: bytes) -> Any:
    raise ValueError("extension type")


# --- the checks of building --------------------------------------------------------------------------------------


def _declare(program: Program, t: Tensor) -> None:
    """Add a tensor as Program's own methods do."""
    check_length(t.name)
    where = f"tensor {t.name}"
    check_numbers((t.shape, t.partition_bytes, t.address or 0, t.partition), where)
    if (t.memory, t.kind) not in _WORDS:
        raise ProgramError(where, f"{shown(t.kind)} in {t.memory.name}", "input, output, constant or internal in HBM, internal on chip")
    if t.memory is Memory.HBM and (t.address is not None or t.partition):
        raise ProgramError(where, f"address {t.address}, partition {t.partition} in HBM", "no address and partition 0")
    if (t.kind == "constant") != (t.data is not None):
        raise ProgramError(where, f"{'no' if t.data is None else len(t.data)} bytes of data", "data for constants and for nothing else")
    try:
        program._tensor(t.name, t.memory, t.shape, t.dtype, t.kind, t.address, t.partition, t.data)
    except ProgramError as e:  # placed at the line that calls nc-sim, where the file is meant
        raise ProgramError(where, e.found, e.required, e.source) from None
    program.tensors[t.name] = attrs.evolve(program.tensors[t.name], line=check_line(t.line))
    if t.data is not None and len(t.data) != t.partition_bytes:
        raise ProgramError(where, f"{len(t.data)} bytes of data", f"{t.partition_bytes} for {list(t.shape)} of {t.dtype.name}")


def _semaphore(program: Program, name: str) -> int:
    check_length(name)
    try:
        return program.semaphore(name).id
    except ProgramError as e:
        raise ProgramError(f"semaphore {name}", e.found, e.required, e.source) from None


def _semaphores(program: Program) -> Iterable[str]:
    """Names in order of number, which is how files number them."""
    if list(program.semaphores) != list(range(len(program.semaphores))):
        raise ProgramError("semaphores", f"numbers {shown(list(program.semaphores))}", "0, 1, 2 and so on, as Program.semaphore gives them")
    return program.semaphores.values()


def _numbered(step: Step, index: int) -> Step:
    if step.call != index:
        raise ProgramError(step.instruction.mnemonic, f"call {step.call}", f"{index}: a call is numbered by its place")
    return step


def _append(program: Program, step: Step) -> None:
    """Add a step as Program.append does, under the line it was written with."""
    i, queue = step.instruction, step.engine.name.lower()
    where = f"{queue} {i.mnemonic}"  # what i.check() says starts with the mnemonic
    for semaphore in (*(w.semaphore for w in step.waits), *(u.semaphore for u in step.updates)):
        if semaphore not in program.semaphores:
            raise ProgramError(where, f"semaphore {semaphore}", f"one of the {len(program.semaphores)} of the program")
    if not step.chosen and step.engine is not i.engines[0]:
        raise ProgramError(where, f"engine {queue} that nobody chose", f"{i.engines[0].name.lower()}, the default of {i.mnemonic}")
    if i.registers or isinstance(i, Sequenced):
        with placed(where):
            program.check_registers(i)
    for name, view, _ in i.views:
        with placed(f"{where} {name}"):
            program.check_view(view)
    with placed(queue):
        i.check()
        i.check_destinations()
    step.call = len(program.steps)
    program.steps.append(step)
    program._positions[step.engine] += 1
