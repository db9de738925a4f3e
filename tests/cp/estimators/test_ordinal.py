"""CPOrdinalClassifier: labels of any kind, predictions that belong together, every method, files, what is refused."""

from __future__ import annotations

import contextlib
import inspect
import json
from functools import cache

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.short import CUT_SHORT
from sklearn.base import clone, is_classifier
from sklearn.utils import estimator_checks as checks

import tensorcep as tc
from tensorcep.cp.targets.levels import classes_of, coded
from tensorcep.methods import CEP, Gibbs, Laplace

SHAPE = (14, 9, 4)
TRUE = np.array([0.0, 0.9, 2.0])
METHODS = {
    "gibbs": Gibbs(n_chains=2, burn_in=15),
    "vmp": "vmp",
    "cep": CEP(n_ensemble=1),
    "laplace": Laplace(n_ensemble=1),
}
EVERY = each("method", METHODS)
UNLIKE = pytest.mark.filterwarnings(
    "ignore:the draws of 'gibbs' do not agree"
)  # few sweeps; factors_ are not asked for
pytestmark = [CUT_SHORT, pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")]


@cache
def data():
    """Coordinates (400, 3) and levels 0 to 3."""
    rng = np.random.default_rng(7)
    cells = rng.choice(int(np.prod(SHAPE)), 400, replace=False)
    X = np.stack(np.unravel_index(cells, SHAPE), axis=1)
    f = 0.6 + rng.normal(size=14)[X[:, 0]] + 0.8 * rng.normal(size=9)[X[:, 1]]
    return X, np.searchsorted(TRUE, f + rng.standard_normal(400))


@cache
def latent():
    """Few coordinates (300, 3), and latent values: of some levels of them fits beside the chains alone have draws."""
    rng = np.random.default_rng(0)
    X = np.stack([rng.integers(0, n, 300) for n in (10, 8, 7)], axis=1)
    factors = [rng.normal(size=(n, 2)) for n in (10, 8, 7)]
    rows = np.prod([own[at] for own, at in zip(factors, X.T, strict=True)], axis=0)
    return X, 2.0 * rows.sum(axis=1) + rng.normal(size=300)


def new(method="vmp", **params):
    given = {"rank": 1, "interactions": "main+cp", "max_iter": 40, "tol": 1e-2, "random_state": 0, "shape": SHAPE}
    return tc.CPOrdinalClassifier(
        **{**given, "method": METHODS.get(method, method) if isinstance(method, str) else method, **params}
    )


@cache
def fitted(method="vmp"):
    """A model of all data, shared: do not change it."""
    return new(method).fit(*data())


@each(
    "check",
    [
        checks.check_estimator_cloneable,
        checks.check_estimator_tags_renamed,
        checks.check_estimator_repr,
        checks.check_no_attributes_set_in_init,
        checks.check_parameters_default_constructible,
        checks.check_get_params_invariance,
        checks.check_set_params,
        checks.check_valid_tag_types,
        checks.check_mixin_order,
    ],
)
def test_ordinal_passes_scikit_learns_check(check):
    check("CPOrdinalClassifier", tc.CPOrdinalClassifier())


def test_ordinal_is_a_classifier_and_documents_its_parameters():
    model = tc.CPOrdinalClassifier()
    assert is_classifier(model)
    doc = tc.CPOrdinalClassifier.__doc__
    assert doc is not None
    assert all(f"\n{name} : " in inspect.cleandoc(doc) for name in model.get_params())


@EVERY
def test_every_method_learns_levels_and_thresholds(method):
    X, y = data()
    model = fitted(method)
    p = model.predict_proba(X)
    assert p.shape == (400, 4)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    score, constant = model.log_score(X, y), np.log(np.bincount(y) / 400.0)[y]
    np.testing.assert_allclose(score, np.log(p[np.arange(400), y]), atol=1e-8)
    assert score.mean() > constant.mean() + 0.15
    assert model.thresholds_[0] == 0.0
    np.testing.assert_allclose(model.thresholds_, TRUE, atol=0.5)
    assert (np.diff(model.thresholds_std_) > 0.0).all()
    assert model.thresholds_std_[-1] < 0.4
    assert model.diagnostics_.score > model.diagnostics_.constant_score
    assert model.diagnostics_.method == model.method_


def test_default_method_is_the_sampler_and_cep_for_the_logit():
    X, y = data()
    assert new("auto", max_iter=12).fit(X[:150], y[:150]).method_ == "gibbs"
    logit = new("auto", link="logit", max_iter=3).fit(X[:150], y[:150])
    assert (logit.method_, logit.link_) == ("cep", "logit")


@each("method", ["cep", "laplace"])
def test_logistic_noise_is_wider_than_normal_noise(method):
    X, y = data()
    model = new(method, link="logit").fit(X, y)
    ratio = model.thresholds_[1:] / fitted(method).thresholds_[1:]
    assert ((ratio > 1.3) & (ratio < 2.3)).all()
    assert np.abs(model.predict_proba(X) - fitted(method).predict_proba(X)).mean() < 0.08


@EVERY
def test_two_levels_are_the_classifier(method):
    X, y = data()
    label = (y > 1).astype(float)
    settled = {"max_iter": 400} if method == "gibbs" else {"tol": 1e-9, "max_iter": 500}
    model = new(method, prior="fixed", prior_mean=0.0, prior_scale=1.0, **settled).fit(X, label)
    given = model.get_params(deep=False)
    del given["link"]
    other = tc.CPClassifier(**given, link="probit").fit(X, label)
    assert model.thresholds_.tolist() == model.thresholds_std_.tolist() == [0.0]
    if method == "gibbs":  # another way to the same draws: the law is the same, not the random numbers
        np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(X), atol=0.2)
        return
    np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(X), rtol=1e-6, atol=1e-8)


def test_expected_value_interval_and_draws_are_those_of_the_probabilities():
    X, y = data()
    model, stars = new().fit(X, y + 1.0), np.arange(1.0, 5.0)
    p = model.predict_proba(X)
    mean, sd = model.expected_value(X, return_std=True)
    np.testing.assert_allclose(mean, p @ stars, rtol=1e-10)
    np.testing.assert_allclose(sd**2, p @ stars**2 - mean**2, rtol=1e-6)
    np.testing.assert_array_equal(model.predict(X, by="mean"), mean)
    np.testing.assert_array_equal(model.predict(X), stars[p.argmax(axis=1)])
    lower, upper = model.predict_interval(X, 0.8).T
    cdf = np.cumsum(p, axis=1)
    np.testing.assert_array_equal(lower, stars[(cdf < 0.1).sum(axis=1)])
    np.testing.assert_array_equal(upper, stars[(cdf < 0.9).sum(axis=1)])
    drawn = model.sample_y(X[:20], 3000, random_state=0)
    np.testing.assert_allclose(drawn.mean(axis=0), mean[:20], atol=6.0 * sd[:20].max() / np.sqrt(3000) + 0.05)
    assert model.score(X, y + 1.0) == (model.predict(X) == y + 1.0).mean()


def test_rows_without_entries_have_the_probabilities_of_the_prior():
    X, y = data()
    with pytest.warns(UserWarning, match="their prior is used"):
        p = new(shape=None).fit(X[X[:, 0] < 13], y[X[:, 0] < 13]).predict_proba([[40, 0, 0]])
    np.testing.assert_allclose(p.sum(), 1.0)


@pytest.mark.filterwarnings("ignore:.*their prior is used")
def test_later_times_have_probabilities_of_their_forecast():
    X, y = data()
    frame = pd.DataFrame(X, columns=["user", "item", "day"])
    model = new(prior={"day": tc.Series()}, shape=None).fit(frame, y)
    later = frame.head(5).assign(day=[SHAPE[2] + 2, SHAPE[2] + 3, 0, SHAPE[2], 1])
    expected = model.predict_proba(later) @ model.classes_
    np.testing.assert_allclose(expected, model.expected_value(later), rtol=1e-12)


KINDS = {
    "text": np.array(["a", "b", "c", "d"]),
    "numbers": np.array([-2, 0, 5, 9]),
    "halves": np.array([0.5, 1.0, 1.5, 2.5]),
}


@each("kind", KINDS)
def test_levels_of_any_kind_are_learned_in_their_order(kind, tmp_path):
    X, y = data()
    alphabet = pytest.warns(UserWarning, match="that of the alphabet, a < b < c < d; give y as an ordered Categorical")
    with alphabet if kind == "text" else contextlib.nullcontext():
        model, plain = new().fit(X, KINDS[kind][y]), fitted()
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    np.testing.assert_array_equal(model.predict(X), KINDS[kind][plain.predict(X)])
    np.testing.assert_array_equal(model.log_score(X, KINDS[kind][y]), plain.log_score(X, y))
    assert model.score(X, KINDS[kind][y]) == plain.score(X, y)
    assert model.classes_.tolist() == KINDS[kind].tolist()
    model.save(tmp_path / "m.npz")
    again = tc.load(tmp_path / "m.npz")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.classes_.dtype == model.classes_.dtype


def test_a_categorical_has_its_own_order_and_levels_without_entries():
    X, y = data()
    words = ["never", "seldom", "often", "always", "for ever"]
    column = pd.Categorical.from_codes(y, words, ordered=True)
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "answer": column})
    model = new(shape=None).fit(table, value="answer")
    assert model.classes_.tolist() == words
    np.testing.assert_allclose(model.predict_proba(table[["a", "b", "c"]])[:, -1], 0.0, atol=0.1)
    assert model.score(table[["a", "b", "c"]], column) > 0.4
    with pytest.raises(TypeError, match="levels must be numbers to have a mean; got text"):
        model.expected_value(table[["a", "b", "c"]])
    tensor = tc.SparseTensor(X, y.astype(float), SHAPE)
    np.testing.assert_array_equal(new().fit(tensor).predict_proba(X), fitted().predict_proba(X))


def test_coding_of_levels():
    assert classes_of(np.array([3, 1, 2, 3])) == [1, 2, 3]
    np.testing.assert_array_equal(coded(["b", "a"], ["a", "b"]), [1.0, 0.0])
    with pytest.raises(ValueError, match="y must hold 2 to 20 different levels; got 1, such as 4"):
        classes_of([4, 4])
    with pytest.raises(ValueError, match="got 30, such as 0, 1, 2; use CPRegressor"):
        classes_of(np.arange(30))
    with pytest.raises(ValueError, match="y must hold the levels 1, 2; got 7 at entry 1"):
        coded([1, 7], [1, 2])


def _stop(sweep, *_):
    return sweep == 20


ENDINGS = {
    "gibbs that ends early": {"method": "gibbs", "max_iter": 30},
    "gibbs": {"method": "gibbs", "max_iter": 60},
    "gibbs stopped by a callback": {"method": "gibbs", "max_iter": 60, "callbacks": _stop},
    "cep": {"method": "cep", "max_iter": 10},
    "vmp": {"method": "vmp", "max_iter": 10},
}


@UNLIKE
@each("ending", ENDINGS)
@each("n_levels", [3, 6, 10])
def test_files_of_any_number_of_levels_load_however_the_fit_ended(n_levels, ending, tmp_path):
    X, f = latent()
    y = np.digitize(f, np.quantile(f, np.linspace(0.0, 1.0, n_levels + 1)[1:-1]))
    model = tc.CPOrdinalClassifier(2, random_state=0, **ENDINGS[ending]).fit(X, y)
    model.save(tmp_path / "m.npz")
    again = tc.load(tmp_path / "m.npz")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(again.thresholds_, model.thresholds_)


@UNLIKE
def test_files_that_do_not_tell_of_their_thresholds_load(tmp_path):
    X, f = latent()
    model = tc.CPOrdinalClassifier(2, method="gibbs", max_iter=30, random_state=0).fit(
        X, np.digitize(f, [-2, -1, 0, 1])
    )
    model.save(tmp_path / "m.npz")
    with np.load(tmp_path / "m.npz") as archive:
        content = dict(archive)
    fields = json.loads(content.pop("header").tobytes())
    del fields["checksum"]
    assert fields["fitted"]["posterior"].pop("n_thresholds") == content["posterior.theta"].shape[2] == 3
    fields["fitted"]["posterior"]["n_thresholds"] = 0
    header = np.frombuffer(json.dumps(fields).encode(), dtype=np.uint8)
    np.savez(tmp_path / "m.npz", header=header, **content)
    np.testing.assert_array_equal(tc.load(tmp_path / "m.npz").predict_proba(X), model.predict_proba(X))


@EVERY
def test_files_hold_all_of_a_model(method, tmp_path):
    X, y = data()
    model = fitted(method)
    model.save(tmp_path / "m.npz")
    again = tc.load(tmp_path / "m.npz")
    for of in (
        lambda m: m.predict_proba(X),
        lambda m: m.log_score(X, y),
        lambda m: m.thresholds_,
        lambda m: m.thresholds_std_,
        lambda m: m.sample_y(X[:9], 5, random_state=1),
        lambda m: m.expected_value(X),
    ):
        np.testing.assert_array_equal(of(again), of(model))
    assert again.get_params()["link"] == model.link
    assert repr(again.diagnostics_) == repr(model.diagnostics_)


@EVERY
def test_threads_and_the_order_of_entries_change_no_bit(method):
    X, y = data()
    other = clone(new(method, n_jobs=2)).fit(X[::-1], y[::-1])
    np.testing.assert_array_equal(other.thresholds_, fitted(method).thresholds_)
    np.testing.assert_array_equal(other.predict_proba(X), fitted(method).predict_proba(X))


def test_whole_weights_are_entries_given_so_often_and_vmp_takes_any():
    X, y = data()
    weights = np.where(np.arange(400) % 3 == 0, 2.0, 1.0)
    which = np.repeat(np.arange(400), weights.astype(int))
    twice = new().fit(X[which], y[which])
    np.testing.assert_array_equal(new().fit(X, y, sample_weight=weights).thresholds_, twice.thresholds_)
    powers = new().fit(X, y, sample_weight=weights * (1.0 + 1e-9))
    np.testing.assert_allclose(powers.thresholds_, twice.thresholds_, rtol=0.05)
    with pytest.raises(ValueError, match="method 'cep' cannot take weights .* use whole numbers"):
        new("cep").fit(X, y, sample_weight=0.5 * weights)


@each("parts", ["cp", "main+cp"])
def test_vmps_bound_never_falls(parts):
    X, y = data()
    model = new(rank=2, interactions=parts, prior="fixed", prior_mean=0.0, tol=1e-6, max_iter=60).fit(X, y)
    bound = model.trace_["lower_bound"]
    bound = bound[np.isfinite(bound)]
    assert (np.diff(bound) > -1e-7 * np.abs(bound[1:])).all()


@each(
    ("params", "words"),
    [
        ({"method": "wopt"}, "method 'wopt' needs values without thresholds to learn"),
        ({"method": "pg-gibbs"}, "method 'pg-gibbs' needs pg, which the likelihood 'ordinal_probit' does not have"),
        (
            {"method": "gibbs", "link": "logit"},
            r"method 'gibbs' needs mean_field.*use one of the methods \['cep', 'laplace'\]",
        ),
        ({"link": "cauchit"}, "link must be one of"),
    ],
)
def test_what_methods_cannot_is_refused(params, words):
    with pytest.raises(ValueError, match=words):
        new(**params).fit(*data())


def test_streams_are_refused():
    model = new()
    for call in (model.partial_fit, model.stream):
        with pytest.raises(ValueError, match="learns its thresholds from all entries together, and no streams"):
            call(*data()[:1])
    assert not hasattr(model, "posterior_")


def test_a_refused_fit_changes_nothing():
    X, y = data()
    model = new().fit(X, y)
    before = dict(vars(model))
    with pytest.raises(ValueError, match="different levels"):
        model.fit(X, np.arange(400))
    assert vars(model) == before


@UNLIKE
@each("method", ["gibbs", "vmp", "cep"])
def test_models_recommend_explain_and_score_oddity(method):
    X, y = data()
    model = fitted(method)
    best = model.recommend(1, given={0: 3, 2: 1}, n=3, exclude=None)
    assert len(best) == 3
    assert best["mean"].between(0.0, 3.0).all()
    assert (best["lower"] <= best["upper"]).all()
    parts = model.explain((1, 2, 3))
    assert parts["mean"].iloc[:-1].sum() == pytest.approx(parts["mean"].iloc[-1], abs=1e-6)
    odd = model.anomaly_score(X, y)
    np.testing.assert_allclose(odd["surprise"], -model.log_score(X, y), rtol=1e-10)
    p = model.predict_proba(X)
    np.testing.assert_allclose(odd["lower_tail"], np.cumsum(p, axis=1)[np.arange(400), y], atol=1e-10)
    np.testing.assert_allclose(odd["upper_tail"], np.cumsum(p[:, ::-1], axis=1)[np.arange(400), 3 - y], atol=1e-10)
    np.testing.assert_array_equal(odd["value"], y)


@UNLIKE
@EVERY
def test_new_rows_are_folded_in(method):
    X, y = data()
    known = X[:, 0] < 13
    model = new(method, shape=None).fit(X[known], y[known])
    rows = model.transform(X[~known], y[~known], mode=0)
    more = model.with_rows(rows)
    assert more.shape_[0] == 14
    assert more.log_score(X[~known], y[~known]).mean() > -1.6
    np.testing.assert_array_equal(more.predict_proba(X[known]), model.predict_proba(X[known]))


def test_fits_go_on_without_entries_and_with_fixed_modes():
    X, y = data()
    model = new(CEP(keep_messages=True, n_ensemble=1)).fit(X, y)
    model.forget_entries(X[:30])
    np.testing.assert_allclose(model.thresholds_, TRUE, atol=0.6)
    assert model.classes_.tolist() == [0, 1, 2, 3]
    again = new().fit(X, y).fit(X, y, fixed_modes=[0])
    np.testing.assert_allclose(again.thresholds_, TRUE, atol=0.6)
    assert new(max_iter=3).fit(X, y).fit(X, y, warm_start=True).n_iter_ > 0


@UNLIKE
def test_draws_in_arviz_hold_the_thresholds():
    pytest.importorskip("arviz")
    X, y = data()
    found = fitted("gibbs").to_arviz(X[:7], y[:7])
    cuts = np.asarray(found["posterior"]["thresholds"])
    assert cuts.shape[-1] == 2
    np.testing.assert_allclose(cuts.mean(axis=(0, 1)), fitted("gibbs").thresholds_[1:], rtol=1e-10)
    assert np.asarray(found["posterior_predictive"]["y"]).shape[-1] == 7
    one = fitted("vmp").to_arviz(n_samples=300, random_state=0)
    np.testing.assert_allclose(
        np.asarray(one["posterior"]["thresholds"]).mean(axis=(0, 1)), fitted("vmp").thresholds_[1:], atol=0.05
    )


def test_methods_are_compared():
    X, y = data()
    train, test = (tc.SparseTensor(X[part], y[part], SHAPE) for part in (slice(0, 300), slice(300, 400)))
    table = tc.compare(train, test, ["vmp", "laplace"], estimator=new(tol=0.1, max_iter=20))
    assert {"rmse", "log_score", "coverage"} <= set(table.columns)
    assert np.isfinite(table["log_score"]).all()


def test_levels_that_are_noise_are_predicted_by_their_shares():
    X, _ = data()
    y = np.random.default_rng(2).choice(4, 400, p=[0.1, 0.2, 0.3, 0.4])
    model = tc.CPOrdinalClassifier(3, max_iter=60, random_state=0).fit(X, y)
    shares = np.bincount(y) / 400.0
    assert np.abs(model.predict_proba(X) - shares).mean() < 0.06
    assert model.diagnostics_.weights["constant"] > 0.5


def test_features_of_rows_predict_the_levels_of_rows_without_entries():
    X, y = data()
    known = X[:, 0] < 11
    signal = np.array([y[X[:, 0] == i].mean() for i in range(14)])
    side = pd.DataFrame({"size": signal})
    model = new(prior={0: tc.Features(side)}).fit(X[known], y[known])
    constant = np.log(np.bincount(y[known]) / known.sum())[y[~known]]
    assert model.log_score(X[~known], y[~known]).mean() > constant.mean() + 0.05
