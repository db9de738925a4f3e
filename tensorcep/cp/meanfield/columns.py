"""Main effects and interactions in mean-field methods: where sums find their factors among the numbers of a row.

An element of z z' or z c (see `FreeColumns`) is a product over the other modes of a second moment, of a mean where one
of the two columns is clamped in that mode, or of 1 where both are. Rows of those numbers, in the order of the elements,
make it the elementwise product that it is for the CP model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.cp.model.columns import FreeColumns, Places

Order = dict[tuple[int, int], np.ndarray]


class Orders(NamedTuple):
    """Places in a row of numbers: its packed second moments in Q columns, its means, and 1; -1 stands for 0.

    Attributes
    ----------
    products : dict of (W,) int64
        By (mode to update, other mode): the elements of z z', packed, and then of z_q z_c for every c and q.
    means : dict of (Q + C,) int64
        The same of z and of the clamped columns.
    squares : dict of int64
        By (mode, other mode): the elements of z_c z_d of the clamped columns, packed.
    whole : (K, P) int64
        The second moments of all columns of a mode's own rows, packed.
    n_clamped : int
        C.
    """

    products: Order
    means: Order
    squares: Order
    whole: np.ndarray
    n_clamped: int


def orders_of(columns: FreeColumns) -> Orders:
    """The places for the free columns."""
    (K, R), Q, C = columns.free.shape, columns.free_index.shape[1], columns.clamped_index.shape[1]
    P = Q * (Q + 1) // 2
    at = Places(0, P, P + Q, -1)
    products: Order = {}
    means: Order = {}
    squares: Order = {}
    for k in range(K):
        pairs = np.concatenate([columns.products(k), columns.cross(k).swapaxes(0, 1).reshape(-1, 2)])
        single = np.concatenate([columns.free_index[k], columns.clamped_index[k]])
        others = [j for j in range(K) if j != k]
        for order, elements in ((products, pairs), (means, single), (squares, columns.squares(k))):
            order.update({(k, j): line for j, line in zip(others, columns.table(k, elements, [at] * K), strict=True)})
    whole = [at.of_second_moment(free, *np.tril_indices(R)) for free in columns.free]
    return Orders(products, means, squares, np.array(whole, dtype=np.int64), C)
