"""Does the nearest Gaussian in the Wasserstein distance help CEP? Enron, and simulated labels and counts, in pairs.

    python -m scripts.studies.measure_projection --data enron,probit,logit,counts --folds 1,2,3,4,5 --seeds 10

CEP is fitted with projection="kl" and "w2" to the same entries from the same starts. Rows: the loss (mean negative log
probability) and, for labels, the AUC of entries held out; the variance of the latent value, as a ratio; and,
with method "w2 - kl", the mean of the differences, their standard error over folds or tensors, and the two-sided p of
Wilcoxon's test of their signs and ranks. Of real values, such as Alog's, both projections are the same.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.stats import wilcoxon
from sklearn.exceptions import ConvergenceWarning

from scripts.lib.common import Row, parser, report, row, say, words
from tensorcep import CEP, CPClassifier, CPCountRegressor, SparseTensor, datasets, metrics

SETS = ("enron", "probit", "logit", "counts")
PROJECTIONS = ("kl", "w2")
SHAPE, TRUE_RANK = (30, 25, 20), 2


def simulated(kind: str, n: int, seed: int) -> tuple[SparseTensor, SparseTensor]:
    """Entries of a CP model of rank 2, half of them held out."""
    rng = np.random.default_rng(seed)
    flat = rng.choice(int(np.prod(SHAPE)), 2 * n, replace=False)
    coords = np.stack(np.unravel_index(flat, SHAPE), axis=1)
    rows = [rng.normal(size=(m, TRUE_RANK)) for m in SHAPE]
    f = np.prod([u[i] for u, i in zip(rows, coords.T, strict=True)], axis=0).sum(axis=1)
    if kind == "counts":
        y = rng.poisson(np.exp(0.5 * f)).astype(float)
    else:
        noise = rng.normal(size=2 * n) if kind == "probit" else rng.logistic(size=2 * n)
        y = (2.0 * f + noise > 0.0).astype(float)
    return tuple(SparseTensor.from_coo(coords[part], y[part], shape=SHAPE) for part in (slice(n), slice(n, None)))


def problems(name: str, options: argparse.Namespace) -> Iterator[tuple[int, SparseTensor, SparseTensor]]:
    """A number, entries to fit and entries to score."""
    if name == "enron":
        for fold in options.folds:
            yield (fold, *datasets.load_enron(fold))
    else:
        for seed in range(options.seed, options.seed + options.seeds):
            yield (seed, *simulated(name, options.entries, seed))


def scores(name: str, projection: str, train: SparseTensor, test: SparseTensor, options: Any) -> dict[str, float]:
    """What one projection reaches on the entries held out."""
    settings = {
        "method": CEP(projection=projection, n_ensemble=1),
        "prior": options.prior,
        "interactions": "cp",
        "max_iter": options.sweeps,
        "random_state": 0,
        "n_jobs": 1,
    }
    if name == "counts":
        model: Any = CPCountRegressor(options.rank, likelihood="poisson", **settings)
    else:
        model = CPClassifier(options.rank, link="logit" if name == "logit" else "probit", **settings)
    model.fit(train)
    found = {"loss": -float(np.mean(model.log_score(test.coords, test.values)))}
    if name != "counts":
        found["auc"] = metrics.auc(test.values, model.predict_proba(test.coords)[:, 1])
    return {**found, "variance": float(np.mean(model.predict_latent(test.coords)[1]))}


def measure(name: str, options: argparse.Namespace) -> list[Row]:
    """Rows of one kind of data."""
    found: dict[str, list[dict[str, float]]] = {projection: [] for projection in PROJECTIONS}
    for number, train, test in problems(name, options):
        for projection, results in found.items():
            results.append(scores(name, projection, train, test, options))
        say(f"{name} {number}: " + ", ".join(f"{p} {r[-1]['loss']:.4f}" for p, r in found.items()))
    rows = []
    for metric in found["kl"][0]:
        values = {p: np.array([one[metric] for one in results]) for p, results in found.items()}
        if metric == "variance":
            rows.append(row("variance_ratio", np.mean(values["w2"] / values["kl"]), data=name, method="w2 / kl"))
            continue
        rows += [row(metric, value.mean(), data=name, method=p) for p, value in values.items()]
        gap, n = values["w2"] - values["kl"], len(values["kl"])
        error = float(gap.std(ddof=1) / np.sqrt(n)) if n > 1 else None
        p = float(wilcoxon(gap).pvalue) if gap.any() and n > 1 else None
        rows.append(row(metric, gap.mean(), data=name, method="w2 - kl", error=error, p=p, pairs=n))
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    p = parser(__doc__, data=",".join(SETS), folds="1,2,3,4,5", sweeps=200, seed=0)
    p.add_argument("--rank", type=int, default=3, help="of the fits (default: %(default)s)")
    p.add_argument("--prior", default="fixed", help="of the rows (default: %(default)s)")
    p.add_argument("--seeds", type=int, default=10, help="simulated tensors of each kind (default: %(default)s)")
    p.add_argument("--entries", type=int, default=1000, help="simulated entries to fit (default: %(default)s)")
    options = p.parse_args(arguments)
    rows: list[Row] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the sweeps are part of the comparison
        warnings.filterwarnings("ignore", message=".* touch rows without training entries", category=UserWarning)
        for name in words(*SETS)(",".join(options.data)):
            rows += measure(name, options)
    report(rows, options.json)


if __name__ == "__main__":
    main()
