"""Sums over a list of observed cells of a matrix: products of its row and column vectors, and weighted sums per line.

Every number of a result is summed by one thread in one order, so a result does not depend on the number of threads.
"""

from __future__ import annotations

from tensorcep.core.compile import kernel


@kernel
def entry_products(first, last, rows, cols, A, B, out):
    """out[n] = A[rows[n]] . B[cols[n]] for the entries first:last."""
    for n in range(first, last):
        i, j = rows[n], cols[n]
        total = 0.0
        for k in range(A.shape[1]):
            total += A[i, k] * B[j, k]
        out[n] = total


@kernel
def line_sums(first, last, start, order, other, weight, B, out):
    """out[i] = sum of weight[n] B[other[n]] over the entries n of the lines (rows or columns) first:last.

    The entries of line i are order[start[i]:start[i + 1]].
    """
    for i in range(first, last):
        out[i, :] = 0.0
        for p in range(start[i], start[i + 1]):
            n = order[p]
            w, j = weight[n], other[n]
            for k in range(B.shape[1]):
                out[i, k] += w * B[j, k]
