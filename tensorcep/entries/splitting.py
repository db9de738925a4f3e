"""Entries held out: at random, the last ones, some of each row, or whole rows; and folds of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tensorcep.core import checks
from tensorcep.entries.labels import Labels

Rows = NDArray[np.int64]
WAYS = ("entry", "time", "row", "group")


class SplitWay(NamedTuple):
    """How entries are held out, checked."""

    by: str  # one of WAYS
    rows: Any  # of "row" and "group" the row of each entry (N,), counted from 0 without gaps
    order: Any  # the place of each entry's time among the distinct ones (N,), if there are times


def way_of(by: str, mode: Any, times: Any, column_of: Any) -> SplitWay:
    """Check how entries are to be held out; ``column_of(name)`` gives what the entries have in a mode or column."""
    checks.check_choice("by", by, WAYS)
    if by in ("row", "group") and mode is None:
        checks.fail_value(f"by={by!r} needs mode=, the mode whose rows are meant, such as the user; give its name.")
    if by in ("entry", "time") and mode is not None:
        checks.fail_value(f"mode= is for by='row' and by='group'; got {mode!r} with by={by!r}; leave it out.")
    if by == "time" and times is None:
        checks.fail_value("by='time' needs times=: the mode that is the time, or a time for each entry.")
    if by in ("entry", "group") and times is not None:
        checks.fail_value(f"times= is for by='time' and by='row'; got it with by={by!r}; leave it out.")
    rows = None if mode is None else Labels.from_column(column_of(mode))[1]
    if times is None:
        return SplitWay(by, rows, None)
    is_name = np.ndim(times) == 0 or isinstance(times, (str, tuple))
    what = f"times of {times!r}" if is_name else "times"
    column = pd.Series(column_of(times) if is_name else times).reset_index(drop=True)
    n = len(column_of(None))
    if len(column) != n:
        checks.fail_value(f"times must be as many as the {n} entries; got {len(column)}.")
    if column.isna().any():
        at = int(np.argmax(column.isna()))
        checks.fail_value(f"{what} must not be missing; got none for entry {at}; leave it out.")
    found = _moments_of(column)
    if found is None:
        kinds = "numbers, times, or text such as 2024-01-31 or w12"
        checks.fail_value(f"{what} must be {kinds}; got {column.iloc[0]!r}; convert them.")
    return SplitWay(by, rows, np.unique(np.asarray(found), return_inverse=True)[1].ravel().astype(np.int64))


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
    """Ascending positions of the entries to train on and of those to test on."""
    from sklearn.model_selection import train_test_split

    if way.by == "entry":
        train, held = train_test_split(np.arange(n), test_size=test_size, random_state=splitter_seed(random_state))
        return np.sort(train), np.sort(held)
    share, count = 0.0, 0
    if isinstance(test_size, (int, np.integer)) and not isinstance(test_size, bool):
        count = checks.check_int("test_size", test_size)
    else:
        share = checks.check_fraction("test_size", test_size)
    if way.by == "time":  # the last times: so many, or those whose share of the entries is nearest
        per_time = np.bincount(way.order)
        if len(per_time) < 2:
            checks.fail_value("by='time' needs entries of at least two times; all have the same.")
        if count >= len(per_time):
            checks.fail_value(f"test_size must leave one of the {len(per_time)} times to train on; got {count}.")
        if not count:
            after = np.cumsum(per_time[::-1])[:-1]  # entries of the last one, two, ... times
            count = 1 + int(np.argmin(np.abs(after - share * n)))
        test = way.order >= len(per_time) - count
    elif way.by == "group":
        groups = np.arange(way.rows.max() + 1)
        if len(groups) < 2:
            checks.fail_value("by='group' needs entries of at least two rows; all are of one.")
        held = train_test_split(groups, test_size=test_size, random_state=splitter_seed(random_state))[1]
        test = np.isin(way.rows, held)
    else:  # so many of each row, or a share, the last or random ones, but never all of a row
        per_row = np.bincount(way.rows)
        wanted = np.full(len(per_row), count) if count else np.floor(share * per_row + 0.5).astype(np.int64)
        wanted = np.minimum(wanted, per_row - 1) if not count else np.where(per_row > count, count, 0)
        if not wanted.any():
            have = f"rows have at most {per_row.max()}, at least {count + 1 if count else 2} are needed"
            enough = f"enough entries to hold out test_size={count or share:g} of them and to keep one"
            checks.fail_value(f"no row has {enough}; {have}.")
        from_end = per_row[way.rows] - 1 - _places(way.rows, way.order, random_state)
        test = from_end < wanted[way.rows]
    return np.flatnonzero(~test), np.flatnonzero(test)


def _places(rows: NDArray[np.int64], order: NDArray[np.int64] | None, random_state: Any) -> NDArray[np.int64]:
    """The place of each entry among those of its row: by time, equal ones as they stand, or else at random."""
    by = checks.check_random_state(random_state).permutation(len(rows)) if order is None else order
    sorted_ = np.lexsort((np.arange(len(rows)), by, rows))
    start, place = np.concatenate([[0], np.cumsum(np.bincount(rows))[:-1]]), np.empty(len(rows), dtype=np.int64)
    place[sorted_] = np.arange(len(rows)) - start[rows[sorted_]]
    return place


def folds_by(way: SplitWay, n: int, n_splits: int, random_state: Any, shuffle: bool) -> list[tuple[Rows, Rows]]:
    """Positions of the entries to train on and to test on, for each fold."""
    from sklearn.model_selection import KFold, TimeSeriesSplit

    seed = splitter_seed(random_state) if shuffle else None
    if way.by == "time":
        pairs = TimeSeriesSplit(n_splits).split(np.arange(way.order.max() + 1))
        return [(np.flatnonzero(way.order <= a[-1]), np.flatnonzero(np.isin(way.order, b))) for a, b in pairs]
    cutter = KFold(n_splits, shuffle=shuffle, random_state=seed)
    if way.by == "entry":
        return list(cutter.split(np.arange(n)))
    if way.by == "group":
        tests = [np.isin(way.rows, test) for _, test in cutter.split(np.arange(way.rows.max() + 1))]
    else:
        # Each row's entries are dealt one by one, from a fold on that differs from row to row.
        deal = _places(way.rows, way.order, seed if way.order is None else None)
        tests = [np.asarray((deal + way.rows) % n_splits == fold) for fold in range(n_splits)]
        if not all(test.any() and not test.all() for test in tests):
            checks.fail_value(f"n_splits must be at most what the entries of rows can be dealt to; got {n_splits}.")
    return [(np.flatnonzero(~test), np.flatnonzero(test)) for test in tests]


def splitter_seed(random_state: Any) -> Any:
    """scikit-learn's splitters take no Generator: draw an integer seed from it."""
    return int(random_state.integers(2**32)) if isinstance(random_state, np.random.Generator) else random_state


# Folds of the entries of a tensor: pairs of tensors, and a splitter for scikit-learn's cross-validation.

# Positions of entries have a type by which a tensor knows them: scikit-learn's own are of the first mode's rows.
FOLD_ROWS = np.dtype(np.uint32)


class Folds:
    """What `SparseTensor.kfold` returns: an iterable of (train, test) tensors, which scikit-learn takes as `cv`."""

    def __init__(self, tensor: Any, n_splits: int, random_state: Any, shuffle: bool, way: SplitWay) -> None:
        n_splits = checks.check_int("n_splits", n_splits, minimum=2)
        pairs = folds_by(way, tensor.nnz, n_splits, random_state, checks.check_flag("shuffle", shuffle))
        self._tensor = tensor
        self._rows: list[Any] = [tuple(part.astype(FOLD_ROWS) for part in pair) for pair in pairs]
        n = 0  # entries of rows of which their fold trains on none
        for train, test in self._rows if not shuffle and way.by == "entry" else ():
            unseen = np.zeros(len(test), dtype=bool)
            for column in tensor.coords.T:
                unseen |= ~np.isin(column[test], column[train])
            n += int(unseen.sum())
        if n:
            folds = "folds that train on no entry of one of their rows, as folds in the order of the entries do"
            cure = "use shuffle=True, unless rows without training entries are meant"
            checks.warn_user(f"{n} of {tensor.nnz} entries would be tested in {folds}; {cure}.", UserWarning)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return ((self._tensor.select(a), self._tensor.select(b)) for a, b in self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"<{len(self)} folds of {self._tensor!r}>"

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds."""
        return len(self)

    def split(self, X: Any = None, y: Any = None, groups: Any = None) -> Iterator[tuple[Rows, Rows]]:
        """Yield the positions of the entries to train on and to test on; ValueError if X has another number of them."""
        n = self._tensor.nnz
        if X is not None and len(X) != n:
            checks.fail_value(f"these folds are of {n} entries; got {len(X)}; make folds of the tensor that is split.")
        return iter(self._rows)
