"""The folds, priors and scores of the CEP paper's tensor experiments on Alog and Enron.

Priors are N(u, I) with u drawn once from U(0, 1) in MATLAB's default stream and kept. Scores are the published ones:
RMSE of the product of the means, AUC of Phi(f / sqrt(1 + s)) where s sums the product of the covariances only (not the
variance of f: that one is reported as metric "auc_latent_variance").
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorcep import datasets
from tensorcep.core.packing import offsets, unpack
from tensorcep.cp.fitted.predict import latent, observed_moments
from tensorcep.cp.model.entries import pack_entries
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.posterior.belief import GammaNoise, Result
from tensorcep.cp.posterior.components import Components
from tensorcep.cp.settings.registry import SETTINGS
from tensorcep.cp.settings.sampling import Sampler
from tensorcep.likelihoods import get_likelihood
from tensorcep.metrics import auc, rmse
from tensorcep.priors.fixed import FixedPrior, Prior, natural_prior

RANKS = (3, 5, 8, 10)
SHAPES = {"alog": datasets.ALOG_SHAPE, "enron": datasets.ENRON_SHAPE}


class Fold(NamedTuple):
    """One fold in the form that the methods take, and its test entries as packed rows."""

    problem: Problem
    test_rows: np.ndarray
    test_y: np.ndarray


def options_with(name: str, **wanted: Any) -> Any:
    """The settings of a method: those wanted that it has, and its defaults; neither damping nor annealing otherwise.

    A sampler's are for `max_iter` sweeps, 200 if that is not given.
    """
    wanted = {"damping": 0.0, "anneal": 0, **wanted}
    engine = SETTINGS[name]
    settings = engine(**{key: value for key, value in wanted.items() if hasattr(engine, key)})
    return settings.for_sweeps(wanted.get("max_iter", 200)) if isinstance(settings, Sampler) else settings


def prior_means(shape: tuple[int, ...], n: int, fold: int, rank: int, stream: str) -> list[np.ndarray]:
    """The prior means of a fold and rank: one stream over folds, in each over ranks 3, 5, 8, 10, in each over modes.

    MATLAB fills arrays by columns. The code of CEP draws rand(R, 1, n_k), so each row takes R consecutive numbers; that
    of VMP shuffles the n entries, which takes n numbers, and draws rand(n_k, R). A rank that the paper does not have
    gets a stream of its own.
    """
    random = np.random.RandomState(5489)
    if rank not in RANKS:
        random = np.random.RandomState([fold, rank])
        return [random.random_sample((m, rank)) for m in shape]
    for at_fold in range(1, fold + 1):
        for at_rank in RANKS:
            if stream == "vmp":
                random.random_sample(n)
                draws = [random.random_sample((at_rank, m)).T for m in shape]
            else:
                draws = [random.random_sample((m, at_rank)) for m in shape]
            if (at_fold, at_rank) == (fold, rank):
                return draws
    raise ValueError(f"fold must be 1 or more; got {fold}.")


def load(data: str, fold: int, rank: int, likelihood: str, stream: str = "cep") -> Fold:
    """The published fold with the published prior. Test entries are those of the file: it lists some cells twice."""
    shape, record = SHAPES[data], get_likelihood(likelihood)
    coords, y = datasets.published_entries(f"{data}/train-fold-{fold}.txt")
    test_coords, test_y = datasets.published_entries(f"{data}/test-fold-{fold}.txt")
    prior = Prior(prior_means(shape, len(y), fold, rank, stream), [1.0] * len(shape))
    rows_prior = FixedPrior(*natural_prior(prior, shape, rank))
    problem = Problem(
        entries=pack_entries(coords, record.check_y(y), shape),
        shape=shape,
        rank=rank,
        likelihood=record,
        prior=rows_prior,
        start=None,
        noise_prior=GammaNoise(1e-3, 1e-3) if likelihood == "gaussian" else None,
        seed=fold,
    )
    return Fold(problem, test_coords + offsets(shape)[:-1], test_y)


def published_auc(fold: Fold, belief: Components, f: np.ndarray) -> float:
    """AUC of the published score: f over the root of one plus the sum over the product of the covariances."""
    _, cov = belief.moments()
    product = np.ones_like(cov[fold.test_rows[:, 0]])
    for k in range(fold.test_rows.shape[1]):
        product *= cov[fold.test_rows[:, k]]
    spread = unpack(product, fold.problem.rank).sum(axis=(1, 2))
    return auc(fold.test_y, f / np.sqrt(1.0 + spread))


def scores(fold: Fold, result: Result) -> dict[str, float]:
    """Metrics on the test entries; the AUC of the predicted probability where the published one is undefined."""
    likelihood = fold.problem.likelihood
    belief = result.components()
    if likelihood.name == "gaussian":
        return {"rmse": rmse(fold.test_y, latent(belief, fold.test_rows)[0])}
    if belief.cov is not None and likelihood.name == "probit":
        f, v = latent(belief, fold.test_rows)
        found = auc(fold.test_y, f / np.sqrt(1.0 + v))
        return {"auc": published_auc(fold, belief, f), "auc_latent_variance": found}
    p, _ = observed_moments(likelihood, belief, fold.test_rows)
    return {"auc": auc(fold.test_y, p)}
