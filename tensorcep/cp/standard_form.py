"""One form for factor rows that stand for the same latent values: constants, scales, rotation, order and signs.

The latent value does not change when components are exchanged, when the signs or scales of a component's modes move
between them, when a matrix factorisation is rotated, or when constants move between main effects and pairs. In the
standard form

* main effects are centred, and the constants of pairs join them; what is left is in the first mode's main effect;
* a part of two modes, a matrix U V', has its singular vectors for columns;
* a component has the same root mean square in all its modes.

Only rows with entries count in all this; the others follow. The latent values of rows with entries stay what they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tensorcep.core.packing import offsets

TINY = np.finfo(float).tiny
# Singular values below this share of the largest one are rounding errors.
NO_RANK = 1e-12


class Block(NamedTuple):
    """Columns that belong to the same modes, and can be exchanged."""

    modes: tuple[int, ...]
    columns: slice


class Layout(NamedTuple):
    """Where the rows of the modes lie, which of them have entries, and which columns belong together.

    Attributes
    ----------
    rows : tuple of slice
        Packed rows of each mode.
    seen : tuple of (n,) int64
        Those that have entries.
    blocks : tuple of Block
    """

    rows: tuple[slice, ...]
    seen: tuple[np.ndarray, ...]
    blocks: tuple[Block, ...]

    def parts(self, rows: np.ndarray, block: Block) -> list[np.ndarray]:
        """The rows (..., n_k, C) of a block in each of its modes; changing them changes `rows`."""
        return [rows[..., self.rows[k], block.columns] for k in block.modes]

    def seen_parts(self, rows: np.ndarray, block: Block) -> list[np.ndarray]:
        """Copies of those with entries, divided by the root of their number: sums of squares are mean squares."""
        return [rows[..., self.seen[k], block.columns] / np.sqrt(len(self.seen[k])) for k in block.modes]


def layout_of(shape: Sequence[int], column_modes: Sequence[tuple[int, ...]], seen: np.ndarray) -> Layout:
    """The layout of a model whose column r belongs to the modes column_modes[r]; seen is (n_rows,) bool.

    Columns of the same modes lie side by side.
    """
    rows = tuple(slice(int(a), int(b)) for a, b in itertools.pairwise(offsets(shape)))
    blocks, first = [], 0
    for modes, own in itertools.groupby(column_modes):
        last = first + len(list(own))
        blocks.append(Block(modes, slice(first, last)))
        first = last
    return Layout(rows, tuple(own.start + np.flatnonzero(seen[own]) for own in rows), tuple(blocks))


def signs(factors: Sequence[np.ndarray], column_modes: Sequence[tuple[int, ...]]) -> np.ndarray:
    """Signs (K, R) that make every factor but a component's first point up and leave each product as it is.

    A factor points up if the squares of its positive values have the larger sum; plain sums of centred ones are 0.
    """
    result = np.ones((len(factors), len(column_modes)))
    for r, modes in enumerate(column_modes):
        for k in modes[1:]:
            if np.sum(factors[k][:, r] * np.abs(factors[k][:, r])) < 0.0:
                result[[modes[0], k], r] *= -1.0
    return result


def relevance(mean: np.ndarray, layout: Layout, variance: np.ndarray | None = None) -> np.ndarray:
    """Mean square over all cells of what each column adds to the latent value, as shares of their sum, (R,)."""
    product = mean_squares(mean, layout, variance)
    return np.asarray(product / max(float(product.sum()), TINY))


def mean_squares(mean: np.ndarray, layout: Layout, variance: np.ndarray | None = None) -> np.ndarray:
    """Mean square over all cells of what each column adds to the latent value, (R,).

    Only rows with entries count, since the others hold what the prior says. Of a main effect it is the variance: its
    mean is the level of all cells. With the variances of the rows it is what squares are on average, not of averages.
    """
    squares = []
    for block in layout.blocks:
        parts = layout.seen_parts(mean, block)
        if len(parts) == 1:
            parts = [parts[0] - parts[0].mean(axis=0)]
        found = column_norms(parts) ** 2
        if variance is not None:
            found += np.stack([np.mean(variance[layout.seen[k], block.columns], axis=0) for k in block.modes])
        squares.append(found.prod(axis=0))
    return np.concatenate(squares)


def reference_from(rows: np.ndarray, layout: Layout) -> np.ndarray:
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


def standard_form(draws: np.ndarray, layout: Layout) -> np.ndarray:
    """A copy of draws (n, n_rows, R): constants in main effects, scales shared evenly, pairs by singular vectors."""
    draws = np.array(draws, dtype=float)
    if any(len(block.modes) == 1 for block in layout.blocks):
        _give_constants(draws, layout)
    for block in layout.blocks:
        if len(block.modes) == 2:
            _to_singular_vectors(draws, layout, block)
        elif len(block.modes) > 2:
            _share_scale(draws, layout, block)
    return draws


def _give_constants(draws: np.ndarray, layout: Layout) -> None:
    """Centre both sides of pairs, and main effects; what they lose goes to main effects, in the end to the first.

    (U + 1 u')(V + 1 v')' = U V' + (U v) 1' + 1 (V u)' + u'v.
    """
    main = {}
    for block in layout.blocks:
        if len(block.modes) == 1:
            (part,) = layout.parts(draws, block)
            part[..., 0] = part.sum(axis=-1)
            part[..., 1:] = 0.0
            main[block.modes[0]] = part[..., 0]
    level = np.zeros((len(draws), 1))
    for block in layout.blocks:
        if len(block.modes) == 2:
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


def _share_scale(draws: np.ndarray, layout: Layout, block: Block) -> None:
    """Give each component the same root mean square in all its modes."""
    for part, scale in zip(layout.parts(draws, block), _scales(layout.seen_parts(draws, block)), strict=True):
        part *= scale[..., None, :]


def _scales(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Factors (m, ..., C) that make norms of columns the same in all modes; 1 where a column is 0 in one of them."""
    sizes = np.maximum(column_norms(parts), TINY)
    return np.where((sizes > TINY).all(axis=0), np.exp(np.log(sizes).mean(axis=0)) / sizes, 1.0)


def shared_scales(rows: np.ndarray, layout: Layout) -> np.ndarray:
    """Factors (K, R) after which each component of rows (n_rows, R) has the same root mean square in all its modes."""
    result = np.ones((len(layout.rows), rows.shape[1]))
    for block in layout.blocks:
        result[list(block.modes), block.columns] = _scales(layout.seen_parts(rows, block))
    return result


def _to_singular_vectors(draws: np.ndarray, layout: Layout, block: Block) -> None:
    """Turn the sides of a matrix U V' into its singular vectors, each times the root of its singular value.

    With U = Q R, V = P S and R S' = A d B' these are U (S' B / sqrt(d)) and V (R' A / sqrt(d)).
    """
    left, right = (np.asarray(np.linalg.qr(part, mode="r")) for part in layout.seen_parts(draws, block))
    A, d, Bt = np.linalg.svd(left @ transposed(right), full_matrices=False)
    there = d > NO_RANK * np.maximum(d[..., :1], TINY)
    inverse = np.where(there, 1.0 / np.sqrt(np.where(there, d, 1.0)), 0.0)[..., None, :]
    turns = transposed(right) @ transposed(Bt) * inverse, transposed(left) @ A * inverse
    for part, turn in zip(layout.parts(draws, block), turns, strict=True):
        turned = part @ turn
        part[...] = 0.0
        part[..., : turned.shape[-1]] = turned
