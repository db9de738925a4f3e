"""Text files as lines: opened, unpacked, in UTF-8, watched for bombs, freed of comments, and split into fields."""

from __future__ import annotations

import bz2
import codecs
import contextlib
import csv
import gzip
import io
import lzma
import os
import re
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tqdm.auto import tqdm

from tensorcep.core.checks import fail_value, list_names, printable

STDIN = "-"
UNDECODED = "surrogateescape"  # bytes that are no UTF-8 become lone surrogates, so that two names stay two
NOT_TEXT = "is not UTF-8 text; convert the file, or say encoding= what it is (such as latin1, cp1252 or gb18030)"

BUFFER = 1 << 20
AT_ONCE = 1 << 17  # bytes handed to a decoder, which asks for 8 KB
LONGEST = 1 << 20  # bytes of a line: names and numbers take some hundreds
LONGEST_SHOWN = 60  # characters of a field
RUNS = re.compile(r"[ \t]+")
ODD = re.compile("[\x1c-\x1f]")  # blanks to Python and to nobody else
BLANKS = " "  # the separator of a csv file whose fields are between runs of blanks
LONG_FIELD = f"has a field of more than {csv.field_size_limit():,} characters; close its quote or mend it"
GROWTH, GROWTH_FROM = 300, 64 << 20  # distinct entries are packed to a tenth, a bomb to a thousandth

# The bytes of a text file as they were before it was packed, in UTF-8.

# bz2 raises a bare OSError, zipfile NotImplementedError for ways of packing that it does not know.
PACKED_ERRORS = (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError)
# What packs files -> how these begin, and how they are opened.
PACKERS: dict[str, tuple[bytes, Any]] = {
    "gzip": (b"\x1f\x8b", lambda plain: gzip.GzipFile(fileobj=plain)),
    "bzip2": (b"BZh", bz2.BZ2File),
    "xz": (b"\xfd7zXZ\x00", lzma.LZMAFile),
    "zip": (b"PK\x03\x04", zipfile.ZipFile),
}
# The longer ones first: one begins with another.
MARKS = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32"}
MARKS |= {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
UNIT = "\x1f"  # in place of a separator of several characters, which the parsers do not know


def only_member(source: Any, name: str) -> str:
    """Return the name of the one file in a zip file."""
    with zipfile.ZipFile(source) as archive:
        found = [item for item in archive.infolist() if not item.is_dir() and not item.filename.startswith("__MACOSX/")]
    if len(found) != 1:
        inside = list_names(item.filename for item in found) or "none"
        raise ValueError(f"'{name}' must hold one file to be read; it holds {inside}; unpack it, and name one.")
    if found[0].flag_bits & 1:
        raise ValueError(f"'{name}' is encrypted; unpack it first, and read what comes out.")
    return found[0].filename


class _Counted(io.FileIO):
    """A raw file that counts what was read of it, and moves a progress bar."""

    def __init__(self, path: str, bar: Any) -> None:
        super().__init__(path)
        self._bar, self.count = bar, 0

    def readinto(self, buffer: Any) -> int | None:
        count = super().readinto(buffer)
        self.count += count or 0
        self._bar.update(count or 0)
        return count


class Watched(io.BufferedIOBase):
    """The bytes of a source in UTF-8, with `UNIT` for a long separator; of bombs and lines without end none."""

    def __init__(
        self, source: Any, name: str, encoding: str | None, separator: str | None = None, packed: _Counted | None = None
    ) -> None:
        super().__init__()
        self._source, self._name, self._packed = source, name, packed
        self._count, self._open = 0, 0  # bytes, and those of the line that has begun
        head = source.peek(4)[:4] if hasattr(source, "peek") else b""
        zeros = [at for at, byte in enumerate(head) if byte == 0]  # of UTF-16 without a mark; no other text has any
        if encoding is None and zeros in ([1, 3], [0, 2]):
            encoding = "utf-16-le" if zeros == [1, 3] else "utf-16-be"
        encoding = encoding or next((encoding for mark, encoding in MARKS.items() if head.startswith(mark)), "utf-8")
        is_plain = codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")
        self._encoding, self._decoder = encoding, None if is_plain else codecs.getincrementaldecoder(encoding)()
        self._separator, self._rest = (separator or "").encode(), b""

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        return self._checked(self._recoded(self._source.read, size))

    def read1(self, size: int = -1) -> bytes:  # what there is at once, without waiting for more
        return self._checked(self._recoded(self._source.read1, max(size, AT_ONCE)))

    def _recoded(self, read: Callable[[int | None], bytes], size: int | None) -> bytes:
        is_end, mark, data = False, self._separator, b""
        while not data and not is_end:
            data = read(size)
            is_end = not data
            try:
                data = data if self._decoder is None else self._decoder.decode(data, final=is_end).encode()
            except UnicodeError as error:
                problem = f"is not {self._encoding} text ({error.reason if hasattr(error, 'reason') else error})"
                raise ValueError(f"'{self._name}' {problem}; say encoding= what it is.") from error
            if mark:  # what may be the beginning of a separator waits for the rest of it
                data = (self._rest + data).replace(mark, UNIT.encode())
                kept = 0 if is_end else next((n for n in range(len(mark) - 1, 0, -1) if data.endswith(mark[:n])), 0)
                data, self._rest = data[: len(data) - kept], data[len(data) - kept :]
        return data

    def _checked(self, data: bytes) -> bytes:
        self._count, problem = self._count + len(data), ""
        ends = [at for at in (data.find(b"\n"), data.find(b"\r")) if at >= 0]
        if self._open + (min(ends) if ends else len(data)) > LONGEST:
            problem = f"has a line of more than {LONGEST:,} bytes; it is no file of entries, or is damaged"
        if self._packed is not None and self._count > GROWTH_FROM + GROWTH * self._packed.count:
            cure = "if that is right, unpack it first (gunzip) and read what comes out"
            problem = f"unpacks to more than {GROWTH} times its size; {cure}"
        if problem:
            raise ValueError(f"'{self._name}' {problem}.")
        last = max(data.rfind(b"\n"), data.rfind(b"\r"))
        self._open = len(data) - last - 1 if ends else self._open + len(data)
        return data


def check_seekable(path: str, kind: str) -> str:
    """Return the path of a file that is read from its end, unless it is a pipe."""
    if not os.path.isfile(path):
        fail_value(f"'{path}' is a pipe, from which {kind} cannot be read; write it to a file first.")
    return path


@contextlib.contextmanager
def open_binary(
    path: str, encoding: str | None = None, separator: str | None = None, verbose: int = 0
) -> Iterator[io.BufferedIOBase]:
    """Yield a binary handle on the text of a file in UTF-8, unpacked and watched, with `UNIT` for a long separator."""
    packer, name, size = "", printable(os.path.basename(path)), os.path.getsize(path)
    try:
        with (
            tqdm(total=size, desc=name, unit="B", unit_scale=True, disable=not verbose) as bar,
            _Counted(path, bar) as counted,
            io.BufferedReader(counted, BUFFER) as plain,
            contextlib.ExitStack() as stack,
        ):
            head = plain.peek(8)[:8]
            packer = next((name for name, (mark, _) in PACKERS.items() if head.startswith(mark)), "")
            packer = "" if packer == "bzip2" and head[4:7] != b"1AY" else packer
            if packer == "zip":
                check_seekable(path, packer)
            source: Any = stack.enter_context(PACKERS[packer][1](plain)) if packer else plain
            if packer == "zip":
                source = stack.enter_context(source.open(only_member(plain, path)))
            yield Watched(source, path, encoding, separator, counted if packer else None)
    except PACKED_ERRORS as error:
        if not packer or getattr(error, "errno", None) is not None:
            raise
        problem = f"is a truncated or damaged {packer} file ({error}); fetch or write it again."
        raise ValueError(f"'{path}' {problem}") from error


@contextlib.contextmanager
def open_lines(path: str, encoding: str | None = None) -> Iterator[Iterator[str]]:
    """Yield the lines of a text file, or those of standard input as they arrive."""
    is_pipe = path == STDIN
    opened: Any = Watched(sys.stdin.buffer, "standard input", encoding) if is_pipe else open_binary(path, encoding)
    with contextlib.nullcontext(opened) if is_pipe else opened as handle:
        try:
            # with or without the mark that spreadsheets put first
            yield io.TextIOWrapper(handle, encoding="utf-8-sig", errors=UNDECODED, newline="")
        except csv.Error as error:
            what = NOT_TEXT if "NUL" in str(error.__cause__) else LONG_FIELD  # the former up to Python 3.10
            raise ValueError(f"{error} of '{path}' {what}.") from error


# Lines, split into fields.


def is_text(text: str) -> bool:
    """Whether all of a text was UTF-8."""
    try:
        return text.isascii() or text.encode() is not None
    except UnicodeEncodeError:
        return False


def translated(lines: Iterable[str], mark: str | None) -> Iterable[str]:
    """Lines of a file that was opened before it was known what stands between its fields."""
    return lines if mark is None else (text.replace(mark, UNIT) for text in lines)


def filled(lines: Iterable[str], comment: str | None) -> Iterator[str]:
    """Yield the lines that are neither blank nor only a comment."""
    return (text for text in lines if (text if comment is None else text.split(comment, 1)[0]).strip())


def split_line(text: str, separator: str | None, comment: str | None) -> list[str]:
    """Return the fields of one line, none if it is blank or only a comment; a quoted field ends with its line."""
    line = text if comment is None else text.split(comment, 1)[0]
    if separator is None:
        line = line.strip(" \t\r\n")
        # Python takes more characters for blanks than the C parser.
        return line.split() if line.isprintable() else RUNS.split(line)
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
