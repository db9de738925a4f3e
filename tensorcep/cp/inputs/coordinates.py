"""From X and y as users pass them to coordinates, values, shape, labels and packed rows; modes and rows by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tensorcep.core import checks
from tensorcep.core.checks import fail_value
from tensorcep.core.packing import offsets
from tensorcep.cp.model.entries import OfEach
from tensorcep.cp.posterior import Result
from tensorcep.entries.labels import Labels, column_names
from tensorcep.entries.sparse_tensor import SparseTensor, frame_entries
from tensorcep.entries.tables import as_frame, check_columns_not_in_index

# Kinds of labels, by what pandas calls them; numbers of any kind can be equal, text and numbers cannot.
KINDS: dict[str, str | None] = {
    "string": "text",
    **dict.fromkeys(("datetime64", "datetime", "date"), "time"),
    **dict.fromkeys(("integer", "floating", "mixed-integer-float", "boolean", "decimal"), "number"),
    **dict.fromkeys(("empty", "mixed", "mixed-integer", "unknown-array")),
}

# Coordinates, values, shape and labels.
Entries = tuple[np.ndarray, np.ndarray, tuple[int, ...], tuple[Any, ...]]


class Read(NamedTuple):
    """Entries as a plan takes them, what they weigh, their exposures, facts of their coding, their source and place."""

    entries: Entries
    power: np.ndarray | None
    extent: np.ndarray | None
    coding: dict[str, Any]
    source: Any
    place: Any = None


def refuse_others(call: str, others: dict[str, Any]) -> None:
    """Refuse what other estimators take beside X, y and weights."""
    if others:
        raise TypeError(f"{call} takes no {next(iter(others))}; take it out.")


def training_entries(X: Any, y: Any, shape: Any) -> Entries:
    """Checked coordinates, values, shape and labels of the entries to fit, of which there must be some."""
    if isinstance(X, SparseTensor):
        if y is not None:
            fail_value("y must be left out when X is a SparseTensor, which holds its own values.")
        coords, values, found, labels = X.coords, X.values, X.shape, X.labels
    elif isinstance(X, pd.DataFrame):
        coords, _, names = frame_entries(X, list(X.columns), None, None)
        values, found, labels = checks.check_values(y, len(X), name="y"), tuple(map(len, names)), names
    else:
        if y is None:
            fail_value("y must hold one value per row of X; got None (or pass a SparseTensor as X).")
        coords = checks.check_coords(X, name="X")
        values = checks.check_values(y, len(coords), name="y")
        checks.check_not_empty(len(coords), "X")
        found = tuple(int(n) + 1 for n in coords.max(axis=0))
        checks.check_sizes(found, len(coords), shape is not None)
        labels = (None,) * coords.shape[1]
    checks.check_not_empty(len(coords), "X")
    wanted = found if shape is None else checks.check_shape(shape, coords.shape[1])
    checks.check_sizes(wanted, len(coords), given=True)
    if shape is None:
        return coords, values, found, labels
    if any(n > m for n, m in zip(found, wanted, strict=True)):
        checks.check_coords(coords, wanted, name="X")
    if any(item is not None and n != m for item, n, m in zip(labels, wanted, found, strict=True)):
        fail_value(f"shape must equal that of the labelled tensor, {found}; got {wanted}.")
    return coords, values, wanted, labels


def coords_to_predict(X: Any, labels: tuple[Any, ...]) -> np.ndarray:
    """Coordinates (n, K) of the entries to predict; labels that the model does not know become -1."""
    # a table holds labels, if the model was fitted with labels: one column per mode, found by name where all modes have
    # names, otherwise in order; so are those of a SparseTensor; what does not fit the model's is refused
    order, X = len(labels), as_frame(X)
    if isinstance(X, pd.DataFrame) and any(found is not None for found in labels):
        check_columns_not_in_index(X, order)
        columns = [X.iloc[:, k] for k in matching_modes(names_of_modes(labels), tuple(X.columns), extra=True)]
        rows = [
            checks.check_coords(np.stack([column, column], axis=1), name="X")[:, 0]
            if known is None
            else _rows_of_labels(k, known, column)
            for k, (known, column) in enumerate(zip(labels, columns, strict=True))
        ]
        return np.stack(rows, axis=1)
    if not isinstance(X, SparseTensor):
        coords = checks.check_coords(X, order=order, name="X")
        check_labelled(labels, (None,) * order if len(coords) else labels)
        return coords
    chosen = matching_modes(names_of_modes(labels), names_of_modes(X.labels))
    coords = checks.check_coords(X.coords, order=order, name="X")[:, chosen]
    theirs = [X.labels[k] for k in chosen]
    check_labelled(labels, theirs)
    for k, (mine, own) in enumerate(zip(labels, theirs, strict=True)):
        if mine is None and own is not None:
            fail_value(f"X has labels in mode {k}, but the model was fitted to indices; pass X.coords if they agree.")
        if mine is not None and own is not None and mine is not own:
            coords[:, k] = _rows_of_labels(k, mine, own.index)[coords[:, k]]
    return coords


def _rows_of_labels(k: int, known: Labels, labels: Any) -> np.ndarray:
    """Rows of labels of mode k, -1 where there is none; labels of another kind, none of which is known, are refused."""
    rows = known.rows(labels, unknown="ignore")
    if (rows < 0).all():
        check_same_kind(k, known.index, labels)
    return rows


def names_of_modes(labels: Sequence[Labels | None]) -> tuple[Any, ...]:
    """What the modes are called, None where a mode has no name or no labels."""
    return tuple(None if found is None else found.name for found in labels)


def matching_modes(known: tuple[Any, ...], given: tuple[Any, ...], extra: bool = False, X: str = "X") -> list[int]:
    """Where each mode of the model is among those of `X`: by name, or in order where there are no names to go by."""
    # modes may be without a name (None), and columns only have numbers; with `extra`, X may have further columns
    by_name = None not in known and all(given.count(name) == 1 == known.count(name) for name in known)
    if len(given) != len(known) and not (extra and by_name):
        said = ""
        if any(isinstance(name, str) for name in given) and None not in known:
            missing = ", ".join(repr(name) for name in known if name not in given)
            said = f"; there is none of {missing}, only {', '.join(map(repr, given))}" if missing else ""
        fail_value(f"{X} must have {len(known)} columns, one per mode; got {len(given)}{said}.")
    if by_name:
        return [given.index(name) for name in known]
    unnamed = None in (*known, *given) or all(isinstance(name, int) for name in given)
    if not unnamed and len(set(known)) == len(known):
        columns, modes = (", ".join(map(repr, names)) for names in (given, known))
        fail_value(f"the columns {columns} of {X} are not the modes {modes} of the model; rename or choose them.")
    return list(range(len(known)))


def check_labelled(known: Sequence[Any], given: Sequence[Any]) -> None:
    """Refuse indices for a mode that the model knows by labels; each is None where a mode has indices."""
    for k, (mine, theirs) in enumerate(zip(known, given, strict=True)):
        if mine is not None and theirs is None:
            fail_value(f"mode {k} of the model has labels; got indices; pass a DataFrame of labels, or a SparseTensor.")


def check_same_kind(k: int, known: Any, given: Any) -> None:
    """Refuse labels, all of one kind and none of them known, if all known ones are of another, as "7" and 7 are."""
    kinds = [_kind_of(known), _kind_of(given)]
    if None not in kinds and kinds[0] != kinds[1]:
        first, other = (pd.Index(labels, tupleize_cols=False).dropna()[:1].tolist()[0] for labels in (known, given))
        fail_value(
            f"mode {k} of the model has labels of the kind {kinds[0]}, such as {first!r}; got {kinds[1]}, such as "
            f"{other!r}; convert one of them, for instance with astype."
        )


def _kind_of(labels: Any) -> str | None:
    """The one kind of all labels; None where they are mixed, or there are none."""
    if isinstance(labels, (pd.Series, pd.Index)) and isinstance(labels.dtype, pd.CategoricalDtype):
        labels = labels.dtype.categories
    if not len(pd.Index(labels, tupleize_cols=False).dropna()):  # whatever the type of what is missing
        return None
    kind = pd.api.types.infer_dtype(labels, skipna=True)
    return KINDS.get(kind, kind)


def packed_rows(coords: np.ndarray, posterior: Result, unknown: str, described: OfEach = None) -> np.ndarray:
    """Packed rows (n, K), of rows beyond the shape their mode's prior row; warns, or raises, where nothing is known."""
    rows, touched = placed_rows(coords, posterior, described)
    if touched.any():
        what = f"{int(touched.sum())} of {len(coords)} entries touch rows without training entries"
        what += f" (the first is entry {int(np.argmax(touched))})"
        if unknown == "error":
            fail_value(f'{what}; fit with such rows, or set unknown="prior".')
        checks.warn_user(f"{what}; their prior is used.")
    return rows


def placed_rows(coords: np.ndarray, posterior: Result, described: OfEach = None) -> tuple[np.ndarray, np.ndarray]:
    """Packed rows (n, K) as `packed_rows` gives them, and which entries (n,) touch a row of which nothing is known."""
    known = posterior.seen if described is None else posterior.seen | described
    first, total = offsets(posterior.shape)[:-1], sum(posterior.shape)
    beyond = (coords >= np.asarray(posterior.shape)) | (coords < 0)
    rows = np.where(beyond, total + np.arange(len(first)), coords + first)
    unseen = beyond.copy()
    unseen[~beyond] = ~known[rows[~beyond]]
    return rows, np.asarray(unseen.any(axis=1))


def distinct_unknown_rows(
    rows: np.ndarray, coords: np.ndarray, shape: tuple[int, ...], n_later: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Give each unknown row a row of its own, for draws: new rows (n, K), and the row of moments each one has."""
    # entries share an unknown row if they have the same index beyond the shape; an unknown label (-1) is not known to
    # equal another; `n_later` rows at other times follow those of the prior, and new rows have them before these
    total, order = sum(shape), len(shape)
    origin = [np.arange(total), total + order + np.arange(n_later)]
    result = np.where(rows >= total + order, rows - order, rows)
    used = total + n_later
    for k in range(order):
        beyond = rows[:, k] == total + k
        index = coords[beyond, k]
        index = np.where(index < 0, -1 - np.arange(len(index)), index)
        _, which = np.unique(index, return_inverse=True)
        result[beyond, k] = used + which
        n_new = int(which.max()) + 1 if len(which) else 0
        origin.append(np.full(n_new, total + k))
        used += n_new
    return result, np.concatenate(origin)


AllLabels = Sequence[Labels | None]


def names_of(labels: AllLabels) -> list[Any]:
    """What the columns of the modes are called: by their labels, else mode_0, mode_1, ..."""
    return column_names([None if found is None else found.name for found in labels], None)


def mode_of(labels: AllLabels, mode: Any) -> int:
    """Return the position of a mode that is given by position or by name; refuse one that there is not."""
    names = names_of(labels)
    if mode in names and not isinstance(mode, bool):
        return names.index(mode)
    if isinstance(mode, (int, np.integer)):
        return checks.check_int("mode", mode, 0, len(names) - 1)
    checks.check_choice("mode", mode, names)
    return names.index(mode)


def are_several(given: Any) -> bool:
    """Whether rows are given as a list, not as one label or index."""
    return isinstance(given, (list, np.ndarray, pd.Series, pd.Index, set, range))


def rows_of(labels: AllLabels, shape: Sequence[int], k: int, given: Any) -> np.ndarray:
    """Return the rows (n,) of one label or index of mode k, or of a list of them; refuse one that is not known."""
    known, listed = labels[k], list(given) if are_several(given) else [given]
    if known is None:
        name = f"a row of mode {names_of(labels)[k]!r}"
        return np.array([checks.check_int(name, item, 0, shape[k] - 1) for item in listed], dtype=np.int64)
    rows = known.rows(pd.Index(listed, tupleize_cols=False), unknown="ignore")
    if (rows < 0).any():
        missing = [item for item, row in zip(listed, rows, strict=True) if row < 0]
        fail_value(
            f"label {missing[0]!r} is not among the {len(known)} labels of mode {names_of(labels)[k]!r} "
            f"({len(missing)} unknown in all); name rows of the fit, or add new ones by transform and with_rows."
        )
    return rows


def rows_of_column(labels: AllLabels, k: int, column: pd.Series) -> np.ndarray:
    """Return the rows (n,) of mode k in a column of a table: of labels, -1 where there is none, or whole numbers."""
    known = labels[k]
    if known is not None:
        return known.rows(column, unknown="ignore")
    column = column.infer_objects()
    if pd.api.types.is_integer_dtype(column.dtype) and not column.hasnans:
        column = column.astype(np.int64)  # of numbers of pandas' own kinds numpy makes objects
    return checks.check_coords(np.stack([column, column], axis=1), name=f"column {names_of(labels)[k]!r}")[:, 0]


def labels_at(labels: AllLabels, k: int, rows: np.ndarray) -> Any:
    """Return the labels of rows of mode k; the rows themselves where it has none."""
    known = labels[k]
    return rows if known is None else known.index.take(rows)


def by_mode(labels: AllLabels, given: Mapping[Any, Any] | None) -> dict[int, Any]:
    """Return what is given per mode name or position, by position; refuse modes not known, or given twice."""
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"given must be a dict of modes and their rows, or None; got {type(given).__name__}.")
    found: dict[int, Any] = {}
    for name, value in (given or {}).items():
        k = mode_of(labels, name)
        if k in found:
            fail_value(f"mode {name!r} is given twice.")
        found[k] = value
    return found


def column_of(X: Any, labels: AllLabels, k: int) -> Any:
    """Return the labels of mode k of the entries X, a DataFrame or a SparseTensor."""
    names = names_of(labels)
    if isinstance(X, pd.DataFrame):
        return X[names[k]] if set(names) <= set(X.columns) else X.iloc[:, k]
    theirs = names_of(X.labels)
    place = theirs.index(names[k]) if names[k] in theirs else k
    return pd.Series(X.labels[place].index.take(X.coords[:, place]))


def lines_among(coords: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Which lines of coordinates (N, m) are among the cells (n, m), (N,) bool."""
    _, key = np.unique(np.concatenate([coords, cells]), axis=0, return_inverse=True)
    key = key.ravel()
    return np.isin(key[: len(coords)], key[len(coords) :])
