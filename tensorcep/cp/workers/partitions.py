"""Entries of a range of rows of one mode, in files that the workers of a cluster map: written once, named by content.

A row's sum runs over its entries in their order, wherever it is made. So ranges of whole rows can be summed on any
number of workers, to the bits of one process.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tensorcep.core.checks import fail_value, reason_of
from tensorcep.core.persist.archive import atomic_write

Item = TypeVar("Item")


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
        with atomic_write(temporary / "sums.json") as handle:
            handle.write(json.dumps(sums).encode())
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
        hint = "remove the folder, and fit again"
        try:
            sums = json.loads(Path(path, "sums.json").read_bytes())
            # copies on writing: arrays that must not be written are of another type, for which kernels compile again
            arrays = {name: np.load(Path(path, f"{name}.npy"), mmap_mode="c") for name in kind._fields}
        except (OSError, ValueError, EOFError) as error:
            raise ValueError(f"the entries in '{path}' cannot be read ({reason_of(error)}); {hint}.") from None
        part = kind(**{name: np.asarray(array) for name, array in arrays.items()})
        damaged = [name for name, array in part._asdict().items() if sums.get(name) != _sum(array)]
        if damaged:
            file = os.path.join(path, damaged[0])
            fail_value(f"the entries in '{file}.npy' are damaged (another checksum); {hint}.")
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
