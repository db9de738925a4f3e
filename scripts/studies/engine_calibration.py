"""How honest each inference method is: coverage and log score on data simulated from the model.

The rows of all factors are drawn from the prior, a share of the cells is observed, and every method that fits the
likelihood gets the same entries, the true rank and (without --auto-prior) the true prior. Scored are cells that were
not observed: how often the central interval of the latent value, mean +- z standard deviations, holds the truth, its
mean width, the error of the mean, and the mean log predictive probability (density) of a new observation.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from scripts.lib.common import Row, paper_model, parser, report, row, say, words
from scripts.lib.coverage import FIT_SEED, LATENT_SD, interval_scores, latent_of
from tensorcep import CPClassifier, CPCountRegressor, CPRegressor
from tensorcep.cp.methods import METHODS
from tensorcep.cp.simulate import CPSimulation, simulate_cp
from tensorcep.likelihoods import LIKELIHOODS

ESTIMATORS: dict[str, tuple[Any, dict[str, Any]]] = {
    "gaussian": (CPRegressor, {}),
    "probit": (CPClassifier, {"link": "probit"}),
    "logit": (CPClassifier, {"link": "logit"}),
    "poisson": (CPCountRegressor, {"likelihood": "poisson"}),
    "negbinomial": (CPCountRegressor, {"likelihood": "negbinomial"}),
}
KNOWN = tuple(name for name in ESTIMATORS if name in LIKELIHOODS)


def averaged(simulated: CPSimulation) -> dict[str, Any]:
    """One message per row."""
    return {"messages": "averaged"}


def ridge_of_prior(simulated: CPSimulation) -> dict[str, Any]:
    """The penalty with which least loss is the posterior mode (of prior means 0, and noise precision 1)."""
    return {"ridge": float(np.mean(simulated.prior.precision)), "least_gain": 0.0}


# Names for a method with settings of its own.
VARIANTS: dict[str, tuple[str, Callable[[CPSimulation], dict[str, Any]]]] = {
    "cep-averaged": ("cep", averaged),
    "wopt-ridge": ("wopt", ridge_of_prior),
}


def fit(name: str, likelihood: str, simulated: CPSimulation, seed: int, options: argparse.Namespace) -> Any:
    """The fitted model of one method; a sampler gets sweeps of its own number."""
    method, settings = VARIANTS.get(name, (name, None))
    estimator, parameters = ESTIMATORS[likelihood]
    model = paper_model(
        estimator,
        options.true_rank,
        method=method,
        **(settings(simulated) if settings else {}),
        prior="fixed" if options.auto_prior else simulated.prior,
        max_iter=options.sampler_sweeps if METHODS[method].capabilities.sampler else options.sweeps,
        tol=options.tol,
        random_state=FIT_SEED + seed,
        **parameters,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the number of sweeps is in the rows
        return model.fit(simulated.tensor)


def measure(likelihood: str, names: list[str], seed: int, options: argparse.Namespace) -> list[Row]:
    """Rows of every method on one data set."""
    simulated = simulate_cp(
        options.shape,
        options.true_rank,
        density=options.density,
        likelihood=likelihood,
        latent_sd=options.latent_sd or LATENT_SD.get(likelihood, LATENT_SD["poisson"]),
        random_state=seed,
    )
    coords = simulated.tensor.sample_zeros(simulated.tensor.nnz, random_state=seed).coords
    truth = latent_of(simulated, coords)
    record = LIKELIHOODS[likelihood]
    y = record.sample(np.random.default_rng(seed), truth, np.full(len(truth), simulated.theta))
    rows = []
    for name in names:
        begin = time.perf_counter()
        about = {"data": f"simulated {likelihood}", "rank": options.true_rank, "method": name, "seed": seed}
        try:
            model = fit(name, likelihood, simulated, seed, options)
        except FloatingPointError as error:
            rows.append(row("failed", None, **about, reason=str(error)))
            say(f"{likelihood} seed {seed} {name}: {error}")
            continue
        seconds = time.perf_counter() - begin
        found = {"log_score": float(np.mean(model.log_score(coords, y)))}
        if not model.has_uncertainty():
            found["rmse"] = float(np.sqrt(np.mean((model.predict_latent(coords)[0] - truth) ** 2)))
        else:
            found |= interval_scores(model, coords, truth, options.coverage)
        rows += [row(m, value, **about, sweep=model.n_iter_, seconds=seconds) for m, value in found.items()]
        say(
            f"{likelihood} seed {seed} {name}: {model.n_iter_} sweeps, {seconds:.1f} s, "
            + ", ".join(f"{metric} {value:.4f}" for metric, value in found.items())
        )
    return rows


def summary(rows: list[Row]) -> list[Row]:
    """Means over seeds, one row per likelihood, method and metric."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for item in (item for item in rows if item["value"] is not None):
        groups.setdefault((item["data"], item["method"], item["metric"]), []).append(item)
    return [
        row(
            f"mean {metric}",
            float(np.mean([item["value"] for item in items])),
            data=data,
            method=method,
            seconds=float(np.mean([item["seconds"] for item in items])),
            n=len(items),
        )
        for (data, method, metric), items in groups.items()
    ]


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    p = parser(__doc__, methods=",".join([*METHODS, *VARIANTS]), sweeps=200, seed=0)
    p.add_argument("--likelihoods", type=words(*KNOWN), default=",".join(KNOWN))
    p.add_argument("--seeds", type=int, default=3, help="data sets for each likelihood (default: %(default)s)")
    p.add_argument("--shape", type=lambda s: tuple(int(n) for n in s.split(",")), default="200,100,50")
    p.add_argument("--true-rank", type=int, default=4)
    p.add_argument("--density", type=float, default=0.05, help="share of the cells that is observed")
    p.add_argument("--latent-sd", type=float, help="prior sd of the latent value of a cell (default: 1, counts 0.5)")
    p.add_argument(
        "--auto-prior", action="store_true", help="fit with the CEP paper's prior, not that of the simulation"
    )
    p.add_argument("--sampler-sweeps", type=int, default=400, help="sweeps of a sampler; half of them burn in")
    p.add_argument("--tol", type=float, default=1e-3)
    p.add_argument("--coverage", type=float, default=0.9, help="nominal coverage of the intervals")
    options = p.parse_args(arguments)
    unknown = [name for name in options.methods if name not in METHODS and name not in VARIANTS]
    if unknown:
        p.error(f"argument --methods: {unknown[0]!r} is not among {', '.join([*METHODS, *VARIANTS])}")
    rows = []
    for likelihood in options.likelihoods:
        record = LIKELIHOODS[likelihood]
        fitting = [name for name in options.methods if not METHODS[VARIANTS.get(name, (name,))[0]].lacks(record)]
        for seed in range(options.seed, options.seed + options.seeds):
            rows += measure(likelihood, fitting, seed, options)
    report([*rows, *summary(rows)], options.json)


if __name__ == "__main__":
    main()
