"""Gibbs sampling for relations: posterior means of oracles, joint tests, threads."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import relation_problems as p
from helpers.cases import each
from scipy.special import expit, ndtr

from tensorcep import BayesianPCA
from tensorcep.core.executor import ThreadExecutor
from tensorcep.core.loop import run
from tensorcep.factor_models import sites
from tensorcep.factor_models.gibbs import GIBBS_ENGINE, aligned
from tensorcep.factor_models.problem import Priors
from tensorcep.factor_models.settings import Gibbs


def latent_draws(problem, sweeps, burn_in=200, threads=1):
    settings = Gibbs(burn_in=burn_in, thin=1)
    rows = run(GIBBS_ENGINE, problem, settings, max_iter=sweeps, tol=0.0, n_threads=threads).posterior.draws.rows
    return np.einsum("snk,smk->snm", *rows)


def test_pca_gibbs_posterior_means_of_oracles():
    gauss = p.problem(p.GAUSS, 2, "gaussian", alpha=p.GAUSS_ALPHA, noise=p.GAUSS_TAU)
    np.testing.assert_allclose(latent_draws(gauss, 3500).mean(axis=0), p.GAUSS_MEAN, atol=0.06)
    binary = p.problem(p.BINARY, 1, "bernoulli")
    np.testing.assert_allclose(expit(latent_draws(binary, 3500)).mean(axis=0), p.BINARY_P, atol=0.02)
    counts = p.problem(p.COUNTS, 1, "negbinomial", r=p.COUNTS_R)
    np.testing.assert_allclose(latent_draws(counts, 3500).mean(axis=0), p.COUNTS_PSI, atol=0.06)


SHAPE, RANK = (3, 2), 1
PRECISION_PRIOR, PRIORS = (20.0, 5.0), Priors(noise=(8.0, 4.0), r=(6.0, 3.0))


def joint_problem(likelihood, augmentation):
    problem = p.problem(
        np.ones(SHAPE), RANK, likelihood, augmentation, learned=True, precision_prior=PRECISION_PRIOR, priors=PRIORS
    )
    return problem._replace(entities=(problem.entities[0]._replace(precision=np.full(RANK, 2.0)), problem.entities[1]))


def draw_x(rng, likelihood, psi, tau, r):
    if likelihood == "gaussian":
        return rng.normal(psi, tau**-0.5)
    if likelihood == "limited":
        return np.maximum(rng.normal(psi, tau**-0.5), p.LIMIT)
    if likelihood in ("bernoulli", "probit"):
        one = expit(psi) if likelihood == "bernoulli" else ndtr(psi)
        return np.where(rng.random(psi.shape) < one, 1.0, -1.0)  # as the likelihood codes labels
    return rng.poisson(rng.gamma(r, np.exp(psi), psi.shape)).astype(float)


def marginal_draw(rng, likelihood, augmentation):
    """The functions whose means are compared, at one independent draw from the prior and the likelihood."""
    alpha = rng.gamma(PRECISION_PRIOR[0]) / PRECISION_PRIOR[1]
    tau = rng.gamma(PRIORS.noise[0]) / PRIORS.noise[1]
    r = rng.gamma(PRIORS.r[0]) / PRIORS.r[1]
    u, v = rng.normal(size=(SHAPE[0], 1)) / np.sqrt(2.0), rng.normal(size=(SHAPE[1], 1)) / np.sqrt(alpha)
    psi = u @ v.T
    if augmentation == "noise":
        psi = rng.normal(psi, tau**-0.5)
    return functions(likelihood, augmentation, u, v, alpha, tau, r, draw_x(rng, likelihood, psi, tau, r))


def functions(likelihood, augmentation, u, v, alpha, tau, r, x):
    found = [np.mean(u**2), np.mean(v**2), alpha, np.mean(u @ v.T * np.minimum(x, 20.0)), np.mean(np.minimum(x, 20.0))]
    if likelihood in ("gaussian", "limited") or augmentation == "noise":
        found += [tau, tau * tau]
    if likelihood == "negbinomial":
        found += [r, r * r]
    return found


def joint_scores(likelihood, augmentation, sweeps=3000):
    """z scores of the means of the functions: sampler and data drawn in turn, against independent draws."""
    rng = np.random.default_rng(7)
    problem = joint_problem(likelihood, augmentation)
    settings, threads = Gibbs(burn_in=0, thin=10**9), ThreadExecutor(1)
    chain = GIBBS_ENGINE.init(problem, settings, threads)
    found = []
    for _ in range(sweeps):
        chain, _ = GIBBS_ENGINE.step(chain, problem, settings, threads)
        state = chain.state
        u, v = (m.mean for m in state.moments)
        sites, (f, psi) = state.sites[0], state.latent[0]
        tau = None if sites.noise is None else sites.noise.mean[0]
        r = None if sites.r is None else sites.r.mean[0]
        x = draw_x(rng, likelihood, psi if augmentation == "noise" else f, tau, r)
        problem = problem._replace(relations=(problem.relations[0]._replace(x=x),))
        found.append(functions(likelihood, augmentation, u, v, state.precisions[1].mean[0], tau, r, x))
    chained = np.array(found[sweeps // 20 :])
    free = np.array([marginal_draw(rng, likelihood, augmentation) for _ in range(5 * sweeps)])
    batches = np.stack([part.mean(axis=0) for part in np.array_split(chained, 40)])
    error = np.sqrt(batches.var(axis=0, ddof=1) / 40 + free.var(axis=0) / len(free))
    return (chained.mean(axis=0) - free.mean(axis=0)) / error


@pytest.mark.slow
@pytest.mark.parametrize(("likelihood", "augmentation"), p.AUGMENTED)
def test_pca_gibbs_joint_test(likelihood, augmentation):
    assert np.abs(joint_scores(likelihood, augmentation)).max() < 4.5


def _three_times_the_shape(right):
    return lambda draw, b, c, *rest: right(draw, 3.0 * b, c, *rest)


def _half_forgotten(right):
    return lambda given, groups, squares: right(given, groups, 2 * squares)


def _one_table_too_few(right):
    return lambda draw, x, *rest: right(draw, np.maximum(x - 1.0, 0.0) if draw is sites.draw_tables else x, *rest)


def _not_below_the_limit(right):
    return lambda given, tau: np.maximum(right(given, tau), p.LIMIT)


def _too_near_to_zero(right):
    return lambda given, tau: 0.6 * right(given, tau)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "bug", "likelihood", "augmentation", "sweeps"),
    [
        ("draw_cells", _three_times_the_shape, "bernoulli", "direct", 2000),
        ("draw_noise", _half_forgotten, "gaussian", "direct", 700),
        ("draw_noise", _half_forgotten, "bernoulli", "noise", 700),
        ("draw_cells", _one_table_too_few, "negbinomial", "direct", 700),
        ("draw_cells", _one_table_too_few, "negbinomial", "noise", 700),
        ("_drawn", _not_below_the_limit, "limited", "direct", 700),
        ("_drawn", _too_near_to_zero, "probit", "direct", 2000),
    ],
)
def test_pca_gibbs_joint_test_sees_planted_bugs(monkeypatch, name, bug, likelihood, augmentation, sweeps):
    monkeypatch.setattr(sites, name, bug(getattr(sites, name)))
    assert np.abs(joint_scores(likelihood, augmentation, sweeps)).max() > 4.5


@each("listed", [False, True])
@pytest.mark.parametrize("likelihood", ["bernoulli", "negbinomial", "probit", "limited"])
def test_pca_gibbs_same_bits_on_two_threads(rng, listed, likelihood):
    x = p.data(rng, likelihood, (150, 20), missing=0.6)
    problem = p.problem(x, 3, likelihood, learned=True, listed=listed)
    one, two = (latent_draws(problem, 6, burn_in=3, threads=n) for n in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_pca_gibbs_refuses_what_it_has_no_sampler_for():
    model = BayesianPCA(1, likelihood="bernoulli", augmentation="boehning", method="gibbs")
    with pytest.raises(ValueError, match="no sampler for Boehning's bound"):
        model.fit(p.BINARY)


def test_pca_gibbs_alignment_undoes_rotations(rng):
    rows = [rng.standard_normal((9, 3)), rng.standard_normal((5, 3))]
    turns = [np.linalg.qr(rng.standard_normal((3, 3)))[0] for _ in range(4)]
    draws = tuple(np.stack([r @ turn for turn in turns]) for r in rows)
    for found in aligned(draws, 3):
        np.testing.assert_allclose(found, np.broadcast_to(found[-1], found.shape), atol=1e-12)
