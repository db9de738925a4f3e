"""Draws of the mean and the precision of normal vectors, of which a chain makes one for every mode in every sweep.

Matrices of some ten columns are too small for calls of a library each: what goes on between these takes longer.
"""

from __future__ import annotations

import math

import numpy as np

from tensorcep.core.jit import block_kernel
from tensorcep.kernels.outer import add_outer_products, padded

# Vectors that are centred at a time.
CHUNK = 32


def scatter_of(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean (D,) of n > 0 vectors (n, D), and the sum of the outer products of what they differ from it by."""
    mean, gram = sums_of(rows)
    return mean, gram[: len(mean), : len(mean)]


def sums_of(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same of n vectors, the sum in a larger array; without any, what is to be the mean and zeros."""
    D = rows.shape[1]
    S = padded(D)
    mean, gram, apart, nothing = np.empty(D), np.zeros((S + 1, S)), np.zeros((CHUNK, S)), np.zeros(CHUNK)
    if len(rows):
        _sum_scatter(np.ascontiguousarray(rows), mean, apart, nothing, gram)
    return mean, gram


@block_kernel
def _sum_scatter(rows, mean, apart, nothing, gram):
    """As `sums_of`, in zeros `gram` (S + 1, S); `apart` is room, and `nothing` zeros."""
    n, D = rows.shape
    mean[:] = 0.0
    for i in range(n):
        for r in range(D):
            mean[r] += rows[i, r]
    for r in range(D):
        mean[r] /= n
    for begin in range(0, n, len(apart)):
        size = min(len(apart), n - begin)
        for q in range(size):
            for r in range(D):
                apart[q, r] = rows[begin + q, r] - mean[r]
        add_outer_products(size, D, apart, apart, nothing, gram)
    for r in range(D):
        for c in range(r):
            gram[c, r] = gram[r, c]


@block_kernel
def draw_normal_wishart(scatter, lower, z, mean, precision):
    """Draw the precision Lam and the mean given their law: Lam ~ Wishart(df, scatter^-1), mean ~ N(mean, Lam^-1).

    Of `lower` (D, D) the lower triangle holds Bartlett's normal draws and, on its diagonal, roots of chi-squares of df,
    df - 1, ...; `z` (D,) holds normal draws, over the root of the number of vectors that the mean is known from. What
    is drawn goes to `precision` (D, D), and is added to `mean` (D,). `scatter` becomes its Cholesky factor L, and
    `lower` L^-T times itself. Gives whether the scatter has such a factor.
    """
    D = len(scatter)
    for i in range(D):
        for j in range(i + 1):
            total = scatter[i, j]
            for k in range(j):
                total -= scatter[i, k] * scatter[j, k]
            if i > j:
                scatter[i, j] = total / scatter[j, j]
            elif total > 0.0:
                scatter[i, i] = math.sqrt(total)
            else:
                return False
    for i in range(D - 1, -1, -1):  # Lam^-1/2 z = L B^-T z
        total = z[i]
        for j in range(i + 1, D):
            total -= lower[j, i] * z[j]
        z[i] = total / lower[i, i]
    for i in range(D):
        total = mean[i]
        for j in range(i + 1):
            total += scatter[i, j] * z[j]
        mean[i] = total
    for i in range(D - 1, -1, -1):
        for c in range(i + 1, D):
            lower[i, c] = 0.0
        for j in range(i + 1, D):
            for c in range(D):
                lower[i, c] -= scatter[j, i] * lower[j, c]
        for c in range(D):
            lower[i, c] /= scatter[i, i]
    for i in range(D):
        for j in range(i + 1):
            total = 0.0
            for c in range(D):
                total += lower[i, c] * lower[j, c]
            precision[i, j] = total
            precision[j, i] = total
    return True


@block_kernel
def draw_prior(n, average, gram, prior, lower, z, scatter, mean, precision):
    """Draw the mean and the precision of the law of n vectors of D numbers, as `draw_normal_wishart` does.

    `average` and `gram` are what `sums_of` makes of the vectors. `prior` is (centre (D,), width (D,), rows,
    strength): what the mean and the scatter are before any vector, and what each of them counts. `lower` and `z` are
    normal draws and roots of chi-squares of strength D + n, ...; `scatter` (D, D) is room. Gives whether the scatter is
    positive definite.
    """
    centre, width, count, strength = prior
    D = len(mean)
    for a in range(D):
        if n == 0:
            average[a] = centre[a]
        mean[a] = (count * centre[a] + n * average[a]) / (count + n)
        z[a] /= math.sqrt(count + n)
    share = count * n / (count + n)
    for a in range(D):
        for b in range(D):
            known = gram[a, b] if n else 0.0
            scatter[a, b] = known + share * ((average[a] - centre[a]) * (average[b] - centre[b]))
        scatter[a, a] += strength * width[a] ** 2
    return draw_normal_wishart(scatter, lower, z, mean, precision)
