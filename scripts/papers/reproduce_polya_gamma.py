"""Figures 1 and 2 of Klami (2014): error against wall-clock time of Polya-Gamma factor models, binary and count data.

Binary data: psi = s u v' + b, N = 1000, D = 100, K = 10, (s, b) = (0.5, 0), (2.5, 0), (2, -4). Counts: N = 500, D = 50,
K = 10, Poisson with rate e^psi, or negative binomial with r_j ~ Gamma(5, 1); the paper does not give its scales s of
small and large counts, here they are 0.25 and 0.6, with b = 0. Every model has 1.5 K components and no biases. The
error is the mean absolute error of the expected cell on the training matrix, the log likelihood that of the training
cells; both at a rising number of sweeps. The clock counts sweeps alone.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, gammaln

from scripts.benchmarks.common import Row, check_words, grouped, parser, report, row, say
from tensorcep.core.settings import Settings
from tensorcep.factor_models.cells import DenseCells, Matrix
from tensorcep.factor_models.fit import ENGINES, RunPlan, build_problem
from tensorcep.factor_models.layout import Link
from tensorcep.factor_models.results import observed
from tensorcep.factor_models.settings import VB, FactorisedVB, Gibbs

DATA = {
    "binary-easy": ("bernoulli", 0.5, 0.0),
    "binary-extreme": ("bernoulli", 2.5, 0.0),
    "binary-few-ones": ("bernoulli", 2.0, -4.0),
    "negbinomial-small": ("negbinomial", 0.25, 0.0),
    "negbinomial-large": ("negbinomial", 0.6, 0.0),
    "poisson-small": ("poisson", 0.25, 0.0),
    "poisson-large": ("poisson", 0.6, 0.0),
}
NEVER = 10**9  # a burn-in that keeps no draws: the sweeps are watched instead
# name: augmentation, and the settings of the method; the paper's step is 0.3
METHODS: dict[str, tuple[str, Settings]] = {
    "pg-direct-f": ("direct", FactorisedVB(step=0.3)),
    "pg-direct-f-best": ("direct", FactorisedVB(step="best")),
    "pg-direct-naive": ("direct", VB()),
    "pg-noise-f": ("noise", FactorisedVB(step=0.3)),
    "pg-noise-naive": ("noise", VB()),
    "pg-direct-gibbs": ("direct", Gibbs(burn_in=NEVER)),
    "pg-noise-gibbs": ("noise", Gibbs(burn_in=NEVER)),
    "boehning": ("boehning", FactorisedVB(step=0.3)),
    "gaussian": ("direct", FactorisedVB(step=0.3)),
}


class Simulated(NamedTuple):
    """A matrix and the expectations of its cells; `p` is the probability of a one in binary data."""

    x: np.ndarray
    expected: np.ndarray
    likelihood: str


def simulate(name: str, shape: tuple[int, int], K: int, seed: int) -> Simulated:
    """One data set of the paper's section 6."""
    likelihood, s, b = DATA[name]
    rng = np.random.default_rng(seed)
    psi = s * rng.standard_normal((shape[0], K)) @ rng.standard_normal((shape[1], K)).T + b
    if likelihood == "bernoulli":
        p = expit(psi)
        return Simulated((rng.random(shape) < p).astype(float), p, likelihood)
    r = rng.gamma(5.0, 1.0, shape[1]) if likelihood == "negbinomial" else np.ones(shape[1])
    rate = np.exp(psi) * r
    noisy = rng.gamma(r, np.exp(psi)) if likelihood == "negbinomial" else rate
    return Simulated(rng.poisson(noisy).astype(float), rate, likelihood)


def expected_cells(link: Link, state: Any) -> np.ndarray:
    """What a state expects of every cell; a Gaussian model's values are cut to what is possible."""
    sites = state.sites[0]
    if link.likelihood == "gaussian":
        rows, columns = (moments.mean for moments in state.moments)
        return np.clip(rows @ columns.T, 0.0, None)
    f, variance = state.latent[0]
    if sites.psi is not None:
        f, variance = sites.psi, sites.psi_var
    return observed(link.kind, link.groups, f, variance, None, None if sites.r is None else sites.r.mean)[0]


class Watch:
    """Scores states at a rising number of sweeps; averages over the last four fifths of a sampler's draws."""

    def __init__(self, data: Simulated, link: Link, sampler: bool, points: set[int]):
        self.data, self.link, self.sampler, self.points = data, link, sampler, points
        self.draws: list[tuple[int, np.ndarray]] = []
        self.scores: dict[int, dict[str, float]] = {}

    def __call__(self, sweep: int, info: Any, state: Any) -> bool:
        if self.sampler:
            chain = state.state._replace(latent=((state.state.latent[0][0], np.zeros((1, 1))),))
            if sweep % 5 == 0 or sweep in self.points:
                self.draws.append((sweep, expected_cells(self.link, chain).astype(np.float32)))
                self.draws = [item for item in self.draws if item[0] > sweep // 5]
        if sweep in self.points:
            draws = [draw for _, draw in self.draws]
            found = np.mean(draws, axis=0, dtype=np.float64) if draws else expected_cells(self.link, state)
            self.scores[sweep] = scores(self.data, found)
        return False


def scores(data: Simulated, found: np.ndarray) -> dict[str, float]:
    """Errors against the truth, and the mean log likelihood of the cells."""
    error = np.abs(found - data.expected)
    result = {"error": float(error.mean())}
    if data.likelihood != "bernoulli":
        rate = np.maximum(found, 1e-6)
        result["poisson log likelihood"] = float(np.mean(data.x * np.log(rate) - rate - gammaln(data.x + 1.0)))
        return result
    p = np.clip(found, 1e-3, 1.0 - 1e-3) if found.max() > 1.0 or found.min() <= 0.0 else found
    extreme, high = (data.expected < 0.05) | (data.expected > 0.95), data.expected > 0.95
    if extreme.any():
        result["error below .05 or above .95"] = float(np.abs(p - data.expected)[extreme].mean())
    if high.any():
        result["error above .95"] = float(np.abs(p - data.expected)[high].mean())
    p = np.clip(p, 1e-3, 1.0 - 1e-3) if p.max() >= 1.0 else p
    result["log likelihood"] = float(np.mean(np.where(data.x > 0.0, np.log(p), np.log1p(-p))))
    return result


def measure(name: str, method: str, seed: int, options: argparse.Namespace) -> list[Row]:
    shape = options.shape or ((1000, 100) if DATA[name][0] == "bernoulli" else (500, 50))
    K = options.true_rank
    data = simulate(name, shape, K, seed)
    augmentation, settings = METHODS[method]
    likelihood = "gaussian" if method == "gaussian" else data.likelihood
    if likelihood in ("poisson", "negbinomial"):  # Boehning's bound is for the first, Polya-Gamma variables the second
        likelihood = "poisson" if method == "boehning" else "negbinomial"
    matrix, groups = Matrix(DenseCells(data.x.shape), data.x), "column" if likelihood == "negbinomial" else "all"
    link = Link(matrix, 0, 1, likelihood, augmentation, "none", groups)
    sweeps = (options.gibbs_sweeps if method.endswith("-gibbs") else None) or options.sweeps
    points = {int(n) for n in np.geomspace(1, sweeps, options.points).round()}
    rng = np.random.default_rng(1000 + seed)
    problem, _ = build_problem([link], 3 * K // 2, [False, True], rng, "random", ())
    chosen = ENGINES[settings.name]
    watch = Watch(data, link, chosen.capabilities.sampler, points)
    result = RunPlan(chosen, settings, sweeps, 0.0).fit(problem, callbacks=(watch,), warn=False)
    clock = np.cumsum(result.trace["seconds"])
    common = {"data": name, "fold": seed, "rank": 3 * K // 2, "method": method}
    rows = [
        row(metric, value, sweep=sweep, seconds=float(clock[sweep - 1]), **common)
        for sweep, found in watch.scores.items()
        for metric, value in found.items()
    ]
    last = watch.scores[sweeps]
    rows.append(row("ms per sweep", 1e3 * float(np.median(result.trace["seconds"])), sweep=sweeps, **common))
    say(f"{name} {method} seed {seed}: {clock[-1]:.1f} s, " + ", ".join(f"{k} {v:.4f}" for k, v in last.items()))
    return rows


def summary(rows: list[Row]) -> list[Row]:
    """Mean and standard deviation over data sets of the last sweep's scores, and of the time of a sweep."""
    last: dict[tuple[Any, ...], int] = {}
    for item in rows:
        key = (item["data"], item["method"], item["fold"])
        last[key] = max(last.get(key, 0), item["sweep"])
    ended = [item for item in rows if item["sweep"] == last[(item["data"], item["method"], item["fold"])]]
    result = []
    for (data, method, metric), items in grouped(ended, ("data", "method", "metric")).items():
        values = [item["value"] for item in items]
        sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
        seconds = [item["seconds"] for item in items if "seconds" in item]
        about = {"data": data, "method": method, "seconds": float(np.mean(seconds)) if seconds else None}
        result.append(row(metric, np.mean(values), **about, sd=sd, n=len(values)))
    return result


def main(arguments: list[str] | None = None) -> None:
    p = parser(__doc__, data=",".join(DATA), methods=",".join(METHODS), sweeps=3000, seed=0)
    p.add_argument("--seeds", type=int, default=10, help="data sets for each setting (default: %(default)s)")
    p.add_argument("--gibbs-sweeps", type=int, help="sweeps of the sampler, if not those of the others")
    p.add_argument("--points", type=int, default=12, help="sweeps to score at (default: %(default)s)")
    p.add_argument("--true-rank", type=int, default=10)
    p.add_argument("--shape", type=lambda s: tuple(int(n) for n in s.split(",")), help="rows and columns")
    options = p.parse_args(arguments)
    check_words(p, options, data=DATA, methods=METHODS)
    rows = []
    for name in options.data:
        for method in options.methods:
            for seed in range(options.seed, options.seed + options.seeds):
                rows += measure(name, method, seed, options)
    report(summary(rows) + (rows if options.json else []), options.json)


if __name__ == "__main__":
    main()
