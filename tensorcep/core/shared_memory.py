"""Arrays that processes of one machine leave for each other in its memory, where sending them would cost several times
as much: a file in a folder of the system that has no disk behind it.

A task that finds no file is given the numbers themselves; so what is left is never needed for more than speed.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# Where the system has a folder in memory.
MEMORY = "/dev/shm"
# Arrays of fewer bytes are sent: a file costs as much as they do.
SMALLEST = 1 << 16


class SharedArray(NamedTuple):
    """An array of float64 in a file: after `begin` bytes; `writer` is the process that wrote it."""

    path: str
    begin: int
    shape: tuple[int, ...]
    writer: int

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return 8 * math.prod(self.shape)


# An array, or where it is.
Payload = np.ndarray | SharedArray

# Bytes that this process has taken of what others left.
BYTES_READ = [0]


class Sheet:
    """Arrays of float64 that are made some rows at a time, in a file; without a path, or room, they are kept here."""

    def __init__(self, path: str | None, shapes: Sequence[tuple[int, ...]]):
        self._path, self._shapes = path, list(shapes)
        self._begin = [0, *itertools.accumulate(8 * math.prod(shape) for shape in shapes)]
        self._arrays: list[np.ndarray] | None = None
        self._temporary, self._handle = f"{path}.{secrets.token_hex(4)}", -1
        if path is not None and self._begin[-1] >= SMALLEST:
            with contextlib.suppress(OSError):
                self._handle = os.open(self._temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        if self._handle < 0:
            self._arrays = [np.empty(shape) for shape in shapes]

    def put(self, n: int, first: int, rows: np.ndarray) -> None:
        """Rows of array n from `first` on, whose arrays are contiguous."""
        if self._arrays is None:
            bits, at = rows.reshape(-1).view(np.uint8).data, self._begin[n] + first * (rows.nbytes // max(1, len(rows)))
            try:
                while len(bits):
                    written = os.pwrite(self._handle, bits, at)
                    bits, at = bits[written:], at + written
            except OSError:  # there is no more room: what was written is kept here
                self._arrays = [np.zeros(shape) for shape in self._shapes]
                for array, begin in zip(self._arrays, self._begin, strict=False):
                    os.preadv(self._handle, [array.reshape(-1).view(np.uint8).data], begin)
                self.drop()
        if self._arrays is not None:
            self._arrays[n][first : first + len(rows)] = rows

    def done(self) -> list[Payload]:
        """The arrays, all of whose rows have been put, or where they are."""
        if self._arrays is not None:
            return list(self._arrays)
        os.close(self._handle)
        self._handle = -1
        os.replace(self._temporary, str(self._path))  # nobody sees a part of it; written again it is the same
        places = zip(self._begin, self._shapes, strict=False)
        return [SharedArray(str(self._path), begin, shape, os.getpid()) for begin, shape in places]

    def drop(self) -> None:
        """Forget the arrays, unless they are done."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
            remove([self._temporary])


def share(path: str | None, arrays: Sequence[np.ndarray]) -> list[Payload]:
    """Leave arrays of float64 in a file, one after the other; without a path, or room, they are given as they are."""
    if path is None or any(array.dtype != np.float64 for array in arrays):
        return list(arrays)
    sheet = Sheet(path, [array.shape for array in arrays])
    for n, array in enumerate(arrays):
        sheet.put(n, 0, np.ascontiguousarray(array))
    left = sheet.done()
    return left if isinstance(left[0], SharedArray) else list(arrays)


def rows_of(given: Payload, first: int, last: int) -> Payload:
    """Some rows of an array, or where they are."""
    if not isinstance(given, SharedArray):
        return given[first:last]
    width = math.prod(given.shape[1:])
    return given._replace(begin=given.begin + 8 * first * width, shape=(last - first, *given.shape[1:]))


def put(given: Payload, out: np.ndarray) -> None:
    """Put an array in place; a FileNotFoundError if its file is gone, or another machine has it."""
    if not isinstance(given, SharedArray):
        out[...] = given
        return
    direct = out.flags.c_contiguous and out.dtype == np.float64 and out.shape == given.shape
    found = out if direct else np.empty(given.shape)
    bits = found.reshape(-1).view(np.uint8).data
    try:
        with open(given.path, "rb") as handle:
            handle.seek(given.begin)
            if handle.readinto(bits) < len(bits):
                raise FileNotFoundError
    except FileNotFoundError:
        raise FileNotFoundError(f"what a worker left at '{given.path}' is gone; run the same call again.") from None
    if given.writer != os.getpid():
        BYTES_READ[0] += given.nbytes
    if not direct:
        out[...] = found


class SharedFolder:
    """A folder in the memory of this machine, as long as all workers of a client see it."""

    def __init__(self, client: Any):
        self._client = client
        self._folder: str | None = None
        self._open = False

    def open(self) -> None:
        """Make the folder, if there can be one that all workers see."""
        self.close()
        token = secrets.token_hex(8)
        try:
            self._folder = tempfile.mkdtemp(prefix="tensorcep-", dir=MEMORY)
            Path(self._folder, token).touch()
        except OSError:
            self.close()
            return
        seen = self._client.run(os.path.exists, os.path.join(self._folder, token)).values()
        self._open = bool(seen) and all(seen)

    @property
    def folder(self) -> str | None:
        """The folder, if it is in use; workers remove it when this process is gone."""
        return self._folder if self._open else None

    def new_path(self) -> str | None:
        """A path that nothing else has; None where arrays are sent."""
        return None if self.folder is None else os.path.join(self.folder, secrets.token_hex(8))

    def give_up(self) -> None:
        """Have arrays sent from now on: a worker was lost, and who is in its place may be elsewhere."""
        self._open = False

    def close(self) -> None:
        """Remove all that was left."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder, self._open = None, False


def remove(paths: Iterable[str]) -> None:
    """Remove files that nobody needs any more."""
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)


def remove_after(keeper: Any, folder: str, owner: int) -> None:
    """Remove a folder when `keeper` is gone, unless the process that made it, which removes it itself, is there."""

    def end() -> None:
        try:
            os.kill(owner, 0)
        except ProcessLookupError:
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # another user's: it is there
            return

    weakref.finalize(keeper, end)
