"""`tensorcep report`: one self-contained page about a model."""

from __future__ import annotations

import argparse
from typing import Any

from tensorcep.cli._command import (
    Command,
    add_data_options,
    check_output,
    figure_module,
    is_of_matrices,
    load_any_model,
    output,
    read_data,
)
from tensorcep.cli._matrices import add_wide_option
from tensorcep.core.checks import fail_value

DESCRIPTION = """\
Write one HTML page about a model, with all figures in it: what was fitted and how far it is to be believed, the
variance that components explain, their weights with intervals, the rows of the largest weights, how the fit went; with
--data, entries as fit takes them, also the gaps of the data and the residuals by row. Models of matrices have the
scores of their rows, too; of several matrices --data is given once for each, in the order of the fit."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="file that fit or stream wrote")
    parser.add_argument("-o", "--output", metavar="OUT.html", required=True, help="file to write")
    parser.add_argument("--data", action="append", default=[], help="file of entries with their values")
    add_wide_option(parser)
    add_data_options(parser)


def run(args: argparse.Namespace) -> None:
    check_output(args.output, args.model, *args.data)
    figure_module()
    from tensorcep.plots.report import report

    model = load_any_model(args.model)
    data = _data(model, args)
    with output(args.output) as handle:
        handle.write(report(model, data).encode("utf-8"))


def _data(model: Any, args: argparse.Namespace) -> Any:
    """The entries of --data, as the model has them; None without."""
    of_matrices = is_of_matrices(model)
    wanted = len(model.matrix_names_) if of_matrices else 1
    if len(args.data) not in (0, wanted):
        fail_value(
            f"--data must be given {wanted} time{'s' * (wanted > 1)}, one for each matrix; got {len(args.data)}."
        )
    if not args.data:
        return None
    if not of_matrices:
        return read_data(args.data[0], args)
    from tensorcep.cli._matrices import matrix_of_fit

    return [matrix_of_fit(path, args, model, m) for m, path in enumerate(args.data)]


COMMAND = Command("report", "MODEL -o OUT.html", "write a page about a model", add_arguments, run, DESCRIPTION)
