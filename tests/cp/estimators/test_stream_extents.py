"""Exposures and numbers of trials in streams: identities, tables and files, checkpoints, what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from scipy import stats

import tensorcep as tc
from tensorcep.cli.main import main
from tensorcep.cp.calibration.prequential import LogDispersion, Standing
from tensorcep.likelihoods import get_likelihood
from tensorcep.methods import CEP, VMP

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")

SHAPE, N = (9, 8, 5), 320
METHODS = {"cep": (CEP(n_starts=1), "poisson"), "vmp": (VMP(n_starts=1), "negbinomial")}
EVERY = each("name", METHODS)
COLUMNS = ["site", "kind", "year"]


def simulated(trials=False):
    """Coordinates, counts, exposures or trials, and latent values."""
    rng = np.random.default_rng(1)
    X = np.argwhere(np.ones(SHAPE))[rng.permutation(np.prod(SHAPE))[:N]]
    rows = [rng.normal(0.7, 0.9 if trials else 0.4, (n, 2))[column] for n, column in zip(SHAPE, X.T, strict=True)]
    f = np.prod(rows, axis=0).sum(axis=1)
    if trials:
        extent = rng.integers(1, 12, N).astype(float)
        return X, rng.binomial(extent.astype(int), 1.0 / (1.0 + np.exp(-f))).astype(float), extent, f
    extent = 2.0 ** rng.integers(-2, 4, N)
    return X, rng.poisson(extent * np.exp(f)).astype(float), extent, f


def new(name, **params):
    method, likelihood = METHODS[name]
    params = {
        "method": method,
        "likelihood": likelihood,
        "prior": "fixed",
        "interactions": "cp",
        "max_iter": 15,
        **params,
    }
    return tc.CPCountRegressor(2, random_state=0, n_jobs=1, **params)


def learned(model, X, y, size=80, **extents):
    for a in range(0, N, size):
        part = slice(a, a + size)
        model.partial_fit(X[part], y[part], **{name: values[part] for name, values in extents.items()})
    return model


def table():
    X, y, exposure, _ = simulated()
    return pd.DataFrame(X, columns=COLUMNS).astype(str).assign(hours=exposure, count=y)


@EVERY
def test_equal_exposures_change_nothing_and_all_may_count_in_any_unit(name):
    X, y, exposure, _ = simulated()
    plain, equal = learned(new(name), X, y), learned(new(name), X, y, exposure=np.full(N, 4.0))
    np.testing.assert_array_equal(plain.predict(X), equal.predict(X, exposure=4.0))
    one, other = (learned(new(name), X, y, exposure=by * exposure) for by in (1.0, 8.0))
    np.testing.assert_array_equal(one.predict(X, exposure=exposure), other.predict(X, exposure=8.0 * exposure))
    first = new(name).partial_fit(X[:80], y[:80], exposure=exposure[:80])
    whole = new(name).fit(X[:80], y[:80], exposure=exposure[:80])
    np.testing.assert_array_equal(first.predict(X[:80]), whole.predict(X[:80]))


@EVERY
def test_rates_are_found_and_batches_are_scored_at_their_exposure(name):
    X, y, exposure, f = simulated()
    model = new(name)
    for a in range(0, 240, 80):
        model.partial_fit(X[a : a + 80], y[a : a + 80], exposure=exposure[a : a + 80])
    untold = learned(new(name), X, y)
    assert np.std(model.predict_latent(X)[0] - f) < 0.4 < np.std(untold.predict_latent(X)[0] - f)
    before = model.log_score(X[240:], y[240:], exposure=exposure[240:]).mean()
    frame = pd.DataFrame(X[240:]).assign(hours=exposure[240:], count=y[240:])
    batch = frame.rename(columns={k: f"mode_{k}" for k in range(3)})
    model.stream(batch, modes=[f"mode_{k}" for k in range(3)], value="count", exposure="hours", batch_size=80)
    assert model.stream_trace_["log_score"][0] == pytest.approx(before, rel=1e-9)
    assert model.n_samples_seen_ == N


def test_tables_files_and_arrays_give_the_same_bits_and_so_do_checkpoints(tmp_path):
    frame, path = table(), tmp_path / "counts.csv"
    frame.to_csv(path, index=False)
    X, (y, exposure) = frame[COLUMNS], (frame[name].to_numpy() for name in ("count", "hours"))
    arrays = learned(new("vmp"), X, y, exposure=exposure)
    how = {"modes": COLUMNS, "value": "count", "exposure": "hours", "batch_size": 80}
    of_table, of_file = new("vmp").stream(frame, **how), new("vmp").stream(path, **how)
    cells = frame.drop(columns="count")
    for other in (of_table, of_file):
        np.testing.assert_array_equal(other.predict(X, exposure=exposure), arrays.predict(X, exposure=exposure))
        np.testing.assert_array_equal(other.predict(cells), arrays.predict(X, exposure=exposure))
    half = new("vmp").stream(frame[:160], **how)
    half.save(tmp_path / "half.npz")
    resumed = tc.load(tmp_path / "half.npz").stream(frame[160:], **how)
    np.testing.assert_array_equal(resumed.posterior_.eta, of_table.posterior_.eta)
    assert resumed.predict(cells).tolist() == of_table.predict(cells).tolist()


def test_a_stream_that_chooses_its_prior_keeps_the_exposures_of_its_beginning(tmp_path):
    X, y, exposure, f = simulated()
    how = {"prior": "auto", "interactions": "auto", "max_iter": 10}
    model = learned(new("vmp", **how), X, y, size=160, exposure=exposure)
    kept = model._result.stream.kept
    np.testing.assert_allclose(kept.extent, exposure / exposure[:160].mean())
    model.save(tmp_path / "m.npz")
    np.testing.assert_array_equal(tc.load(tmp_path / "m.npz")._result.stream.kept.extent, kept.extent)
    assert np.std(model.predict_latent(X)[0] - f) < 0.4
    # a constant rate, not a constant count, is what the stream is held against
    standing = model._result.stream.standing
    assert standing.extent == pytest.approx(kept.extent.sum())
    assert standing.mean == pytest.approx(y.sum() / kept.extent.sum())
    left = model.forget_entries(X[:5])
    assert len(left._result.stream.kept.extent) == N - 5


@EVERY
def test_counts_before_the_first_exposures_were_those_of_an_exposure_of_one(name):
    X, y, exposure, _ = simulated()
    before, told = new(name).partial_fit(X[:80], y[:80]), new(name).partial_fit(X[:80], y[:80], exposure=1.0)
    for one in (before, told):
        one.partial_fit(X[80:], y[80:], exposure=exposure[80:])
    np.testing.assert_array_equal(before.predict(X, exposure=2.0), told.predict(X, exposure=2.0))


def test_binomial_counts_are_learned_from_streams():
    X, y, trials, f = simulated(trials=True)
    model = learned(new("cep", likelihood="binomial", max_iter=30), X, y, size=160, n_trials=trials)
    p = 1.0 / (1.0 + np.exp(-f))
    assert np.sqrt(np.mean((model.predict(X) - p) ** 2)) < 0.7 * np.std(p)
    assert model.predict(X, n_trials=trials) == pytest.approx(trials * model.predict(X))
    assert not model._result.stream.standing.is_doubtful
    with pytest.raises(ValueError, match="at most their number of trials"):
        model.partial_fit(X[:2], [3.0, 1.0], n_trials=[2, 2])
    once = new("cep", likelihood="binomial").partial_fit(X, np.minimum(y, 1.0))
    once.partial_fit(X[:40], np.minimum(y[:40], 1.0))
    assert once.predict(X).max() < 1.0


def test_constant_that_a_stream_is_held_against_is_a_rate():
    y, extent = np.array([0.0, 3.0, 5.0]), np.array([4.0, 6.0, 5.0])
    r, known = np.exp(0.3), LogDispersion(0.3, 1.0)
    laws = {
        "binomial": stats.binom(extent, 0.6),
        "poisson": stats.poisson(0.6 * extent),
        "negbinomial": stats.nbinom(r, r / (r + 0.6 * extent)),
    }
    for name, law in laws.items():
        found = Standing(mean=0.6, seen=100, dispersion=known).constant(get_likelihood(name), y, extent)
        np.testing.assert_allclose(found, law.logpmf(y), rtol=1e-8)


def test_going_on_from_a_fit_with_exposures_keeps_the_unit():
    X, y, exposure, _ = simulated()
    model = new("vmp").fit(X[:200], y[:200], exposure=exposure[:200])
    unit, rate = model._result.observation.extent_unit, model.predict(X[:200])
    model.partial_fit(X[200:], y[200:], exposure=exposure[200:])
    assert model._result.observation.extent_unit == unit
    assert np.abs(np.log(model.predict(X[:200]) / rate)).max() < 1.0


def test_what_is_refused(tmp_path):
    X, y, exposure, _ = simulated()
    model = new("cep").partial_fit(X[:80], y[:80], exposure=exposure[:80])
    before = model.posterior_.eta.copy()
    with pytest.raises(ValueError, match="earlier counts had exposure="):
        model.partial_fit(X[80:], y[80:])
    with pytest.raises(ValueError, match="above 0"):
        model.partial_fit(X[80:], y[80:], exposure=0.0)
    with pytest.raises(ValueError, match="n_trials is for"):
        model.partial_fit(X[80:], y[80:], n_trials=2)
    with pytest.raises(ValueError, match="one of DataFrames or files"):
        model.stream([(X[80:], y[80:])], exposure="hours")
    with pytest.raises(ValueError, match="is the name of a column"):
        model.stream(table(), exposure=exposure)
    path = str(tmp_path / "counts.csv")
    table().to_csv(path, index=False)
    with pytest.raises(ValueError, match="'hours' is a mode or the value already; name another"):
        new("cep").stream(path, exposure="hours", value="hours")
    np.testing.assert_array_equal(model.posterior_.eta, before)
    with pytest.raises(ValueError, match="revisit= holds entries without exposures"):
        new("cep", revisit=10).partial_fit(X, y, exposure=exposure)
    with pytest.raises(TypeError, match="CPRegressor.stream takes no exposure"):
        tc.CPRegressor(2).stream(table(), exposure="hours")


def test_shell_streams_with_exposures_and_resumes(tmp_path, capsys):
    path, whole, part = (str(tmp_path / name) for name in ("counts.csv", "whole.npz", "part.npz"))
    table().to_csv(path, index=False)
    options = ["--likelihood", "poisson", "--method", "vmp", "--rank", "2", "--batch-size", "80", "--max-iter", "10"]
    options += [
        "--modes",
        ",".join(COLUMNS),
        "--value",
        "count",
        "--exposure",
        "hours",
        "--checkpoint-every",
        "1",
        "-q",
    ]
    assert main(["stream", path, "-o", whole, *options]) == 0
    table()[:160].to_csv(path, index=False)
    assert main(["stream", path, "-o", part, *options]) == 0
    table().to_csv(path, index=False)
    assert main(["stream", path, "-o", part, *options, "--resume"]) == 0
    np.testing.assert_array_equal(tc.load(part).posterior_.eta, tc.load(whole).posterior_.eta)
    without = [option for option in options if option not in ("--exposure", "hours")]
    assert main(["stream", path, "-o", part, *without, "--resume"]) == 1
    assert "was made with the column 'hours'" in capsys.readouterr().err
