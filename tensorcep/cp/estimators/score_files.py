"""Where the scores of a stream's entries go: to a csv file, or to what the user calls."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import pandas as pd


@contextlib.contextmanager
def watching(scores: Any) -> Iterator[Callable[[pd.DataFrame], Any] | None]:
    """What is called with the scores of every batch: None, what was given, or what writes them to a csv file.

    Raises
    ------
    TypeError
        If it is none of these.
    """
    if scores is None or callable(scores):
        yield scores
        return
    if not isinstance(scores, (str, os.PathLike)):
        raise TypeError(f"scores must be a path or callable; got {type(scores).__name__}.")
    with open(scores, "wb") as handle:
        yield lambda frame: write_scores(handle, frame)


def write_scores(handle: BinaryIO, frame: pd.DataFrame) -> None:
    """Write the scores of a batch to an open file, with the names of the columns if they are the first there."""
    names = [f"mode_{name}" if isinstance(name, int) else name for name in frame.columns]
    table = frame.set_axis(names, axis=1)
    text = table.to_csv(index=False, header=handle.tell() == 0, float_format="%.8g", lineterminator="\n")
    handle.write(text.encode())
