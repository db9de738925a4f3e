"""Exposures of counts: exact identities in every method, tables, files, and what is refused."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from scipy.stats import poisson

import tensorcep as tc
from tensorcep.core.executor import ThreadExecutor
from tensorcep.cp.model.entries import pack_entries
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.subsets import with_extents
from tensorcep.cp.wopt import init, loss_and_gradient
from tensorcep.likelihoods import get_likelihood
from tensorcep.methods import CEP, PGVB, VMP, WOPT, Laplace, PGGibbs
from tensorcep.priors.fixed import FixedPrior, natural_prior

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")

SHAPE = (9, 8, 5)
METHODS = {
    "cep": (CEP(), "poisson"),
    "averaged": (CEP(messages="averaged"), "negbinomial"),
    "second order": (CEP(order=2), "poisson"),
    "laplace": (Laplace(), "negbinomial"),
    "vmp": (VMP(), "poisson"),
    "vmp of dispersed": (VMP(), "negbinomial"),
    "pg-vb": (PGVB(), "negbinomial"),
    "pg-gibbs": (PGGibbs(n_chains=2), "negbinomial"),
    "wopt": (WOPT(), "poisson"),
}
EVERY = each("name", METHODS)


def simulated(n=220, seed=1):
    """Coordinates, counts, exposures and log rates."""
    rng = np.random.default_rng(seed)
    X = np.argwhere(np.ones(SHAPE))[rng.permutation(np.prod(SHAPE))[:n]]
    rows = [rng.normal(0.7, 0.4, (size, 2)) for size in SHAPE]
    f = np.prod([own[column] for own, column in zip(rows, X.T, strict=True)], axis=0).sum(axis=1)
    exposure = 2.0 ** rng.integers(-2, 4, n)
    return X, rng.poisson(exposure * np.exp(f)).astype(float), exposure, f


def new(name, **params):
    method, likelihood = METHODS[name]
    return tc.CPCountRegressor(
        2, method=method, likelihood=likelihood, max_iter=12, random_state=0, n_jobs=1, interactions="cp", **params
    )


@EVERY
def test_equal_exposures_change_nothing_and_all_may_count_in_any_unit(name):
    X, y, exposure, _ = simulated()
    plain, equal = new(name).fit(X, y), new(name).fit(X, y, exposure=4.0)
    np.testing.assert_array_equal(plain.predict(X), equal.predict(X, exposure=4.0))
    np.testing.assert_allclose(equal.predict(X), plain.predict(X) / 4.0, rtol=1e-12)
    one, other = new(name).fit(X, y, exposure=exposure), new(name).fit(X, y, exposure=8.0 * exposure)
    np.testing.assert_array_equal(one.predict(X, exposure=exposure), other.predict(X, exposure=8.0 * exposure))
    np.testing.assert_allclose(other.predict_latent(X)[0], one.predict_latent(X)[0] - np.log(8.0), atol=1e-12)


@each("name", [name for name in METHODS if name not in ("pg-gibbs", "wopt")])
def test_exposures_of_rows_are_shifts_of_the_rows(name):
    # the second column is 1 in the other modes, and a level of each row of the first: the log of its exposure
    X, y, _, _ = simulated()
    of_row = 2.0 ** np.random.default_rng(0).integers(-1, 3, SHAPE[0])
    exposure = of_row[X[:, 0]]
    shift = np.log(of_row / exposure.mean())
    clamped = np.array([1.0, 1e10])
    rng = np.random.default_rng(2)
    init = [rng.normal(0.5, 0.2, (size, 2)) for size in SHAPE]
    init[1][:, 1] = init[2][:, 1] = 1.0

    def fit(shift, **given):
        mean = np.stack([np.full(SHAPE[0], 0.5), shift], axis=1)
        others = np.array([0.5, 1.0])
        prior = tc.Prior([mean, others, others], [np.array([1.0, 2.0]), clamped, clamped])
        start = [init[0] + np.stack([0.0 * shift, shift], axis=1), *init[1:]]
        own = {"dispersion": 1.5} if METHODS[name][1] == "negbinomial" else {}
        model = new(name, prior=prior, init=start, **own).set_params(max_iter=40, tol=1e-9)
        return model.fit(X, y, **given)

    with_exposure, shifted = fit(0.0 * shift, exposure=exposure), fit(shift)
    factors, others = with_exposure.factors_, shifted.factors_
    np.testing.assert_allclose(factors[0][:, 1] + shift, others[0][:, 1], atol=1e-3 if name == "second order" else 2e-4)
    np.testing.assert_allclose(factors[0][:, 0], others[0][:, 0], atol=1e-3 if name == "second order" else 2e-4)
    for own, other in zip(factors[1:], others[1:], strict=True):
        np.testing.assert_allclose(own, other, atol=1e-3 if name == "second order" else 2e-4)
    np.testing.assert_allclose(with_exposure.predict(X, exposure=exposure), shifted.predict(X), rtol=1e-3)


def test_gradient_of_wopt_with_exposures():
    X, y, exposure, _ = simulated()
    likelihood = get_likelihood("poisson")
    prior = FixedPrior(*natural_prior(tc.Prior([0.0] * 3, [1.0] * 3), SHAPE, 2))
    entries = with_extents(pack_entries(X, y, SHAPE), likelihood, exposure)
    problem = Problem(entries, SHAPE, 2, likelihood, prior, None, None)
    rows, ways = np.random.default_rng(0).normal(0.5, 0.3, (2, sum(SHAPE), 2))
    one, state = ThreadExecutor(1), init(problem, WOPT(ridge=0.0), ThreadExecutor(1))
    loss = [loss_and_gradient(rows + h * ways, state, problem, one) for h in (-1e-5, 0.0, 1e-5)]
    assert (loss[2][0] - loss[0][0]) / 2e-5 == pytest.approx(float((loss[1][1] * ways).sum()), rel=1e-6)
    f = np.prod([rows[X[:, k] + [0, 9, 17][k]] for k in range(3)], axis=0).sum(axis=1)
    assert loss[1][0] == pytest.approx(-poisson.logpmf(y, exposure * np.exp(f)).sum(), rel=1e-10)


def test_lower_bound_with_exposures_does_not_fall():
    X, y, exposure, _ = simulated()
    model = new("pg-vb").set_params(max_iter=40, method=PGVB(anneal=0)).fit(X, y, exposure=exposure)
    bound = model.trace_["lower_bound"]
    assert np.diff(bound).min() > -1e-7 * np.abs(bound).max()


def test_rates_are_found_where_exposures_are_told():
    X, y, exposure, f = simulated(n=300)
    params = {"method": VMP(), "likelihood": "poisson", "random_state": 0, "n_jobs": 1, "max_iter": 60}
    told = tc.CPCountRegressor(2, **params).fit(X, y, exposure=exposure)
    untold = tc.CPCountRegressor(2, **params).fit(X, y)
    error = np.sqrt(np.mean((told.predict_latent(X)[0] - f) ** 2))
    assert error < 0.25 < np.std(untold.predict_latent(X)[0] - f)
    assert told.diagnostics_.score > untold.diagnostics_.score + 1.0


def test_weights_are_entries_with_their_exposures():
    X, y, exposure, _ = simulated()
    w = np.random.default_rng(3).integers(0, 3, len(y))
    once = new("vmp", shape=SHAPE).fit(X, y, exposure=exposure, sample_weight=w)
    often = new("vmp", shape=SHAPE).fit(np.repeat(X, w, axis=0), np.repeat(y, w), exposure=np.repeat(exposure, w))
    np.testing.assert_array_equal(once.predict(X), often.predict(X))
    half = new("vmp", shape=SHAPE).fit(X, y, exposure=exposure, sample_weight=np.full(len(y), 0.5))
    whole = new("vmp", shape=SHAPE).fit(X, y, exposure=exposure)
    assert half.posterior_.doubt is None  # entries left out are not asked where they have weights
    assert half.predict_latent(X)[1].mean() > whole.predict_latent(X)[1].mean() - (whole.posterior_.doubt or 0.0)


@each("name", [name for name, (_, likelihood) in METHODS.items() if likelihood == "poisson"])
def test_poisson_counts_of_a_cell_are_one_count_of_all_their_exposure(name):
    """Before, starts and hold-outs were those of halves, and vmp ended elsewhere (rank 1, latent values 0.6 apart)."""
    X, y, exposure, _ = simulated()
    part = np.random.default_rng(3).binomial(y.astype(int), 0.5).astype(float)
    halves = np.concatenate([X, X]), np.concatenate([part, y - part])
    whole, parts = new(name).fit(X, y, exposure=exposure), new(name).fit(*halves, exposure=np.tile(exposure / 2.0, 2))
    np.testing.assert_array_equal(whole.predict(X, exposure=exposure), parts.predict(X, exposure=exposure))
    assert str(whole.diagnostics_) == str(parts.diagnostics_)
    with pytest.raises(ValueError, match=r"0\.5"):  # not only their sum must be a count
        new(name).fit(np.tile(X, (2, 1)), np.full(2 * len(X), 0.5), exposure=1.0)


def test_rates_are_predicted_with_a_word_on_it():
    """Before, the file had the column, and predictions were those of an exposure of 1 without a word."""
    X, y, exposure, _ = simulated()
    cells = pd.DataFrame(X, columns=["site", "kind", "year"])
    frame = cells.assign(hours=exposure, count=y)
    model = new("vmp").fit(frame, value="count", exposure="hours")
    for call in (model.predict, model.predict_interval, model.sample_y):
        with pytest.warns(
            UserWarning, match="the fit was to counts with exposure=, and these have none: rates"
        ) as told:
            call(cells)
        assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model.predict(frame)
        model.predict(cells, exposure=1)
    plain = new("vmp").fit(frame.drop(columns="hours"), value="count")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        plain.predict(cells)


def test_scores_and_draws_are_of_the_exposure():
    X, y, exposure, _ = simulated()
    model = new("wopt").fit(X, y, exposure=exposure)
    rate = model.predict(X)
    np.testing.assert_allclose(model.predict(X, exposure=exposure), exposure * rate, rtol=1e-10)
    expected = poisson.logpmf(y, exposure * rate)
    np.testing.assert_allclose(model.log_score(X, y, exposure=exposure), expected, rtol=1e-8)
    odd = model.anomaly_score(X, y, exposure=exposure)
    np.testing.assert_allclose(odd["surprise"], -expected, rtol=1e-8)
    np.testing.assert_allclose(odd["lower_tail"], poisson.cdf(y, exposure * rate), atol=1e-8)
    assert model.score(X, y, exposure=exposure) > 0.8
    spread = new("vmp").fit(X, y, exposure=exposure)
    draws = spread.sample_y(X, 400, random_state=0, exposure=exposure)
    mean, sd = spread.predict(X, return_std=True, exposure=exposure)
    assert np.abs((draws.mean(axis=0) - mean) / sd).max() < 6.0 / np.sqrt(400)
    inside = spread.predict_interval(X, 0.9, exposure=exposure)
    assert 0.8 < np.mean((y >= inside[:, 0]) & (y <= inside[:, 1])) <= 1.0


def test_columns_of_tables_hold_exposures_and_files_keep_them(tmp_path):
    X, y, exposure, _ = simulated()
    table = pd.DataFrame(X, columns=["site", "kind", "year"]).astype(str).assign(hours=exposure, count=y)
    model = new("vmp").fit(table, value="count", exposure="hours")
    assert model.shape_ == SHAPE
    assert [labels.name for labels in model.labels_] == ["site", "kind", "year"]
    cells = table.drop(columns="count")
    np.testing.assert_array_equal(model.predict(cells), model.predict(cells.drop(columns="hours"), exposure=exposure))
    assert np.allclose(model.predict(cells), exposure * model.predict(cells[["site", "kind", "year"]]))
    assert model.score(table) == model.score(cells, y)
    renamed = table.rename(columns={"hours": "time"})
    np.testing.assert_array_equal(
        model.anomaly_score(renamed, value="count", exposure="time")["surprise"],
        model.anomaly_score(table, value="count")["surprise"],
    )
    path = tmp_path / "model.npz"
    model.save(path)
    loaded = tc.load(path)
    np.testing.assert_array_equal(loaded.predict(cells), model.predict(cells))
    np.testing.assert_array_equal(loaded.log_score(cells, y), model.log_score(cells, y))
    assert new("vmp").fit(X, y).predict(X, exposure=2.0) == pytest.approx(2.0 * new("vmp").fit(X, y).predict(X))


def test_fixed_modes_keep_the_unit():
    X, y, exposure, _ = simulated(n=300)
    model = new("vmp").fit(X, y, exposure=exposure)
    before, rate = model.factors_[1], model.predict(X)
    model.fit(X, y, exposure=exposure / 2.0, fixed_modes=[1, 2])
    np.testing.assert_allclose(model.factors_[1], before)
    assert np.median(model.predict(X) / rate) == pytest.approx(2.0, rel=0.15)


def test_threads_and_the_order_of_entries_make_no_difference():
    X, y, exposure, _ = simulated()
    order = np.random.default_rng(0).permutation(len(y))
    for name in ("vmp", "cep"):
        one = new(name).fit(X, y, exposure=exposure)
        two = new(name).set_params(n_jobs=2).fit(X[order], y[order], exposure=exposure[order])
        np.testing.assert_array_equal(one.predict(X), two.predict(X))


def test_what_is_refused():
    X, y, exposure, _ = simulated()
    model = new("vmp")
    for bad, told in ((0.0 * exposure, "above 0"), (exposure[:5], "each of the 220"), (-1.0, "above 0")):
        with pytest.raises(ValueError, match=told):
            model.fit(X, y, exposure=bad)
    with pytest.raises(ValueError, match="names a column of a table"):
        model.fit(X, y, exposure="hours")
    with pytest.raises(ValueError, match="'hours'"):
        model.fit(pd.DataFrame(X), y, exposure="hours")
    with pytest.raises(TypeError, match="takes no exposure"):
        tc.CPRegressor(2).fit(X, y, exposure=exposure)
    with pytest.raises(TypeError, match="hours"):
        model.fit(X, y, hours=exposure)
    assert not hasattr(model, "posterior_")
    model.fit(X, y, exposure=exposure)
    for call in (model.log_score, model.score, model.anomaly_score):
        with pytest.raises(ValueError, match="exposure"):
            call(X, y)
    with pytest.raises(ValueError, match="earlier counts had exposure="):
        model.partial_fit(X, y)
    with pytest.raises(ValueError, match="takes no exposures or numbers of trials"):
        model.transform(X, y, mode=0)
    with pytest.raises(ValueError, match="cannot be forgotten"):
        model.forget_rows(0, 0, data=X, y=y)
