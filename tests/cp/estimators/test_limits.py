"""CPRegressor with values that are censored at a lower or an upper limit."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from helpers.cases import each
from helpers.models import paper
from scipy import stats

import tensorcep as tc
from tensorcep.cli.main import main
from tensorcep.cp.targets.real import spike_at_minimum
from tensorcep.metrics import coverage, rmse

SHAPE, LIMIT = (25, 20, 15), 1.5
GIBBS = {"max_iter": 100, "n_chains": 2, "prior": "learned"}
HOW = {
    "lower": {"cep": {"prior": "learned"}, "vmp": {"prior_mean": 0.0}, "gibbs": GIBBS},
    "upper": {"cep": {"prior": "learned", "prior_mean": 0.0}, "vmp": {"prior_mean": 0.0}, "gibbs": GIBBS},
}
SIDES = each("side", HOW)
FEW = {"max_iter": 2, "tol": 1e9, "random_state": 0}
few_sweeps = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@cache
def simulated(side="lower"):
    """Coordinates, values cut off at the limit, and what they were without noise; about half is censored."""
    found = tc.simulate_cp(SHAPE, 2, 1500, prior_mean=0.0, prior_sd=1.0, noise_precision=9.0, random_state=5)
    cut = np.maximum if side == "lower" else np.minimum
    return found.tensor.coords, cut(found.tensor.values + LIMIT, LIMIT), found.latent + LIMIT


def limited(side, limit):
    """The parameters of a limit on one side; an upper one leaves no other to be looked for."""
    return {"lower_limit": limit} if side == "lower" else {"lower_limit": None, "upper_limit": limit}


def limits(model):
    return model.lower_limit_, model.upper_limit_


BOTH = {"lower": (LIMIT, None), "upper": (None, LIMIT)}


@cache
def fitted(side="lower", method="cep", limit="auto"):
    """A shared model of the first 1200 entries: do not change it."""
    X, y, _ = simulated(side)
    if limit == "auto" and (side, method) not in (("lower", "vmp"), ("lower", "gibbs")):
        limit = LIMIT  # which neither cep takes of itself nor any method above values
    model = paper(tc.CPRegressor, 2, method=method, random_state=0, **limited(side, limit), **HOW[side][method])
    return model.fit(X[:1200], y[:1200])


@pytest.mark.parametrize("side", HOW)
@pytest.mark.parametrize("method", HOW["lower"])
def test_limit_recovers_the_latent_values_that_it_hides(side, method):
    X, y, f = (part[1200:] for part in simulated(side))
    assert 0.3 < np.mean(y == LIMIT) < 0.7
    model, plain = fitted(side, method), fitted(side, method, None)
    assert limits(model) == BOTH[side]
    assert limits(plain) == (None, None)
    mean, variance = model.predict_latent(X)
    assert rmse(f, mean) < 0.7 * rmse(f, plain.predict_latent(X)[0])
    assert rmse(y, model.predict(X)) < 0.9 * rmse(y, plain.predict(X))
    gain = {"lower": 0.1, "upper": 0.03}[side]
    assert model.log_score(X, y).mean() > plain.log_score(X, y).mean() + gain
    assert abs(model.noise_precision_ - 9.0) < 3.0
    if side == "lower" and method != "vmp":  # whose factors are independent, and so too narrow
        z, sd = stats.norm.ppf(0.95), np.sqrt(variance)
        assert 0.85 <= coverage(f, mean - z * sd, mean + z * sd) <= 0.95
    assert coverage(y, *model.predict_interval(X).T) > 0.85


@SIDES
@each("method", ["cep", "gibbs"])
def test_predictions_are_in_the_units_of_the_data_and_come_back_from_a_file(side, method, tmp_path):
    X, y, _ = simulated(side)
    model, X, y = fitted(side, method), X[:40], y[:40]
    draws = model.sample_y(X, 20_000, random_state=0)
    mean, sd = model.predict(X, return_std=True)
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.15)
    np.testing.assert_allclose(draws.std(axis=0), sd, atol=0.2)
    low, high = model.predict_interval(X, 0.8).T
    if side == "lower":
        assert draws.min() == LIMIT
        np.testing.assert_allclose(np.quantile(draws, 0.9, axis=0), high, atol=0.25)
        assert (low >= LIMIT).all()
    else:
        assert draws.max() == LIMIT
        np.testing.assert_allclose(np.quantile(draws, 0.1, axis=0), low, atol=0.25)
        assert (high <= LIMIT).all()
    log_mass = model.log_score(X, np.full(40, LIMIT))
    np.testing.assert_allclose((draws == LIMIT).mean(axis=0), np.exp(log_mass), atol=0.05)
    beyond = LIMIT - 7.0 if side == "lower" else LIMIT + 7.0
    np.testing.assert_array_equal(model.log_score(X, np.full(40, beyond)), log_mass)
    f = model.sample_posterior(4000, X, random_state=0)
    np.testing.assert_allclose(f.mean(axis=0), model.predict_latent(X)[0], atol=0.2)
    model.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    assert limits(again) == BOTH[side]
    np.testing.assert_array_equal(again.predict(X), mean)
    np.testing.assert_array_equal(again.log_score(X, y), model.log_score(X, y))


def test_predictions_move_with_the_data():
    X, y, _ = simulated()
    moved = paper(tc.CPRegressor, 2, prior="learned", lower_limit=LIMIT - 2.5, random_state=0).fit(
        X[:1200], y[:1200] - 2.5
    )
    assert moved.lower_limit_ == LIMIT - 2.5
    np.testing.assert_allclose(moved.predict(X) + 2.5, fitted().predict(X), rtol=1e-6)


def test_limit_gives_the_same_bits_on_any_number_of_threads():
    X, y, _ = simulated()
    how = {"lower_limit": LIMIT, "max_iter": 6, "tol": 1e9, "random_state": 0}
    one, two = (paper(tc.CPRegressor, 3, n_jobs=n, **how).fit(X, y) for n in (1, 2))
    np.testing.assert_array_equal(one.posterior_.Lam, two.posterior_.Lam)
    np.testing.assert_array_equal(one.posterior_.eta, two.posterior_.eta)


@SIDES
@each("method", ["cep", "vmp"])
def test_stream_keeps_the_limit_of_its_first_batch(side, method, tmp_path):
    X, y, f = simulated(side)
    how = limited(side, "auto" if (side, method) == ("lower", "vmp") else LIMIT)
    how |= HOW["upper"][method] if side == "upper" else {}
    model = paper(tc.CPRegressor, 2, method=method, shape=SHAPE, random_state=0, tol=1e-2, **how)
    for part in (slice(0, 800), slice(800, 1000), slice(1000, 1200)):
        model.partial_fit(X[part], y[part])
    assert limits(model) == BOTH[side]
    assert rmse(f[1200:], model.predict_latent(X[1200:])[0]) < 1.2
    model.save(tmp_path / "stream.npz")
    again = tc.load(tmp_path / "stream.npz").partial_fit(X[1200:], y[1200:])
    np.testing.assert_array_equal(again.predict(X), model.partial_fit(X[1200:], y[1200:]).predict(X))


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
    ("side", "params", "words"),
    [
        (
            "lower",
            {"method": "laplace"},
            "method 'laplace' cannot use lower_limit=1.5; use lower_limit=None, or one of",
        ),
        ("lower", {"method": "wopt"}, "method 'wopt' cannot use"),
        ("lower", {"order": 2}, "'cep' with order=2 cannot use .*; use order=1, or lower_limit=None"),
        ("lower", {"moments": "posterior"}, "'cep' with moments='posterior' cannot use .*; use moments='cavity'"),
        ("lower", {"messages": "averaged"}, "'cep' with messages='averaged' cannot use .*; use messages='full'"),
        ("lower", {"lower_limit": "low"}, "lower_limit must be 'auto', or a number"),
        ("lower", {"lower_limit": np.nan}, "lower_limit must be 'auto', or a number"),
        ("lower", {"lower_limit": 1e9, **FEW}, r"lower_limit must not be above all values, .* got 1e\+09"),
        (
            "upper",
            {"method": "laplace"},
            "method 'laplace' cannot use upper_limit=1.5; use upper_limit=None, or one of",
        ),
        ("upper", {"messages": "averaged"}, "'cep' with messages='averaged' cannot use upper_limit"),
        ("upper", {"upper_limit": np.nan}, "upper_limit must be"),
        ("upper", {"upper_limit": -1e9}, r"upper_limit must not be below all values, the least .*; got -1e\+09"),
        ("upper", {"lower_limit": 0.0}, "a model has a limit on one side; got lower_limit=0 and upper_limit=1.5"),
    ],
)
def test_limit_is_refused_in_a_sentence_where_it_cannot_be(side, params, words):
    X, y, _ = simulated(side)
    with pytest.raises(ValueError, match=words):
        paper(tc.CPRegressor, 2, **{**limited(side, LIMIT), **params}).fit(X, y)


@few_sweeps
@each("method", ["wopt", "laplace", "cep"])
def test_auto_leaves_methods_without_limits_alone(method):
    X, y, _ = simulated()
    assert paper(tc.CPRegressor, 2, method=method, lower_limit="auto", **FEW).fit(X, y).lower_limit_ is None


@few_sweeps
def test_compare_takes_the_methods_that_know_limits():
    X, y, _ = simulated()
    parts = [tc.SparseTensor.from_coo(X[part], y[part], SHAPE) for part in (slice(0, 300), slice(300, 400))]
    table = tc.compare(
        *parts, estimator=paper(tc.CPRegressor, 1, lower_limit=LIMIT, max_iter=4, tol=1e9, random_state=0)
    )
    assert list(table.index) == ["cep", "vmp", "gibbs"]
    assert np.isfinite(table[["rmse", "log_score", "coverage"]].to_numpy()).all()


@pytest.mark.slow
@SIDES
def test_command_line_fits_and_scores_with_a_limit(side, tmp_path, monkeypatch, capsys):
    X, y, _ = simulated(side)
    monkeypatch.chdir(tmp_path)
    np.savetxt("data.csv", np.column_stack([X + 1, y]), "%d,%d,%d,%.17g", ",", header="a,b,c,y", comments="")
    options = ["--rank", "2", "--index-base", "1", "--no-labels"]
    assert main(["fit", "data.csv", "-o", "m.npz", f"--{side}-limit", "1.5", "-q", *options]) == 0
    assert limits(tc.load("m.npz")) == BOTH[side]
    assert main(["info", "m.npz"]) == 0
    word = {"lower": "below", "upper": "above"}[side]
    assert f"values at or {word} 1.5 are censored there" in capsys.readouterr().out
    assert main(["evaluate", "m.npz", "data.csv", "--json"]) == 0
    assert "log_likelihood" in capsys.readouterr().out
    if side == "lower":
        assert main(["fit", "data.csv", "-o", "n.npz", "--lower-limit", "none", "-q", *options]) == 0
        assert tc.load("n.npz").lower_limit_ is None
    assert main(["fit", "data.csv", "-o", "o.npz", f"--{side}-limit", "1", "--likelihood", "poisson", *options]) != 0
    assert f"--{side}-limit is for real values; got --likelihood poisson" in capsys.readouterr().err


@few_sweeps
@SIDES
def test_values_beyond_a_limit_are_told(side):
    X, y, _ = simulated(side)
    if side == "lower":
        how, beyond = {"lower_limit": LIMIT + 0.1}, np.count_nonzero(y < LIMIT + 0.1)
        told = f"{beyond} of 1500 values lie below lower_limit=1.6, down to 1.5"
    else:
        how, beyond = {"upper_limit": LIMIT - 0.1}, np.count_nonzero(y > LIMIT - 0.1)
        told = f"{beyond} of 1500 values lie above upper_limit=1.4, up to 1.5.*raise it"
    with pytest.warns(UserWarning, match=told):
        paper(tc.CPRegressor, 2, **how, **FEW).fit(X, y)
    with pytest.warns(UserWarning, match=f"lie {'below lower' if side == 'lower' else 'above upper'}_limit"):
        paper(tc.CPRegressor, 2, **how, **FEW).partial_fit(X, y)
    paper(tc.CPRegressor, 2, **limited(side, LIMIT), **FEW).fit(X, y)
