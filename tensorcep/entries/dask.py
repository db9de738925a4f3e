"""Tables of Dask: their lines as a frame of codes, made on the workers, whose labels do not depend on files or workers.

Every partition codes its lines by labels of its own. These are merged two by two, and sorted; then the codes of every
partition are told the places of its labels among all. Nothing but labels and codes comes to the client.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tensorcep.core.checks import check_columns, fail_value
from tensorcep.core.cluster import Cluster
from tensorcep.entries.labels import Labels

WHAT = "read"


class Coded(NamedTuple):
    """The lines of a partition: the labels of each mode that it has, codes (n, K), and values, if a column has them."""

    labels: tuple[pd.Index, ...]
    codes: np.ndarray
    values: Any


def frame_of_dask(frame: Any, modes: Sequence[Any] | None, value: Any, named: bool, cluster: Cluster) -> pd.DataFrame:
    """The lines of a table of Dask, modes as categories: all sorted labels of the table, text by the numbers in it.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
    modes : sequence of column names or None
        None takes all columns but the value.
    value : column name
        Of no meaning unless `named`.
    cluster : Cluster
        Who reads.

    Raises
    ------
    ValueError
        If a column is missing, or there is no line.
    """
    if isinstance(modes, str):
        fail_value(f"modes must be a list of column names; got {modes!r}.")
    columns = list(frame.columns)
    modes = [name for name in columns if not named or name != value] if modes is None else list(modes)
    check_columns(columns, [*modes, value] if named else modes, "X")
    delayed = importlib.import_module("dask").delayed
    own = frame[[*modes, value] if named else modes]
    coded = [delayed(_coded, pure=True)(part, modes, value, named) for part in own.to_delayed()]
    level = [delayed(_labels_of, pure=True)(part) for part in coded]
    while len(level) > 1:
        pairs = [level[i : i + 2] for i in range(0, len(level), 2)]
        level = [delayed(_merged, pure=True)(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    told = [delayed(_recoded, pure=True)(part, level[0]) for part in coded]
    labels, *parts = cluster.results([level[0], *told], WHAT)
    cluster.client.run(_give_back)
    if not any(len(codes) for codes, _ in parts):
        fail_value("X must have at least one line; got none.")
    found: dict[Any, Any] = {}
    for k, name in enumerate(modes):
        codes = np.concatenate([codes[:, k] for codes, _ in parts])
        found[name] = pd.Categorical.from_codes(codes, labels[k], ordered=False)
    if named:
        found[value] = pd.concat([values for _, values in parts], ignore_index=True)
    return pd.DataFrame(found, copy=False)


def _give_back() -> None:
    """Give the system the memory that was needed to read files."""
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()


def _coded(part: pd.DataFrame, modes: list[Any], value: Any, named: bool) -> Coded:
    """The lines of a partition; categories count as their values."""
    found = [_labels_of_part(part[name], name) for name in modes]
    codes = np.stack([codes for _, codes in found], axis=1).astype(np.int32)
    values = part[value].reset_index(drop=True) if named else None
    return Coded(tuple(_bare(labels) for labels, _ in found), codes, values)


def _bare(labels: Labels) -> pd.Index:
    """The labels without the table by which pandas finds them, which is several times as large and stays with them."""
    made: Any = labels.index.__reduce__()
    index: pd.Index = made[0](*made[1])
    return index


def _labels_of_part(column: pd.Series, name: Any) -> tuple[Labels, np.ndarray]:
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(column.cat.categories.dtype)
    if isinstance(column.dtype, pd.StringDtype):  # text is objects for labels, as in a frame that is read here
        column = column.astype(object)
    if not len(column):
        return Labels([], name=name), np.zeros(0, dtype=np.int64)
    return Labels.from_column(column, name)


def _labels_of(part: Coded) -> tuple[pd.Index, ...]:
    return part.labels


def _merged(one: tuple[pd.Index, ...], other: tuple[pd.Index, ...]) -> tuple[pd.Index, ...]:
    """All labels of both, sorted."""
    return tuple(_union(a, b) for a, b in zip(one, other, strict=True))


def _union(a: pd.Index, b: pd.Index) -> pd.Index:
    if not len(a) or not len(b):
        return a if len(a) else b
    both = pd.concat([pd.Series(each) for each in (a, b)], ignore_index=True)
    return _bare(Labels.from_column(both, name=a.name)[0])


def _recoded(part: Coded, labels: tuple[pd.Index, ...]) -> tuple[np.ndarray, Any]:
    """The codes of a partition among all labels."""
    codes = np.empty_like(part.codes)
    for k, own in enumerate(part.labels):
        codes[:, k] = Labels(labels[k]).rows(own)[part.codes[:, k]] if len(own) else 0
    return codes, part.values
