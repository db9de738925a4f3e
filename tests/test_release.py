"""What is published: one version everywhere, and a recipe for conda-forge that says what the project says."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
from helpers.source_graph import ROOT

import tensorcep


def script(name: str) -> ModuleType:
    """A script as a module; its folder is no package."""
    found = importlib.util.spec_from_file_location(name, ROOT / "scripts" / "release" / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture
def writer() -> ModuleType:
    return script("conda_recipe")


def test_release_recipe_holds_version_checksum_and_every_dependency(writer: ModuleType, tmp_path: Path) -> None:
    archive = tmp_path / f"tensorcep-{tensorcep.__version__}.tar.gz"
    archive.write_bytes(b"some bytes")
    text = writer.recipe(archive)
    assert f'version = "{tensorcep.__version__}"' in text
    assert hashlib.sha256(b"some bytes").hexdigest() in text
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    names = [re.match(r"[\w-]+", item)[0] for item in writer.block(project, "dependencies")]  # type: ignore[index]
    assert len(names) == 8
    assert [name for name in names if f"    - {name} >=" not in text] == []
    assert "tensorcep = tensorcep.__main__:run" in text


def test_release_recipe_says_what_a_project_file_lacks(writer: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"pyproject.toml has no list 'dependencies'"):
        writer.block("[project]\n", "dependencies")


def test_release_version_is_that_of_the_citation() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.*)$", citation, re.MULTILINE) == [tensorcep.__version__]


def test_release_runs_the_lines_of_the_readme() -> None:
    readme, printer = (ROOT / "README.md").read_text(encoding="utf-8"), script("readme_lines")
    python, shell = printer.lines("python"), printer.lines("bash")
    assert f"```python\n{python}```" in readme
    assert f"```bash\n{shell}```" in readme
    assert {line.split()[0] for line in shell.splitlines()} == {"tensorcep"}
    with pytest.raises(ValueError, match=r"no lines of 'fortran'"):
        printer.lines("fortran")


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_release_scripts_are_valid_shell() -> None:
    for name in ("docs.sh", "release.sh"):
        subprocess.run(["bash", "-n", str(ROOT / "scripts" / name)], check=True)
