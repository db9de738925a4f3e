"""Lines of text files: where the entries stand, and which line is at fault."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import math
import os
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple, cast

from tqdm.auto import tqdm

from tensorcep.core.checks import INT64_MAX, check_shape, fail_value

ENCODING = "utf-8-sig"  # plain UTF-8, with or without the mark that spreadsheets put first
GZIP_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error)


class Layout(NamedTuple):
    """Where the entries stand in a text file.

    `separator` None means runs of blanks; `modes` and `value` are field positions; `skip` counts the lines before the
    first entry; indices count from `base`, unless the modes are `labelled`; `shape` and `n_entries` are what the
    caller or the file's header promise.
    """

    path: str
    separator: str | None
    comment: str | None
    n_fields: int
    modes: tuple[int, ...]
    value: int
    skip: int = 0
    base: int = 1
    labelled: bool = False
    shape: tuple[int, ...] | None = None
    n_entries: int | None = None


class _Counted(io.RawIOBase):
    """A raw file that moves a progress bar as it is read."""

    def __init__(self, raw: io.RawIOBase | io.FileIO, bar: Any) -> None:
        super().__init__()
        self._raw, self._bar = raw, bar

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        count = self._raw.readinto(buffer)
        self._bar.update(count or 0)
        return count


@contextlib.contextmanager
def open_binary(path: str, verbose: int = 0) -> Iterator[tuple[BinaryIO, Any]]:
    """Yield a binary handle, decompressing what is gzip, and the progress bar in bytes of the file."""
    size = os.path.getsize(path)
    try:
        with (
            open(path, "rb", buffering=0) as raw,
            tqdm(total=size, desc=os.path.basename(path), unit="B", unit_scale=True, disable=not verbose) as bar,
            io.BufferedReader(_Counted(raw, bar), 1 << 20) as plain,
        ):
            if plain.peek(2)[:2] != b"\x1f\x8b":
                yield plain, raw
            else:
                with gzip.GzipFile(fileobj=plain) as unpacked:
                    yield cast("BinaryIO", unpacked), raw
    except GZIP_ERRORS as error:
        raise ValueError(f"'{path}' is a truncated or damaged gzip file ({error}); fetch or write it again.") from error


def rows(path: str, separator: str | None, comment: str | None) -> Iterator[tuple[int, list[str], str]]:
    """Yield (line number from 1, fields, text) of every line that is not blank or only a comment."""
    with open_binary(path) as (handle, _):
        lines = io.TextIOWrapper(handle, encoding=ENCODING, errors="replace")
        seen = [""]

        def cleaned() -> Iterator[str]:
            for line in lines:
                seen[0] = line
                yield line if comment is None else line.split(comment, 1)[0].strip()

        if separator is None:
            for number, line in enumerate(cleaned(), 1):
                if line:
                    yield number, line.split(), seen[0]
        else:
            reader = csv.reader(cleaned(), delimiter=separator, skipinitialspace=True)
            for fields in reader:
                if fields:
                    yield reader.line_num, fields, seen[0]


def tns_layout(path: str, base: int, shape: Any) -> Layout:
    """Return the layout of a FROSTT file, from its first lines; two fields in the first make an extended header."""
    head = []
    for number, fields, _ in rows(path, None, "#"):
        head.append((number, fields))
        if len(head) == 3 or (len(head) == 1 and len(fields) > 2):
            break
    if not head:
        fail_value(f"'{path}' holds no entries; at least one line with indices and a value is needed.")
    number, fields = head[0]
    if len(fields) == 1:
        fail_value(f"line {number} of '{path}' has one field; an entry has two indices or more, and a value.")
    skip, promised = number - 1, None
    if len(fields) == 2:
        order, promised, dims = _extended_header(path, head)
        skip = head[1][0]
        shape = dims if shape is None else shape
        fields = [""] * (order + 1)
    shape = None if shape is None else check_shape(shape, len(fields) - 1)
    modes = tuple(range(len(fields) - 1))
    return Layout(path, None, "#", len(fields), modes, len(modes), skip, base, False, shape, promised)


def _extended_header(path: str, head: Sequence[tuple[int, list[str]]]) -> tuple[int, int, tuple[int, ...]]:
    numbers = [item for _, fields in head[:2] for item in fields]
    if all(item.isdecimal() for item in numbers):
        order, n_entries, *dims = (int(item) for item in numbers)
        if order >= 2 and len(dims) == order and min(dims) >= 1:
            if len(head) < 3 or n_entries == 0:
                fail_value(f"'{path}' holds no entries after its header; at least one is needed.")
            return order, n_entries, tuple(dims)
    fail_value(
        f"line {head[0][0]} of '{path}' has two fields, and is neither an entry (two indices or more, and a value) nor "
        "an extended header (order and number of entries, then a line with the sizes); mend it."
    )


def find_bad_line(layout: Layout) -> None:
    """Raise ValueError for the first line that is not an entry, or for a file without entries; else return."""
    found = False
    for number, fields, _ in rows(layout.path, layout.separator, layout.comment):
        if number > layout.skip:
            found = True
            problem = line_problem(fields, layout)
            if problem:
                fail_value(f"line {number} of '{layout.path}' {problem}.")
    if not found:
        fail_value(f"'{layout.path}' holds no entries; at least one line with indices and a value is needed.")


def line_problem(fields: list[str], layout: Layout) -> str | None:
    """Return what is wrong with a line, or None if it is an entry."""
    if len(fields) != layout.n_fields:
        return f"has {len(fields)} fields where {layout.n_fields} are expected; mend or remove it"
    for k, field in enumerate([] if layout.labelled else layout.modes):
        index = number_in(fields[field])
        where = f"has index {fields[field]!r} in field {field + 1}"
        if index is None or index != index or index in (math.inf, -math.inf) or index != int(index):
            return f"{where}, which is not an integer; mend it"
        if index < layout.base:
            hint = "pass index_base=0 if this file counts from 0" if index == 0 else "mend it"
            return f"{where}, but indices count from {layout.base}; {hint}"
        if layout.shape is not None and index - layout.base >= layout.shape[k]:
            return f"{where}, beyond the shape {layout.shape}; mend it or give a larger shape"
        if index > INT64_MAX:
            return f"{where}, which is larger than 64 bits hold; mend it"
    value = number_in(fields[layout.value])
    if value is None:
        return f"has {fields[layout.value]!r} in field {layout.value + 1}, which is not a number; mend it"
    if not math.isfinite(value):
        return f"has the value {fields[layout.value]!r}; values must be finite, so leave unobserved cells out"
    return None


def number_in(text: str) -> int | float | None:
    """Return the number that a field holds as the C parser sees it, or None."""
    if "_" in text:
        return None
    with contextlib.suppress(ValueError):
        return int(text)
    with contextlib.suppress(ValueError):
        return float(text)
    return None
