"""Sorting by counting against numpy's."""

from __future__ import annotations

import numpy as np
from helpers.cases import each

from tensorcep.kernels.sorting import lexical_lines, sorted_places


@each("n", [0, 1, 50, 12_000])
@each("size", [1, 7, 10_000])
def test_places_are_those_of_a_stable_sort(rng, n, size):
    key = rng.integers(0, size, n).astype(np.int32)
    place, start = sorted_places(key, size)
    np.testing.assert_array_equal(place, np.argsort(key, kind="stable"))
    np.testing.assert_array_equal(start, np.searchsorted(np.sort(key), np.arange(size + 1)))


@each("spare", [0, 5])
@each("order", [1, 2, 3])
@each("n", [0, 20, 8000])
def test_lexical_lines_are_stable_and_tell_where_they_were(rng, n, order, spare):
    columns = rng.integers(0, 6, (n, order))
    (lines, other), place = lexical_lines(columns, (6, 7, 6)[:order], spare), np.lexsort(columns.T[::-1])
    assert lines.shape == other.shape == (n + spare, order + 1)
    assert not np.shares_memory(lines, other)
    np.testing.assert_array_equal(lines[:n, order], place)
    np.testing.assert_array_equal(lines[:n, :order], columns[place])
