"""Entries from text by pandas' C parser: whole files in blocks of lines, a few at a time in threads, and pieces.

The parser is asked first for the plain dialect of the first entry (one separator, no comments, no quotes), which it
reads twice as fast; it accepts nothing wrong there, since every field must be a number. A file that it refuses is read
again with comments and runs of blanks allowed, and if that fails too, line by line to name the line.
"""

from __future__ import annotations

import collections
import contextlib
import csv
import itertools
import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from io import BytesIO, StringIO
from typing import IO, Any, BinaryIO, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tensorcep.core.checks import reason_of
from tensorcep.entries.io.layout import MISSING, TextLayout, fail_promise
from tensorcep.entries.io.lines import (
    BLANKS,
    ENCODING,
    UNDECODED,
    filled,
    is_text,
    open_binary,
    open_lines,
    skip_lines,
    split_line,
)
from tensorcep.entries.io.one_line import MOST_ROWS, find_bad_line
from tensorcep.entries.io.packed import UnreadableError
from tensorcep.entries.labels import numbers_of

BLOCK = 4 << 20  # bytes: large enough to hide the cost per block, small enough to stay near the processor's caches
PARSE_ERRORS = (ValueError, OverflowError, TypeError)  # pandas' own ParserError is a ValueError
Keys = tuple[list[Any] | None, ...]
MAX_THREADS = 8  # the parser works outside Python's lock, but what surrounds it does not
# Before 3.1 pandas' default was fast but could be off in the last digit; since then it is exact, and the option goes.
_EXACT = {} if tuple(int(p) for p in pd.__version__.split(".")[:2]) >= (3, 1) else {"float_precision": "round_trip"}


def read_entries(
    layout: TextLayout, verbose: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.float64], tuple[int, ...]]:
    """Return coords (N, K), values (N,) and the shape.

    Raises
    ------
    ValueError
        With the number of the first bad line, counted from 1 with comments and headers; or if there is no entry.
    """
    dialects = [general_dialect(layout)]
    plain = _plain_separator(layout)
    if plain is not None:
        dialects.insert(0, {"sep": plain, "quoting": csv.QUOTE_NONE, **_numbers_of(layout)})
    failure: Exception = RefusedError()
    for dialect in dialects:
        try:
            coords, values, sizes = _parse(layout, dialect, verbose)
        except PARSE_ERRORS as error:
            if is_of_file(error):
                raise
            failure = error
            continue
        if layout.n_entries is not None and layout.n_entries != values.size:
            fail_promise(layout, values.size)
        return coords, values, layout.shape or sizes
    find_bad_line(layout)
    raise ValueError(f"'{layout.path}' cannot be read ({reason_of(failure)}); mend it.") from failure


def _plain_separator(layout: TextLayout) -> str | None:
    """Return the one character between the fields of the first entry, or None if it takes more to split them."""
    if layout.separator is not None:
        return layout.separator
    with open_lines(layout.place, layout.path, layout.coding) as lines:
        for text in itertools.islice(lines, layout.skip, None):
            fields = split_line(text, None, layout.comment)
            if fields:
                return next((c for c in (" ", "\t") if text.rstrip("\r\n").split(c) == fields), None)
    return None


def general_dialect(layout: TextLayout) -> dict[str, Any]:
    how = {"comment": layout.comment, **_numbers_of(layout)}
    if layout.separator in (None, BLANKS):
        return {**how, "sep": r"\s+", "quoting": csv.QUOTE_NONE if layout.separator is None else csv.QUOTE_MINIMAL}
    return {**how, "sep": layout.separator, "skipinitialspace": True}


def _numbers_of(layout: TextLayout) -> dict[str, Any]:
    """How numbers are written, where that is not as usual; which values are missing, where these are left out."""
    how: dict[str, Any] = {} if layout.decimal == "." else {"decimal": layout.decimal}
    if layout.drop_missing and layout.value is not None:
        how |= {"na_filter": True, "keep_default_na": False, "na_values": {layout.value: list(MISSING)}}
    return how


def without_missing(frame: pd.DataFrame, layout: TextLayout) -> pd.DataFrame:
    """Return the lines whose value is not missing, where others are left out."""
    if not layout.drop_missing or layout.value is None or layout.value not in frame:
        return frame
    return frame[frame[layout.value].notna()].reset_index(drop=True)


class RefusedError(ValueError):
    """The parser took a block that holds no good entries; the line is found afterwards."""


class _Block(NamedTuple):
    coords: NDArray[np.int64]
    values: NDArray[np.float64]
    sizes: NDArray[np.int64]
    share: float  # of the file read so far


def _parse(
    layout: TextLayout, dialect: dict[str, Any], verbose: int
) -> tuple[NDArray[np.int64], NDArray[np.float64], tuple[int, ...]]:
    """Read all blocks into two arrays, allocated for the number of entries that the first block suggests."""
    coords, values = np.empty((0, len(layout.modes)), dtype=np.int64), np.empty(0)
    count, sizes = 0, np.zeros(len(layout.modes), dtype=np.int64)
    for block in _blocks(layout, dialect, verbose):
        last = count + block.values.size
        if last > values.size:
            room = math.ceil(1.05 * last / block.share)
            coords, values = _moved(coords, count, room), _moved(values, count, room)
        coords[count:last] = block.coords
        values[count:last] = block.values
        sizes = np.maximum(sizes, block.sizes)
        count = last
    if count == 0 or (layout.shape is not None and (sizes > layout.shape).any()):
        raise RefusedError
    coords.resize((count, len(layout.modes)), refcheck=False)
    values.resize(count, refcheck=False)
    return coords, values, tuple(int(n) for n in sizes)


def _moved(array: NDArray[Any], count: int, room: int) -> NDArray[Any]:
    larger = np.empty((room, *array.shape[1:]), dtype=array.dtype)
    larger[:count] = array[:count]
    return larger


def _blocks(layout: TextLayout, dialect: dict[str, Any], verbose: int) -> Iterator[_Block]:
    """Yield the parsed blocks in the order of the file; a few are parsed at a time, and no more are in memory."""
    threads = min(os.cpu_count() or 1, MAX_THREADS)
    waiting: collections.deque[Future[_Block]] = collections.deque()
    size = os.path.getsize(layout.place)
    opened = open_binary(layout.place, verbose, layout.path, layout.coding)
    with opened as (handle, counted, _), ThreadPoolExecutor(threads) as pool:
        skip_lines(handle, layout.skip)
        for lines, share in _whole_lines(handle, counted, size):
            waiting.append(pool.submit(_parse_block, lines, share, layout, dialect))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _whole_lines(handle: BinaryIO, counted: Any, size: int) -> Iterator[tuple[bytes, float]]:
    """Yield blocks of about BLOCK bytes that end with a line, each with the share of the file read so far."""
    rest = b""
    while data := handle.read(BLOCK):
        end = data.rfind(b"\n") + 1
        if end:
            yield rest + data[:end], counted.count / size
            rest = b""
        rest += data[end:]
    if rest:
        yield rest, 1.0


def _parse_block(lines: bytes, share: float, layout: TextLayout, dialect: dict[str, Any]) -> _Block:
    try:
        # With every dtype given, low_memory changes nothing but the speed: the parser's own buffers stay small.
        with np.errstate(invalid="ignore"):  # an infinite index: pandas warns of its cast before it refuses it
            frame = parsed(BytesIO(lines), types_of(layout), {**dialect, "low_memory": True})
        frame = without_missing(frame, layout)
    except pd.errors.EmptyDataError:  # nothing but comments
        frame = pd.DataFrame()
    if not len(frame):
        none = np.empty((0, len(layout.modes)), dtype=np.int64)
        return _Block(none, np.empty(0), none.sum(axis=0), share)
    coords, values, sizes = checked_columns(frame, layout)
    return _Block(coords, values, sizes, share)


def checked_columns(
    frame: pd.DataFrame, layout: TextLayout
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Return coords (zeros for labels), values and sizes of one line or more, if these are what they should be."""
    if frame.shape[1] != layout.n_fields:
        raise RefusedError
    coords = np.zeros((len(frame), len(layout.modes)), dtype=np.int64)
    sizes = np.zeros(len(layout.modes), dtype=np.int64)
    for k, field in enumerate([] if layout.labelled else layout.modes):
        column = frame[field].to_numpy()
        if column.min() < layout.base or int(column.max()) - layout.base >= MOST_ROWS:
            raise RefusedError
        sizes[k] = column.max() - layout.base + 1
        np.subtract(column, layout.base, out=coords[:, k])
    values = np.zeros(len(frame)) if layout.value is None else frame[layout.value].to_numpy()
    if frame[layout.value].isin(MISSING).any() if layout.words else not np.isfinite(values).all():
        raise RefusedError
    return coords, values, sizes


def types_of(layout: TextLayout) -> dict[Any, Any]:
    """What the parser makes of the fields; labels of a whole column are what pandas finds that they are."""
    value = {} if layout.value is None else {layout.value: object if layout.words else np.float64}
    return value if layout.labelled else {**dict.fromkeys(layout.modes, np.int64), **value}


def parsed(handle: IO[Any], types: Any, dialect: dict[str, Any], errors: str = UNDECODED) -> pd.DataFrame:
    options: dict[str, Any] = {"na_filter": False, **dialect, **_EXACT}
    frame: pd.DataFrame = pd.read_csv(
        handle,
        header=None,
        dtype=types,
        engine="c",
        encoding=ENCODING,
        encoding_errors=errors,
        **options,
    )
    return frame


def is_of_file(error: Exception) -> bool:
    """Whether a file cannot be read in any way, so that there is no line to look for."""
    return isinstance(error, UnreadableError)


def read_lines(lines: Sequence[str], layout: TextLayout) -> tuple[NDArray[np.int64], Keys, NDArray[np.float64]] | None:
    """Return coords, labels as text, and values of some lines.

    None where a line needs a closer look, since it does not hold exactly one good entry.
    """
    types: dict[Any, Any] = {**dict.fromkeys(range(layout.n_fields), object), **types_of(layout)}
    text = "".join(lines)
    if not is_text(text):
        return None
    try:
        with np.errstate(invalid="ignore"):
            frame = parsed(StringIO(text), types, {**general_dialect(layout), "na_filter": False})
        coords, values, sizes = checked_columns(frame, layout)
    except PARSE_ERRORS:
        return None
    if any((frame[field] == "").any() for field in types if types[field] is object):
        return None
    if layout.shape is not None and (sizes > layout.shape).any():
        return None
    if len(frame) != len(lines) and len(frame) != sum(1 for _ in filled(lines, layout.comment)):
        return None  # a quoted field spans lines
    return coords, tuple(frame[field].tolist() if layout.labelled else None for field in layout.modes), values


# Text files with labels, read whole by pandas' C parser, which looks at all of a column to say what it holds.


def read_frame(layout: TextLayout, verbose: int = 0) -> pd.DataFrame:
    """Return the columns of a file with labels, with their names; all of them as text where no column is a mode.

    Labels are numbers only where nothing is lost by it; see `tensorcep.entries.labels.numbers_of`. pandas looks at
    a whole column for this, so it is not read in chunks.

    Raises
    ------
    ValueError
        With the number of the first bad line, counted from 1 with comments and headers.
    """
    try:
        frame = _labelled_frame(layout, verbose)
    except PARSE_ERRORS as error:
        if is_of_file(error):
            raise
        find_bad_line(layout)
        raise ValueError(f"'{layout.path}' cannot be read ({reason_of(error)}); mend it.") from error
    # A line that ends early leaves empty text in its last fields.
    if any((frame[field] == "").any() for field in frame.columns if frame[field].dtype.kind == "O"):
        find_bad_line(layout)
    return frame.set_axis(list(layout.names), axis=1)


def _labelled_frame(layout: TextLayout, verbose: int) -> pd.DataFrame:
    types = types_of(layout) if layout.modes else dict.fromkeys(range(layout.n_fields), object)
    try:
        frame, names = _whole_frame(layout, verbose, types)
    except UnicodeError:  # where it does not matter, in a column that nobody asked for, it shall not
        ignored = set(range(layout.n_fields)) - {*layout.modes, layout.value}
        frame, names = _whole_frame(layout, 0, {**types, **dict.fromkeys(ignored, object)})
    kept = None if not layout.drop_missing or layout.value is None else frame[layout.value].notna().to_numpy()
    frame = without_missing(frame, layout)
    if not len(frame):
        raise RefusedError
    checked_columns(frame, layout)
    # Integers beyond 64 bits are objects too.
    texts = [k for k in layout.modes or frame.columns if pd.api.types.infer_dtype(frame[k], skipna=False) == "string"]
    if not all(is_text("".join(frame[field])) for field in texts if frame[field].dtype == object):
        raise RefusedError
    # Integers are taken from pandas where each was written as Python would; what it made of others is undone.
    doubted = [k for k in layout.modes if k not in texts and (names or frame[k].dtype != np.int64)]
    if doubted:
        as_text, _ = _whole_frame(layout, 0, dict.fromkeys(doubted, object), doubted)
        for field in doubted:
            frame[field] = numbers_of(as_text[field] if kept is None else as_text[field][kept].reset_index(drop=True))
    return frame


def _whole_frame(layout: TextLayout, verbose: int, types: Any, only: Any = None) -> tuple[pd.DataFrame, bool]:
    """Return a file as pandas reads it, and whether some text may be another than that of the integer in it.

    pandas makes a Python object of each field where bytes that are no text must be kept, and takes its time over blanks
    before fields; so it is asked without either first.
    """
    plain = {**general_dialect(layout), "skipinitialspace": False}
    with contextlib.suppress(*PARSE_ERRORS):
        frame, names, blanks = _frame_in(layout, verbose, types, only, plain, "strict")
        if not blanks:
            return frame, names
    return _frame_in(layout, 0, types, only, general_dialect(layout), UNDECODED)[:2]


def _frame_in(
    layout: TextLayout, verbose: int, types: Any, only: Any, dialect: dict[str, Any], errors: str
) -> tuple[pd.DataFrame, bool, bool]:
    """As `_whole_frame`, in one dialect, and whether a field may begin with a blank."""
    options = {**dialect, "low_memory": False, "usecols": only}
    with open_binary(layout.place, verbose, layout.path, layout.coding) as (handle, _, watched):
        watched.numbers_as_names, watched.separator = False, layout.separator or BLANKS
        skip_lines(handle, layout.skip)  # pandas takes one line too many where a carriage return ends them
        try:
            return parsed(handle, types, options, errors), bool(watched.numbers_as_names), watched.blanks_first
        except PARSE_ERRORS:
            if watched.refusal is not None:
                raise watched.refusal from None
            raise
