"""Probit and logistic regression as in the CEP paper: tables 1 and 2 (six data sets, five splits), and figures 1 and 2.

    python scripts/reproduce_glm.py --tables                                 # published settings, and at convergence
    python scripts/reproduce_glm.py --simulations --figure kl.png            # KL to NUTS against time and sweeps

Settings "published" are those of the authors' code: prior N(0, 1), no intercept, messages of precision 1e-6 at first,
their damping, nine Gauss-Hermite nodes for CEP with the logit, CEP-2 after their number of CEP-1 sweeps, and their
stopping rule (sum of squared changes of natural means, over the number of points, below 1e-5), which shrinks with the
square of the step: with rho = 0.01 the runs end far from a fixed point. "converged" takes the package's own damping and
stops when no weight would move by more than 1e-4 posterior standard deviations; "ep" has a full covariance.

Which conclusions of the paper survive at convergence (five folds, mean test log likelihood)? That CEP is about as good
as factorised EP does: with either link CEP-1 is ahead on australian and breast (probit -0.434 and -0.610, against
-0.440 and -0.620), EP on crabs, ionos and sonar (probit -0.198, -0.327 and -0.565, against -0.202, -0.341 and -0.611),
and pima ties. That it is better does not: the published lead on ionos and sonar is where the damped runs stopped. That
the second order improves on the first does not: converged CEP-2 is better on crabs alone, equal on pima, and much worse
on sonar (probit -0.815, against -0.611). That VB is the worst for the probit does, except on crabs. Early stopping
itself helps on four of the six sets, and hurts on crabs, by more than the methods differ. That LP is slow does not: one
scalar Newton solve per point and sweep makes it as quick as EP, and its scores are close to those of CEP-1.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from _common import Row, parser, report, row, say

from tensorcep import datasets
from tensorcep.inference._glm_data import GLMPosterior, GLMProblem, as_csr
from tensorcep.inference._run import run
from tensorcep.inference.glm import fit_glm
from tensorcep.inference.glm_factorised import CEP1, CEP2, EP_FACTORIZED, LP, FactorisedOptions
from tensorcep.inference.glm_vb import VB, VBOptions
from tensorcep.likelihoods.logit import LOGIT, LOGIT_NINE
from tensorcep.likelihoods.probit import PROBIT
from tensorcep.metrics import auc

CONDITIONAL = ("cep1", "cep2")
METHODS = ("cep1", "cep2", "lp", "ep-factorized", "vb", "ep")
SWEPT = {method.name: method for method in (CEP1, CEP2, LP, EP_FACTORIZED, VB)}
SIMULATIONS = ("probit-1", "probit-2", "logistic-1", "logistic-2")
PUBLISHED_SWEEPS, PUBLISHED_TOL, CONVERGED_TOL = 1000, 1e-5, 1e-4
# The authors' rho, where it is not 0.01 for the probit and 0.1 for the logit; EP's is 0.05 throughout.
RHO = {("crabs", "probit"): 0.1, ("australian", "probit"): 0.1}
# CEP-2's rho, where it is not 0.01, and its sweeps of CEP-1, where they are not 50.
RHO_SECOND = {
    ("crabs", "probit"): 0.1,
    ("crabs", "logistic"): 0.1,
    ("australian", "probit"): 0.1,
    ("australian", "logistic"): 0.1,
    ("sonar", "probit"): 0.001,
}
FIRST_ORDER = {("crabs", "probit"): 10, ("crabs", "logistic"): 10, ("australian", "logistic"): 10}


def problem_of(points: datasets.Points, link: str, nine: bool) -> GLMProblem:
    """The paper's model: weights N(0, 1), no intercept; nine quadrature nodes or exact moments for the logit."""
    d = points.X.shape[1]
    logit = LOGIT_NINE if nine else LOGIT
    likelihood = PROBIT if link == "probit" else logit
    no = np.zeros(d, dtype=bool)
    return GLMProblem(as_csr(points.X), 2.0 * points.y - 1.0, likelihood, np.zeros(d), np.ones(d), no)


def published_settings(data: str, link: str, method: str) -> dict[str, Any]:
    """The authors' damping, stopping rule, first messages and warm-up."""
    if method in ("vb", "ep"):
        return {}
    rho = RHO.get((data, link), 0.01 if link == "probit" else 0.1)
    rho = 0.05 if method == "ep-factorized" else rho
    rho = RHO_SECOND.get((data, link), 0.01) if method == "cep2" else rho
    return {
        "damping": 1.0 - rho,
        "stop": "published",
        "message_precision": 1e-6,
        "first_order": FIRST_ORDER.get((data, link), 50),
    }


def test_scores(problem: GLMProblem, posterior: GLMPosterior, points: datasets.Points) -> dict[str, float]:
    """Mean log predictive probability of the test labels, and the AUC of the posterior mean of x'w."""
    f = points.X @ posterior.mean
    if posterior.cov.ndim == 1:
        v = points.X**2 @ posterior.cov
    else:
        v = np.einsum("ni,ij,nj->n", points.X, posterior.cov, points.X)
    log_p = problem.likelihood.logpdf(2.0 * points.y - 1.0, f, v, problem.likelihood.default_theta)
    return {"loglik": float(log_p.mean()), "auc": auc(points.y, f)}


def table_rows(data: str, link: str, fold: int, method: str, setting: str, sweeps: int) -> list[Row]:
    """Test scores of one fit."""
    points = datasets.load_uci(data, link, fold)
    published = setting == "published"
    problem = problem_of(points.train, link, published and method in CONDITIONAL)
    settings = published_settings(data, link, method) if published else {}
    tol = CONVERGED_TOL if not published or method == "ep" else PUBLISHED_TOL
    tol = 0.0 if published and method == "vb" else tol
    begin = time.perf_counter()
    max_iter = PUBLISHED_SWEEPS if published else sweeps
    found = fit_glm(problem, method, settings, max_iter=max_iter, tol=tol)
    about = {
        "data": data,
        "link": link,
        "fold": fold,
        "method": method,
        "setting": setting,
        "sweep": found.n_iter,
        "seconds": time.perf_counter() - begin,
        "converged": int(found.converged),
    }
    scores = test_scores(problem, found.posterior, points.test)
    return [row(metric, value, **about) for metric, value in scores.items()]


def means(rows: list[Row]) -> list[Row]:
    """Mean and standard error over the folds."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for item in rows:
        key = tuple(item[name] for name in ("data", "link", "method", "setting", "metric"))
        groups.setdefault(key, []).append(item)
    result = []
    for (data, link, method, setting, metric), items in groups.items():
        values = np.array([item["value"] for item in items], dtype=float)
        about = {"data": data, "link": link, "method": method, "setting": setting, "fold": "mean"}
        spread = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
        sweep = float(np.mean([item["sweep"] for item in items]))
        done = int(sum(item["converged"] for item in items))
        result.append(row(metric, float(values.mean()), **about, sweep=sweep, standard_error=spread, converged=done))
    return result


def divergence(found: datasets.Simulation, mean: np.ndarray, cov: np.ndarray) -> float:
    """KL divergence from the NUTS posterior, as a Gaussian, to N(mean, cov)."""
    full = np.diag(cov) if cov.ndim == 1 else cov
    precision, shift = np.linalg.inv(full), mean - found.mean
    logs = np.linalg.slogdet(full)[1] - np.linalg.slogdet(found.cov)[1]
    return 0.5 * float(np.trace(precision @ found.cov) + shift @ precision @ shift - len(mean) + logs)


def simulation_rows(name: str, method: str, setting: str, sweeps: int) -> tuple[list[Row], np.ndarray]:
    """KL after the fit, with and without the shift of the mean, and the curve (seconds, sweep, KL)."""
    found = datasets.load_simulation(name)
    published = setting == "published"
    problem = problem_of(found.train, name.split("-")[0], published and method in CONDITIONAL)
    about: dict[str, Any] = {"data": name, "method": method, "setting": setting}
    curve: list[tuple[int, float]] = []
    begin = time.perf_counter()
    if method == "ep":
        result: Any = fit_glm(problem, method, max_iter=sweeps, tol=CONVERGED_TOL)
        steps = result.trace["seconds"]
    else:

        def score(sweep: int, info: Any, state: Any) -> None:
            curve.append((sweep, divergence(found, state.mean, state.var)))

        rho = 0.05 if method == "ep-factorized" else 0.1
        authors = FactorisedOptions(damping=1.0 - rho, message_precision=1e-6, first_order=10)
        options: Any = authors if published else FactorisedOptions()
        options = VBOptions() if method == "vb" else options
        tol = 0.0 if published else CONVERGED_TOL
        most = PUBLISHED_SWEEPS if published else sweeps
        result = run(SWEPT[method], problem, options, max_iter=most, tol=tol, callbacks=[score])  # type: ignore[arg-type]
        steps = result.trace["seconds"]
    wall = time.perf_counter() - begin
    posterior = result.posterior
    kl = divergence(found, posterior.mean, posterior.cov)
    about |= {"sweep": result.n_iter, "seconds": float(steps.sum()), "wall": wall, "converged": int(result.converged)}
    rows = [row("kl", kl, **about), row("kl_without_shift", divergence(found, found.mean, posterior.cov), **about)]
    elapsed = np.cumsum(steps)
    return rows, np.array([(elapsed[sweep - 1], sweep, value) for sweep, value in curve]).reshape(-1, 3)


def draw(curves: dict[tuple[str, str], np.ndarray], path: str) -> None:
    """KL against seconds (above) and sweeps (below) for each simulation."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    names = list(dict.fromkeys(name for name, _ in curves))
    figure, axes = plt.subplots(2, len(names), figsize=(3.6 * len(names), 6.0), squeeze=False)
    for (name, method), curve in curves.items():
        for line, label in ((0, "seconds"), (1, "sweeps")):
            panel = axes[line, names.index(name)]
            panel.loglog(curve[:, line], curve[:, 2], label=method)
            panel.set_xlabel(label)
            panel.set_title(name if line == 0 else "")
    for panel in axes[:, 0]:
        panel.set_ylabel("KL(NUTS || q)")
    axes[0, 0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    args_of = parser(
        __doc__, data=",".join(datasets.UCI_NAMES), folds="1,2,3,4,5", methods=",".join(METHODS), sweeps=5000
    )
    args_of.add_argument("--tables", action="store_true", help="tables 1 and 2")
    args_of.add_argument("--simulations", action="store_true", help="figures 1 and 2")
    args_of.add_argument("--figure", metavar="FILE", help="draw the curves of the simulations, converged settings")
    args = args_of.parse_args()
    for name, found, allowed in (("data", args.data, datasets.UCI_NAMES), ("methods", args.methods, METHODS)):
        for item in found:
            if item not in allowed:
                args_of.error(f"argument --{name}: {item!r} is not among {', '.join(allowed)}")
    if not args.tables and not args.simulations:
        args_of.error("nothing to do; give --tables, --simulations or both")
    rows: list[Row] = []
    curves: dict[tuple[str, str], np.ndarray] = {}
    for name in SIMULATIONS if args.simulations else ():
        for method in args.methods:
            for setting in ("published", "converged") if method not in ("ep", "vb") else ("converged",):
                new, curve = simulation_rows(name, method, setting, args.sweeps)
                rows += new
                say(f"{name} {method} {setting}: KL {new[0]['value']:.4f}")
                if len(curve) and setting == "converged":
                    curves[name, method] = curve
    if args.figure and curves:
        draw(curves, args.figure)
    tables: list[Row] = []
    for data in args.data if args.tables else ():
        for link in datasets.LINKS:
            for method in args.methods:
                for setting in ("published", "converged") if method != "ep" else ("converged",):
                    for fold in args.folds:
                        tables += table_rows(data, link, fold, method, setting, args.sweeps)
                    say(f"{data} {link} {method} {setting}: {means(tables)[-2]['value']:.4f}")
    report([*rows, *tables, *means(tables)], args.json)


if __name__ == "__main__":
    main()
