"""A component by many quick starts, where spectra show nothing.

Least squares of one component, mode after mode, end at a product of rows that follows the noise from nearly all random
starts, where rows have few entries; from one in some hundreds they end at one that is there. A sweep over a few
thousand entries takes microseconds, so hundreds of starts are tried: all of them shortly, with a penalty that keeps
what few entries say small, then those that explain most for longer, and the best is taken. Whether it is real is for
entries to say that took no part (`tensorcep.cp.init.spectral`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from tensorcep.core.compile import block_kernel
from tensorcep.core.executor import Executor
from tensorcep.core.packing import offsets
from tensorcep.core.random import new_stream, normal, start_stream

# Fewer entries than so many for each row tell nothing of them.
PER_ROW = 2.0
# Visits of an entry in one mode that all starts together may take (a fifth of a second), and how many starts: with
# fewer than the least nothing would be found.
VISITS, LEAST_STARTS, MOST_STARTS = 1e8, 300, 1000
# Sweeps from every start that is left, the penalty of rows from first to last, and one of how many goes on.
STAGES = ((15, 20.0, 5.0, 16), (40, 5.0, 1.5, 1))


def climb(
    coords: np.ndarray, values: np.ndarray, shape: Sequence[int], rng: np.random.Generator, executor: Executor
) -> list[np.ndarray] | None:
    """Factors [(n_k, 1)] of one component of values (N,), each of root mean square 1 over its rows with entries."""
    # none of many entries, or of fewer than PER_ROW a row; values are to have mean 0 and variance 1
    N, K = coords.shape
    each = sum(sweeps / np.prod([one_of for *_, one_of in STAGES[:i]]) for i, (sweeps, *_) in enumerate(STAGES))
    n_starts = int(min(MOST_STARTS, VISITS / max(1.0, N * K * each)))
    if n_starts < LEAST_STARTS or PER_ROW * sum(shape) > N:
        return None
    first = np.asarray(offsets(shape), dtype=np.int64)
    n_rows, rows, seed = int(first[-1]), (coords + first[:-1]).astype(np.int64), int(rng.integers(1 << 31))
    starts = np.empty((n_starts, n_rows))
    executor.run(_draw_starts, 0, n_starts, seed, starts, scratch=lambda: (new_stream(),))
    for *how, one_of in STAGES:
        explained = np.empty(len(starts))
        record = (rows, values, first, *how, starts, explained)
        executor.run(_climb_from, 0, len(starts), *record, scratch=lambda: (np.empty((2, n_rows)),))
        starts = starts[np.argsort(-explained, kind="stable")[: max(1, len(starts) // one_of)]]
    return [starts[0, a:b, None].copy() for a, b in itertools.pairwise(first.tolist())]


@block_kernel
def _draw_starts(begin, end, seed, starts, s):
    """Standard normal rows of the starts begin:end."""
    for start in range(begin, end):
        start_stream(s, seed, 0, start)
        for i in range(starts.shape[1]):
            starts[start, i] = normal(s)


@block_kernel
def _explained(rows, values, u):
    """The share of the sum of squares of the values that the products of these rows explain."""
    along, square, total = 0.0, 0.0, 0.0
    for e in range(len(values)):
        z = 1.0
        for k in range(rows.shape[1]):
            z *= u[rows[e, k]]
        along += z * values[e]
        square += z * z
        total += values[e] * values[e]
    return along * along / (square * total) if square > 0.0 and total > 0.0 else 0.0


@block_kernel
def _climb_from(begin, end, rows, values, first, sweeps, most, least, starts, explained, room):
    """Sweeps of least squares from the starts begin:end, in place, and the shares that they then explain."""
    by, of = room[0], room[1]
    for start in range(begin, end):
        u = starts[start]
        for sweep in range(sweeps):
            penalty = most * (least / most) ** (sweep / max(1, sweeps - 1))
            for k in range(rows.shape[1]):
                _update(k, rows, values, first, penalty, u, by, of)
        explained[start] = _explained(rows, values, u)


@block_kernel
def _update(k, rows, values, first, penalty, u, by, of):
    """The rows of mode k by least squares given the others, of root mean square 1; rows without entries are 0."""
    by[first[k] : first[k + 1]] = 0.0
    of[first[k] : first[k + 1]] = 0.0
    for e in range(len(values)):
        z = 1.0
        for j in range(rows.shape[1]):
            if j != k:
                z *= u[rows[e, j]]
        by[rows[e, k]] += z * values[e]
        of[rows[e, k]] += z * z
    square, n = 0.0, 0
    for i in range(first[k], first[k + 1]):
        if of[i] > 0.0:
            step = by[i] / (of[i] + penalty)
            square += step * step
            n += 1
    scale = (n / square) ** 0.5 if square > 0.0 else 0.0
    for i in range(first[k], first[k + 1]):
        u[i] = scale * by[i] / (of[i] + penalty) if of[i] > 0.0 else 0.0
