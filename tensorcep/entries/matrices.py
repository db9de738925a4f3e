"""Matrices and views of other libraries as the pandas frames that the rest of the package knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from tensorcep.core.checks import check_unmasked, fail_value
from tensorcep.entries.tables import check_was_run, is_array_of_cells, is_of, names_columns


def as_matrix(X: Any) -> Any:
    """Return a matrix with names as a DataFrame, one with masked cells with NaN there, anything else as it is.

    Of an AnnData `X` with its `obs_names` and `var_names` (cells that a sparse one does not store are zeros there), of
    a DataArray of two dimensions the values with its coordinates, of a table of polars or pyarrow its columns.

    Raises
    ------
    TypeError, ValueError
        If it is a query that was not run, columns by name, or an array of other dimensions.
    """
    if isinstance(X, np.ma.MaskedArray):
        return _with_gaps(X)
    _check_is_matrix(X)
    if is_of(X, "anndata") and hasattr(X, "obs_names") and hasattr(X, "var_names"):
        values = X.X.toarray() if sparse.issparse(X.X) else np.asarray(X.X, dtype=np.float64)
        return pd.DataFrame(values, index=pd.Index(X.obs_names), columns=pd.Index(X.var_names))
    if is_array_of_cells(X):
        if len(X.dims) != 2:
            fail_value(f"a matrix must have 2 dimensions; got {len(X.dims)}.")
        index, columns = (X.coords[name].to_index() if name in X.coords else None for name in X.dims)
        return pd.DataFrame(np.asarray(X.values, dtype=np.float64), index=index, columns=columns)
    check_was_run(X)
    if is_of(X, "pyarrow") and hasattr(X, "to_pandas"):
        return X.to_pandas()
    if is_of(X, "polars") and hasattr(X, "columns"):
        return pd.DataFrame({name: X[name].to_list() for name in X.columns})
    if isinstance(X, pd.DataFrame) and any(isinstance(dtype, pd.SparseDtype) for dtype in X.dtypes):
        return X.apply(lambda column: column.sparse.to_dense() if hasattr(column, "sparse") else column)
    return X


def as_numbers(X: Any, name: str = "X") -> Any:
    """`as_matrix`, refused where a column of a table holds what is no number; the error names it.

    Raises
    ------
    TypeError, ValueError
    """
    X = as_matrix(X)
    for at, label in enumerate(X.columns) if isinstance(X, pd.DataFrame) else ():
        column = X.iloc[:, at]
        if pd.api.types.is_numeric_dtype(column.dtype):
            continue
        odd = column.dropna() if getattr(column.dtype, "kind", "O") not in "mM" else column
        found = next((item for item in odd if not _is_number(item)), None)
        if found is not None:
            fail_value(
                f"column {label!r} of {name} must hold numbers; got {found!r}; leave it out, or make numbers of it: of "
                "text pandas.get_dummies, of times how far they are from the first."
            )
    return X


def as_targets(y: Any) -> Any:
    """Targets without masked ones; those of pandas' nullable or Arrow types as the numpy array that they would be.

    Raises
    ------
    ValueError
    """
    plain = getattr(getattr(check_unmasked(y, "y"), "dtype", None), "numpy_dtype", None)
    return y if plain is None or plain.kind not in "iufb" or pd.isna(y).any() else y.to_numpy(dtype=plain)


def _is_number(item: Any) -> bool:
    """Whether it is a number, or text of one."""
    try:
        float(item)
    except (TypeError, ValueError):
        return False
    return True


def _check_is_matrix(X: Any) -> None:
    """Refuse columns without an order of their own, and arrays that are no matrices, with what to call instead."""
    records = isinstance(X, (list, tuple)) and len(X) > 0 and all(isinstance(item, Mapping) for item in X)
    if is_of(X, "xarray") and hasattr(X, "data_vars"):
        what, instead = "a Dataset of xarray", "one of its arrays, or X.to_dataframe()"
    elif records or names_columns(X):
        what, instead = "columns by name", "pandas.DataFrame(X)"
    elif is_of(X, "sparse"):
        what = "an array of pydata/sparse"
        instead = "SparseTensor.from_sparse(X) if what is stored is observed, X.todense() if all is"
    else:
        return
    raise TypeError(f"X must be a matrix; got {what}; pass {instead}.")


def _with_gaps(X: Any) -> Any:
    """A masked array as one with NaN where it is masked; whole numbers, which have none, as float64."""
    if not np.ma.is_masked(X):
        return np.ma.getdata(X)
    kind = X.dtype.kind
    return (X if kind in "fc" else X.astype(np.float64 if kind in "iub" else object)).filled(np.nan)


def as_views(X: Any) -> Any:
    """Return the modalities of a MuData as frames by name, with a row for every observation; anything else as it is."""
    if not (is_of(X, "mudata") and hasattr(X, "mod")):
        return X
    return {name: as_matrix(view).reindex(pd.Index(X.obs_names)) for name, view in X.mod.items()}
