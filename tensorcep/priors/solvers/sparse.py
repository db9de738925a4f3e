"""Sparse precisions: elimination order, factor, draws, marginals and gradients."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import spilu

from tensorcep.core.compile import block_kernel, kernel
from tensorcep.core.random import normal, start_stream

# Rows that are coupled by any graph: the Cholesky factor of a sparse block precision, and what follows from it.
#
# The precision of n rows of D numbers has full blocks on its diagonal and -diag(between_e) at the edges e of a graph.
# The factor L is stored by columns: blocks (D, D) below the diagonal, column j from start[j] on, at rows in ascending
# order, and the blocks of the diagonal by themselves. Marginals follow from it without the inverse: those elements of
# it that lie where L has some need each other alone.
# Source: Liu (1990), SIAM J. Matrix Anal. Appl. 11, for the elimination tree; Takahashi, Fagan and Chin (1973).


@kernel
def climb_tree(indptr, indices, most, parent, at, rows):
    """Climb the elimination tree: `at` (n,) grows by the blocks below the diagonal in each column of L."""
    # `indptr` and `indices` are the graph's, with every edge in both directions, by rows in the order of elimination.
    # `parent` (n,), -1 where it is not known, becomes the tree. `rows`, if there are any, get the rows of the blocks
    # from `at` on. With `at` 0 at first the sum of the squares of the counts is given; it ends beyond `most`.
    n, total = len(indptr) - 1, 0.0
    mark = np.full(n, -1)
    for k in range(n):
        mark[k] = k
        for p in range(indptr[k], indptr[k + 1]):
            j = indices[p]
            while j < k and mark[j] != k:
                if parent[j] < 0:
                    parent[j] = k
                if len(rows) > 0:
                    rows[at[j]] = k
                at[j] += 1
                total += 2.0 * at[j]  # with the ones before the square of the count
                mark[j] = k
                j = parent[j]
        if total > most:
            break
    return total


@kernel
def factorise_blocks(start, rows, diagonal, L):
    """Factorise the precision of lower blocks `diagonal` (n, D, D) and L in place; gives log det, or NaN."""
    n, D = diagonal.shape[0], diagonal.shape[1]
    log_det = 0.0
    for j in range(n):
        for a in range(D):  # C, the factor of the block on the diagonal, 0 above its own
            for b in range(a + 1):
                total = diagonal[j, a, b]
                for c in range(b):
                    total -= diagonal[j, a, c] * diagonal[j, b, c]
                if a > b:
                    diagonal[j, a, b] = total / diagonal[j, b, b]
                elif total > 0.0:
                    diagonal[j, a, a] = math.sqrt(total)
                else:
                    return np.nan
            for b in range(a + 1, D):
                diagonal[j, a, b] = 0.0
        for a in range(D):
            log_det += 2.0 * math.log(diagonal[j, a, a])
        for p in range(start[j], start[j + 1]):  # L_p C^-T
            for a in range(D):
                for b in range(D):
                    total = L[p, a, b]
                    for c in range(b):
                        total -= L[p, a, c] * diagonal[j, b, c]
                    L[p, a, b] = total / diagonal[j, b, b]
        for p in range(start[j], start[j + 1]):
            k = rows[p]
            for a in range(D):
                for b in range(a + 1):
                    total = 0.0
                    for c in range(D):
                        total += L[p, a, c] * L[p, b, c]
                    diagonal[k, a, b] -= total
            t = start[k]
            for q in range(p + 1, start[j + 1]):
                while rows[t] != rows[q]:
                    t += 1
                for a in range(D):
                    for b in range(D):
                        total = 0.0
                        for c in range(D):
                            total += L[q, a, c] * L[p, b, c]
                        L[t, a, b] -= total
    return log_det


@kernel
def solve_blocks(start, rows, diagonal, L, x):
    """x (n, D) becomes the solution of the system whose right side it is, after `factorise_blocks`."""
    n, D = x.shape
    for j in range(n):
        for a in range(D):
            total = x[j, a]
            for b in range(a):
                total -= diagonal[j, a, b] * x[j, b]
            x[j, a] = total / diagonal[j, a, a]
        for p in range(start[j], start[j + 1]):
            for a in range(D):
                total = x[rows[p], a]
                for b in range(D):
                    total -= L[p, a, b] * x[j, b]
                x[rows[p], a] = total
    for j in range(n - 1, -1, -1):
        for p in range(start[j], start[j + 1]):
            for a in range(D):
                for b in range(D):
                    x[j, b] -= L[p, a, b] * x[rows[p], a]
        for a in range(D - 1, -1, -1):
            total = x[j, a]
            for b in range(a + 1, D):
                total -= diagonal[j, b, a] * x[j, b]
            x[j, a] = total / diagonal[j, a, a]


@kernel
def invert_blocks(start, rows, diagonal, L):
    """After `factorise_blocks`, in its place: the blocks of the inverse where L has some, and on the diagonal."""
    n, D = diagonal.shape[0], diagonal.shape[1]
    widest = 0
    for j in range(n):
        widest = max(widest, start[j + 1] - start[j])
    G, V, S = np.empty((widest, D, D)), np.zeros((D, D)), np.empty((D, D))
    for j in range(n - 1, -1, -1):
        first, last = start[j], start[j + 1]
        for a in range(D):  # V = C^-1
            V[a, a] = 1.0 / diagonal[j, a, a]
            for b in range(a):
                total = 0.0
                for c in range(b, a):
                    total += diagonal[j, a, c] * V[c, b]
                V[a, b] = -total * V[a, a]
        for p in range(first, last):
            for a in range(D):
                for b in range(D):
                    total = 0.0
                    for c in range(b, D):
                        total += L[p, a, c] * V[c, b]
                    G[p - first, a, b] = total
            for a in range(D):
                for b in range(D):
                    L[p, a, b] = 0.0
        _spread_back(first, last, start, rows, diagonal, L, G, D)
        for a in range(D):
            for b in range(D):
                total = 0.0
                for c in range(max(a, b), D):
                    total += V[c, a] * V[c, b]
                for p in range(first, last):
                    for c in range(D):
                        total -= G[p - first, c, a] * L[p, c, b]
                S[a, b] = total
        for a in range(D):
            for b in range(D):
                diagonal[j, a, b] = 0.5 * (S[a, b] + S[b, a])


@block_kernel
def _spread_back(first, last, start, rows, diagonal, Z, G, D):
    """The blocks Z[first:last] of the inverse of one column: less the sum over the column of those of both times G."""
    for p in range(first, last):
        k, g = rows[p], p - first
        for a in range(D):
            for c in range(D):
                f = diagonal[k, a, c]
                for b in range(D):
                    Z[p, a, b] -= f * G[g, c, b]
        t = start[k]
        for q in range(p + 1, last):
            while rows[t] != rows[q]:
                t += 1
            for a in range(D):
                for c in range(D):
                    f = Z[t, a, c]
                    for b in range(D):
                        Z[q, a, b] -= f * G[g, c, b]
                        Z[p, c, b] -= f * G[q - first, a, b]


# Rows that are coupled by any graph: systems of their joint precision by conjugate gradients, and exact draws by them.
#
# A draw solves the system whose right side is perturbed by noise that has the precision for its covariance: of every
# block, and of every edge, so many numbers. No factor of the whole precision is made.
# Source: Papandreou and Yuille (2010), Gaussian sampling by local perturbations.


@block_kernel
def _factorise(Lam, t, D):
    """The Cholesky factor of the packed Lam[t], in place; whether it is positive definite."""
    for i in range(D):
        row_i = i * (i + 1) // 2
        for j in range(i + 1):
            row_j = j * (j + 1) // 2
            total = Lam[t, row_i + j]
            for k in range(j):
                total -= Lam[t, row_i + k] * Lam[t, row_j + k]
            if i > j:
                Lam[t, row_i + j] = total / Lam[t, row_j + j]
            elif total > 0.0:
                Lam[t, row_i + i] = math.sqrt(total)
            else:
                return False
    return True


@kernel
def perturb(Lam, rest, left, right, between, scale, key, out):
    """Add noise to out (n, D) whose covariance is the precision of the rows; whether all its parts are positive."""
    # Packed blocks Lam (n, P), beside them rest (n, D) on the diagonal; an edge e, (E,) and (E,), in the order of
    # `left`, adds q (scale_i x_i - scale_j x_j)^2 / 2 with q scale_i scale_j = between_e, (E, D). `key` is (seed,
    # sweep, what).
    n, D = out.shape
    block, z, s, e = Lam.copy(), np.empty(D), np.zeros(4, dtype=np.uint64), 0
    for i in range(n):
        start_stream(s, key[0], key[1], key[2] * (1 << 32) + i)
        for a in range(D):
            block[i, a * (a + 3) // 2] += rest[i, a]
            z[a] = normal(s)
        if not _factorise(block, i, D):
            return False
        for a in range(D):
            row, total = a * (a + 1) // 2, out[i, a]
            for b in range(a + 1):
                total += block[i, row + b] * z[b]
            out[i, a] = total
        while e < len(left) and left[e] == i:
            j = right[e]
            for a in range(D):
                ratio, noise = scale[i, a] / scale[j, a], math.sqrt(between[e, a]) * normal(s)
                out[i, a] += math.sqrt(ratio) * noise
                out[j, a] -= noise / math.sqrt(ratio)
            e += 1
    return True


@block_kernel
def _times(Lam, left, right, between, x, out):
    """out = the precision times x."""
    n, D = x.shape
    for i in range(n):
        for a in range(D):
            out[i, a] = 0.0
        for a in range(D):
            row = a * (a + 1) // 2
            total = Lam[i, row + a] * x[i, a]
            for b in range(a):
                total += Lam[i, row + b] * x[i, b]
            for b in range(a):
                out[i, b] += Lam[i, row + b] * x[i, a]
            out[i, a] += total
    for e in range(len(left)):
        i, j = left[e], right[e]
        for a in range(D):
            out[i, a] -= between[e, a] * x[j, a]
            out[j, a] -= between[e, a] * x[i, a]


@block_kernel
def _precondition(roots, r, z, x):
    """z = the inverses of the blocks times r, by their packed factors L; gives the product of both."""
    n, D = r.shape
    total = 0.0
    for i in range(n):
        for a in range(D):  # x = L^-1 r
            row, rest = a * (a + 1) // 2, r[i, a]
            for b in range(a):
                rest -= roots[i, row + b] * x[b]
            x[a] = rest / roots[i, row + a]
        for a in range(D):
            total += x[a] * x[a]
        for a in range(D - 1, -1, -1):  # x = L^-T x
            row = a * (a + 1) // 2
            x[a] /= roots[i, row + a]
            for b in range(a):
                x[b] -= roots[i, row + b] * x[a]
        for a in range(D):
            z[i, a] = x[a]
    return total


@kernel
def solve_by_gradients(Lam, left, right, between, b, tol, most, x):
    """Solve for x (n, D), preconditioned by the blocks Lam (n, P); gives the steps, -1 if not positive or too many."""
    n, D = b.shape
    roots, room = Lam.copy(), np.empty(D)
    for i in range(n):
        if not _factorise(roots, i, D):
            return -1
    r, z, Ap = b.copy(), np.empty((n, D)), np.empty((n, D))
    x[:] = 0.0
    rz = _precondition(roots, r, z, room)
    p, least = z.copy(), tol * tol * rz
    for step in range(most):
        if rz <= least:
            return step
        _times(Lam, left, right, between, p, Ap)
        pAp = 0.0
        for i in range(n):
            for a in range(D):
                pAp += p[i, a] * Ap[i, a]
        alpha = rz / pAp
        for i in range(n):
            for a in range(D):
                x[i, a] += alpha * p[i, a]
                r[i, a] -= alpha * Ap[i, a]
        new = _precondition(roots, r, z, room)
        beta = new / rz
        for i in range(n):
            for a in range(D):
                p[i, a] = z[i, a] + beta * p[i, a]
        rz = new
    return -1


NOT_POSITIVE = "the precision of the rows of a graph is not positive definite; use a tighter prior."

# The order in which the rows of a graph are eliminated, and its Cholesky factors, numbers or blocks of them.
#
# The order is one of minimum degree (SuperLU's), which for planar graphs leaves about n log n blocks.


class EliminationOrder(NamedTuple):
    """The factor's pattern for the rows of a graph."""

    place: np.ndarray  # (n,) int64: of each row in the order of elimination
    start: np.ndarray  # (n + 1,) int64: the first block of each column below the diagonal
    rows: np.ndarray  # (nnz,) int64: the rows of these blocks
    at: np.ndarray  # (E,) int64: where the block of an edge is
    work: float  # products of blocks that a factor takes


class SparseFactor(NamedTuple):
    """A factor, or after `inverted` the elements of the inverse: diagonal (n, D, D), L (nnz, D, D), and log |P|."""

    order: EliminationOrder
    diagonal: np.ndarray
    L: np.ndarray
    log_det: float


def ordered(n: int, left: np.ndarray, right: np.ndarray, most: float = np.inf) -> EliminationOrder | None:
    """The order for the graph with these edges; None where a factor takes more than `most` products."""
    place = np.arange(n)
    if len(left):  # of a matrix so near the identity that SuperLU's factor, which is not used, is empty
        off = np.full(2 * len(left), -1e-3 / n)
        matrix = sparse.coo_array((off, (np.append(left, right), np.append(right, left))), shape=(n, n))
        near = (matrix + sparse.dia_array((np.ones((1, n)), [0]), shape=(n, n))).tocsc()
        # SuperLU takes indices of 32 bits; scipy before 1.12 does not make them so
        near.indices, near.indptr = near.indices.astype(np.int32), near.indptr.astype(np.int32)
        how = {"drop_tol": 0.9, "fill_factor": 1, "permc_spec": "MMD_AT_PLUS_A", "options": {"SymmetricMode": True}}
        place = spilu(near, **how).perm_c.astype(np.int64)
    a, b = place[left], place[right]
    both = sparse.csr_array((np.ones(2 * len(a)), (np.append(a, b), np.append(b, a))), shape=(n, n))
    both.sort_indices()
    pattern = both.indptr.astype(np.int64), both.indices.astype(np.int64)
    count, parent = np.zeros(n, dtype=np.int64), np.full(n, -1)
    work = climb_tree(*pattern, float(most), parent, count, np.empty(0, dtype=np.int64))
    if work > most:
        return None
    start = np.append(0, np.cumsum(count))
    rows = np.empty(start[-1], dtype=np.int64)
    climb_tree(*pattern, np.inf, parent, start[:-1].copy(), rows)
    low, high = np.minimum(a, b), np.maximum(a, b)
    where = np.repeat(np.arange(n), count) * n + rows  # ascending, as rows are within each column
    return EliminationOrder(place, start, rows, np.searchsorted(where, low * n + high), work)


def factor(order: EliminationOrder, diagonal: np.ndarray, between: np.ndarray) -> SparseFactor:
    """The factor of the precision of blocks (n, D, D), of which the lower triangles count, and less edges (E, D)."""
    n, D = diagonal.shape[:2]
    blocks, L, every = np.empty((n, D, D)), np.zeros((len(order.rows), D, D)), np.arange(D)
    blocks[order.place] = diagonal
    L[order.at[:, None], every, every] = -between
    log_det = float(factorise_blocks(order.start, order.rows, blocks, L))
    if not np.isfinite(log_det):
        raise FloatingPointError(NOT_POSITIVE)
    return SparseFactor(order, blocks, L, log_det)


def solved(of: SparseFactor, b: np.ndarray) -> np.ndarray:
    """The solution (n, D) for the right side b."""
    x = np.empty(b.shape)
    x[of.order.place] = b
    solve_blocks(of.order.start, of.order.rows, of.diagonal, of.L, x)
    return np.asarray(x[of.order.place])


def inverted(of: SparseFactor) -> tuple[np.ndarray, np.ndarray]:
    """Blocks of the inverse on the diagonal, (n, D, D), and the diagonals of those at edges, (E, D); `of` is spent."""
    invert_blocks(of.order.start, of.order.rows, of.diagonal, of.L)
    return of.diagonal[of.order.place], np.diagonal(of.L[of.order.at], axis1=1, axis2=2)
