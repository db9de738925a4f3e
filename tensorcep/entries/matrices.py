"""Matrices and views of other libraries as the pandas frames that the rest of the package knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from tensorcep.core.checks import fail_value
from tensorcep.entries.tables import check_was_run, is_array_of_cells, is_of


def as_matrix(X: Any) -> Any:
    """Return a matrix with names as a DataFrame, one with masked cells with NaN there, anything else as it is.

    Of an AnnData `X` with its `obs_names` and `var_names` (cells that a sparse one does not store are zeros there), of
    a DataArray of two dimensions the values with its coordinates, of a table of polars or pyarrow its columns.
    """
    if isinstance(X, np.ma.MaskedArray):
        return _with_gaps(X)
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
        return X.to_pandas().astype(np.float64)
    if is_of(X, "polars") and hasattr(X, "columns"):
        return pd.DataFrame({name: X[name].to_list() for name in X.columns}).astype(np.float64)
    return X


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
