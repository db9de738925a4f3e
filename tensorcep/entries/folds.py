"""Folds of the entries of a tensor: pairs of tensors, and a splitter for scikit-learn's cross-validation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorcep.core.checks import check_flag, check_int, fail_value, warn_user
from tensorcep.entries.choices import Rows
from tensorcep.entries.splitting import Way, folds_by

if TYPE_CHECKING:
    from tensorcep.entries.tensor import SparseTensor


# Positions of entries have a type by which a tensor knows them: scikit-learn's own are of the first mode's rows.
FOLD_ROWS = np.dtype(np.uint32)


class Folds:
    """What `SparseTensor.kfold` returns: an iterable of (train, test) tensors, which scikit-learn takes as `cv`."""

    def __init__(self, tensor: SparseTensor, n_splits: int, random_state: Any, shuffle: bool, way: Way) -> None:
        n_splits = check_int("n_splits", n_splits, minimum=2)
        pairs = folds_by(way, tensor.nnz, n_splits, random_state, check_flag("shuffle", shuffle))
        self._tensor = tensor
        self._rows: list[Any] = [tuple(part.astype(FOLD_ROWS) for part in pair) for pair in pairs]
        if not shuffle and way.by == "entry":
            _warn_of_unseen(tensor, self._rows)

    def __iter__(self) -> Iterator[tuple[SparseTensor, SparseTensor]]:
        return ((self._tensor.select(a), self._tensor.select(b)) for a, b in self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"<{len(self)} folds of {self._tensor!r}>"

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds."""
        return len(self)

    def split(self, X: Any = None, y: Any = None, groups: Any = None) -> Iterator[tuple[Rows, Rows]]:
        """Yield the positions of the entries to train on and to test on.

        Raises
        ------
        ValueError
            If X does not hold as many entries as the tensor.
        """
        n = self._tensor.nnz
        if X is not None and len(X) != n:
            fail_value(f"these folds are of {n} entries; got {len(X)}; make folds of the tensor that is split.")
        return iter(self._rows)


def _warn_of_unseen(tensor: SparseTensor, folds: Any) -> None:
    """Say of folds in the order of the entries that they hold out all entries of some rows."""
    n = sum(int(_unseen(tensor, train, test).sum()) for train, test in folds)
    if n:
        warn_user(
            f"{n} of {tensor.nnz} entries would be tested in folds that train on no entry of one of their rows, as "
            "folds in the order of the entries do; use shuffle=True, unless rows without training entries are meant.",
            UserWarning,
        )


def _unseen(tensor: SparseTensor, train: Rows, test: Rows) -> np.ndarray:
    """Which entries to test (n,) touch a row that no training entry touches."""
    result = np.zeros(len(test), dtype=bool)
    for k, size in enumerate(tensor.shape):
        seen = np.zeros(size, dtype=bool)
        seen[tensor.coords[train, k]] = True
        result |= ~seen[tensor.coords[test, k]]
    return result
