"""Text files as lines: opened, decompressed, decoded, freed of comments, and split into fields."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, cast

from tqdm.auto import tqdm

ENCODING = "utf-8-sig"  # plain UTF-8, with or without the mark that spreadsheets put first
GZIP_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error)
STDIN = "-"


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
    """Yield a binary handle, decompressing what is gzip, and the raw file, which knows how much of it has been read."""
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


@contextlib.contextmanager
def open_lines(path: str) -> Iterator[Iterator[str]]:
    """Yield the lines of a text file, or those of standard input as they arrive."""
    if path == STDIN:
        yield io.TextIOWrapper(sys.stdin.buffer, encoding=ENCODING, errors="replace")
    else:
        with open_binary(path) as (handle, _):
            yield io.TextIOWrapper(handle, encoding=ENCODING, errors="replace")


def filled(lines: Iterable[str], comment: str | None) -> Iterator[str]:
    """Yield the lines that are neither blank nor only a comment."""
    return (text for text in lines if (text if comment is None else text.split(comment, 1)[0]).strip())


def split_line(text: str, separator: str | None, comment: str | None) -> list[str]:
    """Return the fields of one line, none if it is blank or only a comment; a quoted field ends with its line."""
    line = text if comment is None else text.split(comment, 1)[0]
    if separator is None:
        return line.split()
    if not line.strip():
        return []
    if '"' in line:
        return next(csv.reader([line.rstrip("\r\n")], delimiter=separator, skipinitialspace=True))
    return [field.lstrip() for field in line.rstrip("\r\n").split(separator)]


def rows(lines: Iterable[str], separator: str | None, comment: str | None) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number from 1, fields) wherever there are any; quoted fields of a csv file may span lines."""
    if separator is None:
        for number, text in enumerate(lines, 1):
            fields = split_line(text, separator, comment)
            if fields:
                yield number, fields
        return
    kept = lines if comment is None else (text.split(comment, 1)[0] for text in lines)
    reader = csv.reader(kept, delimiter=separator, skipinitialspace=True)
    for fields in reader:
        if len(fields) > 1 or (fields and fields[0].strip()):
            yield reader.line_num, fields


def number_in(text: str) -> int | float | None:
    """Return the number that a field holds as the C parser sees it, or None."""
    if "_" in text:
        return None
    with contextlib.suppress(ValueError):
        return int(text)
    with contextlib.suppress(ValueError):
        return float(text)
    return None
