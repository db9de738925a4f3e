"""Quantile propagation beside EP and variational Bayes: table 1 and figure 1 of Zhang et al. (2020), the coal mines.

    python -m scripts.papers.reproduce_qp --rounds 5                        # the sets that are fetched, and the mines
    python -m scripts.papers.reproduce_qp --data sonar --rounds 100         # as many rounds as in the paper
    python -m scripts.papers.reproduce_qp --data glass --glass glass.data   # from the user's file of the UCI repository

A round is 10 folds at random (of the mines: the years to two halves); a model is learned on nine folds, standardised,
by the evidence, with one RBF of all features. QP runs at EP's kernel, as in the paper. Errors are in per cent (the mean
of |y - rate| of the mines), losses in nats per 1000; sd is over rounds. The table has the paper's figures beside ours,
and how often, and by how much, QP's loss is lower than EP's in the same round; its error is the standard error over the
test points of a round, paired.

What differs from the paper's text follows its code: one length scale, 33 columns of ionosphere, and the running number
of crabs and glass as a feature. "pima-with-duplicates" is the paper's set, in which 200 patients are there twice, so
that test patients were trained on; "pima" is without them. VB of the paper on sonar, 693.1, is 1000 log 2: its
optimiser had taken the kernel's variance to 0, which says nothing of VB. With vb and sonar the rows "bound" show it: of
VB's lower bound at the kernel that is learned here, and where theirs ended, at a variance of 1.4e-7. Rows
"variance_ratio" are figure 1: deciles of QP's variances of f at test points over EP's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from scripts.benchmarks.common import Row, check_words, parser, report, row, say
from tensorcep import GaussianProcessClassifier, GaussianProcessCountRegressor, datasets
from tensorcep.datasets import Points

# set -> method -> (test error in per cent, loss in nats per 1000)
PAPER = {
    "ionosphere": {"ep": (7.9, 215.9), "qp": (7.9, 215.9), "vb": (18.9, 337.4)},
    "cancer": {"ep": (3.2, 88.2), "qp": (3.2, 88.2), "vb": (3.1, 88.9)},
    "pima-with-duplicates": {"ep": (20.3, 424.7), "qp": (20.3, 424.0), "vb": (21.9, 450.3)},
    "pima": {},
    "crabs": {"ep": (2.7, 64.4), "qp": (2.7, 64.3), "vb": (3.7, 164.7)},
    "sonar": {"ep": (14.0, 306.7), "qp": (14.0, 306.2), "vb": (25.7, 693.1)},
    "glass": {"ep": (1.1, 29.5), "qp": (1.0, 29.0), "vb": (2.6, 79.5)},
    "wine12": {"ep": (1.5, 48.0), "qp": (1.5, 47.4), "vb": (1.7, 83.9)},
    "wine13": {"ep": (0.0, 18.0), "qp": (0.0, 17.8), "vb": (0.0, 26.7)},
    "wine23": {"ep": (2.0, 52.1), "qp": (2.0, 51.8), "vb": (1.2, 69.4)},
    "mining": {"ep": (118.6, 1606.8), "qp": (118.6, 1606.5), "vb": (170.3, 2007.3)},
}
METHODS = ("ep", "qp", "vb", "laplace")
FOLDS = 10
COLLAPSED = 1.4e-7
RATE_LENGTH = 15.0


def load(name: str, options: Any) -> Points:
    if name == "mining":
        return datasets.load_coal_mining()
    if name in datasets.GP_FILES:
        return datasets.load_gp(name)
    path = options.glass if name == "glass" else options.wine
    if path is None:
        raise SystemExit(f"{name} is not among the files that are fetched: give its file with --{name.rstrip('123')}.")
    return datasets.read_glass(path) if name == "glass" else datasets.read_wine(path, int(name[4]), int(name[5]))


def fitted(name: str, X: np.ndarray, y: np.ndarray, methods: list[str]) -> dict[str, Any]:
    """A model of each method; QP at EP's kernel."""
    count = name == "mining"
    kernel = 1.0 * RBF(RATE_LENGTH if count else np.sqrt(X.shape[1]))
    models: dict[str, Any] = {}
    for method in [m for m in METHODS if m in methods or (m == "ep" and "qp" in methods)]:
        given = {"kernel": kernel} if method != "qp" else {"kernel": models["ep"].kernel_, "optimizer": None}
        given |= {"method": method, **({"prior_mean": 1.0} if count else {})}
        model = GaussianProcessCountRegressor if count else GaussianProcessClassifier
        models[method] = model(**given).fit(X, y)
    return models


def scores(model: Any, X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(model, GaussianProcessCountRegressor):
        return np.abs(y - model.predict(X)), -model.log_score(X, y)
    p = model.predict_proba(X)[np.arange(len(y)), y]
    return (model.predict(X) != y).astype(float), -np.log(p)


def one_round(name: str, points: Points, seed: int, options: Any, ratios: list[Any]) -> dict[str, np.ndarray]:
    """Errors and losses (2, n) of the test points of a round, by method."""
    order = np.random.default_rng(seed).permutation(len(points.y))
    folds = np.array_split(order, FOLDS)[: options.folds_run]
    if name == "mining":
        folds = [order[: len(order) // 2]]
    found: dict[str, list[Any]] = {}
    for test in folds:
        train = np.setdiff1d(order, test)
        mean, sd = points.X[train].mean(axis=0), points.X[train].std(axis=0)
        used = sd > 0.0
        X = points.X if name == "mining" else (points.X[:, used] - mean[used]) / sd[used]
        models = fitted(name, X[train], points.y[train], options.methods)
        for method, model in models.items():
            found.setdefault(method, []).append(np.stack(scores(model, X[test], points.y[test])))
        if {"ep", "qp"} <= models.keys():
            ep, qp = (models[method].latent_mean_and_variance(X[test])[1] for method in ("ep", "qp"))
            ratios.append(qp / ep)
    return {method: np.concatenate(parts, axis=1) for method, parts in found.items()}


def measure(name: str, options: Any) -> list[Row]:
    points, ratios = load(name, options), list[Any]()
    rounds = [one_round(name, points, options.seed + k, options, ratios) for k in range(options.rounds)]
    rows = []
    for method in [m for m in METHODS if m in rounds[0]]:
        means = np.array([r[method].mean(axis=1) for r in rounds])
        errors, losses = 1e2 * means[:, 0], 1e3 * means[:, 1]
        setting = {"data": name, "method": method, "rounds": options.rounds}
        published = PAPER[name].get(method, (None, None))
        for metric, values, theirs in (("error", errors, published[0]), ("loss", losses, published[1])):
            rows.append(row(metric, values.mean(), sd=float(values.std()), paper=theirs, **setting))
        say(f"{name} {method}: error {errors.mean():.1f}, loss {losses.mean():.1f}")
    if {"ep", "qp"} <= rounds[0].keys():
        of_points = [1e3 * (r["qp"][1] - r["ep"][1]) for r in rounds]
        gaps = np.array([part.mean() for part in of_points])
        error = float(np.mean([part.std(ddof=1) / np.sqrt(part.size) for part in of_points]))
        setting = {"data": name, "method": "qp - ep", "rounds": options.rounds}
        rows.append(row("loss", gaps.mean(), sd=float(gaps.std()), error=error, **setting))
        rows.append(row("share_lower", float(np.mean(gaps < 0.0)), **setting))
        of_ten = np.quantile(np.concatenate(ratios), np.arange(11) / 10)
        rows += [row("variance_ratio", value, data=name, method="qp / ep", decile=k) for k, value in enumerate(of_ten)]
    if name == "sonar" and "vb" in rounds[0]:  # the kernel learned, and with hardly any variance
        X = (points.X - points.X.mean(axis=0)) / points.X.std(axis=0)
        for method, variance, optimizer in (("vb", 1.0, "l-bfgs"), ("vb, no variance", COLLAPSED, None)):
            kernel = ConstantKernel(variance, (1e-9, 1e5)) * RBF(np.sqrt(X.shape[1]))
            model = GaussianProcessClassifier(kernel, method="vb", optimizer=optimizer).fit(X, points.y)
            rows.append(row("bound", model.log_marginal_likelihood_value_, data="sonar", method=method))
            rows.append(row("loss on itself", 1e3 * scores(model, X, points.y)[1].mean(), data="sonar", method=method))
    return rows


def main(arguments: list[str] | None = None) -> None:
    fetched = "sonar,crabs,ionosphere,cancer,pima,pima-with-duplicates,mining"
    p = parser(__doc__, data=fetched, methods="ep,qp,vb", seed=0)
    p.add_argument("--rounds", type=int, default=5, help="random divisions (default: %(default)s; the paper: 100)")
    p.add_argument("--folds-run", type=int, default=FOLDS, help="folds of each round that are run (default: all)")
    p.add_argument("--glass", type=Path, help="the user's glass.data")
    p.add_argument("--wine", type=Path, help="the user's wine.data")
    options = p.parse_args(arguments)
    check_words(p, options, data=PAPER, methods=METHODS)
    rows = [found for name in options.data for found in measure(name, options)]
    report(rows, options.json)


if __name__ == "__main__":
    main()
