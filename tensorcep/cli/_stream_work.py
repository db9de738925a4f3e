"""One run of `tensorcep stream`: what it reads, and the files that it writes along the way."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from tensorcep.cli._command import reading_of, say
from tensorcep.cli._extents import given_extents
from tensorcep.cli._words import columns_of_words
from tensorcep.core.checks import fail_value
from tensorcep.core.persist.archive import naming

if TYPE_CHECKING:
    import pandas as pd

    from tensorcep.cli._input import Witness
    from tensorcep.entries.io import Batch

TRACE = ("n_samples_seen", "log_score", "rmse", "n_iter")


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
        from tensorcep.entries.io import read_batches

        args = self.args
        how: dict[str, Any] = {
            "first_batch": args.first_batch,
            **reading_of(args)._asdict(),
            "start": self.progress["position"],
            "extent": next(iter(given_extents(args).values()), None),
        }
        del how["shape"], how["extras"]
        how["words"] = columns_of_words(args.data[0], args) is not None
        first = how["words"] and self.progress["position"] == (0, 0)
        for batch in read_batches(args.data, args.batch_size, bad_line=self.set_aside, **how):
            if first and len(set(batch.values)) < 2:
                fail_value(
                    f"the first batch must have both words of the value; got only {batch.values[0]!r}; give a larger "
                    "--first-batch."
                )
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
        from tensorcep.cp.stream.outliers import write_scores
        from tensorcep.entries.io import escaped

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
        from tensorcep.cp.estimators.store import write_model

        for name, handle in self.files.items():
            with naming(handle.name):
                handle.flush()
                os.fsync(handle.fileno())
            self.progress[name] = handle.tell()
        self.progress["read"] = self.witness.until(*self.progress["position"])
        write_model(self.args.output, model, {"progress": self.progress})


def side_paths(args: argparse.Namespace) -> dict[str, str]:
    """The files that a stream writes along the way, by their names in its progress."""
    paths = {"aside": args.bad_lines, "trace": args.trace, "scores": args.scores}
    return {name: path for name, path in paths.items() if path is not None}


@contextlib.contextmanager
def side_files(args: argparse.Namespace, progress: dict[str, Any]) -> Iterator[dict[str, BinaryIO]]:
    """These files, open; a trace that is empty gets the names of its columns."""
    with contextlib.ExitStack() as stack:
        files = {
            name: stack.enter_context(_side_file(path, progress.get(name, 0)))
            for name, path in side_paths(args).items()
        }
        if "trace" in files and files["trace"].tell() == 0:
            files["trace"].write((",".join(TRACE) + "\n").encode())
        yield files


@contextlib.contextmanager
def _side_file(path: str, size: int) -> Iterator[BinaryIO]:
    """A file that a stream writes along the way, cut back to its size at the checkpoint."""
    found = os.path.getsize(path) if os.path.exists(path) else 0
    if found < size:
        fail_value(f"'{path}' must hold the {size} bytes of the checkpoint; it has {found}; start anew without MODEL.")
    with open(path, "r+b" if size else "wb") as handle:
        if size:
            handle.truncate(size)
            handle.seek(size)
        try:
            yield handle
        finally:
            with naming(path):
                handle.close()
