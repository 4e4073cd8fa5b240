"""Steps as msgpack, a million of them: what steps share is packed once, and each is then a few pieces of bytes.

`forms.encode_step` holds what the form is; the bytes here are those of its lists.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import attrs
import msgpack

from .alike import fields_reader
from .isa import Engine, Instruction, Step, Update, View, Wait, fields_of
from .isa.dma import Dma, DmaCopy
from .isa.errors import ProgramError
from .isa.text import MAX_ITEMS, MAX_TEXT, WHOLE, check_length, check_line, check_numbers

REMEMBERED = 1 << 18  # entries of a cache; a full one is emptied, so that memory stays bounded
COLUMNS = 8  # of a step
OFFSET = 5  # where a view's list has its offset
NONE, NO_TEXT = b"\x90", b"\xa0"  # an empty list, an empty text


def storable(value: Any, where: str = "") -> Any:
    """`value` as msgpack stores it, one NaN for all; ProgramError for what a reader would refuse as too large."""
    kind = type(value)
    if (kind is int and -WHOLE <= value <= WHOLE) or (kind is str and len(value) * 4 <= MAX_TEXT) or kind is bool:
        return value
    if isinstance(value, float):
        return float(value) if value == value else math.nan
    if isinstance(value, list):
        if len(value) > MAX_ITEMS:
            raise ProgramError(where, f"{len(value)} entries", f"at most {MAX_ITEMS}")
        return [v if type(v) is int and -WHOLE <= v <= WHOLE else storable(v, where) for v in value]  # without a call for most
    if isinstance(value, str):
        check_length(value, where)
    elif isinstance(value, int) and not isinstance(value, bool):
        check_numbers(value, where)
        return int(value)
    return value


def wait_row(w: Wait) -> list[Any]:
    """A wait as a list."""
    return [w.semaphore, w.value]


def update_row(u: Update) -> list[Any]:
    """An update as a list."""
    return [u.semaphore, int(u.op), u.value, int(u.when)]


@attrs.frozen
class _Class:
    """What is packed once for a class of instruction on an engine."""

    head: bytes  # up to the first field
    read: Callable[[Instruction], tuple[Any, ...]]
    fields: tuple[tuple[str, bytes, Callable[[Any], Any], dict[Any, bytes]], ...]  # name, packed, encode, names and flags packed before


class StepPacker:
    """Packs steps, one after the other."""

    def __init__(self) -> None:
        self.pack: Callable[[Any], bytes] = msgpack.Packer(strict_types=True).pack
        self._classes: dict[tuple[Engine, bool, type[Instruction]], _Class] = {}
        self._instructions: dict[tuple[int, Engine, bool], tuple[bytes, Instruction]] = {}
        self._views: dict[View, bytes] = {}
        self._patterns: dict[tuple[Any, ...], tuple[bytes, bytes]] = {}  # views but for their offset: before and after it
        self._lines: dict[str, bytes] = {"": NO_TEXT}
        self._updates: dict[tuple[int, int, int, int], bytes] = {}

    def body(self, step: Step, call: int) -> bytes:
        """All but the user's line, which comes last."""
        i = step.instruction
        # by identity, for 0.0 and -0.0 are equal; the instruction is kept, so that its identity stays its own
        same = id(i), step.engine, step.chosen
        if (found := self._instructions.get(same)) is None:
            data = self._instruction(step)
            if not isinstance(i, Dma | DmaCopy):  # of which no two are alike, as a rule
                if len(self._instructions) >= REMEMBERED:
                    self._instructions.clear()
                self._instructions[same] = data, i
        else:
            data = found[0]
        waits = self._packed_waits(step.waits) if step.waits else NONE
        updates = self._packed_updates(step.updates) if step.updates else NONE
        return b"".join((data, waits, updates, self.pack(call)))

    def _instruction(self, step: Step) -> bytes:
        """Engine, class and operands."""
        i = step.instruction
        key = step.engine, step.chosen, type(i)
        known = self._classes.get(key) or self._class(*key)
        parts, views = [known.head], self._views
        for (name, packed, encode, seen), value in zip(known.fields, known.read(i), strict=True):
            kind = type(value)
            if kind is View:
                data = views.get(value)
                if data is None:
                    data = _remember(views, value, self._view(value, encode, name))
            elif kind is str or kind is bool or value is None:
                data = seen.get(value)
                if data is None:
                    data = _remember(seen, value, self.pack(storable(encode(value), name)))
            else:
                data = self.pack(storable(encode(value), name))
            parts += packed, data
        return b"".join(parts)

    def _view(self, view: View, encode: Callable[[Any], Any], name: str) -> bytes:
        """A view as a list; slices of one tensor differ in their offset alone."""
        if view.dynamic is not None:
            return self.pack(storable(encode(view), name))
        pattern = view.tensor, view.memory, view.dtype.name, view.partition, view.partitions, view.strides, view.counts
        around = self._patterns.get(pattern)
        if around is None or type(view.offset) is not int or not -WHOLE <= view.offset <= WHOLE:
            checked = storable(encode(view), name)
            parts = [self.pack(v) for v in checked]
            head = msgpack.Packer().pack_array_header(len(checked))
            self._patterns[pattern] = around = head + b"".join(parts[:OFFSET]), b"".join(parts[OFFSET + 1 :])
            if len(self._patterns) > REMEMBERED:
                self._patterns.clear()
            return b"".join((around[0], parts[OFFSET], around[1]))
        return b"".join((around[0], self.pack(view.offset), around[1]))

    def _packed_waits(self, waits: tuple[Wait, ...]) -> bytes:
        w = waits[0]
        if len(waits) == 1 and type(w.semaphore) is type(w.value) is int and 0 <= w.semaphore <= WHOLE and 0 <= w.value <= WHOLE:
            return self.pack([[w.semaphore, w.value]])
        return self.pack(storable([wait_row(w) for w in waits], "waits"))

    def line(self, line: str) -> bytes:
        """The user's line."""
        data = self._lines.get(line)
        return _remember(self._lines, line, self.pack(storable(check_line(line), "line"))) if data is None else data

    def _class(self, engine: Engine, chosen: bool, cls: type[Instruction]) -> _Class:
        kinds = fields_of(cls)
        head = (bytes([NONE[0] | COLUMNS]), self.pack(int(engine)), self.pack(chosen), self.pack(cls.mnemonic))
        count = msgpack.Packer().pack_map_header(len(kinds))
        fields = tuple((name, self.pack(name), kind.encode, dict[Any, bytes]()) for name, kind in kinds.items())
        known = self._classes[engine, chosen, cls] = _Class(b"".join((*head, count)), fields_reader(cls), fields)
        return known

    def _packed_updates(self, updates: tuple[Update, ...]) -> bytes:
        """Programs repeat their single updates; numbers are keys only where they are plain ones."""
        u = updates[0]
        key = u.semaphore, u.op, u.value, u.when
        plain = len(updates) == 1 and type(u.semaphore) is int and type(u.value) is int
        if plain and (data := self._updates.get(key)) is not None:
            return data
        data = self.pack(storable([update_row(u) for u in updates], "updates"))
        return _remember(self._updates, key, data) if plain else data


def _remember(cache: dict[Any, bytes], key: Any, data: bytes) -> bytes:
    if len(cache) >= REMEMBERED:
        cache.clear()
    cache[key] = data
    return data
