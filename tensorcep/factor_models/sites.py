"""What cells say of their latent values, expected or drawn, by likelihood and augmentation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
from scipy.special import gammaln, logit, ndtri

from tensorcep.core.checks import check_choice, check_counts, check_size, check_zero_one, fail_value
from tensorcep.core.compile import kernel
from tensorcep.core.random import new_stream, start_stream
from tensorcep.factor_models.problem import Kind, Latent, Priors, Products, Relation, SiteForm, SiteInputs, Sites
from tensorcep.kernels.polya_gamma import draw_crt, draw_pg
from tensorcep.kernels.slots import LANES
from tensorcep.kernels.special import log_two_cosh_half
from tensorcep.likelihoods.base import log_density
from tensorcep.likelihoods.binary import PROBIT
from tensorcep.likelihoods.gaussian import GAUSSIAN
from tensorcep.likelihoods.logit import LOGIT
from tensorcep.likelihoods.negbinomial import NEGBINOMIAL, expected_tables
from tensorcep.likelihoods.parameters.base import Gammas, gammas, gammas_at
from tensorcep.likelihoods.poisson import SOFTPLUS_POISSON
from tensorcep.likelihoods.tobit import TOBIT

# Draws of the auxiliary variables of a relation's cells, on streams that do not depend on threads.

CELLS = 256  # cells that share a stream


@kernel
def draw_omegas(first, last, b, c, seed, sweep, out):
    """out[n] ~ PG(b[n], c[n]) in the blocks first:last of CELLS cells; 0 where b is 0."""
    s = np.zeros(4, dtype=np.uint64)
    for block in range(first, last):
        start_stream(s, seed, sweep, block)
        for n in range(block * CELLS, min((block + 1) * CELLS, len(out))):
            out[n] = draw_pg(s, b[n], c[n]) if b[n] > 0.0 else 0.0


@kernel
def draw_tables(first, last, x, r, seed, sweep, out):
    """out[n] ~ CRT(x[n], r[n]) in the blocks first:last of CELLS cells."""
    s = np.zeros(4, dtype=np.uint64)
    for block in range(first, last):
        start_stream(s, seed, sweep, block)
        for n in range(block * CELLS, min((block + 1) * CELLS, len(out))):
            out[n] = draw_crt(s, x[n], r[n])


def draw_cells(draw: Any, x: np.ndarray, y: np.ndarray, seed: int, given: SiteInputs) -> np.ndarray:
    """What one of these kernels draws for every cell; x or y may have one item for many cells."""
    shape = np.broadcast_shapes(x.shape, y.shape)
    flat = [np.ascontiguousarray(np.broadcast_to(part, shape), dtype=np.float64).ravel() for part in (x, y)]
    out = np.empty(flat[0].size)
    given.executor.run(draw, 0, -(-out.size // CELLS), *flat, seed % 2**63, given.sweep, out)
    return out.reshape(shape)


# Sites of a relation whose cells hide a normal variable: labels by probit, and values at a limit.
#
# Given the normal variable t of a cell, the cell is Gaussian in its latent value: t ~ N(f, 1) has the sign of a label
# (Albert and Chib 1993), t ~ N(f, 1 / tau) lies below the limit of a censored value (Chib 1992). Variational methods
# take the moments of t under its truncated normal, samplers draw it: the augmentations of `tensorcep.likelihoods`.


def _hidden(relation: Relation, f: np.ndarray, variance: np.ndarray, tau: np.ndarray | None) -> tuple[np.ndarray, ...]:
    """Mean and variance of each hidden normal's best law, and what it adds to a bound beside its Gaussian density."""
    y, at, theta = _from_limit(relation, f, tau)
    flat = [np.ascontiguousarray(np.broadcast_to(part, f.shape)).ravel() for part in (y, at, theta)]
    square = flat[1] ** 2 + np.ascontiguousarray(variance).ravel()
    weight, target, spread, constant = (np.empty(f.size) for _ in range(4))
    relation.kind.likelihood.normal.expected(*flat[:2], square, flat[2], weight, target, spread, constant)  # type: ignore[union-attr]
    return target.reshape(f.shape) + (f - at), spread.reshape(f.shape), constant.reshape(f.shape)


def _from_limit(relation: Relation, f: np.ndarray, tau: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Observations and latent values as the likelihood has them, as differences from a limit, and its parameter."""
    if relation.limit is None or tau is None:
        return relation.x, f, np.full((1,) * f.ndim, relation.kind.likelihood.default_theta)
    limit, units = relation.limit, relation.units
    limit = relation.cells.spread(limit if units is None else (limit - units.centre) / units.scale, "column")
    return relation.x - limit, f - limit, tau


# Labels by probit: t has precision 1.


def probit_sites(relation: Relation, priors: Priors, old: Sites | None, f: np.ndarray, variance: np.ndarray) -> Sites:
    """Sites at the means of the truncated normals."""
    only = relation.cells.only_observed
    return Sites(only(np.ones((1,) * f.ndim)), only(_hidden(relation, f, variance, None)[0]))


def probit_bounds(relation: Relation, sites: Sites, f: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """log Phi(y f) less half the variance of f: the bound that these normals attain."""
    mean, _, constant = _hidden(relation, f, variance, None)
    return np.asarray(constant + mean * f - 0.5 * (f * f + variance))


def draw_probit(given: SiteInputs) -> tuple[Sites, np.ndarray]:
    """The hidden normals given f."""
    target, only = _drawn(given, None), given.relation.cells.only_observed
    return Sites(only(np.ones((1,) * target.ndim)), only(target)), given.f


# Real values with a limit: t has the precision of the noise, and is the value itself above the limit.


def limited_sites(relation: Relation, priors: Priors, old: Sites | None, f: np.ndarray, variance: np.ndarray) -> Sites:
    """Sites at the expected noise precision and the means of the truncated normals, which are updated after it."""
    psi, spread = (relation.x, np.zeros_like(f)) if old is None or old.psi is None else (old.psi, old.psi_var)
    cells, groups = relation.cells, relation.groups
    noise = noise_posterior(relation, groups, priors, cells.observed_sums((psi - f) ** 2 + spread + variance, groups))
    tau = cells.spread(noise.mean, groups)
    psi, spread, _ = _hidden(relation, f, variance, tau)
    weight = cells.only_observed(tau)
    return Sites(weight, weight * psi, noise=noise, psi=psi, psi_var=spread)


def limited_bounds(relation: Relation, sites: Sites, f: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Expected log density of values and hidden normals, and the entropy of the latter."""
    noise = cast(Gammas, sites.noise)
    tau, log_tau = (relation.cells.spread(part, relation.groups) for part in (noise.mean, noise.log_mean))
    mean, spread, constant = _hidden(relation, f, variance, tau)
    squares = (mean - f) ** 2 + spread + variance
    return np.asarray(0.5 * (log_tau - LOG_2PI - tau * squares) + constant)


def draw_limited(given: SiteInputs) -> tuple[Sites, np.ndarray]:
    """The hidden normals given the noise precision of the last sweep, and this given them."""
    relation, cells = given.relation, given.relation.cells
    before = np.ones(1) if given.old.noise is None else given.old.noise.mean
    before = relation.known_noise if relation.known_noise is not None else before
    target = _drawn(given, cells.spread(before, relation.groups if len(before) > 1 else "all"))
    tau = draw_noise(given, relation.groups, (target - given.f) ** 2)
    weight = cells.only_observed(cells.spread(tau, relation.groups))
    return Sites(weight, weight * target, noise=gammas_at(tau)), given.f


def _drawn(given: SiteInputs, tau: np.ndarray | None) -> np.ndarray:
    """Draws of the hidden normals given f; what is observed as it is stays."""
    relation, f = given.relation, given.f
    y, at, theta = _from_limit(relation, f, tau)
    n_blocks, lanes = -(-f.size // LANES), []
    for part, empty in ((y, 1.0), (relation.cells.only_observed(np.ones(f.shape)), 0.0), (at, 0.0), (theta, 1.0)):
        padded = np.full(n_blocks * LANES, empty)
        padded[: f.size] = np.broadcast_to(part, f.shape).ravel()
        lanes.append(padded.reshape(n_blocks, LANES))
    key = given.seed % 2**63, given.sweep, 0
    weight, target = np.ones((n_blocks, LANES)), np.zeros((n_blocks, LANES))
    drawn = relation.kind.likelihood.normal.drawn  # type: ignore[union-attr]
    given.executor.run(drawn, 0, n_blocks, *lanes, key, weight, target, scratch=lambda: (new_stream(),))
    return np.asarray(target.ravel()[: f.size].reshape(f.shape) + (f - at))


# Draws of a relation's parameters and auxiliary variables given its latent values: the sites of a Gibbs sweep.
#
# Source: Klami (2014), sections 4.1.1, 4.2.1 and 4.3; Zhou and Carin (2012) for the dispersion. It is drawn with omega
# integrated out, and omega anew right after it: the order that keeps the posterior.


def draw_gaussian(given: SiteInputs) -> tuple[Sites, np.ndarray]:
    """The noise precision of Gaussian data."""
    relation, cells, f = given.relation, given.relation.cells, given.f
    tau = draw_noise(given, relation.groups, (relation.x - f) ** 2)
    return Sites(cells.spread(tau, relation.groups), noise=gammas_at(tau)), f


def draw_augmented(given: SiteInputs) -> tuple[Sites, np.ndarray]:
    """The dispersion and omega given f."""
    r, omega, kappa = _draw_omega(given, given.f)
    return Sites(omega, given.relation.cells.only_observed(kappa), r=None if r is None else gammas_at(r)), given.f


def draw_noisy(given: SiteInputs) -> tuple[Sites, np.ndarray]:
    """The dispersion and omega given psi, the precision of its noise, and psi."""
    f, only = given.f, given.relation.cells.only_observed
    r, omega, kappa = _draw_omega(given, given.psi)
    tau = draw_noise(given, "all", (given.psi - f) ** 2)
    spread = 1.0 / (omega + tau[0])
    psi = spread * (tau[0] * f + only(kappa)) + np.sqrt(spread) * given.rng.standard_normal(f.shape)
    weight = only(np.full((1,) * f.ndim, tau[0]))
    return Sites(weight, only(tau[0] * psi), gammas_at(tau), None if r is None else gammas_at(r)), psi


def draw_noise(given: SiteInputs, groups: str, squares: np.ndarray) -> np.ndarray:
    """Noise precisions of the groups, given the squares of the cells' noise."""
    relation = given.relation
    if relation.known_noise is not None:
        return relation.known_noise
    a0, b0 = given.priors.noise
    a = a0 + 0.5 * relation.cells.counts(groups)
    b = b0 + 0.5 * relation.cells.group_sums(relation.cells.only_observed(squares), groups)
    return np.asarray(given.rng.gamma(a) / b)


def _draw_omega(given: SiteInputs, psi: np.ndarray) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
    """The dispersion, omega and kappa of the likelihood at the latent values psi."""
    relation, cells, r = given.relation, given.relation.cells, given.relation.known_r
    if relation.kind.theta == "r" and r is None:
        (a0, b0), groups, old = given.priors.r, relation.groups, given.old.r
        now = np.full(len(cells.counts(groups)), a0 / b0) if old is None else old.mean
        # r ~ Gamma(a0 + the tables, b0 - the sum of log(1 - p)), given the latent values and not omega
        tables = draw_cells(draw_tables, relation.x, cells.spread(now, groups), given.seed + 1, given)
        a = a0 + cells.group_sums(cells.only_observed(tables), groups)
        b = b0 + cells.group_sums(cells.only_observed(np.logaddexp(0.0, psi)), groups)
        r = np.asarray(given.rng.gamma(a) / b)
    trials, kappa = shape_and_kappa(relation, r)
    return r, draw_cells(draw_omegas, cells.only_observed(trials), psi, given.seed, given), kappa


# The likelihood of a relation as Gaussian sites: given the moments of its latent values, a quadratic lower bound.
#
# Gaussian noise has weight tau and target tau x; the Polya-Gamma augmentation has weight E[omega] and target kappa
# (Klami eq. 4); Boehning's bound has a constant weight. With an explicit noise the cells have latent values psi of
# their own, and the factors see these as Gaussian data.
#
# Source: Klami (2014), sections 2.2, 4.1 to 4.3 and 5.1. The dispersion r follows from the same bound that omega
# maximises, so that the whole lower bound never falls, where the paper takes E log(1 - p) by Monte Carlo integration.
# Its expected table counts are those of r~ = exp E[log r]. Boehning's pseudo data are 4 (x - sigmoid) + f; the paper
# prints (x - sigmoid) / 4 + f, which is no bound.

LOG_2PI = float(np.log(2.0 * np.pi))
SMALL = 1e-6  # below it E[omega] is its value at 0 to machine precision


def polya_gamma_mean(b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """E PG(b, c) = b tanh(c / 2) / (2 c), for c >= 0."""
    c = np.maximum(c, SMALL)
    e = np.exp(-c)
    return np.asarray(b * ((1.0 - e) / ((1.0 + e) * (2.0 * c))))


def shape_and_kappa(relation: Relation, r: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """b and kappa of exp(kappa f) / (2 cosh(f / 2))^b, the likelihood in its latent value."""
    likelihood = relation.kind.likelihood
    theta = likelihood.default_theta if r is None else relation.cells.spread(r, relation.groups)
    return likelihood.pg.exponents(relation.x, theta)  # type: ignore[union-attr,misc]


def noise_posterior(relation: Relation, groups: str, priors: Priors, squares: np.ndarray) -> Gammas:
    """q(tau) of each group of cells, given the sums over it of the expected squares of their noise."""
    if relation.known_noise is not None:
        return gammas_at(relation.known_noise)
    a0, b0 = priors.noise
    return gammas(a0 + 0.5 * relation.cells.counts(groups), b0 + 0.5 * squares, a0, b0)


def r_posterior(relation: Relation, priors: Priors, old: Sites | None, f: np.ndarray, c: np.ndarray) -> Gammas | None:
    """q(r): shape a0 + the expected tables, rate b0 + the bound of the sum of -log(1 - p)."""
    if relation.known_r is not None:
        return gammas_at(relation.known_r)
    if relation.table is None:
        return None
    (a0, b0), (counts, times) = priors.r, relation.table
    start = np.full(len(times), np.log(a0 / b0)) if old is None or old.r is None else old.r.log_mean
    tables = expected_tables(counts, np.exp(start)[:, None])
    softplus = relation.cells.observed_sums(0.5 * f + log_two_cosh_half(c), relation.groups)
    return gammas(a0 + (times * tables).sum(axis=1), b0 + softplus, a0, b0)


def gaussian_sites(relation: Relation, priors: Priors, old: Sites | None, f: np.ndarray, variance: np.ndarray) -> Sites:
    """Sites of Gaussian data at the expected noise precision."""
    squares = relation.cells.observed_sums(_squares(relation, f, variance), relation.groups)
    return sites_of_squares(relation, priors, squares)


def sites_of_squares(relation: Relation, priors: Priors, squares: np.ndarray) -> Sites:
    """The same, given the sums over each group of the expected squares of what is left of the data."""
    noise = noise_posterior(relation, relation.groups, priors, squares)
    return Sites(relation.cells.spread(noise.mean, relation.groups), noise=noise)


def _squares(relation: Relation, f: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Expected squares of what is left of the data, in one array of their size."""
    rest: np.ndarray = relation.x - f
    rest *= rest
    rest += variance
    return rest


def gaussian_bounds(relation: Relation, sites: Sites, f: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Expected log density of Gaussian data."""
    noise = cast(Gammas, sites.noise)
    tau, log_tau = (relation.cells.spread(part, relation.groups) for part in (noise.mean, noise.log_mean))
    value = _squares(relation, f, variance)
    value *= -0.5 * tau
    value += 0.5 * (log_tau - LOG_2PI)
    return value


def omega_sites(relation: Relation, priors: Priors, old: Sites | None, f: np.ndarray, variance: np.ndarray) -> Sites:
    """Sites at E[omega], the tightest of the augmentation's bounds."""
    c = np.sqrt(f * f + variance)
    r = r_posterior(relation, priors, old, f, c)
    return Sites(*_polya_gamma(relation, r, c), r=r)


def _polya_gamma(relation: Relation, r: Gammas | None, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    b, kappa = shape_and_kappa(relation, None if r is None else r.mean)
    only = relation.cells.only_observed
    return only(polya_gamma_mean(b, c)), only(kappa)


def omega_bounds(relation: Relation, sites: Sites, f: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """kappa f - b log(2 cosh(c / 2)): the bound that E[omega] at c^2 = E[f^2] attains."""
    b, kappa = shape_and_kappa(relation, None if sites.r is None else sites.r.mean)
    return np.asarray(kappa * f - b * log_two_cosh_half(np.sqrt(f * f + variance)))


def noisy_sites(relation: Relation, priors: Priors, old: Sites | None, f: np.ndarray, variance: np.ndarray) -> Sites:
    """Sites of psi = f + noise as Gaussian data, psi updated by its own Polya-Gamma sites."""
    if old is None or old.psi is None or old.psi_var is None:  # start where psi is its prior
        psi, psi_var = f, np.ones_like(f)
        noise = gammas_at(np.ones(1) if relation.known_noise is None else relation.known_noise)
    else:
        psi, psi_var = old.psi, old.psi_var
        squares = relation.cells.observed_sums((psi - f) ** 2 + psi_var + variance, "all")
        noise = noise_posterior(relation, "all", priors, squares)
    tau, c = noise.mean[0], np.sqrt(psi * psi + psi_var)
    r = r_posterior(relation, priors, old, psi, c)
    omega, kappa = _polya_gamma(relation, r, c)
    psi_var = 1.0 / (omega + tau)
    psi = psi_var * (tau * f + kappa)
    only = relation.cells.only_observed
    return Sites(only(np.full((1,) * f.ndim, tau)), only(tau * psi), noise, r, psi, psi_var)


def noisy_bounds(relation: Relation, sites: Sites, f: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """The Polya-Gamma bound at psi, the expected log density of psi, and its entropy."""
    psi, psi_var, noise = cast(np.ndarray, sites.psi), cast(np.ndarray, sites.psi_var), cast(Gammas, sites.noise)
    entropy = 0.5 * np.log(2.0 * np.pi * math.e * psi_var)
    squares = (psi - f) ** 2 + psi_var + variance
    prior = 0.5 * (noise.log_mean[0] - LOG_2PI - noise.mean[0] * squares)
    return np.asarray(entropy + prior + omega_bounds(relation, sites, psi, psi_var))


def boehning_sites(relation: Relation, priors: Priors, old: Sites | None, f: np.ndarray, variance: np.ndarray) -> Sites:
    """Sites of the largest curvature, which touch the log likelihood at f."""
    only = relation.cells.only_observed
    weight, _, slope = _parabola(relation, f)
    return Sites(only(weight), only(slope + weight * f))


def _parabola(relation: Relation, f: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The largest curvature, and log likelihood and slope of every cell."""
    likelihood, curvature = relation.kind.likelihood, cast(Callable[..., float], relation.kind.curvature)
    weight = np.full((1,) * relation.x.ndim, curvature(relation.x))
    value, slope, _ = log_density(likelihood.loglik, relation.x.ravel(), f.ravel(), likelihood.default_theta)
    return weight, value.reshape(f.shape), slope.reshape(f.shape)


def boehning_bounds(relation: Relation, sites: Sites, f: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """The expected parabola."""
    weight, value, _ = _parabola(relation, f)
    return np.asarray(value - 0.5 * weight * variance)


def bound(relation: Relation, sites: Sites, latent: Latent) -> float:
    """The relation's share of the lower bound of the log evidence, at the sites' own parameters."""
    total = -sum(g.divergence for g in (sites.noise, sites.r) if g is not None)
    if isinstance(latent, Products):  # Gaussian data
        noise = cast(Gammas, sites.noise)
        log_density = 0.5 * (noise.log_mean - LOG_2PI) * relation.cells.counts(relation.groups)
        total += float((log_density - 0.5 * noise.mean * latent.squares).sum())
    else:
        value = relation.kind.form.cell_bounds(relation, sites, *latent)
        total += float(relation.cells.observed_sums(value, "all")[0])
    if sites.r is not None and relation.table is not None:
        counts, times = relation.table
        total += float((times * count_factor(counts, np.exp(sites.r.log_mean)[:, None])).sum())
    return total


def count_factor(x: np.ndarray, r: np.ndarray) -> np.ndarray:
    """log of Gamma(x + r) / (Gamma(r) x!), r = exp E[log r]: the bound that the expected tables attain."""
    return np.asarray(gammaln(x + r) - gammaln(r) - gammaln(x + 1.0))


# The kinds of matrices: by what users call a likelihood, and how it is augmented. A new one is one line.

SOFTPLUS = 0.17  # curvature of -log softplus, rounded up (0.1671); times the count
LABELS_SCALE = 4.0  # a step of 1 in a probability of 1/2 is one of 4 in its logit
PROBIT_SCALE = 2.5  # and one of sqrt(2 pi) in its probit

CONJUGATE = SiteForm(gaussian_sites, gaussian_bounds, draw_gaussian, sites_of_squares)
POLYA_GAMMA = SiteForm(omega_sites, omega_bounds, draw_augmented)
NOISY = SiteForm(noisy_sites, noisy_bounds, draw_noisy)
BOEHNING = SiteForm(boehning_sites, boehning_bounds)
HIDDEN = SiteForm(probit_sites, probit_bounds, draw_probit)
LIMIT = SiteForm(limited_sites, limited_bounds, draw_limited)


_REAL = Kind(GAUSSIAN, CONJUGATE, lambda name, values: check_size(name, values, least=0.0), theta="noise")
_LABELS = Kind(LOGIT, POLYA_GAMMA, check_zero_one, lambda mean, r: logit(0.01 + 0.98 * mean), scale=LABELS_SCALE)
_PROBIT = Kind(PROBIT, HIDDEN, check_zero_one, lambda mean, r: ndtri(0.01 + 0.98 * mean), scale=PROBIT_SCALE)
_COUNTS = Kind(
    NEGBINOMIAL, POLYA_GAMMA, check_counts, lambda mean, r: np.log(mean + 0.01) - np.log(r), np.log1p, theta="r"
)
_RATES = Kind(SOFTPLUS_POISSON, BOEHNING, check_counts, sketch=np.log1p, curvature=lambda x: 0.25 + SOFTPLUS * x.max())

# Real data with a limit, which `Link.limit` holds: values stay in the units of the model.
LIMITED = _REAL._replace(likelihood=replace(GAUSSIAN, normal=TOBIT.normal), form=LIMIT)

# By the words of a likelihood and of an augmentation; real data need none, so that every augmentation is the same.
KINDS: dict[tuple[str, str], Kind] = {
    ("gaussian", "direct"): _REAL,
    ("bernoulli", "direct"): _LABELS,
    ("bernoulli", "noise"): _LABELS._replace(form=NOISY),
    ("bernoulli", "boehning"): _LABELS._replace(form=BOEHNING, curvature=lambda x: 0.25),
    ("probit", "direct"): _PROBIT,
    ("negbinomial", "direct"): _COUNTS,
    ("negbinomial", "noise"): _COUNTS._replace(form=NOISY),
    ("poisson", "boehning"): _RATES,
}
LIKELIHOODS = tuple(dict.fromkeys(likelihood for likelihood, _ in KINDS))
# What is observed under each.
OBSERVED = {likelihood: str(kind.likelihood.observes) for (likelihood, _), kind in KINDS.items()}
# What others call them, the shell's words for tensors among these.
SAME_AS = {
    **dict.fromkeys(("logit", "logistic", "binary", "binomial"), "'bernoulli'"),
    **dict.fromkeys(("normal", "real"), "'gaussian'"),
    **dict.fromkeys(("counts", "count", "negative-binomial", "nb"), "'negbinomial' (or 'poisson')"),
}
AUGMENTATIONS = tuple(dict.fromkeys(augmentation for _, augmentation in KINDS))


def check_likelihood(likelihood: str) -> str:
    """Return a word of LIKELIHOODS; the error names the one that stands for a word of the shell or other packages."""
    instead = SAME_AS.get(likelihood) if isinstance(likelihood, str) else None
    if instead is not None:
        known = ", ".join(map(repr, LIKELIHOODS))
        fail_value(f"likelihood must be one of {known}; got {likelihood!r}, which is {instead} in factor models.")
    return check_choice("likelihood", likelihood, LIKELIHOODS)


def kind_of(likelihood: str, augmentation: str) -> Kind:
    """The kind of these two words; a ValueError if one of them does not exist, or they do not go together."""
    check_likelihood(likelihood)
    check_choice("augmentation", augmentation, AUGMENTATIONS)
    if (likelihood, augmentation) not in KINDS:
        got = f"likelihood {likelihood!r} does not go with augmentation {augmentation!r}"
        which = "for 'bernoulli' and 'poisson', the Polya-Gamma ones for 'bernoulli' and 'negbinomial'"
        fail_value(f"{got}; Boehning's bound is {which}; for 'probit' there is 'direct' alone.")
    return KINDS[likelihood, augmentation]


def augmentation_of(likelihood: str) -> str:
    """The augmentation of a likelihood, which must be known, where none is asked for: direct, if there is that."""
    check_likelihood(likelihood)
    return next(augmentation for augmentation in AUGMENTATIONS if (likelihood, augmentation) in KINDS)
