"""Cases of factor models, linear models, Gaussian processes, message passing, files of entries and model selection."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern

import tensorcep as tc
from tensorcep.factor_models.settings import FactorisedVB, Gibbs
from tensorcep.gaussian_process import settings as gp
from tensorcep.linear import settings as glm
from tests.golden.cp_cases import USERS, answers, fitted
from tests.golden.data import cells, matrix, points, table, weights
from tests.golden.table import Arrays, case, frame, joined, lines

# Linear models.

LINEAR: dict[str, Any] = {
    "ep": "ep",
    "ep after every row": glm.EP(schedule="sequential"),
    "ep by quantiles": glm.EP(schedule="parallel", projection="w2"),
    "ep-factorized": "ep-factorized",
    "cep1": "cep1",
    "cep2": "cep2",
    "cep1 as published": glm.ConditionalEP(damping=0.1, stop="published", message_precision=1e-6),
    "lp": "lp",
    "vb": "vb",
    "is": glm.IS(n_draws=500),
    "is from the prior": glm.IS(n_draws=500, proposal="prior"),
}


def linear(make: Any, method: Any, sparse_too: bool = False, **params: Any) -> Arrays:
    """A linear model, its predictions, and one more batch."""
    X, y, new = points()
    given, asked = (sparse.csr_array(X), sparse.csr_array(new)) if sparse_too else (X, new)
    model = make(method, max_iter=30, **params).fit(given, y)
    out = of_points(model, asked)
    if not isinstance(method, glm.IS) and "prior_scale" not in params:
        model.partial_fit(given[:15] if not sparse_too else sparse.csr_array(X[:15]), y[:15])
        out |= {f"after a batch: {key}": value for key, value in of_points(model, asked).items()}
    return out


def of_points(model: Any, asked: Any) -> Arrays:
    out = {"coefficients": joined([model.coef_, model.intercept_]), "proba": model.predict_proba(asked)}
    out["latent"] = joined(model.predict_latent(asked))
    out["sizes"] = np.array([model.n_iter_, model.converged_])
    evidence = getattr(model, "log_evidence_", None)
    return out if evidence is None else {**out, "evidence": np.array(evidence, dtype=float)}


for word, method in LINEAR.items():
    case(f"linear/probit, {word}", tc.BayesianProbitRegression, method)(linear)
    case(f"linear/logistic, {word}", tc.BayesianLogisticRegression, method)(linear)
for word in ("ep", "cep1", "vb"):
    case(f"linear/sparse, {word}", tc.BayesianLogisticRegression, word, sparse_too=True)(linear)
case("linear/scale that is learned", tc.BayesianProbitRegression, "ep", prior_scale="evidence")(linear)
case("linear/two threads", tc.BayesianProbitRegression, "ep", n_jobs=2)(linear)


@case("linear/labels that are text", "ep")
def text_labels(method: str) -> Arrays:
    X, y, new = points()
    model = tc.BayesianLogisticRegression(method).fit(X, np.array(["no", "yes"])[y])
    return {"proba": model.predict_proba(new), "label": model.predict(new), "decision": model.decision_function(new)}


@case("point machine/linear", "linear")
@case("point machine/step", "linear", likelihood="step", slack=0.05)
@case("point machine/rbf", "rbf", length_scale=1.5)
@case("point machine/rbf in parallel", "rbf", schedule="parallel", prior_scale=2.0)
@case("point machine/no intercept", "linear", fit_intercept=False, damping=0.2)
def point_machine(kernel: str, **params: Any) -> Arrays:
    X, y, new = points()
    model = tc.BayesPointMachine(kernel, max_iter=40, **params).fit(X, y)
    out = {"proba": model.predict_proba(new), "latent": joined(model.predict_latent(new))}
    weights_ = model.coef_ if hasattr(model, "coef_") else model.dual_coef_
    return {**out, "weights": joined([weights_, model.intercept_]), "evidence": np.array(model.log_evidence_)}


# Gaussian processes.

PROCESSES: dict[str, dict[str, Any]] = {
    "ep": {},
    "ep after every site": {"method": gp.EP(schedule="sequential", damping=0.1)},
    "qp": {"method": "qp"},
    "qp by the table": {"method": gp.QP(rule="table")},
    "vb": {"method": "vb"},
    "laplace": {"method": "laplace"},
    "logit": {"likelihood": "logit"},
    "step": {"likelihood": "step", "slack": 0.05},
    "matern": {"kernel": ConstantKernel(1.0, "fixed") * Matern(1.0, nu=1.5)},
    "sum of kernels": {"kernel": 0.5 * RBF([1.0, 2.0, 1.0]) + 0.1 * DotProduct(0.5), "optimizer": None},
    "inducing points": {"n_inducing": 7, "random_state": 0},
    "inducing points, power": {"n_inducing": 7, "power": 0.4, "random_state": 0},
    "restarts": {"n_restarts_optimizer": 1, "random_state": 2},
}


def classified(classes: int = 2, **params: Any) -> Arrays:
    X, y, new = points(24)
    kernel = params.pop("kernel", 1.0 * RBF(1.0))
    codes = y if classes == 2 else y + (X[:, 1] > 0.7)
    model = tc.GaussianProcessClassifier(kernel, **params).fit(X, codes)
    out = {"proba": model.predict_proba(new), "draws": model.sample_y(new, 2).astype(float)}
    out |= {"latent": joined(model.latent_mean_and_variance(new)), "interval": model.predict_interval(new)}
    return {**out, **of_process(model)}


def of_process(model: Any) -> Arrays:
    evidence, slope = model.log_marginal_likelihood(model.kernel_.theta, eval_gradient=True)
    out = {"evidence": np.array([evidence, model.log_marginal_likelihood_value_]), "slope": np.asarray(slope)}
    return {**out, "kernel": model.kernel_.theta, "sizes": np.array([model.n_iter_, model.converged_])}


for word, params in PROCESSES.items():
    case(f"process of labels/{word}", **params)(classified)
case("process of labels/three classes", classes=3, optimizer=None)(classified)


@case("process of counts/ep")
@case("process of counts/ep of the log", link="log")
@case("process of counts/qp", method="qp")
@case("process of counts/vb", method="vb")
@case("process of counts/laplace of the log", method="laplace", link="log")
@case("process of counts/inducing points", n_inducing=6, power=0.7, random_state=0)
@case("process of counts/known mean", prior_mean=1.0, optimizer=None)
def counted(**params: Any) -> Arrays:
    X = np.linspace(0.0, 9.0, 22)[:, None]
    y, new = np.random.default_rng(2).poisson(2.0 + 1.5 * np.sin(X[:, 0])), np.array([[0.3], [4.2], [11.0]])
    model = tc.GaussianProcessCountRegressor(0.8 * RBF(1.5), **params).fit(X, y)
    out = {"predict": joined(model.predict(new, return_std=True)), "score": model.log_score(new, [1, 2, 3])}
    out |= {"interval": model.predict_interval(new), "interval of rates": model.predict_interval(new, of="rate")}
    return {**out, "draws": model.sample_y(new, 2).astype(float), **of_process(model)}


# Message passing as a library.

BLOCKS = np.random.default_rng(8).standard_normal((12, 2, 3))


@case("ep/probit", "probit")
@case("ep/logit in parallel", "logit", schedule="parallel")
@case("ep/power", "probit", power=0.5)
@case("ep/by quantiles", "probit", projection="w2")
@case("ep/poisson", "poisson", damping=0.3)
@case("ep/step", "step", theta=0.02)
@case("ep/filtering alone", "probit", max_iter=1)
def gaussian_ep(likelihood: str, theta: Any = None, **params: Any) -> Arrays:
    X, y, _ = points(25)
    result = tc.GaussianEP(prior_mean=0.1, prior_cov=2.0, tol=1e-8, **params).fit(X, y, likelihood, theta)
    return of_ep(result)


def of_ep(result: Any) -> Arrays:
    out = {"mean": result.mean, "covariance": result.cov, "evidence": np.array(result.log_evidence)}
    out["sizes"] = np.array([result.n_iter, result.converged, result.skipped])
    return {**out, "sites": joined(result.sites)}


@case("ep/function in Python")
def ep_of_function() -> Arrays:
    X, y, _ = points(15)

    def tilted(value: float, m: float, v: float) -> tuple[float, float, float]:
        alpha, beta = (value - m) / (v + 0.5), 1.0 / (v + 0.5)
        return -0.5 * np.log(2 * np.pi * (v + 0.5)) - 0.5 * alpha**2 / beta, alpha, beta

    return of_ep(tc.GaussianEP().fit(X, y.astype(float), tilted))


@case("ep/terms of rank two")
def ep_of_blocks() -> Arrays:
    def tilted(value: float, m: np.ndarray, V: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        S = np.linalg.inv(V + 0.7 * np.eye(2))
        alpha = S @ (value - m)
        return float(0.5 * np.linalg.slogdet(S)[1] - 0.5 * alpha @ (value - m)), alpha, S

    return of_ep(tc.GaussianEP().fit(BLOCKS, list(np.linspace(-1.0, 1.0, 12)), tilted))


@case("ep/process", "parallel")
@case("ep/process, after every site", "sequential")
def ep_of_process(schedule: str) -> Arrays:
    X, y, _ = points(15)
    return of_ep(tc.GaussianEP(prior_cov=RBF(1.0)(X), schedule=schedule).fit(None, y, "probit"))


@case("loopy belief propagation/grid", 0.0)
@case("loopy belief propagation/damped", 0.3)
def belief_propagation(damping: float) -> Arrays:
    rng = np.random.default_rng(4)
    factors: list[Any] = [((i,), rng.random(2 + i % 2)) for i in range(5)]
    factors += [((i, (i + 1) % 5), rng.random((2 + i % 2, 2 + (i + 1) % 5 % 2)) + 0.1) for i in range(5)]
    result = tc.LoopyBP(damping).fit([2 + i % 2 for i in range(5)], factors)
    sizes = np.array([result.n_iter, result.converged])
    out = {"marginals": joined(result.marginals), "beliefs": joined(result.beliefs), "sizes": sizes}
    return {**out, "evidence": np.array(result.log_evidence)}


# Factor models.

SAMPLER = Gibbs(burn_in=6, thin=2)
KINDS = ("gaussian", "bernoulli", "probit", "negbinomial")


def of_factors(model: Any) -> Arrays:
    out: Arrays = {"posterior": joined(model.posterior_), "weights": joined(model.weights_)}
    out["shares"] = joined([model.explained_variance_, model.noise_variance_])
    out["relevance"] = joined(model.relevance_)
    out["sizes"] = np.array([model.n_iter_, model.converged_, len(np.ravel(model.weights_))])
    out["bound"] = np.array(model.lower_bound_, dtype=float)
    for name, values in model.trace_.items():
        if name != "seconds":
            out[f"trace {name}"] = np.asarray(values, dtype=float)
    return out


def components(kind: str, method: Any, make: Any = tc.BayesianPCA, batch: bool = True, **params: Any) -> Arrays:
    """A model of one matrix, its questions, and one more batch where it learns batches."""
    X, new = matrix(kind), matrix(kind, 4, seed=6)
    own = {} if make is tc.BayesianFactorAnalysis else {"likelihood": kind}
    model = make(2, method=method, max_iter=12, random_state=0, **own, **params).fit(X)
    out = {**of_factors(model), "transform": joined(model.transform(new, return_cov=True))}
    out["missing"] = joined(model.predict_missing(return_std=True))
    out["missing of new rows"] = joined(model.predict_missing(new, return_std=True))
    out["latent"] = joined(model.predict_latent())
    out |= {"reconstruct": model.reconstruct(), "inverse": model.inverse_transform(np.eye(2))}
    out |= {"score": model.score_samples(new), **frame(model.components(), "components")}
    out |= frame(model.scores_frame(), "scores")
    out["summary"] = lines(model.summary())
    if batch and method == "vb":
        model.partial_fit(new)
        out["after a batch"] = joined([model.posterior_, model.transform(new)])
    return out


for kind in KINDS:
    for word, method in (("vb", "vb"), ("vb-factorized", "vb-factorized"), ("gibbs", SAMPLER)):
        case(f"components/{kind}, {word}", kind, method)(components)
for kind, augmentation in (
    ("bernoulli", "noise"),
    ("bernoulli", "boehning"),
    ("negbinomial", "noise"),
    ("poisson", "boehning"),
):
    case(f"components/{kind}, {augmentation}", kind, "vb", augmentation=augmentation, batch=False)(components)
case("components/bernoulli, noise, gibbs", "bernoulli", SAMPLER, augmentation="noise")(components)
case("components/negbinomial, noise, gibbs", "negbinomial", SAMPLER, augmentation="noise")(components)
case("components/poisson, boehning, factorised", "poisson", FactorisedVB(step=0.3), augmentation="boehning")(components)
case("components/analysis of factors, vb", "gaussian", "vb", tc.BayesianFactorAnalysis)(components)
case("components/analysis of factors, gibbs", "gaussian", SAMPLER, tc.BayesianFactorAnalysis)(components)
case("components/one noise, no relevance", "gaussian", "vb", noise="all", ard=False, bias="both")(components)
case("components/as they are, from random", "gaussian", "vb", standardize=False, init="random", bias="none")(components)
case("components/known dispersion", "negbinomial", "vb", dispersion=2.0)(components)
case("components/dispersion by row", "negbinomial", "vb", dispersion="row", batch=False)(components)


@case("components/default", "gaussian")
@case("components/default, labels", "bernoulli")
def by_default(kind: str) -> Arrays:
    model = tc.BayesianPCA(likelihood=kind, random_state=0).fit(matrix(kind, 20, 6))
    return {**of_factors(model), "reconstruct": model.reconstruct()}


@case("components/series of rows", "series")
@case("components/features of rows", "features")
def rows_known(what: str) -> Arrays:
    known = tc.Series() if what == "series" else tc.Features(np.linspace(-1.0, 1.0, 32).reshape(16, 2))
    X = np.vstack([matrix("gaussian"), np.full((2, 6), np.nan)])
    model = tc.BayesianPCA(2, row_prior=known, max_iter=12, random_state=0).fit(X)
    out = {**of_factors(model), "reconstruct": model.reconstruct(), "missing": joined(model.predict_missing())}
    return (
        {**out, **frame(model.feature_effects_, "effects")}
        if what == "features"
        else {**out, "lengths": model.lengths_}
    )


@case("components/sparse, and two threads", "missing")
@case("components/sparse zeros", "zero")
def of_sparse(absent: str) -> Arrays:
    X = sparse.csr_array(np.nan_to_num(matrix("negbinomial")))
    how = {"likelihood": "negbinomial", "absent": absent, "n_jobs": 2, "max_iter": 10, "random_state": 0}
    model = tc.BayesianPCA(2, **how).fit(X)
    return {**of_factors(model), "reconstruct": model.reconstruct()}


VIEWS = {"gaussian": ("gaussian", "gaussian"), "mixed": ("gaussian", "bernoulli"), "counts": ("negbinomial", "probit")}


def views(make: Any, kinds: Any, method: Any, **params: Any) -> Arrays:
    """A model of two views of the same rows."""
    kinds = VIEWS[kinds]
    X = [matrix(kind, d=4 + m, seed=5) for m, kind in enumerate(kinds)]
    model = make(2, likelihood=list(kinds), method=method, max_iter=12, random_state=0, **params).fit(X)
    out = {**of_factors(model), "scores": model.scores_, "loadings": joined(model.loadings_)}
    out["transform"] = joined(model.transform([X[0][:3], None], return_cov=True))
    out |= {
        "view": model.predict_view([X[0][:3], None], 1),
        "missing": joined(model.predict_missing(1, return_std=True)),
    }
    out |= {"reconstruct": model.reconstruct(0), **frame(model.variance_explained(), "shares by view")}
    out |= frame(model.components(1), "components")
    return {**out, "shared": np.asarray(model.shared_)} if hasattr(model, "shared_") else out


for word, method in (("vb", "vb"), ("vb-factorized", "vb-factorized"), ("gibbs", SAMPLER)):
    case(f"views/groups, gaussian, {word}", tc.GroupFactorAnalysis, "gaussian", method)(views)
    case(f"views/groups, mixed, {word}", tc.GroupFactorAnalysis, "mixed", method)(views)
    case(f"views/correlation, gaussian, {word}", tc.BayesianCCA, "gaussian", method)(views)
case("views/groups, counts, vb", tc.GroupFactorAnalysis, "counts", "vb")(views)
case("views/groups, one noise", tc.GroupFactorAnalysis, "gaussian", "vb", noise="view")(views)
case("views/groups, limit", tc.GroupFactorAnalysis, "gaussian", "vb", lower_limit=[None, -1.0])(views)
case("views/groups, series", tc.GroupFactorAnalysis, "gaussian", "vb", row_prior=tc.Series())(
    lambda make, kinds, method, **params: of_factors(
        make(2, method=method, max_iter=10, random_state=0, **params).fit([matrix("gaussian"), matrix("gaussian", d=4)])
    )
)
RELATIONS = [("users", "items", "gaussian"), ("items", "words", "negbinomial"), ("users", "tags", "bernoulli")]


@case("relations/vb-factorized", "vb-factorized")
@case("relations/vb", "vb")
@case("relations/gibbs", SAMPLER)
@case("relations/limit", "vb", lower_limit=[-1.0, None, None])
@case("relations/column offsets, two threads", "vb-factorized", bias="column", n_jobs=2)
def relations(method: Any, **params: Any) -> Arrays:
    X = [matrix("gaussian", 9, 7), matrix("negbinomial", 7, 5), matrix("bernoulli", 9, 4)]
    model = tc.CollectiveMatrixFactorization(RELATIONS, 2, method=method, max_iter=12, random_state=0, **params).fit(X)
    out = {**of_factors(model), "factors": joined(model.factors_), "reconstruct": model.reconstruct(1)}
    out["missing"] = joined(model.predict_missing(2, return_std=True))
    out["transform"] = joined(model.transform([X[0][:2], None, X[2][:2]], return_cov=True))
    out |= frame(model.scores_frame("items"), "scores")
    return {**out, **frame(model.variance_explained(), "shares by matrix")}


@case("components/of named rows and columns")
def named() -> Arrays:
    X = pd.DataFrame(matrix("gaussian"), index=[f"r{i}" for i in range(14)], columns=list("abcdef"))
    model = tc.BayesianPCA(2, max_iter=12, random_state=0).fit(X)
    wanted = pd.DataFrame({"row": ["r1", "r2"], "column": ["b", "c"]})
    out = frame(model.components(), "components") | frame(model.scores_frame(), "scores")
    return {**out, "cells": joined(model.predict_cells(wanted, return_std=True))}


# Files of models of every other family.


@case("saved and loaded/other families")
def other_files() -> Arrays:
    out: Arrays = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.npz")
        for name, model in other_models().items():
            model.save(path)
            out |= {f"{name}: {key}": value for key, value in of_other(tc.load(path)).items()}
    return out


def other_models() -> dict[str, Any]:
    """A small fitted model of every family but CP."""
    X, y, _ = points()
    counts = np.arange(12) % 4
    two = [matrix("gaussian"), matrix("bernoulli", d=4)]
    few = {"max_iter": 8, "random_state": 0}
    return {
        "probit regression": tc.BayesianProbitRegression("cep1", max_iter=20).fit(X, y),
        "logistic regression": tc.BayesianLogisticRegression("vb", max_iter=20).fit(X, y),
        "point machine": tc.BayesPointMachine("rbf").fit(X, y),
        "process of labels": tc.GaussianProcessClassifier(RBF(1.0), optimizer=None).fit(X, y),
        "process of counts": tc.GaussianProcessCountRegressor(RBF(2.0), optimizer=None).fit(X[:12], counts),
        "components": tc.BayesianPCA(2, **few).fit(matrix("gaussian")),
        "components of counts": tc.BayesianPCA(2, "negbinomial", SAMPLER, **few).fit(matrix("negbinomial")),
        "analysis of factors": tc.BayesianFactorAnalysis(2, **few).fit(matrix("gaussian")),
        "views": tc.GroupFactorAnalysis(2, ["gaussian", "bernoulli"], **few).fit(two),
        "correlation": tc.BayesianCCA(2, **few).fit([two[0], matrix("gaussian", d=4)]),
        "relations": tc.CollectiveMatrixFactorization([("a", "b", "gaussian"), ("a", "c", "bernoulli")], 2, **few).fit(
            two
        ),
    }


def of_other(model: Any) -> Arrays:
    """What a model of any family but CP predicts."""
    _, _, new = points()
    if hasattr(model, "predict_proba"):
        return {"proba": model.predict_proba(new)}
    if hasattr(model, "log_marginal_likelihood"):
        return {"predict": joined(model.predict(new, return_std=True))}
    if hasattr(model, "inverse_transform"):
        X = matrix(getattr(model, "likelihood", "gaussian"), 4, seed=6)
        return {
            "missing": joined(model.predict_missing(X, return_std=True)),
            "inverse": model.inverse_transform(np.eye(2)),
        }
    return {"reconstruct": joined([model.reconstruct(0), model.reconstruct(1), model.weights_])}


# Choosing models, and comparing them.

TIMES = ["seconds", "peak_mb"]


def entries(n: int = 120) -> tuple[tc.SparseTensor, tc.SparseTensor]:
    data = cells("real")
    tensor = data.tensor
    return tensor.select(np.arange(n)), tensor.select(np.arange(n, 140))


@case("selection/methods of a tensor")
def compared() -> Arrays:
    model = tc.CPRegressor(2, max_iter=8, random_state=0, interactions="cp")
    found = tc.compare(*entries(), ["cep", "vmp", "wopt", "laplace"], estimator=model)
    return frame(found.drop(columns=TIMES), "scores")


@case("selection/methods of a matrix")
def compared_matrices() -> Arrays:
    train, test = tc.SparseTensor.from_dense(matrix("gaussian")).train_test_split(0.2, 0)
    model = tc.BayesianPCA(2, max_iter=8, random_state=0)
    return frame(tc.compare(train, test, ["vb", "vb-factorized"], estimator=model).drop(columns=TIMES), "scores")


@case("selection/methods of points")
def compared_points() -> Arrays:
    X, y, _ = points()
    model = tc.BayesianProbitRegression(max_iter=20)
    found = tc.compare((X[:30], y[:30]), (X[30:], y[30:]), ["ep", "vb", "lp"], estimator=model)
    return frame(found.drop(columns=TIMES), "scores")


@case("selection/ranks of a tensor", "one_standard_error")
@case("selection/the best rank of a tensor", "best")
def ranks(rule: str) -> Arrays:
    model = tc.CPRegressor(method="vmp", max_iter=8, random_state=0, interactions="cp")
    found = tc.select_rank(model, cells("real").tensor, ranks=[1, 2, 3], cv=3, rule=rule, random_state=0)
    return {
        "ranks": np.array([found.rank, found.best_rank]),
        "scores": found.scores,
        **frame(found.frame.drop(columns="seconds"), "frame"),
    }


@case("selection/components of a matrix")
def numbers_of_components() -> Arrays:
    model = tc.BayesianPCA(max_iter=8, random_state=0)
    found = tc.select_rank(model, matrix("gaussian"), ranks=[1, 2], cv=3, random_state=0)
    return {"ranks": np.array([found.rank, found.best_rank]), "scores": found.scores}


@case("selection/replicability, seeds", "seeds")
@case("selection/replicability, halves", "halves")
def replicated(by: str) -> Arrays:
    model = tc.CPRegressor(2, method="vmp", max_iter=8, random_state=0, interactions="cp")
    out = frame(tc.replicability(model, cells("real").tensor, by=by, n_repeats=2), "tensor")
    components = tc.BayesianPCA(2, max_iter=8, random_state=0)
    return out | frame(tc.replicability(components, matrix("gaussian"), by=by, n_repeats=2), "matrix")


@case("selection/match of factors")
def matched() -> Arrays:
    data = cells("real")
    one, other = (fitted(tc.CPRegressor, data, method="vmp", random_state=seed, interactions="cp") for seed in (0, 1))
    scores = [tc.factor_match_score(one, other), tc.factor_match_score(one, other.factors_, weights=False)]
    return {"scores": np.array(scores)}


# Simulated data, files of entries, metrics.


@case("simulation/gaussian", noise_precision=4.0)
@case("simulation/probit", likelihood="probit", latent_sd=1.0)
@case("simulation/poisson", likelihood="poisson", intercept=0.5)
@case("simulation/negbinomial", likelihood="negbinomial")
def simulated(**params: Any) -> Arrays:
    found = tc.simulate_cp((7, 6, 5), 2, 60, random_state=3, **params)
    return {"cells": found.tensor.coords, "values": found.tensor.values, "rest": joined(found[1:])}


@case("files/tensors")
def tensors() -> Arrays:
    """A tensor is written and read in every format; and its views, parts and folds."""
    tensor = tc.SparseTensor.from_pandas(table().astype({"day": str}), ["user", "item", "day"], "value")
    out: Arrays = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("cells.tns", "cells.tns.gz", "cells.csv", "cells.csv.gz", "cells.npz", "cells.parquet"):
            if name.endswith("parquet") and importlib.util.find_spec("pyarrow") is None:
                continue
            path = Path(folder, name)
            given = tensor if "tns" not in name else cells("real").tensor
            tc.write_tensor(given, path)
            again = tc.read_tensor(path)
            out |= {f"{name}: cells": again.coords, f"{name}: values": again.values}
            out[f"{name}: labels"] = np.array([str(x) for found in again.labels if found is not None for x in found])
            if not name.endswith(("gz", "npz", "parquet")):
                out[f"{name}: text"] = np.array(path.read_text().splitlines()[:4])
    train, test = tensor.train_test_split(0.25, 0)
    out |= {"train": train.coords, "test": test.values, "zeros": tensor.sample_zeros(9, random_state=1).coords}
    out |= {"with zeros": tensor.with_zeros(4, random_state=1).values, "dense": tensor.to_dense()}
    out["folds"] = joined([part.values for pair in tensor.kfold(3, 0) for part in pair])
    out["batches"] = joined([part.values for part in tensor.minibatches(50, 0)])
    out["information"] = lines(tensor.info())
    return out


@case("files/csv of every kind")
def texts() -> Arrays:
    """Columns that are chosen, duplicates, counts of lines, indices from 0 and from 1."""
    out: Arrays = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "cells.csv")
        path.write_text("a,b,y,z\nx,p,1.5,3\ny,q,2,4\nx,p,2.5,3\n")
        for how in ({"duplicates": "mean"}, {"duplicates": "sum"}, {"duplicates": "last"}):
            found = tc.read_tensor(path, modes=["a", "b"], value="y", **how)
            out[f"{how}"] = np.column_stack([found.coords, found.values])
        counted_ = tc.read_tensor(path, modes=["a", "b"], value=None)
        out["lines are counted"] = np.column_stack([counted_.coords, counted_.values])
        path.write_text("1,1,0.5\n2,3,1\n")
        for base in (0, 1):
            found = tc.read_tensor(path, header=False, index_base=base, shape=(4, 4))
            out[f"from {base}"] = np.column_stack([found.coords, found.values])
        path = Path(folder, "cells.tns")
        path.write_text("# a comment\n2 3\n4 5\n1 1 0.5\n2 3 1\n4 5 1e-3\n")
        found = tc.read_tensor(path)
        out["with a header"] = np.column_stack([found.coords, found.values])
        out["its shape"] = np.array(found.shape)
    return out


@case("metrics/all")
def metrics() -> Arrays:
    rng = np.random.default_rng(6)
    y, p, sd, w = rng.standard_normal(30), rng.standard_normal(30), 0.5 + rng.random(30), weights(30)
    label, share = (y > 0.0).astype(float), 1.0 / (1.0 + np.exp(-p))
    m = tc.metrics
    numbers = [m.rmse(y, p), m.mae(y, p, w), m.auc(label, share), m.average_precision(label, share, w)]
    numbers += [m.accuracy(label, share), m.log_loss(label, share, w), m.brier(label, share)]
    numbers += [m.expected_calibration_error(label, share), m.gaussian_log_score(y, p, sd, w)]
    numbers += [m.crps_gaussian(y, p, sd), m.coverage(y, p - sd, p + sd), m.interval_score(y, p - sd, p + sd, 0.9)]
    return {"numbers": np.array(numbers), "curve": joined(m.reliability_curve(label, share))}


@case("river/one entry at a time")
def of_river() -> Arrays:
    if importlib.util.find_spec("river") is None:
        return {}
    from tensorcep.river import to_river

    online = to_river(tc.CPRegressor(2, method="cep", max_iter=6, random_state=0), ["user", "item", "day"], 40)
    found = []
    for line in table().astype({"day": str}).to_dict("records"):
        found.append(online.predict_one(line))
        online.learn_one(line, line["value"])
    return {"predicted": np.array(found)}


@case("arviz/draws and scores")
def of_arviz() -> Arrays:
    if importlib.util.find_spec("arviz") is None:
        return {}
    data = cells("real")
    model = fitted(tc.CPRegressor, data, method="gibbs")
    found = model.to_arviz(data.asked, data.answer, n_samples=20, random_state=0)
    return {name: joined([np.asarray(values) for values in found[name].data_vars.values()]) for name in found.groups()}


@case("dask/predictions of a table")
def of_dask() -> Arrays:
    if importlib.util.find_spec("dask") is None:
        return {}
    import dask.dataframe as dd

    entries_ = table().astype({"day": str})
    model = tc.CPRegressor(2, method="vmp", max_iter=6, random_state=0).fit(entries_, value="value")
    parts = dd.from_pandas(entries_.drop(columns="value"), npartitions=2)
    return {"predictions": tc.distributed.predict(model, parts).compute(scheduler="sync").to_numpy(float)}


@case("datasets/il2")
def of_il2() -> Arrays:
    tensor = tc.datasets.load_il2()
    train, test = tensor.train_test_split(0.2, 0)
    model = tc.CPRegressor(2, method="vmp", max_iter=5, random_state=0).fit(train)
    return answers(model, asked=test.to_pandas().iloc[:12, :-1])


# The shell.

FIT = "-o model.npz --rank 2 --max-iter 6 --threads 1"
SESSIONS: dict[str, tuple[str, list[str]]] = {
    "values": (
        "real",
        [
            "info data.csv",
            "split data.csv train.csv test.csv",
            f"fit train.csv {FIT} --method vmp",
            "predict model.npz test.csv -o predictions.csv --coverage 0.8",
            "evaluate model.npz test.csv",
            "recommend model.npz --mode item --given user=u1 -n 2 -o best.csv",
            "components model.npz --mode user -o components.csv",
            "score model.npz test.csv -o scores.csv --top 5",
            "convert data.csv data.npz",
            "info data.npz",
            "info model.npz",
        ],
    ),
    "series, features and a graph": (
        "real",
        [
            f"fit data.csv {FIT} --method vmp --series day --features user=users.csv --graph item=edges.csv",
            "predict model.npz data.csv -o predictions.csv",
        ],
    ),
    "labels": ("labels", [f"fit data.csv {FIT} --likelihood logit --method pg-vb", "evaluate model.npz data.csv"]),
    "levels": ("levels", [f"fit data.csv {FIT} --likelihood ordinal --method vmp", "evaluate model.npz data.csv"]),
    "counts": ("counts", [f"fit data.csv {FIT} --likelihood poisson --method vmp", "evaluate model.npz data.csv"]),
    "a stream": (
        "real",
        [
            "stream data.csv -o model.npz --rank 2 --max-iter 6 --batch-size 50 --trace trace.csv --scores scores.csv",
            "stream data.csv -o model.npz --rank 2 --max-iter 6 --batch-size 50 --trace trace.csv --resume",
            "predict model.npz data.csv -o predictions.csv",
        ],
    ),
    "components of a matrix": (
        "real",
        [
            "fit data.csv -o model.npz --model pca --modes user,item --duplicates mean --rank 2 --max-iter 6",
            "components model.npz --mode X -o components.csv",
            "info model.npz",
        ],
    ),
}


def session(kind: str, commands: list[str]) -> Arrays:
    """What commands say, seconds left out, and the numbers of the tables that they write."""
    from tensorcep.cli.main import main

    out, before = {}, os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        table(kind).astype({"day": str}).to_csv(Path(folder, "data.csv"), index=False)
        USERS[["age"]].to_csv(Path(folder, "users.csv"), index_label="user")
        pd.DataFrame([("i0", "i1"), ("i1", "i2")], columns=["one", "other"]).to_csv(
            Path(folder, "edges.csv"), index=False
        )
        os.chdir(folder)
        try:
            for command in commands:
                said = io.StringIO()
                with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                    code = main(command.split())
                out[command] = lines(f"exit code {code}\n{said.getvalue()}")
            for path in sorted(Path(folder).glob("*.csv")):
                if path.name not in ("data.csv", "users.csv", "edges.csv"):
                    out |= frame(pd.read_csv(path), path.name)
        finally:
            os.chdir(before)
    return out


for what, (kind, commands) in SESSIONS.items():
    case(f"shell/{what}", kind, commands)(session)
