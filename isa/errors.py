"""The errors a user can meet. Never a warning, never a guess.

Every message reads `where: what was found; what was required (source)`, so that a reader knows where to look, what is
there and what should have been there.
"""

from __future__ import annotations

from collections.abc import Sequence


class NcSimError(Exception):
    """Base of all errors nc-sim raises on purpose."""

    def __init__(self, where: str, found: str, required: str, source: str = "") -> None:
        self.where, self.found, self.required, self.source = where, found, required, source
        super().__init__(where, found, required, source)

    def __str__(self) -> str:
        tail = f" ({self.source})" if self.source else ""
        head = f"{self.where}: " if self.where else ""
        return f"{head}{self.found}; {self.required}{tail}"

    def at(self, where: str) -> NcSimError:
        """The same error, placed: `where` goes in front of what the raiser knew."""
        place = where if not self.where else f"{where} {self.where}" if where else self.where
        return type(self)(place, self.found, self.required, self.source)


class ProgramError(NcSimError):
    """The program is wrong: shape, bounds, capacity, race, deadlock, uninitialised read, or malformed input."""


class Race(ProgramError):
    """Two instructions touch the same bytes, one of them writes, and no semaphore orders them."""


class Deadlock(ProgramError):
    """Nothing can run, but instructions remain.

    `blocked` has one entry per stuck stream, in stream order: (stream, row, semaphore, value waited for, value reached).
    """

    def __init__(
        self,
        where: str,
        found: str,
        required: str,
        source: str = "",
        blocked: Sequence[tuple[int, int, int, int, int]] = (),
    ) -> None:
        super().__init__(where, found, required, source)
        self.blocked = tuple(blocked)

    def at(self, where: str) -> Deadlock:
        placed = super().at(where)
        return Deadlock(placed.where, placed.found, placed.required, placed.source, self.blocked)


class Unsupported(NcSimError):
    """The hardware has it (on some generation); this chip lacks it, or nc-sim chose not to model it."""


def missing_extra(where: str, found: str, extra: str, otherwise: str = "") -> Unsupported:
    """The error where a package of an extra is missing: it says what to type, quoted for shells that expand brackets."""
    return Unsupported(where, found, f"pip install '.[{extra}]' in the clone of nc-sim{otherwise}")


class Unimplemented(NcSimError):
    """nc-sim intends to model it and does not yet."""


class Unspecified(NcSimError):
    """No public source says what the hardware does here, and a guess would look like a fact."""


class ChipError(NcSimError):
    """A chip file or an override of it is wrong; names file and key."""


class InternalError(NcSimError):
    """nc-sim broke one of its own invariants: a bug to report."""
