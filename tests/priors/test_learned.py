"""Learned priors: their posteriors against definitions and draws, and their part in CEP."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from helpers.problems import build, fit, messages, problem, settings_of
from scipy.stats import multivariate_normal, wishart

from tensorcep.core.executor import ThreadExecutor
from tensorcep.core.packing import offsets, unpack
from tensorcep.cp.cep.method import CEP
from tensorcep.cp.messages.engine import with_learned_prior
from tensorcep.cp.model.rows import refresh_rows
from tensorcep.cp.simulate import simulate_cp
from tensorcep.priors import LEARNED
from tensorcep.priors.ard import ARD_SHAPE
from tensorcep.priors.base import ModePrior, damped, per_row
from tensorcep.priors.fixed import Prior, natural_prior
from tensorcep.priors.normal_wishart import MEAN_ROWS

EVERY_KIND = pytest.mark.parametrize("kind", LEARNED)


def prior_of(kind="learned", K=3, R=2, mean=0.0, scale=1.0):
    nothing = np.zeros((0, R))
    whole = np.ones((K, R))
    return LEARNED[kind](nothing, nothing, mean * whole, scale * whole, whole > 0.0)


def expected_prior(prior, now, means, covs):
    return prior.expectation(now, prior.learn(means, covs))


def flat(K=3, R=2):
    return ModePrior(np.zeros((K, R)), np.tile(np.eye(R), (K, 1, 1)))


def no_cov(rows):
    return [np.zeros((m.shape[1], m.shape[1])) for m in rows]


def summed(covs):
    return [cov.sum(axis=0) for cov in covs]


def random_moments(rng, shape=(9, 7, 5), R=2):
    means = [rng.standard_normal((n, R)) for n in shape]
    roots = [0.4 * rng.standard_normal((n, R, R)) for n in shape]
    return means, [root @ root.transpose(0, 2, 1) for root in roots]


def test_normal_wishart_is_the_posterior_density(rng):
    """log p(rows | mu, Lam) + log prior - log posterior is the same constant at every (mu, Lam)."""
    learned = prior_of(R=2, mean=0.3, scale=0.7)
    rows = 0.5 + rng.standard_normal((6, 2))
    found = learned.laws[0].posterior(rows, no_cov([rows])[0])

    def log_nw(mu, Lam, mean, count, df, scatter):
        density = wishart.logpdf(Lam, df, np.linalg.inv(scatter))
        return density + multivariate_normal.logpdf(mu, mean, np.linalg.inv(count * Lam))

    constants = []
    for _ in range(4):
        mu, Lam = rng.standard_normal(2), wishart.rvs(5, np.eye(2), random_state=rng)
        joint = multivariate_normal.logpdf(rows, mu, np.linalg.inv(Lam)).sum()
        joint += log_nw(mu, Lam, np.full(2, 0.3), MEAN_ROWS, 2.0, 0.49 * np.eye(2))
        constants.append(joint - log_nw(mu, Lam, found.mean, found.rows, found.df, found.scatter))
    np.testing.assert_allclose(constants, constants[0], rtol=1e-10)


def test_normal_wishart_counts_the_covariance_of_the_rows(rng):
    """Expected rows give the average, over draws of the rows, of what draws give (the scatter is quadratic in them)."""
    (mean, *_), (cov, *_) = random_moments(rng)
    found = prior_of().laws[0].posterior(mean, cov.sum(axis=0))
    roots = np.linalg.cholesky(cov + 1e-12 * np.eye(2))
    scatter = np.eye(2) + sum(np.outer(m, m) + r @ r.T for m, r in zip(mean, roots, strict=True))
    total = mean.sum(axis=0)
    scatter -= np.outer(total, total) / (MEAN_ROWS + len(mean))
    np.testing.assert_allclose(found.scatter, scatter, rtol=1e-9)
    np.testing.assert_allclose(found.mean, total / (MEAN_ROWS + len(mean)))


def test_ard_precisions_are_shared_by_the_modes(rng):
    means, covs = random_moments(rng)
    a, b, _ = prior_of("ard", scale=2.0).learn(means, summed(covs))
    square = sum((m**2).sum(axis=0) + c.sum(axis=0).diagonal() for m, c in zip(means, covs, strict=True))
    np.testing.assert_allclose(a, ARD_SHAPE + 0.5 * 21)
    np.testing.assert_allclose(b, ARD_SHAPE + 0.5 * square / 4.0)
    prior = expected_prior(prior_of("ard", scale=2.0), flat(), means, summed(covs))
    for precision in prior.precision:
        np.testing.assert_allclose(precision, np.diag(a / b / 4.0))


@EVERY_KIND
def test_learned_prior_without_rows_is_finite_and_at_the_centre(kind):
    none = [np.zeros((0, 2))] * 3
    prior = expected_prior(prior_of(kind, mean=0.4, scale=0.5), flat(), none, no_cov(none))
    np.testing.assert_allclose(prior.mean, 0.4)
    np.testing.assert_allclose(prior.precision, np.tile(np.eye(2) * (8.0 if kind == "learned" else 4.0), (3, 1, 1)))


@EVERY_KIND
def test_learned_prior_leaves_columns_that_are_not_free_alone(rng, kind):
    means, covs = random_moments(rng, R=3)
    free = np.array([[1, 1, 0], [0, 0, 0], [1, 0, 1]], dtype=bool)
    learned = replace(prior_of(kind, R=3), free=free)
    now = ModePrior(np.full((3, 3), 1.5), np.tile(7.0 * np.eye(3), (3, 1, 1)))
    for prior in (expected_prior(learned, now, means, summed(covs)), learned.draw(now, means, rng)):
        np.testing.assert_array_equal(prior.mean[~free], 1.5)
        for k in range(3):
            np.testing.assert_array_equal(prior.precision[k][~free[k]], 7.0 * np.eye(3)[~free[k]])
            assert (prior.precision[k][np.ix_(free[k], free[k])] != 7.0 * np.eye(int(free[k].sum()))).any() or not free[
                k
            ].any()


@EVERY_KIND
def test_sampled_prior_has_the_expected_moments(rng, kind):
    means, _ = random_moments(rng, (12, 10, 8))
    learned = prior_of(kind, mean=0.2)
    want = expected_prior(learned, flat(), means, no_cov(means))
    n = 2000
    draws = [learned.draw(flat(), means, rng) for _ in range(n)]
    precision = np.stack([d.precision for d in draws])
    error = precision.std(axis=0) / np.sqrt(n)
    assert (np.abs(precision.mean(axis=0) - want.precision) <= 6 * error + 1e-12).all()
    mean = np.stack([d.mean for d in draws])
    assert (np.abs(mean.mean(axis=0) - want.mean) <= 6 * mean.std(axis=0) / np.sqrt(n) + 1e-12).all()


@EVERY_KIND
def test_learned_prior_is_equivariant_under_a_change_of_units(rng, kind):
    means, covs = random_moments(rng)
    one = expected_prior(prior_of(kind, mean=0.1), flat(), means, summed(covs))
    scaled = expected_prior(
        prior_of(kind, mean=100.0, scale=1e3), flat(), [1e3 * m for m in means], [1e6 * c for c in summed(covs)]
    )
    np.testing.assert_allclose(scaled.mean, 1e3 * one.mean, rtol=1e-10)
    np.testing.assert_allclose(scaled.precision, 1e-6 * one.precision, rtol=1e-10)


def test_damped_prior_moves_in_natural_parameters():
    old, new = flat(), ModePrior(np.ones((3, 2)), np.tile(3.0 * np.eye(2), (3, 1, 1)))
    half = damped(old, new, 0.5)
    np.testing.assert_allclose(half.precision, np.tile(2.0 * np.eye(2), (3, 1, 1)))
    np.testing.assert_allclose(half.mean, 0.75)
    assert damped(old, new, 1.0) is new


def learning(p, kind="learned", scale=1.0):
    return p._replace(
        prior=replace(prior_of(kind, len(p.shape), p.rank, scale=scale), Lam=p.prior.Lam, eta=p.prior.eta)
    )


@EVERY_KIND
@pytest.mark.parametrize("likelihood", ["gaussian", "probit", "poisson"])
@pytest.mark.parametrize("schedule", ["modewise", "parallel"])
def test_cep_with_a_learned_prior_is_prior_times_messages_and_sound(rng, kind, likelihood, schedule):
    coords, _, p = problem(rng, 3, 3, 45, likelihood)
    run = fit(learning(p, kind), 12, damping=0.5, anneal=2, schedule=schedule)
    prior = run.posterior.mode_prior
    Lam, eta = natural_prior(Prior(prior.mean, prior.precision), p.shape, 3)
    total_Lam, total_eta = unpack(Lam, 3), eta.copy()
    msg_Lam, msg_eta = messages(run.state, p)
    rows = coords + offsets(p.shape)[:-1]
    for k in range(3):
        np.add.at(total_Lam, rows[:, k], msg_Lam[:, k])
        np.add.at(total_eta, rows[:, k], msg_eta[:, k])
    np.testing.assert_allclose(unpack(run.posterior.Lam, 3), total_Lam, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(run.posterior.eta, total_eta, rtol=1e-9, atol=1e-9)
    assert run.trace["skipped"].sum() + run.trace["shrunk"].sum() == 0
    assert (np.linalg.eigvalsh(msg_Lam) > -1e-9).all()  # why no change of the prior can break a cavity


def test_cep_learned_prior_is_a_fixed_point(rng):
    _, _, p = problem(rng, 3, 2, 400, shape=(9, 8, 10), sd=0.1)
    p = learning(p)
    run = fit(p, 500, tol=1e-6, anneal=10)
    assert run.converged
    posterior = run.posterior
    cov = np.linalg.inv(unpack(posterior.Lam, 2))
    mean = np.einsum("nij,nj->ni", cov, posterior.eta)
    rows = [np.arange(a, b)[posterior.seen[a:b]] for a, b in itertools.pairwise(offsets(p.shape))]
    again = expected_prior(p.prior, posterior.mode_prior, [mean[i] for i in rows], summed(cov[i] for i in rows))
    np.testing.assert_allclose(again.precision, posterior.mode_prior.precision, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(again.mean, posterior.mode_prior.mean, rtol=1e-3, atol=1e-4)


def test_cep_learns_nothing_while_it_anneals(rng):
    _, _, p = problem(rng, 3, 2, 30)
    state = CEP.init(learning(p), settings_of("cep", anneal=2), ThreadExecutor(1))
    for sweep in range(3):
        state, _ = CEP.step(state, learning(p), settings_of("cep", anneal=2), ThreadExecutor(1))
        assert (per_row(state.hyper.now.Lam, p.shape) == p.prior.Lam).all() == (sweep < 2)


def test_cep_without_a_learned_prior_keeps_the_arrays_of_the_problem(rng):
    _, _, p = problem(rng, 3, 2, 30)
    run = fit(p, 3)
    assert run.state.hyper.now.Lam is p.prior.Lam
    assert run.posterior.mode_prior is None


STRESS = [
    {"damping": 0.0, "positive": False},
    {"damping": 0.5, "positive": False},
    {"damping": 0.0, "schedule": "parallel"},
    {"damping": "adaptive"},
]


@pytest.mark.parametrize(
    ("likelihood", "options"),
    [("probit", {"damping": 0.5, "order": 2}), *((name, how) for name in ("probit", "poisson") for how in STRESS)],
)
def test_guards_keep_rows_sound_when_the_prior_moves_under_indefinite_messages(rng, likelihood, options):
    _, _, p = problem(rng, 3, 4, 60, likelihood, prior=Prior([0.0] * 3, [0.05] * 3), shape=(12, 10, 11))
    run = fit(learning(p, scale=0.05**-0.5), 30, **options)
    assert np.isfinite(run.posterior.Lam).all()
    assert np.isfinite(run.posterior.eta).all()
    assert (np.linalg.eigvalsh(unpack(run.posterior.Lam, 4)) > 0).all()
    assert (np.linalg.eigvalsh(run.posterior.mode_prior.precision) > 0).all()


def test_cep_shrinks_messages_that_the_new_prior_cannot_carry(rng):
    """A strong prior that carries negative messages is replaced by a weak one: the rows must stay Gaussians."""
    coords, _, p = problem(rng, 3, 2, 40, "probit", prior=Prior([0.0] * 3, [50.0] * 3))
    p = learning(p, scale=3.0)
    state = CEP.init(p, settings_of("cep", damping=0.0, positive=False), ThreadExecutor(1))
    for r in (0, 2):  # the diagonal
        state.own.messages.Lam[:, :, r] = -2.0 * p.entries.weight[:, None]
    counts = np.zeros(sum(p.shape))
    np.add.at(counts, coords + offsets(p.shape)[:-1], 1.0)
    state.rows.Lam[:, [0, 2]] -= 2.0 * counts[:, None]
    state.rows.eta[:] = 100.0 * rng.standard_normal(state.rows.eta.shape)
    refresh_rows(state.rows, 0, len(counts), ThreadExecutor(1))
    assert state.rows.good.all()
    state, shrunk = with_learned_prior(state, p, ThreadExecutor(1))
    assert shrunk > 0
    total, _ = natural_prior(Prior(state.hyper.now.modes.mean, state.hyper.now.modes.precision), p.shape, 2)
    total = unpack(total, 2)
    rows = coords + offsets(p.shape)[:-1]
    for k in range(3):
        np.add.at(total, rows[:, k], messages(state, p)[0][:, k])
    np.testing.assert_allclose(unpack(state.rows.Lam, 2), total, rtol=1e-9, atol=1e-9)
    assert (np.linalg.eigvalsh(total) > 0).all()


@EVERY_KIND
def test_cep_with_a_learned_prior_gives_the_same_bits_on_any_number_of_threads(rng, kind):
    _, _, p = problem(rng, 3, 3, 6000, shape=(30, 25, 20))
    runs = [fit(learning(p, kind), 6, threads=threads) for threads in (1, 2)]
    np.testing.assert_array_equal(runs[0].posterior.Lam, runs[1].posterior.Lam)
    np.testing.assert_array_equal(runs[0].posterior.mode_prior.precision, runs[1].posterior.mode_prior.precision)


def test_learned_prior_recovers_the_means_of_the_modes():
    rng = np.random.default_rng(3)
    shape, centres = (60, 50), (np.array([2.0]), np.array([-1.0]))
    factors = [c + s * rng.standard_normal((n, 1)) for n, c, s in zip(shape, centres, (0.3, 0.6), strict=True)]
    coords = np.stack(np.unravel_index(rng.choice(3000, 1500, replace=False), shape), axis=1)
    y = (factors[0][coords[:, 0]] * factors[1][coords[:, 1]]).sum(axis=1) + 0.1 * rng.standard_normal(1500)
    p = learning(build(coords, y, shape, 1, start=np.concatenate([np.ones((60, 1)), -np.ones((50, 1))])), scale=0.1)
    prior = fit(p, 200, tol=1e-7).posterior.mode_prior
    # scales of the modes are not identified, but mean / sd and the product of the means are
    relative = prior.mean[:, 0] * np.sqrt(prior.precision[:, 0, 0])
    np.testing.assert_allclose(relative, [2.0 / 0.3, -1.0 / 0.6], rtol=0.3)
    assert prior.mean[0, 0] * prior.mean[1, 0] == pytest.approx(-2.0, rel=0.1)


def test_ard_switches_off_components_that_the_data_do_not_need():
    sim = simulate_cp(
        (30, 30, 30), 2, 6000, likelihood="gaussian", noise_precision=100.0, latent_sd=1.0, random_state=1
    )
    start = 0.5 * np.random.default_rng(0).standard_normal((90, 5))
    p = learning(build(sim.tensor.coords, sim.tensor.values, (30, 30, 30), 5, start=start), "ard")
    prior = fit(p, 80, anneal=15).posterior.mode_prior
    variance = np.sort(1.0 / prior.precision[0].diagonal())
    assert (variance[:3] < 0.02 * variance[3]).all()
