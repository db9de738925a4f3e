"""How good models are: `tensorcep evaluate`, `compare` and `select-rank`, on entries left out of the fit."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

import tensorcep as tc
from tensorcep import metrics, plots
from tensorcep.cli.cells import QueriedCells, cells_of_words, has_words, read_data, read_queries
from tensorcep.cli.fit import estimator_of
from tensorcep.cli.options import check_figure, check_output, output, save_figure, shows_progress
from tensorcep.cli.predict import load_model
from tensorcep.core.checks import check_int, fail_value
from tensorcep.cp.targets.labels import coded, two_classes
from tensorcep.cp.targets.levels import classes_of
from tensorcep.likelihoods import words_of

LEVELS = tuple(k / 20 for k in range(1, 20))


def run_evaluate(args: argparse.Namespace) -> None:
    check_figure(args.figure, args.model, args.data)
    model = load_model(args.model, matrices=False)
    kind = model.parts_[0].kind
    if args.figure is not None and not (kind in ("labels", "levels") or model.has_uncertainty()):
        fail_value(f"--figure draws uncertainty, and the model in '{args.model}' is a point estimate; leave it out.")
    if args.figure is not None and kind == "levels" and has_words(model):
        fail_value(f"--figure draws numbers, and the levels of the model in '{args.model}' are words; leave it out.")
    cells = read_queries(args.data, args, model, with_values=True)
    if kind == "labels":
        cells = cells._replace(y=coded(cells.y, model.classes_.tolist()))
    if args.figure is not None and kind == "labels":
        p = model.predict_proba(cells.X)[:, 1]
        save_figure(args.figure, lambda ax: plots.plot_reliability(cells.y, p, ax=ax))
    elif args.figure is not None:
        intervals = {level: model.predict_interval(cells.X, level, **cells.extent) for level in LEVELS}
        panels: list[Callable[[Any], Any]] = [lambda ax: plots.plot_coverage(cells.y, intervals, ax=ax)]
        if kind == "values":
            drawn = {"mean": model.predict(cells.X), "coverage": 0.9, "intervals": intervals[0.9]}
            panels.insert(0, lambda ax: plots.plot_predictions(cells.y, **drawn, ax=ax))
        save_figure(args.figure, *panels)
    results = {"entries": len(cells.columns), **scores(model, cells)}
    if args.json:
        print(json.dumps({name: value if math.isfinite(value) else None for name, value in results.items()}))
        return
    width = max(map(len, results))
    for name, value in results.items():
        print(f"{name:{width}}  {value if isinstance(value, int) else f'{value:.4f}'}")


def scores(model: Any, cells: QueriedCells) -> dict[str, float]:
    """The scores that fit the model's kind of data; of levels that are words those that need no numbers."""
    X, y, extent, kind = cells.X, cells.y, cells.extent, model.parts_[0].kind
    of_levels = kind == "levels"
    if kind == "labels":
        return metrics.evaluate_binary(y, model.predict_proba(X)[:, 1])
    logs = model.log_score(X, y, **extent)
    right = {"accuracy": float((model.predict(X) == y).mean())} if of_levels else {}
    if of_levels and has_words(model):
        return {"log_likelihood": float(np.mean(logs)), **right}
    if not of_levels and not model.has_uncertainty():
        return metrics.evaluate_counts(y, model.predict(X, **extent), logs, {})
    intervals = {level: tuple(model.predict_interval(X, level, **extent).T) for level in metrics.COVERAGE_LEVELS}
    if of_levels:
        return {**metrics.evaluate_counts(y, model.expected_value(X), logs, intervals), **right}
    mean, sd = model.predict(X, return_std=True, **extent)
    counted = metrics.evaluate_counts(y, mean, logs, intervals)
    if kind == "values" and model.lower_limit_ is None and model.upper_limit_ is None:
        return {**metrics.evaluate_regression(y, mean, sd), **counted}  # the model's own intervals, as the figure has
    return counted


def run_compare(args: argparse.Namespace) -> None:
    check_output(args.output, args.train, args.test)
    check_figure(args.figure, args.train, args.test)
    model, words = estimator_of(args), cells_of_words(args.train, args)
    if words is None:
        train, test = (read_data(path, args) for path in (args.train, args.test))
    else:  # both as numbers of the words of the first
        classes = (classes_of if args.likelihood in words_of("levels") else two_classes)(words[2])
        train, test = (each[0] for each in (words, cells_of_words(args.test, args, classes)) if each is not None)
    table = tc.compare(train, test, args.methods, estimator=model)
    _print(table, table, args.output)
    if args.figure is not None:
        save_figure(args.figure, lambda ax: plots.plot_comparison(table, ax=ax))


def _print(table: pd.DataFrame, shown: pd.DataFrame, path: str | None) -> None:
    """Print a table, or the part of it that is shown, and write it to a file."""
    print(shown.to_string(float_format="{:.4g}".format))
    if path is not None:
        with output(path) as handle:
            handle.write(table.to_csv().encode())


def run_ranks(args: argparse.Namespace) -> None:
    for path in (args.output, args.model):
        check_output(path, args.data)
    for rank in args.ranks:
        check_int("--ranks", rank)
    model = estimator_of(args, rank=args.ranks[0], method=args.method)
    words = cells_of_words(args.data, args)
    X, y = (read_data(args.data, args), None) if words is None else words[1:]
    how = {"rule": "best" if args.best else "one_standard_error", "patience": args.patience, "random_state": args.seed}
    selection = tc.select_rank(model, X, y, ranks=args.ranks, cv=args.cv, verbose=shows_progress(args), **how)
    table = selection.frame
    _print(table, table[[name for name in table if not str(name).startswith("fold_")]], args.output)
    print(f"chosen rank {selection.rank} (best {selection.best_rank})")
    if args.model is not None:
        selection.estimator.save(args.model)
