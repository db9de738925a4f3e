"""The likelihood of a relation as Gaussian sites: given the moments of its latent values, a quadratic lower bound.

A site of a cell is exp(target f - weight f^2 / 2) times a constant. Gaussian noise has weight tau and target tau x; the
Polya-Gamma augmentation has weight E[omega] and target kappa (Klami eq. 4); Boehning's bound has a constant weight.
With an explicit noise the cells have latent values psi of their own, and the factors see these as Gaussian data.

Source: Klami (2014), sections 2.2, 4.1 to 4.3 and 5.1. The dispersion r follows from the same bound that omega
maximises, so that the whole lower bound never falls, where the paper takes E log(1 - p) by Monte Carlo integration. Its
expected table counts are those of r~ = exp E[log r]. Boehning's pseudo data are 4 (x - sigmoid) + f; the paper prints
(x - sigmoid) / 4 + f, which is no bound.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import digamma, expit, gammaln

from tensorcep.core.gammas import Gammas, gammas, known
from tensorcep.factor_models.model import Relation

LOG_2PI = float(np.log(2.0 * np.pi))
SMALL = 1e-6  # below it E[omega] is its value at 0 to machine precision
SOFTPLUS_CURVATURE = 0.17  # of -log softplus, rounded up (0.1671); times the count
COUNT_LIKELIHOODS = ("negbinomial", "poisson")


class Sites(NamedTuple):
    """A relation's parameters and sites.

    Attributes
    ----------
    weight, target : cell arrays
    noise : Gammas or None
        Noise precision: of Gaussian data, or of the explicit noise.
    r : Gammas or None
        Dispersion of negative-binomial counts.
    psi, psi_var : cell arrays or None
        Moments of the latent values of cells with explicit noise.
    """

    weight: np.ndarray
    target: np.ndarray
    noise: Gammas | None = None
    r: Gammas | None = None
    psi: np.ndarray | None = None
    psi_var: np.ndarray | None = None


class CountTable(NamedTuple):
    """How often each count occurs in each group of cells: counts (U,) and times (groups, U)."""

    counts: np.ndarray
    times: np.ndarray


class Priors(NamedTuple):
    """Gamma priors of noise precisions (shape, rate) and dispersions (shape, rate)."""

    noise: tuple[float, float] = (1e-3, 1e-3)
    r: tuple[float, float] = (1.0, 0.1)


def count_table(relation: Relation) -> CountTable | None:
    """The table of a negative-binomial relation; None for others."""
    if relation.likelihood != "negbinomial":
        return None
    cells, x = relation.cells, relation.x
    counts, index = np.unique(x, return_inverse=True)
    groups = np.arange(len(group_sizes(relation)), dtype=np.float64)
    group = np.broadcast_to(cells.spread(groups, relation.groups), x.shape).astype(np.int64)
    where = np.ones(x.shape) if cells.observed is None else cells.observed
    flat = (group * len(counts) + index.reshape(x.shape)).ravel()
    times = np.bincount(flat, weights=where.ravel(), minlength=len(groups) * len(counts))
    return CountTable(counts, times.reshape(len(groups), len(counts)))


def group_sizes(relation: Relation) -> np.ndarray:
    """Observed cells of each group."""
    one = relation.cells.only_observed(np.ones((1,) * relation.x.ndim))
    return np.asarray(relation.cells.group_sums(one, relation.groups))


def polya_gamma_mean(b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """E PG(b, c) = b tanh(c / 2) / (2 c), for c >= 0."""
    c = np.maximum(c, SMALL)
    e = np.exp(-c)
    return np.asarray(b * ((1.0 - e) / ((1.0 + e) * (2.0 * c))))


def log_2cosh_half(c: np.ndarray) -> np.ndarray:
    """log(2 cosh(c / 2)) for c >= 0."""
    return np.asarray(0.5 * c + np.log1p(np.exp(-c)))


def refresh(
    relation: Relation, table: CountTable | None, priors: Priors, old: Sites | None, f: np.ndarray, variance: np.ndarray
) -> Sites:
    """The parameters and sites of a relation given the latent moments f and variance of its cells."""
    if relation.augmentation == "noise":
        return _noise_sites(relation, table, priors, old, f, variance)
    if relation.likelihood == "gaussian":
        return _gaussian_sites(relation, priors, f, variance)
    if relation.augmentation == "boehning":
        weight, slope = _boehning(relation, f)
        only = relation.cells.only_observed
        return Sites(only(weight), only(slope + weight * f))
    c = np.sqrt(f * f + variance)
    r = _dispersion(relation, table, priors, old, f, c)
    weight, target = _polya_gamma(relation, r, c)
    return Sites(weight, target, r=r)


def _polya_gamma(relation: Relation, r: Gammas | None, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    b, kappa = shape_and_kappa(relation, None if r is None else r.mean)
    only = relation.cells.only_observed
    return only(polya_gamma_mean(b, c)), only(kappa)


def shape_and_kappa(relation: Relation, r: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """b and kappa of exp(kappa f) / (2 cosh(f / 2))^b, the likelihood in its latent value."""
    if r is None:
        return np.ones((1,) * relation.x.ndim), relation.x - 0.5
    spread = relation.cells.spread(r, relation.groups)
    return relation.x + spread, 0.5 * (relation.x - spread)


def _noise_posterior(relation: Relation, priors: Priors, squares: np.ndarray) -> Gammas:
    if relation.known_noise is not None:
        return known(relation.known_noise)
    a0, b0 = priors.noise
    cells = relation.cells
    groups = relation.groups if relation.likelihood == "gaussian" else "all"
    sizes = group_sizes(relation._replace(groups=groups))
    return gammas(a0 + 0.5 * sizes, b0 + 0.5 * cells.group_sums(cells.only_observed(squares), groups), a0, b0)


def _gaussian_sites(relation: Relation, priors: Priors, f: np.ndarray, variance: np.ndarray) -> Sites:
    noise = _noise_posterior(relation, priors, (relation.x - f) ** 2 + variance)
    weight = relation.cells.only_observed(relation.cells.spread(noise.mean, relation.groups))
    return Sites(weight, weight * relation.x, noise=noise)


def _noise_sites(
    relation: Relation, table: CountTable | None, priors: Priors, old: Sites | None, f: np.ndarray, variance: np.ndarray
) -> Sites:
    if old is None or old.psi is None or old.psi_var is None:  # start where psi is its prior
        psi, psi_var = f, np.ones_like(f)
        noise = known(np.ones(1) if relation.known_noise is None else relation.known_noise)
    else:
        psi, psi_var = old.psi, old.psi_var
        noise = _noise_posterior(relation, priors, (psi - f) ** 2 + psi_var + variance)
    tau = noise.mean[0]
    c = np.sqrt(psi * psi + psi_var)
    r = _dispersion(relation, table, priors, old, psi, c)
    omega, kappa = _polya_gamma(relation, r, c)
    psi_var = 1.0 / (omega + tau)
    psi = psi_var * (tau * f + kappa)
    only = relation.cells.only_observed
    weight = only(np.full((1,) * f.ndim, tau))
    return Sites(weight, only(tau * psi), noise, r, psi, psi_var)


def _dispersion(
    relation: Relation,
    table: CountTable | None,
    priors: Priors,
    old: Sites | None,
    f: np.ndarray,
    c: np.ndarray,
) -> Gammas | None:
    """q(r): shape a0 + the expected tables, rate b0 + the bound of the sum of -log(1 - p)."""
    if table is None:
        return None
    if relation.known_r is not None:
        return known(relation.known_r)
    a0, b0 = priors.r
    start = np.full(len(table.times), np.log(a0 / b0)) if old is None or old.r is None else old.r.log_mean
    r = np.exp(start)[:, None]
    tables = r * (digamma(table.counts + r) - digamma(r))
    cells = relation.cells
    softplus = cells.group_sums(cells.only_observed(0.5 * f + log_2cosh_half(c)), relation.groups)
    return gammas(a0 + (table.times * tables).sum(axis=1), b0 + softplus, a0, b0)


def _boehning_weight(relation: Relation) -> np.ndarray:
    """Bound of the curvature of the log likelihood."""
    curvature = 0.25 if relation.likelihood == "bernoulli" else 0.25 + SOFTPLUS_CURVATURE * float(relation.x.max())
    return np.full((1,) * relation.x.ndim, curvature)


def _boehning(relation: Relation, f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Curvature bound, and slope of the log likelihood at f."""
    slope = relation.x - expit(f)
    if relation.likelihood == "poisson":
        rate = np.maximum(np.logaddexp(0.0, f), np.finfo(float).tiny)
        slope = (relation.x / rate - 1.0) * expit(f)
    return _boehning_weight(relation), slope


def _log_likelihood(relation: Relation, f: np.ndarray) -> np.ndarray:
    """Log likelihood of labels under the logistic, or of counts under the softplus rate."""
    softplus = np.logaddexp(0.0, f)
    if relation.likelihood == "bernoulli":
        return np.asarray(relation.x * f - softplus)
    log_rate = np.log(np.maximum(softplus, np.finfo(float).tiny))
    return np.asarray(relation.x * log_rate - softplus - gammaln(relation.x + 1.0))


def bound(relation: Relation, table: CountTable | None, sites: Sites, f: np.ndarray, variance: np.ndarray) -> float:
    """The relation's share of the lower bound of the log evidence, at the sites' own parameters."""
    total = -sum(g.divergence for g in (sites.noise, sites.r) if g is not None)
    cells = relation.cells
    value = cells.only_observed(cell_bounds(relation, sites, f, variance))
    total += float(cells.group_sums(value, "all")[0])
    if sites.r is not None and table is not None:
        r = np.exp(sites.r.log_mean)[:, None]
        total += float((table.times * _count_factor(table.counts, r)).sum())
    return total


def row_bounds(relation: Relation, sites: Sites, f: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Sums over the observed cells of each row of the bounds of their log likelihood."""
    value = cell_bounds(relation, sites, f, variance)
    if sites.r is not None:
        value = value + _count_factor(relation.x, relation.cells.spread(np.exp(sites.r.log_mean), relation.groups))
    return np.asarray(relation.cells.group_sums(relation.cells.only_observed(value), "row"))


def _count_factor(x: np.ndarray, r: np.ndarray) -> np.ndarray:
    """log of Gamma(x + r) / (Gamma(r) x!), r = exp E[log r]: the bound that the expected tables attain."""
    return np.asarray(gammaln(x + r) - gammaln(r) - gammaln(x + 1.0))


def cell_bounds(relation: Relation, sites: Sites, f: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """The bound of each cell's log likelihood, without the factor of counts that is free of f."""
    if sites.psi is not None and sites.psi_var is not None and sites.noise is not None:
        entropy = 0.5 * np.log(2.0 * np.pi * np.e * sites.psi_var)
        squares = (sites.psi - f) ** 2 + sites.psi_var + variance
        prior = 0.5 * (sites.noise.log_mean[0] - LOG_2PI - sites.noise.mean[0] * squares)
        return np.asarray(entropy + prior + _augmented(relation, sites, sites.psi, sites.psi_var))
    if relation.likelihood == "gaussian" and sites.noise is not None:
        tau = relation.cells.spread(sites.noise.mean, relation.groups)
        log_tau = relation.cells.spread(sites.noise.log_mean, relation.groups)
        return np.asarray(0.5 * (log_tau - LOG_2PI - tau * ((relation.x - f) ** 2 + variance)))
    if relation.augmentation == "boehning":
        return np.asarray(_log_likelihood(relation, f) - 0.5 * _boehning_weight(relation) * variance)
    return _augmented(relation, sites, f, variance)


def _augmented(relation: Relation, sites: Sites, f: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """kappa f - b log(2 cosh(c / 2)): the bound that E[omega] at c^2 = E[f^2] attains."""
    b, kappa = shape_and_kappa(relation, None if sites.r is None else sites.r.mean)
    return np.asarray(kappa * f - b * log_2cosh_half(np.sqrt(f * f + variance)))
