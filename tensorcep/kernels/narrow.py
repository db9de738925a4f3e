"""Products of a tall matrix with a narrow one, a tile of the result at a time in registers.

Libraries pack operands so that large products run at full speed; here that takes as long as the product itself.
"""

from __future__ import annotations

import numpy as np

from tensorcep.core.compile import block_kernel
from tensorcep.kernels.rank_update import COLUMNS, ROWS, add_row, add_tile, padded, read_ahead

# Lines of both matrices whose products are summed at a time: they fit the second-level cache.
CHUNK = 64
# Numbers of a line of the cache.
LINE = 8


@block_kernel
def _add_times(x, y, out):
    """out += x y for x (n, F), y (F, S) and out (n, S); S is `padded`."""
    (F, S), n = y.shape, len(x)
    whole = n // ROWS * ROWS
    for i in range(0, whole, ROWS):
        for p in range(0, ROWS * F, LINE):
            read_ahead(x, (i + ROWS) * F + p)
        for c in range(0, S, COLUMNS):
            add_tile(F, x, i * F, 1, F, y, c, S, out, i * S + c, S)
    for i in range(whole, n):
        for f in range(F):
            add_row(out, i * S, y, f * S, x[i, f], S)


@block_kernel
def _add_transposed(x, y, out):
    """out += x' y for x (n, F), y (n, S) and out (F, S); S is `padded`."""
    n, F, S = len(x), x.shape[1], y.shape[1]
    whole = F // ROWS * ROWS
    for i in range(0, n, CHUNK):
        size = min(CHUNK, n - i)
        for p in range(0, size * F, LINE):
            read_ahead(x, (i + size) * F + p)
        for f in range(0, whole, ROWS):
            for c in range(0, S, COLUMNS):
                add_tile(size, x, i * F + f, F, 1, y, i * S + c, S, out, f * S + c, S)
        for f in range(whole, F):
            for q in range(i, i + size):
                add_row(out, f * S, y, q * S, x[q, f], S)


def _in_vectors(narrow: np.ndarray) -> np.ndarray:
    """The matrix with zeros up to whole vectors of columns."""
    n, D = narrow.shape
    if padded(D) == D:
        return np.ascontiguousarray(narrow, dtype=np.float64)
    whole = np.zeros((n, padded(D)))
    whole[:, :D] = narrow
    return whole


def times_narrow(x: np.ndarray, narrow: np.ndarray) -> np.ndarray:
    """The product of a C-contiguous x (n, F) with (F, D): (n, D)."""
    y = _in_vectors(narrow)
    out = np.zeros((len(x), y.shape[1]))
    _add_times(x, y, out)
    return out[:, : narrow.shape[1]]


def transposed_times_narrow(x: np.ndarray, narrow: np.ndarray) -> np.ndarray:
    """The product of the transpose of a C-contiguous x (n, F) with (n, D): (F, D)."""
    y = _in_vectors(narrow)
    out = np.zeros((x.shape[1], y.shape[1]))
    _add_transposed(x, y, out)
    return out[:, : narrow.shape[1]]
