"""CPRegressor of a power of the values."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from helpers.cases import each
from helpers.models import paper

import tensorcep as tc
from tensorcep.cli.main import main
from tensorcep.core.diagnostics import THRESHOLDS
from tensorcep.cp.fit import select
from tensorcep.cp.targets import real
from tensorcep.metrics import coverage, rmse

SHAPE = (25, 20, 15)


@cache
def simulated(power=0.0):
    """Coordinates, values of which this power is Gaussian, and the power of their medians."""
    found = tc.simulate_cp(SHAPE, 2, 2400, prior_mean=0.0, prior_sd=1.0, noise_precision=6.0, random_state=5)
    g, f = found.tensor.values, found.latent
    if power == 0.0:
        return found.tensor.coords, np.exp(g), f
    low = 1.0 - g.min()
    return found.tensor.coords, (g + low) ** (1 / power), f


def model(**how):
    given = {"method": "vmp", "prior": "learned", "lower_limit": None, "random_state": 0} | how
    return paper(tc.CPRegressor, 2, **given)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # of the plain fits, which find nothing
@each("method", ["vmp", "cep", "gibbs"])
def test_power_predicts_values_whose_noise_grows_with_them(method):
    X, y, f = simulated()
    sampler = {"max_iter": 100, "n_chains": 2} if method == "gibbs" else {}
    plain, logs = (model(method=method, power=p, **sampler).fit(X[:2000], y[:2000]) for p in (1.0, 0.0))
    X, y, f = X[2000:], y[2000:], f[2000:]
    assert (logs.power_, plain.power_) == (0.0, 1.0)
    assert logs.log_score(X, y).mean() > plain.log_score(X, y).mean() + 0.3
    assert np.median(np.abs(y - logs.predict(X))) < np.median(np.abs(y - plain.predict(X)))
    assert rmse(f, logs.predict_latent(X)[0]) < 0.3
    assert 0.85 < coverage(y, *logs.predict_interval(X, 0.9).T) < 0.95
    mean, sd = logs.predict(X[:20], return_std=True)
    draws = logs.sample_y(X[:20], 4000, random_state=0)
    np.testing.assert_allclose(draws.mean(axis=0), mean, rtol=0.2)
    np.testing.assert_allclose(draws.std(axis=0), sd, rtol=0.5)


@each(("power", "found"), [(0.0, 0.0), (1.0, 1.0), (0.5, 0.5)])
def test_auto_finds_the_power(power, found):
    X, y, _ = simulated(power)
    assert model(power="auto").fit(X, y).power_ == found


def test_auto_leaves_values_that_are_not_positive_alone():
    X, y, _ = simulated()
    own = model(power="auto").fit(X, y - 1.0)
    assert own.power_ == 1.0
    np.testing.assert_array_equal(own.predict(X), model().fit(X, y - 1.0).predict(X))


def test_by_default_uneven_positive_values_are_fitted_by_their_logarithms():
    X, y, _ = simulated()
    own = model(power=None).fit(X[:2000], y[:2000])
    assert (own.power_, tc.CPRegressor().power) == (0.0, None)
    np.testing.assert_array_equal(own.predict(X), model(power=0.0).fit(X[:2000], y[:2000]).predict(X))


@each("change", ["either sign", "far from 0", "a limit", "noise of its own"])
def test_by_default_other_values_are_fitted_as_they_are(change):
    X, y, _ = simulated()
    y = {"either sign": y - 1.0, "far from 0": y + 1e6}.get(change, y)
    how = {"a limit": {"lower_limit": 0.001}, "noise of its own": {"noise": 0}}.get(change, {})
    own = model(power=None, max_iter=10, **how).fit(X, y)
    assert own.power_ == 1.0
    np.testing.assert_array_equal(own.predict(X), model(power=1.0, max_iter=10, **how).fit(X, y).predict(X))


def test_logarithms_whose_means_are_far_off_are_not_taken(rng):
    """Shares of 100 look log-normal where most are small; a row whose shares are all large then has means of 1,000."""
    u, v = rng.standard_normal((70, 2)), rng.standard_normal((50, 2))
    X = np.argwhere(rng.random((70, 50)) < 0.4)
    f = 1.5 * (u[X[:, 0]] * v[X[:, 1]]).sum(axis=1) - 2.0 + 0.3 * rng.standard_normal(len(X))
    y = 100.0 / (1.0 + np.exp(-f))
    new = rng.random(len(y)) < 0.3
    assert max(real.gain_of(p, y) for p in (0.5, 0.0)) > THRESHOLDS.least_gain_by_power  # so that they are tried
    found = model(power=None, random_state=1).fit(X[~new], y[~new])
    assert found.power_ > 0.0
    assert rmse(y[new], found.predict(X[new])) < 0.6 * y[new].std()
    logs = model(power=0.0, random_state=1).fit(X[~new], y[~new])
    assert rmse(y[new], logs.predict(X[new])) > 1.1 * y[new].std()


@each("sd", [0.3, 0.8, 1.2])
def test_gain_of_a_logarithm_is_that_of_log_normal_values(rng, sd):
    y = np.exp(sd * rng.standard_normal(400_000) - 3.0)
    expected = 0.5 * sd**2 + 0.5 * np.log(np.expm1(sd**2)) - np.log(sd)
    assert real.gain_of(0.0, y) == pytest.approx(expected, abs=0.03)
    assert real.powers_to_try(None, y) == ((1.0,) if sd < 0.5 else real.POWERS)


def test_powers_of_values_without_a_scale_and_of_few_are_not_tried(rng):
    for y in ([], np.full(200, 2.0), np.full(200, 1e-320), rng.exponential(size=49) ** 2):
        assert real.powers_to_try(None, np.array(y)) == (1.0,)


def test_powers_of_values_that_pile_up_at_the_least_one_are_not_tried(rng):
    y = np.exp(rng.standard_normal(4000))
    assert real.powers_to_try(None, y) == real.POWERS
    assert real.powers_to_try(None, np.maximum(y, 0.6)) == (1.0,)


def test_of_very_many_entries_a_part_chooses_the_power(monkeypatch):
    X, y, _ = simulated()
    asked, without = [], select._without

    def noted(problem, place):
        asked.append(len(problem.entries.permutation))
        return without(problem, place)

    monkeypatch.setattr(select, "MOST", 800)
    monkeypatch.setattr(select, "_without", noted)
    assert model(power="auto").fit(X, y).power_ == 0.0
    assert set(asked) == {800}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_long_tails_of_logarithms_leave_means_finite(rng):
    X, y, f = simulated()
    y = np.exp(f + 0.3 * rng.standard_t(1.5, len(f)))
    own = tc.CPRegressor(2, max_iter=80, power=0.0, random_state=0).fit(X[:2000], y[:2000])
    mean, sd = own.predict(X[2000:], return_std=True)
    lower, upper = own.predict_interval(X[2000:], 0.9).T
    assert np.isfinite(sd).all()
    assert np.median(mean / np.exp(f[2000:])) < 10.0
    assert 0.82 < coverage(y[2000:], lower, upper) < 0.97


def test_stream_of_uneven_values_says_that_it_takes_them_as_they_are():
    X, y, _ = simulated()
    with pytest.warns(UserWarning, match="or logarithm is far nearer normal; a stream takes them as they are"):
        own = model(power=None).partial_fit(X, y)
    assert own.power_ == 1.0


def test_power_comes_back_from_a_file_and_scores_of_anomalies_are_those_of_y(tmp_path):
    X, y, _ = simulated()
    own = model(power=0.0).fit(X, y)
    own.save(tmp_path / "m.npz")
    again = tc.load(tmp_path / "m.npz")
    assert again.power_ == 0.0
    np.testing.assert_array_equal(again.predict(X), own.predict(X))
    np.testing.assert_allclose(own.anomaly_score(X, y)["surprise"], -own.log_score(X, y), rtol=1e-12)
    scaled = model(power=0.0).fit(X, 7.0 * y)
    np.testing.assert_allclose(scaled.predict(X), 7.0 * own.predict(X), rtol=1e-6)


@each(
    ("how", "words"),
    [
        ({"power": 2.0}, "power must be"),
        ({"power": 0.5, "lower_limit": 0.1}, "power=0.5 cannot be used with a limit; leave one of them out"),
        ({"power": 0.0, "noise": "entry"}, "power=0.0 cannot be used with noise='entry'"),
    ],
)
def test_power_is_refused_in_a_sentence(how, words):
    X, y, _ = simulated()
    with pytest.raises(ValueError, match=words):
        model(**how).fit(X, y)


def test_power_is_for_fits():
    X, y, _ = simulated()
    with pytest.raises(ValueError, match="power=0.0 cannot be used with partial_fit or stream"):
        model(power=0.0).partial_fit(X, y)


@pytest.mark.slow
def test_command_line_takes_a_power(tmp_path, monkeypatch, capsys):
    X, y, _ = simulated()
    monkeypatch.chdir(tmp_path)
    np.savetxt("data.csv", np.column_stack([X, y]), "%d,%d,%d,%.17g", ",", header="a,b,c,y", comments="")
    how = ["--rank", "2", "--method", "vmp", "-q"]
    assert main(["fit", "data.csv", "-o", "m.npz", "--power", "auto", *how]) == 0
    assert main(["info", "m.npz"]) == 0
    assert "logarithms of values are Gaussian" in capsys.readouterr().out
    assert main(["fit", "data.csv", "-o", "o.npz", "--power", "0", "--likelihood", "poisson"]) != 0
    assert "--power is for real values; got --likelihood poisson" in capsys.readouterr().err
