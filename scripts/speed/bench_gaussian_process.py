"""Gaussian process classification beside scikit-learn: seconds of a fit, and log loss on points held out.

    python -m scripts.speed.bench_gaussian_process --data crabs,sonar,ionosphere,pima --repeats 5
    python -m scripts.speed.bench_gaussian_process --data simulated --points 100000 --inducing 200
    python -m scripts.speed.bench_gaussian_process --data crabs --gpy gpy-environment/bin/python

A tenth of the points is held out; both learn the kernel from 1.0 * RBF(1.0), on one thread, after a fit that compiles.
"fixed" is one fit at a kernel of variance 4 and length scale sqrt(d). Seconds are of the processor, the median of the
repeats. With --gpy, the Python of an environment that has GPy (1.13 needs numpy < 2 and scipy < 1.13), its EP is fitted
once, at the fixed kernel and, with --learned, from the common start; "evidence" is each one's own. "simulated" is a
probit over three features, with inducing points, which scikit-learn does not have.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier as Peer
from sklearn.gaussian_process.kernels import RBF
from threadpoolctl import threadpool_limits

from scripts.lib.common import Row, parser, report, row, say, words
from scripts.lib.peers.environment import run_worker
from scripts.lib.points import HELD_OUT, standardised
from tensorcep import GaussianProcessClassifier, datasets
from tensorcep.datasets import Points

METHODS = ("ep", "qp", "vb", "laplace")
WORKER = Path(__file__).parents[1] / "lib" / "peers" / "gpy.py"


def simulated(n: int, seed: int) -> Points:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    f = 2.0 * np.sin(1.5 * X[:, 0]) + X[:, 1] * X[:, 2]
    return Points(X, (f + rng.normal(size=n) > 0.0).astype(np.int64))


def timed(make: Any, X: np.ndarray, y: np.ndarray, repeats: int) -> tuple[float, Any]:
    """Median of the processor's seconds, and the last model."""
    seconds = []
    for _ in range(repeats):
        model = make()
        begin = time.process_time()
        model.fit(X, y)
        seconds.append(time.process_time() - begin)
    return float(np.median(seconds)), model


def rows_of_gpy(name: str, split: tuple[np.ndarray, ...], options: Any) -> list[Row]:
    """Rows of GPy's EP, at the fixed kernel and, if asked, learned."""
    X, y, test_X, test_y = split
    starts = {"gpy fixed": (4.0, np.sqrt(X.shape[1]), False)} | (
        {"gpy": (1.0, 1.0, True)} if options.learned else {}
    )  # fmt: skip
    rows = []
    for method, (variance, scale, learned) in starts.items():
        given = {"X": X, "y": y, "test_X": test_X, "variance": variance, "scale": scale, "learned": learned}
        found = run_worker(options.gpy, WORKER, "gpy", 1, **given)
        p = np.where(test_y == 1, found["p"], 1.0 - found["p"])
        for metric, value in (
            ("seconds", found["seconds"]),
            ("log_loss", -np.log(p).mean()),
            ("evidence", found["evidence"]),
        ):
            rows.append(row(metric, float(value), data=name, method=method))
        say(f"{name} {method}: {float(found['seconds']):.3f} s")
    return rows


def measure(name: str, options: Any) -> list[Row]:
    """Rows of one data set."""
    points = simulated(options.points, options.seed) if name == "simulated" else standardised(datasets.load_gp(name))
    test = np.arange(len(points.y)) % HELD_OUT == 0
    X, y = points.X[~test], points.y[~test]
    makers: dict[str, Any] = {}
    if name == "simulated":
        makers["inducing"] = lambda: GaussianProcessClassifier(
            1.0 * RBF(1.0), n_inducing=options.inducing, tol=1e-3, random_state=options.seed
        )
    else:
        makers["scikit-learn"] = lambda: Peer(1.0 * RBF(1.0))
        for method in options.methods:
            makers[method] = lambda method=method: GaussianProcessClassifier(1.0 * RBF(1.0), method=method)
        fixed = 4.0 * RBF(np.sqrt(X.shape[1]))
        makers["fixed"] = lambda: GaussianProcessClassifier(fixed, optimizer=None)
    rows = []
    for method, make in makers.items():
        if name != "simulated":
            make().fit(X[::4], y[::4])
        seconds, model = timed(make, X, y, options.repeats)
        p = model.predict_proba(points.X[test])[np.arange(test.sum()), points.y[test]]
        setting = {"data": name, "method": method}
        rows.append(row("seconds", seconds, **setting))
        rows.append(row("log_loss", -np.log(p).mean(), **setting))
        if hasattr(model, "kernel_"):
            rows.append(row("evidence", float(model.log_marginal_likelihood_value_), **setting))
        say(f"{name} {method}: {seconds:.3f} s")
    if options.gpy is not None and name != "simulated":
        rows += rows_of_gpy(name, (X, y, points.X[test], points.y[test]), options)
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    p = parser(__doc__, data="crabs,sonar,ionosphere,pima", methods="ep", seed=0)
    p.add_argument("--repeats", type=int, default=5, help="fits of each kind (default: %(default)s)")
    p.add_argument("--points", type=int, default=100_000, help="simulated points (default: %(default)s)")
    p.add_argument("--inducing", type=int, default=200, help="inducing points (default: %(default)s)")
    p.add_argument("--gpy", type=Path, help="the Python of an environment that has GPy")
    p.add_argument("--learned", action="store_true", help="have GPy learn the kernel too, which takes it a while")
    options = p.parse_args(arguments)
    words(*METHODS)(",".join(options.methods))
    rows: list[Row] = []
    with threadpool_limits(limits=1, user_api="blas"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of bounds that a kernel reaches
        for name in words("simulated", *datasets.GP_FILES)(",".join(options.data)):
            rows += measure(name, options)
    report(rows, options.json)


if __name__ == "__main__":
    main()
