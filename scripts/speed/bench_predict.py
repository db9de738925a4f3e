"""Time the predictions of fits by default, per cell, against means over draws in plain numpy in the same process.

Each figure is the least CPU time of some repeats in microseconds per cell, all threads together, and the wall time
beside it. The rival multiplies the rows of every draw in numpy and takes their mean: what `predict` is for real values.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from scripts.lib.common import Row, parser, report, row, say
from tensorcep import CPClassifier, CPRegressor
from tensorcep.cp.fitted.predict import cells_at

SHAPE, RANK, NOISE, SLOPE = (500, 300, 200), 8, 0.5, 2.0
TOGETHER = 1 << 12  # cells of the rival's arrays
WARM_UP = 64  # cells


def simulated(n: int, rng: np.random.Generator, factors: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Random cells and their latent values, of variance about 1."""
    coords = np.stack([rng.integers(0, size, n) for size in SHAPE], axis=1)
    rows = [factor[column] for factor, column in zip(factors, coords.T, strict=True)]
    return coords, np.asarray(np.prod(rows, axis=0).sum(axis=1) / math.sqrt(RANK))


def plain_means(draws: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The mean over draws (S, n_rows, R) of the latent value at packed rows (n, K)."""
    total = np.zeros(len(rows))
    for first in range(0, len(rows), TOGETHER):
        part = rows[first : first + TOGETHER]
        for draw in draws:
            product = draw[part[:, 0]]
            for column in part.T[1:]:
                product *= draw[column]
            total[first : first + TOGETHER] += product.sum(axis=1)
    return total / len(draws)


def timed(call: Callable[[np.ndarray], object], cells: np.ndarray, repeats: int) -> tuple[float, float]:
    """Microseconds per cell, CPU and wall, of the repeat with the least CPU time."""
    call(cells[:WARM_UP])  # compiled code is loaded
    found = []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        call(cells)
        found.append((time.process_time() - cpu, time.perf_counter() - wall))
    cpu, wall = min(found)
    return 1e6 * cpu / len(cells), 1e6 * wall / len(cells)


def measure(options: Any) -> list[Row]:
    """Return flat rows: microseconds per cell of every prediction, and ratios to the rival."""
    rng = np.random.default_rng(options.seed)
    factors = [rng.standard_normal((size, RANK)) for size in SHAPE]
    coords, f = simulated(options.entries, rng, factors)
    how: dict[str, Any] = {"shape": SHAPE, "random_state": options.seed}
    if options.sweeps:
        how["max_iter"] = options.sweeps
    labels = rng.random(len(f)) < 1.0 / (1.0 + np.exp(-SLOPE * f))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # predictions take as long whatever the draws are worth
        regressor = CPRegressor(**how).fit(coords, f + NOISE * rng.standard_normal(len(f)))
        classifier = CPClassifier(**how).fit(coords, labels.astype(float))
    known = rng.integers(0, len(coords), (len(SHAPE), options.cells))  # cells of rows that have entries
    cells = np.stack([coords[which, k] for k, which in enumerate(known)], axis=1)
    rows: list[Row] = []
    for threads in options.threads:
        regressor.set_params(n_jobs=threads)
        classifier.set_params(n_jobs=threads)
        calls: dict[str, Callable[[np.ndarray], object]] = {
            "plain numpy": lambda at: plain_means(regressor._result.belief.mean, cells_at(regressor._fitted, at)),
            "predict": regressor.predict,
            "predict with std": lambda at: regressor.predict(at, return_std=True),
            "predict_interval": regressor.predict_interval,
            "predict_proba": classifier.predict_proba,
            "interval of probabilities": classifier.predict_interval,
        }
        about = {"data": "simulated", "method": regressor.method_, "entries": options.entries, "cells": options.cells}
        mean = regressor._result.belief.mean
        about |= {"threads": threads, "draws": len(mean), "columns": mean.shape[2]}
        rival = math.nan
        for name, call in calls.items():
            cpu, wall = timed(call, cells, options.repeats)
            rival = cpu if name == "plain numpy" else rival
            rows.append(row(f"cpu us per cell: {name}", cpu, **about))
            rows.append(row(f"wall us per cell: {name}", wall, **about))
            rows.append(row(f"share of plain numpy: {name}", cpu / rival, **about))
            say(f"{threads} threads, {name}: {cpu:.2f} us of CPU per cell, {wall:.2f} wall")
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    p = parser(__doc__, seed=0, threads="1,2")
    p.add_argument("--entries", type=int, default=100_000, help="entries of the fits (default: %(default)s)")
    p.add_argument("--cells", type=int, default=100_000, help="cells to predict (default: %(default)s)")
    p.add_argument("--sweeps", type=int, default=0, help="sweeps of the fits (default: theirs)")
    p.add_argument("--repeats", type=int, default=5, help="the least of so many timings (default: %(default)s)")
    options = p.parse_args(arguments)
    report(measure(options), options.json)


if __name__ == "__main__":
    main()
