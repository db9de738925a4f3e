"""CP-WOPT: gradients, optima in closed form, invariances, and what it refuses to say."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from helpers.models import paper
from helpers.problems import build, cells, fit, problem, settings_of, structured
from scipy.special import expit, gammaln, log_ndtr
from scipy.stats import multivariate_normal

from tensorcep import CPClassifier, CPRegressor, load
from tensorcep.core.executor import ThreadExecutor
from tensorcep.core.loop import LeftOut
from tensorcep.core.packing import offsets, unpack
from tensorcep.cp.fit import run
from tensorcep.cp.fit.run import WEIGHTS, with_best_weight
from tensorcep.cp.methods import METHODS
from tensorcep.cp.plan.plan import Engine, Plan
from tensorcep.cp.settings import WOPT
from tensorcep.cp.wopt import HUGE, loss_and_gradient
from tensorcep.likelihoods import get_likelihood
from tensorcep.priors.fixed import Prior

LIKELIHOODS = each("likelihood", ["gaussian", "probit", "logit", "poisson"])


def wopt(p, sweeps, **settings):
    return fit(p, sweeps, method="wopt", **{"ridge": 0.0, "least_gain": 0.0, **settings})


def state_of(p, ridge):
    return METHODS["wopt"].init(p, WOPT(ridge=ridge), ThreadExecutor(1))


def plain_loss(factors, coords, y, likelihood, ridge):
    f = factors[coords].prod(axis=1).sum(axis=1)
    each = {
        "gaussian": lambda: -0.5 * (y - f) ** 2,
        "probit": lambda: log_ndtr(y * f),
        "logit": lambda: np.log(expit(y * f)),
        "poisson": lambda: y * f - np.exp(f) - gammaln(y + 1),
    }[likelihood]()
    return -each.sum() + 0.5 * ridge * np.sum(factors**2)


@LIKELIHOODS
@each("K", [2, 3, 4])
def test_wopt_loss_and_gradient_equal_plain_ones(rng, likelihood, K):
    coords, y, p = problem(rng, K, 3, 30, likelihood)
    if likelihood == "logit":
        y = np.sign(y)
        p = build(coords, y, p.shape, 3, "logit")
    factors, rows, h = 0.5 * rng.standard_normal((sum(p.shape), 3)), coords + offsets(p.shape)[:-1], 1e-5
    threads = ThreadExecutor(1)
    loss, gradient = loss_and_gradient(factors, state_of(p, 0.7), p, threads)
    assert loss == pytest.approx(plain_loss(factors, rows, y, likelihood, 0.7), rel=1e-12)
    for i, r in np.ndindex(*factors.shape):
        there = [factors.copy(), factors.copy()]
        there[0][i, r] -= h
        there[1][i, r] += h
        low, high = (plain_loss(u, rows, y, likelihood, 0.7) for u in there)
        assert gradient[i, r] == pytest.approx((high - low) / (2 * h), rel=1e-5, abs=1e-7)


@each("likelihood", ["gaussian", "probit"])
def test_wopt_penalty_of_the_prior_is_its_log_density(rng, likelihood):
    """Its gradient, by differences, with precisions that couple the columns; times the variance of real values."""
    root = rng.standard_normal((3, 2, 2))
    prior = Prior(list(rng.standard_normal((3, 2))), list(root @ root.transpose(0, 2, 1) + np.eye(2)))
    _, y, p = problem(rng, 3, 2, 30, likelihood, prior=prior)
    state = METHODS["wopt"].init(p, settings_of("wopt"), ThreadExecutor(1))
    assert state.penalty.weight == pytest.approx(y.var() if likelihood == "gaussian" else 1.0)
    first = offsets(p.shape)

    def penalty(u):
        parts = [multivariate_normal(m, np.linalg.inv(L)) for m, L in zip(prior.mean, prior.precision, strict=True)]
        return -state.penalty.weight * sum(q.logpdf(u[first[k] : first[k + 1]]).sum() for k, q in enumerate(parts))

    u, h = rng.standard_normal(p.prior.eta.shape), 1e-5
    arguments, bare = ((one, p, ThreadExecutor(1)) for one in (state, state_of(p, 0.0)))
    gradient = loss_and_gradient(u, *arguments)[1] - loss_and_gradient(u, *bare)[1]
    for i, r in np.ndindex(*u.shape):
        move = np.zeros_like(u)
        move[i, r] = h
        assert gradient[i, r] == pytest.approx((penalty(u + move) - penalty(u - move)) / (2 * h), rel=1e-5, abs=1e-6)
    far = u + 1.0
    gained = loss_and_gradient(far, *arguments)[0] - loss_and_gradient(far, *bare)[0]
    gained -= loss_and_gradient(u, *arguments)[0] - loss_and_gradient(u, *bare)[0]
    assert gained == pytest.approx(penalty(far) - penalty(u), rel=1e-9)


def test_wopt_of_main_effects_alone_is_ridge_regression(rng):
    """Clamped columns stay at 1; the free ones are the posterior mode at the noise that stands for it."""
    p, _ = structured(rng, 3, parts={"main": 1, "pair": 0, "cp": 0})
    n, first = len(p.entries.permutation), offsets(p.shape)
    rows, y = p.entries.rows.transpose(0, 2, 1).reshape(-1, 3)[:n], p.entries.y.ravel()[:n]
    X = np.zeros((n, first[-1]))
    X[np.arange(n)[:, None], rows] = 1.0
    own = np.repeat(np.arange(3), p.shape)  # the column of each row's effect
    mean = (p.prior.eta / unpack(p.prior.Lam, 3)[:, range(3), range(3)])[np.arange(first[-1]), own]
    wanted = mean + np.linalg.solve(X.T @ X + 1.7 * y.var() * np.eye(first[-1]), X.T @ (y - X @ mean))
    u = wopt(p, 60, tol=1e-12, ridge="prior").posterior.rows
    np.testing.assert_allclose(u[np.arange(first[-1]), own], wanted, atol=1e-5)
    assert (u[~np.repeat(p.free, p.shape, axis=0)] == 1.0).all()


@each("ridge", [0.0, 0.8])
def test_wopt_of_a_full_matrix_is_its_truncated_singular_value_decomposition(rng, ridge):
    """Eckart and Young without a ridge; with one, every singular value is lowered by it."""
    Y = rng.standard_normal((7, 5))
    coords = np.stack(np.unravel_index(np.arange(35), Y.shape), axis=1)
    p = build(coords, Y.ravel(), Y.shape, 3, start=rng.standard_normal((12, 3)))
    u = wopt(p, 30, ridge=ridge).posterior.rows
    left, values, right = np.linalg.svd(Y)
    kept = np.maximum(values[:3] - ridge, 0.0)
    np.testing.assert_allclose(u[:7] @ u[7:].T, (left[:, :3] * kept) @ right[:3], atol=1e-6)


def test_wopt_noise_precision_is_its_posterior_mean_given_the_factors(rng):
    coords, y, p = problem(rng, 3, 2, 60)
    run = wopt(p, 5)
    residual = y - run.posterior.rows[coords + offsets(p.shape)[:-1]].prod(axis=1).sum(axis=1)
    assert run.posterior.theta == pytest.approx((1e-3 + 30) / (1e-3 + 0.5 * residual @ residual), rel=1e-10)
    assert run.trace["noise_precision"][-1] == run.posterior.theta
    score = -0.5 * np.log(2 * np.pi) + 0.5 * np.log(run.posterior.theta) - 0.5 * run.posterior.theta * residual**2
    assert run.trace["train_score"][-1] == pytest.approx(score.mean(), rel=1e-9)
    assert np.isnan(run.trace["lower_bound"]).all()


@LIKELIHOODS
def test_wopt_ends_where_the_gradient_vanishes(rng, likelihood):
    _, y, p = problem(rng, 3, 2, 60, "probit" if likelihood == "logit" else likelihood)
    if likelihood == "logit":
        p = p._replace(likelihood=get_likelihood("logit"))
    run = wopt(p, 60, tol=1e-9, ridge=0.5)
    threads = ThreadExecutor(1)
    _, gradient = loss_and_gradient(run.posterior.rows, state_of(p, 0.5), p, threads)
    assert run.converged
    assert np.abs(gradient).max() < 1e-4 * (1.0 + np.abs(y).sum())
    assert (np.diff(run.trace["train_score"]) > -1.0).all()


@LIKELIHOODS
def test_wopt_gives_the_same_bits_for_any_order_and_number_of_threads(rng, likelihood):
    base = "probit" if likelihood == "logit" else likelihood
    coords, y, p = problem(rng, 3, 3, 5000, base, shape=(30, 25, 20))
    shuffle = rng.permutation(5000)
    q = build(coords[shuffle], y[shuffle], p.shape, 3, likelihood, start=p.start)
    p = build(coords, y, p.shape, 3, likelihood, start=p.start)
    runs = [wopt(p, 2, threads=1, iterations=4), wopt(p, 2, threads=2, iterations=4), wopt(q, 2, iterations=4)]
    for other in runs[1:]:
        np.testing.assert_array_equal(runs[0].posterior.rows, other.posterior.rows)
        np.testing.assert_array_equal(runs[0].trace["train_score"], other.trace["train_score"])


def test_wopt_rows_without_entries_stay_at_the_prior(rng):
    prior = Prior([0.5] * 3, [2.0] * 3)
    empty = build(np.zeros((0, 3), dtype=int), np.zeros(0), (3, 4, 2), 2, prior=prior)
    result = wopt(empty, 2, ridge=1.0).posterior
    np.testing.assert_allclose(result.rows, 0.5)
    assert not result.seen.any()
    coords = cells(rng, (4, 5, 6), 30)
    p = build(coords, rng.standard_normal(30), (6, 5, 7), 2, prior=prior, start=rng.random((18, 2)))
    result = wopt(p, 2, ridge=1.0).posterior
    np.testing.assert_allclose(result.rows[~result.seen], 0.5)
    assert (np.abs(result.rows[result.seen] - 0.5) > 1e-6).all()


def test_wopt_recovers_from_a_loss_that_overflows(rng):
    _, _, p = problem(rng, 2, 1, 30, "poisson")
    far = np.full((12, 1), 40.0)  # e^1600 is not a float
    loss, gradient = loss_and_gradient(far, state_of(p, 0.0), p, ThreadExecutor(1))
    assert 25 * HUGE < loss < 31 * HUGE
    assert np.isfinite(gradient).all()
    u = wopt(p._replace(start=far / 8), 20, ridge=0.1).posterior.rows
    assert np.abs(u[:7] @ u[7:].T).max() < 10.0


@each(
    ("settings", "message"),
    [
        ({"ridge": -1.0}, r"ridge must be 'prior', or a number >= 0; got -1\.0"),
        ({"iterations": 0}, r"iterations must be an integer >= 1; got 0"),
        ({"memory": 2.5}, r"memory must be an integer >= 1; got 2\.5"),
    ],
)
def test_wopt_refuses_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        settings_of("wopt", **settings)


def test_wopt_estimate_says_that_it_has_no_standard_deviation(rng, tmp_path):
    coords, y, _ = problem(rng, 3, 2, 60)
    model = paper(CPRegressor, 2, method="wopt", ridge=0.1, random_state=0, max_iter=50).fit(coords, y)
    with pytest.raises(
        ValueError, match=r"method 'wopt' gives a point estimate, and return_std=True needs a posterior; use one of"
    ):
        model.predict(coords, return_std=True)
    with pytest.raises(ValueError, match=r"predict_interval needs a posterior"):
        model.predict_interval(coords)
    assert np.corrcoef(model.predict(coords), y)[0, 1] > 0.8
    model.save(tmp_path / "model.npz")
    np.testing.assert_array_equal(load(tmp_path / "model.npz").predict(coords), model.predict(coords))


def test_wopt_search_ends_where_a_sweep_gains_no_more_than_noise_may(rng):
    """Less than the standard deviation of half a chi-square of the free numbers; then it rests."""
    _, _, p = problem(rng, 3, 3, 3000, shape=(30, 25, 20))
    long, short = (wopt(p, 40, tol=1e-9, ridge="prior", iterations=5, least_gain=least) for least in (0.0, 1.0))
    n = short.n_iter - 1
    assert short.converged
    assert 1 < n < long.n_iter - 1
    assert short.trace["change"][n] == 0.0
    np.testing.assert_array_equal(short.trace["change"][:n], long.trace["change"][:n])
    np.testing.assert_array_equal(short.trace["train_score"][n], long.trace["train_score"][n - 1])
    threads, before = ThreadExecutor(1), wopt(p, n - 1, ridge="prior", iterations=5)
    last = wopt(p, n, ridge="prior", iterations=5)
    losses = [loss_and_gradient(run.posterior.rows, run.state, p, threads)[0] for run in (before, last)]
    gain = (losses[0] - losses[1]) * last.posterior.theta
    assert 0.0 <= gain < np.sqrt(0.5 * np.count_nonzero(last.state.free))


def zero_mean(n, seed, rank=8, shape=(120, 100, 80), fresh=5000):
    """Distinct cells of a CP with factors of mean 0, and its values there, of variance about 1."""
    rng = np.random.default_rng(seed)
    flat = rng.choice(np.prod(shape), n + fresh, replace=False)
    coords = np.stack(np.unravel_index(flat, shape), axis=1)
    rows = [rng.standard_normal((size, rank))[column] for size, column in zip(shape, coords.T, strict=True)]
    return coords, np.prod(rows, axis=0).sum(axis=1) / np.sqrt(rank), rng


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_wopt_starts_with_components_that_the_first_spectra_did_not_show(seed):
    """Else a descent from random columns never finds them, and the error is a quarter larger and more."""
    n = 20_000
    coords, f, rng = zero_mean(n, seed)
    y = f + 0.5 * rng.standard_normal(len(f))
    found = []
    for state in range(3):
        model = CPRegressor(method="wopt", shape=(120, 100, 80), random_state=state, n_jobs=1)
        error = model.fit(coords[:n], y[:n]).predict(coords[n:]) - f[n:]
        found.append(np.sqrt(np.mean(error**2)))
    assert np.median(found) < 0.27
    assert min(found) < 0.25


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # few sweeps on purpose
@each("unit", [1e-6, 1e-3, 1e5])
def test_wopt_sees_small_values_as_it_sees_large_ones(unit):
    """The constant of a log density, added to squares of 1e-12, would hide them from the search."""
    coords, f, rng = zero_mean(2000, 0, rank=2, shape=(30, 20, 10), fresh=0)
    y = f + 0.3 * rng.standard_normal(len(f))
    here, there = (
        CPRegressor(2, method=WOPT(iterations=10), max_iter=2, tol=0.0, random_state=0, n_jobs=1).fit(coords, values)
        for values in (y, unit * y)
    )
    np.testing.assert_allclose(there.predict(coords) / unit, here.predict(coords), rtol=0.0, atol=1e-10)


@pytest.mark.slow
def test_wopt_of_labels_predicts_better_than_a_constant_and_says_how_well():
    """The prior at its word leads to probabilities near 0 and 1 that a constant beats."""
    n = 60_000
    coords, f, rng = zero_mean(n, 0)
    y = (rng.random(len(f)) < expit(2.0 * f)).astype(float)
    how = {"shape": (120, 100, 80), "random_state": 0, "n_jobs": 1}
    model = CPClassifier(method="wopt", **how).fit(coords[:n], y[:n])
    score = model.log_score(coords[n:], y[n:]).mean()
    assert score > -0.6
    assert model.diagnostics_.n_held_out > 1000
    assert model.diagnostics_.score == pytest.approx(score, abs=0.05)
    taken = CPClassifier(method=WOPT(prior_weight=1.0), **how).fit(coords[:n], y[:n])
    assert taken.log_score(coords[n:], y[n:]).mean() < np.log(0.5)


@each("best", WEIGHTS)
def test_the_weight_of_a_prior_is_the_one_that_predicts_best(monkeypatch, best):
    """Whichever it is, where others are worse the farther they are from it; entries that tell nothing find one, too."""
    plan, asked = Plan(*[None] * len(Plan._fields))._replace(engine=Engine(None, WOPT())), []

    def scored(plan, place, afresh):
        weight = plan.engine.settings.prior_weight
        asked.append(weight)
        scores = -np.abs(np.log(weight / best)) * np.ones(len(place))
        return None if weight > 100.0 * best else LeftOut(place, scores, scores, *np.zeros((2, len(place))))

    monkeypatch.setattr(run, "scored_without", scored)
    chosen, told = with_best_weight(plan, np.arange(3))
    assert chosen.engine.settings.prior_weight == best
    np.testing.assert_array_equal(told.score, np.zeros(3))
    assert len(set(asked)) == len(asked) <= len(WEIGHTS)
    assert WOPT().prior_weight == "auto"
    monkeypatch.setattr(run, "scored_without", lambda plan, place, afresh: None)
    unknown, told = with_best_weight(plan, np.arange(3))
    assert unknown.engine.settings.prior_weight in WEIGHTS
    assert told is None
