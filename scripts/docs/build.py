"""Build the site: put its sources together below build/, draw its figures, run Sphinx, and check what came out.

python -m scripts.docs.build [--no-run] [--out build/site]
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "notebooks" / "site"


def stage(target: Path) -> None:
    """Copy the sources, write the pages made from package, data and code, and draw what they name as figures/*.svg."""
    from scripts.docs.figures import file_of
    from scripts.docs.measured import write_measured
    from scripts.docs.reference import write_reference

    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(SOURCES, target, ignore=shutil.ignore_patterns("__pycache__"))
    tours = target / "tutorials"
    tours.mkdir(exist_ok=True)
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        shutil.copy(path, tours / path.name)
    shutil.copy(ROOT / "data" / "figures" / "demo.png", target / "_static" / "demo.png")
    write_reference(target)
    write_measured(target)
    quote_docstrings(target)
    pages = [path.read_text(encoding="utf-8") for path in target.rglob("*.md")]
    named = {name for text in pages for name in re.findall(r"figures/(\w+)\.svg", text)}
    (target / "figures").mkdir(exist_ok=True)
    for name in sorted(named):
        shutil.copy(file_of(name, target.parent / "figures"), target / "figures" / f"{name}.svg")


def quote_docstrings(target: Path) -> None:
    """Put the text of a class, up to its first section, where a page says {docstring} and its name."""

    def quoted(match: re.Match[str]) -> str:
        module, _, name = match[1].rpartition(".")
        text = inspect.getdoc(getattr(importlib.import_module(module), name)) or ""
        return re.split(r"^\w+\n-+$", text, maxsplit=1, flags=re.MULTILINE)[0].strip()

    for path in target.rglob("*.md"):
        text = path.read_text(encoding="utf-8")
        path.write_text(re.sub(r"^\{docstring\} (\S+)$", quoted, text, flags=re.MULTILINE), encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site", help="where the pages go")
    parser.add_argument("--no-run", action="store_true", help="do not run the notebooks; show them without outputs")
    options = parser.parse_args(argv)
    out = options.out.resolve()
    source = out.parent / f"{out.name}-source"
    os.environ["TENSORCEP_SITE_RUN"] = "off" if options.no_run else "cache"
    os.environ["TENSORCEP_SITE_CACHE"] = str(out.parent / "notebook-cache")
    os.environ["TENSORCEP_EXAMPLES"] = str(ROOT / "scripts" / "examples")
    os.environ.setdefault("MPLBACKEND", "agg")
    stage(source)
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # the notebooks show their figures
    from sphinx.cmd.build import build_main

    shutil.rmtree(out, ignore_errors=True)
    code = build_main(["-W", "--keep-going", "-q", "-b", "html", "-d", f"{out}-doctrees", str(source), str(out)])
    if code:
        return code
    from scripts.docs.check import complaints

    wrong = complaints(out)
    print("\n".join(wrong) or f"{len(list(out.rglob('*.html')))} pages in {out}", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
