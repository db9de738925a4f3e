"""Examples that are kept beside a module, where the module would grow too long with them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

C = TypeVar("C", bound=type)


def with_examples(texts: Mapping[str, str]) -> Callable[[C], C]:
    """Make a decorator that adds examples to the docstrings of a class and of its methods, by their qualified names."""

    def add(cls: C) -> C:
        _add(cls, texts.get(cls.__name__))
        for name, value in vars(cls).items():
            _add(getattr(value, "__func__", value), texts.get(f"{cls.__name__}.{name}"))
        return cls

    return add


def add_examples(functions: Mapping[str, Any], texts: Mapping[str, str]) -> None:
    """Add examples to the docstrings of a module's functions and classes, by their names."""
    for name, text in texts.items():
        _add(functions[name], text)


def filled(cls: type, texts: Mapping[str, str]) -> str:
    """The docstring of a class with texts, indented as they would stand in it, for the words that hold their place.

    Python 3.13 takes the indentation off a docstring, earlier ones leave it.
    """
    documentation = inspect.cleandoc(cls.__doc__ or "")
    for word, text in texts.items():
        documentation = documentation.replace(word, text.strip().replace("\n    ", "\n"))
    return documentation


def _add(target: Any, text: str | None) -> None:
    if text is not None and target.__doc__ and ">>>" not in target.__doc__:
        target.__doc__ = f"{inspect.cleandoc(target.__doc__)}\n\nExamples\n--------\n{text.strip()}\n"
