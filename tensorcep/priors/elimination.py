"""The order in which the rows of a graph are eliminated, and its Cholesky factors, numbers or blocks of them.

The order is one of minimum degree (SuperLU's), which for planar graphs leaves about n log n blocks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import spilu

from tensorcep.kernels.sparse import counts_of_factor, factorise_blocks, invert_blocks, rows_of_factor, solve_blocks


class Order(NamedTuple):
    """The factor's pattern for the rows of a graph.

    Attributes
    ----------
    place : (n,) int64
        Of each row in the order of elimination.
    start, rows : (n + 1,), (nnz,) int64
        Blocks of each column below the diagonal, and their rows.
    at : (E,) int64
        Where the block of an edge is.
    work : float
        Products of blocks that a factor takes.
    """

    place: np.ndarray
    start: np.ndarray
    rows: np.ndarray
    at: np.ndarray
    work: float


class Factor(NamedTuple):
    """A factor, or after `inverted` the elements of the inverse: diagonal (n, D, D), L (nnz, D, D), and log |P|."""

    order: Order
    diagonal: np.ndarray
    L: np.ndarray
    log_det: float


def ordered(n: int, left: np.ndarray, right: np.ndarray, most: float = np.inf) -> Order | None:
    """The order for the graph with these edges; None where a factor takes more than `most` products."""
    place = _minimum_degree(n, left, right)
    a, b = place[left], place[right]
    both = sparse.csr_array((np.ones(2 * len(a)), (np.append(a, b), np.append(b, a))), shape=(n, n))
    both.sort_indices()
    pattern = both.indptr.astype(np.int64), both.indices.astype(np.int64)
    count, parent, work = counts_of_factor(*pattern, float(most))
    if work > most:
        return None
    start = np.append(0, np.cumsum(count))
    rows = rows_of_factor(*pattern, parent, start)
    low, high = np.minimum(a, b), np.maximum(a, b)
    where = np.repeat(np.arange(n), count) * n + rows  # ascending, as rows are within each column
    return Order(place, start, rows, np.searchsorted(where, low * n + high), work)


def _minimum_degree(n: int, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The place of each row; of a matrix so near the identity that SuperLU's factor, which is not used, is empty."""
    if not len(left):
        return np.arange(n)
    off = np.full(2 * len(left), -1e-3 / n)
    matrix = sparse.coo_array((off, (np.append(left, right), np.append(right, left))), shape=(n, n))
    how = {"drop_tol": 0.9, "fill_factor": 1, "permc_spec": "MMD_AT_PLUS_A", "options": {"SymmetricMode": True}}
    diagonal = sparse.dia_array((np.ones((1, n)), [0]), shape=(n, n))
    whole = (matrix + diagonal).tocsc()
    # SuperLU takes indices of 32 bits; scipy before 1.12 does not make them so
    whole.indices, whole.indptr = whole.indices.astype(np.int32), whole.indptr.astype(np.int32)
    found = spilu(whole, **how)
    return np.asarray(found.perm_c, dtype=np.int64)


def factor(order: Order, diagonal: np.ndarray, between: np.ndarray) -> Factor:
    """The factor of the precision of blocks (n, D, D), of which the lower triangles count, and less edges (E, D).

    Raises
    ------
    FloatingPointError
        If it is not positive definite.
    """
    n, D = diagonal.shape[:2]
    blocks, L, every = np.empty((n, D, D)), np.zeros((len(order.rows), D, D)), np.arange(D)
    blocks[order.place] = diagonal
    L[order.at[:, None], every, every] = -between
    log_det = float(factorise_blocks(order.start, order.rows, blocks, L))
    if not np.isfinite(log_det):
        raise FloatingPointError("the precision of the rows of a graph is not positive definite; use a tighter prior.")
    return Factor(order, blocks, L, log_det)


def solved(of: Factor, b: np.ndarray) -> np.ndarray:
    """The solution (n, D) for the right side b."""
    x = np.empty(b.shape)
    x[of.order.place] = b
    solve_blocks(of.order.start, of.order.rows, of.diagonal, of.L, x)
    return np.asarray(x[of.order.place])


def inverted(of: Factor) -> tuple[np.ndarray, np.ndarray]:
    """Blocks of the inverse on the diagonal, (n, D, D), and the diagonals of those at edges, (E, D); `of` is spent."""
    invert_blocks(of.order.start, of.order.rows, of.diagonal, of.L)
    return of.diagonal[of.order.place], np.diagonal(of.L[of.order.at], axis1=1, axis2=2)
