"""`tensorcep stream --model pca`: the rows of a matrix as they come."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorcep.cli._command import (
    STDOUT,
    check_output,
    reading_of,
    show,
    shows_progress,
)
from tensorcep.cli._matrices import FOR_TENSORS, KINDS
from tensorcep.core.checks import check_int, fail_value

if TYPE_CHECKING:
    from tensorcep.entries.io import Batch
    from tensorcep.entries.labels import Labels
    from tensorcep.entries.sparse_tensor import SparseTensor

# Options of streams of tensors beside those of fits of tensors, with their defaults.
FOR_STREAMS = {
    "lower_limit": "auto",
    "resume": False,
    "checkpoint_every": 50,
    "trace": None,
    "scores": None,
    "bad_lines": None,
    "forget": 0.0,
    "revisit": 0,
    "method": "cep",
}


def stream_rows(args: argparse.Namespace) -> None:
    """Learn the rows of the files batch after batch, and write the model.

    Raises
    ------
    ValueError
        If an option is for tensors, a row comes in two pieces, or a later batch has a column that the first has not.
    """
    _check(args)
    from tensorcep.entries.io import read_batches
    from tensorcep.estimators import FACTOR_MODELS

    how: dict[str, Any] = {"random_state": args.seed, "n_jobs": args.threads, "verbose": shows_progress(args)}
    how |= {} if args.max_iter == 200 else {"max_iter": args.max_iter}
    how |= {} if args.tol == 3e-3 else {"tol": args.tol}
    if args.model == "pca":
        model = FACTOR_MODELS["BayesianPCA"](args.rank, KINDS[args.likelihood], **how)
    else:
        model = FACTOR_MODELS["BayesianFactorAnalysis"](args.rank, **how)
    how_read = reading_of(args)._asdict()
    del how_read["shape"], how_read["extras"]
    found = read_batches(args.data, args.batch_size, first_batch=args.first_batch, **how_read)
    n_batches = 0
    for matrix in whole_rows(found, args.index_base):
        model.partial_fit(matrix)
        n_batches += 1
    model.save(args.output)
    if not args.quiet:
        show(f"learned     {model.n_samples_seen_} rows in {n_batches} batches")
        show(f"components  {model.n_components_}")
        show(f"model       {args.output}")


def _check(args: argparse.Namespace) -> None:
    for name, default in (FOR_TENSORS | FOR_STREAMS).items():
        if getattr(args, name, default) != default:
            fail_value(f"--{name.replace('_', '-')} is for --model cp; got {args.model}; leave it out.")
    words = [word for word in KINDS if word != "poisson"] if args.model == "pca" else ["gaussian"]
    if args.likelihood not in words:
        allowed = ", ".join(words)
        fail_value(f"--model {args.model} knows the likelihoods {allowed}; got {args.likelihood}.")
    if args.output == STDOUT:
        fail_value("a stream writes files only; give a name other than -.")
    check_output(args.output, *args.data)
    for option in ("batch_size", "first_batch"):
        if getattr(args, option) is not None:
            check_int(f"--{option.replace('_', '-')}", getattr(args, option))


@dataclass
class RowBatch:
    """Whole rows of a matrix, with the columns of the first batch and no row twice."""

    columns: Labels | None = None
    seen: set[Any] = field(default_factory=set)

    def matrix(self, rows: list[Any], cols: list[Any], values: np.ndarray, names: tuple[Any, ...]) -> SparseTensor:
        """The matrix of some entries.

        Raises
        ------
        ValueError
            If a row was there before, or a column is new.
        """
        from tensorcep.entries.labels import Labels
        from tensorcep.entries.sparse_tensor import SparseTensor

        labels, at = Labels.from_column(rows, name=names[0])
        again = [label for label in labels.index if label in self.seen]
        if again:
            fail_value(f"the entries of a row must follow each other; row {again[0]!r} came again; sort the file.")
        self.seen.update(labels.index)
        if self.columns is None:
            self.columns = Labels.from_column(cols, name=names[1])[0]
        place = self.columns.rows(cols, unknown="ignore")
        if (place < 0).any():
            new = cols[int(np.argmax(place < 0))]
            fail_value(f"the first batch must have all columns; {new!r} came later; give a larger --first-batch.")
        shape = len(labels), len(self.columns)
        return SparseTensor.from_coo(np.stack([at, place], axis=1), values, shape, labels=[labels, self.columns])


def whole_rows(batches: Iterator[Batch], index_base: int) -> Iterator[SparseTensor]:
    """Matrices of whole rows: what is left of the last row of a batch goes to the next."""
    made = RowBatch()
    names: tuple[Any, ...] = (None, None)
    rest: tuple[list[Any], list[Any], np.ndarray] = ([], [], np.zeros(0))
    for batch in batches:
        if len(batch.names) != 2:
            fail_value(f"the rows of a matrix have rows, columns and values; got {len(batch.names)} modes.")
        names, (rows, cols) = batch.names, (_keys(batch, k, index_base) for k in (0, 1))
        rows, cols, values = rest[0] + rows, rest[1] + cols, np.concatenate([rest[2], batch.values])
        whole = len(rows) - next((n for n, row in enumerate(reversed(rows)) if row != rows[-1]), len(rows))
        rest = rows[whole:], cols[whole:], values[whole:]
        if whole:
            yield made.matrix(rows[:whole], cols[:whole], values[:whole], names)
    if rest[0]:
        yield made.matrix(*rest, names)


def _keys(batch: Batch, k: int, index_base: int) -> list[Any]:
    """What the file calls the rows of mode k."""
    keys = batch.keys[k]
    return (batch.coords[:, k] + index_base).tolist() if keys is None else keys
