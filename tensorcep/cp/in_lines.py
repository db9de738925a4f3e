"""Arrays of entries in lanes, in the memory of the lines that were sorted (`tensorcep.core.sorting.lexical_lines`)."""

from __future__ import annotations

import numpy as np

from tensorcep.kernels.slots import LANES


def rows_and_places(room: np.ndarray, n: int, n_blocks: int, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Arrays for the rows of the entries in lanes, and for their places, in the memory of as many lines of 32 bits."""
    size = n_blocks * order * LANES
    if room.dtype != np.int32:
        return np.empty((n_blocks, order, LANES), dtype=np.int32), np.empty(n, room.dtype)
    return room.ravel()[:size].reshape(n_blocks, order, LANES), room.ravel()[size : size + n]


def values_and_weights(room: np.ndarray, n_blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """Arrays for values and weights in lanes, in the memory of lines that have as many bytes."""
    if room.dtype != np.int32 or room.shape[1] != 4:
        return np.empty((n_blocks, LANES)), np.empty((n_blocks, LANES))
    values, weight = room.view(np.float64).ravel().reshape(2, n_blocks, LANES)
    return values, weight
