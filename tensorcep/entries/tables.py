"""Tables, matrices and views of any library as the pandas frames that the rest of the package knows."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import sparse

from tensorcep.core.checks import check_choice, check_columns, check_not_empty, check_unmasked, fail_value, warn_user
from tensorcep.core.cluster import Cluster
from tensorcep.entries.labels import Labels, are_epochs, check_mode_columns, check_names
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.entries.splitting import held_out, way_of


class Table(Protocol):
    """A table of pandas, polars, pyarrow or Dask."""

    @property
    def columns(self) -> Any: ...


# What holds entries: coordinates (n, K), a tensor, a table, records, an array of cells, or files, which text names.
Files: TypeAlias = "os.PathLike[str] | Sequence[os.PathLike[str]]"
Cells: TypeAlias = "ArrayLike | SparseTensor | Table | Sequence[Mapping[Any, object]] | Files"
# What there is of each entry, or the column that holds it.
Values: TypeAlias = "ArrayLike | None"
# The name of a column, or the name or position of a mode; several of them; one or several labels or indices of rows.
Name: TypeAlias = Hashable
Names: TypeAlias = "Sequence[Hashable] | None"
Rows: TypeAlias = "Hashable | list[Any] | np.ndarray"

# Where nobody said which column is the value; None says that there is none and lines are counted.
UNSAID = "no column: the values are y"
VALUE_OF_ARRAYS = "value"
# Lines from which a column is looked at, and the share of rows to lines, one to so many, of points of time.
FEWEST_LINES = 20


def as_frame(X: Any) -> Any:
    """Return a table as a DataFrame: one of polars or pyarrow, a DataArray of xarray, a list of records; else as is."""
    if isinstance(X, (SparseTensor, pd.DataFrame)) or (type(X) is np.ndarray and X.dtype.names is None):
        return X
    X, what = _of_pandas(X), ""
    if sparse.issparse(X):
        what = f"a {type(X).__name__}"
        instead = "SparseTensor.from_scipy(X), whose stored cells are the entries"
    elif isinstance(X, pd.Series) and X.index.nlevels > 1:
        what, instead = f"a Series {_in_index(X)}", "X.reset_index()"
    elif is_of(X, "xarray") and hasattr(X, "data_vars"):
        what, instead = "a Dataset of xarray", "one of its arrays, or X.to_dataframe().reset_index()"
    elif is_of(X, "sparse"):
        what, instead = "an array of pydata/sparse", "SparseTensor.from_sparse(X), whose stored cells are the entries"
    elif names_columns(X):
        what, instead = "columns by name", "pandas.DataFrame(X)"
    if what:
        raise TypeError(f"X must be a table, a SparseTensor or coordinates; got {what}; pass {instead}.")
    if is_array_of_cells(X):  # those that are not missing are the entries
        values = np.asarray(X.values, dtype=np.float64)
        at = np.nonzero(np.isfinite(values))
        columns: dict[Any, Any] = {}
        for name, rows, n in zip(X.dims, at, values.shape, strict=True):
            known = X.coords[name].to_index() if name in X.coords else pd.RangeIndex(n)
            columns[name] = pd.Categorical.from_codes(rows, known, ordered=True)
        return pd.DataFrame({**columns, VALUE_OF_ARRAYS: values[at]})
    if _are_records(X):
        for n, record in enumerate(X):
            missing = [name for name in X[0] if name not in record]
            if missing:
                fail_value(f"every record must have the same keys; record {n} has no {missing[0]!r}.")
        return pd.DataFrame.from_records(list(X))
    return X


def names_columns(X: Any) -> bool:
    """Whether it is a dict of columns, or an array of fields."""
    fields = isinstance(X, np.ndarray) and X.dtype.names is not None
    return fields or (isinstance(X, Mapping) and not (is_of(X, "polars") or sparse.issparse(X)))


def _of_pandas(X: Any) -> Any:
    """A table of polars or pyarrow as a DataFrame; anything else as it is."""
    if is_of(X, "polars") and hasattr(X, "collect"):
        raise TypeError(f"X must be a table; got a {type(X).__name__} of polars; pass X.collect().")
    if is_of(X, "pyarrow") and hasattr(X, "to_pandas"):
        return X.to_pandas()
    if is_of(X, "polars") and hasattr(X, "columns"):
        return pd.DataFrame({name: X[name].to_list() for name in X.columns})
    return X


def _are_records(X: Any) -> bool:
    return isinstance(X, (list, tuple)) and len(X) > 0 and all(isinstance(item, Mapping) for item in X)


def check_columns_not_in_index(frame: pd.DataFrame, n_modes: int) -> None:
    """Refuse a table of fewer columns than modes whose index has several levels: these are the modes."""
    if frame.index.nlevels > 1 and frame.shape[1] < n_modes:
        fail_value(f"X must have a column for each mode; got a DataFrame {_in_index(frame)}; pass X.reset_index().")


def _in_index(X: Any) -> str:
    levels = ", ".join(repr(name) for name in X.index.names)
    return f"with the levels {levels} in its index"


def is_array_of_cells(X: Any) -> bool:
    """Whether it is a DataArray of xarray, whose values are those of the cells."""
    return is_of(X, "xarray") and hasattr(X, "dims") and hasattr(X, "values")


def as_frames(source: Any) -> Any:
    """Return a source of batches whose tables are DataFrames."""
    whole = as_frame(source)
    if whole is not source or isinstance(source, (str, os.PathLike, pd.DataFrame)) or not isinstance(source, Iterable):
        return whole
    are_files = isinstance(source, (list, tuple)) and all(isinstance(item, (str, os.PathLike)) for item in source)
    return source if are_files else map(as_frame, source)


def is_of(X: Any, library: str) -> bool:
    """Whether the object's class is of a library, which need not be imported here to know."""
    return type(X).__module__.partition(".")[0] == library


def _modes_of(columns: list[Any], modes: Any, value: Any, named: bool) -> Any:
    """The columns of the modes, by default all but the value, where that is `named`."""
    if isinstance(modes, str):
        fail_value(f"modes must be a list of column names; got {modes!r}.")
    return [name for name in columns if not named or name != value] if modes is None else modes


def warn_of_modes(labels: Sequence[Labels | None], n: int, known: Any) -> None:
    """Say which columns that nobody called modes look like none, by their rows, for n entries."""
    # What is `known` of one, by its name or position, lets it be: a Series may have one entry a row.
    for k, found in enumerate(labels):
        if found is None or n < FEWEST_LINES or (isinstance(known, Mapping) and (k in known or found.name in known)):
            continue
        if len(found) == n:
            looks = "an identifier, an index or a point of time, or values of a wide table (pandas.melt)"
        elif len(found) * FEWEST_LINES > n and are_epochs(found.index):
            looks = "points of time, in seconds since 1970 or parts of these"
        else:
            continue
        taken = f"column {found.name!r} is taken as a mode of {len(found)} rows for {n} entries"
        cure = "name the modes by modes=, without it, or with days or hours in its place"
        warn_user(f"{taken}: it looks like {looks}; {cure}.", UserWarning)


def split_observed(names: list[Any], X: Any, y: Any, modes: Any, value: Any, empty: bool = False) -> tuple[Any, Any]:
    """Cells, and what was observed there or None, of entries that a model whose modes have these names is to judge."""
    X = as_frame(X)
    if isinstance(X, pd.DataFrame) and modes is None and set(names) <= set(X.columns):
        modes, others = names, [name for name in X.columns if name not in names]
        # A single further column holds the values.
        value = others[0] if y is None and value is UNSAID and len(others) == 1 else value
    X, y = split_given(X, y, modes, value, empty)
    return X, X.values if y is None and isinstance(X, SparseTensor) else y


def column_apart(X: Any, name: str, column: str) -> tuple[Any, np.ndarray]:
    """A table without one of its columns, which the argument `name` names, and that column."""
    X = as_frame(X)
    if not isinstance(X, pd.DataFrame):
        fail_value(f"{name}={column!r} names a column of a table; got X as {type(X).__name__}; give an array.")
    check_choice(name, column, tuple(map(str, X.columns)))
    return X.drop(columns=[column]), X[column].to_numpy()


def split_given(X: Any, y: Any, modes: Any, value: Any, empty: bool = False) -> tuple[Any, Any]:
    """Cells, and values or None, of what a fit is given that is no file: of lines to count a tensor."""
    # The modes of a table are by default all columns but `value`, which is None where a line is an event, and else a
    # column or UNSAID: `y` has the values where no column does.
    if value is UNSAID and y is None and is_array_of_cells(X):
        value = VALUE_OF_ARRAYS
    X = as_frame(X)
    if not isinstance(X, pd.DataFrame):
        if modes is not None or value is not UNSAID:
            fail_value(f"modes= and value= name columns of a table; got X as {type(X).__name__}.")
        return X, y
    if not empty:
        check_not_empty(len(X), "X")
    check_columns_not_in_index(X, 2 if y is not None or value is None else 3)
    check_names(list(X.columns), "X")
    named = value is not UNSAID and value is not None
    if y is not None and named:
        fail_value(f"the values must be y or a column, not both; got y and value={value!r}.")
    if y is None and value is UNSAID:
        which = f"which of the columns {', '.join(map(repr, X.columns))} holds them"
        cure = f"give y, or say with value= {which} (value=None counts the lines of each cell)"
        fail_value(f"the values are needed: {cure}.")
    chosen, modes = modes is not None, _modes_of(list(X.columns), modes, value, named)
    modes = check_mode_columns(list(X.columns), modes, value if named else None, "X")
    for name in [] if chosen else [name for name in modes if X[name].dtype.kind == "f"]:
        missing = X[name].isna().to_numpy()
        if missing.any():
            fail_value(
                f"column {name!r} has {int(missing.sum())} missing labels, the first at entry {int(missing.argmax())}; "
                "drop these entries, or name the modes by modes=; where columns hold values, as those of a wide table, "
                "make them lines by pandas.melt, or fit BayesianPCA."
            )
    if y is None and not named:
        return SparseTensor.from_pandas(X, modes, None), None
    if named:
        column = X[value]  # of a Categorical the order of its categories may matter
        y = column if isinstance(column.dtype, pd.CategoricalDtype) else column.to_numpy()
    return X[modes], y


def train_test_split(
    data: Any,
    test_size: float = 0.2,
    random_state: Any = None,
    *,
    by: str = "entry",
    mode: Any = None,
    times: Any = None,
) -> tuple[Any, Any]:
    """Hold a part of the entries of a table, or of a tensor, out: at random, by time, of each row, or whole rows.

    Parameters and errors are those of `SparseTensor.train_test_split`; both parts have the entries in their order. Of a
    table `mode` is a column, and so may `times` be; all columns are kept: weights, exposures, times.

    Examples
    --------
    >>> import pandas as pd
    >>> from tensorcep import train_test_split
    >>> log = pd.DataFrame({"user": ["u1", "u1", "u2", "u2"], "item": list("abab"), "day": [1, 2, 2, 3]})
    >>> train, test = train_test_split(log, 1, by="row", mode="user", times="day")
    >>> test["item"].tolist()
    ['b', 'b']
    """
    if isinstance(data, SparseTensor):
        return data.train_test_split(test_size, random_state, by=by, mode=mode, times=times)
    table = as_frame(data)
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"data must be a table or a SparseTensor; got {type(data).__name__}.")

    def column_of(name: Any) -> Any:
        if name is None:
            return table.index
        check_columns(table.columns, [name], "the table")
        return table[name]

    parts = held_out(way_of(by, mode, times, column_of), len(table), test_size, random_state)
    train, test = (table.iloc[rows] for rows in parts)
    return train, test


# Tables of Dask: their lines as a frame of codes, made on the workers, whose labels do not depend on files or workers.
# Every partition codes its lines by labels of its own. These are merged two by two, and sorted; then the codes of every
# partition are told the places of its labels among all. Nothing but labels and codes comes to the client.

Coded: TypeAlias = "tuple[tuple[pd.Index, ...], np.ndarray, Any]"


def frame_of_dask(frame: Any, modes: Sequence[Any] | None, value: Any, named: bool, cluster: Cluster) -> pd.DataFrame:
    """The lines of a table of Dask, modes as categories: all sorted labels of the table, text by the numbers in it."""
    modes = list(_modes_of(list(frame.columns), modes, value, named))
    columns = [*modes, value] if named else modes
    check_columns(frame.columns, columns, "X")
    delayed = importlib.import_module("dask").delayed
    coded = [delayed(_coded, pure=True)(part, modes, value, named) for part in frame[columns].to_delayed()]
    level = [part[0] for part in coded]
    while len(level) > 1:
        pairs = [level[i : i + 2] for i in range(0, len(level), 2)]
        level = [delayed(_merged, pure=True)(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    told = [delayed(_recoded, pure=True)(part, level[0]) for part in coded]
    labels, *parts = cluster.results([level[0], *told], "read")
    cluster.client.run(_give_back)
    if not any(len(codes) for codes, _ in parts):
        fail_value("X must have at least one line; got none.")
    rows = (np.concatenate([codes[:, k] for codes, _ in parts]) for k in range(len(modes)))
    found: dict[Any, Any] = dict(zip(modes, map(pd.Categorical.from_codes, rows, labels), strict=True))
    if named:
        found[value] = pd.concat([values for _, values in parts], ignore_index=True)
    return pd.DataFrame(found, copy=False)


def _give_back() -> None:
    """Give the system the memory that was needed to read files."""
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()


def _coded(part: pd.DataFrame, modes: list[Any], value: Any, named: bool) -> Coded:
    """The labels of each mode in a partition, codes (n, K), and values, if a column has them."""
    labels, codes = list[pd.Index](), np.empty((len(part), len(modes)), dtype=np.int32)
    for k, name in enumerate(modes):
        column = part[name]
        if isinstance(column.dtype, pd.CategoricalDtype):  # categories count as their values
            column = column.astype(column.cat.categories.dtype)
        if isinstance(column.dtype, pd.StringDtype):  # text is objects for labels, as in a frame that is read here
            column = column.astype(object)
        found, codes[:, k] = Labels.from_column(column, name)
        labels.append(_bare(found))
    return tuple(labels), codes, part[value].reset_index(drop=True) if named else None


def _bare(labels: Labels) -> pd.Index:
    """The labels without the table by which pandas finds them, which is several times as large and stays with them."""
    made: Any = labels.index.__reduce__()
    index: pd.Index = made[0](*made[1])
    return index


def _merged(one: tuple[pd.Index, ...], other: tuple[pd.Index, ...]) -> tuple[pd.Index, ...]:
    """All labels of both, sorted."""
    merged = []
    for a, b in zip(one, other, strict=True):
        if len(a) and len(b):
            both = pd.concat([pd.Series(a), pd.Series(b)], ignore_index=True)
            a = _bare(Labels.from_column(both, name=a.name)[0])
        merged.append(a if len(a) else b)
    return tuple(merged)


def _recoded(part: Coded, labels: tuple[pd.Index, ...]) -> tuple[np.ndarray, Any]:
    """The codes of a partition among all labels, and its values."""
    known, old, values = part
    codes = np.empty_like(old)
    for k, own in enumerate(known):
        codes[:, k] = Labels(labels[k]).rows(own)[old[:, k]] if len(own) else 0
    return codes, values


# Matrices and views.


def as_matrix(X: Any) -> Any:
    """Return a matrix with names as a DataFrame, one with masked cells with NaN there, anything else as it is."""
    if isinstance(X, np.ma.MaskedArray):
        kind = X.dtype.kind
        if np.ma.is_masked(X) and kind not in "fc":  # whole numbers have no NaN
            X = X.astype(np.float64 if kind in "iub" else object)
        return X.filled(np.nan) if np.ma.is_masked(X) else np.ma.getdata(X)
    what = ""
    if is_of(X, "xarray") and hasattr(X, "data_vars"):
        what, instead = "a Dataset of xarray", "one of its arrays, or X.to_dataframe()"
    elif _are_records(X) or names_columns(X):
        what, instead = "columns by name", "pandas.DataFrame(X)"
    elif is_of(X, "sparse"):
        what = "an array of pydata/sparse"
        instead = "SparseTensor.from_sparse(X) if what is stored is observed, X.todense() if all is"
    if what:
        raise TypeError(f"X must be a matrix; got {what}; pass {instead}.")
    if is_of(X, "anndata") and hasattr(X, "obs_names") and hasattr(X, "var_names"):
        # Cells that a sparse one does not store are zeros.
        values = X.X.toarray() if sparse.issparse(X.X) else np.asarray(X.X, dtype=np.float64)
        return pd.DataFrame(values, index=pd.Index(X.obs_names), columns=pd.Index(X.var_names))
    if is_array_of_cells(X):
        if len(X.dims) != 2:
            fail_value(f"a matrix must have 2 dimensions; got {len(X.dims)}.")
        index, columns = (X.coords[name].to_index() if name in X.coords else None for name in X.dims)
        return pd.DataFrame(np.asarray(X.values, dtype=np.float64), index=index, columns=columns)
    X = _of_pandas(X)
    if isinstance(X, pd.DataFrame) and any(isinstance(dtype, pd.SparseDtype) for dtype in X.dtypes):
        return X.apply(lambda column: column.sparse.to_dense() if hasattr(column, "sparse") else column)
    return X


def as_numbers(X: Any, name: str = "X") -> Any:
    """`as_matrix`, refused where a column of a table holds what is no number; the error names it."""
    X = as_matrix(X)
    for at, label in enumerate(X.columns) if isinstance(X, pd.DataFrame) else ():
        column = X.iloc[:, at]
        if pd.api.types.is_numeric_dtype(column.dtype):
            continue
        odd = column.dropna() if getattr(column.dtype, "kind", "O") not in "mM" else column
        found = next((item for item in odd if not _is_number(item)), None)
        if found is not None:
            cure = "make numbers of it: of text pandas.get_dummies, of times how far they are from the first"
            fail_value(f"column {label!r} of {name} must hold numbers; got {found!r}; leave it out, or {cure}.")
    return X


def as_targets(y: Any) -> Any:
    """Targets without masked ones; those of pandas' nullable or Arrow types as the numpy array that they would be."""
    plain = getattr(getattr(check_unmasked(y, "y"), "dtype", None), "numpy_dtype", None)
    return y if plain is None or plain.kind not in "iufb" or pd.isna(y).any() else y.to_numpy(dtype=plain)


def _is_number(item: Any) -> bool:
    """Whether it is a number, or text of one."""
    try:
        float(item)
    except (TypeError, ValueError):
        return False
    return True


def as_views(X: Any) -> Any:
    """Return the modalities of a MuData as frames by name, with a row for every observation; anything else as it is."""
    if not (is_of(X, "mudata") and hasattr(X, "mod")):
        return X
    return {name: as_matrix(view).reindex(pd.Index(X.obs_names)) for name, view in X.mod.items()}
