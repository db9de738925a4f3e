"""What `save` writes, `load` reads: every estimator by every method, however its fit ended, answers the same bits.

The cases are the package's own tables of estimators and methods; the broad grid is of the nightly tier.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

import tensorcep as tc
from tensorcep.cp.methods import METHODS
from tensorcep.estimators import ESTIMATORS, FACTOR_MODELS, FEATURE_MODELS, GP_MODELS
from tensorcep.factor_models.settings import SETTINGS as FACTOR_SETTINGS
from tensorcep.gaussian_process.settings import GP_METHODS
from tensorcep.linear.settings import ENGINES as LINEAR

RNG = np.random.default_rng(5)
SHAPE = (7, 6, 5)
CELLS = np.array(list(itertools.product(*map(range, SHAPE))))[RNG.permutation(np.prod(SHAPE))[:130]]
LATENT = np.prod([RNG.normal(0.6, 0.7, n)[c] for n, c in zip(SHAPE, CELLS.T, strict=True)], axis=0)
VALUES = LATENT + RNG.normal(0.0, 0.2, len(LATENT))
Y = {
    "CPRegressor": VALUES,
    "CPClassifier": np.where(np.median(VALUES) < VALUES, "yes", "no"),
    "CPCountRegressor": np.floor(3.0 * np.exp(VALUES)),
    "CPOrdinalClassifier": np.digitize(VALUES, np.quantile(VALUES, np.arange(1, 7) / 7)),
}
CUT = 4  # sweeps of a fit that is cut short


def stop(number: int, *_: Any) -> bool:
    """Stop a fit after two sweeps."""
    return number >= 2


def interrupt(number: int, *_: Any) -> None:
    """What Ctrl-C does in the second sweep."""
    if number == 2:
        raise KeyboardInterrupt


def table(name: str) -> pd.DataFrame:
    """The entries with labels of several kinds."""
    days = pd.date_range("2024-01-30", periods=SHAPE[2])
    users = np.array(["a", "b$", "Zoë", "10", "9", "\x1b[1m", "x,y"])
    return pd.DataFrame({"u": users[CELLS[:, 0]], "i": CELLS[:, 1] * 10, "day": days[CELLS[:, 2]], "y": Y[name]})


# How the fit of a CP model ends: ``end(model, name)`` gives the model, which it may have fitted in several ways.
Ending = Callable[[Any, str], Any]


def at_once(model: Any, name: str) -> Any:
    return model.fit(CELLS, Y[name])


def by_table(model: Any, name: str) -> Any:
    return model.fit(table(name), value="y")


def by_tolerance(model: Any, name: str) -> Any:
    return model.set_params(tol=1e3, max_iter=8).fit(CELLS, Y[name])


def by_callback(model: Any, name: str) -> Any:
    return model.set_params(callbacks=stop).fit(CELLS, Y[name])


def by_interrupt(model: Any, name: str) -> Any:
    model.fit(CELLS, Y[name])
    with contextlib.suppress(KeyboardInterrupt):
        model.set_params(callbacks=interrupt).fit(CELLS[::-1], Y[name][::-1])
    return model


def in_batches(model: Any, name: str) -> Any:
    for part in (slice(0, 70), slice(70, 100), slice(100, 130)):
        model.partial_fit(CELLS[part], Y[name][part], **({"classes": ["no", "yes"]} if name == "CPClassifier" else {}))
    return model


def by_fit_and_batch(model: Any, name: str) -> Any:
    return model.fit(CELLS[:90], Y[name][:90]).partial_fit(CELLS[90:], Y[name][90:])


def with_new_rows(model: Any, name: str) -> Any:
    frame = table(name)
    model.fit(frame, value="y")
    return model.with_rows(model.transform(frame.assign(u="new")[:20], value="y", mode="u"))


def warm(model: Any, name: str) -> Any:
    return model.fit(CELLS, Y[name]).fit(CELLS, Y[name], warm_start=True)


def weighted(model: Any, name: str) -> Any:
    return model.fit(CELLS, Y[name], sample_weight=1.0 + np.arange(len(CELLS)) % 3)


def fixed(model: Any, name: str) -> Any:
    return model.fit(CELLS, Y[name]).fit(CELLS, Y[name], fixed_modes=[0])


def forgotten(model: Any, name: str) -> Any:
    return model.fit(CELLS, Y[name]).forget_entries(CELLS[:3], data=CELLS, y=Y[name])


def without_rows(model: Any, name: str) -> Any:
    return model.fit(CELLS, Y[name]).forget_rows(0, [2], data=CELLS, y=Y[name])


ENDINGS: dict[str, Ending] = {
    own.__name__: own
    for own in (
        *(at_once, by_table, by_tolerance, by_callback, by_interrupt, in_batches, by_fit_and_batch, with_new_rows),
        *(warm, weighted, fixed, forgotten, without_rows),
    )
}


class Refusal:
    """That a call was refused, and how."""

    def __init__(self, error: Exception):
        self.error = error
        # a method that a class does not have is no fault; a name that the package should have had is one
        self.is_fault = isinstance(error, FloatingPointError) or (
            isinstance(error, AttributeError) and "partial_fit" not in str(error)
        )

    def __str__(self) -> str:
        return type(self.error).__name__


def quiet_call(call: Callable[[], Any]) -> Any:
    """What a call gives, or the words in which it is refused; warnings do not matter here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call()
        except (ValueError, TypeError, AttributeError, FloatingPointError) as error:
            return Refusal(error)


def same(one: Any, other: Any, where: str) -> None:
    """Compare what two models answer, to the bit."""
    if isinstance(one, pd.Series):
        one, other = one.to_frame(), other.to_frame()
    if isinstance(one, pd.DataFrame):
        assert list(one.index) == list(other.index), where
        same(one.to_dict("list"), other.to_dict("list"), where)
    elif isinstance(one, dict):
        assert list(one) == list(other), where
        for key in one:
            same(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), where
        for k, (a, b) in enumerate(zip(one, other, strict=True)):
            same(a, b, f"{where}.{k}")
    elif isinstance(one, (np.ndarray, float, int, np.generic)):
        np.testing.assert_array_equal(one, other, err_msg=where)
    else:
        assert str(one) == str(other), where


def cp_answers(model: Any, X: Any, y: Any) -> Iterator[tuple[str, Any]]:
    """What a CP model says of entries, rows and itself."""
    mode = 0 if model.labels_[0] is None else model.labels_[0].name
    calls: dict[str, Callable[[], Any]] = {
        "predict": lambda: model.predict(X),
        "sd": lambda: model.predict(X, return_std=True),
        "interval": lambda: model.predict_interval(X),
        "proba": lambda: model.predict_proba(X) if hasattr(model, "predict_proba") else 0,
        "expected": lambda: model.expected_value(X) if hasattr(model, "expected_value") else 0,
        "latent": lambda: model.predict_latent(X),
        "log_score": lambda: model.log_score(X, y),
        "sample_y": lambda: model.sample_y(X[:9], 3, random_state=0),
        "posterior": lambda: model.sample_posterior(2, X[:9], random_state=0),
        "one": lambda: model.sample_posterior(1, X[:9], random_state=0),
        "anomaly": lambda: model.anomaly_score(X, y),
        "components": lambda: model.components(mode),
        "explained": model.variance_explained,
        "summary": lambda: str(model.summary()),
        "similar": lambda: model.similar(mode, n=2),
        "recommend": lambda: model.recommend(mode, n=2),
        "explain": lambda: model.explain(X[:2]),
        "transform": lambda: model.transform(X[:9], y[:9], mode=mode, random_state=0).mean,
        "block": model.predict_block,
        "iterations": lambda: (model.n_iter_, model.converged_, model.n_samples_seen_),
        "learned": lambda: copied(model).partial_fit(X[:40], y[:40]).predict(X),
    }
    for key, call in calls.items():
        yield key, quiet_call(call)


def copied(model: Any) -> Any:
    """A model of its own."""
    return copy.deepcopy(model).set_params(callbacks=None, random_state=0)


def check(model: Any, answers: Callable[[Any], Iterator[tuple[str, Any]]], folder: Path) -> Any:
    """Save and load a model, compare what both answer, and return the one that was loaded."""
    before = dict(answers(model))
    model.save(folder / "model.npz")
    again = tc.load(folder / "model.npz")
    after = dict(answers(again))
    for key, value in before.items():
        same(value, after[key], key)
    again.save(folder / "again.npz")
    for key, value in dict(answers(tc.load(folder / "again.npz"))).items():
        same(value, before[key], f"{key} of a file of a file")
    return again


def cp_case(name: str, method: Any, ending: str, folder: Path, **params: Any) -> None:
    """Fit, save, load, ask."""
    sweeps = 12 if "gibbs" in str(method).lower() else CUT
    model = ESTIMATORS[name](**{"rank": 2, "random_state": 0, "max_iter": sweeps, "method": method, **params})
    found = quiet_call(lambda: ENDINGS[ending](model, name))
    if isinstance(found, Refusal):  # the package says itself what a method is not for
        assert not found.is_fault, found.error
        return
    ended = model if found is None else found
    asked = table(name) if ending in ("by_table", "with_new_rows") else None
    X, y = (CELLS[:60], Y[name][:60]) if asked is None else (asked.drop(columns="y")[:60], Y[name][:60])
    prior = params.get("prior")

    def answers(one: Any) -> Any:
        # what is known of rows is in no file, and a warning says so: a stream that keeps its first entries asks for it
        return cp_answers(one.set_params(prior=prior) if isinstance(prior, dict) else one, X, y)

    check(ended, answers, folder)


def cp_methods(name: str) -> list[str]:
    """The methods of an estimator."""
    return [method for method, engine in METHODS.items() if not engine.lacks(ESTIMATORS[name]()._spec().asked)]


PAIRS = [(name, method) for name in ESTIMATORS for method in cp_methods(name)]


# Matrices
MATRIX = RNG.normal(size=(9, 2)) @ RNG.normal(size=(2, 6)) + 0.1 * RNG.normal(size=(9, 6))
GAPPY = np.where(RNG.random(MATRIX.shape) < 0.15, np.nan, MATRIX)
FRAME = pd.DataFrame(GAPPY, index=[f"r{i}$" for i in range(9)], columns=["a", "b$", "ü", "\x1b[0m", "e", "f"])
OF_KIND: dict[str, Any] = {
    "gaussian": GAPPY,
    "bernoulli": np.where(np.isnan(GAPPY), np.nan, GAPPY > 0.0),
    "probit": np.where(np.isnan(GAPPY), np.nan, GAPPY > 0.0),
    "poisson": np.floor(np.exp(GAPPY)),
    "negbinomial": np.floor(np.exp(GAPPY)),
}
SECOND = np.where(RNG.random((9, 3)) < 0.1, np.nan, MATRIX[:, :3] ** 2)


def factor_fit(name: str, kind: str, ending: str, model: Any) -> tuple[Any, Any]:
    """A fitted factor model, and what it can be asked about."""
    X = OF_KIND[kind]
    if name == "CollectiveMatrixFactorization":
        data: Any = [X, SECOND]
    elif name in ("GroupFactorAnalysis", "BayesianCCA"):
        data = {"one$": pd.DataFrame(X, columns=FRAME.columns), "two": SECOND} if ending == "named" else [X, SECOND]
    else:
        data = pd.DataFrame(X, FRAME.index, FRAME.columns) if ending == "named" else X
    if ending == "in batches":
        return model.partial_fit(X[:6]).partial_fit(X[6:]), X
    if ending == "fit and batch":
        return model.fit(X).partial_fit(X[:4]), X
    if ending == "known rows":
        return model.set_params(row_prior=tc.Features(RNG.normal(size=(len(X), 2)))).fit(data), data
    return model.fit(data), data


def factor_answers(model: Any, data: Any) -> Iterator[tuple[str, Any]]:
    """What a factor model says of its matrices and of new rows."""
    one = hasattr(model, "score_samples")
    views = list(data.values()) if isinstance(data, dict) else data
    new = data if one else [views[0], None]
    cells = ([[0, 1], [2, 2]],) if one else ([[0, 1], [2, 2]], 0)
    calls: dict[str, Callable[[], Any]] = {
        "reconstruct": lambda: model.reconstruct() if one else [model.reconstruct(m) for m in (0, 1)],
        "transform": lambda: model.transform(new, return_cov=True),
        "entity": lambda: model.transform(new, "rows"),
        "missing": lambda: model.predict_missing(new),
        "latent": lambda: model.predict_latent() if one else 0,
        "scores": lambda: model.score_samples(new),
        "view": lambda: model.predict_view(new, 1),
        "cells": lambda: model.predict_cells(*cells, return_std=True),
        "explained": model.variance_explained,
        "components": lambda: model.components() if one else model.components(0),
        "summary": lambda: str(model.summary()),
        "iterations": lambda: (model.n_iter_, model.converged_),
        "learned": lambda: copy.deepcopy(model).partial_fit(new).components_,
    }
    for key, call in calls.items():
        yield key, quiet_call(call)


def factor_case(name: str, method: str, kind: str, ending: str, folder: Path) -> None:
    """Fit, save, load, ask."""
    params: dict[str, Any] = {"random_state": 0, "max_iter": 8}
    settings: Any = FACTOR_SETTINGS[method]
    params["method"] = settings(burn_in=3) if method == "gibbs" else method
    relations = [("rows", "a", kind), ("rows", "b", "gaussian")]
    if name == "CollectiveMatrixFactorization":
        params["relations"] = relations
    elif name in ("GroupFactorAnalysis", "BayesianCCA"):
        params["likelihood"] = [kind, "gaussian"]
    elif name == "BayesianPCA":
        params |= {"likelihood": kind} | ({"augmentation": "boehning"} if kind == "poisson" else {})
    elif kind != "gaussian":
        return
    model = FACTOR_MODELS[name](**params, n_components=2)
    if ending == "by tolerance":
        model.set_params(tol=1e3)
    if ending == "chosen" and name not in ("BayesianPCA", "BayesianFactorAnalysis"):
        return
    if ending == "chosen":
        model.set_params(n_components="auto")
    found = quiet_call(lambda: factor_fit(name, kind, ending, model))
    if isinstance(found, Refusal):  # the package says itself what a method is not for
        assert not found.is_fault, found.error
        return
    model, data = found
    check(model, lambda one: factor_answers(one, data), folder)


FACTOR_ENDINGS = ("cut", "by tolerance", "named", "in batches", "fit and batch", "known rows", "chosen")

# Points
X = RNG.normal(size=(24, 3))
LABELS = np.where(X[:, 0] + 0.5 * RNG.normal(size=24) > 0.0, "b$", "a")
COUNTS = np.floor(np.exp(X[:, 0]) + RNG.random(24))
THREE = np.array(["u", "v", "w"])[np.digitize(X[:, 0], [-0.5, 0.5])]


def feature_answers(model: Any) -> Iterator[tuple[str, Any]]:
    """What a model of feature vectors says of points."""
    frame = hasattr(model, "feature_names_in_")
    at = pd.DataFrame(X[:9] + 0.1, columns=["a", "b$", "c"]) if frame else X[:9] + 0.1
    names = ("predict", "predict_proba", "predict_latent", "decision_function", "predict_interval", "sample_y")
    asked = [name for name in (*names, "latent_mean_and_variance") if hasattr(model, name)]
    calls: dict[str, Callable[[], Any]] = {name: functools.partial(getattr(model, name), at) for name in asked}
    if hasattr(model, "log_marginal_likelihood"):
        calls["evidence"] = lambda: model.log_marginal_likelihood(model.kernel_.theta, eval_gradient=True)
    calls["iterations"] = lambda: (model.n_iter_, model.converged_)
    calls["learned"] = lambda: copy.deepcopy(model).partial_fit(X, LABELS).coef_
    for key, call in calls.items():
        yield key, quiet_call(call)


def feature_case(name: str, params: dict[str, Any], ending: str, folder: Path) -> None:
    """Fit, save, load, ask."""
    cls = {**FEATURE_MODELS, **GP_MODELS}[name]
    model = cls(**params)
    y: Any = COUNTS if "Count" in name else THREE if ending == "classes" else LABELS
    if ending == "cut":
        model.set_params(max_iter=1)
    if ending == "by tolerance":
        model.set_params(tol=1e3)
    given = pd.DataFrame(X, columns=["a", "b$", "c"]) if ending == "named" else X
    if ending == "in batches":
        found = quiet_call(lambda: model.partial_fit(X[:12], y[:12], classes=["a", "b$"]).partial_fit(X[12:], y[12:]))
    elif ending == "booleans":
        found = quiet_call(lambda: model.fit(X, y == "b$" if "Count" not in name else y))
    else:
        found = quiet_call(lambda: model.fit(given, y))
    if isinstance(found, Refusal):  # the package says itself what a method is not for
        assert not found.is_fault, found.error
        return
    check(model, feature_answers, folder)


POINT_ENDINGS = ("cut", "by tolerance", "named", "in batches", "booleans", "classes")
POINT_MODELS: list[tuple[str, dict[str, Any]]] = [
    *((name, {"method": method}) for name in FEATURE_MODELS if "Point" not in name for method in LINEAR.records),
    *((name, {"prior_scale": "evidence"}) for name in FEATURE_MODELS if "Point" not in name),
    *(
        ("BayesPointMachine", params)
        for params in ({}, {"kernel": "rbf"}, {"likelihood": "step", "slack": 0.1}, {"fit_intercept": False})
    ),
    *(
        (name, {"method": method, "optimizer": None, "kernel": ConstantKernel(1.0) * RBF([1.0, 2.0, 1.5])})
        for name in GP_MODELS
        for method in GP_METHODS
    ),
    *((name, {"kernel": Matern(1.0, nu=2.5) + RBF(3.0)}) for name in GP_MODELS),
    *((name, {"n_inducing": 5, "power": 0.5}) for name in GP_MODELS),
]

# What else a CP model can be: of each the estimator and its parameters, some of which no file holds.
FEW_LABELS = (("CPClassifier", "pg-vb"), ("CPCountRegressor", "vmp"), ("CPOrdinalClassifier", "gibbs"))
FEW = tuple(own.__name__ for own in (at_once, by_table, by_callback, in_batches))
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *(("CPRegressor", {"method": method, "noise": noise}) for method in ("gibbs", "vmp") for noise in (1, "entry")),
    *(("CPRegressor", {"method": method, "lower_limit": 0.0}) for method in ("gibbs", "vmp", "cep")),
    *(("CPRegressor", {"method": method, "upper_limit": 0.8}) for method in ("gibbs", "vmp")),
    *(("CPRegressor", {"prior": prior}) for prior in ("fixed", "learned", "ard")),
    *(("CPRegressor", {"interactions": parts}) for parts in ("cp", "main+cp", "pairwise", "all", {"main": 1, "cp": 1})),
    *(
        (name, {"method": method, "prior": {2: prior}})
        for name, method in (("CPRegressor", "gibbs"), ("CPRegressor", "vmp"), ("CPRegressor", "cep"), *FEW_LABELS)
        for prior in (tc.Series(), tc.Graph([(0, 1), (1, 2), (2, 3), (3, 4)]), tc.Features(np.eye(5, 2)))
    ),
    *(
        ("CPRegressor", {"method": method})
        for method in (
            *(tc.CEP(dtype="float32"), tc.CEP(messages="averaged"), tc.CEP(order=2), tc.CEP(keep_messages=True)),
            *(tc.CEP(n_ensemble=3), tc.Gibbs(n_chains=2), tc.Gibbs(n_chains=1)),
        )
    ),
    *(("CPRegressor", {"method": "cep", name: value}) for name, value in (("revisit", 20), ("forget", 0.1))),
    *(("CPClassifier", {"method": m, "link": "probit"}) for m in ("gibbs", "vmp", "cep", "laplace")),
    *(("CPOrdinalClassifier", {"method": m, "link": "logit"}) for m in ("cep", "laplace")),
    *(
        ("CPCountRegressor", {"method": method, **params})
        for method in ("vmp", "pg-vb", "gibbs", "cep")
        for params in (
            *({"likelihood": "poisson"}, {"likelihood": "negbinomial"}, {"likelihood": "negbinomial", "dispersion": 1}),
            {"likelihood": "negbinomial", "dispersion": 3.0},
            {"zero_inflation": True},
        )
    ),
]


@pytest.mark.parametrize(
    ("name", "method", "ending"),
    [
        ("CPRegressor", "cep", "in_batches"),
        ("CPRegressor", "gibbs", "by_interrupt"),
        ("CPRegressor", "vmp", "with_new_rows"),
        ("CPClassifier", "pg-gibbs", "by_callback"),
        ("CPCountRegressor", "vmp", "by_tolerance"),
        ("CPOrdinalClassifier", "gibbs", "by_table"),
        ("CPOrdinalClassifier", "cep", "at_once"),
    ],
)
def test_tensor_models_come_back_however_they_ended(name: str, method: str, ending: str, tmp_path: Path) -> None:
    cp_case(name, method, ending, tmp_path)


@each("name", FACTOR_MODELS)
def test_matrix_models_come_back(name: str, tmp_path: Path) -> None:
    factor_case(name, "vb", "gaussian", "named", tmp_path)


@each(("name", "params"), [*POINT_MODELS[:2], POINT_MODELS[-5], POINT_MODELS[-1]])
def test_models_of_points_come_back(name: str, params: dict[str, Any], tmp_path: Path) -> None:
    feature_case(name, params, "named", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "method"), PAIRS)
@each("ending", ENDINGS)
def test_tensor_models_come_back_by_every_method(name: str, method: str, ending: str, tmp_path: Path) -> None:
    cp_case(name, method, ending, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("ending", FEW)
@each(("name", "params"), VARIANTS)
def test_tensor_models_of_every_kind_come_back(name: str, params: dict[str, Any], ending: str, tmp_path: Path) -> None:
    cp_case(name, params.get("method", "vmp"), ending, tmp_path, **{k: v for k, v in params.items() if k != "method"})


@pytest.mark.slow
@pytest.mark.parametrize("name", FACTOR_MODELS)
@each("method", FACTOR_SETTINGS)
@each("kind", OF_KIND)
@each("ending", FACTOR_ENDINGS)
def test_matrix_models_come_back_by_every_method(
    name: str, method: str, kind: str, ending: str, tmp_path: Path
) -> None:
    factor_case(name, method, kind, ending, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("ending", POINT_ENDINGS)
@each(("name", "params"), POINT_MODELS)
def test_models_of_points_come_back_by_every_method(
    name: str, params: dict[str, Any], ending: str, tmp_path: Path
) -> None:
    feature_case(name, params, ending, tmp_path)


@each("name", ["CPOrdinalClassifier", "CPRegressor", "CPClassifier", "CPCountRegressor"])
def test_mixtures_are_drawn_from_though_a_member_gets_no_draw(name: str) -> None:
    model = ESTIMATORS[name](2, method=tc.CEP(n_ensemble=3, anneal=0), max_iter=2, random_state=0)
    quiet_call(lambda: model.fit(CELLS, Y[name]))
    for n in (1, 2, 3, 9):
        assert model.sample_posterior(n, CELLS[:4], random_state=0).shape == (n, 4)


@each("name", {**ESTIMATORS, **FACTOR_MODELS, **FEATURE_MODELS, **GP_MODELS})
def test_no_model_with_parameters_that_no_fit_takes_is_written_or_read(name: str, tmp_path: Path) -> None:
    params: dict[str, Any] = {"max_iter": 2}
    if name in ESTIMATORS:
        model: Any = ESTIMATORS[name](2, method="vmp", **params)
        quiet_call(lambda: model.fit(CELLS, Y[name]))
    elif name in FACTOR_MODELS:
        relations = {"relations": [("rows", "a", "gaussian"), ("rows", "b", "gaussian")]} if "Coll" in name else {}
        model = FACTOR_MODELS[name](n_components=1, **relations, **params)
        quiet_call(lambda: factor_fit(name, "gaussian", "cut", model))
    else:
        model = {**FEATURE_MODELS, **GP_MODELS}[name](**params)
        quiet_call(lambda: model.fit(X, COUNTS if "Count" in name else LABELS))
    model.save(tmp_path / "m.npz")
    right = (tmp_path / "m.npz").read_bytes()
    for parameter, value in (("max_iter", -5), ("tol", -1.0)):
        wrong = copy.copy(model).set_params(**{parameter: value})
        with pytest.raises(ValueError, match=f"cannot be saved to .*{parameter} must be"):
            wrong.save(tmp_path / "m.npz")
    assert (tmp_path / "m.npz").read_bytes() == right
    with np.load(tmp_path / "m.npz") as archive:
        content = dict(archive)
    fields = json.loads(content.pop("header").tobytes())
    fields["params"]["max_iter"] = -5
    del fields["checksum"]
    header = np.frombuffer(json.dumps(fields).encode(), dtype=np.uint8)
    np.savez(tmp_path / "m.npz", header=header, **content)
    with pytest.raises(ValueError, match=r"m\.npz' is not a complete model \(max_iter must be"):
        tc.load(tmp_path / "m.npz")
