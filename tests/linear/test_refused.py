"""A call that is refused or interrupted changes nothing: the same predictions, and the same file to the byte."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from helpers.cases import each
from sklearn.exceptions import ConvergenceWarning

import tensorcep as tc
from tensorcep.ep.gaussian import GaussianEP
from tensorcep.linear import glm
from tensorcep.linear.settings import ConditionalEP

MODELS = {
    "ep": tc.BayesianLogisticRegression,
    "cep1": lambda: tc.BayesianProbitRegression("cep1"),
    "vb": lambda: tc.BayesianLogisticRegression("vb", prior_scale="evidence"),
    "weights": tc.BayesPointMachine,
    "functions": lambda: tc.BayesPointMachine("rbf"),
}
EVERY_MODEL = pytest.mark.parametrize("name", list(MODELS))


def points(rng, n=60, d=3):
    X = rng.normal(size=(n, d))
    return X, np.where(X[:, 0] - 0.5 * X[:, 1] + 0.4 * rng.normal(size=n) > 0.1, "yes", "no")


def state_of(model, X, path):
    """Predictions, and the bytes of the file, with the parameters as they are now."""
    model.save(path)
    return model.predict_proba(X).tobytes(), model.predict(X).tolist(), path.read_bytes(), sorted(vars(model))


def bad_calls(X, y):
    """Calls that are refused, for reasons that are found early and late."""
    hole = X.copy()
    hole[3, 1] = np.nan
    return {
        "hole": lambda m: m.fit(hole, y),
        "masked points": lambda m: m.fit(np.ma.masked_invalid(hole), y),
        "masked labels": lambda m: m.fit(X, np.ma.array(y, mask=np.arange(len(y)) == 3)),
        "masked points to predict": lambda m: m.predict(np.ma.masked_invalid(hole)),
        "masked batch": lambda m: m.partial_fit(np.ma.masked_invalid(hole), y),
        "one class": lambda m: m.fit(X, np.full(len(y), "yes")),
        "wide, one class": lambda m: m.fit(np.hstack([X, X]), np.full(len(y), "no")),
        "real labels": lambda m: m.fit(X[:, :2], np.linspace(0.0, 1.0, len(y))),
        "lengths": lambda m: m.fit(X, y[:-1]),
        "predict": lambda m: m.predict(X[:, :2]),
        "proba": lambda m: m.predict_proba(hole),
        "batch of other features": lambda m: m.partial_fit(X[:, :2], y),
        "batch of other labels": lambda m: m.partial_fit(X, np.where(y == "yes", "other", "no")),
    }


@EVERY_MODEL
def test_a_call_with_bad_points_changes_nothing(name, rng, tmp_path):
    X, y = points(rng)
    model = MODELS[name]().fit(X, y)
    before = state_of(model, X, tmp_path / "model.npz")
    for what, call in bad_calls(X, y).items():
        if "batch" in what and not hasattr(model, "partial_fit"):
            continue
        with pytest.raises(ValueError, match="."):
            call(model)
        assert state_of(model, X, tmp_path / "model.npz") == before, what


@EVERY_MODEL
def test_a_fit_with_bad_parameters_changes_nothing(name, rng, tmp_path):
    X, y = points(rng)
    model = MODELS[name]().fit(X, y)
    before = state_of(model, X, tmp_path / "model.npz")
    bad = {"tol": -1.0, "max_iter": 0, "prior_scale": -1.0}
    if hasattr(model, "partial_fit"):
        bad |= {"method": "gibbs", "n_jobs": 0, "random_state": "seed"}
    else:
        bad |= {"kernel": lambda X, Z: np.ones(3), "slack": 0.7, "damping": 2.0, "schedule": "random"}
    for parameter, value in bad.items():
        good = model.get_params()[parameter]
        model.set_params(**{parameter: value})
        for call in ("fit", "partial_fit"):
            if hasattr(model, call):
                with pytest.raises(ValueError, match="."):
                    getattr(model, call)(2.0 * X[:, :2], y)
        model.set_params(**{parameter: good})
        assert state_of(model, X, tmp_path / "model.npz") == before, parameter


@EVERY_MODEL
@each("call", ["fit", "partial_fit"])
def test_an_interrupted_call_changes_nothing(name, call, rng, tmp_path, monkeypatch):
    X, y = points(rng)
    model = MODELS[name]().fit(X, y)
    if not hasattr(model, call) or (call == "partial_fit" and model.prior_scale == "evidence"):
        pytest.skip("has no such call")
    before = state_of(model, X, tmp_path / "model.npz")

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(GaussianEP, "fit", interrupted)
    monkeypatch.setattr(glm, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        getattr(model, call)(2.0 * X, y)
    assert state_of(model, X, tmp_path / "model.npz") == before


def test_a_first_call_that_is_refused_leaves_no_trace(rng):
    X, y = points(rng)
    for make in MODELS.values():
        model = make()
        before = dict(vars(model))
        for call in (lambda m: m.fit(X, np.full(len(y), "yes")), lambda m: m.fit(X, y[:-1])):
            with pytest.raises(ValueError, match="."):
                call(model)
            assert vars(model) == before


def test_a_refused_batch_does_not_draw_from_the_generator(rng):
    X, y = points(rng)
    generator = np.random.default_rng(3)
    model = tc.BayesianProbitRegression("is", random_state=generator).fit(X, y)
    before = generator.bit_generator.state
    with pytest.raises(ValueError, match="labels"):
        model.partial_fit(X, np.where(y == "yes", "other", "no"))
    assert generator.bit_generator.state == before


def test_a_fit_that_did_not_converge_is_kept_although_its_warning_is_an_error(rng):
    X, y = points(rng)
    model = tc.BayesianProbitRegression(ConditionalEP(), max_iter=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConvergenceWarning):
            model.fit(X, y)
    assert model.n_iter_ == 2


def test_masked_points_and_labels_are_refused_in_words(rng):
    X, y = points(rng)
    model = tc.BayesianLogisticRegression().fit(X, y)
    masked = np.ma.array(X, mask=np.arange(X.size).reshape(X.shape) == 10)
    for call in (lambda: model.fit(masked, y), lambda: model.predict(masked), lambda: model.predict_latent(masked)):
        with pytest.raises(ValueError, match="X must have no masked numbers; got some, the first at entry 3"):
            call()
    with pytest.raises(ValueError, match="y must have no masked numbers; got some, the first at entry 2"):
        model.fit(X, np.ma.array(y, mask=np.arange(len(y)) == 2))
