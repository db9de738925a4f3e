"""The promises of the package's layout: levels, house rules, and an import that is light and compiles nothing."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from _source_graph import PACKAGE, ROOT, external_imports, module_paths, package_imports

# A module imports only from a lower level, or from a module of its own folder whose name starts with an underscore
# (the folder's record or its shared helpers). A folder's __init__ may import the folder's own modules: it is the
# registry. "kernels" stands for every module of that folder that has no line of its own; the digit after the point
# orders what lies on one level.
LEVELS = {
    "_version": 0.0,
    "_jit": 0.0,
    "_checks": 0.0,
    "_files": 0.1,
    "_coo": 0.1,
    "_interop": 0.2,
    "_arviz": 0.3,
    "labels": 1.0,
    "tensor": 1.1,
    "posterior": 1.1,
    "metrics": 1.1,
    "io": 1.2,
    "kernels.slots": 2.0,
    "kernels.special": 2.0,
    "kernels.streams": 2.0,
    "kernels": 2.1,
    "kernels.row_draws": 2.2,
    "sites": 3.0,
    "likelihoods": 3.0,
    "models": 3.0,
    "inference": 4.0,
    "inference.adf": 4.1,
    "inference._revisit": 4.2,
    "inference.glm_full": 4.1,
    "inference.glm": 4.2,
    "predict": 4.0,
    "simulate": 4.0,
    "persist": 4.2,
    "estimators": 5.0,
    "_shipped": 5.9,
    "datasets": 6.0,
    "plots": 6.0,
    "distributed": 6.0,
    "comparison": 6.0,
    "selection": 6.0,
    "river": 6.0,
    "demo": 6.1,
    "cli": 6.2,
}
# The names at the top load on first use, so the package's own __init__ may know every module; __main__ starts the CLI.
ENTRANCES = {"", "__main__"}

MODULES = module_paths()
SOURCES = pytest.mark.parametrize("path", [pytest.param(p, id=name or "tensorcep") for name, p in MODULES.items()])


def level_of(name: str) -> float:
    folder = name
    while folder not in LEVELS:
        folder = folder.rpartition(".")[0]
        if not folder:
            pytest.fail(f"tensorcep.{name} has no level: add it to LEVELS in tests/test_layering.py")
    return LEVELS[folder]


def may_import(name: str, target: str) -> bool:
    folder, _, leaf = target.rpartition(".")
    if folder and name == folder:
        return True  # a registry imports what it lists
    if folder and leaf.startswith("_") and name.rpartition(".")[0] == folder:
        return True  # a record of its own folder
    return level_of(target) < level_of(name)


@pytest.mark.parametrize(("name", "path"), [(n, p) for n, p in MODULES.items() if n not in ENTRANCES])
def test_layering_module_imports_only_lower_levels(name: str, path: Path) -> None:
    level_of(name)
    wrong = sorted(t for t in package_imports(name, path, set(MODULES)) if not may_import(name, t))
    assert not wrong, f"tensorcep.{name} (level {level_of(name)}) may not import {wrong}"


def test_layering_rule_rejects_upward_and_sideways_imports() -> None:
    assert may_import("inference.cep", "likelihoods")
    assert may_import("inference.cep", "inference._run")
    assert may_import("inference", "inference.cep")
    assert not may_import("tensor", "metrics")
    assert not may_import("metrics", "estimators")
    assert not may_import("inference.cep", "inference.laplace")
    assert not may_import("inference.cep", "estimators._base")
    assert may_import("kernels.lanes", "kernels.slots")
    assert not may_import("kernels.slots", "kernels.lanes")


def test_layering_module_without_a_level_is_named() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"tensorcep\.novel\.part has no level: add it to LEVELS"):
        level_of("novel.part")


def test_layering_import_reader_sees_every_form(tmp_path: Path) -> None:
    path = tmp_path / "cep.py"
    path.write_text(
        "import tensorcep.tensor\nfrom tensorcep import labels\nfrom tensorcep.metrics import rmse\n"
        "from . import _run\nfrom ._record import Method\nfrom ..sites import cavity\nimport numpy as np\n"
        "def late():\n    from tensorcep.persist import save\n"
    )
    known = {"", "tensor", "labels", "metrics", "inference", "inference._run", "inference._record", "sites", "persist"}
    expected = {"tensor", "labels", "metrics", "inference._run", "inference._record", "sites", "persist"}
    assert package_imports("inference.cep", path, known) == expected
    assert external_imports(path) == {"numpy"}


def _rule_breaks(path: Path, tree: ast.Module) -> list[str]:
    breaks = []
    in_cli = "cli" in path.relative_to(PACKAGE).parts[0]
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Assert):
            breaks.append(f"line {line}: assert (python -O removes it; raise through _checks)")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print" and not in_cli:
            breaks.append(f"line {line}: print outside the command line")
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            if any(name.split(".")[0] in {"pickle", "cPickle", "dill", "cloudpickle"} for name in names):
                breaks.append(f"line {line}: pickle")
        elif isinstance(node, (ast.Name, ast.Attribute)) and path.name != "_jit.py":
            called = node.id if isinstance(node, ast.Name) else node.attr
            if called in {"jit", "njit", "vectorize", "guvectorize", "cfunc", "jitclass", "stencil"}:
                breaks.append(f"line {line}: {called} outside _jit.py")
    return breaks


@SOURCES
def test_layering_source_keeps_the_house_rules(path: Path) -> None:
    assert _rule_breaks(path, ast.parse(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "source",
    ["assert x", "print(1)", "import pickle", "from pickle import loads", "@numba.njit\ndef f(): pass", "f = njit(g)"],
)
def test_layering_house_rules_catch(source: str) -> None:
    assert len(_rule_breaks(PACKAGE / "tensor.py", ast.parse(source))) == 1


def _run_python(code: str) -> str:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_layering_import_of_package_loads_no_heavy_library() -> None:
    heavy = {"numba", "scipy", "pandas", "sklearn", "tensorly", "matplotlib", "pooch"}
    loaded = set(_run_python("import sys, tensorcep; print(*{n.split('.')[0] for n in sys.modules})").split())
    assert "tensorcep" in loaded
    assert not loaded & heavy


# Prints the compiled kernels alive in the process, whether compiled now or loaded from the cache.
COMPILED = """
import gc
from numba.core.dispatcher import Dispatcher
print(sorted(d.__name__ for d in gc.get_objects() if isinstance(d, Dispatcher) and d.overloads))
"""


def test_layering_import_of_every_module_compiles_nothing() -> None:
    names = [f"tensorcep.{name}" for name in MODULES if name not in ENTRANCES]
    assert _run_python(f"import importlib\nfor n in {names!r}: importlib.import_module(n)\n{COMPILED}") == "[]"


def test_layering_compiled_kernel_is_seen() -> None:
    eager = "import numba\n@numba.njit('f8(f8)')\ndef twice(x): return 2 * x\n"
    assert _run_python(eager + COMPILED) == "['twice']"


def test_layering_public_names_resolve_and_have_docstrings() -> None:
    package = importlib.import_module("tensorcep")
    assert len(package.__all__) == len(set(package.__all__)) > 0
    missing = [name for name in package.__all__ if not hasattr(package, name)]
    assert not missing, f"tensorcep.__all__ lists names that do not exist: {missing}"
    silent = [n for n in package.__all__ if not n.startswith("__") and not getattr(package, n).__doc__]
    assert not silent, f"public names without a docstring: {silent}"
