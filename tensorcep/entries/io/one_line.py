"""One line at a time: the entry that it holds, or what is wrong with it."""

from __future__ import annotations

import csv
import math
import sys
from typing import Any

from tensorcep.core.checks import INT64_MAX, fail_value
from tensorcep.entries.io.layout import MISSING, TextLayout
from tensorcep.entries.io.lines import (
    LONG_FIELD,
    NOT_TEXT,
    ODD,
    comma_hint,
    is_text,
    number_in,
    open_lines,
    rows,
    shown,
    split_line,
)

MOST_ROWS = 2**31
TOO_MANY = "there must be at most 2**31 rows in a mode; make ids the labels of rows, by SparseTensor.from_pandas"


def find_bad_line(layout: TextLayout) -> None:
    """Raise ValueError for the first line that is not an entry, or for a file without entries; else return."""
    empty = True
    with open_lines(layout.place, layout.path, layout.coding) as lines:
        for number, fields in rows(lines, layout.separator, layout.comment):
            if number > layout.skip and not lacks_value(fields, layout):
                empty = False
                problem = line_problem(fields, layout)
                if problem:
                    fail_value(f"line {number} of '{layout.path}' {problem}.")
    if empty:
        fail_value(f"'{layout.path}' holds no entries; at least one line with indices and a value is needed.")


def lacks_value(fields: list[str], layout: TextLayout) -> bool:
    """Whether a line is left out as its value is missing."""
    known = layout.drop_missing and layout.value is not None and len(fields) == layout.n_fields
    return known and fields[layout.value].strip() in MISSING  # type: ignore[index]


def line_problem(fields: list[str], layout: TextLayout) -> str | None:
    """Return what is wrong with a line, or None if it is an entry."""
    if len(fields) != layout.n_fields:
        what = f"has {len(fields)} fields where {layout.n_fields} are expected; mend or remove it"
        of_r = len(fields) == layout.n_fields + 1 and layout.labelled
        return f"{what}, or give row names, as R writes them, a name in the header" if of_r else what
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
        if index - layout.base >= MOST_ROWS:
            return f"{where}; {TOO_MANY}"
    if layout.labelled:
        for field in layout.modes:
            if not is_text(fields[field]):
                return f"has the label {shown(fields[field])}, which {NOT_TEXT}"
            if fields[field] == "":
                return f"has an empty label; mend it, or leave {_named(field, layout)} out of modes="
    return None if layout.value is None else _value_problem(fields[layout.value], layout.value, layout)


def _named(field: int, layout: TextLayout) -> str:
    name = layout.names[field]
    return f"field {field + 1}" if name is None else f"column {shown(str(name))}"


def _value_problem(text: str, field: int, layout: TextLayout) -> str | None:
    value = 0 if layout.words and text.strip() not in MISSING else number_in(text, layout.decimal)
    if not is_text(text):
        return f"has {shown(text)} in field {field + 1}, which {NOT_TEXT}"
    if value is None:
        why = f" ({_named(field, layout)}, the last one; value= names another)" if layout.by_default else ""
        cure = "mend it"
        if text.strip() in MISSING:
            cure = "drop_missing=True leaves such lines out, or mend it"
        cure += comma_hint(text, layout.decimal)
        return f"has {shown(text)} in field {field + 1}, which is not a number{why}; {cure}"
    if not abs(value) <= sys.float_info.max:  # an integer of hundreds of digits is not, and is no float either
        cure = "so leave unobserved cells out" + (" (drop_missing=True does)" if value != value else "")
        return f"has the value {shown(text)}; values must be finite, {cure}"
    return None


def entry_in(text: str, layout: TextLayout) -> list[Any] | str | None:
    """Return the indices from 0 or the labels of a line, then its value; what is wrong; or None for no entry."""
    try:
        fields = split_line(text, layout.separator, layout.comment)
    except csv.Error:
        return LONG_FIELD
    if fields and lacks_value(fields, layout):
        return None
    return (_plain_entry(text, fields, layout) or _checked_entry(fields, layout)) if fields else None


def _plain_entry(text: str, fields: list[str], layout: TextLayout) -> list[Any] | None:
    """Return the entry of an ordinary line in a third of the time; None for any other."""
    if len(fields) != len(layout.names) or layout.value is None or layout.shape is not None or not text.isascii():
        return None
    if layout.words:
        return None
    number, base = fields[layout.value], layout.base
    if layout.decimal != "." or ODD.search(text) or "_" in (number if layout.labelled else text):
        return None
    entry: list[Any] = [fields[field] for field in layout.modes]
    try:
        value = float(number)
        if not layout.labelled:
            entry = [int(field) - base for field in entry]
    except ValueError:
        return None
    good = "" not in entry if layout.labelled else min(entry) >= 0 and max(entry) < MOST_ROWS
    return [*entry, value] if good and math.isfinite(value) else None


def _checked_entry(fields: list[str], layout: TextLayout) -> list[Any] | str:
    problem = line_problem(fields, layout)
    if problem is not None:
        return problem
    entry: list[Any] = [fields[field] for field in layout.modes]
    if not layout.labelled:
        entry = [int(_number(field)) - layout.base for field in entry]
    if layout.value is None:
        return entry
    value = fields[layout.value]
    return [*entry, value if layout.words else float(_number(value, layout.decimal))]


def _number(text: str, decimal: str = ".") -> int | float:
    number = number_in(text, decimal)
    return math.nan if number is None else number
