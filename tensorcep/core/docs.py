"""Text that the docstrings of several classes share."""

from __future__ import annotations

import inspect
from collections.abc import Mapping


def fill_docstring(cls: type, texts: Mapping[str, str]) -> None:
    """Put texts, indented as they would stand there, for the words that hold their place in the docstring of a class.

    Python 3.13 takes the indentation off a docstring, earlier ones leave it.
    """
    documentation = inspect.cleandoc(cls.__doc__ or "")  # python -OO has none
    for word, text in texts.items():
        documentation = documentation.replace(word, text.strip().replace("\n    ", "\n"))
    cls.__doc__ = documentation
