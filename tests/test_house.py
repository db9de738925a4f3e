"""The house: rooms stand on the foundation alone, and importing them is light and compiles nothing.

Families know nothing of each other. What a line of code may not do (assert, print, pickle, kernels of one's own) ruff
checks.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

from helpers.source_graph import PACKAGE, ROOT, module_paths, package_imports, package_names

import tensorcep

FOUNDATION = {"core", "entries", "kernels", "likelihoods", "priors", "ep", "metrics"}
FAMILIES = {"cp", "factor_models", "gaussian_process", "linear"}
ENTRANCES = {"", "__main__"}  # the names of the package load on first use, so it may know every module

# What stands in cp, from the ground up: arrows go down.
CP = ["posterior", "settings", "model", "calibration", "messages", "laplace", "meanfield", "wopt", "cep", "gibbs"]
CP += ["methods", "init", "inputs", "targets", "plan", "fitted", "fit", "stream", "workers", "estimators", "simulate"]


@functools.cache
def names_by_module() -> dict[str, set[str]]:
    """What each module imports of the package: every file is parsed once for all tests."""
    return {name: package_names(name, path) for name, path in module_paths().items()}


@functools.cache
def imports_by_module() -> dict[str, set[str]]:
    """Which modules each module imports, the entrances apart."""
    paths = {name: path for name, path in module_paths().items() if name not in ENTRANCES}
    return {name: package_imports(name, path, set(paths)) & set(paths) - {name} for name, path in paths.items()}


def room(name: str) -> str:
    return name.partition(".")[0]


def may_import(name: str, target: str) -> bool:
    """A room imports the foundation and itself; applications, which are in no room, import what they like."""
    if room(name) in FOUNDATION | FAMILIES and target != "__version__":
        return room(target) in FOUNDATION | ({room(name)} & FAMILIES)
    return True


def is_private(name: str, target: str) -> bool:
    """Whether a name of another room starts with an underscore, or a module on the way to it does."""
    return room(target) != room(name) and any(p[:1] == "_" and p[:2] != "__" for p in target.split("."))


def test_house_rooms_import_the_foundation_and_themselves() -> None:
    assert not [(n, t) for n, targets in names_by_module().items() for t in targets if not may_import(n, t)]


def test_house_rooms_share_no_private_name() -> None:
    assert not [(n, t) for n, targets in names_by_module().items() for t in targets if n and is_private(n, t)]


def test_house_folders_of_cp_import_what_stands_below_them() -> None:
    place = {n: CP.index(n.split(".")[1]) for n in imports_by_module() if n.startswith("cp.")}
    arrows = {(n, t) for n, targets in imports_by_module().items() for t in targets if n in place and t in place}
    assert not [(n, t) for n, t in arrows if place[t] > place[n]]


def test_house_files_import_each_other_in_no_circle() -> None:
    graph = imports_by_module()
    reached = {name: set(targets) for name, targets in graph.items()}
    for middle in graph:
        for name in graph:
            if middle in reached[name]:
                reached[name] |= reached[middle]
    assert not [name for name in graph if name in reached[name]]


def test_house_rules_see_every_import_and_reject_what_they_must(tmp_path: Path) -> None:
    path = tmp_path / "cep.py"
    path.write_text(
        "import tensorcep.tensor\nfrom tensorcep import labels\nfrom tensorcep.metrics import rmse\n"
        "from . import _run\nfrom ._record import Method\nfrom ..sites import cavity\nimport numpy as np\n"
        "def late():\n    from tensorcep.persist import save\n"
    )
    seen = {"tensor", "labels", "metrics.rmse", "ep._run", "ep._record.Method", "sites.cavity", "persist.save"}
    assert package_names("ep.cep", path) == seen
    allowed = [("cp.cep.method", "likelihoods.probit"), ("cp.cep.method", "cp.model"), ("cli.fit", "cp.model")]
    refused = [("cp.cep.method", "linear.sweep"), ("linear.base", "factor_models.vb"), ("kernels.rows", "cp.model")]
    refused += [("priors.learned", "plots"), ("cp.model", ""), ("cp.model", "CPRegressor")]
    assert [may_import(*pair) for pair in allowed + refused] == [True] * len(allowed) + [False] * len(refused)
    names = ["core._jit.kernel", "cp.cep._table", "cp.model.Layout", "__version__"]
    assert [is_private("cp.cep.sweep", name) for name in names] == [True, False, False, False]
    assert [is_private("linear.sweep", name) for name in names] == [True, True, False, False]


def test_house_each_room_tells_what_it_is_in_twenty_lines() -> None:
    for name in FOUNDATION | FAMILIES:
        if (PACKAGE / name).is_dir():
            lines = (PACKAGE / name / "README.md").read_text(encoding="utf-8").splitlines()
            assert 5 <= len(lines) <= 25, name


def run_python(code: str) -> str:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_house_import_of_package_loads_no_heavy_library() -> None:
    heavy = {"numba", "scipy", "pandas", "sklearn", "tensorly", "matplotlib", "pooch"}
    loaded = set(run_python("import sys, tensorcep; print(*{n.split('.')[0] for n in sys.modules})").split())
    assert "tensorcep" in loaded
    assert not loaded & heavy


# Prints the compiled kernels alive in the process, whether compiled now or loaded from the cache: none after every
# import, and then one that numba compiles at once.
COMPILED = """
import gc, importlib
for name in names: importlib.import_module(name)
import numba
from numba.core.dispatcher import Dispatcher
def compiled(): return [d.__name__ for d in gc.get_objects() if isinstance(d, Dispatcher) and d.overloads]
before = compiled()
@numba.njit("f8(f8)")
def twice(x): return 2 * x
print(before, compiled())
"""


def test_house_import_of_every_module_compiles_nothing() -> None:
    names = [f"tensorcep.{name}" for name in module_paths() if name not in ENTRANCES]
    assert run_python(f"names = {names!r}\n{COMPILED}") == "[] ['twice']"


def test_house_public_names_resolve_and_have_docstrings() -> None:
    assert len(set(tensorcep.__all__)) == len(tensorcep.__all__) > 0
    assert not [name for name in tensorcep.__all__ if not getattr(tensorcep, name).__doc__]
