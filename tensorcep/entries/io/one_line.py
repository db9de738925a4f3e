"""One line at a time: the entry that it holds, or what is wrong with it."""

from __future__ import annotations

import csv
import math
import sys
from typing import Any

from tensorcep.core.checks import INT64_MAX, fail_value
from tensorcep.entries.io.layout import Layout
from tensorcep.entries.io.lines import LONG_FIELD, NOT_TEXT, is_text, number_in, open_lines, rows, shown, split_line


def find_bad_line(layout: Layout) -> None:
    """Raise ValueError for the first line that is not an entry, or for a file without entries; else return."""
    empty = True
    with open_lines(layout.place, layout.path) as lines:
        for number, fields in rows(lines, layout.separator, layout.comment):
            if number > layout.skip:
                empty = False
                problem = line_problem(fields, layout)
                if problem:
                    fail_value(f"line {number} of '{layout.path}' {problem}.")
    if empty:
        fail_value(f"'{layout.path}' holds no entries; at least one line with indices and a value is needed.")


def line_problem(fields: list[str], layout: Layout) -> str | None:
    """Return what is wrong with a line, or None if it is an entry."""
    if len(fields) != layout.n_fields:
        return f"has {len(fields)} fields where {layout.n_fields} are expected; mend or remove it"
    for k, field in enumerate([] if layout.labelled else layout.modes):
        index = number_in(fields[field])
        where = f"has index {shown(fields[field])} in field {field + 1}"
        if index is None or index != index or index in (math.inf, -math.inf) or index != int(index):
            return f"{where}, which is not an integer; mend it"
        if index < layout.base:
            hint = "pass index_base=0 if this file counts from 0" if index == 0 else "mend it"
            return f"{where}, but indices count from {layout.base}; {hint}"
        if layout.shape is not None and index - layout.base >= layout.shape[k]:
            return f"{where}, beyond the shape {layout.shape}; mend it or give a larger shape"
        if index - layout.base >= INT64_MAX:  # the size is one more
            return f"{where}, which is larger than 64 bits hold; mend it"
    if layout.labelled:
        for field in layout.modes:
            if not is_text(fields[field]):
                return f"has the label {shown(fields[field])}, which {NOT_TEXT}"
            if fields[field] == "":
                return "has an empty label; mend it"
    return None if layout.value is None else _value_problem(fields[layout.value], layout.value)


def _value_problem(text: str, field: int) -> str | None:
    value = number_in(text)
    if value is None:
        return f"has {shown(text)} in field {field + 1}, which is not a number; mend it"
    if not abs(value) <= sys.float_info.max:  # an integer of hundreds of digits is not, and is no float either
        return f"has the value {shown(text)}; values must be finite, so leave unobserved cells out"
    return None


def entry_in(text: str, layout: Layout) -> list[Any] | str | None:
    """Return the indices from 0 or the labels of a line, then its value; what is wrong; or None for no entry."""
    try:
        fields = split_line(text, layout.separator, layout.comment)
    except csv.Error:
        return LONG_FIELD
    return (_plain_entry(text, fields, layout) or _checked_entry(fields, layout)) if fields else None


def _plain_entry(text: str, fields: list[str], layout: Layout) -> list[Any] | None:
    """Return the entry of an ordinary line in a third of the time; None for any other."""
    if len(fields) != len(layout.names) or layout.value is None or layout.shape is not None or not text.isascii():
        return None
    number, base = fields[layout.value], layout.base
    if "_" in (number if layout.labelled else text):
        return None
    entry: list[Any] = [fields[field] for field in layout.modes]
    try:
        value = float(number)
        if not layout.labelled:
            entry = [int(field) - base for field in entry]
    except ValueError:
        return None
    good = "" not in entry if layout.labelled else min(entry) >= 0 and max(entry) < INT64_MAX
    return [*entry, value] if good and math.isfinite(value) else None


def _checked_entry(fields: list[str], layout: Layout) -> list[Any] | str:
    problem = line_problem(fields, layout)
    if problem is not None:
        return problem
    entry: list[Any] = [fields[field] for field in layout.modes]
    if not layout.labelled:
        entry = [int(_number(field)) - layout.base for field in entry]
    return entry if layout.value is None else [*entry, float(_number(fields[layout.value]))]


def _number(text: str) -> int | float:
    number = number_in(text)
    return math.nan if number is None else number
