"""Weights of entries: powers of their likelihoods; whole numbers are entries given so many times."""

from __future__ import annotations

from copy import copy

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.data import NAMES, SHAPE, entries, new

import tensorcep as tc
from tensorcep.core.random import new_stream, stream_key
from tensorcep.kernels.slots import LANES
from tensorcep.likelihoods.logit import LOGIT
from tensorcep.likelihoods.negbinomial import NEGBINOMIAL
from tensorcep.methods import CEP, PGVB, VMP, Gibbs, Laplace, PGGibbs

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")


def weighted(name, seed=0):
    """Entries, whole weights, and the entries as often as these say."""
    X, y = entries(name)
    w = np.random.default_rng(seed).integers(0, 4, len(y))
    return X, y, w, (np.repeat(X, w, axis=0), np.repeat(y, w))


@pytest.mark.parametrize("name", NAMES)
@each("method", ["cep", VMP(), Laplace()])
def test_whole_weights_are_entries_given_so_many_times(name, method):
    X, y, w, (many, values) = weighted(name)
    how = {"method": method, "shape": SHAPE, "max_iter": 10, "moments": "cavity", "damping": 0.5, "prior": "fixed"}
    how = how if method == "cep" else {k: how[k] for k in ("method", "shape", "max_iter", "prior")}
    make = new if method == "cep" else lambda name, **own: type(new(name))(2, random_state=0, n_jobs=1, **own)
    once, often = make(name, **how).fit(X, y, sample_weight=w), make(name, **how).fit(many, values)
    np.testing.assert_array_equal(once.posterior_.eta, often.posterior_.eta)
    assert once.n_samples_seen_ == w.sum()


def test_samplers_streams_tables_and_tensors_take_whole_weights():
    X, y, w, (many, values) = weighted("regressor")
    how = {"method": Gibbs(n_chains=1), "max_iter": 15, "random_state": 0, "interactions": "cp", "shape": SHAPE}
    pair = [tc.CPRegressor(2, **how).fit(X, y, sample_weight=w), tc.CPRegressor(2, **how).fit(many, values)]
    np.testing.assert_array_equal(*(model.predict(X) for model in pair))
    labels = pd.DataFrame(X).astype(str).set_axis(list("abc"), axis=1)
    tensor = tc.SparseTensor(X, y, SHAPE)
    for given, own in ((X, y), (labels, y), (tensor, None)):
        model = new("regressor", max_iter=20).partial_fit(given, own, sample_weight=w)
        assert model.n_samples_seen_ == w.sum()
        model.partial_fit(given, own, sample_weight=w)
        assert model.n_samples_seen_ == 2 * w.sum()


@each(
    ("name", "method", "params"),
    [
        ("regressor", VMP(), {}),
        ("regressor", VMP(), {"interactions": {"main": 1, "pair": 1, "cp": 2}, "prior": "learned"}),
        ("regressor", VMP(), {"lower_limit": 0.5}),
        ("classifier", VMP(), {"link": "probit"}),
        ("classifier", PGVB(), {}),
        ("counts", VMP(), {"likelihood": "poisson"}),
    ],
)
def test_mean_field_takes_any_weights(name, method, params):
    """Every entry twice with half the weight is every entry once; the bound is that of this model."""
    X, y = entries(name)
    how = {"interactions": "cp", "prior": "fixed", "method": method, "random_state": 0, "max_iter": 15, "tol": 0.0}
    how |= {"prior_scale": 1.0, "shape": SHAPE, "n_jobs": 1, **params}
    start = [np.random.default_rng(3).random((n, 8 if "pair" in str(params) else 2)) for n in SHAPE]
    once = type(new(name))(2, init=start, **how).fit(X, y)
    half = np.full(2 * len(y), 0.5)
    twice = type(new(name))(2, init=start, **how).fit(np.repeat(X, 2, axis=0), np.repeat(y, 2), sample_weight=half)
    np.testing.assert_allclose(twice.predict_latent(X)[0], once.predict_latent(X)[0], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(twice.predict_latent(X)[1], once.predict_latent(X)[1], rtol=1e-6)
    bounds = once.trace_["lower_bound"]
    np.testing.assert_allclose(twice.trace_["lower_bound"], bounds, rtol=1e-8)
    if name == "regressor" and not params:
        np.testing.assert_allclose(twice.noise_precision_, once.noise_precision_, rtol=1e-9)
        assert (np.diff(bounds[np.isfinite(bounds)]) > -1e-8 * np.abs(bounds[-1])).all()


@pytest.mark.parametrize("name", NAMES)
@each("method", ["cep", "averaged", "laplace", "wopt"])
def test_any_weight_counts_as_so_many_entries(name, method):
    """Beside a weight of 1.5 (and of 0.3) whole weights are entries given so many times, to rounding."""
    X, y, w, _ = weighted(name)
    w = np.where(np.arange(len(y)) % 7 == 0, 1.5, np.where(np.arange(len(y)) % 7 == 1, 0.3, w))
    often = np.where(w == np.rint(w), w, 1).astype(int)
    many = np.repeat(X, often, axis=0), np.repeat(y, often)
    single = np.repeat(np.where(w == np.rint(w), 1.0, w), often)
    how = {"interactions": "cp", "prior": "fixed", "shape": SHAPE, "max_iter": 8, "tol": 0.0, "random_state": 0}
    first = {"n_starts": 1, "message_noise": (0.5, 0.5)}
    engines = {"cep": CEP(**first), "averaged": CEP(messages="averaged", **first), "laplace": Laplace(n_starts=1)}
    how |= {"method": engines.get(method, "wopt"), "n_jobs": 1, "prior_scale": 1.0}
    how |= {"init": [np.random.default_rng(3).random((n, 2)) for n in SHAPE]}
    real = {"fit_intercept": False, "noise_prior": (1.0, 1.0), "lower_limit": None}  # not from the values
    how |= {"counts": {"likelihood": "poisson"}, "classifier": {"link": "probit"}, "regressor": real}[name]
    once = type(new(name))(2, **how).fit(X, y, sample_weight=w)
    other = type(new(name))(2, **how).fit(*many, sample_weight=single)
    plain = type(new(name))(2, **how).fit(X, y)
    wide = 1e-6 if method != "wopt" else 0.02
    np.testing.assert_allclose(once.predict_latent(X)[0], other.predict_latent(X)[0], rtol=wide, atol=wide)
    assert np.abs(plain.predict_latent(X)[0] - once.predict_latent(X)[0]).max() > 1e-2


def test_gibbs_takes_powers_of_densities():
    """The same draws from entries given twice with half the weight, but for rounding."""
    X, y = entries("regressor")
    for parts, n_columns in (("cp", 2), ({"main": 1, "pair": 1, "cp": 2}, 8)):
        how = {
            "method": Gibbs(n_chains=1, burn_in=2, noise="sampled"),
            "max_iter": 12,
            "random_state": 0,
            "interactions": parts,
        }
        how |= {"shape": SHAPE, "prior": "fixed", "lower_limit": None, "fit_intercept": False}
        how["init"] = [np.random.default_rng(3).random((n, n_columns)) for n in SHAPE]  # no pilots
        once = tc.CPRegressor(2, **how).fit(X, y)
        half = np.full(2 * len(y), 0.5)
        twice = tc.CPRegressor(2, **how).fit(np.repeat(X, 2, axis=0), np.repeat(y, 2), sample_weight=half)
        np.testing.assert_allclose(twice.posterior_.theta, once.posterior_.theta, rtol=1e-6)
        np.testing.assert_allclose(twice.predict(X), once.predict(X), rtol=1e-6, atol=1e-9)
    limited = tc.CPRegressor(2, **how | {"lower_limit": 0.5})
    with pytest.raises(
        ValueError, match="method 'gibbs' cannot take weights of 'tobit' entries that are no whole numbers; use whole"
    ):
        limited.fit(X, np.maximum(y, 0.5), sample_weight=np.full(len(y), 0.5))


def test_polya_gamma_samplers_take_powers_of_likelihoods():
    """exp(w log p(y | f)) is exp(w kappa f) / (2 cosh(f / 2))^(w b): PG(w b, f) variables."""
    n, s = 4000, new_stream()
    shape = (n, LANES)
    y, used, f, theta = (np.full(shape, value) for value in (1.0, 0.7, 1.3, 2.5))
    weight, target = np.zeros(shape), np.zeros(shape)
    for likelihood, b, kappa in ((LOGIT, 1.0, 0.5), (NEGBINOMIAL, 3.5, -0.75)):
        likelihood.pg.drawn(0, n, y, used, f, theta, stream_key(0, 0, 0, 1), weight, target, s)
        spread = 6.0 * weight.std() / np.sqrt(weight.size)
        np.testing.assert_allclose(weight.mean(), 0.7 * b * np.tanh(0.65) / 2.6, atol=spread)
        np.testing.assert_allclose(target, 0.7 * kappa)
    X, y = entries("classifier")
    how = {"method": PGGibbs(n_chains=1), "max_iter": 400, "interactions": "cp", "prior": "fixed", "shape": SHAPE}
    some = np.where(np.arange(len(y)) < len(y) // 2, 0.25, 1.0)
    light = tc.CPClassifier(1, random_state=0, **how).fit(X, y, sample_weight=some)
    exact = tc.CPClassifier(1, random_state=0, **how | {"method": PGVB()}).fit(X, y, sample_weight=some)
    assert np.corrcoef(light.predict_latent(X)[0], exact.predict_latent(X)[0])[0, 1] > 0.9


def test_weights_that_mean_nothing_are_refused():
    X, y = entries("regressor")
    wrong = {
        "sample_weight must be >= 0 and not all 0; got a minimum of -1": np.full(len(y), -1),
        "sample_weight must": np.full(len(y), np.nan),
        "of which there may be": np.full(len(y), 1e9),
    }
    for message, w in wrong.items():
        with pytest.raises(ValueError, match=message):
            new("regressor").fit(X, y, sample_weight=w)
    counts = tc.CPCountRegressor(2, method="vmp", likelihood="negbinomial")
    with pytest.raises(ValueError, match="whole numbers, .* where a dispersion is learned"):
        counts.fit(*entries("counts"), sample_weight=np.full(len(y), 0.5))


WILD_SHAPE = (10, 8, 7)


def with_wild(kind, value, weight, rest):
    """Entries of which every ninth is wild and weighs next to nothing, their weights, which are wild; other cells."""
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((n, 2)) for n in WILD_SHAPE]
    cells = rng.permutation(np.stack(np.unravel_index(np.arange(560), WILD_SHAPE), axis=1))
    f = np.einsum("nr,nr,nr->n", *(own[at] for own, at in zip(rows, cells.T, strict=True)))
    y = {
        "real": f + 0.15 * rng.standard_normal(560),
        "labels": (rng.random(560) < 1.0 / (1.0 + np.exp(-2.5 * f))).astype(float),
        "counts": rng.poisson(np.exp(1.0 + 0.6 * f)).astype(float),
        "levels": np.searchsorted([-1.0, 0.0, 1.0], f + 0.4 * rng.standard_normal(560)).astype(float),
    }[kind]
    X, wild = cells[:300], np.arange(300) % 9 == 0
    turned = {"labels": 1.0 - y[:300], "levels": 3.0 - y[:300]}.get(kind, value)
    return X, np.where(wild, turned, y[:300]), np.where(wild, weight, rest), wild, (cells[300:], y[300:])


ESTIMATORS = {
    "real": tc.CPRegressor,
    "labels": tc.CPClassifier,
    "counts": tc.CPCountRegressor,
    "levels": tc.CPOrdinalClassifier,
}


# Kind, method, wild value and its weight, and the weight of the others.
WILD = [
    ("real", "vmp", 30.0, 1e-6, 0.5),
    ("real", "cep", 1e6, 1e-15, 0.999999999),
    ("labels", "pg-vb", 0.0, 1e-6, 0.999999999),
    ("counts", "vmp", 1e6, 1e-15, 0.999999999),
    ("levels", "vmp", 0.0, 1e-9, 0.999999999),
]
MORE_WILD = [
    ("real", "vmp", 1e6, 1e-15, 0.999999999),
    ("real", "laplace", 30.0, 1e-6, 0.999999999),
    ("real", "wopt", 1e6, 1e-18, 0.999999999),  # a sum of squares still knows 30 times 1e-3
    ("real", Gibbs(n_chains=2), 1e6, 1e-15, 0.999999999),
    ("real", Gibbs(n_chains=2), 30.0, 1e-6, 0.5),
    ("labels", "cep", 0.0, 1e-6, 0.999999999),
    ("labels", PGGibbs(n_chains=2), 0.0, 1e-6, 0.999999999),
    ("counts", "laplace", 30.0, 1e-6, 0.999999999),
]


@pytest.mark.parametrize("cases", [WILD, pytest.param(MORE_WILD, marks=pytest.mark.slow)], ids=["some", "more"])
def test_entries_whose_weight_goes_to_0_are_absent(cases):
    """They move neither level, scale and noise, nor starts and trials."""
    for kind, method, value, weight, rest in cases:
        X, y, w, wild, other = with_wild(kind, value, weight, rest)
        how = {"method": method, "shape": WILD_SHAPE, "max_iter": 40, "random_state": 0, "n_jobs": 1}
        how |= {"likelihood": "poisson"} if kind == "counts" else {}
        light = ESTIMATORS[kind](2, **how).fit(X, y, sample_weight=w)
        absent = ESTIMATORS[kind](2, **how).fit(X[~wild], y[~wild], sample_weight=w[~wild])
        assert getattr(light, "level_", 0.0) == pytest.approx(getattr(absent, "level_", 0.0), abs=1e-4)
        if method == "wopt":
            np.testing.assert_allclose(light.predict(other[0]), absent.predict(other[0]), rtol=1e-3, atol=1e-3)
            continue
        scores = [-model.log_score(*other).mean() for model in (light, absent)]
        assert scores[0] == pytest.approx(scores[1], rel=0.02, abs=0.02), (kind, method)


@pytest.mark.parametrize(
    "kind", ["real", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("labels", "counts"))]
)
def test_streams_take_entries_whose_weight_goes_to_0_for_absent(kind):
    X, y, w, wild, other = with_wild(kind, 30.0, 1e-6, 0.999999999)
    how = {"shape": WILD_SHAPE, "random_state": 0, **({"likelihood": "poisson"} if kind == "counts" else {})}
    models = ESTIMATORS[kind](2, **how), ESTIMATORS[kind](2, **how)
    for batch in np.array_split(np.arange(len(y)), 3):
        some = batch[~wild[batch]]
        models[0].partial_fit(X[batch], y[batch], sample_weight=w[batch])
        models[1].partial_fit(X[some], y[some])
    scores = [-model.log_score(*other).mean() for model in models]
    assert scores[0] == pytest.approx(scores[1], rel=0.02)
    light = np.flatnonzero(wild)  # a batch of these alone
    models[0].partial_fit(X[light], y[light], sample_weight=w[light])
    assert -models[0].log_score(*other).mean() == pytest.approx(scores[0], rel=0.02)


def test_equal_weights_near_one_are_a_fit_without_weights():
    """All of it by any method: hold-outs, trials, pilots and starts are the same, too."""
    X, y, *_, other = with_wild("real", 0.0, 1.0, 1.0)
    for method in ("cep", Gibbs(n_chains=2)):
        how = {"method": method, "shape": WILD_SHAPE, "max_iter": 30, "random_state": 0, "n_jobs": 1}
        plain = tc.CPRegressor(2, **how).fit(X, y)
        near = tc.CPRegressor(2, **how).fit(X, y, sample_weight=np.full(len(y), 1.0 - 1e-12))
        np.testing.assert_allclose(near.predict(other[0]), plain.predict(other[0]), rtol=1e-5, atol=1e-6)
        assert near.diagnostics_.n_held_out == plain.diagnostics_.n_held_out


def test_level_is_the_weighted_mean():
    X, y, *_ = with_wild("real", 0.0, 1.0, 1.0)
    light = X[:, 0] < 4
    y, w = np.where(light, y + 10.0, y), np.where(light, 0.01, 0.999)
    model = tc.CPRegressor(2, method="vmp", max_iter=5, random_state=0).fit(X, y, sample_weight=w)
    assert model.level_ == pytest.approx(np.average(y, weights=w))


def test_exposures_count_in_units_of_their_weighted_mean():
    X, y, w, wild, other = with_wild("counts", 1e6, 1e-15, 0.999999999)
    exposure = np.where(wild, 1e9, 1.0 + np.arange(len(y)) % 3)
    model = tc.CPCountRegressor(1, method="vmp", likelihood="poisson", max_iter=20, random_state=0)
    light = copy(model).fit(X, y, sample_weight=w, exposure=exposure)
    absent = copy(model).fit(X[~wild], y[~wild], exposure=exposure[~wild])
    np.testing.assert_allclose(light.predict(other[0]), absent.predict(other[0]), rtol=0.01)
