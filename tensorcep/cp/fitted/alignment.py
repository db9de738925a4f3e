"""Draws of the factor rows brought next to each other, so that their averages mean something.

Every draw is brought to the standard form (`standard_form`), and then to a reference: a part of two modes is rotated,
the components of a part of more modes get the order in which they are most congruent with those of the reference, and
its signs. Draws that lie around different solutions, as those of chains can, have no components in common: a group of
like draws is then what components are made of. How alike they must be is told by the latent values: those of the
components are to be what all draws say on average, and where they are not, the next stricter group is tried.

Source: the congruence of rank-one terms, Lorenzo-Seva and ten Berge (2006), Methodology 2, p. 57; Procrustes rotation,
Schoenemann (1966), Psychometrika 31, p. 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from tensorcep.core.packing import offsets

TINY = np.finfo(float).tiny
# Singular values below this share of the largest one are rounding errors.
NO_RANK = 1e-12


class ColumnBlock(NamedTuple):
    """Columns that belong to the same modes, and can be exchanged."""

    modes: tuple[int, ...]
    columns: slice


class RowLayout(NamedTuple):
    """Where the rows of the modes lie, which of them have entries, and which columns belong together."""

    rows: tuple[slice, ...]  # packed rows of each mode
    seen: tuple[np.ndarray, ...]  # those that have entries, (n,) int64 of each mode
    blocks: tuple[ColumnBlock, ...]

    def parts(self, rows: np.ndarray, block: ColumnBlock) -> list[np.ndarray]:
        """The rows (..., n_k, C) of a block in each of its modes; changing them changes `rows`."""
        return [rows[..., self.rows[k], block.columns] for k in block.modes]

    def seen_parts(self, rows: np.ndarray, block: ColumnBlock) -> list[np.ndarray]:
        """Copies of those with entries, divided by the root of their number: sums of squares are mean squares."""
        return [rows[..., self.seen[k], block.columns] / np.sqrt(len(self.seen[k])) for k in block.modes]

    def of_columns(self, of: Callable[[int], float]) -> np.ndarray:
        """What `of` says of the number of modes that a column belongs to, (R,)."""
        return np.concatenate([np.full(b.columns.stop - b.columns.start, of(len(b.modes))) for b in self.blocks])


def layout_of(shape: Sequence[int], column_modes: Sequence[tuple[int, ...]], seen: np.ndarray) -> RowLayout:
    """The layout of a model whose column r belongs to column_modes[r], equal ones side by side; seen (n_rows,) bool."""
    rows = tuple(slice(int(a), int(b)) for a, b in itertools.pairwise(offsets(shape)))
    runs = [(modes, len(list(own))) for modes, own in itertools.groupby(column_modes)]
    ends = itertools.pairwise(offsets([n for _, n in runs]).tolist())
    blocks = tuple(ColumnBlock(modes, slice(*both)) for (modes, _), both in zip(runs, ends, strict=True))
    return RowLayout(rows, tuple(own.start + np.flatnonzero(seen[own]) for own in rows), blocks)


def signs(factors: Sequence[np.ndarray], column_modes: Sequence[tuple[int, ...]]) -> np.ndarray:
    """Signs (K, R) that make every factor but a component's first point up and leave each product as it is."""
    result = np.ones((len(factors), len(column_modes)))
    for r, modes in enumerate(column_modes):
        for k in modes[1:]:
            # up: the squares of positive values have the larger sum; plain sums of centred ones are 0
            if np.sum(factors[k][:, r] * np.abs(factors[k][:, r])) < 0.0:
                result[[modes[0], k], r] *= -1.0
    return result


def relevance(mean: np.ndarray, layout: RowLayout, variance: np.ndarray | None = None) -> np.ndarray:
    """Mean square over all cells of what each column adds to the latent value, as shares of their sum, (R,)."""
    product = mean_squares(mean, layout, variance)
    return np.asarray(product / max(float(product.sum()), TINY))


def mean_squares(mean: np.ndarray, layout: RowLayout, variance: np.ndarray | None = None) -> np.ndarray:
    """Mean square over all cells of what each column adds to the latent value, (R,); of a main effect the variance."""
    squares = []
    for block in layout.blocks:
        parts = layout.seen_parts(mean, block)  # other rows hold what the prior says
        if len(parts) == 1:  # the mean is the level of all cells
            parts = [parts[0] - parts[0].mean(axis=0)]
        found = column_norms(parts) ** 2
        if variance is not None:  # what squares are on average, not of averages
            found += np.stack([np.mean(variance[layout.seen[k], block.columns], axis=0) for k in block.modes])
        squares.append(found.prod(axis=0))
    return np.concatenate(squares)


def reference_from(rows: np.ndarray, layout: RowLayout) -> np.ndarray:
    """The standard form of rows (n_rows, R), with an order and signs: the strongest component of every part first."""
    rows = standard_form(rows[None], layout)[0]
    for block in layout.blocks:
        if len(block.modes) > 1:
            here = layout.seen_parts(rows, block)
            order = np.argsort(-column_norms(here)[0], kind="stable")
            turned = signs([part[:, order] for part in here], [tuple(range(len(here)))] * len(order))
            for part, sign in zip(layout.parts(rows, block), turned, strict=True):
                part[:] = part[:, order] * sign
    return rows


def standard_form(draws: np.ndarray, layout: RowLayout) -> np.ndarray:
    """A copy of draws (n, n_rows, R) in the one form that all with the same latent values share.

    The latent value does not change when components are exchanged, when the signs or scales of a component's modes move
    between them, when a matrix factorisation is rotated, or when constants move between main effects and pairs. Only
    rows with entries count in all this; the others follow. The latent values of rows with entries stay what they are.
    Order and signs are a reference's (`reference_from`).
    """
    draws = np.array(draws, dtype=float)
    if any(len(block.modes) == 1 for block in layout.blocks):
        _give_constants(draws, layout)
    for block in layout.blocks:
        if len(block.modes) == 2:
            # a matrix U V' has its singular vectors for columns: with U = Q R, V = P S and R S' = A d B' these, times
            # roots of values, are U (S' B / sqrt(d)) and V (R' A / sqrt(d))
            left, right = (np.asarray(np.linalg.qr(part, mode="r")) for part in layout.seen_parts(draws, block))
            A, d, Bt = np.linalg.svd(left @ transposed(right), full_matrices=False)
            there = d > NO_RANK * np.maximum(d[..., :1], TINY)
            inverse = np.where(there, 1.0 / np.sqrt(np.where(there, d, 1.0)), 0.0)[..., None, :]
            turns = transposed(right) @ transposed(Bt) * inverse, transposed(left) @ A * inverse
            for part, turn in zip(layout.parts(draws, block), turns, strict=True):
                turned = part @ turn
                part[...] = 0.0
                part[..., : turned.shape[-1]] = turned
        elif len(block.modes) > 2:  # the same root mean square in all modes
            scales = _scales(layout.seen_parts(draws, block))
            for part, scale in zip(layout.parts(draws, block), scales, strict=True):
                part *= scale[..., None, :]
    return draws


def _give_constants(draws: np.ndarray, layout: RowLayout) -> None:
    """Centre both sides of pairs, and main effects; what they lose goes to main effects, in the end to the first."""
    main = {}
    for block in layout.blocks:
        if len(block.modes) == 1:
            (part,) = layout.parts(draws, block)
            part[..., 0] = part.sum(axis=-1)
            part[..., 1:] = 0.0
            main[block.modes[0]] = part[..., 0]
    level = np.zeros((len(draws), 1))
    for block in layout.blocks:
        if len(block.modes) == 2:  # (U + 1 u')(V + 1 v')' = U V' + (U v) 1' + 1 (V u)' + u'v
            means = [draws[:, layout.seen[k], block.columns].mean(axis=1, keepdims=True) for k in block.modes]
            level += (means[0] * means[1]).sum(axis=2)
            for k, part, mean, other in zip(block.modes, layout.parts(draws, block), means, means[::-1], strict=True):
                part -= mean
                main[k] += (part * other).sum(axis=2)
    for k, effect in main.items():
        mean = effect[:, layout.seen[k] - layout.rows[k].start].mean(axis=1, keepdims=True)
        effect -= mean
        level += mean
    main[min(main)] += level


def transposed(matrices: np.ndarray) -> np.ndarray:
    """The matrices (..., m, n) as (..., n, m)."""
    return np.swapaxes(matrices, -1, -2)


def column_norms(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Norms (m, ..., C) of the columns in every mode."""
    return np.stack([np.linalg.norm(part, axis=-2) for part in parts])


def _scales(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Factors (m, ..., C) that make norms of columns the same in all modes; 1 where a column is 0 in one of them."""
    sizes = np.maximum(column_norms(parts), TINY)
    return np.where((sizes > TINY).all(axis=0), np.exp(np.log(sizes).mean(axis=0)) / sizes, 1.0)


def shared_scales(rows: np.ndarray, layout: RowLayout) -> np.ndarray:
    """Factors (K, R) after which each component of rows (n_rows, R) has the same root mean square in all its modes."""
    result = np.ones((len(layout.rows), rows.shape[1]))
    for block in layout.blocks:
        result[list(block.modes), block.columns] = _scales(layout.seen_parts(rows, block))
    return result


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


def aligned(draws: np.ndarray, reference: np.ndarray, layout: RowLayout) -> np.ndarray:
    """Draws (n, n_rows, R), each in the standard form that is nearest to the reference's."""
    draws = standard_form(draws, layout)
    for block in layout.blocks:
        if len(block.modes) == 2:  # by the rotation that brings both sides of the matrix next to the reference's
            pairs = zip(layout.seen_parts(draws, block), layout.seen_parts(reference, block), strict=True)
            left, _, right = np.linalg.svd(sum(transposed(here) @ there for here, there in pairs))
            for part in layout.parts(draws, block):
                part[...] = part @ (left @ right)
        elif len(block.modes) > 2:  # by the order and signs with which each component is most like its namesake
            cosines = _cosines(draws, reference, layout, block)
            order = np.stack([linear_sum_assignment(one, maximize=True)[1] for one in cosines.prod(axis=0)])
            cosines = np.take_along_axis(cosines, order[None, :, :, None], axis=3)[..., 0]
            sign = np.where(cosines < 0.0, -1.0, 1.0)
            # a component keeps its sign: where an odd number of its modes points away, the one that says least stays so
            odd, weakest = sign.prod(axis=0) < 0.0, np.abs(cosines).argmin(axis=0)
            sign *= np.where(odd & (np.arange(len(sign))[:, None, None] == weakest), -1.0, 1.0)
            for part, turn in zip(layout.parts(draws, block), sign, strict=True):
                part[...] = np.take_along_axis(part, order[:, None, :], axis=2) * turn[:, None, :]
    return draws


def _cosines(draws: np.ndarray, reference: np.ndarray, layout: RowLayout, block: ColumnBlock) -> np.ndarray:
    """Cosines (m, n, C, C) of the reference's columns with those of the draws, in each mode of a block."""
    here, there = layout.seen_parts(draws, block), layout.seen_parts(reference, block)
    inner = np.stack([transposed(theirs) @ own for theirs, own in zip(there, here, strict=True)])
    return inner / np.maximum(column_norms(there)[:, None, :, None] * column_norms(here)[:, :, None, :], TINY)


def best_order(rows: np.ndarray, reference: np.ndarray, layout: RowLayout, block: ColumnBlock) -> np.ndarray:
    """Which component of a block of rows (n_rows, R) resembles each one of the reference's most, (C,)."""
    cosines = _cosines(rows[None].astype(np.float64), reference, layout, block)
    return np.asarray(linear_sum_assignment(cosines.prod(axis=0)[0], maximize=True)[1])


def congruence(draws: np.ndarray, reference: np.ndarray, layout: RowLayout) -> np.ndarray:
    """Cosine of each component of the draws with that of the reference, (n, R): the product over its modes."""
    blocks = [_cosines(draws, reference, layout, block) for block in layout.blocks]
    return np.concatenate([np.diagonal(found, axis1=2, axis2=3).prod(axis=0) for found in blocks], axis=1)


class Aligned(NamedTuple):
    """What aligned draws have in common; `apart` is from 1 on where the components do not say what the draws say."""

    reference: np.ndarray  # (n_rows, R), what every draw is brought next to
    mean: np.ndarray  # (n_rows, R), of the aligned draws
    variance: np.ndarray
    congruence: np.ndarray  # (R,), the mean cosine of these draws' components with the reference
    like: np.ndarray  # (n,) bool, the draws that have these components, and that all but the reference are made of
    alike: float = 1.0  # the share of all draws whose components are fairly similar to those of a typical one
    # mean square over cells of what the products of `mean` differ by from the mean product of all draws, likes or not,
    # over the variance of these products
    apart: float = 0.0

    def unlike(self, layout: RowLayout) -> np.ndarray:
        """Components that differ from draw to draw if all that is shared by modes does so on average, worst first."""
        fair = layout.of_columns(lambda n: FAIR**n)
        weight = relevance(self.mean, layout, self.variance) * layout.of_columns(lambda n: n > 1)
        if weight @ (fair - self.congruence) < NOTICED:
            return np.zeros(0, dtype=int)
        return np.argsort(weight * (self.congruence - fair), kind="stable")


def align(draws: np.ndarray, layout: RowLayout) -> Aligned:
    """Align draws (n, n_rows, R) to a typical one, and then those that are like it to their mean."""
    spread = (np.arange(CANDIDATES) * len(draws) + len(draws) // 2) // CANDIDATES
    some = draws[np.unique(spread)].astype(np.float64, copy=False)
    # the standard form of the draw that the others resemble most, components weighted by their mean squares
    forms = [reference_from(draw, layout) for draw in some]
    likeness = [congruence(aligned(some, form, layout), form, layout) @ relevance(form, layout) for form in forms]
    typical = forms[int(np.argmax([of_draws.sum() for of_draws in likeness]))]
    # rows of cells at random, the same in every call, of rows with entries if there are
    rng = np.random.default_rng(0)
    among = [seen if len(seen) else np.r_[own] for seen, own in zip(layout.seen, layout.rows, strict=True)]
    cells = [rng.choice(rows, CELLS) for rows in among]
    said = np.concatenate([_latent(part, cells) for part in _chunks(draws)])
    mean, variance = said.mean(axis=0), max(float(said.var(axis=0).mean()), TINY)
    groups: list[Aligned] = []
    # draws around different solutions can be fairly similar all the same, and their mean like none of them
    for cosine in (FAIR, *STRICTER):
        reference = typical
        for _ in range(ROUNDS):
            like = _like(draws, reference, layout, cosine)
            reference = reference_from(_moments(draws, like, reference, layout).mean, layout)
        found = _moments(draws, like, reference, layout)
        off = _latent(found.mean[None], cells)[0] - mean
        groups.append(found._replace(apart=float(np.mean(off**2)) / variance))
        if groups[-1].apart <= NEAR:
            break
    return min(groups, key=lambda group: group.apart)._replace(alike=float(groups[0].like.mean()))


def _latent(draws: np.ndarray, cells: Sequence[np.ndarray]) -> np.ndarray:
    """Sums over the columns of the products over the modes of draws (n, n_rows, R) at some cells, (n, n_cells)."""
    return np.asarray(reduce(np.multiply, (draws[:, rows] for rows in cells)).sum(axis=2))


def _like(draws: np.ndarray, reference: np.ndarray, layout: RowLayout, cosine: float) -> np.ndarray:
    """The draws (n,) whose components have this cosine, on average, with the reference's; all if hardly any has."""
    # components that say next to nothing of the latent values do not count, as in `Aligned.unlike`
    weight = relevance(reference, layout) * layout.of_columns(lambda n: n > 1)
    found = [congruence(aligned(part, reference, layout), reference, layout) for part in _chunks(draws)]
    like: np.ndarray = np.concatenate(found) @ weight > layout.of_columns(lambda n: cosine**n) @ weight - NOTICED
    return like if like.sum() > 1 else np.ones_like(like)


def _moments(draws: np.ndarray, like: np.ndarray, reference: np.ndarray, layout: RowLayout) -> Aligned:
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


def aligned_rows(draws: np.ndarray, reference: np.ndarray, layout: RowLayout, rows: slice = slice(None)) -> np.ndarray:
    """Some rows of all draws, (n, rows, R), aligned."""
    return np.concatenate([aligned(part, reference, layout)[:, rows] for part in _chunks(draws)])


def covariances(draws: np.ndarray, found: Aligned, layout: RowLayout) -> Iterator[np.ndarray]:
    """Covariances (n_k, R, R) of the aligned rows, mode by mode."""
    draws = draws[found.like]
    for own in layout.rows:
        centred = aligned_rows(draws, found.reference, layout, own) - found.mean[own]
        by_row = np.ascontiguousarray(centred.transpose(1, 2, 0))
        yield by_row @ transposed(by_row) / max(1, len(draws) - 1)


def moments_beside(
    draws: np.ndarray, new: Sequence[np.ndarray], found: Aligned, layout: RowLayout, at: slice
) -> tuple[np.ndarray, np.ndarray]:
    """Mean (m, R) and covariance (m, R, R) of new rows, each draw of them turned as the draw of the others is."""
    # `new` has rows (m, R) of each of the draws (n, n_rows, R); in the layout they are not seen, and stand `at` a place
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
