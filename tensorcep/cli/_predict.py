"""`tensorcep predict`: cells in, predictions with their uncertainty out."""

from __future__ import annotations

import argparse
import itertools
from typing import TYPE_CHECKING, Any

from tensorcep.cli._command import (
    STDOUT,
    Command,
    add_data_options,
    add_safe_csv,
    check_output,
    is_of_matrices,
    load_any_model,
    output,
    write_csv,
)
from tensorcep.cli._extents import add_extent_options
from tensorcep.cli._matrices import predicted_cells
from tensorcep.cli._words import has_words
from tensorcep.core.checks import check_fraction, fail_value

if TYPE_CHECKING:
    import pandas as pd

DESCRIPTION = """\
Predict the cells of DATA and write them as csv, or parquet: the mode columns of DATA, and

  mean, sd, lower, upper       of a new observation, for real values and counts
  probability, lower, upper    of a 1, for labels; the bounds are those of the probability itself; of labels that are
                               words probability_yes, of the second of no and yes
  level, mean, sd, lower, upper, probability_1, ...  of levels: the most probable one, and what is known of a new one

A point estimate (fit --method wopt) has the first column only. A model of matrices (fit --model) has mean, sd, lower
and upper of real values, mean and sd of counts, and probability of labels.

DATA is read as for fit, except that it needs no values and that cells may repeat. Columns of a csv or parquet file that
carry the names of the model's modes are taken by name. Cells in rows without training data get the prior."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="file that fit wrote")
    parser.add_argument("data", metavar="DATA", help="file of the cells to predict, a folder, or a pattern in quotes")
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        default=STDOUT,
        help="csv or parquet file to write; - is csv on stdout (default)",
    )
    parser.add_argument(
        "--coverage", type=float, default=0.9, metavar="C", help="of the interval lower to upper (default: 0.9)"
    )
    parser.add_argument("--matrix", metavar="NAME", help="of a model of matrices: which one (default: the first)")
    add_safe_csv(parser)
    add_extent_options(parser)
    add_data_options(parser, fixed_rows=True)


def run(args: argparse.Namespace) -> None:
    check_fraction("--coverage", args.coverage)
    check_output(args.output, args.model, args.data)
    if args.output != STDOUT and not args.output.endswith((".csv", ".parquet")):
        fail_value(f"predictions are written as csv or parquet; got the name '{args.output}'; let it end in .csv.")
    from tensorcep.cli._query_pieces import query_pieces, write_parquet

    model = load_any_model(args.model)
    if is_of_matrices(model):
        tables = iter([predicted_cells(args, model)])
    else:
        pieces = query_pieces(args.data, args, model)
        tables = (prediction_table(model, piece.X, piece.columns, args.coverage, piece.extent) for piece in pieces)
    first = next(tables)  # what is wrong with the first cells is said before a file is begun
    with output(args.output) as handle:
        every = itertools.chain([first], tables)
        if args.output.endswith(".parquet"):
            write_parquet(handle, every)
        else:
            for n, table in enumerate(every):
                write_csv(handle, table, args, header=n == 0)


def prediction_table(
    model: Any, X: Any, columns: pd.DataFrame, coverage: float, extent: dict[str, Any]
) -> pd.DataFrame:
    """The cells' own columns and what the model says of them."""
    table = columns.copy()
    table.columns = [f"mode_{name}" if isinstance(name, int) else name for name in columns.columns]
    for name in table.columns[table.dtypes == "float64"]:
        table[name] = table[name].map(repr)  # labels keep every digit
    found: dict[str, Any] = {}
    if hasattr(model, "expected_value"):
        found = _of_levels(model, X, coverage)
    elif hasattr(model, "predict_proba"):
        name = f"probability_{model.classes_[1]}" if has_words(model) else "probability"
        found[name] = model.predict_proba(X)[:, 1]
    else:
        found["mean"] = model.predict(X, **extent)
    if model.has_uncertainty() and not hasattr(model, "expected_value"):
        if "mean" in found:
            found["sd"] = model.predict(X, return_std=True, **extent)[1]
        found["lower"], found["upper"] = model.predict_interval(X, coverage, **extent).T
    for name, numbers in found.items():
        table[f"predicted_{name}" if name in columns.columns else name] = numbers
    return table


def _of_levels(model: Any, X: Any, coverage: float) -> dict[str, Any]:
    """What a model of ordered levels says; those that are words have no mean."""
    lower, upper = model.predict_interval(X, coverage).T
    p = model.predict_proba(X)
    found = {"level": model.classes_[p.argmax(axis=1)]}
    if not has_words(model):
        found["mean"], found["sd"] = model.expected_value(X, return_std=True)
    found |= {"lower": lower, "upper": upper}
    names = [level if isinstance(level, str) else f"{level:g}" for level in model.classes_.tolist()]
    return found | {f"probability_{name}": p[:, k] for k, name in enumerate(names)}


COMMAND = Command(
    "predict", "MODEL DATA", "predict cells, with standard deviation and interval", add_arguments, run, DESCRIPTION
)
