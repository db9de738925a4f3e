"""From what a user passes as X and y to coordinates, values, shape and labels, and to packed rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tensorcep.core.belief import Posterior
from tensorcep.core.checks import (
    check_coords,
    check_not_empty,
    check_shape,
    check_sizes,
    check_values,
    fail_value,
    warn_user,
)
from tensorcep.core.packing import offsets
from tensorcep.entries.tensor import SparseTensor


def training_entries(X: Any, y: Any, shape: Any) -> tuple[np.ndarray, np.ndarray, tuple[int, ...], tuple[Any, ...]]:
    """Checked coordinates, values, shape and labels of the entries to fit.

    Raises
    ------
    ValueError, TypeError
        If they are not allowed, or there is no entry.
    """
    if isinstance(X, SparseTensor):
        if y is not None:
            fail_value("y must be left out when X is a SparseTensor, which holds its own values.")
        coords, values, found, labels = X.coords, X.values, X.shape, X.labels
    else:
        if y is None:
            fail_value("y must hold one value per row of X; got None (or pass a SparseTensor as X).")
        coords = check_coords(X, name="X")
        values = check_values(y, len(coords), name="y")
        check_not_empty(len(coords), "X")
        found = tuple(int(n) + 1 for n in coords.max(axis=0))
        check_sizes(found, len(coords), shape is not None)
        labels = (None,) * coords.shape[1]
    check_not_empty(len(coords), "X")
    check_sizes(found if shape is None else check_shape(shape, coords.shape[1]), len(coords), given=True)
    if shape is None:
        return coords, values, found, labels
    wanted = check_shape(shape, coords.shape[1])
    check_coords(coords, wanted, name="X")
    if any(item is not None and n != m for item, n, m in zip(labels, wanted, found, strict=True)):
        fail_value(f"shape must equal that of the labelled tensor, {found}; got {wanted}.")
    return coords, values, wanted, labels


def coords_to_predict(X: Any, labels: tuple[Any, ...]) -> np.ndarray:
    """Coordinates (n, K) of the entries to predict; labels that the model does not know become -1.

    A DataFrame holds labels, one column per mode in order, if the model was fitted with labels. The labels of a
    SparseTensor are matched with the model's.
    """
    order = len(labels)
    if isinstance(X, pd.DataFrame) and any(found is not None for found in labels):
        if X.shape[1] != order:
            fail_value(f"X must have {order} columns, one per mode; got {X.shape[1]}.")
        names = [None if found is None else found.name for found in labels]
        if None not in names and set(names) == set(X.columns):
            X = X[names]
        known = [
            found if found is None else found.rows(X.iloc[:, k], unknown="ignore") for k, found in enumerate(labels)
        ]
        plain = [k for k, found in enumerate(labels) if found is None]
        coords = np.zeros((len(X), order), dtype=np.int64)
        if plain:
            pair = np.stack([X.iloc[:, k].to_numpy() for k in (plain[0], *plain)], axis=1)
            coords[:, plain] = check_coords(pair, name="X")[:, 1:]
        for k, column in enumerate(known):
            if column is not None:
                coords[:, k] = column
        return coords
    if not isinstance(X, SparseTensor):
        return check_coords(X, order=order, name="X")
    coords = check_coords(X.coords, order=order, name="X").copy()
    for k, (mine, theirs) in enumerate(zip(labels, X.labels, strict=True)):
        if mine is None and theirs is not None:
            fail_value(f"X has labels in mode {k}, but the model was fitted to indices; pass X.coords if they agree.")
        if mine is not None and theirs is not None and mine is not theirs:
            coords[:, k] = mine.rows(theirs, unknown="ignore")[coords[:, k]]
    return coords


def packed_rows(coords: np.ndarray, posterior: Posterior, unknown: str) -> np.ndarray:
    """Packed rows (n, K) of coordinates; a row beyond the shape becomes its mode's prior row, which follows the others.

    Warns (unknown="prior") or raises (unknown="error") if a row has no training entries.
    """
    first, total = offsets(posterior.shape)[:-1], sum(posterior.shape)
    beyond = (coords >= np.asarray(posterior.shape)) | (coords < 0)
    rows = np.where(beyond, total + np.arange(len(first)), coords + first)
    unseen = beyond.copy()
    unseen[~beyond] = ~posterior.seen[rows[~beyond]]
    if unseen.any():
        touched = unseen.any(axis=1)
        what = f"{int(touched.sum())} of {len(coords)} entries touch rows without training entries"
        what += f" (the first is entry {int(np.argmax(touched))})"
        if unknown == "error":
            fail_value(f'{what}; fit with such rows, or set unknown="prior".')
        warn_user(f"{what}; their prior is used.", UserWarning)
    return rows


def distinct_unknown_rows(
    rows: np.ndarray, coords: np.ndarray, shape: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Give each unknown row a row of its own, for draws: new rows (n, K), and the row of moments each one has.

    Two entries share an unknown row if they have the same index beyond the shape; an unknown label (-1) is not known to
    be equal to another, so it is a row of its own.
    """
    total, order = sum(shape), len(shape)
    origin = [np.arange(total)]
    result = rows.copy()
    used = total
    for k in range(order):
        beyond = rows[:, k] == total + k
        index = coords[beyond, k]
        index = np.where(index < 0, -1 - np.arange(len(index)), index)
        _, which = np.unique(index, return_inverse=True)
        result[beyond, k] = used + which
        n_new = int(which.max()) + 1 if len(which) else 0
        origin.append(np.full(n_new, total + k))
        used += n_new
    return result, np.concatenate(origin)
