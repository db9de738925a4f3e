"""Regressions of every mode of a CP model on the others, all rows of a mode at once, for a start from spectra."""

from __future__ import annotations

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.cp.model import entries_by_row, pack_entries, sum_chunks


def penalty_of(n_numbers: int, N: int, K: int) -> float:
    """The penalty that just sends a component to zero that has fitted this many numbers to noise alone."""
    # its size is that of the noise in the core, s; K penalty s^(2 / K) outweighs the s^2 that it explains
    return float((n_numbers / N) ** (1.0 - 1.0 / K) / K)


def regress(
    factors: list[np.ndarray], coords: np.ndarray, values: np.ndarray, sweeps: int, executor: Executor
) -> list[np.ndarray]:
    """Sweeps of regressions of each mode on the others.

    All rows of a mode share one Gram matrix, what it would be were every cell as likely to be observed as its rows say;
    so a sweep costs N R additions, and no row with few entries runs away.
    """
    N, K = coords.shape
    rank = factors[0].shape[1]
    count = [np.maximum(np.bincount(coords[:, k], minlength=len(factors[k])), 1)[:, None] for k in range(K)]
    penalty = penalty_of(sum(int(np.count_nonzero(factor.any(1))) for factor in factors), N, K) * np.eye(rank)
    entries = pack_entries(coords, values, [len(factor) for factor in factors])
    by_row, first = entries_by_row(entries, executor=executor), entries.offsets
    source = np.concatenate(factors)
    sums = np.empty_like(source)
    record = ((entries.y.ravel(), source, sums),)
    for _ in range(sweeps):
        for k in range(K):
            gram = np.prod([factors[j].T @ (count[j] * factors[j]) / N for j in range(K) if j != k], axis=0)
            cuts = by_row.chunks[k]
            executor.run(sum_chunks, 0, len(cuts) - 1, cuts, by_row, record, scratch=lambda: (np.empty(rank),))
            right = sums[first[k] : first[k + 1]] / count[k]
            factors[k] = np.linalg.lstsq(gram + penalty, right.T, rcond=None)[0].T
            source[first[k] : first[k + 1]] = factors[k]
    return factors
