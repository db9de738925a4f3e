"""Where the messages of every run of a fit are, and which of their files are needed."""

from __future__ import annotations

import shutil
import weakref
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tensorcep.cp.messages.sent import First
from tensorcep.cp.workers.kept import Version, folder_of


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
