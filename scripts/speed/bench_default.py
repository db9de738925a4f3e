"""CPU and wall seconds, peak memory and score of fits by default, beside `method="vmp"` and "wopt" in the same process.

Data are simulated: a zero-mean CP of rank 8 with 500 x 300 x 200 cells, of which --entries are observed as values with
noise of standard deviation 0.5, or as labels by a logistic of twice the latent value; counts of mean 8.5 with skewed
rates, of 0.7 times as many cells; "tiny" are 1,330 labels of a CP of rank 2 with 40 x 30 x 20 cells. The data set
"dblp" takes the published entries. Scores are of fresh cells: RMSE, AUC, mean log score of counts. Each figure is the
median of --repeats fits, by turns, from different seeds; "ratio" is that of the CPU seconds to those of vmp.
"""

from __future__ import annotations

import itertools
import math
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning

from scripts.lib.common import Row, parser, report, row, say, words
from scripts.lib.heldout import Entries, aucs, splits
from scripts.lib.memory import forget_peak, resident
from tensorcep import CPClassifier, CPCountRegressor, CPRegressor

SHAPE, RANK, NOISE, SLOPE, FRESH = (500, 300, 200), 8, 0.5, 2.0, 20_000
TINY_SHAPE, TINY_RANK, TINY = (40, 30, 20), 2, 1330
FEWER_COUNTS, MEAN_COUNT, SPREAD = 0.7, 8.5, 0.8
METHODS = ("auto", "vmp", "wopt")
WARM_UP = 2000


class Case(NamedTuple):
    """Entries to fit, entries to score in sets, and what scores them."""

    estimator: Any
    metric: str
    shape: tuple[int, ...]
    train: Entries
    tests: Sequence[Entries]


def latent(shape: tuple[int, ...], rank: int, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Distinct random cells in random order and their latent values, of variance about 1."""
    cells = np.unique(rng.integers(0, math.prod(shape), n))
    rng.shuffle(cells)
    coords = np.stack(np.unravel_index(cells, shape), axis=1)
    rows = [rng.standard_normal((size, rank))[column] for size, column in zip(shape, coords.T, strict=True)]
    return coords, np.asarray(np.prod(rows, axis=0).sum(axis=1) / math.sqrt(rank))


def case_of(name: str, entries: int, seed: int) -> Case:
    """The data of one case."""
    rng = np.random.default_rng(seed)
    if name == "dblp":
        split = splits("dblp", [1])[0]
        return Case(CPClassifier, "auc", split.shape, split.train, split.tests)
    tiny = name == "tiny"
    shape, rank = (TINY_SHAPE, TINY_RANK) if tiny else (SHAPE, RANK)
    n = TINY if tiny else int(FEWER_COUNTS * entries) if name == "counts" else entries
    coords, f = latent(shape, rank, n + (2 * TINY if tiny else FRESH), rng)
    kinds: dict[str, tuple[Any, str, Callable[[], np.ndarray]]] = {
        "values": (CPRegressor, "rmse", lambda: f + NOISE * rng.standard_normal(len(f))),
        "counts": (CPCountRegressor, "log score", lambda: rng.poisson(MEAN_COUNT * np.exp(SPREAD * f - SPREAD**2 / 2))),
    }
    labels = CPClassifier, "auc", lambda: (rng.random(len(f)) < expit(SLOPE * f)).astype(float)
    estimator, metric, drawn = kinds.get(name, labels)
    y = np.asarray(drawn(), dtype=float)
    return Case(estimator, metric, shape, Entries(coords[:n], y[:n]), [Entries(coords[n:], y[n:])])


def score_of(model: Any, case: Case) -> float:
    """The score of the entries that were not fitted."""
    coords, y = (np.concatenate(parts) for parts in zip(*case.tests, strict=True))
    if case.metric == "auc":
        return float(aucs(case.tests, model.predict_latent(coords)[0]).mean())
    if case.metric == "rmse":
        return float(np.sqrt(np.mean((model.predict(coords) - y) ** 2)))
    return float(np.mean(model.log_score(coords, y)))


def one_fit(case: Case, method: str, threads: int, seed: int, options: Any) -> dict[str, float]:
    """Seconds, megabytes and score of one fit."""
    how: dict[str, Any] = {"shape": case.shape, "random_state": seed, "n_jobs": threads, "method": method}
    if options.sweeps:
        how["max_iter"] = options.sweeps
    forget_peak()
    before, wall, cpu = resident("VmRSS"), time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = case.estimator(**how).fit(case.train.coords, case.train.y)
    seconds, cpu = time.perf_counter() - wall, time.process_time() - cpu
    grown = (resident("VmHWM") - before) / 1e6
    return {"cpu_seconds": cpu, "seconds": seconds, "megabytes": grown, case.metric: score_of(model, case)}


def middle(fits: Sequence[dict[str, float]]) -> dict[str, float]:
    """The median of each figure."""
    return {key: float(np.median([fit[key] for fit in fits])) for key in fits[0]}


def measure(name: str, options: Any) -> list[Row]:
    """The rows of one case."""
    case = case_of(name, options.entries, options.seed)
    found: dict[tuple[int, str], list[dict[str, float]]] = {}
    methods = [method for method in options.methods if method != "wopt" or name == "values"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for method in methods:  # compiled code is loaded
            model = case.estimator(method=method, shape=case.shape, max_iter=10, random_state=0)
            model.fit(case.train.coords[:WARM_UP], case.train.y[:WARM_UP])
    for repeat, threads, method in itertools.product(range(options.repeats), options.threads, methods):
        fit = one_fit(case, method, threads, options.seed + repeat, options)
        found.setdefault((threads, method), []).append(fit)
    rows: list[Row] = []
    medians = {key: middle(fits) for key, fits in found.items()}
    for (threads, method), values in medians.items():
        about = {"data": name, "method": method, "entries": len(case.train.y), "threads": threads}
        if "vmp" in methods and method != "vmp":
            values["ratio"] = values["cpu_seconds"] / medians[threads, "vmp"]["cpu_seconds"]
        rows += [row(metric, value, **about) for metric, value in values.items()]
        say(f"{name} {method}, {threads} threads: " + ", ".join(f"{m} {value:.4g}" for m, value in values.items()))
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    p = parser(__doc__, methods="auto,vmp", threads="1", seed=0)
    p.add_argument("--cases", type=words("values", "labels", "tiny", "counts", "dblp"), default="values,labels,tiny")
    p.add_argument("--entries", type=lambda text: int(float(text)), default=100_000, help="default: %(default)s")
    p.add_argument("--repeats", type=int, default=5, help="fits of which the median counts (default: %(default)s)")
    p.add_argument("--sweeps", type=int, default=0, help="sweeps of the fits (default: theirs)")
    options = p.parse_args(arguments)
    wrong = [name for name in options.methods if name not in METHODS]
    if wrong:
        p.error(f"argument --methods: {wrong[0]!r} is not among {', '.join(METHODS)}")
    report([found for name in options.cases for found in measure(name, options)], options.json)


if __name__ == "__main__":
    main()
