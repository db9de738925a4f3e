"""What a file is, by its name and its first lines, where in it the entries stand, and the chunks that they come in."""

from __future__ import annotations

import csv
import itertools
import os
import re
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tensorcep.core.checks import check_choice, check_columns, check_shape, fail_value, list_names, warn_user
from tensorcep.entries.io import lines as raw
from tensorcep.entries.labels import are_epochs, check_mode_columns

# What a file is, by its name.

# Extension -> what the file is.
KINDS = {".tns": "tns", **dict.fromkeys((".csv", ".tsv", ".txt", ".dat", ".data"), "csv")}
KINDS |= {".mtx": "mtx", ".parquet": "parquet", ".npz": "npz"}
FORMATS = ("tns", "csv", "parquet", "npz", "mtx")
OF_TEXT = ("tns", "csv", "mtx")
PACKED = (".gz", ".bz2", ".xz", ".zip")
WRITTEN = (".tns", ".tns.gz", ".csv", ".csv.gz", ".parquet", ".npz")
# Extensions of other kinds of files -> what of pandas reads them.
OF_PANDAS = {".json": "read_json(path)", **dict.fromkeys((".jsonl", ".ndjson"), "read_json(path, lines=True)")}
OF_PANDAS |= {".orc": "read_orc(path)", **dict.fromkeys((".feather", ".arrow"), "read_feather(path)")}
OF_PANDAS |= {".dta": "read_stata(path)", **dict.fromkeys((".xlsx", ".xls", ".ods"), "read_excel(path)")}
OF_PANDAS |= {".sav": "read_spss(path)", **dict.fromkeys((".xpt", ".sas7bdat"), "read_sas(path)")}


def format_of(path: str, format: str | None, written: bool = False) -> str:
    """Return what a file that is read, or `written`, is: what the caller says, or else what its extension does."""
    if format is not None:
        return str(check_choice("format", format, FORMATS[:-1] if written else FORMATS))
    kind = None if written and not path.lower().endswith(WRITTEN) else kind_of(path)
    if kind is not None:
        return kind
    found = os.path.splitext(os.path.basename(path).lower())[1]
    if found in OF_PANDAS:
        fail_value(
            f"'{path}' has the extension {found!r}, which pandas reads and tensorcep does not; write what "
            f"pandas.{OF_PANDAS[found]} returns by to_csv or to_parquet, or make a SparseTensor.from_pandas of it."
        )
    extension = f"the unknown extension {found!r}" if found else "no extension"
    known = ", ".join(WRITTEN if written else KINDS)
    packed = "" if written else f" (those of text also with {', '.join(PACKED)})"
    fail_value(f"'{path}' has {extension}; known are {known}{packed}, or pass format=.")


def kind_of(path: str) -> str | None:
    """Return what a file is by its name, None where that does not say it."""
    stem, extension = os.path.splitext(os.path.basename(path).lower())
    if extension not in PACKED:
        return KINDS.get(extension)
    kind = KINDS.get(os.path.splitext(stem)[1])
    if kind is None and extension == ".zip" and zipfile.is_zipfile(path):
        kind = KINDS.get(os.path.splitext(raw.only_member(path, path).lower())[1])
    return kind if kind in OF_TEXT else None


# What the caller says of a file.

LAST = "last column"
EMPTY = "holds no entries; at least one line with indices and a value is needed."
VALUES = ("y", "value", "count")  # a last column of one of these names is no mode
OF_EXCEL = re.compile(r"\ufeff?\"?sep=([^\"\r\n])\"?[\r\n]*$")  # a first line that says the separator
SEPARATORS = (",", "\t", ";", "|", "::")
MOST_COMMENTS = 1000  # lines at the beginning of a file with labels
# How a file says that a value is not known.
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?", ".")


# Takes a malformed line, which is left out then: path, number from 1, what is wrong with it, its text.
BadLine = Callable[[str, int, str, str], None]


def refuse(path: str, number: int, problem: str, text: str) -> None:
    """Raise ValueError for a malformed line."""
    fail_value(f"line {number} of '{path}' {problem}.")


class Schema(NamedTuple):
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
    words: bool = False  # the values are words
    extras: tuple[str, ...] = ()  # columns of further numbers of each entry: exposures, numbers of trials, weights
    format: str | None = None  # what it is, if its extension does not say
    bad_line: BadLine = refuse


def check_schema(how: Schema) -> Schema:
    """Return how to read a file, if it can be done."""
    check_choice("index_base", str(how.index_base), ("0", "1"))
    check_choice("decimal", how.decimal, (".", ","))
    try:
        "".encode("utf-8" if how.encoding is None else how.encoding)
    except (LookupError, TypeError, ValueError):
        fail_value(f"encoding must be one that Python knows, such as latin1, cp1252 or utf-16; got {how.encoding!r}.")
    if how.sep is not None and (not isinstance(how.sep, str) or not how.sep or set(how.sep) & set('"\r\n')):
        fail_value(f"sep must be what stands between the fields of a line, such as ';' or '\\t'; got {how.sep!r}.")
    if how.decimal == how.sep:
        fail_value(f"sep and decimal must differ; got {how.sep!r} for both.")
    return how


# Where in a text file the entries stand.


class TextLayout(NamedTuple):
    """Where the entries stand in a text file: `modes`, `value` and `extras` are positions of fields."""

    path: str
    how: Schema
    separator: str | None  # None: runs of blanks, without quotes
    comment: str | None
    names: tuple[Any, ...]  # of the fields
    modes: tuple[int, ...]
    value: int | None  # None: lines have none
    extras: tuple[int, ...] = ()
    skip: int = 0  # lines before the first entry
    labelled: bool = False
    shape: tuple[int, ...] | None = None  # that the caller or the file's header promises, as they do the number
    n_entries: int | None = None
    mark: str | None = None  # a separator of several characters, in whose place `separator` stands
    as_text: bool = False  # every field is a mode, of text as it stands or none

    @property
    def mode_names(self) -> tuple[Any, ...]:
        """Names of the modes, None where there are indices."""
        return tuple(self.names[field] if self.labelled else None for field in self.modes)


def layout_of(path: str, kind: str, lines: Iterable[str], how: Schema) -> TextLayout:
    """Return the layout of a .tns or csv file from its first lines; no more of `lines` are taken than it needs."""
    if kind == "tns":
        return _tns_layout(path, lines, how)
    found = csv_columns(path, lines, how)
    names = list(found.names)
    modes, value = chosen_columns(path, names, how)
    fields, value_field = tuple(names.index(name) for name in modes), None if value is None else names.index(value)
    extras = tuple(names.index(name) for name in how.extras)
    if not how.header:
        names = [f"mode_{fields.index(j)}" if j in fields else f"column_{j}" for j in names]
    if not how.header and value_field is not None:
        names[value_field] = "y"
    shape = None if how.shape is None or found.labelled else check_shape(how.shape, len(modes))
    return found._replace(names=tuple(names), modes=fields, value=value_field, extras=extras, shape=shape)


def _tns_layout(path: str, lines: Iterable[str], how: Schema) -> TextLayout:
    """Return the layout of a FROSTT file; two fields in the first line make an extended header."""
    if how.value is None:
        fail_value(f"value=None is for csv and parquet; a line of '{path}' ends with its value.")
    if how.extras:
        fail_value(f"'{path}' has no column {how.extras[0]!r}: a .tns file holds indices and values; give a csv file.")
    head = []
    for number, fields in raw.rows(lines, None, "#"):
        head.append((number, fields))
        if len(head) == (4 if head[0][1] == ["sptensor"] else 3) or (len(head) == 1 and len(fields) > 2):
            break
    if not head:
        fail_value(f"'{path}' {EMPTY}")
    number, fields = head[0]
    order, skip = len(fields) - 1, number - 1
    shape: Any = None
    promised: int | None = None
    toolbox = fields == ["sptensor"]  # as Tensor Toolbox and pyttb write it
    if len(fields) == 1 and not toolbox:
        fail_value(f"line {number} of '{path}' has one field; an entry has two indices or more, and a value.")
    if len(fields) <= 2:
        length, said = 4 if toolbox else 2, [*(found for _, found in head), [], [], []]
        counts, sizes = (said[1] + said[3], said[2]) if toolbox else said[:2]
        numbers = [int(item) for item in (*counts, *sizes) if item.isdecimal()]
        is_header = len(head) >= length and len(counts) == 2 and len(numbers) == 2 + len(sizes)
        if not is_header or not 2 <= numbers[0] == len(sizes) or min(numbers[2:]) < 1:
            fail_value(
                f"line {number} of '{path}' begins a file of Tensor Toolbox, but the lines after it do not hold the "
                "order, the sizes and the number of entries; mend it."
                if toolbox
                else f"line {number} of '{path}' has two fields, and is neither an entry (two indices or more, and a "
                "value) nor an extended header (order and number of entries, then a line with the sizes); mend it."
            )
        order, promised, *shape = numbers
        if not toolbox and (len(head) < 3 or promised == 0):
            fail_value(f"'{path}' holds no entries after its header; at least one is needed.")
        skip = head[length - 1][0]
    shape = shape if how.shape is None else how.shape
    shape = None if shape is None else check_shape(shape, order)
    names, modes = (None,) * (order + 1), tuple(range(order))
    return TextLayout(path, how, None, "#", names, modes, order, skip=skip, shape=shape, n_entries=promised)


def separator_in(line: str, decimal: str = ".") -> str:
    """Return what stands between the fields of a line: the comma where it makes at least three."""
    known = [mark for mark in SEPARATORS if mark != decimal]
    try:
        found = {mark: len(raw.split_line(line, mark, None) if len(mark) == 1 else line.split(mark)) for mark in known}
    except csv.Error:  # a field that is too long, of which whoever reads the line tells
        return known[0]
    if max(found.values()) < 2:  # blanks are only asked where nothing else separates anything
        return raw.BLANKS if len(raw.split_line(line, raw.BLANKS, None)) >= 3 else known[0]
    for mark in (";", "\t"):  # between numbers, perhaps with a decimal comma, commas separate nothing
        if found[mark] > 1 and all(raw.number_in(field, ",") is not None for field in line.split(mark)):
            return mark
    return "," if found.get(",", 0) >= max(3, found["\t"]) else max(found, key=lambda mark: found[mark])


def csv_columns(path: str, lines: Iterable[str], how: Schema) -> TextLayout:
    """The layout of a csv file before its modes and value are known; without a header columns have their positions."""
    labelled = how.header if how.labels is None else how.labels
    comment = None if labelled else "#"
    lines, before, said = iter(lines), 0, None
    for text in lines:
        said = said or OF_EXCEL.match(text)
        if (said is None or said.string is not text) and any(raw.filled([text.removeprefix("\ufeff")], comment)):
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
    mark = separator if len(separator) > 1 else None
    layout = TextLayout(path, how, raw.UNIT if mark else separator, comment, (), (), None, labelled=labelled, mark=mark)
    if len(held) > 1:  # a comment is what has not as many fields as the first line without the mark
        alone = (next(raw.rows([one], layout.separator, None), (1, ())) for one in raw.translated([text, *held], mark))
        widths = [len(fields) for _, fields in alone]
        first = widths.index(widths[0], 1) - 1
        before, text, lines = before + first, held[first], itertools.chain(held[first + 1 :], lines)
    number, fields = next(raw.rows(raw.translated(itertools.chain([text], lines), mark), layout.separator, comment))
    number += before
    if not all(raw.is_text(field) for field in fields):
        fail_value(f"line {number} of '{path}' {raw.NOT_TEXT}.")
    if len(fields) == 1 and how.sep is None:
        none = "none of the comma, tab, ;, | and :: separates anything there"
        fail_value(f"line {number} of '{path}' has one field: {none}; say sep= what does.")
    if not how.header:
        return layout._replace(skip=number - 1, names=tuple(range(len(fields))))
    names = [name.strip() for name in fields]
    if all(raw.number_in(name, how.decimal) is not None for name in names):
        fail_value(f"line {number} of '{path}' holds numbers where column names are expected; pass header=False.")
    if len(set(names)) < len(names):
        fail_value(f"line {number} of '{path}' names a column twice: {list_names(names)}; rename one.")
    return layout._replace(skip=number, names=tuple(names))


def chosen_columns(path: str, names: Sequence[Any], how: Schema) -> tuple[list[Any], Any]:
    """Return the columns of the modes (default: all others), and of the value, None where there is none."""
    check_columns(names, how.extras, f"'{path}'")
    rest = [name for name in names if name not in how.extras]
    value = how.value
    if value == LAST and how.modes is None and len(rest) == 2:
        got = f"{rest[:1]!r} beside the last column, {rest[1]!r}, which is taken for the value"
        cure = "pass value=None if there is none and every line is an event to be counted"
        fail_value(f"'{path}' must have at least two modes; got {got}; {cure}.")
    value = rest[-1] if value == LAST and LAST not in names else value
    modes = [name for name in rest if name != value] if how.modes is None else list(how.modes)
    taken = [name for name in how.extras if name == value or name in modes]
    if taken:
        fail_value(f"the column {taken[0]!r} is a mode or the value already; name another one.")
    return check_mode_columns(names, modes, value, f"'{path}'"), value


# Warnings where columns that were taken for the value or for modes, as nobody said which are, look like others.

TIMES = ("timestamp", "time", "date", "datetime", "day", "month", "year", "hour", "ts")
CURE = "name the one that is meant by value= and those of the modes by modes="
FEW = 20  # entries in which every one may well have a row of its own


def check_defaults(
    path: str, how: Schema, modes: Sequence[Any], value: Any, values: Any, shape: Sequence[int] = ()
) -> None:
    """Warn where the last column, taken for the value, looks like a time, or a mode by default has no row twice."""
    if how.value == LAST and value is not None:
        named = str(value).lower() in TIMES
        if named or (not (how.header and value in VALUES) and are_epochs(values)):
            looks = "is called like a time" if named else "has values like times since 1970"
            last = f"the last column of '{path}'" + (f", {value!r}," if how.header else "")
            warn_user(f"{last} is taken for the value and {looks}; {CURE}.", UserWarning)
    n = 0 if values is None else len(values)
    if how.modes is None and n >= FEW and len(modes) > 2:
        alone = [name for name, size in zip(modes, shape, strict=False) if size == n]
        if alone:
            looks = f"has a row of its own for each of the {n} entries, so that nothing can be learned of it"
            cure = "name the columns that are meant by modes= and value="
            warn_user(f"the mode {alone[0]!r} of '{path}' {looks}; {cure}.", UserWarning)


# The entries of a file, some lines at a time.

MOST_ROWS = 2**31
FEW_LINES = 250  # that are read one by one in less time than a call of pandas takes
SHARE = 8  # of a piece of which not all lines are good so many parts are read
TOO_MANY = "there must be at most 2**31 rows in a mode; make ids the labels of rows, by SparseTensor.from_pandas"


class Position(NamedTuple):
    """How far files have been read: `file` of them whole, and `line` lines (of parquet, rows) of the next one."""

    file: int = 0
    line: int = 0


START = Position()


class Chunk(NamedTuple):
    """N entries of a file, column by column."""

    columns: tuple[Any, ...]  # per mode the rows (N,) int32, or the labels: of text text, of parquet what it holds
    values: Any  # (N,) float64, or object where they are words
    extras: dict[Any, NDArray[np.float64]]  # further numbers (N,), by their columns
    position: Position = START  # where the next chunk begins
    lines: NDArray[np.int64] | None = None  # on which of the lines read each was (N,), from 0; None: each on one

    def part(self, first: int, last: int) -> Chunk:
        """Return the entries of the lines from one to before another."""
        if self.lines is not None:
            first, last = np.searchsorted(self.lines, (first, last)).tolist()
        at = slice(first, last)
        extras = {name: found[at] for name, found in self.extras.items()}
        return Chunk(tuple(column[at] for column in self.columns), self.values[at], extras)


def chunk_of(entries: list[list[Any]], names: tuple[Any, ...], how: Schema) -> Chunk:
    """Return entries, each the row (where `names` has None) or label of every mode, extras and value, as a chunk."""
    fields = list(zip(*entries, strict=True)) or [()] * (len(names) + len(how.extras) + 1)
    dtype: Any = np.int32 if names[0] is None else object
    columns = tuple(np.fromiter(field, dtype=dtype, count=len(field)) for field in fields[: len(names)])
    extras = {name: np.array(fields[len(names) + j], dtype=np.float64) for j, name in enumerate(how.extras)}
    values = np.array(fields[-1], dtype=object if how.words else np.float64)
    return Chunk(columns, values, extras)


def chunk_of_frame(frame: pd.DataFrame, columns: Any, value: Any, extras: Any, how: Schema, known: Any) -> Chunk | None:
    """Return the entries of a frame, whose lines were `known`, with their rows or labels; None where some are bad."""
    has_words = how.words and value is not None
    values = np.ones(len(frame)) if value is None else frame[value].to_numpy()
    numbers = [frame[field].to_numpy() for field in extras]
    if has_words and not all(isinstance(word, str) and word not in MISSING and raw.is_text(word) for word in values):
        return None
    for found in numbers if has_words else [values, *numbers]:
        if found.dtype.kind not in "iufb" or not np.isfinite(found).all():
            return None
    lines = None if known is None else np.flatnonzero(known)
    others = {name: found.astype(np.float64, copy=False) for name, found in zip(how.extras, numbers, strict=True)}
    return Chunk(tuple(columns), values if has_words else values.astype(np.float64, copy=False), others, lines=lines)


class ChunkReader:
    """Takes the entries of one file some lines at a time: good ones together, few of others one by one."""

    mode_names: tuple[Any, ...]  # None where there are indices
    value_name: Any = None
    shape: tuple[int, ...] | None = None  # of the modes, where the caller or the file says it
    is_log: bool = False  # lines hold no value: each is an event
    is_text: bool = False  # labels are text, some of which may be spellings of numbers
    # Of a piece the entries, None where a line may be bad or `count` lines cannot be cut off, and its number of lines;
    # its parts of so many lines; the entries of few lines, looked at one by one, and how many lines these were.
    _together: Callable[[Any, int | None], tuple[Chunk | None, int]]
    _parts: Callable[[Any, int], list[Any]]
    _one_by_one: Callable[[Any], tuple[Chunk, int]]

    def __init__(self, position: Position) -> None:
        self._position, self._pieces = position, deque[Any]()  # lines that are read before those behind them
        self._block: Chunk | None = None
        self._n_lines, self._n_taken = 0, 0  # of the block
        self._source: Iterator[Any] = iter(())  # of further pieces

    def take(self, count: int | None) -> Chunk | None:
        """Return the entries of the next `count` lines or fewer (None: as many as are read together), if any."""
        # Labels are objects, but where `count` is None: then they are as pandas has read them.
        while self._block is None:
            piece = self._next_piece(count)
            if piece is None:
                return None
            self._block, n = self._together(piece, count)
            self._n_lines, self._n_taken, few = n, 0, min(FEW_LINES, n if count is None else count) or 1
            if self._block is None and n <= few:
                return self._behind(*self._one_by_one(piece))
            if self._block is None:
                step = count if count is not None and count < n else max(n // SHARE, few)
                self._pieces.extendleft(reversed(self._parts(piece, step)))
        block, first = self._block, self._n_taken
        last = self._n_lines if count is None else min(first + count, self._n_lines)
        self._n_taken, self._block = last, None if last == self._n_lines else block
        return self._behind(block if last - first == self._n_lines else block.part(first, last), last - first)

    def _behind(self, chunk: Chunk, n_lines: int) -> Chunk:
        """Move behind the lines of a chunk."""
        self._position = self._position._replace(line=self._position.line + n_lines)
        return chunk._replace(position=self._position)

    def _next_piece(self, count: int | None) -> Any:
        """The next lines of the file, where that waits for them no more than `count`; None at its end."""
        return self._pieces.popleft() if self._pieces else next(self._source, None)


def rows_of(indices: NDArray[Any], base: int, size: int = MOST_ROWS) -> NDArray[np.int32] | None:
    """Indices that count from `base` as rows that count from 0; None where one is none of the first `size`."""
    if len(indices) and not base <= int(indices.min()) <= int(indices.max()) < base + size:
        return None
    return np.subtract(indices, base, dtype=np.int32, casting="unsafe")


def as_objects(column: Any, texts: bool = False) -> NDArray[Any]:
    """Labels as an array whose `tolist` gives those of Python; integers that were read of text perhaps as that text."""
    if texts and column.dtype == np.int64:
        codes, distinct = pd.factorize(np.asarray(column))
        return np.array(list(map(str, distinct.tolist())), dtype=object)[codes]
    is_plain = isinstance(column.dtype, np.dtype) and column.dtype.kind in "iufbO"
    return np.asarray(column) if is_plain else column.to_numpy(dtype=object)
