"""A refused, interrupted or failed call changes nothing: predictions, parameters and saved bytes stay as they were."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.unchanged import bits, check_refused, check_refused_unfitted

from tensorcep import (
    BayesianCCA,
    BayesianFactorAnalysis,
    BayesianPCA,
    CollectiveMatrixFactorization,
    GroupFactorAnalysis,
)
from tensorcep.factor_models import pca
from tensorcep.factor_models.fit import ENGINES
from tensorcep.factor_models.settings import VB, FactorisedVB, Gibbs

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

RNG = np.random.default_rng(5)
REAL, LABELS, COUNTS = RNG.standard_normal((14, 5)), (RNG.random((14, 5)) < 0.5) * 1.0, RNG.poisson(2.0, (14, 5)) * 1.0
GAPS = np.where(RNG.random((14, 5)) < 0.2, np.nan, REAL)
FRAME = pd.DataFrame(COUNTS, columns=list("abcde"))
TWO = [("a", "b", "gaussian"), ("a", "c", "bernoulli")]

# by name: how a model is made, and what it is fitted to
ONE = {
    "pca": (BayesianPCA, {}, GAPS),
    "pca-labels": (BayesianPCA, {"likelihood": "bernoulli", "method": VB()}, LABELS),
    "pca-frame": (BayesianPCA, {"likelihood": "negbinomial", "method": Gibbs(burn_in=2, thin=1)}, FRAME),
    "factor-analysis": (BayesianFactorAnalysis, {"method": "vb"}, REAL),
}
MANY = {
    "cca": (BayesianCCA, {}, [REAL, GAPS]),
    "group": (GroupFactorAnalysis, {"likelihood": ["gaussian", "negbinomial"]}, [REAL, COUNTS]),
    "collective": (CollectiveMatrixFactorization, {"relations": TWO, "method": FactorisedVB()}, [REAL, LABELS]),
}
ALL = {**ONE, **MANY}


def fitted(name):
    cls, params, X = ALL[name]
    return cls(n_components=2, max_iter=5, random_state=0, **params).fit(X), X


def answers(name):
    """All that is asked of a model."""
    X = ALL[name][2]
    if name not in ONE:
        asked = [lambda model, m=m: (model.reconstruct(m), model.predict_missing(m)) for m in range(len(X))]
        return [*asked, numbers] if name == "collective" else [*asked, numbers, lambda model: model.transform(X)]
    return [
        numbers,
        lambda model: model.transform(X, return_cov=True),
        lambda model: model.score_samples(X),
        lambda model: [*model.predict_missing(return_std=True), *model.predict_missing(X, return_std=True)],
        lambda model: [model.reconstruct(), *model.predict_latent(), model.inverse_transform(np.eye(2))],
    ]


def numbers(model):
    """Every fitted attribute that holds numbers or names."""
    values = [value for key, value in sorted(vars(model).items()) if key.endswith("_") and key != "posterior_"]
    flat = [list(value.values()) if isinstance(value, dict) else value for value in values]
    return [item for value in flat for item in (value if isinstance(value, list) else [value]) if item is not None]


REFUSED = [
    {"tol": -1.0},
    {"max_iter": 0},
    {"method": "em"},
    {"method": Gibbs(burn_in=5)},
    {"bias": "all"},
    {"absent": "gone"},
    {"n_components": 0},
    {"random_state": -1},
    {"n_jobs": 0},
]


@pytest.mark.parametrize("name", ALL)
def test_refused_parameters_change_nothing(name, tmp_path):
    model, X = fitted(name)
    other = [item[:9] for item in X] if name in MANY else np.asarray(X)[:9] + 1.0
    words = [{"likelihood": "gauss"}, {"likelihood": "negbinomial", "augmentation": "boehning"}, {"init": "pca"}]
    for params in [*REFUSED, *words]:
        if set(params) <= set(model.get_params()):
            check_refused(
                model, lambda: model.fit(other), answers=answers(name), folder=tmp_path, params=params, what=str(params)
            )


@pytest.mark.parametrize("name", ONE)
def test_refused_fits_of_one_matrix_change_nothing(name, tmp_path):
    model, X = fitted(name)
    how = {"answers": answers(name), "folder": tmp_path}
    for wrong in (np.full((4, 3), np.nan), [[np.inf, 1.0]], np.zeros((0, 3)), [1.0, 2.0], [["a", "b"]]):
        check_refused(model, lambda wrong=wrong: model.fit(wrong), what=str(wrong), **how)
    if name != "factor-analysis":
        named = pd.DataFrame(np.asarray(X) + 2.5, columns=list("vwxyz"))
        check_refused(model, lambda: model.fit(named), params={"likelihood": "bernoulli"}, what="wrong labels", **how)
    generator = np.random.default_rng(3)
    state = generator.bit_generator.state
    check_refused(model, lambda: model.fit(X), params={"random_state": generator, "tol": -1.0}, **how)
    assert generator.bit_generator.state == state


@pytest.mark.parametrize("name", ONE)
def test_refused_questions_to_one_matrix_change_nothing(name, tmp_path):
    model, X = fitted(name)
    how = {"answers": answers(name), "folder": tmp_path}
    narrow, text = (X.iloc[:, :3], X.astype(str) + "a") if name == "pca-frame" else (X[:, :3], np.full((1, 5), "a"))
    for call in (model.transform, model.score_samples, model.predict_missing):
        for wrong in (narrow, text):
            check_refused(model, lambda call=call, wrong=wrong: call(wrong), what=f"{call} {wrong}", **how)
    check_refused(model, lambda: model.inverse_transform(np.eye(3)), **how)
    check_refused(model, lambda: model.save(tmp_path / "no folder" / "m.npz"), error=FileNotFoundError, **how)


@pytest.mark.parametrize("name", MANY)
def test_refused_matrices_change_nothing(name, tmp_path):
    model, X = fitted(name)
    how = {"answers": answers(name), "folder": tmp_path}
    infinite = np.array(X[1])
    infinite[0, 0] = np.inf
    for wrong in ([], [X[0]] * 3, [X[0], X[1][:5]], [X[0], infinite]):
        check_refused(model, lambda wrong=wrong: model.fit(wrong), what=str(wrong), **how)
    for m in (-1, 2, 0.5):
        check_refused(model, lambda m=m: model.reconstruct(m), **how)
        check_refused(model, lambda m=m: model.predict_missing(m), **how)
    if name != "collective":
        for wrong in ([None, None], [X[0]], [X[0][:, :3], None]):
            check_refused(model, lambda wrong=wrong: model.transform(wrong), **how)


@each("failure", [KeyboardInterrupt, FloatingPointError])
@pytest.mark.parametrize("name", ALL)
def test_refused_by_an_interrupt_changes_nothing(name, failure, tmp_path, monkeypatch):
    model, X = fitted(name)
    other = [np.flip(item, axis=0) for item in X] if name in MANY else np.asarray(X)[::-1]
    sweeps = []

    def stopping(engine):
        def step(*args):
            sweeps.append(engine.name)
            if len(sweeps) == 3:
                raise failure
            return engine.step(*args)

        return replace(engine, step=step)

    def call():
        with monkeypatch.context() as patch:
            for key, engine in list(ENGINES.items()):
                patch.setitem(ENGINES, key, stopping(engine))
            model.fit(other)

    check_refused(model, call, answers=answers(name), folder=tmp_path, error=failure, params={"random_state": 1})
    assert len(sweeps) == 3


def test_refused_in_the_last_moment_changes_nothing(tmp_path, monkeypatch):
    model, X = fitted("pca")

    def call():
        with monkeypatch.context() as patch:
            patch.setattr(pca.results, "energies", lambda *args: 1 / 0)
            model.fit(X[:9])

    check_refused(model, call, answers=answers("pca"), folder=tmp_path, error=ZeroDivisionError)


@each("name", ALL)
def test_refused_first_fit_leaves_no_attribute(name):
    cls, params, X = ALL[name]
    model = cls(n_components=2, tol=-1.0, **params)
    check_refused_unfitted(model, lambda: model.fit(X), ValueError)
    model.set_params(tol=1.0)
    wrong = [X[0]] * 3 if name in MANY else np.full((3, 3), np.nan)
    check_refused_unfitted(model, lambda: model.fit(wrong), ValueError)


def test_parameters_that_are_set_do_not_reach_a_fitted_model():
    """Predictions are those of the fit, whatever has been set since."""
    model, _ = fitted("pca-labels")
    asked = answers("pca-labels")
    before = [[bits(part) for part in answer(model)] for answer in asked]
    model.set_params(likelihood="gaussian", bias="none", augmentation="noise")
    assert [[bits(part) for part in answer(model)] for answer in asked] == before


def test_fit_anew_forgets_the_names_of_features():
    model = BayesianPCA(2, "negbinomial", max_iter=3, random_state=0).fit(FRAME)
    assert list(model.feature_names_in_) == list("abcde")
    model.fit(COUNTS[:, :4])
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == 4
