"""SparseTensor: the observed entries of a tensor, and what can be done with them before a fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from tensorcep.core.checks import (
    check_coords,
    check_mode_count,
    check_range,
    check_shape,
    check_sizes,
    check_values,
    fail_value,
    optional_module,
    printable,
)
from tensorcep.entries import interop as _interop
from tensorcep.entries.choosing import Choosing
from tensorcep.entries.coo import (
    TensorInfo,
    check_counting,
    check_sampled,
    describe,
    merge_duplicates,
    merge_marks,
)
from tensorcep.entries.frames import frame_entries
from tensorcep.entries.labels import Labels, check_labels


@dataclass(frozen=True, eq=False, repr=False)
class SparseTensor(Choosing):
    """Observed entries of a tensor of order 2 (a matrix) or more. An absent cell is unobserved, never zero.

    Parameters
    ----------
    coords : array-like of shape (N, K)
        Row indices of each entry, counted from 0; kept as C-contiguous int64 (not copied when they already are).
    values : array-like of shape (N,)
        Finite numbers; kept as float64.
    shape : sequence of K ints, optional
        Default: the length of the labels, or else one more than the largest index of each mode.
    labels : sequence of K Labels, arrays or None, optional
        The names of the rows of each mode.
    duplicates : {"error", "mean", "sum", "last"}, default="error"
        What to do with a cell that occurs more than once. A merged entry stands where the cell first stood.
    zero_rate : float in (0, 1] or None, default=1
        For labels 0/1 whose zeros were sampled: the share of the population's zeros that the entries hold. None where
        it is not one number. `sample_zeros` sets it, and choices of entries, combinations and .npz files keep it;
        ``CPClassifier(zero_rate="auto")`` reads it.
    sampled : array-like of shape (N,) of bool, optional
        Which entries are zeros that nobody observed but `sample_zeros` drew; `recommend` does not count their cells as
        seen. Default: none. Choices of entries, combinations and .npz files keep it.

    Raises
    ------
    ValueError, TypeError
        On indices that are negative, not whole, or beyond the shape; on values that are not finite real numbers; on
        arrays or labels that do not fit together; on repeated cells. The container may be empty; a fit refuses that.

    Examples
    --------
    >>> from tensorcep import SparseTensor
    >>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
    >>> tensor.shape, tensor.nnz, tensor.density
    ((3, 2), 4, 0.6666666666666666)
    """

    coords: NDArray[np.int64]
    values: NDArray[np.float64]
    shape: tuple[int, ...] = None  # type: ignore[assignment]
    labels: tuple[Labels | None, ...] = None  # type: ignore[assignment]
    duplicates: InitVar[str] = field(default="error", kw_only=True)
    zero_rate: float | None = field(default=1.0, kw_only=True)
    sampled: NDArray[np.bool_] | None = field(default=None, kw_only=True)

    def __post_init__(self, duplicates: str) -> None:
        coords = check_coords(self.coords)
        values = check_values(self.values, coords.shape[0])
        labels = check_labels(self.labels, coords.shape[1])
        if self.shape is None:
            sizes = [int(coords[:, k].max()) + 1 if coords.shape[0] else 1 for k in range(coords.shape[1])]
            shape = tuple(int(n) if found is None else len(found) for n, found in zip(sizes, labels, strict=True))
            check_sizes(shape, coords.shape[0])
        else:
            shape = check_shape(self.shape, coords.shape[1])
        for k, found in enumerate(labels):
            if found is not None and len(found) != shape[k]:
                fail_value(f"labels of mode {k} must be as many as its {shape[k]} rows; got {len(found)}.")
        shape = check_shape(shape)
        coords = check_coords(coords, shape)
        marks = check_sampled(self.sampled, values)
        sampled = merge_marks(marks, coords, shape)
        coords, values = merge_duplicates(coords, values, shape, duplicates)
        if self.zero_rate is not None:
            check_range("zero_rate", self.zero_rate, 0.0, 1.0, include_low=False)
        self._set(coords, values, shape, labels, self.zero_rate, sampled)

    def _set(self, *parts: Any) -> None:
        for name, value in zip(("coords", "values", "shape", "labels", "zero_rate", "sampled"), parts, strict=True):
            object.__setattr__(self, name, value)

    @classmethod
    def from_checked(
        cls, coords: NDArray[np.int64], values: NDArray[np.float64], shape: Any, duplicates: str, labels: Any = None
    ) -> SparseTensor:
        """Return a tensor from arrays that are checked already, looking only for repeated cells."""
        new = object.__new__(cls)
        merged = merge_duplicates(coords, values, shape, duplicates)
        new._set(*merged, shape, labels or (None,) * len(shape), 1.0, None)
        return new

    @property
    def order(self) -> int:
        """The number of modes K."""
        return len(self.shape)

    @property
    def density(self) -> float:
        """Observed entries over cells."""
        return self.nnz / math.prod(self.shape)

    def __len__(self) -> int:
        return self.nnz

    def __repr__(self) -> str:
        named = [str(k if found.name is None else found.name) for k, found in enumerate(self.labels) if found]
        labels = printable(f", labels of {', '.join(named)}") if named else ""
        size = " x ".join(map(str, self.shape))
        return f"<SparseTensor {size}, {self.nnz:,} entries, density {100 * self.density:.3g} %{labels}>"

    # From and to other containers

    @classmethod
    def from_coo(
        cls,
        coords: ArrayLike,
        values: ArrayLike,
        shape: Sequence[int] | None = None,
        *,
        labels: Any = None,
        duplicates: str = "error",
    ) -> SparseTensor:
        """Return a tensor from indices (N, K) and values (N,); the same as calling the class.

        Examples
        --------
        >>> from tensorcep import SparseTensor
        >>> SparseTensor.from_coo([[0, 0], [1, 2]], [0.5, 1.5]).shape
        (2, 3)
        """
        return cls(coords, values, shape, labels, duplicates=duplicates)  # type: ignore[arg-type]

    @classmethod
    def from_pandas(
        cls,
        df: pd.DataFrame,
        modes: Sequence[Any],
        value: Any = "y",
        *,
        labels: Sequence[Labels | None] | None = None,
        duplicates: str = "error",
    ) -> SparseTensor:
        """Return a tensor from a long DataFrame: one line per entry, one column per mode, one for the value.

        Parameters
        ----------
        modes : sequence of K column names
            Columns of any dtype; their sorted distinct values become the labels (see `Labels.from_column`).
        value : column name or None, default="y"
            None where a line is an event: the value of a cell is the number of its lines.
        labels : sequence of K Labels or None, optional
            Labels of an earlier tensor, to keep its rows: labels that are new here are appended after them.

        Examples
        --------
        >>> import pandas as pd
        >>> from tensorcep import SparseTensor
        >>> table = pd.DataFrame({"user": ["u1", "u2"], "item": ["i1", "i1"], "stars": [4.0, 5.0]})
        >>> SparseTensor.from_pandas(table, modes=["user", "item"], value="stars").shape
        (2, 1)
        """
        policy = duplicates if value is not None else check_counting(duplicates)
        coords, values, found = frame_entries(df, modes, value, labels)
        check_sizes([len(names) for names in found], len(values))
        return cls.from_checked(coords, values, check_shape([len(names) for names in found]), policy, found)

    def to_pandas(self, modes: Sequence[Any] | None = None, value: Any = "y") -> pd.DataFrame:
        """Return a long DataFrame; modes with labels hold these, the others row indices.

        Column names default to the names of the labels, or mode_0, mode_1, ...

        Examples
        --------
        >>> from tensorcep import SparseTensor
        >>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
        >>> tensor.to_pandas(["user", "item"], "stars").columns.tolist()
        ['user', 'item', 'stars']
        """
        names = [None if found is None else found.name for found in self.labels] if modes is None else list(modes)
        check_mode_count(names, self.order)
        columns: dict[Any, Any] = {}
        for k, name in enumerate(_interop.column_names(names, value)):
            found = self.labels[k]
            columns[name] = self.coords[:, k] if found is None else found.index.take(self.coords[:, k])
        columns[value] = self.values
        return pd.DataFrame(columns, copy=True)

    @classmethod
    def from_scipy(cls, matrix: Any, *, duplicates: str = "sum") -> SparseTensor:
        """Return the stored elements of a scipy.sparse matrix, or of a coo_array of any order from two up.

        What is stored is observed, zeros too, of which a warning tells; zeros in the blocks of a bsr and on the
        diagonals of a dia fill these up, and are none. Elements of one cell are summed, as scipy does. Factor models
        take such matrices by the same rule.

        Examples
        --------
        >>> import scipy.sparse as sp
        >>> from tensorcep import SparseTensor
        >>> SparseTensor.from_scipy(sp.coo_array(([1.0, 2.0], ([0, 1], [1, 0])))).nnz
        2
        """
        return cls(*_interop.scipy_parts(matrix, duplicates))

    def to_scipy(self) -> Any:
        """Return a scipy.sparse coo_array (order 2 only); entries of value zero stay stored explicitly.

        Examples
        --------
        >>> from tensorcep import SparseTensor
        >>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
        >>> tensor.to_scipy().shape
        (3, 2)
        """
        check_mode_count(self.shape, 2, "to_scipy takes")
        from scipy.sparse import coo_array

        return coo_array((self.values.copy(), (self.coords[:, 0].copy(), self.coords[:, 1].copy())), shape=self.shape)

    @classmethod
    def from_dense(cls, array: ArrayLike, mask: ArrayLike | None = None, *, labels: Any = None) -> SparseTensor:
        """Return the observed cells of a dense array: where `mask` is true, or without a mask, where it is not NaN.

        Examples
        --------
        >>> import numpy as np
        >>> from tensorcep import SparseTensor
        >>> SparseTensor.from_dense([[1.0, np.nan], [2.0, 3.0]]).nnz
        3
        """
        return cls(*_interop.dense_parts(array, mask), labels)

    def to_dense(self, fill: float = np.nan) -> NDArray[np.float64]:
        """Return a dense array with `fill` in the unobserved cells.

        Examples
        --------
        >>> from tensorcep import SparseTensor
        >>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
        >>> tensor.to_dense(fill=0.0).tolist()
        [[1.0, 2.0], [3.0, 0.0], [0.0, 4.0]]
        """
        return _interop.to_dense(self.coords, self.values, self.shape, fill)

    @classmethod
    def from_tensorly(
        cls, tensor: Any, mask: Any = None, *, coords: ArrayLike | None = None, labels: Any = None
    ) -> SparseTensor:
        """Return the observed cells of a dense TensorLy tensor, or a CPTensor at `coords` (default: every cell).

        `mask` follows TensorLy: 1 where observed. Tensors of TensorLy's numpy backend, or convertible to numpy.

        Examples
        --------
        >>> import numpy as np
        >>> from tensorcep import SparseTensor
        >>> SparseTensor.from_tensorly(np.ones((2, 3)), mask=np.eye(2, 3)).nnz
        2
        """
        return cls(*_interop.tensorly_parts(tensor, mask, coords), labels)

    def to_tensorly(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return (tensor, mask) as TensorLy's masked decompositions take them: zeros and mask 0 where unobserved.

        Examples
        --------
        >>> from tensorcep import SparseTensor
        >>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
        >>> values, mask = tensor.to_tensorly()
        >>> int(mask.sum())
        4
        """
        return self.to_dense(0.0), _interop.to_dense(self.coords, np.ones(self.nnz), self.shape, 0.0)

    @classmethod
    def from_sparse(cls, array: Any, *, duplicates: str = "error") -> SparseTensor:
        """Return the stored elements of a pydata/sparse array.

        Examples
        --------
        >>> import sparse
        >>> from tensorcep import SparseTensor
        >>> SparseTensor.from_sparse(sparse.COO([[0, 1], [1, 0], [0, 0]], [1.0, 2.0], (2, 2, 1))).shape
        (2, 2, 1)
        """
        return cls(*_interop.sparse_parts(array), duplicates=duplicates)

    def to_sparse(self, fill: float = np.nan) -> Any:
        """Return a pydata/sparse COO array with fill value `fill`; needs the optional library sparse.

        Examples
        --------
        >>> from tensorcep import SparseTensor
        >>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
        >>> tensor.to_sparse(fill=0.0).shape
        (3, 2)
        """
        sparse = optional_module("sparse", "to_sparse")
        return sparse.COO(self.coords.T, self.values, shape=self.shape, fill_value=fill, has_duplicates=False)

    def info(self) -> TensorInfo:
        """Return density, entries per row, empty rows and the range of the values.

        Examples
        --------
        >>> from tensorcep import SparseTensor
        >>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
        >>> tensor.info().density
        0.6666666666666666
        """
        names = [None if found is None else found.name for found in self.labels]
        return describe(self.coords, self.values, self.shape, names)
