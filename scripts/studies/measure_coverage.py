"""How often 90 % intervals of the latent value hold the truth, on simulated CP data.

The rows of all factors are drawn from the prior, a share of the cells is observed, and the model is fitted at ranks
below, at and above the true one. An interval is posterior mean +- z standard deviations from `predict_latent`. Cells
are those observed, and as many that were not.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from _common import Row, paper_model, parser, report, row, say, words
from scipy.special import ndtri
from sklearn.exceptions import ConvergenceWarning

from tensorcep import CPClassifier, CPCountRegressor, CPRegressor
from tensorcep.cp.simulate import CPSimulation, simulate_cp

LIKELIHOODS = ("gaussian", "probit", "logit", "poisson")
# A product of normal factors has heavy tails: at sd 1 the largest of 50,000 latent values is 12, a count of 180,000.
LATENT_SD = {"gaussian": 1.0, "probit": 1.0, "logit": 1.0, "poisson": 0.5}
FIT_SEED = 1000  # added to the seed of the data, so that a fit does not start at the draws that made them


def estimator(likelihood: str, rank: int, **parameters: Any) -> Any:
    """The estimator of a likelihood, of the CEP paper's model."""
    if likelihood == "gaussian":
        return paper_model(CPRegressor, rank, **parameters)
    if likelihood == "poisson":
        return paper_model(CPCountRegressor, rank, **parameters)
    return paper_model(CPClassifier, rank, link=likelihood, **parameters)


def latent_of(simulated: CPSimulation, coords: np.ndarray) -> np.ndarray:
    """The true latent value of any cells."""
    product = np.ones((len(coords), simulated.factors[0].shape[1]))
    for k, factor in enumerate(simulated.factors):
        product *= factor[coords[:, k]]
    return simulated.intercept + product.sum(axis=1)


def scores(model: Any, coords: np.ndarray, truth: np.ndarray, coverage: float) -> dict[str, float]:
    """Coverage, mean width and error of the intervals, and the mean square of the standardised error."""
    mean, variance = model.predict_latent(coords)
    sd = np.sqrt(variance)
    z = float(ndtri(0.5 + 0.5 * coverage))
    error = np.abs(truth - mean)
    return {
        "coverage": float(np.mean(error <= z * sd)),
        "width": float(np.mean(2.0 * z * sd)),
        "rmse": float(np.sqrt(np.mean(error**2))),
        "z2": float(np.mean((error / sd) ** 2)),
    }


def measure(likelihood: str, rank: int, seed: int, options: argparse.Namespace) -> list[Row]:
    """Simulate, fit, and score one data set."""
    simulated = simulate_cp(
        options.shape,
        options.true_rank,
        density=options.density,
        likelihood=likelihood,
        latent_sd=options.latent_sd or LATENT_SD[likelihood],
        random_state=seed,
    )
    chosen: dict[str, Any] = {"prior": simulated.prior} if options.true_prior else {}
    if options.damping is not None:
        chosen["damping"] = options.damping
    model = estimator(
        likelihood,
        rank=rank,
        schedule=options.schedule,
        order=options.order,
        moments=options.moments,
        max_iter=options.sweeps,
        tol=options.tol,
        random_state=FIT_SEED + seed,
        **chosen,
    )
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the number of sweeps is in the rows
        model.fit(simulated.tensor)
    seconds = time.perf_counter() - begin
    unobserved = simulated.tensor.sample_zeros(simulated.tensor.nnz, random_state=seed).coords
    rows = []
    for cells, coords in (("observed", simulated.tensor.coords), ("unobserved", unobserved)):
        for metric, value in scores(model, coords, latent_of(simulated, coords), options.coverage).items():
            rows.append(
                row(
                    metric,
                    value,
                    data=f"simulated {likelihood}",
                    rank=rank,
                    method="cep",
                    sweep=model.n_iter_,
                    seconds=seconds,
                    cells=cells,
                    seed=seed,
                    true_rank=options.true_rank,
                )
            )
    found = {f"{r['metric']} {r['cells']}": r["value"] for r in rows}
    say(
        f"{likelihood} rank {rank} seed {seed}: {model.n_iter_} sweeps, {seconds:.1f} s, "
        f"skipped {int(model.trace_['skipped'].sum())}, " + ", ".join(f"{k} {v:.3f}" for k, v in found.items())
    )
    return rows


def summary(rows: list[Row]) -> list[Row]:
    """Means over seeds, one row per likelihood, rank, kind of cell and metric."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for item in rows:
        groups.setdefault((item["data"], item["rank"], item["cells"], item["metric"]), []).append(item)
    means = []
    for (data, rank, cells, metric), items in groups.items():
        values = [item["value"] for item in items]
        seconds = float(np.mean([item["seconds"] for item in items]))
        name, n = f"mean {metric}", len(items)
        means.append(row(name, np.mean(values), data=data, rank=rank, method="cep", seconds=seconds, cells=cells, n=n))
    return means


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    p = parser(__doc__, ranks="2,4,8", sweeps=200, seed=0)
    p.add_argument("--likelihoods", type=words(*LIKELIHOODS), default="gaussian,probit,poisson")
    p.add_argument("--seeds", type=int, default=3, help="data sets for each setting (default: %(default)s)")
    p.add_argument("--shape", type=lambda s: tuple(int(n) for n in s.split(",")), default="200,100,50")
    p.add_argument("--true-rank", type=int, default=4)
    p.add_argument("--density", type=float, default=0.05, help="share of the cells that is observed")
    p.add_argument("--latent-sd", type=float, help="prior sd of the latent value of a cell (default: 1, poisson 0.5)")
    p.add_argument("--true-prior", action="store_true", help="fit with the simulation's prior, not the CEP paper's")
    p.add_argument("--schedule", choices=("modewise", "parallel"), default="modewise")
    p.add_argument("--moments", choices=("cavity", "posterior"), default="cavity")
    p.add_argument("--order", type=int, choices=(1, 2), default=1)
    p.add_argument("--damping", type=float, help="fraction of the old message kept (default: the estimator's own)")
    p.add_argument("--tol", type=float, default=1e-3)
    p.add_argument("--coverage", type=float, default=0.9, help="nominal coverage of the intervals")
    options = p.parse_args(arguments)
    rows = []
    for likelihood in options.likelihoods:
        for rank in options.ranks:
            for seed in range(options.seed, options.seed + options.seeds):
                rows += measure(likelihood, rank, seed, options)
    report(summary(rows) + (rows if options.json else []), options.json)


if __name__ == "__main__":
    main()
