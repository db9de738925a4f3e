"""A call that is refused, interrupted or ended by an exception leaves a CP model as it was, to the last bit."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.data import CLASSES, SHAPE, entries
from helpers.unchanged import Raising, check_refused, check_refused_unfitted, picture
from sklearn.base import clone

import tensorcep as tc
from tensorcep.cp.stream import adf

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning", "ignore:the draws of '.*' do not agree on the components"
)
MODELS = [
    ("regressor", "auto", {}),
    ("regressor", "cep", {}),
    ("regressor", "vmp", {}),
    ("regressor", "laplace", {}),
    ("regressor", "wopt", {}),
    ("classifier", "pg-gibbs", {}),
    ("classifier", tc.CEP(n_ensemble=2), {"prior": "learned"}),
    ("classifier", "pg-vb", {}),
    ("counts", "cep", {}),
    ("counts", tc.PGGibbs(n_chains=2), {"likelihood": "negbinomial"}),
]
EVERY = pytest.mark.parametrize(("name", "method", "params"), MODELS, ids=str)
OWN_BAD = {
    "regressor": [{"lower_limit": np.nan}, {"noise_prior": (1.0, -1.0)}],
    "classifier": [{"link": "cauchit"}, {"zero_rate": 2.0}, {"zero_rate": "auto"}],
    "counts": [{"likelihood": "binomial"}, {"dispersion": -1.0, "likelihood": "negbinomial"}],
}
BAD = [
    {"rank": 0},
    {"max_iter": 0},
    {"tol": -1.0},
    {"method": "cep", "tol": -1.0},
    {"method": "vmpx"},
    {"method": tc.CEP},
    {"prior": "wide"},
    {"prior": tc.Prior([0.0], [1.0])},
    {"prior_scale": -1.0, "prior": "fixed"},
    {"prior_mean": "some", "prior": "fixed"},
    {"interactions": "none"},
    {"init": "zeros"},
    {"init": [np.ones((2, 2))]},
    {"shape": (2, 2, 2)},
    {"unknown": "zero"},
    {"forget": 1.0},
    {"revisit": -1},
    {"n_jobs": 0},
    {"random_state": "seed"},
    {"callbacks": 5},
]
BAD_VALUE = {"regressor": np.nan, "classifier": 2.0, "counts": -1.0}


@cache
def fitted(name, number):
    _, method, params = MODELS[number]
    X, y = entries(name)
    model = CLASSES[name](2, method=method, max_iter=4, tol=1e9, random_state=0, **params)
    return model.fit(tc.SparseTensor.from_coo(X, y, SHAPE))


def answers(name):
    X, _ = entries(name)
    found = [lambda m: m.predict(X), lambda m: m.predict_latent(X), lambda m: m.factors_]
    return found + ([lambda m: m.predict_proba(X)] if name == "classifier" else [])


def bad_entries(name):
    """Entries that must be refused, whatever the parameters."""
    X, y = entries(name)
    wrong = y.copy()
    wrong[7] = BAD_VALUE[name]
    far = X.copy()
    far[3, 1] = -1
    return {
        "a value that is not allowed": (X, wrong),
        "too few values": (X, y[:-1]),
        "no values": (X, None),
        "text for values": (X, np.array(["a"] * len(y))),
        "one index per entry": (X[:, 0], y),
        "a negative index": (far, y),
        "broken indices": (X + 0.5, y),
        "text for indices": (X.astype(str), y),
        "no entries": (X[:0], y[:0]),
    }


@EVERY
def test_a_refused_fit_changes_nothing(name, method, params, tmp_path):
    model, (X, y) = fitted(name, MODELS.index((name, method, params))), entries(name)
    how = {"answers": answers(name), "folder": tmp_path, "before": None}
    for bad in BAD + OWN_BAD[name]:
        how["before"] = check_refused(model, lambda: model.fit(X, y), params=bad, what=f"fit with {bad}", **how)
    for what, given in bad_entries(name).items():
        how["before"] = check_refused(model, lambda given=given: model.fit(*given), what=f"fit to {what}", **how)


@pytest.mark.parametrize(
    ("name", "method", "params"),
    [pytest.param(*one, marks=pytest.mark.slow) if one in MODELS[1::2] else one for one in MODELS],
    ids=str,
)
def test_an_interrupted_fit_changes_nothing(name, method, params, tmp_path):
    model, (X, y) = fitted(name, MODELS.index((name, method, params))), entries(name)
    sweeps: list[int] = []  # a sampler whose chains do not count ends with its burn-in
    clone(model).set_params(callbacks=lambda sweep, *_: sweeps.append(sweep), tol=0.0, random_state=5).fit(X, y)
    assert len(sweeps) > 1
    for error, n in ((KeyboardInterrupt, 1), (RuntimeError, len(sweeps))):
        given = {"callbacks": Raising(error, n), "tol": 0.0, "random_state": 5}
        how = {"answers": answers(name), "folder": tmp_path, "error": error, "params": given}
        check_refused(model, lambda: model.fit(X, y), what=f"{error.__name__} in call {n}", **how)


@EVERY
def test_refused_questions_change_nothing(name, method, params, tmp_path):
    model, (X, y) = fitted(name, MODELS.index((name, method, params))), entries(name)
    calls = {
        "predict of two modes": lambda: model.predict(X[:, :2]),
        "predict of nan": lambda: model.predict([[0, np.nan, 2]]),
        "predict of text": lambda: model.predict([["a", "b", "c"]]),
        "predict_interval": lambda: model.predict_interval(X, 1.5),
        "sample_y": lambda: model.sample_y(X, 0),
        "sample_posterior": lambda: model.sample_posterior(1.5),
        "log_score": lambda: model.log_score(X, y[:5]),
        "components": lambda: model.components(7),
        "save": lambda: model.save(tmp_path / "nowhere" / "model.npz"),
    }
    how = {"answers": answers(name), "folder": tmp_path, "before": None}
    for what, call in calls.items():
        errors = (ValueError, TypeError, FileNotFoundError)
        how["before"] = check_refused(model, call, error=errors, what=what, **how)


@EVERY
def test_a_refused_batch_changes_nothing(name, method, params, tmp_path):
    model, (X, y) = fitted(name, MODELS.index((name, method, params))), entries(name)
    how = {"answers": answers(name), "folder": tmp_path}
    if model.method_ == "wopt":
        check_refused(model, lambda: model.partial_fit(X, y), what="partial_fit", **how)
        check_refused(model, lambda: model.stream([(X, y)]), what="stream", **how)
    for what, given in bad_entries(name).items():
        check_refused(model, lambda given=given: model.partial_fit(*given), what=f"partial_fit to {what}", **how)
        check_refused(model, lambda given=given: model.stream([given]), what=f"stream of {what}", **how)
    for bad in ({"tol": -1.0}, {"max_iter": 0}, {"forget": 2.0}, {"unknown": "zero"}, {"n_jobs": 0}, {"method": "x"}):
        check_refused(model, lambda: model.partial_fit(X, y), params=bad, what=f"partial_fit with {bad}", **how)
    check_refused(model, lambda: model.partial_fit(X, y, time=-1.0), what="a time that goes back", **how)


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("method", ["cep", "vmp"])
def test_a_cut_stream_is_where_its_last_batch_left_it(name, method, tmp_path):
    if (name, method) == ("counts", "vmp"):
        method = tc.CEP(dtype="float32")
    X, y = entries(name)
    frame = pd.DataFrame({f"mode {k}": X[:, k].astype(str) for k in range(3)})
    batches = [(frame[a:b], y[a:b]) for a, b in ((0, 200), (200, 300), (300, 600))]
    wrong = y[300:].copy()
    wrong[-1] = BAD_VALUE[name]
    how = {"rank": 2, "method": method, "max_iter": 3, "tol": 1e9, "random_state": 0, "forget": 0.1}
    two = CLASSES[name](**how).stream(batches[:2])
    asked = [lambda m: m.predict(frame), lambda m: m.factors_]
    cuts = [
        ([*batches[:2], (frame[300:], wrong)], None, (ValueError,)),
        (batches, Raising(KeyboardInterrupt, 2), (KeyboardInterrupt,)),
        (batches, Raising(RuntimeError, 2), (RuntimeError,)),
    ]
    expected = {**picture(two, asked, tmp_path), "scores": two.stream_trace_["rmse"].tolist()[1:]}
    for source, callback, errors in cuts:
        model = CLASSES[name](**how)
        with pytest.raises(errors):
            model.stream(source, callback=callback)
        assert {**picture(model, asked, tmp_path), "scores": model.stream_trace_["rmse"].tolist()[1:]} == expected


@each("params", [{"prior": "fixed"}, {"prior": "fixed", "revisit": 50}, {"forget": 0.2}])
def test_a_batch_with_new_labels_is_undone_wherever_it_ends(params, tmp_path, monkeypatch):
    X, y = entries("regressor")
    frame = pd.DataFrame({f"mode {k}": X[:, k].astype(str) for k in range(3)})
    model = tc.CPRegressor(2, max_iter=3, tol=1e9, random_state=0, **params)
    model.partial_fit(frame[:300], y[:300]).partial_fit(frame[300:350], y[300:350])
    new = frame[350:].assign(**{"mode 1": "new " + frame["mode 1"][350:]})
    how = {"answers": [lambda m: m.predict(frame), lambda m: m.factors_], "folder": tmp_path}
    bad = np.append(y[351:], np.nan)
    check_refused(model, lambda: model.partial_fit(new, bad), what="a bad value", **how)
    given = {"params": {"callbacks": Raising(KeyboardInterrupt)}, "error": KeyboardInterrupt}
    check_refused(model, lambda: model.partial_fit(new, y[350:]), what="an interrupt", **how, **given)

    def absorbed_in_part(state, batch, posterior):
        state.modes[0].Lam[batch.used[0]] = 0.0
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(adf, "absorb", absorbed_in_part)
        check_refused(model, lambda: model.partial_fit(new, y[350:]), what="writing", error=KeyboardInterrupt, **how)
    twin = tc.CPRegressor(2, max_iter=3, tol=1e9, random_state=0, **params)
    twin.partial_fit(frame[:300], y[:300]).partial_fit(frame[300:350], y[300:350])
    for one in (model, twin):
        one.partial_fit(new, y[350:])
    assert picture(model, how["answers"], tmp_path) == picture(twin, how["answers"], tmp_path)


def test_a_batch_that_was_learned_stays_whole_if_an_interrupt_follows(tmp_path, monkeypatch):
    X, y = entries("regressor")
    frame = pd.DataFrame({f"mode {k}": X[:, k].astype(str) for k in range(3)})
    model, twin = (tc.CPRegressor(2, max_iter=3, tol=1e9, random_state=0) for _ in range(2))
    new = frame[300:].assign(**{"mode 1": "new " + frame["mode 1"][300:]})
    for one in (model, twin):
        one.partial_fit(frame[:300], y[:300])
    assign = tc.CPRegressor._set

    def interrupted(self, result):
        assign(self, result)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(tc.CPRegressor, "_set", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(new, y[300:])
    twin.partial_fit(new, y[300:])
    asked = [lambda m: m.predict(new), lambda m: m.factors_]
    assert picture(model, asked, tmp_path) == picture(twin, asked, tmp_path)
    model.save(tmp_path / "model.npz")
    assert [len(found) for found in tc.load(tmp_path / "model.npz").labels_] == list(model.shape_)


def test_a_first_call_that_is_refused_leaves_nothing_behind():
    for name, cls in CLASSES.items():
        X, y = entries(name)
        for params in ({"tol": -1.0}, {"method": "cep", "callbacks": Raising(KeyboardInterrupt)}):
            for call in ("fit", "partial_fit"):
                model = cls(2, **params)
                model.callbacks = params.get("callbacks") and Raising(KeyboardInterrupt)
                errors = (ValueError, KeyboardInterrupt)
                learn = getattr(model, call)
                check_refused_unfitted(model, lambda learn=learn, X=X, y=y: learn(X, y), errors)


def test_a_refused_fit_draws_no_random_number():
    X, y = entries("regressor")
    rng = np.random.default_rng(0)
    for bad in ({"tol": -1.0}, {"init": "zeros"}, {"prior_mean": 0.0, "init": "prior", "prior": "fixed"}):
        with pytest.raises(ValueError, match="must be|starts at"):
            tc.CPRegressor(2, method="cep", interactions="cp", random_state=rng, **bad).fit(X, y)
    assert rng.bit_generator.state == np.random.default_rng(0).bit_generator.state


def test_the_check_sees_what_a_refused_call_changed(tmp_path):
    X, y = entries("classifier")
    model = tc.CPClassifier(2, method="pg-gibbs", max_iter=4, random_state=0).fit(X, y)

    def refuse():
        model._set(model._result.changed(observation=model._result.observation.with_facts({"link_": "probit"})))
        raise ValueError

    with pytest.raises(AssertionError, match="other file, answer"):
        check_refused(model, refuse, answers=answers("classifier"), folder=tmp_path)


def test_refused_parameters_are_not_set():
    model = tc.CPRegressor(method=tc.CEP(order=2))
    for params, error in (({"damping": 0.5}, TypeError), ({"method__damping": 2.0}, ValueError)):
        with pytest.raises(error):
            model.set_params(**params)
        assert model.method == tc.CEP(order=2)
