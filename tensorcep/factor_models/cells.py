"""Cells of a matrix, dense or listed: as they are read, and sums over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from tensorcep.core.checks import check_not_empty, check_zero_one, fail_value
from tensorcep.core.compile import kernel
from tensorcep.core.executor import Executor
from tensorcep.entries.coo import stored_cells
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.entries.tables import as_numbers

# Sums over a list of observed cells of a matrix: products of its row and column vectors, and weighted sums per line.
#
# Every number of a result is summed by one thread in one order, so a result does not depend on the number of threads.


@kernel
def entry_products(first, last, rows, cols, A, B, out):
    """out[n] = A[rows[n]] . B[cols[n]] for the entries first:last."""
    for n in range(first, last):
        i, j = rows[n], cols[n]
        total = 0.0
        for k in range(A.shape[1]):
            total += A[i, k] * B[j, k]
        out[n] = total


@kernel
def line_sums(first, last, start, order, other, weight, B, out):
    """out[i] = sum of weight[n] B[other[n]] over the entries n = order[start[i]:start[i + 1]] of each row or column."""
    for i in range(first, last):
        out[i, :] = 0.0
        for p in range(start[i], start[i + 1]):
            n = order[p]
            w, j = weight[n], other[n]
            for k in range(B.shape[1]):
                out[i, k] += w * B[j, k]


# The cells of a matrix with gaps: products of row and column vectors, and weighted sums along rows and columns.
#
# These operations over the observed cells are all that the methods need of a matrix. `DenseCells` does them by BLAS on
# blocks of rows of the matrix, `ListedCells` by kernels on one number per observed cell.

BLOCK = 1 << 18  # cells that dense products take at a time: as numbers they stay in a core's cache


class Cells:
    """What both kinds have: cell arrays are (N or 1, D or 1), or (n or 1,)."""

    n_dims: int
    shape: tuple[int, int]
    observed: np.ndarray | None = None

    def only_observed(self, cells: np.ndarray) -> np.ndarray:
        """The cell array with zeros where nothing is observed."""
        return cells if self.observed is None else cells * self.observed

    def group_sums(self, cells: np.ndarray, groups: str) -> np.ndarray:
        """Sums of a cell array over all cells, each row, or each column."""
        raise NotImplementedError

    def observed_sums(self, cells: np.ndarray, groups: str) -> np.ndarray:
        """The same over the observed cells alone, without an array of them."""
        if self.observed is None:
            return self.group_sums(cells, groups)
        to = {"all": "", "row": "i", "column": "j"}[groups]
        return np.atleast_1d(np.einsum(f"ij,ij->{to}", np.broadcast_to(cells, self.shape), self.observed))

    def counts(self, groups: str) -> np.ndarray:
        """Number of observed cells, of all or of each row or column."""
        return np.asarray(self.observed_sums(np.ones((1,) * self.n_dims), groups))


class DenseCells(Cells):
    """The cells of a matrix kept as one, with the observed ones marked, (N, D) bool or None where all are."""

    # A weight that one row, one column or one number tells of all is that of observed cells, and 0 elsewhere; a whole
    # array of weights is 0 there itself. With `of`, a cell array, sums are of its values times weights.
    n_dims = 2

    def __init__(self, shape: tuple[int, int], observed: np.ndarray | None = None):
        self.shape = shape
        self.observed = None if observed is None else observed.astype(bool, copy=False)
        self.n_observed = int(np.prod(shape)) if observed is None else int(np.count_nonzero(observed))

    def blocks(self) -> Iterator[slice]:
        """Rows that are taken together, some after the other."""
        size = max(1, BLOCK // max(1, self.shape[1]))
        return (slice(a, a + size) for a in range(0, self.shape[0], size))

    def products(self, A: np.ndarray, B: np.ndarray, executor: Executor) -> np.ndarray:
        """A_i . B_j for every cell."""
        return A @ B.T

    def row_sums(self, weight: np.ndarray, B: np.ndarray, executor: Executor, of: Any = None) -> np.ndarray:
        """Sum over j of weight_ij B_j; one row serves all where the weight has one and all cells are observed."""
        each = self.observed if of is None else of
        if each is None or (of is None and 1 not in weight.shape):
            return np.asarray(np.broadcast_to(weight, (weight.shape[0], self.shape[1])) @ B)
        if 1 not in weight.shape:
            return np.asarray((weight * each) @ B)
        out, B = np.empty((self.shape[0], B.shape[1])), B * weight.T if len(weight) == 1 else B
        for rows in self.blocks():
            np.matmul(each[rows].astype(np.float64, copy=False), B, out=out[rows])
        return out if len(weight) == 1 else out * weight

    def column_sums(self, weight: np.ndarray, A: np.ndarray, executor: Executor, of: Any = None) -> np.ndarray:
        """Sum over i of weight_ij A_i; one row serves all columns where the weight has one and all are observed."""
        each = self.observed if of is None else of
        if each is None or (of is None and 1 not in weight.shape):
            return np.asarray(np.broadcast_to(weight, (self.shape[0], weight.shape[1])).T @ A)
        if 1 not in weight.shape:
            return np.asarray((weight * each).T @ A)
        out, A = np.zeros((self.shape[1], A.shape[1])), A if len(weight) == 1 else A * weight
        for rows in self.blocks():
            out += each[rows].astype(np.float64, copy=False).T @ A[rows]
        return out * weight.T if len(weight) == 1 else out

    def spread(self, values: np.ndarray, groups: str) -> np.ndarray:
        """Cell array of one value for all cells, for each row, or for each column."""
        return values[:, None] if groups == "row" else values[None, :]

    def group_sums(self, cells: np.ndarray, groups: str) -> np.ndarray:
        axis = {"all": None, "row": 1, "column": 0}[groups]
        return np.atleast_1d(np.broadcast_to(cells, self.shape).sum(axis=axis))


class ListedCells(Cells):
    """The observed cells of a matrix as a list sorted by row; cell arrays hold one number for each, (n,) or (1,)."""

    n_dims = 1

    def __init__(self, shape: tuple[int, int], rows: np.ndarray, cols: np.ndarray):
        self.shape, self.n_observed = shape, len(rows)
        self.rows, self.cols = (np.ascontiguousarray(part, dtype=np.int64) for part in (rows, cols))
        order, by_col = np.arange(len(rows)), np.argsort(self.cols, kind="stable")
        self._by_row = np.searchsorted(self.rows, np.arange(shape[0] + 1)), order, self.cols
        self._by_col = np.searchsorted(self.cols[by_col], np.arange(shape[1] + 1)), by_col, self.rows

    def products(self, A: np.ndarray, B: np.ndarray, executor: Executor) -> np.ndarray:
        """A_i . B_j for every listed cell."""
        out, A, B = np.empty(self.n_observed), np.ascontiguousarray(A), np.ascontiguousarray(B)
        executor.run(entry_products, 0, self.n_observed, self.rows, self.cols, A, B, out)
        return out

    def row_sums(self, weight: np.ndarray, B: np.ndarray, executor: Executor, of: Any = None) -> np.ndarray:
        """Sum of weight_ij B_j over the observed cells of each row."""
        return self._sums(self._by_row, weight if of is None else weight * of, B, executor)

    def column_sums(self, weight: np.ndarray, A: np.ndarray, executor: Executor, of: Any = None) -> np.ndarray:
        """Sum of weight_ij A_i over the observed cells of each column."""
        return self._sums(self._by_col, weight if of is None else weight * of, A, executor)

    def _sums(self, lines: tuple[np.ndarray, ...], weight: np.ndarray, B: np.ndarray, executor: Executor) -> np.ndarray:
        out = np.empty((len(lines[0]) - 1, B.shape[1]))
        weight, B = np.ascontiguousarray(np.broadcast_to(weight, self.n_observed)), np.ascontiguousarray(B)
        executor.run(line_sums, 0, len(out), *lines, weight, B, out)
        return out

    def spread(self, values: np.ndarray, groups: str) -> np.ndarray:
        """Cell array of one value for all cells, for each row, or for each column."""
        return values if groups == "all" else values[self.rows if groups == "row" else self.cols]

    def group_sums(self, cells: np.ndarray, groups: str) -> np.ndarray:
        cells = np.broadcast_to(cells, self.n_observed)
        if groups == "all":
            return np.array([cells.sum()])
        index, size = (self.rows, self.shape[0]) if groups == "row" else (self.cols, self.shape[1])
        return np.bincount(index, weights=cells, minlength=size)


# Matrices with gaps as the factor models take them: arrays with NaN, DataFrames, sparse matrices.

Check = Callable[[str, np.ndarray], np.ndarray]  # check(name, values) returns values that are allowed
# How scikit-learn is to check arrays for `read_matrix`.
READ: dict[str, Any] = {"accept_sparse": ["csr", "csc", "coo"], "dtype": np.float64, "order": "C"}
READ["ensure_all_finite"] = "allow-nan"
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

    def less_columns(self, values: np.ndarray) -> np.ndarray:
        """The observed cells less the value of their column, a cell array."""
        away = np.asarray(self.x - self.cells.spread(values, "column"))
        if self.cells.observed is not None:
            away *= self.cells.observed
        return away

    def column_means(self) -> np.ndarray:
        """Mean of the observed cells of each column, the mean of all where a column has none."""
        sums, counts = self.cells.group_sums(self.x, "column"), self.cells.counts("column")
        overall = sums.sum() / max(1.0, counts.sum())
        return np.divide(sums, counts, out=np.full(len(sums), overall), where=counts > 0.0)


def as_array(X: Any, check: Check, absent: str, name: str = "X") -> Any:
    """An array with NaN, a frame, or a sparse matrix with each cell once; a warning tells of zeros that it stores."""
    if not isinstance(X, SparseTensor):
        X = as_numbers(X, name)
        tell = absent == "missing" and check is not check_zero_one
        return stored_cells(X, tell) if sparse.issparse(X) else X
    if len(X.shape) != 2:
        fail_value(f"a SparseTensor must have 2 modes, rows and columns, to be a matrix; got {len(X.shape)}.")
    return X.to_scipy() if X.density < LISTED_BELOW else X.to_dense()


def read_matrix(X: Any, check: Check, absent: str, name: str = "X", empty: bool = False) -> Matrix:
    """Return the observed cells of an array with NaN elsewhere or of a sparse matrix; none if it may be `empty`."""
    shape = int(X.shape[0]), int(X.shape[1])
    if sparse.issparse(X):
        if absent == "zero":
            return read_matrix(X.toarray(), check, absent, name, empty)
        listed = sparse.coo_matrix(X)
        order = np.lexsort((listed.col, listed.row))
        order = order[~np.isnan(listed.data[order])]
        rows, cols, values = listed.row[order], listed.col[order], listed.data[order]
    else:
        missing = np.isnan(X)
        if not missing.any():
            check_not_empty(X.size, name)
            return Matrix(DenseCells(shape), check(name, X.ravel()).reshape(shape))
        if np.mean(missing) <= 1.0 - LISTED_BELOW:
            check(name, X[~missing])
            return Matrix(DenseCells(shape, ~missing), np.where(missing, 0.0, X))
        rows, cols = np.nonzero(~missing)
        values = X[rows, cols]
    if empty and not len(values):
        return Matrix(DenseCells(shape, np.zeros(shape, dtype=bool)), np.zeros(shape))
    check_not_empty(len(values), name)
    return Matrix(ListedCells(shape, rows, cols), check(name, np.asarray(values, dtype=np.float64)))
