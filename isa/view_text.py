"""Views as text, which `str(view)` prints and files hold."""

from __future__ import annotations

import functools
import re
from typing import cast

from .dtypes import DTYPES
from .dynamic import BITS, COLUMN_TYPES, INDEX_TYPES, NAME, Dynamic, Kind, Register
from .errors import ProgramError
from .view import Memory, View

_TEXT = re.compile(
    r"(?P<memory>hbm|sbuf|psum):(?P<tensor>[\w.$-]*)\+(?P<offset>0x[0-9a-f]+|-0x[0-9a-f]+):(?P<dtype>\w+)"
    r"\[(?P<strides>(?:-?\d+(?:,-?\d+)*)?)\]\[(?P<counts>(?:\d+(?:,\d+)*)?)\](?:@(?P<first>\d+):(?P<last>\d+))?"
)


_OFFSET = re.compile("-?0x[0-9a-f]+")
_DYNAMIC = re.compile(r"(?P<kind>rows|start|columns)\*(?P<step>-?\d+)\[(?P<low>-?0x[0-9a-f]+),(?P<high>-?0x[0-9a-f]+)\](?P<index>[^~]*)")
_NUMBER = re.compile(r"-?\d{1,10}")


def parse_view(text: str) -> View:
    """The view that `str(view)` printed."""
    head, plus, rest = text.partition("+")
    offset, colon, tail = rest.partition(":")
    if plus and colon and _OFFSET.fullmatch(offset) and "~" not in tail:  # slices of a tensor mostly differ in their offset alone
        try:
            v = _pattern(head, tail)
        except ProgramError:
            return _parse_view(text)  # which names this text
        return View(v.tensor, v.memory, v.dtype, v.partition, v.partitions, int(offset, 16), v.strides, v.counts)
    return _parse_view(text)


@functools.lru_cache(1 << 16)
def _pattern(head: str, tail: str) -> View:
    """A view but for its offset."""
    return _parse_view(f"{head}+0x0:{tail}")


def _parse_view(text: str) -> View:
    text, moves, rest = text.partition("~")
    m = _TEXT.fullmatch(text)
    if m is None or m["dtype"] not in DTYPES or (m["first"] is None) != (m["memory"] == "hbm"):
        raise ProgramError("", f"view {text!r}", "memory:tensor+0xOFFSET:dtype[strides][counts]@first:last")
    strides, counts = (tuple(int(x) for x in m[g].split(",") if x) for g in ("strides", "counts"))
    first, last = (int(m["first"]), int(m["last"])) if m["first"] is not None else (0, 0)
    if len(strides) != len(counts):
        raise ProgramError("", f"{len(strides)} strides and {len(counts)} counts", "one stride for each count")
    if last < first:
        raise ProgramError("", f"partitions {first} to {last}", "the first up to the last; none in HBM")
    memory, offset = Memory[m["memory"].upper()], int(m["offset"], 16)
    moved = _parse_dynamic(rest) if moves else None
    if moved is not None and moved.kind == "columns" and (memory is Memory.HBM or strides != (1,)):
        raise ProgramError("", f"view {text!r} with offsets of columns", "one dimension, in SBUF or PSUM")
    if moved is not None and moved.vector and (memory is not Memory.HBM or not counts):
        raise ProgramError("", f"view {text!r} with an index for each row", "a pattern in HBM")
    return View(m["tensor"], memory, DTYPES[m["dtype"]], first, last - first, offset, strides, counts, moved)


def _parse_dynamic(text: str) -> Dynamic:
    if (m := _DYNAMIC.fullmatch(text)) is None:
        raise ProgramError(
            "", f"offset {text!r}", "rows, start or columns, then *STEP[0xLOW,0xHIGH] and the view of the index or a register"
        )
    return dynamic(parse_index(m["index"]), m["kind"], int(m["step"]), int(m["low"], 16), int(m["high"], 16))


def parse_index(text: str) -> View | Register | int:
    """A view, a number of 32 bits, or the name of a register."""
    if _NUMBER.fullmatch(text) and -(1 << (BITS - 1)) <= int(text) < 1 << BITS:
        return int(text)
    return Register(text) if NAME.fullmatch(text) else parse_view(text)


def dynamic(index: View | Register | int, kind: str, step: int, low: int, high: int) -> Dynamic:
    """A dynamic offset from a file: what `ap` would have made, or what became of it where an instruction executed."""
    assert kind in ("start", "rows", "columns"), kind
    types = COLUMN_TYPES if kind == "columns" else INDEX_TYPES
    if isinstance(index, View):
        one = kind != "start" or index.size == 1
        if index.memory is not Memory.SBUF or index.dtype.name not in types or index.dynamic is not None or not one:
            required = f"an SBUF tensor of {' or '.join(types)}" + ", one number" * (kind == "start")
            raise ProgramError("", f"an offset in {index}", required)
    elif kind != "start":
        raise ProgramError("", f"an index for all {kind} in {index!r}", f"an SBUF tensor of {' or '.join(types)}")
    if kind == "columns" and step < 1:
        raise ProgramError("", f"columns {step} elements apart", "at least 1")
    if high < low:
        raise ProgramError("", f"bounds {low} to {high}", "the first byte, then the last")
    return Dynamic(index, cast(Kind, kind), step, low, high)
