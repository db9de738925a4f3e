"""`tensorcep report`: one self-contained page about a model."""

from __future__ import annotations

import argparse

from tensorcep.cli._command import (
    Command,
    add_data_options,
    check_output,
    figure_module,
    load_tensor_model,
    output,
    read_data,
)

DESCRIPTION = """\
Write one HTML page about a model, with all figures in it: what was fitted and how far it is to be believed, the
variance that components explain, their weights with intervals, the rows of the largest weights, how the fit went; with
--data, entries as fit takes them, also the gaps of the data and the residuals by row."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="file that fit or stream wrote")
    parser.add_argument("-o", "--output", metavar="OUT.html", required=True, help="file to write")
    parser.add_argument("--data", metavar="DATA", help="file of entries with their values")
    add_data_options(parser)


def run(args: argparse.Namespace) -> None:
    check_output(args.output, args.model, *([] if args.data is None else [args.data]))
    figure_module()
    from tensorcep.plots.report import report

    model = load_tensor_model(args.model)
    tensor = None if args.data is None else read_data(args.data, args)
    with output(args.output) as handle:
        handle.write(report(model, tensor).encode("utf-8"))


COMMAND = Command("report", "MODEL -o OUT.html", "write a page about a model", add_arguments, run, DESCRIPTION)
