"""What must not matter does not: units and origin of the values, the order of entries and modes, names of rows.

Values in other units, moved values and entries in another order take the same path through the same starts, so that
every method, samplers too, answers the same up to the rounding of its sums: `CLOSE` times the spread of the values.
Rows under other names and modes in another order have other random starts and are passed through in another order: the
answers then differ as those of other seeds do, or by less than `SMALL` times the spread of the values.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from helpers.cases import each
from helpers.data import CLASSES, SHAPE, entries

import tensorcep as tc
from tensorcep.factor_models.settings import Gibbs as MatrixGibbs
from tensorcep.methods import CEP, WOPT, Gibbs

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # few sweeps on purpose
CLOSE, SMALL, SIGMAS = 1e-8, 0.03, 6.0
FEW = {"max_iter": 6, "tol": 0.0}
MODELS = {
    "regressor default": ("regressor", {"max_iter": 16}),
    "regressor cep": ("regressor", {"method": "cep"}),
    "regressor cep of order 2": ("regressor", {"method": CEP(order=2)}),
    "regressor cep averaged": ("regressor", {"method": CEP(messages="averaged")}),
    "regressor cep fixed": ("regressor", {"method": "cep", "prior": "fixed", "fit_intercept": True}),
    "regressor vmp": ("regressor", {"method": "vmp"}),
    "regressor laplace": ("regressor", {"method": "laplace"}),
    "regressor gibbs": ("regressor", {"method": Gibbs(n_chains=2), "max_iter": 16}),
    # the descent ends where the loss, a sum of 1e-16, no longer falls: factors of 1e-8 need another end
    "regressor wopt": ("regressor", {"method": WOPT(iterations=5), "max_iter": 2}),
    "classifier default": ("classifier", {"max_iter": 16}),
    "classifier cep": ("classifier", {"method": "cep"}),
    "classifier pg-vb": ("classifier", {"method": "pg-vb"}),
    "classifier laplace": ("classifier", {"method": "laplace"}),
    "classifier wopt": ("classifier", {"method": WOPT(iterations=5), "max_iter": 2}),
    "counts default": ("counts", {}),
    "counts cep": ("counts", {"method": "cep", "likelihood": "negbinomial"}),
    "counts laplace": ("counts", {"method": "laplace"}),
    "counts pg-vb": ("counts", {"method": "pg-vb", "likelihood": "negbinomial", "max_iter": 40}),
    "counts pg-gibbs": ("counts", {"method": "pg-gibbs", "likelihood": "negbinomial", "max_iter": 16}),
    "counts wopt": ("counts", {"method": WOPT(iterations=5), "max_iter": 2}),
}
LONG = {
    "regressor cep averaged",
    "regressor default",
    "classifier default",
    "counts default",
    "regressor cep of order 2",
}
# log-linear rates need more sweeps than six until the order of the modes, in which they are passed, does not show: what
# the modes' scales are hardly matters, so that they move slowly to where they are the same in any order
SETTLED = {"counts default": {"max_iter": 60}, "counts laplace": {"max_iter": 60}}
REGRESSORS = [name for name, (kind, _) in MODELS.items() if kind == "regressor"]


def tiered(names):
    """Those that take long, as mixtures and fits with pilots do, are of the slow tier."""
    return [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in names]


def fit(name, X, y, shape=SHAPE, seed=0, **params):
    kind, own = MODELS[name]
    model = CLASSES[kind](2, **{**FEW, **own, **params}, random_state=seed)
    return model.fit(tc.SparseTensor.from_coo(X, y, shape))


@cache
def fitted(name, seed=0, settled=False):
    """A shared model of the entries as they are: do not change it."""
    return fit(name, *entries(MODELS[name][0]), seed=seed, **(SETTLED.get(name, {}) if settled else {}))


def answers(model, X):
    """Means, and standard deviations where there are some; of labels, probabilities."""
    if isinstance(model, tc.CPClassifier):
        return model.predict_proba(X)[:, 1][None]
    return np.stack(model.predict(X, return_std=True)) if model.has_uncertainty() else model.predict(X)[None]


@cache
def answered(name, seed=0, settled=False):
    return answers(fitted(name, seed, settled), entries(MODELS[name][0])[0])


def check_close(found, expected, spread):
    np.testing.assert_allclose(found, expected, rtol=CLOSE, atol=CLOSE * spread)


@pytest.mark.parametrize("name", tiered(MODELS))
def test_equivariance_entries_in_another_order_give_the_same_answers(name, rng):
    X, y = entries(MODELS[name][0])
    shuffle = rng.permutation(len(y))
    check_close(answers(fit(name, X[shuffle], y[shuffle]), X), answered(name), 1.0)


@pytest.mark.parametrize("name", tiered(REGRESSORS))
@each(("factor", "moved"), [(1e-3, 0.0), (1e3, -500.0)])
def test_equivariance_values_in_other_units_give_the_same_answers(name, factor, moved):
    X, y = entries("regressor")
    found = answers(fit(name, X, factor * y + moved), X)
    found[0] -= moved
    check_close(found / factor, answered(name), y.std())


@each("name", ["regressor cep", "regressor vmp", "regressor gibbs"])
def test_equivariance_intervals_have_the_units_of_the_values(name):
    X, y = entries("regressor")
    plain, other = fitted(name), fit(name, X, 1e3 * y)
    check_close(np.array(other.predict_interval(X)) / 1e3, np.array(plain.predict_interval(X)), y.std())


@pytest.mark.parametrize(
    ("kind", "prior"),
    [
        ("regressor", "fixed"),
        ("classifier", "fixed"),
        *(pytest.param(kind, "auto", marks=pytest.mark.slow) for kind in CLASSES),
    ],
)
def test_equivariance_of_streams(kind, prior, rng):
    X, y = entries(kind)

    # of positive rows, the paper's, values are counted from 0 unless an intercept is asked for
    own = {"fit_intercept": True} if (kind, prior) == ("regressor", "fixed") else {}

    def learned(values, order):
        model = CLASSES[kind](2, method="cep", prior=prior, max_iter=5, tol=0.0, random_state=0, **own)
        for part in (order[:400], order[400:]):
            model.partial_fit(tc.SparseTensor.from_coo(X[part], values[part], SHAPE))
        return answers(model, X)

    same, shuffle = np.arange(600), np.append(rng.permutation(400), 400 + rng.permutation(200))
    plain = learned(y, same)
    check_close(learned(y, shuffle), plain, 1.0)
    if kind == "regressor":
        check_close(learned(1e3 * y, same) / 1e3, plain, y.std())
        moved = learned(y + 50.0, same)
        moved[0] -= 50.0
        check_close(moved, plain, y.std())


def check_within_seeds(found, name, spread):
    """Differences as small as between seeds, for all cells together."""
    seeds = np.stack([answered(name, seed, True)[0] for seed in range(4)])
    between = np.sqrt(seeds.var(axis=0, ddof=1).mean())
    apart = np.sqrt(np.mean((found[0] - seeds.mean(axis=0)) ** 2))
    assert apart < max(SIGMAS * between, SMALL * spread), (apart / spread, between / spread)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_equivariance_rows_and_modes_by_other_names_differ_as_seeds_do(name, rng):
    X, y = entries(MODELS[name][0])
    spread = y.std() if MODELS[name][0] != "classifier" else 1.0
    rows = [rng.permutation(n) for n in SHAPE]
    renamed = np.stack([row[index] for row, index in zip(rows, X.T, strict=True)], axis=1)
    more = SETTLED.get(name, {})
    check_within_seeds(answers(fit(name, renamed, y, **more), renamed), name, spread)
    order = [2, 0, 1]
    shape = tuple(SHAPE[k] for k in order)
    check_within_seeds(answers(fit(name, X[:, order], y, shape, **more), X[:, order]), name, spread)


MATRIX = np.random.default_rng(4).standard_normal((20, 2)) @ np.random.default_rng(5).standard_normal((2, 6))
MATRIX = MATRIX + 0.3 * np.random.default_rng(6).standard_normal((20, 6))
FACTORS = {
    "pca": lambda: tc.BayesianPCA(2, max_iter=30, tol=0.0, random_state=0),
    "pca vb": lambda: tc.BayesianPCA(2, method="vb", max_iter=30, tol=0.0, random_state=0),
    "pca gibbs": lambda: tc.BayesianPCA(2, method=MatrixGibbs(burn_in=5, thin=1), max_iter=20, random_state=0),
    "factor analysis": lambda: tc.BayesianFactorAnalysis(2, max_iter=30, tol=0.0, random_state=0),
    "cca": lambda: tc.BayesianCCA(2, max_iter=30, tol=0.0, random_state=0),
    "group": lambda: tc.GroupFactorAnalysis(2, max_iter=30, tol=0.0, random_state=0),
    "collective": lambda: tc.CollectiveMatrixFactorization(
        [("a", "b", "gaussian"), ("a", "c", "gaussian")], 2, max_iter=30, tol=0.0, random_state=0
    ),
}


def rebuilt(name, X):
    model = FACTORS[name]()
    if name.startswith(("pca", "factor")):
        return model.fit(X).reconstruct()
    views = [X[:, :3], X[:, 3:]]
    return np.hstack([model.fit(views).reconstruct(m) for m in range(2)])


@each("name", FACTORS)
def test_equivariance_of_factor_models(name):
    plain = rebuilt(name, MATRIX)
    for factor, moved in ((1e-3, 0.0), (1e3, 0.0), (1.0, 50.0)):
        check_close((rebuilt(name, factor * MATRIX + moved) - moved) / factor, plain, MATRIX.std())


LINEAR = {
    "logistic": tc.BayesianLogisticRegression,
    "logistic vb": lambda: tc.BayesianLogisticRegression("vb"),
    "probit": tc.BayesianProbitRegression,
    "probit cep1": lambda: tc.BayesianProbitRegression("cep1"),
    "point": tc.BayesPointMachine,
    "point rbf": lambda: tc.BayesPointMachine("rbf"),
}


@each("name", LINEAR)
def test_equivariance_of_linear_models(name, rng):
    """Points in another order, features in another order, labels swapped."""
    X = rng.standard_normal((40, 3))
    y = (X[:, 0] - 0.5 * X[:, 1] + 0.5 * rng.standard_normal(40) > 0.0).astype(int)
    p = LINEAR[name]().fit(X, y).predict_proba(X)
    shuffle, columns = rng.permutation(40), [2, 0, 1]
    tolerance = 1e-4  # to which the iterations end
    np.testing.assert_allclose(LINEAR[name]().fit(X[shuffle], y[shuffle]).predict_proba(X), p, atol=tolerance)
    np.testing.assert_allclose(LINEAR[name]().fit(X[:, columns], y).predict_proba(X[:, columns]), p, atol=tolerance)
    np.testing.assert_allclose(LINEAR[name]().fit(X, 1 - y).predict_proba(X)[:, ::-1], p, atol=tolerance)
