"""The features of a mode's rows as a matrix: centred without being filled in, with the products that priors need."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
from scipy import sparse

from tensorcep.core.records import Sized
from tensorcep.kernels.narrow import times_narrow, transposed_times_narrow

# Columns up to which products are those of `kernels.narrow`.
NARROW = 64


class Design(NamedTuple):
    """Features of the rows of a mode; a row without them has zeros, as the average row with features does.

    Attributes
    ----------
    matrix : (n, F) float64, or csr_array
        Zero in rows without features.
    centre : (F,) float64
        What is subtracted in rows with features; a matrix that is dense is centred already.
    described : (n,) bool
        Rows with features.
    names : tuple of str
        Of the features.
    size : float
        Mean square length of a centred row with features.
    """

    matrix: Any
    centre: Annotated[np.ndarray, Sized("_")]
    described: Annotated[np.ndarray, Sized("_", "b")]
    names: tuple[str, ...]
    size: float

    @property
    def n_features(self) -> int:
        """F."""
        return len(self.centre)

    def times(self, coef: np.ndarray) -> np.ndarray:
        """Centred features times (F, R): (n, R)."""
        if self._is_tall_beside(coef):
            return times_narrow(self.matrix, coef)
        found = np.asarray(self.matrix @ coef)
        if sparse.issparse(self.matrix):
            found -= self.described[:, None] * (self.centre @ coef)
        return found

    def transposed(self, values: np.ndarray) -> np.ndarray:
        """The transpose of the centred features times (n, R): (F, R)."""
        if self._is_tall_beside(values):
            return transposed_times_narrow(self.matrix, values)
        found = np.asarray(self.matrix.T @ values)
        if sparse.issparse(self.matrix):
            found -= np.outer(self.centre, self.described @ values)
        return found

    def _is_tall_beside(self, values: np.ndarray) -> bool:
        """Whether a product with as many columns is best made by kernels."""
        return not sparse.issparse(self.matrix) and values.shape[1] <= NARROW

    def gram(self) -> np.ndarray:
        """Sums of products of centred features over the rows, (F, F)."""
        if not sparse.issparse(self.matrix):
            return np.asarray(self.matrix.T @ self.matrix)
        total, n = np.asarray(self.matrix.sum(axis=0)).ravel(), int(self.described.sum())
        cross = np.outer(self.centre, total)
        return np.asarray((self.matrix.T @ self.matrix).toarray() - cross - cross.T + n * np.outer(*2 * (self.centre,)))

    def some(self, rows: np.ndarray) -> Design:
        """The features of some rows, (n,) bool."""
        return self if rows.all() else self._replace(matrix=self.matrix[rows], described=self.described[rows])


def design(matrix: Any, described: np.ndarray, names: tuple[str, ...]) -> Design:
    """The design of features (n, F) that are zero in rows without them.

    Parameters
    ----------
    matrix : ndarray or sparse matrix
        Features as they are to be used but for their mean.
    described : (n,) bool
    names : tuple of str
    """
    n = max(1, int(described.sum()))
    if sparse.issparse(matrix):
        matrix = sparse.csr_array(matrix, dtype=np.float64)
        centre = np.asarray(matrix.sum(axis=0)).ravel() / n
        square = float((matrix.data**2).sum()) / n - float(centre @ centre)
    else:
        matrix = np.array(matrix, dtype=np.float64, order="C")
        matrix[described] -= matrix[described].mean(axis=0)
        centre, square = np.zeros(matrix.shape[1]), float(np.einsum("nf,nf->", matrix, matrix)) / n
    return Design(matrix, centre, described, names, square if square > 0.0 else 1.0)
