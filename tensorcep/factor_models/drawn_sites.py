"""Draws of a relation's parameters and auxiliary variables given its latent values: the sites of a Gibbs sweep.

Source: Klami (2014), sections 4.1.1, 4.2.1 and 4.3; Zhou and Carin (2012) for the dispersion. It is drawn with omega
integrated out, and omega anew right after it: the order that keeps the posterior.
"""

from __future__ import annotations

import numpy as np

from tensorcep.core.gammas import known
from tensorcep.factor_models.coding import group_sizes
from tensorcep.factor_models.draws import draw_omegas, draw_tables
from tensorcep.factor_models.expected_sites import shape_and_kappa
from tensorcep.factor_models.relations import Given, Relation, Sites


def draw_gaussian(given: Given) -> tuple[Sites, np.ndarray]:
    """The noise precision of Gaussian data."""
    relation, cells, f = given.relation, given.relation.cells, given.f
    tau = draw_noise(given, relation.groups, (relation.x - f) ** 2)
    return Sites(cells.spread(tau, relation.groups), noise=known(tau)), f


def draw_polya_gamma(given: Given) -> tuple[Sites, np.ndarray]:
    """The dispersion and omega given f."""
    r, omega, kappa = _draw_omega(given, given.f)
    return Sites(omega, given.relation.cells.only_observed(kappa), r=None if r is None else known(r)), given.f


def draw_noisy(given: Given) -> tuple[Sites, np.ndarray]:
    """The dispersion and omega given psi, the precision of its noise, and psi."""
    f, only = given.f, given.relation.cells.only_observed
    r, omega, kappa = _draw_omega(given, given.psi)
    tau = draw_noise(given, "all", (given.psi - f) ** 2)
    spread = 1.0 / (omega + tau[0])
    psi = spread * (tau[0] * f + only(kappa)) + np.sqrt(spread) * given.rng.standard_normal(f.shape)
    weight = only(np.full((1,) * f.ndim, tau[0]))
    return Sites(weight, only(tau[0] * psi), known(tau), None if r is None else known(r)), psi


def draw_noise(given: Given, groups: str, squares: np.ndarray) -> np.ndarray:
    """Noise precisions of the groups, given the squares of the cells' noise."""
    relation = given.relation
    if relation.known_noise is not None:
        return relation.known_noise
    a0, b0 = given.priors.noise
    a = a0 + 0.5 * group_sizes(relation, groups)
    b = b0 + 0.5 * relation.cells.group_sums(relation.cells.only_observed(squares), groups)
    return np.asarray(given.rng.gamma(a) / b)


def _draw_omega(given: Given, psi: np.ndarray) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
    """The dispersion, omega and kappa of the likelihood at the latent values psi."""
    relation: Relation = given.relation
    r = _draw_dispersion(given, psi) if relation.kind.theta == "r" else None
    b, kappa = shape_and_kappa(relation, r)
    trials = relation.cells.only_observed(b)
    return r, draw_omegas(trials, psi, given.seed % 2**63, given.sweep, given.executor), kappa


def _draw_dispersion(given: Given, psi: np.ndarray) -> np.ndarray:
    """r ~ Gamma(a0 + the tables, b0 - the sum of log(1 - p)), given the latent values and not omega."""
    relation, cells = given.relation, given.relation.cells
    if relation.known_r is not None:
        return relation.known_r
    a0, b0 = given.priors.r
    now = np.full(len(group_sizes(relation, relation.groups)), a0 / b0) if given.r is None else given.r
    rates = cells.spread(now, relation.groups)
    tables = draw_tables(relation.x, rates, (given.seed + 1) % 2**63, given.sweep, given.executor)
    a = a0 + cells.group_sums(cells.only_observed(tables), relation.groups)
    b = b0 + cells.group_sums(cells.only_observed(np.logaddexp(0.0, psi)), relation.groups)
    return np.asarray(given.rng.gamma(a) / b)
