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
from sklearn.exceptions import ConvergenceWarning

from scripts.lib.common import Row, paper_model, parser, report, row, say, words
from scripts.lib.coverage import FIT_SEED, LATENT_SD, interval_scores, latent_of
from tensorcep import CPClassifier, CPCountRegressor, CPRegressor
from tensorcep.cp.simulate import simulate_cp

LIKELIHOODS = ("gaussian", "probit", "logit", "poisson")


def estimator(likelihood: str, rank: int, **parameters: Any) -> Any:
    """The estimator of a likelihood, of the CEP paper's model."""
    if likelihood == "gaussian":
        return paper_model(CPRegressor, rank, **parameters)
    if likelihood == "poisson":
        return paper_model(CPCountRegressor, rank, **parameters)
    return paper_model(CPClassifier, rank, link=likelihood, **parameters)


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
        for metric, value in interval_scores(model, coords, latent_of(simulated, coords), options.coverage).items():
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
