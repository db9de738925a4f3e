"""`tensorcep stream`: entries in as they come, model file out, with checkpoints that a killed run continues from."""

from __future__ import annotations

import argparse
import os
from typing import Any

from tensorcep.cli._command import (
    STDOUT,
    Command,
    add_data_options,
    add_safe_csv,
    add_talk_options,
    check_output,
    reading_of,
    show,
    shows_progress,
)
from tensorcep.cli._extents import add_extent_options, check_extents, given_extents
from tensorcep.cli._fit import (
    add_rank_option,
    add_structure_options,
    check_options,
    estimator_of,
)
from tensorcep.cli._knowledge import digests_of
from tensorcep.cli._likelihoods import LIKELIHOODS, add_special_options
from tensorcep.cli._lines import method_line
from tensorcep.cli._numbers import threads_of
from tensorcep.cli._stream_rows import stream_rows
from tensorcep.cli._stream_work import StreamRun, side_files, side_paths
from tensorcep.core.checks import check_int, check_range, fail_value

DESCRIPTION = """\
Learn the entries of DATA (csv, tns or parquet files; - is standard input) batch after batch and write the model to
MODEL. The posterior after a batch is the prior of the next, so memory does not grow with the number of entries. Rows
that were not seen before are added as they come. Every batch is predicted before it is learned; --trace keeps the
scores of batches, and --scores those of entries: columns as of score, and of the first batch, which nothing predicts,
empty ones.

MODEL is written every --checkpoint-every batches and at the end. After a crash, or kill -9, the same command with
--resume goes on from the last checkpoint and ends exactly where an uninterrupted run would have ended.

With --model pca or fa the entries are those of a matrix (row, column, value), the entries of a row one after the
other, and the first batch has all columns. Rows are learned and let go; the columns' loadings are kept. Such a run is
not resumed."""

# Parameters that may differ between a run and the one that resumes it: they have no effect on the result.
FREE = ("n_jobs", "verbose", "callbacks")
# A stream knows no shape; lines without a value, which are refused or set aside otherwise, may be left out from now on.
FREE_OF_READING = ("shape", "drop_missing", "words", "extras", "format")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA", nargs="+", help="files of entries, in the order to learn them")
    parser.add_argument("-o", "--output", metavar="MODEL", required=True, help="file to write, usually .npz")
    group = parser.add_argument_group("stream")
    group.add_argument("--batch-size", type=int, default=1000, metavar="N", help="entries per batch (default: 1000)")
    group.add_argument(
        "--first-batch",
        type=int,
        metavar="N",
        help="entries of the first batch, which should be large (default: as all)",
    )
    group.add_argument(
        "--checkpoint-every", type=int, default=50, metavar="N", help="batches between two checkpoints (default: 50)"
    )
    group.add_argument("--resume", action="store_true", help="go on from the checkpoint in MODEL, if there is one")
    group.add_argument(
        "--bad-lines", metavar="FILE", help="set malformed lines aside in FILE and go on (default: stop at the first)"
    )
    group.add_argument("--trace", metavar="FILE.csv", help="write the scores of each batch before it was learned")
    group.add_argument(
        "--scores", metavar="FILE.csv", help="write how odd each entry is, as score does, before it was learned"
    )
    group.add_argument(
        "--forget",
        type=float,
        default=0.0,
        metavar="F",
        help="share of a row's information lost per batch (default: 0)",
    )
    group.add_argument(
        "--revisit",
        type=int,
        default=0,
        metavar="N",
        help="past entries, a random sample, to learn again with every batch; for cep (default: 0)",
    )
    group = parser.add_argument_group("model")
    group.add_argument(
        "--model", choices=("cp", "pca", "fa"), default="cp", help="cp: a tensor (default); pca, fa: rows of a matrix"
    )
    add_rank_option(group)
    known = [name for name in LIKELIHOODS if name != "ordinal"]  # not learned by batches
    group.add_argument("--likelihood", choices=known, default="gaussian", help="as for fit (default: gaussian)")
    add_structure_options(group)
    add_special_options(group)
    group.add_argument("--zeros", help=argparse.SUPPRESS)  # to say what to do instead
    group.add_argument("--method", choices=("cep", "vmp"), default="cep", help="inside a batch (default: cep)")
    group.add_argument("--max-iter", type=int, default=200, metavar="N", help="most sweeps of a batch (default: 200)")
    group.add_argument("--tol", type=float, default=3e-3, help="as for fit (default: 0.003)")
    group.add_argument("--seed", type=int, default=0, help="of the random start (default: 0)")
    group.add_argument("--threads", type=threads_of, default=1, metavar="N", help="default: 1; no effect on the result")
    add_safe_csv(parser)
    add_extent_options(parser)
    add_data_options(parser, fixed_rows=True)
    add_talk_options(parser)


def run(args: argparse.Namespace) -> None:
    from tensorcep.cli._input import Witness

    if args.model != "cp":
        return stream_rows(args)
    _check(args)
    model, progress = _model(args), _new_progress(args)
    witness = Witness(args.data, args.format)
    if args.resume and os.path.exists(args.output):
        model, progress = _resumed(args, model)
        witness.check(progress.get("read", ()), *progress["position"])  # earlier checkpoints do not hold it
        if not args.quiet:
            show(f"resumed     after {model.n_samples_seen_} entries, {model.n_batches_} batches")
    with side_files(args, progress) as files:
        work = StreamRun(args, progress, witness, files)
        model.stream(work.batches(), callback=work.learned, scores=work.scored if "scores" in files else None)
        if not hasattr(model, "n_batches_"):
            fail_value(f"{', '.join(args.data)}: no entries; at least one is needed.")
        work.checkpoint(model)
    if not args.quiet:
        show(f"learned     {model.n_samples_seen_} entries in {model.n_batches_} batches")
        show(f"method      {method_line(model)}")
        show(f"rows        {' x '.join(map(str, model.shape_))}")
        if progress["bad"]:
            show(f"set aside   {progress['bad']} malformed lines in {args.bad_lines}")
        show(f"model       {args.output}")


def _check(args: argparse.Namespace) -> None:
    """Refuse, before any work, what cannot succeed."""
    written = [args.output, *side_paths(args).values()]
    for path in written:
        if path == STDOUT:
            fail_value("a stream writes files only; give a name other than -.")
        check_output(path, *args.data)
    if len({os.path.realpath(path) for path in written}) < len(written):
        fail_value("MODEL, --bad-lines, --trace and --scores must be different files.")
    if os.path.exists(args.output) and not args.resume:
        fail_value(f"'{args.output}' exists; give --resume to go on with it, or remove it first.")
    for option in ("batch_size", "checkpoint_every"):
        check_int(f"--{option.replace('_', '-')}", getattr(args, option))
    if args.first_batch is not None:
        check_int("--first-batch", args.first_batch)
    check_options(args)
    check_extents(args)
    if given_extents(args) and (args.modes is None or args.value is None or args.bad_lines is not None):
        fail_value("--exposure and --n-trials need --modes and --value, and take no --bad-lines; change these.")
    check_range("--forget", args.forget, 0.0, 1.0, include_high=False)
    if check_int("--revisit", args.revisit, 0) and args.method != "cep":
        fail_value(f"--revisit is for --method cep; got {args.method}; leave it out.")
    if args.revisit and (args.features or args.series):
        fail_value("--revisit goes with a prior that stays, not with --features or --series; leave it out.")
    if args.forget and args.series:
        fail_value("--forget does not go with --series, which forgets as the drift says; leave it out.")
    if args.zeros is not None:
        fail_value(
            "--zeros is for fit and convert, as a stream does not know which cells stay absent; write the zeros to a "
            "file by tensorcep convert --zeros N, and stream its lines in random order."
        )
    if args.graph:
        fail_value("--graph is for fit, compare and select-rank; a stream learns no graph; leave it out.")


def _model(args: argparse.Namespace) -> Any:
    own = {"method": args.method, "forget": args.forget, "revisit": args.revisit}
    return estimator_of(args, **own, verbose=shows_progress(args))


def _new_progress(args: argparse.Namespace) -> dict[str, Any]:
    """What a checkpoint holds beside the model: the input, how far it was read, and the sizes of the side files."""
    return {
        "data": list(args.data),
        "batch_size": args.batch_size,
        "first_batch": args.first_batch,
        "position": (0, 0),
        "read": [],
        "aside": 0,
        "trace": 0,
        "scores": 0,
        "bad": 0,
        "knowledge": digests_of(args),
        "reading": {name: given for name, given in reading_of(args)._asdict().items() if name not in FREE_OF_READING},
    }


def _resumed(args: argparse.Namespace, fresh: Any) -> tuple[Any, dict[str, Any]]:
    """The model and the progress of a checkpoint, if the options are those that it was made with."""
    from tensorcep.cli._input import check_progress
    from tensorcep.core.persist.models import complete, open_model
    from tensorcep.estimators import load

    progress = open_model(args.output).header.get("progress")
    if progress is None:
        fail_value(
            f"'{args.output}' is no checkpoint of a stream; learn further files by tensorcep update, or give another "
            "file."
        )
    model = load(args.output)
    with complete(args.output):
        check_progress(progress)
    new = _new_progress(args)
    asked = {name: new[name] for name in ("data", "batch_size", "first_batch", "knowledge")} | new["reading"]
    # Earlier checkpoints hold neither what is known of rows nor how files were read.
    made = {"knowledge": [], **progress, **(progress.get("reading") or new["reading"])}
    for name, now in asked.items():
        if made.get(name) != now:
            instead = ", or learn a further file by tensorcep update" if name == "data" else ""
            fail_value(
                f"'{args.output}' was made with {name}={made.get(name)!r}; got {now!r}; give the same to "
                f"resume{instead}."
            )
    if type(model) is not type(fresh):
        fail_value(f"'{args.output}' holds a {type(model).__name__}; give the same --likelihood to resume.")
    # What is known of rows is no parameter that a file holds, and was compared above.
    free = (*FREE, "prior") if new["knowledge"] else FREE
    params = model.get_params(deep=False)
    for name, now in fresh.get_params(deep=False).items():
        if name not in free and params[name] != now:
            fail_value(f"'{args.output}' was made with {name}={params[name]!r}; got {now!r}; give the same to resume.")
    column = next(iter(given_extents(args).values()), None)
    before = getattr(model._result.observation, "extent_column", None)
    if before != column:
        fail_value(
            f"'{args.output}' was made with the column {before!r} of exposures or trials; "
            f"got {column!r}; give the same to resume."
        )
    for name in free:
        setattr(model, name, getattr(fresh, name))
    return model, progress


COMMAND = Command(
    "stream", "DATA... -o MODEL", "learn entries as they come, with checkpoints", add_arguments, run, DESCRIPTION
)
