"""Print the README's lines of a language, to be run where nothing but the package is installed.

python scripts/release/readme_lines.py {python,bash}
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"


def lines(language: str) -> str:
    """The blocks of a language; of the shell's those of the program, not those that install it.

    Raises
    ------
    ValueError
        If the README has none.
    """
    every = re.findall(r"^```(\w*)\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    found = [text for name, text in every if name == language and (language != "bash" or text.startswith("tensorcep "))]
    if not found:
        raise ValueError(f"README.md has no lines of {language!r}.")
    return "".join(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("language", choices=["python", "bash"])
    print(lines(parser.parse_args().language), end="")


if __name__ == "__main__":
    main()
