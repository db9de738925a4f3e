"""Factor models on real matrices and on a simulated recommender, scored on cells that were held out.

digits: scikit-learn's 1797 images of 64 pixels as counts 0 to 16 and as binary pixels, 30 % of the cells held out.
il2: TensorLy's interleukin data, a real tensor with gaps, unfolded to a matrix of conditions and cell types, 10 % of
its observed cells held out. recommender: users x items with few observed labels, users x features, items x features,
and users x places counts, all from one truth; the score is on the unobserved labels. The score is the mean log
probability of held-out cells; a Gaussian gives a count or label the mass of the unit interval around it.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from scipy.special import expit, gammaln, logsumexp
from scipy.stats import norm
from sklearn.datasets import load_digits
from tensorly.datasets import load_IL2data

from scripts.lib.common import Row, parser, report, row, say, words
from tensorcep import BayesianFactorAnalysis, BayesianPCA, CollectiveMatrixFactorization
from tensorcep.factor_models.settings import Gibbs

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(30)
RECOMMENDER = [
    ("users", "items", "bernoulli"),
    ("users", "user features", "gaussian"),
    ("items", "item features", "gaussian"),
    ("users", "places", "negbinomial"),
]


def interval_score(x: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> float:
    """Mean log of a normal's mass within half a unit of x."""
    high, low = norm.logcdf((x + 0.5 - mean) / sd), norm.logcdf((x - 0.5 - mean) / sd)
    mirrored = norm.logcdf((mean - x + 0.5) / sd), norm.logcdf((mean - x - 0.5) / sd)
    upper = x > mean  # the tail in which the difference keeps its digits
    a, b = np.where(upper, mirrored[0], high), np.where(upper, mirrored[1], low)
    with np.errstate(divide="ignore"):
        return float(np.mean(np.maximum(a + np.log(-np.expm1(np.minimum(b - a, 0.0))), -700.0)))


def label_score(x: np.ndarray, p: np.ndarray) -> float:
    """Mean log probability of labels."""
    p = np.clip(p, 1e-3, 1.0 - 1e-3)
    return float(np.mean(np.where(x > 0.0, np.log(p), np.log1p(-p))))


def count_score(x: np.ndarray, f: np.ndarray, variance: np.ndarray, r: np.ndarray) -> float:
    """Mean log mass of negative-binomial counts over the posterior of their latent values."""
    psi = f[:, None] + np.sqrt(variance)[:, None] * NODES
    each = x[:, None] * psi - (x + r)[:, None] * np.logaddexp(0.0, psi)
    each += (gammaln(x + r) - gammaln(r) - gammaln(x + 1.0))[:, None]
    return float(np.mean(logsumexp(each, axis=1, b=WEIGHTS / WEIGHTS.sum())))


def fitted(model: Any, x: Any) -> tuple[Any, float]:
    """The fitted model and the seconds it took; a run that stops at max_iter is no news here."""
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of convergence, and of items that have no ratings on purpose
        model.fit(x)
    return model, time.perf_counter() - begin


def gaussian_scores(train: np.ndarray, x: np.ndarray, hidden: np.ndarray, options: Any) -> dict[str, Any]:
    """Predictive means and deviations of hidden cells: column means, and Gaussian principal components."""
    mean, sd = np.nanmean(train, axis=0), np.nanstd(train, axis=0) + 0.1
    found = {"mean": (np.broadcast_to(mean, x.shape)[hidden], np.broadcast_to(sd, x.shape)[hidden], 0.0)}
    how = {"max_iter": options.sweeps, "random_state": options.seed}
    model, seconds = fitted(BayesianPCA(options.ranks[0], **how), train)
    values, deviations = model.predict_missing(return_std=True)
    return {**found, "gaussian pca": (values[hidden], deviations[hidden], seconds)}


def digits(options: argparse.Namespace) -> list[Row]:
    """Pixels as counts and as labels."""
    images = load_digits().data[:: options.every]
    hidden = np.random.default_rng(options.seed).random(images.shape) < 0.3
    K, rows = options.ranks[0], []
    for kind, x in (("counts", images), ("binary", (images > 7.0).astype(float))):
        train, held = np.where(hidden, np.nan, x), x[hidden]
        common = {"data": f"digits {kind}", "rank": K}
        for method, (mean, sd, seconds) in gaussian_scores(train, x, hidden, options).items():
            score = interval_score(held, mean, sd) if kind == "counts" else label_score(held, mean)
            rows.append(row("held-out log score", score, method=method, seconds=seconds, **common))
        for method in options.methods:
            how: dict[str, Any] = {"method": method, "max_iter": options.sweeps, "random_state": options.seed}
            if method == "gibbs":
                how["method"] = Gibbs(burn_in=options.sweeps // 2, thin=5)
            likelihood = "negbinomial" if kind == "counts" else "bernoulli"
            model, seconds = fitted(BayesianPCA(K, likelihood, **how), train)
            if kind == "binary":
                score = label_score(held, model.reconstruct()[hidden])
            else:
                f, variance = model.predict_latent()
                r = np.broadcast_to(model.dispersion_, x.shape)[hidden]
                score = count_score(held, f[hidden], variance[hidden], r)
            name = f"{likelihood} {method}"
            rows.append(row("held-out log score", score, method=name, seconds=seconds, **common))
            if options.figure and kind == "binary":
                draw_components(model, options.figure)
    return rows


def draw_components(model: Any, path: str) -> None:
    """The first components as images, with their posterior mean over standard deviation below."""
    from matplotlib.figure import Figure

    moments = model.posterior_.moments[1]
    k = np.arange(moments.mean.shape[1])
    variance = moments.cov if moments.diagonal else moments.cov[:, k * (k + 3) // 2]
    shown = min(8, model.components_.shape[0])
    figure = Figure(figsize=(1.4 * shown, 3.2), layout="constrained")
    axes = figure.subplots(2, shown, squeeze=False)
    for j in range(shown):
        loading = model.components_[j]
        signal = loading / np.sqrt(np.broadcast_to(variance, moments.mean.shape)[:, j])
        # On a scale of its own, what is left of a component that the prior switched off would look like a digit: one
        # with every loading within its standard deviation of 0 gets the scale of the largest.
        largest = np.abs(loading if np.abs(signal).max() > 1.0 else model.components_).max()
        for axis, values, limit in ((axes[0, j], loading, largest), (axes[1, j], signal, 10.0)):
            axis.imshow(values.reshape(8, 8), cmap="RdBu_r", vmin=-limit, vmax=limit)
            axis.set_xticks([])
            axis.set_yticks([])
        axes[0, j].set_title(f"{model.explained_variance_[j]:.1f}", fontsize=9)
    axes[0, 0].set_ylabel("loading")
    axes[1, 0].set_ylabel("mean / sd, to 10")
    figure.savefig(path, dpi=120)


def il2(options: argparse.Namespace) -> list[Row]:
    """A real tensor with gaps, as a matrix of conditions (ligand, time, dose) and cell types."""
    tensor = np.asarray(load_IL2data()["tensor"], dtype=float)
    matrix = np.moveaxis(tensor, -1, 0).reshape(tensor.shape[-1], -1).T
    matrix = matrix[:: options.every]
    rng = np.random.default_rng(options.seed)
    hidden = ~np.isnan(matrix) & (rng.random(matrix.shape) < 0.1)
    train = np.where(hidden, np.nan, matrix)
    mean, sd = np.nanmean(train, axis=0), np.nanstd(train, axis=0)
    K = min(options.ranks[0], 4)
    common = {"data": "il2", "rank": K, "share missing": float(np.isnan(matrix).mean())}
    predictions = {"mean": (np.broadcast_to(mean, matrix.shape), np.broadcast_to(sd, matrix.shape), 0.0)}
    how = {"max_iter": options.sweeps, "random_state": options.seed, "method": "vb"}
    for name, model in (("pca", BayesianPCA(K, **how)), ("factor analysis", BayesianFactorAnalysis(K, **how))):
        model, seconds = fitted(model, train)
        predictions[name] = (*model.predict_missing(return_std=True), seconds)
    rows = []
    for name, (value, deviation, seconds) in predictions.items():
        score = float(norm.logpdf(matrix[hidden], value[hidden], deviation[hidden]).mean())
        error = float(np.sqrt(np.mean((value - matrix)[hidden] ** 2)))
        rows.append(row("held-out log score", score, method=name, seconds=seconds, **common))
        rows.append(row("held-out rmse", error, method=name, seconds=seconds, **common))
    return rows


def recommender(options: argparse.Namespace) -> list[Row]:
    """Four relations together, the main one with its two neighbours left out, and the main one alone."""
    rng = np.random.default_rng(options.seed)
    n = max(20, 200 // options.every)
    sizes = {"users": n, "items": n // 2, "user features": 15, "item features": 12, "places": 10}
    factors = {name: rng.standard_normal((size, 4)) for name, size in sizes.items()}
    psi = [factors[a] @ factors[b].T for a, b, _ in RECOMMENDER]
    p = expit(psi[0])
    labels = (rng.random(p.shape) < p).astype(float)
    hidden = rng.random(p.shape) < 0.92
    matrices = [np.where(hidden, np.nan, labels)]
    matrices += [f + 0.5 * rng.standard_normal(f.shape) for f in psi[1:3]]
    matrices.append(rng.poisson(np.exp(0.4 * psi[3])).astype(float))
    rows, K = [], min(options.ranks[0], 8)
    for name, kept in (("four relations", [0, 1, 2, 3]), ("two views", [0, 1]), ("main alone", [0])):
        for method in options.methods:
            how: dict[str, Any] = {"method": method, "max_iter": options.sweeps, "random_state": options.seed}
            if method == "gibbs":
                how["method"] = Gibbs(burn_in=options.sweeps // 2, thin=5)
            model = CollectiveMatrixFactorization([RECOMMENDER[m] for m in kept], K, **how)
            model, seconds = fitted(model, [matrices[m] for m in kept])
            found = model.reconstruct(0)
            common = {"data": "recommender", "rank": K, "method": f"{name} {method}", "seconds": seconds}
            rows.append(row("held-out log score", label_score(labels[hidden], found[hidden]), **common))
            rows.append(row("error of probabilities", float(np.abs(found - p)[hidden].mean()), **common))
    rows.append(row("held-out log score", label_score(labels[hidden], p[hidden]), data="recommender", method="truth"))
    return rows


EXAMPLES = {"digits": digits, "il2": il2, "recommender": recommender}


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    methods = words("vb-factorized", "vb", "gibbs")
    p = parser(__doc__, data="digits,il2,recommender", ranks="10", sweeps=400, seed=0)
    p.add_argument("--methods", type=methods, default="vb-factorized,vb")
    p.add_argument("--every", type=int, default=1, help="use every n-th row (default: %(default)s)")
    p.add_argument("--figure", metavar="FILE", help="draw the components of the binary digits")
    options = p.parse_args(arguments)
    names = options.data if isinstance(options.data, list) else options.data.split(",")
    words(*EXAMPLES)(",".join(names))
    rows = []
    for name in names:
        found = EXAMPLES[name](options)
        for item in found:
            say(f"{item['data']} {item['method']}: {item['metric']} {item['value']:.4f}")
        rows += found
    report(rows, options.json)


if __name__ == "__main__":
    main()
