"""What the command line shows of work that takes longer than two seconds: a bar on the terminal, with an estimate."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

AFTER_SECONDS = 2.0

Tell = Callable[[int, int], None]  # work done, work in all


@contextmanager
def shown(what: str, then: str = "", after: float = AFTER_SECONDS) -> Iterator[Tell]:
    """Work under a bar on standard error, where that is a terminal; the block tells how far it is.

    Until it does, the bar only says `what` is done and for how long. From then on it has an estimate, and the name `then`.
    A number that falls begins another part of the work.
    """
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=None)
    last = 0

    def tell(done: int, total: int) -> None:
        nonlocal last
        if done < last:
            bar.reset(task)
        last = done
        bar.update(task, completed=done, total=total, description=then or what)

    timer = threading.Timer(after, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield tell
    finally:
        timer.cancel()
        timer.join()  # a bar that begins just now is there to be stopped
        bar.stop()
