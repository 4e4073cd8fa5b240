"""Which source lines of two versions of a script belong together, by what their instructions are: nobody kept the text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from .alignment import aligned


def corresponding(a: Mapping[str, Iterable[str]], b: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """For a line of A, file.py:41, the line of B; from `b` and `a` the same pairs, turned.

    Either side is its lines and the kinds of instructions on each. In each file, lines in order, those of the same kinds are
    aligned. Where that pairs no more lines than their numbers do, numbers decide. Lines left between two pairs belong together
    where both sides have as many, else where their numbers are the same. What has no line stays without one.
    """
    files = [_by_file(lines) for lines in (a, b)]
    out = {line: line for line in a if line in b and _numbered(line) is None}
    for name in sorted({*files[0]} & {*files[1]}):
        out.update((f"{name}:{x}", f"{name}:{y}") for x, y in _of_file(files[0][name], files[1][name]))
    return out


def _numbered(line: str) -> tuple[str, int] | None:
    name, _, number = line.rpartition(":")
    return (name, int(number)) if number.isascii() and number.isdigit() and str(int(number)) == number else None


def _by_file(lines: Mapping[str, Iterable[str]]) -> dict[str, dict[int, tuple[str, ...]]]:
    files: dict[str, dict[int, tuple[str, ...]]] = {}
    for line, kinds in lines.items():
        if (known := _numbered(line)) is not None:
            files.setdefault(known[0], {})[known[1]] = tuple(sorted(set(kinds)))
    return {name: dict(sorted(found.items())) for name, found in files.items()}


def _of_file(a: Mapping[int, tuple[str, ...]], b: Mapping[int, tuple[str, ...]]) -> Iterator[tuple[int, int]]:
    mine, other = list(a), list(b)
    fixed = [(mine[i], other[j]) for i, j in aligned(list(a.values()), list(b.values()))]
    same = [(k, k) for k in mine if a[k] == b.get(k)]
    if len(same) >= len(fixed):
        fixed = same
    yield from fixed
    i = j = 0
    for x, y in [*fixed, (None, None)]:
        p, q = (len(mine), len(other)) if x is None or y is None else (mine.index(x, i), other.index(y, j))
        yield from _between(mine[i:p], other[j:q])
        i, j = p + 1, q + 1


def _between(a: Sequence[int], b: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(a, b, strict=True)) if len(a) == len(b) else [(k, k) for k in sorted({*a} & {*b})]
