"""`tensorcep stream` and `update`: entries as they come, with checkpoints that a killed run continues from."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pandas as pd

import tensorcep as tc
from tensorcep.cli import fit
from tensorcep.cli.cells import Witness, columns_of_words, digests_of_files, given_extents, reading_of, write_csv
from tensorcep.cli.options import STDOUT, check_counts_of, check_output, say, show, shows_progress
from tensorcep.cli.predict import check_count, load_model, read_scored, score_table
from tensorcep.core.checks import check_file, check_int, fail_value
from tensorcep.core.persist.archive import naming
from tensorcep.core.persist.models import complete, open_model
from tensorcep.core.persist.records import read_as
from tensorcep.cp.estimators.store import write_model
from tensorcep.cp.stream.learn import write_scores
from tensorcep.entries.io import Batch, read_batches
from tensorcep.entries.io.files import escaped

# Parameters that may differ between a run and the one that resumes it: they have no effect on the result.
FREE = ("n_jobs", "verbose", "callbacks")
# A stream knows no shape; lines without a value, which are refused or set aside otherwise, may be left out from now on.
FREE_OF_READING = ("shape", "drop_missing", "words", "extras", "format", "bad_line")
# Options that streams of rows do not have beside those of models of matrices.
FOR_TENSORS: tuple[str, ...] = ("lower_limit", "resume", "checkpoint_every", "trace", "scores", "bad_lines", "forget")
FOR_TENSORS += ("revisit", "method")
TRACE = ("n_samples_seen", "log_score", "rmse", "n_iter")


def run_stream(args: argparse.Namespace) -> None:
    if args.model != "cp":
        _stream_rows(args)
        return
    _check(args)
    how = {"method": args.method, "verbose": shows_progress(args)}
    model, progress = fit.estimator_of(args, **how), _new_progress(args)
    witness = Witness(args.data, args.format)
    if args.resume and os.path.exists(args.output):
        model, progress = _resumed(args, model)
        witness.check(progress["read"], *progress["position"])
        if not args.quiet:
            show(f"resumed     after {model.n_samples_seen_} entries, {model.n_batches_} batches")
    with _side_files(args, progress) as files:
        work = StreamRun(args, progress, witness, files)
        model.stream(work.batches(), callback=work.learned, scores=work.scored if "scores" in files else None)
        if not hasattr(model, "n_batches_"):
            fail_value(f"{', '.join(args.data)}: no entries; at least one is needed.")
        work.checkpoint(model)
    if not args.quiet:
        show(f"learned     {model.n_samples_seen_} entries in {model.n_batches_} batches")
        show(f"method      {fit.method_line(model)}\nrows        {' x '.join(map(str, model.shape_))}")
        if progress["bad"]:
            show(f"set aside   {progress['bad']} malformed lines in {args.bad_lines}")
        show(f"model       {args.output}")


def _check(args: argparse.Namespace) -> None:
    """Refuse, before any work, what cannot succeed."""
    written = [args.output, *_side_paths(args).values()]
    _check_written("a stream", args, *written)
    if len({os.path.realpath(path) for path in written}) < len(written):
        fail_value("MODEL, --bad-lines, --trace and --scores must be different files.")
    if os.path.exists(args.output) and not args.resume:
        fail_value(f"'{args.output}' exists; give --resume to go on with it, or remove it first.")
    check_counts_of(args, "batch_size", "checkpoint_every", "first_batch")
    fit.check_likelihood(args)
    if (args.exposure or args.n_trials) and (args.modes is None or args.value is None or args.bad_lines is not None):
        fail_value("--exposure and --n-trials need --modes and --value, and take no --bad-lines; change these.")
    if check_int("--revisit", args.revisit, 0) and args.method != "cep":
        fail_value(f"--revisit is for --method cep; got {args.method}; leave it out.")
    if args.revisit and (args.features or args.series):
        fail_value("--revisit goes with a prior that stays, not with --features or --series; leave it out.")
    if args.forget and args.series:
        fail_value("--forget does not go with --series, which forgets as the drift says; leave it out.")
    if args.zeros is not None:
        what = "--zeros is for fit and convert, as a stream does not know which cells stay absent"
        mend = "write the zeros to a file by tensorcep convert --zeros N, and stream its lines in random order"
        fail_value(f"{what}; {mend}.")
    if args.graph:
        fail_value("--graph is for fit, compare and select-rank; a stream learns no graph; leave it out.")


def _check_written(what: str, args: argparse.Namespace, *paths: str) -> None:
    """Refuse to write to stdout, or over an input."""
    for path in paths:
        if path == STDOUT:
            fail_value(f"{what} writes files only; give a name other than -.")
        check_output(path, *args.data)


class Progress(NamedTuple):
    """What a checkpoint holds beside the model: the input, how far it was read, the sizes of the side files."""

    data: list[str]
    batch_size: int
    first_batch: int | None
    position: tuple[int, int]
    read: list[tuple[int, str]]
    aside: int
    trace: int
    scores: int
    bad: int
    knowledge: list[str]
    reading: dict[str, Any] | None


EARLIER = {"read": [], "scores": 0, "knowledge": [], "reading": None}  # what earlier checkpoints do not hold


def _new_progress(args: argparse.Namespace) -> dict[str, Any]:
    reading = {name: given for name, given in reading_of(args)._asdict().items() if name not in FREE_OF_READING}
    # What is said of rows, with checksums of the files it names: a run that is resumed must say the same.
    knowledge = [f"--series {text}" for text in args.series]
    for text in args.features:
        content = Path(check_file(text.partition("=")[2])).read_bytes()
        knowledge.append(f"--features {text} (sha256 {hashlib.sha256(content).hexdigest()[:16]})")
    asked = args.data, args.batch_size, args.first_batch
    return Progress(*asked, (0, 0), [], 0, 0, 0, 0, knowledge, reading)._asdict()


def _checked(stored: Any) -> dict[str, Any]:
    """What a checkpoint says of its progress, unless that makes no sense."""
    full = stored | {name: value for name, value in EARLIER.items() if name not in stored}
    progress: Progress = read_as(Progress, full, "progress")
    if min(*progress.position, progress.aside, progress.trace, progress.scores, progress.bad) < 0:
        fail_value("its progress is negative")
    return full


def _resumed(args: argparse.Namespace, fresh: Any) -> tuple[Any, dict[str, Any]]:
    """The model and the progress of a checkpoint, if the options are those that it was made with."""

    def check(name: str, before: Any, now: Any, instead: str = "") -> None:
        if before != now:
            made = f"'{args.output}' was made with {name}={before!r}"
            fail_value(f"{made}; got {now!r}; give the same to resume{instead}.")

    stored = open_model(args.output).header.get("progress")
    if stored is None:
        mend = "learn further files by tensorcep update, or give another file."
        fail_value(f"'{args.output}' is no checkpoint of a stream; {mend}")
    model = tc.load(args.output)
    with complete(args.output):
        progress = _checked(stored)
    new = _new_progress(args)
    asked = {name: new[name] for name in ("data", "batch_size", "first_batch", "knowledge")} | new["reading"]
    made = progress | (progress["reading"] or new["reading"])
    for name, now in asked.items():
        check(name, made.get(name), now, ", or learn a further file by tensorcep update" if name == "data" else "")
    if type(model) is not type(fresh):
        fail_value(f"'{args.output}' holds a {type(model).__name__}; give the same --likelihood to resume.")
    # What is known of rows is no parameter that a file holds, and was compared above.
    free = (*FREE, "prior") if new["knowledge"] else FREE
    params = model.get_params(deep=False)
    for name, now in fresh.get_params(deep=False).items():
        if name not in free:
            check(name, params[name], now)
    column, before = next(iter(given_extents(args).values()), None), getattr(model, "extent_column_", None)
    if before != column:
        made = f"'{args.output}' was made with the column {before!r} of exposures or trials"
        fail_value(f"{made}; got {column!r}; give the same to resume.")
    for name in free:
        setattr(model, name, getattr(fresh, name))
    return model, progress


@dataclasses.dataclass
class StreamRun:
    """One run: options, progress (what a checkpoint holds beside the model), and the files read and written."""

    args: argparse.Namespace
    progress: dict[str, Any]
    witness: Witness
    files: dict[str, BinaryIO]
    base: tuple[int, ...] = ()

    def batches(self) -> Iterator[Batch]:
        """Batches of the input from where the progress is."""
        args, words = self.args, columns_of_words(self.args.data[0], self.args) is not None
        how: dict[str, Any] = {"words": words, "start": self.progress["position"], "bad_line": self.set_aside}
        how["extent"] = next(iter(given_extents(args).values()), None)
        first = words and self.progress["position"] == (0, 0)
        for batch in _batches(args, **how):
            if first and len(set(batch.values)) < 2:
                what = f"the first batch must have both words of the value; got only {batch.values[0]!r}"
                fail_value(f"{what}; give a larger --first-batch.")
            first = False
            self.progress["position"] = batch.position
            self.base = tuple(args.index_base if keys is None else 0 for keys in batch.keys)
            yield batch

    def set_aside(self, path: str, number: int, problem: str, text: str) -> None:
        """Write a malformed line to its file, or refuse it."""
        if "aside" not in self.files:
            fail_value(f"line {number} of '{path}' {problem}; or give --bad-lines FILE to set such lines aside.")
        with naming(self.args.bad_lines):
            self.files["aside"].write(text.encode("utf-8", "surrogateescape"))
        self.progress["bad"] += 1
        say(f"line {number} of '{path}' {problem}; set aside in '{self.args.bad_lines}'")

    def scored(self, frame: pd.DataFrame) -> None:
        """Write the scores of the entries of a batch that was learned, by what the files call its rows."""
        frame = frame.copy()
        for k, base in enumerate(self.base):
            if base:
                frame.isetitem(k, frame.iloc[:, k].to_numpy() + base)
        with naming(self.args.scores):
            write_scores(self.files["scores"], escaped(frame) if self.args.safe_csv else frame)

    def learned(self, model: Any, scores: dict[str, float]) -> None:
        """Note the scores of a batch, and write a checkpoint if it is time."""
        if "trace" in self.files:
            with naming(self.args.trace):
                self.files["trace"].write((",".join(f"{scores[name]:.17g}" for name in TRACE) + "\n").encode())
        if model.n_batches_ % self.args.checkpoint_every == 0:
            self.checkpoint(model)

    def checkpoint(self, model: Any) -> None:
        """Write model and progress in one step, after the files that they refer to are on the disk."""
        for name, handle in self.files.items():
            with naming(handle.name):
                handle.flush()
                os.fsync(handle.fileno())
            self.progress[name] = handle.tell()
        self.progress["read"] = self.witness.until(*self.progress["position"])
        write_model(self.args.output, model, {"progress": self.progress})


def _batches(args: argparse.Namespace, **how: Any) -> Iterator[Batch]:
    how = {**reading_of(args)._asdict(), "first_batch": args.first_batch, **how}
    del how["shape"], how["extras"]
    return read_batches(args.data, args.batch_size, **how)


def _side_paths(args: argparse.Namespace) -> dict[str, str]:
    """The files that a stream writes along the way, by their names in its progress."""
    paths = {"aside": args.bad_lines, "trace": args.trace, "scores": args.scores}
    return {name: path for name, path in paths.items() if path is not None}


@contextlib.contextmanager
def _side_files(args: argparse.Namespace, progress: dict[str, Any]) -> Iterator[dict[str, BinaryIO]]:
    """These files, open and cut back to their size at the checkpoint; an empty trace gets the names of its columns."""

    def close(path: str, handle: BinaryIO) -> None:
        with naming(path):
            handle.close()

    with contextlib.ExitStack() as stack:
        files: dict[str, BinaryIO] = {}
        for name, path in _side_paths(args).items():
            size, length = progress[name], os.path.getsize(path) if os.path.exists(path) else 0
            if length < size:
                what = f"'{path}' must hold the {size} bytes of the checkpoint; it has {length}"
                fail_value(f"{what}; start anew without MODEL.")
            handle = files[name] = stack.enter_context(open(path, "r+b" if size else "wb"))
            stack.callback(close, path, handle)
            if size:
                handle.truncate(size)
                handle.seek(size)
        if "trace" in files and files["trace"].tell() == 0:
            files["trace"].write((",".join(TRACE) + "\n").encode())
        yield files


def _stream_rows(args: argparse.Namespace) -> None:
    """Learn the rows of the files batch after batch, and write the model."""
    fit.check_no_tensor(args, *FOR_TENSORS)
    words = fit.OF_MATRICES
    known = [word for word in words if word != "poisson"] if args.model == "pca" else ["gaussian"]
    if args.likelihood not in known:
        fail_value(f"--model {args.model} knows the likelihoods {', '.join(known)}; got {args.likelihood}.")
    _check_written("a stream", args, args.output)
    check_counts_of(args, "batch_size", "first_batch")
    model = fit.matrix_model(args, **({"likelihood": words[args.likelihood]} if args.model == "pca" else {}))
    n_batches = 0
    for matrix in _matrices(_batches(args), args.index_base):
        model.partial_fit(matrix)
        n_batches += 1
    model.save(args.output)
    if not args.quiet:
        show(f"learned     {model.n_samples_seen_} rows in {n_batches} batches")
        show(f"components  {model.n_components_}\nmodel       {args.output}")


def _matrices(batches: Iterator[Batch], index_base: int) -> Iterator[tc.SparseTensor]:
    """Matrices of whole rows, with the columns of the first one and no row twice."""
    columns: tc.Labels | None = None
    seen: set[Any] = set()
    for rows, cols, values, names in _whole_rows(batches, index_base):
        labels, at = tc.Labels.from_column(rows, name=names[0])
        again = [label for label in labels.index if label in seen]
        if again:
            fail_value(f"the entries of a row must follow each other; row {again[0]!r} came again; sort the file.")
        seen.update(labels.index)
        columns = tc.Labels.from_column(cols, name=names[1])[0] if columns is None else columns
        place = columns.rows(cols, unknown="ignore")
        if (place < 0).any():
            new = cols[int(np.argmax(place < 0))]
            fail_value(f"the first batch must have all columns; {new!r} came later; give a larger --first-batch.")
        cells, shape = np.stack([at, place], axis=1), (len(labels), len(columns))
        yield tc.SparseTensor.from_coo(cells, values, shape, labels=[labels, columns])


def _whole_rows(batches: Iterator[Batch], index_base: int) -> Iterator[tuple[list[Any], list[Any], np.ndarray, Any]]:
    """Rows, columns, values and names of whole rows: what is left of the last row of a batch goes to the next."""
    names: Any = (None, None)
    rest: tuple[list[Any], list[Any], np.ndarray] = ([], [], np.zeros(0))
    for batch in batches:
        names = batch.names
        if len(names) != 2:
            fail_value(f"the rows of a matrix have rows, columns and values; got {len(names)} modes.")
        numbers = (batch.coords + index_base).T.tolist()
        rows, cols = (known if keys is None else keys for keys, known in zip(batch.keys, numbers, strict=True))
        rows, cols, values = rest[0] + rows, rest[1] + cols, np.concatenate([rest[2], batch.values])
        whole = len(rows) - next((n for n, row in enumerate(reversed(rows)) if row != rows[-1]), len(rows))
        rest = rows[whole:], cols[whole:], values[whole:]
        if whole:
            yield rows[:whole], cols[:whole], values[:whole], names
    if rest[0]:
        yield *rest, names


def run_update(args: argparse.Namespace) -> None:
    check_count(args)
    _check_written("an update", args, args.model, *([] if args.scores is None else [args.scores]))
    check_output(args.scores, args.model)
    before = _stamp(args.model)
    model = load_model(args.model, matrices=False)
    header = open_model(args.model).header
    with complete(args.model):  # name, number of lines and checksum of what was learned, as far as the file says
        learned = [[str(name), int(count), str(sha)] for name, count, sha in header.get("learned", ())]
        if header.get("progress") is not None:
            progress = _checked(header["progress"])
            learned = [[name, *read] for name, read in zip(progress["data"], progress["read"], strict=False)]
    new = digests_of_files(args.data, args.format)
    files = [*learned, *new]
    for place, (name, count, sha) in () if args.again else enumerate(new, len(learned)):
        earlier = next((before for before, *same in files[:place] if same == [count, sha]), None)
        if earlier is not None:
            called = "" if earlier == name else f" as '{earlier}'"
            what = f"'{name}' was learned already{called} ({count} lines with the same checksum)"
            fail_value(f"{what}; leave it out, or give --again if the same observations were made twice.")
    tables, seen = [], int(model.n_samples_seen_)
    for path in args.data:
        cells = read_scored(path, args, model)
        tables.append(score_table(model, cells))
        model.partial_fit(cells.X, cells.y, **cells.extent)
    scores = pd.concat(tables, ignore_index=True)
    if args.scores is not None:
        write_csv(args.scores, args, [scores])
    if _stamp(args.model) != before:
        fail_value(f"'{args.model}' was replaced by another process meanwhile; nothing was learned; run this again.")
    write_model(args.model, model, {"learned": files})
    if not args.quiet:
        odd = scores["surprise"]
        show(f"scored      {len(scores)} entries, mean log score {-odd.mean():.4g}, lowest {-odd.max():.4g}")
        show(f"learned     {int(model.n_samples_seen_) - seen} entries, {int(model.n_samples_seen_)} in all")
        show(f"rows        {' x '.join(map(str, model.shape_))}\nmodel       {args.model}")


def _stamp(path: str) -> tuple[int, int, int] | None:
    """What tells a file from one that took its place; that there is none is said when it is loaded."""
    status = os.stat(path) if os.path.exists(path) else None
    return None if status is None else (status.st_ino, status.st_size, status.st_mtime_ns)
