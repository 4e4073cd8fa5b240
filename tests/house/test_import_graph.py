"""Dependencies point one way. This list is the documentation of the layers."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from conftest import REPOSITORY

# module -> nc_sim modules it may import (isa counts as one)
CORE_MAY = {"probe", "table", "timeline"}
FAST_MAY = {"isa.errors", "table", "timeline"}
LAYERS = [  # a module may import only from layers above its own
    {"isa", "collection", "progress", "entry"},
    {"arguments", "files", "notebook", "plane"},
    {"schema", "probe", "table"},
    {"chip", "timeline", "program"},
    {"mechanisms", "timing", "access", "alike", "explain", "memory"},
    {"control"},
    {"expand", "allocate"},
    {"costs", "validate", "packing"},
    {"lower"},
    {"core", "fast", "sync", "moving"},
    {"numerics", "race", "forms"},
    {"result", "execution"},
    {"simulate"},
    {"runtime"},
    {"trace"},
    {"profile"},
    {"analysis"},
    {"replay"},
    {"accuracy"},
    {"testing"},
    {"workloads"},
    {"report"},
    {"__main__"},
]
# imports inside functions that close a circle on purpose
DEFERRED = {("result", "trace"), ("result", "simulate"), ("entry", "__main__"), ("notebook", "report")}


def modules() -> list[tuple[str, Path]]:
    package = [(p, REPOSITORY / "nc_sim") for p in sorted((REPOSITORY / "nc_sim").rglob("*.py"))]
    return [(".".join(p.relative_to(root).with_suffix("").parts).removesuffix(".__init__"), p) for p, root in package]


def imported(name: str, path: Path) -> set[str]:
    """nc_sim modules a file imports, as dotted names below nc_sim."""
    out = set()
    package = name.split(".")[:-1] if path.stem != "__init__" else name.split(".")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            if node.level:
                base = package[: len(package) - node.level + 1]
                module = [*base, *(node.module.split(".") if node.module else [])]
                out |= {".".join(module)} if node.module else {".".join([*base, a.name]) for a in node.names}
            elif node.module and node.module.startswith("nc_sim."):
                out.add(node.module.removeprefix("nc_sim."))
    return {m for m in out if m and not m.startswith("__version")}


def layer(module: str) -> int:
    top = module.split(".")[0]
    return next(k for k, names in enumerate(LAYERS) if top in names)


@pytest.mark.parametrize(("name", "path"), [m for m in modules() if m[0] != "__init__"], ids=lambda v: v if isinstance(v, str) else "")
def test_a_module_imports_only_from_layers_above_it(name: str, path: Path) -> None:
    own = name.split(".")[0]
    for other in imported(name, path):
        top = other.split(".")[0]
        if top != own and (own, top) not in DEFERRED:
            assert layer(other) < layer(name), f"{name} imports {other}"


def test_isa_never_imports_the_simulator() -> None:
    for path in sorted((REPOSITORY / "isa").glob("*.py")):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                assert node.level <= 1, f"{path.name} reaches above isa"
                assert not (node.module or "").startswith("nc_sim"), path.name


def test_the_engines_see_no_instruction_no_chip_and_no_cost() -> None:
    assert imported("core", REPOSITORY / "nc_sim" / "core.py") == CORE_MAY
    assert imported("fast", REPOSITORY / "nc_sim" / "fast.py") == FAST_MAY


def test_no_code_asks_for_a_chip_by_name() -> None:
    for path in [*(REPOSITORY / "nc_sim").rglob("*.py"), *(REPOSITORY / "isa").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare):
                literals = [c.value for c in ast.walk(node) if isinstance(c, ast.Constant) and isinstance(c.value, str)]
                assert not {"trn1", "trn2", "trn3", "inf2"} & set(literals), f"{path.name}:{node.lineno}"
