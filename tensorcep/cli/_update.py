"""`tensorcep update`: score the entries of the next file, and learn them."""

from __future__ import annotations

import argparse
import os
from typing import Any

from tensorcep.cli._command import (
    STDOUT,
    Command,
    add_data_options,
    add_safe_csv,
    check_output,
    load_tensor_model,
    output,
    show,
    write_csv,
)
from tensorcep.cli._extents import add_extent_options
from tensorcep.core.checks import fail_value

DESCRIPTION = """\
Learn the entries of NEW on top of what MODEL knows, and write MODEL again. Each file is predicted before it is learned:
--scores keeps how odd each entry was, with the columns of score. Rows that are new are added.

MODEL is of stream, or of fit, as far as that learns on: not of levels, structural zeros, or several noises. It is
replaced in one step when all is done; a run that fails or is interrupted leaves it as it was, so that the same command
can be run again. Checksums of what was learned are kept in MODEL, and a file that was learned already is refused."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="file that fit or stream wrote; it is replaced")
    parser.add_argument("data", metavar="NEW", nargs="+", help="files of new entries, in the order to learn them")
    parser.add_argument("--scores", metavar="FILE.csv", help="write how odd each entry is, before it is learned")
    parser.add_argument("--again", action="store_true", help="learn files although they were learned already")
    parser.add_argument("-q", "--quiet", action="store_true", help="show nothing but warnings and errors")
    parser.add_argument("--count", action="store_true", help="no column is the value: count the lines of each cell")
    add_safe_csv(parser)
    add_extent_options(parser)
    add_data_options(parser, fixed_rows=True)


def run(args: argparse.Namespace) -> None:
    import pandas as pd

    from tensorcep.cli._input import digests_of_files
    from tensorcep.cli._score import check_count, read_scored, score_table
    from tensorcep.cp.estimators.store import write_model

    check_count(args)
    for path in [args.model] if args.scores is None else [args.model, args.scores]:
        if path == STDOUT:
            fail_value("an update writes files only; give a name other than -.")
        check_output(path, *args.data)
    if args.scores is not None:
        check_output(args.scores, args.model)
    before = _stamp(args.model)
    model = load_tensor_model(args.model)
    learned, new = learned_files(args.model), digests_of_files(args.data, args.format)
    if not args.again:
        check_new([*learned, *new], len(learned))
    tables, seen = [], int(model.n_samples_seen_)
    for path in args.data:
        queries = read_scored(path, args, model)
        tables.append(score_table(model, queries.X, queries.y, queries.columns, queries.extent))
        model.partial_fit(_spelled(queries.X, model), queries.y, **queries.extent)
    scores = pd.concat(tables, ignore_index=True)
    if args.scores is not None:
        with output(args.scores) as handle:
            write_csv(handle, scores, args)
    if _stamp(args.model) != before:
        fail_value(f"'{args.model}' was replaced by another process meanwhile; nothing was learned; run this again.")
    write_model(args.model, model, {"learned": [*learned, *new]})
    if not args.quiet:
        odd = scores["surprise"]
        show(f"scored      {len(scores)} entries, mean log score {-odd.mean():.4g}, lowest {-odd.max():.4g}")
        show(f"learned     {int(model.n_samples_seen_) - seen} entries, {int(model.n_samples_seen_)} in all")
        show(f"rows        {' x '.join(map(str, model.shape_))}")
        show(f"model       {args.model}")


def learned_files(path: str) -> list[list[Any]]:
    """Name, number of lines and checksum of the files that a model has learned, as far as its file says."""
    from tensorcep.cli._input import check_progress
    from tensorcep.core.persist.models import complete, open_model

    header = open_model(path).header
    with complete(path):
        progress = header.get("progress")
        if progress is not None:
            check_progress(progress)
            return [[name, *read] for name, read in zip(progress["data"], progress.get("read", ()), strict=False)]
        return [[str(name), int(count), str(sha)] for name, count, sha in header.get("learned", ())]


def check_new(files: list[list[Any]], n_learned: int) -> None:
    """Refuse a file that was learned, or that is given twice.

    Raises
    ------
    ValueError
    """
    for place, (name, count, sha) in enumerate(files[n_learned:], n_learned):
        for earlier, *same in files[:place]:
            if same == [count, sha]:
                called = "" if earlier == name else f" as '{earlier}'"
                fail_value(
                    f"'{name}' was learned already{called} ({count} lines with the same checksum); leave it out, or "
                    "give --again if the same observations were made twice."
                )


def _stamp(path: str) -> tuple[int, int, int] | None:
    """What tells a file from one that took its place."""
    if not os.path.exists(path):  # which is said when it is loaded
        return None
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns


def _spelled(X: Any, model: Any) -> Any:
    """Labels as the model has them: numbers of a file are text where the model's labels are, as those of streams."""
    import pandas as pd

    if not isinstance(X, pd.DataFrame):
        return X
    return X.assign(
        **{
            name: X[name].map(str)
            for name, known in zip(X.columns, model.labels_, strict=True)
            if known is not None
            and pd.api.types.is_numeric_dtype(X[name].dtype)
            and pd.api.types.infer_dtype(known.index) == "string"
        }
    )


COMMAND = Command("update", "MODEL NEW...", "score and learn the next file", add_arguments, run, DESCRIPTION)
