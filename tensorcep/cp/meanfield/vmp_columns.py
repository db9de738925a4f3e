"""VMP with main effects and interactions in the free columns of every mode alone: where its sums find their factors.

With f = z'u + c, c the sum over the columns that are clamped to 1 in the mode, the update of a row needs the sums over
its entries of z z', of y z and of z c, in second moments. An element of z z' or z c is a product over the other modes
of a second moment, of a mean where one of the two columns is clamped in that mode, or of 1 where both are. Rows of
those numbers, in the order of the elements, make it the elementwise product that it is for the CP model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.cp.free_columns import FreeColumns, Places

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
        By (mode, other mode): the elements of z_c z_d of the clamped columns, packed.
    n_clamped : int
        C.
    """

    products: Order
    means: Order
    squares: Order
    n_clamped: int


def orders_of(columns: FreeColumns) -> Columns:
    """The places for the free columns."""
    K, Q, C = len(columns.free), columns.free_index.shape[1], columns.clamped_index.shape[1]
    P = Q * (Q + 1) // 2
    places = [Places(0, P, P + Q, -1)] * K
    products: Order = {}
    means: Order = {}
    squares: Order = {}
    for k in range(K):
        pairs = np.concatenate([columns.products(k), columns.cross(k).swapaxes(0, 1).reshape(-1, 2)])
        single = np.concatenate([columns.free_index[k], columns.clamped_index[k]])
        others = [j for j in range(K) if j != k]
        for order, elements in ((products, pairs), (means, single), (squares, columns.squares(k))):
            order.update({(k, j): line for j, line in zip(others, columns.table(k, elements, places), strict=True)})
    return Columns(products, means, squares, C)
