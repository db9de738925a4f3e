"""Rows that are coupled by any graph: the Cholesky factor of a sparse block precision, and what follows from it.

The precision of n rows of D numbers has full blocks on its diagonal and -diag(between_e) at the edges e of a graph. The
factor L is stored by columns: blocks (D, D) below the diagonal, column j from start[j] on, at rows in ascending order,
and the blocks of the diagonal by themselves. Marginals follow from it without the inverse: those elements of it that
lie where L has some need each other alone.

Source: Liu (1990), SIAM J. Matrix Anal. Appl. 11, for the elimination tree; Takahashi, Fagan and Chin (1973).
"""

from __future__ import annotations

import math

import numpy as np

from tensorcep.core.jit import block_kernel, kernel


@kernel
def counts_of_factor(indptr, indices, most):
    """Blocks below the diagonal in each column of L, (n,), and the elimination tree; counts stop beyond `most`.

    `indptr` and `indices` are the graph's, with every edge in both directions, by rows in the order of elimination.
    """
    n = len(indptr) - 1
    parent, mark, count, total = np.full(n, -1), np.full(n, -1), np.zeros(n, dtype=np.int64), 0.0
    for k in range(n):
        mark[k] = k
        for p in range(indptr[k], indptr[k + 1]):
            j = indices[p]
            while j < k and mark[j] != k:
                if parent[j] < 0:
                    parent[j] = k
                count[j] += 1
                total += 2.0 * count[j]  # with the ones before the square of the count
                mark[j] = k
                j = parent[j]
        if total > most:
            break
    return count, parent, total


@kernel
def rows_of_factor(indptr, indices, parent, start):
    """The rows of the blocks of L."""
    n = len(indptr) - 1
    rows, mark, at = np.empty(start[n], dtype=np.int64), np.full(n, -1), start.copy()
    for k in range(n):
        mark[k] = k
        for p in range(indptr[k], indptr[k + 1]):
            j = indices[p]
            while j < k and mark[j] != k:
                rows[at[j]] = k
                at[j] += 1
                mark[j] = k
                j = parent[j]
    return rows


@block_kernel
def _root(A, j, D):
    """The Cholesky factor of A[j] in place, 0 above the diagonal; whether it is positive definite."""
    for a in range(D):
        for b in range(a + 1):
            total = A[j, a, b]
            for c in range(b):
                total -= A[j, a, c] * A[j, b, c]
            if a > b:
                A[j, a, b] = total / A[j, b, b]
            elif total > 0.0:
                A[j, a, a] = math.sqrt(total)
            else:
                return False
        for b in range(a + 1, D):
            A[j, a, b] = 0.0
    return True


@kernel
def factorise_blocks(start, rows, diagonal, L):
    """Factorise in place the precision whose lower blocks are `diagonal` (n, D, D) and L; gives its log determinant.

    NaN if it is not positive definite.
    """
    n, D = diagonal.shape[0], diagonal.shape[1]
    log_det = 0.0
    for j in range(n):
        if not _root(diagonal, j, D):
            return np.nan
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
