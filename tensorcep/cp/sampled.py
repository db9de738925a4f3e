"""Entries that are chosen by a keyed hash of their cells, and problems of those that memory has room for.

Which entries are chosen depends on the key and on their coordinates, not on where they stand or how many others there
are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensorcep.core.scratch import on_scratch
from tensorcep.cp.extents import some_of
from tensorcep.cp.problem import Problem
from tensorcep.cp.stored import Columns, pieces
from tensorcep.kernels.slots import LANES

# Of more entries on scratch, so many are looked at for a start.
MOST_SAMPLED = 1 << 20
# Entries that show what is in a tensor: so many, and so many for every row, where each says as much as a real value.
ENOUGH, ENOUGH_OF_ROW = 1 << 18, 32


def chosen_by_hash(columns: Sequence[np.ndarray], share: float, key: int) -> np.ndarray:
    """Whether each cell, of whole numbers (n,) per mode, is among that share of all cells, (n,) bool."""
    mixed = np.full(len(columns[0]), np.uint64(key % 2**64))
    for column in columns:
        mixed = _scrambled(mixed ^ column.astype(np.uint64))
    return mixed < np.uint64(min(int(share * 2.0**64), 2**64 - 1))


def _scrambled(x: np.ndarray) -> np.ndarray:
    """A permutation of 64-bit numbers that leaves nothing of their order.

    Source: the mixing of SplitMix64 (Steele, Lea and Flood 2014).
    """
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def problem_in_memory(problem: Problem, without: np.ndarray | None = None) -> Problem:
    """A problem without the entries at some places; one on scratch with its entries, or a sample of them, in memory."""
    entries, n = problem.entries, len(problem.entries.permutation)
    if without is None and not on_scratch(entries.y):
        return problem
    few = not on_scratch(entries.y) or n <= MOST_SAMPLED
    places = np.arange(n) if few else _some_places(problem, MOST_SAMPLED / n)
    if without is not None:
        places = np.delete(places, without) if len(places) == n else np.setdiff1d(places, without)
    return some_of(problem, places)


def sampled_columns(source: Columns, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates (n, K) and values of entries on scratch in memory; of many a sample."""
    n, share = len(y), MOST_SAMPLED / max(1, len(y))
    places = np.arange(n)
    if n > MOST_SAMPLED:
        chosen = [
            at.start + np.flatnonzero(chosen_by_hash([c[at] for c in source.columns], share, 0)) for at in pieces(n)
        ]
        places = np.concatenate(chosen)
    return np.stack([column[places] for column in source.columns], axis=1).astype(np.int64), y[places]


def enough_entries(problem: Problem) -> Problem | None:
    """The problem of those of very many entries that are enough to find what is there; None where over half would be.

    A label says as much as p (1 - p) is beside 1/4, of the share of ones p; a count as much as its mean, or as a real
    value.
    """
    n = len(problem.entries.permutation)
    y, observes = problem.entries.y.ravel()[:n], problem.likelihood.observes
    says = 1.0
    if observes == "labels":
        ones = float(np.mean(y > 0.0))
        says = 4.0 * ones * (1.0 - ones)
    elif observes == "counts":
        says = min(1.0, float(y.mean()))
    enough = max(ENOUGH, ENOUGH_OF_ROW * sum(problem.shape))
    if 2.0 * enough > says * n:
        return None
    return some_of(problem, _some_places(problem, enough / (says * n)))


def _some_places(problem: Problem, share: float) -> np.ndarray:
    entries, n, found = problem.entries, len(problem.entries.permutation), []
    for at in pieces(n):
        blocks = entries.rows[at.start // LANES : -(-at.stop // LANES)]
        columns = [blocks[:, k].ravel()[: at.stop - at.start] for k in range(blocks.shape[1])]
        found.append(at.start + np.flatnonzero(chosen_by_hash(columns, share, problem.seed)))
    return np.concatenate(found)
