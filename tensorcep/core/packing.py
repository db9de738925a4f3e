"""Rows of all modes in one array, and symmetric matrices packed by their lower triangles.

Row i of mode k is packed row ``offsets[k] + i``. A precision matrix is packed by its lower triangle, row by row
(P = R*(R+1)//2 numbers).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache

import numpy as np

from tensorcep.core.checks import check_shape


def offsets(shape: Sequence[int]) -> np.ndarray:
    """First packed row of each mode, and the total: (K + 1,) int64."""
    return np.array([*itertools.accumulate(shape, initial=0)], dtype=np.int64)


@cache
def _lower_triangle(R: int) -> tuple[np.ndarray, np.ndarray]:
    return np.tril_indices(R)


def pack(matrices: np.ndarray) -> np.ndarray:
    """Symmetric (..., R, R) -> packed lower triangles (..., P)."""
    i, j = _lower_triangle(matrices.shape[-1])
    return np.ascontiguousarray(matrices[..., i, j])


def unpack(packed: np.ndarray, rank: int) -> np.ndarray:
    """Packed lower triangles (..., P) -> symmetric (..., R, R)."""
    i, j = _lower_triangle(rank)
    full = np.empty((*packed.shape[:-1], rank, rank), dtype=packed.dtype)
    full[..., i, j] = packed
    full[..., j, i] = packed
    return full


@cache
def diagonal(R: int) -> np.ndarray:
    """Where the diagonal of a packed matrix lies."""
    places = np.arange(R) * (np.arange(R) + 3) // 2
    places.flags.writeable = False
    return places


def row_dims(shape: Sequence[int], rank: int, mode: int | None = None) -> dict[str, int]:
    """Sizes of arrays of all rows: n rows, K modes, R columns, P packed numbers, m parameters of the likelihood."""
    shape = check_shape(shape)
    sizes = {"n": sum(shape), "K": len(shape), "R": rank, "P": rank * (rank + 1) // 2}
    return {**sizes, "m": 1 if mode is None else shape[mode]}


def first_row(shape: Sequence[int], mode: int | None) -> int:
    """The first packed row of a mode; 0 for none."""
    return 0 if mode is None else int(offsets(shape)[mode])
