"""What is known of the rows of a mode: a user's features, and their design matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import sparse

from tensorcep.core.checks import fail_value, warn_user
from tensorcep.core.persist.records import Sized
from tensorcep.entries.coo import stored_cells
from tensorcep.entries.labels import Labels
from tensorcep.kernels.rank_update import times_narrow, transposed_times_narrow

# The features of a mode's rows as a matrix: centred without being filled in, with the products that priors need.

NARROW = 64  # columns up to which products are those of `kernels.rank_update`


class Design(NamedTuple):
    """Features of the rows of a mode; a row without them has zeros, as the average row with features does."""

    matrix: Any  # (n, F) or csr_array: zero in rows without features
    centre: Annotated[np.ndarray, Sized("_")]  # (F,): is subtracted in rows with features; 0 for a dense matrix
    described: Annotated[np.ndarray, Sized("_", "b")]  # (n,) bool: rows with features
    names: tuple[str, ...]  # of the features
    size: float  # mean square length of a centred row with features

    @property
    def n_features(self) -> int:
        """F."""
        return len(self.centre)

    def times(self, coef: np.ndarray) -> np.ndarray:
        """Centred features times (F, R): (n, R)."""
        if sparse.issparse(self.matrix):
            return np.asarray(self.matrix @ coef) - self.described[:, None] * (self.centre @ coef)
        return times_narrow(self.matrix, coef) if coef.shape[1] <= NARROW else np.asarray(self.matrix @ coef)

    def transposed(self, values: np.ndarray) -> np.ndarray:
        """The transpose of the centred features times (n, R): (F, R)."""
        if sparse.issparse(self.matrix):
            return np.asarray(self.matrix.T @ values) - np.outer(self.centre, self.described @ values)
        narrow = values.shape[1] <= NARROW
        return transposed_times_narrow(self.matrix, values) if narrow else np.asarray(self.matrix.T @ values)

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

    def at(self, rows: np.ndarray) -> Design:
        """The features of rows (m,), of which those beyond the design have none."""
        inside = rows < len(self.described)
        take = np.where(inside, rows, 0)
        matrix: Any = self.matrix[take]
        if not inside.all():
            matrix = matrix.multiply(inside[:, None]).tocsr() if sparse.issparse(matrix) else matrix * inside[:, None]
        return self._replace(matrix=matrix, described=self.described[take] & inside)


def design(matrix: Any, described: np.ndarray, names: tuple[str, ...]) -> Design:
    """The design of features (n, F), as they are to be used but for their mean; zero where not `described` (n,)."""
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


# Features of the rows of a mode as a user gives them, and their design for a fit.

MOST_DENSE = 20_000_000  # numbers of a matrix of features from which it is stored as a sparse one if it has categories


@dataclass(frozen=True, repr=False, eq=False)
class Features:
    """What is known of the rows of a mode beside their entries: ``CPRegressor(prior={"item": Features(items)})``.

    The prior mean of a row of the factor matrix, main effects included, is a linear map of its features, which is
    learned with its strength (Simm et al. 2017). A row with few entries is then like other rows with such features, and
    one without entries is predicted from its features alone. A row without features has the prior of an average row.

    In a stream every batch takes what its rows say into account, at the cube of the number of features beside the cost
    of its rows; rows that later batches bring may be among those that the features name from the first one on.

    Parameters
    ----------
    X : DataFrame, array-like of shape (n, F), or sparse matrix
        A DataFrame has a line for each row of the mode, found by its index: the label, or the number of the row where
        the mode has no labels. Numbers are standardised; booleans are 0 and 1; text and categories become a column of
        0 and 1 for each level. Of an array line i belongs to row i of the mode (to the i-th label); columns that hold
        other numbers than 0 and 1 are standardised. A sparse matrix is taken as it is but for the means of its columns.
        Lines of rows that no entry touches are welcome: these rows can be predicted.

    Examples
    --------
    >>> import pandas as pd
    >>> from tensorcep import Features
    >>> Features(pd.DataFrame({"year": [1994.0, 1995.0], "genre": ["drama", "comedy"]}, index=["a", "b"]))
    Features(2 x 2)
    """

    X: Any

    def __repr__(self) -> str:
        return f"Features({' x '.join(map(str, np.shape(self.X)))})"


class Mode(NamedTuple):
    """A mode as a fit knows it, with rows that only features name at its end."""

    name: Any  # what errors call it
    labels: Labels | None
    size: int

    def name_of(self, row: int) -> Any:
        """The label, or the number, of a row."""
        return row if self.labels is None else self.labels.index[row : row + 1].tolist()[0]


def designed(features: Features, mode: Mode) -> tuple[Design, Mode]:
    """The design of a mode's features, and the mode with the rows that they name beside those with entries."""
    X, what = features.X, f"Features of mode {mode.name!r}"
    if isinstance(X, pd.DataFrame):
        cure = "set_index() to them, or name the column of a file that holds them like the mode, or let it be the first"
        rows, mode = rows_of_index(X.index, mode, what, f"; {cure}")
        return _placed(*_columns_of_frame(X, what), rows, mode.size), mode
    matrix, names = _columns_of_array(X, what)
    rows, mode = rows_of_lines(matrix.shape[0], mode, what, "give a DataFrame by label")
    return _placed(matrix, names, rows, mode.size), mode


def rows_of_lines(n: int, mode: Mode, what: str, cure: str) -> tuple[np.ndarray, Mode]:
    """The rows of n lines that are those of the mode in its order, and the mode with those that are new."""
    if n < mode.size or (mode.labels is not None and n != mode.size):
        least = "at least " if mode.labels is None else ""
        fail_value(f"{what} must have {least}{mode.size} lines, one per row; got {n}; {cure}.")
    return np.arange(n), mode._replace(size=n)


def rows_of_index(index: pd.Index, mode: Mode, what: str, cure: str = "") -> tuple[np.ndarray, Mode]:
    """The row of each line, and the mode with those that are new; `cure` says how the index gets its labels."""
    index = index.to_flat_index() if index.nlevels > 1 else index  # labels of several levels are tuples
    if index.hasnans or not index.is_unique:
        odd = "a missing label" if index.hasnans else f"{index[index.duplicated()].tolist()[0]!r} more than once"
        fail_value(f"{what} must have an index of distinct labels; got {odd}.")
    if mode.labels is None:
        if not pd.api.types.is_integer_dtype(index) or (len(index) and int(index.min()) < 0):
            fail_value(f"{what} must be indexed by row numbers from 0, as the entries are; got {index[:1].tolist()}.")
        rows = index.to_numpy(dtype=np.int64)
        return rows, mode._replace(size=max(mode.size, int(rows.max(initial=-1)) + 1))
    if (mode.labels.rows(index, unknown="ignore") < 0).all():
        such, got = mode.labels.index[:1].tolist()[0], f"got none of them, but labels such as {index[:1].tolist()}"
        fail_value(f"{what} must be indexed by its labels, such as {such!r}; {got}{cure}.")
    labels = mode.labels.extended(index)
    return labels.rows(index), mode._replace(labels=labels, size=len(labels))


def warn_of_rows_without(mode: Mode, described: np.ndarray, seen: np.ndarray) -> None:
    """Say how many rows with entries, (n,) bool, have no features, and beside which others have some."""
    lacking, others = seen & ~described, described & ~seen
    if lacking.any():
        text = f"{lacking.sum()} of {seen.sum()} rows with entries of mode {mode.name!r} have no features, such as "
        text += f"{mode.name_of(int(np.argmax(lacking)))!r}, and the prior of an average row"
        if others.any():
            name = mode.name_of(int(np.argmax(others)))
            text += f"; {others.sum()} rows with features have no entries, such as {name!r}"
        warn_user(f"{text}; where they should have some, labels must be spelled alike.", UserWarning)


def _placed(matrix: Any, names: list[str], rows: np.ndarray, n: int) -> Design:
    """The design of n rows, of which these have features."""
    described = np.isin(np.arange(n), rows)
    if sparse.issparse(matrix):
        coo = matrix.tocoo()
        whole: Any = sparse.csr_array((coo.data, (rows[coo.row], coo.col)), shape=(n, matrix.shape[1]))
    else:
        whole = np.zeros((n, matrix.shape[1]))
        whole[rows] = matrix
    return design(whole, described, tuple(names))


def _columns_of_array(X: Any, what: str) -> tuple[Any, list[str]]:
    """The columns of an array or a sparse matrix, dense or sparse, and their names."""
    if np.ma.is_masked(X):
        fail_value(f"{what} must have no masked numbers; got some; fill in what is missing.")
    is_sparse = sparse.issparse(X)
    matrix: Any = sparse.csr_array(stored_cells(X, tell=False)) if is_sparse else np.asarray(X)
    if matrix.dtype.kind not in "iufb" or matrix.ndim != 2 or 0 in matrix.shape:
        is_array = hasattr(X, "shape") and hasattr(X, "dtype")
        got = f"an array of shape {X.shape} and dtype {X.dtype}" if is_array else type(X).__name__
        fail_value(f"{what} must be a DataFrame or a matrix of numbers with a line per row; got {got}.")
    names, matrix = [f"x{j}" for j in range(matrix.shape[1])], matrix.astype(np.float64)
    if not np.isfinite(matrix.data if is_sparse else matrix).all():
        fail_value(f"{what} must be finite; got nan or infinity; fill in what is missing.")
    return matrix if is_sparse else np.stack([_scaled(column) for column in matrix.T], axis=1), names


def _scaled(column: np.ndarray) -> np.ndarray:
    """Numbers in standard deviations; 0 and 1 as they are."""
    sd = float(column.std())
    return column if sd == 0.0 or np.isin(column, (0.0, 1.0)).all() else column / sd


def _columns_of_frame(X: pd.DataFrame, what: str) -> tuple[Any, list[str]]:
    """Numbers, booleans, and the levels of everything else, as columns."""
    if 0 in X.shape:
        fail_value(f"{what} must have lines and columns; got a DataFrame of shape {X.shape}.")
    missing = X.isna()
    if missing.to_numpy().any():
        at = int(np.argmax(missing.to_numpy().any(axis=0)))
        column = missing.iloc[:, at].to_numpy()
        first, n = X.index[int(np.argmax(column))], int(column.sum())
        fail_value(f"column {X.columns[at]!r} of {what} has {n} missing values, the first at {first!r}; fill them in.")
    blocks, names = [], []
    for name in X.columns:
        block, levels = _block(X[name], f"column {name!r} of {what}")
        blocks.append(block)
        names += [str(name)] if levels is None else [f"{name}={level}" for level in levels]
    if len(X) * len(names) > MOST_DENSE:
        return sparse.csr_array(sparse.hstack(blocks)), names
    return np.concatenate([b.toarray() if sparse.issparse(b) else b for b in blocks], axis=1), names


def _block(column: Any, what: str) -> tuple[Any, list[Any] | None]:
    """The columns that one of a DataFrame becomes, and the levels they stand for."""
    if not isinstance(column, pd.Series):
        fail_value(f"{what} must have a name of its own; got it more than once.")
    if pd.api.types.is_bool_dtype(column.dtype) or pd.api.types.is_numeric_dtype(column.dtype):
        values = column.to_numpy(dtype=np.float64)
        if not np.isfinite(values).all():
            fail_value(f"{what} must be finite; got infinity.")
        return _scaled(values)[:, None], None
    if not isinstance(column.dtype, pd.CategoricalDtype) and pd.api.types.infer_dtype(column) != "string":
        kind = pd.api.types.infer_dtype(column)
        fail_value(f"{what} must hold numbers, booleans, text or categories; got {kind}; convert it.")
    codes, levels = pd.factorize(column, sort=True)
    ones = np.ones(len(codes))
    return sparse.csr_array((ones, (np.arange(len(codes)), codes)), shape=(len(codes), len(levels))), list(levels)
