"""Sums over the rows of a matrix in compressed form, whose cost is that of the pairs of numbers in a row.

Places are unsigned: a test of each for being negative takes up to eight times as long as the sums.
"""

import numpy as np

from tensorcep.core.jit import kernel


@kernel
def add_weighted(start, column, value, weight, total):
    """Add the weighted outer products of sparse rows to `total` (d, d): each pair of columns once, in any order."""
    flat, d = total.ravel(), np.uint64(total.shape[1])
    for i in range(weight.shape[0]):
        first, last = start[i], start[i + 1]
        for at in range(first, last):
            x, line = weight[i] * value[at], np.uint64(column[at]) * d
            for other in range(first, at + 1):
                flat[line + np.uint64(column[other])] += x * value[other]


@kernel
def write_quadratic(start, column, value, cov, result):
    """Write a_i' cov a_i of sparse rows."""
    flat, d = cov.ravel(), np.uint64(cov.shape[1])
    for i in range(result.shape[0]):
        total, first, last = 0.0, start[i], start[i + 1]
        for at in range(first, last):
            line, half = np.uint64(column[at]) * d, 0.0
            for other in range(first, at):
                half += value[other] * flat[line + np.uint64(column[other])]
            total += value[at] * (2.0 * half + value[at] * flat[line + np.uint64(column[at])])
        result[i] = total
