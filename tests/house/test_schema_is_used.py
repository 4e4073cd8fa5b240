"""An accepted knob changes something: every key of the chip schema is read by some code."""

from __future__ import annotations

import re

import pytest

from conftest import REPOSITORY
from nc_sim.schema import SCHEMA

NAMING = ("schema.py", "mechanisms.py", "overrides.py", "speed.py")  # they name keys and read none
SOURCE = "\n".join(p.read_text() for p in (REPOSITORY / "nc_sim").rglob("*.py") if p.name not in NAMING)
SOURCE += "\n".join(p.read_text() for p in (REPOSITORY / "isa").rglob("*.py"))
# keys that code builds from parts: f"tensor.{kind}.load_idle_{rate}_ns" reads as a pattern, if enough of it is literal
FORMATS = {
    f
    for f in re.findall(r'f"([^"\n]+)"', SOURCE)
    if re.search(r"[a-z_]{5}", re.sub(r"\{[^}]*\}", " ", f)) and " " not in re.sub(r"\{[^}]*\}", "", f)
}
PATTERNS = [re.compile(re.sub(r"\\\{[^}]*\\\}", r"[a-z0-9_]+(?:\\.[a-z0-9_]+)?", re.escape(f))) for f in FORMATS]


@pytest.mark.parametrize("key", sorted(SCHEMA))
def test_every_key_of_the_schema_is_read(key: str) -> None:
    read = f'"{key}"' in SOURCE or any(p.fullmatch(key) for p in PATTERNS)
    assert read, key
