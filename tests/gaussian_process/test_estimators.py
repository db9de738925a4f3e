"""The classifier and the regressor of counts: scikit-learn's checks, predictions, files, refusals."""

from __future__ import annotations

import inspect
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.sklearn_checks import check_contract
from helpers.unchanged import check_refused, check_refused_unfitted
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier as Peer
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    Kernel,
    Matern,
    PairwiseKernel,
    RationalQuadratic,
    WhiteKernel,
)
from threadpoolctl import threadpool_limits

from tensorcep import GaussianProcessClassifier, GaussianProcessCountRegressor, load
from tensorcep.gaussian_process import engine, evidence, latent
from tensorcep.gaussian_process.evidence import at_bounds, ties
from tensorcep.gaussian_process.settings import EP, QP

METHODS = ("ep", "qp", "vb", "laplace")
FIXED = {"optimizer": None}


def labelled(rng, n=40, d=2, classes=("no", "yes")):
    X = rng.normal(size=(n, d))
    code = np.digitize(X[:, 0] + 0.3 * rng.normal(size=n), np.linspace(-1.0, 1.0, len(classes) + 1)[1:-1])
    return X, np.array(classes)[code]


def counted(rng, n=25):
    X = np.linspace(0.0, 10.0, n)[:, None]
    return X, rng.poisson(2.0 + 1.5 * np.sin(X[:, 0]))


def test_classifier_passes_scikit_learns_checks(subtests):
    check_contract(GaussianProcessClassifier(1.0 * RBF(1.0), optimizer=None, tol=1e-4), subtests)


class OfRounded(GaussianProcessCountRegressor):
    """Fits the nearest counts: scikit-learn's checks give every regressor values between them, which ours refuses."""

    def fit(self, X, y):
        values = np.asarray(y)
        return super().fit(X, np.round(values) if values.dtype.kind == "f" else y)


def test_count_regressor_passes_scikit_learns_checks(subtests):
    check_contract(OfRounded(1.0 * RBF(1.0), optimizer=None, tol=1e-4), subtests)


def test_count_regressor_is_cloned_and_tagged():
    model = GaussianProcessCountRegressor(1.0 * RBF(2.0), link="log", method=QP(rule="quadrature"))
    again = clone(model)
    assert {k: repr(v) for k, v in again.get_params().items()} == {k: repr(v) for k, v in model.get_params().items()}
    assert again.__sklearn_tags__().target_tags.positive_only
    assert again.set_params(method__damping=0.5).method.damping == 0.5


@pytest.mark.parametrize("method", METHODS)
def test_methods_learn_a_kernel_and_agree(method, rng):
    X, y = labelled(rng)
    model = GaussianProcessClassifier(1.0 * RBF(1.0), method=method).fit(X, y)
    assert model.converged_
    assert model.score(X, y) > 0.85
    start = model.log_marginal_likelihood(np.zeros(2))
    value, gradient = model.log_marginal_likelihood(model.kernel_.theta, eval_gradient=True)
    assert value > start
    assert np.abs(gradient).max() < 1e-2 * (1.0 + abs(value))
    if method != "qp":
        np.testing.assert_allclose(value, model.log_marginal_likelihood_value_, rtol=1e-6)
    p, (mean, variance) = model.predict_proba(X), model.latent_mean_and_variance(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.predict(X), model.classes_[(mean > 0).astype(int)])
    assert (variance > 0.0).all()
    ends = model.predict_interval(X, 0.8)
    middle = np.abs(p[:, 1] - 0.5) < 0.45
    assert ((ends[:, 0] < p[:, 1]) & (p[:, 1] < ends[:, 1]))[middle].all()
    assert (ends[:, 0] <= ends[:, 1]).all()


def test_laplace_logit_equals_scikit_learn(rng):
    X, y = labelled(rng)
    kernel = ConstantKernel(1.5) * Matern([1.0, 2.0], nu=1.5)
    ours = GaussianProcessClassifier(kernel, method="laplace", likelihood="logit", tol=1e-9).fit(X, y)
    peer = Peer(kernel, optimizer=None).fit(X, y)
    theta = kernel.theta + 0.1
    for found, wanted in zip(
        ours.log_marginal_likelihood(theta, True), peer.log_marginal_likelihood(theta, True), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-8)
    assert ours.log_marginal_likelihood_value_ > peer.log_marginal_likelihood_value_


def test_several_classes_are_told_apart(rng):
    X, y = labelled(rng, 60, classes=("a", "b", "c"))
    model = GaussianProcessClassifier(4.0 * RBF(1.0), **FIXED).fit(X, y)
    p = model.predict_proba(X)
    assert p.shape == (60, 3)
    np.testing.assert_array_equal(model.predict(X), model.classes_[p.argmax(axis=1)])
    assert model.score(X, y) > 0.75
    assert model.latent_mean_and_variance(X)[0].shape == (60, 3)
    assert model.predict_interval(X).shape == (60, 3, 2)
    binary = GaussianProcessClassifier(4.0 * RBF(1.0), **FIXED).fit(X, y == "b")
    np.testing.assert_allclose(model.latent_mean_and_variance(X)[0][:, 1], binary.latent_mean_and_variance(X)[0])
    value, gradient = model.log_marginal_likelihood(eval_gradient=True)
    np.testing.assert_allclose(value, model.log_marginal_likelihood_value_)
    assert gradient.shape == (6,)
    draws = model.sample_y(X[:4], 4000, 1)
    shares = np.stack([(draws == c).mean(axis=1) for c in model.classes_], axis=1)
    assert np.abs(shares - p[:4]).max() < 0.15  # the normalised means are not the means of normalised draws


def test_step_with_slack_classifies_and_has_no_slope(rng):
    X, y = labelled(rng)
    model = GaussianProcessClassifier(4.0 * RBF(1.0), likelihood="step", slack=0.05, **FIXED).fit(X, y)
    assert model.score(X, y) > 0.8
    assert model.predict_proba(X).min() >= 0.05 - 1e-12
    qp = clone(model).set_params(method="qp", tol=1e-4).fit(X, y)
    np.testing.assert_allclose(qp.predict_proba(X), model.predict_proba(X), atol=0.1)
    with pytest.raises(ValueError, match="method must be 'ep' or 'qp' for the likelihood 'step'"):
        clone(model).set_params(method="vb").fit(X, y)


@each("link", ["square", "log"])
@pytest.mark.parametrize("method", METHODS)
def test_counts_are_fitted_by_every_method(link, method, rng):
    X, y = counted(rng)
    model = GaussianProcessCountRegressor(0.3 * RBF(1.5), link=link, method=method, **FIXED).fit(X, y)
    rate, std = model.predict(X, return_std=True)
    assert np.abs(rate - (2.0 + 1.5 * np.sin(X[:, 0]))).mean() < 0.8
    assert (std**2 >= rate * (1.0 - 1e-9)).all()
    ends, band = model.predict_interval(X, 0.9), model.predict_interval(X, 0.9, of="rate")
    assert (ends == np.round(ends)).all()
    assert np.mean((ends[:, 0] <= y) & (y <= ends[:, 1])) > 0.8
    assert ((band[:, 0] < rate) & (rate < band[:, 1])).all()
    total = np.exp([model.log_score(X[:3], np.full(3, k)) for k in range(40)]).sum(axis=0)
    np.testing.assert_allclose(total, 1.0, rtol=1e-6)
    draws = model.sample_y(X[:2], 1000, 0)
    np.testing.assert_allclose(draws.mean(axis=1), rate[:2], rtol=0.3)


def test_square_link_predicts_exactly_and_by_the_papers_negative_binomial(monkeypatch):
    from tensorcep.likelihoods.poisson import POISSON_SQUARE

    stored = json.loads((Path(__file__).parents[1] / "oracles" / "gp.json").read_text())
    wanted = stored["qp"]["poisson_predictive"]
    y, m, v = np.arange(6.0), np.full(6, wanted["mu"]), np.full(6, wanted["sigma"] ** 2)
    np.testing.assert_allclose(np.exp(POISSON_SQUARE.logpdf(y, m, v, 1.0)), wanted["exact_eq54"], rtol=1e-12)
    model = GaussianProcessCountRegressor(1.0 * RBF(1.0), optimizer=None).fit(y[:, None], y)
    monkeypatch.setattr(model, "_latent", lambda X: (m, v))
    found = np.exp(model.log_score(y[:, None], y, approximation="negative-binomial"))
    np.testing.assert_allclose(found, wanted["nb_eq119_122"], rtol=1e-12)


CASES = {
    "binary": lambda: GaussianProcessClassifier(1.0 * RBF([1.0, 2.0]) + 0.1 * Matern(2.0, nu=1.5), **FIXED),
    "several": lambda: GaussianProcessClassifier(method=QP(rule="table"), max_iter=50, **FIXED),
    "inducing": lambda: GaussianProcessClassifier(1.0 * RBF(1.0), n_inducing=9, random_state=0, **FIXED),
}


@pytest.mark.parametrize("name", CASES)
def test_file_gives_the_same_predictions_to_the_bit(name, rng, tmp_path):
    X, y = labelled(rng, classes=("a", "b", "c") if name == "several" else ("no", "yes"))
    model = CASES[name]().fit(pd.DataFrame(X, columns=["u", "v"]), y)
    model.save(tmp_path / "gp.npz")
    again = load(tmp_path / "gp.npz")
    new = pd.DataFrame(rng.normal(size=(7, 2)), columns=["u", "v"])
    for call in ("predict", "predict_proba", "predict_interval", "sample_y"):
        np.testing.assert_array_equal(getattr(again, call)(new), getattr(model, call)(new))
    assert repr(again.get_params()) == repr(model.get_params())
    for attribute in ("kernel_", "log_marginal_likelihood_value_", "n_iter_", "converged_"):
        assert getattr(again, attribute) == getattr(model, attribute)
    assert again.log_marginal_likelihood(model.kernel_.theta) == model.log_marginal_likelihood(model.kernel_.theta)
    with np.load(tmp_path / "gp.npz", allow_pickle=False) as archive:
        assert all(not archive[part].dtype.hasobject for part in archive.files)


def test_file_of_counts_gives_the_same_predictions(rng, tmp_path):
    X, y = counted(rng, 15)
    model = GaussianProcessCountRegressor(0.3 * RBF(1.5), prior_mean=1.5, **FIXED).fit(X, y)
    model.save(tmp_path / "gp.npz")
    again = load(tmp_path / "gp.npz")
    np.testing.assert_array_equal(again.predict_interval(X), model.predict_interval(X))
    assert again.prior_mean_ == 1.5


class Own(Kernel):
    """A kernel that is none of scikit-learn's."""

    def __init__(self):
        pass

    def __call__(self, X, Y=None, eval_gradient=False):
        K = np.exp(-np.abs(X[:, None, 0] - (X if Y is None else Y)[None, :, 0]))
        return (K, np.empty((*K.shape, 0))) if eval_gradient else K

    def diag(self, X):
        return np.ones(len(X))

    def is_stationary(self):
        return True


class Negative(Own):
    """No covariance."""

    def __call__(self, X, Y=None, eval_gradient=False):
        return super().__call__(X, Y) - 1.5


@pytest.mark.filterwarnings("ignore:the kernel was learned with:sklearn.exceptions.ConvergenceWarning")
def test_own_kernels_fit_but_no_file_can_hold_them(rng, tmp_path):
    X, y = labelled(rng, 20)
    model = GaussianProcessClassifier(2.0 * Own()).fit(X, y)
    assert model.score(X, y) > 0.7
    with pytest.raises(ValueError, match="to be saved; got Own, which files cannot hold"):
        model.save(tmp_path / "gp.npz")
    assert not list(tmp_path.iterdir())


def test_file_decides_about_values_never_about_code(rng, tmp_path):
    X, y = labelled(rng, 12)
    path = tmp_path / "gp.npz"
    GaussianProcessClassifier(1.0 * RBF(1.0), **FIXED).fit(X, y).save(path)
    for change in ('"RBF"->"Kernel"', '"length_scale": 1.0->"length_scale": null', '"RBF"->"os.system"'):
        with np.load(path) as archive:
            content = {name: archive[name] for name in archive.files}
        old, new = change.split("->")
        header = json.loads(content["header"].tobytes())
        header.pop("checksum")
        text = json.dumps(header)
        assert old in text
        content["header"] = np.frombuffer(text.replace(old, new).encode(), dtype=np.uint8)
        np.savez(tmp_path / "odd.npz", **content)
        with pytest.raises(ValueError, match=r"odd\.npz' is not a complete model"):
            load(tmp_path / "odd.npz")


REFUSED = [
    ({"kernel": 3.0}, TypeError, "kernel must be a kernel of sklearn.gaussian_process.kernels, or None; got float"),
    ({"kernel": RBF() + WhiteKernel()}, ValueError, "kernel must have no WhiteKernel"),
    ({"kernel": Negative()}, ValueError, "kernel must be positive definite at the points"),
    ({"kernel": PairwiseKernel(metric="sigmoid", gamma=5.0)}, ValueError, "kernel must be positive definite"),
    ({"kernel": PairwiseKernel(metric="sigmoid", gamma=5.0), "n_inducing": 9}, ValueError, "kernel must be positive"),
    ({"likelihood": "cauchit"}, ValueError, "likelihood must be one of 'probit', 'logit', 'step'; got 'cauchit'"),
    ({"likelihood": "step", "slack": 0.5}, ValueError, "slack must be a number in \\[0, 0.5\\); got 0.5"),
    ({"slack": 0.1}, ValueError, "slack has a meaning only with likelihood='step'"),
    ({"method": "mcmc"}, ValueError, "method must be one of 'ep', 'qp', 'vb', 'laplace'; got 'mcmc'"),
    ({"method": EP}, ValueError, "got the class; write EP\\(\\)"),
    ({"method": QP(rule="table"), "likelihood": "logit"}, ValueError, "rule='table' is for the likelihood 'probit'"),
    ({"optimizer": "adam"}, ValueError, "optimizer must be one of 'l-bfgs'; got 'adam'"),
    ({"n_inducing": 0}, ValueError, "n_inducing must be an integer from 1 to 12; got 0"),
    ({"n_inducing": 5, "method": "vb"}, ValueError, "method must be 'ep' with n_inducing; got 'vb'"),
    ({"power": 0.5}, ValueError, "power has a meaning only with n_inducing"),
    ({"tol": 0.0}, ValueError, "tol must be a number > 0"),
    ({"n_restarts_optimizer": -1}, ValueError, "n_restarts_optimizer must be an integer >= 0"),
    ({"n_restarts_optimizer": 2, "optimizer": None}, ValueError, "n_restarts_optimizer has a meaning only with"),
    ({"random_state": "x"}, ValueError, "random_state must be None"),
]


@each(("params", "error", "message"), REFUSED)
def test_classifier_refuses_what_it_cannot_do_before_any_work(params, error, message, rng):
    X, y = labelled(rng, 12)
    with pytest.raises(error, match=message):
        GaussianProcessClassifier(**params).fit(X, y)


def test_refused_calls_change_nothing(rng, tmp_path):
    X, y = labelled(rng, 12)
    model = GaussianProcessClassifier(1.0 * RBF(1.0), **FIXED).fit(X, y)
    hole = np.where(np.arange(24).reshape(12, 2) == 3, np.nan, X)
    answers = [lambda m: m.predict_proba(X)]
    for what, call in {
        "hole": lambda: model.fit(hole, y),
        "masked points": lambda: model.fit(np.ma.masked_invalid(hole), y),
        "masked labels": lambda: model.fit(X, np.ma.array(y, mask=np.arange(12) == 3)),
        "one class": lambda: model.fit(X, np.full(12, "a")),
        "lengths": lambda: model.fit(X, y[:-1]),
        "features": lambda: model.predict(X[:, :1]),
        "theta": lambda: model.log_marginal_likelihood([1.0]),
        "no number": lambda: model.log_marginal_likelihood([np.nan, 0.0]),
        "overflow": lambda: model.log_marginal_likelihood([800.0, 0.0]),
        "coverage": lambda: model.predict_interval(X, 1.5),
    }.items():
        check_refused(model, call, answers=answers, folder=tmp_path, what=what)
    fresh = GaussianProcessClassifier("rbf")
    check_refused_unfitted(fresh, lambda: fresh.fit(X, y))


def test_masked_numbers_are_refused(rng):
    X, y = counted(rng, 12)
    masked, some = np.ma.array(X, mask=X[4] == X), np.ma.array(y, mask=np.arange(12) == 4)
    model = GaussianProcessCountRegressor(1.0 * RBF(1.0), **FIXED).fit(X, y)
    for call in (
        lambda: model.fit(masked, y),
        lambda: model.fit(X, some),
        lambda: model.predict(masked),
    ):
        with pytest.raises(ValueError, match=r"[Xy] must have no masked numbers; got some, the first at entry 4"):
            call()


@pytest.mark.parametrize("y", [[0, 1, 2.5, 1], [0, -1, 2, 1]])
def test_count_regressor_refuses_what_are_no_counts(y):
    with pytest.raises(ValueError, match="y must hold counts, integers >= 0"):
        GaussianProcessCountRegressor().fit(np.arange(4.0)[:, None], y)


def test_large_exact_fits_are_refused_before_the_work(monkeypatch):
    X, y = np.zeros((10_000, 1)), np.arange(10_000) % 2
    with pytest.raises(ValueError, match="10000 points takes about 3.2 GB .* more than 3 GB; set n_inducing"):
        GaussianProcessClassifier().fit(X, y)
    with pytest.raises(ValueError, match="6900 points takes about 3.05 GB"):  # derivatives by two parameters
        GaussianProcessClassifier(RationalQuadratic() + RBF(1.0, "fixed")).fit(np.zeros((6900, 1)), y[:6900])
    monkeypatch.setattr(latent, "memory_of_machine", lambda: 10**6)
    with pytest.raises(ValueError, match="400 points takes about 0.00512 GB"):
        GaussianProcessClassifier().fit(X[:400], y[:400])


@pytest.mark.parametrize("method", ["ep", "laplace"])
def test_exact_fits_hold_three_matrices_and_factor_once_a_sweep(method, rng, monkeypatch):
    X, y = labelled(rng, 500)
    calls, factor = [], engine._cholesky
    monkeypatch.setattr(engine, "_cholesky", lambda B: calls.append(0) or factor(B))
    for module in (evidence, engine):
        monkeypatch.setattr(module, "ROWS", 64)
    model = GaussianProcessClassifier(
        4.0 * RBF(1.0) + Matern(2.0, nu=1.5), method=method, optimizer=lambda f, start, bounds: (start, f(start)[0])
    )
    clone(model).set_params(optimizer=None).fit(X[:50], y[:50])
    calls.clear()
    tracemalloc.start()
    model.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8.0 * 500**2 * 3.5
    assert len(calls) <= 2 * model.n_iter_ + 1  # a search of one step and the last fit, which starts afresh
    whole = GaussianProcessClassifier(model.kernel, method=method, **FIXED)
    monkeypatch.setattr(evidence, "ROWS", 10_000)
    np.testing.assert_allclose(whole.fit(X, y).predict_proba(X), model.predict_proba(X), atol=1e-8)


def test_duplicates_and_constant_columns_are_no_trouble(rng):
    X, y = labelled(rng, 20)
    X = np.repeat(np.column_stack([X, np.ones(20)]), 2, axis=0)
    y = np.repeat(y, 2)
    for method in METHODS:
        model = GaussianProcessClassifier(1.0 * RBF([1.0, 1.0, 1.0]), method=method, **FIXED).fit(X, y)
        assert model.converged_
        np.testing.assert_allclose(model.predict_proba(X[::2]), model.predict_proba(X[1::2]), rtol=1e-9)


def test_failed_starts_are_counted_and_said(rng):
    X, y = labelled(rng, 20)

    def sometimes(loss, start, bounds):
        if start[0] > 0.0:
            raise FloatingPointError
        return start, loss(start, eval_gradient=False)

    kernel = RBF(0.5, (0.1, 10.0))
    model = GaussianProcessClassifier(kernel, optimizer=sometimes, n_restarts_optimizer=8, random_state=1)
    with pytest.warns(ConvergenceWarning, match="of 9 starts of the optimiser failed"):
        model.fit(X, y)
    with pytest.raises(ValueError, match="needs finite bounds"):
        GaussianProcessClassifier(RBF(1.0, (1e-3, np.inf)), n_restarts_optimizer=1).fit(X, y)


def features(n):
    """Points of ten features, some of which say nothing."""
    return make_classification(
        n, 10, n_informative=5, n_redundant=2, flip_y=0.12, class_sep=0.8, random_state=0, shuffle=True
    )


def of_scales(length):
    """Kernels by name, with these length scales."""
    return {
        "rbf": ConstantKernel(1.0) * RBF(length),
        "matern": ConstantKernel(1.0) * Matern(length, nu=2.5),
        "sum": ConstantKernel(1.0) * RBF(length) + ConstantKernel(0.1, "fixed"),
        "product": Matern(length, nu=1.5) * RBF(3.0, "fixed"),
        "bounded": ConstantKernel(1.0, (0.5, 2.0)) * RBF(length, (3.0, 50.0)),
    }


@pytest.mark.filterwarnings("ignore:the kernel was learned with:sklearn.exceptions.ConvergenceWarning")
@each("name", of_scales(1.0))
def test_a_scale_for_every_feature_is_no_worse_than_one_for_all(name):
    X, y = features(40)
    one = GaussianProcessClassifier(of_scales(4.0)[name], method="laplace").fit(X, y)
    every = GaussianProcessClassifier(of_scales(np.full(10, 4.0))[name], method="laplace").fit(X, y)
    assert every.log_marginal_likelihood_value_ >= one.log_marginal_likelihood_value_ - 1e-6
    if name != "matern":
        return
    counts = GaussianProcessCountRegressor(of_scales(np.full(10, 4.0))[name], method="laplace").fit(X, y)
    of_one = GaussianProcessCountRegressor(of_scales(4.0)[name], method="laplace").fit(X, y)
    assert counts.log_marginal_likelihood_value_ >= of_one.log_marginal_likelihood_value_ - 1e-6


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the kernel was learned with:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("params", [{}, {"method": "laplace"}, {"method": "vb"}, {"n_inducing": 60, "random_state": 3}])
def test_scales_of_ten_features_are_found_from_one(params):
    X, y = features(1200)
    model = GaussianProcessClassifier(ConstantKernel(1.0) * RBF(np.ones(10)), **params).fit(X[:600], y[:600])
    p = model.predict_proba(X[600:])[np.arange(600), y[600:]]
    assert model.log_marginal_likelihood_value_ >= (-260.0 if "n_inducing" in params else -256.0 if params else -255.0)
    assert -np.log(p).mean() < 0.42


def test_ties_of_scales_and_starts_within_their_bounds():
    kernel = RBF([1.0, 2.0]) * ConstantKernel(2.0) + Matern([1.0, 3.0, 4.0], nu=1.5) + RBF([1.0, 1.0], "fixed")
    assert ties(kernel).tolist() == [0, 0, 2, 3, 3, 3]
    assert at_bounds(RBF([1.0, 2.0], (1.0, 9.0))) == ["length_scale[0] at its lower bound 1"]


def test_parameters_that_end_at_a_bound_are_named(rng):
    X, y = labelled(rng, 30)
    kernel = 1.0 * RBF(1.0, (1e-3, 1e-2))
    with pytest.warns(ConvergenceWarning, match=r"learned with .*k2__length_scale at its upper bound 0\.01; wider"):
        GaussianProcessClassifier(kernel).fit(X, y)
    GaussianProcessClassifier(kernel, **FIXED).fit(X, y)  # was not learned
    far = RBF([1.0, 1.0], [(1.0, 2.0), (5.0, 9.0)])  # no scale for both
    with pytest.warns(ConvergenceWarning, match="learned with"):
        GaussianProcessClassifier(far).fit(X, y)


def test_too_few_sweeps_are_said(rng):
    X, y = labelled(rng, 20)
    with pytest.warns(ConvergenceWarning, match="ep stopped after max_iter=2 sweeps"):
        assert not GaussianProcessClassifier(1.0 * RBF(1.0), max_iter=2, **FIXED).fit(X, y).converged_


def test_arviz_container_holds_draws(rng):
    pytest.importorskip("arviz")
    X, y = counted(rng, 12)
    model = GaussianProcessCountRegressor(0.3 * RBF(1.5), **FIXED).fit(X, y)
    data = model.to_arviz(X, y, n_samples=300)
    f = np.asarray(data["posterior"]["f"])
    mean, variance = model.latent_mean_and_variance(X)
    assert f.shape == (1, 300, 12)
    assert (np.abs(f[0].mean(axis=0) - mean) < 6.0 * np.sqrt(variance / 300)).all()
    assert np.asarray(data["observed_data"]["y"]).tolist() == y.tolist()


@pytest.mark.parametrize("kind", [GaussianProcessClassifier, GaussianProcessCountRegressor])
def test_every_parameter_is_documented(kind):
    doc = inspect.getdoc(kind)
    assert [p for p in inspect.signature(kind).parameters if f"\n{p} : " not in doc] == []


def test_fits_are_the_same_on_one_and_two_threads(rng):
    X, y = labelled(rng, 80)
    found = []
    for threads in (1, 2):
        with threadpool_limits(limits=threads):
            model = GaussianProcessClassifier(1.0 * RBF(1.0), tol=1e-4).fit(X, y)
            found.append(model.predict_proba(X))
    np.testing.assert_array_equal(*found)
