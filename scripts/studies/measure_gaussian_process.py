"""How close are EP, QP, VB and Laplace to the exact posterior, and inducing points to all points?

    python -m scripts.studies.measure_gaussian_process --data crabs,sonar,ionosphere --draws 100000
    python -m scripts.studies.measure_gaussian_process --parts inducing --inducing pima --counts 10,25,50,100,200

A tenth of the points is held out; features are standardised. "accuracy": at a kernel of variance 4 and length scale
sqrt(d), every method beside elliptical slice sampling, whose ellipses are those of EP's Gaussian (Nishihara, Murray and
Adams, 2014), which changes how fast it mixes and not what it samples: chains side by side, a tenth of each left out.
Rows, over all points: root mean square of (mean - exact mean) in exact standard deviations, that of sd / exact sd - 1
and its mean, and the largest difference of P(y = 1) at the points held out; with method "sampling" what two halves of
the chains differ in, halved: what the sampler itself does not know.

"inducing": kernel learned, by few points and by all: log loss of the points held out, evidence, processor's seconds.
"""

from __future__ import annotations

import time
import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtr
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF

from scripts.lib.common import Row, numbers, parser, report, row, say, words
from scripts.lib.points import HELD_OUT, standardised
from tensorcep import GaussianProcessClassifier, datasets
from tensorcep.gaussian_process.posterior import Posterior, Prior

METHODS = ("ep", "qp", "vb", "laplace")
CHAINS, WARM_UP = 20, 10
JITTER = 1e-10


class Moments(NamedTuple):
    """Mean and standard deviation of f at every point, and P(y = 1)."""

    mean: np.ndarray
    sd: np.ndarray
    p: np.ndarray


class Target(NamedTuple):
    """Signs of training points, the sites of EP's Gaussian, its mean and the factor of its covariance at all points."""

    sign: np.ndarray
    tau: np.ndarray
    nu: np.ndarray
    mean: np.ndarray
    root: np.ndarray

    def log_ratio(self, f: np.ndarray) -> np.ndarray:
        """Of the posterior to the Gaussian, for chains in columns."""
        own = f[: len(self.sign)]
        return (log_ndtr(self.sign[:, None] * own) - (self.nu - 0.5 * self.tau * own) * own).sum(axis=0)


def target_of(model: Any, K: np.ndarray, sign: np.ndarray) -> Target:
    """EP's Gaussian at all points, the training points first."""
    n, (machine,) = len(sign), model._machines
    tau, nu = (np.concatenate([part, np.zeros(len(K) - n)]) for part in (machine.tau, machine.nu))
    posterior = Posterior(Prior(K), tau, nu)
    cov = posterior.covariance()
    cov[np.diag_indices_from(cov)] += JITTER * np.diag(K)
    return Target(sign, tau[:n, None], nu[:n, None], posterior.f, np.linalg.cholesky(cov))


def sweep(target: Target, x: np.ndarray, value: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """One elliptical slice in every chain; x is f minus the Gaussian's mean."""
    other = target.root @ rng.standard_normal(x.shape)
    level = value + np.log(rng.random(x.shape[1]))
    angle = rng.uniform(0.0, 2.0 * np.pi, x.shape[1])
    low, high = angle - 2.0 * np.pi, angle.copy()
    left = np.arange(x.shape[1])
    new, new_value = x.copy(), value.copy()
    while left.size:
        tried = x[:, left] * np.cos(angle[left]) + other[:, left] * np.sin(angle[left])
        reached = target.log_ratio(target.mean[:, None] + tried)
        good = reached > level[left]
        new[:, left[good]], new_value[left[good]] = tried[:, good], reached[good]
        left = left[~good]
        low[left] = np.where(angle[left] < 0.0, angle[left], low[left])
        high[left] = np.where(angle[left] < 0.0, high[left], angle[left])
        angle[left] = rng.uniform(low[left], high[left])
    return new, new_value


def sampled(target: Target, draws: int, seed: int) -> tuple[Moments, Moments, Moments]:
    """Moments of all chains, and of the two halves of them."""
    rng, n = np.random.default_rng(seed), len(target.mean)
    x = target.root @ rng.standard_normal((n, CHAINS))
    value = target.log_ratio(target.mean[:, None] + x)
    sums = np.zeros((3, n, CHAINS))
    steps = -(-draws // CHAINS)
    for step in range(-(steps // WARM_UP), steps):
        x, value = sweep(target, x, value, rng)
        if step >= 0:
            sums += np.stack([x, x * x, ndtr(target.mean[:, None] + x)])
    sums /= steps
    parts = (slice(None), slice(0, CHAINS // 2), slice(CHAINS // 2, None))
    return tuple(_moments(target.mean, sums[:, :, part].mean(axis=2)) for part in parts)  # type: ignore[return-value]


def _moments(mean: np.ndarray, sums: np.ndarray) -> Moments:
    return Moments(mean + sums[0], np.sqrt(sums[1] - sums[0] ** 2), sums[2])


def split_of(name: str) -> tuple[np.ndarray, np.ndarray, int]:
    """Standardised points and labels, those to train on first, and how many these are."""
    points = standardised(datasets.load_gp(name))
    held = np.arange(len(points.y)) % HELD_OUT == 0
    order = np.concatenate([np.flatnonzero(~held), np.flatnonzero(held)])
    return points.X[order], points.y[order], int((~held).sum())


def differences(found: Moments, exact: Moments, n: int) -> dict[str, float]:
    ratio = found.sd / exact.sd - 1.0
    return {
        "mean": float(np.sqrt(np.mean(((found.mean - exact.mean) / exact.sd) ** 2))),
        "sd": float(np.sqrt(np.mean(ratio**2))),
        "sd_bias": float(ratio.mean()),
        "probability": float(np.abs(found.p - exact.p)[n:].max()),
    }


def accuracy(name: str, options: Any) -> list[Row]:
    """Rows of one data set."""
    X, y, n = split_of(name)
    kernel = 4.0 * RBF(np.sqrt(X.shape[1]))
    models = {
        method: GaussianProcessClassifier(kernel, method=method, optimizer=None).fit(X[:n], y[:n])
        for method in {"ep": None, **dict.fromkeys(options.methods)}
    }
    exact, first, second = sampled(target_of(models["ep"], kernel(X), 2.0 * y[:n] - 1.0), options.draws, options.seed)
    halves = differences(first, second, n)
    rows = [row(metric, 0.5 * abs(value), data=name, method="sampling") for metric, value in halves.items()]
    for method in options.methods:
        mean, variance = models[method].latent_mean_and_variance(X)
        found = Moments(mean, np.sqrt(variance), models[method].predict_proba(X)[:, 1])
        rows += [row(metric, value, data=name, method=method) for metric, value in differences(found, exact, n).items()]
    say(f"{name}: {options.draws} draws")
    return rows


def inducing(name: str, options: Any) -> list[Row]:
    """Rows of one data set by each number of inducing points, and by all."""
    X, y, n = split_of(name)
    rows = []
    for count in [*options.counts, None]:
        model = GaussianProcessClassifier(1.0 * RBF(np.sqrt(X.shape[1])), n_inducing=count, random_state=options.seed)
        begin = time.process_time()
        model.fit(X[:n], y[:n])
        seconds = time.process_time() - begin
        p = model.predict_proba(X[n:])[np.arange(len(y) - n), y[n:]]
        setting = {"data": name, "method": "all points" if count is None else f"{count} inducing"}
        rows.append(row("log_loss", -np.log(p).mean(), **setting))
        rows.append(row("evidence", model.log_marginal_likelihood_value_, **setting))
        rows.append(row("seconds", seconds, **setting))
        say(f"{name}, {setting['method']}: {seconds:.1f} s")
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    p = parser(__doc__, data="crabs,sonar,ionosphere", methods=",".join(METHODS), seed=0)
    p.add_argument("--parts", type=words("accuracy", "inducing"), default="accuracy,inducing", help="what to measure")
    p.add_argument("--draws", type=int, default=100_000, help="of elliptical slice sampling (default: %(default)s)")
    p.add_argument("--inducing", default="pima", help="data of the second part (default: %(default)s)")
    p.add_argument("--counts", type=numbers, default="10,25,50,100,200", help="inducing points (default: %(default)s)")
    options = p.parse_args(arguments)
    words(*METHODS)(",".join(options.methods))
    rows: list[Row] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of bounds that a kernel reaches
        if "accuracy" in options.parts:
            for name in words(*datasets.GP_FILES)(",".join(options.data)):
                rows += accuracy(name, options)
        if "inducing" in options.parts:
            rows += inducing(*words(*datasets.GP_FILES)(options.inducing), options)
    report(rows, options.json)


if __name__ == "__main__":
    main()
