"""`tensorcep compare`: several inference methods on the same held-out entries."""

from __future__ import annotations

import argparse

from tensorcep.cli._command import (
    FILE_KINDS,
    Command,
    add_data_options,
    add_talk_options,
    check_output,
    figure_module,
    output,
    read_data,
    save_figure,
)
from tensorcep.cli._fit import add_inference_options, add_model_options, check_options, estimator_of
from tensorcep.cli._words import tensors_of_words

DESCRIPTION = f"""\
Fit the entries of TRAIN by several methods, score each on those of TEST, and print a table ({FILE_KINDS}).

  rmse, auc          accuracy of real values and counts, and of labels
  log_score          mean log predictive density or probability; higher is better
  coverage           share of values inside their 90 % interval
  calibration_error  mean distance of coverages, or of predicted probabilities, from what is observed
  sweeps, seconds, peak_mb   what the fit took"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("train", metavar="TRAIN", help="file of the entries to fit")
    parser.add_argument("test", metavar="TEST", help="file of the entries to predict")
    parser.add_argument("-o", "--output", metavar="CSV", help="write the table to this file too")
    parser.add_argument("--figure", metavar="PNG", help="draw accuracy against seconds to this file")
    add_model_options(parser)
    group = add_inference_options(parser)
    group.add_argument(
        "--methods",
        type=lambda text: [word.strip() for word in text.split(",")],
        metavar="A,B,C",
        help="names between commas (default: every method that fits the likelihood)",
    )
    add_data_options(parser)
    add_talk_options(parser)


def run(args: argparse.Namespace) -> None:
    from tensorcep.model_selection.compare import compare
    from tensorcep.plots import plot_comparison

    for path in (args.output, args.figure):
        if path is not None:
            check_output(path, args.train, args.test)
    check_options(args)
    if args.figure is not None:
        figure_module()
    model, paths = estimator_of(args), (args.train, args.test)
    train, test = tensors_of_words(paths, args, model) or [read_data(path, args) for path in paths]
    table = compare(train, test, args.methods, estimator=model)
    print(table.to_string(float_format="{:.4g}".format))
    if args.output is not None:
        with output(args.output) as handle:
            handle.write(table.to_csv().encode())
    if args.figure is not None:
        save_figure(args.figure, lambda ax: plot_comparison(table, ax=ax))


COMMAND = Command(
    "compare", "TRAIN TEST", "compare inference methods on held-out entries", add_arguments, run, DESCRIPTION
)
