"""Counts with structural zeros: the share is found, predictions are of both kinds, files, new rows, what is refused."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from helpers.cases import each

import tensorcep as tc
from tensorcep.cli.main import main
from tensorcep.methods import PGVB, VMP, PGGibbs

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")

SHAPE, N = (15, 12, 8), 900
METHODS = {
    "vmp": (VMP(n_starts=1), "poisson"),
    "vmp of dispersed": (VMP(n_starts=1), "negbinomial"),
    "pg-vb": (PGVB(n_starts=1), "negbinomial"),
    "pg-gibbs": (PGGibbs(n_chains=2), "negbinomial"),
}
EVERY = each("name", METHODS)


@cache
def simulated(share=0.3, dispersed=False, seed=0):
    """Coordinates and counts; those after the first N are for scores."""
    rng = np.random.default_rng(seed)
    X = np.argwhere(np.ones(SHAPE))[rng.permutation(np.prod(SHAPE))]
    f = sum(0.4 * rng.normal(size=n)[X[:, k]] for k, n in enumerate(SHAPE))
    rate = 4.0 * np.exp(f) * (rng.gamma(2.0, size=len(X)) / 2.0 if dispersed else 1.0)
    return X, np.where(rng.random(len(X)) < share, 0.0, rng.poisson(rate))


def new(name, **params):
    method, likelihood = METHODS[name]
    params = {"method": method, "likelihood": likelihood, "zero_inflation": True, "interactions": "main+cp", **params}
    params = {"max_iter": 60 if name == "pg-gibbs" else 40, **params}
    return tc.CPCountRegressor(1, random_state=0, n_jobs=1, **params)


@cache
def fitted(name, share=0.3, **params):
    X, y = simulated(share, METHODS[name][1] == "negbinomial")
    return new(name, **params).fit(X[:N], y[:N])


def test_what_no_method_can_is_refused_without_naming_another():
    with pytest.raises(ValueError, match=r"method 'vmp' draws no chains, as chain_diagnostics needs\.$"):
        fitted("vmp").chain_diagnostics(simulated()[0][:3])


@EVERY
def test_share_is_found_and_predictions_are_better_and_calibrated(name):
    X, y = (part[N:] for part in simulated(0.3, METHODS[name][1] == "negbinomial"))
    model = fitted(name)
    assert abs(model.zero_share_ - 0.3) < 0.06
    assert 0.008 < model.zero_share_std_ < 0.05
    gain = model.log_score(X, y).mean() - fitted(name, zero_inflation=False).log_score(X, y).mean()
    assert gain > (0.3 if name == "vmp" else 0.01)
    low, high = model.predict_interval(X, 0.9).T
    assert 0.87 < np.mean((low <= y) & (y <= high)) < 0.97
    mean, sd = model.predict(X, return_std=True)
    assert np.mean(mean) == pytest.approx(y.mean(), rel=0.1)
    drawn = model.sample_y(X[:200], 500, random_state=0)
    assert np.abs((drawn.mean(axis=0) - mean[:200]) / sd[:200]).max() < 7.0 / np.sqrt(500)
    assert model.anomaly_score(X[:5], np.zeros(5))["lower_tail"].min() > model.zero_share_ - 0.05


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in METHODS if name != "pg-gibbs"])
def test_counts_without_structural_zeros_are_predicted_as_before(name):
    gains = []
    for seed in range(4):
        X, y = simulated(0.0, METHODS[name][1] == "negbinomial", seed)
        with_zeros, without = (new(name, zero_inflation=asked).fit(X[:N], y[:N]) for asked in (True, False))
        assert with_zeros.zero_share_ < 0.05
        gains.append(with_zeros.log_score(X[N:], y[N:]).mean() - without.log_score(X[N:], y[N:]).mean())
    assert np.mean(gains) > -0.005


def test_bound_of_pg_vb_does_not_fall():
    X, y = simulated(0.3, True)
    bound = new("pg-vb", method=PGVB(anneal=0, n_starts=1), max_iter=30).fit(X[:N], y[:N]).trace_["lower_bound"]
    assert np.diff(bound).min() > -1e-7 * np.abs(bound).max()


@EVERY
def test_files_keep_it_and_threads_change_nothing(name, tmp_path):
    X, y = simulated(0.3, METHODS[name][1] == "negbinomial")
    model = fitted(name)
    path = tmp_path / "model.npz"
    model.save(path)
    loaded = tc.load(path)
    assert loaded.zero_inflation
    assert (loaded.zero_share_, loaded.dispersion_) == (model.zero_share_, model.dispersion_)
    np.testing.assert_array_equal(loaded.log_score(X[N:], y[N:]), model.log_score(X[N:], y[N:]))
    order = np.random.default_rng(0).permutation(N)
    other = new(name).set_params(n_jobs=2).fit(X[order], y[order])
    np.testing.assert_array_equal(other.predict(X), model.predict(X))


@EVERY
def test_new_rows_are_those_of_a_fit_that_knew_them(name):
    X, y = (part[:N] for part in simulated(0.3, METHODS[name][1] == "negbinomial"))
    last = X[:, 0] == SHAPE[0] - 1
    model = new(name).fit(X[~last], y[~last])
    rows = model.transform(X[last], y[last], mode=0)
    grown, whole = model.with_rows(rows), fitted(name)
    assert grown.shape_ == SHAPE
    at = simulated()[0][simulated()[0][:, 0] == SHAPE[0] - 1]
    assert np.abs(np.log(grown.predict(at) / whole.predict(at))).max() < 0.6
    if name == "pg-gibbs":  # what follows would take seconds
        return
    # zeros that are structural for sure say nothing
    many = np.concatenate([np.repeat(X[last][:1], 30, axis=0), X[last][y[last] > 0]])
    most = model.transform(many, np.concatenate([np.zeros(30), y[last][y[last] > 0]]), mode=0)
    positive = model.transform(X[last][y[last] > 0], y[last][y[last] > 0], mode=0)
    apart = [model.with_rows(part).predict(at).mean() for part in (most, positive)]
    assert apart[0] > 0.6 * apart[1]


def test_exposures_do_not_make_structural_zeros_rarer():
    X, y = simulated()
    exposure = np.where(X[:, 1] % 2 == 0, 1.0, 4.0)
    model = new("vmp").fit(X[:N], y[:N], exposure=exposure[:N])
    one, many = (np.exp(model.log_score(X[:50], np.zeros(50), exposure=e)) for e in (1.0, 1000.0))
    np.testing.assert_allclose(many, model.zero_share_, rtol=1e-3)
    assert (one > many).all()


def test_auto_learns_both_and_kept_dispersion_stays():
    X, y = simulated(0.3, True)
    model = tc.CPCountRegressor(zero_inflation=True, random_state=0, max_iter=30).fit(X[:N], y[:N])
    assert (model.method_, model.likelihood_) == ("vmp", "negbinomial")
    kept = new("pg-vb", dispersion=2.0, max_iter=15).fit(X[:N], y[:N])
    assert (kept.dispersion_, kept.dispersion_std_) == (2.0, None)
    assert 0.2 < kept.zero_share_ < 0.4
    assert fitted("vmp").dispersion_ is None
    assert fitted("vmp", zero_inflation=False).zero_share_ is None


def test_what_is_refused():
    X, y = simulated()
    for method in ("cep", "laplace", "wopt"):
        with pytest.raises(ValueError, match=r"zero_inflation=False\).*use one of the methods \['vmp'\]"):
            new("vmp", method=method).fit(X, y)
    for method in ("gibbs", "cep"):
        with pytest.raises(ValueError, match=r"\['vmp', 'pg-vb', 'pg-gibbs'\]"):
            new("pg-vb", method=method).fit(X, y)
    with pytest.raises(ValueError, match="is for likelihood='poisson' or 'negbinomial'"):
        new("vmp", likelihood="binomial").fit(X, y)
    with pytest.raises(ValueError, match="zero_inflation must be True or False"):
        new("vmp", zero_inflation="yes").fit(X, y)
    with pytest.raises(ValueError, match="whole numbers, .* with zero_inflation=True"):
        new("vmp").fit(X, y, sample_weight=np.full(len(y), 0.5))
    with pytest.raises(ValueError, match="one dispersion of all counts"):
        new("pg-vb", method=PGVB(dispersion_mode=0)).fit(X, y)
    with pytest.raises(ValueError, match="partial_fit learns no structural zeros"):
        new("vmp").partial_fit(X, y)
    with pytest.raises(ValueError, match="partial_fit learns no structural zeros"):
        fitted("vmp", max_iter=20).partial_fit(X, y)


def test_shell_fits_and_tells_the_share(tmp_path, capsys):
    X, y = simulated()
    data, model = str(tmp_path / "counts.tns"), str(tmp_path / "model.npz")
    tc.write_tensor(tc.SparseTensor(X[:N], y[:N], SHAPE), data)
    main(["fit", data, "-o", model, "--likelihood", "poisson", "--zero-inflation", "--rank", "1", "--max-iter", "30"])
    assert "% of the cells are 0 whatever their mean" in capsys.readouterr().out
    assert 0.2 < tc.load(model).zero_share_ < 0.4
    assert main(["fit", data, "-o", model, "--zero-inflation"]) == 1
    assert "--zero-inflation is for counts; got --likelihood gaussian" in capsys.readouterr().err
