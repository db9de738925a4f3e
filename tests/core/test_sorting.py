"""Sorting by counting against numpy's."""

from __future__ import annotations

import numpy as np
from helpers.cases import each

from tensorcep.kernels.sorting import sorted_places


@each("n", [0, 1, 50, 12_000])
@each("size", [1, 7, 10_000])
def test_places_are_those_of_a_stable_sort(rng, n, size):
    key = rng.integers(0, size, n).astype(np.int32)
    place, start = sorted_places(key, size)
    np.testing.assert_array_equal(place, np.argsort(key, kind="stable"))
    np.testing.assert_array_equal(start, np.searchsorted(np.sort(key), np.arange(size + 1)))
