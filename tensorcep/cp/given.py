"""What a belief says of cells, as likelihoods take it: latent mean and variance, and the parameter, per component."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import digamma

from tensorcep.core.components import Components, EntryTheta
from tensorcep.cp.model import latent_moments
from tensorcep.cp.points import latent_of_points
from tensorcep.likelihoods.record import Likelihood
from tensorcep.likelihoods.uneven import NODES, strata
from tensorcep.priors.deviations import moments

# Factors of a precision that quantiles and moments of limited values take: so many, over all components.
STRATA = 512


def latent_components(belief: Components, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (C, n) of the latent value at packed rows (n, K), in every component.

    Gaussian rows count as independent; draws keep the dependence that the sampler found.
    """
    if belief.cov is None:
        f = latent_of_points(belief.mean, rows)
        return (
            (f, np.broadcast_to(0.0, f.shape)) if belief.deviations is None else _with_deviations(f, 0.0, belief, rows)
        )
    rows = np.ascontiguousarray(rows)
    f, v = np.empty((belief.size, len(rows))), np.empty((belief.size, len(rows)))
    for c in range(belief.size):
        latent_moments(rows, belief.mean[c], belief.cov[c], f[c], v[c])
    return (f, v) if belief.deviations is None else _with_deviations(f, v, belief, rows)


def _with_deviations(f: np.ndarray, v: Any, belief: Components, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (C, n) with what pairs of rows add."""
    mean, variance = moments(belief.deviations, *pairs_at(belief, rows))  # type: ignore[arg-type]
    return f + mean, v + variance


def pairs_at(belief: Components, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The row that deviates and the time of entries at packed rows (n, K), (n,) each.

    A row that the model does not know has a number of its own, and a time that it does not know is nan.
    """
    of: Any = belief.deviations
    packed, along = rows[:, of.modes[0]], rows[:, of.modes[1]]
    row, place, m = packed - of.first[0], along - of.first[1], len(of.times)
    row = np.where((row >= 0) & (row < of.size), row, of.size + packed)
    times = np.concatenate([of.times, belief.later, [np.nan]])
    place = np.where((place >= 0) & (place < m), place, along - belief.mean.shape[1] + len(belief.later) + m)
    return row, times[np.where((place >= 0) & (place < m + len(belief.later)), place, len(times) - 1)]


def given_at(parameter: EntryTheta, belief: Components, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and variance of the latent value and the likelihood's parameter, (C, n) each."""
    m, v = latent_components(belief, rows)
    factors = parameter.factors
    theta = parameter.of(rows) if factors is None else parameter.values * factors[:, None]
    return m, v, np.broadcast_to(theta, m.shape)


def extended(
    likelihood: Likelihood,
    given: tuple[np.ndarray, np.ndarray, np.ndarray],
    extent: np.ndarray | None,
    part: slice = slice(None),
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and variance of the latent value and the parameter, of cells with extents."""
    if extent is None:
        return given
    m, theta = likelihood.at(given[0], given[2], extent[part])
    return m, given[1], theta


def width_of(belief: Components) -> int:
    """Numbers of a cell's in a component, at most: one for each factor of its precision, where these differ."""
    if belief.theta is None or belief.theta.uneven is None:
        return 1
    return max(NODES, -(-STRATA // belief.size))


def factors_of(shape: np.ndarray) -> np.ndarray:
    """Equally likely factors (L, C, n) of these shapes (C, n), of which columns with the same sum are equal."""
    _, place, which = np.unique(shape.sum(axis=0), return_index=True, return_inverse=True)
    return strata(shape[:, place], -(-STRATA // len(shape)))[:, :, which.ravel()]


def with_factors(
    likelihood: Likelihood,
    given: tuple[np.ndarray, np.ndarray, np.ndarray],
    factors: np.ndarray,
    shape: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, variance and parameter (L C, n) where L factors (L, C, n) multiply the parameter of each component.

    They are of the law of this shape (C, n).
    """
    m, v, theta = given
    n = m.shape[1]
    moved = (m + against(likelihood, factors, shape)).reshape(-1, n)
    return moved, np.tile(v, (len(factors), 1)), (factors * theta).reshape(-1, n)


def against(likelihood: Likelihood, factors: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """What latent values move by as factors (L, C, n) of this shape (C, n) multiply a dispersion: 0 of anything else.

    Entries tell the mean count r e^f, so that main effects of rows hold -log r. Of a row that is not known they are
    those of a row of the mean log r, and its mean count does not depend on its r.
    """
    if likelihood.observes != "counts":
        return np.zeros_like(factors)
    return np.asarray(digamma(shape) - np.log(shape) - np.log(factors))
