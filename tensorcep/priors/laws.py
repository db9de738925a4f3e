"""What makes a mode's rows differ: features, an axis and what is told of rows on it, deviations along another's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np

from tensorcep.core.persist.records import Sized


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


class RowSites(NamedTuple):
    """What the entries say of the rows of a mode that depend on each other, in its D free columns.

    Attributes
    ----------
    place : (m,) int64
        These rows of the mode; entries say nothing of others.
    Lam, eta : (m, D (D + 1) / 2), (m, D) float64
        Natural parameters.
    """

    place: Annotated[np.ndarray, Sized("_", "i")]
    Lam: Annotated[np.ndarray, Sized("_ _")]
    eta: Annotated[np.ndarray, Sized("_ _")]


class Deviations(NamedTuple):
    """How each row of a mode deviates along the axis of another: a number for every pair of rows that occurs.

    It is added to the latent value, and an Ornstein-Uhlenbeck process about 0 along the axis, in each of C components.

    Attributes
    ----------
    modes : (int, int)
        The mode whose rows deviate, and the one that is a series.
    first : (int, int)
        Their first packed rows.
    size : int
        Rows of the mode whose rows deviate.
    row, time : (p,) int64, (p,) float64
        Of each pair, in the order of both.
    times : (m,) float64
        The times of the rows of the series.
    mean : (C, p)
    variance : (C, p) or None
        None where components are draws.
    precision, length : (C,) float64
        Of the processes.
    told : (2, p) float64 or None
        What the entries say of each pair, as natural parameters: precision, and precision times mean; of one component.
    """

    modes: tuple[int, int]
    first: tuple[int, int]
    size: int
    row: Annotated[np.ndarray, Sized("p", "i")]
    time: Annotated[np.ndarray, Sized("p")]
    times: Annotated[np.ndarray, Sized("_")]
    mean: Annotated[np.ndarray, Sized("c p")]
    variance: Annotated[np.ndarray, Sized("c p")] | None
    precision: Annotated[np.ndarray, Sized("c")]
    length: Annotated[np.ndarray, Sized("c")]
    told: Annotated[np.ndarray, Sized("two p")] | None = None


def joined_deviations(parts: Sequence[Deviations | None]) -> Deviations | None:
    """The deviations in the components of several beliefs; None where there are none."""
    some = [part for part in parts if part is not None]
    if not some:
        return None
    variances = [one.variance for one in some if one.variance is not None]
    return some[0]._replace(
        mean=np.concatenate([one.mean for one in some]),
        variance=np.concatenate(variances) if variances else None,
        precision=np.concatenate([one.precision for one in some]),
        length=np.concatenate([one.length for one in some]),
        told=None,
    )


class ModePrior(NamedTuple):
    """One Gaussian prior for the rows of each mode, where it was learned: mean (K, R) and precision (K, R, R).

    The mean is that of a row without features; `slopes` has an item for each mode where a mode has some. Of a series
    both are those of a row far from others; `drifts` has an item for each mode where a mode is one.
    """

    mean: Annotated[np.ndarray, Sized("K R")]
    precision: Annotated[np.ndarray, Sized("K R R")]
    slopes: tuple[Slopes | None, ...] = ()
    drifts: tuple[Drift | None, ...] = ()
