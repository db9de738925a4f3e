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


def package_imports(name: str, path: Path, known: set[str]) -> set[str]:
    """Return the modules of the package that this one imports, in functions and under TYPE_CHECKING too."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        targets: list[str] = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package[: len(package) - node.level + 1]
                base = ".".join(["tensorcep", *(p for p in parents if p), *([base] if base else [])])
            # "from package import x" imports the module x where there is one, and the package otherwise
            targets = [f"{base}.{a.name}" if _inner(f"{base}.{a.name}") in known else base for a in node.names]
        found |= {_inner(t) for t in targets if t == "tensorcep" or t.startswith("tensorcep.")}
    return {target for target in found if target in known}


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
    todo = [name for name in paths if "numba" in external_imports(paths[name]) or "core.jit" in graph[name]]
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo.extend(graph[name])
    return [paths[name] for name in sorted(seen)]


def _inner(dotted: str) -> str:
    return dotted.removeprefix("tensorcep").removeprefix(".")
