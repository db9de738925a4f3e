"""Cells that occur more than once, found by marks where there are many: the same as by sorting all."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each

from tensorcep.entries import coo
from tensorcep.entries.sparse_tensor import SparseTensor


@each("repeats", [0, 1, 2, 40, 3000])
@each("high", [10**6, 2**31 - 1])
def test_repeated_cells_of_many_are_those_of_few(rng, monkeypatch, repeats, high):
    coords = np.unique(rng.integers(0, high, (5000, 2)), axis=0)
    coords = rng.permutation(np.concatenate([coords, rng.choice(coords, repeats)]))
    usual = coo.repeated_cells(coords, (high, high))
    monkeypatch.setattr(coo, "MANY", 1000)
    marked = coo.repeated_cells(coords, (high, high))
    assert (usual is None) == (marked is None) == (repeats == 0)
    if marked is not None:
        np.testing.assert_array_equal(marked[0], usual[0])
        np.testing.assert_array_equal(marked[1], usual[1])
        assert marked[1].sum() == repeats


def test_keys_that_may_repeat_are_all_that_do_and_few_others(rng, monkeypatch):
    ids = rng.permutation(np.concatenate([np.arange(20_000) * 7919, np.arange(300) * 7919]))
    assert coo._may_repeat(ids) is ids
    monkeypatch.setattr(coo, "MANY", 1000)
    some = coo._may_repeat(ids)
    keys, count = np.unique(some, return_counts=True)
    assert count[keys < 300 * 7919].sum() - (keys < 300 * 7919).sum() == 300
    assert len(some) < 0.25 * len(ids)
    monkeypatch.setattr(coo, "MOST_AGAIN", 0.0)
    assert coo._may_repeat(ids) is ids


def test_tensors_may_have_more_modes_than_arrays_of_numpy():
    coords = np.zeros((3, 70), dtype=np.int64)
    coords[:, 0] = [0, 1, 2]
    tensor = SparseTensor.from_coo(coords, [1.0, 2.0, 3.0], shape=(4, *(1,) * 69))
    assert tensor.sample_zeros(1, random_state=0).coords[0, 0] == 3
    with pytest.raises(ValueError, match="occurs more than once"):
        SparseTensor.from_coo(coords[[0, 0]], [1.0, 2.0])
