"""What a file is, and where in its lines the indices or labels and the values stand."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

from tensorcep.core.checks import check_choice, check_shape, fail_value, listed
from tensorcep.entries.frames import check_mode_columns
from tensorcep.entries.io.lines import NOT_TEXT, is_text, number_in, rows

LAST = "last column"
VALUES = ("y", "value", "count")  # a last column of one of these names is no mode
EXTENSIONS = (".tns", ".tns.gz", ".csv", ".csv.gz", ".parquet", ".npz")


class Reading(NamedTuple):
    """What the caller says of a file; see `read_tensor`."""

    index_base: int = 1
    header: bool = True
    labels: bool | None = None
    modes: Any = None
    value: Any = LAST
    shape: Any = None


class Layout(NamedTuple):
    """Where the entries stand in a text file.

    `separator` None means runs of blanks; `modes` and `value` are field positions, None for lines without a value;
    `names` are those of the fields; `skip` counts the lines before the first entry; indices count from `base`, unless
    the modes are `labelled`; `shape` and `n_entries` are what the caller or the file's header promise; `copy` is where
    what came out of a pipe has been put.
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


def format_of(path: str, format: str | None) -> str:
    """Return what a file is: what the caller says, or else what its extension does."""
    if format is not None:
        return check_choice("format", format, ("tns", "csv", "parquet", "npz"))
    name = os.path.basename(path).lower()
    for extension in EXTENSIONS:
        if name.endswith(extension):
            return extension.split(".")[1]
    found = os.path.splitext(name)[1]
    fail_value(
        f"'{path}' has {f'the unknown extension {found!r}' if found else 'no extension'}; known are "
        f"{', '.join(EXTENSIONS)}, or pass format=."
    )


def layout_of(path: str, kind: str, lines: Iterable[str], how: Reading) -> Layout:
    """Return the layout of a .tns or csv file from its first lines; no more of `lines` are taken than it needs."""
    return tns_layout(path, lines, how) if kind == "tns" else _csv_layout(path, lines, how)


def tns_layout(path: str, lines: Iterable[str], how: Reading) -> Layout:
    """Return the layout of a FROSTT file; two fields in the first line make an extended header."""
    if how.value is None:
        fail_value(f"value=None is for csv and parquet; a line of '{path}' ends with its value.")
    head = []
    for number, fields in rows(lines, None, "#"):
        head.append((number, fields))
        if len(head) == 3 or (len(head) == 1 and len(fields) > 2):
            break
    if not head:
        fail_value(f"'{path}' holds no entries; at least one line with indices and a value is needed.")
    number, fields = head[0]
    if len(fields) == 1:
        fail_value(f"line {number} of '{path}' has one field; an entry has two indices or more, and a value.")
    order, skip, shape, promised = len(fields) - 1, number - 1, how.shape, None
    if len(fields) == 2:
        order, promised, sizes = _extended_header(path, head)
        skip, shape = head[1][0], sizes if shape is None else shape
    return Layout(
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
    )


def fail_promise(layout: Layout, n_entries: int) -> NoReturn:
    """Refuse a .tns file with another number of entries than its header says."""
    fail_value(
        f"'{layout.path}' holds {n_entries} entries where its header promises {layout.n_entries}; it may be truncated."
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


def _csv_layout(path: str, lines: Iterable[str], how: Reading) -> Layout:
    labelled = how.header if how.labels is None else how.labels
    comment = None if labelled else "#"
    skip, names = csv_names(path, lines, how.header, comment)
    modes, value = chosen_columns(path, names, how.modes, how.value)
    fields, value_field = tuple(names.index(name) for name in modes), None if value is None else names.index(value)
    if not how.header:
        names = [f"mode_{fields.index(j)}" if j in fields else f"column_{j}" for j in names]
    if not how.header and value_field is not None:
        names[value_field] = "y"
    return Layout(
        path=path,
        separator=",",
        comment=comment,
        names=tuple(names),
        modes=fields,
        value=value_field,
        skip=skip,
        base=how.index_base,
        labelled=labelled,
        shape=None if how.shape is None or labelled else check_shape(how.shape, len(modes)),
    )


def csv_names(path: str, lines: Iterable[str], header: bool, comment: str | None) -> tuple[int, list[Any]]:
    """Return how many lines come before the entries, and the names of the columns, or else their positions from 0."""
    first = next(rows(lines, ",", comment), None)
    if first is None:
        fail_value(f"'{path}' is empty; at least one entry is needed.")
    number, fields = first
    if not all(is_text(field) for field in fields):
        fail_value(f"line {number} of '{path}' {NOT_TEXT}.")
    if not header:
        return number - 1, list(range(len(fields)))
    names = [name.strip() for name in fields]
    if all(number_in(name) is not None for name in names):
        fail_value(f"line {number} of '{path}' holds numbers where column names are expected; pass header=False.")
    if len(set(names)) < len(names):
        fail_value(f"line {number} of '{path}' names a column twice: {listed(names)}; rename one.")
    return number, names


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
