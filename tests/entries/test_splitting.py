"""Entries held out by time, by row and by group: what stays together, what is left, and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from sklearn.model_selection import cross_val_score

import tensorcep as tc
from tensorcep import SparseTensor


def log(days: list[object]) -> SparseTensor:
    """Entries of 9 users, of whom the k-th has k of them, on these days in turn."""
    users = np.repeat(np.arange(1, 10), np.arange(1, 10))
    n = len(users)
    table = pd.DataFrame(
        {"user": [f"u{u}" for u in users], "item": np.arange(n) % 7, "day": [0] * n, "y": np.arange(n)}
    )
    table["day"] = [days[i % len(days)] for i in range(n)]
    return SparseTensor.from_pandas(table, ["user", "item", "day"], duplicates="last")


DAYS = ["2024-01-09", "2024-01-10", "2023-12-31", "2024-02-01"]
TEXT = log(DAYS)
KINDS = {
    "text": DAYS,
    "times": [pd.Timestamp(day) for day in DAYS],
    "zones": [pd.Timestamp(day, tz="Asia/Tokyo") for day in DAYS],
    "numbers": [9, 10.0, 8.5, 100],
    "numbered": ["w9", "w10", "w8", "w100"],
    "periods": [pd.Period(day) for day in DAYS],
}
SORTED = [2, 0, 1, 3]


@each("kind", KINDS)
def test_by_time_holds_out_the_last_times_whole(kind):
    days = KINDS[kind]
    tensor = log(days)
    of = tensor.to_pandas()["day"].map({day: SORTED.index(i) for i, day in enumerate(days)}).to_numpy()
    for test_size, first in ((1, 3), (2, 2), (0.25, 3), (0.4, 2), (0.9, 1)):
        train, test = tensor.train_test_split(test_size, by="time", times="day")
        np.testing.assert_array_equal(test.values, tensor.values[of >= first])
        np.testing.assert_array_equal(train.values, tensor.values[of < first])
    assert tensor.train_test_split(1, by="time", times=of)[1].values.tolist() == tensor.values[of == 3].tolist()
    folds = list(tensor.kfold(3, by="time", times="day"))
    assert [set(test.to_pandas()["day"]) for _, test in folds] == [{days[i]} for i in SORTED[1:]]
    assert [len(train) for train, _ in folds] == [int((of < i).sum()) for i in (1, 2, 3)]


def test_by_row_leaves_some_of_each_row_out_and_one_to_train_on():
    rows = TEXT.coords[:, 0]
    per_row = np.bincount(rows)
    train, test = TEXT.train_test_split(3, 0, by="row", mode="user")
    np.testing.assert_array_equal(np.bincount(test.coords[:, 0], minlength=9), np.where(per_row > 3, 3, 0))
    assert sorted([*train.values, *test.values]) == sorted(TEXT.values)
    train, test = TEXT.train_test_split(0.3, 0, by="row", mode=0)
    np.testing.assert_array_equal(np.bincount(test.coords[:, 0], minlength=9), np.floor(0.3 * per_row + 0.5))
    again, other = (TEXT.train_test_split(0.3, seed, by="row", mode="user")[1].values.tolist() for seed in (0, 1))
    assert again == test.values.tolist() != other
    assert np.bincount(TEXT.train_test_split(0.99, by="row", mode="user")[0].coords[:, 0]).tolist() == [1] * 9
    # By time the last ones; of equal times those that stand last.
    place = np.arange(TEXT.nnz) // 2
    test = TEXT.train_test_split(1, by="row", mode="user", times=place)[1]
    last = [np.flatnonzero(rows == row)[-1] for row in np.unique(rows) if per_row[row] > 1]
    assert sorted(test.values) == sorted(TEXT.values[last])
    folds = list(TEXT.kfold(3, 0, by="row", mode="user"))
    assert sorted(np.concatenate([test.values for _, test in folds])) == sorted(TEXT.values)
    for _, test in folds:
        held = np.bincount(test.coords[:, 0], minlength=9)
        assert ((held == per_row // 3) | (held == -(-per_row // 3))).all()


def test_by_group_holds_out_whole_rows():
    for test_size, n in ((2, 2), (0.3, 3)):
        train, test = TEXT.train_test_split(test_size, 0, by="group", mode="user")
        held = set(test.coords[:, 0])
        assert len(held) == n
        assert held.isdisjoint(train.coords[:, 0])
        assert len(train) + len(test) == TEXT.nnz
    folds = list(TEXT.kfold(3, 0, by="group", mode="user"))
    assert [len(set(test.coords[:, 0])) for _, test in folds] == [3, 3, 3]
    assert all(set(test.coords[:, 0]).isdisjoint(train.coords[:, 0]) for train, test in folds)


def test_parts_keep_labels_marks_and_serve_scikit_learn():
    data = TEXT.with_zeros(5, random_state=0)
    train, test = data.train_test_split(1, 0, by="row", mode="user")
    assert train.labels == test.labels == data.labels
    assert sum(int(part.sampled.sum()) for part in (train, test) if part.sampled is not None) == 5
    model = tc.CPRegressor(1, method="wopt", prior="fixed", max_iter=2, random_state=0)
    with pytest.warns(match="."):
        assert len(cross_val_score(model, TEXT, cv=TEXT.kfold(2, 0, by="group", mode="item"))) == 2


ONE = SparseTensor.from_coo([[0, 0], [1, 1]], [1.0, 2.0])


@each(
    ("call", "message"),
    [
        (lambda: ONE.train_test_split(by="user"), "by must be one of 'entry', 'time', 'row', 'group'; got 'user'"),
        (lambda: ONE.train_test_split(by="row"), "by='row' needs mode=, the mode whose rows are meant"),
        (lambda: ONE.train_test_split(by="time"), "by='time' needs times=: the mode that is the time"),
        (lambda: ONE.train_test_split(mode=0), "mode= is for by='row' and by='group'; got 0 with by='entry'"),
        (lambda: ONE.train_test_split(by="group", mode=0, times=1), "times= is for by='time' and by='row'"),
        (lambda: TEXT.train_test_split(by="row", mode="shop"), "a mode must be one of 'user', 'item', 'day'"),
        (lambda: ONE.train_test_split(1, by="row", mode=0), "no row has enough entries to hold out test_size=1"),
        (lambda: ONE.train_test_split(1, by="time", times=[3, 3]), "entries of at least two times; all have the same"),
        (
            lambda: ONE.train_test_split(2, by="time", times=[3, 4]),
            "test_size must leave one of the 2 times to train on",
        ),
        (lambda: ONE.train_test_split(1, by="time", times=[3]), "times must be as many as the 2 entries; got 1"),
        (lambda: ONE.train_test_split(1, by="time", times=[3, None]), "must not be missing; got none for entry 1"),
        (lambda: TEXT.train_test_split(1, by="time", times=["31.1.24"] * TEXT.nnz), "text such as 2024-01-31 or w12"),
        (lambda: ONE.train_test_split(0, by="row", mode=0), "test_size must be an integer >= 1; got 0"),
        (lambda: ONE.train_test_split(1.5, by="time", times=0), "test_size must be"),
        (lambda: ONE.select([0]).train_test_split(1, by="group", mode=0), "at least two rows; all are of one"),
        (lambda: ONE.kfold(3, by="row", mode=0), "n_splits must be at most what the entries of rows can be dealt to"),
        (lambda: ONE.kfold(2, by="time", times=0), "."),
    ],
)
def test_splits_that_cannot_be_are_refused(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()
