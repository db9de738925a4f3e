"""What a file is, and which of its columns are modes and values."""

from __future__ import annotations

import os
from typing import Any

from tensorcep.core.checks import check_choice, check_columns, check_mode_count, check_shape, fail_value
from tensorcep.entries.io.lines import Layout, number_in

EXTENSIONS = (".tns", ".tns.gz", ".csv", ".csv.gz", ".parquet", ".npz")


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


def csv_layout(
    path: str,
    first: tuple[int, list[str], str] | None,
    header: bool,
    labelled: bool,
    modes: Any,
    value: Any,
    base: int,
    shape: Any = None,
) -> tuple[Layout, list[Any]]:
    """Return the layout of a csv file and the names of its fields, from its first line (number, fields, text)."""
    if first is None:
        fail_value(f"'{path}' is empty; at least one entry is needed.")
    number, fields, _ = first
    names: list[Any] = [name.strip() for name in fields] if header else list(range(len(fields)))
    if header and all(number_in(name) is not None for name in names):
        fail_value(f"line {number} of '{path}' holds numbers where column names are expected; pass header=False.")
    if len(set(names)) < len(names):
        fail_value(f"line {number} of '{path}' names a column twice: {', '.join(names)}; rename one.")
    modes, value = chosen_columns(path, names, modes, value)
    positions = tuple(names.index(name) for name in modes)
    layout = Layout(
        path=path,
        separator=",",
        comment=None if labelled else "#",
        n_fields=len(fields),
        modes=positions,
        value=names.index(value),
        skip=number if header else number - 1,
        base=base,
        labelled=labelled,
        shape=None if shape is None or labelled else check_shape(shape, len(modes)),
    )
    if not header:
        names = [f"mode_{positions.index(j)}" if j in positions else f"column_{j}" for j in names]
        names[layout.value] = "y"
    return layout, names


def chosen_columns(path: str, names: list[Any], modes: Any, value: Any) -> tuple[list[Any], Any]:
    """Return the columns of the modes, and of the value (default: the last)."""
    value = names[-1] if value is None else value
    chosen = [name for name in names if name != value] if modes is None else list(modes)
    check_columns(names, [*chosen, value], f"'{path}'")
    check_mode_count(chosen, what=f"'{path}' must have")
    if len({*chosen, value}) != len(chosen) + 1:
        fail_value(f"modes and value must be different columns; got {chosen} and {value!r}.")
    return chosen, value
