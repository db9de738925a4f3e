"""Labels of the rows of a mode: their order, spelling, and how files hold them."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tensorcep.core.checks import check_choice, check_columns, check_mode_count, fail_value

# The order of labels: of text that of the numbers in it, so that "6h" comes before "12h".

# A number at the very start may have a sign. A fraction has one point; 1.10.2 is three numbers.
NUMBER = re.compile(r"(^-?\d+(?:\.\d+)?(?![\d.])|(?<![\d.])\d+\.\d+(?![\d.])|\d+)")

# Integers are counted in a table where it has at most so many places for each of them.
DENSE = 4


def natural_key(text: str) -> tuple[tuple[tuple[int, float, str], ...], str]:
    """Return what sorts text by the numbers in it; equal numbers in other spellings by their letters."""
    parts = NUMBER.split(text)
    key = tuple((0, float(part), "") if i % 2 else (1, 0.0, part) for i, part in enumerate(parts) if part)
    return key, text


def natural_order(found: Any) -> Any:
    """Return what sorts distinct labels, sorted as pandas sorts, by the numbers in them where they are text."""
    labels = pd.Index(found, tupleize_cols=False)
    if not len(labels) or pd.api.types.infer_dtype(labels, skipna=False) != "string":
        return slice(None)
    if labels.str.len().nunique() == 1 or not labels.str.contains(r"\d", regex=True).any():
        return slice(None)  # numbers of as many digits are in order already
    texts = labels.tolist()
    common = re.split(r"\d", texts[0], maxsplit=1)[0]
    ends = [text[len(common) :] for text in texts]
    digits = "".join(ends)
    begin_alike = common != "-" and texts[-1].startswith(common)  # those between the first and the last do, too
    if begin_alike and "" not in ends and digits.isascii() and digits.isdecimal():
        return np.argsort(np.array([float(end) for end in ends]), kind="stable")
    return sorted(range(len(texts)), key=lambda i: natural_key(texts[i]))


# Text and numbers: which text is a number and nothing else, and the two spellings of one label.


def number_of(text: str) -> int | float | bool | None:
    """Return the number or truth value that Python writes as this text; None for any other text."""
    # So 007, +7, 1e3 and 7.10 are names: as numbers they could no longer be told from 7, 1000 and 7.1.
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            number = kind(text)
            if str(number) == text and text not in ("inf", "-inf", "nan"):
                return number
    return None


def numbers_of(column: pd.Series) -> Any:
    """Return a column of text as numbers (or truth values) where all of it are, and no two equal; else as it is."""
    if len(column) and number_of(column.iloc[0]) is None:
        return column
    codes, distinct = pd.factorize(column)
    numbers: list[Any] = [number_of(text) for text in distinct]
    kinds = {type(number) for number in numbers}
    if kinds == {int, float}:
        if any(float(number) != number for number in numbers):  # too large to be told from the next one as a fraction
            return column
        numbers, kinds = [float(number) for number in numbers], {float}
    fits = kinds != {int} or all(-(2**63) <= number < 2**63 for number in numbers)
    if len(kinds) != 1 or type(None) in kinds or not fits or len(set(numbers)) < len(numbers):
        return column
    return np.array(numbers)[codes]


def spelled_as(known: Any, labels: Any) -> list[Any]:
    """Return labels as `known` spells them: 7 and "7" are one label, that of a file read in two ways."""
    return [label if label in known else _respelled(known, label) for label in labels]


def _respelled(known: Any, label: Any) -> Any:
    """The other spelling of a label that is not known, where that one is."""
    others: tuple[Any, ...] = ()
    if isinstance(label, str):
        others = (number_of(label),)
    elif isinstance(label, int) or (isinstance(label, float) and math.isfinite(label)):  # no text is read as inf or nan
        others = (str(label), str(int(label))) if label == label // 1 and not isinstance(label, bool) else (str(label),)
    return next((other for other in others if other is not None and other in known), label)


# Labels: the names of the rows of one mode.


class Labels:
    """A one-to-one map between labels and the rows 0, 1, ... of one mode.

    Labels never move: `extended` returns a new object in which every known label keeps its row and new ones follow,
    so posteriors indexed by row stay valid while data stream in. The number 7 and the text "7" are one label, whichever
    of the two was there first, since files hold text. A label that is missing or occurs twice raises a ValueError.

    Parameters
    ----------
    values : array-like of shape (n,)
        Distinct labels of any hashable kind: numbers, strings, dates with or without a time zone, periods, intervals,
        categories (their values are taken), tuples. None and NaN are not labels.
    name : hashable, optional
        What the mode is called, used as column name by `to_pandas` and in csv and parquet files. Default: the name
        that `values` carries, if any.

    Examples
    --------
    >>> from tensorcep import Labels
    >>> cells = Labels(["Treg", "NK"], name="cell")
    >>> cells.rows(["NK", "Treg"]).tolist(), cells[0]
    ([1, 0], 'Treg')
    """

    __slots__ = ("_index",)

    def __init__(self, values: Any, name: Any = None) -> None:
        index = _as_index(values)
        missing = np.asarray(index.isna())
        if missing.any():
            at, which = int(missing.argmax()), index[missing].tolist()[0]
            fail_value(f"labels must not be missing; got {which!r} at row {at}.")
        if not index.is_unique:
            fail_value(f"labels must be distinct; got {index[index.duplicated()].tolist()[0]!r} more than once.")
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
        same = self is other or self._index.equals(other._index)
        return same or (len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True)))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = [repr(item) for item in self._index[:4].tolist()] + (["..."] if len(self) > 4 else [])
        name = "" if self.name is None else f", name={self.name!r}"
        return f"Labels([{', '.join(shown)}], n={len(self)}{name})"

    def rows(self, labels: Any, unknown: str = "error") -> NDArray[np.int64]:
        """Return the row of each label, (n,) int64.

        A label that is not known is refused by a ValueError; if `unknown` is "ignore" and not "error", it has row -1.

        Examples
        --------
        >>> Labels(["Treg", "NK"]).rows(["NK", "NK", "Treg"]).tolist()
        [1, 1, 0]
        """
        check_choice("unknown", unknown, ("error", "ignore"))
        wanted, where = _as_index(labels), "" if self.name is None else f" of mode {self.name!r}"
        if isinstance(self._index, pd.DatetimeIndex) and pd.api.types.infer_dtype(wanted, skipna=True) == "date":
            with contextlib.suppress(pd.errors.OutOfBoundsDatetime):
                wanted = pd.DatetimeIndex(pd.to_datetime(wanted))
        try:
            rows = np.asarray(self._index.get_indexer(wanted), dtype=np.int64)
        except TypeError as error:  # a list or a dict
            raise ValueError(f"labels{where} must be such as numbers, text or dates ({error}).") from error
        lost = (rows < 0) & ~np.asarray(wanted.isna())  # a missing label has no other spelling
        if lost.any():
            check_same_zones(self._index, wanted[lost], where)
        if lost.any() and (wanted.dtype != self._index.dtype or wanted.dtype == object):
            codes, distinct = pd.factorize(wanted[lost])
            spelled = pd.Index(spelled_as(self._index, distinct.tolist()), dtype=object, tupleize_cols=False)
            rows[lost] = np.asarray(self._index.get_indexer(spelled))[codes]
        if unknown == "error" and (rows < 0).any():
            missing = wanted[rows < 0].tolist()
            known = f"the {len(self)} labels{where} ({len(missing)} unknown in all)"
            fail_value(f"label {missing[0]!r} is not among {known}; add new labels with extended().")
        return rows

    def extended(self, labels: Any) -> Labels:
        """Return labels with the unknown ones among `labels` appended in order of first appearance.

        Examples
        --------
        >>> Labels(["Treg", "NK"]).extended(["NK", "B"])
        Labels(['Treg', 'NK', 'B'], n=3)
        """
        wanted = _as_index(labels)
        fresh = wanted[self.rows(wanted, unknown="ignore") < 0].unique()
        known = self._index.append(fresh) if len(self) else fresh
        return Labels(known, name=self.name) if len(fresh) else self

    @classmethod
    def from_column(cls, column: Any, name: Any = None) -> tuple[Labels, NDArray[np.int64]]:
        """Return the labels of a column of entries, and the row of each entry.

        Labels are sorted, text by the numbers in it, so the rows do not depend on the order of the entries; labels that
        cannot be compared with each other stay in order of first appearance. A categorical column keeps all its
        categories, in their order. ValueError if a label is missing, or is none, such as a list.

        Examples
        --------
        >>> labels, rows = Labels.from_column(["Treg", "NK", "Treg"], name="cell")
        >>> len(labels), rows.tolist()
        (2, [1, 0, 1])
        """
        series = pd.Series(column)
        name = series.name if name is None else name
        where, missing = "the column" if name is None else f"column {name!r}", series.isna().to_numpy()
        if missing.any():
            n = int(missing.sum())
            fail_value(f"{where} has {n} missing labels, the first at entry {missing.argmax()}; drop these entries.")
        if isinstance(series.dtype, pd.CategoricalDtype):
            return cls(series.cat.categories, name=name), series.cat.codes.to_numpy().astype(np.int64)
        index = _as_index(series)
        if index.dtype == np.int64 and len(index):
            values = index.to_numpy()
            low, high = int(values.min()), int(values.max())
            if high - low < DENSE * len(values):
                places, seen = values - low, np.zeros(high - low + 1, dtype=bool)
                seen[places] = True
                return cls(np.flatnonzero(seen) + low, name=name), (np.cumsum(seen) - 1)[places]
        is_object = index.dtype == object
        found: Any
        try:  # of tuples pandas would try to make one level of each part
            codes, found = pd.factorize(index.to_numpy() if is_object else index)
        except TypeError as error:  # a list or a dict
            raise ValueError(f"{where} must hold labels, such as numbers, text or dates ({error}).") from error
        with contextlib.suppress(TypeError):  # only the distinct ones are sorted
            order: Any = sorted(range(len(found)), key=found.__getitem__) if is_object else found.argsort()
            order = np.array(order, dtype=np.int64)[natural_order(found[order])]
            place = np.empty_like(order)
            place[order] = np.arange(len(found))
            codes, found = place[codes], found[order]
        return cls(found, name=name), np.asarray(codes, dtype=np.int64)


def check_labels(labels: Any, order: int) -> tuple[Labels | None, ...]:
    """Return the labels of each of `order` modes, None for a mode without."""
    if labels is None:
        return (None,) * order
    check_mode_count(labels, order, "labels must have")
    return tuple(item if item is None or isinstance(item, Labels) else Labels(item) for item in labels)


def mode_names(labels: Sequence[Labels | None]) -> list[Any]:
    """What the modes are called, None where there is no name."""
    return [None if found is None else found.name for found in labels]


def column_names(names: Sequence[Any], value: Any) -> list[Any]:
    """Return one distinct column name per mode: the labels' names where there are, else mode_0, mode_1, ..."""
    found = [f"mode_{k}" if name is None else name for k, name in enumerate(names)]
    if len({*found, value}) != len(found) + 1:
        fail_value(f"column names must be distinct; got {[*found, value]}; pass modes= and value=.")
    return found


def check_names(columns: Sequence[Any], where: str) -> None:
    """Refuse columns that are named by a missing value, such as NaN, which equals no name that one could ask for."""
    at = next((at for at, name in enumerate(columns) if not isinstance(name, tuple) and pd.isna(name)), None)
    if at is not None:
        fail_value(f"the columns of {where} must have names; got none for the column at position {at}; name it.")


def check_mode_columns(columns: Sequence[Any], modes: Sequence[Any], value: Any, where: str) -> list[Any]:
    """Return the modes as a list, if they and the value are different columns and each is there once."""
    check_mode_count(modes, what=f"{where} must have")
    chosen = list(modes)
    check_names(columns, where)
    wanted = chosen if value is None else [*chosen, value]
    check_columns(columns, wanted, where)
    twice = [name for name in wanted if list(columns).count(name) > 1]
    if twice:
        fail_value(f"{where} has more than one column {twice[0]!r}; rename one.")
    if len(set(wanted)) != len(wanted):
        fail_value(f"modes and value must be different columns; got {chosen} and {value!r}.")
    return chosen


# Seconds since 1970 of about 1990 to 2100, as they are or in milli-, micro- or nanoseconds.
EPOCHS, UNITS = (6.3e8, 4.1e9), (1.0, 1e3, 1e6, 1e9)


def are_epochs(numbers: Any) -> bool:
    """Whether all of some numbers (N,) are whole and of the size of times since 1970."""
    found = np.asarray(numbers)
    if found.dtype.kind not in "iuf" or not found.size or not np.isfinite(found).all():
        return False
    low, high = float(found.min()), float(found.max())
    sized = any(EPOCHS[0] * unit <= low and high <= EPOCHS[1] * unit for unit in UNITS)
    return sized and bool((found == np.floor(found)).all())


def pack_labels(labels: Labels, k: int, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Add the labels of mode k to the arrays; text as UTF-8 bytes and where each ends, so that nothing is pickled."""
    index: Any = labels.index
    if not (labels.name is None or isinstance(labels.name, (str, int))):
        fail_value(f"the name of mode {k} must be text or an integer to be stored in a file; got {labels.name!r}.")
    described: dict[str, Any] = {"name": labels.name}
    of_intervals = isinstance(index.dtype, pd.IntervalDtype)
    parts = {"_left": index.left, "_right": index.right} if of_intervals else {"": index}
    found = {f"labels_{k}{side}": _plain_array(part, described) for side, part in parts.items()}
    if all(array is not None for array in found.values()):
        arrays |= found
        return {**described, **({"kind": "interval", "closed": index.closed} if of_intervals else {"kind": "array"})}
    if of_intervals:
        fail_value(f"intervals of {index.left.dtype} in mode {k} cannot be stored in a file; convert them to text.")
    items, kind = index.tolist(), "text"
    if isinstance(index.dtype, pd.PeriodDtype):
        items, described["dtype"] = [str(item) for item in items], str(index.dtype)
    elif not all(isinstance(item, str) for item in items):
        items, kind = [json.dumps(_described(item, k)) for item in items], "json"
    encoded = [item.encode("utf-8", "surrogatepass") for item in items]
    arrays[f"labels_{k}"] = np.frombuffer(b"".join(encoded), dtype=np.uint8)
    arrays[f"labels_{k}_ends"] = np.cumsum([len(item) for item in encoded], dtype=np.int64)
    return {**described, "kind": kind}


def why_not_stored(labels: Labels | None, k: int) -> str | None:
    """Return the sentence with which a file would refuse the labels of mode k; None if it would take them."""
    if labels is not None:
        try:
            pack_labels(labels, k, {})
        except ValueError as error:
            return str(error)
    return None


def _unpacked(described: dict[str, Any], k: int, arrays: dict[str, NDArray[Any]]) -> Labels:
    """What `pack_labels` packed."""
    kind, index = described["kind"], pd.Index([])
    if kind == "interval":
        left, right = (_with_zone(arrays[f"labels_{k}_{side}"], described) for side in ("left", "right"))
        index = pd.IntervalIndex.from_arrays(left, right, closed=described["closed"])
    elif kind == "array":
        index = _with_zone(arrays[f"labels_{k}"], described)
    else:
        ends, data = arrays[f"labels_{k}_ends"].tolist(), arrays[f"labels_{k}"].tobytes()
        if [0, *ends] != sorted([0, *ends]) or (ends or [0])[-1] != len(data):
            fail_value(f"the labels of mode {k} are damaged: they do not end where their text ends.")
        items = [data[a:b].decode("utf-8", "surrogatepass") for a, b in zip([0, *ends[:-1]], ends, strict=True)]
        if kind == "json":
            items, described = [_rebuilt(json.loads(item)) for item in items], {**described, "dtype": object}
        index = pd.Index(items, dtype=described.get("dtype"), tupleize_cols=False)
    return Labels(index, name=described["name"])


def _plain_array(index: pd.Index, described: dict[str, Any]) -> Any:
    """Return an index as an array that is no pickle, its time zone described; None if there is none."""
    if isinstance(index.dtype, pd.DatetimeTZDtype):
        described["time_zone"] = str(index.dtype.tz)
        return pd.DatetimeIndex(index).tz_convert(None).to_numpy()
    return index.to_numpy() if isinstance(index.dtype, np.dtype) and not index.dtype.hasobject else None


def _with_zone(stored: NDArray[Any], described: dict[str, Any]) -> pd.Index:
    zone = described.get("time_zone")
    return pd.Index(stored) if zone is None else pd.DatetimeIndex(stored).tz_localize("UTC").tz_convert(zone)


def _described(item: Any, k: int) -> Any:
    """A label as JSON has it; what JSON has not, as an object that names its kind."""
    if isinstance(item, np.generic):
        item = item.item()
    if isinstance(item, (str, int, float)):
        return item
    if isinstance(item, tuple):
        return {"tuple": [_described(part, k) for part in item]}
    if isinstance(item, dt.date) and not isinstance(item, dt.datetime):
        return {"date": item.isoformat()}
    fail_value(f"label {item!r} of mode {k} cannot be stored in a file; convert the labels to text or numbers.")


def _rebuilt(item: Any) -> Any:
    if not isinstance(item, dict):
        return item
    if "date" in item:
        return dt.date.fromisoformat(item["date"])
    return tuple(_rebuilt(part) for part in item["tuple"])


def _as_index(values: Any) -> pd.Index:
    """Return a flat Index of plain numpy, string or datetime dtype, so that equal labels of any origin are equal."""
    if isinstance(values, Labels):
        return values.index
    if isinstance(values, Iterable) and not hasattr(values, "dtype") and not isinstance(values, (str, bytes)):
        values = list(values)
    elif np.ndim(values) != 1:
        fail_value(f"labels must be a one-dimensional list or array; got {values!r}.")
    if isinstance(values, np.ma.MaskedArray):
        values = pd.Series(values)  # an index would show the text behind a mask
    index = pd.Index(values, tupleize_cols=False)
    if isinstance(index.dtype, pd.CategoricalDtype):
        index = index.astype(index.dtype.categories.dtype)
    kind = getattr(index.dtype, "kind", "O")
    if pd.api.types.is_extension_array_dtype(index.dtype) and kind in "iufb" and not index.hasnans:
        plain = {"i": np.int64, "u": np.uint64, "f": np.float64, "b": np.bool_}[kind]
        index = pd.Index(index.to_numpy(dtype=plain), name=index.name)
    if index.dtype == object and pd.api.types.infer_dtype(index, skipna=True) in ("datetime", "date"):
        times = index.dropna()
        zoned = np.array([getattr(time, "tzinfo", None) is not None for time in times])
        if zoned.any() and not zoned.all():  # they have no order
            where = "labels" if index.name is None else f"labels of {index.name!r}"
            got = f"both, {times[zoned][0]!r} and {times[~zoned][0]!r}; convert these by tz_localize"
            fail_value(f"{where} must be times with a time zone or times without one; got {got}.")
    return index


def check_same_zones(known: Any, given: Any, where: str = "") -> None:
    """Refuse times without a time zone among labels that have one, or the other way round: none can equal another."""
    found = [pd.Index(labels, tupleize_cols=False).dropna() for labels in (known, given)]
    if not all(pd.api.types.infer_dtype(index) in ("datetime64", "datetime", "date") for index in found):
        return
    first, other = (index[0] for index in found)
    mine, theirs = (getattr(time, "tzinfo", None) is not None for time in (first, other))
    if mine != theirs:
        known = f"{'with' if mine else 'without'} a time zone, such as {first!r}"
        got = f"some {'with' if theirs else 'without'} one, such as {other!r}; convert these by tz_localize"
        fail_value(f"the labels{where} are times {known}; got {got}.")


class StoredLabels(NamedTuple):
    """What a file holds of the labels of every mode: what `pack_labels` describes, None without labels; its arrays."""

    described: tuple[Any, ...]
    arrays: dict[str, np.ndarray]

    def labels(self) -> tuple[Labels | None, ...]:
        """The labels of every mode."""
        each = enumerate(self.described)
        return tuple(None if item is None else _unpacked(item, k, self.arrays) for k, item in each)


def stored_labels(labels: Sequence[Labels | None]) -> StoredLabels:
    arrays: dict[str, np.ndarray] = {}
    described = [None if found is None else pack_labels(found, k, arrays) for k, found in enumerate(labels)]
    return StoredLabels(tuple(described), arrays)
