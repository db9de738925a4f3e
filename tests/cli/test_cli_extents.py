"""Exposures and trials in the shell: a column of the file, for fit, predict, evaluate and score; and --noise."""

from __future__ import annotations

import io
import json

import numpy as np
import pandas as pd
import pytest

from tensorcep import CPCountRegressor, load
from tensorcep.cli.main import main
from tensorcep.entries.sparse_tensor import SparseTensor

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")


def cli(*args):
    return main([str(arg) for arg in args])


@pytest.fixture
def table(tmp_path):
    """A csv file of sites, years, hours and counts, and what it holds."""
    rng = np.random.default_rng(0)
    X = np.argwhere(np.ones((12, 10)))[rng.permutation(120)[:100]]
    hours = rng.uniform(0.5, 8.0, len(X)).round(2)
    rate = np.exp(rng.normal(0.0, 0.7, 12)[X[:, 0]] + rng.normal(0.0, 0.7, 10)[X[:, 1]])
    cells = pd.DataFrame({"site": [f"s{i}" for i in X[:, 0]], "year": [f"y{i}" for i in X[:, 1]]})
    frame = cells.assign(count=rng.poisson(hours * rate), hours=hours)
    path = tmp_path / "counts.csv"
    frame.to_csv(path, index=False)
    return path, frame


def test_cli_exposure_is_the_estimators(table, tmp_path, capsys):
    path, frame = table
    model = tmp_path / "m.npz"
    how = ["--likelihood", "poisson", "--rank", 1, "--method", "vmp", "--max-iter", 20]
    assert cli("fit", path, "-o", model, *how, "--exposure", "hours", "--value", "count") == 0
    tensor = SparseTensor.from_pandas(frame, ["site", "year"], "count")
    own = CPCountRegressor(1, likelihood="poisson", method="vmp", max_iter=20, random_state=0)
    own.fit(tensor, exposure=frame["hours"])
    np.testing.assert_array_equal(load(model).predict(frame[["site", "year"]]), own.predict(frame[["site", "year"]]))
    capsys.readouterr()
    assert cli("predict", model, path, "--exposure", "hours") == 0
    found = pd.read_csv(io.StringIO(capsys.readouterr().out))
    mean = own.predict(frame[["site", "year"]], exposure=frame["hours"])
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-6)
    assert cli("predict", model, path) == 0
    rates = pd.read_csv(io.StringIO(capsys.readouterr().out))
    np.testing.assert_allclose(rates["mean"] * frame["hours"], mean, rtol=1e-6)
    assert cli("evaluate", model, path, "--exposure", "hours", "--value", "count", "--json") == 0
    score = own.log_score(frame[["site", "year"]], frame["count"], exposure=frame["hours"]).mean()
    assert json.loads(capsys.readouterr().out)["log_likelihood"] == pytest.approx(score, rel=1e-6)
    assert cli("score", model, path, "--exposure", "hours", "--value", "count") == 0
    odd = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert -odd["surprise"].mean() == pytest.approx(score, rel=1e-6)


REFUSED = [
    (["--exposure", "hours"], "--exposure is for counts"),
    (["--likelihood", "poisson", "--exposure", "time"], "time"),
    (["--likelihood", "poisson", "--exposure", "1", "--no-header"], "names a column"),
    (["--likelihood", "poisson", "--exposure", "hours", "--count"], "needs a column of counts"),
]


def test_cli_exposure_refusals(table, tmp_path, capsys):
    path, _ = table
    for args, told in REFUSED:
        assert cli("fit", path, "-o", tmp_path / "m.npz", *args) == 1, args
        assert told in capsys.readouterr().err


def test_cli_evaluate_needs_the_exposures_of_the_fit(table, tmp_path, capsys):
    path, _ = table
    how = ["--likelihood", "poisson", "--rank", 1, "--method", "vmp", "--max-iter", 5, "--value", "count"]
    assert cli("fit", path, "-o", tmp_path / "m.npz", *how, "--exposure", "hours") == 0
    assert cli("evaluate", tmp_path / "m.npz", path, "--value", "count") == 1
    assert "exposure" in capsys.readouterr().err


def test_cli_trials_are_the_estimators(table, tmp_path, capsys):
    path, frame = table
    frame = frame.assign(trials=frame["count"] + 2)
    frame.to_csv(path, index=False)
    model, how = tmp_path / "m.npz", ["--likelihood", "binomial", "--rank", 1, "--method", "vmp", "--max-iter", 5]
    columns = ["--modes", "site,year", "--value", "count", "--n-trials", "trials"]
    assert cli("fit", path, "-o", model, *how, *columns) == 0
    capsys.readouterr()
    assert cli("predict", model, path, "--n-trials", "trials") == 0
    found = pd.read_csv(io.StringIO(capsys.readouterr().out))
    wanted = load(model).predict(frame[["site", "year"]], n_trials=frame["trials"])
    np.testing.assert_allclose(found["mean"], wanted, rtol=1e-6)
    assert cli("fit", path, "-o", model, "--likelihood", "poisson", *columns) == 1
    assert "--n-trials is for --likelihood binomial" in capsys.readouterr().err


def test_cli_noise_is_the_estimators(table, tmp_path, capsys):
    path, _ = table
    model, how = tmp_path / "m.npz", ["--rank", 1, "--method", "vmp", "--max-iter", 5, "--value", "count"]
    for noise, wanted in (("site", "site"), ("1", "year"), ("entry", "entry"), ("one", "one")):
        assert cli("fit", path, "-o", model, *how, "--modes", "site,year", "--noise", noise) == 0
        assert load(model).noise_ == wanted
    assert cli("fit", path, "-o", model, *how, "--likelihood", "poisson", "--noise", "site") == 1
    assert "--noise is for real values" in capsys.readouterr().err
