"""Time of the factor models, on one thread, beside scikit-learn, BayesPy and mofapy2.

Sweeps: Bernoulli data of 1000 x 100 cells, 15 components (the paper's extreme setting), every method; milliseconds per
sweep, and for the factorised method the seconds until the error of extreme probabilities is at most 0.044 and 0.036
(Boehning's and nearly its own in the paper). FactorAnalysis: complete Gaussian data, same number of components.
BayesPy: 500 x 30 with half of the cells missing, 5 components, 50 sweeps. mofapy2: a Bernoulli matrix. The peers that
--peers names are installed by pip into an environment of their own, under --environment.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.decomposition import FactorAnalysis
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from scripts.lib.common import ROOT, Row, parser, report, row, say, words
from scripts.lib.peers.environment import prepare, run_worker
from scripts.lib.polya_gamma import METHODS, Watch, link_of, simulate
from tensorcep import BayesianFactorAnalysis, BayesianPCA
from tensorcep.factor_models.fit import ENGINES, build_problem, fit_problem
from tensorcep.factor_models.problem import Priors

GOALS = (0.044, 0.036)
TIMED = ("pg-direct-f", "pg-direct-f-best", "pg-direct-naive", "pg-noise-f", "pg-direct-gibbs", "boehning")
PEERS = ("bayespy", "mofapy2")
WORKER = ROOT / "scripts" / "lib" / "peers" / "factor.py"


def time_sweeps(method: str, options: argparse.Namespace) -> list[Row]:
    """Time of a sweep, and of reaching the goals."""
    shape, K = options.shape, options.ranks[0]
    data = simulate("binary-extreme", shape, 2 * K // 3, options.seed)
    link = link_of(data, method)
    _, settings = METHODS[method]
    chosen = ENGINES[settings.name]
    rng = np.random.default_rng(1000 + options.seed)
    problem, _ = build_problem([link], list(shape), K, [False, True], Priors(), rng, "random")
    sweeps = options.sweeps if method.startswith("pg-direct-f") else min(options.sweeps, 60)
    watch = Watch(data, link, chosen.capabilities.sampler, set(range(10, sweeps + 1, 10)) | {sweeps})
    result = fit_problem(chosen, problem, settings, max_iter=sweeps, tol=0.0, callbacks=(watch,), warn=False)
    seconds, common = (
        result.trace["seconds"],
        {"data": "bernoulli", "rank": K, "method": method, "shape": "x".join(map(str, shape))},
    )
    begin = time.process_time()
    plain = fit_problem(chosen, problem, settings, max_iter=min(sweeps, 40), tol=0.0, warn=False)
    cpu = (time.process_time() - begin) / plain.n_iter
    rows = [
        row("ms per sweep", 1e3 * float(np.median(seconds)), sweep=sweeps, **common),
        row("processor ms per sweep", 1e3 * cpu, sweep=plain.n_iter, **common),
    ]
    if method.startswith("pg-direct-f"):
        key = "error below .05 or above .95"
        for goal in GOALS:
            reached = [n for n, found in sorted(watch.scores.items()) if found.get(key, 1.0) <= goal]
            if reached:
                value = float(seconds[: reached[0]].sum())
                rows.append(row(f"seconds to error {goal}", value, sweep=reached[0], **common))
            else:
                skipped = f"not reached in {sweeps} sweeps"
                rows.append(row(f"seconds to error {goal}", None, sweep=sweeps, skipped=skipped, **common))
    return rows


def gaussian(shape: tuple[int, int], K: int, seed: int) -> np.ndarray:
    """Factor-analysis data: unit factors and loadings, noise variances from 0.25 to 2.25."""
    rng = np.random.default_rng(seed)
    noise = rng.uniform(0.5, 1.5, shape[1])
    return rng.standard_normal((shape[0], K)) @ rng.standard_normal((K, shape[1])) + noise * rng.standard_normal(shape)


def quiet_fit(model: Any, x: np.ndarray) -> float:
    """Seconds to fit, on one thread of BLAS."""
    begin = time.perf_counter()
    with warnings.catch_warnings(), threadpool_limits(limits=1):
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x)
    return time.perf_counter() - begin


def against_sklearn(options: argparse.Namespace) -> list[Row]:
    """Seconds and held-out log likelihood of factor analysis on complete data."""
    K = options.ranks[0]
    x = gaussian((2 * options.shape[0], options.shape[1] // 2), K, options.seed)
    train, test = x[::2], x[1::2]
    models = {
        "sklearn": FactorAnalysis(K),
        "vb": BayesianFactorAnalysis(K, method="vb", random_state=0, max_iter=options.sweeps),
        "vb-factorized": BayesianFactorAnalysis(K, random_state=0, max_iter=options.sweeps),
    }
    rows = []
    for name, model in models.items():
        quiet_fit(model, train[: K + 2])  # compiled code is loaded
        seconds = quiet_fit(model, train)
        common = {"data": "gaussian complete", "rank": K, "method": name, "shape": "x".join(map(str, train.shape))}
        rows.append(row("held-out log likelihood", model.score(test), seconds=seconds, **common))
    say(", ".join(f"{r['method']} {r['seconds']:.2f} s {r['value']:.3f}" for r in rows))
    return rows


def peer_fit(name: str, x: np.ndarray, rank: int, sweeps: int, options: argparse.Namespace) -> tuple[np.ndarray, float]:
    """Latent values and seconds of a peer, in a process of its environment with one thread."""
    python = prepare(Path(options.environment), [name])
    found = run_worker(python, WORKER, name, 1, x=x, rank=rank, sweeps=sweeps, seed=options.seed)
    return found["latent"], float(found["seconds"])


def against_bayespy(options: argparse.Namespace) -> list[Row]:
    """Seconds of 50 sweeps and error in hidden cells, half of them missing; the peer where it is asked for."""
    rng = np.random.default_rng(options.seed)
    truth = rng.standard_normal((500, 5)) @ rng.standard_normal((5, 30))
    x = np.where(rng.random(truth.shape) < 0.5, np.nan, truth + 0.5 * rng.standard_normal(truth.shape))
    hidden = np.isnan(x)
    rows = []
    common = {"data": "gaussian half missing", "rank": 5, "shape": "500x30", "sweep": 50}
    for method in ("vb", "vb-factorized"):
        how = {"method": method, "bias": "none", "max_iter": 50, "tol": 0.0, "random_state": 0, "init": "random"}
        quiet_fit(BayesianPCA(5, **how), x[:20])
        model = BayesianPCA(5, **how)
        seconds = quiet_fit(model, x)
        error = float(np.sqrt(np.mean((model.reconstruct() - truth)[hidden] ** 2)))
        rows.append(row("hidden rmse", error, method=method, seconds=seconds, **common))
    if "bayespy" in options.peers:
        latent, seconds = peer_fit("bayespy", x, 5, 50, options)
        error = float(np.sqrt(np.mean((latent - truth)[hidden] ** 2)))
        rows.append(row("hidden rmse", error, method="bayespy", seconds=seconds, **common))
    say(", ".join(f"{r['method']} {r['seconds']:.2f} s {r['value']:.3f}" for r in rows))
    return rows


def against_mofa(options: argparse.Namespace) -> list[Row]:
    """Seconds and log score of hidden cells on a Bernoulli matrix with a fifth of its cells hidden."""
    K = options.ranks[0]
    data = simulate("binary-extreme", options.shape, 2 * K // 3, options.seed)
    hidden = np.random.default_rng(options.seed).random(options.shape) < 0.2
    x = np.where(hidden, np.nan, data.x)

    def score(p: np.ndarray) -> float:
        p = np.clip(p, 1e-6, 1.0 - 1e-6)
        return float(np.mean(np.where(data.x > 0.0, np.log(p), np.log1p(-p))[hidden]))

    sweeps, rows = min(100, options.sweeps), []
    common = {"data": "bernoulli hidden", "rank": K, "shape": "x".join(map(str, options.shape)), "sweep": sweeps}
    for method in ("vb-factorized", "vb"):
        model = BayesianPCA(K, "bernoulli", method, max_iter=sweeps, tol=0.0, random_state=0)
        seconds = quiet_fit(model, x)
        rows.append(row("hidden log likelihood", score(model.reconstruct()), method=method, seconds=seconds, **common))
    if "mofapy2" in options.peers:
        latent, seconds = peer_fit("mofapy2", x, K, sweeps, options)
        rows.append(row("hidden log likelihood", score(expit(latent)), method="mofapy2", seconds=seconds, **common))
    say(", ".join(f"{r['method']} {r['seconds']:.2f} s {r['value']:.4f}" for r in rows))
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    p = parser(__doc__, ranks="15", sweeps=1000, seed=0)
    p.add_argument("--shape", type=lambda s: tuple(int(n) for n in s.split(",")), default="1000,100")
    p.add_argument("--peers", type=words(*PEERS), default=[], help="peers to install and run, between commas")
    p.add_argument("--environment", default="peers-environment", help="folder of the peers' environment")
    options = p.parse_args(arguments)
    rows = [found for method in TIMED for found in time_sweeps(method, options)]
    rows += against_sklearn(options) + against_bayespy(options) + against_mofa(options)
    report(rows, options.json)


if __name__ == "__main__":
    main()
