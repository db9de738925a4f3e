"""Columns on their own scales: a real matrix is fitted in units of its columns, and answers in those of the data."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from tensorcep.core.persist.records import Sized
from tensorcep.factor_models.read import Matrix

FEW = 10  # observed cells below which a column's own deviation says little (its error is a quarter)
FLOOR = 0.01  # part of a column's variance that the prior of its noise counts as one more cell
ROUNDING = 1e-12  # part of the mean below which a deviation is one of rounding


class Units(NamedTuple):
    """Centre and scale (D,) of every column: the model sees (x - centre) / scale."""

    centre: Annotated[np.ndarray, Sized("D")]
    scale: Annotated[np.ndarray, Sized("D")]


def units_of(matrix: Matrix, centred: bool) -> Units:
    """Means of the columns where they are to be centred, otherwise 0, and the deviations from them.

    A column of fewer than `FEW` cells gets one more at the typical deviation, the median of the others'; where there
    are no others, of all cells together. That of a constant column is such that the floor of its noise is such a cell.
    """
    centre = matrix.column_means() if centred else np.zeros(matrix.cells.shape[1])
    away, counts = matrix.less_columns(centre), matrix.column_counts()
    away *= away
    squares = matrix.cells.group_sums(away, "column")
    largest = matrix.cells.group_sums(np.abs(matrix.x, out=away), "all")[0]
    own = np.sqrt(squares / np.maximum(counts, 1.0))
    sound = (counts >= FEW) & (own > ROUNDING * np.abs(centre))
    whole = float(np.sqrt(squares.sum() / counts.sum())) or largest / counts.sum() or 1.0
    typical = float(np.median(own[sound])) if sound.any() else whole
    few = np.sqrt((squares + typical**2) / np.maximum(counts, 1.0))
    constant = (counts > 0) & (own <= ROUNDING * np.abs(centre))  # of a column without cells nothing is known
    scale = np.where(constant, typical / np.sqrt(FLOOR), np.where(sound, own, few))
    return Units(centre, scale)


def standardised(matrix: Matrix, units: Units | None) -> Matrix:
    """The matrix in the units of its columns."""
    if units is None:
        return matrix
    away = matrix.less_columns(units.centre)
    away /= matrix.cells.spread(units.scale, "column")
    return matrix._replace(x=away)
