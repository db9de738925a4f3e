"""The names of rows and columns: of data frames and tensors, entity by entity, and cells that are given by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from tensorcep.core.checks import check_coords, fail_value
from tensorcep.entries.labels import Labels, why_not_stored
from tensorcep.entries.matrices import as_matrix
from tensorcep.entries.tensor import SparseTensor

Pair = tuple[Labels | None, Labels | None]


def labels_of(X: Any) -> Pair:
    """The labels of the rows and of the columns of a matrix; None where they have none, or not each its own."""
    X = as_matrix(X)
    if isinstance(X, SparseTensor):
        return X.labels[0], X.labels[1]
    return (_labels(X.index), _labels(X.columns)) if isinstance(X, pd.DataFrame) else (None, None)


def _labels(index: pd.Index) -> Labels | None:
    if isinstance(index, pd.RangeIndex) or not index.is_unique or index.hasnans:
        return None
    return Labels(index)


def by_entity(pairs: Sequence[Pair], sides: Sequence[tuple[int, int]], names: Sequence[str]) -> list[Labels | None]:
    """The labels of every entity, of those of matrices whose rows and columns are the entities `sides`.

    Raises
    ------
    ValueError
        If two matrices name the rows of one entity differently.
    """
    found: list[Labels | None] = [None] * len(names)
    for m, (pair, entities) in enumerate(zip(pairs, sides, strict=True)):
        for e, labels in zip(entities, pair, strict=True):
            known = found[e]
            if known is not None and labels is not None and known != labels:
                fail_value(
                    f"the labels of {names[e]!r} in matrix {m} must be those of an earlier matrix, in their order; "
                    "reindex one by the other."
                )
            found[e] = labels if known is None else known
    return found


def storable(labels: Sequence[Labels | None]) -> list[Labels | None]:
    """The labels that a file takes; None for others, whose rows then are numbers."""
    return [None if why_not_stored(own, k) is not None else own for k, own in enumerate(labels)]


def observed_cells(X: Any) -> SparseTensor:
    """The observed cells of a matrix: a frame or an array with NaN, a sparse matrix, or a tensor of two modes."""
    if isinstance(X, SparseTensor):
        check_coords(X.coords, order=2, name="X")
        return X
    X = as_matrix(X)
    if sparse.issparse(X):
        return SparseTensor.from_scipy(X)
    array, labels = np.asarray(X, dtype=np.float64), labels_of(X)
    if array.ndim != 2:
        fail_value(f"a matrix must have 2 dimensions; got {array.ndim}.")
    at = np.stack(np.nonzero(~np.isnan(array)), axis=1)
    return SparseTensor(at, array[tuple(at.T)], array.shape, labels)


def cells_of(X: Any, labels: Pair, shape: tuple[int, int]) -> np.ndarray:
    """Coordinates (n, 2) of cells: a table with a column of rows and one of columns, or a SparseTensor, or coordinates.

    Raises
    ------
    ValueError, TypeError
        If a row or a column is not known.
    """
    if isinstance(X, SparseTensor):
        X = X.to_pandas().iloc[:, :2] if any(found is not None for found in X.labels) else X.coords
    if not isinstance(X, pd.DataFrame):
        return check_coords(X, shape, name="X", order=2)
    names = [None if found is None else found.name for found in labels]
    columns = names if None not in names and set(names) <= set(X.columns) else list(X.columns[:2])
    if len(columns) < 2:
        fail_value(f"X must hold a column of rows and one of columns; got {list(X.columns)}.")
    parts = [
        X[name].to_numpy() if known is None else known.rows(X[name])
        for name, known in zip(columns, labels, strict=True)
    ]
    return check_coords(np.stack(parts, axis=1), shape, name="X")
