"""What a file is that is not what was asked for, by its first bytes and its name: so that an error can say it."""

from __future__ import annotations

from pathlib import Path

from ..files import regular

HEAD = 4096  # bytes that tell
# Files of other tools, by how their names end.
SUFFIXES = {
    ".ntff": "the profiler's binary trace, whose format is not public", ".neff": "a compiled program, whose format is not public",
    ".pb": "a runtime trace, whose format is not public", ".parquet": "a Parquet table, which is written already",
    ".pftrace": "a Perfetto file", ".perfetto-trace": "a Perfetto file",
}  # fmt: skip
# And of any, by how they begin.
STARTS = {
    b"PAR1": "a Parquet table", b"\x1f\x8b": "a file compressed by gzip", b"PK\x03\x04": "a zip archive",
    b"\x28\xb5\x2f\xfd": "a file compressed by Zstandard", b"\x7fELF": "an ELF file", b"SQLite format 3\0": "an SQLite database",
    b"\x89PNG": "a picture", b"%PDF": "a PDF document", b"<": "XML or HTML",
}  # fmt: skip
# Files of nc-sim say in their first bytes what they are.
OURS = {
    b"nc-sim hardware trace": "a hardware trace of nc-sim", b"nc-sim system trace": "a system trace of nc-sim",
    b"nc-sim compiled program": "a program, not a trace", b"nc-sim program": "a program, not a trace",
}  # fmt: skip
COLUMNS = (b"timestamp_ns", b"duration_ns")  # of both CSV files of a profile


def named(name: str) -> str | None:
    """What a file is by its name alone."""
    return next((what for suffix, what in SUFFIXES.items() if name.endswith(suffix)), None)


def told(head: bytes, name: str = "") -> str:
    """What the first bytes of a file and its name say; empty where they say nothing."""
    if not head:
        return "an empty file"
    if (named_so := named(name)) is not None:
        return named_so
    for start, what in STARTS.items():
        if head.startswith(start):
            return what
    for text, what in OURS.items():
        if text in head[:64]:
            return what
    if head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"["):
        return "a Chrome trace" if b'"traceEvents"' in head else "a JSON file"
    if all(c in head.split(b"\n")[0] for c in COLUMNS):
        return "a hardware profile in CSV form"
    if head[:1] == b"\n" and any(byte < 9 for byte in head[:64]):  # a first packet, and no text
        return "a Perfetto file"
    return ""


def told_of(path: Path) -> str:
    """The same of a file or a folder; empty where it cannot be read."""
    if path.is_dir():
        return "a folder"
    try:
        with regular(path).open("rb") as f:
            return told(f.read(HEAD), path.name)
    except OSError:
        return ""
