"""Bayesian probit and logistic regression as estimators: scikit-learn's checks, predictions, batches, files, errors."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from helpers.cases import each
from helpers.sklearn_checks import OF_THE_ENGINE, check_contract
from scipy import integrate, sparse, stats
from scipy.special import expit, ndtr
from sklearn.exceptions import ConvergenceWarning

import tensorcep as tc
from tensorcep.linear.settings import EP, GLM_METHODS, IS

CLASSES = (tc.BayesianProbitRegression, tc.BayesianLogisticRegression)
FACTORISED = ("ep-factorized", "cep1", "cep2", "lp", "vb")
EVERY_CLASS = each("cls", CLASSES)
EVERY_METHOD = pytest.mark.parametrize("method", list(GLM_METHODS))


def points(rng, n=150, d=4):
    X = rng.normal(size=(n, d))
    return X, np.where(X @ np.linspace(1.5, -1.0, d) + 0.3 + 0.8 * rng.normal(size=n) > 0.0, "yes", "no")


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_glm_passes_scikit_learns_checks(cls, subtests):
    check_contract(cls(max_iter=100), subtests)


@pytest.mark.slow
@pytest.mark.parametrize("method", [method for method in GLM_METHODS if method != "ep"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_glm_passes_the_checks_of_a_fit_by_every_method(method, subtests):
    """Classes differ in the likelihood alone, which other tests meet by every method."""
    how = IS(n_draws=200) if method == "is" else method  # fewer draws than by default, for time
    check_contract(tc.BayesianLogisticRegression(how, max_iter=100), subtests, OF_THE_ENGINE)


@EVERY_CLASS
@EVERY_METHOD
def test_glm_predictions_hang_together(cls, method, rng):
    X, y = points(rng)
    model = cls(method).fit(X, y)
    assert model.converged_
    assert list(model.classes_) == ["no", "yes"]
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.log(p), model.predict_log_proba(X), rtol=1e-10, atol=1e-15)
    np.testing.assert_array_equal(model.predict(X), model.classes_[(p[:, 1] > 0.5).astype(int)])
    np.testing.assert_array_equal(model.decision_function(X) > 0.0, model.predict(X) == "yes")
    assert model.score(X, y) > 0.8
    assert model.coef_.shape == model.coef_std_.shape == (1, 4)
    assert (model.coef_std_ > 0.0).all()
    assert hasattr(model, "log_evidence_") == (method not in ("cep1", "cep2", "lp"))


@EVERY_CLASS
@each("method", ["ep", "cep1"])
def test_glm_probabilities_integrate_the_posterior(cls, method, rng):
    X, y = points(rng, 30)
    model = cls(method).fit(X, y)
    mean, variance = model.predict_latent(X[:4])
    link = ndtr if cls is CLASSES[0] else expit
    for m, v, p in zip(mean, variance, model.predict_proba(X[:4])[:, 1], strict=True):
        s = np.sqrt(v)
        density = stats.norm(m, s)
        wanted = integrate.quad(lambda f, d=density: link(f) * d.pdf(f), m - 9 * s, m + 9 * s, epsabs=1e-12)[0]
        assert abs(p - wanted) < 1e-10


@EVERY_CLASS
@EVERY_METHOD
def test_glm_on_sparse_features_equals_dense_features(cls, method, rng):
    X, y = points(rng)
    X *= rng.random(X.shape) < 0.5
    dense, thin = cls(method).fit(X, y), cls(method).fit(sparse.csr_matrix(X), y)
    np.testing.assert_allclose(thin.coef_, dense.coef_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(thin.predict_proba(sparse.csr_matrix(X)), dense.predict_proba(X), rtol=1e-9)


@each("method", FACTORISED)
def test_glm_factorised_posterior_ignores_a_column_without_entries(method, rng):
    X, y = points(rng)
    wide = sparse.csr_matrix(np.hstack([X, np.zeros((len(y), 1))]))
    model = tc.BayesianLogisticRegression(method, prior_scale=0.7).fit(wide, y)
    assert model.coef_[0, 4] == 0.0
    np.testing.assert_allclose(model.coef_std_[0, 4], 0.7, rtol=1e-12)


@EVERY_CLASS
@EVERY_METHOD
def test_glm_learns_the_prior_scale_by_evidence(cls, method, rng):
    d, scale = 40, 0.6
    X, w = rng.normal(size=(1500, d)), scale * rng.normal(size=d)
    p = (ndtr if cls is CLASSES[0] else expit)(X @ w)
    y = rng.random(len(X)) < p
    how = IS(n_draws=2000) if method == "is" else method
    model = cls(how, prior_scale="evidence", tol=1e-3).fit(X, y)
    root_mean_square = np.sqrt(np.mean(w**2))
    assert abs(model.prior_scale_ / root_mean_square - 1.0) < 0.15
    if method in ("ep", "ep-factorized", "vb"):  # the learned scale is where the evidence of a fixed one is greatest
        for factor in (0.8, 1.25):
            other = cls(method, prior_scale=factor * model.prior_scale_).fit(X, y)
            assert other.log_evidence_ < model.log_evidence_


@EVERY_CLASS
@EVERY_METHOD
def test_glm_partial_fit_takes_the_posterior_as_the_next_prior(cls, method, rng):
    X, y = points(rng, 400)
    whole = cls(method).fit(X, y)
    parts = cls(method)
    parts.partial_fit(X[:1], y[:1], classes=["no", "yes"])
    for first in range(1, 400, 80):
        parts.partial_fit(X[first : first + 80], y[first : first + 80])
    if method in ("ep", "is"):
        assert (np.abs(parts.coef_ - whole.coef_) < whole.coef_std_).all()
    else:  # too sure of each batch, because factorised
        assert np.linalg.norm(parts.coef_ - whole.coef_) < 0.4 * np.linalg.norm(whole.coef_)
    once = cls(method).partial_fit(X, y)
    np.testing.assert_array_equal(once.coef_, whole.coef_)


@EVERY_CLASS
@EVERY_METHOD
def test_glm_file_gives_the_same_predictions(cls, method, tmp_path, rng):
    X, y = points(rng)
    model = cls(method, prior_scale=0.8).fit(X, y.astype(object))
    path = tmp_path / "model.npz"
    model.save(path)
    again = tc.load(path)
    assert type(again) is cls
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert (again.n_iter_, again.converged_) == (model.n_iter_, model.converged_)
    assert getattr(again, "log_evidence_", None) == getattr(model, "log_evidence_", None)
    np.testing.assert_array_equal(again.partial_fit(X, y).coef_, model.partial_fit(X, y).coef_)


def test_glm_labels_that_are_odd_objects_cannot_be_saved(tmp_path, rng):
    X, y = points(rng)
    labels = np.array([1, None], dtype=object)
    model = tc.BayesianProbitRegression().fit(X, y)
    model.classes_ = labels
    with pytest.raises(ValueError, match="holds Python objects"):
        model.save(tmp_path / "model.npz")


def test_glm_without_intercept(rng):
    X, y = points(rng)
    model = tc.BayesianProbitRegression(fit_intercept=False).fit(X, y)
    assert model.intercept_ == model.intercept_std_ == 0.0
    with_constant = tc.BayesianProbitRegression(intercept_scale=1.0).fit(X, y)
    column = tc.BayesianProbitRegression(fit_intercept=False).fit(np.hstack([X, np.ones((len(y), 1))]), y)
    np.testing.assert_allclose(column.coef_[0, 4], with_constant.intercept_[0], rtol=1e-12)


def test_glm_warns_when_it_does_not_converge(rng):
    X, y = points(rng)
    with pytest.warns(
        ConvergenceWarning, match="cep1 stopped after max_iter=3 sweeps with a change of .* > tol=0.0001"
    ):
        assert not tc.BayesianLogisticRegression("cep1", max_iter=3).fit(X, y).converged_


@each(
    ("settings", "message"),
    [
        ({"method": "gibbs"}, "method must be one of 'ep', 'ep-factorized', 'cep1', 'cep2', 'lp', 'vb', 'is'; got"),
        ({"prior_scale": 0.0}, "prior_scale must be 'evidence', or a number > 0; got 0.0"),
        ({"fit_intercept": 3}, "fit_intercept must be True or False; got 3"),
        (
            {"fit_intercept": False, "intercept_scale": 3.0},
            "intercept_scale has a meaning only with fit_intercept=True",
        ),
        ({"intercept_scale": -1}, "intercept_scale must be a number > 0; got -1"),
        ({"max_iter": 0}, "max_iter must be an integer >= 1; got 0"),
        ({"method": EP}, "method must be a name or a record of settings; got the class; write EP\\(\\)"),
        ({"n_jobs": 0}, "n_jobs must be an integer >= 1"),
    ],
)
def test_glm_refuses_bad_parameters(settings, message, rng):
    with pytest.raises(ValueError, match=message):
        tc.BayesianProbitRegression(**settings).fit(*points(rng))


def test_glm_refuses_wrong_batches(rng):
    X, y = points(rng)
    with pytest.raises(ValueError, match="partial_fit needs a number as prior_scale"):
        tc.BayesianProbitRegression(prior_scale="evidence").partial_fit(X, y)
    model = tc.BayesianProbitRegression().fit(X, y)
    with pytest.raises(ValueError, match="y must hold labels .* in partial_fit; got 'other'"):
        model.partial_fit(X, np.where(y == "yes", "other", "no"))
    with pytest.raises(ValueError, match="must go on from a factorised posterior"):
        model.set_params(method="cep1").partial_fit(X, y)


@EVERY_CLASS
def test_glm_documents_every_parameter(cls):
    doc = inspect.getdoc(cls)
    assert [p for p in inspect.signature(cls).parameters if f"\n{p} : " not in doc] == []
    assert "<parameters>" not in doc
