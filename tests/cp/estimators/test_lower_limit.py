"""CPRegressor with values that are censored at a lower limit."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from helpers.cases import each
from helpers.models import paper
from scipy import stats

import tensorcep as tc
from tensorcep.cli import main
from tensorcep.cp.estimators.limits import spike_at_minimum
from tensorcep.metrics import coverage, rmse

SHAPE, LIMIT = (25, 20, 15), 1.5
GIBBS = {"max_iter": 100, "n_chains": 2}
HOW = {"cep": {}, "vmp": {"prior_mean": 0.0}, "gibbs": GIBBS}


@cache
def simulated():
    """Coordinates, values cut off at the limit, and what they were without noise; about half is censored."""
    found = tc.simulate_cp(SHAPE, 2, 1500, prior_mean=0.0, prior_sd=1.0, noise_precision=9.0, random_state=5)
    f = found.latent + LIMIT
    return found.tensor.coords, np.maximum(found.tensor.values + LIMIT, LIMIT), f


@cache
def fitted(method="cep", lower_limit="auto"):
    """A shared model of the first 1200 entries: do not change it."""
    X, y, _ = simulated()
    how = {"prior": "learned", **HOW[method]} if method != "vmp" else HOW[method]
    if method == "cep" and lower_limit == "auto":  # by the rule cep takes no limit of itself
        lower_limit = LIMIT
    model = paper(tc.CPRegressor, 2, method=method, lower_limit=lower_limit, random_state=0, **how)
    return model.fit(X[:1200], y[:1200])


@pytest.mark.parametrize("method", HOW)
def test_limit_recovers_the_latent_values_that_it_hides(method):
    X, y, f = (part[1200:] for part in simulated())
    assert 0.3 < np.mean(y == LIMIT) < 0.7
    model, plain = fitted(method), fitted(method, None)
    assert model.lower_limit_ == LIMIT
    assert plain.lower_limit_ is None
    mean, variance = model.predict_latent(X)
    assert rmse(f, mean) < 0.7 * rmse(f, plain.predict_latent(X)[0])
    assert rmse(y, model.predict(X)) < 0.9 * rmse(y, plain.predict(X))
    assert model.log_score(X, y).mean() > plain.log_score(X, y).mean() + 0.1
    assert abs(model.noise_precision_ - 9.0) < 3.0
    if method != "vmp":  # whose factors are independent, and so too narrow
        z, sd = stats.norm.ppf(0.95), np.sqrt(variance)
        assert 0.85 <= coverage(f, mean - z * sd, mean + z * sd) <= 0.95
    assert coverage(y, *model.predict_interval(X).T) > 0.85


@each("method", ["cep", "gibbs"])
def test_predictions_are_in_the_units_of_the_data(method):
    X, y, _ = simulated()
    model, X, y = fitted(method), X[:40], y[:40]
    draws = model.sample_y(X, 20_000, random_state=0)
    mean, sd = model.predict(X, return_std=True)
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.15)
    np.testing.assert_allclose(draws.std(axis=0), sd, atol=0.2)
    assert draws.min() == LIMIT
    low, high = model.predict_interval(X, 0.8).T
    np.testing.assert_allclose(np.quantile(draws, 0.9, axis=0), high, atol=0.25)
    assert (low >= LIMIT).all()
    log_mass = model.log_score(X, np.full(40, LIMIT))
    np.testing.assert_allclose((draws == LIMIT).mean(axis=0), np.exp(log_mass), atol=0.05)
    np.testing.assert_array_equal(model.log_score(X, np.full(40, LIMIT - 7.0)), log_mass)
    f = model.sample_posterior(4000, X, random_state=0)
    np.testing.assert_allclose(f.mean(axis=0), model.predict_latent(X)[0], atol=0.2)


def test_predictions_move_with_the_data():
    X, y, _ = simulated()
    moved = paper(tc.CPRegressor, 2, prior="learned", lower_limit=LIMIT - 2.5, random_state=0).fit(
        X[:1200], y[:1200] - 2.5
    )
    assert moved.lower_limit_ == LIMIT - 2.5
    np.testing.assert_allclose(moved.predict(X) + 2.5, fitted().predict(X), rtol=1e-6)


@each("method", ["cep", "gibbs"])
def test_limit_comes_back_from_a_file(method, tmp_path):
    X, y, _ = simulated()
    model = fitted(method)
    model.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    assert again.lower_limit_ == LIMIT
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.log_score(X, y), model.log_score(X, y))


def test_limit_gives_the_same_bits_on_any_number_of_threads():
    X, y, _ = simulated()
    how = {"lower_limit": LIMIT, "max_iter": 6, "tol": 1e9, "random_state": 0}
    one, two = (paper(tc.CPRegressor, 3, n_jobs=n, **how).fit(X, y) for n in (1, 2))
    np.testing.assert_array_equal(one.posterior_.Lam, two.posterior_.Lam)
    np.testing.assert_array_equal(one.posterior_.eta, two.posterior_.eta)


@pytest.mark.parametrize("method", ["cep", "vmp"])
def test_stream_keeps_the_limit_of_its_first_batch(method, tmp_path):
    X, y, f = simulated()
    limit = LIMIT if method == "cep" else "auto"
    model = paper(tc.CPRegressor, 2, method=method, lower_limit=limit, shape=SHAPE, random_state=0, tol=1e-2)
    for part in (slice(0, 800), slice(800, 1000), slice(1000, 1200)):
        model.partial_fit(X[part], y[part])
    assert model.lower_limit_ == LIMIT
    assert rmse(f[1200:], model.predict_latent(X[1200:])[0]) < 1.2
    model.save(tmp_path / "stream.npz")
    again = tc.load(tmp_path / "stream.npz").partial_fit(X[1200:], y[1200:])
    model.partial_fit(X[1200:], y[1200:])
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@each(
    ("y", "limit"),
    [
        ([0, 0, 0, 1, 2, 3], 0.0),
        ([-2, -2, -2, -1, 5], -2.0),
        ([0, 0, 1, 2, 3], None),  # only twice as frequent
        ([0, 0, 0, 3, 3, 1], None),
        ([1, 1, 1, 0], None),  # the spike is not at the least value
        ([4, 4, 4, 4], None),
        ([0] * 3 + list(range(1, 40)), None),  # less than a tenth
    ],
)
def test_auto_finds_a_spike_at_the_least_value(y, limit):
    assert spike_at_minimum(np.array(y, dtype=float)) == limit


@each(
    ("params", "words"),
    [
        ({"method": "laplace"}, "method='laplace' cannot use lower_limit=1.5; set lower_limit=None"),
        ({"method": "wopt"}, "method='wopt' cannot use"),
        ({"order": 2}, "order=2 cannot use"),
        ({"moments": "posterior"}, "moments='posterior' cannot use"),
        ({"messages": "averaged"}, "messages='averaged' cannot use"),
        ({"lower_limit": "low"}, "lower_limit must be 'auto', or a number"),
        ({"lower_limit": np.nan}, "lower_limit must be 'auto', or a number"),
    ],
)
def test_limit_is_refused_in_a_sentence_where_it_cannot_be(params, words):
    X, y, _ = simulated()
    with pytest.raises(ValueError, match=words):
        paper(tc.CPRegressor, 2, **{"lower_limit": LIMIT, **params}).fit(X, y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # few sweeps on purpose
@each("method", ["wopt", "laplace", "cep"])
def test_auto_leaves_methods_without_limits_alone(method):
    X, y, _ = simulated()
    how = {"method": method, "lower_limit": "auto", "max_iter": 2, "tol": 1e9, "random_state": 0}
    model = paper(tc.CPRegressor, 2, **how).fit(X, y)
    assert model.lower_limit_ is None


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # few sweeps on purpose
def test_compare_takes_the_methods_that_know_limits():
    X, y, _ = simulated()
    parts = [tc.SparseTensor.from_coo(X[part], y[part], SHAPE) for part in (slice(0, 300), slice(300, 400))]
    table = tc.compare(
        *parts, estimator=paper(tc.CPRegressor, 1, lower_limit=LIMIT, max_iter=4, tol=1e9, random_state=0)
    )
    assert list(table.index) == ["cep", "vmp", "gibbs"]
    assert np.isfinite(table[["rmse", "log_score", "coverage"]].to_numpy()).all()


@pytest.mark.slow
def test_command_line_fits_and_scores_with_a_limit(tmp_path, monkeypatch, capsys):
    X, y, _ = simulated()
    monkeypatch.chdir(tmp_path)
    np.savetxt("data.csv", np.column_stack([X + 1, y]), "%d,%d,%d,%.17g", ",", header="a,b,c,y", comments="")
    options = ["--rank", "2", "--index-base", "1", "--no-labels"]
    assert main(["fit", "data.csv", "-o", "m.npz", "--lower-limit", "1.5", "-q", *options]) == 0
    assert tc.load("m.npz").lower_limit_ == LIMIT
    assert main(["info", "m.npz"]) == 0
    assert "values at or below 1.5 are censored there" in capsys.readouterr().out
    assert main(["evaluate", "m.npz", "data.csv", "--json"]) == 0
    assert "log_likelihood" in capsys.readouterr().out
    assert main(["fit", "data.csv", "-o", "n.npz", "--lower-limit", "none", "-q", *options]) == 0
    assert tc.load("n.npz").lower_limit_ is None
    assert main(["fit", "data.csv", "-o", "o.npz", "--lower-limit", "1", "--likelihood", "poisson", *options]) != 0
    assert "--lower-limit is for real values; got --likelihood poisson" in capsys.readouterr().err


def test_a_limit_above_values_is_refused_or_told():
    X, y, _ = simulated()
    how = {"max_iter": 2, "tol": 1e9, "random_state": 0}
    with pytest.raises(ValueError, match=r"lower_limit must not be above all values, .* got 1e\+09"):
        paper(tc.CPRegressor, 2, lower_limit=1e9, **how).fit(X, y)
    below = np.count_nonzero(y < LIMIT + 0.1)
    with pytest.warns(UserWarning, match=f"{below} of 1500 values lie below lower_limit=1.6, down to 1.5"):
        paper(tc.CPRegressor, 2, lower_limit=LIMIT + 0.1, **how).fit(X, y)
    with pytest.warns(UserWarning, match="lie below lower_limit"):
        paper(tc.CPRegressor, 2, lower_limit=LIMIT + 0.1, **how).partial_fit(X, y)
    paper(tc.CPRegressor, 2, lower_limit=LIMIT, **how).fit(X, y)
