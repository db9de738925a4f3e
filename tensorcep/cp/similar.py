"""How alike two rows of a mode are: the cosine of what they say of all combinations of the other modes.

Row u has the latent value u'z at a combination with the product z of the other modes' rows. Over all combinations of
rows that have entries the inner product of two rows is u'Gv, where G is the elementwise product of the other modes'
mean second moments: a number that neither the order, the signs and scales of components nor a rotation changes. Rows
are centred first, so that the cosine is that of what sets them apart from the average row.
"""

from __future__ import annotations

import numpy as np

from tensorcep.core.components import Components, draw_rows
from tensorcep.core.packing import unpack
from tensorcep.cp.standard_form import TINY, Layout

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
