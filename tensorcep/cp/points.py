"""Latent values of many cells in many draws of the rows, a draw at a time."""

from __future__ import annotations

import numpy as np

from tensorcep.kernels.products import padded_width, sums_at_cells
from tensorcep.kernels.slots import lane_zeros


def latent_of_points(draws: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The latent value (S, n) at packed rows (n, K) in draws (S, n_rows, R) of all rows, float64 or float32."""
    used, places = _used_rows(rows, draws.shape[1])
    table = lane_zeros((len(used) + 2, padded_width(draws.shape[2])))
    table[len(used), : draws.shape[2]] = 1.0
    f = np.empty((len(draws), len(rows)))
    sums_at_cells(draws, used, places, table, f)
    return f


def _used_rows(rows: np.ndarray, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The distinct packed rows, and where each of rows (n, K) stands among them, (n, K) int32."""
    if rows.size < n_rows:
        used, places = np.unique(rows, return_inverse=True)
        return used, places.reshape(rows.shape).astype(np.int32)
    seen = np.zeros(n_rows, dtype=bool)
    seen[rows] = True
    return np.flatnonzero(seen), (np.cumsum(seen) - 1).astype(np.int32)[rows]
