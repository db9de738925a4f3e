"""The best rows of one mode for combinations of rows of the others: products of matrices, block by block.

For a row w of products over the other modes the latent value of row u is w'u, so that a block of combinations needs one
matrix product for means. Of a Gaussian belief the variance is one more: with D the covariance of w, S that of u,

    var = sum over pairs of columns of (D + w w') * S + D * (m m'),

whose terms are all positive semidefinite (`tensorcep.cp.model.latent.latent_moments`). Draws have no variance of their own:
theirs is taken over the draws.

How alike two rows of a mode are: the cosine of what they say of all combinations of the other modes.

Row u has the latent value u'z at a combination with the product z of the other modes' rows. Over all combinations of
rows that have entries the inner product of two rows is u'Gv, where G is the elementwise product of the other modes'
mean second moments: a number that neither the order, the signs and scales of components nor a rotation changes. Rows
are centred first, so that the cosine is that of what sets them apart from the average row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.core.components import Components, draw_rows
from tensorcep.core.executor import Executor
from tensorcep.core.packing import unpack
from tensorcep.cp.fitted.alignment import TINY, Layout
from tensorcep.kernels.best import best_of_rows

# Scores that exist at a time.
BLOCK = 1 << 22
MOST_QUERIES = 1 << 12


class Ranked(NamedTuple):
    """What to rank, for which combinations.

    Attributes
    ----------
    candidates : slice
        The packed rows of the mode that is ranked.
    others : tuple of (n_k,) int64
        Packed rows of each other mode, in the order of the modes; every combination of them is a query.
    left_out : tuple of int64 arrays (start, stop, column)
        Query q has no use for the candidates column[start[q]:stop[q]], counted from the first one.
    z : float
        A row's score is its mean plus so many standard deviations; if infinite, its standard deviation.
    """

    candidates: slice
    others: tuple[np.ndarray, ...]
    left_out: tuple[np.ndarray, np.ndarray, np.ndarray]
    z: float

    @property
    def sizes(self) -> tuple[int, ...]:
        """Rows of each other mode."""
        return tuple(len(rows) for rows in self.others)

    def rows_of(self, queries: np.ndarray) -> np.ndarray:
        """Packed rows (q, K - 1) of the other modes."""
        at = np.unravel_index(queries, self.sizes) if self.sizes else ()
        columns = [rows[i] for rows, i in zip(self.others, at, strict=True)]
        return np.stack(columns, axis=1) if columns else np.zeros((len(queries), 0), dtype=np.int64)


def best_rows(belief: Components, ranked: Ranked, n: int, executor: Executor) -> np.ndarray:
    """The n best candidates of every query, (n_queries, n), counted from the first one; -1 where there are no more."""
    total, size = int(np.prod(ranked.sizes)), ranked.candidates.stop - ranked.candidates.start
    best = np.empty((total, min(n, size)), dtype=np.int64)
    step = int(np.clip(BLOCK // size, 1, MOST_QUERIES))
    start, stop, column = ranked.left_out
    targets = _targets(belief, ranked)
    for first in range(0, total, step):
        queries = np.arange(first, min(total, first + step))
        scores = _scores(belief, ranked, queries, targets)
        own = best[queries[0] : queries[-1] + 1]
        executor.run(best_of_rows, 0, len(own), scores, start[queries], stop[queries], column, own)
    return best


def _targets(belief: Components, ranked: Ranked) -> list[np.ndarray]:
    """What the candidates bring to the variance in every Gaussian, (2 P, n) each: S and m m', off-diagonals twice."""
    if belief.cov is None or not ranked.z:
        return []
    i, j = np.tril_indices(belief.mean.shape[2])
    twice = np.where(i == j, 1.0, 2.0)
    pairs = [
        (cov[ranked.candidates] * twice, mean[ranked.candidates][:, i] * mean[ranked.candidates][:, j] * twice)
        for mean, cov in zip(belief.mean, belief.cov, strict=True)
    ]
    return [np.ascontiguousarray(np.concatenate(pair, axis=1).T) for pair in pairs]


def _scores(belief: Components, ranked: Ranked, queries: np.ndarray, targets: list[np.ndarray]) -> np.ndarray:
    """Scores (q, n) of the candidates: of the mean over components, and of what they say of its uncertainty."""
    rows, C = ranked.rows_of(queries), belief.size
    mean = np.zeros((len(rows), ranked.candidates.stop - ranked.candidates.start))
    if not ranked.z:
        for c in range(C):
            mean += _means(belief, c, rows) @ belief.mean[c, ranked.candidates].T
        return mean
    spread, within = np.zeros_like(mean), np.zeros_like(mean)
    for c in range(C):  # a running mean, so that nothing cancels
        w = _means(belief, c, rows)
        off = w @ belief.mean[c, ranked.candidates].T - mean
        mean += off / (c + 1)
        spread += off * off * (c / (c + 1))
        if targets:
            within += _spreads(belief, c, rows, w) @ targets[c]
    doubt = 0.0 if belief.cov is None or belief.doubt is None else float(belief.doubt.sum())
    sd = np.sqrt((within + spread + doubt) / C)
    return np.asarray(sd if np.isinf(ranked.z) else mean + ranked.z * sd)


def _means(belief: Components, c: int, rows: np.ndarray) -> np.ndarray:
    """Products of the means of the other modes, (q, R)."""
    product = np.ones((len(rows), belief.mean.shape[2]))
    for own in rows.T:
        product *= belief.mean[c, own]
    return product


def _spreads(belief: Components, c: int, rows: np.ndarray, w: np.ndarray) -> np.ndarray:
    """D + w w' and D of the products of the other modes, packed, (q, 2 P)."""
    if belief.cov is None:
        raise TypeError("points have no spread")
    i, j = np.tril_indices(belief.mean.shape[2])
    D, product = np.zeros((len(rows), len(i))), np.ones((len(rows), len(i)))
    for own in rows.T:
        m = belief.mean[c, own]
        square = m[:, i] * m[:, j]
        D = D * (belief.cov[c, own] + square) + product * belief.cov[c, own]
        product *= square
    return np.concatenate([D + w[:, i] * w[:, j], D], axis=1)


def matches(queries: np.ndarray, keys: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which candidates every query leaves out, as `Ranked` has it.

    Parameters
    ----------
    queries : (q,) int64
        The key of each query.
    keys, columns : (m,) int64
        What is left out: a candidate of all queries with this key.
    """
    order = np.argsort(keys, kind="stable")
    keys, columns = keys[order], np.ascontiguousarray(columns[order])
    return np.searchsorted(keys, queries, "left"), np.searchsorted(keys, queries, "right"), columns


# Draws of Gaussian rows from which the uncertainty of cosines is taken.
DRAWS = 400


def cosines(belief: Components, layout: Layout, mode: int, row: int) -> np.ndarray:
    """Cosine of one packed row with every row of its mode, (n_k,): the mean over components, at their means."""
    own, total = layout.rows[mode], np.zeros(layout.rows[mode].stop - layout.rows[mode].start)
    for c in range(belief.size):
        G, centre, columns = _metric(belief, c, layout, mode)
        U = belief.mean[c, own][:, columns] - centre
        total += _cosine(U, U[row - own.start], G)
    return total / belief.size


def drawn_cosines(
    belief: Components, layout: Layout, mode: int, row: int, others: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Draws (S, m) of the cosines of one packed row with others (m,)."""
    both, drawn = np.array([row, *others]), []
    for c in range(belief.size):
        G, centre, columns = _metric(belief, c, layout, mode)
        if belief.cov is None:
            draws = belief.mean[c, both][None].astype(np.float64)
        else:
            draws = draw_rows(belief.mean[c, both], belief.cov[c, both], -(-DRAWS // belief.size), rng)
        drawn += [_cosine(U[1:], U[0], G) for U in draws[:, :, columns] - centre]
    return np.stack(drawn)


def _metric(belief: Components, c: int, layout: Layout, mode: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """G, the mean row, and the columns of the mode."""
    columns = np.array([r for b in layout.blocks if mode in b.modes for r in range(b.columns.start, b.columns.stop)])
    G = np.ones((len(columns), len(columns)))
    for k, seen in enumerate(layout.seen):
        if k != mode and len(seen):
            m = belief.mean[c, seen].astype(np.float64)
            second = m.T @ m / len(seen)
            if belief.cov is not None:
                second += unpack(belief.cov[c, seen].mean(axis=0), m.shape[1])
            G *= second[np.ix_(columns, columns)]
    centre = belief.mean[c, layout.seen[mode]][:, columns].mean(axis=0, dtype=np.float64)
    return G, centre, columns


def _cosine(U: np.ndarray, u: np.ndarray, G: np.ndarray) -> np.ndarray:
    """Cosines of the rows (m, Q) with a row (Q,)."""
    size = np.sqrt(np.maximum(np.einsum("mq,mq->m", U @ G, U), 0.0))
    return np.asarray((U @ (G @ u)) / np.maximum(size * np.sqrt(max(float(u @ G @ u), 0.0)), TINY))
