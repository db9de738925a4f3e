"""The CP model, f = sum_r prod_k u^k[i_k, r]: entries in lanes, row moments, and moments of the latent value.

A matrix factorisation is the CP model of order 2. All modes are packed in one array of rows, so that one compiled
kernel serves every order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tensorcep._jit import block_kernel, kernel
from tensorcep.kernels.lanes import moments
from tensorcep.kernels.slots import LANES, dot, multiply, tile_add, tile_in
from tensorcep.posterior import offsets

# Partial sums over chunks of entries make the result independent of the number of threads. They may take at most this
# fraction of the memory of the messages, which also bounds the time to add them up.
PARTIAL_FRACTION = 0.25
MAX_CHUNKS = 16
MIN_BLOCKS_PER_CHUNK = 64


class Entries(NamedTuple):
    """Observed entries in blocks of LANES, in the order of their coordinates.

    Attributes
    ----------
    rows : (n_blocks, K, LANES) int32
        Packed row of each mode (see `tensorcep.posterior`). Padding lanes point at row 0.
    y : (n_blocks, LANES) float64
    weight : (n_blocks, LANES) float64
        1 for an entry, 0 for padding.
    chunk_start : (C + 1,) int64
        Blocks of chunk c are chunk_start[c]:chunk_start[c + 1].
    permutation : (N,) int64
        Entry of the input that lane n holds.
    offsets : (K + 1,) int64
        First packed row of each mode.
    """

    rows: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    chunk_start: np.ndarray
    permutation: np.ndarray
    offsets: np.ndarray


def pack_entries(coords: np.ndarray, y: np.ndarray, shape: Sequence[int]) -> Entries:
    """Sort entries by coordinate and lay them out in lanes.

    Sorting makes rows of the first mode local in memory, and the result independent of the order of the input.
    """
    n, order = coords.shape
    first = offsets(shape)
    permutation = np.lexsort(coords.T[::-1])
    n_blocks = -(-n // LANES)
    padded = np.zeros((n_blocks * LANES, order), dtype=np.int32)
    np.add(coords[permutation], first[:-1], out=padded[:n], casting="unsafe")
    values = np.zeros(n_blocks * LANES)
    values[:n] = y[permutation]
    weight = np.zeros(n_blocks * LANES)
    weight[:n] = 1.0
    rows = np.ascontiguousarray(padded.reshape(n_blocks, LANES, order).transpose(0, 2, 1))
    budget = int(PARTIAL_FRACTION * n * order / max(1, first[-1]))
    n_chunks = max(1, min(MAX_CHUNKS, budget, n_blocks // MIN_BLOCKS_PER_CHUNK))
    chunk_start = np.linspace(0, n_blocks, n_chunks + 1).astype(np.int64)
    lanes = (n_blocks, LANES)
    return Entries(rows, values.reshape(lanes), weight.reshape(lanes), chunk_start, permutation, first)


class RowBlocks(NamedTuple):
    """The entries of every row of one mode, in blocks of LANES that belong to one row each.

    Attributes
    ----------
    first : int
        First packed row of the mode.
    start : (n_k + 1,) int64
        Blocks of row i are start[i]:start[i + 1]; none for a row without entries.
    rows : (n_blocks, K - 1, LANES) int32
        Packed rows of the other modes; padding lanes point at one row past the last.
    index : (n_blocks, LANES) int32
        Position of the entry in `Entries`, flat; padding lanes point at one position past the last.
    """

    first: int
    start: np.ndarray
    rows: np.ndarray
    index: np.ndarray


def row_blocks(entries: Entries, k: int) -> RowBlocks:
    """Lay out the entries row by row of mode k, so that sums over a row's entries stay in registers."""
    n, n_rows = len(entries.permutation), int(entries.offsets[-1])
    flat = entries.rows.transpose(0, 2, 1).reshape(-1, entries.rows.shape[1])[:n]
    first, last = int(entries.offsets[k]), int(entries.offsets[k + 1])
    row = flat[:, k] - first
    counts = np.bincount(row, minlength=last - first)
    start = np.concatenate([[0], np.cumsum(-(-counts // LANES))]).astype(np.int64)
    order = np.argsort(row, kind="stable")
    rank = np.arange(n) - np.repeat(np.cumsum(counts) - counts, counts)
    place = start[row[order]] * LANES + rank
    others = np.full((start[-1] * LANES, flat.shape[1] - 1), n_rows, dtype=np.int32)
    others[place] = np.delete(flat[order], k, axis=1)
    index = np.full(start[-1] * LANES, entries.y.size, dtype=np.int32)
    index[place] = order
    others = np.ascontiguousarray(others.reshape(-1, LANES, flat.shape[1] - 1).transpose(0, 2, 1))
    return RowBlocks(first, start, others, index.reshape(-1, LANES))


@block_kernel
def gather(rows, source, w, slot):  # type: ignore[no-untyped-def]
    """Slots w[slot + p] = source[rows[lane], p] for the lanes of one block and every column p."""
    width = source.shape[1]
    tiled = width - width % 4
    for lane in range(0, LANES, 4):
        f0, f1, f2, f3 = rows[lane] * width, rows[lane + 1] * width, rows[lane + 2] * width, rows[lane + 3] * width
        for p in range(0, tiled, 4):
            tile_in(w, slot + p, lane, source, f0 + p, f1 + p, f2 + p, f3 + p)
    for p in range(tiled, width):
        for lane in range(LANES):
            w[slot + p, lane] = source[rows[lane], p]


@block_kernel
def scatter_add(rows, values, total):  # type: ignore[no-untyped-def]
    """total[rows[lane], p] += values[p, lane] for the lanes of one block and every column p."""
    width = total.shape[1]
    tiled = width - width % 4
    for lane in range(0, LANES, 4):
        f0, f1, f2, f3 = rows[lane] * width, rows[lane + 1] * width, rows[lane + 2] * width, rows[lane + 3] * width
        for p in range(0, tiled, 4):
            tile_add(total, f0 + p, f1 + p, f2 + p, f3 + p, values, p, lane)
    for p in range(tiled, width):
        for lane in range(LANES):
            total[rows[lane], p] += values[p, lane]


@kernel
def row_moments(first, last, Lam, eta, mean, cov, good):  # type: ignore[no-untyped-def]
    """Mean (n_rows, R) and packed covariance (n_rows, P) of rows first:last; good[i] = 0 where Lam is not positive."""
    R, P = eta.shape[1], Lam.shape[1]
    a, s, t, m, inv_diag, ok, vt = 0, P, 2 * P, 2 * P + R, 2 * P + 2 * R, 2 * P + 3 * R, 2 * P + 3 * R + 1
    w = np.zeros((vt + R * R, LANES))
    index = np.empty(LANES, dtype=np.int32)
    for block in range(first, last, LANES):
        for lane in range(LANES):
            index[lane] = min(block + lane, last - 1)
            w[ok, lane] = 1.0
        gather(index, Lam, w, a)
        gather(index, eta, w, t)
        moments(w, a, t, s, m, vt, inv_diag, ok, R)
        for lane in range(min(LANES, last - block)):
            i = block + lane
            good[i] = w[ok, lane]
            for p in range(P):
                cov[i, p] = w[s + p, lane]
            for r in range(R):
                mean[i, r] = w[m + r, lane]


@kernel
def latent_means(first, last, rows, mean, f):  # type: ignore[no-untyped-def]
    """f[block, lane] = sum_r prod_k mean[row_k, r] for the blocks first:last."""
    R, K = mean.shape[1], rows.shape[1]
    w = np.zeros((2 * R, LANES))
    for b in range(first, last):
        gather(rows[b, 0], mean, w, 0)
        for k in range(1, K):
            gather(rows[b, k], mean, w, R)
            if k < K - 1:
                multiply(w, 0, w, 0, w, R, R, w, 0)
        dot(f, b, w, 0, w, R, R, w, 0)


@kernel
def latent_moments(coords, mean, cov, f, v):  # type: ignore[no-untyped-def]
    """Mean and variance of f at packed rows coords (n, K), for independent Gaussian rows.

    With M the product over modes of m m' and D the product of (S + m m') minus M (elementwise), adding mode k gives
    D <- D (S_k + m_k m_k') + M S_k and M <- M m_k m_k'. The variance is the sum of D, a sum of positive semidefinite
    matrices: nothing cancels, unlike in E[f^2] - E[f]^2.
    """
    n, K = coords.shape
    R = mean.shape[1]
    product = np.empty(R)
    D = np.empty(cov.shape[1])
    for i in range(n):
        product[:] = 1.0
        D[:] = 0.0
        for k in range(K):
            m = mean[coords[i, k]]
            s = cov[coords[i, k]]
            p = 0
            for a in range(R):
                for b in range(a + 1):
                    D[p] = D[p] * (s[p] + m[a] * m[b]) + product[a] * product[b] * s[p]
                    p += 1
            for a in range(R):
                product[a] *= m[a]
        total = 0.0
        variance = 0.0
        p = 0
        for a in range(R):
            total += product[a]
            for _ in range(a):
                variance += 2.0 * D[p]
                p += 1
            variance += D[p]
            p += 1
        f[i] = total
        v[i] = variance
