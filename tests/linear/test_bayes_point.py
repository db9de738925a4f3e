"""The Bayes point machine: scikit-learn's checks, stored Bayes points, and kernel form against weight form."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import numpy as np
import pytest
from helpers.cases import each
from helpers.sklearn_checks import OF_THE_ENGINE, check_contract
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF

from scripts.papers import reproduce_bpm as toy
from tensorcep import BayesPointMachine, datasets, load

STORED = json.loads((Path(__file__).parents[1] / "oracles" / "ep.json").read_text())
X3 = np.array(STORED["bpm_step"]["X"])
Y3 = np.array(STORED["bpm_step"]["y"])


def inner(X, Z):
    product = X @ Z.T
    return product.toarray() if sparse.issparse(product) else product


def points(rng, n=60, d=3):
    X = rng.normal(size=(n, d))
    return X, np.where(X[:, 0] - 0.5 * X[:, 1] + 0.4 * rng.normal(size=n) > 0.1, "yes", "no")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_bpm_passes_scikit_learns_checks(subtests):
    """With slack, because some of the checks label equal points differently: no f satisfies a step without it then."""
    check_contract(BayesPointMachine(), subtests)
    check_contract(BayesPointMachine("rbf", likelihood="step", slack=0.2), subtests, OF_THE_ENGINE)


@pytest.mark.parametrize("kernel", ["linear", inner])
def test_bpm_with_step_finds_the_stored_bayes_point(kernel):
    """The third feature is the constant: the same machine with the constant as an intercept."""
    wanted = STORED["bpm_step"]["ep"]
    model = BayesPointMachine(kernel, likelihood="step", tol=1e-12).fit(X3[:, :2], Y3)
    assert abs(model.log_evidence_ - wanted["logev"]) < 1e-11
    np.testing.assert_allclose(model.intercept_, wanted["mean"][2:], rtol=1e-9)
    mean, variance = model.predict_latent(np.eye(2))
    design = np.array([[1, 0, 1], [0, 1, 1]])
    np.testing.assert_allclose(mean, design @ wanted["mean"], rtol=1e-9)
    np.testing.assert_allclose(variance, np.diag(design @ np.array(wanted["cov"]) @ design.T), rtol=1e-8)
    if kernel == "linear":
        np.testing.assert_allclose(model.coef_[0], wanted["mean"][:2], rtol=1e-9)


@each("likelihood", ["probit", "step"])
@each("fit_intercept", [True, False])
def test_kernel_bpm_equals_linear_bpm_with_the_inner_product_as_kernel(likelihood, fit_intercept, rng):
    X, y = points(rng)
    settings = {
        "likelihood": likelihood,
        "slack": 0.1 * (likelihood == "step"),
        "prior_scale": 1.7,
        "fit_intercept": fit_intercept,
        "tol": 1e-10,
        "damping": 0.2,
    }
    linear, kernel = (BayesPointMachine(k, **settings).fit(X, y) for k in ("linear", inner))
    assert linear.converged_
    np.testing.assert_allclose(kernel.log_evidence_, linear.log_evidence_, rtol=1e-9)
    new = rng.normal(size=(20, 3))
    for found, wanted in zip(kernel.predict_latent(new), linear.predict_latent(new), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-8)


def test_linear_bpm_with_more_features_than_points_equals_its_kernel_form(rng):
    X, y = points(rng, 15, 30)
    wide, kernel = (BayesPointMachine(k, tol=1e-11).fit(X, y) for k in ("linear", inner))
    assert wide.coef_.shape == (1, 30)
    new = rng.normal(size=(5, 30))
    np.testing.assert_allclose(new @ wide.coef_[0] + wide.intercept_, kernel.predict_latent(new)[0], rtol=1e-8)
    np.testing.assert_allclose(wide.predict_proba(new), kernel.predict_proba(new), rtol=1e-8)


@pytest.mark.parametrize("shape", [(60, 3), (15, 30)])
def test_bpm_on_sparse_features_equals_dense_features(shape, rng):
    X, y = points(rng, *shape)
    X = X * (rng.random(X.shape) < 0.4)
    y = np.where(np.arange(len(y)) % 3 == 0, "no", y)
    for kernel in ("linear", "rbf"):
        dense, thin = BayesPointMachine(kernel).fit(X, y), BayesPointMachine(kernel).fit(sparse.csr_matrix(X), y)
        np.testing.assert_allclose(thin.predict_proba(sparse.csr_matrix(X)), dense.predict_proba(X), rtol=1e-7)


def test_rbf_kernel_is_that_of_scikit_learn(rng):
    X, y = points(rng)
    ours = BayesPointMachine("rbf", length_scale=1.3, prior_scale=2.0).fit(X, y)
    theirs = BayesPointMachine(RBF(1.3), prior_scale=2.0).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), rtol=1e-9)
    assert not hasattr(ours, "coef_")


@pytest.mark.parametrize(
    ("name", "evidence", "columns", "schedule"),
    [
        ("sonar", -94.84224230909, 60, "sequential"),
        ("sonar", -94.84224230909, 60, "parallel"),
        ("ionosphere", -106.69518836426, 33, "sequential"),
    ],
)
def test_bpm_with_probit_equals_the_evidence_of_other_programs(real_data, name, evidence, columns, schedule):
    """EP for Gaussian process classification by two other programs, variance 4 and length scale sqrt(d)."""
    X, y = datasets.load_gp(name)
    X = X[:, X.std(axis=0) > 0]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    assert X.shape[1] == columns
    settings = {"prior_scale": 2.0, "length_scale": np.sqrt(columns), "fit_intercept": False, "tol": 1e-6}
    model = BayesPointMachine("rbf", schedule=schedule, **settings).fit(X, y)
    assert abs(model.log_evidence_ - evidence) < 1e-9


def test_toy_of_the_script_has_the_stored_bayes_point():
    np.testing.assert_allclose(toy.bayes_point(), STORED["bpm_step"]["exact_mean"], rtol=1e-8)
    paths = toy.toy_errors()
    assert paths["ep"][-1][1] < 1e-5 < paths["sampling"][-1][1] < paths["svm"][0][1]


def test_bpm_predictions_hang_together(rng):
    X, y = points(rng, 200)
    for model in (BayesPointMachine(), BayesPointMachine("rbf"), BayesPointMachine(likelihood="step", slack=0.2)):
        model.fit(X, y)
        p = model.predict_proba(X)
        np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
        np.testing.assert_array_equal(model.predict(X), model.classes_[(p[:, 1] > 0.5).astype(int)])
        assert (np.diff(p[np.argsort(model.decision_function(X)), 1]) >= -1e-12).all()
        assert model.score(X, y) > 0.8


def test_bpm_evidence_prefers_the_kernel_that_made_the_data(rng):
    X = rng.normal(size=(150, 2))
    y = (X[:, 0] ** 2 + X[:, 1] ** 2 > 1.4).astype(int)
    assert BayesPointMachine("rbf").fit(X, y).log_evidence_ > BayesPointMachine().fit(X, y).log_evidence_ + 10


def test_bpm_fit_again_in_the_other_space_forgets_the_first(rng):
    X, y = points(rng)
    model = BayesPointMachine("rbf").fit(X, y).set_params(kernel="linear").fit(X, y)
    assert not hasattr(model, "dual_coef_")
    assert not hasattr(model.set_params(kernel="rbf").fit(X, y), "coef_")


def test_bpm_warns_when_labels_contradict_each_other():
    with pytest.warns(ConvergenceWarning, match="or allow for wrong labels by slack or the probit"):
        BayesPointMachine(likelihood="step").fit([[1.0], [1.0], [2.0], [2.0]], [0, 1, 0, 1])


def test_bpm_warns_and_says_why_when_it_does_not_converge(rng):
    X, y = points(rng)
    with pytest.warns(ConvergenceWarning, match="EP stopped after max_iter=1 sweeps with a change of .* > tol=0.0001"):
        assert not BayesPointMachine(max_iter=1).fit(X, y).converged_


@each(
    ("settings", "message"),
    [
        ({"kernel": "cubic"}, "kernel must be one of 'linear', 'rbf'; got 'cubic'"),
        ({"likelihood": "logit"}, "likelihood must be one of 'probit', 'step'; got 'logit'"),
        ({"likelihood": "step", "slack": 0.5}, "slack must be a number in \\[0, 0.5\\); got 0.5"),
        ({"slack": 0.1}, "slack has a meaning only with likelihood='step'"),
        ({"fit_intercept": 3}, "fit_intercept must be True or False; got 3"),
        ({"length_scale": 2.0}, "length_scale has a meaning only with kernel='rbf'; got length_scale=2.0"),
        ({"length_scale": 0}, "length_scale must be a number > 0; got 0"),
        ({"prior_scale": -1.0}, "prior_scale must be a number > 0; got -1.0"),
        ({"kernel": lambda X, Z: np.ones(3)}, "kernel must return a matrix of shape \\(3, 3\\); got \\(3,\\)"),
    ],
)
def test_bpm_refuses_bad_parameters(settings, message):
    with pytest.raises(ValueError, match=message):
        BayesPointMachine(**settings).fit(X3, Y3)


def test_bpm_documents_every_parameter():
    doc = inspect.getdoc(BayesPointMachine)
    assert [p for p in inspect.signature(BayesPointMachine).parameters if f"\n{p} : " not in doc] == []


@each("store", [np.asarray, sparse.csr_matrix])
@each(
    "options",
    [{}, {"kernel": "rbf", "length_scale": 2.0}, {"kernel": "linear", "likelihood": "step", "slack": 0.1}],
)
def test_bpm_file_gives_the_same_predictions(options, store, rng, tmp_path):
    X, y = points(rng)
    model = BayesPointMachine(**options).fit(store(X), y)
    model.save(tmp_path / "bpm.npz")
    again = load(tmp_path / "bpm.npz")
    assert again.get_params() == model.get_params()
    new = store(rng.normal(size=(9, 3)))
    for name in ("predict", "predict_proba", "decision_function"):
        np.testing.assert_array_equal(getattr(again, name)(new), getattr(model, name)(new))
    for name in ("classes_", "intercept_", "log_evidence_", "n_iter_", "converged_", "n_features_in_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(model, name))
    with np.load(tmp_path / "bpm.npz", allow_pickle=False) as archive:  # nothing pickled
        assert all(not archive[name].dtype.hasobject for name in archive.files)


def test_bpm_file_of_more_features_than_points_is_of_functions(rng, tmp_path):
    X, y = points(rng, n=8, d=20)
    model = BayesPointMachine().fit(X, y)
    model.save(tmp_path / "bpm.npz")
    np.testing.assert_array_equal(load(tmp_path / "bpm.npz").predict_latent(X), model.predict_latent(X))


def test_bpm_with_a_function_as_kernel_cannot_be_saved(rng, tmp_path):
    model = BayesPointMachine(inner).fit(*points(rng))
    with pytest.raises(ValueError, match="kernel must be 'linear' or 'rbf' to be saved; got a function"):
        model.save(tmp_path / "bpm.npz")
    assert not list(tmp_path.iterdir())
