"""The cells of a matrix with gaps: products of row and column vectors, and weighted sums along rows and columns.

These operations over the observed cells are all that the methods need of a matrix. `DenseCells` does them by BLAS on
blocks of rows of the matrix, `ListedCells` by kernels on one number per observed cell.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.factor_models.entry_sums import entry_products, line_sums

BLOCK = 1 << 18  # cells that dense products take at a time: as numbers they stay in a core's cache


class DenseCells:
    """The cells of a matrix kept as one, with the observed ones marked; cell arrays are (N or 1, D or 1).

    A weight that one row, one column or one number tells of all is that of observed cells, and 0 elsewhere; a whole
    array of weights is 0 there itself. With `of`, a cell array, sums are of its values times weights.

    Attributes
    ----------
    shape : (int, int)
    observed : (N, D) bool, or None where all are
    """

    def __init__(self, shape: tuple[int, int], observed: np.ndarray | None = None):
        self.shape = shape
        self.observed = None if observed is None else observed.astype(bool, copy=False)
        self.n_observed = int(np.prod(shape)) if observed is None else int(np.count_nonzero(observed))

    def blocks(self) -> Iterator[slice]:
        """Rows that are taken together, some after the other."""
        size = max(1, BLOCK // max(1, self.shape[1]))
        return (slice(a, a + size) for a in range(0, self.shape[0], size))

    def only_observed(self, cells: np.ndarray) -> np.ndarray:
        """The cell array with zeros where nothing is observed."""
        return cells if self.observed is None else cells * self.observed

    def clear_hidden(self, cells: np.ndarray) -> None:
        """Write zeros into a whole cell array where nothing is observed."""
        if self.observed is not None:
            cells *= self.observed

    def products(self, A: np.ndarray, B: np.ndarray, executor: Executor) -> np.ndarray:
        """A_i . B_j for every cell."""
        return A @ B.T

    def row_sums(
        self, weight: np.ndarray, B: np.ndarray, executor: Executor, of: np.ndarray | None = None
    ) -> np.ndarray:
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

    def column_sums(
        self, weight: np.ndarray, A: np.ndarray, executor: Executor, of: np.ndarray | None = None
    ) -> np.ndarray:
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
        """Sums of a cell array over all cells, each row, or each column."""
        cells = np.broadcast_to(cells, self.shape)
        if groups == "all":
            return np.array([cells.sum()])
        return np.asarray(cells.sum(axis=1 if groups == "row" else 0))

    def observed_sums(self, cells: np.ndarray, groups: str) -> np.ndarray:
        """The same over the observed cells alone, without an array of them."""
        if self.observed is None:
            return self.group_sums(cells, groups)
        to = {"all": "", "row": "i", "column": "j"}[groups]
        return np.atleast_1d(np.einsum(f"ij,ij->{to}", np.broadcast_to(cells, self.shape), self.observed))


class ListedCells:
    """The observed cells of a matrix as a list sorted by row; cell arrays hold one number for each, (n,) or (1,)."""

    observed = None

    def __init__(self, shape: tuple[int, int], rows: np.ndarray, cols: np.ndarray):
        self.shape = shape
        self.rows = np.ascontiguousarray(rows, dtype=np.int64)
        self.cols = np.ascontiguousarray(cols, dtype=np.int64)
        self.n_observed = len(rows)
        self._by_row = np.arange(len(rows))
        self._by_col = np.argsort(self.cols, kind="stable")
        self._row_start = np.searchsorted(self.rows, np.arange(shape[0] + 1))
        self._col_start = np.searchsorted(self.cols[self._by_col], np.arange(shape[1] + 1))

    def only_observed(self, cells: np.ndarray) -> np.ndarray:
        """The cell array: every cell in the list is observed."""
        return cells

    def clear_hidden(self, cells: np.ndarray) -> None:
        """Nothing: every cell in the list is observed."""

    def products(self, A: np.ndarray, B: np.ndarray, executor: Executor) -> np.ndarray:
        """A_i . B_j for every listed cell."""
        out = np.empty(self.n_observed)
        A, B = np.ascontiguousarray(A), np.ascontiguousarray(B)
        executor.run(entry_products, 0, self.n_observed, self.rows, self.cols, A, B, out)
        return out

    def row_sums(
        self, weight: np.ndarray, B: np.ndarray, executor: Executor, of: np.ndarray | None = None
    ) -> np.ndarray:
        """Sum of weight_ij B_j over the observed cells of each row."""
        weight = weight if of is None else weight * of
        return self._sums(self._row_start, self._by_row, self.cols, weight, B, executor)

    def column_sums(
        self, weight: np.ndarray, A: np.ndarray, executor: Executor, of: np.ndarray | None = None
    ) -> np.ndarray:
        """Sum of weight_ij A_i over the observed cells of each column."""
        weight = weight if of is None else weight * of
        return self._sums(self._col_start, self._by_col, self.rows, weight, A, executor)

    def _sums(
        self,
        start: np.ndarray,
        order: np.ndarray,
        other: np.ndarray,
        weight: np.ndarray,
        B: np.ndarray,
        executor: Executor,
    ) -> np.ndarray:
        out = np.empty((len(start) - 1, B.shape[1]))
        weight, B = np.ascontiguousarray(np.broadcast_to(weight, self.n_observed)), np.ascontiguousarray(B)
        executor.run(line_sums, 0, len(out), start, order, other, weight, B, out)
        return out

    def spread(self, values: np.ndarray, groups: str) -> np.ndarray:
        """Cell array of one value for all cells, for each row, or for each column."""
        return values if groups == "all" else values[self.rows if groups == "row" else self.cols]

    def group_sums(self, cells: np.ndarray, groups: str) -> np.ndarray:
        """Sums of a cell array over all cells, each row, or each column."""
        cells = np.broadcast_to(cells, self.n_observed)
        if groups == "all":
            return np.array([cells.sum()])
        index, size = (self.rows, self.shape[0]) if groups == "row" else (self.cols, self.shape[1])
        return np.bincount(index, weights=cells, minlength=size)

    def observed_sums(self, cells: np.ndarray, groups: str) -> np.ndarray:
        """The same: every cell in the list is observed."""
        return self.group_sums(cells, groups)
