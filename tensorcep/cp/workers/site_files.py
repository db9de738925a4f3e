"""Messages of parts of the entries in versioned files of workers."""

from __future__ import annotations

import os
import secrets
import shutil
import threading
import weakref
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.checks import fail_value, reason_of
from tensorcep.cp.messages.sites import First, Messages, no_messages, send_first

# Messages that workers keep: in files, a new one for every version, and what they have written also in memory.
#
# A task reads the versions that it is told and writes new ones beside them. So it can be done again, by whatever
# worker.

HINT = "remove the folder, and fit again"


class Version(NamedTuple):
    """A version of a chunk's messages to one mode, or to the noise; the number 0 is that of the first messages."""

    number: int = 0
    checksum: int = 0


class Where(NamedTuple):
    """Where the messages of a chunk are.

    Attributes
    ----------
    folder : str
    chunk : int
        Its number.
    versions : tuple of Version
        Of the messages to each mode, and to the noise.
    following : int
        The number of the versions that a task makes.
    first : First
        How they began.
    dtype : str
    """

    folder: str
    chunk: int
    versions: tuple[Version, ...]
    following: int
    first: First
    dtype: str

    @property
    def to_noise(self) -> bool:
        """Whether there are messages to the noise."""
        return self.first.b > 0.0


class SiteMemory:
    """What a worker has in memory of messages, by the chunk; it ends with the run that it belongs to.

    It is sent like an array that tasks need, empty, so that Dask lets go of it when nobody needs it any more.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[int, tuple[tuple[str, tuple[Version, ...]], Messages]] = {}

    def __reduce__(self) -> Any:
        return SiteMemory, ()

    def take(self, where: Where) -> Messages | None:
        """The messages of a chunk, if they are of these versions; until they are put back, nobody has them."""
        with self._lock:
            found = self._kept.pop(where.chunk, None)
        return None if found is None or found[0] != (where.folder, where.versions) else found[1]

    def put(self, where: Where, messages: Messages) -> None:
        """Keep messages."""
        with self._lock:
            self._kept[where.chunk] = ((where.folder, where.versions), messages)


def messages_at(where: Where, weight: np.ndarray, R: int, memory: SiteMemory) -> Messages:
    """The messages of a chunk whose entries have these weights, (n_blocks, LANES), from memory or from files."""
    found = memory.take(where)
    if found is not None:
        return found
    messages = no_messages(len(weight), len(where.versions) - 1, R, where.dtype, where.to_noise)
    send_first(0, len(weight), where.first, weight, messages)
    for what, version in enumerate(where.versions):
        if version.number:
            _read(_path(where, what, version.number), version.checksum, _of(messages, what))
    return messages


def _of(messages: Messages, what: int) -> tuple[np.ndarray, ...]:
    """The messages to a mode, or after those to all modes, to the noise."""
    K = messages.Lam.shape[1]
    return (messages.a, messages.b) if what == K else (messages.Lam[:, what], messages.eta[:, what])


def folder_of(folder: str, what: int, version: int) -> Path:
    """The folder of all chunks of a version of the messages to a mode, or to the noise."""
    return Path(folder, f"{what}-{version}")


def _path(where: Where, what: int, version: int) -> Path:
    return folder_of(where.folder, what, version) / f"{where.chunk}.npy"


def _sum(arrays: tuple[np.ndarray, ...]) -> int:
    """A checksum that costs little beside a pass: of the bits as whole numbers, every array's times another number."""
    total = 0
    for n, array in enumerate(arrays):
        bits = np.ascontiguousarray(array).reshape(-1).view(np.uint64)
        total += (2 * n + 1) * int(np.add.reduce(bits, dtype=np.uint64))
    return total % (1 << 62)


def written(where: Where, messages: Messages, changed: list[int], memory: SiteMemory) -> tuple[Version, ...]:
    """Write the messages to some modes, or to the noise, and keep all in memory; gives the versions of all."""
    versions = list(where.versions)
    for what in changed:
        arrays = tuple(np.ascontiguousarray(array) for array in _of(messages, what))
        _write(_path(where, what, where.following), arrays)
        versions[what] = Version(where.following, _sum(arrays))
    memory.put(where._replace(versions=tuple(versions)), messages)
    return tuple(versions)


def _write(path: Path, arrays: tuple[np.ndarray, ...]) -> None:
    """Write arrays that appear under the path at once, whoever writes the same there at the same time."""
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(6)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as handle:
            for array in arrays:
                np.save(handle, array, allow_pickle=False)
        os.replace(temporary, path)
    except OSError as error:
        size = sum(array.nbytes for array in arrays)
        raise OSError(
            f"cannot write {size:,} bytes into '{path.parent}' ({reason_of(error)}); free some, or name another."
        ) from None
    finally:
        temporary.unlink(missing_ok=True)


def _read(path: Path, checksum: int, into: tuple[np.ndarray, ...]) -> None:
    """Read arrays in place.

    Raises
    ------
    ValueError
        If the file is damaged, or not there.
    """
    try:
        with open(path, "rb") as handle:
            for array in into:
                array[...] = np.load(handle, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"the messages in '{path}' cannot be read ({reason_of(error)}); {HINT}.") from None
    if _sum(into) != checksum:
        fail_value(f"the messages in '{path}' are damaged (another checksum); {HINT}.")


# Where the messages of every run of a fit are, and which of their files are needed.


class Stored(NamedTuple):
    """The messages of a run: where, how they began, the number of the last pass over them, and all versions now.

    `versions` has those of every chunk to each mode and to the noise; none before the first pass.
    """

    folder: str
    first: First
    dtype: str
    latest: int
    versions: tuple[tuple[Version, ...], ...]


class Shelf:
    """All messages of a fit, in a folder.

    Those of a state are told by their array, which has no blocks here. Files that neither a state nor what is stored of
    a run needs are removed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0
        self._of: dict[int, Stored] = {}
        self._held: dict[int, Stored] = {}
        self._left: set[str] = set()  # folders of states that are gone

    def add(self, Lam: np.ndarray, first: First) -> None:
        """Messages that begin; those of states that are gone, such as of a start that was not the best, go now.

        Not before: a fit that ends without having ended goes on from them.
        """
        for run in [run for run, one in self._held.items() if one.folder in self._left]:
            self._remove(self._held.pop(run))
        self._count += 1
        self._of[id(Lam)] = Stored(str(self._folder / f"{self._count:04d}"), first, Lam.dtype.name, 0, ())
        weakref.finalize(Lam, self._drop, id(Lam))

    def get(self, Lam: np.ndarray) -> Stored | None:
        """Where these messages are; None of those that are here."""
        return self._of.get(id(Lam))

    def move(self, Lam: np.ndarray, stored: Stored) -> None:
        """The messages have other versions."""
        before = self._of[id(Lam)]
        self._of[id(Lam)] = stored
        self._remove(before)

    def hold(self, run: int, stored: Stored) -> None:
        """Keep the files of these versions until others are held for the run."""
        before = self._held.get(run)
        self._held[run] = stored
        if before is not None:
            self._remove(before)

    def end(self) -> None:
        """Remove all files."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _drop(self, key: int) -> None:
        stored = self._of.pop(key)
        self._left.add(stored.folder)
        self._remove(stored)

    def _remove(self, stored: Stored) -> None:
        """Remove the files of what nobody needs any more."""
        needed = {path for one in (*self._of.values(), *self._held.values()) for path in _folders(one)}
        for path in _folders(stored) - needed:
            shutil.rmtree(path, ignore_errors=True)


def _folders(stored: Stored) -> set[Path]:
    """Where the messages are: the versions of all chunks have the same numbers."""
    versions = stored.versions[0] if stored.versions else ()
    return {folder_of(stored.folder, what, one.number) for what, one in enumerate(versions) if one.number}
