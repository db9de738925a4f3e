"""What the fuzzer hands over in memory: features, times, edges and rows to fold in, as frames that people mangled."""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

import tensorcep as tc
from scripts.lib.fuzz.changes import Rng, pick
from scripts.lib.fuzz.targets import Files, attempt

LABELS: tuple[Any, ...] = (
    *(None, np.nan, pd.NA, pd.NaT, "", " ", "i1", "i9", "I1", "é", "$x^{$", "\x1b[2J", "a\nb", "x" * 3000, b"i1"),
    *(0, 1, -1, 2**53 + 1, 2**63, 2**70, -(10**400), 1.0, 1.5, -0.0, 1e300, 5e-324, np.inf, True, 1j),
    *(pd.Timestamp("2024-01-02"), pd.Timestamp("2024-01-02", tz="Asia/Tokyo"), pd.Timestamp.max, "2024-01-02"),
    *("9999-12-31", "0001-01-01", "2024-13-01", dt.date(9999, 12, 31), dt.datetime(1, 1, 1), np.datetime64("NaT")),
    *(pd.Period("2024-01", "M"), pd.Timedelta("1ns"), pd.Interval(0, 1), ("i", 1), object, ["i1"], {"i1"}, {"i": 1}),
)
VALUES: tuple[Any, ...] = (
    *(None, np.nan, pd.NA, np.inf, -np.inf, 0, -1, 1e-320, 1e-200, 1e150, 1e308, 10**400, "1,5", "x", True, 1j),
    *([1.0], pd.Timestamp("2024-01-02")),
)
TYPES = (
    "category",
    "string",
    "object",
    "Int64",
    "Float32",
    "float32",
    "boolean",
    "int8",
    "datetime64[ns]",
    "complex128",
)
MODES = ["user", "item", "day"]
ITEMS = [f"i{number}" for number in range(6)]


def in_frame(rng: Rng, frame: pd.DataFrame, value: str | None = None) -> pd.DataFrame:
    """One to three changes of cells, columns, index, types, order and names."""
    frame = frame.copy()
    for _ in range(int(rng.integers(1, 4))):
        frame = CHANGES[int(rng.integers(len(CHANGES)))](rng, frame, value) if frame.size else frame
    return frame


def _cell(rng: Rng, frame: pd.DataFrame, value: str | None) -> pd.DataFrame:
    column, row = int(rng.integers(frame.shape[1])), int(rng.integers(len(frame)))
    held = list(frame.iloc[:, column])
    held[row] = _odd(rng, frame.columns[column] == value)
    return _with(frame, column, held)


def _column(rng: Rng, frame: pd.DataFrame, value: str | None) -> pd.DataFrame:
    column = int(rng.integers(frame.shape[1]))
    number = frame.columns[column] == value
    odd = _odd(rng, number)
    held = [odd if rng.random() < 0.7 else _odd(rng, number) for _ in range(len(frame))]
    return _with(frame, column, held)


def _odd(rng: Rng, number: bool) -> Any:
    return pick(rng, VALUES if number and rng.random() < 0.8 else LABELS)


def _with(frame: pd.DataFrame, column: int, held: list[Any]) -> pd.DataFrame:
    """The frame with other cells in the column of a place, whatever they are."""
    new = pd.Series(held, frame.index, object)
    columns = [new if at == column else frame.iloc[:, at] for at in range(frame.shape[1])]
    return pd.concat(columns, axis=1, keys=range(len(columns))).set_axis(frame.columns, axis=1)


def _type(rng: Rng, frame: pd.DataFrame, value: str | None) -> pd.DataFrame:
    column = int(rng.integers(frame.shape[1]))
    kind = pick(rng, TYPES)
    try:
        new = frame.iloc[:, column].astype(kind)
    except (TypeError, ValueError, OverflowError):
        return frame
    columns = [new if at == column else frame.iloc[:, at] for at in range(frame.shape[1])]
    return pd.concat(columns, axis=1, keys=range(len(columns))).set_axis(frame.columns, axis=1)


def _rows(rng: Rng, frame: pd.DataFrame, value: str | None) -> pd.DataFrame:
    return frame.iloc[rng.integers(len(frame), size=pick(rng, [0, 1, 2, len(frame), 2 * len(frame)]))]


def _columns(rng: Rng, frame: pd.DataFrame, value: str | None) -> pd.DataFrame:
    return frame.iloc[:, rng.integers(frame.shape[1], size=pick(rng, [0, 1, frame.shape[1], frame.shape[1] + 1]))]


def _name(rng: Rng, frame: pd.DataFrame, value: str | None) -> pd.DataFrame:
    names = list(frame.columns)
    names[int(rng.integers(len(names)))] = pick(rng, [None, 0, "", "y", names[0], "$a^{$", ("a", "b"), np.nan])
    return frame.set_axis(pd.Index(names, dtype=object, tupleize_cols=False), axis=1)


def _index(rng: Rng, frame: pd.DataFrame, value: str | None) -> pd.DataFrame:
    kind = int(rng.integers(4))
    if kind == 0:
        return frame.set_axis(pd.MultiIndex.from_arrays([range(len(frame))] * 2))
    if kind == 1:
        return frame.reset_index()
    held = list(frame.index)
    held[int(rng.integers(len(held)))] = pick(
        rng, [label for label in LABELS if not isinstance(label, (list, set, dict))]
    )
    return frame.set_axis(pd.Index(held, dtype=object, tupleize_cols=False))


CHANGES: tuple[Callable[[Rng, pd.DataFrame, str | None], pd.DataFrame], ...] = (
    *(_cell, _cell, _column, _type, _rows, _columns, _name, _index),
)


@cache
def table(days: str = "text") -> pd.DataFrame:
    """Thirty-six entries of users, items and days, whose labels are of some kind."""
    rng = np.random.default_rng(0)
    user, item, day = rng.integers(5, size=36), rng.integers(6, size=36), rng.integers(7, size=36)
    stamps: Any = pd.Timestamp("2024-01-01") + pd.to_timedelta(day, unit="D")
    kinds = {"text": stamps.strftime("%Y-%m-%d"), "zone": stamps.tz_localize("Asia/Tokyo"), "number": day / 2}
    return pd.DataFrame(
        {
            "user": [f"u{a}" for a in user],
            "item": [ITEMS[b] for b in item],
            "day": kinds.get(days, stamps),
            "y": user * item / 5 + 0.1 * rng.standard_normal(36),
        }
    )


def model(rng: Rng, prior: Any = "auto") -> Any:
    """A regressor that ends early."""
    return tc.CPRegressor(1, method=pick(rng, ["vmp", "cep"]), prior=prior, max_iter=2, tol=1e9, random_state=0)


def _finite(found: Any) -> str | None:
    numbers = np.asarray(found, np.float64)
    return None if np.isfinite(numbers).all() else f"{(~np.isfinite(numbers)).sum()} predictions are not finite"


def _fitted(rng: Rng, prior: Callable[[], Any], entries: pd.DataFrame, query: pd.DataFrame) -> str | None:
    """Make a prior, fit with it and ask; the first fault of these."""
    made, fault = attempt(prior)
    if made is None:
        return fault
    estimator, fault = attempt(lambda: model(rng, made).fit(entries, value="y"))
    if estimator is None:
        return fault
    found, fault = attempt(lambda: estimator.predict(query, return_std=True))
    return fault if found is None else _finite(found)


def features(rng: Rng, files: Files, folder: str) -> str | None:
    """Fit with features of the items that were mangled, and predict."""
    known = pd.DataFrame({"kind": list("abcabc"), "size": np.arange(6.0), "new": [True, False] * 3}, index=ITEMS)
    side: Any = in_frame(rng, known, pick(rng, ["size", None]))
    how = pick(rng, ["frame", "frame", "frame", "array", "records"])
    side = side.to_numpy() if how == "array" else side.to_dict("records") if how == "records" else side
    entries = table()
    return _fitted(rng, lambda: {"item": tc.Features(side)}, entries, entries.iloc[:4].drop(columns="y"))


def series(rng: Rng, files: Files, folder: str) -> str | None:
    """Fit along days whose labels were mangled, and predict other days."""
    kind = pick(rng, ["text", "stamps", "zone", "number"])
    entries = query = table(kind)
    query = in_frame(rng, query.drop(columns="y")) if rng.random() < 0.5 else query.drop(columns="y")
    entries = in_frame(rng, entries, "y") if rng.random() < 0.7 else entries
    how: dict[str, Any] = {"kind": pick(rng, ["auto", "ou", "rw", "x"])} if rng.random() < 0.2 else {}
    how |= {"period": pick(rng, ["7D", 2, 0, -1, np.nan, "x", pd.Timedelta("1D"), 1e300])} if rng.random() < 0.3 else {}
    how |= {"cyclic": True} if rng.random() < 0.1 else {}
    how |= {"order": list(table(kind)["day"].unique())} if rng.random() < 0.1 else {}
    how |= {"local": pick(rng, ["user", 0, "day", "x", 7])} if rng.random() < 0.1 else {}
    return _fitted(rng, lambda: {"day": tc.Series(**how)}, entries, query)


def edges(rng: Rng, files: Files, folder: str) -> str | None:
    """Fit with a graph of the items whose edges were mangled, and predict."""
    pairs = pd.DataFrame({"a": ITEMS[:-1], "b": ITEMS[1:], "weight": [1.0, 2.0, 0.5, 1.0, 3.0]})
    side: Any = in_frame(rng, pairs, "weight")
    how = pick(rng, ["frame", "frame", "tuples", "matrix"])
    if how == "tuples":
        side = list(side.itertuples(index=False, name=None))
    elif how == "matrix":
        side = np.diag(np.ones(5), 1) + np.diag(np.ones(5), -1)
        side[tuple(rng.integers(6, size=2))] = pick(rng, [0.0, -1.0, np.nan, np.inf, 1e300, 1e-300, 5.0])
    labels = pick(rng, [None, None, ITEMS, ITEMS[:3], LABELS[:6]])
    entries = table()
    return _fitted(rng, lambda: {"item": tc.Graph(side, labels)}, entries, entries.iloc[:4].drop(columns="y"))


@cache
def known(method: str) -> Any:
    """A model that rows are folded into."""
    return tc.CPRegressor(1, method=method, max_iter=3, tol=1e9, random_state=0).fit(table(), value="y")


def fold_in(rng: Rng, files: Files, folder: str) -> str | None:
    """Fold in rows of a mangled frame, put them into the model, and ask it; or score, recommend and forget by it."""
    estimator = known(pick(rng, ["vmp", "cep", "wopt"]))
    new = table().iloc[:6].assign(user=["n1", "n1", "n2", "n2", "n3", "n3"])
    new = in_frame(rng, new, "y")
    what = int(rng.integers(6))
    if what == 0:
        return attempt(lambda: estimator.anomaly_score(new, value="y"))[1]
    if what == 1:
        return attempt(lambda: estimator.recommend("item", given=new.iloc[:, :1].to_dict("list"), n=2))[1]
    if what == 2:
        found, fault = attempt(lambda: estimator.predict(new.drop(columns="y", errors="ignore")))
        return fault if found is None else _finite(found)
    rows, fault = attempt(lambda: estimator.transform(new, mode=pick(rng, ["user", "user", "user", 0, "x"]), value="y"))
    if rows is None:
        return fault
    more, fault = attempt(lambda: estimator.with_rows(rows))
    if more is None:
        return fault
    found, fault = attempt(lambda: more.predict(table().iloc[:4].drop(columns="y"), return_std=True))
    return fault if found is None else _finite(found)


@cache
def stream() -> Any:
    """A model of one batch."""
    return tc.CPRegressor(1, method="cep", max_iter=2, random_state=0).partial_fit(table()[MODES], table()["y"])


def batches(rng: Rng, files: Files, folder: str) -> str | None:
    """Learn a mangled batch after a good one, and predict."""
    estimator, new = copy.deepcopy(stream()), in_frame(rng, table().iloc[:8], "y")
    if "y" not in new:
        return None
    _, fault = attempt(lambda: estimator.partial_fit(new.drop(columns="y"), new["y"]))
    found, asked = attempt(lambda: estimator.predict(table()[MODES], return_std=True))
    return fault or (asked if found is None else _finite(found))
