"""CPRegressor with values that are censored at an upper limit."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from helpers.cases import each
from helpers.models import paper

import tensorcep as tc
from tensorcep.cli import main
from tensorcep.metrics import coverage, rmse

SHAPE, LIMIT = (25, 20, 15), 1.5
HOW = {
    "cep": {"prior": "learned", "prior_mean": 0.0},
    "vmp": {"prior_mean": 0.0},
    "gibbs": {"prior": "learned", "max_iter": 100, "n_chains": 2},
}


@cache
def simulated():
    """Coordinates, values cut off at the limit, and what they were without noise; about half is censored."""
    found = tc.simulate_cp(SHAPE, 2, 1500, prior_mean=0.0, prior_sd=1.0, noise_precision=9.0, random_state=5)
    return found.tensor.coords, np.minimum(found.tensor.values + LIMIT, LIMIT), found.latent + LIMIT


@cache
def fitted(method, upper_limit=LIMIT):
    """A shared model of the first 1200 entries: do not change it."""
    X, y, _ = simulated()
    model = paper(
        tc.CPRegressor, 2, method=method, lower_limit=None, upper_limit=upper_limit, random_state=0, **HOW[method]
    )
    return model.fit(X[:1200], y[:1200])


@pytest.mark.parametrize("method", HOW)
def test_upper_limit_recovers_the_latent_values_that_it_hides(method):
    X, y, f = (part[1200:] for part in simulated())
    assert 0.3 < np.mean(y == LIMIT) < 0.7
    model, plain = fitted(method), fitted(method, None)
    assert (model.upper_limit_, model.lower_limit_, plain.upper_limit_) == (LIMIT, None, None)
    assert rmse(f, model.predict_latent(X)[0]) < 0.7 * rmse(f, plain.predict_latent(X)[0])
    assert rmse(y, model.predict(X)) < 0.9 * rmse(y, plain.predict(X))
    assert model.log_score(X, y).mean() > plain.log_score(X, y).mean() + 0.03
    assert abs(model.noise_precision_ - 9.0) < 3.0
    assert coverage(y, *model.predict_interval(X).T) > 0.85


@each("method", ["cep", "gibbs"])
def test_predictions_with_an_upper_limit_are_in_the_units_of_the_data(method, tmp_path):
    X, y, _ = simulated()
    model, X, y = fitted(method), X[:40], y[:40]
    draws = model.sample_y(X, 20_000, random_state=0)
    mean, sd = model.predict(X, return_std=True)
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.15)
    np.testing.assert_allclose(draws.std(axis=0), sd, atol=0.2)
    assert draws.max() == LIMIT
    low, high = model.predict_interval(X, 0.8).T
    np.testing.assert_allclose(np.quantile(draws, 0.1, axis=0), low, atol=0.25)
    assert (high <= LIMIT).all()
    log_mass = model.log_score(X, np.full(40, LIMIT))
    np.testing.assert_allclose((draws == LIMIT).mean(axis=0), np.exp(log_mass), atol=0.05)
    np.testing.assert_array_equal(model.log_score(X, np.full(40, LIMIT + 7.0)), log_mass)
    model.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    assert again.upper_limit_ == LIMIT
    np.testing.assert_array_equal(again.predict(X), mean)
    np.testing.assert_array_equal(again.log_score(X, y), model.log_score(X, y))


@pytest.mark.parametrize("method", ["cep", "vmp"])
def test_stream_keeps_the_upper_limit_of_its_first_batch(method, tmp_path):
    X, y, f = simulated()
    how = {"method": method, "lower_limit": None, "upper_limit": LIMIT, "shape": SHAPE, "random_state": 0, "tol": 1e-2}
    model = paper(tc.CPRegressor, 2, **how, **HOW[method])
    for part in (slice(0, 800), slice(800, 1000), slice(1000, 1200)):
        model.partial_fit(X[part], y[part])
    assert model.upper_limit_ == LIMIT
    assert rmse(f[1200:], model.predict_latent(X[1200:])[0]) < 1.2
    model.save(tmp_path / "stream.npz")
    again = tc.load(tmp_path / "stream.npz").partial_fit(X[1200:], y[1200:])
    np.testing.assert_array_equal(again.predict(X), model.partial_fit(X[1200:], y[1200:]).predict(X))


@each(
    ("params", "words"),
    [
        ({"method": "laplace"}, "method='laplace' cannot use upper_limit=1.5; set upper_limit=None"),
        ({"messages": "averaged"}, "messages='averaged' cannot use upper_limit"),
        ({"upper_limit": np.nan}, "upper_limit must be"),
        ({"upper_limit": -1e9}, r"upper_limit must not be below all values, the least of which is .*; got -1e\+09"),
        ({"lower_limit": 0.0}, "a model has a limit on one side; got lower_limit=0 and upper_limit=1.5"),
    ],
)
def test_upper_limit_is_refused_in_a_sentence_where_it_cannot_be(params, words):
    X, y, _ = simulated()
    with pytest.raises(ValueError, match=words):
        paper(tc.CPRegressor, 2, **{"lower_limit": None, "upper_limit": LIMIT, **params}).fit(X, y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # few sweeps on purpose
def test_values_above_an_upper_limit_are_told():
    X, y, _ = simulated()
    above = np.count_nonzero(y > LIMIT - 0.1)
    with pytest.warns(UserWarning, match=f"{above} of 1500 values lie above upper_limit=1.4, up to 1.5.*raise it"):
        paper(tc.CPRegressor, 2, upper_limit=LIMIT - 0.1, max_iter=2, tol=1e9, random_state=0).fit(X, y)


@pytest.mark.slow
def test_command_line_fits_and_scores_with_an_upper_limit(tmp_path, monkeypatch, capsys):
    X, y, _ = simulated()
    monkeypatch.chdir(tmp_path)
    np.savetxt("data.csv", np.column_stack([X + 1, y]), "%d,%d,%d,%.17g", ",", header="a,b,c,y", comments="")
    options = ["--rank", "2", "--index-base", "1", "--no-labels"]
    assert main(["fit", "data.csv", "-o", "m.npz", "--upper-limit", "1.5", "-q", *options]) == 0
    assert tc.load("m.npz").upper_limit_ == LIMIT
    assert main(["info", "m.npz"]) == 0
    assert "values at or above 1.5 are censored there" in capsys.readouterr().out
    assert main(["evaluate", "m.npz", "data.csv", "--json"]) == 0
    assert "log_likelihood" in capsys.readouterr().out
    assert main(["fit", "data.csv", "-o", "o.npz", "--upper-limit", "1", "--likelihood", "poisson", *options]) != 0
    assert "--upper-limit is for real values; got --likelihood poisson" in capsys.readouterr().err
