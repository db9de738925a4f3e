"""Columns of a matrix without any value: they are told of, and predicted as wide as the values of the others are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensorcep.core.checks import warn_user
from tensorcep.factor_models.layout import Layout, Link
from tensorcep.factor_models.moments import Moments
from tensorcep.factor_models.relations import RelationPosterior


def empty_columns(links: Sequence[Link]) -> list[np.ndarray]:
    """Which columns (D,) bool of each matrix have no values, nor their entity in another matrix."""
    seen: dict[int, np.ndarray] = {}
    for link in links:
        for entity, counts in ((link.row, link.matrix.row_counts()), (link.col, link.matrix.column_counts())):
            seen[entity] = seen.get(entity, False) | (counts > 0.0)
    return [~seen[link.col] for link in links]


def warn_of_empty(columns: Sequence[np.ndarray]) -> None:
    """Say how many columns of each matrix have no values."""
    for m, empty in enumerate(columns):
        if empty.any():
            which = "the matrix" if len(columns) == 1 else f"matrix {m}"
            warn_user(
                f"{empty.sum()} of {len(empty)} columns of {which} have no values (the first is column "
                f"{int(np.argmax(empty))}, from 0): nothing but the spread of the others says what to expect there; "
                "leave them out.",
                UserWarning,
            )


def with_wide_columns(
    posterior: RelationPosterior, links: Sequence[Link], where: Sequence[Layout], columns: Sequence[np.ndarray]
) -> RelationPosterior:
    """The posterior whose offsets of empty columns of real data vary as values about their common mean do.

    Offsets that the other columns have about their own means tell nothing of it.
    """
    moments = list(posterior.moments)
    for m, (link, empty) in enumerate(zip(links, columns, strict=True)):
        if empty.any() and link.kind.theta == "noise" and link.cols_have_bias:
            at, found = where[link.col].bias[m], moments[link.col]
            cov = np.repeat(found.cov, len(found.mean), axis=0) if len(found.cov) == 1 else found.cov.copy()
            place = at if found.diagonal else at * (at + 3) // 2
            cov[empty, place] = np.maximum(cov[empty, place], _spread(link, found.mean[:, at])[empty])
            moments[link.col] = Moments(found.mean, cov, found.diagonal)
    return posterior._replace(moments=tuple(moments))


def _spread(link: Link, offset: np.ndarray) -> np.ndarray:
    """Mean square of the values about the offset (D,) of each column, (D,), in its own units."""
    matrix, units = link.matrix, link.units
    centre, scale = (0.0, 1.0) if units is None else (units.centre, units.scale)
    n, total = float(matrix.column_counts().sum()), float(matrix.cells.group_sums(matrix.x, "all")[0])
    square = float(matrix.cells.group_sums(matrix.x**2, "all")[0])
    about = centre + scale * offset
    return np.asarray(np.maximum(square / n - 2.0 * about * total / n + about**2, 0.0) / scale**2)
