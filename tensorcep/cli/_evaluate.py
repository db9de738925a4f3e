"""`tensorcep evaluate`: how good the predictions of held-out entries are, and their uncertainty."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tensorcep.cli._command import (
    Command,
    add_data_options,
    check_output,
    figure_module,
    load_tensor_model,
    save_figure,
)
from tensorcep.cli._extents import add_extent_options
from tensorcep.cli._words import has_words
from tensorcep.core.checks import fail_value

if TYPE_CHECKING:
    import numpy as np

DESCRIPTION = """\
Score a model's predictions of the entries of DATA, which should not be those that it was fitted to.

  real values   RMSE, MAE, mean log likelihood, CRPS, coverage of the 50, 80 and 95 % intervals
  labels        AUC, average precision, log loss, Brier score, accuracy, expected calibration error
  counts        RMSE, MAE, mean log likelihood, coverage; so too real values with a limit
  levels        the same of the expected level, and accuracy; of words mean log likelihood and accuracy

A coverage is the share of values inside the interval: good when it equals the interval's own. DATA is read as for
predict, and must hold values. --figure draws the reliability of probabilities, or the coverage of intervals and, for
real values, the predictions."""

LEVELS = tuple(k / 20 for k in range(1, 20))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="file that fit wrote")
    parser.add_argument("data", metavar="DATA", help="file of entries with their values")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--figure", metavar="PNG", help="draw how well the uncertainty holds to this file")
    add_extent_options(parser)
    add_data_options(parser, fixed_rows=True)


def run(args: argparse.Namespace) -> None:
    from tensorcep.cli._queries import read_queries

    if args.figure is not None:
        check_output(args.figure, args.model, args.data)
        figure_module()
    model = load_tensor_model(args.model)
    if args.figure is not None and not (hasattr(model, "predict_proba") or model.has_uncertainty()):
        fail_value(f"--figure draws uncertainty, and the model in '{args.model}' is a point estimate; leave it out.")
    if args.figure is not None and hasattr(model, "expected_value") and has_words(model):
        fail_value(f"--figure draws numbers, and the levels of the model in '{args.model}' are words; leave it out.")
    queries = read_queries(args.data, args, model, with_values=True)
    y = queries.y if hasattr(model, "expected_value") else model._result.observation.coded(queries.y)
    if args.figure is not None:
        save_figure(args.figure, *drawings(model, queries.X, y, queries.extent))
    found = {"entries": len(queries.columns), **scores(model, queries.X, y, queries.extent)}
    if args.json:
        print(json.dumps({name: value if math.isfinite(value) else None for name, value in found.items()}))
        return
    width = max(map(len, found))
    for name, value in found.items():
        print(f"{name:{width}}  {value if isinstance(value, int) else f'{value:.4f}'}")


def drawings(model: Any, X: Any, y: np.ndarray, extent: dict[str, Any]) -> list[Callable[[Any], Any]]:
    """What shows the uncertainty of the model's kind of data, each on axes that it gets."""
    from tensorcep import plots

    if hasattr(model, "predict_proba") and not hasattr(model, "expected_value"):
        p = model.predict_proba(X)[:, 1]
        return [lambda ax: plots.plot_reliability(y, p, ax=ax)]
    intervals = {level: model.predict_interval(X, level, **extent) for level in LEVELS}
    found: list[Callable[[Any], Any]] = [lambda ax: plots.plot_coverage(y, intervals, ax=ax)]
    if type(model).__name__ == "CPRegressor":
        mean = model.predict(X)
        found.insert(0, lambda ax: plots.plot_predictions(y, mean, coverage=0.9, intervals=intervals[0.9], ax=ax))
    return found


def _scores_of_levels(model: Any, X: Any, y: np.ndarray) -> dict[str, float]:
    """Scores of levels, of words without those that need numbers."""
    import numpy as np

    from tensorcep import metrics

    right = {"accuracy": float((model.predict(X) == y).mean())}
    if has_words(model):
        return {"log_likelihood": float(np.mean(model.log_score(X, y))), **right}
    intervals = {level: tuple(model.predict_interval(X, level).T) for level in metrics.COVERAGE_LEVELS}
    found = metrics.evaluate_counts(y, model.expected_value(X), model.log_score(X, y), intervals)
    return {**found, **right}


def scores(model: Any, X: Any, y: np.ndarray, extent: dict[str, Any]) -> dict[str, float]:
    """The scores that fit the model's kind of data."""
    from tensorcep import metrics

    if hasattr(model, "expected_value"):
        return _scores_of_levels(model, X, y)
    if hasattr(model, "predict_proba"):
        return metrics.evaluate_binary(y, model.predict_proba(X)[:, 1])
    if not model.has_uncertainty():
        return metrics.evaluate_counts(y, model.predict(X, **extent), model.log_score(X, y, **extent), {})
    mean, sd = model.predict(X, return_std=True, **extent)
    intervals = {level: tuple(model.predict_interval(X, level, **extent).T) for level in metrics.COVERAGE_LEVELS}
    found = metrics.evaluate_counts(y, mean, model.log_score(X, y, **extent), intervals)
    if type(model).__name__ == "CPRegressor" and model._result.likelihood.limit is None:
        return {**metrics.evaluate_regression(y, mean, sd), **found}  # the model's own intervals, as the figure has
    return found


COMMAND = Command("evaluate", "MODEL DATA", "score predictions of held-out entries", add_arguments, run, DESCRIPTION)
