"""The bytes of a text file as they were before it was packed, in UTF-8."""

from __future__ import annotations

import bz2
import codecs
import contextlib
import gzip
import io
import lzma
import zipfile
import zlib
from typing import Any, NamedTuple

from tensorcep.core.checks import fail_value, list_names

# bz2 raises a bare OSError, zipfile NotImplementedError for ways of packing that it does not know.
PACKED_ERRORS = (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError)
# First bytes -> what packed them, and how it is opened.
PACKERS: dict[bytes, tuple[str, Any]] = {
    b"\x1f\x8b": ("gzip", lambda plain: gzip.GzipFile(fileobj=plain)),
    b"BZh": ("bzip2", bz2.BZ2File),
    b"\xfd7zXZ\x00": ("xz", lzma.LZMAFile),
}
ZIP = b"PK\x03\x04"
MARKS = {  # the longer ones first: one begins with another
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
UNIT = "\x1f"  # in place of a separator of several characters, which the parsers do not know
CHUNK = 1 << 16


class UnreadableError(ValueError):
    """The bytes of a file are none of entries, whichever way they are parsed."""


class Coding(NamedTuple):
    """How the text of a file is written: the encoding if it is not UTF-8, and a separator of several characters."""

    encoding: str | None = None
    separator: str | None = None


PLAIN = Coding()


def packer_of(plain: Any) -> str:
    """Return what packed the file that a buffered reader begins, "" if nothing did."""
    head = plain.peek(8)[:8]
    if head.startswith(ZIP):
        return "zip"
    found = (packer for mark, (packer, _) in PACKERS.items() if head.startswith(mark))
    packer = next(found, "")
    return "" if packer == "bzip2" and head[4:7] != b"1AY" else packer


def unpacked(plain: Any, packer: str, name: str, stack: contextlib.ExitStack) -> Any:
    """Return what reads a file unpacked; a zip file must hold one file."""
    if packer == "zip":
        if not plain.seekable():
            raise UnreadableError(f"'{name}' is a pipe, from which zip cannot be read; write it to a file first.")
        archive = stack.enter_context(zipfile.ZipFile(plain))
        return stack.enter_context(archive.open(only_member(plain, name)))
    opened = next((opened for known, opened in PACKERS.values() if known == packer), None)
    return plain if opened is None else stack.enter_context(opened(plain))


def only_member(source: Any, name: str) -> str:
    """Return the name of the one file in a zip file.

    Raises
    ------
    ValueError
        If it holds none or several, or if a password is needed.
    """
    with zipfile.ZipFile(source) as archive:
        found = [item for item in archive.infolist() if not item.is_dir() and not item.filename.startswith("__MACOSX/")]
    if len(found) != 1:
        inside = list_names(item.filename for item in found) or "none"
        raise UnreadableError(f"'{name}' must hold one file to be read; it holds {inside}; unpack it, and name one.")
    if found[0].flag_bits & 1:
        raise UnreadableError(f"'{name}' is encrypted; unpack it first, and read what comes out.")
    return found[0].filename


class Recoded(io.RawIOBase):
    """Bytes in UTF-8, with one character in place of a separator of several."""

    def __init__(self, source: Any, coding: Coding, name: str) -> None:
        super().__init__()
        self._source, self._name, self._coding = source, name, coding
        self._decoder = None if coding.encoding is None else codecs.getincrementaldecoder(coding.encoding)()
        self._separator = (coding.separator or "").encode()
        self._ready, self._rest, self._ended = b"", b"", False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and not self._ended:
            data = self._source.read1(CHUNK)
            self._ended = not data
            self._ready = self._replaced(self._decoded(data))
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count

    readinto1 = readinto  # what `Watched` asks for

    def _decoded(self, data: bytes) -> bytes:
        if self._decoder is None:
            return data
        try:
            return self._decoder.decode(data, final=self._ended).encode()
        except UnicodeError as error:
            problem = f"is not {self._coding.encoding} text ({error.reason if hasattr(error, 'reason') else error})"
            raise UnreadableError(f"'{self._name}' {problem}; say encoding= what it is.") from error

    def _replaced(self, data: bytes) -> bytes:
        mark = self._separator
        if not mark:
            return data
        data = (self._rest + data).replace(mark, UNIT.encode())
        # What may be the beginning of a separator waits for the rest of it.
        kept = 0 if self._ended else next((n for n in range(len(mark) - 1, 0, -1) if data.endswith(mark[:n])), 0)
        self._rest = data[len(data) - kept :]
        return data[: len(data) - kept]


def recoded(source: Any, coding: Coding, name: str) -> Any:
    """Return a source of bytes in UTF-8: what a byte-order mark or the caller says of its encoding is heeded."""
    head = source.peek(4)[:4] if hasattr(source, "peek") else b""
    marked = next((encoding for mark, encoding in MARKS.items() if head.startswith(mark)), None)
    zeros = [at for at, byte in enumerate(head) if byte == 0]  # of UTF-16 without a mark; no other text has any
    if zeros in ([1, 3], [0, 2]):
        marked = "utf-16-le" if zeros == [1, 3] else "utf-16-be"
    encoding = coding.encoding or marked
    plain = encoding is None or codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")
    if plain and coding.separator is None:
        return source
    return Recoded(source, Coding(None if plain else encoding, coding.separator), name)


def check_encoding(encoding: str | None) -> str | None:
    """Return the name of an encoding, if Python knows it."""
    if encoding is not None:
        try:
            "".encode(encoding)
        except (LookupError, TypeError, ValueError):
            fail_value(f"encoding must be one that Python knows, such as latin1, cp1252 or utf-16; got {encoding!r}.")
    return encoding
