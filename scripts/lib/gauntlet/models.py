"""The default of every model, the named settings that the oracle chooses among, and what a fit says of test cells."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.special import ndtr

from scripts.lib.accuracy import DRAWS, probability_below
from scripts.lib.gauntlet.matrices import RECOMMENDER
from scripts.lib.gauntlet.record import Answer, Cell, Problem
from tensorcep import (
    BayesianFactorAnalysis,
    BayesianPCA,
    CollectiveMatrixFactorization,
    CPClassifier,
    CPCountRegressor,
    CPRegressor,
    GroupFactorAnalysis,
    SparseTensor,
)

DEFAULT = "default"
RANKS = (2, 4, 8, 16, 32)
INTERACTIONS = ("cp", "main+cp", "all")
CP = {"values": CPRegressor, "labels": CPClassifier, "counts": CPCountRegressor}
ENGINES = {
    "values": ("cep", "laplace", "vmp", "gibbs", "wopt"),
    "labels": ("cep", "laplace", "vmp", "gibbs", "pg-gibbs", "pg-vb", "wopt"),
    "counts": ("cep", "laplace", "wopt", "pg-gibbs", "pg-vb"),
}
STREAM_ENGINES = {"values": ("cep", "vmp"), "labels": ("cep", "vmp"), "counts": ("cep",)}
FACTOR_ENGINES = ("vb-factorized", "vb", "gibbs")
CALIBRATED = 1000  # test cells of which the predictive probability below the value is taken, by draws
WARM_UP = {"values": 0.5, "labels": 1.0, "counts": 2.0}  # multiples of 0 and 1 that serve as y


class Standardised:
    """A factor model of columns of unit scale: what a careful user would do by hand."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def fit(self, x: np.ndarray) -> Standardised:
        self.mean, sd = np.nanmean(x, axis=0), np.nanstd(x, axis=0)
        self.sd = np.where(sd > 0.0, sd, 1.0)
        self.model.fit((x - self.mean) / self.sd)
        return self

    def predict_missing(self, return_std: bool) -> tuple[np.ndarray, np.ndarray]:
        mean, sd = self.model.predict_missing(return_std=True)
        return self.mean + self.sd * mean, self.sd * sd


def default(cell: Cell, seed: int) -> Any:
    """The estimator with nothing set but the seed, and what data the model is for."""
    if cell.model in ("cp", "stream"):
        return CP[cell.observed](random_state=seed)
    if cell.model == "cmf":
        return CollectiveMatrixFactorization(RECOMMENDER, random_state=seed)
    if cell.model == "gfa":
        return GroupFactorAnalysis(random_state=seed)
    if cell.model == "fa":
        return BayesianFactorAnalysis(random_state=seed)
    return BayesianPCA(likelihood="bernoulli" if cell.observed == "labels" else "gaussian", random_state=seed)


def oracles(cell: Cell, engines: Sequence[str], ranks: Sequence[int], interactions: Sequence[str]) -> list[str]:
    """Names of the settings that the oracle chooses among; `engines`: of these alone, where any are given."""
    if cell.model == "cp":
        named = itertools.product(ENGINES[cell.observed], ranks, interactions)
    elif cell.model == "stream":
        named = itertools.product(STREAM_ENGINES[cell.observed], ranks, ("fixed", "learned"))
    elif cell.model in ("pca", "fa") and cell.observed == "values":
        models = itertools.product(("pca", "fa"), ("as-they-are", "standardised"))
        named = itertools.product(FACTOR_ENGINES, ranks, ("/".join(words) for words in models))
    else:
        named = itertools.product(FACTOR_ENGINES, ranks, ("",))
    return [" ".join(str(word) for word in words).strip() for words in named if not engines or words[0] in engines]


def estimator(cell: Cell, name: str, seed: int) -> Any:
    """The estimator that a name of `oracles` stands for, or the default."""
    if name == DEFAULT:
        return default(cell, seed)
    method, rank, *rest = name.split()
    how: dict[str, Any] = {"method": method, "random_state": seed}
    if cell.model == "cp":
        if method in ("pg-gibbs", "pg-vb") and cell.observed == "counts":
            how["likelihood"] = "negbinomial"
        return CP[cell.observed](rank=int(rank), interactions=rest[0], **how)
    if cell.model == "stream":
        return CP[cell.observed](rank=int(rank), prior=rest[0], **how)
    if rest:
        kind, columns = rest[0].split("/")
        model = {"pca": BayesianPCA, "fa": BayesianFactorAnalysis}[kind](n_components=int(rank), **how)
        return Standardised(model) if columns == "standardised" else model
    return default(cell, seed).set_params(n_components=int(rank), **how)


def fit(model: Any, cell: Cell, problem: Problem) -> Any:
    """Fit as a user would."""
    if cell.model == "cp":
        return model.fit(problem.train)
    if cell.model == "stream":
        for part in batches(cell, problem):
            model.partial_fit(problem.train.coords[part], problem.train.values[part])
        return model
    return model.fit(problem.train[0] if cell.model in ("pca", "fa") else problem.train)


def batches(cell: Cell, problem: Problem) -> Iterator[slice]:
    """The parts of a stream."""
    ends = np.linspace(0, problem.train.nnz, cell.batches + 1).astype(int)
    return (slice(a, b) for a, b in itertools.pairwise(ends) if b > a)


def warm_up(cell: Cell) -> None:
    """Fit a few entries, so that what the timed fit runs is compiled."""
    if cell.model not in ("cp", "stream"):
        return
    rng = np.random.default_rng(0)
    coords = np.unique(rng.integers(0, 8, (200, 3)), axis=0)
    y = WARM_UP[cell.observed] * rng.integers(0, 2, len(coords))
    y = y + rng.standard_normal(len(y)) if cell.observed == "values" else y
    tensor = SparseTensor.from_coo(coords, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few sweeps do not converge
        fit(CP[cell.observed](max_iter=20, random_state=0), cell._replace(batches=2), Problem(tensor, coords, y))


def answer(model: Any, cell: Cell, problem: Problem) -> Answer:
    """What a fitted model says of the test cells."""
    if cell.model not in ("cp", "stream"):
        return matrix_answer(model, cell, problem)
    chosen = f"{model.method_} {model.rank_} {model.prior_}" if hasattr(model, "prior_") else model.method_
    if cell.observed == "labels":
        return Answer(model.predict_proba(problem.coords)[:, 1], None, chosen)
    if cell.observed == "counts":
        prediction = np.asarray(model.log_score(problem.coords, problem.y))
    else:
        prediction = np.asarray(model.predict(problem.coords))
    below = None
    if model.has_uncertainty():
        some = spread(len(problem.y))
        draws = model.sample_y(problem.coords[some], DRAWS, random_state=0)
        below = probability_below(problem.y[some], draws)
    return Answer(prediction, below, chosen)


def spread(n: int) -> np.ndarray:
    """Places of CALIBRATED of n cells, all over: the first ones of a real tensor are those of its first rows."""
    return np.unique(np.linspace(0, n - 1, min(n, CALIBRATED)).astype(int))


def matrix_answer(model: Any, cell: Cell, problem: Problem) -> Answer:
    """What a factor model says of hidden cells, (number of the matrix, row, column)."""
    number, rows, columns = problem.coords.T
    one = cell.model in ("pca", "fa")
    views = range(1 if one else len(problem.train))
    filled = [model.predict_missing(*(() if one else (m,)), return_std=True) for m in views]
    mean = np.array([filled[m][0][i, j] for m, i, j in zip(number, rows, columns, strict=True)])
    chosen = "" if isinstance(model, Standardised) else str(model.method)
    if cell.observed == "labels":
        return Answer(mean, None, chosen)
    sd = np.array([filled[m][1][i, j] for m, i, j in zip(number, rows, columns, strict=True)])
    return Answer(mean, ndtr((problem.y - mean) / np.maximum(sd, np.finfo(float).tiny)), chosen)
