"""Every inference method on Alog and Enron, as in figures 3 and 4 of the CEP paper.

    python -m scripts.papers.reproduce_cep_tensor --json rows.json                             # all of it
    python -m scripts.papers.reproduce_cep_tensor --methods cep --folds 1,2,3 --sweeps 20      # published trajectories
    python -m scripts.papers.reproduce_cep_tensor --methods cep --schedules parallel,modewise  # five-fold means
    python -m scripts.papers.draw rows.json --metric rmse,auc --line method,schedule --panel data,rank -o curves.png

Folds are the published ones. Priors are N(u, I) with u drawn once from U(0, 1) in MATLAB's default stream and kept.
Scores are the published ones: RMSE of the product of the means, AUC of Phi(f / sqrt(1 + s)) where s sums the product of
the covariances only (not the variance of f: that one is reported as metric "auc_latent_variance").

cep: first messages of precision 1e-6, damping 0.5 in the parallel schedule; the modewise schedule needs no damping for
real values. vmp: as published. wopt: a sweep is one iteration of L-BFGS-B. Samplers: one chain, the mean prediction of
the draws so far without the first fifth. Other methods have their default settings, with damping 0.5 for labels. Those
for logistic models see Enron only.

Rows: the metric after each reported sweep and the seconds until then, the median seconds of a sweep, and the means and
standard deviations over folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from scripts.benchmarks.common import Row, check_words, grouped, parser, report, row, say, words
from tensorcep import datasets
from tensorcep.core.loop import Sweep, run
from tensorcep.core.packing import offsets, unpack
from tensorcep.cp.fitted.predict import latent, observed_moments
from tensorcep.cp.methods import METHODS
from tensorcep.cp.model.entries import pack_entries
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.posterior import GammaNoise, Result
from tensorcep.cp.settings import SETTINGS, Sampler
from tensorcep.likelihoods import LIKELIHOODS, get_likelihood
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


def scores(fold: Fold, result: Result) -> dict[str, float]:
    """Metrics on the test entries; the AUC of the predicted probability where the published one is undefined."""
    likelihood = fold.problem.likelihood
    belief = result.components()
    if likelihood.name == "gaussian":
        return {"rmse": rmse(fold.test_y, latent(belief, fold.test_rows)[0])}
    if belief.cov is not None and likelihood.name == "probit":
        f, v = latent(belief, fold.test_rows)
        # the published score has the sum over the product of the covariances in place of the latent variance
        product = np.prod([belief.moments()[1][rows] for rows in fold.test_rows.T], axis=0)
        spread = unpack(product, fold.problem.rank).sum(axis=(1, 2))
        each = {"auc": spread, "auc_latent_variance": v}
        return {name: auc(fold.test_y, f / np.sqrt(1.0 + own)) for name, own in each.items()}
    p, _ = observed_moments(likelihood, belief, fold.test_rows)
    return {"auc": auc(fold.test_y, p)}


# Binary messages are damped in either schedule: undamped modewise updates of a probit can cycle.
DAMPING = {("alog", "parallel"): 0.5, ("alog", "modewise"): 0.0, ("enron", "parallel"): 0.5, ("enron", "modewise"): 0.5}
REPORTED_SWEEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
# What a method may be given, in the order of preference.
CANDIDATES = {"alog": ("gaussian",), "enron": ("probit", "logit")}
# Most sweeps of a method whose sweeps cost many times those of the others, and which needs few.
MOST_SWEEPS = {"laplace": 100}
WOPT_ITERATIONS = 10


def recipe_of(method: str, data: str, schedule: str | None, sweeps: int) -> tuple[Any, str, int, int]:
    """Options, stream of the priors, what a step counts for, and the steps: as published, or the method's own."""
    sweeps = min(sweeps, MOST_SWEEPS.get(method, sweeps))
    if method == "cep":
        schedule = schedule or "parallel"
        first: dict[str, Any] = {"message_precision": 1e-6, "message_noise": (1e-3, 1e-3)}
        published = {"schedule": schedule, "positive": False, "noise_moments": "cavity", **first}
        return options_with("cep", damping=DAMPING[data, schedule], **published), "cep", 1, sweeps
    if method == "wopt":
        options = options_with(method, iterations=min(sweeps, WOPT_ITERATIONS), ridge=0.0, least_gain=0.0)
        return options, "cep", options.iterations, sweeps // options.iterations
    chain = {"max_iter": sweeps, "burn_in": sweeps // 5, "n_chains": 1}
    options = options_with(method, damping=DAMPING[data, "modewise"], **chain)
    return options, "vmp" if method == "vmp" else "cep", 1, sweeps


def trajectory(
    data: str, name: str, likelihood: str, schedule: str | None, rank: int, fold: int, sweeps: int, threads: int
) -> list[Row]:
    """Rows of one fit: metrics after each reported sweep, and the median seconds of a sweep."""
    (options, stream, stride, steps), method = recipe_of(name, data, schedule, sweeps), METHODS[name]
    loaded = load(data, fold, rank, likelihood, stream)
    found: list[tuple[int, dict[str, float]]] = []
    problems = {"skipped": 0, "shrunk": 0}

    def score(step: int, info: Sweep, state: Any) -> None:
        problems["skipped"] += info.skipped
        problems["shrunk"] += info.shrunk
        if step == steps or step * stride in REPORTED_SWEEPS:
            found.append((step, scores(loaded, method.finish(state, loaded.problem))))

    how: dict[str, Any] = {"max_iter": steps, "tol": 0.0, "n_threads": threads, "callbacks": [score]}
    seconds = run(method, loaded.problem, options, **how).trace["seconds"]
    about = {"data": data, "fold": fold, "rank": rank, "method": name, "likelihood": likelihood, "schedule": schedule}
    rows = [
        row(metric, value, **about, sweep=step * stride, seconds=float(seconds[:step].sum()))
        for step, metrics in found
        for metric, value in metrics.items()
    ]
    timed = seconds if stride == 1 else seconds[:10]  # a search that has ended makes no more iterations
    rows.append(row("seconds_per_sweep", float(np.median(timed)) / stride, **about))
    rows += [row(f"{name}_updates", count, **about) for name, count in problems.items()]
    return rows


GROUP = ("data", "rank", "method", "likelihood", "schedule", "sweep", "metric")


def means(rows: Sequence[Row]) -> list[Row]:
    """Mean and standard deviation over the folds of every metric at its sweep."""
    result = []
    for key, items in grouped(rows, GROUP).items():
        about, values = dict(zip(GROUP, key, strict=True)), [item["value"] for item in items]
        spread = {"sd": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0, "folds": len(values)}
        result.append(row(about.pop("metric"), float(np.mean(values)), **about, fold="mean", **spread))
    return result


def main(arguments: list[str] | None = None) -> None:
    usual = {"data": "alog,enron", "folds": "1,2,3,4,5", "ranks": "3,5,8,10", "methods": ",".join(METHODS)}
    args_of = parser(__doc__, **usual, sweeps=500, threads="1")
    text = "schedules of cep, between commas: parallel (the paper's), modewise (default: parallel)"
    args_of.add_argument("--schedules", type=words("parallel", "modewise"), default=["parallel"], help=text)
    args = args_of.parse_args(arguments)
    check_words(args_of, args, data=SHAPES, methods=METHODS)
    rows: list[Row] = []
    for data, name in product(args.data, args.methods):
        likelihoods = [known for known in CANDIDATES[data] if not METHODS[name].lacks(LIKELIHOODS[known])]
        schedules = (args.schedules if name == "cep" else [None]) if likelihoods else []
        for schedule, rank, fold in product(schedules, args.ranks, args.folds):
            setting = (data, name, likelihoods[0], schedule, rank, fold)
            rows += trajectory(*setting, args.sweeps, args.threads[0])
            last = [item for item in rows if item["metric"] in ("rmse", "auc")][-1]
            about = " ".join(str(word) for word in setting if word is not None)
            say(f"{about}: {last['metric']} {last['value']:.4f} after {last['sweep']} sweeps")
    report([*rows, *means(rows)], args.json)


if __name__ == "__main__":
    main()
