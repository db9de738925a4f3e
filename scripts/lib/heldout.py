"""Training entries and held-out ones of Alog, Enron and DBLP, in one form for our estimators and for others'.

Alog and Enron have five published folds. DBLP has one training set, the published ones and as many zeros drawn outside
the ones and all test sets (the published zeros are not available), and 50 test sets of 200 ones and 1,800 zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tensorcep import datasets
from tensorcep.metrics import auc

SHAPES = {"alog": datasets.ALOG_SHAPE, "enron": datasets.ENRON_SHAPE, "dblp": datasets.DBLP_SHAPE}
LABELLED = ("enron", "dblp")
ZEROS_SEED = 0  # of the zeros of DBLP and of their order: every fit sees the same entries


class Entries(NamedTuple):
    """Coordinates (N, K) counted from 0 and values (N,)."""

    coords: np.ndarray
    y: np.ndarray


class Split(NamedTuple):
    """Entries to fit and entries to score; a score that ranks entries is taken in each test set and averaged."""

    data: str
    fold: int
    shape: tuple[int, ...]
    train: Entries
    tests: list[Entries]

    @property
    def held(self) -> Entries:
        """The test entries of all sets, one after the other."""
        return Entries(np.concatenate([test.coords for test in self.tests]), np.concatenate([t.y for t in self.tests]))


def dblp_entries(seed: int, size: int | None = None) -> tuple[Entries, list[Entries]]:
    """Training entries of DBLP in random order, of which the first `size` are taken, and the test sets."""
    data = datasets.load_dblp()
    zeros = data.train.sample_zeros(data.train.nnz, exclude=data.tests, random_state=seed)
    coords = np.concatenate([data.train.coords, zeros.coords])
    y = np.concatenate([data.train.values, zeros.values])
    chosen = np.random.default_rng(seed).permutation(len(y))[:size]
    return Entries(coords[chosen], y[chosen]), [Entries(test.coords, test.values) for test in data.tests]


def aucs(tests: Sequence[Entries], score: np.ndarray) -> np.ndarray:
    """AUC in each test set, of scores of the entries of all sets."""
    parts = np.split(score, np.cumsum([len(test.y) for test in tests])[:-1])
    return np.array([auc(test.y, part) for test, part in zip(tests, parts, strict=True)])


def inner(split: Split, part: int = 5) -> Split:
    """Hold out one in `part` training entries instead of the test entries: settings are chosen on these."""
    coords, y = split.train
    shuffled = np.random.default_rng(split.fold).permutation(len(y))
    held, kept = shuffled[: len(y) // part], shuffled[len(y) // part :]
    return split._replace(train=Entries(coords[kept], y[kept]), tests=[Entries(coords[held], y[held])])


def splits(data: str, folds: Sequence[int], *, sets: int = 50, size: int | None = None) -> list[Split]:
    """The folds of a data set asked for (DBLP has one), each with the first `size` training entries.

    Test entries of Alog and Enron are those of the published files, which list some cells twice.
    """
    if data == "dblp":
        train, tests = dblp_entries(ZEROS_SEED, size)
        return [Split(data, 1, SHAPES[data], train, tests[:sets])]
    result = []
    for fold in folds:
        coords, y = datasets.published_entries(f"{data}/train-fold-{fold}.txt")
        test = Entries(*datasets.published_entries(f"{data}/test-fold-{fold}.txt"))
        chosen = slice(None) if size is None else np.random.default_rng(fold).permutation(len(y))[:size]
        result.append(Split(data, fold, SHAPES[data], Entries(coords[chosen], y[chosen]), [test]))
    return result
