"""House rules of every source file, and an import that is light and compiles nothing."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.source_graph import PACKAGE, ROOT, external_imports, module_paths, package_imports

# The names at the top load on first use, so the package's own __init__ may know every module; __main__ starts the CLI.
ENTRANCES = {"", "__main__"}

MODULES = module_paths()
SOURCES = pytest.mark.parametrize("path", [pytest.param(p, id=name or "tensorcep") for name, p in MODULES.items()])


def test_house_import_reader_sees_every_form(tmp_path: Path) -> None:
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
        elif isinstance(node, (ast.Name, ast.Attribute)) and path.name != "jit.py":
            called = node.id if isinstance(node, ast.Name) else node.attr
            if called in {"jit", "njit", "vectorize", "guvectorize", "cfunc", "jitclass", "stencil"}:
                breaks.append(f"line {line}: {called} outside core/jit.py")
    return breaks


@SOURCES
def test_house_source_keeps_the_house_rules(path: Path) -> None:
    assert _rule_breaks(path, ast.parse(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "source",
    ["assert x", "print(1)", "import pickle", "from pickle import loads", "@numba.njit\ndef f(): pass", "f = njit(g)"],
)
def test_house_house_rules_catch(source: str) -> None:
    assert len(_rule_breaks(PACKAGE / "tensor.py", ast.parse(source))) == 1


def _run_python(code: str) -> str:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_house_import_of_package_loads_no_heavy_library() -> None:
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


def test_house_import_of_every_module_compiles_nothing() -> None:
    names = [f"tensorcep.{name}" for name in MODULES if name not in ENTRANCES]
    assert _run_python(f"import importlib\nfor n in {names!r}: importlib.import_module(n)\n{COMPILED}") == "[]"


def test_house_compiled_kernel_is_seen() -> None:
    eager = "import numba\n@numba.njit('f8(f8)')\ndef twice(x): return 2 * x\n"
    assert _run_python(eager + COMPILED) == "['twice']"


def test_house_public_names_resolve_and_have_docstrings() -> None:
    package = importlib.import_module("tensorcep")
    assert len(package.__all__) == len(set(package.__all__)) > 0
    missing = [name for name in package.__all__ if not hasattr(package, name)]
    assert not missing, f"tensorcep.__all__ lists names that do not exist: {missing}"
    silent = [n for n in package.__all__ if not n.startswith("__") and not getattr(package, n).__doc__]
    assert not silent, f"public names without a docstring: {silent}"
