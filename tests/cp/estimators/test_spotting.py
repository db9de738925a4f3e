"""Anomaly scores: the predictive law of an entry, its tails, and the flag of rows that nothing was learned of."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.data import NAMES, entries, fitted
from helpers.models import paper
from scipy.stats import norm

import tensorcep as tc
from tensorcep.cli.main import main
from tensorcep.likelihoods import get_likelihood

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@each("name", NAMES)
def test_anomaly_score_is_the_predictive_law(name):
    model, (X, y) = fitted(name), entries(name)
    scores = model.anomaly_score(X[:50], y[:50])
    assert list(scores.columns[:3]) == ["mode_0", "mode_1", "mode_2"]
    np.testing.assert_allclose(scores["surprise"], -model.log_score(X[:50], y[:50]))
    assert not scores["unseen"].any()
    mass = np.exp(-scores["surprise"]) if name != "regressor" else 0.0
    np.testing.assert_allclose(scores["lower_tail"] + scores["upper_tail"] - mass, 1.0, atol=1e-5)
    if name == "regressor":
        expected = norm.cdf(y[:50], scores["mean"], scores["sd"])
        np.testing.assert_allclose(scores["lower_tail"], expected, rtol=1e-6)


@each("name", ["gaussian", "tobit", "probit", "logit", "poisson", "negbinomial"])
def test_tails_are_shares_of_draws(name, rng):
    likelihood = get_likelihood(name)
    m, v, theta, n = 0.7, 0.5, 1.5, 40_000
    theta = likelihood.default_theta if likelihood.parameter is None else theta
    y = likelihood.sample(rng, m + np.sqrt(v) * rng.standard_normal(n), np.full(n, theta))
    for at in np.unique(np.round(np.quantile(y, [0.1, 0.5, 0.95]), 0 if name != "gaussian" else 6)):
        coded = likelihood.check_y(np.array([at]))
        lower, upper = likelihood.tails(coded, np.array([m]), np.array([v]), np.array([theta]))
        shares = [(y <= at).mean(), (y >= at).mean()]
        np.testing.assert_allclose([lower[0], upper[0]], shares, atol=3.0 / np.sqrt(n))


def log_of_events():
    rng = np.random.default_rng(0)
    host, port = rng.integers(0, 6, 800), rng.integers(0, 5, 800)
    return pd.DataFrame({"host": [f"h{i}" for i in host], "port": port, "note": "x"})


def test_odd_cells_of_a_log_of_events_stand_out(tmp_path, capsys):
    log = log_of_events()
    model = paper(tc.CPCountRegressor, 1, random_state=0, max_iter=30, likelihood="poisson", prior="learned")
    model.fit(log, modes=["host", "port"], value=None)
    today = pd.concat([log[:100], pd.DataFrame({"host": "h2", "port": [3] * 90, "note": "y"})])
    today = pd.concat([today, pd.DataFrame({"host": ["new"], "port": [0], "note": "z"})])
    scores = model.anomaly_score(today, value=None)
    odd = scores.sort_values("surprise").iloc[-1]
    assert (odd["host"], odd["port"], odd["value"] >= 90) == ("h2", 3, True)
    assert odd["upper_tail"] < 1e-6
    assert scores.loc[scores["unseen"], "host"].tolist() == ["new"]
    model.save(tmp_path / "m.npz")
    today.to_csv(tmp_path / "today.csv", index=False)
    out = tmp_path / "odd.csv"
    files = [str(tmp_path / "m.npz"), str(tmp_path / "today.csv")]
    assert main(["score", *files, "--count", "--top", "2", "-o", str(out)]) == 0
    table = pd.read_csv(out)
    assert len(table) == 2
    assert table["host"][0] == "h2"
    np.testing.assert_allclose(table["surprise"][0], odd["surprise"], rtol=1e-6)
    assert main(["score", *files, "--value", "note"]) == 1
    assert "must hold finite numbers" in capsys.readouterr().err


def test_score_before_a_batch_is_learned():
    X, y = entries("regressor")
    model = paper(tc.CPRegressor, 2, random_state=0, tol=1e-2).partial_fit(X[:300], y[:300])
    scores = model.anomaly_score(X[300:400], y[300:400])
    model.partial_fit(X[300:400], y[300:400])
    assert model.anomaly_score(X[300:400], y[300:400])["surprise"].mean() < scores["surprise"].mean()
    with pytest.raises(ValueError, match="needs what was observed"):
        model.anomaly_score(X[:5])
