"""Mean field for real values on scratch: sums and latent values a piece of the entries after the other.

Latent values are not kept: those of the sweep before are computed again beside the new ones, from the rows as they
were. The sums of the first mode, which depend on the other modes alone, are taken for the next sweep in the same pass,
so that a sweep reads every list of entries once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.arrays import RunningSum, on_scratch, read_ahead
from tensorcep.core.executor import Executor
from tensorcep.cp.model.columns import FreeColumns
from tensorcep.cp.model.entries import EntriesByRow
from tensorcep.cp.model.latent import latent_means, latent_of_groups
from tensorcep.cp.model.memmap import READ, StoredTargets, sum_stored, taken_off
from tensorcep.cp.model.problem import Problem
from tensorcep.kernels.slots import LANES
from tensorcep.likelihoods.augmentation import Augmentation

# Blocks of entries whose latent values are computed at a time.
BLOCKS = 8 * READ // LANES


class StoredSums(NamedTuple):
    """What a fit to entries on scratch knows beside its state.

    Attributes
    ----------
    shift : float
        What was taken off the values.
    squares : float
        The sum of the squares of the values.
    ahead : bool
        Whether the sums of the first mode are those of the next sweep already.
    """

    shift: float
    squares: float
    ahead: bool = False


def stored_sums(problem: Problem, augmentation: Augmentation | None) -> StoredSums | None:
    """What is known at the beginning; None for entries in memory."""
    y = problem.entries.y
    if not on_scratch(y) or augmentation is not None:
        return None
    return StoredSums(taken_off(problem.likelihood), float(np.einsum("bl,bl->", y, y)))


def sum_mode(k: int, by_row: EntriesByRow, shift: float, sums: tuple[Any, ...], executor: Executor) -> None:
    """Sums (of values, source, out) over the entries of the rows of mode k."""
    chunks, width = by_row.chunks[k], max(source.shape[1] for _, source, _ in sums)
    record = (chunks, by_row, sums, shift)
    executor.run(sum_stored, 0, len(chunks) - 1, *record, scratch=lambda: (np.empty(width),))


class SweepReport(NamedTuple):
    """The change of the latent values, relative to them, and the mean log likelihood of the entries at the new ones."""

    change: float
    score: float


def tell(
    means: tuple[np.ndarray, np.ndarray],
    columns: FreeColumns,
    by_row: EntriesByRow,
    sums: tuple[Any, ...],
    theta: float,
    problem: Problem,
    executor: Executor,
) -> SweepReport:
    """What a sweep reports, at the `means` of the rows after it and before it; takes the `sums` of the first mode."""
    n, n_blocks = len(problem.entries.permutation), len(problem.entries.y)
    size, moved, score = RunningSum(n_blocks * LANES), RunningSum(n_blocks * LANES), RunningSum(n)
    shift, summed = taken_off(problem.likelihood), 0
    for b in range(0, n_blocks, BLOCKS):
        first, last = b * LANES, min(n, (b + BLOCKS) * LANES)
        rows = _rows_in_lanes(first, last, by_row)
        for part in (by_row.others, by_row.value):
            read_ahead(part, last, min(n, last + BLOCKS * LANES))
        new, old = (_latent(rows, mean, columns, last - first, executor) for mean in means)
        size.add(new**2)
        moved.add((new - old) ** 2)
        y, f = StoredTargets(by_row.value, shift).at(first, last), new[: last - first]
        value, d1, d2 = np.empty_like(f), np.empty_like(f), np.empty_like(f)
        problem.likelihood.loglik(np.ascontiguousarray(y), f, np.full_like(f, theta), value, d1, d2)
        score.add(value)
        whole = int(np.searchsorted(by_row.start[: problem.shape[0] + 1], last, side="right")) - 1
        if whole > summed:
            _sum_rows(summed, whole, by_row, sums, shift, executor)
            summed = whole
    scale = max(np.sqrt(size.sum / (n_blocks * LANES)), np.finfo(float).tiny)
    return SweepReport(float(np.sqrt(moved.sum / (n_blocks * LANES)) / scale), score.sum / n)


def _sum_rows(
    first: int, last: int, by_row: EntriesByRow, sums: tuple[Any, ...], shift: float, executor: Executor
) -> None:
    """The sums of the rows first:last, cut for threads at whole rows of about as many entries."""
    cuts = np.searchsorted(by_row.start[: last + 1], np.linspace(by_row.start[first], by_row.start[last], 9))
    cuts = np.unique([first, *np.clip(cuts, first, last), last])
    width = max(source.shape[1] for _, source, _ in sums)
    executor.run(sum_stored, 0, len(cuts) - 1, cuts, by_row, sums, shift, scratch=lambda: (np.empty(width),))


def _rows_in_lanes(first: int, last: int, by_row: EntriesByRow) -> np.ndarray:
    """The packed rows of the entries first:last, whole blocks (n, K, LANES) but the last."""
    n, others = -(-(last - first) // LANES), by_row.others[first:last]
    rows = np.zeros((n * LANES, others.shape[1] + 1), dtype=np.int32)
    a = int(np.searchsorted(by_row.start, first, side="right")) - 1
    b = int(np.searchsorted(by_row.start, last, side="left"))
    count = np.diff(np.clip(by_row.start[a : b + 1], first, last))
    rows[: last - first, 0] = np.repeat(np.arange(a, b, dtype=np.int32), count)
    rows[: last - first, 1:] = others
    return np.ascontiguousarray(rows.reshape(n, LANES, -1).transpose(0, 2, 1))


def _latent(rows: np.ndarray, mean: np.ndarray, columns: FreeColumns, n: int, executor: Executor) -> np.ndarray:
    """Latent values of n entries at row means (n_rows, Q), and 0 up to a whole block."""
    f = np.empty((len(rows), LANES))
    if columns.any_clamped:
        executor.run(latent_of_groups, 0, len(f), rows, mean, columns.groups, f)
    else:
        executor.run(latent_means, 0, len(f), rows, mean, f)
    flat = f.ravel()
    flat[n:] = 0.0
    return flat
