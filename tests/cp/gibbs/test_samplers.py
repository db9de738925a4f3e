"""The Gibbs samplers: Geweke's joint test beside twins with a planted bug, exact conditionals, invariances."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from helpers.cases import each
from helpers.problems import build, problem, settings_of
from helpers.samplers import MEAN, SD, STRUCTURED, THETA_PRIOR, geweke_z, learned_prior, prior_of

from tensorcep.core.loop import run
from tensorcep.cp.gibbs import method as samplers
from tensorcep.cp.methods import METHODS
from tensorcep.likelihoods import LIKELIHOODS, negbinomial
from tensorcep.likelihoods.base import Augmentation
from tensorcep.likelihoods.negbinomial import softplus
from tensorcep.likelihoods.parameters.base import NoisePrecision
from tensorcep.priors.ard import ARDPrior
from tensorcep.priors.by_mode import PriorByMode
from tensorcep.priors.fixed import Prior, natural_prior

PAIRS = [
    ("gibbs", "gaussian"),
    ("gibbs", "tobit"),
    ("gibbs", "probit"),
    ("gibbs", "poisson"),
    ("gibbs", "negbinomial"),
    ("pg-gibbs", "logit"),
    ("pg-gibbs", "negbinomial"),
]
EVERY = pytest.mark.parametrize(("method", "likelihood"), PAIRS)
# Seven statistics in seven samplers: 4.5 standard errors happen once in 3,000 runs.
LIMIT = 4.5


def settings(method, sweeps=200, **given):
    given = {"burn_in": 0, "n_chains": 1, **given}
    if method in ("gibbs", "pg-gibbs"):
        given.setdefault("dispersion_prior", THETA_PRIOR)
    return settings_of(method, sweeps, **given)


def sample(p, method, sweeps=6, threads=1, **given):
    options = settings(method, sweeps, **given)
    return run(METHODS[method], p, options, max_iter=sweeps, tol=0.0, n_threads=threads)


def counts_or(rng, likelihood, **kw):
    """`problem`, with labels for logit and counts for the negative binomial."""
    coords, y, p = problem(rng, likelihood="poisson" if likelihood == "negbinomial" else likelihood, **kw)
    y = np.where(y > 0, 1.0, -1.0) if likelihood == "logit" else y
    return coords, y, build(coords, y, p.shape, p.rank, likelihood, start=p.start)


@pytest.mark.slow
@EVERY
def test_samplers_pass_the_joint_test(method, likelihood):
    z = geweke_z(METHODS[method], settings(method), likelihood, n=1500)
    assert np.abs(z).max() < LIMIT, z


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "likelihood", "learned"),
    [("gibbs", "gaussian", "learned"), ("gibbs", "gaussian", "ard"), ("pg-gibbs", "logit", None)],
)
def test_samplers_with_clamped_columns_pass_the_joint_test(method, likelihood, learned):
    # not logit with a learned prior: its tails reach latent values at which labels are certain, where chains stay long
    z = geweke_z(METHODS[method], settings(method), likelihood, n=900, free=STRUCTURED, learned=learned)
    assert np.abs(z).max() < LIMIT, z


def _tempered(original):
    return lambda chains, c, p, precision, *rest, **how: original(chains, c, p, 2.5 * precision, *rest, **how)


def without_clamped(columns):
    return columns._replace(clamped=0.0 * columns.clamped)


def _without_offsets(original):
    return lambda free: tuple(without_clamped(columns) for columns in original(free))


def _heavier(original):
    """Polya-Gamma draws with more than y + r trials."""

    def drawn(a, b, y, used, f, theta, key, weight, target, s):
        original(a, b, y, used, f, theta, key, weight, target, s)
        weight[a:b] *= 1.7

    return drawn


def _wider(original):
    """Censored values with twice the variance of the noise."""
    return lambda a, b, y, used, f, theta, *rest: original(a, b, y, used, f, 0.5 * theta, *rest)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "likelihood"), [("gibbs", "gaussian"), ("gibbs", "probit")])
def test_samplers_that_temper_the_rows_fail_the_joint_test(monkeypatch, method, likelihood):
    monkeypatch.setattr(samplers, "draw_factors", _tempered(samplers.draw_factors))
    z = geweke_z(METHODS[method], settings(method), likelihood, n=1500)
    assert np.abs(z).max() > LIMIT, z


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "bug", "method", "likelihood"),
    [
        ("normal", _wider, "gibbs", "tobit"),
        ("pg", _heavier, "pg-gibbs", "logit"),
        ("pg", _heavier, "pg-gibbs", "negbinomial"),
    ],
)
def test_samplers_with_a_planted_bug_fail_the_joint_test(monkeypatch, part, bug, method, likelihood):
    record = LIKELIHOODS[likelihood]
    augmentation = getattr(record, part)
    wrong = augmentation._replace(drawn=bug(augmentation.drawn))
    monkeypatch.setitem(LIKELIHOODS, likelihood, replace(record, **{part: wrong}))
    z = geweke_z(METHODS[method], settings(method), likelihood, n=1500)
    assert np.abs(z).max() > LIMIT, z


@pytest.mark.slow
def test_samplers_whose_precision_counts_residuals_twice_fail_the_joint_test(monkeypatch):
    expect = NoisePrecision.expect
    monkeypatch.setattr(NoisePrecision, "expect", lambda p, law, s: expect(p, law, s._replace(sums=2.0 * s.sums)))
    z = geweke_z(METHODS["gibbs"], settings("gibbs"), "gaussian", n=1500)
    assert np.abs(z).max() > LIMIT, z


@pytest.mark.slow
def test_samplers_whose_dispersion_sees_half_the_rates_fail_the_joint_test(monkeypatch):
    monkeypatch.setattr(negbinomial, "softplus", lambda f: 0.5 * softplus(f))
    z = geweke_z(METHODS["pg-gibbs"], settings("pg-gibbs"), "negbinomial", n=1500)
    assert np.abs(z).max() > LIMIT, z


@pytest.mark.slow
def test_samplers_that_turn_the_sign_of_an_ard_centre_fail_the_joint_test(monkeypatch):
    draw = ARDPrior.draw
    monkeypatch.setattr(ARDPrior, "draw", lambda p, now, rows, rng: draw(p, now, [x + 2.0 * MEAN for x in rows], rng))
    z = geweke_z(METHODS["gibbs"], settings("gibbs"), "gaussian", n=900, free=STRUCTURED, learned="ard")
    assert np.abs(z).max() > LIMIT, z


@pytest.mark.slow
def test_samplers_that_forget_the_clamped_columns_fail_the_joint_test(monkeypatch):
    monkeypatch.setattr(samplers.row_draw, "mode_columns", _without_offsets(samplers.row_draw.mode_columns))
    z = geweke_z(METHODS["gibbs"], settings("gibbs"), "gaussian", n=1500, free=STRUCTURED)
    assert np.abs(z).max() > LIMIT, z


@each("K", [2, 3, 4])
def test_samplers_draw_rows_from_their_conditional(rng, K):
    """With the other modes fixed by a narrow prior, the rows of the first mode have a Gaussian posterior."""
    coords, y, p = problem(rng, K, 2, 20, likelihood="gaussian")
    fixed = [rng.standard_normal((n, 2)) for n in p.shape[1:]]
    prior = Prior([0.2, *fixed], [1.5, *[1e10] * (K - 1)])
    p = build(coords, y, p.shape, 2, prior=prior, noise=p.noise_prior._replace(a=4e9, b=2e9))
    found = sample(p, "gibbs", 2000, thin=1).posterior.rows[0, :, : p.shape[0]]
    for i in range(p.shape[0]):
        here = coords[:, 0] == i
        z = np.prod([u[j] for u, j in zip(fixed, coords[here, 1:].T, strict=True)], axis=0).reshape(-1, 2)
        cov = np.linalg.inv(1.5 * np.eye(2) + 2.0 * z.T @ z)
        mean = cov @ (1.5 * 0.2 * np.ones(2) + 2.0 * z.T @ y[here])
        np.testing.assert_allclose(found[:, i].mean(axis=0), mean, atol=5.0 * np.sqrt(cov.max() / 2000))
        np.testing.assert_allclose(np.cov(found[:, i].T), cov, atol=8.0 * cov.max() / np.sqrt(2000))


def test_samplers_report_the_fit_of_their_own_draws(rng):
    coords, y, p = problem(rng, 3, 3, 40)
    result = sample(p, "gibbs", 5, thin=1)
    rows, tau = result.posterior.rows[0, -1], result.posterior.theta[0, -1, 0]
    packed = coords + np.array([0, p.shape[0], p.shape[0] + p.shape[1]])
    residual = y - rows[packed].prod(axis=1).sum(axis=1)
    wanted = np.mean(0.5 * np.log(tau / (2 * np.pi)) - 0.5 * tau * residual**2)
    assert result.trace["train_score"][-1] == pytest.approx(wanted, rel=1e-9)


@EVERY
def test_samplers_give_the_same_bits_on_two_threads_and_not_with_another_seed(rng, method, likelihood):
    _, _, p = counts_or(rng, likelihood, K=3, R=5, n=400, shape=(40, 35, 20))
    draws = [
        sample(p._replace(seed=seed), method, 4, threads).posterior.rows for seed, threads in ((1, 1), (1, 2), (2, 1))
    ]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])


@EVERY
def test_samplers_do_not_depend_on_the_order_of_entries(rng, method, likelihood):
    coords, y, p = counts_or(rng, likelihood, K=3, R=2, n=40)
    order = rng.permutation(len(y))
    again = build(coords[order], y[order], p.shape, 2, likelihood, start=p.start)
    np.testing.assert_array_equal(sample(p, method).posterior.rows, sample(again, method).posterior.rows)


@EVERY
@each("K", [2, 4])
def test_samplers_without_entries_draw_from_the_prior(rng, method, likelihood, K):
    shape = (6, 5, 4, 3)[:K]
    prior = Prior([0.5] * K, [4.0] * K)
    p = build(np.empty((0, K), dtype=int), np.empty(0), shape, 2, likelihood, prior, rng.random((sum(shape), 2)))
    rows = sample(p, method, 600).posterior.rows
    n = rows.shape[1] * rows.shape[2] * rows.shape[3]
    assert abs(rows.mean() - 0.5) < 5 * 0.5 / np.sqrt(n)
    assert abs(rows.var() - 0.25) < 5 * 0.25 * np.sqrt(2.0 / n)


def test_samplers_keep_what_the_settings_say(rng):
    _, _, p = problem(rng, 3, 2, 30)
    result = sample(p, "gibbs", 20, burn_in=8, thin=3, n_chains=3, noise="sampled", weights="equal").posterior
    assert result.rows.shape == (3, 4, 15, 2)
    assert result.theta.shape == (3, 4, 1)
    assert result.theta_mode is None
    assert len(np.unique(result.rows[:, 0, 0, 0])) == 3
    stopped = run(METHODS["gibbs"], p, settings("gibbs", sweeps=50, burn_in=40), max_iter=3, tol=0.0)
    assert stopped.posterior.rows.shape == (1, 1, 15, 2)


def test_samplers_draw_unknown_rows_from_the_present_prior(rng):
    """Of every chain, free columns with the moments of its prior; clamped ones are 1."""
    free, (_, _, p) = STRUCTURED, problem(rng, 3, 3, 30)
    lower = np.tril(rng.standard_normal((3, 3, 3))) + 2.0 * np.eye(3)
    prior = Prior(list(rng.standard_normal((3, 3))), list(lower @ lower.transpose(0, 2, 1)))
    p = build(np.empty((0, 3), dtype=int), np.empty(0), p.shape, 3, prior=prior, start=p.start)
    one = np.ones((3, 3))
    p = p._replace(prior=PriorByMode(p.prior.Lam, p.prior.eta, 0.0 * one, one, one > 0.0))
    chains = samplers.start_chains(p, settings("gibbs", n_chains=4000), Augmentation())
    found = samplers._unknown_rows(chains, p)
    for k, cov in enumerate(np.linalg.inv(np.array(prior.precision))):
        np.testing.assert_allclose(found[:, k].mean(axis=0), prior.mean[k], atol=5.0 * np.sqrt(cov.max() / 4000))
        np.testing.assert_allclose(np.cov(found[:, k].T), cov, atol=8.0 * cov.max() / np.sqrt(4000))
    Lam, eta = natural_prior(prior_of(free), p.shape, 3)
    p = p._replace(prior=replace(learned_prior(free), Lam=Lam, eta=eta), free=free)
    chains = samplers.start_chains(p, settings("gibbs", n_chains=4000), Augmentation())
    found = samplers._unknown_rows(chains, p)
    np.testing.assert_allclose(found.mean(axis=0), np.where(free, MEAN, 1.0), atol=5.0 * SD / np.sqrt(4000))
    np.testing.assert_allclose(found.std(axis=0), np.where(free, SD, 0.0), atol=5.0 * SD / np.sqrt(4000))


def test_samplers_infer_one_dispersion_per_row_of_a_mode():
    rng = np.random.default_rng(4)
    shape, true = (3, 40, 20), np.array([0.7, 4.0, 15.0])
    coords = np.array(list(itertools.product(*(range(n) for n in shape))))
    f = 0.4 * rng.standard_normal(40)[coords[:, 1]]
    y = rng.poisson(rng.gamma(true[coords[:, 0]]) * np.exp(f)).astype(float)
    prior = Prior([1.0, 0.0, 1.0], [1e8, 4.0, 1e8])
    p = build(coords, y, shape, 1, "negbinomial", prior, np.full((63, 1), 0.5))
    result = sample(p, "pg-gibbs", 120, burn_in=40, dispersion_mode=0, dispersion_prior=(1.0, 0.1)).posterior
    assert result.theta_mode == 0
    np.testing.assert_allclose(result.theta[0].mean(axis=0), true, rtol=0.35)


@each(
    ("given", "words"),
    [
        ({"n_chains": 0}, "n_chains must be an integer >= 1; got 0"),
        ({"thin": 0}, "thin must be"),
        ({"burn_in": 200}, "burn_in must be below max_iter=200; got 200"),
        ({"dispersion_prior": (1.0, 0.0)}, r"dispersion_prior\[1\] must be a number > 0; got 0.0"),
        ({"dispersion_prior": 2.0}, "pair"),
        ({"dispersion_mode": -1}, "dispersion_mode must be an integer >= 0; got -1"),
    ],
)
def test_samplers_refuse_wrong_settings(given, words):
    with pytest.raises(ValueError, match=words):
        settings_of("pg-gibbs", 200, **given)


def test_samplers_refuse_a_mode_that_does_not_exist(rng):
    _, _, p = counts_or(rng, "negbinomial", K=3)
    with pytest.raises(ValueError, match="dispersion_mode must be an integer from 0 to 2; got 3"):
        sample(p, "pg-gibbs", dispersion_mode=3)


def test_samplers_start_other_chains_from_the_prior(rng):
    _, _, p = problem(rng, 3, 2, 30, prior=Prior([2.0] * 3, [1e6] * 3))
    chains = samplers.start_chains(p, settings("gibbs", n_chains=2), Augmentation())
    np.testing.assert_array_equal(chains.rows[0], p.start)
    np.testing.assert_allclose(chains.rows[1], 2.0, atol=0.01)
