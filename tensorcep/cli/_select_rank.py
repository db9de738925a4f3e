"""`tensorcep select-rank`: the number of components by the log score of held-out entries."""

from __future__ import annotations

import argparse

from tensorcep.cli._command import (
    FILE_KINDS,
    Command,
    add_data_options,
    add_talk_options,
    check_output,
    output,
    read_data,
    shows_progress,
)
from tensorcep.cli._fit import add_inference_options, add_method_option, add_model_options, check_options, estimator_of
from tensorcep.cli._words import cells_of_words

RANKS = [1, 2, 3, 4, 6, 8, 12, 16]
DESCRIPTION = f"""\
Fit the entries of DATA ({FILE_KINDS}) with several ranks, score each
on entries held out of the fit, fold by fold, and print a table and the chosen rank: the smallest one whose mean log
score is within one standard error of the best.

  mean, standard_error   log score of a held-out entry; higher is better
  loss, loss_error       what the rank loses against the best one, on the same folds
  seconds                of its fits"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA", help="file of the entries to fit")
    parser.add_argument(
        "-o", "--output", metavar="CSV", help="write the table, with the score of every fold, to a file"
    )
    parser.add_argument("--model", metavar="MODEL", help="write the model of the chosen rank, fitted to all entries")
    add_model_options(parser, rank=False)
    group = add_inference_options(parser)
    add_method_option(group)
    group = parser.add_argument_group("choice of the rank")
    group.add_argument(
        "--ranks",
        type=_ranks,
        default=RANKS,
        metavar="R,R,R",
        help=f"ranks to try (default: {','.join(map(str, RANKS))})",
    )
    group.add_argument("--cv", type=int, default=5, metavar="N", help="number of folds (default: 5)")
    group.add_argument("--best", action="store_true", help="choose the best rank, not the smallest one that is as good")
    group.add_argument(
        "--patience", type=int, metavar="N", help="stop when so many ranks in a row are no better (default: try all)"
    )
    add_data_options(parser)
    add_talk_options(parser)


def run(args: argparse.Namespace) -> None:
    from tensorcep.model_selection.select_rank import select_rank

    for path in (args.output, args.model):
        if path is not None:
            check_output(path, args.data)
    args.rank = min(args.ranks)
    check_options(args)
    words = cells_of_words(args.data, args)
    X, y = (read_data(args.data, args), None) if words is None else words[1:]
    found = select_rank(
        estimator_of(args, method=args.method),
        X,
        y,
        ranks=args.ranks,
        cv=args.cv,
        rule="best" if args.best else "one_standard_error",
        patience=args.patience,
        random_state=args.seed,
        verbose=shows_progress(args),
    )
    shown = [name for name in found.frame if not str(name).startswith("fold_")]
    print(found.frame[shown].to_string(float_format="{:.4g}".format))
    print(f"chosen rank {found.rank} (best {found.best_rank})")
    if args.output is not None:
        with output(args.output) as handle:
            handle.write(found.frame.to_csv().encode())
    if args.model is not None:
        found.estimator.save(args.model)


def _ranks(text: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"ranks are integers between commas, such as 2,4,8; got {text!r}") from None


COMMAND = Command(
    "select-rank", "DATA", "choose the rank by scores of held-out entries", add_arguments, run, DESCRIPTION
)
