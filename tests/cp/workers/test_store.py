"""Rows that workers keep: sent once, put in order once, and never changed under a task that reads them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from helpers.cases import each

from tensorcep.core.cluster import LackingError, TaskReport
from tensorcep.cp.workers.row_cache import Block, Piece, RowInputs, Source, Store
from tensorcep.kernels.rows import second_moments

FIRST = (0, 3, 5)
ROWS = np.arange(10.0).reshape(5, 2)
BOTH = [Block("factors", 0, "a", (2,)), Block("factors", 1, "b", (2,))]


def piece(first: int, rows: np.ndarray) -> Piece:
    return Piece(first, {"": rows}, {})


PIECES = [[piece(0, ROWS[:1]), TaskReport(piece(1, ROWS[1:3]), [], 0.0)], [piece(0, ROWS[3:])]]
AS_IS = Source("factors", ("a", "b"))


def read(store: Store, source: Source, given: Any = (), blocks: Any = ()) -> np.ndarray:
    with store.reading(RowInputs((source,), FIRST, tuple(given)), blocks) as (found,):
        return found.copy()


def test_rows_are_given_once_and_kept() -> None:
    store = Store()
    np.testing.assert_array_equal(read(store, AS_IS, BOTH, PIECES), ROWS)
    np.testing.assert_array_equal(read(store, AS_IS), ROWS)
    new = [Block("factors", 1, "c", (2,))], [[piece(0, ROWS[3:] + 1.0)]]
    later = read(store, Source("factors", ("a", "c")), *new)
    np.testing.assert_array_equal(later[3:], ROWS[3:] + 1.0)
    np.testing.assert_array_equal(later[:3], ROWS[:3])


@each("names", [("a", "c"), ("c", "b")])
def test_rows_that_were_not_given_are_lacking(names: tuple[str, str]) -> None:
    store = Store()
    read(store, AS_IS, BOTH, PIECES)
    with pytest.raises(LackingError):
        read(store, Source("factors", names))
    read(store, Source("factors", ("a", None)))
    lacking = [TaskReport(None, [], 0.0, True)]
    with pytest.raises(LackingError):
        read(store, AS_IS._replace(names=("a", "c")), [Block("factors", 1, "c", (2,))], [lacking])


def test_store_that_is_sent_is_empty() -> None:
    store = Store()
    read(store, AS_IS, BOTH, PIECES)
    with pytest.raises(LackingError):
        read(pickle.loads(pickle.dumps(store)), AS_IS)


def test_rows_in_another_order_follow_new_rows() -> None:
    store, orders = Store(), (np.array([1, -1, 0]), None)
    source = Source("factors", ("a", None), "source", orders)
    found = read(store, source, BOTH, PIECES)
    np.testing.assert_array_equal(found[:3], np.stack([ROWS[:3, 1], np.zeros(3), ROWS[:3, 0]], axis=1))
    assert not found[3:].any()  # nobody reads them
    new = [Block("factors", 0, "c", (2,))], [[piece(0, -ROWS[:3])]]
    later = read(store, source._replace(names=("c", None)), *new)
    np.testing.assert_array_equal(later, -found)
    other = source._replace(names=("c", None), orders=(np.array([0, 1, -1]), None))
    np.testing.assert_array_equal(read(store, other)[:3, :2], -ROWS[:3])


def test_rows_that_a_task_reads_stay_when_another_is_given_others() -> None:
    store = Store()
    with store.reading(RowInputs((AS_IS,), FIRST, tuple(BOTH)), PIECES) as (found,):
        new = [Block("factors", 0, "c", (2,))], [[piece(0, -ROWS[:3])]]
        np.testing.assert_array_equal(read(store, AS_IS._replace(names=("c", "b")), *new)[:3], -ROWS[:3])
        np.testing.assert_array_equal(found, ROWS)


def test_rows_follow_from_what_tasks_tell_of_them(rng: np.random.Generator) -> None:
    mean, cov, seconds = rng.normal(size=(2000, 2)), rng.normal(size=(2000, 3)), np.empty((2000, 3))
    second_moments(0, 2000, mean, cov, seconds)
    made = Piece(0, {"mean": mean, "cov": cov}, {})
    seconds_of = Block("seconds", 0, "a", (3,), ("mean", "cov"), second_moments)
    blocks = (seconds_of, Block("means", 0, "b", (2,), ("mean",)))
    sources = (Source("seconds", ("a", None)), Source("means", ("b", None)))
    with Store().reading(RowInputs(sources, (0, 2000, 2001), blocks), [[made], [made]]) as found:
        np.testing.assert_array_equal(found[0][:2000], seconds)
        np.testing.assert_array_equal(found[1][:2000], mean)
