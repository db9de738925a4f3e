"""Choosing among entries and joining them: what `SparseTensor` does when it is split or combined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tensorcep.core.checks import check_coords, check_same_shape, fail_value
from tensorcep.entries.coo import Coords, Values, merge_duplicates, merge_marks

if TYPE_CHECKING:
    from tensorcep.entries.tensor import SparseTensor

Rows = NDArray[np.int64]


def split_rows(n: int, test_size: float, random_state: Any) -> tuple[Rows, Rows]:
    """Return ascending positions of the entries to train on and of those to test on."""
    from sklearn.model_selection import train_test_split

    train, test = train_test_split(np.arange(n), test_size=test_size, random_state=splitter_seed(random_state))
    return np.sort(train), np.sort(test)


def splitter_seed(random_state: Any) -> Any:
    """scikit-learn's splitters take no Generator: draw an integer seed from it."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**32))
    return random_state


def joined_entries(
    tensors: Sequence[SparseTensor], duplicates: str
) -> tuple[Coords, Values, float | None, NDArray[np.bool_] | None]:
    """Return the entries of tensors of the same shape and labels, the rate of their zeros, and which were sampled."""
    first = tensors[0]
    for other in tensors[1:]:
        check_same_shape(first.shape, other.shape)
        if first.labels != other.labels:
            fail_value("tensors must have the same labels to be combined; use from_pandas(..., labels=) for that.")
    coords = np.concatenate([item.coords for item in tensors])
    values = np.concatenate([item.values for item in tensors])
    rates = {item.zero_rate for item in tensors if (item.values == 0.0).any()} or {item.zero_rate for item in tensors}
    marks = [np.zeros(item.nnz, dtype=bool) if item.sampled is None else item.sampled for item in tensors]
    sampled = None
    if any(item.sampled is not None for item in tensors):
        sampled = merge_marks(np.concatenate(marks), coords, first.shape)
    merged = merge_duplicates(coords, values, first.shape, duplicates)
    return *merged, rates.pop() if len(rates) == 1 else None, sampled


def cells_to_exclude(item: Any, shape: tuple[int, ...]) -> Coords:
    """Return the cells of a tensor of this shape, or of given coordinates."""
    if hasattr(item, "coords"):
        check_same_shape(shape, item.shape)
        item = item.coords
    return check_coords(item, shape, name="exclude")
