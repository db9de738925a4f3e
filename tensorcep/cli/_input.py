"""What a stream has read of its files, so that a run that is resumed goes on with the same input."""

from __future__ import annotations

import hashlib
import itertools
import os
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tensorcep.core.checks import fail_value
from tensorcep.core.persist.records import read_as
from tensorcep.entries.io import STDIN, format_of, open_lines

BLOCK = 1 << 20


class Progress(NamedTuple):
    """What a checkpoint holds beside the model: the input, how far it was read, the sizes of the side files."""

    data: tuple[str, ...]
    batch_size: int
    first_batch: int | None
    position: tuple[int, int]
    aside: int
    trace: int
    bad: int
    read: tuple[tuple[int, str], ...] = ()  # earlier checkpoints hold neither this nor what follows
    scores: int = 0
    knowledge: tuple[str, ...] = ()
    reading: dict[str, Any] | None = None


def check_progress(stored: Any) -> None:
    """Refuse what a checkpoint says of its progress if that makes no sense.

    Raises
    ------
    KeyError, TypeError, ValueError
    """
    progress: Progress = read_as(Progress, stored, "progress")
    if min(*progress.position, progress.aside, progress.trace, progress.scores, progress.bad) < 0:
        fail_value("its progress is negative")


class Witness:
    """Checksums of the lines of files up to a position that moves on; each line is read once.

    A parquet or npz file, which cannot grow, counts as one line. Pipes, which cannot be read twice, are left out.
    """

    def __init__(self, paths: Sequence[str], format: str | None) -> None:
        self._paths, self._format = paths, format
        self._whole: list[list[int | str]] = []
        self._begin()

    def _begin(self) -> None:
        """Begin with the file that follows those that were read whole."""
        self._count, self._sha = 0, hashlib.sha256()
        n = len(self._whole)
        self._lines = _lines_of(self._paths[n], self._format) if n < len(self._paths) else iter(())

    def _advance(self, count: int | None) -> list[int | str]:
        for line in itertools.islice(self._lines, count):
            self._sha.update(line)
            self._count += 1
        return [self._count, self._sha.hexdigest()]

    def until(self, file: int, line: int) -> list[list[int | str]]:
        """Number and checksum of the lines of each file that was begun, where so many were read whole and so far."""
        while len(self._whole) < file:
            self._whole.append(self._advance(None))
            self._begin()
        return [*self._whole, self._advance(line - self._count)] if file < len(self._paths) else self._whole

    def check(self, read: Sequence[Sequence[int | str]], file: int, line: int) -> None:
        """Refuse files that do not begin with what was read of them.

        Raises
        ------
        ValueError
            With the name of the first one.
        """
        for path, (n, sha), (count, found) in zip(self._paths, read, self.until(file, line), strict=False):
            if sha != found:
                what = f"{count} lines where {n}" if count != n else f"other lines among the first {n} than"
                fail_value(f"'{path}' has {what} were learned; give the same file to resume, or start anew.")


def digests_of_files(paths: Sequence[str], format: str | None) -> list[list[Any]]:
    """Name, number of lines and checksum of each file; a pipe, which cannot be read twice, has none."""
    files = [path for path in paths if path != STDIN and os.path.isfile(path)]
    return [
        [os.path.basename(path), *(_plain_digest(path, format) or Witness([path], format).until(1, 0)[0])]
        for path in files
    ]


def _plain_digest(path: str, format: str | None) -> list[Any] | None:
    """What `Witness` says of a whole file of text whose lines end as its own do, by blocks; None of other files."""
    if format_of(path, format) not in ("csv", "tns") or path.endswith(".gz"):
        return None
    sha, count, end = hashlib.sha256(), 0, b"\n"
    with open(path, "rb") as handle:
        while block := handle.read(BLOCK):
            if b"\r" in block or block.startswith(BOM_UTF8):
                return None
            sha.update(block)
            count, end = count + block.count(b"\n"), block[-1:]
    if end != b"\n":
        sha.update(b"\n")
    return [count + (end != b"\n"), sha.hexdigest()]


def _lines_of(path: str, format: str | None) -> Iterator[bytes]:
    """Lines, whose ends do not count: one more may have come since."""
    if path == STDIN or not os.path.isfile(path):
        return
    if format_of(path, format) in ("parquet", "npz"):
        with open(path, "rb") as handle:
            sha = hashlib.sha256()
            while block := handle.read(BLOCK):
                sha.update(block)
            yield sha.digest()
        return
    with open_lines(path) as lines:
        for text in lines:
            yield text.rstrip("\r\n").encode("utf-8", "surrogatepass") + b"\n"
