"""Latent values of many cells in many draws of the rows, a draw at a time."""

from __future__ import annotations

import numpy as np

from tensorcep.core.jit import block_kernel
from tensorcep.kernels.products import WIDTH, padded_width, sum_of_products
from tensorcep.kernels.slots import lane_zeros


@block_kernel
def latent_in_draws(draws, used, rows, table, f):
    """f[s, n] = sum over columns of the product over modes of draw s, draws (S, n_rows, R), at cells rows (n, K).

    The rows `used` (u,) of a draw are copied to `table` (u + 2, W), which stays in the cache for all cells; `rows` are
    places in `used`. Below them lie a row of ones and one of work space; what pads the columns is 0.
    """
    S, R = draws.shape[0], draws.shape[2]
    n, K = rows.shape
    ones, work, W = len(used), len(used) + 1, table.shape[1]
    flat, blocks = table.reshape(table.size), W // WIDTH
    for s in range(S):
        for i in range(len(used)):
            row = draws[s, used[i]]
            for r in range(R):
                table[i, r] = row[r]
        for i in range(n):
            a = rows[i, 0]
            if K > 3:
                for r in range(W):
                    table[work, r] = table[a, r] * table[rows[i, 1], r]
                for k in range(2, K - 2):
                    for r in range(W):
                        table[work, r] *= table[rows[i, k], r]
                a = work
            b = rows[i, K - 2] if K > 2 else ones
            c = rows[i, K - 1] if K > 1 else ones
            f[s, i] = sum_of_products(flat, a * W, b * W, c * W, blocks)


def latent_of_points(draws: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The latent value (S, n) at packed rows (n, K) in draws (S, n_rows, R) of all rows, float64 or float32."""
    used, places = _used_rows(rows, draws.shape[1])
    table = lane_zeros((len(used) + 2, padded_width(draws.shape[2])))
    table[len(used), : draws.shape[2]] = 1.0
    f = np.empty((len(draws), len(rows)))
    latent_in_draws(draws, used, places, table, f)
    return f


def _used_rows(rows: np.ndarray, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The distinct packed rows, and where each of rows (n, K) stands among them, (n, K) int32."""
    if rows.size < n_rows:
        used, places = np.unique(rows, return_inverse=True)
        return used, places.reshape(rows.shape).astype(np.int32)
    seen = np.zeros(n_rows, dtype=bool)
    seen[rows] = True
    return np.flatnonzero(seen), (np.cumsum(seen) - 1).astype(np.int32)[rows]
