"""What the estimators' defaults should be, judged by held-out training entries of Alog, Enron and DBLP.

    python -m scripts.studies.choose_defaults --json defaults.json
    python -m scripts.studies.choose_defaults --quick

This is the study behind the constants in tensorcep/cp/plan/auto.py. No test entry takes part in it: a fifth
of the training entries of each fold of Alog and Enron is held out and scored, and a tenth of DBLP's. A setting is a
method, and what it is given of interactions, prior, rank, lower limit and sweeps; "auto" and 1 are the rules as they
are. Each of these is varied with the others left at the rules; --grid fits all combinations instead. "pair4" is the
main effects, 4 columns for each pair of modes and the CP component. Factors multiply what the rules give.

Alog is scored by RMSE and CRPS, Enron and DBLP by AUC and log score. (The log score of a censored model is partly of
masses, which are no densities: CRPS compares it with one that is not; the log score is among the rows.) The first
tables hold the means over folds and seeds, and which setting is best; the last one the mean, over data sets and scores,
of a setting's place among the settings. --with adds the rows that earlier runs wrote as JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from scripts.lib.accuracy import model_scores, warm_up
from scripts.lib.common import Row, parser, report, row, say, words
from scripts.lib.heldout import LABELLED, SHAPES, Split, inner, splits
from tensorcep import CPClassifier, CPRegressor
from tensorcep.cp.methods import METHODS
from tensorcep.cp.model.columns import PRESETS
from tensorcep.cp.plan.auto import SWEEPS, rank_for, sampler_sweeps
from tensorcep.likelihoods import get_likelihood

HELD_OUT = {"alog": 5, "enron": 5, "dblp": 10}  # one in so many training entries
PAIRS = ("pair1", "pair2", "pair4", "pair8", "pair16")
FACTORS = (0.5, 1.0, 2.0)
QUICK_ENTRIES = 20_000
# What settings are ranked by, and whether less is better.
JUDGED = {"rmse": True, "crps": True, "auc": False, "log_score": False}
KEPT = (*JUDGED, "seconds_fit", "sweeps_done", "rank_fitted", "columns_fitted")


class Setting(NamedTuple):
    """A method and what it is given, the rules ("auto", 1) where nothing else is said."""

    method: str = "gibbs"
    interactions: str = "auto"
    prior: str = "auto"
    rank_factor: float = 1.0
    lower_limit: str = "auto"
    sweeps_factor: float = 1.0


def settings(options: argparse.Namespace) -> list[Setting]:
    """For each method the rules and one departure from them, or all combinations.

    Where what a rule says was not asked for, the first of what was takes its place.
    """
    choices = {
        "interactions": options.interactions,
        "prior": options.priors,
        "rank_factor": options.rank_factors,
        "lower_limit": options.limits,
        "sweeps_factor": options.sweeps_factors,
    }
    found: list[Setting] = []
    for method in options.methods:
        if options.grid:
            found += [Setting(method, *choice) for choice in itertools.product(*choices.values())]
        else:
            rule = Setting._field_defaults
            rules = Setting(method, *(rule[k] if rule[k] in given else given[0] for k, given in choices.items()))
            found += [rules, *(rules._replace(**{name: v}) for name, given in choices.items() for v in given)]
    return list(dict.fromkeys(found))


def estimator(split: Split, setting: Setting, seed: int) -> Any:
    """The estimator of a setting, not fitted."""
    n = len(split.train.y)
    rank = max(1, round(setting.rank_factor * rank_for(n, split.shape)))
    interactions: Any = setting.interactions
    if interactions in PAIRS:
        interactions = {"main": 1, "pair": int(interactions[4:]), "cp": rank}
    chosen: dict[str, Any] = {"method": setting.method, "prior": setting.prior, "interactions": interactions}
    chosen |= {"rank": rank, "random_state": seed, "shape": split.shape}
    if setting.sweeps_factor != 1.0:
        likelihood = get_likelihood("logit" if split.data in LABELLED else "gaussian")
        usual = (
            sampler_sweeps(n, setting.method, likelihood) if METHODS[setting.method].capabilities.sampler else SWEEPS
        )
        chosen["max_iter"] = max(1, round(setting.sweeps_factor * usual))
    if split.data in LABELLED:
        return CPClassifier(**chosen)
    return CPRegressor(lower_limit=None if setting.lower_limit == "none" else "auto", **chosen)


def fitted_scores(split: Split, setting: Setting, seed: int) -> dict[str, float]:
    """Scores of a setting on the held-out entries, and what it took.

    Raises
    ------
    ValueError
        If the setting cannot be fitted.
    """
    model = estimator(split, setting, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tolerance may not be reached; rows without training entries
        warm_up(model, split)
        begin = time.perf_counter()
        model.fit(*split.train)
        seconds = time.perf_counter() - begin
        found, _ = model_scores(model, split)
        found["log_score"] = float(np.mean(model.log_score(*split.held)))
    found |= {"seconds_fit": seconds, "sweeps_done": model.n_iter_, "rank_fitted": model.rank_}
    found["columns_fitted"] = len(model.column_modes_)
    return {name: float(found[name]) for name in KEPT if name in found}


def measured(data: str, options: argparse.Namespace) -> Iterator[Row]:
    """Rows of all fits of a data set."""
    for split in splits(data, options.folds, size=options.entries, sets=1):
        held = inner(split, HELD_OUT[data])
        for seed in range(options.seed, options.seed + options.seeds):
            done: dict[Setting, list[Row]] = {}
            for setting in settings(options):
                # labels have no limit: what differs in it alone is the same model
                same = setting._replace(lower_limit="auto") if data in LABELLED else setting
                about = {"data": data, "fold": held.fold, **setting._asdict(), "seed": seed}
                if same not in done:
                    done[same] = rows_of(held, same, seed)
                yield from (row(**{**item, **about}) for item in done[same])


def rows_of(held: Split, setting: Setting, seed: int) -> list[Row]:
    """Metrics and values of one fit; the reason where it is refused."""
    name = " ".join(str(item) for item in setting)
    try:
        found = fitted_scores(held, setting, seed)
    except ValueError as refused:
        say(f"{held.data} {name}: {refused}")
        return [row("skipped", None, skipped=str(refused))]
    say(f"{held.data} fold {held.fold} {name} seed {seed}: " + ", ".join(f"{k} {v:.4g}" for k, v in found.items()))
    return [row(metric, value) for metric, value in found.items()]


def means(rows: Sequence[Row]) -> list[Row]:
    """Mean of each metric over folds and seeds, by data set and setting."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for item in rows:
        if item["value"] is not None and item.get("fold") != "mean":
            key = (item["data"], *(item[name] for name in Setting._fields), item["metric"])
            groups.setdefault(key, []).append(item["value"])
    result = []
    for (data, *names, metric), values in groups.items():
        about = dict(zip(Setting._fields, names, strict=True))
        result.append(row(metric, np.mean(values), data=data, fold="mean", **about, n=len(values)))
    return result


def places(averages: Sequence[Row]) -> list[Row]:
    """Mean place of each setting that has all scores, and the settings that are best by each score."""
    scored: dict[tuple[str, str], dict[Setting, float]] = {}
    for item in averages:
        if item["metric"] in judged(item["data"]):
            setting = Setting(*(item[name] for name in Setting._fields))
            scored.setdefault((item["data"], item["metric"]), {})[setting] = item["value"]
    if not scored:
        return []
    first, *others = scored.values()
    common = [setting for setting in first if all(setting in other for other in others)]
    signs = [1.0 if JUDGED[metric] else -1.0 for _, metric in scored]
    ranks = [rankdata([sign * of[s] for s in common]) for sign, of in zip(signs, scored.values(), strict=True)]
    found = []
    for (data, metric), of, sign in zip(scored, scored.values(), signs, strict=True):
        best = min(of, key=lambda setting, of=of, sign=sign: sign * of[setting])
        found.append(row(f"best_{metric}", of[best], data=data, fold="mean", **best._asdict()))
    mean_places = np.mean(ranks, axis=0)
    order = np.argsort(mean_places, kind="stable")
    return found + [row("mean_place", mean_places[j], data="all", fold="mean", **common[j]._asdict()) for j in order]


def judged(data: str) -> tuple[str, ...]:
    """The two scores that a data set is judged by."""
    return ("auc", "log_score") if data in LABELLED else ("rmse", "crps")


def tables(averages: Sequence[Row], ranked: Sequence[Row]) -> list[list[Row]]:
    """A table per data set, a line per setting; then the best ones and the mean places."""
    lines: dict[tuple[Any, ...], Row] = {}
    for item in averages:
        about = {name: item[name] for name in ("data", *Setting._fields)}
        lines.setdefault(tuple(about.values()), about)[item["metric"]] = item["value"]
    of_data = [[line for line in lines.values() if line["data"] == data] for data in dict.fromkeys(k[0] for k in lines)]
    best = [item for item in ranked if item["data"] != "all"]
    return [part for part in (*of_data, best, [item for item in ranked if item["data"] == "all"]) if part]


def factors(text: str) -> list[float]:
    """Positive numbers between commas."""
    values = [float(word) for word in text.split(",")]
    if min(values) <= 0.0:
        raise argparse.ArgumentTypeError(f"factors must be positive; got {text!r}")
    return values


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    p = parser(__doc__, data="alog,enron,dblp", folds="1,2,3,4,5", methods="gibbs,pg-gibbs,cep", seed=0)
    p.add_argument("--seeds", type=int, default=1, help="seeds of each fit, --seed the first (default: %(default)s)")
    parts = ",".join(("auto", *PRESETS, *PAIRS))
    for name, default, read in (
        ("interactions", parts, words("auto", *PRESETS, *PAIRS)),
        ("priors", "auto,fixed,learned,ard", words("auto", "fixed", "learned", "ard")),
        ("limits", "auto,none", words("auto", "none")),
        ("rank-factors", ",".join(map(str, FACTORS)), factors),
        ("sweeps-factors", ",".join(map(str, FACTORS)), factors),
    ):
        p.add_argument(f"--{name}", type=read, default=default, help="between commas (default: %(default)s)")
    p.add_argument("--grid", action="store_true", help="fit all combinations, not one departure at a time")
    p.add_argument("--quick", action="store_true", help=f"fold 1 alone, and of DBLP {QUICK_ENTRIES:,} entries")
    p.add_argument("--entries", type=int, help="take only so many training entries")
    p.add_argument("--with", dest="others", type=Path, nargs="+", default=[], metavar="FILE", help="JSON files of rows")
    options = p.parse_args(arguments)
    for option, allowed in (("data", SHAPES), ("methods", METHODS)):
        for word in getattr(options, option):
            if word not in allowed:
                p.error(f"argument --{option}: {word!r} is not among {', '.join(allowed)}")
    rows = [item for file in options.others for item in json.loads(file.read_text(encoding="utf-8"))]
    rows = [item for item in rows if item["fold"] != "mean"]
    for data in options.data:
        of_data = argparse.Namespace(**vars(options))
        if options.quick:
            of_data.folds = options.folds[:1]
            of_data.entries = options.entries or (QUICK_ENTRIES if data == "dblp" else None)
        rows += measured(data, of_data)
    averages = means(rows)
    ranked = places(averages)
    report([*rows, *averages, *ranked], options.json, tables(averages, ranked))


if __name__ == "__main__":
    main()
