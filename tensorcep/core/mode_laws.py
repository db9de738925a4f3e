"""What makes the prior of a mode's rows differ from row to row: their features, and where they lie on an axis."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from tensorcep.core.records import Sized


class Slopes(NamedTuple):
    """How the prior mean of a mode's rows depends on their F features.

    Attributes
    ----------
    coef : (F, R) float64
        The mean of a row with the features x is that of its mode plus x coef.
    strength : float
        Precision of coef beside that of the rows.
    """

    coef: Annotated[np.ndarray, Sized("_ R")]
    strength: float


class Drift(NamedTuple):
    """How the rows of a mode that is a series depend on each other.

    Attributes
    ----------
    length : (R,) float64
        Of the process of each column, in steps of the axis; 0 where rows do not depend on each other.
    season : (P, R) float64
        What rows of each phase are expected to have above the mean of their mode; none without a season.
    """

    length: Annotated[np.ndarray, Sized("R")]
    season: Annotated[np.ndarray, Sized("_ R")]
