"""What is installed is what is in the repository."""

from __future__ import annotations

import tomllib

from conftest import REPOSITORY


def test_every_package_is_listed_for_installation() -> None:
    listed = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found = {"nc_sim", "nc_sim.isa", "nc_sim.workloads"}
    for file in (REPOSITORY / "nc_sim").rglob("__init__.py"):
        found.add(".".join(file.parent.relative_to(REPOSITORY).parts))
    assert set(listed) == found
