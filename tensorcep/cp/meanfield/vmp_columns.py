"""VMP with main effects and interactions in the free columns of every mode alone: where its sums find their factors.

With f = z'u + c, c the sum over the columns that are clamped to 1 in the mode, the update of a row needs the sums over
its entries of z z', of y z and of z c, in second moments. An element of z z' or z c is a product over the other modes
of a second moment, of a mean where one of the two columns is clamped in that mode, or of 1 where both are. Rows of
those numbers, in the order of the elements, make it the elementwise product that it is for the CP model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.cp.free_columns import Places, column_groups, padded_columns

Order = dict[tuple[int, int], np.ndarray]


class Columns(NamedTuple):
    """Places in a row of numbers: its packed second moments in Q columns, its means, and 1; -1 stands for 0.

    Attributes
    ----------
    products : dict of (W,) int64
        By (mode to update, other mode): the elements of z z', packed, and then of z_q z_c for every c and q.
    means : dict of (Q + C,) int64
        The same of z and of the clamped columns.
    squares : dict of int64
        By (0, other mode): the elements of z_c z_d of the clamped columns, packed.
    n_clamped : int
        C.
    groups : (G, 2 + K) int64
        See `column_groups`.
    """

    products: Order
    means: Order
    squares: Order
    n_clamped: int
    groups: np.ndarray


def columns_of(free: np.ndarray) -> Columns:
    """The places for the free columns (K, R) bool."""
    mine, clamped = padded_columns(free), padded_columns(~free)
    Q, C = mine.shape[1], clamped.shape[1]
    P = Q * (Q + 1) // 2
    at = Places(0, P, P + Q, -1)
    products, means, squares = {}, {}, {}
    for k, j in np.ndindex(len(free), len(free)):
        if j == k:
            continue
        pairs = [(mine[k, a], mine[k, b]) for a, b in zip(*np.tril_indices(Q), strict=True)]
        pairs += [(a, c) for c in clamped[k] for a in mine[k]]
        products[k, j] = np.array([at.of_second_moment(free[j], a, b) for a, b in pairs], dtype=np.int64)
        means[k, j] = np.array([at.of_mean(free[j], a) for a in (*mine[k], *clamped[k])], dtype=np.int64)
        if k == 0:
            pairs = [(clamped[k, c], clamped[k, d]) for c, d in zip(*np.tril_indices(C), strict=True)]
            squares[k, j] = np.array([at.of_second_moment(free[j], c, d) for c, d in pairs], dtype=np.int64)
    return Columns(products, means, squares, C, column_groups(free))
