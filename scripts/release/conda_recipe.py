"""Write the recipe for conda-forge from pyproject.toml and the source archive.

python scripts/release/conda_recipe.py dist > meta.yaml
"""

from __future__ import annotations

import argparse
import hashlib
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECIPE = """\
{{% set version = "{version}" %}}

package:
  name: tensorcep
  version: {{{{ version }}}}

source:
  url: https://pypi.org/packages/source/t/tensorcep/tensorcep-{{{{ version }}}}.tar.gz
  sha256: {sha256}

build:
  noarch: python
  number: 0
  script: {{{{ PYTHON }}}} -m pip install . -vv --no-deps --no-build-isolation
  entry_points:
    - {entry}

requirements:
  host:
    - python {python}
    - pip
    - {build}
  run:
    - python {python}
{run}

test:
  imports:
    - tensorcep
  requires:
    - pip
  commands:
    - pip check
    - tensorcep --help

about:
  summary: {summary}
  license: {licence}
  license_file: LICENSE
"""


def block(text: str, name: str) -> list[str]:
    """The strings of a list of pyproject.toml; the project's Python may lack a reader of toml."""
    found = re.search(rf"^{name} = \[(.*?)\]\s*(?:#.*)?$", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError(f"pyproject.toml has no list {name!r}.")
    return re.findall(r'"([^"]+)"', found[1])


def value(text: str, name: str) -> str:
    found = re.search(rf'^{name} = "([^"]*)"', text, re.MULTILINE)
    if found is None:
        raise ValueError(f"pyproject.toml has no {name!r}.")
    return found[1]


def spaced(requirement: str) -> str:
    """A requirement as conda writes it: the name, a space, the bounds."""
    return re.sub(r"^([\w.-]+)\s*(?=[<>=!])", r"\1 ", requirement)


def recipe(archive: Path) -> str:
    """The recipe for a source archive, whose name ends in the version."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    version = archive.name.removeprefix("tensorcep-").removesuffix(".tar.gz")
    return RECIPE.format(
        version=version,
        sha256=hashlib.sha256(archive.read_bytes()).hexdigest(),
        python=value(text, "requires-python"),
        build=spaced(block(text, "requires")[0]),
        run="\n".join(f"    - {spaced(name)}" for name in block(text, "dependencies")),
        entry="tensorcep = " + value(text, "tensorcep"),
        summary=value(text, "description"),
        licence=value(text, "license"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dist", type=Path, help="the folder that holds the source archive")
    (archive,) = parser.parse_args().dist.glob("tensorcep-*.tar.gz")
    print(recipe(archive), end="")


if __name__ == "__main__":
    main()
