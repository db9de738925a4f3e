"""Labels: the map between names and rows."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorcep.entries.labels import Labels, natural_key

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))  # which pandas 2.1 takes for the end of a text


def test_labels_map_both_ways() -> None:
    labels = Labels(["b", "a", "c"], name="user")
    assert len(labels) == 3
    assert labels.name == "user"
    assert labels[1] == "a"
    assert labels[[2, 0]].tolist() == ["c", "b"]
    np.testing.assert_array_equal(labels.rows(["c", "b", "c"]), [2, 0, 2])
    assert "a" in labels
    assert "z" not in labels
    assert repr(labels) == "Labels(['b', 'a', 'c'], n=3, name='user')"


def test_labels_extended_keeps_rows_and_appends_new_ones_in_order_of_appearance() -> None:
    labels = Labels(["b", "a"])
    longer = labels.extended(["z", "a", "c", "z"])
    assert list(longer) == ["b", "a", "z", "c"]
    assert list(labels) == ["b", "a"]
    assert labels.extended(["a"]) is labels


def test_labels_unknown_label_is_an_error_or_minus_one() -> None:
    labels = Labels([10, 20], name="age")
    with pytest.raises(ValueError, match=r"label 30 is not among the 2 labels of mode 'age' \(2 unknown in all\)"):
        labels.rows([10, 30, 40])
    np.testing.assert_array_equal(labels.rows([20, 30], unknown="ignore"), [1, -1])


@each(
    ("column", "expected"),
    [
        ([30, 10, 30], [10, 30]),
        (["b", "a", "b"], ["a", "b"]),
        (
            pd.to_datetime(["2024-03-01", "2024-01-01", "2024-03-01"]),
            list(pd.to_datetime(["2024-01-01", "2024-03-01"])),
        ),
        (pd.Series([3, 1, 3], dtype="Int64"), [1, 3]),
        (pd.Categorical(["x", "y", "x"], categories=["y", "z", "x"]), ["y", "z", "x"]),
        ([True, False, True], [False, True]),
        ([1.5, -2.0, 1.5], [-2.0, 1.5]),
        ([("b", 1), ("c", 1), ("a", 2)], [("a", 2), ("b", 1), ("c", 1)]),
    ],
)
def test_labels_from_column_sorts_any_dtype(column: object, expected: list[object]) -> None:
    labels, rows = Labels.from_column(column, name="k")
    assert list(labels) == expected
    assert [labels[row] for row in rows] == list(pd.Series(column))


def test_labels_that_cannot_be_compared_keep_their_order() -> None:
    labels, rows = Labels.from_column(pd.Series([(2, "x"), "a", (2, "x"), frozenset([1])], dtype=object))
    assert set(labels) == {(2, "x"), "a", frozenset([1])}
    assert rows[0] == rows[2]
    assert [labels[row] for row in rows] == [(2, "x"), "a", (2, "x"), frozenset([1])]


@each(
    ("values", "message"),
    [
        (["a", "b", "a"], "labels must be distinct; got 'a' more than once"),
        (["a", None], "labels must not be missing; got .* at row 1"),
        ([1.0, np.nan], "labels must not be missing; got .*nan.* at row 1"),
        ("abc", "labels must be a one-dimensional list or array; got 'abc'"),
        (np.zeros((2, 2)), "labels must be a one-dimensional list or array"),
    ],
)
def test_labels_refuse_bad_values(values: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Labels(values)


def test_labels_missing_in_a_column_names_the_column_and_entry() -> None:
    with pytest.raises(ValueError, match="column 'user' has 2 missing labels, the first at entry 1; drop"):
        Labels.from_column(pd.Series(["a", None, "b", None], name="user"))


def test_labels_equality_is_by_value_and_order() -> None:
    assert Labels(["a", "b"]) == Labels(np.array(["a", "b"], dtype=object))
    assert Labels(["a", "b"]) != Labels(["b", "a"])
    assert Labels([1, 2]) != Labels([1, 2, 3])
    assert Labels([1, 2]) != [1, 2]


def test_labels_survive_pickle_and_copy() -> None:
    labels = Labels(pd.date_range("2024", periods=3, tz="Europe/Paris"), name="day")
    for twin in (pickle.loads(pickle.dumps(labels)), copy.deepcopy(labels)):
        assert twin == labels
        assert twin.name == "day"


@settings(deadline=None)
@given(st.lists(TEXT, unique=True), st.lists(TEXT))
def test_labels_extended_is_a_bijection_that_contains_the_old_one(first: list[str], more: list[str]) -> None:
    labels = Labels(first)
    longer = labels.extended(more)
    assert list(longer)[: len(first)] == first
    assert set(longer) == {*first, *more}
    np.testing.assert_array_equal(longer.rows(list(longer)), np.arange(len(longer)))


@each("wanted", [[None, None], [None, "x", "7"], [np.nan, "x", 8, "8"], ["nan", None, np.nan]])
def test_labels_missing_are_not_known_whatever_else_is_asked_for(wanted: list[object]) -> None:
    known = {7: 0, "7": 0, "nan": 1, 8: 2, "8": 2}
    labels = Labels(np.array([7, "nan", 8], dtype=object))
    np.testing.assert_array_equal(labels.rows(wanted, unknown="ignore"), [known.get(label, -1) for label in wanted])
    with pytest.raises(ValueError, match="is not among the 3 labels"):
        labels.rows(wanted)


@each("prefix", ["", "user_", "a.", "v-", "-", "u1_", "é"])
def test_labels_numbered_at_their_end_are_in_the_order_of_their_keys(prefix):
    texts = {prefix + spelled for spelled in ("7", "07", "007", "12", "120", "8", "9" * 25, "0")}
    labels, _ = Labels.from_column(pd.Series(sorted(texts, key=hash)))
    assert labels.index.tolist() == sorted(texts, key=natural_key)


def test_labels_of_dense_integers_are_those_of_sparse_ones():
    few = np.array([7, -3, 7, 5, 0])
    labels, rows = Labels.from_column(few)
    assert labels.index.tolist() == [-3, 0, 5, 7]
    np.testing.assert_array_equal(rows, [3, 0, 3, 2, 1])
    far, far_rows = Labels.from_column(few * 10**15)
    assert far.index.tolist() == [-3 * 10**15, 0, 5 * 10**15, 7 * 10**15]
    np.testing.assert_array_equal(far_rows, rows)


def test_masked_labels_are_missing() -> None:
    for masked in (np.ma.array(["a", "b"], mask=[0, 1]), np.ma.array([1, 2], mask=[0, 1])):
        with pytest.raises(ValueError, match="labels must not be missing; got nan at row 1"):
            Labels(masked)
        assert Labels(["a", "b", 1, 2]).rows(masked, unknown="ignore")[1] == -1


BERLIN, PLAIN = pd.date_range("2024", periods=3, tz="Europe/Berlin"), pd.date_range("2024", periods=3)


@each("known, given, words", [(BERLIN, PLAIN, "with a time zone"), (PLAIN, BERLIN, "without a time zone")])
@each("form", [pd.Index, list, lambda times: pd.Series(times, dtype=object), pd.Categorical])
def test_times_with_and_without_a_zone_are_not_compared(known, given, words, form) -> None:
    labels = Labels(known, name="day")
    assert labels.rows(form(known)).tolist() == [0, 1, 2]
    for call in (lambda: labels.rows(form(given), unknown="ignore"), lambda: labels.extended(form(given))):
        with pytest.raises(ValueError, match=f"labels of mode 'day' are times {words}, such as .*tz_localize"):
            call()


def test_times_in_another_zone_are_the_same_labels() -> None:
    assert Labels(BERLIN).rows(BERLIN.tz_convert("Asia/Tokyo")).tolist() == [0, 1, 2]
    assert Labels(BERLIN).rows([pd.NaT, BERLIN[1]], unknown="ignore").tolist() == [-1, 1]
    assert Labels(BERLIN).rows(pd.DatetimeIndex([pd.NaT]), unknown="ignore").tolist() == [-1]


@each("plain", [PLAIN[1], PLAIN[1].date()])
def test_labels_are_times_of_one_kind(plain) -> None:
    both = pd.Series([plain, BERLIN[0]], dtype=object, name="day")
    for call in (Labels, Labels.from_column, Labels(BERLIN).rows, Labels(PLAIN).rows):
        with pytest.raises(ValueError, match="labels of 'day' must be times with a time zone or times without one"):
            call(both)


@each("label", [[1], {1}, {"a": 1}])
def test_what_cannot_be_a_label_is_refused_in_a_sentence(label) -> None:
    with pytest.raises(ValueError, match=r"labels of mode 'a' must be such as numbers, text or dates \(.*hash"):
        Labels([1, 2], name="a").rows(pd.Series([label, 1]))
