"""The compiled passes of Polya-Gamma variational inference: the rows of one mode, and the entries' moments.

With z and Z2 the elementwise products of the other modes' means and second moments, entry n says of a row: precision
E[omega_n] Z2_n and natural mean kappa_n z_n, where q(omega_n) = PG(count_n, xi_n), xi_n^2 = E[f_n^2].
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tensorcep.core.jit import block_kernel
from tensorcep.kernels.lanes import add_outer, moments, trace_product
from tensorcep.kernels.polya_gamma import pg_mean
from tensorcep.kernels.rows import gather
from tensorcep.kernels.slots import LANES, axpy, copy, dot, multiply


class Beliefs(NamedTuple):
    """Moments of the rows, padded for `gather`: mean (n_rows + 1, .) and second moment E[u u'] (n_rows + 1, .), packed.

    The last row is zero, for padding lanes.
    """

    mean: np.ndarray
    second: np.ndarray


class Slots(NamedTuple):
    """Where things lie in the work array of one thread (slots of one lane array; see `layout`)."""

    z: int
    other_z: int
    Z2: int
    other_Z2: int
    m: int
    G: int
    sums: int
    A: int
    S: int
    vt: int
    inv_diag: int
    ok: int
    omega: int
    kappa: int
    spare: int
    size: int


def widths(R: int) -> tuple[int, int]:
    """Columns of means and of packed second moments, in whole tiles of `gather`."""
    return -(-R // 4) * 4, -(-(R * (R + 1) // 2) // 4) * 4


def layout(R: int) -> Slots:
    """Slots of the work array for rank R."""
    P, (narrow, wide) = R * (R + 1) // 2, widths(R)
    Z2 = 2 * narrow
    m = Z2 + 2 * wide
    sums = m + R + P
    A = sums + P + R
    S = A + P + R
    vt = S + P
    inv_diag = vt + R * R
    ok = inv_diag + R
    return Slots(
        0, narrow, Z2, Z2 + wide, m, m + R, sums, A, S, vt, inv_diag, ok, ok + 1, ok + 2, ok + 3, ok + 4
    )  # fmt: skip


@block_kernel
def _products(rows, n_modes, q, w, at, R):
    """z and Z2 over the modes whose rows are rows[0:n_modes]."""
    P = R * (R + 1) // 2
    gather(rows[0], q.mean, w, at.z)
    gather(rows[0], q.second, w, at.Z2)
    for k in range(1, n_modes):
        gather(rows[k], q.mean, w, at.other_z)
        gather(rows[k], q.second, w, at.other_Z2)
        multiply(w, at.z, w, at.z, w, at.other_z, R, w, 0)
        multiply(w, at.Z2, w, at.Z2, w, at.other_Z2, P, w, 0)


@block_kernel
def _sum_row(i, lane_of_row, blocks, q, count, kappa, w, at, R):
    """Sums of E[omega] Z2 and kappa z over the entries of row i, to one lane of A."""
    P = R * (R + 1) // 2
    row = blocks.first + i
    for r in range(R):
        w[at.m + r] = q.mean[row, r]
    for p in range(P):
        w[at.G + p] = q.second[row, p]
    w[at.sums : at.sums + P + R] = 0.0
    for b in range(blocks.start[i], blocks.start[i + 1]):
        index = blocks.entry[b]
        _products(blocks.rows[b], blocks.rows.shape[1], q, w, at, R)
        trace_product(w, at.Z2, at.G, at.omega, R)
        for lane in range(LANES):
            w[at.kappa, lane] = kappa[index[lane]]
            w[at.omega, lane] = pg_mean(count[index[lane]], math.sqrt(max(0.0, w[at.omega, lane])))
        axpy(w, at.sums, w, at.sums, w, at.Z2, P, w, at.omega)
        axpy(w, at.sums + P, w, at.sums + P, w, at.z, R, w, at.kappa)
    for p in range(P + R):
        total = 0.0
        for lane in range(LANES):
            total += w[at.sums + p, lane]
        w[at.A + p, lane_of_row] = total


@block_kernel
def update_rows(first, last, blocks, q, count, kappa, prior_Lam, prior_eta, power, Lam, eta, w, at):
    """Set the rows first:last of one mode to the optimum given the others; every entry counts `power` times."""
    R, P = eta.shape[1], Lam.shape[1]
    for group in range(first, last, LANES):
        used = min(LANES, last - group)
        w[at.ok] = 1.0
        for lane in range(LANES):
            i = group + min(lane, used - 1)
            row = blocks.first + i
            if lane < used:
                _sum_row(i, lane, blocks, q, count, kappa, w, at, R)
                for p in range(P):
                    Lam[row, p] = prior_Lam[row, p] + power * w[at.A + p, lane]
                for r in range(R):
                    eta[row, r] = prior_eta[row, r] + power * w[at.A + P + r, lane]
            for p in range(P):
                w[at.A + p, lane] = Lam[row, p]
            for r in range(R):
                w[at.A + P + r, lane] = eta[row, r]
        moments(w, at.A, at.A + P, at.S, at.m, at.vt, at.inv_diag, at.ok, R)
        add_outer(w, at.S, at.m, at.m, at.G, R)
        _store_rows(group, used, blocks.first, q, w, at, R)


@block_kernel
def _store_rows(group, used, offset, q, w, at, R):
    """Write the moments of one group of rows."""
    for lane in range(used):
        row = offset + group + lane
        if w[at.ok, lane] > 0.0:
            for r in range(R):
                q.mean[row, r] = w[at.m + r, lane]
            for p in range(R * (R + 1) // 2):
                q.second[row, p] = w[at.G + p, lane]


@block_kernel
def entry_moments(first, last, rows, q, f, xi, w, at, R):
    """f = E[f] and xi = sqrt(E[f^2]) of the entries of the blocks first:last."""
    K = rows.shape[1]
    for b in range(first, last):
        _products(rows[b], K - 1, q, w, at, R)
        gather(rows[b, K - 1], q.mean, w, at.other_z)
        gather(rows[b, K - 1], q.second, w, at.other_Z2)
        dot(f, b, w, at.z, w, at.other_z, R, w, 0)
        trace_product(w, at.Z2, at.other_Z2, at.spare, R)
        for lane in range(LANES):
            w[at.spare, lane] = math.sqrt(max(0.0, w[at.spare, lane]))
        copy(xi, b, w, at.spare, w, 0, 1, w, 0)
