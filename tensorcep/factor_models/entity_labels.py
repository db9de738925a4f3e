"""The names of rows and columns: of data frames and tensors, entity by entity, and cells that are given by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    index = index.to_flat_index() if index.nlevels > 1 else index  # labels of several levels are tuples
    if isinstance(index, pd.RangeIndex) or not index.is_unique or index.hasnans:
        return None
    return Labels(index)


def check_columns(known: Labels | None, X: Any, name: str) -> None:
    """Refuse a matrix of new rows whose columns are not those of the fit, in their order; one without names is taken.

    Columns of a fit without names are 0, 1, ...: a frame that has these in another order is refused, too.

    Raises
    ------
    ValueError
    """
    X = as_matrix(X)
    theirs = labels_of(X)[1]
    if theirs is not None:
        same = known == theirs if known is not None else not _is_permuted(theirs.index)
    elif isinstance(X, pd.DataFrame) and isinstance(X.columns, pd.RangeIndex):
        same = not _is_permuted(X.columns)
    else:  # names that are missing or not each its own are none of the fit's
        same = known is None or not isinstance(X, pd.DataFrame)
    if not same:
        fail_value(f"the columns of {name} must have the labels, in the order, of those of the fit.")


def _is_permuted(index: pd.Index) -> bool:
    """Whether labels are the numbers 0, 1, ... in another order."""
    if isinstance(index, pd.RangeIndex):
        return index.step < 0 and len(index) > 1
    if getattr(index.dtype, "kind", "O") not in "iu":
        return False
    numbers = index.to_numpy()
    return bool((np.sort(numbers) == np.arange(len(numbers))).all() and (np.diff(numbers) < 0).any())


def check_same_rows(matrices: Mapping[str, Any]) -> None:
    """Refuse matrices of the same new rows, by what errors call them, whose rows have other labels.

    Raises
    ------
    ValueError
    """
    first: tuple[str, Labels] | None = None
    for name, X in matrices.items():
        labels = labels_of(X)[0]
        if first is not None and labels is not None and labels != first[1]:
            fail_value(
                f"the rows of {name} must have the labels of those of {first[0]}, in their order; reindex one by the "
                "other."
            )
        first = first if first is not None or labels is None else (name, labels)


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


def cells_of(
    X: Any, labels: Pair, shape: tuple[int, int], entities: tuple[str | None, str | None] = (None, None)
) -> np.ndarray:
    """Coordinates (n, 2) of cells: a table with a column of rows and one of columns, or a SparseTensor, or coordinates.

    Columns of a table are found by the names of the labels, or of the entities where the relation names them; they are
    taken in order where neither is known, or where the table has no names.

    Raises
    ------
    ValueError, TypeError
        If a row or a column is not known, or the table has other names.
    """
    if isinstance(X, SparseTensor):
        if all(found is None for found in X.labels):
            return check_coords(X.coords, shape, name="X", order=2)
        nameless = any(found is None or found.name is None for found in X.labels)
        X = X.to_pandas().iloc[:, :2]
        X = X.set_axis([0, 1], axis=1) if nameless else X
    if not isinstance(X, pd.DataFrame):
        return check_coords(X, shape, name="X", order=2)
    columns = _columns_of_cells(X, labels, entities)
    chosen = [X.iloc[:, at] for at in columns]
    parts = [
        column.to_numpy() if known is None else known.rows(column) for column, known in zip(chosen, labels, strict=True)
    ]
    return check_coords(np.stack(parts, axis=1), shape, name="X")


def _columns_of_cells(X: pd.DataFrame, labels: Pair, entities: tuple[str | None, str | None]) -> list[int]:
    """Where in a table the rows and the columns of cells are."""
    given = list(X.columns)
    names = [
        [name for name in (None if known is None else known.name, entity) if name is not None]
        for known, entity in zip(labels, entities, strict=True)
    ]
    found = [next((given.index(name) for name in own if given.count(name) == 1), -1) for own in names]
    if min(found) >= 0 and found[0] != found[1]:
        return found
    if len(given) < 2:
        fail_value(f"X must hold a column of rows and one of columns; got {given}.")
    if all(names) and not all(isinstance(name, (int, np.integer)) for name in given):
        wanted = ", ".join(repr(own[-1]) for own in names)
        fail_value(
            f"X must have the columns {wanted}, which name the rows and the columns of the matrix; got "
            f"{', '.join(map(repr, given))}; rename or choose them."
        )
    return [0, 1]
