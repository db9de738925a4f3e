"""Rows that are coupled by any graph: systems of their joint precision by conjugate gradients, and exact draws by them.

A draw solves the system whose right side is perturbed by noise that has the precision for its covariance: of every
block, and of every edge, so many numbers. No factor of the whole precision is made.

Source: Papandreou and Yuille (2010), Gaussian sampling by local perturbations.
"""

from __future__ import annotations

import math

import numpy as np

from tensorcep.core.jit import block_kernel, kernel
from tensorcep.kernels.streams import normal, start_stream


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


@block_kernel
def _solve_lower(Lam, t, D, x):
    """x = L^-1 x."""
    for i in range(D):
        row = i * (i + 1) // 2
        total = x[i]
        for j in range(i):
            total -= Lam[t, row + j] * x[j]
        x[i] = total / Lam[t, row + i]


@block_kernel
def _solve_upper(Lam, t, D, x):
    """x = L^-T x."""
    for i in range(D - 1, -1, -1):
        row = i * (i + 1) // 2
        x[i] /= Lam[t, row + i]
        for j in range(i):
            x[j] -= Lam[t, row + j] * x[i]


@kernel
def perturb(Lam, rest, left, right, between, scale, key, out):
    """Add noise to out (n, D) whose covariance is the precision of the rows; whether all its parts are positive.

    Packed blocks Lam (n, P), beside them rest (n, D) on the diagonal; an edge e, (E,) and (E,), in the order of `left`,
    adds q (scale_i x_i - scale_j x_j)^2 / 2 with q scale_i scale_j = between_e, (E, D). `key` is (seed, sweep, what).
    """
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
    """z = the inverses of the blocks times r; gives the product of both."""
    n, D = r.shape
    total = 0.0
    for i in range(n):
        for a in range(D):
            x[a] = r[i, a]
        _solve_lower(roots, i, D, x)
        for a in range(D):
            total += x[a] * x[a]
        _solve_upper(roots, i, D, x)
        for a in range(D):
            z[i, a] = x[a]
    return total


@kernel
def solve_by_gradients(Lam, left, right, between, b, tol, most, x):
    """Solve for x (n, D), with the inverses of the diagonal blocks for a preconditioner; gives the number of steps.

    The packed blocks Lam (n, P) are whole; -1 where one is not positive definite or the steps are more than `most`.
    """
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
