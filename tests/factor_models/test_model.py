"""Cells and moments of relations against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from helpers.relation_problems import data, problem

from tensorcep.core.executor import ThreadExecutor
from tensorcep.core.packing import pack, unpack
from tensorcep.factor_models.cells import DenseCells, ListedCells
from tensorcep.factor_models.problem import Priors, Products, latent_of
from tensorcep.factor_models.side_information import Moments, as_packed, latent_moments, packed_index, second_moments
from tensorcep.factor_models.sites import bound, sites_of_squares

SERIAL = ThreadExecutor(1)


def packed(rng, n, C):
    root = rng.standard_normal((n, C, C))
    return Moments(rng.standard_normal((n, C)), pack(0.2 * root @ root.transpose(0, 2, 1)), False)


@pytest.mark.parametrize("shared", [False, True])
def test_relations_latent_moments_are_those_of_draws(rng, shared):
    u, v = packed(rng, 1 if shared else 3, 2), packed(rng, 4, 2)
    if shared:
        u = Moments(rng.standard_normal((3, 2)), u.cov, False)
    f, variance = latent_moments(DenseCells((3, 4)), u, v, SERIAL)
    n = 40000
    covs = [np.broadcast_to(unpack(m.cov, 2), (len(m.mean), 2, 2)) for m in (u, v)]
    a, b = (
        np.stack([rng.multivariate_normal(mean, cov, n) for mean, cov in zip(m.mean, c, strict=True)], axis=1)
        for m, c in zip((u, v), covs, strict=True)
    )
    psi = np.einsum("snk,smk->snm", a, b)
    np.testing.assert_allclose(f, psi.mean(axis=0), atol=6.0 * np.sqrt(variance.max() / n))
    np.testing.assert_allclose(variance, psi.var(axis=0), rtol=0.1)


def test_relations_diagonal_moments_are_packed_ones(rng):
    u, v = (Moments(rng.standard_normal((n, 3)), rng.random((n, 3)), True) for n in (4, 5))
    cells = DenseCells((4, 5))
    diagonal = latent_moments(cells, u, v, SERIAL)
    full = latent_moments(cells, as_packed(u), as_packed(v), SERIAL)
    np.testing.assert_allclose(diagonal, full, rtol=1e-12)


def test_relations_select_takes_coordinates_in_their_order(rng):
    m = packed(rng, 3, 4)
    coords = np.array([2, 0, 3])
    found = m.select(coords)
    np.testing.assert_array_equal(found.mean, m.mean[:, coords])
    np.testing.assert_array_equal(unpack(found.cov, 3), unpack(m.cov, 4)[:, coords][:, :, coords])
    np.testing.assert_allclose(
        unpack(second_moments(m), 4), unpack(m.cov, 4) + np.einsum("ni,nj->nij", m.mean, m.mean), rtol=1e-12
    )
    assert packed_index(np.array([1, 0])).tolist() == [2, 1, 0]


@pytest.mark.parametrize("groups", ["all", "row", "column"])
def test_relations_listed_cells_sum_as_dense_ones(rng, groups):
    seen = rng.random((6, 5)) < 0.5
    rows, cols = np.nonzero(seen)
    dense, listed = DenseCells((6, 5), seen.astype(float)), ListedCells((6, 5), rows, cols)
    values, B = rng.standard_normal((6, 5)), rng.standard_normal((5, 2))
    own = values[rows, cols]
    np.testing.assert_allclose(
        dense.group_sums(dense.only_observed(values), groups), listed.group_sums(own, groups), rtol=1e-12
    )
    group = np.arange({"all": 1, "row": 6, "column": 5}[groups], dtype=float)
    spread = np.broadcast_to(dense.spread(group, groups), (6, 5))[rows, cols]
    np.testing.assert_array_equal(np.broadcast_to(listed.spread(group, groups), own.shape), spread)
    found = listed.row_sums(own, B, SERIAL)
    np.testing.assert_allclose(found, dense.row_sums(dense.only_observed(values), B, SERIAL), atol=1e-12)
    assert dense.n_observed == listed.n_observed == seen.sum()


@each("shape", [(1, 1), (1, 5), (6, 1), (6, 5)])
@each("of", [False, True])
@each("gaps", [False, True])
def test_relations_sums_by_blocks_are_those_of_whole_arrays(rng, monkeypatch, shape, of, gaps):
    monkeypatch.setattr("tensorcep.factor_models.cells.BLOCK", 10)  # two rows
    seen = rng.random((6, 5)) < 0.6 if gaps else np.ones((6, 5), dtype=bool)
    cells, x = DenseCells((6, 5), seen if gaps else None), np.where(seen, rng.standard_normal((6, 5)), 0.0)
    weight, A, B = rng.random(shape), rng.standard_normal((6, 2)), rng.standard_normal((5, 2))
    given = cells.only_observed(weight) if shape == (6, 5) else weight
    whole, values = np.where(seen, weight, 0.0) * (x if of else 1.0), x if of else None
    rows, columns = (np.broadcast_to(found, (n, 2)) for found, n in ((whole @ B, 6), (whole.T @ A, 5)))
    for found, expected in (
        (cells.row_sums(given, B, SERIAL, values), rows),
        (cells.column_sums(given, A, SERIAL, values), columns),
    ):
        np.testing.assert_allclose(np.broadcast_to(found, expected.shape), expected, atol=1e-12)


@each("groups", ["all", "column"])
@each("gaps", [0.0, 0.3])
def test_relations_products_say_what_arrays_say(rng, monkeypatch, groups, gaps):
    monkeypatch.setattr("tensorcep.factor_models.cells.BLOCK", 18)  # three rows
    relation = problem(data(rng, "gaussian", missing=gaps), 3, "gaussian", groups=groups).relations[0]
    cells, (N, D) = relation.cells, relation.cells.shape
    old, u, v = (packed(rng, n, 3) for n in (N, N, D))
    before = latent_of(relation, old, v, SERIAL)
    found = latent_of(relation, u, v, SERIAL, before)
    moved = latent_of(relation, u, packed(rng, D, 3), SERIAL, found)
    assert isinstance(found, Products)
    assert moved.means is found.means
    assert before.means is not found.means
    f, variance = latent_moments(relation.cells, u, v, SERIAL)
    squares = cells.observed_sums((relation.x - f) ** 2 + variance, groups)
    np.testing.assert_allclose(found.squares, squares, rtol=1e-12)
    sites = sites_of_squares(relation, Priors(), found.squares)
    arrays = bound(relation, sites, (f, variance))
    assert bound(relation, sites, found) == pytest.approx(arrays, rel=1e-12)
    np.testing.assert_allclose(
        np.broadcast_to(found.means + found.covariances, (D, 6)),
        np.broadcast_to(cells.column_sums(np.ones((1, 1)), second_moments(u), SERIAL), (D, 6)),
        rtol=1e-12,
    )
    away, size = (u.mean - old.mean) @ v.mean.T, (f**2 + variance).sum()
    assert found.change(before) == pytest.approx(np.sqrt((away**2).sum() / size), rel=1e-10)
    turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]  # rows and columns turned: no latent value changes
    turned = latent_of(relation, u._replace(mean=u.mean @ turn), v._replace(mean=v.mean @ turn), SERIAL)
    assert turned.change(found) < 1e-7
