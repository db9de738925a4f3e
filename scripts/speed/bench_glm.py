"""Seconds of Bayesian probit and logistic regression: to convergence on 5,000 x 4, and per sweep on sparse data.

    python -m scripts.speed.bench_glm --sizes 1000000 --columns 100 --density 0.01

The first part fits the four simulations of the CEP paper (published MATLAB: 9 to 43 s for CEP, hours for LP) to a
change of 1e-4 posterior standard deviations, after a fit that compiles; scikit-learn's LogisticRegression at the same
prior, and statsmodels where it is installed, find only the mode. The second part times sweeps on random sparse data.
--beside N x D x FILLED ... fits BayesianLogisticRegression with nothing set and scikit-learn's mode in turn, and prints
the ratio of their CPU seconds (medians of --repeats), on one thread if OPENBLAS_NUM_THREADS=1.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from scripts.lib.common import Row, numbers, parser, report, row, say
from tensorcep import BayesianLogisticRegression, datasets
from tensorcep.likelihoods import get_likelihood
from tensorcep.linear.glm import fit_glm
from tensorcep.linear.problem import GLMProblem, as_csr
from tensorcep.linear.settings import GLM_METHODS

METHODS = ("ep", "ep-factorized", "cep1", "cep2", "lp", "vb")
SIMULATIONS = ("probit-1", "probit-2", "logistic-1", "logistic-2")
TOL = 1e-4
# The prior has precision 1; scikit-learn minimises the loss plus w'w / (2 C).
PRIOR_PRECISION = 1.0


def problem_of(X: Any, y: np.ndarray, link: str) -> GLMProblem:
    d = X.shape[1]
    none = np.zeros(d, dtype=bool)
    return GLMProblem(as_csr(X), 2.0 * y - 1.0, get_likelihood(link), np.zeros(d), np.ones(d), none)


def best_of(repeats: int, work: Callable[[], Any]) -> tuple[float, Any]:
    """Least wall seconds of several runs, and the last result."""
    seconds, result = np.inf, None
    for _ in range(repeats):
        begin = time.perf_counter()
        result = work()
        seconds = min(seconds, time.perf_counter() - begin)
    return seconds, result


def fits(methods: list[str], threads: int, repeats: int, max_iter: int) -> list[Row]:
    """Seconds to convergence on the simulations."""
    rows = []
    for name in SIMULATIONS:
        points = datasets.load_simulation(name).train
        link = "probit" if name.startswith("probit") else "logit"
        problem = problem_of(points.X, points.y, link)
        for method in methods:
            fit_glm(problem, method, max_iter=12, tol=0.0, n_threads=threads)
            seconds, found = best_of(
                repeats,
                lambda m=method, p=problem: fit_glm(p, m, max_iter=max_iter, tol=TOL, n_threads=threads),
            )
            about = {"data": name, "method": method, "sweep": found.n_iter, "converged": int(found.converged)}
            rows.append(row("fit_seconds", seconds, **about, threads=threads))
            say(f"{name} {method}: {seconds:.3f} s, {found.n_iter} sweeps")
        rows += peers(name, link, points, repeats)
    return rows


def peers(name: str, link: str, points: datasets.Points, repeats: int) -> list[Row]:
    """Fits of the mode by other packages."""
    rows = []
    if link == "logit":
        model = LogisticRegression(C=1.0 / PRIOR_PRECISION, fit_intercept=False, tol=1e-8)
        seconds, _ = best_of(repeats, lambda: model.fit(points.X, points.y))
        rows.append(row("fit_seconds", seconds, data=name, method="sklearn", threads=1))
    if importlib.util.find_spec("statsmodels"):
        api = importlib.import_module("statsmodels.api")
        kind = api.Logit if link == "logit" else api.Probit
        seconds, _ = best_of(repeats, lambda: kind(points.y, points.X).fit(disp=0))
        rows.append(row("fit_seconds", seconds, data=name, method="statsmodels", threads=1))
    return rows


def sparse_points(n: int, d: int, density: float, seed: int) -> tuple[Any, np.ndarray]:
    """Normal features, the same number of them in every row, and labels of a logistic model."""
    rng = np.random.default_rng(seed)
    per_row = max(1, round(density * d))
    columns = (rng.integers(d, size=n)[:, None] + rng.permutation(d)[:per_row]) % d
    values = rng.standard_normal((n, per_row))
    start = np.arange(n + 1) * per_row
    X = sparse.csr_matrix((values.ravel(), columns.ravel(), start), shape=(n, d))
    p = 1.0 / (1.0 + np.exp(-(X @ rng.standard_normal(d))))
    return X, (rng.random(n) < p).astype(float)


def sweeps(args: Any, n: int, d: int, threads: int) -> list[Row]:
    """Median seconds of a sweep on sparse data, and scikit-learn's whole fit."""
    rows = []
    X, y = sparse_points(n, d, args.density, args.seed)
    for link in ("probit", "logit"):
        problem = problem_of(X, y, link)
        for method in args.methods:
            if GLM_METHODS[method].full:
                continue
            found = fit_glm(problem, method, max_iter=args.sweeps, tol=0.0, n_threads=threads)
            seconds = float(np.median(found.trace["seconds"][-(args.sweeps // 2 + 1) :]))
            about = {"data": f"sparse-{link}", "method": method, "threads": threads, "rows": n, "nonzeros": X.nnz}
            rows.append(row("seconds_per_sweep", seconds, **about))
            say(f"{n} x {d} {link} {method}: {seconds:.3f} s a sweep")
    model = LogisticRegression(C=1.0 / PRIOR_PRECISION, fit_intercept=False, max_iter=1000)
    seconds, _ = best_of(1, lambda: model.fit(X, y))
    rows.append(row("fit_seconds", seconds, data="sparse-logit", method="sklearn", threads=1, rows=n, nonzeros=X.nnz))
    return rows


def cpu_of(work: Callable[..., Any], *args: Any) -> float:
    begin = time.process_time()
    work(*args)
    return time.process_time() - begin


def beside(sizes: list[str], repeats: int, seed: int) -> list[Row]:
    """CPU seconds of the default fit, of scikit-learn's mode, and their ratio."""
    rows = []
    for size in sizes:
        n, d, filled = (float(word) for word in size.split("x"))
        X, y = sparse_points(int(n), int(d), filled, seed)
        if filled == 1.0:
            X = X.toarray()
        models = (BayesianLogisticRegression(), LogisticRegression(C=1.0))
        models[0].fit(X, y)  # compiles
        seconds = np.array([[cpu_of(m.fit, X, y) for m in models] for _ in range(repeats)])
        ours, mode = np.median(seconds, axis=0)
        about = {"data": size, "sweeps": models[0].n_iter_}
        rows.append(row("cpu_seconds", ours, **about, method="ep"))
        rows.append(row("cpu_seconds", mode, **about, method="sklearn"))
        rows.append(row("ratio", ours / mode, **about, method="ep / sklearn"))
        say(f"{size}: {ours:.3f} s, {models[0].n_iter_} sweeps; scikit-learn {mode:.3f} s; ratio {ours / mode:.1f}")
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    args_of = parser(__doc__, methods=",".join(METHODS), sweeps=16, seed=0, threads="1")
    args_of.add_argument("--sizes", type=numbers, default=[1_000_000], help="rows of the sparse data (default: 1e6)")
    args_of.add_argument("--columns", type=int, default=100, help="columns of the sparse data (default: 100)")
    args_of.add_argument("--density", type=float, default=0.01, help="part of them that is not 0 (default: 0.01)")
    args_of.add_argument("--repeats", type=int, default=3, help="fits of which the quickest counts (default: 3)")
    args_of.add_argument("--no-simulations", action="store_true", help="leave out the fits to published data")
    args_of.add_argument("--beside", nargs="+", default=[], metavar="NxDxFILLED", help="sizes to fit beside a peer")
    args = args_of.parse_args(arguments)
    for method in args.methods:
        if method not in METHODS:
            args_of.error(f"argument --methods: {method!r} is not among {', '.join(METHODS)}")
    rows = beside(args.beside, args.repeats, args.seed)
    for threads in [] if args.beside else args.threads:
        if not args.no_simulations:
            rows += fits(args.methods, threads, args.repeats, 2000)
        for n in args.sizes:
            rows += sweeps(args, n, args.columns, threads)
    report(rows, args.json)


if __name__ == "__main__":
    main()
