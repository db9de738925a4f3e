"""What a file is, and where in its lines the indices or labels and the values stand."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

from tensorcep.core.checks import check_choice, check_shape, fail_value, list_names
from tensorcep.entries.convert import check_mode_columns
from tensorcep.entries.io.lines import (
    BLANKS,
    NOT_TEXT,
    filled,
    is_text,
    number_in,
    rows,
    split_line,
    translated,
)
from tensorcep.entries.io.packed import PLAIN, UNIT, Coding, check_encoding

LAST = "last column"
VALUES = ("y", "value", "count")  # a last column of one of these names is no mode
OF_EXCEL = re.compile(r"\ufeff?\"?sep=([^\"\r\n])\"?[\r\n]*$")  # a first line that says the separator
SEPARATORS = (",", "\t", ";", "|", "::")
MOST_COMMENTS = 1000  # lines at the beginning of a file with labels
# How a file says that a value is not known.
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?", ".")


class Reading(NamedTuple):
    """What the caller says of a file; see `read_tensor`."""

    index_base: int = 1
    header: bool = True
    labels: bool | None = None
    modes: Any = None
    value: Any = LAST
    shape: Any = None
    sep: str | None = None
    decimal: str = "."
    encoding: str | None = None
    drop_missing: bool = False
    words: bool = False

    @property
    def coding(self) -> Coding:
        """How the bytes of the text are to be read."""
        return Coding(self.encoding)


def check_reading(how: Reading) -> Reading:
    """Return how to read a file, if it can be done."""
    check_choice("index_base", str(how.index_base), ("0", "1"))
    check_choice("decimal", how.decimal, (".", ","))
    check_encoding(how.encoding)
    if how.sep is not None and (not isinstance(how.sep, str) or not how.sep or set(how.sep) & set('"\r\n')):
        fail_value(f"sep must be what stands between the fields of a line, such as ';' or '\\t'; got {how.sep!r}.")
    if how.decimal == how.sep:
        fail_value(f"sep and decimal must differ; got {how.sep!r} for both.")
    return how


class TextLayout(NamedTuple):
    """Where the entries stand in a text file.

    `separator` None means runs of blanks without quotes; `modes` and `value` are field positions, None for lines
    without a value; `names` are those of the fields; `skip` counts the lines before the first entry; indices count from
    `base`, unless the modes are `labelled`; `shape` and `n_entries` are what the caller or the file's header promise;
    `copy` is where what came out of a pipe has been put; `by_default` says that nobody named the value, which is the
    last column then; lines whose value is missing are left out where `drop_missing` says so; values may be `words`.
    """

    path: str
    separator: str | None
    comment: str | None
    names: tuple[Any, ...]
    modes: tuple[int, ...]
    value: int | None
    skip: int = 0
    base: int = 1
    labelled: bool = False
    shape: tuple[int, ...] | None = None
    n_entries: int | None = None
    copy: str | None = None
    coding: Coding = PLAIN
    decimal: str = "."
    by_default: bool = False
    drop_missing: bool = False
    words: bool = False

    @property
    def place(self) -> str:
        """What to open; `path` is what the user knows."""
        return self.copy or self.path

    @property
    def n_fields(self) -> int:
        """Fields of a line."""
        return len(self.names)

    @property
    def mode_names(self) -> tuple[Any, ...]:
        """Names of the modes, None where there are indices."""
        return tuple(self.names[field] if self.labelled else None for field in self.modes)

    @property
    def value_name(self) -> Any:
        """Name of the value, None where there is none."""
        return None if self.value is None else self.names[self.value]


def layout_of(path: str, kind: str, lines: Iterable[str], how: Reading) -> TextLayout:
    """Return the layout of a .tns or csv file from its first lines; no more of `lines` are taken than it needs."""
    return tns_layout(path, lines, how) if kind == "tns" else _csv_layout(path, lines, how)


def tns_layout(path: str, lines: Iterable[str], how: Reading) -> TextLayout:
    """Return the layout of a FROSTT file; two fields in the first line make an extended header."""
    if how.value is None:
        fail_value(f"value=None is for csv and parquet; a line of '{path}' ends with its value.")
    head = []
    for number, fields in rows(lines, None, "#"):
        head.append((number, fields))
        if len(head) == (4 if head[0][1] == ["sptensor"] else 3) or (len(head) == 1 and len(fields) > 2):
            break
    if not head:
        fail_value(f"'{path}' holds no entries; at least one line with indices and a value is needed.")
    number, fields = head[0]
    if fields == ["sptensor"]:  # as Tensor Toolbox and pyttb write it
        of_toolbox, count, sizes = _toolbox_header(path, head)
        return _tns(path, of_toolbox, head[-1][0], sizes if how.shape is None else how.shape, count, how)
    if len(fields) == 1:
        fail_value(f"line {number} of '{path}' has one field; an entry has two indices or more, and a value.")
    order, skip, shape = len(fields) - 1, number - 1, how.shape
    promised: int | None = None
    if len(fields) == 2:
        order, promised, sizes = _extended_header(path, head)
        skip, shape = head[1][0], sizes if shape is None else shape
    return _tns(path, order, skip, shape, promised, how)


def _tns(path: str, order: int, skip: int, shape: Any, promised: int | None, how: Reading) -> TextLayout:
    return TextLayout(
        path=path,
        separator=None,
        comment="#",
        names=(None,) * (order + 1),
        modes=tuple(range(order)),
        value=order,
        skip=skip,
        base=how.index_base,
        shape=None if shape is None else check_shape(shape, order),
        n_entries=promised,
        coding=how.coding,
        decimal=how.decimal,
        drop_missing=how.drop_missing,
    )


def fail_promise(layout: TextLayout, n_entries: int) -> NoReturn:
    """Refuse a .tns file with another number of entries than its header says."""
    fail_value(
        f"'{layout.path}' holds {n_entries} entries where its header promises {layout.n_entries}; it may be truncated."
    )


def _toolbox_header(path: str, head: Sequence[tuple[int, list[str]]]) -> tuple[int, int, tuple[int, ...]]:
    """The order, the number of entries and the sizes that the lines behind "sptensor" say."""
    numbers = [fields for _, fields in head[1:]]
    if len(head) == 4 and all(item.isdecimal() for fields in numbers for item in fields):
        order, sizes, n_entries = ([int(item) for item in fields] for fields in numbers)
        if len(order) == len(n_entries) == 1 and order[0] == len(sizes) >= 2 and min(sizes) >= 1:
            return order[0], n_entries[0], tuple(sizes)
    fail_value(
        f"line {head[0][0]} of '{path}' begins a file of Tensor Toolbox, but the lines after it do not hold the order, "
        "the sizes and the number of entries; mend it."
    )


def _extended_header(path: str, head: Sequence[tuple[int, list[str]]]) -> tuple[int, int, tuple[int, ...]]:
    numbers = [item for _, fields in head[:2] for item in fields]
    if all(item.isdecimal() for item in numbers):
        order, n_entries, *sizes = (int(item) for item in numbers)
        if order >= 2 and len(sizes) == order and min(sizes) >= 1:
            if len(head) < 3 or n_entries == 0:
                fail_value(f"'{path}' holds no entries after its header; at least one is needed.")
            return order, n_entries, tuple(sizes)
    fail_value(
        f"line {head[0][0]} of '{path}' has two fields, and is neither an entry (two indices or more, and a value) nor "
        "an extended header (order and number of entries, then a line with the sizes); mend it."
    )


def _csv_layout(path: str, lines: Iterable[str], how: Reading) -> TextLayout:
    labelled = how.header if how.labels is None else how.labels
    comment = None if labelled else "#"
    separator, skip, names = csv_names(path, lines, how, comment)
    modes, value = chosen_columns(path, names, how.modes, how.value)
    fields, value_field = tuple(names.index(name) for name in modes), None if value is None else names.index(value)
    if not how.header:
        names = [f"mode_{fields.index(j)}" if j in fields else f"column_{j}" for j in names]
    if not how.header and value_field is not None:
        names[value_field] = "y"
    return csv_layout(path, separator, how)._replace(
        comment=comment,
        names=tuple(names),
        modes=fields,
        value=value_field,
        skip=skip,
        labelled=labelled,
        shape=None if how.shape is None or labelled else check_shape(how.shape, len(modes)),
        by_default=how.value == LAST and value is not None,
    )


def csv_layout(path: str, separator: str, how: Reading) -> TextLayout:
    """Return the layout of a csv file of which no more than the separator is known."""
    several = len(separator) > 1
    return TextLayout(
        path=path,
        separator=UNIT if several else separator,
        comment=None,
        names=(),
        modes=(),
        value=None,
        base=how.index_base,
        labelled=True,
        coding=Coding(how.encoding, separator if several else None),
        decimal=how.decimal,
        drop_missing=how.drop_missing,
        words=how.words,
    )


def separator_in(line: str, decimal: str = ".") -> str:
    """Return what stands between the fields of a line: the comma where it makes at least three.

    Blanks are only asked where nothing else separates anything. Where all that stands between ";" or tabs is a number
    with or without a decimal comma, commas separate nothing.
    """
    known = [mark for mark in SEPARATORS if mark != decimal]
    try:
        found = {mark: len(split_line(line, mark, None) if len(mark) == 1 else line.split(mark)) for mark in known}
    except csv.Error:  # a field that is too long, of which whoever reads the line tells
        return known[0]
    if max(found.values()) < 2:
        return BLANKS if len(split_line(line, BLANKS, None)) >= 3 else known[0]
    for mark in (";", "\t"):
        if found[mark] > 1 and all(number_in(field, ",") is not None for field in line.split(mark)):
            return mark
    if found.get(",", 0) >= max(3, found["\t"]):
        return ","
    return max(found, key=lambda mark: found[mark])


def csv_names(path: str, lines: Iterable[str], how: Reading, comment: str | None) -> tuple[str, int, list[Any]]:
    """Return the separator, how many lines come before the entries, and the names of the columns.

    The latter are their positions from 0 where there is no header.
    """
    lines, before, said = iter(lines), 0, None
    for text in lines:
        said = said or OF_EXCEL.match(text)
        if (said is None or said.string is not text) and any(filled([text.removeprefix("\ufeff")], comment)):
            break
        before += 1
    else:
        fail_value(f"'{path}' is empty; at least one entry is needed.")
    held = [text]
    if comment is None and text.startswith("#"):  # which labels and names of columns may begin with, too
        for line in itertools.islice(lines, MOST_COMMENTS):
            held.append(line)
            text = line if line.strip() else text
            if not text.startswith("#"):
                break
    line = text if comment is None else text.split(comment, 1)[0]
    separator = how.sep or (said[1] if said else separator_in(line, how.decimal))
    layout = csv_layout(path, separator, how)
    if len(held) > 1:  # a comment is what has not as many fields as the first line without the mark
        widths = [
            next((len(fields) for _, fields in rows([one], layout.separator, None)), 0)
            for one in translated([text, *held], layout.coding)
        ]
        first = widths.index(widths[0], 1) - 1
        before, text, lines = before + first, held[first], itertools.chain(held[first + 1 :], lines)
    again = translated(itertools.chain([text], lines), layout.coding)
    number, fields = next(rows(again, layout.separator, comment))
    number += before
    if not all(is_text(field) for field in fields):
        fail_value(f"line {number} of '{path}' {NOT_TEXT}.")
    if len(fields) == 1 and how.sep is None:
        fail_value(
            f"line {number} of '{path}' has one field: none of the comma, tab, ;, | and :: separates anything there; "
            "say sep= what does."
        )
    if not how.header:
        return separator, number - 1, list(range(len(fields)))
    names = [name.strip() for name in fields]
    if all(number_in(name, how.decimal) is not None for name in names):
        fail_value(f"line {number} of '{path}' holds numbers where column names are expected; pass header=False.")
    if len(set(names)) < len(names):
        fail_value(f"line {number} of '{path}' names a column twice: {list_names(names)}; rename one.")
    return separator, number, names


def chosen_columns(path: str, names: list[Any], modes: Any, value: Any) -> tuple[list[Any], Any]:
    """Return the columns of the modes (default: all others), and of the value, None where there is none."""
    if value == LAST and modes is None and len(names) == 2:
        fail_value(
            f"'{path}' must have at least two modes; got {names[:1]!r} beside the last column, {names[1]!r}, which is "
            "taken for the value; pass value=None if there is none and every line is an event to be counted."
        )
    value = names[-1] if value == LAST and LAST not in names else value
    chosen = [name for name in names if name != value] if modes is None else list(modes)
    return check_mode_columns(names, chosen, value, f"'{path}'"), value
