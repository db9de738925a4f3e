"""Long arrays: in files without names or in memory, and their sums in one order."""

from __future__ import annotations

import contextlib
import errno
import math
import mmap
import numbers
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tensorcep.core.checks import fail_value

UNITS = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def memory_of_machine() -> int | None:
    """Bytes of physical memory; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def bytes_of(name: str, given: Any) -> float:
    """A number of bytes, such as 2e9, "8GB" or "500 MB"; what is none is refused."""
    found = 0.0
    if isinstance(given, str):
        parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?(?:[eE]\+?\d+)?)\s*([KMGT]?)(?:i?B)?\s*", given, re.IGNORECASE)
        found = 0.0 if parts is None else float(parts[1]) * UNITS[parts[2].upper()]
    elif isinstance(given, numbers.Real) and not isinstance(given, bool):
        found = float(given)
    if not 0.0 < found < float("inf"):
        fail_value(f"{name} must be a number of bytes, such as '8GB', '500 MB' or 2e9; got {given!r}.")
    return found


# Large arrays in files without names: the system writes them out and reads them in, and keeps what it has room for.
#
# A file is made, given its place on the disk, mapped, and never has a name (on Windows it is deleted when it is
# closed). So nothing is left behind by a fit that ends in whatever way, kill included; a disk that is full is met when
# the file is made, not when it is written; and nobody can change or cut a file that a fit is reading.

# What a system says of a disk that is full.
FULL = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
# Bytes that are written at a time where the system cannot reserve room.
BLOCK = 1 << 24
# Lines of an array that are computed at a time.
LINES = 1 << 14


class Room:
    """Where arrays lie: here in the process's own memory."""

    def empty(self, shape: int | Sequence[int], dtype: Any = np.float64) -> np.ndarray:
        """An array whose numbers nobody has set."""
        return np.empty(shape, dtype)


MEMORY = Room()


class Mapped(mmap.mmap):
    """A file in the address space, which knows whose it is."""

    room: Scratch


class Scratch(Room):
    """Files in a folder, which must exist, on a disk and not in memory, and be larger than the data."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.fspath(folder)
        if not os.path.isdir(self.folder):
            fail_value(f"scratch must be a folder that exists; got {self.folder!r}; create it, on a disk with room.")
        if not os.access(self.folder, os.W_OK | os.X_OK):
            fail_value(f"scratch must be a folder to write in; got {self.folder!r}, which is read-only to you.")
        self.tables: dict[Any, Any] = {}  # what is made once and read by several

    def check_free(self, needed: int) -> None:
        """Refuse work that needs more bytes than the disk has, by an OSError with both numbers."""
        free = shutil.disk_usage(self.folder).free
        if needed > free:
            raise _full(self.folder, needed, free)

    def empty(self, shape: int | Sequence[int], dtype: Any = np.float64) -> np.ndarray:
        """An array in a file of its own, which ends with the array; OSError if the disk is full."""
        kind = np.dtype(dtype)
        size = kind.itemsize * math.prod([shape] if isinstance(shape, int) else shape)
        if not size:
            return np.empty(shape, kind)
        with _reporting(self.folder, size), tempfile.TemporaryFile(dir=self.folder, prefix="tensorcep-") as file:
            if hasattr(os, "posix_fallocate"):  # a page of a mapped file that found no place would end the process
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                for first in range(0, size, BLOCK):
                    file.write(bytes(min(BLOCK, size - first)))
                file.flush()
            return self._mapped(file, size, kind).reshape(shape)

    def _mapped(self, file: Any, size: int, kind: np.dtype[Any]) -> np.ndarray:
        mapped = Mapped(file.fileno(), size)
        mapped.room = self
        return np.frombuffer(mapped, dtype=kind)

    def growing(self, dtype: Any) -> FileWriter:
        """An array that is written from its beginning, of a length that is not known yet."""
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(tempfile.TemporaryFile(dir=self.folder, prefix="tensorcep-"))
            return FileWriter(self, file, np.dtype(dtype), stack.pop_all())


class FileWriter:
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


def _file_of(array: np.ndarray) -> Mapped | None:
    """The file that an array lies in; None where it lies in memory."""
    base: Any = array
    while isinstance(base, (np.ndarray, memoryview)):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return base if isinstance(base, Mapped) else None


def concatenated(parts: Sequence[np.ndarray]) -> np.ndarray:
    """All parts one after the other; a single one is not copied."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def room_of(array: np.ndarray) -> Room:
    """Where an array lies, for others that belong to it."""
    file = _file_of(array)
    return MEMORY if file is None else file.room


def empty_near(array: np.ndarray) -> np.ndarray:
    """Float64 numbers that nobody has set, one for each of an array's, where that lies."""
    return room_of(array).empty(array.shape)


def copy_near(array: np.ndarray) -> np.ndarray:
    """A copy of float64 numbers where they lie."""
    out = empty_near(array)
    out[...] = array
    return out


def fill_by_parts(out: np.ndarray, part: Callable[[slice], np.ndarray]) -> np.ndarray:
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
    file = _file_of(array)
    if last <= first or file is None or not hasattr(mmap, "MADV_WILLNEED"):
        return
    part = array[first:last]
    begin = part.ctypes.data - np.frombuffer(file, np.uint8).ctypes.data
    page = begin // mmap.PAGESIZE * mmap.PAGESIZE
    with contextlib.suppress(OSError):
        file.madvise(mmap.MADV_WILLNEED, page, begin - page + part.nbytes)


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
    text = f"has {free / 1e9:.3g} GB free, and {needed / 1e9:.3g} GB are needed; give another folder, or make room."
    return OSError(f"the folder {folder!r} of scratch= {text}")


# Sums over long arrays piece by piece: the additions that numpy makes over the whole, in its order, to its bits.
#
# numpy adds a contiguous array by halves (pairwise). Where the pieces are its halves of halves, the sum of a function
# of the numbers needs no array of that function's values.

# Numbers that are added up at a time.
LEAF = 1 << 18
# A half has a multiple of so many numbers, and numpy adds so few of them without halving.
UNROLLED = 8
# Lines that are copied at a time.
LINES_AT_ONCE = 1 << 11


def leaves(n: int, most: int = LEAF) -> Iterator[tuple[int, int]]:
    """Where numpy's halves of halves of n numbers begin and end, of at most so many numbers each, in order."""
    stack = [(0, n)]
    while stack:
        first, size = stack.pop()
        if size <= most:
            yield first, first + size
            continue
        half = _half(size)
        stack += [(first + half, size - half), (first, half)]


def sum_of_leaves(sums: Iterator[float], n: int, most: int = LEAF) -> float:
    """The sum of n numbers from the sums of their leaves, in order."""
    if n <= most:
        return float(next(sums))
    half = _half(n)
    return sum_of_leaves(sums, half, most) + sum_of_leaves(sums, n - half, most)


def _half(size: int) -> int:
    return size // 2 - size // 2 % UNROLLED


def total(n: int, part: Callable[[slice], np.ndarray]) -> float:
    """The sum of n numbers, of which `part` gives those of a slice."""
    return sum_of_leaves((np.add.reduce(part(slice(a, b))) for a, b in leaves(n)), n)


def sum_of_lines(lines: np.ndarray, which: np.ndarray) -> np.ndarray:
    """``lines[which].sum(axis=0)`` of lines (n, P), one after the other as numpy adds; few are copied at a time."""
    if lines.shape[1] == 1:
        return np.asarray(lines[which].sum(axis=0))
    if which.all():
        return np.asarray(lines.sum(axis=0))
    places, found = np.flatnonzero(which), np.zeros((0, lines.shape[1]))
    for first in range(0, len(places), LINES_AT_ONCE):
        found = np.concatenate([found, lines[places[first : first + LINES_AT_ONCE]]]).sum(axis=0, keepdims=True)
    return found[0] if len(found) else np.zeros(lines.shape[1])


def weighted_mean(values: np.ndarray, weight: np.ndarray | None = None) -> float:
    """The mean of (N,) values, by weights (N,) if these are given."""
    return float(np.mean(values) if weight is None else np.average(values, weights=weight))


def mean_square(values: np.ndarray, weight: np.ndarray | None = None) -> float:
    """``np.mean(values ** 2)`` of (N,) values, by weights (N,) if these are given."""
    if weight is not None:
        return weighted_mean(values**2, weight)
    return total(len(values), lambda at: values[at] ** 2) / len(values)


def variance(values: np.ndarray, weight: np.ndarray | None = None) -> float:
    """``np.var(values)`` of (N,) values, by weights (N,) if these are given."""
    if weight is not None:
        return weighted_mean((values - weighted_mean(values, weight)) ** 2, weight)
    centre = total(len(values), lambda at: values[at]) / len(values)
    return total(len(values), lambda at: (values[at] - centre) ** 2) / len(values)


class RunningSum:
    """The sum of n numbers that come in order, some at a time, to the bits of numpy's over all of them."""

    def __init__(self, n: int) -> None:
        self._n, self._ends = n, [b for _, b in leaves(n)]
        self._sums: list[float] = []
        self._room, self._filled, self._taken = np.empty(min(n, LEAF)), 0, 0

    def add(self, values: np.ndarray) -> None:
        """Take the next numbers."""
        while len(values):
            missing = self._ends[len(self._sums)] - self._taken
            part, values = values[:missing], values[missing:]
            self._room[self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            self._taken += len(part)
            if self._taken == self._ends[len(self._sums)]:
                self._sums.append(float(np.add.reduce(self._room[: self._filled])))
                self._filled = 0

    @property
    def sum(self) -> float:
        """Of all n numbers, once they have come."""
        return sum_of_leaves(iter(self._sums), self._n) if self._n else 0.0
