"""Choosing among the entries of a tensor: splits, folds, batches, sampled zeros."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tensorcep.core.checks import check_choice, check_int, check_mask_or_rows, check_random_state
from tensorcep.entries.choices import cells_to_exclude, joined_entries
from tensorcep.entries.coo import sample_free_cells
from tensorcep.entries.folds import FOLD_ROWS, Folds
from tensorcep.entries.interop import column_names
from tensorcep.entries.splitting import held_out, way_of

if TYPE_CHECKING:
    from tensorcep.entries.labels import Labels
    from tensorcep.entries.tensor import SparseTensor


class Choosing:
    """What a `SparseTensor` does when entries are chosen or added."""

    coords: NDArray[np.int64]
    values: NDArray[np.float64]
    shape: tuple[int, ...]
    zero_rate: float | None
    sampled: NDArray[np.bool_] | None
    labels: tuple[Labels | None, ...]

    @property
    def nnz(self) -> int:
        """The number of observed entries N, those of value zero included."""
        return int(self.values.shape[0])

    def _with(
        self,
        coords: NDArray[np.int64],
        values: NDArray[np.float64],
        zero_rate: float | None = None,
        sampled: NDArray[np.bool_] | None = None,
    ) -> SparseTensor:
        """Return a tensor of the same shape and labels from entries that are known to be good."""
        new = object.__new__(type(self._itself))
        new._set(np.ascontiguousarray(coords), values, self.shape, self.labels, zero_rate, sampled)
        return new

    @property
    def _itself(self) -> SparseTensor:
        return cast("SparseTensor", self)

    def select(self, where: ArrayLike) -> SparseTensor:
        """Return the entries where a boolean array (N,) is true, or those at distinct integer positions.

        Examples
        --------
        >>> from tensorcep import SparseTensor
        >>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
        >>> tensor.select(tensor.values > 2).values.tolist()
        [3.0, 4.0]
        """
        rows = check_mask_or_rows(where, self.nnz)
        sampled = None if self.sampled is None else self.sampled[rows]
        return self._with(self.coords[rows], self.values[rows], self.zero_rate, sampled)

    def concatenate(self, *others: SparseTensor, duplicates: str = "error") -> SparseTensor:
        """Return the entries of this and other tensors of the same shape and labels.

        The `zero_rate` is that of the tensors that hold zeros, and None where theirs differ.

        Examples
        --------
        >>> from tensorcep import SparseTensor
        >>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
        >>> more = SparseTensor.from_coo([[2, 0]], [5.0], (3, 2))
        >>> len(tensor.concatenate(more))
        5
        """
        return self._with(*joined_entries((self._itself, *others), duplicates))

    def train_test_split(
        self,
        test_size: float = 0.2,
        random_state: Any = None,
        *,
        by: str = "entry",
        mode: Any = None,
        times: Any = None,
    ) -> tuple[SparseTensor, SparseTensor]:
        """Return (train, test): a part of the entries held out, by default at random.

        Parameters
        ----------
        test_size : float in (0, 1) or int, default=0.2
            A share, or a number, of what `by` says: of entries, times, the entries of each row, or rows.
        random_state : int, RandomState, Generator or None
        by : {"entry", "time", "row", "group"}, default="entry"
            "entry": entries at random, by scikit-learn's splitter. "time": the last times; entries of one time stay
            together, and a share is that of the entries, as nearly as times allow. "row": so many entries of each row
            of `mode`, or a share of them, rounded; the last ones by `times`, else random ones. A row whose entries
            would not leave one to train on is not held out. "group": rows of `mode` with all their entries.
        mode : name or position
            The mode of "row" and "group", such as the user.
        times : name or position of a mode, or array-like of shape (N,)
            Of "time", and of "row" if you like: numbers, times, or text such as 2024-01-31 or w12.

        Raises
        ------
        ValueError, TypeError
            If a parameter is not allowed, or nothing would be left to train on, or to test on.

        Examples
        --------
        >>> from tensorcep import SparseTensor
        >>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
        >>> train, test = tensor.train_test_split(test_size=0.25, random_state=0)
        >>> len(train), len(test)
        (3, 1)
        >>> train, test = tensor.train_test_split(1, by="row", mode=0, random_state=0)
        >>> test.coords[:, 0].tolist()
        [0]
        """
        way = way_of(by, mode, times, self._column)
        train, test = held_out(way, self.nnz, test_size, random_state)
        return self.select(train), self.select(test)

    def _column(self, mode: Any) -> Any:
        """What entries have in a mode: labels, or indices; of None something for each entry."""
        if mode is None:
            return self.values
        names = column_names([None if found is None else found.name for found in self.labels], None)
        k = names.index(mode) if mode in names and not isinstance(mode, bool) else mode
        if not isinstance(k, (int, np.integer)):
            check_choice("a mode", mode, names)
        k = check_int("mode", k, 0, len(names) - 1)
        found = self.labels[k]
        return self.coords[:, k] if found is None else found.index.take(self.coords[:, k])

    def kfold(
        self,
        n_splits: int = 5,
        random_state: Any = None,
        *,
        shuffle: bool = True,
        by: str = "entry",
        mode: Any = None,
        times: Any = None,
    ) -> Folds:
        """Return folds of the entries, by scikit-learn's KFold.

        With `by`, `mode` and `times` as in `train_test_split` folds hold out parts of all rows ("row"), whole rows
        ("group"), or later and later times, each predicted from those before it ("time", as `TimeSeriesSplit`).

        Iterating over them gives (train, test), two tensors, for each fold. As `cv` they let scikit-learn
        cross-validate an estimator of this package on the tensor, which is then `X` without a `y`::

            cross_val_score(CPRegressor(), tensor, cv=tensor.kfold(5, 0))

        Folds that are not shuffled hold out all entries of some rows where entries are sorted; a warning says so.

        Examples
        --------
        >>> from tensorcep import SparseTensor
        >>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
        >>> [(len(train), len(test)) for train, test in tensor.kfold(2, random_state=0)]
        [(2, 2), (2, 2)]
        """
        return Folds(self._itself, n_splits, random_state, shuffle, way_of(by, mode, times, self._column))

    def __getitem__(self, rows: Any) -> SparseTensor:
        """Return the entries of a fold, as scikit-learn asks for them; `select` chooses others."""
        rows = rows[0] if isinstance(rows, tuple) and len(rows) == 2 and rows[1] is Ellipsis else rows
        if getattr(rows, "dtype", None) != FOLD_ROWS:
            raise TypeError(
                "a SparseTensor is not indexed by position: choose entries by select(rows), and cross-validate with "
                "cv=tensor.kfold(n_splits), since scikit-learn would take the rows of the first mode for samples."
            )
        return self.select(rows)

    def minibatches(self, size: int, random_state: Any = None, shuffle: bool = True) -> Iterator[SparseTensor]:
        """Yield the entries in batches of `size` (the last may be smaller), shuffled or in their order.

        Examples
        --------
        >>> from tensorcep import SparseTensor
        >>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
        >>> [len(batch) for batch in tensor.minibatches(3, random_state=0)]
        [3, 1]
        """
        size = check_int("size", size)
        order = check_random_state(random_state).permutation(self.nnz) if shuffle else np.arange(self.nnz)
        return (self.select(order[n : n + size]) for n in range(0, self.nnz, size))

    def sample_zeros(self, n: int, exclude: Any = None, random_state: Any = None) -> SparseTensor:
        """Return `n` entries of value zero in distinct cells, uniform over those neither observed nor excluded.

        They are marked as `sampled` and come alone: `with_zeros` adds them to the entries of this tensor. Their
        `zero_rate` is `n` over the number of such cells. It is right for a fit to all ones: sample zeros before you
        hold entries out, or divide the rate by the share of the ones that the fit gets.

        Parameters
        ----------
        n : int
            To recommend by clicks or purchases, three to five times the entries.
        exclude : SparseTensor, coords (M, K), or a list or tuple of SparseTensors, optional
            Cells to keep out, for instance the test set.
        random_state : int, RandomState, Generator or None

        Raises
        ------
        ValueError
            If fewer than `n` cells are free.

        Examples
        --------
        >>> from tensorcep import SparseTensor
        >>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
        >>> tensor.sample_zeros(2, random_state=0).values.tolist()
        [0.0, 0.0]
        """
        n = check_int("n", n, minimum=0)
        rng = check_random_state(random_state)
        several = isinstance(exclude, (list, tuple)) and any(isinstance(item, Choosing) for item in exclude)
        others = exclude if several else [] if exclude is None else [exclude]
        taken = [self.coords, *(cells_to_exclude(item, self.shape) for item in others)]
        cells, share = sample_free_cells(n, taken, self.shape, rng)
        return self._with(cells, np.zeros(n), share or 1.0, np.ones(n, dtype=bool))

    def with_zeros(self, n: int, exclude: Any = None, random_state: Any = None) -> SparseTensor:
        """Return the entries of this tensor and `n` entries of value zero, drawn as `sample_zeros` draws them.

        Examples
        --------
        >>> from tensorcep import SparseTensor
        >>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
        >>> sorted(tensor.with_zeros(2, random_state=0).values.tolist())
        [0.0, 0.0, 1.0, 2.0, 3.0, 4.0]
        """
        return self.concatenate(self.sample_zeros(n, exclude, random_state))
