"""Entries from and to data frames, scipy, tensorly and sparse arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from tensorcep.core.checks import (
    check_columns,
    check_coords,
    check_mode_count,
    check_not_empty,
    check_shape,
    check_values,
    fail_value,
    warn_user,
)
from tensorcep.entries.coo import Coords, Values, cells_of, merge_duplicates, unfold_cp
from tensorcep.entries.labels import Labels, check_labels

# From and to the containers of other libraries, as plain (coords, values, shape).

# Formats that store blocks or diagonals, whatever cells of these are there.
FILLED_UP = ("bsr", "dia")

Parts = tuple[Coords, Any, tuple[int, ...]]


def scipy_parts(matrix: Any, duplicates: str = "sum", tell: bool = True) -> Parts:
    """Return the cells that a scipy.sparse matrix or array stores: in the whole package these are the observed ones.

    A zero that is stored is observed, of which a warning tells if it is to `tell`; but zeros in the blocks of a bsr and
    on the diagonals of a dia fill these up, and are none. Those that are listed twice are merged as `duplicates` says.
    """
    if not hasattr(matrix, "tocoo") or matrix.ndim < 2:
        raise TypeError(
            "from_scipy takes a scipy.sparse matrix, or an array of two dimensions or more; got "
            f"{type(matrix).__name__}{f' of shape {matrix.shape}' if hasattr(matrix, 'shape') else ''}."
        )
    coo = matrix.tocoo()
    coords = np.stack(coo.coords if hasattr(coo, "coords") else (coo.row, coo.col), axis=1).astype(np.int64)
    values = coo.data.astype(np.float64) if coo.data.dtype.kind in "iub" else coo.data
    if matrix.format in FILLED_UP:
        coords, values = coords[values != 0], values[values != 0]
    coords, values = merge_duplicates(coords, values, coo.shape, duplicates)
    zeros = int(np.count_nonzero(values == 0))
    if zeros and tell:
        warn_user(
            f"{zeros} explicit zeros of the matrix are kept as observed entries; "
            "call its eliminate_zeros() first if they were not observed.",
            UserWarning,
        )
    return coords, values, tuple(coo.shape)


def stored_cells(matrix: Any, tell: bool = True) -> Any:
    """Return a scipy.sparse matrix as a coo_array of its observed cells, each once: those listed twice are summed.

    Raises
    ------
    ValueError
        If it has not two dimensions.
    """
    if matrix.ndim != 2:
        fail_value(f"a matrix must have 2 dimensions; got {matrix.ndim}.")
    coords, values, shape = scipy_parts(matrix, tell=tell)
    return sparse.coo_array((values, (coords[:, 0], coords[:, 1])), shape=shape)


def dense_parts(array: Any, mask: Any = None) -> Parts:
    """Return the observed cells of a dense array: those that are not NaN, or those where `mask` is true."""
    if mask is None and isinstance(array, np.ma.MaskedArray):
        mask = ~(np.ma.getmaskarray(array) | np.isnan(array.data))
    array = np.asarray(array)
    if array.ndim < 2:
        fail_value(f"a dense array must have at least two dimensions; got {array.ndim}.")
    if array.dtype.kind not in "iufb":
        raise TypeError(f"a dense array must hold real numbers; got dtype {array.dtype}.")
    if mask is None:
        observed = ~np.isnan(array)
    else:
        observed = np.asarray(mask)
        if observed.shape != array.shape:
            fail_value(f"mask must have the shape of the array, {array.shape}; got {observed.shape}.")
        if not np.isin(observed, (0, 1)).all():
            fail_value("mask must hold only True (observed) and False, or 1 and 0; convert it to bool.")
        observed = observed.astype(bool)
    return np.argwhere(observed).astype(np.int64), array[observed], array.shape


def tensorly_parts(tensor: Any, mask: Any = None, coords: Any = None) -> Parts:
    """Return a dense TensorLy tensor's observed cells, or a CPTensor's values at `coords` (default: at every cell)."""
    if not (hasattr(tensor, "factors") and hasattr(tensor, "weights")):
        if coords is not None:
            fail_value("coords are only for a CPTensor; use mask to say which cells of a dense tensor are observed.")
        return dense_parts(tensor, mask)
    if mask is not None:
        fail_value("mask is only for a dense tensor; use coords to choose cells of a CPTensor.")
    shape = check_shape([len(factor) for factor in tensor.factors])
    if coords is None:
        cells = cells_of(np.arange(math.prod(shape), dtype=np.int64), shape)
    else:
        cells = check_coords(coords, shape)
    return cells, unfold_cp(tensor.weights, tensor.factors, cells), shape


def sparse_parts(array: Any) -> Parts:
    """Return the stored elements of a pydata/sparse array (COO, or any of its formats that asformat turns into COO)."""
    if not hasattr(array, "coords") and hasattr(array, "asformat"):
        array = array.asformat("coo")
    if not (hasattr(array, "coords") and hasattr(array, "data") and hasattr(array, "shape")):
        raise TypeError(f"from_sparse takes a pydata/sparse array; got {type(array).__name__}.")
    return np.asarray(array.coords).T.astype(np.int64), array.data, tuple(array.shape)


def to_dense(coords: Coords, values: Values, shape: Sequence[int], fill: float) -> NDArray[np.float64]:
    """Return a dense array with `fill` in the cells that were not observed."""
    dense = np.full(shape, fill, dtype=np.float64)
    dense[tuple(coords.T)] = values
    return dense


def column_names(names: Sequence[Any], value: Any) -> list[Any]:
    """Return one distinct column name per mode: the labels' names where there are, else mode_0, mode_1, ..."""
    found = [f"mode_{k}" if name is None else name for k, name in enumerate(names)]
    if len({*found, value}) != len(found) + 1:
        fail_value(f"column names must be distinct; got {[*found, value]}; pass modes= and value=.")
    return found


# Data frames: which columns are the modes, and entries from their lines.

# Seconds since 1970 of about 1990 to 2100, as they are or in milli-, micro- or nanoseconds.
EPOCHS, UNITS = (6.3e8, 4.1e9), (1.0, 1e3, 1e6, 1e9)


def are_epochs(numbers: Any) -> bool:
    """Whether all of some numbers (N,) are whole and of the size of times since 1970."""
    found = np.asarray(numbers)
    if found.dtype.kind not in "iuf" or not found.size or not np.isfinite(found).all():
        return False
    low, high = float(found.min()), float(found.max())
    sized = any(EPOCHS[0] * unit <= low and high <= EPOCHS[1] * unit for unit in UNITS)
    return sized and bool((found == np.floor(found)).all())


def frame_entries(
    frame: pd.DataFrame, modes: Sequence[Any], value: Any, labels: Any
) -> tuple[NDArray[np.int64], NDArray[np.float64], tuple[Labels, ...]]:
    """Return coordinates, values and labels of the lines of a long frame; see `SparseTensor.from_pandas`.

    Raises
    ------
    ValueError
        If a column is missing or there twice, or is two modes, or a mode and the value; if there are no lines; if there
        is no label, or what cannot be one.
    """
    check_mode_count(modes)
    modes = check_mode_columns(list(frame.columns), modes, value, "the DataFrame")
    check_not_empty(len(frame), "the DataFrame")
    known = check_labels(labels, len(modes))
    found, rows = [], []
    for name, old in zip(modes, known, strict=True):
        new, at = labels_of_column(frame[name], name)
        if old is not None:
            old = old.extended(new)
            at, new = old.rows(new)[at], old
        found.append(new)
        rows.append(at)
    values = np.ones(len(frame)) if value is None else check_values(frame[value].to_numpy(), name=f"column {value!r}")
    return np.stack(rows, axis=1), values, tuple(found)


def labels_of_column(column: pd.Series, name: Any) -> tuple[Labels, NDArray[np.int64]]:
    """Return the labels of a column and the row of each line; refuse what cannot be a label."""
    try:
        return Labels.from_column(column, name=name)
    except TypeError as error:  # a list or a dict
        raise ValueError(f"column {name!r} must hold labels, such as numbers, text or dates ({error}).") from error


def check_names(columns: Sequence[Any], where: str) -> None:
    """Refuse columns that are named by a missing value, such as NaN, which equals no name that one could ask for."""
    unnamed = [at for at, name in enumerate(columns) if not isinstance(name, tuple) and pd.isna(name)]
    if unnamed:
        at = unnamed[0]
        fail_value(f"the columns of {where} must have names; got none for the column at position {at}; name it.")


def check_mode_columns(columns: Sequence[Any], modes: Sequence[Any], value: Any, where: str) -> list[Any]:
    """Return the modes as a list, if they and the value are different columns and each is there once."""
    check_mode_count(modes, what=f"{where} must have")
    chosen = list(modes)
    check_names(columns, where)
    wanted = chosen if value is None else [*chosen, value]
    check_columns(columns, wanted, where)
    twice = [name for name in wanted if list(columns).count(name) > 1]
    if twice:
        fail_value(f"{where} has more than one column {twice[0]!r}; rename one.")
    if len(set(wanted)) != len(wanted):
        fail_value(f"modes and value must be different columns; got {chosen} and {value!r}.")
    return chosen
