"""How well the intervals of each inference method hold, and its log score, on data simulated from the model.

    python -m scripts.benchmarks.quality.calibration --seeds 1 --sweeps 60 --sampler-sweeps 200    # every method
    python -m scripts.benchmarks.quality.calibration --methods cep --ranks 2,4,8 --prior paper     # by rank

The rows of all factors are drawn from the prior, a share of the cells is observed, and every method that fits the
likelihood gets the same entries, the rank and the true prior, or that of the CEP paper. Scored are cells that were not
observed (with --observed those that were, too): how often the central interval of the latent value, mean +- z standard
deviations, holds the truth, its mean width, the error of the mean, the mean square of the standardised error, and the
mean log predictive probability (density) of a new observation.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.exceptions import ConvergenceWarning

from scripts.benchmarks.common import Row, check_words, grouped, paper_model, parser, report, row, say, words
from tensorcep import CPClassifier, CPCountRegressor, CPRegressor
from tensorcep.cp.methods import METHODS
from tensorcep.cp.simulate import CPSimulation, simulate_cp
from tensorcep.likelihoods import LIKELIHOODS

# A product of normal factors has heavy tails: at sd 1 the largest of 50,000 latent values is 12, a count of 180,000.
LATENT_SD = {"gaussian": 1.0, "probit": 1.0, "logit": 1.0, "poisson": 0.5, "negbinomial": 0.5}
FIT_SEED = 1000  # added to the seed of the data, so that a fit does not start at the draws that made them
ESTIMATORS: dict[str, tuple[Any, dict[str, Any]]] = {
    "gaussian": (CPRegressor, {}),
    "probit": (CPClassifier, {"link": "probit"}),
    "logit": (CPClassifier, {"link": "logit"}),
    "poisson": (CPCountRegressor, {"likelihood": "poisson"}),
    "negbinomial": (CPCountRegressor, {"likelihood": "negbinomial"}),
}
VARIANTS = {"cep-averaged": "cep", "wopt-ridge": "wopt"}  # methods with settings of their own


def fit(name: str, rank: int, likelihood: str, simulated: CPSimulation, seed: int, options: argparse.Namespace) -> Any:
    """The fitted model of one method; a sampler gets sweeps of its own number."""
    method, (estimator, how) = VARIANTS.get(name, name), ESTIMATORS[likelihood]
    how = {**how, "method": method, "tol": options.tol, "random_state": FIT_SEED + seed}
    how["max_iter"] = options.sampler_sweeps if METHODS[method].capabilities.sampler else options.sweeps
    if options.prior == "true":
        how["prior"] = simulated.prior
    if name == "cep-averaged":
        how["messages"] = "averaged"
    if name == "wopt-ridge":  # with which least loss is the posterior mode (of prior means 0, and noise precision 1)
        how |= {"ridge": float(np.mean(simulated.prior.precision)), "least_gain": 0.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the number of sweeps is in the rows
        return paper_model(estimator, rank, **how).fit(simulated.tensor)


def measure(likelihood: str, names: list[str], seed: int, options: argparse.Namespace) -> list[Row]:
    how = {"latent_sd": options.latent_sd or LATENT_SD[likelihood], "density": options.density, "random_state": seed}
    simulated = simulate_cp(options.shape, options.true_rank, likelihood=likelihood, **how)
    cells = {"unobserved": simulated.tensor.sample_zeros(simulated.tensor.nnz, random_state=seed).coords}
    cells |= {"observed": simulated.tensor.coords} if options.observed else {}
    rows: list[Row] = []
    for name, rank in ((name, rank) for name in names for rank in options.ranks or [options.true_rank]):
        about = {"data": f"simulated {likelihood}", "rank": rank, "method": name, "seed": seed}
        begin = time.perf_counter()
        try:
            model = fit(name, rank, likelihood, simulated, seed, options)
        except FloatingPointError as error:
            rows.append(row("failed", None, **about, reason=str(error)))
            say(f"{likelihood} seed {seed} {name}: {error}")
            continue
        seconds = time.perf_counter() - begin
        for kind, coords in cells.items():
            factors = [factor[column] for factor, column in zip(simulated.factors, coords.T, strict=True)]
            truth = np.asarray(simulated.intercept + np.prod(factors, axis=0).sum(axis=1))
            theta = np.full(len(truth), simulated.theta)
            y = LIKELIHOODS[likelihood].sample(np.random.default_rng(seed), truth, theta)
            mean, variance = model.predict_latent(coords)
            error, z = np.abs(truth - mean), float(ndtri(0.5 + 0.5 * options.coverage))
            found = {"log_score": np.mean(model.log_score(coords, y)), "rmse": np.sqrt(np.mean(error**2))}
            if model.has_uncertainty():
                sd = np.sqrt(variance)
                found |= {"coverage": np.mean(error <= z * sd), "width": np.mean(2.0 * z * sd)}
                found["z2"] = np.mean((error / sd) ** 2)
            about |= {"cells": kind, "sweep": model.n_iter_, "seconds": seconds}
            rows += [row(metric, value, **about) for metric, value in found.items()]
            said = ", ".join(f"{metric} {value:.4f}" for metric, value in found.items())
            say(f"{likelihood} rank {rank} seed {seed} {name}, {kind}: {model.n_iter_} sweeps, {seconds:.1f} s, {said}")
    return rows


def summary(rows: list[Row]) -> list[Row]:
    """Means over seeds, one row per likelihood, method, rank, kind of cell and metric."""
    means, names = [], ("data", "method", "rank", "cells", "metric")
    for key, items in grouped((item for item in rows if item["value"] is not None), names).items():
        about = dict(zip(names, key, strict=True))
        seconds, metric = float(np.mean([item["seconds"] for item in items])), f"mean {about.pop('metric')}"
        means.append(row(metric, np.mean([item["value"] for item in items]), **about, seconds=seconds, n=len(items)))
    return means


def main(arguments: list[str] | None = None) -> None:
    known = [name for name in ESTIMATORS if name in LIKELIHOODS]
    p = parser(__doc__, ranks=None, methods=",".join([*METHODS, *VARIANTS]), sweeps=200, seed=0)
    p.add_argument("--likelihoods", type=words(*known), default=",".join(known))
    p.add_argument("--seeds", type=int, default=3, help="data sets for each likelihood (default: %(default)s)")
    p.add_argument("--shape", type=lambda s: tuple(int(n) for n in s.split(",")), default="200,100,50")
    p.add_argument("--true-rank", type=int, default=4, help="which --ranks are else, too (default: %(default)s)")
    p.add_argument("--density", type=float, default=0.05, help="share of the cells that is observed")
    p.add_argument("--latent-sd", type=float, help="prior sd of the latent value of a cell (default: 1, counts 0.5)")
    p.add_argument("--prior", choices=("true", "paper"), default="true", help="that of the simulation or the CEP paper")
    p.add_argument("--observed", action="store_true", help="score the observed cells, too")
    p.add_argument("--sampler-sweeps", type=int, default=400, help="sweeps of a sampler; half of them burn in")
    p.add_argument("--tol", type=float, default=1e-3)
    p.add_argument("--coverage", type=float, default=0.9, help="nominal coverage of the intervals")
    options = p.parse_args(arguments)
    check_words(p, options, methods=[*METHODS, *VARIANTS])
    rows: list[Row] = []
    for likelihood in options.likelihoods:
        record = LIKELIHOODS[likelihood]
        fitting = [name for name in options.methods if not METHODS[VARIANTS.get(name, name)].lacks(record)]
        for seed in range(options.seed, options.seed + options.seeds):
            rows += measure(likelihood, fitting, seed, options)
    report([*rows, *summary(rows)], options.json)


if __name__ == "__main__":
    main()
