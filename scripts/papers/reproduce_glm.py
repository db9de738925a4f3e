"""Probit and logistic regression as in the CEP paper: tables 1 and 2 (six data sets, five splits), and figures 1 and 2.

    python -m scripts.papers.reproduce_glm --tables                               # as published, and at convergence
    python -m scripts.papers.reproduce_glm --simulations --json rows.json         # figure 1: KL to NUTS against time
    python -m scripts.papers.draw rows.json --metric kl_curve --x seconds --panel data,setting -o kl.png
    python -m scripts.papers.draw tables.json --metric loglik --x data --y seconds --panel link,setting -o seconds.png
    python -m scripts.papers.reproduce_glm --tables --methods is --folds 1        # slow: about a second a sweep

Settings "published" are those of the authors' code: prior N(0, 1), no intercept, messages of precision 1e-6 at first,
their damping, nine Gauss-Hermite nodes for CEP with the logit, CEP-2 after their number of CEP-1 sweeps, and their
stopping rule (sum of squared changes of natural means, over the number of points, below 1e-5), which shrinks with the
square of the step: with rho = 0.01 the runs end far from a fixed point. "converged" takes the package's own damping and
stops when no weight would move by more than 1e-4 posterior standard deviations; "ep" has a full covariance.

The paper's sampled baselines are factorised EP too, at its damping: "kjit" learns the moments just in time
(`glm_baselines`), "is" samples them from the prior (also there). "is-ep" is what method="is" of the
estimators does instead: importance sampling of the whole posterior, with proposals from EP's.

What of the paper's conclusions survives is told in data/measured/findings.csv.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from scripts.benchmarks.common import Row, check_words, grouped, parser, report, row, say
from scripts.papers.glm_baselines import JustInTime, importance_moments, sampled_ep
from tensorcep import datasets
from tensorcep.core.compile import kernel
from tensorcep.core.loop import Run, run
from tensorcep.kernels.special import log
from tensorcep.likelihoods.binary import PROBIT
from tensorcep.likelihoods.logit import LOGIT, LogisticLabels, derivatives, loglik, node
from tensorcep.linear.glm import SWEPT, fit_glm
from tensorcep.linear.problem import GLMProblem, as_csr
from tensorcep.linear.settings import GLM_METHODS, IS, GLMSettings
from tensorcep.metrics import auc

CONDITIONAL = ("cep1", "cep2")
METHODS = ("cep1", "cep2", "lp", "ep-factorized", "vb", "ep", "kjit")
SLOW_METHODS = ("is", "is-ep")
SAMPLED = ("kjit", "is")
SIMULATIONS = ("probit-1", "probit-2", "logistic-1", "logistic-2")
PUBLISHED_SWEEPS, PUBLISHED_TOL, CONVERGED_TOL = 1000, 1e-5, 1e-4
# The authors' rho, where it is not 0.01 for the probit and 0.1 for the logit; EP's is 0.05 throughout.
RHO = {("crabs", "probit"): 0.1, ("australian", "probit"): 0.1}
# CEP-2's rho, where it is not 0.01, and its sweeps of CEP-1, where they are not 50.
RHO_SECOND = dict.fromkeys(product(("crabs", "australian"), ("probit", "logistic")), 0.1) | {("sonar", "probit"): 0.001}
FIRST_ORDER = {("crabs", "probit"): 10, ("crabs", "logistic"): 10, ("australian", "logistic"): 10}
# The rule of the paper's experiments: nine Gauss-Hermite nodes.
NINE_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
NINE_LOG_WEIGHTS = np.log(_WEIGHTS / _WEIGHTS.sum())


@kernel
def nine_tilted2(y, m, v, theta, logz, alpha, beta, alpha2, beta2):  # type: ignore[no-untyped-def]
    """Write log E[q], alpha, beta and their second derivatives in m by Gauss-Hermite nodes at the cavity.

    Good to five digits for a variance near 1, to three at 9 and to none at 100: for published numbers, not for use.

    Source: Wang and Zhe, Conditional Expectation Propagation, supplement 8.2.
    """
    for n in range(y.shape[0]):
        mean, s = y[n] * m[n], math.sqrt(v[n])
        shift = min(mean, 0.0)
        w0, w1, w2, w3, w4 = 0.0, 0.0, 0.0, 0.0, 0.0
        for j in range(NINE_NODES.shape[0]):
            w, p = node(mean + s * NINE_NODES[j], NINE_LOG_WEIGHTS[j] - shift)
            w0 += w
            w1 += w * p
            w2 += w * (p * p)
            w3 += w * (p * p * p)
            w4 += w * (p * p) * (p * p)
        logz[n] = shift + log(w0)
        alpha[n], beta[n], alpha2[n], beta2[n] = derivatives(y[n], w0, w1, w2, w3, w4)


@kernel
def nine_tilted(y, m, v, theta, logz, alpha, beta):  # type: ignore[no-untyped-def]
    """Write log E[q], alpha and beta by Gauss-Hermite nodes at the cavity."""
    unused = np.empty_like(y)
    nine_tilted2(y, m, v, theta, logz, alpha, beta, unused, unused)


LOGIT_NINE = LogisticLabels("logit_nine", nine_tilted, loglik, tilted2=nine_tilted2)


class Effort(NamedTuple):
    """Largest number of sweeps (at most 1,000 of them with published settings), draws of a sampler, and its seed."""

    sweeps: int
    draws: int
    seed: int


def settings_of(method: str, simulated: bool = False) -> tuple[str, ...]:
    if method in ("ep", "is-ep") or (simulated and method == "vb"):
        return ("converged",)
    return ("published",) if method == "is" or (simulated and method == "kjit") else ("published", "converged")


def problem_of(points: datasets.Points, link: str, nine: bool, seed: int = 0) -> GLMProblem:
    """The paper's model: weights N(0, 1), no intercept; nine quadrature nodes or exact moments for the logit."""
    likelihood = PROBIT if link == "probit" else LOGIT_NINE if nine else LOGIT
    zeros = np.zeros(points.X.shape[1])
    return GLMProblem(as_csr(points.X), 2.0 * points.y - 1.0, likelihood, zeros, zeros + 1.0, zeros > 0.0, seed)


def published_settings(data: str, link: str, method: str) -> GLMSettings:
    """The authors' damping, stopping rule, first messages and warm-up."""
    if method in ("vb", "ep"):
        return GLM_METHODS[method]
    rho = RHO.get((data, link), 0.01 if link == "probit" else 0.1)
    rho = 0.05 if method == "ep-factorized" else rho
    rho = RHO_SECOND.get((data, link), 0.01) if method == "cep2" else rho
    values: dict[str, Any] = {"damping": 1.0 - rho, "stop": "published", "message_precision": 1e-6}
    if method == "cep2":
        values["warm_up"] = FIRST_ORDER.get((data, link), 50)
    return replace(GLM_METHODS[method], **values)


def fit_sampled(problem: GLMProblem, method: str, setting: str, effort: Effort, score: Any = None) -> Run:
    """Factorised EP with learned or sampled moments, at the authors' damping of EP; all sweeps for a curve."""
    make = JustInTime if method == "kjit" else importance_moments
    published = setting == "published"
    how: dict[str, Any] = {"damping": 0.95, "max_iter": effort.sweeps, "stop": "residual", "tol": CONVERGED_TOL}
    if published:
        how |= {"max_iter": min(effort.sweeps, PUBLISHED_SWEEPS), "stop": "published", "tol": PUBLISHED_TOL}
    how |= {} if score is None else {"tol": 0.0, "score": score}
    return sampled_ep(problem, make(problem, effort.draws), **how)


def fit_table(points: datasets.Points, data: str, link: str, method: str, setting: str, effort: Effort) -> Any:
    """One fit of the tables; returns the problem and what was found."""
    published = setting == "published"
    problem = problem_of(points, link, published and method in CONDITIONAL, effort.seed)
    if method in SAMPLED:
        return problem, fit_sampled(problem, method, setting, effort)
    if method == "is-ep":
        return problem, fit_glm(problem, IS(n_draws=effort.draws), max_iter=effort.sweeps, tol=CONVERGED_TOL)
    settings = published_settings(data, link, method) if published else method
    tol = PUBLISHED_TOL if published else CONVERGED_TOL
    tol = 0.0 if published and method == "vb" else tol
    max_iter = PUBLISHED_SWEEPS if published else effort.sweeps
    return problem, fit_glm(problem, settings, max_iter=max_iter, tol=tol)


def end_of(found: Run) -> dict[str, Any]:
    """Whether a run converged, and what part of a sampled run's messages had collapsed at its end."""
    lost = float(found.trace["lost"]) if "lost" in found.trace else None
    return {"sweep": found.n_iter, "converged": int(found.converged), "lost": lost}


def table_rows(data: str, link: str, fold: int, method: str, setting: str, effort: Effort) -> list[Row]:
    """Mean log predictive probability of the test labels, and the AUC of the posterior mean of x'w."""
    train, (X, y) = datasets.load_uci(data, link, fold)
    begin = time.perf_counter()
    problem, found = fit_table(train, data, link, method, setting, effort)
    about = {"data": data, "link": link, "fold": fold, "method": method, "setting": setting}
    about |= {"seconds": time.perf_counter() - begin, **end_of(found)}
    f, cov, likelihood = X @ found.posterior.mean, found.posterior.cov, problem.likelihood
    v = X**2 @ cov if cov.ndim == 1 else np.einsum("ni,ij,nj->n", X, cov, X)
    log_p = likelihood.logpdf(2.0 * y - 1.0, f, v, likelihood.default_theta)
    return [row("loglik", float(log_p.mean()), **about), row("auc", auc(y, f), **about)]


def means(rows: list[Row]) -> list[Row]:
    """Mean and standard error over the folds."""
    result, names = [], ("data", "link", "method", "setting", "metric")
    for key, items in grouped(rows, names).items():
        values = np.array([item["value"] for item in items], dtype=float)
        about = {**dict(zip(names, key, strict=True)), "fold": "mean"}
        averaged = ("sweep", "seconds", *(["lost"] if "lost" in items[0] else []))
        about |= {name: float(np.mean([item[name] for item in items])) for name in averaged}
        spread = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
        done, metric = int(sum(item["converged"] for item in items)), about.pop("metric")
        result.append(row(metric, float(values.mean()), **about, standard_error=spread, converged=done))
    return result


def divergence(found: datasets.Simulation, mean: np.ndarray, cov: np.ndarray) -> float:
    """KL divergence from the NUTS posterior, as a Gaussian, to N(mean, cov)."""
    full = np.diag(cov) if cov.ndim == 1 else cov
    precision, shift = np.linalg.inv(full), mean - found.mean
    logs = np.linalg.slogdet(full)[1] - np.linalg.slogdet(found.cov)[1]
    return 0.5 * float(np.trace(precision @ found.cov) + shift @ precision @ shift - len(mean) + logs)


def of_precisions(found: datasets.Simulation, mean: np.ndarray, cov: np.ndarray) -> float:
    """KL divergence from the NUTS posterior to the factorised Gaussian with this mean and these precisions."""
    return divergence(found, mean, 1.0 / np.diag(np.linalg.inv(cov)))


def simulation_rows(name: str, method: str, setting: str, effort: Effort) -> list[Row]:
    """KL after the fit, with and without the shift of the mean, and along the way."""
    found = datasets.load_simulation(name)
    published = setting == "published"
    problem = problem_of(found.train, name.split("-")[0], published and method in CONDITIONAL, effort.seed)
    about: dict[str, Any] = {"data": name, "method": method, "setting": setting}
    curve: list[tuple[int, float]] = []

    def score(sweep: int, info: Any, state: Any) -> None:
        curve.append((sweep, divergence(found, state.mean, state.var)))

    begin = time.perf_counter()
    result: Any
    if method in SAMPLED:
        result = fit_sampled(problem, method, setting, effort, score)
    elif method == "ep":
        result = fit_glm(problem, method, max_iter=effort.sweeps, tol=CONVERGED_TOL)
    elif method == "is-ep":
        _, result = fit_table(found.train, name, name.split("-")[0], method, setting, effort)
    else:
        rho = 0.05 if method == "ep-factorized" else 0.1
        settings = GLM_METHODS[method]
        if published and method != "vb":
            settings = replace(settings, damping=1.0 - rho, message_precision=1e-6)
        tol = 0.0 if published else CONVERGED_TOL
        most = PUBLISHED_SWEEPS if published else effort.sweeps
        result = run(SWEPT[method], problem, settings, max_iter=most, tol=tol, callbacks=[score])
    steps = result.trace.get("seconds", np.zeros(0))
    wall = time.perf_counter() - begin
    posterior = result.posterior
    kl = divergence(found, posterior.mean, posterior.cov)
    about |= {"seconds": float(steps.sum() if len(steps) else wall), "wall": wall, **end_of(result)}
    rows = [row("kl", kl, **about), row("kl_without_shift", divergence(found, found.mean, posterior.cov), **about)]
    if posterior.cov.ndim == 2:
        rows.append(row("kl_of_precisions", of_precisions(found, posterior.mean, posterior.cov), **about))
    elapsed, at = np.cumsum(steps), {int(n) for n in np.geomspace(1, max(1, len(curve)), 60)}
    along = [(sweep, value, {"sweep": sweep, "seconds": elapsed[sweep - 1]}) for sweep, value in curve if sweep in at]
    return rows + [row("kl_curve", value, **{**about, **where}) for _, value, where in along]


def run_simulations(methods: list[str], effort: Effort) -> list[Row]:
    """Figure 1."""
    rows: list[Row] = []
    for name in SIMULATIONS:
        found = datasets.load_simulation(name)
        rows.append(row("kl_of_precisions", of_precisions(found, found.mean, found.cov), data=name, method="nuts"))
        for method in methods:
            for setting in settings_of(method, simulated=True):
                new = simulation_rows(name, method, setting, effort)
                say(f"{name} {method} {setting}: KL {new[0]['value']:.4f}")
                rows += new
    return rows


def run_tables(names: list[str], folds: list[int], methods: list[str], effort: Effort) -> list[Row]:
    """Tables 1 and 2, and figure 2."""
    rows: list[Row] = []
    for link, method in product(datasets.LINKS, methods):  # compile outside of the seconds that figure 2 shows
        points = datasets.load_uci(names[0], link, 1).train
        for setting in settings_of(method):
            fit_table(points, names[0], link, method, setting, Effort(2, 10, 0))
    for data, link, method in product(names, datasets.LINKS, methods):
        for setting in settings_of(method):
            for fold in folds:
                rows += table_rows(data, link, fold, method, setting, effort)
            say(f"{data} {link} {method} {setting}: {means(rows)[-2]['value']:.4f}")
    return [*rows, *means(rows)]


def main(arguments: list[str] | None = None) -> None:
    everything, usual = (*METHODS, *SLOW_METHODS), ",".join(METHODS)
    args_of = parser(__doc__, data=",".join(datasets.UCI_NAMES), folds="1,2,3,4,5", methods=usual, sweeps=5000, seed=0)
    args_of.add_argument("--draws", type=int, default=100_000, help="draws of kjit, is and is-ep (default: 100000)")
    args_of.add_argument("--tables", action="store_true", help="tables 1 and 2")
    args_of.add_argument("--simulations", action="store_true", help="figure 1")
    args = args_of.parse_args(arguments)
    check_words(args_of, args, data=datasets.UCI_NAMES, methods=everything)
    if not args.tables and not args.simulations:
        args_of.error("nothing to do; give --tables, --simulations or both")
    effort = Effort(args.sweeps, args.draws, args.seed)
    rows = run_simulations(args.methods, effort) if args.simulations else []
    if args.tables:
        rows += run_tables(args.data, args.folds, args.methods, effort)
    report(rows, args.json)


if __name__ == "__main__":
    main()
