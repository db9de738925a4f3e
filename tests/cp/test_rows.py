"""What is computed some entries at a time against the whole."""

from __future__ import annotations

import numpy as np
from helpers.cases import each
from helpers.problems import problem

from tensorcep.core import arrays
from tensorcep.core.executor import ThreadExecutor
from tensorcep.cp.init import residual
from tensorcep.cp.model import latent, rows
from tensorcep.cp.model.entries import all_coords

SHAPE, N = (20, 15, 10), 1000


@each("likelihood", ["gaussian", "probit", "poisson"])
def test_scores_and_working_values_do_not_depend_on_the_pieces(rng, monkeypatch, likelihood):
    _, _, p = problem(rng, n=N, shape=SHAPE, likelihood=likelihood)
    f = latent.latent_of_entries(p.entries, p.start, ThreadExecutor(1))

    def found():
        at_rows = residual.working_values(p, f.ravel()[:N])
        return rows.train_score(p, f, 1.3), residual.working_values(p), at_rows

    whole = found()
    for module in (rows, residual):
        monkeypatch.setattr(module, "ENTRIES_AT_A_TIME", 128)
    for one, other in zip(whole, found(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_change_is_relative_to_the_new_size(rng):
    new, old = rng.standard_normal((2, 60, 16))
    expected = np.sqrt(np.mean((new - old) ** 2)) / np.sqrt(np.mean(new**2))
    assert latent.relative_change(new, old) == expected
    assert latent.relative_change(new[:0], old[:0]) == 0.0


@each("threads", [1, 2])
@each("known", [False, True])
@each("leaf", [64, 4096])
def test_latent_values_move_in_place_to_the_bits_of_new_ones(rng, monkeypatch, leaf, known, threads):
    _, _, p = problem(rng, n=N, shape=SHAPE)
    entries = p.entries._replace(known=rng.standard_normal(p.entries.y.shape)) if known else p.entries
    to, executor = p.start + rng.standard_normal(p.start.shape), ThreadExecutor(threads)
    old, new = (latent.latent_of_entries(entries, mean, executor) for mean in (p.start, to))
    expected = latent.relative_change(new, old)
    monkeypatch.setattr(latent, "leaves", lambda n: arrays.leaves(n, leaf))
    monkeypatch.setattr(latent, "sum_of_leaves", lambda parts, n: arrays.sum_of_leaves(parts, n, leaf))
    assert latent.move_latent(old, entries, to, executor) == expected
    executor.close()
    np.testing.assert_array_equal(old, new)


def test_coordinates_of_all_entries_are_in_the_order_of_the_lanes(rng):
    coords, _, p = problem(rng, n=N, shape=SHAPE)
    found = all_coords(p.entries)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, coords[p.entries.permutation])
