"""Latent values: of all entries at row means, of cells in draws of the rows, and their moments under Gaussian rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.core.arrays import empty_near, leaves, sum_of_leaves, total
from tensorcep.core.compile import kernel
from tensorcep.core.executor import Executor, Rooms
from tensorcep.cp.model.entries import Entries, OfEach
from tensorcep.kernels.rank_update import padded, sums_at_cells
from tensorcep.kernels.rows import gather
from tensorcep.kernels.slots import LANES, axpy, dot_add, lane_zeros, multiply


@kernel
def latent_means(first, last, rows, mean, groups, f):
    """f[block, lane] = sum over columns of the product over their modes of mean (n_rows, Q), for blocks first:last."""
    # `groups` (G, 2 + K) are `FreeColumns.groups` (`tensorcep.cp.model.columns`)
    Q, K = mean.shape[1], rows.shape[1]
    product, total, one = K * Q, K * Q + Q, K * Q + Q + 1
    w = np.zeros((one + 1, LANES))
    w[one] = 1.0
    for b in range(first, last):
        for k in range(K):
            gather(rows[b, k], mean, w, k * Q)
        w[total] = 0.0
        for g in range(len(groups)):
            n, modes, at = groups[g, 0], groups[g, 1], groups[g, 2]
            if modes == 1:
                for r in range(n):
                    axpy(w, total, total, at + r, 1, one)
                continue
            for j in range(1, modes - 1):
                multiply(w, product, at, groups[g, 2 + j], n)
                at = product
            dot_add(w, total, at, groups[g, 1 + modes], n)
        for lane in range(LANES):
            f[b, lane] = w[total, lane]


@kernel
def latent_of_draws(values, coords, f):
    """f[s, n] = sum_r prod_k values[s, coords[n, k], r] for draws of all rows (S, n_rows, R) and entries (n, K)."""
    S, R = values.shape[0], values.shape[2]
    n, K = coords.shape
    product = np.empty(R)
    for s in range(S):  # all rows of one draw stay in the cache
        rows = values[s]
        for i in range(n):
            x, total = rows[coords[i, 0]], 0.0
            if K == 1:
                for r in range(R):
                    total += x[r]
                f[s, i] = total
                continue
            if K > 2:
                y = rows[coords[i, 1]]
                for r in range(R):
                    product[r] = x[r] * y[r]
                for k in range(2, K - 1):
                    y = rows[coords[i, k]]
                    for r in range(R):
                        product[r] *= y[r]
                x = product
            y = rows[coords[i, K - 1]]
            for r in range(R):
                total += x[r] * y[r]
            f[s, i] = total


@kernel
def latent_moments(coords, mean, cov, f, v):
    """Mean and variance of f at packed rows coords (n, K), for independent Gaussian rows."""
    # With M the product over modes of m m' and D the product of (S + m m') minus M (elementwise), adding mode k gives
    # D <- D (S_k + m_k m_k') + M S_k and M <- M m_k m_k'. The variance is the sum of D, a sum of positive semidefinite
    # matrices: nothing cancels, unlike in E[f^2] - E[f]^2.
    n, K = coords.shape
    R = mean.shape[1]
    product = np.empty(R)
    D = np.empty(cov.shape[1])
    for i in range(n):
        product[:] = 1.0
        D[:] = 0.0
        for k in range(K):
            m, s = mean[coords[i, k]], cov[coords[i, k]]
            p = 0
            for a in range(R):
                for b in range(a + 1):
                    D[p] = D[p] * (s[p] + m[a] * m[b]) + product[a] * product[b] * s[p]
                    p += 1
            for a in range(R):
                product[a] *= m[a]
        total, variance, p = 0.0, 0.0, 0
        for a in range(R):
            total += product[a]
            for _ in range(a):
                variance += 2.0 * D[p]
                p += 1
            variance += D[p]
            p += 1
        f[i] = total
        v[i] = variance


def latent_of_entries(entries: Entries, mean: np.ndarray, executor: Executor, groups: OfEach = None) -> np.ndarray:
    """The latent value of every entry, (n_blocks, LANES), 0 in padding lanes, at means of all columns or `groups`."""
    f = empty_near(entries.y)
    groups = _all_columns(entries, mean) if groups is None else groups
    executor.run(latent_means, 0, len(f), entries.rows, mean, groups, f)
    f *= entries.weight
    if len(entries.known):
        f += entries.known
    return f


def _all_columns(entries: Entries, mean: np.ndarray) -> np.ndarray:
    """The one group of columns (n_rows, R) that are free in all modes."""
    R, K = mean.shape[1], entries.rows.shape[1]
    return np.array([[R, K, *range(0, K * R, R)]])


def move_latent(
    f: np.ndarray, entries: Entries, mean: np.ndarray, executor: Executor, weight: np.ndarray | None = None
) -> float:
    """Move latent values f, as of `latent_of_entries`, to other row means; gives their `relative_change`."""
    # some move at a time, so that there is no second array of all
    n, blocks = f.size, [(a // LANES, b // LANES) for a, b in leaves(f.size)]
    room, squares, moves = np.empty((max((b - a for a, b in blocks), default=0), LANES)), [], []
    groups = _all_columns(entries, mean)
    for a, b in blocks:
        new = room[: b - a]
        executor.run(latent_means, 0, b - a, entries.rows[a:b], mean, groups, new)
        new *= entries.weight[a:b]
        if len(entries.known):
            new += entries.known[a:b]
        squares.append(np.add.reduce(_weigh(new.ravel() ** 2, weight, slice(a * LANES, b * LANES))))
        moves.append(np.add.reduce(_weigh((new - f[a:b]).ravel() ** 2, weight, slice(a * LANES, b * LANES))))
        f[a:b] = new
    return change_of_sums(sum_of_leaves(iter(moves), n), sum_of_leaves(iter(squares), n), n) if n else 0.0


def relative_change(new: np.ndarray, old: np.ndarray, weight: np.ndarray | None = None) -> float:
    """Root mean square change, relative to the new root mean square; by weights, which are like the numbers."""
    n, (now, before) = new.size, (new.ravel(), old.ravel())
    if not n:
        return 0.0
    moves = total(n, lambda at: _weigh((now[at] - before[at]) ** 2, weight, at))
    return change_of_sums(moves, total(n, lambda at: _weigh(now[at] ** 2, weight, at)), n)


def _weigh(numbers: np.ndarray, weight: np.ndarray | None, at: slice) -> np.ndarray:
    return numbers if weight is None else numbers * weight.ravel()[at]


def change_of_sums(moves: float, squares: float, n: int) -> float:
    """`relative_change` of n numbers from the sums of the squares of their moves, and of theirs."""
    return float(np.sqrt(moves / n) / max(np.sqrt(squares / n), np.finfo(float).tiny))


# Entries fewer of which are not worth a thread.
LEAST_OF_THREAD = 1 << 12


def latent_of_points(draws: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The latent value (S, n) at packed rows (n, K) in draws (S, n_rows, R) of all rows, float64 or float32."""
    n_rows, f = draws.shape[1], np.empty((len(draws), len(rows)))
    if rows.size < n_rows:
        used, places = np.unique(rows, return_inverse=True)
        places = places.reshape(rows.shape).astype(np.int32)
    else:
        seen = np.zeros(n_rows, dtype=bool)
        seen[rows] = True
        used, places = np.flatnonzero(seen), (np.cumsum(seen) - 1).astype(np.int32)[rows]
    sums_at_cells(draws, used, places, _table(len(used), draws.shape[2]), f)
    return f


class PackedCells(NamedTuple):
    """The packed rows of all lanes, for latent values that are asked for many times."""

    rows: np.ndarray  # (n_blocks * LANES, K) int32
    used: np.ndarray  # (n_rows,), all packed rows
    tables: Rooms  # in which threads keep the rows of one set of means


def cells_of(entries: Entries, R: int) -> PackedCells:
    """The cells of all entries, for means of R columns."""
    n_rows, (blocks, K, lanes) = int(entries.offsets[-1]), entries.rows.shape
    rows = np.ascontiguousarray(entries.rows.transpose(0, 2, 1)).reshape(blocks * lanes, K)
    return PackedCells(rows, np.arange(n_rows), Rooms(lambda: (_table(n_rows, R),)))


def latent_of_cells(cells: PackedCells, entries: Entries, mean: np.ndarray, executor: Executor) -> np.ndarray:
    """As `latent_of_entries`, a quarter of its time for 12 bytes per entry of a third order."""
    f = empty_near(entries.y)
    flat = f.reshape(1, -1)

    def sum_between(first: int, last: int, table: np.ndarray) -> None:
        sums_at_cells(mean[None], cells.used, cells.rows[first:last], table, flat[:, first:last])

    cells.tables.start()
    executor.run(sum_between, 0, f.size, align=LEAST_OF_THREAD, scratch=cells.tables)
    f *= entries.weight
    if len(entries.known):
        f += entries.known
    return f


def _table(n_rows: int, R: int) -> np.ndarray:
    """The table of `sums_at_cells` for so many rows of R columns."""
    table = lane_zeros((n_rows + 2, padded(R)))
    table[n_rows, :R] = 1.0
    return table
