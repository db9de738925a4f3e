"""Text that the docstrings of several classes share."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import NamedTuple


def fill_docstring(cls: type, texts: Mapping[str, str]) -> None:
    """Put texts, indented as they would stand there, for the words that hold their place in the docstring of a class.

    Python 3.13 takes the indentation off a docstring, earlier ones leave it.
    """
    documentation = inspect.cleandoc(cls.__doc__ or "")  # python -OO has none
    for word, text in texts.items():
        documentation = documentation.replace(word, text.strip().replace("\n    ", "\n"))
    cls.__doc__ = documentation


class Documented(NamedTuple):
    """What a docstring says of a parameter: its type as it stands there, and its text."""

    type: str = ""
    text: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """The words in the set that the type begins with."""
        found = re.match(r"\{+([^{}]*)\}", self.type)
        return tuple(word.strip(' "') for word in found[1].split(",")) if found else ()

    @property
    def default(self) -> str:
        """The default as it stands there, without quotation marks; empty where there is none."""
        found = re.search(r"default=(.*)$", self.type)
        return found[1].strip('"') if found else ""

    @property
    def summary(self) -> str:
        """The first sentence of the text, without its full stop."""
        found = re.match(r'(.+?)\.(?= ["A-Z]|$)', self.text)
        return found[1] if found else self.text


def documented(parameters: str) -> dict[str, Documented]:
    """What a section of parameters in the style of numpydoc, or a docstring with one, says of each of them."""
    pattern = r"^(\w[\w., ]*) : (.+)\n((?: {4}.*\n)+)"
    found = re.findall(pattern, f"{inspect.cleandoc(parameters)}\n", re.MULTILINE)
    return {name: Documented(kind, " ".join(text.split())) for names, kind, text in found for name in names.split(", ")}
