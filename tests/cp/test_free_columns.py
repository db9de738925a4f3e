"""The encoding of free columns: every element is the product over the other modes of the numbers its table names."""

from __future__ import annotations

import itertools

import numpy as np
from helpers.cases import each

from tensorcep.cp.model.columns import Places, encode_columns, packed_pairs

# Modes with four, three and two free columns; no two columns are free in the same modes.
UNEQUAL = np.array([[1, 0, 1, 1, 1], [0, 1, 1, 1, 0], [0, 0, 0, 1, 1]], dtype=bool)
MAIN = np.array([[1, 0, 1, 1], [0, 1, 1, 1]], dtype=bool)
EVERY = each("free", [UNEQUAL, MAIN, np.ones((4, 2), dtype=bool)])


def rows_of(free, rng):
    """A random row of all columns for every mode, and its numbers: second moments, means, one and zero."""
    full = np.where(free, rng.standard_normal(free.shape), 1.0)
    Q = int(free.sum(axis=1).max())
    i, j = np.tril_indices(Q)
    numbers = []
    for row, mine in zip(full, free, strict=True):
        u = np.zeros(Q)
        u[: mine.sum()] = row[mine]
        numbers.append(np.concatenate([u[i] * u[j], u, [1.0, 0.0]]))
    P = len(i)
    return full, np.array(numbers), [Places(0, P, P + Q, P + Q + 1)] * len(free)


@EVERY
def test_tables_name_the_factors_of_every_element(rng, free):
    columns, (full, numbers, places) = encode_columns(free), rows_of(free, rng)
    for k in range(len(free)):
        others = [j for j in range(len(free)) if j != k]
        product = full[others].prod(axis=0)
        for pairs in (
            packed_pairs(columns.free_index[k]),
            columns.cross(k).reshape(-1, 2),
            packed_pairs(columns.clamped_index[k]),
        ):
            table = columns.table(k, pairs, places)
            found = np.prod([numbers[j, line] for j, line in zip(others, table, strict=True)], axis=0)
            used = (pairs >= 0).all(axis=1)
            wanted = product[pairs[:, 0]] * product[pairs[:, 1]] * used
            np.testing.assert_allclose(found, wanted, rtol=1e-12)
        table = columns.table(k, columns.free_index[k], places)
        found = np.prod([numbers[j, line] for j, line in zip(others, table, strict=True)], axis=0)
        np.testing.assert_allclose(found, product[columns.free_index[k]] * (columns.free_index[k] >= 0), rtol=1e-12)


@EVERY
def test_free_and_clamped_columns_of_a_mode_are_all_of_them(free):
    columns = encode_columns(free)
    for k, row in enumerate(free):
        parts = itertools.chain(columns.free_index[k], columns.clamped_index[k])
        assert sorted(c for c in parts if c >= 0) == list(range(free.shape[1]))
        assert free[k, columns.free_index[k][columns.free_index[k] >= 0]].all()
        assert (columns.free_index[k] >= 0).sum() == row.sum()


@EVERY
def test_groups_hold_every_column_once(free):
    columns, Q = encode_columns(free), int(free.sum(axis=1).max())
    r = 0
    for n, modes, *at in columns.groups.tolist():
        for step in range(n):
            active = np.flatnonzero(free[:, r])
            assert len(active) == modes
            assert [columns.free_index[place // Q, place % Q + step] for place in at[:modes]] == [r] * modes
            r += 1
    assert r == free.shape[1]
