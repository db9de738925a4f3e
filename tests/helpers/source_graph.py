"""What imports what inside the package, read from the sources with ast: nothing is imported."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "tensorcep"


def module_paths() -> dict[str, Path]:
    """Map every module of the package (dotted, without the leading "tensorcep.") to its file."""
    result = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        result[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return result


def package_names(name: str, path: Path) -> set[str]:
    """Return the names of the package that a module imports ("core.compile.kernel"), late and for type checks too."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = [node.module] if node.module else []
            if node.level:
                base = ["tensorcep", *package[: len(package) - node.level + 1], *base]
            found |= {".".join([*base, alias.name]) for alias in node.names}
    return {t.removeprefix("tensorcep").removeprefix(".") for t in found if t.partition(".")[0] == "tensorcep"}


def package_imports(name: str, path: Path, known: set[str]) -> set[str]:
    """Return the modules of the package that this one imports: of a name in a module, the module."""
    names = package_names(name, path)
    return {target if target in known else target.rpartition(".")[0] for target in names}


def external_imports(path: Path) -> set[str]:
    """Return the top-level names of everything else that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.split(".")[0])
    return found - {"tensorcep"}


def compiled_sources() -> list[Path]:
    """Return the files that can change what numba compiles: those that reach numba, and all that these import."""
    paths = module_paths()
    graph = {name: package_imports(name, path, set(paths)) for name, path in paths.items()}
    todo = [name for name in paths if "numba" in external_imports(paths[name]) or "core.compile" in graph[name]]
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo.extend(graph[name])
    return [paths[name] for name in sorted(seen)]
