"""Where the command `nc-sim` begins: Ctrl-C ends it in one line also while Python still reads the modules of the simulator."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

INTERRUPTED = 128 + signal.SIGINT  # the exit code that shells give


def leave(number: int, frame: Any) -> None:
    """End at once. Nothing is written yet, and an exception could be taken for a module that does not load."""
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


def main() -> None:
    """The command line, with Ctrl-C looked after from here on; the commands take it over when they begin."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave)
    from .__main__ import main as commands

    commands(prog_name="nc-sim")
