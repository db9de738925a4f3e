"""Rows that workers keep: sent once, put in order once, and never changed under a task that reads them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from helpers.cases import each

from tensorcep.core.futures import LackingError, TaskReport
from tensorcep.cp.workers.row_store import Block, Order, Piece, Source, Store

FIRST = (0, 3, 5)
ROWS = np.arange(10.0).reshape(5, 2)
BOTH = [Block("factors", 0, "a"), Block("factors", 1, "b")]
PIECES = [[Piece(0, ROWS[:1]), TaskReport(Piece(1, ROWS[1:3]), [], 0.0)], [Piece(0, ROWS[3:])]]
AS_IS = Source("", "factors", ("a", "b"))


def read(store: Store, source: Source, given: Any = (), blocks: Any = ()) -> np.ndarray:
    with store.reading([source], FIRST, given, blocks) as (found,):
        return found.copy()


def test_rows_are_given_once_and_kept() -> None:
    store = Store()
    np.testing.assert_array_equal(read(store, AS_IS, BOTH, PIECES), ROWS)
    np.testing.assert_array_equal(read(store, AS_IS), ROWS)
    new = [Block("factors", 1, "c")], [[Piece(0, ROWS[3:] + 1.0)]]
    later = read(store, Source("", "factors", ("a", "c")), *new)
    np.testing.assert_array_equal(later[3:], ROWS[3:] + 1.0)
    np.testing.assert_array_equal(later[:3], ROWS[:3])


@each("names", [("a", "c"), ("c", "b")])
def test_rows_that_were_not_given_are_lacking(names: tuple[str, str]) -> None:
    store = Store()
    read(store, AS_IS, BOTH, PIECES)
    with pytest.raises(LackingError):
        read(store, Source("", "factors", names))
    read(store, Source("", "factors", ("a", None)))
    lacking = [TaskReport(None, [], 0.0, True)]
    with pytest.raises(LackingError):
        read(store, AS_IS._replace(names=("a", "c")), [Block("factors", 1, "c")], [lacking])


def test_store_that_is_sent_is_empty() -> None:
    store = Store()
    read(store, AS_IS, BOTH, PIECES)
    with pytest.raises(LackingError):
        read(pickle.loads(pickle.dumps(store)), AS_IS)


def test_rows_in_another_order_follow_new_rows() -> None:
    store, orders = Store(), [Order(0, 5, np.array([1, -1, 0]))]
    source = Source("mode 1", "factors", ("a", None), orders)
    found = read(store, source, BOTH, PIECES)
    np.testing.assert_array_equal(found[:3], np.stack([ROWS[:3, 1], np.zeros(3), ROWS[:3, 0]], axis=1))
    assert not found[3:].any()  # nobody reads them
    new = [Block("factors", 0, "c")], [[Piece(0, -ROWS[:3])]]
    later = read(store, source._replace(names=("c", None)), *new)
    np.testing.assert_array_equal(later, -found)
    other = source._replace(names=("c", None), orders=[Order(0, 5, np.array([0, 1, -1]))])
    np.testing.assert_array_equal(read(store, other)[:3, :2], -ROWS[:3])


def test_rows_that_a_task_reads_stay_when_another_is_given_others() -> None:
    store = Store()
    with store.reading([AS_IS], FIRST, BOTH, PIECES) as (found,):
        new = [Block("factors", 0, "c")], [[Piece(0, -ROWS[:3])]]
        np.testing.assert_array_equal(read(store, AS_IS._replace(names=("c", "b")), *new)[:3], -ROWS[:3])
        np.testing.assert_array_equal(found, ROWS)
