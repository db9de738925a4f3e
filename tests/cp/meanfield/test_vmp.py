"""Variational message passing: a plain twin, exact cases, a bound that never falls, published runs, invariances."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.cases import each
from helpers.models import paper
from helpers.problems import NOISE, build, cells, fit, means, problem, structured
from helpers.published import RANKS, SHAPES, published_score
from oracles import vmp as oracle
from scipy.stats import multivariate_normal, norm

from tensorcep import CPClassifier, CPCountRegressor
from tensorcep.core.executor import ThreadExecutor
from tensorcep.core.packing import offsets, unpack
from tensorcep.cp.meanfield.method import first_square, update_mode
from tensorcep.cp.posterior import GammaNoise
from tensorcep.cp.simulate import simulate_cp
from tensorcep.datasets import published_entries
from tensorcep.priors.fixed import Prior

STORED = json.loads((Path(__file__).parents[2] / "oracles" / "tensor_trajectories.json").read_text())
SIZES = [
    ("gaussian", 2, 1),
    ("gaussian", 3, 3),
    ("gaussian", 4, 2),
    ("probit", 2, 3),
    ("probit", 3, 1),
    ("probit", 4, 2),
]
CASES = each(("likelihood", "K", "R"), SIZES)


def vmp(p, sweeps, **settings):
    return fit(p, sweeps, method="vmp", **settings)


def twin_of(p, coords, y):
    rows = coords + offsets(p.shape)[:-1]
    prior_Lam = unpack(p.prior.Lam, p.rank)
    return oracle.Twin(rows, y, prior_Lam, p.prior.eta, offsets(p.shape), p.noise_prior, p.start)


@CASES
def test_vmp_equals_its_plain_twin(rng, likelihood, K, R):
    prior = Prior([0.3] * K, [np.full(R, 1.7)] * K)
    coords, y, p = problem(rng, K, R, 30, likelihood, prior=prior)
    twin, run = twin_of(p, coords, y), vmp(p, 5)
    bounds = []
    for _ in range(5):
        twin.sweep()
        bounds.append(twin.bound())
    np.testing.assert_allclose(run.state.rows.mean, twin.m, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(unpack(run.state.rows.cov, R), twin.S, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(run.trace["lower_bound"], bounds, rtol=1e-9)
    if likelihood == "gaussian":
        assert run.posterior.noise == pytest.approx(twin.noise, rel=1e-10)
    else:
        assert run.posterior.noise is None
        assert run.trace["train_score"][-1] == pytest.approx(twin.train_score(), rel=1e-10)


@each("seed", [1, 2, 3])
@each(("likelihood", "K", "R"), [*SIZES, ("tobit", 2, 1), ("tobit", 3, 3), ("tobit", 4, 2)])
def test_vmp_bound_never_falls(likelihood, K, R, seed):
    _, y, p = problem(np.random.default_rng(seed), K, R, 60 if K > 2 else 30, likelihood)
    assert (likelihood == "tobit") == (5 < (y == 0).sum() < len(y) - 5)
    bound = vmp(p, 120).trace["lower_bound"]
    rounding = 1e-10 * np.abs(bound).max()
    assert np.isfinite(bound).all()
    assert np.diff(bound).min() > -rounding
    assert bound[-1] > bound[0] + 1.0


@each("R", [1, 3])
def test_vmp_is_exact_for_linear_regression_and_its_bound_is_the_evidence(rng, R):
    """With the other modes and the noise known the rows of one mode are Bayesian linear regressions."""
    shape, tau, fixed = (6, 4, 5), 2.5, 1e10
    known = [rng.standard_normal((m, R)) for m in shape[1:]]
    prior = Prior([np.full(R, 0.3), *known], [1.5, fixed, fixed])
    coords, y = cells(rng, shape, 24), rng.standard_normal(24)
    z = known[0][coords[:, 1]] * known[1][coords[:, 2]]
    run = vmp(build(coords, y, shape, R, prior=prior, noise=GammaNoise(1e7 * tau, 1e7)), 3)
    evidence = 0.0
    for i in range(shape[0]):
        mine = coords[:, 0] == i
        Lam = 1.5 * np.eye(R) + tau * z[mine].T @ z[mine]
        eta = 1.5 * 0.3 + tau * z[mine].T @ y[mine]
        np.testing.assert_allclose(unpack(run.posterior.Lam[i], R), Lam, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(run.posterior.eta[i], eta, rtol=1e-6, atol=1e-6)
        if mine.any():
            cov = np.eye(mine.sum()) / tau + z[mine] @ z[mine].T / 1.5
            evidence += multivariate_normal(z[mine].sum(axis=1) * 0.3, cov).logpdf(y[mine])
    np.testing.assert_allclose(means(run.posterior)[shape[0] :], np.concatenate(known), atol=1e-8)
    assert run.trace["lower_bound"][-1] == pytest.approx(evidence, abs=2e-5)


def test_vmp_bound_of_censored_values_is_their_log_likelihood_where_all_else_is_known(rng):
    shape, tau = (6, 4, 5), 2.5
    known = [rng.standard_normal((m, 2)) for m in shape]
    coords = cells(rng, shape, 24)
    f = np.prod([u[i] for u, i in zip(known, coords.T, strict=True)], axis=0).sum(axis=1)
    y = np.maximum(f + rng.standard_normal(24) / np.sqrt(tau), 0.0)
    p = build(coords, y, shape, 2, "tobit", Prior(known, [1e10] * 3), noise=GammaNoise(1e8 * tau, 1e8))
    wanted = np.where(y > 0, norm.logpdf(y, f, tau**-0.5), norm.logcdf(-f * np.sqrt(tau)))
    assert 5 < (y == 0).sum() < 19
    assert vmp(p, 3).trace["lower_bound"][-1] == pytest.approx(wanted.sum(), abs=1e-5)


def test_vmp_matrix_factorisation_reaches_the_best_known_bound(rng):
    """A 2 x 2 matrix with tau = 2 known: the bound of independent code (8 of 8 random starts), below the evidence."""
    coords = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    y = np.array([1.2, -0.7, -0.4, 0.9])
    p = build(coords, y, (2, 2), 2, prior=Prior([0.0, 0.0], [1.0, [1.0, 1.5]]), start=rng.standard_normal((4, 2)))
    run = vmp(p._replace(noise_prior=GammaNoise(2e9, 1e9)), 2000)
    assert run.trace["lower_bound"][-1] == pytest.approx(-7.312191098, abs=3e-5)
    u = means(run.posterior)
    right = [[0.3242513, -0.2862433], [-0.2130532, 0.1880795]]
    np.testing.assert_allclose(u[:2] @ u[2:].T, right, atol=1e-5)


def test_vmp_fixed_point_is_that_of_cep_with_moments_of_the_posterior(rng):
    _, _, p = problem(rng, 2, 2, 100, shape=(12, 10))
    one, other = vmp(p, 1500, tol=1e-13), fit(p, 1500, tol=1e-13, moments="posterior")
    assert one.converged
    assert other.converged
    assert np.abs(one.state.f).mean() > 0.5
    # the rows of both are free to rotate together
    np.testing.assert_allclose(one.state.f, other.state.f, rtol=1e-6, atol=1e-8)
    assert one.posterior.noise == pytest.approx(other.posterior.noise, rel=1e-9)


@each("likelihood", ["gaussian", "probit"])
def test_vmp_follows_a_relabelling_of_the_rows(rng, likelihood):
    coords, y, p = problem(rng, 3, 2, 45, likelihood)
    first, relabel = offsets(p.shape), [rng.permutation(n) for n in p.shape]
    moved = np.stack([new[column] for new, column in zip(relabel, coords.T, strict=True)], axis=1)
    rows = np.concatenate([new + start for new, start in zip(relabel, first, strict=False)])
    start = np.empty_like(p.start)
    start[rows] = p.start
    one = vmp(p, 5).posterior
    other = vmp(build(moved, y, p.shape, 2, likelihood, start=start), 5).posterior
    np.testing.assert_allclose(other.Lam[rows], one.Lam, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(other.eta[rows], one.eta, rtol=1e-9, atol=1e-11)


def published_means(shape, n, rank):
    """Prior means of fold 1: the stream shuffles the entries once per rank, then fills (n_k, R) by columns."""
    stream = np.random.RandomState(5489)
    for at_rank in RANKS:
        stream.random_sample(n)
        draws = [stream.random_sample((at_rank, m)).T for m in shape]
        if at_rank == rank:
            return draws
    raise AssertionError(rank)


@each("rank", RANKS)
@pytest.mark.parametrize("name", ["alog", "enron"])
def test_vmp_follows_the_published_trajectory(real_data, name, rank):
    shape = SHAPES[name]
    coords, y = published_entries(f"{name}/train-fold-1.txt")
    test_coords, test_y = published_entries(f"{name}/test-fold-1.txt")
    likelihood = {"alog": "gaussian", "enron": "probit"}[name]
    prior = Prior(published_means(shape, len(y), rank), [1.0] * 3)
    p = build(coords, y if name == "alog" else 2 * y - 1, shape, rank, likelihood, prior)
    rows, found = test_coords + offsets(shape)[:-1], {}

    def keep(sweep, info, state):
        found[str(sweep)] = round(float(published_score(name, rows, test_y, state)), 4)

    bound = vmp(p, 20, callbacks=[keep]).trace["lower_bound"]
    stored = STORED[{"alog": "alog_vmp_rmse", "enron": "enron_vmp_auc"}[name]][f"rank{rank}_fold1"]
    assert {sweep: found[sweep] for sweep in stored} == stored
    assert (np.diff(bound) > 0).all()


@each("likelihood", ["gaussian", "probit"])
def test_vmp_does_not_depend_on_the_order_of_the_entries(rng, likelihood):
    coords, y, p = problem(rng, 3, 3, 45, likelihood)
    shuffle = rng.permutation(45)
    q = build(coords[shuffle], y[shuffle], p.shape, 3, likelihood, start=p.start)
    first, second = vmp(p, 4).posterior, vmp(q, 4).posterior
    np.testing.assert_array_equal(first.Lam, second.Lam)
    np.testing.assert_array_equal(first.eta, second.eta)
    assert first.noise == second.noise


@each("likelihood", ["gaussian", "tobit", "probit"])
def test_vmp_gives_the_same_bits_on_any_number_of_threads(rng, likelihood):
    _, _, p = problem(rng, 3, 3, 6000, likelihood, shape=(30, 25, 20))
    runs = [vmp(p, 4, threads=threads) for threads in (1, 2, 3)]
    for other in runs[1:]:
        np.testing.assert_array_equal(runs[0].posterior.Lam, other.posterior.Lam)
        np.testing.assert_array_equal(runs[0].posterior.eta, other.posterior.eta)
        for name in ("change", "lower_bound", "train_score"):
            np.testing.assert_array_equal(runs[0].trace[name], other.trace[name])
        assert runs[0].posterior.noise == other.posterior.noise


@each("likelihood", ["gaussian", "probit"])
def test_vmp_without_entries_gives_the_prior(likelihood):
    p = build(np.zeros((0, 3), dtype=int), np.zeros(0), (3, 4, 2), 2, likelihood, Prior([0.5] * 3, [2.0] * 3))
    run = vmp(p, 3)
    np.testing.assert_array_equal(run.posterior.Lam, p.prior.Lam)
    np.testing.assert_array_equal(run.posterior.eta, p.prior.eta)
    assert not run.posterior.seen.any()
    assert run.posterior.noise == (NOISE if likelihood == "gaussian" else None)
    np.testing.assert_allclose(run.trace["lower_bound"], 0.0, atol=1e-12)


def test_vmp_rows_without_entries_keep_the_prior(rng):
    shape = (6, 5, 7)
    coords = cells(rng, (4, 5, 6), 30)
    posterior = vmp(build(coords, rng.standard_normal(30), shape, 2, start=rng.random((18, 2))), 3).posterior
    seen = np.concatenate([np.isin(np.arange(n), coords[:, k]) for k, n in enumerate(shape)])
    np.testing.assert_array_equal(posterior.seen, seen)
    np.testing.assert_array_equal(means(posterior)[~seen], 0.0)


def test_vmp_annealing_keeps_components_that_a_blind_start_loses():
    simulated = simulate_cp((60, 40, 20), 3, 4000, likelihood="probit", latent_sd=1.0, random_state=3)
    plain, annealed = (
        paper(
            CPClassifier,
            3,
            method="vmp",
            prior_mean=0.0,
            anneal=sweeps,
            n_starts=1,
            random_state=0,
            max_iter=80,
            tol=1e-2,
        ).fit(simulated.tensor)
        for sweeps in (0, 20)
    )
    assert np.isnan(annealed.trace_["lower_bound"][:20]).all()
    assert (np.diff(annealed.trace_["lower_bound"][20:]) > -1e-6).all()
    spread = [model.predict_latent(simulated.tensor)[0].std() for model in (plain, annealed)]
    assert spread[1] > 0.5 > spread[0]


# Modes with four, three and two free columns.
UNEQUAL = np.array([[1, 0, 1, 1, 1], [0, 1, 1, 1, 0], [0, 0, 0, 1, 1]], dtype=bool)


@each("kind", [None, "learned"])
@each("likelihood", ["gaussian", "tobit", "probit"])
def test_vmp_bound_with_clamped_columns_never_falls_and_the_square_stays_exact(rng, likelihood, kind):
    p, _ = structured(rng, 3, likelihood, kind, free=UNEQUAL)
    run = vmp(p, 60)
    assert (np.diff(run.trace["lower_bound"]) > -1e-9).all()
    state, threads = run.state, ThreadExecutor(1)
    exact = first_square(state, p, threads)
    for k in range(3):  # no update moves a fixed point by much, but each replaces its part of the square
        state = update_mode(k, state, 1.0, p, threads)
    assert run.state.own.square == pytest.approx(exact, rel=1e-10)
    assert state.own.square == pytest.approx(first_square(state, p, threads), rel=1e-10)


def test_vmp_with_clamped_columns_gives_the_same_bits_on_two_threads(rng):
    p, _ = structured(rng, 3, "gaussian", "learned", n=2000, shape=(40, 35, 20))
    one, two = (vmp(p, 5, threads=threads).posterior for threads in (1, 2))
    np.testing.assert_array_equal(one.Lam, two.Lam)
    np.testing.assert_array_equal(one.eta, two.eta)


def test_vmp_finds_the_components_of_large_counts():
    """From starts that large counts hold in their place, the error of log means was 0.5 and more."""
    s = simulate_cp((20, 15, 12), 2, 2000, latent_sd=0.5, random_state=0)
    f = np.log(300.0) + s.latent
    X, y = s.tensor.coords, np.random.default_rng(0).poisson(np.exp(f)).astype(float)
    model = CPCountRegressor(6, method="vmp", likelihood="poisson", random_state=0).fit(X[:1500], y[:1500])
    assert np.sqrt(np.mean((model.predict_latent(X[1500:])[0] - f[1500:]) ** 2)) < 0.12


def test_what_a_count_says_stays_finite_and_leads_back():
    """A rate of e^800 says that f is far too high, and no more; where f is not, the expected slope and curvature."""
    from tensorcep.likelihoods.poisson import matched

    y, f = np.array([0.0, 3.0, 1e6, 3.0]), np.array([800.0, 60.0, 900.0, 1.0])
    out = [np.zeros(4) for _ in range(4)]
    matched(y, f, f * f + 0.01, np.ones(4), *out)
    weight, target = out[:2]
    assert np.isfinite(out).all()
    assert (weight > 0.0).all()
    to = target / weight
    assert (np.abs(to - np.log(y + 1.0) - 8.0)[:3] < 1.5).all()
    rate = np.exp(1.005)
    np.testing.assert_allclose([weight[3], target[3]], [rate, 3.0 - rate + rate])
