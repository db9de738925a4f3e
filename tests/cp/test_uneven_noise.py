"""Noise that differs between rows of a mode, or between entries: chains, mean field, predictions, CPRegressor."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.problems import fit, problem, structured
from scipy.special import logsumexp
from scipy.stats import t
from sklearn.base import clone

from tensorcep import CPRegressor, Series, load
from tensorcep.core.random import generator
from tensorcep.cp.fitted.predict import observed_logpdf, observed_moments, observed_quantiles, observed_tails
from tensorcep.cp.model.problem import Uneven
from tensorcep.cp.posterior import Components, EntryTheta
from tensorcep.kernels.slots import LANES
from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.parameters.scale_mixture import (
    ALPHAS,
    FactorDraw,
    GroupSums,
    draw_factors_of_groups,
    log_evidence,
    sums_of_squares,
)

GAUSSIAN = get_likelihood("gaussian")
PRIOR = (0.5, 0.3)
MODES = each("mode", [None, 0, 2])


def chain_of_noise(groups, bug=0.0, n=1300):
    """Draws of log precision, shape and log of the first factor, residuals fixed."""
    state, out = FactorDraw.even(np.ones(5), 1.0, 5), np.empty((n, 3))
    seen = groups._replace(n=groups.n + bug)
    for sweep in range(n):
        state = draw_factors_of_groups(state, seen, PRIOR, generator(0, 4, sweep))
        out[sweep] = np.log([state.own, state.alpha, state.factor[0]])
    return out[100:]


def test_sums_of_squares_are_those_of_the_entries_in_use(rng):
    y, f, weight = rng.standard_normal((3, 5, LANES))
    present = np.ones((5, LANES))
    present[-1, 2:] = 0.0
    used, sums = present * (rng.random((5, LANES)) < 0.7), np.empty((5, 2))
    sums_of_squares(0, 5, y, f, weight, used, present, sums)
    rest = (y - f) ** 2
    np.testing.assert_allclose(sums.sum(axis=0), [(used * weight * rest).sum(), (present * rest).sum()])


def exact_noise(groups):
    """Means of the same by a grid over log precision and shape."""
    grid = np.linspace(-6.0, 6.0, 400)
    height = np.array([[log_evidence(groups, np.exp(u), a) + PRIOR[0] * u - PRIOR[1] * np.exp(u) for u in grid]
                       for a in ALPHAS])  # fmt: skip
    mass = np.exp(height - logsumexp(height))
    return float((mass * grid).sum()), float((mass.sum(axis=1) * np.log(ALPHAS)).sum())


def test_draws_of_precision_and_shape_of_rows_have_their_exact_law():
    groups = GroupSums(np.array([3.0, 6.0, 2.0, 8.0, 5.0]), np.array([9.0, 1.0, 4.0, 20.0, 0.5]))
    draws, exact = chain_of_noise(groups), exact_noise(groups)
    error = draws[:, :2].reshape(30, -1, 2).mean(axis=1).std(axis=0) / np.sqrt(30)
    assert (np.abs(draws[:, :2].mean(axis=0) - exact) < 5.0 * error + 1e-3).all()
    planted = chain_of_noise(groups, bug=1.0)[:, :2].mean(axis=0)  # an entry too many in every row
    assert np.abs(planted - exact)[0] > 6.0 * error[0]


@each("likelihood", ["gaussian", "tobit"])
@MODES
def test_bound_of_mean_field_does_not_fall(rng, likelihood, mode):
    for p in (problem(rng, 3, 2, 60, likelihood)[2], structured(rng, 3, likelihood, n=100)[0]):
        bound = fit(p._replace(uneven=Uneven(mode)), 25, method="vmp").trace["lower_bound"]
        assert (np.diff(bound) > -1e-4).all()


@each("method", ["vmp", "gibbs"])
@MODES
def test_same_bits_on_two_threads(rng, method, mode):
    p = problem(rng, 3, 2, 90)[2]._replace(uneven=Uneven(mode))
    one, two = (fit(p, 12, threads, method=method).posterior for threads in (1, 2))
    assert np.array_equal(one.rows if method == "gibbs" else one.eta, two.rows if method == "gibbs" else two.eta)
    own = [r.uneven if method == "gibbs" else np.append(r.uneven.a, r.noise) for r in (one, two)]
    assert np.array_equal(*own)


def test_predictions_of_points_and_gaussians_are_students():
    rows, y = np.zeros((3, 1), dtype=np.int64), np.array([-1.0, 0.5, 30.0])
    theta = EntryTheta(np.array([[4.0]]), uneven=np.array([[4.0, 1.5]]))
    law = t(3.0, 0.7, 0.5)
    for cov in (None, np.full((1, 1, 1), 1e-12)):
        belief = Components(np.array([[[0.7]]]), cov, theta)
        np.testing.assert_allclose(observed_logpdf(GAUSSIAN, belief, rows, y), law.logpdf(y), atol=1e-4)
        mean, variance = observed_moments(GAUSSIAN, belief, rows)
        np.testing.assert_allclose([mean[0], variance[0]], [law.mean(), law.var()], rtol=1e-9)
        levels = (0.05, 0.25, 0.9)
        np.testing.assert_allclose(observed_quantiles(GAUSSIAN, belief, rows, levels)[0], law.ppf(levels), rtol=5e-3)
        lower, upper = observed_tails(GAUSSIAN, belief, rows, y)
        np.testing.assert_allclose(lower, law.cdf(y), rtol=1e-3)
        np.testing.assert_allclose(upper, law.sf(y), rtol=1e-3)


def test_rows_that_are_not_known_have_the_noise_of_the_population():
    values, both = np.array([[1.0, 9.0], [4.0, 16.0]]), np.array([[2.0, 1.5], [3.0, 2.0]])
    belief = Components(np.zeros((2, 4, 1)), None, EntryTheta(values, 0, 0, uneven=both))
    y = np.array([0.3, 0.4])
    known = observed_logpdf(GAUSSIAN, belief, np.array([[0], [1]]), y)
    exact = logsumexp([0.5 * np.log(v / (2 * np.pi)) - 0.5 * v * y**2 for v in values], axis=0) - np.log(2.0)
    np.testing.assert_allclose(known, exact)
    unknown = observed_logpdf(GAUSSIAN, belief, np.array([[3], [1]]), y)
    laws = [t(2 * a, scale=tau**-0.5).logpdf(y[0]) for tau, a in both]
    np.testing.assert_allclose(unknown, [logsumexp(laws) - np.log(2.0), exact[1]], rtol=1e-5)


def simulated(kind, n=7000):
    rng = np.random.default_rng(3)
    shape = (30, 20, 15)
    factors = [rng.standard_normal((size, 2)) for size in shape]
    coords = np.stack([rng.integers(0, size, n) for size in shape], axis=1)
    f = np.prod([u[i] for u, i in zip(factors, coords.T, strict=True)], axis=0).sum(axis=1)
    sd = 0.4 * np.exp(0.9 * rng.standard_normal(20))
    noise = sd[coords[:, 1]] * rng.standard_normal(n) if kind == "rows" else 0.4 * rng.standard_t(3.0, n)
    return coords, f, f + noise, sd


def held(model, X, y, coverage):
    low, high = model.predict_interval(X, coverage).T
    return np.mean((low <= y) & (y <= high))


@pytest.mark.parametrize(("kind", "noise"), [("rows", 1), pytest.param("t", "entry", marks=pytest.mark.slow)])
def test_intervals_hold_their_share_where_one_noise_does_not(kind, noise):
    coords, f, y, sd = simulated(kind)
    train, X, new = slice(0, 3000), coords[3000:], y[3000:]
    models = [
        CPRegressor(method="vmp", noise=one, random_state=0).fit(coords[train], y[train]) for one in ("one", noise)
    ]
    errors = [np.sqrt(np.mean((m.predict(X) - f[3000:]) ** 2)) for m in models]
    scores = [m.log_score(X, new).mean() for m in models]
    assert errors[1] < 0.9 * errors[0]
    assert scores[1] > scores[0] + 0.1
    assert 0.45 < held(models[1], X, new, 0.5) < 0.56
    assert 0.87 < held(models[1], X, new, 0.9) < 0.93
    if noise == 1:
        rows = slice(None)
        assert np.corrcoef(np.log(models[1].noise_sd_[rows]), np.log(sd))[0, 1] > 0.97
    else:
        assert 2.2 <= models[1].noise_dof_ < 5.0
    mean, std = models[1].predict(X[:50], return_std=True)
    draws = models[1].sample_y(X[:50], 4000, random_state=1)
    np.testing.assert_allclose(np.median(draws, axis=0), mean, atol=0.2)
    if noise == 1:
        np.testing.assert_allclose(draws.std(axis=0), std, rtol=0.1)


@each("noise", ["dish", 1, "entry"])
def test_sampler_with_uneven_noise_is_saved_and_loaded(tmp_path, noise):
    coords, _, y, _ = simulated("rows", 1500)
    X = coords
    if noise == "dish":
        X = pd.DataFrame({"who": coords[:, 0], "dish": coords[:, 1], "when": coords[:, 2]})
    model = CPRegressor(rank=2, method="gibbs", noise=noise, max_iter=40, random_state=0).fit(X, y)
    model.save(tmp_path / "model.npz")
    back = load(tmp_path / "model.npz")
    beyond = np.array([[0, 0, 0], [3, 40, 2]])
    beyond = beyond if noise != "dish" else pd.DataFrame(beyond, columns=X.columns)
    with pytest.warns(UserWarning, match="prior is used"):
        wide = model.predict_interval(beyond)
    with pytest.warns(UserWarning, match="prior is used"):
        np.testing.assert_array_equal(back.predict_interval(beyond), wide)
    assert back.noise_ == model.noise_ == noise
    assert np.isfinite(model.noise_sd_).all()
    assert clone(model).noise == noise
    assert f"noise={noise!r}" in repr(model)


def test_what_cannot_use_uneven_noise_says_so():
    coords, _, y, _ = simulated("t", 200)
    for model in (CPRegressor(method="cep", noise="entry"), CPRegressor(method="wopt", noise=0)):
        with pytest.raises(ValueError, match="cannot use noise=.*vmp.*gibbs"):
            model.fit(coords, y)
    with pytest.raises(ValueError, match="partial_fit learns one noise"):
        CPRegressor(noise="entry").partial_fit(coords, y)
    with pytest.raises(ValueError, match="noise must be 'one', 'entry', 'auto', or a mode"):
        CPRegressor(noise="dish", method="vmp").fit(coords, y)
    with pytest.raises(ValueError, match="noise='entry' cannot be used beside a Series"):
        CPRegressor(method="vmp", noise="entry", prior={2: Series()}).fit(coords, y)
    for method in ("vmp", "gibbs"):
        with pytest.raises(ValueError, match="weights must be whole numbers, .* where noise differs"):
            CPRegressor(2, method=method, noise=1).fit(coords, y, sample_weight=np.full(200, 0.5))
    model = CPRegressor(2, method="vmp", noise=1, random_state=0).fit(coords, y)
    with pytest.raises(ValueError, match="partial_fit learns one noise"):
        model.partial_fit(coords, y)
    with pytest.raises(ValueError, match="transform needs noise='one'"):
        model.transform(np.array([[30, 0, 0]]), np.ones(1), mode=0)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@each("method", ["vmp", "gibbs"])
def test_values_at_a_limit_take_uneven_noise(method):
    coords, _, y, _ = simulated("t", 600)
    y = np.maximum(y, 0.0)
    for noise in (0, "entry"):
        model = CPRegressor(2, method=method, noise=noise, max_iter=40, random_state=0)
        model.fit(coords[:500], y[:500])
        assert model.lower_limit_ == 0.0
        assert (model.predict_interval(coords[500:520]) >= 0.0).all()
        assert model.log_score(coords[500:], y[500:]).mean() > -3.0
