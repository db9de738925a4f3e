"""Slow plain twin of the Gibbs step of the rows: dense conditionals of the free columns, and draws from them."""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular


def conditional(i, k, coords, rows, free, sites, precision, prior):
    """Precision and natural mean of the free columns of packed row i of mode k, given the other modes' rows.

    An entry says N(target / weight; f, 1 / (precision weight)); clamped columns add c to f = z'u + c.
    """
    (weight, target), (Lam, eta) = sites, prior
    mine = coords[:, k] == i
    z = np.ones((mine.sum(), rows.shape[1]))
    for j in range(coords.shape[1]):
        if j != k:
            z *= rows[coords[mine, j]]
    c, z = z[:, ~free[k]].sum(axis=1), z[:, free[k]]
    columns = np.ix_(free[k], free[k])
    precision_of_row = Lam[i][columns] + precision * np.einsum("n,ni,nj->ij", weight[mine], z, z)
    return precision_of_row, eta[i][free[k]] + precision * z.T @ (target[mine] - weight[mine] * c)


def sweep(coords, rows, first, free, sites, precision, prior, normals):
    """Every row drawn in turn, mode after mode: L^-T (L^-1 eta + x) with Lam = L L'.

    `normals(k, group)` gives the standard normal numbers (R, lanes) of each group of rows of mode k.
    """
    rows = rows.copy()
    for k in range(coords.shape[1]):
        for i in range(first[k], first[k + 1]):
            Lam, eta = conditional(i, k, coords, rows, free, sites, precision, prior)
            lower = np.linalg.cholesky(Lam)
            group, lane = divmod(i - first[k], 16)
            x = solve_triangular(lower, eta, lower=True) + normals(k, group)[: len(eta), lane]
            rows[i, free[k]] = solve_triangular(lower.T, x, lower=False)
    return rows
