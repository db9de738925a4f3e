"""The likelihood of a relation as Gaussian sites: given the moments of its latent values, a quadratic lower bound.

Gaussian noise has weight tau and target tau x; the Polya-Gamma augmentation has weight E[omega] and target kappa (Klami
eq. 4); Boehning's bound has a constant weight. With an explicit noise the cells have latent values psi of their own,
and the factors see these as Gaussian data.

Source: Klami (2014), sections 2.2, 4.1 to 4.3 and 5.1. The dispersion r follows from the same bound that omega
maximises, so that the whole lower bound never falls, where the paper takes E log(1 - p) by Monte Carlo integration. Its
expected table counts are those of r~ = exp E[log r]. Boehning's pseudo data are 4 (x - sigmoid) + f; the paper prints
(x - sigmoid) / 4 + f, which is no bound.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import digamma, gammaln

from tensorcep.core.gammas import Gammas, gammas, known
from tensorcep.factor_models.coding import group_sizes
from tensorcep.factor_models.latent import Latent, Products
from tensorcep.factor_models.relations import CountTable, Priors, Relation, Sites
from tensorcep.kernels.special import log_two_cosh_half
from tensorcep.likelihoods.arrays import log_density

LOG_2PI = float(np.log(2.0 * np.pi))
SMALL = 1e-6  # below it E[omega] is its value at 0 to machine precision


def polya_gamma_mean(b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """E PG(b, c) = b tanh(c / 2) / (2 c), for c >= 0."""
    c = np.maximum(c, SMALL)
    e = np.exp(-c)
    return np.asarray(b * ((1.0 - e) / ((1.0 + e) * (2.0 * c))))


def shape_and_kappa(relation: Relation, r: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """b and kappa of exp(kappa f) / (2 cosh(f / 2))^b, the likelihood in its latent value.

    Raises
    ------
    ValueError
        If the likelihood has no Polya-Gamma form.
    """
    likelihood = relation.kind.likelihood
    if likelihood.pg is None or likelihood.pg.exponents is None:
        raise ValueError(f"the likelihood {likelihood.name!r} has no Polya-Gamma form.")
    theta = likelihood.default_theta if r is None else relation.cells.spread(r, relation.groups)
    return likelihood.pg.exponents(relation.x, theta)


def noise_posterior(relation: Relation, groups: str, priors: Priors, squares: np.ndarray) -> Gammas:
    """q(tau) of each group of cells, given the expected squares of their noise."""
    return _noise_of(relation, groups, priors, relation.cells.observed_sums(squares, groups))


def _noise_of(relation: Relation, groups: str, priors: Priors, squares: np.ndarray) -> Gammas:
    """The same, given the sums of these squares over each group."""
    if relation.known_noise is not None:
        return known(relation.known_noise)
    a0, b0 = priors.noise
    return gammas(a0 + 0.5 * group_sizes(relation, groups), b0 + 0.5 * squares, a0, b0)


def dispersion_posterior(
    relation: Relation, table: CountTable | None, priors: Priors, old: Sites | None, f: np.ndarray, c: np.ndarray
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
    softplus = cells.observed_sums(0.5 * f + log_two_cosh_half(c), relation.groups)
    return gammas(a0 + (table.times * tables).sum(axis=1), b0 + softplus, a0, b0)


# Gaussian data, with the noise precision of each group.


def gaussian_sites(
    relation: Relation, table: CountTable | None, priors: Priors, old: Sites | None, f: np.ndarray, variance: np.ndarray
) -> Sites:
    """Sites of Gaussian data at the expected noise precision."""
    squares = relation.cells.observed_sums(_squares(relation, f, variance), relation.groups)
    return sites_of_squares(relation, priors, squares)


def sites_of_squares(relation: Relation, priors: Priors, squares: np.ndarray) -> Sites:
    """The same, given the sums over each group of the expected squares of what is left of the data."""
    noise = _noise_of(relation, relation.groups, priors, squares)
    return Sites(relation.cells.spread(noise.mean, relation.groups), noise=noise)


def _squares(relation: Relation, f: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Expected squares of what is left of the data, in one array of their size."""
    rest: np.ndarray = relation.x - f
    rest *= rest
    rest += variance
    return rest


def gaussian_bounds(relation: Relation, sites: Sites, f: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Expected log density of Gaussian data."""
    if sites.noise is None:
        raise ValueError("Gaussian data need a noise precision; got None.")
    tau = relation.cells.spread(sites.noise.mean, relation.groups)
    log_tau = relation.cells.spread(sites.noise.log_mean, relation.groups)
    value = _squares(relation, f, variance)
    value *= -0.5 * tau
    value += 0.5 * (log_tau - LOG_2PI)
    return value


def bounds_of_squares(relation: Relation, sites: Sites, squares: np.ndarray) -> np.ndarray:
    """Sums over each group of the expected log density of Gaussian data, given those of the squares."""
    if sites.noise is None:
        raise ValueError("Gaussian data need a noise precision; got None.")
    log_density = 0.5 * (sites.noise.log_mean - LOG_2PI) * group_sizes(relation, relation.groups)
    return np.asarray(log_density - 0.5 * sites.noise.mean * squares)


# Polya-Gamma variables on the latent values.


def polya_gamma_sites(
    relation: Relation, table: CountTable | None, priors: Priors, old: Sites | None, f: np.ndarray, variance: np.ndarray
) -> Sites:
    """Sites at E[omega], the tightest of the augmentation's bounds."""
    c = np.sqrt(f * f + variance)
    r = dispersion_posterior(relation, table, priors, old, f, c)
    weight, target = _polya_gamma(relation, r, c)
    return Sites(weight, target, r=r)


def _polya_gamma(relation: Relation, r: Gammas | None, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    b, kappa = shape_and_kappa(relation, None if r is None else r.mean)
    only = relation.cells.only_observed
    return only(polya_gamma_mean(b, c)), only(kappa)


def polya_gamma_bounds(relation: Relation, sites: Sites, f: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """kappa f - b log(2 cosh(c / 2)): the bound that E[omega] at c^2 = E[f^2] attains."""
    b, kappa = shape_and_kappa(relation, None if sites.r is None else sites.r.mean)
    return np.asarray(kappa * f - b * log_two_cosh_half(np.sqrt(f * f + variance)))


# The same on latent values psi = f + noise.


def noisy_sites(
    relation: Relation, table: CountTable | None, priors: Priors, old: Sites | None, f: np.ndarray, variance: np.ndarray
) -> Sites:
    """Sites of psi as Gaussian data, psi updated by its own Polya-Gamma sites."""
    if old is None or old.psi is None or old.psi_var is None:  # start where psi is its prior
        psi, psi_var = f, np.ones_like(f)
        noise = known(np.ones(1) if relation.known_noise is None else relation.known_noise)
    else:
        psi, psi_var = old.psi, old.psi_var
        noise = noise_posterior(relation, "all", priors, (psi - f) ** 2 + psi_var + variance)
    tau = noise.mean[0]
    c = np.sqrt(psi * psi + psi_var)
    r = dispersion_posterior(relation, table, priors, old, psi, c)
    omega, kappa = _polya_gamma(relation, r, c)
    psi_var = 1.0 / (omega + tau)
    psi = psi_var * (tau * f + kappa)
    only = relation.cells.only_observed
    weight = only(np.full((1,) * f.ndim, tau))
    return Sites(weight, only(tau * psi), noise, r, psi, psi_var)


def noisy_bounds(relation: Relation, sites: Sites, f: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """The Polya-Gamma bound at psi, the expected log density of psi, and its entropy."""
    if sites.psi is None or sites.psi_var is None or sites.noise is None:
        raise ValueError("latent values with noise need psi and a noise precision; got None.")
    entropy = 0.5 * np.log(2.0 * np.pi * math.e * sites.psi_var)
    squares = (sites.psi - f) ** 2 + sites.psi_var + variance
    prior = 0.5 * (sites.noise.log_mean[0] - LOG_2PI - sites.noise.mean[0] * squares)
    return np.asarray(entropy + prior + polya_gamma_bounds(relation, sites, sites.psi, sites.psi_var))


# Boehning's bound.


def boehning_sites(
    relation: Relation, table: CountTable | None, priors: Priors, old: Sites | None, f: np.ndarray, variance: np.ndarray
) -> Sites:
    """Sites of the largest curvature, which touch the log likelihood at f."""
    only = relation.cells.only_observed
    weight, slope = _boehning_weight(relation), _log_likelihood(relation, f)[1]
    return Sites(only(weight), only(slope + weight * f))


def _boehning_weight(relation: Relation) -> np.ndarray:
    if relation.kind.curvature is None:
        raise ValueError(f"the curvature of the likelihood {relation.kind.likelihood.name!r} has no bound.")
    return np.full((1,) * relation.x.ndim, relation.kind.curvature(relation.x))


def _log_likelihood(relation: Relation, f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log likelihood of every cell, and its slope."""
    likelihood = relation.kind.likelihood
    value, slope, _ = log_density(likelihood.loglik, relation.x.ravel(), f.ravel(), likelihood.default_theta)
    return value.reshape(f.shape), slope.reshape(f.shape)


def boehning_bounds(relation: Relation, sites: Sites, f: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """The expected parabola."""
    return np.asarray(_log_likelihood(relation, f)[0] - 0.5 * _boehning_weight(relation) * variance)


# What all forms share.


def bound(relation: Relation, table: CountTable | None, sites: Sites, latent: Latent) -> float:
    """The relation's share of the lower bound of the log evidence, at the sites' own parameters."""
    total = -sum(g.divergence for g in (sites.noise, sites.r) if g is not None)
    if isinstance(latent, Products):
        total += float(bounds_of_squares(relation, sites, latent.squares).sum())
    else:
        value = relation.kind.form.cell_bounds(relation, sites, *latent)
        total += float(relation.cells.observed_sums(value, "all")[0])
    if sites.r is not None and table is not None:
        r = np.exp(sites.r.log_mean)[:, None]
        total += float((table.times * _count_factor(table.counts, r)).sum())
    return total


def row_bounds(relation: Relation, sites: Sites, f: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Sums over the observed cells of each row of the bounds of their log likelihood."""
    value = relation.kind.form.cell_bounds(relation, sites, f, variance)
    if sites.r is not None:
        value = value + _count_factor(relation.x, relation.cells.spread(np.exp(sites.r.log_mean), relation.groups))
    return np.asarray(relation.cells.observed_sums(value, "row"))


def _count_factor(x: np.ndarray, r: np.ndarray) -> np.ndarray:
    """log of Gamma(x + r) / (Gamma(r) x!), r = exp E[log r]: the bound that the expected tables attain."""
    return np.asarray(gammaln(x + r) - gammaln(r) - gammaln(x + 1.0))
