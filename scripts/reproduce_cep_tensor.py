"""CEP on Alog and Enron as in the paper's tensor experiments: the accuracy after each sweep.

    python scripts/reproduce_cep_tensor.py --folds 1,2,3 --sweeps 20                        # published trajectories
    python scripts/reproduce_cep_tensor.py --sweeps 500 --schedules parallel,modewise       # five-fold means

Everything is as in the published code: priors N(u, I) with u drawn once from U(0, 1) in MATLAB's default stream and
kept, first messages of precision 1e-6, damping 0.5 in the parallel schedule, RMSE of the product of the means, AUC of
Phi(f / sqrt(1 + s)) where s sums the product of the covariances only (not the variance of f: that one is reported as
metric "auc_latent_variance"). The modewise schedule keeps the priors and needs no damping for real values.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from _common import Row, parser, report, row, say, words

from tensorcep import datasets
from tensorcep.inference import get_method
from tensorcep.inference._run import Problem, Sweep, run
from tensorcep.inference.cep import CEPOptions
from tensorcep.likelihoods import get_likelihood
from tensorcep.metrics import auc, rmse
from tensorcep.models.cp import pack_entries
from tensorcep.posterior import GammaNoise, Prior, natural_prior, offsets, unpack
from tensorcep.predict import RowMoments, latent

PUBLISHED_RANKS = (3, 5, 8, 10)
SHAPES = {"alog": datasets.ALOG_SHAPE, "enron": datasets.ENRON_SHAPE}
LIKELIHOODS = {"alog": "gaussian", "enron": "probit"}
# Binary messages are damped in either schedule: undamped modewise updates of a probit can cycle.
DAMPING = {("alog", "parallel"): 0.5, ("alog", "modewise"): 0.0, ("enron", "parallel"): 0.5, ("enron", "modewise"): 0.5}
REPORTED_SWEEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500)


class Fold(NamedTuple):
    """One fold in the form that the method takes, and its test entries as packed rows."""

    problem: Problem
    test_rows: np.ndarray
    test_y: np.ndarray


def published_prior_means(shape: tuple[int, ...], fold: int, rank: int) -> list[np.ndarray]:
    """The prior means of a fold and rank: one stream over folds, in each over ranks 3, 5, 8, 10, in each over modes.

    MATLAB fills rand(R, 1, n_k) by columns, so each row of a mode takes R consecutive draws. A rank that the paper does
    not have gets a stream of its own.
    """
    stream = np.random.RandomState(5489)
    if rank not in PUBLISHED_RANKS:
        stream = np.random.RandomState([fold, rank])
        return [stream.random_sample((n, rank)) for n in shape]
    for at_fold in range(1, fold + 1):
        for at_rank in PUBLISHED_RANKS:
            draws = [stream.random_sample((n, at_rank)) for n in shape]
            if (at_fold, at_rank) == (fold, rank):
                return draws
    raise ValueError(f"fold must be 1 or more; got {fold}.")


def load(data: str, fold: int, rank: int) -> Fold:
    """The published fold with the published prior. Test entries are those of the file: it lists some cells twice."""
    shape = SHAPES[data]
    likelihood = get_likelihood(LIKELIHOODS[data])
    coords, y = datasets.published_entries(f"{data}/train-fold-{fold}.txt")
    test_coords, test_y = datasets.published_entries(f"{data}/test-fold-{fold}.txt")
    prior = Prior(published_prior_means(shape, fold, rank), [1.0] * len(shape))
    prior_Lam, prior_eta = natural_prior(prior, shape, rank)
    problem = Problem(
        entries=pack_entries(coords, likelihood.check_y(y), shape),
        shape=shape,
        rank=rank,
        likelihood=likelihood,
        prior_Lam=prior_Lam,
        prior_eta=prior_eta,
        start=None,
        noise_prior=GammaNoise(1e-3, 1e-3) if data == "alog" else None,
    )
    return Fold(problem, test_coords + offsets(shape)[:-1], test_y)


def published_auc(fold: Fold, moments: RowMoments, f: np.ndarray) -> float:
    """AUC of the published score: f over the root of one plus the sum over the product of the covariances."""
    product = np.ones_like(moments.cov[fold.test_rows[:, 0]])
    for k in range(fold.test_rows.shape[1]):
        product *= moments.cov[fold.test_rows[:, k]]
    spread = unpack(product, fold.problem.rank).sum(axis=(1, 2))
    return auc(fold.test_y, f / np.sqrt(1.0 + spread))


def scores(data: str, fold: Fold, moments: RowMoments) -> dict[str, float]:
    """Metrics of the current posterior on the test entries."""
    f, v = latent(moments, fold.test_rows)
    if data == "alog":
        return {"rmse": rmse(fold.test_y, f)}
    return {"auc": published_auc(fold, moments, f), "auc_latent_variance": auc(fold.test_y, f / np.sqrt(1.0 + v))}


def trajectory(
    data: str, fold: int, rank: int, schedule: str, sweeps: int, threads: int, reported: tuple[int, ...]
) -> list[Row]:
    """Rows of one fit: metrics after each reported sweep, and the mean seconds of a sweep so far."""
    loaded = load(data, fold, rank)
    method = get_method("cep", loaded.problem.likelihood)
    options = CEPOptions(
        schedule=schedule,
        damping=DAMPING[data, schedule],
        positive=False,
        message_precision=1e-6,
        message_noise=(1e-3, 1e-3),
    )
    found: list[tuple[int, dict[str, float]]] = []
    problems = {"skipped": 0, "shrunk": 0}

    def score(sweep: int, info: Sweep, state: Any) -> None:
        problems["skipped"] += info.skipped
        problems["shrunk"] += info.shrunk
        if sweep in reported or sweep == sweeps:
            found.append((sweep, scores(data, loaded, RowMoments(state.rows.mean, state.rows.cov))))

    result = run(method, loaded.problem, options, max_iter=sweeps, tol=0.0, n_threads=threads, callbacks=[score])
    seconds = result.trace["seconds"]
    about = {"data": data, "fold": fold, "rank": rank, "method": "cep", "schedule": schedule}
    rows = [
        row(metric, value, **about, sweep=sweep, seconds=float(seconds[:sweep].sum()))
        for sweep, metrics in found
        for metric, value in metrics.items()
    ]
    rows.append(row("seconds_per_sweep", float(np.median(seconds)), **about))
    rows += [row(f"{name}_updates", count, **about) for name, count in problems.items()]
    return rows


def means(rows: list[Row]) -> list[Row]:
    """Mean and standard deviation over the folds of every metric at its sweep."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for item in rows:
        key = (item["data"], item["rank"], item["method"], item["schedule"], item.get("sweep"), item["metric"])
        groups.setdefault(key, []).append(item["value"])
    result = []
    for (data, rank, method, schedule, sweep, metric), values in groups.items():
        about = {"data": data, "rank": rank, "method": method, "schedule": schedule, "sweep": sweep}
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        result.append(row(metric, float(np.mean(values)), **about, fold="mean", sd=spread, folds=len(values)))
    return result


def main() -> None:
    args_of = parser(
        __doc__,
        data="alog,enron",
        folds="1,2,3,4,5",
        ranks="3,5,8,10",
        methods="cep",
        sweeps=500,
        threads="1",
    )
    args_of.add_argument(
        "--schedules",
        type=words("parallel", "modewise"),
        default=["parallel"],
        help="schedules, between commas: parallel (the paper's), modewise (default: parallel)",
    )
    args = args_of.parse_args()
    for data in args.data:
        if data not in SHAPES:
            args_of.error(f"argument --data: {data!r} is not among {', '.join(SHAPES)}")
    if args.methods != ["cep"]:
        args_of.error(f"argument --methods: {args.methods} is not among cep")
    reported = tuple(s for s in REPORTED_SWEEPS if s <= args.sweeps)
    rows: list[Row] = []
    for data in args.data:
        for schedule in args.schedules:
            for rank in args.ranks:
                for fold in args.folds:
                    new = trajectory(data, fold, rank, schedule, args.sweeps, args.threads[0], reported)
                    last = next(item for item in new if item.get("sweep") == args.sweeps)
                    say(f"{data} {schedule} rank {rank} fold {fold}: {last['metric']} {last['value']:.4f}")
                    rows += new
    report([*rows, *means(rows)], args.json)


if __name__ == "__main__":
    main()
