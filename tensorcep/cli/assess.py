"""How good models are: `tensorcep evaluate`, `compare` and `select-rank`, on entries left out of the fit."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

import tensorcep as tc
from tensorcep.cli import options
from tensorcep.cli.fit import estimator_of
from tensorcep.cli.options import Command, check_output, output, shows_progress
from tensorcep.cli.predict import load_model
from tensorcep.core.checks import check_int, fail_value

if TYPE_CHECKING:
    import pandas as pd

    from tensorcep.cli.cells import QueriedCells

EVALUATE = """\
Score a model's predictions of the entries of DATA, which should not be those that it was fitted to.

  real values   RMSE, MAE, log likelihood, CRPS, coverage of 50, 80 and 95 % intervals
  labels        AUC, average precision, log loss, Brier score, accuracy, calibration
  counts        RMSE, MAE, log likelihood, coverage; so too real values with a limit
  levels        these of the expected level, and accuracy; of words two of them

A coverage is the share of values inside the interval: good when it equals the interval's own. DATA is read as for
predict, and must hold values. --figure draws the reliability of probabilities, or the coverage of intervals and, for
real values, the predictions."""

LEVELS = tuple(k / 20 for k in range(1, 20))


def _add_evaluate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="file that fit wrote")
    parser.add_argument("data", metavar="DATA", help="file of entries with their values")
    options.add(parser, "json", "evaluate.figure")
    options.add_data(parser, fixed_rows=True, extents=True)


def _run_evaluate(args: argparse.Namespace) -> None:
    from tensorcep.cli.cells import has_words, read_queries
    from tensorcep.cp.targets.labels import coded

    if args.figure is not None:
        check_output(args.figure, args.model, args.data)
        options.figure_module()
    model = load_model(args.model, matrices=False)
    kind = model.parts_[0].kind
    if args.figure is not None and not (kind in ("labels", "levels") or model.has_uncertainty()):
        fail_value(f"--figure draws uncertainty, and the model in '{args.model}' is a point estimate; leave it out.")
    if args.figure is not None and kind == "levels" and has_words(model):
        fail_value(f"--figure draws numbers, and the levels of the model in '{args.model}' are words; leave it out.")
    cells = read_queries(args.data, args, model, with_values=True)
    if kind == "labels":
        cells = cells._replace(y=coded(cells.y, model.classes_.tolist()))
    if args.figure is not None:
        options.save_figure(args.figure, *_drawings(model, cells))
    results = {"entries": len(cells.columns), **scores(model, cells)}
    if args.json:
        print(json.dumps({name: value if math.isfinite(value) else None for name, value in results.items()}))
        return
    width = max(map(len, results))
    for name, value in results.items():
        print(f"{name:{width}}  {value if isinstance(value, int) else f'{value:.4f}'}")


def _drawings(model: Any, cells: QueriedCells) -> list[Callable[[Any], Any]]:
    """What shows the uncertainty of the model's kind of data, each on axes that it gets."""
    from tensorcep import plots

    X, y, kind = cells.X, cells.y, model.parts_[0].kind
    if kind == "labels":
        p = model.predict_proba(X)[:, 1]
        return [lambda ax: plots.plot_reliability(y, p, ax=ax)]
    intervals = {level: model.predict_interval(X, level, **cells.extent) for level in LEVELS}
    panels: list[Callable[[Any], Any]] = [lambda ax: plots.plot_coverage(y, intervals, ax=ax)]
    if kind == "values":
        mean = model.predict(X)
        panels.insert(0, lambda ax: plots.plot_predictions(y, mean, coverage=0.9, intervals=intervals[0.9], ax=ax))
    return panels


def scores(model: Any, cells: QueriedCells) -> dict[str, float]:
    """The scores that fit the model's kind of data; of levels that are words those that need no numbers."""
    from tensorcep.cli.cells import has_words

    X, y, extent = cells.X, cells.y, cells.extent
    kind = model.parts_[0].kind
    of_levels = kind == "levels"
    if kind == "labels":
        return tc.metrics.evaluate_binary(y, model.predict_proba(X)[:, 1])
    logs = model.log_score(X, y, **extent)
    right = {"accuracy": float((model.predict(X) == y).mean())} if of_levels else {}
    if of_levels and has_words(model):
        return {"log_likelihood": float(np.mean(logs)), **right}
    if not of_levels and not model.has_uncertainty():
        return tc.metrics.evaluate_counts(y, model.predict(X, **extent), logs, {})
    intervals = {level: tuple(model.predict_interval(X, level, **extent).T) for level in tc.metrics.COVERAGE_LEVELS}
    if of_levels:
        return {**tc.metrics.evaluate_counts(y, model.expected_value(X), logs, intervals), **right}
    mean, sd = model.predict(X, return_std=True, **extent)
    counted = tc.metrics.evaluate_counts(y, mean, logs, intervals)
    if kind == "values" and model.lower_limit_ is None and model.upper_limit_ is None:
        # the model's own intervals, as the figure has
        return {**tc.metrics.evaluate_regression(y, mean, sd), **counted}
    return counted


COMPARE = """\
Fit the entries of TRAIN by several methods, score each on those of TEST, and print a table.

  rmse, auc          accuracy of real values and counts, and of labels
  log_score          mean log predictive density or probability; higher is better
  coverage           share of values inside their 90 % interval
  calibration_error  mean distance of coverages, or of probabilities, from what is
                     observed
  sweeps, seconds, peak_mb   what the fit took"""


def _add_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("train", metavar="TRAIN", help="file of the entries to fit")
    parser.add_argument("test", metavar="TEST", help="file of the entries to predict")
    options.add(parser, "table.output", "compare.figure", "methods")
    options.add_talk(parser)
    options.add_model(parser, "rank")
    options.add_data(parser)


def _run_compare(args: argparse.Namespace) -> None:
    from tensorcep.cli.cells import read_data, tensors_of_words
    from tensorcep.plots import plot_comparison

    for path in (args.output, args.figure):
        check_output(path, args.train, args.test)
    if args.figure is not None:
        options.figure_module()
    model, paths = estimator_of(args), (args.train, args.test)
    train, test = tensors_of_words(paths, args) or [read_data(path, args) for path in paths]
    table = tc.compare(train, test, args.methods, estimator=model)
    _print(table, table, args.output)
    if args.figure is not None:
        options.save_figure(args.figure, lambda ax: plot_comparison(table, ax=ax))


def _print(table: pd.DataFrame, shown: pd.DataFrame, path: str | None) -> None:
    """Print a table, or the part of it that is shown, and write it to a file."""
    print(shown.to_string(float_format="{:.4g}".format))
    if path is not None:
        with output(path) as handle:
            handle.write(table.to_csv().encode())


RANKS = """\
Fit the entries of DATA with several ranks, score each on entries held out of the fit, fold by fold, and print a table
and the chosen rank: the smallest one whose mean log score is within one standard error of the best.

  mean, standard_error   log score of a held-out entry; higher is better
  loss, loss_error       what the rank loses against the best one, on the same folds
  seconds                of its fits"""


def _add_ranks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA", help="file of the entries to fit")
    options.add(parser, "table.output", "select_rank.model")
    options.add_talk(parser)
    options.add(parser.add_argument_group("choice of the rank"), "ranks", "cv", "best", "patience")
    options.add(options.add_model(parser), "method")
    options.add_data(parser)


def _run_ranks(args: argparse.Namespace) -> None:
    from tensorcep.cli.cells import cells_of_words, read_data

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


COMMANDS = (
    Command("evaluate", "MODEL DATA", "score predictions of entries left out", _add_evaluate, _run_evaluate, EVALUATE),
    Command("compare", "TRAIN TEST", "compare methods on entries left out", _add_compare, _run_compare, COMPARE),
    Command("select-rank", "DATA", "choose the rank by entries left out", _add_ranks, _run_ranks, RANKS),
)
