"""Batch: consecutive entries of a stream, in the one form that all streams are brought into."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tensorcep.entries.sparse_tensor import SparseTensor


class Position(NamedTuple):
    """How far files have been read: `file` of them whole, and `line` lines (of parquet, rows) of the next one."""

    file: int = 0
    line: int = 0


class Batch(NamedTuple):
    """N entries that are learned together.

    Attributes
    ----------
    coords : (N, K) int64
        Rows counted from 0; zeros in modes with keys.
    keys : tuple of list or None
        Per mode the label of each entry, or None where the mode has indices.
    names : tuple
        Names of the modes, None where there is none.
    values : (N,) float64
    time : float or None
        When it was observed, if that is known.
    tensor : SparseTensor or None
        What the batch came as, if it was one: its shape and order of labels are those that `fit` would take.
    position : Position or None
        Of a batch from files: where the next one begins.
    classes : list or None
        The two labels that the values 0 and 1 stand for, if they do.
    weights : (N,) float64 or None
        How much each entry counts; None where all count once.
    extents : (N,) float64 or None
        Exposures or numbers of trials of the entries; None where they have none.
    column : str or None
        The column that these came from, if there was one.
    """

    coords: NDArray[np.int64]
    keys: tuple[list[Any] | None, ...]
    names: tuple[Any, ...]
    values: NDArray[np.float64]
    time: float | None = None
    tensor: SparseTensor | None = None
    position: Position | None = None
    classes: list[Any] | None = None
    weights: NDArray[np.float64] | None = None
    extents: NDArray[np.float64] | None = None
    column: str | None = None
