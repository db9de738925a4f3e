"""The clutter problem of Minka (2001), figures 1 and 2: cost against accuracy of six methods, and their posteriors.

    python -m scripts.papers.reproduce_clutter    # n = 20: typical, with a mode far out, three modes; n = 200
    python -m scripts.papers.draw rows.json --metric path_log_evidence,path_mean --x flops --panel data,metric -o c.png

Exact values come from a grid. Cost is in floating point operations and in seconds of the whole run here (EP is
compiled, the others are numpy). For each method: evidence, mean and variance at its end, their errors, the errors
that it had after the operations that EP took to converge ("at_ep_cost"), and those along the way ("path").
All Gaussian methods catch one mode only where there are several; EP is the most accurate elsewhere.

y_i ~ (1 - w) N(x, I) + w N(0, a I), x ~ N(0, 100 I), of any dimension d; w = 1/2 and a = 10 in the paper. EP and ADF
run on `GaussianEP`: in one dimension the term is a compiled likelihood, in d dimensions a Python function of rank d
with spherical moments. Laplace's method, variational Bayes, importance and Gibbs sampling, for one dimension, are the
paper's baselines.

Each method yields an Estimate per iteration, with the floating point operations so far: those that the formulas need
for every observation, counted by hand, with one for an exp or log (as Matlab's `flops` did, the paper's measure).
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logsumexp
from scipy.stats import norm

from scripts.benchmarks.common import Row, check_words, parser, report, row, say
from tensorcep.core.compile import kernel
from tensorcep.ep.gaussian import EPResult, GaussianEP
from tensorcep.kernels.special import LOG_SQRT_2PI, exp, log, log1p_unit
from tensorcep.likelihoods.gaussian import GAUSSIAN

W, CLUTTER_VAR, PRIOR_VAR = 0.5, 10.0, 100.0
# Data whose posterior has modes far out, and typical data, 20 observations each.
LISTED = "-1.14 -4.68 5.61 1.44 -3.55 6.07 2.58 1.39 -1.02 2.69 2.07 -.22 -5.56 1.22 -5.54 -2.38 -2.77 2.21 1.01 4.49"
TYPICAL = ".74 4.32 -2.1 1.11 2.26 1.69 3.46 3.96 3.8 3.32 2.36 -.66 2 1.71 .71 1.12 2.43 2.7 2.48 4.72"
# Operations for one observation in one iteration (or draw) of each method.
EP_FLOPS, LAPLACE_FLOPS, VB_FLOPS, IS_FLOPS, GIBBS_FLOPS = 60, 14, 18, 10, 15
STOP = 1e-12


class Estimate(NamedTuple):
    """Posterior mean and variance of x and log evidence after some work; NaN for what a method does not give."""

    mean: float
    var: float
    log_evidence: float
    flops: float


@kernel
def tilted(y, m, v, theta, logz, alpha, beta):  # type: ignore[no-untyped-def]
    """Write log Z and its derivatives for terms (1 - w) N(y; f, 1) + w N(y; 0, a); theta holds w and a of each entry.

    Source: Minka (2001), eq. 7 and the step after it.
    """
    for n in range(y.shape[0]):
        w, a = theta[2 * n], theta[2 * n + 1]
        total, off = v[n] + 1.0, y[n] - m[n]
        signal = log(1.0 - w) - 0.5 * log(total) - 0.5 * off * off / total
        clutter = log(w) - 0.5 * log(a) - 0.5 * y[n] * y[n] / a
        e = exp(-abs(signal - clutter))
        r = (1.0 if signal > clutter else e) / (1.0 + e)
        logz[n] = max(signal, clutter) + log1p_unit(e) - LOG_SQRT_2PI
        alpha[n] = r * off / total
        beta[n] = r / total - r * (1.0 - r) * (off / total) * (off / total)


CLUTTER = replace(GAUSSIAN, name="clutter", tilted=tilted, loglik=None)


def spherical_moments(y: np.ndarray, m: np.ndarray, V: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Log Z, its gradient, and minus its Hessian replaced by the multiple of I with the same trace, for V = v I.

    Source: Minka (2001), eq. 7 and the step after it.
    """
    d, v = len(m), float(V[0, 0])
    total, off = v + 1.0, y - m
    signal = math.log(1.0 - W) + norm.logpdf(off, scale=math.sqrt(total)).sum()
    clutter = math.log(W) + norm.logpdf(y, scale=math.sqrt(CLUTTER_VAR)).sum()
    r = float(expit(signal - clutter))
    beta = r / total - r * (1.0 - r) * float(off @ off) / (d * total**2)
    return float(np.logaddexp(signal, clutter)), r * off / total, beta * np.eye(d)


def simulate(n: int, rng: np.random.Generator, x: float = 2.0) -> np.ndarray:
    signal = rng.random(n) >= W
    return np.where(signal, x, 0.0) + np.where(signal, 1.0, math.sqrt(CLUTTER_VAR)) * rng.standard_normal(n)


def log_terms(y: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log of signal and of clutter term, (n, len(x)) and (n, 1)."""
    signal = math.log(1.0 - W) + norm.logpdf(y[:, None], x)
    return signal, math.log(W) + norm.logpdf(y[:, None], scale=math.sqrt(CLUTTER_VAR))


def log_joint(y: np.ndarray, x: np.ndarray) -> np.ndarray:
    return norm.logpdf(x, scale=math.sqrt(PRIOR_VAR)) + np.logaddexp(*log_terms(y, x)).sum(axis=0)


def exact(y: np.ndarray) -> Estimate:
    """Posterior by the trapezoidal rule on a grid."""
    x = np.linspace(-100.0, 100.0, 50_001)
    density = np.concatenate([log_joint(y, part) for part in np.array_split(x, 50)])
    log_evidence = float(logsumexp(density)) + math.log(x[1] - x[0])
    p = np.exp(density - logsumexp(density))
    mean = float(p @ x)
    return Estimate(mean, float(p @ (x - mean) ** 2), log_evidence, math.nan)


def fit_ep(y: np.ndarray, **settings: Any) -> EPResult:
    """EP in one dimension; `settings` are those of GaussianEP, and the sites to start from."""
    sites, theta = settings.pop("sites", None), np.broadcast_to([W, CLUTTER_VAR], (len(y), 2))
    return GaussianEP(prior_cov=PRIOR_VAR, **settings).fit(np.ones((len(y), 1)), y, CLUTTER, theta, sites)


def run_ep(y: np.ndarray, damping: float = 0.0, max_iter: int = 500) -> Iterator[Estimate]:
    """EP sweep by sweep; the first is ADF."""
    sites = None
    for sweep in range(1, max_iter + 1):
        found = fit_ep(y, damping=damping, max_iter=1, sites=sites)
        sites = found.sites
        flops = float(sweep * EP_FLOPS * len(y))
        yield Estimate(float(found.mean[0]), float(found.cov[0, 0]), found.log_evidence, flops)
        if found.trace["change"][-1] < STOP and not found.skipped:
            return


def run_adf(y: np.ndarray) -> Iterator[Estimate]:
    """Assumed density filtering: the first sweep of EP."""
    return itertools.islice(run_ep(y), 1)


def run_laplace(y: np.ndarray, max_iter: int = 10_000) -> Iterator[Estimate]:
    """The mode by EM from the mean of the data, and the curvature there."""
    x = float(y.mean())
    for step in range(1, max_iter + 1):
        signal, clutter = log_terms(y, np.array([x]))
        r = expit(signal - clutter)[:, 0]
        curve = r.sum() + 1.0 / PRIOR_VAR - (r * (1.0 - r) * (y - x) ** 2).sum()
        log_evidence = math.nan
        if curve > 0.0:
            log_evidence = float(log_joint(y, np.array([x]))[0]) + 0.5 * math.log(2.0 * math.pi / curve)
        var = float(1.0 / curve) if curve > 0.0 else math.nan
        yield Estimate(x, var, log_evidence, float(step * LAPLACE_FLOPS * len(y)))
        new = float(r @ y / (r.sum() + 1.0 / PRIOR_VAR))
        if abs(new - x) < STOP:
            return
        x = new


def run_vb(y: np.ndarray, max_iter: int = 10_000) -> Iterator[Estimate]:
    """Variational Bayes with q(x) q(z), from the mean of the data; the evidence is its lower bound."""
    mean, var = float(y.mean()), 1.0
    clutter = math.log(W) + norm.logpdf(y, scale=math.sqrt(CLUTTER_VAR))
    for step in range(1, max_iter + 1):
        signal = math.log(1.0 - W) + norm.logpdf(y, mean) - 0.5 * var
        r = expit(signal - clutter)
        new_var = float(1.0 / (r.sum() + 1.0 / PRIOR_VAR))
        new = new_var * float(r @ y)
        moved, mean, var = abs(new - mean) + abs(new_var - var), new, new_var
        expected = math.log(1.0 - W) + norm.logpdf(y, mean) - 0.5 * var
        entropy = -(r * np.log(r) + (1.0 - r) * np.log1p(-r)).sum()
        kl = 0.5 * ((mean**2 + var) / PRIOR_VAR - 1.0 - math.log(var / PRIOR_VAR))
        bound = float(r @ expected + (1.0 - r) @ clutter + entropy - kl)
        yield Estimate(mean, var, bound, float(step * VB_FLOPS * len(y)))
        if moved < STOP:
            return


def run_importance(y: np.ndarray, draws: int, rng: np.random.Generator) -> Iterator[Estimate]:
    """Importance sampling from the prior, after 1, 2, 5, 10, 20, ... draws."""
    x = math.sqrt(PRIOR_VAR) * rng.standard_normal(draws)
    signal = np.concatenate([np.logaddexp(*log_terms(y, part)).sum(axis=0) for part in np.array_split(x, 50)])
    for count in _counts(draws):
        weight = np.exp(signal[:count] - signal[:count].max())
        mean = float(weight @ x[:count] / weight.sum())
        var = float(weight @ (x[:count] - mean) ** 2 / weight.sum())
        log_evidence = float(logsumexp(signal[:count])) - math.log(count)
        yield Estimate(mean, var, log_evidence, float(count * IS_FLOPS * len(y)))


def run_gibbs(y: np.ndarray, draws: int, rng: np.random.Generator) -> Iterator[Estimate]:
    """Gibbs sampling of x and of which observations are clutter; means and variances of x given those, averaged.

    Evidence: p(y, x0) over the average density of x0 = the average mean, Chib (1995).
    """
    x, means, variances = float(y.mean()), np.empty(draws), np.empty(draws)
    _, clutter = log_terms(y, np.zeros(1))
    odds = math.log(1.0 - W) - LOG_SQRT_2PI - clutter[:, 0]
    for t in range(draws):
        signal = rng.random(len(y)) < expit(odds - 0.5 * (y - x) ** 2)
        variances[t] = 1.0 / (signal.sum() + 1.0 / PRIOR_VAR)
        means[t] = variances[t] * y[signal].sum()
        x = means[t] + math.sqrt(variances[t]) * rng.standard_normal()
    for count in _counts(draws):
        m, v = means[:count], variances[:count]
        mean = float(m.mean())
        log_density = float(logsumexp(norm.logpdf(mean, m, np.sqrt(v)))) - math.log(count)
        log_evidence = float(log_joint(y, np.array([mean]))[0]) - log_density
        yield Estimate(mean, float(v.mean() + m.var()), log_evidence, float(count * GIBBS_FLOPS * len(y)))


def _counts(draws: int) -> list[int]:
    counts = [c * 10**k for k in range(9) for c in (1, 2, 5)]
    return [*[c for c in counts if c < draws], draws]


METHODS: dict[str, Callable[..., Any]] = {"ep": run_ep, "adf": run_adf, "laplace": run_laplace, "vb": run_vb}
METHODS |= {"importance": run_importance, "gibbs": run_gibbs}
SAMPLERS = ("importance", "gibbs")
N_LARGE = 200
# A draw with three modes, found by going through seeds.
THREE_MODES_SEED = 3407
DATA = ("typical", "listed", "modes", "n200")


def observations(name: str, seed: int) -> np.ndarray:
    if name == "n200":
        return simulate(N_LARGE, np.random.default_rng(seed))
    if name == "modes":
        return simulate(20, np.random.default_rng(THREE_MODES_SEED))
    return np.array((TYPICAL if name == "typical" else LISTED).split(), dtype=float)


def work_of(method: str, y: np.ndarray, options: Any) -> Callable[[], list[Estimate]]:
    if method in SAMPLERS:
        return lambda: list(METHODS[method](y, options.draws, np.random.default_rng([options.seed, 1])))
    return lambda: list(METHODS[method](y))


def best_seconds(method: str, y: np.ndarray, options: Any) -> float:
    """Seconds of the fastest run to the end; EP as a user runs it, in one call."""
    run: Callable[[], Any] = work_of(method, y, options)
    if method in ("ep", "adf"):
        sweeps = 500 if method == "ep" else 1

        def run() -> Any:
            return fit_ep(y, damping=0.0, max_iter=sweeps, tol=STOP)

    seconds = []
    for _ in range(options.repeats):
        begin = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def measure(name: str, y: np.ndarray, options: Any) -> list[Row]:
    """Rows of one data set: every method at its end, and its errors along the way."""
    truth = exact(y)
    common = {"data": name, "n": len(y)}
    rows = [row(part, getattr(truth, part), method="exact", **common) for part in ("log_evidence", "mean", "var")]
    cost = math.inf
    for method in ["ep", *[m for m in options.methods if m != "ep"]]:
        path = work_of(method, y, options)()
        cost = path[-1].flops if method == "ep" else cost
        end, setting = path[-1], {"method": method, **common}
        if method not in SAMPLERS:
            setting["sweep"] = len(path)
        rows.append(row("log_evidence", end.log_evidence, seconds=best_seconds(method, y, options), **setting))
        rows += [row("mean", end.mean, **setting), row("var", end.var, **setting), row("flops", end.flops, **setting)]
        for part in ("log_evidence", "mean"):
            found = np.array([abs(getattr(step, part) - getattr(truth, part)) for step in path])
            rows.append(row(f"error_{part}", found[-1], **setting))
            early = found[[estimate.flops <= cost for estimate in path]]
            if method != "ep":
                rows.append(row(f"error_{part}_at_ep_cost", early[-1], **setting))
            at = {"data": name, "method": method}
            along = [(e, step.flops) for e, step in zip(found, path, strict=True) if math.isfinite(e)]
            rows += [row(f"path_{part}", e, **at, flops=flops) for e, flops in along]
        say(f"{name} {method}: log evidence {end.log_evidence:.5f}, mean {end.mean:.5f}, {end.flops:.3g} operations")
    return rows


def main(arguments: list[str] | None = None) -> None:
    p = parser(__doc__, data=",".join(DATA), methods=",".join(METHODS), seed=0)
    p.add_argument("--draws", type=int, default=20_000, help="draws of the samplers (default: %(default)s)")
    p.add_argument("--repeats", type=int, default=3, help="timed runs of each method (default: %(default)s)")
    options = p.parse_args(arguments)
    check_words(p, options, data=DATA, methods=METHODS)
    rows: list[Row] = []
    for name in options.data:
        rows += measure(name, observations(name, options.seed), options)
    report(rows, options.json)


if __name__ == "__main__":
    main()
