"""Sparse tensors: cells, values and labels, splits and folds of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from tensorcep.core.checks import (
    check_choice,
    check_coords,
    check_flag,
    check_fraction,
    check_int,
    check_mask_or_rows,
    check_mode_count,
    check_random_state,
    check_range,
    check_same_shape,
    check_shape,
    check_sizes,
    check_values,
    fail_value,
    optional_module,
    printable,
    warn_user,
)
from tensorcep.entries import convert as _interop
from tensorcep.entries.convert import column_names, frame_entries
from tensorcep.entries.coo import (
    Coords,
    TensorInfo,
    Values,
    check_counting,
    check_sampled,
    describe,
    merge_duplicates,
    merge_marks,
    sample_free_cells,
)
from tensorcep.entries.labels import Labels, check_labels

# Choosing among entries and joining them: what `SparseTensor` does when it is split or combined.

if TYPE_CHECKING:
    pass

Rows = NDArray[np.int64]


def split_rows(n: int, test_size: float, random_state: Any) -> tuple[Rows, Rows]:
    """Return ascending positions of the entries to train on and of those to test on."""
    from sklearn.model_selection import train_test_split

    train, test = train_test_split(np.arange(n), test_size=test_size, random_state=splitter_seed(random_state))
    return np.sort(train), np.sort(test)


def splitter_seed(random_state: Any) -> Any:
    """scikit-learn's splitters take no Generator: draw an integer seed from it."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**32))
    return random_state


def joined_entries(
    tensors: Sequence[SparseTensor], duplicates: str
) -> tuple[Coords, Values, float | None, NDArray[np.bool_] | None]:
    """Return the entries of tensors of the same shape and labels, the rate of their zeros, and which were sampled."""
    first = tensors[0]
    for other in tensors[1:]:
        check_same_shape(first.shape, other.shape)
        if first.labels != other.labels:
            fail_value("tensors must have the same labels to be combined; use from_pandas(..., labels=) for that.")
    coords = np.concatenate([item.coords for item in tensors])
    values = np.concatenate([item.values for item in tensors])
    rates = {item.zero_rate for item in tensors if (item.values == 0.0).any()} or {item.zero_rate for item in tensors}
    marks = [np.zeros(item.nnz, dtype=bool) if item.sampled is None else item.sampled for item in tensors]
    sampled = None
    if any(item.sampled is not None for item in tensors):
        sampled = merge_marks(np.concatenate(marks), coords, first.shape)
    merged = merge_duplicates(coords, values, first.shape, duplicates)
    return *merged, rates.pop() if len(rates) == 1 else None, sampled


def cells_to_exclude(item: Any, shape: tuple[int, ...]) -> Coords:
    """Return the cells of a tensor of this shape, or of given coordinates."""
    if hasattr(item, "coords"):
        check_same_shape(shape, item.shape)
        item = item.coords
    return check_coords(item, shape, name="exclude")


# Entries held out: at random, the last ones, some of each row, or whole rows.

WAYS = ("entry", "time", "row", "group")


class SplitWay(NamedTuple):
    """How entries are held out, checked.

    Attributes
    ----------
    by : str
        One of `WAYS`.
    rows : (N,) int64 or None
        Of "row" and "group" the row of each entry, counted from 0 without gaps.
    order : (N,) int64 or None
        The place of each entry's time among the distinct ones.
    """

    by: str
    rows: NDArray[np.int64] | None
    order: NDArray[np.int64] | None


def way_of(by: str, mode: Any, times: Any, column_of: Any) -> SplitWay:
    """Check how entries are to be held out; ``column_of(name)`` gives what the entries have in a mode or column.

    Raises
    ------
    ValueError
        If something is missing, or not used.
    """
    check_choice("by", by, WAYS)
    if by in ("row", "group") and mode is None:
        fail_value(f"by={by!r} needs mode=, the mode whose rows are meant, such as the user; give its name.")
    if by in ("entry", "time") and mode is not None:
        fail_value(f"mode= is for by='row' and by='group'; got {mode!r} with by={by!r}; leave it out.")
    if by == "time" and times is None:
        fail_value("by='time' needs times=: the mode that is the time, or a time for each entry.")
    if by in ("entry", "group") and times is not None:
        fail_value(f"times= is for by='time' and by='row'; got it with by={by!r}; leave it out.")
    rows = None if mode is None else Labels.from_column(column_of(mode))[1]
    return SplitWay(by, rows, None if times is None else _order_of(times, column_of))


def _order_of(times: Any, column_of: Any) -> NDArray[np.int64]:
    """The place of each entry's time among the distinct ones."""
    is_name = np.ndim(times) == 0 or isinstance(times, (str, tuple))
    what = f"times of {times!r}" if is_name else "times"
    column = pd.Series(column_of(times) if is_name else times).reset_index(drop=True)
    n = len(column_of(None))
    if len(column) != n:
        fail_value(f"times must be as many as the {n} entries; got {len(column)}.")
    if column.isna().any():
        fail_value(f"{what} must not be missing; got none for entry {int(np.argmax(column.isna()))}; leave it out.")
    found = _moments_of(column)
    if found is None:
        fail_value(
            f"{what} must be numbers, times, or text such as 2024-01-31 or w12; got {column.iloc[0]!r}; convert them."
        )
    return np.unique(np.asarray(found), return_inverse=True)[1].ravel().astype(np.int64)


def _moments_of(column: pd.Series) -> pd.Series | None:
    """Times as what numpy sorts: numbers as they are, text by the number or the date in it; None where it has none."""
    if isinstance(column.dtype, pd.PeriodDtype):
        return column.dt.ordinal if hasattr(column.dt, "ordinal") else column.dt.start_time
    if isinstance(column.dtype, pd.CategoricalDtype) and column.cat.ordered:
        return column.cat.codes
    if pd.api.types.is_bool_dtype(column.dtype):
        return None
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return column.astype("int64")
    if pd.api.types.is_timedelta64_dtype(column.dtype) or pd.api.types.is_numeric_dtype(column.dtype):
        return column.astype(column.dtype.numpy_dtype) if hasattr(column.dtype, "numpy_dtype") else column
    text = column.astype(str)
    numbers = pd.to_numeric(text, errors="coerce")
    if numbers.notna().all():
        return numbers
    dates = pd.to_datetime(text, errors="coerce", format="ISO8601", utc=True)
    if dates.notna().all():
        return dates.astype("int64")
    parts = text.str.extract(r"^(\D*)(\d+)(\D*)$")
    if parts.notna().all(axis=None) and len(parts[[0, 2]].drop_duplicates()) == 1:
        return parts[1].astype(float)
    return None


def held_out(way: SplitWay, n: int, test_size: Any, random_state: Any) -> tuple[Rows, Rows]:
    """Ascending positions of the entries to train on and of those to test on.

    Raises
    ------
    ValueError, TypeError
        If `test_size` is not allowed, or one of both would be empty.
    """
    if way.by == "entry":
        return split_rows(n, test_size, random_state)
    share, count = _size(test_size)
    if way.by == "time":
        test = _last(way, share, count)
    elif way.by == "group":
        test = _whole_rows(way, test_size, random_state)
    else:
        test = _some_of_each(way, share, count, random_state)
    return np.flatnonzero(~test), np.flatnonzero(test)


def _size(test_size: Any) -> tuple[float, int]:
    """A share, or else a number."""
    if isinstance(test_size, (int, np.integer)) and not isinstance(test_size, bool):
        return 0.0, check_int("test_size", test_size)
    return check_fraction("test_size", test_size), 0


def _last(way: SplitWay, share: float, count: int) -> NDArray[np.bool_]:
    """The entries of the last times: so many times, or those whose share of the entries is nearest."""
    order = _given(way.order)
    per_time = np.bincount(order)
    if len(per_time) < 2:
        fail_value("by='time' needs entries of at least two times; all have the same.")
    if count >= len(per_time):
        fail_value(f"test_size must leave one of the {len(per_time)} times to train on; got {count}.")
    if not count:
        after = np.cumsum(per_time[::-1])[:-1]  # entries of the last one, two, ... times
        count = 1 + int(np.argmin(np.abs(after - share * len(order))))
    return np.asarray(order >= len(per_time) - count)


def _whole_rows(way: SplitWay, test_size: Any, random_state: Any) -> NDArray[np.bool_]:
    """The entries of some rows."""
    from sklearn.model_selection import train_test_split

    rows = _given(way.rows)
    n_rows = int(rows.max()) + 1
    if n_rows < 2:
        fail_value("by='group' needs entries of at least two rows; all are of one.")
    _, chosen = train_test_split(np.arange(n_rows), test_size=test_size, random_state=splitter_seed(random_state))
    return np.isin(rows, chosen)


def _some_of_each(way: SplitWay, share: float, count: int, random_state: Any) -> NDArray[np.bool_]:
    """So many entries of each row, or a share, the last or random ones, but never all of a row."""
    rows = _given(way.rows)
    per_row = np.bincount(rows)
    wanted = np.full(len(per_row), count) if count else np.floor(share * per_row + 0.5).astype(np.int64)
    wanted = np.minimum(wanted, per_row - 1) if not count else np.where(per_row > count, count, 0)
    if not wanted.any():
        least = count + 1 if count else 2
        fail_value(
            f"no row has enough entries to hold out test_size={count or share:g} of them and to keep one; rows have at "
            f"most {per_row.max()}, at least {least} are needed."
        )
    from_end = per_row[rows] - 1 - _places(rows, way.order, random_state)
    return np.asarray(from_end < wanted[rows])


def _places(rows: NDArray[np.int64], order: NDArray[np.int64] | None, random_state: Any) -> NDArray[np.int64]:
    """The place of each entry among those of its row: by time, equal ones as they stand, or else at random."""
    by = check_random_state(random_state).permutation(len(rows)) if order is None else order
    sorted_ = np.lexsort((np.arange(len(rows)), by, rows))
    start = np.concatenate([[0], np.cumsum(np.bincount(rows))[:-1]])
    place = np.empty(len(rows), dtype=np.int64)
    place[sorted_] = np.arange(len(rows)) - start[rows[sorted_]]
    return place


def folds_by(way: SplitWay, n: int, n_splits: int, random_state: Any, shuffle: bool) -> list[tuple[Rows, Rows]]:
    """Positions of the entries to train on and to test on, for each fold.

    Raises
    ------
    ValueError
        If there are fewer times, rows or entries than folds need.
    """
    from sklearn.model_selection import KFold, TimeSeriesSplit

    seed = splitter_seed(random_state) if shuffle else None
    if way.by == "time":
        order = _given(way.order)
        cutter: Any = TimeSeriesSplit(n_splits)
        return [
            (np.flatnonzero(order <= train[-1]), np.flatnonzero(np.isin(order, test)))
            for train, test in cutter.split(np.arange(order.max() + 1))
        ]
    cutter = KFold(n_splits, shuffle=shuffle, random_state=seed)
    if way.by == "entry":
        return list(cutter.split(np.arange(n)))
    rows = _given(way.rows)
    if way.by == "group":
        tests = [np.isin(rows, test) for _, test in cutter.split(np.arange(rows.max() + 1))]
    else:
        # Each row's entries are dealt one by one, from a fold on that differs from row to row.
        deal = _places(rows, way.order, seed if way.order is None else None)
        tests = [np.asarray((deal + rows) % n_splits == fold) for fold in range(n_splits)]
        if not all(test.any() and not test.all() for test in tests):
            fail_value(f"n_splits must be at most what the entries of rows can be dealt to; got {n_splits}.")
    return [(np.flatnonzero(~test), np.flatnonzero(test)) for test in tests]


def _given(found: NDArray[np.int64] | None) -> NDArray[np.int64]:
    if found is None:
        raise TypeError("checked by way_of")
    return found


# Folds of the entries of a tensor: pairs of tensors, and a splitter for scikit-learn's cross-validation.

if TYPE_CHECKING:
    pass


# Positions of entries have a type by which a tensor knows them: scikit-learn's own are of the first mode's rows.
FOLD_ROWS = np.dtype(np.uint32)


class Folds:
    """What `SparseTensor.kfold` returns: an iterable of (train, test) tensors, which scikit-learn takes as `cv`."""

    def __init__(self, tensor: SparseTensor, n_splits: int, random_state: Any, shuffle: bool, way: SplitWay) -> None:
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


# Choosing among the entries of a tensor: splits, folds, batches, sampled zeros.

if TYPE_CHECKING:
    from tensorcep.entries.labels import Labels


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


# SparseTensor: the observed entries of a tensor, and what can be done with them before a fit.


@dataclass(frozen=True, eq=False, repr=False)
class SparseTensor(Choosing):
    """Observed entries of a tensor of order 2 (a matrix) or more. An absent cell is unobserved, never zero.

    Parameters
    ----------
    coords : array-like of shape (N, K)
        Row indices of each entry, counted from 0; kept as C-contiguous int64 (not copied when they already are).
    values : array-like of shape (N,)
        Finite numbers; kept as float64.
    shape : sequence of K ints, optional
        Default: the length of the labels, or else one more than the largest index of each mode.
    labels : sequence of K Labels, arrays or None, optional
        The names of the rows of each mode.
    duplicates : {"error", "mean", "sum", "last"}, default="error"
        What to do with a cell that occurs more than once. A merged entry stands where the cell first stood.
    zero_rate : float in (0, 1] or None, default=1
        For labels 0/1 whose zeros were sampled: the share of the population's zeros that the entries hold. None where
        it is not one number. `sample_zeros` sets it, and choices of entries, combinations and .npz files keep it;
        ``CPClassifier(zero_rate="auto")`` reads it.
    sampled : array-like of shape (N,) of bool, optional
        Which entries are zeros that nobody observed but `sample_zeros` drew; `recommend` does not count their cells as
        seen. Default: none. Choices of entries, combinations and .npz files keep it.

    Raises
    ------
    ValueError, TypeError
        On indices that are negative, not whole, or beyond the shape; on values that are not finite real numbers; on
        arrays or labels that do not fit together; on repeated cells. The container may be empty; a fit refuses that.

    Examples
    --------
    >>> from tensorcep import SparseTensor
    >>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
    >>> tensor.shape, tensor.nnz, tensor.density
    ((3, 2), 4, 0.6666666666666666)
    """

    coords: NDArray[np.int64]
    values: NDArray[np.float64]
    shape: tuple[int, ...] = None  # type: ignore[assignment]
    labels: tuple[Labels | None, ...] = None  # type: ignore[assignment]
    duplicates: InitVar[str] = field(default="error", kw_only=True)
    zero_rate: float | None = field(default=1.0, kw_only=True)
    sampled: NDArray[np.bool_] | None = field(default=None, kw_only=True)

    def __post_init__(self, duplicates: str) -> None:
        coords = check_coords(self.coords)
        values = check_values(self.values, coords.shape[0])
        labels = check_labels(self.labels, coords.shape[1])
        if self.shape is None:
            sizes = [int(coords[:, k].max()) + 1 if coords.shape[0] else 1 for k in range(coords.shape[1])]
            shape = tuple(int(n) if found is None else len(found) for n, found in zip(sizes, labels, strict=True))
            check_sizes(shape, coords.shape[0])
        else:
            shape = check_shape(self.shape, coords.shape[1])
        for k, found in enumerate(labels):
            if found is not None and len(found) != shape[k]:
                fail_value(f"labels of mode {k} must be as many as its {shape[k]} rows; got {len(found)}.")
        shape = check_shape(shape)
        coords = check_coords(coords, shape)
        marks = check_sampled(self.sampled, values)
        sampled = merge_marks(marks, coords, shape)
        coords, values = merge_duplicates(coords, values, shape, duplicates)
        if self.zero_rate is not None:
            check_range("zero_rate", self.zero_rate, 0.0, 1.0, include_low=False)
        self._set(coords, values, shape, labels, self.zero_rate, sampled)

    def _set(self, *parts: Any) -> None:
        for name, value in zip(("coords", "values", "shape", "labels", "zero_rate", "sampled"), parts, strict=True):
            object.__setattr__(self, name, value)

    @classmethod
    def from_checked(
        cls, coords: NDArray[np.int64], values: NDArray[np.float64], shape: Any, duplicates: str, labels: Any = None
    ) -> SparseTensor:
        """Return a tensor from arrays that are checked already, looking only for repeated cells."""
        new = object.__new__(cls)
        merged = merge_duplicates(coords, values, shape, duplicates)
        new._set(*merged, shape, labels or (None,) * len(shape), 1.0, None)
        return new

    @property
    def order(self) -> int:
        """The number of modes K."""
        return len(self.shape)

    @property
    def density(self) -> float:
        """Observed entries over cells."""
        return self.nnz / math.prod(self.shape)

    def __len__(self) -> int:
        return self.nnz

    def __repr__(self) -> str:
        named = [str(k if found.name is None else found.name) for k, found in enumerate(self.labels) if found]
        labels = printable(f", labels of {', '.join(named)}") if named else ""
        size = " x ".join(map(str, self.shape))
        return f"<SparseTensor {size}, {self.nnz:,} entries, density {100 * self.density:.3g} %{labels}>"

    # From and to other containers

    @classmethod
    def from_coo(
        cls,
        coords: ArrayLike,
        values: ArrayLike,
        shape: Sequence[int] | None = None,
        *,
        labels: Any = None,
        duplicates: str = "error",
    ) -> SparseTensor:
        """Return a tensor from indices (N, K) and values (N,); the same as calling the class.

        Examples
        --------
        >>> from tensorcep import SparseTensor
        >>> SparseTensor.from_coo([[0, 0], [1, 2]], [0.5, 1.5]).shape
        (2, 3)
        """
        return cls(coords, values, shape, labels, duplicates=duplicates)  # type: ignore[arg-type]

    @classmethod
    def from_pandas(
        cls,
        df: pd.DataFrame,
        modes: Sequence[Any],
        value: Any = "y",
        *,
        labels: Sequence[Labels | None] | None = None,
        duplicates: str = "error",
    ) -> SparseTensor:
        """Return a tensor from a long DataFrame: one line per entry, one column per mode, one for the value.

        Parameters
        ----------
        modes : sequence of K column names
            Columns of any dtype; their sorted distinct values become the labels (see `Labels.from_column`).
        value : column name or None, default="y"
            None where a line is an event: the value of a cell is the number of its lines.
        labels : sequence of K Labels or None, optional
            Labels of an earlier tensor, to keep its rows: labels that are new here are appended after them.

        Examples
        --------
        >>> import pandas as pd
        >>> from tensorcep import SparseTensor
        >>> table = pd.DataFrame({"user": ["u1", "u2"], "item": ["i1", "i1"], "stars": [4.0, 5.0]})
        >>> SparseTensor.from_pandas(table, modes=["user", "item"], value="stars").shape
        (2, 1)
        """
        policy = duplicates if value is not None else check_counting(duplicates)
        coords, values, found = frame_entries(df, modes, value, labels)
        check_sizes([len(names) for names in found], len(values))
        return cls.from_checked(coords, values, check_shape([len(names) for names in found]), policy, found)

    def to_pandas(self, modes: Sequence[Any] | None = None, value: Any = "y") -> pd.DataFrame:
        """Return a long DataFrame; modes with labels hold these, the others row indices.

        Column names default to the names of the labels, or mode_0, mode_1, ...

        Examples
        --------
        >>> from tensorcep import SparseTensor
        >>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
        >>> tensor.to_pandas(["user", "item"], "stars").columns.tolist()
        ['user', 'item', 'stars']
        """
        names = [None if found is None else found.name for found in self.labels] if modes is None else list(modes)
        check_mode_count(names, self.order)
        columns: dict[Any, Any] = {}
        for k, name in enumerate(_interop.column_names(names, value)):
            found = self.labels[k]
            columns[name] = self.coords[:, k] if found is None else found.index.take(self.coords[:, k])
        columns[value] = self.values
        return pd.DataFrame(columns, copy=True)

    @classmethod
    def from_scipy(cls, matrix: Any, *, duplicates: str = "sum") -> SparseTensor:
        """Return the stored elements of a scipy.sparse matrix, or of a coo_array of any order from two up.

        What is stored is observed, zeros too, of which a warning tells; zeros in the blocks of a bsr and on the
        diagonals of a dia fill these up, and are none. Elements of one cell are summed, as scipy does. Factor models
        take such matrices by the same rule.

        Examples
        --------
        >>> import scipy.sparse as sp
        >>> from tensorcep import SparseTensor
        >>> SparseTensor.from_scipy(sp.coo_array(([1.0, 2.0], ([0, 1], [1, 0])))).nnz
        2
        """
        return cls(*_interop.scipy_parts(matrix, duplicates))

    def to_scipy(self) -> Any:
        """Return a scipy.sparse coo_array (order 2 only); entries of value zero stay stored explicitly.

        Examples
        --------
        >>> from tensorcep import SparseTensor
        >>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
        >>> tensor.to_scipy().shape
        (3, 2)
        """
        check_mode_count(self.shape, 2, "to_scipy takes")
        from scipy.sparse import coo_array

        return coo_array((self.values.copy(), (self.coords[:, 0].copy(), self.coords[:, 1].copy())), shape=self.shape)

    @classmethod
    def from_dense(cls, array: ArrayLike, mask: ArrayLike | None = None, *, labels: Any = None) -> SparseTensor:
        """Return the observed cells of a dense array: where `mask` is true, or without a mask, where it is not NaN.

        Examples
        --------
        >>> import numpy as np
        >>> from tensorcep import SparseTensor
        >>> SparseTensor.from_dense([[1.0, np.nan], [2.0, 3.0]]).nnz
        3
        """
        return cls(*_interop.dense_parts(array, mask), labels)

    def to_dense(self, fill: float = np.nan) -> NDArray[np.float64]:
        """Return a dense array with `fill` in the unobserved cells.

        Examples
        --------
        >>> from tensorcep import SparseTensor
        >>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
        >>> tensor.to_dense(fill=0.0).tolist()
        [[1.0, 2.0], [3.0, 0.0], [0.0, 4.0]]
        """
        return _interop.to_dense(self.coords, self.values, self.shape, fill)

    @classmethod
    def from_tensorly(
        cls, tensor: Any, mask: Any = None, *, coords: ArrayLike | None = None, labels: Any = None
    ) -> SparseTensor:
        """Return the observed cells of a dense TensorLy tensor, or a CPTensor at `coords` (default: every cell).

        `mask` follows TensorLy: 1 where observed. Tensors of TensorLy's numpy backend, or convertible to numpy.

        Examples
        --------
        >>> import numpy as np
        >>> from tensorcep import SparseTensor
        >>> SparseTensor.from_tensorly(np.ones((2, 3)), mask=np.eye(2, 3)).nnz
        2
        """
        return cls(*_interop.tensorly_parts(tensor, mask, coords), labels)

    def to_tensorly(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return (tensor, mask) as TensorLy's masked decompositions take them: zeros and mask 0 where unobserved.

        Examples
        --------
        >>> from tensorcep import SparseTensor
        >>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
        >>> values, mask = tensor.to_tensorly()
        >>> int(mask.sum())
        4
        """
        return self.to_dense(0.0), _interop.to_dense(self.coords, np.ones(self.nnz), self.shape, 0.0)

    @classmethod
    def from_sparse(cls, array: Any, *, duplicates: str = "error") -> SparseTensor:
        """Return the stored elements of a pydata/sparse array.

        Examples
        --------
        >>> import sparse
        >>> from tensorcep import SparseTensor
        >>> SparseTensor.from_sparse(sparse.COO([[0, 1], [1, 0], [0, 0]], [1.0, 2.0], (2, 2, 1))).shape
        (2, 2, 1)
        """
        return cls(*_interop.sparse_parts(array), duplicates=duplicates)

    def to_sparse(self, fill: float = np.nan) -> Any:
        """Return a pydata/sparse COO array with fill value `fill`; needs the optional library sparse.

        Examples
        --------
        >>> from tensorcep import SparseTensor
        >>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
        >>> tensor.to_sparse(fill=0.0).shape
        (3, 2)
        """
        sparse = optional_module("sparse", "to_sparse")
        return sparse.COO(self.coords.T, self.values, shape=self.shape, fill_value=fill, has_duplicates=False)

    def info(self) -> TensorInfo:
        """Return density, entries per row, empty rows and the range of the values.

        Examples
        --------
        >>> from tensorcep import SparseTensor
        >>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
        >>> tensor.info().density
        0.6666666666666666
        """
        names = [None if found is None else found.name for found in self.labels]
        return describe(self.coords, self.values, self.shape, names)
