"""Text files as lines: opened, decompressed, decoded, freed of comments, and split into fields."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import numpy as np
from tqdm.auto import tqdm

from tensorcep.core.checks import fail_value, printable
from tensorcep.entries.io.packed import (
    PACKED_ERRORS,
    PLAIN,
    UNIT,
    Coding,
    UnreadableError,
    packer_of,
    recoded,
    unpacked,
)

ENCODING = "utf-8-sig"  # plain UTF-8, with or without the mark that spreadsheets put first
UNDECODED = "surrogateescape"
NOT_TEXT = "is not UTF-8 text; convert the file, or say encoding= what it is (such as latin1, cp1252 or gb18030)"
STDIN = "-"

BUFFER = 1 << 20
IN_CACHE = 1 << 17  # bytes for several array operations in turn, which stay in the processor's cache
LONGEST = 1 << 20  # bytes of a line: names and numbers take some hundreds
LONGEST_SHOWN = 60  # characters of a field
RUNS = re.compile(r"[ \t]+")
ODD = re.compile("[\x1c-\x1f]")  # blanks to Python and to nobody else
BLANKS = " "  # the separator of a csv file whose fields are between runs of blanks
LONG_FIELD = f"has a field of more than {csv.field_size_limit():,} characters; close its quote or mend it"
GROWTH, GROWTH_FROM = 300, 64 << 20  # distinct entries are packed to a tenth, a bomb to a thousandth


class _Counted(io.RawIOBase):
    """A raw file that counts what was read of it, and moves a progress bar."""

    def __init__(self, raw: io.RawIOBase | io.FileIO, bar: Any) -> None:
        super().__init__()
        self._raw, self._bar = raw, bar
        self.count = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:  # for zip files
        return self._raw.seekable()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._raw.seek(offset, whence)

    def readinto(self, buffer: Any) -> int | None:
        count = self._raw.readinto(buffer)
        self.count += count or 0
        self._bar.update(count or 0)
        return count


class _Chunks(io.BufferedReader):
    """A buffered file that hands a decoder more at a time than the 8 KB which it asks for."""

    def read1(self, size: int = -1) -> bytes:
        return super().read1(max(size, IN_CACHE))


class Watched(io.RawIOBase):
    """Bytes on their way to a parser, which a line without end or a bomb must not reach.

    Attributes
    ----------
    numbers_as_names : bool or None
        Whether a field was seen that begins with a plus, or with a 0 before another character: only such text is
        another than that of the integer which a parser sees in it. None, as it is at first: do not look.
    blanks_first : bool
        Whether a field was seen that may begin with a blank; also only where it is looked for.
    refusal : UnreadableError or None
        What was raised; pandas' parser would hide it.
    """

    separator: str = ","
    numbers_as_names: bool | None = None
    blanks_first: bool = False
    refusal: UnreadableError | None = None

    def __init__(self, source: Any, name: str, packed: _Counted | None = None) -> None:
        super().__init__()
        self._source, self._name, self._packed = source, name, packed
        self._count, self._open = 0, 0
        self._tail = b"\n"

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        count = self._source.readinto1(buffer)
        data = bytes(memoryview(buffer)[:count])
        self._count += count
        if self._packed is not None and self._count > GROWTH_FROM + GROWTH * self._packed.count:
            self._refuse(
                f"unpacks to more than {GROWTH} times its size; if that is right, unpack it first (gunzip) and read "
                "what comes out"
            )
        self._check_lines(data)
        if self.numbers_as_names is False:
            self._look_for_names(data)
        return int(count)

    def _check_lines(self, data: bytes) -> None:
        ends = [at for at in (data.find(b"\n"), data.find(b"\r")) if at >= 0]
        if self._open + (min(ends) if ends else len(data)) > LONGEST:
            self._refuse(f"has a line of more than {LONGEST:,} bytes; it is no file of entries, or is damaged")
        last = max(data.rfind(b"\n"), data.rfind(b"\r"))
        self._open = len(data) - last - 1 if ends else self._open + len(data)

    def _refuse(self, problem: str) -> None:
        self.refusal = UnreadableError(f"'{self._name}' {problem}.")
        raise self.refusal

    def _look_for_names(self, data: bytes) -> None:
        data = self._tail + data
        self._tail = data[-2:]
        self.blanks_first = self.blanks_first or any_blank_first(data, self.separator)
        self.numbers_as_names = self.numbers_as_names or any_number_as_name(data, self.separator)


@functools.cache
def _blank_first(separator: str) -> re.Pattern[bytes]:
    return re.compile(rb"[ \t](?<=[%b\r\n].)" % re.escape(separator.encode()), re.DOTALL)


def any_blank_first(data: bytes, separator: str | None = ",") -> bool:
    """Whether a field in these bytes begins with a blank."""
    return (b" " in data or b"\t" in data) and _blank_first(separator or BLANKS).search(data) is not None


def any_number_as_name(data: bytes, separator: str | None = ",") -> bool:
    """Whether a field after a character of these bytes begins with a plus, or with a 0 before another character."""
    chars, plus = np.frombuffer(data, np.uint8), b"+" in data
    mark = ord(separator or BLANKS)
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


@contextlib.contextmanager
def on_disk(path: str) -> Iterator[str]:
    """Yield the path of a file that can be read more than once: of what comes out of a pipe, a temporary copy."""
    if os.path.isfile(path):
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="tensorcep-") as copy:
        with open(path, "rb") as pipe:
            shutil.copyfileobj(pipe, copy)
        copy.flush()
        yield copy.name


def check_seekable(path: str, kind: str) -> str:
    """Return the path of a file that is read from its end, unless it is a pipe."""
    if not os.path.isfile(path):
        fail_value(f"'{path}' is a pipe, from which {kind} cannot be read; write it to a file first.")
    return path


@contextlib.contextmanager
def open_binary(
    path: str, verbose: int = 0, name: str | None = None, coding: Coding = PLAIN
) -> Iterator[tuple[BinaryIO, _Counted, Watched]]:
    """Yield a binary handle on the text of a file in UTF-8, unpacked, and what counts and watches the bytes below it.

    `name` is what errors call the file, if not by its path.
    """
    name, packer = name or path, ""
    try:
        with (
            open(path, "rb", buffering=0) as raw,
            tqdm(
                total=os.path.getsize(path),
                desc=printable(os.path.basename(name)),
                unit="B",
                unit_scale=True,
                disable=not verbose,
            ) as bar,
            _Counted(raw, bar) as counted,
            io.BufferedReader(counted, BUFFER) as plain,
            contextlib.ExitStack() as stack,
        ):
            packer = packer_of(plain)
            source = unpacked(plain, packer, name, stack)
            watched = Watched(recoded(source, coding, name), name, counted if packer else None)
            yield _Chunks(watched, BUFFER), counted, watched
    except PACKED_ERRORS as error:
        if not packer or getattr(error, "errno", None) is not None:
            raise
        raise UnreadableError(
            f"'{name}' is a truncated or damaged {packer} file ({error}); fetch or write it again."
        ) from error


def skip_lines(handle: Any, count: int) -> None:
    """Move a buffered binary handle behind some lines, whichever of the three ends they have."""
    for _ in range(count):
        end = b""
        while not end and (data := handle.peek(1)):
            at = min((data.find(mark) % (len(data) + 1) for mark in (b"\n", b"\r")), default=0)
            end = data[at : at + 1]
            handle.read(at + len(end))
        if end == b"\r" and handle.peek(1)[:1] == b"\n":
            handle.read(1)


@contextlib.contextmanager
def open_lines(path: str, name: str | None = None, coding: Coding = PLAIN) -> Iterator[Iterator[str]]:
    """Yield the lines of a text file, or those of standard input as they arrive.

    Bytes that are not UTF-8 become lone surrogates, so that two names stay two; `is_text` tells.
    """
    try:
        with _lines(path, name, coding) as lines:
            yield lines
    except csv.Error as error:
        what = NOT_TEXT if "NUL" in str(error.__cause__) else LONG_FIELD  # the former up to Python 3.10
        raise ValueError(f"{error} of '{name or path}' {what}.") from error


@contextlib.contextmanager
def _lines(path: str, name: str | None, coding: Coding) -> Iterator[Iterator[str]]:
    if path == STDIN:
        source = recoded(sys.stdin.buffer, coding, "standard input")
        chunks = _Chunks(Watched(source, "standard input"), BUFFER)
        yield io.TextIOWrapper(chunks, encoding=ENCODING, errors=UNDECODED, newline="")
    else:
        with open_binary(path, name=name, coding=coding) as (handle, *_):
            yield io.TextIOWrapper(handle, encoding=ENCODING, errors=UNDECODED, newline="")


def is_text(text: str) -> bool:
    """Whether all of a text was UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def translated(lines: Iterable[str], coding: Coding) -> Iterable[str]:
    """Lines of a file that was opened before it was known what stands between its fields."""
    mark = coding.separator
    return lines if mark is None else (text.replace(mark, UNIT) for text in lines)


def filled(lines: Iterable[str], comment: str | None) -> Iterator[str]:
    """Yield the lines that are neither blank nor only a comment."""
    return (text for text in lines if (text if comment is None else text.split(comment, 1)[0]).strip())


def split_line(text: str, separator: str | None, comment: str | None) -> list[str]:
    """Return the fields of one line, none if it is blank or only a comment; a quoted field ends with its line."""
    line = text if comment is None else text.split(comment, 1)[0]
    if separator is None:
        line = line.strip(" \t\r\n")
        if not line.isprintable():  # Python takes more characters for blanks than the C parser
            return RUNS.split(line)
        return line.split()
    if not line.strip():
        return []
    if '"' in line or separator == BLANKS:
        return next(csv.reader([trimmed(line, separator)], delimiter=separator, skipinitialspace=True))
    return [field.lstrip(" \t") for field in line.rstrip("\r\n").split(separator)]


def trimmed(line: str, separator: str) -> str:
    """A line without its end; with one kind of blanks, and none at the end, where these separate the fields."""
    return line.replace("\t", BLANKS).rstrip() if separator == BLANKS else line.rstrip("\r\n")


def rows(lines: Iterable[str], separator: str | None, comment: str | None) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number from 1, fields) wherever there are any; quoted fields of a csv file may span lines."""
    if separator is None:
        for number, text in enumerate(lines, 1):
            fields = split_line(text, separator, comment)
            if fields:
                yield number, fields
        return
    kept = lines if comment is None else (text.split(comment, 1)[0] for text in lines)
    kept = (trimmed(text, separator) + "\n" for text in kept) if separator == BLANKS else kept
    reader = csv.reader(kept, delimiter=separator, skipinitialspace=True)
    try:
        for fields in reader:
            if len(fields) > 1 or (fields and fields[0].strip()):
                yield reader.line_num, fields
    except csv.Error as error:
        raise csv.Error(f"line {reader.line_num}") from error  # open_lines knows the file


def shown(text: str) -> str:
    """A field as a sentence names it, cut where it is long."""
    return repr(text) if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]!r}..."


def comma_hint(text: object, decimal: str) -> str:
    """What to do, where a field that is no number is one with a decimal comma."""
    is_one = decimal == "." and isinstance(text, str) and number_in(text) is None and number_in(text, ",") is not None
    return ', or pass decimal="," if that is its decimal point' if is_one else ""


def number_in(text: str, decimal: str = ".") -> int | float | None:
    """Return the number that a field holds as the C parser sees it, or None."""
    if "_" in text or not text.isascii() or ODD.search(text):  # Python takes the digits of other scripts too
        return None
    if decimal != ".":
        if "." in text:
            return None
        text = text.replace(decimal, ".")
    with contextlib.suppress(ValueError):
        return int(text)
    with contextlib.suppress(ValueError):
        return float(text)
    return None
