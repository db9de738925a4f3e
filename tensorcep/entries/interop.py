"""From and to the containers of other libraries, as plain (coords, values, shape)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tensorcep.core.checks import check_coords, check_shape, fail_value, warn_user
from tensorcep.entries.coo import Coords, Values, cells_of, merge_duplicates, unfold_cp

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
