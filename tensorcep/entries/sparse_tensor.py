"""SparseTensor: the observed entries of a tensor, and what can be done with them before a fit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array

from tensorcep.core import checks
from tensorcep.entries import coo
from tensorcep.entries.coo import TensorInfo
from tensorcep.entries.labels import Labels, check_labels, check_mode_columns, column_names, mode_names
from tensorcep.entries.splitting import FOLD_ROWS, Folds, held_out, way_of


def frame_entries(
    frame: pd.DataFrame, modes: Sequence[Any], value: Any, labels: Any
) -> tuple[coo.Coords, coo.Values, tuple[Labels, ...]]:
    """Return coordinates, values and labels of the lines of a long frame; see `SparseTensor.from_pandas`."""
    checks.check_mode_count(modes)
    modes = check_mode_columns(list(frame.columns), modes, value, "the DataFrame")
    checks.check_not_empty(len(frame), "the DataFrame")
    found, rows = [], []
    for name, old in zip(modes, check_labels(labels, len(modes)), strict=True):
        new, at = Labels.from_column(frame[name], name)
        if old is not None:
            old = old.extended(new)
            at, new = old.rows(new)[at], old
        found.append(new)
        rows.append(at)
    column = np.ones(len(frame)) if value is None else frame[value].to_numpy()
    values = checks.check_values(column, name=f"column {value!r}")
    return np.stack(rows, axis=1), values, tuple(found)


@dataclass(frozen=True, eq=False, repr=False)
class SparseTensor:
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
        coords = checks.check_coords(self.coords)
        values = checks.check_values(self.values, coords.shape[0])
        labels = check_labels(self.labels, coords.shape[1])
        if self.shape is None:
            sizes = [int(coords[:, k].max()) + 1 if coords.shape[0] else 1 for k in range(coords.shape[1])]
            shape = tuple(int(n) if found is None else len(found) for n, found in zip(sizes, labels, strict=True))
            checks.check_sizes(shape, coords.shape[0])
        else:
            shape = checks.check_shape(self.shape, coords.shape[1])
        for k, found in enumerate(labels):
            if found is not None and len(found) != shape[k]:
                checks.fail_value(f"labels of mode {k} must be as many as its {shape[k]} rows; got {len(found)}.")
        shape = checks.check_shape(shape)
        coords = checks.check_coords(coords, shape)
        sampled = coo.merge_marks(coo.check_sampled(self.sampled, values), coords, shape)
        coords, values = coo.merge_duplicates(coords, values, shape, duplicates)
        if self.zero_rate is not None:
            checks.check_range("zero_rate", self.zero_rate, 0.0, 1.0, include_low=False)
        self._set(coords, values, shape, labels, self.zero_rate, sampled)

    def _set(self, *parts: Any) -> SparseTensor:
        for name, value in zip(("coords", "values", "shape", "labels", "zero_rate", "sampled"), parts, strict=True):
            object.__setattr__(self, name, value)
        return self

    @classmethod
    def from_checked(
        cls, coords: NDArray[np.int64], values: NDArray[np.float64], shape: Any, duplicates: str, labels: Any = None
    ) -> SparseTensor:
        """Return a tensor from arrays that are checked already, looking only for repeated cells."""
        merged = coo.merge_duplicates(coords, values, shape, duplicates)
        return object.__new__(cls)._set(*merged, shape, labels or (None,) * len(shape), 1.0, None)

    @property
    def nnz(self) -> int:
        """The number of observed entries N, those of value zero included."""
        return int(self.values.shape[0])

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
        labels = checks.printable(f", labels of {', '.join(named)}") if named else ""
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

        The `modes` are K columns of any dtype, whose sorted distinct values become the labels (`Labels.from_column`).
        `value` is a column, or None where a line is an event: the value of a cell is the number of its lines. `labels`
        are K Labels of an earlier tensor, to keep its rows: labels that are new here are appended after them.

        Examples
        --------
        >>> table = pd.DataFrame({"user": ["u1", "u2"], "item": ["i1", "i1"], "stars": [4.0, 5.0]})
        >>> SparseTensor.from_pandas(table, modes=["user", "item"], value="stars").shape
        (2, 1)
        """
        policy = duplicates if value is not None else coo.check_counting(duplicates)
        coords, values, found = frame_entries(df, modes, value, labels)
        shape = [len(names) for names in found]
        checks.check_sizes(shape, len(values))
        return cls.from_checked(coords, values, checks.check_shape(shape), policy, found)

    def to_pandas(self, modes: Sequence[Any] | None = None, value: Any = "y") -> pd.DataFrame:
        """Return a long DataFrame; modes with labels hold these, the others row indices.

        Column names default to the names of the labels, or mode_0, mode_1, ...

        Examples
        --------
        >>> SparseTensor.from_coo([[0, 0], [1, 2]], [0.5, 1.5]).to_pandas(["user", "item"], "stars").columns.tolist()
        ['user', 'item', 'stars']
        """
        names = mode_names(self.labels) if modes is None else list(modes)
        checks.check_mode_count(names, self.order)
        return frame_of(self, names, value)

    @classmethod
    def from_scipy(cls, matrix: Any, *, duplicates: str = "sum") -> SparseTensor:
        """Return the stored elements of a scipy.sparse matrix, or of a coo_array of any order from two up.

        What is stored is observed, zeros too, of which a warning tells; zeros in the blocks of a bsr and on the
        diagonals of a dia fill these up, and are none. Elements of one cell are summed, as scipy does. Factor models
        take such matrices by the same rule.

        Examples
        --------
        >>> import scipy.sparse as sp
        >>> SparseTensor.from_scipy(sp.coo_array(([1.0, 2.0], ([0, 1], [1, 0])))).nnz
        2
        """
        return cls(*coo.scipy_parts(matrix, duplicates))

    def to_scipy(self) -> Any:
        """Return a scipy.sparse coo_array (order 2 only); entries of value zero stay stored explicitly.

        Examples
        --------
        >>> SparseTensor.from_coo([[0, 0], [1, 2]], [0.5, 1.5]).to_scipy().shape
        (2, 3)
        """
        checks.check_mode_count(self.shape, 2, "to_scipy takes")
        return coo_array((self.values.copy(), (self.coords[:, 0].copy(), self.coords[:, 1].copy())), shape=self.shape)

    @classmethod
    def from_dense(cls, array: ArrayLike, mask: ArrayLike | None = None, *, labels: Any = None) -> SparseTensor:
        """Return the observed cells of a dense array: where `mask` is true, or without a mask, where it is not NaN.

        Examples
        --------
        >>> SparseTensor.from_dense([[1.0, np.nan], [2.0, 3.0]]).nnz
        3
        """
        if mask is None and isinstance(array, np.ma.MaskedArray):
            mask = ~(np.ma.getmaskarray(array) | np.isnan(array.data))
        array = np.asarray(array)
        if array.ndim < 2:
            checks.fail_value(f"a dense array must have at least two dimensions; got {array.ndim}.")
        if array.dtype.kind not in "iufb":
            raise TypeError(f"a dense array must hold real numbers; got dtype {array.dtype}.")
        if mask is None:
            observed = ~np.isnan(array)
        else:
            observed = np.asarray(mask)
            if observed.shape != array.shape:
                checks.fail_value(f"mask must have the shape of the array, {array.shape}; got {observed.shape}.")
            if not np.isin(observed, (0, 1)).all():
                checks.fail_value("mask must hold only True (observed) and False, or 1 and 0; convert it to bool.")
            observed = observed.astype(bool)
        return cls(np.argwhere(observed), array[observed], array.shape, labels)

    def to_dense(self, fill: float = np.nan) -> NDArray[np.float64]:
        """Return a dense array with `fill` in the unobserved cells.

        Examples
        --------
        >>> SparseTensor.from_coo([[0, 0], [1, 2]], [0.5, 1.5]).to_dense(fill=0.0).tolist()
        [[0.5, 0.0, 0.0], [0.0, 0.0, 1.5]]
        """
        dense = np.full(self.shape, fill, dtype=np.float64)
        dense[tuple(self.coords.T)] = self.values
        return dense

    @classmethod
    def from_tensorly(
        cls, tensor: Any, mask: Any = None, *, coords: ArrayLike | None = None, labels: Any = None
    ) -> SparseTensor:
        """Return the observed cells of a dense TensorLy tensor, or a CPTensor at `coords` (default: every cell).

        `mask` follows TensorLy: 1 where observed. Tensors of TensorLy's numpy backend, or convertible to numpy.

        Examples
        --------
        >>> SparseTensor.from_tensorly(np.ones((2, 3)), mask=np.eye(2, 3)).nnz
        2
        """
        is_cp = hasattr(tensor, "factors") and hasattr(tensor, "weights")
        if coords is not None and not is_cp:
            cure = "use mask to say which cells of a dense tensor are observed"
            checks.fail_value(f"coords are only for a CPTensor; {cure}.")
        if not is_cp:
            return cls.from_dense(tensor, mask, labels=labels)
        if mask is not None:
            checks.fail_value("mask is only for a dense tensor; use coords to choose cells of a CPTensor.")
        shape = checks.check_shape([len(factor) for factor in tensor.factors])
        if coords is None:
            cells = coo.cells_of(np.arange(math.prod(shape), dtype=np.int64), shape)
        else:
            cells = checks.check_coords(coords, shape)
        return cls(cells, coo.unfold_cp(tensor.weights, tensor.factors, cells), shape, labels)

    def to_tensorly(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return (tensor, mask) as TensorLy's masked decompositions take them: zeros and mask 0 where unobserved.

        Examples
        --------
        >>> values, mask = SparseTensor.from_coo([[0, 0], [1, 2]], [0.5, 1.5]).to_tensorly()
        >>> int(mask.sum())
        2
        """
        return self.to_dense(0.0), (~np.isnan(self.to_dense())).astype(np.float64)

    @classmethod
    def from_sparse(cls, array: Any, *, duplicates: str = "error") -> SparseTensor:
        """Return the stored elements of a pydata/sparse array.

        Examples
        --------
        >>> import sparse
        >>> SparseTensor.from_sparse(sparse.COO([[0, 1], [1, 0], [0, 0]], [1.0, 2.0], (2, 2, 1))).shape
        (2, 2, 1)
        """
        if not hasattr(array, "coords") and hasattr(array, "asformat"):
            array = array.asformat("coo")
        if not (hasattr(array, "coords") and hasattr(array, "data") and hasattr(array, "shape")):
            raise TypeError(f"from_sparse takes a pydata/sparse array; got {type(array).__name__}.")
        coords = np.asarray(array.coords).T.astype(np.int64)
        return cls(coords, array.data, tuple(array.shape), duplicates=duplicates)

    def to_sparse(self, fill: float = np.nan) -> Any:
        """Return a pydata/sparse COO array with fill value `fill`; needs the optional library sparse.

        Examples
        --------
        >>> SparseTensor.from_coo([[0, 0], [1, 2]], [0.5, 1.5]).to_sparse(fill=0.0).shape
        (2, 3)
        """
        sparse = checks.optional_module("sparse", "to_sparse")
        return sparse.COO(self.coords.T, self.values, shape=self.shape, fill_value=fill, has_duplicates=False)

    def info(self) -> TensorInfo:
        """Return density, entries per row, empty rows and the range of the values.

        Examples
        --------
        >>> SparseTensor.from_coo([[0, 0], [1, 2]], [0.5, 1.5]).info().density
        0.3333333333333333
        """
        y = self.values if self.nnz else np.array([np.nan])
        counts = tuple(np.bincount(self.coords[:, k], minlength=n) for k, n in enumerate(self.shape))
        empty = tuple(np.flatnonzero(count == 0) for count in counts)
        of_values = [float(found) for found in (y.min(), y.mean(), y.max(), y.std())]
        return TensorInfo(self.shape, tuple(mode_names(self.labels)), self.nnz, self.density, counts, empty, *of_values)

    # Entries chosen, held out, joined

    def _with(self, coords: coo.Coords, values: coo.Values, zero_rate: float | None, sampled: Any) -> SparseTensor:
        """Return a tensor of the same shape and labels from entries that are known to be good."""
        parts = np.ascontiguousarray(coords), values, self.shape, self.labels, zero_rate, sampled
        return object.__new__(type(self))._set(*parts)

    def select(self, where: ArrayLike) -> SparseTensor:
        """Return the entries where a boolean array (N,) is true, or those at distinct integer positions.

        Examples
        --------
        >>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
        >>> tensor.select(tensor.values > 2).values.tolist()
        [3.0, 4.0]
        """
        rows = checks.check_mask_or_rows(where, self.nnz)
        sampled = None if self.sampled is None else self.sampled[rows]
        return self._with(self.coords[rows], self.values[rows], self.zero_rate, sampled)

    def concatenate(self, *others: SparseTensor, duplicates: str = "error") -> SparseTensor:
        """Return the entries of this and other tensors of the same shape and labels.

        The `zero_rate` is that of the tensors that hold zeros, and None where theirs differ.

        Examples
        --------
        >>> more = SparseTensor.from_coo([[0, 2]], [5.0], (2, 3))
        >>> len(SparseTensor.from_coo([[0, 0], [1, 2]], [0.5, 1.5]).concatenate(more))
        3
        """
        tensors = (self, *others)
        for other in others:
            checks.check_same_shape(self.shape, other.shape)
            if self.labels != other.labels:
                cure = "use from_pandas(..., labels=) for that"
                checks.fail_value(f"tensors must have the same labels to be combined; {cure}.")
        coords = np.concatenate([item.coords for item in tensors])
        values = np.concatenate([item.values for item in tensors])
        rates = {t.zero_rate for t in tensors if (t.values == 0.0).any()} or {t.zero_rate for t in tensors}
        sampled = None
        if any(item.sampled is not None for item in tensors):
            marks = [np.zeros(item.nnz, dtype=bool) if item.sampled is None else item.sampled for item in tensors]
            sampled = coo.merge_marks(np.concatenate(marks), coords, self.shape)
        merged = coo.merge_duplicates(coords, values, self.shape, duplicates)
        return self._with(*merged, rates.pop() if len(rates) == 1 else None, sampled)

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

        ValueError or TypeError if a parameter is not allowed, or nothing would be left to train on, or to test on.

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

        Examples
        --------
        >>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
        >>> train, test = tensor.train_test_split(test_size=0.25, random_state=0)
        >>> len(train), len(test)
        (3, 1)
        >>> train, test = tensor.train_test_split(1, by="row", mode=0, random_state=0)
        >>> test.coords[:, 0].tolist()
        [0]
        """
        train, test = held_out(way_of(by, mode, times, self._column), self.nnz, test_size, random_state)
        return self.select(train), self.select(test)

    def _column(self, mode: Any) -> Any:
        """What entries have in a mode: labels, or indices; of None something for each entry."""
        if mode is None:
            return self.values
        names = column_names(mode_names(self.labels), None)
        k = names.index(mode) if mode in names and not isinstance(mode, bool) else mode
        if not isinstance(k, (int, np.integer)):
            checks.check_choice("a mode", mode, names)
        k = checks.check_int("mode", k, 0, len(names) - 1)
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
        >>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
        >>> [(len(train), len(test)) for train, test in tensor.kfold(2, random_state=0)]
        [(2, 2), (2, 2)]
        """
        return Folds(self, n_splits, random_state, shuffle, way_of(by, mode, times, self._column))

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
        >>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
        >>> [len(batch) for batch in tensor.minibatches(3, random_state=0)]
        [3, 1]
        """
        size = checks.check_int("size", size)
        order = checks.check_random_state(random_state).permutation(self.nnz) if shuffle else np.arange(self.nnz)
        return (self.select(order[n : n + size]) for n in range(0, self.nnz, size))

    def sample_zeros(self, n: int, exclude: Any = None, random_state: Any = None) -> SparseTensor:
        """Return `n` entries of value zero in distinct cells, uniform over those neither observed nor excluded.

        They are marked as `sampled` and come alone: `with_zeros` adds them to the entries of this tensor. Their
        `zero_rate` is `n` over the number of such cells. It is right for a fit to all ones: sample zeros before you
        hold entries out, or divide the rate by the share of the ones that the fit gets.

        To recommend by clicks or purchases, `n` is three to five times the entries. `exclude` has cells to keep out,
        such as the test set: a SparseTensor, coords (M, K), or a list or tuple of SparseTensors. ValueError if fewer
        than `n` cells are free.

        Examples
        --------
        >>> SparseTensor.from_coo([[0, 0], [1, 2]], [0.5, 1.5]).sample_zeros(2, random_state=0).values.tolist()
        [0.0, 0.0]
        """
        n = checks.check_int("n", n, minimum=0)
        rng = checks.check_random_state(random_state)
        several = isinstance(exclude, (list, tuple)) and any(isinstance(item, SparseTensor) for item in exclude)
        taken = [self.coords]
        for item in exclude if several else [] if exclude is None else [exclude]:
            if hasattr(item, "coords"):
                checks.check_same_shape(self.shape, item.shape)
                item = item.coords
            taken.append(checks.check_coords(item, self.shape, name="exclude"))
        cells, share = coo.sample_free_cells(n, taken, self.shape, rng)
        return self._with(cells, np.zeros(n), share or 1.0, np.ones(n, dtype=bool))

    def with_zeros(self, n: int, exclude: Any = None, random_state: Any = None) -> SparseTensor:
        """Return the entries of this tensor and `n` entries of value zero, drawn as `sample_zeros` draws them.

        Examples
        --------
        >>> sorted(SparseTensor.from_coo([[0, 0], [1, 2]], [0.5, 1.5]).with_zeros(2, random_state=0).values.tolist())
        [0.0, 0.0, 0.5, 1.5]
        """
        return self.concatenate(self.sample_zeros(n, exclude, random_state))


def frame_of(
    tensor: SparseTensor, names: Any, value: Any, part: slice = slice(None), base: int = 0, labelled: bool = True
) -> pd.DataFrame:
    """Return some entries as a frame of its own, with labels, or else with indices from `base`."""
    columns: dict[Any, Any] = {}
    for k, name in enumerate(column_names(names, value)):
        found, at = tensor.labels[k] if labelled else None, tensor.coords[part, k]
        columns[name] = at + base if found is None else found.index.take(at)
    return pd.DataFrame({**columns, value: tensor.values[part]}, copy=True)
