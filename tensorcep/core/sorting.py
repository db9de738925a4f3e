"""Places of whole numbers in order, by counting: of many of them several times as fast as by comparisons."""

from __future__ import annotations

import numpy as np
from scipy import sparse

# Of fewer numbers than this comparisons are faster.
FEW = 4096


def sorted_places(key: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The places of the keys in stable order, and where each key begins among them.

    Parameters
    ----------
    key : (n,) of whole numbers
        From 0 to size - 1.
    size : int

    Returns
    -------
    place : (n,) int32 or int64
    start : (size + 1,) int32 or int64
        Key i has the places place[start[i]:start[i + 1]].
    """
    n = len(key)
    if n < FEW:
        start = np.zeros(size + 1, dtype=np.int64)
        np.cumsum(np.bincount(key, minlength=size), out=start[1:])
        return np.argsort(key, kind="stable"), start
    index = np.int32 if max(n, size) < np.iinfo(np.int32).max else np.int64
    # a one in column `key` of every line: listed by columns, it is sorted
    ones = sparse.csr_array(
        (np.ones(n, np.int8), key.astype(index, copy=False), np.arange(n + 1, dtype=index)), (n, size)
    )
    by_key = ones.tocsc()
    return by_key.indices, by_key.indptr


def lexical_places(columns: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """The places of the lines of columns (n, K), whole numbers from 0, in lexical order, stable.

    They are int32 where that holds them, however few they are: kernels compile for each type.
    """
    place, _ = sorted_places(columns[:, -1], sizes[-1])
    for k in range(len(sizes) - 2, -1, -1):
        place = place[sorted_places(columns[place, k], sizes[k])[0]]
    return place.astype(np.int32 if len(place) < np.iinfo(np.int32).max else np.int64, copy=False)
