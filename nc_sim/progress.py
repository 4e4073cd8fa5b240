"""How far work is: what long work tells, and the bar that the command line shows of it after two seconds, with an estimate."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
AFTER_SECONDS = 2.0
AT_ONCE = 1 << 12  # items between two calls

FINE = 1000  # steps of a share
PIECES = 200  # of a loop that is tracked: it is told so often

Tell = Callable[[int, int], None]  # work done, work in all
_HEARD: ContextVar[Tell | None] = ContextVar("heard", default=None)  # what the bar that is shown now is told by


def told(items: Sequence[T], tell: Tell | None, at_once: int = AT_ONCE) -> Iterable[T]:
    """The items; after so many, and at the end, it is told how many are done."""
    return items if tell is None else _telling(items, tell, at_once)


def _telling(items: Sequence[T], tell: Tell, at_once: int) -> Iterator[T]:
    for first in range(0, len(items), at_once):
        yield from items[first : first + at_once]
        tell(min(first + at_once, len(items)), len(items))


def track(items: Iterable[T], total: int | None = None) -> Iterator[T]:
    """The items of the outermost loop of a `build()`: the command line's bar then has an estimate of how long building takes.

    `total` is how many there are, if `len(items)` does not say it. Without a bar nothing but the items.
    """
    of = total if total is not None else len(items) if isinstance(items, Sized) else 0
    tell = _HEARD.get()
    every = max(1, of // PIECES)
    for done, item in enumerate(items, 1):
        yield item
        if tell is not None and done <= of and (done % every == 0 or done == of):
            tell(done, of)


def weighted(tell: Tell | None, *weights: int) -> list[Tell | None]:
    """For each of several parts of work that take about so many shares of the time."""
    ends = [FINE * w for w in itertools.accumulate(weights, initial=0)]
    return [part(tell, begin, end, ends[-1]) for begin, end in itertools.pairwise(ends)]


def part(tell: Tell | None, begin: int, end: int, total: int) -> Tell | None:
    """For one part of work: its own numbers become those between `begin` and `end` of `total`."""
    if tell is None:
        return None
    return lambda done, of: tell(begin + (end - begin) * done // max(1, of), total)


@contextmanager
def shown(what: str, then: str = "", after: float = AFTER_SECONDS) -> Iterator[Tell]:
    """Work under a bar on standard error, where that is a terminal; the block tells how far it is.

    Until it does, the bar only says `what` is done and for how long; from then on it has an estimate. A number that falls,
    or another total, begins another part of the work, which has the name `then`.
    """
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console  # not for a command that shows nothing
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=None)
    last: tuple[int, int] | None = None
    name = what

    def tell(done: int, total: int) -> None:
        nonlocal last, name
        if last is not None and (done < last[0] or total != last[1]):
            bar.reset(task)
            name = then or what
        last = done, total
        bar.update(task, completed=done, total=total, description=name)

    timer = threading.Timer(after, bar.start)
    timer.daemon = True
    timer.start()
    before = _HEARD.set(tell)
    try:
        yield tell
    finally:
        _HEARD.reset(before)
        timer.cancel()
        timer.join()  # a bar that begins just now is there to be stopped
        bar.stop()
