"""Text files with labels, read whole by pandas' C parser, which looks at all of a column to say what it holds."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pandas as pd

from tensorcep.core.checks import reason_of
from tensorcep.entries.io.layout import Layout
from tensorcep.entries.io.lines import BLANKS, UNDECODED, is_text, open_binary, skip_lines
from tensorcep.entries.io.one_line import find_bad_line
from tensorcep.entries.io.text import (
    PARSE_ERRORS,
    RefusedError,
    checked_columns,
    general_dialect,
    is_of_file,
    parsed,
    types_of,
    without_missing,
)
from tensorcep.entries.spelling import numbers_of


def read_frame(layout: Layout, verbose: int = 0) -> pd.DataFrame:
    """Return the columns of a file with labels, with their names; all of them as text where no column is a mode.

    Labels are numbers only where nothing is lost by it; see `tensorcep.entries.spelling.numbers_of`. pandas looks at
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


def _labelled_frame(layout: Layout, verbose: int) -> pd.DataFrame:
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


def _whole_frame(layout: Layout, verbose: int, types: Any, only: Any = None) -> tuple[pd.DataFrame, bool]:
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
    layout: Layout, verbose: int, types: Any, only: Any, dialect: dict[str, Any], errors: str
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
