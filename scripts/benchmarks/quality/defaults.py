"""What the estimators' defaults should be, judged by held-out training entries of Alog, Enron and DBLP.

    python -m scripts.benchmarks.quality.defaults --json defaults.json
    python -m scripts.benchmarks.quality.defaults --folds 1 --entries 20000

This is the study behind the constants in tensorcep/cp/plan/auto.py. No test entry takes part in it: a fifth
of the training entries of each fold of Alog and Enron is held out and scored, and a tenth of DBLP's. A setting is a
method, and what it is given of interactions, prior, rank, lower limit and sweeps; "auto" and 1 are the rules as they
are. Each of these is varied with the others left at the rules; --grid fits all combinations instead. "pair4" is the
main effects, 4 columns for each pair of modes and the CP component. Factors multiply what the rules give.

Alog is scored by RMSE and CRPS, Enron and DBLP by AUC and log score. (The log score of a censored model is partly of
masses, which are no densities: CRPS compares it with one that is not; the log score is among the rows.) The first
table holds the means over folds and seeds, the second which setting is best by each score, and the mean, over data sets
and scores, of a setting's place among the settings.
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

from scripts.benchmarks.common import Row, check_words, grouped, parser, report, row, say, words
from scripts.benchmarks.heldout import LABELLED, SHAPES, Split, inner, model_scores, splits, warm_up
from tensorcep import CPClassifier, CPRegressor
from tensorcep.cp.methods import METHODS
from tensorcep.cp.model.columns import PRESETS
from tensorcep.cp.plan.auto import SWEEPS, rank_for, sampler_sweeps
from tensorcep.likelihoods import get_likelihood

HELD_OUT = {"alog": 5, "enron": 5, "dblp": 10}  # one in so many training entries
PAIRS = ("pair1", "pair2", "pair4", "pair8", "pair16")
# What a setting is, the rules first.
CHOICES: dict[str, tuple[Any, ...]] = {
    "interactions": ("auto", *PRESETS, *PAIRS),
    "priors": ("auto", "fixed", "learned", "ard"),
    "rank-factors": (1.0, 0.5, 2.0),
    "limits": ("auto", "none"),
    "sweeps-factors": (1.0, 0.5, 2.0),
}
# What settings are ranked by, and whether less is better.
JUDGED = {"rmse": True, "crps": True, "auc": False, "log_score": False}
Setting = tuple[Any, ...]  # a method, and one of each choice


def settings(options: argparse.Namespace) -> list[Setting]:
    """For each method the rules (or the first of what was asked for) and one departure from them; or everything."""
    given = [getattr(options, name.replace("-", "_")) for name in CHOICES]
    found: list[Setting] = []
    for method in options.methods:
        if options.grid:
            found += [(method, *choice) for choice in itertools.product(*given)]
            continue
        rules = [rule[0] if rule[0] in some else some[0] for rule, some in zip(CHOICES.values(), given, strict=True)]
        found.append((method, *rules))
        found += [(method, *rules[:k], value, *rules[k + 1 :]) for k, some in enumerate(given) for value in some]
    return list(dict.fromkeys(found))


def estimator(split: Split, setting: Setting, seed: int) -> Any:
    method, interactions, prior, rank_factor, limit, sweeps_factor = setting
    n, labelled = len(split.train.y), split.data in LABELLED
    rank = max(1, round(rank_factor * rank_for(n, split.shape)))
    if interactions in PAIRS:
        interactions = {"main": 1, "pair": int(interactions[4:]), "cp": rank}
    how: dict[str, Any] = {"method": method, "prior": prior, "interactions": interactions, "rank": rank}
    how |= {"random_state": seed, "shape": split.shape}
    if sweeps_factor != 1.0:
        likelihood, sampler = get_likelihood("logit" if labelled else "gaussian"), METHODS[method].capabilities.sampler
        usual = sampler_sweeps(n, method, likelihood) if sampler else SWEEPS
        how["max_iter"] = max(1, round(sweeps_factor * usual))
    return CPClassifier(**how) if labelled else CPRegressor(lower_limit=None if limit == "none" else "auto", **how)


def scores(split: Split, setting: Setting, seed: int) -> dict[str, float]:
    """Scores of a setting on the held-out entries, and what it took; ValueError where it cannot be fitted."""
    model = estimator(split, setting, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tolerance may not be reached; rows without training entries
        warm_up(model, split)
        begin = time.perf_counter()
        model.fit(*split.train)
        found = {"seconds_fit": time.perf_counter() - begin, **model_scores(model, split)}
        found["log_score"] = float(np.mean(model.log_score(*split.held)))
    found |= {"sweeps_done": model.n_iter_, "rank_fitted": model.rank_, "columns_fitted": len(model.column_modes_)}
    kept = (*JUDGED, "seconds_fit", "sweeps_done", "rank_fitted", "columns_fitted")
    return {name: float(found[name]) for name in kept if name in found}


def measured(data: str, options: argparse.Namespace) -> Iterator[Row]:
    for split in splits(data, options.folds, size=options.entries, sets=1):
        held = inner(split, HELD_OUT[data])
        for seed in range(options.seed, options.seed + options.seeds):
            done: dict[Setting, dict[str, float] | str] = {}
            for setting in settings(options):
                # labels have no limit: what differs in it alone is the same model
                same = (*setting[:4], "auto", *setting[5:]) if data in LABELLED else setting
                about = {"data": data, "fold": held.fold, "method": " ".join(map(str, setting)), "seed": seed}
                if same not in done:
                    try:
                        done[same] = scores(held, same, seed)
                    except ValueError as refused:
                        done[same] = str(refused)
                    say(f"{about}: {done[same]}")
                found = done[same]
                if isinstance(found, str):
                    yield row("skipped", None, **about, skipped=found)
                else:
                    yield from (row(metric, value, **about) for metric, value in found.items())


def means(rows: Sequence[Row]) -> list[Row]:
    """Mean of each metric over folds and seeds, by data set and setting."""
    found = grouped((item for item in rows if item["value"] is not None), ("data", "method", "metric"))
    return [
        row(metric, np.mean([item["value"] for item in some]), data=data, fold="mean", method=method, n=len(some))
        for (data, method, metric), some in found.items()
    ]


def places(averages: Sequence[Row]) -> list[Row]:
    """The settings that are best by each score, and the mean place of each setting that has all scores."""
    scored: dict[tuple[str, str], dict[str, float]] = {}
    for item in averages:
        if item["metric"] in (("auc", "log_score") if item["data"] in LABELLED else ("rmse", "crps")):
            sign = 1.0 if JUDGED[item["metric"]] else -1.0
            scored.setdefault((item["data"], item["metric"]), {})[item["method"]] = sign * item["value"]
    if not scored:
        return []
    first, *others = scored.values()
    common = [setting for setting in first if all(setting in other for other in others)]
    found = []
    for (data, metric), of in scored.items():
        best = min(of, key=lambda setting, of=of: of[setting])
        found.append(row(f"best_{metric}", abs(of[best]), data=data, fold="mean", method=best))
    place = np.mean([rankdata([of[setting] for setting in common]) for of in scored.values()], axis=0)
    order = np.argsort(place, kind="stable")
    return found + [row("mean_place", place[j], data="all", fold="mean", method=common[j]) for j in order]


def factors(text: str) -> list[float]:
    values = [float(word) for word in text.split(",")]
    if min(values) <= 0.0:
        raise argparse.ArgumentTypeError(f"factors must be positive; got {text!r}")
    return values


def main(arguments: list[str] | None = None) -> None:
    p = parser(__doc__, data="alog,enron,dblp", folds="1,2,3,4,5", methods="gibbs,pg-gibbs,cep", seed=0)
    p.add_argument("--seeds", type=int, default=1, help="seeds of each fit, --seed the first (default: %(default)s)")
    for name, allowed in CHOICES.items():
        read = factors if name.endswith("factors") else words(*allowed)
        p.add_argument(f"--{name}", type=read, default=list(allowed), help="between commas (default: %(default)s)")
    p.add_argument("--grid", action="store_true", help="fit all combinations, not one departure at a time")
    p.add_argument("--entries", type=int, help="take only so many training entries")
    options = p.parse_args(arguments)
    check_words(p, options, data=SHAPES, methods=METHODS)
    rows = [found for data in options.data for found in measured(data, options)]
    averages = means(rows)
    ranked = places(averages)
    report([*rows, *averages, *ranked], options.json, [averages, ranked] if ranked else [averages])


if __name__ == "__main__":
    main()
