"""Files of a fit on workers: entries, which they map, and what they keep of these, such as messages.

Entries of a range of rows of one mode are written once, and named by content. A row's sum runs over its entries in
their order, wherever it is made: ranges of whole rows have the bits of one process. What workers keep of entries
(sites: the messages of each) is in a new file for every version. A task reads the versions that it is told and writes
new ones beside them, and so can be done again, by whatever worker, which has in memory what it has written.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import secrets
import shutil
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tensorcep.core.checks import fail_value, reason_of
from tensorcep.cp.model.entries import Entries
from tensorcep.kernels.slots import lane_zeros

Item = TypeVar("Item")
HINT = "remove the folder, and fit again"


class RowPartition(NamedTuple):
    """The entries of a range of rows of one mode: row i has the places start[i]:start[i + 1] of the other arrays."""

    start: np.ndarray
    others: np.ndarray  # (N, K - 1), their packed rows in the other modes
    value: np.ndarray  # (N,), a number that stays, if one does


class ChunkPart(NamedTuple):
    """The entries of a chunk, as `Entries` has them."""

    rows: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    known: np.ndarray
    theta: np.ndarray


def shared(items: Sequence[Item], workers: Sequence[Any]) -> list[list[Item]]:
    """The items, in their order, in a list for each worker, or fewer."""
    n = max(1, min(len(items), len(workers)))
    return [list(items[i * len(items) // n : (i + 1) * len(items) // n]) for i in range(n)]


def write_part(folder: Path, part: Any) -> str:
    """Write a record of arrays into the folder, unless it is there; gives its path. Too little room is an OSError."""
    sums = {name: _sum(array) for name, array in part._asdict().items()}
    path = folder / _sum(np.frombuffer(json.dumps(sums).encode(), dtype=np.uint8))
    if path.is_dir():
        return str(path)
    size, free = sum(array.nbytes for array in part), shutil.disk_usage(folder).free
    if size > free:
        raise OSError(f"'{folder}' has room for {free:,} bytes, and {size:,} are needed; free some, or name another.")
    temporary = folder / f".{path.name}"
    shutil.rmtree(temporary, ignore_errors=True)  # what a killed process left
    try:
        temporary.mkdir()
        for name, array in part._asdict().items():
            np.save(temporary / f"{name}.npy", array, allow_pickle=False)
        (temporary / "sums.json").write_text(json.dumps(sums))
        temporary.rename(path)
    except OSError as error:
        reason = reason_of(error)
        raise OSError(f"cannot write {size:,} bytes into '{folder}' ({reason}); free some, or name another.") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return str(path)


def _sum(array: np.ndarray) -> str:
    found = hashlib.blake2b(f"{array.dtype.str} {array.shape}".encode(), digest_size=16)
    if array.nbytes:
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()


_OPEN: dict[str, Any] = {}
_LOCK = threading.Lock()


def open_part(path: str, kind: Any) -> Any:
    """A record of this type, mapped into memory; a process that opens it first finds if it is damaged (ValueError)."""
    with _LOCK:
        part = _OPEN.get(path)
        if part is not None:
            return part
        try:
            sums = json.loads(Path(path, "sums.json").read_bytes())
            # copies on writing: arrays that must not be written are of another type, for which kernels compile again
            arrays = {name: np.load(Path(path, f"{name}.npy"), mmap_mode="c") for name in kind._fields}
        except (OSError, ValueError, EOFError) as error:
            raise ValueError(f"the entries in '{path}' cannot be read ({reason_of(error)}); {HINT}.") from None
        part = kind(**{name: np.asarray(array) for name, array in arrays.items()})
        damaged = [name for name, array in part._asdict().items() if sums.get(name) != _sum(array)]
        if damaged:
            file = os.path.join(path, damaged[0])
            fail_value(f"the entries in '{file}.npy' are damaged (another checksum); {HINT}.")
        _OPEN[path] = part
        return part


def close_part(path: str) -> None:
    """Give the memory of a record back that has been read; the system has its files, and reads them again."""
    with _LOCK:
        found = _OPEN.get(path, ())
    for array in found:
        mapped = array.base
        while isinstance(mapped, np.ndarray):
            mapped = mapped.base
        if isinstance(mapped, mmap.mmap) and hasattr(mapped, "madvise"):
            mapped.madvise(mmap.MADV_DONTNEED)


# What workers keep of entries.


class Version(NamedTuple):
    """A version of what the entries of a chunk keep for one mode, or beside all; 0 is that with which they begin."""

    number: int = 0
    checksum: int = 0


class Beginning(NamedTuple):
    """How sites begin: zeros `like` a record of arrays (n_blocks, ...), and a kernel's pass over the chunk."""

    # arrays of three axes or more have something for every mode, the second; others are beside: none where that is 0
    like: Any
    kernel: Callable[..., None]
    record: dict[str, Any]  # its arguments
    name: str  # what it calls the sites

    def made(self, entries: Entries) -> Any:
        """The sites of the entries of a chunk."""
        n = len(entries.rows)
        arrays = (lane_zeros((n if all(a.shape[1:]) else 0, *a.shape[1:]), a.dtype) for a in self.like)
        sites = type(self.like)(*arrays)
        self.kernel(0, 1, *(self.record | {"entries": entries, self.name: sites}).values())
        return sites


class StoredSites(NamedTuple):
    """The sites of a run, or a chunk."""

    folder: str
    beginning: Beginning
    latest: int = 0  # the number of the last pass over them
    versions: tuple[tuple[Version, ...], ...] = ()  # of every chunk, of modes and of what is beside; () before a pass

    def of_chunk(self, chunk: int) -> StoredSites:
        """Those of a chunk alone."""
        n_parts = 1 + max(array.shape[1] for array in self.beginning.like if array.ndim > 2)
        return self._replace(versions=(self.versions[chunk] if self.versions else (Version(),) * n_parts,))

    def path(self, part: int, number: int) -> Path:
        """The folder of all chunks of a version of a part."""
        return Path(self.folder, f"{part}-{number}")

    @property
    def paths(self) -> set[Path]:
        """Where they are: the versions of all chunks have the same numbers."""
        versions = self.versions[0] if self.versions else ()
        return {self.path(part, one.number) for part, one in enumerate(versions) if one.number}

    def tree(self) -> dict[str, Any]:
        """What a file keeps of it."""
        versions = np.array(self.versions, dtype=np.int64).reshape(len(self.versions), -1, 2)
        return {"folder": self.folder, "latest": self.latest, "versions": versions}

    def at(self, folder: str, latest: int, versions: np.ndarray) -> StoredSites:
        """The sites that a file tells of, which began as these."""
        parts = tuple(tuple(Version(*pair) for pair in own) for own in versions.tolist())
        return self._replace(folder=folder, latest=latest, versions=parts)


class SiteMemory:
    """What a worker has in memory of sites, by the chunk; it ends with the run that it belongs to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[int, tuple[tuple[str, Any], Any]] = {}

    def __reduce__(self) -> Any:  # sent like an array that tasks need: Dask lets go of it when nobody needs it any more
        return SiteMemory, ()

    def take(self, chunk: int, stored: StoredSites, entries: Entries) -> Any:
        """The sites of a chunk, from memory or from files; until they are written, nobody has them in memory."""
        with self._lock:
            version, sites = self._kept.pop(chunk, (None, None))
        if version == (stored.folder, stored.versions):
            return sites
        sites = stored.beginning.made(entries)
        for part, one in enumerate(stored.versions[0]):
            if one.number:
                _read(stored.path(part, one.number) / f"{chunk}.npy", one.checksum, _of(sites, part))
        return sites

    def write(self, chunk: int, stored: StoredSites, sites: Any, modes: Sequence[int]) -> tuple[Version, ...]:
        """Write what is of some modes, and with the last mode what is beside them; gives the versions of all parts."""
        versions, last, number = list(stored.versions[0]), len(stored.versions[0]) - 1, stored.latest + 1
        for part in (*modes, *([last] if last - 1 in modes else [])):
            arrays = tuple(np.ascontiguousarray(array) for array in _of(sites, part))
            if arrays[0].size:
                _write(stored.path(part, number) / f"{chunk}.npy", arrays)
                versions[part] = Version(number, _checksum(arrays))
        with self._lock:
            self._kept[chunk] = ((stored.folder, (tuple(versions),)), sites)
        return tuple(versions)


def _of(sites: Any, part: int) -> tuple[np.ndarray, ...]:
    """What is of a mode, or after all modes, of none."""
    of_modes = [array for array in sites if array.ndim > 2]
    if part < of_modes[0].shape[1]:
        return tuple(array[:, part] for array in of_modes)
    return tuple(array for array in sites if array.ndim == 2)


def _checksum(arrays: tuple[np.ndarray, ...]) -> int:
    """A checksum that costs little beside a pass: of the bits as whole numbers, every array's times another number."""
    total = 0
    for n, array in enumerate(arrays):
        bits = np.ascontiguousarray(array).reshape(-1).view(np.uint64)
        total += (2 * n + 1) * int(np.add.reduce(bits, dtype=np.uint64))
    return total % (1 << 62)


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
        size, reason, folder = sum(array.nbytes for array in arrays), reason_of(error), path.parent
        raise OSError(f"cannot write {size:,} bytes into '{folder}' ({reason}); free some, or name another.") from None
    finally:
        temporary.unlink(missing_ok=True)


def _read(path: Path, checksum: int, into: tuple[np.ndarray, ...]) -> None:
    """Read arrays in place; a file that is damaged, or not there, is a ValueError."""
    try:
        with open(path, "rb") as handle:
            for array in into:
                array[...] = np.load(handle, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"the messages in '{path}' cannot be read ({reason_of(error)}); {HINT}.") from None
    if _checksum(into) != checksum:
        fail_value(f"the messages in '{path}' are damaged (another checksum); {HINT}.")


class SiteFiles:
    """All sites of a fit, in a folder; files that neither a state nor what is stored of a run needs are removed."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0
        self._of: dict[int, StoredSites] = {}  # of a state, by its first array, which has no blocks here
        self._held: dict[int, StoredSites] = {}
        self._left: set[str] = set()  # folders of states that are gone

    def add(self, sites: Any, beginning: Beginning) -> None:
        """Sites that begin; those of states that are gone, such as of a start that was not the best, go now."""
        # not before: a fit that ends without having ended goes on from them
        for run in [run for run, one in self._held.items() if one.folder in self._left]:
            self._remove(self._held.pop(run))
        self._count += 1
        self._of[id(sites[0])] = StoredSites(str(self._folder / f"{self._count:04d}"), beginning)
        weakref.finalize(sites[0], self._drop, id(sites[0]))

    def get(self, sites: Any) -> StoredSites | None:
        """Where these sites are; None of those that are here."""
        return self._of.get(id(sites[0]))

    def move(self, sites: Any, stored: StoredSites) -> None:
        """The sites have other versions."""
        before, self._of[id(sites[0])] = self._of[id(sites[0])], stored
        self._remove(before)

    def hold(self, run: int, found: Sequence[Any]) -> None:
        """Keep the files of the sites that are found in a state that is stored of a run, until its next one is."""
        for stored in found:
            if isinstance(stored, StoredSites):
                before, self._held[run] = self._held.get(run), stored
                if before is not None:
                    self._remove(before)

    def end(self) -> None:
        """Remove all files."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _drop(self, key: int) -> None:
        stored = self._of.pop(key)
        self._left.add(stored.folder)
        self._remove(stored)

    def _remove(self, stored: StoredSites) -> None:
        """Remove the files of what nobody needs any more."""
        needed = {path for one in (*self._of.values(), *self._held.values()) for path in one.paths}
        for path in stored.paths - needed:
            shutil.rmtree(path, ignore_errors=True)
