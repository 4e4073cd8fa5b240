"""Which entries of two sequences belong together: a longest common subsequence, exact, the same from either side.

Rows of its table are bits of whole numbers (Hyyrö, "Bit-parallel LCS-length computation revisited", 2004), halves are split as
Hirschberg does where the rows do not fit in memory. Two queues of 100,000 entries without anything to trim take seconds.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from ..table import Ints

KEPT_BITS = 1 << 28  # of the rows that are held to walk back through
MASKS = 1 << 12  # distinct entries whose places are kept as bits
Pairs = list[tuple[int, int]]


def aligned(a: Sequence[Hashable], b: Sequence[Hashable]) -> Pairs:
    """Pairs of indices of equal entries, rising on both sides, as many as can be; from `b` and `a` the same pairs, turned."""
    number = {key: k for k, key in enumerate(sorted({*a, *b}, key=repr))}
    x, y = [number[key] for key in a], [number[key] for key in b]
    if (len(x), x) <= (len(y), y):
        return _trimmed(x, y)
    return [(i, j) for j, i in _trimmed(y, x)]


def _trimmed(a: list[int], b: list[int]) -> Pairs:
    """Equal beginnings and ends belong together; between them only entries that both sides have can."""
    shortest = min(len(a), len(b))
    head = next((k for k in range(shortest) if a[k] != b[k]), shortest)
    tail = next((k for k in range(shortest - head) if a[-1 - k] != b[-1 - k]), shortest - head)
    out = [(k, k) for k in range(head)]
    both = set(a[head : len(a) - tail]) & set(b[head : len(b) - tail])
    mine, other = ([k for k in range(head, len(s) - tail) if s[k] in both] for s in (a, b))
    out += [(mine[i], other[j]) for i, j in _longest([a[k] for k in mine], [b[k] for k in other])]
    return out + [(len(a) - k, len(b) - k) for k in range(tail, 0, -1)]


def _longest(a: list[int], b: list[int]) -> Pairs:
    out: Pairs = []
    waiting = [(0, len(a), 0, len(b))]
    while waiting:
        top, bottom, left, right = waiting.pop()
        if top == bottom or left == right:
            continue
        rows, columns = bottom - top, right - left
        if rows * columns <= KEPT_BITS or rows == 1:
            out += [(top + i, left + j) for i, j in _walked(a[top:bottom], b[left:right])]
            continue
        middle = top + rows // 2
        before = _lengths(a[top:middle], b[left:right])
        after = _lengths(a[middle:bottom][::-1], b[left:right][::-1])[::-1]
        split = left + int(np.argmax(before + after))
        waiting += [(middle, bottom, split, right), (top, middle, left, split)]
    return sorted(out)


class _Rows:
    """Rows of the table one after another: bit j of a row is 0 where its entry is one more than the entry before."""

    def __init__(self, b: list[int]) -> None:
        self.all = (1 << len(b)) - 1
        self.places: dict[int, list[int]] = {}
        for j, key in enumerate(b):
            self.places.setdefault(key, []).append(j)
        self.masks: dict[int, int] = {}

    def mask(self, key: int) -> int:
        """The places of an entry, as bits."""
        if (known := self.masks.get(key)) is not None:
            return known
        places = self.places.get(key, [])
        bits = bytearray(places[-1] // 8 + 1 if places else 0)
        for j in places:
            bits[j >> 3] |= 1 << (j & 7)
        found = int.from_bytes(bits, "little")
        if len(self.masks) < MASKS:
            self.masks[key] = found
        return found

    def after(self, row: int, key: int) -> int:
        hit = row & self.mask(key)
        return ((row + hit) | (row - hit)) & self.all


def _lengths(a: list[int], b: list[int]) -> Ints:
    """How long the longest common subsequence of `a` and each beginning of `b` is."""
    rows = _Rows(b)
    row = rows.all
    for key in a:
        row = rows.after(row, key)
    data = np.frombuffer(row.to_bytes(len(b) // 8 + 1, "little"), np.uint8)
    grows = 1 - np.unpackbits(data, bitorder="little", count=len(b)).astype(np.int64)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(grows)])


def _walked(a: list[int], b: list[int]) -> Pairs:
    """The pairs, found by walking back from the end through the rows."""
    rows = _Rows(b)
    kept = [rows.all]
    for key in a:
        kept.append(rows.after(kept[-1], key))
    out, i, j = [], len(a), len(b)
    row = kept[i]
    while i and j:
        if a[i - 1] == b[j - 1]:
            i, j = i - 1, j - 1
            out.append((i, j))
            row = kept[i]
        elif row >> (j - 1) & 1:
            j -= 1
        else:
            i -= 1
            row = kept[i]
    return out[::-1]
