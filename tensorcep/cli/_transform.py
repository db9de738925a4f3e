"""`tensorcep transform`: new rows in, their weights in a model's components out."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorcep.cli._command import (
    STDOUT,
    Command,
    add_data_options,
    add_safe_csv,
    check_output,
    is_of_matrices,
    load_any_model,
    output,
    read_data,
    write_csv,
)
from tensorcep.cli._matrices import add_wide_option, new_matrix, which_matrix
from tensorcep.core.checks import fail_value

if TYPE_CHECKING:
    import pandas as pd

DESCRIPTION = """\
Place new rows among those of a fitted model, everything else as it was fitted, and write them as csv: row, component,
mean and sd.

Of a model of a tensor the entries of DATA are of new rows of the mode that --mode names. Of a model of matrices (fit
--model) they are new rows of a matrix, whose columns the model knows."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="file that fit wrote")
    parser.add_argument("data", metavar="DATA", help="file of the entries of the new rows")
    parser.add_argument("--mode", help="of a tensor: the mode of the new rows, its name or its position from 0")
    parser.add_argument("--matrix", metavar="NAME", help="of matrices: which one (default: the first)")
    add_wide_option(parser)
    parser.add_argument(
        "-o", "--output", metavar="OUT.csv", default=STDOUT, help="csv file to write; - is stdout (default)"
    )
    add_safe_csv(parser)
    add_data_options(parser)


def run(args: argparse.Namespace) -> None:
    check_output(args.output, args.model, args.data)
    model = load_any_model(args.model)
    table = _of_matrices(args, model) if is_of_matrices(model) else _of_tensor(args, model)
    with output(args.output) as handle:
        write_csv(handle, table, args)


def _of_tensor(args: argparse.Namespace, model: Any) -> pd.DataFrame:
    if args.mode is None:
        fail_value("--mode must name the mode of the new rows, for a model of a tensor.")
    mode = int(args.mode) if args.mode.isdecimal() else args.mode
    rows = model.transform(read_data(args.data, args), mode=mode)
    first = model.shape_[rows.mode]
    labels = np.arange(first, first + len(rows)) if rows.labels is None else rows.labels.index
    return _tidy(labels, rows.mean, np.sqrt(np.diagonal(rows.cov, axis1=1, axis2=2)))


def _of_matrices(args: argparse.Namespace, model: Any) -> pd.DataFrame:
    m = model._position(which_matrix(args))
    new = new_matrix(args.data, args, model, m)
    several = len(model._links) > 1 or not hasattr(model, "components_")
    given = {model.matrix_names_[m]: new} if several else new
    mean, cov = model.transform(given, return_cov=True)
    labels = np.arange(len(mean)) if new.labels[0] is None else new.labels[0].index
    return _tidy(labels, mean, np.sqrt(np.diagonal(cov, axis1=1, axis2=2)))


def _tidy(labels: Any, mean: np.ndarray, sd: np.ndarray) -> pd.DataFrame:
    import pandas as pd

    n, K = mean.shape
    return pd.DataFrame(
        {
            "row": np.repeat(np.asarray(labels), K),
            "component": np.tile(np.arange(K), n),
            "mean": mean.ravel(),
            "sd": sd.ravel(),
        }
    )


COMMAND = Command(
    "transform", "MODEL DATA", "place new rows among those of a model", add_arguments, run, DESCRIPTION
)  # fmt: skip
