"""Large arrays in files without names: the system writes them out and reads them in, and keeps what it has room for.

A file is made, given its place on the disk, mapped, and never has a name (on Windows it is deleted when it is closed).
So nothing is left behind by a fit that ends in whatever way, kill included; a disk that is full is met when the file is
made, not when it is written; and nobody can change or cut a file that a fit is reading.
"""

from __future__ import annotations

import contextlib
import errno
import math
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, Protocol

import numpy as np

from tensorcep.core.checks import fail_value

# What a system says of a disk that is full.
FULL = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
# Bytes that are written at a time where the system cannot reserve room.
BLOCK = 1 << 24
# Lines of an array that are computed at a time.
LINES = 1 << 14


class Room(Protocol):
    """Where arrays lie."""

    def empty(self, shape: int | Sequence[int], dtype: Any = np.float64) -> np.ndarray:
        """An array whose numbers nobody has set."""


class InMemory:
    """The process's own memory."""

    def empty(self, shape: int | Sequence[int], dtype: Any = np.float64) -> np.ndarray:
        """As `Room.empty`."""
        return np.empty(shape, dtype)


MEMORY = InMemory()


class Mapped(mmap.mmap):
    """A file in the address space, which knows whose it is."""

    room: Scratch


class Scratch:
    """Files in a folder.

    Parameters
    ----------
    folder : path
        It must exist, on a disk and not in memory, and be larger than the data.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.fspath(folder)
        if not os.path.isdir(self.folder):
            fail_value(f"scratch must be a folder that exists; got {self.folder!r}; create it, on a disk with room.")
        if not os.access(self.folder, os.W_OK | os.X_OK):
            fail_value(f"scratch must be a folder to write in; got {self.folder!r}, which is read-only to you.")
        self.tables: dict[Any, Any] = {}  # what is made once and read by several

    def check_free(self, needed: int) -> None:
        """Refuse work that needs more bytes than the disk has.

        Raises
        ------
        OSError
            With both numbers.
        """
        free = shutil.disk_usage(self.folder).free
        if needed > free:
            raise _full(self.folder, needed, free)

    def empty(self, shape: int | Sequence[int], dtype: Any = np.float64) -> np.ndarray:
        """An array in a file of its own, which ends with the array.

        Raises
        ------
        OSError
            If the disk is full.
        """
        kind = np.dtype(dtype)
        size = kind.itemsize * math.prod([shape] if isinstance(shape, int) else shape)
        if not size:
            return np.empty(shape, kind)
        with _reporting(self.folder, size), tempfile.TemporaryFile(dir=self.folder, prefix="tensorcep-") as file:
            _reserve(file, size)
            return self._mapped(file, size, kind).reshape(shape)

    def _mapped(self, file: Any, size: int, kind: np.dtype[Any]) -> np.ndarray:
        mapped = Mapped(file.fileno(), size)
        mapped.room = self
        return np.frombuffer(mapped, dtype=kind)

    def growing(self, dtype: Any) -> Growing:
        """An array that is written from its beginning, of a length that is not known yet."""
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(tempfile.TemporaryFile(dir=self.folder, prefix="tensorcep-"))
            return Growing(self, file, np.dtype(dtype), stack.pop_all())


class Growing:
    """An array that grows at its end; see `Scratch.growing`."""

    def __init__(self, room: Scratch, file: Any, dtype: np.dtype[Any], opened: contextlib.ExitStack) -> None:
        self._room, self._file, self._dtype, self._open, self._size = room, file, dtype, opened, 0

    def __del__(self) -> None:  # of reading that was interrupted
        self._open.close()

    def append(self, values: np.ndarray) -> None:
        """Write values at the end."""
        data = np.ascontiguousarray(values, dtype=self._dtype)
        with _reporting(self._room.folder, self._size + data.nbytes):
            self._file.write(memoryview(data).cast("B"))  # type: ignore[arg-type]
        self._size += data.nbytes

    def finish(self) -> np.ndarray:
        """The array; no more can be written."""
        with _reporting(self._room.folder, self._size), self._open:
            self._file.flush()
            return self._room._mapped(self._file, self._size, self._dtype) if self._size else np.empty(0, self._dtype)


def room_of(array: np.ndarray) -> Room:
    """Where an array lies, for others that belong to it."""
    base: Any = array
    while isinstance(base, (np.ndarray, memoryview)):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return base.room if isinstance(base, Mapped) else MEMORY


def beside(array: np.ndarray) -> np.ndarray:
    """Float64 numbers that nobody has set, one for each of an array's, where that lies."""
    return room_of(array).empty(array.shape)


def copied(array: np.ndarray) -> np.ndarray:
    """A copy of float64 numbers where they lie."""
    out = beside(array)
    out[...] = array
    return out


def filled(out: np.ndarray, part: Callable[[slice], np.ndarray]) -> np.ndarray:
    """An array whose lines `part` gives some at a time, in place."""
    for first in range(0, len(out), LINES):
        at = slice(first, min(len(out), first + LINES))
        out[at] = part(at)
    return out


def on_scratch(array: np.ndarray) -> bool:
    """Whether an array lies in a file."""
    return room_of(array) is not MEMORY


def read_ahead(array: np.ndarray, first: int, last: int) -> None:
    """Tell the system that the items first:last of an array are needed soon; of one in memory nothing."""
    base: Any = array
    while isinstance(base, (np.ndarray, memoryview)):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    if last <= first or not isinstance(base, Mapped) or not hasattr(mmap, "MADV_WILLNEED"):
        return
    begin = (
        array[first:last].__array_interface__["data"][0] - np.frombuffer(base, np.uint8).__array_interface__["data"][0]
    )
    page = begin // mmap.PAGESIZE * mmap.PAGESIZE
    with contextlib.suppress(OSError):
        base.madvise(mmap.MADV_WILLNEED, page, begin - page + array[first:last].nbytes)


def _reserve(file: BinaryIO, size: int) -> None:
    """Give a file its place on the disk: a page of a mapped file that found none would end the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
        return
    for first in range(0, size, BLOCK):
        file.write(bytes(min(BLOCK, size - first)))
    file.flush()


@contextlib.contextmanager
def _reporting(folder: str, needed: int) -> Any:
    """Say in one sentence that the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise _full(folder, needed, shutil.disk_usage(folder).free) from None


def _full(folder: str, needed: int, free: int) -> OSError:
    return OSError(
        f"the folder {folder!r} of scratch= has {free / 1e9:.3g} GB free, and {needed / 1e9:.3g} GB are needed; give "
        "another folder, or make room."
    )
