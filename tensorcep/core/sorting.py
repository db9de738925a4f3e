"""Whole numbers in order, by counting: of many of them several times as fast as by comparisons."""

from __future__ import annotations

import numpy as np

from tensorcep.kernels.listing import sort_lines


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
    start : (size + 1,) int64
        Key i has the places place[start[i]:start[i + 1]].
    """
    lines = numbered_lines(key[:, None])
    out, start = np.empty_like(lines), np.zeros(size + 2, dtype=np.int64)
    sort_lines(lines, 0, start, out)
    return np.ascontiguousarray(out[:, 1]), start[:-1]


def lexical_lines(columns: np.ndarray, sizes: tuple[int, ...], spare: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The lines of columns (n, K), whole numbers from 0, in lexical order, stable; the last column tells their places.

    They are int32 where that holds their number, (n, K + 1), the first of an array that has so many `spare` lines more;
    the second result is another array like that one, of no meaning any more, for whoever can use its memory.
    """
    n = len(columns)
    room = numbered_lines(columns, spare)
    other = np.empty_like(room)
    for k in range(len(sizes) - 1, -1, -1):
        sort_lines(room[:n], k, np.zeros(sizes[k] + 2, dtype=np.int64), other[:n])
        room, other = other, room
    return room, other


def numbered_lines(columns: np.ndarray, spare: int = 0) -> np.ndarray:
    """Columns (n, K) and the number of every line, then `spare` lines of no meaning."""
    n, K = columns.shape
    lines = np.empty((n + spare, K + 1), dtype=np.int32 if n < np.iinfo(np.int32).max else np.int64)
    lines[:n, :K], lines[:n, K] = columns, np.arange(n, dtype=lines.dtype)
    return lines
