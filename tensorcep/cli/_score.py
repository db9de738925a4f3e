"""`tensorcep score`: observations in, how odd each of them is under the model out."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from tensorcep.cli._command import (
    STDOUT,
    Command,
    add_data_options,
    add_safe_csv,
    check_output,
    load_tensor_model,
    output,
    write_csv,
)
from tensorcep.cli._extents import add_extent_options, given_extents
from tensorcep.core.checks import check_int, fail_value

if TYPE_CHECKING:
    import pandas as pd

    from tensorcep.cli._queries import QueriedCells

DESCRIPTION = """\
Score how odd the observations in DATA are under the model, and write them as csv: the mode columns of DATA, and

  value                     what was observed
  mean, sd                  of a new observation
  surprise                  minus its log predictive density or mass, in nats: the larger, the odder
  lower_tail, upper_tail    the probability of an observation as low, or as high, or more so
  unseen                    whether a row of the cell had no training data, so that its prior was used

DATA is read as for predict, and must hold values; with --count a line is an event, and the value of a cell is the
number of its lines."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="file that fit or stream wrote")
    parser.add_argument("data", metavar="DATA", help="file of observations")
    parser.add_argument(
        "-o", "--output", metavar="OUT.csv", default=STDOUT, help="csv file to write; - is stdout (default)"
    )
    parser.add_argument("--top", type=int, metavar="N", help="the N oddest alone, the oddest first")
    parser.add_argument("--count", action="store_true", help="no column is the value: count the lines of each cell")
    add_safe_csv(parser)
    add_extent_options(parser)
    add_data_options(parser, fixed_rows=True)


def run(args: argparse.Namespace) -> None:
    if args.top is not None:
        check_int("--top", args.top)
    check_count(args)
    check_output(args.output, args.model, args.data)
    model = load_tensor_model(args.model)
    queries = read_scored(args.data, args, model)
    table = score_table(model, queries.X, queries.y, queries.columns, queries.extent)
    if args.top is not None:
        table = table.sort_values("surprise", ascending=False, kind="stable").head(args.top)
    with output(args.output) as handle:
        write_csv(handle, table, args)


def check_count(args: argparse.Namespace) -> None:
    """Refuse what does not go with --count."""
    if args.count and given_extents(args):
        fail_value("--count makes counts of lines, which have no exposure or trials each; leave one of both out.")
    if args.count and args.value is not None:
        fail_value("--count says that no column is the value; leave out --value.")


def read_scored(path: str, args: argparse.Namespace, model: Any) -> QueriedCells:
    """The observations of a file: its entries, or with --count the cells and how many lines each has."""
    from tensorcep.cli._queries import read_queries

    queries = read_queries(path, args, model, with_values=not args.count)
    if not args.count:
        return queries
    place, y = lines_of_cells(queries.columns)
    X = queries.X[place] if hasattr(queries.X, "dtype") else queries.X.iloc[place]
    return queries._replace(X=X, y=y, columns=queries.columns.iloc[place])


def lines_of_cells(columns: pd.DataFrame) -> tuple[Any, Any]:
    """The first line of every cell, and how many lines it has."""
    import numpy as np

    cell = columns.groupby(list(columns.columns), sort=False).ngroup().to_numpy()
    _, place, count = np.unique(cell, return_index=True, return_counts=True)
    return place, count.astype(float)


def score_table(model: Any, X: Any, y: Any, columns: pd.DataFrame, extent: dict[str, Any]) -> pd.DataFrame:
    """The cells' own columns and their scores."""
    found = model.anomaly_score(X, y, **extent)
    found = found.iloc[:, len(model.labels_) :].reset_index(drop=True)
    names = [f"mode_{name}" if isinstance(name, int) else name for name in columns.columns]
    table = columns.set_axis(names, axis=1).reset_index(drop=True)
    for name in found:
        table[f"predicted_{name}" if name in names else name] = found[name]
    return table


COMMAND = Command("score", "MODEL DATA", "score how odd observations are", add_arguments, run, DESCRIPTION)
