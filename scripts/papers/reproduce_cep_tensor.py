"""Every inference method on Alog and Enron, as in figures 3 and 4 of the CEP paper.

    python -m scripts.papers.reproduce_cep_tensor --json rows.json --figure curves.png         # all of it
    python -m scripts.papers.reproduce_cep_tensor --methods cep --folds 1,2,3 --sweeps 20      # published trajectories
    python -m scripts.papers.reproduce_cep_tensor --methods cep --schedules parallel,modewise  # five-fold means

Folds, priors and scores are the published ones (`scripts.lib.published`). cep: first messages of precision 1e-6,
damping 0.5 in the parallel schedule; the modewise schedule needs no damping for real values. vmp: as published. wopt: a
sweep is one iteration of L-BFGS-B. Samplers: one chain, the mean prediction of the draws so far without the first
fifth. Other methods have their default settings, with damping 0.5 for labels. Methods for logistic models see Enron
only.

Rows: the metric after each reported sweep and the seconds until then, the median seconds of a sweep, and the means and
standard deviations over folds.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from scripts.lib.common import Row, parser, report, row, say, words
from scripts.lib.published import SHAPES, load, options_with, scores
from tensorcep.core.loop import Sweep, run
from tensorcep.core.persist.archive import atomic_write
from tensorcep.cp.methods import METHODS
from tensorcep.likelihoods import LIKELIHOODS

# Binary messages are damped in either schedule: undamped modewise updates of a probit can cycle.
DAMPING = {("alog", "parallel"): 0.5, ("alog", "modewise"): 0.0, ("enron", "parallel"): 0.5, ("enron", "modewise"): 0.5}
REPORTED_SWEEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
# What a method may be given, in the order of preference.
CANDIDATES = {"alog": ("gaussian",), "enron": ("probit", "logit")}


# Most sweeps of a method whose sweeps cost many times those of the others, and which needs few.
MOST_SWEEPS = {"laplace": 100}
WOPT_ITERATIONS = 10


class Recipe(NamedTuple):
    """How a method is run: its options, the stream of the priors, what one step counts for, and the steps."""

    options: Any
    stream: str
    stride: int
    steps: int


def recipe_of(method: str, data: str, schedule: str | None, sweeps: int) -> Recipe:
    """The published settings where there are any, otherwise the method's own."""
    sweeps = min(sweeps, MOST_SWEEPS.get(method, sweeps))
    if method == "cep":
        damping = DAMPING[data, schedule or "parallel"]
        published = {
            "positive": False,
            "noise_moments": "cavity",
            "message_precision": 1e-6,
            "message_noise": (1e-3, 1e-3),
        }
        return Recipe(
            options_with("cep", schedule=schedule or "parallel", damping=damping, **published), "cep", 1, sweeps
        )
    if method == "wopt":
        options = options_with(method, iterations=min(sweeps, WOPT_ITERATIONS), ridge=0.0, least_gain=0.0)
        return Recipe(options, "cep", options.iterations, sweeps // options.iterations)
    chain = {"max_iter": sweeps, "burn_in": sweeps // 5, "n_chains": 1}
    options = options_with(method, damping=DAMPING[data, "modewise"], **chain)
    return Recipe(options, "vmp" if method == "vmp" else "cep", 1, sweeps)


def likelihood_for(method: str, data: str) -> str | None:
    """The first likelihood for these data that the method can use, or None."""
    return next((name for name in CANDIDATES[data] if not METHODS[method].lacks(LIKELIHOODS[name])), None)


class Setting(NamedTuple):
    """One curve: data, method, its likelihood, schedule (of cep), rank."""

    data: str
    method: str
    likelihood: str
    schedule: str | None
    rank: int


def trajectory(setting: Setting, fold: int, sweeps: int, threads: int) -> list[Row]:
    """Rows of one fit: metrics after each reported sweep, and the median seconds of a sweep."""
    data, name, likelihood, schedule, rank = setting
    recipe, method = recipe_of(name, data, schedule, sweeps), METHODS[name]
    loaded = load(data, fold, rank, likelihood, recipe.stream)
    found: list[tuple[int, dict[str, float]]] = []
    problems = {"skipped": 0, "shrunk": 0}

    def score(step: int, info: Sweep, state: Any) -> None:
        problems["skipped"] += info.skipped
        problems["shrunk"] += info.shrunk
        if step == recipe.steps or step * recipe.stride in REPORTED_SWEEPS:
            found.append((step, scores(loaded, method.finish(state, loaded.problem))))

    how: dict[str, Any] = {"max_iter": recipe.steps, "tol": 0.0, "n_threads": threads, "callbacks": [score]}
    seconds = run(method, loaded.problem, recipe.options, **how).trace["seconds"]
    about = {"data": data, "fold": fold, "rank": rank, "method": name, "likelihood": likelihood, "schedule": schedule}
    rows = [
        row(metric, value, **about, sweep=step * recipe.stride, seconds=float(seconds[:step].sum()))
        for step, metrics in found
        for metric, value in metrics.items()
    ]
    timed = seconds if recipe.stride == 1 else seconds[:10]  # a search that has ended makes no more iterations
    rows.append(row("seconds_per_sweep", float(np.median(timed)) / recipe.stride, **about))
    rows += [row(f"{name}_updates", count, **about) for name, count in problems.items()]
    return rows


GROUP = ("data", "rank", "method", "likelihood", "schedule", "sweep", "metric")


def means(rows: Sequence[Row]) -> list[Row]:
    """Mean and standard deviation over the folds of every metric at its sweep."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for item in rows:
        groups.setdefault(tuple(item.get(name) for name in GROUP), []).append(item["value"])
    result = []
    for key, values in groups.items():
        about = dict(zip(GROUP, key, strict=True))
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        result.append(
            row(about.pop("metric"), float(np.mean(values)), **about, fold="mean", sd=spread, folds=len(values))
        )
    return result


def draw(averages: Sequence[Row], path: str) -> None:
    """Mean accuracy against sweep: one panel per data set and rank, one line per method."""
    from matplotlib.figure import Figure

    curves: dict[tuple[str, int], dict[str, list[tuple[int, float]]]] = {}
    for item in averages:
        if item["metric"] in ("rmse", "auc") and "sweep" in item:
            label = " ".join(str(item[name]) for name in ("method", "schedule") if item.get(name))
            panel = curves.setdefault((item["data"], item["rank"]), {})
            panel.setdefault(label, []).append((item["sweep"], item["value"]))
    kinds, ranks = sorted({data for data, _ in curves}), sorted({rank for _, rank in curves})
    figure = Figure(figsize=(3.2 * len(ranks), 3.0 * len(kinds)), layout="constrained", dpi=110)
    axes = figure.subplots(len(kinds), len(ranks), squeeze=False)
    for (data, rank), panel in curves.items():
        ax = axes[kinds.index(data), ranks.index(rank)]
        for label, points in panel.items():
            ax.plot(*np.transpose(points), ".-", label=label)
        ax.set(title=f"{data}, rank {rank}", xscale="log", xlabel="sweep", ylabel="RMSE" if data == "alog" else "AUC")
    for first in axes[:, 0]:  # data sets differ in the methods that fit them
        first.legend(fontsize=8)
    with atomic_write(path) as handle:
        figure.savefig(handle, format=os.path.splitext(path)[1][1:] or "png")


def settings(options: Any) -> list[Setting]:
    """Every curve that was asked for."""
    result = []
    for data in options.data:
        for name in options.methods:
            likelihood = likelihood_for(name, data)
            for schedule in options.schedules if name == "cep" else [None]:
                for rank in options.ranks if likelihood is not None else []:
                    result.append(Setting(data, name, likelihood or "", schedule, rank))
    return result


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    every = ",".join(METHODS)
    args_of = parser(
        __doc__, data="alog,enron", folds="1,2,3,4,5", ranks="3,5,8,10", methods=every, sweeps=500, threads="1"
    )
    args_of.add_argument(
        "--schedules",
        type=words("parallel", "modewise"),
        default=["parallel"],
        help="schedules of cep, between commas: parallel (the paper's), modewise (default: parallel)",
    )
    args_of.add_argument("--figure", metavar="FILE", help="draw the mean accuracy against the sweep to this file")
    args = args_of.parse_args(arguments)
    for option, allowed in (("data", SHAPES), ("methods", METHODS)):
        for word in getattr(args, option):
            if word not in allowed:
                args_of.error(f"argument --{option}: {word!r} is not among {', '.join(allowed)}")
    rows: list[Row] = []
    for setting in settings(args):
        for fold in args.folds:
            rows += trajectory(setting, fold, args.sweeps, args.threads[0])
            last = [item for item in rows if item["metric"] in ("rmse", "auc")][-1]
            say(f"{setting} fold {fold}: {last['metric']} {last['value']:.4f} after {last['sweep']} sweeps")
    averages = means(rows)
    if args.figure:
        draw(averages, args.figure)
    report([*rows, *averages], args.json)


if __name__ == "__main__":
    main()
