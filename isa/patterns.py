"""Strided patterns as numbers: how far they reach, whether they repeat, and whether two meet. Strides are in elements."""

from __future__ import annotations

import functools


@functools.lru_cache(maxsize=4096)
def reach(strides: tuple[int, ...], counts: tuple[int, ...]) -> tuple[int, int]:
    """Lowest and highest element of a pattern, from where it starts."""
    low = high = 0
    for stride, count in zip(strides, counts, strict=True):
        far = stride * (count - 1)
        low, high = (low + far, high) if far < 0 else (low, high + far)
    return low, high


@functools.lru_cache(maxsize=4096)
def comb(strides: tuple[int, ...], counts: tuple[int, ...], size: int) -> tuple[int, int, int] | None:
    """Pitch, number and width in bytes of a pattern that is equal runs at equal distances; None for any other.

    One run has pitch 0. `size` is that of an element, in bytes.
    """
    width, pitch, rows = size, 0, 1
    for stride, count in _by_stride(strides, counts, size):
        if rows == 1 and stride == width:
            width *= count
        elif rows == 1 and stride > width:
            pitch, rows = stride, count
        elif rows > 1 and stride == pitch * rows:
            rows *= count
        else:
            return None
    return pitch, rows, width


def combs_meet(a: int, mine: tuple[int, int, int], b: int, theirs: tuple[int, int, int]) -> bool:
    """True if two combs of one pitch, or one of which is a single run, have a byte in common; `a` and `b` are their first bytes."""
    (p, rows, width), (q, others, wide) = mine, theirs
    pitch = max(p, q) or 1
    # Some run of mine starts less than `wide` behind, and less than `width` before, a run of theirs, `apart` rows on.
    least, most = (b - a - width) // pitch + 1, -((a - b - wide) // pitch) - 1
    return max(least, 1 - others) <= min(most, rows - 1)


@functools.lru_cache(maxsize=4096)
def band(strides: tuple[int, ...], counts: tuple[int, ...], size: int) -> tuple[int, int] | None:
    """Pitch and width in bytes of the narrowest columns that hold a pattern, from its first byte on; None if they hold every byte.

    All bytes of the pattern lie in the first `width` of a row, if rows of `pitch` bytes are counted from its first byte.
    """
    found, width, dims = None, size, _by_stride(strides, counts, size)
    for k, (stride, count) in enumerate(dims):
        narrower = width < stride and (found is None or width * found[0] <= found[1] * stride)
        if narrower and all(outer % stride == 0 for outer, _ in dims[k + 1 :]):
            found = stride, width
        width += stride * (count - 1)
    return found


def _by_stride(strides: tuple[int, ...], counts: tuple[int, ...], size: int) -> list[tuple[int, int]]:
    """Dimensions that move, by their stride in bytes."""
    return sorted((abs(s) * size, c) for s, c in zip(strides, counts, strict=True) if s and c > 1)


def nested(strides: tuple[int, ...], counts: tuple[int, ...]) -> bool:
    """Whether each stride passes over all that smaller ones reach."""
    reach = 1
    for stride, count in sorted((abs(s), c) for s, c in zip(strides, counts, strict=True) if c > 1):
        if stride < reach:
            return False
        reach = stride * (count - 1) + reach
    return True


def regroup(strides: tuple[int, ...], counts: tuple[int, ...], dims: list[int]) -> tuple[int, ...] | None:
    """Strides of `dims` over the same elements, or None if one would need two strides."""
    if 0 in counts:
        return tuple(1 for _ in dims)
    source = [(s, c) for s, c in zip(strides, counts, strict=True) if c != 1]
    out: list[int] = []
    for d in reversed(dims):
        if d == 1:
            out.append(1)
            continue
        stride, count = source.pop()
        out.append(stride)
        while d > count:  # merge the next outer dimension, if it continues this one
            if d % count or not source or source[-1][0] != stride * count:
                return None
            count *= source.pop()[1]
        if count % d:
            return None
        if count > d:
            source.append((stride * d, count // d))
    return tuple(reversed(out))
