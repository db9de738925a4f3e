"""Sites of a relation whose cells hide a normal variable: labels by probit, and values at a limit.

Given the normal variable t of a cell, the cell is Gaussian in its latent value: t ~ N(f, 1) has the sign of a label
(Albert and Chib 1993), t ~ N(f, 1 / tau) lies below the limit of a censored value (Chib 1992). Variational methods take
the moments of t under its truncated normal, samplers draw it: the augmentations of `tensorcep.likelihoods`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.core.gammas import known
from tensorcep.core.random import new_stream
from tensorcep.factor_models.drawn_sites import draw_noise
from tensorcep.factor_models.expected_sites import LOG_2PI, noise_posterior
from tensorcep.factor_models.relations import CountTable, Given, Priors, Relation, Sites
from tensorcep.kernels.slots import LANES


class Hidden(NamedTuple):
    """The normal variables of cells: mean, variance and what they add to a bound beside their Gaussian density."""

    mean: np.ndarray
    variance: np.ndarray
    constant: np.ndarray


def _hidden(relation: Relation, f: np.ndarray, variance: np.ndarray, tau: np.ndarray | None) -> Hidden:
    """The best laws of the hidden normals at the latent moments and a noise precision, a cell array."""
    y, at, theta = _from_limit(relation, f, tau)
    flat = [np.ascontiguousarray(np.broadcast_to(part, f.shape)).ravel() for part in (y, at, theta)]
    square = flat[1] ** 2 + np.ascontiguousarray(variance).ravel()
    weight, target, spread, constant = (np.empty(f.size) for _ in range(4))
    relation.kind.likelihood.normal.expected(*flat[:2], square, flat[2], weight, target, spread, constant)  # type: ignore[union-attr]
    mean = target.reshape(f.shape) + (f - at)
    return Hidden(mean, spread.reshape(f.shape), constant.reshape(f.shape))


def _from_limit(relation: Relation, f: np.ndarray, tau: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Observations and latent values as the likelihood has them, as differences from a limit, and its parameter."""
    if relation.limit is None or tau is None:
        return relation.x, f, np.full((1,) * f.ndim, relation.kind.likelihood.default_theta)
    limit = relation.cells.spread(relation.unit_limit, "column")
    return relation.x - limit, f - limit, tau


# Labels by probit: t has precision 1.


def probit_sites(
    relation: Relation, table: CountTable | None, priors: Priors, old: Sites | None, f: np.ndarray, variance: np.ndarray
) -> Sites:
    """Sites at the means of the truncated normals."""
    only = relation.cells.only_observed
    return Sites(only(np.ones((1,) * f.ndim)), only(_hidden(relation, f, variance, None).mean))


def probit_bounds(relation: Relation, sites: Sites, f: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """log Phi(y f) less half the variance of f: the bound that these normals attain."""
    own = _hidden(relation, f, variance, None)
    return np.asarray(own.constant + own.mean * f - 0.5 * (f * f + variance))


def draw_probit(given: Given) -> tuple[Sites, np.ndarray]:
    """The hidden normals given f."""
    target = _drawn(given, None)
    only = given.relation.cells.only_observed
    return Sites(only(np.ones((1,) * target.ndim)), only(target)), given.f


# Real values with a limit: t has the precision of the noise, and is the value itself above the limit.


def limited_sites(
    relation: Relation, table: CountTable | None, priors: Priors, old: Sites | None, f: np.ndarray, variance: np.ndarray
) -> Sites:
    """Sites at the expected noise precision and the means of the truncated normals, which are updated after it."""
    psi, spread = (relation.x, np.zeros_like(f)) if old is None or old.psi is None else (old.psi, old.psi_var)
    noise = noise_posterior(relation, relation.groups, priors, (psi - f) ** 2 + spread + variance)
    tau = relation.cells.spread(noise.mean, relation.groups)
    own, only = _hidden(relation, f, variance, tau), relation.cells.only_observed
    weight = only(tau)
    return Sites(weight, weight * own.mean, noise=noise, psi=own.mean, psi_var=own.variance)


def limited_bounds(relation: Relation, sites: Sites, f: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Expected log density of values and hidden normals, and the entropy of the latter."""
    if sites.noise is None:
        raise ValueError("values with a limit need a noise precision; got None.")
    tau = relation.cells.spread(sites.noise.mean, relation.groups)
    log_tau = relation.cells.spread(sites.noise.log_mean, relation.groups)
    own = _hidden(relation, f, variance, tau)
    squares = (own.mean - f) ** 2 + own.variance + variance
    return np.asarray(0.5 * (log_tau - LOG_2PI - tau * squares) + own.constant)


def draw_limited(given: Given) -> tuple[Sites, np.ndarray]:
    """The hidden normals given the noise precision of the last sweep, and this given them."""
    relation, cells = given.relation, given.relation.cells
    before = np.ones(1) if given.tau is None else given.tau
    before = relation.known_noise if relation.known_noise is not None else before
    target = _drawn(given, cells.spread(before, relation.groups if len(before) > 1 else "all"))
    tau = draw_noise(given, relation.groups, (target - given.f) ** 2)
    weight = cells.only_observed(cells.spread(tau, relation.groups))
    return Sites(weight, weight * target, noise=known(tau)), given.f


def _drawn(given: Given, tau: np.ndarray | None) -> np.ndarray:
    """Draws of the hidden normals given f; what is observed as it is stays."""
    relation, f = given.relation, given.f
    y, at, theta = _from_limit(relation, f, tau)
    n_blocks = -(-f.size // LANES)
    lanes = []
    for part, empty in ((y, 1.0), (relation.cells.only_observed(np.ones(f.shape)), 0.0), (at, 0.0), (theta, 1.0)):
        padded = np.full(n_blocks * LANES, empty)
        padded[: f.size] = np.broadcast_to(part, f.shape).ravel()
        lanes.append(padded.reshape(n_blocks, LANES))
    key = given.seed % 2**63, given.sweep, 0
    weight, target = np.ones((n_blocks, LANES)), np.zeros((n_blocks, LANES))
    drawn = relation.kind.likelihood.normal.drawn  # type: ignore[union-attr]
    given.executor.run(drawn, 0, n_blocks, *lanes, key, weight, target, scratch=lambda: (new_stream(),))
    return np.asarray(target.ravel()[: f.size].reshape(f.shape) + (f - at))
