"""Figures 1 and 2 of Klami (2014): error against wall-clock time of Polya-Gamma factor models, binary and count data.

Binary data: psi = s u v' + b, N = 1000, D = 100, K = 10, (s, b) = (0.5, 0), (2.5, 0), (2, -4). Counts: N = 500, D = 50,
K = 10, Poisson with rate e^psi, or negative binomial with r_j ~ Gamma(5, 1); the paper does not give its scales s of
small and large counts, here they are 0.25 and 0.6, with b = 0. Every model has 1.5 K components and no biases. The
error is the mean absolute error of the expected cell on the training matrix, the log likelihood that of the training
cells; both at a rising number of sweeps. The clock counts sweeps alone.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from scripts.lib.common import Row, parser, report, row, say, words
from scripts.lib.polya_gamma import DATA, METHODS, Watch, link_of, simulate
from tensorcep.factor_models.fit import ENGINES, build_problem, fit_problem
from tensorcep.factor_models.problem import Priors


def measure(name: str, method: str, seed: int, options: argparse.Namespace) -> list[Row]:
    """Fit one method to one data set and score it along the way."""
    shape = options.shape or ((1000, 100) if DATA[name][0] == "bernoulli" else (500, 50))
    K = options.true_rank
    data = simulate(name, shape, K, seed)
    link = link_of(data, method)
    _, settings = METHODS[method]
    sweeps = options.sweeps
    if method.endswith("-gibbs") and options.gibbs_sweeps:
        sweeps = options.gibbs_sweeps
    points = {int(n) for n in np.geomspace(1, sweeps, options.points).round()}
    rng = np.random.default_rng(1000 + seed)
    problem, _ = build_problem([link], list(shape), 3 * K // 2, [False, True], Priors(), rng, "random")
    chosen = ENGINES[settings.name]
    watch = Watch(data, link, chosen.capabilities.sampler, points)
    result = fit_problem(chosen, problem, settings, max_iter=sweeps, tol=0.0, callbacks=(watch,), warn=False)
    clock = np.cumsum(result.trace["seconds"])
    common = {"data": name, "fold": seed, "rank": 3 * K // 2, "method": method}
    rows = [
        row(metric, value, sweep=sweep, seconds=float(clock[sweep - 1]), **common)
        for sweep, found in watch.scores.items()
        for metric, value in found.items()
    ]
    last = watch.scores[sweeps]
    rows.append(row("ms per sweep", 1e3 * float(np.median(result.trace["seconds"])), sweep=sweeps, **common))
    say(f"{name} {method} seed {seed}: {clock[-1]:.1f} s, " + ", ".join(f"{k} {v:.4f}" for k, v in last.items()))
    return rows


def summary(rows: list[Row]) -> list[Row]:
    """Mean and standard deviation over data sets of the last sweep's scores, and of the time of a sweep."""
    last: dict[tuple[Any, ...], int] = {}
    for item in rows:
        key = (item["data"], item["method"], item["fold"])
        last[key] = max(last.get(key, 0), item["sweep"])
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for item in rows:
        if item["sweep"] == last[(item["data"], item["method"], item["fold"])]:
            groups.setdefault((item["data"], item["method"], item["metric"]), []).append(item)
    result = []
    for (data, method, metric), items in groups.items():
        values = [item["value"] for item in items]
        sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
        seconds = [item["seconds"] for item in items if "seconds" in item]
        mean_seconds = float(np.mean(seconds)) if seconds else None
        result.append(
            row(metric, np.mean(values), data=data, method=method, sd=sd, seconds=mean_seconds, n=len(values))
        )
    return result


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    p = parser(__doc__, data=",".join(DATA), methods=",".join(METHODS), sweeps=3000, seed=0)
    p.add_argument("--seeds", type=int, default=10, help="data sets for each setting (default: %(default)s)")
    p.add_argument("--gibbs-sweeps", type=int, help="sweeps of the sampler, if not those of the others")
    p.add_argument("--points", type=int, default=12, help="sweeps to score at (default: %(default)s)")
    p.add_argument("--true-rank", type=int, default=10)
    p.add_argument("--shape", type=lambda s: tuple(int(n) for n in s.split(",")), help="rows and columns")
    options = p.parse_args(arguments)
    options.data, options.methods = words(*DATA)(",".join(_listed(options.data))), _listed(options.methods)
    words(*METHODS)(",".join(options.methods))
    rows = []
    for name in options.data:
        for method in options.methods:
            for seed in range(options.seed, options.seed + options.seeds):
                rows += measure(name, method, seed, options)
    report(summary(rows) + (rows if options.json else []), options.json)


def _listed(value: Any) -> list[str]:
    return value.split(",") if isinstance(value, str) else value


if __name__ == "__main__":
    main()
