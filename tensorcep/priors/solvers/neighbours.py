"""Rows of a series and their neighbours: sums over them, and their prior from tables of phases and distances.

Row t and the next one are number `which[t]` of J distances apart; on a circle the last one and the first one are
neighbours, too. Row t has number `phase[t]` of P phases.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensorcep.core.compile import block_kernel

# Between these the product of pivots stays before its logarithm is taken: it takes longer than all else.
LEAST_PRODUCT, MOST_PRODUCT = 1e-100, 1e100


def moments_of(rows: np.ndarray, variance: Any, cross: Any) -> tuple[np.ndarray, ...]:
    """Moments as kernels take them: C-contiguous, those that are no arrays without lines."""
    nothing = np.zeros((0, rows.shape[1]))
    parts = (part if isinstance(part, np.ndarray) else nothing for part in (rows, variance, cross))
    return tuple(np.ascontiguousarray(part) for part in parts)


@block_kernel
def _add_sums(rows, variance, cross, which, phase, square, near_squares, products, own, near, between):
    """As `neighbour_sums`, in zeros."""
    n, D = rows.shape
    for t in range(n):
        for d in range(D):
            x = rows[t, d]
            square[0, d] += x * x + (variance[t, d] if len(variance) else 0.0)
            own[phase[t], d] += x
    for t in range(len(which)):
        after = t + 1 if t + 1 < n else 0
        j, p, q = which[t], phase[t], phase[after]
        for d in range(D):
            x, y = rows[t, d], rows[after, d]
            spread = variance[t, d] + variance[after, d] if len(variance) else 0.0
            near_squares[j, d] += x * x + y * y + spread
            products[j, d] += x * y + (cross[t, d] if len(cross) else 0.0)
            near[j, p, d] += x
            near[j, q, d] += y
            between[j, p, d] += y
            between[j, q, d] += x


def neighbour_sums(
    moments: tuple[np.ndarray, ...], which: np.ndarray, phase: np.ndarray, P: int, J: int
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """Sums over rows with these `moments_of` them: means (n, D), variances (n, D) and covariances of neighbours (E, D).

    Of the last two arrays without lines are zeros. First those of squares: of all rows (1, D), and by distance (J, D),
    of both neighbours and of their products. Then those of rows by phase, (P, D), and by distance and phase, (J, P, D),
    of neighbours in their own phases, and in those of the other one.
    """
    D = moments[0].shape[1]
    squares = np.zeros((1, D)), np.zeros((J, D)), np.zeros((J, D))
    linear = np.zeros((P, D)), np.zeros((J, P, D)), np.zeros((J, P, D))
    _add_sums(*moments, which, phase, *squares, *linear)
    return squares, linear


@block_kernel
def neighbour_lines(which, phase, tables, own, field, between):
    """What the rows have from themselves and their neighbours: own, field (n, D), and between (E, D).

    `tables` has what a row adds to `own`, (D,), and neighbours to `own` and `between`, (J, D) each; then what a row
    adds to `field` by its phase, (P, D), and neighbours by distance and phase, (J, P, D) each, to their own and the
    other's.
    """
    one, near, apart, level, near_level, apart_level = tables
    n, D = own.shape
    for t in range(n):
        for d in range(D):
            own[t, d] = one[d]
            field[t, d] = level[phase[t], d]
    for t in range(len(which)):
        after = t + 1 if t + 1 < n else 0
        j, p, q = which[t], phase[t], phase[after]
        for d in range(D):
            own[t, d] += near[j, d]
            own[after, d] += near[j, d]
            between[t, d] = apart[j, d]
            field[t, d] += near_level[j, p, d] + apart_level[j, q, d]
            field[after, d] += near_level[j, q, d] + apart_level[j, p, d]


@block_kernel
def expected_parts(left, right, own, between, field, mean, rows, variance, cross):
    """Expected x'Kx and sum of field (x - mean / 2), all (n, D), of x with these moments (see `neighbour_sums`).

    K has `own` (n, D) on its diagonal, and less `between` (E, D) where rows left (E,) and right (E,) meet.
    """
    square, linear, (n, D) = 0.0, 0.0, own.shape
    for t in range(n):
        for d in range(D):
            x = rows[t, d]
            square += own[t, d] * (x * x + (variance[t, d] if len(variance) else 0.0))
            linear += field[t, d] * (x - 0.5 * mean[t, d])
    for e in range(len(between)):
        for d in range(D):
            product = rows[left[e], d] * rows[right[e], d] + (cross[e, d] if len(cross) else 0.0)
            square -= 2.0 * between[e, d] * product
    return square, linear


@block_kernel
def solve_banded(bands, x, product, log_det):
    """x (n, D) = A_d^-1 x_d for D symmetric positive definite matrices, and the logarithms of their determinants (D,).

    bands[b, i] holds the elements i + b, i of all matrices: (2, n, D), or (3, n, D) where there is a second band. They
    are overwritten. `product` is ones, and log_det zeros.
    """
    n, D = x.shape
    wide = len(bands) > 2
    for i in range(n):
        for d in range(D):
            pivot = bands[0, i, d]
            product[d] *= pivot
            if not LEAST_PRODUCT < product[d] < MOST_PRODUCT:
                log_det[d] += math.log(product[d])
                product[d] = 1.0
            if i + 1 < n:
                factor = bands[1, i, d] / pivot
                bands[0, i + 1, d] -= factor * bands[1, i, d]
                x[i + 1, d] -= factor * x[i, d]
                if wide and i + 2 < n:
                    second = bands[2, i, d] / pivot
                    bands[1, i + 1, d] -= second * bands[1, i, d]
                    bands[0, i + 2, d] -= second * bands[2, i, d]
                    x[i + 2, d] -= second * x[i, d]
    for d in range(D):
        log_det[d] += math.log(product[d])
    for i in range(n - 1, -1, -1):
        for d in range(D):
            rest = x[i, d]
            if i + 1 < n:
                rest -= bands[1, i, d] * x[i + 1, d]
            if wide and i + 2 < n:
                rest -= bands[2, i, d] * x[i + 2, d]
            x[i, d] = rest / bands[0, i, d]
