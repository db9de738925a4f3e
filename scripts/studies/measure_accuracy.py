"""How accurate and how well calibrated the estimators are on held-out entries of Alog, Enron and DBLP.

    python -m scripts.studies.measure_accuracy --methods default,cep,gibbs --figure calibration.png

"default" is the bare estimator: nothing but the shape and the seed is given to it, whatever the other options say. The
other methods take --ranks, --priors, --interactions, --ensembles and --sweeps, and otherwise the estimator's own
defaults; those of "paper" are CEP, the settings of its paper, and rank 8. "all" is every method of ours that can serve.
What a method cannot do is a row with the reason. "smurff-default" and "myfm-default" are these peers with their
defaults, "smurff" and "myfm" with settings that do well on each data set, of the ranks asked for
(`scripts.lib.peers.fits` has them). With --inner a fifth of the training entries is held out and scored instead of the
test entries: settings are chosen that way, so that no test entry takes part in a choice. --with adds the rows that
earlier runs wrote as JSON to the tables at the end.

Alog is scored by RMSE, CRPS, mean log predictive density and coverage of 90 % intervals; Enron and DBLP by AUC (on
DBLP the mean over the test sets), log loss and Brier score; `scripts.lib.accuracy` says more. A small fit before the
first one keeps compilation out of the times.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scripts.lib.accuracy import model_scores, summary, tables, warm_up
from scripts.lib.common import Row, numbers, paper_model, parser, report, row, say, with_settings, words
from scripts.lib.heldout import LABELLED, SHAPES, Split, inner, splits
from scripts.lib.peers.environment import prepare
from scripts.lib.peers.fits import ENVIRONMENT, PEERS, measure_peer, peer_settings
from tensorcep import CPClassifier, CPRegressor
from tensorcep.core.persist.archive import atomic_write
from tensorcep.cp.methods import METHODS
from tensorcep.likelihoods import get_likelihood
from tensorcep.metrics import reliability_curve

LIKELIHOODS = {True: ("probit", "logit"), False: ("gaussian",)}
PEER_NAMES = tuple(f"{peer}{which}" for peer in PEERS for which in ("", "-default"))
LEVELS = np.linspace(0.05, 0.95, 19)
Curves = dict[tuple[str, str], list[tuple[np.ndarray, ...]]]  # by data and model: what --figure draws


class Setting(NamedTuple):
    """A method, and what it is given; None is the estimator's own."""

    method: str
    rank: int | None = None
    prior: str | None = None
    interactions: str | None = None
    ensemble: int | None = None


def given_interactions(text: str) -> Any:
    """A word, or ranks such as main=1:pair=3:cp=3."""
    if "=" not in text:
        return text
    return {name: int(n) for name, n in (item.split("=") for item in text.split(":"))}


def likelihood_for(name: str, labelled: bool) -> str | None:
    """The first likelihood for such data that the method can use, or None."""
    method = METHODS["cep" if name == "paper" else name]
    return next((name for name in LIKELIHOODS[labelled] if not method.lacks(get_likelihood(name))), None)


def estimator(split: Split, setting: Setting, seed: int, sweeps: int | None) -> Any:
    """The estimator of a setting, not fitted."""
    chosen: dict[str, Any] = {"random_state": seed, "shape": split.shape}
    labelled = split.data in LABELLED
    if setting.method not in ("default", "paper"):
        chosen["method"] = setting.method
    if setting.method != "default":
        if labelled:
            chosen["link"] = likelihood_for(setting.method, labelled)
        if setting.rank is not None:
            chosen["rank"] = setting.rank
        if setting.prior is not None:
            chosen["prior"] = setting.prior
        if setting.interactions is not None:
            chosen["interactions"] = given_interactions(setting.interactions)
        if setting.ensemble is not None:
            chosen["n_ensemble"] = setting.ensemble
        if sweeps is not None:
            chosen["max_iter"] = sweeps
    cls = CPClassifier if labelled else CPRegressor
    if setting.method == "paper":
        return paper_model(cls, **chosen)
    return cls(**with_settings(cls, chosen))


def described(model: Any, setting: Setting) -> dict[str, Any]:
    """The columns that say what is fitted; once it is, with what the estimator chose itself."""
    given = model.get_params()
    chosen = ("method", "link", "rank", "prior", "interactions")
    given |= {name: getattr(model, f"{name}_", given[name]) for name in chosen if name in given}
    parts = given["interactions"]
    parts = ":".join(f"{name}={n}" for name, n in parts.items()) if isinstance(parts, dict) else parts
    return {
        "method": setting.method,
        "fitted_by": given["method"],
        "link": given.get("link"),
        "rank": given["rank"],
        "prior": given["prior"],
        "interactions": parts,
        "ensemble": getattr(model.method, "n_ensemble", "auto"),
    }


def measure(split: Split, setting: Setting, seed: int, options: argparse.Namespace, curves: Curves | None) -> list[Row]:
    """Fit one split and score it; a row with the reason where the setting is refused."""
    name = setting.method
    if name != "default" and likelihood_for(name, split.data in LABELLED) is None:
        why = f"method {name!r} serves no likelihood of these data"
        return [row("skipped", None, data=split.data, method=name, skipped=why)]
    model = estimator(split, setting, seed, options.sweeps)
    about: dict[str, Any] = {"data": split.data, "fold": split.fold, **described(model, setting), "seed": seed}
    about |= {"inner": 1} if options.inner else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tolerance may not be reached; rows without training entries
        try:
            warm_up(model, split)
        except ValueError as refused:
            say(f"{split.data} {name}: {refused}")
            return [row("skipped", None, **about, skipped=str(refused))]
        begin, cpu = time.perf_counter(), time.process_time()
        model.fit(*split.train)
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
        about |= described(model, setting)
        label = " ".join([name, *(str(item) for item in setting[1:] if item is not None)])
        found, curve = model_scores(model, split)
    if curves is not None:
        curves.setdefault((split.data, label), []).extend([] if curve is None else [curve])
    found |= {"seconds_fit": seconds, "cpu_seconds_fit": cpu, "sweeps_done": model.n_iter_}
    found |= {"updates_skipped": model.trace_["skipped"].sum()} if "skipped" in model.trace_ else {}
    say(f"{split.data} fold {split.fold} {label} seed {seed}: " + ", ".join(f"{k} {v:.4g}" for k, v in found.items()))
    return [row(metric, value, **about) for metric, value in found.items()]


def settings(name: str, options: argparse.Namespace) -> list[Setting]:
    """The models of a method that were asked for."""
    if name == "default":
        return [Setting(name)]
    given = (
        options.ranks or [None],
        options.priors or [None],
        options.interactions or [None],
        options.ensembles or [None],
    )
    return [Setting(name, *choice) for choice in itertools.product(*given)]


def measured(data: str, names: list[str], options: argparse.Namespace, curves: Curves | None) -> list[Row]:
    """Rows of all fits of a data set."""
    found = splits(data, options.folds, sets=options.sets, size=options.entries)
    found = [inner(split) for split in found] if options.inner else found
    fits = list(itertools.product(found, range(options.seed, options.seed + options.seeds)))
    rows: list[Row] = []
    for name in names:
        if name in PEER_NAMES:
            python = prepare(options.environment, PEERS)
            for chosen in peer_settings(name, data, options.ranks):
                for split, seed in fits:
                    rows += measure_peer(python, name, split, chosen, seed, options.inner)
        else:
            for setting in settings(name, options):
                for split, seed in fits:
                    rows += measure(split, setting, seed, options, curves)
    return rows


def draw(curves: Curves, path: str) -> None:
    """A panel per data set: share of ones against probability, or actual against nominal coverage of intervals."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(data for data, _ in curves))
    figure = Figure(figsize=(4.6 * len(names), 4.6), layout="constrained")
    for ax, data in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        ax.plot([0, 1], [0, 1], color="0.6", linewidth=1)
        for label, fits in ((label, kept) for (of, label), kept in curves.items() if of == data and kept):
            look: dict[str, Any] = {"markersize": 4, "clip_on": False, "label": label}
            look["linewidth"] = 3.0 if label == "default" else 1.2  # another method may have the same curve
            if data in LABELLED:
                y, p, weights = (np.concatenate(column) for column in zip(*fits, strict=True))
                curve = reliability_curve(y, p, weights)
                ax.plot(curve.predicted, curve.observed, "o-", **look)
            else:
                distance = np.abs(np.concatenate([below for (below,) in fits]) - 0.5)
                ax.plot(LEVELS, [np.mean(distance <= 0.5 * level) for level in LEVELS], "o-", **look)
        x, y_label = ("predicted probability", "share of ones") if data in LABELLED else ("nominal coverage", "actual")
        ax.set(title=data, xlabel=x, ylabel=y_label, xlim=(0, 1), ylim=(0, 1), aspect="equal")
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(loc="upper left", frameon=False, fontsize=8)
    with atomic_write(path) as handle:
        figure.savefig(handle, format=os.path.splitext(path)[1][1:] or "png", dpi=150)


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    p = parser(
        __doc__,
        data="alog,enron,dblp",
        folds="1,2,3,4,5",
        ranks=None,
        methods="default",
        sweeps=None,
        seed=0,
    )
    p.add_argument("--seeds", type=int, default=1, help="seeds of each fit, --seed the first (default: %(default)s)")
    p.add_argument("--priors", type=words("fixed", "learned", "ard"), help="between commas (default: its own)")
    p.add_argument(
        "--interactions", type=words(), help="words or main=1:pair=3:cp=3, between commas (default: its own)"
    )
    p.add_argument("--ensembles", type=numbers, help="numbers of fits that are mixed (default: its own)")
    p.add_argument("--inner", action="store_true", help="score held-out training entries")
    p.add_argument("--entries", type=int, help="take only so many training entries")
    p.add_argument("--sets", type=int, default=50, help="test sets of DBLP (default: %(default)s)")
    p.add_argument("--figure", metavar="FILE", help="draw reliability and coverage, over folds and seeds, to this file")
    p.add_argument("--with", dest="others", type=Path, nargs="+", default=[], metavar="FILE", help="JSON files of rows")
    p.add_argument("--environment", type=Path, default=ENVIRONMENT, help="folder of the peers (default: %(default)s)")
    options = p.parse_args(arguments)
    for option, allowed in (("data", SHAPES), ("methods", ("default", "paper", "all", *METHODS, *PEER_NAMES))):
        for word in getattr(options, option):
            if word not in allowed:
                p.error(f"argument --{option}: {word!r} is not among {', '.join(allowed)}")
    rows: list[Row] = []
    curves: Curves | None = {} if options.figure else None
    names = [word for name in options.methods for word in (["default", *METHODS] if name == "all" else [name])]
    for data in options.data:
        rows += measured(data, list(dict.fromkeys(names)), options, curves)
    if curves:
        draw(curves, options.figure)
    averages = summary(rows)
    others = [item for file in options.others for item in json.loads(file.read_text(encoding="utf-8"))]
    report([*rows, *averages], options.json, tables([*averages, *summary(others)]))


if __name__ == "__main__":
    main()
