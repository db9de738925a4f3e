"""Labels: the names of the rows of one mode."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tensorcep.core.checks import check_choice, check_mode_count, fail_value


class Labels:
    """A one-to-one map between labels and the rows 0, 1, ... of one mode.

    Labels never move: `extended` returns a new object in which every known label keeps its row and new ones follow,
    so posteriors indexed by row stay valid while data stream in.

    Parameters
    ----------
    values : array-like of shape (n,)
        Distinct labels of any hashable kind: numbers, strings, dates with or without a time zone, categories
        (their values are taken), tuples. None and NaN are not labels.
    name : hashable, optional
        What the mode is called, used as column name by `to_pandas` and in csv and parquet files. Default: the name
        that `values` carries, if any.

    Raises
    ------
    ValueError
        If a label is missing or occurs twice.
    """

    __slots__ = ("_index",)

    def __init__(self, values: Any, name: Any = None) -> None:
        index = _as_index(values)
        missing = np.asarray(index.isna())
        if missing.any():
            fail_value(
                f"labels must not be missing; got {index[missing].tolist()[0]!r} at row {int(missing.argmax())}."
            )
        if not index.is_unique:
            twice = index[index.duplicated()].tolist()[0]
            fail_value(f"labels must be distinct; got {twice!r} more than once.")
        self._index = index.rename(index.name if name is None else name)

    @property
    def index(self) -> pd.Index:
        """The labels in row order, as an immutable pandas Index."""
        return self._index

    @property
    def name(self) -> Any:
        """What the mode is called, or None."""
        return self._index.name

    def __len__(self) -> int:
        return len(self._index)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._index)

    def __contains__(self, label: object) -> bool:
        return label in self._index

    def __getitem__(self, rows: Any) -> Any:
        """Return the label of one row, or the array of labels of several."""
        found = self._index[rows]
        return found.to_numpy() if isinstance(found, pd.Index) else found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Labels):
            return NotImplemented
        if self is other or self._index.equals(other._index):
            return True
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = [repr(item) for item in self._index[:4].tolist()] + (["..."] if len(self) > 4 else [])
        name = "" if self.name is None else f", name={self.name!r}"
        return f"Labels([{', '.join(shown)}], n={len(self)}{name})"

    def __reduce__(self) -> tuple[type[Labels], tuple[pd.Index]]:
        return Labels, (self._index,)

    def rows(self, labels: Any, unknown: str = "error") -> NDArray[np.int64]:
        """Return the row of each label, (n,) int64.

        Parameters
        ----------
        labels : array-like of shape (n,)
        unknown : {"error", "ignore"}, default="error"
            "ignore" gives row -1 to labels that are not known.

        Raises
        ------
        ValueError
            If a label is not known and unknown="error".
        """
        check_choice("unknown", unknown, ("error", "ignore"))
        wanted = _as_index(labels)
        rows = np.asarray(self._index.get_indexer(wanted), dtype=np.int64)
        if unknown == "error" and (rows < 0).any():
            missing = wanted[rows < 0].tolist()
            where = "" if self.name is None else f" of mode {self.name!r}"
            fail_value(
                f"label {missing[0]!r} is not among the {len(self)} labels{where} ({len(missing)} unknown in all); "
                "add new labels with extended()."
            )
        return rows

    def extended(self, labels: Any) -> Labels:
        """Return labels with the unknown ones among `labels` appended in order of first appearance."""
        wanted = _as_index(labels)
        fresh = wanted[np.asarray(self._index.get_indexer(wanted)) < 0].unique()
        if len(fresh) == 0:
            return self
        if len(self) == 0:
            return Labels(fresh, name=self.name)
        return Labels(self._index.append(fresh), name=self.name)

    @classmethod
    def from_column(cls, column: Any, name: Any = None) -> tuple[Labels, NDArray[np.int64]]:
        """Return the labels of a column of entries, and the row of each entry.

        Labels are sorted, so the rows do not depend on the order of the entries; labels that cannot be compared with
        each other stay in order of first appearance. A categorical column keeps all its categories, in their order.

        Raises
        ------
        ValueError
            If a label is missing.
        """
        series = pd.Series(column)
        name = series.name if name is None else name
        missing = series.isna().to_numpy()
        if missing.any():
            where = "the column" if name is None else f"column {name!r}"
            fail_value(
                f"{where} has {int(missing.sum())} missing labels, the first at entry {int(missing.argmax())}; "
                "drop these entries or fill them in."
            )
        if isinstance(series.dtype, pd.CategoricalDtype):
            return cls(series.cat.categories, name=name), series.cat.codes.to_numpy().astype(np.int64)
        index = _as_index(series)
        found: Any
        if index.dtype == object:  # pandas would try to make one level of each part of a tuple
            codes, found = pd.factorize(index.to_numpy())
            with contextlib.suppress(TypeError):
                order = sorted(range(len(found)), key=found.__getitem__)
                codes, found = np.argsort(order)[codes], found[order]
        else:
            codes, found = pd.factorize(index, sort=True)
        return cls(found, name=name), np.asarray(codes, dtype=np.int64)


def check_labels(labels: Any, order: int) -> tuple[Labels | None, ...]:
    """Return the labels of each of `order` modes, None for a mode without."""
    if labels is None:
        return (None,) * order
    check_mode_count(labels, order, "labels must have")
    return tuple(item if item is None or isinstance(item, Labels) else Labels(item) for item in labels)


def pack_labels(labels: Labels, k: int, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Add the labels of mode k to the arrays; text as UTF-8 bytes and where each ends, so that nothing is pickled."""
    index = labels.index
    if not (labels.name is None or isinstance(labels.name, (str, int))):
        fail_value(f"the name of mode {k} must be text or an integer to be stored in an npz file; got {labels.name!r}.")
    described: dict[str, Any] = {"name": labels.name}
    if isinstance(index.dtype, pd.DatetimeTZDtype):
        arrays[f"labels_{k}"] = pd.DatetimeIndex(index).tz_convert("UTC").tz_localize(None).to_numpy()
        return {**described, "kind": "array", "time_zone": str(index.dtype.tz)}
    if isinstance(index.dtype, np.dtype) and not index.dtype.hasobject:
        arrays[f"labels_{k}"] = index.to_numpy()
        return {**described, "kind": "array"}
    items = index.tolist()
    if not all(isinstance(item, str) for item in items):
        odd = next(item for item in items if not isinstance(item, str))
        fail_value(f"label {odd!r} of mode {k} cannot be stored in an npz file; convert the labels to text or numbers.")
    encoded = [item.encode("utf-8", "surrogatepass") for item in items]
    arrays[f"labels_{k}"] = np.frombuffer(b"".join(encoded), dtype=np.uint8)
    arrays[f"labels_{k}_ends"] = np.cumsum([len(item) for item in encoded], dtype=np.int64)
    return {**described, "kind": "text"}


def unpack_labels(described: dict[str, Any], k: int, arrays: dict[str, NDArray[Any]]) -> Labels:
    """Return the labels of mode k from what `pack_labels` described and stored."""
    stored = arrays[f"labels_{k}"]
    if described["kind"] == "text":
        ends = arrays[f"labels_{k}_ends"].tolist()
        data = stored.tobytes()
        if [0, *ends] != sorted([0, *ends]) or (ends or [0])[-1] != len(data):
            fail_value(f"the labels of mode {k} are damaged: they do not end where their text ends.")
        items = [data[a:b].decode("utf-8", "surrogatepass") for a, b in zip([0, *ends[:-1]], ends, strict=True)]
        return Labels(items, name=described["name"])
    index = pd.Index(stored)
    if "time_zone" in described:
        index = pd.DatetimeIndex(index).tz_localize("UTC").tz_convert(described["time_zone"])
    return Labels(index, name=described["name"])


def _as_index(values: Any) -> pd.Index:
    """Return a flat Index of plain numpy, string or datetime dtype, so that equal labels of any origin are equal."""
    if isinstance(values, Labels):
        return values.index
    if isinstance(values, Iterable) and not hasattr(values, "dtype") and not isinstance(values, (str, bytes)):
        values = list(values)
    elif np.ndim(values) != 1:
        fail_value(f"labels must be a one-dimensional list or array; got {values!r}.")
    index = pd.Index(values, tupleize_cols=False)
    if isinstance(index.dtype, pd.CategoricalDtype):
        index = index.astype(index.dtype.categories.dtype)
    kind = getattr(index.dtype, "kind", "O")
    if pd.api.types.is_extension_array_dtype(index.dtype) and kind in "iufb" and not index.hasnans:
        plain = {"i": np.int64, "u": np.uint64, "f": np.float64, "b": np.bool_}[kind]
        index = pd.Index(index.to_numpy(dtype=plain), name=index.name)
    return index
