"""Batches as they arrive, in any of the forms that a user has them, brought into one."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tensorcep.core import checks
from tensorcep.cp.inputs.coordinates import check_labelled, check_same_kind, matching_modes, training_entries
from tensorcep.cp.inputs.weights import weighted_batch
from tensorcep.entries.io import Batch, read_batches
from tensorcep.entries.labels import Labels, check_mode_columns, check_same_zones, spelled_as
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.entries.tables import check_columns_not_in_index

# Codes the labels of a batch: gives numbers and the labels that they stand for.
Coder = Callable[[Any], tuple[Any, list[Any]]]
FEW = 100  # labels that say of which kind all are


def training_rows(batch: Batch, shape: Any) -> tuple[np.ndarray, tuple[int, ...], tuple[Labels | None, ...]]:
    """Coordinates, shape and labels of a first batch."""
    if batch.tensor is not None:
        _, _, sizes, labels = training_entries(batch.tensor, None, shape)
        return batch.coords, sizes, labels
    coords = batch.coords.copy()
    known: list[Labels | None] = [None] * len(batch.keys)
    for k, (keys, name) in enumerate(zip(batch.keys, batch.names, strict=True)):
        if keys is not None:
            known[k], coords[:, k] = Labels.from_column(pd.Series(keys, name=name))
    coords, _, sizes, _ = training_entries(coords, batch.values, shape)
    if shape is not None and any(item is not None for item in known):
        checks.fail_value("shape is only for streams of indices, and these have labels; leave it out.")
    return coords, sizes, tuple(known)


class Arrivals(NamedTuple):
    """How to cut DataFrames and files into batches, and how `tensorcep.entries.io.read_batches` reads files."""

    modes: Any
    value: Any
    time: Any
    batch_size: int
    first_batch: int | None
    reading: dict[str, Any]
    code: Coder | None = None
    weight: Any = None
    extent: str | None = None


def with_extents(batch: Batch, extents: Any, column: str | None = None) -> Batch:
    """A batch with the exposures or numbers of trials of its entries, which came from a column."""
    if extents is None:
        return batch
    n = len(batch.values)
    values = np.full(n, extents, dtype=np.float64) if np.ndim(extents) == 0 else extents
    values = checks.check_values(values, n, name="the exposures or numbers of trials")
    return batch._replace(extents=values, column=column)


def as_batch(X: Any, y: Any, time: Any = None, code: Coder | None = None) -> Batch:
    """The batch that `partial_fit` got as X and y, checked; ``code(y)`` gives values of labels, and the labels."""
    time = None if time is None else checks.check_range("time", time)
    if code is not None and (y is not None or isinstance(X, SparseTensor)):
        values, classes = code(X.values if y is None else y)
        if y is None:
            return as_batch(X, None, time)._replace(values=values, classes=classes)
        return as_batch(X, values, time)._replace(classes=classes)
    if isinstance(X, SparseTensor):
        coords, values, _, labels = training_entries(X, y, None)
        pairs = zip(labels, coords.T, strict=True)
        keys = tuple(None if found is None else found.index.take(at).tolist() for found, at in pairs)
        names = tuple(None if found is None else found.name for found in labels)
        return Batch(coords, keys, names, values, time, X)
    if isinstance(X, pd.DataFrame):
        check_columns_not_in_index(X, 2)
        check_mode_columns(list(X.columns), list(X.columns), None, "X")
        values = checks.check_values(y if y is not None else [], len(X), name="y")
        checks.check_not_empty(len(X), "X")
        missing = [name for name in X.columns if X[name].isna().any()]
        if missing:
            checks.fail_value(f"X must not have missing labels; column {missing[0]!r} has some; drop these entries.")
        labels_of = tuple(X.iloc[:, k].tolist() for k in range(X.shape[1]))
        zeros = checks.check_coords(np.zeros(X.shape, dtype=np.int64), name="X")
        return Batch(zeros, labels_of, tuple(X.columns), values, time)
    coords, values, found, _ = training_entries(X, y, None)
    none = (None,) * len(found)
    return Batch(coords, none, none, values, time)


def arrivals(source: Any, how: Arrivals) -> Iterator[Batch]:
    """Batches from an iterable of batches, a DataFrame, a path, or a list of paths."""
    if isinstance(source, (str, os.PathLike, pd.DataFrame)):
        source = [source]
    if isinstance(source, (list, tuple)) and all(isinstance(item, (str, os.PathLike)) for item in source):
        if how.time is not None:
            checks.fail_value("time names a column of a DataFrame; a stream from files is discounted per batch.")
        if how.weight is not None:
            checks.fail_value(
                "sample_weight names a column of a DataFrame; read files in pieces by pandas.read_csv(chunksize=)."
            )
        columns = {"modes": how.modes, "value": how.value, "extent": how.extent}
        source = read_batches(source, how.batch_size, first_batch=how.first_batch, **columns, **how.reading)
    if not isinstance(source, Iterable):
        raise TypeError(f"source must be an iterable of batches, a DataFrame, or paths; got {type(source).__name__}.")
    for number, item in enumerate(source):
        if isinstance(item, pd.DataFrame):
            yield from _frame_parts(item, how, number == 0)
        elif isinstance(item, Batch):
            values, classes = (item.values, None) if how.code is None else how.code(item.values)
            yield item._replace(values=values, classes=classes)
        elif isinstance(item, SparseTensor) or (isinstance(item, (tuple, list)) and len(item) in (2, 3)):
            if how.extent is not None:
                checks.fail_value(
                    f"the column {how.extent!r} of exposures or trials is one of DataFrames or files, and this batch "
                    "is a pair or a SparseTensor; use partial_fit."
                )
            X, y, time = (item, None, None) if isinstance(item, SparseTensor) else (*item, None)[:3]
            yield as_batch(X, y, time, how.code)
        else:
            raise TypeError(
                "a batch must be a pair (X, y), a triple (X, y, time), a SparseTensor or a DataFrame; got "
                f"{type(item).__name__}."
            )


def _frame_parts(frame: pd.DataFrame, how: Arrivals, first: bool) -> Iterator[Batch]:
    extra = [name for name in (how.time, how.weight, how.extent) if name is not None]
    others = [name for name in frame.columns if name not in extra]
    value = others[-1] if how.value is None else how.value
    modes = [name for name in others if name != value] if how.modes is None else list(how.modes)
    checks.check_columns(frame.columns, [*modes, value, *extra])
    size = how.first_batch if first and how.first_batch is not None else how.batch_size
    for start in [0, *range(size, len(frame), how.batch_size)]:
        part = frame.iloc[start : size if start == 0 else start + how.batch_size]
        batch = as_batch(part[modes], part[value], None if how.time is None else part[how.time].iloc[-1], how.code)
        batch = with_extents(batch, None if how.extent is None else part[how.extent], how.extent)
        yield weighted_batch(batch, None if how.weight is None else part[how.weight])


def rows_of_keys(
    batch: Batch, keys: tuple[dict[Any, int] | None, ...], names: tuple[Any, ...], shape: Any
) -> tuple[np.ndarray, tuple[dict[Any, int] | None, ...]]:
    """Rows (N, K) of a batch's entries, in the order of the modes `names`; per mode, those of labels not in `keys`."""
    chosen = matching_modes(names, batch.names)
    coords, given = batch.coords[:, chosen], [batch.keys[k] for k in chosen]
    check_labelled(keys, given)
    for k, (mine, theirs) in enumerate(zip(keys, given, strict=True)):
        if mine is None and theirs is not None:
            pair = np.stack([theirs, theirs], axis=1)
            coords[:, k] = checks.check_coords(pair, name=f"mode {k} of X, which the model knows by indices,")[:, 0]
    checks.check_coords(coords, None if shape is None else checks.check_shape(shape, len(keys)), name="X")
    added: list[dict[Any, int] | None] = []
    for k, (mine, theirs) in enumerate(zip(keys, given, strict=True)):
        if mine is None or theirs is None:
            added.append(None)
            continue
        try:
            theirs = spelled_as(mine, theirs)
        except TypeError as error:  # a list or a dict
            column = f"mode {k} of X" if names[k] is None else f"column {names[k]!r}"
            raise ValueError(f"{column} must hold labels, such as numbers, text or dates ({error}).") from error
        unknown = dict.fromkeys(key for key in theirs if key not in mine)
        if unknown:
            known = list(itertools.islice(mine, FEW))
            check_same_zones(known, list(unknown), f" of mode {k if names[k] is None else repr(names[k])}")
        if len(unknown) == len(set(theirs)):
            check_same_kind(k, list(itertools.islice(mine, FEW)), list(unknown))
        new = {key: len(mine) + i for i, key in enumerate(unknown)}
        coords[:, k] = [mine[key] if key in mine else new[key] for key in theirs]
        added.append(new)
    return coords, tuple(added)
