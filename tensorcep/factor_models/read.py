"""Matrices with gaps as the factor models take them: arrays with NaN, DataFrames, sparse matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from tensorcep.core.checks import check_not_empty, check_zero_one, fail_value
from tensorcep.entries.interop import stored_cells
from tensorcep.entries.matrices import as_numbers
from tensorcep.entries.tensor import SparseTensor
from tensorcep.factor_models.cells import DenseCells, ListedCells

# check(name, values) returns values that are allowed
Check = Callable[[str, np.ndarray], np.ndarray]
LISTED_BELOW = 0.2  # share of observed cells under which a list of them is faster than the whole matrix


class Matrix(NamedTuple):
    """Which cells are observed, and their values as a cell array (0 where there is none)."""

    cells: Any
    x: np.ndarray

    def filled(self, values: np.ndarray) -> np.ndarray:
        """The matrix (N, D) with values (N, D) where nothing is observed."""
        if isinstance(self.cells, DenseCells):
            return self.x if self.cells.observed is None else np.where(self.cells.observed, self.x, values)
        result = values.copy()
        result[self.cells.rows, self.cells.cols] = self.x
        return result

    def filled_with(self, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The matrix with means (N, D) where nothing is observed, and standard deviations, 0 where something is."""
        return self.filled(mean), self._replace(x=np.zeros_like(self.x)).filled(np.sqrt(variance))

    def column_counts(self) -> np.ndarray:
        """Number of observed cells of each column."""
        return np.asarray(self.cells.observed_sums(np.ones((1,) * self.x.ndim), "column"))

    def row_counts(self) -> np.ndarray:
        """Number of observed cells of each row."""
        return np.asarray(self.cells.observed_sums(np.ones((1,) * self.x.ndim), "row"))

    def less_columns(self, values: np.ndarray) -> np.ndarray:
        """The observed cells less the value of their column, a cell array."""
        away = np.asarray(self.x - self.cells.spread(values, "column"))
        self.cells.clear_hidden(away)
        return away

    def at_least(self, limit: np.ndarray) -> Matrix:
        """The matrix with values below the limits (D,) of their columns at these."""
        raised = self.cells.only_observed(np.maximum(self.x, self.cells.spread(limit, "column")))
        return self._replace(x=raised)

    def column_means(self) -> np.ndarray:
        """Mean of the observed cells of each column, the mean of all where a column has none."""
        sums, counts = self.cells.group_sums(self.x, "column"), self.column_counts()
        overall = sums.sum() / max(1.0, counts.sum())
        return np.divide(sums, counts, out=np.full(len(sums), overall), where=counts > 0.0)

    def sketchable(self) -> Any:
        """The matrix less its column means, 0 where nothing is observed; sparse where it is a list of cells."""
        away = self.less_columns(self.column_means())
        if isinstance(self.cells, DenseCells):
            return away
        return sparse.csr_matrix((away, (self.cells.rows, self.cells.cols)), shape=self.cells.shape)


def as_array(X: Any, check: Check, absent: str, name: str = "X") -> Any:
    """A `SparseTensor` of order 2 as an array with NaN, or sparse where few of its cells are observed; others as given,
    but for matrices of other libraries, which become frames, and sparse ones, of which a cell is there once.

    A warning tells that zeros which a sparse matrix stores are observed, unless they are labels, or others are, too.

    Raises
    ------
    ValueError, TypeError
        If it has another order, or columns that hold no numbers.
    """
    if not isinstance(X, SparseTensor):
        X = as_numbers(X, name)
        tell = absent == "missing" and check is not check_zero_one
        return stored_cells(X, tell) if sparse.issparse(X) else X
    if len(X.shape) != 2:
        fail_value(f"a SparseTensor must have 2 modes, rows and columns, to be a matrix; got {len(X.shape)}.")
    return X.to_scipy() if X.density < LISTED_BELOW else X.to_dense()


def read_matrix(X: Any, check: Check, absent: str, name: str = "X", empty: bool = False) -> Matrix:
    """Return the observed cells of a checked array with NaN where nothing is observed, or of a sparse matrix.

    Cells that a sparse matrix does not store are missing, or zeros if absent="zero" (as a dense array then). Where the
    matrix may be `empty`, no cell need be observed.

    Raises
    ------
    ValueError
        If no cell is observed, or a value is not allowed.
    """
    if sparse.issparse(X):
        if absent == "zero":
            return read_matrix(X.toarray(), check, absent, name, empty)
        listed = sparse.coo_matrix(X)
        order = np.lexsort((listed.col, listed.row))
        order = order[~np.isnan(listed.data[order])]
        return _listed(X.shape, listed.row[order], listed.col[order], listed.data[order], check, name, empty)
    missing = np.isnan(X)
    if not missing.any():
        check_not_empty(X.size, name)
        return Matrix(DenseCells(X.shape), check(name, X.ravel()).reshape(X.shape))
    if np.mean(missing) > 1.0 - LISTED_BELOW:
        rows, cols = np.nonzero(~missing)
        return _listed(X.shape, rows, cols, X[rows, cols], check, name, empty)
    check(name, X[~missing])
    return Matrix(DenseCells(X.shape, ~missing), np.where(missing, 0.0, X))


def _listed(shape: Any, rows: Any, cols: Any, values: np.ndarray, check: Check, name: str, empty: bool) -> Matrix:
    shape = int(shape[0]), int(shape[1])
    if empty and not len(values):
        return Matrix(DenseCells(shape, np.zeros(shape, dtype=bool)), np.zeros(shape))
    check_not_empty(len(values), name)
    values = np.asarray(values, dtype=np.float64)
    return Matrix(ListedCells(shape, rows, cols), check(name, values))
