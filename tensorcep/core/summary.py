"""A summary of a fitted model: facts and tables, as text and as HTML."""

from __future__ import annotations

import html
from dataclasses import dataclass

import pandas as pd

from tensorcep.core.checks import printable

STYLE = "border-collapse:collapse;font-family:sans-serif;font-size:0.9em;margin:0.4em 0 1em 0"


@dataclass(frozen=True, repr=False, eq=False)
class Summary:
    """Facts by name, and tables by title.

    Attributes
    ----------
    title : str
    facts : dict of str
    tables : dict of DataFrame
    """

    title: str
    facts: dict[str, str]
    tables: dict[str, pd.DataFrame]

    def __str__(self) -> str:
        width = max(map(len, self.facts), default=0) + 2
        lines = [self.title, ""]
        lines += [f"{name:<{width}}{text}" for name, text in self.facts.items()]
        for title, table in self.tables.items():
            lines += ["", title, table.to_string(index=False, float_format="%.3g", justify="left")]
        return printable("\n".join(lines))

    __repr__ = __str__

    def to_html(self) -> str:
        """A heading, a table of facts and the tables, without a page around them."""
        facts = "".join(
            f"<tr><th style='text-align:left;padding-right:1em'>{_escaped(name)}</th><td>{_escaped(text)}</td></tr>"
            for name, text in self.facts.items()
        )
        parts = [f"<h2>{_escaped(self.title)}</h2>", f"<table style='{STYLE}'>{facts}</table>"]
        for title, table in self.tables.items():
            drawn = table.to_html(index=False, float_format=lambda x: f"{x:.3g}", border=0, justify="left")
            parts.append(f"<h3>{_escaped(title)}</h3>{printable(drawn)}")
        return "\n".join(parts)

    _repr_html_ = to_html


def _escaped(text: str) -> str:
    """Text in a page, as a reader sees it: no tags, and no signs that turn or hide others."""
    return html.escape(printable(text))
