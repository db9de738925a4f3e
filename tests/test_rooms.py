"""The promise of the floor plan: family rooms stand on the foundation and know nothing of each other."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from helpers.source_graph import PACKAGE, module_paths, package_imports

FOUNDATION = {"core", "entries", "kernels", "likelihoods", "priors", "ep", "metrics"}
FAMILIES = {"cp", "factor_models", "gaussian_process", "linear"}
MODULES = module_paths()


def room(name: str) -> str:
    return name.partition(".")[0]


def may_import(name: str, target: str) -> bool:
    """A room imports the foundation and itself; applications, which are in no room, import what they like."""
    if room(name) in FOUNDATION:
        return room(target) in FOUNDATION
    if room(name) in FAMILIES:
        return room(target) in FOUNDATION | {room(name)}
    return True


@pytest.mark.parametrize("name", sorted({room(n) for n in MODULES} & (FOUNDATION | FAMILIES)))
def test_rooms_import_the_foundation_and_themselves(name: str) -> None:
    inside = {n: path for n, path in MODULES.items() if room(n) == name}
    wrong = {
        n: [t for t in package_imports(n, p, set(MODULES)) if t and not may_import(n, t)] for n, p in inside.items()
    }
    assert not {n: targets for n, targets in wrong.items() if targets}


def test_rooms_rule_rejects_what_it_must() -> None:
    assert may_import("cp.cep.method", "likelihoods.probit")
    assert may_import("cp.cep.method", "cp.problem")
    assert may_import("cli.fit", "cp.estimators.regressor")
    assert not may_import("cp.cep.method", "linear.sweep")
    assert not may_import("linear.base", "factor_models.vb")
    assert not may_import("kernels.rows", "cp.model")
    assert not may_import("priors.learned", "plots")


def private_imports(name: str, path: Path) -> list[str]:
    """What a module imports from other rooms under names with a leading underscore."""
    result = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tensorcep"):
            home = room(node.module.removeprefix("tensorcep").removeprefix("."))
            parts = [*node.module.split("."), *(alias.name for alias in node.names)]
            if home != room(name):
                result += [f"{node.module}: {part}" for part in parts if part.startswith("_") and part[:2] != "__"]
    return result


def test_rooms_share_no_private_name() -> None:
    wrong = {name: private_imports(name, path) for name, path in MODULES.items() if name}
    assert not {name: found for name, found in wrong.items() if found}


def test_rooms_private_import_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "sweep.py"
    path.write_text("from tensorcep.cp.cep import _table\nfrom tensorcep.core._jit import kernel\n")
    assert private_imports("cp.cep.sweep", path) == ["tensorcep.core._jit: _jit"]
    assert len(private_imports("linear.sweep", path)) == 2


def test_rooms_each_tell_what_they_are_in_twenty_lines() -> None:
    for name in FOUNDATION | FAMILIES:
        if (PACKAGE / name).is_dir():
            lines = (PACKAGE / name / "README.md").read_text(encoding="utf-8").splitlines()
            assert 5 <= len(lines) <= 25, name
