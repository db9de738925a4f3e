"""The code on the pages of the site: found, and run from top to bottom; --fill writes down what it prints.

python -m scripts.docs.pages [--fill] [PAGE ...]
"""

from __future__ import annotations

import argparse
import contextlib
import doctest
import io
import re
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "notebooks" / "site"
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
BLOCK = re.compile(r"^```pycon\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """The pages that have code to run."""
    return [path for path in sorted(FOLDER.rglob("*.md")) if BLOCK.search(path.read_text(encoding="utf-8"))]


def failures(path: Path) -> str:
    """Run a page's code in one namespace; what did not come out as the page says, empty if all did."""
    text = "\n".join(BLOCK.findall(path.read_text(encoding="utf-8")))
    test = doctest.DocTestParser().get_doctest(text, {"__name__": "page"}, path.name, str(path), 0)
    told = io.StringIO()
    doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(test, out=told.write)
    return told.getvalue()


def commands(path: Path) -> list[str]:
    """The lines of a page's shell blocks that call this package's program."""
    lines = "\n".join(SHELL.findall(path.read_text(encoding="utf-8"))).splitlines()
    return [line for line in lines if line.startswith("tensorcep ")]


def fill(path: Path) -> None:
    """Write what a page's code prints in place of what it said."""
    namespace: dict[str, object] = {"__name__": "page"}

    def filled(match: re.Match[str]) -> str:
        text = ""
        for example in doctest.DocTestParser().get_examples(match[1]):
            first, *more = example.source.rstrip("\n").split("\n")
            text += "\n".join([f">>> {first}", *(f"... {line}" for line in more)]) + "\n"
            if doctest.SKIP in example.options:
                text += example.want
                continue
            told = io.StringIO()
            with contextlib.redirect_stdout(told):
                exec(compile(example.source, str(path), "single"), namespace)
            text += told.getvalue()
        return f"```pycon\n{text}```"

    path.write_text(BLOCK.sub(filled, path.read_text(encoding="utf-8")), encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fill", action="store_true", help="write down what comes out")
    parser.add_argument("pages", nargs="*", type=Path)
    options = parser.parse_args(argv)
    wrong = 0
    for path in options.pages or pages():
        if options.fill:
            fill(path)
        else:
            told = failures(path)
            wrong += bool(told)
            print(f"{path}: {told or 'ok'}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
