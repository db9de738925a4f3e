"""Draws from the components of a belief: rows, known and unknown ones, and the likelihood's parameter."""

from __future__ import annotations

import numpy as np

from tensorcep.core.components import Components, EntryTheta, draw_rows
from tensorcep.cp.given import against
from tensorcep.cp.predict import theta_of
from tensorcep.likelihoods.record import Likelihood


def draw(
    belief: Components, likelihood: Likelihood, n_draws: int | None, rng: np.random.Generator
) -> tuple[np.ndarray, EntryTheta, np.ndarray]:
    """Draws of every row of the belief, (n_draws, n_rows, R), of the likelihood's parameter, and of which components.

    A sampler's draws are taken as they are, without repetition where there are enough of them; n_draws=None takes them
    all, in their order.
    """
    theta, C = theta_of(belief, likelihood), belief.size
    is_precision = likelihood.parameter is not None and likelihood.parameter.is_precision
    if belief.cov is None:
        which = np.arange(C) if n_draws is None else rng.choice(C, n_draws, replace=n_draws > C)
        return belief.mean[which], theta.of_points(which), which
    if n_draws is None:
        raise TypeError("n_draws must be an integer for a posterior in moments; got None.")
    if C == 1:
        values = draw_rows(belief.mean[0], belief.cov[0], n_draws, rng)
        which = np.zeros(n_draws, dtype=int)
        return values, theta.drawn(theta.draws(which, rng), which, is_precision), which
    which = rng.integers(C, size=n_draws)
    values = np.empty((n_draws, *belief.mean.shape[1:]))
    parameter = np.empty((n_draws, theta.values.shape[1]))
    for c in range(C):
        own = np.flatnonzero(which == c)
        values[own] = draw_rows(belief.mean[c], belief.cov[c], len(own), rng)
        parameter[own] = theta.draws(which[own], rng)
    return values, theta.drawn(parameter, which, is_precision), which


def draw_apart(
    belief: Components,
    likelihood: Likelihood,
    origin: np.ndarray,
    n_draws: int | None,
    rng: np.random.Generator,
    *,
    n_known: int,
) -> tuple[np.ndarray, EntryTheta, np.ndarray]:
    """As `draw`, of the belief's rows `origin`: the known ones, and then unknown ones, which are independent."""
    if belief.cov is not None:
        belief = belief._replace(mean=belief.mean[:, origin], cov=belief.cov[:, origin])
        return draw(belief, likelihood, n_draws, rng)
    values, theta, which = draw(belief, likelihood, n_draws, rng)
    values = values[:, origin]
    for new in range(n_known, len(origin)):
        values[:, new] = belief.mean[rng.integers(0, belief.size, len(values)), origin[new]]
    return values, theta, which


def with_own_factors(
    given: tuple[np.ndarray, np.ndarray],
    likelihood: Likelihood,
    theta: EntryTheta,
    rows: np.ndarray,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Latent value and parameter (S, n) of observations at packed rows (n, K), each with a factor if they differ.

    Of a law that is spread over the components any of them tells one.
    """
    f, each = given
    shape = theta.shape_of(rows)
    if shape is not None:
        factors = np.maximum(rng.gamma(np.broadcast_to(shape, each.shape)), np.finfo(float).tiny) / shape
        return f + against(likelihood, factors, shape), np.asarray(each * factors)
    return f, each if theta.factors is None else each * rng.choice(theta.factors, each.shape)
