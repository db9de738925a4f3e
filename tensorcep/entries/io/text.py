"""Entries of text files: good lines many at a time by pandas' C parser, and any other line by line.

The parser names no lines and takes what is no entry. So it gets blocks of whole lines, and what it makes of them counts
only where every line must hold one good entry; lines that are anything else are looked at one by one.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from io import BufferedIOBase, BytesIO, TextIOWrapper
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from tensorcep.core.checks import INT64_MAX, fail_value
from tensorcep.entries.io import lines as raw
from tensorcep.entries.io import schema

BLOCK = 4 << 20  # bytes: large enough to hide the cost per block, small enough to stay near the processor's caches
IN_CACHE = 1 << 17  # bytes for several array operations in turn
MOST_SPANNED = 1000  # lines of a quoted field
MARK = b"\xef\xbb\xbf"
LINE = re.compile(rb"[^\r\n]*(\r\n|\r|\n)?")
PARSE_ERRORS = (ValueError, OverflowError, TypeError)  # pandas' own ParserError is a ValueError
# Before 3.1 pandas' default was fast but could be off in the last digit; since then it is exact, and the option goes.
_BEFORE = tuple(int(part) for part in pd.__version__.split(".")[:2]) < (3, 1)
_EXACT: dict[str, Any] = {"float_precision": "round_trip"} if _BEFORE else {}


# Many lines together.


# Entries that the parser made of some lines, and of how many lines it made one each, good or without a value.
Block: TypeAlias = "tuple[schema.Chunk, int]"
Dialect: TypeAlias = dict[str, Any]  # what the parser is told of the text


def entries_in(block: bytes, layout: schema.TextLayout, objects: bool = True) -> Block | None:
    """Return the entries of a block; None where some line may not hold a good entry."""
    if b"\r" in block and block.count(b"\r") != block.count(b"\r\n"):
        if b'"' in block:
            return None
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if block.startswith(MARK):
        return None
    for dialect in _dialects(block, layout):
        try:
            with np.errstate(invalid="ignore"):  # an infinite index: pandas warns of its cast before it refuses it
                found = _checked(block, layout, dialect, objects)
        except pd.errors.EmptyDataError:  # nothing but comments
            return schema.chunk_of([], layout.mode_names, layout.how), 0
        except PARSE_ERRORS:
            continue
        if found is not None:
            return found
    return None


def _dialects(block: bytes, layout: schema.TextLayout) -> Iterator[Dialect]:
    """Yield ways to parse a block, quick ones first: these refuse what they would read otherwise than the last one."""
    how, comment = layout.how, layout.comment
    common: dict[str, Any] = {"na_filter": False, "low_memory": not layout.labelled, "decimal": how.decimal}
    common["comment"] = None if comment is None or comment.encode() not in block else comment
    if how.drop_missing and layout.value is not None:
        common |= {"na_filter": True, "keep_default_na": False, "na_values": {layout.value: list(schema.MISSING)}}
    numbers: dict[Any, Any] = dict.fromkeys([] if layout.labelled else layout.modes, np.int64)
    numbers |= dict.fromkeys(layout.extras, np.float64)
    if layout.value is not None:
        numbers[layout.value] = object if how.words else np.float64
    as_they_are = {**dict.fromkeys(range(len(layout.names)), object), **numbers}
    if layout.separator is None:
        blank = re.match(rb"\s*[^ \t\r\n]+([ \t])", block)
        if blank and common["comment"] is None:
            yield {**common, "sep": blank[1].decode(), "quoting": csv.QUOTE_NONE, "dtype": numbers}
        yield {**common, "sep": r"\s+", "quoting": csv.QUOTE_NONE, "dtype": numbers, "encoding_errors": raw.UNDECODED}
        return
    common["sep"] = r"\s+" if layout.separator == raw.BLANKS else layout.separator
    begins_blank = rb"^[ \t]|[ \t](?<=[%b\r\n].)" % re.escape(layout.separator.encode())
    may_be = layout.separator != raw.BLANKS and (b" " in block or b"\t" in block)
    common["skipinitialspace"] = may_be and re.search(begins_blank, block, re.DOTALL) is not None
    # pandas makes an object of each field where bytes that are no text must be kept: so it is asked without first.
    if not layout.as_text:
        yield {**common, "dtype": numbers}
    yield {**common, "dtype": as_they_are, "encoding_errors": raw.UNDECODED}


def _checked(block: bytes, layout: schema.TextLayout, dialect: Dialect, objects: bool) -> Block | None:
    """Return the entries that the parser makes of a block; None where some line may not hold a good one."""
    frame, how = _parsed(block, dialect), layout.how
    n_rows, last = len(frame), len(layout.names) - 1
    if frame.shape[1] != last + 1:
        return None
    known: Any = frame[layout.value].notna().to_numpy() if dialect["na_filter"] else np.ones(0, dtype=bool)
    known = None if known.all() else known
    # A line that ends early leaves empty text in its last field.
    is_free = layout.as_text or last not in (*layout.modes, *layout.extras, layout.value)
    if known is not None or (is_free and _any_empty(frame[last])):
        separator = (layout.separator or " ").encode()
        if b'"' in block or layout.separator in (None, raw.BLANKS) or block.count(separator) != n_rows * last:
            return None
    if known is not None:
        frame = frame[known].reset_index(drop=True)
    columns: list[Any]
    if layout.labelled:
        has_integers = any(frame[field].dtype == np.int64 for field in layout.modes)
        exact = has_integers and not any_number_as_name(block, layout.separator or raw.BLANKS)
        columns = [_labels(frame[field], field, block, layout, dialect, known, exact) for field in layout.modes]
    else:
        sizes = (min(size, schema.MOST_ROWS) for size in layout.shape or (schema.MOST_ROWS,) * len(layout.modes))
        indices = (frame[field].to_numpy() for field in layout.modes)
        columns = [schema.rows_of(found, how.index_base, size) for found, size in zip(indices, sizes, strict=True)]
    if any(found is None for found in columns):
        return None
    if layout.labelled and objects:
        columns = [schema.as_objects(found, texts=True) for found in columns]
    chunk = schema.chunk_of_frame(frame, columns, layout.value, layout.extras, how, known)
    return None if chunk is None else (chunk, n_rows)


def _parsed(block: bytes, dialect: Dialect) -> pd.DataFrame:
    return pd.read_csv(BytesIO(block), header=None, engine="c", **dialect, **_EXACT)


def _labels(
    column: pd.Series, field: int, block: bytes, layout: schema.TextLayout, dialect: Dialect, known: Any, exact: bool
) -> Any:
    """The labels of a field as written: integers where all are written as Python would, else text; None to refuse."""
    if exact and column.dtype == np.int64 and not (b"-0" in block and bool((column == 0).any())):
        return column.to_numpy()
    is_string = isinstance(column.dtype, pd.StringDtype) or dialect["dtype"].get(field) is object
    if not is_string and not (column.dtype == object and pd.api.types.infer_dtype(column, skipna=False) == "string"):
        only = {"dtype": {field: object}, "usecols": [field], "na_filter": False, "encoding_errors": raw.UNDECODED}
        column = _parsed(block, {**{k: v for k, v in dialect.items() if k[:2] not in ("na", "ke")}, **only})[field]
        column = column if known is None else column[known].reset_index(drop=True)
    is_good = column.dtype != object or block.isascii() or raw.is_text("".join(column))
    return column if is_good and (layout.as_text or not _any_empty(column)) else None


def _any_empty(column: pd.Series) -> bool:
    return column.dtype.kind not in "iufb" and bool((column == "").any())


def any_number_as_name(data: bytes, separator: str) -> bool:
    """Whether a field may begin with a blank, a plus, or a 0 before another character."""
    if any(blank in data for blank in {b" ", b"\t"} - {separator.encode()}) or re.match(rb"\+|0[^\x00-/]", data):
        return True
    chars, plus, mark = np.frombuffer(data, np.uint8), b"+" in data, ord(separator)
    for start in range(0, len(data), IN_CACHE):
        before, first, second = (chars[start + at : start + at + IN_CACHE] for at in range(3))
        found = first[: len(second)] == ord("0")
        found &= second > ord("/")
        if plus:
            found |= first[: len(second)] == ord("+")
        begins = before[: len(second)] < ord("-")  # a quote, a blank, the end of a line, most separators
        if mark >= ord("-"):
            begins |= before[: len(second)] == mark
        found &= begins
        if found.any():
            return True
    return False


# One line at a time: the entry that it holds, or what is wrong with it.


def entry_in(text: str, layout: schema.TextLayout) -> list[Any] | str | None:
    """Return the rows or the labels of a line, then its extras and its value; what is wrong; or None for no entry."""
    how, n_fields, base = layout.how, len(layout.names), layout.how.index_base
    try:
        fields = raw.split_line(text, layout.separator, layout.comment)
    except csv.Error:
        return raw.LONG_FIELD
    may_lack = how.drop_missing and layout.value is not None and len(fields) == n_fields
    if not fields or (may_lack and fields[layout.value].strip() in schema.MISSING):  # type: ignore[index]
        return None
    if len(fields) != n_fields:
        what = f"has {len(fields)} fields where {n_fields} are expected; mend or remove it"
        of_r = len(fields) == n_fields + 1 and layout.labelled
        return f"{what}, or give row names, as R writes them, a name in the header" if of_r else what
    entry: list[Any] = [fields[field] for field in layout.modes]
    for k, field in enumerate([] if layout.labelled else layout.modes):
        index = raw.number_in(fields[field])
        where = f"has index {raw.shown(fields[field])} in field {field + 1}"
        if index is None or (isinstance(index, float) and not index.is_integer()):
            return f"{where}, which is not an integer; mend it"
        if index < base:
            hint = "pass index_base=0 if this file counts from 0" if index == 0 else "mend it"
            return f"{where}, but indices count from {base}; {hint}"
        if layout.shape is not None and index - base >= layout.shape[k]:
            return f"{where}, beyond the shape {layout.shape}; mend it or give a larger shape"
        if index - base >= INT64_MAX:  # the size is one more
            return f"{where}, which is larger than 64 bits hold; mend it"
        if index - base >= schema.MOST_ROWS:
            return f"{where}; {schema.TOO_MANY}"
        entry[k] = int(index) - base
    for field in layout.modes if layout.labelled and not layout.as_text else ():
        if not raw.is_text(fields[field]):
            return f"has the label {raw.shown(fields[field])}, which {raw.NOT_TEXT}"
        if fields[field] == "":
            return f"has an empty label; mend it, or leave {_named(field, layout)} out of modes="
    for field in [*layout.extras, *([] if layout.value is None else [layout.value])]:
        number = _value_of(fields[field], field, layout)
        if isinstance(number, str):
            return number
        entry.append(fields[field] if how.words and field == layout.value else float(number))
    return entry if layout.value is not None else [*entry, 1.0]


def _named(field: int, layout: schema.TextLayout) -> str:
    name = layout.names[field]
    return f"field {field + 1}" if name is None else f"column {raw.shown(str(name))}"


def _value_of(text: str, field: int, layout: schema.TextLayout) -> float | str:
    """The number in a field, 0 where a word is asked for, or what is wrong with it."""
    how, is_value = layout.how, field == layout.value
    value = 0 if is_value and how.words and text.strip() not in schema.MISSING else raw.number_in(text, how.decimal)
    if not raw.is_text(text):
        return f"has {raw.shown(text)} in field {field + 1}, which {raw.NOT_TEXT}"
    if value is None:
        by_default = how.value == "last column" and is_value and layout.names[field] is not None
        why = f" ({_named(field, layout)}, the last one; value= names another)" if by_default else ""
        why = why if is_value else f" ({_named(field, layout)})"
        cure = "drop_missing=True leaves such lines out, or " if text.strip() in schema.MISSING and is_value else ""
        cure += "mend it" + raw.comma_hint(text, how.decimal)
        return f"has {raw.shown(text)} in field {field + 1}, which is not a number{why}; {cure}"
    if not abs(value) <= sys.float_info.max:  # an integer of hundreds of digits is not, and is no float either
        cure = "so leave unobserved cells out" + (" (drop_missing=True does)" if value != value else "")
        return f"has the value {raw.shown(text)}; values must be finite, {cure}"
    return value


# Files, block by block.


def blocks_of(handle: BufferedIOBase, size: int) -> Iterator[bytes]:
    """Yield the rest of a file in blocks of whole lines; one without newlines is one block."""
    parts: list[bytes | memoryview] = []
    first = True
    while data := handle.read(size):
        data, first = data.removeprefix(MARK) if first else data, False
        end = data.rfind(b"\n") + 1
        parts.append(memoryview(data)[:end] if end else data)
        if end:
            yield b"".join(parts)
            parts = [data[end:]]
    if any(parts):
        yield b"".join(parts)


def lines_of(block: bytes) -> list[str]:
    """The lines of a block, whichever of the three ends they have."""
    return list(TextIOWrapper(BytesIO(block), "utf-8", raw.UNDECODED, newline=""))


def n_lines_of(block: bytes) -> int:
    if b"\r" in block and block.count(b"\r") != block.count(b"\r\n"):
        return len(block.splitlines())
    chars = np.frombuffer(block, np.uint8)
    parts = (chars[at : at + IN_CACHE] for at in range(0, len(chars), IN_CACHE))
    return sum(int(np.count_nonzero(part == ord("\n"))) for part in parts) + (not block.endswith(b"\n"))


# A piece of text, and its entries where threads look for them; False where few lines are not parsed together.
Piece: TypeAlias = "tuple[bytes, Future[Block | None] | bool | None]"


class TextReader(schema.ChunkReader):
    """The entries of a .tns or csv file from a position on; with threads a few blocks are parsed ahead."""

    is_text = True

    def __init__(
        self, layout: schema.TextLayout, read: Callable[[int | None], bytes], start: schema.Position, pool: Any = None
    ) -> None:
        super().__init__(schema.Position(start.file, max(start.line, layout.skip)))
        self._layout, self._read, self._pool = layout, read, pool
        self._n_filled = 0  # lines with an entry
        self.mode_names = layout.mode_names
        self.value_name = None if layout.value is None else layout.names[layout.value]
        self.shape, self.is_log = layout.shape, layout.value is None
        for count, is_head in ((layout.skip, True), (self._position.line - layout.skip, False)):
            while count and (block := self._next_lines(count)):
                count -= n_lines_of(block)
                self._count_filled(b"" if is_head else block)

    def _next_piece(self, count: int | None) -> Piece | None:
        n_ahead = self._pool._max_workers if self._pool else 0
        while len(self._pieces) <= n_ahead and (block := self._read(count)):
            waiting = self._pool.submit(entries_in, block, self._layout, False) if self._pool else self._pool
            self._pieces.append((block, waiting))
        if self._pieces:
            return self._pieces.popleft()
        self._count_filled(at_end=True)
        return None

    def _next_lines(self, count: int) -> bytes:
        """The next lines, so many or fewer, none at the end."""
        # a block of which a part goes, as a header does, is not given to the threads as it is
        block, waiting = self._pieces.popleft() if self._pieces else (self._read(count), None)
        if n_lines_of(block) <= count:
            return block
        end = 0
        for _ in range(count):
            end = LINE.match(block, end).end()  # type: ignore[union-attr]
        self._pieces.appendleft((block[end:], None if waiting else waiting))
        return block[:end]

    def _count_filled(self, block: bytes = b"", n: int = 0, at_end: bool = False) -> None:
        """Hold the entries so far, with those of a block or `n` more, against what the header promises."""
        promised = self._layout.n_entries
        if promised is not None:
            self._n_filled += n + sum(1 for _ in raw.filled(lines_of(block), self._layout.comment))
            if self._n_filled > promised or (at_end and self._n_filled < promised):
                found = f"'{self._layout.path}' holds {self._n_filled} entries"
                fail_value(f"{found} where its header promises {promised}; it may be truncated.")

    def _parts(self, piece: Piece, step: int) -> list[Piece]:
        lines = piece[0].splitlines(keepends=True)
        return [(b"".join(lines[at : at + step]), False) for at in range(0, len(lines), step)]

    def _together(self, piece: Piece, count: int | None) -> tuple[schema.Chunk | None, int]:
        block, waiting = piece
        found, n = None, n_lines_of(block)
        if isinstance(waiting, Future):
            found = waiting.result()
        elif waiting is None or n > schema.FEW_LINES:
            found = entries_in(block, self._layout, count is not None)
        if found is None or (found[1] != n and count is not None and count < n):
            return None, n
        self._count_filled(n=found[1])
        return found[0], n

    def _one_by_one(self, piece: Piece) -> tuple[schema.Chunk, int]:
        layout, lines = self._layout, lines_of(piece[0])
        self._count_filled(piece[0])
        entries, n = list[list[Any]](), 0
        while n < len(lines):
            text, number = lines[n], self._position.line + n + 1
            entry, used = entry_in(text, layout), 1
            if isinstance(entry, str) and layout.separator is not None and text.count('"') % 2:
                entry, used = self._spanning(lines[n:]) or (entry, used)
            if isinstance(entry, str):
                text = text if layout.mark is None else text.replace(raw.UNIT, layout.mark)
                layout.how.bad_line(layout.path, number, entry, text)
            elif entry is not None:
                entries.append(entry)
            n += used
        return schema.chunk_of(entries, layout.mode_names, layout.how), n

    def _spanning(self, begun: list[str]) -> tuple[Any, int] | None:
        """The entry of the first line and of those in which its quoted field goes on, with their number; or None."""
        text, extra = begun[0], b""
        for used in range(2, MOST_SPANNED):
            if used > len(begun):
                line = self._next_lines(1)
                extra += line
                begun += lines_of(line)
            if used > len(begun):
                break
            text += begun[used - 1]
            if begun[used - 1].count('"') % 2:
                entry = entry_in(text, self._layout)
                if isinstance(entry, str):
                    break
                return entry, used
        if extra:
            self._pieces.appendleft((extra, False))
        return None
