"""MatrixMarket files, read by scipy."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.io import mmread

from tensorcep.core.checks import check_shape, fail_value, reason_of
from tensorcep.entries.batch import Batch, Position
from tensorcep.entries.io.layout import Reading
from tensorcep.entries.io.lines import check_seekable, open_binary
from tensorcep.entries.sparse_tensor import SparseTensor


def read_matrix(path: str, copy: str, how: Reading, duplicates: str) -> SparseTensor:
    """Return the elements that a MatrixMarket file stores, both halves of a symmetric one, and ones for a pattern.

    Parameters
    ----------
    path, copy : str
        What errors call the file, and what is opened.

    Raises
    ------
    ValueError
        If it is damaged, or its numbers are complex; on repeated cells.
    """
    with open_binary(copy, name=path, coding=how.coding) as (handle, *_):
        try:
            found = mmread(handle)
        except (ValueError, OverflowError, TypeError, MemoryError) as error:
            raise ValueError(
                f"'{path}' is not a MatrixMarket file or is damaged ({reason_of(error)}); write it again."
            ) from error
    if np.iscomplexobj(found):
        fail_value(f"'{path}' holds complex numbers, which no likelihood has; give real ones.")
    if sparse.issparse(found):
        coo = found.tocoo()
        coords, values, shape = np.stack([coo.row, coo.col], axis=1), coo.data, coo.shape
    else:
        coords, values, shape = np.argwhere(np.ones(found.shape, dtype=bool)), found.ravel(), found.shape
    if how.drop_missing:
        known = ~np.isnan(values)
        coords, values = coords[known], values[known]
    if not len(values):
        fail_value(f"'{path}' holds no entries; at least one is needed.")
    wanted = shape if how.shape is None else check_shape(how.shape, 2)
    return SparseTensor.from_coo(coords.astype(np.int64), values, wanted, duplicates=duplicates)


class MatrixRows:
    """The entries of a MatrixMarket file from a position on, which is read whole.

    Attributes
    ----------
    mode_names : tuple
        None for each mode.
    """

    mode_names, value_name = (None, None), None

    def __init__(self, path: str, how: Reading, start: Position) -> None:
        self._tensor = read_matrix(path, check_seekable(path, "mtx"), how, "error")
        self._position = start

    def take(self, count: int) -> Batch | None:
        """Return the next `count` entries or fewer, or None at the end."""
        file, line = self._position
        coords, values = self._tensor.coords[line : line + count], self._tensor.values[line : line + count]
        self._position = Position(file, line + len(values))
        return Batch(coords, (None, None), self.mode_names, values, position=self._position) if len(values) else None
