"""Draws of the factor rows brought next to each other, so that their averages mean something.

Every draw is brought to the standard form, and then to a reference: a part of two modes is rotated, the components of a
part of more modes get the order in which they are most congruent with those of the reference, and its signs. Draws that
lie around different solutions, as those of chains can, have no components in common: a group of like draws is then what
components are made of. How alike they must be is told by the latent values: those of the components are to be what all
draws say on average, and where they are not, the next stricter group is tried.

Source: the congruence of rank-one terms, Lorenzo-Seva and ten Berge (2006), Methodology 2, p. 57; Procrustes rotation,
Schoenemann (1966), Psychometrika 31, p. 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from tensorcep.cp.standard_form import (
    TINY,
    Block,
    Layout,
    column_norms,
    reference_from,
    relevance,
    standard_form,
    transposed,
)

# Numbers of the draws that are aligned at a time.
CHUNK = 1 << 21
# Columns whose cosine is 0.85 or more count as fairly similar, from 0.95 on as equal (Lorenzo-Seva and ten Berge 2006).
FAIR = 0.85
STRICTER = (0.9, 0.95, 0.98)
# Cells at which latent values of components and of draws are compared, and the share of the draws' variance that their
# mean square difference may have without a look at stricter groups: half a standard deviation.
CELLS, NEAR = 512, 0.25
# What components may fall short of that, weighted by their shares of the latent values, before it is said.
NOTICED = 0.01
# Draws, spread over all, of which the most typical one is the first reference; rounds that look for those like it.
CANDIDATES, ROUNDS = 12, 2


def aligned(draws: np.ndarray, reference: np.ndarray, layout: Layout) -> np.ndarray:
    """Draws (n, n_rows, R), each in the standard form that is nearest to the reference's."""
    draws = standard_form(draws, layout)
    for block in layout.blocks:
        if len(block.modes) == 2:
            _rotate(draws, reference, layout, block)
        elif len(block.modes) > 2:
            _match(draws, reference, layout, block)
    return draws


def _rotate(draws: np.ndarray, reference: np.ndarray, layout: Layout, block: Block) -> None:
    """Turn both sides of a matrix by the rotation that brings them next to the reference's."""
    pairs = zip(layout.seen_parts(draws, block), layout.seen_parts(reference, block), strict=True)
    left, _, right = np.linalg.svd(sum(transposed(here) @ there for here, there in pairs))
    for part in layout.parts(draws, block):
        part[...] = part @ (left @ right)


def _match(draws: np.ndarray, reference: np.ndarray, layout: Layout, block: Block) -> None:
    """Exchange components, and turn the signs of their modes, so that each is as congruent with its namesake as can be.

    A component keeps its sign: where an odd number of its modes points away from the reference, the one that says least
    stays so.
    """
    cosines = _cosines(draws, reference, layout, block)
    order = np.stack([linear_sum_assignment(one, maximize=True)[1] for one in cosines.prod(axis=0)])
    cosines = np.take_along_axis(cosines, order[None, :, :, None], axis=3)[..., 0]
    sign = np.where(cosines < 0.0, -1.0, 1.0)
    odd, weakest = sign.prod(axis=0) < 0.0, np.abs(cosines).argmin(axis=0)
    sign *= np.where(odd & (np.arange(len(sign))[:, None, None] == weakest), -1.0, 1.0)
    for part, turn in zip(layout.parts(draws, block), sign, strict=True):
        part[...] = np.take_along_axis(part, order[:, None, :], axis=2) * turn[:, None, :]


def _cosines(draws: np.ndarray, reference: np.ndarray, layout: Layout, block: Block) -> np.ndarray:
    """Cosines (m, n, C, C) of the reference's columns with those of the draws, in each mode of a block."""
    here, there = layout.seen_parts(draws, block), layout.seen_parts(reference, block)
    inner = np.stack([transposed(theirs) @ own for theirs, own in zip(there, here, strict=True)])
    return inner / np.maximum(column_norms(there)[:, None, :, None] * column_norms(here)[:, :, None, :], TINY)


def best_order(rows: np.ndarray, reference: np.ndarray, layout: Layout, block: Block) -> np.ndarray:
    """Which component of a block of rows (n_rows, R) resembles each one of the reference's most, (C,)."""
    cosines = _cosines(rows[None].astype(np.float64), reference, layout, block)
    return np.asarray(linear_sum_assignment(cosines.prod(axis=0)[0], maximize=True)[1])


def congruence(draws: np.ndarray, reference: np.ndarray, layout: Layout) -> np.ndarray:
    """Cosine of each component of the draws with that of the reference, (n, R): the product over its modes."""
    blocks = [_cosines(draws, reference, layout, block) for block in layout.blocks]
    return np.concatenate([np.diagonal(found, axis1=2, axis2=3).prod(axis=0) for found in blocks], axis=1)


class Aligned(NamedTuple):
    """What aligned draws have in common.

    Attributes
    ----------
    reference : (n_rows, R) float64
        What every draw is brought next to.
    mean, variance : (n_rows, R) float64
        Of the aligned draws.
    congruence : (R,) float64
        Mean cosine of these draws' components with the reference.
    like : (n,) bool
        The draws that have these components, and that all but the reference are made of.
    alike : float
        Share of all draws whose components are fairly similar to those of a typical one.
    apart : float
        Mean square over cells of what the products of `mean` differ by from the mean product of all draws, likes or
        not, over the variance of these products: from 1 on the components do not say what the draws say.
    """

    reference: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    congruence: np.ndarray
    like: np.ndarray
    alike: float = 1.0
    apart: float = 0.0

    def unlike(self, layout: Layout) -> np.ndarray:
        """Components that differ from draw to draw if all that is shared by modes does so on average, worst first."""
        fair, weight = _expected(layout, FAIR), relevance(self.mean, layout, self.variance) * _shared(layout)
        if weight @ (fair - self.congruence) < NOTICED:
            return np.zeros(0, dtype=int)
        return np.argsort(weight * (self.congruence - fair), kind="stable")


def _shared(layout: Layout) -> np.ndarray:
    """Whether a component is shared by several modes, (R,)."""
    return np.concatenate([np.full(b.columns.stop - b.columns.start, len(b.modes) > 1) for b in layout.blocks])


def _expected(layout: Layout, cosine: float) -> np.ndarray:
    """The cosines of components that have this one in every mode, (R,)."""
    return np.concatenate([np.full(b.columns.stop - b.columns.start, cosine ** len(b.modes)) for b in layout.blocks])


def align(draws: np.ndarray, layout: Layout) -> Aligned:
    """Align draws (n, n_rows, R) to a typical one, and then those that are like it to their mean.

    Draws around different solutions can be fairly similar all the same, and their mean like none of them: like draws
    are then more and more similar ones, until the latent values of their mean are those of all draws. If they never
    are, the ones that come nearest are taken.
    """
    spread = (np.arange(CANDIDATES) * len(draws) + len(draws) // 2) // CANDIDATES
    typical = _typical(draws[np.unique(spread)].astype(np.float64, copy=False), layout)
    cells = _some_cells(layout)
    said = np.concatenate([_latent(part, cells) for part in _chunks(draws)])
    mean, variance = said.mean(axis=0), max(float(said.var(axis=0).mean()), TINY)
    groups: list[Aligned] = []
    for cosine in (FAIR, *STRICTER):
        found = _aligned_like(draws, typical, layout, cosine)
        off = _latent(found.mean[None], cells)[0] - mean
        groups.append(found._replace(apart=float(np.mean(off**2)) / variance))
        if groups[-1].apart <= NEAR:
            break
    return min(groups, key=lambda group: group.apart)._replace(alike=float(groups[0].like.mean()))


def _some_cells(layout: Layout) -> list[np.ndarray]:
    """Packed rows (n,) in every mode of cells at random, the same in every call, of rows with entries if there are."""
    rng = np.random.default_rng(0)
    among = [seen if len(seen) else np.r_[own] for seen, own in zip(layout.seen, layout.rows, strict=True)]
    return [rng.choice(rows, CELLS) for rows in among]


def _latent(draws: np.ndarray, cells: Sequence[np.ndarray]) -> np.ndarray:
    """Sums over the columns of the products over the modes of draws (n, n_rows, R) at some cells, (n, n_cells)."""
    return np.asarray(reduce(np.multiply, (draws[:, rows] for rows in cells)).sum(axis=2))


def _aligned_like(draws: np.ndarray, reference: np.ndarray, layout: Layout, cosine: float) -> Aligned:
    """Align the draws that are like a reference, and then like those, to their mean."""
    like = np.ones(len(draws), dtype=bool)
    for _ in range(ROUNDS):
        like = _like(draws, reference, layout, cosine)
        reference = reference_from(_moments(draws, like, reference, layout).mean, layout)
    return _moments(draws, like, reference, layout)


def _like(draws: np.ndarray, reference: np.ndarray, layout: Layout, cosine: float) -> np.ndarray:
    """The draws (n,) whose components have this cosine, on average, with the reference's; all if hardly any has.

    Components that say next to nothing of the latent values do not count, as in `Aligned.unlike`.
    """
    weight = relevance(reference, layout) * _shared(layout)
    found = [congruence(aligned(part, reference, layout), reference, layout) for part in _chunks(draws)]
    like: np.ndarray = np.concatenate(found) @ weight > _expected(layout, cosine) @ weight - NOTICED
    return like if like.sum() > 1 else np.ones_like(like)


def _typical(draws: np.ndarray, layout: Layout) -> np.ndarray:
    """The standard form of the draw that the others resemble most, components weighted by their mean squares."""
    forms = [reference_from(draw, layout) for draw in draws]

    def overlap(form: np.ndarray) -> float:
        return float((congruence(aligned(draws, form, layout), form, layout) @ relevance(form, layout)).sum())

    return max(forms, key=overlap)


def _moments(draws: np.ndarray, like: np.ndarray, reference: np.ndarray, layout: Layout) -> Aligned:
    """Align some of the draws to a reference, and take their moments."""
    first, square, near = np.zeros_like(reference), np.zeros_like(reference), np.zeros(reference.shape[1])
    for part in _chunks(draws, like):
        rows = aligned(part, reference, layout)
        near += congruence(rows, reference, layout).sum(axis=0)
        rows -= reference
        first += rows.sum(axis=0)
        square += np.einsum("dnr,dnr->nr", rows, rows)
    n = int(like.sum())
    variance = np.maximum(square - first**2 / n, 0.0) / max(1, n - 1)
    return Aligned(reference, reference + first / n, variance, near / n, like)


def _chunks(draws: np.ndarray, some: np.ndarray | None = None) -> Iterator[np.ndarray]:
    """The draws (n, n_rows, R), or some of them, as many at a time as fit."""
    size = max(1, CHUNK // max(1, draws[:1].size))
    chosen = np.arange(len(draws)) if some is None else np.flatnonzero(some)
    for a in range(0, len(chosen), size):
        yield draws[chosen[a : a + size]].astype(np.float64, copy=False)


def aligned_rows(draws: np.ndarray, reference: np.ndarray, layout: Layout, rows: slice = slice(None)) -> np.ndarray:
    """Some rows of all draws, (n, rows, R), aligned."""
    return np.concatenate([aligned(part, reference, layout)[:, rows] for part in _chunks(draws)])


def covariances(draws: np.ndarray, found: Aligned, layout: Layout) -> Iterator[np.ndarray]:
    """Covariances (n_k, R, R) of the aligned rows, mode by mode."""
    draws = draws[found.like]
    for own in layout.rows:
        centred = aligned_rows(draws, found.reference, layout, own) - found.mean[own]
        by_row = np.ascontiguousarray(centred.transpose(1, 2, 0))
        yield by_row @ transposed(by_row) / max(1, len(draws) - 1)


def moments_beside(
    draws: np.ndarray, new: Sequence[np.ndarray], found: Aligned, layout: Layout, at: slice
) -> tuple[np.ndarray, np.ndarray]:
    """Mean (m, R) and covariance (m, R, R) of new rows, each draw of them turned as the draw of the others is.

    Parameters
    ----------
    draws : (n, n_rows, R) float64
    new : list of (m, R) float64
        Of every draw.
    found : Aligned
        What the draws have in common.
    layout : Layout
        With the new rows, which do not count as seen.
    at : slice
        Where the new rows are among all.
    """
    chosen, R = np.flatnonzero(found.like), draws.shape[2]
    reference = np.concatenate([found.reference[: at.start], np.zeros(new[0].shape), found.reference[at.start :]])
    total, square = np.zeros(new[0].shape), np.zeros((len(new[0]), R, R))
    centre, size = np.zeros(new[0].shape), max(1, CHUNK // reference.size)
    for a in range(0, len(chosen), size):
        which = chosen[a : a + size]
        parts = (draws[which, : at.start], np.stack([new[d] for d in which]), draws[which, at.start :])
        rows = aligned(np.concatenate(parts, axis=1), reference, layout)[:, at]
        centre = centre if a else rows.mean(axis=0)
        by_row = np.ascontiguousarray((rows - centre).transpose(1, 2, 0))
        total += by_row.sum(axis=2)
        square += by_row @ transposed(by_row)
    n = len(chosen)
    square -= total[:, :, None] * total[:, None, :] / n
    return centre + total / n, square / max(1, n - 1)
