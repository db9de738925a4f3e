"""The entries of text files read ahead: many lines at a time by pandas' parser, where every line is a good entry."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tensorcep.entries.io.layout import TextLayout
from tensorcep.entries.io.lines import ENCODING, UNDECODED, any_blank_first, any_number_as_name
from tensorcep.entries.io.text import PARSE_ERRORS, checked_columns, general_dialect, parsed, types_of

BLOCK = 1 << 20  # bytes read at a time
Texts = dict[Any, NDArray[Any]]  # of fields
MARK = b"\xef\xbb\xbf"


class Ahead(NamedTuple):
    """The entries of n lines that were read: rows, labels as text where there are any, and values."""

    coords: NDArray[np.int64]
    keys: tuple[NDArray[np.object_] | None, ...]
    values: NDArray[np.float64]


def blocks_of(handle: BinaryIO) -> Iterator[bytes]:
    """Yield the rest of a file in blocks of whole lines; one without newlines is one block."""
    parts: list[bytes] = []
    while data := handle.read(BLOCK):
        end = data.rfind(b"\n") + 1
        parts.append(data[:end] if end else data)
        if end:
            yield b"".join(parts)
            parts = [data[end:]]
    if any(parts):
        yield b"".join(parts)


def lines_of(block: bytes, first: bool) -> list[str]:
    """Return the lines of a block as those of its file, of which it is the first or a later one."""
    encoding = ENCODING if first else "utf-8"
    return list(io.TextIOWrapper(io.BytesIO(block), encoding=encoding, errors=UNDECODED, newline=""))


def entries_in(block: bytes, layout: TextLayout) -> Ahead | None:
    """Return the entries of a block; None where some line may not hold exactly one good entry."""
    if block.startswith(MARK) or block.count(b"\r") != block.count(b"\r\n"):
        return None
    dialect = {**general_dialect(layout), "na_filter": False}
    if layout.separator is not None and not any_blank_first(b"\n" + block, layout.separator):
        dialect["skipinitialspace"] = False
    try:
        with np.errstate(invalid="ignore"):
            frame = parsed(io.BytesIO(block), types_of(layout), dialect, "strict")
        coords, values, sizes = checked_columns(frame, layout)
        if len(frame) != block.count(b"\n") + (not block.endswith(b"\n")):
            return None
        if layout.shape is not None and (sizes > layout.shape).any():
            return None
        texts = _texts(frame, block, layout, dialect)
    except PARSE_ERRORS:
        return None
    if texts is None:
        return None
    return Ahead(coords, tuple(texts[field] if layout.labelled else None for field in layout.modes), values)


def _texts(
    frame: pd.DataFrame, block: bytes, layout: TextLayout, dialect: dict[str, Any]
) -> dict[Any, NDArray[Any]] | None:
    """The columns of the labels as they are written, and those that nobody asked for; None if a text is empty."""
    read = set(types_of(layout))
    found: Texts = {}
    doubted = []
    blanks = {b" ", b"\t"} - {(layout.separator or "").encode()}
    exact = not any(blank in block for blank in blanks) and not any_number_as_name(b"\n" + block, layout.separator)
    for field in frame.columns:
        column = frame[field]
        if field in read:
            continue
        if isinstance(column.dtype, pd.StringDtype):
            if (column == "").any():
                return None
            found[field] = column.to_numpy(dtype=object)
        elif exact and column.dtype == np.int64 and not (b"-0" in block and (column == 0).any()):
            codes, distinct = pd.factorize(column.to_numpy())
            found[field] = np.array(list(map(str, distinct.tolist())), dtype=object)[codes]
        else:
            doubted.append(field)
    if doubted:
        again = parsed(io.BytesIO(block), dict.fromkeys(doubted, object), {**dialect, "usecols": doubted}, "strict")
        if (again == "").any(axis=None):
            return None
        found.update({field: again[field].to_numpy(dtype=object) for field in doubted})
    return found
